//! What the API server fills in where a client said nothing, for built-in kinds.
//!
//! Pure functions on decoded objects. Defaults of custom resources come from their schemas.

mod pod;
mod workload;

pub(crate) use workload::{
    TEMPLATE_GENERATION, count_template, first_template, uncounted_template,
};

use serde_json::{Map, Value, json};

use super::registry::ResourceDef;
use crate::Resource;
use crate::resource::{
    CRDS, CRONJOBS, DAEMONSETS, DEPLOYMENTS, JOBS, NAMESPACES, NODES, PERSISTENTVOLUMECLAIMS,
    PODDISRUPTIONBUDGETS, PODS, PRIORITYCLASSES, REPLICASETS, SECRETS, SERVICES, STATEFULSETS,
};

/// What a node always says of itself, if only as an empty string.
const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

/// Sets `key` if it is absent or null.
fn set(map: &mut Map<String, Value>, key: &str, value: impl FnOnce() -> Value) {
    match map.get_mut(key) {
        Some(Value::Null) | None => {
            map.insert(key.to_owned(), value());
        }
        Some(_) => {}
    }
}

/// The member as an object, made if it is absent; `None` if it is something else.
fn object<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    set(map, key, || json!({}));
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// The objects in a list.
fn items<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// Fills in the defaults of a built-in kind: on creation and on every change.
pub(crate) fn apply(resource: &Resource, value: &mut Value) {
    let Some(root) = value.as_object_mut() else { return };
    match resource {
        r if *r == PODS => {
            if let Some(spec) = object(root, "spec") {
                pod::spec(spec);
                pod::requests(spec);
            }
        }
        r if [DEPLOYMENTS, DAEMONSETS, REPLICASETS, STATEFULSETS, JOBS, CRONJOBS].contains(r) => {
            workload::apply(resource, root);
        }
        r if *r == SERVICES => service(root),
        r if *r == SECRETS => secret(root),
        r if *r == NAMESPACES => {
            let name = root.get("metadata").and_then(|metadata| metadata.get("name")).cloned();
            if let (Some(name @ Value::String(_)), Some(metadata)) =
                (name, object(root, "metadata"))
                && let Some(labels) = object(metadata, "labels")
            {
                set(labels, "kubernetes.io/metadata.name", || name);
            }
            if let Some(spec) = object(root, "spec") {
                spec.entry("finalizers").or_insert_with(|| json!([]));
                if spec.get("finalizers").and_then(Value::as_array).is_some_and(Vec::is_empty) {
                    spec.remove("finalizers");
                }
            }
        }
        r if *r == NODES => {
            let capacity = root.get("status").and_then(|status| status.get("capacity")).cloned();
            if let (Some(capacity), Some(status)) = (capacity, object(root, "status")) {
                set(status, "allocatable", || capacity);
            }
            if let Some(status) = object(root, "status") {
                set(status, "daemonEndpoints", || json!({"kubeletEndpoint": {"Port": 0}}));
                if let Some(info) = object(status, "nodeInfo") {
                    for key in NODE_INFO {
                        set(info, key, || json!(""));
                    }
                }
            }
            object(root, "spec");
        }
        r if *r == PERSISTENTVOLUMECLAIMS => {
            if let Some(spec) = object(root, "spec") {
                set(spec, "volumeMode", || json!("Filesystem"));
            }
        }
        r if *r == PRIORITYCLASSES => {
            set(root, "preemptionPolicy", || json!("PreemptLowerPriority"));
        }
        r if *r == CRDS => definition(root),
        r if r.group == "storage.k8s.io" && r.plural == "storageclasses" => {
            set(root, "reclaimPolicy", || json!("Delete"));
            set(root, "volumeBindingMode", || json!("Immediate"));
        }
        r if r.group == "rbac.authorization.k8s.io" && r.plural.ends_with("roles") => {
            // Go writes the list that is not there.
            root.entry("rules").or_insert(Value::Null);
        }
        r if r.group == "rbac.authorization.k8s.io" => binding(root),
        _ => {}
    }
}

/// Writes the times of conditions and events that nobody set as null, as Go does.
pub(crate) fn times(resource: &Resource, value: &mut Value) {
    let keys: &[&str] = match resource {
        r if *r == PODS || *r == JOBS || *r == PERSISTENTVOLUMECLAIMS => {
            &["lastProbeTime", "lastTransitionTime"]
        }
        r if *r == NODES => &["lastHeartbeatTime", "lastTransitionTime"],
        r if *r == DEPLOYMENTS => &["lastTransitionTime", "lastUpdateTime"],
        r if [DAEMONSETS, NAMESPACES, REPLICASETS, SERVICES, STATEFULSETS].contains(r) => {
            &["lastTransitionTime"]
        }
        _ => return,
    };
    let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) else { return };
    for condition in items(status, "conditions") {
        if *resource == SERVICES {
            set(condition, "message", || json!(""));
            set(condition, "reason", || json!(""));
        }
        for key in keys {
            condition.entry(*key).or_insert(Value::Null);
        }
    }
}

