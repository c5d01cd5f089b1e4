//! The operator's requests as changes of the model's cluster.
//!
//! A request is read as the API server would read it, with its preconditions; what it means to the
//! promises is judged here at the moment when it takes effect, and nowhere is anything decided.

use std::ops::{BitOr, BitOrAssign};

use kata_api::names;
use kata_plan::{Kind, ObjectRef, OnFailure, Request, Step};
use serde_json::Value;

use super::project;
use super::world::{Life, World};

/// Broken promises, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Broken(u16);

impl Broken {
    /// S1: something was taken from under a running pod.
    pub const PODS: Self = Self(1);
    /// S2: something was taken while new pods could still come.
    pub const WINDOW: Self = Self(1 << 1);
    /// S3: a node was marked, or a class offered, that could not run pods when the cluster was read.
    pub const VERIFIED: Self = Self(1 << 2);
    /// The pool or its MachineConfig was deleted under a node.
    pub const STRANDED: Self = Self(1 << 3);
    /// A node was sent to a configuration of the pool without our MachineConfig.
    pub const TWICE: Self = Self(1 << 4);
    /// S7: the finalizer went while something was left.
    pub const TRACES: Self = Self(1 << 5);
    /// S10: something was written before there was a finalizer.
    pub const FINALIZER: Self = Self(1 << 6);
    /// S13: something disruptive was planned although a read had failed.
    pub const UNKNOWN: Self = Self(1 << 7);
    /// The decision's own checker found fault with it.
    pub const CHECKED: Self = Self(1 << 8);
    /// S9: a request that is none of those that the operator may send.
    pub const STRANGE: Self = Self(1 << 9);
    /// S8: an object was deleted that is, or could be, another than the one that was seen.
    pub const ANOTHER: Self = Self(1 << 10);

    /// Whether one of these is among them.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether a promise is broken by what was done or planned, and not only in the words of the checker.
    pub fn in_the_cluster(self) -> bool {
        self.0 & !Self::CHECKED.0 != 0
    }

    /// This one, if it holds.
    pub fn when(self, holds: bool) -> Self {
        if holds { self } else { Self::default() }
    }
}

