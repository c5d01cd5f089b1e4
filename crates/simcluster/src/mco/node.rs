//! The node controller: it tells nodes which configuration to run, a few at a time, and counts.
//!
//! It never touches a host, and it reacts to the daemons only through the nodes' annotations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::names::{
    CURRENT_CONFIG, DESIRED_CONFIG, FIRST_PIVOT_CONFIG, POOL_LABELS_APPLIED, REASON, STATE,
    TOPOLOGY, UPDATE_TAINT,
};
use super::pool::{Membership, annotation, concerned, governs, membership, name, selects};
use super::status::{candidates, compute, condition, max_unavailable, target};
use super::{Timing, event};
use crate::api::{Event, EventKind};
use crate::recorder::note;
use crate::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES};
use crate::{Context, Controller};

/// The node controller.
#[derive(Debug)]
pub(super) struct NodeController {
    timing: Timing,
    /// The failures that daemons have on record, as seen last.
    failures: BTreeMap<String, String>,
}

impl NodeController {
    pub(super) fn new(timing: Timing) -> Self {
        Self { timing, failures: BTreeMap::new() }
    }

    fn observe_pool(&self, event: &Event, cx: &mut Context<'_>) {
        match event.kind {
            EventKind::Deleted => {
                cx.cancel(&event.name);
                // The deletion itself moves nothing; the nodes' records are rewritten for their new
                // pools, and that is what those pools notice.
                let pools = cx.api.list(&MACHINECONFIGPOOLS);
                let selector = &event.current["spec"]["nodeSelector"];
                let affected: BTreeSet<String> = cx
                    .api
                    .list(&NODES)
                    .iter()
                    .filter(|node| selects(selector, node))
                    .flat_map(|node| concerned(&pools, node))
                    .collect();
                for pool in affected {
                    cx.after(pool, self.timing.node_delay);
                }
            }
            EventKind::Added => cx.after(&event.name, self.timing.node_delay),
            EventKind::Modified => {
                let before = event.previous.as_deref().map(target).unwrap_or_default();
                if before.is_empty() && !target(&event.current).is_empty() {
                    // A sync of a pool that is not rendered yet only waits for one more delay.
                    cx.reschedule(&event.name, self.timing.node_delay);
                } else {
                    cx.after(&event.name, self.timing.node_delay);
                }
            }
        }
    }

    fn observe_node(&self, event: &Event, cx: &mut Context<'_>) {
        let before = event.previous.as_deref();
        if event.kind == EventKind::Modified
            && !before.is_some_and(|before| is_news(before, &event.current))
        {
            return;
        }
        let pools = cx.api.list(&MACHINECONFIGPOOLS);
        let now = concerned(&pools, &event.current);
        if let Membership::Conflict(_) = membership(&pools, &event.current) {
            return;
        }
        // While several custom pools claimed it, the node was in none of them for this controller,
        // but each of them may still show it in its counts.
        let previously: Vec<String> = before
            .map(|before| {
                pools
                    .iter()
                    .filter(|pool| selects(&pool["spec"]["nodeSelector"], before))
                    .map(|pool| name(pool).to_owned())
                    .collect()
            })
            .unwrap_or_default();
        let labels_changed =
            before.is_some_and(|b| b["metadata"]["labels"] != event.current["metadata"]["labels"]);
        let left = if labels_changed { previously } else { Vec::new() };
        for pool in left.into_iter().chain(now) {
            cx.after(pool, self.timing.node_delay);
        }
    }
}

impl Controller for NodeController {
    fn name(&self) -> &'static str {
        "machine-config-controller-node"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == MACHINECONFIGPOOLS {
            self.observe_pool(event, cx);
        } else if event.resource == NODES {
            self.observe_node(event, cx);
        }
    }

    fn host_changed(&mut self, host: &str, cx: &mut Context<'_>) {
        let failure = cx.world.hosts.get(host).and_then(|host| host.daemon_failure.clone());
        if self.failures.get(host) == failure.as_ref() {
            return;
        }
        match failure {
            Some(failure) => self.failures.insert(host.to_owned(), failure),
            None => self.failures.remove(host),
        };
        if let Some(node) = cx.api.get(&NODES, "", host) {
            for pool in concerned(&cx.api.list(&MACHINECONFIGPOOLS), &node) {
                cx.after(pool, self.timing.node_delay);
            }
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        if let Some(pool) = cx.api.get(&MACHINECONFIGPOOLS, "", key) {
            sync(&pool, cx);
        }
    }
}

/// Whether a change of a node matters to its pool.
fn is_news(before: &Value, after: &Value) -> bool {
    let readiness = |node: &Value| {
        ["Ready", "DiskPressure", "NetworkUnavailable"]
            .map(|kind| condition(node, kind).map(|c| (c["status"].clone(), c["reason"].clone())))
    };
    !annotation(after, CURRENT_CONFIG).is_empty()
        && (before["metadata"]["labels"] != after["metadata"]["labels"]
            || before["spec"]["taints"] != after["spec"]["taints"]
            || (before["spec"]["unschedulable"] == true)
                != (after["spec"]["unschedulable"] == true)
            || [CURRENT_CONFIG, DESIRED_CONFIG, STATE, REASON]
                .iter()
                .any(|key| annotation(before, key) != annotation(after, key))
            || readiness(before) != readiness(after))
}

