//! Content negotiation: in which shape and encoding an answer is wanted.
//!
//! It turns objects and lists into Tables and PartialObjectMetadata; it selects nothing.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::defaults::TEMPLATE_GENERATION;
use super::error::ApiError;
use super::registry::ResourceDef;
use super::table;

/// The shape of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The objects as they are.
    Object,
    /// `PartialObjectMetadata` and `PartialObjectMetadataList`.
    Metadata,
    /// `Table`, for kubectl.
    Table {
        /// Whether `v1beta1` was asked for, not `v1`.
        beta: bool,
        /// What comes with each row.
        include: Include,
    },
}

/// What comes with each row of a Table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// The cells only.
    Nothing,
    /// The metadata.
    Metadata,
    /// The whole object.
    Object,
}

/// One media type of an `Accept` header.
#[derive(Clone, Debug)]
pub struct MediaType<'a> {
    /// Type and subtype, such as `application/json`.
    pub essence: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaType<'a> {
    /// Reads an `Accept` or `Content-Type` header, in order of appearance.
    pub fn parse_all(header: &'a str) -> impl Iterator<Item = Self> {
        header.split(',').filter(|part| !part.trim().is_empty()).map(|part| {
            let mut pieces = part.split(';').map(str::trim);
            Self {
                essence: pieces.next().unwrap_or_default(),
                params: pieces.filter_map(|piece| piece.split_once('=')).collect(),
            }
        })
    }

    /// A parameter of the media type, or nothing.
    pub fn param(&self, name: &str) -> &'a str {
        self.params.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }
}

impl Shape {
    /// Chooses the shape for an `Accept` header; `include` is the query parameter `includeObject`.
    ///
    /// # Errors
    /// `406` if nothing that is accepted can be produced.
    pub fn negotiate(accept: &str, include: Option<&str>) -> Result<Self, ApiError> {
        if accept.trim().is_empty() {
            return Ok(Self::Object);
        }
        for media in MediaType::parse_all(accept) {
            let json = matches!(
                media.essence,
                "application/json" | "*/*" | "application/*" | "application/json-seq"
            );
            if !json {
                continue;
            }
            match (media.param("as"), media.param("g"), media.param("v")) {
                ("", ..) => return Ok(Self::Object),
                ("Table", "meta.k8s.io", version @ ("v1" | "v1beta1")) => {
                    let include = match include {
                        Some("None") => Include::Nothing,
                        Some("Object") => Include::Object,
                        _ => Include::Metadata,
                    };
                    return Ok(Self::Table { beta: version == "v1beta1", include });
                }
                (
                    "PartialObjectMetadata" | "PartialObjectMetadataList",
                    "meta.k8s.io",
                    "v1" | "v1beta1",
                ) => return Ok(Self::Metadata),
                _ => {}
            }
        }
        Err(ApiError::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        ))
    }

    /// One object in this shape; `columns` says whether a Table repeats its column definitions.
    pub fn object(self, def: &ResourceDef, object: &Value, now: Timestamp, columns: bool) -> Value {
        match self {
            Self::Object => object.clone(),
            Self::Metadata => partial(object),
            Self::Table { beta, include } => {
                let definitions =
                    if columns { Value::Array(table::columns(def)) } else { Value::Null };
                json!({
                    "kind": "Table", "apiVersion": table_version(beta),
                    "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
                    "columnDefinitions": definitions,
                    "rows": [row(def, object, now, include)],
                })
            }
        }
    }

    /// A list in this shape, as JSON text; `metadata` is the ListMeta.
    pub fn list(
        self,
        def: &ResourceDef,
        items: &[Arc<Value>],
        metadata: &Value,
        now: Timestamp,
    ) -> Vec<u8> {
        let mut metadata = metadata.clone();
        // Lists of custom resources always carry the token.
        if def.custom.is_some() && self == Self::Object && metadata["continue"].is_null() {
            metadata["continue"] = json!("");
        }
        let (head, key) = match self {
            Self::Object => (
                json!({"kind": def.list_kind, "apiVersion": def.api_version(), "metadata": metadata}),
                "items",
            ),
            Self::Metadata => (
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}),
                "items",
            ),
            Self::Table { beta, .. } => (
                json!({
                    "kind": "Table", "apiVersion": table_version(beta), "metadata": metadata,
                    "columnDefinitions": table::columns(def),
                }),
                "rows",
            ),
        };
        let mut text = head.to_string().into_bytes();
        text.pop();
        if self == Self::Metadata && items.is_empty() {
            text.extend_from_slice(b",\"items\":null}");
            return text;
        }
        text.extend_from_slice(format!(",\"{key}\":[").as_bytes());
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            let written = match self {
                Self::Object if def.custom.is_none() => {
                    serde_json::to_writer(&mut text, &Untyped(item))
                }
                Self::Object => serde_json::to_writer(&mut text, item.as_ref()),
                Self::Metadata => serde_json::to_writer(&mut text, &partial(item)),
                Self::Table { include, .. } => {
                    serde_json::to_writer(&mut text, &row(def, item, now, include))
                }
            };
            debug_assert!(written.is_ok(), "a JSON value can be written to memory");
        }
        text.extend_from_slice(b"]}");
        text
    }
}

/// An item of a list of a built-in kind: only the list says what it is.
struct Untyped<'a>(&'a Value);

impl Serialize for Untyped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => serializer.collect_map(
                members.iter().filter(|(key, _value)| *key != "apiVersion" && *key != "kind"),
            ),
            other => other.serialize(serializer),
        }
    }
}

fn table_version(beta: bool) -> &'static str {
    if beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
}

fn partial(object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    // The annotation is made when a whole DaemonSet is shown.
    if object["kind"] == "DaemonSet"
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(TEMPLATE_GENERATION);
        if annotations.is_empty() {
            metadata.as_object_mut().map(|metadata| metadata.remove("annotations"));
        }
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn row(def: &ResourceDef, object: &Value, now: Timestamp, include: Include) -> Value {
    let mut row = json!({"cells": table::cells(def, object, now)});
    match include {
        Include::Nothing => row["object"] = Value::Null,
        Include::Metadata => row["object"] = partial(object),
        Include::Object => row["object"] = object.clone(),
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_tables_and_others_get_objects() {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(
            Shape::negotiate(accept, None),
            Ok(Shape::Table { beta: false, include: Include::Metadata })
        );
        assert_eq!(
            Shape::negotiate("application/vnd.kubernetes.protobuf,application/json", None),
            Ok(Shape::Object)
        );
        assert_eq!(Shape::negotiate("", None), Ok(Shape::Object));
        assert_eq!(Shape::negotiate("application/xml", None).unwrap_err().code, 406);
    }
}
