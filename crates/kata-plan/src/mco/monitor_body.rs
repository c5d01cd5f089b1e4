//! The objects of kata-monitor, and whether existing objects differ.
//!
//! kata-monitor is a program of Kata Containers. It reads the sockets of CRI-O and of the sandboxes on its
//! node and serves metrics to Prometheus. It uses no API and changes nothing on the node, so its pods have
//! no token, no capability and no write access to the host.

use kata_api::{KataConfig, names};
use serde_json::{Value, json};

use super::mode::Mode;
use crate::object::Kind;
use crate::ownership::{body, own_labels};

/// The user and group of kata-monitor, the same as under the OpenShift operator.
const USER: i64 = 1001;
/// The SELinux type that permits it to use these sockets; the extension installs its policy.
const SELINUX_TYPE: &str = "osc_monitor.process";
/// The folder of CRI-O's socket.
const RUNTIME_DIRECTORY: &str = "/run/crio/";
/// The folder of the sandboxes' sockets.
const SANDBOX_DIRECTORY: &str = "/run/vc/sbs/";
/// The port of the metrics; the Service has the same number.
const PORT: u16 = 8090;

/// Fields whose value server-side apply replaces as a whole.
const ATOMIC: &[&str] = &["nodeSelector", "matchLabels", "tolerations"];
/// The fields that identify the elements of a list.
const KEYS: &[&str] = &["uid", "mountPath", "containerPort", "name"];

/// Whether a DaemonSet or SecurityContextConstraints belongs to the operator, or to the OpenShift operator.
pub(crate) fn is_ours(object: &Value) -> bool {
    has_our_label(object)
        || object["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|owner| {
            owner["kind"] == Kind::KataConfig.as_str()
                && owner["apiVersion"]
                    .as_str()
                    .is_some_and(|version| version.starts_with("kataconfiguration.openshift.io/"))
        })
}

/// Whether the operator has written an object.
pub(crate) fn has_our_label(object: &Value) -> bool {
    object["metadata"]["labels"][names::MANAGED_BY] == names::PRODUCT
}

/// Whether the API server deletes an object of kata-monitor together with this KataConfig.
pub(crate) fn is_owned_by(object: &Value, config: &KataConfig) -> bool {
    let uid = config.metadata.uid.as_deref();
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    uid.is_some() && owners.into_iter().any(|owner| owner["uid"].as_str() == uid)
}

fn owned(kind: Kind, name: &str, config: &KataConfig) -> Value {
    let mut body = body(kind, name, &own_labels(config));
    // The API server deletes the object with its KataConfig, even if no operator runs.
    body["metadata"]["ownerReferences"] = json!([{
        "apiVersion": Kind::KataConfig.api_version(),
        "kind": Kind::KataConfig.as_str(),
        "name": config.metadata.name,
        "uid": config.metadata.uid,
    }]);
    body
}

/// The SecurityContextConstraints, if the existing ones differ. Pods of other clients can be admitted by
/// them, too, if these clients may use all constraints. So they change as few fields of a pod as possible:
/// such changes have broken pods of other operators before.
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

/// The DaemonSet, if the existing one differs. Its selector is immutable, so it is the OpenShift
/// operator's. Its pods run only on nodes that can run sandboxed pods, because other nodes lack the SELinux
/// type.
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
                // It runs on every node with sandboxes, also on nodes with taints.
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
                        // The first sandbox creates it.
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
        // No limits: its memory use grows with the sandboxes on its node.
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
        // A client can connect to a socket on a read-only mount.
        "volumeMounts": [
            {"name": "crio", "mountPath": RUNTIME_DIRECTORY, "readOnly": true},
            {"name": "sandboxes", "mountPath": SANDBOX_DIRECTORY, "readOnly": true},
        ],
    })
}

/// Whether an object has all desired fields and values. Fields of other clients are ignored.
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
