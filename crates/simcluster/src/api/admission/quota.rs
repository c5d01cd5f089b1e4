//! The plugin that holds a namespace to its ResourceQuotas, as far as they limit the number of pods.

use serde_json::Value;

use crate::api::error::ApiError;
use crate::api::server::ApiServer;
use crate::node::pod::is_finished;
use crate::quantity;
use crate::resource::{PODS, RESOURCEQUOTAS};

/// Refuses a pod that is one too many for a quota without scopes.
pub(super) fn admit(api: &ApiServer, namespace: &str, name: &str) -> Result<(), ApiError> {
    let within = |object: &Value| object["metadata"]["namespace"] == namespace;
    for quota in api.store.list(&RESOURCEQUOTAS).filter(|quota| within(quota)) {
        let spec = &quota["spec"];
        if !spec["scopes"].is_null() || !spec["scopeSelector"].is_null() {
            continue;
        }
        for (key, counts_finished) in [("pods", false), ("count/pods", true)] {
            let Some(hard) = spec["hard"][key].as_str() else { continue };
            let used = api
                .store
                .list(&PODS)
                .filter(|pod| within(pod) && (counts_finished || !is_finished(pod)))
                .count();
            let limit = quantity::milli(hard).unwrap_or(i64::MAX) / 1000;
            if i64::try_from(used).unwrap_or(i64::MAX) >= limit {
                let quota = quota["metadata"]["name"].as_str().unwrap_or_default();
                let why = format!(
                    "exceeded quota: {quota}, requested: {key}=1, used: {key}={used}, limited: {key}={hard}"
                );
                return Err(ApiError::forbidden(&PODS, name, &why));
            }
        }
    }
    Ok(())
}
