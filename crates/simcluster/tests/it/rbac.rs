//! An API server that authenticates and authorizes: tokens, default roles, names, escalation.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::api::authentication::Signer;
use simcluster::api::handle::{self, Response};
use simcluster::api::rbac::bootstrap;
use simcluster::topology::{self, Layout};
use simcluster::world::Platform;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

struct Server {
    sim: Simulation,
    now: Timestamp,
    admin: String,
}

impl Server {
    fn new() -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let platform = Platform::Kubernetes;
        let layout = Layout { platform, workers: 1, control_plane: 1, ..Layout::default() };
        let mut sim = topology::build(&layout, now).unwrap();
        let signer = Signer::new([1, 2]);
        let admin = signer.admin_token();
        bootstrap::enforce(&mut sim, signer).unwrap();
        sim.run_due(now);
        Self { sim, now, admin }
    }

    fn send(&mut self, token: &str, method: &str, uri: &str, body: &Value) -> (u16, Value) {
        self.send_with(token, method, uri, body, &[])
    }

    fn send_with(
        &mut self,
        token: &str,
        method: &str,
        uri: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let kind = match method {
            "PATCH" => "application/apply-patch+yaml",
            _ => "application/json",
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", kind)
            .body(body)
            .unwrap();
        if !token.is_empty() {
            let bearer = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", bearer);
        }
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let answer = handle::handle(&mut self.sim, self.now, &request);
        self.sim.run_due(self.now);
        match answer {
            Response::Full(response) => {
                let text = String::from_utf8(response.body().to_vec()).unwrap();
                let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
                (response.status().as_u16(), value)
            }
            Response::Watch(_) => (200, Value::Null),
            other @ Response::Exec(_) => panic!("{other:?}"),
        }
    }

    fn get(&mut self, token: &str, uri: &str) -> (u16, Value) {
        self.send(token, "GET", uri, &Value::Null)
    }

    /// As the administrator; it must be done.
    fn post(&mut self, uri: &str, body: &Value) -> Value {
        let admin = self.admin.clone();
        let (code, answer) = self.send(&admin, "POST", uri, body);
        assert_eq!(code, 201, "{answer}");
        answer
    }

    /// A service account in `default` and a token of it.
    fn account(&mut self, name: &str) -> String {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        self.post(accounts, &json!({"metadata": {"name": name}}));
        let answer = self.post(&format!("{accounts}/{name}/token"), &json!({"spec": {}}));
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Binds a ClusterRole of these rules to the service account of that name, everywhere.
    fn grant(&mut self, account: &str, rules: &Value) {
        let role = json!({"metadata": {"name": account}, "rules": rules});
        self.post(&format!("{RBAC}/clusterroles"), &role);
        self.bind(account, account);
    }

    fn bind(&mut self, account: &str, role: &str) {
        let binding = json!({
            "metadata": {"name": format!("{account}-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}],
        });
        self.post(&format!("{RBAC}/clusterrolebindings"), &binding);
    }
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

#[test]
fn who_shows_no_token_sees_the_version_and_no_more() {
    let mut server = Server::new();
    assert_eq!(server.get("", "/version").0, 200);
    assert_eq!(server.get("", "/readyz").0, 200);
    let (code, status) = server.get("", "/apis");
    assert_eq!(code, 403);
    assert_eq!(status["message"], "forbidden: User \"system:anonymous\" cannot get path \"/apis\"");
    let (code, status) = server.get("", "/api/v1/nodes");
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert_eq!(
        status["message"],
        "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    assert_eq!(status["details"], json!({"kind": "nodes"}));
}

#[test]
fn a_token_is_valid_until_it_expires_or_its_account_is_another_one() {
    let mut server = Server::new();
    let token = server.account("robot");
    let uri = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let (code, answer) = server.send(&token, "POST", uri, &review);
    assert_eq!(code, 201, "{answer}");
    let info = &answer["status"]["userInfo"];
    assert_eq!(info["username"], "system:serviceaccount:default:robot");
    let groups =
        ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(info["groups"], json!(groups));
    assert_eq!(server.get(&token, "/apis").0, 200);

    let unauthorized = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
    });
    let forged = format!("{}x", &token[..token.len() - 1]);
    for wrong in ["nonsense", forged.as_str()] {
        assert_eq!(server.get(wrong, "/api/v1/nodes"), (401, unauthorized.clone()));
        assert_eq!(server.get(wrong, "/version"), (401, unauthorized.clone()));
    }
    let begun = server.now;
    server.now = begun.checked_add(SignedDuration::from_secs(3599)).unwrap();
    assert_eq!(server.get(&token, "/apis").0, 200);
    server.now = begun.checked_add(SignedDuration::from_secs(3600)).unwrap();
    assert_eq!(server.get(&token, "/apis").0, 401);

    server.now = begun;
    let admin = server.admin.clone();
    let account = "/api/v1/namespaces/default/serviceaccounts/robot";
    assert_eq!(server.send(&admin, "DELETE", account, &Value::Null).0, 200);
    assert_eq!(server.get(&token, "/apis").0, 401);
    server.account("robot");
    assert_eq!(server.get(&token, "/apis").0, 401, "of the same name, but another one");
}

#[test]
fn tokens_for_others_and_short_ones_are_refused() {
    let mut server = Server::new();
    server.account("robot");
    let uri = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let answer = server.post(uri, &json!({"spec": {"audiences": ["vault"]}}));
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(server.get(&token, "/apis").0, 401);
    let admin = server.admin.clone();
    let (code, status) =
        server.send(&admin, "POST", uri, &json!({"spec": {"expirationSeconds": 60}}));
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes"
    );
}

#[test]
fn names_narrow_what_is_listed_by_name_and_what_apply_creates_but_not_a_post() {
    let mut server = Server::new();
    let token = server.account("robot");
    let verbs = ["create", "list", "watch", "patch"];
    server.grant(
        "robot",
        &json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs, "resourceNames": ["ours"]}]),
    );
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(server.get(&token, maps).0, 403);
    let by_name = |name: &str| format!("{maps}?fieldSelector=metadata.name%3D{name}");
    assert_eq!(server.get(&token, &by_name("ours")).0, 200);
    assert_eq!(server.get(&token, &format!("{}&watch=1", by_name("ours"))).0, 200);
    assert_eq!(server.get(&token, &by_name("theirs")).0, 403);

    let (code, status) = server.send(&token, "POST", maps, &config_map("ours"));
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "configmaps is forbidden: User \"system:serviceaccount:default:robot\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let apply = |name: &str| format!("{maps}/{name}?fieldManager=robot");
    assert_eq!(server.send(&token, "PATCH", &apply("ours"), &config_map("ours")).0, 201);
    assert_eq!(server.send(&token, "PATCH", &apply("theirs"), &config_map("theirs")).0, 403);
}

