//! JSON Patch and strategic merge patch, as the API server applies them.
//!
//! Pure functions on JSON values; who may patch what is decided elsewhere.

mod operations;
mod strategic;

use serde_json::{Value, json};

use super::error::ApiError;
use super::registry::ResourceDef;

/// How many operations a JSON patch may have.
const MAX_OPERATIONS: usize = 10_000;

/// Applies an RFC 6902 patch.
///
/// As in the real server, a `test` for null passes where nothing is, and negative indices count from
/// the end of a list.
///
/// # Errors
/// `422 Invalid` if an operation cannot be applied, `400` if the patch is not a list of operations,
/// `413` if there are too many.
pub fn json(object: &Value, patch: &Value) -> Result<Value, ApiError> {
    let Value::Array(operations) = patch else {
        return Err(ApiError::new(
            400,
            "BadRequest",
            "the body of a JSON patch must be a list of operations",
        ));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let mut patched = object.clone();
    for operation in operations {
        if operations::apply(&mut patched, operation).is_none() {
            return Err(ApiError::new(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request",
            )
            .with_details(json!({})));
        }
    }
    Ok(patched)
}

/// Applies a strategic merge patch to an object of a built-in kind.
///
/// # Errors
/// `400` for a malformed patch, `415` for a custom resource.
pub fn strategic(def: &ResourceDef, object: &Value, patch: &Value) -> Result<Value, ApiError> {
    if def.custom.is_some() {
        return Err(no_strategic());
    }
    strategic::merge(def, object, patch)
        .map_err(|problem| ApiError::new(400, "BadRequest", problem))
}

/// `415` for a strategic merge patch of a custom resource.
pub(super) fn no_strategic() -> ApiError {
    ApiError::new(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )
}

#[cfg(test)]
mod tests;