fn members(pool: &str, cx: &Context<'_>) -> Vec<Arc<Value>> {
    let pools = cx.api.list(&MACHINECONFIGPOOLS);
    let mut nodes = cx.api.list(&NODES);
    nodes.retain(|node| governs(&pools, pool, node));
    nodes
}

fn sync(pool: &Value, cx: &mut Context<'_>) {
    if target(pool).is_empty() {
        return;
    }
    let mut nodes = members(name(pool), cx);
    if pool["metadata"]["deletionTimestamp"].is_null() && pool["spec"]["paused"] != true {
        for node in &nodes {
            mark(pool, node, cx);
        }
        if let Some(limit) = max_unavailable(pool, nodes.len()) {
            let chosen: Vec<_> = candidates(pool, &nodes, limit).into_iter().cloned().collect();
            if retarget(pool, &chosen, cx) {
                nodes = members(name(pool), cx);
            }
        }
    }
    // Computed from what the sync began with: a node that was just told to change still counts as
    // available until the next sync.
    let status =
        compute(pool, &nodes, |node| cx.world.hosts.get(node)?.daemon_failure.as_deref(), cx.now);
    let before = pool["status"]["configuration"]["name"].as_str().unwrap_or_default();
    let after = status["configuration"]["name"].as_str().unwrap_or_default();
    let completed = (before != after)
        .then(|| format!("Pool {} has completed update to MachineConfig {after}", name(pool)));
    let mut new = pool.clone();
    new["status"] = status;
    let writer = cx.writer();
    let written =
        note("write the pool's status", cx.api.update_status(writer, &MACHINECONFIGPOOLS, "", new));
    if let (Some(message), Some(_)) = (completed, written) {
        event::record(cx, event::NODE_CONTROLLER, pool, false, "Completed", &message);
    }
}

/// Marks nodes that wait for their update with a taint, and takes it from the others.
fn mark(pool: &Value, node: &Value, cx: &mut Context<'_>) {
    let known = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    let tainted = known.iter().any(|taint| taint["key"] == UPDATE_TAINT);
    let waiting = annotation(node, DESIRED_CONFIG) != target(pool);
    if waiting == tainted && !annotation(node, TOPOLOGY).is_empty() {
        return;
    }
    let mut patch = json!({});
    if waiting && !tainted {
        let mut taints = known.to_vec();
        taints.push(json!({"key": UPDATE_TAINT, "effect": "PreferNoSchedule"}));
        patch["spec"]["taints"] = json!(taints);
    } else if tainted && !waiting {
        let mut taints = known.to_vec();
        taints.retain(|taint| taint["key"] != UPDATE_TAINT);
        patch["spec"]["taints"] = if taints.is_empty() { Value::Null } else { json!(taints) };
    }
    if annotation(node, TOPOLOGY).is_empty() {
        patch["metadata"]["annotations"][TOPOLOGY] = json!("HighlyAvailable");
    }
    let writer = cx.writer();
    note("mark a node", cx.api.merge(writer, &NODES, "", name(node), &patch));
}

/// Tells nodes to run the pool's configuration; whether a node's labels changed instead.
fn retarget(pool: &Value, nodes: &[Arc<Value>], cx: &mut Context<'_>) -> bool {
    let mut relabelled = false;
    let mut told = Vec::new();
    for node in nodes {
        let mut patch = first_pool_labels(node, cx);
        if patch.is_null() {
            patch = json!({"metadata": {"annotations": {(DESIRED_CONFIG): target(pool)}}});
            told.push(name(node));
        } else {
            relabelled = true;
        }
        let writer = cx.writer();
        note("retarget a node", cx.api.merge(writer, &NODES, "", name(node), &patch));
    }
    let message = match told.as_slice() {
        [] => return relabelled,
        [node] => format!("Targeted node {node} to MachineConfig: {}", target(pool)),
        many => format!("Set target for {} nodes to MachineConfig: {}", many.len(), target(pool)),
    };
    event::record(cx, event::NODE_CONTROLLER, pool, false, "SetDesiredConfig", &message);
    relabelled
}

/// What a node that first booted into a custom pool gets once: that pool's labels.
fn first_pool_labels(node: &Value, cx: &Context<'_>) -> Value {
    let applied = node["metadata"]["annotations"].get(POOL_LABELS_APPLIED).is_some();
    let first = annotation(node, FIRST_PIVOT_CONFIG);
    if applied || first.is_empty() {
        return Value::Null;
    }
    let owner = cx
        .api
        .get(&MACHINECONFIGS, "", first)
        .and_then(|mc| mc["metadata"]["ownerReferences"][0]["name"].as_str().map(str::to_owned));
    let pool = owner
        .filter(|owner| owner != "master" && owner != "worker")
        .and_then(|owner| cx.api.get(&MACHINECONFIGPOOLS, "", &owner));
    match pool {
        Some(pool) => json!({"metadata": {
            "labels": pool["spec"]["nodeSelector"]["matchLabels"],
            "annotations": {(POOL_LABELS_APPLIED): ""},
        }}),
        None => Value::Null,
    }
}
