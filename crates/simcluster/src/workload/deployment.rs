//! The Deployment controller: one ReplicaSet per template, and the step from one to the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::owned::{Owned, reference, split, write_status};
use crate::api::Event;
use crate::api::server::DeleteOptions;
use crate::recorder::{Occurrence, note, record, set_condition};
use crate::resource::{DEPLOYMENTS, REPLICASETS};
use crate::simulation::{Context, Controller};
use crate::world::identity;

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

/// The Deployment controller.
#[derive(Debug)]
pub struct Deployments {
    sets: Owned,
}

impl Default for Deployments {
    fn default() -> Self {
        Self { sets: Owned::by("Deployment") }
    }
}

impl Controller for Deployments {
    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == DEPLOYMENTS {
            cx.after(format!("{}/{}", event.namespace, event.name), Duration::ZERO);
        } else if event.resource == REPLICASETS
            && let Some((namespace, name)) = self.sets.observe(event)
        {
            cx.after(format!("{namespace}/{name}"), Duration::ZERO);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let (namespace, name) = split(key);
        let Some(deployment) = cx.api.get(&DEPLOYMENTS, namespace, name) else { return };
        if !deployment["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let template = &deployment["spec"]["template"];
        let hash = identity::suffix(&template.to_string(), 10);
        let mut sets: BTreeMap<String, Arc<Value>> = BTreeMap::new();
        for (namespace, name) in self.sets.of(&deployment) {
            if let Some(set) = cx.api.get(&REPLICASETS, &namespace, &name) {
                sets.insert(name, set);
            }
        }
        let current = format!("{name}-{hash}");
        let paused = deployment["spec"]["paused"] == true;
        if !paused {
            if !sets.contains_key(&current) {
                let revision = sets.values().filter_map(|set| revision(set)).max().unwrap_or(0) + 1;
                let set = replica_set(&deployment, &current, &hash, revision);
                note("replica set", cx.api.create(cx.writer(), &REPLICASETS, namespace, set));
                return;
            }
            if number(&deployment, &sets, &current, cx) {
                return;
            }
            scale(&deployment, &sets, &current, cx);
            tidy(&deployment, &sets, &current, cx);
        }
        report(&deployment, &sets, &current, cx);
    }
}

fn revision(object: &Value) -> Option<i64> {
    object["metadata"]["annotations"][REVISION].as_str()?.parse().ok()
}

/// Gives the current set the highest revision, which it loses to others and gets back by
/// `kubectl rollout undo`, and the deployment the same. Says whether it wrote.
fn number(
    deployment: &Value,
    sets: &BTreeMap<String, Arc<Value>>,
    current: &str,
    cx: &mut Context<'_>,
) -> bool {
    let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default();
    let own = sets.get(current).and_then(|set| revision(set)).unwrap_or(0);
    let others = sets.iter().filter(|(name, _)| *name != current);
    let highest = others.filter_map(|(_, set)| revision(set)).max().unwrap_or(0);
    let wanted = own.max(highest.saturating_add(1));
    let patch = json!({"metadata": {"annotations": {(REVISION): wanted.to_string()}}});
    let mut wrote = false;
    if own != wanted {
        wrote |=
            note("revision", cx.api.merge(cx.writer(), &REPLICASETS, namespace, current, &patch))
                .is_some();
    }
    if revision(deployment) != Some(wanted) {
        let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
        wrote |= note("revision", cx.api.merge(cx.writer(), &DEPLOYMENTS, namespace, name, &patch))
            .is_some();
    }
    wrote
}

/// A number of pods; nonsense is brought into a range in which sums cannot overflow.
fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0).clamp(0, 1_000_000)
}

/// How many pods the deployment wants.
fn wanted_replicas(deployment: &Value) -> i64 {
    match &deployment["spec"]["replicas"] {
        Value::Null => 1,
        replicas => count(replicas),
    }
}

fn replica_set(deployment: &Value, name: &str, hash: &str, revision: i64) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH] = json!(hash);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = json!(hash);
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": name, "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {(REVISION): revision.to_string()},
            "ownerReferences": [reference(deployment, "apps/v1", "Deployment")],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    })
}

/// `maxSurge` or `maxUnavailable` as a number of pods.
fn bound(value: &Value, replicas: i64, round_up: bool) -> i64 {
    if value.is_number() {
        return count(value);
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).unwrap_or("25");
    let part = replicas * percent.parse::<i64>().unwrap_or(25).clamp(0, 1_000);
    if round_up { (part + 99) / 100 } else { part / 100 }
}

