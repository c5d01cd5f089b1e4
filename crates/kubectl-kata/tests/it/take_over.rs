//! `takeover`: what kata-deploy has in the cluster is found and stopped, and Kata runs on; then the operator takes the
//! nodes over with the KataConfig that the plan prints.

use serde_json::{Value, json};
use simcluster::api::EventKind;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::resource::{
    CONFIGMAPS, CRONJOBS, DAEMONSETS, JOBS, NODES, PODS, RUNTIMECLASSES, SECRETS,
};
use simcluster::topology::{self, Layout};
use simcluster::workload::kata_deploy::{self, Mode};
use simcluster::world::Platform;

use crate::lab::{Lab, kata_configs};

const HOME: &str = "kube-system";
const SHIM: &str = "/opt/kata/bin/containerd-shim-kata-v2";

/// Installs kata-deploy, and lets it settle.
async fn with_kata_deploy(lab: Lab, mode: Mode) -> Lab {
    lab.cluster.with(|sim, _| kata_deploy::install(sim, mode, &kata_deploy::workers(sim))).unwrap();
    lab.pass(120).await;
    lab
}

/// A cluster with kata-deploy and nothing of ours.
async fn bare(mode: Mode) -> Lab {
    let layout = Layout { platform: Platform::Kubernetes, workers: 2, ..Layout::default() };
    with_kata_deploy(Lab::bare(&layout), mode).await
}

fn revision(lab: &Lab) -> u64 {
    lab.cluster.with(|sim, _| sim.api.store.revision())
}

fn uid(lab: &Lab, pod: &str) -> Value {
    lab.get(&PODS, "test-kata", pod).unwrap()["metadata"]["uid"].clone()
}

fn sandboxed(lab: &Lab, name: &str) {
    lab.pod(name, Some("kata-qemu"));
    // The pods of the examples select nodes of a KataConfig.
    lab.label("worker-0", "kata", Some("true"));
}

/// Kata is on the nodes, and kata-deploy has neither workloads nor a Helm release.
fn is_stopped(lab: &Lab) {
    for worker in ["worker-0", "worker-1"] {
        lab.cluster.with(|sim, _| {
            let host = &sim.world.hosts[worker];
            assert!(host.files.contains_key(SHIM), "{worker} has lost Kata");
            assert!(host.handlers.contains_key("kata-qemu"), "{worker}");
        });
        let labels = lab.get(&NODES, "", worker).unwrap()["metadata"]["labels"].clone();
        assert_eq!(labels["katacontainers.io/kata-runtime"], "true", "{worker}");
    }
    assert_eq!(lab.list(&RUNTIMECLASSES).len(), 2);
    assert_eq!(lab.get(&DAEMONSETS, HOME, "kata-deploy"), None);
    assert_eq!(lab.get(&CRONJOBS, HOME, "kata-deploy-reconcile"), None);
    assert_eq!(lab.get(&CONFIGMAPS, HOME, "kata-deploy-job-templates"), None);
    let secrets = lab.list(&SECRETS);
    assert!(secrets.iter().all(|it| it["metadata"]["labels"]["owner"] != "helm"), "{secrets:#?}");
}

