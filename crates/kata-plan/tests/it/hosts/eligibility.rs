//! Which nodes are selected, and the findings about nodes that are not.

use kata_plan::{Kind, decide};
use serde_json::{Value, json};

use super::{finding, label};
use crate::journeys::{condition, is};
use crate::plain::Fate;
use crate::world::World;

/// The page that lists the reasons; each test below looks its own up there.
const PAGE: &str = include_str!("../../../../../docs/reference/eligibility.md");

#[test]
fn a_node_that_cannot_have_kata_is_named_with_the_reason() {
    let mut world = World::plain(1, 5);
    world.label("worker-0", "kubernetes.io/os", Some("windows"));
    world.edit(
        Kind::Node,
        "worker-1",
        &json!({"status": {"nodeInfo": {"containerRuntimeVersion": "docker://24"}}}),
    );
    world.annotate("worker-2", "currentConfig", "rendered-worker-1");
    world.annotate("worker-2", "desiredConfig", "rendered-worker-1");
    world.label("worker-3", "kata-deploy.katacontainers.io/default", Some("true"));
    world.config(&json!({}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    let decision = decide(&world.observe());
    let all: Vec<String> = decision.report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        all,
        [
            "KATA3114 OtherInstaller: Node worker-3: node worker-3 is excluded: it carries the label kata-deploy.katacontainers.io/default, which kata-operator did not set",
            "KATA2110 UnsupportedNode: Node worker-0: node worker-0 is excluded: it runs Windows",
            "KATA2110 UnsupportedNode: Node worker-1: node worker-1 is excluded: its container runtime docker is neither containerd nor CRI-O",
            "KATA2110 UnsupportedNode: Node worker-2: node worker-2 is excluded: the Machine Config Operator manages it and would revert the changes of a Job",
        ]
    );
    for message in all.iter().filter(|message| message.starts_with("KATA2110")) {
        let (_, reason) = message.rsplit_once("is excluded: ").unwrap();
        assert!(PAGE.contains(reason), "{reason}");
    }
}

#[test]
fn a_node_of_the_control_plane_counts_only_if_the_selector_names_it() {
    for (selector, gets) in [
        (json!(null), false),
        (json!({"matchLabels": {"kubernetes.io/os": "linux"}}), false),
        (json!({"matchLabels": {"kubernetes.io/hostname": "master-0"}}), true),
        (
            json!({"matchExpressions": [{"key": "node-role.kubernetes.io/master", "operator": "Exists"}]}),
            true,
        ),
        (json!({"matchExpressions": [{"key": "other", "operator": "DoesNotExist"}]}), false),
    ] {
        let mut world = World::plain(1, 0);
        world.config(&json!({"kataConfigPoolSelector": selector}));
        world.settle();
        assert_eq!(label(&world, "master-0").is_some(), gets, "{selector}");
        if !gets {
            assert!(finding(&world, "KATA1003").contains("control plane"), "{selector}");
        }
    }
}

fn node_with(status: &Value, labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "status": status})
}

