//! Settings of a runtime on a node: in the file that the shim reads, with the way back, without a restart.

use kata_api::node_task::{NodeAction, NodeReport, NodeTask, Outcome};
use kata_host::paths;

use crate::node::{Node, V2_MAIN, task};
use crate::runs::{done, install};
use crate::runtime::Kind;

/// The keys are some of those that upstream's configuration of the shim `qemu` sets or shows in comments.
const QEMU: &str = "[hypervisor.qemu]\npath = \"/opt/kata/bin/qemu-system-x86_64\"\n\
                    kernel = \"/opt/kata/share/kata-containers/vmlinux.container\"\ndefault_memory = 2048\n\
                    default_vcpus = 1\ndefault_maxvcpus = 0\nkernel_params = \"\"\nenable_annotations = []\n\
                    #enable_debug = true\n\n[agent.kata]\n#enable_debug = true\n#debug_console_enabled = true\n\n\
                    [runtime]\n#enable_debug = true\n";

fn staged() -> Node {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage_with("a", QEMU);
    node
}

fn with_settings(action: NodeAction, config: &str) -> NodeTask {
    let mut task = task(action, "a");
    task.handlers[0].config = Some(config.to_owned());
    task
}

/// The file that the shim of new sandboxes reads.
fn configuration(node: &Node) -> String {
    let path = format!("{}/etc/kata/configuration.toml", paths::CURRENT);
    String::from_utf8(node.disk.read(&path).unwrap()).unwrap()
}

fn messages(report: &NodeReport, code: &str) -> Vec<String> {
    let checks = report.checks.iter().filter(|check| check.code == code);
    checks.map(|check| check.message.clone()).collect()
}

#[test]
fn settings_win_over_the_payload_and_over_the_log_level_and_need_no_restart() {
    let mut node = staged();
    done(&mut node, &install());
    let before = configuration(&node);
    node.sandbox("1", "kata");
    let settings = "[hypervisor.qemu]\ndefault_memory = 4096\nenable_debug = false\n";
    let mut wanted = with_settings(NodeAction::Install, settings);
    wanted.log_level = Some("debug".to_owned());
    let report = done(&mut node, &wanted);
    assert!(report.changed && !report.restarted, "{report:?}");
    let text = configuration(&node);
    for line in ["default_memory = 4096", "enable_debug = false"] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
    assert!(!text.contains("\"/opt/kata/"), "paths of this node\n{text}");
    assert_eq!(
        text.lines().filter(|it| *it == "enable_debug = true").count(),
        2,
        "of the agent and the runtime\n{text}"
    );
    assert!(!done(&mut node, &wanted).changed);

    // The way back.
    let report = done(&mut node, &install());
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(configuration(&node), before);
}

#[test]
fn an_edited_configuration_with_settings_is_drift() {
    let mut node = staged();
    done(
        &mut node,
        &with_settings(NodeAction::Install, "[hypervisor.qemu]\ndefault_memory = 4096\n"),
    );
    let path = format!("{}/etc/kata/configuration.toml", paths::CURRENT);
    node.disk.write(&path, QEMU.as_bytes(), 0o644).unwrap();
    let inspect = with_settings(NodeAction::Inspect, "[hypervisor.qemu]\ndefault_memory = 4096\n");
    let report = kata_host::run(&mut node, &inspect);
    assert_eq!(report.outcome, Outcome::Drifted, "{report:?}");
}

/// Shims merge what is in `config.d` beside their configuration.
#[test]
fn files_beside_the_configuration_are_drift_and_go() {
    let mut node = staged();
    done(&mut node, &install());
    let folder = format!("{}/etc/kata/config.d", paths::CURRENT);
    node.disk.make_dir(&folder, 0o755).unwrap();
    let file = format!("{folder}/10-memory.toml");
    node.disk.write(&file, b"[hypervisor.qemu]\ndefault_memory = 64\n", 0o644).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!(report.outcome, Outcome::Drifted, "{report:?}");
    let found = messages(&report, "KATA3041");
    assert!(
        found.len() == 1
            && found[0].ends_with(
                "/etc/kata/config.d was added, and the next change of the node deletes it: move its settings to \
                 spec.runtimes[].config"
            ),
        "{report:?}"
    );
    let report = done(&mut node, &install());
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(node.disk.stat(&folder), None);
    assert!(!done(&mut node, &install()).changed);
}