impl BitOr for Broken {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Broken {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// An object of which there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Single {
    /// Our MachineConfig.
    MachineConfig,
    /// The pool `kata-oc`.
    Pool,
    /// Our ContainerRuntimeConfig.
    LogLevel,
    /// The RuntimeClass.
    Class,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Write {
    /// Puts our finalizer on, or takes it off.
    Finalizer {
        /// Whether it is there afterwards.
        set: bool,
        /// Precondition.
        uid: u8,
        /// Precondition.
        version: u8,
    },
    /// The status of the KataConfig, at the end of a pass.
    Status {
        /// Whether it names the RuntimeClass.
        offered: bool,
        /// Precondition.
        uid: u8,
    },
    /// Labels of a node.
    Label {
        /// Its index.
        node: u8,
        /// The pool's label, if it is written.
        role: Option<bool>,
        /// The label of verified nodes, if it is written.
        verified: Option<bool>,
        /// Precondition, if given.
        version: Option<u16>,
    },
    /// Server-side apply; creates what is not there.
    Apply {
        /// The object.
        object: Single,
        /// The uid of the owner that it gets, if it gets one.
        owner: u8,
        /// Whether it is a class that selects a label that no node has.
        closed: bool,
    },
    /// Server-side apply of a node's KataNode.
    Record {
        /// The node's index.
        node: u8,
    },
    /// Deletes an object.
    Delete {
        /// The object.
        object: Single,
        /// Precondition, if given.
        uid: Option<u8>,
    },
    /// Deletes a node's KataNode.
    DeleteRecord {
        /// The node's index.
        node: u8,
    },
    /// Something that the operator has no business to write.
    Strange,
}

/// A write of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Planned {
    /// The write.
    pub write: Write,
    /// Whether the writes after it are dropped if it fails.
    pub stop: bool,
}

/// The write that a step is; `None` for one that only reports (a KataNode's status).
pub fn planned(step: &Step) -> Option<Planned> {
    let stop = step.on_failure == OnFailure::Stop;
    let write = match step.action.request() {
        Request::Apply { object, status: true, .. } if object.kind == Kind::KataNode => {
            return None;
        }
        Request::Apply { object, status: false, body } => apply(&object, &body),
        Request::Merge { object, status: false, body } => merge(&object, &body),
        Request::Delete { object, uid, .. } => delete(&object, uid.as_deref()),
        Request::Apply { .. } | Request::Merge { .. } => None,
    };
    Some(Planned { write: write.unwrap_or(Write::Strange), stop })
}

fn single(object: &ObjectRef) -> Option<Single> {
    match (object.kind, object.name.as_str()) {
        (Kind::MachineConfig, names::MACHINE_CONFIG) => Some(Single::MachineConfig),
        (Kind::MachineConfigPool, names::POOL) => Some(Single::Pool),
        (Kind::ContainerRuntimeConfig, names::CONTAINER_RUNTIME_CONFIG) => Some(Single::LogLevel),
        (Kind::RuntimeClass, names::RUNTIME_CLASS) => Some(Single::Class),
        _ => None,
    }
}

fn apply(object: &ObjectRef, body: &Value) -> Option<Write> {
    if object.kind == Kind::KataNode {
        return Some(Write::Record { node: project::index(&object.name)? });
    }
    let object = single(object)?;
    let mut closed = false;
    let sound = match object {
        Single::MachineConfig => body["spec"]["extensions"][0] == names::EXTENSION,
        Single::Pool => {
            let selector = &body["spec"]["nodeSelector"]["matchLabels"];
            selector.get(names::KATA_ROLE_LABEL).is_some()
        }
        Single::LogLevel => body["spec"]["containerRuntimeConfig"]["logLevel"] == "debug",
        Single::Class => {
            let selector = &body["scheduling"]["nodeSelector"];
            closed = selector.get(names::CLOSED_LABEL).is_some();
            let class = names::class_label(names::RUNTIME_CLASS);
            closed
                || selector[names::RUNTIME_LABEL] == names::RUNTIME_LABEL_VERIFIED
                    && selector[&class] == names::CLASS_LABEL_SERVED
                    && selector.get(names::KATA_ROLE_LABEL).is_some()
        }
    };
    let owner = body["metadata"]["ownerReferences"][0]["uid"].as_str();
    let owner = owner.and_then(project::parse_uid).unwrap_or_default();
    sound.then_some(Write::Apply { object, owner, closed })
}

fn merge(object: &ObjectRef, body: &Value) -> Option<Write> {
    let metadata = body.get("metadata")?;
    match object.kind {
        Kind::KataConfig => Some(Write::Finalizer {
            set: metadata["finalizers"].as_array()?.iter().any(|name| name == names::FINALIZER),
            uid: project::parse_uid(metadata["uid"].as_str()?)?,
            version: metadata["resourceVersion"].as_str()?.parse().ok()?,
        }),
        Kind::Node => {
            let labels = metadata["labels"].as_object()?;
            let class = names::class_label(names::RUNTIME_CLASS);
            let ours = [names::KATA_ROLE_LABEL, names::RUNTIME_LABEL, &class];
            let value = |key: &str| labels.get(key).map(|value| !value.is_null());
            labels.keys().all(|key| ours.contains(&key.as_str())).then_some(Write::Label {
                node: project::index(&object.name)?,
                role: value(names::KATA_ROLE_LABEL),
                verified: value(names::RUNTIME_LABEL),
                version: match metadata.get("resourceVersion") {
                    Some(version) => Some(version.as_str()?.parse().ok()?),
                    None => None,
                },
            })
        }
        _ => None,
    }
}

fn delete(object: &ObjectRef, uid: Option<&str>) -> Option<Write> {
    if object.kind == Kind::KataNode {
        return Some(Write::DeleteRecord { node: project::index(&object.name)? });
    }
    Some(Write::Delete { object: single(object)?, uid: uid.and_then(project::parse_uid) })
}

/// What became of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Whether the API server refused it.
    pub refused: bool,
    /// The promises that it broke.
    pub broken: Broken,
}

/// How the API server behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// What is deleted stays until another client's finalizer is gone.
    pub lingers: bool,
    /// It does not heed preconditions; only tests of the model want that.
    pub lawless: bool,
}

