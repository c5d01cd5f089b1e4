//! The status of a pod as its kubelet writes it, stage by stage.
//!
//! Pure: it computes statuses from pods; the kubelet decides when each stage comes.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::quantity;
use crate::recorder::{set_condition, time};
use crate::world::identity;

/// The containers of a pod, without those that run before them.
pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["containers"].as_array().into_iter().flatten()
}

/// The containers that run before the others.
pub fn init_containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["initContainers"].as_array().into_iter().flatten()
}

/// How often the containers of the pod were started again: those that were most often.
pub fn restarts(pod: &Value) -> u32 {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let most = statuses.filter_map(|status| status["restartCount"].as_u64()).max().unwrap_or(0);
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// The ids of the pod's containers, as its status has them.
pub fn container_ids(pod: &Value) -> impl Iterator<Item = &str> {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    statuses.filter_map(|status| status["containerID"].as_str())
}

/// Whether nothing of the pod will run again.
pub fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether the pod is being deleted.
pub fn is_deleting(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Whether the pod serves.
pub fn is_ready(pod: &Value) -> bool {
    crate::recorder::condition(pod, "Ready") == "True"
}

/// What a started pod needs to know of its surroundings.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    /// The host's address.
    pub host_ip: &'a str,
    /// The pod's address.
    pub pod_ip: &'a str,
}

/// A pod as the kubelet's messages name it: `NAME_NAMESPACE(UID)`.
pub fn id(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    format!("{}_{}({})", text("name"), text("namespace"), text("uid"))
}

/// Whole seconds as Go prints a duration, such as `2m40s`.
fn go_duration(span: Duration) -> String {
    match (span.as_secs() / 60, span.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

fn names(pod: &Value) -> String {
    let names: Vec<&str> = containers(pod).filter_map(|c| c["name"].as_str()).collect();
    names.join(" ")
}

fn waiting(container: &Value, reason: &str) -> Value {
    json!({
        "name": container["name"], "image": container["image"], "imageID": "",
        "state": {"waiting": {"reason": reason}}, "lastState": {},
        "ready": false, "started": false, "restartCount": 0,
    })
}

fn not_ready(status: &mut Value, reason: &str, message: &str, now: Timestamp) {
    for kind in ["Ready", "ContainersReady"] {
        set_condition(&mut status["conditions"], kind, "False", reason, message, now);
    }
}

/// The kubelet has accepted the pod; nothing runs.
pub fn accepted(pod: &Value, host_ip: &str, now: Timestamp) -> Value {
    let mut status = pod["status"].clone();
    let message = format!("containers with unready status: [{}]", names(pod));
    let has_init = init_containers(pod).next().is_some();
    status["phase"] = json!("Pending");
    status["hostIP"] = json!(host_ip);
    status["hostIPs"] = json!([{"ip": host_ip}]);
    if status["startTime"].is_null() {
        status["startTime"] = json!(time(now));
    }
    let conditions = &mut status["conditions"];
    set_condition(conditions, "PodReadyToStartContainers", "False", "", "", now);
    if has_init {
        let text = "containers with incomplete status";
        set_condition(conditions, "Initialized", "False", "ContainersNotInitialized", text, now);
    } else {
        set_condition(conditions, "Initialized", "True", "", "", now);
    }
    not_ready(&mut status, "ContainersNotReady", &message, now);
    set_condition(&mut status["conditions"], "PodScheduled", "True", "", "", now);
    let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
    let statuses: Value = containers(pod).map(|c| waiting(c, reason)).collect();
    status["containerStatuses"] = statuses;
    if has_init {
        status["initContainerStatuses"] =
            init_containers(pod).map(|c| waiting(c, "PodInitializing")).collect();
    }
    status
}

/// All containers run; those that ran before count a restart.
pub fn started(pod: &Value, place: Placement<'_>, now: Timestamp) -> Value {
    let mut status = pod["status"].clone();
    status["phase"] = json!("Running");
    status["podIP"] = json!(place.pod_ip);
    status["podIPs"] = json!([{"ip": place.pod_ip}]);
    status["hostIP"] = json!(place.host_ip);
    status["hostIPs"] = json!([{"ip": place.host_ip}]);
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"] {
        set_condition(&mut status["conditions"], kind, "True", "", "", now);
    }
    let old = pod["status"]["containerStatuses"].clone();
    let statuses: Value = containers(pod)
        .map(|container| running(pod, container, previous(&old, &container["name"]), now))
        .collect();
    status["containerStatuses"] = statuses;
    if init_containers(pod).next().is_some() {
        status["initContainerStatuses"] =
            init_containers(pod).map(|container| ended_first(pod, container, 0, now)).collect();
    }
    status
}

/// A container that came first and ended with `code`.
fn ended_first(pod: &Value, container: &Value, code: i32, now: Timestamp) -> Value {
    let mut status = running(pod, container, &Value::Null, now);
    status["state"] = terminated(&status, code, now);
    status["started"] = json!(false);
    status["ready"] = json!(code == 0);
    status
}

/// Those that come before this one have done their work, one after the other.
fn done_before(pod: &Value, status: &mut Value, container: &str, now: Timestamp) {
    let entries = status["initContainerStatuses"].as_array_mut().into_iter().flatten();
    for (spec, entry) in init_containers(pod).zip(entries) {
        if spec["name"] == container {
            return;
        }
        // A second try finds them done.
        if entry["state"]["terminated"].is_null() {
            *entry = ended_first(pod, spec, 0, now);
        }
    }
}

fn previous<'a>(statuses: &'a Value, name: &Value) -> &'a Value {
    statuses.as_array().into_iter().flatten().find(|s| s["name"] == *name).unwrap_or(&Value::Null)
}

