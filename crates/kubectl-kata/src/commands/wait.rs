//! `wait`: until Kata is ready, gone, or on one node.
//!
//! On a terminal it shows how far it is; elsewhere one line with the time for every change. It stops at
//! once when the operator cannot go on without help: nobody is served by a timeout that runs out.

use std::time::Duration;

use jiff::Timestamp;
use kata_api::Code;
use kata_api::kata_node::Phase;
use tokio::time::Instant;

use super::status::{self, progress, summary};
use super::{expect_output, marked, problem_lines};
use crate::Context;
use crate::advice::{self, FixCache};
use crate::api::Read;
use crate::arguments::{ChangeArguments, WaitArguments};
use crate::changes::Changes;
use crate::document::{ConfigFacts, Problem, StatusReport};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::resource::{KATA_CONFIGS, KATA_NODES, NODES};
use crate::settings::Output;
use crate::style::{Style, Tone, columns};

/// How long the operator is given to look again at what it had given up when the wait began: it may just have
/// been mended, with an object that the status does not tell of.
const SETTLE: Duration = Duration::from_secs(5);
/// How often the display moves on a terminal.
const TICK: Duration = Duration::from_secs(1);
/// How many nodes are shown under the bar.
const SHOWN: usize = 8;
/// Columns of the bar.
const BAR: usize = 32;
/// Columns of the bar where there is no room for more.
const SHORT_BAR: usize = 8;

/// What says that nobody does what is waited for.
const SILENCE: [Code; 2] = [Code::OperatorNotRunning, Code::OperatorSilent];

/// Whether a problem says that nobody does what is waited for.
fn is_silence(problem: &Problem) -> bool {
    SILENCE.iter().any(|code| code.entry().code == problem.id)
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The KataConfig is Ready.
    Ready,
    /// There is no KataConfig any more, or not the one of this name.
    Deleted(Option<String>),
    /// The operator found that this node can run sandboxed pods.
    Node(String),
}

pub(crate) async fn run(
    arguments: &WaitArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table, Output::Json, Output::Yaml], "wait")?;
    let wanted = parse(&arguments.what)?;
    until(&wanted, arguments.timeout, context).await
}

fn parse(text: &str) -> Result<Wanted, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "--for {text}: wait for ready, deleted, deleted/KATACONFIG or node/NAME=Ready"
        ))
    };
    match text.to_ascii_lowercase().as_str() {
        "ready" | "condition=ready" => return Ok(Wanted::Ready),
        "deleted" | "delete" => return Ok(Wanted::Deleted(None)),
        _ => {}
    }
    if let Some(name) = text.strip_prefix("deleted/").filter(|name| !name.is_empty()) {
        return Ok(Wanted::Deleted(Some(name.to_owned())));
    }
    let (name, state) =
        text.strip_prefix("node/").and_then(|rest| rest.split_once('=')).ok_or_else(wrong)?;
    let is_known = state.eq_ignore_ascii_case("ready");
    if is_known && !name.is_empty() { Ok(Wanted::Node(name.to_owned())) } else { Err(wrong()) }
}

/// How it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stand {
    /// What was waited for holds.
    Done,
    /// It will not come.
    Over,
    /// It will not come without help, as the operator says.
    Stuck,
    /// Not yet.
    Under,
}

/// What was read, and whether the node that is waited for is no node of the cluster.
struct Seen {
    report: StatusReport,
    no_node: bool,
}

fn stand(wanted: &Wanted, report: &StatusReport) -> Stand {
    match wanted {
        Wanted::Ready if report.success => Stand::Done,
        // Whoever waits before the KataConfig is created is early, and not wrong.
        Wanted::Ready => match &report.config {
            Some(config) if config.deleting => Stand::Over,
            Some(config) => stalled(config),
            None => Stand::Under,
        },
        Wanted::Deleted(name) => match &report.config {
            None => Stand::Done,
            // The next one is active only when that one is gone.
            Some(config) if name.as_ref().is_some_and(|name| *name != config.name) => Stand::Done,
            Some(config) if config.deleting => stalled(config),
            Some(_) => Stand::Under,
        },
        Wanted::Node(name) => match report.nodes.iter().find(|node| node.name == *name) {
            Some(node) if node.ready == "True" => Stand::Done,
            Some(node) if node.phase == Phase::Failed.as_str() => {
                let current = report.config.as_ref().is_none_or(status::is_current);
                if current { Stand::Stuck } else { Stand::Under }
            }
            Some(_) | None => Stand::Under,
        },
    }
}

