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
use crate::plan::{Change, Content};
use crate::site::Site;

/// Where the admin of Amazon EKS configures containerd.
const CONFIG: &str = "spec.containerd.config of the user data";

/// What keeps the node from having Kata after its next boot. That of a node that has it is no reason to leave it alone.
pub(crate) fn check(observed: &Observed, boot: &BootFile, site: &Site) -> Option<Check> {
    let (file, main, files) = (nodeadm::FILE, &site.main, &observed.files);
    let import = format!("{}/*.toml", paths::parent(&files.drop_in));
    let installed = observed.state.installed.as_ref();
    let is_of_others =
        files.is_imported && installed.is_none_or(|installed| installed.main.is_none());
    let missing = match boot.marker {
        None => Some(format!(
            "and what it says now is not from a template of version 3: configure containerd with the plugins of version 3 \
             in {CONFIG}"
        )),
        Some(line) if !boot.is_writable => {
            let line = if line.is_empty() { String::new() } else { format!(" and `{line}`") };
            let folder = nodeadm::FOLDER;
            Some(format!(
                "and no file can be written in {folder}: add `imports = [\"{import}\"]`{line} to {CONFIG}"
            ))
        }
        Some(_) => None,
    };
    if let Some(missing) = missing {
        let message = format!(
            "nodeadm writes {main} anew at each boot, {missing}, or the node has no Kata after a boot until it is \
             repaired"
        );
        return (!is_of_others).then(|| Check::new(Code::LostAtReboot, message));
    }
    if !matches!(boot.found, Content::Absent) && boot.found.ours().is_none() {
        return Some(Check::new(
            Code::ForeignFile,
            format!("{file} does not begin with our header"),
        ));
    }
    let message = if let Some((path, reason)) = &boot.unclear {
        format!(
            "{path} cannot be understood, so that what the next boot writes to {main} is not known: {reason}"
        )
    } else {
        let (path, _) = boot.later.as_ref().filter(|(_, all)| !all.contains(&import))?;
        format!(
            "{path} sets imports without {import} and is read after {file}: the next boot writes {main} without the \
             import of Kata"
        )
    };
    let code = if installed.is_some() { Code::LostAtReboot } else { Code::BootConfigShadowed };
    Some(Check::new(code, message))
}

/// The change of the file that keeps our import over a boot, and those that are there.
pub(crate) fn change(observed: &Observed, site: &Site, config: &MainConfig) -> Option<Change> {
    let boot = observed.boot.as_ref().filter(|boot| boot.is_writable && boot.unclear.is_none())?;
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
