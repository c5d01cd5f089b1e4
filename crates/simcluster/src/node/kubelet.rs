//! The kubelets of all nodes: they register hosts as nodes, report what becomes of the hosts, and
//! run pods as states.
//!
//! A kubelet writes only when something changed: an idle node has no heartbeats. What a host does
//! by itself (sandboxes, processes, boots) is in [`crate::world`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::agent::{self, Ending};
use super::command::{Course, course};
use super::pod::{self, Aftermath, Placement};
use super::registration;
use super::{PodIndex, PodKey};
use crate::api::server::{DeleteOptions, Writer};
use crate::api::{Event, EventKind};
use crate::recorder::{self, Occurrence, note, record};
use crate::resource::{LEASES, NODES, PODS, RUNTIMECLASSES};
use crate::simulation::{Context, Controller};
use crate::world::sandbox::SandboxRequest;
use crate::world::{Container, Host, Power};

/// From the binding of a pod to its acceptance.
const ACCEPT: Duration = Duration::from_millis(50);
/// From the acceptance to the sandbox.
const MAKE_SANDBOX: Duration = Duration::from_millis(800);
/// How much longer a sandbox in a virtual machine takes.
const BOOT_GUEST: Duration = Duration::from_millis(1_500);
/// How long an image takes that the host does not have.
const PULL: Duration = Duration::from_secs(2);
/// From the images to running containers.
const START: Duration = Duration::from_millis(200);
/// How long containers take to stop; never longer than the pod's grace period.
const STOP: Duration = Duration::from_secs(2);
/// First and longest pause after a failure, of a sandbox or a container.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// How often a kubelet looks whether its node's status has changed.
const NODE_STATUS: Duration = Duration::from_secs(10);
/// Commands that run longer than this run until they are stopped.
const AGES: Duration = Duration::from_secs(365 * 86_400);

/// How far a pod has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Accept,
    Sandbox,
    Images,
    Pulled,
    Start,
    Running,
}

#[derive(Debug)]
struct Run {
    uid: String,
    node: String,
    stage: Stage,
    attempt: u32,
    failures: u32,
    ip: String,
    pulls: BTreeSet<String>,
}

/// The kubelets.
#[derive(Debug, Default)]
pub struct Kubelets {
    runs: BTreeMap<PodKey, Run>,
    pods: PodIndex,
    images: BTreeSet<(String, String)>,
    addresses: BTreeMap<String, u32>,
    boots: BTreeMap<String, String>,
    /// How the containers of the operator's Jobs end that run.
    endings: BTreeMap<(PodKey, String), Ending>,
}

fn key_of(prefix: &str, (namespace, name): &PodKey) -> String {
    format!("{prefix}/{namespace}/{name}")
}

fn back_off(failures: u32) -> Duration {
    BACK_OFF.0.saturating_mul(2_u32.saturating_pow(failures.min(10))).min(BACK_OFF.1)
}

fn writer(cx: &Context<'_>) -> Writer<'static> {
    Writer { manager: "kubelet", now: cx.now }
}

fn tell(
    cx: &mut Context<'_>,
    object: &Value,
    warning: bool,
    reason: &str,
    message: &str,
    node: &str,
) {
    let occurrence =
        Occurrence { object, warning, reason, message, component: "kubelet", host: node };
    record(cx.api, cx.now, &occurrence);
}

impl Controller for Kubelets {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        self.pods.observe(event);
        if event.resource == NODES {
            let Some(host) = cx.world.hosts.get(&event.name) else { return };
            if !host.is_up() || self.boots.get(&event.name) != Some(&host.boot_id) {
                cx.after(format!("node/{}", event.name), Duration::ZERO);
            }
        } else if event.resource == PODS {
            self.observe_pod(event, cx);
        }
    }

    fn host_changed(&mut self, host: &str, cx: &mut Context<'_>) {
        cx.reschedule(format!("node/{host}"), Duration::ZERO);
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let mut parts = key.splitn(5, '/');
        let verb = parts.next().unwrap_or_default();
        let first = parts.next().unwrap_or_default();
        if verb == "node" || verb == "boot" {
            self.sync_node(first, verb == "boot", cx);
            return;
        }
        let pod_key = (first.to_owned(), parts.next().unwrap_or_default().to_owned());
        let Some(pod) = cx.api.get(&PODS, &pod_key.0, &pod_key.1) else { return };
        let Some(run) = self.runs.get(&pod_key) else { return };
        let up = cx.world.hosts.get(&run.node).is_some_and(Host::is_up);
        if !up || pod["metadata"]["uid"] != run.uid.as_str() {
            return;
        }
        let container = parts.next().unwrap_or_default();
        let restart = parts.next().and_then(|count| count.parse::<i64>().ok());
        match verb {
            "pod" if !pod::is_deleting(&pod) && !pod::is_finished(&pod) => {
                self.step(&pod_key, &pod, cx);
            }
            "kill" => self.kill(&pod_key, &pod, cx),
            "exit" => self.exit(&pod_key, &pod, (container, restart), cx),
            "again" => self.again(&pod_key, &pod, container, cx),
            _ => {}
        }
    }
}

