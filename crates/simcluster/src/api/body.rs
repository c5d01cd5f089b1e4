//! Request bodies: JSON, YAML and protobuf become one JSON value.
//!
//! It checks the encoding only; what the value must look like is the write path's business.

use http::HeaderMap;
use serde_json::{Value, json};

use super::canonical::canonical;
use super::error::ApiError;
use super::request::{Query, Request, header_text};
use super::server::{FieldValidation, PatchType, WriteOptions};
use super::{protobuf, request};

/// Reads the body of a POST, PUT or DELETE; an empty one is null.
///
/// # Errors
/// `400` for malformed text, `415` for an encoding that is not known.
pub fn object(request: &Request) -> Result<Value, ApiError> {
    if request.body().is_empty() {
        return Ok(Value::Null);
    }
    match essence(request.headers()) {
        "" | "application/json" | "*/*" => json_text(request.body()),
        "application/yaml" => yaml_text(request.body()),
        "application/vnd.kubernetes.protobuf" => protobuf::decode(request.body()),
        other => Err(unsupported(
            other,
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Reads a JSON body of whatever content type; an empty one is null.
///
/// # Errors
/// `400` for malformed text.
pub fn control(request: &Request) -> Result<Value, ApiError> {
    if request.body().is_empty() { Ok(Value::Null) } else { json_text(request.body()) }
}

/// Reads the body of a PATCH.
///
/// # Errors
/// `400` for malformed text, `415` for an unknown kind of patch.
pub fn patch(request: &Request) -> Result<(PatchType, Value), ApiError> {
    let kind = match essence(request.headers()) {
        "application/json-patch+json" => PatchType::Json,
        "application/merge-patch+json" => PatchType::Merge,
        "application/strategic-merge-patch+json" => PatchType::Strategic,
        "application/apply-patch+yaml" => {
            // Clients mostly send JSON under this name, which is a lot faster to read.
            let value = serde_json::from_slice(request.body()).map(canonical);
            return Ok((PatchType::Apply, value.or_else(|_error| yaml_text(request.body()))?));
        }
        _ => {
            return Err(ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
                .with_details(json!({})));
        }
    };
    Ok((kind, json_text(request.body())?))
}

/// The options of a write, from the query and the User-Agent.
pub fn options(request: &Request, query: &Query, patch: Option<PatchType>) -> WriteOptions {
    let manager = query.get("fieldManager").unwrap_or_else(|| {
        if patch == Some(PatchType::Apply) { "" } else { request::user_agent(request.headers()) }
    });
    WriteOptions {
        field_manager: manager.to_owned(),
        field_validation: match query.get("fieldValidation") {
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            _ => FieldValidation::Warn,
        },
        dry_run: query.get("dryRun") == Some("All"),
        force: query.flag("force"),
    }
}

/// `DeleteOptions`: the body, with what the query says merged in.
///
/// # Errors
/// As [`object`], and `400` for numbers that are none.
pub fn delete_options(request: &Request, query: &Query) -> Result<Value, ApiError> {
    let mut options = object(request)?;
    if !options.is_object() {
        options = json!({});
    }
    if let Some(policy) = query.get("propagationPolicy") {
        options["propagationPolicy"] = json!(policy);
    }
    if let Some(seconds) = query.number("gracePeriodSeconds")? {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    if query.get("orphanDependents").is_some() {
        options["orphanDependents"] = json!(query.flag("orphanDependents"));
    }
    Ok(options)
}

fn essence(headers: &HeaderMap) -> &str {
    header_text(headers, "content-type").split(';').next().unwrap_or_default().trim()
}

fn json_text(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map(canonical).map_err(|error| {
        ApiError::new(
            400,
            "BadRequest",
            format!("the object provided is unrecognized (must be of type JSON): {error}"),
        )
    })
}

fn yaml_text(body: &[u8]) -> Result<Value, ApiError> {
    serde_saphyr::from_slice(body).map(canonical).map_err(|error| {
        ApiError::new(400, "BadRequest", format!("error converting YAML to JSON: {error}"))
    })
}

fn unsupported(found: &str, accepted: &str) -> ApiError {
    ApiError::new(
        415,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format ({found}) - accepted media types include: {accepted}"
        ),
    )
}
