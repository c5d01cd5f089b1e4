//! CustomResourceDefinitions and the objects of the kinds that they define.

use serde_json::{Value, json};
use simcluster::Resource;
use simcluster::api::ApiServer;
use simcluster::resource::CRDS;

use super::{PatchType, WriteVerb, create, delete, merge, object, put, server, sub, told};

fn definition(group: &str, kind: &str, plural: &str) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "shortNames": ["sn"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Serves a kind without a schema to speak of.
pub(super) fn define(api: &mut ApiServer, group: &str, kind: &str, plural: &str) {
    create(api, &CRDS, "", definition(group, kind, plural)).unwrap();
}

const WIDGETS: Resource = Resource::new("example.com", "widgets");

fn widgets() -> ApiServer {
    let mut api = server();
    define(&mut api, "example.com", "Widget", "widgets");
    api
}

#[test]
fn a_definition_is_established_and_served_at_once() {
    let api = widgets();
    let crd = api.get(&CRDS, "", "widgets.example.com").unwrap();
    let conditions: Vec<(&str, &str)> = crd["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["type"].as_str().unwrap(), item["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        conditions,
        [("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted")]
    );
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(crd["status"]["acceptedNames"]["listKind"], "WidgetList");
    assert_eq!(crd["spec"]["names"]["singular"], "widget");
    assert_eq!(
        crd["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    let def = api.registry.get(&WIDGETS).unwrap();
    assert_eq!((def.api_version().as_str(), def.kind.as_ref()), ("example.com/v1", "Widget"));
    assert!(def.status && !def.namespaced);
}

#[test]
fn broken_definitions_are_refused() {
    let mut api = server();
    let revision = api.registry.revision;
    let mut misnamed = definition("example.com", "Widget", "widgets");
    misnamed["metadata"]["name"] = json!("widget.example.com");
    let mut unscoped = definition("example.com", "Widget", "widgets");
    unscoped["spec"]["scope"] = json!("Galaxy");
    let mut unstored = definition("example.com", "Widget", "widgets");
    unstored["spec"]["versions"][0]["storage"] = json!(false);
    let mut schemaless = definition("example.com", "Widget", "widgets");
    schemaless["spec"]["versions"][0]["schema"] = json!({});
    for (crd, text) in [
        (misnamed, "must be spec.names.plural+\".\"+spec.group"),
        (unscoped, "spec.scope: Unsupported value: \"Galaxy\""),
        (unstored, "must have exactly one version marked as storage version"),
        (
            schemaless,
            "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required",
        ),
    ] {
        let (code, reason, message) = told(create(&mut api, &CRDS, "", crd));
        assert_eq!((code, reason.as_str()), (422, "Invalid"));
        assert!(message.contains(text), "{message}");
    }
    assert_eq!(api.registry.revision, revision, "nothing is served");
}

#[test]
fn a_dry_run_serves_nothing() {
    let mut api = server();
    let body = definition("example.com", "Widget", "widgets");
    let mut dry = super::request(WriteVerb::Create, &CRDS, ("", ""), body);
    dry.options.dry_run = true;
    api.write(super::now(), &dry).unwrap();
    assert!(api.registry.get(&WIDGETS).is_none());
}

#[test]
fn custom_resources_need_a_version_to_be_replaced() {
    let mut api = widgets();
    let body = json!({"metadata": {"name": "w"}, "spec": {"size": 1}, "status": {"x": 1}});
    let made = object(create(&mut api, &WIDGETS, "", body.clone()));
    assert_eq!(made["status"], Value::Null);
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(
        told(put(&mut api, &WIDGETS, ("", "w"), body)).2,
        "Widget.example.com \"w\" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an \
         update"
    );
    let mut next = (*made).clone();
    next["spec"]["size"] = json!(2);
    let next = object(put(&mut api, &WIDGETS, ("", "w"), next));
    assert_eq!(next["metadata"]["generation"], 2);
    let kind = WriteVerb::Patch(PatchType::Merge);
    let status = json!({"status": {"phase": "Ready"}});
    let status = object(sub(&mut api, "status", kind, &WIDGETS, ("", "w"), status));
    assert_eq!(
        (&status["status"]["phase"], &status["metadata"]["generation"]),
        (&json!("Ready"), &json!(2))
    );
}

#[test]
fn a_definition_that_is_being_deleted_takes_no_new_objects() {
    let mut api = widgets();
    create(&mut api, &WIDGETS, "", json!({"metadata": {"name": "w"}})).unwrap();
    let pending = object(delete(&mut api, &CRDS, ("", "widgets.example.com"), Value::Null));
    assert!(pending["metadata"]["deletionTimestamp"].is_string());
    let refused = told(create(&mut api, &WIDGETS, "", json!({"metadata": {"name": "v"}})));
    assert_eq!(refused.0, 405);
    assert_eq!(refused.2, "create not allowed while custom resource definition is terminating");
    // Without the finalizer the kind is gone.
    let free = json!({"metadata": {"finalizers": null}});
    merge(&mut api, &CRDS, ("", "widgets.example.com"), free).unwrap();
    assert!(api.registry.get(&WIDGETS).is_none());
    assert_eq!(told(create(&mut api, &WIDGETS, "", json!({}))).0, 404);
}

#[test]
fn an_updated_definition_is_served_anew() {
    let mut api = widgets();
    let names = json!({"spec": {"names": {"shortNames": ["wd"]}}});
    merge(&mut api, &CRDS, ("", "widgets.example.com"), names).unwrap();
    assert_eq!(api.registry.get(&WIDGETS).unwrap().short_names, ["wd"]);
}
