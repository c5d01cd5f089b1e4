//! Which changes between two rendered configurations a running node can make, and what they need.

use std::collections::BTreeSet;

use serde_json::Value;

use super::merge::strings;

/// A file that makes a daemon skip its checks; no configuration may contain it.
const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// Checks that a node that runs `old` can change to `new`.
///
/// # Errors
/// The first change that cannot be made on a running node.
pub(super) fn check(old: &Value, new: &Value) -> Result<(), String> {
    let (before, after) = (&old["config"], &new["config"]);
    for section in ["disks", "filesystems", "raid", "directories", "links"] {
        if differ(&before["storage"][section], &after["storage"][section]) {
            return Err(format!("ignition {section} section contains changes"));
        }
    }
    if differ(&before["kernelArguments"], &after["kernelArguments"]) {
        return Err("ignition kargs section contains changes".to_owned());
    }
    for file in after["storage"]["files"].as_array().into_iter().flatten() {
        let path = file["path"].as_str().unwrap_or_default();
        if path == FORCE_FILE {
            return Err(format!("cannot create {FORCE_FILE} via Ignition"));
        }
        if !is_empty(&file["append"]) {
            return Err(format!("ignition file {path} includes append"));
        }
    }
    check_users(&before["passwd"], &after["passwd"])
        .map_err(|why| format!("invalid passwd change(s): {why}"))?;
    if (old["fips"] == true) != (new["fips"] == true) {
        return Err(
            "detected change to FIPS flag; refusing to modify FIPS on a running cluster".to_owned()
        );
    }
    Ok(())
}

/// Whether a node that changes from `old` to `new` has anything to do.
pub(super) fn has_changes(old: &Value, new: &Value) -> bool {
    let set = |spec: &Value| strings(&spec["extensions"]).map(str::to_owned).collect();
    let (before, after): (BTreeSet<String>, BTreeSet<String>) = (set(old), set(new));
    before != after
        || ["config", "kernelArguments", "fips", "kernelType", "osImageURL"]
            .iter()
            .any(|field| differ(&old[field], &new[field]))
}

/// What the operating system's part of a change is called in Events.
pub(super) fn describe(old: &Value, new: &Value) -> String {
    let mut parts = Vec::new();
    if old["osImageURL"] != new["osImageURL"] {
        parts.push("Upgrading OS");
    }
    if old["extensions"] != new["extensions"] {
        parts.push("Installing extensions");
    }
    if old["kernelType"] != new["kernelType"] {
        parts.push("Changing kernel type");
    }
    if old["kernelArguments"] != new["kernelArguments"] {
        parts.push("Changing kernel arguments");
    }
    parts.join("; ")
}

/// Only the keys and the password of user `core` can change.
fn check_users(before: &Value, after: &Value) -> Result<(), String> {
    if differ(&before["groups"], &after["groups"]) {
        return Err("ignition passwd groups section contains changes".to_owned());
    }
    let fail = |why: String| {
        Err(format!("ignition passwd user section contains unsupported changes: {why}"))
    };
    let users = |passwd: &Value| -> Vec<Value> {
        passwd["users"].as_array().into_iter().flatten().cloned().collect()
    };
    let (before, after) = (users(before), users(after));
    let text = |user: &Value| user["name"].as_str().unwrap_or_default().to_owned();
    for user in &before {
        if after.iter().all(|other| text(other) != text(user)) {
            return fail(format!("user {} cannot be deleted", text(user)));
        }
    }
    for user in &after {
        if text(user) != "core" && !before.contains(user) {
            return fail(format!("non-core user {}", text(user)));
        }
    }
    Ok(())
}

fn differ(a: &Value, b: &Value) -> bool {
    a != b && !(is_empty(a) && is_empty(b))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn some_changes_cannot_be_made() {
        let storage = |section: &str| json!({"config": {"storage": {(section): [{"path": "/a"}]}}});
        let user = |name: &str| json!({"config": {"passwd": {"users": [{"name": name}]}}});
        for (old, new, expected) in [
            (json!({}), json!({"extensions": ["usbguard"], "kernelArguments": ["a"]}), None),
            (json!({}), storage("files"), None),
            (
                json!({}),
                storage("directories"),
                Some("ignition directories section contains changes"),
            ),
            (storage("links"), json!({}), Some("ignition links section contains changes")),
            (
                json!({}),
                json!({"config": {"kernelArguments": {"shouldExist": ["a"]}}}),
                Some("ignition kargs section contains changes"),
            ),
            (
                json!({}),
                json!({"config": {"storage": {"files": [{"path": FORCE_FILE}]}}}),
                Some("cannot create /run/machine-config-daemon-force via Ignition"),
            ),
            (
                json!({}),
                json!({"config": {"storage": {"files": [
                {"path": "/a", "append": [{"source": "data:,"}]}]}}}),
                Some("ignition file /a includes append"),
            ),
            (
                user("core"),
                json!({}),
                Some(
                    "invalid passwd change(s): ignition passwd user section contains unsupported \
                   changes: user core cannot be deleted",
                ),
            ),
            (
                json!({}),
                user("me"),
                Some(
                    "invalid passwd change(s): ignition passwd user section contains unsupported \
                   changes: non-core user me",
                ),
            ),
            (
                json!({"fips": false}),
                json!({"fips": true}),
                Some("detected change to FIPS flag; refusing to modify FIPS on a running cluster"),
            ),
        ] {
            let result = check(&old, &new);
            assert_eq!(result.err().as_deref(), expected, "{old} -> {new}");
        }
    }

    #[test]
    fn equal_content_needs_nothing() {
        let old = json!({"extensions": ["a", "b"], "kernelArguments": [], "fips": false});
        let same = json!({"extensions": ["b", "a", "a"], "fips": false});
        assert!(!has_changes(&old, &same));
        assert!(has_changes(&old, &json!({"extensions": ["a"], "fips": false})));
        assert!(has_changes(
            &old,
            &json!({"extensions": ["a", "b"], "fips": false,
            "osImageURL": "x"})
        ));
    }
}
