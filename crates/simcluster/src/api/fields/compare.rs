//! What differs between two states of an object, as sets of field paths.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::set::{FieldSet, Node};
use super::topology::{Shape, Topology};

/// Fields of `metadata` that never have an owner.
pub(super) const NEVER_OWNED: &[&str] = &[
    "clusterName",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

static NO_TEXT: LazyLock<Value> = LazyLock::new(|| Value::from(""));
static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));

/// The difference between two states.
#[derive(Debug, Default)]
pub(super) struct Diff {
    /// Paths that are new or have another value.
    pub(super) changed: FieldSet,
    /// Paths that are gone.
    pub(super) removed: FieldSet,
}

impl Diff {
    /// Whether nothing differs.
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    fn insert(&mut self, element: &str, difference: Difference) {
        self.changed.insert(element.to_owned(), difference.changed);
        self.removed.insert(element.to_owned(), difference.removed);
    }
}

/// The difference at and below one path.
#[derive(Default)]
struct Difference {
    changed: Node,
    removed: Node,
}

/// Compares two objects of a kind, without the fields that never have an owner. `old` is `None` for
/// an object that did not exist.
pub(super) fn objects(topology: Topology<'_>, old: Option<&Value>, new: &Value) -> Diff {
    let old = old.unwrap_or(&EMPTY);
    let mut diff = Diff::default();
    let root = |name: &str| !matches!(name, "apiVersion" | "kind" | "metadata");
    fields(topology, Some(old), Some(new), &root, &mut diff);

    let place = topology.field("metadata").topology;
    let mut metadata = Diff::default();
    let owned = |name: &str| !NEVER_OWNED.contains(&name);
    fields(place, old.get("metadata"), new.get("metadata"), &owned, &mut metadata);
    diff.insert(
        "f:metadata",
        Difference {
            changed: Node { member: false, below: metadata.changed },
            removed: Node { member: false, below: metadata.removed },
        },
    );
    diff
}

/// Compares the fields for which `wanted` holds; each side is a map, null or nothing.
fn fields(
    topology: Topology<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    wanted: &dyn Fn(&str) -> bool,
    diff: &mut Diff,
) {
    let old_map = old.and_then(Value::as_object);
    let new_map = new.and_then(Value::as_object);
    for (name, new_value) in new_map.into_iter().flatten() {
        let old_value = old_map.and_then(|map| map.get(name));
        if old_value != Some(new_value) && wanted(name) {
            field(topology, name, old_value, Some(new_value), old_map.is_some(), diff);
        }
    }
    for (name, old_value) in old_map.into_iter().flatten() {
        if !new_map.is_some_and(|map| map.contains_key(name)) && wanted(name) {
            field(topology, name, Some(old_value), None, new_map.is_some(), diff);
        }
    }
}

/// Compares one field; `other_exists` says whether the map that lacks the field exists.
fn field(
    topology: Topology<'_>,
    name: &str,
    old: Option<&Value>,
    new: Option<&Value>,
    other_exists: bool,
    diff: &mut Diff,
) {
    let step = topology.field(name);
    let fill = |side: Option<&Value>| step.inline && side.is_none_or(Value::is_null);
    let (filled_old, filled_new) = (other_exists && fill(old), other_exists && fill(new));
    let empty = || match old.filter(|old| !old.is_null()).or(new) {
        Some(Value::Array(_)) => &Value::Null,
        Some(Value::Number(_)) => &*ZERO,
        Some(Value::String(_)) => &*NO_TEXT,
        _ => &*EMPTY,
    };
    let (old, new) = (
        if filled_old { Some(empty()) } else { old },
        if filled_new { Some(empty()) } else { new },
    );
    let difference = compare(step.topology, old, new);
    diff.insert(&format!("f:{name}"), difference);
}

