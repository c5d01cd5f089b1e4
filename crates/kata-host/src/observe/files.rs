//! The container runtime's configuration files: its own, those of others that it reads, and ours.

use std::collections::{BTreeMap, BTreeSet};

use toml::Table;

use crate::containerd::{self, MainConfig};
use crate::crio;
use crate::durable;
use crate::host::{FileKind, Host, HostError, HostErrorKind, HostResult, Stat};
use crate::journal::State;
use crate::paths;
use crate::plan::{Baseline, Change, Content, MainFile};
use crate::site::{self, Distribution, Site};

/// The container runtime's configuration files.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The main file.
    pub(crate) main: Content,
    /// Its text, also if it is a link; `None` if there is none.
    pub(crate) main_text: Option<String>,
    /// The file that would be edited, if it is another one than the main file.
    pub(crate) editable: Content,
    /// What is where the journal says that we added an import. That may be another place by now.
    pub(crate) edited: Content,
    /// What the main file says, or why it cannot be understood.
    pub(crate) config: Result<MainConfig, String>,
    /// The folder that the main file imports, if it imports one.
    pub(crate) imported: Option<String>,
    /// Where our drop-in belongs.
    pub(crate) drop_in: String,
    /// What is there.
    pub(crate) ours: Content,
    /// Drop-ins of ours where they do not belong any more, since another folder is imported now.
    pub(crate) stale: BTreeMap<String, Content>,
    /// Directories that the drop-in's path lacks, the outermost first.
    pub(crate) missing_dirs: Vec<String>,
    /// The other files that are imported now.
    pub(crate) others: BTreeMap<String, String>,
    /// Imports without a glob whose file does not exist.
    pub(crate) dangling: Vec<String>,
    /// The runtimes that containerd has by itself, if our drop-in has to repeat them; or why they are not known.
    pub(crate) built_in: Result<Table, String>,
}

impl Files {
    pub(super) fn none() -> Self {
        Self {
            main: Content::Absent,
            main_text: None,
            editable: Content::Absent,
            edited: Content::Absent,
            config: Err("there is none".to_owned()),
            imported: None,
            drop_in: String::new(),
            ours: Content::Absent,
            stale: BTreeMap::new(),
            missing_dirs: Vec::new(),
            others: BTreeMap::new(),
            dangling: Vec::new(),
            built_in: Ok(Table::new()),
        }
    }

    /// Our own drop-in, if one is there.
    pub(crate) fn own_drop_in(&self) -> Option<&str> {
        self.ours.ours()
    }

    /// The texts of our own drop-in and of those that are where none belongs any more.
    pub(crate) fn own(&self) -> Vec<&str> {
        self.own_drop_in()
            .into_iter()
            .chain(self.stale.values().filter_map(Content::ours))
            .collect()
    }

    /// The handlers that our own drop-ins configure. On containerd 1.x those copy a section, which has others.
    pub(crate) fn own_handlers(&self) -> BTreeSet<String> {
        let foreign = self.foreign_handlers();
        let names = self.own().into_iter().flat_map(handlers);
        names.filter(|name| name != "runc" && !foreign.contains(name)).collect()
    }

    /// The handlers that files of others configure.
    pub(crate) fn foreign_handlers(&self) -> BTreeSet<String> {
        let main = self.config.iter().flat_map(|config| config.handlers.iter().cloned());
        let texts = self.main_text.iter().chain(self.others.values());
        main.chain(texts.flat_map(|text| handlers(text))).collect()
    }

