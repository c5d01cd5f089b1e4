//! What clients look up in the documents.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{document, fingerprint};
use crate::Resource;
use crate::api::registry::{CustomDef, Registry, ResourceDef};
use crate::api::schema::Structural;

fn registry() -> Registry {
    let mut registry = Registry::default();
    let schema = json!({"type": "object", "description": "A widget.", "properties": {"spec": {
        "type": "object", "description": "What is wanted.", "properties": {
            "size": {"type": "integer", "description": "How large."}}}}});
    registry.insert(ResourceDef {
        resource: Resource::new("sim.example.com", "widgets"),
        version: "v1".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        singular: "widget".into(),
        namespaced: true,
        short_names: Vec::new(),
        categories: Vec::new(),
        status: true,
        scale: None,
        generation: true,
        custom: Some(Arc::new(CustomDef {
            schema: Structural::parse(&schema).unwrap(),
            columns: Vec::new(),
            selectable_fields: Vec::new(),
        })),
    });
    registry
}

/// Group and version of everything that is served.
fn groups(registry: &Registry) -> BTreeSet<(String, String)> {
    registry.iter().map(|def| (def.resource.group.to_string(), def.version.to_string())).collect()
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                assert_eq!(members.len(), 1, "nothing may stand beside {reference}");
                found.insert(reference);
            }
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_kind_can_be_patched_with_field_validation_and_explained() {
    let registry = registry();
    for def in registry.iter() {
        let document = document(&registry, &def.resource.group, &def.version).unwrap();
        let kind = json!({"group": def.resource.group, "version": def.version, "kind": def.kind});
        let patches: Vec<&Value> = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .map(|path| &path["patch"])
            .filter(|patch| patch["x-kubernetes-group-version-kind"] == kind)
            .collect();
        assert!(!patches.is_empty(), "no PATCH of {kind}");
        for patch in patches {
            let parameters = patch["parameters"].as_array().unwrap();
            for wanted in ["fieldValidation", "dryRun", "fieldManager"] {
                assert!(
                    parameters
                        .iter()
                        .any(|parameter| parameter["name"] == wanted && parameter["in"] == "query")
                );
            }
        }
        let schemas: Vec<&Value> = document["components"]["schemas"]
            .as_object()
            .unwrap()
            .values()
            .filter(|schema| schema["x-kubernetes-group-version-kind"] == json!([kind]))
            .collect();
        assert_eq!(schemas.len(), 1, "schemas of {kind}");
        assert!(schemas[0]["properties"]["metadata"]["allOf"][0]["$ref"].is_string(), "{kind}");
    }
}

#[test]
fn all_references_lead_somewhere_and_operations_are_unique() {
    let registry = registry();
    for (group, version) in groups(&registry) {
        let document = document(&registry, &group, &version).unwrap();
        let mut found = BTreeSet::new();
        references(&document["paths"], &mut found);
        let mut schemas = BTreeSet::new();
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            // The schema of schemas has a property of this name.
            if !name.ends_with(".JSONSchemaProps") {
                references(schema, &mut schemas);
            }
        }
        for reference in found.union(&schemas) {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{group}/{version}: {reference}");
        }
        let mut ids = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for operation in operations.as_object().unwrap().values() {
                if let Some(id) = operation["operationId"].as_str() {
                    assert!(ids.insert(id), "{path}: {id}");
                }
            }
        }
    }
}

#[test]
fn custom_resources_show_their_schema() {
    let document = document(&registry(), "sim.example.com", "v1").unwrap();
    let schema = &document["components"]["schemas"]["com.example.sim.v1.Widget"];
    assert_eq!(schema["description"], "A widget.");
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["description"], "How large.");
    assert_eq!(schema["properties"]["kind"]["type"], "string");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(
        paths.keys().collect::<Vec<_>>(),
        [
            "/apis/sim.example.com/v1/namespaces/{namespace}/widgets",
            "/apis/sim.example.com/v1/namespaces/{namespace}/widgets/{name}",
            "/apis/sim.example.com/v1/namespaces/{namespace}/widgets/{name}/status",
            "/apis/sim.example.com/v1/widgets",
        ]
    );
}

#[test]
fn the_schema_of_schemas_keeps_its_properties() {
    let document = document(&registry(), "apiextensions.k8s.io", "v1").unwrap();
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let properties = &document["components"]["schemas"][name]["properties"];
    assert_eq!(properties["$ref"]["type"], "string");
    assert_eq!(properties["x-kubernetes-int-or-string"]["type"], "boolean");
    assert_eq!(properties["oneOf"]["type"], "array");
}

#[test]
fn fingerprints_change_with_their_group_only() {
    let (old, mut new) = (registry(), registry());
    let mut def = (**new.get(&Resource::new("sim.example.com", "widgets")).unwrap()).clone();
    def.custom = None;
    new.insert(def);
    let print = |registry: &Registry, group: &str| fingerprint(registry, group, "v1");
    assert_eq!(print(&old, "apps"), print(&new, "apps"));
    assert_ne!(print(&old, "apps"), print(&old, "batch"));
    assert_ne!(print(&old, "sim.example.com"), print(&new, "sim.example.com"));
}

#[test]
fn unknown_groups_have_no_document() {
    assert_eq!(document(&registry(), "sim.example.com", "v2"), None);
    assert_eq!(document(&registry(), "nope.example.com", "v1"), None);
}
