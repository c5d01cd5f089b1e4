//! `status`: how far Kata is, which nodes are in the way, and what to do.

use std::time::Duration;

use jiff::Timestamp;
use kata_api::kata_node::{PayloadImage, Phase};
use kata_api::{Code, KataConfig, KataNode, conditions, names};
use serde_json::json;
use tokio::time::Instant;

use super::{expect_output, judged, marked, problem_lines};
use crate::Context;
use crate::advice::{self, FixCache};
use crate::api::{Api, Scope};
use crate::arguments::StatusArguments;
use crate::changes::Changes;
use crate::cluster::{Kata, lease, operator, stale_definition};
use crate::document::{
    ConditionFacts, ConfigFacts, EarlierPods, Head, NodeProgress, OperatorFacts, PodCounts,
    Problem, StatusReport,
};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::pod::Pod;
use crate::problem;
use crate::resource::{DEPLOYMENTS, KATA_CONFIGS, KATA_NODES, PODS};
use crate::settings::{Output, Settings};
use crate::style::{Style, Tone, cut, wrap};
use crate::table::{Cell, Table, column};

mod drain;
pub(crate) mod progress;
mod silence;

pub(crate) use drain::{Held, held as held_by_budgets};
pub(crate) use silence::{
    Hearing, abandoned, hearing, is_current, look_and_explain as explain_silence, operator_state,
    why_unready,
};

/// How often `--watch` shows the status again on a terminal.
const TICK: Duration = Duration::from_secs(1);
/// How many nodes are shown if not all are asked for.
const ROWS: usize = 10;
/// The columns of the names at the left.
const NAME_WIDTH: usize = 12;
/// The least columns that lines are wrapped at.
const MIN_WIDTH: usize = 40;

pub(crate) async fn run(
    arguments: &StatusArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let allowed =
        [Output::Table, Output::Wide, Output::Short, Output::Json, Output::Yaml, Output::Name];
    expect_output(context.settings, &allowed, "status")?;
    let changes = if arguments.watch {
        Some(Changes::of(&context.api, &[KATA_CONFIGS, KATA_NODES], None).await)
    } else {
        None
    };
    let report = Box::pin(read(context)).await?;
    let is_redrawn = context.settings.is_text() && context.printer.style().rows.is_some();
    let mut exit = print(&report, arguments, context)?;
    if let Some(mut changes) = changes {
        let interrupted = context.interrupted();
        let mut interrupted = std::pin::pin!(interrupted);
        let mut report = report;
        loop {
            let read_at = Instant::now();
            {
                let mut next = std::pin::pin!(changes.next());
                loop {
                    context.printer.flush()?;
                    tokio::select! {
                        () = &mut interrupted => return Ok(exit),
                        () = &mut next => break,
                        // The ages grow.
                        () = tokio::time::sleep_until(Instant::now() + TICK), if is_redrawn => {
                            let seconds = read_at.elapsed().as_secs().cast_signed();
                            exit = print(&with_elapsed(&report, seconds), arguments, context)?;
                        }
                    }
                }
            }
            let latest = Box::pin(read(context)).await?;
            if json!(latest) != json!(report) {
                if context.settings.is_text() && !is_redrawn {
                    context.printer.line("")?;
                }
                exit = print(&latest, arguments, context)?;
            }
            report = latest;
        }
    }
    Ok(exit)
}

/// The report so many seconds after it was read, with less time left.
fn with_elapsed(report: &StatusReport, seconds: i64) -> StatusReport {
    let mut report = report.clone();
    for node in &mut report.nodes {
        node.eta_seconds = node.eta_seconds.map(|left| (left - seconds).max(1));
    }
    report
}

