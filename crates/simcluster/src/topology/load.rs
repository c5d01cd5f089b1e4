//! Load for measurements: objects in numbers that would take the cluster's own controllers too long.

use jiff::Timestamp;
use serde_json::json;

use crate::Simulation;
use crate::api::ApiError;
use crate::recorder::time;
use crate::resource::PODS;
use crate::world::Container;
use crate::world::sandbox::SandboxRequest;

/// Makes a pod that runs on a node already: past the API server's admission and the kubelet, which
/// takes it for one that it has started. It is in the namespace `default` and has about `bytes` bytes of
/// JSON, but no fewer than 1,300.
///
/// # Errors
/// If the host cannot run one more sandbox.
pub fn run_pod(
    sim: &mut Simulation,
    now: Timestamp,
    (name, node): (&str, &str),
    class: Option<&str>,
    bytes: usize,
) -> Result<(), ApiError> {
    let ip = "10.128.0.10";
    let number = sim.api.store.revision();
    let uid = format!("00000000-0000-4000-8000-{number:012x}");
    let id = format!("{number:064x}");
    if let Some(host) = sim.world.hosts.get_mut(node) {
        let request = SandboxRequest {
            uid: &uid,
            namespace: "default",
            name,
            handler: class.unwrap_or_default(),
            attempt: 0,
            ip,
            cpu_limit_milli: 0,
            memory_limit: 0,
        };
        let made = host.run_sandbox(&request, now).map(drop);
        made.map_err(|why| ApiError::new(500, "InternalError", why))?;
        let container = Container { pod_uid: uid.clone(), name: "main".to_owned() };
        host.containers.insert(id.clone(), container);
    }
    let since = time(now);
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": since});
    // Some 1,300 bytes are there without it.
    let padding = "x".repeat(bytes.saturating_sub(1_300));
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid, "creationTimestamp": since,
            "annotations": {"load.example.com/padding": padding},
        },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0, "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "serviceAccountName": "default", "enableServiceLinks": true, "securityContext": {},
            "containers": [{
                "name": "main", "image": "registry.example.com/load:1",
                "imagePullPolicy": "IfNotPresent", "resources": {},
            }],
        },
        "status": {
            "phase": "Running", "podIP": ip, "hostIP": "10.0.0.1", "startTime": since,
            "conditions": [condition("PodScheduled"), condition("Initialized"), condition("Ready")],
            "containerStatuses": [{
                "name": "main", "image": "registry.example.com/load:1", "ready": true,
                "started": true, "restartCount": 0, "containerID": format!("cri-o://{id}"),
                "state": {"running": {"startedAt": since}},
            }],
        },
    });
    if let Some(class) = class {
        pod["spec"]["runtimeClassName"] = json!(class);
    }
    sim.api.store.put(&PODS, "default", name, pod);
    Ok(())
}
