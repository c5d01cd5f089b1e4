//! The decision: from a snapshot to a plan and a report.
//!
//! A pass looks at the whole cluster and at nothing but the snapshot; nothing is remembered between
//! passes besides what the API objects say.

use std::time::Duration;

use jiff::SignedDuration;
use kata_api::kata_node::NodeStep;
use kata_api::{Code, names};

use crate::events;
use crate::kata_nodes;
use crate::mco;
use crate::plan::{Plan, Step};
use crate::report::{Decision, Finding, NodeReport, Report, StepFailure, Waiting, WaitingOn};
use crate::selection::{self, Configs};
use crate::snapshot::{Freshness, Need, Platform, PodScope, SandboxedPod, Snapshot};
use crate::status;
use crate::steps::{self, Steps};
use crate::view::{self, Unreadable, View};

/// When to look again while sandboxed pods hold something up; pods are not watched.
const PODS_AGAIN: Duration = Duration::from_secs(4);
/// When to look again after a failed read.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// Everything that is known about a snapshot after thinking.
struct Thought<'a> {
    configs: Configs<'a>,
    view: Option<Result<View<'a>, Unreadable>>,
    steps: Steps,
}

fn think(snapshot: &Snapshot) -> Thought<'_> {
    let configs = selection::configs(snapshot);
    let view = configs.active.map(|config| view::view(snapshot, config));
    let mut steps = match &view {
        Some(Ok(view)) => steps::steps(view),
        Some(Err(_)) | None => Steps::default(),
    };
    steps.steps.extend(configs.others.iter().filter_map(|config| steps::release(config)));
    Thought { configs, view, steps }
}

/// What a snapshot leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// These reads are wanted first, as [`needs`] says.
    Read(Vec<Need>),
    /// The decision.
    Act(Box<Decision>),
}

/// What to do about a snapshot: read more, or act. The same as [`needs`] and [`decide`] one after the
/// other, for half the work.
pub fn next(snapshot: &Snapshot) -> Next {
    let missing = missing_machine_configs(snapshot);
    if !missing.is_empty() {
        return Next::Read(missing);
    }
    let thought = think(snapshot);
    let wanted = wanted(snapshot, &thought);
    if wanted.is_empty() { Next::Act(Box::new(act(snapshot, thought))) } else { Next::Read(wanted) }
}

/// Decides about a snapshot. Total and deterministic; the order of the snapshot's lists does not
/// matter. Nothing that can disturb a node or that deletes is planned on a snapshot that may be old.
pub fn decide(snapshot: &Snapshot) -> Decision {
    act(snapshot, think(snapshot))
}

fn act(snapshot: &Snapshot, mut thought: Thought<'_>) -> Decision {
    let mut planned = std::mem::take(&mut thought.steps.steps);
    let too_old = |step: &Step| step.action.freshness() > snapshot.freshness;
    if let Some(first) = planned.iter().position(too_old) {
        let held = planned.split_off(first);
        thought.steps.waiting_on.extend(held.first().map(|step| WaitingOn {
            what: Waiting::Read,
            subject: step.action.object().clone(),
            message: "the cluster is read again, past any cache".to_owned(),
        }));
    }
    let report = report(snapshot, &thought, &planned, &[]);
    let look_again = look_again(snapshot, &thought, &report);
    Decision { plan: Plan { steps: planned }, report, look_again }
}

/// The report after the plan was carried out and some of its steps failed.
pub fn conclude(snapshot: &Snapshot, decision: &Decision, failures: &[StepFailure]) -> Report {
    if failures.is_empty() {
        return decision.report.clone();
    }
    report(snapshot, &think(snapshot), &decision.plan.steps, failures)
}

/// The reads that the decision about this snapshot wants first; empty if it can be made. A read that
/// was tried and failed ([`crate::Observed::Unknown`]) is not asked for again.
pub fn needs(snapshot: &Snapshot) -> Vec<Need> {
    let missing = missing_machine_configs(snapshot);
    if missing.is_empty() { wanted(snapshot, &think(snapshot)) } else { missing }
}

