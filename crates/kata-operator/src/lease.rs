//! Which of several operators works: leader election on a Lease.
//!
//! [`Candidate`] is the rule, pure: it compares what it saw of the Lease with when it saw it, on its
//! own monotonic clock, and never with the times inside, since clocks of two machines differ.
//! A leader stops writing [`Timing::renew_deadline`] after it *sent* its last successful renewal; another takes
//! over [`Timing::duration`] after it *saw* that renewal. As long as the two monotonic clocks run at
//! rates within `duration / renew_deadline` of each other, there are never two leaders.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Client, Endpoint, WritePermit};
use crate::clock::Clock;
use crate::error::{CallError, chain};
use crate::jitter::Jitter;
use crate::metrics::Metrics;

/// How long a watch of the Lease lasts: longer than a candidate waits between two looks.
const WATCH_SECONDS: u32 = 60;
/// How soon a candidate looks again at most: a server that answers every watch at once must not be asked
/// without end.
const SOONEST_LOOK: Duration = Duration::from_millis(250);

/// The Lease's name.
pub const LEASE: &str = "kata-operator";

/// The times of the election. The defaults are OpenShift's: an API server that is away for a minute, as
/// in a roll-out of a single-node control plane, does not cost the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a Lease that nobody renews is respected.
    pub duration: Duration,
    /// How long after its last renewal a leader works on.
    pub renew_deadline: Duration,
    /// How often the Lease is looked at or renewed.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(137),
            renew_deadline: Duration::from_secs(107),
            retry: Duration::from_secs(26),
        }
    }
}

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty if nobody does.
    pub holder: String,
    /// Changes with every write.
    pub version: String,
    /// How long its holder wants it respected.
    pub duration: Duration,
    /// How often it changed hands.
    pub transitions: i32,
}

/// One operator in the election. Times are of its own monotonic clock.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    /// The Lease as last seen, and when this version was first seen.
    seen: Option<(Record, Duration)>,
    /// Until when it leads.
    leads_until: Option<Duration>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Create the Lease.
    Create,
    /// Write ourselves into the Lease, if it is still this version.
    Take {
        /// The version to replace.
        version: String,
        /// The new number of transitions.
        transitions: i32,
    },
    /// Write a new time into our Lease, if it is still this version.
    Renew {
        /// The version to replace.
        version: String,
    },
    /// Somebody else holds it.
    Wait,
}

impl Candidate {
    /// A candidate that has seen nothing. The identity must be unique to the process.
    pub fn new(identity: String, timing: Timing) -> Self {
        Self { identity, timing, seen: None, leads_until: None }
    }

    /// Takes note of the Lease as read at `now`, and says what to do.
    pub fn observe(&mut self, now: Duration, record: Option<Record>) -> Move {
        let Some(record) = record else {
            // Somebody deleted it. Its holder, if it is another, does not know yet, and works on.
            let held = self.seen.as_ref().is_some_and(|(known, since)| {
                !known.holder.is_empty()
                    && known.holder != self.identity
                    && now.saturating_sub(*since) < self.timing.duration.max(known.duration)
            });
            if held {
                return Move::Wait;
            }
            self.seen = None;
            return Move::Create;
        };
        let since = match &self.seen {
            Some((known, since)) if *known == record => *since,
            _ => now,
        };
        self.seen = Some((record.clone(), since));
        if record.holder == self.identity {
            return Move::Renew { version: record.version };
        }
        let respected = self.timing.duration.max(record.duration);
        if record.holder.is_empty() || now.saturating_sub(since) >= respected {
            return Move::Take {
                version: record.version,
                transitions: record.transitions.saturating_add(1),
            };
        }
        Move::Wait
    }

    /// A write that was sent at `sent` succeeded.
    pub fn succeeded(&mut self, sent: Duration) {
        self.leads_until = Some(sent + self.timing.renew_deadline);
    }

    /// Until when this candidate may write; `None` if it does not lead.
    pub fn leads_until(&self) -> Option<Duration> {
        self.leads_until
    }

    /// Whether this candidate may write at `now`.
    pub fn leads(&self, now: Duration) -> bool {
        self.leads_until.is_some_and(|end| now < end)
    }

    /// Gives up leading, before the Lease is released.
    pub fn resign(&mut self) {
        self.leads_until = None;
    }
}

/// The election carried out against the API server.
#[derive(Debug)]
pub struct Election<'a> {
    client: Client,
    endpoint: Endpoint,
    candidate: Candidate,
    clock: Clock,
    jitter: &'a Jitter,
    permit: watch::Sender<WritePermit>,
    metrics: Metrics,
    started: Instant,
}

impl<'a> Election<'a> {
    /// An election in which this process has no part yet. `client` must be able to write without the
    /// permit that is sent to `permit`.
    pub fn new(
        client: Client,
        namespace: &str,
        candidate: Candidate,
        clock: Clock,
        jitter: &'a Jitter,
        permit: watch::Sender<WritePermit>,
        metrics: Metrics,
    ) -> Self {
        let endpoint = Endpoint::namespaced::<Lease>(namespace);
        let started = Instant::now();
        metrics.leading(false);
        Self { client, endpoint, candidate, clock, jitter, permit, metrics, started }
    }

