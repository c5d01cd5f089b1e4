//! Nodes that are short of disk or network: what their conditions keep away, and what they leave alone.

use std::time::Duration;

use serde_json::{Value, json};
use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS};
use simcluster::world::NodeFault;
use simcluster::{Simulation, topology};

use super::{cluster, condition, create, get, phase_of, pod, taints, with_crio};

#[test]
fn a_shortage_is_a_condition_and_a_taint_until_it_is_over() {
    for (fault, kind, taint) in [
        (NodeFault::DiskPressure, "DiskPressure", "disk-pressure"),
        (NodeFault::NetworkUnavailable, "NetworkUnavailable", "network-unavailable"),
    ] {
        let mut sim = cluster(0, 1);
        create(&mut sim, &PODS, "default", pod("before", json!({})));
        sim.advance(Duration::from_secs(10));
        topology::set_fault(&mut sim, "worker-0", fault).unwrap();
        create(&mut sim, &PODS, "default", pod("after", json!({})));
        sim.advance(Duration::from_secs(10));
        let node = get(&sim, &NODES, "", "worker-0");
        assert_eq!((condition(&node, kind), condition(&node, "Ready")), both("True"));
        assert_eq!(taints(&node), [format!("node.kubernetes.io/{taint}:NoSchedule")]);
        assert_eq!(
            (phase_of(&sim, "before"), phase_of(&sim, "after")),
            ("Running".to_owned(), "Pending".to_owned())
        );
        topology::clear_fault(&mut sim, "worker-0", None).unwrap();
        sim.advance(Duration::from_secs(10));
        let node = get(&sim, &NODES, "", "worker-0");
        assert_eq!(condition(&node, kind), "False");
        assert!(taints(&node).is_empty(), "{node}");
        assert_eq!(phase_of(&sim, "after"), "Running");
    }
}

fn both(status: &str) -> (String, String) {
    (status.to_owned(), status.to_owned())
}

fn reason(sim: &Simulation, name: &str) -> Value {
    get(sim, &PODS, "default", name)["status"]["reason"].clone()
}

#[test]
fn a_full_disk_takes_only_pods_that_the_node_needs_itself() {
    let mut sim = cluster(0, 1);
    topology::set_fault(&mut sim, "worker-0", NodeFault::DiskPressure).unwrap();
    let tolerant = |class: &str| {
        json!({
            "nodeName": "worker-0", "priorityClassName": class,
            "tolerations": [{"operator": "Exists"}],
        })
    };
    create(&mut sim, &PODS, "default", pod("ordinary", tolerant("")));
    create(&mut sim, &PODS, "default", pod("critical", tolerant("system-node-critical")));
    sim.advance(Duration::from_secs(10));
    assert_eq!((phase_of(&sim, "ordinary"), reason(&sim, "ordinary")), failed("Evicted"));
    assert_eq!(phase_of(&sim, "critical"), "Running");
}

/// Two workers of OpenShift, for which the Machine Config Operator has a file that they lack.
fn update_due() -> Simulation {
    let mut sim = with_crio(0, 2);
    let file = json!({"path": "/etc/new", "contents": {"source": "data:,"}});
    let change = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {
            "name": "99-new", "labels": {"machineconfiguration.openshift.io/role": "worker"},
        },
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}}},
    });
    create(&mut sim, &MACHINECONFIGS, "", change);
    sim
}

/// How many nodes the pool of workers has, and how many of them are updated and unavailable.
fn counts(sim: &Simulation) -> [i64; 3] {
    let pool = get(sim, &MACHINECONFIGPOOLS, "", "worker");
    ["machineCount", "updatedMachineCount", "unavailableMachineCount"]
        .map(|count| pool["status"][count].as_i64().unwrap())
}

#[test]
fn a_shortage_of_one_node_stops_the_update_of_its_pool() {
    for fault in [NodeFault::DiskPressure, NodeFault::NetworkUnavailable] {
        let mut sim = update_due();
        topology::set_fault(&mut sim, "worker-0", fault).unwrap();
        sim.advance(Duration::from_secs(3600));
        assert_eq!(counts(&sim), [2, 0, 1]);
        topology::clear_fault(&mut sim, "worker-0", None).unwrap();
        sim.advance(Duration::from_secs(3600));
        assert_eq!(counts(&sim), [2, 2, 0]);
    }
}

#[test]
fn a_node_that_runs_short_while_it_reboots_finishes_its_update() {
    let mut sim = update_due();
    let reboots = |sim: &Simulation| !sim.world.hosts["worker-0"].is_up();
    assert!(sim.advance_until(Duration::from_secs(3600), reboots));
    topology::set_fault(&mut sim, "worker-0", NodeFault::DiskPressure).unwrap();
    sim.advance(Duration::from_secs(3600));
    let node = get(&sim, &NODES, "", "worker-0");
    let state = &node["metadata"]["annotations"]["machineconfiguration.openshift.io/state"];
    assert_eq!((state, &node["spec"]["unschedulable"]), (&json!("Done"), &Value::Null));
    assert_eq!(counts(&sim), [2, 1, 1], "the other one waits");
}

fn failed(reason: &str) -> (String, Value) {
    ("Failed".to_owned(), json!(reason))
}
