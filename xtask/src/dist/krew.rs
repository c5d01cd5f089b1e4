//! The manifest by which krew finds the plugin, and what krew asks of one.

use std::fs;
use std::path::Path;

use clap::ValueEnum as _;
use serde_json::{Value, json};

use super::machine::Machine;
use super::{REPOSITORY, failed, sums};

/// An archive of the plugin, in the folder of what is published.
#[derive(Debug)]
pub(super) struct Archive {
    /// As krew calls it: linux, darwin or windows.
    os: &'static str,
    machine: Machine,
    pub(super) name: String,
}

impl Archive {
    /// That of the programs that are built here.
    pub(super) fn linux(machine: Machine) -> Self {
        Self::new("linux", machine)
    }

    fn new(os: &'static str, machine: Machine) -> Self {
        Self { os, machine, name: format!("kubectl-kata_{os}_{}.tar.gz", machine.name()) }
    }

    fn program(&self) -> &'static str {
        if self.os == "windows" { "kubectl-kata.exe" } else { "kubectl-kata" }
    }
}

/// The archives in a folder, which were built on other systems.
///
/// # Errors
/// If there is none or something else, or one that krew would refuse.
pub(super) fn foreign(folder: &Path) -> Result<Vec<Archive>, String> {
    let known = ["darwin", "windows"];
    let all = known.iter().flat_map(|os| Machine::value_variants().iter().map(|it| (*os, *it)));
    let all: Vec<Archive> = all.map(|(os, machine)| Archive::new(os, machine)).collect();
    let fail = |error: std::io::Error| failed("read", folder, &error);
    for entry in fs::read_dir(folder).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        if !all.iter().any(|archive| name == archive.name.as_str()) {
            let names: Vec<&str> = all.iter().map(|archive| archive.name.as_str()).collect();
            return Err(format!(
                "{} is no archive of the plugin for another system; those are {}",
                folder.join(name).display(),
                names.join(", ")
            ));
        }
    }
    let found: Vec<Archive> =
        all.into_iter().filter(|archive| folder.join(&archive.name).exists()).collect();
    if found.is_empty() {
        return Err(format!("{} has no archive of the plugin", folder.display()));
    }
    for archive in &found {
        has_plugin(&folder.join(&archive.name), archive.program())?;
    }
    Ok(found)
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
        .map(|archive| {
            let name = &archive.name;
            let sum = sum(sums, name).ok_or_else(|| format!("{name} has no digest"))?;
            Ok(json!({
                "selector": {"matchLabels": {"os": archive.os, "arch": archive.machine.name()}},
                "uri": format!("{}/{name}", url.trim_end_matches('/')),
                "sha256": sum,
                "bin": archive.program(),
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
        has_plugin(&folder.join(archive), field("bin")?)?;
    }
    Ok(())
}

/// Whether an archive has the program and a license, and nothing that leads out of it.
fn has_plugin(archive: &Path, program: &str) -> Result<(), String> {
    let names = unpacked(archive)?;
    for name in [program, "LICENSE"] {
        if !names.iter().any(|it| it == name) {
            return Err(format!(
                "there is no {name} in {}: {}",
                archive.display(),
                names.join(", ")
            ));
        }
    }
    match names.iter().find(|name| name.starts_with('/') || name.contains("..")) {
        Some(name) => Err(format!("{} would write {name}", archive.display())),
        None => Ok(()),
    }
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
