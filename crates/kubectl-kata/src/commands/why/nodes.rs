//! Why a pod fits on no node, node by node, with what Kata has to do with it. Pure.
//!
//! The scheduler decides; this repeats its filters to name what it only counts.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::kata_node::Phase;
use kata_api::{Code, KataNode, Who, names};
use serde_json::Value;

use crate::document::{NodeProgress, NodeVerdict, Problem, WhyReport};
use crate::human::{self, quantity};
use crate::pod::Pod;

/// The verdict of every node if the pod was admitted while its RuntimeClass was closed.
const CLASS_CLOSED: &str = "the RuntimeClass takes no new pods";

/// The begin of the verdict of a node that should not have the pod's runtime.
const NOT_SELECTED: &str = "not selected by installOn of";

/// Texts of the scheduler about requirements that are not checked here, and who can change them.
const UNCHECKED: [(&str, Who); 10] = [
    ("non-existent persistentvolume", Who::ClusterAdministrator),
    ("persistentvolumeclaim \"", Who::ApplicationTeam),
    ("volume node affinity conflict", Who::ClusterAdministrator),
    ("unbound immediate PersistentVolumeClaims", Who::ClusterAdministrator),
    ("persistent volumes to bind", Who::ClusterAdministrator),
    ("Too many pods", Who::ClusterAdministrator),
    ("topology spread", Who::ApplicationTeam),
    ("anti-affinity", Who::ApplicationTeam),
    ("pod affinity", Who::ApplicationTeam),
    ("free ports", Who::ApplicationTeam),
];

/// Who can change a requirement that the scheduler names and that is not checked here, such as a device.
fn unchecked(said: &str) -> Option<Who> {
    let is_other = |rest: &str| !rest.starts_with("cpu") && !rest.starts_with("memory");
    if said.split("Insufficient ").skip(1).any(is_other) {
        return Some(Who::ClusterAdministrator);
    }
    UNCHECKED.iter().find(|(text, _)| said.contains(text)).map(|(_, who)| *who)
}

/// What the scheduler wrote into the pod.
pub(super) fn scheduler_message(pod: &Value) -> Option<String> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled")?;
    (scheduled["status"] == "False")
        .then(|| scheduled["message"].as_str().unwrap_or_default().to_owned())
}

/// Whether the scheduler waits until the pod's scheduling gates are removed.
pub(super) fn is_gated(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == "PodScheduled" && it["reason"] == "SchedulingGated")
}

/// What each node says to the pod. `install_on` selects the nodes that should have its runtime.
pub(super) fn verdicts(
    pod: &Value,
    slim: &Pod,
    nodes: &[Value],
    pods: &[Pod],
    kata: &[KataNode],
    install_on: Option<&LabelSelector>,
) -> Vec<NodeVerdict> {
    let mut used: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
    for other in pods.iter().filter(|other| !other.is_finished()) {
        if let Some(node) = other.node() {
            let entry = used.entry(node).or_default();
            entry.0 += other.takes("cpu");
            entry.1 += other.takes("memory");
        }
    }
    nodes
        .iter()
        .map(|node| {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let kata = kata.iter().find(|kata| kata.spec.node_name == name);
            let used = used.get(name).copied().unwrap_or_default();
            let (verdict, rollout) = verdict(pod, slim, node, used, kata, install_on);
            NodeVerdict { name: name.to_owned(), verdict, rollout }
        })
        .collect()
}

