//! The checker of decisions: given a snapshot and what was decided about it, which promises are broken.
//!
//! It is written against the snapshot and the plan alone and shares no judgement with the decision, so
//! that a mistake there does not excuse itself here. Tests and the simulator run it after every pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::{MachineConfig, names};
use serde_json::Value;

use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::plan::{Action, OnFailure, Step};
use crate::report::Decision;
use crate::snapshot::{Freshness, NodeFacts, Platform, PodScope, SandboxedPod, Snapshot};

mod hosts;
mod objects;
mod status;
mod taints;

/// A promise. The numbers are those of the list of safety properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// S1: nothing is taken from a node on which a sandboxed pod runs.
    RunningPods,
    /// S2: pods are counted after no new one can come.
    Window,
    /// S3: only a usable node is marked as such, and RuntimeClasses select that mark.
    Verified,
    /// A pool or MachineConfig goes only when no node is on it.
    Stranded,
    /// S8: only what is ours is deleted, and only the very object that was seen.
    Foreign,
    /// S9: only our own fields are written.
    Fields,
    /// S10: the finalizer is there first and goes last.
    Finalizer,
    /// S13: what is unknown, or may be old, leads to nothing disruptive.
    Unknown,
    /// Never more than one Job on a node, and none that runs is deleted.
    OneJob,
    /// No more nodes are changed at once than may be unavailable.
    Rollout,
    /// A pod that may change a node has no token and only what it needs.
    Privileges,
    /// L3: what is not done has a reason.
    Named,
    /// A status is well-formed and bounded.
    Shape,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub property: Property,
    /// How.
    pub note: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.note)
    }
}

/// The promises that a decision breaks; empty if it keeps them all.
pub fn check(snapshot: &Snapshot, decision: &Decision) -> Vec<Violation> {
    let nodes = snapshot.nodes.known().into_iter().flatten();
    let by_name = nodes.map(|node| (node.name.as_str(), node.as_ref())).collect();
    let mut checker = Checker { snapshot, by_name, violations: Vec::new() };
    checker.freshness(decision);
    checker.finalizer(decision);
    for step in &decision.plan.steps {
        match &step.action {
            Action::LabelNode { node, seen, set, remove } => {
                let keys: BTreeSet<&str> = set.keys().chain(remove).map(String::as_str).collect();
                if snapshot.options.platform == Platform::Kubernetes {
                    checker.owned_labels(node, &keys);
                    checker.host_labels(node, set);
                    continue;
                }
                checker.guard(node, seen.as_deref(), set, &keys);
                checker.labels(node, &keys, set.contains_key(names::RUNTIME_LABEL));
            }
            Action::Delete { object, .. } => checker.deletion(object, decision),
            Action::Apply { object, body } | Action::ApplyStatus { object, body } => {
                checker.body(object, body);
            }
            Action::LiftTaint { node, seen, left } => checker.taints(node, seen, left),
            Action::AddFinalizer { .. } | Action::RemoveFinalizers { .. } => {}
        }
    }
    checker.jobs(decision);
    for status in decision.report.status.iter().chain(&decision.report.other_configs) {
        checker.status(status);
    }
    checker.named(decision);
    checker.violations
}

