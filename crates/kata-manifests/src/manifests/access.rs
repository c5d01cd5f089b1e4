//! The operator's permissions, and roles for its users. Every permission is a deliberate decision.
//!
//! A server-side apply that creates its object is authorized as `create` with the object's name, so
//! names narrow what is created by apply; they cannot narrow a POST.

use serde_json::{Value, json};

use kata_api::names;
use kata_api::platform::Platform;

use super::metadata::{NAME, metadata};
use super::monitor;
use super::rule::{Permission, flatten, rule};

/// The API group of KataConfig.
const CONFIG: &str = "kataconfiguration.openshift.io";

/// Permissions on cluster-scoped kinds that both platforms need.
fn core_rules() -> Vec<Value> {
    vec![
        rule(CONFIG, &["kataconfigs"], &["list", "watch", "patch"], &[]),
        rule(CONFIG, &["kataconfigs/status"], &["patch"], &[]),
        rule(names::DOMAIN, &["katanodes"], &["list", "watch", "create", "patch", "delete"], &[]),
        rule(names::DOMAIN, &["katanodes/status"], &["patch"], &[]),
        rule("", &["nodes"], &["list", "watch", "patch"], &[]),
        // Whether that of another installation, which a KataConfig belongs to, is gone.
        rule("", &["namespaces"], &["get"], &[]),
        // Listed on demand, and read and watched while a deletion waits for pods.
        rule("", &["pods"], &["get", "list", "watch"], &[]),
        // Names of RuntimeClasses are the user's choice, so they cannot be listed here.
        rule(
            "node.k8s.io",
            &["runtimeclasses"],
            &["list", "watch", "create", "patch", "delete"],
            &[],
        ),
    ]
}

/// Permissions on the Machine Config Operator's kinds. A client that may write a MachineConfig is root on the
/// nodes of a pool.
fn mco_rules() -> Vec<Value> {
    let group = kata_api::machine_config::GROUP;
    let (read, write) = (["list", "watch"], ["create", "patch", "delete"]);
    vec![
        // Rendered ones are read by name; their names are hashes.
        rule(group, &["machineconfigs"], &["get"], &[]),
        // Lists and watches name one in their field selector.
        rule(group, &["machineconfigs"], &read, &names::MACHINE_CONFIGS),
        rule(group, &["machineconfigs"], &write, &names::MACHINE_CONFIGS),
        // To report what blocks a drain by the Machine Config Operator.
        rule("policy", &["poddisruptionbudgets"], &["list"], &[]),
        rule(group, &["machineconfigpools", "containerruntimeconfigs"], &read, &[]),
        rule(group, &["machineconfigpools"], &write, &[names::POOL]),
        rule(group, &["containerruntimeconfigs"], &write, &[names::CONTAINER_RUNTIME_CONFIG]),
    ]
}

fn lease_rules() -> Vec<Value> {
    let group = "coordination.k8s.io";
    vec![
        rule(group, &["leases"], &["create"], &[]),
        rule(group, &["leases"], &["get", "watch", "patch"], &[names::LEASE]),
    ]
}

/// The two ConfigMaps that select how Kata is installed on the nodes, by name, in the operator's own
/// namespace.
fn image_mode_rules() -> Vec<Value> {
    let ours = [names::FEATURE_GATES, names::IMAGE_MODE_CONFIG];
    vec![rule("", &["configmaps"], &["list", "watch"], &ours)]
}

/// The Jobs of the node agent and their pods, in the operator's own namespace. Their names are made from
/// those of nodes, so they cannot be listed here. A client that may create Jobs in this namespace may change
/// nodes; that is the operator's task.
fn job_rules() -> Vec<Value> {
    vec![rule("batch", &["jobs"], &["list", "watch", "create", "patch", "delete"], &[])]
}

fn event_rules() -> Vec<Value> {
    vec![rule("events.k8s.io", &["events"], &["create"], &[])]
}

/// The rules for kata-monitor: one in the operator's namespace, and one for the cluster.
fn monitor_rules(monitor: bool) -> (Value, Value) {
    if monitor { monitor::manage_rules() } else { monitor::removal_rules() }
}

/// The permissions of the operator, with or without kata-monitor. For tests that compare them with those that
/// it uses.
pub fn granted(platform: Platform, monitor: bool) -> Vec<Permission> {
    let mut rules = core_rules();
    rules.extend(lease_rules());
    rules.extend(event_rules());
    if platform != Platform::Kubernetes {
        rules.extend(mco_rules());
        rules.extend(image_mode_rules());
        let (in_namespace, cluster_wide) = monitor_rules(monitor);
        rules.extend([in_namespace, cluster_wide]);
    }
    if platform == Platform::Kubernetes {
        rules.extend(job_rules());
    }
    flatten(&rules)
}

