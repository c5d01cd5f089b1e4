//! Who owns what after applies and updates, case by case.

#![expect(clippy::needless_pass_by_value, reason = "cases are written in place")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Resource;
use crate::api::registry::{CustomDef, Registry};
use crate::api::schema::Structural;

mod conflicts;
mod properties;
mod updates;

fn builtin(group: &'static str, plural: &'static str) -> ResourceDef {
    let registry = Registry::default();
    (**registry.get(&Resource::new(group, plural)).unwrap()).clone()
}

fn custom(schema: Value) -> ResourceDef {
    let mut def = builtin("", "pods");
    def.resource = Resource::new("sim.example.com", "widgets");
    def.kind = "Widget".into();
    def.custom = Some(std::sync::Arc::new(CustomDef {
        schema: Structural::parse(&schema).unwrap(),
        columns: Vec::new(),
        selectable_fields: Vec::new(),
    }));
    def
}

/// An object and the requests to it, one second apart.
struct Story {
    def: ResourceDef,
    object: Option<Value>,
    second: i64,
}

impl Story {
    fn new(def: ResourceDef) -> Self {
        Self { def, object: None, second: 1_700_000_000 }
    }

    fn writer<'a>(&'a self, manager: &'a str, subresource: &'a str) -> FieldWriter<'a> {
        let now = Timestamp::from_second(self.second).unwrap();
        FieldWriter { def: &self.def, manager, subresource, now }
    }

    fn try_apply(&mut self, manager: &str, config: Value, force: bool) -> Result<(), ApiError> {
        self.second += 1;
        let object = apply(self.object.as_ref(), &config, self.writer(manager, ""), force)?;
        self.object = Some(object);
        Ok(())
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, config: Value) -> &mut Self {
        self.try_apply(manager, config, false).unwrap();
        self
    }

    #[track_caller]
    fn force(&mut self, manager: &str, config: Value) -> &mut Self {
        self.try_apply(manager, config, true).unwrap();
        self
    }

    /// A write of the whole object; managed fields are those of `object`.
    fn put(&mut self, manager: &str, subresource: &str, mut object: Value) -> &mut Self {
        self.second += 1;
        track_update(self.object.as_ref(), &mut object, self.writer(manager, subresource));
        self.object = Some(object);
        self
    }

    /// A merge patch.
    fn patch(&mut self, manager: &str, subresource: &str, patch: Value) -> &mut Self {
        let mut object = self.object.clone().unwrap_or_default();
        json_patch::merge(&mut object, &patch);
        self.put(manager, subresource, object)
    }

    #[track_caller]
    fn conflict(&mut self, manager: &str, config: Value, message: &str) -> Vec<Value> {
        let before = self.object.clone();
        let error = self.try_apply(manager, config, false).unwrap_err();
        assert_eq!((error.code, error.reason), (409, "Conflict"));
        assert_eq!(error.message, message);
        assert_eq!(self.object, before);
        error.details.unwrap()["causes"].as_array().unwrap().clone()
    }

    fn object(&self) -> &Value {
        self.object.as_ref().unwrap()
    }

    /// The managed fields, as `manager operation[/subresource]` and the set, in order.
    fn owners(&self) -> Vec<(String, Value)> {
        let entries = self.object()["metadata"]["managedFields"].as_array();
        entries
            .into_iter()
            .flatten()
            .map(|entry| {
                let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                let mut who = format!("{} {}", text("manager"), text("operation"));
                if entry.get("subresource").is_some() {
                    who = format!("{who}/{}", text("subresource"));
                }
                (who, entry["fieldsV1"].clone())
            })
            .collect()
    }

    #[track_caller]
    fn check_owners(&self, expected: &[(&str, Value)]) -> &Self {
        let expected: Vec<(String, Value)> =
            expected.iter().map(|(who, set)| ((*who).to_owned(), set.clone())).collect();
        assert_eq!(self.owners(), expected);
        self
    }
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s1", "namespace": "d"}, "data": data})
}

