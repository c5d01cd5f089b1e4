//! The status of each KataConfig: counts, lists and conditions.
//!
//! Conditions keep their `lastTransitionTime` while their status stays, so that an idle pass yields the
//! very status that is there, and nothing is written.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kata_api::conditions::{self, in_progress, reasons};
use kata_api::kata_config::{KataNodes, LIST_CAP};
use kata_api::kata_node::Phase;
use kata_api::{Code, KataConfig, KataConfigStatus, Severity};
use serde_json::{Map, Value, json};

use crate::bodies;
use crate::plan::Step;
use crate::report::{Finding, Report, StatusReport, StepFailure, Waiting};
use crate::selection;
use crate::snapshot::Snapshot;
use crate::steps::Steps;
use crate::text;
use crate::view::{NodeView, View};

/// How many nodes a message names.
const NAMES: usize = 5;
/// Most bytes of a condition's message; the API allows 32,768.
const MESSAGE: usize = 4_096;
/// Our condition types, in the order in which they are written.
const TYPES: &[&str] = &[
    conditions::IN_PROGRESS,
    conditions::READY,
    conditions::RECONCILING,
    conditions::STALLED,
    conditions::DEGRADED,
    conditions::DELETION_BLOCKED,
];

/// A condition without its times.
struct Wanted {
    type_: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

impl Wanted {
    fn new(
        type_: &'static str,
        status: &'static str,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { type_, status, reason: reason.into(), message: message.into() }
    }
}

/// Where the KataConfig stands, in terms of its conditions.
struct Standing<'a> {
    ready: bool,
    /// Something of our own is still to be done.
    pending: bool,
    /// What keeps the pending from being done, if nothing moves.
    stalled_by: Option<&'a Finding>,
    summary: String,
    /// The worst finding that has to do with readiness.
    worst: Option<&'a Finding>,
    classes_exist: bool,
}

/// The status of the active KataConfig.
pub(crate) fn active(
    view: &View<'_>,
    steps: &Steps,
    report: &Report,
    planned: &[Step],
    failures: &[StepFailure],
) -> StatusReport {
    let config = view.config;
    let previous = config.status.as_ref();
    let standing = standing(view, report, planned);
    let failed = failures.iter().any(|failure| !failure.object.kind.is_beside());
    let acted_on = previous.and_then(|status| status.observed_generation);
    let generation = if failed { acted_on } else { config.metadata.generation };
    let mut wanted = vec![in_progress(view, steps, &standing), ready(view, &standing, report)];
    if failed && acted_on != config.metadata.generation {
        let message = worst(report).map(|finding| finding.message.clone()).unwrap_or_default();
        wanted.pop();
        wanted.push(Wanted::new(
            conditions::READY,
            "False",
            Code::WriteFailed.entry().reason,
            format!("the latest change is not carried out: {message}"),
        ));
    }
    match standing.stalled_by {
        Some(finding) => wanted.push(Wanted::new(
            conditions::STALLED,
            "True",
            finding.code.entry().reason,
            format!("{}: {} {}", finding.code, finding.message, fix(finding)),
        )),
        None if standing.pending => wanted.push(Wanted::new(
            conditions::RECONCILING,
            "True",
            if view.deleting { in_progress::UNINSTALLING } else { reasons::ROLLING_OUT },
            standing.summary.clone(),
        )),
        None => {}
    }
    wanted.push(degraded(report));
    if view.deleting {
        wanted.push(deletion_blocked(report));
    }
    let status = KataConfigStatus {
        observed_generation: generation,
        runtime_classes: existing_classes(view),
        kata_nodes: kata_nodes(view),
        conditions: conditions(view.now, previous, generation, wanted),
        waiting_for_mco_to_start: false,
    };
    status_report(config, status)
}

fn fix(finding: &Finding) -> String {
    format!("({})", finding.fix.trim_end_matches('.'))
}

