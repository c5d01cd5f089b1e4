//! Nodes whose operating system or cloud provides Kata: `spec.providedNodes`.

use kata_api::Code;
use kata_plan::{Kind, decide};
use serde_json::{Value, json};

use super::{CLAIM, finding, label, nothing_left, until};
use crate::journeys::{condition, is};
use crate::plain::Fate;
use crate::world::{KATA_CLASS, World};

const CLOUD: &str = "cloud";
const FAST_CLASS: &str = "kata.node-restriction.kubernetes.io/fast";

/// A node of a cloud, whose kubelet reports these handlers; `None` is a kubelet that reports none at all.
fn add_provided(world: &mut World, name: &str, handlers: Option<&[&str]>) {
    world.add_plain_node(name);
    world.label(name, CLOUD, Some("yes"));
    report(world, name, handlers);
}

fn report(world: &mut World, name: &str, handlers: Option<&[&str]>) {
    let all = |handlers: &[&str]| -> Value {
        ["", "runc"].iter().chain(handlers).map(|name| json!({"name": name})).collect()
    };
    let handlers = handlers.map_or(Value::Null, all);
    world.edit(Kind::Node, name, &json!({"status": {"runtimeHandlers": handlers}}));
}

fn spec() -> Value {
    json!({
        "runtimes": [{"name": "kata"}, {"name": "fast", "shim": "clh"}],
        "providedNodes": {"matchLabels": {CLOUD: "yes"}},
    })
}

fn has(world: &World, node: &str, key: &str) -> bool {
    world.node(node).labels.contains_key(key)
}

/// The nodes for which there are Jobs.
fn jobs_on(world: &World) -> Vec<String> {
    let jobs = world.names(Kind::Job);
    let node = |name: &String| {
        let annotations = &world.get(Kind::Job, name).unwrap()["metadata"]["annotations"];
        annotations["kata-operator.dev/node"].as_str().unwrap().to_owned()
    };
    jobs.iter().map(node).collect()
}

fn passes(world: &mut World, mut each: impl FnMut(&World)) {
    for _ in 0..60 {
        world.pass();
        each(world);
        world.tick();
    }
}

/// After a plan that only reports, the operator starts no pass by itself: by then the node must have its labels.
#[test]
fn a_provided_node_that_comes_later_serves_as_soon_as_the_operator_has_seen_it() {
    let mut world = World::plain(1, 1);
    world.config(&spec());
    until(&mut world, |world| has(world, "worker-0", KATA_CLASS));
    world.settle();
    add_provided(&mut world, "cloud-0", Some(&["kata"]));
    assert!((0..20).any(|_| world.pass().plan.only_reports()));
    assert!(has(&world, "cloud-0", KATA_CLASS));
}

#[test]
fn a_provided_node_serves_the_classes_whose_handlers_it_offers_and_gets_no_job() {
    let mut world = World::plain(1, 1);
    add_provided(&mut world, "cloud-0", Some(&["kata"]));
    add_provided(&mut world, "cloud-1", Some(&["kata", "fast"]));
    add_provided(&mut world, "cloud-2", Some(&["gvisor"]));
    add_provided(&mut world, "cloud-3", None);
    // A system on which no Job could install anything.
    let talos = json!({"status": {"nodeInfo": {"osImage": "Talos (v1.11.0)"}}});
    world.edit(Kind::Node, "cloud-1", &talos);
    world.config(&spec());
    for _ in 0..400 {
        world.pass();
        world.tick();
        assert!(jobs_on(&world).iter().all(|node| node == "worker-0"), "{:?}", jobs_on(&world));
    }
    for (node, kata, fast) in [
        ("worker-0", true, true),
        ("cloud-0", true, false),
        ("cloud-1", true, true),
        ("cloud-2", false, false),
        ("cloud-3", false, false),
    ] {
        assert_eq!(
            (has(&world, node, KATA_CLASS), has(&world, node, FAST_CLASS)),
            (kata, fast),
            "{node}"
        );
        let recorded = &world.get(Kind::KataNode, node).unwrap()["status"];
        assert_eq!(recorded["provided"] == true, node != "worker-0", "{node}");
        assert_eq!(recorded["host"].is_object(), node == "worker-0", "{node}");
        assert_eq!(recorded["ready"], if kata { "True" } else { "False" }, "{node}");
    }
    assert_eq!(world.names(Kind::RuntimeClass), ["fast", "kata"]);
    let reported = finding(&world, "KATA2108");
    assert!(
        reported.contains(
            "node cloud-2 is selected by spec.providedNodes, and its container runtime offers none of the handlers \
             fast, kata; it offers gvisor, runc"
        ),
        "{reported}"
    );
    let reported = finding(&world, "KATA2115");
    assert!(
        reported.contains("node cloud-3 is selected") && reported.contains("containerd://2.1.4"),
        "{reported}"
    );
    let runtimes =
        world.get(Kind::KataConfig, "cluster-kataconfig").unwrap()["status"]["runtimes"].clone();
    let counts =
        |name: &str, nodes: i64| json!({"name": name, "nodeCount": nodes, "readyNodeCount": nodes});
    assert_eq!(runtimes, json!([counts("kata", 3), counts("fast", 2)]));

    // They heal without the operator.
    report(&mut world, "cloud-2", Some(&["fast"]));
    report(&mut world, "cloud-3", Some(&["kata"]));
    world.settle();
    assert!(has(&world, "cloud-2", FAST_CLASS) && !has(&world, "cloud-2", KATA_CLASS));
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));

    // A handler that goes takes its label with it: no further pod may come.
    report(&mut world, "cloud-1", Some(&["fast"]));
    world.settle();
    assert!(has(&world, "cloud-1", FAST_CLASS) && !has(&world, "cloud-1", KATA_CLASS));

    // Of the roll-out they are no part: a node that is down takes no other node's turn.
    world.set_ready("cloud-0", false);
    world.add_plain_node("worker-1");
    until(&mut world, |world| label(world, "worker-1").as_deref() == Some("true"));
}

