//! What is done to a cluster in an episode, phase by phase, and when each phase has reached its goal.

use std::time::Duration;

use kata_api::names;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::api::ApiError;
use simcluster::resource::{JOBS, KATACONFIGS, NODES, PODS};
use simcluster::topology::{self, NodeOptions, Role};
use simcluster::workload::kata_deploy::{self, Mode};
use simcluster::world::Runtime;

use crate::deeds;
use crate::plain;
use crate::plan::Deed;
use crate::shape::{Topology, label, worker};
use crate::world;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// A KataConfig is created.
    Install,
    /// One that selects only nodes that Node Feature Discovery found fit.
    InstallEligible,
    /// One more node is selected.
    ScaleOut,
    /// One node is selected no more.
    ScaleIn,
    /// The selector changes, so that one node leaves and another one comes.
    SelectorEdit,
    /// CRI-O's log level changes.
    LogLevel,
    /// And is set back.
    LogLevelBack,
    /// The cluster gets another operating system.
    OsUpgrade,
    /// The KataConfig is deleted.
    Uninstall,
    /// It is deleted while the first node is being changed.
    UninstallWhileInstalling,
    /// It is deleted while a sandboxed pod runs, which ends later.
    UninstallWithPod,
    /// The same, and another pod comes in between.
    SlipIn,
    /// It is deleted and created again.
    Recreate,
    /// The operator takes over what the Go operator left, and removes it in the end.
    Adoption,
    /// The runtime is taken from another image.
    PayloadUpgrade,
    /// The same while a sandboxed pod runs.
    PayloadUpgradeWithPod,
    /// A runtime gets a shim that the payload does not have, and gets its own back when that is reported.
    ShimMistake,
    /// Another runtime comes to one of the nodes, then to the other, and leaves the first.
    InstallOn,
    /// It leaves a node on which a pod of it runs, which ends later.
    InstallOnWithPod,
    /// One of two nodes whose system provides Kata is selected; then the other one, and the first no more.
    Provided,
    /// A node whose system provides Kata is selected no more while a pod runs there, which ends later.
    ProvidedWithPod,
    /// Nodes of kata-deploy are taken over and given back, while a pod runs that was there before.
    TakeOver,
}

/// The cluster on which a workload begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Base {
    /// Without a KataConfig.
    Clean,
    /// With everything installed.
    Installed,
    /// With everything installed, and a sandboxed pod.
    InstalledWithPod,
    /// With everything installed, at the log level `debug`.
    InstalledWithDebug,
    /// As the Go operator leaves it.
    GoOperator,
}

/// What begins a phase.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// The user creates the KataConfig.
    Create(Value),
    /// A user or another client does something.
    Deed(Deed),
    /// The KataConfig is there already when the operator comes.
    Nothing,
}