/// The status of the active KataConfig when too little could be read to say anything: all stays as it
/// was, besides that it is not known any more whether it is so.
pub(crate) fn unreadable(
    snapshot: &Snapshot,
    config: &KataConfig,
    report: &Report,
) -> StatusReport {
    let mut status = config.status.clone().unwrap_or_default();
    let Some(finding) = worst(report) else { return status_report(config, status) };
    let value = if finding.code == Code::ReadFailed { "Unknown" } else { "False" };
    let wanted = vec![
        Wanted::new(conditions::READY, value, finding.code.entry().reason, finding.message.clone()),
        degraded(report),
    ];
    let kept: Vec<Condition> = status
        .conditions
        .iter()
        .filter(|condition| wanted.iter().all(|wanted| wanted.type_ != condition.type_))
        .cloned()
        .collect();
    let generation = status.observed_generation;
    let mut all = conditions(
        crate::view::to_the_second(snapshot.now),
        config.status.as_ref(),
        generation,
        wanted,
    );
    all.retain(|condition| kept.iter().all(|kept| kept.type_ != condition.type_));
    all.extend(kept);
    sort(&mut all);
    status.conditions = all;
    status_report(config, status)
}

/// The status of a KataConfig that is not active.
pub(crate) fn not_active(
    snapshot: &Snapshot,
    config: &KataConfig,
    active: Option<&KataConfig>,
) -> StatusReport {
    let name = active.and_then(|active| active.metadata.name.as_deref()).unwrap_or_default();
    let reason = Code::NotActive.entry().reason;
    let code = Code::NotActive;
    let message = format!(
        "{code}: KataConfig {name} is older, and only the oldest is active (delete this one, or {name})"
    );
    let generation = config.metadata.generation;
    let wanted = vec![
        Wanted::new(conditions::IN_PROGRESS, "False", reason, message.clone()),
        Wanted::new(conditions::READY, "False", reason, message.clone()),
        Wanted::new(conditions::STALLED, "True", reason, message),
    ];
    let status = KataConfigStatus {
        observed_generation: generation,
        conditions: conditions(
            crate::view::to_the_second(snapshot.now),
            config.status.as_ref(),
            generation,
            wanted,
        ),
        ..KataConfigStatus::default()
    };
    status_report(config, status)
}

fn worst(report: &Report) -> Option<&Finding> {
    report.findings.iter().find(|finding| finding.code.entry().severity >= Severity::Warning)
}

/// Whether a finding can keep selected nodes from being ready, or leaving ones from leaving.
fn concerns_readiness(finding: &Finding) -> bool {
    // Neither a KataNode that is out of date nor the lack of kata-monitor keeps a node from anything.
    !finding.subject.kind.is_beside()
        && !matches!(
            finding.code,
            Code::PeerPodsUnsupported
                | Code::SelectorIgnored
                | Code::WorkersNotCovered
                | Code::NodeInOtherPool
                | Code::UnsupportedNode
                | Code::InvalidLogLevel
                | Code::RuntimeClassInUse
                | Code::RolloutNotHonoured
                | Code::ForeignRuntimeLabel
                | Code::AdoptedOverhead
                | Code::OtherInstaller
        )
}

fn standing<'a>(view: &View<'_>, report: &'a Report, planned: &[Step]) -> Standing<'a> {
    let wanted = view.nodes.iter().filter(|node| node.wanted).count();
    let all_ready = wanted > 0 && view.nodes.iter().all(|node| !node.wanted || is_ready(node));
    let existing = existing_classes(view);
    let classes_exist = view.runtimes.iter().all(|runtime| existing.contains(&runtime.name));
    // With a selector that cannot be evaluated the spec is not acted on, whatever the nodes are.
    let understood = report.findings.iter().all(|finding| finding.code != Code::InvalidSelector);
    let behind = view.nodes.iter().any(|node| node.behind);
    let ready = !view.deleting && all_ready && classes_exist && understood && !behind;
    let ours = |node: &NodeView<'_>| {
        !node.wanted
            || matches!(node.phase, Phase::Waiting | Phase::Installing | Phase::Failed)
            || (node.phase == Phase::Ready && !node.verified && node.joins())
    };
    // What stands in the way of a class is not work that is going on.
    let foreign = |name: &str| {
        report.findings.iter().any(|finding| {
            finding.code == Code::ForeignRuntimeClass && finding.subject.name == name
        })
    };
    let classes_to_come = view
        .runtimes
        .iter()
        .any(|runtime| !existing.contains(&runtime.name) && !foreign(&runtime.name));
    let pending =
        view.deleting || behind || view.nodes.iter().any(ours) || (all_ready && classes_to_come);
    let moving = view.nodes.iter().any(|node| node.in_flight() && node.finding.is_none())
        || planned.iter().any(|step| !step.action.object().kind.is_beside());
    let mut concerning = report.findings.iter().filter(|finding| {
        finding.code.entry().severity >= Severity::Warning && concerns_readiness(finding)
    });
    // That nothing is selected is plain while nodes leave; what holds them up is not.
    let first = concerning.next();
    let worst = match first {
        Some(finding) if finding.code == Code::NoNodesSelected => concerning.next().or(first),
        first => first,
    };
    let nothing_selected = wanted == 0 && !view.deleting;
    let stalled_by = worst.filter(|finding| {
        (pending || nothing_selected || !ready)
            && !moving
            && (finding.code != Code::NoNodesSelected || view.nodes.is_empty())
            && !matches!(
                finding.code,
                Code::PodsStillRunning
                    | Code::PodsOnLeavingNode
                    | Code::NodeNotReady
                    | Code::NodeStateUnknown
                    | Code::ReadFailed
                    | Code::WriteFailed
                    // These are tried again by themselves.
                    | Code::NodeJobFailed
                    | Code::NodeJobVanished
                    | Code::NodeJobTimedOut
                    | Code::NodeJobNoReport
                    | Code::SandboxesOnNode
                    | Code::NodeDrifted
            )
    });
    Standing {
        ready,
        pending,
        stalled_by,
        summary: summary(view, wanted, report, worst.is_some()),
        worst,
        classes_exist,
    }
}

