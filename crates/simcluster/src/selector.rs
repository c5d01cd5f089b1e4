//! Label selectors and node selectors as objects hold them: what they choose, and how they read.
//!
//! The form that requests carry in their query is in [`crate::api::selector`]; here nothing is parsed.

use serde_json::{Map, Value};

/// Whether a `LabelSelector` object chooses something with these labels.
///
/// An absent selector chooses nothing, an empty one everything.
pub(crate) fn matches(selector: &Value, labels: &Value) -> bool {
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

/// Whether a `LabelSelector` object asks for nothing, or is absent.
pub(crate) fn is_empty(selector: &Value) -> bool {
    selector["matchLabels"].as_object().is_none_or(Map::is_empty)
        && selector["matchExpressions"].as_array().is_none_or(Vec::is_empty)
}

/// A `LabelSelector` object in the notation of `kubectl -l`; empty if it asks for nothing.
pub(crate) fn text(selector: &Value) -> String {
    let mut parts = selector["matchLabels"].as_object().map_or_else(Vec::new, equalities);
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let values = values.join(",");
        parts.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.join(",")
}

/// Labels as `key=value`, ordered by key.
pub(crate) fn equalities(labels: &Map<String, Value>) -> Vec<String> {
    labels
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect()
}

/// Whether the node selector and the required node affinity of a pod's spec choose a node with these labels
/// and this name.
pub(crate) fn pod_chooses_node(spec: &Value, labels: &Value, name: &str) -> bool {
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    spec["nodeSelector"]
        .as_object()
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
        && (required.is_null() || node_terms_match(&required["nodeSelectorTerms"], labels, name))
}

/// Whether one of the terms of a `NodeSelector` chooses a node with these labels and this name.
fn node_terms_match(terms: &Value, labels: &Value, name: &str) -> bool {
    let fields = serde_json::json!({"metadata.name": name});
    terms.as_array().into_iter().flatten().any(|term| {
        let list = |field: &str| term[field].as_array().map_or(&[][..], Vec::as_slice);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn selectors_choose_and_read_as_in_kubernetes() {
        let labels = json!({"role": "kata-oc", "size": "4"});
        for (selector, chosen, read) in [
            (json!(null), false, ""),
            (json!({}), true, ""),
            (json!({"matchLabels": {"role": "kata-oc"}}), true, "role=kata-oc"),
            (json!({"matchLabels": {"role": "worker"}}), false, "role=worker"),
            (json!({"matchLabels": {"other": ""}}), false, "other="),
            (expression("role", "In", &["worker", "kata-oc"]), true, "role in (worker,kata-oc)"),
            (expression("other", "In", &["worker"]), false, "other in (worker)"),
            (expression("role", "NotIn", &["worker"]), true, "role notin (worker)"),
            (expression("other", "NotIn", &["worker"]), true, "other notin (worker)"),
            (expression("other", "Exists", &[]), false, "other"),
            (expression("other", "DoesNotExist", &[]), true, "!other"),
            (expression("role", "Near", &[]), false, "role"),
        ] {
            assert_eq!(matches(&selector, &labels), chosen, "{selector}");
            assert_eq!(text(&selector), read, "{selector}");
        }
    }

    #[test]
    fn only_selectors_that_ask_for_nothing_are_empty() {
        for selector in [json!(null), json!({}), json!({"matchLabels": {}, "matchExpressions": []})]
        {
            assert!(is_empty(&selector), "{selector}");
        }
        assert!(!is_empty(&json!({"matchLabels": {"a": ""}})));
        assert!(!is_empty(&expression("a", "Exists", &[])));
    }

    #[test]
    fn node_terms_choose_by_labels_numbers_and_names() {
        let labels = json!({"size": "4"});
        let terms = |operator: &str, bound: &str| json!([expression("size", operator, &[bound])]);
        assert!(node_terms_match(&terms("Gt", "3"), &labels, "n"));
        assert!(!node_terms_match(&terms("Lt", "4"), &labels, "n"));
        assert!(!node_terms_match(&terms("Gt", "many"), &labels, "n"));
        let named = json!([{}, {"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]);
        assert!(node_terms_match(&named, &labels, "n"));
        assert!(!node_terms_match(&named, &labels, "m"), "an empty term chooses nothing");
    }
}
