//! The command line. Its meaning is in [`crate::environment`].
//!
//! Flags are kubectl's where kubectl has them, and are accepted before and after the verb.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::human::{parse_duration, parse_lines};
use crate::settings::Output;

/// Inspect, verify and troubleshoot sandboxed pods and the roll-out of Kata Containers.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-kata",
    bin_name = "kubectl kata",
    version,
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 fine, 1 findings (not Ready, a check failed), 2 usage, 3 cannot reach or authenticate \
                  to the API server, 4 refused, 5 inconclusive, 124 timeout, 130 interrupted."
)]
pub struct Arguments {
    /// What applies to every command.
    #[command(flatten)]
    pub global: GlobalArguments,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Colour {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Flags of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArguments {
    /// Kubeconfig to use instead of KUBECONFIG or ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// Address of the API server
    #[arg(long, short, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// Bearer token to authenticate with
    #[arg(long, global = true, value_name = "TOKEN")]
    pub token: Option<String>,
    /// Namespace [default: the context's]
    #[arg(long, short, global = true, value_name = "NS")]
    pub namespace: Option<String>,
    /// All namespaces
    #[arg(long, short = 'A', global = true)]
    pub all_namespaces: bool,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// Group to impersonate; can be given several times
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_groups: Vec<String>,
    /// Uid to impersonate
    #[arg(long = "as-uid", global = true, value_name = "UID")]
    pub impersonate_uid: Option<String>,
    /// How long one request may take, such as 10s; 0 means for ever [default: 30s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse_duration)]
    pub request_timeout: Option<Duration>,
    /// File with the certificates of authorities that the server's certificate may be signed by
    #[arg(long, global = true, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// File with the client certificate to authenticate with
    #[arg(long, global = true, value_name = "FILE")]
    pub client_certificate: Option<PathBuf>,
    /// File with the key of the client certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// Do not check the server's certificate
    #[arg(long, global = true)]
    pub insecure_skip_tls_verify: bool,
    /// Name to look for in the server's certificate
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Form of the result
    #[arg(long, short, global = true, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
    /// Tables without titles
    #[arg(long, global = true)]
    pub no_headers: bool,
    /// When to colour; NO_COLOR and CLICOLOR_FORCE are honoured
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub color: Colour,
    /// Also fail (exit code 1) on warnings
    #[arg(long, global = true, value_name = "LEVEL", value_parser = ["warning"])]
    pub fail_on: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// How far Kata is: the KataConfig, its nodes, and what is wrong
    Status(StatusArguments),
    /// Wait until Kata is ready, gone, or on a node
    Wait(WaitArguments),
    /// Check the cluster, before an installation or after it, or a manifest
    Doctor(DoctorArguments),
    /// Prove that pods run in virtual machines of their own
    Verify(VerifyArguments),
    /// Prove the whole life of Kata on one node: install it, run pods, remove it, and compare with before
    Accept(AcceptArguments),
    /// Why a pod does not run, or is not sandboxed
    #[command(alias = "explain")]
    Why(WhyArguments),
    /// List sandboxed pods
    #[command(alias = "pod", alias = "po")]
    Pods(ListArguments),
    /// List the nodes that have, get or lose Kata
    #[command(alias = "node", alias = "no")]
    Nodes(ListArguments),
    /// How long the changes of nodes took, step by step
    ///
    /// Up to two minutes of a step (of a reboot: half a minute) may be counted in the step before, and a shorter step may
    /// not appear.
    History(HistoryArguments),
    /// Write one HTML page about the last roll-out, for a change record
    Report(ReportArguments),
    /// Logs of a sandboxed pod, of the operator, or of what changes a node
    Logs(LogsArguments),
    /// Collect what a bug report needs, with secrets taken out
    MustGather(GatherArguments),
    /// Create a KataConfig
    Install(InstallArguments),
    /// Change the version of Kata on the nodes, or roll it back
    ///
    /// Not on OpenShift. To upgrade the operator: `kubectl kata install --upgrade`.
    Upgrade(UpgradeArguments),
    /// Take nodes over on which kata-deploy installed Kata, with their sandboxes running
    ///
    /// `plan` changes nothing: it says what `begin` would do, and prints the KataConfig that takes the nodes over.
    /// `begin` stops kata-deploy; Kata keeps running on the nodes, and no node is changed. It can be interrupted, and goes on
    /// when it runs again.
    #[command(name = "takeover")]
    TakeOver(TakeOverArguments),
    /// Print the labels and taints of a node pool whose autoscaler creates nodes for sandboxed pods
    Pool(PoolArguments),
    /// Delete the KataConfig, once no sandboxed pod is left
    Uninstall(UninstallArguments),
    /// Retry the failed change of nodes
    Retry(RetryArguments),
    /// Stop the roll-out before the next node
    Pause(PauseArguments),
    /// Resume a paused roll-out
    Resume(PauseArguments),
    /// What a KATA code means and what to do about it
    #[command(alias = "code")]
    Codes(CodesArguments),
    /// Versions of the plugin, the operator and the cluster
    Version(VersionArguments),
    /// The options that every command takes
    Options,
    /// The JSON schema of what `-o json` prints, of one kind or of all by kind
    Schema(SchemaArguments),
    /// Shell completion
    Completion(CompletionArguments),
    /// Candidates for a command line, in the protocol of kubectl_complete-NAME
    #[command(name = "__complete", hide = true)]
    Complete(CompleteArguments),
    /// The reference of all commands as Markdown
    #[command(name = "__reference", hide = true)]
    Reference,
}

/// Arguments of `status`.
#[derive(Args, Debug, Default)]
pub struct StatusArguments {
    /// Show every node
    #[arg(long)]
    pub nodes: bool,
    /// Show the status again whenever it changes
    #[arg(long, short)]
    pub watch: bool,
}

/// Arguments of `wait`.
#[derive(Args, Debug)]
pub struct WaitArguments {
    /// What to wait for: ready, deleted, deleted/KATACONFIG or node/NAME=Ready
    #[arg(long = "for", value_name = "WHAT", default_value = "ready")]
    pub what: String,
    /// How long to wait; 0 means for ever
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0")]
    pub timeout: Duration,
}

/// Arguments of `doctor`.
#[derive(Args, Debug, Default)]
pub struct DoctorArguments {
    /// Check whether Kata can be installed; without it, whether it works
    #[arg(long)]
    pub pre: bool,
    /// A manifest with a KataConfig to check, with line and column; - for standard input
    #[arg(long, short, value_name = "FILE")]
    pub filename: Option<PathBuf>,
    /// With --filename: do not ask the cluster
    #[arg(long, requires = "filename")]
    pub offline: bool,
}

/// Arguments of `history`.
#[derive(Args, Debug, Default)]
pub struct HistoryArguments {
    /// Only these nodes
    #[arg(value_name = "NODE")]
    pub names: Vec<String>,
}

/// Arguments of `report`.
#[derive(Args, Debug, Default)]
pub struct ReportArguments {
    /// Write to this file; - for standard output [default: kata-report-TIME.html]
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Add the verdicts of this file, the output of `kubectl kata verify -o json`
    #[arg(long, value_name = "FILE")]
    pub verified: Option<PathBuf>,
}

/// Arguments of `verify`.
#[derive(Args, Debug, Default)]
pub struct VerifyArguments {
    /// A pod, as pod/NAME; without one, probe pods are run on nodes
    #[arg(value_name = "pod/NAME")]
    pub target: Option<String>,
    /// Only this node; can be given several times
    #[arg(long, value_name = "NAME", conflicts_with = "target")]
    pub node: Vec<String>,
    /// RuntimeClass of the sandboxed probe [default: the first one of the KataConfig]
    #[arg(long, value_name = "NAME", conflicts_with = "target")]
    pub runtime_class: Option<String>,
    /// Image of the probe [default: the operator's]
    #[arg(long, value_name = "REF", conflicts_with = "target")]
    pub image: Option<String>,
    /// Container of the pod [default: the first]
    #[arg(long, short, value_name = "NAME", requires = "target")]
    pub container: Option<String>,
    /// Also show the sandbox, the VMM and other processes on the pod's node; a short-lived pod there reads them
    #[arg(long, requires = "target")]
    pub host: bool,
    /// How long the probes of a node, or --host, may take
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "2m")]
    pub timeout: Duration,
    /// Leave the probes of failed nodes for a look; they end by themselves
    #[arg(long, conflicts_with = "target")]
    pub keep: bool,
}

