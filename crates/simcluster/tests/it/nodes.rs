//! Nodes as the API shows them: registration, reboots, faults, and hosts that the Machine Config Operator
//! changes.

use std::time::Duration;

use serde_json::{Value, json};
use simcluster::api::frontend::{ControlRequest, control};
use simcluster::api::request::Query;
use simcluster::api::server::Writer;
use simcluster::resource::{
    DAEMONSETS, EVENTS, MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS, RUNTIMECLASSES,
};
use simcluster::topology::{self, Layout};
use simcluster::world::{NodeFault, Platform};
use simcluster::{Resource, Simulation};

mod commands;
mod crash_loop;
mod kubelet_restart;
mod pods;
mod shortages;

/// Plain Kubernetes: nothing but nodes and workloads.
pub(crate) fn cluster(control_plane: u32, workers: u32) -> Simulation {
    let layout =
        Layout { platform: Platform::Kubernetes, control_plane, workers, ..Layout::default() };
    topology::build(&layout, "2026-11-21T10:00:00Z".parse().unwrap()).unwrap()
}

/// Nodes with CRI-O, as OpenShift has them.
fn with_crio(control_plane: u32, workers: u32) -> Simulation {
    let layout = Layout { control_plane, workers, ..Layout::default() };
    topology::build(&layout, "2026-11-21T10:00:00Z".parse().unwrap()).unwrap()
}

pub(crate) fn writer(sim: &Simulation) -> Writer<'static> {
    Writer { manager: "test", now: sim.now() }
}

pub(crate) fn create(sim: &mut Simulation, resource: &Resource, namespace: &str, object: Value) {
    let writer = writer(sim);
    sim.api.create(writer, resource, namespace, object).unwrap();
}

pub(crate) fn get(sim: &Simulation, resource: &Resource, namespace: &str, name: &str) -> Value {
    sim.api.get(resource, namespace, name).map_or(Value::Null, |object| (*object).clone())
}

pub(crate) fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [
            {"name": "main", "image": "quay.io/example/tools:1", "command": ["sleep", "infinity"]},
        ]},
    });
    pod["spec"].as_object_mut().unwrap().append(&mut fields(spec));
    pod
}

/// The fields of an object that is one.
pub(crate) fn fields(object: Value) -> serde_json::Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        other => panic!("not an object: {other}"),
    }
}

fn phase_of(sim: &Simulation, name: &str) -> String {
    get(sim, &PODS, "default", name)["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn condition(object: &Value, kind: &str) -> String {
    let found = object["status"]["conditions"].as_array().unwrap();
    let found = found.iter().find(|condition| condition["type"] == kind);
    found.map(|c| c["status"].as_str().unwrap().to_owned()).unwrap_or_default()
}

fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints
        .iter()
        .map(|taint| {
            format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap())
        })
        .collect()
}

pub(crate) fn messages(sim: &Simulation, reason: &str) -> Vec<String> {
    sim.api
        .list(&EVENTS)
        .iter()
        .filter(|event| event["reason"] == reason)
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect()
}

/// A host on which the extension is installed and booted, and its RuntimeClass.
fn with_kata(sim: &mut Simulation, node: &str) {
    let host = sim.world.hosts.get_mut(node).unwrap();
    host.install_extension("sandboxed-containers");
    reboot(sim, node, 60);
    sim.advance(Duration::from_secs(61));
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"},
        "handler": "kata", "overhead": {"podFixed": {"cpu": "250m", "memory": "350Mi"}},
    });
    if get(sim, &RUNTIMECLASSES, "", "kata").is_null() {
        create(sim, &RUNTIMECLASSES, "", class);
    }
}

fn reboot(sim: &mut Simulation, node: &str, seconds: i64) {
    let until = sim.now() + jiff::SignedDuration::from_secs(seconds);
    sim.world.hosts.get_mut(node).unwrap().reboot(until);
    sim.world.touch(node);
}

