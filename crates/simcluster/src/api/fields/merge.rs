//! Merging an applied configuration into an object, and taking fields out of it.
//!
//! Values in, values out; who owns what is decided elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::set::{FieldSet, Node};
use super::topology::{Shape, Topology};

/// The paths of the fields that `value` sets, as an applier owns them. It does not own empty lists whose
/// items would have owners.
pub(super) fn field_set(topology: Topology<'_>, value: &Value) -> FieldSet {
    node(topology, value, false).below
}

/// The paths of all fields of `value`, with those on the way to them that the schema names.
pub(super) fn present(topology: Topology<'_>, value: &Value) -> FieldSet {
    node(topology, value, true).below.with_named_fields(topology)
}

fn node(topology: Topology<'_>, value: &Value, empty_lists: bool) -> Node {
    let mut set = FieldSet::default();
    let shape = topology.shape(value);
    match (shape, value) {
        (Shape::Map, Value::Object(map)) => {
            for (name, value) in map {
                let step = topology.field(name);
                let mut below = node(step.topology, value, empty_lists);
                below.member |=
                    !step.named || value.is_null() || value.as_object().is_some_and(Map::is_empty);
                set.insert(format!("f:{name}"), below);
            }
        }
        (Shape::Keyed(_) | Shape::Set, Value::Array(items)) => {
            if items.is_empty() && empty_lists {
                return Node::leaf();
            }
            let mut seen = BTreeSet::new();
            for item in items {
                let Some(element) = shape.element(item) else { continue };
                if seen.insert(element.clone()) {
                    let mut below = node(topology.item(), item, empty_lists);
                    below.member = true;
                    set.insert(element, below);
                } else {
                    // Several items with one key count as one value.
                    set.remove(&element);
                    set.insert(element, Node::leaf());
                }
            }
        }
        _ => return Node::leaf(),
    }
    Node { member: false, below: set }
}

/// What is wrong with the lists of an applied configuration, each with its path.
pub(super) fn list_errors(topology: Topology<'_>, config: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    collect_list_errors(topology, config, &mut String::new(), &mut errors);
    errors
}

fn collect_list_errors(
    topology: Topology<'_>,
    value: &Value,
    path: &mut String,
    errors: &mut Vec<String>,
) {
    let shape = topology.shape(value);
    let length = path.len();
    match (shape, value) {
        (Shape::Map, Value::Object(map)) => {
            for (name, value) in map {
                path.push('.');
                path.push_str(name);
                collect_list_errors(topology.field(name).topology, value, path, errors);
                path.truncate(length);
            }
        }
        (Shape::Keyed(_) | Shape::Set, Value::Array(items)) => {
            let (mut seen, mut told) = (BTreeSet::new(), BTreeSet::new());
            for (index, item) in items.iter().enumerate() {
                let Some(element) = shape.element(item) else {
                    errors.push(format!("{path}: element {index}: {}", no_element(shape, item)));
                    continue;
                };
                let mut printed = FieldSet::default();
                printed.insert(element.clone(), Node::leaf());
                let printed = printed.paths().concat();
                path.push_str(&printed);
                collect_list_errors(topology.item(), item, path, errors);
                path.truncate(length);
                if !seen.insert(element) && told.insert(printed.clone()) {
                    errors.push(format!("{path}: duplicate entries for key {printed}"));
                }
            }
        }
        _ => {}
    }
}

/// A path such as `spec.containers[0].x` as ownership prints it: with the items' keys.
pub(super) fn printed(topology: Topology<'_>, value: &Value, path: &str) -> String {
    let mut out = String::new();
    let mut place = topology;
    let mut value = Some(value);
    for part in path.split('.') {
        let (name, indices) = part.split_once('[').unwrap_or((part, ""));
        out.push('.');
        out.push_str(name);
        place = place.field(name).topology;
        value = value.and_then(|value| value.get(name));
        for index in indices.split('[').filter_map(|index| index.strip_suffix(']')) {
            let item = index.parse::<usize>().ok().and_then(|index| value?.get(index));
            let element = match (value, item) {
                (Some(list), Some(item)) => place.shape(list).element(item),
                _ => None,
            };
            let mut key = FieldSet::default();
            key.insert(element.unwrap_or_else(|| format!("i:{index}")), Node::leaf());
            out.push_str(&key.paths().concat());
            place = place.item();
            value = item;
        }
    }
    out
}

