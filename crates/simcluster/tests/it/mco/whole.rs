//! The operator in a whole cluster: with the kubelets, the scheduler and everything else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::api::{Event, EventKind};
use simcluster::mco;
use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES};
use simcluster::topology::{self, Layout};
use simcluster::{Context, Controller, Simulation};

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

/// Counts how often each node and pool is changed.
#[derive(Default)]
struct Changes(Arc<Mutex<BTreeMap<String, usize>>>);

impl Controller for Changes {
    fn name(&self) -> &'static str {
        "changes"
    }

    fn observe(&mut self, event: &Event, _cx: &mut Context<'_>) {
        let counts = [NODES, MACHINECONFIGPOOLS].contains(&event.resource);
        if counts && event.kind == EventKind::Modified {
            *self.0.lock().unwrap().entry(event.name.clone()).or_default() += 1;
        }
    }

    fn act(&mut self, _key: &str, _cx: &mut Context<'_>) {}
}

/// Puts worker-0 into a pool with the extension.
fn install(sim: &mut Simulation) {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": EXTENSION, "labels": {(mco::ROLE): "kata-oc"}},
        "spec": {"config": {"ignition": {"version": "3.2.0"}},
            "extensions": ["sandboxed-containers"]},
    });
    sim.api.create(writer(sim), &MACHINECONFIGS, "", config).unwrap();
    label(sim, "worker-0", &json!(""));
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "kata-oc"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": mco::ROLE, "operator": "In", "values": ["kata-oc", "worker"]}]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/kata-oc": ""}},
        },
    });
    sim.api.create(writer(sim), &MACHINECONFIGPOOLS, "", pool).unwrap();
}

/// Each change is an event that an operator has to read. In the recording of the same install (scenario b) there are 23
/// of the node and 5 of the pools.
#[test]
fn a_node_and_its_pools_change_about_as_often_as_recorded() {
    let mut sim = topology::build(&Layout::default(), epoch()).unwrap();
    let changes = Changes::default();
    let counted = Arc::clone(&changes.0);
    sim.add_controller(Box::new(changes));
    install(&mut sim);
    wait(&mut sim, "kata-oc", "1/1/1/0/0");
    sim.advance(Duration::from_secs(30));
    let counted = counted.lock().unwrap();
    let of = |name: &str| counted.get(name).copied().unwrap_or_default();
    let (node, pools) = (of("worker-0"), of("kata-oc") + of("worker"));
    assert!((19..=27).contains(&node), "within 20 % of 23: {counted:?}");
    assert!((4..=6).contains(&pools), "within 20 % of 5: {counted:?}");
}

#[test]
fn an_extension_comes_and_goes() {
    let mut sim = topology::build(&Layout::default(), epoch()).unwrap();
    assert_eq!(counts(&sim, "master"), "3/3/3/0/0");
    assert_eq!(counts(&sim, "worker"), "3/3/3/0/0");

    install(&mut sim);
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
