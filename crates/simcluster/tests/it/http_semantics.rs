//! What single requests are answered, by the function that all faces share.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::api::handle::{self, Response};
use simcluster::api::request::Request;

/// A cluster that is asked one request after the other.
struct Server {
    sim: Simulation,
}

/// An answer: status, content type, body.
type Answer = (u16, String, String);

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

impl Server {
    fn new() -> Self {
        let mut server = Self { sim: Simulation::new(Timestamp::UNIX_EPOCH, Vec::new()) };
        // A new cluster has the namespace default.
        let other = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
        assert_eq!(server.post("/api/v1/namespaces", &other).0, 201);
        server
    }

    fn respond(
        &mut self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Response {
        let mut request: Request = http::Request::new(body);
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = uri.parse().unwrap();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let plan = handle::intercept(&mut self.sim, &request);
        assert_eq!(plan, simcluster::api::fault::Plan::default());
        handle::handle(&mut self.sim, Timestamp::UNIX_EPOCH, &request)
    }

    fn send(&mut self, method: &str, uri: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        let Response::Full(response) = self.respond(method, uri, headers, body) else {
            panic!("{method} {uri} is a stream");
        };
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        (response.status().as_u16(), content_type, text)
    }

    fn get(&mut self, uri: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        let (code, _, text) = self.send("GET", uri, headers, Bytes::new());
        (code, serde_json::from_str(&text).unwrap())
    }

    fn post(&mut self, uri: &str, body: &Value) -> (u16, Value) {
        let headers = [("content-type", "application/json")];
        let (code, _, text) = self.send("POST", uri, &headers, body.to_string().into());
        (code, serde_json::from_str(&text).unwrap())
    }

    fn apply(&mut self, uri: &str, manager: &str, body: &Value) -> (u16, Value) {
        let headers = [("content-type", "application/apply-patch+yaml")];
        let uri = format!("{uri}?fieldManager={manager}");
        let (code, _, text) = self.send("PATCH", &uri, &headers, body.to_string().into());
        (code, serde_json::from_str(&text).unwrap())
    }

    fn config_map(&mut self, namespace: &str, name: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"},
        });
        let uri = format!("/api/v1/namespaces/{namespace}/configmaps");
        assert_eq!(self.post(&uri, &object).0, 201);
    }

    /// What a watch says at once.
    fn watch(&mut self, uri: &str, headers: &[(&str, &str)]) -> Vec<Value> {
        let Response::Watch(mut watcher) = self.respond("GET", uri, headers, Bytes::new()) else {
            panic!("{uri} is no watch");
        };
        let (store, faults) = (&self.sim.api.store, &mut self.sim.frontend.faults);
        let output = watcher.poll(store, faults, Timestamp::UNIX_EPOCH);
        let text = String::from_utf8(output.bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn what_is_not_served_is_not_found_in_the_way_that_clients_expect() {
    let mut server = Server::new();
    let unknown_group = server.send("GET", "/apis/nope.example/v1/things", &[], Bytes::new());
    assert_eq!(unknown_group, (404, "text/plain".to_owned(), "404 page not found\n".to_owned()));
    for uri in ["/apis/apps/v1/things", "/apis/apps/v9/deployments", "/api/v1/namespaces/a/nodes"] {
        let (code, status) = server.get(uri, &[]);
        assert_eq!(code, 404, "{uri}");
        assert_eq!(status["message"], "the server could not find the requested resource");
    }
    let (code, status) = server.get("/api/v1/namespaces/default/configmaps/c", &[]);
    assert_eq!((code, &status["message"]), (404, &json!("configmaps \"c\" not found")));
    assert_eq!(status["details"], json!({"kind": "configmaps", "name": "c"}));
}

#[test]
fn tables_carry_what_the_client_asks_for() {
    let mut server = Server::new();
    server.config_map("default", "c");
    let (_, table) = server.get("/api/v1/configmaps", &[("accept", TABLE)]);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["rows"][0]["cells"][0], "c");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let (_, table) = server.get("/api/v1/configmaps?includeObject=Object", &[("accept", TABLE)]);
    assert_eq!(table["rows"][0]["object"]["data"]["a"], "b");
    let (_, table) = server.get("/api/v1/configmaps?includeObject=None", &[("accept", TABLE)]);
    assert_eq!(table["rows"][0]["object"], Value::Null);

    server.config_map("default", "d");
    let events = server.watch("/api/v1/configmaps?watch=true", &[("accept", TABLE)]);
    assert!(events[0]["object"]["columnDefinitions"].is_array());
    assert!(events[1]["object"]["columnDefinitions"].is_null());
    assert_eq!(events[1]["object"]["rows"][0]["cells"][0], "d");
}

#[test]
fn metadata_alone_can_be_had() {
    let mut server = Server::new();
    server.config_map("default", "c");
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let (_, list) = server.get("/api/v1/configmaps", &[("accept", accept)]);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["name"], "c");
    assert_eq!(list["items"][0]["data"], Value::Null);
    let (code, status) = server.get("/api/v1/configmaps", &[("accept", "application/xml")]);
    assert_eq!((code, &status["reason"]), (406, &json!("NotAcceptable")));
}

