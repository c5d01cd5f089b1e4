//! What is known of an episode while it runs: who acts, what was asked and written, what was broken.
//!
//! The gate below the operator's client, the checker inside the simulator and the episode share it. It
//! is never locked across an await or while the simulator works.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Who changes the cluster just now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Actor {
    /// Its own controllers.
    #[default]
    Cluster,
    /// An operator.
    Operator,
    /// The episode: a user or a rival.
    Episode,
}

/// A request of an operator.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number, from 1.
    pub number: u64,
    /// Which operator.
    pub operator: usize,
    /// When it began, since the start of the episode.
    pub at: Duration,
    /// The method.
    pub method: http::Method,
    /// Path and query.
    pub path: String,
    /// The status of the answer, if one came.
    pub code: Option<u16>,
}

impl Call {
    /// Whether it writes something.
    pub fn is_write(&self) -> bool {
        self.method != http::Method::GET
    }

    /// Whether it concerns an Event.
    pub fn is_event(&self) -> bool {
        self.path.starts_with("/apis/events.k8s.io/")
    }

    /// Whether it concerns a Lease.
    pub fn is_lease(&self) -> bool {
        self.path.contains("/leases")
    }
}

/// The contents of a [`Ledger`].
#[derive(Debug)]
pub struct Page {
    /// The start of the episode.
    pub start: Instant,
    /// Who acts.
    pub actor: Actor,
    /// All calls so far.
    pub calls: Vec<Call>,
    /// Promises that were broken, each once.
    pub broken: Vec<String>,
    reported: BTreeSet<String>,
    /// Writes of operators that were accepted, by object.
    pub writes: BTreeMap<String, u64>,
    /// What happened; `None` if the episode is not traced.
    pub trace: Option<Vec<String>>,
    /// When the last fault struck or deed was done.
    pub disturbed: Option<Instant>,
    /// The nodes that another client edited, and when last.
    pub edited: BTreeMap<String, Instant>,
    /// The nodes on which a change of another program is in no effect yet, and how often their container runtime was
    /// started by then.
    pub foreign: BTreeMap<String, u32>,
}

impl Page {
    /// Notes a broken promise.
    pub fn broke(&mut self, promise: &str, how: impl std::fmt::Display) {
        let text = format!("{promise}: {how}");
        if self.reported.insert(text.clone()) {
            self.note(&format!("BROKEN {text}"));
            self.broken.push(text);
        }
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, text: &str) {
        let at = self.start.elapsed();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3}  {text}", at.as_secs_f64()));
        }
    }
}

/// A shared [`Page`].
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Mutex<Page>>);

impl Ledger {
    /// An empty ledger of an episode that begins now.
    pub fn new(traced: bool) -> Self {
        Self(Arc::new(Mutex::new(Page {
            start: Instant::now(),
            actor: Actor::Cluster,
            calls: Vec::new(),
            broken: Vec::new(),
            reported: BTreeSet::new(),
            writes: BTreeMap::new(),
            trace: traced.then(Vec::new),
            disturbed: None,
            edited: BTreeMap::new(),
            foreign: BTreeMap::new(),
        })))
    }

    /// Looks into it.
    pub fn open(&self) -> MutexGuard<'_, Page> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something as an actor.
    pub fn acting<T>(&self, actor: Actor, work: impl FnOnce() -> T) -> T {
        let before = std::mem::replace(&mut self.open().actor, actor);
        let result = work();
        self.open().actor = before;
        result
    }
}
