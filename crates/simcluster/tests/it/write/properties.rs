//! Properties of any sequence of writes.

use proptest::prelude::*;
use serde_json::{Value, json};
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::api::server::{PatchType, WriteVerb};
use simcluster::resource::{
    CRDS, DEPLOYMENTS, EVENTS_V1, JOBS, NAMESPACES, NODES, PODS, RUNTIMECLASSES, SECRETS, SERVICES,
};

use super::{now, request, server};

#[derive(Clone, Debug)]
enum Step {
    Replicas(u8),
    Label(u8),
    Status(u8),
    Finalizer(bool),
    Delete,
    Nothing,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4_u8).prop_map(Step::Replicas),
        (0..4_u8).prop_map(Step::Label),
        (0..4_u8).prop_map(Step::Status),
        any::<bool>().prop_map(Step::Finalizer),
        Just(Step::Delete),
        Just(Step::Nothing),
    ]
}

fn without_metadata_and_status(object: &Value) -> Value {
    let mut rest = object.clone();
    let map = rest.as_object_mut().unwrap();
    map.remove("metadata");
    map.remove("status");
    rest
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The version changes iff the object does, the generation iff the specification does or the
    /// first deletion marks it, and what has finalizers stays.
    #[test]
    fn versions_generations_and_finalizers(steps in prop::collection::vec(step(), 1..30)) {
        let mut api = server();
        let writer = Writer { manager: "test", now: now() };
        let (place, name) = ("default", "d");
        api.create(writer, &DEPLOYMENTS, place, json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "x:1"}]},
                },
            },
        })).unwrap();
        for step in steps {
            let Some(before) = api.get(&DEPLOYMENTS, place, name) else { break };
            let revision = api.store.revision();
            let outcome = match &step {
                Step::Replicas(n) => api.merge(writer, &DEPLOYMENTS, place, name, &json!({"spec": {"replicas": n}})),
                Step::Label(n) => api.merge(writer, &DEPLOYMENTS, place, name, &json!({"metadata": {"labels": {"n": n.to_string()}}})),
                Step::Status(n) => api.merge_status(writer, &DEPLOYMENTS, place, name, &json!({"status": {"replicas": n}})),
                Step::Finalizer(true) => api.merge(writer, &DEPLOYMENTS, place, name, &json!({"metadata": {"finalizers": ["x.example.com/f"]}})),
                Step::Finalizer(false) => api.merge(writer, &DEPLOYMENTS, place, name, &json!({"metadata": {"finalizers": null}})),
                Step::Delete => api.delete(writer, &DEPLOYMENTS, place, name, &DeleteOptions::default()),
                Step::Nothing => api.merge(writer, &DEPLOYMENTS, place, name, &json!({})),
            };
            let held = before["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
            let after = api.get(&DEPLOYMENTS, place, name);
            if held && !matches!(step, Step::Finalizer(false)) {
                prop_assert!(after.is_some(), "{step:?} removed an object that a finalizer holds");
            }
            if outcome.is_err() {
                prop_assert_eq!(api.store.revision(), revision);
                prop_assert_eq!(after.as_ref(), Some(&before));
                continue;
            }
            let Some(after) = after else { continue };
            prop_assert_eq!(api.store.revision() == revision, after == before);
            let marked = before["metadata"]["deletionTimestamp"] != after["metadata"]["deletionTimestamp"];
            let changed = without_metadata_and_status(&before) != without_metadata_and_status(&after);
            let steps = after["metadata"]["generation"].as_i64().unwrap()
                - before["metadata"]["generation"].as_i64().unwrap();
            prop_assert_eq!(steps, i64::from(marked || changed));
        }
    }
}

/// Any JSON, with names that the server looks for.
fn json_value() -> impl Strategy<Value = Value> {
    const WORDS: &[&str] = &[
        "metadata",
        "name",
        "x",
        "default",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "resourceVersion",
        "uid",
        "spec",
        "status",
        "data",
        "stringData",
        "containers",
        "template",
        "selector",
        "replicas",
        "ports",
        "tolerations",
        "taints",
        "nodeName",
        "overhead",
        "runtimeClassName",
        "nodeSelector",
        "handler",
        "scheduling",
        "group",
        "names",
        "kind",
        "plural",
        "versions",
        "schema",
        "target",
        "deleteOptions",
        "preconditions",
        "conditions",
        "volumes",
        "resources",
        "limits",
        "op",
        "path",
        "value",
        "add",
        "/spec",
        "",
        "1",
        "dryRun",
    ];
    let word = prop::sample::select(WORDS);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|members| {
                Value::Object(
                    members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
                )
            }),
        ]
    })
}

fn verb() -> impl Strategy<Value = WriteVerb> {
    prop_oneof![
        Just(WriteVerb::Create),
        Just(WriteVerb::Update),
        Just(WriteVerb::Delete),
        prop::sample::select(&[
            PatchType::Json,
            PatchType::Merge,
            PatchType::Strategic,
            PatchType::Apply
        ])
        .prop_map(WriteVerb::Patch),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    /// Whatever a client sends is answered, and a refusal has written nothing.
    #[test]
    fn every_body_is_answered(
        requests in prop::collection::vec(
            (
                verb(),
                prop::sample::select(vec![CRDS, DEPLOYMENTS, EVENTS_V1, JOBS, NAMESPACES, NODES, PODS, RUNTIMECLASSES, SECRETS, SERVICES,
                ]),
                prop::sample::select(&["", "", "", "status", "scale", "binding", "eviction", "finalize"]),
                json_value(),
                any::<bool>(),
            ),
            1..12,
        ),
    ) {
        let mut api = server();
        api.create(Writer { manager: "test", now: now() }, &PODS, "default", super::pod("x")).unwrap();
        for (verb, resource, subresource, mut body, named) in requests {
            if named && body.is_object() && !body["metadata"].is_array() && !body["metadata"].is_string()
                && !body["metadata"].is_number() && !body["metadata"].is_boolean() {
                body["metadata"]["name"] = json!("x");
            }
            let namespaced = api.registry.get(&resource).unwrap().namespaced;
            let place = if namespaced { ("default", "x") } else { ("", "x") };
            let place = if verb == WriteVerb::Create && subresource.is_empty() { (place.0, "") } else { place };
            let mut request = request(verb, &resource, place, body);
            request.options.field_validation = super::FieldValidation::Ignore;
            request.subresource = subresource.to_owned();
            let before = api.store.revision();
            match api.write(now(), &request) {
                Ok(response) => prop_assert!(response.object.is_object()),
                Err(error) => {
                    prop_assert!((400..=500).contains(&error.code), "{error:?}");
                    prop_assert!(!error.message.is_empty());
                    prop_assert_eq!(api.store.revision(), before, "{:?} wrote", request);
                }
            }
        }
    }
}
