//! `install`: says what will happen, asks, labels nodes if `--node` names some, and creates a KataConfig.

use std::collections::BTreeMap;

use kata_api::kata_node::Phase;
use kata_api::{Code, KataConfig, names};
use kata_plan::{NodeFacts, Observed, Platform, Snapshot};
use serde_json::{Value, json};

use super::{confirmed, expect_output, pace, status, wait};
use crate::Context;
use crate::api::Trouble;
use crate::arguments::{DryRun, InstallArguments};
use crate::cluster::Kata;
use crate::disruption::{Disruption, field, sentence};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::printer::yaml;
use crate::resource::{KATA_CONFIGS, NODES};
use crate::settings::Output;
use crate::snapshot::{self, Assumed};

/// The forms of the result.
const ALLOWED: [Output; 4] = [Output::Table, Output::Json, Output::Yaml, Output::Name];

/// Selects labelled workers.
type Labels = BTreeMap<String, String>;

/// `KEY=VALUE,...` as labels.
fn labels(text: Option<&str>) -> Result<Labels, Failure> {
    let mut labels = Labels::new();
    for part in text.unwrap_or_default().split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("--node-selector {part}: write labels as KEY=VALUE,..."))
        })?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.contains('=') {
            return Err(Failure::Usage(format!(
                "--node-selector {part}: write labels as KEY=VALUE,..."
            )));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

/// How many nodes may be unavailable: a number of at least 1, or a percentage from 1% to 100%, as the
/// CustomResourceDefinition has it.
fn max_unavailable(text: &str) -> Result<Value, Failure> {
    let percentage = text.strip_suffix('%');
    match (percentage.unwrap_or(text).parse::<u32>(), percentage) {
        (Ok(number @ 1..), None) => Ok(json!(number)),
        (Ok(1..=100), Some(_)) => Ok(json!(text)),
        _ => Err(Failure::Usage(format!(
            "--max-unavailable {text}: give a number of at least 1, or a percentage from 1% to 100%"
        ))),
    }
}

/// The KataConfig. Pure.
fn body(arguments: &InstallArguments, labels: &Labels) -> Result<Value, Failure> {
    let mut spec = json!({});
    if !labels.is_empty() {
        spec["kataConfigPoolSelector"] = json!({"matchLabels": labels});
    }
    if arguments.check_node_eligibility {
        spec["checkNodeEligibility"] = json!(true);
    }
    if let Some(text) = &arguments.max_unavailable {
        spec["rollout"] = json!({"maxUnavailable": max_unavailable(text)?});
    }
    if let Some(image) = &arguments.payload_image {
        spec["payload"] = json!({"image": image});
    }
    Ok(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1",
        "kind": "KataConfig",
        "metadata": {"name": arguments.name},
        "spec": spec,
    }))
}

/// Prints the KataConfig and does nothing else; `None` if the cluster is wanted.
pub(crate) fn offline(
    arguments: &InstallArguments,
    settings: &crate::settings::Settings,
    printer: &mut crate::Printer<'_>,
) -> Option<Result<Exit, Failure>> {
    (arguments.dry_run == DryRun::Client).then(|| {
        expect_output(settings, &ALLOWED, "install")?;
        let body = body(arguments, &labels(arguments.node_selector.as_deref())?)?;
        if !printer.document(settings.output, &body)? {
            printer.raw(&yaml(&body)?)?;
        }
        Ok(Exit::Fine)
    })
}

