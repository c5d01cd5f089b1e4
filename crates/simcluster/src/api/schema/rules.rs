//! CEL rules (`x-kubernetes-validations`): compiled once with the schema, run on whole objects.
//!
//! kube-cel evaluates; which node, which old value and which path a rule sees is decided here, as the
//! API server does: list items have an old value only by their keys.

use kube_cel::cel::common::ast::{Expr, IdedExpr};
use kube_cel::{CompiledSchema, ErrorKind, ValidationError};
use serde_json::{Map, Value, json};

use super::Structural;
use super::node::{Additional, ListType, MAX_OBJECT_DEPTH, MAX_SCHEMA_DEPTH, NodeId, Type};
use super::validate::{child, item_key};
use crate::api::error::FieldError;

/// The compiled rules of one node.
#[derive(Debug)]
pub(super) struct Rules {
    compiled: CompiledSchema,
}

/// Names that are types, macros or libraries of CEL, not variables.
const CEL_NAMES: [&str; 26] = [
    "base64",
    "bool",
    "bytes",
    "cidr",
    "double",
    "duration",
    "dyn",
    "format",
    "google",
    "int",
    "ip",
    "jsonpatch",
    "list",
    "map",
    "math",
    "net",
    "null_type",
    "optional",
    "optional_type",
    "quantity",
    "semver",
    "sets",
    "string",
    "timestamp",
    "type",
    "uint",
];

/// Compiles the rules at a schema node; `None` if it has none.
pub(super) fn compile(
    schema: &Map<String, Value>,
    path: &str,
) -> Result<Option<Rules>, Vec<FieldError>> {
    let rules = match schema.get("x-kubernetes-validations") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(rules)) if rules.is_empty() => return Ok(None),
        Some(Value::Array(rules)) => rules,
        Some(other) => {
            return Err(vec![FieldError {
                field: format!("{path}.x-kubernetes-validations"),
                reason: "FieldValueTypeInvalid",
                message: format!("Invalid value: {other}: must be a list of rules"),
            }]);
        }
    };
    let mut skeleton = skeleton(schema, 0).unwrap_or_else(|| json!({}));
    skeleton["x-kubernetes-validations"] = json!(rules);
    let compiled = kube_cel::compile_schema(&skeleton);
    let mut errors = Vec::new();
    for (index, (rule, result)) in rules.iter().zip(&compiled.validations).enumerate() {
        let field = format!("{path}.x-kubernetes-validations[{index}].rule");
        let detail = match result {
            Err(error) => Some(error.to_string()),
            Ok(compiled) => undeclared(compiled.program.expression(), &mut Vec::new()),
        };
        if compiled_text(rule).is_empty() {
            errors.push(FieldError {
                field,
                reason: "FieldValueRequired",
                message: "Required value: rule is not specified".to_owned(),
            });
        } else if let Some(detail) = detail {
            errors.push(FieldError {
                field,
                reason: "FieldValueInvalid",
                message: format!("Invalid value: {rule}: compilation failed: {detail}"),
            });
        }
    }
    if errors.is_empty() { Ok(Some(Rules { compiled })) } else { Err(errors) }
}

fn compiled_text(rule: &Value) -> &str {
    rule.get("rule").and_then(Value::as_str).unwrap_or_default().trim()
}

/// The first variable that rules of CRDs do not have.
fn undeclared(expression: &IdedExpr, bound: &mut Vec<String>) -> Option<String> {
    match &expression.expr {
        Expr::Ident(name) => {
            let known = name.starts_with('@')
                || matches!(name.as_str(), "self" | "oldSelf" | "apiVersion" | "apiGroup" | "kind")
                || CEL_NAMES.contains(&name.as_str())
                || bound.contains(name);
            (!known).then(|| format!("undeclared reference to '{name}'"))
        }
        Expr::Call(call) => call
            .target
            .iter()
            .map(|target| &**target)
            .chain(&call.args)
            .find_map(|part| undeclared(part, bound)),
        Expr::Select(select) => undeclared(&select.operand, bound),
        Expr::List(list) => list.elements.iter().find_map(|part| undeclared(part, bound)),
        Expr::Comprehension(loop_) => {
            if let Some(found) = undeclared(&loop_.iter_range, bound) {
                return Some(found);
            }
            let outer = bound.len();
            bound.push(loop_.iter_var.clone());
            bound.extend(loop_.iter_var2.clone());
            bound.push(loop_.accu_var.clone());
            let found = [&loop_.accu_init, &loop_.loop_cond, &loop_.loop_step, &loop_.result]
                .into_iter()
                .find_map(|part| undeclared(part, bound));
            bound.truncate(outer);
            found
        }
        _ => None,
    }
}

