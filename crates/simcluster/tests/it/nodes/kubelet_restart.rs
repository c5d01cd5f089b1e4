//! Kubelets that restart: which pods stay, which fail, and what is left of them.

use std::time::Duration;

use serde_json::{Value, json};
use simcluster::resource::{DAEMONSETS, NODES, PODS, REPLICASETS};
use simcluster::topology::Layout;
use simcluster::world::{NodeFault, Platform, Runtime};
use simcluster::{Simulation, topology};

use super::{cluster, condition, create, fields, get, messages, phase_of, pod, reboot, writer};

const REFUSAL: &str =
    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";

fn label(sim: &mut Simulation, value: &Value) {
    let patch = json!({"metadata": {"labels": {"has-kata": value}}});
    sim.api.merge(writer(sim), &NODES, "", "worker-0", &patch).unwrap();
}

fn restart_kubelet(sim: &mut Simulation) {
    topology::set_fault(sim, "worker-0", NodeFault::KubeletRestart).unwrap();
    sim.advance(Duration::ZERO);
}

fn uid(sim: &Simulation, name: &str) -> String {
    get(sim, &PODS, "default", name)["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// One node with a label, a pod that selects the label, and one that selects nothing.
fn two_pods() -> Simulation {
    two_pods_on(None)
}

fn two_pods_on(runtime: Option<Runtime>) -> Simulation {
    let layout = Layout {
        platform: Platform::Kubernetes,
        control_plane: 0,
        workers: 1,
        runtimes: runtime.into_iter().collect(),
        ..Layout::default()
    };
    let mut sim = topology::build(&layout, "2026-11-21T10:00:00Z".parse().unwrap()).unwrap();
    label(&mut sim, &json!("true"));
    let selecting = json!({"nodeSelector": {"has-kata": "true"}});
    create(&mut sim, &PODS, "default", pod("selecting", selecting));
    create(&mut sim, &PODS, "default", pod("other", json!({})));
    sim.advance(Duration::from_secs(10));
    sim
}

#[test]
fn a_pod_outlives_its_label_until_the_kubelet_restarts() {
    let mut sim = two_pods();
    let (selecting, other) = (uid(&sim, "selecting"), uid(&sim, "other"));
    let sandbox = sim.world.hosts["worker-0"].sandboxes[&other].id.clone();
    label(&mut sim, &Value::Null);
    sim.advance(Duration::from_secs(3600));
    assert_eq!(phase_of(&sim, "selecting"), "Running");

    restart_kubelet(&mut sim);
    let failed = get(&sim, &PODS, "default", "selecting");
    let status = &failed["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("NodeAffinity")));
    assert_eq!(status["message"], format!("Pod was rejected: {REFUSAL}"));
    assert!(status["containerStatuses"].is_null() && status["startTime"].is_string(), "{status}");
    assert_ne!(condition(&failed, "Ready"), "True");
    assert_eq!(messages(&sim, "NodeAffinity"), [REFUSAL]);
    // The kubelet stops its containers when it next cleans up.
    assert!(sim.world.hosts["worker-0"].sandboxes.contains_key(&selecting));
    sim.advance(Duration::from_secs(3));
    let sandboxes = &sim.world.hosts["worker-0"].sandboxes;
    assert!(!sandboxes.contains_key(&selecting));
    assert_eq!(sandboxes[&other].id, sandbox, "a restart leaves sandboxes alone");
    let other = get(&sim, &PODS, "default", "other");
    assert_eq!(condition(&other, "Ready"), "True");
    assert_eq!(other["status"]["containerStatuses"][0]["restartCount"], 0);
    assert_eq!(condition(&get(&sim, &NODES, "", "worker-0"), "Ready"), "True");
}

#[test]
fn pods_that_match_their_node_survive_a_restart_of_its_kubelet() {
    let mut sim = two_pods();
    let cordon = json!({"spec": {"unschedulable": true}});
    sim.api.merge(writer(&sim), &NODES, "", "worker-0", &cordon).unwrap();
    topology::set_fault(&mut sim, "worker-0", NodeFault::NotReady).unwrap();
    topology::set_fault(&mut sim, "worker-0", NodeFault::DiskPressure).unwrap();
    sim.advance(Duration::from_secs(60));
    restart_kubelet(&mut sim);
    sim.advance(Duration::from_secs(60));
    assert_eq!((phase_of(&sim, "selecting"), phase_of(&sim, "other")), both("Running"));
}

fn both(phase: &str) -> (String, String) {
    (phase.to_owned(), phase.to_owned())
}

#[test]
fn only_the_container_runtime_of_k3s_restarts_the_kubelet() {
    for (runtime, expected) in [
        (Runtime::Containerd1, "Running"),
        (Runtime::Containerd2, "Running"),
        (Runtime::Crio, "Running"),
        (Runtime::K3s, "Failed"),
    ] {
        let mut sim = two_pods_on(Some(runtime));
        label(&mut sim, &Value::Null);
        sim.world.hosts.get_mut("worker-0").unwrap().restart_runtime();
        sim.world.touch("worker-0");
        sim.advance(Duration::from_secs(5));
        assert_eq!(phase_of(&sim, "selecting"), expected, "{runtime:?}");
        assert_eq!(phase_of(&sim, "other"), "Running", "{runtime:?}");
    }
}

#[test]
fn a_boot_admits_pods_anew() {
    let mut sim = two_pods();
    label(&mut sim, &Value::Null);
    reboot(&mut sim, "worker-0", 60);
    sim.advance(Duration::from_secs(90));
    assert_eq!(
        (phase_of(&sim, "selecting"), phase_of(&sim, "other")),
        ("Failed".to_owned(), "Running".to_owned())
    );
    assert_eq!(sim.world.hosts["worker-0"].sandboxes.len(), 1);
}

#[test]
fn a_pod_is_refused_by_a_node_that_it_does_not_choose() {
    let mut sim = cluster(0, 1);
    let spec = json!({"nodeName": "worker-0", "nodeSelector": {"has-kata": "true"}});
    create(&mut sim, &PODS, "default", pod("misplaced", spec));
    sim.advance(Duration::from_secs(10));
    assert_eq!(get(&sim, &PODS, "default", "misplaced")["status"]["reason"], "NodeAffinity");
    assert!(sim.world.hosts["worker-0"].sandboxes.is_empty());
}

#[test]
fn controllers_replace_a_pod_that_a_kubelet_refused() {
    let mut sim = cluster(0, 1);
    label(&mut sim, &json!("true"));
    let workload = |kind: &str, selector: Value| {
        let mut template = pod("", json!({"nodeSelector": selector}));
        template["metadata"] = json!({"labels": {"app": kind}});
        json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": kind.to_lowercase()},
            "spec": {
                "selector": {"matchLabels": {"app": kind}},
                "template": fields(template).into_iter()
                    .filter(|(key, _)| key == "metadata" || key == "spec")
                    .collect::<Value>(),
            },
        })
    };
    let selector = json!({"has-kata": "true"});
    create(&mut sim, &REPLICASETS, "default", workload("ReplicaSet", selector));
    create(&mut sim, &DAEMONSETS, "default", workload("DaemonSet", json!({})));
    sim.advance(Duration::from_secs(10));
    label(&mut sim, &Value::Null);
    restart_kubelet(&mut sim);
    sim.advance(Duration::from_secs(10));
    let mut phases: Vec<String> = sim
        .api
        .list(&PODS)
        .iter()
        .map(|pod| {
            let label = pod["metadata"]["labels"]["app"].as_str().unwrap();
            format!("{label} {}", pod["status"]["phase"].as_str().unwrap())
        })
        .collect();
    phases.sort();
    assert_eq!(phases, ["DaemonSet Running", "ReplicaSet Failed", "ReplicaSet Pending"]);
}

#[test]
fn the_kubelet_of_a_host_that_is_down_cannot_be_restarted() {
    let mut sim = cluster(0, 1);
    reboot(&mut sim, "worker-0", 600);
    sim.advance(Duration::from_secs(1));
    let error = topology::set_fault(&mut sim, "worker-0", NodeFault::KubeletRestart).unwrap_err();
    assert_eq!(error.message, "host \"worker-0\" is down: its kubelet starts when the host does");
}
