//! Deleting objects.

use serde_json::{Value, json};
use simcluster::api::EventKind;
use simcluster::resource::{CONFIGMAPS, DEPLOYMENTS, NAMESPACES, PODS};

use super::{
    WriteVerb, config_map, create, delete, merge, object, pod, request, server, sub, told,
};

#[test]
fn what_is_gone_at_once_answers_with_a_status() {
    let mut api = server();
    let made = object(create(&mut api, &CONFIGMAPS, "default", config_map("c")));
    let gone = object(delete(&mut api, &CONFIGMAPS, ("default", "c"), Value::Null));
    assert_eq!(
        *gone,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "c", "kind": "configmaps", "uid": made["metadata"]["uid"]},
        })
    );
    let last = api.store.events_after(api.store.revision() - 1).unwrap().next().unwrap().clone();
    assert_eq!(last.kind, EventKind::Deleted);
    assert_eq!(last.current["data"], json!({"a": "1"}));
    assert_eq!(
        last.current["metadata"]["resourceVersion"],
        api.store.revision().to_string().as_str()
    );
    let again = told(delete(&mut api, &CONFIGMAPS, ("default", "c"), Value::Null));
    assert_eq!(again, (404, "NotFound".into(), "configmaps \"c\" not found".into()));
}

#[test]
fn preconditions_and_unknown_policies_refuse() {
    let mut api = server();
    let made = object(create(&mut api, &CONFIGMAPS, "default", config_map("c")));
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let table = [
        (
            json!({"preconditions": {"uid": "no"}}),
            409,
            format!(
                "Operation cannot be fulfilled on ConfigMap \"c\": the UID in the precondition (no) does not match \
                 the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ),
        (
            json!({"preconditions": {"resourceVersion": "1"}}),
            409,
            format!(
                "Operation cannot be fulfilled on ConfigMap \"c\": the ResourceVersion in the precondition (1) does \
                 not match the ResourceVersion in record ({}). The object might have been modified",
                made["metadata"]["resourceVersion"].as_str().unwrap()
            ),
        ),
        (
            json!({"propagationPolicy": "Sideways"}),
            422,
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": supported \
             values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                .to_owned(),
        ),
    ];
    for (body, code, message) in table {
        let (got_code, _, got) = told(delete(&mut api, &CONFIGMAPS, ("default", "c"), body));
        assert_eq!((got_code, got), (code, message));
    }
    let right = json!({"preconditions": {"uid": uid}});
    assert_eq!(told(delete(&mut api, &CONFIGMAPS, ("default", "c"), right)).0, 200);
}

#[test]
fn finalizers_hold_an_object_until_the_last_one_is_removed() {
    let mut api = server();
    let mut body = config_map("c");
    body["metadata"]["finalizers"] = json!(["a.example.com/x"]);
    create(&mut api, &CONFIGMAPS, "default", body).unwrap();
    let place = ("default", "c");
    let pending = object(delete(&mut api, &CONFIGMAPS, place, Value::Null));
    assert_eq!(pending["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(pending["metadata"]["deletionGracePeriodSeconds"], 0);
    // A second deletion changes nothing.
    assert_eq!(object(delete(&mut api, &CONFIGMAPS, place, Value::Null)), pending);
    let more = json!({"metadata": {"finalizers": ["a.example.com/x", "n.n/n"]}});
    assert_eq!(
        told(merge(&mut api, &CONFIGMAPS, place, more)).2,
        "ConfigMap \"c\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
         being deleted, found new finalizers []string{\"n.n/n\"}"
    );
    let freed =
        object(merge(&mut api, &CONFIGMAPS, place, json!({"metadata": {"finalizers": null}})));
    assert_eq!(freed["metadata"]["resourceVersion"], pending["metadata"]["resourceVersion"]);
    assert!(api.get(&CONFIGMAPS, "default", "c").is_none());
}

#[test]
fn the_first_deletion_is_a_new_generation() {
    let mut api = server();
    let body = json!({
        "metadata": {"name": "d", "finalizers": ["a.example.com/x"]},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "x:1"}]},
            },
        },
    });
    create(&mut api, &DEPLOYMENTS, "default", body).unwrap();
    let place = ("default", "d");
    for _ in 0..2 {
        let pending = object(delete(&mut api, &DEPLOYMENTS, place, Value::Null));
        assert_eq!(pending["metadata"]["generation"], 2);
    }
}