#[test]
fn an_apply_that_would_create_needs_the_permission_to_create() {
    let mut server = Server::new();
    let token = server.account("robot");
    server.grant(
        "robot",
        &json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]),
    );
    let uri = "/api/v1/namespaces/default/configmaps/new?fieldManager=robot";
    let (code, status) = server.send(&token, "PATCH", uri, &config_map("new"));
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "configmaps \"new\" is forbidden: User \"system:serviceaccount:default:robot\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    server.post("/api/v1/namespaces/default/configmaps", &config_map("new"));
    assert_eq!(server.send(&token, "PATCH", uri, &config_map("new")).0, 200);
}

#[test]
fn view_and_edit_contain_what_is_labelled_for_them() {
    let mut server = Server::new();
    let token = server.account("robot");
    server.bind("robot", "edit");
    assert_eq!(server.get(&token, "/api/v1/pods").0, 200);
    assert_eq!(server.get(&token, "/api/v1/nodes").0, 403);
    let role = json!({
        "metadata": {
            "name": "more", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"},
        },
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
    });
    server.post(&format!("{RBAC}/clusterroles"), &role);
    assert_eq!(server.get(&token, "/api/v1/nodes").0, 200, "view is part of edit");
    let admin = server.admin.clone();
    let uri = format!("{RBAC}/clusterroles/more");
    assert_eq!(server.send(&admin, "DELETE", &uri, &Value::Null).0, 200);
    assert_eq!(server.get(&token, "/api/v1/nodes").0, 403);
}

