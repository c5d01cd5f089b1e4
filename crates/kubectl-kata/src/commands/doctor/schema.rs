//! What a CustomResourceDefinition refuses: its schema, and its CEL rules on what the schema lets pass. The
//! definition is the only source; nothing is known here of any field.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Where something is, and what is wrong with it. Items of lists are numbers.
pub(super) type Violation = (Vec<String>, String);

/// What every object has and no schema describes.
const STANDARD: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// All that an API server with this schema would refuse of an object.
pub(super) fn violations(object: &Value, schema: &Value) -> Vec<Violation> {
    let mut schema = schema.clone();
    let mut bare = object.clone();
    for key in STANDARD {
        if let Some(fields) = bare.as_object_mut() {
            fields.remove(key);
        }
        if let Some(fields) = schema["properties"].as_object_mut() {
            fields.remove(key);
        }
    }
    let mut wrong = Vec::new();
    walk(&bare, &schema, &mut Vec::new(), &mut wrong);
    if wrong.is_empty() {
        // What may be null and is has nothing that a rule could judge.
        let mut judged = object.clone();
        drop_nulls(&mut judged);
        wrong = refused_by_rules(&judged, &schema);
    }
    wrong
}

/// The object as an API server with this schema takes it: a field without a value is none if it may not be
/// null, or has its default.
pub(super) fn without_nulls(object: &Value, schema: &Value) -> Value {
    match object {
        Value::Object(fields) => {
            let taken = fields.iter().filter_map(|(key, field)| {
                let below = match (&schema["properties"][key], &schema["additionalProperties"]) {
                    (Value::Null, others) => others,
                    (known, _) => known,
                };
                let field = match (field, &below["default"]) {
                    (Value::Null, _) if below["nullable"] == true || !below.is_object() => {
                        Value::Null
                    }
                    (Value::Null, Value::Null) => return None,
                    (Value::Null, default) => default.clone(),
                    (field, _) => without_nulls(field, below),
                };
                Some((key.clone(), field))
            });
            Value::Object(taken.collect())
        }
        Value::Array(items) => {
            items.iter().map(|item| without_nulls(item, &schema["items"])).collect()
        }
        other => other.clone(),
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// What the CEL rules refuse. They expect that the schema lets the object pass.
fn refused_by_rules(object: &Value, schema: &Value) -> Vec<Violation> {
    match kube_cel::Validator::new().validate(schema, object, None) {
        Ok(()) => Vec::new(),
        Err(errors) => {
            let path = |text: &str| {
                let parts = text.split(['.', '[', ']']);
                parts.filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>()
            };
            let all = errors.as_slice().iter();
            all.map(|error| (path(&error.field_path), error.message.clone())).collect()
        }
    }
}

/// `spec.runtimes[0].name`.
fn dotted(path: &[String]) -> String {
    let mut text = String::new();
    for part in path {
        if part.parse::<usize>().is_ok() {
            text.push_str(&format!("[{part}]"));
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(part);
        }
    }
    if text.is_empty() { "the object".to_owned() } else { text }
}

fn walk(value: &Value, schema: &Value, path: &mut Vec<String>, wrong: &mut Vec<Violation>) {
    let mut refuse = |why: String| wrong.push((path.clone(), format!("{} {why}", dotted(path))));
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    if let Some(wanted) = wanted(value, schema) {
        let hint = match (wanted, value) {
            (_, Value::Null) => String::new(),
            ("a string", _) => format!(": write '{}'", plain(value)),
            _ => String::new(),
        };
        return refuse(format!("must be {wanted}, not {}{hint}", kind(value)));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let names: Vec<String> = allowed.iter().map(plain).collect();
        refuse(format!("must be one of {}, not {}", names.join(", "), plain(value)));
    }
    match value {
        Value::String(text) => of_text(text, schema).into_iter().for_each(refuse),
        Value::Number(number) => of_number(number.as_f64(), schema).into_iter().for_each(refuse),
        Value::Array(items) => {
            of_list(items, schema).into_iter().for_each(refuse);
            for (at, item) in items.iter().enumerate() {
                path.push(at.to_string());
                walk(item, &schema["items"], path, wrong);
                path.pop();
            }
        }
        Value::Object(fields) => {
            let required = schema["required"].as_array().into_iter().flatten();
            for name in required.filter_map(Value::as_str) {
                if !fields.contains_key(name) {
                    let mut below = path.clone();
                    below.push(name.to_owned());
                    let text = format!("{} is missing", dotted(&below));
                    wrong.push((path.clone(), text));
                }
            }
            of_fields(fields, schema, path, wrong);
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// The wanted type, if a value has another.
fn wanted(value: &Value, schema: &Value) -> Option<&'static str> {
    let whole = || value.is_i64() || value.is_u64() || value.as_f64().is_some_and(is_whole);
    let (fits, name) = if schema["x-kubernetes-int-or-string"] == true {
        (value.is_string() || whole(), "a whole number or a string")
    } else {
        match schema["type"].as_str().unwrap_or_default() {
            "object" => (value.is_object(), "an object"),
            "array" => (value.is_array(), "a list"),
            "string" => (value.is_string(), "a string"),
            "boolean" => (value.is_boolean(), "true or false"),
            "integer" => (whole(), "a whole number"),
            "number" => (value.is_number(), "a number"),
            _ => (true, ""),
        }
    };
    (!fits).then_some(name)
}

fn is_whole(number: f64) -> bool {
    number.fract() == 0.0
}

fn of_text(text: &str, schema: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        wrong.push(if length == 0 {
            "must not be empty".to_owned()
        } else {
            format!("must have at least {} characters", schema["minLength"])
        });
    } else if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
        wrong.push(format!("must have at most {} characters", schema["maxLength"]));
    } else if let Some(pattern) = schema["pattern"].as_str()
        && regex::Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
    {
        wrong.push(format!("is {text:?}, and must match {pattern}"));
    }
    wrong
}

fn of_number(number: Option<f64>, schema: &Value) -> Vec<String> {
    let Some(number) = number else { return Vec::new() };
    let mut wrong = Vec::new();
    if schema["minimum"].as_f64().is_some_and(|least| number < least) {
        wrong.push(format!("must be at least {}", schema["minimum"]));
    }
    if schema["maximum"].as_f64().is_some_and(|most| number > most) {
        wrong.push(format!("must be at most {}", schema["maximum"]));
    }
    wrong
}

fn of_list(items: &[Value], schema: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let length = u64::try_from(items.len()).unwrap_or(u64::MAX);
    if schema["minItems"].as_u64().is_some_and(|least| length < least) {
        wrong.push(format!("must have at least {} items", schema["minItems"]));
    }
    if schema["maxItems"].as_u64().is_some_and(|most| length > most) {
        wrong.push(format!("must have at most {} items", schema["maxItems"]));
    }
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut seen = BTreeSet::new();
    for item in items.iter().filter(|_| !keys.is_empty()) {
        let key: Vec<String> =
            keys.iter().map(|key| format!("{key} {}", plain(&item[*key]))).collect();
        let key = key.join(", ");
        if seen.contains(&key) {
            wrong.push(format!("has two items with {key}"));
        }
        seen.insert(key);
    }
    wrong
}

fn of_fields(
    fields: &Map<String, Value>,
    schema: &Value,
    path: &mut Vec<String>,
    wrong: &mut Vec<Violation>,
) {
    let known = schema["properties"].as_object();
    let others = &schema["additionalProperties"];
    let count = u64::try_from(fields.len()).unwrap_or(u64::MAX);
    if schema["maxProperties"].as_u64().is_some_and(|most| count > most) {
        let text = format!("must have at most {} entries", schema["maxProperties"]);
        wrong.push((path.clone(), text));
    }
    for (key, field) in fields {
        path.push(key.clone());
        match known.and_then(|known| known.get(key)) {
            Some(schema) => walk(field, schema, path, wrong),
            None if others.is_object() => walk(field, others, path, wrong),
            None if known.is_some() => {
                let text = match nearest(key, known) {
                    Some(near) => format!("there is no field {key}; did you mean {near}?"),
                    None => format!("there is no field {key}"),
                };
                wrong.push((path.clone(), text));
            }
            None => {}
        }
        path.pop();
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn kind(value: &Value) -> String {
    match value {
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null => "null".to_owned(),
    }
}

/// The known field that ends or begins like the unknown one.
fn nearest(key: &str, known: Option<&Map<String, Value>>) -> Option<String> {
    let lower = key.to_lowercase();
    known?
        .keys()
        .find(|name| {
            let name = name.to_lowercase();
            name.ends_with(&lower) || lower.ends_with(&name) || name.starts_with(&lower)
        })
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is evaluated above, and what says nothing about values.
    const KNOWN: [&str; 23] = [
        "additionalProperties",
        "default",
        "description",
        "enum",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "nullable",
        "pattern",
        "properties",
        "required",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-validations",
        "format",
    ];

    fn keywords(schema: &Value, found: &mut BTreeSet<String>) {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            found.insert(keyword.clone());
            match keyword.as_str() {
                "properties" => {
                    value.as_object().into_iter().flatten().for_each(|(_, s)| keywords(s, found));
                }
                "items" | "additionalProperties" => keywords(value, found),
                _ => {}
            }
        }
    }

    /// A rule that is not evaluated here must not pass in silence.
    #[test]
    fn the_definition_of_kataconfig_has_no_rule_that_is_not_evaluated() {
        let schema = super::super::manifest::schema().unwrap();
        let mut found = BTreeSet::new();
        keywords(&schema["properties"]["spec"], &mut found);
        let unknown: Vec<&String> =
            found.iter().filter(|keyword| !KNOWN.contains(&keyword.as_str())).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(found.contains("pattern") && found.contains("x-kubernetes-validations"));
    }
}
