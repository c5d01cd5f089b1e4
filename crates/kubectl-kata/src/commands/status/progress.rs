//! The nodes of a roll-out in the order in which they need attention, with how long they will take.

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::Phase;
use kata_api::situations::{self, Effect};
use kata_api::{Code, KataConfig, KataNode, Natural, Severity, conditions};

use crate::document::{NodeProgress, Problem, StatusReport};
use crate::estimate;
use crate::human;
use crate::style::Style;

/// What is said of a node that waits, if nothing else is known.
const TURN: &str = "waits for its turn";
/// How the operator begins when the API server refuses a Job on a node.
const REFUSED_JOB: &str = "cannot write Job ";
/// What keeps every node waiting, whose turn does not come before that is over.
const STOPS_ALL: [Code; 4] =
    [Code::RolloutPaused, Code::PoolPaused, Code::PodsStillRunning, Code::RolloutStopped];
/// What makes a node unavailable until somebody helps it, so that it may keep others waiting.
const TAKES_A_TURN: [Code; 5] = [
    Code::NodeBroken,
    Code::NodeDegradedAndCordoned,
    Code::NodeDegraded,
    Code::NodeCordoned,
    Code::NodeNotReady,
];
/// How many nodes a message names.
const NAMES: usize = 3;

/// Names what stops all nodes where nothing is said of one that waits.
pub(crate) fn name_what_stops_all(
    nodes: &mut [NodeProgress],
    problems: &[Problem],
    config: Option<&KataConfig>,
) {
    let told = |code: Code| problems.iter().filter(move |it| it.id == code.entry().code);
    let text = |code: Code| format!("held up by {} {}", code.entry().code, code.entry().reason);
    let stop = STOPS_ALL
        .into_iter()
        .find(|code| told(*code).next().is_some())
        .map(text)
        // Without its Job no node has a turn.
        .or_else(|| {
            let mut refused = told(Code::WriteFailed);
            refused.any(|it| it.message.starts_with(REFUSED_JOB)).then(|| text(Code::WriteFailed))
        })
        .or_else(|| {
            let unavailable: Vec<(Code, &str)> = TAKES_A_TURN
                .into_iter()
                .flat_map(|code| told(code).map(move |it| (code, it.subject.as_str())))
                .filter_map(|(code, subject)| Some((code, subject.strip_prefix("node/")?)))
                .collect();
            unavailable.first()?;
            let of_code = |code: Code| {
                let names = unavailable.iter().filter(|(it, _)| *it == code);
                let names: Vec<&str> = names.map(|(_, name)| *name).collect();
                let told = format!(
                    "{} {} ({})",
                    code.entry().code,
                    code.entry().reason,
                    human::list(&names, NAMES)
                );
                (!names.is_empty()).then_some(told)
            };
            let held: Vec<String> = TAKES_A_TURN.into_iter().filter_map(of_code).collect();
            let rollout = config.and_then(|config| config.spec.rollout.as_ref());
            let value = rollout.and_then(|rollout| rollout.max_unavailable.as_ref());
            (unavailable.len() >= kata_plan::most_unavailable(value, nodes.len()))
                .then(|| format!("held up by {}", held.join(", ")))
        });
    let Some(stop) = stop else { return };
    for node in nodes.iter_mut().filter(|node| node.message == TURN) {
        node.message.clone_from(&stop);
    }
}

/// The nodes, worst first.
pub(crate) fn nodes(
    config: Option<&KataConfig>,
    nodes: &[KataNode],
    now: Timestamp,
) -> Vec<NodeProgress> {
    let mut sorted: Vec<(&KataNode, Phase)> = nodes
        .iter()
        .map(|node| (node, node.status.as_ref().map(|status| status.phase).unwrap_or_default()))
        .collect();
    sorted.sort_by_cached_key(|(node, phase)| {
        let status = node.status.as_ref();
        let held_up = status.is_some_and(|status| status.code.is_some());
        let step = status.map(|status| status.step.clone()).unwrap_or_default();
        // Of those that are being changed, the one that is furthest is done first.
        (rank(*phase, held_up), std::cmp::Reverse(step), Natural(&node.spec.node_name))
    });
    let began = config.and_then(began);
    let finished: Vec<Timestamp> = sorted
        .iter()
        .filter(|(_, phase)| *phase == Phase::Ready)
        .filter_map(|(node, _)| node.status.as_ref().and_then(|status| status.since))
        .collect();
    let pace = began.and_then(|began| estimate::pace(began, &finished));
    let mut place = 0;
    sorted
        .into_iter()
        .map(|(node, phase)| {
            let status = node.status.clone().unwrap_or_default();
            let remaining = matches!(phase, Phase::Waiting | Phase::Installing | Phase::Updating);
            let eta = remaining.then(|| {
                place += 1;
                pace.map(|pace| pace.until(now, place).as_secs())
            });
            let message = match (status.message.as_str(), phase) {
                ("", Phase::Waiting | Phase::WaitingToRemove) => TURN.to_owned(),
                (message, _) => message.to_owned(),
            };
            NodeProgress {
                name: node.spec.node_name.clone(),
                phase: phase.as_str().to_owned(),
                step: status.step,
                since: status.since,
                eta_seconds: eta.flatten(),
                handlers: status.handlers,
                provided: status.provided,
                ready: status.ready,
                code: status.code,
                message,
            }
        })
        .collect()
}

