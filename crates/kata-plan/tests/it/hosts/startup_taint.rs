//! The startup taint, which keeps pods off a new node until Kata is there.

use kata_api::names;
use kata_plan::{Kind, Request};
use serde_json::json;

use super::{label, until};
use crate::plain::Fate;
use crate::world::World;

/// A taint that keeps everything off a new node until Kata is there, beside taints of others.
#[test]
fn the_startup_taint_goes_last_and_alone() {
    for mut world in [World::plain(1, 2), World::new(1, 2)] {
        let startup = json!({"key": names::STARTUP_TAINT, "effect": "NoExecute"});
        let second = json!({"key": names::STARTUP_TAINT, "value": "x", "effect": "NoSchedule"});
        let others = [
            json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"}),
            json!({"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule",
                "timeAdded": "2026-01-01T00:00:00Z"}),
        ];
        let taints = json!([others[0], startup, others[1], second]);
        world.edit(Kind::Node, "worker-0", &json!({"spec": {"taints": taints}}));
        world.edit(Kind::Node, "worker-1", &json!({"spec": {"taints": [startup]}}));
        // The KataConfig does not select this one.
        world.edit(Kind::Node, "master-0", &json!({"spec": {"taints": [startup]}}));
        world.config(&json!({}));
        until(&mut world, |world| {
            for node in ["worker-0", "worker-1"] {
                let tainted = world.node(node).taints.iter().any(|t| t.key == names::STARTUP_TAINT);
                let open = label(world, node).as_deref() == Some("true");
                assert!(tainted || open, "{node} is open to all pods before it has Kata");
            }
            let left = |node: &str| world.get(Kind::Node, node).unwrap()["spec"]["taints"].clone();
            left("worker-0") == json!(others) && left("worker-1").is_null()
        });
        let writes = world.writes.len();
        world.settle();
        assert_eq!(world.node("master-0").taints.len(), 1);
        let again = world.writes[writes..].iter().any(
            |write| matches!(write, Request::Merge { body, .. } if body.get("spec").is_some()),
        );
        assert!(!again, "a taint is lifted twice");
        // An admin adds it later: on a node that serves, the taint has no meaning any more.
        world.edit(Kind::Node, "worker-1", &json!({"spec": {"taints": [startup]}}));
        until(&mut world, |world| world.node("worker-1").taints.is_empty());
    }
}

/// A node that cannot have Kata keeps the taint, and so does one whose installation failed.
#[test]
fn the_startup_taint_stays_on_a_node_without_kata() {
    let mut world = World::plain(1, 1);
    let startup = json!({"key": names::STARTUP_TAINT, "effect": "NoExecute"});
    world.edit(Kind::Node, "worker-0", &json!({"spec": {"taints": [startup]}}));
    world.hosts.insert("worker-0".to_owned(), Fate::Unfit);
    world.config(&json!({}));
    for _ in 0..200 {
        world.pass();
        world.tick();
    }
    assert_eq!(world.node("worker-0").taints.len(), 1);
    world.hosts.clear();
    world.edit(
        Kind::KataNode,
        "worker-0",
        &json!({"metadata": {"annotations": {"kata-operator.dev/retry": "1"}}}),
    );
    until(&mut world, |world| world.node("worker-0").taints.is_empty());
    assert_eq!(label(&world, "worker-0").as_deref(), Some("true"));
}

/// New nodes on which no pod can be yet are changed together, and do not wait until another node is available again.
#[test]
fn nodes_that_take_no_pods_yet_join_beside_a_cordoned_one() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    world.cordon("worker-0", true);
    let joining = ["worker-5", "worker-6", "worker-7"];
    for name in joining {
        world.add_plain_node(name);
        let startup = json!({"key": names::AUTOSCALER_STARTUP_TAINT, "effect": "NoSchedule"});
        world.edit(Kind::Node, name, &json!({"spec": {"taints": [startup]}}));
    }
    // Its pods would have to wait for its container runtime.
    world.add_plain_node("worker-9");
    until(&mut world, |world| world.changing().len() == joining.len());
    until(&mut world, |world| {
        joining.iter().all(|name| label(world, name).as_deref() == Some("true"))
    });
    until(&mut world, |world| joining.iter().all(|name| world.node(name).taints.is_empty()));
    assert_eq!(label(&world, "worker-9"), None);
    world.cordon("worker-0", false);
    until(&mut world, |world| label(world, "worker-9").as_deref() == Some("true"));
}

/// The taint does not empty a node that has been there: its pods run on, and count.
#[test]
fn an_old_node_with_the_startup_taint_takes_its_turn() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    world.add_plain_node("worker-5");
    let old = json!({"metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"}});
    world.edit(Kind::Node, "worker-5", &old);
    let startup = |effect: &str| json!({"spec": {"taints": [{"key": names::STARTUP_TAINT, "effect": effect}]}});
    world.edit(Kind::Node, "worker-5", &startup("NoSchedule"));
    world.cordon("worker-0", true);
    for _ in 0..50 {
        world.pass();
        assert_eq!(world.changing(), Vec::<String>::new());
        world.tick();
    }
    world.edit(Kind::Node, "worker-5", &startup("NoExecute"));
    until(&mut world, |world| label(world, "worker-5").as_deref() == Some("true"));
}

/// An autoscaler makes nodes with the labels that a pod waits for. They are true again once Kata is there.
#[test]
fn premature_labels_of_a_new_node_are_removed_until_it_has_kata() {
    for (handlers, taint, joins) in [
        (Some(vec!["runc"]), true, true),
        // Another installer may be at work.
        (Some(vec!["runc"]), false, false),
        (Some(vec!["runc", "kata-qemu"]), true, false),
        (None, true, true),
        (None, false, false),
    ] {
        let mut world = World::plain(1, 1);
        world.config(&json!({}));
        world.settle();
        world.add_plain_node("worker-5");
        let handlers = handlers
            .map(|names| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>());
        world.edit(Kind::Node, "worker-5", &json!({"status": {"runtimeHandlers": handlers}}));
        if taint {
            let startup = json!({"key": names::STARTUP_TAINT, "effect": "NoSchedule"});
            world.edit(Kind::Node, "worker-5", &json!({"spec": {"taints": [startup]}}));
        }
        world.label("worker-5", names::RUNTIME_LABEL, Some("true"));
        let place = format!("{handlers:?} {taint}");
        world.pass();
        world.pass();
        let claimed =
            |world: &World| world.node("worker-5").labels.contains_key(names::CLAIM_LABEL);
        if joins {
            until(&mut world, |world| label(world, "worker-5").is_none());
            until(&mut world, claimed);
            until(&mut world, |world| label(world, "worker-5").as_deref() == Some("true"));
        } else {
            for _ in 0..20 {
                world.pass();
                world.tick();
            }
            assert!(!claimed(&world), "{place}");
            assert_eq!(label(&world, "worker-5").as_deref(), Some("true"), "{place}");
        }
    }
}
