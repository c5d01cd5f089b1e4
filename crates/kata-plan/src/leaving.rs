//! When a node leaves whose labels a selector of the KataConfig no longer matches. A program that labels nodes may take its
//! labels away for a moment, and a drain, a reboot or a Job would not be worth it. The KataNode has the time.
//!
//! Which labels select a node, and what happens when it leaves, is for the back ends.

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_config::KataConfigSpec;
use kata_api::kata_node::Phase;
use kata_api::node_task::NodeAction;
use kata_api::{Code, KataConfig, KataNode, KataNodeStatus};
use serde_json::json;

use crate::assessment::Assessment;
use crate::configs::config_ref;
use crate::ownership::is_owned_by;
use crate::report::Finding;
use crate::selector;
use crate::snapshot::{NodeFacts, Platform};
use crate::text::{self, digest};

/// `spec.rollout.leaveDelay` if it is not set.
const LEAVE_DELAY: SignedDuration = SignedDuration::from_mins(5);

/// What a node should have, and when it leaves. `select` says what the node should have: with `false` by its labels as they
/// are, with `true` if it keeps what it has. `is_same` compares two of them. `has_kata`: the node has Kata from the operator,
/// or is getting it. `previous` is its KataNode, if that can be read.
pub(crate) fn keep_or_leave<T>(
    cluster: &Assessment,
    facts: &NodeFacts,
    previous: Option<&KataNode>,
    has_kata: bool,
    select: impl Fn(bool) -> T,
    is_same: impl Fn(&T, &T) -> bool,
) -> (T, Option<Timestamp>) {
    let by_labels = select(false);
    // Another KataConfig selected what its KataNode says, and this one never did.
    let is_of_other = previous.is_some_and(|it| {
        !is_owned_by(it, &facts.uid)
            || Some(&it.spec.kata_config) != cluster.config.metadata.name.as_ref()
    });
    if !has_kata || is_of_other || cluster.deleting || !is_unmatched(cluster, facts) {
        return (by_labels, None);
    }
    let kept = select(true);
    if is_same(&kept, &by_labels) {
        return (by_labels, None);
    }
    let at = leaves_at(cluster, previous.and_then(|previous| previous.status.as_ref()));
    (if at > cluster.now { kept } else { by_labels }, Some(at))
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

fn leaves_at(cluster: &Assessment, written: Option<&KataNodeStatus>) -> Timestamp {
    let latest = cluster.now.saturating_add(delay(&cluster.config)).unwrap_or(Timestamp::MAX);
    if is_edited(&cluster.config) || written.is_some_and(is_leaving) {
        return written.and_then(|status| status.leaves_at).unwrap_or(latest).min(cluster.now);
    }
    written.and_then(|status| status.leaves_at).unwrap_or(latest).min(latest)
}

/// Whether the removal of Kata has begun. An earlier version of the operator wrote no time.
fn is_leaving(status: &KataNodeStatus) -> bool {
    let last = status.host.as_ref().and_then(|host| host.job.as_ref());
    matches!(status.phase, Phase::WaitingToRemove | Phase::Removing)
        || last.is_some_and(|job| job.action == NodeAction::Remove)
}

/// How long a node keeps what it has by labels that no longer match.
fn delay(config: &KataConfig) -> SignedDuration {
    let set = config.spec.rollout.as_ref().and_then(|rollout| rollout.leave_delay);
    set.unwrap_or(LEAVE_DELAY).max(SignedDuration::ZERO)
}

/// Whether a selector was edited since the last decision.
fn is_edited(config: &KataConfig) -> bool {
    let written = config.status.as_ref().and_then(|status| status.selectors_digest.as_ref());
    written.is_some_and(|written| *written != selectors_digest(&config.spec))
}

/// The digest of all selectors of a KataConfig.
pub(crate) fn selectors_digest(spec: &KataConfigSpec) -> String {
    let of_runtimes: Vec<_> = spec.runtimes.iter().map(|it| (&it.name, &it.install_on)).collect();
    digest(&json!([spec.kata_config_pool_selector, spec.provided_nodes, of_runtimes]).to_string())
}

/// The findings about the labels by which the KataConfig selects nodes.
pub(crate) fn findings(cluster: &Assessment) -> impl Iterator<Item = Finding> {
    let found = (!cluster.deleting).then(|| [unmatched(cluster), labels_of_programs(cluster)]);
    found.into_iter().flatten().flatten()
}

/// The finding that nodes keep what they have although their labels no longer match.
fn unmatched(cluster: &Assessment) -> Option<Finding> {
    let keeps = cluster
        .nodes
        .iter()
        .filter_map(|node| Some((node.leaves_at?, node.facts.name.as_str())))
        .filter(|(at, _)| *at > cluster.now);
    let (times, nodes): (Vec<Timestamp>, Vec<&str>) = keeps.unzip();
    let first = times.into_iter().min()?;
    let (match_, keep) = if nodes.len() == 1 {
        ("no longer matches", "keeps what it has until")
    } else {
        ("no longer match", "keep what they have, the first of them until")
    };
    let message = format!(
        "{} {match_} a selector of the KataConfig, and {keep} {first}: {}",
        text::count(nodes.len(), "node"),
        text::list(&nodes, text::NAMES)
    );
    Some(Finding::new(Code::LabelsLost, config_ref(&cluster.config), message))
}

/// The finding that nodes are selected by labels that a program sets, if nothing says that this is intended.
fn labels_of_programs(cluster: &Assessment) -> Option<Finding> {
    let spec = &cluster.config.spec;
    let is_intended = spec.check_node_eligibility
        || spec.rollout.as_ref().is_some_and(|rollout| rollout.leave_delay.is_some());
    let of_runtimes = spec.runtimes.iter().filter_map(|runtime| {
        let field = format!("spec.runtimes[{}].installOn", runtime.name);
        Some((field, runtime.install_on.as_ref()?))
    });
    let provided = spec.provided_nodes.iter().map(|it| ("spec.providedNodes".to_owned(), it));
    let all_apply = cluster.options.platform == Platform::Kubernetes;
    let of_pool = spec
        .kata_config_pool_selector
        .iter()
        .map(|it| ("spec.kataConfigPoolSelector".to_owned(), it));
    let (field, key) = of_pool
        .chain(provided.chain(of_runtimes).filter(|_| all_apply))
        .filter(|_| !is_intended)
        .find_map(|(field, selector)| {
            let key = selector::keys(selector).find(|key| selector::is_of_labeller(key))?;
            Some((field, key))
        })?;
    let message = format!(
        "{field} selects nodes by {key}, which a program sets: a node that loses the label loses Kata {} later",
        text::span(LEAVE_DELAY.unsigned_abs())
    );
    Some(Finding::new(Code::LabelsOfProgram, config_ref(&cluster.config), message))
}
