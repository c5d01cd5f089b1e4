//! Checks of values against a schema, with the messages of the API server.
//!
//! It must not change the object and knows nothing of CEL rules, which run only when it is content.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value, json};

use super::Structural;
use super::format::Format;
use super::node::{Additional, Checks, ListType, MAX_OBJECT_DEPTH, Node, NodeId, Type};
use crate::api::error::FieldError;

const INVALID: &str = "FieldValueInvalid";
const TYPE_INVALID: &str = "FieldValueTypeInvalid";

/// All errors of shape: types, limits, required fields, list keys.
pub(super) fn values(schema: &Structural, object: &Value) -> Vec<FieldError> {
    below(schema, object, 0)
}

/// The same below node `id`, with paths relative to it.
pub(super) fn below(schema: &Structural, value: &Value, id: NodeId) -> Vec<FieldError> {
    let mut errors = Vec::new();
    Checker { schema }.value(value, id, "", &mut errors, 0);
    duplicates(schema, value, id, "", &mut errors, 0);
    errors
}

/// Whether CEL rules must not run because of this error.
pub(super) fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | TYPE_INVALID
    )
}

/// Joins a member's name to a path.
pub(super) fn child(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

struct Checker<'a> {
    schema: &'a Structural,
}

impl Checker<'_> {
    fn value(
        &self,
        value: &Value,
        id: NodeId,
        path: &str,
        errors: &mut Vec<FieldError>,
        depth: usize,
    ) {
        let Some(node) = self.schema.node(id) else { return };
        if depth > MAX_OBJECT_DEPTH {
            errors.push(error(path, INVALID, format!("{path} in body is nested too deeply")));
            return;
        }
        let found = type_name(value);
        if value.is_null() {
            if let Some(wanted) = wanted_type(node).filter(|_| !node.nullable) {
                errors.push(type_error(path, &wanted, found));
            }
            return;
        }
        if let Some(wanted) = wrong_type(node, value) {
            errors.push(type_error(path, &wanted, found));
            if node.kind == Some(Type::Integer) && value.is_number() {
                errors.push(FieldError {
                    field: "<nil>".to_owned(),
                    reason: INVALID,
                    message: format!(
                        "Invalid value: \"\": Checked value must be of type integer (default format) in {path}"
                    ),
                });
            }
        }
        let checks = node.checks.as_deref();
        if let Some(checks) = checks {
            self.combinations(value, checks, path, errors, depth);
            match value {
                Value::String(text) => string(text, checks, path, errors),
                Value::Number(given) => number(given, checks, path, errors),
                Value::Array(items) => array(items, checks, path, errors),
                Value::Object(members) => object(members, checks, path, errors),
                _ => {}
            }
            if let Some(allowed) = &checks.allowed
                && !allowed.iter().any(|allowed| equal(allowed, value))
            {
                let names: Vec<String> = allowed
                    .iter()
                    .map(|allowed| match allowed {
                        Value::String(_) => allowed.to_string(),
                        other => json!(other.to_string()).to_string(),
                    })
                    .collect();
                let message =
                    format!("Unsupported value: {value}: supported values: {}", names.join(", "));
                errors.push(FieldError {
                    field: path.to_owned(),
                    reason: "FieldValueNotSupported",
                    message,
                });
            }
        }
        match value {
            Value::Array(items) => {
                let Some(below) = node.items else { return };
                for (index, item) in items.iter().enumerate() {
                    self.value(item, below, &format!("{path}[{index}]"), errors, depth + 1);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    if let Some(below) = node.member(key) {
                        self.value(member, below, &child(path, key), errors, depth + 1);
                    }
                }
            }
            _ => {}
        }
    }

    fn combinations(
        &self,
        value: &Value,
        checks: &Checks,
        path: &str,
        errors: &mut Vec<FieldError>,
        depth: usize,
    ) {
        let run = |ids: &[NodeId]| -> Vec<Vec<FieldError>> {
            ids.iter()
                .map(|id| {
                    let mut errors = Vec::new();
                    self.value(value, *id, path, &mut errors, depth + 1);
                    errors
                })
                .collect()
        };
        let composite = |text: String| FieldError {
            field: "<nil>".to_owned(),
            reason: INVALID,
            message: format!("Invalid value: \"\": {} {text}", json!(path)),
        };
        let fewest = |results: Vec<Vec<FieldError>>| {
            results.into_iter().min_by_key(Vec::len).unwrap_or_default()
        };
        if !checks.any_of.is_empty() {
            let results = run(&checks.any_of);
            if results.iter().all(|errors| !errors.is_empty()) {
                errors.push(composite("must validate at least one schema (anyOf)".to_owned()));
                errors.extend(fewest(results));
            }
        }
        if !checks.one_of.is_empty() {
            let results = run(&checks.one_of);
            let valid = results.iter().filter(|errors| errors.is_empty()).count();
            if valid != 1 {
                let found = if valid == 0 {
                    "Found none valid".to_owned()
                } else {
                    format!("Found {valid} valid alternatives")
                };
                errors.push(composite(format!(
                    "must validate one and only one schema (oneOf). {found}"
                )));
                if valid == 0 {
                    errors.extend(fewest(results));
                }
            }
        }
        if !checks.all_of.is_empty() {
            let results = run(&checks.all_of);
            let failed = results.iter().filter(|errors| !errors.is_empty()).count();
            if failed > 0 {
                let none = if failed == results.len() { ". None validated" } else { "" };
                errors.extend(results.into_iter().flatten());
                errors.push(composite(format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = checks.not
            && run(&[not]).iter().all(Vec::is_empty)
        {
            errors.push(composite("must not validate the schema (not)".to_owned()));
        }
    }
}

/// `FieldError` with the text after `Invalid value: ...: `.
fn error(path: &str, reason: &'static str, message: String) -> FieldError {
    FieldError { field: field_name(path), reason, message }
}

fn field_name(path: &str) -> String {
    if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() }
}

fn invalid(path: &str, value: &Value, text: &str) -> FieldError {
    error(path, INVALID, format!("Invalid value: {value}: {path} in body {text}"))
}

fn type_error(path: &str, wanted: &str, found: &str) -> FieldError {
    let message =
        format!("Invalid value: \"{found}\": {path} in body must be of type {wanted}: \"{found}\"");
    error(path, TYPE_INVALID, message)
}

fn too_many(path: &str, found: usize, limit: u64, one: &str, many: &str) -> FieldError {
    let unit = if limit == 1 { one } else { many };
    let message = format!("Too many: {found}: must have at most {limit} {unit}");
    error(path, "FieldValueTooMany", message)
}

fn wanted_type(node: &Node) -> Option<String> {
    if node.int_or_string {
        return Some("integer,string".to_owned());
    }
    node.kind.map(|kind| kind.name().to_owned())
}

/// The wanted type, if the value has another.
pub(super) fn wrong_type(node: &Node, value: &Value) -> Option<String> {
    let fits = if node.int_or_string {
        value.is_string() || is_integer(value)
    } else {
        match node.kind? {
            Type::Object => value.is_object(),
            Type::Array => value.is_array(),
            Type::String => value.is_string(),
            Type::Integer => is_integer(value),
            Type::Number => value.is_number(),
            Type::Boolean => value.is_boolean(),
        }
    };
    if fits { None } else { wanted_type(node) }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Equality as JSON sees it: 1 and 1.0 are the same.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b) == Some(std::cmp::Ordering::Equal),
        _ => a == b,
    }
}

