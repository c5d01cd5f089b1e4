//! The nodes of a roll-out in the order in which they need attention, with how long they will take.

use jiff::Timestamp;
use kata_api::kata_node::Phase;
use kata_api::{Code, KataConfig, KataNode, conditions};

use crate::document::{NodeProgress, Problem};
use crate::estimate;

/// What is said of a node that waits, if nothing else is known.
const TURN: &str = "waits for its turn";
/// What keeps every node waiting, whose turn does not come before that is over.
const STOPS_ALL: [Code; 3] = [Code::RolloutPaused, Code::PoolPaused, Code::PodsStillRunning];

/// Names what stops all nodes where nothing is said of one that waits.
pub(crate) fn name_what_stops_all(nodes: &mut [NodeProgress], problems: &[Problem]) {
    let stop = STOPS_ALL.iter().map(|code| code.entry()).find_map(|entry| {
        let told = problems.iter().any(|problem| problem.id == entry.code);
        told.then(|| format!("held up by {} {}", entry.code, entry.reason))
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
    sorted.sort_by_key(|(node, phase)| {
        let status = node.status.as_ref();
        let held_up = status.is_some_and(|status| status.code.is_some());
        let step = status.map(|status| status.step.clone()).unwrap_or_default();
        // Of those that are being changed, the one that is furthest is done first.
        (rank(*phase, held_up), std::cmp::Reverse(step), node.spec.node_name.clone())
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
                ready: status.ready,
                code: status.code,
                message,
            }
        })
        .collect()
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
