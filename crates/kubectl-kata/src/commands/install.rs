//! `install`: says what will happen, asks, applies the operator if there is none, labels nodes if `--node` names
//! some, and creates a KataConfig.

mod change;
pub(crate) mod operator;

use kata_api::{Code, KataConfig, names};
use kata_plan::selector::describes_node;
use serde_json::{Value, json};

use super::{ask_consent, doctor, expect_output, wait};
use crate::Context;
use crate::arguments::{DryRun, InstallArguments};
use crate::cluster::Kata;
use crate::disruption::field;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::node_labels::{self, Labels, SetLabels, text};
use crate::printer::yaml;
use crate::refusal::Refusal;
use crate::resource::{KATA_CONFIGS, NODES};
use crate::settings::Output;

pub(super) use change::Change;
use kata_manifests::manifests;
use operator::{Bundle, Step};

/// The forms of the result.
const ALLOWED: [Output; 4] = [Output::Table, Output::Json, Output::Yaml, Output::Name];

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

/// Prints what would be sent and does nothing else; `None` if the cluster is wanted.
pub(crate) fn offline(
    arguments: &InstallArguments,
    settings: &crate::settings::Settings,
    printer: &mut crate::Printer<'_>,
) -> Option<Result<Exit, Failure>> {
    (arguments.dry_run == DryRun::Client).then(|| {
        expect_output(settings, &ALLOWED, "install")?;
        let body = body(arguments, &labels(arguments.node_selector.as_deref())?)?;
        let mut objects = Vec::new();
        if let Some(platform) = arguments.platform {
            let image = operator::image(arguments, settings)
                .ok_or_else(|| Failure::Usage(operator::NO_IMAGE.join("; ")))?;
            let options = manifests::Options { image, ..manifests::Options::of(platform.into()) };
            let bundle = Bundle::new(&options, None, arguments.upgrade)?;
            objects.extend_from_slice(bundle.objects());
        }
        objects.push(body);
        let document = document(objects);
        if !printer.document(settings.output, &document)? {
            printer.raw(&yaml(&document)?)?;
        }
        Ok(Exit::Fine)
    })
}

/// One object as it is, and several as a List.
fn document(objects: Vec<Value>) -> Value {
    match <[Value; 1]>::try_from(objects) {
        Ok([object]) => object,
        Err(objects) => json!({"apiVersion": "v1", "kind": "List", "items": objects}),
    }
}

/// Why no KataConfig can be created beside this one, and how these nodes get Kata by that one.
fn second(active: &KataConfig, nodes: &[String]) -> Refusal {
    let name = active.metadata.name.as_deref().unwrap_or_default();
    if active.metadata.deletion_timestamp.is_some() {
        return Refusal::of(
            Code::NotActive,
            format!("KataConfig {name} is still being deleted, and only the oldest is active"),
            "kubectl kata wait --for deleted, then try again",
        );
    }
    let selector = active.spec.kata_config_pool_selector.as_ref();
    let labels = selector.and_then(|selector| selector.match_labels.as_ref());
    let command = labels.and_then(|labels| node_labels::command(&nodes.join(" "), labels));
    let fix = match command.filter(|_| !nodes.is_empty()) {
        Some(command) => format!("to give more nodes Kata by that one: `{command}`"),
        None => "change that one, or `kubectl kata uninstall` first".to_owned(),
    };
    Refusal::of(
        Code::NotActive,
        format!("there is a KataConfig already, {name}, and only the oldest is active"),
        fix,
    )
}

