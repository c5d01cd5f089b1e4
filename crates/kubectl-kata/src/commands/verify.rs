//! `verify`: proves that pods run on kernels of their own. On nodes it runs two probes, one sandboxed and
//! one not, and compares; of a pod it asks the kernel that the pod runs on.
//!
//! Probes are Jobs that end and vanish by themselves: whatever happens to this program, nothing stays.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _};
use kata_api::probe::ProbeFacts;
use kata_api::{Code, KataNode};
use serde_json::Value;
use tokio::time::Instant;

use super::{expect_output, marked, problem_lines};
use crate::Context;
use crate::api::Scope;
use crate::arguments::VerifyArguments;
use crate::cluster::{Kata, operator};
use crate::document::{Head, Problem, Signal, SignalVerdict, Verdict, VerifyReport, VerifyResult};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resource::{JOBS, KATA_CONFIGS, KATA_NODES, NODES};
use crate::settings::Output;
use crate::style::{Mark, Style, Tone};
use crate::table::{Cell, Table, column};

mod compare;
mod exec;
mod host;
mod pod;
mod probe;
mod unfit;

/// How many nodes are probed at once.
const AT_ONCE: usize = 5;

/// What the API says of a node.
#[derive(Clone, Debug, Default)]
struct NodeInfo {
    name: String,
    facts: Option<ProbeFacts>,
    handlers: Vec<String>,
    labels: BTreeMap<String, String>,
    /// Its operating system, as the kubelet calls it.
    system: String,
    /// The shim that is configured for the RuntimeClass, if the operator's Jobs did it.
    shim: Option<String>,
    /// The version of Kata that a node agent brought.
    kata: Option<String>,
}

impl NodeInfo {
    /// Adds the shim that the operator's Jobs configured for a RuntimeClass, and the version of Kata that they installed.
    fn add_kata(&mut self, shim: Option<&String>, node: Option<&KataNode>) {
        self.shim = shim.cloned();
        let host = node.and_then(|node| node.status.as_ref()?.host.as_ref());
        self.kata = host.and_then(|host| host.kata_version.clone());
    }
}

pub(crate) async fn run(
    arguments: &VerifyArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let allowed = [Output::Table, Output::Wide, Output::Short, Output::Json, Output::Yaml];
    expect_output(context.settings, &allowed, "verify")?;
    let kata = Kata::read(&context.api).await?;
    let Some(verdicts) = verdicts(arguments, &kata, context).await? else {
        let text = context.marked("interrupted; the probes are deleted");
        context.printer.say(&text)?;
        return Ok(Exit::Interrupted);
    };
    let report = VerifyReport {
        head: Head::new("VerifyReport", kata.is_simulated()),
        cluster: context.place.clone(),
        time: context.settings.now(),
        success: !verdicts.is_empty()
            && verdicts.iter().all(|verdict| verdict.result == VerifyResult::Isolated),
        verdicts,
        gaps: context.api.gaps(),
    };
    if !context.printer.document(context.settings.output, &report)? {
        print(&report, context)?;
    }
    Ok(exit(&report))
}

/// The verdict about a pod, or about nodes; `None` if the user wants no more.
pub(super) async fn verdicts(
    arguments: &VerifyArguments,
    kata: &Kata,
    context: &mut Context<'_, '_>,
) -> Result<Option<Vec<Verdict>>, Failure> {
    let interrupted = context.interrupted();
    match &arguments.target {
        Some(target) => {
            let verdict = pod::verify(target, arguments, kata, interrupted, context).await?;
            Ok(verdict.map(|verdict| vec![verdict]))
        }
        None => nodes(arguments, kata, interrupted, context).await,
    }
}

fn exit(report: &VerifyReport) -> Exit {
    let any = |result| report.verdicts.iter().any(|verdict| verdict.result == result);
    if any(VerifyResult::NotIsolated) || any(VerifyResult::ProbeFailed) {
        Exit::Findings
    } else if any(VerifyResult::Inconclusive)
        || report.verdicts.is_empty()
        || report.verdicts.iter().any(|verdict| verdict.host_unknown)
    {
        Exit::Inconclusive
    } else {
        Exit::Fine
    }
}