#[test]
fn settings_that_do_not_fit_the_payload_change_nothing() {
    for (settings, expected) in [
        (
            "[hypervisor.clh]\ndefault_memory = 1\n",
            "for the handler kata it sets hypervisor.clh, but configuration-qemu.toml has only [hypervisor.qemu]",
        ),
        (
            "[hypervisor.qemu]\ndefault_memory = \"4096\"\n",
            "for the handler kata it sets hypervisor.qemu.default_memory to a string, and configuration-qemu.toml has an \
             integer there",
        ),
        (
            "[hypervisor.qemu]\nkernel = \"/opt/kata/custom/vmlinux\"\n",
            "for the handler kata it sets hypervisor.qemu.kernel to /opt/kata/custom/vmlinux, which the \
             payload does not have",
        ),
        ("[hypervisor.qemu\n", "for the handler kata it is no TOML: "),
    ] {
        for action in [NodeAction::Preflight, NodeAction::Install] {
            let mut node = staged();
            let disk = node.disk.all();
            let report = kata_host::run(&mut node, &with_settings(action, settings));
            assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
            let found = messages(&report, "KATA3044");
            assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
            assert_eq!(node.disk.all(), disk, "{settings}");
        }
    }
}

#[test]
fn an_unknown_key_is_a_warning_with_the_key_that_may_be_meant() {
    let mut node = staged();
    let settings = "[hypervisor.qemu]\ndefault_memry = 4096\n";
    let report = done(&mut node, &with_settings(NodeAction::Install, settings));
    assert_eq!(
        messages(&report, "KATA3043"),
        [
            "spec.runtimes[].config of the handler kata sets hypervisor.qemu.default_memry, which the payload's configuration neither sets nor shows; did you mean \
          hypervisor.qemu.default_memory?"
        ]
    );
    assert!(configuration(&node).contains("default_memry = 4096"));
}

const PAGE: &str = include_str!("../../../../docs/size-and-tune.md");
/// Each of `examples/settings`, and the lines that the shim reads with it.
const EXAMPLES: [(&str, &[&str]); 5] = [
    (include_str!("../../../../examples/settings/memory.yaml"), &["default_memory = 4096"]),
    (
        include_str!("../../../../examples/settings/cpus.yaml"),
        &["default_vcpus = 4", "default_maxvcpus = 8"],
    ),
    (
        include_str!("../../../../examples/settings/kernel-parameters.yaml"),
        &["kernel_params = \"transparent_hugepage=never\""],
    ),
    (
        include_str!("../../../../examples/settings/annotations.yaml"),
        &["enable_annotations = [\"default_memory\", \"default_vcpus\"]"],
    ),
    (
        include_str!("../../../../examples/settings/debug-console.yaml"),
        &["debug_console_enabled = true"],
    ),
];

#[test]
fn the_examples_reach_the_file_that_the_shim_reads_and_are_what_the_page_shows() {
    for (text, lines) in EXAMPLES {
        let config: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        let runtimes = config["spec"]["runtimes"].as_array().unwrap().iter();
        let settings: Vec<&str> = runtimes.filter_map(|it| it["config"].as_str()).collect();
        let &[settings] = settings.as_slice() else { panic!("{settings:?}\n{text}") };
        assert!(PAGE.contains(&format!("```toml\n{settings}```")), "{settings}");

        let mut node = staged();
        let report = done(&mut node, &with_settings(NodeAction::Install, settings));
        assert_eq!(messages(&report, "KATA3043"), [""; 0]);
        let text = configuration(&node);
        for line in lines {
            assert!(text.lines().any(|it| it == *line), "{line}\n{text}");
        }
    }
}