fn print(
    report: &StatusReport,
    arguments: &StatusArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let settings = context.settings;
    if !context.printer.document(settings.output, report)? {
        let style = context.printer.style();
        let lines = lines(report, arguments.nodes, settings, &style);
        match style.rows.filter(|_| arguments.watch && settings.is_text()) {
            Some(rows) => context.printer.screen(&lines, rows)?,
            None => lines.iter().try_for_each(|line| context.printer.line(line))?,
        }
        // Names are for programs, and stay as they are.
        if settings.output == Output::Name && report.head.simulated {
            context.printer.say("(simulated)")?;
        }
    }
    let exit = match (report.success, report.operator_unknown) {
        (false, _) => Exit::Findings,
        (true, true) => Exit::Inconclusive,
        (true, false) => Exit::Fine,
    };
    Ok(judged(&report.problems, settings, exit))
}

/// Reads everything that the status shows.
pub(crate) async fn read(context: &Context<'_, '_>) -> Result<StatusReport, Failure> {
    Ok(Box::pin(read_all(context)).await?.1)
}

/// The same with the objects of the operator.
pub(crate) async fn read_all(context: &Context<'_, '_>) -> Result<(Kata, StatusReport), Failure> {
    let api = &context.api;
    let (kata, (operator, lease), pods, stale) = futures::join!(
        Kata::read(api),
        // One after the other: the first finds out where the other is.
        async { (operator(api).await, lease(api).await) },
        api.list::<Pod>(PODS, Scope::default()),
        stale_definition(api),
    );
    let (kata, operator, pods) = (kata?, operator?, pods?);
    kata.configs.listed("tell how far Kata is", &KATA_CONFIGS.qualified())?;
    let now = context.settings.now();
    let mut report = report(&kata, now);
    let known = &mut FixCache::default();
    Box::pin(advice::name_controllers(api, kata.active(), now, &mut report.problems, known)).await;
    report.operator = match operator.as_known().and_then(Option::as_ref) {
        Some(deployment) => deployment.facts(),
        None => OperatorFacts { namespace: api.home().to_owned(), ..OperatorFacts::default() },
    };
    report.operator.definitions_current = stale?.known().map(|stale| stale.is_none());
    let classes = kata.sandbox_classes();
    let are_known =
        |pods: &&Vec<Pod>| pods.iter().all(|pod| classes.is_sandboxed(pod.class()).is_some());
    report.pods = pods.as_known().filter(are_known).map(|pods| {
        let ours = |pod: &&Pod| pod.class().is_some_and(|class| classes.contains(class));
        let phase =
            |phase: &str| pods.iter().filter(ours).filter(|p| p.status.phase == phase).count();
        PodCounts { running: phase("Running"), pending: phase("Pending"), failed: phase("Failed") }
    });
    let sandboxed = |pod: &&Pod| pod.class().is_some_and(|class| classes.contains(class));
    report.earlier = kata.versions().earlier(pods.items().iter().filter(sandboxed));
    add_blocked_drains(api, kata.nodes.items(), &mut report).await?;
    silence::explain(&operator, &lease?, &kata, now, &mut report);
    silence::add_cause(api, now, &mut report).await?;
    report.gaps = api.gaps();
    Ok((kata, report))
}

/// What holds up nodes that are being drained.
pub(crate) async fn blocked_drains(api: &Api, nodes: &[KataNode]) -> Result<Vec<Problem>, Failure> {
    drain::problems(api, nodes).await
}

/// Adds what holds up nodes that are being drained.
pub(crate) async fn add_blocked_drains(
    api: &Api,
    nodes: &[KataNode],
    report: &mut StatusReport,
) -> Result<(), Failure> {
    for problem in blocked_drains(api, nodes).await? {
        // What the operator says later it says with fewer details.
        report
            .problems
            .retain(|other| (&other.id, &other.subject) != (&problem.id, &problem.subject));
        for node in &mut report.nodes {
            if problem.subject == format!("node/{}", node.name) {
                node.message.clone_from(&problem.message);
                node.code = Some(problem.id.clone());
            }
        }
        report.problems.push(problem);
    }
    problem::sort(&mut report.problems);
    Ok(())
}

