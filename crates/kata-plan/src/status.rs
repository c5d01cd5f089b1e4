//! The status of each KataConfig: counts, lists and conditions.
//!
//! Conditions keep their `lastTransitionTime` while their status stays, so that an idle pass yields the
//! very status that is there, and nothing is written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kata_api::conditions::{self, in_progress, reasons};
use kata_api::kata_config::{KataNodes, LIST_CAP};
use kata_api::kata_node::Phase;
use kata_api::{Code, KataConfig, KataConfigStatus};
use serde_json::{Map, Value, json};

use crate::bodies;
use crate::plan::Step;
use crate::report::{Report, StatusReport, StepFailure};
use crate::selection;
use crate::snapshot::Snapshot;
use crate::steps::Steps;
use crate::view::{NodeView, View};

mod condition;
mod standing;

use condition::{Wanted, conditions, degraded, deletion_blocked, fix, in_progress, ready, sort};
use standing::{has_failed, standing, worst};

/// How many nodes a message names.
const NAMES: usize = 5;

/// The status of the active KataConfig.
pub(crate) fn active(
    view: &View<'_>,
    steps: &Steps,
    report: &Report,
    planned: &[Step],
    failures: &[StepFailure],
) -> StatusReport {
    let config = view.config;
    let previous = config.status.as_ref();
    let standing = standing(view, steps, report, planned);
    let failed = failures.iter().any(|failure| !failure.undone && !failure.object.kind.is_beside());
    let acted_on = previous.and_then(|status| status.observed_generation);
    let generation = if failed { acted_on } else { config.metadata.generation };
    let mut wanted = vec![in_progress(view, steps, &standing), ready(view, &standing, report)];
    if failed && acted_on != config.metadata.generation {
        let message = worst(report).map(|finding| finding.message.clone()).unwrap_or_default();
        wanted.pop();
        wanted.push(Wanted::new(
            conditions::READY,
            "False",
            Code::WriteFailed.entry().reason,
            format!("the latest change is not carried out: {message}"),
        ));
    }
    match standing.stalled_by {
        Some(finding) => wanted.push(Wanted::new(
            conditions::STALLED,
            "True",
            finding.code.entry().reason,
            format!("{}: {} {}", finding.code, finding.message, fix(finding)),
        )),
        None if standing.pending => wanted.push(Wanted::new(
            conditions::RECONCILING,
            "True",
            if view.deleting { in_progress::UNINSTALLING } else { reasons::ROLLING_OUT },
            standing.summary.clone(),
        )),
        None => {}
    }
    wanted.push(degraded(report, |finding| has_failed(view, finding)));
    if view.deleting {
        wanted.push(deletion_blocked(report));
    }
    let status = KataConfigStatus {
        observed_generation: generation,
        runtime_classes: existing_classes(view),
        kata_nodes: kata_nodes(view),
        conditions: conditions(view.now, previous, generation, wanted),
        waiting_for_mco_to_start: false,
    };
    status_report(config, status)
}

/// The status of the active KataConfig when too little could be read to say anything: all stays as it
/// was, besides that it is not known any more whether it is so.
pub(crate) fn unreadable(
    snapshot: &Snapshot,
    config: &KataConfig,
    report: &Report,
) -> StatusReport {
    let mut status = config.status.clone().unwrap_or_default();
    let Some(finding) = worst(report) else { return status_report(config, status) };
    let value = if finding.code == Code::ReadFailed { "Unknown" } else { "False" };
    let wanted = vec![
        Wanted::new(conditions::READY, value, finding.code.entry().reason, finding.message.clone()),
        degraded(report, |_| false),
    ];
    let kept: Vec<Condition> = status
        .conditions
        .iter()
        .filter(|condition| wanted.iter().all(|wanted| wanted.type_ != condition.type_))
        .cloned()
        .collect();
    let generation = status.observed_generation;
    let mut all = conditions(
        crate::view::to_the_second(snapshot.now),
        config.status.as_ref(),
        generation,
        wanted,
    );
    all.retain(|condition| kept.iter().all(|kept| kept.type_ != condition.type_));
    all.extend(kept);
    sort(&mut all);
    status.conditions = all;
    status_report(config, status)
}

