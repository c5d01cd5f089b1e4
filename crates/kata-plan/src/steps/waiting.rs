//! What nodes and pools wait for, and what is wrong with them. Plans nothing.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kata_api::kata_node::Phase;
use kata_api::{Code, ContainerRuntimeConfig, MachineConfigPool, names};

use super::Steps;
use crate::hosts::most_unavailable;
use crate::mco::{self, Runs};
use crate::object::{Kind, ObjectRef};
use crate::payload;
use crate::plan::Action;
use crate::report::Waiting;
use crate::selection::{self, Mode};
use crate::snapshot::NodeFacts;
use crate::view::{NodeView, View};

/// What the nodes wait for.
pub(super) fn wait_for_nodes(view: &View<'_>, out: &mut Steps) {
    let pool = ObjectRef::named(Kind::MachineConfigPool, view.mode.pool());
    // What spec.rollout.paused holds back is not there to be rendered.
    let held_back = view.mode == Mode::Compact
        && view.config.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused)
        && payload::machine_configs(view.snapshot).next().is_none();
    let unrendered = !held_back
        && view.wanted.payload.is_some()
        && view.nodes.iter().any(|node| node.wanted && node.runs != Runs::Yes);
    let outdated = view.nodes.iter().any(|node| node.behind)
        && view
            .pools
            .get(view.mode.pool())
            .is_some_and(|pool| view.is_behind(&pool.spec.configuration.name));
    if !view.deleting && ((unrendered && !view.targeted) || outdated) {
        let message =
            format!("the Machine Config Operator to render the pool {}", view.mode.pool());
        out.wait(Waiting::Render, pool.clone(), message);
    }
    for node in view.nodes.iter().filter(|node| node.in_flight()) {
        out.wait(Waiting::Node, node.object(), node.brief());
    }
    let in_line: Vec<&NodeView<'_>> = view
        .nodes
        .iter()
        .filter(|node| !node.in_flight() && (node.phase != Phase::Ready || node.behind))
        .collect();
    if !in_line.is_empty() {
        let queue = Queue::of(view, out);
        let in_line = in_line.into_iter();
        out.wait_in_line(&pool, in_line.map(|node| (queue.why(view, node), &*node.facts.name)));
    }
}

/// What the Machine Config Operator goes by when it decides whose turn it is.
struct Queue<'a> {
    /// The pools of which as many nodes are being changed as may be.
    full: BTreeSet<&'a str>,
    /// Whether there is nothing else to wait for, and nothing in the way.
    alone: bool,
    /// The nodes that this plan lets go, by name: they are told at once what they wait for then.
    let_go: BTreeSet<String>,
}

impl<'a> Queue<'a> {
    fn of(view: &View<'a>, out: &Steps) -> Self {
        let pools = [view.mode.pool(), names::WORKER_POOL];
        let pools = pools.into_iter().filter_map(|name| view.pools.get_key_value(name));
        let let_go: BTreeSet<String> =
            out.steps.iter().filter_map(|step| lets_go(&step.action)).cloned().collect();
        let full = pools.filter(|(_, pool)| is_full(view, pool, &let_go));
        Self {
            full: full.map(|(name, _)| *name).collect(),
            alone: view.targeted
                && !view.deleting
                && [&view.findings, &out.findings].into_iter().all(Vec::is_empty)
                && view.nodes.iter().all(|node| node.finding.is_none())
                && out.waiting_on.is_empty(),
            let_go,
        }
    }

    /// Why the turn of a node has not come; `None` if that is told otherwise.
    fn why(&self, view: &View<'_>, node: &NodeView<'_>) -> Option<String> {
        let joins = node.wanted || view.mode == Mode::Compact;
        let name = if joins { view.mode.pool() } else { names::WORKER_POOL };
        let pool = view.pools.get(name).filter(|pool| !pool.spec.paused)?;
        let waits = node.behind || matches!(node.phase, Phase::Waiting | Phase::WaitingToRemove);
        // One that leaves and is not let go yet is not up to the pool that it goes to, and one on its way to
        // another configuration has had its turn.
        let is_let_go = !node.labelled || self.let_go.contains(&node.facts.name);
        let is_next = (joins || is_let_go) && node.facts.step().is_none();
        if !waits || !is_next || node.finding.is_some() {
            return None;
        }
        if self.full.contains(name) {
            let limit = match &pool.spec.max_unavailable {
                None => "1".to_owned(),
                Some(IntOrString::Int(number)) => number.to_string(),
                Some(IntOrString::String(text)) => text.clone(),
            };
            return Some(format!("at most {limit} of the pool {name} may be unavailable"));
        }
        self.alone.then(|| "the Machine Config Operator chooses the next one".to_owned())
    }
}

/// The node that a step takes out of our pool.
fn lets_go(action: &Action) -> Option<&String> {
    match action {
        Action::LabelNode { node, remove, .. } if remove.contains(names::KATA_ROLE_LABEL) => {
            Some(&node.name)
        }
        _ => None,
    }
}

/// Whether as many nodes of a pool are unavailable as may be. To the Machine Config Operator those are the
/// nodes that it changes, and those that are not Ready or cordoned for another reason.
fn is_full(view: &View<'_>, pool: &MachineConfigPool, let_go: &BTreeSet<String>) -> bool {
    let members = members(view, pool, let_go);
    let is_unavailable = |node: &NodeFacts| {
        let moves = node.step().is_some() && !node.is_degraded();
        moves || node.ready.status != Some(true) || node.unschedulable
    };
    let unavailable = members.iter().filter(|node| is_unavailable(node)).count();
    unavailable >= most_unavailable(pool.spec.max_unavailable.as_ref(), members.len())
}

