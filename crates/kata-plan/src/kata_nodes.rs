//! The KataNode of each node: body and status.

use kata_api::KataNodeStatus;
use kata_api::kata_node::Phase;
use serde_json::json;

use crate::mco::Runs;
use crate::object::{Kind, ObjectRef};
use crate::plan::{Action, OnFailure, Step};
use crate::text;
use crate::view::{self, NodeView, View};

/// Most bytes of a message in a KataNode.
const MESSAGE: usize = 1_024;

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
    if node.previous.and_then(|previous| previous.status.as_ref()) != Some(&status) {
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

/// The status of a node's KataNode.
fn status(view: &View<'_>, node: &NodeView<'_>) -> KataNodeStatus {
    let facts = node.facts;
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let reported = facts.runtime_handlers.iter().flatten();
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
    }
}
