//! What a write of the whole object, or a patch of it, does to the managed fields.

use super::*;

#[test]
fn an_update_takes_what_it_changes_and_removes() {
    let mut story = maps();
    story.apply("m", config_map(json!({"a": "1", "b": "1", "c": "1"})));
    story.patch("u", "", json!({"data": {"a": "2", "b": null}}));
    story.check_owners(&[
        ("m Apply", json!({"f:data": {"f:c": {}}})),
        ("u Update", json!({"f:data": {"f:a": {}}})),
    ]);
    story.patch("v", "", json!({"data": null}));
    assert_eq!(story.object()["metadata"].get("managedFields"), None);
}

#[test]
fn a_manager_without_name_is_unknown() {
    let mut story = maps();
    story.put("", "", config_map(json!({"a": "1"})));
    assert_eq!(story.owners()[0].0, "unknown Update");
}

#[test]
fn fields_of_the_server_have_no_owner() {
    let mut story = maps();
    let mut object = config_map(json!({"a": "1"}));
    object["metadata"] = json!({
        "name": "s1", "namespace": "d", "uid": "u", "resourceVersion": "1", "generation": 1,
        "creationTimestamp": "2023-11-14T22:13:21Z", "selfLink": "/", "deletionTimestamp": "x",
        "deletionGracePeriodSeconds": 1, "annotations": {"a": "b"},
    });
    story.put("u", "", object);
    story.check_owners(&[(
        "u Update",
        json!({"f:metadata": {"f:annotations": {".": {}, "f:a": {}}}, "f:data": {".": {}, "f:a": {}}}),
    )]);
}

#[test]
fn sent_managed_fields_are_honoured() {
    let entry = |manager: &str, fields: Value| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1",
            "time": "2023-11-14T22:13:21Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let put = |sent: Value, subresource: &str| {
        let mut story = maps();
        story.put("u", "", config_map(json!({"a": "1"})));
        let mut object = story.object().clone();
        object["metadata"]["managedFields"] = sent;
        story.put("v", subresource, object);
        story
    };
    let own = ("u Update", json!({"f:data": {".": {}, "f:a": {}}}));
    // Reset.
    for sent in [json!([]), json!([{}])] {
        let mut story = put(sent, "");
        story.check_owners(&[]);
        story.patch("v", "", json!({"data": {"b": "1"}}));
        story.check_owners(&[]);
        story.apply("m", config_map(json!({"a": "1"})));
        story.check_owners(&[
            ("m Apply", json!({"f:data": {"f:a": {}}})),
            ("before-first-apply Update", json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}})),
        ]);
    }
    // Changed.
    put(json!([entry("w", json!({"f:data": {"f:a": {}}}))]), "")
        .check_owners(&[("w Update", json!({"f:data": {"f:a": {}}}))]);
    // Unsound, or none, or through a subresource.
    put(json!([entry("w", json!({"oops": {}}))]), "").check_owners(std::slice::from_ref(&own));
    put(json!([{"manager": "w"}]), "").check_owners(std::slice::from_ref(&own));
    put(Value::Null, "").check_owners(std::slice::from_ref(&own));
    put(json!([]), "status").check_owners(&[own]);
}

#[test]
fn old_updates_are_lumped_together() {
    let mut story = maps();
    story.put("u00", "", config_map(json!({"k00": "1"})));
    for index in 1..14 {
        let mut patch = json!({"data": {}});
        patch["data"][format!("k{index:02}")] = json!("1");
        story.patch(&format!("u{index:02}"), "", patch);
    }
    let owners = story.owners();
    assert_eq!(owners.len(), 10);
    assert_eq!(owners[0].0, "ancient-changes Update");
    assert_eq!(
        owners[0].1,
        json!({"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}, "f:k03": {}, "f:k04": {}}})
    );
}
