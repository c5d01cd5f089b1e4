//! Caches that lag behind: which of them do, and what the operator sees instead of the cluster.

use crate::model::world::{Node, Pool, World};

/// The kinds whose cache can lag behind on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    /// KataConfigs.
    Config,
    /// Nodes.
    Nodes,
    /// Pools.
    Pool,
    /// MachineConfigs and ContainerRuntimeConfigs.
    Configs,
    /// RuntimeClasses.
    Class,
    /// KataNodes.
    Records,
}

impl Cache {
    pub(super) const ALL: [Self; 6] =
        [Self::Config, Self::Nodes, Self::Pool, Self::Configs, Self::Class, Self::Records];

    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What the caches show, where they lag behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lag {
    /// The caches that lag, as bits.
    pub(super) mask: u8,
    /// What they show.
    pub(super) world: World,
}

impl Lag {
    pub(super) fn of(mask: u8, world: &World) -> Self {
        let empty = World { size: world.size, ..World::default() };
        let lag = Self { mask, world: *world };
        Self { mask, world: if mask == 0 { World::default() } else { lag.over(&empty) } }
    }

    /// What is left of it when only these caches still lag.
    pub(super) fn with(&self, mask: u8) -> Self {
        Self::of(self.mask & mask, &self.world)
    }

    /// The world as these caches show it.
    pub(super) fn over(&self, world: &World) -> World {
        let mut view = *world;
        let old = &self.world;
        let lags = |cache: Cache| self.mask & cache.bit() != 0;
        for (node, before) in view.nodes_mut().iter_mut().zip(old.nodes()) {
            if lags(Cache::Nodes) {
                *node = Node { pod: node.pod, record: node.record, seen: node.seen, ..*before };
            }
            if lags(Cache::Records) {
                node.record = before.record;
            }
            if lags(Cache::Pool) {
                node.seen = before.seen;
            }
        }
        if lags(Cache::Config) {
            view.config = old.config;
        }
        if lags(Cache::Pool) {
            // What was rendered is read by name, past any cache.
            let Pool { has_with, has_without, .. } = view.pool;
            view.pool = Pool { has_with, has_without, ..old.pool };
        }
        if lags(Cache::Configs) {
            view.machine_config = old.machine_config;
            view.log_level = old.log_level;
        }
        if lags(Cache::Class) {
            view.class = old.class;
            (view.class_owner, view.class_closed) = (old.class_owner, old.class_closed);
        }
        view
    }
}
