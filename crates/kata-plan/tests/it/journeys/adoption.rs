//! Clusters that the OpenShift operator set up: what it left is taken over, and no node reboots for it.

use kata_plan::Kind;
use serde_json::json;

use super::{assert_nothing_left, condition, is};
use crate::world::{KATA, MC, VERIFIED, World};

#[test]
fn objects_of_the_go_operator_are_adopted_without_a_reboot() {
    let mut world = World::new(3, 2);
    world.config(&json!({"logLevel": "debug"}));
    world.settle();
    let managed = "app.kubernetes.io/managed-by";
    let part = "app.kubernetes.io/part-of";
    let bare = json!({"metadata": {"labels": {managed: null, part: null}}});
    for (kind, name) in [
        (Kind::MachineConfig, MC),
        (Kind::MachineConfigPool, "kata-oc"),
        (Kind::ContainerRuntimeConfig, "kata-crio-config"),
        (Kind::RuntimeClass, "kata"),
    ] {
        world.edit(kind, name, &bare);
    }
    world.edit(
        Kind::MachineConfig,
        MC,
        &json!({"spec": {"config": {"ignition": {"version": "3.5.0"}}}}),
    );
    let selector = json!({"nodeSelector": {KATA: ""}});
    world.objects.get_mut(&(Kind::RuntimeClass, "kata".to_owned())).unwrap()["scheduling"] =
        selector;
    let legacy = json!({"metadata": {"finalizers": ["finalizer.kataconfiguration.openshift.io"]}, "status": null});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &legacy);
    for node in ["worker-0", "worker-1"] {
        world.label(node, VERIFIED, None);
        world.delete(Kind::KataNode, node);
    }
    let config = world.get(Kind::MachineConfig, MC).unwrap()["spec"].clone();
    let before: Vec<_> = ["worker-0", "worker-1"].map(|node| world.node(node).annotations).into();
    world.settle();
    let after: Vec<_> = ["worker-0", "worker-1"].map(|node| world.node(node).annotations).into();
    assert_eq!(before, after);
    assert_eq!(world.get(Kind::MachineConfig, MC).unwrap()["spec"], config);
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_nothing_left(&world);
}

/// Installs what the OpenShift operator leaves, without any operator of ours.
fn left_by_the_go_operator(
    machine_config: &serde_json::Value,
    node_selector: &serde_json::Value,
) -> World {
    let mut world = World::new(3, 2);
    world.create(machine_config.clone());
    world.create(json!({
        "kind": "MachineConfigPool",
        "metadata": {"name": "kata-oc"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [{
                "key": "machineconfiguration.openshift.io/role", "operator": "In",
                "values": ["kata-oc", "worker"],
            }]},
            "nodeSelector": {"matchLabels": node_selector},
        },
    }));
    for node in ["worker-0", "worker-1"] {
        world.label(node, KATA, Some(""));
    }
    for _ in 0..60 {
        world.tick();
    }
    world.config(&json!({}));
    world
}

#[test]
fn every_form_of_the_go_operators_objects_is_adopted_without_a_reboot() {
    let role = "machineconfiguration.openshift.io/role";
    let ignition = json!({"ignition": {"version": "3.2.0"}});
    let extension = json!({"extensions": ["sandboxed-containers"], "config": ignition});
    let forms = [
        // 1.2: role worker, no label on the pool, the user's selector in the pool.
        ("worker", MC, extension.clone(), json!({KATA: "", "node-role.kubernetes.io/worker": ""})),
        // 1.8.
        ("kata-oc", MC, extension, json!({KATA: ""})),
        // 1.8, image mode; the gate is still there.
        (
            "kata-oc",
            "50-enable-sandboxed-containers-image",
            json!({"osImageURL": "kata1", "kernelArguments": ["a"], "config": ignition}),
            json!({KATA: ""}),
        ),
    ];
    for (pool, name, spec, node_selector) in forms {
        let config = json!({
            "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {role: pool, "app": "cluster-kataconfig"}},
            "spec": spec,
        });
        let mut world = left_by_the_go_operator(&config, &node_selector);
        let owner =
            world.get(Kind::KataConfig, "cluster-kataconfig").unwrap()["metadata"]["uid"].clone();
        world.create(json!({
            "kind": "RuntimeClass",
            "metadata": {"name": "kata", "ownerReferences": [{
                "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
                "name": "cluster-kataconfig", "uid": owner, "controller": true}]},
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "0.25", "memory": "120Mi"}},
            "scheduling": {"nodeSelector": {"node-role.kubernetes.io/worker": ""}},
        }));
        if spec["osImageURL"].is_string() {
            for (name, data) in [
                ("osc-feature-gates", json!({"layeredImageDeployment": "true"})),
                ("layered-image-deploy-cm", json!({"osImageURL": "kata1", "kernelArguments": "a"})),
            ] {
                world.create(json!({"kind": "ConfigMap", "data": data, "metadata":
                    {"namespace": "openshift-sandboxed-containers-operator", "name": name}}));
            }
        }
        // The status of 1.1 to 1.4, and their finalizer.
        let legacy = json!({
            "metadata": {"finalizers": ["finalizer.kataconfiguration.openshift.io"]},
            "status": {
                "runtimeClass": "kata", "totalNodesCount": 2, "prevMcpGeneration": 2,
                "installationStatus": {"IsInProgress": "false", "completed": {}, "failed": {}},
                "unInstallationStatus": {}, "upgradeStatus": {},
            },
        });
        world.edit(Kind::KataConfig, "cluster-kataconfig", &legacy);
        let annotations =
            |world: &World| ["worker-0", "worker-1"].map(|node| world.node(node).annotations);
        let before = annotations(&world);
        let last = world.settle();
        assert_eq!(annotations(&world), before, "{name}");
        assert_eq!(world.get(Kind::MachineConfig, name).unwrap()["spec"], spec);
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"), "{name}");
        // What the admin changed by hand is kept and reported, until the KataConfig sets it.
        let memory = |world: &World| {
            world.get(Kind::RuntimeClass, "kata").unwrap()["overhead"]["podFixed"]["memory"].clone()
        };
        assert_eq!(memory(&world), "120Mi");
        assert!(last.report.findings.iter().any(|finding| finding.message.contains("120Mi")));
        world.edit(
            Kind::RuntimeClass,
            "kata",
            &json!({"overhead": {"podFixed": {"memory": "1Mi"}}}),
        );
        world.settle();
        assert_eq!(memory(&world), "120Mi");
        let spec = json!({"spec": {"runtimes": [{"name": "kata", "overhead": {"memory": "1Gi"}}]}});
        world.edit(Kind::KataConfig, "cluster-kataconfig", &spec);
        world.settle();
        assert_eq!(memory(&world), "1Gi");
        world.delete(Kind::KataConfig, "cluster-kataconfig");
        world.settle();
        assert_nothing_left(&world);
    }
}
