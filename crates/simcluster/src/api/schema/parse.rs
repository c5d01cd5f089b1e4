//! Reading `openAPIV3Schema` into nodes, with the rules for structural schemas.
//!
//! It reports everything that is wrong at once and must not accept a schema that cannot be enforced.

use regex::RegexBuilder;
use serde_json::{Map, Value, json};

use super::format::Format;
use super::node::{Additional, Checks, ListType, MAX_SCHEMA_DEPTH, Node, NodeId, Type};
use super::{Structural, fill, prune, rules, validate};
use crate::api::error::FieldError;

/// Compiled patterns above this many bytes are refused, as a guard against `a{1000}{1000}`.
const PATTERN_BYTES: usize = 1 << 20;

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
    /// Inside `allOf`, `anyOf`, `oneOf` or `not`, where only values may be constrained.
    Nested,
    /// The same, where `type` is allowed because it spells out int-or-string.
    IntOrString,
}

impl Level {
    const fn is_nested(self) -> bool {
        matches!(self, Self::Nested | Self::IntOrString)
    }
}

/// Reads the schema of a CRD version.
pub(super) fn crd(schema: &Value) -> Result<Structural, Vec<FieldError>> {
    let mut parser =
        Parser { schema: Structural { raw: Value::Null, nodes: Vec::new() }, errors: Vec::new() };
    parser.node(schema, "", Level::Root, 0);
    if parser.errors.is_empty() {
        parser.defaults();
    }
    if parser.errors.is_empty() {
        parser.schema.raw = schema.clone();
        Ok(parser.schema)
    } else {
        for error in &mut parser.errors {
            error.field = error.field.trim_start_matches('.').to_owned();
        }
        parser.errors.sort_by(|a, b| a.field.cmp(&b.field));
        Err(parser.errors)
    }
}

struct Parser {
    schema: Structural,
    errors: Vec<FieldError>,
}

impl Parser {
    fn invalid(&mut self, field: String, value: &Value, detail: &str) {
        let message = format!("Invalid value: {value}: {detail}");
        self.errors.push(FieldError { field, reason: "FieldValueInvalid", message });
    }

    fn forbidden(&mut self, field: String, detail: &str) {
        let message = format!("Forbidden: {detail}");
        self.errors.push(FieldError { field, reason: "FieldValueForbidden", message });
    }

    fn required(&mut self, field: String, detail: &str) {
        let message = format!("Required value: {detail}");
        self.errors.push(FieldError { field, reason: "FieldValueRequired", message });
    }

    /// Reads one node and those below it.
    fn node(&mut self, schema: &Value, path: &str, level: Level, depth: usize) -> NodeId {
        let id = self.schema.nodes.len();
        self.schema.nodes.push(Node::default());
        if depth > MAX_SCHEMA_DEPTH {
            self.forbidden(path.to_owned(), "schemas must not nest more than 64 levels deep");
            return id;
        }
        let Some(schema) = schema.as_object() else {
            self.invalid(path.to_owned(), schema, "must be an object");
            return id;
        };
        let mut node = Node {
            kind: self.kind(schema, path, level),
            nullable: flag(schema, "nullable"),
            int_or_string: flag(schema, "x-kubernetes-int-or-string"),
            preserve: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(schema, "x-kubernetes-embedded-resource"),
            atomic_map: schema.get("x-kubernetes-map-type") == Some(&json!("atomic")),
            default: schema.get("default").cloned(),
            ..Node::default()
        };
        self.structural_rules(schema, &node, path, level);
        self.below(schema, &mut node, path, level, depth);
        node.list = self.list_type(schema, path);
        node.checks = self.checks(schema, &node, path, level, depth).map(Box::new);
        if !level.is_nested() {
            match rules::compile(schema, path) {
                Ok(rules) => node.rules = rules.map(Box::new),
                Err(errors) => self.errors.extend(errors),
            }
        }
        node.rules_below = node.rules.is_some()
            || node.properties.values().chain(&node.items).any(|id| self.has_rules(*id))
            || matches!(node.additional, Additional::Schema(id) if self.has_rules(id));
        if let Some(slot) = self.schema.nodes.get_mut(id) {
            *slot = node;
        }
        id
    }

