//! The operations of RFC 6902 on one JSON value.
//!
//! No operation creates parents of its target. A failed operation may leave the value half changed; the
//! caller throws it away.

use serde_json::Value;

/// Applies one operation; `None` if it cannot be applied.
pub(super) fn apply(document: &mut Value, operation: &Value) -> Option<()> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = text("path")?;
    match text("op")? {
        "add" => add(document, path, operation.get("value")?.clone()),
        "remove" => remove(document, path).map(drop),
        "replace" => {
            let value = operation.get("value")?.clone();
            // The real server sets members of maps whether they are there or not.
            if let Some((Value::Object(map), token)) = parent(document, path) {
                map.insert(token, value);
                return Some(());
            }
            *find_mut(document, path)? = value;
            Some(())
        }
        "test" => {
            let expected = operation.get("value").unwrap_or(&Value::Null);
            let found = find(document, path).unwrap_or(&Value::Null);
            (found == expected).then_some(())
        }
        "move" => {
            let value = remove(document, text("from")?)?;
            add(document, path, value)
        }
        "copy" => {
            let value = find(document, text("from")?)?.clone();
            add(document, path, value)
        }
        _ => None,
    }
}

/// The tokens of a JSON pointer, unescaped.
fn tokens(path: &str) -> Option<impl Iterator<Item = String>> {
    let rest = if path.is_empty() { None } else { Some(path.strip_prefix('/')?) };
    Some(
        rest.into_iter()
            .flat_map(|rest| rest.split('/'))
            .map(|token| token.replace("~1", "/").replace("~0", "~")),
    )
}

/// The place of an index in a list of that length; a negative one counts from the end.
fn index(token: &str, length: usize) -> Option<usize> {
    match token.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok()?),
        None => token.parse().ok(),
    }
}

fn step<'v>(value: &'v Value, token: &str) -> Option<&'v Value> {
    match value {
        Value::Object(map) => map.get(token),
        Value::Array(items) => items.get(index(token, items.len())?),
        _ => None,
    }
}

fn step_mut<'v>(value: &'v mut Value, token: &str) -> Option<&'v mut Value> {
    match value {
        Value::Object(map) => map.get_mut(token),
        Value::Array(items) => {
            let index = index(token, items.len())?;
            items.get_mut(index)
        }
        _ => None,
    }
}

fn find<'v>(document: &'v Value, path: &str) -> Option<&'v Value> {
    tokens(path)?.try_fold(document, |value, token| step(value, &token))
}

fn find_mut<'v>(document: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    tokens(path)?.try_fold(document, |value, token| step_mut(value, &token))
}

/// The parent of a path's target, and the last token.
fn parent<'v>(document: &'v mut Value, path: &str) -> Option<(&'v mut Value, String)> {
    let (parent, _last) = path.rsplit_once('/')?;
    let last = tokens(path)?.last()?;
    Some((find_mut(document, parent)?, last))
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *document = value;
        return Some(());
    }
    let (parent, token) = parent(document, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(token, value);
        }
        Value::Array(items) if token == "-" => items.push(value),
        Value::Array(items) => {
            // A negative index counts from the end of the longer list.
            let index = index(&token, items.len() + 1)?;
            if index > items.len() {
                return None;
            }
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    let (parent, token) = parent(document, path)?;
    match parent {
        Value::Object(map) => map.remove(&token),
        Value::Array(items) => {
            let index = index(&token, items.len())?;
            (index < items.len()).then(|| items.remove(index))
        }
        _ => None,
    }
}
