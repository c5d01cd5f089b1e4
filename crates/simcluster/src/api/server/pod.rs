//! The pod subresources that are verbs: binding to a node, and eviction.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ApiServer;
use super::call::Call;
use super::identity::stamp;
use super::request::{DeleteOptions, Writer};
use super::update::Source;
use crate::Resource;
use crate::api::error::ApiError;
use crate::resource::{PODDISRUPTIONBUDGETS, PODS};
use crate::selector;

/// The most pods that a budget lists as being disrupted before it refuses more.
const MOST_DISRUPTED: usize = 2_000;

impl ApiServer {
    /// Puts a pod on a node: POST of `pods/binding`.
    pub(super) fn bind_pod(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        binding: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Err(ApiError::invalid(
                "",
                "Binding",
                name,
                vec![crate::api::error::FieldError::required("target.name", "")],
            ));
        }
        let old = self.expect(call, name)?;
        let conflict =
            |why: &str| Err(ApiError::conflict_on(&Resource::new("", "pods/binding"), name, why));
        if !old["metadata"]["deletionTimestamp"].is_null() {
            return conflict(&format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if let Some(current) = old["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) {
            return conflict(&format!("pod {name} is already assigned to node \"{current}\""));
        }
        let mut new = (*old).clone();
        new["spec"]["nodeName"] = json!(node);
        if let Value::Object(annotations) = &binding["metadata"]["annotations"]
            && !annotations.is_empty()
        {
            for (key, value) in annotations.iter().filter(|(_key, value)| value.is_string()) {
                new["metadata"]["annotations"][key] = value.clone();
            }
        }
        // The condition is written here, with the node, so that nobody sees one without the other.
        let condition = json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": stamp(call.writer.now),
        });
        let conditions = &mut new["status"]["conditions"];
        match conditions.as_array_mut() {
            Some(list) => {
                list.retain(|item| item["type"] != "PodScheduled");
                list.push(condition);
            }
            None => *conditions = json!([condition]),
        }
        if call.def.generation {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
            new["metadata"]["generation"] = json!(generation);
        }
        // A binding leaves no trace in the managed fields: the field manager sees the Binding only.
        self.commit(call, name, new);
        Ok(created())
    }

    /// Evicts a pod if its disruption budget allows: POST of `pods/eviction`.
    pub(super) fn evict_pod(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        eviction: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let options = DeleteOptions::from_value(&eviction["deleteOptions"]);
        call.dry_run |=
            eviction["deleteOptions"]["dryRun"].as_array().is_some_and(|all| !all.is_empty());
        let pod = self.expect(call, name)?;
        if !disrupts_nothing(&pod) {
            self.spend_budget(call, name, &pod)?;
        }
        self.delete_object(call, name, &options)?;
        Ok(created())
    }

    /// Asks the pod's budget, and takes one disruption from it.
    fn spend_budget(&mut self, call: &Call<'_>, name: &str, pod: &Value) -> Result<(), ApiError> {
        let budgets: Vec<Arc<Value>> = self
            .store
            .list(&PODDISRUPTIONBUDGETS)
            .filter(|budget| {
                budget["metadata"]["namespace"] == call.namespace
                    && selector::matches(&budget["spec"]["selector"], &pod["metadata"]["labels"])
            })
            .cloned()
            .collect();
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                return Err(ApiError::new(
                    500,
                    "InternalError",
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let status = &budget["status"];
        let number = |key: &str| status[key].as_i64().unwrap_or_default();
        let budget_name = budget["metadata"]["name"].as_str().unwrap_or_default();
        let healthy = number("currentHealthy");
        let desired = number("desiredHealthy");
        let ready = pod["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        if !ready {
            let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            if always || (healthy >= desired && desired > 0) {
                return Ok(());
            }
        }
        let observed = status["observedGeneration"].as_i64().unwrap_or_default();
        if observed < budget["metadata"]["generation"].as_i64().unwrap_or_default() {
            return Err(too_many(
                &format!(
                    "The disruption budget {budget_name} is still being processed by the server."
                ),
                10,
            ));
        }
        let disrupted = status["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
        let allowed = number("disruptionsAllowed");
        if allowed < 0 || disrupted > MOST_DISRUPTED {
            return Err(ApiError::forbidden(
                &PODDISRUPTIONBUDGETS,
                budget_name,
                "pdb disruptions allowed is negative or too many evictions are not confirmed",
            ));
        }
        if allowed == 0 {
            return Err(too_many(
                &format!(
                    "The disruption budget {budget_name} needs {desired} healthy pods and has {healthy} currently"
                ),
                0,
            ));
        }
        if call.dry_run {
            return Ok(());
        }
        let mut new = (**budget).clone();
        new["status"]["disruptionsAllowed"] = json!(allowed - 1);
        new["status"]["disruptedPods"][name] = json!(stamp(call.writer.now));
        let def = self
            .registry
            .get(&PODDISRUPTIONBUDGETS)
            .cloned()
            .ok_or_else(ApiError::unknown_resource)?;
        let writer = Writer { manager: "kube-apiserver", now: call.writer.now };
        let mut status_call = Call::inside(writer, def, call.namespace, "status");
        self.replace_object(&mut status_call, budget, new, Source::Put)?;
        Ok(())
    }

    /// Puts a pod on a node, as the scheduler does.
    ///
    /// # Errors
    /// As the real API server answers a POST of `pods/binding`.
    pub fn bind(
        &mut self,
        writer: Writer<'_>,
        namespace: &str,
        name: &str,
        node: &str,
    ) -> Result<(), ApiError> {
        let def = self.registry.get(&PODS).cloned().ok_or_else(ApiError::unknown_resource)?;
        let mut call = Call::inside(writer, def, namespace, "binding");
        self.bind_pod(&mut call, name, &json!({"target": {"kind": "Node", "name": node}}))?;
        Ok(())
    }

    /// Evicts a pod, as `kubectl drain` does.
    ///
    /// # Errors
    /// As the real API server answers a POST of `pods/eviction`; `429 TooManyRequests` if a
    /// disruption budget forbids it.
    pub fn evict(
        &mut self,
        writer: Writer<'_>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let def = self.registry.get(&PODS).cloned().ok_or_else(ApiError::unknown_resource)?;
        let mut call = Call::inside(writer, def, namespace, "eviction");
        let pod = self.expect(&call, name)?;
        if !disrupts_nothing(&pod) {
            self.spend_budget(&call, name, &pod)?;
        }
        call.subresource = "";
        self.delete_object(&call, name, options)?;
        Ok(())
    }
}

/// Whether no budget counts the pod any more, or yet.
fn disrupts_nothing(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
        || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"))
}

/// The `Status` that answers a verb.
fn created() -> Arc<Value> {
    Arc::new(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    }))
}

fn too_many(cause: &str, retry_after: u64) -> ApiError {
    let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    if retry_after > 0 {
        details["retryAfterSeconds"] = json!(retry_after);
    }
    ApiError::new(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    )
    .with_details(details)
}
