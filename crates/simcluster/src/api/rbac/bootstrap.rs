//! The roles and bindings that every cluster with RBAC has from the start, as far as the simulated API
//! server serves what they are about.

use serde_json::{Value, json};

use super::{CLUSTERROLEBINDINGS, CLUSTERROLES, GROUP, everything};
use crate::Simulation;
use crate::api::authentication::{AUTHENTICATED, MASTERS, Signer, UNAUTHENTICATED};
use crate::api::error::ApiError;
use crate::api::server::Writer;

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// From now on the API server authenticates its clients, by tokens that `signer` signs, and authorizes
/// them by RBAC. The default roles and bindings that are missing are created, as a real API server does
/// when it starts.
///
/// # Errors
/// If the API server refuses one of them.
pub fn enforce(simulation: &mut Simulation, signer: Signer) -> Result<(), ApiError> {
    let writer = Writer { manager: "kube-apiserver", now: simulation.now() };
    for (resource, objects) in [(CLUSTERROLES, roles()), (CLUSTERROLEBINDINGS, bindings())] {
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if simulation.api.get(&resource, "", name).is_none() {
                simulation.api.create(writer, &resource, "", object)?;
            }
        }
    }
    simulation.frontend.signer = Some(signer);
    Ok(())
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": metadata(name),
        "rules": rules,
    })
}

/// The label by which a role becomes part of another one.
fn label(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

/// A role that consists of those with its label; it may be part of another one itself.
fn aggregating(name: &str, part_of: Option<&str>) -> Value {
    let mut role = role(name, &[]);
    role["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {(label(name)): "true"}}]});
    if let Some(other) = part_of {
        role["metadata"]["labels"][label(other)] = json!("true");
    }
    role
}

fn part(of: &str, rules: &[Value]) -> Value {
    let mut role = role(&format!("system:aggregate-to-{of}"), rules);
    role["metadata"]["labels"][label(of)] = json!("true");
    role
}

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": groups, "resources": resources})
}

fn paths(paths: &[&str]) -> Value {
    json!({"verbs": ["get"], "nonResourceURLs": paths})
}

fn roles() -> Vec<Value> {
    vec![
        role("cluster-admin", &everything()),
        aggregating("admin", None),
        aggregating("edit", Some("admin")),
        aggregating("view", Some("edit")),
        part("admin", &admin_rules()),
        part("edit", &edit_rules()),
        part("view", &view_rules()),
        role(
            "system:basic-user",
            &[
                rule(
                    &["create"],
                    &["authorization.k8s.io"],
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                ),
                rule(&["create"], &["authentication.k8s.io"], &["selfsubjectreviews"]),
            ],
        ),
        role(
            "system:discovery",
            &[paths(&[
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
                "/version/",
            ])],
        ),
        role(
            "system:public-info-viewer",
            &[paths(&["/healthz", "/livez", "/readyz", "/version", "/version/"])],
        ),
        role(
            "system:monitoring",
            &[
                paths(&[
                    "/healthz",
                    "/healthz/*",
                    "/livez",
                    "/livez/*",
                    "/metrics",
                    "/metrics/slis",
                    "/readyz",
                    "/readyz/*",
                ]),
                rule(&["get"], &[""], &["nodes/metrics"]),
            ],
        ),
        role(
            "system:auth-delegator",
            &[
                rule(&["create"], &["authentication.k8s.io"], &["tokenreviews"]),
                rule(&["create"], &["authorization.k8s.io"], &["subjectaccessreviews"]),
            ],
        ),
    ]
}

fn bindings() -> Vec<Value> {
    [
        ("cluster-admin", vec![MASTERS]),
        ("system:basic-user", vec![AUTHENTICATED]),
        ("system:discovery", vec![AUTHENTICATED]),
        ("system:monitoring", vec!["system:monitoring"]),
        ("system:public-info-viewer", vec![AUTHENTICATED, UNAUTHENTICATED]),
    ]
    .into_iter()
    .map(|(name, groups)| {
        let subjects: Vec<Value> = groups
            .iter()
            .map(|group| json!({"apiGroup": GROUP, "kind": "Group", "name": group}))
            .collect();
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
            "metadata": metadata(name),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": subjects,
        })
    })
    .collect()
}

