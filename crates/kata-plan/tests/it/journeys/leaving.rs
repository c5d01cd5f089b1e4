//! Nodes that are not selected any more.

use kata_api::names;
use serde_json::json;

use super::selected;
use crate::world::{VERIFIED, World};

/// The daemon goes on with the configuration that it was given, also if the node's labels change back.
#[test]
fn a_node_that_is_selected_again_takes_no_pods_once_it_is_targeted_without_kata() {
    let mut world = World::new(3, 2);
    world.label("worker-0", "kata", Some("true"));
    world.label("worker-1", "kata", Some("true"));
    let mut spec = selected();
    spec["rollout"] = json!({"leaveDelay": "0s"});
    world.config(&spec);
    world.settle();
    assert!(world.node("worker-0").labels.contains_key(VERIFIED));
    world.label("worker-0", "kata", None);
    let is_targeted = |world: &World| {
        let node = world.node("worker-0");
        let value = |key: &str| node.annotations.get(key).cloned().unwrap_or_default();
        value(names::mco::CURRENT_CONFIG) != value(names::mco::DESIRED_CONFIG)
    };
    for _ in 0..20 {
        if !is_targeted(&world) {
            world.pass();
            world.target();
        }
    }
    assert!(is_targeted(&world) && !world.node("worker-0").labels.contains_key(VERIFIED));
    world.label("worker-0", "kata", Some("true"));
    world.pass();
    assert!(!world.node("worker-0").labels.contains_key(VERIFIED));
    world.settle();
    assert!(world.node("worker-0").labels.contains_key(VERIFIED));
}
