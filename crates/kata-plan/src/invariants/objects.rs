//! Preconditions for writing and deleting an object, and for removing the finalizer: the object belongs to
//! the operator, and no node and no pod needs an object that is deleted.

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::{MachineConfig, names};
use serde_json::Value;

use super::{Facts, Kept, Property, ensure};
use crate::assessment::KataState;
use crate::classes::{is_of_kata_deploy, is_our_class};
use crate::jobs;
use crate::mco::{bodies, installed, monitor_body};
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::plan::Action;
use crate::selection;
use crate::snapshot::{NodeFacts, Platform, PodScope, SandboxedPod};
use crate::text;

impl<'a> Facts<'a> {
    /// Whether the object of this name belongs to the operator; `None` if it does not exist. `Some(false)`
    /// for one that could not be read or that the operator never creates.
    fn is_own(&self, object: &ObjectRef) -> Option<bool> {
        fn find<T>(
            read: &Observed<Vec<T>>,
            is_it: impl Fn(&T) -> bool,
            is_own: impl Fn(&T) -> bool,
        ) -> Option<bool> {
            let Observed::Known(list) = read else { return Some(false) };
            list.iter().find(|it| is_it(it)).map(is_own)
        }
        let single = |read: &Observed<Option<Value>>| match read {
            Observed::Known(found) => found.as_ref().map(monitor_body::is_ours),
            Observed::Unknown { .. } => Some(false),
        };
        let snapshot = self.snapshot;
        let name = &object.name;
        let is_it = |other: &Option<String>| other.as_ref() == Some(name);
        match object.kind {
            Kind::KataNode | Kind::Job => Some(true),
            Kind::MachineConfig if names::MACHINE_CONFIGS.contains(&&**name) => {
                match snapshot.machine_configs.get(name) {
                    Some(Observed::Known(found)) => {
                        found.as_ref().map(installed::is_our_machine_config)
                    }
                    Some(Observed::Unknown { .. }) | None => Some(false),
                }
            }
            Kind::MachineConfigPool if name == names::POOL => {
                find(&snapshot.pools, |it| is_it(&it.metadata.name), bodies::is_our_pool)
            }
            Kind::ContainerRuntimeConfig if name == names::CONTAINER_RUNTIME_CONFIG => find(
                &snapshot.container_runtime_configs,
                |it| is_it(&it.metadata.name),
                bodies::is_our_container_runtime_config,
            ),
            Kind::RuntimeClass => {
                find(&snapshot.runtime_classes, |it| is_it(&it.metadata.name), is_our_class)
            }
            Kind::DaemonSet if name == names::MONITOR => single(&snapshot.monitor.daemon_set),
            Kind::SecurityContextConstraints if name == names::MONITOR_CONSTRAINTS => {
                snapshot.monitor.constraints.as_ref().map_or(Some(false), single)
            }
            _ => Some(false),
        }
    }

    fn is_in_own_namespace(&self, object: &ObjectRef) -> bool {
        object.namespace.as_ref().is_none_or(|it| *it == self.snapshot.options.namespace)
    }

    /// Whether an object is a RuntimeClass of kata-deploy that becomes ours.
    fn takes_over(&self, object: &ObjectRef) -> bool {
        let classes = self.snapshot.runtime_classes.known().into_iter().flatten();
        let is_it = |class: &&RuntimeClass| class.metadata.name.as_ref() == Some(&object.name);
        object.kind == Kind::RuntimeClass
            && self.active.is_some_and(|config| config.spec.take_over.is_some())
            && classes.into_iter().find(is_it).is_some_and(is_of_kata_deploy)
    }

    pub(super) fn may_apply(&self, object: &ObjectRef, body: Option<&Value>) -> Kept {
        let is_own = self.is_own(object).unwrap_or(true) && self.is_in_own_namespace(object);
        ensure(is_own || self.takes_over(object), Property::Ownership, || {
            format!("{object} does not belong to the operator")
        })?;
        match body {
            Some(body) if object.kind == Kind::Job => self.may_make_job(object, body),
            _ => Ok(()),
        }
    }

    pub(super) fn may_delete(&self, object: &ObjectRef) -> Kept {
        let is_own = self.is_own(object).unwrap_or(false) && self.is_in_own_namespace(object);
        ensure(is_own && object.uid.is_some(), Property::Ownership, || {
            format!("{object} does not belong to the operator, or has no uid")
        })?;
        match object.kind {
            Kind::RuntimeClass => {
                self.ensure_no_pods_need(object, |pod| pod.runtime_class == object.name)
            }
            Kind::MachineConfig if self.is_replaced(object) => Ok(()),
            Kind::MachineConfig if self.is_for_control_plane(object) => {
                let mut masters =
                    self.nodes.values().filter(|node| selection::is_control_plane(node));
                // If no node has Kata or gets it, no pod can be sandboxed.
                if masters.all(|node| node.kata_state(self.snapshot) == KataState::Absent) {
                    return Ok(());
                }
                self.ensure_no_pods_need(object, |pod| !self.is_elsewhere(pod))
            }
            Kind::MachineConfig | Kind::MachineConfigPool => {
                let nodes = self.nodes.values().filter(|node| is_on_pool(node));
                let nodes: Vec<&String> = nodes.map(|node| &node.name).collect();
                ensure(nodes.is_empty(), Property::UnusedConfiguration, || {
                    let nodes = text::list(&nodes, text::NAMES);
                    format!("{object} is deleted while nodes are on it: {nodes}")
                })
            }
            Kind::Job => self.may_delete_job(object),
            _ => Ok(()),
        }
    }

