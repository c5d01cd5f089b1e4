//! Sets of field paths, as the `FieldsV1` format of managed fields writes them.
//!
//! Path elements keep the format's spelling: `f:name`, `k:{"key":"value"}`, `v:"item"`, `i:0`. A set
//! knows nothing of values or schemas.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::topology::Topology;

/// A set of field paths. The empty path is never in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    nodes: BTreeMap<String, Node>,
}

/// What a set holds at and below a path element. At least one of both is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// Whether the path that ends here is in the set.
    pub(super) member: bool,
    /// The longer paths.
    pub(super) below: FieldSet,
}

impl Node {
    /// A node for a path that ends here.
    pub(super) fn leaf() -> Self {
        Self { member: true, below: FieldSet::default() }
    }

    /// Whether there is nothing at and below it.
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// Whether no path is in the set.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds what `node` holds under `element`; an empty node adds nothing.
    pub(super) fn insert(&mut self, element: String, node: Node) {
        if node.is_empty() {
            return;
        }
        match self.nodes.get_mut(&element) {
            Some(own) => {
                own.member |= node.member;
                own.below.unite(&node.below);
            }
            None => {
                self.nodes.insert(element, node);
            }
        }
    }

    /// The node under a path element.
    pub(super) fn get(&self, element: &str) -> Option<&Node> {
        self.nodes.get(element)
    }

    /// Takes the node under a path element out.
    pub(super) fn remove(&mut self, element: &str) -> Option<Node> {
        self.nodes.remove(element)
    }

    /// The path elements and what is under them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(element, node)| (element.as_str(), node))
    }

    /// Adds all paths of `other`.
    pub(super) fn unite(&mut self, other: &Self) {
        for (element, node) in &other.nodes {
            match self.nodes.get_mut(element) {
                Some(own) => {
                    own.member |= node.member;
                    own.below.unite(&node.below);
                }
                None => {
                    self.nodes.insert(element.clone(), node.clone());
                }
            }
        }
    }

    /// Removes all paths of `other`; longer paths stay.
    pub(super) fn subtract(&mut self, other: &Self) {
        for (element, node) in &other.nodes {
            if let Some(own) = self.nodes.get_mut(element) {
                own.member &= !node.member;
                own.below.subtract(&node.below);
                if own.is_empty() {
                    self.nodes.remove(element);
                }
            }
        }
    }

    /// The paths that are in both.
    pub(super) fn intersect(&self, other: &Self) -> Self {
        let mut both = Self::default();
        for (element, node) in &self.nodes {
            if let Some(theirs) = other.nodes.get(element) {
                let node = Node {
                    member: node.member && theirs.member,
                    below: node.below.intersect(&theirs.below),
                };
                if !node.is_empty() {
                    both.nodes.insert(element.clone(), node);
                }
            }
        }
        both
    }

    /// The set with the named fields on the way to its paths added, which the format leaves out.
    pub(super) fn with_named_fields(&self, topology: Topology<'_>) -> Self {
        let mut nodes = BTreeMap::new();
        for (element, node) in &self.nodes {
            let step = topology.along(element);
            let member = node.member || (step.named && !node.below.is_empty());
            let below = node.below.with_named_fields(step.topology);
            nodes.insert(element.clone(), Node { member, below });
        }
        Self { nodes }
    }

    /// Reads the format; `None` if it is malformed.
    pub(super) fn decode(fields: &Value) -> Option<Self> {
        Self::decode_node(fields).map(|node| node.below)
    }

    fn decode_node(fields: &Value) -> Option<Node> {
        let fields = fields.as_object()?;
        let mut node = Node { member: fields.is_empty(), below: Self::default() };
        for (element, below) in fields {
            if element == "." {
                node.member = true;
            } else {
                node.below.insert(canonical(element)?, Self::decode_node(below)?);
            }
        }
        Some(node)
    }

    /// Writes the format.
    pub(super) fn encode(&self) -> Value {
        let mut fields = Map::new();
        for (element, node) in &self.nodes {
            fields.insert(element.clone(), node.encode());
        }
        Value::Object(fields)
    }

    /// All paths as they are printed, such as `.spec.containers[name="c"].image`; at each level first
    /// those that end there.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths(&mut String::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut String, paths: &mut Vec<String>) {
        let length = prefix.len();
        for (element, _) in self.nodes.iter().filter(|(_, node)| node.member) {
            push_printed(prefix, element);
            paths.push(prefix.clone());
            prefix.truncate(length);
        }
        for (element, node) in &self.nodes {
            push_printed(prefix, element);
            node.below.collect_paths(prefix, paths);
            prefix.truncate(length);
        }
    }

    /// Whether any path of the set is in `fields`, a set in the format.
    pub(super) fn touches(&self, fields: &Value) -> bool {
        self.nodes.iter().any(|(element, node)| match fields.get(element) {
            Some(theirs) => (node.member && is_member(theirs)) || node.below.touches(theirs),
            None => false,
        })
    }

    /// Whether all paths of the set are in `fields`, a set in the format.
    pub(super) fn is_covered_by(&self, fields: &Value) -> bool {
        self.nodes.iter().all(|(element, node)| match fields.get(element) {
            Some(theirs) => (!node.member || is_member(theirs)) && node.below.is_covered_by(theirs),
            None => false,
        })
    }
}

impl Node {
    fn encode(&self) -> Value {
        let Value::Object(mut fields) = self.below.encode() else { return Value::Null };
        if self.member && !fields.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        Value::Object(fields)
    }
}

fn is_member(fields: &Value) -> bool {
    fields.as_object().is_some_and(|fields| fields.is_empty() || fields.contains_key("."))
}

/// The one spelling of a path element; `None` if it is malformed.
fn canonical(element: &str) -> Option<String> {
    let (kind, rest) = element.split_at_checked(2)?;
    match kind {
        "f:" => Some(element.to_owned()),
        "k:" => {
            let key: Map<String, Value> = serde_json::from_str(rest).ok()?;
            let mut out = String::from(kind);
            push_json(&mut out, &Value::Object(key));
            Some(out)
        }
        "v:" => {
            let value: Value = serde_json::from_str(rest).ok()?;
            let mut out = String::from(kind);
            push_json(&mut out, &value);
            Some(out)
        }
        "i:" => rest.parse::<u32>().ok().map(|_index| element.to_owned()),
        _ => None,
    }
}

/// Appends a value as compact JSON.
pub(super) fn push_json(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => push_json_string(out, text),
        other => {
            // Writing to a string cannot fail.
            let _written = write!(out, "{other}");
        }
    }
}

/// Appends a string as JSON.
pub(super) fn push_json_string(out: &mut String, text: &str) {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        let _written = write!(out, "{}", Value::from(text));
    }
}

fn push_printed(out: &mut String, element: &str) {
    let (kind, rest) = element.split_at_checked(2).unwrap_or((element, ""));
    match kind {
        "f:" => {
            out.push('.');
            out.push_str(rest);
        }
        "k:" => {
            let key: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            out.push('[');
            for (index, (name, value)) in key.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(name);
                out.push('=');
                push_json(out, value);
            }
            out.push(']');
        }
        "v:" => {
            out.push_str("[=");
            out.push_str(rest);
            out.push(']');
        }
        _ => {
            out.push('[');
            out.push_str(rest);
            out.push(']');
        }
    }
}
