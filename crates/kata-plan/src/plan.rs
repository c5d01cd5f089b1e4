//! What is to be done, as data: a [`Plan`] is a list of [`Step`]s, each of which becomes one
//! [`Request`] to the API server.
//!
//! A step carries everything that execution needs, preconditions included; execution makes no choice
//! besides obeying [`OnFailure`]. Every step may be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::Taint;
use kata_api::names;
use kata_api::node_task::NodeAction;
use serde_json::{Map, Value, json};

use crate::object::{Kind, ObjectRef};
use crate::snapshot::Freshness;

/// What is to be done, in order. Empty if the cluster is as wanted or nothing can be done now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// Whether the steps after it may be done if it fails.
    pub on_failure: OnFailure,
    /// Why, in a few words for logs and `--dry-run`.
    pub why: String,
}

/// Whether the steps after a failed one may still be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The steps after it rely on it: do none of them in this pass.
    Stop,
    /// The steps after it do not depend on it.
    Continue,
}

/// A write, by what it is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Put our finalizer onto a KataConfig.
    AddFinalizer {
        /// The KataConfig.
        config: ObjectRef,
        /// Its resourceVersion: the list is replaced as a whole.
        resource_version: String,
        /// The whole list as it shall be.
        finalizers: Vec<String>,
    },
    /// Take our finalizers, old and new, off a KataConfig; the last step of its life.
    RemoveFinalizers {
        /// The KataConfig.
        config: ObjectRef,
        /// Its resourceVersion: the list is replaced as a whole.
        resource_version: String,
        /// The whole list as it shall be.
        finalizers: Vec<String>,
    },
    /// Server-side apply of our fields of an object.
    Apply {
        /// The object.
        object: ObjectRef,
        /// Our fields, complete, with apiVersion, kind and name.
        body: Value,
    },
    /// Server-side apply of an object's status.
    ApplyStatus {
        /// The object.
        object: ObjectRef,
        /// Our fields, complete, with apiVersion, kind and name.
        body: Value,
    },
    /// Set or remove labels of a node, and nothing else.
    LabelNode {
        /// The node.
        node: ObjectRef,
        /// The version in which the facts were seen on which this relies
        /// ([`NodeFacts::resource_version`](crate::NodeFacts)); a node whose facts changed since is not
        /// written. `None` if it is right whatever the node has become.
        seen: Option<String>,
        /// Labels to set.
        set: BTreeMap<String, String>,
        /// Labels to remove.
        remove: BTreeSet<String>,
    },
    /// Take the startup taint ([`kata_api::names::STARTUP_TAINT`]) off a node.
    LiftTaint {
        /// The node.
        node: ObjectRef,
        /// The version in which the taints were seen; a node whose facts changed since is not written,
        /// since the list of taints is replaced as a whole.
        seen: String,
        /// The other taints, as they were seen.
        left: Vec<Taint>,
    },
    /// Delete an object, if it is still the one that was seen.
    Delete {
        /// The object, with its uid.
        object: ObjectRef,
        /// The resourceVersion that it must still have, where a change since would matter.
        resource_version: Option<String>,
    },
}

/// A write as the API server wants it. Field manager: [`kata_api::names::FIELD_MANAGER`].
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `PATCH` with `application/apply-patch+yaml` and `force=true` (only ever our own fields).
    Apply {
        /// The object.
        object: ObjectRef,
        /// Whether it goes to `/status`.
        status: bool,
        /// The body.
        body: Value,
    },
    /// `PATCH` with `application/merge-patch+json`; preconditions are in the body's metadata.
    Merge {
        /// The object.
        object: ObjectRef,
        /// Whether it goes to `/status`.
        status: bool,
        /// The body.
        body: Value,
    },
    /// `DELETE` with preconditions and background propagation; 404 is success.
    Delete {
        /// The object.
        object: ObjectRef,
        /// Precondition, if known.
        uid: Option<String>,
        /// Precondition, if given.
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
            Self::LabelNode { node, .. } | Self::LiftTaint { node, .. } => node,
        }
    }

    /// Whether it can disturb a node, or removes what nodes or pods rely on.
    pub fn is_disruptive(&self) -> bool {
        self.freshness() > Freshness::Cached
    }

    /// How fresh the reads must be on which this is planned.
    ///
    /// The label of verified nodes disturbs nobody: putting it on is refused if the node has changed
    /// since, and taking it off only keeps new pods away, and must never be held back. The role label
    /// disturbs one node, which must still be as it was seen. A Job that changes a node must be one of no
    /// more than may run at once beside the nodes that are down, so Jobs and nodes are read again; one that
    /// only looks can be made twice at worst under the same name. What reaches many nodes at once, or cannot
    /// be taken back, wants everything read again.
    pub fn freshness(&self) -> Freshness {
        match self {
            // The taint goes from a node that is still as it was seen.
            Self::AddFinalizer { .. } | Self::ApplyStatus { .. } | Self::LiftTaint { .. } => {
                Freshness::Cached
            }
            Self::RemoveFinalizers { .. } => Freshness::Quorum,
            Self::LabelNode { seen, set, remove, .. } => {
                let role = names::KATA_ROLE_LABEL;
                match (set.contains_key(role) || remove.contains(role), seen) {
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
                // For the control plane, which is only right if there are no other workers.
                Kind::MachineConfig | Kind::ContainerRuntimeConfig => Freshness::Quorum,
                Kind::Job if changes_node(body) => Freshness::Quorum,
                _ => Freshness::Cached,
            },
            // Only Jobs that are over, or that change nothing, are deleted.
            Self::Delete { object, .. } if object.kind.is_beside() || object.kind == Kind::Job => {
                Freshness::Cached
            }
            Self::Delete { .. } => Freshness::Quorum,
        }
    }

    /// The request that carries it out.
    pub fn request(&self) -> Request {
        match self {
            Self::AddFinalizer { config, resource_version, finalizers }
            | Self::RemoveFinalizers { config, resource_version, finalizers } => Request::Merge {
                object: config.clone(),
                status: false,
                body: json!({"metadata": {
                    "uid": config.uid,
                    "resourceVersion": resource_version,
                    "finalizers": finalizers,
                }}),
            },
            Self::Apply { object, body } => {
                Request::Apply { object: object.clone(), status: false, body: body.clone() }
            }
            Self::ApplyStatus { object, body } => {
                Request::Apply { object: object.clone(), status: true, body: body.clone() }
            }
            Self::LabelNode { node, seen, set, remove } => {
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
            Self::LiftTaint { node, seen, left } => Request::Merge {
                object: node.clone(),
                status: false,
                body: json!({
                    "metadata": {"uid": node.uid, "resourceVersion": seen},
                    "spec": {"taints": (!left.is_empty()).then_some(left)},
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

/// Whether a MachineConfig or ContainerRuntimeConfig is for the pool of our own, and so reaches no node
/// that does not carry our role label.
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
            Self::LabelNode { node, seen: _, set, remove } => {
                write!(f, "label {node}")?;
                for (key, value) in set {
                    write!(f, " {key}={value}")?;
                }
                for key in remove {
                    write!(f, " {key}-")?;
                }
                Ok(())
            }
            Self::LiftTaint { node, .. } => write!(f, "untaint {node} {}-", names::STARTUP_TAINT),
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
