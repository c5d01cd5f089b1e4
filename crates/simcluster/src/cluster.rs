//! A simulation that runs: behind a lock, on a clock, with a task that does what becomes due.
//!
//! On tokio's paused clock and a current-thread runtime a run is deterministic. The lock is never held
//! across an await.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use crate::api::fault::Failure;
use crate::api::frontend::ExecRequest;
use crate::api::handle::{self, Response};
use crate::api::request::Request;
use crate::api::watch::Watcher;
use crate::clock::Clock;
use crate::service::ClusterService;
use crate::{Simulation, http as face};

/// The error of a body or a request whose connection broke.
#[derive(Debug, thiserror::Error)]
#[error("the connection was closed by the simulated API server (a fault rule says so)")]
pub struct ConnectionBroken;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, ConnectionBroken>;

/// What a face gives its client.
#[derive(Debug)]
pub enum Answer {
    /// A response; the body of a watch goes on.
    Http(http::Response<Body>),
    /// The streams of a command.
    Exec(ExecRequest),
}

/// A running simulated cluster; clones are handles of the same one.
///
/// It ends when [`Cluster::shut_down`] is called or the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Cluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    running: Mutex<Running>,
    clock: Clock,
    /// The store's revision.
    revision: AtomicU64,
    /// Told when the revision changed. Who waits is woken in the order of waiting, which receivers of a
    /// [`watch`] are not: the same calls must come in the same order in every run.
    changed: Arc<Notify>,
    /// Told when the driver's deadline has changed.
    wake: Arc<Notify>,
    stop: watch::Sender<bool>,
}

#[derive(Debug)]
struct Running {
    simulation: Simulation,
    /// What the driver waits for.
    deadline: Option<Timestamp>,
}

impl Inner {
    /// Works on an up-to-date simulation.
    fn with<T>(&self, work: impl FnOnce(&mut Simulation, Timestamp) -> T) -> T {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let (result, next) = self.step(&mut running.simulation, work);
        let changed = running.deadline != next;
        drop(running);
        if changed {
            self.wake.notify_one();
        }
        result
    }

    /// Does what is due; returns when there is something to do next.
    fn drive(&self) -> Option<Timestamp> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let ((), next) = self.step(&mut running.simulation, |_, _| ());
        running.deadline = next;
        next
    }

    /// Looks at the simulation as the last request or the driver left it.
    fn look<T>(&self, work: impl FnOnce(&mut Simulation, Timestamp) -> T) -> T {
        let now = self.clock.now();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut running.simulation, now)
    }

    fn step<T>(
        &self,
        simulation: &mut Simulation,
        work: impl FnOnce(&mut Simulation, Timestamp) -> T,
    ) -> (T, Option<Timestamp>) {
        let now = self.clock.now();
        simulation.run_due(now);
        simulation.arrive(now);
        let result = work(simulation, now);
        let next = simulation.run_due(now);
        let revision = simulation.api.store.revision();
        if self.revision.swap(revision, Ordering::Relaxed) != revision {
            self.changed.notify_waiters();
        }
        (result, next)
    }
}

impl Cluster {
    /// Starts a simulation on the current tokio runtime.
    pub fn start(simulation: Simulation, clock: Clock) -> Self {
        let inner = Arc::new(Inner {
            revision: AtomicU64::new(simulation.api.store.revision()),
            changed: Arc::new(Notify::new()),
            running: Mutex::new(Running { simulation, deadline: None }),
            clock,
            wake: Arc::new(Notify::new()),
            stop: watch::Sender::new(false),
        });
        let drive = drive(Arc::downgrade(&inner), Arc::clone(&inner.wake), inner.stop.subscribe());
        tokio::spawn(drive);
        Self { inner }
    }

    /// Works on the simulation at the current time; everything that is due was done before.
    pub fn with<T>(&self, work: impl FnOnce(&mut Simulation, Timestamp) -> T) -> T {
        self.inner.with(work)
    }

    /// The current time of the cluster.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Counts crashes that fault rules asked for; changes when a client has to be ended.
    pub fn crashes(&self) -> watch::Receiver<u64> {
        self.with(|simulation, _| simulation.frontend.faults.crashes())
    }

    /// A service for `kube::Client::new(service, "default")`.
    pub fn client_service(&self) -> ClusterService {
        ClusterService::new(self.clone())
    }

    /// Serves HTTP on 127.0.0.1; port 0 chooses a free one.
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub async fn serve(&self, port: u16) -> std::io::Result<SocketAddr> {
        face::serve(self.clone(), port).await
    }

    /// Ends the cluster: the driver stops, watches end, servers stop accepting.
    pub fn shut_down(&self) {
        self.inner.stop.send_replace(true);
    }

    /// Resolves when the cluster is shut down.
    pub async fn stopped(&self) {
        let mut stop = self.inner.stop.subscribe();
        // An error means that the sender is gone, which ends the cluster as well.
        drop(stop.wait_for(|stopped| *stopped).await);
    }

