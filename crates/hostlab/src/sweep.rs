//! What the node agent must come through: SIGKILL and loss of power at every call of a task, and the same
//! life five hundred times. Each sweep counts its points, and says which went wrong.

use std::collections::BTreeMap;

use kata_api::node_task::{NodeAction, NodeReport, NodeTask, Outcome};
use kata_host::containerd::EMPTY_FILE;
use kata_host::paths;

use crate::node::{Deed, Fault, Node, V1_MAIN, V2_MAIN, kata_deploy, task};
use crate::runtime::{Kind, PLUGINS};

/// How often a way is gone through, and what went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Points at which a process was ended, or rounds of a loop.
    pub points: u64,
    /// A sentence for each that went wrong.
    pub failures: Vec<String>,
}

impl Sweep {
    /// Both together.
    pub fn plus(mut self, other: Self) -> Self {
        self.points += other.points;
        self.failures.extend(other.failures);
        self
    }
}

/// Every runtime with every form of its main file that matters.
pub fn nodes() -> Vec<(&'static str, Node)> {
    let with_import = format!("imports = [\"/etc/containerd/conf.d/*.toml\"]\n{V2_MAIN}");
    vec![
        ("2.1, no import", Node::new(Kind::Containerd(2, 1), Some(V2_MAIN))),
        ("2.2, import", Node::new(Kind::Containerd(2, 2), Some(&with_import))),
        ("2.1, no file", Node::new(Kind::Containerd(2, 1), None)),
        ("2.1, version 2", Node::new(Kind::Containerd(2, 1), Some(V1_MAIN))),
        ("1.7", Node::new(Kind::Containerd(1, 7), Some(V1_MAIN))),
        ("1.7, no file", Node::new(Kind::Containerd(1, 7), None)),
        ("1.6", Node::new(Kind::Containerd(1, 6), Some(V1_MAIN))),
        ("CRI-O", Node::new(Kind::Crio, Some("[crio.runtime]\n"))),
    ]
}

/// Kills the process at every call of a task, before and after its effect, with and without a loss of
/// power, and looks at the node then.
fn at_every_call(
    name: &str,
    node: &Node,
    task: &NodeTask,
    look: impl Fn(&mut Node) -> Result<(), String>,
) -> Sweep {
    let mut sweep = Sweep::default();
    for fault in [Fault::KilledBefore, Fault::KilledAfter] {
        for power_lost in [false, true] {
            for call in 0.. {
                let mut node = node.clone();
                node.disk.settle();
                node.arm(call, fault);
                kata_host::run(&mut node, task);
                if !node.was_hit() {
                    break;
                }
                sweep.points += 1;
                let last = node.log.last().cloned().unwrap_or_default();
                node.revive(power_lost);
                if let Err(wrong) = look(&mut node) {
                    let power = if power_lost { ", power lost" } else { "" };
                    sweep.failures.push(format!("{name}: {fault:?} {call} {last}{power}: {wrong}"));
                }
            }
        }
    }
    sweep
}

fn over_nodes(sweep: impl Fn(&str, Node) -> Sweep) -> Sweep {
    nodes().into_iter().map(|(name, node)| sweep(name, node)).fold(Sweep::default(), Sweep::plus)
}

/// Runs a task that must succeed.
fn done(node: &mut Node, task: &NodeTask) -> Result<NodeReport, String> {
    let report = kata_host::run(node, task);
    match report.outcome {
        Outcome::Done => Ok(report),
        _ => Err(format!("{:?} ends with {report:?}", task.action)),
    }
}

fn same<T: PartialEq>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what} is not as it should be")) }
}

fn serves(node: &Node) -> Result<(), String> {
    match &node.runtime.running {
        Some(Ok(_)) => Ok(()),
        _ => Err("the container runtime does not serve".to_owned()),
    }
}

/// Nothing of ours is there, neither on the disk nor in what the container runtime runs with.
fn gone(node: &Node, before: &BTreeMap<String, String>) -> Result<(), String> {
    same("the disk after a removal", &node.disk.all(), before)?;
    serves(node)?;
    same("what the runtime offers", &node.offers("kata"), &false)
}

