//! A pod on its way from the acceptance to running containers, stage by stage: sandbox, address, images,
//! containers.
//!
//! What becomes of the containers afterwards is not decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::admit::Occasion;
use super::{
    AGES, Kubelets, Run, Stage, back_off, exit_key, key_of, schedule_exit, tell, write_status,
};
use crate::node::PodKey;
use crate::node::agent;
use crate::node::command::{Course, course};
use crate::node::pod::{self, Placement};
use crate::node::request::{Request, request};
use crate::resource::{PODS, RUNTIMECLASSES};
use crate::simulation::Context;
use crate::world::sandbox::SandboxRequest;
use crate::world::{Container, Host};

/// From the acceptance to the sandbox.
const MAKE_SANDBOX: Duration = Duration::from_millis(800);
/// How much longer a sandbox in a virtual machine takes.
const BOOT_GUEST: Duration = Duration::from_millis(1_500);
/// How long an image takes that the host does not have.
const PULL: Duration = Duration::from_secs(2);
/// From the images to running containers.
const START: Duration = Duration::from_millis(200);

impl Kubelets {
    /// What the other pods take that were admitted to a node and have not ended.
    fn used_by_others(&self, node: &str, key: &PodKey, cx: &Context<'_>) -> Request {
        let mut used = Request::default();
        for other in self.pods.on(node) {
            let is_admitted = self.runs.get(&other).is_some_and(|run| run.stage != Stage::Accept);
            if other != *key
                && is_admitted
                && let Some(pod) = cx.api.get(&PODS, &other.0, &other.1)
                && !pod::is_finished(&pod)
            {
                used.add(&request(&pod));
            }
        }
        used
    }

    pub(super) fn step(&mut self, key: &PodKey, pod: &Value, cx: &mut Context<'_>) {
        let Some(run) = self.runs.get_mut(key) else { return };
        let node = run.node.clone();
        let host_ip = cx.world.hosts.get(&node).map(Host::address).unwrap_or_default();
        let wait = match run.stage {
            Stage::Accept => {
                let used = self.used_by_others(&node, key, cx);
                if !self.admit(key, pod, &used, Occasion::Binding, cx) {
                    return;
                }
                let Some(run) = self.runs.get_mut(key) else { return };
                run.stage = Stage::Sandbox;
                write_status(cx, pod, pod::accepted(pod, &host_ip, cx.now));
                MAKE_SANDBOX
            }
            Stage::Sandbox => {
                if run.ip.is_empty() {
                    run.ip = if pod["spec"]["hostNetwork"] == true {
                        host_ip
                    } else {
                        next_address(&mut self.addresses, &node, cx)
                    };
                }
                match make_sandbox(run, key, pod, cx) {
                    Ok(is_vm) => {
                        run.stage = Stage::Images;
                        run.failures = 0;
                        if is_vm { BOOT_GUEST } else { Duration::ZERO }
                    }
                    Err(text) => {
                        let wait = back_off(run.failures);
                        run.failures += 1;
                        let message = format!(
                            "Failed to create pod sandbox: rpc error: code = Unknown desc = {text}"
                        );
                        tell(cx, pod, true, "FailedCreatePodSandBox", &message, &node);
                        wait
                    }
                }
            }
            Stage::Images => {
                let refused =
                    cx.world.hosts.get(&node).and_then(|host| agent::unpullable(pod, host));
                if let Some((container, image)) = refused {
                    let wait = back_off(run.failures);
                    run.failures += 1;
                    let message = format!("Back-off pulling image \"{image}\": not found");
                    tell(cx, pod, true, "Failed", &message, &node);
                    let status = pod::unpullable(pod, container, &message, cx.now);
                    write_status(cx, pod, status);
                    cx.after(key_of("pod", key), wait);
                    return;
                }
                run.stage = Stage::Pulled;
                let missing: Vec<&str> = images(pod)
                    .filter(|image| !self.images.contains(&(node.clone(), (*image).to_owned())))
                    .collect();
                for image in &missing {
                    let message = format!("Pulling image \"{image}\"");
                    tell(cx, pod, false, "Pulling", &message, &node);
                }
                run.pulls = missing.iter().map(|image| (*image).to_owned()).collect();
                if missing.is_empty() { Duration::ZERO } else { PULL }
            }
            Stage::Pulled => {
                run.stage = Stage::Start;
                for image in images(pod) {
                    let present = !self.images.insert((node.clone(), image.to_owned()));
                    let message = if !present || run.pulls.contains(image) {
                        format!(
                            "Successfully pulled image \"{image}\" in 2s (2s including waiting)"
                        )
                    } else {
                        format!("Container image \"{image}\" already present on machine")
                    };
                    tell(cx, pod, false, "Pulled", &message, &node);
                }
                // Containers that come first are meant to end; those that we cannot judge do.
                let host = cx.world.hosts.get_mut(&node);
                host.and_then(|host| agent::first(pod, host)).unwrap_or_default()
                    + pod::init_containers(pod).fold(START, |sum, container| {
                        match course(container) {
                            Course::Ends { after, .. } => sum.saturating_add(after).min(AGES),
                            Course::Forever => sum.saturating_add(Duration::from_secs(1)),
                        }
                    })
            }
            Stage::Start => {
                let prepared = match cx.world.hosts.get_mut(&node) {
                    Some(host) => agent::prepare(pod, host),
                    None => Ok(()),
                };
                if let Err((container, error)) = prepared {
                    run.stage = Stage::Running;
                    let status = pod::failed_first(pod, &container, &error, cx.now);
                    write_status(cx, pod, status);
                    return;
                }
                run.stage = Stage::Running;
                let place = Placement { host_ip: &host_ip, pod_ip: &run.ip.clone() };
                for name in pod::containers(pod).filter_map(|c| c["name"].as_str()) {
                    tell(cx, pod, false, "Created", &format!("Created container: {name}"), &node);
                    tell(cx, pod, false, "Started", &format!("Started container {name}"), &node);
                }
                if let Some(new) = write_status(cx, pod, pod::started(pod, place, cx.now)) {
                    for container in pod::containers(&new) {
                        self.run_container(key, &new, container, cx);
                    }
                }
                return;
            }
            Stage::Running => return,
        };
        cx.after(key_of("pod", key), wait);
    }
}

