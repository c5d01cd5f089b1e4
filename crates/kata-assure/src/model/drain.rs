//! From any state, when faults stop: does the cluster come to be as the KataConfig says, and stay so?
//!
//! Eventual stability is checked as an invariant, so that a cycle cannot hide: from every world the
//! deterministic closure without faults must reach a fixed point within a bound, and the fixed point
//! must be the right one. Results are remembered by world.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use super::judge::Judge;
use super::machine::{State, canonical};
use super::world::{Config, Life, Node, Phase, World};
use super::write::{self, Server, carry_out};

/// Most rounds of one pass and one rest of the cluster: a few for the objects, and some for each node.
const ROUNDS: usize = 24;
/// Most moves of the cluster between two passes.
const MOVES: usize = 256;

/// How many rounds worlds take to come to rest, as far as it is known; `None` if they never do, or
/// where they should not.
#[derive(Debug, Default)]
pub struct Drain {
    memory: RwLock<HashMap<World, Option<usize>>>,
}

/// What a round came to.
enum Round {
    /// Something was done.
    Moved,
    /// There is nothing to do, as it should be.
    Rested,
    /// There is nothing to do and it should not be so, or the cluster does not come to rest.
    Wrong,
}

impl Drain {
    /// Whether the world comes to rest where it should, within the bound.
    pub fn drains(&self, judge: &Judge, world: &World) -> bool {
        let mut world = *world;
        heal(&mut world);
        let mut trail = Vec::new();
        let rounds = loop {
            world = canonical(State { world, ..State::default() }).world;
            let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = memory.get(&world) {
                break known.map(|rounds| rounds + trail.len());
            }
            drop(memory);
            if trail.len() > ROUNDS {
                break None;
            }
            trail.push(world);
            match round(judge, &mut world) {
                Round::Moved => {}
                Round::Rested => break Some(trail.len()),
                Round::Wrong => break None,
            }
        };
        let mut memory = self.memory.write().unwrap_or_else(PoisonError::into_inner);
        for (before, world) in trail.into_iter().enumerate() {
            memory.insert(world, rounds.and_then(|rounds| rounds.checked_sub(before)));
        }
        rounds.is_some_and(|rounds| rounds <= ROUNDS)
    }
}

/// The cluster comes to rest, and then the operator makes a pass. When both have nothing to do because
/// of pods, the pods end.
fn round(judge: &Judge, world: &mut World) -> Round {
    if !settle(world) {
        return Round::Wrong;
    }
    let judged = judge.fresh(world, None);
    if !judged.writes.is_empty() {
        for planned in judged.writes.iter() {
            let effect = carry_out(world, planned.write, Server::default());
            if effect.refused && planned.stop {
                break;
            }
        }
        return Round::Moved;
    }
    let as_wanted = is_as_wanted(world);
    let pods = world.nodes().iter().any(|node| node.pod);
    // A kubelet that restarts would fail a pod whose node has no label.
    let at_risk = |node: &Node| node.pod && world.is_usable(node) && !node.verified;
    if world.nodes().iter().any(at_risk) {
        return Round::Wrong;
    }
    if pods && (as_wanted || judged.blocked) {
        for node in world.nodes_mut() {
            node.pod = false;
        }
        return Round::Moved;
    }
    if as_wanted { Round::Rested } else { Round::Wrong }
}

/// Faults are over: what an admin did is undone.
fn heal(world: &mut World) {
    world.pool.paused = false;
    for node in world.nodes_mut() {
        node.cordoned = false;
        node.away = false;
        if node.phase == Phase::Degraded {
            node.phase = Phase::Applying;
        }
    }
}

/// All but the operator move until none of them can.
fn settle(world: &mut World) -> bool {
    for _ in 0..MOVES {
        let mut moved = write::finish_deletions(world) | world.collect();
        moved |= world.render();
        moved |= world.count();
        for index in 0..usize::from(world.size) {
            if let Some(target) = world.can_target(index)
                && let Some(node) = world.nodes_mut().get_mut(index)
            {
                node.desired = target;
                moved = true;
            }
            moved |= world.advance(index);
        }
        if !moved {
            return true;
        }
    }
    false
}

/// Whether the cluster is as the KataConfig says.
pub fn is_as_wanted(world: &World) -> bool {
    let config = world.config;
    if !config.exists {
        return !world.has_traces();
    }
    if config.deleting {
        return false;
    }
    let any = world.nodes().iter().any(|node| node.wanted);
    let nodes = world.nodes().iter().all(|node| {
        let runs = if node.wanted { Config::With } else { Config::Worker };
        (node.role, node.verified, node.record) == (node.wanted, node.wanted, node.wanted)
            && (node.current, node.desired, node.phase) == (runs, runs, Phase::Done)
    });
    let objects = world.machine_config.life == Life::Live
        && world.pool.object.life == Life::Live
        && world.pool.rendered == Config::With
        && world.log_level.exists() == config.debug
        && (world.class.life == Life::Live && world.class_owner == config.uid)
        && !world.class_closed;
    // Where no node is selected, what was begun may stay, and nothing need be begun.
    config.finalizer && nodes && (objects || !any)
}