/// Arguments of `accept`.
#[derive(Args, Debug, Default)]
pub struct AcceptArguments {
    /// The node; its container runtime is restarted a few times, and on OpenShift it reboots twice
    #[arg(long, value_name = "NAME")]
    pub node: String,
    /// Image of the operator, if the cluster has none [default: the one published with this program, if one was]
    #[arg(long, value_name = "REF")]
    pub operator_image: Option<String>,
    /// Image with the runtime's files, for clusters without the Machine Config Operator
    #[arg(long, value_name = "REF")]
    pub payload_image: Option<String>,
    /// Another image with the runtime's files: the node is upgraded to it and back, beside a running sandbox
    #[arg(long, value_name = "REF")]
    pub second_payload_image: Option<String>,
    /// Also write the report into this file, as an HTML page
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// How long the installation, a change and the removal may take
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h")]
    pub timeout: Duration,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Change nothing: print the plan, and let the API server check the objects
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `retry`.
#[derive(Args, Debug, Default)]
pub struct RetryArguments {
    /// Nodes to retry, as NAME or node/NAME
    #[arg(value_name = "NODE", conflicts_with = "all")]
    pub nodes: Vec<String>,
    /// Every node whose change failed and waits for a retry
    #[arg(long)]
    pub all: bool,
    /// Change nothing; only ask the API server whether it accepts the change
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `pause` and `resume`.
#[derive(Args, Debug, Default)]
pub struct PauseArguments {
    /// Change nothing; only ask the API server whether it accepts the change
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `why`.
#[derive(Args, Debug)]
pub struct WhyArguments {
    /// A pod or what makes pods: pod/NAME, deployment/NAME, statefulset/NAME, daemonset/NAME, job/NAME
    #[arg(value_name = "TYPE/NAME")]
    pub target: String,
}

/// Arguments of `pods` and `nodes`.
#[derive(Args, Debug, Default)]
pub struct ListArguments {
    /// Only these
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Only those with these labels
    #[arg(long, short = 'l', value_name = "LABELS")]
    pub selector: Option<String>,
    /// Show the list again whenever it changes
    #[arg(long, short)]
    pub watch: bool,
}

/// Arguments of `schema`.
#[derive(Args, Debug)]
pub struct SchemaArguments {
    /// The kind of document
    #[arg(value_name = "KIND")]
    pub kind: Option<String>,
}

/// Arguments of `logs`.
#[derive(Args, Debug)]
pub struct LogsArguments {
    /// operator, pod/NAME or node/NAME
    #[arg(value_name = "WHAT")]
    pub target: String,
    /// Container of the pod
    #[arg(long, short, value_name = "NAME")]
    pub container: Option<String>,
    /// Also what is to come
    #[arg(long, short)]
    pub follow: bool,
    /// Of the container before the last restart
    #[arg(long, short)]
    pub previous: bool,
    /// Only so many lines from the end
    #[arg(long, value_name = "LINES", value_parser = parse_lines)]
    pub tail: Option<u64>,
    /// Only what is younger, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub since: Option<Duration>,
    /// Instead, what the shim of the pod's sandbox wrote into the node's journal
    #[arg(long, group = "journal")]
    pub shim: bool,
    /// Instead, what the virtual machine monitor wrote into the node's journal
    #[arg(long, group = "journal")]
    pub vmm: bool,
    /// Instead, what the guest wrote into the node's journal
    #[arg(long, group = "journal")]
    pub guest: bool,
}

/// Arguments of `must-gather`.
#[derive(Args, Debug, Default)]
pub struct GatherArguments {
    /// Logs and Events of this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "2h")]
    pub since: Option<Duration>,
    /// Write files into this directory, and no archive
    #[arg(long, value_name = "DIR")]
    pub dest_dir: Option<PathBuf>,
    /// Write this archive, compressed if it ends in .gz or .tgz [default: kata-must-gather-TIME.tar.gz]
    #[arg(long, value_name = "FILE", conflicts_with = "dest_dir")]
    pub archive: Option<PathBuf>,
    /// Keep all fields of all objects and all Events, with credentials and addresses
    #[arg(long)]
    pub no_redaction: bool,
}

/// Whether and how to act out a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DryRun {
    /// Change the cluster
    #[default]
    None,
    /// Only print what would be sent
    Client,
    /// Send it, and have the API server check it without storing it
    Server,
}

/// The kind of cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Platform {
    /// The Machine Config Operator changes nodes
    Openshift,
    /// There is no Machine Config Operator
    Kubernetes,
}

impl From<Platform> for kata_api::platform::Platform {
    fn from(platform: Platform) -> Self {
        match platform {
            Platform::Openshift => Self::Openshift,
            Platform::Kubernetes => Self::Kubernetes,
        }
    }
}

/// Whether a command asks before it changes the cluster, and waits afterwards.
#[derive(Args, Clone, Debug, Default)]
pub struct ChangeArguments {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Wait until the change has ended
    #[arg(long)]
    pub wait: bool,
    /// How long to wait; 0 means for ever
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0")]
    pub timeout: Duration,
}

/// Arguments of `install`.
#[derive(Args, Clone, Debug, Default)]
pub struct InstallArguments {
    /// Name of the KataConfig
    #[arg(long, value_name = "NAME", default_value = "cluster-kataconfig")]
    pub name: String,
    /// Nodes that run sandboxed pods, as labels KEY=VALUE,... [default: every worker]
    #[arg(long, value_name = "LABELS")]
    pub node_selector: Option<String>,
    /// Label this node with what --node-selector says first; can be given several times
    #[arg(long, value_name = "NAME", requires = "node_selector")]
    pub node: Vec<String>,
    /// How many nodes may be disturbed at once, as a number or a percentage
    #[arg(long, value_name = "N")]
    pub max_unavailable: Option<String>,
    /// Image with the runtime's files, for clusters without the Machine Config Operator
    #[arg(long, value_name = "REF")]
    pub payload_image: Option<String>,
    /// Only nodes that Node Feature Discovery found able
    #[arg(long)]
    pub check_node_eligibility: bool,
    /// Image of the operator [default: the one published with this program, if one was]
    #[arg(long, value_name = "REF")]
    pub operator_image: Option<String>,
    /// Replace an older operator, or one with another image
    #[arg(long)]
    pub upgrade: bool,
    /// Kind of cluster that the operator's objects are for [default: what the API server serves]
    #[arg(long, value_enum, value_name = "KIND")]
    pub platform: Option<Platform>,
    /// Whether to ask, and to wait.
    #[command(flatten)]
    pub change: ChangeArguments,
    /// Change nothing: print the plan, and let the API server check the objects (server), or print the objects without
    /// a cluster (client)
    #[arg(long, value_enum, value_name = "WHERE", num_args = 0..=1, default_value = "none", default_missing_value = "server")]
    pub dry_run: DryRun,
}

impl InstallArguments {
    /// Whether they say something about the KataConfig or its nodes.
    pub(crate) fn describes_kata_config(&self) -> bool {
        self.node_selector.is_some()
            || !self.node.is_empty()
            || self.max_unavailable.is_some()
            || self.payload_image.is_some()
            || self.check_node_eligibility
    }
}

/// Kind of node pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PoolKind {
    /// Karpenter
    Karpenter,
    /// Managed node groups of EKS, with the Cluster Autoscaler
    Eks,
    /// Node pools of GKE
    Gke,
    /// Node pools of AKS
    Aks,
    /// Cluster API, with the Cluster Autoscaler
    Capi,
}

