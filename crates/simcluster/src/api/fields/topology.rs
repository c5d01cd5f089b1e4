//! How the fields of a kind are owned: which lists have keys, which values are owned as a whole.
//!
//! One view over the table of built-in kinds and over the schemas of custom resources.

use std::sync::LazyLock;

use serde_json::Value;

use super::builtin::{self, Merge, Ownership, Row, Type};
use super::set;
use crate::api::registry::ResourceDef;

/// A place in the schema of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Topology<'a> {
    /// The root of a built-in kind.
    Root(Option<&'static Type>),
    /// The root of a custom resource, with its schema.
    CustomRoot(&'a Value),
    /// A notable struct of a built-in kind.
    Struct(&'static Type),
    /// A notable field of a built-in kind.
    Field(&'static Row),
    /// Any other place in a built-in kind.
    Plain,
    /// A place in a custom resource, with its schema.
    Custom(&'a Value),
    /// A place in a custom resource of which the schema says nothing.
    Unknown,
}

/// What ownership sees in a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// A scalar, or something that is owned as a whole.
    Leaf,
    /// A map or struct whose fields have owners.
    Map,
    /// A list whose items are told apart by these fields.
    Keyed(Keys<'a>),
    /// A list of distinct scalars.
    Set,
}

/// The fields that tell the items of a list apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys<'a> {
    /// Of a built-in kind.
    Builtin(&'static [&'static str]),
    /// Of a custom resource: the list's schema.
    Custom(&'a Value),
}

/// Which field a descent reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    /// The place reached.
    pub(super) topology: Topology<'a>,
    /// Whether the schema names the field, as opposed to a key of a map.
    pub(super) named: bool,
    /// Whether the struct exists even if the JSON lacks it.
    pub(super) inline: bool,
}

/// What an item of a list is called where neither it nor a default gives a key.
static TCP: LazyLock<Value> = LazyLock::new(|| Value::from("TCP"));

impl<'a> Topology<'a> {
    /// The root of a kind.
    pub(crate) fn of(def: &'a ResourceDef) -> Self {
        match &def.custom {
            Some(custom) => Self::CustomRoot(custom.schema.as_value()),
            None if def.resource.group == "events.k8s.io" => {
                Self::Root(builtin::find("events.Event"))
            }
            None => Self::Root(builtin::find(&def.kind)),
        }
    }

    fn of_type(name: &str) -> Self {
        builtin::find(name).map_or(Self::Plain, Topology::Struct)
    }

    /// What ownership sees in `value` at this place.
    pub(super) fn shape(self, value: &Value) -> Shape<'a> {
        if let Self::Field(row) = self {
            return match (row.ownership, value) {
                (Ownership::Keyed(keys), Value::Array(_)) => Shape::Keyed(Keys::Builtin(keys)),
                (Ownership::Set, Value::Array(_)) => Shape::Set,
                (Ownership::Atomic, _) => Shape::Leaf,
                _ => Self::of_type(row.child).shape(value),
            };
        }
        match (self, value) {
            (Self::Struct(ty), Value::Object(_)) if ty.atomic => Shape::Leaf,
            (Self::Custom(schema), Value::Object(_))
                if text(schema, "x-kubernetes-map-type") == "atomic" =>
            {
                Shape::Leaf
            }
            (_, Value::Object(_)) => Shape::Map,
            (Self::Custom(schema), Value::Array(_)) => {
                match text(schema, "x-kubernetes-list-type") {
                    "map" => Shape::Keyed(Keys::Custom(schema)),
                    "set" => Shape::Set,
                    _ => Shape::Leaf,
                }
            }
            _ => Shape::Leaf,
        }
    }

    /// Descends into a field of a map or struct.
    pub(super) fn field(self, name: &str) -> Step<'a> {
        match self {
            Self::Root(ty) => match ty.and_then(|ty| ty.row(name)) {
                Some(row) => Step {
                    topology: Self::Field(row),
                    named: true,
                    inline: row.inline || matches!(name, "spec" | "status"),
                },
                None if name == "metadata" => {
                    Step { topology: Self::of_type("ObjectMeta"), named: true, inline: true }
                }
                None => Step {
                    topology: Self::Plain,
                    named: true,
                    inline: matches!(name, "spec" | "status"),
                },
            },
            Self::CustomRoot(_) if name == "metadata" => {
                Step { topology: Self::of_type("ObjectMeta"), named: true, inline: false }
            }
            Self::Struct(ty) => builtin_field(ty, name),
            Self::Field(row) => match builtin::find(row.child) {
                Some(ty) => builtin_field(ty, name),
                None => Step { topology: Self::Plain, named: true, inline: false },
            },
            Self::Plain => Step { topology: Self::Plain, named: true, inline: false },
            Self::CustomRoot(schema) | Self::Custom(schema) => {
                let property = schema.get("properties").and_then(|fields| fields.get(name));
                if let Some(property) = property {
                    return Step { topology: Self::Custom(property), named: true, inline: false };
                }
                let topology = match schema.get("additionalProperties") {
                    Some(values @ Value::Object(_)) => Self::Custom(values),
                    _ => Self::Unknown,
                };
                Step { topology, named: false, inline: false }
            }
            Self::Unknown => Step { topology: Self::Unknown, named: false, inline: false },
        }
    }

    /// Descends into an item of a list.
    pub(super) fn item(self) -> Self {
        match self {
            Self::Field(row) => Self::of_type(row.child),
            Self::Custom(schema) => schema.get("items").map_or(Self::Unknown, Topology::Custom),
            Self::CustomRoot(_) | Self::Unknown => Self::Unknown,
            Self::Root(_) | Self::Struct(_) | Self::Plain => Self::Plain,
        }
    }

    /// Descends along an element of a path.
    pub(super) fn along(self, element: &str) -> Step<'a> {
        match element.strip_prefix("f:") {
            Some(name) => self.field(name),
            None => Step { topology: self.item(), named: false, inline: false },
        }
    }

    /// How a strategic merge patch merges the value at this place.
    pub(crate) fn merge(self) -> Merge {
        match self {
            Self::Field(row) => row.merge,
            _ => Merge::Plain,
        }
    }

    /// The place of a field, for strategic merge patches.
    pub(crate) fn child(self, name: &str) -> Self {
        self.field(name).topology
    }

    /// The place of the items of a list, for strategic merge patches.
    pub(crate) fn items(self) -> Self {
        self.item()
    }
}

