//! Two installations of the operator in one cluster: the first one keeps the KataConfig.

use kata_api::names::OPERATOR_NAMESPACE_ANNOTATION;
use kata_plan::{Kind, decide};
use serde_json::{Value, json};

use super::cases::fixture::build;
use super::world::World;

const CONFIG: &str = "cluster-kataconfig";
const INSTALLED: &str = "{plain: true, workers: 2, spec: {}, installed: true}";

/// Installed by an operator in the usual namespace; from now on the one in `sandboxes` decides.
fn second(fixture: &str) -> World {
    let mut world = build(fixture);
    "sandboxes".clone_into(&mut world.options.namespace);
    world.writes.clear();
    world
}

/// The namespace of the first installation is deleted, with its Jobs.
fn delete_home(world: &mut World) {
    world.namespaces_gone.insert("openshift-sandboxed-containers-operator".to_owned());
    for kind in [Kind::Job, Kind::Pod] {
        for name in world.names(kind) {
            world.delete(kind, &name);
        }
    }
}

fn claim(world: &World) -> Value {
    world.get(Kind::KataConfig, CONFIG).unwrap()["metadata"]["annotations"]
        [OPERATOR_NAMESPACE_ANNOTATION]
        .clone()
}

#[test]
fn the_first_write_of_all_says_who_the_kataconfig_belongs_to() {
    let mut world = build("{plain: true, workers: 1, spec: {}}");
    let steps = decide(&world.observe()).plan.steps;
    let request = format!("{:?}", steps[0].action.request());
    assert!(request.contains(OPERATOR_NAMESPACE_ANNOTATION), "{request}");
    assert!(request.contains("resourceVersion"), "{request}");
    world.pass();
    assert_eq!(claim(&world), "openshift-sandboxed-containers-operator");
}

#[test]
fn a_second_installation_changes_nothing_and_says_who_is_first() {
    for fixture in [
        INSTALLED,
        "{workers: 2, spec: {}, installed: true}",
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}]}",
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{create: {kind: KataConfig, metadata: {name: later, creationTimestamp: '2026-01-02T00:00:00Z'}, spec: {}}}]}",
    ] {
        let world = second(fixture);
        let decision = decide(&world.observe());
        assert!(decision.plan.steps.is_empty(), "{fixture}: {:?}", decision.plan);
        let report = decision.report;
        assert!(report.status.is_none() && report.other_configs.is_empty(), "{fixture}");
        let [finding] = report.findings.as_slice() else { panic!("{fixture}: {report:?}") };
        let first = "in namespace openshift-sandboxed-containers-operator;";
        assert!(finding.message.contains(first), "{finding}");
        assert!(
            finding.fix.contains("kubectl delete deployment kata-operator -n sandboxes"),
            "{finding:?}"
        );
        assert_eq!(report.events.len(), 1);
        assert!(decision.requeue_after.is_some());
    }
}

#[test]
fn the_second_installation_goes_on_when_the_namespace_of_the_first_is_gone() {
    let mut world = second(INSTALLED);
    delete_home(&mut world);
    world.settle();
    assert_eq!(claim(&world), "sandboxes");
    let ready = |world: &World| {
        let status = &world.get(Kind::KataConfig, CONFIG).unwrap()["status"];
        status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    assert!(ready(&world));
}

#[test]
fn a_removal_goes_on_in_another_namespace() {
    let mut world = second(
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}]}",
    );
    delete_home(&mut world);
    for _ in 0..50 {
        world.pass();
        world.tick();
    }
    let left = world.get(Kind::KataConfig, CONFIG);
    assert!(left.is_none(), "{left:#?}");
}

/// As after an upgrade from a version that claimed nothing.
#[test]
fn a_kataconfig_of_nobody_is_claimed_before_anything_else() {
    let edit = json!({"metadata": {"annotations": null}});
    let mut world = build(INSTALLED);
    world.edit(Kind::KataConfig, CONFIG, &edit);
    let steps = decide(&world.observe()).plan.steps;
    assert!(steps[0].to_string().starts_with("add finalizer to KataConfig"), "{}", steps[0]);
    world.settle();
    assert_eq!(claim(&world), "openshift-sandboxed-containers-operator");
}