/// Whether a node can run sandboxed pods and pods can get there.
fn is_ready(node: &NodeView<'_>) -> bool {
    node.phase == Phase::Ready && node.verified
}

/// `1 of 3 nodes ready; worker-1 draining (2/6), worker-2 waiting`.
fn summary(view: &View<'_>, wanted: usize, report: &Report, held_up: bool) -> String {
    let mut others: Vec<&NodeView<'_>> =
        view.nodes.iter().filter(|node| !node.wanted || !is_ready(node) || node.behind).collect();
    // Those that need help first, then those that move.
    others.sort_by_key(|node| (node.phase != Phase::Failed, !node.in_flight()));
    let briefs: Vec<String> = others
        .iter()
        .map(|node| {
            if view.deleting || node.wanted {
                node.brief()
            } else {
                format!("{} leaving: {}", node.facts.name, node.state())
            }
        })
        .collect();
    let mut tail =
        if briefs.is_empty() { String::new() } else { format!("; {}", text::list(&briefs, NAMES)) };
    // What all of them wait for, as long as none moves.
    let awaited = report
        .waiting_on
        .iter()
        .find(|waiting| matches!(waiting.what, Waiting::Render | Waiting::Deletion));
    if let Some(awaited) = awaited
        && !held_up
        && !view.nodes.iter().any(NodeView::in_flight)
    {
        tail.push_str(&format!("; waiting for {}", awaited.message));
    }
    if view.deleting {
        return match view.nodes.len() {
            0 => format!("removing: no node has Kata any more{tail}"),
            left => {
                let all = text::count(view.selected.max(left), "node");
                format!("removing: {left} of {all} left{tail}")
            }
        };
    }
    let ready = view.nodes.iter().filter(|node| node.wanted && is_ready(node)).count();
    format!("{ready} of {} ready{tail}", text::count(wanted, "node"))
}

fn ready(view: &View<'_>, standing: &Standing<'_>, report: &Report) -> Wanted {
    let summary = &standing.summary;
    if standing.ready {
        // Whoever leaves may be held up all the same, and whoever is left out may be missed.
        let message = match standing.worst.or_else(|| worst(report)) {
            Some(finding) => format!("{summary}; {}: {}", finding.code, finding.message),
            None => summary.clone(),
        };
        return Wanted::new(conditions::READY, "True", reasons::ALL_NODES_READY, message);
    }
    let worst = standing.worst.map(|finding| {
        (finding.code.entry().reason, format!("{summary}; {}: {}", finding.code, finding.message))
    });
    if view.deleting {
        let message = worst.map_or_else(|| summary.clone(), |(_, message)| message);
        return Wanted::new(conditions::READY, "False", in_progress::UNINSTALLING, message);
    }
    let all_ready = view.nodes.iter().all(|node| !node.wanted || is_ready(node));
    let (reason, message) = match worst {
        Some(worst) => worst,
        None if all_ready && !standing.classes_exist && !view.nodes.is_empty() => {
            (reasons::RUNTIME_CLASS_MISSING, format!("{summary}; {} yet", missing_classes(view)))
        }
        None => {
            let other = report.findings.iter().find(|finding| finding.code == Code::OtherRollout);
            match other {
                Some(finding) if !standing.pending => (
                    finding.code.entry().reason,
                    format!("{summary}; {}: {}", finding.code, finding.message),
                ),
                _ if standing.pending => (reasons::ROLLING_OUT, summary.clone()),
                _ => (reasons::NODES_NOT_READY, summary.clone()),
            }
        }
    };
    Wanted::new(conditions::READY, "False", reason, message)
}

