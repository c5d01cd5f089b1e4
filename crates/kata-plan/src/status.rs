//! The status of each KataConfig: counts, lists and conditions.
//!
//! A condition keeps its `lastTransitionTime` while its status stays the same, so an idle pass yields the
//! current status and writes nothing.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kata_api::situations::Situation;
use kata_api::{Code, KataConfig, KataConfigStatus, conditions};

use crate::assessment::Assessment;
use crate::configs::config_ref;
use crate::draft::Draft;
use crate::leaving;
use crate::object::Kind;
use crate::plan::Step;
use crate::report::{Finding, Report, StatusReport, StepFailure};

mod condition;
mod findings;
mod lists;
mod situation;
mod summary;

use condition::{NewCondition, conditions, degraded, sort};
pub use findings::with_findings;
use findings::{with_failed_reads, worst};
use lists::existing_classes;

/// The status of the active KataConfig.
pub(crate) fn active(
    cluster: &Assessment,
    draft: &Draft,
    report: &Report,
    planned: &[Step],
    failures: &[StepFailure],
) -> StatusReport {
    let config = &cluster.config;
    let previous = config.status.as_ref();
    let state = situation::config_state(cluster, report, planned, failures);
    let mut refused = failures.iter().filter(|it| it.code != Code::WriteUndone);
    let refused = refused.find(|it| !it.object.kind.is_auxiliary());
    let acted_on = previous.and_then(|status| status.observed_generation);
    let generation = if refused.is_some() { acted_on } else { config.metadata.generation };
    let mut wanted = condition::of_active(cluster, draft, report, &state);
    if let Some(failure) = refused
        && acted_on != config.metadata.generation
    {
        wanted.retain(|condition| condition.type_ != conditions::READY);
        let message = worst(report).map(|finding| finding.message.clone()).unwrap_or_default();
        wanted.push(NewCondition::new(
            conditions::READY,
            "False",
            failure.code.entry().reason,
            format!("the latest change is not applied: {message}"),
        ));
    }
    // Without the time in the KataNode, a node that leaves since a selector was edited would look like one that lost its labels.
    let is_unwritten = failures.iter().any(|failure| {
        failure.object.kind == Kind::KataNode
            && cluster
                .nodes
                .iter()
                .any(|node| node.leaves_at.is_some() && node.facts.name == failure.object.name)
    });
    let selectors_digest = if is_unwritten {
        previous.and_then(|status| status.selectors_digest.clone())
    } else {
        Some(leaving::selectors_digest(&config.spec))
    };
    let status = KataConfigStatus {
        observed_generation: generation,
        selectors_digest,
        runtime_classes: existing_classes(cluster),
        runtimes: lists::runtimes(cluster),
        kata_nodes: lists::kata_nodes(cluster),
        conditions: conditions(cluster.now, previous, generation, wanted),
        ..KataConfigStatus::default()
    };
    status_report(config, with_findings(status, &report.findings))
}

/// The status of the active KataConfig if the cluster could not be assessed. The findings report the failed reads;
/// counts and lists stay as they were, and so do the other conditions until that has lasted for long.
pub(crate) fn unreadable(now: Timestamp, config: &KataConfig, report: &Report) -> StatusReport {
    let mut status = config.status.clone().unwrap_or_default();
    let Some(finding) = worst(report) else { return status_report(config, status) };
    let row = situation::unreadable(now, config, finding).row();
    let reason = finding.code.entry().reason;
    let ready = if finding.code == Code::ReadFailed { "Unknown" } else { "False" };
    let mut wanted =
        vec![NewCondition::new(conditions::READY, ready, reason, finding.message.clone())];
    let message = condition::with_fix(finding);
    if row.deletion_blocked == Some(true) {
        let blocked =
            NewCondition::new(conditions::DELETION_BLOCKED, "True", reason, message.clone());
        wanted.push(blocked);
    }
    if report.findings.iter().any(situation::is_error) {
        wanted.push(degraded(report, situation::is_error));
    }
    if row.stalled {
        wanted.push(NewCondition::new(conditions::STALLED, "True", reason, message));
        for type_ in [conditions::IN_PROGRESS, conditions::DEGRADED] {
            if wanted.iter().all(|condition| condition.type_ != type_) {
                let message = finding.message.clone();
                wanted.push(NewCondition::new(type_, "Unknown", reason, message));
            }
        }
    }
    let mut all = conditions(now, Some(&status), status.observed_generation, wanted);
    if !row.stalled {
        let is_new = |type_: &str| all.iter().any(|condition| condition.type_ == type_);
        let kept = status.conditions.iter().filter(|condition| !is_new(&condition.type_));
        let kept: Vec<Condition> = kept.cloned().collect();
        all.extend(kept);
        sort(&mut all);
    }
    status.conditions = all;
    status_report(config, with_failed_reads(status, &report.findings))
}

/// The status of a KataConfig that is not active.
pub(crate) fn not_active(
    now: Timestamp,
    config: &KataConfig,
    active: Option<&KataConfig>,
) -> StatusReport {
    let name = active.and_then(|active| active.metadata.name.as_deref()).unwrap_or_default();
    let reason = Code::NotActive.entry().reason;
    let code = Code::NotActive;
    let finding = Finding {
        code,
        subject: config_ref(config),
        message: format!("KataConfig {name} is older, and only the oldest is active"),
        fix: format!("Delete this one, or {name}."),
    };
    let message = condition::with_fix(&finding);
    let generation = config.metadata.generation;
    let mut wanted = vec![
        NewCondition::new(conditions::IN_PROGRESS, "False", reason, message.clone()),
        NewCondition::new(conditions::READY, "False", reason, message.clone()),
    ];
    let stalled = Situation::NotActive.row().stalled;
    wanted.extend(stalled.then(|| NewCondition::new(conditions::STALLED, "True", reason, message)));
    let status = KataConfigStatus {
        observed_generation: generation,
        conditions: conditions(now, config.status.as_ref(), generation, wanted),
        ..KataConfigStatus::default()
    };
    status_report(config, with_findings(status, &[finding]))
}

fn status_report(config: &KataConfig, status: KataConfigStatus) -> StatusReport {
    let needs_write = config.status.as_ref() != Some(&status);
    StatusReport { config: config_ref(config), status, needs_write }
}
