//! The scheduler: it binds each pod to the node that fits and is least allocated, or says why none
//! does, and deletes pods of lower priority if that helps. PodDisruptionBudgets are not considered.
//!
//! It looks again only when a change could help; idle, it does nothing.

pub(crate) mod fit;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::api::server::DeleteOptions;
use crate::api::{Event, EventKind};
use crate::node::request::{Request, request};
use crate::node::{PodKey, pod};
use crate::recorder::{Occurrence, note, record, set_condition};
use crate::resource::{NODES, PODS};
use crate::simulation::{Context, Controller};
use fit::{NodeState, Unfit, Wish};

/// From a pod's creation to its binding.
const DELAY: Duration = Duration::from_millis(20);
/// How long pods that did not fit wait for more changes before the next attempt.
const RETRY: Duration = Duration::from_secs(1);

/// The scheduler.
#[derive(Debug, Default)]
pub struct Scheduler {
    nodes: BTreeMap<String, NodeState>,
    bound: BTreeMap<PodKey, (String, Request)>,
    waiting: BTreeMap<PodKey, bool>,
}

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        "default-scheduler"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        let frees = if event.resource == NODES {
            self.observe_node(event)
        } else if event.resource == PODS {
            self.observe_pod(event)
        } else {
            return;
        };
        if frees {
            for tried in self.waiting.values_mut() {
                *tried = false;
            }
            if !self.waiting.is_empty() {
                cx.after("retry", RETRY);
            }
        } else if event.resource == PODS
            && self.waiting.get(&(event.namespace.clone(), event.name.clone())) == Some(&false)
        {
            cx.after("schedule", DELAY);
        }
    }

    fn act(&mut self, _key: &str, cx: &mut Context<'_>) {
        let next = self.waiting.iter().filter(|(_, tried)| !**tried);
        let mut next: Vec<_> = next
            .filter_map(|(key, _)| Some((key.clone(), cx.api.get(&PODS, &key.0, &key.1)?)))
            .collect();
        next.sort_by_key(|(_, pod)| std::cmp::Reverse(priority(pod)));
        for (key, pod) in next {
            self.schedule(&key, &pod, cx);
        }
    }
}

impl Scheduler {
    /// Takes a change of a node in; tells whether pods may fit now that did not before.
    fn observe_node(&mut self, event: &Event) -> bool {
        if event.kind == EventKind::Deleted {
            self.nodes.remove(&event.name);
            return false;
        }
        let Some(old) = self.nodes.get_mut(&event.name) else {
            let mut state = NodeState::of(&event.current);
            // Pods can be bound before their node is seen.
            for (_, request) in self.bound.values().filter(|(node, _)| *node == event.name) {
                state.used.add(request);
            }
            self.nodes.insert(event.name.clone(), state);
            return true;
        };
        let mut new = NodeState::of(&event.current);
        new.used = old.used;
        let changed = new != *old;
        *old = new;
        changed
    }

    fn observe_pod(&mut self, event: &Event) -> bool {
        let key = (event.namespace.clone(), event.name.clone());
        let pod = &event.current;
        let gone = event.kind == EventKind::Deleted || pod::is_finished(pod);
        let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
        if gone || node.is_some() || pod::is_deleting(pod) || !ours(pod) {
            self.waiting.remove(&key);
        } else {
            self.waiting.entry(key.clone()).or_insert(false);
        }
        match node {
            Some(node) if !gone => {
                self.assume(key, node, request(pod));
                false
            }
            _ => match self.bound.remove(&key) {
                Some((node, request)) => {
                    if let Some(state) = self.nodes.get_mut(&node) {
                        state.used.remove(&request);
                    }
                    true
                }
                None => false,
            },
        }
    }

    fn assume(&mut self, key: PodKey, node: &str, request: Request) {
        if self.bound.get(&key).is_some_and(|(bound, old)| bound == node && *old == request) {
            return;
        }
        if let Some((old, request)) = self.bound.remove(&key)
            && let Some(state) = self.nodes.get_mut(&old)
        {
            state.used.remove(&request);
        }
        if let Some(state) = self.nodes.get_mut(node) {
            state.used.add(&request);
        }
        self.bound.insert(key, (node.to_owned(), request));
    }

