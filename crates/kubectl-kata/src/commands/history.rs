//! `history`: the last changes of each node with the time of each step, as the KataNodes record them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::{Phase, Transition};
use kata_api::{KataNode, Natural};

use super::{expect_output, marked};
use crate::Context;
use crate::arguments::HistoryArguments;
use crate::cluster::{Kata, find_node};
use crate::document::{ChangeResult, Head, HistoryReport, NodeChange, NodeHistory, StepTime};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::settings::Output;
use crate::style::Tone;
use crate::table::{Cell, Table, column};

/// Where the version of Kata is in the table.
const VERSION_COLUMN: usize = 3;

pub(crate) async fn run(
    arguments: &HistoryArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let allowed = [Output::Table, Output::Wide, Output::Json, Output::Yaml];
    expect_output(context.settings, &allowed, "history")?;
    let kata = Kata::read(&context.api).await?;
    let nodes = kata.known_nodes("read the history of nodes")?;
    let now = context.settings.now();
    let items = if arguments.names.is_empty() {
        of_nodes(nodes.iter(), now)
    } else {
        let wanted: Result<Vec<&KataNode>, Failure> =
            arguments.names.iter().map(|name| find_node(nodes, name)).collect();
        of_nodes(wanted?.into_iter(), now)
    };
    let head = Head::new("HistoryReport", kata.is_simulated());
    let report = HistoryReport { head, items, gaps: context.api.gaps() };
    if !context.printer.document(context.settings.output, &report)? {
        print(&report, context)?;
    }
    Ok(Exit::Fine)
}

/// The histories of nodes, in natural order.
pub(crate) fn of_nodes<'n>(
    nodes: impl Iterator<Item = &'n KataNode>,
    now: Timestamp,
) -> Vec<NodeHistory> {
    let mut sorted: Vec<&KataNode> = nodes.collect();
    sorted.sort_by_key(|node| Natural(&node.spec.node_name));
    let history = |node: &KataNode| NodeHistory {
        name: node.spec.node_name.clone(),
        changes: node.status.as_ref().map(|it| changes(&it.history, now)).unwrap_or_default(),
    };
    sorted.into_iter().map(history).collect()
}

/// The changes that a history has, oldest first.
fn changes(history: &[Transition], now: Timestamp) -> Vec<NodeChange> {
    let mut changes: Vec<NodeChange> = Vec::new();
    // Checks before a change belong to it once it begins.
    let mut checks: Vec<StepTime> = Vec::new();
    let mut is_open = false;
    // Whether the history has a time at which no change was under way.
    let mut has_beginning = false;
    for (at, entry) in history.iter().enumerate() {
        let end = history.get(at + 1).map_or(now, |next| next.time);
        let name = entry.step.split_once(' ').map_or(entry.step.as_str(), |(_, name)| name);
        let step = StepTime {
            name: if name.is_empty() { entry.phase.as_str() } else { name }.to_owned(),
            began: entry.time,
            seconds: end.duration_since(entry.time).as_secs().max(0),
        };
        let kind = match entry.phase {
            Phase::Installing => Some("install"),
            Phase::Updating => Some("update"),
            Phase::Removing => Some("remove"),
            _ => None,
        };
        let result = match entry.phase {
            Phase::Ready if entry.rolled_back => Some(ChangeResult::Failed),
            Phase::Ready => Some(ChangeResult::Done),
            Phase::Failed => Some(ChangeResult::Failed),
            Phase::Waiting | Phase::WaitingToRemove => Some(ChangeResult::Stopped),
            // A node that is down or unknown during a change is still being changed.
            _ => None,
        };
        match (kind, changes.last_mut().filter(|_| is_open)) {
            (Some(kind), Some(change)) if change.kind == kind => change.steps.push(step),
            (Some(kind), previous) => {
                if let Some(previous) = previous {
                    previous.result = ChangeResult::Stopped;
                }
                let mut steps = std::mem::take(&mut checks);
                steps.push(step);
                let began = steps.first().map_or(entry.time, |first| first.began);
                let result = ChangeResult::UnderWay;
                // The history begins within the change.
                let partial = !has_beginning && step_number(&entry.step) > 1;
                let kata_version = None;
                changes.push(NodeChange {
                    kind,
                    result,
                    began,
                    seconds: 0,
                    kata_version,
                    partial,
                    steps,
                });
                is_open = true;
                has_beginning = true;
            }
            (None, Some(change)) => match result {
                Some(result) => {
                    // The record of a node that lost Kata goes, unless the node is selected again.
                    let is_removed = change.kind == "remove" && entry.phase == Phase::Waiting;
                    change.result = if is_removed { ChangeResult::Done } else { result };
                    change.kata_version.clone_from(&entry.kata_version);
                    is_open = false;
                    if !entry.step.is_empty() {
                        checks.push(step);
                    }
                }
                None => change.steps.push(step),
            },
            (None, None) if entry.step.is_empty() => checks.clear(),
            (None, None) => checks.push(step),
        }
        has_beginning |= result.is_some();
    }
    for change in &mut changes {
        change.seconds = change.steps.iter().map(|step| step.seconds).sum();
    }
    changes
}

