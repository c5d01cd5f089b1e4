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

impl Count {
    /// All of it.
    pub(super) fn total(self) -> usize {
        self.env + self.other
    }
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

/// Takes out of lines what looks like a credential: values of keys that are called like one, bearer tokens,
/// JSON Web Tokens, and the user in front of the host of a URL.
pub(super) fn text(text: &str, count: &mut Count) -> String {
    let mut clean = String::with_capacity(text.len());
    // The value is still to come, as after `password:` and `Bearer`.
    let mut expected = false;
    let end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '`' | '(' | ')');
    for piece in text.split_inclusive(end) {
        let word = piece.trim_end_matches(end);
        let rest = piece.get(word.len()..).unwrap_or_default();
        // What stands between a key and its value is not the value.
        if word.chars().all(|c| matches!(c, ':' | '=')) {
            clean.push_str(piece);
            expected &= !rest.contains('\n');
            continue;
        }
        let lower = word.to_ascii_lowercase();
        let announces = matches!(lower.as_str(), "bearer" | "basic")
            || lower.strip_suffix([':', '=']).is_some_and(is_secret);
        if std::mem::take(&mut expected) && !announces {
            clean.push_str(GONE);
            count.other += 1;
        } else if let Some(at) = secret_value(word) {
            clean.push_str(word.get(..at).unwrap_or_default());
            clean.push_str(GONE);
            count.other += 1;
        } else if let Some((scheme, host)) = credentials_in_url(word) {
            clean.push_str(scheme);
            clean.push_str(GONE);
            clean.push_str(host);
            count.other += 1;
        } else {
            clean.push_str(word);
        }
        clean.push_str(rest);
        // JSON puts a quote between the key and its colon.
        expected =
            (announces || (is_secret(&lower) && rest.starts_with('"'))) && !rest.contains('\n');
    }
    clean
}

/// Whether something that is called so is a credential.
fn is_secret(key: &str) -> bool {
    let key = key.rsplit(['.', '?', '&', '-', '_']).next().unwrap_or(key);
    matches!(
        key,
        "token" | "password" | "passwd" | "secret" | "apikey" | "credential" | "authorization"
    )
}

/// Where the credential in a word begins.
fn secret_value(word: &str) -> Option<usize> {
    if word.starts_with("eyJ") && word.matches('.').count() == 2 {
        return Some(0);
    }
    let at = word.find(['=', ':'])?;
    let (key, value) = word.split_at_checked(at)?;
    (value.len() > 1 && !value.starts_with("://") && is_secret(&key.to_ascii_lowercase()))
        .then_some(at + 1)
}

/// A URL before and after its user and password.
fn credentials_in_url(word: &str) -> Option<(&str, &str)> {
    let at = word.find("://")? + 3;
    let (scheme, rest) = word.split_at_checked(at)?;
    let authority = rest.split('/').next()?;
    let (user, _) = authority.rsplit_once('@')?;
    Some((scheme, rest.get(user.len()..)?))
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
        assert_eq!(count.total(), 3);
        let mut secret = json!({"kind": "Secret", "data": {"a": "s3cret"}});
        value(&mut secret, &mut count);
        assert!(!secret.to_string().contains("s3cret"));
    }

    #[test]
    fn credentials_do_not_get_into_the_collection_with_a_log() {
        let lines = [
            ("level=info token=s3cret node=a", "level=info token=(redacted) node=a"),
            ("Authorization: Bearer s3cret, next", "Authorization: Bearer (redacted), next"),
            ("{\"password\":\"s3cret\",\"a\":1}", "{\"password\":\"(redacted)\",\"a\":1}"),
            (
                "pull https://me:s3cret@registry.example.com/a:b",
                "pull https://(redacted)@registry.example.com/a:b",
            ),
            ("jwt eyJhbGciOi.eyJzdWIi.s3cret end", "jwt (redacted) end"),
            ("registry-password: s3cret", "registry-password: (redacted)"),
            ("the token of pod a/b is valid", "the token of pod a/b is valid"),
            ("GET https://10.0.0.1:6443/api?limit=500", "GET https://10.0.0.1:6443/api?limit=500"),
            ("password:\nnext line", "password:\nnext line"),
        ];
        for (line, clean) in lines {
            let mut count = Count::default();
            assert_eq!(text(line, &mut count), clean);
            assert_eq!(count.total(), usize::from(line.contains("s3cret")), "{line}");
        }
    }
}