fn admin_rules() -> Vec<Value> {
    let both: Vec<&str> = WRITE.iter().chain(&READ).copied().collect();
    vec![
        rule(&["create"], &["authorization.k8s.io"], &["localsubjectaccessreviews"]),
        rule(&both, &[GROUP], &["rolebindings", "roles"]),
    ]
}

fn edit_rules() -> Vec<Value> {
    let both: Vec<&str> = WRITE.iter().chain(&READ).copied().collect();
    vec![
        rule(
            &READ,
            &[""],
            &[
                "pods/attach",
                "pods/exec",
                "pods/portforward",
                "pods/proxy",
                "secrets",
                "services/proxy",
            ],
        ),
        rule(&["impersonate"], &[""], &["serviceaccounts"]),
        rule(
            &WRITE,
            &[""],
            &["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"],
        ),
        rule(&["create"], &[""], &["pods/eviction"]),
        rule(
            &WRITE,
            &[""],
            &[
                "configmaps",
                "persistentvolumeclaims",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "secrets",
                "serviceaccounts",
                "services",
                "services/proxy",
            ],
        ),
        rule(&["create"], &[""], &["serviceaccounts/token"]),
        rule(&WRITE, &["", "events.k8s.io"], &["events"]),
        rule(
            &WRITE,
            &["apps"],
            &[
                "daemonsets",
                "deployments",
                "deployments/rollback",
                "deployments/scale",
                "replicasets",
                "replicasets/scale",
                "statefulsets",
                "statefulsets/scale",
            ],
        ),
        rule(&WRITE, &["autoscaling"], &["horizontalpodautoscalers"]),
        rule(&WRITE, &["batch"], &["cronjobs", "jobs"]),
        rule(&WRITE, &["policy"], &["poddisruptionbudgets"]),
        rule(&WRITE, &["networking.k8s.io"], &["ingresses", "networkpolicies"]),
        rule(&both, &["coordination.k8s.io"], &["leases"]),
    ]
}

fn view_rules() -> Vec<Value> {
    vec![
        rule(
            &READ,
            &[""],
            &[
                "configmaps",
                "endpoints",
                "persistentvolumeclaims",
                "persistentvolumeclaims/status",
                "pods",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "serviceaccounts",
                "services",
                "services/status",
            ],
        ),
        rule(
            &READ,
            &[""],
            &[
                "bindings",
                "limitranges",
                "namespaces/status",
                "pods/log",
                "pods/status",
                "replicationcontrollers/status",
                "resourcequotas",
                "resourcequotas/status",
            ],
        ),
        rule(&READ, &[""], &["namespaces"]),
        rule(&READ, &["", "events.k8s.io"], &["events"]),
        rule(&READ, &["discovery.k8s.io"], &["endpointslices"]),
        rule(
            &READ,
            &["apps"],
            &[
                "controllerrevisions",
                "daemonsets",
                "daemonsets/status",
                "deployments",
                "deployments/scale",
                "deployments/status",
                "replicasets",
                "replicasets/scale",
                "replicasets/status",
                "statefulsets",
                "statefulsets/scale",
                "statefulsets/status",
            ],
        ),
        rule(
            &READ,
            &["autoscaling"],
            &["horizontalpodautoscalers", "horizontalpodautoscalers/status"],
        ),
        rule(&READ, &["batch"], &["cronjobs", "cronjobs/status", "jobs", "jobs/status"]),
        rule(&READ, &["policy"], &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
        rule(&READ, &["networking.k8s.io"], &["ingresses", "ingresses/status", "networkpolicies"]),
    ]
}
