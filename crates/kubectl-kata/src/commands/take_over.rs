//! `takeover`: how nodes on which kata-deploy, upstream's installer, installed Kata become the operator's. `plan` reads
//! only. `begin` stops kata-deploy, so that nothing of it acts on nodes any more; it changes no node and no RuntimeClass.
//! The operator does the rest, once `spec.takeOver` is set.

mod installation;
mod steps;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::kata_config::TakeOver;
use kata_api::{KataConfig, KataConfigSpec, names};
use kata_plan::{NodeFacts, runtimes_to_add, take_over_obstacle};
use kube::Resource as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ask_consent, expect_output};
use crate::Context;
use crate::api::Scope;
use crate::arguments::{TakeOverAction, TakeOverArguments};
use crate::changes::Changes;
use crate::cluster::Kata;
use crate::disruption::field;
use crate::document::{Head, TakeOverNode, TakeOverPlan};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::printer::yaml;
use crate::refusal::Refusal;
use crate::resource::{CRON_JOBS, DAEMON_SETS, JOBS, NODES, PODS, POOLS, SECRETS};
use crate::settings::Output;
use installation::Installation;
use steps::{Step, refusal, steps};

/// What the chart has besides, which stays.
const STAYS: &str = "ServiceAccounts, ClusterRoles, NodeFeatureRules, kata-monitor and the ConfigMap with the release's state";
/// Marks of programs that create deleted objects again: label or annotation, and the program.
const DEPLOYERS: [(&str, &str); 4] = [
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
];

pub(crate) async fn run(
    arguments: &TakeOverArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    if context.api.serves(POOLS).await? {
        return Refusal::new(
            "on OpenShift the Machine Config Operator changes nodes, and kata-deploy cannot be taken over",
            "see docs/migrate.md",
        )
        .print(context);
    }
    match arguments.action {
        TakeOverAction::Plan => plan(arguments, context).await,
        TakeOverAction::Begin if arguments.dry_run => plan(arguments, context).await,
        TakeOverAction::Begin => begin(arguments, context).await,
    }
}

/// Says what is to be done.
async fn plan(
    arguments: &TakeOverArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table, Output::Json, Output::Yaml], "takeover plan")?;
    let found = Installation::read(&context.api).await?;
    let plan = document(&found, arguments, context).await?;
    let exit = if plan.success { Exit::Fine } else { Exit::Refused };
    if context.printer.document(context.settings.output, &plan)? {
        return Ok(exit);
    }
    for line in lines(&plan, context) {
        context.printer.say(&line)?;
    }
    // What is pasted or piped as it is.
    context.printer.raw(&yaml(&plan.kata_config)?)?;
    Ok(exit)
}

/// Stops kata-deploy.
async fn begin(
    arguments: &TakeOverArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table], "takeover begin")?;
    let found = Installation::read(&context.api).await?;
    let plan = document(&found, arguments, context).await?;
    found.records.listed("stop kata-deploy", &SECRETS.qualified())?;
    if let Some(refusal) =
        refusal(&found).or_else(|| in_vain(&plan.nodes)).filter(|_| !plan.stopped)
    {
        return refusal.print(context);
    }
    if !plan.stopped {
        for line in lines(&plan, context) {
            context.printer.say(&line)?;
        }
        let what = "takeover begin stops kata-deploy";
        if let Some(exit) = ask_consent(arguments.yes, what, context).await? {
            return Ok(exit);
        }
        if let Some(exit) = stop(arguments, context).await? {
            return Ok(exit);
        }
    }
    let text = context.marked("kata-deploy is stopped, and Kata keeps running on its nodes");
    context.printer.line(&text)?;
    context.printer.say(
        "Next: kubectl kata takeover plan > kataconfig.yaml, then kubectl apply -f kataconfig.yaml; the way back until then is \
         to install the Helm release again",
    )?;
    Ok(Exit::Fine)
}