    /// The changes that take the latter away.
    pub(crate) fn without_stale(&self) -> impl Iterator<Item = Change> + '_ {
        self.stale.iter().map(|(path, content)| Change {
            path: path.clone(),
            before: content.clone(),
            after: Content::Absent,
        })
    }

    /// The change that takes our import out of the file to which we added it, if it is there.
    pub(crate) fn without_import(&self, main: &MainFile) -> Option<Change> {
        // Another tool may rely on the import by now: taking it out would take out what that tool configures.
        if self.others.keys().any(|path| takes(&main.import, path)) {
            return None;
        }
        let now = &self.edited;
        let after = match now {
            _ if *now == main.after => main.before.clone(),
            _ if *now == main.before => return None,
            Content::File { text, mode } => {
                // If it is broken, then not by us; the import of a folder without files does no harm.
                let text = containerd::remove_import(text, &main.import).ok()?;
                Content::File { text, mode: *mode }
            }
            Content::Absent | Content::Directory | Content::Link { .. } => return None,
        };
        (*now != after).then(|| Change { path: main.path.clone(), before: now.clone(), after })
    }

    /// The main file as it would be without us, for the comparison of the merged configurations.
    pub(crate) fn baseline(&self, site: &Site) -> Option<Baseline> {
        let program = site.program.clone()?;
        if site.distribution == Distribution::Crio {
            return None;
        }
        let config = self.config.as_ref().ok()?;
        let others: Vec<String> = self.others.keys().cloned().collect();
        // Imports of kinds that we do not understand stay as they are.
        let kept =
            config.imports.iter().map(|import| absolute(&site.main, import)).filter(|import| {
                import.contains(['*', '?', '[']) && import.strip_suffix("/*.toml").is_none()
            });
        let imports: Vec<String> = others.into_iter().chain(kept).collect();
        let text =
            containerd::with_imports(self.main_text.as_deref(), config.schema, &imports).ok()?;
        Some(Baseline { program, text })
    }
}

/// The handlers that a file of either kind of container runtime configures.
pub(crate) fn handlers(text: &str) -> BTreeSet<String> {
    let mut names = crio::handlers(text).unwrap_or_default();
    names.extend(containerd::drop_in_handlers(text).unwrap_or_default().0);
    names
}

/// A file's text; a link is followed, since administrators link configuration files.
pub(super) fn text(host: &mut dyn Host, path: &str) -> HostResult<Option<String>> {
    match host.read(path)? {
        None => Ok(None),
        Some(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(HostError {
                action: format!("use {path}"),
                reason: "it is not UTF-8".to_owned(),
                kind: HostErrorKind::Other,
            }),
        },
    }
}

/// Reads the files. `renders` says whether our drop-in will be made of them.
pub(super) fn files(
    host: &mut dyn Host,
    site: &Site,
    version: (u32, u32),
    state: &State,
    renders: bool,
) -> HostResult<Files> {
    let main = durable::content(host, &site.main)?;
    let main_text = text(host, &site.main)?;
    let editable = match &site.editable {
        Some(path) if *path != site.main => durable::content(host, path)?,
        Some(_) | None => main.clone(),
    };
    let edited = match state.installed.as_ref().and_then(|installed| installed.main.as_ref()) {
        Some(edited) if Some(&edited.path) == site.editable.as_ref() => editable.clone(),
        Some(edited) => durable::content(host, &edited.path)?,
        None => Content::Absent,
    };
    let config = match site.distribution {
        Distribution::Crio => containerd::main_config(None, 2),
        _ => match &main_text {
            None if let Some(lost) = lost_link(host, &site.main)? => Err(lost),
            _ => containerd::main_config(main_text.as_deref(), version.0),
        },
    };
    let imports: Vec<String> = config
        .iter()
        .flat_map(|config| &config.imports)
        .map(|import| absolute(&site.main, import))
        .collect();
    let imported = match site.distribution {
        // Both read their folder whatever the main file says.
        Distribution::Crio | Distribution::K0s => Some(site.drop_ins.clone()),
        _ => containerd::imported_folder(&site.main, &imports),
    };
    let folder = match &imported {
        Some(folder) => folder.clone(),
        None => new_folder(host, site)?,
    };
    let drop_in = match (site.distribution, &state.installed) {
        (Distribution::Crio, _) => paths::CRIO_DROP_IN.to_owned(),
        // Where it was put, as long as that is imported; an administrator may have added another import.
        (_, Some(installed)) if imports.iter().any(|import| takes(import, &installed.drop_in)) => {
            installed.drop_in.clone()
        }
        _ => format!("{folder}/{}", paths::CONTAINERD_DROP_IN),
    };
    let mut others = BTreeMap::new();
    let mut dangling = Vec::new();
    let mut folders: BTreeSet<String> = imported.iter().cloned().collect();
    // What k0s makes of all drop-ins is no file of somebody else: ours are in it.
    let made = |import: &&String| {
        site.distribution == Distribution::K0s && import.starts_with(site::K0S_RUN)
    };
    for import in imports.iter().filter(|import| !made(import)) {
        match import.strip_suffix("/*.toml") {
            Some(folder) => {
                folders.insert(folder.to_owned());
            }
            None if import.contains(['*', '?', '[']) => {}
            None => match text(host, import)? {
                Some(text) => {
                    others.insert(import.clone(), text);
                }
                None => dangling.push(import.clone()),
            },
        }
    }
    let stale = stale(host, site, state, &drop_in, &folders)?;
    for folder in folders {
        for name in host.list(&folder)?.unwrap_or_default() {
            let path = format!("{folder}/{name}");
            // CRI-O reads everything, and for Go's globs a dot at the beginning is nothing special.
            let read = site.distribution == Distribution::Crio || name.ends_with(".toml");
            if read
                && path != drop_in
                && !stale.contains_key(&path)
                && !matches!(host.stat(&path)?, None | Some(Stat { kind: FileKind::Directory, .. }))
                && let Some(text) = text(host, &path)?
            {
                others.insert(path, text);
            }
        }
    }
    let ours = durable::content(host, &drop_in)?;
    let built_in = match &config {
        Ok(config) if renders && site.replaces_sections(version) && !config.has_runtimes() => {
            built_in(host, site)?
        }
        Ok(_) | Err(_) => Ok(Table::new()),
    };
    let missing_dirs = durable::missing_dirs(host, paths::parent(&drop_in))?;
    Ok(Files {
        main,
        main_text,
        editable,
        edited,
        config,
        imported,
        drop_in,
        ours,
        stale,
        missing_dirs,
        others,
        dangling,
        built_in,
    })
}

