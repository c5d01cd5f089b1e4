//! Preconditions for creating and deleting a Job of the node agent.

use std::collections::BTreeMap;

use kata_api::names::{self};
use kata_api::node_task::{NodeAction, Outcome};
use serde_json::Value;

use super::task::{changes, handlers_of, task_of};
use super::{Facts, Kept, Property, Rollout, Violation, ensure};
use crate::classes::is_our_class;
use crate::disruption::most_unavailable;
use crate::jobs::{START_GRACE, has_operator_labels, is_claimed};
use crate::object::{Kind, ObjectRef};
use crate::plan::Action;
use crate::selector;
use crate::snapshot::{Freshness, JobPod, NodeFacts, NodeJob};
use crate::text;

impl<'a> Facts<'a> {
    fn jobs_on(&self, node: &str) -> impl Iterator<Item = &'a NodeJob> {
        self.jobs.get(node).into_iter().flat_map(|of_node| of_node.jobs.iter().copied())
    }

    fn pods_of_jobs_on(&self, node: &str) -> impl Iterator<Item = &'a JobPod> {
        self.jobs.get(node).into_iter().flat_map(|of_node| of_node.pods.iter().copied())
    }

    fn is_changing(&self, node: &str) -> bool {
        self.jobs_on(node).any(|job| job.end.is_none() && changes(job.action))
    }

    /// Whether the KataNode of a node says that Kata is installed there.
    pub(super) fn is_recorded_as_installed(&self, node: &str) -> bool {
        let host = self.kata_nodes.get(node).and_then(|it| it.status.as_ref()?.host.as_ref());
        host.is_some_and(|host| host.installed.is_some())
    }

    /// Whether the KataNode of a node says that its system or cloud provides Kata.
    pub(super) fn is_provided(&self, node: &str) -> bool {
        let status = self.kata_nodes.get(node).and_then(|it| it.status.as_ref());
        status.is_some_and(|status| status.provided)
    }

    /// Whether a Job has installed Kata on a node, and no other Job is changing it.
    pub(super) fn is_installed_by_job(&self, node: &str) -> bool {
        let recorded = self.is_recorded_as_installed(node);
        let reported = self.pods_of_jobs_on(node).any(|pod| {
            matches!(&pod.report, Some(Ok(report))
                if report.action == NodeAction::Install && report.outcome == Outcome::Done)
        });
        (recorded || reported) && !self.is_changing(node)
    }

    pub(super) fn may_make_job(&self, object: &ObjectRef, body: &Value) -> Kept {
        let task = task_of(body);
        let facts = task.and_then(|(node, _)| self.nodes.get(node).copied());
        let (Some((node, action)), Some(facts)) = (task, facts) else {
            let note = format!("{object} is created for a node that was not read");
            return Err(Violation { property: Property::KnownState, note });
        };
        // A pod may outlast its Job.
        let jobs = self.jobs_on(node).filter(|job| job.end.is_none()).map(|job| &job.name);
        let pods = self.pods_of_jobs_on(node).filter(|pod| !pod.finished).map(|pod| &pod.name);
        let unreadable = self.snapshot.jobs.unreadable.iter().filter(|job| job.node == node);
        let unreadable = unreadable.map(|job| &job.name);
        let unfinished: Vec<&String> = jobs.chain(pods).chain(unreadable).collect();
        let is_only = unfinished.is_empty() && !self.earlier.nodes_with_job.contains_key(node);
        ensure(is_only, Property::OneJobPerNode, || {
            let others = text::list(&unfinished, text::NAMES);
            format!("{object} is created while node {node} has another Job: {others}")
        })?;
        let removes = action == NodeAction::Remove;
        // What the operator installed there before is removed.
        let is_ours = removes && self.may_have_artifacts(node);
        ensure(is_ours || !self.is_for_provided(facts), Property::Ownership, || {
            format!("{object} is created for node {node}, whose system or cloud provides Kata")
        })?;
        if !changes(action) {
            return Ok(());
        }
        let label = facts.labels.get(names::RUNTIME_LABEL).map(String::as_str);
        // Running pods select the label, so it stays while Kata is changed in place.
        let is_of_kata_deploy = facts.is_of_kata_deploy()
            && (self.active.is_some_and(|config| config.spec.take_over.is_some())
                || !self.is_recorded_as_installed(node));
        let closed = !removes
            || label != Some(names::RUNTIME_LABEL_VERIFIED)
            // The label is that of kata-deploy, to which the node goes back.
            || (is_of_kata_deploy && !facts.has_class_label());
        ensure(closed, Property::ClosedToNewPods, || {
            format!("{object} removes Kata from node {node} while new sandboxed pods can start")
        })?;
        ensure(removes || is_claimed(&facts.labels), Property::KnownState, || {
            format!("{object} changes node {node}, which is not claimed")
        })?;
        if removes {
            self.ensure_no_pods_on_node(
                node,
                &format!("{object} removes the runtime of node {node}"),
            )?;
        } else {
            self.ensure_handlers_stay_under_pods(object, node, body)?;
        }
        self.ensure_rollout_allows(object, facts)
    }

    /// Whether a Job changed a node, by its KataNode or by a Job that is not recorded there yet.
    fn may_have_artifacts(&self, node: &str) -> bool {
        let host = self.kata_nodes.get(node).and_then(|it| it.status.as_ref()?.host.as_ref());
        host.is_some_and(|host| host.may_have_artifacts)
            || self.jobs_on(node).any(|job| job.action == NodeAction::Install)
    }

    /// Whether Kata is provided on a node, or `spec.providedNodes` selects it.
    fn is_for_provided(&self, node: &NodeFacts) -> bool {
        let selector = self.active.and_then(|config| config.spec.provided_nodes.as_ref());
        let selects = selector.is_some_and(|it| selector::matches(it, &node.labels) == Ok(true));
        // Until its labels are gone, pods may come to a node that was provided.
        selects || (self.is_provided(&node.name) && has_operator_labels(node))
    }

    /// An installation leaves a node every recorded handler of a RuntimeClass whose pods are on the node, or may be.
    fn ensure_handlers_stay_under_pods(
        &self,
        object: &ObjectRef,
        node: &str,
        body: &Value,
    ) -> Kept {
        let host = self.kata_nodes.get(node).and_then(|it| it.status.as_ref()?.host.as_ref());
        let Some(host) = host.filter(|host| host.may_have_artifacts) else { return Ok(()) };
        let Some(kept) = handlers_of(body) else {
            let note = format!("{object} has no task that can be read");
            return Err(Violation { property: Property::KnownState, note });
        };
        for class in self.snapshot.runtime_classes.known().into_iter().flatten() {
            let (name, handler) =
                (class.metadata.name.as_deref().unwrap_or_default(), &class.handler);
            if is_our_class(class) && host.handlers.contains(handler) && !kept.contains(handler) {
                self.ensure_no_pods_of_class_on_node(
                    name,
                    node,
                    &format!("{object} removes the handler {handler} of RuntimeClass {name} from node {node}"),
                )?;
            }
        }
        Ok(())
    }

    /// The rollout is not paused, and one more node may become unavailable or this one already is.
    fn ensure_rollout_allows(&self, object: &ObjectRef, facts: &NodeFacts) -> Kept {
        let rollout = self.active.and_then(|config| config.spec.rollout.as_ref());
        ensure(rollout.is_none_or(|rollout| !rollout.paused), Property::RolloutLimits, || {
            format!("{object} changes node {} while the rollout is paused", facts.name)
        })?;
        let Rollout { limit, unavailable } = *self.rollout.get_or_init(|| self.rollout());
        let needs_no_room = |node: &NodeFacts| self.is_unavailable(node) || self.is_joining(node);
        let joins = |(name, changes): &(&&str, &bool)| {
            **changes && self.nodes.get(**name).is_some_and(|node| !needs_no_room(node))
        };
        let unavailable = unavailable + self.earlier.nodes_with_job.iter().filter(joins).count();
        let fits = needs_no_room(facts) || unavailable < limit;
        ensure(fits, Property::RolloutLimits, || {
            format!(
                "{object} makes another node unavailable: {unavailable} of at most {limit} already are"
            )
        })
    }

    fn is_unavailable(&self, node: &NodeFacts) -> bool {
        node.ready.status != Some(true) || node.unschedulable || self.is_changing(&node.name)
    }

    /// Whether a node gets Kata for the first time, and has no pod of a service.
    fn is_joining(&self, node: &NodeFacts) -> bool {
        !self.is_recorded_as_installed(&node.name) && node.has_no_service_pods(self.snapshot.now)
    }

    fn rollout(&self) -> Rollout {
        let of_nodes = self.plan.steps.iter().map(|step| (&step.action, step.action.object()));
        let of_nodes = of_nodes.filter(|(_, it)| matches!(it.kind, Kind::KataNode | Kind::Node));
        let stays = |action: &Action| !matches!(action, Action::Delete { .. });
        let written: BTreeMap<&str, bool> =
            of_nodes.map(|(action, object)| (object.name.as_str(), stays(action))).collect();
        // A node whose KataNode is deleted by this plan does not count; one whose KataNode is created counts.
        let counts = |node: &&&NodeFacts| {
            let name = node.name.as_str();
            if self.is_for_provided(node) && !self.may_have_artifacts(name) {
                return false;
            }
            let known = self.kata_nodes.contains_key(name);
            written.get(name).copied().unwrap_or(known) || is_claimed(&node.labels)
        };
        let value = self.active.and_then(|it| it.spec.rollout.as_ref()?.max_unavailable.as_ref());
        let (mut all, mut unavailable) = (0, 0);
        for node in self.nodes.values().filter(counts) {
            all += 1;
            unavailable += usize::from(self.is_unavailable(node) && !self.is_joining(node));
        }
        Rollout { limit: most_unavailable(value, all), unavailable }
    }

    /// A Job is deleted only if it has ended, changes nothing, cannot start, or its node is gone.
    pub(super) fn may_delete_job(&self, object: &ObjectRef) -> Kept {
        let job = object.uid.as_deref().and_then(|uid| self.jobs_by_uid.get(uid));
        let may_go = job.is_some_and(|job| {
            let node = self.nodes.get(job.node.as_str());
            let pods = self.pods_of_jobs_on(&job.node).filter(|pod| pod.job == job.name);
            let mut pods = pods.peekable();
            let had_its_time = job
                .created
                .is_some_and(|created| self.snapshot.now.duration_since(created) >= START_GRACE);
            let cannot_start = self.snapshot.freshness > Freshness::Cached
                && (had_its_time || pods.peek().is_some_and(|pod| pod.is_waiting()))
                && pods.all(|pod| !pod.started && !pod.finished);
            job.end.is_some()
                || !changes(job.action)
                || node.is_none_or(|node| node.uid != job.node_uid)
                || cannot_start
        });
        ensure(may_go, Property::OneJobPerNode, || format!("{object} is deleted while it runs"))
    }
}
