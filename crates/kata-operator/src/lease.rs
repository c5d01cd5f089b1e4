//! Leader election on a Lease: of several replicas, only the leader works.
//!
//! [`Candidate`] is the pure rule. It uses the time, on its own monotonic clock, at which it first saw each
//! version of the Lease. It never uses the times in the Lease, since the clocks of two machines differ. A
//! leader stops writing [`Timing::renew_deadline`] after it *sent* its last successful renewal; another
//! process takes over [`Timing::duration`] after it *saw* that renewal. As long as the two monotonic clocks
//! run at rates within `duration / renew_deadline` of each other, there are never two leaders. A deleted Lease has two
//! exceptions: a candidate that starts after the deletion cannot know of the holder and leads at once, and one that does
//! not see the Lease come back and go again waits only from when it went first.
//!
//! A process that is known to have ended is not respected for that long ([`holder`]): a candidate takes the Lease over
//! [`FENCE`] after it learned of the end.

pub mod holder;

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kata_api::names::LEASE;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Client, Endpoint, WritePermit};
use crate::error::{CallError, chain};
use crate::jitter::Jitter;
use crate::metrics::Metrics;
use holder::PodProcess;

/// How long a watch of the Lease or of a Pod lasts.
const WATCH_SECONDS: u32 = 60;
/// The shortest time between two reads of the Lease, even if the API server answers every watch at once.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(250);

/// What follows if the Lease cannot be released, for the log.
pub(crate) const RELEASE_FIX: &str = "no action: another process leads once the Lease expires";

/// How long a candidate waits after it learned that the holder has ended. The API server decides within this time the
/// requests that the holder sent before: their connections are closed, so none is queued for longer.
pub const FENCE: Duration = Duration::from_secs(2);

/// The times of the election. By default another candidate leads within a minute after the leader's node is lost, and
/// the leader has time for two renewals before it must stop. If the API server is away for longer than `renew_deadline`,
/// the leader loses the Lease, and a candidate leads again when the API server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a Lease that is not renewed is respected.
    pub duration: Duration,
    /// How long a leader works after its last renewal.
    pub renew_deadline: Duration,
    /// How often the leader renews the Lease, and how soon a candidate tries again what has failed.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(55),
            renew_deadline: Duration::from_secs(42),
            retry: Duration::from_secs(20),
        }
    }
}

/// The content of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The identity of the holder; empty if there is none.
    pub holder: String,
    /// The resourceVersion, which changes with every write.
    pub version: String,
    /// The lease duration that the holder has set.
    pub duration: Duration,
    /// How often the holder has changed.
    pub transitions: i32,
}

impl From<Lease> for Record {
    fn from(lease: Lease) -> Self {
        let spec = lease.spec.unwrap_or_default();
        let seconds = spec.lease_duration_seconds.unwrap_or_default();
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            version: lease.metadata.resource_version.unwrap_or_default(),
            duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }
}

/// One operator in the election. Times are of its own monotonic clock.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    /// The Lease as last seen, and when this version was first seen.
    seen: Option<(Record, Duration)>,
    /// Since when the Lease is known to be deleted.
    gone: Option<Duration>,
    /// When this candidate learned that the holder has ended.
    ended: Option<Duration>,
    /// Until when it leads.
    leads_until: Option<Duration>,
}

/// The next action on the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Create the Lease.
    Create,
    /// Make this candidate the holder, if the Lease still has this version.
    Take {
        /// The version to replace.
        version: String,
        /// The new number of transitions.
        transitions: i32,
    },
    /// Write a new time into this candidate's own Lease, if it still has this version.
    Renew {
        /// The version to replace.
        version: String,
    },
    /// Wait: another candidate holds the Lease.
    Wait,
}

impl Candidate {
    /// A candidate that has seen nothing. The identity must be unique to the process.
    pub fn new(identity: String, timing: Timing) -> Self {
        Self { identity, timing, seen: None, gone: None, ended: None, leads_until: None }
    }

