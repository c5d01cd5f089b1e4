//! Whole lives of a KataConfig on the model: what must hold at the end, and on the way.

use kata_api::{Code, names};
use kata_plan::{
    Action, Freshness, Kind, Need, Request, Step, StepFailure, decide, needs, report_after_apply,
};
use serde_json::json;

use crate::world::{KATA, KATA_CLASS, MC, VERIFIED, World};

mod adoption;
mod compact;
mod leaving;

fn selected() -> serde_json::Value {
    json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}})
}

pub(crate) fn condition(world: &World, type_: &str) -> (String, String) {
    let config = world.get(Kind::KataConfig, "cluster-kataconfig").unwrap();
    let conditions = config["status"]["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|condition| condition["type"] == type_);
    condition.map_or_else(Default::default, |condition| {
        let text = |key: &str| condition[key].as_str().unwrap().to_owned();
        (text("status"), text("reason"))
    })
}

pub(crate) fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

pub(crate) fn assert_nothing_left(world: &World) {
    for kind in [Kind::KataConfig, Kind::KataNode, Kind::RuntimeClass, Kind::ContainerRuntimeConfig]
    {
        assert_eq!(world.names(kind), Vec::<String>::new());
    }
    assert!(world.get(Kind::MachineConfigPool, "kata-oc").is_none());
    assert!(world.get(Kind::MachineConfig, MC).is_none());
    for name in world.names(Kind::Node) {
        let node = world.node(&name);
        assert!(!node.labels.contains_key(KATA) && !node.labels.contains_key(VERIFIED), "{name}");
        assert!(!world.is_on_pool(&name), "{name}");
    }
}

/// A KataNode says what was done to a node, so the KataConfig stays until the last one is gone.
#[test]
fn a_kata_node_that_somebody_holds_keeps_the_kata_config() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    world.settle();
    let hold = |by: serde_json::Value| json!({"metadata": {"finalizers": by}});
    world.edit(Kind::KataNode, "worker-0", &hold(json!(["example.org/hold"])));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..200 {
        world.pass();
        world.tick();
        assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_some());
    }
    world.edit(Kind::KataNode, "worker-0", &hold(json!([])));
    world.delete(Kind::KataNode, "worker-0");
    world.settle();
    assert_nothing_left(&world);
}

/// It may be bound to any node at the next moment.
#[test]
fn a_sandboxed_pod_that_no_node_has_yet_blocks_the_deletion() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    world.settle();
    world.create(json!({
        "kind": "Pod", "metadata": {"namespace": "default", "name": "pending"},
        "spec": {"runtimeClassName": "kata", "containers": []}, "status": {"phase": "Pending"},
    }));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..50 {
        world.pass();
        world.tick();
    }
    assert_eq!(condition(&world, "DeletionBlocked"), is("True", "PodsStillRunning"));
    assert!(world.node("worker-0").labels.contains_key(KATA));
    world.delete(Kind::Pod, "default/pending");
    world.settle();
    assert_nothing_left(&world);
}

/// It would change twice: to what the pool was rendered as before, and to what it is rendered as then.
#[test]
fn no_node_joins_a_pool_that_cannot_be_rendered() {
    let mut world = World::new(3, 2);
    world.label("worker-0", "kata", Some("true"));
    world.config(&selected());
    world.settle();
    let degraded = |status: &str| {
        json!({"status": {"conditions": [
            {"type": "RenderDegraded", "status": status, "message": "MachineConfig 99-bad is bad"}]}})
    };
    world.edit(Kind::MachineConfigPool, "kata-oc", &degraded("True"));
    world.label("worker-1", "kata", Some("true"));
    for _ in 0..5 {
        world.pass();
        assert!(!world.node("worker-1").labels.contains_key(KATA));
    }
    world.edit(Kind::MachineConfigPool, "kata-oc", &degraded("False"));
    world.pass();
    assert!(world.node("worker-1").labels.contains_key(KATA));
}

