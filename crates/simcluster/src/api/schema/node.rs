//! The nodes of a structural schema.
//!
//! Only data: what a node means is in the modules that walk it.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Number, Value};

use super::format::Format;
use super::rules::Rules;

/// Index of a node in its schema.
pub(super) type NodeId = usize;

/// How deep schemas may nest; also the limit of kube-cel.
pub(super) const MAX_SCHEMA_DEPTH: usize = 64;

/// How deep objects are followed through schemas that refer to themselves.
pub(super) const MAX_OBJECT_DEPTH: usize = 128;

/// `type` of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// The schema of keys that are not in `properties`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Additional {
    /// Unknown keys are unknown fields.
    #[default]
    None,
    /// `additionalProperties: true`: any value, of which nothing below is known.
    Any,
    /// Every value follows this schema.
    Schema(NodeId),
}

/// `x-kubernetes-list-type` with its keys.
#[derive(Debug, Default)]
pub(super) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// One node of a schema.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) kind: Option<Type>,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    pub(super) preserve: bool,
    pub(super) embedded: bool,
    /// `x-kubernetes-map-type: atomic`: members have no counterpart in the old object.
    pub(super) atomic_map: bool,
    /// Whether this node or one below has CEL rules.
    pub(super) rules_below: bool,
    pub(super) properties: BTreeMap<Box<str>, NodeId>,
    pub(super) additional: Additional,
    pub(super) items: Option<NodeId>,
    pub(super) list: ListType,
    pub(super) default: Option<Value>,
    pub(super) checks: Option<Box<Checks>>,
    pub(super) rules: Option<Box<Rules>>,
}

/// Value checks, which few nodes have.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) required: Vec<String>,
    pub(super) allowed: Option<Vec<Value>>,
    pub(super) format: Option<Format>,
    pub(super) minimum: Option<Number>,
    pub(super) exclusive_minimum: bool,
    pub(super) maximum: Option<Number>,
    pub(super) exclusive_maximum: bool,
    pub(super) multiple_of: Option<Number>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) pattern: Option<Regex>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) all_of: Vec<NodeId>,
    pub(super) any_of: Vec<NodeId>,
    pub(super) one_of: Vec<NodeId>,
    pub(super) not: Option<NodeId>,
}

impl Node {
    /// The schema of a member of an object.
    pub(super) fn member(&self, key: &str) -> Option<NodeId> {
        self.properties.get(key).copied().or(match self.additional {
            Additional::Schema(id) => Some(id),
            Additional::None | Additional::Any => None,
        })
    }
}