fn installed(node: &mut Node) {
    node.stage("a");
    kata_host::run(node, &task(NodeAction::Install, "a"));
}

/// An interrupted install is finished by the next install, and undone by a removal.
pub fn install() -> Sweep {
    over_nodes(|name, clean| {
        let before = clean.disk.all();
        let mut node = clean.clone();
        node.stage("a");
        let mut finished = node.clone();
        kata_host::run(&mut finished, &task(NodeAction::Install, "a"));
        at_every_call(name, &node, &task(NodeAction::Install, "a"), |node| {
            let mut other = node.clone();
            let report = done(node, &task(NodeAction::Install, "a"))?;
            same("/etc", &node.etc(), &finished.etc())?;
            let offers = report.handlers.unwrap_or_default().contains(&"kata".to_owned());
            same("what the runtime offers", &offers, &true)?;
            // The desired state changed meanwhile.
            done(&mut other, &task(NodeAction::Remove, "a"))?;
            gone(&other, &before)
        })
    })
}

/// An interrupted take-over of kata-deploy is finished by the next run, and given back by a removal: byte for byte, with
/// its sandboxes running.
pub fn take_over() -> Sweep {
    let of = |is_imported| {
        let clean = kata_deploy::node(is_imported);
        let before = clean.disk.all();
        let mut node = clean;
        node.stage("a");
        let take = kata_deploy::take_over(NodeAction::Install, "a");
        let give = kata_deploy::take_over(NodeAction::Remove, "");
        let mut finished = node.clone();
        kata_host::run(&mut finished, &take);
        let name = if is_imported { "kata-deploy, import" } else { "kata-deploy, no import" };
        let taken = at_every_call(name, &node, &take, |node| {
            let mut other = node.clone();
            done(node, &take)?;
            same("/etc", &node.etc(), &finished.etc())?;
            serves(node)?;
            for node in [node, &mut other] {
                done(node, &give)?;
                given_back(node, &before)?;
            }
            Ok(())
        });
        let given = at_every_call(name, &finished, &give, |node| {
            let mut other = node.clone();
            done(node, &give)?;
            given_back(node, &before)?;
            // The desired state changed meanwhile.
            other.stage("a");
            done(&mut other, &take)?;
            same("/etc", &other.etc(), &finished.etc())
        });
        taken.plus(given)
    };
    of(true).plus(of(false))
}

/// The node is as kata-deploy left it.
fn given_back(node: &Node, before: &BTreeMap<String, String>) -> Result<(), String> {
    same("the disk after a way back", &node.disk.all(), before)?;
    serves(node)?;
    let offers = ["kata-qemu", "kata-clh"].iter().all(|name| node.offers(name));
    same("what the runtime offers", &offers, &true)
}

/// An interrupted upgrade is finished by the next run, without a look at the runtime's files.
pub fn upgrade() -> Sweep {
    over_nodes(|name, mut node| {
        installed(&mut node);
        node.sandbox("1", "kata");
        node.stage("b");
        let etc = node.etc();
        at_every_call(name, &node, &task(NodeAction::Install, "b"), |node| {
            done(node, &task(NodeAction::Install, "b"))?;
            same("/etc", &node.etc(), &etc)?;
            let program = node.text("/opt/kata-operator/current/payload/bin/qemu-system-x86_64");
            same("the version in use", &program.as_str(), &"b")
        })
    })
}

/// An interrupted repair of a damaged payload is finished by the next run.
pub fn repair() -> Sweep {
    over_nodes(|name, mut node| {
        installed(&mut node);
        let program = format!("{}/payload/bin/qemu-system-x86_64", paths::CURRENT);
        node.disk.rot(&program);
        let shim = format!("{}/payload/bin/containerd-shim-kata-v2", paths::CURRENT);
        node.disk.write(&shim, b"", 0o755).unwrap();
        node.stage("a");
        let mut repair = task(NodeAction::Install, "a");
        repair.verify = true;
        at_every_call(name, &node, &repair, |node| {
            // The Job's first container takes the payload out of the image again.
            node.stage("a");
            done(node, &repair)?;
            done(node, &task(NodeAction::Inspect, "a"))?;
            same("the program", &node.text(&program).as_str(), &"a")
        })
    })
}

