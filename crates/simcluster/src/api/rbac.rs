//! RBAC: which rules of Roles and ClusterRoles a user has, and what they allow.
//!
//! It only reads. Members of `system:masters` may do everything.

pub mod bootstrap;
pub mod escalation;

use serde_json::{Value, json};

use super::authentication::User;
use super::error::ApiError;
use super::server::ApiServer;
use crate::Resource;

/// The API group.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
const ROLES: Resource = Resource::new(GROUP, "roles");
const ROLEBINDINGS: Resource = Resource::new(GROUP, "rolebindings");
const CLUSTERROLES: Resource = Resource::new(GROUP, "clusterroles");
const CLUSTERROLEBINDINGS: Resource = Resource::new(GROUP, "clusterrolebindings");

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
    /// The path, if it is not about objects; nothing else but the verb counts then.
    pub path: String,
}

impl Access {
    /// A request for a path that is not about objects; its verb is the method.
    pub fn to_path(method: &str, path: &str) -> Self {
        Self { verb: method.to_ascii_lowercase(), path: path.to_owned(), ..Self::default() }
    }

    /// What a SubjectAccessReview asks for.
    pub fn from_review(spec: &Value) -> Self {
        let path = &spec["nonResourceAttributes"];
        if let Some(at) = path["path"].as_str() {
            return Self::to_path(path["verb"].as_str().unwrap_or_default(), at);
        }
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
            path: String::new(),
        }
    }

    /// The `403 Forbidden` for a user who may not do it.
    pub fn refusal(&self, user: &User, reason: &str) -> ApiError {
        let user = &user.name;
        let mut message = if self.path.is_empty() {
            let place = if self.namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {:?}", self.namespace)
            };
            format!(
                "User {user:?} cannot {} resource {:?} in API group {:?} {place}",
                self.verb, self.resource, self.group
            )
        } else {
            format!("User {user:?} cannot {} path {:?}", self.verb, self.path)
        };
        if !reason.is_empty() {
            message = format!("{message}: {reason}");
        }
        let plural = self.resource.split('/').next().unwrap_or_default();
        let resource = Resource::dynamic(self.group.clone(), plural);
        let what = match (plural.is_empty(), self.name.is_empty()) {
            (true, _) => "forbidden".to_owned(),
            (false, true) => format!("{resource} is forbidden"),
            (false, false) => format!("{resource} {:?} is forbidden", self.name),
        };
        ApiError::new(403, "Forbidden", format!("{what}: {message}"))
            .with_details(ApiError::object_details(&self.name, &self.group, plural))
    }
}

/// What a question of [`judge`] comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the user may do it.
    pub allowed: bool,
    /// Which binding allows it, or which role was not found; may be empty.
    pub reason: String,
}

/// Whether `user` may do it.
pub fn judge(api: &ApiServer, user: &User, access: &Access) -> Verdict {
    if user.is_admin() {
        return Verdict { allowed: true, reason: String::new() };
    }
    if user.node().is_some() && is_for_kubelets(access) {
        return Verdict { allowed: true, reason: String::new() };
    }
    let (grants, missing) = granted(api, user, &access.namespace);
    if let Some(grant) = grants.iter().find(|grant| rule_allows(&grant.rule, access)) {
        let reason = format!("RBAC: allowed by {}", grant.source);
        return Verdict { allowed: true, reason };
    }
    let reason = unresolved(&missing).map_or_else(String::new, |roles| format!("RBAC: {roles}"));
    Verdict { allowed: false, reason }
}

/// What the authorizer of nodes allows to every kubelet; of which node it may write is up to `NodeRestriction`.
fn is_for_kubelets(access: &Access) -> bool {
    let verb = access.verb.as_str();
    access.group.is_empty()
        && match access.resource.as_str() {
            "nodes" => matches!(verb, "get" | "list" | "watch" | "create" | "update" | "patch"),
            "nodes/status" => matches!(verb, "update" | "patch"),
            _ => false,
        }
}

/// The words for roles that are bound but do not exist.
fn unresolved(missing: &[Value]) -> Option<String> {
    let words = |reference: &Value| {
        let kind = reference["kind"].as_str().unwrap_or_default().to_ascii_lowercase();
        format!("{kind}.{GROUP} {} not found", reference["name"])
    };
    match missing {
        [] => None,
        [only] => Some(words(only)),
        several => Some(format!("[{}]", several.iter().map(words).collect::<Vec<_>>().join(", "))),
    }
}

/// The status of a SelfSubjectRulesReview.
pub fn rules(api: &ApiServer, user: &User, namespace: &str) -> Value {
    let (rules, missing) = if user.is_admin() {
        (everything(), Vec::new())
    } else {
        let (grants, missing) = granted(api, user, namespace);
        (grants.into_iter().map(|grant| grant.rule).collect(), missing)
    };
    let (paths, resources): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| rule["nonResourceURLs"].is_array());
    let mut status =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if let Some(roles) = unresolved(&missing) {
        status["evaluationError"] = json!(roles);
    }
    status
}

/// The rules of somebody who may do everything.
fn everything() -> Vec<Value> {
    vec![
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
        json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
    ]
}