    /// Returns when this process leads.
    pub async fn win(&mut self) {
        let mut told = String::new();
        loop {
            match self.round().await {
                Ok(()) if self.candidate.leads(self.started.elapsed()) => {
                    tracing::info!(lease = LEASE, "this process leads");
                    self.metrics.leading(true);
                    return;
                }
                Ok(()) => {
                    let holder =
                        self.candidate.seen.as_ref().map(|(record, _)| record.holder.clone());
                    let holder = holder.unwrap_or_default();
                    if holder != told {
                        tracing::info!(lease = LEASE, holder, "another process leads; standing by");
                        told = holder;
                    }
                }
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(
                        lease = LEASE,
                        error = chain(&error),
                        hint = hint(&error),
                        "cannot take the lease; nothing is done without it"
                    );
                }
            }
            self.stand_by().await;
        }
    }

    /// Waits until it is time to look again, or the Lease changes: one that is released is taken at
    /// once. Without a watch the next look is as late as it would be with one that says nothing.
    async fn stand_by(&self) {
        let Some((record, _)) = &self.candidate.seen else { return self.pause().await };
        let selector = format!("metadata.name={LEASE}");
        let soonest = Instant::now() + SOONEST_LOOK;
        let changed = async {
            let watch =
                self.client.watch(&self.endpoint, Some(&selector), &record.version, WATCH_SECONDS);
            let first = match watch.await {
                Ok(stream) => std::pin::pin!(stream).next().await,
                Err(_) => None,
            };
            if !matches!(first, Some(Ok(_))) {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep_until(soonest).await;
        };
        tokio::select! {
            () = self.pause() => {}
            () = Box::pin(changed) => {}
        }
    }

    /// Renews the Lease, and returns when it is lost.
    pub async fn hold(&mut self) {
        loop {
            let Some(end) = self.candidate.leads_until() else { return };
            let end = self.started + end;
            let lost = tokio::time::timeout_at(end, async {
                self.pause().await;
                match self.round().await {
                    Ok(()) => {}
                    Err(error) => {
                        tracing::warn!(
                            lease = LEASE,
                            error = chain(&error),
                            "cannot renew the lease"
                        );
                    }
                }
            })
            .await
            .is_err();
            let other = self.candidate.seen.as_ref().is_some_and(|(record, _)| {
                !record.holder.is_empty() && record.holder != self.candidate.identity
            });
            if lost || other {
                self.stop_writing();
                return;
            }
        }
    }

    /// Stops writing and empties the Lease, so that another need not wait for it to run out.
    pub async fn release(&mut self) {
        self.stop_writing();
        let record = match self.read().await {
            Ok(Some(record)) if record.holder == self.candidate.identity => record,
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(lease = LEASE, error = chain(&error), "cannot release the lease");
                return;
            }
        };
        let body = json!({
            "metadata": {"resourceVersion": record.version},
            "spec": {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "renewTime": micro_time(self.clock.now()),
            },
        });
        match self.client.merge(&self.endpoint, LEASE, None, &body).await {
            Ok(_) => tracing::info!(lease = LEASE, "released the lease"),
            Err(error) => {
                tracing::warn!(lease = LEASE, error = chain(&error), "cannot release the lease");
            }
        }
    }

    fn stop_writing(&mut self) {
        self.candidate.resign();
        self.metrics.leading(false);
        self.permit.send_replace(WritePermit::None);
    }

    async fn pause(&self) {
        let wait = self.jitter.spread(self.candidate.timing.retry);
        tokio::time::sleep_until(Instant::now() + wait).await;
    }

    async fn read(&self) -> Result<Option<Record>, CallError> {
        let lease: Option<Lease> = self.client.get(&self.endpoint, LEASE).await?;
        Ok(lease.map(|lease| {
            let spec = lease.spec.unwrap_or_default();
            let seconds = spec.lease_duration_seconds.unwrap_or_default();
            Record {
                holder: spec.holder_identity.unwrap_or_default(),
                version: lease.metadata.resource_version.unwrap_or_default(),
                duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
                transitions: spec.lease_transitions.unwrap_or_default(),
            }
        }))
    }

    async fn round(&mut self) -> Result<(), CallError> {
        let record = self.read().await?;
        let sent = self.started.elapsed();
        let time = micro_time(self.clock.now());
        let timing = self.candidate.timing;
        let mut spec = json!({
            "holderIdentity": self.candidate.identity,
            "leaseDurationSeconds": timing.duration.as_secs(),
            "renewTime": time,
        });
        match self.candidate.observe(sent, record) {
            Move::Wait => return Ok(()),
            Move::Create => {
                spec["acquireTime"] = Value::String(time);
                spec["leaseTransitions"] = json!(0);
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": LEASE},
                    "spec": spec,
                });
                self.client.create(&self.endpoint, LEASE, &lease).await?;
            }
            Move::Take { version, transitions } => {
                spec["acquireTime"] = Value::String(time);
                spec["leaseTransitions"] = json!(transitions);
                let body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
                self.client.merge(&self.endpoint, LEASE, None, &body).await?;
            }
            Move::Renew { version } => {
                let body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
                self.client.merge(&self.endpoint, LEASE, None, &body).await?;
            }
        }
        self.candidate.succeeded(sent);
        if let Some(end) = self.candidate.leads_until() {
            self.permit.send_replace(WritePermit::Until(self.started + end));
        }
        Ok(())
    }
}

/// As `metav1.MicroTime` wants it.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// What to do about a Lease that cannot be taken.
fn hint(error: &CallError) -> &'static str {
    if error.is_not_found() {
        "create the namespace of the Lease, or name another one with --namespace"
    } else {
        "this passes if the API server is busy; else check the permissions on the Lease"
    }
}

#[cfg(test)]
mod tests;
