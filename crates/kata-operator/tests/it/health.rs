//! `/livez` as the kubelet sees it: it fails when the loop hangs, and neither while nothing is to be done nor while the
//! API server is away.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use kata_operator::pacing::RESYNC;
use kata_operator::{RunError, Settings, run};
use kube::client::Body;
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::NODES;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _};

use crate::lab;
use crate::metrics::get;

const LIMIT: Duration = Duration::from_mins(60);
/// What docs/metrics.md promises.
const LIVE_LIMIT: Duration = Duration::from_mins(3);
const STEP: Duration = Duration::from_secs(10);

/// An operator with a health server, which ends when this is dropped.
struct Served {
    address: SocketAddr,
    task: JoinSet<Result<(), RunError>>,
}

impl Served {
    async fn start(kube: kube::Client, identity: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let settings = Settings {
            namespace: "default".to_owned(),
            health_address: Some(address),
            ..lab::elected(identity)
        };
        let mut task = JoinSet::new();
        task.spawn(run(kube, settings, std::future::pending()));
        // Until it serves.
        lab::pass(Duration::from_secs(1)).await;
        Self { address, task }
    }

    async fn is_live(&self) -> bool {
        let (status, ..) = get(&self.address.to_string(), "/livez").await;
        assert!(status == "HTTP/1.1 200 OK" || status.contains("503"), "{status}");
        status == "HTTP/1.1 200 OK"
    }

    /// Fails if `/livez` fails within a time.
    async fn stays_live(&mut self, span: Duration, what: &str) {
        let begun = Instant::now();
        while begun.elapsed() < span {
            lab::pass(STEP).await;
            assert!(self.is_live().await, "{what}: after {:?}", begun.elapsed());
            assert!(self.task.try_join_next().is_none(), "{what}: it ended");
        }
    }
}

fn kube(cluster: &Cluster) -> kube::Client {
    kube::Client::new(cluster.client_service(), "default")
}

/// What the operator sees of its API server: lists of RuntimeClasses that never end, from when `endless` is set, as a
/// faulty proxy makes them that answers each page with a next one; and how many watches were opened.
fn endless_lists(
    cluster: &Cluster,
    endless: Arc<AtomicBool>,
    watches: Arc<AtomicUsize>,
) -> kube::Client {
    const PAGE: &str = r#"{"kind": "RuntimeClassList", "apiVersion": "node.k8s.io/v1",
        "metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}"#;
    let service = cluster.client_service();
    let service = tower::service_fn(move |request: Request<Body>| {
        let text = request.uri().to_string();
        let is_page = text.contains("/runtimeclasses?") && text.contains("limit=");
        let never_ends = is_page && endless.load(Ordering::Relaxed);
        watches.fetch_add(usize::from(text.contains("watch=true")), Ordering::Relaxed);
        let service = service.clone();
        async move {
            if never_ends {
                lab::pass(Duration::from_secs(1)).await;
                return Ok(Response::new(Full::from(PAGE).map_err(BoxError::from).boxed_unsync()));
            }
            let response = service.oneshot(request).await?;
            Ok::<_, BoxError>(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn livez_fails_within_its_limit_when_the_loop_hangs() {
    let cluster = lab::openshift(2, 1);
    let (endless, watches) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let kube = endless_lists(&cluster, Arc::clone(&endless), Arc::clone(&watches));
    let operator = Served::start(kube, "one").await;
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    assert!(operator.is_live().await);
    endless.store(true, Ordering::Relaxed);
    let (begun, opened) = (Instant::now(), watches.load(Ordering::Relaxed));
    while operator.is_live().await {
        assert!(begun.elapsed() < RESYNC + LIVE_LIMIT + STEP * 2, "it never fails");
        lab::pass(STEP).await;
    }
    assert!(begun.elapsed() >= LIVE_LIMIT, "{:?}", begun.elapsed());
    // Only the loop hangs.
    assert!(watches.load(Ordering::Relaxed) > opened);
}

#[tokio::test(start_paused = true)]
async fn livez_holds_while_nothing_is_to_be_done() {
    let cluster = lab::openshift(2, 1);
    let mut leader = Served::start(kube(&cluster), "one").await;
    let mut standby = Served::start(kube(&cluster), "two").await;
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    leader.stays_live(Duration::from_mins(15), "the leader").await;
    standby.stays_live(Duration::from_mins(15), "the one that stands by").await;
}

#[tokio::test(start_paused = true)]
async fn livez_holds_while_the_api_server_is_away() {
    for fault in [Fault::Hang { when: When::Before }, Fault::Reset { when: When::Before }] {
        let cluster = lab::openshift(2, 1);
        let mut operator = Served::start(kube(&cluster), "one").await;
        lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
        assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
        cluster.with(|sim, _| {
            let watches = Match { verb: "watch".to_owned(), ..Match::default() };
            sim.frontend.faults.add(Rule::once(watches, Fault::CloseWatch).times(0));
            sim.frontend.faults.add(Rule::once(Match::default(), fault.clone()).times(0));
        });
        // There is something to do, and the watches end.
        let label = serde_json::json!({"metadata": {"labels": {"kata": "true"}}});
        lab::merge(&cluster, &NODES, &lab::worker(1), &label);
        operator.stays_live(Duration::from_mins(20), &format!("{fault:?}")).await;
        // One that starts meanwhile waits for the API server.
        let mut late = Served::start(kube(&cluster), "late").await;
        late.stays_live(Duration::from_mins(10), &format!("started during {fault:?}")).await;
    }
}