/// The nodes that a pool decides about, by name: a custom pool has precedence over the pool worker, and the
/// pool master over all others.
fn members<'a>(
    view: &View<'a>,
    pool: &MachineConfigPool,
    let_go: &BTreeSet<String>,
) -> Vec<&'a NodeFacts> {
    let name = mco::pool_name(pool);
    let is_ours = |node: &NodeFacts| {
        node.labels.contains_key(names::KATA_ROLE_LABEL) && !let_go.contains(&node.name)
    };
    let is_elsewhere = |node: &NodeFacts| {
        let in_ours = name == names::WORKER_POOL && is_ours(node);
        let above = in_ours || !selection::other_pools(node, &view.pools).is_empty();
        name != names::MASTER_POOL && (above || selection::is_control_plane(node))
    };
    let nodes = view.snapshot.nodes.known().into_iter().flatten().map(AsRef::as_ref);
    let mut members: Vec<&NodeFacts> =
        nodes.filter(|node: &&NodeFacts| mco::selects(pool, node) && !is_elsewhere(node)).collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    members
}

/// What is wrong with the pools while nodes wait for them.
pub(super) fn pool_findings(view: &View<'_>, out: &mut Steps) {
    let waits = |wanted: bool| {
        view.nodes.iter().any(|node| {
            node.wanted == wanted
                && (node.phase != Phase::Ready || node.behind)
                && !node.in_flight()
        })
    };
    let nothing_selected = !view.deleting && !view.nodes.iter().any(|node| node.wanted);
    if waits(true)
        || nothing_selected
        || (view.deleting && view.mode == Mode::Compact && waits(false))
    {
        pool_finding(view, view.mode.pool(), out);
    }
    if view.nodes.iter().any(|node| node.behind) {
        out.findings.extend(payload::level_findings(view.snapshot, view.config, view.mode));
    }
    let leaving = view.mode == Mode::Pool
        && view.nodes.iter().any(|node| !node.wanted && !node.labelled && !node.in_flight());
    if leaving {
        pool_finding(view, names::WORKER_POOL, out);
        hold_ups(view, out);
    }
}

fn pool_finding(view: &View<'_>, name: &str, out: &mut Steps) {
    let Some(pool) = view.pools.get(name) else { return };
    let object = ObjectRef::new(Kind::MachineConfigPool, name, pool.metadata.uid.as_deref());
    if pool.spec.paused {
        let ours = name == names::POOL
            && view.config.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused);
        let why = if ours { ", as spec.rollout.paused says" } else { "" };
        out.find(
            Code::PoolPaused,
            object.clone(),
            format!("the pool {name} is paused{why}, so its nodes do not change"),
        );
        if let (true, Some(finding)) = (ours, out.findings.last_mut()) {
            "Set spec.rollout.paused of the KataConfig to false.".clone_into(&mut finding.fix);
        }
    }
    if mco::is_render_degraded(pool) {
        out.find(
            Code::RenderDegraded,
            object.clone(),
            format!(
                "the pool {name} cannot be rendered: {}",
                mco::condition_message(pool, "RenderDegraded")
            ),
        );
    }
    let mut failing: Vec<&ContainerRuntimeConfig> = view
        .snapshot
        .container_runtime_configs
        .known()
        .into_iter()
        .flatten()
        .filter(|config| mco::freezes(config, pool))
        .collect();
    failing.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    for config in failing {
        if let Some(failure) = mco::failure(config) {
            let cause = config.metadata.name.clone().unwrap_or_default();
            let message = format!(
                "ContainerRuntimeConfig {cause} keeps the pool {name} from being rendered: {}",
                failure.message
            );
            out.find(
                Code::RenderWaiting,
                ObjectRef::new(Kind::ContainerRuntimeConfig, cause, config.metadata.uid.as_deref()),
                message,
            );
        }
    }
}

/// Other workers that use up what the pool worker allows to be unavailable.
fn hold_ups(view: &View<'_>, out: &mut Steps) {
    let ours: BTreeSet<&str> = view.nodes.iter().map(|node| node.facts.name.as_str()).collect();
    let Some(worker) = view.pools.get(names::WORKER_POOL) else { return };
    let others = members(view, worker, &BTreeSet::new()).into_iter();
    for node in others.filter(|node| !ours.contains(node.name.as_str())) {
        let object = ObjectRef::new(Kind::Node, &node.name, Some(&node.uid));
        if node.is_degraded() {
            let message = format!(
                "node {} failed and holds up the changes of the pool worker: {}",
                node.name,
                node.degraded_reason()
            );
            out.find(Code::NodeDegraded, object, message);
        } else if !node.is_settled() {
            let message = format!(
                "node {} of the pool worker is being changed first, for a reason that is not ours",
                node.name
            );
            out.find(Code::OtherRollout, object, message);
        } else if node.ready.status != Some(true) {
            let message = format!(
                "node {} is not Ready and holds up the changes of the pool worker",
                node.name
            );
            out.find(Code::NodeNotReady, object, message);
        } else if node.unschedulable && !node.is_cordoned_by_mco() {
            let message = format!(
                "node {} is cordoned and holds up the changes of the pool worker",
                node.name
            );
            out.find(Code::NodeCordoned, object, message);
        }
    }
}