fn verdict(
    pod: &Value,
    slim: &Pod,
    node: &Value,
    used: (i128, i128),
    kata: Option<&KataNode>,
    install_on: Option<&LabelSelector>,
) -> (String, bool) {
    let spec = &pod["spec"];
    let labels: BTreeMap<String, String> =
        serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default();
    if let Some(taint) = repelling(spec, node) {
        return (format!("taint {taint} is not tolerated"), false);
    }
    let wanted = spec["nodeSelector"].as_object();
    let lacking: Vec<(&String, &Value)> = wanted
        .into_iter()
        .flatten()
        .filter(|(key, value)| labels.get(*key).map(String::as_str) != value.as_str())
        .collect();
    if lacking.iter().any(|(key, _)| *key == names::CLOSED_LABEL) {
        return (CLASS_CLOSED.to_owned(), false);
    }
    // What the admin asked for says more than what follows from it.
    if let Some((key, value)) = lacking.iter().find(|(key, _)| !is_ours(key)) {
        let value = value.as_str().unwrap_or_default();
        return (format!("the node lacks the label {key}={value}"), false);
    }
    let is_outside = |selector| kata_plan::selector::matches(selector, &labels) == Ok(false);
    if !lacking.is_empty() && install_on.is_some_and(is_outside) {
        let class = slim.class().unwrap_or_default();
        return (format!("{NOT_SELECTED} RuntimeClass {class}"), false);
    }
    if !lacking.is_empty() {
        let has_kata = labels.get(names::RUNTIME_LABEL).map(String::as_str)
            == Some(names::RUNTIME_LABEL_VERIFIED);
        return if has_kata
            && lacking.iter().all(|(key, _)| key.starts_with(names::CLASS_LABEL_PREFIX))
        {
            let class = slim.class().unwrap_or_default();
            (format!("has Kata, but does not serve RuntimeClass {class}"), false)
        } else {
            of_kata(kata)
        };
    }
    if node["spec"]["unschedulable"] == true {
        return match kata.and_then(|kata| kata.status.as_ref()) {
            Some(status) if !status.step.is_empty() => {
                (format!("cordoned by the roll-out ({})", status.step), true)
            }
            _ => ("cordoned".to_owned(), false),
        };
    }
    if !affinity(spec, node["metadata"]["name"].as_str().unwrap_or_default(), &labels) {
        return ("does not match the pod's node affinity".to_owned(), false);
    }
    let all =
        |key: &str| node["status"]["allocatable"][key].as_str().and_then(quantity).unwrap_or(0);
    let short = |key: &str, used: i128| (used + slim.takes(key) - all(key)).max(0);
    let (cpu, memory) = (short("cpu", used.0), short("memory", used.1));
    let mut lacks = Vec::new();
    if memory > 0 {
        lacks.push(format!("memory short by {}", human::memory(memory / 1_000)));
    }
    if cpu > 0 {
        lacks.push(format!("CPU short by {}", human::cpu(cpu)));
    }
    if lacks.is_empty() { ("fits".to_owned(), false) } else { (lacks.join(", "), false) }
}

/// What a node without the label of verified nodes lacks.
fn of_kata(kata: Option<&KataNode>) -> (String, bool) {
    let Some(status) = kata.and_then(|kata| kata.status.as_ref()) else {
        return ("not selected for Kata".to_owned(), false);
    };
    let with_step = |what: &str| {
        if status.step.is_empty() { what.to_owned() } else { format!("{what} ({})", status.step) }
    };
    match status.phase {
        Phase::Waiting => ("Kata is not installed yet".to_owned(), true),
        Phase::Installing => (with_step("Kata is being installed"), true),
        Phase::Updating => (with_step("changed by a roll-out"), true),
        Phase::Ready => ("is being opened to sandboxed pods".to_owned(), true),
        Phase::WaitingToRemove if status.provided => {
            ("it is leaving spec.providedNodes".to_owned(), false)
        }
        Phase::WaitingToRemove | Phase::Removing => ("Kata is being removed".to_owned(), false),
        Phase::Failed | Phase::NotReady | Phase::Unknown => {
            let code = status.code.as_ref().map_or_else(String::new, |code| format!(" ({code})"));
            (format!("Kata does not work there{code}: {}", status.message), false)
        }
    }
}

/// The first taint that the pod does not tolerate, as `key` or `key=value`; a cordon is told elsewhere.
fn repelling(spec: &Value, node: &Value) -> Option<String> {
    let tolerations = spec["tolerations"].as_array();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    node["spec"]["taints"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|taint| taint["effect"] != "PreferNoSchedule")
        .filter(|taint| taint["key"] != "node.kubernetes.io/unschedulable")
        .find(|taint| {
            !tolerations.into_iter().flatten().any(|toleration| {
                let key = text(&toleration["key"]);
                let effect = text(&toleration["effect"]);
                let exists = toleration["operator"] == "Exists";
                (key == text(&taint["key"]) || (key.is_empty() && exists))
                    && (effect.is_empty() || effect == text(&taint["effect"]))
                    && (exists || text(&toleration["value"]) == text(&taint["value"]))
            })
        })
        .map(|taint| match text(&taint["value"]).as_str() {
            "" => text(&taint["key"]),
            value => format!("{}={value}", text(&taint["key"])),
        })
}