#[test]
fn the_kernel_arguments_of_image_mode_are_followed() {
    let namespace = "openshift-sandboxed-containers-operator";
    let config_map = |name: &str, data: serde_json::Value| json!({"kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data});
    let mut world = World::new(3, 1);
    world.create(config_map("osc-feature-gates", json!({"layeredImageDeployment": "true"})));
    let image = json!({"osImageURL": "kata1", "kernelArguments": "a=1"});
    world.create(config_map("layered-image-deploy-cm", image));
    world.config(&json!({}));
    world.settle();
    let arguments = |world: &World| {
        let name = "50-enable-sandboxed-containers-image";
        world.get(Kind::MachineConfig, name).unwrap()["spec"]["kernelArguments"].clone()
    };
    assert_eq!(arguments(&world), json!(["a=1"]));
    let change = json!({"data": {"kernelArguments": "a=2"}});
    world.edit(Kind::ConfigMap, &format!("{namespace}/layered-image-deploy-cm"), &change);
    world.settle();
    assert_eq!(arguments(&world), json!(["a=2"]));
}

#[test]
fn installs_and_removes_one_node_after_the_other() {
    let mut world = World::new(3, 3);
    world.config(&json!({}));
    let last = world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(condition(&world, "InProgress"), is("False", "AsExpected"));
    assert_eq!(condition(&world, "Reconciling"), <(String, String)>::default());
    assert!(last.report.waiting_on.is_empty() && last.report.findings.is_empty());
    assert!(last.report.events.is_empty() && !last.report.status.unwrap().needs_write);
    let class = world.get(Kind::RuntimeClass, "kata").unwrap();
    assert_eq!(
        class["scheduling"]["nodeSelector"],
        json!({KATA: "", VERIFIED: "true", KATA_CLASS: "true"})
    );
    assert_eq!(class["overhead"]["podFixed"], json!({"cpu": "250m", "memory": "350Mi"}));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn the_runtime_class_never_exists_before_a_node_is_verified() {
    let mut world = World::new(3, 3);
    world.config(&json!({}));
    for _ in 0..80 {
        world.pass();
        if world.get(Kind::RuntimeClass, "kata").is_some() {
            assert!((0..3).any(|index| {
                let node = world.node(&format!("worker-{index}"));
                node.labels.contains_key(VERIFIED)
                    && node.runtime_handlers.is_some_and(|handlers| handlers.contains("kata"))
            }));
            return;
        }
        world.tick();
    }
    panic!("no RuntimeClass");
}

#[test]
fn the_machine_config_is_written_before_the_pool_and_the_pool_before_any_label() {
    let mut world = World::new(3, 2);
    world.config(&json!({"logLevel": "debug"}));
    world.pass();
    let kinds: Vec<Kind> = world
        .writes
        .iter()
        .map(|request| match request {
            Request::Apply { object, .. }
            | Request::Merge { object, .. }
            | Request::Delete { object, .. } => object.kind,
        })
        .filter(|kind| *kind != Kind::KataNode)
        .collect();
    assert_eq!(
        kinds,
        [
            Kind::KataConfig,
            Kind::ContainerRuntimeConfig,
            Kind::MachineConfig,
            Kind::MachineConfigPool,
            Kind::Node,
            Kind::Node,
        ]
    );
}

#[test]
fn a_running_pod_blocks_deletion_and_scale_in_until_it_is_gone() {
    let mut world = World::new(3, 2);
    world.label("worker-0", "kata", Some("true"));
    world.label("worker-1", "kata", Some("true"));
    world.config(&selected());
    world.settle();
    world.pod("web", "kata", "worker-0");
    world.label("worker-0", "kata", None);
    world.label("worker-1", "kata", None);
    world.settle();
    assert!(world.node("worker-0").labels.contains_key(KATA));
    assert!(!world.node("worker-1").labels.contains_key(KATA));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_eq!(condition(&world, "InProgress"), is("False", "BlockedByExistingKataPods"));
    assert_eq!(condition(&world, "DeletionBlocked"), is("True", "PodsStillRunning"));
    // A kubelet that restarts would fail the pod if the label were gone; the class takes no new pods.
    assert!(world.node("worker-0").labels.contains_key(VERIFIED));
    let class = world.get(Kind::RuntimeClass, "kata").unwrap();
    assert_eq!(
        class["scheduling"]["nodeSelector"],
        json!({"kata-operator.node-restriction.kubernetes.io/closed": "true"})
    );
    world.delete(Kind::Pod, "default/web");
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_pod_that_slips_in_after_the_label_is_off_stops_the_removal() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.pass();
    assert!(world.node("worker-0").labels.contains_key(VERIFIED));
    world.pass();
    assert!(!world.node("worker-0").labels.contains_key(VERIFIED));
    world.pod("late", "kata", "worker-0");
    world.settle();
    assert!(world.node("worker-0").labels.contains_key(KATA));
    assert!(world.get(Kind::RuntimeClass, "kata").is_some());
}

#[test]
fn deletion_in_the_middle_of_an_installation_works() {
    for ticks in 0..16 {
        let mut world = World::new(3, 2);
        world.config(&json!({"logLevel": "debug"}));
        for _ in 0..ticks {
            world.pass();
            world.tick();
        }
        world.delete(Kind::KataConfig, "cluster-kataconfig");
        world.settle();
        assert_nothing_left(&world);
    }
}

#[test]
fn a_pool_that_somebody_deleted_comes_back_even_while_deleting() {
    for deleting in [false, true] {
        let mut world = World::new(3, 2);
        world.config(&json!({}));
        world.settle();
        if deleting {
            world.delete(Kind::KataConfig, "cluster-kataconfig");
            for _ in 0..3 {
                world.pass();
            }
        }
        world.delete(Kind::MachineConfigPool, "kata-oc");
        world.delete(Kind::MachineConfig, MC);
        world.settle();
        if deleting {
            assert_nothing_left(&world);
        } else {
            assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
        }
    }
}

#[test]
fn a_compact_cluster_gets_kata_through_the_pool_master_and_is_cleared_again() {
    let mut world = World::compact(3);
    world.config(&selected());
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert!(world.get(Kind::MachineConfigPool, "kata-oc").is_none());
    let class = world.get(Kind::RuntimeClass, "kata").unwrap();
    let master = "node-role.kubernetes.io/master";
    assert_eq!(
        class["scheduling"]["nodeSelector"],
        json!({master: "", VERIFIED: "true", KATA_CLASS: "true"})
    );
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_nothing_left(&world);
    for index in 0..3 {
        let config = &world.node(&format!("master-{index}")).annotations["machineconfiguration.openshift.io/currentConfig"];
        assert!(config.starts_with("rendered-master-0"), "{config}");
    }
}

#[test]
fn nothing_disruptive_is_done_while_no_node_is_selected() {
    let mut world = World::new(3, 3);
    world.config(&selected());
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("False", "NoNodesSelected"));
    assert_eq!(condition(&world, "Stalled"), is("True", "NoNodesSelected"));
    assert!(world.get(Kind::MachineConfig, MC).is_none());
    assert!(world.get(Kind::MachineConfigPool, "kata-oc").is_none());
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn drift_is_put_back_and_an_idle_pass_plans_nothing() {
    let mut world = World::new(3, 2);
    world.config(&json!({}));
    world.settle();
    let before = world.objects.clone();
    world.delete(Kind::RuntimeClass, "kata");
    world.label("worker-0", VERIFIED, None);
    world.label("worker-1", VERIFIED, Some("false"));
    world.edit(Kind::MachineConfig, MC, &json!({"spec": {"extensions": ["usbguard"]}}));
    world.edit(
        Kind::MachineConfigPool,
        "kata-oc",
        &json!({"spec": {"nodeSelector": {"matchLabels": {KATA: "x"}}}}),
    );
    world.pass();
    for ((kind, name), object) in &before {
        let now = world.get(*kind, name).unwrap();
        assert_eq!(now["spec"], object["spec"], "{kind} {name}");
        assert_eq!(now["metadata"]["labels"], object["metadata"]["labels"], "{kind} {name}");
    }
    world.settle();
    assert!(world.pass().plan.steps.is_empty());
}

#[test]
fn a_node_that_vanishes_is_forgotten() {
    let mut world = World::new(3, 2);
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::Node, "worker-1");
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(world.names(Kind::KataNode), ["worker-0"]);
}

#[test]
fn a_second_kataconfig_waits_for_the_first_and_can_be_deleted_at_once() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    world.create(json!({
        "kind": "KataConfig",
        "metadata": {"name": "another", "creationTimestamp": "2026-01-02T00:00:00Z", "generation": 1,
            "finalizers": ["kataconfiguration.openshift.io/finalizer"]},
        "spec": {},
    }));
    world.settle();
    let other = world.get(Kind::KataConfig, "another").unwrap();
    let ready = &other["status"]["conditions"][1];
    assert_eq!(
        (ready["type"].as_str(), ready["reason"].as_str()),
        (Some("Ready"), Some("NotActive"))
    );
    world.delete(Kind::KataConfig, "another");
    world.pass();
    assert!(world.get(Kind::KataConfig, "another").is_none());
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn every_transition_of_a_node_is_one_event() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    let mut reported = Vec::new();
    for _ in 0..60 {
        let decision = world.pass();
        reported.extend(
            decision
                .report
                .events
                .into_iter()
                .map(|event| (event.name, format!("{} {}", event.regarding, event.reason))),
        );
        world.tick();
    }
    let texts: Vec<&str> = reported.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "KataConfig cluster-kataconfig Installing",
            "KataConfig cluster-kataconfig KataInstalling",
            "KataConfig cluster-kataconfig RuntimeClassCreated",
            "KataConfig cluster-kataconfig AllNodesReady",
            "KataConfig cluster-kataconfig KataRuntimeInstalled",
        ]
    );
    let mut names: Vec<&String> = reported.iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), texts.len());
}

