//! The rules that the recordings taught, one by one, where a recording alone does not pin them down.

use serde_json::{Value, json};
use simcluster::api::EventKind;
use simcluster::api::server::Writer;
use simcluster::mco::{self, Timing};
use simcluster::resource::{
    EVENTS, MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODDISRUPTIONBUDGETS, PODS,
};
use simcluster::world::NodeFault;

use super::cluster::Cluster;

fn done(cluster: &Cluster, pool: &str) -> bool {
    let pool = cluster.pool(pool);
    let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let updated = conditions.iter().any(|c| c["type"] == "Updated" && c["status"] == "True");
    updated
        && pool["status"]["observedGeneration"] == pool["metadata"]["generation"]
        && pool["status"]["configuration"]["name"] == pool["spec"]["configuration"]["name"]
}

/// Rule 1 and 6: each step comes five seconds after its cause, and until then the status is stale.
#[test]
fn effects_come_five_seconds_after_their_causes() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    let before = cluster.pool("kata-oc");
    cluster.change_base("00-worker");
    cluster.at(4.9);
    assert_eq!(cluster.pool("kata-oc"), before, "nothing in the pool shows the change yet");
    cluster.at(5.1);
    let rendered = cluster.pool("kata-oc");
    assert_ne!(rendered["spec"]["configuration"]["name"], before["spec"]["configuration"]["name"]);
    assert_eq!(rendered["status"], before["status"], "the status is about the old one");
    assert!(!done(&cluster, "kata-oc"));
    cluster.at(9.9);
    assert_eq!(cluster.pool("kata-oc")["status"], before["status"]);
    cluster.at(10.1);
    assert_eq!(cluster.condition("kata-oc", "Updating"), "True");
    assert_ne!(
        cluster.annotation("worker-0", mco::DESIRED_CONFIG),
        cluster.annotation("worker-0", mco::CURRENT_CONFIG)
    );
}

/// Rule 1: what happens within the delay of a pending sync is one sync's work.
#[test]
fn bursts_are_one_sync() {
    let mut cluster = Cluster::settled(&[]);
    let before = cluster.sim.api.store.revision();
    for second in 0..4_u8 {
        cluster.at(f64::from(second));
        for name in ["00-worker", "01-worker-kubelet"] {
            let file = json!({"path": format!("/etc/{second}"), "contents": {"source": "data:,"}});
            let patch = json!({"spec": {"config": {"storage": {"files": [file]}}}});
            cluster.patch(&MACHINECONFIGS, name, &patch);
        }
    }
    cluster.at(9.0);
    let rendered = cluster
        .sim
        .api
        .store
        .events_after(before)
        .unwrap()
        .filter(|event| event.resource == MACHINECONFIGS && event.kind == EventKind::Added)
        .count();
    assert_eq!(rendered, 1);
}

/// Rules 6, 7 and 9, for every state of a rollout: the safe test for "done" never lies once the
/// pool's count is the expected one.
#[test]
fn the_safe_test_for_done_is_safe() {
    let mut cluster = Cluster::settled(&[]);
    cluster.create_extension("kata-oc", "sandboxed-containers");
    for node in ["worker-0", "worker-1", "worker-2"] {
        cluster.label(node, "kata-oc", true);
    }
    cluster.create_pool_with("kata-oc", &json!({"maxUnavailable": "67%"}));
    let (mut unsafe_states, mut safe_states) = (0, 0);
    for tenth in 0..1_200_u32 {
        cluster.at(f64::from(tenth) / 10.0);
        let target = cluster.pool("kata-oc")["spec"]["configuration"]["name"].clone();
        let everywhere = ["worker-0", "worker-1", "worker-2"].iter().all(|node| {
            cluster.annotation(node, mco::CURRENT_CONFIG) == target.as_str().unwrap_or("-")
        });
        if done(&cluster, "kata-oc") && cluster.counts("kata-oc").starts_with("3/") {
            assert!(everywhere);
            safe_states += 1;
        }
        if cluster.condition("worker", "Updated") == "True" && !everywhere {
            unsafe_states += 1;
        }
    }
    assert!(safe_states > 0 && unsafe_states > 0, "the test has seen both");
}