/// What the KataConfig and the KataNodes say.
pub(crate) fn report(kata: &Kata, now: Timestamp) -> StatusReport {
    let config = kata.active();
    let mut nodes = progress::nodes(config, kata.nodes.items(), now);
    let mut problems = match config {
        Some(config) => problem::of_status(config, kata.nodes.items()),
        None => Vec::new(),
    };
    progress::name_what_stops_all(&mut nodes, &problems, config);
    if kata.configs.is_not_served() {
        problems.push(Problem::new(
            Code::CustomResourceMissing,
            "customresourcedefinition/kataconfigs.kataconfiguration.openshift.io",
            "the cluster does not serve KataConfig, so the operator is not installed",
        ));
    } else if let Some(config) = config {
        if let Hearing::Silent(problem) = hearing(config, kata.time.unwrap_or(now)) {
            problems.push(problem);
        }
    } else {
        problems.push(Problem::new(
            Code::NoKataConfig,
            "cluster",
            "there is no KataConfig, so no node has Kata through this operator",
        ));
    }
    StatusReport {
        head: Head::new("StatusReport", kata.is_simulated()),
        success: config.is_some_and(is_ready),
        no_operator: false,
        operator_unknown: false,
        config: config.map(|config| facts(config, kata.nodes.items().len())),
        other_configs: kata.others(),
        runtime_classes: kata.class_facts(),
        node_selector: config
            .and_then(|config| config.spec.kata_config_pool_selector.as_ref())
            .map(kata_plan::selector::text)
            .unwrap_or_default(),
        operator: OperatorFacts::default(),
        inspections: kata.inspections(),
        payloads: kata.payloads(),
        earlier: Vec::new(),
        plugin: crate::VERSION,
        pods: None,
        nodes,
        problems,
        gaps: Vec::new(),
    }
}

fn condition(config: &KataConfig, type_: &str) -> Option<ConditionFacts> {
    let all = config.status.iter().flat_map(|status| &status.conditions);
    all.into_iter().find(|condition| condition.type_ == type_).map(|condition| ConditionFacts {
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time.0,
    })
}

/// Whether a KataConfig is Ready, and says so of the generation that it has.
pub(crate) fn is_ready(config: &KataConfig) -> bool {
    let observed = config.status.as_ref().and_then(|status| status.observed_generation);
    config.metadata.deletion_timestamp.is_none()
        && observed == config.metadata.generation
        && condition(config, conditions::READY).is_some_and(|ready| ready.status == "True")
}

fn facts(config: &KataConfig, nodes: usize) -> ConfigFacts {
    let status = config.status.clone().unwrap_or_default();
    ConfigFacts {
        name: config.metadata.name.clone().unwrap_or_default(),
        generation: config.metadata.generation.unwrap_or_default(),
        observed_generation: status.observed_generation,
        created: config.metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleting: config.metadata.deletion_timestamp.is_some(),
        ready: condition(config, conditions::READY),
        stalled: condition(config, conditions::STALLED).filter(|stalled| stalled.status == "True"),
        rollout_paused: config.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused),
        paused: problem::pause(config).and_then(|paused| condition(config, &paused.type_)),
        node_count: status.kata_nodes.node_count,
        ready_node_count: status.kata_nodes.ready_node_count,
        max_unavailable: config.spec.rollout.as_ref().and_then(|rollout| {
            // A percentage is one of all nodes, also of those that lose Kata.
            let value = rollout.max_unavailable.as_ref().filter(|_| nodes > 0)?;
            Some(kata_plan::most_unavailable(Some(value), nodes))
        }),
    }
}

