//! Defaults of pods and pod templates.

use serde_json::{Map, Value, json};

use super::{items, object, set};

/// The defaults that pods and pod templates share.
pub(super) fn spec(spec: &mut Map<String, Value>) {
    set(spec, "restartPolicy", || json!("Always"));
    set(spec, "terminationGracePeriodSeconds", || json!(30));
    set(spec, "dnsPolicy", || json!("ClusterFirst"));
    set(spec, "schedulerName", || json!("default-scheduler"));
    set(spec, "securityContext", || json!({}));
    let host_network = spec.get("hostNetwork").is_some_and(|value| value == true);
    for key in ["initContainers", "containers"] {
        for container in items(spec, key) {
            self::container(container, host_network);
        }
    }
    for volume in items(spec, "volumes") {
        self::volume(volume);
    }
    if let (Some(account), None) =
        (spec.get("serviceAccountName").cloned(), spec.get("serviceAccount"))
    {
        spec.insert("serviceAccount".to_owned(), account);
    }
}

/// The defaults that only pods have: requests follow limits.
pub(super) fn requests(spec: &mut Map<String, Value>) {
    set(spec, "enableServiceLinks", || json!(true));
    for key in ["initContainers", "containers"] {
        for container in items(spec, key) {
            let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut)
            else {
                continue;
            };
            let Some(Value::Object(limits)) = resources.get("limits").cloned() else { continue };
            if let Some(requests) = object(resources, "requests") {
                for (name, quantity) in limits {
                    requests.entry(name).or_insert(quantity);
                }
            }
        }
    }
}

fn container(container: &mut Map<String, Value>, host_network: bool) {
    set(container, "terminationMessagePath", || json!("/dev/termination-log"));
    set(container, "terminationMessagePolicy", || json!("File"));
    set(container, "resources", || json!({}));
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    set(container, "imagePullPolicy", || json!(policy));
    for port in items(container, "ports") {
        set(port, "protocol", || json!("TCP"));
        if host_network && let Some(number) = port.get("containerPort").cloned() {
            set(port, "hostPort", || number);
        }
    }
    for variable in items(container, "env") {
        let field = variable
            .get_mut("valueFrom")
            .and_then(|from| from.get_mut("fieldRef"))
            .and_then(Value::as_object_mut);
        if let Some(field) = field {
            set(field, "apiVersion", || json!("v1"));
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(key).and_then(Value::as_object_mut) else { continue };
        for (key, number) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            set(probe, key, || json!(number));
        }
        if let Some(get) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
            set(get, "path", || json!("/"));
            set(get, "scheme", || json!("HTTP"));
        }
    }
}

/// Whether the image has no tag, or the tag `latest`, and no digest.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').is_none_or(|(_name, tag)| tag == "latest")
}

fn volume(volume: &mut Map<String, Value>) {
    const SOURCES_WITH_MODE: [&str; 4] = ["configMap", "secret", "projected", "downwardAPI"];
    if volume.len() == 1 && volume.contains_key("name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for key in SOURCES_WITH_MODE {
        if let Some(source) = volume.get_mut(key).and_then(Value::as_object_mut) {
            set(source, "defaultMode", || json!(0o644));
        }
    }
    if let Some(path) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
        set(path, "type", || json!(""));
    }
    if let Some(projected) = volume.get_mut("projected").and_then(Value::as_object_mut) {
        for source in items(projected, "sources") {
            if let Some(token) =
                source.get_mut("serviceAccountToken").and_then(Value::as_object_mut)
            {
                set(token, "expirationSeconds", || json!(3_607));
            }
        }
    }
}

/// The quality-of-service class of a pod's spec.
pub(super) fn quality(spec: &Value) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let mut any = false;
    let mut guaranteed = true;
    for key in ["initContainers", "containers"] {
        for container in spec[key].as_array().into_iter().flatten() {
            let resources = &container["resources"];
            for name in COUNTED {
                let (request, limit) = (&resources["requests"][name], &resources["limits"][name]);
                any |= !request.is_null() || !limit.is_null();
                guaranteed &= !limit.is_null() && (request.is_null() || request == limit);
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
