//! Whether the operator hears: a change of the KataConfig that it has not taken up, and why it says nothing.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kata_api::{Code, KataConfig, conditions, names};
use serde_json::Value;

use crate::api::{Api, Read};
use crate::cluster::{Deployment, Kata, OperatorState, lease, operator_pods, operator_quietly};
use crate::commands::why::kubelet;
use crate::document::{ConfigFacts, Problem, StatusReport};
use crate::failure::Failure;
use crate::human;
use crate::problem;

/// How long the operator may take to take up a change before that is worth a word.
const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// How long an image may take to be pulled, with the attempts that a registry's hiccup costs.
const PULLED_WITHIN: SignedDuration = SignedDuration::from_secs(60);
/// What the operator says when it has heard of a change and cannot act on it: then it leaves the observed
/// generation as it was.
const HINDERED: [Code; 3] =
    [Code::WriteFailed, Code::ReadFailed, Code::MachineConfigOperatorNotReady];

/// What the operator made of the latest change of a KataConfig.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Hearing {
    /// It has taken it up.
    Taken,
    /// It may still need a moment.
    Fresh,
    /// It says with this reason why it cannot act on it.
    Hindered(String),
    /// It says nothing, although it had the time to.
    Silent(Problem),
}

/// Whether what a status says is about the latest change of its KataConfig.
pub(crate) fn is_current(config: &ConfigFacts) -> bool {
    let hindered = |reason: &str| HINDERED.iter().any(|code| code.entry().reason == reason);
    config.observed_generation == Some(config.generation)
        || config.ready.as_ref().is_some_and(|ready| hindered(&ready.reason))
}

/// That no operator holds its Lease, or that its holder does not renew it any more, however much it had heard
/// before. Nothing where no operator ever had one, or where the API server does not tell the time.
///
/// The time of the last renewal is what the API server stamped on it, and now is what the same clock shows: an
/// operator's and this machine's may be wrong. Besides, it must be as long ago by the operator's own time and
/// this machine's clock: where the cluster's time runs faster than the operator's, as in a simulation, a renewal
/// looks older than it is. So a clock that is wrong can make this late, and cannot make it false.
pub(crate) fn abandoned(
    lease: &Read<Option<Lease>>,
    kata: &Kata,
    now: Timestamp,
) -> Option<Problem> {
    let lease = lease.as_known()?.as_ref()?;
    let spec = lease.spec.as_ref()?;
    let renewed = spec.renew_time.as_ref()?.0;
    let stamps = lease.metadata.managed_fields.iter().flatten();
    let stamped = stamps.filter_map(|entry| entry.time.as_ref()).map(|time| time.0).max();
    let by_cluster = kata.time?.duration_since(stamped.unwrap_or(renewed));
    let age = by_cluster.min(now.duration_since(renewed));
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty());
    let counts = spec.lease_duration_seconds.unwrap_or_default();
    let respected = SignedDuration::from_secs(holder.map_or(0, |_| i64::from(counts)));
    if age <= respected + GRACE {
        return None;
    }
    let place = lease.metadata.namespace.as_deref().unwrap_or(names::NAMESPACE);
    let place = format!("{place}/{}", names::PRODUCT);
    let span = human::span(age);
    let text = match holder {
        Some(holder) => format!(
            "no operator is working: {holder} has not renewed the Lease {place} for {span}, which counts for {counts}s"
        ),
        None => {
            format!("no operator is working: the Lease {place} has had no holder for {span}")
        }
    };
    Some(Problem::new(Code::OperatorSilent, format!("lease/{}", names::PRODUCT), text))
}

/// What the operator made of the latest change of a KataConfig.
pub(crate) fn hearing(config: &KataConfig, now: Timestamp) -> Hearing {
    let metadata = &config.metadata;
    let status = config.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation);
    if observed == metadata.generation {
        return Hearing::Taken;
    }
    let mut said = status.iter().flat_map(|status| &status.conditions);
    let reason = said
        .find(|condition| condition.type_ == conditions::READY)
        .map(|ready| ready.reason.clone())
        .filter(|reason| HINDERED.iter().any(|code| code.entry().reason == reason));
    if let Some(reason) = reason {
        return Hearing::Hindered(reason);
    }
    let written = metadata.managed_fields.iter().flatten();
    let changed = written
        .filter(|entry| entry.subresource.as_deref() != Some("status"))
        .filter_map(|entry| entry.time.as_ref())
        .chain(&metadata.creation_timestamp)
        .chain(&metadata.deletion_timestamp)
        .map(|time| time.0)
        .max();
    if changed.is_some_and(|changed| now.duration_since(changed) < GRACE) {
        return Hearing::Fresh;
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    let seen = observed.map_or_else(|| "nothing of it yet".to_owned(), |g| format!("only {g}"));
    let message = format!(
        "the operator has not taken up generation {} of KataConfig {name}: it has seen {seen}",
        metadata.generation.unwrap_or_default()
    );
    Hearing::Silent(Problem::new(Code::OperatorSilent, format!("kataconfig/{name}"), message))
}

