//! What of the container runtime's configuration is not ours: how it runs, how it is on disk without us, and which of
//! its files were changed since the process started.

use std::collections::BTreeSet;

use super::files::Files;
use crate::configuration::Configuration;
use crate::cri::Cri;
use crate::host::{ConfigSource, FileKind, Host, HostErrorKind, HostResult, Stat, Unit};
use crate::journal::State;
use crate::paths;
use crate::plan::Content;
use crate::site::{Distribution, Site};
use crate::written;

/// Links in a row that are followed.
const LINKS: usize = 8;

/// What of the configuration is not ours.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    /// What runs.
    pub(crate) running: Configuration,
    /// What is on disk without us.
    pub(crate) on_disk: Configuration,
    /// What the runtime's program prints of that, or in its words why it prints nothing; `None` without a program.
    pub(crate) printed: Option<Result<String, String>>,
    /// Why a runtime that does not serve CRI would do so without our files, and does not with them.
    pub(crate) broken_by_ours: Option<String>,
    /// Whether CRI-O was started before our drop-in was written. It may have been reloaded since, and then lists handlers
    /// that new sandboxes do not get (cri-o#10202).
    pub(crate) ours_is_newer: bool,
    /// The files, and the folders of files, that were changed after the process was started.
    pub(crate) changed: Changed,
}

/// The files, and the folders of files, that others changed after the process was started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changed {
    pub(crate) paths: Vec<String>,
    /// Whether there is another content for sure. Of a file only the mode or the owner may have been changed, or an old
    /// one may have been put in its place; of a folder for containerd a file that is not read, as editors leave them.
    pub(crate) is_sure: bool,
}

