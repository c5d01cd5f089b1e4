//! `events.k8s.io` Events as another view of core Events, which is what the store holds.
//!
//! Only top-level fields differ, so that patches can be translated like objects.

use serde_json::{Value, json};

/// Field names in core/v1 and in events.k8s.io/v1, where they differ.
const FIELDS: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

/// The API version of the other view.
const OTHER_VERSION: &str = "events.k8s.io/v1";

/// A body in events.k8s.io/v1, as core/v1.
pub fn to_core(body: &Value) -> Value {
    rename(body, "v1", OTHER_VERSION, FIELDS.map(|(core, other)| (other, core)))
}

/// A stored Event, as events.k8s.io/v1.
pub fn from_core(event: &Value) -> Value {
    rename(event, OTHER_VERSION, "v1", FIELDS)
}

fn rename(value: &Value, version: &str, from: &str, names: [(&str, &str); 7]) -> Value {
    let mut renamed = value.clone();
    if let Some(fields) = renamed.as_object_mut() {
        for (old, new) in names {
            if let Some(field) = fields.remove(old) {
                fields.insert(new.to_owned(), field);
            }
        }
        if fields.get("apiVersion").is_some_and(|current| current == from) {
            fields.insert("apiVersion".to_owned(), json!(version));
        }
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_views_translate_into_each_other() {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "a"},
            "note": "text", "reportingController": "c", "type": "Normal",
        });
        let core = to_core(&event);
        assert_eq!(core["involvedObject"]["name"], "a");
        assert_eq!((&core["message"], &core["apiVersion"]), (&json!("text"), &json!("v1")));
        assert_eq!(from_core(&core), event);
    }
}