/// Compares two values at a place; at least one is there.
fn compare(topology: Topology<'_>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let mut difference = Difference::default();
    let present = |side: Option<&Value>| side.is_some_and(|value| !value.is_null());
    let shape = match (new, old) {
        (Some(new), _) if present(Some(new)) => topology.shape(new),
        (_, Some(old)) => topology.shape(old),
        _ => Shape::Leaf,
    };
    let same_type = match (old, new) {
        (Some(old), Some(new)) if !old.is_null() && !new.is_null() => {
            old.is_object() == new.is_object() && old.is_array() == new.is_array()
        }
        _ => true,
    };
    let empty = |side: Option<&Value>| {
        side.is_none_or(|value| match value {
            Value::Null => true,
            Value::Object(map) => map.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        })
    };
    if !same_type {
        // The fields of the old type go, those of the new one come.
        difference.removed = compare(topology, old, None).removed;
        difference.changed = compare(topology, None, new).changed;
        difference.removed.member = false;
        difference.changed.member = true;
        return difference;
    }
    if matches!(shape, Shape::Leaf) || (empty(old) && empty(new)) {
        match (old, new) {
            (None, _) => difference.changed.member = true,
            (_, None) => difference.removed.member = true,
            (Some(old), Some(new)) => difference.changed.member = old != new,
        }
        return difference;
    }
    let mut below = Diff::default();
    if matches!(shape, Shape::Map) {
        fields(topology, old, new, &|_name| true, &mut below);
    } else {
        items(topology, shape, list(old), list(new), &mut below);
    }
    difference.changed = Node { member: old.is_none(), below: below.changed };
    difference.removed = Node { member: new.is_none(), below: below.removed };
    difference
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Compares the items of two lists.
fn items(topology: Topology<'_>, shape: Shape<'_>, old: &[Value], new: &[Value], diff: &mut Diff) {
    let place = topology.item();
    if let Some(pairs) = same_order(shape, old, new) {
        for (element, old, new) in pairs {
            diff.insert(&element, compare(place, Some(old), Some(new)));
        }
        return;
    }
    let mut groups: BTreeMap<String, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        if let Some(element) = shape.element(item) {
            groups.entry(element).or_default().0.push(item);
        }
    }
    for item in new {
        if let Some(element) = shape.element(item) {
            groups.entry(element).or_default().1.push(item);
        }
    }
    for (element, (old, new)) in groups {
        let mut difference = match (old.as_slice(), new.as_slice()) {
            ([old], [new]) if old == new => continue,
            ([] | [_], [] | [_]) => compare(place, old.first().copied(), new.first().copied()),
            // Several items with one key count as one value.
            ([_, _, ..], [_, _, ..]) => Difference {
                changed: Node { member: old != new, ..Node::default() },
                removed: Node::default(),
            },
            (_, [_, _, ..]) => {
                let mut gone =
                    old.first().map(|old| compare(place, Some(old), None)).unwrap_or_default();
                gone.removed.member = false;
                gone.changed.member = true;
                gone
            }
            _ => {
                let mut come =
                    new.first().map(|new| compare(place, None, Some(new))).unwrap_or_default();
                come.removed.member = new.is_empty();
                come
            }
        };
        if difference.changed.member {
            difference.removed.member = false;
        }
        diff.insert(&element, difference);
    }
}

/// The unequal pairs of two lists whose items have the same keys in the same order; `None` if that
/// cannot be told cheaply.
fn same_order<'v>(
    shape: Shape<'_>,
    old: &'v [Value],
    new: &'v [Value],
) -> Option<Vec<(String, &'v Value, &'v Value)>> {
    let Shape::Keyed(keys) = shape else { return None };
    if old.len() != new.len() {
        return None;
    }
    let names = keys.names();
    let same_key = |a: &Value, b: &Value| names.iter().all(|name| a.get(name) == b.get(name));
    let mut pairs = Vec::new();
    for (index, (old_item, new_item)) in old.iter().zip(new).enumerate() {
        if old_item == new_item {
            continue;
        }
        let twice =
            new.iter().enumerate().any(|(other, item)| other != index && same_key(item, new_item));
        if twice || !same_key(old_item, new_item) {
            return None;
        }
        pairs.push((keys.element(new_item)?, old_item, new_item));
    }
    Some(pairs)
}

/// Takes the fields out that never have an owner.
pub(super) fn strip(set: &mut FieldSet) {
    set.remove("f:apiVersion");
    set.remove("f:kind");
    if let Some(mut metadata) = set.remove("f:metadata") {
        metadata.member = false;
        for name in NEVER_OWNED {
            metadata.below.remove(&format!("f:{name}"));
        }
        set.insert("f:metadata".to_owned(), metadata);
    }
}