/// By the fields that such nodes have in real clusters.
#[test]
fn each_kind_of_node_that_cannot_have_kata_is_named_and_delays_no_other() {
    let none = json!({});
    let fargate = json!({"eks.amazonaws.com/compute-type": "fargate"});
    let allocatable = |cpu: &str, memory: &str, pods: &str| json!({"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}});
    let image = |name: &str| json!({"nodeInfo": {"osImage": name}});
    for (node, reason) in [
        (node_with(&none, &json!({"type": "virtual-kubelet"})), "it is a virtual kubelet"),
        (node_with(&none, &json!({"liqo.io/type": "virtual-node"})), "it is a virtual kubelet"),
        (
            json!({"spec": {"taints": [
                {"key": "virtual-kubelet.io/provider", "value": "azure", "effect": "NoSchedule"}]}}),
            "it is a virtual kubelet",
        ),
        (node_with(&allocatable("2", "20Mi", "1"), &fargate), "it is a node of AWS Fargate"),
        (node_with(&none, &json!({"kubernetes.io/arch": "riscv64"})), "architecture riscv64"),
        (node_with(&image("Bottlerocket OS 1.20.0 (aws-k8s-1.31)"), &none), "Bottlerocket takes"),
        (node_with(&image("Talos (v1.9.1)"), &none), "Talos Linux takes"),
        (node_with(&allocatable("50m", "8Gi", "110"), &none), "pods may use 50m of CPU there"),
        (node_with(&allocatable("4", "20Mi", "110"), &none), "pods may use 20 MiB of memory there"),
        (node_with(&allocatable("4", "8Gi", "0"), &none), "pods may use no place for a pod there"),
    ] {
        let mut world = World::plain(1, 2);
        world.edit(Kind::Node, "worker-0", &node);
        world.config(&json!({}));
        world.settle();
        let found = finding(&world, "KATA2110");
        assert!(found.contains("node worker-0 is excluded: "), "{found}");
        assert!(found.contains(reason) && PAGE.contains(reason), "{found}");
        assert_eq!(label(&world, "worker-0"), None, "{reason}");
        assert_eq!(label(&world, "worker-1").as_deref(), Some("true"), "{reason}");
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
        // The guess is wrong: the admin overrules it.
        world.label("worker-0", "kata-operator.dev/eligible", Some("true"));
        world.settle();
        assert_eq!(label(&world, "worker-0").as_deref(), Some("true"), "{reason}");
        // A node that has Kata does not lose it by a guess.
        world.label("worker-0", "kata-operator.dev/eligible", None);
        world.settle();
        assert_eq!(label(&world, "worker-0").as_deref(), Some("true"), "{reason}");
    }
}

/// Virtual kubelets write the system as they like, also with a capital letter.
#[test]
fn the_system_of_a_node_is_read_without_regard_to_case() {
    let virtual_kubelet = json!({"type": "virtual-kubelet"});
    for (system, labels, reason) in [
        ("Linux", &json!({}), None),
        ("Linux", &virtual_kubelet, Some("it is a virtual kubelet")),
        ("Windows", &virtual_kubelet, Some("it is a virtual kubelet")),
        ("Windows", &json!({}), Some("it runs Windows")),
        ("Darwin", &json!({}), Some("it runs darwin")),
    ] {
        let mut world = World::plain(1, 2);
        let info = json!({"nodeInfo": {"operatingSystem": system}});
        world.edit(Kind::Node, "worker-0", &node_with(&info, labels));
        world.config(&json!({}));
        world.settle();
        assert_eq!(label(&world, "worker-0").is_some(), reason.is_none(), "{system} {labels}");
        if let Some(reason) = reason {
            assert!(finding(&world, "KATA2110").contains(reason), "{system} {labels}");
        }
    }
}

/// Red Hat Enterprise Linux CoreOS has the same `os_id` since OpenShift 4.19.
#[test]
fn a_package_based_worker_of_openshift_is_named_and_coreos_is_not() {
    let osid = json!({"node.openshift.io/os_id": "rhel"});
    for (image, excluded) in [
        ("Red Hat Enterprise Linux 8.10 (Ootpa)", true),
        ("Red Hat Enterprise Linux CoreOS 9.6.20251023-0 (Plow)", false),
        ("", false),
    ] {
        let mut world = World::new(1, 2);
        let status = json!({"nodeInfo": {"osImage": image}});
        world.edit(Kind::Node, "worker-0", &node_with(&status, &osid));
        world.config(&json!({}));
        world.settle();
        assert_eq!(label(&world, "worker-0").is_none(), excluded, "{image}");
        let found = decide(&world.observe()).report.findings;
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let is_named = found.iter().any(|text| {
            text.starts_with("KATA2110")
                && text.contains("worker-0 is excluded: it is package-based")
                && PAGE.contains(text.rsplit_once("is excluded: ").unwrap().1)
        });
        assert_eq!(is_named, excluded, "{found:?}");
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    }
}

#[test]
fn a_node_that_the_selector_names_and_that_is_no_worker_is_named() {
    let mut world = World::new(1, 2);
    for node in ["worker-0", "worker-1", "master-0"] {
        world.label(node, "kata", Some("true"));
    }
    world.label("worker-0", "node-role.kubernetes.io/worker", None);
    world.config(&json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}}));
    world.settle();
    let found = finding(&world, "KATA2110");
    assert!(found.contains("node worker-0 is excluded: it has no role worker"), "{found}");
    assert!(!found.contains("master-0"), "{found}");
    assert!(PAGE.contains(found.rsplit_once("is excluded: ").unwrap().1), "{found}");
    assert_eq!(label(&world, "worker-0"), None);
    assert_eq!(label(&world, "worker-1").as_deref(), Some("true"));
}

/// No field of them says so, and their names come first.
#[test]
fn two_hundred_nodes_whose_jobs_never_start_delay_two_others_by_less_than_five_minutes() {
    let mut world = World::plain(1, 202);
    let mut names = world.names(Kind::Node);
    names.retain(|name| name.starts_with("worker-"));
    names.sort();
    let good = names.split_off(200);
    for name in names {
        world.hosts.insert(name, Fate::NoRoom);
    }
    world.config(&json!({}));
    let begun = world.now;
    while !good.iter().all(|node| label(&world, node).as_deref() == Some("true")) {
        world.pass();
        world.tick();
        let passed = world.now.duration_since(begun);
        assert!(passed < jiff::SignedDuration::from_mins(5), "{good:?} after {passed:#}");
    }
    println!("both serve after {:#}", world.now.duration_since(begun));
}
