//! What a roll-out or a removal of Kata does to nodes and pods, shown before anything is written.
//!
//! Which nodes change is [`kata_plan::decide`]'s answer; which pods a drain evicts, and which budgets block it, is
//! [`kata_plan::validate`]'s. This module reads and describes; it writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kata_api::names;
use kata_plan::{NodeFacts, Platform, Snapshot, validate};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::{Api, Scope};
use crate::commands::held_by_budgets;
use crate::failure::Failure;
use crate::human;
use crate::resource::{BUDGETS, PODS};
use crate::style::{Style, wrap};

/// How many names one line has.
const NAMES: usize = 5;
/// Where the text of a field begins.
const INDENT: usize = 11;

/// What happens to each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) enum NodeAction {
    /// The Machine Config Operator drains and reboots it.
    Reboot,
    /// Its container runtime is restarted.
    RuntimeRestart,
    /// The files of Kata are replaced for new sandboxes.
    Update,
}

/// A PodDisruptionBudget that blocks the drain of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockedDrain {
    /// The nodes that run a pod of this budget.
    pub(crate) nodes: Vec<String>,
    /// The budget and what it requires.
    pub(crate) message: String,
    /// What unblocks the drain.
    pub(crate) fix: String,
}

/// The pods that the drains evict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Evictions {
    /// How many pods are evicted.
    pub(crate) pods: usize,
    /// How many of them have no controller, so that they are not created again.
    pub(crate) without_controller: usize,
    /// The budgets that block a drain now.
    pub(crate) blocked: Vec<BlockedDrain>,
    /// Whether the caller may not list PodDisruptionBudgets, so that it is unknown which of them block.
    pub(crate) budgets_unknown: bool,
}

/// What the change of some nodes does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disruption {
    /// What happens to each node.
    pub(crate) action: NodeAction,
    /// The nodes, in the order of their names.
    pub(crate) nodes: Vec<String>,
    /// Those of the nodes that run the control plane.
    pub(crate) control_plane: Vec<String>,
    /// The pods that the drains evict; absent if no node is drained, or if the pods cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) evictions: Option<Evictions>,
    /// How many nodes change at once, as the end of a sentence.
    #[serde(skip)]
    pace: String,
}

/// A pod with only the fields that an eviction depends on: there can be very many.
struct Slim(Pod);

impl<'de> Deserialize<'de> for Slim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut pod = Pod::deserialize(deserializer)?;
        pod.metadata.managed_fields = None;
        let spec = pod.spec.take().unwrap_or_default();
        pod.spec = Some(PodSpec { node_name: spec.node_name, ..PodSpec::default() });
        let status = pod.status.take().unwrap_or_default();
        pod.status = Some(PodStatus { phase: status.phase, ..PodStatus::default() });
        Ok(Self(pod))
    }
}

/// Whether a node runs the control plane.
fn is_control_plane(node: &NodeFacts) -> bool {
    [names::MASTER_ROLE_LABEL, names::CONTROL_PLANE_ROLE_LABEL]
        .iter()
        .any(|label| node.labels.contains_key(*label))
}

impl Disruption {
    /// What the change of these nodes does. Pods for which `is_gone_before` holds end before the drains.
    ///
    /// # Errors
    /// If the API server does not answer. Pods and budgets that the caller may not read are left out.
    pub(crate) async fn of(
        api: &Api,
        snapshot: &Snapshot,
        nodes: Vec<String>,
        pace: String,
        is_gone_before: impl Fn(&Pod) -> bool,
    ) -> Result<Self, Failure> {
        let changed: BTreeSet<&str> = nodes.iter().map(String::as_str).collect();
        let control_plane = snapshot
            .nodes
            .known()
            .into_iter()
            .flatten()
            .filter(|node| changed.contains(node.name.as_str()) && is_control_plane(node))
            .map(|node| node.name.clone())
            .collect();
        let action = match snapshot.options.platform {
            Platform::OpenShift => NodeAction::Reboot,
            Platform::Kubernetes => NodeAction::RuntimeRestart,
        };
        let evictions = if action == NodeAction::Reboot && !nodes.is_empty() {
            evictions(api, &changed, is_gone_before).await?
        } else {
            None
        };
        Ok(Self { action, control_plane, evictions, pace, nodes })
    }

    /// The same for nodes that have Kata and get other files of it.
    pub(crate) fn into_update(self) -> Self {
        Self { action: NodeAction::Update, ..self }
    }

    /// `reboots 3 nodes`, if any node changes.
    pub(crate) fn summary(&self) -> Option<String> {
        let nodes = human::count(self.nodes.len(), "node");
        match (self.nodes.len(), self.action) {
            (0, _) => None,
            (_, NodeAction::Reboot) => Some(format!("reboots {nodes}")),
            (_, NodeAction::RuntimeRestart) => {
                Some(format!("restarts the container runtime of {nodes}"))
            }
            (_, NodeAction::Update) => Some(format!("changes Kata on {nodes}")),
        }
    }

