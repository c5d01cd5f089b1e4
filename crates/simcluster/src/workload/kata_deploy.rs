//! kata-deploy, upstream's installer, as its chart of Kata Containers 4.1 installs it with Helm, and that of 4.2 for the
//! CronJob: objects, labels and files of nodes, and what its pods do when they start and when they end.
//!
//! A pod of its DaemonSet installs Kata on its node. One that ends removes Kata from there, sandboxes or not, unless the
//! DaemonSet still wants a pod on the node. Its Jobs are not played: with them the nodes are as they leave them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::server::Writer;
use crate::api::{ApiError, Event, EventKind};
use crate::node::pod;
use crate::resource::{DAEMONSETS, NODES, PODS};
use crate::simulation::{Context, Controller, Simulation};
use crate::world::{Host, containerd};

/// Who starts the installations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A DaemonSet, the default of 4.1 and 4.2.
    DaemonSet,
    /// Jobs of a dispatcher, and a CronJob that starts it.
    Jobs,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "daemonset" => Ok(Self::DaemonSet),
            "jobs" => Ok(Self::Jobs),
            _ => Err(format!("unknown mode {text:?} of kata-deploy: give daemonset or jobs")),
        }
    }
}

const NAME: &str = "kata-deploy";
const NAMESPACE: &str = "kube-system";
const PROGRAM: &str = "/usr/bin/kata-deploy";
const TREE: &str = "/opt/kata";
const DROP_IN: &str = "/opt/kata/containerd/config.d/kata-deploy.toml";
/// The shims that it installs: name, CPU and memory of the overhead.
const SHIMS: [(&str, &str, &str); 2] = [("qemu", "250m", "320Mi"), ("clh", "250m", "130Mi")];
const LABELS: [&str; 2] =
    ["katacontainers.io/kata-runtime", "kata-deploy.katacontainers.io/default"];
/// How long a pod takes to install Kata on its node.
const INSTALLS: Duration = Duration::from_secs(20);

/// The nodes that only run workloads.
pub fn workers(simulation: &Simulation) -> Vec<String> {
    let is_worker = |host: &Host| host.spec.as_ref().is_some_and(|spec| spec.worker);
    let hosts = simulation.world.hosts.iter().filter(|(_, host)| is_worker(host));
    hosts.map(|(name, _)| name.clone()).collect()
}

/// Whether Kata is on a host as kata-deploy left it.
pub fn is_installed(host: &Host) -> bool {
    host.files.contains_key(DROP_IN)
}

/// Installs it on these nodes; the pods of a DaemonSet come to all workers.
///
/// # Errors
/// If the API server refuses an object, since it is there already, for example.
pub fn install(simulation: &mut Simulation, mode: Mode, nodes: &[String]) -> Result<(), ApiError> {
    let writer = Writer { manager: "helm", now: simulation.now() };
    for object in objects(mode) {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (word(&object["apiVersion"]), word(&object["kind"]));
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let Some(def) = simulation.api.registry.by_kind(group, &kind) else { continue };
        let resource = def.resource.clone();
        let namespace = word(&object["metadata"]["namespace"]);
        simulation.api.create(writer, &resource, &namespace, object)?;
    }
    for name in nodes {
        if let Some(host) = simulation.world.hosts.get_mut(name) {
            write_files(host);
        }
        simulation.world.touch(name);
        let writer = Writer { manager: NAME, now: simulation.now() };
        simulation.api.merge(writer, &NODES, "", name, &labels(Some("true")))?;
    }
    Ok(())
}

fn labels(value: Option<&str>) -> Value {
    let pairs = LABELS.map(|key| (key.to_owned(), json!(value)));
    json!({"metadata": {"labels": serde_json::Map::from_iter(pairs)}})
}

/// The drop-in for containerd 2.
fn drop_in() -> String {
    let mut text = String::new();
    for (shim, ..) in SHIMS {
        let runtime =
            format!("plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.kata-{shim}");
        text.push_str(&format!(
            "[{runtime}]\nruntime_type = \"io.containerd.kata-{shim}.v2\"\nruntime_path = \
             \"{TREE}/bin/containerd-shim-kata-v2\"\nprivileged_without_host_devices = true\npod_annotations = \
             [\"io.katacontainers.*\"]\n\n[{runtime}.options]\nConfigPath = \
             \"{TREE}/share/defaults/kata-containers/runtimes/{shim}/configuration-{shim}.toml\"\n\n"
        ));
    }
    text
}

fn import() -> String {
    format!("imports = [\"{DROP_IN}\"]\n")
}

