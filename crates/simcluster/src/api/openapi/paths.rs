//! The paths of a resource with the operations that clients look up.
//!
//! kubectl asks one thing of them: whether PATCH of a kind takes `fieldValidation` and `dryRun`.

use serde_json::{Map, Value, json};

use super::group_version_kind;
use super::schemas::component;
use crate::api::registry::ResourceDef;

/// Adds the paths of a resource and its subresources.
pub(super) fn add(paths: &mut Map<String, Value>, def: &ResourceDef) {
    let base = if def.resource.group.is_empty() {
        format!("/api/{}", def.version)
    } else {
        format!("/apis/{}/{}", def.resource.group, def.version)
    };
    let plural = &def.resource.plural;
    let collection = if def.namespaced {
        let everywhere = json!({"get": operation(def, "list", "ForAllNamespaces", "")});
        paths.insert(format!("{base}/{plural}"), everywhere);
        format!("{base}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{base}/{plural}")
    };
    let mut place = Vec::new();
    if def.namespaced {
        place.push(path_parameter("namespace"));
    }
    let operations = json!({
        "parameters": place.clone(),
        "get": operation(def, "list", "", ""),
        "post": operation(def, "post", "", ""),
        "delete": operation(def, "deletecollection", "", ""),
    });
    paths.insert(collection.clone(), operations);
    place.push(path_parameter("name"));
    let operations = json!({
        "parameters": place.clone(),
        "get": operation(def, "get", "", ""),
        "put": operation(def, "put", "", ""),
        "patch": operation(def, "patch", "", ""),
        "delete": operation(def, "delete", "", ""),
    });
    paths.insert(format!("{collection}/{{name}}"), operations);
    let subresources = [("status", "Status", def.status), ("scale", "Scale", def.scale.is_some())];
    for (name, suffix, _) in subresources.into_iter().filter(|(_, _, served)| *served) {
        let operations = json!({
            "parameters": place.clone(),
            "get": operation(def, "get", suffix, name),
            "put": operation(def, "put", suffix, name),
            "patch": operation(def, "patch", suffix, name),
        });
        paths.insert(format!("{collection}/{{name}}/{name}"), operations);
    }
}

fn path_parameter(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
}

fn query(name: &str, kind: &str, description: &str) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": {"type": kind}})
}

fn operation(def: &ResourceDef, action: &str, suffix: &str, subresource: &str) -> Value {
    let mut parameters = Vec::new();
    if matches!(action, "post" | "put" | "patch" | "delete" | "deletecollection") {
        parameters.push(query("dryRun", "string", "`All`: check the request, but change nothing."));
    }
    if matches!(action, "post" | "put" | "patch") {
        parameters.push(query("fieldManager", "string", "Who owns the fields that are set."));
        parameters.push(query(
            "fieldValidation",
            "string",
            "What becomes of unknown fields: `Ignore`, `Warn` or `Strict`.",
        ));
    }
    if action == "patch" {
        parameters.push(query("force", "boolean", "Take fields over in a server-side apply."));
    }
    // The scale subresource has a kind of its own.
    let scale = subresource == "scale";
    let name = component(def);
    let body = if scale {
        json!({"type": "object"})
    } else {
        json!({"$ref": format!("#/components/schemas/{name}")})
    };
    let answers = matches!(action, "get" | "put" | "patch" | "post");
    let ok = if answers {
        json!({"description": "OK", "content": {"application/json": {"schema": body}}})
    } else {
        json!({"description": "OK"})
    };
    let mut operation = json!({
        "operationId": operation_id(def, action, suffix),
        "tags": [if def.resource.group.is_empty() { "core" } else { &def.resource.group }],
        "parameters": parameters,
        "responses": {"200": ok},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": if scale {
            json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
        } else {
            group_version_kind(def)
        },
    });
    if let Some(content) = request_content(action, &body) {
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

/// Patches of the strategic kind are taken but not listed: where they are, kubectl computes them from
/// the merge keys in these schemas, and k8s-openapi's have none. Without, it uses its own.
fn request_content(action: &str, body: &Value) -> Option<Value> {
    match action {
        "post" | "put" => Some(json!({"application/json": {"schema": body}})),
        "patch" => {
            let any = json!({"schema": {"type": "object"}});
            Some(json!({
                "application/apply-patch+yaml": any,
                "application/json-patch+json": {"schema": {"type": "array", "items": {"type": "object"}}},
                "application/merge-patch+json": any,
            }))
        }
        _ => None,
    }
}

/// Unique in the document, such as `patchCoreV1NamespacedPodStatus`.
fn operation_id(def: &ResourceDef, action: &str, suffix: &str) -> String {
    let verb = match action {
        "get" => "read",
        "post" => "create",
        "put" => "replace",
        "deletecollection" => "deleteCollection",
        other => other,
    };
    let group = def.resource.group.split('.').next().filter(|group| !group.is_empty());
    let scope = if def.namespaced && suffix != "ForAllNamespaces" { "Namespaced" } else { "" };
    format!(
        "{verb}{}{}{scope}{}{suffix}",
        capitalized(group.unwrap_or("core")),
        capitalized(&def.version),
        def.kind
    )
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
        .unwrap_or_default()
}