/// Rule 14 with a percentage: the part of the pool's nodes, rounded down, but at least one.
#[test]
fn a_percentage_of_nodes_changes_at_once() {
    for (percentage, at_once) in [("10%", 1), ("50%", 1), ("67%", 2), ("100%", 3)] {
        let mut cluster = Cluster::settled(&[]);
        cluster.patch(
            &MACHINECONFIGPOOLS,
            "worker",
            &json!({"spec": {"maxUnavailable": percentage}}),
        );
        cluster.change_base("00-worker");
        cluster.advance(15);
        let changing = ["worker-0", "worker-1", "worker-2"]
            .iter()
            .filter(|node| cluster.annotation(node, mco::STATE) == "Working")
            .count();
        assert_eq!(changing, at_once, "{percentage}");
    }
}

/// A limit that cannot be read stops the rollout, not the status.
#[test]
fn an_unreadable_limit_stops_the_rollout() {
    let mut cluster = Cluster::settled(&[]);
    cluster.patch(&MACHINECONFIGPOOLS, "worker", &json!({"spec": {"maxUnavailable": "many"}}));
    cluster.change_base("00-worker");
    cluster.advance(60);
    assert_eq!(cluster.counts("worker"), "3/0/0/0/0");
}

/// Rule 14: zones first, in order, then age.
#[test]
fn zones_decide_the_order() {
    let mut cluster = Cluster::settled(&[]);
    for (node, zone) in [("worker-1", "b"), ("worker-2", "a")] {
        let label = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
        cluster.patch(&NODES, node, &label);
    }
    cluster.change_base("00-worker");
    let mut order = Vec::new();
    for _ in 0..150 {
        cluster.advance(1);
        for node in ["worker-0", "worker-1", "worker-2"] {
            if cluster.annotation(node, mco::STATE) == "Working" && !order.contains(&node) {
                order.push(node);
            }
        }
    }
    assert_eq!(order, ["worker-2", "worker-1", "worker-0"]);
}

/// Rule 12: content decides the name, so an undone change is the old object.
#[test]
fn undoing_a_change_brings_the_old_name_back() {
    let mut cluster = Cluster::settled(&[]);
    cluster.create_pool("infra");
    cluster.advance(20);
    let name = |cluster: &Cluster, pool: &str| {
        cluster.pool(pool)["spec"]["configuration"]["name"].as_str().unwrap().to_owned()
    };
    let (worker, infra) = (name(&cluster, "worker"), name(&cluster, "infra"));
    assert_eq!(worker.strip_prefix("rendered-worker-"), infra.strip_prefix("rendered-infra-"));
    let count = cluster.sim.api.list(&MACHINECONFIGS).len();
    cluster.create_config("99-mine", "worker", &json!({"kernelArguments": ["quiet"]}));
    cluster.advance(6);
    assert_ne!(name(&cluster, "worker"), worker);
    cluster.delete(&MACHINECONFIGS, "99-mine");
    cluster.advance(6);
    assert_eq!(name(&cluster, "worker"), worker);
    assert_eq!(cluster.sim.api.list(&MACHINECONFIGS).len(), count + 2);
}

/// A rendered configuration that is in use cannot be edited or deleted for long.
#[test]
fn rendered_configs_are_restored() {
    let mut cluster = Cluster::settled(&[]);
    let name = cluster.pool("worker")["spec"]["configuration"]["name"].clone();
    let name = name.as_str().unwrap();
    let before = cluster.get(&MACHINECONFIGS, name)["spec"].clone();
    cluster.patch(&MACHINECONFIGS, name, &json!({"spec": {"kernelArguments": ["mine"]}}));
    cluster.advance(6);
    assert_eq!(cluster.get(&MACHINECONFIGS, name)["spec"], before);
    cluster.delete(&MACHINECONFIGS, name);
    cluster.advance(6);
    assert_eq!(cluster.get(&MACHINECONFIGS, name)["spec"], before);
}

