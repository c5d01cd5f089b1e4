//! The machine-config daemons: what the privileged pod on each node does to its host.
//!
//! A daemon learns what to do from its node's annotations and reports there. What it keeps between
//! its steps is what the real one keeps in its process or on the host's disk.

mod update;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::names::{
    CURRENT_CONFIG, DESIRED_CONFIG, DESIRED_DRAIN, FIRST_PIVOT_CONFIG, REASON, STATE,
};
use super::pool::{Membership, annotation, conflict_message, membership};
use super::status::is_degraded;
use super::{Timing, backoff, event};
use crate::api::{Event, EventKind};
use crate::recorder::{self, note};
use crate::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES};
use crate::world::{NodeFault, Power};
use crate::{Context, Controller};

/// Where a daemon is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Waiting for something to do, or for the time of its next attempt.
    #[default]
    Idle,
    /// It has said that it works, and compares the configurations.
    Preparing { to: String },
    /// It has asked for a drain.
    Draining { to: String, gives_up: Timestamp },
    /// It changes the host.
    Installing { to: String },
    /// The host reboots into the configuration.
    Rebooting { to: String },
    /// It has asked to be uncordoned, the last step before it is done.
    Uncordoning { to: String, gives_up: Timestamp },
}

/// A daemon's memory.
#[derive(Debug, Default)]
struct Daemon {
    phase: Phase,
    /// Failures since it was done last.
    failures: u32,
    /// The configuration on the host's disk, where the annotation still names another.
    on_disk: Option<Arc<Value>>,
    /// What it changes from and to, read when it started.
    change: Option<Change>,
}

/// A change of the host that is under way.
#[derive(Clone, Debug)]
struct Change {
    /// The configuration on the host's disk.
    old: Arc<Value>,
    /// The wanted one.
    new: Arc<Value>,
}

impl Change {
    /// What both configurations say.
    fn specs(&self) -> (&Value, &Value) {
        (&self.old["spec"], &self.new["spec"])
    }
}

/// A failure to report.
#[derive(Debug)]
struct Failure {
    state: &'static str,
    reason: String,
    /// Whether it is also recorded where the pool's message comes from.
    recorded: bool,
}

impl Failure {
    fn degraded(reason: impl Into<String>) -> Self {
        Self { state: "Degraded", reason: reason.into(), recorded: true }
    }
}

/// All daemons.
#[derive(Debug)]
pub(super) struct DaemonController {
    timing: Timing,
    daemons: BTreeMap<String, Daemon>,
}

impl DaemonController {
    pub(super) fn new(timing: Timing) -> Self {
        Self { timing, daemons: BTreeMap::new() }
    }

    fn daemon(&mut self, node: &str) -> &mut Daemon {
        self.daemons.entry(node.to_owned()).or_default()
    }

    /// Goes to the next phase; its end is looked at after `delay`.
    fn enter(
        &mut self,
        node: &str,
        phase: Phase,
        delay: std::time::Duration,
        cx: &mut Context<'_>,
    ) {
        self.daemon(node).phase = phase;
        cx.reschedule(format!("step/{node}"), delay);
    }

    /// Reports a failure and tries again later; the node stays as it is, cordoned or not.
    fn fail(&mut self, node: &Value, failure: Failure, cx: &mut Context<'_>) {
        let name = super::pool::name(node);
        tracing::debug!(node = name, reason = failure.reason, "machine-config daemon failed");
        if let Some(host) = cx.world.hosts.get_mut(name)
            && failure.recorded
        {
            host.daemon_failure = Some(failure.reason.clone());
            cx.world.touch(name);
        }
        let Failure { state, reason, .. } = failure;
        annotate(name, &[(STATE, state), (REASON, &reason)], cx);
        let daemon = self.daemon(name);
        daemon.phase = Phase::Idle;
        daemon.failures = daemon.failures.saturating_add(1);
        let pause = backoff::daemon(daemon.failures);
        cx.cancel(&format!("step/{name}"));
        cx.reschedule(format!("sync/{name}"), pause);
    }

