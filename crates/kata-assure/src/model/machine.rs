//! The states and moves that are enumerated: the cluster, one or two operators in the middle of a pass,
//! caches that lag behind, and what may still go wrong.
//!
//! Nodes are interchangeable, so a state is kept in the order of its nodes' states.

use kata_plan::Freshness;

use super::judge::{Distortion, Judge, Views};
use super::project::Unread;
use super::world::{Config, KataConfig, Node, Phase, World};
use super::write::{self, Broken, Planned, Server, Write, carry_out};
use super::{drain::Drain, events::Events};

mod lag;
mod people;
mod symmetry;

pub use lag::{Cache, Lag};
use people::{edit, remove};
pub use symmetry::canonical;

/// A state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The cluster.
    pub world: World,
    /// What is left of each operator's plan.
    pub plans: [Vec<Planned>; 2],
    /// The caches that lag.
    pub lag: Lag,
    /// How many edits of the KataConfig and the selection may still come.
    pub edits: u8,
    /// How many faults may still come.
    pub faults: u8,
    /// How many times caches may still stop.
    pub stalls: u8,
    /// The promises that were broken.
    pub broken: Broken,
}

/// How large a model is.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// How many workers.
    pub nodes: u8,
    /// How many edits by the user.
    pub edits: u8,
    /// How many faults.
    pub faults: u8,
    /// How many times caches stop following the cluster.
    pub stalls: u8,
    /// How many pods run at a time.
    pub pods: u8,
    /// How many operators act, where one should.
    pub operators: u8,
    /// Whether what is deleted stays for a while.
    pub lingers: bool,
    /// Whether the log level is edited.
    pub log_level: bool,
}

/// Something that an admin removes by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// The pool.
    Pool,
    /// The MachineConfig.
    MachineConfig,
    /// The RuntimeClass.
    Class,
    /// The runtime label.
    Verified(u8),
    /// The pool's label.
    Role(u8),
    /// The KataNode.
    Record(u8),
}

/// A move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// An operator reads and decides; a read may fail.
    Pass(u8, Option<Unread>),
    /// An operator's next write.
    Write(u8),
    /// An operator's next write is answered with an error; it may have been carried out.
    WriteFails(u8, bool),
    /// An operator crashes in the middle of its plan.
    Crash(u8),
    /// All caches stop, or one.
    Stall(Option<Cache>),
    /// A cache goes on.
    Resume(Cache),
    /// The render controller.
    Render,
    /// The node controller sees the labels.
    Count,
    /// The node controller sends a node to its pool's configuration.
    Target(u8),
    /// The next step of a node's daemon.
    Advance(u8),
    /// A node's change fails.
    Fail(u8),
    /// It works when tried again.
    Recover(u8),
    /// The garbage collector.
    Collect,
    /// Finalizers of other clients go.
    Finish,
    /// The scheduler binds a pod, or another client does, past the scheduler.
    Pod(u8),
    /// A pod ends.
    PodEnds(u8),
    /// The KataConfig is created.
    Create,
    /// The KataConfig is deleted.
    Delete,
    /// A node is selected, or not any more.
    Select(u8),
    /// The log level is edited.
    Debug,
    /// An admin removes something.
    Remove(Damage),
    /// An admin cordons a node, or uncordons it.
    Cordon(u8, bool),
    /// A node goes away, or comes back.
    Away(u8, bool),
    /// An admin pauses the pool, or goes on.
    Pause(bool),
}

/// The model.
#[derive(Debug)]
pub struct Machine {
    /// How large it is.
    pub scope: Scope,
    /// The decision.
    pub judge: Judge,
    /// What comes of states when faults stop.
    pub drain: Drain,
    /// What came about.
    pub events: Events,
    /// The API server.
    pub server: Server,
}

impl Machine {
    /// A model, possibly of a decision that is broken in one place.
    pub fn new(scope: Scope, distortion: Distortion) -> Self {
        Self {
            scope,
            judge: Judge::new(distortion),
            drain: Drain::default(),
            events: Events::default(),
            server: Server { lingers: scope.lingers, lawless: false },
        }
    }

