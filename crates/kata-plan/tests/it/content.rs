//! Changes of what the nodes' configuration contains, besides whether it brings Kata: the log level, and
//! where Kata comes from.

use kata_api::Code;
use kata_plan::Kind;
use serde_json::{Value, json};

use crate::journeys::{assert_nothing_left, condition, is};
use crate::world::{MC, PREFIX, VERIFIED, World};

const NAMESPACE: &str = "openshift-sandboxed-containers-operator";
const IMAGE_MC: &str = "50-enable-sandboxed-containers-image";
const CONFIG: &str = "cluster-kataconfig";

/// What a node runs.
fn current<'a>(world: &'a World, node: &str) -> &'a Value {
    let name = &world.node(node).annotations[&format!("{PREFIX}currentConfig")];
    &world.get(Kind::MachineConfig, name).unwrap()["spec"]
}

fn gate(world: &mut World, on: bool) {
    let data = json!({"layeredImageDeployment": on.to_string()});
    config_map(world, "osc-feature-gates", &data);
}

fn image(world: &mut World, image: &str) {
    config_map(world, "layered-image-deploy-cm", &json!({"osImageURL": image}));
}

fn config_map(world: &mut World, name: &str, data: &Value) {
    world.create(json!({
        "kind": "ConfigMap", "metadata": {"namespace": NAMESPACE, "name": name}, "data": data,
    }));
}

/// Goes on until the KataConfig is Ready. On the way every node keeps Kata, a rendered pool always has one
/// of our MachineConfigs, and nothing is reported as another client's work.
fn roll_out(world: &mut World, pool: &str, arrived: impl Fn(&World) -> bool) {
    for _ in 0..200 {
        let decision = world.pass();
        for finding in &decision.report.findings {
            assert_ne!(finding.code, Code::OtherRollout, "{finding}");
        }
        let ready = condition(world, "Ready").0 == "True";
        assert_eq!(condition(world, "Reconciling").0 == "True", !ready);
        let sources = world.pool(pool)["spec"]["configuration"]["source"].as_array().unwrap();
        let merged = |name: &str| sources.iter().any(|source| source["name"] == name);
        assert!(merged(MC) || merged(IMAGE_MC), "{sources:?}");
        for name in world.names(Kind::Node) {
            let node = world.node(&name);
            let usable = node.ready.status == Some(true) && !node.unschedulable;
            let has = node.runtime_handlers.as_ref().is_some_and(|all| all.contains("kata"));
            if node.labels.contains_key("node-role.kubernetes.io/worker") {
                assert!(!usable || !has || node.labels.contains_key(VERIFIED), "{name}");
            }
        }
        if ready {
            assert!(arrived(world), "Ready before it is so");
            return;
        }
        world.tick();
    }
    panic!("does not become Ready:\n{}", crate::render::decision(&world.pass()));
}

#[test]
fn a_log_level_is_our_own_rollout_and_ready_only_when_every_node_has_it() {
    let mut world = World::new(3, 3);
    world.config(&json!({}));
    world.settle();
    let edit = |world: &mut World, level: &str, generation: i64| {
        let patch = json!({"metadata": {"generation": generation}, "spec": {"logLevel": level}});
        world.edit(Kind::KataConfig, CONFIG, &patch);
    };
    let has_file = |world: &World, wanted: bool| {
        (0..3).all(|index| {
            let spec = current(world, &format!("worker-{index}"));
            spec["config"]["storage"]["files"]
                .as_array()
                .is_some_and(|files| files.is_empty() != wanted)
        })
    };
    edit(&mut world, "debug", 2);
    roll_out(&mut world, "kata-oc", |world| has_file(world, true));
    edit(&mut world, "trace", 3);
    roll_out(&mut world, "kata-oc", |world| has_file(world, true));
    edit(&mut world, "info", 4);
    roll_out(&mut world, "kata-oc", |world| has_file(world, false));
    assert_eq!(world.names(Kind::ContainerRuntimeConfig), Vec::<String>::new());
}

#[test]
fn image_mode_can_be_switched_on_changed_and_switched_off() {
    for compact in [false, true] {
        let (mut world, pool) =
            if compact { (World::compact(3), "master") } else { (World::new(3, 2), "kata-oc") };
        world.config(&json!({}));
        world.settle();
        let nodes: Vec<String> = world
            .names(Kind::Node)
            .into_iter()
            .filter(|name| name.starts_with("master") == compact)
            .collect();
        let all_run = |world: &World, image: &str, extensions: &Value| {
            nodes.iter().all(|node| {
                let spec = current(world, node);
                spec["osImageURL"] == image && spec["extensions"] == *extensions
            })
        };
        image(&mut world, "kata1");
        gate(&mut world, true);
        roll_out(&mut world, pool, |world| all_run(world, "kata1", &json!([])));
        assert!(world.get(Kind::MachineConfig, MC).is_none());
        image(&mut world, "kata2");
        roll_out(&mut world, pool, |world| all_run(world, "kata2", &json!([])));
        gate(&mut world, false);
        let extension = json!(["sandboxed-containers"]);
        roll_out(&mut world, pool, |world| all_run(world, "rhcos", &extension));
        assert!(world.get(Kind::MachineConfig, IMAGE_MC).is_none());
        world.delete(Kind::KataConfig, CONFIG);
        world.settle();
        assert_nothing_left(&world);
    }
}

#[test]
fn a_setting_names_the_extension() {
    let mut world = World::new(3, 2);
    world.options.extension = Some("kata-preview".to_owned());
    world.config(&json!({}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(current(&world, "worker-0")["extensions"], json!(["kata-preview"]));
    world.delete(Kind::KataConfig, CONFIG);
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn image_mode_is_installed_and_removed() {
    for compact in [false, true] {
        let mut world = if compact { World::compact(3) } else { World::new(3, 2) };
        image(&mut world, "kata1");
        gate(&mut world, true);
        world.config(&json!({}));
        world.settle();
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
        assert!(world.get(Kind::MachineConfig, MC).is_none());
        world.delete(Kind::KataConfig, CONFIG);
        while world.get(Kind::KataConfig, CONFIG).is_some() {
            world.pass();
            world.tick();
        }
        assert_nothing_left(&world);
        assert!(world.get(Kind::MachineConfig, IMAGE_MC).is_none());
        for node in world.names(Kind::Node) {
            assert_eq!(current(&world, &node)["osImageURL"], "rhcos", "{node}");
        }
    }
}
