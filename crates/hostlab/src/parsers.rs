//! The parsers that read what others wrote, each as a function of bytes, and inputs for them.
//!
//! Each says what it understood, so that two calls can be compared. None may panic on any input.
//! Seeds are in `fuzz/corpus`, one folder for each parser.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use kata_api::node_task::NodeTask;
use kata_host::containerd::{
    Base, Schema, add_import, built_in_runtimes, compare, drop_in, drop_in_handlers,
    drop_in_imports, live, main_config, remove_import, with_imports,
};
use kata_host::host::{CriStatus, Unit};
use kata_host::payload::Manifest;
use kata_host::{crio, journal, site};

use crate::node::{Node, V2_MAIN};
use crate::runtime::Kind;

/// A parser.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// Its name, and that of the folder of its seeds.
    pub name: &'static str,
    /// What it understands of bytes.
    pub parse: fn(&[u8]) -> String,
}

/// The parsers of `kata-host`.
pub const PARSERS: [Parser; 8] = [
    Parser { name: "containerd_toml", parse: containerd_toml },
    Parser { name: "crio_conf", parse: crio_conf },
    Parser { name: "config_dump", parse: config_dump },
    Parser { name: "cri_verbose", parse: cri_verbose },
    Parser { name: "journal", parse: read_journal },
    Parser { name: "manifest", parse: manifest },
    Parser { name: "task", parse: task },
    Parser { name: "kubelet_arguments", parse: kubelet_arguments },
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A main file or a drop-in of containerd, of any schema: what it says, and what we would make of it.
pub fn containerd_toml(bytes: &[u8]) -> String {
    let text = text(bytes);
    let mut said = format!("{:?}", drop_in_handlers(&text));
    for major in [1, 2] {
        let config = main_config(Some(&text), major);
        said += &format!("\n{config:?}");
        if config.is_ok() {
            let imported = drop_in_imports(&text);
            let built_in = built_in_runtimes(&text).unwrap_or_default();
            let version = (major, 7);
            let base = Base::of([(text.as_str(), false)].into_iter(), version);
            let ours = drop_in(&base, version, &built_in, &BTreeMap::new());
            said += &format!("\n{imported:?}\n{base:?}\n{ours}");
        }
    }
    let import = "/etc/containerd/conf.d/*.toml";
    for schema in [Schema::V1, Schema::V2, Schema::V3] {
        let with = add_import(Some(&text), import);
        said += &format!("\n{with:?}\n{:?}", with_imports(Some(&text), schema, &[]));
        if let Ok(with) = with {
            said += &format!("\n{:?}", remove_import(&with, import));
        }
    }
    said
}

/// A file of CRI-O.
pub fn crio_conf(bytes: &[u8]) -> String {
    format!("{:?}", crio::handlers(&text(bytes)))
}

/// Two outputs of `config dump`; a line of `---` is between them.
pub fn config_dump(bytes: &[u8]) -> String {
    let text = text(bytes);
    let (before, after) = text.split_once("\n---\n").unwrap_or((&text, &text));
    format!("{:?}", compare(before, after, &BTreeMap::new(), &BTreeSet::new()))
}

/// `info["config"]` of CRI's verbose `Status`.
pub fn cri_verbose(bytes: &[u8]) -> String {
    format!("{:?}", live(&CriStatus { config: Some(text(bytes)), ..CriStatus::default() }))
}

/// The journal.
pub fn read_journal(bytes: &[u8]) -> String {
    format!("{:?}", journal::parse(bytes))
}

/// A manifest, and what is said about its shims.
pub fn manifest(bytes: &[u8]) -> String {
    match Manifest::parse(bytes) {
        Ok(manifest) => format!("{} {} {:?}", manifest.digest(), manifest.size(), manifest.shims()),
        Err(reason) => reason,
    }
}

/// A task as the operator passes it to the node agent, and what the agent would do about it on a node.
pub fn task(bytes: &[u8]) -> String {
    match serde_json::from_slice::<NodeTask>(bytes) {
        Ok(task) => {
            let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
            format!("{task:?} {:?}", kata_host::plan(&mut node, &task))
        }
        Err(error) => error.to_string(),
    }
}

/// The words of a kubelet's command, in its unit's first line, and its environment in the others: which container
/// runtime it uses. The bytes are also the files that the arguments may name.
pub fn kubelet_arguments(bytes: &[u8]) -> String {
    const FOLDER: &str = "/etc/kubelet.d";
    let text = text(bytes);
    let (command, environment) = text.split_once('\n').unwrap_or((&text, ""));
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let command = [vec!["/usr/bin/kubelet".to_owned()], words(command)].concat();
    let kubelet = Unit {
        active: true,
        command,
        environment: environment.lines().map(str::to_owned).collect(),
        environment_files: vec![format!("{FOLDER}/file")],
        ..Unit::default()
    };
    let runtime = |command: &str| Unit { active: true, command: words(command), ..Unit::default() };
    let mut node = Node::of("none.service", "/etc/containerd/config.toml", V2_MAIN, None);
    node.services = vec![
        ("containerd.service".to_owned(), runtime("/usr/bin/containerd")),
        ("crio.service".to_owned(), runtime("/usr/bin/crio")),
        ("kubelet.service".to_owned(), kubelet),
    ];
    let made = node.disk.make_dir(FOLDER, 0o755);
    let written = node.disk.write(&format!("{FOLDER}/file"), bytes, 0o644);
    format!("{made:?} {written:?} {:?}", site::find(&mut node, None, None))
}

/// Parses the seeds of a parser, and so many variants of each; returns how many inputs there were and what
/// went wrong. The same folder gives the same inputs.
///
/// # Panics
/// If the folder cannot be read: then there is nothing to try.
pub fn replay(folder: &Path, parser: &Parser, variants: u64) -> (u64, Vec<String>) {
    let folder = folder.join(parser.name);
    let entries = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("no seeds in {}: {error}", folder.display()));
    let mut seeds: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    seeds.sort_unstable();
    let (mut inputs, mut wrong) = (0, Vec::new());
    for path in seeds {
        let seed = fs::read(&path).unwrap();
        for variant in 0..=variants {
            let input = vary(&seed, variant);
            inputs += 1;
            let parse = || catch_unwind(AssertUnwindSafe(|| (parser.parse)(&input)));
            let place = || format!("{} of {}, variant {variant}", parser.name, path.display());
            match (parse(), parse()) {
                (Ok(once), Ok(again)) if once == again => {}
                (Ok(_), Ok(_)) => wrong.push(format!("{}: says this and that", place())),
                _ => wrong.push(format!("{}: panics", place())),
            }
        }
    }
    (inputs, wrong)
}

/// A variant of a seed; number 0 is the seed itself. Bytes are changed, cut out, doubled and replaced by
/// what means something to some parser.
fn vary(seed: &[u8], variant: u64) -> Vec<u8> {
    const WORDS: [&[u8]; 12] = [
        b"\n[plugins]\n",
        b"version = 3\n",
        b"\"",
        b"{",
        b"}",
        b"[[",
        b"../",
        b"\0",
        b"imports = [1]\n",
        b"-9223372036854775809",
        b"\xff\xfe",
        b"null",
    ];
    let mut input = seed.to_vec();
    let mut state = variant.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 1).unwrap_or_default() % below.max(1)
    };
    if variant == 0 {
        return input;
    }
    for _ in 0..=next(4) {
        let at = next(input.len());
        let end = (at + 1 + next(16)).min(input.len());
        match next(5) {
            0 if at < input.len() => input[at] ^= 1 << next(8),
            1 => drop(input.drain(at.min(end)..end)),
            2 => {
                let part = input[at.min(end)..end].to_vec();
                drop(input.splice(at..at, part));
            }
            3 => input.truncate(at),
            _ => drop(input.splice(at..at, WORDS[next(WORDS.len())].iter().copied())),
        }
    }
    input
}