    /// The lines that describe it; none if no node changes.
    pub(crate) fn lines(&self, style: &Style) -> Vec<String> {
        let number = self.nodes.len();
        if number == 0 {
            return Vec::new();
        }
        let each = if number == 1 { "the node" } else { "each node" };
        let (control_plane, all) = (self.control_plane.len(), self.control_plane.len() == number);
        let role = match control_plane {
            0 => String::new(),
            1 if all => " (it runs the control plane)".to_owned(),
            _ if all => " (they run the control plane)".to_owned(),
            _ => format!("; control plane: {}", human::list(&self.control_plane, NAMES)),
        };
        let change = match self.action {
            NodeAction::Reboot => format!("{each} is drained and rebooted once{}", self.pace),
            NodeAction::RuntimeRestart => format!(
                "the container runtime of {each} restarts once{}; running pods keep running; no reboot",
                self.pace
            ),
            NodeAction::Update => format!(
                "{each} switches to the new files once{}; running sandboxes keep theirs; the container runtime \
                 restarts only if its configuration changes",
                self.pace
            ),
        };
        let mut lines =
            field("Nodes", &format!("{number}: {}{role}", human::list(&self.nodes, NAMES)), style);
        lines.extend(field("Change", &change, style));
        lines.extend(field("Time", "minutes per node; estimated after the first node", style));
        let Some(evictions) = &self.evictions else {
            if self.action == NodeAction::Reboot {
                lines.extend(field(
                    "Pods",
                    "how many will be evicted is unknown: you may not list pods",
                    style,
                ));
            }
            return lines;
        };
        let lost = match evictions.without_controller {
            0 => String::new(),
            1 if evictions.pods == 1 => {
                "; it has no controller and is not created again".to_owned()
            }
            1 => "; 1 of them has no controller and is not created again".to_owned(),
            some => format!("; {some} of them have no controller and are not created again"),
        };
        let pods = match evictions.pods {
            0 => "none will be evicted".to_owned(),
            pods => format!("{pods} will be evicted{lost}"),
        };
        lines.extend(field("Pods", &pods, style));
        if evictions.budgets_unknown {
            let text = "unknown: you may not list poddisruptionbudgets.policy";
            lines.extend(field("Blocked", text, style));
        }
        for (at, blocked) in evictions.blocked.iter().take(NAMES).enumerate() {
            let label = if at == 0 { "Blocked" } else { "" };
            let text = format!("{}: {}", human::list(&blocked.nodes, NAMES), blocked.message);
            lines.extend(field(label, &text, style));
            let fix = indented("  fix: ", &blocked.fix, style);
            lines.extend(fix);
        }
        if let Some(more) = evictions.blocked.len().checked_sub(NAMES).filter(|more| *more > 0) {
            lines.extend(field("", &format!("and {} more", human::count(more, "budget")), style));
        }
        lines
    }
}

/// `Nodes      3: a, b, c`, in as many lines as the terminal needs.
pub(crate) fn field(label: &str, text: &str, style: &Style) -> Vec<String> {
    indented("", text, style)
        .into_iter()
        .enumerate()
        .map(|(at, line)| match at {
            0 => format!("{label:<INDENT$}{}", line.trim_start()),
            _ => line,
        })
        .collect()
}

fn indented(first: &str, text: &str, style: &Style) -> Vec<String> {
    let width = style.width.unwrap_or(usize::MAX).max(40) - INDENT - first.len();
    let pad = " ".repeat(INDENT);
    wrap(&style.plain(text), width)
        .into_iter()
        .enumerate()
        .map(|(at, line)| match at {
            0 => format!("{pad}{first}{line}"),
            _ => format!("{pad}{}{line}", " ".repeat(first.len())),
        })
        .collect()
}

/// The pods that drains of these nodes evict, and what blocks the drains; `None` if they cannot be read.
async fn evictions(
    api: &Api,
    nodes: &BTreeSet<&str>,
    is_gone_before: impl Fn(&Pod) -> bool,
) -> Result<Option<Evictions>, Failure> {
    let (pods, budgets) = futures::join!(
        api.list::<Slim>(PODS, Scope::default()),
        api.list::<PodDisruptionBudget>(BUDGETS, Scope::default()),
    );
    let Some(pods) = pods?.known() else { return Ok(None) };
    let budgets = budgets?.known();
    let budgets_unknown = budgets.is_none();
    let budgets = budgets.unwrap_or_default();
    let node_of = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let pods: Vec<Pod> = pods
        .into_iter()
        .map(|Slim(pod)| pod)
        .filter(|pod| node_of(pod).is_some_and(|node| nodes.contains(node.as_str())))
        .filter(|pod| validate::is_evicted_by_drain(pod) && !is_gone_before(pod))
        .collect();
    let has_controller = |pod: &Pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.controller == Some(true))
    };
    let places: BTreeMap<(String, String), String> = pods
        .iter()
        .filter_map(|pod| {
            let metadata = &pod.metadata;
            Some(((metadata.namespace.clone()?, metadata.name.clone()?), node_of(pod)?))
        })
        .collect();
    let held = held_by_budgets(api, &pods, &budgets).await?;
    let blocked = held.into_iter().map(|held| {
        let at = |pod: &String| places.get(&(held.namespace.clone(), pod.clone())).cloned();
        let nodes: BTreeSet<String> = held.pods.iter().filter_map(at).collect();
        BlockedDrain {
            nodes: nodes.into_iter().collect(),
            fix: held.fix_for_drain(),
            message: held.sentence,
        }
    });
    Ok(Some(Evictions {
        pods: pods.len(),
        without_controller: pods.iter().filter(|pod| !has_controller(pod)).count(),
        blocked: blocked.collect(),
        budgets_unknown,
    }))
}
