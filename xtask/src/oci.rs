//! Container images and other artifacts, as the OCI image specification 1.1 has them: bytes that their digest names.
//! The same files give the same bytes.
//!
//! The types are not those of the crate oci-spec: it keeps labels and annotations in hash maps, whose order in the
//! JSON is another in each run, so that two builds would have two digests. What is in an image is not known here.

pub(crate) mod archive;
pub(crate) mod login;
pub(crate) mod reference;
pub(crate) mod registry;
pub(crate) mod signature;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Labels of an image, or annotations.
pub(crate) type Labels = BTreeMap<String, String>;

/// How others refer to bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: &'static str,
    pub(crate) digest: String,
    pub(crate) size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub(crate) annotations: Labels,
}

/// For which machines an image is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Platform {
    pub(crate) architecture: &'static str,
    pub(crate) os: &'static str,
}

/// Bytes with their descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    pub(crate) descriptor: Descriptor,
    pub(crate) bytes: Vec<u8>,
}

impl Blob {
    pub(crate) fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        let (digest, size) = (digest(&bytes), bytes.len());
        let annotations = Labels::new();
        Self {
            descriptor: Descriptor { media_type, digest, size, platform: None, annotations },
            bytes,
        }
    }

    fn json(media_type: &'static str, value: &impl Serialize) -> Result<Self, String> {
        Ok(Self::new(media_type, serde_json::to_vec(value).map_err(|error| error.to_string())?))
    }

    pub(crate) fn digest(&self) -> &str {
        &self.descriptor.digest
    }
}

/// The digest of bytes, with the name of its algorithm.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// What is pushed or archived under one name.
#[derive(Clone, Debug)]
pub(crate) struct Artifact {
    /// What the name stands for: a manifest, or an index of manifests.
    pub(crate) root: Blob,
    /// The manifests of an index.
    pub(crate) manifests: Vec<Blob>,
    /// The configuration and the layer of each manifest.
    pub(crate) contents: Vec<[Blob; 2]>,
}

/// A file of a layer or of an archive. Its owner is root, and its time 1970: only the content counts.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Without a slash at the beginning.
    pub(crate) path: String,
    pub(crate) executable: bool,
    pub(crate) bytes: Vec<u8>,
}

impl File {
    pub(crate) fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), executable: false, bytes: bytes.into() }
    }
}

/// Files in the order of their names, each after its folders.
pub(crate) fn tar(files: &[File]) -> Result<Vec<u8>, String> {
    let mut files: Vec<&File> = files.iter().collect();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    let mut builder = tar::Builder::new(Vec::new());
    let mut folders = BTreeSet::new();
    for file in files {
        let failed = |error: std::io::Error| format!("cannot archive {}: {error}", file.path);
        for (end, _) in file.path.match_indices('/') {
            let folder = file.path.get(..=end).unwrap_or_default();
            if folders.insert(folder) {
                append(&mut builder, folder, tar::EntryType::Directory, 0o755, &[])
                    .map_err(failed)?;
            }
        }
        let mode = if file.executable { 0o755 } else { 0o644 };
        append(&mut builder, &file.path, tar::EntryType::Regular, mode, &file.bytes)
            .map_err(failed)?;
    }
    builder.into_inner().map_err(|error| error.to_string())
}

fn append(
    builder: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    bytes: &[u8],
) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    builder.append_data(&mut header, path, bytes)
}

/// Compressed as small as it gets, without a name or a time.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|error| error.to_string())
}

/// An image for one machine.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    pub(crate) platform: Platform,
    /// Its files, all in one layer.
    pub(crate) files: &'a [File],
    /// When its sources were committed, as RFC 3339 writes it.
    pub(crate) created: &'a str,
    pub(crate) labels: &'a Labels,
    pub(crate) user: &'a str,
    pub(crate) entrypoint: &'a [&'a str],
}

#[derive(Serialize)]
struct Configuration<'a> {
    created: &'a str,
    architecture: &'a str,
    os: &'a str,
    config: Execution<'a>,
    rootfs: RootFs,
    history: [History<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Execution<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    user: &'a str,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    entrypoint: &'a [&'a str],
    labels: &'a Labels,
}

#[derive(Serialize)]
struct RootFs {
    r#type: &'static str,
    /// Digests of the layers without compression.
    diff_ids: [String; 1],
}

#[derive(Serialize)]
struct History<'a> {
    created: &'a str,
    created_by: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u8,
    media_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_type: Option<&'a str>,
    config: &'a Descriptor,
    layers: Vec<&'a Descriptor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a Descriptor>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    annotations: Labels,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    schema_version: u8,
    media_type: &'static str,
    manifests: Vec<&'a Descriptor>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    annotations: Labels,
}

impl Artifact {
    /// What is no image: a configuration and one layer.
    pub(crate) fn single(
        config: Blob,
        layer: Blob,
        artifact_type: Option<&str>,
        subject: Option<&Descriptor>,
        annotations: Labels,
    ) -> Result<Self, String> {
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST,
            artifact_type,
            config: &config.descriptor,
            layers: vec![&layer.descriptor],
            subject,
            annotations,
        };
        let root = Blob::json(MANIFEST, &manifest)?;
        Ok(Self { root, manifests: Vec::new(), contents: vec![[config, layer]] })
    }

    /// An index of images, one for each machine.
    pub(crate) fn index(images: &[Image<'_>]) -> Result<Self, String> {
        let (mut manifests, mut contents) = (Vec::new(), Vec::new());
        for image in images {
            let files = tar(image.files)?;
            let layer = Blob::new(LAYER, gzip(&files)?);
            let config = Blob::json(
                CONFIG,
                &Configuration {
                    created: image.created,
                    architecture: image.platform.architecture,
                    os: image.platform.os,
                    config: Execution {
                        user: image.user,
                        entrypoint: image.entrypoint,
                        labels: image.labels,
                    },
                    rootfs: RootFs { r#type: "layers", diff_ids: [digest(&files)] },
                    history: [History { created: image.created, created_by: "cargo xtask image" }],
                },
            )?;
            let mut manifest = Blob::json(
                MANIFEST,
                &Manifest {
                    schema_version: 2,
                    media_type: MANIFEST,
                    artifact_type: None,
                    config: &config.descriptor,
                    layers: vec![&layer.descriptor],
                    subject: None,
                    annotations: image.labels.clone(),
                },
            )?;
            manifest.descriptor.platform = Some(image.platform.clone());
            manifests.push(manifest);
            contents.push([config, layer]);
        }
        let annotations = images.first().map(|image| image.labels.clone()).unwrap_or_default();
        let index = Index {
            schema_version: 2,
            media_type: INDEX,
            manifests: manifests.iter().map(|manifest| &manifest.descriptor).collect(),
            annotations,
        };
        Ok(Self { root: Blob::json(INDEX, &index)?, manifests, contents })
    }
}
