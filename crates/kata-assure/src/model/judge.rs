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
use super::world::{Config, Node, World};
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
#[derive(Clone, Debug)]
pub struct Judged {
    /// What is to be written, in order; the status last.
    pub writes: Arc<[Planned]>,
    /// How the snapshot was read, or is to be read before there is a decision.
    pub freshness: Freshness,
    /// The promises that are broken by planning this.
    pub broken: Broken,
    /// Whether it says that sandboxed pods are in the way.
    pub blocked: bool,
    /// The nodes that lose the runtime label, as bits.
    pub unverified: u8,
}

impl Judged {
    /// No decision before this is read.
    fn wants(freshness: Freshness) -> Self {
        Self {
            writes: Arc::default(),
            freshness,
            broken: Broken::default(),
            blocked: false,
            unverified: 0,
        }
    }
}

/// What an operator sees, by how it reads.
#[derive(Clone, Copy, Debug)]
pub struct Views {
    /// In its caches.
    pub cached: World,
    /// With all objects but nodes and KataNodes read past the caches.
    pub objects: World,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    world: World,
    counted: u8,
    freshness: Freshness,
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
        self.remembered(world, world, Freshness::Quorum, unread)
    }

    /// A pass that begins with caches, which may show something else than the world.
    pub fn pass(&self, views: &Views, world: &World, unread: Option<Unread>) -> Judged {
        if views.cached == *world {
            return self.fresh(world, unread);
        }
        let mut freshness = Freshness::Cached;
        loop {
            let view = match freshness {
                Freshness::Cached => &views.cached,
                Freshness::Objects => &views.objects,
                Freshness::Quorum => return self.fresh(world, unread),
            };
            let judged = self.remembered(view, world, freshness, unread);
            if judged.freshness <= freshness {
                return judged;
            }
            freshness = judged.freshness;
        }
    }

    fn remembered(
        &self,
        view: &World,
        world: &World,
        freshness: Freshness,
        unread: Option<Unread>,
    ) -> Judged {
        let counted = view.counted();
        let mut key = Key { world: *view, counted, freshness, unread };
        for node in key.world.nodes_mut() {
            node.seen = false;
        }
        if let Some(judged) = self.memory.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return judged.clone();
        }
        let judged = self.judge(view, world, freshness, unread);
        let mut memory = self.memory.write().unwrap_or_else(PoisonError::into_inner);
        memory.entry(key).or_insert(judged).clone()
    }

    /// What the operator's shell does before it decides.
    fn judge(
        &self,
        view: &World,
        world: &World,
        freshness: Freshness,
        unread: Option<Unread>,
    ) -> Judged {
        let mut snapshot = project::snapshot(view, freshness, unread);
        let mut ended = false;
        for _ in 0..ROUNDS {
            let mut seen = snapshot.clone();
            (self.distortion.see)(&mut seen);
            let needs = kata_plan::needs(&seen);
            let wanted = needs.iter().filter_map(|need| match need {
                Need::Objects => Some(Freshness::Objects),
                Need::Quorum => Some(Freshness::Quorum),
                _ => None,
            });
            if let Some(wanted) = wanted.max() {
                return Judged::wants(wanted);
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
        let wanted = decision.plan.steps.iter().map(|step| step.action.freshness()).max();
        if let Some(wanted) = wanted.filter(|wanted| *wanted > freshness) {
            return Judged::wants(wanted);
        }
        let checked = !ended || !invariants::check(&snapshot, &decision).is_empty();
        let mut writes: Vec<Planned> = decision.plan.steps.iter().filter_map(planned).collect();
        let mut broken = Broken::CHECKED.when(checked);
        let mut unverified = 0;
        for planned in &writes {
            broken |= judge_write(view, freshness, planned.write)
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
        Judged { writes: writes.into(), freshness, broken, blocked, unverified }
    }
}

/// S3, at the moment of the decision.
fn judge_write(view: &World, freshness: Freshness, write: Write) -> Broken {
    match write {
        Write::Label { node, verified: Some(true), .. } => {
            let serves = |node: &Node| view.has_kata(node) && World::is_ready(node);
            let serves = view.nodes().get(usize::from(node)).is_some_and(serves);
            Broken::VERIFIED.when(!serves)
        }
        // An old cache may still show a class that was offered; the garbage collector sees to that.
        Write::Apply { object: Single::Class, closed: false, .. }
            if freshness > Freshness::Cached =>
        {
            let served = view.config.offered
                || view.class.exists()
                || view.nodes().iter().any(|node| view.has_kata(node));
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
        // Its pods are not known to have ended; of a node without Kata none can be running.
        (Unread::Pods, Write::Label { node, verified: Some(false), .. }) => {
            view.nodes().get(usize::from(node)).is_some_and(|node| view.has_kata(node))
        }
        (Unread::Rendered, Write::Label { node, verified: Some(false), .. }) => {
            view.nodes().get(usize::from(node)).is_some_and(|node| {
                let is_back = node.current == Config::Worker;
                node.wanted && node.is_open() && !is_back && !view.config.deleting
            })
        }
        (Unread::Pods | Unread::Rendered, _) => false,
        _ => true,
    }
}
