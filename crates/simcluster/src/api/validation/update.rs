//! What may not change once an object exists.

use serde_json::{Value, json};

use crate::api::error::FieldError;
use crate::api::server::Call;
use crate::resource::{
    CONFIGMAPS, DAEMONSETS, DEPLOYMENTS, JOBS, PODS, PRIORITYCLASSES, REPLICASETS, RUNTIMECLASSES,
    SECRETS, SERVICES, STATEFULSETS,
};

/// What may change in the spec of a StatefulSet.
const STATEFUL_SET_OPEN: [&str; 7] = [
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "replicas",
    "revisionHistoryLimit",
    "template",
    "updateStrategy",
];

/// Checks a change of an object of a built-in kind.
pub(crate) fn update(call: &Call<'_>, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut fixed = |pointer: &str| {
        let (was, is) = (old.pointer(pointer), new.pointer(pointer));
        if was != is {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            let value = is.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(field, &value, "field is immutable"));
        }
    };
    match call.resource() {
        r if *r == RUNTIMECLASSES => fixed("/handler"),
        r if [DEPLOYMENTS, DAEMONSETS, REPLICASETS, JOBS].contains(r) => {
            fixed("/spec/selector");
            if *r == JOBS {
                fixed("/spec/completions");
                fixed("/spec/template");
            }
        }
        r if [CONFIGMAPS, SECRETS].contains(r) && old["immutable"] == true => {
            for key in ["data", "binaryData", "immutable"] {
                if old[key] != new[key] {
                    errors.push(FieldError::forbidden(
                        key,
                        "field is immutable when `immutable` is set",
                    ));
                }
            }
        }
        r if *r == STATEFULSETS => {
            let fixed = |spec: &Value| {
                let mut spec = spec.as_object().cloned().unwrap_or_default();
                spec.retain(|key, _value| !STATEFUL_SET_OPEN.contains(&key.as_str()));
                spec
            };
            if fixed(&old["spec"]) != fixed(&new["spec"]) {
                errors.push(FieldError::forbidden(
                    "spec",
                    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                     'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                     'minReadySeconds' are forbidden",
                ));
            }
        }
        r if *r == SERVICES => {
            let address = |object: &Value| {
                object["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned()
            };
            let (was, is) = (address(old), address(new));
            if !was.is_empty() && was != is && new["spec"]["type"] != "ExternalName" {
                let shown = json!([is]);
                let why = "may not change once set";
                errors.push(FieldError::invalid("spec.clusterIPs[0]", &shown, why));
            }
        }
        r if *r == PRIORITYCLASSES && old["value"] != new["value"] => {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        r if r.group == "rbac.authorization.k8s.io" && old["roleRef"] != new["roleRef"] => {
            // The real message shows the internal struct.
            let reference = &new["roleRef"];
            let shown = json!({
                "APIGroup": reference["apiGroup"], "Kind": reference["kind"], "Name": reference["name"],
            });
            errors.push(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
        }
        r if *r == PODS && !pod_change_allowed(call, &old["spec"], &new["spec"]) => {
            errors.push(FieldError::forbidden(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,\
                 `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
                 to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                 previously negative)",
            ));
        }
        _ => {}
    }
    errors
}

/// Whether a pod's spec changed only where it may.
fn pod_change_allowed(call: &Call<'_>, old: &Value, new: &Value) -> bool {
    if old == new {
        return true;
    }
    let mut allowed = new.clone();
    let Some(spec) = allowed.as_object_mut() else { return false };
    for key in ["containers", "initContainers"] {
        let (Some(was), Some(is)) =
            (old[key].as_array(), spec.get_mut(key).and_then(|list| list.as_array_mut()))
        else {
            continue;
        };
        for (was, is) in was.iter().zip(is) {
            if is.is_object() && is["image"].is_string() {
                is["image"] = was["image"].clone();
            }
        }
    }
    let tolerations = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
    let kept = {
        let is = tolerations(new);
        tolerations(old).iter().all(|toleration| is.contains(toleration))
    };
    if !kept {
        return false;
    }
    let mut undo = vec!["tolerations", "activeDeadlineSeconds", "schedulingGates"];
    if old["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0)
        && new["terminationGracePeriodSeconds"] == json!(1)
    {
        undo.push("terminationGracePeriodSeconds");
    }
    // The scheduler inside the cluster may place a pod without the binding subresource.
    if call.trusted && old["nodeName"].is_null() {
        undo.push("nodeName");
    }
    for key in undo {
        match old.get(key) {
            Some(value) => {
                spec.insert(key.to_owned(), value.clone());
            }
            None => {
                spec.remove(key);
            }
        }
    }
    allowed == *old
}
