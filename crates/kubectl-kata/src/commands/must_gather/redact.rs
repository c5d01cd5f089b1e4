//! Takes out of objects what is nobody's business: values of environment variables, tokens, the contents
//! of files in MachineConfigs, and what kubectl keeps of the last apply. Pure.

use std::fmt;

use serde_json::{Value, json};

const GONE: &str = "(redacted)";

/// How much was taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    env: usize,
    other: usize,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} env values, {} others", self.env, self.other)
    }
}

/// Takes everything out of a value.
pub(super) fn value(value: &mut Value, count: &mut Count) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| self::value(item, count)),
        Value::Object(fields) => {
            fields.remove("managedFields");
            let secret = fields.get("kind").and_then(Value::as_str) == Some("Secret");
            for (key, field) in fields.iter_mut() {
                match key.as_str() {
                    "env" => env(field, count),
                    "annotations" => {
                        if let Some(all) = field.as_object_mut() {
                            all.remove("kubectl.kubernetes.io/last-applied-configuration");
                        }
                    }
                    "data" | "stringData" if secret => gone(field, &mut count.other),
                    "token" | "password" | "passwordHash" | "sshAuthorizedKeys"
                    | "clientSecret" => {
                        gone(field, &mut count.other);
                    }
                    // Contents of files in an Ignition configuration.
                    "source" if field.as_str().is_some_and(|text| text.starts_with("data:")) => {
                        gone(field, &mut count.other);
                    }
                    _ => self::value(field, count),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn env(field: &mut Value, count: &mut Count) {
    for entry in field.as_array_mut().into_iter().flatten() {
        if entry["value"].is_string() {
            entry["value"] = json!(GONE);
            count.env += 1;
        }
    }
}

fn gone(field: &mut Value, count: &mut usize) {
    if !field.is_null() {
        *field = json!(GONE);
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_get_into_the_collection() {
        let mut object = json!({
            "metadata": {"managedFields": [], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"env\": \"s3cret\"}", "a": "b",
            }},
            "spec": {
                "containers": [{"env": [
                    {"name": "A", "value": "s3cret"},
                    {"name": "B", "valueFrom": {"fieldRef": {}}},
                ]}],
                "config": {"storage": {"files": [{"contents": {"source": "data:,s3cret"}}]},
                    "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["s3cret"]}]}},
            },
        });
        let mut count = Count::default();
        value(&mut object, &mut count);
        assert!(!object.to_string().contains("s3cret"), "{object}");
        assert_eq!(count, Count { env: 1, other: 2 });
        let mut secret = json!({"kind": "Secret", "data": {"a": "s3cret"}});
        value(&mut secret, &mut count);
        assert!(!secret.to_string().contains("s3cret"));
    }
}
