//! The two pods from inside, as `kubectl exec` shows them, and the sandbox from outside, as `ps` on the
//! node shows it.
//!
//! The answers are the simulator's models; this module only asks and compares.

use serde_json::Value;
use simcluster::api::frontend::{ExecRequest, Session};
use simcluster::world::Platform;
use simcluster::{Simulation, resource};

/// The pod without a runtime class.
pub(crate) const REGULAR: &str = "example-net-tools-regular";
/// The pod with runtime class kata.
pub(crate) const SANDBOXED: &str = "example-net-tools-kata";
const NAMESPACE: &str = "test-kata";

/// What a pod says of the kernel that it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Signals {
    boot_id: String,
    uptime: u64,
    cmdline: String,
    cpus: usize,
    kernel: String,
}

/// Both pods, and what the node runs for the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    sandboxed: Signals,
    regular: Signals,
    node_boot_id: String,
    processes: Vec<String>,
    /// Whether the guest's kernel is made of the node's, as on RHCOS, and does not come with a payload.
    kernel_of_node: bool,
}

/// Asks both pods.
pub(crate) fn compare(sim: &mut Simulation) -> Comparison {
    let node = sim.api.get(&resource::NODES, "", "worker-0");
    let uid = sim
        .api
        .get(&resource::PODS, NAMESPACE, SANDBOXED)
        .and_then(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned))
        .unwrap_or_default();
    let host = sim.world.hosts.get("worker-0");
    let sandbox = host.and_then(|host| host.sandboxes.get(&uid)).map(|sandbox| sandbox.id.clone());
    let processes = host
        .into_iter()
        .flat_map(|host| host.processes.values())
        .map(|process| process.argv.join(" "))
        .filter(|command| sandbox.as_ref().is_some_and(|id| command.contains(id)))
        .collect();
    let kernel_of_node = host.is_some_and(|host| host.platform() == Platform::OpenShift);
    Comparison {
        sandboxed: signals(sim, SANDBOXED),
        regular: signals(sim, REGULAR),
        node_boot_id: node
            .map(|node| node["status"]["nodeInfo"]["bootID"].clone())
            .and_then(|id: Value| id.as_str().map(str::to_owned))
            .unwrap_or_default(),
        kernel_of_node,
        processes,
    }
}

fn signals(sim: &mut Simulation, pod: &str) -> Signals {
    let mut run = |argv: &[&str]| exec(sim, pod, argv);
    let uptime = run(&["cat", "/proc/uptime"]);
    Signals {
        boot_id: run(&["cat", "/proc/sys/kernel/random/boot_id"]).trim().to_owned(),
        uptime: uptime
            .split('.')
            .next()
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or_default(),
        cmdline: run(&["cat", "/proc/cmdline"]).trim().to_owned(),
        cpus: run(&["cat", "/proc/cpuinfo"])
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count(),
        kernel: run(&["uname", "-r"]).trim().to_owned(),
    }
}

fn exec(sim: &mut Simulation, pod: &str, argv: &[&str]) -> String {
    let request = ExecRequest {
        namespace: NAMESPACE.to_owned(),
        pod: pod.to_owned(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        ..ExecRequest::default()
    };
    let Some(hook) = sim.frontend.exec else { return String::new() };
    hook(&mut sim.world, &sim.api, &request, &mut Session::default(), &[])
        .map(|outcome| String::from_utf8_lossy(&outcome.stdout).into_owned())
        .unwrap_or_default()
}

impl Comparison {
    /// The comparison for people.
    pub(crate) fn table(&self) -> Vec<String> {
        let (a, b) = (&self.sandboxed, &self.regular);
        let row = |signal: &str, a: &str, b: &str| {
            format!("{signal:<10} {:<34} {}", cut(a, 32), cut(b, 32))
        };
        vec![
            row("", "SANDBOXED", "REGULAR"),
            row("boot id", &a.boot_id, &b.boot_id),
            row("uptime", &format!("{}s", a.uptime), &format!("{}s", b.uptime)),
            row("cmdline", &a.cmdline, &b.cmdline),
            row("CPUs", &a.cpus.to_string(), &b.cpus.to_string()),
            row("kernel", &a.kernel, &b.kernel),
        ]
    }

    /// What must hold of a sandbox.
    pub(crate) fn facts(&self) -> Vec<(bool, String)> {
        let (a, b) = (&self.sandboxed, &self.regular);
        let process = |name: &str| self.processes.iter().any(|command| command.contains(name));
        vec![
            (
                !a.boot_id.is_empty() && a.boot_id != b.boot_id && b.boot_id == self.node_boot_id,
                "boot id: the sandboxed pod has its own, the regular pod has the node's".to_owned(),
            ),
            (
                a.uptime > 0 && a.uptime < b.uptime,
                "uptime: the virtual machine was born with the pod".to_owned(),
            ),
            (
                a.cmdline.contains("agent.log") && b.cmdline.contains("BOOT_IMAGE"),
                "command line: a guest's, and the node's".to_owned(),
            ),
            (a.cpus == 1 && b.cpus > 1, "CPUs: one, and all of the node's".to_owned()),
            (
                !a.kernel.is_empty() && (a.kernel == b.kernel) == self.kernel_of_node,
                if self.kernel_of_node {
                    "kernel version: equal by design on RHCOS, and no evidence".to_owned()
                } else {
                    "kernel version: the payload's and the node's, and no evidence".to_owned()
                },
            ),
            (
                process("qemu") && process("containerd-shim-kata-v2") && process("virtiofsd"),
                "worker-0 runs a VMM, a shim and a virtiofsd with the sandbox's id".to_owned(),
            ),
        ]
    }
}

/// The first characters of a text, and that there are more.
fn cut(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        text.to_owned()
    } else {
        format!("{}...", text.chars().take(length - 3).collect::<String>())
    }
}