/// What the operator gave up before the latest change it may go on with now.
fn stalled(config: &ConfigFacts) -> Stand {
    let is_stuck = config.stalled.is_some() || config.paused.is_some();
    if is_stuck && status::is_current(config) { Stand::Stuck } else { Stand::Under }
}

/// Waits until Ready after a change, if that is asked for; else names the command that does.
pub(crate) async fn until_ready_if_asked(
    change: &ChangeArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    if change.wait {
        return until(&Wanted::Ready, change.timeout, context).await;
    }
    context.printer.say("Next: kubectl kata wait")?;
    Ok(Exit::Fine)
}

/// Waits. A timeout of zero is none.
pub(crate) async fn until(
    wanted: &Wanted,
    timeout: Duration,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    // What was done so far is shown before it takes long.
    context.printer.flush()?;
    let mut wanted = wanted.clone();
    let begin = Instant::now();
    let end = (!timeout.is_zero()).then(|| Instant::now() + timeout);
    let settled = Instant::now() + SETTLE;
    let settled = end.map_or(settled, |end| end.min(settled));
    let interrupted = context.interrupted();
    let mut interrupted = std::pin::pin!(interrupted);
    let mut said = String::new();
    let mut known = FixCache::default();
    let mut changes = Changes::of(&context.api, &[KATA_CONFIGS, KATA_NODES], None).await;
    loop {
        let seen = match observe(&wanted, &mut known, context).await {
            Ok(seen) => Some(seen),
            // An API server that restarts while its nodes do is no reason to give up.
            Err(Failure::Unreachable { .. } | Failure::Silent { .. }) if !said.is_empty() => None,
            Err(failure) => return Err(failure),
        };
        let mut unsettled = false;
        if let Some(seen) = &seen {
            let report = &seen.report;
            // Who names none means the active one, and not those that become active after it.
            if let (Wanted::Deleted(None), Some(config)) = (&wanted, &report.config) {
                wanted = Wanted::Deleted(Some(config.name.clone()));
            }
            tell(seen, &wanted, begin, &mut said, context)?;
            let stand = match stand(&wanted, report) {
                Stand::Under if report.no_operator => Stand::Stuck,
                stand => stand,
            };
            match stand {
                Stand::Done => return finish(report, &wanted, begin, Exit::Fine, context),
                Stand::Stuck if Instant::now() < settled => unsettled = true,
                Stand::Stuck | Stand::Over => {
                    return finish(report, &wanted, begin, Exit::Findings, context);
                }
                Stand::Under => {}
            }
        }
        let live = context.printer.is_live();
        let wake = {
            let mut next = std::pin::pin!(changes.next());
            loop {
                let tick = Instant::now() + TICK;
                tokio::select! {
                    // In this order, so that of two that come at once always the same counts.
                    biased;
                    () = &mut interrupted => break Wake::Interrupted,
                    () = &mut next => break Wake::Changed,
                    () = tokio::time::sleep_until(settled), if unsettled => break Wake::Changed,
                    () = expired(end) => break Wake::Expired,
                    () = tokio::time::sleep_until(tick), if live => {}
                }
                if let (true, Some(seen)) = (live, &seen) {
                    let now = context.settings.now();
                    let lines = bars(seen, &wanted, begin, now, &context.printer.style());
                    context.printer.draw(&lines)?;
                }
            }
        };
        match wake {
            Wake::Interrupted => return Ok(Exit::Interrupted),
            Wake::Expired => {
                let text = match &seen {
                    None => "the API server does not answer".to_owned(),
                    Some(seen) => standing(&wanted, seen),
                };
                let span = human::elapsed(begin);
                context.printer.say(&format!("error: timed out after {span}: {text}"))?;
                let problems: Vec<Problem> =
                    seen.iter().flat_map(|seen| concerning(&wanted, seen)).cloned().collect();
                for line in problem_lines(&problems, &context.printer.style()) {
                    context.printer.say(&line)?;
                }
                return Ok(Exit::TimedOut);
            }
            Wake::Changed => {}
        }
    }
}