/// Moves pods from the old sets to the current one, within the strategy's bounds.
fn scale(
    deployment: &Value,
    sets: &BTreeMap<String, Arc<Value>>,
    current: &str,
    cx: &mut Context<'_>,
) {
    let replicas = wanted_replicas(deployment);
    let wanted = |set: &Value| count(&set["spec"]["replicas"]);
    let total: i64 = sets.values().map(|set| wanted(set)).sum();
    let old: i64 =
        sets.iter().filter(|(name, _)| *name != current).map(|(_, set)| wanted(set)).sum();
    let now = total - old;
    let strategy = &deployment["spec"]["strategy"];
    let new = if strategy["type"] == "Recreate" {
        let left: i64 = sets
            .iter()
            .filter(|(name, _)| *name != current)
            .map(|(_, set)| count(&set["status"]["replicas"]))
            .sum();
        shrink(deployment, sets, current, old, cx);
        if old == 0 && left == 0 { replicas } else { now }
    } else {
        let rolling = &strategy["rollingUpdate"];
        let surge = bound(&rolling["maxSurge"], replicas, true);
        let mut unavailable = bound(&rolling["maxUnavailable"], replicas, false);
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        let available: i64 =
            sets.values().map(|set| count(&set["status"]["availableReplicas"])).sum();
        let pending = sets
            .get(current)
            .map_or(0, |set| wanted(set) - count(&set["status"]["availableReplicas"]));
        let room = total - (replicas - unavailable) - pending.max(0);
        shrink(deployment, sets, current, room.min(available).clamp(0, old), cx);
        if now > replicas {
            replicas
        } else {
            replicas.min(now + (replicas + surge - total).max(0))
        }
    };
    if new != now {
        resize(deployment, current, now, new, cx);
    }
}

/// Takes `amount` pods from the old sets, oldest revision first.
fn shrink(
    deployment: &Value,
    sets: &BTreeMap<String, Arc<Value>>,
    current: &str,
    amount: i64,
    cx: &mut Context<'_>,
) {
    let mut amount = amount;
    let mut old: Vec<_> = sets.iter().filter(|(name, _)| *name != current).collect();
    old.sort_by_key(|(_, set)| revision(set));
    for (name, set) in old {
        let has = count(&set["spec"]["replicas"]);
        let take = has.min(amount);
        if take > 0 {
            amount -= take;
            resize(deployment, name, has, has - take, cx);
        }
    }
}

fn resize(deployment: &Value, set: &str, from: i64, to: i64, cx: &mut Context<'_>) {
    let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default();
    let patch = json!({"spec": {"replicas": to}});
    if note("replica set", cx.api.merge(cx.writer(), &REPLICASETS, namespace, set, &patch))
        .is_none()
    {
        return;
    }
    let direction = if to > from { "up" } else { "down" };
    let occurrence = Occurrence {
        object: deployment,
        warning: false,
        reason: "ScalingReplicaSet",
        message: &format!("Scaled {direction} replica set {set} from {from} to {to}"),
        component: "deployment-controller",
        host: "",
    };
    record(cx.api, cx.now, &occurrence);
}

/// Deletes empty sets beyond `revisionHistoryLimit`.
fn tidy(
    deployment: &Value,
    sets: &BTreeMap<String, Arc<Value>>,
    current: &str,
    cx: &mut Context<'_>,
) {
    let limit = deployment["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut empty: Vec<_> = sets
        .iter()
        .filter(|(name, set)| {
            *name != current
                && count(&set["spec"]["replicas"]) == 0
                && count(&set["status"]["replicas"]) == 0
        })
        .collect();
    empty.sort_by_key(|(_, set)| revision(set));
    let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default();
    for (name, _) in empty.iter().take(empty.len().saturating_sub(limit)) {
        let options = DeleteOptions::default();
        note("replica set", cx.api.delete(cx.writer(), &REPLICASETS, namespace, name, &options));
    }
}

fn report(
    deployment: &Value,
    sets: &BTreeMap<String, Arc<Value>>,
    current: &str,
    cx: &mut Context<'_>,
) {
    let sum = |field: &str| sets.values().map(|set| count(&set["status"][field])).sum::<i64>();
    let replicas = wanted_replicas(deployment);
    let (total, ready, available) =
        (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
    let updated = sets.get(current).map_or(0, |set| count(&set["status"]["replicas"]));
    let fresh = sets.get(current).map_or(0, |set| count(&set["status"]["availableReplicas"]));
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"];
    let least = replicas - bound(rolling, replicas, false);
    let mut conditions = deployment["status"]["conditions"].clone();
    let (status, reason, message) = if available >= least {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut conditions, "Available", status, reason, message, cx.now);
    let done = fresh == replicas && total == replicas;
    let (reason, message) = if done {
        let text = format!("ReplicaSet \"{current}\" has successfully progressed.");
        ("NewReplicaSetAvailable", text)
    } else {
        ("ReplicaSetUpdated", format!("ReplicaSet \"{current}\" is progressing."))
    };
    set_condition(&mut conditions, "Progressing", "True", reason, &message, cx.now);
    let mut status = json!({
        "observedGeneration": deployment["metadata"]["generation"], "conditions": conditions,
        "replicas": total, "updatedReplicas": updated, "readyReplicas": ready,
        "availableReplicas": available, "unavailableReplicas": (replicas - available).max(0),
    });
    // Kubernetes leaves numbers out that are zero.
    if let Some(fields) = status.as_object_mut() {
        for (field, value) in fields.iter_mut() {
            if *value == 0 && deployment["status"][field].is_null() {
                *value = Value::Null;
            }
        }
        fields.retain(|_, value| !value.is_null());
    }
    write_status(cx, &DEPLOYMENTS, deployment, status);
}
