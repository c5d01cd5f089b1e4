//! Archives and images that no payload may be like: each is refused with a finding that names the entry,
//! leaves nothing on the node, and costs the process that stages no more memory than any other payload.

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, repeat};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use kata_api::node_task::{NodeAction, NodeReport, Outcome};
use tar::EntryType;

use crate::lab::{command, task, termination_message, workspace};
use crate::payload::Archive;

/// What a process that stages may have of memory that it can write to, in KiB. `RLIMIT_DATA` counts all that
/// is reserved, so that this is stricter than a measurement.
const MEMORY_KIB: u32 = 64 << 10;
/// The largest file that a process here may write, in blocks of 512 bytes: a limit that does not hold must not
/// fill the disk.
const FILE_BLOCKS: u32 = 300 << 11;
/// More than any process here may have.
const BOMB: u64 = 128 << 20;
/// What the node has and no payload may get.
const SECRET: &str = "of the node";

/// A node and an image.
struct Case {
    folder: PathBuf,
}

impl Case {
    fn new(name: &str) -> Self {
        let folder = workspace().join(format!("target/nodes/evil-{name}"));
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        for made in ["host/opt", "host/etc", "host/run/lock", "image/opt"] {
            fs::create_dir_all(folder.join(made)).unwrap();
        }
        fs::write(folder.join("host/etc/secret"), SECRET).unwrap();
        fs::set_permissions(folder.join("host/etc/secret"), fs::Permissions::from_mode(0o600))
            .unwrap();
        Self { folder }
    }