/// What ends a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The cluster is as the KataConfig wants it, and stays so for a while.
    Settled,
    /// The KataConfig is gone.
    Gone,
    /// The KataConfig says that this pod blocks its deletion.
    Blocked(&'static str),
    /// The KataConfig names this pod, which a node has to wait for.
    Waits(&'static str),
    /// The KataConfig says that nothing goes on without help, for this reason.
    Stalled(&'static str),
    /// A node is being changed.
    Begun,
}

/// One phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// What begins it.
    pub act: Act,
    /// What ends it.
    pub goal: Goal,
}

/// How soon what blocks a deletion is named when nothing goes wrong.
pub const NAMED: Duration = Duration::from_secs(60);

const POD: &str = "sandboxed";
const LATECOMER: &str = "latecomer";
/// A class for some of the nodes, and their label.
const OTHER_CLASS: &str = "kata-clh";
const OTHER_LABEL: &str = "clh";
/// Nodes whose system provides Kata, and their label.
pub const CLOUD_NODES: [&str; 2] = ["cloud-0", "cloud-1"];
/// Nodes on which kata-deploy installed Kata.
pub const TAKEN_NODES: [&str; 2] = ["taken-0", "taken-1"];
/// A RuntimeClass of kata-deploy.
const TAKEN_CLASS: &str = "kata-qemu";
/// The label of [`CLOUD_NODES`].
pub const CLOUD_LABEL: &str = "cloud";

impl Workload {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::Install,
        Self::InstallEligible,
        Self::ScaleOut,
        Self::ScaleIn,
        Self::SelectorEdit,
        Self::LogLevel,
        Self::LogLevelBack,
        Self::OsUpgrade,
        Self::Uninstall,
        Self::UninstallWhileInstalling,
        Self::UninstallWithPod,
        Self::SlipIn,
        Self::Recreate,
        Self::Adoption,
        Self::PayloadUpgrade,
        Self::PayloadUpgradeWithPod,
        Self::ShimMistake,
        Self::InstallOn,
        Self::InstallOnWithPod,
        Self::Provided,
        Self::ProvidedWithPod,
        Self::TakeOver,
    ];

    /// The name as in plans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::InstallEligible => "install-eligible",
            Self::ScaleOut => "scale-out",
            Self::ScaleIn => "scale-in",
            Self::SelectorEdit => "selector-edit",
            Self::LogLevel => "log-level",
            Self::LogLevelBack => "log-level-back",
            Self::OsUpgrade => "os-upgrade",
            Self::Uninstall => "uninstall",
            Self::UninstallWhileInstalling => "uninstall-while-installing",
            Self::UninstallWithPod => "uninstall-with-pod",
            Self::SlipIn => "slip-in",
            Self::Recreate => "recreate",
            Self::Adoption => "adoption",
            Self::PayloadUpgrade => "payload-upgrade",
            Self::PayloadUpgradeWithPod => "payload-upgrade-with-pod",
            Self::ShimMistake => "shim-mistake",
            Self::InstallOn => "install-on",
            Self::InstallOnWithPod => "install-on-with-pod",
            Self::Provided => "provided",
            Self::ProvidedWithPod => "provided-with-pod",
            Self::TakeOver => "take-over",
        }
    }

    /// Whether it is run on a topology: converged clusters have no selection, the largest cluster is for
    /// a few, and what Jobs do differs from what the Machine Config Operator does.
    pub fn fits(self, topology: Topology) -> bool {
        let by_jobs = matches!(
            self,
            Self::PayloadUpgrade
                | Self::PayloadUpgradeWithPod
                | Self::ShimMistake
                | Self::InstallOn
                | Self::InstallOnWithPod
                | Self::Provided
                | Self::ProvidedWithPod
                | Self::TakeOver
        );
        if topology.is_plain() {
            let mco = matches!(self, Self::InstallEligible | Self::OsUpgrade | Self::Adoption);
            let refused = matches!(
                self,
                Self::Install
                    | Self::ScaleOut
                    | Self::SelectorEdit
                    | Self::PayloadUpgrade
                    | Self::Uninstall
                    | Self::UninstallWhileInstalling
            );
            return if topology.asks_again() { refused } else { !mco };
        }
        let selects = matches!(
            self,
            Self::InstallEligible | Self::ScaleOut | Self::ScaleIn | Self::SelectorEdit
        );
        let brief = matches!(self, Self::Install | Self::ScaleOut | Self::Uninstall);
        let fits = !(by_jobs || selects && topology.is_converged());
        fits && (brief || topology != Topology::Fifty)
    }

    /// The cluster on which it begins.
    pub fn base(self) -> Base {
        match self {
            Self::Install
            | Self::InstallEligible
            | Self::UninstallWhileInstalling
            | Self::Provided
            | Self::ProvidedWithPod
            | Self::TakeOver => Base::Clean,
            Self::UninstallWithPod | Self::SlipIn | Self::PayloadUpgradeWithPod => {
                Base::InstalledWithPod
            }
            Self::LogLevelBack => Base::InstalledWithDebug,
            Self::Adoption => Base::GoOperator,
            Self::ScaleOut
            | Self::ScaleIn
            | Self::SelectorEdit
            | Self::LogLevel
            | Self::OsUpgrade
            | Self::Uninstall
            | Self::Recreate
            | Self::PayloadUpgrade
            | Self::ShimMistake
            | Self::InstallOn
            | Self::InstallOnWithPod => Base::Installed,
        }
    }

    /// Changes the cluster before the operator starts.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub fn prepare(self, sim: &mut Simulation) -> Result<(), ApiError> {
        match self {
            Self::InstallEligible => label(sim, &worker(0), names::NFD_LABEL, Some("true")),
            Self::SelectorEdit => {
                label(sim, &worker(1), "sandbox", Some("yes"))?;
                label(sim, &worker(2), "sandbox", Some("yes"))
            }
            Self::InstallOn | Self::InstallOnWithPod => {
                label(sim, &worker(0), OTHER_LABEL, Some("yes"))
            }
            Self::Provided | Self::ProvidedWithPod => {
                for node in CLOUD_NODES {
                    let handlers = [names::RUNTIME_CLASS, OTHER_CLASS].map(str::to_owned);
                    let options =
                        NodeOptions { handlers: Some(handlers.into()), ..NodeOptions::default() };
                    topology::add_node(sim, node, Role::Worker, options)?;
                }
                sim.advance(Duration::from_mins(1));
                for node in CLOUD_NODES {
                    label(sim, node, CLOUD_LABEL, Some("yes"))?;
                    label(sim, node, OTHER_LABEL, Some("yes"))?;
                }
                label(sim, CLOUD_NODES[0], "kata", Some("true"))
            }
            Self::TakeOver => {
                for node in TAKEN_NODES {
                    let runtime = Some(Runtime::Containerd2);
                    let options = NodeOptions { runtime, ..NodeOptions::default() };
                    topology::add_node(sim, node, Role::Worker, options)?;
                }
                sim.advance(Duration::from_mins(1));
                kata_deploy::install(sim, Mode::Jobs, &TAKEN_NODES.map(str::to_owned))?;
                for node in TAKEN_NODES {
                    label(sim, node, "kata", Some("true"))?;
                }
                sim.advance(Duration::from_mins(1));
                deeds::change(
                    sim,
                    &Deed::Pod { name: POD.to_owned(), class: TAKEN_CLASS.to_owned() },
                )?;
                sim.advance(Duration::from_mins(1));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Its phases on a topology.
    pub fn phases(self, topology: Topology) -> Vec<Phase> {
        let phase = |act, goal| Phase { act, goal };
        let deed = |deed, goal| Phase { act: Act::Deed(deed), goal };
        let label = |key: &str, node: u32, value: Option<&str>| Deed::Label {
            node: worker(node),
            key: key.to_owned(),
            value: value.map(str::to_owned),
        };
        let relabel = |node, value| label("kata", node, value);
        let other = |node, value| label(OTHER_LABEL, node, value);
        let two_classes = || {
            let on = json!({"matchLabels": {OTHER_LABEL: "yes"}});
            let other = json!({"name": OTHER_CLASS, "installOn": on});
            let runtimes = json!([{"name": names::RUNTIME_CLASS}, other]);
            Deed::EditConfig { patch: json!({"spec": {"runtimes": runtimes}}) }
        };
        let pod =
            |name: &str, class: &str| Deed::Pod { name: name.to_owned(), class: class.to_owned() };
        let select = |node: &str, value: Option<&str>| Deed::Label {
            node: node.to_owned(),
            key: "kata".to_owned(),
            value: value.map(str::to_owned),
        };
        let level = |level: &str| Deed::EditConfig { patch: json!({"spec": {"logLevel": level}}) };
        let end = |name: &str| Deed::EndPod { name: name.to_owned() };
        match self {
            Self::Install => vec![phase(Act::Create(spec()), Goal::Settled)],
            Self::InstallEligible => {
                let mut spec = spec();
                spec["checkNodeEligibility"] = json!(true);
                vec![phase(Act::Create(spec), Goal::Settled)]
            }
            Self::ScaleOut => {
                vec![deed(relabel(topology.selected(), Some("true")), Goal::Settled)]
            }
            Self::ScaleIn => vec![deed(relabel(0, None), Goal::Settled)],
            Self::SelectorEdit => {
                let labels = json!({"kata": null, "sandbox": "yes"});
                let patch = json!({"spec": {"kataConfigPoolSelector": {"matchLabels": labels}}});
                vec![deed(Deed::EditConfig { patch }, Goal::Settled)]
            }
            Self::LogLevel => vec![deed(level("debug"), Goal::Settled)],
            Self::LogLevelBack => vec![deed(level("info"), Goal::Settled)],
            Self::OsUpgrade => vec![deed(Deed::OsImage, Goal::Settled)],
            Self::Uninstall => vec![deed(Deed::DeleteConfig, Goal::Gone)],
            Self::UninstallWhileInstalling => {
                vec![phase(Act::Create(spec()), Goal::Begun), deed(Deed::DeleteConfig, Goal::Gone)]
            }
            Self::UninstallWithPod => {
                vec![deed(Deed::DeleteConfig, Goal::Blocked(POD)), deed(end(POD), Goal::Gone)]
            }
            Self::SlipIn => vec![
                deed(Deed::DeleteConfig, Goal::Blocked(POD)),
                deed(pod(LATECOMER, names::RUNTIME_CLASS), Goal::Blocked(LATECOMER)),
                deed(end(POD), Goal::Blocked(LATECOMER)),
                deed(end(LATECOMER), Goal::Gone),
            ],
            Self::Recreate => vec![
                deed(Deed::DeleteConfig, Goal::Gone),
                phase(Act::Create(spec()), Goal::Settled),
            ],
            Self::PayloadUpgrade | Self::PayloadUpgradeWithPod => {
                let patch = json!({"spec": {"payload": {"image": plain::OTHER_PAYLOAD}}});
                vec![deed(Deed::EditConfig { patch }, Goal::Settled)]
            }
            Self::ShimMistake => {
                let mistake = json!([{"name": names::RUNTIME_CLASS, "shim": "qemuu"}]);
                let runtimes =
                    |to: Value| Deed::EditConfig { patch: json!({"spec": {"runtimes": to}}) };
                vec![
                    deed(runtimes(mistake), Goal::Stalled("ShimMissing")),
                    deed(runtimes(Value::Null), Goal::Settled),
                ]
            }
            Self::InstallOn => vec![
                deed(two_classes(), Goal::Settled),
                deed(other(1, Some("yes")), Goal::Settled),
                deed(other(0, None), Goal::Settled),
            ],
            Self::InstallOnWithPod => vec![
                deed(two_classes(), Goal::Settled),
                deed(pod(POD, OTHER_CLASS), Goal::Settled),
                deed(other(0, None), Goal::Waits(POD)),
                deed(end(POD), Goal::Settled),
            ],
            Self::Provided => vec![
                phase(Act::Create(with_provided_nodes()), Goal::Settled),
                deed(select(CLOUD_NODES[1], Some("true")), Goal::Settled),
                deed(select(CLOUD_NODES[0], None), Goal::Settled),
            ],
            Self::ProvidedWithPod => vec![
                phase(Act::Create(with_provided_nodes()), Goal::Settled),
                deed(pod(POD, OTHER_CLASS), Goal::Settled),
                deed(select(CLOUD_NODES[0], None), Goal::Waits(POD)),
                deed(end(POD), Goal::Settled),
            ],
            Self::TakeOver => vec![
                phase(Act::Create(with_take_over()), Goal::Settled),
                deed(Deed::DeleteConfig, Goal::Gone),
            ],
            Self::Adoption => {
                vec![phase(Act::Nothing, Goal::Settled), deed(Deed::DeleteConfig, Goal::Gone)]
            }
        }
    }
}

impl Workload {
    /// What would lead to the same end from a cluster without a KataConfig, in one phase: what is done
    /// before, and the KataConfig as it is in the end, or none.
    pub fn straight(self, topology: Topology) -> (Vec<Deed>, Option<Value>) {
        let mut before = Vec::new();
        let mut config = (self.base() != Base::Clean).then(spec);
        for phase in self.phases(topology) {
            match phase.act {
                Act::Create(spec) => config = Some(spec),
                Act::Deed(Deed::DeleteConfig) => config = None,
                Act::Deed(Deed::EditConfig { patch }) => {
                    if let Some(config) = &mut config {
                        merge(config, &patch["spec"]);
                    }
                }
                Act::Deed(deed @ (Deed::Label { .. } | Deed::OsImage)) => before.push(deed),
                Act::Deed(_) | Act::Nothing => {}
            }
        }
        (before, config)
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            if let Some(target) = target.as_object_mut() {
                target.remove(key);
            }
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// The same with nodes whose system provides Kata, and a class for these.
fn with_provided_nodes() -> Value {
    let mut spec = spec();
    let other = json!({"name": OTHER_CLASS, "installOn": {"matchLabels": {OTHER_LABEL: "yes"}}});
    spec["runtimes"] = json!([{"name": names::RUNTIME_CLASS}, other]);
    spec["providedNodes"] = json!({"matchLabels": {CLOUD_LABEL: "yes"}});
    spec
}

/// The same with every RuntimeClass of kata-deploy.
fn with_take_over() -> Value {
    let mut spec = spec();
    spec["takeOver"] = json!("KataDeploy");
    let names = [names::RUNTIME_CLASS, TAKEN_CLASS, OTHER_CLASS];
    spec["runtimes"] = json!(names.map(|name| json!({"name": name})));
    spec
}

/// The spec of the episodes' KataConfig.
pub fn spec() -> Value {
    json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}})
}