pub(crate) async fn run(
    arguments: &InstallArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &ALLOWED, "install")?;
    let labels = labels(arguments.node_selector.as_deref())?;
    let body = body(arguments, &labels)?;
    let kata = Kata::read(&context.api).await?;
    if kata.configs.is_not_served() {
        context.printer.say(&format!(
            "refused: KATA5003 the cluster does not serve KataConfig, so the operator is not installed\n    \
             fix: {}",
            Code::CustomResourceMissing.entry().fix
        ))?;
        return Ok(Exit::Refused);
    }
    if let Some(problem) =
        status::operator_state(&context.api, &kata, context.settings.now()).await?.missing()
    {
        context.printer.say(&format!(
            "refused: {} {}, so nothing would act on a KataConfig\n    fix: {}",
            problem.id, problem.message, problem.fix
        ))?;
        return Ok(Exit::Refused);
    }
    if let Some(active) = kata.active() {
        let name = active.metadata.name.as_deref().unwrap_or_default();
        if active.metadata.deletion_timestamp.is_some() {
            context.printer.say(&format!(
                "refused: KATA1004 KataConfig {name} is still being deleted, and only the oldest is active\n    \
                 fix: kubectl kata wait --for deleted, then try again"
            ))?;
            return Ok(Exit::Refused);
        }
        context.printer.say(&format!(
            "refused: KATA1004 there is a KataConfig already, {name}, and only the oldest is active\n    \
             fix: change that one, or `kubectl kata uninstall` first"
        ))?;
        return Ok(Exit::Refused);
    }
    // Everything is tried before anything is written, so that a refusal leaves the cluster as it was.
    for node in &arguments.node {
        label(node, &labels, Mode::Try, context).await?;
    }
    let tried = create(&body, Mode::Try, context).await?;
    let change = Change::read(&labels, arguments, &tried, context).await?;
    change.print(arguments, context)?;
    let dry = arguments.dry_run == DryRun::Server;
    if !dry && !confirmed(arguments.yes, &change.summary(arguments), context)? {
        return Ok(Exit::Refused);
    }
    let created = if dry {
        tried
    } else {
        for node in &arguments.node {
            label(node, &labels, Mode::Write, context).await?;
        }
        create(&body, Mode::Write, context).await?
    };
    let name = created["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !context.printer.document(context.settings.output, &created)? {
        let suffix = match (dry, context.settings.output) {
            (true, _) => " created (server dry run)",
            (false, Output::Name) => "",
            (false, _) => " created",
        };
        context
            .printer
            .line(&format!("kataconfig.kataconfiguration.openshift.io/{name}{suffix}"))?;
    }
    if dry {
        return Ok(Exit::Fine);
    }
    if arguments.wait {
        return wait::until(&wait::Wanted::Ready, arguments.timeout, context).await;
    }
    context.printer.say("Next: kubectl kata wait")?;
    Ok(Exit::Fine)
}

/// Whether a request writes, or the API server only checks it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Try,
    Write,
}

impl Mode {
    /// The query of a request.
    fn query(self) -> &'static str {
        match self {
            Self::Try => "?dryRun=All&fieldValidation=Strict",
            Self::Write => "?fieldValidation=Strict",
        }
    }
}

/// Creates the KataConfig.
async fn create(body: &Value, mode: Mode, context: &Context<'_, '_>) -> Result<Value, Failure> {
    let path = format!("{}{}", KATA_CONFIGS.path(None), mode.query());
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("create KataConfig {name}");
    match context.api.write(&what, http::Method::POST, &path, None, body).await {
        Ok(created) => Ok(created),
        Err(Trouble::Status(status)) if status.code == 403 => Err(Failure::Forbidden(format!(
            "cannot {what}: you may not create {}",
            KATA_CONFIGS.qualified()
        ))),
        Err(trouble) => Err(trouble.failure(&what)),
    }
}

async fn label(
    node: &str,
    labels: &Labels,
    mode: Mode,
    context: &mut Context<'_, '_>,
) -> Result<(), Failure> {
    let path = format!("{}{}", NODES.object(None, node), mode.query());
    let what = format!("label node {node}");
    let patch = json!({"metadata": {"labels": labels}});
    let content = Some("application/merge-patch+json");
    match context.api.write(&what, http::Method::PATCH, &path, content, &patch).await {
        Ok(_) if mode == Mode::Try => Ok(()),
        Ok(_) => {
            let text = text(labels, ",");
            Ok(context.printer.say(&format!("node/{node} labelled {text}"))?)
        }
        Err(Trouble::Status(status)) if status.code == 403 => {
            Err(Failure::Forbidden(format!("cannot {what}: you may not patch nodes")))
        }
        Err(trouble) => Err(trouble.failure(&what)),
    }
}

/// Whether somebody may have meant a node who speaks of workers.
fn is_worker(node: &NodeFacts, platform: Platform) -> bool {
    let has = |label: &str| node.labels.contains_key(label);
    match platform {
        Platform::OpenShift => has(names::WORKER_ROLE_LABEL),
        Platform::Kubernetes => {
            !has(names::MASTER_ROLE_LABEL) && !has(names::CONTROL_PLANE_ROLE_LABEL)
        }
    }
}

/// Labels as `KEY=VALUE`.
fn text(labels: &Labels, separator: &str) -> String {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(separator)
}

