//! The eviction of sandboxed pods, as far as PodDisruptionBudgets allow it, and whose pods stay.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;

use super::super::status;
use super::plan::again;
use crate::Context;
use crate::api::{Scope, Trouble};
use crate::arguments::UninstallArguments;
use crate::document::{PodRow, UninstallPlan};
use crate::failure::Failure;
use crate::resource::{BUDGETS, PODS};

/// Evicts the pods; false if a budget does not allow it.
pub(super) async fn evict(
    plan: &UninstallPlan,
    arguments: &UninstallArguments,
    context: &mut Context<'_, '_>,
) -> Result<bool, Failure> {
    let mut held = Vec::new();
    for pod in &plan.pods {
        let what = format!("evict pod {}/{}", pod.namespace, pod.name);
        let path = format!("{}/eviction", PODS.object(Some(&pod.namespace), &pod.name));
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
        });
        match context.api.write(&what, http::Method::POST, &path, None, &body).await {
            Ok(_) => {
                let text = format!("pod/{} evicted from {}", pod.name, pod.namespace);
                context.printer.say(&text)?;
            }
            Err(Trouble::Status(status)) if status.code == 404 => {}
            Err(Trouble::Status(status)) if status.code == 429 => {
                held.push((pod, status.message));
            }
            Err(trouble) => {
                let permission = format!("create pods/eviction in namespace {}", pod.namespace);
                return Err(trouble.denied(&what, &permission));
            }
        }
    }
    for (pod, text) in &held {
        let text = format!("refused: {}/{}: {text}", pod.namespace, pod.name);
        context.printer.say(&text)?;
    }
    if held.is_empty() {
        return Ok(true);
    }
    let held: Vec<&PodRow> = held.into_iter().map(|(pod, _)| pod).collect();
    for held in holders(&held, context).await? {
        context.printer.say(&held.sentence)?;
        context.printer.say(&format!("    fix: {}", fix(&held)))?;
    }
    let next = format!("Next: remove what blocks the eviction, then {}", again(arguments));
    context.printer.say(&if plan.deleting {
        let name = plan.config.as_deref().unwrap_or_default();
        let left = if held.len() == 1 { "this pod is" } else { "these pods are" };
        format!(
            "KataConfig {name} is being deleted already, and waits until {left} gone. {next} again; \
             kubectl kata wait --for deleted ends when Kata is gone"
        )
    } else {
        format!("the KataConfig was not deleted. {next}")
    })?;
    Ok(false)
}

/// The budgets that hold these pods, as far as the caller may see them.
pub(super) async fn holders(
    held: &[&PodRow],
    context: &Context<'_, '_>,
) -> Result<Vec<status::Held>, Failure> {
    let api = &context.api;
    let budgets = api.list::<PodDisruptionBudget>(BUDGETS, Scope::default()).await?;
    let namespaces: BTreeSet<&str> = held.iter().map(|pod| pod.namespace.as_str()).collect();
    let mut pods = Vec::new();
    for namespace in namespaces {
        let all = api.list::<Pod>(PODS, Scope::of(namespace)).await?.known().unwrap_or_default();
        pods.extend(all.into_iter().filter(|pod| {
            let name = pod.metadata.name.as_deref();
            held.iter().any(|held| held.namespace == namespace && Some(&*held.name) == name)
        }));
    }
    status::held_by_budgets(api, &pods, budgets.items()).await
}

/// What lets the pods of a budget go: here they need not come back.
pub(super) fn fix(held: &status::Held) -> String {
    let status::Held { namespace, budget, pods, owner, .. } = held;
    let relax = format!("relax the budget: `kubectl edit pdb/{budget} -n {namespace}`");
    match owner {
        Some(owner) => {
            format!("`kubectl scale -n {namespace} {owner} --replicas=0`, or {relax}")
        }
        None => format!("`kubectl delete pod -n {namespace} {}`, or {relax}", pods.join(" ")),
    }
}
