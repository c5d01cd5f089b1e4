//! What else happens on a node while the agent is at work: another agent, and a systemd that executes itself
//! anew.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kata_api::node_task::{NodeAction, NodeReport, Outcome};
use kata_host::paths;
use rustix::fs::inotify;

use crate::lab::{Node, assert_same, assert_went_back, child, command, report, task};

/// Bits of capabilities(7).
const CHOWN: u64 = 1;
const DAC_OVERRIDE: u64 = 1 << 1;
const FOWNER: u64 = 1 << 3;

fn spawn(mut agent: Command) -> Child {
    agent.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// How often a file was opened since the last time.
fn opened(watch: &impl std::os::fd::AsFd) -> usize {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    let mut opened = 0;
    while reader.next().is_ok() {
        opened += 1;
    }
    opened
}

#[test]
#[ignore = "needs a real containerd"]
fn an_agent_waits_for_another_one_and_works_when_that_is_done() {
    let node = Node::start("2", "lock");
    let a = node.image("3.24.0");
    let lock = node.root.join(paths::LOCK.trim_start_matches('/'));
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let install = task(NodeAction::Install, "a", &["kata"]);
    let remove = task(NodeAction::Remove, "", &[]);
    let agents: [(&str, &dyn Fn() -> Command); 3] = [
        ("stage", &|| node.stager("a", &a)),
        ("install", &|| node.agent(&["run", "--task", &install])),
        ("remove", &|| node.agent(&["run", "--task", &remove])),
    ];
    for (name, agent) in agents {
        let (before, incarnation) = (node.files(), node.incarnation());
        let held =
            fs::File::options().write(true).create(true).truncate(false).open(&lock).unwrap();
        held.lock().unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &lock, inotify::WatchFlags::OPEN).unwrap();
        let mut agent = spawn(agent());
        // It tries again and again, and does nothing else.
        let mut tries = 0;
        node.until("the agent has tried to begin four times", || {
            assert_eq!(agent.try_wait().unwrap(), None, "{name} does not wait");
            tries += opened(&watch);
            tries >= 4
        });
        // It is the real process with what its container has, which docs/privileges.md names, and no more.
        let status = format!("/proc/{}/status", child(agent.id()));
        let status = fs::read_to_string(status).unwrap();
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            let line = format!("{set}:\t{:016x}\n", CHOWN | DAC_OVERRIDE | FOWNER);
            assert!(status.contains(&line), "{name}: {line} {status}");
        }
        // Who only looks needs no lock.
        let looked = node.run(NodeAction::Inspect, "a", &["kata"]);
        assert_ne!(looked.outcome, Outcome::Failed, "{looked:?}");
        assert_same(&node.files(), &before);
        assert_eq!(node.incarnation(), incarnation, "{name}");
        assert_eq!(agent.try_wait().unwrap(), None, "{name} does not wait");
        drop(held);
        let output = agent.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        assert_ne!(node.files(), before, "{name}");
    }
    assert!(!node.root.join("opt/kata-operator").exists());
}

/// Runs a change during whose restart systemd executes itself anew; then the unit starts, or fails to once.
fn restart_under_reexec(node: &Node, handlers: &[&str], fails: bool) -> NodeReport {
    let file = |name: &str| node.root.join("run").join(name);
    fs::write(file("hold"), "").unwrap();
    let words = task(NodeAction::Install, "a", handlers);
    let agent = spawn(node.agent(&["run", "--task", &words]));
    let state = || node.systemctl(&["show", "--property", "ActiveState", "containerd.service"]);
    node.until("the unit is being started", || state() == "ActiveState=activating");
    let socket = || inode(&node.root.join("run/systemd/private"));
    let old = socket();
    node.systemctl(&["daemon-reexec"]);
    assert_ne!(socket(), old, "the connection of the agent is gone with the old socket");
    assert_eq!(state(), "ActiveState=activating");
    if fails {
        fs::write(file("fail"), "").unwrap();
    }
    fs::remove_file(file("hold")).unwrap();
    report(&agent.wait_with_output().unwrap())
}

/// A distribution that is just being started brings a container runtime of its own: the plain one beside it is
/// not the one that the kubelet will use.
#[test]
#[ignore = "needs a real containerd"]
fn a_distribution_that_is_being_started_is_not_passed_over_for_a_plain_containerd() {
    let node = Node::start("2", "starting");
    assert!(node.stage("a", &node.image("3.24.0")).status.success());
    let units = node.root.join("run/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::write(
        units.join("k3s.service"),
        "[Unit]\nDefaultDependencies=no\n[Service]\nType=notify\nExecStart=/bin/sleep infinity\n",
    )
    .unwrap();
    node.systemctl(&["daemon-reload"]);
    node.systemctl(&["start", "--no-block", "k3s.service"]);
    let state = || node.systemctl(&["show", "--property", "ActiveState", "k3s.service"]);
    node.until("the unit is being started", || state() == "ActiveState=activating");
    let (before, incarnation) = (node.files(), node.incarnation());
    let report = node.run(NodeAction::Install, "a", &["kata"]);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert!(report.message.contains("/run/k3s/containerd/containerd.sock"), "{report:?}");
    assert_same(&node.files(), &before);
    assert_eq!(node.incarnation(), incarnation);
    node.systemctl(&["stop", "k3s.service"]);
    assert_eq!(node.run(NodeAction::Install, "a", &["kata"]).outcome, Outcome::Done);
}

