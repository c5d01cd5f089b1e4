//! The distributions that keep containerd's configuration elsewhere.

use kata_api::node_task::{NodeAction, Outcome};
use kata_host::paths;

use crate::node::{Node, V2_MAIN, task};
use crate::runs::{done, install, remove};
use crate::runtime::Kind;

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
    assert_eq!(again.outcome, Outcome::Done, "{again:?}");
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
    // A template of one line would leave nothing of the distribution's own settings.
    let message = &report.checks[0].message;
    let folder = "/var/lib/rancher/k3s/agent/etc/containerd";
    assert!(
        message.contains(&format!("imports = [\"{folder}/config-v3.toml.d/*.toml\"]`")),
        "{message}"
    );
    assert!(
        message.ends_with("make one of that line and `{{ template \"base\" . }}`"),
        "{message}"
    );
    assert_eq!(node.disk.all(), before);
}

/// By the unit's command, by the configuration file, and by a file beside it, which wins.
#[test]
fn k3s_and_rke2_are_found_in_the_data_directory_that_they_were_given() {
    for (unit, name) in [("k3s.service", "k3s"), ("rke2-agent.service", "rke2")] {
        for way in ["--data-dir", "--data-dir=", "-d", "config.yaml", "config.yaml.d"] {
            let folder = "/var/data/agent/etc/containerd";
            let main = format!("{folder}/config.toml");
            let text = format!("imports = [\"{folder}/config-v3.toml.d/*.toml\"]\n{V2_MAIN}");
            let mut node = Node::of(unit, &main, &text, None);
            node.runtime.command = vec![format!("/usr/local/bin/{name}"), "server".to_owned()];
            let etc = format!("/etc/rancher/{name}");
            let mut file = |path: &str, text: &str| {
                let mut place = String::new();
                for part in paths::parent(path).split('/').skip(1) {
                    place = format!("{place}/{part}");
                    node.disk.make_dir(&place, 0o755).unwrap();
                }
                node.disk.write(path, text.as_bytes(), 0o600).unwrap();
            };
            let config = format!("{etc}/config.yaml");
            match way {
                "config.yaml" => file(&config, "token: x\ndata-dir: \"/var/data/\" # big\n"),
                "config.yaml.d" => {
                    file(&config, "data-dir: /var/other\n");
                    file(&format!("{config}.d/10-data.yaml"), "data-dir: '/var/data'\n");
                    file(&format!("{config}.d/20-x.yaml"), "x:\n  data-dir: /var/no\n");
                    file(&format!("{config}.d/90-off.txt"), "data-dir: /var/no\n");
                }
                "--data-dir=" => node.runtime.command.push("--data-dir=/var/data".to_owned()),
                word => node.runtime.command.extend([word, "/var/data"].map(str::to_owned)),
            }
            comes_and_goes(node, &format!("{folder}/config-v3.toml.d/60-kata-operator.toml"), 1);
        }
    }
}

#[test]
fn k3s_with_its_data_where_nobody_looks_is_refused_with_where_it_may_be() {
    let main = "/data/k3s/agent/etc/containerd/config.toml";
    let mut node = Node::of("k3s.service", main, V2_MAIN, None);
    // Of the node, the agent's pod does not have this folder.
    node.disk.remove_tree("/data");
    node.runtime.command =
        ["/usr/local/bin/k3s", "agent", "--data-dir", "/data/k3s"].map(str::to_owned).to_vec();
    node.stage("a");
    let before = node.disk.all();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3012", "{report:?}");
    let message = &report.checks[0].message;
    assert!(message.starts_with("k3s.service keeps its data in /data/k3s, and"), "{message}");
    assert!(message.ends_with("so let its data-dir be below /var"), "{message}");
    assert_eq!(report.checks.len(), 1, "{report:?}");
    assert_eq!(node.disk.all(), before);
}