/// The unfinished sandboxed pods in the cluster that the active KataConfig answers for, in order: those that
/// keep Kata from being removed. Of other people's RuntimeClasses only pods on nodes of ours count. None if
/// the cluster's pods are not in the snapshot.
pub fn running_pods(snapshot: &Snapshot) -> Vec<&SandboxedPod> {
    let active = selection::configs(snapshot).active;
    let view = active.and_then(|config| view::view(snapshot, config).ok());
    view.and_then(|view| view.running(None).ok()).unwrap_or_default()
}

fn wanted(snapshot: &Snapshot, thought: &Thought<'_>) -> Vec<Need> {
    let steps = &thought.steps;
    let freshest = steps.steps.iter().map(|step| step.action.freshness()).max();
    if let Some(wanted) = freshest.filter(|wanted| *wanted > snapshot.freshness) {
        return vec![if wanted == Freshness::Objects { Need::Objects } else { Need::Quorum }];
    }
    let cluster_is_read = snapshot.pods.contains_key(&PodScope::Cluster);
    let mut wanted: Vec<Need> = steps
        .needs
        .iter()
        .filter(|need| match need {
            Need::Pods { scope, .. } => !cluster_is_read && !snapshot.pods.contains_key(scope),
            Need::DrainBlockers { node } => !snapshot.drain_blockers.contains_key(node),
            Need::MachineConfig { .. } | Need::Objects | Need::Quorum => true,
        })
        .cloned()
        .collect();
    let whole_cluster =
        wanted.iter().any(|need| matches!(need, Need::Pods { scope: PodScope::Cluster, .. }));
    if whole_cluster {
        wanted.retain(|need| !matches!(need, Need::Pods { scope: PodScope::Node(_), .. }));
    }
    wanted
}

/// Our MachineConfigs and the rendered ones that pools and nodes name, as far as nobody read them yet.
fn missing_machine_configs(snapshot: &Snapshot) -> Vec<Need> {
    if snapshot.options.platform != Platform::OpenShift
        || selection::configs(snapshot).active.is_none()
    {
        return Vec::new();
    }
    let nodes = snapshot.nodes.known().into_iter().flatten();
    let pools = snapshot.pools.known().into_iter().flatten().filter(|pool| {
        matches!(mco::pool_name(pool), names::POOL | names::WORKER_POOL | names::MASTER_POOL)
    });
    // Thousands of nodes run a handful of configurations.
    let mut wanted: Vec<&str> = Vec::new();
    let mut last = "";
    for name in nodes
        .flat_map(|node| [node.current_config(), node.desired_config()])
        .chain(pools.map(|pool| pool.spec.configuration.name.as_str()))
        .chain(names::MACHINE_CONFIGS)
    {
        if name != last && !name.is_empty() && !snapshot.machine_configs.contains_key(name) {
            wanted.push(name);
        }
        last = name;
    }
    wanted.sort_unstable();
    wanted.dedup();
    wanted.into_iter().map(|name| Need::MachineConfig { name: name.to_owned() }).collect()
}

