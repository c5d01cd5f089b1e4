//! Which pool a node belongs to, and which objects a label selector chooses.

use std::sync::Arc;

use serde_json::Value;

use crate::selector;

/// The pool that governs a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    /// No pool's selector matches.
    None,
    /// This pool.
    Pool(String),
    /// That many custom pools: an error, and no pool counts the node.
    Conflict(usize),
}

/// Whether a label selector chooses an object; a missing or empty one chooses nothing here.
pub(super) fn selects(selector: &Value, object: &Value) -> bool {
    !selector::is_empty(selector) && selector::matches(selector, &object["metadata"]["labels"])
}

/// The object's name.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The value of an annotation; empty if there is none.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// The pools whose selectors match the node.
struct Matches<'a> {
    master: bool,
    worker: bool,
    custom: Vec<&'a str>,
}

impl<'a> Matches<'a> {
    fn of(pools: &'a [Arc<Value>], node: &Value) -> Self {
        let mut matches = Self { master: false, worker: false, custom: Vec::new() };
        if node["metadata"]["labels"]["kubernetes.io/os"] == "windows" {
            return matches;
        }
        for pool in pools.iter().filter(|pool| selects(&pool["spec"]["nodeSelector"], node)) {
            match name(pool) {
                "master" => matches.master = true,
                "worker" => matches.worker = true,
                custom => matches.custom.push(custom),
            }
        }
        matches
    }

    /// The pool that governs the node, or how many custom ones claim it.
    fn governing(&self) -> Result<Option<&'a str>, usize> {
        match self.custom.as_slice() {
            [_, _, ..] => Err(self.custom.len()),
            _ if self.master => Ok(Some("master")),
            [custom] => Ok(Some(custom)),
            [] => Ok(self.worker.then_some("worker")),
        }
    }
}

/// The pool that governs the node.
pub(super) fn membership(pools: &[Arc<Value>], node: &Value) -> Membership {
    match Matches::of(pools, node).governing() {
        Err(customs) => Membership::Conflict(customs),
        Ok(Some(pool)) => Membership::Pool(pool.to_owned()),
        Ok(None) => Membership::None,
    }
}

/// Whether the pool of that name governs the node.
pub(super) fn governs(pools: &[Arc<Value>], pool: &str, node: &Value) -> bool {
    Matches::of(pools, node).governing() == Ok(Some(pool))
}

/// The pools that a change of the node may concern: its own, and `worker` behind a custom one.
pub(super) fn concerned(pools: &[Arc<Value>], node: &Value) -> Vec<String> {
    let matches = Matches::of(pools, node);
    match matches.custom.as_slice() {
        [_, _, ..] => Vec::new(),
        _ if matches.master => vec!["master".to_owned()],
        custom => custom
            .iter()
            .copied()
            .chain(matches.worker.then_some("worker"))
            .map(str::to_owned)
            .collect(),
    }
}

/// Why a node that several custom pools select is left alone.
pub(super) fn conflict_message(node: &str, customs: usize) -> String {
    format!("node {node} belongs to {customs} custom roles, cannot proceed with this Node")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pools() -> Vec<Arc<Value>> {
        ["infra", "kata-oc", "master", "worker"]
            .into_iter()
            .map(|name| {
                Arc::new(json!({
                    "metadata": {"name": name},
                    "spec": {"nodeSelector": {"matchLabels": {
                        (format!("node-role.kubernetes.io/{name}")): ""}}},
                }))
            })
            .collect()
    }

    fn node(roles: &[&str]) -> Value {
        let labels: serde_json::Map<String, Value> = roles
            .iter()
            .map(|role| (format!("node-role.kubernetes.io/{role}"), json!("")))
            .collect();
        json!({"metadata": {"name": "n", "labels": labels}})
    }

    /// Rule 13: master before a single custom pool before worker; two custom pools are an error.
    #[test]
    fn one_pool_governs_a_node() {
        let pool = |name: &str| Membership::Pool(name.to_owned());
        for (roles, expected, concerned_pools) in [
            (&["worker"][..], pool("worker"), &["worker"][..]),
            (&["worker", "kata-oc"], pool("kata-oc"), &["kata-oc", "worker"]),
            (&["kata-oc"], pool("kata-oc"), &["kata-oc"]),
            (&["master", "worker"], pool("master"), &["master"]),
            (&["master", "worker", "kata-oc"], pool("master"), &["master"]),
            (&["worker", "kata-oc", "infra"], Membership::Conflict(2), &[]),
            (&["master", "kata-oc", "infra"], Membership::Conflict(2), &[]),
            (&["other"], Membership::None, &[]),
        ] {
            assert_eq!(membership(&pools(), &node(roles)), expected, "{roles:?}");
            assert_eq!(concerned(&pools(), &node(roles)), concerned_pools, "{roles:?}");
        }
        let mut windows = node(&["worker"]);
        windows["metadata"]["labels"]["kubernetes.io/os"] = json!("windows");
        assert_eq!(membership(&pools(), &windows), Membership::None);
    }

    #[test]
    fn empty_selectors_choose_nothing() {
        let object = json!({"metadata": {"labels": {"role": "kata-oc"}}});
        for (selector, expected) in [
            (json!(null), false),
            (json!({}), false),
            (json!({"matchLabels": {"role": "kata-oc"}}), true),
        ] {
            assert_eq!(selects(&selector, &object), expected, "{selector}");
        }
    }
}