/// It serves CRI, so there is one: in an environment file, of which nothing is known, or behind a link.
#[test]
fn k3s_whose_configuration_is_not_where_it_belongs_is_told_so() {
    let main = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
    let mut node = Node::of("k3s.service", main, V2_MAIN, None);
    node.disk.remove_tree("/var/lib/rancher");
    node.stage("a");
    let refusal = |node: &Node| {
        let report = kata_host::run(&mut node.clone(), &task(NodeAction::Install, "a"));
        assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
        assert_eq!(report.checks[0].code, "KATA3012", "{report:?}");
        report.checks[0].message.clone()
    };
    let message = refusal(&node);
    assert!(
        message.starts_with(&format!("k3s.service serves CRI, and {main} is not")),
        "{message}"
    );
    node.disk.symlink("/data/rancher", "/var/lib/rancher").unwrap();
    let message = refusal(&node);
    let link = "/var/lib/rancher is a link to /data/rancher, where nothing is found";
    assert!(message.starts_with(&format!("{main} cannot be used: {link}")), "{message}");
}

/// What does not run any more may have left files that cannot be read. Of what runs, they count.
#[test]
fn the_files_of_a_unit_count_only_if_it_runs() {
    let main = "/etc/containerd/config.toml";
    let mut node = Node::of("containerd.service", main, V2_MAIN, None);
    node.left_over = Some("k3s.service".to_owned());
    let task = task(NodeAction::Preflight, "a");
    for unreadable in ["/etc/rancher/k3s/config.yaml", "/etc/rancher/k3s/config.yaml.d"] {
        let mut node = node.clone();
        node.unreadable = Some(unreadable.to_owned());
        let report = kata_host::run(&mut node, &task);
        assert_eq!(report.outcome, Outcome::Done, "{unreadable}: {report:?}");

        let folder = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
        let mut node = Node::of("k3s.service", folder, V2_MAIN, None);
        node.unreadable = Some(unreadable.to_owned());
        let report = kata_host::run(&mut node, &task);
        assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
        assert!(report.message.contains(unreadable), "{report:?}");
    }
}

/// It does not serve yet, and a plain containerd beside it knows nothing of its sandboxes.
#[test]
fn a_distribution_that_is_being_started_is_waited_for_whatever_runs_beside_it() {
    for unit in ["k3s.service", "rke2-agent.service", "k0sworker.service"] {
        let main = "/etc/containerd/config.toml";
        let mut node = Node::of("containerd.service", main, V2_MAIN, None);
        node.runtime.socket = Some("/run/containerd/containerd.sock".to_owned());
        node.stage("a");
        done(&mut node, &install());
        node.starting = Some(unit.to_owned());
        let before = node.disk.all();
        for task in [remove(), install()] {
            let report = kata_host::run(&mut node, &task);
            assert_eq!(report.outcome, Outcome::Refused, "{unit}: {report:?}");
            assert_eq!(report.checks[0].code, "KATA3009", "{unit}: {report:?}");
            let message = &report.checks[0].message;
            // k0s is not restarted by us, so its unit is not named.
            let names_unit =
                message.starts_with(&format!("{unit} is activating (start): cannot ask CRI"));
            assert!(names_unit || unit.starts_with("k0s"), "{message}");
            assert_eq!(node.disk.all(), before, "{unit}");
        }
        node.starting = None;
        done(&mut node, &remove());
    }
}

#[test]
fn containerd_is_asked_where_its_configuration_or_its_command_says() {
    let main = "/etc/containerd/config.toml";
    let text = format!("{V2_MAIN}\n[grpc]\n  address = \"/run/mine/containerd.sock\"\n");
    let drop_in = "/etc/containerd/conf.d/60-kata-operator.toml";
    let mut node = Node::of("containerd.service", main, &text, None);
    node.runtime.socket = Some("/run/mine/containerd.sock".to_owned());
    comes_and_goes(node.clone(), drop_in, 1);
    let command = ["/usr/bin/containerd", "-a", "/run/other.sock"];
    node.runtime.command = command.map(str::to_owned).to_vec();
    node.runtime.socket = Some("/run/other.sock".to_owned());
    comes_and_goes(node, drop_in, 1);
    // Since 2.3 it is the setting of a plugin.
    let text = "version = 4\n[plugins.\"io.containerd.server.v1.grpc\"]\n\
                address = \"/run/mine/containerd.sock\"\n";
    let mut node = Node::of("containerd.service", main, text, None);
    node.runtime.kind = Kind::Containerd(2, 3);
    node.runtime.socket = Some("/run/mine/containerd.sock".to_owned());
    node.runtime.start(&mut node.disk);
    node.runtime.restarts = 0;
    comes_and_goes(node, drop_in, 1);
}

