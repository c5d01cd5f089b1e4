//! The promises about objects that are written and deleted: they are ours, only our fields are written, and
//! nothing goes that a node or a pod still needs.
//!
//! Like its parent it reads the snapshot and the plan alone, and shares no judgement with the decision.

use std::collections::BTreeSet;

use kata_api::{MachineConfig, names};
use serde_json::Value;

use super::{Checker, Property, managed, of_monitor};
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::plan::{Action, OnFailure, Step};
use crate::report::Decision;
use crate::snapshot::{Platform, PodScope, SandboxedPod};

impl Checker<'_> {
    pub(super) fn deletion(&mut self, object: &ObjectRef, decision: &Decision) {
        self.expect(Property::Foreign, object.uid.is_some(), || {
            format!("{object} is deleted by name only")
        });
        let expected = match object.kind {
            Kind::MachineConfig => names::MACHINE_CONFIGS.contains(&object.name.as_str()),
            Kind::MachineConfigPool => object.name == names::POOL,
            Kind::ContainerRuntimeConfig => object.name == names::CONTAINER_RUNTIME_CONFIG,
            Kind::RuntimeClass => self
                .snapshot
                .runtime_classes
                .known()
                .into_iter()
                .flatten()
                .any(|class| class.metadata.uid == object.uid && managed(class)),
            Kind::KataNode => true,
            Kind::Job => {
                self.deleted_job(object);
                object.namespace.as_ref() == Some(&self.snapshot.options.namespace)
            }
            Kind::DaemonSet => {
                object.name == names::MONITOR
                    && object.namespace.as_ref() == Some(&self.snapshot.options.namespace)
                    && of_monitor(Some(&self.snapshot.monitor.daemon_set))
            }
            Kind::SecurityContextConstraints => {
                object.name == names::MONITOR_CONSTRAINTS
                    && of_monitor(self.snapshot.monitor.constraints.as_ref())
            }
            Kind::KataConfig
            | Kind::Node
            | Kind::ConfigMap
            | Kind::Pod
            | Kind::PodDisruptionBudget => false,
        };
        self.expect(Property::Foreign, expected, || format!("{object} is not ours to delete"));
        match object.kind {
            Kind::RuntimeClass => {
                let pods = self.pods(&PodScope::Cluster);
                let unused = pods
                    .as_ref()
                    .is_some_and(|pods| pods.iter().all(|pod| pod.runtime_class != object.name));
                self.expect(Property::RunningPods, unused, || {
                    format!("{object} is deleted with pods {pods:?}")
                });
            }
            Kind::MachineConfig if self.is_replaced(object, decision) => {}
            Kind::MachineConfig | Kind::MachineConfigPool => {
                let on_it: Vec<&str> = self
                    .nodes()
                    .iter()
                    .filter(|node| {
                        node.labels.contains_key(names::KATA_ROLE_LABEL)
                            || node.refers_to_pool(names::POOL)
                    })
                    .map(|node| node.name.as_str())
                    .collect();
                self.expect(Property::Stranded, on_it.is_empty(), || {
                    format!("{object} is deleted under the nodes {on_it:?}")
                });
                let for_masters = match self.snapshot.machine_configs.get(&object.name) {
                    Some(Observed::Known(Some(config))) => role(config) == Some(names::MASTER_POOL),
                    _ => false,
                };
                if object.kind == Kind::MachineConfig && for_masters {
                    let pods = self.pods(&PodScope::Cluster);
                    // Pods of other people's classes elsewhere have nothing to do with us.
                    let elsewhere = |pod: &&SandboxedPod| {
                        let node = pod.node.as_deref().and_then(|node| self.node(node));
                        let theirs = self.snapshot.runtime_classes.known().is_some_and(|classes| {
                            classes.iter().any(|class| {
                                class.metadata.name.as_deref() == Some(&pod.runtime_class)
                                    && !managed(class)
                            })
                        });
                        theirs
                            && !node.is_some_and(|node| {
                                node.labels.contains_key(names::MASTER_ROLE_LABEL)
                            })
                    };
                    let free = pods.as_ref().is_some_and(|pods| pods.iter().all(elsewhere));
                    self.expect(Property::RunningPods, free, || {
                        format!("{object} is deleted with pods {pods:?}")
                    });
                }
            }
            _ => {}
        }
    }

    /// Whether the other MachineConfig that brings Kata is there when this one is deleted, and stays.
    fn is_replaced(&self, object: &ObjectRef, decision: &Decision) -> bool {
        let steps = &decision.plan.steps;
        let deletes = |step: &Step, name: &str| {
            matches!(&step.action, Action::Delete { object, .. }
                if object.kind == Kind::MachineConfig && object.name == name)
        };
        names::MACHINE_CONFIGS.iter().filter(|name| **name != object.name).any(|other| {
            let made = steps.iter().take_while(|step| !deletes(step, &object.name)).any(|step| {
                step.on_failure == OnFailure::Stop
                    && matches!(&step.action, Action::Apply { object, .. }
                        if object.kind == Kind::MachineConfig && object.name == *other)
            });
            let exists = matches!(self.snapshot.machine_configs.get(*other),
                Some(Observed::Known(Some(config)))
                    if config.metadata.deletion_timestamp.is_none() && self.brings_kata(config));
            (made || exists) && !steps.iter().any(|step| deletes(step, other))
        })
    }

    pub(super) fn body(&mut self, object: &ObjectRef, body: &Value) {
        let keys = |value: &Value| -> BTreeSet<String> {
            value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        let spec: &[&str] = match object.kind {
            Kind::MachineConfig if object.name == names::MACHINE_CONFIG => {
                &["config", "extensions"]
            }
            Kind::MachineConfig if object.name == names::IMAGE_MACHINE_CONFIG => {
                &["config", "kernelArguments", "osImageURL"]
            }
            Kind::MachineConfigPool if object.name == names::POOL => {
                &["machineConfigSelector", "maxUnavailable", "nodeSelector", "paused"]
            }
            Kind::ContainerRuntimeConfig if object.name == names::CONTAINER_RUNTIME_CONFIG => {
                &["containerRuntimeConfig", "machineConfigPoolSelector"]
            }
            Kind::KataNode => &["kataConfig", "nodeName"],
            Kind::DaemonSet if object.name == names::MONITOR => {
                &["selector", "template", "updateStrategy"]
            }
            Kind::SecurityContextConstraints if object.name == names::MONITOR_CONSTRAINTS => &[],
            Kind::Job => &["activeDeadlineSeconds", "backoffLimit", "template"],
            Kind::RuntimeClass => &[],
            _ => {
                return self
                    .expect(Property::Fields, false, || format!("{object} is not ours to write"));
            }
        };
        let metadata: &[&str] = match object.kind {
            Kind::MachineConfig => &["annotations", "labels", "name"],
            Kind::Job => &["annotations", "labels", "name", "namespace"],
            Kind::RuntimeClass => &["annotations", "labels", "name", "ownerReferences"],
            _ => &["labels", "name", "namespace", "ownerReferences"],
        };
        let strange: Vec<String> = keys(&body["spec"])
            .into_iter()
            .filter(|key| !spec.contains(&key.as_str()))
            .chain(
                keys(&body["metadata"]).into_iter().filter(|key| !metadata.contains(&key.as_str())),
            )
            .collect();
        self.expect(Property::Fields, strange.is_empty(), || {
            format!("{object} is written with the fields {strange:?}")
        });
        if object.kind == Kind::RuntimeClass {
            let selector = &body["scheduling"]["nodeSelector"];
            let selected = selector[names::RUNTIME_LABEL] == names::RUNTIME_LABEL_VERIFIED;
            self.expect(Property::Verified, selected, || {
                format!("{object} does not select the label of verified nodes")
            });
            // Other installers give their nodes the same label.
            let ours = self.snapshot.options.platform != Platform::Kubernetes
                || selector[names::CLAIM_LABEL] == names::CLAIMED;
            self.expect(Property::Verified, ours, || {
                format!("{object} selects nodes of other installers too")
            });
        }
    }
}

fn role(config: &MachineConfig) -> Option<&str> {
    config.metadata.labels.as_ref()?.get(names::MACHINE_CONFIG_ROLE_LABEL).map(String::as_str)
}