#[tokio::test(start_paused = true)]
async fn kata_deploy_is_stopped_and_its_nodes_are_taken_over() {
    let layout = Layout { platform: Platform::Kubernetes, workers: 2, ..Layout::default() };
    let lab = with_kata_deploy(Lab::with_layout(&layout), Mode::DaemonSet).await;
    sandboxed(&lab, "old");
    lab.phase("old", "Running").await;
    let old = uid(&lab, "old");

    let before = revision(&lab);
    let plan = lab.kata_command("takeover plan").await.expect(0);
    let plan = plan.says(&[
        "Nodes of kata-deploy become the operator's. (simulated)",
        "Installer  kata-deploy, Helm release kube-system/kata-deploy, not stopped",
        "Classes    2: kata-clh, kata-qemu",
        "Nodes      2 to be taken over: worker-0, worker-1",
        "Begin      replace the pods of daemonsets.apps kube-system/kata-deploy by ones of registry.k8s.io/pause:3.10",
        "delete secrets kube-system/sh.helm.release.v1.kata-deploy.v1",
    ]);
    let refused = lab.kata_command("takeover begin").await.expect(4);
    refused.says(&["refused: takeover begin stops kata-deploy; add --yes or use --dry-run"]);
    assert_eq!(revision(&lab), before, "something was written");

    let done = lab.kata_command("takeover begin --yes").await.expect(0);
    done.says(&[
        "daemonsets.apps kube-system/kata-deploy paused (simulated)",
        "waiting for the pods of kata-deploy to end: kube-system/kata-deploy-",
        "daemonsets.apps kube-system/kata-deploy deleted",
        "secrets kube-system/sh.helm.release.v1.kata-deploy.v1 deleted",
        "kata-deploy is stopped, and Kata keeps running on its nodes",
    ]);
    lab.pass(600).await;
    is_stopped(&lab);
    assert_eq!(uid(&lab, "old"), old);
    lab.phase("old", "Running").await;
    let again = lab.kata_command("takeover begin").await.expect(0);
    again.says(&["kata-deploy is stopped, and Kata keeps running on its nodes"]);
    lab.kata_command("takeover plan").await.expect(0).says(&["kube-system/kata-deploy, stopped"]);

    // The plan is what `kubectl apply` gets.
    let config: Value = serde_saphyr::from_str(&plan.out).unwrap();
    assert_eq!(config["spec"]["takeOver"], "KataDeploy");
    assert_eq!(config["spec"]["runtimes"][0]["overhead"]["memory"], "130Mi");
    lab.apply(&config).await;
    lab.ready().await;
    assert_eq!(uid(&lab, "old"), old);
    lab.phase("old", "Running").await;
    let class = lab.get(&RUNTIMECLASSES, "", "kata-qemu").unwrap();
    assert_eq!(class["metadata"]["labels"]["app.kubernetes.io/managed-by"], "kata-operator");
    assert_eq!(class["overhead"]["podFixed"]["memory"], "320Mi");
    let taken = lab.kata_command("takeover plan -o json").await.expect(0).json();
    let nodes = taken["nodes"].as_array().unwrap();
    assert!(nodes.len() == 2 && nodes.iter().all(|node| node["takenOver"] == true), "{taken:#}");
    assert_eq!((&taken["stopped"], &taken["steps"]), (&json!(true), &json!([])));

    // And back.
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    lab.until("the way back", |lab| lab.get(&kata_configs(), "", "cluster-kataconfig").is_none())
        .await;
    is_stopped(&lab);
    assert_eq!(uid(&lab, "old"), old);
    let class = lab.get(&RUNTIMECLASSES, "", "kata-qemu").unwrap();
    assert_eq!(class["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
}

/// The pods of the DaemonSet that act end while it wants pods on their nodes, else they remove Kata; nothing of it is
/// left when the last record of the Helm release goes.
#[tokio::test(start_paused = true)]
async fn a_failure_at_any_request_leaves_kata_running_and_the_next_run_goes_on() {
    for mode in [Mode::DaemonSet, Mode::Jobs] {
        let mut failed = 0;
        for call in 1.. {
            let lab = bare(mode).await;
            sandboxed(&lab, "old");
            lab.phase("old", "Running").await;
            let fault =
                Fault::Status { code: 503, retry_after: None, message: None, when: When::Before };
            lab.cluster.with(|sim, _| {
                let mut rule = Rule::once(Match::default(), fault);
                rule.call = Some(sim.frontend.faults.calls() + call);
                sim.frontend.faults.add(rule);
            });
            let first = lab.kata_command("takeover begin --yes").await;
            lab.cluster.with(|sim, _| sim.frontend.faults.clear());
            lab.pass(900).await;
            lab.kata_command("takeover begin --yes").await.expect(0);
            lab.pass(900).await;
            is_stopped(&lab);
            lab.phase("old", "Running").await;
            if first.code == 0 && call > 60 {
                break;
            }
            failed += u32::from(first.code != 0);
        }
        assert!(failed > 30, "only {failed} requests failed in {mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_kata_deploy_end_only_while_the_daemonset_wants_them() {
    let lab = bare(Mode::DaemonSet).await;
    let from = revision(&lab);
    lab.kata_command("takeover begin --yes").await.expect(0);
    let events: Vec<_> =
        lab.cluster.with(|sim, _| sim.api.store.events_after(from).unwrap().cloned().collect());
    let mut is_wanted = true;
    let mut ended = 0;
    for event in events {
        let is_deleted = event.kind == EventKind::Deleted;
        if event.resource == DAEMONSETS && event.name == "kata-deploy" {
            is_wanted = !is_deleted && event.current["metadata"]["deletionTimestamp"].is_null();
        }
        let command = &event.current["spec"]["containers"][0]["command"][0];
        if event.resource == PODS && is_deleted && command == "/usr/bin/kata-deploy" {
            assert!(is_wanted, "{} ends after the DaemonSet", event.name);
            ended += 1;
        }
    }
    assert_eq!(ended, 2);
}

/// A Job of kata-deploy that installs Kata on a node for so many seconds.
fn job(lab: &Lab, stage: &str, seconds: u32) {
    lab.create(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": format!("kata-deploy-{stage}-worker-1"), "namespace": HOME,
            "labels": {
                "kata-deploy/stage": stage,
                "kata-deploy-job-dispatcher/owner": format!("kata-deploy-{stage}"),
            },
        },
        "spec": {"template": {"spec": {
            "nodeName": "worker-1", "restartPolicy": "Never",
            "containers": [{"name": "cri", "image": "i", "command": ["sleep", seconds.to_string()]}],
        }}},
    }));
}

#[tokio::test(start_paused = true)]
async fn an_installation_that_runs_is_waited_for() {
    let lab = bare(Mode::Jobs).await;
    job(&lab, "install", 300);
    lab.pass(10).await;
    let waiting = "waiting for kata-deploy to end what it installs: Job kube-system/kata-deploy-install-worker-1";
    let short = lab.kata_command("takeover begin --yes --timeout 10s").await.expect(124);
    short.says(&[
        "cronjobs.batch kube-system/kata-deploy-reconcile suspended",
        "cronjobs.batch kube-system/kata-deploy-reconcile deleted",
        waiting,
        "error: timed out after 10s",
        "the same command goes on",
    ]);
    assert!(lab.get(&JOBS, HOME, "kata-deploy-install-worker-1").is_some());
    let done = lab.kata_command("takeover begin --yes").await.expect(0);
    done.says(&[waiting, "jobs.batch kube-system/kata-deploy-install-worker-1 deleted"]);
    is_stopped(&lab);
}

#[tokio::test(start_paused = true)]
async fn what_would_remove_kata_is_a_refusal() {
    let lab = bare(Mode::Jobs).await;
    job(&lab, "cleanup", 3_000);
    lab.kata_command("takeover begin --yes").await.expect(4).says(&[
        "refused: kata-deploy is being uninstalled: Job kube-system/kata-deploy-cleanup-worker-1 has not ended",
    ]);
    let plan = lab.kata_command("takeover plan").await.expect(4);
    plan.says(&["Refused    kata-deploy is being uninstalled"]);

    // Releases before 3.29 remove Kata whenever their pods end; those of a shell script have a hook for it.
    for command in [
        json!(["bash", "-c", "/opt/kata-artifacts/scripts/kata-deploy.sh install"]),
        json!(["/usr/bin/kata-deploy", "install"]),
    ] {
        let lab = bare(Mode::DaemonSet).await;
        let container =
            json!([{"name": "kube-kata", "image": "kata-deploy:old", "command": command}]);
        let spec = json!({"spec": {
            "updateStrategy": {"type": "OnDelete", "rollingUpdate": null},
            "template": {"spec": {"containers": container}},
        }});
        lab.merge(&DAEMONSETS, HOME, "kata-deploy", &spec);
        let before = revision(&lab);
        lab.kata_command("takeover begin --yes").await.expect(4).says(&[
            "refused: DaemonSet kube-system/kata-deploy is of a kata-deploy that removes Kata from a node",
            "fix: only kata-deploy 4.1 and newer can be taken over",
        ]);
        assert_eq!(revision(&lab), before);
    }
}

/// Pods that are older than the template of their DaemonSet, and pods that have outlived it.
#[tokio::test(start_paused = true)]
async fn pods_that_would_remove_kata_are_a_refusal() {
    let lab = bare(Mode::DaemonSet).await;
    let known = lab.get(&DAEMONSETS, HOME, "kata-deploy").unwrap();
    let template = known["spec"]["template"]["spec"]["containers"].clone();
    let mut old = template.clone();
    old[0]["env"] = json!([]);
    let containers = |it: &Value| json!({"spec": {"template": {"spec": {"containers": it}}}});
    lab.merge(&DAEMONSETS, HOME, "kata-deploy", &containers(&old));
    lab.pass(300).await;
    let on_delete =
        json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});
    lab.merge(&DAEMONSETS, HOME, "kata-deploy", &on_delete);
    lab.merge(&DAEMONSETS, HOME, "kata-deploy", &containers(&template));
    lab.pass(60).await;
    let refused = lab.kata_command("takeover begin --yes").await.expect(4);
    refused.says(&[
        "refused: pod kube-system/kata-deploy-",
        "on node worker-",
        "removes Kata from a node",
    ]);

    let lab = bare(Mode::DaemonSet).await;
    lab.cluster.with(|sim, now| {
        let writer = Writer { manager: "kubectl", now };
        let orphan =
            DeleteOptions { propagation: Some("Orphan".to_owned()), ..DeleteOptions::default() };
        sim.api.delete(writer, &DAEMONSETS, HOME, "kata-deploy", &orphan).unwrap();
    });
    lab.pass(30).await;
    let before = revision(&lab);
    let refused = lab.kata_command("takeover begin --yes").await.expect(4);
    refused.says(&["of kata-deploy runs on node worker-", "and its DaemonSet is gone"]);
    assert_eq!(revision(&lab), before);
}

