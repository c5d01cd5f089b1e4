//! What is known before a probe is run: that the RuntimeClass does not exist, or that the node cannot take
//! a sandboxed pod now. Whoever is told so at once need not wait until nothing came. Pure.

use kata_api::{Code, KataNode};

use super::{NodeInfo, failed};
use crate::cluster::Kata;
use crate::document::{Problem, Verdict, VerifyResult};
use crate::failure::Failure;
use crate::human;
use crate::problem;

/// How many names a message shows.
const NAMES: usize = 5;
/// Labels of nodes of the control plane.
const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Refuses a RuntimeClass that does not exist.
pub(super) fn class(class: &str, kata: &Kata) -> Result<(), Failure> {
    let Some(classes) = kata.classes.as_known() else { return Ok(()) };
    let names: Vec<&str> =
        classes.iter().filter_map(|class| class.metadata.name.as_deref()).collect();
    if names.contains(&class) {
        return Ok(());
    }
    let others = if names.is_empty() {
        "there is none at all".to_owned()
    } else {
        format!("there are {}", human::list(&names, NAMES))
    };
    Err(Failure::NotFound(format!(
        "there is no RuntimeClass {class}, so no pod can use it; {others}"
    )))
}

/// What the operator says of a node that cannot run sandboxed pods.
pub(super) fn node(info: &NodeInfo, node: Option<&KataNode>, kata: &Kata) -> Option<Verdict> {
    let name = &info.name;
    let subject = format!("node/{name}");
    let Some(node) = node else {
        let found = kata.active().map(|active| problem::of_status(active, kata.nodes.items()));
        let found = found.into_iter().flatten().find(|it| it.subject == subject);
        return Some(refused(found.unwrap_or_else(|| {
            let control_plane = CONTROL_PLANE.iter().any(|label| info.labels.contains_key(*label));
            let (why, fix) = if control_plane {
                let why = "it belongs to the control plane, and is left as it is";
                (why, "verify one of those that `kubectl kata nodes` lists")
            } else {
                let why = "the KataConfig does not select it";
                (
                    why,
                    "give it the labels that the KataConfig selects, and see `kubectl kata nodes`",
                )
            };
            let text = format!("node {name} has no Kata: {why}");
            Problem::new(Code::ProbeFailed, subject, text).with_fix(fix)
        })));
    };
    let status = node.status.clone().unwrap_or_default();
    if status.ready == "True" {
        return None;
    }
    let told = problem::of_node(node).unwrap_or_else(|| {
        let step = [status.phase.as_str(), &status.step, &status.message]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(", ");
        let text = format!("node {name} cannot run sandboxed pods now: {step}");
        let fix = format!("wait for it: `kubectl kata wait --for node/{name}=Ready`");
        Problem::new(Code::ProbeFailed, subject, text).with_fix(fix)
    });
    Some(refused(told))
}

/// A node to which the RuntimeClass takes no pod.
pub(super) fn scheduling(info: &NodeInfo, class: &str, kata: &Kata) -> Option<Verdict> {
    // Nothing is known of it.
    info.facts.as_ref()?;
    let all = kata.classes.items().iter();
    let found = all.into_iter().find(|known| known.metadata.name.as_deref() == Some(class))?;
    let selector = found.scheduling.as_ref()?.node_selector.as_ref()?;
    let lacking: Vec<String> = selector
        .iter()
        .filter(|(key, value)| info.labels.get(*key) != Some(*value))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if lacking.is_empty() {
        return None;
    }
    let name = &info.name;
    let text = format!(
        "RuntimeClass {class} takes pods only to nodes with {}, which node {name} does not have",
        human::list(&lacking, NAMES)
    );
    let problem = Problem::new(Code::ProbeFailed, format!("node/{name}"), text);
    Some(refused(problem.with_fix("see `kubectl kata nodes` for the nodes that have Kata")))
}

/// The verdict when no probe was run.
fn refused(problem: Problem) -> Verdict {
    let mut verdict =
        failed(problem.subject.clone(), Code::ProbeFailed, problem.message.clone(), 0.0);
    verdict.result = VerifyResult::ProbeFailed;
    verdict.problems = vec![problem];
    verdict
}
