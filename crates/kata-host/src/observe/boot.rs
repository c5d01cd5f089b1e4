//! What a program of the node does with the container runtime's main file at a boot.

use crate::durable;
use crate::host::{Host, HostResult};
use crate::nodeadm;
use crate::plan::Content;
use crate::site::{Distribution, Site};

/// What keeps an import over a boot, where the main file is written anew at each of them.
#[derive(Clone, Debug)]
pub(crate) struct BootFile {
    /// What is at [`nodeadm::FILE`].
    pub(crate) found: Content,
    /// The imports that other files of its folder set; of several files the last one counts.
    pub(crate) imports: Vec<String>,
    /// A file that sets imports and is read after ours.
    pub(crate) shadowed_by: Option<String>,
    /// Whether a file can be written there.
    pub(crate) has_place: bool,
}

/// The file that keeps our import; `None` where the main file stays as it is.
pub(super) fn read(host: &mut dyn Host, site: &Site) -> HostResult<Option<BootFile>> {
    let is_rendered = site.distribution == Distribution::Containerd
        && site.main == "/etc/containerd/config.toml"
        && host.stat(nodeadm::ENABLED)?.is_some();
    if !is_rendered {
        return Ok(None);
    }
    let found = durable::content(host, nodeadm::FILE)?;
    let mut boot = BootFile { found, imports: Vec::new(), shadowed_by: None, has_place: false };
    let Some(mut names) = host.list(nodeadm::FOLDER)? else { return Ok(Some(boot)) };
    boot.has_place = !host.mount(nodeadm::FOLDER)?.file_system_read_only;
    names.sort_unstable();
    for name in names {
        let path = format!("{}/{name}", nodeadm::FOLDER);
        let text = if path == nodeadm::FILE { None } else { durable::text(host, &path)? };
        let Some(imports) = text.as_deref().and_then(nodeadm::imports) else { continue };
        if path.as_str() > nodeadm::FILE {
            boot.shadowed_by = Some(path);
        } else {
            boot.imports = imports;
        }
    }
    Ok(Some(boot))
}