/// Arguments of `pool`.
#[derive(Args, Debug)]
pub struct PoolArguments {
    /// Kind of node pool
    #[arg(long = "for", value_enum, value_name = "KIND")]
    pub kind: PoolKind,
    /// Only for this RuntimeClass [default: all of the KataConfig]
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,
}

/// Arguments of `upgrade`.
#[derive(Args, Debug, Default)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("payload").required(true))]
pub struct UpgradeArguments {
    /// Image with the runtime's files
    #[arg(long, value_name = "REF", group = "payload")]
    pub payload_image: Option<String>,
    /// Go back to the last image before an upgrade with which nodes were Ready
    #[arg(long, group = "payload")]
    pub rollback: bool,
    /// Change nothing: print the plan
    #[arg(long)]
    pub dry_run: bool,
    /// Whether to ask, and to wait.
    #[command(flatten)]
    pub change: ChangeArguments,
}

/// A part of a take-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TakeOverAction {
    /// Says what is to be done
    Plan,
    /// Stops kata-deploy
    Begin,
}

/// Arguments of `takeover`.
#[derive(Args, Debug)]
pub struct TakeOverArguments {
    /// What to do
    #[arg(value_enum, value_name = "ACTION")]
    pub action: TakeOverAction,
    /// Image with a program /pause, which replaces that of kata-deploy until its pods are gone
    #[arg(long, value_name = "REF", default_value = "registry.k8s.io/pause:3.10")]
    pub pause_image: String,
    /// How long to wait for what kata-deploy has begun, and for its pods; 0 means for ever
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "15m")]
    pub timeout: Duration,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Change nothing: as plan
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `uninstall`.
#[derive(Args, Debug, Default)]
pub struct UninstallArguments {
    /// Change nothing: print the plan
    #[arg(long)]
    pub dry_run: bool,
    /// Evict the sandboxed pods, as far as PodDisruptionBudgets allow it
    #[arg(long)]
    pub evict_pods: bool,
    /// Wait until nothing is left, and then remove the operator, if `kubectl kata install` or manifests installed it
    #[arg(long)]
    pub operator: bool,
    #[command(flatten)]
    pub change: ChangeArguments,
}

