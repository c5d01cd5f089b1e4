//! The fragment of a file-based catalog, from the ClusterServiceVersion of the bundle.
//!
//! operator-registry, alpha/declcfg and alpha/property, has the schema. Without `olm.csv.metadata` package-server makes
//! no PackageManifest, and a console does not show the operator; a mirror copies `relatedImages` and nothing else.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// The channel of the package.
const CHANNEL: &str = "stable";
/// The fields of the ClusterServiceVersion's spec that `olm.csv.metadata` has under the same name.
const SPEC: [&str; 9] = [
    "description",
    "displayName",
    "installModes",
    "keywords",
    "links",
    "maintainers",
    "maturity",
    "minKubeVersion",
    "provider",
];

/// The text of the fragment for the bundle in a folder.
pub(super) fn catalog(bundle: &Path) -> Result<String, String> {
    let path = bundle.join("manifests/kata-operator.clusterserviceversion.yaml");
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let version: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    let (metadata, spec) = (&version["metadata"], &version["spec"]);
    let (name, number) = (&metadata["name"], &spec["version"]);
    let package = "kata-operator";
    // Who publishes names the image that was pushed.
    let image =
        format!("registry.invalid/kata-operator-bundle:v{}", number.as_str().unwrap_or_default());
    let mut images = vec![json!({"name": "", "image": image})];
    images.extend(spec["relatedImages"].as_array().cloned().unwrap_or_default());
    let owned = spec["customresourcedefinitions"]["owned"].as_array().cloned().unwrap_or_default();
    let mut properties = vec![json!({
        "type": "olm.package", "value": {"packageName": package, "version": number},
    })];
    properties.extend(owned.iter().map(|kind| {
        let group = kind["name"].as_str().and_then(|name| name.split_once('.'));
        let group = group.map_or("", |(_, group)| group);
        json!({
            "type": "olm.gvk",
            "value": {"group": group, "kind": kind["kind"], "version": kind["version"]},
        })
    }));
    let mut about = json!({
        "annotations": metadata["annotations"],
        "labels": metadata["labels"],
        "apiServiceDefinitions": {},
        "crdDescriptions": spec["customresourcedefinitions"],
    });
    for field in SPEC {
        about[field] = spec[field].clone();
    }
    properties.push(json!({"type": "olm.csv.metadata", "value": about}));
    let documents = [
        json!({
            "schema": "olm.package",
            "name": package,
            "description": metadata["annotations"]["description"],
            "defaultChannel": CHANNEL,
            "icon": spec["icon"][0],
        }),
        json!({
            "schema": "olm.channel",
            "name": CHANNEL,
            "package": package,
            "entries": [{"name": name, "skipRange": metadata["annotations"]["olm.skipRange"]}],
        }),
        json!({
            "schema": "olm.bundle",
            "name": name,
            "package": package,
            "image": image,
            "relatedImages": images,
            "properties": properties,
        }),
    ];
    let documents: Result<Vec<String>, _> = documents.iter().map(serde_saphyr::to_string).collect();
    let documents = documents.map_err(|error| format!("cannot render YAML: {error}"))?;
    Ok(format!("---\n{}", documents.join("---\n")))
}
