//! The distributions that keep containerd's configuration elsewhere.

use kata_api::node_task::{NodeAction, Outcome};

use crate::node::{Node, V2_MAIN, task};

/// Installs and removes; the handler's configuration must be in this file in between.
fn comes_and_goes(mut node: Node, drop_in: &str, restarts: u32) {
    let before = node.disk.all();
    node.stage("a");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(node.text(drop_in).contains("io.containerd.kata-qemu.v2"), "{:?}", node.disk.all());
    if restarts > 0 {
        assert_eq!(node.runtime.restarts, restarts);
    }
    let again = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert!(!again.changed && !again.restarted, "{again:?}");
    let report = kata_host::run(&mut node, &task(NodeAction::Remove, ""));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(node.disk.all(), before);
}

#[test]
fn k3s_and_rke2_take_a_drop_in_if_their_template_imports_one() {
    for (unit, name) in [
        ("k3s.service", "k3s"),
        ("k3s-agent.service", "k3s"),
        ("rke2-agent.service", "rke2"),
        ("rke2-server.service", "rke2"),
    ] {
        let folder = format!("/var/lib/rancher/{name}/agent/etc/containerd");
        let main = format!("{folder}/config.toml");
        let text = format!("imports = [\"{folder}/config-v3.toml.d/*.toml\"]\n{V2_MAIN}");
        let node = Node::of(unit, &main, &text, None);
        comes_and_goes(node, &format!("{folder}/config-v3.toml.d/60-kata-operator.toml"), 1);
    }
}

#[test]
fn k3s_without_an_import_is_refused_with_the_line_to_add() {
    let main = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
    let mut node = Node::of("k3s.service", main, V2_MAIN, None);
    node.stage("a");
    let before = node.disk.all();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3013");
    assert!(report.checks[0].message.contains("config-v3.toml.d/*.toml\"]` at the top of"));
    assert_eq!(node.disk.all(), before);
}

#[test]
fn k0s_is_waited_for_and_never_restarted() {
    let text = format!("# k0s_managed=true\n{V2_MAIN}");
    let mut node = Node::of("k0sworker.service", "/etc/k0s/containerd.toml", &text, None);
    node.runtime.watches = Some("/etc/k0s/containerd.d".to_owned());
    comes_and_goes(node, "/etc/k0s/containerd.d/60-kata-operator.toml", 0);

    let mut node = Node::of("k0sworker.service", "/etc/k0s/containerd.toml", V2_MAIN, None);
    node.stage("a");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.checks[0].code, "KATA3013", "{report:?}");
}

#[test]
fn microk8s_gets_the_import_in_its_template() {
    let folder = "/var/snap/microk8s/current/args";
    let node = Node::of(
        "snap.microk8s.daemon-containerd.service",
        &format!("{folder}/containerd.toml"),
        V2_MAIN,
        Some(&format!("{folder}/containerd-template.toml")),
    );
    comes_and_goes(node, &format!("{folder}/containerd.d/60-kata-operator.toml"), 1);
}
