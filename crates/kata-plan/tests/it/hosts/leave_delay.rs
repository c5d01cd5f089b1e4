//! Labels that go and come back, on both platforms: a node leaves by its labels only after `spec.rollout.leaveDelay`.

use kata_api::names;
use kata_plan::{Kind, Request, decide};
use serde_json::{Value, json};

use super::until;
use crate::journeys::{condition, is};
use crate::plain::Fate;
use crate::world::{VERIFIED, World};

/// A cluster whose nodes all have Kata by the label kata=true.
fn by_label(mut world: World, rollout: &Value) -> World {
    for name in world.names(Kind::Node) {
        if name.starts_with("worker") {
            world.label(&name, "kata", Some("true"));
        }
    }
    let selector = json!({"matchLabels": {"kata": "true"}});
    world.config(&json!({"kataConfigPoolSelector": selector, "rollout": rollout}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    world
}

fn platforms(rollout: &Value) -> [World; 2] {
    [World::plain(1, 2), World::new(1, 2)].map(|world| by_label(world, rollout))
}

fn pass_for(world: &mut World, seconds: u32) {
    for _ in 0..seconds.div_ceil(5) {
        world.pass();
        world.tick();
    }
}

fn leaves_at(world: &World, node: &str) -> Value {
    world
        .get(Kind::KataNode, node)
        .map_or_else(|| json!("no KataNode"), |it| it["status"]["leavesAt"].clone())
}

fn findings(world: &World) -> Vec<String> {
    decide(&world.observe()).report.findings.iter().map(ToString::to_string).collect()
}

/// Whether the operator still wants Kata on a node: it is claimed, or in the operator's pool.
fn is_kept(world: &World, node: &str) -> bool {
    let labels = world.node(node).labels;
    labels.contains_key(VERIFIED)
        && (labels.contains_key(names::CLAIM_LABEL) || labels.contains_key(names::KATA_ROLE_LABEL))
}

/// A labeller restarts.
#[test]
fn labels_that_come_back_change_nothing() {
    for mut world in platforms(&json!({})) {
        let before = ["worker-0", "worker-1"].map(|name| world.node(name));
        for name in ["worker-0", "worker-1"] {
            world.label(name, "kata", None);
        }
        let writes = world.writes.len();
        pass_for(&mut world, 30);
        let [finding] = &findings(&world)[..] else { panic!("{:?}", findings(&world)) };
        assert!(
            finding.starts_with("KATA2120")
                && finding.contains("2 nodes")
                && finding.contains("worker-1"),
            "{finding}"
        );
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
        assert!(leaves_at(&world, "worker-0").is_string());
        for name in ["worker-0", "worker-1"] {
            world.label(name, "kata", Some("true"));
        }
        world.settle();
        assert_eq!(findings(&world), Vec::<String>::new());
        assert_eq!(leaves_at(&world, "worker-0"), json!(null));
        for (name, before) in ["worker-0", "worker-1"].into_iter().zip(before) {
            let after = world.node(name);
            assert_eq!(
                (&after.labels, &after.boot_id),
                (&before.labels, &before.boot_id),
                "{name}"
            );
            assert!(!after.unschedulable, "{name}");
        }
        for write in &world.writes[writes..] {
            let (Request::Apply { object, .. }
            | Request::Merge { object, .. }
            | Request::Delete { object, .. }) = write;
            assert!(matches!(object.kind, Kind::KataNode | Kind::KataConfig), "{write:?}");
        }
    }
}

#[test]
fn a_node_leaves_once_its_labels_were_gone_for_the_delay() {
    for (rollout, seconds) in [(json!({}), 300), (json!({"leaveDelay": "1h"}), 3_600)] {
        for mut world in platforms(&rollout) {
            world.label("worker-0", "kata", None);
            pass_for(&mut world, seconds - 10);
            assert!(is_kept(&world, "worker-0"));
            pass_for(&mut world, 15);
            assert!(!is_kept(&world, "worker-0"), "{:?}", world.node("worker-0").labels);
            world.settle();
            assert_eq!(world.names(Kind::KataNode), ["worker-1"]);
            assert!(is_kept(&world, "worker-1"));
        }
    }
}

/// Without a delay, after an edit of the selector, and if the delay is shortened.
#[test]
fn what_an_administrator_edits_acts_at_once() {
    let edited = json!({"spec": {"kataConfigPoolSelector": {"matchLabels": {"kata": "no"}}}});
    let shortened = json!({"spec": {"rollout": {"leaveDelay": "0s"}}});
    for mut world in platforms(&json!({"leaveDelay": "0s"})) {
        world.label("worker-0", "kata", None);
        pass_for(&mut world, 10);
        assert!(!is_kept(&world, "worker-0"));
    }
    for (edit, label) in [(&edited, "true"), (&shortened, "no")] {
        for mut world in platforms(&json!({})) {
            world.label("worker-0", "kata", Some(label));
            pass_for(&mut world, 10);
            assert!(is_kept(&world, "worker-0"));
            world.edit(Kind::KataConfig, "cluster-kataconfig", edit);
            let generation = json!({"metadata": {"generation": 2}});
            world.edit(Kind::KataConfig, "cluster-kataconfig", &generation);
            pass_for(&mut world, 10);
            assert!(!is_kept(&world, "worker-0"), "{edit}");
        }
    }
    for mut world in platforms(&json!({})) {
        world.label("worker-0", "kata", None);
        world.delete(Kind::KataConfig, "cluster-kataconfig");
        pass_for(&mut world, 10);
        assert!(!is_kept(&world, "worker-0"));
    }
}

/// Neither in the same pass, nor before the status is written.
#[test]
fn an_edit_of_another_field_does_not_end_a_delay() {
    for mut world in platforms(&json!({})) {
        world.label("worker-0", "kata", None);
        let edit = json!({"metadata": {"generation": 2}, "spec": {
            "rollout": {"maxUnavailable": 2},
            "runtimes": [{"name": "kata-alias", "handler": "kata"}, {"name": "kata"}],
        }});
        world.edit(Kind::KataConfig, "cluster-kataconfig", &edit);
        pass_for(&mut world, 60);
        assert!(is_kept(&world, "worker-0"));
    }
}

/// The record is written again, with the delay from then on.
#[test]
fn a_node_without_a_record_leaves_after_the_delay() {
    for mut world in platforms(&json!({})) {
        world.label("worker-0", "kata", None);
        pass_for(&mut world, 10);
        world.delete(Kind::KataNode, "worker-0");
        pass_for(&mut world, 240);
        assert!(is_kept(&world, "worker-0") && leaves_at(&world, "worker-0").is_string());
        world.settle();
        assert_eq!(world.names(Kind::KataNode), ["worker-1"]);
    }
}

/// On OpenShift all nodes are in the pool at once, and are changed one after the other.
#[test]
fn a_node_that_waits_in_the_pool_leaves_at_once() {
    let mut world = World::new(1, 2);
    for name in ["worker-0", "worker-1"] {
        world.label(name, "kata", Some("true"));
    }
    world.config(&json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}}));
    let in_pool =
        |world: &World, name: &str| world.node(name).labels.contains_key(names::KATA_ROLE_LABEL);
    until(&mut world, |world| in_pool(world, "worker-1"));
    world.label("worker-1", "kata", None);
    pass_for(&mut world, 15);
    assert!(!in_pool(&world, "worker-1"));
}

