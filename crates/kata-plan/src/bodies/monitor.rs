//! The objects of kata-monitor: what its pods may do, what they look like, and whether existing objects
//! differ.
//!
//! Upstream's kata-monitor reads the sockets of CRI-O and of the sandboxes on its node and serves what
//! it learns to Prometheus. It asks nothing of the API server and changes nothing on the node, so its
//! pods have no token, no capability and no way to write to the host.

use kata_api::{KataConfig, names};
use serde_json::{Value, json};

use super::{body, own_labels};
use crate::object::Kind;
use crate::selection::Mode;

/// The user and group of kata-monitor, as the OpenShift operator runs it.
const USER: i64 = 1001;
/// The SELinux type that lets it use these sockets; its policy comes with the extension.
const SELINUX_TYPE: &str = "osc_monitor.process";
/// Where CRI-O's socket is.
const RUNTIME_DIRECTORY: &str = "/run/crio/";
/// Where the sockets of the sandboxes are.
const SANDBOX_DIRECTORY: &str = "/run/vc/sbs/";
/// Where it serves; the Service has the same number.
const PORT: u16 = 8090;

/// Values that are replaced as a whole, as server-side apply does.
const ATOMIC: &[&str] = &["nodeSelector", "matchLabels", "tolerations"];
/// What tells the elements of a list apart, where there is something.
const KEYS: &[&str] = &["uid", "mountPath", "containerPort", "name"];

/// Whether a DaemonSet or SecurityContextConstraints is ours, or the OpenShift operator's.
pub(crate) fn is_ours(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["labels"][names::MANAGED_BY] == names::PRODUCT
        || metadata["ownerReferences"].as_array().into_iter().flatten().any(|owner| {
            owner["kind"] == Kind::KataConfig.as_str()
                && owner["apiVersion"]
                    .as_str()
                    .is_some_and(|version| version.starts_with("kataconfiguration.openshift.io/"))
        })
}

fn owned(kind: Kind, name: &str, config: &KataConfig) -> Value {
    let mut body = body(kind, name, &own_labels(config));
    // What goes with its KataConfig in any case, whoever is there to delete it.
    body["metadata"]["ownerReferences"] = json!([{
        "apiVersion": Kind::KataConfig.api_version(),
        "kind": Kind::KataConfig.as_str(),
        "name": config.metadata.name,
        "uid": config.metadata.uid,
    }]);
    body
}

/// The SecurityContextConstraints, if the existing ones differ. Others than our service account may
/// get them too, if they may use all there are: what these constraints would change about a pod by
/// themselves is kept to a minimum, since that has stopped other operators' pods before.
pub(crate) fn constraints(
    config: &KataConfig,
    namespace: &str,
    existing: Option<&Value>,
) -> Option<Value> {
    let mut body = owned(Kind::SecurityContextConstraints, names::MONITOR_CONSTRAINTS, config);
    let account = names::MONITOR_ACCOUNT;
    let rules = json!({
        "allowHostDirVolumePlugin": true,
        "allowHostIPC": false,
        "allowHostNetwork": false,
        "allowHostPID": false,
        "allowHostPorts": false,
        "allowPrivilegeEscalation": false,
        "allowPrivilegedContainer": false,
        "allowedCapabilities": [],
        "defaultAddCapabilities": [],
        "fsGroup": {"type": "RunAsAny"},
        "groups": [],
        "priority": 0,
        "readOnlyRootFilesystem": false,
        "requiredDropCapabilities": ["ALL"],
        "runAsUser": {"type": "MustRunAsNonRoot"},
        "seLinuxContext": {"type": "RunAsAny"},
        "seccompProfiles": ["runtime/default"],
        "supplementalGroups": {"type": "RunAsAny"},
        "users": [format!("system:serviceaccount:{namespace}:{account}")],
        "volumes": ["hostPath"],
    });
    if let (Some(body), Value::Object(rules)) = (body.as_object_mut(), rules) {
        body.extend(rules);
    }
    (!existing.is_some_and(|existing| covers(existing, &body))).then_some(body)
}

