//! The same payload everywhere: what the first node resolved a tag to is what the others get.

use std::collections::{BTreeMap, BTreeSet};

use kata_plan::{Kind, decide};
use serde_json::{Value, json};

use super::{finding, host, until};
use crate::plain::{Fate, stage_of, task_of};
use crate::world::World;

fn sha(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

/// Lives through an installation; returns the images that Jobs staged from, by node.
fn installed(world: &mut World) -> BTreeMap<String, BTreeSet<String>> {
    let mut images: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for _ in 0..400 {
        world.pass();
        for name in world.names(Kind::Job) {
            let job = world.get(Kind::Job, &name).unwrap();
            if let Some(stage) = stage_of(job) {
                let image = stage["image"].as_str().unwrap().to_owned();
                images.entry(task_of(job).node).or_default().insert(image);
            }
        }
        world.tick();
    }
    images
}

/// What a node's record says of the image of its payload.
fn recorded(world: &World, node: &str) -> Value {
    let node = world.get(Kind::KataNode, node).cloned().unwrap_or_default();
    node["status"]["host"]["payloadImage"].clone()
}

fn only(image: &str) -> BTreeSet<String> {
    BTreeSet::from([image.to_owned()])
}

fn has_finding(world: &World) -> bool {
    let findings = decide(&world.observe()).report.findings;
    findings.iter().any(|it| it.code == kata_api::Code::PayloadTagMoved)
}

#[test]
fn later_nodes_get_the_digest_that_the_first_one_resolved() {
    for (image, pinned) in [
        ("registry.example/payload:1", "registry.example/payload"),
        ("registry.example:5000/kata/payload:1", "registry.example:5000/kata/payload"),
        ("registry.example:5000/payload", "registry.example:5000/payload"),
        ("payload:1", "payload"),
    ] {
        let mut world = World::plain(1, 3);
        world.config(&json!({"payload": {"image": image}}));
        until(&mut world, |world| recorded(world, "worker-0")["image"] == image);
        world.resolved = format!("@{}", sha('2'));
        let images = installed(&mut world);
        for node in ["worker-0", "worker-1", "worker-2"] {
            let expected = json!({"image": image, "digest": sha('1')});
            assert_eq!(recorded(&world, node), expected, "{node}");
        }
        let pinned = only(&format!("{pinned}@{}", sha('1')));
        assert_eq!((&images["worker-1"], &images["worker-2"]), (&pinned, &pinned));
        assert!(!has_finding(&world));
    }
}

#[test]
fn another_image_is_resolved_anew() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    world.resolved = format!("@{}", sha('2'));
    let image = json!({"spec": {"payload": {"image": "registry.example/payload:2"}}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &image);
    let images = installed(&mut world);
    assert!(images["worker-0"].contains("registry.example/payload:2"), "{images:?}");
    let pinned = format!("registry.example/payload@{}", sha('2'));
    assert!(images["worker-1"].contains(&pinned), "{images:?}");
    assert_eq!(recorded(&world, "worker-1")["digest"], sha('2'));
}

/// Some container runtimes report the digest of the image of their own architecture.
#[test]
fn a_node_of_another_architecture_resolves_the_tag_for_itself() {
    let mut world = World::plain(1, 3);
    world.label("worker-0", "kubernetes.io/arch", Some("amd64"));
    world.label("worker-1", "kubernetes.io/arch", Some("amd64"));
    world.label("worker-2", "kubernetes.io/arch", Some("arm64"));
    world.config(&json!({}));
    let images = installed(&mut world);
    assert_eq!(images["worker-1"], only(&format!("registry.example/payload@{}", sha('1'))));
    assert_eq!(images["worker-2"], only("registry.example/payload:1"));
}

/// What cannot be pulled by others is no reference for them: an ID of an image that was imported on the node.
#[test]
fn without_a_digest_of_a_repository_the_image_is_used_as_it_was_named() {
    for resolved in [String::new(), "@sha256:1".to_owned(), format!("-imported@{}", sha('1'))] {
        let mut world = World::plain(1, 2);
        world.resolved = resolved;
        world.config(&json!({}));
        let images = installed(&mut world);
        assert_eq!(images["worker-1"], only("registry.example/payload:1"));
        assert_eq!(recorded(&world, "worker-1"), Value::Null);
    }
    let mut world = World::plain(1, 2);
    let image = format!("registry.example/payload:1@{}", sha('3'));
    world.config(&json!({"payload": {"image": image}}));
    let images = installed(&mut world);
    assert_eq!((&images["worker-0"], &images["worker-1"]), (&only(&image), &only(&image)));
}

#[test]
fn nodes_with_another_payload_under_the_same_tag_are_named() {
    let mut world = World::plain(1, 3);
    world.config(&json!({}));
    world.settle();
    assert!(!has_finding(&world));
    let other = json!({"status": {"host": {"payloadImage": {"digest": sha('2')}}}});
    world.edit(Kind::KataNode, "worker-2", &other);
    world.settle();
    let message = finding(&world, "KATA3119");
    let said = format!(
        "registry.example/payload:1 was not the same for all nodes: {} on worker-0, worker-1; {} on worker-2",
        sha('1'),
        sha('2')
    );
    assert!(message.contains(&said), "{message}");
    // The next node gets what most have.
    world.add_plain_node("worker-3");
    let images = installed(&mut world);
    assert_eq!(images["worker-3"], only(&format!("registry.example/payload@{}", sha('1'))));
}

/// A node may have the image by its tag only, or another mirror.
#[test]
fn a_node_that_cannot_pull_by_digest_tries_the_tag() {
    let mut world = World::plain(1, 2);
    world.hosts.insert("worker-1".to_owned(), Fate::NoImage);
    world.config(&json!({}));
    let images = installed(&mut world);
    let pinned = format!("registry.example/payload@{}", sha('1'));
    let both = BTreeSet::from([pinned, "registry.example/payload:1".to_owned()]);
    assert_eq!(images["worker-1"], both, "{:#}", host(&world, "worker-1"));
}

/// Between as many nodes of each kind the first one decides; one that leaves does not count.
#[test]
fn a_tie_is_decided_by_the_first_node() {
    let mut world = World::plain(1, 3);
    world.config(
        &json!({"rollout": {"leaveDelay": "0s"}, "kataConfigPoolSelector": {"matchExpressions": [
        {"key": "kata", "operator": "NotIn", "values": ["no"]}]}}),
    );
    world.settle();
    for (node, digit) in [("worker-0", '3'), ("worker-1", '2'), ("worker-2", '2')] {
        let other = json!({"status": {"host": {"payloadImage": {"digest": sha(digit)}}}});
        world.edit(Kind::KataNode, node, &other);
    }
    world.label("worker-2", "kata", Some("no"));
    world.add_plain_node("worker-3");
    let images = installed(&mut world);
    assert_eq!(images["worker-3"], only(&format!("registry.example/payload@{}", sha('3'))));
}

/// The record is about what is installed.
#[test]
fn the_digest_is_forgotten_when_the_node_has_another_payload() {
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    world.settle();
    assert!(!recorded(&world, "worker-0").is_null());
    let other = json!({"status": {"host": {"payloadDigest": "sha256:before"}}});
    world.edit(Kind::KataNode, "worker-0", &other);
    world.hosts.insert("worker-0".to_owned(), Fate::Drifted);
    until(&mut world, |world| host(world, "worker-0")["job"]["outcome"] == "Drifted");
    assert!(recorded(&world, "worker-0").is_null());
}
