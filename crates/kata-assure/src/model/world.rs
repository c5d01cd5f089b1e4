//! The cluster as the model knows it: a projection that is small enough to be enumerated.
//!
//! It holds the facts on which the decision and the Machine Config Operator act, and the moves of
//! everybody but the operator. It must not judge what the operator should do.

/// The most nodes that a model can have.
pub const MAX_NODES: usize = 4;

/// A rendered MachineConfig, by pool and content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Config {
    /// Of the pool `worker`.
    #[default]
    Worker,
    /// Of the pool `kata-oc`, without the extension.
    Without,
    /// Of the pool `kata-oc`, with the extension.
    With,
}

/// How far the machine-config daemon of a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// At rest, or with a new desired configuration and not begun.
    #[default]
    Done,
    /// Cordoned, and its pods are being evicted.
    Draining,
    /// Being changed.
    Applying,
    /// Away while it starts again.
    Rebooting,
    /// The change failed; the node stays cordoned.
    Degraded,
}

/// A worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// Carries the label of the pool `kata-oc`.
    pub role: bool,
    /// Carries the labels of a node that has Kata: the runtime label, and the class's.
    pub verified: bool,
    /// Is matched by the selector of the KataConfig.
    pub wanted: bool,
    /// A sandboxed pod runs on it.
    pub pod: bool,
    /// That pod was bound after the last pass read the pods.
    pub late: bool,
    /// Has a KataNode.
    pub record: bool,
    /// What the node controller of the Machine Config Operator believes of `role`.
    pub seen: bool,
    /// Cordoned by an admin.
    pub cordoned: bool,
    /// NotReady for a long time.
    pub away: bool,
    /// The configuration that it runs.
    pub current: Config,
    /// The configuration that it is to run.
    pub desired: Config,
    /// How far its daemon is.
    pub phase: Phase,
}

impl Node {
    /// Whether its current or desired configuration is one of the pool `kata-oc`.
    pub fn on_pool(&self) -> bool {
        self.current != Config::Worker || self.desired != Config::Worker
    }

    /// Stands in for the resourceVersion: different for different contents of the Node object.
    pub fn version(&self) -> u16 {
        let bits = [self.role, self.verified, self.wanted, self.cordoned, self.away];
        let flags = bits.into_iter().fold(0, |flags, bit| flags << 1 | u16::from(bit));
        flags << 7 | (self.current as u16) << 5 | (self.desired as u16) << 3 | self.phase as u16
    }

    /// Whether new pods can be bound to it.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Done && !self.cordoned && !self.away
    }

    /// Whether the Machine Config Operator counts it as available.
    fn is_available(&self) -> bool {
        self.is_open() && self.current == self.desired
    }
}

/// The life of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Life {
    /// There is none.
    #[default]
    Absent,
    /// There is one.
    Live,
    /// There is one that is being deleted, and that another client's finalizer still holds.
    Deleting,
}

/// An object that the operator owns besides the nodes' ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owned {
    /// Its life.
    pub life: Life,
    /// Distinguishes one object from the next of its name.
    pub uid: u8,
}

impl Owned {
    /// Whether it exists.
    pub fn exists(&self) -> bool {
        self.life != Life::Absent
    }

    /// Creates it, if there is none. Says whether it did.
    pub fn create(&mut self) -> bool {
        if self.exists() {
            return false;
        }
        *self = Self { life: Life::Live, uid: (self.uid + 1) % 4 };
        true
    }

    /// Deletes it; at once, or as soon as another client's finalizer is gone.
    pub fn delete(&mut self, lingers: bool) {
        self.life = match (self.life, lingers) {
            (Life::Live, true) | (Life::Deleting, _) => Life::Deleting,
            _ => Life::Absent,
        };
    }
}

/// The KataConfig.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KataConfig {
    /// Whether there is one.
    pub exists: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it carries our finalizer.
    pub finalizer: bool,
    /// Whether its status names the RuntimeClass.
    pub offered: bool,
    /// Whether its log level is not the default one.
    pub debug: bool,
    /// Distinguishes one KataConfig from the next.
    pub uid: u8,
}

impl KataConfig {
    /// Stands in for the resourceVersion: different for different contents.
    pub fn version(&self) -> u8 {
        u8::from(self.deleting)
            | u8::from(self.finalizer) << 1
            | u8::from(self.offered) << 2
            | u8::from(self.debug) << 3
            | self.uid << 4
    }
}

/// The pool `kata-oc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool {
    /// Itself.
    pub object: Owned,
    /// Its configuration; `Worker` stands for none.
    pub rendered: Config,
    /// Whether its rendered MachineConfig without the extension exists.
    pub has_without: bool,
    /// Whether its rendered MachineConfig with the extension exists.
    pub has_with: bool,
    /// Whether an admin paused it.
    pub paused: bool,
}

/// The cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    /// How many nodes there are.
    pub size: u8,
    /// The nodes; those past `size` mean nothing.
    pub nodes: [Node; MAX_NODES],
    /// The KataConfig.
    pub config: KataConfig,
    /// The pool `kata-oc`.
    pub pool: Pool,
    /// Our MachineConfig.
    pub machine_config: Owned,
    /// Our ContainerRuntimeConfig.
    pub log_level: Owned,
    /// The RuntimeClass.
    pub class: Owned,
    /// The uid of the KataConfig that the RuntimeClass belongs to.
    pub class_owner: u8,
    /// Whether the RuntimeClass selects a label that no node has.
    pub class_closed: bool,
    /// Whether an admin removed the pool or its MachineConfig by hand, and the pool has not been
    /// rendered with the extension since.
    pub by_hand: bool,
}

