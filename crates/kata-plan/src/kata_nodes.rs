//! The KataNode of each node: body and status.
//!
//! A status is written when there is something new to tell: another phase, another thing that holds
//! the node up. The steps of a change follow each other within seconds on a fast node, and nobody
//! reads them there; they are written only when they last.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kata_api::KataNodeStatus;
use kata_api::kata_node::{HostStatus, JobOutcome, Phase};
use serde_json::json;

use crate::hosts::HostNode;
use crate::mco::Runs;
use crate::object::{Kind, ObjectRef};
use crate::plan::{Action, OnFailure, Step};
use crate::text;
use crate::view::{self, NodeView, View};

/// Most bytes of a message in a KataNode.
const MESSAGE: usize = 1_024;
/// For how long after a status was written its step and details may be out of date while the node is
/// being changed. A step is therefore known to have begun up to so much before its `since`.
pub(crate) const STEPS_WAIT: Duration = Duration::from_secs(30);

/// Adds the steps that bring a node's KataNode up to date.
pub(crate) fn push(view: &View<'_>, node: &NodeView<'_>, steps: &mut Vec<Step>) {
    let name = &node.facts.name;
    let config = view.config.metadata.name.clone().unwrap_or_default();
    let object = ObjectRef::new(
        Kind::KataNode,
        name,
        node.previous.and_then(|previous| previous.metadata.uid.as_deref()),
    );
    let head = json!({
        "apiVersion": Kind::KataNode.api_version(),
        "kind": Kind::KataNode.as_str(),
    });
    let current = node.previous.is_some_and(|previous| {
        previous.metadata.name.as_deref() == Some(name)
            && previous.spec.kata_config == config
            && previous
                .metadata
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.uid == node.facts.uid)
    });
    if !current {
        let mut body = head.clone();
        body["metadata"] = json!({
            "name": name,
            "labels": {
                kata_api::names::MANAGED_BY: kata_api::names::PRODUCT,
                kata_api::names::PART_OF: kata_api::names::PRODUCT,
            },
            "ownerReferences": [{
                "apiVersion": Kind::Node.api_version(),
                "kind": Kind::Node.as_str(),
                "name": name,
                "uid": node.facts.uid,
            }],
        });
        body["spec"] = json!({"nodeName": name, "kataConfig": config});
        steps.push(Step {
            action: Action::Apply { object: object.clone(), body },
            on_failure: OnFailure::Continue,
            why: "it tells how far the node is".to_owned(),
        });
    }
    let status = status(view, node);
    if is_news(view, node, &status) {
        let mut body = head;
        body["metadata"] = json!({"name": name});
        body["status"] = json!(status);
        steps.push(Step {
            action: Action::ApplyStatus { object, body },
            on_failure: OnFailure::Continue,
            why: format!("{} {}", status.phase.as_str(), status.step).trim_end().to_owned(),
        });
    }
}

/// Whether a status says something that its reader does not know yet.
fn is_news(view: &View<'_>, node: &NodeView<'_>, status: &KataNodeStatus) -> bool {
    let told = |status: &KataNodeStatus| {
        (status.phase, status.ready.clone(), status.code.clone(), status.message.clone())
    };
    let Some(written) = node.previous.and_then(|previous| previous.status.as_ref()) else {
        // Without a status a KataNode reads as waiting.
        return node.phase != Phase::Waiting || node.finding.is_some() || status.host.is_some();
    };
    // What came of a Job is remembered nowhere else.
    if told(written) != told(status) || written.host != status.host {
        return true;
    }
    if node.phase == Phase::Waiting || written == status {
        return false;
    }
    steps_due(node).is_none_or(|due| view.now >= due)
}

/// When the step of a node that is being changed is to be written, if it is not by then; `None` if
/// nothing has to wait.
pub(crate) fn steps_due(node: &NodeView<'_>) -> Option<Timestamp> {
    if !node.in_flight() {
        return None;
    }
    let written = node.previous?.status.as_ref()?.since?;
    let wait = SignedDuration::try_from(STEPS_WAIT).unwrap_or(SignedDuration::MAX);
    written.checked_add(wait).ok()
}

/// Whether the step that a node is at is not the one that its KataNode tells.
pub(crate) fn step_is_untold(node: &NodeView<'_>) -> bool {
    node.previous
        .and_then(|previous| previous.status.as_ref())
        .is_some_and(|written| written.step != view::step_text(node.step))
}

/// The status of a node's KataNode.
fn status(view: &View<'_>, node: &NodeView<'_>) -> KataNodeStatus {
    let facts = node.facts;
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    // One that was left broken does not offer what it told before.
    let broken = |host: &&HostNode<'_>| {
        host.known.status.job.as_ref().and_then(|job| job.outcome) == Some(JobOutcome::Unsafe)
    };
    let host = node.host.as_ref().filter(|host| !broken(host));
    let known_to_host = host.map(|host| &host.known.status.handlers);
    let reported: Vec<&String> = match (&facts.runtime_handlers, known_to_host) {
        (Some(reported), _) => reported.iter().collect(),
        // An older kubelet reports none; the container runtime itself told the Job.
        (None, Some(handlers)) => handlers.iter().collect(),
        (None, None) => Vec::new(),
    };
    KataNodeStatus {
        ready: match (node.phase, node.runs) {
            (Phase::Ready, _) => "True",
            (Phase::Unknown, Runs::Unknown) => "Unknown",
            _ => "False",
        }
        .to_owned(),
        phase: node.phase,
        step: view::step_text(node.step),
        since: Some(node.since),
        code: node.finding.as_ref().map(|finding| finding.code.to_string()),
        message: node
            .finding
            .as_ref()
            .map(|finding| text::cut(&finding.message, MESSAGE))
            .unwrap_or_default(),
        handlers: reported
            .into_iter()
            .filter(|handler| {
                view.runtimes.iter().any(|runtime| runtime.effective_handler() == *handler)
            })
            .cloned()
            .collect(),
        current_config: known(facts.current_config()),
        desired_config: known(facts.desired_config()),
        container_runtime_version: known(&facts.container_runtime_version),
        kernel_version: known(&facts.kernel_version),
        boot_id: known(&facts.boot_id),
        host: node
            .host
            .as_ref()
            .map(|host| host.known.status.clone())
            .filter(|host| *host != HostStatus::default()),
    }
}
