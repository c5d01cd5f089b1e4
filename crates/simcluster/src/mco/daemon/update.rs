//! The steps of an update: compare, drain, change the host, reboot, uncordon.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde_json::Value;

use super::{Change, DaemonController, Failure, Phase, annotate, config};
use crate::Context;
use crate::mco::merge::strings;
use crate::mco::names::{
    CURRENT_CONFIG, DESIRED_CONFIG, DESIRED_DRAIN, EXTENSIONS, KATA_EXTENSION, KATA_PACKAGE,
    LAST_APPLIED_DRAIN, POST_CONFIG_ACTION, REASON, STATE, is_fedora, unknown_extensions,
};
use crate::mco::pool::{annotation, name};
use crate::mco::{event, reconcile};
use crate::world::NodeFault;

/// How long a daemon waits for its drain.
const DRAIN_LIMIT: Duration = Duration::from_secs(3600);
/// How long a daemon waits for being uncordoned.
pub(super) const UNCORDON_LIMIT: Duration = Duration::from_secs(600);
/// What a daemon's look at its node takes.
pub(super) const LATENCY: Duration = Duration::from_millis(50);
/// How often a daemon that is held before its reboot looks again.
const HOLD: Duration = Duration::from_secs(1);

impl DaemonController {
    /// Reads the configurations from and to which the node goes; the first one's name.
    fn read_change(
        &mut self,
        node: &Value,
        to: &str,
        cx: &Context<'_>,
    ) -> Result<(String, Change), Failure> {
        let old = match self.daemon(name(node)).on_disk.clone() {
            Some(on_disk) => on_disk,
            None => config(annotation(node, CURRENT_CONFIG), cx)?,
        };
        let from = name(&old).to_owned();
        let new = config(to, cx)?;
        let change = Change { old, new };
        self.daemon(name(node)).change = Some(change.clone());
        Ok((from, change))
    }

    /// Decides what the change needs, and asks for a drain if it needs a reboot.
    pub(super) fn prepare(&mut self, node: &Value, to: String, cx: &mut Context<'_>) {
        let (from, change) = match self.read_change(node, &to, cx) {
            Ok(change) => change,
            Err(failure) => return self.fail(node, failure, cx),
        };
        let (old, new) = change.specs();
        let injected = fault(name(node), cx, |fault| match fault {
            NodeFault::Unreconcilable(reason) => Some(reason.clone()),
            _ => None,
        });
        let refused = injected.map_or_else(|| reconcile::check(old, new), Err);
        if let Err(why) = refused {
            let reason = format!(
                "can't reconcile config {from} with {to}: configs {from}, {to} are not \
                 reconcilable: {why}"
            );
            event::record(cx, event::DAEMON, node, true, "FailedToReconcile", &reason);
            self.fail(node, Failure { state: "Unreconcilable", ..Failure::degraded(reason) }, cx);
            return;
        }
        if !reconcile::has_changes(old, new) {
            let message = "Config changes do not require reboot.";
            event::record(cx, event::DAEMON, node, false, "SkipReboot", message);
            record_success(name(node), cx);
            self.finish(name(node), to, cx);
            return;
        }
        let request = format!("drain-{to}");
        if annotation(node, LAST_APPLIED_DRAIN) == request {
            self.enter(name(node), Phase::Installing { to }, self.timing.install, cx);
            return;
        }
        let message = "Cordoned node to apply update";
        event::record(cx, event::DAEMON, node, false, "Cordon", message);
        let message = "Draining node to update config.";
        event::record(cx, event::DAEMON, node, false, "Drain", message);
        annotate(name(node), &[(DESIRED_DRAIN, &request)], cx);
        let gives_up = cx.deadline(DRAIN_LIMIT);
        self.enter(name(node), Phase::Draining { to, gives_up }, self.timing.daemon_poll, cx);
    }

    /// Waits for the drain controller.
    pub(super) fn await_drain(
        &mut self,
        node: &Value,
        to: String,
        gives_up: Timestamp,
        cx: &mut Context<'_>,
    ) {
        if annotation(node, LAST_APPLIED_DRAIN) == format!("drain-{to}") {
            self.enter(name(node), Phase::Installing { to }, self.timing.install, cx);
        } else if cx.now >= gives_up {
            let reason = format!(
                "failed to drain node: {} after 1 hour. Please see machine-config-controller logs \
                 for more information",
                name(node)
            );
            event::record(cx, event::DAEMON, node, true, "FailedToDrain", &reason);
            self.fail(node, Failure::degraded(reason), cx);
        } else {
            let phase = Phase::Draining { to, gives_up };
            self.enter(name(node), phase, self.timing.daemon_poll, cx);
        }
    }

