//! The plugins that complete every pod: service account, priority, default tolerations.

use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::server::ApiServer;
use crate::resource::{PODS, PRIORITYCLASSES};

/// How long a pod stays on a node that went away, in seconds.
const STAY_SECONDS: i64 = 300;

/// The classes that every cluster has.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Names the service account.
pub(super) fn account(pod: &mut Value) {
    if !pod["spec"].is_object() {
        return;
    }
    if pod["spec"]["serviceAccountName"].as_str().is_none_or(str::is_empty) {
        pod["spec"]["serviceAccountName"] = json!("default");
    }
    pod["spec"]["serviceAccount"] = pod["spec"]["serviceAccountName"].clone();
}

/// Turns the priority class into a number.
pub(super) fn priority(api: &ApiServer, name: &str, pod: &mut Value) -> Result<(), ApiError> {
    if !pod["spec"].is_object() {
        return Ok(());
    }
    let wanted = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if wanted.is_empty() {
        api.store.list(&PRIORITYCLASSES).find(|class| class["globalDefault"] == true).cloned()
    } else {
        api.store.get(&PRIORITYCLASSES, "", &wanted).cloned()
    };
    let built_in = SYSTEM_CLASSES.iter().find(|(name, _value)| *name == wanted);
    let (number, policy) = match (class, built_in) {
        (Some(class), _) => {
            pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
            (class["value"].clone(), class["preemptionPolicy"].clone())
        }
        (None, Some((_name, value))) => (json!(value), Value::Null),
        (None, None) if wanted.is_empty() => (json!(0), Value::Null),
        (None, None) => {
            return Err(ApiError::forbidden(
                &PODS,
                name,
                &format!("no PriorityClass with name {wanted} was found"),
            ));
        }
    };
    pod["spec"]["priority"] = number;
    if pod["spec"]["preemptionPolicy"].is_null() {
        pod["spec"]["preemptionPolicy"] =
            if policy.is_null() { json!("PreemptLowerPriority") } else { policy };
    }
    Ok(())
}

/// Lets a pod stay for a while on a node that is not ready or not reachable.
pub(super) fn default_tolerations(pod: &mut Value) {
    if !pod["spec"].is_object() {
        return;
    }
    let tolerations = &mut pod["spec"]["tolerations"];
    if !tolerations.is_array() {
        *tolerations = json!([]);
    }
    let Some(list) = tolerations.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|toleration| {
            let named = toleration["key"].as_str().unwrap_or_default();
            let effect = toleration["effect"].as_str().unwrap_or_default();
            (named.is_empty() || named == key) && (effect.is_empty() || effect == "NoExecute")
        });
        if !tolerated {
            list.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": STAY_SECONDS,
            }));
        }
    }
}
