//! A plan: everything that distinguishes one episode from another, as data. One line of JSON is one episode.
//!
//! Calls are numbered from 1 over all requests of the operators, watch events likewise; both are the
//! same in every run of the same plan.

use std::time::Duration;

use kata_api::names;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use simcluster::api::fault::{Fault, Match, Rule};

use crate::shape::Topology;
use crate::workload::Workload;

/// One episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// What is done to the cluster anyway.
    pub workload: Workload,
    /// On which cluster.
    pub topology: Topology,
    /// What the API server does wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strikes: Vec<Strike>,
    /// What users and other clients do in between.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deeds: Vec<DeedAt>,
    /// Seconds between a crash of the operator and its next start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub down: u64,
    /// Whether two operators run, under leader election.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub election: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A fault, and when it strikes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Strike {
    /// From which call on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
    /// From which watch event on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// How often.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u64,
    /// Only this verb, or `read` or `write`; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verb: String,
    /// Only this resource; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// What goes wrong.
    pub fault: Fault,
}

fn once() -> u64 {
    1
}

fn is_once(times: &u64) -> bool {
    *times == 1
}

impl Strike {
    /// Whether it says that an object is not there, which may be.
    pub fn denies(&self) -> bool {
        matches!(self.fault, Fault::Status { code: 404, .. })
    }

    /// A fault at one call.
    pub fn at_call(call: u64, fault: Fault) -> Self {
        Self {
            call: Some(call),
            event: None,
            times: 1,
            verb: String::new(),
            resource: String::new(),
            fault,
        }
    }

    /// A fault at one watch event.
    pub fn at_event(event: u64, fault: Fault) -> Self {
        Self { call: None, event: Some(event), ..Self::at_call(0, fault) }
    }

    /// The rule of the simulator.
    pub fn rule(&self) -> Rule {
        let Self { call, event, times, verb, resource, fault } = self;
        let matches = Match { verb: verb.clone(), resource: resource.clone(), ..Match::default() };
        Rule { matches, nth: 1, times: *times, call: *call, event: *event, fault: fault.clone() }
    }

    /// How late it makes the answers of several calls in a row.
    pub fn lateness(&self) -> Duration {
        match self.fault {
            Fault::Delay { millis } if self.times > 1 => Duration::from_millis(millis),
            _ => Duration::ZERO,
        }
    }

    /// Whether it strikes watch events, of which the operator then learns late.
    pub fn concerns_events(&self) -> bool {
        self.event.is_some()
    }
}

/// What a user or another client does, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeedAt {
    /// Just before this call is carried out.
    pub call: u64,
    /// What.
    pub deed: Deed,
}

/// What a user, a rival or bad luck does to a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "do", deny_unknown_fields)]
pub enum Deed {
    /// The user deletes the KataConfig.
    DeleteConfig,
    /// The user changes the KataConfig (RFC 7386).
    EditConfig {
        /// The patch.
        patch: Value,
    },
    /// The user labels a node.
    Label {
        /// The node.
        node: String,
        /// The label.
        key: String,
        /// Its value; none takes it away.
        value: Option<String>,
    },
    /// A rival changes an object (RFC 7386).
    Edit {
        /// The object.
        object: Target,
        /// The patch.
        patch: Value,
    },
    /// A rival deletes an object.
    Remove {
        /// The object.
        object: Target,
    },
    /// A user starts a sandboxed pod.
    Pod {
        /// Its name.
        name: String,
        /// Its RuntimeClass.
        #[serde(default = "usual_class", skip_serializing_if = "is_usual_class")]
        class: String,
    },
    /// A pod of the user ends.
    EndPod {
        /// Its name.
        name: String,
    },
    /// The cluster gets another operating system.
    OsImage,
    /// The operator is killed, and started again after a while.
    Kill {
        /// Seconds until it is started again.
        down: u64,
    },
    /// Another process takes the lease.
    StealLease,
    /// A second operator starts, without leader election.
    Second,
    /// A rival deletes the Jobs of a node.
    RemoveJobs {
        /// The node.
        node: String,
    },
    /// The next node agent of a node is killed in the middle of its work.
    KillAgent {
        /// The node.
        node: String,
    },
    /// Another program changes the files of a node's container runtime and restarts nothing.
    ForeignChange {
        /// The node.
        node: String,
        /// Whether the container runtime does not serve with the change.
        breaks: bool,
    },
    /// The other program restarts the container runtime, so that its change takes effect.
    ForeignRestart {
        /// The node.
        node: String,
    },
    /// The other program takes its change back and restarts the container runtime.
    ForeignEnd {
        /// The node.
        node: String,
    },
}

/// The class of pods that need no particular one.
pub fn usual_class() -> String {
    names::RUNTIME_CLASS.to_owned()
}

fn is_usual_class(class: &str) -> bool {
    class == names::RUNTIME_CLASS
}

/// An object of cluster scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural.
    pub plural: String,
    /// The name.
    pub name: String,
}

impl Plan {
    /// The plan in which nothing goes wrong.
    pub fn calm(workload: Workload, topology: Topology) -> Self {
        Self {
            workload,
            topology,
            strikes: Vec::new(),
            deeds: Vec::new(),
            down: 0,
            election: false,
        }
    }

    /// The same plan with one more fault.
    #[must_use]
    pub fn with(mut self, strike: Strike) -> Self {
        self.strikes.push(strike);
        self
    }

    /// The same plan with one more deed.
    #[must_use]
    pub fn doing(mut self, call: u64, deed: Deed) -> Self {
        self.deeds.push(DeedAt { call, deed });
        self
    }

    /// The plan as one line.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("unprintable plan: {error}"))
    }
}
