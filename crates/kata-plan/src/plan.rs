//! The plan as data: a [`Plan`] is a list of [`Step`]s, each of which becomes one [`Request`] to the API
//! server.
//!
//! A step carries everything that its execution needs, including its preconditions; the executor only obeys
//! [`OnFailure`]. Every step may be repeated. The module `steps` derives them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::Taint;
use kata_api::names;
use kata_api::node_task::NodeAction;
use serde_json::{Map, Value, json};

use crate::object::{Kind, ObjectRef};
use crate::snapshot::Freshness;

/// The writes of a pass. Empty if the cluster is in the desired state, or if no step is possible now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Whether no further step follows from it: it only writes KataNodes, and records neither a Job nor that Kata is
    /// provided.
    pub fn only_reports(&self) -> bool {
        self.steps.iter().all(|step| match &step.action {
            Action::Apply { object, .. } => object.kind == Kind::KataNode,
            Action::ApplyStatus { object, body } => {
                let status = &body["status"];
                object.kind == Kind::KataNode
                    && status["host"].is_null()
                    && status["provided"] != true
            }
            _ => false,
        })
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub action: Action,
    pub on_failure: OnFailure,
    /// The reason in a few words, for logs and `--dry-run`.
    pub why: String,
}

/// Whether the steps after a failed one may still be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The later steps rely on it: skip them in this pass.
    Stop,
    /// The later steps do not depend on it.
    Continue,
}

/// A write, by its purpose.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Adds the operator's finalizer and its namespace to a KataConfig.
    AddFinalizer {
        config: ObjectRef,
        /// A precondition, because the request replaces the whole list, and the first installation wins.
        resource_version: String,
        /// The whole desired list.
        finalizers: Vec<String>,
        /// The namespace of the operator that the KataConfig belongs to from then on.
        namespace: String,
    },
    /// Removes the operator's finalizers, old and new, from a KataConfig that is being deleted.
    RemoveFinalizers {
        config: ObjectRef,
        /// A precondition, because the request replaces the whole list.
        resource_version: String,
        /// The whole desired list.
        finalizers: Vec<String>,
    },
    /// Server-side apply of the operator's fields of an object.
    Apply {
        object: ObjectRef,
        /// All fields of the operator, with apiVersion, kind and name.
        body: Value,
    },
    /// Server-side apply of an object's status.
    ApplyStatus {
        object: ObjectRef,
        /// All fields of the operator, with apiVersion, kind and name.
        body: Value,
    },
    /// Sets and removes labels of a node, and changes no other field.
    LabelNode {
        node: ObjectRef,
        /// The [`NodeFacts::resource_version`](crate::NodeFacts) of the facts behind this step, as a
        /// precondition. `None` if the step is correct even if the node has changed since.
        seen: Option<String>,
        set: BTreeMap<String, String>,
        remove: BTreeSet<String>,
        /// Whether the step is safe only if no RuntimeClass lets a new pod start on the node, so that the
        /// classes must be read again.
        needs_fresh_classes: bool,
    },
    /// Removes taints of kata-operator from a node.
    ReplaceTaints {
        node: ObjectRef,
        /// The resourceVersion of the facts behind this step, as a precondition, because the request
        /// replaces the whole list of taints.
        seen: String,
        /// All taints; those of other clients are unchanged.
        taints: Vec<Taint>,
    },
    /// Deletes an object, if it is still the one that was read.
    Delete {
        /// The object, with its uid.
        object: ObjectRef,
        /// A precondition, if a change since the read matters.
        resource_version: Option<String>,
    },
}

