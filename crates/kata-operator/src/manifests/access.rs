//! What the operator may do, and roles for those who use it. Every permission is a decision.
//!
//! A server-side apply that creates its object is authorized as `create` with the object's name, so
//! names narrow what is created by apply; they cannot narrow a POST.

use serde_json::{Value, json};

use kata_api::names;

use super::{NAME, metadata, monitor};
use crate::lease::LEASE;
use crate::settings::Platform;

/// The API group of KataConfig.
const CONFIG: &str = "kataconfiguration.openshift.io";

/// A permission: API group, resource, verb, and the name that it is about, or empty.
pub type Permission = (String, String, String, String);

/// A rule of a role.
pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

/// Permissions on cluster-scoped kinds that both platforms need.
fn core_rules() -> Vec<Value> {
    vec![
        rule(CONFIG, &["kataconfigs"], &["list", "watch", "patch"], &[]),
        rule(CONFIG, &["kataconfigs/status"], &["patch"], &[]),
        rule(names::DOMAIN, &["katanodes"], &["list", "watch", "create", "patch", "delete"], &[]),
        rule(names::DOMAIN, &["katanodes/status"], &["patch"], &[]),
        rule("", &["nodes"], &["list", "watch", "patch"], &[]),
        // On demand, and never watched.
        rule("", &["pods"], &["list"], &[]),
        // Names of RuntimeClasses are the user's choice, so they cannot be listed here.
        rule(
            "node.k8s.io",
            &["runtimeclasses"],
            &["list", "watch", "create", "patch", "delete"],
            &[],
        ),
    ]
}

/// Permissions on the Machine Config Operator's kinds. Writing a MachineConfig is being root on the
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
        // What holds up a drain, which is the Machine Config Operator's doing.
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
        rule(group, &["leases"], &["get", "watch", "patch"], &[LEASE]),
    ]
}

/// The two ConfigMaps that say how Kata gets onto the nodes, by name, in the operator's own namespace.
fn image_mode_rules() -> Vec<Value> {
    let ours = [names::FEATURE_GATES, names::IMAGE_MODE_CONFIG];
    vec![rule("", &["configmaps"], &["list", "watch"], &ours)]
}

/// The Jobs of the node agent and their pods, in the operator's own namespace. Their names are made from
/// those of nodes, so they cannot be listed here. Whoever may create Jobs in this namespace may change
/// nodes; that is what the operator is for.
fn job_rules() -> Vec<Value> {
    vec![
        rule("batch", &["jobs"], &["list", "watch", "create", "patch", "delete"], &[]),
        rule("", &["pods"], &["list", "watch"], &[]),
    ]
}

fn event_rules() -> Vec<Value> {
    vec![rule("events.k8s.io", &["events"], &["create"], &[])]
}

/// What it takes to see to kata-monitor: a rule in the operator's namespace, and one for the cluster.
fn monitor_rules(monitor: bool) -> (Value, Value) {
    if monitor { monitor::keep() } else { monitor::look() }
}

/// What the operator is granted, with kata-monitor or without. For tests that compare it with what is
/// used.
pub fn granted(platform: Platform, monitor: bool) -> Vec<Permission> {
    let mut rules = core_rules();
    rules.extend(lease_rules());
    rules.extend(event_rules());
    if platform != Platform::Kubernetes {
        rules.extend(mco_rules());
        rules.extend(image_mode_rules());
        let (at_home, everywhere) = monitor_rules(monitor);
        rules.extend([at_home, everywhere]);
    }
    if platform == Platform::Kubernetes {
        rules.extend(job_rules());
    }
    flat(&rules)
}

/// What of it is about kata-monitor, if the operator runs it.
pub fn granted_for_monitor() -> Vec<Permission> {
    let (at_home, everywhere) = monitor::keep();
    flat(&[at_home, everywhere])
}

fn flat(rules: &[Value]) -> Vec<Permission> {
    let texts = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
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

/// Roles and bindings of the operator, and roles that make KataConfigs part of what `view` and `edit`
/// mean.
pub(super) fn objects(namespace: &str, platform: Platform, monitor: bool) -> Vec<Value> {
    let mut objects = vec![
        role("ClusterRole", NAME, None, &core_rules()),
        binding("ClusterRole", NAME, None, namespace),
    ];
    let mut home_rules = lease_rules();
    if platform != Platform::Kubernetes {
        home_rules.extend(image_mode_rules());
        let name = format!("{NAME}-mco");
        objects.push(role("ClusterRole", &name, None, &mco_rules()));
        objects.push(binding("ClusterRole", &name, None, namespace));
        let name = format!("{NAME}-monitor");
        let (at_home, everywhere) = monitor_rules(monitor);
        objects.extend([
            role("ClusterRole", &name, None, &[everywhere]),
            binding("ClusterRole", &name, None, namespace),
            role("Role", &name, Some(namespace), &[at_home]),
            binding("Role", &name, Some(namespace), namespace),
        ]);
    }
    if platform == Platform::Kubernetes {
        home_rules.extend(job_rules());
    }
    let events = format!("{NAME}-events");
    objects.extend([
        role("Role", NAME, Some(namespace), &home_rules),
        binding("Role", NAME, Some(namespace), namespace),
        // Events about objects of cluster scope are in this namespace.
        role("Role", &events, Some("default"), &event_rules()),
        binding("Role", &events, Some("default"), namespace),
        for_users(
            "view",
            &[
                rule(CONFIG, &["kataconfigs"], &["get", "list", "watch"], &[]),
                rule(names::DOMAIN, &["katanodes"], &["get", "list", "watch"], &[]),
            ],
        ),
        for_users(
            "edit",
            &[rule(CONFIG, &["kataconfigs"], &["create", "update", "patch", "delete"], &[])],
        ),
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

/// A role that is part of one of the default roles of users.
fn for_users(part_of: &str, rules: &[Value]) -> Value {
    let mut role = role("ClusterRole", &format!("{NAME}-{part_of}"), None, rules);
    role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{part_of}")] =
        json!("true");
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
