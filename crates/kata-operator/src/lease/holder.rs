//! Whether the process that holds the Lease has ended, as its Pod shows. Pure.
//!
//! The identity of a process in a Pod has the name and the UID of the Pod, and when the process started. A container
//! has one process at a time, so a later process in the same Pod proves that the earlier one has ended. For other Pods
//! the kubelet's report counts: the container terminated after the process had started. Both times are of the same
//! node's clock.
//!
//! A Pod that no longer exists proves nothing: on a node without a working kubelet its process may still run.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, Pod};

/// The container of the operator in its Pod.
pub const CONTAINER: &str = "operator";

/// A process of the operator in a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProcess {
    /// The Pod's name.
    pub pod: String,
    /// The Pod's UID.
    pub uid: String,
    /// When the process started.
    pub started: Timestamp,
}

impl PodProcess {
    /// The identity of the process in the Lease.
    pub fn identity(&self) -> String {
        format!("{}_{}_{}", self.pod, self.uid, self.started.as_millisecond())
    }

    /// The process with this identity; `None` if the identity has another form.
    pub fn parse(identity: &str) -> Option<Self> {
        let (rest, started) = identity.rsplit_once('_')?;
        let (pod, uid) = rest.rsplit_once('_')?;
        let started = Timestamp::from_millisecond(started.parse().ok()?).ok()?;
        let is_complete = !pod.is_empty() && !uid.is_empty();
        is_complete.then(|| Self { pod: pod.to_owned(), uid: uid.to_owned(), started })
    }

    /// Whether `later` runs in the same container and started after this process, which has therefore ended.
    pub fn is_succeeded_by(&self, later: &Self) -> bool {
        self.uid == later.uid && self.started < later.started
    }

    /// Whether the Pod shows that this process has ended.
    pub fn has_ended(&self, pod: &Pod) -> bool {
        if pod.metadata.uid.as_ref() != Some(&self.uid) {
            return false;
        }
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        let status = statuses.unwrap_or_default().iter().find(|status| status.name == CONTAINER);
        let states = status.into_iter().flat_map(|status| [&status.state, &status.last_state]);
        states.flatten().any(|state| self.is_before_end_of(state))
    }

    /// The kubelet reports whole seconds, rounded down, so a process that started within the second in which an
    /// earlier one ended is not taken for that one.
    fn is_before_end_of(&self, state: &ContainerState) -> bool {
        let ended = state.terminated.as_ref().and_then(|ended| ended.finished_at.as_ref());
        ended.is_some_and(|ended| ended.0 > self.started)
    }
}