impl Kubelets {
    fn observe_pod(&mut self, event: &Event, cx: &mut Context<'_>) {
        let pod = &event.current;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            return;
        }
        let key = (event.namespace.clone(), event.name.clone());
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        if event.kind == EventKind::Deleted {
            if let Some(host) = cx.world.hosts.get_mut(node) {
                host.stop_sandbox(uid);
            }
            if self.runs.get(&key).is_some_and(|run| run.uid == uid) {
                self.runs.remove(&key);
                cx.cancel(&key_of("pod", &key));
                cx.cancel(&key_of("kill", &key));
            }
            return;
        }
        if self.runs.get(&key).is_none_or(|run| run.uid != uid) {
            let mut run = Run {
                uid: uid.to_owned(),
                node: node.to_owned(),
                stage: Stage::Accept,
                attempt: 0,
                failures: 0,
                ip: String::new(),
                pulls: BTreeSet::new(),
            };
            self.find(&mut run, &key, pod, cx);
            self.runs.insert(key.clone(), run);
            cx.reschedule(key_of("pod", &key), ACCEPT);
        }
        if pod::is_deleting(pod) && !cx.pending(&key_of("kill", &key)) {
            let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(30);
            cx.after(key_of("kill", &key), STOP.min(Duration::from_secs(grace)));
        }
    }

    /// What a kubelet that starts finds of a pod that it has not started itself: on the host, and in
    /// the pod's status.
    fn find(&mut self, run: &mut Run, key: &PodKey, pod: &Value, cx: &mut Context<'_>) {
        let ran = pod["status"]["podIP"].as_str();
        let host = cx.world.hosts.get(&run.node);
        if let Some(ip) = ran {
            run.ip = ip.to_owned();
            run.attempt = pod::restarts(pod);
            run.stage = if host.is_some_and(Host::is_up) { Stage::Sandbox } else { Stage::Running };
            let present = images(pod).map(|image| (run.node.clone(), image.to_owned()));
            self.images.extend(present);
        }
        if let Some(sandbox) = host.and_then(|host| host.sandboxes.get(&run.uid)) {
            run.ip.clone_from(&sandbox.ip);
            run.attempt = sandbox.attempt;
            // The containers of an older sandbox do not run any more.
            let runs = |id: &str| {
                let id = id.strip_prefix("cri-o://").unwrap_or(id);
                host.is_some_and(|host| host.containers.contains_key(id))
            };
            if ran.is_some() && pod::container_ids(pod).any(runs) {
                run.stage = Stage::Running;
                self.go_on(key, pod, cx);
            } else {
                run.stage = Stage::Images;
            }
        }
        if pod["spec"]["hostNetwork"] != true
            && let Some(index) = address_index(&run.node, &run.ip, cx)
        {
            let last = self.addresses.entry(run.node.clone()).or_insert(1);
            *last = index.max(*last);
        }
    }

    /// Waits again for the ends and the restarts of a pod's containers.
    fn go_on(&self, key: &PodKey, pod: &Value, cx: &mut Context<'_>) {
        let policy = pod["spec"]["restartPolicy"].as_str().unwrap_or("Always");
        for container in pod::containers(pod) {
            let name = container["name"].as_str().unwrap_or_default();
            let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
            let Some(status) = statuses.into_iter().find(|status| status["name"] == name) else {
                continue;
            };
            let code = status["state"]["terminated"]["exitCode"].as_i64();
            if !status["state"]["running"].is_null() {
                schedule_exit(cx, key, pod, container);
            } else if policy == "Always" || (policy == "OnFailure" && code != Some(0)) {
                let count = status["restartCount"].as_u64().unwrap_or(0);
                let wait = back_off(u32::try_from(count).unwrap_or(u32::MAX).saturating_sub(1));
                cx.after(format!("{}/{name}", key_of("again", key)), wait);
            }
        }
    }

    /// Brings the Node object in line with the host; `due` says that a reboot is over.
    fn sync_node(&mut self, name: &str, due: bool, cx: &mut Context<'_>) {
        let now = cx.now;
        let Some(host) = cx.world.hosts.get_mut(name) else {
            self.boots.remove(name);
            return;
        };
        let mut booted = false;
        match host.power {
            Power::Off => return,
            Power::Rebooting { until } if until > now && !due => {
                // The agenda follows changes of the cluster's speed, `until` does not.
                let boot = format!("boot/{name}");
                if until == jiff::Timestamp::MAX {
                    cx.cancel(&boot);
                } else if !cx.pending(&boot) {
                    cx.at(boot, until);
                }
            }
            Power::Rebooting { .. } => {
                host.boot(now);
                cx.cancel(&format!("boot/{name}"));
                cx.world.touch(name);
                booted = true;
            }
            Power::On => {}
        }
        let Some(host) = cx.world.hosts.get(name) else { return };
        let Some(spec) = &host.spec else { return };
        let known = self.boots.get(name);
        booted |= host.is_up() && known.is_some_and(|boot| *boot != host.boot_id);
        let joins = known.is_none();
        self.boots.insert(name.to_owned(), host.boot_id.clone());
        match cx.api.get(&NODES, "", name) {
            None if joins || booted => {
                let node = registration::node(host, spec, now);
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": name, "namespace": "kube-node-lease"},
                    "spec": {"holderIdentity": name, "leaseDurationSeconds": 40,
                             "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()},
                });
                note("node", cx.api.create(writer(cx), &NODES, "", node));
                if cx.api.get(&LEASES, "kube-node-lease", name).is_none() {
                    note("lease", cx.api.create(writer(cx), &LEASES, "kube-node-lease", lease));
                }
            }
            None => {}
            Some(node) => {
                let was_down = node["status"]["nodeInfo"]["bootID"] != host.boot_id.as_str();
                // A kubelet that is down reports nothing after its farewell.
                let farewell = recorder::condition(&node, "Ready") == "True";
                if host.is_up() || farewell {
                    let status = registration::status(host, spec, &node["status"], now);
                    if status != node["status"] {
                        let mut new = (*node).clone();
                        new["status"] = merged(&node["status"], status);
                        note("node", cx.api.update_status(writer(cx), &NODES, "", new));
                    }
                }
                if was_down && host.is_up() {
                    let boot = cx.world.hosts.get(name).map(|h| h.boot_id.clone());
                    let message = format!(
                        "Node {name} has been rebooted, boot id: {}",
                        boot.unwrap_or_default()
                    );
                    tell(cx, &node, true, "Rebooted", &message, name);
                }
            }
        }
        if cx.world.hosts.get(name).is_some_and(Host::is_up) {
            self.resume(name, booted, cx);
        }
    }

    /// After a boot pods get new sandboxes; after a pause they are ready again.
    fn resume(&mut self, node: &str, booted: bool, cx: &mut Context<'_>) {
        for key in self.pods.on(node) {
            let Some(pod) = cx.api.get(&PODS, &key.0, &key.1) else { continue };
            if pod::is_finished(&pod) {
                continue;
            }
            if pod::is_deleting(&pod) {
                cx.after(key_of("kill", &key), Duration::ZERO);
                continue;
            }
            let Some(run) = self.runs.get_mut(&key) else { continue };
            let ran = !pod["status"]["podIP"].is_null();
            if !booted {
                if run.stage == Stage::Running && !pod::is_ready(&pod) {
                    let mut status = pod["status"].clone();
                    let all = status["containerStatuses"]
                        .as_array()
                        .is_some_and(|entries| entries.iter().all(|entry| entry["ready"] == true));
                    if all
                        && recorder::set_condition(
                            &mut status["conditions"],
                            "Ready",
                            "True",
                            "",
                            "",
                            cx.now,
                        )
                    {
                        write_status(cx, &pod, status);
                    }
                } else if run.stage != Stage::Running {
                    // What stopped when the node did goes on.
                    cx.after(key_of("pod", &key), ACCEPT);
                }
            } else if ran && pod["spec"]["restartPolicy"] == "Never" {
                write_status(cx, &pod, pod::stopped(&pod, 255, cx.now));
            } else {
                run.attempt += u32::from(ran);
                run.failures = 0;
                run.stage = if ran { Stage::Sandbox } else { Stage::Accept };
                cx.reschedule(key_of("pod", &key), ACCEPT);
            }
        }
    }

    fn step(&mut self, key: &PodKey, pod: &Value, cx: &mut Context<'_>) {
        let Some(run) = self.runs.get_mut(key) else { return };
        let node = run.node.clone();
        let host_ip = cx.world.hosts.get(&node).map(Host::address).unwrap_or_default();
        let wait = match run.stage {
            Stage::Accept => {
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
                    let status = pod::unpullable(pod, container, &message);
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
                agent::first(pod).unwrap_or_default()
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
                    register_containers(cx, &new);
                    for container in pod::containers(&new) {
                        let host = cx.world.hosts.get_mut(&node);
                        let ran = host.and_then(|host| agent::run(container, host)).or_else(|| {
                            let mut programs = cx.world.programs.iter();
                            programs.find_map(|program| program(cx.api, &new, container))
                        });
                        if let Some(ending) = ran {
                            let name = container["name"].as_str().unwrap_or_default().to_owned();
                            cx.reschedule(
                                format!("{}/{name}/0", key_of("exit", key)),
                                ending.after,
                            );
                            self.endings.insert((key.clone(), name), ending);
                        } else {
                            schedule_exit(cx, key, &new, container);
                        }
                    }
                }
                return;
            }
            Stage::Running => return,
        };
        cx.after(key_of("pod", key), wait);
    }

    fn kill(&mut self, key: &PodKey, pod: &Value, cx: &mut Context<'_>) {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if let Some(host) = cx.world.hosts.get_mut(node) {
            host.stop_sandbox(uid);
        }
        // Who holds the pod by a finalizer wants to see how it ended.
        let held = pod["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        if held && !pod::is_finished(pod) {
            write_status(cx, pod, pod::stopped(pod, 137, cx.now));
        }
        let options = DeleteOptions {
            grace_seconds: Some(0),
            uid: Some(uid.to_owned()),
            ..DeleteOptions::default()
        };
        note("pod", cx.api.delete(writer(cx), &PODS, &key.0, &key.1, &options));
    }

    fn exit(
        &mut self,
        key: &PodKey,
        pod: &Value,
        (container, restart): (&str, Option<i64>),
        cx: &mut Context<'_>,
    ) {
        let status = pod["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|status| status["name"] == container);
        let current = status.is_some_and(|status| {
            status["restartCount"].as_i64() == restart && !status["state"]["running"].is_null()
        });
        let spec = pod::containers(pod).find(|spec| spec["name"] == container);
        let ending = self.endings.remove(&(key.clone(), container.to_owned()));
        let code = match (&ending, spec.map(course)) {
            (Some(ending), _) => ending.code,
            (None, Some(Course::Ends { code, .. })) => code,
            (None, _) => return,
        };
        if !current {
            return;
        }
        let (mut status, aftermath) = pod::ended(pod, container, code, cx.now);
        if let Some(ending) = ending {
            pod::leave_message(&mut status, container, &ending.message);
            // The kubelet reports what the container runtime offers at its next look.
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            cx.reschedule(format!("node/{node}"), NODE_STATUS);
        }
        write_status(cx, pod, status);
        match aftermath {
            Aftermath::Wait => {}
            Aftermath::Restart(0) => {
                cx.after(format!("{}/{container}", key_of("again", key)), Duration::from_secs(1));
            }
            Aftermath::Restart(count) => {
                let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
                let message =
                    format!("Back-off restarting failed container {container} in pod {}", key.1);
                tell(cx, pod, true, "BackOff", &message, node);
                let wait = back_off(u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX));
                cx.after(format!("{}/{container}", key_of("again", key)), wait);
            }
            Aftermath::Finished => {
                let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
                let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
                if let Some(host) = cx.world.hosts.get_mut(node) {
                    host.stop_sandbox(uid);
                }
            }
        }
    }

    fn again(&mut self, key: &PodKey, pod: &Value, container: &str, cx: &mut Context<'_>) {
        if pod::is_deleting(pod) {
            return;
        }
        let status = pod::restarted(pod, container, cx.now);
        if let Some(new) = write_status(cx, pod, status) {
            register_containers(cx, &new);
            for spec in pod::containers(&new).filter(|spec| spec["name"] == container) {
                schedule_exit(cx, key, &new, spec);
            }
        }
    }
}

