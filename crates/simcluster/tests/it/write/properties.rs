//! Properties of any sequence of writes.

use proptest::prelude::*;
use serde_json::{Value, json};
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::resource::DEPLOYMENTS;

use super::{now, server};

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