/// A request to the API server. Field manager: [`kata_api::names::FIELD_MANAGER`].
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `PATCH` with `application/apply-patch+yaml` and `force=true` (only the operator's own fields).
    Apply {
        object: ObjectRef,
        /// Whether the request is for the subresource `status`.
        status: bool,
        body: Value,
    },
    /// `PATCH` with `application/merge-patch+json`; preconditions are in the body's metadata.
    Merge {
        object: ObjectRef,
        /// Whether the request is for the subresource `status`.
        status: bool,
        body: Value,
    },
    /// `DELETE` with preconditions and background propagation; 404 is success.
    Delete {
        object: ObjectRef,
        /// A precondition, if known.
        uid: Option<String>,
        /// A precondition, if given.
        resource_version: Option<String>,
    },
}

impl Action {
    /// The object that is written.
    pub fn object(&self) -> &ObjectRef {
        match self {
            Self::AddFinalizer { config, .. } | Self::RemoveFinalizers { config, .. } => config,
            Self::Apply { object, .. }
            | Self::ApplyStatus { object, .. }
            | Self::Delete { object, .. } => object,
            Self::LabelNode { node, .. } | Self::ReplaceTaints { node, .. } => node,
        }
    }

    /// Whether it can disrupt a node, or removes an object that nodes or pods rely on.
    pub fn is_disruptive(&self) -> bool {
        self.freshness() > Freshness::Cached
    }

    /// How fresh the reads behind this action must be.
    ///
    /// The API server refuses to set the runtime label on a node that has changed since. Its removal from a
    /// node without Kata keeps new pods away and must never be delayed. Its removal from a node that loses
    /// Kata, and the role label, disrupt one node, which must be unchanged since the read. A Job that changes
    /// a node counts against
    /// `maxUnavailable`, together with the nodes that are down, so Jobs and nodes are read again. A Job
    /// that only checks is harmless: a second one has the same name and is refused. An action that affects
    /// many nodes at once, or that cannot be reverted, needs a fresh read of everything.
    pub fn freshness(&self) -> Freshness {
        match self {
            // The resourceVersion of the node is a precondition of its taints.
            Self::AddFinalizer { .. } | Self::ApplyStatus { .. } | Self::ReplaceTaints { .. } => {
                Freshness::Cached
            }
            Self::RemoveFinalizers { .. } => Freshness::Quorum,
            Self::LabelNode { seen, set, remove, needs_fresh_classes, .. } => {
                let role = names::KATA_ROLE_LABEL;
                let has_role = set.contains_key(role) || remove.contains(role);
                match (has_role || *needs_fresh_classes, seen) {
                    (false, _) => Freshness::Cached,
                    (true, Some(_)) => Freshness::Objects,
                    (true, None) => Freshness::Quorum,
                }
            }
            Self::Apply { object, body } => match object.kind {
                Kind::MachineConfigPool => Freshness::Objects,
                Kind::MachineConfig | Kind::ContainerRuntimeConfig if is_for_our_pool(body) => {
                    Freshness::Objects
                }
                // For the control plane, which gets Kata only if there are no other workers.
                Kind::MachineConfig | Kind::ContainerRuntimeConfig => Freshness::Quorum,
                Kind::Job if changes_node(body) => Freshness::Quorum,
                _ => Freshness::Cached,
            },
            // Only Jobs that have ended, that change nothing or that cannot start are deleted.
            Self::Delete { object, .. }
                if object.kind.is_auxiliary() || object.kind == Kind::Job =>
            {
                Freshness::Cached
            }
            Self::Delete { .. } => Freshness::Quorum,
        }
    }

