//! What can go wrong with a node, by the names that `kata-sim fault` takes.

use serde::{Deserialize, Serialize};

use super::Platform;

/// Something that goes wrong on a host.
///
/// A fault lasts until it is removed from [`super::Host::faults`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeFault {
    /// Pods on the node cannot be evicted, whatever the budgets say.
    FailDrain,
    /// The daemon refuses the change before it drains, with this reason.
    Unreconcilable(String),
    /// The change of the operating system fails after the drain, with this reason.
    InstallFails(String),
    /// The host stays at the point before its reboot.
    HoldReboot,
    /// The host does not come back from its reboot.
    RebootHang,
    /// After the reboot the daemon finds the host not as it should be, for this reason.
    BootFails(String),
    /// The node is not uncordoned at the end.
    FailUncordon,
    /// A file is not as the configuration says, for this reason.
    Drift(String),
    /// The host has no `/dev/kvm`: virtual machines do not start.
    NoKvm,
    /// The container runtime ignores its drop-ins from its next start on.
    HandlerMissing,
    /// Reboots take this many times as long.
    SlowBoot(u32),
    /// The container runtime cannot make the sandboxes of virtual machines, in these words.
    SandboxFails(String),
    /// The kubelet reports that the node is not ready.
    NotReady,
    /// The kubelet reports that the node's disk is full: it admits no pods but those that the node needs itself.
    DiskPressure,
    /// The node has no route to the pods of the others.
    NetworkUnavailable,
    /// The kubelet restarts. That happens at once and is over: it is never in [`super::Host::faults`].
    KubeletRestart,
    /// Without the Machine Config Operator: the container runtime does not serve while Kata is configured.
    RuntimeFails,
    /// Without the Machine Config Operator: nothing can be written any more, whatever is deleted.
    DiskFull,
    /// Without the Machine Config Operator: the payload's image cannot be pulled.
    PullFails,
    /// Without the Machine Config Operator: the next node agent is killed in the middle of its work.
    AgentKilled,
    /// Without the Machine Config Operator: a file of the payload has other bytes than it was written with,
    /// with nothing else to tell it from an intact one. It stays so until somebody writes it anew.
    PayloadDamaged,
    /// Without the Machine Config Operator: another program adds a handler to the container runtime's files and
    /// restarts nothing. At the end of the fault it takes that back and restarts the container runtime.
    ForeignChange,
    /// Without the Machine Config Operator: the same with a change with which the container runtime does not serve.
    ForeignBreak,
}

/// What [`NodeFault`]'s `from_str` accepts.
pub const FAULT_NAMES: &str = "no-kvm, drain-blocked, reboot-hang, reboot-held, handler-missing, \
                               slow-boot=FACTOR, install-fails=REASON, unreconcilable=REASON, \
                               boot-fails=REASON, uncordon-fails, drift=REASON, \
                               sandbox-fails=REASON, not-ready, disk-pressure, network-unavailable, kubelet-restart, \
                               runtime-fails, disk-full, \
                               pull-fails, agent-killed, payload-damaged, foreign-change, \
                               foreign-break";

impl NodeFault {
    /// The only platform on which the fault does anything, if there is one.
    pub fn only_on(&self) -> Option<Platform> {
        match self {
            Self::FailDrain
            | Self::Unreconcilable(_)
            | Self::InstallFails(_)
            | Self::HoldReboot
            | Self::BootFails(_)
            | Self::FailUncordon
            | Self::Drift(_) => Some(Platform::OpenShift),
            Self::RuntimeFails
            | Self::DiskFull
            | Self::PullFails
            | Self::AgentKilled
            | Self::PayloadDamaged
            | Self::ForeignChange
            | Self::ForeignBreak => Some(Platform::Kubernetes),
            Self::RebootHang
            | Self::NoKvm
            | Self::HandlerMissing
            | Self::SlowBoot(_)
            | Self::SandboxFails(_)
            | Self::NotReady
            | Self::DiskPressure
            | Self::NetworkUnavailable
            | Self::KubeletRestart => None,
        }
    }
}

