//! Stages an archive in a folder of its own, as a node Job does, and checks what was staged.
//!
//! `TMPDIR` should be a file system in memory of little more than 1 GiB: so much must stay free, and an archive
//! that claims to be larger than the rest is refused before it is written.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const COMPONENTS: &str = r#"{"shims":{"qemu":{"x86_64":["x"],"aarch64":["x"]}}}"#;
const TASK: &str = r#"{"version":1,"node":"node","action":"Install",
    "handlers":[{"name":"kata","shim":"qemu"}],"payloadImage":"image"}"#;

/// Stages an archive.
///
/// # Panics
/// If a link that was staged leads out of the payload, a file is setuid, or a file of the node has changed.
pub fn stage(archive: &[u8]) {
    let folder = std::env::temp_dir().join(format!("kata-fuzz-{}", std::process::id()));
    drop(fs::remove_dir_all(&folder));
    let (host, image) = (folder.join("host"), folder.join("image"));
    let artifacts = image.join("opt/kata-artifacts");
    fs::create_dir_all(host.join("opt")).unwrap();
    fs::create_dir_all(artifacts.join("tarballs")).unwrap();
    fs::write(artifacts.join("shim-components.json"), COMPONENTS).unwrap();
    fs::write(artifacts.join("tarballs/kata-static-x.tar.zst"), archive).unwrap();
    let secret = host.join("secret");
    fs::write(&secret, "secret").unwrap();

    let task = kata_node_agent::task(TASK).unwrap();
    let staged = kata_node_agent::stage(&task, &host, &image).is_ok();

    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    assert_eq!(fs::metadata(&secret).unwrap().nlink(), 1);
    let payloads = fs::read_dir(host.join("opt/kata-operator/staging")).into_iter().flatten();
    let payloads: Vec<_> = payloads.map(|payload| payload.unwrap().path()).collect();
    assert_eq!(payloads.len(), usize::from(staged), "{payloads:?}");
    for payload in payloads {
        let tree = payload.join("tree").canonicalize().unwrap();
        check(&tree, &tree);
    }
}

fn check(tree: &Path, folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        if found.is_symlink() {
            if let Ok(target) = path.canonicalize() {
                assert!(target.starts_with(tree), "{} leads to {}", path.display(), target.display());
            }
        } else if found.is_dir() {
            check(tree, &path);
        } else {
            assert!(found.is_file() && found.mode() & 0o7022 == 0, "{} is {found:?}", path.display());
        }
    }
}