#[test]
fn a_handler_that_no_node_offers_is_reported_and_keeps_nothing_from_being_ready() {
    let mut world = World::plain(1, 0);
    add_provided(&mut world, "cloud-0", Some(&["kata"]));
    world.config(&spec());
    world.settle();
    assert_eq!(world.names(Kind::RuntimeClass), ["kata"]);
    let reported = finding(&world, "KATA1036");
    assert!(
        reported.contains("no node offers the handler fast of spec.runtimes[fast]"),
        "{reported}"
    );
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn a_provided_node_becomes_managed_and_back_when_no_pod_is_left() {
    let mut world = World::plain(1, 1);
    add_provided(&mut world, "cloud-0", Some(&["kata"]));
    world.config(&json!({"providedNodes": {"matchLabels": {CLOUD: "yes"}}}));
    world.settle();
    world.pod("guest", "kata", "cloud-0");
    world.label("cloud-0", CLOUD, None);
    passes(&mut world, |world| {
        assert_eq!(label(world, "cloud-0").as_deref(), Some("true"));
        assert!(!jobs_on(world).contains(&"cloud-0".to_owned()));
    });
    let reported = finding(&world, "KATA2112");
    assert!(
        reported.contains("node cloud-0 is no longer selected by spec.providedNodes, but 1 sandboxed pod still runs"),
        "{reported}"
    );
    world.delete(Kind::Pod, "default/guest");
    until(&mut world, |world| {
        world
            .get(Kind::KataNode, "cloud-0")
            .is_some_and(|it| it["status"]["host"]["installed"].is_string())
    });
    world.settle();
    assert_eq!(world.get(Kind::KataNode, "cloud-0").unwrap()["status"]["provided"], Value::Null);
    assert_eq!(label(&world, "cloud-0").as_deref(), Some("true"));

    // And back: what was installed goes first, once no pod uses it.
    world.pod("guest", "kata", "cloud-0");
    world.label("cloud-0", CLOUD, Some("yes"));
    passes(&mut world, |world| {
        assert_eq!(label(world, "cloud-0").as_deref(), Some("true"));
        assert_eq!(world.changing(), Vec::<String>::new());
    });
    let reported = finding(&world, "KATA2112");
    assert!(
        reported
            .contains("node cloud-0 is now selected by spec.providedNodes, but 1 sandboxed pod"),
        "{reported}"
    );
    world.delete(Kind::Pod, "default/guest");
    until(&mut world, |world| {
        world.get(Kind::KataNode, "cloud-0").is_some_and(|it| it["status"]["provided"] == true)
    });
    // What the kubelet still reports a moment later may be the operator's handler, which is gone.
    report(&mut world, "cloud-0", Some(&["kata"]));
    world.pass();
    assert_eq!(label(&world, "cloud-0"), None);
    report(&mut world, "cloud-0", Some(&[]));
    world.now = world.now.checked_add(jiff::SignedDuration::from_mins(3)).unwrap();
    world.settle();
    assert!(finding(&world, "KATA2108").contains("offers none of the handlers kata"));
    report(&mut world, "cloud-0", Some(&["kata"]));
    world.settle();
    assert_eq!(label(&world, "cloud-0").as_deref(), Some("true"));
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// A pod of a Job for an earlier node of the same name may still change the node, and a check's pod may not.
#[test]
fn a_provided_node_with_the_name_of_an_earlier_one_waits_for_what_may_change_it() {
    let spec = json!({"providedNodes": {"matchLabels": {CLOUD: "yes"}}});
    let mut world = World::plain(1, 1);
    world.config(&spec);
    world.pass();
    assert_eq!(jobs_on(&world), ["worker-0"], "a check");
    world.delete(Kind::Node, "worker-0");
    add_provided(&mut world, "worker-0", Some(&["kata"]));
    until(&mut world, |world| label(world, "worker-0").as_deref() == Some("true"));

    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::Hangs);
    world.config(&spec);
    until(&mut world, |world| !world.changing().is_empty());
    world.delete(Kind::Node, "worker-0");
    add_provided(&mut world, "worker-0", Some(&["kata"]));
    world.pass();
    assert_eq!(label(&world, "worker-0"), None);
    let status = &world.get(Kind::KataConfig, "cluster-kataconfig").unwrap()["status"];
    assert_eq!(status["kataNodes"]["uninstalling"], json!(["worker-0"]), "{status:#}");
    assert_eq!(status["findings"][0]["code"], "KATA3105", "{status:#}");
    world.hosts.clear();
    until(&mut world, |world| label(world, "worker-0").as_deref() == Some("true"));
}

#[test]
fn a_provided_node_that_is_deselected_or_whose_kataconfig_goes_waits_for_its_pods() {
    for deletes in [false, true] {
        let mut world = World::plain(1, 0);
        add_provided(&mut world, "cloud-0", Some(&["kata"]));
        let selector =
            json!({"matchExpressions": [{"key": "kata", "operator": "NotIn", "values": ["no"]}]});
        world.config(&json!({"kataConfigPoolSelector": selector, "providedNodes": {}}));
        world.settle();
        assert!(has(&world, "cloud-0", CLAIM));
        world.pod("guest", "kata", "cloud-0");
        if deletes {
            world.delete(Kind::KataConfig, "cluster-kataconfig");
        } else {
            world.label("cloud-0", "kata", Some("no"));
        }
        passes(&mut world, |world| {
            assert_eq!(label(world, "cloud-0").as_deref(), Some("true"));
            assert_eq!(world.names(Kind::RuntimeClass), ["kata"]);
        });
        world.delete(Kind::Pod, "default/guest");
        world.settle();
        for key in ["katacontainers.io/kata-runtime", CLAIM, KATA_CLASS] {
            assert!(!has(&world, "cloud-0", key), "{key}");
        }
        assert!(world.get(Kind::KataNode, "cloud-0").is_none());
        assert_eq!(world.names(Kind::Job), Vec::<String>::new());
        if deletes {
            nothing_left(&world);
        }
    }
}

#[test]
fn a_deletion_says_what_the_provided_nodes_wait_for() {
    let mut world = World::plain(1, 0);
    add_provided(&mut world, "cloud-0", Some(&["kata"]));
    world.config(&spec());
    until(&mut world, |world| has(world, "cloud-0", KATA_CLASS));
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    let mut reasons = Vec::new();
    passes(&mut world, |world| {
        let config = world.get(Kind::KataConfig, "cluster-kataconfig");
        let conditions = config.and_then(|it| it["status"]["conditions"].as_array());
        let ready = conditions.into_iter().flatten().find(|it| it["type"] == "Ready");
        reasons.extend(ready.and_then(|it| it["message"].as_str().map(str::to_owned)));
    });
    assert!(world.names(Kind::KataConfig).is_empty());
    let wait = "cloud-0 waiting: the RuntimeClasses and the nodes' labels are removed first";
    assert!(reasons.iter().any(|reason| reason.contains(wait)), "{reasons:?}");
}

#[test]
fn a_class_of_the_cloud_is_accepted_where_no_other_node_needs_it() {
    let mut world = World::plain(1, 0);
    add_provided(&mut world, "cloud-0", Some(&["kata"]));
    world.create(json!({
        "kind": "RuntimeClass", "metadata": {"name": "kata-vm-isolation"}, "handler": "kata",
        "scheduling": {"nodeSelector": {CLOUD: "yes"}},
    }));
    let before = world.get(Kind::RuntimeClass, "kata-vm-isolation").unwrap().clone();
    world.config(&json!({
        "runtimes": [{"name": "kata-vm-isolation", "handler": "kata", "shim": "clh"}], "providedNodes": {},
    }));
    let last = world.settle();
    assert!(last.report.findings.is_empty(), "{:#?}", last.report.findings);
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(world.get(Kind::RuntimeClass, "kata-vm-isolation"), Some(&before));

    // Its pods are not the operator's, and keep it from nothing.
    world.pod("guest", "kata-vm-isolation", "cloud-0");
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
    assert_eq!(world.get(Kind::RuntimeClass, "kata-vm-isolation"), Some(&before));
    assert!(!has(&world, "cloud-0", CLAIM));
    world.delete(Kind::Pod, "default/guest");

    // A node that Jobs change would not be reached by it.
    world.add_plain_node("worker-0");
    world.config(&json!({
        "runtimes": [{"name": "kata-vm-isolation", "handler": "kata", "shim": "clh"}],
        "providedNodes": {"matchLabels": {CLOUD: "yes"}},
    }));
    world.settle();
    assert!(finding(&world, "KATA1009").contains("RuntimeClass kata-vm-isolation exists"));
}

#[test]
fn a_selector_that_cannot_be_evaluated_starts_no_job() {
    let mut world = World::plain(1, 1);
    add_provided(&mut world, "cloud-0", Some(&["kata"]));
    world.config(&json!({"providedNodes": {"matchLabels": {CLOUD: "yes"}}}));
    world.settle();
    let broken =
        json!({"matchExpressions": [{"key": CLOUD, "operator": "Near", "values": ["yes"]}]});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({"spec": {"providedNodes": broken}}));
    add_provided(&mut world, "cloud-1", Some(&["kata"]));
    passes(&mut world, |world| {
        assert!(
            !jobs_on(world).iter().any(|node| node.starts_with("cloud")),
            "{:?}",
            jobs_on(world)
        );
        assert_eq!(label(world, "cloud-0").as_deref(), Some("true"));
        assert_eq!(label(world, "worker-0").as_deref(), Some("true"));
    });
    assert_eq!(label(&world, "cloud-1"), None);
    world.delete(Kind::KataNode, "cloud-0");
    world.add_plain_node("worker-1");
    passes(&mut world, |world| assert_eq!(world.changing(), Vec::<String>::new()));
    assert!(jobs_on(&world).iter().all(|node| node == "worker-0"), "{:?}", jobs_on(&world));
    let reported = finding(&world, "KATA1005");
    assert!(
        reported.contains("spec.providedNodes: operator \"Near\" for label cloud"),
        "{reported}"
    );
}