/// Probes nodes; `None` if the user wants no more.
async fn nodes(
    arguments: &VerifyArguments,
    kata: &Kata,
    interrupted: impl Future<Output = ()>,
    context: &mut Context<'_, '_>,
) -> Result<Option<Vec<Verdict>>, Failure> {
    let class = match (&arguments.runtime_class, kata.runtimes().first()) {
        (Some(class), _) => class.clone(),
        (None, Some(runtime)) => runtime.name.clone(),
        (None, None) if kata.configs.is_forbidden() => {
            return Err(Failure::Forbidden(format!(
                "cannot tell which RuntimeClass is Kata's: you may not list {}; --runtime-class NAME says it",
                KATA_CONFIGS.qualified()
            )));
        }
        (None, None) => {
            return Err(Failure::NotFound(
                "there is no KataConfig; give --runtime-class NAME to verify another installation"
                    .to_owned(),
            ));
        }
    };
    unfit::class(&class, kata)?;
    let handlers = kata.handlers();
    let handler = handlers.get(&class).cloned().unwrap_or_else(|| class.clone());
    let wanted: Vec<String> = if arguments.node.is_empty() {
        let ready = kata
            .nodes
            .items()
            .iter()
            .filter(|node| node.status.as_ref().is_some_and(|status| status.ready == "True"));
        ready.map(|node| node.spec.node_name.clone()).collect()
    } else {
        arguments.node.iter().map(|n| n.strip_prefix("node/").unwrap_or(n).to_owned()).collect()
    };
    if wanted.is_empty() && kata.nodes.is_forbidden() {
        return Err(Failure::Forbidden(format!(
            "cannot tell which nodes have Kata: you may not list {}; --node NAME says it",
            KATA_NODES.qualified()
        )));
    }
    if wanted.is_empty() {
        return Err(Failure::NotFound(
            "no node is ready for sandboxed pods, so there is nothing to verify: see `kubectl kata \
             status`"
                .to_owned(),
        ));
    }
    let image = image(arguments, context).await?;
    let infos = infos(context).await?;
    // Who may not see nodes is not told which there are.
    if let Some(absent) = wanted.iter().find(|name| !infos.contains_key(*name) && !infos.is_empty())
    {
        let names: Vec<&String> = infos.keys().collect();
        return Err(Failure::NotFound(format!(
            "there is no node {absent}; there are {}",
            crate::human::list(&names, 5)
        )));
    }
    let namespace = context.namespace();
    let run = probe::Run::new(&image, &class, &namespace, arguments, &context.settings.now);
    let api = &context.api;
    let probes = stream::iter(wanted.iter().map(|node| {
        let mut info = infos
            .get(node)
            .cloned()
            .unwrap_or_else(|| NodeInfo { name: node.clone(), ..NodeInfo::default() });
        let status = kata.nodes.items().iter().find(|known| known.spec.node_name == *node);
        info.add_kata(kata.shim(&class, Some(node)).as_ref(), status);
        // Another installation of Kata is not in our status.
        let ours = kata.nodes.as_known().is_some() && arguments.runtime_class.is_none();
        let unfit = ours
            .then(|| unfit::node(&info, status, kata))
            .flatten()
            .or_else(|| unfit::scheduling(&info, &class, kata));
        let (run, handler) = (&run, handler.as_str());
        async move {
            let begin = Instant::now();
            if let Some(verdict) = unfit {
                return Ok(verdict);
            }
            let outcome = run.probe(api, &info.name).await?;
            let seconds = begin.elapsed().as_secs_f64();
            Ok::<_, Failure>(compare::verdict(&info, handler, &outcome, seconds))
        }
    }))
    .buffered(AT_ONCE)
    .collect::<Vec<_>>();
    let results = tokio::select! {
        results = probes => Some(results),
        () = interrupted => None,
    };
    let said = if results.is_none() { say_interrupted(context) } else { Ok(()) };
    let api = &context.api;
    let failed = |results: &Vec<Result<Verdict, Failure>>| -> Vec<String> {
        let all = results.iter().filter_map(|result| result.as_ref().ok());
        all.filter(|verdict| verdict.result != VerifyResult::Isolated)
            .map(|verdict| verdict.subject.trim_start_matches("node/").to_owned())
            .collect()
    };
    let kept = match &results {
        Some(results) if arguments.keep => failed(results),
        Some(_) | None => Vec::new(),
    };
    // Always, and also what an earlier run could not clean up.
    run.clean(api, JOBS, &kept).await?;
    said?;
    results.map(|results| results.into_iter().collect()).transpose()
}

