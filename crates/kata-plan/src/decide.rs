//! The decision: from a snapshot to a plan and a report.
//!
//! A pass runs one way: snapshot, assessment, plan, report. Each stage takes the value of the one before;
//! after the assessment no stage reads the snapshot. Between passes the only memory is the API objects.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::NodeStep;
use kata_api::{Code, KataConfig};

use crate::assessment::{Assessment, NodeAssessment};
use crate::claim;
use crate::configs::Configs;
use crate::draft::Draft;
use crate::events;
use crate::plan::{Plan, Step};
use crate::reading::{Unreadable, to_the_second};
use crate::report::{Finding, NodeReport, Report, StepFailure, Waiting, WaitingOn};
use crate::snapshot::{Freshness, Need, Options, Platform, PodScope, SandboxedPod, Snapshot};
use crate::{jobs, leaving, mco, status, steps};

/// When to requeue while sandboxed pods block a step; running pods are not watched.
const REQUEUE_FOR_PODS: Duration = Duration::from_secs(4);
/// When to look again whether another installation's namespace is gone, which is not watched.
const REQUEUE_FOR_NAMESPACE: Duration = Duration::from_mins(1);
/// When to requeue after a failed read.
const REQUEUE_FOR_READ: Duration = Duration::from_secs(10);

/// The assessment of a snapshot and the draft of the plan, before steps that need fresher reads are held
/// back.
#[derive(Clone, Debug)]
pub(crate) struct Analysis {
    now: Timestamp,
    options: Options,
    configs: Configs,
    /// The namespace of the other installation that the active KataConfig belongs to.
    other_installation: Option<String>,
    assessment: Option<Result<Assessment, Unreadable>>,
    draft: Draft,
}

/// The plan, the report and the next requeue for a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    pub plan: Plan,
    pub report: Report,
    /// When to decide again even if no watch event arrives; `None` if only a watch event matters.
    pub requeue_after: Option<Duration>,
    /// The analysis behind it, for [`report_after_apply`].
    pub(crate) analysis: Option<Box<Analysis>>,
}

impl PartialEq for Decision {
    /// Compares plan, report and requeue, and not the analysis behind them.
    fn eq(&self, other: &Self) -> bool {
        self.plan == other.plan
            && self.report == other.report
            && self.requeue_after == other.requeue_after
    }
}

/// The result of [`next`].
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The decision needs these reads first; see [`needs`].
    Read(Vec<Need>),
    /// The decision.
    Act(Box<Decision>),
}

/// The reads that a snapshot lacks or, if it lacks none, the decision: [`needs`] and [`decide`] with one
/// analysis.
pub fn next(snapshot: &Snapshot) -> Outcome {
    let missing = missing_machine_configs(snapshot);
    if !missing.is_empty() {
        return Outcome::Read(missing);
    }
    let analysis = analyze(snapshot);
    let needs = further_reads(snapshot, &analysis.draft);
    if needs.is_empty() {
        Outcome::Act(Box::new(plan_and_report(analysis, snapshot.freshness)))
    } else {
        Outcome::Read(needs)
    }
}

/// Decides about a snapshot. Total and deterministic; the order of the snapshot's lists does not matter.
/// The plan disrupts no node and deletes no object if the snapshot may be too old for that; see
/// [`Freshness`].
pub fn decide(snapshot: &Snapshot) -> Decision {
    plan_and_report(analyze(snapshot), snapshot.freshness)
}

/// The reads that the decision about this snapshot needs first; empty if it needs none. A read that failed
/// ([`crate::Observed::Unknown`]) is not requested again.
pub fn needs(snapshot: &Snapshot) -> Vec<Need> {
    let missing = missing_machine_configs(snapshot);
    if missing.is_empty() { further_reads(snapshot, &analyze(snapshot).draft) } else { missing }
}

/// The report after the plan was applied, with the steps that failed.
pub fn report_after_apply(decision: &Decision, failures: &[StepFailure]) -> Report {
    match &decision.analysis {
        Some(analysis) if !failures.is_empty() => report(analysis, &decision.plan.steps, failures),
        _ => decision.report.clone(),
    }
}

/// The unfinished sandboxed pods that block the removal of Kata, sorted. Pods of foreign RuntimeClasses
/// count only on nodes of the active KataConfig. Empty if the snapshot does not have the cluster's pods.
pub fn running_pods(snapshot: &Snapshot) -> Vec<SandboxedPod> {
    let Some(Ok(assessment)) = analyze(snapshot).assessment else { return Vec::new() };
    assessment.pods.in_cluster().unwrap_or_default().into_iter().cloned().collect()
}

