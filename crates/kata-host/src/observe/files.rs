//! The container runtime's configuration files: its own, those of others that it reads, and ours.

use std::collections::{BTreeMap, BTreeSet};

use toml::Table;

use super::imports::{self, Imported, Other, takes};
use crate::containerd::{self, Base, MainConfig, Schema};
use crate::crio;
use crate::crio_folder::{self, Folder};
use crate::durable;
use crate::host::{ConfigSource, FileKind, Host, HostResult, Stat};
use crate::journal::State;
use crate::kata_deploy::{self, KataDeploy};
use crate::paths;
use crate::plan::{Change, Content, MainFile};
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
    /// Whether the folder of our drop-in is read already.
    pub(crate) is_imported: bool,
    /// Where our drop-in belongs.
    pub(crate) drop_in: String,
    /// What is there.
    pub(crate) ours: Content,
    /// Drop-ins of ours where they do not belong any more, since another folder is imported now.
    pub(crate) stale: BTreeMap<String, Content>,
    /// Directories that the drop-in's path lacks, the outermost first.
    pub(crate) missing_dirs: Vec<String>,
    /// The other files that are imported now, in the order in which they are read.
    pub(crate) others: Vec<Other>,
    /// Imports without a glob whose file does not exist.
    pub(crate) dangling: Vec<String>,
    /// The folders of those imports that have a glob.
    pub(crate) folders: BTreeSet<String>,
    /// What may be there for the container runtime and is not seen, a part of a sentence each.
    pub(crate) unseen: Vec<String>,
    /// What our drop-in is added to.
    pub(crate) base: Base,
    /// The runtimes that containerd has by itself, if our drop-in has to repeat them; or why they are not known.
    pub(crate) built_in: Result<Table, String>,
    /// What kata-deploy has, if that is to be taken over: all else here is as it would be without.
    pub(crate) kata_deploy: Option<KataDeploy>,
    /// What is where the journal says that drop-ins of kata-deploy were.
    pub(crate) taken: BTreeMap<String, Content>,
}

impl Files {
    pub(super) fn none() -> Self {
        Self {
            main: Content::Absent,
            main_text: None,
            editable: Content::Absent,
            edited: Content::Absent,
            config: Err("there is none".to_owned()),
            is_imported: false,
            drop_in: String::new(),
            ours: Content::Absent,
            stale: BTreeMap::new(),
            missing_dirs: Vec::new(),
            others: Vec::new(),
            dangling: Vec::new(),
            folders: BTreeSet::new(),
            unseen: Vec::new(),
            base: Base::plain(Schema::V2),
            built_in: Ok(Table::new()),
            kata_deploy: None,
            taken: BTreeMap::new(),
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

    /// The handlers that files of others configure, without copies of ours.
    pub(crate) fn foreign_handlers(&self) -> BTreeSet<String> {
        let main = self.config.iter().flat_map(|config| config.handlers.iter().cloned());
        let texts = self.main_text.iter().chain(self.others.iter().map(|other| &other.text));
        let all: BTreeSet<String> = main.chain(texts.flat_map(|text| handlers(text))).collect();
        let copied = self.copied_handlers();
        all.into_iter().filter(|name| !copied.contains(name)).collect()
    }

    /// The handlers of ours that files of others have as well: a tool that writes the whole configuration back does that.
    pub(crate) fn copied_handlers(&self) -> BTreeSet<String> {
        let texts = self.main_text.iter().chain(self.others.iter().map(|other| &other.text));
        texts.flat_map(|text| copies(text)).collect()
    }

    /// A file of others that has one of these handlers as a copy of ours, and the handler.
    pub(crate) fn copy_of(&self, site: &Site, ours: &BTreeSet<String>) -> Option<(String, String)> {
        let main = self.main_text.iter().map(|text| (&site.main, text));
        let others = self.others.iter().map(|other| (&other.path, &other.text));
        main.chain(others).find_map(|(path, text)| {
            let name = copies(text).into_iter().find(|name| ours.contains(name))?;
            Some((path.clone(), name))
        })
    }

    /// CRI-O's files but ours, in the order in which it reads them, with their texts.
    pub(crate) fn crio<'a>(
        &'a self,
        site: &'a Site,
    ) -> impl Iterator<Item = (&'a String, &'a String)> {
        let main = self.main_text.as_ref().map(|text| (&site.main, text));
        main.into_iter().chain(self.others.iter().map(|other| (&other.path, &other.text)))
    }

    /// Why the runtime would not start because of a file that is named and not there.
    pub(crate) fn missing(&self, site: &Site) -> Option<String> {
        let path = self.dangling.first()?;
        Some(match site.distribution {
            Distribution::Crio => {
                format!("{path} leads to no file, and CRI-O does not start with such a link")
            }
            _ => format!("{} imports {path}, which does not exist", site.main),
        })
    }

    /// The changes that take drop-ins away that are where none belongs any more.
    pub(crate) fn without_stale(&self) -> impl Iterator<Item = Change> + '_ {
        self.stale.iter().map(|(path, content)| Change {
            path: path.clone(),
            before: content.clone(),
            after: Content::Absent,
        })
    }

