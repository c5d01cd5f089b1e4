//! The clusters on which episodes run, before the operator is started on them.

use std::time::Duration;

use jiff::Timestamp;
use kata_api::names;
use kata_api::platform::Platform as Installed;
use kata_manifests::manifests::{self, Options};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::api::ApiError;
use simcluster::api::server::Writer;
use simcluster::mco::Timing;
use simcluster::resource::{MACHINECONFIGPOOLS, NODES, RUNTIMECLASSES};
use simcluster::topology::{self, Layout};
use simcluster::world::{NodeFault, Platform, Runtime};

/// When simulated clusters begin.
pub const EPOCH: &str = "2026-01-01T00:00:00Z";

/// The shape of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// One node for everything.
    Single,
    /// Three nodes of the control plane that also run workloads.
    Compact,
    /// Three and three.
    Three,
    /// Three and five, of which two belong to another custom pool.
    TwoPools,
    /// Three and fifty.
    Fifty,
    /// Without the Machine Config Operator: one and three, with one sort of container runtime each.
    PlainThree,
    /// The same with one and five, of which one cannot run virtual machines, and one is another
    /// installer's.
    PlainMixed,
}

impl Topology {
    /// All of them, small ones first.
    pub const ALL: [Self; 7] = [
        Self::Single,
        Self::Compact,
        Self::Three,
        Self::TwoPools,
        Self::Fifty,
        Self::PlainThree,
        Self::PlainMixed,
    ];

