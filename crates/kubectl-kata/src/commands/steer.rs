//! `retry`, `pause` and `resume`: each sets one field for the operator, and changes no node itself.

use kata_api::kata_node::{HostJob, Phase};
use kata_api::{Code, KataConfig, KataNode, NodeAction, names};
use serde_json::{Value, json};

use super::{expect_output, marked};
use crate::Context;
use crate::arguments::{PauseArguments, RetryArguments};
use crate::cluster::{Kata, find_node};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resource::{KATA_CONFIGS, KATA_NODES, POOLS, Resource};
use crate::settings::Output;

/// The content type of a JSON merge patch.
const MERGE: &str = "application/merge-patch+json";
/// What keeps a Job from being started.
const NOT_STARTED: [Code; 4] =
    [Code::NodeJobImage, Code::NodeJobWithoutPod, Code::NodeJobNotStarted, Code::NodeJobHeld];
/// The field manager of the changes.
const MANAGER: &str = "kubectl-kata";

/// Asks the operator to retry the failed changes of nodes.
pub(crate) async fn retry(
    arguments: &RetryArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table], "retry")?;
    if arguments.nodes.is_empty() && !arguments.all {
        return Err(Failure::Usage("retry: name a node, or give --all".to_owned()));
    }
    let kata = Kata::read(&context.api).await?;
    let all = kata.known_nodes("find failed nodes")?;
    let mut chosen: Vec<&KataNode> = Vec::new();
    let mut others: Vec<&KataNode> = Vec::new();
    for name in &arguments.nodes {
        let node = find_node(all, name)?;
        let list = if has_failed_job(node) { &mut chosen } else { &mut others };
        if !list.contains(&node) {
            list.push(node);
        }
    }
    if arguments.all {
        chosen.extend(all.iter().filter(|node| has_failed_job(node)));
        others.extend(all.iter().filter(|node| is_retried_by_machine_config_operator(node)));
        if chosen.is_empty() && others.is_empty() {
            let text = "no node has a failed change to retry";
            context.printer.line(&marked(text, kata.is_simulated()))?;
        }
    }
    let exit = if others.iter().any(|node| is_held_up(node)) { Exit::Findings } else { Exit::Fine };
    for node in others {
        context.printer.line(&marked(&not_retried(node), kata.is_simulated()))?;
    }
    // Each value has to be a new one.
    let value = context.settings.now().to_string();
    let patch = json!({"metadata": {"annotations": {names::RETRY_ANNOTATION: value}}});
    for node in &chosen {
        let name = node.metadata.name.as_deref().unwrap_or(&node.spec.node_name);
        change(KATA_NODES, name, "will be retried", &patch, arguments.dry_run, context).await?;
    }
    if chosen.is_empty() || arguments.dry_run {
        return Ok(exit);
    }
    for name in chosen.iter().filter(|node| is(node, Code::NodeBroken)).map(|it| &it.spec.node_name)
    {
        context.printer.say(&format!(
            "The next Job completes the rollback of node {name}. To repeat the change after that, run `kubectl \
             kata retry {name}` again."
        ))?;
    }
    let is_deleted =
        kata.active().is_some_and(|config| config.metadata.deletion_timestamp.is_some());
    let next = match chosen.as_slice() {
        _ if is_deleted => "kubectl kata wait --for deleted".to_owned(),
        [node] if loses_kata(node) => "kubectl kata status -w".to_owned(),
        [node] => format!("kubectl kata wait --for node/{}=Ready", node.spec.node_name),
        _ => "kubectl kata wait".to_owned(),
    };
    context.printer.say(&format!("Next: {next}"))?;
    Ok(exit)
}

fn is(node: &KataNode, code: Code) -> bool {
    let found = node.status.as_ref().and_then(|status| status.code.as_deref());
    found == Some(code.entry().code)
}

/// Whether the last Job of a node failed.
fn has_failed_job(node: &KataNode) -> bool {
    let failures = last_job(node).map_or(0, |job| job.failures);
    failures > 0 || is(node, Code::NodeRolledBack) || is(node, Code::NodeBroken)
}

/// Whether the change of a node failed that no Job made.
fn is_retried_by_machine_config_operator(node: &KataNode) -> bool {
    let status = node.status.as_ref();
    status.is_some_and(|status| status.phase == Phase::Failed && status.host.is_none())
}

/// Whether something else than a failure holds up the change of a node, so that a retry is no help.
fn is_held_up(node: &KataNode) -> bool {
    let status = node.status.as_ref();
    status.is_some_and(|status| status.phase != Phase::Ready && status.code.is_some())
        && !is_retried_by_machine_config_operator(node)
}

