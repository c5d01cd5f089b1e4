//! What differs from run to run of the same server is taken out of its answers, or brought into one order.
//!
//! What differs between a real server and the simulator stays: that is for [`super::tolerated`].

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Takes out what no two servers have in common.
pub(super) fn scrub(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in [
                "uid",
                "resourceVersion",
                "continue",
                "creationTimestamp",
                "deletionTimestamp",
                "time",
            ] {
                if let Some(found) = map.get_mut(key)
                    && !found.is_null()
                    && !found.is_object()
                {
                    *found = json!("-");
                }
            }
            for key in ["clusterIP", "clusterIPs"] {
                if let Some(address) = map.get_mut(key).filter(|value| **value != "None") {
                    *address = json!("-");
                }
            }
            // The times of the entries, which order them, differ from run to run.
            if let Some(Value::Array(entries)) = map.get_mut("managedFields") {
                entries.iter_mut().for_each(|entry| {
                    if let Some(time) = entry.get_mut("time") {
                        *time = json!("-");
                    }
                });
                entries.sort_by_key(Value::to_string);
            }
            if let Some(Value::Array(columns)) = map.get_mut("columnDefinitions") {
                columns.iter_mut().for_each(|column| column["description"] = json!(""));
            }
            map.values_mut().for_each(scrub);
            scrub_order(map);
            scrub_account(map);
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::String(text) if is_age(text) => *text = "AGE".to_owned(),
        Value::String(text) => *text = scrub_text(text),
        _ => {}
    }
}

/// Takes out the default service account of pods: the plugin that names it needs a controller that
/// makes the account, and is off in the real server of the comparison.
fn scrub_account(pod: &mut Map<String, Value>) {
    if let Some(Value::Object(spec)) = pod.get_mut("spec") {
        for key in ["serviceAccount", "serviceAccountName"] {
            if spec.get(key).is_some_and(|account| account == "default") {
                spec.remove(key);
            }
        }
    }
}

/// Brings what a real server tells in random order (it walks Go maps) into one order.
fn scrub_order(map: &mut Map<String, Value>) {
    if let Some(Value::Array(causes)) =
        map.get_mut("details").and_then(|details| details.get_mut("causes"))
    {
        causes.sort_by_key(Value::to_string);
        let texts: BTreeSet<String> = causes
            .iter()
            .map(|cause| {
                let text = |key: &str| cause[key].as_str().unwrap_or_default();
                format!("{}: {}", text("field"), text("message"))
            })
            .collect();
        let message = map["message"].as_str().unwrap_or_default();
        if let Some((start, told)) = message.split_once(" is invalid: ")
            && told.len() == texts.iter().map(|text| text.len() + 2).sum::<usize>()
            && texts.iter().all(|text| told.contains(text.as_str()))
        {
            let texts: Vec<String> = texts.into_iter().collect();
            map["message"] = json!(format!("{start} is invalid: [{}]", texts.join(", ")));
        }
    }
    if let Some((start, errors)) = map
        .get("message")
        .and_then(Value::as_str)
        .filter(|message| message.starts_with("failed to create typed patch object"))
        .and_then(|message| message.split_once(": errors:\n"))
    {
        let mut lines: Vec<&str> = errors.split('\n').collect();
        lines.sort_unstable();
        // What else is told besides an unknown field is chance.
        let unknown = lines.iter().find(|line| line.ends_with("field not declared in schema"));
        let message = match unknown {
            Some(line) => format!("{start}: {}", line.trim_start()),
            None => format!("{start}: errors:\n{}", lines.join("\n")),
        };
        map.insert("message".to_owned(), json!(message));
    }
}

/// Whether a cell of a Table tells a time, an age in seconds or a handed out address.
fn is_age(text: &str) -> bool {
    let time = text.len() == 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T';
    let address = text.starts_with("10.96.") || text.starts_with("172.30.");
    time || address
        || text == "<invalid>"
        || text.strip_suffix('s').is_some_and(|text| {
            !text.is_empty() && text.len() < 4 && text.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// Takes uids and resource versions out of messages.
fn scrub_text(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split(' ') {
        let bare = word.rsplit('=').next().unwrap_or_default();
        let bare = bare.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let uuid = bare.len() == 36 && bare.matches('-').count() == 4;
        let generated = bare.len() == 9 && bare.starts_with("gen-");
        words.push(if uuid {
            word.replace(bare, "UID")
        } else if generated {
            word.replace(bare, "gen-*")
        } else {
            word.to_owned()
        });
    }
    let mut text = words.join(" ");
    // A real server shows the difference of its internal Go structs here.
    if let Some(start) = text.find("(allow it to be set to 1 if it was previously negative)\n") {
        text.truncate(text[start..].find('\n').unwrap_or_default() + start);
    }
    for (before, after) in
        [(", Key: ", ", ResourceVersion: "), ("ResourceVersion in record (", ")")]
    {
        if let Some(start) = text.find(before).map(|start| start + before.len())
            && let Some(length) = text[start..].find(after)
        {
            text.replace_range(start..start + length, "...");
        }
    }
    // The value is the whole patched object, or the patch.
    if let Some(start) = text.find(" \"\" is invalid: patch: Invalid value: ")
        && let Some(end) = text.find(": strict decoding error")
        && start < end
    {
        text.replace_range(start..end, " \"\" is invalid: patch: Invalid value: ...");
    }
    if text.starts_with("Invalid value: ")
        && let Some(end) = text.find(": strict decoding error")
    {
        text.replace_range(..end, "Invalid value: ...");
    }
    match text.find("ResourceVersion in precondition") {
        Some(start) => format!("{}ResourceVersion in precondition: ...", &text[..start]),
        None => text,
    }
}