#[test]
fn who_has_less_cannot_give_more() {
    let mut server = Server::new();
    let token = server.account("robot");
    server.grant(
        "robot",
        &json!([
            {"apiGroups": ["rbac.authorization.k8s.io"],
             "resources": ["roles", "rolebindings", "clusterroles"], "verbs": ["create", "patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        ]),
    );
    let role = |name: &str, verbs: &[&str]| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}],
        })
    };
    let roles = format!("{RBAC}/namespaces/default/roles");
    assert_eq!(server.send(&token, "POST", &roles, &role("less", &["get"])).0, 201);
    let (code, status) = server.send(&token, "POST", &roles, &role("more", &["get", "list"]));
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"system:serviceaccount:default:robot\" (groups=[\"system:serviceaccounts\" \"system:serviceaccounts:default\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}"
    );
    let uri = format!("{roles}/less?fieldManager=robot&force=true");
    assert_eq!(server.send(&token, "PATCH", &uri, &role("less", &["get", "delete"])).0, 403);
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "robot"}],
    });
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    assert_eq!(server.send(&token, "POST", &bindings, &binding).0, 403);

    server.account("boss");
    let verbs = ["create", "escalate", "bind"];
    let rules =
        json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": verbs}]);
    let boss = server.account("chief");
    server.grant("chief", &rules);
    assert_eq!(server.send(&boss, "POST", &roles, &role("more", &["get", "list"])).0, 201);
    assert_eq!(server.send(&boss, "POST", &bindings, &binding).0, 201);
}

#[test]
fn to_act_as_somebody_is_a_permission() {
    let mut server = Server::new();
    let token = server.account("robot");
    let as_jane = [("impersonate-user", "jane"), ("impersonate-group", "ops")];
    let nodes = "/api/v1/nodes";
    let (code, status) = server.send_with(&token, "GET", nodes, &Value::Null, &as_jane);
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "users \"jane\" is forbidden: User \"system:serviceaccount:default:robot\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
    server.grant(
        "robot",
        &json!([{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}]),
    );
    let (code, status) = server.send_with(&token, "GET", nodes, &Value::Null, &as_jane);
    assert_eq!(code, 403);
    assert!(status["message"].as_str().unwrap().contains("User \"jane\" cannot list"), "{status}");
    let admin = server.admin.clone();
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let review = json!({"spec": {"namespace": "default"}});
    let (code, answer) = server.send_with(&admin, "POST", uri, &review, &as_jane);
    assert_eq!(code, 201);
    let rules = answer["status"]["resourceRules"].to_string();
    assert!(rules.contains("selfsubjectaccessreviews"), "{rules}");
}

#[test]
fn reviews_say_who_allows_it() {
    let mut server = Server::new();
    let token = server.account("robot");
    server.bind("robot", "view");
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let ask =
        |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "pods"}}});
    let (_, answer) = server.send(&token, "POST", uri, &ask("get"));
    assert_eq!(
        answer["status"],
        json!({
            "allowed": true,
            "reason": "RBAC: allowed by ClusterRoleBinding \"robot-view\" of ClusterRole \"view\" to ServiceAccount \"robot/default\"",
        })
    );
    let (_, answer) = server.send(&token, "POST", uri, &ask("delete"));
    assert_eq!(answer["status"], json!({"allowed": false}));
    let uri = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let review = json!({"spec": {
        "user": "system:serviceaccount:default:robot",
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"},
    }});
    assert_eq!(server.post(uri, &review)["status"]["allowed"], true);
    assert_eq!(server.send(&token, "POST", uri, &review).0, 403);
}

#[test]
fn a_binding_without_its_role_is_named() {
    let mut server = Server::new();
    let token = server.account("robot");
    server.bind("robot", "nothing");
    let (code, status) = server.get(&token, "/api/v1/nodes");
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "nodes is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io \"nothing\" not found"
    );
    let denied: Vec<_> = server.sim.frontend.denied().collect();
    assert_eq!(denied, [(status["message"].as_str().unwrap(), 1)]);
}

#[test]
fn a_role_in_a_namespace_holds_there_and_for_the_namespace_itself() {
    let mut server = Server::new();
    let token = server.account("robot");
    let rules =
        json!([{"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get", "list"]}]);
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    server.post(&format!("{RBAC}/namespaces/default/roles"), &role);
    let binding = json!({
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "Group", "name": "system:serviceaccounts:default",
                      "apiGroup": "rbac.authorization.k8s.io"}],
    });
    server.post(&format!("{RBAC}/namespaces/default/rolebindings"), &binding);
    assert_eq!(server.get(&token, "/api/v1/namespaces/default/pods").0, 200);
    assert_eq!(server.get(&token, "/api/v1/namespaces/default").0, 200);
    assert_eq!(server.get(&token, "/api/v1/namespaces/kube-system").0, 403);
    assert_eq!(server.get(&token, "/api/v1/namespaces").0, 403);
    assert_eq!(server.get(&token, "/api/v1/pods").0, 403);
}
