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
        "widgets.example.com \"w\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an \
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
fn stored_objects_are_read_by_the_schema_of_today() {
    let mut api = server();
    let crd = |properties: Value| {
        let mut crd = definition("example.com", "Widget", "widgets");
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": properties}}});
        crd
    };
    create(
        &mut api,
        &CRDS,
        "",
        crd(json!({"old": {"type": "string"}, "kept": {"type": "string"}})),
    )
    .unwrap();
    let body = json!({"metadata": {"name": "w"}, "spec": {"old": "a", "kept": "b"}});
    let written = object(create(&mut api, &WIDGETS, "", body));
    let properties = json!({"kept": {"type": "string"}, "new": {"type": "string", "default": "c"}});
    let versions = crd(properties)["spec"]["versions"].clone();
    let place = ("", "widgets.example.com");
    merge(&mut api, &CRDS, place, json!({"spec": {"versions": versions}})).unwrap();
    let read = api.get(&WIDGETS, "", "w").unwrap();
    assert_eq!(read["spec"], json!({"kept": "b", "new": "c"}));
    assert_eq!(read["metadata"], written["metadata"], "nothing was written");
}

#[test]
fn an_updated_definition_is_served_anew() {
    let mut api = widgets();
    let names = json!({"spec": {"names": {"shortNames": ["wd"]}}});
    merge(&mut api, &CRDS, ("", "widgets.example.com"), names).unwrap();
    assert_eq!(api.registry.get(&WIDGETS).unwrap().short_names, ["wd"]);
}

/// A kind with a schema: a size with a default and bounds, and a rule between two fields.
fn sized() -> ApiServer {
    let mut api = server();
    let mut crd = definition("example.com", "Widget", "widgets");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "default": 3, "minimum": 1, "maximum": 10},
                    "max": {"type": "integer"},
                },
                "x-kubernetes-validations": [{
                    "rule": "!has(self.max) || self.size <= self.max",
                    "message": "size must be <= max",
                }],
            },
            "status": {"type": "object", "properties": {"seen": {"type": "integer"}}},
        },
    });
    create(&mut api, &CRDS, "", crd).unwrap();
    api
}

fn widget(spec: Value) -> Value {
    let mut widget = json!({"metadata": {"name": "w"}});
    widget["spec"] = spec;
    widget
}

#[test]
fn custom_resources_are_pruned_defaulted_and_validated() {
    let mut api = sized();
    let made = object(create(&mut api, &WIDGETS, "", widget(json!({}))));
    assert_eq!(made["spec"], json!({"size": 3}));
    let before = api.store.revision();
    for (spec, text) in [
        (
            json!({"size": 30}),
            "spec.size: Invalid value: 30: spec.size in body should be less than or equal to 10",
        ),
        (
            json!({"size": "x"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (json!({"size": 5, "max": 4}), "size must be <= max"),
    ] {
        let (code, reason, message) =
            told(merge(&mut api, &WIDGETS, ("", "w"), json!({"spec": spec})));
        assert_eq!((code, reason.as_str()), (422, "Invalid"), "{message}");
        assert!(message.starts_with("Widget.example.com \"w\" is invalid: "), "{message}");
        assert!(message.contains(text), "{message}");
    }
    assert_eq!(api.store.revision(), before);
    // A status that does not fit is refused as well.
    let kind = WriteVerb::Patch(PatchType::Merge);
    let wrong = json!({"status": {"seen": "often"}});
    assert_eq!(told(sub(&mut api, "status", kind, &WIDGETS, ("", "w"), wrong)).0, 422);
}

#[test]
fn unknown_fields_of_custom_resources_change_nothing() {
    let mut api = sized();
    let made = object(create(&mut api, &WIDGETS, "", widget(json!({"size": 2}))));
    let verb = WriteVerb::Patch(PatchType::Merge);
    let mut request = super::request(verb, &WIDGETS, ("", "w"), json!({"spec": {"bogus": 1}}));
    request.options.field_validation = super::FieldValidation::Warn;
    let answer = api.write(super::now(), &request).unwrap();
    assert_eq!(answer.object, made);
    assert_eq!(answer.warnings, ["unknown field \"spec.bogus\""]);
    let strict = told(create(&mut api, &WIDGETS, "", widget(json!({"bogus": 1}))));
    assert_eq!(strict.0, 400);
    assert!(
        strict.2.ends_with("strict decoding error: unknown field \"spec.bogus\""),
        "{}",
        strict.2
    );
    let mut config = widget(json!({"bogus": 1}));
    config["apiVersion"] = json!("example.com/v1");
    config["kind"] = json!("Widget");
    assert_eq!(
        told(super::patch(&mut api, PatchType::Apply, &WIDGETS, ("", "w"), config)),
        (
            500,
            String::new(),
            "failed to create typed patch object (/w; example.com/v1, Kind=Widget): .spec.bogus: field not declared \
             in schema"
                .to_owned()
        )
    );
}

#[test]
fn a_definition_with_a_broken_rule_is_refused() {
    let mut api = server();
    let mut crd = definition("example.com", "Widget", "widgets");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({
        "type": "object",
        "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": [{"rule": "self.size <"}],
        }},
    });
    let (code, _, message) = told(create(&mut api, &CRDS, "", crd));
    assert_eq!(code, 422, "{message}");
    assert!(
        message.contains("spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"),
        "{message}"
    );
}

#[test]
fn a_server_side_apply_of_another_manager_conflicts_unless_forced() {
    let mut api = sized();
    let mut config = widget(json!({"size": 2}));
    config["apiVersion"] = json!("example.com/v1");
    config["kind"] = json!("Widget");
    let apply = |manager: &str, force: bool, size: i64| {
        let mut config = config.clone();
        config["spec"]["size"] = json!(size);
        let verb = WriteVerb::Patch(PatchType::Apply);
        let mut request = super::request(verb, &WIDGETS, ("", "w"), config);
        request.options.field_manager = manager.to_owned();
        request.options.force = force;
        request
    };
    assert_eq!(api.write(super::now(), &apply("m1", false, 2)).unwrap().code, 201);
    let conflict = api.write(super::now(), &apply("m2", false, 4)).unwrap_err();
    assert_eq!((conflict.code, conflict.reason), (409, "Conflict"));
    assert_eq!(conflict.message, "Apply failed with 1 conflict: conflict with \"m1\": .spec.size");
    let forced = api.write(super::now(), &apply("m2", true, 4)).unwrap();
    assert_eq!(forced.object["spec"]["size"], 4);
    assert_eq!(forced.object["metadata"]["generation"], 2);
    let again = api.write(super::now(), &apply("m2", false, 4)).unwrap();
    assert_eq!(again.object, forced.object);
}

#[test]
fn controllers_inside_are_managers_too() {
    let mut api = sized();
    let writer = simcluster::api::server::Writer { manager: "inside", now: super::now() };
    api.create(writer, &WIDGETS, "", widget(json!({"size": 2}))).unwrap();
    api.merge_status(writer, &WIDGETS, "", "w", &json!({"status": {"seen": 1}})).unwrap();
    let made = api.get(&WIDGETS, "", "w").unwrap();
    let managers: Vec<(&Value, &Value)> = made["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (&entry["manager"], &entry["subresource"]))
        .collect();
    assert_eq!(managers, [(&json!("inside"), &Value::Null), (&json!("inside"), &json!("status"))]);
}