    /// The name as in plans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Compact => "compact",
            Self::Three => "three",
            Self::TwoPools => "two-pools",
            Self::Fifty => "fifty",
            Self::PlainThree => "plain-three",
            Self::PlainMixed => "plain-mixed",
        }
    }

    /// Whether Kata goes to the pool of the control plane.
    pub fn is_converged(self) -> bool {
        matches!(self, Self::Single | Self::Compact)
    }

    /// Whether Jobs change the nodes, and no Machine Config Operator.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::PlainThree | Self::PlainMixed)
    }

    /// Whether a node refuses, and is asked again from time to time for ever.
    pub fn asks_again(self) -> bool {
        self == Self::PlainMixed
    }

    /// The workers that the selector of the episodes' KataConfig selects, by default.
    pub fn selected(self) -> u32 {
        match self {
            Self::Single | Self::Compact => 0,
            Self::Three => 2,
            Self::TwoPools => 2,
            Self::Fifty => 20,
            Self::PlainThree => 2,
            Self::PlainMixed => 4,
        }
    }

    /// What the cluster is made of.
    pub fn layout(self) -> Layout {
        // Short installs and reboots: what takes long is waited for in the same way, only longer.
        let timing = Timing {
            install: Duration::from_secs(10),
            reboot: Duration::from_secs(20),
            ..Timing::default()
        };
        let layout = Layout { timing, ..Layout::default() };
        let plain = |workers| Layout {
            platform: Platform::Kubernetes,
            control_plane: 1,
            workers,
            runtimes: vec![Runtime::Containerd2, Runtime::Containerd1, Runtime::Crio],
            ..layout.clone()
        };
        match self {
            Self::Single => Layout { control_plane: 1, workers: 0, compact: true, ..layout },
            Self::Compact => Layout { control_plane: 3, workers: 0, compact: true, ..layout },
            Self::Three => Layout { control_plane: 3, workers: 3, ..layout },
            Self::TwoPools => Layout { control_plane: 3, workers: 5, ..layout },
            Self::Fifty => Layout { control_plane: 3, workers: 50, ..layout },
            Self::PlainThree => plain(3),
            Self::PlainMixed => plain(5),
        }
    }

    /// What is installed with the operator, besides the operator itself: its roles and policies bind it here, too.
    fn manifests(self) -> Result<Vec<Value>, ApiError> {
        let platform = match self.layout().platform {
            Platform::OpenShift => Installed::Auto,
            Platform::Kubernetes => Installed::Kubernetes,
        };
        let options = Options { namespace: names::NAMESPACE.to_owned(), ..Options::of(platform) };
        let mut objects = manifests::objects(&options)
            .map_err(|error| ApiError::bad_request(format!("no manifests: {error}")))?;
        objects.retain(|object| object["kind"] != "Deployment");
        Ok(objects)
    }

    /// A settled cluster with what is installed with the operator, things of other people, and no KataConfig.
    ///
    /// # Errors
    /// If the API server refuses an object.
    pub fn build(self) -> Result<Simulation, ApiError> {
        let epoch: Timestamp = EPOCH.parse().unwrap_or_default();
        let mut sim = topology::build(&self.layout(), epoch)?;
        let writer = Writer { manager: "installer", now: sim.now() };
        for object in self.manifests()? {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (kind, version) = (text(&object["kind"]), text(&object["apiVersion"]));
            let group = version.split_once('/').map_or("", |(group, _)| group);
            let def = sim.api.registry.by_kind(group, &kind).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "the simulated cluster serves no {kind} of {version}"
                ))
            })?;
            let resource = def.resource.clone();
            let namespace = text(&object["metadata"]["namespace"]);
            sim.api.create(writer, &resource, &namespace, object)?;
        }
        let admin = Writer { manager: "kubectl", now: sim.now() };
        let foreign = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": "gvisor"}, "handler": "runsc",
        });
        sim.api.create(admin, &RUNTIMECLASSES, "", foreign)?;
        for index in 0..self.selected() {
            label(&mut sim, &worker(index), "kata", Some("true"))?;
        }
        if self == Self::PlainMixed {
            topology::set_fault(&mut sim, &worker(2), NodeFault::NoKvm)?;
            // Made by an admin who wants no pod there before Kata, and who has a taint for other things too.
            let writer = Writer { manager: "installer", now: sim.now() };
            let taints = json!({"spec": {"taints": [
                {"key": "example.com/batch", "effect": "PreferNoSchedule"},
                {"key": names::STARTUP_TAINT, "effect": "NoSchedule"},
            ]}});
            sim.api.merge(writer, &NODES, "", &worker(1), &taints)?;
            // As kata-deploy leaves a node: the label of verified nodes is the same as ours.
            let others = format!("{}runtime", names::KATA_DEPLOY_LABEL_PREFIX);
            label(&mut sim, &worker(3), &others, Some("cleanup"))?;
            let verified = Some(names::RUNTIME_LABEL_VERIFIED);
            label(&mut sim, &worker(3), names::RUNTIME_LABEL, verified)?;
        }
        if self == Self::TwoPools {
            sim.api.create(admin, &MACHINECONFIGPOOLS, "", infra_pool())?;
            for index in [3, 4] {
                label(&mut sim, &worker(index), "node-role.kubernetes.io/infra", Some(""))?;
            }
            // One of them is also selected by the KataConfig, and must be left alone.
            label(&mut sim, &worker(4), "kata", Some("true"))?;
            sim.advance(Duration::from_secs(600));
        }
        Ok(sim)
    }
}

fn infra_pool() -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "infra"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [{
                "key": names::MACHINE_CONFIG_ROLE_LABEL, "operator": "In",
                "values": ["worker", "infra"],
            }]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/infra": ""}},
        },
    })
}

/// The name of a worker.
pub fn worker(index: u32) -> String {
    format!("worker-{index}")
}

/// Labels a node as an admin does.
///
/// # Errors
/// If there is no such node.
pub fn label(
    sim: &mut Simulation,
    node: &str,
    key: &str,
    value: Option<&str>,
) -> Result<(), ApiError> {
    let writer = Writer { manager: "kubectl", now: sim.now() };
    let patch = json!({"metadata": {"labels": {key: value}}});
    sim.api.merge(writer, &NODES, "", node, &patch).map(drop)
}
