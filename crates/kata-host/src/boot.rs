//! What becomes of our import at the next boot, where the container runtime's main file is written anew: the file that
//! keeps it, and what stands in its way.
//!
//! Only Amazon EKS has such a file. Nothing is read or written here.

use kata_api::Code;

use crate::check::Check;
use crate::containerd::MainConfig;
use crate::nodeadm;
use crate::observe::{BootFile, Observed};
use crate::paths;
use crate::plan::{Change, Content, Installed};
use crate::site::Site;

/// Where the admin of Amazon EKS configures containerd.
const CONFIG: &str = "spec.containerd.config of the user data";

/// What keeps the node from having Kata after its next boot. That of a node that has it is no reason to leave it alone.
pub(crate) fn check(observed: &Observed, boot: &BootFile, site: &Site) -> Option<Check> {
    let (file, main, files) = (nodeadm::FILE, &site.main, &observed.files);
    let import = format!("{}/*.toml", paths::parent(&files.drop_in));
    let installed = observed.state.installed.as_ref();
    // It is not our text that has the import: what wrote it anew did so with the import.
    let of_others = |installed: &Installed| {
        installed
            .main
            .as_ref()
            .is_none_or(|main| boot.marker.is_some() && main.after != files.editable)
    };
    let is_of_others = files.is_imported && installed.is_none_or(of_others);
    let missing = match boot.marker {
        None => Some(format!(
            "and its present text was migrated or dumped: configure the plugins of version 3 in {CONFIG}"
        )),
        Some(line) if !boot.is_writable => {
            let line = if line.is_empty() { String::new() } else { format!(" and `{line}`") };
            let folder = nodeadm::FOLDER;
            Some(format!(
                "and {folder} is missing or read-only: begin {CONFIG} with `imports = [\"{import}\"]`{line}"
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
    let message = if let Some((path, reason)) = &boot.unreadable {
        format!(
            "{path} cannot be read as a NodeConfig: {reason}; correct it or move it away, or the next boot may write {main} \
             without the import of Kata"
        )
    } else if let Some(path) = &boot.of_version_2 {
        format!(
            "{path} configures containerd by plugins of version 2, which have no effect beside {file}: configure those of \
             version 3 there"
        )
    } else {
        let (path, _) = boot.later.as_ref().filter(|(_, all)| !all.contains(&import))?;
        format!(
            "{path} is read after {file} and sets imports without {import}, so that the next boot drops Kata: add that \
             import to it, or give it a name that sorts before"
        )
    };
    let code = if installed.is_some() { Code::LostAtReboot } else { Code::BootConfigShadowed };
    Some(Check::new(code, message))
}

/// The change of the file that keeps our import over a boot, and those that are there.
pub(crate) fn change(observed: &Observed, site: &Site, config: &MainConfig) -> Option<Change> {
    let boot = observed.boot.as_ref()?;
    if !boot.is_writable || boot.unreadable.is_some() || boot.of_version_2.is_some() {
        return None;
    }
    let marker = boot.marker?;
    let ours = format!("{}/*.toml", paths::parent(&observed.files.drop_in));
    // A tool that writes the whole configuration back may import each file by its name.
    let is_other = |import: &&String| {
        let path = paths::absolute(&site.main, import);
        path != ours && path != site.main && path != observed.files.drop_in
    };
    let mut imports: Vec<String> = Vec::new();
    for import in boot.imports.iter().chain(&config.imports).filter(is_other) {
        let import = nodeadm::tolerant(import);
        if !imports.contains(&import) {
            imports.push(import);
        }
    }
    imports.push(ours);
    let after = Content::File { text: nodeadm::file(&imports, marker), mode: 0o644 };
    (boot.found != after).then(|| Change {
        path: nodeadm::FILE.to_owned(),
        before: boot.found.clone(),
        after,
    })
}
