//! Strategic merge patch: a merge patch that knows the keys of lists and obeys directives.
//!
//! Directives are fields that begin with `$`; none of them ends up in the result.

use serde_json::{Map, Value};

use crate::api::fields::{Merge, Topology};
use crate::api::registry::ResourceDef;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const ORDER: &str = "$setElementOrder";

/// What is wrong with a patch.
type Problem = String;

/// Merges a patch into an object of a built-in kind.
pub(super) fn merge(def: &ResourceDef, object: &Value, patch: &Value) -> Result<Value, Problem> {
    let Value::Object(patch) = patch else {
        return Err("invalid JSON document".to_owned());
    };
    let mut merged = object.as_object().cloned().unwrap_or_default();
    merge_map(Topology::of(def), &mut merged, patch)?;
    Ok(Value::Object(merged))
}

fn merge_map(
    place: Topology<'_>,
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Problem> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(directive) if directive == "replace" => {
            *original = without_directives(patch);
            return Ok(());
        }
        Some(directive) if directive == "delete" => {
            original.clear();
            return Ok(());
        }
        Some(directive) => return Err(unknown_directive(directive, patch)),
    }
    retain_keys(original, patch)?;

    for (name, value) in patch {
        if let Some(list) = directive_target(name, ORDER)? {
            merge_ordered(place, original, patch, list, value)?;
        }
    }
    for (name, value) in patch {
        if let Some(list) = directive_target(name, DELETE_FROM)? {
            delete_scalars(original, list, value)?;
        }
    }
    for (name, value) in patch {
        let ordered = || patch.contains_key(&format!("{ORDER}/{name}"));
        if is_directive(name) || (value.is_array() && ordered()) {
            continue;
        }
        merge_field(place.child(name), original, name, value)?;
    }
    Ok(())
}

fn merge_field(
    place: Topology<'_>,
    original: &mut Map<String, Value>,
    name: &str,
    value: &Value,
) -> Result<(), Problem> {
    match (original.get_mut(name), value) {
        (_, Value::Null) => {
            original.remove(name);
        }
        (Some(Value::Object(original)), Value::Object(value)) => {
            if place.merge() == Merge::Replace {
                *original = without_directives(value);
            } else {
                merge_map(place, original, value)?;
            }
        }
        (Some(Value::Array(original)), Value::Array(value)) => {
            if let Merge::List(key) = place.merge() {
                merge_list(place, original, value, key)?;
            } else {
                *original = clean_list(value);
            }
        }
        _ => match clean(value) {
            Some(value) => {
                original.insert(name.to_owned(), value);
            }
            None => {
                original.remove(name);
            }
        },
    }
    Ok(())
}

/// The field that a directive such as `$setElementOrder/containers` is about.
fn directive_target<'n>(name: &'n str, directive: &str) -> Result<Option<&'n str>, Problem> {
    let Some(rest) = name.strip_prefix(directive) else { return Ok(None) };
    match rest.strip_prefix('/') {
        Some(target) => Ok(Some(target)),
        None if directive == ORDER => Err(bad_order()),
        None => Err("invalid patch format of primitive list".to_owned()),
    }
}

/// Clears the fields of the original that the directive `$retainKeys` does not list.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Problem> {
    let bad = || "invalid patch format of retainKeys".to_owned();
    let Some(retained) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let retained = retained.as_array().ok_or_else(bad)?;
    let is_retained = |name: &str| retained.iter().any(|key| key == name);
    let stray = |(name, value): (&String, &Value)| {
        !value.is_null() && !is_directive(name) && !is_retained(name)
    };
    if patch.iter().any(stray) {
        return Err(bad());
    }
    original.retain(|name, _value| is_retained(name));
    Ok(())
}

/// Merges a list and brings it into the order of its `$setElementOrder`.
fn merge_ordered(
    place: Topology<'_>,
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    name: &str,
    order: &Value,
) -> Result<(), Problem> {
    let order = order.as_array().ok_or_else(bad_order)?;
    let place = place.child(name);
    let key = match place.merge() {
        Merge::List(key) => key,
        Merge::Plain | Merge::Replace => "",
    };
    let no_list = || format!("the value of {name} is not a list");
    let patch_list = match patch.get(name) {
        None | Some(Value::Null) => None,
        Some(list) => Some(list.as_array().ok_or_else(no_list)?),
    };
    if let Some(items) = patch_list {
        check_order(items, order, key)?;
    }
    let live = match original.get(name) {
        None | Some(Value::Null) => None,
        Some(list) => Some(list.as_array().cloned().ok_or_else(no_list)?),
    };
    let merged = match (&live, patch_list) {
        (None, None) => return Ok(()),
        (Some(live), None) => live.clone(),
        (None, Some(items)) => clean_list(items),
        (Some(live), Some(items)) => {
            let mut merged = live.clone();
            if place.merge() == Merge::Plain {
                merged = clean_list(items);
            } else {
                merge_list(place, &mut merged, items, key)?;
            }
            merged
        }
    };
    let merged = arrange(merged, order, live.as_deref().unwrap_or_default(), key)?;
    original.insert(name.to_owned(), Value::Array(merged));
    Ok(())
}