fn loses_kata(node: &KataNode) -> bool {
    last_job(node).is_some_and(|job| job.action == NodeAction::Remove)
}

fn last_job(node: &KataNode) -> Option<&HostJob> {
    node.status.as_ref()?.host.as_ref()?.job.as_ref()
}

/// Why a node is not retried.
fn not_retried(node: &KataNode) -> String {
    let name = &node.spec.node_name;
    let status = node.status.clone().unwrap_or_default();
    let phase = status.phase.as_str();
    if is_retried_by_machine_config_operator(node) {
        return format!(
            "the Machine Config Operator retries the change of node {name} by itself; remove the cause of the \
             failure: {} (`kubectl kata logs node/{name}` shows more)",
            status.message
        );
    }
    if let Some(code) = NOT_STARTED.into_iter().find(|code| is(node, *code)) {
        let fix = code.entry().fix.replace("NAME", name);
        return format!(
            "node {name} has no failed change to retry, since its Job has not started: {}; fix: {fix}",
            status.message
        );
    }
    match status.message.as_str() {
        "" => format!("node {name} has no failed change to retry: {phase}"),
        message => format!("node {name} has no failed change to retry: {phase}, {message}"),
    }
}

/// Stops the roll-out before the next node, or resumes it.
pub(crate) async fn pause(
    paused: bool,
    arguments: &PauseArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let verb = if paused { "pause" } else { "resume" };
    expect_output(context.settings, &[Output::Table], verb)?;
    let kata = Kata::read(&context.api).await?;
    let config = kata.active_or_not_found(verb)?;
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if is_paused(config) == paused {
        let state = if paused { "paused already" } else { "not paused" };
        let text = format!("KataConfig {name} is {state}");
        context.printer.line(&marked(&text, kata.is_simulated()))?;
        return Ok(Exit::Fine);
    }
    let has_pools = paused && context.api.serves(POOLS).await?;
    if has_pools && config.metadata.deletion_timestamp.is_some() {
        let text = format!(
            "refused: KataConfig {name} is being deleted, and spec.rollout.paused does not stop that on OpenShift: \
             pause the MachineConfigPool worker, or master on a compact cluster"
        );
        context.printer.say(&marked(&text, kata.is_simulated()))?;
        return Ok(Exit::Refused);
    }
    let patch = json!({"spec": {"rollout": {"paused": paused}}});
    let done = if paused { "paused" } else { "resumed" };
    change(KATA_CONFIGS, name, done, &patch, arguments.dry_run, context).await?;
    if !arguments.dry_run {
        let text = match (paused, has_pools) {
            (false, _) => "Next: kubectl kata wait",
            (true, false) => {
                "Changes in progress complete, and no other node starts. Next: kubectl kata status, then kubectl \
                 kata resume"
            }
            (true, true) => {
                "Changes in progress complete, and no other node starts; on a compact cluster pause the \
                 MachineConfigPool master, too. Next: kubectl kata status, then kubectl kata resume"
            }
        };
        context.printer.say(text)?;
    }
    Ok(Exit::Fine)
}

fn is_paused(config: &KataConfig) -> bool {
    config.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused)
}

/// Changes an object, and prints what became of it, such as `paused`.
pub(super) async fn change(
    resource: Resource,
    name: &str,
    done: &str,
    patch: &Value,
    dry_run: bool,
    context: &mut Context<'_, '_>,
) -> Result<(), Failure> {
    let dry = if dry_run { "&dryRun=All" } else { "" };
    merge(resource, name, patch, dry, context).await?;
    let dry = if dry_run { " (server dry run)" } else { "" };
    let text = format!("{}/{name} {done}{dry}", resource.qualified());
    let text = context.marked(&text);
    context.printer.line(&text)?;
    Ok(())
}

/// The object as the change would leave it, if the API server accepts it.
pub(super) async fn try_change(
    resource: Resource,
    name: &str,
    patch: &Value,
    context: &Context<'_, '_>,
) -> Result<Value, Failure> {
    merge(resource, name, patch, "&dryRun=All", context).await
}

async fn merge(
    resource: Resource,
    name: &str,
    patch: &Value,
    dry: &str,
    context: &Context<'_, '_>,
) -> Result<Value, Failure> {
    let path = format!(
        "{}?fieldManager={MANAGER}&fieldValidation=Strict{dry}",
        resource.object(None, name)
    );
    let what = format!("change {} {name}", resource.qualified());
    let changed = context.api.write(&what, http::Method::PATCH, &path, Some(MERGE), patch).await;
    changed.map_err(|trouble| {
        let kind = resource.qualified();
        trouble.denied(&what, &format!("patch {kind}; ask for the ClusterRole kata-operator-edit"))
    })
}