/// Carries a write out.
pub fn carry_out(world: &mut World, write: Write, server: Server) -> Effect {
    let config = world.config;
    let guarded = !config.exists || config.finalizer;
    let refused = Effect { refused: true, broken: Broken::default() };
    let mut broken = match write {
        Write::Finalizer { .. } | Write::Status { .. } | Write::Strange => Broken::default(),
        _ => Broken::FINALIZER.when(!guarded),
    };
    match write {
        Write::Finalizer { set, uid, version } => {
            let changed = (config.uid, config.version()) != (uid, version);
            if !config.exists || changed && !server.lawless {
                return refused;
            }
            broken |= Broken::TRACES.when(config.finalizer && !set && world.has_traces());
            // A KataConfig that is being deleted takes no new finalizer.
            world.config.finalizer = set && (config.finalizer || !config.deleting);
            world.settle_config();
        }
        Write::Status { offered, uid } => {
            if !config.exists || config.uid != uid {
                return refused;
            }
            world.config.offered = offered;
        }
        Write::Label { node, role, verified, version } => {
            let has_kata =
                world.nodes().get(usize::from(node)).is_some_and(|node| world.has_kata(node));
            let Some(node) = world.nodes_mut().get_mut(usize::from(node)) else { return refused };
            let changed = version.is_some_and(|version| version != node.version());
            if changed && !server.lawless {
                return refused;
            }
            if role == Some(false) && node.role {
                broken |= Broken::PODS.when(node.pod) | Broken::WINDOW.when(node.verified);
            }
            if verified == Some(false) && node.verified {
                // A kubelet that restarts would fail the pod. The operator puts the label back for a pod that it could
                // not have read.
                broken |= Broken::PODS.when(node.pod && !node.late && has_kata);
            }
            node.role = role.unwrap_or(node.role);
            node.verified = verified.unwrap_or(node.verified);
        }
        Write::Record { node } => {
            let Some(node) = world.nodes_mut().get_mut(usize::from(node)) else { return refused };
            node.record = true;
        }
        Write::DeleteRecord { node } => {
            let Some(node) = world.nodes_mut().get_mut(usize::from(node)) else { return refused };
            node.record = false;
        }
        Write::Apply { object, owner, closed } => apply_single(world, object, owner, closed),
        Write::Delete { object, uid } => {
            let existing = match object {
                Single::MachineConfig => world.machine_config,
                Single::Pool => world.pool.object,
                Single::LogLevel => world.log_level,
                Single::Class => world.class,
            };
            if existing.exists() {
                let another = uid.is_some_and(|uid| uid != existing.uid);
                if another && !server.lawless {
                    return refused;
                }
                broken |= Broken::ANOTHER.when(another || uid.is_none());
                broken |= delete_single(world, object, server.lingers);
            }
        }
        Write::Strange => broken |= Broken::STRANGE,
    }
    Effect { refused: false, broken }
}

fn apply_single(world: &mut World, object: Single, owner: u8, closed: bool) {
    match object {
        Single::MachineConfig => drop(world.machine_config.create()),
        Single::Pool => drop(world.pool.object.create()),
        Single::LogLevel => drop(world.log_level.create()),
        Single::Class => {
            world.class.create();
            world.class_owner = owner;
            world.class_closed = closed;
        }
    }
}

fn delete_single(world: &mut World, object: Single, lingers: bool) -> Broken {
    let nodes = world.nodes();
    let pods = nodes.iter().any(|node| node.pod);
    let open = nodes.iter().any(|node| node.verified);
    let under = nodes.iter().any(|node| node.role || node.on_pool());
    match object {
        Single::Class => {
            world.class.delete(lingers);
            Broken::PODS.when(pods) | Broken::WINDOW.when(open)
        }
        Single::Pool => {
            world.delete_pool(lingers);
            Broken::STRANDED.when(under)
        }
        Single::MachineConfig => {
            world.machine_config.delete(lingers);
            Broken::STRANDED.when(under)
        }
        Single::LogLevel => {
            world.log_level.delete(lingers);
            Broken::default()
        }
    }
}

/// Ends what lingers. Says whether something did.
pub fn finish_deletions(world: &mut World) -> bool {
    let mut any = false;
    for object in [&mut world.machine_config, &mut world.log_level, &mut world.class] {
        if object.life == Life::Deleting {
            object.life = Life::Absent;
            any = true;
        }
    }
    if world.pool.object.life == Life::Deleting {
        world.end_pool();
        any = true;
    }
    any
}