fn secret(lab: &Lab, release: &str, status: &str) {
    lab.create(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {
            "name": format!("sh.helm.release.v1.{release}.v7"), "namespace": HOME,
            "labels": {"owner": "helm", "name": release, "status": status},
        },
    }));
}

/// What belongs to others stays: a release that only has a class for the same nodes, and one with other parts.
#[tokio::test(start_paused = true)]
async fn only_the_release_of_kata_deploy_loses_its_records() {
    let lab = bare(Mode::Jobs).await;
    let annotations = |release: &str| json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": HOME});
    let mut class = lab.get(&RUNTIMECLASSES, "", "kata-qemu").unwrap();
    class["metadata"] = json!({"name": "a-team", "annotations": annotations("shop")});
    lab.create(class);
    secret(&lab, "shop", "deployed");
    lab.kata_command("takeover begin --yes").await.expect(0);
    assert!(lab.get(&SECRETS, HOME, "sh.helm.release.v1.shop.v7").is_some());
    assert!(lab.get(&SECRETS, HOME, "sh.helm.release.v1.kata-deploy.v1").is_none());

    let lab = bare(Mode::DaemonSet).await;
    let mut other = lab.get(&DAEMONSETS, HOME, "kata-deploy").unwrap();
    other["metadata"] =
        json!({"name": "logs", "namespace": HOME, "annotations": annotations("kata-deploy")});
    other["spec"]["selector"]["matchLabels"] = json!({"name": "logs"});
    other["spec"]["template"]["metadata"]["labels"] = json!({"name": "logs"});
    other["spec"]["template"]["spec"]["containers"] = json!([{"name": "logs", "image": "i"}]);
    lab.create(other);
    let done = lab.kata_command("takeover begin --yes").await.expect(0);
    done.says(&[
        "the Helm release has other parts, DaemonSet kube-system/logs, so that Helm keeps it",
    ]);
    assert!(lab.get(&SECRETS, HOME, "sh.helm.release.v1.kata-deploy.v1").is_some());

    let lab = bare(Mode::DaemonSet).await;
    secret(&lab, "kata-deploy", "pending-upgrade");
    let refused = lab.kata_command("takeover begin --yes").await.expect(4);
    refused.says(&[
        "refused: Helm works on the release of kata-deploy: secrets kube-system/sh.helm.release.v1.kata-deploy.v7 has the \
         status pending-upgrade",
    ]);
}