    /// A cluster with a new KataConfig, and one where it is carried out.
    pub fn beginnings(&self) -> Vec<State> {
        let mut world = World { size: self.scope.nodes, ..World::default() };
        world.config = KataConfig { exists: true, ..KataConfig::default() };
        for node in world.nodes_mut() {
            node.wanted = true;
        }
        let Scope { edits, faults, stalls, .. } = self.scope;
        let start = |world| canonical(State { world, edits, faults, stalls, ..State::default() });
        let mut done = world;
        done.config = KataConfig { finalizer: true, offered: true, ..done.config };
        done.machine_config.create();
        done.pool.object.create();
        done.render();
        done.class.create();
        for node in done.nodes_mut() {
            *node = Node {
                role: true,
                seen: true,
                verified: true,
                record: true,
                current: Config::With,
                desired: Config::With,
                ..*node
            };
        }
        vec![start(world), start(done)]
    }

    /// The moves that can be made.
    pub fn moves(&self, state: &State, moves: &mut Vec<Action>) {
        let world = &state.world;
        let fault = state.faults > 0;
        for op in 0..self.scope.operators.min(2) {
            if state.plans.get(usize::from(op)).is_none_or(Vec::is_empty) {
                moves.push(Action::Pass(op, None));
                if fault {
                    moves.extend(Unread::ALL.map(|unread| Action::Pass(op, Some(unread))));
                }
            } else {
                moves.push(Action::Write(op));
                if fault {
                    moves.extend([
                        Action::WriteFails(op, false),
                        Action::WriteFails(op, true),
                        Action::Crash(op),
                    ]);
                }
            }
        }
        if state.stalls > 0 && state.lag.mask == 0 {
            moves.push(Action::Stall(None));
            moves.extend(Cache::ALL.map(|cache| Action::Stall(Some(cache))));
        }
        let lagging = Cache::ALL.into_iter().filter(|cache| state.lag.mask & cache.bit() != 0);
        moves.extend(lagging.map(Action::Resume));
        moves.extend([Action::Render, Action::Count, Action::Collect, Action::Finish]);
        for (index, node) in (0u8..).zip(world.nodes()) {
            self.node_moves(state, index, node, moves);
        }
        if state.edits > 0 {
            moves.push(if world.config.exists { Action::Delete } else { Action::Create });
            if self.scope.log_level {
                moves.push(Action::Debug);
            }
        }
        if fault {
            moves.extend([
                Action::Remove(Damage::Pool),
                Action::Remove(Damage::MachineConfig),
                Action::Remove(Damage::Class),
                Action::Pause(true),
            ]);
        }
        moves.push(Action::Pause(false));
    }

    fn node_moves(&self, state: &State, index: u8, node: &Node, moves: &mut Vec<Action>) {
        moves.extend([Action::Target(index), Action::Advance(index)]);
        let busy = state.world.nodes().iter().filter(|node| node.pod).count();
        if node.pod {
            moves.push(Action::PodEnds(index));
        } else if busy < usize::from(self.scope.pods) {
            moves.push(Action::Pod(index));
        }
        if state.edits > 0 {
            moves.push(Action::Select(index));
        }
        if state.faults > 0 {
            moves.extend([
                Action::Fail(index),
                Action::Cordon(index, true),
                Action::Away(index, true),
                Action::Remove(Damage::Verified(index)),
                Action::Remove(Damage::Role(index)),
                Action::Remove(Damage::Record(index)),
            ]);
        }
        match node.phase {
            Phase::Degraded => moves.push(Action::Recover(index)),
            _ if node.cordoned => moves.push(Action::Cordon(index, false)),
            _ if node.away => moves.push(Action::Away(index, false)),
            _ => {}
        }
    }

    /// What comes of a move; `None` if it changes nothing.
    pub fn after(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.make(&mut next, action)?;
        self.events.note(state, &next, action);
        let next = canonical(next);
        (next != *state).then_some(next)
    }

