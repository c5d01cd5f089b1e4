//! What holds up the nodes that are being drained, seen at once and not only when the operator calls it
//! blocked. Which pods those are, [`kata_plan::validate::drain_blockers`] says.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kata_api::kata_node::NodeStep;
use kata_api::{Code, KataNode};
use kata_plan::{DrainBlocker, validate};

use crate::api::{Api, Scope};
use crate::document::Problem;
use crate::failure::Failure;
use crate::human;
use crate::owners::Controller;
use crate::resource::{BUDGETS, PODS};

/// How many nodes are looked at.
const NODES: usize = 10;

/// A problem for each node whose drain something holds up now.
pub(crate) async fn problems(api: &Api, nodes: &[KataNode]) -> Result<Vec<Problem>, Failure> {
    let draining: Vec<&str> = nodes
        .iter()
        .filter(|node| {
            let step = node.status.as_ref().map_or("", |status| status.step.as_str());
            // A KataNode may show the drain two minutes late.
            let steps = [NodeStep::Targeted, NodeStep::Draining];
            steps.iter().any(|it| step.ends_with(it.as_str()))
        })
        .map(|node| node.spec.node_name.as_str())
        .take(NODES)
        .collect();
    if draining.is_empty() {
        return Ok(Vec::new());
    }
    let Some(budgets) = api.list::<PodDisruptionBudget>(BUDGETS, Scope::default()).await?.known()
    else {
        return Ok(Vec::new());
    };
    let found: Vec<Result<Option<Problem>, Failure>> =
        stream::iter(draining).map(|node| of_node(api, node, &budgets)).buffered(4).collect().await;
    Ok(found.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

async fn of_node(
    api: &Api,
    node: &str,
    budgets: &[PodDisruptionBudget],
) -> Result<Option<Problem>, Failure> {
    let fields = format!("spec.nodeName={node}");
    let scope = Scope { fields: Some(&fields), ..Scope::default() };
    let Some(pods) = api.list::<Pod>(PODS, scope).await?.known() else { return Ok(None) };
    let held = held(api, &pods, budgets).await?;
    if held.is_empty() {
        return Ok(None);
    }
    let messages: Vec<&str> = held.iter().map(|held| held.sentence.as_str()).collect();
    let fixes = held.iter().map(Held::fix_for_drain);
    Ok(Some(
        Problem::new(
            Code::DrainBlocked,
            format!("node/{node}"),
            format!("{node} cannot drain: {}", messages.join("; ")),
        )
        .with_fix(fixes.collect::<Vec<_>>().join("; ")),
    ))
}

/// A PodDisruptionBudget that allows no disruption, and the pods that it holds.
pub(crate) struct Held {
    pub(crate) namespace: String,
    pub(crate) budget: String,
    pub(crate) pods: Vec<String>,
    /// What one would scale, such as `deployment/web`.
    pub(crate) owner: Option<String>,
    /// How many pods the budget wants healthy.
    required: i32,
    /// What it allows and what it holds.
    pub(crate) sentence: String,
}

impl Held {
    /// What lets the budget allow an eviction.
    pub(crate) fn fix_for_drain(&self) -> String {
        let Self { namespace, budget, pods, owner, required, .. } = self;
        match owner {
            Some(owner) => format!(
                "kubectl scale -n {namespace} {owner} --replicas={}, or lower minAvailable of the \
                 PodDisruptionBudget {budget}",
                required + 1
            ),
            None => format!(
                "delete pod {} in {namespace}, or lower minAvailable of the PodDisruptionBudget {budget}",
                human::list(pods, 3)
            ),
        }
    }
}

/// The budgets that hold some of these pods.
pub(crate) async fn held(
    api: &Api,
    pods: &[Pod],
    budgets: &[PodDisruptionBudget],
) -> Result<Vec<Held>, Failure> {
    // A pod that is being deleted is what a drain is about; it has a grace period.
    let mut by_budget: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for DrainBlocker { namespace, pod, budget } in validate::drain_blockers(pods, budgets) {
        if let Some(budget) = budget {
            by_budget.entry((namespace, budget)).or_default().push(pod);
        }
    }
    let mut all = Vec::new();
    for ((namespace, name), names) in by_budget {
        let budget = budgets.iter().find(|budget| {
            budget.metadata.namespace.as_ref() == Some(&namespace)
                && budget.metadata.name.as_ref() == Some(&name)
        });
        let status = budget.and_then(|budget| budget.status.as_ref());
        let numbers = status.map_or_else(String::new, |status| {
            let counts = [status.current_healthy, status.expected_pods, status.desired_healthy];
            let [healthy, expected, desired] = counts.map(Option::unwrap_or_default);
            format!(" ({healthy} of {expected} healthy, {desired} required)")
        });
        let sentence = format!(
            "PodDisruptionBudget {namespace}/{name} allows 0 disruptions{numbers}, pod {}",
            human::list(&names, 3)
        );
        let owner = match names.first() {
            Some(pod) => owner(api, pods, &namespace, pod).await?,
            None => None,
        };
        let required = status.map_or(1, |status| status.desired_healthy.unwrap_or_default());
        all.push(Held { namespace, budget: name, pods: names, owner, required, sentence });
    }
    Ok(all)
}

/// What one would scale, such as `deployment/web`.
async fn owner(
    api: &Api,
    pods: &[Pod],
    namespace: &str,
    name: &str,
) -> Result<Option<String>, Failure> {
    let pod = pods.iter().find(|pod| {
        pod.metadata.namespace.as_deref() == Some(namespace)
            && pod.metadata.name.as_deref() == Some(name)
    });
    let references = pod.and_then(|pod| pod.metadata.owner_references.as_deref());
    let Some(reference) =
        references.into_iter().flatten().find(|owner| owner.controller == Some(true))
    else {
        return Ok(None);
    };
    let controller = Controller::of(api, namespace, &reference.kind, &reference.name).await?;
    Ok(Some(controller.argument()))
}
