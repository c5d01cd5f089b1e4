//! The caches of the Jobs of the node agent and of their pods, in the operator's namespace and by their
//! label: the Jobs and pods of other programs are never read here.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kata_api::names::{self, node_job};
use kata_plan::{JobObjects, JobPod, Kind, NodeJob, Observed, UnreadableJob, validate};

use crate::client::Client;
use crate::ingest::{CachedValue, TrimError, VersionedName};
use crate::watch::{Cache, LoopWaker};

/// The caches of Jobs and their pods.
#[derive(Debug)]
pub struct JobCaches {
    /// The Jobs.
    pub jobs: Arc<Cache<Option<Result<NodeJob, UnreadableJob>>>>,
    /// Their pods.
    pub pods: Arc<Cache<Option<JobPod>>>,
}

/// `None` if another program gave its Job the operator's labels.
impl CachedValue for Option<Result<NodeJob, UnreadableJob>> {
    type Wire = Job;

    fn trim(wire: Job) -> Result<(VersionedName, Self), TrimError> {
        Ok((VersionedName::of(&wire), validate::node_job(&wire)))
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

impl CachedValue for Option<JobPod> {
    type Wire = Pod;

    fn trim(wire: Pod) -> Result<(VersionedName, Self), TrimError> {
        Ok((VersionedName::of(&wire), validate::job_pod(&wire)))
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

impl JobCaches {
    /// Empty caches.
    pub fn new(namespace: &str, wake: &Arc<LoopWaker>) -> Self {
        let selector = format!(
            "{}={},{}={}",
            names::MANAGED_BY,
            names::PRODUCT,
            node_job::COMPONENT_LABEL,
            node_job::COMPONENT
        );
        Self {
            jobs: Arc::new(Cache::new(Kind::Job, wake).within(namespace).labelled(&selector)),
            pods: Arc::new(Cache::new(Kind::Pod, wake).within(namespace).labelled(&selector)),
        }
    }

    /// The content of the caches.
    pub fn view(&self) -> JobObjects {
        JobObjects::new(flatten(self.jobs.view().objects), flatten(self.pods.view().objects))
    }

    /// Lists both past the caches: first the Jobs, so that the pod of a Job that is over is seen as it ended.
    pub async fn read_fresh(&self, client: &Client) -> JobObjects {
        let jobs = flatten(self.jobs.read_fresh(client).await.objects);
        let pods = match &jobs {
            Observed::Known(_) => flatten(self.pods.read_fresh(client).await.objects),
            Observed::Unknown { what, error } => Observed::unknown(what, error),
        };
        JobObjects::new(jobs, pods)
    }
}

fn flatten<T>(observed: Observed<Vec<Option<T>>>) -> Observed<Vec<T>> {
    observed.map(|all| all.into_iter().flatten().collect())
}