/// The number of a step such as `3/6 Applying`; 0 of none.
fn step_number(step: &str) -> u32 {
    step.split_once('/').and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

fn print(report: &HistoryReport, context: &mut Context<'_, '_>) -> Result<(), Failure> {
    let settings = context.settings;
    let now = settings.now();
    if report.items.iter().all(|item| item.changes.is_empty()) {
        let text = marked("No change of a node is recorded.", report.head.simulated);
        return Ok(context.printer.say(&text)?);
    }
    let mut columns = vec![
        column("NODE"),
        column("CHANGE"),
        column("RESULT"),
        column("BEGAN").dispensable(1),
        column("TOOK"),
        column("STEPS"),
    ];
    // The version is unknown on nodes whose operating system provides Kata.
    let changes = report.items.iter().flat_map(|item| &item.changes);
    let has_versions = changes.into_iter().any(|change| change.kata_version.is_some());
    if has_versions {
        columns.insert(VERSION_COLUMN, column("KATA").dispensable(2));
    }
    let mut table = Table::new(&columns);
    for item in &report.items {
        for change in &item.changes {
            let mut row = vec![
                item.name.clone().into(),
                change.kind.into(),
                Cell::toned(change.result.as_str(), tone(change.result)),
                format!("{} ago", human::age(now, change.began)).into(),
                took(change).into(),
                steps(change).into(),
            ];
            if has_versions {
                row.insert(VERSION_COLUMN, change.kata_version.clone().unwrap_or_default().into());
            }
            table.row(row);
        }
    }
    context.printer.table(&table, settings.is_wide(), settings.titles)?;
    let medians = medians(report.items.iter().flat_map(|item| &item.changes));
    for line in &medians {
        context.printer.line(&marked(line, report.head.simulated))?;
    }
    if report.head.simulated && medians.is_empty() {
        context.printer.say("(simulated)")?;
    }
    Ok(())
}

/// The median time of the changes of each kind that are done, and of their steps.
pub(crate) fn medians<'a>(changes: impl Iterator<Item = &'a NodeChange>) -> Vec<String> {
    let mut kinds: BTreeMap<&str, Vec<&NodeChange>> = BTreeMap::new();
    for change in changes {
        if change.result == ChangeResult::Done && !change.partial {
            kinds.entry(change.kind).or_default().push(change);
        }
    }
    let line = |(kind, changes): (&str, Vec<&NodeChange>)| {
        let mut order: Vec<&str> = Vec::new();
        let mut steps: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for step in changes.iter().flat_map(|change| &change.steps) {
            if !order.contains(&step.name.as_str()) {
                order.push(&step.name);
            }
            steps.entry(&step.name).or_default().push(step.seconds);
        }
        let steps: Vec<String> = order
            .into_iter()
            .filter_map(|name| Some(format!("{name} {}", span(median(steps.remove(name)?)?))))
            .collect();
        let total = median(changes.iter().map(|change| change.seconds).collect())?;
        let what = match kind {
            "install" => "installation",
            "remove" => "removal",
            other => other,
        };
        let text = format!("{} ({})", span(total), steps.join(", "));
        Some(match changes.len() {
            1 => format!("1 {what} took {text}"),
            count => format!("Median of {}: {text}", human::count(count, what)),
        })
    };
    kinds.into_iter().filter_map(line).collect()
}

fn median(mut seconds: Vec<i64>) -> Option<i64> {
    seconds.sort_unstable();
    let upper = *seconds.get(seconds.len() / 2)?;
    let lower = *seconds.get((seconds.len() - 1) / 2)?;
    Some((lower + upper) / 2)
}

fn tone(result: ChangeResult) -> Tone {
    match result {
        ChangeResult::Done => Tone::Good,
        ChangeResult::Failed => Tone::Bad,
        ChangeResult::Stopped => Tone::Warn,
        ChangeResult::UnderWay => Tone::Plain,
    }
}

/// How long a change took, or took at least.
pub(crate) fn took(change: &NodeChange) -> String {
    format!("{}{}", if change.partial { "over " } else { "" }, span(change.seconds))
}

/// `Draining 1m10s, Applying 2m`.
pub(crate) fn steps(change: &NodeChange) -> String {
    let step = |step: &StepTime| format!("{} {}", step.name, span(step.seconds));
    change.steps.iter().map(step).collect::<Vec<_>>().join(", ")
}