struct Checker<'a> {
    snapshot: &'a Snapshot,
    by_name: BTreeMap<&'a str, &'a NodeFacts>,
    violations: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn expect(&mut self, property: Property, holds: bool, note: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(Violation { property, note: note() });
        }
    }

    fn nodes(&self) -> &'a [Arc<NodeFacts>] {
        self.snapshot.nodes.known().map_or(&[], Vec::as_slice)
    }

    fn node(&self, name: &str) -> Option<&'a NodeFacts> {
        self.by_name.get(name).copied()
    }

    /// Unfinished sandboxed pods of a scope; `None` if they were not read.
    fn pods(&self, scope: &PodScope) -> Option<Vec<&'a SandboxedPod>> {
        let pods = self.snapshot.pods.get(scope)?.known()?;
        Some(pods.iter().filter(|pod| !pod.finished).collect())
    }

    fn freshness(&mut self, decision: &Decision) {
        let steps = &decision.plan.steps;
        let disruptive = steps.iter().find(|step| {
            let enough = match &step.action {
                Action::AddFinalizer { .. }
                | Action::ApplyStatus { .. }
                | Action::LiftTaint { .. } => Freshness::Cached,
                Action::Apply { object, .. } | Action::Delete { object, .. }
                    if beside(object.kind) =>
                {
                    Freshness::Cached
                }
                Action::Apply { object, .. } if object.kind == Kind::RuntimeClass => {
                    Freshness::Cached
                }
                Action::Delete { object, .. } if object.kind == Kind::Job => Freshness::Cached,
                // What a Job is for decides, see `jobs`.
                Action::Apply { object, .. } if object.kind == Kind::Job => Freshness::Cached,
                // It claims a node or marks it, and disturbs nobody.
                Action::LabelNode { .. }
                    if self.snapshot.options.platform == Platform::Kubernetes =>
                {
                    Freshness::Cached
                }
                // Whose request is refused if the node is not as it was seen, see `guard`.
                Action::LabelNode { set, remove, .. } => {
                    if set.keys().chain(remove).any(|key| key != names::RUNTIME_LABEL) {
                        Freshness::Objects
                    } else {
                        Freshness::Cached
                    }
                }
                Action::Apply { body, .. } if for_control_plane(body) => Freshness::Quorum,
                Action::Apply { .. } => Freshness::Objects,
                Action::Delete { .. } | Action::RemoveFinalizers { .. } => Freshness::Quorum,
            };
            self.snapshot.freshness < enough
        });
        self.expect(Property::Unknown, disruptive.is_none(), || {
            format!("disruptive on reads that may be old: {}", text(disruptive))
        });
        let of_platform = match self.snapshot.options.platform {
            Platform::OpenShift => {
                self.snapshot.pools.is_known() && self.snapshot.container_runtime_configs.is_known()
            }
            Platform::Kubernetes => {
                self.snapshot.jobs.jobs.is_known() && self.snapshot.jobs.pods.is_known()
            }
        };
        let known = of_platform
            && self.snapshot.nodes.is_known()
            && self.snapshot.runtime_classes.is_known()
            && self.snapshot.kata_nodes.is_known();
        let touching = steps.iter().find(|step| step.action.object().kind != Kind::KataConfig);
        self.expect(Property::Unknown, known || touching.is_none(), || {
            format!("written although a read failed: {}", text(touching))
        });
    }

    fn finalizer(&mut self, decision: &Decision) {
        let Some(active) = decision.report.status.as_ref().map(|status| &status.config) else {
            return;
        };
        let config = self.snapshot.configs.iter().find(|config| config.metadata.uid == active.uid);
        let mut guarded = config.is_some_and(|config| {
            config
                .metadata
                .finalizers
                .iter()
                .flatten()
                .any(|name| name == names::FINALIZER || name == names::LEGACY_FINALIZER)
        });
        for step in &decision.plan.steps {
            match &step.action {
                Action::AddFinalizer { .. } => guarded |= step.on_failure == OnFailure::Stop,
                Action::RemoveFinalizers { config, .. } if config.uid == active.uid => {
                    let left = self.left();
                    self.expect(Property::Finalizer, left.is_empty(), || {
                        format!("the finalizer goes while there is still {}", left.join(", "))
                    });
                }
                Action::RemoveFinalizers { .. } => {}
                action => self.expect(Property::Finalizer, guarded, || {
                    format!("{action} before there is a finalizer")
                }),
            }
        }
    }

    /// What is left of us in the cluster.
    fn left(&self) -> Vec<String> {
        let snapshot = self.snapshot;
        let mut left: Vec<String> = self
            .nodes()
            .iter()
            .filter(|node| {
                node.labels.contains_key(names::KATA_ROLE_LABEL) || node.refers_to_pool(names::POOL)
            })
            .map(|node| node.name.clone())
            .collect();
        left.extend(
            snapshot
                .kata_nodes
                .known()
                .into_iter()
                .flatten()
                .map(|kata_node| format!("KataNode {}", kata_node.spec.node_name)),
        );
        left.extend(
            snapshot
                .runtime_classes
                .known()
                .into_iter()
                .flatten()
                .filter(|class| managed(class))
                .filter_map(|class| class.metadata.name.clone()),
        );
        for name in names::MACHINE_CONFIGS {
            if let Some(Observed::Known(Some(config))) = snapshot.machine_configs.get(name)
                && self.brings_kata(config)
            {
                left.push(name.to_owned());
            }
        }
        left.extend(self.left_on_hosts());
        if of_monitor(Some(&snapshot.monitor.daemon_set)) {
            left.push(names::MONITOR.to_owned());
        }
        if of_monitor(snapshot.monitor.constraints.as_ref()) {
            left.push(names::MONITOR_CONSTRAINTS.to_owned());
        }
        left
    }

    /// Whether a MachineConfig has the extension, or an image of the operating system that one of ours has.
    fn brings_kata(&self, config: &MachineConfig) -> bool {
        let has = |config: &MachineConfig, image: &str| {
            let annotations = config.metadata.annotations.as_ref();
            let list = annotations.and_then(|all| all.get(names::IMAGES_ANNOTATION));
            config.spec.os_image_url == image
                || list.is_some_and(|list| list.split(' ').any(|known| known == image))
        };
        let image = config.spec.os_image_url.as_str();
        config.spec.extensions.iter().any(|extension| extension == names::EXTENSION)
            || names::MACHINE_CONFIGS.iter().any(|name| {
                matches!(self.snapshot.machine_configs.get(*name), Some(Observed::Known(Some(ours)))
                    if !image.is_empty() && has(ours, image))
            })
    }

    /// A label that goes onto a node, or lets it leave the pool, goes onto the node that was seen, as
    /// it was seen.
    fn guard(
        &mut self,
        node: &ObjectRef,
        seen: Option<&str>,
        set: &BTreeMap<String, String>,
        keys: &BTreeSet<&str>,
    ) {
        let only_closes = set.is_empty() && keys.iter().all(|key| *key == names::RUNTIME_LABEL);
        let version = self.node(&node.name).map(|facts| facts.resource_version.as_str());
        let guarded = seen.is_some() && seen == version;
        let fresh = self.snapshot.freshness == Freshness::Quorum;
        self.expect(Property::Unknown, only_closes || guarded || fresh, || {
            format!("{node} is labelled although it may have changed")
        });
    }

    fn owned_labels(&mut self, node: &ObjectRef, keys: &BTreeSet<&str>) {
        let ours = match self.snapshot.options.platform {
            Platform::OpenShift => [names::RUNTIME_LABEL, names::KATA_ROLE_LABEL],
            Platform::Kubernetes => [names::RUNTIME_LABEL, names::CLAIM_LABEL],
        };
        self.expect(Property::Fields, keys.iter().all(|key| ours.contains(key)), || {
            format!("{node} gets labels that are not ours: {keys:?}")
        });
    }

    fn labels(&mut self, node: &ObjectRef, keys: &BTreeSet<&str>, marks: bool) {
        self.owned_labels(node, keys);
        let Some(facts) = self.node(&node.name) else {
            return self.expect(Property::Unknown, false, || format!("{node} was not seen"));
        };
        self.expect(Property::Foreign, node.uid.as_ref() == Some(&facts.uid), || {
            format!("{node} is written without the uid that was seen")
        });
        if marks {
            let current = facts.current_config();
            let runs = match self.snapshot.machine_configs.get(current) {
                Some(Observed::Known(Some(config))) => self.brings_kata(config),
                _ => false,
            };
            let usable = runs && facts.ready.status == Some(true) && !facts.unschedulable;
            self.expect(Property::Verified, usable, || format!("{node} is marked but not usable"));
        }
        let joins = !facts.labels.contains_key(names::KATA_ROLE_LABEL);
        if keys.contains(names::KATA_ROLE_LABEL) && !joins {
            let pods = self
                .pods(&PodScope::Node(node.name.clone()))
                .or_else(|| self.pods(&PodScope::Cluster));
            let free = pods.as_ref().is_some_and(|pods| {
                pods.iter().all(|pod| pod.node.as_deref() != Some(node.name.as_str()))
            });
            self.expect(Property::RunningPods, free, || {
                format!("{node} leaves the pool with pods {pods:?}")
            });
            let closed = !facts.labels.contains_key(names::RUNTIME_LABEL);
            self.expect(Property::Window, closed, || {
                format!("{node} leaves the pool while new pods can still come")
            });
        }
    }
}

