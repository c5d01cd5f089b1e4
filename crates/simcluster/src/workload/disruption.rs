//! The disruption controller: how many pods of each PodDisruptionBudget may go.
//!
//! The eviction itself, and the count that it takes off, are the API server's.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::owned::{controller, split, write_status};
use crate::api::{ApiServer, Event};
use crate::node::pod;
use crate::recorder::set_condition;
use crate::resource::{DEPLOYMENTS, PODDISRUPTIONBUDGETS, PODS, REPLICASETS, STATEFULSETS};
use crate::selector;
use crate::simulation::{Context, Controller};

/// How long an eviction that the API server granted may stay without effect.
const STALE: Duration = Duration::from_secs(120);

/// The disruption controller.
#[derive(Debug, Default)]
pub struct Disruption;

impl Controller for Disruption {
    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == PODDISRUPTIONBUDGETS {
            cx.after(format!("{}/{}", event.namespace, event.name), Duration::ZERO);
        } else if event.resource == PODS {
            let labels = &event.current["metadata"]["labels"];
            for budget in cx.api.list(&PODDISRUPTIONBUDGETS) {
                let name = budget["metadata"]["name"].as_str().unwrap_or_default();
                if budget["metadata"]["namespace"] == event.namespace.as_str()
                    && selector::matches(&budget["spec"]["selector"], labels)
                {
                    cx.after(format!("{}/{name}", event.namespace), Duration::ZERO);
                }
            }
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let (namespace, name) = split(key);
        let Some(budget) = cx.api.get(&PODDISRUPTIONBUDGETS, namespace, name) else { return };
        let status = status(cx.api, &budget, cx.now);
        if status["disruptedPods"].as_object().is_some_and(|pods| !pods.is_empty()) {
            cx.after(key, STALE);
        }
        write_status(cx, &PODDISRUPTIONBUDGETS, &budget, status);
    }
}

/// The status that a budget should have now.
pub fn status(api: &ApiServer, budget: &Value, now: Timestamp) -> Value {
    let pods: Vec<_> = api
        .list(&PODS)
        .into_iter()
        .filter(|pod| {
            pod["metadata"]["namespace"] == budget["metadata"]["namespace"]
                && selector::matches(&budget["spec"]["selector"], &pod["metadata"]["labels"])
                && !pod::is_finished(pod)
        })
        .collect();
    let disrupted = disrupted(budget, &pods, now);
    let healthy = pods
        .iter()
        .filter(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            pod::is_ready(pod) && !pod::is_deleting(pod) && !disrupted.contains_key(name)
        })
        .count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let matching = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let share = |value: &Value, total: i64| match value.as_str() {
        Some(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0_i64).clamp(0, 100);
            (total * percent + 99) / 100
        }
        None => value.as_i64().unwrap_or(0).clamp(0, 1_000_000),
    };
    let (expected, desired) = if budget["spec"]["maxUnavailable"].is_null() {
        let least = &budget["spec"]["minAvailable"];
        let expected = if least.is_string() { scale_of(api, &pods) } else { matching };
        let least = if least.is_null() { 1 } else { share(least, expected) };
        (expected, least)
    } else {
        let expected = scale_of(api, &pods);
        (expected, (expected - share(&budget["spec"]["maxUnavailable"], expected)).max(0))
    };
    let allowed = if expected == 0 { 0 } else { (healthy - desired).max(0) };
    let mut conditions = budget["status"]["conditions"].clone();
    let (value, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(&mut conditions, "DisruptionAllowed", value, reason, "", now);
    for condition in conditions.as_array_mut().into_iter().flatten() {
        condition["message"] = json!("");
        condition["observedGeneration"] = budget["metadata"]["generation"].clone();
    }
    let mut status = json!({
        "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected,
        "disruptionsAllowed": allowed, "conditions": conditions,
        "observedGeneration": budget["metadata"]["generation"],
    });
    if !disrupted.is_empty() || !budget["status"]["disruptedPods"].is_null() {
        status["disruptedPods"] = Value::Object(disrupted);
    }
    status
}

/// The evictions that were granted and have not come to pass yet.
fn disrupted(budget: &Value, pods: &[std::sync::Arc<Value>], now: Timestamp) -> Map<String, Value> {
    let stale = SignedDuration::try_from(STALE).unwrap_or(SignedDuration::ZERO);
    let known = budget["status"]["disruptedPods"].as_object();
    known
        .into_iter()
        .flatten()
        .filter(|(name, since)| {
            let pending = pods
                .iter()
                .any(|pod| pod["metadata"]["name"] == name.as_str() && !pod::is_deleting(pod));
            let since = since.as_str().and_then(|text| text.parse::<Timestamp>().ok());
            pending && since.is_some_and(|since| now.duration_since(since) < stale)
        })
        .map(|(name, since)| (name.clone(), since.clone()))
        .collect()
}

/// How many pods the controllers of these pods want to have.
fn scale_of(api: &ApiServer, pods: &[std::sync::Arc<Value>]) -> i64 {
    let mut owners = std::collections::BTreeMap::new();
    for pod in pods {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let Some(owner) = controller(pod) else { continue };
        let name = owner["name"].as_str().unwrap_or_default();
        let object = match owner["kind"].as_str() {
            Some("ReplicaSet") => {
                let set = api.get(&REPLICASETS, namespace, name);
                let deployment = set.as_ref().and_then(|set| {
                    let owner = controller(set)?;
                    api.get(&DEPLOYMENTS, namespace, owner["name"].as_str()?)
                });
                deployment.or(set)
            }
            Some("StatefulSet") => api.get(&STATEFULSETS, namespace, name),
            _ => None,
        };
        if let Some(object) = object {
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            owners
                .insert(uid, object["spec"]["replicas"].as_i64().unwrap_or(1).clamp(0, 1_000_000));
        }
    }
    owners.values().sum()
}