    /// The pods to delete so that this one fits: on the node where they are fewest, the lowest priority first.
    /// While some are on their way out, no more.
    fn victims(&self, pod: &Value, wish: &Wish<'_>, cx: &Context<'_>) -> Vec<PodKey> {
        let mut best: Vec<PodKey> = Vec::new();
        if never_preempts(pod) {
            return best;
        }
        for (name, state) in self.nodes.iter().filter(|(name, it)| wish.would_fit(name, it)) {
            let mut lower = Vec::new();
            for (key, (_, request)) in self.bound.iter().filter(|(_, (node, _))| node == name) {
                let Some(other) = cx.api.get(&PODS, &key.0, &key.1) else { continue };
                if priority(&other) < priority(pod) {
                    if pod::is_deleting(&other) {
                        return Vec::new();
                    }
                    lower.push((priority(&other), key, request));
                }
            }
            lower.sort_unstable_by_key(|(priority, key, _)| (*priority, *key));
            let mut left = state.clone();
            let mut gone = Vec::new();
            for (_, key, request) in lower {
                if wish.fits(name, &left) {
                    break;
                }
                left.used.remove(request);
                gone.push(key.clone());
            }
            if wish.fits(name, &left) && (best.is_empty() || gone.len() < best.len()) {
                best = gone;
            }
        }
        best
    }

    fn schedule(&mut self, key: &PodKey, pod: &Value, cx: &mut Context<'_>) {
        let wish = Wish::of(pod);
        match wish.choose(&self.nodes) {
            Ok(node) => {
                let node = node.to_owned();
                if note("binding", cx.api.bind(cx.writer(), &key.0, &key.1, &node)).is_none() {
                    // The pod changed or went away; its own change brings it back.
                    self.waiting.remove(key);
                    return;
                }
                self.waiting.remove(key);
                self.assume(key.clone(), &node, request(pod));
                let message = format!("Successfully assigned {}/{} to {node}", key.0, key.1);
                tell(cx, pod, false, "Scheduled", &message);
            }
            Err(Unfit { why, without_victims }) => {
                let victims = self.victims(pod, &wish, cx);
                let preemption = if never_preempts(pod) {
                    " preemption: not eligible due to preemptionPolicy=Never."
                } else if victims.is_empty() {
                    &without_victims
                } else {
                    ""
                };
                let message = format!("{why}{preemption}");
                for (namespace, name) in victims {
                    let Some(victim) = cx.api.get(&PODS, &namespace, &name) else { continue };
                    let by = pod["metadata"]["uid"].as_str().unwrap_or_default();
                    let node = victim["spec"]["nodeName"].as_str().unwrap_or_default();
                    let text = format!("Preempted by pod {by} on node {node}");
                    tell(cx, &victim, false, "Preempted", &text);
                    let options = DeleteOptions::default();
                    let gone = cx.api.delete(cx.writer(), &PODS, &namespace, &name, &options);
                    note("preemption", gone);
                }
                if let Some(tried) = self.waiting.get_mut(key) {
                    *tried = true;
                }
                let mut new = pod.clone();
                let conditions = &mut new["status"]["conditions"];
                let changed = set_condition(
                    conditions,
                    "PodScheduled",
                    "False",
                    "Unschedulable",
                    &message,
                    cx.now,
                );
                if changed {
                    note("pod", cx.api.update_status(cx.writer(), &PODS, &key.0, new));
                    tell(cx, pod, true, "FailedScheduling", &message);
                }
            }
        }
    }
}

fn never_preempts(pod: &Value) -> bool {
    pod["spec"]["preemptionPolicy"] == "Never"
}

fn priority(pod: &Value) -> i64 {
    pod["spec"]["priority"].as_i64().unwrap_or(0)
}

fn ours(pod: &Value) -> bool {
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    !gated && matches!(pod["spec"]["schedulerName"].as_str(), None | Some("default-scheduler"))
}

fn tell(cx: &mut Context<'_>, pod: &Value, warning: bool, reason: &str, message: &str) {
    let occurrence = Occurrence {
        object: pod,
        warning,
        reason,
        message,
        component: "default-scheduler",
        host: "",
    };
    record(cx.api, cx.now, &occurrence);
}
