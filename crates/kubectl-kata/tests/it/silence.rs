//! What `status`, `wait` and `doctor` say of an operator that does not run or writes nothing.

use serde_json::json;

use crate::lab::{Lab, Place, checks, kata_configs};

/// Nobody waits for an operator that is not there without being told so.
#[tokio::test(start_paused = true)]
async fn an_operator_that_says_nothing_is_named() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.kata(&["worker-0"]);
    let done = lab.kata_command("status").await.expect(1);
    assert!(!done.out.contains("KATA5010"), "it may need a moment: {}", done.out);
    let done = lab.kata_command("wait --timeout 3m").await.expect(124);
    done.says(&["KATA5010 the operator has not taken up generation 1"]);
    lab.kata_command("status").await.expect(1).says(&["KATA5010", "it has seen nothing of it yet"]);
}

/// An operator whose writes are refused has heard of the change, and says itself what is wrong.
#[tokio::test(start_paused = true)]
async fn an_operator_whose_writes_are_refused_is_not_called_silent() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.refuse("write", "containerruntimeconfigs");
    let quiet = json!({"spec": {"logLevel": "debug"}});
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &quiet);
    lab.pass(120).await;
    let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
    assert_ne!(config["metadata"]["generation"], config["status"]["observedGeneration"]);
    let done = lab.kata_command("status").await.expect(1).says(&["KATA1017 "]);
    assert!(!done.out.contains("KATA5010"), "{}", done.out);
    let report = lab.kata_command("doctor -o json").await.json();
    let silent = checks(&report, "KATA5010");
    assert_eq!(silent[0]["result"], "ok", "{silent:#?}");
    let message = silent[0]["message"].as_str().unwrap();
    assert!(message.contains("is not taken up: the operator says WriteFailed"), "{message}");
}

/// The same of one that cannot read what its decision needs.
#[tokio::test(start_paused = true)]
async fn an_operator_that_cannot_read_is_not_called_silent() {
    let lab = Lab::new();
    lab.delete(&simcluster::resource::MACHINECONFIGPOOLS, "", "worker");
    lab.kata(&["worker-0"]);
    lab.pass(120).await;
    let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
    assert!(config["status"]["observedGeneration"].is_null(), "{config:#}");
    let done = lab.kata_command("status").await.expect(1);
    let done = done.says(&["MachineConfigOperatorNotReady"]);
    assert!(!done.out.contains("KATA5010"), "{}", done.out);

    // As the operator leaves it after a read that failed.
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.stop_operator();
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &json!({"spec": {"logLevel": "debug"}}));
    lab.merge_status(
        &kata_configs(),
        "",
        "cluster-kataconfig",
        &json!({"status": {"conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "ReadFailed",
            "message": "cannot read nodes: 503", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}}),
    );
    lab.pass(120).await;
    let done = lab.kata_command("status").await.expect(1);
    assert!(!done.out.contains("KATA5010"), "{}", done.out);
}

/// `doctor` gives the operator as much time as `status` does.
#[tokio::test(start_paused = true)]
async fn nobody_is_called_silent_at_once() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.kata(&["worker-0"]);
    let silent = async || checks(&lab.kata_command("doctor -o json").await.json(), "KATA5010");
    let found = silent().await;
    assert_eq!(found[0]["result"], "ok", "{found:#?}");
    lab.pass(31).await;
    let found = silent().await;
    assert_eq!(found[0]["result"], "warning", "{found:#?}");
    let message = found[0]["message"].as_str().unwrap();
    assert!(message.contains("it has seen nothing of it yet"), "{message}");
}

/// An operator whose pods are not ready is named besides, with one look at its Deployment.
#[tokio::test(start_paused = true)]
async fn a_deployment_without_ready_pods_explains_the_silence() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.kata(&["worker-0"]);
    without_ready_pods(&lab);
    lab.pass(60).await;
    lab.requests();
    let done = lab.kata_command("status").await.expect(1);
    assert!(lab.requests() <= 9, "its Deployment, Lease and pods are read once: {}", done.out);
    let texts = ["KATA5010", "KATA5005", "0 of 2 pods of the operator are ready"];
    done.says(&texts);
    let done = lab.kata_command("wait --timeout 5s").await.expect(124);
    done.says(&texts);
}