/// The DaemonSet, if the existing one differs. Its selector cannot be changed, so it is what the
/// OpenShift operator chose. Its pods go to nodes that can run sandboxed pods and to no others: the
/// SELinux type does not exist before.
pub(crate) fn daemon_set(
    config: &KataConfig,
    mode: Mode,
    namespace: &str,
    image: &str,
    existing: Option<&Value>,
) -> Option<Value> {
    let mut body = owned(Kind::DaemonSet, names::MONITOR, config);
    body["metadata"]["namespace"] = json!(namespace);
    body["metadata"]["labels"]["name"] = json!(names::MONITOR);
    let mut labels = json!({"name": names::MONITOR});
    labels[names::MANAGED_BY] = json!(names::PRODUCT);
    labels[names::PART_OF] = json!(names::PRODUCT);
    body["spec"] = json!({
        "selector": {"matchLabels": {"name": names::MONITOR}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        "template": {
            "metadata": {
                "labels": labels,
                "annotations": {"openshift.io/required-scc": names::MONITOR_CONSTRAINTS},
            },
            "spec": {
                "serviceAccountName": names::MONITOR_ACCOUNT,
                "automountServiceAccountToken": false,
                "nodeSelector": {
                    mode.node_label(): "",
                    names::RUNTIME_LABEL: names::RUNTIME_LABEL_VERIFIED,
                },
                // Whatever keeps other pods away from a node with sandboxes.
                "tolerations": [{"operator": "Exists"}],
                "securityContext": {
                    "runAsNonRoot": true,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container(image)],
                "volumes": [
                    {"name": "crio", "hostPath": {"path": RUNTIME_DIRECTORY, "type": "Directory"}},
                    {
                        "name": "sandboxes",
                        // Made by the first sandbox.
                        "hostPath": {"path": SANDBOX_DIRECTORY, "type": "DirectoryOrCreate"},
                    },
                ],
            },
        },
    });
    (!existing.is_some_and(|existing| covers(existing, &body))).then_some(body)
}

fn container(image: &str) -> Value {
    json!({
        "name": "kata-monitor",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "/usr/bin/kata-monitor",
            format!("--listen-address=:{PORT}"),
            "--log-level=info",
            format!("--runtime-endpoint={RUNTIME_DIRECTORY}crio.sock"),
        ],
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        // No limits: what it holds in memory grows with the sandboxes on its node.
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "privileged": false,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seLinuxOptions": {"type": SELINUX_TYPE},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        // A socket can be used where nothing can be written.
        "volumeMounts": [
            {"name": "crio", "mountPath": RUNTIME_DIRECTORY, "readOnly": true},
            {"name": "sandboxes", "mountPath": SANDBOX_DIRECTORY, "readOnly": true},
        ],
    })
}

/// Whether an object has all our fields as they shall be. What others added beside them stays.
fn covers(existing: &Value, wanted: &Value) -> bool {
    match (existing, wanted) {
        (existing, wanted) if is_empty(wanted) => is_empty(existing),
        (Value::Object(existing), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            let existing = existing.get(key).unwrap_or(&Value::Null);
            if ATOMIC.contains(&key.as_str()) {
                existing == wanted
            } else {
                covers(existing, wanted)
            }
        }),
        (Value::Array(existing), Value::Array(wanted)) => {
            let key = |item: &Value| KEYS.iter().find(|key| !item[**key].is_null());
            if wanted.iter().any(|item| key(item).is_none()) {
                return existing == wanted;
            }
            wanted.iter().all(|wanted| {
                key(wanted).is_some_and(|key| {
                    existing.iter().any(|item| item[*key] == wanted[*key] && covers(item, wanted))
                })
            })
        }
        (existing, wanted) => existing == wanted,
    }
}

/// Whether the API server may leave the value out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}
