//! The life of a payload on a node: install, the same again a hundred times,
//! upgrade, a failure that is rolled back, and removal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use kata_api::node_task::{NodeAction, NodeReport, Outcome};

use crate::lab::{Mounted, Node, assert_same, assert_went_back};

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2() {
    life("2");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_7() {
    life("1.7");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_6() {
    life("1.6");
}

#[test]
#[ignore = "needs a real containerd"]
fn a_device_that_the_container_may_not_open_is_opened_by_the_node() {
    let node = Node::start("2", "device");
    // The root of a container is not above the modes of files either, if its capabilities are few.
    let kvm = node.root.join("dev/kvm");
    fs::set_permissions(&kvm, fs::Permissions::from_mode(0o000)).unwrap();
    let left = node.root.join("opt/.kata-operator-probe-1-0");
    fs::create_dir(&left).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::open(&left).unwrap().set_modified(long_ago).unwrap();
    let task = crate::lab::task(NodeAction::Preflight, "a", &["kata"]);
    let agent = node.agent(&["run", "--task", &task]);
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-dac_override,-dac_read_search"])
        .args(["--inh-caps", "-dac_override,-dac_read_search"])
        .arg(agent.get_program())
        .args(agent.get_args())
        .output()
        .unwrap();
    let report: NodeReport = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.checks.iter().all(|check| check.code != "KATA3001"), "{report:?}");
    // containerd makes a folder there itself.
    let left = || {
        let names = fs::read_dir(node.root.join("opt")).unwrap().map(|it| it.unwrap().file_name());
        names.filter(|name| name != "containerd").count()
    };
    assert_eq!(left(), 0);
    // What was left a moment ago may be in use by another agent, but not when everything goes.
    fs::create_dir(node.root.join("opt/.kata-operator-probe-1-1")).unwrap();
    node.run(NodeAction::Preflight, "a", &["kata"]);
    assert_eq!(left(), 1);
    node.run(NodeAction::Remove, "a", &["kata"]);
    assert_eq!(left(), 0);
}

/// The merged configuration has more bytes than there is room for, which is no fault of the configuration.
#[test]
#[ignore = "needs a real containerd"]
fn a_disk_without_room_for_the_journal_is_not_taken_for_a_broken_configuration() {
    let state = |root: &Path| root.join("var/lib/kata-operator");
    let mut mounted = None;
    let small = |root: &Path| {
        mounted = Some(Mounted::small(&state(root), "size=8k,mode=700"));
    };
    let node = Node::start_on("2", "full", small);
    assert!(node.stage("a", &node.image("3.24.0")).status.success());
    let (incarnation, etc) = (node.incarnation(), node.files());
    let report = node.run(NodeAction::Install, "a", &["kata"]);
    assert_eq!(report.outcome, Outcome::Failed, "{report:?}");
    assert!(report.message.contains("No space left on device"), "{report:?}");
    assert_eq!(node.incarnation(), incarnation);
    let changed =
        |path: &&String| path.starts_with("etc/") && node.files().get(*path) != etc.get(*path);
    assert_eq!(etc.keys().find(changed), None);
    assert!(!node.root.join("run/kata-operator").exists());
    drop(mounted);
}

fn life(release: &str) {
    let node = Node::start(release, "life");
    // Closed for everybody but its owner, who is not the user of the agent.
    let closed = node.root.join("etc/containerd");
    for (path, mode) in [(closed.join("config.toml"), 0o600), (closed, 0o700)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    }
    let before = node.files();
    let a = node.image("3.24.0");
    let b = node.image("3.25.0");

    // Nothing is staged yet, and nothing is changed for it.
    let report = node.run(NodeAction::Install, "a", &["kata"]);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert!(report.checks.iter().any(|check| check.code == "KATA3021"), "{report:?}");
    assert_same(&node.files(), &before);

    // Devices are checked for real; this machine may lack vhost-vsock, which the tests cannot bring.
    let refused = ["KATA3001", "KATA3002"];
    let staged = node.stage("a", &a);
    assert!(staged.status.success(), "{staged:?}");
    let plan = crate::lab::task(NodeAction::Install, "a", &["kata"]);
    let files = node.files();
    let output = node.agent(&["run", "--plan", "--task", &plan]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if !output.status.success() {
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(refused.iter().any(|code| said.contains(code)), "{said}");
    } else {
        let shim = "\"/opt/kata-operator/current/payload/bin/containerd-shim-kata-v2\"";
        // containerd 1.6 takes it for the type.
        let key = if release == "1.6" { "type" } else { "path" };
        assert!(text.contains(&format!("+runtime_{key} = {shim}")), "{text}");
        assert!(text.contains("# restart unit: containerd.service"), "{text}");
    }
    assert_same(&node.files(), &files);

    let incarnation = node.incarnation();
    let report = node.run(NodeAction::Install, "a", &["kata"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(report.restarted, "{report:?}");
    assert_ne!(node.incarnation(), incarnation);
    assert_eq!(report.kata_version.as_deref(), Some("3.24.0"));
    let handlers = report.handlers.unwrap();
    assert!(handlers.contains(&"kata".to_owned()) && handlers.contains(&"runc".to_owned()));
    assert!(!node.root.join("opt/kata-operator/current/payload/bin/firecracker").exists());
    let restarted = node.incarnation();

    let mut times = Vec::new();
    let installed = node.files();
    for _ in 0..100 {
        let start = Instant::now();
        let report = node.run(NodeAction::Install, "a", &["kata"]);
        times.push(start.elapsed());
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
        assert!(!report.changed && !report.restarted, "{report:?}");
    }
    times.sort_unstable();
    // How fast it has to be, the bench `staging` says.
    println!("containerd {release}: no-op {:?} median of 100", times[50]);
    assert_eq!(node.incarnation(), restarted);
    assert_same(&node.files(), &installed);
    let staged = node.stage("a", &a);
    assert!(String::from_utf8(staged.stdout).unwrap().contains("already"));

    // An upgrade: no restart, and what is not used goes.
    assert!(node.stage("b", &b).status.success());
    let report = node.run(NodeAction::Install, "b", &["kata"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(report.kata_version.as_deref(), Some("3.25.0"));
    assert_eq!(node.incarnation(), restarted);
    let kept = fs::read_dir(node.root.join("opt/kata-operator/versions")).unwrap().count();
    assert_eq!(kept, 1);

    // A second handler needs a restart; systemd may execute itself anew before.
    let output = node.inside("/usr/bin/systemctl", &["daemon-reexec"]);
    assert!(output.status.success(), "{output:?}");
    let start = Instant::now();
    let report = node.run(NodeAction::Install, "b", &["kata", "kata-two"]);
    println!("containerd {release}: a change with one restart {:?}", start.elapsed());
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(report.restarted, "{report:?}");

    // A change that the container runtime does not come up with.
    let (good, offered) = (node.files(), node.handlers());
    let trap = node.root.join("run/systemd/system/containerd.service.d");
    fs::create_dir_all(&trap).unwrap();
    fs::write(
        trap.join("trap.conf"),
        "[Service]\nExecStartPre=/bin/sh -c '! grep -q kata-three /etc/containerd/conf.d/*.toml'\n",
    )
    .unwrap();
    assert!(node.inside("/usr/bin/systemctl", &["daemon-reload"]).status.success());
    let report = node.run(NodeAction::Install, "b", &["kata", "kata-three", "kata-two"]);
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    let check = report.checks.iter().find(|check| check.code == "KATA3032");
    let check = check.unwrap_or_else(|| panic!("{report:?}"));
    assert!(check.message.starts_with("containerd.service is "), "{check:?}");
    assert!(check.message.contains("exit-code"), "{check:?}");
    assert_went_back(&node.files(), &good);
    assert!(node.ready());
    assert_eq!(node.handlers(), offered);
    let report = node.run(NodeAction::Install, "b", &["kata", "kata-two"]);
    assert_eq!((report.outcome, report.restarted), (Outcome::Done, false), "{report:?}");
    assert_same(&node.files(), &good);
    fs::remove_dir_all(trap).unwrap();
    assert!(node.inside("/usr/bin/systemctl", &["daemon-reload"]).status.success());

    // A damaged file is repaired without a restart.
    let restarted = node.incarnation();
    let qemu = node.root.join("opt/kata-operator/current/payload/bin/qemu-system-x86_64");
    fs::write(&qemu, "rotten").unwrap();
    let report = node.run(NodeAction::Inspect, "b", &["kata", "kata-two"]);
    assert_eq!(report.outcome, Outcome::Drifted, "{report:?}");
    assert!(node.stage("b", &b).status.success());
    let report = node.run(NodeAction::Install, "b", &["kata", "kata-two"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(fs::read_to_string(&qemu).unwrap(), "3.25.0");
    assert_eq!(node.incarnation(), restarted);

    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(report.handlers, Some(vec!["runc".to_owned()]));
    assert_same(&node.files(), &before);
    let again = node.run(NodeAction::Remove, "", &[]);
    assert_eq!((again.outcome, again.changed, again.restarted), (Outcome::Done, false, false));
}