/// The parts of a schema that decide how JSON becomes CEL values; `None` if nothing does.
fn skeleton(schema: &Map<String, Value>, depth: usize) -> Option<Value> {
    if depth > MAX_SCHEMA_DEPTH {
        return None;
    }
    let below = |value: &Value| skeleton(value.as_object()?, depth + 1);
    let mut kept = Map::new();
    for key in ["format", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource"] {
        if let Some(value) = schema.get(key) {
            kept.insert(key.to_owned(), value.clone());
        }
    }
    match schema.get("additionalProperties") {
        None | Some(Value::Bool(false)) => {}
        Some(value) => {
            kept.insert(
                "additionalProperties".to_owned(),
                below(value).unwrap_or_else(|| json!({})),
            );
        }
    }
    if let Some(items) = schema.get("items").and_then(below) {
        kept.insert("items".to_owned(), items);
    }
    let properties: Map<String, Value> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), below(value)?)))
        .collect();
    if !properties.is_empty() {
        kept.insert("properties".to_owned(), Value::Object(properties));
    }
    (!kept.is_empty()).then_some(Value::Object(kept))
}

/// The error that stands for the rules that could not run.
pub(super) fn not_checked() -> FieldError {
    FieldError {
        field: "<nil>".to_owned(),
        reason: "FieldValueInvalid",
        message: "Invalid value: null: some validation rules were not checked because the object \
                  was invalid; correct the existing errors to complete validation"
            .to_owned(),
    }
}

/// Runs all rules.
pub(super) fn check(
    schema: &Structural,
    object: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    node(schema, object, old, 0, "", errors, 0);
}

fn node(
    schema: &Structural,
    value: &Value,
    old: Option<&Value>,
    id: NodeId,
    path: &str,
    errors: &mut Vec<FieldError>,
    depth: usize,
) {
    let Some(node_schema) = schema.node(id).filter(|node| node.rules_below) else { return };
    // A rule sees only values: what may be null is for the rules around it.
    if value.is_null() || depth > MAX_OBJECT_DEPTH {
        return;
    }
    let old = old.filter(|old| !old.is_null());
    if let Some(rules) = &node_schema.rules
        && let Err(failed) = kube_cel::validate_compiled(&rules.compiled, value, old)
    {
        let scalar = !matches!(node_schema.kind, Some(Type::Object | Type::Array));
        errors.extend(failed.iter().map(|failure| field_error(failure, path, value, scalar)));
    }
    match value {
        Value::Object(members) => {
            let old = old.filter(|_| !node_schema.atomic_map);
            for (key, member) in members {
                let old = old.and_then(|old| old.get(key));
                if let Some(below) = node_schema.properties.get(key.as_str()) {
                    node(schema, member, old, *below, &child(path, key), errors, depth + 1);
                } else if let Additional::Schema(below) = node_schema.additional {
                    let path = format!("{path}[{key}]");
                    node(schema, member, old, below, &path, errors, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = node_schema.items else { return };
            let old_items = old.and_then(Value::as_array);
            for (index, item) in items.iter().enumerate() {
                let old = old_items.and_then(|old| counterpart(&node_schema.list, item, old));
                let path = format!("{path}[{index}]");
                node(schema, item, old, below, &path, errors, depth + 1);
            }
        }
        _ => {}
    }
}

/// The item of the old list with the same keys.
fn counterpart<'a>(list: &ListType, item: &Value, old: &'a [Value]) -> Option<&'a Value> {
    if !matches!(list, ListType::Map(_)) {
        return None;
    }
    let key = item_key(list, item)?;
    old.iter().find(|old| item_key(list, old).as_ref() == Some(&key))
}

fn field_error(failure: &ValidationError, path: &str, value: &Value, scalar: bool) -> FieldError {
    let below = failure.field_path.trim_start_matches('.').replace("['", "[").replace("']", "]");
    let field = match (path.is_empty(), below.is_empty()) {
        (_, true) => path.to_owned(),
        (true, false) => below,
        (false, false) if below.starts_with('[') => format!("{path}{below}"),
        (false, false) => format!("{path}.{below}"),
    };
    let field = if field.is_empty() { "<nil>".to_owned() } else { field };
    let message = &failure.message;
    if failure.kind != ErrorKind::ValidationFailure {
        return FieldError {
            field,
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {message} (rule: {})", failure.rule),
        };
    }
    let (reason, message) = match failure.reason.as_deref() {
        Some("FieldValueForbidden") => ("FieldValueForbidden", format!("Forbidden: {message}")),
        Some("FieldValueRequired") => ("FieldValueRequired", format!("Required value: {message}")),
        Some("FieldValueDuplicate") => {
            ("FieldValueDuplicate", format!("Duplicate value: {value}: {message}"))
        }
        _ if scalar => ("FieldValueInvalid", format!("Invalid value: {value}: {message}")),
        _ => ("FieldValueInvalid", format!("Invalid value: {message}")),
    };
    FieldError { field, reason, message }
}
