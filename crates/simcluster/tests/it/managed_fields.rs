//! Field ownership through the write path: what clients see of managed fields and server-side apply.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use simcluster::Resource;
use simcluster::api::ApiServer;
use simcluster::api::error::ApiError;
use simcluster::api::server::{PatchType, WriteOptions, WriteRequest, WriteVerb};
use simcluster::resource::{CONFIGMAPS, DEPLOYMENTS, PODS};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A server, its clock, and one object that all requests are about.
struct Scene {
    api: ApiServer,
    second: i64,
    resource: Resource,
    name: &'static str,
}

impl Scene {
    fn new(resource: Resource, name: &'static str) -> Self {
        let mut api = ApiServer::default();
        let second = 1_700_000_000;
        api.bootstrap(Timestamp::from_second(second).unwrap());
        Self { api, second, resource, name }
    }

    fn request(&self, verb: WriteVerb, manager: &str, body: &Value) -> WriteRequest {
        let name = if verb == WriteVerb::Create { "" } else { self.name };
        WriteRequest {
            user: None,
            verb,
            resource: self.resource.clone(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
            body: body.clone(),
            options: WriteOptions { field_manager: manager.to_owned(), ..WriteOptions::default() },
        }
    }

    fn send(&mut self, request: &WriteRequest) -> Result<(u16, Arc<Value>), ApiError> {
        self.second += 1;
        let now = Timestamp::from_second(self.second).unwrap();
        self.api.write(now, request).map(|response| (response.code, response.object))
    }

    /// A request that succeeds; its code.
    #[track_caller]
    fn write(&mut self, verb: WriteVerb, manager: &str, body: &Value) -> u16 {
        self.send(&self.request(verb, manager, body)).unwrap().0
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, body: &Value) -> u16 {
        self.write(WriteVerb::Patch(PatchType::Apply), manager, body)
    }

    fn refused(&mut self, verb: WriteVerb, manager: &str, body: &Value) -> (u16, String) {
        let error = self.send(&self.request(verb, manager, body)).unwrap_err();
        (error.code, error.message)
    }

    fn object(&self) -> Arc<Value> {
        self.api.get(&self.resource, "default", self.name).unwrap()
    }

    fn version(&self) -> String {
        self.object()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    /// The managers, as `manager operation[/subresource]`, in order.
    fn managers(&self) -> Vec<String> {
        let object = self.object();
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries
            .iter()
            .map(|entry| {
                let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                let subresource = match text("subresource").as_str() {
                    "" => String::new(),
                    name => format!("/{name}"),
                };
                format!("{} {}{subresource}", text("manager"), text("operation"))
            })
            .collect()
    }

    fn fields(&self, index: usize) -> Value {
        self.object()["metadata"]["managedFields"][index]["fieldsV1"].clone()
    }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default"}, "data": data})
}

fn deployment(image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": image, "ports": [{"containerPort": 80}]}]}}}})
}

#[test]
fn an_apply_creates_then_changes_then_leaves_alone() {
    let mut scene = Scene::new(DEPLOYMENTS, "d");
    assert_eq!(scene.apply("m", &deployment("x:1")), 201);
    let created = scene.object();
    assert_eq!(scene.apply("m", &deployment("x:1")), 200);
    assert_eq!(scene.object(), created);
    assert_eq!(scene.apply("m", &deployment("x:2")), 200);
    let changed = scene.object();
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_ne!(changed["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    // Defaults have no owner.
    assert_eq!(changed["spec"]["replicas"], 1);
    assert_eq!(
        scene.fields(0),
        json!({"f:spec": {"f:selector": {}, "f:template": {
            "f:metadata": {"f:labels": {"f:a": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}},
        }}})
    );
}

#[test]
fn updates_without_effect_keep_version_and_times() {
    let mut scene = Scene::new(CONFIGMAPS, "c");
    scene.write(WriteVerb::Create, "u", &config_map(&json!({"a": "1"})));
    let before = scene.object();
    scene.write(WriteVerb::Update, "v", &config_map(&json!({"a": "1"})));
    scene.write(WriteVerb::Patch(PatchType::Merge), "v", &json!({"data": {"a": "1"}}));
    scene.write(WriteVerb::Patch(PatchType::Json), "v", &json!([]));
    scene.write(WriteVerb::Patch(PatchType::Strategic), "v", &json!({}));
    assert_eq!(scene.object(), before);
}

#[test]
fn the_scale_subresource_has_its_own_entry() {
    let mut scene = Scene::new(DEPLOYMENTS, "d");
    scene.apply("m", &{
        let mut config = deployment("x:1");
        config["spec"]["replicas"] = json!(1);
        config
    });
    let mut request = scene.request(
        WriteVerb::Patch(PatchType::Merge),
        "kubectl",
        &json!({"spec": {"replicas": 3}}),
    );
    request.subresource = "scale".to_owned();
    scene.send(&request).unwrap();
    assert_eq!(scene.managers(), ["m Apply", "kubectl Update/scale"]);
    assert_eq!(scene.fields(1), json!({"f:spec": {"f:replicas": {}}}));
    let mut config = deployment("x:1");
    config["spec"]["replicas"] = json!(2);
    assert_eq!(
        scene.refused(WriteVerb::Patch(PatchType::Apply), "m", &config),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using apps/v1: \
             .spec.replicas"
                .to_owned()
        )
    );
    let mut request = scene.request(
        WriteVerb::Patch(PatchType::Apply),
        "scaler",
        &json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 4}}),
    );
    request.subresource = "scale".to_owned();
    assert_eq!(scene.send(&request).unwrap_err().code, 409);
    request.options.force = true;
    scene.send(&request).unwrap();
    assert_eq!(scene.object()["spec"]["replicas"], 4);
    assert_eq!(scene.managers(), ["m Apply", "scaler Apply/scale"]);
}

