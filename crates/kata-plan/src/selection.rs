//! Who is concerned: which KataConfig is active, which pool its nodes are in, and which nodes.

use std::collections::BTreeMap;

use kata_api::{Code, KataConfig, MachineConfigPool, names};

use crate::bodies;
use crate::mco;
use crate::object::{Kind, ObjectRef};
use crate::payload;
use crate::report::Finding;
use crate::selector;
use crate::snapshot::{NodeFacts, Snapshot};

/// How Kata gets onto the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Selected workers join the pool `kata-oc`.
    Pool,
    /// There are no workers besides the control plane: the pool `master` gets the extension as a whole,
    /// since a custom pool can only inherit from `worker`.
    Compact,
}

impl Mode {
    /// The pool, and the role label of our MachineConfig.
    pub(crate) fn pool(self) -> &'static str {
        match self {
            Self::Pool => names::POOL,
            Self::Compact => names::MASTER_POOL,
        }
    }

    /// The role label of the nodes.
    pub(crate) fn node_label(self) -> &'static str {
        match self {
            Self::Pool => names::KATA_ROLE_LABEL,
            Self::Compact => names::MASTER_ROLE_LABEL,
        }
    }
}

/// The KataConfigs, sorted out.
#[derive(Debug)]
pub(crate) struct Configs<'a> {
    /// The one that is acted on.
    pub(crate) active: Option<&'a KataConfig>,
    /// The others, by age.
    pub(crate) others: Vec<&'a KataConfig>,
}

/// Sorts the KataConfigs out: the oldest is active. One that is being deleted and does not carry our
/// finalizer (any more) is nobody's business.
pub(crate) fn configs(snapshot: &Snapshot) -> Configs<'_> {
    let mut sorted = by_age(&snapshot.configs).into_iter();
    Configs { active: sorted.next(), others: sorted.collect() }
}

/// The KataConfigs that matter, the active one first.
pub fn by_age(configs: &[KataConfig]) -> Vec<&KataConfig> {
    let mut sorted: Vec<&KataConfig> = configs
        .iter()
        .filter(|config| config.metadata.deletion_timestamp.is_none() || has_finalizer(config))
        .collect();
    sorted.sort_by_key(|config| {
        (config.metadata.creation_timestamp.as_ref().map(|time| time.0), &config.metadata.name)
    });
    sorted
}

/// Whether a KataConfig carries one of our finalizers.
pub(crate) fn has_finalizer(config: &KataConfig) -> bool {
    config.metadata.finalizers.iter().flatten().any(|name| is_ours(name))
}

/// Whether a finalizer is ours, old or new.
pub(crate) fn is_ours(finalizer: &str) -> bool {
    finalizer == names::FINALIZER || finalizer == names::LEGACY_FINALIZER
}

/// A reference to a KataConfig.
pub(crate) fn config_ref(config: &KataConfig) -> ObjectRef {
    ObjectRef::new(
        Kind::KataConfig,
        config.metadata.name.clone().unwrap_or_default(),
        config.metadata.uid.as_deref(),
    )
}

/// Whether a node belongs to the control plane.
pub(crate) fn is_control_plane(node: &NodeFacts) -> bool {
    node.labels.contains_key(names::MASTER_ROLE_LABEL)
        || node.labels.contains_key(names::CONTROL_PLANE_ROLE_LABEL)
}

fn is_worker(node: &NodeFacts) -> bool {
    node.labels.contains_key(names::WORKER_ROLE_LABEL)
}

/// Whether a node runs Windows.
pub(crate) fn is_windows(node: &NodeFacts) -> bool {
    node.labels.get(names::OS_LABEL).map(String::as_str) == Some("windows")
        || node.operating_system == "windows"
}

