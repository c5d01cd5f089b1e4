//! Structural schemas of CustomResourceDefinitions, and of built-in kinds where they are known:
//! pruning, defaulting, validation, CEL rules.
//!
//! It works on JSON values and knows nothing of the store or of requests. Whatever the schema or the
//! object, it must not panic and must not recurse without bound.

mod builtin;
mod fill;
mod format;
mod node;
mod parse;
mod prune;
mod rules;
mod typed;
mod validate;

use serde_json::Value;

pub use builtin::{builtin, decode_error};
pub(in crate::api) use builtin::{definition, openapi_generator};
use node::{Node, NodeId};

use super::error::FieldError;

/// A structural schema, read once and used for every object of its kind.
#[derive(Debug)]
pub struct Structural {
    raw: Value,
    /// Node 0 is the root. Nodes of built-in kinds may refer back to each other.
    nodes: Vec<Node>,
}

impl Default for Structural {
    /// The schema that keeps and accepts everything.
    fn default() -> Self {
        let root = Node { preserve: true, ..Node::default() };
        Self { raw: Value::Null, nodes: vec![root] }
    }
}

impl Structural {
    /// Reads `openAPIV3Schema`; the fields of errors are relative to it, as `properties[spec].type`,
    /// and empty for the schema itself.
    ///
    /// # Errors
    /// What is wrong with the schema, as the CRD's author would be told: structural rules, patterns,
    /// defaults that do not fit, CEL rules that do not compile.
    pub fn parse(schema: &Value) -> Result<Self, Vec<FieldError>> {
        parse::crd(schema)
    }

    /// The schema as it was given; `null` for built-in kinds, whose schema is only in OpenAPI
    /// documents.
    pub fn as_value(&self) -> &Value {
        &self.raw
    }

    /// Removes unknown fields; returns their paths in `a.b[0].c` form, sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::unknown_fields(self, object)
    }

    /// Values of the wrong type, as server-side apply tells of them: paths in `a.b[0].c` form and texts.
    pub fn type_errors(&self, object: &Value) -> Vec<(String, String)> {
        typed::type_errors(self, object)
    }

    /// Removes the empty lists and maps that a Go struct leaves out when it is written; for built-in
    /// kinds only.
    pub fn drop_empty(&self, object: &mut Value) {
        builtin::drop_empty(self, object, 0, 0);
    }

    /// Removes nulls that the schema does not allow and fills in defaults.
    pub fn default(&self, object: &mut Value) {
        fill::defaults(self, object);
    }

    /// Checks the object, with CEL rules; `old` is the stored object on an update.
    ///
    /// CEL rules run only on objects whose shape is right; otherwise an error without a field says
    /// that they did not.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::values(self, object);
        if !self.has_rules() {
            return errors;
        }
        if errors.iter().any(validate::blocks_rules) {
            errors.push(rules::not_checked());
        } else {
            rules::check(self, object, old, &mut errors);
        }
        errors
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    fn has_rules(&self) -> bool {
        self.nodes.first().is_some_and(|root| root.rules_below)
    }
}

#[cfg(test)]
mod tests;