/// Nothing was changed on it yet, so that nothing is lost.
#[test]
fn a_node_that_cannot_run_kata_leaves_at_once() {
    let mut world = World::plain(1, 1);
    world.label("worker-0", "kata", Some("true"));
    world.hosts.insert("worker-0".to_owned(), Fate::Unfit);
    let selector = json!({"matchLabels": {"kata": "true"}});
    world.config(&json!({"kataConfigPoolSelector": selector}));
    pass_for(&mut world, 120);
    assert_eq!(world.names(Kind::KataNode), ["worker-0"]);
    world.label("worker-0", "kata", None);
    pass_for(&mut world, 30);
    assert_eq!(world.names(Kind::KataNode), Vec::<String>::new());
}

/// An earlier version of the operator had begun to remove Kata, and wrote no time.
#[test]
fn a_removal_that_has_begun_goes_on() {
    let mut world = by_label(World::plain(1, 2), &json!({"leaveDelay": "0s"}));
    world.pod("web", "kata", "worker-0");
    world.label("worker-0", "kata", None);
    pass_for(&mut world, 30);
    assert!(findings(&world).iter().any(|it| it.starts_with("KATA2112")), "{:?}", findings(&world));
    let earlier = json!({"status": {"leavesAt": null}});
    world.edit(Kind::KataNode, "worker-0", &earlier);
    let delayed = json!({"spec": {"rollout": {"leaveDelay": "1h"}}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &delayed);
    world.delete(Kind::Pod, "default/web");
    pass_for(&mut world, 30);
    assert!(!is_kept(&world, "worker-0"), "{:?}", world.node("worker-0").labels);
}

/// The label comes back while something holds up the removal, whose Job has been tried: the next flap is a new one.
#[test]
fn a_node_that_is_selected_again_has_the_whole_delay() {
    let mut world = by_label(World::plain(1, 2), &json!({}));
    world.hosts.insert("worker-0".to_owned(), Fate::Blocked);
    world.label("worker-0", "kata", None);
    until(&mut world, |world| {
        let job = &world.get(Kind::KataNode, "worker-0").unwrap()["status"]["host"]["job"];
        job["action"] == "Remove" && job["outcome"] == "Blocked"
    });
    world.label("worker-0", "kata", Some("true"));
    until(&mut world, |world| leaves_at(world, "worker-0") == json!(null));
    assert!(is_kept(&world, "worker-0"));
    world.hosts.clear();
    world.label("worker-0", "kata", None);
    pass_for(&mut world, 60);
    assert!(is_kept(&world, "worker-0"));
}

/// A runtime of some nodes, by their labels.
#[test]
fn a_runtime_leaves_after_the_delay() {
    let mut world = World::plain(1, 2);
    world.label("worker-0", "disk", Some("fast"));
    let fast = json!({"matchLabels": {"disk": "fast"}});
    world.config(&json!({"runtimes": [
        {"name": "kata"},
        {"name": "kata-fast", "handler": "kata-clh", "installOn": fast},
        // The same handler as the runtime of all nodes.
        {"name": "kata-alias", "handler": "kata", "installOn": fast},
    ]}));
    world.settle();
    let classes = |world: &World, node: &str| -> Vec<String> {
        let labels = world.node(node).labels.into_keys();
        labels
            .filter_map(|key| Some(key.strip_prefix(names::CLASS_LABEL_PREFIX)?.to_owned()))
            .collect()
    };
    let (all, rest) = (["kata", "kata-alias", "kata-fast"], ["kata"]);
    assert_eq!(
        (classes(&world, "worker-0"), classes(&world, "worker-1")),
        (all.map(str::to_owned).to_vec(), rest.map(str::to_owned).to_vec())
    );
    world.label("worker-0", "disk", None);
    pass_for(&mut world, 240);
    assert_eq!(classes(&world, "worker-0"), all);
    assert_eq!(leaves_at(&world, "worker-1"), json!(null));
    until(&mut world, |world| classes(world, "worker-0") == rest);
    world.settle();
    assert_eq!(leaves_at(&world, "worker-0"), json!(null));
}

/// Otherwise a Job would install Kata on a node that has it from its operating system.
#[test]
fn a_node_stays_provided_while_its_label_is_away() {
    let mut world = World::plain(1, 1);
    world.label("worker-0", "os", Some("with-kata"));
    let handlers = json!({"status": {"runtimeHandlers": [{"name": "kata"}]}});
    world.edit(Kind::Node, "worker-0", &handlers);
    world.config(&json!({"providedNodes": {"matchLabels": {"os": "with-kata"}}}));
    until(&mut world, |world| world.node("worker-0").labels.contains_key(VERIFIED));
    world.settle();
    world.label("worker-0", "os", None);
    pass_for(&mut world, 240);
    assert!(is_kept(&world, "worker-0"), "{:?}", world.node("worker-0").labels);
    assert_eq!(world.names(Kind::Job), Vec::<String>::new());
    world.label("worker-0", "os", Some("with-kata"));
    world.settle();
    assert_eq!((leaves_at(&world, "worker-0"), world.names(Kind::Job)), (json!(null), vec![]));
}

/// Once its labels are off, nothing is left to keep: [`World::pass`] fails if a status is written after which no pass comes.
#[test]
fn a_node_that_was_provided_ends_its_delay_once() {
    let mut world = World::plain(1, 2);
    world.cordon("worker-0", true);
    world.label("worker-0", "cloud", Some("yes"));
    world.config(&json!({"providedNodes": {"matchLabels": {"cloud": "yes"}}}));
    pass_for(&mut world, 20);
    world.label("worker-0", "cloud", Some("no"));
    pass_for(&mut world, 600);
    assert_eq!(leaves_at(&world, "worker-0"), json!(null));
}

/// Such labels are named, unless the administrator has decided about them.
#[test]
fn labels_of_labellers_are_named() {
    let nfd = json!({"matchLabels": {"feature.node.kubernetes.io/cpu-hardware.vmx": "true"}});
    let gpu = json!({"matchLabels": {"nvidia.com/gpu.present": "true"}});
    let found = |spec: &Value| {
        let mut world = World::plain(1, 1);
        world.config(spec);
        findings(&world).into_iter().find(|it| it.starts_with("KATA2121"))
    };
    let message = found(&json!({"kataConfigPoolSelector": nfd})).unwrap();
    assert!(message.contains("feature.node.kubernetes.io/cpu-hardware.vmx"), "{message}");
    let of_runtime =
        json!({"runtimes": [{"name": "kata"}, {"name": "kata-gpu", "installOn": gpu}]});
    let message = found(&of_runtime).unwrap();
    assert!(message.contains("spec.runtimes[kata-gpu].installOn"), "{message}");
    for spec in [
        json!({"kataConfigPoolSelector": {"matchLabels": {"amd.company.example/kata": "true"}}}),
        json!({"kataConfigPoolSelector": nfd, "checkNodeEligibility": true}),
        json!({"kataConfigPoolSelector": nfd, "rollout": {"leaveDelay": "5m"}}),
    ] {
        assert_eq!(found(&spec), None, "{spec}");
    }
}