impl Foreign {
    pub(super) fn unknown() -> Self {
        Self {
            running: Configuration::Unknown,
            on_disk: Configuration::Unknown,
            printed: None,
            broken_by_ours: None,
            ours_is_newer: false,
            changed: Changed::default(),
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// If the program does not answer, or a file cannot be looked at.
    pub(super) fn read(
        host: &mut dyn Host,
        site: &Site,
        cri: Option<&Cri>,
        files: &Files,
        state: &State,
    ) -> HostResult<Self> {
        let unit = match &site.unit {
            Some(unit) => host.unit(unit)?,
            None => None,
        };
        if cri.is_none() && unit.as_ref().is_some_and(|unit| unit.changing) {
            // That it does not serve yet is not because of its files.
            return Ok(Self::unknown());
        }
        let printed = match site.distribution {
            Distribution::Crio => printed_by_crio(host, unit.as_ref())?,
            _ => printed(host, site, files)?,
        };
        let (on_disk, printed) = match printed {
            None => (Configuration::Unknown, None),
            Some(Err(reason)) => (Configuration::Unknown, Some(Err(reason))),
            Some(Ok(text)) => match Configuration::printed(&text) {
                Ok(on_disk) => (on_disk, Some(Ok(text))),
                // CRI-O prints some values without the marks that TOML needs.
                Err(_) if site.distribution == Distribution::Crio => (Configuration::Unknown, None),
                Err(reason) => (Configuration::Unknown, Some(Err(reason))),
            },
        };
        let is_ours = |reason: &String| {
            site.distribution == Distribution::Crio && reason.contains(&files.drop_in)
        };
        let broken_by_ours = match (cri, &on_disk, &printed) {
            (None, Configuration::OnDisk(_), _)
                if on_disk.cannot_start(&BTreeSet::new()).is_none() =>
            {
                broken_by_ours(host, site, files)?
            }
            (None, _, Some(Err(reason))) if is_ours(reason) => Some(reason.clone()),
            _ => None,
        };
        // What is wrong with our file is put right, and holds nothing up.
        let printed = printed.filter(|it| !it.as_ref().is_err_and(is_ours));
        Ok(Self {
            broken_by_ours,
            ours_is_newer: files.own_drop_in().is_some()
                && is_newer(
                    host,
                    site,
                    unit.as_ref().and_then(|unit| unit.started),
                    &files.drop_in,
                )?,
            running: cri.map_or(Configuration::Unknown, |cri| Configuration::running(&cri.status)),
            on_disk,
            printed,
            changed: match &unit {
                Some(unit) => changed(host, site, unit, files, state)?,
                None => Changed::default(),
            },
        })
    }
}

/// What containerd's program prints of the files without ours, or why it prints nothing.
fn printed(
    host: &mut dyn Host,
    site: &Site,
    files: &Files,
) -> HostResult<Option<Result<String, String>>> {
    let Some(program) = &site.program else { return Ok(None) };
    let text = files.main_without_ours();
    let source = match &text {
        Some(text) => ConfigSource::Text(text),
        None => ConfigSource::At(files.main_to_print(site)),
    };
    match host.config_dump(program, source) {
        Ok(text) => Ok(Some(Ok(text))),
        Err(error) if error.kind == HostErrorKind::Failed => Ok(Some(Err(error.reason))),
        Err(error) => Err(error),
    }
}

/// What CRI-O's program prints of its files, or why it prints nothing. Our handlers are in it, which is all that our
/// drop-in brings.
fn printed_by_crio(
    host: &mut dyn Host,
    unit: Option<&Unit>,
) -> HostResult<Option<Result<String, String>>> {
    // An argument after those of another program would be one of that program.
    let is_crio = |unit: &&Unit| unit.command.first().is_some_and(|it| paths::name(it) == "crio");
    let Some(unit) = unit.filter(is_crio) else { return Ok(None) };
    match host.crio_config(unit) {
        Ok(printed) => Ok(Some(printed)),
        Err(error) if error.kind == HostErrorKind::Failed => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file that we wrote for CRI-O is newer than its process, and was not written without a need to restart.
pub(crate) fn is_newer(
    host: &mut dyn Host,
    site: &Site,
    started: Option<i64>,
    path: &str,
) -> HostResult<bool> {
    let (Distribution::Crio, Some(started)) = (site.distribution, started) else {
        return Ok(false);
    };
    let Some(found) = host.stat(path)? else { return Ok(false) };
    let was_needless = written::load(host)?.get(path) == Some(&found.changed);
    Ok(found.changed > started && !was_needless)
}

/// Why the files with ours are not such that the runtime serves CRI.
fn broken_by_ours(host: &mut dyn Host, site: &Site, files: &Files) -> HostResult<Option<String>> {
    let Some(program) = site.program.as_ref().filter(|_| !files.own().is_empty()) else {
        return Ok(None);
    };
    match host.config_dump(program, ConfigSource::At(files.main_to_print(site))) {
        Ok(text) => Ok(match Configuration::printed(&text) {
            Ok(with_us) => with_us.cannot_start(&BTreeSet::new()),
            Err(reason) => Some(reason),
        }),
        Err(error) if error.kind == HostErrorKind::Failed => Ok(Some(error.reason)),
        Err(error) => Err(error),
    }
}

/// The files and folders that others changed after the process was started. Which files are read at a start, an import
/// with a `*` says by its folder.
fn changed(
    host: &mut dyn Host,
    site: &Site,
    unit: &Unit,
    files: &Files,
    state: &State,
) -> HostResult<Changed> {
    let mut changed = Changed::default();
    let Some(started) = unit.started else { return Ok(changed) };
    let mut read: BTreeSet<String> = files.others.iter().map(|other| other.path.clone()).collect();
    // A distribution makes folders of its own while its unit starts.
    if site.distribution.is_plain() {
        read.extend(files.folders.iter().cloned());
        read.extend(unit.environment_files.iter().cloned());
    }
    match &site.editable {
        Some(editable) => {
            // Where that is another one, the main file is written while the unit starts.
            read.insert(editable.clone());
        }
        None if site.distribution == Distribution::Crio => {
            read.insert(site.main.clone());
        }
        None => {
            let folder = paths::parent(&site.main);
            read.extend(
                ["config.toml.tmpl", "config-v3.toml.tmpl"].map(|it| format!("{folder}/{it}")),
            );
        }
    }
    // That our drop-in was edited, or is gone, explains why its folder was changed.
    let ours = host.stat(&files.drop_in)?;
    if ours.is_some_and(|ours| ours.changed > started) {
        read.remove(paths::parent(&files.drop_in));
    }
    if files.ours == Content::Absent
        && let Some(installed) = &state.installed
    {
        read.remove(paths::parent(&installed.drop_in));
    }
    // MicroK8s changes the modes of its files without need after its unit was started.
    let times = |found: &Stat| match site.distribution {
        Distribution::Microk8s => found.modified,
        _ => found.changed,
    };
    let written = written::load(host)?;
    for path in read {
        let mut place = path.clone();
        for _ in 0..LINKS {
            let Some(found) = host.stat(&place)? else { break };
            let by_us = written.get(&place) == Some(&found.changed);
            if times(&found) > started && !by_us {
                changed.is_sure |= match found.kind {
                    FileKind::Directory => site.distribution == Distribution::Crio,
                    _ => found.modified > started,
                };
                changed.paths.push(path);
                break;
            }
            let FileKind::Link { target } = found.kind else { break };
            place = paths::absolute(&place, &target);
        }
    }
    // A file says more than its folder.
    let all = changed.paths.clone();
    let is_in = |path: &str, folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    };
    changed.paths.retain(|folder| !all.iter().any(|path| is_in(path, folder)));
    Ok(changed)
}
