//! Everything that installs the operator, as YAML: the least that it needs to be allowed, and a
//! Deployment that the restricted Pod Security Standard admits.
//!
//! Plain values in, text out; the same input gives the same bytes.

use serde_json::{Value, json};

use kata_api::names;

use crate::arguments::ManifestsArguments;
use crate::lease::LEASE;
use crate::settings::Platform;

mod monitor;

/// The name of everything that is installed.
const NAME: &str = "kata-operator";

/// Why there is no YAML, which would be a bug.
#[derive(Debug, thiserror::Error)]
#[error("cannot render YAML")]
pub struct ManifestError(#[source] serde_saphyr::ser::Error);

/// The CustomResourceDefinitions.
///
/// # Errors
/// If YAML cannot express them, which would be a bug.
pub fn crds() -> Result<String, ManifestError> {
    let mut text = String::new();
    for crd in kata_api::crds() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd).map_err(ManifestError)?);
    }
    Ok(text)
}

/// The CustomResourceDefinitions and everything else, in the order in which to apply them.
///
/// # Errors
/// If YAML cannot express them, which would be a bug.
pub fn manifests(arguments: &ManifestsArguments) -> Result<String, ManifestError> {
    let mut text = crds()?;
    for object in objects(arguments) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object).map_err(ManifestError)?);
    }
    Ok(text)
}

/// A rule of a role.
fn rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

/// Permissions on cluster-scoped kinds that both platforms need.
fn core_rules() -> Vec<Value> {
    let ours = "kata-operator.dev";
    let config = "kataconfiguration.openshift.io";
    vec![
        rule(config, &["kataconfigs"], &["list", "watch", "patch"], &[]),
        rule(config, &["kataconfigs/status"], &["patch"], &[]),
        rule(ours, &["katanodes"], &["list", "watch", "create", "patch", "delete"], &[]),
        rule(ours, &["katanodes/status"], &["patch"], &[]),
        rule("", &["nodes"], &["list", "watch", "patch"], &[]),
        // On demand, and never watched.
        rule("", &["pods"], &["list"], &[]),
        rule("policy", &["poddisruptionbudgets"], &["list"], &[]),
        // Names of RuntimeClasses are the user's choice, so they cannot be listed here.
        rule(
            "node.k8s.io",
            &["runtimeclasses"],
            &["list", "watch", "create", "patch", "delete"],
            &[],
        ),
    ]
}

/// Permissions on the Machine Config Operator's kinds. Creating a MachineConfig is being root on the
/// nodes of a pool.
fn mco_rules() -> Vec<Value> {
    let group = kata_api::machine_config::GROUP;
    let read = ["list", "watch", "create"];
    let write = ["patch", "delete"];
    let kinds = ["machineconfigs", "machineconfigpools", "containerruntimeconfigs"];
    let ours: [&[&str]; 3] =
        [&names::MACHINE_CONFIGS, &[names::POOL], &[names::CONTAINER_RUNTIME_CONFIG]];
    let mut rules = vec![
        rule(group, &kinds, &read, &[]),
        // Rendered ones are read by name; their names are hashes.
        rule(group, &["machineconfigs"], &["get"], &[]),
    ];
    rules.extend(kinds.iter().zip(ours).map(|(kind, ours)| rule(group, &[*kind], &write, ours)));
    rules
}

/// What the operator is granted in addition if it runs kata-monitor, as [`granted`] tells it.
pub fn granted_for_monitor() -> Vec<(String, String, String, String)> {
    let (at_home, everywhere) = monitor::keep();
    flat(&[at_home, everywhere])
}

/// What the operator is granted, as `(API group, resource, verb, name or empty)`. For tests that compare
/// it with what is used.
pub fn granted(platform: Platform) -> Vec<(String, String, String, String)> {
    let mut rules = core_rules();
    if platform != Platform::Kubernetes {
        rules.extend(mco_rules());
        let (at_home, everywhere) = monitor::look();
        rules.extend([at_home, everywhere]);
    }
    rules.extend(lease_rules());
    if platform != Platform::Kubernetes {
        rules.extend(image_mode_rules());
    }
    rules.extend(event_rules());
    flat(&rules)
}

fn flat(rules: &[Value]) -> Vec<(String, String, String, String)> {
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let mut granted = Vec::new();
    for rule in rules {
        let mut names = texts(&rule["resourceNames"]);
        if names.is_empty() {
            names.push(String::new());
        }
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    for name in &names {
                        granted.push((group.clone(), resource.clone(), verb.clone(), name.clone()));
                    }
                }
            }
        }
    }
    granted.sort();
    granted
}

fn lease_rules() -> Vec<Value> {
    let group = "coordination.k8s.io";
    vec![
        rule(group, &["leases"], &["create"], &[]),
        rule(group, &["leases"], &["get", "patch"], &[LEASE]),
    ]
}

