//! `upgrade`: another payload and the way back; what `history`, `report` and `kubectl wait` make of it; and `pool`.

use std::path::Path;

use serde_json::{Value, json};
use simcluster::world::Platform;

use crate::lab::{Lab, kata_configs, kata_nodes};

const OLD: &str = "registry.example/kata:4.0.0";
const NEW: &str = "registry.example/kata:4.1.0";

fn config(lab: &Lab) -> Value {
    lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap()
}

fn payload(lab: &Lab) -> Value {
    config(lab)["spec"]["payload"]["image"].clone()
}

/// As an administrator does it without the plugin, which records nothing.
fn give_old_payload(lab: &Lab) {
    let payload = json!({"spec": {"payload": {"image": OLD}}});
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &payload);
}

fn version(lab: &Lab) -> Value {
    lab.get(&kata_nodes(), "", "worker-0").unwrap()["status"]["host"]["kataVersion"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_payload_is_upgraded_and_taken_back() {
    let lab = Lab::on(Platform::Kubernetes);
    let upgrade = format!("upgrade --payload-image {NEW}");
    lab.kata_command(&upgrade).await.expect(1).says(&["there is no KataConfig to upgrade"]);
    lab.kata(&["worker-0", "worker-1"]);
    give_old_payload(&lab);
    lab.ready().await;
    lab.kata_command("upgrade --rollback").await.expect(4).says(&[
        "refused: no earlier payload is recorded",
        "fix: kubectl kata upgrade --payload-image REF",
    ]);
    let same = lab.kata_command(&format!("upgrade --payload-image {OLD}")).await.expect(0);
    same.says(&[
        "KataConfig cluster-kataconfig has this payload already: registry.example/kata:4.0.0",
    ]);
    let plan = [
        "This command upgrades the nodes to the payload registry.example/kata:4.1.0. (simulated)",
        "From       registry.example/kata:4.0.0",
        "Nodes      2: worker-0, worker-1",
        "Change     each node switches to the new files once, one at a time; running sandboxes keep theirs;",
        "Way back   kubectl kata upgrade --rollback",
    ];
    lab.kata_command(&format!("{upgrade} --dry-run")).await.expect(0).says(&plan);
    let refused = lab.kata_command(&upgrade).await.expect(4).says(&plan);
    refused.says(&["refused: upgrade changes Kata on 2 nodes; add --yes or use --dry-run"]);
    assert_eq!(payload(&lab), OLD);
    lab.pod("old", Some("kata"));
    lab.phase("old", "Running").await;
    let done = lab.kata_command(&format!("{upgrade} --yes --wait --timeout 1h")).await.expect(0);
    done.says(&[
        "kataconfigs.kataconfiguration.openshift.io/cluster-kataconfig upgraded",
        "Ready: 2/2 nodes",
    ]);
    assert_eq!((payload(&lab), version(&lab)), (json!(NEW), json!("4.1.0")));
    lab.phase("old", "Running").await;
    let back = lab.kata_command("upgrade --rollback --yes --wait --timeout 1h").await.expect(0);
    back.says(&[
        "takes the nodes back to the payload registry.example/kata:4.0.0",
        "Way back   kubectl kata upgrade --payload-image registry.example/kata:4.1.0",
        "rolled back",
    ]);
    assert_eq!((payload(&lab), version(&lab)), (json!(OLD), json!("4.0.0")));
    // The same command again, for example after its wait ran out, does not go forward.
    let again = lab.kata_command("upgrade --rollback --yes --wait --timeout 1h").await.expect(0);
    again.says(&["has this payload already: registry.example/kata:4.0.0", "Ready: 2/2 nodes"]);
    assert_eq!(payload(&lab), OLD);

    let history = lab.kata_command("history worker-0 -o json").await.expect(0).json();
    let changes = history["items"][0]["changes"].as_array().unwrap().iter();
    let versions: Vec<&str> = changes.map(|it| it["kataVersion"].as_str().unwrap_or("")).collect();
    assert_eq!(versions, ["4.0.0", "4.1.0", "4.0.0"]);
    lab.kata_command("history").await.expect(0).says(&["KATA", "4.1.0"]);
}

/// A second try with another image does not make a payload that never worked the way back.
#[tokio::test(start_paused = true)]
async fn the_way_back_leads_to_a_payload_that_worked() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    give_old_payload(&lab);
    lab.ready().await;
    lab.fault("worker-0", "pull-fails");
    lab.kata_command(&format!("upgrade --payload-image {NEW} --yes")).await.expect(0);
    lab.until("the failed pull", |lab| lab.condition("Stalled") == "True").await;
    let second = "upgrade --payload-image registry.example/kata:4.2.0 --yes";
    lab.kata_command(second).await.expect(0);
    let dry = lab.kata_command("upgrade --rollback --dry-run").await.expect(0);
    dry.says(&["to the payload registry.example/kata:4.0.0", "rolled back (server dry run)"]);
    lab.kata_command("upgrade --rollback --yes").await.expect(0);
    assert_eq!(payload(&lab), OLD);
}

/// Without a payload in the KataConfig the way back leads to the operator's default, and a paused roll-out is named.
#[tokio::test(start_paused = true)]
async fn the_way_back_to_the_default_is_one_without_a_payload() {
    let mut lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.kata_command("pause").await.expect(0);
    let upgrade = format!("upgrade --payload-image {NEW} --yes");
    lab.kata_command(&upgrade)
        .await
        .expect(0)
        .says(&["no node changes until `kubectl kata resume`"]);
    lab.kata_command("upgrade --rollback --yes").await.expect(0).says(&["the operator's default"]);
    assert_eq!(payload(&lab), Value::Null);
    lab.only(Some("kata-operator-view"));
    let denied = lab.kata_command(&upgrade).await.expect(5);
    denied.says(&[
        "you may not patch kataconfigs.kataconfiguration.openshift.io",
        "kata-operator-edit",
    ]);
}

#[tokio::test(start_paused = true)]
async fn no_payload_is_upgraded_on_openshift_or_while_kata_goes() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    let upgrade = format!("upgrade --payload-image {NEW} --yes");
    lab.kata_command(&upgrade)
        .await
        .expect(4)
        .says(&["on OpenShift Kata comes with", "fix: upgrade the cluster"]);
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    lab.kata_command(&upgrade)
        .await
        .expect(4)
        .says(&["KataConfig cluster-kataconfig is being deleted"]);
}

