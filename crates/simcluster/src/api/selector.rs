//! Label selectors and field selectors of lists and watches.
//!
//! They only look at objects; which objects are asked is decided elsewhere.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::error::ApiError;
use super::registry::ResourceDef;

/// A label selector in the form of a query parameter: `a=b,c!=d,e in (f,g),h,!i`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<LabelRequirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    operator: LabelOperator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelOperator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
}

impl LabelSelector {
    /// Reads a selector; an empty text selects everything.
    ///
    /// # Errors
    /// `400` for bad syntax.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let bad = |why: &str| {
            ApiError::new(
                400,
                "BadRequest",
                format!(
                    "unable to parse requirement: {why}; the label selector {text:?} is not valid"
                ),
            )
        };
        let mut requirements = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if part.is_empty() {
                if text.trim().is_empty() {
                    continue;
                }
                return Err(bad("found ',', expected: identifier"));
            }
            requirements.push(LabelRequirement::parse(part).map_err(|why| bad(&why))?);
        }
        Ok(Self(requirements))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the object's labels fit.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|requirement| {
            let value = labels[&requirement.key].as_str();
            match &requirement.operator {
                LabelOperator::In(values) => value.is_some_and(|value| values.contains(value)),
                LabelOperator::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
                LabelOperator::Exists => value.is_some(),
                LabelOperator::Absent => value.is_none(),
            }
        })
    }
}

impl LabelRequirement {
    fn parse(part: &str) -> Result<Self, String> {
        let one = |value: &str| BTreeSet::from([value.trim().to_owned()]);
        let (key, operator) = if let Some(key) = part.strip_prefix('!') {
            (key, LabelOperator::Absent)
        } else if let Some((key, value)) = part.split_once("!=") {
            (key, LabelOperator::NotIn(one(value)))
        } else if let Some((key, value)) = part.split_once("==") {
            (key, LabelOperator::In(one(value)))
        } else if let Some((key, value)) = part.split_once('=') {
            (key, LabelOperator::In(one(value)))
        } else if let Some((head, values)) = part.split_once('(') {
            let values = values
                .trim_end()
                .strip_suffix(')')
                .ok_or_else(|| format!("{part:?} lacks a closing parenthesis"))?;
            let values = values.split(',').map(|value| value.trim().to_owned()).collect();
            match head.trim_end().rsplit_once(char::is_whitespace) {
                Some((key, "in")) => (key, LabelOperator::In(values)),
                Some((key, "notin")) => (key, LabelOperator::NotIn(values)),
                _ => return Err(format!("{part:?} has an unknown operator")),
            }
        } else {
            (part, LabelOperator::Exists)
        };
        let key = key.trim();
        let valid = !key.is_empty()
            && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
        if !valid {
            return Err(format!("invalid label key {key:?}"));
        }
        if let LabelOperator::In(values) | LabelOperator::NotIn(values) = &operator
            && let Some(value) = values.iter().find(|value| !is_label_value(value))
        {
            return Err(format!("invalid label value {value:?}"));
        }
        Ok(Self { key: key.to_owned(), operator })
    }
}

