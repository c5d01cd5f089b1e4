//! The steps, findings, waits and reads that one part of the decision adds to the plan and to the report.
//!
//! A draft only collects them. The two back ends and [`crate::plan`] decide which steps there are.

use std::collections::BTreeSet;

use kata_api::Code;

use crate::object::ObjectRef;
use crate::plan::{Action, OnFailure, Step};
use crate::pods::SandboxedPods;
use crate::report::{Finding, Waiting, WaitingOn};
use crate::snapshot::{Need, PodScope};
use crate::text;

/// With more nodes than this, one read of all pods replaces one read for each node.
const NODES_FOR_CLUSTER_READ: usize = 20;

/// Steps, and why other steps have to wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) steps: Vec<Step>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) waiting_on: Vec<WaitingOn>,
    /// The nodes that wait for the first of the reasons why nodes that could be changed have to wait.
    pub(crate) queue: Option<Queue>,
    pub(crate) needs: BTreeSet<Need>,
    /// The RuntimeClasses of the pods that block the deletion of the KataConfig.
    pub(crate) blocked_by: BTreeSet<String>,
}

/// Nodes that wait for the same reason.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// Such as `the first node must succeed first`.
    pub(crate) reason: String,
    pub(crate) nodes: Vec<String>,
}

impl Draft {
    pub(crate) fn push(&mut self, action: Action, on_failure: OnFailure, why: impl Into<String>) {
        self.steps.push(Step { action, on_failure, why: why.into() });
    }

    pub(crate) fn delete(&mut self, object: ObjectRef, on_failure: OnFailure, why: &str) {
        self.push(Action::Delete { object, resource_version: None }, on_failure, why);
    }

    pub(crate) fn wait_for(
        &mut self,
        what: Waiting,
        subject: ObjectRef,
        message: impl Into<String>,
    ) {
        self.waiting_on.push(WaitingOn { what, subject, message: message.into() });
    }

    /// Requests the pods on these nodes, and waits for them.
    pub(crate) fn request_pods_on(&mut self, nodes: Vec<ObjectRef>, pods: &SandboxedPods) {
        let many = nodes.len() > NODES_FOR_CLUSTER_READ;
        for node in nodes {
            let scope = if many { PodScope::Cluster } else { PodScope::Node(node.name.clone()) };
            self.needs.insert(pods.need(scope));
            let message = format!("the pods on {} to be read", node.name);
            self.wait_for(Waiting::Read, node, message);
        }
    }

    pub(crate) fn add_finding(&mut self, code: Code, subject: ObjectRef, message: String) {
        self.findings.push(Finding::new(code, subject, message));
    }

    /// Adds a wait for nodes that are not being changed, each with its reason; `None` if another part of the
    /// report gives the reason. Nodes with the same reason share one message.
    pub(crate) fn wait_in_queue<'a>(
        &mut self,
        subject: &ObjectRef,
        nodes: impl IntoIterator<Item = (Option<String>, &'a str)>,
    ) {
        let mut groups: Vec<(Option<String>, Vec<&str>)> = Vec::new();
        for (reason, node) in nodes {
            match groups.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, group)) => group.push(node),
                None => groups.push((reason, vec![node])),
            }
        }
        for (reason, nodes) in groups {
            let detail = reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            let message = format!(
                "{} that {} not being changed{detail}: {}",
                text::count(nodes.len(), "node"),
                if nodes.len() == 1 { "is" } else { "are" },
                text::list(&nodes, text::NAMES)
            );
            self.wait_for(Waiting::Node, subject.clone(), message);
            if let (None, Some(reason)) = (&self.queue, reason) {
                let nodes = nodes.into_iter().map(str::to_owned).collect();
                self.queue = Some(Queue { reason, nodes });
            }
        }
    }

    /// Adds the content of another draft.
    pub(crate) fn append(&mut self, other: Self) {
        let Self { steps, findings, waiting_on, queue, needs, blocked_by } = other;
        self.steps.extend(steps);
        self.findings.extend(findings);
        self.waiting_on.extend(waiting_on);
        self.queue = self.queue.take().or(queue);
        self.needs.extend(needs);
        self.blocked_by.extend(blocked_by);
    }
}