/// An install that fails, and is interrupted on its way back, leaves a runtime that serves and nothing
/// that a removal does not take.
pub fn rollback() -> Sweep {
    over_nodes(|name, mut node| {
        let before = node.disk.all();
        let etc = node.etc();
        node.stage("a");
        node.runtime.chokes_on = Some("kata".to_owned());
        at_every_call(name, &node, &task(NodeAction::Install, "a"), |node| {
            // The admin cancels it: no part of the removal failed, so the removal is not undone.
            let mut other = node.clone();
            done(&mut other, &task(NodeAction::Remove, ""))?;
            gone(&other, &before)?;
            let report = kata_host::run(node, &task(NodeAction::Install, "a"));
            if report.outcome != Outcome::RolledBack {
                return Err(format!("{report:?}"));
            }
            same("/etc", &node.etc(), &etc)?;
            serves(node)?;
            done(node, &task(NodeAction::Remove, ""))?;
            gone(node, &before)
        })
    })
}

/// An interrupted removal is finished by the next one, and does not keep an installation from succeeding.
pub fn removal() -> Sweep {
    over_nodes(|name, clean| {
        let before = clean.disk.all();
        let mut node = clean;
        installed(&mut node);
        at_every_call(name, &node, &task(NodeAction::Remove, ""), |node| {
            let mut other = node.clone();
            other.stage("b");
            let report = done(&mut other, &task(NodeAction::Install, "b"))?;
            let offers = report.handlers.unwrap_or_default().contains(&"kata".to_owned());
            same("what the runtime offers", &offers, &true)?;
            done(node, &task(NodeAction::Remove, ""))?;
            gone(node, &before)
        })
    })
}

/// The same on a disk that is full.
pub fn removal_from_a_full_disk() -> Sweep {
    over_nodes(|name, clean| {
        let before = clean.disk.all();
        let mut node = clean;
        installed(&mut node);
        node.capacity = Some(node.disk.used());
        at_every_call(name, &node, &task(NodeAction::Remove, ""), |node| {
            done(node, &task(NodeAction::Remove, ""))?;
            gone(node, &before)
        })
    })
}

/// Another program changes the main file at any call of a task, or before it, and restarts nothing.
///
/// No restart of ours is into a file with which the runtime would not serve CRI, and none brings a key of others into
/// effect that the report does not name, as long as the file was changed before the agent's last look at it. Of a way
/// back that is the first one: its restart is of a runtime that does not serve.
pub fn foreign_changes() -> Sweep {
    let mut sweep = Sweep::default();
    for (name, clean) in nodes() {
        let mut fresh = clean.clone();
        fresh.stage("a");
        let mut with_kata = clean.clone();
        installed(&mut with_kata);
        let mut fails = fresh.clone();
        fails.runtime.chokes_on = Some("kata".to_owned());
        let mut removes = with_kata.clone();
        removes.stage("a");
        for (node, action) in [
            (&fresh, NodeAction::Install),
            (&fails, NodeAction::Install),
            (&removes, NodeAction::Remove),
        ] {
            for deed in [disable_cri as Deed, add_handler as Deed] {
                for call in 0.. {
                    let mut node = node.clone();
                    node.disk.settle();
                    node.arm(usize::MAX, Fault::KilledBefore);
                    node.at_call = Some((call, deed));
                    let restarts = node.runtime.restarts;
                    let report = kata_host::run(&mut node, &task(action, "a"));
                    if node.at_call.is_some() {
                        break;
                    }
                    sweep.points += 1;
                    let wrong = activated(&node, &report, call, node.runtime.restarts != restarts);
                    let last = node.log.get(call).cloned().unwrap_or_default();
                    let place = format!("{name}: {action:?}, before {call} {last}");
                    sweep.failures.extend(wrong.map(|wrong| format!("{place}: {wrong}")));
                }
            }
        }
    }
    sweep
}

