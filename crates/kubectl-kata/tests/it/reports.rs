//! `why` on pods of public reports: the cause, and who can remove it. See `tests/data/why.yaml`.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use simcluster::resource::PODS;

use crate::lab::Lab;

const NAMESPACE: &str = "test-kata";

#[tokio::test(start_paused = true)]
async fn each_report_gets_its_cause_and_who_can_remove_it() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace(NAMESPACE);
    let reports: Vec<Value> = serde_saphyr::from_str(include_str!("../data/why.yaml")).unwrap();
    let mut wrong = Vec::new();
    let mut codes = BTreeSet::new();
    for report in &reports {
        let id = report["id"].as_str().unwrap();
        let target = report["owner"]
            .as_str()
            .map_or_else(|| pod(&lab, id, report), |owner| refused(&lab, owner, id, report));
        let done =
            lab.kata_command(&format!("why {target} -n {NAMESPACE} -o json")).await.expect(1);
        if report["owner"].is_null() {
            // The node has room for one after the other.
            lab.delete(&PODS, NAMESPACE, id);
            lab.until("the pod's end", |lab| lab.get(&PODS, NAMESPACE, id).is_none()).await;
        }
        let causes = done.json()["causes"].as_array().unwrap().clone();
        let Some(first) = causes.first() else {
            wrong.push(format!("{id}: no cause: {}", done.out));
            continue;
        };
        let expected = &report["expected"];
        let count = expected["causes"].as_u64().unwrap_or(1);
        codes.insert(first["id"].as_str().unwrap_or_default().to_owned());
        let said = if count == 1 { std::slice::from_ref(first) } else { causes.as_slice() };
        let text = said.iter().flat_map(|it| [it["message"].as_str(), it["fix"].as_str()]);
        let text = text.flatten().collect::<Vec<_>>().join("\n");
        let is_said = |words: &Value| text.contains(words.as_str().unwrap());
        if causes.len() as u64 != count
            || first["id"] != expected["code"]
            || first["who"] != expected["who"]
            || !expected["says"].as_array().unwrap().iter().all(is_said)
        {
            wrong.push(format!("{id}: expected {expected}, and there is {causes:#?}"));
        }
    }
    let all = [
        "KATA5204", "KATA5205", "KATA5207", "KATA5211", "KATA5213", "KATA5214", "KATA5215",
        "KATA5216", "KATA5217", "KATA5218", "KATA5219", "KATA5220", "KATA5221", "KATA5222",
        "KATA5223", "KATA5224", "KATA5225",
    ];
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), all);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), reports.len(), wrong.join("\n"));
}