/// The counts of nodes, on a terminal after a bar: `1/3 ready   1 changing, 1 waiting   at most 1 at once   ~14m
/// left`. A node with Kata may be counted twice, such as one that is being updated.
pub(crate) fn line(report: &StatusReport, style: &Style) -> String {
    let Some(config) = &report.config else { return String::new() };
    let (have, all) = (config.ready_node_count, config.node_count);
    let bar = style.width.map(|_| format!("{}  ", bar(have, all, BAR, style)));
    let mut parts = vec![format!("{}{have}/{all} ready", bar.unwrap_or_default())];
    let (mut changing, mut waiting, mut blocked, mut failed) = (0, 0, 0, 0);
    for node in &report.nodes {
        // An info, such as another roll-out on the node, ends by itself.
        let code = node.code.as_deref().and_then(Code::parse);
        let is_blocked = code.is_some_and(|code| {
            code.entry().severity > Severity::Info && situations::effect(code) != Effect::Nothing
        });
        let phase = Phase::ALL.iter().find(|phase| phase.as_str() == node.phase);
        match phase.copied().unwrap_or_default() {
            Phase::Ready => {}
            Phase::Failed => failed += 1,
            Phase::NotReady | Phase::Unknown => blocked += 1,
            _ if is_blocked => blocked += 1,
            Phase::Installing | Phase::Updating | Phase::Removing => changing += 1,
            Phase::Waiting | Phase::WaitingToRemove => waiting += 1,
        }
    }
    let counts =
        [(changing, "changing"), (waiting, "waiting"), (blocked, "blocked"), (failed, "failed")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    if counts.is_empty() {
        return parts.concat();
    }
    parts.push(counts.join(", "));
    let is_moot =
        |problem: &Problem| MAKES_PACE_MOOT.iter().any(|it| it.entry().code == problem.id);
    if !report.problems.iter().any(is_moot) {
        parts.extend(config.max_unavailable.map(|most| format!("at most {most} at once")));
    }
    parts.extend(left(report));
    parts.join("   ")
}

/// What makes it irrelevant how many nodes the KataConfig lets change at once.
const MAKES_PACE_MOOT: [Code; 4] =
    [Code::RolloutNotHonoured, Code::RolloutPaused, Code::RolloutStopped, Code::PoolPaused];
/// Columns of the bar in `status`.
const BAR: usize = 16;

/// A bar for `done` of `all`.
pub(crate) fn bar(done: i64, all: i64, columns: usize, style: &Style) -> String {
    let (done, all) = (usize::try_from(done).unwrap_or(0), usize::try_from(all).unwrap_or(0));
    let filled = (columns * done).checked_div(all).unwrap_or(0).min(columns);
    let (full, empty) = if style.unicode { ("━", "╌") } else { ("#", ".") };
    format!("{}{}", full.repeat(filled), empty.repeat(columns - filled))
}

/// `~14m left`, once a node is done from whose time this follows.
pub(crate) fn left(report: &StatusReport) -> Option<String> {
    let seconds = report.nodes.iter().filter_map(|node| node.eta_seconds).max()?;
    Some(format!("{} left", human::about(SignedDuration::from_secs(seconds))))
}

/// When the roll-out that is under way began.
fn began(config: &KataConfig) -> Option<Timestamp> {
    let status = config.status.as_ref()?;
    let reconciling = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == conditions::RECONCILING && condition.status == "True");
    reconciling.map(|condition| condition.last_transition_time.0)
}

/// The lower, the more attention a node needs.
fn rank(phase: Phase, held_up: bool) -> u8 {
    match phase {
        Phase::Failed => 0,
        _ if held_up && phase != Phase::Ready => 1,
        Phase::NotReady | Phase::Unknown => 2,
        Phase::Installing | Phase::Updating | Phase::Removing => 3,
        Phase::Waiting | Phase::WaitingToRemove => 4,
        Phase::Ready => 5,
    }
}
