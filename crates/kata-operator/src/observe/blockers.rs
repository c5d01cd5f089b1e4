//! The sandboxed pods that hold up the deletion of the last KataConfig. The pods of the last list are remembered: one of
//! them is read again in each pass, instead of all pods of the cluster, and a watch shows pods that are created.
//!
//! Remembered pods only ever show that pods are left; that none is left is read from a whole list. Which pods count is
//! decided by [`kata_plan::running_pods`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kata_plan::{Kind, Observed, PodScope, SandboxedPod, Snapshot, running_pods, validate};
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::task::JoinHandle;

use crate::client::{Client, Endpoint};
use crate::error::chain;
use crate::pacing::{POD_WATCH_FAILED, PODS_RELISTED, RESYNC, WATCH_LIFETIME};

/// How many pods are read again in turn: as many as the message of the KataConfig names.
const NAMED: usize = 10;
/// A pod that is created while its RuntimeClass is closed stays unscheduled. The API server has an index of the node's
/// name, so that it does not compare all other pods with this selector.
const UNSCHEDULED: &str = "spec.nodeName=";

/// What is known of the pods that hold up a deletion.
#[derive(Debug, Default)]
pub(super) struct Blockers {
    remembered: Option<RememberedPods>,
    /// Why the last watch of pods failed, and when the next one may begin.
    watch_failure: Option<(String, Timestamp)>,
    /// Why the last read of a pod failed.
    read_failure: Option<String>,
}

/// The pods of the last list, and those that were created since.
#[derive(Debug)]
struct RememberedPods {
    classes: BTreeSet<String>,
    pods: Vec<SandboxedPod>,
    listed: Timestamp,
    /// When all pods are listed again.
    relist_at: Timestamp,
    /// Which of the named pods is read next.
    next_index: usize,
    unscheduled: UnscheduledPods,
}

impl Blockers {
    /// Forgets the pods, and ends the watch.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Drops what the watch has shown so far, which the list that begins now shows too.
    pub(super) fn begin_list(&mut self) {
        if let Some(remembered) = &self.remembered {
            drop(remembered.unscheduled.take());
        }
    }

    /// Remembers the pods that were listed for the snapshot if any of them holds up the deletion, and watches for others.
    pub(super) fn remember(
        &mut self,
        client: &Client,
        classes: &BTreeSet<String>,
        snapshot: &Snapshot,
    ) {
        let before = self.remembered.take();
        let Some(Observed::Known(pods)) = snapshot.pods.get(&PodScope::Cluster) else { return };
        if running_pods(snapshot).is_empty() {
            return;
        }
        let now = snapshot.now;
        if let Some(error) = before.as_ref().and_then(|before| before.unscheduled.failure()) {
            self.record_watch_failure(error, now);
        }
        let kept = before.filter(|it| it.classes == *classes && it.unscheduled.failure().is_none());
        let unscheduled = match (kept, &self.watch_failure) {
            (Some(kept), _) => kept.unscheduled,
            // Without the watch all pods are listed in each pass.
            (None, Some((_, retry_at))) if now < *retry_at => return,
            (None, _) => UnscheduledPods::watch(client, classes),
        };
        self.remembered = Some(RememberedPods {
            classes: classes.clone(),
            pods: pods.clone(),
            listed: now,
            relist_at: now + RESYNC,
            next_index: 0,
            unscheduled,
        });
    }

    fn record_watch_failure(&mut self, error: String, now: Timestamp) {
        if self.watch_failure.as_ref().is_none_or(|(known, _)| *known != error) {
            tracing::warn!(
                error,
                fix = "if the error says Forbidden, apply the ClusterRole of this version; otherwise no action: the watch is tried again after half a minute",
                "cannot watch pods; while a deletion waits for pods, all pods are listed in each pass"
            );
        }
        self.watch_failure = Some((error, now + POD_WATCH_FAILED));
    }

    fn record_read_failure(&mut self, pod: &SandboxedPod, error: String) {
        if self.read_failure.as_ref() != Some(&error) {
            let pod = format!("{}/{}", pod.namespace, pod.name);
            tracing::warn!(
                pod,
                error,
                fix = "if the error says Forbidden, apply the ClusterRole of this version; otherwise no action: the next pass tries again",
                "cannot read a pod that holds up the deletion; all pods are listed instead"
            );
        }
        self.read_failure = Some(error);
    }