    /// Asks for the node to be uncordoned.
    fn finish(&mut self, node: &str, to: String, cx: &mut Context<'_>) {
        annotate(node, &[(DESIRED_DRAIN, &format!("uncordon-{to}"))], cx);
        let gives_up = cx.deadline(update::UNCORDON_LIMIT);
        let poll = self.timing.daemon_poll + update::LATENCY;
        self.enter(node, Phase::Uncordoning { to, gives_up }, poll, cx);
    }

    /// Looks at the node with nothing under way.
    fn sync(&mut self, node: &Value, cx: &mut Context<'_>) {
        let name = super::pool::name(node);
        if annotation(node, CURRENT_CONFIG).is_empty() {
            self.first_boot(node, cx);
            return;
        }
        let pools = cx.api.list(&MACHINECONFIGPOOLS);
        if let Membership::Conflict(customs) = membership(&pools, node) {
            let reason = conflict_message(name, customs);
            self.fail(node, Failure { recorded: false, ..Failure::degraded(reason) }, cx);
            return;
        }
        let on_disk = self.daemon(name).on_disk.clone();
        let (current, desired) =
            (annotation(node, CURRENT_CONFIG), annotation(node, DESIRED_CONFIG));
        if let Err(failure) = config(desired, cx).and_then(|_| config(current, cx)) {
            self.fail(node, failure, cx);
            return;
        }
        let current = on_disk.as_deref().map_or(current, super::pool::name);
        let drift = cx.world.hosts.get(name).and_then(|host| {
            host.faults.iter().find_map(|fault| match fault {
                NodeFault::Drift(reason) => Some(reason.clone()),
                _ => None,
            })
        });
        if let Some(reason) = drift {
            event::record(cx, event::DAEMON, node, true, "ConfigDriftDetected", &reason);
            self.fail(node, Failure::degraded(reason), cx);
        } else if current != desired {
            if !is_degraded(node) {
                annotate(name, &[(STATE, "Working")], cx);
            }
            let retries = self.daemon(name).failures > 0;
            let delay = if retries { std::time::Duration::ZERO } else { self.timing.daemon_step };
            self.enter(name, Phase::Preparing { to: desired.to_owned() }, delay, cx);
        } else if is_degraded(node) || annotation(node, STATE) == "Working" {
            // A daemon that works on nothing was started anew when its node was told to stay as it is.
            self.finish(name, current.to_owned(), cx);
        }
    }

    /// A daemon that starts on a node which was rebooted into a configuration, and has not said that it
    /// runs it, first looks at how the boot went.
    fn start(&mut self, name: &str, node: &Value, cx: &mut Context<'_>) {
        let Some(host) = cx.world.hosts.get_mut(name) else { return };
        if annotation(node, CURRENT_CONFIG).is_empty() {
            host.config_on_disk = None;
        } else if let Some(to) = host.config_on_disk.clone() {
            self.enter(name, Phase::Rebooting { to }, self.timing.daemon_step, cx);
        }
    }

    /// Gives a node that has just joined the configuration that it was provisioned with.
    fn first_boot(&mut self, node: &Value, cx: &mut Context<'_>) {
        let name = super::pool::name(node);
        let labels = &node["metadata"]["labels"];
        let provisioned = cx.world.hosts.get(name).and_then(|host| host.ignition_pool.clone());
        let role = match provisioned {
            Some(pool) => pool,
            None if labels.get("node-role.kubernetes.io/master").is_some()
                || labels.get("node-role.kubernetes.io/control-plane").is_some() =>
            {
                "master".to_owned()
            }
            None if labels.get("node-role.kubernetes.io/worker").is_some() => "worker".to_owned(),
            None => return,
        };
        let configuration = cx.api.get(&MACHINECONFIGPOOLS, "", &role).and_then(|pool| {
            let rolled_out = pool["status"]["updatedMachineCount"].as_u64().unwrap_or(0) > 0;
            let from = if rolled_out { &pool["spec"] } else { &pool["status"] };
            from["configuration"]["name"].as_str().map(str::to_owned)
        });
        let Some(first) = configuration else {
            cx.after(format!("sync/{name}"), self.timing.daemon_poll);
            return;
        };
        if let Ok(rendered) = config(&first, cx) {
            update::provision(name, &rendered["spec"], cx);
        }
        annotate(
            name,
            &[
                (CURRENT_CONFIG, &first),
                (DESIRED_CONFIG, &first),
                (FIRST_PIVOT_CONFIG, &first),
                (STATE, "Done"),
            ],
            cx,
        );
        self.finish(name, first, cx);
    }
}