/// Statuses of pods with which nothing is wrong, or that are over, as a kubelet of Kubernetes 1.34 writes them.
#[tokio::test(start_paused = true)]
async fn a_pod_with_which_nothing_is_wrong_has_no_cause() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace(NAMESPACE);
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let ended =
        |code: i64, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status});
    let ready = json!([condition("Ready", "True"), condition("PodReadyToStartContainers", "True")]);
    let failed_mount = json!([{
        "reason": "FailedMount",
        "message": "MountVolume.SetUp failed for volume \"kube-api-access-x\" : failed to sync configmap cache: \
                    timed out waiting for the condition",
    }]);
    let sidecar = json!({"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]});
    let cases = [
        (
            "job-with-sidecar",
            json!({
                "spec": sidecar,
                "status": {
                    "phase": "Succeeded",
                    "initContainerStatuses": [{"name": "proxy", "state": ended(143, "Error")}],
                    "containerStatuses": [{"name": "app", "state": ended(0, "Completed")}],
                },
            }),
            "nothing is wrong: it ran",
        ),
        (
            "sidecar-after-the-job",
            json!({
                "spec": sidecar,
                "status": {
                    "phase": "Running", "conditions": [condition("Ready", "False")],
                    "initContainerStatuses": [{"name": "proxy", "state": ended(143, "Error")}],
                    "containerStatuses": [{"name": "app", "state": ended(0, "Completed")}],
                },
            }),
            "nothing is wrong",
        ),
        (
            "was-killed-for-memory-once",
            json!({"status": {
                "phase": "Running", "conditions": ready,
                "containerStatuses": [{
                    "name": "app", "ready": true, "restartCount": 1, "state": running,
                    "lastState": ended(137, "OOMKilled"),
                }],
            }}),
            "nothing is wrong: it runs",
        ),
        (
            "past-faults",
            json!({
                "status": {
                    "phase": "Running", "conditions": ready,
                    "containerStatuses": [{"name": "app", "ready": true, "state": running}],
                },
                "events": failed_mount,
            }),
            "nothing is wrong: it runs",
        ),
        (
            "init-container-runs",
            json!({
                "spec": {"initContainers": [{"name": "setup"}]},
                "status": {
                    "phase": "Pending", "conditions": [condition("PodReadyToStartContainers", "True")],
                    "initContainerStatuses": [{"name": "setup", "started": true, "state": running}],
                    "containerStatuses":
                        [{"name": "app", "state": {"waiting": {"reason": "PodInitializing"}}}],
                },
                "events": failed_mount,
            }),
            "it waits until init container setup, which runs, is done",
        ),
    ];
    for (id, report, outlook) in cases {
        let target = pod(&lab, id, &report);
        let done = lab.kata_command(&format!("why {target} -n {NAMESPACE} -o json")).await.json();
        assert_eq!(done["causes"], json!([]), "{id}: {done:#}");
        assert!(done["outlook"].as_str().unwrap().contains(outlook), "{id}: {done:#}");
    }
    // A new sandbox is refused: that the containers had one before says nothing.
    let report = json!({
        "status": {
            "phase": "Running",
            "conditions": [condition("Ready", "False"), condition("PodReadyToStartContainers", "False")],
            "containerStatuses": [{
                "name": "app", "containerID": "containerd://1", "restartCount": 1,
                "state": {"waiting": {"reason": "ContainerCreating"}},
                "lastState": ended(255, "Unknown"),
            }],
        },
        "events": [{
            "reason": "FailedCreatePodSandBox",
            "message": "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox \
                        runtime: no runtime for \"kata\" is configured",
        }],
    });
    let target = pod(&lab, "rebooted", &report);
    let done = lab.kata_command(&format!("why {target} -n {NAMESPACE}")).await.expect(1);
    done.says(&["KATA5211", "no runtime for \"kata\" is configured"]);
    // Nothing but the condition says that a pod is not ready.
    let report = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady",
                        "message": "corresponding condition of pod readiness gate \"lb\" does not exist."}],
        "containerStatuses": [{"name": "app", "ready": true, "state": running}],
    }});
    let target = pod(&lab, "gated", &report);
    let done = lab.kata_command(&format!("why {target} -n {NAMESPACE}")).await.expect(1);
    done.says(&[
        "KATA5223",
        "readiness gate \"lb\"",
        "check the controller that sets the condition",
    ]);
    // The deletion waits for a node that does not report.
    let report = json!({"status": {
        "phase": "Running", "containerStatuses": [{"name": "app", "ready": true, "state": running}],
    }});
    let target = pod(&lab, "on-a-dead-node", &report);
    lab.fault("worker-0", "not-ready");
    lab.pass(60).await;
    lab.delete(&PODS, NAMESPACE, "on-a-dead-node");
    let done = lab.kata_command(&format!("why {target} -n {NAMESPACE}")).await.expect(1);
    done.says(&["Terminating", "KATA2103", "node worker-0 is not Ready"]);
}