/// Which mode it is. What was begun in one mode is finished in it: a cluster that loses its last worker
/// for an hour must not have its control plane rebooted.
pub(crate) fn mode(
    snapshot: &Snapshot,
    nodes: &[&NodeFacts],
    pools: &BTreeMap<&str, &MachineConfigPool>,
) -> Mode {
    for (_, config) in payload::machine_configs(snapshot) {
        let role = config
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(names::MACHINE_CONFIG_ROLE_LABEL));
        match role.map(String::as_str) {
            Some(names::MASTER_POOL) => return Mode::Compact,
            Some(names::POOL) => return Mode::Pool,
            _ => {}
        }
    }
    let begun_on_control_plane = snapshot.kata_nodes.known().is_some_and(|kata_nodes| {
        nodes.iter().any(|node| {
            is_control_plane(node)
                && kata_nodes.iter().any(|kata_node| kata_node.spec.node_name == node.name)
        })
    });
    if begun_on_control_plane && !pools.contains_key(names::POOL) {
        return Mode::Compact;
    }
    let counted = pools
        .get(names::WORKER_POOL)
        .and_then(|pool| pool.status.as_ref())
        .map_or(0, |status| status.machine_count);
    // A node that cannot be understood may be a worker.
    let unknown = !snapshot.unreadable(Kind::Node).is_empty();
    let has_workers = nodes.iter().any(|node| is_worker(node) && !is_control_plane(node));
    let schedulable_masters = nodes.iter().any(|node| is_worker(node) && is_control_plane(node));
    // A pool that another operator left behind says nothing about this cluster, and neither do others.
    let begun_on_workers =
        pools.get(names::POOL).is_some_and(|pool| bodies::is_managed(&pool.metadata));
    if begun_on_workers || unknown || has_workers || counted > 0 || !schedulable_masters {
        Mode::Pool
    } else {
        Mode::Compact
    }
}

/// Whether a node shall have Kata, and if not, whether somebody may have expected it.
#[derive(Debug)]
pub(crate) enum Selected {
    /// It shall.
    Yes,
    /// It is not selected.
    No,
    /// It is selected but cannot have it.
    Excluded(Finding),
}

/// Whether a node is selected. A selector that cannot be evaluated changes nothing: nodes of ours stay
/// selected. Eligibility is asked when a node joins; a label of Node Feature Discovery that goes away
/// later does not reboot the node.
pub(crate) fn select(
    config: &KataConfig,
    mode: Mode,
    node: &NodeFacts,
    pools: &BTreeMap<&str, &MachineConfigPool>,
) -> Selected {
    let labelled = node.labels.contains_key(names::KATA_ROLE_LABEL);
    let subject = || ObjectRef::new(Kind::Node, &node.name, Some(&node.uid));
    if mode == Mode::Compact {
        return match (is_control_plane(node), is_worker(node)) {
            (true, _) => Selected::Yes,
            (false, true) => Selected::Excluded(Finding::new(
                Code::WorkersNotCovered,
                subject(),
                format!(
                    "node {} joined after Kata was installed on the control plane, and does not get it",
                    node.name
                ),
            )),
            (false, false) => Selected::No,
        };
    }
    if node.deleting || !is_worker(node) {
        return Selected::No;
    }
    let matches = match &config.spec.kata_config_pool_selector {
        None => true,
        Some(selector) => selector::matches(selector, &node.labels).unwrap_or(labelled),
    };
    let eligible = !config.spec.check_node_eligibility
        || labelled
        || node.labels.get(names::NFD_LABEL).is_some_and(|value| value == "true");
    if !matches || !eligible {
        return Selected::No;
    }
    let unsupported = |why: &str| {
        Selected::Excluded(Finding::new(
            Code::UnsupportedNode,
            subject(),
            format!("node {} is left alone: {why}", node.name),
        ))
    };
    if is_windows(node) {
        return unsupported("it runs Windows");
    }
    if is_control_plane(node) {
        return unsupported(
            "it belongs to the control plane, whose pool master stays as it is while there are workers",
        );
    }
    if !node.is_managed() {
        return unsupported("the Machine Config Operator does not manage it (yet)");
    }
    let others = other_pools(node, pools);
    match (others.is_empty(), labelled) {
        (true, _) => Selected::Yes,
        // Already in both: taking the label off would uninstall, so somebody has to say which it is.
        (false, true) => Selected::Yes,
        (false, false) => Selected::Excluded(Finding::new(
            Code::NodeInOtherPool,
            subject(),
            format!(
                "node {} belongs to the pool {} and is left alone",
                node.name,
                others.join(", ")
            ),
        )),
    }
}

/// The custom pools besides ours that select a node.
pub(crate) fn other_pools<'a>(
    node: &NodeFacts,
    pools: &BTreeMap<&'a str, &MachineConfigPool>,
) -> Vec<&'a str> {
    pools
        .iter()
        .filter(|(name, pool)| {
            !matches!(**name, names::POOL | names::WORKER_POOL | names::MASTER_POOL)
                && mco::selects(pool, node)
        })
        .map(|(name, _)| *name)
        .collect()
}