/// Assesses the active KataConfig's cluster with the back end of its platform, and plans the steps of that.
fn assess(snapshot: &Snapshot, config: &KataConfig) -> Result<(Assessment, Draft), Unreadable> {
    match snapshot.options.platform {
        Platform::OpenShift => mco::assess(snapshot, config),
        Platform::Kubernetes => jobs::assess(snapshot, config),
    }
}

fn missing_machine_configs(snapshot: &Snapshot) -> Vec<Need> {
    match snapshot.options.platform {
        Platform::OpenShift => mco::missing_machine_configs(snapshot),
        Platform::Kubernetes => Vec::new(),
    }
}

fn analyze(snapshot: &Snapshot) -> Analysis {
    let configs = Configs::of(&snapshot.configs);
    let active = configs.active.as_ref();
    let other = active.and_then(|config| claim::other_installation(config, snapshot));
    let other_installation = other.map(str::to_owned);
    let mut assessment = None;
    let mut draft = Draft::default();
    if let Some(name) = other_installation.clone() {
        draft.needs.insert(Need::Namespace { name });
    } else {
        match active.map(|config| assess(snapshot, config)) {
            Some(Ok((assessed, changes))) => {
                draft = steps::steps(&assessed, changes);
                assessment = Some(Ok(assessed));
            }
            Some(Err(unreadable)) => assessment = Some(Err(unreadable)),
            None => {}
        }
        draft.steps.extend(configs.others.iter().filter_map(steps::release_inactive));
    }
    Analysis {
        now: to_the_second(snapshot.now),
        options: snapshot.options.clone(),
        configs,
        other_installation,
        assessment,
        draft,
    }
}

fn plan_and_report(mut analysis: Analysis, freshness: Freshness) -> Decision {
    let mut planned = std::mem::take(&mut analysis.draft.steps);
    let too_old = |step: &Step| step.action.freshness() > freshness;
    if let Some(first) = planned.iter().position(too_old) {
        let held = planned.split_off(first);
        analysis.draft.waiting_on.extend(held.first().map(|step| WaitingOn {
            what: Waiting::Read,
            subject: step.action.object().clone(),
            message: "a fresh read of the cluster".to_owned(),
        }));
    }
    let report = report(&analysis, &planned, &[]);
    let requeue_after = requeue_after(&analysis, &report);
    let plan = Plan { steps: planned };
    Decision { plan, report, requeue_after, analysis: Some(Box::new(analysis)) }
}

fn further_reads(snapshot: &Snapshot, draft: &Draft) -> Vec<Need> {
    let freshest = draft.steps.iter().map(|step| step.action.freshness()).max();
    if let Some(wanted) = freshest.filter(|wanted| *wanted > snapshot.freshness) {
        return vec![if wanted == Freshness::Objects { Need::Objects } else { Need::Quorum }];
    }
    let cluster_is_read = snapshot.pods.contains_key(&PodScope::Cluster);
    let mut needs: Vec<Need> = draft
        .needs
        .iter()
        .filter(|need| match need {
            Need::Pods { scope, .. } => !cluster_is_read && !snapshot.pods.contains_key(scope),
            Need::DrainBlockers { node } => !snapshot.drain_blockers.contains_key(node),
            Need::Namespace { name } => !snapshot.namespaces.contains_key(name),
            Need::MachineConfig { .. } | Need::Objects | Need::Quorum => true,
        })
        .cloned()
        .collect();
    let whole_cluster =
        needs.iter().any(|need| matches!(need, Need::Pods { scope: PodScope::Cluster, .. }));
    if whole_cluster {
        needs.retain(|need| !matches!(need, Need::Pods { scope: PodScope::Node(_), .. }));
    }
    needs
}

