//! Label selectors inside objects, and node selector terms.
//!
//! The query form of list requests is in the API server.

use serde_json::Value;

/// Whether a `LabelSelector` object chooses something with these labels.
///
/// An absent selector chooses nothing, an empty one everything.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    let Some(selector) = selector.as_object() else { return false };
    let by_labels = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value));
    by_labels
        && selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .is_none_or(|list| list.iter().all(|requirement| holds(requirement, labels)))
}

/// Whether one of the terms of a `NodeSelector` chooses a node with these labels and this name.
pub fn node_terms_match(terms: &Value, labels: &Value, name: &str) -> bool {
    let fields = serde_json::json!({"metadata.name": name});
    terms.as_array().into_iter().flatten().any(|term| {
        let list = |field: &str| term[field].as_array().cloned().unwrap_or_default();
        let (expressions, names) = (list("matchExpressions"), list("matchFields"));
        !(expressions.is_empty() && names.is_empty())
            && expressions.iter().all(|requirement| holds(requirement, labels))
            && names.iter().all(|requirement| holds(requirement, &fields))
    })
}

fn holds(requirement: &Value, labels: &Value) -> bool {
    let value = labels[requirement["key"].as_str().unwrap_or_default()].as_str();
    let values = || requirement["values"].as_array().into_iter().flatten();
    let listed = |value: &str| values().any(|known| known == value);
    let number = |compare: fn(i64, i64) -> bool| {
        let bound = values().next().and_then(Value::as_str).and_then(|text| text.parse().ok());
        let value = value.and_then(|text| text.parse().ok());
        value.zip(bound).is_some_and(|(value, bound)| compare(value, bound))
    };
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(|value, bound| value > bound),
        "Lt" => number(|value, bound| value < bound),
        _ => false,
    }
}
