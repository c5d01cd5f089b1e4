//! Every document satisfies its schema, as `kubectl kata schema` prints it, and says what it is.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::golden::compare;
use crate::lab::Lab;

/// What is wrong with a value, by the words of JSON Schema that our schemas use.
fn wrong(value: &Value, schema: &Value, root: &Value, path: &str) -> Vec<String> {
    if schema == &Value::Bool(true) {
        return Vec::new();
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return wrong(value, target, root, path);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(options) = schema[key].as_array() {
            let fits = options.iter().any(|option| wrong(value, option, root, path).is_empty());
            return if fits { Vec::new() } else { vec![format!("{path} fits no option")] };
        }
    }
    let mut found = Vec::new();
    let types: Vec<&str> = match &schema["type"] {
        Value::String(type_) => vec![type_],
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = |type_: &str| match type_ {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => false,
    };
    if !types.is_empty() && !types.iter().any(|type_| is(type_)) {
        found.push(format!("{path} is no {}: {value}", types.join(" or ")));
    }
    if let Some(options) = schema["enum"].as_array()
        && !options.contains(value)
    {
        found.push(format!("{path} is none of {options:?}: {value}"));
    }
    if let Some(fields) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap()) {
                found.push(format!("{path} lacks {name}"));
            }
        }
        for (name, field) in fields {
            match schema["properties"].get(name) {
                Some(schema) => found.extend(wrong(field, schema, root, &format!("{path}.{name}"))),
                // A consumer may not rely on what the schema does not tell.
                None => found.push(format!("{path}.{name} is not in the schema")),
            }
        }
    }
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(wrong(item, &schema["items"], root, &format!("{path}[{at}]")));
    }
    found
}

fn check(document: &Value, schemas: &Value) {
    let kind = document["kind"].as_str().unwrap();
    let schema = &schemas[kind];
    let found = wrong(document, schema, schema, kind);
    assert!(found.is_empty(), "{found:#?}\n{document:#}");
    assert_eq!(document["apiVersion"], "cli.kata-operator.dev/v1");
}

#[tokio::test(start_paused = true)]
async fn documents_satisfy_their_schemas() {
    let lab = Lab::new();
    let schemas: Value = serde_json::from_str(&lab.kata_command("schema").await.out).unwrap();
    let lines = ["status -o json", "doctor --pre -o json", "codes -o json"];
    for line in lines {
        check(&lab.kata_command(line).await.json(), &schemas);
    }
    lab.kata(&["worker-0", "worker-1"]);
    lab.pass(60).await;
    check(&lab.kata_command("status -o json").await.json(), &schemas);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.pod("plain", None);
    lab.phase("web", "Running").await;
    lab.phase("plain", "Running").await;
    let lines = [
        "status -o json",
        "wait -o json",
        "doctor -o json",
        "nodes -o json",
        "pods -A -o json",
        "why pod/web -n test-kata -o json",
        "why pod/plain -n test-kata -o json",
        "verify --node worker-0 -o json",
        "verify pod/plain -n test-kata -o json",
        "uninstall --dry-run -o json",
        "version -o json",
    ];
    let archive =
        format!("must-gather -o json --archive {}/schema.tgz", env!("CARGO_TARGET_TMPDIR"));
    for line in lines.into_iter().chain([archive.as_str()]) {
        let document = lab.kata_command(line).await.json();
        check(&document, &schemas);
        assert_eq!(document["simulated"], true, "{line}");
    }
}

/// The fields of an object type; `?` marks one that may be absent.
fn fields(schema: &Value) -> Option<String> {
    let required = schema["required"].as_array();
    let name = |field: &String| {
        let always = required.is_some_and(|names| names.contains(&Value::from(field.as_str())));
        format!("{field}{}", if always { "" } else { "?" })
    };
    let fields: Vec<String> = schema["properties"].as_object()?.keys().map(name).collect();
    Some(fields.join(" "))
}

/// Programs read these fields: within a version, fields are only added.
#[tokio::test(start_paused = true)]
async fn the_documents_have_the_fields_that_are_written_down() {
    let lab = Lab::new();
    let schemas: BTreeMap<String, Value> =
        serde_json::from_str(&lab.kata_command("schema").await.out).unwrap();
    let mut all = BTreeMap::new();
    for (kind, schema) in &schemas {
        all.extend(fields(schema).map(|fields| (kind, fields)));
        for (name, part) in schema["$defs"].as_object().into_iter().flatten() {
            all.extend(fields(part).map(|fields| (name, fields)));
        }
    }
    let lines: Vec<String> =
        all.iter().map(|(name, fields)| format!("{name}: {fields}\n")).collect();
    compare("schema-fields", &lines.concat());
    let one = lab.kata_command("schema versionreport").await.expect(0).out;
    assert_eq!(serde_json::from_str::<Value>(&one).unwrap(), schemas["VersionReport"]);
}
