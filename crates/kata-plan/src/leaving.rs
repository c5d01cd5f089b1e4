//! When a node leaves whose labels a selector of the KataConfig no longer matches. A program that labels nodes may take its
//! labels away for a moment, and a drain, a reboot or a Job would not be worth it. The KataNode has the time.
//!
//! Which labels select a node, and what happens when it leaves, is for the back ends.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::kata_config::KataConfigSpec;
use kata_api::kata_node::Phase;
use kata_api::node_task::NodeAction;
use kata_api::{Code, KataConfig, KataNode, KataNodeStatus, names};
use serde_json::json;

use crate::assessment::{Assessment, NodeAssessment};
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

/// The selectors of a KataConfig that selects nodes by them, with their fields.
fn selectors(spec: &KataConfigSpec) -> impl Iterator<Item = (Field<'_>, &LabelSelector)> {
    let of_runtimes = spec.runtimes.iter().filter_map(|runtime| {
        Some((Field::InstallOn(&runtime.name), runtime.install_on.as_ref()?))
    });
    let of_pool = spec.kata_config_pool_selector.iter().map(|it| (Field::PoolSelector, it));
    let of_provided = spec.provided_nodes.iter().map(|it| (Field::ProvidedNodes, it));
    of_pool.chain(of_provided).chain(of_runtimes)
}

/// A field with a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Field<'a> {
    PoolSelector,
    ProvidedNodes,
    /// Of the runtime with this name.
    InstallOn(&'a str),
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolSelector => f.write_str("spec.kataConfigPoolSelector"),
            Self::ProvidedNodes => f.write_str("spec.providedNodes"),
            Self::InstallOn(name) => write!(f, "spec.runtimes[{name}].installOn"),
        }
    }
}

fn is_unmatched(cluster: &Assessment, facts: &NodeFacts) -> bool {
    let mut all = selectors(&cluster.config.spec);
    all.any(|(_, selector)| selector::matches(selector, &facts.labels) == Ok(false))
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
    match status.phase {
        Phase::WaitingToRemove | Phase::Removing => true,
        // The removal was blocked, and the node was selected again.
        Phase::Ready => false,
        _ => last.is_some_and(|job| job.action == NodeAction::Remove),
    }
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

/// The digest of all selectors of a KataConfig, in any order of its runtimes.
pub(crate) fn selectors_digest(spec: &KataConfigSpec) -> String {
    let all: BTreeMap<String, &LabelSelector> =
        selectors(spec).map(|(field, selector)| (field.to_string(), selector)).collect();
    digest(&json!(all).to_string())
}

/// The findings about the labels by which the KataConfig selects nodes.
pub(crate) fn findings(cluster: &Assessment) -> impl Iterator<Item = Finding> {
    let found = (!cluster.deleting).then(|| [unmatched(cluster), labels_of_labellers(cluster)]);
    found.into_iter().flatten().flatten()
}

/// The finding that nodes keep what they have although their labels no longer match.
fn unmatched(cluster: &Assessment) -> Option<Finding> {
    let mut selectors: BTreeMap<Field<'_>, String> = BTreeMap::new();
    let mut nodes: Vec<&str> = Vec::new();
    let mut first: Option<Timestamp> = None;
    for node in &cluster.nodes {
        let Some(at) = node.leaves_at.filter(|at| *at > cluster.now) else { continue };
        first = Some(first.map_or(at, |first| first.min(at)));
        nodes.push(&node.facts.name);
        let unmatched = self::selectors(&cluster.config.spec).filter(|(field, selector)| {
            selector::matches(selector, &node.facts.labels) == Ok(false) && has(node, *field)
        });
        selectors.extend(unmatched.map(|(field, selector)| (field, selector::text(selector))));
    }
    let first = first?;
    let selectors: Vec<String> =
        selectors.iter().map(|(field, text)| format!("{field} ({text})")).collect();
    let (match_, keep) = if nodes.len() == 1 {
        ("no longer matches", "keeps what it has until")
    } else {
        ("no longer match", "keep what they have, the first of them until")
    };
    let message = format!(
        "{} {match_} {}, and {keep} {first}: {}",
        text::count(nodes.len(), "node"),
        text::list(&selectors, text::NAMES),
        text::list(&nodes, text::NAMES)
    );
    Some(Finding::new(Code::LabelsLost, config_ref(&cluster.config), message))
}

/// Whether a node has what the selector of a field is about.
fn has(node: &NodeAssessment, field: Field<'_>) -> bool {
    match field {
        Field::PoolSelector => true,
        Field::ProvidedNodes => node.provided,
        Field::InstallOn(name) => node.facts.labels.contains_key(&names::class_label(name)),
    }
}

/// The finding that nodes are selected by labels that a labeller sets, if nothing says that this is intended.
fn labels_of_labellers(cluster: &Assessment) -> Option<Finding> {
    let spec = &cluster.config.spec;
    let set = spec.rollout.as_ref().and_then(|rollout| rollout.leave_delay);
    let is_intended = spec.check_node_eligibility || set.is_some_and(|delay| delay.is_positive());
    // The others are not applied on OpenShift.
    let applies = |field: Field<'_>| {
        cluster.options.platform == Platform::Kubernetes || field == Field::PoolSelector
    };
    let (field, key) = selectors(spec)
        .filter(|(field, _)| applies(*field) && !is_intended)
        .find_map(|(field, selector)| {
            let key = selector::keys(selector).find(|key| selector::is_of_labeller(key))?;
            Some((field, key))
        })?;
    let loses = match field {
        Field::PoolSelector => "loses Kata".to_owned(),
        Field::ProvidedNodes => "no longer counts as provided".to_owned(),
        Field::InstallOn(name) => format!("loses the runtime {name}"),
    };
    let after = match delay(&cluster.config) {
        SignedDuration::ZERO => "at once".to_owned(),
        delay => format!("{} later", text::span(delay.unsigned_abs())),
    };
    let message = format!(
        "{field} selects nodes by {key}, which a labeller sets and may remove: a node that loses the label {loses} {after}"
    );
    Some(Finding::new(Code::LabelsSetByLabeller, config_ref(&cluster.config), message))
}