enum Wake {
    Interrupted,
    Changed,
    Expired,
}

async fn expired(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

async fn observe(
    wanted: &Wanted,
    known: &mut FixCache,
    context: &Context<'_, '_>,
) -> Result<Seen, Failure> {
    let kata = crate::cluster::Kata::read(&context.api).await?;
    let of_node = matches!(wanted, Wanted::Node(_));
    kata.configs.listed("wait", &KATA_CONFIGS.qualified())?;
    // The KataConfig has the rest.
    if of_node {
        kata.nodes.listed("wait", &KATA_NODES.qualified())?;
    }
    let now = context.settings.now();
    let mut report = status::report(&kata, now);
    let problems = &mut report.problems;
    Box::pin(advice::name_controllers(&context.api, kata.active(), now, problems, known)).await;
    status::add_blocked_drains(&context.api, kata.nodes.items(), &mut report).await?;
    status::explain_silence(&context.api, &kata, now, &mut report).await?;
    let no_node = match wanted {
        Wanted::Node(name) if !report.nodes.iter().any(|node| node.name == *name) => {
            let node = context.api.glance::<serde::de::IgnoredAny>(NODES, None, name).await?;
            matches!(node, Read::Known(None))
        }
        _ => false,
    };
    report.gaps = context.api.gaps();
    Ok(Seen { report, no_node })
}

/// Says what has changed.
fn tell(
    seen: &Seen,
    wanted: &Wanted,
    begin: Instant,
    said: &mut String,
    context: &mut Context<'_, '_>,
) -> Result<(), Failure> {
    let now = context.settings.now();
    if context.printer.is_live() {
        let lines = bars(seen, wanted, begin, now, &context.printer.style());
        context.printer.draw(&lines)?;
        "shown".clone_into(said);
        return Ok(());
    }
    let says = sentence(wanted, seen);
    if says != *said {
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ");
        let text = context.printer.style().plain(&says);
        context.printer.say(&format!("{time} {text}"))?;
        *said = says;
    }
    Ok(())
}

/// Why what is waited for is not under way at all.
fn idle(wanted: &Wanted, Seen { report, no_node }: &Seen) -> Option<String> {
    match (wanted, &report.config) {
        (Wanted::Node(name), _) if *no_node => Some(format!("there is no node {name}")),
        (Wanted::Node(name), _) if report.nodes.iter().any(|node| node.name == *name) => None,
        // Which nodes it selects is not known before the operator has looked.
        (Wanted::Node(name), Some(config))
            if config.observed_generation != Some(config.generation) =>
        {
            Some(format!("the operator has not said anything of node {name} yet"))
        }
        (Wanted::Node(name), _) => Some(format!("no KataConfig selects a node {name}")),
        (Wanted::Deleted(_), Some(config)) if !config.deleting => Some(format!(
            "KataConfig {} is not being deleted: `kubectl kata uninstall` does that",
            config.name
        )),
        _ => None,
    }
}

/// How a node stands.
fn of_node(name: &str, report: &StatusReport) -> Option<String> {
    let node = report.nodes.iter().find(|node| node.name == name)?;
    let parts = [&node.phase, &node.step, &node.message].into_iter().filter(|s| !s.is_empty());
    Some(format!("node {name}: {}", parts.cloned().collect::<Vec<_>>().join(", ")))
}

/// How what is waited for stands when the time is over.
fn standing(wanted: &Wanted, seen: &Seen) -> String {
    let report = &seen.report;
    let text = idle(wanted, seen).or_else(|| match (wanted, &report.config) {
        (Wanted::Node(name), _) => of_node(name, report),
        (Wanted::Deleted(_), Some(config)) => {
            let left = human::count(report.nodes.len(), "node");
            let have = if report.nodes.len() == 1 { "has" } else { "have" };
            Some(format!(
                "KataConfig {} is being deleted, and {left} still {have} Kata",
                config.name
            ))
        }
        (Wanted::Ready, Some(config)) if !status::is_current(config) => {
            let observed = config.observed_generation;
            Some(format!(
                "the operator has not taken up generation {} of KataConfig {} (seen: {})",
                config.generation,
                config.name,
                observed.map_or_else(|| "none".to_owned(), |seen| seen.to_string())
            ))
        }
        _ => None,
    });
    text.map_or_else(|| summary(report), |text| marked(&text, report.head.simulated))
}

/// What is wrong and concerns what is waited for.
fn concerning<'a>(wanted: &Wanted, seen: &'a Seen) -> Vec<&'a Problem> {
    let problems = seen.report.problems.iter();
    let Wanted::Node(name) = wanted else { return problems.collect() };
    let (subject, known) = (format!("node/{name}"), idle(wanted, seen).is_none());
    // As long as the node says nothing, the problems of all nodes.
    let of_one = ["node/", "katanode/", "job/", "pod/"];
    let is_of_all =
        |problem: &Problem| !of_one.iter().any(|kind| problem.subject.starts_with(kind));
    problems
        .filter(|problem| {
            problem.subject == subject || is_silence(problem) || (!known && is_of_all(problem))
        })
        .collect()
}

