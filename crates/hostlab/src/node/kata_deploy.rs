//! A node on which kata-deploy installed Kata, as releases 4.1 and 4.2 leave one with containerd 2.
//!
//! Where its drop-in is depends on whether the main file imports `conf.d` already; else the main file imports the
//! drop-in itself, which is in its own tree then.

use std::fmt::Write as _;

use kata_api::node_task::{NodeAction, NodeTask, TaskHandler};

use super::{Node, V2_MAIN, task};
use crate::runtime::Kind;

/// The drop-in where the main file imports its folder.
pub const IMPORTED: &str = "/etc/containerd/conf.d/kata-deploy.toml";
/// The drop-in that the main file imports itself.
pub const LITERAL: &str = "/opt/kata/containerd/config.d/kata-deploy.toml";
/// The folder of the settings of its shim `qemu`.
pub const SETTINGS: &str = "/opt/kata/share/defaults/kata-containers/runtimes/qemu/config.d";

/// What it writes for these shims into its drop-in.
pub fn drop_in(shims: &[&str]) -> String {
    let mut text = String::new();
    for shim in shims {
        let runtime =
            format!("plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.kata-{shim}");
        write!(
            text,
            "[{runtime}]\nruntime_type = \"io.containerd.kata-{shim}.v2\"\nruntime_path = \
             \"/opt/kata/bin/containerd-shim-kata-v2\"\nprivileged_without_host_devices = true\npod_annotations = \
             [\"io.katacontainers.*\"]\ncontainer_annotations = [\"io.kubernetes.container.terminationMessage*\"]\n\n\
             [{runtime}.options]\nConfigPath = \"/opt/kata/share/defaults/kata-containers/runtimes/{shim}/configuration-{shim}.toml\"\n\n"
        )
        .unwrap();
    }
    text
}

/// A node of it with the shims `qemu` and `clh`, whose containerd runs with them, and a sandbox of each.
pub fn node(is_imported: bool) -> Node {
    let (kind, path) = if is_imported {
        (Kind::Containerd(2, 2), IMPORTED)
    } else {
        (Kind::Containerd(2, 1), LITERAL)
    };
    let import = if is_imported { "/etc/containerd/conf.d/*.toml" } else { LITERAL };
    let main = format!("imports = [\"{import}\"]\n{V2_MAIN}");
    let mut node = Node::new(kind, None);
    for folder in [
        "/etc/containerd",
        "/etc/containerd/conf.d",
        "/etc/modules-load.d",
        "/opt/kata",
        "/opt/kata/bin",
        "/opt/kata/containerd",
        "/opt/kata/containerd/config.d",
        "/opt/kata/share",
        "/opt/kata/share/defaults",
        "/opt/kata/share/defaults/kata-containers",
        "/opt/kata/share/defaults/kata-containers/runtimes",
        "/opt/kata/share/defaults/kata-containers/runtimes/qemu",
        SETTINGS,
    ] {
        node.disk.make_dir(folder, 0o755).unwrap();
    }
    for (file, text) in [
        ("/etc/containerd/config.toml", main.as_str()),
        ("/etc/modules-load.d/kata-containers-default.conf", "vhost_vsock\nvhost_net\n"),
        ("/opt/kata/bin/containerd-shim-kata-v2", "its shim"),
        (&format!("{SETTINGS}/10-installation-prefix.toml"), "[hypervisor.qemu]\n"),
        (&format!("{SETTINGS}/50-user-overrides.toml"), "[runtime]\nenable_debug = true\n"),
        (path, &drop_in(&["qemu", "clh"])),
    ] {
        node.disk.write(file, text.as_bytes(), 0o644).unwrap();
    }
    node.boot();
    node.runtime.restarts = 0;
    node.sandbox("its-1", "kata-qemu");
    node.sandbox("its-2", "kata-clh");
    node.disk.settle();
    node
}

/// The task that takes such a node over, or gives it back.
pub fn take_over(action: NodeAction, image: &str) -> NodeTask {
    let shims = if action == NodeAction::Remove { &[][..] } else { &["qemu", "clh"] };
    let handlers = shims.iter().map(|shim| TaskHandler {
        name: format!("kata-{shim}"),
        shim: (*shim).to_owned(),
        config: None,
    });
    NodeTask { take_over: true, handlers: handlers.collect(), ..task(action, image) }
}
