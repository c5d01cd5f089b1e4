//! What was typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use jiff::SignedDuration;
use simcluster::api::frontend::MAX_SPEED;

/// Try kata-operator on a simulated cluster. No virtual machine runs, and nothing is downloaded.
#[derive(Parser, Debug)]
#[command(name = "kata-sim", version, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run the whole story once, print each fact, exit 0 if all hold
    Walkthrough(WalkthroughArguments),
    /// Run a scenario on virtual time: exit 0 if all it expects holds, 1 if not, 2 if it is wrong
    Script(ScriptArguments),
    /// Serve the simulated cluster on 127.0.0.1 until SIGINT or SIGTERM
    Up(UpArguments),
    /// Make a node of a running simulated cluster fail, or heal it
    Fault(FaultArguments),
    /// Add a node to a running simulated cluster, or remove one
    Node(NodeArguments),
    /// Install kata-deploy, upstream's installer, on all workers of a running simulated cluster
    KataDeploy(KataDeployArguments),
    /// Change how fast the time of a running simulated cluster passes
    Speed(SpeedArguments),
}

#[derive(Args, Debug)]
pub(crate) struct WalkthroughArguments {
    /// The kind of cluster: openshift or kubernetes [default: openshift]
    #[arg(long)]
    pub(crate) platform: Option<simcluster::world::Platform>,
}