#[test]
fn nothing_disruptive_is_planned_on_reads_from_a_cache() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    let mut snapshot = world.observe();
    assert_eq!(snapshot.freshness, Freshness::Objects);
    assert!(decide(&snapshot).plan.steps.iter().any(|step| step.action.is_disruptive()));
    snapshot.freshness = Freshness::Cached;
    assert_eq!(needs(&snapshot), [Need::Objects]);
    let decision = decide(&snapshot);
    assert!(decision.plan.steps.iter().all(|step| !step.action.is_disruptive()));
    assert!(!decision.report.waiting_on.is_empty());
}

/// A cache that does not show the class yet would have the label removed while a pod can still start.
#[test]
fn the_runtime_label_leaves_a_node_on_fresh_reads_of_the_classes_only() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    let loses_label = |step: &Step| {
        let Action::LabelNode { remove, .. } = &step.action else { return false };
        remove.contains(names::RUNTIME_LABEL)
    };
    let mut snapshot = world.observe();
    while !decide(&snapshot).plan.steps.iter().any(loses_label) {
        world.pass();
        world.tick();
        snapshot = world.observe();
    }
    snapshot.freshness = Freshness::Cached;
    assert_eq!(needs(&snapshot), [Need::Objects]);
    assert!(!decide(&snapshot).plan.steps.iter().any(loses_label));
}

