//! The autoscaler of [`NodeGroup`]s: it makes a node for a pod that fits on no other and would fit on a node of the template.
//!
//! It removes no node. Prices, types of machines and topology do not exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{NodeOptions, Role, later_spec};
use crate::api::Event;
use crate::node::pod;
use crate::node::registration;
use crate::node::request::request;
use crate::resource::{NODES, PODS};
use crate::simulation::{Context, Controller};
use crate::workload::scheduler::fit::{NodeState, Wish};
use crate::world::{Host, NodeGroup};

/// How often it looks at pods that wait.
const SCAN: Duration = Duration::from_secs(10);
/// From the order of a machine until it joins.
const BOOT: Duration = Duration::from_mins(1);

/// The autoscaler.
#[derive(Debug, Default)]
pub(super) struct Autoscaler {
    /// The machines that have not joined, with their groups.
    ordered: BTreeMap<String, String>,
}

impl Controller for Autoscaler {
    fn name(&self) -> &'static str {
        "autoscaler"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == PODS && !cx.world.groups.is_empty() && waits(&event.current) {
            cx.after("scan", SCAN);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        match self.ordered.remove(key) {
            Some(group) => join(key, &group, cx),
            None => self.scan(cx),
        }
    }
}

impl Autoscaler {
    fn scan(&mut self, cx: &mut Context<'_>) {
        let pods: Vec<_> = cx.api.list(&PODS).iter().filter(|pod| waits(pod)).cloned().collect();
        if pods.is_empty() {
            return;
        }
        cx.after("scan", SCAN);
        for group in cx.world.groups.clone() {
            self.scale(&group, &pods, cx);
        }
    }

    /// Orders the machines that pods need which fit on none that is coming.
    fn scale(&mut self, group: &NodeGroup, pods: &[Arc<Value>], cx: &mut Context<'_>) {
        let prefix = format!("{}-", group.name);
        let is_ours = |name: &&String| {
            name.strip_prefix(&prefix).is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let machines: Vec<&String> = cx.world.hosts.keys().filter(is_ours).collect();
        // Its kubelet may not have registered it yet.
        let node = |name: &&&String| cx.api.get(&NODES, "", name);
        let is_coming =
            |name: &&&String| node(name).is_none_or(|it| is_starting(group, &it, cx.now));
        let starting = machines.iter().filter(is_coming).count();
        let ordered = self.ordered.values().filter(|of| **of == group.name).count();
        let mut count = machines.len() + ordered;
        let template = template(group, cx);
        let mut coming = vec![template.clone(); starting + ordered];
        for pod in pods {
            let wish = Wish::of(pod);
            if let Some(node) = coming.iter_mut().find(|node| wish.fits("", node)) {
                node.used.add(&request(pod));
            } else if count < group.max_nodes && wish.fits("", &template) {
                let mut node = template.clone();
                node.used.add(&request(pod));
                coming.push(node);
                let mut number = 0;
                while self.is_taken(&format!("{prefix}{number}"), cx) {
                    number += 1;
                }
                let machine = format!("{prefix}{number}");
                self.ordered.insert(machine.clone(), group.name.clone());
                cx.after(machine, BOOT);
                count += 1;
            }
        }
    }

    fn is_taken(&self, machine: &str, cx: &Context<'_>) -> bool {
        self.ordered.contains_key(machine) || cx.world.hosts.contains_key(machine)
    }
}

/// Whether a pod fits on no node, as the scheduler said.
fn waits(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let is_unschedulable =
        |it: &Value| it["type"] == "PodScheduled" && it["reason"] == "Unschedulable";
    pod["spec"]["nodeName"].is_null()
        && !pod::is_deleting(pod)
        && conditions.into_iter().any(is_unschedulable)
}

/// Whether the autoscaler still expects that a node takes the pods for which it was made.
fn is_starting(group: &NodeGroup, node: &Value, now: Timestamp) -> bool {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let has_startup = taints.filter_map(|taint| taint["key"].as_str()).any(|key| {
        let is_startup = group.startup_taints.iter().any(|(startup, _)| startup == key);
        group.autoscaler.is_temporary(key, is_startup)
    });
    let created = node["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse().ok());
    let age = created.map(|created: Timestamp| now.duration_since(created)).unwrap_or_default();
    let timeout =
        group.autoscaler.not_ready_timeout().and_then(|it| SignedDuration::try_from(it).ok());
    has_startup && timeout.is_none_or(|timeout| age < timeout)
}

fn options(group: &NodeGroup) -> NodeOptions {
    NodeOptions {
        runtime: group.runtime,
        system: group.system,
        handlers: None,
        labels: group.labels.clone(),
        taints: group.taints.iter().chain(&group.startup_taints).cloned().collect(),
    }
}

/// A node of the group as the autoscaler imagines it: without the taints that go by themselves.
fn template(group: &NodeGroup, cx: &Context<'_>) -> NodeState {
    let spec = later_spec(cx.world, "", Role::Worker, options(group));
    let mut node = registration::node(&Host::new(spec.clone(), cx.now), &spec, cx.now);
    let is_startup = |taint: &&(String, String)| group.startup_taints.contains(taint);
    let taints = spec
        .taints
        .iter()
        .filter(|taint| !group.autoscaler.is_temporary(&taint.0, is_startup(taint)));
    node["spec"]["taints"] =
        taints.map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
    NodeState::of(&node)
}

/// A machine has booted, and its kubelet registers it.
fn join(machine: &str, group: &str, cx: &mut Context<'_>) {
    let Some(group) = cx.world.groups.iter().find(|it| it.name == group).cloned() else { return };
    let spec = later_spec(cx.world, machine, Role::Worker, options(&group));
    let mut host = Host::new(spec, cx.now);
    host.faults.extend(group.fault);
    cx.world.hosts.insert(machine.to_owned(), host);
    cx.world.touch(machine);
}
