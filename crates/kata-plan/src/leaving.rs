//! When a node leaves whose labels a selector of the KataConfig no longer matches: a program that labels nodes may take its
//! labels away for a moment, and a drain, a reboot and a Job for that would be for nothing. The time stands in the KataNode.
//!
//! Which labels select a node, and what happens when it leaves, is for the back ends.

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::Phase;
use kata_api::{Code, KataConfig, KataNode};

use crate::assessment::Assessment;
use crate::configs::config_ref;
use crate::ownership::is_owned_by;
use crate::report::Finding;
use crate::selector;
use crate::snapshot::NodeFacts;
use crate::text;

/// `spec.rollout.leaveDelay` if it is not set.
const LEAVE_DELAY: SignedDuration = SignedDuration::from_mins(5);

/// What a node has by its labels as they are, or what it keeps until it leaves, and when it leaves. `chosen` gives both,
/// and takes whether the node keeps what it has; `is_same` compares them. `previous` is the KataNode of a node that has
/// Kata from the operator.
pub(crate) fn keep_or_leave<T>(
    cluster: &Assessment,
    facts: &NodeFacts,
    previous: Option<&KataNode>,
    chosen: impl Fn(bool) -> T,
    is_same: impl Fn(&T, &T) -> bool,
) -> (T, Option<Timestamp>) {
    let now = chosen(false);
    // What another KataConfig selected was never selected by this one.
    let is_selected = |it: &&KataNode| {
        is_owned_by(it, &facts.uid)
            && Some(&it.spec.kata_config) == cluster.config.metadata.name.as_ref()
    };
    let Some(previous) = previous.filter(is_selected) else { return (now, None) };
    if cluster.deleting || !is_unmatched(cluster, facts) {
        return (now, None);
    }
    let kept = chosen(true);
    if is_same(&kept, &now) {
        return (now, None);
    }
    let at = leaves_at(cluster, previous);
    (if at > cluster.now { kept } else { now }, Some(at))
}

fn is_unmatched(cluster: &Assessment, facts: &NodeFacts) -> bool {
    let spec = &cluster.config.spec;
    let of_runtimes = spec.runtimes.iter().filter_map(|runtime| runtime.install_on.as_ref());
    [&spec.kata_config_pool_selector, &spec.provided_nodes]
        .into_iter()
        .flatten()
        .chain(of_runtimes)
        .any(|selector| selector::matches(selector, &facts.labels) == Ok(false))
}

fn leaves_at(cluster: &Assessment, previous: &KataNode) -> Timestamp {
    let status = previous.status.as_ref();
    let latest = cluster.now.saturating_add(delay(&cluster.config)).unwrap_or(Timestamp::MAX);
    if let Some(at) = status.and_then(|status| status.leaves_at) {
        return at.min(latest);
    }
    // An earlier version of the operator wrote no time.
    let is_leaving = status
        .is_some_and(|status| matches!(status.phase, Phase::WaitingToRemove | Phase::Removing));
    if is_leaving || is_edited(&cluster.config) { cluster.now } else { latest }
}

/// How long a node keeps what it has by labels that no longer match.
fn delay(config: &KataConfig) -> SignedDuration {
    let set = config.spec.rollout.as_ref().and_then(|rollout| rollout.leave_delay);
    set.unwrap_or(LEAVE_DELAY).max(SignedDuration::ZERO)
}

/// Whether the spec was edited since the last decision. Labels that go in the same moment as any field of the spec is edited
/// count as an edit of the selector.
fn is_edited(config: &KataConfig) -> bool {
    let observed = config.status.as_ref().and_then(|status| status.observed_generation);
    observed != config.metadata.generation
}

/// The findings about the labels by which the KataConfig selects nodes.
pub(crate) fn findings(cluster: &Assessment) -> impl Iterator<Item = Finding> {
    let found = (!cluster.deleting).then(|| [lost(cluster), labels_of_programs(&cluster.config)]);
    found.into_iter().flatten().flatten()
}

/// The finding that nodes keep what they have although their labels no longer match.
fn lost(cluster: &Assessment) -> Option<Finding> {
    let keeps = cluster
        .nodes
        .iter()
        .filter_map(|node| Some((node.leaves_at?, node.facts.name.as_str())))
        .filter(|(at, _)| *at > cluster.now);
    let (times, nodes): (Vec<Timestamp>, Vec<&str>) = keeps.unzip();
    let first = times.into_iter().min()?;
    let (no_longer, keep) = if nodes.len() == 1 {
        ("no longer has", "keeps its runtimes until")
    } else {
        ("no longer have", "keep their runtimes, the first of them until")
    };
    let message = format!(
        "{} {no_longer} the labels by which the KataConfig selects nodes, and {keep} {first}: {}",
        text::count(nodes.len(), "node"),
        text::list(&nodes, text::NAMES)
    );
    Some(Finding::new(Code::LabelsLost, config_ref(&cluster.config), message))
}

/// The finding that the nodes are selected by labels that a program sets, if nothing says that this is intended.
fn labels_of_programs(config: &KataConfig) -> Option<Finding> {
    let spec = &config.spec;
    let is_intended = spec.check_node_eligibility
        || spec.rollout.as_ref().is_some_and(|rollout| rollout.leave_delay.is_some());
    let of_runtimes = spec.runtimes.iter().filter_map(|it| {
        Some((format!("spec.runtimes[{}].installOn", it.name), it.install_on.as_ref()?))
    });
    let selectors = [
        ("spec.kataConfigPoolSelector", &spec.kata_config_pool_selector),
        ("spec.providedNodes", &spec.provided_nodes),
    ];
    let (field, key) = selectors
        .into_iter()
        .filter_map(|(field, selector)| Some((field.to_owned(), selector.as_ref()?)))
        .chain(of_runtimes)
        .filter(|_| !is_intended)
        .find_map(|(field, selector)| {
            let key = selector::keys(selector).find(|key| selector::is_of_labeller(key))?;
            Some((field, key))
        })?;
    let message = format!(
        "{field} selects nodes by {key}, which a program sets: a node that loses the label loses Kata {} later",
        text::span(LEAVE_DELAY.unsigned_abs())
    );
    Some(Finding::new(Code::LabelsOfProgram, config_ref(config), message))
}