/// The runtimes that containerd has by itself. No file names them, so containerd is asked.
fn built_in(host: &mut dyn Host, site: &Site) -> HostResult<Result<Table, String>> {
    let Some(program) = &site.program else {
        return Ok(Err(format!(
            "{} has no table of runtimes, and no program is known that prints those of containerd",
            site.main
        )));
    };
    let dump = host.config_dump(program, containerd::EMPTY_FILE)?;
    Ok(containerd::built_in_runtimes(&dump))
}

/// Why a file cannot be seen that is there for the container runtime: a link on its way leads to what this
/// agent's pod does not have.
fn lost_link(host: &mut dyn Host, path: &str) -> HostResult<Option<String>> {
    let mut place = path;
    while place != "/" {
        if let Some(Stat { kind: FileKind::Link { target }, .. }) = host.stat(place)?
            && host.list(place)?.is_none()
        {
            return Ok(Some(format!(
                "{place} is a link to {target}, where nothing is found; {}, so keep it below one of them",
                paths::SEEN_ONLY
            )));
        }
        place = paths::parent(place);
    }
    Ok(None)
}

/// The folder to import if none is. An import would bring whatever else is in the usual one to life, so if
/// there is something, it is a folder of our own.
fn new_folder(host: &mut dyn Host, site: &Site) -> HostResult<String> {
    let names = host.list(&site.drop_ins)?.unwrap_or_default();
    let foreign = |name: &String| name.ends_with(".toml") && name != paths::CONTAINERD_DROP_IN;
    Ok(if names.iter().any(foreign) {
        format!("{}/{}", paths::parent(&site.drop_ins), paths::OWN_FOLDER)
    } else {
        site.drop_ins.clone()
    })
}

/// Drop-ins with our name and header in folders where one may have been before.
fn stale(
    host: &mut dyn Host,
    site: &Site,
    state: &State,
    drop_in: &str,
    folders: &BTreeSet<String>,
) -> HostResult<BTreeMap<String, Content>> {
    let mut stale = BTreeMap::new();
    if site.distribution == Distribution::Crio {
        return Ok(stale);
    }
    let before = state.installed.as_ref().map(|installed| paths::parent(&installed.drop_in));
    let folders = folders.iter().map(String::as_str).chain(before).chain([site.drop_ins.as_str()]);
    for folder in folders.collect::<BTreeSet<_>>() {
        let path = format!("{folder}/{}", paths::CONTAINERD_DROP_IN);
        if path != drop_in
            && let content = durable::content(host, &path)?
            && content.ours().is_some()
        {
            stale.insert(path, content);
        }
    }
    Ok(stale)
}

fn absolute(main: &str, import: &str) -> String {
    if import.starts_with('/') {
        import.to_owned()
    } else {
        format!("{}/{}", paths::parent(main).trim_end_matches('/'), import.trim_start_matches("./"))
    }
}

/// Whether an import takes a path in.
fn takes(import: &str, path: &str) -> bool {
    import.strip_suffix("/*.toml").is_some_and(|folder| paths::parent(path) == folder)
}