/// Who waits for a node of a fresh KataConfig is told that nobody acts, and not that it is not selected.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_node_names_an_operator_that_says_nothing() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.kata(&["worker-0"]);
    let done = lab.kata_command("wait --for node/worker-0=Ready --timeout 3m").await.expect(124);
    assert!(!done.err.contains("no KataConfig selects"), "{}", done.err);
    let told = |line: &str| line.starts_with("2026-") && line.contains("KATA5010 the operator has");
    assert!(done.err.lines().any(told), "{}", done.err);
    let done = done.says(&["the operator has not said anything of node worker-0 yet"]);
    drop(done);
    let place = Place::terminal(160);
    let done = lab.run_at("wait --for node/worker-0=Ready --timeout 5s", &place).await.expect(124);
    done.says(&[" KATA5010 the operator has not taken up generation 1"]);

    // The same of a node that it knows, and of a change that it did not hear.
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.pass(60).await;
    lab.stop_operator();
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &json!({"spec": {"logLevel": "debug"}}));
    let done = lab.kata_command("wait --for node/worker-0=Ready --timeout 3m").await.expect(124);
    let told = |line: &str| {
        line.contains("Z node worker-0: ") && line.contains("KATA5010 the operator has")
    };
    assert!(done.err.lines().any(told), "{}", done.err);

    // And at once when the time is over, before silence is a finding.
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &json!({"spec": {"logLevel": "trace"}}));
    let done = lab.kata_command("wait --timeout 2s").await.expect(124);
    done.says(&["timed out after 2s: the operator has not taken up generation 3 of KataConfig"]);
}

/// A Deployment of the operator none of whose pods can run.
fn without_ready_pods(lab: &Lab) {
    lab.undeploy();
    lab.create(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "kata-operator", "namespace": lab.home()},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "a", "image": "i"}]},
            },
        },
    }));
}

/// That nobody works is told although the operator had heard of everything before it ended.
#[tokio::test(start_paused = true)]
async fn an_operator_that_does_not_run_is_told_although_it_has_seen_all() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.pass(60).await;
    lab.stop_operator();
    without_ready_pods(&lab);
    lab.pass(10).await;
    let text = "KATA5005";
    let done = lab.kata_command("wait --timeout 5s").await.expect(124);
    let done = done.says(&[text, "0 of 2 pods of the operator are ready"]);
    assert!(!done.err.contains("KATA5010"), "{}", done.err);
    lab.start_operator();
    lab.ready().await;
    lab.stop_operator();
    // What is ready stays so.
    let done = lab.kata_command("status").await.expect(0);
    let done = done.says(&[text, "0 of 2 pods of the operator are ready", "0 of 2 pods ready"]);
    assert!(!done.out.contains("KATA5010"), "{}", done.out);
    lab.kata_command("status --fail-on warning").await.expect(1);
    lab.kata_command("doctor").await.expect(1).says(&["× KATA5005 0 of 2 pods"]);
}

/// An image that the nodes cannot pull is named with what the kubelet says, and a wait for it ends soon.
#[tokio::test(start_paused = true)]
async fn an_operator_whose_image_cannot_be_pulled_ends_the_wait() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.kata(&["worker-0"]);
    lab.deploy_without_pods(lab.home());
    lab.pass(10).await;
    let pods = lab.list(&simcluster::resource::PODS);
    let is_ours = |pod: &&serde_json::Value| {
        pod["metadata"]["labels"]["app.kubernetes.io/name"] == "kata-operator"
    };
    let pod = pods.iter().find(is_ours).unwrap();
    let [namespace, name] = ["namespace", "name"].map(|key| pod["metadata"][key].as_str().unwrap());
    let image = "registry.example/kata-operator:v9";
    let waiting = json!({"reason": "ImagePullBackOff", "message": format!(
        "Back-off pulling image \"{image}\": ErrImagePull: {image}: not found"
    )});
    lab.merge_status(&simcluster::resource::PODS, namespace, name, &json!({"status": {
        "phase": "Pending",
        "containerStatuses": [{"name": "a", "image": image, "ready": false, "state": {"waiting": waiting}}],
    }}));
    let texts = [
        "KATA5005",
        "pods of the operator are ready: container a: image registry.example/kata-operator:v9 cannot be pulled",
        "not found",
        "kubectl kata install --upgrade --operator-image REF",
    ];
    lab.kata_command("status").await.expect(1).says(&texts);
    lab.kata_command("doctor").await.expect(1).says(&texts);
    // A registry may be away for a moment.
    let done = lab.kata_command("wait --timeout 30s").await.expect(124);
    drop(done.says(&texts));
    let begin = tokio::time::Instant::now();
    lab.kata_command("wait --timeout 1h").await.expect(1).says(&texts);
    assert!(begin.elapsed().as_secs() <= 90, "{:?}", begin.elapsed());
}