/// The two ConfigMaps that say how Kata gets onto the nodes, by name, in the operator's own namespace.
fn image_mode_rules() -> Vec<Value> {
    let ours = [names::FEATURE_GATES, names::IMAGE_MODE_CONFIG];
    vec![rule("", &["configmaps"], &["list", "watch"], &ours)]
}

fn event_rules() -> Vec<Value> {
    vec![rule("events.k8s.io", &["events"], &["create"], &[])]
}

fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/component": "operator",
        "app.kubernetes.io/part-of": names::PRODUCT,
        "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
    })
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name, "labels": labels()});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

fn role(kind: &str, name: &str, namespace: Option<&str>, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata(name, namespace),
        "rules": rules,
    })
}

fn binding(role_kind: &str, name: &str, namespace: Option<&str>, account_namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{role_kind}Binding"),
        "metadata": metadata(name, namespace),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": account_namespace}],
    })
}

fn objects(arguments: &ManifestsArguments) -> Vec<Value> {
    let ManifestsArguments { namespace, image, platform, monitor_image } = arguments;
    let monitor_image = monitor_image.as_deref().filter(|_| *platform != Platform::Kubernetes);
    let mut home = metadata(namespace, None);
    // The sockets that kata-monitor reads are the host's, which no other level lets it mount.
    let level = if monitor_image.is_some() { "privileged" } else { "restricted" };
    home["labels"]["pod-security.kubernetes.io/enforce"] = json!(level);
    home["labels"]["pod-security.kubernetes.io/enforce-version"] = json!("latest");
    if monitor_image.is_some() {
        home["labels"]["openshift.io/cluster-monitoring"] = json!("true");
    }
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": home}),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(NAME, Some(namespace)),
            "automountServiceAccountToken": false,
        }),
        role("ClusterRole", NAME, None, &core_rules()),
        binding("ClusterRole", NAME, None, namespace),
    ];
    if *platform != Platform::Kubernetes {
        let name = format!("{NAME}-mco");
        objects.push(role("ClusterRole", &name, None, &mco_rules()));
        objects.push(binding("ClusterRole", &name, None, namespace));
        let name = format!("{NAME}-monitor");
        let (at_home, everywhere) =
            if monitor_image.is_some() { monitor::keep() } else { monitor::look() };
        objects.extend([
            role("ClusterRole", &name, None, &[everywhere]),
            binding("ClusterRole", &name, None, namespace),
            role("Role", &name, Some(namespace), &[at_home]),
            binding("Role", &name, Some(namespace), namespace),
        ]);
    }
    if monitor_image.is_some() {
        objects.extend(monitor::objects(namespace));
    }
    let mut home_rules = lease_rules();
    if *platform != Platform::Kubernetes {
        home_rules.extend(image_mode_rules());
    }
    let events = format!("{NAME}-events");
    objects.extend([
        role("Role", NAME, Some(namespace), &home_rules),
        binding("Role", NAME, Some(namespace), namespace),
        // Events about objects of cluster scope are in this namespace.
        role("Role", &events, Some("default"), &event_rules()),
        binding("Role", &events, Some("default"), namespace),
        deployment(namespace, image, *platform, monitor_image),
    ]);
    objects
}

fn deployment(
    namespace: &str,
    image: &str,
    platform: Platform,
    monitor_image: Option<&str>,
) -> Value {
    let selector =
        json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "operator"});
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
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
        json!({"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")}),
    ];
    env.extend(
        monitor_image.map(|image| json!({"name": "RELATED_IMAGE_KATA_MONITOR", "value": image})),
    );
    let container = json!({
        "name": "operator",
        "image": image,
        "args": [
            "run",
            "--leader-elect",
            format!("--platform={}", platform.as_str()),
            // The kubelet and Prometheus come from outside the pod.
            "--health-addr=0.0.0.0:8081",
            "--metrics-addr=0.0.0.0:8080",
        ],
        "env": env,
        "ports": [
            {"name": "health", "containerPort": 8081},
            {"name": "metrics", "containerPort": 8080},
        ],
        "livenessProbe": probe("/livez"),
        "readinessProbe": probe("/readyz"),
        // No limits: a throttled operator loses its lease, a killed one starts over.
        "resources": {"requests": {"cpu": "10m", "memory": "48Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, Some(namespace)),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": selector},
            // The new pod stands by until the old one has released the lease.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {
                    "labels": labels(),
                    // Means nothing outside OpenShift.
                    "annotations": {"openshift.io/required-scc": "restricted-v2"},
                },
                "spec": {
                    "serviceAccountName": NAME,
                    "automountServiceAccountToken": true,
                    "priorityClassName": "system-cluster-critical",
                    "terminationGracePeriodSeconds": 15,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests;
