//! OpenAPI v3 documents per group and version: what `kubectl explain` and kubectl's field validation read.
//!
//! Documents are made when asked for and not kept: with the descriptions of built-in kinds they are
//! large, and kubectl caches them by hash.

mod paths;
mod schemas;

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use super::registry::{Registry, ResourceDef};

/// The document of a group and version; `None` if nothing of it is served.
pub fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let defs: Vec<&ResourceDef> = registry
        .iter()
        .map(|def| &**def)
        .filter(|def| def.resource.group == group && def.version == version)
        .collect();
    if defs.is_empty() {
        return None;
    }
    let mut served = Map::new();
    for def in &defs {
        paths::add(&mut served, def);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.34.0"},
        "paths": served,
        "components": {"schemas": schemas::of(&defs)},
    }))
}

/// A number that changes with the document of a group and version, for clients that keep documents;
/// far cheaper than the document.
pub fn fingerprint(registry: &Registry, group: &str, version: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Another build may describe the same kinds in other words.
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    for def in registry.iter().filter(|d| d.resource.group == group && d.version == version) {
        (&def.resource, &def.kind, def.namespaced, def.status, def.scale.is_some())
            .hash(&mut hasher);
        if let Some(custom) = &def.custom {
            custom.schema.as_value().to_string().hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// `x-kubernetes-group-version-kind` of operations; schemas have a list of them.
fn group_version_kind(def: &ResourceDef) -> Value {
    json!({"group": def.resource.group, "version": def.version, "kind": def.kind})
}

#[cfg(test)]
mod tests;
