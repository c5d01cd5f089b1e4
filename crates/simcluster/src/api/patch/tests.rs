//! What patches make of objects, case by case.

#![expect(clippy::needless_pass_by_value, reason = "cases are written in place")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Resource;
use crate::api::registry::{CustomDef, Registry};
use crate::api::schema::Structural;

#[track_caller]
fn check_json(object: Value, patch: Value, expected: Option<Value>) {
    let patched = json(&object, &patch);
    match expected {
        Some(expected) => assert_eq!(patched.unwrap(), expected),
        None => {
            let error = patched.unwrap_err();
            assert_eq!((error.code, error.reason), (422, "Invalid"));
            assert_eq!(
                error.message,
                "the server rejected our request due to an error in our request"
            );
        }
    }
}

#[test]
fn json_patch_operations() {
    let object = json!({"a": {"b": [1, 2, 3]}, "m/n": 1});
    check_json(
        object.clone(),
        json!([
            {"op": "add", "path": "/a/b/1", "value": 9},
            {"op": "add", "path": "/a/b/-", "value": 4},
            {"op": "remove", "path": "/a/b/0"},
            {"op": "replace", "path": "/m~1n", "value": 2},
            {"op": "copy", "from": "/m~1n", "path": "/c"},
            {"op": "move", "from": "/c", "path": "/d"},
            {"op": "test", "path": "/d", "value": 2},
            {"op": "replace", "path": "/new", "value": 3},
        ]),
        Some(json!({"a": {"b": [9, 2, 3, 4]}, "m/n": 2, "d": 2, "new": 3})),
    );
    check_json(
        object,
        json!([{"op": "remove", "path": "/a/b/-1"}]),
        Some(json!({"a": {"b": [1, 2]}, "m/n": 1})),
    );
}

#[test]
fn json_patch_failures() {
    let object = || json!({"a": [1], "s": "x"});
    for operation in [
        json!({"op": "test", "path": "/s", "value": "y"}),
        json!({"op": "test", "path": "/t", "value": "y"}),
        json!({"op": "remove", "path": "/t"}),
        json!({"op": "remove", "path": "/a/1"}),
        json!({"op": "replace", "path": "/t/u", "value": 1}),
        json!({"op": "replace", "path": "/a/1", "value": 1}),
        json!({"op": "add", "path": "/t/u", "value": 1}),
        json!({"op": "add", "path": "/a/3", "value": 1}),
        json!({"op": "add", "path": "/s/u", "value": 1}),
        json!({"op": "add", "path": "t", "value": 1}),
        json!({"op": "move", "from": "/t", "path": "/u"}),
        json!({"op": "frobnicate", "path": "/a"}),
        json!({"op": "add", "path": "/t"}),
        json!("add"),
    ] {
        check_json(object(), json!([operation]), None);
    }
}

#[test]
fn json_patch_test_for_null_passes_where_nothing_is() {
    let object = json!({"metadata": {}});
    for path in ["/metadata/finalizers", "/no/such/parent"] {
        let patch = json!([{"op": "test", "path": path, "value": null}]);
        check_json(object.clone(), patch, Some(object.clone()));
    }
}

#[test]
fn json_patch_must_be_a_list_of_bearable_length() {
    assert_eq!(json(&json!({}), &json!({"op": "add"})).unwrap_err().code, 400);
    let many = vec![json!({"op": "test", "path": "/x", "value": null}); 10_001];
    let error = json(&json!({}), &Value::Array(many)).unwrap_err();
    assert_eq!(error.code, 413);
    assert_eq!(error.message, "The allowed maximum operations in a JSON patch is 10000, got 10001");
}

fn strategic_patch(
    group: &'static str,
    plural: &'static str,
    object: &Value,
    patch: &Value,
) -> Result<Value, ApiError> {
    let registry = Registry::default();
    let def = registry.get(&Resource::new(group, plural)).unwrap();
    strategic(def, object, patch)
}