/// Takes one step after the other; how the command ends if not all could be taken.
async fn stop(
    arguments: &TakeOverArguments,
    context: &mut Context<'_, '_>,
) -> Result<Option<Exit>, Failure> {
    let begin = Instant::now();
    let end = (!arguments.timeout.is_zero()).then(|| begin + arguments.timeout);
    let mut changes = Changes::of(&context.api, &[CRON_JOBS, DAEMON_SETS, JOBS, PODS], None).await;
    let mut said = String::new();
    let mut is_paused = false;
    loop {
        let found = Installation::read(&context.api).await?;
        found.records.listed("stop kata-deploy", &SECRETS.qualified())?;
        if let Some(refusal) = refusal(&found) {
            return Ok(Some(refusal.print(context)?));
        }
        let Some(step) = steps(&found, &arguments.pause_image).into_iter().next() else {
            return Ok(None);
        };
        let is_late = end.is_some_and(|end| Instant::now() >= end);
        let what = match &step {
            Step::Await(what) => what,
            Step::Pause { namespace, name, .. } if is_paused => {
                return Err(Failure::Refused {
                    what: "stop kata-deploy".to_owned(),
                    message: format!(
                        "another program has given the pods of DaemonSet {namespace}/{name} their image back; stop it first, \
                         for example the application of Argo CD or Flux, or the admission webhook"
                    ),
                });
            }
            _ if !is_late && !context.is_interrupted() => {
                is_paused |= matches!(step, Step::Pause { .. });
                step.run(context).await?;
                continue;
            }
            step => &step.sentence(),
        };
        if *what != said {
            context.printer.say(&context.marked(&format!("waiting for {what}")))?;
            said.clone_from(what);
        }
        context.printer.flush()?;
        let expired = async {
            match end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = context.interrupted() => {
                context.printer.say("interrupted; the same command goes on")?;
                return Ok(Some(Exit::Interrupted));
            }
            () = expired => {
                let span = human::elapsed(begin);
                let text = format!("error: timed out after {span}: waiting for {what}; the same command goes on");
                context.printer.say(&text)?;
                return Ok(Some(Exit::TimedOut));
            }
            () = changes.next() => {}
        }
    }
}

/// What is there, what is to be done, and the KataConfig.
///
/// # Errors
/// If there is no kata-deploy, or what is needed cannot be read.
async fn document(
    found: &Installation,
    arguments: &TakeOverArguments,
    context: &Context<'_, '_>,
) -> Result<TakeOverPlan, Failure> {
    let api = &context.api;
    let kata = Kata::read(api).await?;
    let nodes = api.list::<Node>(NODES, Scope::default()).await?;
    nodes.listed("find the nodes of kata-deploy", &NODES.qualified())?;
    let all: Vec<NodeFacts> = nodes.items().iter().map(NodeFacts::from).collect();
    let of_kata_deploy: Vec<&NodeFacts> =
        all.iter().filter(|node| is_of_kata_deploy(node)).collect();
    if found.is_absent() && of_kata_deploy.is_empty() {
        return Err(Failure::NotFound(
            "there is no kata-deploy without a suffix in this cluster; `kubectl kata install` installs Kata".to_owned(),
        ));
    }
    let nodes: Vec<TakeOverNode> = of_kata_deploy.iter().map(|node| of_node(node)).collect();
    let refusal = refusal(found).or_else(|| in_vain(&nodes));
    let steps = steps(found, &arguments.pause_image);
    let kata_config = kata_config(kata.active(), found, &all);
    Ok(TakeOverPlan {
        head: Head::new("TakeOverPlan", kata.is_simulated()),
        success: refusal.is_none(),
        stopped: found.is_stopped() && !found.records.is_forbidden(),
        release: found.release().map(|it| format!("{}/{}", it.namespace, it.name)),
        nodes,
        runtime_classes: found
            .classes
            .iter()
            .map(|class| class.metadata.name.clone().unwrap_or_default())
            .collect(),
        steps: steps.iter().map(Step::sentence).collect(),
        notes: notes(found, &kata_config),
        refusal: refusal.map(|refusal| refusal.sentence()),
        kata_config,
        gaps: api.gaps(),
    })
}