    /// Whether another tool relies on our import by now: taking it out would take out what that tool configures.
    pub(crate) fn is_relied_on(&self, import: &str) -> bool {
        self.others.iter().any(|other| takes(import, &other.path))
    }

    /// The change that takes our import out of the file to which we added it, if it is there.
    pub(crate) fn without_import(&self, main: &MainFile) -> Option<Change> {
        if self.is_relied_on(&main.import) {
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

    /// Whether something of ours is in them, or may be.
    pub(super) fn is_changed_by(&self, state: &State) -> bool {
        state.installed.is_some() || !self.own().is_empty()
    }

    /// The main file as it would be without us; `None` if none of ours is read, or if it cannot be understood.
    pub(super) fn main_without_ours(&self) -> Option<String> {
        if self.own().is_empty() && self.kata_deploy.is_none() {
            return None;
        }
        let config = self.config.as_ref().ok()?;
        let own = self.others.iter().filter(|other| !other.nested);
        let imports: Vec<String> = own.map(|other| other.path.clone()).collect();
        containerd::with_imports(self.main_text.as_deref(), config.schema, &imports).ok()
    }

    /// The file of which the program prints the configuration. Without a main file containerd starts with what it has
    /// by itself; 1.x does not print that of a path where nothing is.
    pub(super) fn main_to_print<'a>(&self, site: &'a Site) -> &'a str {
        if self.main == Content::Absent { containerd::EMPTY_FILE } else { &site.main }
    }
}

/// The handlers that a file of either kind of container runtime configures.
pub(crate) fn handlers(text: &str) -> BTreeSet<String> {
    let mut names = crio::handlers(text).unwrap_or_default();
    names.extend(containerd::drop_in_handlers(text).unwrap_or_default());
    names
}

/// The handlers of a file of either kind of container runtime that are copies of ours.
pub(crate) fn copies(text: &str) -> BTreeSet<String> {
    let mut names = crio::copies(text);
    names.extend(containerd::copies(text));
    names
}

/// Reads the files. `renders` says whether our drop-in will be made of them, `takes_over` whether they are to be read as
/// they would be without those of kata-deploy.
pub(crate) fn files(
    host: &mut dyn Host,
    site: &Site,
    version: (u32, u32),
    state: &State,
    renders: bool,
    takes_over: bool,
) -> HostResult<Files> {
    let main = durable::content(host, &site.main)?;
    let main_text = durable::text(host, &site.main)?;
    let editable = match &site.editable {
        Some(path) if *path != site.main => durable::content(host, path)?,
        Some(_) | None => main.clone(),
    };
    let installed = state.installed.as_ref();
    let taken_over = installed.and_then(|installed| installed.taken.as_ref());
    let of_taken = taken_over.and_then(|taken| taken.main.as_ref()).map(|main| &main.path);
    let edited = installed.and_then(|it| it.main.as_ref()).map(|main| &main.path).or(of_taken);
    let edited = match edited {
        Some(path) if Some(path) == site.editable.as_ref() => editable.clone(),
        Some(path) => durable::content(host, path)?,
        None => Content::Absent,
    };
    let mut taken = BTreeMap::new();
    for path in taken_over.iter().flat_map(|taken| taken.drop_ins.keys()) {
        taken.insert(path.clone(), durable::content(host, path)?);
    }
    let config = match site.distribution {
        Distribution::Crio => containerd::main_config(None, 2),
        _ => match &main_text {
            None if let Some(lost) = lost_link(host, &site.main)? => Err(lost),
            _ => containerd::main_config(main_text.as_deref(), version.0),
        },
    };
    let absolute = |import: &String| paths::absolute(&site.main, import);
    let written = config.as_ref().map(|config| config.imports.as_slice()).unwrap_or_default();
    let mut imports: Vec<String> = written.iter().map(absolute).collect();
    // Early releases of containerd 1.6 and 1.7 look for the files of a relative one below their working directory.
    let is_sure = |import: &&String| site.editable.is_none() || import.starts_with('/');
    let usable: Vec<String> = written.iter().filter(is_sure).map(absolute).collect();
    let replaces = site.replaces_sections(version);
    let mut found = place(host, site, state, &imports, &usable, replaces, &BTreeSet::new())?;
    let mut kata_deploy = None;
    if takes_over && site.distribution != Distribution::Crio {
        let of_it = |other: &&Other| paths::name(&other.path) == kata_deploy::DROP_IN;
        let its: Vec<Other> = found.found.others.iter().filter(of_it).cloned().collect();
        if !its.is_empty() {
            let skipped = its.iter().map(|other| other.path.clone()).collect();
            kata_deploy = Some(installation(host, &its, written, &absolute)?);
            imports.retain(|import| !its.iter().any(|other| other.path == *import));
            found = place(host, site, state, &imports, &usable, replaces, &skipped)?;
        }
    }
    let Place {
        drop_in,
        is_imported,
        stale,
        found: Imported { others, dangling, mut folders, unseen },
    } = found;
    let files = main_text.iter().map(|text| (text.as_str(), false));
    let files = files.chain(others.iter().map(|other| (other.text.as_str(), other.after_ours)));
    let base = Base::of(files, version);
    let ours = durable::content(host, &drop_in)?;
    let built_in = match &config {
        Ok(_) if renders && replaces && !base.has_runtimes() => built_in(host, site)?,
        Ok(_) | Err(_) => Ok(Table::new()),
    };
    let missing_dirs = durable::missing_dirs(host, paths::parent(&drop_in))?;
    if !is_imported {
        folders.remove(paths::parent(&drop_in));
    }
    Ok(Files {
        main,
        main_text,
        editable,
        edited,
        config,
        is_imported,
        drop_in,
        ours,
        stale,
        missing_dirs,
        others,
        dangling,
        folders,
        unseen,
        base,
        built_in,
        kata_deploy,
        taken,
    })
}