pub(crate) async fn run(
    arguments: &InstallArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &ALLOWED, "install")?;
    let labels = labels(arguments.node_selector.as_deref())?;
    if let Some(key) = labels.keys().find(|key| describes_node(key) && !arguments.node.is_empty()) {
        return Err(Failure::Usage(format!(
            "--node-selector {key}=...: the kubelet, the cloud or an installer sets this label, so --node does not set it; leave \
             out --node, or select by another label"
        )));
    }
    let mut body = body(arguments, &labels)?;
    let kata = Kata::read(&context.api).await?;
    let operator = match Step::of(&kata, arguments, context).await? {
        Ok(step) => step,
        Err(refusal) => return refusal.print(context),
    };
    if let Some(active) = kata.active()
        && (matches!(operator, Step::Keep(_)) || arguments.describes_kata_config())
    {
        return second(active, &arguments.node).print(context);
    }
    // Everything is tried before anything is written, so that a refusal leaves the cluster as it was.
    let mut tried = match &operator {
        Step::Apply(bundle) => bundle.try_out(&context.api).await?,
        Step::Keep(_) => Vec::new(),
    };
    let platform = operator.platform();
    let change = if let Some(active) = kata.active() {
        Change::of_existing(active, platform, context).await?
    } else {
        let mut labelled = Vec::new();
        for node in &arguments.node {
            if is_without(node, &labels, context).await? {
                labelled.push(node.clone());
            }
            label(node, &labels, Mode::Try, context).await?;
        }
        if !labelled.is_empty() {
            let record = json!(SetLabels { labels: labels.clone(), nodes: labelled }).to_string();
            body["metadata"]["annotations"] = json!({names::SET_LABELS_ANNOTATION: record});
        }
        let config = if kata.configs.is_not_served() {
            valid(&body)?;
            body.clone()
        } else {
            create(&body, Mode::Try, context).await?
        };
        let change = Change::of_new(&labels, arguments, &config, platform, context).await?;
        tried.push(config);
        change
    };
    announce(&kata, &operator, &change, arguments, context)?;
    if arguments.dry_run == DryRun::Server {
        print(&tried, "(server dry run)", context)?;
        return Ok(Exit::Fine);
    }
    let what = change.summary().or_else(|| operator.summary());
    let what = what.unwrap_or_else(|| format!("creates KataConfig {}", arguments.name));
    if let Some(exit) =
        ask_consent(arguments.change.yes, &format!("install {what}"), context).await?
    {
        return Ok(exit);
    }
    if let Step::Apply(bundle) = &operator {
        bundle.apply(context).await?;
    }
    if kata.active().is_none() {
        for node in &arguments.node {
            label(node, &labels, Mode::Write, context).await?;
        }
        let created = create(&body, Mode::Write, context).await?;
        print(&[created], "", context)?;
    }
    wait::until_ready_if_asked(&arguments.change, context).await
}

/// Says what this command will do.
fn announce(
    kata: &Kata,
    operator: &Step,
    change: &Change,
    arguments: &InstallArguments,
    context: &mut Context<'_, '_>,
) -> Result<(), Failure> {
    let style = context.printer.style();
    let mut parts = Vec::from_iter(operator.summary());
    if kata.active().is_none() {
        if !arguments.node.is_empty() {
            parts.push(format!("labels {}", human::list(&arguments.node, 5)));
        }
        parts.push(format!("creates KataConfig {}", arguments.name));
    }
    let last = parts.pop().unwrap_or_default();
    let first =
        if parts.is_empty() { String::new() } else { format!("{}, then ", parts.join(", ")) };
    let kept = match kata.active() {
        Some(active) => {
            let name = active.metadata.name.as_deref().unwrap_or_default();
            match active.metadata.deletion_timestamp {
                Some(_) => {
                    format!(" The operator then finishes the deletion of KataConfig {name}.")
                }
                None => {
                    format!(" The operator then acts on KataConfig {name}, which stays as it is.")
                }
            }
        }
        None => String::new(),
    };
    let head = context.marked(&format!("This command {first}{last}.{kept}"));
    context.printer.say(&head)?;
    let mut lines = field("Cluster", &context.place, &style);
    lines.extend(operator.lines(&style));
    lines.extend(change.lines(&style));
    Ok(lines.iter().try_for_each(|line| context.printer.say(line))?)
}

/// Prints the result, in the form that is wanted.
fn print(objects: &[Value], suffix: &str, context: &mut Context<'_, '_>) -> Result<(), Failure> {
    let document = document(objects.to_vec());
    if context.printer.document(context.settings.output, &document)? {
        return Ok(());
    }
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
        let version = text(&object["apiVersion"]);
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let dot = if group.is_empty() { "" } else { "." };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let verb = match (context.settings.output, suffix) {
            (Output::Name, "") => "",
            _ if object["kind"] == "KataConfig" => " created ",
            _ => " applied ",
        };
        let line = format!("{}{dot}{group}/{name}{verb}{suffix}", text(&object["kind"]));
        context.printer.line(line.trim_end())?;
    }
    Ok(())
}

/// Checks a KataConfig by the schema of this program, for an API server that does not know the kind yet.
fn valid(body: &Value) -> Result<(), Failure> {
    match doctor::violations(body).as_slice() {
        [] => Ok(()),
        wrong => Err(Failure::Usage(format!("the KataConfig is invalid: {}", wrong.join("; ")))),
    }
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
    let created = context.api.write(&what, http::Method::POST, &path, None, body).await;
    created
        .map_err(|trouble| trouble.denied(&what, &format!("create {}", KATA_CONFIGS.qualified())))
}

/// Whether a node has none of these labels, so that taking them off leaves it as it was. Not if that cannot be seen.
async fn is_without(
    node: &str,
    labels: &Labels,
    context: &Context<'_, '_>,
) -> Result<bool, Failure> {
    let found = context.api.glance::<Value>(NODES, None, node).await?.known().flatten();
    Ok(found.is_some_and(|found| {
        labels.keys().all(|key| found["metadata"]["labels"][key.as_str()].is_null())
    }))
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
        Err(trouble) => Err(trouble.denied(&what, "patch nodes")),
    }
}
