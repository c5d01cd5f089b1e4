//! What happens when two managers want the same field.

use super::*;

#[test]
fn conflicts_name_managers_and_fields() {
    let mut story = maps();
    story.apply("m1", config_map(json!({"a": "1"})));
    let causes = story.conflict(
        "m2",
        config_map(json!({"a": "2"})),
        "Apply failed with 1 conflict: conflict with \"m1\": .data.a",
    );
    assert_eq!(
        causes,
        [
            json!({"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.a"})
        ]
    );
    story.apply("m2", config_map(json!({"a": "1"})));
    story.conflict(
        "m3",
        config_map(json!({"a": "3"})),
        "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .data.a\nconflicts with \"m2\":\n- .data.a",
    );
}

#[test]
fn conflicts_tell_updates_and_subresources() {
    let mut story = maps();
    story.put("u1", "", config_map(json!({"a": "1", "b": "1"})));
    story.conflict(
        "m",
        config_map(json!({"a": "2"})),
        "Apply failed with 1 conflict: conflict with \"u1\" using v1: .data.a",
    );
    story.conflict(
        "m",
        config_map(json!({"a": "2", "b": "2"})),
        "Apply failed with 2 conflicts: conflicts with \"u1\" using v1:\n- .data.a\n- .data.b",
    );

    let mut story = Story::new(custom(json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    })));
    let widget = |replicas: i64| {
        json!({"apiVersion": "sim.example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"replicas": replicas}})
    };
    story.apply("m", widget(1)).put("kubectl", "scale", widget(2));
    let causes = story.conflict(
        "m",
        widget(3),
        "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using \
         sim.example.com/v1: .spec.replicas",
    );
    assert_eq!(
        causes[0]["message"],
        "conflict with \"kubectl\" with subresource \"scale\" using sim.example.com/v1"
    );
}

#[test]
fn conflicts_print_items_of_lists() {
    let pod = |image: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": ["a/b"]},
            "spec": {"containers": [{"name": "c", "image": image, "ports": [{"containerPort": 80, "name": image}]}]}})
    };
    let mut story = Story::new(builtin("", "pods"));
    story.apply("m1", pod("x"));
    story.check_owners(&[(
        "m1 Apply",
        json!({
            "f:metadata": {"f:finalizers": {"v:\"a/b\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                ".": {}, "f:name": {}, "f:image": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                    ".": {}, "f:containerPort": {}, "f:name": {},
                }},
            }}},
        }),
    )]);
    story.conflict(
        "m2",
        pod("y"),
        "Apply failed with 2 conflicts: conflicts with \"m1\":\n\
         - .spec.containers[name=\"c\"].image\n\
         - .spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"].name",
    );
}

#[test]
fn equal_values_are_shared() {
    let mut story = maps();
    story.apply("m1", config_map(json!({"a": "1"}))).apply("m2", config_map(json!({"a": "1"})));
    assert_eq!(story.owners().len(), 2);
    story.apply("m1", config_map(json!({})));
    assert_eq!(story.object()["data"], json!({"a": "1"}));
    story.apply("m2", config_map(json!({})));
    assert_eq!(story.object().get("data"), Some(&json!({})));
}

#[test]
fn force_takes_fields_and_empty_managers_vanish() {
    let mut story = maps();
    story.apply("m1", config_map(json!({"a": "1"})));
    story.put("u", "", {
        let mut object = story.object().clone();
        object["data"]["b"] = json!("1");
        object
    });
    story.force("m2", config_map(json!({"a": "2", "b": "2"})));
    story.check_owners(&[("m2 Apply", json!({"f:data": {"f:a": {}, "f:b": {}}}))]);
    assert_eq!(story.object()["data"], json!({"a": "2", "b": "2"}));
}