    /// The request to the API server.
    pub fn request(&self) -> Request {
        match self {
            Self::AddFinalizer { config, resource_version, finalizers, namespace } => {
                let claim = json!({names::OPERATOR_NAMESPACE_ANNOTATION: namespace});
                replace_finalizers(config, resource_version, finalizers, Some(claim))
            }
            Self::RemoveFinalizers { config, resource_version, finalizers } => {
                replace_finalizers(config, resource_version, finalizers, None)
            }
            Self::Apply { object, body } => {
                Request::Apply { object: object.clone(), status: false, body: body.clone() }
            }
            Self::ApplyStatus { object, body } => {
                Request::Apply { object: object.clone(), status: true, body: body.clone() }
            }
            Self::LabelNode { node, seen, set, remove, needs_fresh_classes: _ } => {
                let mut labels = Map::new();
                labels.extend(set.iter().map(|(key, value)| (key.clone(), json!(value))));
                labels.extend(remove.iter().map(|key| (key.clone(), Value::Null)));
                Request::Merge {
                    object: node.clone(),
                    status: false,
                    body: match seen {
                        Some(version) => json!({"metadata": {
                            "uid": node.uid,
                            "resourceVersion": version,
                            "labels": labels,
                        }}),
                        None => json!({"metadata": {"uid": node.uid, "labels": labels}}),
                    },
                }
            }
            Self::ReplaceTaints { node, seen, taints } => Request::Merge {
                object: node.clone(),
                status: false,
                body: json!({
                    "metadata": {"uid": node.uid, "resourceVersion": seen},
                    "spec": {"taints": (!taints.is_empty()).then_some(taints)},
                }),
            },
            Self::Delete { object, resource_version } => Request::Delete {
                object: object.clone(),
                uid: object.uid.clone(),
                resource_version: resource_version.clone(),
            },
        }
    }
}

/// Replaces the finalizers of a KataConfig, and adds these annotations.
fn replace_finalizers(
    config: &ObjectRef,
    resource_version: &str,
    finalizers: &[String],
    annotations: Option<Value>,
) -> Request {
    let mut body = json!({"metadata": {
        "uid": config.uid,
        "resourceVersion": resource_version,
        "finalizers": finalizers,
    }});
    if let Some(annotations) = annotations {
        body["metadata"]["annotations"] = annotations;
    }
    Request::Merge { object: config.clone(), status: false, body }
}

/// Whether a MachineConfig or ContainerRuntimeConfig is for the operator's own pool, so that it affects
/// only nodes with the operator's role label.
fn is_for_our_pool(body: &Value) -> bool {
    let role = &body["metadata"]["labels"][names::MACHINE_CONFIG_ROLE_LABEL];
    let selected = &body["spec"]["machineConfigPoolSelector"]["matchLabels"];
    *role == names::POOL
        || selected.get(format!("{}{}", names::POOL_LABEL_PREFIX, names::POOL)).is_some()
}

/// Whether a Job of the node agent changes its node.
fn changes_node(body: &Value) -> bool {
    let action = body["metadata"]["annotations"][names::node_job::ACTION].as_str();
    action
        .and_then(NodeAction::parse)
        .is_none_or(|action| matches!(action, NodeAction::Install | NodeAction::Remove))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer { config, .. } => write!(f, "add finalizer to {config}"),
            Self::RemoveFinalizers { config, .. } => write!(f, "remove finalizers from {config}"),
            Self::Apply { object, .. } => write!(f, "apply {object}"),
            Self::ApplyStatus { object, .. } => write!(f, "apply status of {object}"),
            Self::LabelNode { node, seen: _, set, remove, needs_fresh_classes: _ } => {
                write!(f, "label {node}")?;
                for (key, value) in set {
                    write!(f, " {key}={value}")?;
                }
                for key in remove {
                    write!(f, " {key}-")?;
                }
                Ok(())
            }
            Self::ReplaceTaints { node, taints, .. } => {
                write!(f, "taint {node}")?;
                let is_set = |keys: &[&str]| taints.iter().any(|taint| keys.contains(&&*taint.key));
                let mark = |keys| if is_set(keys) { "" } else { "-" };
                write!(f, " {}{}", names::STARTUP_TAINT, mark(&names::STARTUP_TAINTS))?;
                write!(f, " {}{}", names::LEAVING_TAINT, mark(&[names::LEAVING_TAINT]))
            }
            Self::Delete { object, .. } => write!(f, "delete {object}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.why)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        Ok(())
    }
}
