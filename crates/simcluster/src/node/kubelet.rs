//! The kubelets of all nodes: they register hosts as nodes, report what becomes of the hosts, and
//! run pods as states.
//!
//! A kubelet writes only when something changed: an idle node has no heartbeats. What a host does
//! by itself (sandboxes, processes, boots) is in [`crate::world`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::agent::Ending;
use super::command::{Course, course};
use super::pod::{self, Aftermath};
use super::registration;
use super::{PodIndex, PodKey};
use crate::api::server::{DeleteOptions, Writer};
use crate::api::{Event, EventKind};
use crate::recorder::{Occurrence, note, record};
use crate::resource::{NODES, PODS};
use crate::simulation::{Context, Controller};
use crate::world::Host;

mod admit;
mod node;
mod start;

use node::Start;
use start::{address_index, images};

/// From the binding of a pod to its acceptance.
const ACCEPT: Duration = Duration::from_millis(50);
/// How long containers take to stop; never longer than the pod's grace period.
const STOP: Duration = Duration::from_secs(2);
/// First and longest pause after a failure, of a sandbox or a container.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// How long a container runs until its failures before no longer count.
const BACK_OFF_RESET: SignedDuration = SignedDuration::from_secs(600);
/// From the end of a container to its first restart, which is not held back.
const RESTART: Duration = Duration::from_secs(1);
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
    /// How often each container ended soon after it had started.
    crashes: BTreeMap<String, u32>,
}

/// The kubelets.
#[derive(Debug, Default)]
pub struct Kubelets {
    runs: BTreeMap<PodKey, Run>,
    pods: PodIndex,
    images: BTreeSet<(String, String)>,
    addresses: BTreeMap<String, u32>,
    starts: BTreeMap<String, Start>,
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
            let node = &event.current;
            let other_system = event.kind != EventKind::Deleted
                && node["status"]["nodeInfo"]["osImage"].as_str().is_some_and(|reported| {
                    reported != registration::os_image(host.platform(), node)
                });
            let starts = self.starts.get(&event.name) != Some(&Start::of(host));
            if !host.is_up() || starts || other_system {
                cx.after(format!("node/{}", event.name), Duration::ZERO);
            }
        } else if event.resource == PODS {
            self.observe_pod(event, cx);
        }
    }

    fn host_changed(&mut self, host: &str, cx: &mut Context<'_>) {
        cx.reschedule(format!("node/{host}"), Duration::ZERO);
        for exit in cx.world.take_exits(host) {
            let Some(pod) = cx.api.get(&PODS, &exit.pod.0, &exit.pod.1) else { continue };
            cx.reschedule(exit_key(&exit.pod, &pod, &exit.container), Duration::ZERO);
            let ending = Ending { after: Duration::ZERO, code: exit.code, message: String::new() };
            self.endings.insert((exit.pod, exit.container), ending);
        }
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
            "stop" => stop_sandbox(&pod, cx),
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
                crashes: BTreeMap::new(),
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
                Self::go_on(run, key, pod, cx);
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
    fn go_on(run: &mut Run, key: &PodKey, pod: &Value, cx: &mut Context<'_>) {
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
                let crashes = u32::try_from(count).unwrap_or(u32::MAX);
                run.crashes.insert(name.to_owned(), crashes.saturating_add(1));
                let wait = crashes.checked_sub(1).map_or(RESTART, back_off);
                cx.after(format!("{}/{name}", key_of("again", key)), wait);
            }
        }
    }

    fn kill(&mut self, key: &PodKey, pod: &Value, cx: &mut Context<'_>) {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        stop_sandbox(pod, cx);
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
        let pause = self.pause(key, container, status, cx.now);
        let (mut status, aftermath) = pod::ended(pod, container, code, pause, cx.now);
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if let Some(ending) = ending {
            pod::leave_message(&mut status, container, &ending.message);
            // The kubelet reports what the container runtime offers at its next look.
            cx.reschedule(format!("node/{node}"), NODE_STATUS);
        }
        write_status(cx, pod, status);
        match aftermath {
            Aftermath::Wait => {}
            Aftermath::Restart => {
                if pause.is_some() {
                    let message = format!(
                        "Back-off restarting failed container {container} in pod {}",
                        pod::id(pod)
                    );
                    tell(cx, pod, true, "BackOff", &message, node);
                }
                let wait = pause.unwrap_or(RESTART);
                cx.after(format!("{}/{container}", key_of("again", key)), wait);
            }
            Aftermath::Finished => stop_sandbox(pod, cx),
        }
    }

    /// How long a container that ended is held back before it starts again; not at all the first time, or if it
    /// ran long enough.
    fn pause(
        &mut self,
        key: &PodKey,
        container: &str,
        status: Option<&Value>,
        now: Timestamp,
    ) -> Option<Duration> {
        let started = status?["state"]["running"]["startedAt"].as_str()?.parse::<Timestamp>().ok();
        let crashes = &mut self.runs.get_mut(key)?.crashes;
        let crashes = crashes.entry(container.to_owned()).or_default();
        if started.is_some_and(|started| now.duration_since(started) > BACK_OFF_RESET) {
            *crashes = 0;
        }
        *crashes += 1;
        crashes.checked_sub(2).map(back_off)
    }

    fn again(&mut self, key: &PodKey, pod: &Value, container: &str, cx: &mut Context<'_>) {
        if pod::is_deleting(pod) {
            return;
        }
        let status = pod::restarted(pod, container, cx.now);
        if let Some(new) = write_status(cx, pod, status) {
            for spec in pod::containers(&new).filter(|spec| spec["name"] == container) {
                self.run_container(key, &new, spec, cx);
            }
        }
    }
}

fn stop_sandbox(pod: &Value, cx: &mut Context<'_>) {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if let Some(host) = cx.world.hosts.get_mut(node) {
        host.stop_sandbox(pod["metadata"]["uid"].as_str().unwrap_or_default());
    }
}

fn schedule_exit(cx: &mut Context<'_>, key: &PodKey, pod: &Value, container: &Value) {
    let Course::Ends { after, .. } = course(container) else { return };
    if after > AGES {
        return;
    }
    let name = container["name"].as_str().unwrap_or_default();
    cx.reschedule(exit_key(key, pod, name), after);
}

/// The key of the end of the container's present run.
fn exit_key(key: &PodKey, pod: &Value, container: &str) -> String {
    let restarts = pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|status| status["name"] == container)
        .and_then(|status| status["restartCount"].as_i64())
        .unwrap_or(0);
    format!("{}/{container}/{restarts}", key_of("exit", key))
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