#[test]
fn lists_are_of_a_namespace_or_of_all() {
    let mut server = Server::new();
    server.config_map("default", "a");
    server.config_map("other", "b");
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let (_, all) = server.get("/api/v1/configmaps", &[]);
    assert_eq!(names(&all), ["a", "b"]);
    let (_, one) = server.get("/api/v1/namespaces/other/configmaps", &[]);
    assert_eq!(names(&one), ["b"]);
    let (_, page) = server.get("/api/v1/configmaps?limit=1", &[]);
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = server.get(&format!("/api/v1/configmaps?limit=1&continue={token}"), &[]);
    assert_eq!(names(&rest), ["b"]);
    let (_, by_name) = server.get("/api/v1/configmaps?fieldSelector=metadata.name%3Db", &[]);
    assert_eq!(names(&by_name), ["b"]);
    let (code, _) = server.get("/api/v1/configmaps?fieldSelector=data.a%3Db", &[]);
    assert_eq!(code, 400);
}

#[test]
fn bodies_may_be_yaml_and_may_not_be_anything() {
    let mut server = Server::new();
    let uri = "/api/v1/namespaces/default/configmaps";
    let yaml = Bytes::from_static(b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n");
    let typed = |kind| [("content-type", kind)];
    assert_eq!(server.send("POST", uri, &typed("application/yaml"), yaml.clone()).0, 201);
    assert_eq!(server.send("POST", uri, &typed("application/xml"), yaml.clone()).0, 415);
    assert_eq!(server.send("POST", uri, &typed("application/json"), yaml.clone()).0, 400);
    let patch = format!("{uri}/c");
    assert_eq!(server.send("PATCH", &patch, &typed("application/json"), yaml).0, 415);
}

#[test]
fn discovery_says_how_it_was_negotiated() {
    let mut server = Server::new();
    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let (code, content_type, _) = server.send("GET", "/apis", &[("accept", accept)], Bytes::new());
    assert_eq!(code, 200);
    assert_eq!(
        content_type,
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let (_, version) = server.get("/version", &[]);
    assert_eq!(version["minor"], "34");
    assert_eq!(server.send("GET", "/readyz", &[], Bytes::new()).2, "ok");
    let (_, index) = server.get("/openapi/v3", &[]);
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let (code, document) = server.get(&url, &[]);
    assert_eq!((code, &document["openapi"]), (200, &json!("3.0.0")));
}

#[test]
fn impersonated_users_need_rules() {
    let mut server = Server::new();
    server.config_map("default", "c");
    let jane = [("impersonate-user", "jane")];
    let (code, status) = server.get("/api/v1/namespaces/default/configmaps/c", &jane);
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert_eq!(
        status["message"],
        "configmaps \"c\" is forbidden: User \"jane\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    });
    assert_eq!(server.post(&format!("{rbac}/roles"), &role).0, 201);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    assert_eq!(server.post(&format!("{rbac}/rolebindings"), &binding).0, 201);
    assert_eq!(server.get("/api/v1/namespaces/default/configmaps/c", &jane).0, 200);
    assert_eq!(server.get("/api/v1/configmaps", &jane).0, 403);

    let review = |user: &str| {
        json!({"spec": {"user": user, "resourceAttributes": {
            "verb": "get", "resource": "configmaps", "namespace": "default"}}})
    };
    let uri = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(server.post(uri, &review("jane")).1["status"]["allowed"], true);
    assert_eq!(server.post(uri, &review("joe")).1["status"]["allowed"], false);
}

/// A rule that names objects lets its subjects list and watch these objects, by a selector of the name.
#[test]
fn a_rule_with_names_covers_lists_of_that_name_only() {
    let mut server = Server::new();
    server.config_map("default", "mine");
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "one"},
        "rules": [{
            "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"],
            "resourceNames": ["mine"],
        }],
    });
    assert_eq!(server.post(&format!("{rbac}/roles"), &role).0, 201);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "one"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    assert_eq!(server.post(&format!("{rbac}/rolebindings"), &binding).0, 201);
    let jane = [("impersonate-user", "jane")];
    let list = "/api/v1/namespaces/default/configmaps";
    let (code, found) = server.get(&format!("{list}?fieldSelector=metadata.name%3Dmine"), &jane);
    assert_eq!((code, &found["items"][0]["metadata"]["name"]), (200, &json!("mine")));
    assert_eq!(server.get(list, &jane).0, 403);
    let (code, status) = server.get(&format!("{list}?fieldSelector=metadata.name%3Dtheirs"), &jane);
    assert_eq!(code, 403);
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("configmaps \"theirs\" is forbidden: "), "{message}");
    let not_mine = format!("{list}?fieldSelector=metadata.name!%3Dmine");
    assert_eq!(server.get(&not_mine, &jane).0, 403);
}