/// Between the two halves of its restart a unit may wait for others, and is inactive meanwhile.
#[test]
#[ignore = "needs a real containerd"]
fn a_unit_that_waits_for_its_start_while_systemd_executes_itself_anew_is_waited_for() {
    let node = Node::start("2", "halves");
    assert!(node.stage("a", &node.image("3.24.0")).status.success());
    let file = |name: &str| node.root.join("run").join(name);
    fs::write(file("hold"), "").unwrap();
    let units = node.root.join("run/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::write(
        units.join("first.service"),
        "[Unit]\nDefaultDependencies=no\nBefore=containerd.service\n[Service]\nType=oneshot\n\
         ExecStart=/bin/sh -c 'while [ -e /run/hold ]; do sleep 0.02; done'\n",
    )
    .unwrap();
    node.systemctl(&["daemon-reload"]);
    node.systemctl(&["start", "--no-block", "first.service"]);
    let state = || node.systemctl(&["show", "--property", "ActiveState", "containerd.service"]);
    let words = task(NodeAction::Install, "a", &["kata"]);
    let mut agent = spawn(node.agent(&["run", "--task", &words]));
    node.until("the unit is stopped", || state() == "ActiveState=inactive");
    node.systemctl(&["daemon-reexec"]);
    // It sleeps between two looks, each of which makes it wait for systemd's answers.
    let process = child(agent.id());
    let waits = || voluntary_switches(&process);
    let first = waits();
    node.until("the agent has looked some times", || {
        agent.try_wait().unwrap().is_some() || waits() > first + 20
    });
    assert_eq!(agent.try_wait().unwrap(), None, "it does not wait for the start");
    assert_eq!(state(), "ActiveState=inactive");
    fs::remove_file(file("hold")).unwrap();
    let report = report(&agent.wait_with_output().unwrap());
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(node.handlers().contains("kata"));
}

/// How often a process has waited for something.
fn voluntary_switches(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
}

#[test]
#[ignore = "needs a real containerd"]
fn systemd_may_execute_itself_anew_while_the_runtime_is_restarted() {
    let node = Node::start("2", "reexec");
    let before = node.files();
    assert!(node.stage("a", &node.image("3.24.0")).status.success());
    node.service(
        "containerd.service",
        "ExecStartPre=/bin/sh -c 'while [ -e /run/hold ]; do sleep 0.02; done; \
         if [ -e /run/fail ]; then rm /run/fail; exit 1; fi'",
    );
    let report = restart_under_reexec(&node, &["kata"], false);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(report.restarted, "{report:?}");
    assert!(node.handlers().contains("kata"));

    let good = node.files();
    let report = restart_under_reexec(&node, &["kata", "kata-two"], true);
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    assert_eq!(report.checks.first().unwrap().code, "KATA3032", "{report:?}");
    assert_went_back(&node.files(), &good);
    assert_eq!(node.handlers(), ["kata".to_owned(), "runc".to_owned()].into());

    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_same(&node.files(), &before);
}

/// With many containers a start can take minutes, as in `kata-host it verified`; here it takes until the test lets it go
/// on.
#[test]
#[ignore = "needs a real containerd"]
fn a_unit_that_is_still_starting_is_waited_for_and_not_restarted() {
    for release in ["1.7", "2"] {
        let node = Node::start(release, "slow");
        let before = node.files();
        assert!(node.stage("a", &node.image("3.24.0")).status.success());
        node.service(
            "containerd.service",
            "TimeoutStartSec=infinity\nExecStartPre=/bin/sh -c 'echo >> /run/starts; \
             while [ -e /run/hold ]; do sleep 0.02; done'",
        );
        let hold = node.root.join("run/hold");
        let starts = || fs::read(node.root.join("run/starts")).map_or(0, |it| it.len());
        let install = task(NodeAction::Install, "a", &["kata"]);
        for task in &[install, task(NodeAction::Remove, "", &[])] {
            fs::write(&hold, "").unwrap();
            let agent = || spawn(node.agent(&["run", "--task", task]));
            let before = starts();
            let mut killed = agent();
            node.until("the unit starts", || starts() == before + 1);
            command("kill").args(["-9", &child(killed.id())]).status().unwrap();
            killed.wait().unwrap();
            // The one that follows finds what that one has begun.
            let mut agent = agent();
            node.until("the agent has looked some times", || {
                assert_eq!(agent.try_wait().unwrap(), None, "{release}: it does not wait");
                voluntary_switches(&child(agent.id())) > 20
            });
            fs::remove_file(&hold).unwrap();
            let report = report(&agent.wait_with_output().unwrap());
            assert_eq!(report.outcome, Outcome::Done, "{release}: {report:?}");
            assert_eq!(starts(), before + 1, "{release}: {report:?}");
        }
        assert_same(&node.files(), &before);
    }
}