/// Whether the node matches the pod's required affinity. A term matches if all its requirements do, and one term
/// suffices.
fn affinity(spec: &Value, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let Some(terms) = required["nodeSelectorTerms"].as_array() else { return true };
    // The only field that Kubernetes allows is the name.
    let fields = BTreeMap::from([("metadata.name".to_owned(), name.to_owned())]);
    let is_empty = |requirements: &Value| requirements.as_array().is_none_or(Vec::is_empty);
    let matches = |requirements: &Value, values: &BTreeMap<String, String>| {
        let selector = LabelSelector {
            match_expressions: serde_json::from_value(requirements.clone()).ok(),
            match_labels: None,
        };
        // Gt and Lt are unknown there; they are given the benefit of the doubt.
        kata_plan::selector::matches(&selector, values).unwrap_or(true)
    };
    terms.iter().any(|term| {
        let (expressions, names) = (&term["matchExpressions"], &term["matchFields"]);
        !(is_empty(expressions) && is_empty(names))
            && matches(expressions, labels)
            && matches(names, &fields)
    })
}

/// That no node with Kata has the labels that the pod itself wants, or none that its affinity wants.
pub(super) fn unmatched(pod: &Value, nodes: &[Value], subject: &str) -> Option<Problem> {
    let spec = &pod["spec"];
    let labels = |node: &Value| -> BTreeMap<String, String> {
        serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default()
    };
    let name = |node: &Value| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let with_kata = nodes.iter().filter(|node| {
        labels(node).get(names::RUNTIME_LABEL).map(String::as_str)
            == Some(names::RUNTIME_LABEL_VERIFIED)
    });
    let with_kata: Vec<(String, BTreeMap<String, String>)> =
        with_kata.map(|node| (name(node), labels(node))).collect();
    let (first, _) = with_kata.first()?;
    let selector = spec["nodeSelector"].as_object();
    let own: Vec<(&str, &str)> = selector
        .into_iter()
        .flatten()
        .filter(|(key, _)| !is_ours(key))
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    let has = |labels: &BTreeMap<String, String>| {
        own.iter().all(|(key, value)| labels.get(*key).map(String::as_str) == Some(*value))
    };
    let problem = |message: String, fix: String, who| {
        Problem::new(Code::NoNodeFits, subject, message).with_fix(fix).with_who(who)
    };
    if !with_kata.iter().any(|(_, labels)| has(labels)) {
        let wanted: Vec<String> = own.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let message = format!(
            "no node with Kata matches the pod's own nodeSelector {}",
            human::list(&wanted, 5)
        );
        let fix = format!(
            "correct the nodeSelector; or a cluster administrator labels a node: `kubectl label node {first} \
             {}`",
            wanted.join(" ")
        );
        return Some(problem(message, fix, Who::ApplicationTeam));
    }
    if !with_kata.iter().any(|(name, labels)| affinity(spec, name, labels)) {
        let message = "no node with Kata matches the pod's own node affinity".to_owned();
        let fix =
            "correct spec.affinity.nodeAffinity of the pod, or give a node that it matches Kata";
        return Some(problem(message, fix.to_owned(), Who::ApplicationTeam));
    }
    None
}

/// Whether a label of nodes is one that the operator gives them.
fn is_ours(key: &str) -> bool {
    [names::RUNTIME_LABEL, names::CLAIM_LABEL, names::KATA_ROLE_LABEL, names::MASTER_ROLE_LABEL]
        .contains(&key)
        || key.starts_with(names::CLASS_LABEL_PREFIX)
        || key == names::CLOSED_LABEL
}