/// The plugin that serves CRI is disabled, or the default runtime is gone.
fn disable_cri(node: &mut Node) {
    if node.runtime.kind == Kind::Crio {
        let section = "[crio.runtime]\n";
        let gone = format!("{section}default_runtime = \"gone\"\n");
        return change_main(node, |text| text.replacen(section, &gone, 1));
    }
    change_main(node, |text| format!("disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n{text}"));
}

/// There is another handler.
fn add_handler(node: &mut Node) {
    if node.runtime.kind == Kind::Crio {
        return change_main(node, |text| format!("{text}[crio.runtime.runtimes.more]\n"));
    }
    let id = match node.runtime.kind {
        Kind::Containerd(2.., _) if !node.text(&node.runtime.main).contains("version = 2") => {
            PLUGINS[0]
        }
        _ => PLUGINS[1],
    };
    let table = format!("[plugins.\"{id}\".containerd.runtimes.more]\nruntime_type = \"more\"\n");
    change_main(node, |text| format!("{text}{table}"));
}

fn change_main(node: &mut Node, change: impl FnOnce(&str) -> String) {
    let main = node.runtime.main.clone();
    let text = node.text(&main);
    let is_new = text.is_empty() && node.runtime.kind != Kind::Crio;
    let text = if is_new { "version = 2\n" } else { &text };
    node.disk.make_dir(paths::parent(&main), 0o755).unwrap();
    node.disk.write(&main, change(text).as_bytes(), 0o640).unwrap();
}

/// What a restart of ours did that it must not: after it the change of another program is in effect, which was made
/// before the last look at the files. What the files are without ours, to which a way back leads, is looked at first only.
fn activated(node: &Node, report: &NodeReport, call: usize, restarted: bool) -> Option<String> {
    // Whether there is a main file is looked at right before what is printed without one.
    let is_look = |call: &str| call.starts_with("dump ") || call.starts_with("print ");
    let looks = node.log.iter().enumerate().filter(|(_, call)| is_look(call));
    let mut looks = looks.map(|(at, call)| at - usize::from(call.ends_with(EMPTY_FILE)));
    let (first, last) = (looks.next()?, looks.next_back());
    let went_back = matches!(report.outcome, Outcome::RolledBack | Outcome::Unsafe);
    let looked = if went_back { first } else { last.unwrap_or(first) };
    if !restarted || looked < call {
        return None;
    }
    if !matches!(node.runtime.running, Some(Ok(_))) {
        return Some(format!("the container runtime does not serve: {report:?}"));
    }
    let is_named = report.checks.iter().any(|check| check.code == "KATA3048");
    (node.offers("more") && !is_named)
        .then(|| format!("a handler of others came unnamed: {report:?}"))
}

/// Installs and removes so many times on each kind of node, and compares everything on the disk with what was there before.
pub fn loops(rounds: u64) -> Sweep {
    over_nodes(|name, mut node| {
        let mut sweep = Sweep::default();
        let before = node.disk.all();
        for round in 0..rounds {
            if let Err(wrong) = round_trip(&mut node, &before) {
                sweep.failures.push(format!("{name}, round {round}: {wrong}"));
                break;
            }
            sweep.points += 1;
        }
        if u64::from(node.runtime.restarts) != 2 * rounds {
            sweep.failures.push(format!("{name}: {} restarts", node.runtime.restarts));
        }
        sweep
    })
}

fn round_trip(node: &mut Node, before: &BTreeMap<String, String>) -> Result<(), String> {
    node.stage("a");
    done(node, &task(NodeAction::Install, "a"))?;
    done(node, &task(NodeAction::Remove, ""))?;
    node.log.clear();
    gone(node, before)
}
