//! Decides the rollout; in a deletion, also which sandboxed pods hold up its Jobs, and what is read before the next one.
//!
//! The first Job of a deletion begins once no sandboxed pod is left in the cluster, and none of the operator's classes can
//! start. From then on only pods of foreign RuntimeClasses can come to a node. So as long as a Job of the deletion exists,
//! each further one waits for the pods on its own node only. Only a pass that creates a Job has them read, or all pods if
//! many nodes are next. If there is one, or if no Job of the deletion is left, the pods of the whole cluster hold up the
//! deletion again. This module creates no Job and changes no node.

use kata_api::node_task::NodeAction;

use super::cluster::{Cluster, Due};
use super::rollout;
use crate::draft::Draft;
use crate::pods::NotRead;

/// Decides which nodes may be changed now, and requests the pods on those from which a deletion removes Kata next.
pub(super) fn decide_rollout(cluster: &mut Cluster<'_>, out: &mut Draft) {
    // The assessment gets its nodes only after the rollout is decided.
    for host in &cluster.nodes {
        cluster.base.pods.include_node(&host.node.facts.name);
    }
    let is_closed = is_closed_to_new_pods(cluster);
    let (is_free, is_read) = match cluster.base.pods.cluster_is_free() {
        Ok(is_free) => (is_free, true),
        Err(NotRead::Failed(_)) => (false, true),
        Err(NotRead::NotAsked) => (false, false),
    };
    // A list of all pods may be a remembered one, which shows that pods are left, but not where.
    let has_begun = is_closed && !is_read && has_removal_job(cluster);
    permit(cluster, has_begun, has_begun || (is_closed && is_free));
    if !has_begun {
        return;
    }
    let mut unread = Vec::new();
    let next = cluster.nodes.iter().filter(|host| {
        host.due == Due::Change(NodeAction::Remove)
            && cluster.rollout.permitted.contains(&host.node.facts.name)
    });
    for host in next {
        match cluster.base.pods.on_node(&host.node.facts.name) {
            Ok(pods) if pods.is_empty() => {}
            Err(NotRead::NotAsked) => unread.push(host.node.object()),
            Ok(_) | Err(NotRead::Failed(_)) => return permit(cluster, false, false),
        }
    }
    for node in &unread {
        cluster.rollout.permitted.remove(&node.name);
    }
    out.request_pods_on(unread, &cluster.base.pods);
}

/// Decides which nodes may be changed now. `is_committed`: each Job waits for the pods on its own node only. `may_remove`:
/// the deletion may create Jobs.
fn permit(cluster: &mut Cluster<'_>, is_committed: bool, may_remove: bool) {
    cluster.base.removal_is_committed = is_committed;
    cluster.may_remove = may_remove;
    cluster.rollout = rollout::rollout(cluster);
}

/// Whether the KataConfig is being deleted, and no pod of the operator's RuntimeClasses can start any more.
fn is_closed_to_new_pods(cluster: &Cluster<'_>) -> bool {
    cluster.base.deleting
        && !cluster.nodes.iter().any(|host| host.node.has_runtime_label)
        && cluster.base.classes_to_delete().next().is_none()
}

/// Whether there is a Job of this deletion. One of the same second may be older than the deletion.
fn has_removal_job(cluster: &Cluster<'_>) -> bool {
    let Some(deleted) = &cluster.base.config.metadata.deletion_timestamp else { return false };
    let mut jobs = cluster.snapshot.jobs.jobs.known().into_iter().flatten();
    jobs.any(|job| {
        job.action == NodeAction::Remove && job.created.is_some_and(|created| created > deleted.0)
    })
}
