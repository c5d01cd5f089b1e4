//! Changing objects.

use serde_json::{Value, json};
use simcluster::resource::{CONFIGMAPS, DEPLOYMENTS, LEASES, NODES, RUNTIMECLASSES};

use super::{
    PatchType, WriteVerb, config_map, create, merge, now, object, patch, put, request, server, sub,
    told,
};

#[test]
fn refused_updates_say_why() {
    let mut api = server();
    create(&mut api, &CONFIGMAPS, "default", config_map("c9")).unwrap();
    let stale = {
        let old = api.get(&CONFIGMAPS, "default", "c9").unwrap();
        merge(&mut api, &CONFIGMAPS, ("default", "c9"), json!({"data": {"a": "2"}})).unwrap();
        old
    };
    let mut other_uid = config_map("c9");
    other_uid["metadata"]["uid"] = json!("no");
    let mut deleted = config_map("c9");
    deleted["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    let table = [
        (
            config_map("c8"),
            400,
            "the name of the object (c8) does not match the name on the URL (c9)",
        ),
        (
            (*stale).clone(),
            409,
            "Operation cannot be fulfilled on configmaps \"c9\": the object has been modified; please apply your \
             changes to the latest version and try again",
        ),
        (
            other_uid,
            409,
            "Operation cannot be fulfilled on configmaps \"c9\": StorageError: invalid object, Code: 4, Key: \
             /registry/configmaps/default/c9, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
             precondition: no, UID in object meta: ",
        ),
        (
            deleted,
            422,
            "ConfigMap \"c9\" is invalid: metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": field \
             is immutable",
        ),
    ];
    for (body, code, message) in table {
        let (got_code, _, got) = told(put(&mut api, &CONFIGMAPS, ("default", "c9"), body));
        assert_eq!(got_code, code, "{got}");
        assert!(got.starts_with(message), "{got}\nshould start with\n{message}");
    }
    // Without a resourceVersion the update is unconditional for most built-in kinds.
    let changed = object(put(&mut api, &CONFIGMAPS, ("default", "c9"), config_map("c9")));
    assert_eq!(changed["data"], json!({"a": "1"}));
    assert_eq!(changed["metadata"]["uid"], stale["metadata"]["uid"]);
    assert_eq!(changed["metadata"]["creationTimestamp"], stale["metadata"]["creationTimestamp"]);
}

#[test]
fn some_kinds_must_be_updated_from_a_known_version() {
    let mut api = server();
    let class = json!({"metadata": {"name": "kata"}, "handler": "kata"});
    create(&mut api, &RUNTIMECLASSES, "", class.clone()).unwrap();
    assert_eq!(
        told(put(&mut api, &RUNTIMECLASSES, ("", "kata"), class)).2,
        "runtimeclasses.node.k8s.io \"kata\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
         specified for an update"
    );
    let moved = merge(&mut api, &RUNTIMECLASSES, ("", "kata"), json!({"handler": "runc"}));
    assert_eq!(
        told(moved).2,
        "RuntimeClass.node.k8s.io \"kata\" is invalid: handler: Invalid value: \"runc\": field is immutable"
    );
}

#[test]
fn a_write_that_changes_nothing_keeps_the_version() {
    let mut api = server();
    let made = object(create(&mut api, &CONFIGMAPS, "default", config_map("c")));
    let before = api.store.revision();
    for body in [json!({}), json!({"data": {"a": "1"}}), json!({"metadata": {"name": "c"}})] {
        assert_eq!(object(merge(&mut api, &CONFIGMAPS, ("default", "c"), body)), made);
    }
    assert_eq!(object(put(&mut api, &CONFIGMAPS, ("default", "c"), config_map("c"))), made);
    assert_eq!(object(put(&mut api, &CONFIGMAPS, ("default", "c"), (*made).clone())), made);
    assert_eq!(api.store.revision(), before);
}

#[test]
fn a_version_in_a_patch_is_a_precondition() {
    let mut api = server();
    let made = object(create(&mut api, &CONFIGMAPS, "default", config_map("c")));
    let version = made["metadata"]["resourceVersion"].clone();
    let body = json!({"metadata": {"resourceVersion": version}, "data": {"a": "2"}});
    merge(&mut api, &CONFIGMAPS, ("default", "c"), body.clone()).unwrap();
    assert_eq!(told(merge(&mut api, &CONFIGMAPS, ("default", "c"), body)).0, 409);
    let operations = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/data/b", "value": "3"},
    ]);
    assert_eq!(
        told(patch(&mut api, PatchType::Json, &CONFIGMAPS, ("default", "c"), operations)).0,
        409
    );
    let missing = merge(&mut api, &CONFIGMAPS, ("default", "nope"), json!({}));
    assert_eq!(told(missing), (404, "NotFound".into(), "configmaps \"nope\" not found".into()));
}

#[test]
fn a_patch_cannot_rename() {
    let mut api = server();
    create(&mut api, &CONFIGMAPS, "default", config_map("c")).unwrap();
    let (code, _, message) =
        told(merge(&mut api, &CONFIGMAPS, ("default", "c"), json!({"metadata": {"name": "d"}})));
    assert_eq!(code, 400);
    assert_eq!(message, "the name of the object (d) does not match the name on the URL (c)");
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "x:1"}]},
            },
        },
    })
}