fn report(analysis: &Analysis, planned: &[Step], failures: &[StepFailure]) -> Report {
    let Analysis { now, configs, other_installation, assessment, draft, options } = analysis;
    if let (Some(config), Some(other)) = (&configs.active, other_installation) {
        let finding = claim::finding(config, other, &options.namespace);
        let events = vec![events::of_other_installation(&finding, other)];
        return Report { findings: vec![finding], events, ..Report::default() };
    }
    let mut report = Report {
        other_configs: configs
            .others
            .iter()
            .map(|config| status::not_active(*now, config, configs.active.as_ref()))
            .collect(),
        ..Report::default()
    };
    let Some(config) = &configs.active else {
        events::add_events(configs, None, &mut report);
        return report;
    };
    match assessment {
        Some(Ok(assessment)) => {
            report.findings.clone_from(&assessment.findings);
            let of_nodes = assessment.nodes.iter().filter_map(|node| node.finding.clone());
            report.findings.extend(of_nodes);
            report.findings.extend(leaving::findings(assessment));
            report.findings.extend(draft.findings.iter().cloned());
            report.waiting_on.clone_from(&draft.waiting_on);
            report.nodes = assessment.nodes.iter().map(node_report).collect();
        }
        Some(Err(unreadable)) => {
            report.findings.clone_from(&unreadable.findings);
            let waits = unreadable.findings.iter().map(|finding| WaitingOn {
                what: Waiting::Read,
                subject: finding.subject.clone(),
                message: finding.message.clone(),
            });
            report.waiting_on = waits.collect();
        }
        None => {}
    }
    report.findings.extend(failures.iter().map(failed_write));
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
    let assessment = assessment.as_ref().and_then(|assessment| assessment.as_ref().ok());
    let status = match assessment {
        Some(assessment) => status::active(assessment, draft, &report, planned, failures),
        None => status::unreadable(*now, config, &report),
    };
    report.status = Some(status);
    events::add_events(configs, assessment, &mut report);
    report
}

fn failed_write(failure: &StepFailure) -> Finding {
    let StepFailure { object, code, error } = failure;
    let message = match code {
        Code::WriteFailed | Code::PolicyOfOtherVersion => format!("cannot write {object}: {error}"),
        _ => error.clone(),
    };
    Finding::new(*code, object.clone(), message)
}

fn node_report(node: &NodeAssessment) -> NodeReport {
    let finding = node.finding.as_ref();
    NodeReport {
        node: node.facts.name.clone(),
        uid: node.facts.uid.clone(),
        wanted: node.wanted,
        provided: node.provided,
        behind: node.behind,
        phase: node.phase,
        step: node.step,
        since: Some(node.since),
        created: node.facts.created,
        code: finding.map(|finding| finding.code),
        message: finding.map_or_else(|| node.brief(), |finding| finding.message.clone()),
        host: node.record.clone(),
    }
}

/// When to decide again even if no watch event arrives.
fn requeue_after(analysis: &Analysis, report: &Report) -> Option<Duration> {
    let options = &analysis.options;
    let mut times = Vec::new();
    for waiting in &report.waiting_on {
        times.push(match waiting.what {
            Waiting::Pods => REQUEUE_FOR_PODS,
            Waiting::Read => REQUEUE_FOR_READ,
            Waiting::OwnWrites | Waiting::Render | Waiting::Node | Waiting::Deletion => {
                options.requeue_after
            }
        });
    }
    if analysis.other_installation.is_some() {
        times.push(REQUEUE_FOR_NAMESPACE);
    }
    // A changed spec.runtimes waits for pods to end.
    let waits = |code| matches!(code, Code::HandlerImmutable | Code::RuntimeClassInUse);
    if report.findings.iter().any(|finding| waits(finding.code)) {
        times.push(REQUEUE_FOR_PODS);
    }
    if !report.findings.is_empty() {
        times.push(options.requeue_after);
    }
    if let Some(Ok(assessment)) = &analysis.assessment {
        times.extend(assessment.nodes.iter().flat_map(|node| node_timers(assessment, node)));
    }
    times.into_iter().min()
}

/// The times until something is due on a node even if no watch event arrives.
fn node_timers(cluster: &Assessment, node: &NodeAssessment) -> Vec<Duration> {
    let now = cluster.now;
    let in_future = |at: Timestamp| Duration::try_from(at.duration_since(now)).ok();
    let limit = if node.step == Some(NodeStep::Draining) {
        Some(cluster.options.drain_blocked_after)
    } else {
        node.in_flight().then_some(cluster.options.step_slow_after)
    };
    let slow = limit.and_then(|limit| {
        let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        let left = limit.saturating_sub(now.duration_since(node.since));
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    });
    // A write that is due already is in the plan; if it fails, its retry does not depend on this timer.
    let publish = steps::steps_due(cluster, node)
        .filter(|due| steps::step_not_published(node) && *due > now)
        .and_then(in_future);
    [node.due.and_then(in_future), slow, publish].into_iter().flatten().collect()
}
