//! The Job controller: pods until enough of them succeeded, or too many failed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::owned::{BURST, Maker, Owned, split, write_status};
use crate::api::Event;
use crate::api::server::DeleteOptions;
use crate::node::pod;
use crate::recorder::{condition, note, set_condition, time};
use crate::resource::{JOBS, PODS};
use crate::simulation::{Context, Controller};

/// The first pause after a failed pod; it doubles with each, up to six minutes.
const BACK_OFF: Duration = Duration::from_secs(10);
/// The first and the longest pause after a pod that the API server refused; it doubles with each.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The Job controller.
#[derive(Debug)]
pub struct Jobs {
    pods: Owned,
    /// How many pods of a Job were refused in a row.
    refusals: BTreeMap<String, u32>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self { pods: Owned::by("Job"), refusals: BTreeMap::new() }
    }
}

impl Controller for Jobs {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == JOBS {
            cx.after(format!("{}/{}", event.namespace, event.name), Duration::ZERO);
        } else if event.resource == PODS
            && let Some((namespace, name)) = self.pods.observe(event)
        {
            cx.after(format!("{namespace}/{name}"), Duration::ZERO);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let (key, verb) = key.split_once('#').unwrap_or((key, ""));
        let (namespace, name) = split(key);
        let Some(job) = cx.api.get(&JOBS, namespace, name) else {
            self.refusals.remove(key);
            return;
        };
        if !job["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let over = condition(&job, "Complete") == "True" || condition(&job, "Failed") == "True";
        if verb == "expired" {
            if over {
                let options = DeleteOptions {
                    propagation: Some("Background".to_owned()),
                    ..DeleteOptions::default()
                };
                note("job", cx.api.delete(cx.writer(), &JOBS, namespace, name, &options));
            }
            return;
        }
        if !over {
            // The time of the deadline is a reason to look like any other.
            self.sync(key, &job, verb == "retry", cx);
        }
    }
}

impl Jobs {
    fn sync(&mut self, key: &str, job: &Value, retry: bool, cx: &mut Context<'_>) {
        let maker =
            Maker { owner: job, api_version: "batch/v1", kind: "Job", component: "job-controller" };
        let number = |field: &str, default: u64| {
            usize::try_from(job["spec"][field].as_u64().unwrap_or(default)).unwrap_or(usize::MAX)
        };
        let (completions, parallelism) = (number("completions", 1), number("parallelism", 1));
        let limit = number("backoffLimit", 6);
        let pods = self.pods.pods(job, cx);
        let in_phase =
            |phase: &str| pods.iter().filter(|pod| pod["status"]["phase"] == phase).count();
        let (succeeded, failed) = (in_phase("Succeeded"), in_phase("Failed"));
        let suspended = job["spec"]["suspend"] == true;
        let late = deadline(job).is_some_and(|deadline| deadline <= cx.now);
        if let Some(deadline) = deadline(job).filter(|_| !late) {
            cx.at(format!("{key}#late"), deadline);
        }
        let active: Vec<_> =
            pods.iter().filter(|pod| !pod::is_finished(pod) && !pod::is_deleting(pod)).collect();
        let restarts: u64 = active
            .iter()
            .flat_map(|pod| pod["status"]["containerStatuses"].as_array().into_iter().flatten())
            .filter_map(|status| status["restartCount"].as_u64())
            .fold(0, u64::saturating_add);
        let failures = failed.saturating_add(usize::try_from(restarts).unwrap_or(usize::MAX));
        let mut conditions = job["status"]["conditions"].clone();
        let mut running = active.len();
        let mut finished = None;
        if succeeded >= completions {
            finished = Some((
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            ));
        } else if late {
            let text = "Job was active longer than specified deadline";
            finished = Some(("Failed", "DeadlineExceeded", text));
        } else if failures > limit {
            let text = "Job has reached the specified backoff limit";
            finished = Some(("Failed", "BackoffLimitExceeded", text));
        } else if suspended {
            active.iter().for_each(|pod| maker.delete(pod, cx));
            running = 0;
        } else {
            let wanted = parallelism.min(completions - succeeded);
            let waits = failed > 0 && !retry && active.len() < wanted;
            if waits {
                let doubling = u32::try_from(failed - 1).unwrap_or(10).min(6);
                let pause = BACK_OFF.saturating_mul(1 << doubling).min(Duration::from_secs(360));
                cx.after(format!("{key}#retry"), pause);
            } else {
                for attempt in active.len()..wanted.min(active.len() + BURST) {
                    let created = maker.create(&attempt.to_string(), cx, |pod| label(pod, job));
                    if created.is_none() {
                        let refusals = self.refusals.entry(key.to_owned()).or_default();
                        let pause = REFUSED.0.saturating_mul(1 << (*refusals).min(6));
                        *refusals += 1;
                        cx.reschedule(key, pause.min(REFUSED.1));
                        break;
                    }
                    self.refusals.remove(key);
                    running += 1;
                }
            }
        }
        let ready = active.iter().filter(|pod| pod::is_ready(pod)).count();
        let mut status = json!({"active": running, "ready": ready, "terminating": 0});
        // A pod that is deleted because its Job is over has failed.
        let is_failed = finished.is_some_and(|(kind, ..)| kind == "Failed");
        let failed = if is_failed { failed.saturating_add(active.len()) } else { failed };
        for (field, value) in [("succeeded", succeeded), ("failed", failed)] {
            if value > 0 {
                status[field] = json!(value);
            }
        }
        // The deadline of a Job does not run while it is suspended.
        let has_begun = !job["status"]["startTime"].is_null();
        if suspended && has_begun && finished.is_none() {
            status["startTime"] = Value::Null;
        } else if !suspended && !has_begun {
            status["startTime"] = json!(time(cx.now));
        }
        if finished.is_none() && (suspended || condition(job, "Suspended") == "True") {
            let (value, reason, message) = if suspended {
                ("True", "JobSuspended", "Job suspended")
            } else {
                ("False", "JobResumed", "Job resumed")
            };
            set_condition(&mut conditions, "Suspended", value, reason, message, cx.now);
            status["conditions"] = conditions.clone();
        }
        if let Some((kind, reason, message)) = finished {
            set_condition(&mut conditions, kind, "True", reason, message, cx.now);
            status["conditions"] = conditions;
            status["active"] = json!(0);
            if kind == "Complete" {
                status["completionTime"] = json!(time(cx.now));
                maker.tell(cx, false, "Completed", "Job completed");
            } else {
                maker.tell(cx, true, reason, message);
            }
            active.iter().for_each(|pod| maker.delete(pod, cx));
            if let Some(seconds) = job["spec"]["ttlSecondsAfterFinished"].as_u64() {
                cx.after(format!("{key}#expired"), Duration::from_secs(seconds));
            }
        }
        write_status(cx, &JOBS, job, status);
    }
}

/// When a Job must be over.
fn deadline(job: &Value) -> Option<jiff::Timestamp> {
    let seconds = job["spec"]["activeDeadlineSeconds"].as_i64();
    let seconds = seconds.filter(|_| job["spec"]["suspend"] != true)?;
    let started: jiff::Timestamp = job["status"]["startTime"].as_str()?.parse().ok()?;
    started.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()
}

fn label(pod: &mut Value, job: &Value) {
    let labels = &mut pod["metadata"]["labels"];
    labels["batch.kubernetes.io/job-name"] = job["metadata"]["name"].clone();
    labels["job-name"] = job["metadata"]["name"].clone();
    labels["batch.kubernetes.io/controller-uid"] = job["metadata"]["uid"].clone();
    labels["controller-uid"] = job["metadata"]["uid"].clone();
}