fn builtin_field(ty: &'static Type, name: &str) -> Step<'static> {
    match ty.row(name) {
        Some(row) => Step { topology: Topology::Field(row), named: true, inline: row.inline },
        None => Step { topology: Topology::Plain, named: true, inline: false },
    }
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl<'a> Keys<'a> {
    /// The names of the key fields, sorted.
    pub(super) fn names(self) -> Vec<&'a str> {
        match self {
            Keys::Builtin(names) => names.to_vec(),
            Keys::Custom(schema) => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let mut names: Vec<&str> =
                    keys.into_iter().flatten().filter_map(Value::as_str).collect();
                names.sort_unstable();
                names
            }
        }
    }

    /// What stands for a key that an item lacks.
    fn default(self, name: &str) -> Option<&'a Value> {
        match self {
            Keys::Builtin(_) => (name == "protocol").then(|| &*TCP),
            Keys::Custom(schema) => {
                schema.get("items")?.get("properties")?.get(name)?.get("default")
            }
        }
    }

    /// The path element of an item, such as `k:{"name":"c"}`; `None` if it has no key at all.
    pub(super) fn element(self, item: &Value) -> Option<String> {
        let mut element = String::from("k:{");
        let mut any = false;
        for name in self.names() {
            if let Some(value) = item.get(name).or_else(|| self.default(name)) {
                if any {
                    element.push(',');
                }
                any = true;
                set::push_json_string(&mut element, name);
                element.push(':');
                set::push_json(&mut element, value);
            }
        }
        element.push('}');
        any.then_some(element)
    }
}

impl Shape<'_> {
    /// The path element of a list's item; `None` if the item has none.
    pub(super) fn element(self, item: &Value) -> Option<String> {
        match self {
            Shape::Keyed(keys) => keys.element(item),
            Shape::Set if !item.is_object() && !item.is_array() && !item.is_null() => {
                let mut element = String::from("v:");
                set::push_json(&mut element, item);
                Some(element)
            }
            _ => None,
        }
    }
}
