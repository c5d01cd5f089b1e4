//! `why` on what only container runtimes, quotas and kubelets say, and `doctor` on what only other clusters
//! are: each has its code.

use serde_json::json;
use simcluster::resource::{EVENTS, PODS};

use crate::lab::Lab;

/// A cluster with one node that runs sandboxed pods.
async fn installed() -> Lab {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("test-kata");
    lab
}

/// Says `words` when the node is to make a sandbox, and asks why the pod does not run.
async fn refused(lab: &Lab, code: &str, words: &str) {
    lab.fault("worker-0", &format!("sandbox-fails={words}"));
    lab.pod("web", Some("kata"));
    lab.pass(20).await;
    let done = lab.kata_command("why pod/web -n test-kata").await.expect(1);
    done.says(&[code, "worker-0 cannot make the sandbox"]);
    lab.delete(&PODS, "test-kata", "web");
    lab.until("the pod's end", |lab| lab.get(&PODS, "test-kata", "web").is_none()).await;
    lab.clear_faults("worker-0");
}

/// The table of real messages has each of these codes; what a message says beyond the kubelet's own words
/// is what the container runtime said.
#[tokio::test(start_paused = true)]
async fn what_container_runtimes_say_comes_out_as_its_cause() {
    let lab = installed().await;
    let table = include_str!("../data/sandbox_messages.txt");
    let lines = table.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut seen = std::collections::BTreeSet::new();
    for line in lines {
        let (code, message) = line.split_once(' ').unwrap();
        let (_, words) = message.split_once("desc = ").unwrap();
        refused(&lab, code, words).await;
        seen.insert(code);
    }
    let codes =
        ["KATA5211", "KATA5212", "KATA5213", "KATA5215", "KATA5216", "KATA5217", "KATA5225"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), codes);
}

#[tokio::test(start_paused = true)]
async fn quotas_and_admission_that_refuse_pods_are_told_apart() {
    let lab = installed().await;
    let refusals = [
        (
            "quota",
            "KATA5204",
            "exceeded quota: compute, requested: memory=862Mi, used: memory=0, limited: memory=512Mi",
        ),
        (
            "policy",
            "KATA5207",
            "violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false",
        ),
    ];
    for (name, code, why) in refusals {
        lab.create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "test-kata"},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"runtimeClassName": "kata", "containers": [{"name": "a", "image": "i"}]},
                },
            },
        }));
        // As the ReplicaSet controller tells what the API server answered.
        lab.create(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{name}.1"), "namespace": "test-kata"},
            "involvedObject": {"kind": "Deployment", "name": name, "namespace": "test-kata"},
            "type": "Warning", "reason": "FailedCreate",
            "message": format!("Error creating: pods \"{name}-7d9-\" is forbidden: {why}"),
            "source": {"component": "replicaset-controller"},
        }));
        assert!(lab.get(&EVENTS, "test-kata", &format!("{name}.1")).is_some());
        let done = lab.kata_command(&format!("why deploy/{name} -n test-kata")).await.expect(1);
        done.says(&[code, why, "are refused when they are created"]);
    }
}

#[tokio::test(start_paused = true)]
async fn containers_that_do_not_come_up_have_codes_of_their_own() {
    let lab = installed().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    let states = [
        (
            json!({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}),
            ["KATA5218", "cannot be pulled: not found"],
        ),
        (
            json!({
                "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 7, "reason": "Error"}},
            }),
            ["KATA5219", "exits with code 7, 5 restarts"],
        ),
        (
            json!({
                "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            }),
            ["KATA5214", "OOMKilled, 2 restarts"],
        ),
    ];
    for (state, says) in states {
        let mut status = json!({"name": "web", "image": "quay.io/a/b:c", "ready": false});
        for (key, value) in state.as_object().unwrap() {
            status[key] = value.clone();
        }
        let patch = json!({"status": {"containerStatuses": [status]}});
        lab.merge_status(&PODS, "test-kata", "web", &patch);
        let done = lab.kata_command("why pod/web -n test-kata").await.expect(1);
        done.says(&says);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_too_old_is_a_warning() {
    let mut lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.pass(60).await;
    lab.version = Some("v1.27.4".to_owned());
    let done = lab.kata_command("doctor --pre").await.expect(0);
    done.says(&["‼ KATA5001 Kubernetes v1.27.4", "1 warning, "]);
    lab.kata_command("doctor --pre --fail-on warning").await.expect(1);
    lab.version = Some("v1.30.0".to_owned());
    lab.kata_command("doctor --pre").await.expect(0).says(&["√ KATA5001", "0 warnings"]);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_create_a_kataconfig_is_told_so() {
    let mut lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.pass(60).await;
    lab.only_view();
    let done = lab.kata_command("doctor --pre").await.expect(5);
    done.says(&[
        "‼ KATA5002 you may not create kataconfigs.kataconfiguration.openshift.io",
        "through the ClusterRole kata-operator-edit",
    ]);
}