/// Installs Kata on a host.
fn write_files(host: &mut Host) {
    let main = host.files.get(containerd::MAIN).cloned().unwrap_or_default();
    if main.starts_with(&import()) {
        return;
    }
    host.make_directories(&[
        TREE,
        "/opt/kata/bin",
        "/opt/kata/containerd",
        "/opt/kata/containerd/config.d",
        "/opt/kata/share",
        "/opt/kata/share/defaults",
        "/opt/kata/share/defaults/kata-containers",
        "/opt/kata/share/defaults/kata-containers/runtimes",
    ]);
    for (shim, ..) in SHIMS {
        let folder = format!("{TREE}/share/defaults/kata-containers/runtimes/{shim}");
        let file = format!("{folder}/configuration-{shim}.toml");
        host.put(&file, format!("[hypervisor.{shim}]\n"));
    }
    host.put("/opt/kata/bin/containerd-shim-kata-v2", "simulated, of kata-deploy\n".to_owned());
    host.put(DROP_IN, drop_in());
    host.put(containerd::MAIN, format!("{}{main}", import()));
    host.restart_runtime();
}

/// Removes Kata from a host, whatever runs there.
fn remove_files(host: &mut Host) {
    let main = host.files.get(containerd::MAIN).cloned().unwrap_or_default();
    host.put(containerd::MAIN, main.replacen(&import(), "", 1));
    host.remove_tree(TREE);
    host.restart_runtime();
}

/// What its chart has in the cluster.
fn objects(mode: Mode) -> Vec<Value> {
    let mut objects: Vec<Value> = SHIMS.iter().map(|(shim, cpu, memory)| {
        json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": format!("kata-{shim}"), "labels": {"kata-deploy/instance": "default"}},
            "handler": format!("kata-{shim}"),
            "overhead": {"podFixed": {"cpu": cpu, "memory": memory}},
            "scheduling": {"nodeSelector": {LABELS[0]: "true", LABELS[1]: "true"}},
        })
    }).collect();
    match mode {
        Mode::DaemonSet => objects.push(daemon_set()),
        Mode::Jobs => objects.extend([job_templates(), cron_job()]),
    }
    for object in &mut objects {
        object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
        object["metadata"]["annotations"] = json!({
            "meta.helm.sh/release-name": NAME,
            "meta.helm.sh/release-namespace": NAMESPACE,
        });
    }
    objects.push(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {
            "name": "sh.helm.release.v1.kata-deploy.v1", "namespace": NAMESPACE,
            "labels": {"owner": "helm", "name": NAME, "status": "deployed", "version": "1"},
        },
        "data": {"release": "c2ltdWxhdGVk"},
    }));
    objects
}

fn daemon_set() -> Value {
    let labels = json!({"name": NAME});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 600,
                    "containers": [{
                        "name": "kube-kata", "image": "quay.io/kata-containers/kata-deploy:4.1.0",
                        "command": [PROGRAM, "install"],
                        "env": [
                            {"name": "DAEMONSET_NAME", "value": NAME},
                            {"name": "MULTI_INSTALL_SUFFIX", "value": ""},
                        ],
                    }],
                },
            },
        },
    })
}

fn job_templates() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kata-deploy-job-templates", "namespace": NAMESPACE},
        "data": {"install-job.yaml": "", "cleanup-job.yaml": ""},
    })
}

fn cron_job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {
            "name": "kata-deploy-reconcile", "namespace": NAMESPACE,
            "labels": {"kata-deploy/dispatcher": "reconcile"},
        },
        "spec": {
            "schedule": "*/15 * * * *",
            "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "dispatcher", "image": "ghcr.io/kata-containers/k8s-job-dispatcher:0.2.0",
                    "command": ["/usr/bin/k8s-job-dispatcher"],
                }],
            }}}},
        },
    })
}

/// What its pods do.
#[derive(Debug, Default)]
pub struct KataDeploy;

/// Whether a pod is one of kata-deploy, and not one that replaced it and does nothing.
fn acts(pod: &Value) -> bool {
    pod::containers(pod).any(|container| container["command"][0] == PROGRAM)
}

impl Controller for KataDeploy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource != PODS || !acts(&event.current) {
            return;
        }
        let node = event.current["spec"]["nodeName"].as_str().unwrap_or_default();
        if event.kind == EventKind::Deleted {
            cx.after(format!("cleanup/{node}"), Duration::ZERO);
        } else if event.current["status"]["phase"] == "Running" {
            cx.after(format!("install/{node}"), INSTALLS);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let Some((action, node)) = key.split_once('/') else { return };
        let is_wanted = cx
            .api
            .get(&DAEMONSETS, NAMESPACE, NAME)
            .is_some_and(|set| set["metadata"]["deletionTimestamp"].is_null());
        let installs = action == "install";
        let Some(host) = cx.world.hosts.get_mut(node) else { return };
        let has_files = is_installed(host);
        if installs != is_wanted || has_files == installs {
            return;
        }
        if installs {
            write_files(host);
        } else {
            remove_files(host);
        }
        cx.world.touch(node);
        let writer = cx.writer();
        let labels = labels(installs.then_some("true"));
        // The node may be gone.
        let _gone = cx.api.merge(writer, &NODES, "", node, &labels);
    }
}