#[test]
fn propagation_is_a_finalizer() {
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        let mut api = server();
        create(&mut api, &CONFIGMAPS, "default", config_map("c")).unwrap();
        let body = json!({"propagationPolicy": policy});
        let pending = object(delete(&mut api, &CONFIGMAPS, ("default", "c"), body));
        assert_eq!(pending["metadata"]["finalizers"], json!([finalizer]));
        // Changing one's mind lets go.
        let body = json!({"propagationPolicy": "Background"});
        delete(&mut api, &CONFIGMAPS, ("default", "c"), body).unwrap();
        assert!(api.get(&CONFIGMAPS, "default", "c").is_none());
    }
}

#[test]
fn pods_on_a_node_have_time_to_end() {
    let mut api = server();
    let mut on_node = pod("p");
    on_node["spec"]["nodeName"] = json!("n1");
    let made = object(create(&mut api, &PODS, "default", on_node));
    assert_eq!(made["metadata"]["generation"], 1);
    let place = ("default", "p");
    let ending = object(delete(&mut api, &PODS, place, Value::Null));
    assert_eq!(ending["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(ending["metadata"]["generation"], 2);
    let sooner = object(delete(&mut api, &PODS, place, json!({"gracePeriodSeconds": 5})));
    assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    assert_eq!(sooner["metadata"]["generation"], 2);
    let later = object(delete(&mut api, &PODS, place, json!({"gracePeriodSeconds": 60})));
    assert_eq!(later, sooner);
    assert_eq!(object(delete(&mut api, &PODS, place, Value::Null)), sooner);
    let gone = object(delete(&mut api, &PODS, place, json!({"gracePeriodSeconds": 0})));
    assert_eq!(gone["kind"], "Pod");
    assert!(api.get(&PODS, "default", "p").is_none());

    create(&mut api, &PODS, "default", pod("unscheduled")).unwrap();
    delete(&mut api, &PODS, ("default", "unscheduled"), Value::Null).unwrap();
    assert!(api.get(&PODS, "default", "unscheduled").is_none());
}

#[test]
fn collections_are_deleted_one_by_one() {
    let mut api = server();
    for name in ["a", "b"] {
        create(&mut api, &CONFIGMAPS, "default", config_map(name)).unwrap();
    }
    let targets = ["a", "b", "never"].map(|name| ("default".to_owned(), name.to_owned())).to_vec();
    let verb = WriteVerb::DeleteCollection(targets);
    let answer = api.write(super::now(), &request(verb, &CONFIGMAPS, ("default", ""), Value::Null));
    let list = object(answer);
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert!(api.list(&CONFIGMAPS).is_empty());
}

#[test]
fn namespaces_end_when_they_are_finalized() {
    let mut api = server();
    for name in ["default", "kube-system", "kube-public"] {
        let refused = told(delete(&mut api, &NAMESPACES, ("", name), Value::Null));
        let text = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        assert_eq!(refused, (403, "Forbidden".into(), text));
    }
    create(&mut api, &NAMESPACES, "", json!({"metadata": {"name": "x"}})).unwrap();
    let ending = object(delete(&mut api, &NAMESPACES, ("", "x"), Value::Null));
    assert_eq!(ending["status"]["phase"], "Terminating");
    let refused = create(&mut api, &CONFIGMAPS, "x", config_map("c")).unwrap_err();
    assert_eq!(
        refused.message,
        "configmaps \"c\" is forbidden: unable to create new content in namespace x because it is being terminated"
    );
    assert_eq!(refused.details.unwrap()["causes"][0]["reason"], "NamespaceTerminating");
    let mut body = (*ending).clone();
    body["spec"] = json!({});
    sub(&mut api, "finalize", WriteVerb::Update, &NAMESPACES, ("", "x"), body).unwrap();
    assert!(api.get(&NAMESPACES, "", "x").is_none());
}