/// The permissions for kata-monitor, if the operator runs it.
pub fn granted_for_monitor() -> Vec<Permission> {
    let (in_namespace, cluster_wide) = monitor::manage_rules();
    flatten(&[in_namespace, cluster_wide])
}

/// What `kubectl kata` reads to look at a cluster. Not part of the default role `view`, which has nothing of nodes.
fn viewer_rules() -> Vec<Value> {
    let read = ["get", "list", "watch"];
    let read = |group: &str, kinds: &[&str]| rule(group, kinds, &read, &[]);
    vec![
        read(CONFIG, &["kataconfigs"]),
        read(names::DOMAIN, &["katanodes"]),
        read("", &["nodes", "pods", "events", "namespaces"]),
        rule("", &["pods/log"], &["get"], &[]),
        rule("", &["configmaps"], &["get"], &[names::FEATURE_GATES, names::IMAGE_MODE_CONFIG]),
        read("node.k8s.io", &["runtimeclasses"]),
        read("apiextensions.k8s.io", &["customresourcedefinitions"]),
        read("apps", &["deployments", "replicasets", "statefulsets", "daemonsets"]),
        read("batch", &["jobs"]),
        read("policy", &["poddisruptionbudgets"]),
        read("coordination.k8s.io", &["leases"]),
        read(
            kata_api::machine_config::GROUP,
            &["machineconfigpools", "machineconfigs", "containerruntimeconfigs"],
        ),
    ]
}

/// A client that may write a KataConfig names the nodes that are changed, and the image whose files run there as root.
fn editor_rules() -> Vec<Value> {
    vec![
        rule(CONFIG, &["kataconfigs"], &["create", "update", "patch", "delete"], &[]),
        // For `kubectl kata retry`.
        rule(names::DOMAIN, &["katanodes"], &["patch"], &[]),
    ]
}

/// Roles and bindings of the operator, and roles of its users.
pub(super) fn objects(namespace: &str, platform: Platform, monitor: bool) -> Vec<Value> {
    let mut objects = vec![
        role("ClusterRole", NAME, None, &core_rules()),
        binding("ClusterRole", NAME, None, namespace),
    ];
    let mut namespace_rules = lease_rules();
    if platform != Platform::Kubernetes {
        namespace_rules.extend(image_mode_rules());
        let name = format!("{NAME}-mco");
        objects.push(role("ClusterRole", &name, None, &mco_rules()));
        objects.push(binding("ClusterRole", &name, None, namespace));
        let name = format!("{NAME}-monitor");
        let (in_namespace, cluster_wide) = monitor_rules(monitor);
        objects.extend([
            role("ClusterRole", &name, None, &[cluster_wide]),
            binding("ClusterRole", &name, None, namespace),
            role("Role", &name, Some(namespace), &[in_namespace]),
            binding("Role", &name, Some(namespace), namespace),
        ]);
    }
    if platform == Platform::Kubernetes {
        namespace_rules.extend(job_rules());
    }
    let events = format!("{NAME}-events");
    objects.extend([
        role("Role", NAME, Some(namespace), &namespace_rules),
        binding("Role", NAME, Some(namespace), namespace),
        // Events about objects of cluster scope are in this namespace.
        role("Role", &events, Some("default"), &event_rules()),
        binding("Role", &events, Some("default"), namespace),
        viewer_role(),
        role("ClusterRole", &format!("{NAME}-cluster-view"), None, &viewer_rules()),
        // Not part of `edit`, which is often given in many namespaces: a payload's files run as root.
        role("ClusterRole", &format!("{NAME}-edit"), None, &editor_rules()),
    ]);
    objects
}

fn role(kind: &str, name: &str, namespace: Option<&str>, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata(name, namespace),
        "rules": rules,
    })
}

/// The role that adds KataConfigs and KataNodes to the default role `view`.
fn viewer_role() -> Value {
    let read = ["get", "list", "watch"];
    let rules = [
        rule(CONFIG, &["kataconfigs"], &read, &[]),
        rule(names::DOMAIN, &["katanodes"], &read, &[]),
    ];
    let mut role = role("ClusterRole", &format!("{NAME}-view"), None, &rules);
    role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] = json!("true");
    role
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