/// Render refuses what running nodes cannot change to; the nodes and the rest of the pool stay.
#[test]
fn render_refuses_what_nodes_cannot_change() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    let before = cluster.pool("kata-oc")["spec"].clone();
    cluster.create_config("60-fips", "kata-oc", &json!({"fips": true}));
    cluster.advance(20);
    let name = before["configuration"]["name"].as_str().unwrap();
    let pool = cluster.pool("kata-oc");
    let conditions = pool["status"]["conditions"].as_array().unwrap();
    let render = conditions.iter().find(|c| c["type"] == "RenderDegraded").unwrap();
    assert_eq!(
        render["message"],
        format!(
            "Failed to render configuration for pool kata-oc: reconciliation failed between current \
             config \"{name}\" and base config \"60-fips\": detected change to FIPS flag; refusing \
             to modify FIPS on a running cluster"
        )
    );
    assert_eq!(pool["spec"], before);
    assert_eq!(cluster.condition("kata-oc", "Updated"), "True");
    assert_eq!(cluster.condition("kata-oc", "Degraded"), "True");
}

/// A pool that selects nothing says so; one that selects everything is left alone.
#[test]
fn selectors_that_select_nothing_or_everything() {
    let mut cluster = Cluster::settled(&[]);
    let selector = json!({"matchLabels": {"machineconfiguration.openshift.io/role": "worker",
        "other": ""}});
    cluster.create_pool_with("none", &json!({"machineConfigSelector": selector}));
    cluster.advance(6);
    let pool = cluster.pool("none");
    assert_eq!(
        pool["status"]["conditions"][0]["message"],
        "Failed to render configuration for pool none: no MachineConfigs found matching selector \
         machineconfiguration.openshift.io/role=worker,other="
    );
    assert_eq!(pool["status"]["conditions"].as_array().unwrap().len(), 1);
}

/// Drift on a finished node degrades its pool without a reboot.
#[test]
fn drift_degrades_a_finished_node() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    let boot = cluster.sim.world.hosts["worker-0"].boot_id.clone();
    let reason = "content mismatch for file \"/etc/x\"";
    cluster.fault("worker-0", NodeFault::Drift(reason.to_owned()));
    cluster.label("worker-0", "seen", true);
    cluster.advance(10);
    assert_eq!(cluster.annotation("worker-0", mco::STATE), "Degraded");
    assert_eq!(cluster.annotation("worker-0", mco::REASON), reason);
    assert_eq!(cluster.counts("kata-oc"), "1/0/0/1/1");
    cluster.repair("worker-0");
    cluster.advance(90);
    assert_eq!(cluster.annotation("worker-0", mco::STATE), "Done");
    assert_eq!(cluster.counts("kata-oc"), "1/1/1/0/0");
    assert_eq!(cluster.sim.world.hosts["worker-0"].boot_id, boot);
}

/// Failures late in an update: after the reboot, and at the very end.
#[test]
fn late_failures_are_repaired_by_trying_again() {
    let uncordon = "failed to uncordon node: worker-0 after 10 minutes. Please see \
                    machine-config-controller logs for more information";
    for (fault, reason) in [
        (NodeFault::BootFails("no such package".to_owned()), "no such package"),
        (NodeFault::FailUncordon, uncordon),
    ] {
        let mut cluster = Cluster::settled(&[]);
        cluster.fault("worker-0", fault);
        cluster.change_base("00-worker");
        cluster.advance(700);
        assert_eq!(cluster.annotation("worker-0", mco::STATE), "Degraded");
        assert_eq!(cluster.annotation("worker-0", mco::REASON), reason);
        assert_eq!(cluster.condition("worker", "Degraded"), "True");
        cluster.repair("worker-0");
        cluster.advance(300);
        assert_eq!(cluster.counts("worker"), "3/3/3/0/0", "{reason}");
    }
}

