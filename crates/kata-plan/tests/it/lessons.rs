//! What other operators got wrong, and what no other test here holds already.

use kata_plan::{Kind, decide};
use serde_json::json;

use crate::journeys::assert_nothing_left;
use crate::world::{KATA, MC, VERIFIED, World};

fn selected() -> serde_json::Value {
    json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}})
}

#[test]
fn neither_other_pools_nor_a_leftover_one_make_a_compact_cluster_anything_else() {
    let mut world = World::compact(3);
    for (name, role) in [("infra", "infra"), ("kata-oc", "kata-oc")] {
        world.create(json!({
            "kind": "MachineConfigPool",
            "metadata": {"name": name},
            "spec": {
                "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": role}},
                "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{role}"): ""}},
            },
        }));
    }
    world.config(&json!({}));
    let ready = |decision: &kata_plan::Decision| {
        let status = decision.report.status.as_ref().unwrap();
        let condition = status.status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        (condition.status.clone(), status.status.kata_nodes.ready_node_count)
    };
    assert_eq!(ready(&world.settle()), ("True".to_owned(), 3));
    assert!((0..3).all(|index| !world.node(&format!("master-{index}")).labels.contains_key(KATA)));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn nodes_that_match_no_longer_are_cleared_by_the_deletion_all_the_same() {
    let mut world = World::new(3, 2);
    world.label("worker-0", "kata", Some("true"));
    world.config(&selected());
    world.settle();
    let other = json!({"spec": {"kataConfigPoolSelector": {"matchLabels": {"kata": "no"}}}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &other);
    // Before the operator looks.
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn without_its_selector_a_kataconfig_covers_every_worker() {
    let mut world = World::new(3, 3);
    world.label("worker-0", "kata", Some("true"));
    world.config(&selected());
    world.settle();
    let none = json!({"spec": {"kataConfigPoolSelector": null}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &none);
    world.settle();
    assert!(
        (0..3).all(|index| world.node(&format!("worker-{index}")).labels.contains_key(VERIFIED))
    );
}

#[test]
fn a_kataconfig_that_never_had_a_node_goes_at_once() {
    let mut world = World::new(3, 2);
    world.config(&selected());
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.pass();
    assert_nothing_left(&world);
}

#[test]
fn a_deletion_that_the_api_server_does_not_carry_out_keeps_the_finalizer() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..100 {
        let machine_config = world.get(Kind::MachineConfig, MC).cloned();
        world.pass();
        if let Some(machine_config) = machine_config
            && world.get(Kind::MachineConfig, MC).is_none()
        {
            // The answer was an error: it is still there.
            world.create(machine_config);
        }
        world.tick();
    }
    let config = world.get(Kind::KataConfig, "cluster-kataconfig").unwrap();
    assert_eq!(config["metadata"]["finalizers"], json!([kata_api::names::FINALIZER]));
    let waits = decide(&world.observe()).report.waiting_on;
    assert!(waits.iter().any(|waiting| waiting.message.contains(MC)), "{waits:#?}");
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_log_level_that_crio_does_not_know_is_named_and_changes_nothing() {
    let mut world = World::new(3, 1);
    world.config(&json!({"logLevel": "chatty"}));
    let decision = world.settle();
    assert_eq!(world.names(Kind::ContainerRuntimeConfig), [""; 0]);
    let findings: Vec<&str> =
        decision.report.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(findings, ["spec.logLevel \"chatty\" is not a log level of CRI-O and is ignored"]);
}

/// After a reboot the daemon may fail before it has said what it runs. It says so later, and then needs that configuration.
#[test]
fn a_configuration_that_a_failed_daemon_may_run_keeps_the_pool() {
    let mut world = World::new(3, 1);
    let current = |world: &World| {
        world.node("worker-0").annotations[kata_api::names::mco::CURRENT_CONFIG].clone()
    };
    let worker = current(&world);
    world.config(&json!({}));
    world.settle();
    let kata = current(&world);
    for (key, value) in [
        ("currentConfig", worker.as_str()),
        ("desiredConfig", &worker),
        ("state", "Degraded"),
        ("desiredDrain", &format!("uncordon-{kata}")),
        ("lastAppliedDrain", &format!("drain-{kata}")),
    ] {
        world.annotate("worker-0", key, value);
    }
    world.label("worker-0", "node-role.kubernetes.io/kata-oc", None);
    world.edit(Kind::MachineConfigPool, "kata-oc", &json!({"status": {"machineCount": 0}}));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..20 {
        world.pass();
    }
    assert!(world.get(Kind::MachineConfigPool, "kata-oc").is_some());
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_some());
    for (key, value) in [("currentConfig", &*kata), ("state", "Done")] {
        world.annotate("worker-0", key, value);
    }
    world.settle();
    assert_nothing_left(&world);
}
