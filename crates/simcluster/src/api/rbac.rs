//! RBAC: which rules of Roles and ClusterRoles a user has.
//!
//! It only reads. Who neither impersonates somebody nor shows a service account's token is an
//! administrator.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};

use super::server::ApiServer;
use crate::Resource;

const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "roles");
const ROLEBINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "rolebindings");
const CLUSTERROLES: Resource = Resource::new("rbac.authorization.k8s.io", "clusterroles");
const CLUSTERROLEBINDINGS: Resource =
    Resource::new("rbac.authorization.k8s.io", "clusterrolebindings");

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, such as `system:serviceaccount:NAMESPACE:NAME`.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Whether everything is allowed without a look at any rule.
    pub admin: bool,
}

impl User {
    /// The user of a request: the one that it impersonates, or the administrator.
    pub fn of(headers: &HeaderMap) -> Self {
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let token = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
            .and_then(Self::of_token);
        match (headers.get("impersonate-user"), token) {
            (None, Some(user)) => user,
            (None, None) => Self {
                name: "kubernetes-admin".to_owned(),
                groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
                admin: true,
            },
            (Some(name), _) => Self::named(
                text(name),
                headers.get_all("impersonate-group").iter().map(text).collect(),
            ),
        }
    }

    /// The service account of a token that this server gave out; none for any other token.
    pub fn of_token(token: &str) -> Option<Self> {
        let claims = token.strip_suffix(".simulated")?.split('.').nth(1)?;
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        Some(Self::named(claims["sub"].as_str()?.to_owned(), Vec::new()))
    }

    /// The user that a SubjectAccessReview asks about.
    pub fn from_review(spec: &Value) -> Self {
        let groups = spec["groups"].as_array().into_iter().flatten();
        Self::named(
            spec["user"].as_str().unwrap_or_default().to_owned(),
            groups.filter_map(|group| group.as_str().map(str::to_owned)).collect(),
        )
    }

    fn named(name: String, mut groups: Vec<String>) -> Self {
        if let Some((namespace, _)) =
            name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
        {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        groups.push("system:authenticated".to_owned());
        let admin = groups.iter().any(|group| group == "system:masters");
        Self { name, groups, admin }
    }

    /// `userInfo` of reviews.
    pub fn to_info(&self) -> Value {
        json!({"username": self.name, "groups": self.groups})
    }

    fn is_subject(&self, subject: &Value, binding_namespace: &str) -> bool {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("User") => name == self.name,
            Some("Group") => self.groups.iter().any(|group| group == name),
            Some("ServiceAccount") => {
                let namespace = subject["namespace"].as_str().unwrap_or(binding_namespace);
                self.name == format!("system:serviceaccount:{namespace}:{name}")
            }
            _ => false,
        }
    }
}

/// What a user wants to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The verb.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural, with `/subresource` if there is one.
    pub resource: String,
    /// The namespace; empty for all, and for cluster-scoped objects.
    pub namespace: String,
    /// The object's name; empty for none in particular.
    pub name: String,
}

impl Access {
    /// What a SubjectAccessReview asks for.
    pub fn from_review(spec: &Value) -> Self {
        let attributes = &spec["resourceAttributes"];
        let text = |key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
        let mut resource = text("resource");
        let subresource = text("subresource");
        if !subresource.is_empty() {
            resource = format!("{resource}/{subresource}");
        }
        Self {
            verb: text("verb"),
            group: text("group"),
            resource,
            namespace: text("namespace"),
            name: text("name"),
        }
    }

    /// The message of `403 Forbidden`, after the name of what is forbidden.
    pub fn refusal(&self, user: &User) -> String {
        let place = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", self.namespace)
        };
        format!(
            "User {:?} cannot {} resource {:?} in API group {:?} {place}",
            user.name, self.verb, self.resource, self.group
        )
    }
}

/// Whether `user` may do it.
pub fn allows(api: &ApiServer, user: &User, access: &Access) -> bool {
    user.admin || granted(api, user, &access.namespace).iter().any(|rule| rule_allows(rule, access))
}

/// The status of a SelfSubjectRulesReview.
pub fn rules(api: &ApiServer, user: &User, namespace: &str) -> Value {
    let rules = if user.admin {
        vec![
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
            json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
        ]
    } else {
        granted(api, user, namespace)
    };
    let (paths, resources): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| rule["nonResourceURLs"].is_array());
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}

/// The rules that hold for `user` in `namespace`; empty means at the cluster scope.
fn granted(api: &ApiServer, user: &User, namespace: &str) -> Vec<Value> {
    let mut rules = Vec::new();
    let mut add = |binding: &Value, binding_namespace: &str| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        if !subjects.into_iter().any(|subject| user.is_subject(subject, binding_namespace)) {
            return;
        }
        let name = binding["roleRef"]["name"].as_str().unwrap_or_default();
        if name == "cluster-admin" && binding["roleRef"]["kind"] == "ClusterRole" {
            // Every cluster has this role; here it is not stored.
            rules.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        }
        let role = if binding["roleRef"]["kind"] == "Role" {
            api.get(&ROLES, binding_namespace, name)
        } else {
            api.get(&CLUSTERROLES, "", name)
        };
        if let Some(role) = role {
            rules.extend(role["rules"].as_array().into_iter().flatten().cloned());
        }
    };
    for binding in api.list(&CLUSTERROLEBINDINGS) {
        add(&binding, "");
    }
    if !namespace.is_empty() {
        for binding in api.list(&ROLEBINDINGS) {
            if binding["metadata"]["namespace"] == namespace {
                add(&binding, namespace);
            }
        }
    }
    rules
}

fn rule_allows(rule: &Value, access: &Access) -> bool {
    let has = |key: &str, wanted: &str| {
        rule[key].as_array().into_iter().flatten().any(|item| item == "*" || item == wanted)
    };
    let any_parent = access.resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    let resource = has("resources", &access.resource)
        || any_parent.is_some_and(|resource| has("resources", &resource));
    let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
    let name = names.is_none_or(|names| names.iter().any(|name| name == &*access.name));
    has("verbs", &access.verb) && has("apiGroups", &access.group) && resource && name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(verb: &str, group: &str, resource: &str, name: &str) -> Access {
        Access {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Access::default()
        }
    }

    #[test]
    fn rules_name_verbs_groups_resources_and_names() {
        let rule = json!({
            "verbs": ["get", "patch"], "apiGroups": [""], "resources": ["nodes", "pods/status"],
        });
        assert!(rule_allows(&rule, &access("get", "", "nodes", "n1")));
        assert!(!rule_allows(&rule, &access("delete", "", "nodes", "n1")));
        assert!(!rule_allows(&rule, &access("get", "apps", "nodes", "n1")));
        assert!(rule_allows(&rule, &access("patch", "", "pods/status", "p")));
        assert!(!rule_allows(&rule, &access("patch", "", "pods", "p")));
        let rule = json!({
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"],
        });
        assert!(rule_allows(&rule, &access("delete", "x", "y", "a")));
        assert!(!rule_allows(&rule, &access("delete", "x", "y", "b")));
    }

    #[test]
    fn refusals_read_as_the_real_ones_do() {
        let user = User::named("x".to_owned(), Vec::new());
        assert_eq!(
            access("list", "", "pods", "").refusal(&user),
            "User \"x\" cannot list resource \"pods\" in API group \"\" at the cluster scope"
        );
    }
}