/// A container that runs; `old` is its status before.
fn running(pod: &Value, container: &Value, old: &Value, now: Timestamp) -> Value {
    let ran = old["containerID"].as_str().is_some_and(|id| !id.is_empty());
    let restarts = old["restartCount"].as_i64().unwrap_or(0).saturating_add(i64::from(ran));
    let last = match &old["state"] {
        state if !state["terminated"].is_null() => state.clone(),
        state if !state["running"].is_null() => terminated(old, 255, now),
        _ if ran => old["lastState"].clone(),
        _ => json!({}),
    };
    let image = container["image"].as_str().unwrap_or_default();
    let digest = image.split_once("@sha256:").map(|(_, hex)| hex.to_owned());
    let digest = digest.unwrap_or_else(|| identity::hex_id(image));
    let id = format!("{}/{}/{restarts}", pod["metadata"]["uid"], container["name"]);
    json!({
        "name": container["name"], "image": image,
        "imageID": format!("{}@sha256:{digest}", repository(image)),
        "containerID": format!("cri-o://{}", identity::hex_id(&id)),
        "state": {"running": {"startedAt": time(now)}}, "lastState": last,
        "ready": true, "started": true, "restartCount": restarts,
    })
}

/// The name of an image without tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let path = image.rfind('/').map_or(0, |slash| slash + 1);
    image[path..].find(':').map_or(image, |colon| &image[..path + colon])
}

/// The state of a container that ended.
fn terminated(status: &Value, code: i32, now: Timestamp) -> Value {
    let started = match &status["state"]["running"]["startedAt"] {
        Value::Null => json!(time(now)),
        at => at.clone(),
    };
    json!({"terminated": {
        "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
        "startedAt": started, "finishedAt": time(now), "containerID": status["containerID"],
    }})
}

/// A container that ended left this termination message.
pub fn leave_message(status: &mut Value, container: &str, message: &str) {
    if message.is_empty() {
        return;
    }
    for entry in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        if entry["name"] == container && !entry["state"]["terminated"].is_null() {
            entry["state"]["terminated"]["message"] = json!(message);
        }
    }
}

/// The image of a container that comes first cannot be pulled.
pub fn unpullable(pod: &Value, container: &str, message: &str, now: Timestamp) -> Value {
    let mut status = pod["status"].clone();
    done_before(pod, &mut status, container, now);
    for entry in status["initContainerStatuses"].as_array_mut().into_iter().flatten() {
        if entry["name"] == container {
            entry["state"] = json!({"waiting": {"reason": "ImagePullBackOff", "message": message}});
        }
    }
    status
}

/// A container that comes first failed, and the pod with it.
pub fn failed_first(pod: &Value, container: &str, message: &str, now: Timestamp) -> Value {
    let mut status = pod["status"].clone();
    done_before(pod, &mut status, container, now);
    let entries = status["initContainerStatuses"].as_array_mut().into_iter().flatten();
    for (spec, entry) in init_containers(pod).zip(entries) {
        if spec["name"] == container {
            *entry = ended_first(pod, spec, 1, now);
            entry["state"]["terminated"]["message"] = json!(message);
        }
    }
    finish(&mut status, true, now);
    status
}

/// What follows the end of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aftermath {
    /// It starts again.
    Restart,
    /// Other containers still run.
    Wait,
    /// The pod is over.
    Finished,
}

