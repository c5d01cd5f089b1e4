//! Rules of roles, and the single permissions that they grant.

use serde_json::{Value, json};

/// A permission: API group, resource, verb, and the name of the object, or empty for all.
pub type Permission = (String, String, String, String);

/// A rule of a role.
pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

/// The permissions of rules, sorted.
pub(super) fn flatten(rules: &[Value]) -> Vec<Permission> {
    let texts = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut granted = Vec::new();
    for rule in rules {
        let mut names = texts(&rule["resourceNames"]);
        if names.is_empty() {
            names.push(String::new());
        }
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    for name in &names {
                        granted.push((group.clone(), resource.clone(), verb.clone(), name.clone()));
                    }
                }
            }
        }
    }
    granted.sort();
    granted
}
