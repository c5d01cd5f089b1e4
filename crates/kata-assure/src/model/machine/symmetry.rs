//! Which states are one: nodes are interchangeable, and uids that are not compared any more do not matter.

use super::State;
use crate::model::world::{MAX_NODES, Node};
use crate::model::write::{Planned, Write};

/// The same state with its nodes in order, and without uids that do not matter.
pub fn canonical(mut state: State) -> State {
    let size = usize::from(state.world.size);
    let mut order: [usize; MAX_NODES] = [0, 1, 2, 3];
    let key = |index: usize| {
        let node = state.world.nodes.get(index).copied();
        let lag = state.lag.world.nodes.get(index).copied();
        let places = |plan: &Vec<Planned>| {
            plan.iter().enumerate().fold(0u32, |places, (at, planned)| {
                let here = concerns(planned.write).is_some_and(|node| usize::from(node) == index);
                places | u32::from(here) << (at % 32)
            })
        };
        (node, lag, state.plans.each_ref().map(places))
    };
    if let Some(order) = order.get_mut(..size) {
        order.sort_by_cached_key(|index| key(*index));
    }
    if order != [0, 1, 2, 3] {
        let mut place = [0u8; MAX_NODES];
        for (to, from) in (0u8..).zip(order) {
            if let Some(place) = place.get_mut(from) {
                *place = to;
            }
        }
        let arrange = |nodes: [Node; MAX_NODES]| {
            order.map(|from| nodes.get(from).copied().unwrap_or_default())
        };
        state.world.nodes = arrange(state.world.nodes);
        state.lag.world.nodes = arrange(state.lag.world.nodes);
        for planned in state.plans.iter_mut().flatten() {
            let (Write::Label { node, .. } | Write::Record { node } | Write::DeleteRecord { node }) =
                &mut planned.write
            else {
                continue;
            };
            *node = place.get(usize::from(*node)).copied().unwrap_or_default();
        }
    }
    if state.plans.iter().all(Vec::is_empty) {
        // The next pass reads the pods again.
        for node in &mut state.world.nodes {
            node.late = false;
        }
    }
    if state.lag.mask == 0 && state.plans.iter().all(Vec::is_empty) {
        let world = &mut state.world;
        let owned = world.config.exists && world.class_owner == world.config.uid;
        world.class_owner = u8::from(world.class.exists() && !owned);
        world.class_closed &= world.class.exists();
        world.config.uid = 0;
        for object in [
            &mut world.machine_config,
            &mut world.pool.object,
            &mut world.log_level,
            &mut world.class,
        ] {
            object.uid = 0;
        }
    }
    state
}

fn concerns(write: Write) -> Option<u8> {
    match write {
        Write::Label { node, .. } | Write::Record { node } | Write::DeleteRecord { node } => {
            Some(node)
        }
        _ => None,
    }
}