#[test]
fn nodes_of_openshift_carry_roles_and_taints() {
    let sim = topology::build(&Layout::default(), "2026-11-21T10:00:00Z".parse().unwrap()).unwrap();
    assert_eq!(sim.api.list(&NODES).len(), 6);
    let worker = get(&sim, &NODES, "", "worker-0");
    assert_eq!(worker["metadata"]["labels"]["node-role.kubernetes.io/worker"], "");
    assert_eq!(condition(&worker, "Ready"), "True");
    assert!(taints(&worker).is_empty(), "{worker}");
    let annotation = &worker["metadata"]["annotations"]["machineconfiguration.openshift.io/state"];
    assert_eq!(annotation, "Done");
    let info = &worker["status"]["nodeInfo"];
    assert_eq!(info["bootID"], sim.world.hosts["worker-0"].boot_id.as_str());
    assert!(info["containerRuntimeVersion"].as_str().unwrap().starts_with("cri-o://1.34"));
    let handlers: Vec<_> = worker["status"]["runtimeHandlers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|handler| handler["name"].as_str().unwrap())
        .collect();
    assert_eq!(handlers, ["", "crun", "runc"]);
    let master = get(&sim, &NODES, "", "control-plane-0");
    assert_eq!(master["metadata"]["labels"]["node-role.kubernetes.io/master"], "");
    assert_eq!(taints(&master), ["node-role.kubernetes.io/master:NoSchedule"]);
}

#[test]
fn roles_depend_on_platform_and_shape() {
    let compact = Layout { workers: 0, compact: true, ..Layout::default() };
    let plain = Layout { platform: Platform::Kubernetes, ..Layout::default() };
    for (layout, name, roles, repels) in [
        (&compact, "control-plane-0", "control-plane master worker", false),
        (&plain, "control-plane-0", "control-plane", true),
        (&plain, "worker-0", "", false),
    ] {
        let sim = topology::build(layout, "2026-11-21T10:00:00Z".parse().unwrap()).unwrap();
        let node = get(&sim, &NODES, "", name);
        let labels = node["metadata"]["labels"].as_object().unwrap();
        let found: Vec<_> =
            labels.keys().filter_map(|key| key.strip_prefix("node-role.kubernetes.io/")).collect();
        assert_eq!(found.join(" "), roles);
        assert_eq!(!taints(&node).is_empty(), repels, "{name}");
    }
}

#[test]
fn a_reboot_follows_the_speed_of_the_cluster() {
    let mut sim = cluster(0, 1);
    reboot(&mut sim, "worker-0", 600);
    sim.advance(Duration::from_secs(1));
    sim.set_speed(60.0);
    sim.advance(Duration::from_secs(11));
    assert_eq!(condition(&get(&sim, &NODES, "", "worker-0"), "Ready"), "True");
}

#[test]
fn an_idle_cluster_writes_nothing() {
    let mut sim =
        topology::build(&Layout::default(), "2026-11-21T10:00:00Z".parse().unwrap()).unwrap();
    let revision = sim.api.store.revision();
    sim.advance(Duration::from_secs(3600));
    assert_eq!(sim.api.store.revision(), revision);
}

#[test]
fn the_extension_comes_and_goes_with_a_boot() {
    let mut sim = with_crio(0, 1);
    let drop_in = "/etc/crio/crio.conf.d/50-kata";
    let before = sim.world.hosts["worker-0"].files.clone();
    sim.world.hosts.get_mut("worker-0").unwrap().install_extension("sandboxed-containers");
    assert!(!sim.world.hosts["worker-0"].files.contains_key(drop_in), "staged, not booted");
    with_kata(&mut sim, "worker-0");
    assert_eq!(
        sim.world.hosts["worker-0"].files[drop_in],
        "[crio.runtime.runtimes.kata]\n  runtime_path = \"/usr/bin/containerd-shim-kata-v2\"\n  \
         runtime_type = \"vm\"\n  runtime_root = \"/run/vc\"\n  \
         privileged_without_host_devices = true\n"
    );
    let handlers = get(&sim, &NODES, "", "worker-0")["status"]["runtimeHandlers"].clone();
    assert!(handlers.as_array().unwrap().iter().any(|handler| handler["name"] == "kata"));
    sim.world.hosts.get_mut("worker-0").unwrap().uninstall_extension("sandboxed-containers");
    reboot(&mut sim, "worker-0", 60);
    sim.advance(Duration::from_secs(61));
    assert_eq!(sim.world.hosts["worker-0"].files, before);
    let handlers = get(&sim, &NODES, "", "worker-0")["status"]["runtimeHandlers"].clone();
    assert!(handlers.as_array().unwrap().iter().all(|handler| handler["name"] != "kata"));
}

#[test]
fn a_reboot_is_seen_as_not_ready_then_unknown_then_ready() {
    let mut sim = cluster(0, 1);
    create(&mut sim, &PODS, "default", pod("stays", json!({})));
    create(&mut sim, &PODS, "default", pod("ends", json!({"restartPolicy": "Never"})));
    sim.advance(Duration::from_secs(10));
    let before = get(&sim, &NODES, "", "worker-0");
    reboot(&mut sim, "worker-0", 90);
    let mut seen = Vec::new();
    sim.advance_until(Duration::from_secs(120), |sim| {
        let node = get(sim, &NODES, "", "worker-0");
        let state = format!("{} {}", condition(&node, "Ready"), taints(&node).join(","));
        if seen.last() != Some(&state) {
            seen.push(state);
        }
        false
    });
    assert_eq!(
        seen,
        [
            "True ",
            "False ",
            "False node.kubernetes.io/not-ready:NoSchedule,node.kubernetes.io/not-ready:NoExecute",
            "Unknown node.kubernetes.io/not-ready:NoSchedule,node.kubernetes.io/not-ready:NoExecute",
            "Unknown node.kubernetes.io/unreachable:NoSchedule,node.kubernetes.io/unreachable:NoExecute",
            "True node.kubernetes.io/unreachable:NoSchedule,node.kubernetes.io/unreachable:NoExecute",
            "True ",
        ]
    );
    let after = get(&sim, &NODES, "", "worker-0");
    assert_ne!(before["status"]["nodeInfo"]["bootID"], after["status"]["nodeInfo"]["bootID"]);
    let pod = get(&sim, &PODS, "default", "stays");
    assert_eq!(condition(&pod, "Ready"), "True");
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(container["restartCount"], 1);
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 255);
    assert_eq!(phase_of(&sim, "ends"), "Failed");
}