#[test]
fn an_idle_cluster_needs_neither_quorum_reads_nor_pods() {
    let mut world = World::new(3, 2);
    world.config(&json!({}));
    world.settle();
    let snapshot = world.observe();
    assert_eq!((snapshot.freshness, snapshot.pods.len()), (Freshness::Cached, 0));
}

#[test]
fn a_generation_is_not_observed_before_its_writes_succeeded() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    let snapshot = world.observe();
    let decision = decide(&snapshot);
    assert_eq!(decision.report.status.as_ref().unwrap().status.observed_generation, Some(1));
    let failure = StepFailure {
        code: Code::WriteFailed,
        object: decision.plan.steps[1].action.object().clone(),
        error: "machineconfigs is forbidden".to_owned(),
    };
    let report = report_after_apply(&decision, &[failure]);
    let status = report.status.unwrap().status;
    assert_eq!(status.observed_generation, None);
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "WriteFailed"));
    assert!(ready.message.contains("machineconfigs is forbidden"), "{}", ready.message);
}

#[test]
fn lists_are_capped_and_counts_are_exact() {
    let mut world = World::new(1, 150);
    world.config(&json!({}));
    let decision = world.pass();
    let nodes = decision.report.status.unwrap().status.kata_nodes;
    assert_eq!(
        (nodes.node_count, nodes.waiting_to_install.len(), nodes.truncated),
        (150, 100, true)
    );
}

