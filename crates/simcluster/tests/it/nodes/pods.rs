//! The life of a pod: how it starts, what keeps it from starting, and how it ends.

use std::time::Duration;

use serde_json::{Value, json};
use simcluster::resource::{PODS, RUNTIMECLASSES};
use simcluster::world::NodeFault;
use simcluster::{Simulation, topology};

use super::{
    cluster, condition, create, get, messages, phase_of, pod, reboot, with_crio, with_kata, writer,
};

#[test]
fn a_pod_goes_from_pending_to_running_and_away() {
    let mut sim = cluster(0, 1);
    create(&mut sim, &PODS, "default", pod("web", json!({})));
    let mut stages = Vec::new();
    sim.advance_until(Duration::from_secs(20), |sim| {
        let pod = get(sim, &PODS, "default", "web");
        let status = &pod["status"];
        let waiting = &status["containerStatuses"][0]["state"]["waiting"]["reason"];
        let node = pod["spec"]["nodeName"].as_str().unwrap_or("-");
        let stage = format!("{} {node} {}", status["phase"], waiting.as_str().unwrap_or("-"));
        if stages.last() != Some(&stage) {
            stages.push(stage);
        }
        false
    });
    assert_eq!(
        stages,
        [
            "\"Pending\" - -",
            "\"Pending\" worker-0 -",
            "\"Pending\" worker-0 ContainerCreating",
            "\"Running\" worker-0 -"
        ]
    );
    let running = get(&sim, &PODS, "default", "web");
    assert_eq!(condition(&running, "Ready"), "True");
    assert!(running["status"]["podIP"].as_str().unwrap().starts_with("10.128."));
    for reason in ["Scheduled", "Pulling", "Pulled", "Created", "Started"] {
        assert_eq!(messages(&sim, reason).len(), 1, "{reason}");
    }
    let writer = writer(&sim);
    sim.api.delete(writer, &PODS, "default", "web", &Default::default()).unwrap();
    assert!(!get(&sim, &PODS, "default", "web")["metadata"]["deletionTimestamp"].is_null());
    sim.advance(Duration::from_secs(5));
    assert!(get(&sim, &PODS, "default", "web").is_null());
}

#[test]
fn containers_end_and_restart_by_policy() {
    for (policy, command, expected) in [
        ("Never", json!(["sh", "-c", "sleep 5; exit 0"]), "Succeeded"),
        ("Never", json!(["false"]), "Failed"),
        ("OnFailure", json!(["true"]), "Succeeded"),
        ("OnFailure", json!(["false"]), "Running"),
        ("Always", json!(["true"]), "Running"),
    ] {
        let mut sim = cluster(0, 1);
        let container = json!({"name": "main", "image": "busybox:1", "command": command});
        let spec = json!({"restartPolicy": policy, "containers": [container]});
        create(&mut sim, &PODS, "default", pod("job", spec));
        sim.advance(Duration::from_secs(120));
        assert_eq!(phase_of(&sim, "job"), expected, "{policy} {command}");
        let status = &get(&sim, &PODS, "default", "job")["status"]["containerStatuses"][0];
        let restarts = status["restartCount"].as_i64().unwrap();
        assert_eq!(restarts > 1, expected == "Running", "{policy} {command}: {restarts}");
    }
}

#[test]
fn a_missing_handler_keeps_the_pod_from_starting() {
    let mut sim = with_crio(0, 1);
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"},
        "handler": "kata",
    });
    create(&mut sim, &RUNTIMECLASSES, "", class);
    create(&mut sim, &PODS, "default", pod("vm", json!({"runtimeClassName": "kata"})));
    sim.advance(Duration::from_secs(15));
    assert_eq!(phase_of(&sim, "vm"), "Pending");
    let told = messages(&sim, "FailedCreatePodSandBox");
    assert_eq!(told.len(), 1, "repetitions are counted: {told:?}");
    assert!(
        told[0].starts_with(
            "Failed to create pod sandbox: rpc error: code = Unknown desc = \
             failed to find runtime handler kata from runtime list map[crun:0x"
        ),
        "{told:?}"
    );
    // The handler comes with the next boot; the pod then starts by itself.
    with_kata(&mut sim, "worker-0");
    sim.advance(Duration::from_secs(10));
    assert_eq!(phase_of(&sim, "vm"), "Running");
}

#[test]
fn without_kvm_no_virtual_machine_starts() {
    let mut sim = with_crio(0, 1);
    with_kata(&mut sim, "worker-0");
    topology::set_fault(&mut sim, "worker-0", NodeFault::NoKvm).unwrap();
    create(&mut sim, &PODS, "default", pod("vm", json!({"runtimeClassName": "kata"})));
    create(&mut sim, &PODS, "default", pod("plain", json!({})));
    sim.advance(Duration::from_secs(10));
    assert_eq!(
        (phase_of(&sim, "vm"), phase_of(&sim, "plain")),
        ("Pending".into(), "Running".into())
    );
    assert!(
        messages(&sim, "FailedCreatePodSandBox")[0].contains("Could not access KVM kernel module")
    );
    topology::clear_fault(&mut sim, "worker-0", None).unwrap();
    sim.advance(Duration::from_secs(60));
    assert_eq!(phase_of(&sim, "vm"), "Running");
}

#[test]
fn a_pod_held_by_a_finalizer_ends_before_it_goes() {
    let mut sim = cluster(0, 1);
    let mut held = pod("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&mut sim, &PODS, "default", held);
    sim.advance(Duration::from_secs(10));
    let writer = writer(&sim);
    sim.api.delete(writer, &PODS, "default", "held", &Default::default()).unwrap();
    sim.advance(Duration::from_secs(60));
    assert_eq!(phase_of(&sim, "held"), "Failed");
    let patch = json!({"metadata": {"finalizers": null}});
    sim.api.merge(writer, &PODS, "default", "held", &patch).unwrap();
    sim.advance(Duration::from_secs(5));
    assert!(get(&sim, &PODS, "default", "held").is_null());
}

#[test]
fn pods_leave_an_unreachable_node_after_their_patience() {
    let mut sim = cluster(0, 1);
    let toleration = |seconds: Value| {
        let mut toleration = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists",
                                    "effect": "NoExecute"});
        if !seconds.is_null() {
            toleration["tolerationSeconds"] = seconds;
        }
        let mut other = toleration.clone();
        other["key"] = json!("node.kubernetes.io/not-ready");
        json!({"tolerations": [toleration, other]})
    };
    create(&mut sim, &PODS, "default", pod("brief", toleration(json!(60))));
    create(&mut sim, &PODS, "default", pod("loyal", toleration(Value::Null)));
    sim.advance(Duration::from_secs(10));
    topology::set_fault(&mut sim, "worker-0", NodeFault::RebootHang).unwrap();
    reboot(&mut sim, "worker-0", 60);
    sim.advance(Duration::from_secs(50));
    let deleting = |sim: &Simulation, name: &str| {
        !get(sim, &PODS, "default", name)["metadata"]["deletionTimestamp"].is_null()
    };
    assert!(!deleting(&sim, "brief"));
    sim.advance(Duration::from_secs(120));
    assert!(deleting(&sim, "brief"));
    assert!(!deleting(&sim, "loyal"));
    topology::remove_node(&mut sim, "worker-0").unwrap();
    sim.advance(Duration::from_secs(60));
    assert!(sim.api.list(&PODS).is_empty(), "pods of a node that is gone are collected");
}
