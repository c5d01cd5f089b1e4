//! The images for the Operator Lifecycle Manager: the bundle with the operator's image by its digest, and a catalog that has
//! the bundle by its digest. There is no program in either.

use std::path::Path;

use clap::ValueEnum as _;
use serde_json::Value;

use super::machine::Machine;
use super::{REPOSITORY, VERSION, image, label, replace, tracked};
use crate::oci::{Artifact, File, Image, Labels, Platform};

const FOLDER: &str = "deploy/olm";
/// What the files name before anything is published.
const IMAGE: &str = "registry.invalid/kata-operator:unpublished";
const BUNDLE: &str = concat!("registry.invalid/kata-operator-bundle:v", env!("CARGO_PKG_VERSION"));
const CATALOG: &str =
    concat!("registry.invalid/kata-operator-catalog:v", env!("CARGO_PKG_VERSION"));
const CSV: &str = "manifests/kata-operator.clusterserviceversion.yaml";
/// Where the console has the plugin from.
const DOWNLOADS: &str = "manifests/kubectl-kata.consoleclidownload.yaml";
const ANNOTATIONS: &str = "metadata/annotations.yaml";
const FRAGMENT: &str = "catalog/catalog.yaml";
const SOURCE: &str = "samples/catalogsource.yaml";
/// Where the catalog's files are in its image.
const CONFIGS: &str = "configs";

/// What is published for the Operator Lifecycle Manager.
#[derive(Clone, Copy)]
pub(super) struct Published<'a> {
    pub(super) machines: &'a [Machine],
    pub(super) version: &'a str,
    /// The operator's image, by its digest.
    pub(super) image: &'a str,
    /// Where the archives of the plugin are.
    pub(super) files_url: Option<&'a str>,
}

/// The image of the bundle.
///
/// # Errors
/// If the bundle's files do not have what is replaced.
pub(super) fn bundle(root: &Path, published: Published<'_>) -> Result<Artifact, String> {
    let mut files = tracked(root, FOLDER)?;
    files.retain(|file| file.path.starts_with("manifests/") || file.path == ANNOTATIONS);
    let texts = ["name: kata-operator.v", "olm.skipRange: <", "\n  version: ", "io/version: "];
    edit(&mut files, CSV, published, &texts, &[(IMAGE, published.image)])?;
    match published.files_url {
        Some(url) => downloads(&mut files, published, url)?,
        // The console would offer what is not there.
        None => files.retain(|file| file.path != DOWNLOADS),
    }
    label(&mut files, published.version);
    let about = files.iter().find(|file| file.path == ANNOTATIONS);
    let about = about.map(|file| String::from_utf8_lossy(&file.bytes)).unwrap_or_default();
    let about: Value =
        serde_saphyr::from_str(&about).map_err(|error| format!("{ANNOTATIONS}: {error}"))?;
    let labels = about["annotations"].as_object().into_iter().flatten();
    let labels: Labels = labels
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    of_files(root, published.machines, &files, &labels)
}

/// The image of the catalog, with the bundle by its digest.
///
/// # Errors
/// If the catalog's file does not have what is replaced.
pub(super) fn catalog(
    root: &Path,
    published: Published<'_>,
    bundle: &str,
) -> Result<Artifact, String> {
    let mut files = tracked(root, FOLDER)?;
    files.retain(|file| file.path == FRAGMENT);
    let texts = ["name: kata-operator.v", "\n  skipRange: <", "olm.skipRange: <"];
    let images = [(IMAGE, published.image), (BUNDLE, bundle)];
    edit(&mut files, FRAGMENT, published, &texts, &images)?;
    let version = |version: &str| format!("    version: \"{version}\"\n");
    replace(&mut files, FRAGMENT, &[(&version(VERSION), &version(published.version))])?;
    for file in &mut files {
        file.path = format!("{CONFIGS}/kata-operator/catalog.yaml");
    }
    let label = "operators.operatorframework.io.index.configs.v1".to_owned();
    of_files(root, published.machines, &files, &Labels::from([(label, format!("/{CONFIGS}"))]))
}

/// The `CatalogSource` that names the catalog.
///
/// # Errors
/// If the sample does not have what is replaced.
pub(super) fn source(root: &Path, catalog: &str) -> Result<String, String> {
    let mut files = tracked(root, FOLDER)?;
    files.retain(|file| file.path == SOURCE);
    replace(&mut files, SOURCE, &[(CATALOG, catalog)])?;
    let source = files.into_iter().next().map(|file| String::from_utf8_lossy(&file.bytes).into());
    source.ok_or_else(|| format!("{SOURCE} is not there"))
}

/// Replaces the version after some texts, the names of images, and what is said of machines that nothing is published for.
fn edit(
    files: &mut [File],
    path: &str,
    published: Published<'_>,
    before: &[&str],
    images: &[(&str, &str)],
) -> Result<(), String> {
    let mut edits: Vec<(String, String)> = before
        .iter()
        .map(|before| (format!("{before}{VERSION}\n"), format!("{before}{}\n", published.version)))
        .collect();
    edits.extend(images.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())));
    for machine in absent(published.machines) {
        // What the console filters by has the value `supported`.
        let label = format!("operatorframework.io/arch.{}: ", machine.name());
        edits.push((format!("{label}supported\n"), format!("{label}unsupported\n")));
    }
    let edits: Vec<(&str, &str)> =
        edits.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    replace(files, path, &edits)
}

/// Names the archives of the plugin.
fn downloads(files: &mut [File], published: Published<'_>, url: &str) -> Result<(), String> {
    let before = format!("{REPOSITORY}/releases/download/v{VERSION}");
    for machine in absent(published.machines) {
        let name = machine.name();
        let link = format!(
            "    - href: {before}/kubectl-kata_linux_{name}.tar.gz\n      text: kubectl-kata for linux on {name}\n"
        );
        replace(files, DOWNLOADS, &[(&link, "")])?;
    }
    replace(files, DOWNLOADS, &[(&before, url.trim_end_matches('/'))])
}

/// The machines that nothing is published for.
fn absent(machines: &[Machine]) -> impl Iterator<Item = &Machine> {
    Machine::value_variants().iter().filter(|machine| !machines.contains(machine))
}

fn of_files(
    root: &Path,
    machines: &[Machine],
    files: &[File],
    labels: &Labels,
) -> Result<Artifact, String> {
    let created = image::created(root)?;
    let images: Vec<Image<'_>> = machines
        .iter()
        .map(|machine| Image {
            platform: Platform { architecture: machine.name(), os: "linux" },
            files,
            created: &created,
            labels,
            user: "",
            entrypoint: &[],
        })
        .collect();
    Artifact::index(&images)
}