/// What there is to say, in one line.
fn sentence(wanted: &Wanted, seen: &Seen) -> String {
    let (idle, report) = (idle(wanted, seen), &seen.report);
    if let Wanted::Node(name) = wanted {
        let text = idle.or_else(|| of_node(name, report)).unwrap_or_default();
        return marked(&with_problems(text, &concerning(wanted, seen)), report.head.simulated);
    }
    if let Some(text) = idle {
        return marked(&text, report.head.simulated);
    }
    let Some(config) = &report.config else { return summary(report) };
    let message = config
        .ready
        .as_ref()
        .map_or("the operator has not said anything yet", |ready| ready.message.as_str());
    let reason = config.ready.as_ref().map_or("Unknown", |ready| ready.reason.as_str());
    let text = with_problems(format!("{reason}: {message}"), &concerning(wanted, seen));
    marked(&text, report.head.simulated)
}

/// The text with what is wrong and not in it.
fn with_problems(mut text: String, problems: &[&Problem]) -> String {
    for problem in problems {
        if problem.severity == "info" {
            continue;
        }
        if !text.contains(&problem.message) {
            text.push_str(&format!("; {} {} (fix: {})", problem.id, problem.message, problem.fix));
        } else {
            text.push_str(&format!("; fix for {}: {}", problem.id, problem.fix));
        }
    }
    text
}