#[test]
fn a_kubelet_that_is_not_ready_takes_its_pods_along() {
    let mut sim = cluster(0, 1);
    create(&mut sim, &PODS, "default", pod("web", json!({})));
    sim.advance(Duration::from_secs(10));
    let both = |sim: &Simulation| {
        let node = condition(&get(sim, &NODES, "", "worker-0"), "Ready");
        (node, condition(&get(sim, &PODS, "default", "web"), "Ready"))
    };
    assert_eq!(both(&sim), ("True".into(), "True".into()));
    topology::set_fault(&mut sim, "worker-0", NodeFault::NotReady).unwrap();
    sim.advance(Duration::from_secs(60));
    assert_eq!(both(&sim), ("False".into(), "False".into()));
    topology::clear_fault(&mut sim, "worker-0", Some(&NodeFault::NotReady)).unwrap();
    sim.advance(Duration::from_secs(1));
    assert_eq!(both(&sim), ("True".into(), "True".into()));
}

#[test]
fn a_slow_host_takes_longer_to_boot() {
    struct Rebooter;
    impl simcluster::Controller for Rebooter {
        fn name(&self) -> &'static str {
            "rebooter"
        }
        fn observe(&mut self, _: &simcluster::api::Event, _: &mut simcluster::Context<'_>) {}
        fn host_changed(&mut self, host: &str, cx: &mut simcluster::Context<'_>) {
            if cx.world.hosts[host].boots == 1 && cx.world.hosts[host].is_up() {
                cx.after(host, Duration::ZERO);
            }
        }
        fn act(&mut self, host: &str, cx: &mut simcluster::Context<'_>) {
            cx.reboot_host(host, Duration::from_secs(60));
        }
    }
    let mut sim = cluster(0, 1);
    sim.add_controller(Box::new(Rebooter));
    topology::set_fault(&mut sim, "worker-0", NodeFault::SlowBoot(3)).unwrap();
    sim.advance(Duration::from_secs(170));
    assert_eq!(sim.world.hosts["worker-0"].boots, 1);
    sim.advance(Duration::from_secs(20));
    assert_eq!(sim.world.hosts["worker-0"].boots, 2);
}

#[test]
fn a_host_that_hangs_stays_down_until_the_fault_is_cleared() {
    let mut sim = cluster(0, 2);
    topology::set_fault(&mut sim, "worker-0", NodeFault::RebootHang).unwrap();
    reboot(&mut sim, "worker-0", 60);
    sim.advance(Duration::from_secs(3600));
    assert_eq!(condition(&get(&sim, &NODES, "", "worker-0"), "Ready"), "Unknown");
    topology::clear_fault(&mut sim, "worker-0", None).unwrap();
    sim.advance(Duration::from_secs(1));
    assert_eq!(condition(&get(&sim, &NODES, "", "worker-0"), "Ready"), "True");
}