    fn has_rules(&self, id: NodeId) -> bool {
        self.schema.node(id).is_some_and(|node| node.rules_below)
    }

    fn kind(&mut self, schema: &Map<String, Value>, path: &str, level: Level) -> Option<Type> {
        let value = schema.get("type").filter(|value| *value != "")?;
        let field = format!("{path}.type");
        let Some(kind) = value.as_str().and_then(Type::from_name) else {
            let message = format!(
                "Unsupported value: {value}: supported values: \"array\", \"boolean\", \"integer\", \
                 \"number\", \"object\", \"string\""
            );
            self.errors.push(FieldError { field, reason: "FieldValueNotSupported", message });
            return None;
        };
        if level == Level::Nested {
            self.forbidden(field, "must be empty to be structural");
        }
        Some(kind)
    }

    fn structural_rules(
        &mut self,
        schema: &Map<String, Value>,
        node: &Node,
        path: &str,
        level: Level,
    ) {
        if level.is_nested() {
            for key in [
                "additionalProperties",
                "default",
                "title",
                "description",
                "nullable",
                "x-kubernetes-preserve-unknown-fields",
                "x-kubernetes-embedded-resource",
                "x-kubernetes-int-or-string",
                "x-kubernetes-list-map-keys",
                "x-kubernetes-list-type",
                "x-kubernetes-map-type",
            ] {
                if schema.contains_key(key) {
                    self.forbidden(format!("{path}.{key}"), "must be undefined to be structural");
                }
            }
            return;
        }
        for key in ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems"] {
            if schema.contains_key(key) {
                self.forbidden(format!("{path}.{key}"), &format!("{key} is not supported"));
            }
        }
        if flag(schema, "uniqueItems") {
            self.forbidden(
                format!("{path}.uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
        let field = format!("{path}.type");
        match (node.kind, level) {
            (None, Level::Root) => self.required(field, "must not be empty at the root"),
            (None, Level::Item) if !node.int_or_string && !node.preserve => {
                self.required(field, "must not be empty for specified array items");
            }
            (None, Level::Field) if !node.int_or_string && !node.preserve => {
                self.required(field, "must not be empty for specified object fields");
            }
            (Some(kind), Level::Root) if kind != Type::Object => {
                self.invalid(field, &json!(kind.name()), "must be object at the root");
            }
            (Some(kind), _) if node.embedded && kind != Type::Object => self.invalid(
                field,
                &json!(kind.name()),
                "must be object if x-kubernetes-embedded-resource is true",
            ),
            _ => {}
        }
        if node.kind == Some(Type::Array) && !schema.contains_key("items") {
            self.required(format!("{path}.items"), "must be specified");
        }
        if node.int_or_string && node.preserve {
            self.invalid(
                format!("{path}.x-kubernetes-preserve-unknown-fields"),
                &json!(true),
                "must be false if x-kubernetes-int-or-string is true",
            );
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties").filter(|value| **value != json!(false));
        if additional.is_some() {
            let field = format!("{path}.additionalProperties");
            if level == Level::Root {
                self.forbidden(field, "must not be used at the root");
            } else if node.embedded {
                self.forbidden(field, "must not be used if x-kubernetes-embedded-resource is set");
            } else if properties.is_some_and(|properties| !properties.is_empty()) {
                self.forbidden(field, "additionalProperties and properties are mutual exclusive");
            }
        }
        if node.embedded && !node.preserve && properties.is_none_or(Map::is_empty) {
            self.required(
                format!("{path}.properties"),
                "must not be empty if x-kubernetes-embedded-resource is true without \
                 x-kubernetes-preserve-unknown-fields",
            );
        }
        if level == Level::Root {
            self.root_metadata(properties, path);
        }
    }

    /// The root's metadata is implicit: a schema may only constrain the name.
    fn root_metadata(&mut self, properties: Option<&Map<String, Value>>, path: &str) {
        let Some(metadata) = properties.and_then(|properties| properties.get("metadata")) else {
            return;
        };
        let field = format!("{path}.properties[metadata]");
        if metadata.get("type").is_some_and(|kind| kind != "object") {
            self.invalid(format!("{field}.type"), &metadata["type"], "must be object");
        }
        let extra = metadata
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|known| known.keys().any(|key| key != "name" && key != "generateName"));
        if extra {
            self.forbidden(
                field,
                "must not specify anything other than name and generateName, but metadata is \
                 implicitly specified",
            );
        }
    }

    fn below(
        &mut self,
        schema: &Map<String, Value>,
        node: &mut Node,
        path: &str,
        level: Level,
        depth: usize,
    ) {
        let nested = level.is_nested();
        match schema.get("properties") {
            None | Some(Value::Null) => {}
            Some(Value::Object(properties)) => {
                for (key, below) in properties {
                    let path = format!("{path}.properties[{key}]");
                    let level = if nested { Level::Nested } else { Level::Field };
                    let id = self.node(below, &path, level, depth + 1);
                    node.properties.insert(key.as_str().into(), id);
                }
            }
            Some(other) => {
                self.invalid(format!("{path}.properties"), other, "must be an object");
            }
        }
        match schema.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::Bool(true)) => node.additional = Additional::Any,
            Some(below) => {
                let path = format!("{path}.additionalProperties");
                let level = if nested { Level::Nested } else { Level::Field };
                node.additional = Additional::Schema(self.node(below, &path, level, depth + 1));
            }
        }
        if let Some(below) = schema.get("items").filter(|value| !value.is_null()) {
            let path = format!("{path}.items");
            if below.is_array() {
                self.forbidden(path, "items must be a schema object and not an array");
            } else {
                let level = if nested { Level::Nested } else { Level::Item };
                node.items = Some(self.node(below, &path, level, depth + 1));
            }
        }
    }