/// With `OnDelete` no pod would be replaced, and all would remove Kata when the DaemonSet goes.
#[tokio::test(start_paused = true)]
async fn pods_are_replaced_under_any_update_strategy() {
    for strategy in [
        json!({"type": "OnDelete", "rollingUpdate": null}),
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}),
    ] {
        let lab = bare(Mode::DaemonSet).await;
        let patch = json!({"spec": {"updateStrategy": strategy}});
        lab.merge(&DAEMONSETS, HOME, "kata-deploy", &patch);
        lab.kata_command("takeover begin --yes").await.expect(0);
        lab.pass(600).await;
        is_stopped(&lab);
    }
}

/// A pod on a node that is down keeps the DaemonSet: it would remove Kata when the node is back.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_holds_the_daemonset() {
    let lab = bare(Mode::DaemonSet).await;
    lab.cluster.with(|sim, _| topology::boot_node(sim, "worker-1", false)).unwrap();
    let begun = lab.kata_command("takeover begin --yes --timeout 1m").await.expect(124);
    begun.says(&["waiting for the pods of kata-deploy to end: kube-system/kata-deploy-"]);
    assert!(lab.get(&DAEMONSETS, HOME, "kata-deploy").is_some());
    lab.kata_command("takeover begin --yes").await.expect(0);
    lab.pass(600).await;
    is_stopped(&lab);
}