fn report(
    snapshot: &Snapshot,
    thought: &Thought<'_>,
    planned: &[Step],
    failures: &[StepFailure],
) -> Report {
    let mut report = Report {
        other_configs: thought
            .configs
            .others
            .iter()
            .map(|config| status::not_active(snapshot, config, thought.configs.active))
            .collect(),
        ..Report::default()
    };
    let Some(config) = thought.configs.active else {
        events::derive(snapshot, None, &mut report);
        return report;
    };
    let failed = failures.iter().map(|failure| {
        if failure.undone {
            return Finding::new(Code::WriteUndone, failure.object.clone(), failure.error.clone());
        }
        Finding::new(
            Code::WriteFailed,
            failure.object.clone(),
            format!("cannot write {}: {}", failure.object, failure.error),
        )
    });
    match &thought.view {
        Some(Ok(view)) => {
            report.findings = view.findings.clone();
            report.findings.extend(view.nodes.iter().filter_map(|node| node.finding.clone()));
            report.findings.extend(thought.steps.findings.iter().cloned());
            report.waiting_on = thought.steps.waiting_on.clone();
            report.nodes = view.nodes.iter().map(node_report).collect();
        }
        Some(Err(unreadable)) => {
            report.findings = unreadable.findings.clone();
            report.waiting_on = unreadable
                .findings
                .iter()
                .map(|finding| WaitingOn {
                    what: Waiting::Read,
                    subject: finding.subject.clone(),
                    message: finding.message.clone(),
                })
                .collect();
        }
        None => {}
    }
    report.findings.extend(failed);
    report.findings.sort_by(|a, b| a.rank().cmp(&b.rank()));
    if report.waiting_on.is_empty()
        && let Some(step) = planned.first()
    {
        report.waiting_on.push(WaitingOn {
            what: Waiting::OwnWrites,
            subject: step.action.object().clone(),
            message: step.to_string(),
        });
    }
    let view = thought.view.as_ref().and_then(|view| view.as_ref().ok());
    let status = match view {
        Some(view) => status::active(view, &thought.steps, &report, planned, failures),
        None => status::unreadable(snapshot, config, &report),
    };
    report.status = Some(status);
    events::derive(snapshot, view, &mut report);
    report
}

fn node_report(node: &view::NodeView<'_>) -> NodeReport {
    NodeReport {
        node: node.facts.name.clone(),
        uid: node.facts.uid.clone(),
        wanted: node.wanted,
        phase: node.phase,
        step: node.step,
        since: Some(node.since),
        code: node.finding.as_ref().map(|finding| finding.code),
        message: node
            .finding
            .as_ref()
            .map_or_else(|| node.brief(), |finding| finding.message.clone()),
        host: node.host.as_ref().map(|host| Box::new(host.known.status.clone())),
    }
}

/// When to look again although nothing is seen to change.
fn look_again(snapshot: &Snapshot, thought: &Thought<'_>, report: &Report) -> Option<Duration> {
    let mut times = Vec::new();
    for waiting in &report.waiting_on {
        times.push(match waiting.what {
            Waiting::Pods => PODS_AGAIN,
            Waiting::Read => READ_AGAIN,
            Waiting::OwnWrites | Waiting::Render | Waiting::Node | Waiting::Deletion => {
                snapshot.options.look_again
            }
        });
    }
    // What was changed in the spec waits for pods to go.
    let waits = |code| matches!(code, Code::HandlerImmutable | Code::RuntimeClassInUse);
    if report.findings.iter().any(|finding| waits(finding.code)) {
        times.push(PODS_AGAIN);
    }
    if !report.findings.is_empty() {
        times.push(snapshot.options.look_again);
    }
    if let Some(Ok(view)) = &thought.view {
        times.extend(crate::hosts::timers(view));
        let until = |since: jiff::Timestamp, limit: Duration| {
            let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
            let left = limit.saturating_sub(view.now.duration_since(since));
            Duration::try_from(left).ok().filter(|left| !left.is_zero())
        };
        for node in &view.nodes {
            if node.step == Some(NodeStep::Draining) {
                times.extend(until(node.since, snapshot.options.drain_blocked_after));
            } else if node.in_flight() {
                times.extend(until(node.since, snapshot.options.step_slow_after));
            }
            // What is due already is in the plan; if it cannot be written, looking again does not help.
            if kata_nodes::step_is_untold(node)
                && let Some(due) = kata_nodes::steps_due(node)
                && due > view.now
            {
                times.extend(Duration::try_from(due.duration_since(view.now)).ok());
            }
            if node.verified
                && node.verdict.is_none()
                && let Some(since) = node.facts.ready.since
            {
                times.extend(until(since, snapshot.options.not_ready_grace));
            }
        }
    }
    times.into_iter().min()
}
