//! Waits until the container runtime says what it must say.
//!
//! An active unit proves nothing: containerd stays active with a dead CRI plugin.

use std::time::Duration;

use crate::containerd::live;
use crate::cri::Cri;
use crate::host::{Host, HostErrorKind, START_LIMIT};
use crate::plan::Expect;
use crate::site::Site;

/// How long the container runtime may take. containerd takes less than a second here with sandboxes
/// running; CRI-O with a thousand containers takes a minute.
const LIMIT: Duration = Duration::from_secs(120);
/// The first wait between two looks, and the longest one.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// An answer that cannot change any more is believed when it came this often in a row.
const FINAL: u32 = 3;

/// The container runtime's answer once it is as expected.
///
/// # Errors
/// What it says instead.
pub(crate) fn verify(host: &mut dyn Host, site: &Site, expect: &Expect) -> Result<Cri, String> {
    let end = host.now() + LIMIT;
    let [mut pause, longest] = PAUSES;
    let mut final_answers = 0;
    loop {
        let (reason, is_final) = match look(host, site, expect) {
            Ok(cri) => return Ok(cri),
            Err(answer) => answer,
        };
        // A runtime that restarts by itself may yet take the change in.
        final_answers = if is_final && site.unit.is_some() { final_answers + 1 } else { 0 };
        if final_answers >= FINAL || host.now() >= end {
            return Err(reason);
        }
        host.wait(pause);
        pause = (pause * 2).min(longest);
    }
}

/// Waits until systemd has started the unit of the container runtime, if it is doing that: a restart would begin it anew.
pub(crate) fn await_start(host: &mut dyn Host, site: &Site) {
    let Some(unit) = &site.unit else { return };
    let end = host.now() + START_LIMIT;
    let [_, pause] = PAUSES;
    while host.now() < end && host.unit(unit).is_ok_and(|it| it.is_some_and(|it| it.changing)) {
        host.wait(pause);
    }
}

/// What is wrong with a unit that takes longer than [`START_LIMIT`].
pub(crate) fn still_starting() -> String {
    format!("it was still starting after {} s", START_LIMIT.as_secs())
}

/// A reason together with the unit that it is about and with what systemd says of that, which is where an
/// administrator looks next.
pub(crate) fn of_unit(host: &mut dyn Host, site: &Site, reason: &str) -> String {
    let Some(unit) = &site.unit else { return reason.to_owned() };
    match host.unit_state(unit) {
        Ok(Some(state)) => format!("{unit} is {state}: {reason}"),
        Ok(None) | Err(_) => format!("{unit}: {reason}"),
    }
}

/// One look: what is wrong, and whether waiting can help.
fn look(host: &mut dyn Host, site: &Site, expect: &Expect) -> Result<Cri, (String, bool)> {
    let failed = |error: crate::host::HostError| {
        (error.to_string(), error.kind == HostErrorKind::Unimplemented)
    };
    let version = host.cri_version(&site.socket).map_err(failed)?;
    let status = host.cri_status(&site.socket).map_err(failed)?;
    if !status.runtime_ready {
        return Err((format!("it is not ready: {}", status.message), false));
    }
    let sandboxes = host.cri_sandboxes(&site.socket).map_err(failed)?;
    let cri = Cri { version, status, sandboxes };
    match unsatisfied(&cri, expect) {
        None => Ok(cri),
        Some(reason) => Err((reason, true)),
    }
}

/// Our handlers as far as the container runtime does not offer them as it should.
pub(crate) fn unsatisfied(cri: &Cri, expect: &Expect) -> Option<String> {
    let live = live(&cri.status);
    for (name, wanted) in &expect.ours {
        if !live.handlers.contains(name) {
            return Some(format!("it does not offer the handler {name}"));
        }
        if let Some(found) = live.configured.get(name) {
            let shim = [&found.runtime_path, &found.runtime_type].contains(&&wanted.runtime_path);
            if !shim || found.config_path != wanted.config_path {
                return Some(format!("it has the handler {name} with other paths"));
            }
        }
    }
    if let Some(name) = expect.gone.iter().find(|name| live.handlers.contains(*name)) {
        return Some(format!("it still offers the handler {name}"));
    }
    let lost = expect.kept.iter().find(|name| !live.handlers.contains(*name));
    lost.map(|name| format!("it does not offer the handler {name} any more"))
}