/// The status of a KataConfig that is not active.
pub(crate) fn not_active(
    snapshot: &Snapshot,
    config: &KataConfig,
    active: Option<&KataConfig>,
) -> StatusReport {
    let name = active.and_then(|active| active.metadata.name.as_deref()).unwrap_or_default();
    let reason = Code::NotActive.entry().reason;
    let code = Code::NotActive;
    let message = format!(
        "{code}: KataConfig {name} is older, and only the oldest is active (delete this one, or {name})"
    );
    let generation = config.metadata.generation;
    let wanted = vec![
        Wanted::new(conditions::IN_PROGRESS, "False", reason, message.clone()),
        Wanted::new(conditions::READY, "False", reason, message.clone()),
        Wanted::new(conditions::STALLED, "True", reason, message),
    ];
    let status = KataConfigStatus {
        observed_generation: generation,
        conditions: conditions(
            crate::view::to_the_second(snapshot.now),
            config.status.as_ref(),
            generation,
            wanted,
        ),
        ..KataConfigStatus::default()
    };
    status_report(config, status)
}

/// Whether a node can run sandboxed pods and pods can get there.
fn is_ready(node: &NodeView<'_>) -> bool {
    node.phase == Phase::Ready && node.verified
}

/// The RuntimeClasses that exist and are ours.
fn existing_classes(view: &View<'_>) -> Vec<String> {
    let mut names: Vec<String> = view
        .snapshot
        .runtime_classes
        .known()
        .into_iter()
        .flatten()
        .filter(|class| bodies::is_our_class(class) && class.metadata.deletion_timestamp.is_none())
        .filter_map(|class| class.metadata.name.clone())
        .collect();
    names.sort();
    names
}

fn kata_nodes(view: &View<'_>) -> KataNodes {
    let mut truncated = false;
    let mut names = |keep: &dyn Fn(&NodeView<'_>) -> bool| {
        let mut names: Vec<String> = view
            .nodes
            .iter()
            .filter(|node| keep(node))
            .map(|node| node.facts.name.clone())
            .collect();
        truncated |= names.len() > LIST_CAP;
        names.truncate(LIST_CAP);
        names
    };
    let mut lists = KataNodes {
        installed: names(&is_ready),
        installing: names(&|node| {
            node.phase == Phase::Installing
                || (node.phase == Phase::Ready && !node.verified)
                // Somebody else's change of the node is none of Kata.
                || node.is_being_updated()
        }),
        waiting_to_install: names(&|node| node.phase == Phase::Waiting),
        failed_to_install: names(&|node| node.wanted && node.phase == Phase::Failed),
        uninstalling: names(&|node| node.phase == Phase::Removing),
        waiting_to_uninstall: names(&|node| node.phase == Phase::WaitingToRemove),
        failed_to_uninstall: names(&|node| !node.wanted && node.phase == Phase::Failed),
        ..KataNodes::default()
    };
    lists.truncated = truncated;
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    lists.node_count = count(view.selected);
    lists.ready_node_count = count(view.nodes.iter().filter(|node| is_ready(node)).count());
    lists
}

fn status_report(config: &KataConfig, status: KataConfigStatus) -> StatusReport {
    let patch = (config.status.as_ref() != Some(&status)).then(|| {
        let old = config.status.as_ref().map_or(Value::Null, |status| json!(status));
        let mut new = json!(status);
        null_absent(&mut new, &old);
        json!({"status": new})
    });
    StatusReport { config: selection::config_ref(config), status, patch }
}

/// In a merge patch a field that is to go is null.
fn null_absent(new: &mut Value, old: &Value) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else { return };
    let missing: Map<String, Value> = old
        .keys()
        .filter(|key| !new.contains_key(*key))
        .map(|key| (key.clone(), Value::Null))
        .collect();
    for (key, value) in new.iter_mut() {
        if let Some(old) = old.get(key) {
            null_absent(value, old);
        }
    }
    new.extend(missing);
}