fn is_of_kata_deploy(node: &NodeFacts) -> bool {
    // Whoever else labels nodes so is not taken over, and the plan says why.
    node.labels.contains_key(names::KATA_DEPLOY_LABEL)
        || (node.labels.contains_key(names::RUNTIME_LABEL) && !is_ours(node))
}

/// Whether the operator's runtimes are on a node.
fn is_ours(node: &NodeFacts) -> bool {
    node.labels.keys().any(|key| key.starts_with(names::CLASS_LABEL_PREFIX))
}

fn of_node(node: &NodeFacts) -> TakeOverNode {
    let taken_over = is_ours(node);
    let obstacle = if taken_over { None } else { take_over_obstacle(node) };
    TakeOverNode { name: node.name.clone(), taken_over, obstacle }
}

/// That kata-deploy would be stopped for nothing.
fn in_vain(nodes: &[TakeOverNode]) -> Option<Refusal> {
    let first = nodes.first()?;
    let obstacle = first.obstacle.as_ref()?;
    nodes.iter().all(|node| node.obstacle.is_some()).then(|| {
        Refusal::new(
            format!("no node can be taken over; node {}: {obstacle}", first.name),
            "remove what speaks against it, or leave the nodes to kata-deploy",
        )
    })
}

/// What to know before kata-deploy is stopped.
fn notes(found: &Installation, kata_config: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    let mut deployers: Vec<&str> = Vec::new();
    for metadata in found.metadata() {
        let labels = metadata.labels.iter().flatten();
        for (key, _) in labels.chain(metadata.annotations.iter().flatten()) {
            let of_key = DEPLOYERS.iter().filter(|(mark, _)| mark == key);
            deployers.extend(of_key.map(|(_, program)| *program));
        }
    }
    deployers.sort_unstable();
    deployers.dedup();
    notes.extend(deployers.iter().map(|program| {
        format!("{program} manages kata-deploy and would create it again: take it out there first, without deleting it")
    }));
    if !found.suffixed.is_empty() {
        let others = human::list(&found.suffixed, 3);
        notes.push(format!("installations with a suffix stay as they are: DaemonSet {others}"));
    }
    if !found.shares_release.is_empty() {
        let others = human::list(&found.shares_release, 3);
        notes.push(format!(
            "the Helm release has other parts, {others}, so that Helm keeps it: do not upgrade or uninstall it before \
             kata-deploy is taken out of its chart"
        ));
    }
    if kata_config.to_string().contains(names::KATA_DEPLOY_LABEL) {
        notes.push(format!(
            "the KataConfig selects the label {}: as long as it does, do not remove that label from a node",
            names::KATA_DEPLOY_LABEL
        ));
    }
    notes
}

/// The KataConfig that takes the nodes over: the one that there is, with what it lacks, or a new one. It has no defaults.
fn kata_config(existing: Option<&KataConfig>, found: &Installation, nodes: &[NodeFacts]) -> Value {
    let mut runtimes = existing.map(|config| config.spec.effective_runtimes()).unwrap_or_default();
    for runtime in runtimes_to_add(&runtimes, &found.classes) {
        match runtimes.iter_mut().find(|it| it.name == runtime.name) {
            Some(other) => {
                other.handler = runtime.handler;
                other.install_on = None;
                if other.tolerations.is_empty() {
                    other.tolerations = runtime.tolerations;
                }
                if other.node_selector.is_empty() {
                    other.node_selector = runtime.node_selector;
                }
                other.overhead = other.overhead.take().or(runtime.overhead);
            }
            None => runtimes.push(runtime),
        }
    }
    let mut spec = match existing {
        Some(config) => json!(config.spec),
        None => json!({"kataConfigPoolSelector": selector(found, nodes)}),
    };
    spec["takeOver"] = json!(TakeOver::KataDeploy);
    spec["runtimes"] = json!(runtimes);
    let defaults = json!(serde_json::from_value::<KataConfigSpec>(json!({})).ok());
    if let Value::Object(spec) = &mut spec {
        spec.retain(|key, value| !value.is_null() && defaults.get(key) != Some(value));
    }
    let name = existing.and_then(|config| config.metadata.name.as_deref());
    json!({
        "apiVersion": KataConfig::api_version(&()),
        "kind": KataConfig::kind(&()),
        "metadata": {"name": name.unwrap_or("cluster-kataconfig")},
        "spec": spec,
    })
}

