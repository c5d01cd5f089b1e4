//! The chart as Helm pulls it from a registry, with the image that was published with it.
//!
//! HIP 6 of Helm has the format: Chart.yaml as JSON is the configuration, the archive is the only layer.

use std::path::Path;

use serde_json::Value;

use super::{VERSION, image, label, replace, tracked};
use crate::oci::reference::Reference;
use crate::oci::{Artifact, Blob, File, Labels, gzip, tar};

const CHART: &str = "deploy/helm/kata-operator";
/// The folder in the archive.
const NAME: &str = "kata-operator";
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// What Helm leaves out.
const IGNORED: &str = ".helmignore";

/// The artifact of the chart, to be pushed to `to`; its layer is the archive.
///
/// # Errors
/// If the chart's files do not have what is replaced.
pub(super) fn chart(
    root: &Path,
    to: &Reference,
    image: &Reference,
    digest: &str,
) -> Result<Artifact, String> {
    let mut files = tracked(root, CHART)?;
    files.retain(|file| file.path != IGNORED);
    let about = edit(&mut files, to, image, digest)?;
    for file in &mut files {
        file.path = format!("{NAME}/{}", file.path);
    }
    let config = Blob::new(CONFIG, serde_json::to_vec(&about).map_err(|error| error.to_string())?);
    let layer = Blob::new(CONTENT, gzip(&tar(&files)?)?);
    let text = |field: &str| about[field].as_str().unwrap_or_default().to_owned();
    let annotations = [
        ("title", text("name")),
        ("description", text("description")),
        ("version", text("version")),
        ("url", text("home")),
        ("created", image::created(root)?),
    ];
    let annotations: Labels = annotations
        .into_iter()
        .map(|(name, value)| (format!("org.opencontainers.image.{name}"), value))
        .collect();
    Artifact::single(config, layer, None, None, annotations)
}

/// Puts image and version into the files; returns Chart.yaml.
fn edit(
    files: &mut [File],
    to: &Reference,
    image: &Reference,
    digest: &str,
) -> Result<Value, String> {
    let (version, repository, chart) = (&to.tag, image.place(), to.place());
    replace(
        files,
        "values.yaml",
        &[
            ("  repository: \"\"\n", &format!("  repository: {repository}\n")),
            (
                "Needed: no image was published with\n  # this chart.\n",
                "A mirror has\n  # the same image.\n",
            ),
            (
                "  # v and the chart's appVersion, if empty.\n",
                "  # Empty: the image that was published with this chart, by its digest.\n",
            ),
        ],
    )?;
    replace(
        files,
        "templates/_helpers.tpl",
        &[(r#"$published := """#, &format!(r#"$published := "{digest}""#))],
    )?;
    replace(
        files,
        "README.md",
        &[
            (
                "./deploy/helm/kata-operator --namespace kata-operator --set image.repository=registry.example.com/kata-operator\n",
                &format!("oci://{chart} --version {version} --namespace kata-operator\n"),
            ),
            (
                "No image is published yet: build one (`docs/install.md`) and name it; `image.tag` is `v` and the chart's version \
                 unless it is set.\n",
                &format!(
                    "The image is `{repository}@{digest}`; for a mirror, set `image.repository` alone.\n"
                ),
            ),
            ("| none, this version |", "| the image published with this chart |"),
        ],
    )?;
    replace(
        files,
        "Chart.yaml",
        &[
            (&format!("\nversion: {VERSION}\n"), &format!("\nversion: {version}\n")),
            (&format!("\nappVersion: {VERSION}\n"), &format!("\nappVersion: {version}\n")),
            ("registry.invalid/kata-operator:unpublished", &format!("{repository}@{digest}")),
        ],
    )?;
    label(files, version);
    let about = files.iter().find(|file| file.path == "Chart.yaml");
    let about = about.map(|file| String::from_utf8_lossy(&file.bytes)).unwrap_or_default();
    serde_saphyr::from_str(&about).map_err(|error| format!("{CHART}/Chart.yaml: {error}"))
}
