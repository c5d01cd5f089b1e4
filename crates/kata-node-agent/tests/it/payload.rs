//! Images with a payload: kata-deploy's component archives. The shim is the one of `fakeshim`, since sandboxes
//! of the real one need a virtual machine.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

const CONFIGURATION: &str = "[hypervisor.qemu]\npath = \"/opt/kata/bin/qemu-system-x86_64\"\nkernel = \"/opt/kata/share/kata-containers/vmlinux.container\"\nvalid_hypervisor_paths = [\"/opt/kata/bin/qemu-system-x86_64\"]\n\n[agent.kata]\n#enable_debug = true\n\n[runtime]\n#enable_debug = true\n";

/// Appends entries to a `.tar.zst`.
pub(crate) struct Archive {
    tar: tar::Builder<zstd::stream::write::Encoder<'static, fs::File>>,
}

impl Archive {
    pub(crate) fn create(path: &Path) -> Self {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(path).unwrap();
        let encoder = zstd::stream::write::Encoder::new(file, 1).unwrap();
        Self { tar: tar::Builder::new(encoder) }
    }

    /// With a window of two to the power of this, which a decoder keeps in memory.
    pub(crate) fn with_window(mut self, log: u32) -> Self {
        self.tar.get_mut().window_log(log).unwrap();
        self
    }

    pub(crate) fn file(&mut self, name: &str, content: &[u8], mode: u32) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_cksum();
        self.tar.append_data(&mut header, name, content).unwrap();
    }

    /// A file with a path that no library would write.
    pub(crate) fn raw(&mut self, name: &str, kind: tar::EntryType, target: &str, mode: u32) {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        if !target.is_empty() {
            let bytes = header.as_mut_bytes();
            bytes[157..157 + target.len()].copy_from_slice(target.as_bytes());
        }
        header.set_size(0);
        header.set_mode(mode);
        header.set_cksum();
        self.tar.append(&header, std::io::empty()).unwrap();
    }

    /// A link, with a target of any length.
    pub(crate) fn link(&mut self, name: &str, target: &str) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        self.tar.append_link(&mut header, name, target).unwrap();
    }

    /// An entry whose header claims this size, and is changed before it is written; any content may follow.
    pub(crate) fn entry(
        &mut self,
        name: &str,
        kind: tar::EntryType,
        size: u64,
        change: impl Fn(&mut tar::Header),
        content: &mut dyn io::Read,
    ) {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o644);
        change(&mut header);
        header.set_cksum();
        self.bytes(header.as_bytes());
        let written = io::copy(content, self.tar.get_mut()).unwrap();
        let padding = usize::try_from(written.next_multiple_of(512) - written).unwrap();
        self.bytes(&[0; 512][..padding]);
    }

    /// Bytes that need not be an entry.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.tar.get_mut().write_all(bytes).unwrap();
    }

    /// An empty entry with a name of any bytes.
    pub(crate) fn named(&mut self, name: &[u8], kind: tar::EntryType) {
        let change = |header: &mut tar::Header| {
            header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        };
        self.entry("", kind, 0, change, &mut io::empty());
    }

    pub(crate) fn finish(self) {
        self.tar.into_inner().unwrap().finish().unwrap();
    }
}

/// The program of `fakeshim`, which is built with the tests of the workspace.
pub(crate) fn shim() -> PathBuf {
    let shim = Path::new(env!("CARGO_BIN_EXE_kata-node-agent")).with_file_name("fakeshim");
    assert!(shim.exists(), "{} is not there: cargo build -p fakeshim", shim.display());
    shim
}

/// An image with the components that the shim `qemu` needs, and one that it does not.
pub(crate) fn image(folder: &Path, version: &str) -> PathBuf {
    let root = folder.join(format!("image-{version}"));
    if root.exists() {
        fs::remove_dir_all(&root).unwrap();
    }
    let artifacts = root.join("opt/kata-artifacts");
    let archive = |name: &str| {
        Archive::create(&artifacts.join(format!("tarballs/kata-static-{name}.tar.zst")))
    };
    let mut shim = fs::read(shim()).unwrap();
    // Another version is another program; what follows its sections is not read.
    shim.extend(version.bytes());
    let mut go = archive("shim-v2-go");
    go.file("./opt/kata/bin/containerd-shim-kata-v2", &shim, 0o755);
    go.file(
        "./opt/kata/share/defaults/kata-containers/configuration-qemu.toml",
        CONFIGURATION.as_bytes(),
        0o644,
    );
    go.file("./opt/kata/VERSION", format!("{version}\n").as_bytes(), 0o644);
    go.finish();
    let mut qemu = archive("qemu");
    qemu.file("./opt/kata/bin/qemu-system-x86_64", version.as_bytes(), 0o755);
    qemu.finish();
    let mut kernel = archive("kernel");
    kernel.file("./opt/kata/share/kata-containers/vmlinux-6.12", version.as_bytes(), 0o644);
    kernel.raw(
        "./opt/kata/share/kata-containers/vmlinux.container",
        tar::EntryType::Symlink,
        "vmlinux-6.12",
        0o777,
    );
    kernel.finish();
    let mut unwanted = archive("firecracker");
    unwanted.file("./opt/kata/bin/firecracker", version.as_bytes(), 0o755);
    unwanted.finish();
    let components = serde_json::json!({
        "_comment": ["as upstream's images have it"],
        "shims": {
            "qemu": { "x86_64": ["shim-v2-go", "qemu", "kernel"] },
            "fc": { "x86_64": ["shim-v2-go", "firecracker", "kernel"] },
        },
    });
    fs::write(artifacts.join("shim-components.json"), components.to_string()).unwrap();
    root
}
