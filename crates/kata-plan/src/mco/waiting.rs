//! Waits and findings of nodes and pools. Plans no steps.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kata_api::kata_node::Phase;
use kata_api::{Code, ContainerRuntimeConfig, MachineConfigPool, Natural, names};

use super::mode::Mode;
use super::pools::Pools;
use super::{desired, installed, rendered, selection};
use crate::assessment::{Assessment, KataState, NodeAssessment};
use crate::disruption::most_unavailable;
use crate::draft::Draft;
use crate::object::{Kind, ObjectRef};
use crate::plan::Action;
use crate::report::{Finding, Waiting};
use crate::selection::is_control_plane;
use crate::snapshot::NodeFacts;
use crate::text;

/// Adds the waits for nodes and for the rendering of their pool.
pub(super) fn wait_for_nodes(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) {
    let pool = ObjectRef::named(Kind::MachineConfigPool, pools.mode.pool());
    // With spec.rollout.paused, the operator may not have written a MachineConfig yet.
    let is_held_back = pools.mode == Mode::Compact
        && is_paused_by_kata_config(cluster)
        && installed::machine_configs(pools.snapshot).next().is_none();
    let is_unrendered = !is_held_back
        && !pools.targeted
        && pools.desired.payload.is_some()
        && cluster.nodes.iter().any(|node| node.wanted && node.kata != KataState::Installed);
    let is_outdated = cluster.nodes.iter().any(|node| node.behind)
        && pools
            .pools
            .get(pools.mode.pool())
            .is_some_and(|pool| pools.is_behind(&pool.spec.configuration.name));
    if !cluster.deleting && (is_unrendered || is_outdated) {
        let message =
            format!("the Machine Config Operator to render the pool {}", pools.mode.pool());
        out.wait_for(Waiting::Render, pool.clone(), message);
    }
    for node in cluster.nodes.iter().filter(|node| node.in_flight()) {
        out.wait_for(Waiting::Node, node.object(), node.brief());
    }
    let waiting: Vec<&NodeAssessment> = cluster
        .nodes
        .iter()
        .filter(|node| !node.in_flight() && (node.phase != Phase::Ready || node.behind))
        .collect();
    if !waiting.is_empty() {
        let queue = Queue::of(pools, cluster, out, is_outdated);
        let waiting = waiting.into_iter().map(|node| (queue.reason(node), &*node.facts.name));
        let waiting: Vec<(Option<String>, &str)> = waiting.collect();
        out.wait_in_queue(&pool, waiting);
    }
}

/// The criteria by which the Machine Config Operator chooses the next node.
struct Queue<'a, 'p> {
    pools: &'a Pools<'p>,
    cluster: &'a Assessment,
    /// The nodes that this plan removes from the pool, by name.
    released: BTreeSet<String>,
    /// Whether the configuration that the nodes should get does not exist yet.
    is_unrendered: bool,
    /// Whether a deletion may remove Kata from nodes.
    may_remove: bool,
    /// By pool, why a node still waits after all earlier steps; see [`reason_in_pool`].
    in_pools: BTreeMap<&'static str, Option<String>>,
}

impl<'a, 'p> Queue<'a, 'p> {
    fn of(pools: &'a Pools<'p>, cluster: &'a Assessment, out: &Draft, is_outdated: bool) -> Self {
        let released = released(out);
        let names = [pools.mode.pool(), names::WORKER_POOL];
        Self {
            pools,
            cluster,
            is_unrendered: is_outdated || !pools.targeted,
            may_remove: cluster.may_remove_from_nodes(),
            in_pools: names.map(|name| (name, reason_in_pool(pools, name, &released))).into(),
            released,
        }
    }

    /// Why a node has to wait; `None` if another part of the report gives the reason.
    fn reason(&self, node: &NodeAssessment) -> Option<String> {
        let pools = self.pools;
        let waits = node.behind || matches!(node.phase, Phase::Waiting | Phase::WaitingToRemove);
        if !waits || node.finding.is_some() || (node.wanted && self.is_unrendered) {
            return None;
        }
        let is_released = !node.joined || self.released.contains(&node.facts.name);
        let earlier = self.cluster.earlier_steps(node, self.may_remove, is_released);
        let begun = match node.facts.step() {
            None => None,
            Some(_) if node.wanted => Some("the Machine Config Operator is about to change it"),
            Some(_) => Some("an earlier change of it ends first"),
        };
        if let Some(reason) = earlier.or(begun) {
            return Some(reason.to_owned());
        }
        let joins = node.wanted || pools.mode == Mode::Compact;
        let has_left = !self.cluster.deleting || self.may_remove;
        if !has_left || (!joins && !is_released) {
            // Its pods are a finding.
            return None;
        }
        let name = if joins { pools.mode.pool() } else { names::WORKER_POOL };
        self.in_pools.get(name).cloned().flatten()
    }
}