fn compare(a: &Number, b: &Number) -> Option<std::cmp::Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn string(text: &str, checks: &Checks, path: &str, errors: &mut Vec<FieldError>) {
    let value = json!(text);
    let length = text.chars().count();
    if let Some(limit) = checks.max_length.filter(|limit| over(length, *limit)) {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {limit} {unit}");
        errors.push(error(path, "FieldValueTooLong", message));
    }
    if let Some(limit) = checks.min_length.filter(|limit| under(length, *limit)) {
        errors.push(invalid(path, &value, &format!("should be at least {limit} chars long")));
    }
    if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        errors.push(invalid(path, &value, &format!("should match '{pattern}'")));
    }
    if let Some(Format::Text(format, name)) = &checks.format
        && !format.accepts(text)
    {
        let message =
            format!("Invalid value: {value}: {path} in body must be of type {name}: {value}");
        errors.push(error(path, TYPE_INVALID, message));
    }
}

fn number(given: &Number, checks: &Checks, path: &str, errors: &mut Vec<FieldError>) {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let value = Value::Number(given.clone());
    if let Some(Format::Number(name)) = &checks.format
        && &**name == "int32"
        && given.as_i64().is_none_or(|number| i32::try_from(number).is_err())
        && given.as_f64().is_some_and(|number| number.fract() == 0.0)
    {
        let message = format!(
            "Invalid value: \"\": Checked value must be of type integer with format int32 in {path}"
        );
        errors.push(FieldError { field: "<nil>".to_owned(), reason: INVALID, message });
    }
    if let Some(limit) = &checks.maximum {
        match (compare(given, limit), checks.exclusive_maximum) {
            (Some(Greater), false) => errors.push(invalid(
                path,
                &value,
                &format!("should be less than or equal to {limit}"),
            )),
            (Some(Greater | Equal), true) => {
                errors.push(invalid(path, &value, &format!("should be less than {limit}")));
            }
            _ => {}
        }
    }
    if let Some(limit) = &checks.minimum {
        match (compare(given, limit), checks.exclusive_minimum) {
            (Some(Less), false) => errors.push(invalid(
                path,
                &value,
                &format!("should be greater than or equal to {limit}"),
            )),
            (Some(Less | Equal), true) => {
                errors.push(invalid(path, &value, &format!("should be greater than {limit}")));
            }
            _ => {}
        }
    }
    if let Some(factor) = &checks.multiple_of
        && let (Some(number), Some(by)) = (given.as_f64(), factor.as_f64())
        && by > 0.0
        && (number / by).fract() != 0.0
    {
        errors.push(invalid(path, &value, &format!("should be a multiple of {factor}")));
    }
}