#[track_caller]
fn check_pod(spec: Value, patch: Value, expected: Value) {
    let object = json!({"spec": spec});
    let patched = strategic_patch("", "pods", &object, &json!({"spec": patch})).unwrap();
    assert_eq!(patched, json!({"spec": expected}));
}

#[test]
fn strategic_merges_lists_by_key() {
    check_pod(
        json!({"containers": [{"name": "a", "image": "x:1", "env": [{"name": "E", "value": "1"}]}, {"name": "b"}]}),
        json!({"containers": [{"name": "a", "image": "x:2", "env": [{"name": "F", "value": "2"}]}, {"name": "c"}]}),
        json!({"containers": [
            {"name": "a", "image": "x:2", "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "1"}]},
            {"name": "c"}, {"name": "b"},
        ]}),
    );
}

#[test]
fn strategic_keys_differ_from_those_of_ownership() {
    check_pod(
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 53, "protocol": "TCP"}]}]}),
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 53, "protocol": "UDP"}]}]}),
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 53, "protocol": "UDP"}]}]}),
    );
    check_pod(
        json!({"topologySpreadConstraints": [{"topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}]}),
        json!({"topologySpreadConstraints": [{"topologyKey": "k", "whenUnsatisfiable": "ScheduleAnyway"}]}),
        json!({"topologySpreadConstraints": [{"topologyKey": "k", "whenUnsatisfiable": "ScheduleAnyway"}]}),
    );
    let service = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "h"}]}});
    let patch = json!({"spec": {"ports": [{"port": 80, "nodePort": 30000}]}});
    let patched = strategic_patch("", "services", &service, &patch).unwrap();
    assert_eq!(
        patched["spec"]["ports"],
        json!([{"port": 80, "protocol": "TCP", "name": "h", "nodePort": 30000}])
    );
}

#[test]
fn strategic_replaces_atomic_lists_and_merges_atomic_maps() {
    check_pod(
        json!({"tolerations": [{"key": "a"}], "nodeSelector": {"a": "1", "b": "2"}}),
        json!({"tolerations": [{"key": "b"}], "nodeSelector": {"b": null, "c": "3"}}),
        json!({"tolerations": [{"key": "b"}], "nodeSelector": {"a": "1", "c": "3"}}),
    );
    let node = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let patched = strategic_patch("", "nodes", &node, &json!({"spec": {"taints": []}})).unwrap();
    assert_eq!(patched, json!({"spec": {"taints": []}}));
}

#[test]
fn strategic_replaces_the_selector_of_a_disruption_budget() {
    let pdb = json!({"spec": {"selector": {"matchLabels": {"a": "1"}}}});
    let patch = json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}});
    let patched = strategic_patch("policy", "poddisruptionbudgets", &pdb, &patch).unwrap();
    assert_eq!(patched, patch);
}

#[test]
fn strategic_directives() {
    check_pod(
        json!({"containers": [{"name": "a"}, {"name": "b"}]}),
        json!({"containers": [{"name": "a", "$patch": "delete"}]}),
        json!({"containers": [{"name": "b"}]}),
    );
    check_pod(
        json!({"containers": [{"name": "a"}, {"name": "b"}]}),
        json!({"containers": [{"name": "c"}, {"$patch": "replace"}]}),
        json!({"containers": [{"name": "c"}]}),
    );
    check_pod(
        json!({"securityContext": {"runAsUser": 1, "runAsGroup": 2}}),
        json!({"securityContext": {"runAsUser": 3, "$patch": "replace"}}),
        json!({"securityContext": {"runAsUser": 3}}),
    );
    check_pod(
        json!({"securityContext": {"runAsUser": 1}}),
        json!({"securityContext": {"$patch": "delete"}}),
        json!({"securityContext": {}}),
    );
    check_pod(
        json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}),
        json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
    );
    check_pod(
        json!({"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]}),
        json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "image": "i"}]}),
        json!({"containers": [{"name": "x"}, {"name": "b", "image": "i"}, {"name": "a"}]}),
    );
    let object = json!({"metadata": {"finalizers": ["a/a", "b/b", "c/c"]}});
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b/b"], "finalizers": ["d/d"]}});
    let patched = strategic_patch("", "configmaps", &object, &patch).unwrap();
    assert_eq!(patched, json!({"metadata": {"finalizers": ["d/d", "a/a", "c/c"]}}));
    let object =
        json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let patched = strategic_patch("apps", "deployments", &object, &patch).unwrap();
    assert_eq!(patched, json!({"spec": {"strategy": {"type": "Recreate"}}}));
}