/// `kubectl wait --for=condition=Ready` waits for this.
#[tokio::test(start_paused = true)]
async fn a_katanode_has_the_condition_ready() {
    let lab = Lab::on(Platform::Kubernetes);
    let ready = |lab: &Lab| {
        let node = lab.get(&kata_nodes(), "", "worker-0").unwrap_or_default();
        let mut all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.retain(|condition| condition["type"] == "Ready");
        all.pop().unwrap_or_default()
    };
    lab.fault("worker-0", "runtime-fails");
    lab.kata(&["worker-0"]);
    lab.until("the end", |lab| lab.condition("Stalled") == "True").await;
    let failed = ready(&lab);
    assert_eq!((&failed["status"], &failed["reason"]), (&json!("False"), &json!("NodeRolledBack")));
    assert!(failed["message"].as_str().unwrap().contains("worker-0"), "{failed}");
    lab.clear_faults("worker-0");
    lab.kata_command("retry worker-0").await.expect(0);
    lab.ready().await;
    let done = ready(&lab);
    assert_eq!((&done["status"], &done["reason"]), (&json!("True"), &json!("Ready")));
    assert!(done["lastTransitionTime"].as_str() > failed["lastTransitionTime"].as_str());
}

/// The report says what was before and after, and what `verify` proved.
#[tokio::test(start_paused = true)]
async fn the_report_has_versions_and_what_was_verified() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    give_old_payload(&lab);
    lab.ready().await;
    lab.pass(8 * 3_600).await;
    let upgrade = format!("upgrade --payload-image {NEW} --yes --wait --timeout 1h");
    lab.kata_command(&upgrade).await.expect(0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let verified = folder.join("verified.json");
    let verify = lab.kata_command("verify -o json").await.expect(0);
    std::fs::write(&verified, verify.out).unwrap();
    let report = format!("report --file - --verified {}", verified.display());
    let page = lab.kata_command(&report).await.expect(0).out;
    for text in [
        "<p class=\"verdict good\">Done: Kata is ready on 1 of 1 node",
        "<dt>Versions of Kata</dt><dd>4.0.0 before it, 4.1.0 after it</dd>",
        "Nothing was measured: that cluster is simulated.",
        "sandboxed: runs on a kernel of its own",
        "boot id: ",
    ] {
        assert!(page.contains(text), "{text}:\n{page}");
    }
    let text = std::fs::read_to_string(&verified).unwrap();
    std::fs::write(&verified, text.replace("lab.example", "other.example")).unwrap();
    lab.kata_command(&report).await.expect(2).says(&["it is about https://other.example"]);
    std::fs::write(&verified, r#"{"kind": "StatusReport"}"#).unwrap();
    lab.kata_command(&report)
        .await
        .expect(2)
        .says(&["--verified ", "`kubectl kata verify -o json`"]);
}

/// Each template has the labels that the RuntimeClass selects, and a startup taint that its autoscaler knows.
#[tokio::test(start_paused = true)]
async fn a_template_of_a_pool_promises_what_the_class_selects() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata_command("pool --for eks").await.expect(1).says(&["there is no KataConfig"]);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let pool = async |kind: &str| {
        lab.kata_command(&format!("pool --for {kind} -o json")).await.expect(0).json()
    };
    let class = lab.list(&simcluster::resource::RUNTIMECLASSES);
    let selected = class[0]["scheduling"]["nodeSelector"].clone();
    let startup = "startup-taint.cluster-autoscaler.kubernetes.io/kata-not-ready";
    let karpenter = pool("karpenter").await;
    let labels = &karpenter["metadata"]["labels"];
    for (key, value) in selected.as_object().unwrap() {
        assert_eq!(labels[key], *value, "{key}: {karpenter:#}");
    }
    assert_eq!(labels["kata"], "true");
    assert_eq!(karpenter["spec"]["startupTaints"][0]["key"], "kata-operator.dev/not-ready");
    let eks = pool("eks").await;
    assert_eq!(eks["labels"], json!({"kata": "true"}));
    assert_eq!(eks["taints"][0]["key"], startup);
    let tag = "k8s.io/cluster-autoscaler/node-template/label/katacontainers.io/kata-runtime";
    assert_eq!(eks["tags"][tag], "true");
    let gke = pool("gke").await;
    assert_eq!((&gke["labels"], &gke["taints"][0]["key"]), (labels, &json!(startup)));
    // What AKS labels stays.
    assert_eq!(pool("aks").await["nodeLabels"], json!({"kata": "true"}));
    let capi = pool("capi").await;
    let annotations = &capi["machineDeployment"]["metadata"]["annotations"];
    let promised = &annotations["capacity.cluster-autoscaler.kubernetes.io/labels"];
    assert!(
        promised.as_str().unwrap().contains("kata.node-restriction.kubernetes.io/kata=true"),
        "{capi:#}"
    );
    lab.kata_command("pool --for capi --class other").await.expect(1).says(&["it has kata"]);
    lab.kata_command("pool --for gke")
        .await
        .expect(0)
        .says(&["check that the node pool accepts them"]);
    let text = lab.kata_command("pool --for karpenter").await.expect(0);
    text.says(&["# spec.template of a NodePool (karpenter.sh/v1) (simulated)", "startupTaints:"]);
    let openshift = Lab::new();
    openshift.kata(&["worker-0"]);
    openshift.kata_command("pool --for capi").await.expect(4).says(&["MachineSet"]);
}