impl Act {
    /// Does it.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub fn perform(&self, sim: &mut Simulation) -> Result<(), ApiError> {
        match self {
            Self::Create(spec) => deeds::create_config(sim, spec),
            Self::Deed(deed) => deeds::change(sim, deed),
            Self::Nothing => Ok(()),
        }
    }
}

impl Goal {
    /// What is missing; `None` if the goal is reached.
    pub fn missing(self, sim: &Simulation, converged: bool) -> Option<String> {
        match self {
            Self::Settled => {
                // A deed may have deleted the KataConfig while a pod runs that ends in a later phase.
                if world::is_being_deleted(sim) && sim.api.get(&PODS, "default", POD).is_some() {
                    return Self::Blocked(POD).missing(sim, converged);
                }
                world::missing(sim, converged)
            }
            Self::Gone => sim
                .api
                .get(&KATACONFIGS, "", world::CONFIG)
                .map(|config| {
                    let ready = world::condition(&config, "Ready").cloned().unwrap_or_default();
                    format!("the KataConfig is still there: {ready}")
                })
                .or_else(|| world::missing(sim, converged)),
            Self::Blocked(pod) => {
                let config = world::config(sim).unwrap_or_default();
                let blocked = world::condition(&config, "DeletionBlocked");
                let name = format!("default/{pod}");
                let named = blocked.is_some_and(|condition| {
                    condition["status"] == "True"
                        && world::word(condition, "/message").contains(&name)
                });
                (!named).then(|| format!("pod {pod} is not named: {blocked:?}"))
            }
            Self::Waits(pod) => {
                // A random deed may have deleted the KataConfig before the pod came.
                let config = world::config(sim)?;
                if world::is_being_deleted(sim) {
                    return Self::Blocked(pod).missing(sim, converged);
                }
                let findings = config["status"]["findings"].as_array().into_iter().flatten();
                let mut leaving = findings.filter(|finding| finding["code"] == "KATA2112");
                let name = format!("default/{pod}");
                let named = leaving.any(|it| world::word(it, "/message").contains(&name));
                (!named).then(|| format!("pod {name} is not named: {}", config["status"]))
            }
            Self::Stalled(reason) => {
                let config = world::config(sim).unwrap_or_default();
                let stalled = world::condition(&config, "Stalled");
                let named = stalled.is_some_and(|condition| {
                    condition["status"] == "True" && world::word(condition, "/reason") == reason
                });
                (!named).then(|| format!("{reason} is not reported: {stalled:?}"))
            }
            Self::Begun if plain::is_plain(sim) => {
                let jobs = sim.api.list(&JOBS);
                let begun = jobs.iter().any(|job| plain::is_agents(job) && plain::changes(job));
                (!begun).then(|| "no node is being changed".to_owned())
            }
            Self::Begun => {
                let nodes = sim.api.list(&NODES);
                let begun = nodes.iter().any(|node| !world::is_at_rest(node));
                (!begun).then(|| "no node is being changed".to_owned())
            }
        }
    }

    /// Whether it has to hold for a while.
    pub fn lasts(self) -> bool {
        matches!(self, Self::Settled | Self::Gone)
    }
}
