//! The CRDs and the types agree: what a schema admits can be read, and what is written is admitted.

use kata_api::kata_node::{JobOutcome, Phase};
use kata_api::{KataConfig, KataNode, NodeAction};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

fn schema(index: usize) -> Value {
    let crd = serde_json::to_value(&kata_api::crds()[index]).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Values that the schema admits, the fullest first: each enum value, the ends of each range, each field left out.
fn values(schema: &Value) -> Vec<Value> {
    let mut values = if let Some(known) = schema["enum"].as_array() {
        known.clone()
    } else if schema["x-kubernetes-int-or-string"] == true {
        vec![json!("1"), json!(1)]
    } else {
        match schema["type"].as_str().unwrap() {
            "object" if schema["additionalProperties"].is_object() => {
                let entry = values_of_first(&schema["additionalProperties"]);
                vec![json!({"a": entry}), json!({})]
            }
            "object" => objects(schema),
            "array" => {
                let mut lists: Vec<Value> =
                    values(&schema["items"]).into_iter().map(|item| json!([item])).collect();
                lists.push(json!([]));
                lists
            }
            "boolean" => vec![json!(true), json!(false)],
            "integer" => {
                let least = schema["minimum"].as_f64().map_or_else(
                    || json!(i64::MIN),
                    |least| {
                        assert_eq!(least, 0.0, "another minimum needs another value");
                        json!(0)
                    },
                );
                vec![json!(1), least, json!(i64::MAX)]
            }
            "string" => strings(schema),
            other => panic!("values of the type {other}"),
        }
    };
    if schema["nullable"] == true {
        values.push(Value::Null);
    }
    values
}

fn values_of_first(schema: &Value) -> Value {
    values(schema).swap_remove(0)
}

fn strings(schema: &Value) -> Vec<Value> {
    let texts: &[&str] = match schema["format"].as_str() {
        // All that the pattern of an API server admits.
        Some("date-time") => &[
            "2026-01-01T00:00:00Z",
            "2026-01-01t00:00:00.5z",
            "2026-01-01T00:00:00,123456789012+01:00",
            "2026-01-01T00:00:00+99:99",
            "0000-01-01T00:00:00Z",
            "9999-12-31T23:59:59-12:00",
        ],
        Some(other) => panic!("values of the format {other}"),
        None if schema["pattern"].as_str().is_some_and(|it| it.contains("ms)?")) => {
            &["5m", "0s", "1h30m", "1ms", "99999h99999m99999s99999ms"]
        }
        None => &["a", "Unknown", "KATA9999", ""],
    };
    texts.iter().map(|text| json!(text)).collect()
}

/// One object with every field, and one for each other value of each field.
fn objects(schema: &Value) -> Vec<Value> {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let full: Map<String, Value> =
        properties.iter().map(|(name, schema)| (name.clone(), values_of_first(schema))).collect();
    let mut objects = vec![Value::Object(full.clone())];
    for (name, schema) in properties {
        for value in values(schema).into_iter().skip(1) {
            let mut object = full.clone();
            object.insert(name.clone(), value);
            objects.push(Value::Object(object));
        }
        // A field with a default is never absent in what an API server sends.
        if !required.contains(&json!(name)) && schema["default"].is_null() {
            let mut object = full.clone();
            object.remove(name);
            objects.push(Value::Object(object));
        }
    }
    objects
}

fn all_are_read<T: DeserializeOwned>(objects: &[Value]) {
    for object in objects {
        let mut whole = object.clone();
        whole["apiVersion"] = json!("v");
        whole["kind"] = json!("k");
        whole["metadata"] = json!({"name": "n"});
        if let Err(error) = serde_json::from_value::<T>(whole) {
            panic!("{error}: {object:#}");
        }
    }
}

#[test]
fn every_kata_node_that_the_schema_admits_is_read() {
    let objects = values(&schema(1));
    assert!(objects.len() > 100, "{}", objects.len());
    all_are_read::<KataNode>(&objects);
}

/// But for times that no client writes: their type is that of Kubernetes.
#[test]
fn every_kata_config_that_the_schema_admits_is_read() {
    let mut objects = values(&schema(0));
    objects.retain(|object| {
        let time = object.pointer("/status/conditions/0/lastTransitionTime");
        time.and_then(Value::as_str).is_none_or(|time| time == "2026-01-01T00:00:00Z")
    });
    assert!(objects.len() > 50, "{}", objects.len());
    all_are_read::<KataConfig>(&objects);
}

#[test]
fn the_schema_of_kata_nodes_lists_the_values_that_are_written() {
    let schema = schema(1);
    let status = &schema["properties"]["status"]["properties"];
    let job = &status["host"]["properties"]["job"]["properties"];
    let names = |all: &[&str]| json!(all);
    let outcomes = JobOutcome::ALL.map(JobOutcome::as_str);
    let phases: Vec<&str> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
    assert_eq!(job["action"]["enum"], names(&NodeAction::ALL.map(NodeAction::as_str)));
    assert_eq!(job["outcome"]["enum"], names(&outcomes));
    assert_eq!(job["previousOutcome"]["enum"], names(&outcomes));
    assert_eq!(status["phase"]["enum"], names(&phases));
    for (written, name) in NodeAction::ALL.map(|action| (json!(action), action.as_str())) {
        assert_eq!(written, name);
    }
    for (written, name) in JobOutcome::ALL.map(|outcome| (json!(outcome), outcome.as_str())) {
        assert_eq!(written, name);
    }
}

fn status(status: &Value) -> kata_api::KataNodeStatus {
    serde_json::from_value(status.clone()).unwrap()
}

/// They are of a newer or an older version, or a person wrote them.
#[test]
fn unknown_values_are_set_apart_and_the_rest_is_read() {
    let job = |field: &str, value: &str| {
        let mut job = json!({
            "name": "j", "number": 3, "action": "Install", "time": "2026-01-01T00:00:00Z",
            "desiredStateDigest": "d", "nodeFactsDigest": "f",
        });
        job[field] = json!(value);
        json!({"phase": "Ready", "host": {"installed": "a", "mayHaveArtifacts": true, "job": job}})
    };
    for (field, value) in [
        ("action", "Repair"),
        ("outcome", "Postponed"),
        ("previousOutcome", "Postponed"),
        ("time", "2026-01-01T00:00:00+99:99"),
    ] {
        let host = status(&job(field, value)).host.unwrap();
        assert_eq!((host.installed.as_deref(), host.may_have_artifacts), (Some("a"), true));
        assert!(host.job.is_none());
        let found: Vec<(String, String)> =
            host.unknown_values.iter().map(|it| (it.field.clone(), it.value.clone())).collect();
        assert_eq!(found, [(format!("status.host.job.{field}"), format!("\"{value}\""))]);
    }
    let read = status(&job("outcome", "Done"));
    assert!(read.host.unwrap().unknown_values.is_empty());
    let read = status(&json!({"phase": "Resting", "since": "soon", "handlers": ["kata"]}));
    assert_eq!(
        (read.phase, read.since, read.handlers),
        (Phase::Unknown, None, vec!["kata".to_owned()])
    );
}