/// What the installation does to the nodes.
enum Change {
    /// The nodes are known.
    Known(Disruption),
    /// No node changes yet, for this reason.
    NoNode(String),
    /// The caller may not read what decides it.
    Unknown(String),
}

impl Change {
    /// The change that the operator decides for this KataConfig, once the nodes have their labels.
    async fn read(
        labels: &Labels,
        arguments: &InstallArguments,
        created: &Value,
        context: &Context<'_, '_>,
    ) -> Result<Self, Failure> {
        let created: KataConfig = serde_json::from_value(created.clone())
            .map_err(|source| Failure::Answer { what: "create a KataConfig".to_owned(), source })?;
        let rollout = created.spec.rollout.as_ref();
        let value = rollout.and_then(|rollout| rollout.max_unavailable.clone());
        let assumed = Assumed {
            configs: Some(vec![created]),
            labelled: &arguments.node,
            labels: labels.clone(),
        };
        let now = context.settings.now();
        let snapshot = Box::pin(snapshot::read(&context.api, now, assumed)).await?;
        let report = kata_plan::decide(&snapshot).report;
        if let Observed::Unknown { error, .. } = &snapshot.nodes {
            return Ok(Self::Unknown(error.clone()));
        }
        if !report.nodes_are_complete() {
            let unread = report.findings.iter().find(|finding| finding.code == Code::ReadFailed);
            let reason = unread.map_or("not everything can be read", |finding| &finding.message);
            return Ok(Self::Unknown(reason.to_owned()));
        }
        let nodes: Vec<String> = report
            .nodes
            .iter()
            .filter(|node| node.wanted && node.phase != Phase::Ready)
            .map(|node| node.node.clone())
            .collect();
        if nodes.is_empty() {
            return Ok(Self::NoNode(why_none(labels, arguments, &snapshot)));
        }
        let pace = pace(snapshot.options.platform, value.as_ref(), nodes.len());
        let api = &context.api;
        let change = Disruption::of(api, &snapshot, nodes, pace, |_pod| false).await?;
        Ok(Self::Known(change))
    }

    /// What a refusal refuses.
    fn summary(&self, arguments: &InstallArguments) -> String {
        let disruption = match self {
            Self::Known(disruption) => disruption.summary(),
            Self::NoNode(_) | Self::Unknown(_) => None,
        };
        let other = || format!("creates KataConfig {}", arguments.name);
        format!("install {}", disruption.unwrap_or_else(other))
    }

    /// Says what this command will do.
    fn print(
        &self,
        arguments: &InstallArguments,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Failure> {
        let style = context.printer.style();
        let labels = match arguments.node.as_slice() {
            [] => String::new(),
            nodes => format!("labels {}, then ", human::list(nodes, 5)),
        };
        let head = format!("This command {labels}creates KataConfig {}.", arguments.name);
        let mut lines = sentence(&context.marked(&head), &style);
        lines.extend(match self {
            Self::Known(disruption) => disruption.lines(&style),
            Self::NoNode(why) => field("Nodes", &format!("none changes: {why}"), &style),
            Self::Unknown(why) => {
                field("Nodes", &format!("which nodes change is unknown: {why}"), &style)
            }
        });
        Ok(lines.iter().try_for_each(|line| context.printer.say(line))?)
    }
}

/// Why no node gets Kata yet.
fn why_none(labels: &Labels, arguments: &InstallArguments, snapshot: &Snapshot) -> String {
    let has = |node: &NodeFacts, key: &str, value: &str| {
        node.labels.get(key).is_some_and(|found| found == value)
    };
    let nodes = snapshot.nodes.known().into_iter().flatten();
    let labelled: Vec<_> = nodes
        .filter(|node| is_worker(node, snapshot.options.platform))
        .filter(|node| labels.iter().all(|(key, value)| has(node, key, value)))
        .collect();
    let incapable = labelled.iter().any(|node| !has(node, names::NFD_LABEL, "true"));
    if arguments.check_node_eligibility && incapable {
        return format!(
            "no worker that is selected has the label {}=true, which Node Feature Discovery gives to nodes that \
             can run Kata",
            names::NFD_LABEL
        );
    }
    if labels.is_empty() || !labelled.is_empty() {
        return "no node can get Kata yet: see `kubectl kata doctor`".to_owned();
    }
    format!("no worker has these labels yet: kubectl label node NAME {}", text(labels, " "))
}
