//! The operator in a whole cluster: with the kubelets, the scheduler and everything else.

use std::time::Duration;

use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::mco;
use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES};
use simcluster::topology::{self, Layout};

use super::cluster::{EXTENSION, epoch};

fn writer(sim: &Simulation) -> Writer<'static> {
    Writer { manager: "driver", now: sim.now() }
}

fn counts(sim: &Simulation, pool: &str) -> String {
    let pool = sim.api.get(&MACHINECONFIGPOOLS, "", pool);
    pool.map(|pool| super::timeline::counts(&pool["status"])).unwrap_or_default()
}

fn label(sim: &mut Simulation, node: &str, value: &Value) {
    let patch = json!({"metadata": {"labels": {"node-role.kubernetes.io/kata-oc": value}}});
    sim.api.merge(writer(sim), &NODES, "", node, &patch).unwrap();
}

/// Waits until the pool counts what it shall; how long that took.
fn wait(sim: &mut Simulation, pool: &str, expected: &str) -> jiff::SignedDuration {
    let begin = sim.now();
    let reached =
        sim.advance_until(Duration::from_secs(3_600), |sim| counts(sim, pool) == expected);
    assert!(reached, "{pool} is {} instead of {expected}", counts(sim, pool));
    sim.now().duration_since(begin)
}

#[test]
fn an_extension_comes_and_goes() {
    let mut sim = topology::build(&Layout::default(), epoch()).unwrap();
    assert_eq!(counts(&sim, "master"), "3/3/3/0/0");
    assert_eq!(counts(&sim, "worker"), "3/3/3/0/0");

    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": EXTENSION, "labels": {(mco::ROLE): "kata-oc"}},
        "spec": {"config": {"ignition": {"version": "3.2.0"}},
            "extensions": ["sandboxed-containers"]},
    });
    sim.api.create(writer(&sim), &MACHINECONFIGS, "", config).unwrap();
    label(&mut sim, "worker-0", &json!(""));
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "kata-oc"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": mco::ROLE, "operator": "In", "values": ["kata-oc", "worker"]}]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/kata-oc": ""}},
        },
    });
    sim.api.create(writer(&sim), &MACHINECONFIGPOOLS, "", pool).unwrap();

    let boot = sim.world.hosts["worker-0"].boot_id.clone();
    let took = wait(&mut sim, "kata-oc", "1/1/1/0/0");
    assert!((300..600).contains(&took.as_secs()), "{took:#}: a node takes minutes");
    assert_ne!(sim.world.hosts["worker-0"].boot_id, boot);
    assert!(sim.world.hosts["worker-0"].extensions.contains("sandboxed-containers"));
    assert_eq!(counts(&sim, "worker"), "2/2/2/0/0");
    let node = sim.api.get(&NODES, "", "worker-0").unwrap();
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    assert_eq!(taints, Vec::<Value>::new());

    label(&mut sim, "worker-0", &Value::Null);
    wait(&mut sim, "worker", "3/3/3/0/0");
    assert!(sim.world.hosts["worker-0"].extensions.is_empty());
    let options = DeleteOptions::default();
    sim.api.delete(writer(&sim), &MACHINECONFIGS, "", EXTENSION, &options).unwrap();
    sim.api.delete(writer(&sim), &MACHINECONFIGPOOLS, "", "kata-oc", &options).unwrap();
    sim.advance(Duration::from_secs(120));
    assert_eq!(counts(&sim, "worker"), "3/3/3/0/0");
    let nodes = sim.api.list(&NODES);
    assert!(nodes.iter().all(|n| n["metadata"]["annotations"][mco::STATE] == "Done"));
}
