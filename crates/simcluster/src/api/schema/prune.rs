//! Removal of fields that a schema does not know.
//!
//! It must not touch values: a field stays as it is or goes as a whole.

use serde_json::Value;

use super::Structural;
use super::node::{Additional, MAX_OBJECT_DEPTH, NodeId};

const ROOT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The fields of ObjectMeta.
const METADATA_FIELDS: [&str; 16] = [
    "annotations",
    "clusterName",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Removes unknown fields and returns their paths, sorted.
pub(super) fn unknown_fields(schema: &Structural, object: &mut Value) -> Vec<String> {
    let mut pruner = Pruner { schema, path: String::new(), unknown: Vec::new() };
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let unknown: Vec<String> = metadata
            .keys()
            .filter(|key| !METADATA_FIELDS.contains(&key.as_str()))
            .cloned()
            .collect();
        for key in unknown {
            metadata.remove(&key);
            pruner.unknown.push(format!("metadata.{key}"));
        }
    }
    pruner.value(object, Some(0), true, 0);
    pruner.unknown.sort();
    pruner.unknown
}

/// The same below node `id`, for the default values of the schema itself.
pub(super) fn below(schema: &Structural, value: &mut Value, id: NodeId) -> Vec<String> {
    let mut pruner = Pruner { schema, path: String::new(), unknown: Vec::new() };
    pruner.value(value, Some(id), false, 0);
    pruner.unknown.sort();
    pruner.unknown
}

struct Pruner<'a> {
    schema: &'a Structural,
    path: String,
    unknown: Vec<String>,
}

impl Pruner<'_> {
    /// `id` is `None` below a place where no field is known.
    fn value(&mut self, value: &mut Value, id: Option<NodeId>, root: bool, depth: usize) {
        if depth > MAX_OBJECT_DEPTH {
            return;
        }
        let schema = self.schema;
        let node = id.and_then(|id| schema.node(id));
        let length = self.path.len();
        match value {
            Value::Object(members) => {
                let preserve = node.is_some_and(|node| node.preserve);
                let resource = root || node.is_some_and(|node| node.embedded);
                let mut gone = Vec::new();
                for (key, member) in members.iter_mut() {
                    if resource && ROOT_FIELDS.contains(&key.as_str()) {
                        continue;
                    }
                    let below = node.and_then(|node| {
                        node.member(key).map(Some).or(match node.additional {
                            Additional::Any if !preserve => Some(None),
                            _ => None,
                        })
                    });
                    match below {
                        Some(id) => {
                            self.push_key(key);
                            self.value(member, id, false, depth + 1);
                            self.path.truncate(length);
                        }
                        None if preserve => {}
                        None => gone.push(key.clone()),
                    }
                }
                for key in gone {
                    members.remove(&key);
                    self.push_key(&key);
                    self.unknown.push(self.path.clone());
                    self.path.truncate(length);
                }
            }
            Value::Array(items) => {
                let below = node.and_then(|node| node.items);
                if below.is_none() && node.is_some_and(|node| node.preserve) {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{index}]"));
                    self.value(item, below, false, depth + 1);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn push_key(&mut self, key: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(key);
    }
}
