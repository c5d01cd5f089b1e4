//! The main files as distributions ship them, with a real containerd as the judge: it prints the merged
//! configuration before and after each change that `kata-host` makes on a node in memory.

use std::fs;
use std::path::{Path, PathBuf};

use hostlab::disk::Disk;
use hostlab::node::{Node, task};
use hostlab::runtime::{Kind, Printer, built_in_runc};
use hostlab::shipped::{self, foreign_changes};
use kata_api::node_task::{NodeAction, Outcome, TaskHandler};
use kata_host::containerd::EMPTY_FILE;
use toml::{Table, Value};

use crate::lab::{command, packages, workspace};

/// Our handlers.
const OURS: [&str; 2] = ["kata", "kata-two"];

/// A containerd whose `config dump` is asked. The files of a node in memory are below `root` for it, and what
/// they say of paths is adapted on the way in and out.
#[derive(Clone, Debug)]
struct Containerd {
    program: PathBuf,
    kind: Kind,
    root: PathBuf,
}

impl Containerd {
    fn of_release(release: &str) -> Self {
        let packages = packages(release);
        let numbers = packages.file_name().unwrap().to_str().unwrap().split('.');
        let numbers: Vec<u32> = numbers.map(|number| number.parse().unwrap()).collect();
        let root = workspace().join(format!("target/nodes/shipped-{release}"));
        let program = packages.join("usr/bin/containerd");
        Self { program, kind: Kind::Containerd(numbers[0], numbers[1]), root }
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = command(self.program.to_str().unwrap()).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn dump(&self, disk: &Disk, config: &str) -> Result<String, String> {
        if config == EMPTY_FILE {
            return self.run(&["--config", config, "config", "dump"]);
        }
        let root = self.root.to_str().unwrap();
        let below = |text: &str| {
            let quoted = |quote: char, folder: &str| format!("{quote}{folder}");
            let mut text = text.to_owned();
            for folder in ["/etc/", "/var/lib/rancher/", "/var/snap/"] {
                for quote in ['"', '\''] {
                    let found = quoted(quote, folder);
                    text = text.replace(&found, &quoted(quote, &format!("{root}{folder}")));
                }
            }
            text
        };
        if self.root.exists() {
            fs::remove_dir_all(&self.root).unwrap();
        }
        for path in disk.all().keys() {
            let Some(bytes) = disk.read(path).filter(|_| path.ends_with(".toml")) else { continue };
            let file = PathBuf::from(format!("{root}{path}"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, below(&String::from_utf8(bytes).unwrap())).unwrap();
        }
        let dump = self.run(&["--config", &format!("{root}{config}"), "config", "dump"])?;
        Ok(dump.replace(root, ""))
    }

    /// What it makes of a node's files. It takes no path of a main file that is not there.
    fn merged(&self, node: &Node) -> Result<Table, String> {
        let main = &node.runtime.main;
        let exists = node.disk.stat(main).is_some();
        let dump = self.dump(&node.disk, if exists { main } else { EMPTY_FILE })?;
        Ok(dump.parse().unwrap())
    }
}

fn runtimes(table: &Table) -> Table {
    let plugins = table["plugins"].as_table().unwrap();
    let found = ["io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]
        .iter()
        .find_map(|plugin| plugins.get(*plugin)?.get("containerd")?.get("runtimes"));
    let mut runtimes = found.and_then(Value::as_table).cloned().unwrap_or_default();
    for (_, runtime) in runtimes.iter_mut() {
        // Of no options some versions print an empty table, and some none.
        let runtime = runtime.as_table_mut().unwrap();
        runtime.retain(|_, value| value.as_table().is_none_or(|table| !table.is_empty()));
    }
    runtimes
}

/// Every action: with one handler, with two, with one again, with none.
const ACTIONS: [usize; 4] = [1, 2, 1, 0];
/// Each main file meets every third set of drop-ins, and each set every third main file: a run of containerd for
/// all of them takes minutes. `kata-host it shipped` tries all of them in the model.
const SHARE: usize = 3;

/// Installs so many handlers in turn. After each change containerd's own merged configuration is compared with
/// the one of before, and in the end the files.
fn change_and_compare(containerd: &Containerd, place: &str, mut node: Node, actions: &[usize]) {
    let before = containerd.merged(&node).unwrap_or_else(|error| panic!("{place}: {error}"));
    let etc = node.etc();
    let model = node.runtime.load(&node.disk, &node.runtime.main).unwrap();
    let differences = foreign_changes(&runtimes(&model), &runtimes(&before), &[]);
    assert_eq!(differences, [""; 0], "{place}: the model of hostlab differs");
    let printing = containerd.clone();
    node.runtime.printer = Some(Printer::new(move |disk, config| printing.dump(disk, config)));
    node.stage("a");
    let one = task(NodeAction::Install, "a");
    let mut two = one.clone();
    two.handlers.push(TaskHandler {
        name: OURS[1].to_owned(),
        shim: "clh".to_owned(),
        config: None,
    });
    let none = task(NodeAction::Remove, "");
    for &handlers in actions {
        let report = kata_host::run(&mut node, [&none, &one, &two][handlers]);
        assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
        let after = containerd.merged(&node).unwrap();
        assert_eq!(foreign_changes(&before, &after, &OURS), Vec::<String>::new(), "{place}");
        for (index, name) in OURS.iter().enumerate() {
            let path = runtimes(&after)
                .get(*name)
                .and_then(|runtime| runtime["options"]["ConfigPath"].as_str().map(str::to_owned));
            let wanted = format!("/opt/kata-operator/current/etc/{name}/configuration.toml");
            assert_eq!(path, (index < handlers).then_some(wanted), "{place}");
        }
    }
    assert_eq!(node.etc(), etc, "{place}");
}

/// Every main file that this containerd may find.
fn every_file(release: &str) {
    let containerd = Containerd::of_release(release);
    let generated = containerd.run(&["config", "default"]).unwrap();
    let generated = generated.replace("SystemdCgroup = false", "SystemdCgroup = true");
    let generated = shipped::of_text("kubeadm, generated", generated.leak(), &[]);
    let by_itself = containerd.run(&["--config", EMPTY_FILE, "config", "dump"]).unwrap();
    let by_itself = runtimes(&by_itself.parse().unwrap());
    let Kind::Containerd(major, minor) = containerd.kind else { unreachable!() };
    let recorded = built_in_runc(major, minor);
    assert_eq!(by_itself["runc"].as_table(), Some(&recorded), "{release}: what is recorded");
    let (mut files, mut count, mut changes) = (0, 0, 0);
    let found = shipped::all()
        .filter(|it| !it.is_rendered() && it.kinds.iter().any(|kind| same(*kind, containerd.kind)));
    for (index, shipped) in found.chain([generated]).enumerate() {
        let place = format!("{}, {:?}", shipped.name, containerd.kind);
        change_and_compare(&containerd, &place, shipped.node(containerd.kind), &ACTIONS);
        files += 1;
        count += 1;
        changes += ACTIONS.len();
        if !shipped.is_plain() {
            continue;
        }
        for (name, drop_ins) in shipped::DROP_INS.iter().skip(index % SHARE).step_by(SHARE) {
            if let Some(node) = shipped.node_with(containerd.kind, drop_ins) {
                let actions = [2, 0];
                change_and_compare(&containerd, &format!("{place}, {name}"), node, &actions);
                count += 1;
                changes += actions.len();
            }
        }
    }
    let counted = format!(
        "containerd {major}.{minor}: {files} main files, {count} sets of files, {changes} changes"
    );
    println!("{counted}");
    let page = fs::read_to_string(workspace().join("docs/support-matrix.md")).unwrap();
    let line = page.lines().find(|line| line.contains(&format!("containerd {major}.{minor}: ")));
    match line {
        Some(line) => assert!(line.contains(&counted), "docs/support-matrix.md: {line}"),
        // The newest release of Debian's archive changes without a change here.
        None if release == "2" => println!("NOTE: docs/support-matrix.md lacks: {counted}"),
        None => panic!("docs/support-matrix.md lacks: {counted}"),
    }
    remove(&containerd.root);
}

/// Whether two releases behave alike: the newest 2.x stands for all of them.
fn same(one: Kind, other: Kind) -> bool {
    match (one, other) {
        (Kind::Containerd(2, _), Kind::Containerd(2, minor)) => {
            one == other || (one == Kind::Containerd(2, 1) && minor > 1)
        }
        _ => one == other,
    }
}

fn remove(folder: &Path) {
    if folder.exists() {
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_6_keeps_every_other_key() {
    every_file("1.6");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_7_keeps_every_other_key() {
    every_file("1.7");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2_keeps_every_other_key() {
    every_file("2");
}
