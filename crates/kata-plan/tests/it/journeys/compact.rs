//! A compact cluster, whose control plane's nodes are the only workers: Kata comes and goes with the pool master.

use kata_plan::{Kind, decide};
use serde_json::json;

use super::assert_nothing_left;
use crate::world::World;

/// Where no node has Kata or gets it there are no sandboxed pods to look for before the MachineConfig goes.
#[test]
fn a_compact_cluster_is_left_before_any_node_got_kata() {
    let mut world = World::compact(1);
    world.config(&json!({}));
    world.pass();
    world.render();
    world.pass();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_compact_cluster_waits_with_a_reason_until_the_pool_master_is_rendered_without_kata() {
    let mut world = World::compact(3);
    world.config(&json!({}));
    world.settle();
    let pool = world.get(Kind::MachineConfigPool, "master").unwrap();
    let stale = pool["spec"]["configuration"].clone();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    while !world.observe().kata_nodes.known().is_none_or(Vec::is_empty) {
        world.pass();
        world.tick();
    }
    // The nodes are clear; only the pool would still bring Kata back.
    world.edit(Kind::MachineConfigPool, "master", &json!({"spec": {"configuration": stale}}));
    let decision = decide(&world.observe());
    assert!(decision.plan.steps.is_empty(), "{:#?}", decision.plan.steps);
    let waits: Vec<String> =
        decision.report.waiting_on.iter().map(|waiting| waiting.message.clone()).collect();
    assert_eq!(waits, ["the Machine Config Operator to render the pool master without Kata"]);
}
