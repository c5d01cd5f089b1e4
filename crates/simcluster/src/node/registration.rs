//! The Node object as a kubelet registers it and keeps its status.
//!
//! It only describes a host; when it is written is the kubelet's affair.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::recorder::{set_condition, time};
use crate::world::{Host, HostSpec, NodeFault, Platform, Runtime, System};

/// The kubelet's version.
pub const KUBELET_VERSION: &str = "v1.34.1";

/// The Node object of a host that joins the cluster.
pub fn node(host: &Host, spec: &HostSpec, now: Timestamp) -> Value {
    let mut labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": spec.name,
    });
    let openshift = spec.platform == Platform::OpenShift;
    if openshift {
        labels["node.openshift.io/os_id"] = json!("rhcos");
    }
    if spec.control_plane {
        labels["node-role.kubernetes.io/control-plane"] = json!("");
    }
    if spec.control_plane && openshift {
        labels["node-role.kubernetes.io/master"] = json!("");
    }
    if spec.worker && openshift {
        labels["node-role.kubernetes.io/worker"] = json!("");
    }
    if let Some((key, value)) = spec.system.and_then(System::label) {
        labels[key] = json!(value);
    }
    for (key, value) in &spec.labels {
        labels[key] = json!(value);
    }
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": spec.name, "labels": labels,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {},
        "status": status(host, spec, &Value::Null, now),
    });
    if spec.control_plane && !spec.worker {
        let role = if openshift { "master" } else { "control-plane" };
        node["spec"]["taints"] =
            json!([{"key": format!("node-role.kubernetes.io/{role}"), "effect": "NoSchedule"}]);
    }
    if !spec.taints.is_empty() {
        let taint = |(key, effect): &(String, String)| json!({"key": key, "effect": effect});
        node["spec"]["taints"] = spec.taints.iter().map(taint).collect();
    }
    node
}

/// The operating system that a kubelet reports. On a real node it comes from the same file as the label
/// `node.openshift.io/os_id`, so a script sets that label to choose the system of a simulated host.
pub fn os_image(platform: Platform, node: &Value) -> &'static str {
    let os_id = node["metadata"]["labels"]["node.openshift.io/os_id"].as_str();
    match (platform, os_id) {
        (Platform::OpenShift, Some("rhel")) => "Red Hat Enterprise Linux 8.10 (Ootpa)",
        (Platform::OpenShift, Some("fedora")) => "Fedora CoreOS 41.20250315.3.0",
        (Platform::OpenShift, _) => "Red Hat Enterprise Linux CoreOS 9.6.20251023-0 (Plow)",
        (Platform::Kubernetes, _) => "Red Hat Enterprise Linux 9.6 (Plow)",
    }
}

/// The status that the kubelet reports; `node` is the object as it is, if it is there.
pub fn status(host: &Host, spec: &HostSpec, node: &Value, now: Timestamp) -> Value {
    let old = &node["status"];
    let reserved_milli = if spec.platform == Platform::OpenShift { 500 } else { 0 };
    let cpu_milli = u64::from(spec.cpus) * 1000 - reserved_milli.min(u64::from(spec.cpus) * 500);
    let allocatable_kib = spec.memory_kib.saturating_sub(1_126_400);
    let pods = if spec.platform == Platform::OpenShift { "250" } else { "110" };
    let resources = |cpu: String, memory_kib: u64| {
        json!({
            "cpu": cpu, "memory": format!("{memory_kib}Ki"), "pods": pods,
            "ephemeral-storage": "125293548Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        })
    };
    let cpu = if cpu_milli % 1000 == 0 {
        (cpu_milli / 1000).to_string()
    } else {
        format!("{cpu_milli}m")
    };
    let os_image = spec.system.map_or_else(|| os_image(spec.platform, node), System::os_image);
    let (runtime, version, _) = host.runtime_facts();
    let mut status = json!({
        "capacity": resources(spec.cpus.to_string(), spec.memory_kib),
        "allocatable": resources(cpu, allocatable_kib),
        "conditions": conditions(host, &old["conditions"], now),
        "addresses": [
            {"type": "InternalIP", "address": host.address()},
            {"type": "Hostname", "address": spec.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": crate::world::identity::hex_id(&format!("machine/{}", spec.name))[..32],
            "systemUUID": crate::world::identity::uuid(&format!("system/{}", spec.name)),
            "bootID": host.boot_id, "kernelVersion": host.kernel, "osImage": os_image,
            "containerRuntimeVersion": format!("{runtime}://{version}"),
            "kubeletVersion": KUBELET_VERSION, "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        },
        "features": {"supplementalGroupsPolicy": true},
    });
    if host.runtime() != Runtime::Containerd1 {
        status["runtimeHandlers"] = runtime_handlers(host);
    }
    if spec.images > 0 {
        status["images"] = (0..spec.images).map(image).collect();
    }
    status
}

/// An image as a kubelet reports it: by digest and by tag. All hosts have the same.
fn image(number: u32) -> Value {
    const REPOSITORY: &str = "registry.example.com/simulated/release-of-the-platform";
    let digest = crate::world::identity::hex_id(&format!("image/{number}"));
    json!({
        "names": [
            format!("{REPOSITORY}@sha256:{digest}"),
            format!("{REPOSITORY}:component-{number}-{}", &digest[..40]),
        ],
        "sizeBytes": 300_000_000 + u64::from(number) * 12_345_678,
    })
}

fn runtime_handlers(host: &Host) -> Value {
    let features = |vm: bool| json!({"recursiveReadOnlyMounts": !vm, "userNamespaces": !vm});
    let default = json!({"name": "", "features": features(false)});
    let named = host
        .handlers
        .iter()
        .map(|(name, handler)| json!({"name": name, "features": features(handler.is_vm())}));
    std::iter::once(default).chain(named).collect()
}

fn conditions(host: &Host, old: &Value, now: Timestamp) -> Value {
    let mut conditions = old.clone();
    let disk = if host.faults.contains(&NodeFault::DiskPressure) {
        ("DiskPressure", "True", "KubeletHasDiskPressure", "kubelet has disk pressure")
    } else {
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
    };
    for (kind, status, reason, message) in [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        disk,
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ] {
        set_condition(&mut conditions, kind, status, reason, message, now);
    }
    // Who routes between nodes says so only once it had something to do.
    let routed = old.as_array().into_iter().flatten().any(|it| it["type"] == "NetworkUnavailable");
    if host.faults.contains(&NodeFault::NetworkUnavailable) {
        let message = "RouteController failed to create a route";
        set_condition(
            &mut conditions,
            "NetworkUnavailable",
            "True",
            "NoRouteCreated",
            message,
            now,
        );
    } else if routed {
        let message = "RouteController created a route";
        set_condition(&mut conditions, "NetworkUnavailable", "False", "RouteCreated", message, now);
    }
    let (status, reason, message) = if !host.is_up() {
        ("False", "KubeletNotReady", "node is shutting down")
    } else if host.faults.contains(&NodeFault::NotReady) || host.containerd.dead.is_some() {
        ("False", "KubeletNotReady", "container runtime is down")
    } else {
        ("True", "KubeletReady", "kubelet is posting ready status")
    };
    set_condition(&mut conditions, "Ready", status, reason, message, now);
    for condition in conditions.as_array_mut().into_iter().flatten() {
        if condition["lastHeartbeatTime"].is_null() {
            condition["lastHeartbeatTime"] = json!(time(now));
        }
    }
    conditions
}
