//! The rules of built-in kinds.

use serde_json::Value;

use super::names;
use crate::api::admission::policy_errors;
use crate::api::error::FieldError;
use crate::api::registry::ResourceDef;
use crate::resource::{
    DAEMONSETS, DEPLOYMENTS, JOBS, LEASES, PODDISRUPTIONBUDGETS, PODS, REPLICASETS, RUNTIMECLASSES,
    SERVICES, STATEFULSETS, VALIDATINGADMISSIONPOLICIES,
};
use crate::selector;

/// Checks an object of a built-in kind; other kinds pass.
pub(crate) fn object(def: &ResourceDef, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match &def.resource {
        r if *r == PODS => pod_spec(&value["spec"], "spec", &mut errors),
        r if [DEPLOYMENTS, DAEMONSETS, REPLICASETS, STATEFULSETS].contains(r) => {
            workload(value, &mut errors);
        }
        r if *r == JOBS => {
            pod_spec(&value["spec"]["template"]["spec"], "spec.template.spec", &mut errors);
        }
        r if *r == LEASES => {
            if let Some(seconds) = value["spec"]["leaseDurationSeconds"].as_i64()
                && seconds <= 0
            {
                errors.push(FieldError::invalid(
                    "spec.leaseDurationSeconds",
                    &Value::from(seconds),
                    "must be greater than 0",
                ));
            }
        }
        r if *r == PODDISRUPTIONBUDGETS => disruption_budget(&value["spec"], &mut errors),
        r if *r == SERVICES => service(&value["spec"], &mut errors),
        r if *r == RUNTIMECLASSES => runtime_class(value, &mut errors),
        r if *r == VALIDATINGADMISSIONPOLICIES => errors.extend(policy_errors(value)),
        _ => {}
    }
    errors
}

/// Checks the status of an object of a built-in kind.
pub(crate) fn status(def: &ResourceDef, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if def.resource != PODDISRUPTIONBUDGETS {
        return errors;
    }
    let conditions = value["status"]["conditions"].as_array();
    for (index, condition) in conditions.into_iter().flatten().enumerate() {
        for key in ["type", "status", "lastTransitionTime", "reason"] {
            if condition[key].as_str().is_none_or(str::is_empty) {
                let field = format!("status.conditions[{index}].{key}");
                errors.push(FieldError::required(field, ""));
            }
        }
    }
    errors
}

fn runtime_class(value: &Value, errors: &mut Vec<FieldError>) {
    let handler = &value["handler"];
    let text = handler.as_str().unwrap_or_default();
    if text.is_empty() {
        errors.push(FieldError::required("handler", ""));
    } else if let Some(why) = names::dns_label(text) {
        errors.push(FieldError::invalid("handler", handler, &why));
    }
    let scheduling = &value["scheduling"];
    super::labels(&scheduling["nodeSelector"], "scheduling.nodeSelector", errors);
    tolerations(&scheduling["tolerations"], "scheduling.tolerations", errors);
}

fn tolerations(list: &Value, place: &str, errors: &mut Vec<FieldError>) {
    for (index, toleration) in list.as_array().into_iter().flatten().enumerate() {
        let field = |name: &str| format!("{place}[{index}].{name}");
        let text = |name: &str| toleration[name].as_str().unwrap_or_default();
        let (key, operator, effect) = (text("key"), text("operator"), text("effect"));
        if let Some(why) = names::qualified(key).filter(|_| !key.is_empty()) {
            errors.push(FieldError::invalid(field("key"), &toleration["key"], &why));
        }
        if key.is_empty() && operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(field("operator"), &Value::from(operator), why));
        }
        if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(field("effect"), &Value::from(effect), why));
        }
        match operator {
            // The real one names this field too.
            "" | "Equal" => errors.extend(
                names::label_value(text("value"))
                    .map(|why| FieldError::invalid(field("operator"), &toleration["value"], &why)),
            ),
            "Exists" if !text("value").is_empty() => {
                let why = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(field("operator"), toleration, why));
            }
            "Exists" => {}
            other => {
                errors.push(FieldError::unsupported(
                    field("operator"),
                    other,
                    &["Equal", "Exists"],
                ));
            }
        }
        let effects = ["NoExecute", "NoSchedule", "PreferNoSchedule"];
        if !effect.is_empty() && !effects.contains(&effect) {
            errors.push(FieldError::unsupported(field("effect"), effect, &effects));
        }
    }
}

fn disruption_budget(spec: &Value, errors: &mut Vec<FieldError>) {
    let (min, max) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !min.is_null() && !max.is_null() {
        // The real message shows the internal struct.
        let message = format!(
            "Invalid value: {{\"MinAvailable\":{min},\"Selector\":{},\"MaxUnavailable\":{max},\
             \"UnhealthyPodEvictionPolicy\":{}}}: minAvailable and maxUnavailable cannot be both set",
            spec["selector"], spec["unhealthyPodEvictionPolicy"],
        );
        let reason = "FieldValueInvalid";
        errors.push(FieldError { field: "spec".to_owned(), reason, message });
    }
    for (field, number) in [("spec.minAvailable", min), ("spec.maxUnavailable", max)] {
        if number.as_i64().is_some_and(|number| number < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(field, number, why));
        }
    }
}

fn workload(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = &value["spec"];
    if let Some(replicas) = spec["replicas"].as_i64().filter(|replicas| *replicas < 0) {
        errors.push(FieldError::invalid(
            "spec.replicas",
            &Value::from(replicas),
            "must be greater than or equal to 0",
        ));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else if !selector::matches(&spec["selector"], labels) {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    let strategy = &spec["strategy"];
    if strategy["type"] == "Recreate" && !strategy["rollingUpdate"].is_null() {
        errors.push(FieldError::forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        ));
    }
    pod_spec(&spec["template"]["spec"], "spec.template.spec", errors);
}

fn pod_spec(spec: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{place}.containers"), ""));
    }
    let mut seen = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let place = format!("{place}.containers[{index}]");
        match container["name"].as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(format!("{place}.name"), "")),
            name => {
                if let Some(why) = names::dns_label(name) {
                    errors.push(FieldError::invalid(
                        format!("{place}.name"),
                        &container["name"],
                        &why,
                    ));
                }
                if seen.contains(&name) {
                    errors.push(FieldError {
                        field: format!("{place}.name"),
                        reason: "FieldValueDuplicate",
                        message: format!("Duplicate value: \"{name}\""),
                    });
                }
                seen.push(name);
            }
        }
        if container["image"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{place}.image"), ""));
        }
    }
    tolerations(&spec["tolerations"], &format!("{place}.tolerations"), errors);
    if let Some(policy) = spec["restartPolicy"].as_str()
        && !["Always", "Never", "OnFailure"].contains(&policy)
    {
        errors.push(FieldError::unsupported(
            format!("{place}.restartPolicy"),
            policy,
            &["Always", "OnFailure", "Never"],
        ));
    }
}

fn service(spec: &Value, errors: &mut Vec<FieldError>) {
    let ports = spec["ports"].as_array().map_or(0, Vec::len);
    if ports == 0 && spec["type"] != "ExternalName" && spec["clusterIP"] != "None" {
        errors.push(FieldError::required("spec.ports", ""));
    }
}