/// Says that there is something to wait for after an interrupt.
fn say_interrupted(context: &mut Context<'_, '_>) -> Result<(), Failure> {
    let text = context.marked(
        "interrupted: deleting the probes; after a second interrupt they stay until they end",
    );
    Ok(context.printer.say(&text)?)
}

/// The image of probes, and of what looks at a node.
async fn image(arguments: &VerifyArguments, context: &Context<'_, '_>) -> Result<String, Failure> {
    if let Some(image) = &arguments.image {
        return Ok(image.clone());
    }
    let deployment = operator(&context.api).await?.known().flatten();
    let image = deployment.as_ref().and_then(|deployment| deployment.image());
    let image = image.or(context.settings.published.as_deref());
    image.map(str::to_owned).ok_or_else(|| {
        Failure::Usage(
            "no image for the probes: there is no Deployment of the operator that you may read; give --image REF \
             with the operator's image"
                .to_owned(),
        )
    })
}

async fn infos(context: &Context<'_, '_>) -> Result<BTreeMap<String, NodeInfo>, Failure> {
    let nodes = context.api.list::<Value>(NODES, Scope::default()).await?;
    Ok(nodes
        .items()
        .iter()
        .map(|node| {
            let text = |path: &str| {
                node.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let amount = |key: &str| {
                crate::human::quantity(&text(&format!("/status/capacity/{key}"))).unwrap_or(0)
            };
            let facts = ProbeFacts {
                boot_id: text("/status/nodeInfo/bootID"),
                cmdline: String::new(),
                uptime_seconds: 0.0,
                cpus: u32::try_from(amount("cpu") / 1_000).unwrap_or(0),
                memory_kib: u64::try_from(amount("memory") / 1_000 / 1_024).unwrap_or(0),
                kernel: text("/status/nodeInfo/kernelVersion"),
            };
            let handlers = node["status"]["runtimeHandlers"].as_array();
            let handlers = handlers.into_iter().flatten();
            let name = text("/metadata/name");
            let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
            let info = NodeInfo {
                name: name.clone(),
                shim: None,
                kata: None,
                system: text("/status/nodeInfo/osImage"),
                labels: labels
                    .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                    .collect(),
                facts: Some(facts).filter(|facts| !facts.boot_id.is_empty()),
                handlers: handlers
                    .filter_map(|handler| handler["name"].as_str().map(str::to_owned))
                    .collect(),
            };
            (name, info)
        })
        .collect())
}

fn print(report: &VerifyReport, context: &mut Context<'_, '_>) -> Result<(), Failure> {
    let settings = context.settings;
    let style = context.printer.style();
    for verdict in &report.verdicts {
        // One table for one subject; for many the outcome, unless something is wrong.
        let details = report.verdicts.len() == 1
            || settings.is_wide()
            || verdict.result != VerifyResult::Isolated;
        if settings.output != Output::Short && details && !verdict.signals.is_empty() {
            let table = table(&verdict.signals, &style);
            context.printer.table(&table, settings.is_wide(), settings.titles)?;
        }
        if let Some(facts) = verdict.host.as_ref().filter(|_| settings.output != Output::Short) {
            let is_isolated = verdict.result == VerifyResult::Isolated;
            let table = host::table(facts, is_isolated, settings.is_wide());
            context.printer.table(&table, settings.is_wide(), settings.titles)?;
        }
        let line = headline(verdict, &style);
        context.printer.line(&marked(&line, report.head.simulated))?;
        for line in problem_lines(&verdict.problems, &style) {
            context.printer.line(&line)?;
        }
    }
    if report.verdicts.len() > 1 {
        let good = report.verdicts.iter().filter(|v| v.result == VerifyResult::Isolated).count();
        let text = format!("{good} of {} isolated", report.verdicts.len());
        context.printer.line(&marked(&text, report.head.simulated))?;
    }
    Ok(())
}

fn headline(verdict: &Verdict, style: &Style) -> String {
    let (mark, word, tone) = match verdict.result {
        VerifyResult::Isolated => (Mark::Good, "ISOLATED", Tone::Good),
        VerifyResult::NotIsolated => (Mark::Bad, "NOT SANDBOXED", Tone::Bad),
        VerifyResult::ProbeFailed => (Mark::Bad, "PROBE FAILED", Tone::Bad),
        VerifyResult::Inconclusive => (Mark::Warn, "INCONCLUSIVE", Tone::Warn),
    };
    let judged = verdict
        .signals
        .iter()
        .filter(|s| matches!(s.verdict, SignalVerdict::Pass | SignalVerdict::Fail));
    let (passed, all) =
        judged.fold((0, 0), |(p, a), s| (p + usize::from(s.verdict == SignalVerdict::Pass), a + 1));
    let count = if all == 0 { String::new() } else { format!("   {passed} of {all} signals") };
    format!(
        "{} {}  {}{count}, {:.1}s",
        style.mark(mark),
        style.plain(&verdict.subject),
        style.paint(tone, word),
        verdict.seconds
    )
}

fn table(signals: &[Signal], style: &Style) -> Table {
    // A pod is compared with its node alone.
    let has_regular = signals.iter().any(|signal| signal.regular != "-");
    let mut columns = vec![column("SIGNAL"), column(if has_regular { "SANDBOXED" } else { "POD" })];
    columns.extend(has_regular.then(|| column("REGULAR")));
    columns.extend([column("NODE"), column("VERDICT")]);
    let mut table = Table::new(&columns);
    let room = if style.width.is_some_and(|width| width < WIDE) { 11 } else { 22 };
    let glyph = |verdict: SignalVerdict| match (verdict, style.unicode) {
        (SignalVerdict::Pass, true) => ("√", Tone::Good),
        (SignalVerdict::Pass, false) => ("+", Tone::Good),
        (SignalVerdict::Fail, true) => ("×", Tone::Bad),
        (SignalVerdict::Fail, false) => ("x", Tone::Bad),
        (SignalVerdict::Neutral, _) => ("-", Tone::Dim),
    };
    for signal in signals {
        let (glyph, tone) = glyph(signal.verdict);
        let mut row: Vec<Cell> = vec![signal.name.into(), short(&signal.sandboxed, room).into()];
        row.extend(has_regular.then(|| short(&signal.regular, room).into()));
        row.push(short(&signal.node, room).into());
        row.push(Cell::toned(format!("{glyph} {}", signal.meaning), tone));
        table.row(row);
    }
    table
}

/// Columns of a terminal on which identifiers need not be cut to their shortest.
const WIDE: usize = 120;

/// The beginning and the end of an identifier, and the beginning of everything else, in at most so many characters.
pub(super) fn short(text: &str, room: usize) -> String {
    let count = text.chars().count();
    if count <= room {
        return text.to_owned();
    }
    let tail = if text.contains(' ') { 0 } else { (room - 3) * 3 / 8 };
    let head: String = text.chars().take(room - 3 - tail).collect();
    let tail: String = text.chars().skip(count - tail).collect();
    format!("{head}...{tail}")
}

/// A verdict that a probe could not bring about.
fn failed(subject: String, code: Code, message: String, seconds: f64) -> Verdict {
    let result = match code {
        Code::ProbeFailed | Code::NotSandboxed => VerifyResult::ProbeFailed,
        _ => VerifyResult::Inconclusive,
    };
    let problem = Problem::new(code, &subject, message);
    let problems = vec![problem];
    Verdict {
        subject,
        result,
        seconds,
        signals: Vec::new(),
        problems,
        host: None,
        host_unknown: false,
    }
}