    /// Answers a request, with the faults that rules ask for.
    ///
    /// # Errors
    /// When a rule breaks the connection.
    pub async fn respond(&self, request: Request) -> Result<Answer, ConnectionBroken> {
        let mut answer = self.respond_undated(request).await?;
        // As of every API server, the time of whose clock is on the objects that it writes.
        let date = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&self.now());
        if let (Answer::Http(response), Ok(date)) = (&mut answer, date) {
            let date = http::HeaderValue::try_from(date);
            response.headers_mut().extend(date.ok().map(|date| (http::header::DATE, date)));
        }
        Ok(answer)
    }

    async fn respond_undated(&self, request: Request) -> Result<Answer, ConnectionBroken> {
        let (plan, response) = self.with(|simulation, now| {
            let plan = handle::intercept(simulation, &request);
            let at_once = plan.delay.is_zero() && plan.before.is_none();
            let response = at_once.then(|| handle::handle(simulation, now, &request));
            (plan, response)
        });
        if !plan.delay.is_zero() {
            sleep_until(Instant::now() + plan.delay).await;
        }
        if let Some(failure) = plan.before {
            return self.fail(failure).await;
        }
        let response = response.unwrap_or_else(|| {
            self.with(|simulation, now| handle::handle(simulation, now, &request))
        });
        if !plan.answer_delay.is_zero() {
            sleep_until(Instant::now() + plan.answer_delay).await;
        }
        if let Some(failure) = plan.after {
            return self.fail(failure).await;
        }
        Ok(match response {
            Response::Full(response) => Answer::Http(response.map(full)),
            Response::Exec(request) => Answer::Exec(request),
            Response::Watch(watcher) => {
                let body = StreamBody::new(self.watch_frames(watcher)).boxed_unsync();
                let mut response = http::Response::new(body);
                response.headers_mut().insert(
                    http::header::CONTENT_TYPE,
                    http::HeaderValue::from_static("application/json"),
                );
                Answer::Http(response)
            }
        })
    }

    async fn fail(&self, failure: Failure) -> Result<Answer, ConnectionBroken> {
        match failure {
            Failure::Status(error) => Ok(Answer::Http(handle::failure(&error).map(full))),
            Failure::Garbage => Ok(Answer::Http(handle::garbage().map(full))),
            Failure::Html => Ok(Answer::Http(handle::html().map(full))),
            Failure::WrongCode => Ok(Answer::Http(handle::wrong_code().map(full))),
            Failure::Reset => Err(ConnectionBroken),
            Failure::Hang => std::future::pending().await,
            Failure::Crash => {
                self.with(|simulation, _| simulation.frontend.faults.crash());
                std::future::pending().await
            }
        }
    }

    fn watch_frames(
        &self,
        watcher: Box<Watcher>,
    ) -> impl Stream<Item = Result<Frame<Bytes>, ConnectionBroken>> + use<> {
        let changes = Arc::clone(&self.inner.changed);
        let stop = self.inner.stop.subscribe();
        // Weak, so that a watch does not keep the cluster alive.
        let state = Some((watcher, changes, stop, Arc::downgrade(&self.inner)));
        stream::unfold(state, async |state| {
            let (mut watcher, changes, mut stop, inner) = state?;
            loop {
                // Made before the log is read: what comes later wakes us up.
                let changed = Arc::clone(&changes).notified_owned();
                let strong = inner.upgrade().filter(|_| !*stop.borrow())?;
                let output = strong.look(|simulation, now| {
                    watcher.poll(&simulation.api.store, &mut simulation.frontend.faults, now)
                });
                let next = strong.clock.instant_of(output.next);
                drop(strong);
                if !output.bytes.is_empty() {
                    let frame = Ok(Frame::data(Bytes::from(output.bytes)));
                    let rest = (!output.ended).then_some((watcher, changes, stop, inner));
                    return Some((frame, rest));
                }
                if output.ended {
                    return None;
                }
                tokio::select! {
                    biased;
                    () = changed => {}
                    _ = stop.changed() => return None,
                    () = sleep_until(next) => {}
                }
            }
        })
    }
}

/// Does what becomes due, until the cluster ends.
async fn drive(inner: Weak<Inner>, wake: Arc<Notify>, mut stop: watch::Receiver<bool>) {
    /// How long the driver sleeps when nothing is due.
    const IDLE: Duration = Duration::from_secs(3600);
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let next = strong.drive();
        let until =
            next.map_or_else(|| Instant::now() + IDLE, |next| strong.clock.instant_of(next));
        drop(strong);
        tokio::select! {
            biased;
            _ = stop.changed() => return,
            () = wake.notified() => {}
            () = sleep_until(until) => {}
        }
    }
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Writes a kubeconfig for the server at `address`, with the context `kata-sim`.
///
/// # Errors
/// When the file cannot be written.
pub fn write_kubeconfig(path: &Path, address: SocketAddr) -> std::io::Result<()> {
    // JSON is YAML.
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "kata-sim",
        "clusters": [{"name": "kata-sim", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "kata-sim", "user": {}}],
        "contexts": [{
            "name": "kata-sim",
            "context": {"cluster": "kata-sim", "user": "kata-sim", "namespace": "default"},
        }],
    });
    std::fs::write(path, format!("{config:#}\n"))
}