#[derive(Args, Debug)]
pub(crate) struct ScriptArguments {
    /// The script; docs/developers/scenarios.md describes the commands
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct UpArguments {
    /// The kind of cluster: openshift or kubernetes [default: openshift]
    #[arg(long)]
    pub(crate) platform: Option<simcluster::world::Platform>,
    /// Number of control-plane nodes [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9))]
    pub(crate) control_plane: Option<u32>,
    /// Number of workers [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) workers: Option<u32>,
    /// No workers: the control-plane nodes run ordinary pods
    #[arg(long, conflicts_with = "workers")]
    pub(crate) compact: bool,
    /// How many times faster than real time controllers, nodes and reboots are
    #[arg(long, default_value_t = 60.0, value_name = "X", value_parser = positive)]
    pub(crate) speed: f64,
    /// How often the operator has nodes inspected that run Kata, such as 10m; --speed does not shorten
    /// that, as it is the operator's time [default: 6h]
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_operator")]
    pub(crate) inspect_every: Option<Duration>,
    /// By how much the operator's clock is ahead of the API server's, such as 6m or -20m
    #[arg(long, value_name = "SPAN", value_parser = clock_offset, default_value = "0s", hide_default_value = true, allow_hyphen_values = true, conflicts_with = "no_operator")]
    pub(crate) clock_offset: SignedDuration,
    /// Port on 127.0.0.1; 0 chooses a free one
    #[arg(long, default_value_t = 6443, value_name = "N")]
    pub(crate) port: u16,
    /// Where to write the kubeconfig, once the cluster serves
    #[arg(long, default_value = "kata-sim.kubeconfig", value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Serve the cluster only; run `kata-operator run --kubeconfig FILE` yourself
    #[arg(long)]
    pub(crate) no_operator: bool,
    /// Image of kata-monitor, which the operator then runs on the nodes with Kata (as an object only)
    #[arg(long, value_name = "REF", conflicts_with = "no_operator")]
    pub(crate) monitor_image: Option<String>,
    /// Check tokens, and allow who shows one only what RBAC grants; who shows none is the
    /// administrator. With --no-operator, bring the CRDs and roles: `kata-operator manifests`
    #[arg(long)]
    pub(crate) rbac: bool,
    /// Keep the cluster's state in this directory, and go on from what is there
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// How a running simulated cluster is found.
#[derive(Args, Debug)]
pub(crate) struct Where {
    /// The kubeconfig that `kata-sim up` wrote [default: the file that KUBECONFIG names, or kata-sim.kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Where {
    /// The kubeconfig. A list of files in KUBECONFIG means the first, as nothing is merged here.
    #[expect(clippy::disallowed_methods, reason = "settings are resolved here")]
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        let named = || {
            let files = std::env::var_os("KUBECONFIG")?;
            std::env::split_paths(&files).find(|file| !file.as_os_str().is_empty())
        };
        self.kubeconfig.clone().or_else(named).unwrap_or_else(|| "kata-sim.kubeconfig".into())
    }
}

/// The faults, for people.
const FAULTS: &str = "\
Faults (simulated):
  no-kvm                  there is no /dev/kvm
  sandbox-fails[=REASON]  virtual machines do not start
  handler-missing         the container runtime ignores its drop-ins
  not-ready               the kubelet reports that the node is not ready
  disk-pressure           the kubelet reports that the node's disk is full
  network-unavailable     the node has no route to the pods of the others
  kubelet-restart         the kubelet restarts once, and admits its pods again
  reboot-hang             the host does not come back from its next reboot
  slow-boot[=FACTOR]      reboots take so many times as long

With --platform kubernetes:
  runtime-fails           the container runtime does not come up with Kata, once it is restarted;
                          `none` starts it
  disk-full               nothing can be written any more, also after files are deleted
  pull-fails              the payload's image cannot be pulled
  agent-killed            the next node agent is killed in the middle of its work
  payload-damaged         a file of the payload has other bytes
  foreign-change          another program adds a handler to the container runtime's files and restarts
                          nothing; `none` takes that back and restarts it
  foreign-break           the same with a change with which the container runtime does not serve

With --platform openshift:
  drain-blocked           pods cannot be evicted
  unreconcilable[=REASON] the daemon refuses the change before it drains
  install-fails[=REASON]  the change of the operating system fails after the drain
  reboot-held             the host stays at the point before its reboot
  boot-fails[=REASON]     after the reboot the host is not as it should be
  uncordon-fails          the node is not uncordoned at the end
  drift[=REASON]          a file is not as the configuration says

docs/developers/findings.md says of every finding which fault, if any, brings it about.";

#[derive(Args, Debug)]
#[command(after_help = FAULTS)]
pub(crate) struct FaultArguments {
    /// The node
    pub(crate) node: String,
    /// The fault, one of those below; or none
    pub(crate) fault: String,
    #[command(flatten)]
    pub(crate) cluster: Where,
}

#[derive(Args, Debug)]
pub(crate) struct NodeArguments {
    /// What to do
    #[arg(value_enum)]
    pub(crate) action: NodeAction,
    /// The node
    pub(crate) name: String,
    /// What a new node is like: handlers=NAME,NAME that its container runtime has from the beginning; runtime=crio,
    /// containerd-1.7, containerd-2 or k3s; system=talos, aks, gke, flatcar or eks; labels=KEY=VALUE,KEY=VALUE and
    /// taints=KEY:EFFECT,KEY:EFFECT of its registration
    pub(crate) options: Vec<String>,
    #[command(flatten)]
    pub(crate) cluster: Where,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeAction {
    /// A new worker joins
    Add,
    /// The node goes away
    Rm,
    /// The machine boots
    Reboot,
    /// The machine is installed anew under the same name, while its Node object stays
    Reinstall,
}

#[derive(Args, Debug)]
pub(crate) struct KataDeployArguments {
    /// Who starts the installations: daemonset or jobs
    pub(crate) mode: String,
    #[command(flatten)]
    pub(crate) cluster: Where,
}

#[derive(Args, Debug)]
pub(crate) struct SpeedArguments {
    /// How many times faster than real time
    #[arg(value_parser = positive)]
    pub(crate) speed: f64,
    #[command(flatten)]
    pub(crate) cluster: Where,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= MAX_SPEED => Ok(value),
        _ => Err(format!("give a number above 0 and at most {MAX_SPEED}")),
    }
}

/// A duration such as 90s, 10m or 6h.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write 90s, 10m or 6h");
    let units = [('s', 1), ('m', 60), ('h', 3_600)];
    let unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, *seconds)));
    let (number, seconds) = unit.ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_wrong| wrong())?;
    let total = number.checked_mul(seconds).filter(|total| *total > 0);
    total.map(Duration::from_secs).ok_or_else(wrong)
}

/// By how much a clock is ahead, up to a day either way.
pub(crate) fn clock_offset(text: &str) -> Result<SignedDuration, String> {
    let wrong =
        || format!("invalid clock offset {text:?}: write 90s, 6m or -20m, 24h at most either way");
    let offset: SignedDuration = text.parse().map_err(|_wrong| wrong())?;
    Some(offset).filter(|it| it.unsigned_abs() <= DAY).ok_or_else(wrong)
}

/// The largest difference of clocks.
const DAY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_every_fault() {
        use simcluster::world::FAULT_NAMES;

        for name in FAULT_NAMES.split(", ") {
            let name = name.split('=').next().unwrap();
            let is_line_of = |line: &str| line.trim_start().split([' ', '[']).next() == Some(name);
            assert!(FAULTS.lines().any(is_line_of), "{name}");
        }
    }

    #[test]
    fn durations_are_read() {
        assert_eq!(duration("10m").unwrap().as_secs(), 600);
        for wrong in ["", "m", "0s", "10", "1d", "-1s", "99999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
