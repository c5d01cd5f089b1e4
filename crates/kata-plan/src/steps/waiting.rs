//! What nodes and pools wait for, and what is wrong with them. Plans nothing.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kata_api::kata_node::Phase;
use kata_api::{Code, ContainerRuntimeConfig, names};

use super::Steps;
use crate::mco::{self, Runs};
use crate::object::{Kind, ObjectRef};
use crate::payload;
use crate::report::Waiting;
use crate::selection::{self, Mode};
use crate::snapshot::NodeFacts;
use crate::text;
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
    let mut queued: Vec<&str> = Vec::new();
    for node in &view.nodes {
        if node.in_flight() {
            out.wait(Waiting::Node, node.object(), node.brief());
        } else if node.phase != Phase::Ready || node.behind {
            queued.push(&node.facts.name);
        }
    }
    if !queued.is_empty() {
        out.queue = queue(view, out);
        let why = out.queue.as_ref().map_or_else(String::new, |queue| format!(" ({queue})"));
        let message = format!(
            "{} that {} not being changed{why}: {}",
            text::count(queued.len(), "node"),
            if queued.len() == 1 { "is" } else { "are" },
            text::list(&queued, text::NAMES)
        );
        out.wait(Waiting::Node, pool, message);
    }
}

/// Why the turn of some nodes has not come, which the Machine Config Operator decides.
fn queue(view: &View<'_>, out: &Steps) -> Option<String> {
    let waits = |node: &&NodeView<'_>| {
        (node.phase != Phase::Ready || node.behind) && !node.in_flight() && node.finding.is_none()
    };
    let first = view.nodes.iter().find(waits)?;
    let joins = first.wanted || view.mode == Mode::Compact;
    let name = if joins { view.mode.pool() } else { names::WORKER_POOL };
    let pool = view.pools.get(name)?;
    if view.nodes.iter().any(NodeView::in_flight) {
        let limit = match &pool.spec.max_unavailable {
            None => "1".to_owned(),
            Some(IntOrString::Int(number)) => number.to_string(),
            Some(IntOrString::String(text)) => text.clone(),
        };
        return Some(format!("at most {limit} of the pool {name} may be unavailable"));
    }
    // Whatever else there is to wait for, or in the way, is told.
    let alone = view.targeted
        && !view.deleting
        && !pool.spec.paused
        && [&view.findings, &out.findings].into_iter().all(Vec::is_empty)
        && view.nodes.iter().all(|node| node.finding.is_none())
        && out.waiting_on.is_empty();
    alone.then(|| "the Machine Config Operator chooses the next one".to_owned())
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
    let mut others: Vec<&NodeFacts> = view
        .snapshot
        .nodes
        .known()
        .into_iter()
        .flatten()
        .map(AsRef::as_ref)
        .filter(|node: &&NodeFacts| {
            !ours.contains(node.name.as_str())
                && mco::selects(worker, node)
                && !selection::is_control_plane(node)
                && selection::other_pools(node, &view.pools).is_empty()
        })
        .collect();
    others.sort_by(|a, b| a.name.cmp(&b.name));
    for node in others {
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
