//! Label selectors as Kubernetes evaluates them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Whether labels match a selector; an empty selector matches everything. `Err` names a requirement that
/// cannot be evaluated.
pub fn matches(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
) -> Result<bool, String> {
    check(selector)?;
    let by_labels =
        selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let by_expressions = selector.match_expressions.iter().flatten().all(|requirement| {
        let value = labels.get(&requirement.key);
        let listed = |value: &String| {
            requirement.values.as_ref().is_some_and(|values| values.contains(value))
        };
        match requirement.operator.as_str() {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    });
    Ok(by_labels && by_expressions)
}

/// Whether a selector selects a node that may have what the selector is about already. It keeps that if the selector cannot
/// be evaluated and, with `keeps_unmatched`, if the selector no longer matches.
pub(crate) fn selects(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
    keeps_unmatched: bool,
    has: impl FnOnce() -> bool,
) -> bool {
    match matches(selector, labels) {
        Ok(true) => true,
        Ok(false) => keeps_unmatched && has(),
        Err(_) => has(),
    }
}

/// A selector as `kubectl get -l` takes it, such as `kata=true,zone in (a,b),!edge`.
pub fn text(selector: &LabelSelector) -> String {
    let labels =
        selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(|requirement| {
        let key = &requirement.key;
        let values = || requirement.values.iter().flatten().cloned().collect::<Vec<_>>().join(",");
        match requirement.operator.as_str() {
            "In" => format!("{key} in ({})", values()),
            "NotIn" => format!("{key} notin ({})", values()),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

/// Whether the text is valid as the name or the value of a label: at most 63 letters, digits, `-`, `_` and
/// `.`, with a letter or digit at both ends.
fn is_part(text: &str) -> bool {
    let within = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= 63
        && text.bytes().all(within)
        && ends.into_iter().flatten().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether the text is a valid key of a label.
fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(a, b)| (Some(a), b));
    let is_domain = |prefix: &str| {
        prefix.len() <= 253
            && prefix.split('.').all(|label| {
                let within =
                    |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
                !label.is_empty()
                    && label.bytes().all(within)
                    && !label.starts_with('-')
                    && !label.ends_with('-')
            })
    };
    !name.is_empty() && is_part(name) && prefix.is_none_or(is_domain)
}

/// Whether the key of a label is in a domain, or in one below.
fn is_in_domain(key: &str, domain: &str) -> bool {
    let of_key = key.split_once('/').map_or("", |(domain, _)| domain);
    of_key.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether a label is one of Kubernetes' own domains, such as a node's name, zone or size. The kubelet, the cloud or an
/// installer sets it.
pub fn is_well_known(key: &str) -> bool {
    is_in_domain(key, "kubernetes.io") || is_in_domain(key, "k8s.io")
}

/// Whether the kubelet, the cloud or an installer sets a label, so that it would be false on another node. Labels with
/// `node-restriction.kubernetes.io` are the administrator's: a kubelet may not set them.
pub fn describes_node(key: &str) -> bool {
    is_well_known(key) && !is_in_domain(key, "node-restriction.kubernetes.io")
}

/// The keys of a selector.
pub fn keys(selector: &LabelSelector) -> impl Iterator<Item = &str> {
    let labels = selector.match_labels.iter().flatten().map(|(key, _)| key.as_str());
    let expressions = selector.match_expressions.iter().flatten().map(|it| it.key.as_str());
    labels.chain(expressions)
}

/// Whether a label belongs to a program that labels nodes by their hardware, such as Node Feature Discovery.
pub fn is_of_labeller(key: &str) -> bool {
    const DOMAINS: [&str; 4] = ["feature.node.kubernetes.io", "nvidia.com", "amd.com", "intel.com"];
    DOMAINS.iter().any(|domain| is_in_domain(key, domain))
}

/// Checks that a selector can be evaluated: its operators are known, and its keys and values are valid.
pub fn check(selector: &LabelSelector) -> Result<(), String> {
    let labels = selector.match_labels.iter().flatten();
    let listed = selector.match_expressions.iter().flatten();
    let values =
        labels.map(|(_, value)| value).chain(listed.flat_map(|it| it.values.iter().flatten()));
    if let Some(key) = keys(selector).find(|key| !is_key(key)) {
        return Err(format!("no node can have a label {key:?}"));
    }
    if let Some(value) = values.into_iter().find(|value| !is_part(value)) {
        return Err(format!("no node can have a label with the value {value:?}"));
    }
    for requirement in selector.match_expressions.iter().flatten() {
        let count = requirement.values.as_ref().map_or(0, Vec::len);
        let key = &requirement.key;
        match requirement.operator.as_str() {
            "In" | "NotIn" if count == 0 => {
                return Err(format!(
                    "operator {} for label {key} needs at least one value",
                    requirement.operator
                ));
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                return Err(format!(
                    "operator {} for label {key} takes no values",
                    requirement.operator
                ));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                return Err(format!(
                    "operator {other:?} for label {key} is not one of In, NotIn, Exists, DoesNotExist"
                ));
            }
        }
    }
    Ok(())
}
