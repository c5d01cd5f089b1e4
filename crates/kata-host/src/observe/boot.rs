//! What a program of the node does with the container runtime's main file at a boot.

use crate::durable;
use crate::host::{FileKind, Host, HostResult, Stat};
use crate::nodeadm::{self, OfContainerd};
use crate::plan::Content;
use crate::site::{Distribution, Site};

/// What keeps an import over a boot, where the main file is written anew at each of them.
#[derive(Clone, Debug)]
pub(crate) struct BootFile {
    /// What is at [`nodeadm::FILE`].
    pub(crate) found: Content,
    /// The imports that the last file before ours sets.
    pub(crate) imports: Vec<String>,
    /// The last file that is read after ours and sets imports, and those.
    pub(crate) later: Option<(String, Vec<String>)>,
    /// A NodeConfig that cannot be read, and why.
    pub(crate) unreadable: Option<(String, String)>,
    /// A NodeConfig with settings that ours would leave without effect.
    pub(crate) of_version_2: Option<String>,
    /// Whether a file can be written there.
    pub(crate) is_writable: bool,
    /// [`nodeadm::marker`].
    pub(crate) marker: Option<&'static str>,
}

/// The file that keeps our import; `None` where the main file stays as it is. A removal looks for ours only, and
/// where nodeadm is not enabled as well.
pub(super) fn read(
    host: &mut dyn Host,
    site: &Site,
    removes: bool,
) -> HostResult<Option<BootFile>> {
    let is_rendered = site.distribution == Distribution::Containerd
        && site.main == "/etc/containerd/config.toml"
        && (removes || host.stat(nodeadm::ENABLED)?.is_some());
    if !is_rendered {
        return Ok(None);
    }
    let mut boot = BootFile {
        found: durable::content(host, nodeadm::FILE)?,
        imports: Vec::new(),
        later: None,
        unreadable: None,
        of_version_2: None,
        is_writable: false,
        marker: None,
    };
    if removes && boot.found.ours().is_none() {
        return Ok(None);
    }
    if !removes {
        let main = durable::text(host, &site.main).ok().flatten();
        boot.marker = nodeadm::marker(&main.unwrap_or_default(), boot.found.ours());
    }
    let Some(mut names) = host.list(nodeadm::FOLDER)? else { return Ok(Some(boot)) };
    boot.is_writable = !host.mount(nodeadm::FOLDER)?.file_system_read_only;
    if removes {
        return Ok(Some(boot));
    }
    names.sort_unstable();
    for name in names.into_iter().filter(|name| nodeadm::is_config(name)) {
        let path = format!("{}/{name}", nodeadm::FOLDER);
        let is_folder = matches!(host.stat(&path)?, Some(Stat { kind: FileKind::Directory, .. }));
        if path == nodeadm::FILE || is_folder {
            continue;
        }
        let text = match durable::text(host, &path) {
            Ok(text) => text.unwrap_or_default(),
            Err(error) => {
                boot.unreadable = Some((path, error.reason));
                continue;
            }
        };
        match nodeadm::read(&text) {
            Ok(config) if config.is_version_2 && boot.marker.is_some_and(|it| !it.is_empty()) => {
                boot.of_version_2 = Some(path);
            }
            Ok(OfContainerd { imports: None, .. }) => {}
            Ok(OfContainerd { imports: Some(imports), .. }) if path.as_str() > nodeadm::FILE => {
                boot.later = Some((path, imports));
            }
            Ok(OfContainerd { imports: Some(imports), .. }) => boot.imports = imports,
            Err(reason) => boot.unreadable = Some((path, reason)),
        }
    }
    Ok(Some(boot))
}