#[test]
fn pods_of_other_peoples_classes_with_our_handler_count() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    world.settle();
    world
        .create(json!({"kind": "RuntimeClass", "metadata": {"name": "theirs"}, "handler": "kata"}));
    world.pod("web", "theirs", "worker-0");
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert_eq!(condition(&world, "DeletionBlocked"), is("True", "PodsStillRunning"));
    world.delete(Kind::Pod, "default/web");
    world.settle();
    assert_eq!(world.names(Kind::RuntimeClass), ["theirs"]);
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
}

#[test]
fn a_field_of_the_pool_that_is_ours_no_more_is_given_back() {
    let mut world = World::new(3, 1);
    world.config(&json!({"rollout": {"maxUnavailable": 2, "paused": false}}));
    world.pass();
    let pool = &world.pool("kata-oc")["spec"];
    assert_eq!((&pool["maxUnavailable"], &pool["paused"]), (&json!(2), &json!(false)));
    let owner = json!({"metadata": {"managedFields": [{"manager": "kata-operator", "operation": "Apply",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:paused": {}, "f:maxUnavailable": {}}}}]}});
    world.edit(Kind::MachineConfigPool, "kata-oc", &owner);
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({"spec": {"rollout": null}}));
    let decision = decide(&world.observe());
    let pool = decision.plan.steps.iter().find_map(|step| match step.action.request() {
        Request::Apply { object, body, .. } if object.kind == Kind::MachineConfigPool => Some(body),
        _ => None,
    });
    let pool = pool.unwrap();
    assert!(pool["spec"]["paused"].is_null() && pool["spec"]["maxUnavailable"].is_null());
}

#[test]
fn each_of_a_thousand_nodes_is_reported() {
    let mut world = World::new(3, 1_000);
    world.config(&json!({}));
    world.pass();
    world.tick();
    assert_eq!(decide(&world.observe()).report.nodes.len(), 1_000);
}

#[test]
fn the_pool_stays_until_the_container_runtime_config_is_gone() {
    let mut world = World::new(3, 1);
    world.config(&json!({"logLevel": "debug"}));
    world.settle();
    let finalizers = json!({"metadata": {"finalizers": ["99-kata-oc-generated-containerruntime"]}});
    world.edit(Kind::ContainerRuntimeConfig, "kata-crio-config", &finalizers);
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert!(world.get(Kind::ContainerRuntimeConfig, "kata-crio-config").is_some());
    assert!(world.get(Kind::MachineConfigPool, "kata-oc").is_some());
    let none = json!({"metadata": {"finalizers": null}});
    world.edit(Kind::ContainerRuntimeConfig, "kata-crio-config", &none);
    world.delete(Kind::ContainerRuntimeConfig, "kata-crio-config");
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn machine_config_and_pool_stay_until_the_pools_own_status_counts_no_node() {
    let mut world = World::new(3, 1);
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    while world.is_on_pool("worker-0") {
        world.pass();
        world.tick();
    }
    // The node controller is slow: it may still send the node that left to what it last rendered.
    world.edit(Kind::MachineConfigPool, "kata-oc", &json!({"status": {"machineCount": 1}}));
    let decision = decide(&world.observe());
    let kept = [Kind::MachineConfig, Kind::MachineConfigPool];
    assert!(!decision.plan.steps.iter().any(|step| kept.contains(&step.action.object().kind)));
    assert!(
        decision
            .report
            .waiting_on
            .iter()
            .any(|waiting| waiting.message.contains("to count no node")),
        "{:#?}",
        decision.report.waiting_on
    );
    world.edit(Kind::MachineConfigPool, "kata-oc", &json!({"status": {"machineCount": 0}}));
    world.settle();
    assert_nothing_left(&world);
}