/// The items of a patch must come in the order that its `$setElementOrder` gives.
fn check_order(items: &[Value], order: &[Value], key: &str) -> Result<(), Problem> {
    if order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in items.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let wanted = key_of(item, key)?;
        let mut found = false;
        for other in rest.by_ref() {
            if key_of(other, key)? == wanted {
                found = true;
                break;
            }
        }
        if !found {
            return Err(format!(
                "The order in patch list:\n{}\n doesn't match {ORDER} list:\n{}\n",
                go_list(items),
                go_list(order),
            ));
        }
    }
    Ok(())
}

/// Merges the items of a list by their key; scalars, with an empty key, are united.
fn merge_list(
    place: Topology<'_>,
    original: &mut Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<(), Problem> {
    if patch.is_empty() {
        return Ok(());
    }
    let live = original.clone();
    if key.is_empty() {
        for item in patch {
            if !original.contains(item) {
                original.push(item.clone());
            }
        }
        *original = arrange(std::mem::take(original), patch, &live, key)?;
        return Ok(());
    }
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        let Value::Object(fields) = item else { return Err(no_map(item)) };
        match fields.get(DIRECTIVE) {
            None => plain.push(item.clone()),
            Some(directive) if directive == "delete" => {
                let wanted = key_of(item, key)?;
                original.retain(|other| other.get(key) != Some(wanted));
            }
            Some(directive) if directive == "replace" => replace = true,
            Some(directive) if directive == "merge" => {
                return Err("merging lists cannot yet be specified in the patch".to_owned());
            }
            Some(directive) => return Err(unknown_directive(directive, fields)),
        }
    }
    if replace {
        *original = clean_list(&plain);
        return Ok(());
    }
    let items = place.items();
    for item in &plain {
        let wanted = key_of(item, key)?;
        let Value::Object(fields) = item else { continue };
        match original.iter_mut().find(|other| other.get(key) == Some(wanted)) {
            Some(Value::Object(other)) => merge_map(items, other, fields)?,
            _ => original.extend(clean(item)),
        }
    }
    *original = arrange(std::mem::take(original), &plain, &live, key)?;
    Ok(())
}

/// Orders a merged list: the items that the patch names in its order, the others where they were
/// among them, as far as both can be had.
fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    live: &[Value],
    key: &str,
) -> Result<Vec<Value>, Problem> {
    let position = |list: &[Value], item: &Value| {
        list.iter().position(|other| {
            if key.is_empty() { other == item } else { other.get(key) == item.get(key) }
        })
    };
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        if !key.is_empty() {
            key_of(&item, key)?;
        }
        match position(order, &item) {
            Some(place) => named.push((place, item)),
            None => others.push((position(live, &item), item)),
        }
    }
    named.sort_by_key(|(place, _item)| *place);
    others.sort_by_key(|(place, _item)| *place);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_place, item) in named {
        let place = position(live, &item);
        while let (Some(place), Some((Some(other), _))) = (place, others.peek())
            && *other < place
        {
            arranged.extend(others.next().map(|(_place, other)| other));
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(_place, item)| item));
    Ok(arranged)
}

/// Removes the scalars that `$deleteFromPrimitiveList` lists.
fn delete_scalars(
    original: &mut Map<String, Value>,
    name: &str,
    gone: &Value,
) -> Result<(), Problem> {
    let Value::Array(gone) = gone else {
        return Err("invalid patch format of primitive list".to_owned());
    };
    if let Some(Value::Array(items)) = original.get_mut(name) {
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

fn key_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, Problem> {
    if key.is_empty() {
        return Ok(item);
    }
    let Value::Object(fields) = item else { return Err(no_map(item)) };
    fields
        .get(key)
        .ok_or_else(|| format!("map: {} does not contain declared merge key: {key}", go_text(item)))
}

/// A value of a patch that meets nothing in the original: no directives, no nulls in maps.
fn clean(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(without_directives(fields))),
        Value::Array(items) => Some(Value::Array(clean_list(items))),
        scalar => Some(scalar.clone()),
    }
}

fn clean_list(items: &[Value]) -> Vec<Value> {
    items.iter().filter_map(clean).collect()
}

fn without_directives(fields: &Map<String, Value>) -> Map<String, Value> {
    fields
        .iter()
        .filter(|(name, value)| !is_directive(name) && !value.is_null())
        .filter_map(|(name, value)| Some((name.clone(), clean(value)?)))
        .collect()
}

fn is_directive(name: &str) -> bool {
    [DIRECTIVE, RETAIN_KEYS].contains(&name)
        || [DELETE_FROM, ORDER]
            .iter()
            .any(|prefix| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')))
}

fn bad_order() -> Problem {
    "invalid patch format of setElementOrder list".to_owned()
}

fn no_map(item: &Value) -> Problem {
    format!("expected a map, but received {}", go_text(item))
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> Problem {
    let patch = go_text(&Value::Object(patch.clone()));
    format!("unknown patch type: {} in map: {patch}", go_text(directive))
}

/// A value as the API server, written in Go, prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => go_list(items),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_text(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

fn go_list(items: &[Value]) -> String {
    let items: Vec<String> = items.iter().map(go_text).collect();
    format!("[{}]", items.join(" "))
}