#[test]
fn status_and_spec_are_written_apart() {
    let mut api = server();
    let place = ("default", "d");
    create(&mut api, &DEPLOYMENTS, "default", deployment()).unwrap();
    let both = json!({"spec": {"replicas": 3}, "status": {"replicas": 9}});
    let main = object(merge(&mut api, &DEPLOYMENTS, place, both.clone()));
    assert_eq!((&main["spec"]["replicas"], &main["status"]), (&json!(3), &json!({})));
    assert_eq!(main["metadata"]["generation"], 2);

    let mut both = both;
    both["spec"]["replicas"] = json!(5);
    both["metadata"] = json!({"labels": {"x": "y"}});
    let kind = WriteVerb::Patch(PatchType::Merge);
    let status = object(sub(&mut api, "status", kind, &DEPLOYMENTS, place, both));
    assert_eq!(
        (&status["spec"]["replicas"], &status["status"]["replicas"]),
        (&json!(3), &json!(9))
    );
    assert_eq!(status["metadata"]["labels"], Value::Null);
    assert_eq!(status["metadata"]["generation"], 2);

    let mut put_status = (*status).clone();
    put_status["status"] = json!({"replicas": 4});
    put_status["spec"]["replicas"] = json!(8);
    let status =
        object(sub(&mut api, "status", WriteVerb::Update, &DEPLOYMENTS, place, put_status));
    assert_eq!(
        (&status["spec"]["replicas"], &status["status"]["replicas"]),
        (&json!(3), &json!(4))
    );
}

#[test]
fn labels_are_no_new_generation_and_nodes_have_none() {
    let mut api = server();
    create(&mut api, &DEPLOYMENTS, "default", deployment()).unwrap();
    let labelled = merge(
        &mut api,
        &DEPLOYMENTS,
        ("default", "d"),
        json!({"metadata": {"labels": {"a": "b"}}}),
    );
    assert_eq!(object(labelled)["metadata"]["generation"], 1);
    create(&mut api, &NODES, "", json!({"metadata": {"name": "n"}})).unwrap();
    let node = merge(&mut api, &NODES, ("", "n"), json!({"spec": {"unschedulable": true}}));
    assert_eq!(object(node)["metadata"]["generation"], Value::Null);
}

#[test]
fn scale_is_a_view_of_the_replicas() {
    let mut api = server();
    create(&mut api, &DEPLOYMENTS, "default", deployment()).unwrap();
    let kind = WriteVerb::Patch(PatchType::Merge);
    let scale = object(sub(
        &mut api,
        "scale",
        kind.clone(),
        &DEPLOYMENTS,
        ("default", "d"),
        json!({"spec": {"replicas": 3}}),
    ));
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["apiVersion"], "autoscaling/v1");
    assert_eq!(scale["spec"]["replicas"], 3);
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "a=b"}));
    assert_eq!(api.get(&DEPLOYMENTS, "default", "d").unwrap()["spec"]["replicas"], 3);
    let negative = json!({"spec": {"replicas": -1}});
    let (code, _, message) =
        told(sub(&mut api, "scale", kind.clone(), &DEPLOYMENTS, ("default", "d"), negative));
    assert_eq!(code, 422, "{message}");
    assert_eq!(told(sub(&mut api, "scale", kind, &CONFIGMAPS, ("default", "d"), json!({}))).0, 404);
}

#[test]
fn server_side_apply_creates_and_keeps() {
    let mut api = server();
    let place = ("default", "c");
    let applied = patch(&mut api, PatchType::Apply, &CONFIGMAPS, place, config_map("c")).unwrap();
    assert_eq!(applied.code, 201);
    let again = patch(&mut api, PatchType::Apply, &CONFIGMAPS, place, config_map("c")).unwrap();
    assert_eq!((again.code, &again.object), (200, &applied.object));

    let mut anonymous =
        request(WriteVerb::Patch(PatchType::Apply), &CONFIGMAPS, place, config_map("c"));
    anonymous.options.field_manager.clear();
    let mut nameless = config_map("c");
    nameless["metadata"] = json!({});
    let mut managed = config_map("c");
    managed["metadata"]["managedFields"] = json!([]);
    let mut stale = config_map("c");
    stale["metadata"]["resourceVersion"] = json!("1");
    let refusals = [
        (
            told(api.write(now(), &anonymous)),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ),
        (
            told(patch(&mut api, PatchType::Apply, &CONFIGMAPS, place, nameless)),
            400,
            "the name of the object (c based on URL) was undeterminable: name must be provided",
        ),
        (
            told(patch(&mut api, PatchType::Apply, &CONFIGMAPS, place, managed)),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            told(patch(&mut api, PatchType::Apply, &CONFIGMAPS, place, stale)),
            409,
            "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; please apply your \
             changes to the latest version and try again",
        ),
    ];
    for ((code, _, message), wanted, text) in refusals {
        assert_eq!((code, message.as_str()), (wanted, text));
    }
}

#[test]
fn unserved_resources_and_wrong_verbs() {
    let mut api = server();
    let unknown = simcluster::Resource::new("example.com", "things");
    let (code, reason, message) = told(create(&mut api, &unknown, "default", json!({})));
    assert_eq!((code, reason.as_str()), (404, "NotFound"));
    assert_eq!(message, "the server could not find the requested resource");
    let status = sub(&mut api, "status", WriteVerb::Update, &LEASES, ("default", "l"), json!({}));
    assert_eq!(told(status).0, 404);
    let status = sub(&mut api, "status", WriteVerb::Delete, &NODES, ("", "n"), json!({}));
    assert_eq!(told(status).1, "MethodNotAllowed");
}
