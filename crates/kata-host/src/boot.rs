//! What becomes of our import at the next boot, where the container runtime's main file is written anew: the file that
//! keeps it, and what stands in its way.
//!
//! Only Amazon EKS has such a file. Nothing is read or written here.

use kata_api::Code;

use crate::check::Check;
use crate::containerd::MainConfig;
use crate::nodeadm;
use crate::observe::{BootFile, Observed, folder};
use crate::paths;
use crate::plan::{Change, Content, Installed};
use crate::site::Site;

/// Where the admin of Amazon EKS configures containerd.
const CONFIG: &str = "spec.containerd.config of the user data";

/// What keeps the node from having Kata after its next boot. On a node with Kata it is a warning.
pub(crate) fn check(observed: &Observed, boot: &BootFile, site: &Site) -> Option<Check> {
    let (file, main, files) = (nodeadm::FILE, &site.main, &observed.files);
    let import = format!("{}/*.toml", paths::parent(&files.drop_in));
    let installed = observed.state.installed.as_ref();
    // It is not our text that has the import: what wrote it anew did so with the import.
    let of_others = |installed: &Installed| {
        installed
            .main
            .as_ref()
            .is_none_or(|main| boot.template_line.is_some() && main.after != files.editable)
    };
    let is_of_others = files.is_imported && installed.is_none_or(of_others);
    let missing = match boot.template_line {
        None => Some(format!(
            "and its present text was migrated or dumped: configure the plugins of version 3 in {CONFIG}"
        )),
        Some(line) if !boot.is_writable => {
            let line = if line.is_empty() { String::new() } else { format!(" and `{line}`") };
            let place = nodeadm::FOLDER;
            Some(format!(
                "and {place} is missing or read-only: begin {CONFIG} with `imports = [\"{import}\"]`{line}"
            ))
        }
        Some(_) => None,
    };
    if let Some(missing) = missing {
        let message = format!(
            "nodeadm writes {main} anew at each boot, {missing}; until then the operator repairs the node after each boot"
        );
        return (!is_of_others).then(|| Check::new(Code::LostAtReboot, message));
    }
    if !matches!(boot.found, Content::Absent) && boot.found.ours().is_none() {
        let message = format!("{file} does not begin with our header");
        return Some(Check::new(Code::ForeignFile, message));
    }
    let message = unusable(boot, site).or_else(|| {
        let ours = Some(paths::parent(&files.drop_in));
        let (path, _) = last_imports(boot, |path| path > file)
            .filter(|(_, imports)| !imports.iter().any(|import| folder(import) == ours))?;
        Some(format!(
            "{path} is read after {file} and sets imports without {import}, so that the next boot drops Kata: add that \
             import to it, or give it a name that sorts before"
        ))
    })?;
    let code = if installed.is_some() { Code::LostAtReboot } else { Code::BootConfigShadowed };
    Some(Check::new(code, message))
}

/// What is wrong with another NodeConfig, so that what ours would do beside it is unknown.
fn unusable(boot: &BootFile, site: &Site) -> Option<String> {
    let (file, main) = (nodeadm::FILE, &site.main);
    let of_version_3 = boot.template_line.is_some_and(|line| !line.is_empty());
    boot.configs.iter().find_map(|(path, config)| match config {
        Err(reason) => Some(format!(
            "{path} cannot be read as a NodeConfig: {reason}; correct it or move it away, or the next boot may write {main} \
             without the import of Kata"
        )),
        Ok(config) if config.is_version_2 && of_version_3 => Some(format!(
            "{path} configures containerd by plugins of version 2, which have no effect beside {file}: configure those of \
             version 3 there"
        )),
        Ok(_) => None,
    })
}

/// The last NodeConfig of those that sets imports, and these.
fn last_imports(boot: &BootFile, is_meant: impl Fn(&str) -> bool) -> Option<(&str, &[String])> {
    let configs = boot.configs.iter().filter(|(path, _)| is_meant(path));
    let with_imports = configs.filter_map(|(path, config)| {
        Some((path.as_str(), config.as_ref().ok()?.imports.as_deref()?))
    });
    with_imports.last()
}

/// The change of the file that keeps our import over a boot, and those that are there.
pub(crate) fn change(observed: &Observed, site: &Site, config: &MainConfig) -> Option<Change> {
    let boot = observed.boot.as_ref()?;
    if !boot.is_writable || unusable(boot, site).is_some() {
        return None;
    }
    let template_line = boot.template_line?;
    let ours = format!("{}/*.toml", paths::parent(&observed.files.drop_in));
    // A tool that writes the whole configuration back may import each file by its name.
    let is_other = |import: &&String| {
        let path = paths::absolute(&site.main, import);
        path != ours && path != site.main && path != observed.files.drop_in
    };
    let mut imports: Vec<String> = Vec::new();
    let earlier = last_imports(boot, |path| path < nodeadm::FILE);
    let earlier = earlier.map_or(&[][..], |(_, imports)| imports);
    for import in earlier.iter().chain(&config.imports).filter(is_other) {
        let import = nodeadm::as_glob(import);
        if !imports.contains(&import) {
            imports.push(import);
        }
    }
    imports.push(ours);
    let after = Content::File { text: nodeadm::file(&imports, template_line), mode: 0o644 };
    (boot.found != after).then(|| Change {
        path: nodeadm::FILE.to_owned(),
        before: boot.found.clone(),
        after,
    })
}
