//! The page itself. All text is escaped by the templates.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::timeline::{self, Rollout};
use super::verified::Verified;
use crate::commands::history::{medians, steps, took};
use crate::document::{NodeHistory, Problem, StatusReport};
use crate::human;

/// What the page is about.
pub(super) struct Contents {
    pub(super) status: StatusReport,
    pub(super) histories: Vec<NodeHistory>,
    /// Server and context.
    pub(super) cluster: String,
    /// What `verify` proved, if the user has that.
    pub(super) verified: Option<Verified>,
    /// The version of Kubernetes.
    pub(super) kubernetes: String,
    /// Container runtime and kernel, with how many nodes have them.
    pub(super) systems: BTreeMap<(String, String), usize>,
    pub(super) now: Timestamp,
}

/// Colours follow the reader's preference for light or dark. The page may load nothing.
const STYLE: &str = "
:root { color-scheme: light dark; --text: #1c2230; --dim: #5b6472; --line: #d6dbe3; --back: #ffffff; --bad: #b42318;
  --warn: #8a5a00; --good: #1a7f37; --banner: #fff4d6;
  --c0: #3b6fd4; --c1: #b8690f; --c2: #2e9e6b; --c3: #b6519c; --c4: #6b7fa3; --c5: #0f7f93; --c6: #8a7120; --c7: #7d5bd0;
  --c8: #a33b3b; --c9: #4d7a1f; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ef; --dim: #9aa4b2; --line: #343c49; --back: #14181f;
  --bad: #ff8a80; --warn: #f0c060; --good: #6fd08c; --banner: #3a3115;
  --c0: #7aa5ff; --c1: #f2a65a; --c2: #5fce9b; --c3: #e08bcb; --c4: #9fb0d0; --c5: #5cc8da; --c6: #d0b75e; --c7: #b09af0;
  --c8: #e58f8f; --c9: #a3cf70; } }
* { box-sizing: border-box; print-color-adjust: exact; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 1080px;
  margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
.banner { background: var(--banner); padding: .5rem .8rem; border-radius: 4px; }
.note, .legend { color: var(--dim); font-size: .85rem; }
.legend span { margin-right: 1.2rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 1rem 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
.table, .timeline { overflow-x: auto; } .verdict { font-size: 1.1rem; font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { color: var(--dim); font-weight: 600; white-space: nowrap; } td.code { white-space: nowrap; }
.bad { color: var(--bad); } .warning { color: var(--warn); } .good { color: var(--good); }
svg { width: 100%; height: auto; } svg text { fill: var(--text); font-size: 12px; dominant-baseline: middle; }
svg text.axis, svg text.result { fill: var(--dim); font-size: 11px; } svg text.bad { fill: var(--bad); }
svg .mark { stroke: var(--line); }
.c0 { fill: var(--c0); background: var(--c0); } .c1 { fill: var(--c1); background: var(--c1); }
.c2 { fill: var(--c2); background: var(--c2); } .c3 { fill: var(--c3); background: var(--c3); }
.c4 { fill: var(--c4); background: var(--c4); } .c5 { fill: var(--c5); background: var(--c5); }
.c6 { fill: var(--c6); background: var(--c6); } .c7 { fill: var(--c7); background: var(--c7); }
.c8 { fill: var(--c8); background: var(--c8); } .c9 { fill: var(--c9); background: var(--c9); }
@media (max-width: 700px) {
  body { margin: 1rem auto; padding: 0 1rem; } dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
  .timeline svg { min-width: 720px; } thead { display: none; } table, tbody, tr, td { display: block; }
  tr { border-bottom: 1px solid var(--line); padding: .4rem 0; } td { border: 0; padding: 0; }
  td:not(:empty)::before { content: attr(data-label) \": \"; color: var(--dim); }
}
@media print { body { margin: 0; max-width: none; } tr, svg { break-inside: avoid; } }
";

/// A page that has everything in itself. `as_of` is when it was true.
pub(in crate::commands) fn frame(
    title: &str,
    (success, verdict): (bool, &str),
    as_of: Timestamp,
    simulated: bool,
    body: &Markup,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p class=(if success { "verdict good" } else { "verdict bad" }) { (verdict) }
                p class="note" { "As of " (as_of.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()) "." }
                @if simulated {
                    p class="banner" { "This cluster is simulated: nothing on this page was measured." }
                }
                (body)
            }
        }
    }
}

/// The whole page.
pub(super) fn page(contents: &Contents) -> Markup {
    let status = &contents.status;
    let name = status.config.as_ref().map_or("no KataConfig", |config| config.name.as_str());
    let rollout = timeline::rollout(&contents.histories);
    let verdict = verdict(status);
    let body = html! {
        (summary(contents, &rollout))
        @if let Some(verified) = &contents.verified { (proof(verified)) }
        h2 { "Timeline of the last roll-out" }
        @if rollout.is_empty() {
            p { "No change of a node is recorded." }
        } @else {
            div class="timeline" { (timeline::svg(&rollout)) }
            p class="note" {
                "Up to two minutes of a step (of a reboot: half a minute) may be counted in the step before."
            }
            @for line in medians(rollout.iter().flat_map(|(_, changes)| *changes)) { p { (line) } }
        }
        h2 { "Findings" }
        (findings(&status.problems))
        h2 { "Nodes" }
        (nodes(contents))
        @if !status.gaps.is_empty() {
            h2 { "Not seen" }
            ul { @for gap in &status.gaps { li { (gap.sentence()) } } }
        }
    };
    let title = format!("Kata roll-out: {name}");
    frame(&title, (status.success, &verdict), contents.now, status.head.simulated, &body)
}

/// Whether the roll-out is done, in a sentence.
fn verdict(status: &StatusReport) -> String {
    let Some(config) = &status.config else { return "There is no KataConfig.".to_owned() };
    let nodes = format!(
        "{} of {}",
        config.ready_node_count,
        human::count(usize::try_from(config.node_count).unwrap_or(0), "node")
    );
    if status.success {
        return match status.problems.iter().filter(|it| it.severity != "info").count() {
            0 => format!("Done: Kata is ready on {nodes}."),
            some => {
                format!("Done: Kata is ready on {nodes}, with {}.", human::count(some, "warning"))
            }
        };
    }
    match status.problems.iter().find(|problem| problem.severity == "error") {
        Some(problem) => {
            format!("Not done: Kata is ready on {nodes}. {} {}.", problem.id, problem.message)
        }
        None => format!("Not done: Kata is ready on {nodes}."),
    }
}

/// The versions of Kata before and after the roll-out, as far as they are recorded.
fn versions(histories: &[NodeHistory], rollout: &Rollout<'_>) -> Option<String> {
    let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
    for (name, changes) in rollout {
        let all = histories.iter().find(|history| history.name == *name)?.changes.as_slice();
        let earlier = all.get(..all.len().saturating_sub(changes.len())).unwrap_or_default();
        before.extend(earlier.last().and_then(|change| change.kata_version.as_deref()));
        after.extend(changes.last().and_then(|change| change.kata_version.as_deref()));
    }
    let text = |versions: BTreeSet<&str>| Vec::from_iter(versions).join(", ");
    match (before.is_empty(), after.is_empty()) {
        (_, true) => None,
        (true, false) => Some(format!("{} after it", text(after))),
        (false, false) => Some(format!("{} before it, {} after it", text(before), text(after))),
    }
}

fn proof(verified: &Verified) -> Markup {
    html! {
        h2 { "Verified" }
        p class="note" { "At " (verified.time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()) "." }
        @if verified.simulated { p class="banner" { "Nothing was measured: that cluster is simulated." } }
        div class="table" { table {
            thead { tr { th { "What" } th { "Verdict" } th { "Why" } } }
            tbody {
                @for verdict in &verified.verdicts {
                    tr {
                        td data-label="What" { (verdict.subject) }
                        td data-label="Verdict" class=(if verdict.is_isolated() { "good" } else { "bad" }) {
                            (verdict.text())
                        }
                        td data-label="Why" { (verdict.grounds()) }
                    }
                }
            }
        } }
    }
}

fn summary(contents: &Contents, rollout: &Rollout<'_>) -> Markup {
    let status = &contents.status;
    html! {
        dl {
            dt { "Cluster" }
            dd { (contents.cluster) }
            @if let Some(times) = timeline::times(rollout) {
                dt { "Last roll-out" }
                dd { (times) ", " (human::count(rollout.len(), "node")) }
            }
            @if let Some(versions) = versions(&contents.histories, rollout) {
                dt { "Versions of Kata" }
                dd { (versions) }
            }
            @if let Some(config) = &status.config {
                @if let Some(ready) = &config.ready {
                    dt { "Ready" }
                    dd {
                        span class=(if status.success { "good" } else { "bad" }) { (ready.status) " " (ready.reason) }
                        ": " (ready.message)
                    }
                }
                dt { "Nodes" }
                dd { (config.ready_node_count) " of " (config.node_count) " ready" }
            }
            @for class in &status.runtime_classes {
                dt { "RuntimeClass" }
                dd {
                    (class.name) ", handler " (class.handler) ", overhead " (class.overhead_cpu) " CPU, "
                    (class.overhead_memory)
                }
            }
            @for payload in status.payloads.iter().flatten() {
                dt { "Kata" }
                dd {
                    (payload.kata_version.as_deref().unwrap_or("of unknown version"))
                    @if let Some(digest) = &payload.digest { ", payload " (digest) }
                    @for image in &payload.images {
                        ", from " (image.image)
                        @if !image.image.contains('@') { " (" (image.digest) ")" }
                    }
                    " on " (human::count(payload.nodes, "node"))
                }
            }
            dt { "Operator" }
            dd { (status.operator.version.as_deref().unwrap_or("unknown")) }
            dt { "Kubernetes" }
            dd { (contents.kubernetes) }
            @for ((runtime, kernel), count) in &contents.systems {
                dt { "Node software" }
                dd { (runtime) ", kernel " (kernel) " on " (human::count(*count, "node")) }
            }
            dt { "Report by" }
            dd { "kubectl kata " (status.plugin) }
        }
    }
}

fn findings(problems: &[Problem]) -> Markup {
    if problems.is_empty() {
        return html! { p { "None." } };
    }
    html! {
        div class="table" { table {
            thead { tr { th { "Code" } th { "About" } th { "What" } th { "Fix" } } }
            tbody {
                @for problem in problems {
                    tr {
                        td data-label="Code" class=(class(problem)) {
                            (problem.id) br; (problem.severity)
                        }
                        td data-label="About" { (problem.subject) }
                        td data-label="What" { (problem.message) }
                        td data-label="Fix" { (problem.fix) }
                    }
                }
            }
        } }
    }
}

fn class(problem: &Problem) -> &'static str {
    match problem.severity {
        "error" => "code bad",
        "warning" => "code warning",
        _ => "code",
    }
}

fn nodes(contents: &Contents) -> Markup {
    let histories: BTreeMap<&str, &NodeHistory> =
        contents.histories.iter().map(|history| (history.name.as_str(), history)).collect();
    let last = |name: &str| histories.get(name).and_then(|history| history.changes.last());
    html! {
        div class="table" { table {
            thead { tr { th { "Node" } th { "Phase" } th { "Last change" } th { "Kata" } th { "Began (UTC)" } th { "Took" } th { "Steps" } th { "Message" } } }
            tbody {
                @for node in &contents.status.nodes {
                    tr {
                        td data-label="Node" { (node.name) }
                        td data-label="Phase" { (node.phase) @if !node.step.is_empty() { ", " (node.step) } }
                        @if let Some(change) = last(&node.name) {
                            td data-label="Last change" { (change.kind) " " (change.result.as_str()) }
                            td data-label="Kata" { (change.kata_version.as_deref().unwrap_or_default()) }
                            td data-label="Began (UTC)" { (change.began.strftime("%Y-%m-%d %H:%M:%S").to_string()) }
                            td data-label="Took" { (took(change)) }
                            td data-label="Steps" { (steps(change)) }
                        } @else { td {} td {} td {} td {} td {} }
                        td data-label="Message" { (node.message) }
                    }
                }
            }
        } }
    }
}
