//! The real decision on a world of the model, remembered by world, and what it means to the promises at
//! the moment when it is made.
//!
//! It calls `kata_plan::needs` and `kata_plan::decide` as the operator's shell does, and decides nothing
//! by itself. A distortion, which tests give, breaks the decision in one place.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use kata_api::{Code, names};
use kata_plan::{Decision, Freshness, Need, Snapshot, invariants};

use super::project::{self, Unread};
use super::world::{Config, World};
use super::write::{Broken, Planned, Single, Write, planned};

/// More rounds of reads than this mean that the decision asks for the same again.
const ROUNDS: usize = 8;

/// What is done to the decision to show that a promise can be broken; nothing by default.
#[derive(Clone, Copy)]
pub struct Distortion {
    /// Changes what the decision is made about.
    pub see: fn(&mut Snapshot),
    /// Changes what was decided.
    pub act: fn(&Snapshot, &mut Decision),
}

impl Default for Distortion {
    fn default() -> Self {
        Self { see: |_| {}, act: |_, _| {} }
    }
}

impl std::fmt::Debug for Distortion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Distortion")
    }
}

/// A decision, as the model needs it.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// What is to be written, in order; the status last.
    pub writes: Arc<[Planned]>,
    /// Whether the snapshot was read past the caches.
    pub quorum: bool,
    /// The promises that are broken by planning this.
    pub broken: Broken,
    /// Whether it says that sandboxed pods are in the way.
    pub blocked: bool,
    /// The nodes that lose the label of verified nodes, as bits.
    pub unverified: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    world: World,
    counted: u8,
    cached: bool,
    unread: Option<Unread>,
}

/// Decides, and remembers.
#[derive(Debug, Default)]
pub struct Judge {
    distortion: Distortion,
    memory: RwLock<HashMap<Key, Judged>>,
}

impl Judge {
    /// A judge of a decision that is broken in one place.
    pub fn new(distortion: Distortion) -> Self {
        Self { distortion, memory: RwLock::default() }
    }

    /// How many different decisions were made.
    pub fn decisions(&self) -> usize {
        self.memory.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// A pass on up-to-date reads, of which one may fail.
    pub fn fresh(&self, world: &World, unread: Option<Unread>) -> Judged {
        self.remembered(world, world, false, unread)
    }

    /// A pass that begins with caches that show `view` instead of `world`.
    pub fn pass(&self, view: &World, world: &World, unread: Option<Unread>) -> Judged {
        if view == world {
            return self.fresh(world, unread);
        }
        let judged = self.remembered(view, world, true, unread);
        if judged.quorum { self.fresh(world, unread) } else { judged }
    }

    fn remembered(
        &self,
        view: &World,
        world: &World,
        cached: bool,
        unread: Option<Unread>,
    ) -> Judged {
        let counted = view.counted();
        let mut key = Key { world: *view, counted, cached, unread };
        for node in key.world.nodes_mut() {
            node.seen = false;
        }
        if let Some(judged) = self.memory.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return judged.clone();
        }
        let judged = self.judge(view, world, cached, unread);
        let mut memory = self.memory.write().unwrap_or_else(PoisonError::into_inner);
        memory.entry(key).or_insert(judged).clone()
    }

    /// What the operator's shell does before it decides.
    fn judge(&self, view: &World, world: &World, cached: bool, unread: Option<Unread>) -> Judged {
        let freshness = if cached { Freshness::Cached } else { Freshness::Quorum };
        let mut snapshot = project::snapshot(view, freshness, unread);
        let mut ended = false;
        for _ in 0..ROUNDS {
            let mut seen = snapshot.clone();
            (self.distortion.see)(&mut seen);
            let needs = kata_plan::needs(&seen);
            if needs.contains(&Need::Quorum) {
                return Judged { quorum: true, ..Judged::default() };
            }
            if needs.is_empty() {
                ended = true;
                break;
            }
            for need in needs {
                // Pods and rendered MachineConfigs never come from a cache.
                project::meet(world, need, unread, &mut snapshot);
            }
        }
        let mut seen = snapshot.clone();
        (self.distortion.see)(&mut seen);
        let mut decision = kata_plan::decide(&seen);
        (self.distortion.act)(&seen, &mut decision);
        if cached && decision.plan.steps.iter().any(|step| step.action.is_disruptive()) {
            return Judged { quorum: true, ..Judged::default() };
        }
        let checked = !ended || !invariants::check(&snapshot, &decision).is_empty();
        let mut writes: Vec<Planned> = decision.plan.steps.iter().filter_map(planned).collect();
        let mut broken = Broken::CHECKED.when(checked);
        let mut unverified = 0;
        for planned in &writes {
            broken |= judge_write(view, cached, planned.write)
                | Broken::UNKNOWN.when(unread.is_some_and(|un| disturbs(view, planned.write, un)));
            if let Write::Label { node, verified: Some(false), .. } = planned.write {
                unverified |= 1 << node;
            }
        }
        if let Some(status) = &decision.report.status {
            let classes = &status.status.runtime_classes;
            let offered = classes.iter().any(|class| class == names::RUNTIME_CLASS);
            if offered != view.config.offered {
                let write = Write::Status { offered, uid: view.config.uid };
                writes.push(Planned { write, stop: false });
            }
        }
        let blocked = decision.report.findings.iter().any(|finding| {
            matches!(finding.code, Code::PodsStillRunning | Code::PodsOnLeavingNode)
        });
        Judged { writes: writes.into(), quorum: !cached, broken, blocked, unverified }
    }
}

/// S3, at the moment of the decision.
fn judge_write(view: &World, cached: bool, write: Write) -> Broken {
    match write {
        Write::Label { node, verified: Some(true), .. } => {
            let usable =
                view.nodes().get(usize::from(node)).is_some_and(|node| view.is_usable(node));
            Broken::VERIFIED.when(!usable)
        }
        // An old cache may still show a class that was offered; the garbage collector sees to that.
        Write::Apply { object: Single::Class, .. } if !cached => {
            let served = view.config.offered
                || view.class.exists()
                || view.nodes().iter().any(|node| view.is_usable(node));
            Broken::VERIFIED.when(!served)
        }
        _ => Broken::default(),
    }
}

/// Whether a write must not follow from a snapshot in which this is unknown.
fn disturbs(view: &World, write: Write, unread: Unread) -> bool {
    match (unread, write) {
        (_, Write::Finalizer { set: true, .. } | Write::Status { .. }) => false,
        (
            Unread::Pods,
            Write::Label { role: Some(false), .. } | Write::Delete { object: Single::Class, .. },
        ) => true,
        (Unread::Rendered, Write::Label { node, verified: Some(false), .. }) => {
            view.nodes().get(usize::from(node)).is_some_and(|node| {
                let told = node.current == Config::Worker;
                node.wanted && node.is_open() && !told && !view.config.deleting
            })
        }
        (Unread::Pods | Unread::Rendered, _) => false,
        _ => true,
    }
}