impl std::str::FromStr for NodeFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) =
            text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let reason = |default: &str| value.unwrap_or(default).to_owned();
        let fault = match name {
            "no-kvm" => Self::NoKvm,
            "drain-blocked" => Self::FailDrain,
            "reboot-hang" => Self::RebootHang,
            "reboot-held" => Self::HoldReboot,
            "handler-missing" => Self::HandlerMissing,
            "not-ready" => Self::NotReady,
            "disk-pressure" => Self::DiskPressure,
            "network-unavailable" => Self::NetworkUnavailable,
            "kubelet-restart" => Self::KubeletRestart,
            "runtime-fails" => Self::RuntimeFails,
            "disk-full" => Self::DiskFull,
            "pull-fails" => Self::PullFails,
            "agent-killed" => Self::AgentKilled,
            "payload-damaged" => Self::PayloadDamaged,
            "foreign-change" => Self::ForeignChange,
            "foreign-break" => Self::ForeignBreak,
            "uncordon-fails" => Self::FailUncordon,
            "install-fails" => Self::InstallFails(reason(
                "error running rpm-ostree update --install kata-containers: error: \
                 Packages not found: kata-containers",
            )),
            "unreconcilable" => Self::Unreconcilable(reason("simulated")),
            "boot-fails" => Self::BootFails(reason("simulated")),
            "drift" => Self::Drift(reason("simulated")),
            "sandbox-fails" => Self::SandboxFails(reason(
                "CreateContainer failed: Failed to check if grpc server is working: rpc error: code = \
                 DeadlineExceeded desc = timed out connecting to vsock 1217660058:1024: unknown",
            )),
            "slow-boot" => {
                let factor = value.unwrap_or("10").trim_end_matches('x');
                Self::SlowBoot(factor.parse().ok().filter(|f| (1..=1000).contains(f)).ok_or_else(
                    || format!("slow-boot={factor}: the factor must be a number from 1 to 1000"),
                )?)
            }
            _ => return Err(format!("unknown fault {text:?}: give one of {FAULT_NAMES}")),
        };
        Ok(fault)
    }
}

impl std::fmt::Display for NodeFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FailDrain => f.write_str("drain-blocked"),
            Self::Unreconcilable(reason) => write!(f, "unreconcilable={reason}"),
            Self::InstallFails(reason) => write!(f, "install-fails={reason}"),
            Self::HoldReboot => f.write_str("reboot-held"),
            Self::RebootHang => f.write_str("reboot-hang"),
            Self::BootFails(reason) => write!(f, "boot-fails={reason}"),
            Self::FailUncordon => f.write_str("uncordon-fails"),
            Self::Drift(reason) => write!(f, "drift={reason}"),
            Self::SandboxFails(reason) => write!(f, "sandbox-fails={reason}"),
            Self::NoKvm => f.write_str("no-kvm"),
            Self::HandlerMissing => f.write_str("handler-missing"),
            Self::SlowBoot(factor) => write!(f, "slow-boot={factor}x"),
            Self::NotReady => f.write_str("not-ready"),
            Self::DiskPressure => f.write_str("disk-pressure"),
            Self::NetworkUnavailable => f.write_str("network-unavailable"),
            Self::KubeletRestart => f.write_str("kubelet-restart"),
            Self::RuntimeFails => f.write_str("runtime-fails"),
            Self::DiskFull => f.write_str("disk-full"),
            Self::PullFails => f.write_str("pull-fails"),
            Self::AgentKilled => f.write_str("agent-killed"),
            Self::PayloadDamaged => f.write_str("payload-damaged"),
            Self::ForeignChange => f.write_str("foreign-change"),
            Self::ForeignBreak => f.write_str("foreign-break"),
        }
    }
}