fn no_element(shape: Shape<'_>, item: &Value) -> String {
    match (shape, item) {
        (Shape::Keyed(_), Value::Null) => {
            "associative list with keys may not have a null element".to_owned()
        }
        (Shape::Keyed(keys), Value::Object(_)) => {
            let names: Vec<String> =
                keys.names().iter().map(|name| format!("\"{name}\"")).collect();
            format!(
                "associative list with keys has an element that omits all key fields [{}] (and \
                 doesn't have default values for any key fields)",
                names.join(" ")
            )
        }
        (Shape::Keyed(_), _) => {
            "associative list with keys may not have non-map elements".to_owned()
        }
        (_, Value::Object(_)) => {
            "associative list without keys has an element that's a map type".to_owned()
        }
        (_, Value::Array(_)) => "not supported: associative list with lists as elements".to_owned(),
        _ => "associative list without keys has an element that's an explicit null".to_owned(),
    }
}

/// Merges an applied configuration into the live value.
pub(super) fn merge(topology: Topology<'_>, live: &mut Value, config: &Value) {
    let shape = topology.shape(config);
    match (shape, live, config) {
        (Shape::Map, Value::Object(live), Value::Object(config)) => {
            for (name, value) in config {
                match live.get_mut(name) {
                    Some(live) => merge(topology.field(name).topology, live, value),
                    None => {
                        live.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Shape::Keyed(_) | Shape::Set, Value::Array(live), Value::Array(config)) => {
            merge_items(topology, shape, live, config);
        }
        (_, live, config) => config.clone_into(live),
    }
}

/// Merges lists. Items of the configuration keep its order; live items that it does not mention stay
/// before the next item that both have.
fn merge_items(topology: Topology<'_>, shape: Shape<'_>, live: &mut Vec<Value>, config: &[Value]) {
    if config.is_empty() {
        return;
    }
    let mut left: Vec<(String, Option<Value>)> = live
        .drain(..)
        .filter_map(|item| shape.element(&item).map(|element| (element, Some(item))))
        .collect();
    let right: Vec<(String, &Value)> =
        config.iter().filter_map(|item| shape.element(item).map(|key| (key, item))).collect();
    let in_right: BTreeSet<&str> = right.iter().map(|(key, _)| key.as_str()).collect();
    let mut in_left: BTreeMap<String, usize> = BTreeMap::new();
    for (index, (key, _)) in left.iter().enumerate() {
        in_left.entry(key.clone()).or_insert(index);
    }
    let mut shared =
        right.iter().map(|(key, _)| key.as_str()).filter(|key| in_left.contains_key(*key));
    let mut next_shared = shared.next();
    let mut taken = BTreeSet::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        let left_key = left.get(l).map(|(key, _)| key.clone());
        let right_key = right.get(r).map(|(key, _)| key.as_str());
        if let (Some(left_key), Some(right_key)) = (left_key.as_deref(), right_key)
            && left_key != right_key
            && in_right.contains(left_key)
            && next_shared.is_some_and(|next| next != left_key)
        {
            // Both have it, but its turn is another one.
            l += 1;
            continue;
        }
        if let Some(left_key) = left_key.as_deref()
            && Some(left_key) != right_key
        {
            if !in_right.contains(left_key) {
                live.extend(left.get_mut(l).and_then(|(_, item)| item.take()));
                l += 1;
                continue;
            }
            if taken.contains(left_key) {
                l += 1;
            }
        }
        let Some((key, item)) = right.get(r) else { continue };
        let mut merged = in_left
            .get(key)
            .and_then(|index| left.get_mut(*index))
            .and_then(|(_, item)| item.take());
        match &mut merged {
            Some(live) => merge(topology.item(), live, item),
            None => merged = Some((*item).clone()),
        }
        live.extend(merged);
        taken.insert(key.as_str());
        if left_key.as_ref() == Some(key) {
            l += 1;
        }
        r += 1;
        if next_shared == Some(key.as_str()) {
            next_shared = shared.next();
        }
    }
}

/// Removes the fields and items of a set from a value. Maps and lists that become empty stay: one that
/// nobody owns is in the set itself.
pub(super) fn remove(topology: Topology<'_>, value: &mut Value, set: &FieldSet) {
    if set.is_empty() {
        return;
    }
    let shape = topology.shape(value);
    match (shape, value) {
        (Shape::Map, Value::Object(map)) => {
            for (element, node) in set.iter() {
                let Some(name) = element.strip_prefix("f:") else { continue };
                if node.member {
                    map.remove(name);
                } else if let Some(value) = map.get_mut(name) {
                    remove(topology.field(name).topology, value, &node.below);
                }
            }
        }
        (Shape::Keyed(_) | Shape::Set, Value::Array(items)) => {
            items.retain_mut(|item| {
                let Some(node) = shape.element(item).and_then(|key| set.get(&key).cloned()) else {
                    return true;
                };
                if !node.member {
                    remove(topology.item(), item, &node.below);
                }
                !node.member
            });
        }
        _ => {}
    }
}