    /// Changes the host, and reboots it.
    pub(super) fn install(&mut self, node: &Value, to: String, cx: &mut Context<'_>) {
        let Some(change) = self.daemon(name(node)).change.clone() else { return };
        let (old, new) = change.specs();
        let injected = fault(name(node), cx, |fault| match fault {
            NodeFault::InstallFails(reason) => Some(reason.clone()),
            _ => None,
        });
        let reason = injected.or_else(|| lacking(node, new));
        if let Some(reason) = reason {
            self.fail(node, Failure::degraded(reason), cx);
            return;
        }
        record_success(name(node), cx);
        let held = fault(name(node), cx, |fault| (*fault == NodeFault::HoldReboot).then_some(()));
        if held.is_some() {
            self.enter(name(node), Phase::Installing { to }, HOLD, cx);
            return;
        }
        let changes = reconcile::describe(old, new);
        if !changes.is_empty() {
            event::record(cx, event::DAEMON, node, false, "OSUpdateStarted", &changes);
            let message = "Changes to OS staged";
            event::record(cx, event::DAEMON, node, false, "OSUpdateStaged", message);
        }
        let message = format!("Node will reboot into config {to}");
        event::record(cx, event::DAEMON, node, false, "Reboot", &message);
        if let Some(host) = cx.world.hosts.get_mut(name(node)) {
            host.stage_extensions(brought(new));
            write_files(host, old, new);
            host.config_on_disk = Some(to.clone());
        }
        cx.reboot_host(name(node), self.timing.reboot);
        annotate(name(node), &[(POST_CONFIG_ACTION, "Rebooting")], cx);
        // The kubelet's report that the node is ready ends this; the poll is for a report missed.
        self.enter(name(node), Phase::Rebooting { to }, self.timing.daemon_poll, cx);
    }

    /// Checks the host after its reboot; goes on to the next configuration if there is one.
    pub(super) fn after_boot(&mut self, node: &Value, to: String, cx: &mut Context<'_>) {
        annotate(name(node), &[(POST_CONFIG_ACTION, "")], cx);
        let broken = fault(name(node), cx, |fault| match fault {
            NodeFault::BootFails(reason) => Some(reason.clone()),
            _ => None,
        });
        if let Some(reason) = broken {
            self.fail(node, Failure::degraded(reason), cx);
            return;
        }
        let (current, desired) =
            (annotation(node, CURRENT_CONFIG), annotation(node, DESIRED_CONFIG));
        if let Err(failure) = config(desired, cx).and_then(|_| config(current, cx)) {
            self.fail(node, failure, cx);
            return;
        }
        if desired == to {
            self.finish(name(node), to, cx);
        } else {
            self.note_boot(name(node), &to, cx);
            let phase = Phase::Preparing { to: desired.to_owned() };
            self.enter(name(node), phase, self.timing.daemon_step, cx);
        }
    }

    /// Notes what the node runs, whatever its annotation still says. The daemon keeps it on the disk: the object may go.
    fn note_boot(&mut self, node: &str, to: &str, cx: &Context<'_>) {
        let changed = self.daemon(node).change.take().map(|change| change.new);
        let changed = changed.filter(|new| name(new) == to);
        self.daemon(node).on_disk = changed.or_else(|| config(to, cx).ok());
    }

    /// Waits for the drain controller, and is done.
    pub(super) fn await_uncordon(
        &mut self,
        node: &Value,
        to: String,
        gives_up: Timestamp,
        cx: &mut Context<'_>,
    ) {
        if annotation(node, LAST_APPLIED_DRAIN) == format!("uncordon-{to}") {
            let message = format!("Setting node {}, currentConfig {to} to Done", name(node));
            event::record(cx, event::DAEMON, node, false, "NodeDone", &message);
            let daemon = self.daemon(name(node));
            daemon.phase = Phase::Idle;
            daemon.failures = 0;
            daemon.on_disk = None;
            if let Some(host) = cx.world.hosts.get_mut(name(node)) {
                host.config_on_disk = None;
            }
            record_success(name(node), cx);
            annotate(name(node), &[(STATE, "Done"), (CURRENT_CONFIG, &to), (REASON, "")], cx);
            // Whatever changed in the meantime is looked at now.
            cx.after(format!("sync/{}", name(node)), self.timing.daemon_step);
        } else if cx.now >= gives_up {
            let reason = format!(
                "failed to uncordon node: {} after 10 minutes. Please see \
                 machine-config-controller logs for more information",
                name(node)
            );
            self.note_boot(name(node), &to, cx);
            self.fail(node, Failure::degraded(reason), cx);
        } else {
            let phase = Phase::Uncordoning { to, gives_up };
            self.enter(name(node), phase, self.timing.daemon_poll, cx);
        }
    }
}