/// A container ended with `code`; if it starts again, then after this pause.
pub fn ended(
    pod: &Value,
    container: &str,
    code: i32,
    pause: Option<Duration>,
    now: Timestamp,
) -> (Value, Aftermath) {
    let mut status = pod["status"].clone();
    let policy = pod["spec"]["restartPolicy"].as_str().unwrap_or("Always");
    let again = policy == "Always" || (policy == "OnFailure" && code != 0);
    for entry in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        if entry["name"] != container {
            continue;
        }
        let state = terminated(entry, code, now);
        entry["ready"] = json!(false);
        entry["started"] = json!(false);
        match pause.filter(|_| again) {
            Some(pause) => {
                let message = format!(
                    "back-off {} restarting failed container={container} pod={}",
                    go_duration(pause),
                    id(pod)
                );
                entry["lastState"] = state;
                entry["state"] =
                    json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
            }
            None => entry["state"] = state,
        }
    }
    let codes: Option<Vec<i64>> = status["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| entry["state"]["terminated"]["exitCode"].as_i64())
        .collect();
    if again {
        let message = format!("containers with unready status: [{container}]");
        not_ready(&mut status, "ContainersNotReady", &message, now);
        return (status, Aftermath::Restart);
    }
    let Some(codes) = codes else {
        let message = format!("containers with unready status: [{container}]");
        not_ready(&mut status, "ContainersNotReady", &message, now);
        return (status, Aftermath::Wait);
    };
    let failed = codes.iter().any(|code| *code != 0);
    finish(&mut status, failed, now);
    (status, Aftermath::Finished)
}

/// One container runs again.
pub fn restarted(pod: &Value, container: &str, now: Timestamp) -> Value {
    let mut status = pod["status"].clone();
    for spec in containers(pod).filter(|spec| spec["name"] == container) {
        let old = previous(&pod["status"]["containerStatuses"], &spec["name"]).clone();
        let new = running(pod, spec, &old, now);
        for entry in status["containerStatuses"].as_array_mut().into_iter().flatten() {
            if entry["name"] == container {
                *entry = new.clone();
            }
        }
    }
    let all_ready = status["containerStatuses"]
        .as_array()
        .is_some_and(|entries| entries.iter().all(|entry| entry["ready"] == true));
    if all_ready {
        for kind in ["Ready", "ContainersReady"] {
            set_condition(&mut status["conditions"], kind, "True", "", "", now);
        }
    }
    status
}

/// All containers were stopped for good, with this exit code.
pub fn stopped(pod: &Value, code: i32, now: Timestamp) -> Value {
    let mut status = pod["status"].clone();
    for entry in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        if entry["state"]["terminated"].is_null() {
            entry["state"] = terminated(entry, code, now);
            entry["ready"] = json!(false);
            entry["started"] = json!(false);
        }
    }
    finish(&mut status, true, now);
    status
}

fn finish(status: &mut Value, failed: bool, now: Timestamp) {
    let (phase, reason) =
        if failed { ("Failed", "PodFailed") } else { ("Succeeded", "PodCompleted") };
    status["phase"] = json!(phase);
    not_ready(status, reason, "", now);
    set_condition(&mut status["conditions"], "PodReadyToStartContainers", "False", reason, "", now);
}

/// The sum of a limit over the containers, in thousandths.
pub fn limit_milli(pod: &Value, resource: &str) -> u64 {
    containers(pod)
        .filter_map(|container| container["resources"]["limits"][resource].as_str())
        .filter_map(quantity::milli)
        .filter_map(|milli| u64::try_from(milli).ok())
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(status: &Value) -> Vec<String> {
        let entries = status["initContainerStatuses"].as_array().into_iter().flatten();
        entries
            .map(|entry| {
                let (name, states) = entry["state"].as_object().unwrap().iter().next().unwrap();
                format!("{name} {}", states["reason"].as_str().unwrap_or_default())
            })
            .collect()
    }

    /// What kubectl shows of a pod is the first container that is not done: one that waits for its turn behind
    /// one that was never said to be done would hide what went wrong.
    #[test]
    fn those_before_the_first_container_that_fails_are_done() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut pod = json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {
                "restartPolicy": "Never",
                "initContainers": [
                    {"name": "a", "image": "i"}, {"name": "b", "image": "j"}, {"name": "c", "image": "k"},
                ],
                "containers": [{"name": "main", "image": "l"}],
            },
            "status": {},
        });
        pod["status"] = accepted(&pod, "10.0.0.1", now);
        let waits = "waiting PodInitializing";
        assert_eq!(states(&pod["status"]), [waits, waits, waits]);
        let held = unpullable(&pod, "b", "no such image", now);
        assert_eq!(states(&held), ["terminated Completed", "waiting ImagePullBackOff", waits]);
        pod["status"] = held;
        let failed = failed_first(&pod, "b", "no such shim", now);
        assert_eq!(states(&failed), ["terminated Completed", "terminated Error", waits]);
        let failure = &failed["initContainerStatuses"][1]["state"]["terminated"];
        assert_eq!(
            (&failure["exitCode"], &failure["message"]),
            (&json!(1), &json!("no such shim"))
        );
        assert_eq!(failed["phase"], "Failed");
        assert_eq!(failed["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
    }
}