/// Keeps what others write into the status.
fn merged(old: &Value, new: Value) -> Value {
    let mut status = old.clone();
    if let (Some(status), Value::Object(new)) = (status.as_object_mut(), new) {
        status.extend(new);
    }
    status
}

fn images(pod: &Value) -> impl Iterator<Item = &str> {
    let unique: BTreeSet<&str> = pod::init_containers(pod)
        .chain(pod::containers(pod))
        .filter_map(|container| container["image"].as_str())
        .collect();
    unique.into_iter()
}

fn schedule_exit(cx: &mut Context<'_>, key: &PodKey, pod: &Value, container: &Value) {
    let Course::Ends { after, .. } = course(container) else { return };
    if after > AGES {
        return;
    }
    let name = container["name"].as_str().unwrap_or_default();
    let restarts = pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|status| status["name"] == name)
        .and_then(|status| status["restartCount"].as_i64())
        .unwrap_or(0);
    cx.reschedule(format!("{}/{name}/{restarts}", key_of("exit", key)), after);
}

fn write_status(cx: &mut Context<'_>, pod: &Value, status: Value) -> Option<std::sync::Arc<Value>> {
    if pod["status"] == status {
        return None;
    }
    let mut new = pod.clone();
    new["status"] = status;
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    note("pod status", cx.api.update_status(writer(cx), &PODS, namespace, new))
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
fn address_index(node: &str, ip: &str, cx: &Context<'_>) -> Option<u32> {
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