    /// Records the Lease as read at `now`, and returns the next action. `holder_has_ended` is whether the process
    /// that holds it is known to have ended.
    pub fn observe(
        &mut self,
        now: Duration,
        record: Option<Record>,
        holder_has_ended: bool,
    ) -> LeaseAction {
        let Some(record) = record else {
            // The Lease was deleted. Unless this candidate leads, another one may have renewed it until it was deleted,
            // and does not know yet.
            let gone = *self.gone.get_or_insert(now);
            let may_be_held = self.seen.as_ref().is_some_and(|(known, _)| {
                now.saturating_sub(gone) < self.timing.duration.max(known.duration)
            });
            if may_be_held && !self.leads(now) {
                return LeaseAction::Wait;
            }
            self.seen = None;
            self.gone = None;
            self.ended = None;
            return LeaseAction::Create;
        };
        self.gone = None;
        let since = match &self.seen {
            Some((known, since)) if *known == record => *since,
            _ => {
                self.ended = None;
                now
            }
        };
        self.ended = if holder_has_ended { self.ended.or(Some(now)) } else { None };
        self.seen = Some((record.clone(), since));
        if record.holder == self.identity {
            return LeaseAction::Renew { version: record.version };
        }
        let respected = self.timing.duration.max(record.duration);
        let is_fenced = self.ended.is_some_and(|ended| now.saturating_sub(ended) >= FENCE);
        let is_expired = now.saturating_sub(since) >= respected;
        if record.holder.is_empty() || is_fenced || is_expired {
            return LeaseAction::Take {
                version: record.version,
                transitions: record.transitions.saturating_add(1),
            };
        }
        LeaseAction::Wait
    }

    /// Records that the write sent at `sent` succeeded.
    pub fn record_renewal(&mut self, sent: Duration) {
        self.leads_until = Some(sent + self.timing.renew_deadline);
    }

    /// Records the Lease that a renewal at `now` returned, so that the next one need not read it.
    pub fn record_answer(&mut self, now: Duration, record: Record) {
        self.seen = Some((record, now));
    }

    /// The version of the Lease as last seen, if this candidate holds it.
    pub fn own_version(&self) -> Option<&str> {
        let (record, _) = self.seen.as_ref()?;
        (record.holder == self.identity).then_some(record.version.as_str())
    }

    /// When the Lease expires if it is not renewed; `None` if no other candidate holds it.
    pub fn expiry(&self) -> Option<Duration> {
        let (record, since) = self.seen.as_ref()?;
        let is_held = !record.holder.is_empty() && record.holder != self.identity;
        is_held.then(|| *since + self.timing.duration.max(record.duration))
    }

    /// Until when this candidate may write; `None` if it does not lead.
    pub fn leads_until(&self) -> Option<Duration> {
        self.leads_until
    }

    /// Whether this candidate may write at `now`.
    pub fn leads(&self, now: Duration) -> bool {
        self.leads_until.is_some_and(|end| now < end)
    }

    /// Ends the leadership, before the Lease is released.
    pub fn resign(&mut self) {
        self.leads_until = None;
    }
}

/// Runs the election against the API server.
#[derive(Debug)]
pub struct LeaderElector<'a> {
    client: Client,
    endpoint: Endpoint,
    candidate: Candidate,
    jitter: &'a Jitter,
    permit: watch::Sender<WritePermit>,
    metrics: Metrics,
    started: Instant,
    pods: Endpoint,
    /// The holder's Pod as last listed.
    holder_pod: Option<HolderPod>,
}

/// The Pod of a process, as last listed.
#[derive(Clone, Debug)]
struct HolderPod {
    /// The identity of the process.
    holder: String,
    name: String,
    version: String,
}