fn text(step: Option<&Step>) -> String {
    step.map(ToString::to_string).unwrap_or_default()
}

/// Whether no node's Kata, and no sandboxed pod, depends on objects of this kind.
fn beside(kind: Kind) -> bool {
    matches!(kind, Kind::KataNode | Kind::DaemonSet | Kind::SecurityContextConstraints)
}

/// Whether an object that is applied reaches the control plane's pool.
fn for_control_plane(body: &Value) -> bool {
    let pool_label = format!("{}{}", names::POOL_LABEL_PREFIX, names::MASTER_POOL);
    body["metadata"]["labels"][names::MACHINE_CONFIG_ROLE_LABEL] == names::MASTER_POOL
        || body["spec"]["machineConfigPoolSelector"]["matchLabels"].get(pool_label).is_some()
}

/// Whether an object of kata-monitor is known to exist and to be ours.
fn of_monitor(object: Option<&Observed<Option<Value>>>) -> bool {
    let Some(Observed::Known(Some(object))) = object else { return false };
    let metadata = &object["metadata"];
    metadata["labels"][names::MANAGED_BY] == names::PRODUCT
        || metadata["ownerReferences"]
            .as_array()
            .is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "KataConfig"))
}

fn managed(class: &RuntimeClass) -> bool {
    let labelled =
        class.metadata.labels.as_ref().is_some_and(|labels| {
            labels.get(names::MANAGED_BY).is_some_and(|by| by == names::PRODUCT)
        });
    let owned = class
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.kind == Kind::KataConfig.as_str());
    labelled || owned
}