    fn list_type(&mut self, schema: &Map<String, Value>, path: &str) -> ListType {
        let field = format!("{path}.x-kubernetes-list-map-keys");
        let keys: Vec<String> = strings(schema.get("x-kubernetes-list-map-keys"));
        match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("map") => {
                if keys.is_empty() {
                    self.required(field, "must not be empty if x-kubernetes-list-type is map");
                }
                let properties = schema.get("items").and_then(|items| items.get("properties"));
                for (index, key) in keys.iter().enumerate() {
                    if properties.is_none_or(|properties| properties.get(key).is_none()) {
                        self.invalid(
                            format!("{path}.x-kubernetes-list-map-keys[{index}]"),
                            &json!(key),
                            "entries must all be names of item properties",
                        );
                    }
                }
                ListType::Map(keys)
            }
            other => {
                if !keys.is_empty() {
                    self.forbidden(field, "must not be set unless x-kubernetes-list-type is map");
                }
                match other {
                    Some("set") => ListType::Set,
                    Some("atomic") | None => ListType::Atomic,
                    Some(other) => {
                        let message = format!(
                            "Unsupported value: {}: supported values: \"atomic\", \"map\", \"set\"",
                            json!(other)
                        );
                        self.errors.push(FieldError {
                            field: format!("{path}.x-kubernetes-list-type"),
                            reason: "FieldValueNotSupported",
                            message,
                        });
                        ListType::Atomic
                    }
                }
            }
        }
    }

    /// `None` if the node has no checks.
    fn checks(
        &mut self,
        schema: &Map<String, Value>,
        node: &Node,
        path: &str,
        level: Level,
        depth: usize,
    ) -> Option<Checks> {
        let number = |key: &str| schema.get(key).and_then(Value::as_number).cloned();
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let mut checks = Checks {
            required: strings(schema.get("required")),
            allowed: schema.get("enum").and_then(Value::as_array).cloned(),
            format: schema.get("format").and_then(Value::as_str).and_then(Format::from_name),
            minimum: number("minimum"),
            exclusive_minimum: flag(schema, "exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag(schema, "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: None,
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            ..Checks::default()
        };
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
            match RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).build() {
                Ok(regex) => checks.pattern = Some(regex),
                Err(error) => self.invalid(
                    format!("{path}.pattern"),
                    &json!(pattern),
                    &format!("must be a valid regular expression, but isn't: {error}"),
                ),
            }
        }
        let spelled_out = node.int_or_string || level == Level::IntOrString;
        for key in ["allOf", "anyOf", "oneOf"] {
            let Some(branches) = schema.get(key).and_then(Value::as_array) else { continue };
            let level = if spelled_out { Level::IntOrString } else { Level::Nested };
            let ids = branches
                .iter()
                .enumerate()
                .map(|(index, branch)| {
                    self.node(branch, &format!("{path}.{key}[{index}]"), level, depth + 1)
                })
                .collect();
            match key {
                "allOf" => checks.all_of = ids,
                "anyOf" => checks.any_of = ids,
                _ => checks.one_of = ids,
            }
        }
        if let Some(not) = schema.get("not").filter(|value| !value.is_null()) {
            checks.not = Some(self.node(not, &format!("{path}.not"), Level::Nested, depth + 1));
        }
        let used = ["required", "enum", "format", "minimum", "maximum", "multipleOf", "minLength"]
            .into_iter()
            .chain(["maxLength", "pattern", "minItems", "maxItems", "minProperties"])
            .chain(["maxProperties", "allOf", "anyOf", "oneOf", "not"])
            .any(|key| schema.contains_key(key));
        used.then_some(checks)
    }

    /// Checks the default values against their own schemas and drops nulls that cannot stay.
    fn defaults(&mut self) {
        for id in 0..self.schema.nodes.len() {
            let Some(mut value) = self.schema.node(id).and_then(|node| node.default.clone()) else {
                continue;
            };
            let field = format!("{}.default", self.path_of(id));
            let given = value.clone();
            let unknown = prune::below(&self.schema, &mut value, id);
            if !unknown.is_empty() {
                self.invalid(field, &given, &format!("has unknown fields: {}", unknown.join(", ")));
                continue;
            }
            fill::below(&self.schema, &mut value, id);
            let errors = validate::below(&self.schema, &value, id);
            if let Some(error) = errors.first() {
                let within = if error.field == "<nil>" {
                    error.message.clone()
                } else {
                    format!("{}: {}", error.field, error.message)
                };
                self.invalid(field, &given, &within);
                continue;
            }
            if let Some(node) = self.schema.nodes.get_mut(id) {
                node.default = Some(value);
            }
        }
    }

    /// The path of a node, found by search: only errors need it.
    fn path_of(&self, wanted: NodeId) -> String {
        let mut path = String::new();
        let mut id = 0;
        // Nodes are numbered before those below them, so the way leads over the largest id <= wanted.
        while id != wanted {
            let Some(node) = self.schema.node(id) else { break };
            let mut steps: Vec<(NodeId, String)> = node
                .properties
                .iter()
                .map(|(key, id)| (*id, format!(".properties[{key}]")))
                .chain(node.items.map(|id| (id, ".items".to_owned())))
                .collect();
            if let Additional::Schema(id) = node.additional {
                steps.push((id, ".additionalProperties".to_owned()));
            }
            let next = steps.into_iter().filter(|(id, _)| *id <= wanted).max_by_key(|(id, _)| *id);
            let Some((next, step)) = next else { break };
            path.push_str(&step);
            id = next;
        }
        path
    }
}

fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
