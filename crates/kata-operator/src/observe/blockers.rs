//! The sandboxed pods that hold up the deletion of the last KataConfig: one of them is read again, instead of all pods
//! of the cluster, and a watch shows those that come.
//!
//! It only ever says that pods are left; that none is left is read from a whole list. Which pods count is decided by
//! [`kata_plan::running_pods`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kata_plan::{Kind, Observed, PodScope, SandboxedPod, Snapshot, running_pods, validate};
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::task::JoinHandle;

use crate::client::{Client, Endpoint};
use crate::error::chain;
use crate::pacing::{RESYNC, WATCH_LIFETIME};

/// How many pods are read again in turn: as many as the message of the KataConfig names.
const NAMED: usize = 10;
/// A pod that comes during a deletion is not scheduled yet, and stays so, since its RuntimeClass is closed. The API
/// server has an index of these pods, so that the others cost it nothing.
const UNSCHEDULED: &str = "spec.nodeName=";

/// The pods of the last list, and those that came since.
#[derive(Debug, Default)]
pub(super) struct Blockers(Option<Known>);

#[derive(Debug)]
struct Known {
    classes: BTreeSet<String>,
    pods: Vec<SandboxedPod>,
    /// When all pods are listed again, such as for those that were bound to a node when they were created.
    due: Timestamp,
    /// Which pod is read next.
    next: usize,
    newcomers: Newcomers,
}

impl Blockers {
    /// Forgets the pods, and ends the watch.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Keeps the pods that were listed for the snapshot, and watches for those that come, if any is left.
    pub(super) fn remember(
        &mut self,
        client: &Client,
        classes: &BTreeSet<String>,
        snapshot: &Snapshot,
    ) {
        let known = self.0.take();
        let Some(Observed::Known(pods)) = snapshot.pods.get(&PodScope::Cluster) else { return };
        if running_pods(snapshot).is_empty() {
            return;
        }
        let newcomers = known.filter(|known| known.classes == *classes).map(|it| it.newcomers);
        let newcomers = newcomers.filter(|newcomers| !newcomers.has_ended());
        self.0 = Some(Known {
            classes: classes.clone(),
            pods: pods.clone(),
            due: snapshot.now + RESYNC,
            next: 0,
            newcomers: newcomers.unwrap_or_else(|| Newcomers::watch(client, classes)),
        });
    }

    /// Puts the pods that are left into the snapshot, one of which was read just now; returns `false` if all pods have
    /// to be listed.
    pub(super) async fn read_one(
        &mut self,
        client: &Client,
        classes: &BTreeSet<String>,
        snapshot: &mut Snapshot,
    ) -> bool {
        let Some(known) = &mut self.0 else { return false };
        let is_due = snapshot.now >= known.due || known.newcomers.has_ended();
        if is_due || known.classes != *classes {
            return false;
        }
        known.add_newcomers();
        for _ in 0..NAMED {
            snapshot.pods.insert(PodScope::Cluster, Observed::Known(known.pods.clone()));
            let counted = running_pods(snapshot);
            let Some(at) = known.next.checked_rem(counted.len().min(NAMED)) else { return false };
            let Some(pod) = counted.get(at) else { return false };
            let endpoint = Endpoint::within(Kind::Pod, &pod.namespace);
            let Ok(read) = client.get::<Pod>(&endpoint, &pod.name).await else { return false };
            let read = read.as_ref().and_then(validate::sandboxed_pod);
            let is_left = read.as_ref().is_some_and(|it| !it.finished);
            known.replace(pod, read);
            if is_left {
                known.next = at + 1;
                snapshot.pods.insert(PodScope::Cluster, Observed::Known(known.pods.clone()));
                return true;
            }
        }
        false
    }
}

impl Known {
    fn add_newcomers(&mut self) {
        for pod in self.newcomers.take() {
            self.replace(&pod.clone(), Some(pod));
        }
    }

    fn replace(&mut self, old: &SandboxedPod, new: Option<SandboxedPod>) {
        self.pods.retain(|pod| (&pod.namespace, &pod.name) != (&old.namespace, &old.name));
        self.pods.extend(new);
    }
}

/// A watch of the pods that are not scheduled; dropping it ends it.
#[derive(Debug)]
struct Newcomers {
    seen: Arc<Mutex<Vec<SandboxedPod>>>,
    task: JoinHandle<()>,
}

impl Newcomers {
    fn watch(client: &Client, classes: &BTreeSet<String>) -> Self {
        let seen = Arc::default();
        let task = follow(client.clone(), classes.clone(), Arc::clone(&seen));
        Self { seen, task: tokio::spawn(task) }
    }

    /// Whether the watch has failed.
    fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    fn take(&self) -> Vec<SandboxedPod> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Newcomers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Collects the pods of these classes that come, until the watch fails.
async fn follow(client: Client, classes: BTreeSet<String>, seen: Arc<Mutex<Vec<SandboxedPod>>>) {
    let lifetime = u32::try_from(WATCH_LIFETIME.as_secs()).unwrap_or(u32::MAX);
    let config = watcher::Config::default().fields(UNSCHEDULED).timeout(lifetime);
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        async move { client.answer_watcher(Kind::Pod.as_str(), request).await }
    });
    let pods = Api::<Pod>::all(kube::Client::new(service, "default"));
    let mut events = std::pin::pin!(watcher(pods, config));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(pod) | Event::Apply(pod)) => {
                let pod = validate::sandboxed_pod(&pod);
                let pod = pod.filter(|pod| classes.contains(&pod.runtime_class));
                seen.lock().unwrap_or_else(PoisonError::into_inner).extend(pod);
            }
            // One that leaves the selection was scheduled or is gone; it is read when it is its turn.
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => {}
            Err(error) => {
                tracing::debug!(error = chain(&error), "cannot watch the pods that come");
                return;
            }
        }
    }
}
