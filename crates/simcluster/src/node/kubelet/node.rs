//! A kubelet and its Node object: it registers the host, reports what becomes of it, admits its pods again when
//! it starts, and begins them again after a boot or a pause.
//!
//! It changes no host but by the boot that is due, and no pod beyond its status: how a pod starts is in
//! [`super::start`].

use std::time::Duration;

use serde_json::{Value, json};

use super::admit::Occasion;
use super::{ACCEPT, Kubelets, RESTART, Stage, key_of, tell, write_status, writer};
use crate::node::request::{Request, request};
use crate::node::{pod, registration};
use crate::recorder::{self, note};
use crate::resource::{LEASES, NODES, PODS};
use crate::simulation::Context;
use crate::world::{Host, Power};

/// One start of a host's kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Start {
    boot_id: String,
    count: u32,
}

impl Start {
    pub(super) fn of(host: &Host) -> Self {
        Self { boot_id: host.boot_id.clone(), count: host.kubelet_restarts }
    }
}

impl Kubelets {
    /// Brings the Node object in line with the host; `due` says that a reboot is over.
    pub(super) fn sync_node(&mut self, name: &str, due: bool, cx: &mut Context<'_>) {
        let now = cx.now;
        let Some(host) = cx.world.hosts.get_mut(name) else {
            self.starts.remove(name);
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
        let start = Start::of(host);
        let known = self.starts.insert(name.to_owned(), start.clone());
        let joins = known.is_none();
        let restarted = host.is_up() && known.as_ref().is_some_and(|known| *known != start);
        booted |= restarted && known.is_some_and(|known| known.boot_id != start.boot_id);
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
                    let status = registration::status(host, spec, &node, now);
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
            if restarted || booted {
                self.readmit(name, cx);
            }
            self.resume(name, booted, cx);
        }
    }

    /// Admits the pods of a kubelet that started, the oldest first; those that do not fit the node any more fail.
    fn readmit(&mut self, name: &str, cx: &mut Context<'_>) {
        if let Some(node) = cx.api.get(&NODES, "", name) {
            tell(cx, &node, false, "Starting", "Starting kubelet.", name);
        }
        let mut bound: Vec<_> = self
            .pods
            .on(name)
            .into_iter()
            .filter_map(|key| Some((cx.api.get(&PODS, &key.0, &key.1)?, key)))
            .filter(|(pod, _)| !pod::is_finished(pod) && !pod::is_deleting(pod))
            .collect();
        bound.sort_by_key(|(pod, _)| {
            pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned()
        });
        let mut used = Request::default();
        for (pod, key) in bound {
            if !self.admit(&key, &pod, &used, Occasion::KubeletStart, cx) {
                continue;
            }
            used.add(&request(&pod));
            // The back-off of its containers was in the memory of the kubelet before.
            if let Some(run) = self.runs.get_mut(&key) {
                run.crashes.clear();
            }
            for container in pod::containers(&pod).filter_map(|spec| spec["name"].as_str()) {
                let again = format!("{}/{container}", key_of("again", &key));
                if cx.pending(&again) {
                    cx.reschedule(again, RESTART);
                }
            }
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
}

/// Keeps what others write into the status.
fn merged(old: &Value, new: Value) -> Value {
    let mut status = old.clone();
    if let (Some(status), Value::Object(new)) = (status.as_object_mut(), new) {
        status.extend(new);
    }
    status
}
