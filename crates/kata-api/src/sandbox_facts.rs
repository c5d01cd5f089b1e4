//! The sandbox of one pod and its processes on a node: `kata-operator node-agent sandbox` prints it, `kubectl kata verify --host`
//! reads it. Data, and which process is what; the callers read the node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A sandbox and its processes.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxFacts {
    /// The ID of the sandbox, as the container runtime lists it.
    pub sandbox_id: String,
    /// The handler with which it was started; empty for the default one.
    #[serde(default)]
    pub handler: String,
    /// The configuration file of the container runtime that has the handler, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler_file: Option<String>,
    /// The processes whose command line has the ID.
    #[serde(default)]
    pub processes: Vec<SandboxProcess>,
}

/// A process of a sandbox.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxProcess {
    /// Its ID in the node's PID namespace.
    pub pid: u32,
    /// What it does for the sandbox.
    pub role: ProcessRole,
    /// The program, as its command line names it.
    pub program: String,
    /// How QEMU runs the guest's instructions, from its command line: `kvm`, or `tcg` without virtualization by the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
}

/// What a process does for a sandbox.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ProcessRole {
    /// The process that the container runtime talks to. With Dragonball it is the VMM, too.
    Shim,
    /// The virtual machine monitor.
    Vmm,
    /// It shares the pod's files with the guest.
    Virtiofsd,
    /// Something else.
    #[serde(other)]
    Other,
}

impl ProcessRole {
    /// The name that is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shim => "shim",
            Self::Vmm => "VMM",
            Self::Virtiofsd => "virtiofsd",
            Self::Other => "other",
        }
    }
}

/// The names of VMMs that Kata starts as processes of their own.
const VMMS: [&str; 4] = ["qemu", "cloud-hypervisor", "firecracker", "stratovirt"];
/// How many characters of a sandbox's ID a process has at least: Kata cuts the ID to these for Firecracker's jailer.
const ID: usize = 32;

/// How many processes are shown at most, and how many characters of a program: a termination message has 4096 bytes.
const PROCESSES: usize = 16;
const PROGRAM: usize = 128;

impl SandboxProcess {
    /// The processes of the sandbox with this ID, by role.
    pub fn all(
        sandbox_id: &str,
        processes: impl IntoIterator<Item = (u32, Vec<String>)>,
    ) -> Vec<Self> {
        let processes = processes.into_iter();
        let mut found: Vec<Self> = processes
            .filter_map(|(pid, arguments)| Self::of(sandbox_id, pid, &arguments))
            .collect();
        found.sort_by_key(|process| (process.role, process.pid));
        found.truncate(PROCESSES);
        found
    }

    /// The process with this command line, if it is one of the sandbox with this ID.
    fn of(sandbox_id: &str, pid: u32, arguments: &[String]) -> Option<Self> {
        let id = sandbox_id.get(..ID)?;
        let (program, rest) = arguments.split_first()?;
        rest.iter().find(|argument| argument.contains(id))?;
        let name = program.rsplit('/').next().unwrap_or_default();
        let role = if name.contains("shim") {
            ProcessRole::Shim
        } else if name.starts_with("virtiofsd") {
            ProcessRole::Virtiofsd
        } else if VMMS.iter().any(|vmm| name.starts_with(vmm)) {
            ProcessRole::Vmm
        } else {
            ProcessRole::Other
        };
        let words = || rest.iter().flat_map(|argument| argument.split(','));
        let accelerator = ["kvm", "tcg"].into_iter().find(|known| {
            name.starts_with("qemu")
                && words().any(|word| word.strip_prefix("accel=") == Some(known))
        });
        Some(Self {
            pid,
            role,
            program: program.chars().take(PROGRAM).collect(),
            accelerator: accelerator.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SANDBOX: &str = "712a4cb4a28df1e05d31aab6ce9e4a3b5c7d9e0f1a2b3c4d5e6f708192a3b4c5";

    fn process(command: &str) -> Option<(ProcessRole, Option<String>)> {
        let arguments: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let found = SandboxProcess::of(SANDBOX, 7, &arguments)?;
        assert_eq!(found.program, arguments[0]);
        Some((found.role, found.accelerator))
    }

    #[test]
    fn processes_are_known_by_the_id_and_the_program() {
        let short = &SANDBOX[..32];
        let cases = [
            (
                format!("/usr/bin/containerd-shim-kata-v2 -namespace k8s.io -id {SANDBOX}"),
                Some((ProcessRole::Shim, None)),
            ),
            (
                format!(
                    "/usr/libexec/qemu-kvm -name sandbox-{SANDBOX},debug-threads=on -machine q35,accel=kvm -m 2048M"
                ),
                Some((ProcessRole::Vmm, Some("kvm".to_owned()))),
            ),
            (
                format!(
                    "/opt/kata/bin/cloud-hypervisor --api-socket /run/vc/vm/{SANDBOX}/clh-api.sock"
                ),
                Some((ProcessRole::Vmm, None)),
            ),
            (format!("/firecracker --id {short}"), Some((ProcessRole::Vmm, None))),
            (
                format!(
                    "/usr/libexec/virtiofsd --shared-dir=/run/kata-containers/shared/sandboxes/{SANDBOX}/shared"
                ),
                Some((ProcessRole::Virtiofsd, None)),
            ),
            (format!("/usr/bin/conmon -c {SANDBOX}"), Some((ProcessRole::Other, None))),
            ("/usr/libexec/qemu-kvm -name sandbox-ffff".to_owned(), None),
            (SANDBOX.to_owned(), None),
        ];
        for (command, expected) in cases {
            assert_eq!(process(&command), expected, "{command}");
        }
        assert_eq!(SandboxProcess::of("", 1, &["a".to_owned(), "b".to_owned()]), None);
    }
}
