//! Defaults, and the nulls that make room for them.
//!
//! A null where the schema allows none is the same as an absent field: it goes, or becomes the default.

use serde_json::Value;

use super::Structural;
use super::node::{MAX_OBJECT_DEPTH, NodeId};

/// Removes nulls that are neither allowed nor defaulted, then fills in defaults.
pub(super) fn defaults(schema: &Structural, object: &mut Value) {
    below(schema, object, 0);
}

/// The same below node `id`, for the default values of the schema itself.
pub(super) fn below(schema: &Structural, value: &mut Value, id: NodeId) {
    drop_nulls(schema, value, id, 0);
    fill(schema, value, id, 0);
}

fn drop_nulls(schema: &Structural, value: &mut Value, id: NodeId, depth: usize) {
    let Some(node) = schema.node(id).filter(|_| depth <= MAX_OBJECT_DEPTH) else { return };
    match value {
        Value::Object(members) => {
            members.retain(|key, member| {
                let Some(below) = node.member(key) else { return true };
                if member.is_null() {
                    return schema
                        .node(below)
                        .is_none_or(|node| node.nullable || node.default.is_some());
                }
                drop_nulls(schema, member, below, depth + 1);
                true
            });
        }
        Value::Array(items) => {
            let Some(below) = node.items else { return };
            for item in items {
                drop_nulls(schema, item, below, depth + 1);
            }
        }
        _ => {}
    }
}

fn fill(schema: &Structural, value: &mut Value, id: NodeId, depth: usize) {
    let Some(node) = schema.node(id).filter(|_| depth <= MAX_OBJECT_DEPTH) else { return };
    match value {
        Value::Object(members) => {
            for (key, below) in &node.properties {
                let Some(below) = schema.node(*below) else { continue };
                let Some(default) = &below.default else { continue };
                let wanted = match members.get(&**key) {
                    None => true,
                    Some(member) => member.is_null() && !below.nullable,
                };
                if wanted {
                    members.insert(key.to_string(), default.clone());
                }
            }
            for (key, member) in members {
                if let Some(below) = node.member(key) {
                    replace_null(schema, member, below);
                    fill(schema, member, below, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = node.items else { return };
            for item in items {
                replace_null(schema, item, below);
                fill(schema, item, below, depth + 1);
            }
        }
        _ => {}
    }
}

fn replace_null(schema: &Structural, value: &mut Value, id: NodeId) {
    let Some(node) = schema.node(id) else { return };
    if let Some(default) = node.default.as_ref().filter(|_| value.is_null() && !node.nullable) {
        *value = default.clone();
    }
}