fn maps() -> Story {
    Story::new(builtin("", "configmaps"))
}

#[test]
fn an_apply_owns_the_leaves_it_sends() {
    let mut story = maps();
    let mut config = config_map(json!({"a": "1"}));
    config["metadata"]["labels"] = json!({"l": "1"});
    story.apply("m1", config);
    assert_eq!(
        story.object()["metadata"]["managedFields"],
        json!([{
            "manager": "m1", "operation": "Apply", "apiVersion": "v1",
            "time": "2023-11-14T22:13:21Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {"f:a": {}}},
        }])
    );
}

#[test]
fn an_update_owns_the_maps_it_adds_too() {
    let mut story = maps();
    story.put("u", "", config_map(json!({"x": "1"})));
    story.check_owners(&[("u Update", json!({"f:data": {".": {}, "f:x": {}}}))]);
    story.patch("v", "", json!({"data": {"y": "2"}}));
    story.check_owners(&[
        ("u Update", json!({"f:data": {".": {}, "f:x": {}}})),
        ("v Update", json!({"f:data": {"f:y": {}}})),
    ]);
}

#[test]
fn dropped_fields_go_unless_somebody_else_owns_them() {
    let mut story = maps();
    story.apply("m1", config_map(json!({"a": "1", "b": "1", "c": "1"})));
    story.apply("m2", config_map(json!({"b": "1"})));
    story.patch("u", "", json!({"data": {"d": "1"}}));
    story.apply("m1", config_map(json!({"a": "1"})));
    assert_eq!(story.object()["data"], json!({"a": "1", "b": "1", "d": "1"}));
    assert_eq!(story.object()["metadata"]["name"], "s1");
}

#[test]
fn an_apply_without_change_gives_the_same_object() {
    let mut story = maps();
    story.apply("m1", config_map(json!({"a": "1"})));
    story.put("u", "", {
        let mut object = story.object().clone();
        object["data"]["b"] = json!("1");
        object
    });
    let before = story.object().clone();
    story.apply("m1", config_map(json!({"a": "1"})));
    assert_eq!(story.object(), &before);
    story.put("u", "", before.clone());
    assert_eq!(story.object(), &before);
}

#[test]
fn entries_are_ordered_by_operation_and_time() {
    let mut story = maps();
    story.put("z", "", config_map(json!({"z": "1"})));
    story.patch("y", "", json!({"data": {"y": "1"}}));
    story.apply("x", config_map(json!({"x": "1"})));
    story.apply("w", config_map(json!({"w": "1"})));
    story.patch("z", "", json!({"data": {"z": "2"}}));
    let order: Vec<String> = story.owners().into_iter().map(|(who, _set)| who).collect();
    assert_eq!(order, ["x Apply", "w Apply", "y Update", "z Update"]);
}

#[test]
fn applied_managed_fields_are_refused() {
    for sent in [json!([]), json!([{"manager": "x"}])] {
        let mut config = config_map(json!({}));
        config["metadata"]["managedFields"] = sent;
        let error = maps().try_apply("m", config, false).unwrap_err();
        assert_eq!(
            (error.code, error.reason, error.message.as_str()),
            (400, "BadRequest", "metadata.managedFields must be nil")
        );
    }
}

#[test]
fn applied_lists_must_have_distinct_keys() {
    let pod = |containers: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"},
            "spec": {"containers": containers}})
    };
    for (containers, problem) in [
        (
            json!([{"name": "a"}, {"name": "a"}]),
            ".spec.containers: duplicate entries for key [name=\"a\"]",
        ),
        (
            json!([{"image": "x"}]),
            ".spec.containers: element 0: associative list with keys has an element that omits all \
             key fields [\"name\"] (and doesn't have default values for any key fields)",
        ),
    ] {
        let error =
            Story::new(builtin("", "pods")).try_apply("m", pod(containers), false).unwrap_err();
        assert_eq!(
            (error.code, error.message),
            (500, format!("failed to create typed patch object (d/p; v1, Kind=Pod): {problem}"))
        );
    }
}