fn in_progress(view: &View<'_>, steps: &Steps, standing: &Standing<'_>) -> Wanted {
    let wanted = |status, reason: &str, message: String| {
        Wanted::new(conditions::IN_PROGRESS, status, reason, message)
    };
    if view.deleting {
        return match steps.blocked_by.first() {
            Some(class) => wanted(
                "False",
                in_progress::BLOCKED_BY_EXISTING_KATA_PODS,
                in_progress::blocked_message(class),
            ),
            None => wanted(
                "True",
                in_progress::UNINSTALLING,
                in_progress::UNINSTALLING_MESSAGE.to_owned(),
            ),
        };
    }
    if let Some(node) = view.nodes.iter().find(|node| node.phase == Phase::Failed) {
        let message = in_progress::failed_message(&node.facts.name, node.failure());
        return wanted("True", in_progress::FAILED, message);
    }
    if view.nodes.is_empty() {
        let reason = Code::NoNodesSelected.entry().reason;
        let cause = Code::NoNodesSelected.entry().cause;
        let message = standing.worst.map_or(cause, |finding| finding.message.as_str());
        return wanted("False", reason, message.to_owned());
    }
    if !standing.pending {
        let reason = match (standing.ready, standing.worst) {
            (false, Some(finding)) => finding.code.entry().reason,
            _ => in_progress::AS_EXPECTED,
        };
        return wanted("False", reason, standing.summary.clone());
    }
    let before = view
        .config
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .find(|condition| condition.type_ == conditions::IN_PROGRESS)
        .map(|condition| condition.reason.as_str());
    let initial = before == Some(in_progress::INSTALLING)
        || (existing_classes(view).is_empty()
            && view.config.status.as_ref().is_none_or(|status| status.runtime_classes.is_empty()));
    if initial {
        wanted("True", in_progress::INSTALLING, in_progress::INSTALLING_MESSAGE.to_owned())
    } else {
        wanted("True", in_progress::UPDATING, in_progress::UPDATING_MESSAGE.to_owned())
    }
}

fn degraded(report: &Report) -> Wanted {
    let errors: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|finding| {
            finding.code.entry().severity == Severity::Error
                && !matches!(finding.code, Code::PodsStillRunning | Code::ReadFailed)
        })
        .collect();
    match errors.first() {
        Some(first) => {
            let messages: Vec<String> = errors
                .iter()
                .map(|finding| format!("{}: {}", finding.code, finding.message))
                .collect();
            Wanted::new(
                conditions::DEGRADED,
                "True",
                first.code.entry().reason,
                text::list(&messages, NAMES),
            )
        }
        None => Wanted::new(
            conditions::DEGRADED,
            "False",
            reasons::AS_EXPECTED,
            "nothing is known to be broken",
        ),
    }
}

fn deletion_blocked(report: &Report) -> Wanted {
    let blocking = report
        .findings
        .iter()
        .find(|finding| finding.code == Code::PodsStillRunning)
        .or_else(|| worst(report).filter(|finding| concerns_readiness(finding)));
    match blocking {
        Some(finding) => Wanted::new(
            conditions::DELETION_BLOCKED,
            "True",
            finding.code.entry().reason,
            format!("{}: {} {}", finding.code, finding.message, fix(finding)),
        ),
        None => Wanted::new(
            conditions::DELETION_BLOCKED,
            "False",
            reasons::NOT_BLOCKED,
            "nothing blocks the deletion",
        ),
    }
}

