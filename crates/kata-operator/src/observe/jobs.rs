//! The caches of the Jobs of the node agent and of their pods, in the operator's namespace and by their
//! label: other people's Jobs and pods are never read here.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kata_api::names::{self, node_job};
use kata_plan::{JobObjects, JobPod, Kind, NodeJob, Observed, validate};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::client::{Client, Endpoint};
use crate::ingest::{Cached, Head};
use crate::jitter::Jitter;
use crate::metrics::{Check, Metrics};
use crate::watch::Cache;

/// The caches of Jobs and their pods.
#[derive(Debug)]
pub struct JobCaches {
    jobs: Arc<Cache<Option<NodeJob>>>,
    pods: Arc<Cache<Option<JobPod>>>,
}

/// Without what nobody decides on; `None` if somebody else gave it our labels.
impl Cached for Option<NodeJob> {
    type Wire = Job;

    fn take(wire: Job) -> (Head, Self) {
        (Head::of(&wire), validate::node_job(&wire))
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Cached for Option<JobPod> {
    type Wire = Pod;

    fn take(wire: Pod) -> (Head, Self) {
        (Head::of(&wire), validate::job_pod(&wire))
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl JobCaches {
    /// Empty caches.
    pub fn new(namespace: &str, poke: &Arc<Notify>) -> Self {
        let selector = format!(
            "{}={},{}={}",
            names::MANAGED_BY,
            names::PRODUCT,
            node_job::COMPONENT_LABEL,
            node_job::COMPONENT
        );
        let ours = |kind| Endpoint::within(kind, namespace).labelled(&selector);
        Self {
            jobs: Arc::new(Cache::new(ours(Kind::Job), None, Arc::clone(poke))),
            pods: Arc::new(Cache::new(ours(Kind::Pod), None, Arc::clone(poke))),
        }
    }

    /// Starts to follow them.
    pub fn follow(
        &self,
        tasks: &mut JoinSet<()>,
        client: &Client,
        jitter: &Arc<Jitter>,
        metrics: &Metrics,
    ) {
        let with = || (client.clone(), Arc::clone(jitter), metrics.clone());
        let (client, jitter, metrics) = with();
        tasks.spawn(Arc::clone(&self.jobs).follow(client, jitter, metrics));
        let (client, jitter, metrics) = with();
        tasks.spawn(Arc::clone(&self.pods).follow(client, jitter, metrics));
    }

    /// What is known.
    pub fn observed(&self) -> JobObjects {
        JobObjects { jobs: known(self.jobs.observed()), pods: known(self.pods.observed()) }
    }

    /// Takes what a write of a Job answered.
    pub fn absorb(&self, text: &str) {
        self.jobs.absorb(text);
    }

    /// Takes note that a Job is gone.
    pub fn forget(&self, name: &str) {
        self.jobs.forget(name);
    }

    /// Whether each has had a first answer, be it an error.
    pub fn have_answers(&self) -> bool {
        self.jobs.has_answer() && self.pods.has_answer()
    }

    /// For `/readyz`.
    pub fn checks(&self) -> [Check; 2] {
        [self.jobs.check(), self.pods.check()]
    }

    /// Lists both again, past the caches: first the Jobs, so that the pod of a Job that is over is seen as
    /// it ended.
    ///
    /// # Errors
    /// What kept either from being listed.
    pub async fn refresh(&self, client: &Client) -> Result<(), String> {
        let listed = match self.jobs.refresh(client).await {
            Ok(_version) => self.pods.refresh(client).await.map(drop),
            Err(error) => Err(error),
        };
        listed.map_err(|error| crate::error::chain(&error))
    }
}

fn known<T>(observed: Observed<Vec<Option<T>>>) -> Observed<Vec<T>> {
    observed.map(|all| all.into_iter().flatten().collect())
}
