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
    /// The other NodeConfigs in the order in which they are read, or why one cannot be.
    pub(crate) configs: Vec<(String, Result<OfContainerd, String>)>,
    /// Whether a file can be written there.
    pub(crate) is_writable: bool,
    /// [`nodeadm::template_line`].
    pub(crate) template_line: Option<&'static str>,
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
        configs: Vec::new(),
        is_writable: false,
        template_line: None,
    };
    if removes && boot.found.ours().is_none() {
        return Ok(None);
    }
    if !removes {
        let main = durable::text(host, &site.main).ok().flatten();
        boot.template_line = nodeadm::template_line(&main.unwrap_or_default(), boot.found.ours());
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
        let config = match durable::text(host, &path) {
            Ok(text) => nodeadm::read(&text.unwrap_or_default()),
            Err(error) => Err(error.reason),
        };
        boot.configs.push((path, config));
    }
    Ok(Some(boot))
}