#[test]
fn an_apply_of_the_status_conflicts_with_an_earlier_patch_of_it() {
    let mut scene = Scene::new(PODS, "p");
    scene.write(
        WriteVerb::Create,
        "u",
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}),
    );
    let status = |verb: WriteVerb, manager: &str, reason: &str, scene: &Scene| {
        let mut request = scene.request(
            verb,
            manager,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                "status": {"reason": reason}}),
        );
        request.subresource = "status".to_owned();
        request
    };
    let merge = WriteVerb::Patch(PatchType::Merge);
    let apply = WriteVerb::Patch(PatchType::Apply);
    scene.send(&status(merge, "a", "A", &scene)).unwrap();
    let refused = scene.send(&status(apply.clone(), "b", "B", &scene)).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"a\" with subresource \"status\" using v1: .status.reason"
    );
    let mut forced = status(apply, "b", "B", &scene);
    forced.options.force = true;
    scene.send(&forced).unwrap();
    assert_eq!(scene.object()["status"]["reason"], "B");
    assert_eq!(scene.managers(), ["b Apply/status", "u Update"]);
}

#[test]
fn a_binding_is_not_recorded() {
    let mut scene = Scene::new(PODS, "p");
    scene.write(
        WriteVerb::Create,
        "u",
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}),
    );
    let before = scene.object()["metadata"]["managedFields"].clone();
    let mut request = scene.request(
        WriteVerb::Create,
        "scheduler",
        &json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
    );
    request.name = "p".to_owned();
    request.subresource = "binding".to_owned();
    scene.send(&request).unwrap();
    assert_eq!(scene.object()["spec"]["nodeName"], "n");
    assert_eq!(scene.object()["metadata"]["managedFields"], before);
}

#[test]
fn unknown_fields_of_an_apply_are_refused() {
    let mut config = deployment("x:1");
    config["spec"]["bogus"] = json!(1);
    assert_eq!(
        Scene::new(DEPLOYMENTS, "d").refused(WriteVerb::Patch(PatchType::Apply), "m", &config),
        (
            500,
            "failed to create typed patch object (default/d; apps/v1, Kind=Deployment): .spec.bogus: field not \
             declared in schema"
                .to_owned()
        )
    );
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut scene = Scene::new(CONFIGMAPS, "c");
    scene.apply("m", &config_map(&json!({"a": "1"})));
    let before = scene.object();
    let mut request =
        scene.request(WriteVerb::Patch(PatchType::Apply), "m", &config_map(&json!({"b": "1"})));
    request.options.dry_run = true;
    let (_code, answer) = scene.send(&request).unwrap();
    assert_eq!(answer["data"], json!({"b": "1"}));
    assert_eq!(scene.object(), before);
}