/// Why a node whose change is up to the Machine Config Operator still waits in this pool; `None` if a finding says it.
fn reason_in_pool(pools: &Pools<'_>, name: &str, released: &BTreeSet<String>) -> Option<String> {
    // A paused pool is a finding.
    let pool = pools.pools.get(name).filter(|pool| !pool.spec.paused)?;
    let members = members(pools, pool, released);
    let limit = most_unavailable(pool.spec.max_unavailable.as_ref(), members.len());
    let unavailable: Vec<String> =
        members.iter().filter_map(|member| unavailable_member(member)).collect();
    let counted = pool.status.as_ref().map_or(0, |status| status.unavailable_machine_count);
    if unavailable.len() >= limit {
        return Some(format!(
            "at most {} of the pool {name} may be unavailable: {}",
            limit_text(pool),
            text::list(&unavailable, text::NAMES)
        ));
    }
    if usize::try_from(counted).is_ok_and(|counted| counted >= limit) {
        return Some(format!(
            "at most {} of the pool {name} may be unavailable, and the Machine Config Operator counts {counted}",
            limit_text(pool)
        ));
    }
    Some("the Machine Config Operator chooses the next node".to_owned())
}

fn limit_text(pool: &MachineConfigPool) -> String {
    match &pool.spec.max_unavailable {
        None => "1".to_owned(),
        Some(IntOrString::Int(number)) => number.to_string(),
        Some(IntOrString::String(text)) => text.clone(),
    }
}

/// The nodes that a plan removes from the operator's pool.
fn released(out: &Draft) -> BTreeSet<String> {
    let of_step = |action: &Action| match action {
        Action::LabelNode { node, remove, .. } if remove.contains(names::KATA_ROLE_LABEL) => {
            Some(node.name.clone())
        }
        _ => None,
    };
    out.steps.iter().filter_map(|step| of_step(&step.action)).collect()
}

/// A node's name with the reason why the Machine Config Operator counts it as unavailable; `None` if it
/// does not. It counts the nodes that it changes and those that fail its check (`checkNodeReady` of its
/// node controller: Ready, DiskPressure, NetworkUnavailable, cordoned).
fn unavailable_member(node: &NodeFacts) -> Option<String> {
    let moves = node.step().is_some() && !node.is_degraded();
    let reason = if moves {
        "being changed".to_owned()
    } else if node.ready.status != Some(true) {
        "not Ready".to_owned()
    } else if !node.failing_conditions.is_empty() {
        let conditions: Vec<&str> = node.failing_conditions.iter().map(String::as_str).collect();
        conditions.join(", ")
    } else if node.unschedulable {
        "cordoned".to_owned()
    } else {
        return None;
    };
    Some(format!("{} ({reason})", node.name))
}

/// The nodes of a pool, by name: a custom pool has precedence over the pool worker, and the pool master
/// over all others.
fn members<'a>(
    pools: &Pools<'a>,
    pool: &MachineConfigPool,
    released: &BTreeSet<String>,
) -> Vec<&'a NodeFacts> {
    let name = rendered::pool_name(pool);
    let is_ours = |node: &NodeFacts| {
        node.labels.contains_key(names::KATA_ROLE_LABEL) && !released.contains(&node.name)
    };
    let is_elsewhere = |node: &NodeFacts| {
        let in_ours = name == names::WORKER_POOL && is_ours(node);
        let above = in_ours || !selection::other_pools(node, &pools.pools).is_empty();
        name != names::MASTER_POOL && (above || is_control_plane(node))
    };
    let nodes = pools.snapshot.nodes.known().into_iter().flatten().map(AsRef::as_ref);
    let mut members: Vec<&NodeFacts> = nodes
        .filter(|node: &&NodeFacts| rendered::selects(pool, node) && !is_elsewhere(node))
        .collect();
    members.sort_by(|a, b| Natural(&a.name).cmp(&Natural(&b.name)));
    members
}

/// Reports the problems of pools that nodes wait for.
pub(super) fn pool_findings(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) {
    let waits = |wanted: bool| {
        cluster.nodes.iter().any(|node| {
            node.wanted == wanted
                && (node.phase != Phase::Ready || node.behind)
                && !node.in_flight()
        })
    };
    let nothing_selected = !cluster.deleting && !cluster.nodes.iter().any(|node| node.wanted);
    let is_paused_by_us =
        pools.mode == Mode::Pool && is_paused_by_kata_config(cluster) && !cluster.nodes.is_empty();
    if waits(true)
        || nothing_selected
        || is_paused_by_us
        || (cluster.deleting && pools.mode == Mode::Compact && waits(false))
    {
        report_pool(pools, cluster, pools.mode.pool(), out);
    }
    if waits(true) {
        report_pressure(pools, pools.mode.pool(), out);
    }
    if cluster.nodes.iter().any(|node| node.behind) {
        out.findings.extend(desired::level_findings(pools.snapshot, &cluster.config, pools.mode));
    }
    let released = released(out);
    let has_left = |node: &NodeAssessment| !node.joined || released.contains(&node.facts.name);
    let leaving = pools.mode == Mode::Pool
        && cluster.nodes.iter().any(|node| !node.wanted && has_left(node) && !node.in_flight());
    if leaving {
        report_pool(pools, cluster, names::WORKER_POOL, out);
        report_pressure(pools, names::WORKER_POOL, out);
        report_blocking_workers(pools, cluster, out);
    }
}

