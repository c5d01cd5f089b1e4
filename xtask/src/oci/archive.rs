//! An image as a file: an OCI layout, with what `docker load` reads besides.
//!
//! containerd (`ctr images import`, `k3s ctr images import`, `kind load image-archive`) and podman read `index.json`.
//! Docker reads `manifest.json`, which has one image only: that of the first machine.

use serde::Serialize;

use super::{Artifact, Blob, File, INDEX, Index, Labels, tar};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Loaded<'a> {
    config: String,
    repo_tags: [&'a str; 1],
    layers: [String; 1],
}

/// The bytes of a file with an image under a name.
pub(crate) fn archive(artifact: &Artifact, name: &str) -> Result<Vec<u8>, String> {
    let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    let mut root = artifact.root.descriptor.clone();
    root.annotations = Labels::from([
        ("io.containerd.image.name".to_owned(), name.to_owned()),
        ("org.opencontainers.image.ref.name".to_owned(), tag.to_owned()),
    ]);
    let index = Index {
        schema_version: 2,
        media_type: INDEX,
        manifests: vec![&root],
        annotations: Labels::new(),
    };
    let [config, layer] = artifact.contents.first().ok_or("there is no image to archive")?;
    let loaded = Loaded { config: path(config), repo_tags: [name], layers: [path(layer)] };
    let json = |value: Result<Vec<u8>, serde_json::Error>| value.map_err(|error| error.to_string());
    let mut files = vec![
        File::new("index.json", json(serde_json::to_vec(&index))?),
        File::new("manifest.json", json(serde_json::to_vec(&[loaded]))?),
        File::new("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#),
    ];
    let manifests = [&artifact.root].into_iter().chain(&artifact.manifests);
    let blobs = manifests.chain(artifact.contents.iter().flatten());
    files.extend(blobs.map(|blob| File::new(path(blob), blob.bytes.clone())));
    tar(&files)
}

fn path(blob: &Blob) -> String {
    format!("blobs/{}", blob.digest().replace(':', "/"))
}
