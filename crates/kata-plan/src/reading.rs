//! The reads that every decision about a node needs, and times as the API stores them.

use jiff::Timestamp;
use kata_api::{Code, KataConfig};

use crate::configs::config_ref;
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::report::Finding;
use crate::snapshot::Snapshot;

/// The cluster cannot be assessed, because reads failed.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) findings: Vec<Finding>,
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
    /// Starts without a failure, unless a KataConfig that cannot be parsed may be the active one.
    pub(crate) fn new(snapshot: &Snapshot, config: &KataConfig) -> Self {
        let mut reading = Self { subject: config_ref(config), findings: Vec::new() };
        let created = config.metadata.creation_timestamp.as_ref().map(|time| time.0);
        for found in snapshot.unreadable(Kind::KataConfig) {
            if found.created.is_none_or(|older| created.is_none_or(|created| older <= created)) {
                reading
                    .fail(&format!("{}, which may be the older one", found.object), &found.error);
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