/// Reports nodes that count as unavailable in a pool because of a condition that users rarely check.
fn report_pressure(pools: &Pools<'_>, name: &str, out: &mut Draft) {
    let Some(pool) = pools.pools.get(name) else { return };
    for node in members(pools, pool, &released(out)) {
        let moves = node.step().is_some() || node.is_degraded();
        if moves || node.ready.status != Some(true) || node.failing_conditions.is_empty() {
            continue;
        }
        let conditions: Vec<&str> = node.failing_conditions.iter().map(String::as_str).collect();
        let object = ObjectRef::new(Kind::Node, &node.name, Some(&node.uid));
        let message = format!(
            "node {} has the condition {}, so the Machine Config Operator counts it as unavailable in the pool {name}",
            node.name,
            conditions.join(", ")
        );
        out.add_finding(Code::NodeUnderPressure, object, message);
    }
}

fn report_pool(pools: &Pools<'_>, cluster: &Assessment, name: &str, out: &mut Draft) {
    let Some(pool) = pools.pools.get(name) else { return };
    let object = ObjectRef::new(Kind::MachineConfigPool, name, pool.metadata.uid.as_deref());
    if pool.spec.paused {
        out.findings.push(paused(cluster, name, object.clone()));
    }
    if rendered::is_render_degraded(pool) {
        out.add_finding(
            Code::RenderDegraded,
            object.clone(),
            format!(
                "the pool {name} cannot be rendered: {}",
                rendered::condition_message(pool, "RenderDegraded")
            ),
        );
    }
    let mut failing: Vec<&ContainerRuntimeConfig> = pools
        .snapshot
        .container_runtime_configs
        .known()
        .into_iter()
        .flatten()
        .filter(|config| rendered::blocks_rendering(config, pool))
        .collect();
    failing.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    for config in failing {
        if let Some(failure) = rendered::failure(config) {
            let cause = config.metadata.name.clone().unwrap_or_default();
            let message = format!(
                "ContainerRuntimeConfig {cause} keeps the pool {name} from being rendered: {}",
                failure.message
            );
            out.add_finding(
                Code::RenderWaiting,
                ObjectRef::new(Kind::ContainerRuntimeConfig, cause, config.metadata.uid.as_deref()),
                message,
            );
        }
    }
}

fn is_paused_by_kata_config(cluster: &Assessment) -> bool {
    !cluster.deleting && cluster.config.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused)
}

/// The finding that a pool is paused. A change that has begun on a node still completes.
fn paused(cluster: &Assessment, name: &str, pool: ObjectRef) -> Finding {
    let by_kata_config = name == names::POOL && is_paused_by_kata_config(cluster);
    let reason = if by_kata_config { " by spec.rollout.paused" } else { "" };
    let effect = if cluster.nodes.iter().any(NodeAssessment::in_flight) {
        "no further node begins to change"
    } else {
        "its nodes do not change"
    };
    let message = format!("the pool {name} is paused{reason}, so {effect}");
    let mut finding = Finding::new(Code::PoolPaused, pool, message);
    if by_kata_config {
        "Set spec.rollout.paused of the KataConfig to false.".clone_into(&mut finding.fix);
    }
    finding
}

/// Reports other workers that use up the limit on unavailable nodes of the pool worker.
fn report_blocking_workers(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) {
    let assessed: BTreeSet<&str> =
        cluster.nodes.iter().map(|node| node.facts.name.as_str()).collect();
    let Some(worker) = pools.pools.get(names::WORKER_POOL) else { return };
    let others = members(pools, worker, &BTreeSet::new()).into_iter();
    for node in others.filter(|node| !assessed.contains(node.name.as_str())) {
        let object = ObjectRef::new(Kind::Node, &node.name, Some(&node.uid));
        if node.is_degraded() {
            let message = format!(
                "node {} failed and blocks the rollout of the pool worker: {}",
                node.name,
                node.degraded_reason()
            );
            out.add_finding(Code::NodeDegraded, object, message);
        } else if !node.is_settled() {
            let message = format!(
                "node {} of the pool worker is being changed first, for a reason unrelated to Kata",
                node.name
            );
            out.add_finding(Code::OtherRollout, object, message);
        } else if node.ready.status != Some(true) {
            let message = format!(
                "node {} is not Ready and blocks the rollout of the pool worker",
                node.name
            );
            out.add_finding(Code::NodeNotReady, object, message);
        } else if node.unschedulable && !node.is_cordoned_by_mco() {
            let message =
                format!("node {} is cordoned and blocks the rollout of the pool worker", node.name);
            out.add_finding(Code::NodeCordoned, object, message);
        }
    }
}