/// A host that never comes back holds its pool up, and nothing is degraded.
#[test]
fn a_host_that_hangs_is_not_degraded() {
    let mut cluster = Cluster::settled(&[]);
    cluster.fault("worker-0", NodeFault::RebootHang);
    cluster.change_base("00-worker");
    cluster.advance(3_600);
    assert_eq!(cluster.counts("worker"), "3/0/0/1/0");
    assert_eq!(cluster.annotation("worker-0", mco::POST_CONFIG_ACTION), "Rebooting");
    assert_eq!(cluster.condition("worker", "Degraded"), "False");
}

fn budget(cluster: &mut Cluster, app: &str) {
    let writer = Writer { manager: "driver", now: cluster.sim.now() };
    let object = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    });
    let created = cluster.sim.api.create(writer, &PODDISRUPTIONBUDGETS, "default", object).unwrap();
    let mut counted = (*created).clone();
    counted["status"] = json!({
        "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
        "observedGeneration": created["metadata"]["generation"],
    });
    cluster.sim.api.update_status(writer, &PODDISRUPTIONBUDGETS, "default", counted).unwrap();
}

fn drop_budget(cluster: &mut Cluster, app: &str) {
    let writer = Writer { manager: "driver", now: cluster.sim.now() };
    let options = simcluster::api::server::DeleteOptions::default();
    cluster.sim.api.delete(writer, &PODDISRUPTIONBUDGETS, "default", app, &options).unwrap();
}