/// The installation of kata-deploy with these drop-ins. `written` are the imports of the main file, and `absolute` says to
/// which path one leads.
fn installation(
    host: &mut dyn Host,
    drop_ins: &[Other],
    written: &[String],
    absolute: &dyn Fn(&String) -> String,
) -> HostResult<KataDeploy> {
    let is_literal = |path: &String| written.iter().any(|import| absolute(import) == *path);
    let mut handlers = Ok(BTreeMap::new());
    let mut found = Vec::new();
    for Other { path, text, nested, .. } in drop_ins {
        let content = durable::content(host, path)?;
        let its = match &content {
            Content::File { .. } if !nested => kata_deploy::handlers(text),
            Content::File { .. } => Err("is imported by another drop-in".to_owned()),
            _ => Err("is no regular file".to_owned()),
        };
        match (its, &mut handlers) {
            (Ok(its), Ok(all)) => all.extend(its),
            (Err(reason), Ok(_)) => handlers = Err(format!("{path} {reason}")),
            (_, Err(_)) => {}
        }
        if !is_literal(path) {
            found.push((path.clone(), content));
        }
    }
    let mut folders = BTreeSet::new();
    for handler in handlers.iter().flat_map(BTreeMap::values) {
        folders.insert(format!("{}/config.d", paths::parent(&handler.config_path)));
    }
    let mut settings = Vec::new();
    for folder in folders {
        let names = host.list(&folder)?.unwrap_or_default();
        let names = names.into_iter().filter(|name| *name != kata_deploy::PREFIX_SETTINGS);
        settings.extend(names.map(|name| format!("{folder}/{name}")));
    }
    let mut elsewhere = Vec::new();
    for path in kata_deploy::ELSEWHERE {
        if host.stat(path)?.is_some() {
            elsewhere.push(path.to_owned());
        }
    }
    let of_it = |import: &&String| drop_ins.iter().any(|other| other.path == absolute(import));
    Ok(KataDeploy {
        drop_ins: found,
        imports: written.iter().filter(of_it).cloned().collect(),
        handlers,
        sets_log_level: drop_ins.iter().any(|other| kata_deploy::sets_log_level(&other.text)),
        settings,
        elsewhere,
    })
}

/// Where our drop-in belongs, and what else is read.
#[derive(Default)]
struct Place {
    drop_in: String,
    is_imported: bool,
    stale: BTreeMap<String, Content>,
    found: Imported,
}