/// The display on a terminal.
fn bars(
    seen: &Seen,
    wanted: &Wanted,
    begin: Instant,
    now: Timestamp,
    style: &Style,
) -> Vec<String> {
    let report = &seen.report;
    let elapsed = human::elapsed(begin);
    let told = |problem: &Problem| format!(" {} {}", problem.id, problem.message);
    if let Some(text) = idle(wanted, seen) {
        let silence = report.problems.iter().filter(|problem| is_silence(problem)).map(told);
        let text = format!(" {}   {elapsed} elapsed", marked(&text, report.head.simulated));
        return std::iter::once(text).chain(silence).collect();
    }
    let Some(config) = &report.config else {
        return vec![format!(" {}   {elapsed} elapsed", summary(report))];
    };
    let (ready, all) = (config.ready_node_count, config.node_count);
    let word = config.ready.as_ref().map_or("starting", |ready| ready.reason.as_str());
    let left = progress::left(report).unwrap_or_else(|| "time left unknown".to_owned());
    let nodes = marked(&format!("{ready}/{all} nodes"), report.head.simulated);
    let (head, rest) = (format!(" {word:<13} "), format!("  {nodes}   {elapsed} elapsed   {left}"));
    // The bar is what a narrow terminal can do without.
    let room = style.width.unwrap_or(usize::MAX).saturating_sub(columns(&head) + columns(&rest));
    let bar = progress::bar(ready, all, room.clamp(SHORT_BAR, BAR), style);
    let mut lines = vec![format!("{head}{bar}{rest}")];
    // What is wrong with a node is told with it.
    let general = report
        .problems
        .iter()
        .filter(|problem| problem.severity != "info" && !problem.subject.starts_with("node/"));
    lines.extend(general.map(told));
    let busy = report.nodes.iter().filter(|node| {
        node.code.is_some() || !node.step.is_empty() || node.phase == Phase::Failed.as_str()
    });
    for node in busy.take(SHOWN) {
        let since = node.since.map(|since| human::age(now, since)).unwrap_or_default();
        let what = if node.step.is_empty() { &node.phase } else { &node.step };
        lines.push(format!(" {:<14}{what:<16}{since:<8}{}", node.name, node.message));
    }
    lines
}

fn finish(
    report: &StatusReport,
    wanted: &Wanted,
    begin: Instant,
    exit: Exit,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    context.printer.draw(&[])?;
    if context.printer.document(context.settings.output, report)? {
        return Ok(exit);
    }
    let span = human::elapsed(begin);
    let style = context.printer.style();
    if exit == Exit::Fine {
        let text = match (wanted, &report.config) {
            (Wanted::Node(name), _) => format!("node/{name} has Kata, {span}"),
            (Wanted::Ready, Some(config)) => {
                format!("Ready: {}/{} nodes, {span}", config.ready_node_count, config.node_count)
            }
            (Wanted::Deleted(Some(name)), Some(_)) => {
                format!("Deleted: KataConfig {name} is gone, {span}")
            }
            (Wanted::Ready | Wanted::Deleted(_), _) => {
                format!("Deleted: no KataConfig is left, {span}")
            }
        };
        let text = marked(&text, report.head.simulated);
        context.printer.line(&style.paint(Tone::Good, &text))?;
        return Ok(exit);
    }
    let config = report.config.as_ref();
    let stalled = config.and_then(|config| config.stalled.as_ref());
    let why = match (stalled, config) {
        (None, Some(config)) if config.deleting && matches!(wanted, Wanted::Ready) => {
            format!("KataConfig {} is being deleted", config.name)
        }
        (Some(stalled), _) => format!("Stalled {}: manual action required", stalled.reason),
        (None, Some(ConfigFacts { paused: Some(paused), .. })) => {
            format!("{}: it goes on when the pause ends", paused.reason)
        }
        (None, _) if report.no_operator => "the operator is not running".to_owned(),
        (None, _) => match wanted {
            Wanted::Node(name) => format!("node {name} has failed"),
            Wanted::Ready | Wanted::Deleted(_) => "manual action required".to_owned(),
        },
    };
    context.printer.line(&marked(&format!("{why}, {span}"), report.head.simulated))?;
    for line in problem_lines(&report.problems, &style) {
        context.printer.line(&line)?;
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_can_be_said_as_kubectl_says_it() {
        assert_eq!(parse("condition=Ready").unwrap(), Wanted::Ready);
        assert_eq!(parse("delete").unwrap(), Wanted::Deleted(None));
        assert_eq!(parse("deleted/a").unwrap(), Wanted::Deleted(Some("a".to_owned())));
        assert!(parse("deleted/").is_err());
        assert_eq!(parse("node/worker-1=Ready").unwrap(), Wanted::Node("worker-1".to_owned()));
        for wrong in ["node/worker-1", "node/=Ready", "pods", "node/a=Gone"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