#[test]
fn nodes_join_and_leave_at_run_time() {
    let mut sim = cluster(0, 1);
    topology::add_node(&mut sim, "worker-9", topology::Role::Worker, Default::default()).unwrap();
    assert!(
        topology::add_node(&mut sim, "worker-9", topology::Role::Worker, Default::default())
            .is_err()
    );
    assert!(
        topology::add_node(&mut sim, "Bad_Name", topology::Role::Worker, Default::default())
            .is_err()
    );
    sim.advance(Duration::from_secs(1));
    let node = get(&sim, &NODES, "", "worker-9");
    assert_eq!(condition(&node, "Ready"), "True");
    assert!(taints(&node).is_empty(), "{node}");
    topology::remove_node(&mut sim, "worker-9").unwrap();
    assert!(topology::remove_node(&mut sim, "worker-9").is_err());
    sim.advance(Duration::from_secs(60));
    assert!(get(&sim, &NODES, "", "worker-9").is_null());
}

#[test]
fn the_machine_config_operator_brings_the_handler_and_takes_it_away() {
    let mut sim =
        topology::build(&Layout::default(), "2026-11-21T10:00:00Z".parse().unwrap()).unwrap();
    let role = "machineconfiguration.openshift.io/role";
    let agent = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "main", "image": "agent:1"}]},
            },
        },
    });
    create(&mut sim, &DAEMONSETS, "default", agent);
    create(&mut sim, &PODS, "default", pod("alone", json!({"nodeName": "worker-0"})));
    sim.advance(Duration::from_secs(20));
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-enable-sandboxed-containers-extension",
                     "labels": {(role): "kata-oc"}},
        "spec": {"config": {"ignition": {"version": "3.2.0"}}, "extensions": ["sandboxed-containers"]},
    });
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "kata-oc"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": role, "operator": "In", "values": ["kata-oc", "worker"]},
            ]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/kata-oc": ""}},
        },
    });
    create(&mut sim, &MACHINECONFIGS, "", config);
    create(&mut sim, &MACHINECONFIGPOOLS, "", pool);
    let label = |sim: &mut Simulation, value: Value| {
        let patch = json!({"metadata": {"labels": {"node-role.kubernetes.io/kata-oc": value}}});
        let writer = writer(sim);
        sim.api.merge(writer, &NODES, "", "worker-0", &patch).unwrap();
    };
    let handlers = |sim: &Simulation| {
        let node = get(sim, &NODES, "", "worker-0");
        let list = node["status"]["runtimeHandlers"].as_array().unwrap().clone();
        list.iter().any(|handler| handler["name"] == "kata")
    };
    let settled = |sim: &Simulation| {
        let node = get(sim, &NODES, "", "worker-0");
        let note = |key: &str| {
            node["metadata"]["annotations"][format!("machineconfiguration.openshift.io/{key}")]
                .clone()
        };
        note("state") == "Done"
            && note("currentConfig") == note("desiredConfig")
            && node["spec"]["unschedulable"] != true
            && condition(&node, "Ready") == "True"
    };
    let boot_id = sim.world.hosts["worker-0"].boot_id.clone();
    label(&mut sim, json!(""));
    assert!(sim.advance_until(Duration::from_secs(1800), |sim| handlers(sim) && settled(sim)));
    assert_ne!(sim.world.hosts["worker-0"].boot_id, boot_id);
    sim.advance(Duration::from_secs(60));
    assert!(get(&sim, &PODS, "default", "alone").is_null(), "evicted by the drain");
    let agents = sim.api.list(&PODS);
    let here: Vec<_> = agents.iter().filter(|pod| pod["spec"]["nodeName"] == "worker-0").collect();
    assert_eq!(here.len(), 1);
    assert_eq!(here[0]["status"]["containerStatuses"][0]["restartCount"], 1, "not drained");
    assert_eq!(condition(here[0], "Ready"), "True");
    label(&mut sim, Value::Null);
    assert!(sim.advance_until(Duration::from_secs(1800), |sim| !handlers(sim) && settled(sim)));
    let left = |file: &&String| file.contains("kata");
    let files = sim.world.hosts["worker-0"].files.keys();
    assert_eq!(files.filter(left).collect::<Vec<_>>(), Vec::<&String>::new());
    sim.advance(Duration::from_secs(120));
    let revision = sim.api.store.revision();
    sim.advance(Duration::from_secs(1800));
    assert_eq!(sim.api.store.revision(), revision, "at rest again");
}