/// Words that mislead: names of objects, texts of newer kubelets, and Events that are not the cause.
#[tokio::test(start_paused = true)]
async fn misleading_words_do_not_decide() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace(NAMESPACE);
    let waiting = |reason: &str, message: &str| {
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "app", "image": "example.com/denied/never:1",
            "state": {"waiting": {"reason": reason, "message": message}},
        }]})
    };
    let crash = json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
    }]});
    let unhealthy =
        json!([{"reason": "Unhealthy", "message": "Readiness probe failed: connection refused"}]);
    let (team, admin) = ("application team", "cluster administrator");
    let cases = [
        (
            "secret-of-root",
            waiting("CreateContainerConfigError", "secret \"mysql-root\" not found"),
            json!([]),
            ["KATA5221", team, "create the object"],
        ),
        (
            "cause-after-the-back-off",
            waiting(
                "ImagePullBackOff",
                "Back-off pulling image \"example.com/denied/never:1\": ErrImagePull: failed to pull: x509: \
                 certificate signed by unknown authority",
            ),
            json!([]),
            ["KATA5218", admin, "a certificate that the node trusts"],
        ),
        (
            "full-disk",
            waiting("ErrImagePull", "failed to extract layer: no space left on device"),
            json!([]),
            ["KATA5218", admin, "the disk of the node"],
        ),
        (
            "not-by-its-readiness-probe",
            crash,
            unhealthy,
            ["KATA5219", team, "exits with code 1, 3 restarts\""],
        ),
    ];
    for (id, status, events, [code, who, says]) in cases {
        let target = pod(&lab, id, &json!({"status": status, "events": events}));
        let done =
            lab.kata_command(&format!("why {target} -n {NAMESPACE} -o json")).await.expect(1);
        let causes = done.json()["causes"].clone();
        assert_eq!(
            (&causes[0]["id"], &causes[0]["who"]),
            (&json!(code), &json!(who)),
            "{causes:#}"
        );
        assert_eq!(causes.as_array().unwrap().len(), 1, "{causes:#}");
        assert!(causes.to_string().contains(says), "{id}: {causes:#}");
    }
}

/// A pod with the status and the Events of a report.
fn pod(lab: &Lab, id: &str, report: &Value) -> String {
    let containers = json!([{"name": "app", "image": "example.com/app:1"}]);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": id, "namespace": NAMESPACE},
        "spec": {"runtimeClassName": "kata", "containers": containers},
    });
    if report["scheduled"] != false {
        pod["spec"]["nodeName"] = json!("worker-0");
    }
    for (key, value) in report["spec"].as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    let init = pod["spec"].get_mut("initContainers").and_then(Value::as_array_mut);
    for init in init.into_iter().flatten() {
        let image = json!("example.com/init:1");
        init.as_object_mut().unwrap().entry("image").or_insert(image);
    }
    lab.create(pod);
    let mut status = json!({"phase": "Pending"});
    for (key, value) in report["status"].as_object().into_iter().flatten() {
        status[key] = value.clone();
    }
    lab.merge_status(&PODS, NAMESPACE, id, &json!({"status": status}));
    let uid = &lab.get(&PODS, NAMESPACE, id).unwrap()["metadata"]["uid"];
    events(lab, report, &json!({"kind": "Pod", "name": id, "namespace": NAMESPACE, "uid": uid}));
    format!("pod/{id}")
}

/// A controller without pods, with the Events of a report.
fn refused(lab: &Lab, owner: &str, id: &str, report: &Value) -> String {
    let (kind, api_version) = match owner {
        "replicaset" => ("ReplicaSet", "apps/v1"),
        "job" => ("Job", "batch/v1"),
        other => panic!("{other}"),
    };
    let template = json!({
        "metadata": {"labels": {"app": id}},
        "spec": {
            "runtimeClassName": "kata", "restartPolicy": if owner == "job" { "Never" } else { "Always" },
            "containers": [{"name": "app", "image": "example.com/app:1"}],
        },
    });
    let mut spec = json!({"template": template});
    if owner == "job" {
        spec["suspend"] = json!(true);
    } else {
        spec["replicas"] = json!(0);
        spec["selector"] = json!({"matchLabels": {"app": id}});
    }
    lab.create(json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": id, "namespace": NAMESPACE}, "spec": spec,
    }));
    events(lab, report, &json!({"kind": kind, "name": id, "namespace": NAMESPACE}));
    format!("{owner}/{id}")
}

/// Each Event a second after the one before.
fn events(lab: &Lab, report: &Value, object: &Value) {
    for (at, event) in report["events"].as_array().into_iter().flatten().enumerate() {
        let name = object["name"].as_str().unwrap();
        lab.create(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{name}.{at}"), "namespace": NAMESPACE},
            "involvedObject": object,
            "type": "Warning", "reason": event["reason"], "message": event["message"],
            "count": event["count"].as_u64().unwrap_or(1),
            "lastTimestamp": format!("2026-01-01T00:00:{at:02}Z"),
        }));
    }
}