/// A rule that a user has.
#[derive(Clone, Debug)]
struct Grant {
    rule: Value,
    /// The binding, in the words of the real server.
    source: String,
}

/// The rules that hold for `user` in `namespace` (empty means at the cluster scope), and references to
/// roles that do not exist.
fn granted(api: &ApiServer, user: &User, namespace: &str) -> (Vec<Grant>, Vec<Value>) {
    let (mut grants, mut missing) = (Vec::new(), Vec::new());
    let mut add = |binding: &Value, namespace: &str| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let Some(subject) = subjects.into_iter().find(|one| is_subject(user, one, namespace))
        else {
            return;
        };
        let found = role_rules(api, &binding["roleRef"], namespace);
        let source = describe(binding, subject, namespace);
        match found {
            Some(rules) => {
                grants.extend(rules.into_iter().map(|rule| Grant { rule, source: source.clone() }));
            }
            None => missing.push(binding["roleRef"].clone()),
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
    (grants, missing)
}

/// The rules of the role that a binding in `namespace` refers to; none if there is no such role.
fn role_rules(api: &ApiServer, reference: &Value, namespace: &str) -> Option<Vec<Value>> {
    let name = reference["name"].as_str().unwrap_or_default();
    let role = if reference["kind"] == "Role" {
        api.get(&ROLES, namespace, name)
    } else {
        api.get(&CLUSTERROLES, "", name)
    };
    match role {
        Some(role) => Some(role["rules"].as_array().cloned().unwrap_or_default()),
        // Every cluster has this role; where RBAC is not enforced it is not stored.
        None if name == "cluster-admin" && reference["kind"] == "ClusterRole" => Some(everything()),
        None => None,
    }
}

fn is_subject(user: &User, subject: &Value, binding_namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => name == user.name,
        Some("Group") => user.is_in(name),
        Some("ServiceAccount") => {
            let namespace = subject["namespace"].as_str().unwrap_or(binding_namespace);
            user.service_account_name() == Some((namespace, name))
        }
        _ => false,
    }
}

fn describe(binding: &Value, subject: &Value, namespace: &str) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (role, name) = (&binding["roleRef"], text(&binding["metadata"]["name"]));
    let binding = if namespace.is_empty() {
        format!("ClusterRoleBinding {name:?}")
    } else {
        format!("RoleBinding {:?}", format!("{name}/{namespace}"))
    };
    let kind = text(&subject["kind"]);
    let mut who = text(&subject["name"]);
    if kind == "ServiceAccount" {
        who = format!("{who}/{}", subject["namespace"].as_str().unwrap_or(namespace));
    }
    format!("{binding} of {} {} to {kind} {who:?}", text(&role["kind"]), role["name"])
}

fn rule_allows(rule: &Value, access: &Access) -> bool {
    let has = |key: &str, wanted: &str| {
        rule[key].as_array().into_iter().flatten().any(|item| item == "*" || item == wanted)
    };
    if !has("verbs", &access.verb) {
        return false;
    }
    if !access.path.is_empty() {
        let paths = rule["nonResourceURLs"].as_array().into_iter().flatten();
        return paths.filter_map(Value::as_str).any(|path| path_covers(path, &access.path));
    }
    let any_parent = access.resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    let resource = has("resources", &access.resource)
        || any_parent.is_some_and(|resource| has("resources", &resource));
    let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
    let name = names.is_none_or(|names| names.iter().any(|name| name == &*access.name));
    has("apiGroups", &access.group) && resource && name
}

/// Whether the path of a rule, which may end with `*`, covers another path.
fn path_covers(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|start| path.starts_with(start))
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
        assert!(!rule_allows(&rule, &access("create", "x", "y", "")));
    }

    #[test]
    fn rules_name_paths_and_what_follows_a_star() {
        let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]});
        let path = |method: &str, path: &str| Access::to_path(method, path);
        assert!(rule_allows(&rule, &path("GET", "/healthz")));
        assert!(rule_allows(&rule, &path("GET", "/apis/apps/v1")));
        assert!(!rule_allows(&rule, &path("GET", "/healthz/ping")));
        assert!(!rule_allows(&rule, &path("POST", "/healthz")));
        assert!(!rule_allows(&everything()[0], &path("GET", "/healthz")));
        assert!(rule_allows(&everything()[1], &path("GET", "/healthz")));
    }

    #[test]
    fn refusals_read_as_the_real_ones_do() {
        let user = User { name: "x".to_owned(), ..User::default() };
        let message = |access: Access| access.refusal(&user, "").message;
        assert_eq!(
            message(access("list", "", "pods", "")),
            "pods is forbidden: User \"x\" cannot list resource \"pods\" in API group \"\" at the cluster scope"
        );
        let status =
            Access { namespace: "n".to_owned(), ..access("get", "apps", "daemonsets/status", "d") };
        assert_eq!(
            message(status),
            "daemonsets.apps \"d\" is forbidden: User \"x\" cannot get resource \"daemonsets/status\" in API group \"apps\" in the namespace \"n\""
        );
        assert_eq!(
            message(Access::to_path("GET", "/metrics")),
            "forbidden: User \"x\" cannot get path \"/metrics\""
        );
    }
}
