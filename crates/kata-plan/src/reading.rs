//! The reads that every decision about a node needs, and times as the API stores them.

use jiff::Timestamp;
use kata_api::{Code, KataConfig, names};

use crate::configs::config_ref;
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::report::Finding;
use crate::snapshot::{Snapshot, UnreadableObject};

/// What to do about an object that cannot be parsed.
pub(crate) const FIX_FIELD: &str = "Fix the field of the object that the message names.";

/// The cluster cannot be assessed, because reads failed.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) findings: Vec<Finding>,
}

/// Whether a KataConfig that cannot be parsed may be the active one instead of this one: it may be older, and
/// this one has never been active. The operator sets its finalizer on the active one only.
fn may_be_active(found: &UnreadableObject, config: &KataConfig) -> bool {
    let was_active =
        config.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == names::FINALIZER);
    let created = config.metadata.creation_timestamp.as_ref().map(|time| time.0);
    !was_active && found.created.is_none_or(|older| created.is_none_or(|created| older <= created))
}

/// Whether the KataConfig offers or offered a RuntimeClass of this name.
fn offers(config: &KataConfig, name: &str) -> bool {
    config.spec.effective_runtimes().iter().any(|runtime| runtime.name == name)
        || config.status.iter().flat_map(|status| &status.runtime_classes).any(|it| it == name)
}

/// A time as the API stores it, without fractions of a second.
pub(crate) fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Collects the failed reads that every decision about a node needs.
#[derive(Debug)]
pub(crate) struct Reading {
    subject: ObjectRef,
    findings: Vec<Finding>,
}

impl Reading {
    /// Starts without a failure, unless an object that cannot be parsed may decide about every node: an older
    /// KataConfig, a pool that changes nodes with Kata, or an object with a name of the operator's.
    pub(crate) fn new(snapshot: &Snapshot, config: &KataConfig) -> Self {
        let mut reading = Self { subject: config_ref(config), findings: Vec::new() };
        for found in &snapshot.unreadable {
            let name = found.object.name.as_str();
            let (is_needed, why) = match found.object.kind {
                Kind::KataConfig => (may_be_active(found, config), ", which may be the older one"),
                Kind::MachineConfigPool => {
                    (matches!(name, names::POOL | names::WORKER_POOL | names::MASTER_POOL), "")
                }
                Kind::ContainerRuntimeConfig => (name == names::CONTAINER_RUNTIME_CONFIG, ""),
                Kind::RuntimeClass => (offers(config, name), ""),
                _ => (false, ""),
            };
            if is_needed {
                reading.fail(&format!("{}{why}", found.object), &found.error);
                if let Some(finding) = reading.findings.last_mut() {
                    finding.fix = FIX_FIELD.to_owned();
                }
            }
        }
        reading
    }

    /// Records a failure if the read failed.
    pub(crate) fn require<T>(&mut self, observed: &Observed<T>) {
        if let Observed::Unknown { what, error } = observed {
            self.fail(what, error);
        }
    }

    fn fail(&mut self, what: &str, error: &str) {
        self.findings.push(Finding::new(
            Code::ReadFailed,
            self.subject.clone(),
            format!("cannot read {what}: {error}; nothing is changed meanwhile"),
        ));
    }

    /// Returns the failures as an error, if there are any.
    pub(crate) fn finish(mut self) -> Result<(), Unreadable> {
        if self.findings.is_empty() {
            return Ok(());
        }
        self.findings.sort_by(|a, b| a.message.cmp(&b.message));
        Err(Unreadable { findings: self.findings })
    }
}