/// The cause, and what will happen; `deleting` is the KataConfig if it is being deleted, `stalled` is what keeps
/// the rollout from going on, if it does not, and `unmatched` what [`unmatched`] found.
pub(super) fn conclusion(
    report: &WhyReport,
    deleting: Option<&str>,
    progress: &[NodeProgress],
    stalled: Vec<Problem>,
    unmatched: Option<Problem>,
    said: Option<&str>,
) -> (Vec<Problem>, String) {
    let subject = report.target.as_str();
    if report.nodes.iter().any(|node| node.verdict == CLASS_CLOSED) {
        let class = report.runtime_class.as_deref().unwrap_or_default();
        let (message, fix) = match deleting {
            Some(config) => (
                format!(
                    "RuntimeClass {class} takes no new pods, because the KataConfig {config} is being deleted"
                ),
                "delete the pod and what creates it, since the deletion waits for it; to run it with Kata, \
                 create a KataConfig again after that",
            ),
            None => (
                format!(
                    "RuntimeClass {class} took no new pods when the pod was created, because the KataConfig \
                     was being deleted"
                ),
                "create a KataConfig, then delete the pod and create it again",
            ),
        };
        return (
            vec![Problem::new(Code::NoNodeFits, subject, message).with_fix(fix)],
            "will not be scheduled: a pod keeps the node selector that it was admitted with"
                .to_owned(),
        );
    }
    let of_others = said.and_then(|said| Some((said, unchecked(said)?)));
    let fits = report.nodes.iter().any(|node| node.verdict == "fits");
    if let (Some((said, who)), true) = (of_others, fits) {
        let problem =
            Problem::new(Code::NoNodeFits, subject, format!("the scheduler says: {said}"))
                .with_fix("change the requirement of the pod, or give a node the resource")
                .with_who(who);
        return (vec![problem], "will not be scheduled until something changes".to_owned());
    }
    if report.nodes.iter().any(|node| node.verdict == "fits") {
        let text =
            said.map_or_else(String::new, |said| format!(" The scheduler last said: {said}"));
        let names: Vec<&str> = report
            .nodes
            .iter()
            .filter(|node| node.verdict == "fits")
            .map(|node| node.name.as_str())
            .collect();
        return (
            Vec::new(),
            format!(
                "it fits on {}, and should be scheduled at once.{text}",
                human::list(&names, 3)
            ),
        );
    }
    let coming: Vec<&NodeVerdict> = report.nodes.iter().filter(|node| node.rollout).collect();
    if !coming.is_empty() && !stalled.is_empty() {
        let names: Vec<&str> = coming.iter().map(|node| node.name.as_str()).collect();
        let outlook = format!(
            "will not be scheduled before {} is given Kata; manual action required",
            human::list(&names, 3)
        );
        return (stalled, outlook);
    }
    if !coming.is_empty() {
        let eta = progress
            .iter()
            .filter(|node| coming.iter().any(|coming| coming.name == node.name))
            .filter_map(|node| Some((node.eta_seconds?, node.name.as_str())))
            .min();
        let outlook = match eta {
            Some((seconds, name)) => format!(
                "will probably be scheduled in {}, when {name} is ready",
                human::about(jiff::SignedDuration::from_secs(seconds))
            ),
            None => {
                let names: Vec<&str> = coming.iter().map(|node| node.name.as_str()).collect();
                format!(
                    "will be scheduled when one of {} is ready; how long that takes is not known before \
                     the first node is done",
                    human::list(&names, 3)
                )
            }
        };
        let message = format!(
            "{} that could take the pod {} being given Kata",
            human::count(coming.len(), "node"),
            if coming.len() == 1 { "is" } else { "are" }
        );
        return (vec![Problem::new(Code::WaitsForRollout, subject, message)], outlook);
    }
    let short: Vec<&NodeVerdict> =
        report.nodes.iter().filter(|node| node.verdict.contains("short by")).collect();
    let is_outside = |node: &NodeVerdict| node.verdict.starts_with(NOT_SELECTED);
    let is_repelled = |node: &&NodeVerdict| node.verdict.starts_with("taint ");
    let fix = match short.first() {
        Some(node) => format!(
            "free what {} lacks ({}), ask for less, or give more nodes Kata",
            node.name, node.verdict
        ),
        None if report.nodes.iter().filter(|node| !is_repelled(node)).all(is_outside) => {
            "label a node so that spec.runtimes[].installOn of the KataConfig selects it, or use another \
             RuntimeClass"
                .to_owned()
        }
        None => "give a node Kata that the pod tolerates and selects: see `kubectl kata nodes`"
            .to_owned(),
    };
    let message = match (report.nodes.is_empty(), said) {
        (true, Some(said)) => format!("the scheduler says: {said}"),
        (true, None) => "the scheduler has not said anything yet".to_owned(),
        (false, _) => "no node can take the pod now".to_owned(),
    };
    let outlook = if report.nodes.is_empty() {
        String::new()
    } else {
        "will not be scheduled until something changes".to_owned()
    };
    let problem = || Problem::new(Code::NoNodeFits, subject, message).with_fix(fix);
    (vec![unmatched.unwrap_or_else(problem)], outlook)
}