/// The status for people.
fn lines(report: &StatusReport, all: bool, settings: &Settings, style: &Style) -> Vec<String> {
    let now = settings.now();
    let mut lines = Vec::new();
    if settings.output == Output::Name {
        return report.config.iter().map(|c| format!("kataconfig/{}", c.name)).collect();
    }
    if settings.output != Output::Short {
        lines.extend(head(report, now, style));
        if !report.nodes.is_empty() {
            lines.push(String::new());
            lines.extend(node_lines(report, all, settings, style, now));
        }
    }
    if settings.output == Output::Short {
        let of_problems = report.problems.iter().filter(|problem| problem.severity != "info");
        let problems: Vec<Problem> = of_problems.cloned().collect();
        if problems.is_empty() {
            lines.push(summary(report));
        }
        lines.extend(problem_lines(&problems, style));
    } else if !report.problems.is_empty() {
        lines.push("Problems".to_owned());
        lines.extend(problem_lines(&report.problems, style));
    }
    if report.problems.iter().any(|problem| problem.id == Code::NoKataConfig.entry().code) {
        lines.push("Next: kubectl kata doctor --pre, then kubectl kata install".to_owned());
    }
    lines
}

/// The status in a few words.
pub(crate) fn summary(report: &StatusReport) -> String {
    match &report.config {
        None => marked("no KataConfig", report.head.simulated),
        Some(config) => {
            let word = if report.success { "Ready" } else { "not Ready" };
            marked(
                &format!("{word}: {}/{} nodes", config.ready_node_count, config.node_count),
                report.head.simulated,
            )
        }
    }
}

fn head(report: &StatusReport, now: Timestamp, style: &Style) -> Vec<String> {
    let mut lines = Vec::new();
    let mut entry = |name: &str, text: &str, mark: &str| {
        let width = style.width.unwrap_or(usize::MAX).max(MIN_WIDTH) - NAME_WIDTH - mark.len();
        for (at, line) in wrap(&style.plain(text), width).iter().enumerate() {
            let (name, mark) = if at == 0 { (name, mark) } else { ("", "") };
            // A word may be longer than the line.
            let line = cut(line.trim_end(), width);
            lines.push(format!("{name:<NAME_WIDTH$}{line}{mark}"));
        }
    };
    // What is simulated says so however narrow the terminal is.
    let simulated = if report.head.simulated { " (simulated)" } else { "" };
    let Some(config) = &report.config else {
        entry("KataConfig", "none", simulated);
        return lines;
    };
    let observed = match config.observed_generation {
        Some(seen) if seen == config.generation => String::new(),
        Some(seen) => format!(" (observed {seen})"),
        None => " (not observed yet)".to_owned(),
    };
    let age = config.created.map(|created| format!("   age {}", human::age(now, created)));
    let deleting = if config.deleting { "   being deleted" } else { "" };
    let paused = if config.rollout_paused { "   paused" } else { "" };
    let text = format!(
        "{}   generation {}{observed}{}{deleting}{paused}",
        config.name,
        config.generation,
        age.unwrap_or_default()
    );
    entry("KataConfig", &text, simulated);
    let mut entry = |name: &str, text: String| entry(name, &text, "");
    match &config.ready {
        Some(ready) => entry(
            "Ready",
            format!("{:<7}{:<13} {}", ready.status, ready.reason, brief(&ready.message)),
        ),
        None => entry("Ready", "Unknown: the operator has not said anything yet".to_owned()),
    }
    entry("Nodes", progress::line(report, style));
    let differ = report.runtime_classes.iter().any(|class| class.install_on.is_some());
    for class in &report.runtime_classes {
        let install_on = class.install_on.as_deref().unwrap_or_default();
        let labels = [report.node_selector.as_str(), install_on];
        let labels: Vec<&str> = labels.into_iter().filter(|labels| !labels.is_empty()).collect();
        let selector = match labels.join(",").as_str() {
            // Who made a foreign class knows which nodes it selects.
            _ if class.foreign => String::new(),
            "" => "   every worker".to_owned(),
            labels => format!("   nodes {labels}"),
        };
        let counts = class.ready_node_count.zip(class.node_count).filter(|_| differ);
        let counts =
            counts.map(|(ready, all)| format!("   ready on {ready} of {all}")).unwrap_or_default();
        let exists = match (class.exists, config.deleting) {
            (true, _) if class.foreign => " (not ours, left as it is)",
            (true, _) => "",
            (false, true) => " (is gone)",
            (false, false) => " (does not exist yet)",
        };
        entry(
            "Runtime",
            format!(
                "RuntimeClass {}{exists}{counts}   handler {}   overhead {} CPU, {}{selector}",
                class.name, class.handler, class.overhead_cpu, class.overhead_memory
            ),
        );
    }
    for payload in report.payloads.iter().flatten() {
        let version = payload.kata_version.as_deref().unwrap_or("of unknown version");
        let digest = payload.digest.as_deref().map(|it| format!("   payload {}", short_digest(it)));
        let nodes = human::count(payload.nodes, "node");
        entry("Kata", format!("{version}{}   on {nodes}", digest.unwrap_or_default()));
        for PayloadImage { image, digest } in &payload.images {
            let digest = Some(digest).filter(|_| !image.contains('@'));
            let digest = digest.map(|it| format!("   {}", short_digest(it)));
            entry("Image", format!("{image}{}", digest.unwrap_or_default()));
        }
    }
    for EarlierPods { kata_version, pods } in &report.earlier {
        let run = if *pods == 1 { "runs" } else { "run" };
        let count = human::count(*pods, "pod");
        entry(
            "Kata",
            format!(
                "{count} still {run} {kata_version}: `kubectl kata pods -A`; a new pod gets the new version"
            ),
        );
    }
    let provided = report.nodes.iter().filter(|node| node.provided).count();
    if provided > 0 {
        let nodes = human::count(provided, "node");
        entry("Kata", format!("provided by the operating system or the cloud on {nodes}"));
    }
    let is_ready = |node: &NodeProgress| node.phase == Phase::Ready.as_str() && !node.provided;
    if report.payloads.is_none() && report.nodes.iter().any(is_ready) {
        entry(
            "Kata",
            "of unknown version: it comes with the operating system of the nodes".to_owned(),
        );
    }
    entry("Operator", operator_line(report, now));
    if let Some(pods) = &report.pods {
        let mut text = format!("{} sandboxed running, {} pending", pods.running, pods.pending);
        if pods.failed > 0 {
            text.push_str(&format!(", {} failed", pods.failed));
        }
        entry("Pods", text);
    }
    for other in &report.other_configs {
        entry("Not active", format!("KataConfig {other}: only the oldest is active"));
    }
    lines
}

