//! Which process writes, as the API server saw it: processes are killed and cut off while their writes are on the way.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use kata_api::platform::Platform;
use kata_operator::lease::holder::PodProcess;
use kata_operator::lease::{FENCE, Timing};
use kata_operator::{Settings, run};
use kube::client::Body;
use serde_json::json;
use simcluster::Cluster;
use simcluster::resource::LEASES;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use crate::lab;

const KILLS: usize = 50;
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// How long a request is on the way.
const ON_THE_WAY: Duration = Duration::from_millis(10);

/// The processes that wrote something besides the Lease, in the order in which the API server accepted the writes.
#[derive(Clone, Debug, Default)]
struct Audit {
    writers: Arc<Mutex<Vec<usize>>>,
    /// How many writes arrived after their process had been killed or cut off.
    late: Arc<AtomicUsize>,
}

/// A process of the operator.
struct Process {
    pod: PodProcess,
    task: JoinHandle<()>,
    /// How many writes it has sent besides those of the Lease.
    sent: watch::Sender<usize>,
    /// How much later its writes arrive once it is killed or cut off; from then on it does not reach the Lease.
    delay: watch::Sender<Option<Duration>>,
}

impl Process {
    fn start(cluster: &Cluster, audit: &Audit, number: usize, pod: PodProcess) -> Self {
        let (sent, delay) = (watch::Sender::new(0), watch::Sender::new(None));
        let server = cluster.client_service();
        let (counter, end, audit) = (sent.clone(), delay.subscribe(), audit.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (server, counter) = (server.clone(), counter.clone());
            let (end, audit) = (end.clone(), audit.clone());
            async move {
                let is_lease = request.uri().path().contains("/leases");
                let is_change = request.method() != http::Method::GET;
                let is_write = is_change && !is_lease;
                if is_lease && end.borrow().is_some() {
                    std::future::pending::<()>().await;
                }
                if is_write {
                    counter.send_modify(|count| *count += 1);
                }
                // What was sent arrives, even if the process ends.
                let arrival = tokio::spawn(async move {
                    lab::pass(ON_THE_WAY).await;
                    let later = if is_change { *end.borrow() } else { None };
                    lab::pass(later.unwrap_or_default()).await;
                    let answer = server.oneshot(request).await?;
                    if is_write && answer.status().is_success() {
                        audit.writers.lock().unwrap().push(number);
                        audit.late.fetch_add(usize::from(later.is_some()), Ordering::Relaxed);
                    }
                    Ok::<_, tower::BoxError>(answer)
                });
                arrival.await?
            }
        });
        let settings = Settings {
            namespace: "default".to_owned(),
            platform: Platform::Openshift,
            seed: u64::try_from(number).unwrap(),
            ..lab::elected(&pod.identity())
        };
        let kube = kube::Client::new(service, "default");
        let task = tokio::spawn(async move {
            drop(run(kube, settings, std::future::pending()).await);
        });
        Self { pod, task, sent, delay }
    }

    fn leads(&self, cluster: &Cluster) -> bool {
        let lease = cluster.with(|sim, _| sim.api.get(&LEASES, "default", "kata-operator"));
        lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == self.pod.identity())
    }
}

/// Creates the KataConfig if there is none, and deletes it if it is Ready.
fn keep_busy(cluster: &Cluster) {
    let Some(config) = lab::get(cluster, &lab::kata_configs(), "example") else {
        let api_version = "kataconfiguration.openshift.io/v1";
        let metadata = json!({"name": "example"});
        let config = json!({"apiVersion": api_version, "kind": "KataConfig", "metadata": metadata});
        return lab::create(cluster, &lab::kata_configs(), "", config);
    };
    if lab::is_ready(cluster, "example") && config["metadata"]["deletionTimestamp"].is_null() {
        lab::delete(cluster, &lab::kata_configs(), "", "example");
    }
}

/// Returns right after the process has sent this many writes.
async fn until_sent(cluster: &Cluster, process: &Process, count: usize) {
    let mut sent = process.sent.subscribe();
    let wanted = tokio::time::timeout(LIMIT, async {
        loop {
            keep_busy(cluster);
            let sent = sent.wait_for(|sent| *sent >= count);
            if tokio::time::timeout(Duration::from_secs(1), sent).await.is_ok() {
                return;
            }
        }
    });
    assert!(wanted.await.is_ok(), "the leader does not write");
}

/// One in two processes is killed, and its container restarted at once; the node of the other one is cut off while the
/// process goes on.
#[tokio::test(start_paused = true)]
async fn two_processes_never_write_at_once_over_fifty_kills() {
    let cluster = lab::fast(3);
    let audit = Audit::default();
    let mut started = 0;
    let mut start = |uid: &str| {
        started += 1;
        let pod = PodProcess {
            pod: format!("operator-{uid}"),
            uid: uid.to_owned(),
            started: lab::epoch() + SignedDuration::from_secs(i64::try_from(started).unwrap()),
        };
        Process::start(&cluster, &audit, started, pod)
    };
    let mut processes = vec![start("first"), start("second")];
    for kill in 0..KILLS {
        assert!(lab::until(LIMIT, || processes.iter().any(|it| it.leads(&cluster))).await);
        let leader = processes.iter().position(|it| it.leads(&cluster)).unwrap();
        let leader = processes.remove(leader);
        let count = *leader.sent.borrow() + 1 + kill * 7 % 12;
        until_sent(&cluster, &leader, count).await;
        if kill % 2 == 0 {
            leader.delay.send_replace(Some(FENCE - ON_THE_WAY * 2));
            leader.task.abort();
            processes.push(start(&leader.pod.uid));
        } else {
            let Timing { duration, renew_deadline, .. } = Timing::default();
            leader.delay.send_replace(Some(duration - renew_deadline - ON_THE_WAY * 2));
            processes.push(start(&format!("after-{kill}")));
            let takeover = lab::within(LIMIT, || processes.iter().any(|it| it.leads(&cluster)));
            assert!(takeover.await.is_some());
            assert!(!leader.task.is_finished(), "a process without a connection ended");
            // Writes of a process that still believes to lead would arrive now.
            lab::pass(duration).await;
            leader.task.abort();
        }
    }
    let is_gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    let is_settled = || {
        if !is_gone() && lab::is_ready(&cluster, "example") {
            keep_busy(&cluster);
        }
        is_gone()
    };
    assert!(lab::until(LIMIT, is_settled).await);
    let writers = audit.writers.lock().unwrap();
    let mut terms = writers.clone();
    terms.dedup();
    let leaders: BTreeSet<usize> = terms.iter().copied().collect();
    assert_eq!(terms.len(), leaders.len(), "a process wrote after another one: {terms:?}");
    // One that is killed at its first write may have had no other, and that one may have been refused.
    assert!(leaders.len() >= KILLS * 4 / 5, "{} processes wrote", leaders.len());
    let late = audit.late.load(Ordering::Relaxed);
    assert!(late >= KILLS / 2, "{late} writes were late");
}