/// containerd 2 takes nothing of CRI from a file without a version or of version 1, and reads ours beside it.
#[test]
fn containerd_2_is_changed_whatever_version_its_file_has() {
    let main = "/etc/containerd/config.toml";
    let drop_in = "/etc/containerd/conf.d/60-kata-operator.toml";
    for text in [
        "# of a package\ndisabled_plugins = []\n",
        "version = 1\n",
        "[plugins.cri]\nsandbox_image = \"pause\"\n",
    ] {
        comes_and_goes(Node::of("containerd.service", main, text, None), drop_in, 1);
    }
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
    // k0s looks at the first line only.
    let text = format!("# of ours\n# k0s_managed=true\n{V2_MAIN}");
    let mut node = Node::of("k0sworker.service", "/etc/k0s/containerd.toml", &text, None);
    let report = kata_host::run(&mut node, &task(NodeAction::Preflight, "a"));
    assert_eq!(report.checks[0].code, "KATA3013", "{report:?}");
}

/// Into the file that k0s makes of all drop-ins come our handlers, too.
#[test]
fn what_k0s_makes_of_our_drop_in_is_not_taken_for_a_file_of_somebody_else() {
    let rendered = "/run/k0s/containerd-cri.toml";
    let text = format!("# k0s_managed=true\nversion = 2\nimports = [\"{rendered}\"]\n");
    let mut node = Node::of("k0sworker.service", "/etc/k0s/containerd.toml", &text, None);
    node.disk.make_dir("/run/k0s", 0o755).unwrap();
    node.runtime.kind = Kind::Containerd(1, 7);
    node.runtime.watches = Some("/etc/k0s/containerd.d".to_owned());
    node.runtime.renders = Some(rendered.to_owned());
    node.runtime.start(&mut node.disk);
    comes_and_goes(node.clone(), "/etc/k0s/containerd.d/60-kata-operator.toml", 0);

    node.stage("a");
    done(&mut node, &install());
    assert!(node.text(rendered).contains("runtimes.kata]"), "{}", node.text(rendered));
    let report = done(&mut node, &task(NodeAction::Inspect, "a"));
    assert!(report.checks.is_empty(), "{report:?}");

    // Without a journal only the files show which handlers are ours.
    node.disk.unlink(paths::STATE).unwrap();
    node.sandbox("one", "kata");
    let before = node.disk.all();
    let report = kata_host::run(&mut node, &remove());
    assert_eq!(report.outcome, Outcome::Blocked, "{report:?}");
    assert_eq!(report.sandboxes[0].pod, "web-one");
    assert_eq!(node.disk.all(), before);
    node.runtime.sandboxes.clear();
    done(&mut node, &remove());
    assert!(!node.offers("kata") && node.offers("runc"));
}

#[test]
fn microk8s_gets_the_import_in_its_template() {
    let folder = "/var/snap/microk8s/current/args";
    let template = format!("{folder}/containerd-template.toml");
    let mut node = Node::of(
        "snap.microk8s.daemon-containerd.service",
        &format!("{folder}/containerd.toml"),
        V2_MAIN,
        Some(&template),
    );
    // A user of its group may read it without being root.
    let group = (0, 998);
    node.disk.give(&template, group);
    let mut installed = node.clone();
    installed.stage("a");
    done(&mut installed, &install());
    assert_ne!(installed.text(&template), V2_MAIN);
    assert_eq!(installed.disk.owner(&template), Some(group));
    let mut undone = node.clone();
    undone.stage("a");
    undone.runtime.chokes_on = Some("kata".to_owned());
    let report = kata_host::run(&mut undone, &install());
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    assert_eq!(undone.text(&template), V2_MAIN);
    assert_eq!(undone.disk.owner(&template), Some(group));
    comes_and_goes(node, &format!("{folder}/containerd.d/60-kata-operator.toml"), 1);
}
