//! Settings of a runtime under a running sandbox: no restart, its release is kept until it ends, and the way back.

use std::fs;

use kata_api::node_task::{NodeAction, NodeTask, Outcome};

use crate::lab::{Node, assert_same, report, task};

const CURRENT: &str = "opt/kata-operator/current";
const RELEASES: &str = "opt/kata-operator/releases";

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2() {
    settings("2");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_7() {
    settings("1.7");
}

fn settings(release: &str) {
    let node = Node::start(release, "settings");
    let before = node.files();
    let image = node.image("3.24.0");
    node.import_pause(release);
    assert!(node.stage("a", &image).status.success());
    let run = |action, config: Option<&str>| {
        let mut task: NodeTask = serde_json::from_str(&task(action, "a", &["kata"])).unwrap();
        task.handlers[0].config = config.map(str::to_owned);
        let task = serde_json::to_string(&task).unwrap();
        report(&node.agent(&["run", "--task", &task]).output().unwrap())
    };
    let done = |config| {
        let report = run(NodeAction::Install, config);
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
        report
    };
    let releases = || fs::read_dir(node.root.join(RELEASES)).unwrap().count();
    let target = || fs::read_link(node.root.join(CURRENT)).unwrap();
    let configuration = || {
        let path = node.root.join("opt/kata-operator").join(target());
        let path = path.join("etc/kata/configuration.toml");
        (fs::read_to_string(&path).unwrap(), path)
    };
    done(None);
    let (plain, of_first) = configuration();
    let first = node.pod("first", "kata");
    let incarnation = node.incarnation();
    let unchanged = node.files();

    // What does not fit changes nothing.
    let report = run(NodeAction::Install, Some("[hypervisor.clh]\ndefault_memory = 1\n"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert!(report.checks.iter().any(|check| check.code == "KATA3044"), "{report:?}");
    assert_same(&node.files(), &unchanged);

    let console = "[agent.kata]\nenable_debug = true\n";
    let report = done(Some(console));
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(node.incarnation(), incarnation);
    let (text, of_second) = configuration();
    let (_, agent) = text.split_once("[agent.kata]").unwrap();
    let (agent, _) = agent.split_once("[runtime]").unwrap();
    assert!(agent.contains("\nenable_debug = true"), "{text}");
    assert_ne!(of_first, of_second);
    assert_eq!(fs::read_to_string(&of_first).unwrap(), plain, "the first sandbox has it still");
    assert_eq!(releases(), 2);
    node.assert_untouched(&first);
    let second = node.pod("second", "kata");

    // The way back, which finds the release that the first sandbox kept.
    let report = done(None);
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(configuration(), (plain.clone(), of_first));
    assert_eq!(releases(), 2);
    node.end(&second);
    assert!(!done(None).restarted);
    assert_eq!(releases(), 2, "the first sandbox runs, and may have been started from it");

    // Another program adds to the configuration.
    let added = node.root.join("opt/kata-operator").join(target()).join("etc/kata/config.d");
    fs::create_dir(&added).unwrap();
    fs::write(added.join("10-more.toml"), "[runtime]\nenable_debug = true\n").unwrap();
    let report = run(NodeAction::Inspect, None);
    assert_eq!(report.outcome, Outcome::Drifted, "{report:?}");
    assert!(report.message.contains("/etc/kata/config.d was added"), "{report:?}");
    done(None);
    assert!(!added.exists());

    assert_eq!(node.incarnation(), incarnation);
    node.assert_untouched(&first);
    node.end(&first);
    assert!(!done(None).restarted);
    assert_eq!(releases(), 1);
    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_same(&node.files(), &before);
}
