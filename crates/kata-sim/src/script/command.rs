//! The commands of a script, as data, and mistakes in them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;
use simcluster::api::fault::{Rule, When};
use simcluster::topology::{Layout, NodeOptions};
use simcluster::workload::kata_deploy::Mode;
use simcluster::world::{NodeFault, NodeGroup};

use super::claim::Claim;
use super::words::Target;

/// A line's number, from 1, and what is wrong with it.
pub(crate) type Mistake = (usize, String);

/// A line of the script.
#[derive(Debug)]
pub(crate) struct Command {
    /// Its number, from 1.
    pub(crate) line: usize,
    /// As it was written.
    pub(crate) text: String,
    /// Whether the API server has to refuse it.
    pub(crate) refused: bool,
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Verb {
    /// A remark, which is shown.
    Comment,
    Cluster(Box<Layout>),
    ApplyFile(String),
    Apply(Vec<Value>),
    Delete(Target),
    Label {
        target: Target,
        set: BTreeMap<String, Option<String>>,
    },
    Merge {
        target: Target,
        /// Whether the status is changed and nothing else, through its subresource.
        status: bool,
        patch: Value,
        manager: &'static str,
    },
    Show {
        kind: String,
        name: Option<String>,
        namespace: Option<String>,
    },
    Wait {
        claim: Claim,
        within: Duration,
    },
    Expect(Claim),
    Advance(Duration),
    Fault {
        node: String,
        fault: Option<NodeFault>,
        /// After which time it is over; without one it lasts.
        lasts: Option<Duration>,
    },
    NodeAdd(String, NodeOptions),
    GroupAdd(NodeGroup),
    NodeRemove(String),
    NodeBoot {
        name: String,
        /// Whether the machine is installed anew.
        reinstall: bool,
    },
    OsImage(String),
    /// kata-deploy is installed on all workers.
    KataDeploy(Mode),
    ApiFault(Option<Rule>),
    EtcdBackup,
    EtcdRestore,
    Crash(Option<(u64, When)>),
    /// The operator is started again, with this image of kata-monitor and a clock that is so far ahead.
    Restart {
        monitor_image: Option<String>,
        clock_offset: SignedDuration,
    },
    Invariants(bool),
}
