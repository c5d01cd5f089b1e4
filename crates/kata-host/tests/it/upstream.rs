//! What upstream's releases and the distributions have, and the payload and the nodes of the other tests have not.

use kata_api::node_task::{NodeAction, NodeReport, Outcome, TaskHandler};
use kata_host::host::Device;
use kata_host::paths;
use kata_host::payload::{Entry, Manifest};

use crate::node::{Node, V2_MAIN, task};
use crate::runs::{done, install};
use crate::runtime::Kind;

fn preflight(node: &mut Node, shim: &str) -> NodeReport {
    let mut task = task(NodeAction::Preflight, "a");
    task.handlers =
        vec![TaskHandler { name: "kata".to_owned(), shim: shim.to_owned(), config: None }];
    kata_host::run(node, &task)
}

fn has(report: &NodeReport, code: &str) -> bool {
    report.checks.iter().any(|check| check.code == code)
}

/// The others talk to the agent in the guest through a socket of their hypervisor.
#[test]
fn only_qemu_and_stratovirt_need_vsock() {
    for (shim, needs) in [
        ("qemu", true),
        ("qemu-runtime-rs", true),
        ("stratovirt", true),
        ("clh", false),
        ("clh-runtime-rs", false),
        ("dragonball", false),
    ] {
        let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
        node.broken_device = Some(Device::VhostVsock);
        let report = preflight(&mut node, shim);
        assert_eq!(has(&report, "KATA3002"), needs, "{shim}: {report:?}");
    }
}

/// Their pods would fail although the node has all that the handler names.
#[test]
fn shims_that_pull_in_the_guest_are_told_of() {
    for (shim, is_found) in [
        ("qemu-coco-dev", true),
        ("qemu-coco-dev-runtime-rs", true),
        ("qemu-snp", true),
        ("qemu-tdx-runtime-rs", true),
        ("qemu-se", true),
        ("qemu-nvidia-gpu-tdx", true),
        ("qemu", false),
        ("qemu-runtime-rs", false),
        ("qemu-nvidia-gpu", false),
        ("qemu-seven", false),
        ("clh", false),
    ] {
        let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
        let report = preflight(&mut node, shim);
        assert_eq!(has(&report, "KATA3027"), is_found, "{shim}: {report:?}");
        assert_eq!(report.outcome, Outcome::Done, "the admin may have set it up: {report:?}");
    }
}

/// Each build of QEMU has firmware of its own, and finds none by itself outside `/opt/kata`.
#[test]
fn every_build_of_qemu_gets_its_own_firmware() {
    for (suffix, firmware) in [
        ("", "kata-qemu/qemu"),
        ("-snp-experimental", "kata-qemu-snp-experimental/qemu"),
        // It shares that of the plain one.
        ("-other", "kata-qemu/qemu"),
    ] {
        let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
        let program = format!("qemu-system-x86_64{suffix}");
        let path = format!("[hypervisor.qemu]\npath = \"/opt/kata/bin/{program}\"\n");
        node.stage_with("a", &path);
        done(&mut node, &install());
        let wrapper = node.text(&format!("{}/etc/kata/qemu", paths::CURRENT));
        assert!(wrapper.contains(&format!("/bin/{program} -L /opt/kata-operator/")), "{wrapper}");
        assert!(wrapper.contains(&format!("/share/{firmware} \"$@\"")), "{wrapper}");
    }
}

/// The shim refuses a hypervisor that is not in the list of its configuration.
#[test]
fn the_configured_hypervisor_is_in_the_list_of_valid_paths() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage("a");
    done(&mut node, &install());
    let text = node.text(&format!("{}/etc/kata/configuration.toml", paths::CURRENT));
    let table: toml::Table = text.parse().unwrap();
    let qemu = &table["hypervisor"]["qemu"];
    assert!(qemu["path"].as_str().unwrap().ends_with("/etc/kata/qemu"), "{text}");
    let valid = qemu["valid_hypervisor_paths"].as_array().unwrap();
    assert!(valid.contains(&qemu["path"]), "{text}");
}

/// What changes in a ConfigMap reaches a guest only if its shim knows the kubelet's folder.
#[test]
fn the_kubelets_folder_is_the_distributions() {
    let args = "/var/snap/microk8s/current/args";
    let template = format!("{args}/containerd-template.toml");
    let microk8s = "snap.microk8s.daemon-containerd.service";
    let k0s = format!("# k0s_managed=true\n{V2_MAIN}");
    let mut of_k0s = Node::of("k0sworker.service", "/etc/k0s/containerd.toml", &k0s, None);
    of_k0s.runtime.watches = Some("/etc/k0s/containerd.d".to_owned());
    let of_microk8s =
        Node::of(microk8s, &format!("{args}/containerd.toml"), V2_MAIN, Some(&template));
    let plain = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    for (node, folder) in [
        (plain, "/var/lib/kubelet"),
        (of_k0s, "/var/lib/k0s/kubelet"),
        (of_microk8s, "/var/snap/microk8s/common/var/lib/kubelet"),
    ] {
        for known in [true, false] {
            let mut node = node.clone();
            let line = "kubelet_root_dir = \"/var/lib/kubelet\"\n";
            let text = format!("[runtime]\n{}", if known { line } else { "" });
            node.stage_with("a", &text);
            done(&mut node, &install());
            let text = node.text(&format!("{}/etc/kata/configuration.toml", paths::CURRENT));
            let wanted = format!("kubelet_root_dir = \"{folder}\"");
            assert_eq!(text.contains(&wanted), known, "{text}");
            assert_eq!(text.contains("kubelet_root_dir"), known, "{text}");
        }
    }
}

/// Its template has one for the first version of Kata, which no client can take away.
#[test]
fn the_handler_that_microk8s_has_by_itself_is_told_from_another_installation() {
    let args = "/var/snap/microk8s/current/args";
    let stub = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.kata]\n\
                runtime_type = \"io.containerd.kata.v2\"\n";
    let mut node = Node::of(
        "snap.microk8s.daemon-containerd.service",
        &format!("{args}/containerd.toml"),
        &format!("{V2_MAIN}{stub}"),
        Some(&format!("{args}/containerd-template.toml")),
    );
    node.stage("a");
    let report = kata_host::run(&mut node, &install());
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    let message = &report.checks[0].message;
    assert!(message.contains("as MicroK8s does by itself: set spec.runtimes to"), "{message}");
    let mut renamed = install();
    renamed.handlers =
        vec![TaskHandler { name: "kata-qemu".to_owned(), shim: "qemu".to_owned(), config: None }];
    done(&mut node, &renamed);
    assert!(node.offers("kata-qemu"));
}

/// Both places have the configuration of a shim since upstream has two runtimes.
#[test]
fn the_runtime_of_a_shim_is_upstreams_choice() {
    let defaults = "share/defaults/kata-containers";
    let file = || Entry::File { mode: 0o755, size: 0, sha256: String::new() };
    let mut manifest = Manifest { entries: [].into() };
    for folder in ["bin", "runtime-rs/bin"] {
        manifest.entries.insert(format!("{folder}/containerd-shim-kata-v2"), file());
    }
    for shim in ["remote", "dragonball"] {
        for folder in ["", "/runtime-rs"] {
            let path = format!("{defaults}{folder}/configuration-{shim}.toml");
            manifest.entries.insert(path, file());
        }
    }
    let binary = |shim: &str| manifest.shim(shim).unwrap().binary;
    assert_eq!(binary("remote"), "bin/containerd-shim-kata-v2");
    assert_eq!(binary("dragonball"), "runtime-rs/bin/containerd-shim-kata-v2");
}