/// Arguments of `codes`.
#[derive(Args, Debug, Default)]
pub struct CodesArguments {
    /// The code, such as KATA2104, or its reason, such as DrainBlocked
    #[arg(value_name = "CODE")]
    pub codes: Vec<String>,
}

/// Arguments of `version`.
#[derive(Args, Debug, Default)]
pub struct VersionArguments {
    /// Only the plugin's own, without asking the cluster
    #[arg(long)]
    pub client: bool,
}

/// A shell, or kubectl itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// For `kubectl-kata` in bash
    Bash,
    /// For `kubectl-kata` in zsh
    Zsh,
    /// For `kubectl-kata` in fish
    Fish,
    /// The script kubectl_complete-kata, which belongs on the PATH
    Kubectl,
}

/// Arguments of `completion`.
#[derive(Args, Debug)]
pub struct CompletionArguments {
    /// For what
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Arguments of `__complete`.
#[derive(Args, Debug)]
pub struct CompleteArguments {
    /// The words so far, the last of them to be completed.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

impl Arguments {
    /// The flags of every command. Those on a line that is to be completed count too: they say which
    /// cluster and which namespace to look in.
    pub fn global(&self) -> GlobalArguments {
        let Command::Complete(complete) = &self.command else { return self.global.clone() };
        let words = crate::commands::completion::global_words(&complete.words);
        let line = std::iter::once("kubectl-kata".to_owned()).chain(words);
        let parsed = Self::try_parse_from(line.chain(["version".to_owned()]));
        parsed.map_or_else(|_incomplete| self.global.clone(), |parsed| parsed.global)
    }
}