    /// All sandboxed pods of the cluster were read, and no unfinished one needs the object.
    fn ensure_no_pods_need(
        &self,
        object: &ObjectRef,
        needs_it: impl Fn(&SandboxedPod) -> bool,
    ) -> Kept {
        let cluster = self.snapshot.pods.get(&PodScope::Cluster).and_then(Observed::known);
        let pods: Option<Vec<&SandboxedPod>> =
            cluster.map(|pods| pods.iter().filter(|pod| !pod.finished && needs_it(pod)).collect());
        self.ensure_no_pods(pods.as_deref(), &format!("{object} is deleted"))
    }

    fn machine_config(&self, name: &str) -> Option<&'a MachineConfig> {
        let mut own = installed::machine_configs(self.snapshot);
        own.find(|(other, _)| *other == name).map(|(_, config)| config)
    }

    /// Whether another MachineConfig installs Kata after this one is deleted.
    fn is_replaced(&self, object: &ObjectRef) -> bool {
        names::MACHINE_CONFIGS.iter().filter(|name| **name != object.name).any(|name| {
            let is_it = |it: &ObjectRef| it.kind == Kind::MachineConfig && it.name == **name;
            let exists = self
                .machine_config(name)
                .is_some_and(|config| config.metadata.deletion_timestamp.is_none());
            let mut steps = self.plan.steps.iter().map(|step| &step.action);
            let deleted =
                steps.any(|it| matches!(it, Action::Delete { object, .. } if is_it(object)));
            (exists || self.earlier.applied.iter().any(|object| is_it(object))) && !deleted
        })
    }

    /// Whether a MachineConfig is for the pool of the control plane.
    fn is_for_control_plane(&self, object: &ObjectRef) -> bool {
        self.machine_config(&object.name)
            .and_then(|config| {
                config.metadata.labels.as_ref()?.get(names::MACHINE_CONFIG_ROLE_LABEL)
            })
            .is_some_and(|role| role == names::MASTER_POOL)
    }

    /// Whether a pod uses a foreign RuntimeClass and is not on a node of the control plane.
    fn is_elsewhere(&self, pod: &SandboxedPod) -> bool {
        let node = pod.node.as_deref().and_then(|node| self.nodes.get(node));
        let mut classes = self.snapshot.runtime_classes.known().into_iter().flatten();
        let foreign = classes.any(|class| {
            class.metadata.name.as_ref() == Some(&pod.runtime_class) && !is_our_class(class)
        });
        foreign && !node.is_some_and(|node| selection::is_control_plane(node))
    }

    /// The finalizer of the active KataConfig is removed only if nothing of the operator is left. Nothing
    /// in the cluster belongs to the other KataConfigs.
    pub(super) fn may_remove_finalizers(&self, action: &Action, config: &ObjectRef) -> Kept {
        if self.active.is_none_or(|active| active.metadata.uid != config.uid) {
            return Ok(());
        }
        self.ensure_lists_are_known(action)?;
        let left = self.leftovers();
        ensure(left.is_empty(), Property::Finalizer, || {
            format!("{action} while these objects are left: {}", text::list(&left, text::NAMES))
        })
    }

    /// The objects of the operator that are left in the cluster, or may be.
    fn leftovers(&self) -> Vec<String> {
        let snapshot = self.snapshot;
        let is_claimed = |node: &&&NodeFacts| match snapshot.options.platform {
            Platform::OpenShift => is_on_pool(node),
            Platform::Kubernetes => jobs::is_claimed(&node.labels),
        };
        let nodes =
            self.nodes.values().filter(is_claimed).map(|node| format!("Node {}", node.name));
        let unreadable = [Kind::Node, Kind::KataNode].map(|kind| snapshot.unreadable(kind));
        let unreadable = unreadable.into_iter().flatten().map(|it| it.object.to_string());
        let kata_nodes = self.kata_nodes.keys().map(|name| format!("KataNode {name}"));
        let jobs = self.jobs_by_uid.values().map(|job| format!("Job {}", job.name));
        let unreadable_jobs =
            snapshot.jobs.unreadable.iter().map(|job| format!("Job {}", job.name));
        let classes = snapshot.runtime_classes.known().into_iter().flatten();
        let classes = classes.filter(|class| is_our_class(class));
        let classes = classes.filter_map(|class| class.metadata.name.clone());
        let configs = installed::machine_configs(snapshot).map(|(name, _)| name.to_owned());
        let monitor = [
            (names::MONITOR, Some(&snapshot.monitor.daemon_set)),
            (names::MONITOR_CONSTRAINTS, snapshot.monitor.constraints.as_ref()),
        ];
        let is_deleted_with_config = |object: &Value| {
            snapshot.options.monitor_image.is_none()
                && self.active.is_some_and(|config| monitor_body::is_owned_by(object, config))
        };
        let is_left =
            |object: &Value| monitor_body::is_ours(object) && !is_deleted_with_config(object);
        let monitor = monitor.into_iter().filter(
            |(_, read)| matches!(read, Some(Observed::Known(Some(found))) if is_left(found)),
        );
        let monitor = monitor.map(|(name, _)| name.to_owned());
        let of_nodes = nodes.chain(unreadable).chain(kata_nodes).chain(jobs).chain(unreadable_jobs);
        of_nodes.chain(classes).chain(configs).chain(monitor).collect()
    }
}

/// Whether a node is in the operator's pool, or has a configuration of that pool.
fn is_on_pool(node: &NodeFacts) -> bool {
    node.labels.contains_key(names::KATA_ROLE_LABEL) || node.refers_to_pool(names::POOL)
}
