//! The drain controller: cordons, drains and uncordons nodes as their daemons ask.
//!
//! Pods leave through the eviction subresource, so disruption budgets hold.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Timing;
use super::names::{DESIRED_DRAIN, LAST_APPLIED_DRAIN};
use super::pool::{annotation, name};
use crate::api::server::{DeleteOptions, WriteOptions, WriteRequest, WriteVerb};
use crate::api::{Event, EventKind};
use crate::node::{PodIndex, PodKey};
use crate::recorder::note;
use crate::resource::{NODES, PODS};
use crate::world::NodeFault;
use crate::{Context, Controller};

/// How long one attempt to drain lasts.
const ATTEMPT: Duration = Duration::from_secs(90);
/// How often an attempt tries to evict the pods that are left.
const EVICTION_RETRY: Duration = Duration::from_secs(5);
/// The pause between attempts, at first.
const RETRY: Duration = Duration::from_secs(60);
/// The pause between attempts of a drain that has failed for [`SLOW_AFTER`].
const SLOW_RETRY: Duration = Duration::from_secs(300);
/// See [`SLOW_RETRY`].
const SLOW_AFTER: Duration = Duration::from_secs(600);

/// A drain that is under way.
#[derive(Debug)]
struct Drain {
    request: String,
    /// When attempts become rarer.
    slow_from: Timestamp,
    /// When the current attempt has failed; `None` between attempts.
    attempt_ends: Option<Timestamp>,
    failures: u32,
}

/// The drain controller.
#[derive(Debug)]
pub(super) struct DrainController {
    timing: Timing,
    drains: BTreeMap<String, Drain>,
    pods: PodIndex,
}

impl DrainController {
    pub(super) fn new(timing: Timing) -> Self {
        Self { timing, drains: BTreeMap::new(), pods: PodIndex::default() }
    }

    fn drain(&mut self, node: &Value, request: &str, cx: &mut Context<'_>) {
        let key = name(node);
        if node["spec"]["unschedulable"] != true {
            patch(key, &json!({"spec": {"unschedulable": true}}), cx);
        }
        let slow_from = cx.deadline(SLOW_AFTER);
        let ends = cx.deadline(ATTEMPT);
        let drain = self.drains.entry(key.to_owned()).or_insert_with(|| Drain {
            request: request.to_owned(),
            slow_from,
            attempt_ends: None,
            failures: 0,
        });
        if drain.request != request {
            *drain =
                Drain { request: request.to_owned(), slow_from, attempt_ends: None, failures: 0 };
        }
        let ends = *drain.attempt_ends.get_or_insert(ends);
        let blocked =
            cx.world.hosts.get(key).is_some_and(|host| host.faults.contains(&NodeFault::FailDrain));
        if evict_all(&self.pods.on(key), cx) == 0 && !blocked {
            self.drains.remove(key);
            done(key, request, cx);
            return;
        }
        if cx.now < ends {
            cx.after(key, EVICTION_RETRY);
            return;
        }
        drain.attempt_ends = None;
        drain.failures += 1;
        let pause = match drain.failures {
            // The cordon of the first attempt has queued the node again.
            1 => Duration::ZERO,
            _ if cx.now >= drain.slow_from => SLOW_RETRY,
            _ => RETRY,
        };
        cx.after(key, pause);
    }
}

impl Controller for DrainController {
    fn name(&self) -> &'static str {
        "machine-config-controller-drain"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        self.pods.observe(event);
        if event.resource != NODES {
            return;
        }
        let pending = annotation(&event.current, DESIRED_DRAIN)
            != annotation(&event.current, LAST_APPLIED_DRAIN);
        match event.kind {
            EventKind::Added => cx.after(&event.name, self.timing.drain_delay),
            EventKind::Modified if pending => cx.after(&event.name, self.timing.drain_delay),
            EventKind::Modified => {}
            EventKind::Deleted => {
                self.drains.remove(&event.name);
                cx.cancel(&event.name);
            }
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let Some(node) = cx.api.get(&NODES, "", key) else { return };
        let request = annotation(&node, DESIRED_DRAIN);
        if request.is_empty() || request == annotation(&node, LAST_APPLIED_DRAIN) {
            self.drains.remove(key);
            return;
        }
        if request.starts_with("drain-") {
            self.drain(&node, request, cx);
            return;
        }
        self.drains.remove(key);
        let stuck = cx
            .world
            .hosts
            .get(key)
            .is_some_and(|host| host.faults.contains(&NodeFault::FailUncordon));
        if stuck {
            cx.after(key, RETRY);
            return;
        }
        if node["spec"]["unschedulable"] == true {
            patch(key, &json!({"spec": {"unschedulable": null}}), cx);
        }
        done(key, request, cx);
    }
}

fn done(node: &str, request: &str, cx: &mut Context<'_>) {
    patch(node, &json!({"metadata": {"annotations": {(LAST_APPLIED_DRAIN): request}}}), cx);
}

fn patch(node: &str, patch: &Value, cx: &mut Context<'_>) {
    let writer = cx.writer();
    note("patch a node", cx.api.merge(writer, &NODES, "", node, patch));
}

/// Evicts the pods of a node; how many are still there.
fn evict_all(bound: &[PodKey], cx: &mut Context<'_>) -> usize {
    let mut pods: Vec<_> =
        bound.iter().filter_map(|(namespace, name)| cx.api.get(&PODS, namespace, name)).collect();
    pods.retain(|pod| leaves(pod));
    for pod in &pods {
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if finished {
            let writer = cx.writer();
            let options = DeleteOptions::default();
            note(
                "delete a finished pod",
                cx.api.delete(writer, &PODS, namespace, name(pod), &options),
            );
        } else {
            evict(namespace, name(pod), cx);
        }
    }
    pods.iter()
        .filter(|pod| {
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
            cx.api.get(&PODS, namespace, name(pod)).is_some()
        })
        .count()
}

/// Whether a drain removes the pod: not those of DaemonSets, nor those that the kubelet owns.
fn leaves(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let of_daemon_set =
        owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "DaemonSet"));
    !of_daemon_set && annotation(pod, "kubernetes.io/config.mirror").is_empty()
}

fn evict(namespace: &str, pod: &str, cx: &mut Context<'_>) {
    let request = WriteRequest {
        user: None,
        verb: WriteVerb::Create,
        resource: PODS,
        namespace: namespace.to_owned(),
        name: pod.to_owned(),
        subresource: "eviction".to_owned(),
        body: json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }),
        options: WriteOptions {
            field_manager: cx.writer().manager.to_owned(),
            ..WriteOptions::default()
        },
    };
    note("evict a pod", cx.api.write(cx.now, &request));
}