fn pods(cluster: &Cluster) -> Vec<String> {
    let pods = cluster.sim.api.list(&PODS);
    pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Scenario k: a budget holds a drain up; the node is cordoned and nothing is degraded.
#[test]
fn k_a_budget_blocks_a_drain() {
    let mut cluster = Cluster::settled(&[]);
    cluster.pod("db", "worker-0", Some("StatefulSet"));
    cluster.pod("agent", "worker-0", Some("DaemonSet"));
    cluster.pod("web", "worker-0", None);
    cluster.pod("elsewhere", "worker-1", None);
    budget(&mut cluster, "db");
    cluster.at(3.54);
    cluster.create_extension("kata-oc", "sandboxed-containers");
    cluster.label("worker-0", "kata-oc", true);
    cluster.create_pool("kata-oc");
    cluster.at(100.0);
    assert_eq!(pods(&cluster), ["agent", "db", "elsewhere"]);
    assert_eq!(cluster.node("worker-0")["spec"]["unschedulable"], true);
    assert_eq!(cluster.counts("kata-oc"), "1/0/0/1/0");
    assert_eq!(cluster.condition("kata-oc", "Degraded"), "False");
    cluster.at(133.56);
    drop_budget(&mut cluster, "db");
    cluster.at(179.4);
    assert_eq!(pods(&cluster), ["agent", "elsewhere"]);
    super::recordings::check("k", &cluster);
}

/// After an hour the daemon gives up, says why, and goes on when the drain succeeds at last.
#[test]
fn a_drain_times_out_after_an_hour() {
    let mut cluster = Cluster::settled(&[]);
    cluster.fault("worker-0", NodeFault::FailDrain);
    cluster.change_base("00-worker");
    cluster.advance(3_600);
    assert_eq!(cluster.annotation("worker-0", mco::STATE), "Working");
    cluster.advance(60);
    assert_eq!(
        cluster.annotation("worker-0", mco::REASON),
        "failed to drain node: worker-0 after 1 hour. Please see machine-config-controller logs for \
         more information"
    );
    assert_eq!(cluster.counts("worker"), "3/0/0/1/1");
    cluster.repair("worker-0");
    cluster.advance(900);
    assert_eq!(cluster.counts("worker"), "3/3/3/0/0");
}

/// Extensions reach the host with the reboot, and go with the next one.
#[test]
fn extensions_are_installed_by_a_reboot() {
    let mut cluster = Cluster::settled(&[]);
    cluster.create_config("60-usbguard", "worker", &json!({"extensions": ["usbguard"]}));
    cluster.at(24.0);
    let has =
        |cluster: &Cluster| cluster.sim.world.hosts["worker-0"].extensions.contains("usbguard");
    assert!(!has(&cluster), "not before the reboot");
    cluster.at(100.0);
    assert!(has(&cluster));
    cluster.delete(&MACHINECONFIGS, "60-usbguard");
    cluster.at(220.0);
    assert!(!has(&cluster));
    assert_eq!(cluster.counts("worker"), "3/3/3/0/0");
}

/// The Events name the components of the real controllers.
#[test]
fn events_are_recorded() {
    let mut cluster = Cluster::settled(&[]);
    cluster.create_config("60-usbguard", "worker", &json!({"extensions": ["usbguard"]}));
    cluster.advance(150);
    let events: Vec<(Value, Value)> = cluster
        .sim
        .api
        .list(&EVENTS)
        .iter()
        .filter(|event| event["metadata"]["namespace"] == mco::NAMESPACE)
        .map(|event| (event["source"]["component"].clone(), event["reason"].clone()))
        .collect();
    for (component, reason) in [
        ("machineconfigcontroller-rendercontroller", "RenderedConfigGenerated"),
        ("machineconfigcontroller-nodecontroller", "SetDesiredConfig"),
        ("machineconfigcontroller-nodecontroller", "Completed"),
        ("machineconfigdaemon", "Cordon"),
        ("machineconfigdaemon", "Drain"),
        ("machineconfigdaemon", "OSUpdateStarted"),
        ("machineconfigdaemon", "Reboot"),
        ("machineconfigdaemon", "NodeDone"),
    ] {
        assert!(events.contains(&(json!(component), json!(reason))), "{component} {reason}");
    }
}

/// The delays are cluster time: at speed 60 a node with the default durations takes seconds.
#[test]
fn speed_shortens_everything() {
    let mut cluster = Cluster::empty(Timing::default());
    cluster.sim.set_speed(60.0);
    cluster.advance(2);
    cluster.register("worker-0", &["worker"], None);
    cluster.advance(5);
    assert_eq!(cluster.counts("worker"), "1/1/1/0/0");
    cluster.create_config("60-usbguard", "worker", &json!({"extensions": ["usbguard"]}));
    cluster.advance(1);
    assert_eq!(cluster.condition("worker", "Updated"), "False");
    cluster.advance(11);
    assert_eq!(cluster.condition("worker", "Updated"), "True");
    assert!(cluster.sim.world.hosts["worker-0"].extensions.contains("usbguard"));
}

/// A thousand nodes are told what to run within one sync each, and the whole pool is counted.
#[test]
fn a_thousand_nodes_are_retargeted_in_one_sync_and_counted() {
    let mut cluster = Cluster::empty(Timing::recorded());
    cluster.patch(&MACHINECONFIGPOOLS, "worker", &json!({"spec": {"maxUnavailable": "25%"}}));
    cluster.advance(20);
    for index in 0..1_000 {
        cluster.register(&format!("worker-{index:04}"), &["worker"], None);
    }
    cluster.advance(60);
    assert_eq!(cluster.counts("worker"), "1000/1000/1000/0/0");
    cluster.change_base("00-worker");
    cluster.advance(16);
    assert_eq!(cluster.counts("worker"), "1000/0/0/250/0");
    cluster.advance(200);
    assert_eq!(cluster.counts("worker"), "1000/1000/1000/0/0");
}