/// Why the operating system cannot have the configuration's extensions.
fn lacking(node: &Value, spec: &Value) -> Option<String> {
    let wanted = strings(&spec["extensions"]);
    if is_fedora(node) {
        let is_package =
            |name: &&str| EXTENSIONS.iter().any(|(_, packages)| packages.contains(name));
        let unknown: Vec<&str> = wanted.filter(|name| !is_package(name)).collect();
        let list = unknown.join(", ");
        return (!unknown.is_empty()).then(|| format!("error: Packages not found: {list}"));
    }
    let unknown = unknown_extensions(wanted);
    let list = unknown.join(" ");
    (!unknown.is_empty()).then(|| format!("invalid extensions found: [{list}]"))
}

/// What a configuration brings onto a host besides files: its extensions, and Kata if the name of its
/// image of the operating system has `kata` in it. Kata's package counts as its extension.
fn brought(spec: &Value) -> BTreeSet<String> {
    let image = spec["osImageURL"].as_str().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let with_image = name.contains("kata").then_some(KATA_EXTENSION);
    let extensions = strings(&spec["extensions"])
        .map(|name| if name == KATA_PACKAGE { KATA_EXTENSION } else { name });
    extensions.chain(with_image).map(str::to_owned).collect()
}

/// Makes the host what its first configuration says.
pub(super) fn provision(node: &str, spec: &Value, cx: &mut Context<'_>) {
    if let Some(host) = cx.world.hosts.get_mut(node) {
        write_files(host, &Value::Null, spec);
        let extensions = brought(spec);
        if host.extensions != extensions {
            // The first boot ends with the configuration in place.
            host.stage_extensions(extensions);
            host.boot(cx.now);
        }
    }
}

/// Forgets the failure that the pool's message reports; the node's state stays until it is done.
fn record_success(node: &str, cx: &mut Context<'_>) {
    if let Some(host) = cx.world.hosts.get_mut(node)
        && host.daemon_failure.take().is_some()
    {
        cx.world.touch(node);
    }
}

/// The first of the host's faults for which `pick` has an answer.
fn fault<T>(node: &str, cx: &Context<'_>, pick: impl Fn(&NodeFault) -> Option<T>) -> Option<T> {
    cx.world.hosts.get(node)?.faults.iter().find_map(pick)
}

/// Replaces the files of `old` by those of `new`.
fn write_files(host: &mut crate::world::Host, old: &Value, new: &Value) {
    for file in files(old) {
        host.files.remove(file["path"].as_str().unwrap_or_default());
    }
    for file in files(new) {
        let (Some(path), source) = (file["path"].as_str(), &file["contents"]["source"]) else {
            continue;
        };
        let content = decode_data_url(source.as_str().unwrap_or_default());
        host.files.insert(path.to_owned(), content);
    }
}

fn files(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["config"]["storage"]["files"].as_array().into_iter().flatten()
}

/// The content of a `data:` URL; empty for anything else.
fn decode_data_url(url: &str) -> String {
    let Some((kind, data)) = url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) else {
        return String::new();
    };
    if kind.ends_with(";base64") {
        let bytes = BASE64.decode(data).unwrap_or_default();
        return String::from_utf8_lossy(&bytes).into_owned();
    }
    let mut bytes = Vec::with_capacity(data.len());
    let mut rest = data.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%')
            .then(|| std::str::from_utf8(tail.get(..2)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{brought, decode_data_url};

    #[test]
    fn kata_comes_as_an_extension_or_with_an_image_that_is_named_after_it() {
        for (spec, expected) in [
            (
                json!({"extensions": ["usbguard"], "osImageURL": "registry.example/kata/rhcos:1"}),
                "usbguard",
            ),
            (json!({"extensions": ["sandboxed-containers"]}), "sandboxed-containers"),
            (json!({"osImageURL": "registry.example/rhcos-kata@sha256:1"}), "sandboxed-containers"),
        ] {
            assert_eq!(brought(&spec).into_iter().collect::<Vec<_>>(), [expected], "{spec}");
        }
    }

    #[test]
    fn data_urls_are_decoded() {
        for (url, expected) in [
            ("data:,a%20b%0A", "a b\n"),
            ("data:text/plain;charset=utf-8;base64,W2NyaW9dCg==", "[crio]\n"),
            ("data:,100%", "100%"),
            ("data:,%zz", "%zz"),
            ("http://example.com/a,b", ""),
        ] {
            assert_eq!(decode_data_url(url), expected, "{url}");
        }
    }
}
