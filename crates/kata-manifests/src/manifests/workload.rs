//! The Deployment, its Service, and the network policies.

use kata_api::names::{self, node_job};
use kata_api::platform::Platform;
use serde_json::{Value, json};

use super::metadata::{NAME, labels, metadata, selector};

const HEALTH_PORT: u16 = 8081;
const METRICS_PORT: u16 = 8080;

/// Two pods, one of them a standby, if possible on two nodes.
///
/// The operator disturbs workers, so it prefers to run on the control plane; but some clusters have an
/// external control plane or a single node.
pub(super) fn deployment(
    namespace: &str,
    image: &str,
    platform: Platform,
    monitor_image: Option<&str>,
) -> Value {
    let node_agent = platform == Platform::Kubernetes;
    // Except on Kubernetes the operator detects the platform: a wrong guess would do harm.
    let platform = match platform {
        Platform::Kubernetes => Platform::Kubernetes,
        Platform::Auto | Platform::Openshift => Platform::Auto,
    };
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, Some(namespace)),
        "spec": {
            "replicas": 2,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": selector()},
            // The new pod stands by until the old one has released the lease.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {
                    "labels": labels(),
                    // Has no effect outside OpenShift.
                    "annotations": {"openshift.io/required-scc": "restricted-v2"},
                },
                "spec": {
                    "serviceAccountName": NAME,
                    "automountServiceAccountToken": true,
                    "enableServiceLinks": false,
                    "priorityClassName": "system-cluster-critical",
                    "terminationGracePeriodSeconds": 15,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "affinity": affinity(),
                    "tolerations": tolerations(),
                    "containers": [container(image, platform, monitor_image, node_agent)],
                },
            },
        },
    })
}

fn tolerations() -> Value {
    let roles = ["control-plane", "master"].map(|role| {
        let key = format!("node-role.kubernetes.io/{role}");
        json!({"key": key, "operator": "Exists", "effect": "NoSchedule"})
    });
    // Only the operator removes these taints, which all nodes may have.
    let startup = names::STARTUP_TAINTS.map(|key| json!({"key": key, "operator": "Exists"}));
    json!(roles.into_iter().chain(startup).collect::<Vec<_>>())
}

fn affinity() -> Value {
    json!({
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 1,
            "preference": {"matchExpressions": [
                {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
            ]},
        }]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": selector()},
                "topologyKey": "kubernetes.io/hostname",
            },
        }]},
    })
}

fn container(
    image: &str,
    platform: Platform,
    monitor_image: Option<&str>,
    node_agent: bool,
) -> Value {
    // The API server adds this version, and a second server-side apply without it would conflict.
    let field = |path: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": path}});
    let probe = |path: &str| {
        json!({
            "httpGet": {"path": path, "port": "health"},
            "periodSeconds": 10,
            "timeoutSeconds": 3,
            "failureThreshold": 3,
        })
    };
    let mut env = vec![
        json!({"name": "POD_NAME", "valueFrom": field("metadata.name")}),
        json!({"name": "POD_UID", "valueFrom": field("metadata.uid")}),
        json!({"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")}),
    ];
    env.extend(
        monitor_image.map(|image| json!({"name": "RELATED_IMAGE_KATA_MONITOR", "value": image})),
    );
    if node_agent {
        env.push(json!({"name": "RELATED_IMAGE_NODE_AGENT", "value": image}));
    }
    json!({
        "name": "operator",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "run",
            "--leader-elect",
            format!("--platform={}", platform.as_str()),
            // The kubelet and Prometheus connect from outside the pod.
            format!("--health-addr=0.0.0.0:{HEALTH_PORT}"),
            format!("--metrics-addr=0.0.0.0:{METRICS_PORT}"),
        ],
        "env": env,
        "ports": [
            {"name": "health", "containerPort": HEALTH_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "livenessProbe": probe("/livez"),
        "readinessProbe": probe("/readyz"),
        // No limits: a throttled operator loses its lease, a killed one starts over.
        "resources": {"requests": {"cpu": "10m", "memory": "48Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "privileged": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

/// The objects for the pods of Jobs on nodes, where there is no Machine Config Operator: a service account
/// without permissions, and a network policy that blocks all traffic.
pub(super) fn node_agent(namespace: &str) -> [Value; 3] {
    let labelled = || {
        let mut metadata = metadata(node_job::SERVICE_ACCOUNT, Some(namespace));
        metadata["labels"]["app.kubernetes.io/component"] = json!(node_job::COMPONENT);
        metadata
    };
    [
        check_priority_class(),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": labelled(),
            "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": labelled(),
            "spec": {
                "podSelector": {"matchLabels": {
                    "app.kubernetes.io/managed-by": names::PRODUCT,
                    "app.kubernetes.io/component": node_job::COMPONENT,
                }},
                // Without rules. The API server drops empty lists, and a second server-side apply with them would conflict.
                "policyTypes": ["Ingress", "Egress"],
            },
        }),
    ]
}

/// The PriorityClass of Jobs that only check their node: they come before other pods, and evict none.
pub fn check_priority_class() -> Value {
    let mut metadata = metadata(node_job::CHECK_PRIORITY_CLASS, None);
    metadata["labels"]["app.kubernetes.io/component"] = json!(node_job::COMPONENT);
    json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata,
        "description": "Checks of nodes by kata-operator. They evict no other pod.",
        // The highest that is not reserved for the system.
        "value": 1_000_000_000,
        "preemptionPolicy": "Never",
    })
}

/// Where Prometheus finds the pods.
pub(super) fn service(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(NAME, Some(namespace)),
        "spec": {
            "selector": selector(),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}],
        },
    })
}

/// Blocks all traffic to and from the operator's pods, except the traffic named here. The kubelet of a pod's
/// own node can always reach the pod.
pub(super) fn network_policy(namespace: &str, platform: Platform) -> Value {
    let tcp = |port: u16| json!({"protocol": "TCP", "port": port});
    let from = if platform == Platform::Openshift {
        json!([{"namespaceSelector": {"matchLabels": {
            "kubernetes.io/metadata.name": "openshift-monitoring",
        }}}])
    } else {
        // Where Prometheus runs is not known.
        json!([{"namespaceSelector": {}}])
    };
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(NAME, Some(namespace)),
        "spec": {
            "podSelector": {"matchLabels": selector()},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": from, "ports": [tcp(METRICS_PORT)]}],
            // The API server, at its Service's port and at its own; its address is not known, and is
            // not looked up in DNS.
            "egress": [{"ports": [tcp(443), tcp(6443)]}],
        },
    })
}