    fn make(&self, next: &mut State, action: Action) -> Option<()> {
        let lingers = self.server.lingers;
        if is_fault(action) {
            next.faults = next.faults.checked_sub(1)?;
        }
        match action {
            Action::Pass(op, unread) => self.pass(next, op, unread)?,
            Action::Write(op) => self.write(next, op, None)?,
            Action::WriteFails(op, carried_out) => self.write(next, op, Some(carried_out))?,
            Action::Crash(op) => next.plans.get_mut(usize::from(op))?.clear(),
            Action::Stall(cache) => {
                next.stalls = next.stalls.checked_sub(1)?;
                let mask = cache.map_or_else(
                    || Cache::ALL.iter().fold(0, |mask, cache| mask | cache.bit()),
                    Cache::bit,
                );
                next.lag = Lag::of(mask, &next.world);
            }
            Action::Resume(cache) => {
                next.lag = next.lag.with(!cache.bit());
            }
            Action::Render => did(next.world.render())?,
            Action::Count => did(next.world.count())?,
            Action::Collect => did(next.world.collect())?,
            Action::Finish => did(write::finish_deletions(&mut next.world))?,
            Action::Target(index) => {
                let target = next.world.can_target(usize::from(index))?;
                let careless = target == Config::Without && !next.world.by_hand;
                next.broken |= Broken::TWICE.when(careless);
                node(&mut next.world, index)?.desired = target;
            }
            Action::Advance(index) => did(next.world.advance(usize::from(index)))?,
            Action::Fail(index) => {
                turn(node(&mut next.world, index)?, Phase::Applying, Phase::Degraded)?;
            }
            Action::Recover(index) => {
                turn(node(&mut next.world, index)?, Phase::Degraded, Phase::Applying)?;
            }
            Action::Pod(index) => {
                let slips = next.plans.iter().all(Vec::is_empty);
                let world = next.world;
                let node = node(&mut next.world, index)?;
                let slips = slips && world.class.exists() && node.role && world.is_usable(node);
                did(world.can_schedule(node) || slips)?;
                node.pod = true;
                node.late = !slips;
            }
            Action::PodEnds(index) => {
                let node = node(&mut next.world, index)?;
                (node.pod, node.late) = (false, false);
            }
            Action::Create | Action::Delete | Action::Select(_) | Action::Debug => {
                next.edits = next.edits.checked_sub(1)?;
                edit(&mut next.world, action)?;
            }
            Action::Remove(damage) => remove(&mut next.world, damage, lingers)?,
            Action::Cordon(index, cordoned) => {
                let node = node(&mut next.world, index)?;
                did(node.cordoned != cordoned && node.phase == Phase::Done)?;
                node.cordoned = cordoned;
            }
            Action::Away(index, away) => {
                let node = node(&mut next.world, index)?;
                did(node.away != away && node.phase == Phase::Done)?;
                node.away = away;
            }
            Action::Pause(paused) => {
                did(next.world.pool.object.exists() && next.world.pool.paused != paused)?;
                next.world.pool.paused = paused;
            }
        }
        Some(())
    }

    fn pass(&self, next: &mut State, op: u8, unread: Option<Unread>) -> Option<()> {
        let objects = next.lag.with(Cache::Nodes.bit() | Cache::Records.bit());
        let views =
            Views { cached: next.lag.over(&next.world), objects: objects.over(&next.world) };
        let judged = self.judge.pass(&views, &next.world, unread);
        if unread.is_none() {
            // What was read past the caches goes into them.
            match judged.freshness {
                Freshness::Cached => {}
                Freshness::Objects => next.lag = objects,
                Freshness::Quorum => next.lag = Lag::default(),
            }
        }
        next.broken |= judged.broken;
        for node in next.world.nodes_mut() {
            node.late = false;
        }
        next.plans.get_mut(usize::from(op))?.extend(judged.writes.iter());
        Some(())
    }

    /// The next write of a plan; `failed` says that it is answered with an error, and whether it was
    /// carried out all the same.
    fn write(&self, next: &mut State, op: u8, failed: Option<bool>) -> Option<()> {
        let plan = next.plans.get_mut(usize::from(op))?;
        did(!plan.is_empty())?;
        let Planned { write, stop } = plan.remove(0);
        let mut refused = failed.is_some();
        if failed != Some(false) {
            let effect = carry_out(&mut next.world, write, self.server);
            next.broken |= effect.broken;
            refused |= effect.refused;
        }
        if refused && stop {
            plan.retain(|planned| matches!(planned.write, Write::Status { .. }));
        }
        Some(())
    }
}

fn did(done: bool) -> Option<()> {
    done.then_some(())
}

fn node(world: &mut World, index: u8) -> Option<&mut Node> {
    world.nodes_mut().get_mut(usize::from(index))
}

fn turn(node: &mut Node, from: Phase, to: Phase) -> Option<()> {
    did(node.phase == from)?;
    node.phase = to;
    Some(())
}

fn is_fault(action: Action) -> bool {
    match action {
        Action::Pass(_, unread) => unread.is_some(),
        Action::WriteFails(..) | Action::Crash(_) | Action::Fail(_) | Action::Remove(_) => true,
        Action::Cordon(_, wrong) | Action::Away(_, wrong) | Action::Pause(wrong) => wrong,
        _ => false,
    }
}
