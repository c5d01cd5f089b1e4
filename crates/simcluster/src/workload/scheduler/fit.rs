//! Which nodes a pod fits on, and which of them is best: the scheduler's filters and its score.
//!
//! Pure: nodes and pods in, a name or a reason out.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::node::lifecycle::tolerates;
use crate::node::request::{Request, allocatable, request};
use crate::selector;

/// What the scheduler knows of a node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeState {
    labels: Value,
    taints: Vec<Value>,
    unschedulable: bool,
    allocatable: Request,
    pub(crate) used: Request,
}

impl NodeState {
    pub(crate) fn of(node: &Value) -> Self {
        Self {
            labels: node["metadata"]["labels"].clone(),
            taints: node["spec"]["taints"].as_array().cloned().unwrap_or_default(),
            unschedulable: node["spec"]["unschedulable"] == true,
            allocatable: allocatable(node),
            used: Request::default(),
        }
    }
}

/// What a pod demands of its node.
pub(crate) struct Wish<'a> {
    spec: &'a Value,
    tolerations: Vec<&'a Value>,
    endures_cordon: bool,
    request: Request,
}

/// Why no node fits.
pub(crate) struct Unfit {
    pub(crate) why: String,
    /// What follows if no pod can be preempted.
    pub(crate) without_victims: String,
}

/// Why a node is out of the question.
enum Refusal {
    /// Removing other pods would not help.
    Never(String),
    /// Something is used up.
    Full(Vec<&'static str>),
}

impl<'a> Wish<'a> {
    pub(crate) fn of(pod: &'a Value) -> Self {
        let spec = &pod["spec"];
        let tolerations: Vec<&Value> =
            spec["tolerations"].as_array().into_iter().flatten().collect();
        let cordon =
            serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
        let endures_cordon = tolerations.iter().any(|t| tolerates(t, &cordon));
        Self { spec, tolerations, endures_cordon, request: request(pod) }
    }

    /// The best node, or why there is none.
    pub(crate) fn choose<'n>(
        &self,
        nodes: &'n BTreeMap<String, NodeState>,
    ) -> Result<&'n str, Unfit> {
        if nodes.is_empty() {
            let why = "no nodes available to schedule pods".to_owned();
            return Err(Unfit { why, without_victims: String::new() });
        }
        let mut best: Option<(i64, &str)> = None;
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let (mut hopeless, mut full) = (0_usize, 0_usize);
        for (name, state) in nodes {
            match self.refusal(name, state) {
                None => {
                    let score = self.score(state);
                    if best.is_none_or(|(highest, _)| score > highest) {
                        best = Some((score, name));
                    }
                }
                Some(Refusal::Never(reason)) => {
                    hopeless += 1;
                    *reasons.entry(reason).or_default() += 1;
                }
                Some(Refusal::Full(list)) => {
                    full += 1;
                    for reason in list {
                        *reasons.entry(reason.to_owned()).or_default() += 1;
                    }
                }
            }
        }
        if let Some((_, name)) = best {
            return Ok(name);
        }
        let total = nodes.len();
        let sorted = |parts: Vec<String>| {
            let mut parts = parts;
            parts.sort();
            parts.join(", ")
        };
        let why = sorted(reasons.iter().map(|(why, count)| format!("{count} {why}")).collect());
        let preemption = [
            (full, "No preemption victims found for incoming pod"),
            (hopeless, "Preemption is not helpful for scheduling"),
        ];
        let preemption = sorted(
            preemption
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, why)| format!("{count} {why}"))
                .collect(),
        );
        Err(Unfit {
            why: format!("0/{total} nodes are available: {why}."),
            without_victims: format!(" preemption: 0/{total} nodes are available: {preemption}."),
        })
    }

    /// Whether the pod fits on a node.
    pub(crate) fn fits(&self, name: &str, state: &NodeState) -> bool {
        self.refusal(name, state).is_none()
    }

    /// Whether the pod would fit on a node if others left it.
    pub(crate) fn would_fit(&self, name: &str, state: &NodeState) -> bool {
        matches!(self.refusal(name, state), Some(Refusal::Full(_)))
    }

    /// The filters, in the scheduler's order; the first that refuses speaks.
    fn refusal(&self, name: &str, state: &NodeState) -> Option<Refusal> {
        let spec = self.spec;
        let tolerated = |taint: &Value| self.tolerations.iter().any(|t| tolerates(t, taint));
        if state.unschedulable && !self.endures_cordon {
            return Some(Refusal::Never("node(s) were unschedulable".to_owned()));
        }
        let repelling = state
            .taints
            .iter()
            .find(|taint| taint["effect"] != "PreferNoSchedule" && !tolerated(taint));
        if let Some(taint) = repelling {
            let text = |field: &str| taint[field].as_str().unwrap_or_default();
            return Some(Refusal::Never(format!(
                "node(s) had untolerated taint {{{}: {}}}",
                text("key"),
                text("value")
            )));
        }
        if !selector::pod_chooses_node(spec, &state.labels, name) {
            let why = "node(s) didn't match Pod's node affinity/selector";
            return Some(Refusal::Never(why.to_owned()));
        }
        let lacks =
            |used: i64, wanted: i64, all: i64| wanted > 0 && used.saturating_add(wanted) > all;
        let (used, wanted, all) = (&state.used, &self.request, &state.allocatable);
        let lacking: Vec<&str> = [
            (lacks(used.pods, wanted.pods, all.pods), "Too many pods"),
            (lacks(used.cpu, wanted.cpu, all.cpu), "Insufficient cpu"),
            (lacks(used.memory, wanted.memory, all.memory), "Insufficient memory"),
        ]
        .into_iter()
        .filter_map(|(lacks, why)| lacks.then_some(why))
        .collect();
        if lacking.is_empty() {
            return None;
        }
        // What is larger than the whole node does not fit even when all others leave.
        if wanted.cpu > all.cpu || wanted.memory > all.memory {
            return Some(Refusal::Never(lacking.join(", ")));
        }
        Some(Refusal::Full(lacking))
    }

    /// How much of the node would stay free, in thousandths, less for taints that are preferences
    /// and for pods that are there already.
    fn score(&self, state: &NodeState) -> i64 {
        let free = |used: i64, wanted: i64, all: i64| {
            let left = i128::from(all) - i128::from(used) - i128::from(wanted);
            i64::try_from(left * 1000 / i128::from(all.max(1))).unwrap_or(0).clamp(-1_000, 1_000)
        };
        let avoided = state.taints.iter().filter(|t| t["effect"] == "PreferNoSchedule").count();
        free(state.used.cpu, self.request.cpu, state.allocatable.cpu)
            + free(state.used.memory, self.request.memory, state.allocatable.memory)
            - state.used.pods * 4
            - i64::try_from(avoided).unwrap_or(0) * 500
    }
}