fn array(items: &[Value], checks: &Checks, path: &str, errors: &mut Vec<FieldError>) {
    let length = items.len();
    if let Some(limit) = checks.max_items.filter(|limit| over(length, *limit)) {
        errors.push(too_many(path, length, limit, "item", "items"));
    }
    if let Some(limit) = checks.min_items.filter(|limit| under(length, *limit)) {
        errors.push(invalid(path, &json!(length), &format!("should have at least {limit} items")));
    }
}

fn object(members: &Map<String, Value>, checks: &Checks, path: &str, errors: &mut Vec<FieldError>) {
    let length = members.len();
    if let Some(limit) = checks.max_properties.filter(|limit| over(length, *limit)) {
        errors.push(too_many(path, length, limit, "item", "items"));
    }
    if let Some(limit) = checks.min_properties.filter(|limit| under(length, *limit)) {
        errors.push(invalid(
            path,
            &json!(length),
            &format!("should have at least {limit} properties"),
        ));
    }
    for key in &checks.required {
        if !members.contains_key(key) {
            errors.push(FieldError {
                field: child(path, key),
                reason: "FieldValueRequired",
                message: "Required value".to_owned(),
            });
        }
    }
}

fn over(length: usize, limit: u64) -> bool {
    u64::try_from(length).is_ok_and(|length| length > limit)
}

fn under(length: usize, limit: u64) -> bool {
    u64::try_from(length).is_ok_and(|length| length < limit)
}

/// `Duplicate value` for the items of sets and keyed lists.
fn duplicates(
    schema: &Structural,
    value: &Value,
    id: NodeId,
    path: &str,
    errors: &mut Vec<FieldError>,
    depth: usize,
) {
    let Some(node) = schema.node(id).filter(|_| depth <= MAX_OBJECT_DEPTH) else { return };
    match value {
        Value::Array(items) => {
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                if let Some(key) = item_key(&node.list, item)
                    && !seen.insert(key.to_string())
                {
                    let message = format!("Duplicate value: {key}");
                    errors.push(error(&path, "FieldValueDuplicate", message));
                }
                if let Some(below) = node.items {
                    duplicates(schema, item, below, &path, errors, depth + 1);
                }
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                if let Some(below) = node.properties.get(key.as_str()) {
                    duplicates(schema, member, *below, &child(path, key), errors, depth + 1);
                } else if let Additional::Schema(below) = node.additional {
                    let path = format!("{path}[{key}]");
                    duplicates(schema, member, below, &path, errors, depth + 1);
                }
            }
        }
        _ => {}
    }
}

/// What makes an item unique in its list; `None` in atomic lists.
pub(super) fn item_key(list: &ListType, item: &Value) -> Option<Value> {
    match list {
        ListType::Atomic => None,
        ListType::Set => Some(item.clone()),
        ListType::Map(keys) => Some(Value::Object(
            keys.iter()
                .filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())))
                .collect(),
        )),
    }
}