/// Sets the status that a new object starts with.
pub(crate) fn initial_status(def: &ResourceDef, value: &mut Value) {
    if !def.status || def.custom.is_some() || def.resource == NODES {
        return;
    }
    let status = match &def.resource {
        r if *r == NAMESPACES => {
            let spec = &mut value["spec"];
            if spec["finalizers"].as_array().is_none_or(Vec::is_empty) {
                spec["finalizers"] = json!(["kubernetes"]);
            }
            json!({"phase": "Active"})
        }
        r if *r == PODS => json!({"phase": "Pending", "qosClass": pod::quality(&value["spec"])}),
        r if *r == SERVICES => json!({"loadBalancer": {}}),
        r if *r == DAEMONSETS => json!({
            "currentNumberScheduled": 0,
            "desiredNumberScheduled": 0,
            "numberMisscheduled": 0,
            "numberReady": 0,
        }),
        r if *r == REPLICASETS => json!({"replicas": 0}),
        r if *r == STATEFULSETS => json!({"replicas": 0, "availableReplicas": 0}),
        r if *r == PODDISRUPTIONBUDGETS => json!({
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "disruptionsAllowed": 0,
            "expectedPods": 0,
        }),
        r if r.plural == "persistentvolumeclaims" || r.plural == "persistentvolumes" => {
            json!({"phase": "Pending"})
        }
        _ => json!({}),
    };
    value["status"] = status;
}

/// Fills in what depends on the uid of the new object, or has to be handed out.
pub(crate) fn with_identity(
    resource: &Resource,
    value: &mut Value,
    address: &mut dyn FnMut() -> String,
) {
    if *resource == JOBS {
        workload::job_selector(value);
    }
    if *resource == CRDS {
        hold_definition(value);
    }
    let wants_address = *resource == SERVICES
        && matches!(
            value["spec"]["type"].as_str(),
            Some("ClusterIP" | "NodePort" | "LoadBalancer")
        );
    if *resource == SERVICES
        && value["spec"]["type"] != "ExternalName"
        && let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut)
    {
        set(spec, "ipFamilies", || json!(["IPv4"]));
        set(spec, "ipFamilyPolicy", || json!("SingleStack"));
    }
    if wants_address {
        if value["spec"]["clusterIP"].as_str().is_none_or(str::is_empty) {
            value["spec"]["clusterIP"] = json!(address());
        }
        value["spec"]["clusterIPs"] = json!([value["spec"]["clusterIP"]]);
    }
}

/// Keeps what the server once handed out, where a client that replaces the object left it out.
pub(crate) fn carry_over(resource: &Resource, old: &Value, new: &mut Value) {
    let kept: &[&str] = match resource {
        r if *r == SERVICES => &[
            "/spec/clusterIP",
            "/spec/clusterIPs",
            "/spec/healthCheckNodePort",
            "/spec/ipFamilies",
            "/spec/ipFamilyPolicy",
        ],
        r if *r == NAMESPACES => {
            // Only the subresource changes them.
            if let Some(finalizers) = old.pointer("/spec/finalizers") {
                new["spec"]["finalizers"] = finalizers.clone();
            }
            return;
        }
        _ => return,
    };
    for pointer in kept {
        let Some(value) = old.pointer(pointer) else { continue };
        let key = pointer.trim_start_matches("/spec/");
        if new.pointer(pointer).is_none() && new["spec"].is_object() {
            new["spec"][key] = value.clone();
        }
    }
}

fn service(root: &mut Map<String, Value>) {
    let Some(spec) = object(root, "spec") else { return };
    set(spec, "type", || json!("ClusterIP"));
    set(spec, "sessionAffinity", || json!("None"));
    if spec.get("type").is_some_and(|kind| kind == "ExternalName") {
        return;
    }
    set(spec, "internalTrafficPolicy", || json!("Cluster"));
    for port in items(spec, "ports") {
        set(port, "protocol", || json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            set(port, "targetPort", || number);
        }
    }
}

fn secret(root: &mut Map<String, Value>) {
    use base64::Engine as _;
    set(root, "type", || json!("Opaque"));
    let Some(Value::Object(plain)) = root.remove("stringData") else { return };
    if let Some(data) = object(root, "data") {
        for (key, text) in plain {
            if let Value::String(text) = text {
                let encoded = base64::engine::general_purpose::STANDARD.encode(text);
                data.insert(key, Value::String(encoded));
            }
        }
    }
}

fn definition(root: &mut Map<String, Value>) {
    let Some(spec) = object(root, "spec") else { return };
    set(spec, "conversion", || json!({"strategy": "None"}));
    if let Some(names) = object(spec, "names") {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !kind.is_empty() {
            set(names, "listKind", || json!(format!("{kind}List")));
            set(names, "singular", || json!(kind.to_lowercase()));
        }
    }
}

/// Makes a new definition wait for its instances when it is deleted.
fn hold_definition(value: &mut Value) {
    let cleanup = json!(super::registry::CLEANUP);
    let finalizers = &mut value["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(list) if list.contains(&cleanup) => {}
        Some(list) => list.push(cleanup),
        None => *finalizers = json!([cleanup]),
    }
}

fn binding(root: &mut Map<String, Value>) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(role) = root.get_mut("roleRef").and_then(Value::as_object_mut) {
        set(role, "apiGroup", || json!(GROUP));
    }
    for subject in items(root, "subjects") {
        let kind = subject.get("kind").and_then(Value::as_str);
        if matches!(kind, Some("User" | "Group")) {
            set(subject, "apiGroup", || json!(GROUP));
        }
    }
}
