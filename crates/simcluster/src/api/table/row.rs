//! What the printers of built-in kinds read from an object, with the words for what is missing.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::duration;
use crate::selector;

/// Name, type and priority of a column; priority 1 is shown with `-o wide` only.
pub(super) type Column = (&'static str, &'static str, i32);

pub(super) const NAME: Column = ("Name", "string", 0);
pub(super) const AGE: Column = ("Age", "string", 0);

/// How a kind is printed.
pub(super) struct Printer {
    pub(super) columns: &'static [Column],
    pub(super) cells: fn(&Row<'_>) -> Vec<Value>,
}

/// An object to print.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> Row<'a> {
    pub(super) fn at(&self, pointer: &str) -> Option<&'a Value> {
        self.object.pointer(pointer).filter(|value| !value.is_null())
    }

    /// The text at a JSON pointer; empty if there is none.
    pub(super) fn text(&self, pointer: &str) -> &'a str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The text at a JSON pointer, or `missing`.
    pub(super) fn text_or(&self, pointer: &str, missing: &str) -> Value {
        match self.text(pointer) {
            "" => json!(missing),
            text => json!(text),
        }
    }

    /// The number at a JSON pointer; 0 if there is none.
    pub(super) fn int(&self, pointer: &str) -> i64 {
        self.at(pointer).and_then(Value::as_i64).unwrap_or(0)
    }

    pub(super) fn list(&self, pointer: &str) -> &'a [Value] {
        self.at(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// How many members the object at a JSON pointer has.
    pub(super) fn members(&self, pointer: &str) -> usize {
        self.at(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
    }

    pub(super) fn name(&self) -> Value {
        json!(self.text("/metadata/name"))
    }

    pub(super) fn time(&self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer).parse().ok()
    }

    /// The time since a timestamp, or `<unknown>`.
    pub(super) fn since(&self, pointer: &str) -> Value {
        json!(self.elapsed(self.time(pointer)))
    }

    pub(super) fn elapsed(&self, then: Option<Timestamp>) -> String {
        then.map_or_else(|| "<unknown>".to_owned(), |then| duration::between(then, self.now))
    }

    pub(super) fn age(&self) -> Value {
        self.since("/metadata/creationTimestamp")
    }

    /// The status of a condition; empty if it is not there.
    pub(super) fn condition(&self, kind: &str) -> &'a str {
        self.list("/status/conditions")
            .iter()
            .find(|condition| condition["type"] == kind)
            .and_then(|condition| condition["status"].as_str())
            .unwrap_or_default()
    }

    /// Labels at a JSON pointer as `a=b,c=d`.
    pub(super) fn labels(&self, pointer: &str) -> Value {
        let labels = self.at(pointer).and_then(Value::as_object);
        joined(&labels.map_or_else(Vec::new, selector::equalities))
    }

    /// A label selector at a JSON pointer in the notation of `kubectl -l`.
    pub(super) fn selector(&self, pointer: &str) -> Value {
        match self.at(pointer).map(selector::text) {
            Some(text) if !text.is_empty() => json!(text),
            _ => json!("<none>"),
        }
    }

    /// Names of the containers of the pod template, and their images.
    pub(super) fn containers(&self, template: &str) -> [Value; 2] {
        let containers = self.list(&format!("{template}/spec/containers"));
        ["name", "image"].map(|key| {
            let parts: Vec<&str> =
                containers.iter().filter_map(|container| container[key].as_str()).collect();
            json!(parts.join(","))
        })
    }
}

/// Parts with commas, or `<none>`.
pub(super) fn joined<T: AsRef<str>>(parts: &[T]) -> Value {
    if parts.is_empty() {
        return json!("<none>");
    }
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    json!(parts.join(","))
}