impl World {
    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        self.nodes.get(..usize::from(self.size)).unwrap_or_default()
    }

    /// The nodes.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        self.nodes.get_mut(..usize::from(self.size)).unwrap_or_default()
    }

    /// How many nodes the Machine Config Operator counts in the pool `kata-oc`.
    pub fn counted(&self) -> u8 {
        let seen = self.nodes().iter().filter(|node| node.seen).count();
        if self.pool.object.exists() { u8::try_from(seen).unwrap_or(u8::MAX) } else { 0 }
    }

    /// Whether a rendered MachineConfig exists. Those of a pool go with the pool.
    pub fn has_rendered(&self, config: Config) -> bool {
        match config {
            Config::Worker => true,
            Config::Without => self.pool.has_without,
            Config::With => self.pool.has_with,
        }
    }

    /// Whether a node's daemon cannot find one of its configurations.
    pub fn is_stuck(&self, node: &Node) -> bool {
        !self.has_rendered(node.current) || !self.has_rendered(node.desired)
    }

    /// Whether a node has Kata, and is not known to be without a part of its configuration.
    pub fn has_kata(&self, node: &Node) -> bool {
        node.current == Config::With && !self.is_stuck(node)
    }

    /// Whether the kubelet of a node reports.
    pub fn is_ready(node: &Node) -> bool {
        !node.away && node.phase != Phase::Rebooting
    }

    /// Whether a node can run sandboxed pods now and in the near future.
    pub fn is_usable(&self, node: &Node) -> bool {
        self.has_kata(node) && node.is_open()
    }

    /// What of the operator is left in the cluster.
    pub fn has_traces(&self) -> bool {
        let marked = |node: &Node| node.role || node.verified;
        self.nodes().iter().any(|node| marked(node) || node.record || node.on_pool())
            || self.pool.object.exists()
            || self.machine_config.exists()
            || self.log_level.exists()
            || self.class.exists()
    }

    /// Takes the finalizer off, or deletes the KataConfig.
    pub fn settle_config(&mut self) {
        if self.config.deleting && !self.config.finalizer {
            self.config = KataConfig { uid: self.config.uid, ..KataConfig::default() };
        }
    }

    /// Deletes the pool and what was rendered for it.
    pub fn delete_pool(&mut self, lingers: bool) {
        self.pool.object.delete(lingers);
        if !self.pool.object.exists() {
            self.end_pool();
        }
    }

    /// The pool is gone, and what was rendered for it.
    pub fn end_pool(&mut self) {
        let object = Owned { life: Life::Absent, ..self.pool.object };
        self.pool = Pool { object, ..Pool::default() };
    }

    // The Machine Config Operator.

    /// The render controller brings the pool up to date. Says whether it did anything.
    pub fn render(&mut self) -> bool {
        let target = if self.machine_config.exists() { Config::With } else { Config::Without };
        let pool = &mut self.pool;
        if pool.object.life != Life::Live || pool.rendered == target {
            return false;
        }
        pool.rendered = target;
        match target {
            Config::With => {
                pool.has_with = true;
                // One that is on its way out is not there for good.
                self.by_hand &= self.machine_config.life != Life::Live;
            }
            Config::Without | Config::Worker => pool.has_without = true,
        }
        true
    }

    /// The node controller sees the nodes' labels.
    pub fn count(&mut self) -> bool {
        let behind = self.nodes().iter().any(|node| node.seen != node.role);
        for node in self.nodes_mut() {
            node.seen = node.role;
        }
        behind
    }

    fn target_of(&self, node: &Node) -> Option<Config> {
        if !(node.seen && self.pool.object.exists()) {
            return Some(Config::Worker);
        }
        let rendered = self.pool.rendered;
        (rendered != Config::Worker && !self.pool.paused).then_some(rendered)
    }

    /// The configuration to which the node controller may send a node now, with one node of a pool
    /// unavailable at most.
    pub fn can_target(&self, index: usize) -> Option<Config> {
        let node = self.nodes().get(index)?;
        let target = self.target_of(node)?;
        let in_pool = |node: &Node| node.seen && self.pool.object.exists();
        let free = self
            .nodes()
            .iter()
            .filter(|other| in_pool(other) == in_pool(node))
            .all(|other| other.is_available() && !self.is_stuck(other));
        (node.desired != target && free).then_some(target)
    }

    /// One step of a node's daemon. Says whether there was one.
    pub fn advance(&mut self, index: usize) -> bool {
        let Some(node) = self.nodes().get(index) else { return false };
        if self.is_stuck(node) || node.away {
            return false;
        }
        let Some(node) = self.nodes_mut().get_mut(index) else { return false };
        match node.phase {
            Phase::Done if node.current == node.desired => return false,
            Phase::Done => node.phase = Phase::Draining,
            Phase::Draining => {
                node.pod = false;
                node.phase = Phase::Applying;
            }
            Phase::Applying => node.phase = Phase::Rebooting,
            Phase::Rebooting => {
                node.current = node.desired;
                node.cordoned = false;
                node.phase = Phase::Done;
            }
            Phase::Degraded => return false,
        }
        true
    }

    /// The garbage collector: a RuntimeClass goes with its KataConfig.
    pub fn collect(&mut self) -> bool {
        let owned = self.config.exists && self.config.uid == self.class_owner;
        let orphan = self.class.exists() && !owned;
        if orphan {
            self.class.delete(false);
        }
        orphan
    }

    /// Whether the scheduler can bind a sandboxed pod to a node.
    pub fn can_schedule(&self, node: &Node) -> bool {
        let open = self.class.exists() && !self.class_closed;
        open && node.role && node.verified && node.is_open() && !node.pod
    }
}