/// Adds that the operator does not run, or why it says nothing, as far as its Deployment tells. Who may not see
/// that is not told of it: the command can do without. What is ready needs nobody.
pub(crate) async fn look_and_explain(
    api: &Api,
    kata: &Kata,
    now: Timestamp,
    report: &mut StatusReport,
) -> Result<(), Failure> {
    // One after the other: the first finds out where the other is.
    let deployment = operator_quietly(api).await?;
    let lease = lease(api).await?;
    explain(&deployment, &lease, kata, now, report);
    add_cause(api, now, report).await
}

/// Why no pod of the operator is ready.
pub(crate) struct Unready {
    /// As the kubelet says it.
    pub(crate) message: String,
    pub(crate) fix: String,
    /// Whether nothing changes that but a person.
    pub(crate) is_final: bool,
}

/// Why no pod of the operator is ready; `None` if the kubelet says nothing, or the caller may not read that.
pub(crate) async fn why_unready(api: &Api, now: Timestamp) -> Result<Option<Unready>, Failure> {
    let pods = operator_pods(api, &api.for_watches()).await?;
    let is_over = |pod: &Value| {
        pod["metadata"]["deletionTimestamp"].is_string() || pod["status"]["phase"] == "Failed"
    };
    let causes = pods.items().iter().filter(|pod| !is_over(pod)).flat_map(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let is_old =
            on_its_node_since(pod).is_some_and(|since| now.duration_since(since) >= PULLED_WITHIN);
        let causes = kubelet::causes(pod, &[], &format!("pod/{name}"));
        causes.into_iter().map(move |cause| (cause, is_old))
    });
    let mut causes: Vec<(Problem, bool)> = causes.collect();
    // What does not change by itself comes first.
    causes.sort_by_key(|(cause, is_old)| (cause.id != Code::ImageNotPulled.entry().code, !is_old));
    let Some((cause, is_old)) = causes.into_iter().next() else { return Ok(None) };
    let is_image = cause.id == Code::ImageNotPulled.entry().code;
    let fix = if is_image {
        "give the operator an image that the nodes can pull: `kubectl kata install --upgrade --operator-image REF`; \
         with Helm, `image` of the chart"
            .to_owned()
    } else {
        cause.fix
    };
    Ok(Some(Unready { message: cause.message, fix, is_final: is_image && is_old }))
}

/// When a pod came to its node, or else when it was created.
fn on_its_node_since(pod: &Value) -> Option<Timestamp> {
    let time = |value: &Value| value.as_str()?.parse().ok();
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let scheduled = conditions.find(|it| it["type"] == "PodScheduled" && it["status"] == "True");
    let scheduled = scheduled.and_then(|condition| time(&condition["lastTransitionTime"]));
    scheduled.or_else(|| time(&pod["metadata"]["creationTimestamp"]))
}

/// Adds why no pod of the operator is ready, if that is so.
pub(super) async fn add_cause(
    api: &Api,
    now: Timestamp,
    report: &mut StatusReport,
) -> Result<(), Failure> {
    let id = Code::OperatorNotRunning.entry().code;
    if report.no_operator || !report.problems.iter().any(|problem| problem.id == id) {
        return Ok(());
    }
    let Some(unready) = why_unready(api, now).await? else { return Ok(()) };
    report.no_operator = unready.is_final;
    for problem in report.problems.iter_mut().filter(|problem| problem.id == id) {
        problem.message = format!("{}: {}", problem.message, unready.message);
        unready.fix.clone_into(&mut problem.fix);
    }
    Ok(())
}

/// Whether there is an operator.
pub(crate) async fn operator_state(
    api: &Api,
    kata: &Kata,
    now: Timestamp,
) -> Result<OperatorState, Failure> {
    let deployment = operator_quietly(api).await?;
    let lease = lease(api).await?;
    Ok(OperatorState::of(&deployment, &lease, abandoned(&lease, kata, now).is_some()))
}

/// Adds that the operator is missing, not ready or silent.
pub(super) fn explain(
    operator: &Read<Option<Deployment>>,
    lease: &Read<Option<Lease>>,
    kata: &Kata,
    now: Timestamp,
    report: &mut StatusReport,
) {
    let abandoned = abandoned(lease, kata, now);
    let state = OperatorState::of(operator, lease, abandoned.is_some());
    report.operator_unknown = state == OperatorState::Unknown;
    if let Some(missing) = state.missing() {
        // The status is outdated without an operator; that the operator is silent follows from that.
        report.success = false;
        report.no_operator = true;
        report.problems.retain(|problem| problem.id != Code::OperatorSilent.entry().code);
        report.problems.push(missing);
    } else {
        let facts = operator.as_known().and_then(Option::as_ref).map(Deployment::facts);
        if let Some(facts) = facts.filter(|_| state == OperatorState::NotReady) {
            let all = facts.replicas.unwrap_or_default();
            let text = format!("0 of {all} pods of the operator are ready");
            let place = format!("deployment/{}", names::PRODUCT);
            report.problems.push(Problem::new(Code::OperatorNotRunning, place, text));
        }
        report.problems.extend(abandoned);
    }
    problem::sort(&mut report.problems);
}