impl Controller for DaemonController {
    fn name(&self) -> &'static str {
        "machine-config-daemon"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource != NODES {
            return;
        }
        let node = &event.name;
        let sync = format!("sync/{node}");
        match event.kind {
            EventKind::Deleted => {
                self.daemons.remove(node);
                cx.cancel(&sync);
                cx.cancel(&format!("step/{node}"));
            }
            EventKind::Added => {
                self.start(node, &event.current, cx);
                cx.after(sync, self.timing.daemon_step);
            }
            EventKind::Modified => {
                let daemon = self.daemon(node);
                if matches!(daemon.phase, Phase::Rebooting { .. }) {
                    let up = cx.world.hosts.get(node).is_some_and(|host| host.power == Power::On);
                    if up {
                        cx.after(format!("step/{node}"), self.timing.daemon_step);
                    }
                } else if daemon.phase == Phase::Idle
                    && daemon.failures == 0
                    && event.previous.as_ref().is_none_or(|previous| {
                        previous["metadata"]["annotations"]
                            != event.current["metadata"]["annotations"]
                            || previous["metadata"]["labels"] != event.current["metadata"]["labels"]
                            || previous["spec"] != event.current["spec"]
                    })
                {
                    cx.after(sync, self.timing.daemon_step);
                }
            }
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let Some((kind, name)) = key.split_once('/') else { return };
        let Some(node) = cx.api.get(&NODES, "", name) else { return };
        // Without a host, as for a foreign or a Windows node, there is no daemon.
        let Some(host) = cx.world.hosts.get(name) else { return };
        let running = host.power == Power::On;
        let phase = self.daemon(name).phase.clone();
        match (kind, phase) {
            ("sync", Phase::Idle) if running => self.sync(&node, cx),
            ("sync", Phase::Idle) => cx.after(key, self.timing.daemon_poll),
            ("sync", _) => {}
            (_, Phase::Idle) => {}
            (_, Phase::Rebooting { to }) => {
                if running && recorder::condition(&node, "Ready") == "True" {
                    self.after_boot(&node, to, cx);
                } else {
                    cx.after(key, self.timing.daemon_poll);
                }
            }
            // The host went down by itself: the daemon goes on when it is back.
            _ if !running => cx.after(key, self.timing.daemon_poll),
            (_, Phase::Preparing { to }) => self.prepare(&node, to, cx),
            (_, Phase::Draining { to, gives_up }) => self.await_drain(&node, to, gives_up, cx),
            (_, Phase::Installing { to }) => self.install(&node, to, cx),
            (_, Phase::Uncordoning { to, gives_up }) => {
                self.await_uncordon(&node, to, gives_up, cx);
            }
        }
    }
}

/// A MachineConfig that the node needs.
fn config(name: &str, cx: &Context<'_>) -> Result<Arc<Value>, Failure> {
    cx.api
        .get(&MACHINECONFIGS, "", name)
        .ok_or_else(|| Failure::degraded(crate::api::ApiError::not_found(&SINGULAR, name).message))
}

/// As the daemon's client names the resource: in the singular.
const SINGULAR: crate::Resource =
    crate::Resource::new("machineconfiguration.openshift.io", "machineconfig");

/// Sets annotations of a node.
fn annotate(node: &str, values: &[(&str, &str)], cx: &mut Context<'_>) {
    let map: serde_json::Map<String, Value> =
        values.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let writer = cx.writer();
    let patch = json!({"metadata": {"annotations": map}});
    note("annotate a node", cx.api.merge(writer, &NODES, "", node, &patch));
}