fn is_label_value(value: &str) -> bool {
    value.len() <= 63
        && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A field selector: `metadata.name=a,status.phase!=Running`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Reads a selector for a resource; an empty text selects everything.
    ///
    /// # Errors
    /// `400` for bad syntax, and for a field by which this resource cannot be selected.
    pub fn parse(text: &str, def: &ResourceDef) -> Result<Self, ApiError> {
        let mut requirements = Vec::new();
        for part in split_unescaped(text) {
            if part.is_empty() {
                continue;
            }
            let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = part.split_once("==") {
                (path, value, true)
            } else if let Some((path, value)) = part.split_once('=') {
                (path, value, true)
            } else {
                return Err(ApiError::new(
                    400,
                    "BadRequest",
                    format!("invalid selector: '{text}'; can't understand '{part}'"),
                ));
            };
            if !is_selectable(def, path) {
                let why = if def.custom.is_none() && own_fields(def).is_empty() {
                    format!(
                        "\"{path}\" is not a known field selector: only \"metadata.name\", \
                         \"metadata.namespace\""
                    )
                } else {
                    format!("field label not supported: {path}")
                };
                return Err(ApiError::new(400, "BadRequest", why));
            }
            requirements.push(FieldRequirement {
                path: path.to_owned(),
                value: unescape(value),
                equal,
            });
        }
        Ok(Self(requirements))
    }

    /// A selector for one name.
    pub fn name(name: &str) -> Self {
        Self(vec![FieldRequirement {
            path: "metadata.name".to_owned(),
            value: name.to_owned(),
            equal: true,
        }])
    }

    /// The one name that a selector in a request's query asks for, if it does.
    pub fn exact_name(text: &str) -> Option<String> {
        split_unescaped(text).into_iter().find_map(|part| {
            let value = part.strip_prefix("metadata.name=")?;
            let value = unescape(value.strip_prefix('=').unwrap_or(value));
            Some(value).filter(|name| !name.is_empty())
        })
    }

    /// This selector and another.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the object's fields fit.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|requirement| {
            (field_text(object, &requirement.path) == requirement.value) == requirement.equal
        })
    }
}

/// The text by which a field selector sees a field; absent fields are empty.
fn field_text<'a>(object: &'a Value, path: &str) -> Cow<'a, str> {
    // The one field that is known under a name that is not its path.
    let path = if path == "source" { "source.component" } else { path };
    let value = path.split('.').fold(object, |value, key| &value[key]);
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null if matches!(path, "spec.unschedulable" | "spec.hostNetwork") => {
            Cow::Borrowed("false")
        }
        Value::Null => Cow::Borrowed(""),
        Value::Array(items) => {
            Cow::Borrowed(items.first().and_then(|item| item["ip"].as_str()).unwrap_or_default())
        }
        other => Cow::Owned(other.to_string()),
    }
}

fn is_selectable(def: &ResourceDef, path: &str) -> bool {
    if matches!(path, "metadata.name" | "metadata.namespace") {
        return true;
    }
    if let Some(custom) = &def.custom {
        return custom.selectable_fields.iter().any(|field| field == path);
    }
    own_fields(def).contains(&path)
}

/// The fields of a built-in kind, besides name and namespace, that selectors may name.
fn own_fields(def: &ResourceDef) -> &'static [&'static str] {
    match (def.resource.group.as_ref(), def.resource.plural.as_ref()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        _ => &[],
    }
}

fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts
}

fn unescape(value: &str) -> String {
    let mut text = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        if c == '\\' { text.extend(chars.next()) } else { text.push(c) }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::registry::Registry;
    use crate::resource::PODS;

    fn selects(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn label_selectors_know_all_operators() {
        let labels = json!({"a": "1", "x.io/b": ""});
        for (selector, expected) in [
            ("", true),
            ("a=1", true),
            ("a==1,x.io/b", true),
            ("a!=1", false),
            ("c!=1", true),
            ("a in (1, 2),!c", true),
            ("a notin (1,2)", false),
            ("c notin (1)", true),
            ("x.io/b=", true),
            ("!a", false),
        ] {
            assert_eq!(selects(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn bad_label_selectors_are_refused() {
        for selector in ["a=b c", "a in (b", ",a", "a within (b)", "=b", "a=b,,c"] {
            assert_eq!(LabelSelector::parse(selector).unwrap_err().code, 400, "{selector}");
        }
    }

    #[test]
    fn field_selectors_compare_and_refuse_unknown_fields() {
        let registry = Registry::default();
        let pods = registry.get(&PODS).unwrap();
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        let matches = |text: &str| FieldSelector::parse(text, pods).unwrap().matches(&pod);
        assert!(matches("spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed"));
        assert!(!matches("spec.nodeName=n2"));
        assert!(matches("spec.hostNetwork=false"));
        let error = FieldSelector::parse("spec.foo=1", pods).unwrap_err();
        assert_eq!(error.message, "field label not supported: spec.foo");
    }
}