    /// Puts the pods that are left into the snapshot, if one of them was read just now and still holds up the deletion;
    /// returns `false` if all pods have to be listed.
    pub(super) async fn read_one(
        &mut self,
        client: &Client,
        classes: &BTreeSet<String>,
        snapshot: &mut Snapshot,
    ) -> bool {
        let Some(remembered) = &mut self.remembered else { return false };
        let is_due = snapshot.now >= remembered.relist_at;
        let has_failed = remembered.unscheduled.failure().is_some();
        if is_due || has_failed || remembered.classes != *classes {
            return false;
        }
        remembered.add_unscheduled();
        remembered.show(snapshot);
        let mut named = running_pods(snapshot);
        named.truncate(NAMED);
        let Some(first) = remembered.next_index.checked_rem(named.len()) else { return false };
        for index in (first..named.len()).chain(0..first) {
            let Some(pod) = named.get(index) else { return false };
            let endpoint = Endpoint::within(Kind::Pod, &pod.namespace);
            let read = match client.get::<Pod>(&endpoint, &pod.name).await {
                Ok(read) => read,
                Err(error) => {
                    self.record_read_failure(pod, chain(&error));
                    return false;
                }
            };
            self.read_failure = None;
            remembered.replace(pod, read.as_ref().and_then(validate::sandboxed_pod));
            remembered.show(snapshot);
            if running_pods(snapshot).iter().any(|left| is_same(left, pod)) {
                remembered.next_index = index + 1;
                return true;
            }
            // Others may have ended with it.
            remembered.relist_at =
                remembered.relist_at.min(remembered.listed + PODS_RELISTED).max(snapshot.now);
        }
        false
    }
}

impl RememberedPods {
    fn show(&self, snapshot: &mut Snapshot) {
        snapshot.pods.insert(PodScope::Cluster, Observed::Known(self.pods.clone()));
    }

    fn add_unscheduled(&mut self) {
        for pod in self.unscheduled.take() {
            self.replace(&pod.clone(), Some(pod));
        }
    }

    fn replace(&mut self, old: &SandboxedPod, new: Option<SandboxedPod>) {
        self.pods.retain(|pod| !is_same(pod, old));
        self.pods.extend(new);
    }
}

fn is_same(a: &SandboxedPod, b: &SandboxedPod) -> bool {
    (&a.namespace, &a.name) == (&b.namespace, &b.name)
}

/// A watch of the pods that are not scheduled; dropping it ends it.
#[derive(Debug)]
struct UnscheduledPods {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// What the watch has shown.
#[derive(Debug, Default)]
struct Seen {
    pods: Vec<SandboxedPod>,
    /// Why the watch ended.
    failure: Option<String>,
}

impl UnscheduledPods {
    fn watch(client: &Client, classes: &BTreeSet<String>) -> Self {
        let seen = Arc::default();
        let task = collect_unscheduled(client.clone(), classes.clone(), Arc::clone(&seen));
        Self { seen, task: tokio::spawn(task) }
    }

    /// Why the watch ended; `None` if it goes on.
    fn failure(&self) -> Option<String> {
        lock(&self.seen).failure.clone()
    }

    fn take(&self) -> Vec<SandboxedPod> {
        std::mem::take(&mut lock(&self.seen).pods)
    }
}

impl Drop for UnscheduledPods {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects the unscheduled pods of these classes, until the watch fails.
async fn collect_unscheduled(client: Client, classes: BTreeSet<String>, seen: Arc<Mutex<Seen>>) {
    let lifetime = u32::try_from(WATCH_LIFETIME.as_secs()).unwrap_or(u32::MAX);
    let config = watcher::Config::default().fields(UNSCHEDULED).timeout(lifetime);
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        async move { client.answer_watcher(Kind::Pod.as_str(), request).await }
    });
    let pods = Api::<Pod>::all(kube::Client::new(service, "default"));
    let mut events = std::pin::pin!(watcher(pods, config));
    let failure = loop {
        match events.next().await {
            Some(Ok(Event::InitApply(pod) | Event::Apply(pod))) => {
                let pod = validate::sandboxed_pod(&pod);
                let pod = pod.filter(|pod| classes.contains(&pod.runtime_class));
                lock(&seen).pods.extend(pod);
            }
            // A pod that leaves the selection was scheduled or deleted; it is read when it is its turn.
            Some(Ok(Event::Init | Event::InitDone | Event::Delete(_))) => {}
            Some(Err(error)) => break chain(&error),
            None => break "the watch ended".to_owned(),
        }
    };
    lock(&seen).failure = Some(failure);
}
