//! `retry`, `pause` and `resume`: each sets one field for the operator, and changes no node itself.

use kata_api::{Code, KataConfig, KataNode, names};
use serde_json::{Value, json};

use super::{expect_output, marked};
use crate::Context;
use crate::api::Trouble;
use crate::arguments::{PauseArguments, RetryArguments};
use crate::cluster::Kata;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resource::{KATA_CONFIGS, KATA_NODES, Resource};
use crate::settings::Output;

/// The content type of a JSON merge patch.
const MERGE: &str = "application/merge-patch+json";
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
    if kata.nodes.is_forbidden() {
        let kind = KATA_NODES.qualified();
        return Err(Failure::Forbidden(format!("cannot find the nodes: you may not list {kind}")));
    }
    let all = kata.nodes.items();
    let mut chosen: Vec<&KataNode> = Vec::new();
    for name in &arguments.nodes {
        let name = name.strip_prefix("node/").unwrap_or(name);
        let node = all.iter().find(|node| node.spec.node_name == name).ok_or_else(|| {
            Failure::NotFound(format!(
                "there is no KataNode of node {name}: `kubectl kata nodes` lists the nodes that have one"
            ))
        })?;
        if !has_failed(node) {
            let text = format!("node {name} has no failed change to retry: {}", state(node));
            context.printer.line(&marked(&text, kata.is_simulated()))?;
        } else if !chosen.contains(&node) {
            chosen.push(node);
        }
    }
    if arguments.all {
        chosen.extend(all.iter().filter(|node| has_failed(node)));
        if chosen.is_empty() {
            let text = "no node has a failed change to retry";
            context.printer.line(&marked(text, kata.is_simulated()))?;
        }
    }
    // Each value has to be a new one.
    let value = context.settings.now().to_string();
    let patch = json!({"metadata": {"annotations": {names::RETRY_ANNOTATION: value}}});
    for node in &chosen {
        let name = node.metadata.name.as_deref().unwrap_or(&node.spec.node_name);
        change(KATA_NODES, name, &patch, arguments.dry_run, context).await?;
    }
    if chosen.is_empty() || arguments.dry_run {
        return Ok(Exit::Fine);
    }
    for name in chosen.iter().filter(|node| is(node, Code::NodeBroken)).map(|it| &it.spec.node_name)
    {
        context.printer.say(&format!(
            "The next Job completes the rollback of node {name}. To repeat the change after that, run `kubectl \
             kata retry {name}` again."
        ))?;
    }
    let next = match chosen.as_slice() {
        [node] => format!("kubectl kata wait --for node/{}=Ready", node.spec.node_name),
        _ => "kubectl kata wait".to_owned(),
    };
    context.printer.say(&format!("Next: {next}"))?;
    Ok(Exit::Fine)
}

fn is(node: &KataNode, code: Code) -> bool {
    let found = node.status.as_ref().and_then(|status| status.code.as_deref());
    found == Some(code.entry().code)
}

/// Whether the last Job of a node failed. On OpenShift there are no Jobs: the Machine Config Operator repeats its
/// changes by itself.
fn has_failed(node: &KataNode) -> bool {
    let host = node.status.as_ref().and_then(|status| status.host.as_ref());
    let failures = host.and_then(|host| host.job.as_ref()).map_or(0, |job| job.failures);
    failures > 0 || is(node, Code::NodeRolledBack) || is(node, Code::NodeBroken)
}

/// `Ready`, or the phase with the message of the node.
fn state(node: &KataNode) -> String {
    let status = node.status.clone().unwrap_or_default();
    match status.message.as_str() {
        "" => status.phase.as_str().to_owned(),
        message => format!("{}, {message}", status.phase.as_str()),
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
    if kata.configs.is_forbidden() {
        let kind = KATA_CONFIGS.qualified();
        let text = format!("cannot find the KataConfig: you may not list {kind}");
        return Err(Failure::Forbidden(text));
    }
    let Some(config) = kata.active() else {
        return Err(Failure::NotFound(format!(
            "there is no KataConfig to {verb}; `kubectl kata install` creates one"
        )));
    };
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if is_paused(config) == paused {
        let state = if paused { "paused already" } else { "not paused" };
        let text = format!("KataConfig {name} is {state}");
        context.printer.line(&marked(&text, kata.is_simulated()))?;
        return Ok(Exit::Fine);
    }
    let patch = json!({"spec": {"rollout": {"paused": paused}}});
    change(KATA_CONFIGS, name, &patch, arguments.dry_run, context).await?;
    if !arguments.dry_run {
        let on_openshift =
            |node: &KataNode| node.status.as_ref().is_some_and(|status| status.host.is_none());
        let text = match (paused, kata.nodes.items().iter().any(on_openshift)) {
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

async fn change(
    resource: Resource,
    name: &str,
    patch: &Value,
    dry_run: bool,
    context: &mut Context<'_, '_>,
) -> Result<(), Failure> {
    let dry = if dry_run { "&dryRun=All" } else { "" };
    let path = format!(
        "{}?fieldManager={MANAGER}&fieldValidation=Strict{dry}",
        resource.object(None, name)
    );
    let what = format!("change {} {name}", resource.qualified());
    match context.api.write(&what, http::Method::PATCH, &path, Some(MERGE), patch).await {
        Ok(_) => {}
        Err(Trouble::Status(status)) if status.code == 403 => {
            return Err(Failure::Forbidden(format!(
                "cannot {what}: you may not patch {}; ask for the ClusterRole kata-operator-edit",
                resource.qualified()
            )));
        }
        Err(trouble) => return Err(trouble.failure(&what)),
    }
    let dry = if dry_run { " (server dry run)" } else { "" };
    let text = format!("{}/{name} changed{dry}", resource.qualified());
    let text = context.marked(&text);
    context.printer.line(&text)?;
    Ok(())
}
