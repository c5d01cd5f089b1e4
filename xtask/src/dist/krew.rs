//! The manifest by which krew finds the plugin, and what krew asks of one.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::machine::Machine;
use super::{REPOSITORY, failed, sums};

/// An archive of the plugin, in the folder of what is published.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) machine: Machine,
    pub(super) name: String,
}

/// The manifest; `sums` has a line for each archive, all of which will be at `url`.
pub(super) fn manifest(
    archives: &[Archive],
    sums: &str,
    version: &str,
    url: &str,
) -> Result<String, String> {
    let platforms: Result<Vec<Value>, String> = archives
        .iter()
        .map(|Archive { machine, name }| {
            let sum = sum(sums, name).ok_or_else(|| format!("{name} has no digest"))?;
            Ok(json!({
                "selector": {"matchLabels": {"os": "linux", "arch": machine.name()}},
                "uri": format!("{}/{name}", url.trim_end_matches('/')),
                "sha256": sum,
                "bin": "kubectl-kata",
            }))
        })
        .collect();
    let manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "kata"},
        "spec": {
            "version": format!("v{version}"),
            "homepage": REPOSITORY,
            "shortDescription": "Inspect, verify and troubleshoot sandboxed (Kata) pods",
            "description": "Shows how far the roll-out of Kata Containers is, proves that pods are \
                            sandboxed, and explains those that do not start.",
            "caveats": "Completion by kubectl itself: save what `kubectl kata completion kubectl` prints \
                        as kubectl_complete-kata, executable, in a directory of the PATH.\n",
            "platforms": platforms?,
        },
    });
    serde_saphyr::to_string(&manifest).map_err(|error| error.to_string())
}

fn sum<'a>(sums: &'a str, name: &str) -> Option<&'a str> {
    sums.lines()
        .filter_map(|line| line.split_once("  "))
        .find(|(_, of)| *of == name)
        .map(|(sum, _)| sum)
}

/// Reads the manifest as krew would: each platform names an archive that has these bytes, and in it the
/// program, a license, and nothing that leads out of it.
pub(super) fn check(folder: &Path) -> Result<(), String> {
    let path = folder.join("kata.yaml");
    let text = fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))?;
    let manifest: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    let platforms = manifest["spec"]["platforms"].as_array().filter(|list| !list.is_empty());
    for platform in platforms.ok_or("the krew manifest has no platform")? {
        let field = |name: &str| {
            platform[name].as_str().ok_or_else(|| format!("a platform of {text} has no {name}"))
        };
        let archive = field("uri")?.rsplit('/').next().unwrap_or_default();
        let sums = sums(folder, &[archive])?;
        if sum(&sums, archive) != Some(field("sha256")?) {
            return Err(format!("the krew manifest has another digest of {archive}:\n{sums}"));
        }
        let names = unpacked(&folder.join(archive))?;
        for name in [field("bin")?, "LICENSE"] {
            if !names.iter().any(|it| it == name) {
                return Err(format!("there is no {name} in {archive}: {}", names.join(", ")));
            }
        }
        if let Some(name) = names.iter().find(|name| name.starts_with('/') || name.contains("..")) {
            return Err(format!("{archive} would write {name}"));
        }
    }
    Ok(())
}

/// The names of what krew unpacks: folders and files, and an archive that has anything else is refused.
fn unpacked(archive: &Path) -> Result<Vec<String>, String> {
    let fail = |error: std::io::Error| failed("read", archive, &error);
    let file = fs::File::open(archive).map_err(fail)?;
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut names = Vec::new();
    for entry in tar.entries().map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.path().map_err(fail)?.to_string_lossy().into_owned();
        let kind = entry.header().entry_type();
        if !kind.is_file() && !kind.is_dir() {
            return Err(format!("{} has what krew does not unpack: {name}", archive.display()));
        }
        names.push(name);
    }
    Ok(names)
}