#[test]
fn applied_fields_must_be_known() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"},
        "spec": {"bogus": 1, "containers": [{"name": "a", "image": "i", "wrong": 1}]}});
    let error = Story::new(builtin("", "pods")).try_apply("m", pod, false).unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (
            500,
            "failed to create typed patch object (d/p; v1, Kind=Pod): \
             .spec.bogus: field not declared in schema"
        )
    );
    let def = custom(json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}));
    let widget = json!({"apiVersion": "sim.example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"free": {"x": 1}, "bogus": 1}});
    let error = Story::new(def).try_apply("m", widget, false).unwrap_err();
    assert_eq!(
        error.message,
        "failed to create typed patch object (/w; sim.example.com/v1, Kind=Widget): .spec.bogus: \
         field not declared in schema"
    );
}

#[test]
fn each_subresource_is_a_manager_of_its_own() {
    let mut story = Story::new(builtin("", "pods"));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Pending"}});
    story.put("k", "", pod);
    story.patch(
        "k",
        "status",
        json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    story.check_owners(&[
        (
            "k Update",
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}}}}}),
        ),
        (
            "k Update/status",
            json!({"f:status": {"f:phase": {}, "f:conditions": {".": {},
                "k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}}}}),
        ),
    ]);
}

#[test]
fn an_apply_of_the_status_ignores_the_spec() {
    let mut story = Story::new(builtin("", "pods"));
    story.put("k", "", json!({"metadata": {"name": "p"}, "spec": {"nodeName": "a"}}));
    story.second += 1;
    let config = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": "b"}, "status": {"phase": "Running"}});
    let object = apply(Some(story.object()), &config, story.writer("s", "status"), false).unwrap();
    assert_eq!(object["spec"], json!({"nodeName": "a"}));
    assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
    story.object = Some(object);
    story.check_owners(&[
        (
            "s Apply/status",
            json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:status": {"f:phase": {}}}),
        ),
        ("k Update", json!({"f:spec": {"f:nodeName": {}}})),
    ]);
    let mut main = config.clone();
    main["status"]["phase"] = json!("Failed");
    main["spec"]["nodeName"] = json!("a");
    story.apply("m", main);
    assert_eq!(story.object()["status"]["phase"], "Running");
}

#[test]
fn structs_that_always_exist_are_not_owned_as_such() {
    let mut story = Story::new(builtin("apps", "deployments"));
    story.put("k", "", json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
            {"name": "c", "resources": {}}], "nodeSelector": {"x": "y"}, "securityContext": {}}},
    }}));
    story.check_owners(&[(
        "k Update",
        json!({"f:spec": {
            "f:selector": {},
            "f:strategy": {"f:type": {}, "f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:resources": {}}},
                    "f:nodeSelector": {}, "f:securityContext": {},
                },
            },
        }}),
    )]);
}

