//! The schemas of an OpenAPI document: built-in kinds from k8s-openapi, custom ones from their CRDs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::group_version_kind;
use crate::api::registry::ResourceDef;
use crate::api::schema::{definition, openapi_generator};

/// The name of a kind's schema: the group's labels reversed, as in `io.k8s.api.core.v1.Pod`.
pub(super) fn component(def: &ResourceDef) -> String {
    if definition(def).is_some() {
        let group = def.resource.group.split('.').next().filter(|group| !group.is_empty());
        let package = match group {
            Some("apiextensions") => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
            Some("rbac") => "io.k8s.api.rbac",
            Some(group) => return format!("io.k8s.api.{group}.{}.{}", def.version, def.kind),
            None => "io.k8s.api.core",
        };
        return format!("{package}.{}.{}", def.version, def.kind);
    }
    let mut labels: Vec<&str> = def.resource.group.split('.').rev().collect();
    labels.extend([&*def.version, &*def.kind]);
    labels.join(".")
}

/// `components.schemas` for these resources.
pub(super) fn of(defs: &[&ResourceDef]) -> Map<String, Value> {
    let mut generator = openapi_generator();
    for def in defs {
        match definition(def) {
            Some(define) => {
                define(&mut generator);
            }
            None => {
                generator.subschema_for::<ObjectMeta>();
            }
        }
    }
    let mut schemas = generator.take_definitions(false);
    for schema in schemas.values_mut() {
        tidy(schema);
    }
    for def in defs {
        let name = component(def);
        if let Some(custom) = &def.custom {
            schemas.insert(name.clone(), custom_schema(custom.schema.as_value()));
        }
        if let Some(schema) = schemas.get_mut(&name).and_then(Value::as_object_mut) {
            let kinds = json!([group_version_kind(def)]);
            schema.insert("x-kubernetes-group-version-kind".to_owned(), kinds);
        }
    }
    schemas
}

/// Makes a schema of k8s-openapi what the API server would publish.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // OpenAPI 3.0 ignores what stands beside a reference.
            if members.len() > 1
                && let Some(reference) = members.get("$ref").filter(|r| r.is_string()).cloned()
            {
                members.remove("$ref");
                members.insert("allOf".to_owned(), json!([{"$ref": reference}]));
            }
            // The schema of schemas has properties of these names, which are objects.
            if members.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
                members.remove("x-kubernetes-int-or-string");
                let quantity = members
                    .get("description")
                    .and_then(Value::as_str)
                    .is_some_and(|text| text.starts_with("Quantity"));
                let number = if quantity { "number" } else { "integer" };
                members.insert("oneOf".to_owned(), json!([{"type": number}, {"type": "string"}]));
                if !quantity {
                    members.insert("format".to_owned(), json!("int-or-string"));
                }
            }
            for member in members.values_mut() {
                tidy(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// The schema of a CRD with the parts that every object has.
fn custom_schema(schema: &Value) -> Value {
    let mut schema = if schema.is_object() {
        schema.clone()
    } else {
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    };
    for (name, property) in [
        (
            "apiVersion",
            json!({"type": "string", "description": "The group and version of this object."}),
        ),
        ("kind", json!({"type": "string", "description": "The kind of this object."})),
        (
            "metadata",
            json!({
                "description": "Standard object's metadata.",
                "allOf": [{
                    "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
                }],
            }),
        ),
    ] {
        if !schema["properties"].is_object() {
            schema["properties"] = json!({});
        }
        schema["properties"][name] = property;
    }
    schema
}
