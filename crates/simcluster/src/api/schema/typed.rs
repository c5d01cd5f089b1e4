//! Values whose type is another than the schema's, as server-side apply tells of them.
//!
//! Validation words the same mistakes differently; the two have nothing in common but the schema.

use serde_json::Value;

use super::Structural;
use super::node::{MAX_OBJECT_DEPTH, NodeId, Type};

/// What is wrong with the types in `object`: paths in `a.b[0].c` form, with texts.
pub(super) fn type_errors(schema: &Structural, object: &Value) -> Vec<(String, String)> {
    let mut errors = Vec::new();
    below(schema, object, 0, &mut String::new(), &mut errors, 0);
    errors
}

fn below(
    schema: &Structural,
    value: &Value,
    id: NodeId,
    path: &mut String,
    errors: &mut Vec<(String, String)>,
    depth: usize,
) {
    let Some(node) = schema.node(id).filter(|_| depth <= MAX_OBJECT_DEPTH) else { return };
    if value.is_null() {
        return;
    }
    let wrong = match (node.kind, value) {
        _ if node.int_or_string => (value.is_object() || value.is_array())
            .then(|| format!("expected any scalar, got {}", printed(value))),
        (Some(Type::Object), value) if !value.is_object() => {
            Some(format!("expected map, got {}", printed(value)))
        }
        (Some(Type::Array), value) if !value.is_array() => {
            Some(format!("expected list, got {}", printed(value)))
        }
        (Some(Type::Integer | Type::Number), value) if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", go_type(value)))
        }
        (Some(Type::String), value) if !value.is_string() => {
            let text = printed(value);
            let inner = text.trim_start_matches("&{").trim_end_matches('}');
            Some(format!("expected string, got &value.valueUnstructured{{Value:{inner}}}"))
        }
        (Some(Type::Boolean), value) if !value.is_boolean() => {
            Some(format!("expected boolean, got {}", printed(value)))
        }
        _ => None,
    };
    if let Some(wrong) = wrong {
        errors.push((path.clone(), wrong));
        return;
    }
    let length = path.len();
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let Some(id) = node.member(key) else { continue };
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                below(schema, member, id, path, errors, depth + 1);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let Some(id) = node.items else { return };
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                below(schema, item, id, path, errors, depth + 1);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// A value as Go prints the struct that holds it.
fn printed(value: &Value) -> String {
    format!("&{{{}}}", plain(value))
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" "))
        }
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            format!("map[{}]", members.join(" "))
        }
        other => other.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