/// `RuntimeClass kata does not exist`.
fn missing_classes(view: &View<'_>) -> String {
    let existing = existing_classes(view);
    let missing: Vec<String> = view
        .runtimes
        .iter()
        .filter(|runtime| !existing.contains(&runtime.name))
        .map(|runtime| runtime.name.clone())
        .collect();
    let names = text::list(&missing, NAMES);
    if missing.len() == 1 {
        format!("RuntimeClass {names} does not exist")
    } else {
        format!("the RuntimeClasses {names} do not exist")
    }
}

/// The RuntimeClasses that exist and are ours.
fn existing_classes(view: &View<'_>) -> Vec<String> {
    let mut names: Vec<String> = view
        .snapshot
        .runtime_classes
        .known()
        .into_iter()
        .flatten()
        .filter(|class| bodies::is_our_class(class) && class.metadata.deletion_timestamp.is_none())
        .filter_map(|class| class.metadata.name.clone())
        .collect();
    names.sort();
    names
}

fn kata_nodes(view: &View<'_>) -> KataNodes {
    let mut truncated = false;
    let mut names = |keep: &dyn Fn(&NodeView<'_>) -> bool| {
        let mut names: Vec<String> = view
            .nodes
            .iter()
            .filter(|node| keep(node))
            .map(|node| node.facts.name.clone())
            .collect();
        truncated |= names.len() > LIST_CAP;
        names.truncate(LIST_CAP);
        names
    };
    let mut lists = KataNodes {
        installed: names(&is_ready),
        installing: names(&|node| {
            node.phase == Phase::Installing || (node.phase == Phase::Ready && !node.verified)
        }),
        waiting_to_install: names(&|node| node.phase == Phase::Waiting),
        failed_to_install: names(&|node| node.wanted && node.phase == Phase::Failed),
        uninstalling: names(&|node| node.phase == Phase::Removing),
        waiting_to_uninstall: names(&|node| node.phase == Phase::WaitingToRemove),
        failed_to_uninstall: names(&|node| !node.wanted && node.phase == Phase::Failed),
        ..KataNodes::default()
    };
    lists.truncated = truncated;
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    lists.node_count = count(view.selected);
    lists.ready_node_count = count(view.nodes.iter().filter(|node| is_ready(node)).count());
    lists
}

fn conditions(
    now: Timestamp,
    previous: Option<&KataConfigStatus>,
    generation: Option<i64>,
    wanted: Vec<Wanted>,
) -> Vec<Condition> {
    let before = |type_: &str| {
        previous.into_iter().flat_map(|status| &status.conditions).find(|c| c.type_ == type_)
    };
    let mut conditions: Vec<Condition> = wanted
        .into_iter()
        .map(|wanted| Condition {
            last_transition_time: before(wanted.type_)
                .filter(|condition| condition.status == wanted.status)
                .map_or(Time(now), |condition| condition.last_transition_time.clone()),
            message: text::cut(&wanted.message, MESSAGE),
            observed_generation: generation,
            reason: wanted.reason,
            status: wanted.status.to_owned(),
            type_: wanted.type_.to_owned(),
        })
        .collect();
    // Conditions of other people stay.
    conditions.extend(
        previous
            .into_iter()
            .flat_map(|status| &status.conditions)
            .filter(|condition| !TYPES.contains(&condition.type_.as_str()))
            .cloned(),
    );
    sort(&mut conditions);
    conditions
}

fn sort(conditions: &mut [Condition]) {
    let place = |condition: &Condition| {
        TYPES.iter().position(|type_| *type_ == condition.type_).unwrap_or(TYPES.len())
    };
    conditions.sort_by_key(place);
}

fn status_report(config: &KataConfig, status: KataConfigStatus) -> StatusReport {
    let patch = (config.status.as_ref() != Some(&status)).then(|| {
        let old = config.status.as_ref().map_or(Value::Null, |status| json!(status));
        let mut new = json!(status);
        null_absent(&mut new, &old);
        json!({"status": new})
    });
    StatusReport { config: selection::config_ref(config), status, patch }
}

/// In a merge patch a field that is to go is null.
fn null_absent(new: &mut Value, old: &Value) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else { return };
    let missing: Map<String, Value> = old
        .keys()
        .filter(|key| !new.contains_key(*key))
        .map(|key| (key.clone(), Value::Null))
        .collect();
    for (key, value) in new.iter_mut() {
        if let Some(old) = old.get(key) {
            null_absent(value, old);
        }
    }
    new.extend(missing);
}
