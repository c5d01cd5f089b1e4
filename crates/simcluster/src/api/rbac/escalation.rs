//! Nobody gives away what he does not have: writes of roles and bindings are held against the writer's
//! own rules, unless he may `escalate` the role or `bind` it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Access, GROUP, everything, granted, judge, path_covers, role_rules};
use crate::Resource;
use crate::api::authentication::User;
use crate::api::error::ApiError;
use crate::api::server::ApiServer;

/// Refuses to store `object`, a role or a binding, for a user who has less than it grants. `namespace`
/// is empty at the cluster scope.
///
/// # Errors
/// `403` that lists what is missing, `404` if a binding's role does not exist.
pub fn check(
    api: &ApiServer,
    user: &User,
    resource: &Resource,
    namespace: &str,
    object: &Value,
) -> Result<(), ApiError> {
    if user.is_admin() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let may = |verb: &str, resource: &str, name: &str| {
        let access = Access {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            path: String::new(),
        };
        judge(api, user, &access).allowed
    };
    let wanted = if resource.plural.ends_with("bindings") {
        let role = &object["roleRef"];
        let role_name = role["name"].as_str().unwrap_or_default();
        let plural = if role["kind"] == "Role" { "roles" } else { "clusterroles" };
        if may("bind", plural, role_name) {
            return Ok(());
        }
        // The real server names the binding's kind too.
        role_rules(api, role, namespace).ok_or_else(|| ApiError::not_found(resource, role_name))?
    } else {
        if may("escalate", &resource.plural, name) {
            return Ok(());
        }
        object["rules"].as_array().cloned().unwrap_or_default()
    };
    let (grants, unresolved) = granted(api, user, namespace);
    let own: Vec<Value> = grants.into_iter().map(|grant| grant.rule).collect();
    let missing = missing(&own, &wanted);
    if !missing.is_empty() {
        let groups: Vec<String> = user.groups.iter().map(|group| format!("{group:?}")).collect();
        let mut why = format!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            groups.join(" "),
            missing.join("\n")
        );
        if !unresolved.is_empty() {
            let roles =
                unresolved.iter().map(|role| format!("{resource} {} not found", role["name"]));
            let roles = roles.collect::<Vec<_>>().join(", ");
            why.push_str(&format!("; resolution errors: [{roles}]"));
        }
        return Err(ApiError::forbidden(resource, name, &why));
    }
    let selectors = object["aggregationRule"]["clusterRoleSelectors"].as_array();
    let aggregates = selectors.is_some_and(|selectors| !selectors.is_empty());
    if aggregates && !self::missing(&own, &everything()).is_empty() {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        return Err(ApiError::forbidden(resource, name, why));
    }
    Ok(())
}

/// What of `wanted` no rule of `own` covers, in the notation of the real server, sorted.
fn missing(own: &[Value], wanted: &[Value]) -> Vec<String> {
    // By everything but the verb, with the verbs.
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for single in wanted.iter().flat_map(singles) {
        if own.iter().any(|rule| covers(rule, &single)) {
            continue;
        }
        let mut parts = Vec::new();
        for (key, title) in [
            ("apiGroups", "APIGroups"),
            ("resources", "Resources"),
            ("nonResourceURLs", "NonResourceURLs"),
            ("resourceNames", "ResourceNames"),
        ] {
            if let Some(value) = single[key].get(0) {
                parts.push(format!("{title}:[{value}]"));
            }
        }
        missing.entry(parts.join(", ")).or_default().push(single["verbs"][0].to_string());
    }
    let lines = missing.into_iter();
    lines.map(|(what, verbs)| format!("{{{what}, Verbs:[{}]}}", verbs.join(" "))).collect()
}

/// A rule as rules with one group, resource, name or path, and one verb each.
fn singles(rule: &Value) -> Vec<Value> {
    let all = |key: &str| rule[key].as_array().cloned().unwrap_or_default();
    let names = all("resourceNames");
    let mut singles = Vec::new();
    for verb in all("verbs") {
        for group in all("apiGroups") {
            for resource in all("resources") {
                let single =
                    json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
                if names.is_empty() {
                    singles.push(single);
                    continue;
                }
                for name in &names {
                    let mut named = single.clone();
                    named["resourceNames"] = json!([name]);
                    singles.push(named);
                }
            }
        }
        for path in all("nonResourceURLs") {
            singles.push(json!({"verbs": [verb], "nonResourceURLs": [path]}));
        }
    }
    singles
}

/// Whether a rule covers another one of [`singles`].
fn covers(rule: &Value, single: &Value) -> bool {
    let list = |key: &str| rule[key].as_array().into_iter().flatten();
    let has = |key: &str, wanted: &Value| list(key).any(|item| item == "*" || item == wanted);
    if !has("verbs", &single["verbs"][0]) {
        return false;
    }
    if let Some(path) = single["nonResourceURLs"][0].as_str() {
        return list("nonResourceURLs").filter_map(Value::as_str).any(|own| path_covers(own, path));
    }
    let resource = &single["resources"][0];
    let any_parent = resource
        .as_str()
        .and_then(|resource| resource.split_once('/'))
        .map(|(_, sub)| json!(format!("*/{sub}")));
    let named = match (rule["resourceNames"].as_array(), single["resourceNames"].get(0)) {
        (Some(names), wanted) if !names.is_empty() => {
            wanted.is_some_and(|wanted| names.contains(wanted))
        }
        _ => true,
    };
    has("apiGroups", &single["apiGroups"][0])
        && (has("resources", resource) || any_parent.is_some_and(|any| has("resources", &any)))
        && named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_by_resource_with_its_verbs() {
        let own = [
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/status"]}),
            json!({"verbs": ["*"], "apiGroups": [""], "resources": ["nodes"], "resourceNames": ["a"]}),
        ];
        let wanted = [
            json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods", "pods/status"]}),
            json!({"verbs": ["patch"], "apiGroups": [""], "resources": ["nodes"], "resourceNames": ["a", "b"]}),
            json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}),
        ];
        assert_eq!(
            missing(&own, &wanted),
            [
                r#"{APIGroups:[""], Resources:["nodes"], ResourceNames:["b"], Verbs:["patch"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#,
                r#"{APIGroups:[""], Resources:["pods/status"], Verbs:["list" "watch"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
            ]
        );
        assert!(missing(&everything(), &wanted).is_empty());
    }
}