impl Kubelets {
    /// Runs a container that the pod's status says has started, and plans its end.
    pub(super) fn run_container(
        &mut self,
        key: &PodKey,
        pod: &Value,
        container: &Value,
        cx: &mut Context<'_>,
    ) {
        register_containers(cx, pod);
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let starts = |cx: &Context<'_>| cx.world.hosts.get(node).map(|host| host.kubelet_restarts);
        let before = starts(cx);
        let host = cx.world.hosts.get_mut(node);
        let ending = host.and_then(|host| agent::run(container, host)).or_else(|| {
            let mut programs = cx.world.programs.iter();
            programs.find_map(|program| program(cx.api, pod, container))
        });
        if starts(cx) != before {
            cx.world.touch(node);
        }
        let Some(ending) = ending else { return schedule_exit(cx, key, pod, container) };
        let name = container["name"].as_str().unwrap_or_default();
        cx.reschedule(exit_key(key, pod, name), ending.after);
        self.endings.insert((key.clone(), name.to_owned()), ending);
    }
}

/// Tells the host which containers of the pod run.
fn register_containers(cx: &mut Context<'_>, pod: &Value) {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let Some(host) = cx.world.hosts.get_mut(node) else { return };
    for status in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
        let id = status["containerID"].as_str().and_then(|id| id.strip_prefix("cri-o://"));
        if let (Some(id), false) = (id, status["state"]["running"].is_null()) {
            let name = status["name"].as_str().unwrap_or_default().to_owned();
            let container = Container { pod_uid: uid.to_owned(), name };
            host.containers.insert(id.to_owned(), container);
        }
    }
}

pub(super) fn images(pod: &Value) -> impl Iterator<Item = &str> {
    let unique: BTreeSet<&str> = pod::init_containers(pod)
        .chain(pod::containers(pod))
        .filter_map(|container| container["image"].as_str())
        .collect();
    unique.into_iter()
}

/// Makes the pod's sandbox; tells whether it is a virtual machine.
fn make_sandbox(
    run: &Run,
    key: &PodKey,
    pod: &Value,
    cx: &mut Context<'_>,
) -> Result<bool, String> {
    let class = pod["spec"]["runtimeClassName"].as_str().filter(|class| !class.is_empty());
    let handler = match class {
        None => String::new(),
        Some(class) => cx
            .api
            .get(&RUNTIMECLASSES, "", class)
            .and_then(|object| object["handler"].as_str().map(str::to_owned))
            .ok_or_else(|| format!("RuntimeClass.node.k8s.io \"{class}\" not found"))?,
    };
    let now = cx.now;
    let request = SandboxRequest {
        uid: &run.uid,
        namespace: &key.0,
        name: &key.1,
        handler: &handler,
        attempt: run.attempt,
        ip: &run.ip,
        cpu_limit_milli: pod::limit_milli(pod, "cpu"),
        memory_limit: pod::limit_milli(pod, "memory") / 1000,
    };
    let host = cx.world.hosts.get_mut(&run.node).ok_or("the host is gone")?;
    host.run_sandbox(&request, now).map(|sandbox| sandbox.vm.is_some())
}

/// The place of an address among those that [`next_address`] gives the node's pods.
pub(super) fn address_index(node: &str, ip: &str, cx: &Context<'_>) -> Option<u32> {
    let index = cx.world.hosts.get(node)?.spec.as_ref()?.index;
    let mut parts = ip.split('.').map(|part| part.parse::<u32>().ok());
    let [_, _, third, fourth] = std::array::from_fn(|_| parts.next().flatten());
    let host = third?.checked_mul(256)?.checked_add(fourth?)?;
    host.checked_sub((index % 128) * 512 + 2).filter(|place| *place <= 500)
}

fn next_address(addresses: &mut BTreeMap<String, u32>, node: &str, cx: &Context<'_>) -> String {
    let index =
        cx.world.hosts.get(node).and_then(|host| host.spec.as_ref()).map_or(0, |spec| spec.index);
    let next = addresses.entry(node.to_owned()).or_insert(1);
    *next = *next % 500 + 1;
    let host = (index % 128) * 512 + *next + 2;
    format!("10.{}.{}.{}", 128 + index / 128, host / 256, host % 256)
}
