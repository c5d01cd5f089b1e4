//! The operator under test, unmodified, and the gate below its client: every request passes there, is
//! numbered, noted and checked, and deeds happen just before the call that they are planned for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::BodyExt as _;
use kata_manifests::manifests;
use kata_operator::lease::Timing;
use kata_operator::settings::Election;
use kata_operator::{RunError, Settings};
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Rule};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinError};
use tokio::time::Instant;
use tower::{BoxError, Service};

use crate::ledger::{Actor, Call, Ledger};
use crate::plan::{Deed, DeedAt};
use crate::promises::requests::Requests;

/// What all gates of an episode share.
#[derive(Debug)]
pub struct Gate {
    cluster: Cluster,
    ledger: Ledger,
    requests: Mutex<Requests>,
    deeds: Mutex<Vec<DeedAt>>,
    crashes: Mutex<watch::Receiver<u64>>,
    /// Notified when a second operator has to start.
    pub second: Notify,
}

impl Gate {
    /// A gate in front of a cluster.
    pub fn new(cluster: &Cluster, ledger: &Ledger, deeds: Vec<DeedAt>) -> Arc<Self> {
        let mut crashes = cluster.crashes();
        crashes.mark_unchanged();
        Arc::new(Self {
            cluster: cluster.clone(),
            ledger: ledger.clone(),
            requests: Mutex::new(Requests::on(cluster.with(|sim, _| sim.world.platform))),
            deeds: Mutex::new(deeds),
            crashes: Mutex::new(crashes),
            second: Notify::new(),
        })
    }

    /// Whether deeds are left to be done.
    pub fn is_done(&self) -> bool {
        self.deeds.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Does the deeds whose calls were never made.
    pub fn finish_deeds(&self) {
        let deeds = std::mem::take(&mut *self.deeds.lock().unwrap_or_else(PoisonError::into_inner));
        for DeedAt { deed, .. } in deeds {
            self.perform(&deed);
        }
    }

    /// Does what is due at a call; returns the seconds for which the operator is down if it is killed.
    fn due(&self, number: u64) -> Option<u64> {
        let mut killed = None;
        loop {
            let deed = {
                let mut deeds = self.deeds.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(index) = deeds.iter().position(|deed| deed.call <= number) else {
                    return killed;
                };
                deeds.remove(index).deed
            };
            match deed {
                Deed::Kill { down } => killed = Some(down),
                deed => self.perform(&deed),
            }
        }
    }

    fn perform(&self, deed: &Deed) {
        match deed {
            Deed::Second => self.second.notify_one(),
            deed => crate::deeds::perform(&self.cluster, &self.ledger, deed),
        }
        let mut page = self.ledger.open();
        page.disturbed = page.disturbed.max(Some(Instant::now()));
    }

    /// How often calls were struck by a fault.
    pub(crate) fn struck(&self) -> u64 {
        let is_late = |rule: &Rule| matches!(rule.fault, Fault::Delay { .. });
        self.cluster.with(|sim, _| {
            let rules = sim.frontend.faults.rules();
            let calls = rules.filter(|(rule, _)| rule.event.is_none() && !is_late(rule));
            calls.map(|(_, struck)| struck).sum()
        })
    }

    fn crashed(&self) -> bool {
        let mut crashes = self.crashes.lock().unwrap_or_else(PoisonError::into_inner);
        let crashed = crashes.has_changed().unwrap_or(false);
        crashes.mark_unchanged();
        crashed
    }
}

/// One operator's way to the API server.
#[derive(Clone)]
struct Door {
    gate: Arc<Gate>,
    operator: usize,
    /// Notified when the operator has to die, with the seconds until its next start.
    killed: watch::Sender<Option<Option<u64>>>,
}

type Answer = Result<http::Response<simcluster::cluster::Body>, BoxError>;

impl Service<http::Request<kube::client::Body>> for Door {
    type Response = http::Response<simcluster::cluster::Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let door = self.clone();
        Box::pin(async move { door.pass(request).await })
    }
}