    /// The place of the only archive of the image.
    fn archive_path(&self) -> PathBuf {
        let artifacts = self.folder.join("image/opt/kata-artifacts");
        fs::create_dir_all(artifacts.join("tarballs")).unwrap();
        fs::write(artifacts.join("shim-components.json"), r#"{"shims":{"qemu":{"x86_64":["x"]}}}"#)
            .unwrap();
        artifacts.join("tarballs/kata-static-x.tar.zst")
    }

    fn archive(&self) -> Archive {
        Archive::create(&self.archive_path())
    }

    /// An image with the tree itself.
    fn tree(&self) -> PathBuf {
        let tree = self.folder.join("image/opt/kata");
        fs::create_dir_all(&tree).unwrap();
        tree
    }

    /// What stages the image, with no more memory than it may have.
    fn program(&self) -> Vec<OsString> {
        let limit = format!("ulimit -d {MEMORY_KIB} && ulimit -f {FILE_BLOCKS} && exec \"$@\"");
        let task = task(NodeAction::Install, "a", &["kata"]);
        let agent = env!("CARGO_BIN_EXE_kata-node-agent");
        let words = ["sh", "-c", &limit, "sh", agent, "node-agent", "stage", "--task", &task];
        let folders = [("--host-root", "host"), ("--image-root", "image")];
        let folders = folders
            .iter()
            .flat_map(|(option, name)| [(*option).into(), self.folder.join(name).into()]);
        words.iter().map(OsString::from).chain(folders).collect()
    }

    fn stage(&self) -> Output {
        let words = self.program();
        command(words[0].to_str().unwrap()).args(&words[1..]).output().unwrap()
    }

    /// What is staged, and what was left by a staging that failed.
    fn staged(&self) -> Vec<PathBuf> {
        let folder = self.folder.join("host/opt/kata-operator/staging");
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Stages it: what is wrong, unless it is refused with these words, and nothing of it stays.
    fn expect_refusal(self, words: &[&str]) -> Result<(), String> {
        let output = self.stage();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let wrong = |what: &str| Err(format!("{}: {what}: {output:?}", self.folder.display()));
        if output.status.code() != Some(4) {
            return wrong("it is not refused");
        }
        if let Some(word) = words.iter().find(|word| !said.contains(**word)) {
            return wrong(&format!("nothing is said of {word:?}"));
        }
        if !self.staged().is_empty() {
            return wrong("something of it stays");
        }
        let secret = fs::read_to_string(self.folder.join("host/etc/secret")).unwrap();
        let count = |folder: &str| fs::read_dir(self.folder.join(folder)).unwrap().count();
        if secret != SECRET || count("host/etc") != 1 || count("host") != 3 {
            return wrong("the node has changed");
        }
        fs::remove_dir_all(&self.folder).unwrap();
        Ok(())
    }
}

/// Ends the test if something was not refused, with all that was not.
fn all_are_refused(results: impl Iterator<Item = Result<(), String>>) {
    let wrong: Vec<String> = results.filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An archive that is refused, and the words that say which entry of it and why.
type Evil = (&'static str, &'static [&'static str], fn(&mut Archive));

/// Folders `a/b/c/d` with a link `up` in them that leads to the top of the payload, and a link `esc` of which
/// each part stays inside as it is written: it leads to the root of the node.
fn escape(archive: &mut Archive) {
    archive.link("opt/kata/a/b/c/d/up", "../../../..");
    archive.link("opt/kata/esc", "a/b/c/d/up/../../../../..");
}

fn empty_files(archive: &mut Archive, count: usize, name: impl Fn(usize) -> String) {
    for index in 0..count {
        archive.file(&name(index), b"", 0o644);
    }
}

/// A header that describes the next one, with as much content.
fn extension(archive: &mut Archive, kind: EntryType, size: u64, byte: u8) {
    archive.entry("././@LongLink", kind, size, |_| {}, &mut repeat(byte).take(size));
    archive.file("opt/kata/after", b"", 0o644);
}

/// A sparse file of this size of which nothing is in the archive.
fn hole(header: &mut tar::Header, size: u64) {
    let gnu = header.as_gnu_mut().unwrap();
    let number = |field: &mut [u8; 12], value: u64| {
        field[0] = 0x80;
        field[4..].copy_from_slice(&value.to_be_bytes());
    };
    number(&mut gnu.sparse[0].offset, size);
    number(&mut gnu.sparse[0].numbytes, 0);
    number(&mut gnu.realsize, size);
}

const LINKS: &[Evil] = &[
    ("chain", &["\"opt/kata/esc\"", "link leads out"], escape),
    ("chain-backwards", &["\"opt/kata/esc\"", "link leads out"], |archive| {
        archive.link("opt/kata/esc", "a/b/c/d/up/../../../../..");
        archive.link("opt/kata/a/b/c/d/up", "../../../..");
    }),
    ("chain-of-chains", &["link leads out"], |archive| {
        archive.link("opt/kata/a/up", "..");
        archive.link("opt/kata/b/up", "../a/up/a");
        archive.link("opt/kata/esc", "b/up/../../x");
    }),
    ("circle", &["\"opt/kata/one\"", "circle"], |archive| {
        archive.link("opt/kata/one", "two");
        archive.link("opt/kata/two", "one");
    }),
    ("absolute", &["opt/kata/x", "link leads out"], |archive| {
        archive.link("opt/kata/x", "/etc/secret");
    }),
    ("absolute-upstream", &["opt/kata/x", "link leads out"], |archive| {
        archive.link("opt/kata/x", "/opt/kata/../../etc/secret");
    }),
    ("file-through-a-link", &["opt/kata/esc/etc/x", "esc", "link"], |archive| {
        escape(archive);
        archive.file("opt/kata/esc/etc/x", b"", 0o644);
    }),
    ("folder-through-a-link", &["opt/kata/esc/etc", "esc", "link"], |archive| {
        escape(archive);
        archive.raw("opt/kata/esc/etc/", EntryType::Directory, "", 0o777);
    }),
    ("hard-link-through-a-link", &["opt/kata/stolen", "hard link"], |archive| {
        escape(archive);
        archive.raw("opt/kata/stolen", EntryType::Link, "opt/kata/esc/etc/secret", 0o644);
    }),
    ("hard-link-of-the-node", &["opt/kata/x", "hard link leads out"], |archive| {
        archive.raw("opt/kata/x", EntryType::Link, "etc/secret", 0o644);
    }),
    ("hard-link-up", &["opt/kata/x", "hard link leads out"], |archive| {
        archive.raw("opt/kata/x", EntryType::Link, "opt/kata/../../etc/secret", 0o644);
    }),
    ("hard-link-of-a-link", &["opt/kata/x", "hard link"], |archive| {
        archive.link("opt/kata/link", "file");
        archive.raw("opt/kata/x", EntryType::Link, "opt/kata/link", 0o644);
    }),
    ("hard-link-of-nothing", &["opt/kata/x", "hard link"], |archive| {
        archive.raw("opt/kata/x", EntryType::Link, "opt/kata/y", 0o644);
    }),
    ("hard-link-of-itself", &["opt/kata/x", "hard link"], |archive| {
        archive.raw("opt/kata/x", EntryType::Link, "opt/kata/x", 0o644);
    }),
];

const LARGE: &[Evil] = &[
    ("long-name", &["AAAA", "header"], |archive| {
        extension(archive, EntryType::GNULongName, BOMB, b'A');
    }),
    ("long-link", &["@LongLink", "header"], |archive| {
        extension(archive, EntryType::GNULongLink, BOMB, b'A');
    }),
    ("pax", &["@LongLink", "header"], |archive| {
        extension(archive, EntryType::XHeader, BOMB, b'A');
    }),
    ("sparse-map", &["opt/kata/x", "header"], |archive| {
        let isextended = |header: &mut tar::Header| header.as_gnu_mut().unwrap().isextended[0] = 1;
        archive.entry("opt/kata/x", EntryType::GNUSparse, 0, isextended, &mut std::io::empty());
        let mut block = tar::GnuExtSparseHeader::new();
        block.isextended[0] = 1;
        for piece in &mut block.sparse {
            (piece.offset, piece.numbytes) = (*b"00000000000\0", *b"00000000000\0");
        }
        for _ in 0..BOMB / 512 {
            archive.bytes(block.as_bytes());
        }
    }),
    ("content-of-a-folder", &["opt/kata/x", "content"], |archive| {
        let content = &mut repeat(0).take(BOMB);
        archive.entry("opt/kata/x/", EntryType::Directory, BOMB, |_| {}, content);
    }),
    ("entries", &["opt/kata/a", "entries"], |archive| {
        for _ in 0..12_000 {
            archive.raw("opt/kata/a/", EntryType::Directory, "", 0o755);
        }
    }),
    ("inodes", &["opt/kata/", "files, folders and links"], |archive| {
        empty_files(archive, 9_000, |index| format!("opt/kata/{index}/a/a/a/x"));
    }),
    ("files", &["opt/kata/", "entries"], |archive| {
        empty_files(archive, 12_000, |index| format!("opt/kata/{index}"));
    }),
    ("names", &["opt/kata/", "names"], |archive| {
        let long = "n".repeat(200);
        empty_files(archive, 9_000, |index| format!("opt/kata/{long}/{long}/{long}/{index}"));
    }),
    ("depth", &["opt/kata/d/d/d", "deep"], |archive| {
        archive.file(&format!("opt/kata/{}x", "d/".repeat(64)), b"", 0o644);
    }),
    ("name", &["opt/kata/nnn", "255"], |archive| {
        archive.file(&format!("opt/kata/{}", "n".repeat(256)), b"", 0o644);
    }),
    ("path", &["opt/kata/nnn", "1024"], |archive| {
        archive.file(
            &format!("opt/kata/{}x", format!("{}/", "n".repeat(200)).repeat(8)),
            b"",
            0o644,
        );
    }),
    ("target", &["opt/kata/x", "1024"], |archive| {
        archive.link("opt/kata/x", &"a/".repeat(2_000));
    }),
    ("sparse", &["opt/kata/x", "GiB"], |archive| {
        let header = |header: &mut tar::Header| hole(header, 1 << 50);
        archive.entry("opt/kata/x", EntryType::GNUSparse, 0, header, &mut std::io::empty());
    }),
    ("zeros", &["opt/kata/x", "GiB"], |archive| {
        let content = &mut repeat(0).take(BOMB);
        archive.entry("opt/kata/x", EntryType::Regular, 1 << 40, |_| {}, content);
    }),
    ("zeros-in-sum", &["opt/kata/x1", "GiB"], |archive| {
        let header = |size| move |header: &mut tar::Header| hole(header, size);
        for (name, size) in [("opt/kata/x0", 1), ("opt/kata/x1", 16 << 30)] {
            let empty = &mut std::io::empty();
            archive.entry(name, EntryType::GNUSparse, 0, header(size), empty);
        }
    }),
    ("sparse-as-pax", &["opt/kata/x", "sparse"], |archive| {
        let record = b"22 GNU.sparse.major=1\n";
        archive.entry("pax", EntryType::XHeader, record.len() as u64, |_| {}, &mut &record[..]);
        archive.file("opt/kata/x", b"", 0o644);
    }),
];

const KINDS: &[Evil] = &[
    ("character-device", &["opt/kata/x", "no file, directory or link"], |archive| {
        archive.raw("opt/kata/x", EntryType::Char, "", 0o644);
    }),
    ("block-device", &["opt/kata/x", "no file, directory or link"], |archive| {
        archive.raw("opt/kata/x", EntryType::Block, "", 0o644);
    }),
    ("pipe", &["opt/kata/x", "no file, directory or link"], |archive| {
        archive.raw("opt/kata/x", EntryType::Fifo, "", 0o644);
    }),
    ("setuid", &["opt/kata/x", "setuid"], |archive| archive.file("opt/kata/x", b"", 0o4755)),
    ("setgid", &["opt/kata/x", "setgid"], |archive| archive.file("opt/kata/x", b"", 0o2755)),
    ("setuid-hard-link", &["opt/kata/x", "setuid"], |archive| {
        archive.file("opt/kata/y", b"", 0o755);
        archive.raw("opt/kata/x", EntryType::Link, "opt/kata/y", 0o6755);
    }),
    ("file-twice", &["opt/kata/x", "twice"], |archive| {
        empty_files(archive, 2, |_| "opt/kata/x".to_owned());
    }),
    ("link-then-file", &["opt/kata/x", "twice"], |archive| {
        archive.link("opt/kata/x", "y");
        archive.file("opt/kata/x", b"", 0o644);
    }),
    ("folder-then-link", &["opt/kata/x", "folder"], |archive| {
        archive.file("opt/kata/x/y", b"", 0o644);
        archive.link("opt/kata/x", "y");
    }),
    ("file-then-folder", &["opt/kata/x", "file"], |archive| {
        archive.file("opt/kata/x", b"", 0o644);
        archive.raw("opt/kata/x/", EntryType::Directory, "", 0o755);
    }),
    ("file-as-a-folder", &["opt/kata/x/y", "file"], |archive| {
        archive.file("opt/kata/x", b"", 0o644);
        archive.file("opt/kata/x/y", b"", 0o644);
    }),
    ("case-of-a-file", &["opt/kata/FILE", "case"], |archive| {
        archive.file("opt/kata/file", b"", 0o644);
        archive.file("opt/kata/FILE", b"", 0o644);
    }),
    ("case-of-a-folder", &["opt/kata/Bin/y", "case"], |archive| {
        archive.file("opt/kata/bin/x", b"", 0o644);
        archive.file("opt/kata/Bin/y", b"", 0o644);
    }),
    ("case-of-a-link", &["opt/kata/A/x", "case"], |archive| {
        archive.link("opt/kata/a", "b");
        archive.file("opt/kata/A/x", b"", 0o644);
    }),
    ("up", &["opt/kata/../../etc/x", "leads out"], |archive| {
        archive.raw("opt/kata/../../etc/x", EntryType::Regular, "", 0o644);
    }),
    ("elsewhere", &["/etc/x", "not below opt/kata"], |archive| {
        archive.raw("/etc/x", EntryType::Regular, "", 0o644);
    }),
    ("not-utf-8", &["opt/kata/x", "UTF-8"], |archive| {
        archive.named(b"opt/kata/x\xff", EntryType::Regular);
    }),
    ("damaged", &["opt/kata/first", "cannot unpack"], |archive| {
        archive.file("opt/kata/first", b"", 0o644);
        archive.bytes(&[b'x'; 512]);
    }),
];

#[test]
fn no_link_leads_out_and_none_is_followed() {
    refused(LINKS);
}

#[test]
fn no_archive_takes_more_memory_or_room_than_a_payload_may() {
    refused(LARGE);
}

#[test]
fn no_archive_brings_anything_but_files_folders_and_links_of_unique_names() {
    refused(KINDS);
}

fn refused(archives: &[Evil]) {
    all_are_refused(archives.iter().map(|(name, words, build)| {
        let case = Case::new(name);
        let mut archive = case.archive();
        build(&mut archive);
        archive.finish();
        case.expect_refusal(words)
    }));
}

/// The window is what zstd keeps in memory to copy from.
#[test]
fn an_archive_whose_window_is_larger_than_the_memory_is_refused() {
    let case = Case::new("window");
    // A frame of 128 MiB of window (RFC 8878), with one block of four bytes as they are.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 4 << 3 | 1, 0, 0, b'k', b'a', b't', b'a'];
    fs::write(case.archive_path(), frame).unwrap();
    all_are_refused(
        [case.expect_refusal(&["kata-static-x.tar.zst", "memory", "32 MiB"])].into_iter(),
    );
}

#[test]
fn what_is_no_archive_is_refused() {
    let archives = [("text", &b"kata, kata, kata"[..]), ("half-a-frame", &[0x28, 0xb5][..])];
    all_are_refused(archives.into_iter().map(|(name, bytes)| {
        let case = Case::new(name);
        fs::write(case.archive_path(), bytes).unwrap();
        case.expect_refusal(&["kata-static-x.tar.zst", "cannot unpack"])
    }));
}

#[test]
fn a_list_of_components_that_does_not_end_is_refused() {
    let case = Case::new("components");
    case.archive().finish();
    let list = case.folder.join("image/opt/kata-artifacts/shim-components.json");
    fs::File::create(list).unwrap().set_len(BOMB).unwrap();
    all_are_refused([case.expect_refusal(&["shim-components.json", "KiB"])].into_iter());
}

/// The root of the image is that of the container, in which folders of the node are, too.
#[test]
fn an_image_whose_payload_is_a_link_is_refused() {
    let tree = Case::new("image-tree");
    symlink("../../host/etc", tree.folder.join("image/opt/kata")).unwrap();

    let archive = Case::new("image-archive");
    symlink(archive.folder.join("host/etc/secret"), archive.archive_path()).unwrap();

    let list = Case::new("image-list");
    let artifacts = list.folder.join("image/opt/kata-artifacts");
    fs::create_dir_all(&artifacts).unwrap();
    symlink("../../../host/etc/secret", artifacts.join("shim-components.json")).unwrap();

    all_are_refused(
        [
            tree.expect_refusal(&["opt/kata", "link"]),
            archive.expect_refusal(&["kata-static-x.tar.zst", "link"]),
            list.expect_refusal(&["shim-components.json", "link"]),
        ]
        .into_iter(),
    );
}

/// A tree in the image and what is wrong with it.
type EvilTree = (&'static str, &'static [&'static str], fn(&Path));

const TREES: &[EvilTree] = &[
    ("tree-chain", &["\"esc\"", "link leads out"], |tree| {
        fs::create_dir_all(tree.join("a/b/c/d")).unwrap();
        symlink("../../../..", tree.join("a/b/c/d/up")).unwrap();
        symlink("a/b/c/d/up/../../../../..", tree.join("esc")).unwrap();
    }),
    ("tree-depth", &["d/d/d", "deep"], |tree| {
        fs::create_dir_all(tree.join("d/".repeat(64))).unwrap();
    }),
    ("tree-case", &["FILE", "case"], |tree| {
        fs::write(tree.join("FILE"), "").unwrap();
        fs::write(tree.join("file"), "").unwrap();
    }),
    ("tree-setuid", &["\"x\"", "setuid"], |tree| {
        fs::write(tree.join("x"), "").unwrap();
        fs::set_permissions(tree.join("x"), fs::Permissions::from_mode(0o4755)).unwrap();
    }),
    ("tree-pipe", &["\"x\"", "no file, directory or link"], |tree| {
        assert!(command("mkfifo").arg(tree.join("x")).status().unwrap().success());
    }),
    ("tree-zeros", &["\"x\"", "GiB"], |tree| {
        fs::File::create(tree.join("x")).unwrap().set_len(1 << 40).unwrap();
    }),
    ("tree-entries", &["entries"], |tree| {
        for index in 0..12_000 {
            fs::File::create(tree.join(format!("{index}"))).unwrap();
        }
    }),
];

#[test]
fn a_tree_in_the_image_is_judged_like_an_archive() {
    all_are_refused(TREES.iter().map(|(name, words, build)| {
        let case = Case::new(name);
        build(&case.tree());
        case.expect_refusal(words)
    }));
}

/// The kubelet keeps 4,096 bytes of a termination message; a report that is cut says nothing.
#[test]
#[ignore = "needs a mount namespace"]
fn the_finding_of_an_entry_with_a_hostile_name_arrives_whole() {
    let case = Case::new("hostile-name");
    let mut archive = case.archive();
    archive.raw(&format!("opt/kata/{}", "\u{1b}".repeat(90)), EntryType::Fifo, "", 0o644);
    archive.finish();
    let message = termination_message(&case.program());
    let report: NodeReport = serde_json::from_slice(&message).unwrap();
    assert_eq!((report.outcome, report.checks[0].code.as_str()), (Outcome::Refused, "KATA3026"));
    assert!(report.message.contains("it is no file, directory or link"), "{report:?}");
    assert!(report.message.contains("\"opt/kata/???"), "{report:?}");
    fs::remove_dir_all(case.folder).unwrap();
}

/// What is allowed: as many entries, and names as long together, as a payload may have, a large file that a
/// compressor makes small, the largest window, and links that stay inside or lead nowhere.
#[test]
fn the_largest_payload_is_staged_with_the_same_memory() {
    let case = Case::new("largest");
    let mut archive = case.archive().with_window(25);
    let folder = format!("opt/kata/{}", "n".repeat(150));
    empty_files(&mut archive, 9_500, |index| format!("{folder}/{index}"));
    let content = &mut repeat(0).take(128 << 20);
    archive.entry("opt/kata/image", EntryType::Regular, 128 << 20, |_| {}, content);
    archive.link("opt/kata/lib", "share/../lib64");
    archive.file("opt/kata/lib64/x", b"x", 0o644);
    archive.link("opt/kata/share/up", "../lib/../image");
    archive.link("opt/kata/nowhere", "lib/missing/x");
    archive.file("opt/kata/bin/containerd-shim-kata-v2", b"", 0o755);
    archive.file("opt/kata/share/defaults/kata-containers/configuration-qemu.toml", b"", 0o644);
    archive.finish();
    let output = case.stage();
    assert!(output.status.success(), "{output:?}");
    let [payload] = &case.staged()[..] else { panic!("one payload is staged") };
    assert_eq!(fs::read(payload.join("tree/lib/x")).unwrap(), b"x");
    assert_eq!(fs::metadata(payload.join("tree/share/up")).unwrap().len(), 128 << 20);
    fs::remove_dir_all(case.folder).unwrap();
}

/// A seed that is not what its name says shows a fuzzer nothing.
#[test]
fn the_seeds_of_archives_are_staged_or_refused_as_their_names_say() {
    let refused = ["chain", "hard-link", "kinds", "twice", "window"];
    for corpus in ["payload_tar", "payload_zstd"] {
        let folder = workspace().join("fuzz/corpus").join(corpus);
        let seeds: Vec<_> = fs::read_dir(folder).unwrap().map(|seed| seed.unwrap()).collect();
        assert!(seeds.len() >= 4, "{corpus}");
        for seed in seeds {
            let name = seed.file_name().into_string().unwrap();
            let case = Case::new(&format!("{corpus}-{name}"));
            let mut bytes = fs::read(seed.path()).unwrap();
            if corpus == "payload_tar" {
                bytes = zstd::stream::encode_all(&bytes[..], 1).unwrap();
            }
            fs::write(case.archive_path(), bytes).unwrap();
            let output = case.stage();
            let code = if refused.contains(&name.as_str()) { 4 } else { 0 };
            assert_eq!(output.status.code(), Some(code), "{corpus} {name}: {output:?}");
            fs::remove_dir_all(case.folder).unwrap();
        }
    }
}