/// A number of seconds as people read it.
pub(crate) fn span(seconds: i64) -> String {
    human::span(SignedDuration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(entries: &[(Phase, &str, i64)]) -> Vec<Transition> {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let entry = |(phase, step, second): &(Phase, &str, i64)| Transition {
            phase: *phase,
            step: (*step).to_owned(),
            time: at(*second),
            kata_version: (*phase == Phase::Ready).then(|| format!("4.{second}")),
            rolled_back: false,
        };
        entries.iter().map(entry).collect()
    }

    fn summaries(entries: &[(Phase, &str, i64)], now: i64) -> Vec<String> {
        let now = Timestamp::from_second(1_800_000_000 + now).unwrap();
        let line = |change: NodeChange| {
            let steps: Vec<String> =
                change.steps.iter().map(|it| format!("{} {}", it.name, it.seconds)).collect();
            let (kind, result) = (change.kind, change.result.as_str());
            let version = change.kata_version.map_or_else(String::new, |it| format!(" with {it}"));
            format!("{kind} {result} {}{version}: {}", change.seconds, steps.join(", "))
        };
        changes(&history(entries), now).into_iter().map(line).collect()
    }

    #[test]
    fn a_change_has_its_steps_and_its_checks() {
        use Phase::{Failed, Installing, NotReady, Ready, Removing, Updating, Waiting};
        let entries = [
            (Waiting, "", 0),
            (Waiting, "1/4 Preflight", 5),
            (Installing, "3/4 Changing", 10),
            (NotReady, "", 40),
            (Installing, "4/4 Confirming", 60),
            (Ready, "", 70),
            (Updating, "3/4 Changing", 1_000),
            (Failed, "", 1_100),
            (Updating, "3/4 Changing", 2_000),
            (Waiting, "", 2_010),
            (Removing, "3/4 Changing", 3_000),
        ];
        assert_eq!(
            summaries(&entries, 3_007),
            [
                "install done 65 with 4.70: Preflight 5, Changing 30, NotReady 20, Confirming 10",
                "update failed 100: Changing 100",
                "update stopped 10: Changing 10",
                "remove under way 7: Changing 7",
            ]
        );
        assert!(summaries(&[(Waiting, "1/4 Preflight", 0), (Waiting, "", 5)], 10).is_empty());
        let again = [
            (Installing, "3/4 Changing", 0),
            (Waiting, "1/4 Preflight", 60),
            (Installing, "3/4 Changing", 70),
            (Ready, "", 90),
        ];
        assert_eq!(
            summaries(&again, 100),
            [
                "install stopped 60: Changing 60",
                "install done 30 with 4.90: Preflight 10, Changing 20"
            ]
        );
        // Selected again after Kata was removed.
        let removed = [(Removing, "3/4 Changing", 0), (Waiting, "", 20)];
        assert_eq!(summaries(&removed, 30), ["remove done 20: Changing 20"]);
    }

    #[test]
    fn a_change_that_was_rolled_back_failed() {
        let mut entries = history(&[(Phase::Updating, "3/4 Changing", 0), (Phase::Ready, "", 9)]);
        entries[1].rolled_back = true;
        let now = Timestamp::from_second(1_800_000_100).unwrap();
        assert_eq!(changes(&entries, now)[0].result, ChangeResult::Failed);
    }

    /// The history that begins with these entries, within a change of three steps.
    fn cut(first: &[(Phase, &str, i64)]) -> Vec<NodeChange> {
        let rest = [(Phase::Ready, "", 10)];
        let entries: Vec<_> = first.iter().chain(&rest).copied().collect();
        changes(&history(&entries), Timestamp::from_second(1_800_000_100).unwrap())
    }

    #[test]
    fn a_change_whose_beginning_is_lost_does_not_count() {
        use Phase::{Installing, NotReady, Unknown, Waiting};
        let finishing = (Installing, "5/6 Finishing", 0);
        for before in [NotReady, Unknown] {
            let change = &cut(&[(before, "", -5), finishing])[0];
            assert_eq!(took(change), "over 10s", "{before:?}");
        }
        assert!(!cut(&[(Waiting, "", -5), finishing])[0].partial);
        let of = |step| cut(&[(Installing, step, 0)]);
        assert_eq!(took(&of("5/6 Finishing")[0]), "over 10s");
        assert_eq!(medians(of("5/6 Finishing").iter()), [""; 0]);
        assert_eq!(took(&of("1/6 Targeted")[0]), "10s");
        let two = [cut(&[(Installing, "1/6 Targeted", -10)]), of("1/6 Targeted")].concat();
        assert_eq!(medians(two.iter()), ["Median of 2 installations: 15s (Targeted 15s)"]);
        assert_eq!(medians(of("1/6 Targeted").iter()), ["1 installation took 10s (Targeted 10s)"]);
    }
}