/// Finds the place of our drop-in: its present one if that is still imported, else the first folder of the `usable`
/// imports, else a new folder, whose import has to be added. Where sections replace each other (containerd 1.x), it is the
/// first of these places after which no other section is read; if there is none, the preflight refuses. The drop-ins
/// `of_kata_deploy` are not read.
fn place(
    host: &mut dyn Host,
    site: &Site,
    state: &State,
    imports: &[String],
    usable: &[String],
    replaces: bool,
    of_kata_deploy: &BTreeSet<String>,
) -> HostResult<Place> {
    // Both read their folder whether the main file imports it or not.
    let always_reads = matches!(site.distribution, Distribution::Crio | Distribution::K0s);
    let mut places: Vec<String> = Vec::new();
    if site.distribution == Distribution::Crio {
        places.push(format!("{}/{}", site.drop_ins, paths::CRIO_NAME));
    } else {
        let installed = state.installed.iter().map(|installed| installed.drop_in.clone());
        places.extend(installed.filter(|path| imports.iter().any(|import| takes(import, path))));
        let own = always_reads.then_some(site.drop_ins.as_str());
        let folders = own.into_iter().chain(usable.iter().filter_map(|it| imports::folder(it)));
        places.extend(folders.map(|folder| format!("{folder}/{}", paths::CONTAINERD_DROP_IN)));
    }
    let imported = places.len();
    if !always_reads && (places.is_empty() || (replaces && site.editable.is_some())) {
        let folder = new_folder(host, site, imports)?;
        places.push(format!("{folder}/{}", paths::CONTAINERD_DROP_IN));
    }
    let mut first = None;
    for (index, drop_in) in places.into_iter().enumerate() {
        let is_imported = index < imported;
        let mut all = imports.to_vec();
        if always_reads || !is_imported {
            all.push(format!("{}/*.toml", paths::parent(&drop_in)));
        }
        let stale = stale(host, site, state, &drop_in, &all)?;
        // k0s generates this file from all drop-ins, ours among them.
        let is_generated =
            |path: &str| site.distribution == Distribution::K0s && path.starts_with(site::K0S_RUN);
        let skipped = |path: &str| {
            stale.contains_key(path) || is_generated(path) || of_kata_deploy.contains(path)
        };
        let found = match site.distribution {
            Distribution::Crio => crio_folder(host, &site.drop_ins, &drop_in)?,
            _ => imports::read(host, &site.main, &all, &drop_in, skipped)?,
        };
        let replaces_ours = |other: &Other| other.after_ours && other.has_section();
        let is_good = !replaces || !found.others.iter().any(replaces_ours);
        let place = Place { drop_in, is_imported, stale, found };
        if is_good {
            return Ok(place);
        }
        first.get_or_insert(place);
    }
    Ok(first.unwrap_or_default())
}

/// What CRI-O reads besides its main file and our drop-in.
fn crio_folder(host: &mut dyn Host, folder: &str, ours: &str) -> HostResult<Imported> {
    let Folder { files, dangling, folders, unseen } = crio_folder::read(host, folder)?;
    let mut others = Vec::new();
    for (path, mode) in files.into_iter().filter(|(path, _)| path != ours) {
        if let Some(text) = durable::text(host, &path)? {
            let after_ours = path.as_str() > ours;
            others.push(Other { path, text, mode, after_ours, nested: false });
        }
    }
    Ok(Imported { others, dangling, folders, unseen })
}

/// The runtimes that containerd has by itself. No file names them, so containerd is asked.
fn built_in(host: &mut dyn Host, site: &Site) -> HostResult<Result<Table, String>> {
    let Some(program) = &site.program else {
        return Ok(Err(format!(
            "{} has no table of runtimes, and no program is known that prints those of containerd",
            site.main
        )));
    };
    let dump = host.config_dump(program, ConfigSource::At(containerd::EMPTY_FILE))?;
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

/// The folder to import. An import would activate all other files in the usual one, so if there is
/// something, or if it is read before other files, it is a folder of our own.
fn new_folder(host: &mut dyn Host, site: &Site, imports: &[String]) -> HostResult<String> {
    let names = host.list(&site.drop_ins)?.unwrap_or_default();
    let foreign = |name: &String| name.ends_with(".toml") && name != paths::CONTAINERD_DROP_IN;
    let is_imported = imports.iter().any(|import| imports::folder(import) == Some(&site.drop_ins));
    Ok(if is_imported || names.iter().any(foreign) {
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
    imports: &[String],
) -> HostResult<BTreeMap<String, Content>> {
    let mut stale = BTreeMap::new();
    let name = match site.distribution {
        Distribution::Crio => paths::CRIO_NAME,
        _ => paths::CONTAINERD_DROP_IN,
    };
    let before = state.installed.as_ref().map(|installed| paths::parent(&installed.drop_in));
    let folders = imports
        .iter()
        .filter_map(|it| imports::folder(it))
        .chain(before)
        .chain([site.drop_ins.as_str()]);
    for folder in folders.collect::<BTreeSet<_>>() {
        let path = format!("{folder}/{name}");
        if path != drop_in
            && let content = durable::content(host, &path)?
            && content.ours().is_some()
        {
            stale.insert(path, content);
        }
    }
    Ok(stale)
}