#[test]
fn tokens_stand_for_their_service_accounts() {
    let mut server = Server::new();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/other/serviceaccounts";
    assert_eq!(server.post(accounts, &account).0, 201);
    let (code, request) = server.post(&format!("{accounts}/robot/token"), &json!({"spec": {}}));
    assert_eq!((code, &request["kind"]), (201, &json!("TokenRequest")));
    let bearer = format!("Bearer {}", request["status"]["token"].as_str().unwrap());
    let robot = [("authorization", bearer.as_str())];
    assert_eq!(server.get("/api/v1/nodes", &robot).0, 403);

    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "other", "name": "robot"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(server.post(bindings, &binding).0, 201);
    assert_eq!(server.get("/api/v1/nodes", &robot).0, 200);
}

#[test]
fn both_views_of_events_show_the_same_events() {
    let mut server = Server::new();
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Node", "name": "n1"}, "note": "text", "reason": "Because",
        "reportingController": "test", "reportingInstance": "test-0", "action": "Do",
        "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let (code, created) = server.post("/apis/events.k8s.io/v1/namespaces/default/events", &event);
    assert_eq!((code, &created["note"]), (201, &json!("text")), "{created}");
    let selector = "fieldSelector=involvedObject.name%3Dn1";
    let (_, core) = server.get(&format!("/api/v1/namespaces/default/events?{selector}"), &[]);
    assert_eq!(core["items"][0]["message"], "text");
    let (_, list) =
        server.get("/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Dn1", &[]);
    assert_eq!(list["items"][0]["note"], "text");
    assert_eq!(list["apiVersion"], "events.k8s.io/v1");
    let seen = server.watch("/apis/events.k8s.io/v1/events?watch=1", &[]);
    assert_eq!(seen[0]["object"]["note"], "text");
}

#[test]
fn requests_are_counted_until_the_counters_are_reset() {
    let mut server = Server::new();
    server.sim.frontend.reset_requests();
    server.config_map("default", "c");
    server.get("/api/v1/configmaps", &[]);
    server.get("/api/v1/configmaps", &[]);
    let (_, counters) = server.post("/sim/v1/requests", &Value::Null);
    assert_eq!(
        counters,
        json!({"total": 3, "requests": [
            {"resource": "configmaps", "verb": "create", "count": 1},
            {"resource": "configmaps", "verb": "list", "count": 2},
        ]})
    );
    assert_eq!(server.get("/sim/v1/requests", &[]).1["total"], 0);
    assert_eq!(server.get("/sim/v1/nonsense", &[]).0, 404);
    let (code, error) = server.post("/sim/v1/faults", &json!({"fault": {"kind": "explode"}}));
    assert_eq!(code, 400, "{error}");
}

#[test]
fn what_needs_a_real_pod_says_that_the_pod_is_simulated() {
    let mut server = Server::new();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(server.post("/api/v1/namespaces/default/pods", &pod).0, 201);
    for subresource in ["exec", "attach", "portforward"] {
        let uri = format!("/api/v1/namespaces/default/pods/p/{subresource}");
        let (code, status) = server.get(&uri, &[]);
        assert_eq!((code, &status["reason"]), (501, &json!("NotImplemented")));
        assert!(status["message"].as_str().unwrap().contains("simulated"), "{status}");
    }
    let log = server.send("GET", "/api/v1/namespaces/default/pods/p/log", &[], Bytes::new());
    assert_eq!((log.0, log.1.as_str()), (200, "text/plain"));
}

/// Generators write `0.0` where others write `0`; Kubernetes stores and compares numbers.
#[test]
fn a_number_with_an_empty_fraction_is_no_other_number() {
    let mut server = Server::new();
    let definition = |minimum: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"size": {"type": "integer", "minimum": minimum}},
                }}}],
            },
        })
    };
    let uri = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.post(uri, &definition(json!(0))).0, 201);
    let uri = format!("{uri}/things.example.com");
    let (code, applied) = server.apply(&uri, "somebody", &definition(json!(0.0)));
    assert_eq!(code, 200, "{applied:#}");
    let minimum =
        applied.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/size/minimum");
    assert_eq!(minimum, Some(&json!(0)));
    let (code, refused) = server.apply(&uri, "somebody", &definition(json!(0.5)));
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")), "{refused:#}");
    let (code, refused) = server.post("/sim/v1/speed", &json!({"speed": 1e9}));
    assert_eq!(code, 400);
    assert!(refused["message"].as_str().unwrap().contains("at most 100000"), "{refused:#}");
}
