//! Server-side printing: the columns and cells that kubectl shows.
//!
//! Pure: an object in, cells out.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::registry::ResourceDef;

/// The `columnDefinitions` of a kind.
pub fn columns(_def: &ResourceDef) -> Vec<Value> {
    vec![
        json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}),
    ]
}

/// The cells of an object, in the order of [`columns`].
pub fn cells(_def: &ResourceDef, object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![object["metadata"]["name"].clone()]
}