/// Who does the work, and how current it is.
fn operator_line(report: &StatusReport, now: Timestamp) -> String {
    let operator = &report.operator;
    let mut parts = vec![match (&operator.version, operator.ready_replicas, operator.replicas) {
        (version, Some(ready), Some(all)) => {
            let version = version.as_deref().unwrap_or("of unknown version");
            format!(
                "{version}   {ready} of {} ready",
                human::count(usize::try_from(all).unwrap_or(0), "pod")
            )
        }
        _ if report.gaps.iter().any(|gap| gap.resource == DEPLOYMENTS.qualified()) => {
            "unknown".to_owned()
        }
        _ => format!("no Deployment {} in {}", names::PRODUCT, operator.namespace),
    }];
    parts.extend(report.inspections.as_ref().map(|seen| seen.sentence(now)));
    if operator.version.as_deref() != Some(report.plugin) {
        parts.push(format!("plugin {}", report.plugin));
    }
    parts.extend(report.operator.definitions_current.map(|current| {
        if current { "CRDs up to date" } else { "CRDs of another version" }.to_owned()
    }));
    parts.join("   ")
}

/// The beginning of a digest, by which people compare digests.
fn short_digest(digest: &str) -> &str {
    let begin = digest.find(':').map_or(0, |colon| colon + 1);
    digest.get(..begin + 12).unwrap_or(digest)
}