/// Selects the nodes of kata-deploy where it does not have all workers.
fn selector(found: &Installation, nodes: &[NodeFacts]) -> Option<LabelSelector> {
    let is_worker = |node: &&NodeFacts| {
        !["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]
            .iter()
            .any(|role| node.labels.contains_key(*role))
    };
    let is_its = |node: &NodeFacts| node.labels.contains_key(names::KATA_DEPLOY_LABEL);
    if nodes.iter().filter(is_worker).all(is_its)
        && nodes.iter().filter(|it| is_its(it)).all(|it| is_worker(&it))
    {
        return None;
    }
    let of_set = found.daemon_sets.first().and_then(|set| {
        let spec = set.spec.as_ref()?.template.spec.as_ref()?;
        spec.node_selector.clone().filter(|labels| !labels.is_empty())
    });
    // It also has an affinity, often.
    let of_set = of_set.filter(|labels| {
        let has_all = |node: &NodeFacts| {
            labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        };
        nodes.iter().all(|node| has_all(node) == is_its(node))
    });
    let labels = of_set.unwrap_or_else(|| {
        [(names::KATA_DEPLOY_LABEL.to_owned(), names::RUNTIME_LABEL_VERIFIED.to_owned())].into()
    });
    Some(LabelSelector { match_labels: Some(labels), match_expressions: None })
}

/// The plan for people.
fn lines(plan: &TakeOverPlan, context: &Context<'_, '_>) -> Vec<String> {
    let style = context.printer.style();
    let mut lines = vec![context.marked("Nodes of kata-deploy become the operator's.")];
    lines.extend(field("Cluster", &context.place, &style));
    let release = match &plan.release {
        Some(release) => format!("Helm release {release}"),
        None => "installed without Helm".to_owned(),
    };
    let state = if plan.stopped { "stopped" } else { "not stopped" };
    lines.extend(field("Installer", &format!("kata-deploy, {release}, {state}"), &style));
    let classes = &plan.runtime_classes;
    let text = format!("{}: {}", classes.len(), human::list(classes, 5));
    lines.extend(field("Classes", if classes.is_empty() { "none" } else { &text }, &style));
    let names_of = |chosen: &dyn Fn(&TakeOverNode) -> bool| -> Vec<&str> {
        plan.nodes.iter().filter(|node| chosen(node)).map(|node| node.name.as_str()).collect()
    };
    let taken = names_of(&|node| node.taken_over);
    let able = names_of(&|node| !node.taken_over && node.obstacle.is_none());
    for (names, what) in [(able, "to be taken over"), (taken, "taken over already")] {
        if !names.is_empty() {
            let text = format!("{} {what}: {}", names.len(), human::list(&names, 5));
            lines.extend(field("Nodes", &text, &style));
        }
    }
    for node in plan.nodes.iter() {
        if let Some(obstacle) = &node.obstacle {
            lines.extend(field("Left", &format!("node {}: {obstacle}", node.name), &style));
        }
    }
    for (at, step) in plan.steps.iter().enumerate() {
        lines.extend(field(if at == 0 { "Begin" } else { "" }, step, &style));
    }
    if !plan.steps.is_empty() {
        lines.extend(field("Stays", STAYS, &style));
    }
    for note in &plan.notes {
        lines.extend(field("Note", note, &style));
    }
    if let Some(refusal) = &plan.refusal {
        lines.extend(field("Refused", refusal, &style));
    }
    lines
}
