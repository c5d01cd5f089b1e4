//! An API server whose lists answer late: what they show is as old as the request. What the operator has seen
//! meanwhile must not be undone by them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use kata_operator::Settings;
use kata_operator::client::is_watch;
use simcluster::Cluster;
use simcluster::resource::NODES;
use tower::{Service, ServiceExt as _};

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_hours(2);
const SETTLE: Duration = Duration::from_mins(2);
const SECOND: Duration = Duration::from_secs(1);

/// Which lists answer late.
#[derive(Clone, Debug, Default)]
pub(crate) struct LateLists(Arc<Mutex<Option<(String, Duration)>>>);

impl LateLists {
    /// From now on lists of this resource answer so late.
    fn begin(&self, resource: &str, delay: Duration) {
        *self.0.lock().unwrap() = Some((format!("/{resource}"), delay));
    }

    fn delay<B>(&self, request: &Request<B>) -> Option<Duration> {
        let late = self.0.lock().unwrap();
        let is_list = request.method() == http::Method::GET && !is_watch(request);
        late.as_ref()
            .filter(|(end, _)| is_list && request.uri().path().ends_with(end))
            .map(|(_, delay)| *delay)
    }

    /// An API server that makes its answers at once and sends them late.
    pub(crate) fn in_front_of<S>(
        &self,
        server: S,
    ) -> impl Service<
        Request<kube::client::Body>,
        Response = S::Response,
        Error = S::Error,
        Future: Send,
    > + Send
    + use<S>
    where
        S: Service<Request<kube::client::Body>, Future: Send> + Clone + Send + 'static,
        S::Response: Send,
        S::Error: Send,
    {
        let late = self.clone();
        tower::service_fn(move |request: Request<kube::client::Body>| {
            let delay = late.delay(&request);
            let answer = server.clone().oneshot(request);
            async move {
                let answer = answer.await;
                if let Some(delay) = delay {
                    lab::pass(delay).await;
                }
                answer
            }
        })
    }
}

fn lists_of_nodes(operator: &Operator) -> usize {
    let requests = operator.requests();
    requests
        .iter()
        .filter(|line| line.starts_with("GET /api/v1/nodes?") && !line.contains("watch=true"))
        .count()
}

async fn installed(late: &LateLists) -> (Cluster, Operator) {
    let cluster = lab::openshift(2, 2);
    let operator = Operator::behind(&cluster, Settings::simulated(lab::epoch()), None, late);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    (cluster, operator)
}

/// Every five minutes everything is listed, in any case.
#[tokio::test(start_paused = true)]
async fn a_node_that_goes_while_a_list_answers_late_stays_gone() {
    let late = LateLists::default();
    let (cluster, operator) = installed(&late).await;
    late.begin("nodes", 8 * SECOND);
    let before = lists_of_nodes(&operator);
    assert!(lab::within(LIMIT, || lists_of_nodes(&operator) > before).await.is_some());
    let gone = lab::worker(1);
    let kata_node = || lab::get(&cluster, &lab::kata_nodes(), &gone);
    let count = || {
        let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap_or_default();
        config["status"]["kataNodes"]["nodeCount"].clone()
    };
    assert!(kata_node().is_some() && count() == 2);
    lab::delete(&cluster, &NODES, "", &gone);
    // Before the answer comes it is seen to be gone.
    assert!(lab::within(4 * SECOND, || kata_node().is_none()).await.is_some());
    let noticed = operator.requests().len();
    for _ in 0..1_200 {
        lab::pass(Duration::from_millis(50)).await;
        assert!(kata_node().is_none());
        assert_eq!(lab::condition(&cluster, "example", "InProgress").0, "False");
    }
    assert_eq!(count(), 1);
    let about = format!("/nodes/{gone}");
    let requests = operator.requests().split_off(noticed);
    assert!(!requests.iter().any(|line| line.contains(&about)), "{requests:#?}");
}

/// A pass that asked for the list sees what the watch has shown meanwhile.
#[tokio::test(start_paused = true)]
async fn a_pass_whose_list_answers_late_writes_to_no_node_that_is_gone() {
    let late = LateLists::default();
    let (cluster, operator) = installed(&late).await;
    late.begin("nodes", 8 * SECOND);
    let before = lists_of_nodes(&operator);
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    assert!(lab::within(LIMIT, || lists_of_nodes(&operator) > before).await.is_some());
    let gone = lab::worker(1);
    let asked = operator.requests().len();
    lab::delete(&cluster, &NODES, "", &gone);
    let left = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, left).await);
    let about = format!("/nodes/{gone}");
    let requests = operator.requests().split_off(asked);
    assert!(!requests.iter().any(|line| line.contains(&about)), "{requests:#?}");
}