#[test]
fn custom_resources_follow_their_schema() {
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "properties": {"name": text, "port": {"type": "integer", "default": 1}, "v": text}});
    let def = custom(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "plain": {"type": "array", "items": text},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "map": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "name"], "items": item},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
            "named": {"type": "object", "additionalProperties": {"type": "object", "properties": {"v": text}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}}}),
    );
    let mut story = Story::new(def);
    story.apply(
        "m",
        json!({"apiVersion": "sim.example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"plain": ["a"], "set": ["b", "c"], "map": [{"name": "n", "v": "1"}],
            "whole": {"x": "1"}, "named": {"k": {"v": "1"}}, "free": {"a": {"b": [1]}}}}),
    );
    story.check_owners(&[(
        "m Apply",
        json!({"f:spec": {
            "f:plain": {}, "f:set": {"v:\"b\"": {}, "v:\"c\"": {}},
            "f:map": {"k:{\"name\":\"n\",\"port\":1}": {".": {}, "f:name": {}, "f:v": {}}},
            "f:whole": {}, "f:named": {"f:k": {".": {}, "f:v": {}}},
            "f:free": {"f:a": {".": {}, "f:b": {}}},
        }}),
    )]);
    story.apply(
        "o",
        json!({"apiVersion": "sim.example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"set": ["d"], "map": [{"name": "n", "port": 2, "v": "2"}]}}),
    );
    assert_eq!(story.object()["spec"]["set"], json!(["b", "c", "d"]));
    assert_eq!(
        story.object()["spec"]["map"],
        json!([{"name": "n", "v": "1"}, {"name": "n", "port": 2, "v": "2"}])
    );
    story.conflict(
        "o",
        json!({"spec": {"plain": ["a", "z"]}}),
        "Apply failed with 1 conflict: conflict with \"m\": .spec.plain",
    );
}

#[test]
fn merged_lists_keep_the_order_of_the_configuration() {
    let names = |object: &Value| -> String {
        let containers = object["spec"]["containers"].as_array().unwrap();
        containers.iter().map(|item| item["name"].as_str().unwrap()).collect()
    };
    let pod = |names: &str| {
        let containers: Vec<Value> =
            names.chars().map(|name| json!({"name": name.to_string()})).collect();
        json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
    };
    for (live, config, expected) in [
        ("abc", "d", "abcd"),
        ("abc", "b", "abc"),
        ("abc", "cb", "acb"),
        ("abc", "ca", "bca"),
        ("ab", "xbya", "xbya"),
        ("", "ab", "ab"),
        ("abcd", "bxd", "abcxd"),
    ] {
        let mut story = Story::new(builtin("", "pods"));
        story.put("u", "", pod(live)).apply("m", pod(config));
        assert_eq!(names(story.object()), expected, "{live} + {config}");
    }
}

#[test]
fn dropped_items_of_lists_go() {
    let pod = |names: &[&str]| {
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"metadata": {"name": "p", "finalizers": names}, "spec": {"containers": containers}})
    };
    let mut story = Story::new(builtin("", "pods"));
    story.apply("m", pod(&["a", "b", "c"]));
    story.patch(
        "u",
        "",
        json!({"spec": {"containers": [
        {"name": "a"}, {"name": "b", "image": "i"}, {"name": "c"}]}}),
    );
    story.apply("m", pod(&["a"]));
    // As in Kubernetes, an item goes with its last applier, if nobody else owns the item as such.
    assert_eq!(story.object()["spec"]["containers"], json!([{"name": "a"}]));
    assert_eq!(story.object()["metadata"]["finalizers"], json!(["a"]));
    story.check_owners(&[(
        "m Apply",
        json!({"f:metadata": {"f:finalizers": {"v:\"a\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}}}),
    )]);
}

#[test]
fn kubectl_migrates_from_client_side_apply() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut config = config_map(json!({"a": "1", "b": "<1>"}));
    let mut object = config.clone();
    object["metadata"]["annotations"] = json!({annotation: config.to_string()});
    let mut story = maps();
    story.put("kubectl-client-side-apply", "", object);
    // What the annotation holds is no conflict for kubectl, but it is for others.
    config["data"]["a"] = json!("2");
    assert_eq!(story.try_apply("m", config.clone(), false).unwrap_err().code, 409);
    story.apply("kubectl", config.clone());
    assert_eq!(
        story.object()["metadata"]["annotations"][annotation],
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"2\",\"b\":\"\\u003c1\\u003e\"},\"kind\":\"ConfigMap\",\
         \"metadata\":{\"name\":\"s1\",\"namespace\":\"d\"}}\n"
    );
    // What others changed since is one.
    story.patch("u", "", json!({"data": {"b": "3"}}));
    config["data"]["b"] = json!("4");
    story.conflict(
        "kubectl",
        config,
        "Apply failed with 1 conflict: conflict with \"u\" using v1: .data.b",
    );
}
