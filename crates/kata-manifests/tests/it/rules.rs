//! The rules of roles as single permissions, so that two ways to write them can be compared.

use std::collections::BTreeSet;

use serde_json::Value;

/// API group, resource, verb, and the object's name, or empty.
pub(crate) type Permissions = BTreeSet<[String; 4]>;

/// The permissions of a list of rules.
pub(crate) fn permissions(rules: &Value) -> Permissions {
    let texts = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten();
        texts.map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let mut permissions = Permissions::new();
    for rule in rules.as_array().unwrap() {
        let mut names = texts(&rule["resourceNames"]);
        if names.is_empty() {
            names.push(String::new());
        }
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    for name in &names {
                        permissions.insert([&group, &resource, &verb, name].map(String::clone));
                    }
                }
            }
        }
    }
    permissions
}
