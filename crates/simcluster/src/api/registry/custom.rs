//! From a CustomResourceDefinition to a served resource.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{CustomDef, ResourceDef, ScalePaths};
use crate::Resource;
use crate::api::error::FieldError;
use crate::api::schema::Structural;

/// The finalizer with which a definition waits for its instances to be deleted.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The resource that a definition defines.
pub fn defined_resource(crd: &Value) -> Resource {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Resource::dynamic(text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"]))
}

/// What a CustomResourceDefinition defines: its storage version.
///
/// # Errors
/// What is wrong with the definition, as its author is told.
pub fn definition(crd: &Value) -> Result<ResourceDef, Vec<FieldError>> {
    let mut errors = Vec::new();
    let spec = &crd["spec"];
    let names = &spec["names"];
    for (field, value) in [
        ("spec.group", &spec["group"]),
        ("spec.names.plural", &names["plural"]),
        ("spec.names.kind", &names["kind"]),
    ] {
        if value.as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(field, ""));
        }
    }
    let resource = defined_resource(crd);
    let name = format!("{}.{}", resource.plural, resource.group);
    if crd["metadata"]["name"] != name.as_str() {
        errors.push(FieldError::invalid(
            "metadata.name",
            &crd["metadata"]["name"],
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    let namespaced = match spec["scope"].as_str() {
        Some("Namespaced") => true,
        Some("Cluster") => false,
        Some(other) => {
            errors.push(FieldError::unsupported("spec.scope", other, &["Cluster", "Namespaced"]));
            false
        }
        None => {
            errors.push(FieldError::required("spec.scope", ""));
            false
        }
    };
    let versions: &[Value] = spec["versions"].as_array().map_or(&[], Vec::as_slice);
    let stored: Vec<usize> = versions
        .iter()
        .enumerate()
        .filter(|(_index, version)| version["storage"] == true)
        .map(|(index, _version)| index)
        .collect();
    let [index] = stored.as_slice() else {
        errors.push(FieldError::invalid(
            "spec.versions",
            &spec["versions"],
            "must have exactly one version marked as storage version",
        ));
        return Err(errors);
    };
    let version = &versions[*index];
    let place = format!("spec.versions[{index}].schema.openAPIV3Schema");
    let schema = &version["schema"]["openAPIV3Schema"];
    if schema.is_null() {
        errors.push(FieldError::required(place, "schemas are required"));
        return Err(errors);
    }
    let schema = Structural::parse(schema).map_err(|mut found| {
        for error in &mut found {
            if !error.field.starts_with("spec.versions") {
                let dot =
                    if error.field.is_empty() || error.field.starts_with('[') { "" } else { "." };
                error.field = format!("{place}{dot}{}", error.field);
            }
        }
        errors.append(&mut found);
        std::mem::take(&mut errors)
    })?;
    if !errors.is_empty() {
        return Err(errors);
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let texts = |value: &Value| -> Vec<Cow<'static, str>> {
        value.as_array().into_iter().flatten().filter_map(text).map(Cow::Owned).collect()
    };
    let kind = text(&names["kind"]).unwrap_or_default();
    let subresources = &version["subresources"];
    let pointer = |path: &Value| path.as_str().map(|path| path.replace('.', "/"));
    let scale = &subresources["scale"];
    Ok(ResourceDef {
        resource,
        version: Cow::Owned(text(&version["name"]).unwrap_or_default()),
        list_kind: Cow::Owned(text(&names["listKind"]).unwrap_or_else(|| format!("{kind}List"))),
        singular: Cow::Owned(text(&names["singular"]).unwrap_or_else(|| kind.to_lowercase())),
        kind: Cow::Owned(kind),
        namespaced,
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        status: subresources["status"].is_object(),
        scale: pointer(&scale["specReplicasPath"]).map(|spec_replicas| ScalePaths {
            spec_replicas,
            status_replicas: pointer(&scale["statusReplicasPath"]).unwrap_or_default(),
            selector: pointer(&scale["labelSelectorPath"]),
        }),
        generation: true,
        custom: Some(Arc::new(CustomDef {
            schema,
            columns: version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default(),
            selectable_fields: version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|field| field["jsonPath"].as_str())
                .map(|path| path.trim_start_matches('.').to_owned())
                .collect(),
        })),
    })
}

/// Notes in a definition's status that its names are accepted and that it is served.
pub fn establish(crd: &mut Value, def: &ResourceDef, now: Timestamp) {
    let names = crd["spec"]["names"].clone();
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    if !crd["status"].is_object() {
        crd["status"] = json!({});
    }
    let fresh = json!([
        {
            "type": "NamesAccepted", "status": "True", "reason": "NoConflicts",
            "message": "no conflicts found", "lastTransitionTime": time,
        },
        {
            "type": "Established", "status": "True", "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted", "lastTransitionTime": time,
        },
    ]);
    let conditions = &mut crd["status"]["conditions"];
    if conditions.as_array().is_none_or(Vec::is_empty) {
        *conditions = fresh;
    }
    crd["status"]["acceptedNames"] = names;
    let stored = &mut crd["status"]["storedVersions"];
    let version = json!(def.version);
    match stored.as_array_mut() {
        Some(list) if list.contains(&version) => {}
        Some(list) => list.push(version),
        None => *stored = json!([version]),
    }
}
