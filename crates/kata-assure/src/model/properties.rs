//! The promises, as properties of the model: what always holds, and what must come about somewhere.

use stateright::{Model, Property};

use super::events::Event;
use super::machine::{Action, Machine, State};
use super::world::{Config, Life, Phase};
use super::write::Broken;

impl Model for Machine {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.beginnings()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // What follows a broken promise proves nothing.
        if !state.broken.in_the_cluster() {
            self.moves(state, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.after(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = always();
        properties.extend(sometimes());
        properties
    }
}

fn always() -> Vec<Property<Machine>> {
    vec![
        Property::always("S1: nothing is taken from under a running pod", |_, s: &State| {
            !s.broken.has(Broken::PODS)
        }),
        Property::always("S2: nothing is taken while pods can still come", |_, s: &State| {
            !s.broken.has(Broken::WINDOW)
        }),
        Property::always(
            "S3: only nodes with Kata are marked, and classes served",
            |_, s: &State| !s.broken.has(Broken::VERIFIED),
        ),
        Property::always("S3: a node without Kata loses its mark in a pass", loses_mark),
        Property::always("the pool is not deleted under its nodes", |_, s: &State| {
            !s.broken.has(Broken::STRANDED)
        }),
        Property::always("no node is left without its configuration", |_, s: &State| {
            let world = &s.world;
            world.by_hand || !world.nodes().iter().any(|node| world.is_stuck(node))
        }),
        Property::always("the MachineConfig is there before a node is sent", |_, s: &State| {
            !s.broken.has(Broken::TWICE)
        }),
        Property::always("S7: the finalizer goes when nothing is left", |_, s: &State| {
            !s.broken.has(Broken::TRACES)
        }),
        Property::always("S8: only the object that was seen is deleted", |_, s: &State| {
            !s.broken.has(Broken::ANOTHER)
        }),
        Property::always("S9: only what is ours is written", |_, s: &State| {
            !s.broken.has(Broken::STRANGE)
        }),
        Property::always("S10: the finalizer is there before anything else", |_, s: &State| {
            !s.broken.has(Broken::FINALIZER)
        }),
        Property::always("S13: what is unknown disturbs nothing", |_, s: &State| {
            !s.broken.has(Broken::UNKNOWN)
        }),
        Property::always("the decision's own checker agrees", |_, s: &State| {
            !s.broken.has(Broken::CHECKED)
        }),
        Property::always("ESR: every state drains to what is wanted", |m: &Machine, s: &State| {
            s.broken.in_the_cluster() || m.drain.drains(&m.judge, &s.world)
        }),
    ]
}

/// S3: a pass on fresh reads takes the mark from every node of ours that does not have Kata.
fn loses_mark(machine: &Machine, state: &State) -> bool {
    let world = &state.world;
    let config = world.config;
    let active = config.exists && (config.finalizer || !config.deleting);
    let mut wrong = 0u8;
    for (index, node) in (0u8..).zip(world.nodes()) {
        let ours = node.wanted || node.role || node.on_pool() || node.record;
        // A node whose state is unknown keeps its label, and so does one that leaves, until its pods have ended.
        let is_known = !world.is_stuck(node) && node.wanted && !config.deleting;
        wrong |= u8::from(ours && is_known && node.verified && !world.has_kata(node)) << index;
    }
    wrong == 0 || !active || machine.judge.fresh(world, None).unverified & wrong == wrong
}

fn sometimes() -> Vec<Property<Machine>> {
    vec![
        Property::sometimes("all nodes are installed", |_, s: &State| {
            s.world.nodes().iter().all(|node| node.verified && node.current == Config::With)
        }),
        Property::sometimes("a node is drained", |_, s: &State| phase(s, Phase::Draining)),
        Property::sometimes("a node is applying", |_, s: &State| phase(s, Phase::Applying)),
        Property::sometimes("a node reboots", |_, s: &State| phase(s, Phase::Rebooting)),
        Property::sometimes("two pools change a node each", |_, s: &State| {
            s.world.nodes().iter().filter(|node| node.phase != Phase::Done).count() > 1
        }),
        Property::sometimes("a node runs the pool's configuration without ours", |_, s: &State| {
            s.world.nodes().iter().any(|node| node.current == Config::Without)
        }),
        Property::sometimes("pods hold up the deletion", |_, s: &State| {
            s.world.config.deleting && s.world.nodes().iter().any(|node| node.pod)
        }),
        Property::sometimes("pods hold a node that is not selected any more", |_, s: &State| {
            let leaves = |node: &super::world::Node| node.pod && !node.wanted && node.verified;
            !s.world.config.deleting && s.world.nodes().iter().any(leaves)
        }),
        Property::sometimes("the KataConfig is gone without a trace", |_, s: &State| {
            !s.world.config.exists && !s.world.has_traces()
        }),
        Property::sometimes(
            "a KataConfig is deleted while nodes are installing",
            |_, s: &State| s.world.config.deleting && phase(s, Phase::Rebooting),
        ),
        Property::sometimes("another KataConfig of the same name is installed", |_, s: &State| {
            s.world.config.exists && s.edits == 0 && s.world.class.life == Life::Live
        }),
        Property::sometimes("the pool is paused", |_, s: &State| s.world.pool.paused),
        Property::sometimes("the node controller lags behind", |_, s: &State| {
            s.world.nodes().iter().any(|node| node.seen && !node.role)
        }),
        event("a plan is cut short by a crash", |m, _| m.events.happened(Event::CrashInPlan)),
        event("an answer is lost", |m, _| m.events.happened(Event::LostAnswer)),
        event("a pass is made on a failed read", |m, _| m.events.happened(Event::PassOnFailedRead)),
        event("a pass writes from a cache that lags", |m, _| {
            m.events.happened(Event::WroteFromCache)
        }),
        event("a pass looks past a cache that lags", |m, _| {
            m.events.happened(Event::LookedPastCache)
        }),
        event("a precondition refuses a write", |m, _| m.events.happened(Event::Refused)),
        event("a node leaves by a change of selection", |m, _| m.events.happened(Event::ScaledIn)),
        event("the finalizer is taken off", |m, _| m.events.happened(Event::Removed)),
        event("something is removed by hand", |m, _| m.events.happened(Event::Damaged)),
        event("the pool is put back under its nodes", |m, _| m.events.happened(Event::PoolPutBack)),
        event("a pod slips in", |m, _| m.events.happened(Event::SlippedIn)),
        event("a node's change fails", |m, _| m.events.happened(Event::Failed)),
        event("the RuntimeClass is deleted", |m, _| m.events.happened(Event::ClassDeleted)),
    ]
}

fn event(name: &'static str, condition: fn(&Machine, &State) -> bool) -> Property<Machine> {
    Property::sometimes(name, condition)
}

fn phase(state: &State, phase: Phase) -> bool {
    state.world.nodes().iter().any(|node| node.phase == phase)
}