/// The requests of `kubectl apply --server-side` after `kubectl apply`.
#[test]
fn kubectl_migrates_from_client_side_apply() {
    let mut scene = Scene::new(CONFIGMAPS, "c");
    let config = config_map(&json!({"a": "1", "b": "1"}));
    let mut created = config.clone();
    created["metadata"]["annotations"] = json!({LAST_APPLIED: format!("{config}\n")});
    scene.write(WriteVerb::Create, "kubectl-client-side-apply", &created);

    // The first apply, without what client-side apply had.
    let wanted = config_map(&json!({"a": "2"}));
    assert_eq!(scene.apply("kubectl", &wanted), 200);
    assert_eq!(scene.object()["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(scene.managers(), ["kubectl Apply", "kubectl-client-side-apply Update"]);

    // The annotation gets an owner of its own.
    let annotation = scene.object()["metadata"]["annotations"][LAST_APPLIED].clone();
    let mut owner = config_map(&json!({}));
    owner.as_object_mut().unwrap().remove("data");
    owner["metadata"]["annotations"] = json!({LAST_APPLIED: annotation});
    let mut request =
        scene.request(WriteVerb::Patch(PatchType::Apply), "kubectl-last-applied", &owner);
    request.options.force = true;
    scene.send(&request).unwrap();

    // The fields of the client-side manager become those of the server-side one.
    let mut entries = scene.object()["metadata"]["managedFields"].as_array().unwrap().clone();
    let old = entries.iter().position(|entry| entry["manager"] == "kubectl-client-side-apply");
    let old = entries.remove(old.unwrap());
    let new = entries.iter_mut().find(|entry| entry["manager"] == "kubectl").unwrap();
    new["fieldsV1"] = json!({"f:data": {"f:a": {}, "f:b": {}}});
    assert_eq!(old["fieldsV1"]["f:data"], json!({".": {}, "f:b": {}}));
    let migration = |version: &str| {
        json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        ])
    };
    let json_patch = WriteVerb::Patch(PatchType::Json);
    let stale = scene.refused(json_patch.clone(), "kubectl", &migration("1"));
    assert_eq!(stale.0, 409);
    let version = scene.version();
    scene.write(json_patch, "kubectl", &migration(&version));
    // An apply that changed nothing left an entry without a time, which comes first.
    assert_eq!(scene.managers(), ["kubectl-last-applied Apply", "kubectl Apply"]);

    // Now the apply removes what is no longer wanted.
    assert_eq!(scene.apply("kubectl", &wanted), 200);
    assert_eq!(scene.object()["data"], json!({"a": "2"}));
    let version = scene.version();
    assert_eq!(scene.apply("kubectl", &wanted), 200);
    assert_eq!(scene.version(), version);
}

#[test]
fn managed_fields_can_be_reset() {
    for reset in [json!([]), json!([{}])] {
        let mut scene = Scene::new(CONFIGMAPS, "c");
        scene.write(WriteVerb::Create, "u", &config_map(&json!({"a": "1"})));
        scene.write(
            WriteVerb::Patch(PatchType::Merge),
            "u",
            &json!({"metadata": {"managedFields": reset}}),
        );
        assert_eq!(scene.managers(), Vec::<String>::new());
        scene.write(WriteVerb::Patch(PatchType::Merge), "u", &json!({"data": {"b": "1"}}));
        assert_eq!(scene.managers(), Vec::<String>::new());
        scene.apply("m", &config_map(&json!({"a": "1"})));
        assert_eq!(scene.managers(), ["m Apply", "before-first-apply Update"]);
    }
}