/// Without its record and its claim a node still gets no Job.
#[test]
fn a_record_or_a_label_that_is_deleted_comes_back() {
    let mut world = World::plain(1, 0);
    add_provided(&mut world, "cloud-0", Some(&["kata"]));
    world.config(&json!({"providedNodes": {}}));
    world.settle();
    world.pod("guest", "kata", "cloud-0");
    for deletes_record in [true, false] {
        if deletes_record {
            world.delete(Kind::KataNode, "cloud-0");
        } else {
            world.label("cloud-0", CLAIM, None);
        }
        passes(&mut world, |world| {
            assert_eq!(label(world, "cloud-0").as_deref(), Some("true"));
            assert_eq!(world.names(Kind::Job), Vec::<String>::new());
        });
        assert!(has(&world, "cloud-0", CLAIM));
        assert_eq!(world.get(Kind::KataNode, "cloud-0").unwrap()["status"]["provided"], true);
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    }
}

#[test]
fn a_class_of_the_cloud_with_another_handler_is_named_with_the_way_out() {
    let mut world = World::plain(1, 0);
    add_provided(&mut world, "cloud-0", Some(&["kata"]));
    world.create(json!({
        "kind": "RuntimeClass", "metadata": {"name": "kata-vm-isolation"}, "handler": "kata",
    }));
    world.config(&json!({"runtimes": [{"name": "kata-vm-isolation"}], "providedNodes": {}}));
    world.settle();
    assert!(
        finding(&world, "KATA2108")
            .contains("none of the handlers kata-vm-isolation; it offers kata, runc")
    );
    let found = decide(&world.observe()).report.findings;
    let found = found.iter().find(|it| it.code == Code::ForeignRuntimeClass).unwrap();
    assert!(found.fix.contains("set handler: kata of this runtime"), "{found:?}");
    assert_eq!(label(&world, "cloud-0"), None);
}

/// The node loses its only label once no pod is there, although it still offers the handler of another runtime.
#[test]
fn a_node_that_no_runtime_with_its_handlers_selects_any_more_loses_its_labels_after_its_pods() {
    let mut world = World::plain(1, 0);
    add_provided(&mut world, "cloud-0", Some(&["fast"]));
    world.label("cloud-0", "vm", Some("fast"));
    let on = |value: &str| json!({"matchLabels": {"vm": value}});
    world.config(&json!({
        "runtimes": [{"name": "kata", "installOn": on("kata")}, {"name": "fast", "shim": "clh", "installOn": on("fast")}],
        "providedNodes": {},
    }));
    world.settle();
    world.pod("guest", "fast", "cloud-0");
    world.label("cloud-0", "vm", Some("kata"));
    passes(&mut world, |world| assert!(has(world, "cloud-0", FAST_CLASS)));
    world.delete(Kind::Pod, "default/guest");
    world.settle();
    assert!(!has(&world, "cloud-0", FAST_CLASS));
    assert_eq!(label(&world, "cloud-0"), None);
    assert!(
        finding(&world, "KATA2108")
            .contains("offers none of the handlers kata; it offers fast, runc")
    );
}
