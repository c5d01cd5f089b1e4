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

/// What keeps the node from having Kata after its next boot. On a node with Kata it is a warning, but for a file of others in the place of ours.
pub(crate) fn check(observed: &Observed, boot: &BootFile, site: &Site) -> Option<Check> {
    let (file, main, files) = (nodeadm::FILE, &site.main, &observed.files);
    let import = format!("{}/*.toml", paths::parent(&files.drop_in));
    let installed = observed.state.installed.as_ref();
    // The user data has the import, so a boot keeps it.
    let of_others = |installed: &Installed| {
        installed
            .main
            .as_ref()
            .is_none_or(|main| boot.template_line.is_some() && main.after != files.editable)
    };
    let others_import_it = files.is_imported && installed.is_none_or(of_others);
    let missing = match boot.template_line {
        None => Some(format!(
            "{main} was migrated to version 3 or dumped: in {CONFIG}, configure the plugins of version 3, \
             io.containerd.cri.v1.images and io.containerd.cri.v1.runtime, in the place of io.containerd.grpc.v1.cri"
        )),
        Some(line) if !boot.is_writable => {
            let line = match line {
                "" => String::new(),
                line => {
                    format!(", and the line `{line}` unless it configures a plugin of version 3")
                }
            };
            Some(format!(
                "{} is missing or read-only: in {CONFIG}, before the first table, add {import} to `imports`{line}",
                nodeadm::FOLDER
            ))
        }
        Some(_) => None,
    };
    if let Some(message) = missing {
        return (!others_import_it).then(|| Check::new(Code::LostAtReboot, message));
    }
    if !matches!(boot.found, Content::Absent) && boot.found.ours().is_none() {
        let message = format!("{file} does not begin with our header");
        return Some(Check::new(Code::ForeignFile, message));
    }
    let message = unusable(boot).or_else(|| {
        let ours = Some(paths::parent(&files.drop_in));
        let (path, _) = last_imports(boot, |path| path > file)
            .filter(|(_, imports)| !imports.iter().any(|import| folder(import) == ours))?;
        Some(format!(
            "add {import} to the imports in {path}, or give it a name that sorts before {}; else the next boot drops Kata",
            paths::name(file)
        ))
    })?;
    let code = if installed.is_some() { Code::LostAtReboot } else { Code::BootConfigShadowed };
    Some(Check::new(code, message))
}

/// What is wrong with another NodeConfig, so that what ours would do beside it is unknown.
fn unusable(boot: &BootFile) -> Option<String> {
    let of_version_3 = boot.template_line.is_some_and(|line| !line.is_empty());
    boot.configs.iter().find_map(|(path, config)| match config {
        Err(reason) => Some(format!(
            "correct {path}, or move it out of the folder; else the next boot may drop Kata: it cannot be read as a \
             NodeConfig: {reason}"
        )),
        Ok(config) if config.is_version_2 && of_version_3 => Some(format!(
            "in {path}, replace the plugin of version 2, io.containerd.grpc.v1.cri, by those of version 3: it has no effect \
             beside the operator's NodeConfig"
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

/// The change of our NodeConfig, which keeps our import over a boot, and the imports that are there already.
pub(crate) fn change(observed: &Observed, site: &Site, config: &MainConfig) -> Option<Change> {
    let boot = observed.boot.as_ref()?;
    if !boot.is_writable || unusable(boot).is_some() {
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