impl Door {
    async fn pass(self, request: http::Request<kube::client::Body>) -> Answer {
        let Self { gate, operator, killed } = self;
        let (parts, body) = request.into_parts();
        let body: Bytes = body.collect().await?.to_bytes();
        // What is due now is the cluster's own doing, not the operator's.
        let number = gate.cluster.with(|sim, _| sim.frontend.faults.calls()) + 1;
        if let Some(down) = gate.due(number) {
            killed.send_replace(Some(Some(down)));
            return std::future::pending().await;
        }
        let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let index = {
            let mut page = gate.ledger.open();
            let at = page.start.elapsed();
            let method = parts.method.clone();
            page.note(&format!("#{number} [{operator}] {method} {path}"));
            page.calls.push(Call { number, operator, at, method, path, code: None });
            page.calls.len() - 1
        };
        {
            let mut requests = gate.requests.lock().unwrap_or_else(PoisonError::into_inner);
            let mut page = gate.ledger.open();
            requests.check(&mut page, index, &body);
        }
        let mut request = http::Request::from_parts(parts, http_body_util::Full::new(body));
        let account = HeaderValue::from_static(ACCOUNT);
        request.headers_mut().insert("impersonate-user", account);
        let before = gate.struck();
        let mut inner = gate.cluster.client_service().call(request);
        // Which fault strikes a call is chosen when it is polled first; what strikes later, while this one is
        // under way, strikes others.
        let mut after = None;
        let answer = std::future::poll_fn(|cx| {
            let polled = gate.ledger.acting(Actor::Operator, || inner.as_mut().poll(cx));
            after.get_or_insert_with(|| gate.struck());
            if gate.crashed() {
                gate.ledger.open().note("the operator crashes");
                killed.send_replace(Some(None));
            }
            polled
        })
        .await;
        let sound = after == Some(before);
        let code = answer.as_ref().map_or(0, |response| response.status().as_u16());
        let mut requests = gate.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = gate.ledger.open();
        if let Some(call) = page.calls.get_mut(index) {
            call.code = Some(code);
        }
        if !sound {
            // The operator asks again after the time that the answer names, or up to twice as late.
            let wait = answer.as_ref().ok().and_then(retry_after).unwrap_or_default();
            page.disturbed = page.disturbed.max(Some(Instant::now() + wait * 2));
        }
        page.note(&format!("#{number} [{operator}] -> {code}"));
        requests.answered(&page, index, sound);
        drop(page);
        answer
    }
}

fn retry_after<B>(response: &http::Response<B>) -> Option<Duration> {
    let seconds = response.headers().get(http::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// An operator that is started again whenever it dies, until it is dropped.
#[derive(Debug)]
pub struct Operator(AbortHandle);

impl Operator {
    /// Starts an operator; the number distinguishes several.
    pub fn start(gate: &Arc<Gate>, number: usize, down: Duration, election: bool) -> Self {
        let task = tokio::spawn(supervise(Arc::clone(gate), number, down, election));
        Self(task.abort_handle())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The user that the operator is, whom roles and policies bind.
const ACCOUNT: &str = "system:serviceaccount:openshift-sandboxed-containers-operator:kata-operator";
/// How long it takes to start an operator again that ended by itself.
const RESTART: Duration = Duration::from_secs(5);

async fn supervise(gate: Arc<Gate>, number: usize, down: Duration, election: bool) {
    let mut life = 0_u64;
    loop {
        let (killed, mut dies) = watch::channel(None);
        let door = Door { gate: Arc::clone(&gate), operator: number, killed };
        life += 1;
        let settings = settings(&gate.cluster, number, life, election);
        let kube = kube::Client::new(door, "default");
        let mut running = tokio::task::JoinSet::new();
        running.spawn(kata_operator::run(kube, settings, std::future::pending()));
        let wait = tokio::select! {
            // The sender lives in the client.
            Ok(()) = dies.changed() => {
                let kill = dies.borrow().flatten();
                kill.map_or(down, Duration::from_secs)
            }
            ended = running.join_next() => {
                note_end(&gate.ledger, ended);
                RESTART
            }
        };
        // Dropped at an await, without a word to anybody.
        drop(running);
        let back = Instant::now() + wait;
        // Until then this operator cannot report anything new.
        gate.ledger.open().disturbed = Some(back);
        tokio::time::sleep_until(back).await;
        gate.ledger.open().note(&format!("[{number}] the operator starts again"));
    }
}

fn note_end(ledger: &Ledger, ended: Option<Result<Result<(), RunError>, JoinError>>) {
    let mut page = ledger.open();
    match ended {
        Some(Ok(result)) => page.broke("O-panic", format!("the operator ended: {result:?}")),
        Some(Err(error)) => page.broke("O-panic", format!("the operator died: {error}")),
        None => {}
    }
}

fn settings(cluster: &Cluster, number: usize, life: u64, election: bool) -> Settings {
    let seed = life.wrapping_mul(1_000_003).wrapping_add(number as u64 + 1);
    let election = election.then(|| Election {
        identity: format!("operator-{number}-{life}"),
        timing: Timing::default(),
    });
    let mut settings = Settings { seed, election, ..Settings::simulated(cluster.now()) };
    settings.options.agent_image = Some(manifests::UNPUBLISHED.to_owned());
    settings
}