impl<'a> LeaderElector<'a> {
    /// An elector that does not lead yet. `client` must be able to write without the permit that is sent to
    /// `permit`.
    pub fn new(
        client: Client,
        namespace: &str,
        candidate: Candidate,
        jitter: &'a Jitter,
        permit: watch::Sender<WritePermit>,
        metrics: Metrics,
    ) -> Self {
        let endpoint = Endpoint::namespaced::<Lease>(namespace);
        let pods = Endpoint::namespaced::<Pod>(namespace);
        let started = Instant::now();
        metrics.set_leading(false);
        Self {
            client,
            endpoint,
            candidate,
            jitter,
            permit,
            metrics,
            started,
            pods,
            holder_pod: None,
        }
    }

    /// Returns when this process is the leader.
    pub async fn acquire_lease(&mut self) {
        let mut logged = String::new();
        let mut shown = None;
        loop {
            self.metrics.record_heartbeat();
            match self.acquire_or_renew(shown).await {
                Ok(true) if self.candidate.leads(self.started.elapsed()) => {
                    tracing::info!(lease = LEASE, "this process is the leader");
                    self.metrics.set_leading(true);
                    return;
                }
                Ok(_) => {
                    let holder =
                        self.candidate.seen.as_ref().map(|(record, _)| record.holder.clone());
                    let holder = holder.unwrap_or_default();
                    if holder != logged {
                        tracing::info!(
                            lease = LEASE,
                            holder,
                            "another process is the leader; standing by"
                        );
                        logged = holder;
                    }
                }
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(
                        lease = LEASE,
                        error = chain(&error),
                        hint = hint(&error),
                        "cannot acquire the Lease; this process does nothing without it"
                    );
                }
            }
            shown = self.wait_for_change().await;
        }
    }

    /// Waits until the Lease expires, or it or the Pod of its holder changes, so that a released Lease is taken at once;
    /// for the retry period if the Lease cannot be watched; for [`FENCE`] if the holder has ended. Returns the Lease if
    /// the watch showed it.
    async fn wait_for_change(&self) -> Option<Record> {
        if self.candidate.ended.is_some() {
            tokio::time::sleep_until(Instant::now() + FENCE).await;
            return None;
        }
        tokio::select! {
            shown = Box::pin(self.watch_lease()) => shown,
            () = Box::pin(self.watch_holder()) => None,
        }
    }

    /// Returns when the Pod of the holder changes, or must be read; never if the holder is in no Pod.
    async fn watch_holder(&self) {
        let holder = self.candidate.seen.as_ref().map(|(record, _)| &*record.holder);
        if holder.and_then(PodProcess::parse).is_none() {
            std::future::pending::<()>().await;
        }
        // That the version has expired is an event, too.
        if let Some(pod) = &self.holder_pod
            && self.first_event(&self.pods, &pod.name, &pod.version).await.is_some()
        {
            return;
        }
        self.wait_retry_period().await;
    }

    /// Returns the Lease that a watch shows, or `None` when it must be read.
    async fn watch_lease(&self) -> Option<Record> {
        let seen = self.candidate.seen.as_ref();
        let expiry = self.candidate.expiry().filter(|expiry| *expiry > self.started.elapsed());
        if let Some(((record, _), expiry)) = seen.zip(expiry) {
            let event = Box::pin(self.first_event(&self.endpoint, LEASE, &record.version));
            match tokio::time::timeout_at(self.started + expiry, event).await {
                Ok(event) => {
                    if let Some(shown) = event.as_deref().and_then(record_of) {
                        return Some(shown);
                    }
                }
                Err(_) => return None,
            }
        }
        self.wait_retry_period().await;
        None
    }

    /// Returns the first event that a watch shows of an object after this version, at the earliest after
    /// [`MIN_READ_INTERVAL`]; `None` if it shows none.
    async fn first_event(&self, endpoint: &Endpoint, name: &str, version: &str) -> Option<Bytes> {
        let earliest = Instant::now() + MIN_READ_INTERVAL;
        let selector = format!("metadata.name={name}");
        let stream =
            self.client.watch(endpoint, Some(&selector), version, WATCH_SECONDS).await.ok()?;
        let event = std::pin::pin!(stream).next().await?.ok()?;
        tokio::time::sleep_until(earliest).await;
        Some(event)
    }

    /// Whether the process with this identity is known to have ended. Remembers its Pod, to watch it.
    async fn has_ended(&mut self, identity: &str) -> bool {
        self.holder_pod = None;
        let Some(holder) = PodProcess::parse(identity) else { return false };
        let own = PodProcess::parse(&self.candidate.identity);
        if own.is_some_and(|own| holder.is_succeeded_by(&own)) {
            return true;
        }
        let selector = format!("metadata.name={}", holder.pod);
        let mut has_ended = false;
        let listed = self.client.list(&self.pods, Some(&selector), |pod| {
            let pod = serde_json::from_str::<Pod>(pod);
            has_ended = pod.is_ok_and(|pod| holder.has_ended(&pod));
        });
        match listed.await {
            Ok(version) => {
                let (holder, name) = (identity.to_owned(), holder.pod);
                self.holder_pod = Some(HolderPod { holder, name, version });
                has_ended
            }
            Err(error) => {
                tracing::debug!(
                    pod = holder.pod,
                    error = chain(&error),
                    "cannot read the holder's pod"
                );
                false
            }
        }
    }

    /// Renews the Lease. Returns when the Lease is lost: another process holds it, or the renew deadline has
    /// passed. A renewal that failed is retried, since it does not show another holder.
    pub async fn renew_until_lost(&mut self) {
        loop {
            let Some(end) = self.candidate.leads_until() else { return };
            let end = self.started + end;
            let held = tokio::time::timeout_at(end, async {
                self.wait_retry_period().await;
                self.renew().await.unwrap_or_else(|error| {
                    tracing::warn!(
                        lease = LEASE,
                        error = chain(&error),
                        hint = hint(&error),
                        "cannot renew the Lease; this process tries again, and stops writing at its renew deadline"
                    );
                    true
                })
            });
            if !held.await.unwrap_or(false) {
                self.stop_writing();
                return;
            }
        }
    }

    /// Stops writing and removes the holder from the Lease, so that another process need not wait until it
    /// expires.
    pub async fn release_lease(&mut self) {
        self.stop_writing();
        let record = match self.read_lease().await {
            Ok(Some(record)) if record.holder == self.candidate.identity => record,
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(
                    lease = LEASE,
                    error = chain(&error),
                    fix = RELEASE_FIX,
                    "cannot release the Lease"
                );
                return;
            }
        };
        let body = json!({
            "metadata": {"resourceVersion": record.version},
            "spec": {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "renewTime": micro_time(self.client.clock().now()),
            },
        });
        match self.client.merge(&self.endpoint, LEASE, None, &body).await {
            Ok(_) => tracing::info!(lease = LEASE, "released the Lease"),
            Err(error) => {
                tracing::warn!(
                    lease = LEASE,
                    error = chain(&error),
                    fix = RELEASE_FIX,
                    "cannot release the Lease"
                );
            }
        }
    }

    fn stop_writing(&mut self) {
        self.candidate.resign();
        self.metrics.set_leading(false);
        self.permit.send_replace(WritePermit::None);
    }

    async fn wait_retry_period(&self) {
        let wait = self.jitter.spread(self.candidate.timing.retry);
        tokio::time::sleep_until(Instant::now() + wait).await;
    }

    async fn read_lease(&self) -> Result<Option<Record>, CallError> {
        let lease: Option<Lease> = self.client.get(&self.endpoint, LEASE).await?;
        Ok(lease.map(Record::from))
    }

    /// Renews the Lease without reading it, as long as no other client has written it. Returns whether this process
    /// holds it.
    async fn renew(&mut self) -> Result<bool, CallError> {
        let Some(version) = self.candidate.own_version().map(str::to_owned) else {
            return self.acquire_or_renew(None).await;
        };
        let (sent, spec) = (self.started.elapsed(), self.renewed_spec());
        match self.write_lease(&version, &spec).await {
            Ok(answer) => {
                self.record_renewal(sent, &answer);
                Ok(true)
            }
            Err(error) if error.is_conflict() || error.is_not_found() => {
                self.acquire_or_renew(None).await
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the Lease if it still has this version; returns the answer.
    async fn write_lease(&self, version: &str, spec: &Value) -> Result<Bytes, CallError> {
        let body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        self.client.merge(&self.endpoint, LEASE, None, &body).await
    }

    fn renewed_spec(&self) -> Value {
        json!({
            "holderIdentity": self.candidate.identity,
            "leaseDurationSeconds": self.candidate.timing.duration.as_secs(),
            "renewTime": micro_time(self.client.clock().now()),
        })
    }

    /// Records that a write of the Lease sent at `sent` succeeded, and what it returned.
    fn record_renewal(&mut self, sent: Duration, answer: &[u8]) {
        self.candidate.record_renewal(sent);
        // If the answer cannot be parsed, the Lease is read before the next renewal.
        if let Ok(lease) = serde_json::from_slice::<Lease>(answer) {
            self.candidate.record_answer(sent, lease.into());
        }
        if let Some(end) = self.candidate.leads_until() {
            self.permit.send_replace(WritePermit::Until(self.started + end));
        }
    }

    /// Reads the Lease unless a watch has shown it, and acquires or renews it if the rule permits. Returns whether this
    /// process holds it.
    async fn acquire_or_renew(&mut self, shown: Option<Record>) -> Result<bool, CallError> {
        let is_shown = shown.is_some();
        let record = match shown {
            Some(record) => Some(record),
            None => self.read_lease().await?,
        };
        let holder = record.as_ref().map(|record| record.holder.clone()).unwrap_or_default();
        let is_own = holder == self.candidate.identity;
        // The watch of the holder's Pod goes on from where it was, so it still shows what happened meanwhile.
        let is_watched =
            is_shown && self.holder_pod.as_ref().is_some_and(|pod| pod.holder == holder);
        let has_ended = !is_own && !is_watched && self.has_ended(&holder).await;
        let (sent, mut spec) = (self.started.elapsed(), self.renewed_spec());
        let answer = match self.candidate.observe(sent, record, has_ended) {
            LeaseAction::Wait => return Ok(false),
            LeaseAction::Create => {
                spec["acquireTime"] = spec["renewTime"].clone();
                spec["leaseTransitions"] = json!(0);
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": LEASE},
                    "spec": spec,
                });
                self.client.create(&self.endpoint, LEASE, &lease).await?;
                // The Lease is read before the next renewal.
                Bytes::new()
            }
            LeaseAction::Take { version, transitions } => {
                spec["acquireTime"] = spec["renewTime"].clone();
                spec["leaseTransitions"] = json!(transitions);
                self.write_lease(&version, &spec).await?
            }
            LeaseAction::Renew { version } => self.write_lease(&version, &spec).await?,
        };
        self.record_renewal(sent, &answer);
        Ok(true)
    }
}

/// The Lease of an event of a watch; `None` if it was deleted, or the event cannot be parsed.
fn record_of(event: &[u8]) -> Option<Record> {
    let first = event.split(|byte| *byte == b'\n').next()?;
    match serde_json::from_slice(first).ok()? {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => Some(Lease::into(lease)),
        _ => None,
    }
}

/// In the format of `metav1.MicroTime`.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The fix for a Lease that cannot be acquired or renewed.
fn hint(error: &CallError) -> &'static str {
    if error.is_not_found() {
        "create the namespace of the Lease, or name another one with --namespace"
    } else if error.is_transient() {
        "the API server does not answer or is busy: this is tried again, and needs no action unless it lasts"
    } else {
        "if the error says Forbidden, apply the Role of this version for Leases; if Unauthorized, check the ServiceAccount's token"
    }
}

#[cfg(test)]
mod tests;