/// The part of a condition's message that is not told elsewhere.
fn brief(message: &str) -> &str {
    match message.find("; KATA") {
        Some(end) => message.get(..end).unwrap_or(message),
        None => message,
    }
}

fn node_lines(
    report: &StatusReport,
    all: bool,
    settings: &Settings,
    style: &Style,
    now: Timestamp,
) -> Vec<String> {
    let mut table = Table::new(&[
        column("NODE"),
        column("PHASE"),
        column("STEP"),
        column("SINCE").dispensable(2),
        column("ETA").dispensable(1),
        column("INSTALLED").dispensable(3),
        column("MESSAGE"),
    ]);
    let most = if all { usize::MAX } else { ROWS };
    for node in report.nodes.iter().take(most) {
        table.row(row(node, report, settings, now));
    }
    let mut lines = table.lines(style, settings.is_wide(), settings.titles);
    if report.nodes.len() > most {
        let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
        for node in report.nodes.iter().skip(most) {
            *counts.entry(node.phase.as_str()).or_default() += 1;
        }
        let counts: Vec<String> =
            counts.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        lines.push(format!(
            "Not shown: {} ({}); --nodes shows all",
            human::count(report.nodes.len() - most, "node"),
            counts.join(", ")
        ));
    }
    lines
}

/// The colour of a phase.
pub(crate) fn tone(phase: &str) -> Tone {
    match phase {
        "Ready" => Tone::Good,
        "Failed" | "NotReady" | "Unknown" => Tone::Bad,
        "Waiting" | "WaitingToRemove" => Tone::Dim,
        _ => Tone::Warn,
    }
}

/// Whether Kata is installed on a node. A node that is not ready, is updated or waits to lose Kata has it.
pub(crate) fn installed(phase: &str, handlers: &[String], provided: bool) -> Cell {
    // Its system has what it reports, whatever the operator waits for.
    if provided && handlers.is_empty() {
        return "no".into();
    }
    match Phase::ALL.iter().find(|known| known.as_str() == phase) {
        Some(Phase::Ready) => Cell::toned("yes", Tone::Good),
        Some(Phase::NotReady | Phase::Updating | Phase::WaitingToRemove | Phase::Removing) => {
            "yes".into()
        }
        Some(Phase::Waiting | Phase::Installing) => "no".into(),
        _ if !handlers.is_empty() => "yes".into(),
        Some(Phase::Failed) => "no".into(),
        Some(Phase::Unknown) | None => Cell::toned("unknown", Tone::Warn),
    }
}

/// What a node's row says of it: the code of a finding that stands below the table, or else the message.
fn message(node: &NodeProgress, report: &StatusReport) -> String {
    let subject = format!("node/{}", node.name);
    let is_below = |problem: &Problem| {
        node.code.as_deref() == Some(problem.id.as_str())
            && (problem.subject == subject || problem.message == node.message)
    };
    let code = node.code.as_deref().and_then(Code::parse).map(Code::entry);
    match code.filter(|_| report.problems.iter().any(is_below)) {
        Some(entry) => format!("{} {}", entry.code, entry.reason),
        None => node.message.clone(),
    }
}

fn row(
    node: &NodeProgress,
    report: &StatusReport,
    settings: &Settings,
    now: Timestamp,
) -> Vec<Cell> {
    let message = if settings.is_wide() { node.message.clone() } else { message(node, report) };
    let eta = match node.eta_seconds {
        Some(seconds) => human::about(jiff::SignedDuration::from_secs(seconds)),
        None if node.phase == Phase::Ready.as_str() => String::new(),
        None => "unknown".to_owned(),
    };
    vec![
        node.name.clone().into(),
        Cell::toned(node.phase.clone(), tone(&node.phase)),
        node.step.clone().into(),
        node.since.map(|since| human::age(now, since)).unwrap_or_default().into(),
        eta.into(),
        installed(&node.phase, &node.handlers, node.provided),
        message.into(),
    ]
}
