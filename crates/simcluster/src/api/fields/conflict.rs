//! How a failed apply is told to the client.
//!
//! Texts only; what a conflict is, is decided elsewhere.

use serde_json::{Value, json};

use super::managed::Identity;
use super::set::FieldSet;
use crate::api::error::ApiError;
use crate::api::registry::ResourceDef;

/// The fields of one manager that stand against an apply.
#[derive(Debug)]
pub(super) struct Conflict {
    /// Who owns them.
    pub(super) id: Identity,
    /// The fields.
    pub(super) fields: FieldSet,
}

/// `409 Conflict` with a cause per manager and field.
pub(super) fn error(conflicts: &[Conflict]) -> ApiError {
    let described: Vec<(String, Vec<String>)> = conflicts
        .iter()
        .map(|conflict| (conflict.id.describe(), conflict.fields.paths()))
        .collect();
    let causes: Vec<Value> = described
        .iter()
        .flat_map(|(who, paths)| {
            paths.iter().map(move |path| {
                json!({
                    "reason": "FieldManagerConflict",
                    "message": format!("conflict with {who}"),
                    "field": path,
                })
            })
        })
        .collect();
    let message = match described.as_slice() {
        [(who, paths)] if paths.len() == 1 => {
            format!("Apply failed with 1 conflict: conflict with {who}: {}", paths.concat())
        }
        _ => {
            let lines: Vec<String> = described
                .iter()
                .flat_map(|(who, paths)| {
                    std::iter::once(format!("conflicts with {who}:"))
                        .chain(paths.iter().map(|path| format!("- {path}")))
                })
                .collect();
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
        }
    };
    ApiError::new(409, "Conflict", message).with_details(json!({"causes": causes}))
}

/// `500` for a configuration that does not fit the kind's lists.
pub(super) fn untyped(config: &Value, def: &ResourceDef, errors: &[String]) -> ApiError {
    let text = |key: &str| config["metadata"][key].as_str().unwrap_or_default().to_owned();
    let kind = &def.kind;
    let version = def.api_version();
    let errors = match errors {
        [only] => only.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    };
    let message = format!(
        "failed to create typed patch object ({}/{}; {version}, Kind={kind}): {errors}",
        text("namespace"),
        text("name"),
    );
    ApiError::new(500, "", message)
}