#[test]
fn strategic_leaves_no_directives_in_new_parts() {
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate", "x": null},
        "$setElementOrder/list": [], "template": {"spec": {"$setElementOrder/containers": [{"name": "a"}],
        "containers": [{"name": "a", "$retainKeys": ["name"]}, {"name": "b", "$patch": "delete"}]}}}});
    let patched = strategic_patch("apps", "deployments", &json!({}), &patch).unwrap();
    assert_eq!(
        patched,
        json!({"spec": {"strategy": {"type": "Recreate"}, "template": {"spec": {"containers": [{"name": "a"}]}}}})
    );
}

#[test]
fn strategic_leaves_dollar_keys_of_data_alone() {
    let object = json!({"data": {"$a": "1"}});
    let patched =
        strategic_patch("", "configmaps", &object, &json!({"data": {"$b": "2"}})).unwrap();
    assert_eq!(patched, json!({"data": {"$a": "1", "$b": "2"}}));
}

#[test]
fn strategic_failures() {
    let object = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v"}]}});
    for (patch, message) in [
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"spec": {"$patch": "frob", "a": 1}}),
            "unknown patch type: frob in map: map[$patch:frob a:1]",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "secret": {}, "$retainKeys": ["name"]}]}}),
            "invalid patch format of retainKeys",
        ),
        (
            json!({"spec": {"$setElementOrder/containers": "a"}}),
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList": ["a"]}}),
            "invalid patch format of primitive list",
        ),
        (json!([1]), "invalid JSON document"),
    ] {
        let error = strategic_patch("", "pods", &object, &patch).unwrap_err();
        assert_eq!(
            (error.code, error.reason, error.message.as_str()),
            (400, "BadRequest", message)
        );
    }
}

#[test]
fn strategic_is_not_for_custom_resources() {
    let registry = Registry::default();
    let mut def = (**registry.get(&Resource::new("", "pods")).unwrap()).clone();
    def.custom = Some(std::sync::Arc::new(CustomDef {
        schema: Structural::parse(&json!({"type": "object"})).unwrap(),
        columns: Vec::new(),
        selectable_fields: Vec::new(),
    }));
    let error = strategic(&def, &json!({}), &json!({})).unwrap_err();
    assert_eq!((error.code, error.reason), (415, "UnsupportedMediaType"));
    assert_eq!(
        error.message,
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    );
}

fn small_pod() -> impl Strategy<Value = Value> {
    let containers = prop::collection::btree_map("[abc]", "[xy]", 0..3);
    let finalizers = prop::collection::btree_set("[abc]/f", 0..3);
    (containers, finalizers).prop_map(|(containers, finalizers)| {
        let containers: Vec<Value> = containers
            .iter()
            .map(|(name, image)| json!({"name": name, "image": image, "ports": [{"containerPort": 1}]}))
            .collect();
        json!({"metadata": {"finalizers": finalizers}, "spec": {"containers": containers}})
    })
}

proptest! {
    #[test]
    fn strategic_merge_of_nothing_changes_nothing(pod in small_pod()) {
        prop_assert_eq!(strategic_patch("", "pods", &pod, &json!({})).unwrap(), pod);
    }

    #[test]
    fn strategic_merge_is_idempotent(pod in small_pod(), patch in small_pod()) {
        let once = strategic_patch("", "pods", &pod, &patch).unwrap();
        let twice = strategic_patch("", "pods", &once, &patch).unwrap();
        prop_assert_eq!(&twice, &once);
        for container in patch["spec"]["containers"].as_array().unwrap() {
            prop_assert!(once["spec"]["containers"].as_array().unwrap().contains(container));
        }
    }
}