#[test]
fn the_control_endpoint_changes_hosts() {
    let mut sim = cluster(0, 1);
    let mut ask = |method: http::Method, path: &str, body: Value| {
        let request = ControlRequest { method, path: path.into(), query: Query::default(), body };
        control(&mut sim, "nodes", &request)
    };
    let added = ask(http::Method::POST, "", json!({"name": "extra"})).unwrap();
    assert_eq!(added["nodes"].as_array().unwrap().len(), 2);
    let faulty = ask(http::Method::POST, "extra/faults", json!({"fault": "no-kvm"})).unwrap();
    assert_eq!(faulty["nodes"][0]["faults"], json!(["no-kvm"]));
    let sound = ask(http::Method::DELETE, "extra/faults", Value::Null).unwrap();
    assert_eq!(sound["nodes"][0]["faults"], json!([]));
    for (method, path, body, code) in [
        (http::Method::POST, "", json!({}), 400),
        (http::Method::POST, "", json!({"name": "extra"}), 409),
        (http::Method::POST, "extra/faults", json!({"fault": "bad"}), 400),
        (http::Method::POST, "nobody/faults", json!({"fault": "no-kvm"}), 404),
        (http::Method::DELETE, "nobody", Value::Null, 404),
        (http::Method::PUT, "", Value::Null, 400),
    ] {
        let error = ask(method.clone(), path, body.clone()).unwrap_err();
        assert_eq!(error.code, code, "{method} {path} {body}: {error}");
    }
    let rest = ask(http::Method::DELETE, "extra", Value::Null).unwrap();
    assert_eq!(rest["nodes"].as_array().unwrap().len(), 1);
}

#[test]
fn faults_are_named_as_the_command_line_names_them() {
    for text in [
        "no-kvm",
        "drain-blocked",
        "reboot-hang",
        "handler-missing",
        "slow-boot=10x",
        "install-fails=no package",
        "not-ready",
    ] {
        assert_eq!(text.parse::<NodeFault>().unwrap().to_string(), text);
    }
    for text in ["", "no-such", "slow-boot=0", "slow-boot=x"] {
        assert!(text.parse::<NodeFault>().is_err(), "{text}");
    }
}

/// What OpenShift serves besides the Machine Config Operator's kinds can be stored.
#[test]
fn an_openshift_cluster_stores_security_context_constraints() {
    let now = jiff::Timestamp::UNIX_EPOCH;
    let build = |platform| {
        let layout = Layout { platform, control_plane: 1, workers: 0, ..Layout::default() };
        topology::build(&layout, now).unwrap()
    };
    let resource = Resource::new("security.openshift.io", "securitycontextconstraints");
    assert!(build(Platform::Kubernetes).api.registry.get(&resource).is_none());
    let mut sim = build(Platform::OpenShift);
    let writer = Writer { manager: "test", now };
    let mut constraints = json!({
        "apiVersion": "security.openshift.io/v1", "kind": "SecurityContextConstraints",
        "metadata": {"name": "c"},
        "allowHostDirVolumePlugin": true, "allowHostIPC": false, "allowHostNetwork": false,
        "allowHostPID": false, "allowHostPorts": false, "allowPrivilegedContainer": false,
        "allowedCapabilities": null, "defaultAddCapabilities": null, "priority": null,
        "readOnlyRootFilesystem": false, "requiredDropCapabilities": ["ALL"],
        "volumes": ["hostPath"], "users": ["system:serviceaccount:ns:a"],
    });
    sim.api.create(writer, &resource, "", constraints.clone()).unwrap();
    let stored = sim.api.get(&resource, "", "c").unwrap();
    assert_eq!(stored["users"], json!(["system:serviceaccount:ns:a"]));
    constraints["metadata"]["name"] = json!("d");
    constraints.as_object_mut().unwrap().remove("volumes");
    let error = sim.api.create(writer, &resource, "", constraints).unwrap_err();
    assert!(error.message.contains("volumes: Required value"), "{}", error.message);
}