#[tokio::test(start_paused = true)]
async fn the_plan_says_what_stays_and_who_would_undo_it() {
    let lab = bare(Mode::DaemonSet).await;
    let argo = json!({"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "x"}}});
    lab.merge(&DAEMONSETS, HOME, "kata-deploy", &argo);
    let label = "kata-deploy.katacontainers.io/default";
    lab.label("worker-1", label, Some("false"));
    let mut other = lab.get(&DAEMONSETS, HOME, "kata-deploy").unwrap();
    other["metadata"] = json!({"name": "kata-deploy-blue", "namespace": HOME});
    other["spec"]["template"]["spec"]["nodeSelector"] = json!({"no": "node"});
    other["spec"]["template"]["spec"]["containers"][0]["env"][1]["value"] = json!("blue");
    lab.create(other);
    let plan = lab.kata_command("takeover plan -o json").await.expect(0).json();
    assert_eq!(
        plan["nodes"][1]["obstacle"],
        "kata-deploy has not finished it: its label kata-deploy.katacontainers.io/default is false"
    );
    let notes: Vec<&str> =
        plan["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(
        notes,
        [
            "Argo CD manages kata-deploy and would create it again: take it out there first, without deleting it",
            "installations with a suffix stay as they are: DaemonSet kube-system/kata-deploy-blue",
        ]
    );
    // Without the label a worker has no Kata of kata-deploy, so that not all workers are selected.
    lab.label("worker-1", label, None);
    let plan = lab.kata_command("takeover plan -o json").await.expect(0).json();
    let selector = &plan["kataConfig"]["spec"]["kataConfigPoolSelector"];
    assert_eq!(*selector, json!({"matchLabels": {label: "true"}}));
}

/// What the KataConfig has stays, and only what it lacks is added.
#[tokio::test(start_paused = true)]
async fn the_kataconfig_that_there_is_gets_what_it_lacks() {
    let layout = Layout { platform: Platform::Kubernetes, workers: 2, ..Layout::default() };
    let lab = with_kata_deploy(Lab::with_layout(&layout), Mode::Jobs).await;
    let runtimes = json!([
        {"name": "own", "handler": "kata-own", "shim": "qemu"},
        {"name": "kata-clh", "config": "[runtime]\nenable_debug = true\n", "installOn": {"matchLabels": {"a": "b"}}},
    ]);
    lab.create(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "mine"}, "spec": {"runtimes": runtimes},
    }));
    let plan = lab.kata_command("takeover plan -o json").await.expect(0).json();
    let config = &plan["kataConfig"];
    assert_eq!(config["metadata"]["name"], "mine");
    assert_eq!(
        config["spec"]["runtimes"],
        json!([
            {"name": "own", "handler": "kata-own", "shim": "qemu"},
            {
                "name": "kata-clh", "config": "[runtime]\nenable_debug = true\n",
                "overhead": {"cpu": "250m", "memory": "130Mi"},
            },
            {"name": "kata-qemu", "overhead": {"cpu": "250m", "memory": "320Mi"}},
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_taken_over_nothing_begins() {
    let layout = Layout { platform: Platform::Kubernetes, ..Layout::default() };
    let absent = Lab::bare(&layout);
    for action in ["plan", "begin --yes"] {
        absent
            .kata_command(&format!("takeover {action}"))
            .await
            .expect(1)
            .says(&["error: there is no kata-deploy without a suffix in this cluster"]);
    }
    let old = bare(Mode::DaemonSet).await;
    for worker in ["worker-0", "worker-1"] {
        old.label(worker, "kata-deploy.katacontainers.io/default", None);
    }
    let refused = old.kata_command("takeover begin --yes").await.expect(4);
    refused.says(&["refused: no node can be taken over; node worker-0: it carries the label"]);
    let openshift = Lab::new();
    let refused = openshift.kata_command("takeover begin --yes").await.expect(4);
    refused.says(&["refused: on OpenShift the Machine Config Operator changes nodes"]);

    let mut viewed = bare(Mode::DaemonSet).await;
    viewed.only_view();
    let denied = viewed.kata_command("takeover plan").await.expect(5);
    denied.says(&["cannot find kata-deploy: you may not list runtimeclasses.node.k8s.io"]);
}
