//! Why a pod fits on no node, node by node, with what Kata has to do with it. Pure.
//!
//! The scheduler decides; this repeats its filters to name what it only counts.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::kata_node::Phase;
use kata_api::{Code, KataConfig, KataNode, KataNodeStatus, Who, names};
use kata_plan::selector::describes_node;
use serde_json::Value;

use super::verdict::{Verdict, best_fix};
use crate::document::{NodeProgress, NodeVerdict, Problem};
use crate::human::{self, quantity};
use crate::pod::Pod;

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

/// Why each node takes the pod or not, by its name. `install_on` selects the nodes that should have its runtime.
pub(super) fn verdicts(
    pod: &Value,
    slim: &Pod,
    nodes: &[Value],
    pods: &[Pod],
    kata: &[KataNode],
    config: Option<&KataConfig>,
    install_on: Option<&LabelSelector>,
) -> Vec<(String, Verdict)> {
    let mut used: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
    for other in pods.iter().filter(|other| !other.is_finished()) {
        if let Some(node) = other.node() {
            let entry = used.entry(node).or_default();
            entry.0 += other.takes("cpu");
            entry.1 += other.takes("memory");
        }
    }
    let of_node = |node: &Value| {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let kata = kata.iter().find(|kata| kata.spec.node_name == name);
        let used = used.get(name).copied().unwrap_or_default();
        let verdict = verdict(pod, slim, node, used, kata, config, install_on);
        (kata.is_some(), (name.to_owned(), verdict))
    };
    // Nodes with Kata first.
    let (with_kata, without): (Vec<_>, Vec<_>) =
        nodes.iter().map(of_node).partition(|(has_kata, _)| *has_kata);
    with_kata.into_iter().chain(without).map(|(_, verdict)| verdict).collect()
}

/// The verdicts as they are shown.
pub(super) fn shown(verdicts: &[(String, Verdict)]) -> Vec<NodeVerdict> {
    verdicts
        .iter()
        .map(|(name, verdict)| NodeVerdict {
            name: name.clone(),
            reason: verdict.reason(),
            verdict: verdict.to_string(),
            rollout: matches!(verdict, Verdict::InRollout(_)),
        })
        .collect()
}

fn verdict(
    pod: &Value,
    slim: &Pod,
    node: &Value,
    used: (i128, i128),
    kata: Option<&KataNode>,
    config: Option<&KataConfig>,
    install_on: Option<&LabelSelector>,
) -> Verdict {
    let spec = &pod["spec"];
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    let labels = labels(node);
    if let Some(taint) = repelling(spec, node) {
        return Verdict::Tainted(taint);
    }
    let wanted = spec["nodeSelector"].as_object();
    let lacking: Vec<(&String, &Value)> = wanted
        .into_iter()
        .flatten()
        .filter(|(key, value)| labels.get(*key).map(String::as_str) != value.as_str())
        .collect();
    if lacking.iter().any(|(key, _)| *key == names::CLOSED_LABEL) {
        return Verdict::ClassClosed;
    }
    // What the pod itself asks for says more than what follows from its class.
    if let Some((key, value)) = lacking.iter().find(|(key, _)| !is_ours(key)) {
        let value = value.as_str().unwrap_or_default();
        return Verdict::LacksLabel(format!("{key}={value}"));
    }
    if !affinity(spec, name, &labels) {
        return Verdict::OtherAffinity;
    }
    let class = || slim.class().unwrap_or_default().to_owned();
    let is_outside = |selector| kata_plan::selector::matches(selector, &labels) == Ok(false);
    if !lacking.is_empty() && install_on.is_some_and(is_outside) {
        return Verdict::NotSelectedByClass(class());
    }
    if !lacking.is_empty() {
        let lacks_class_only =
            lacking.iter().all(|(key, _)| key.starts_with(names::CLASS_LABEL_PREFIX));
        return if lacks_class_only && has_kata(&labels) {
            Verdict::ClassNotServed(class())
        } else {
            kata.and_then(|kata| kata.status.as_ref())
                .map_or_else(|| without_kata(&labels, config), of_kata)
        };
    }
    let lacks = lacks(slim, node, used);
    if node["spec"]["unschedulable"] == true {
        let status = kata.and_then(|kata| kata.status.as_ref());
        return match status.filter(|status| !status.step.is_empty()) {
            Some(status) => {
                Verdict::InRollout(format!("cordoned by the roll-out ({})", status.step))
            }
            None => Verdict::Cordoned { lacks },
        };
    }
    lacks.map_or(Verdict::Fits, Verdict::TooSmall)
}

/// What a node has too little of for a pod, beside those that are there.
fn lacks(pod: &Pod, node: &Value, used: (i128, i128)) -> Option<String> {
    let all =
        |key: &str| node["status"]["allocatable"][key].as_str().and_then(quantity).unwrap_or(0);
    let short = |key: &str, used: i128| (used + pod.takes(key) - all(key)).max(0);
    let (cpu, memory) = (short("cpu", used.0), short("memory", used.1));
    let mut lacks = Vec::new();
    if memory > 0 {
        lacks.push(format!("memory short by {}", human::memory(memory / 1_000)));
    }
    if cpu > 0 {
        lacks.push(format!("CPU short by {}", human::cpu(cpu)));
    }
    (!lacks.is_empty()).then(|| lacks.join(", "))
}

fn labels(node: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default()
}

fn has_kata(labels: &BTreeMap<String, String>) -> bool {
    labels.get(names::RUNTIME_LABEL).map(String::as_str) == Some(names::RUNTIME_LABEL_VERIFIED)
}

/// Why a node of which the operator has no record has no Kata.
fn without_kata(labels: &BTreeMap<String, String>, config: Option<&KataConfig>) -> Verdict {
    let Some(config) = config else { return Verdict::NotSelected };
    let selector = config.spec.kata_config_pool_selector.as_ref();
    let is_outside = |selector| kata_plan::selector::matches(selector, labels) == Ok(false);
    if selector.is_some_and(is_outside) {
        return Verdict::NotSelected;
    }
    let has_feature = labels.get(names::NFD_LABEL).is_some_and(|value| value == "true");
    Verdict::LeftOut { lacks_feature: config.spec.check_node_eligibility && !has_feature }
}

/// Why a node without the label of verified nodes has no Kata that works, by the record of the operator.
fn of_kata(status: &KataNodeStatus) -> Verdict {
    let with_step = |what: &str| {
        if status.step.is_empty() { what.to_owned() } else { format!("{what} ({})", status.step) }
    };
    match status.phase {
        Phase::Waiting => Verdict::InRollout("Kata is not installed yet".to_owned()),
        Phase::Installing => Verdict::InRollout(with_step("Kata is being installed")),
        Phase::Updating => Verdict::InRollout(with_step("changed by a roll-out")),
        Phase::Ready => Verdict::InRollout("is being opened to sandboxed pods".to_owned()),
        Phase::WaitingToRemove if status.provided => {
            Verdict::Leaving("it is leaving spec.providedNodes")
        }
        Phase::WaitingToRemove | Phase::Removing => Verdict::Leaving("Kata is being removed"),
        Phase::Failed | Phase::NotReady | Phase::Unknown => {
            Verdict::Failed { code: status.code.clone(), message: status.message.clone() }
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

/// That no node with Kata is one that the pod itself asks for, by its nodeSelector or its node affinity.
pub(super) fn unmatched(
    pod: &Value,
    nodes: &[Value],
    verdicts: &[(String, Verdict)],
    selector: Option<&LabelSelector>,
    subject: &str,
) -> Option<Problem> {
    let spec = &pod["spec"];
    let nodes: Vec<(&str, BTreeMap<String, String>)> = nodes
        .iter()
        .map(|node| (node["metadata"]["name"].as_str().unwrap_or_default(), labels(node)))
        .collect();
    let own: Vec<(&str, &str)> = spec["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| !is_ours(key))
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    let has = |labels: &BTreeMap<String, String>| {
        own.iter().all(|(key, value)| labels.get(*key).map(String::as_str) == Some(*value))
    };
    let with_kata = || nodes.iter().filter(|(_, labels)| has_kata(labels));
    let (first, _) = with_kata().next()?;
    let wished: BTreeSet<&str> = nodes
        .iter()
        .filter(|(name, labels)| has(labels) && affinity(spec, name, labels))
        .map(|(name, _)| *name)
        .collect();
    if with_kata().any(|(name, _)| wished.contains(name)) {
        return None;
    }
    let wanted: Vec<String> = own.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let by_selector = !with_kata().any(|(_, labels)| has(labels));
    let (what, field) = if by_selector {
        (format!("nodeSelector {}", human::list(&wanted, 5)), "spec.nodeSelector")
    } else {
        ("node affinity".to_owned(), "spec.affinity.nodeAffinity")
    };
    let problem = |message: String, fix: String, who| {
        Some(Problem::new(Code::NoNodeFits, subject, message).with_fix(fix).with_who(who))
    };
    let correct = format!("correct {field} of the pod");
    // The nodes that the pod asks for have no Kata: what they say is the cause.
    let there: Vec<(&str, &Verdict)> = verdicts
        .iter()
        .filter(|(name, _)| wished.contains(name.as_str()))
        .map(|(name, verdict)| (name.as_str(), verdict))
        .collect();
    if let Some((name, verdict)) = there.first() {
        let message =
            format!("no node with Kata matches the pod's own {what}; {name} does: {verdict}");
        let (more, who) = match best_fix(&there, selector) {
            Some((fix, who)) => (format!("; or {fix}"), who),
            None => (String::new(), Who::ApplicationTeam),
        };
        return problem(message, format!("{correct}{more}"), who);
    }
    if by_selector && !own.iter().any(|(key, _)| describes_node(key)) {
        let message = format!("no node with Kata matches the pod's own {what}");
        let label = format!("`kubectl label node {first} {}`", wanted.join(" "));
        let fix = format!("{correct}; or a cluster administrator labels a node: {label}");
        return problem(message, fix, Who::ApplicationTeam);
    }
    let message = format!("no node matches the pod's own {what}");
    problem(message, correct, Who::ApplicationTeam)
}

/// Whether a label of nodes is one that the operator gives them.
fn is_ours(key: &str) -> bool {
    [names::RUNTIME_LABEL, names::CLAIM_LABEL, names::KATA_ROLE_LABEL, names::MASTER_ROLE_LABEL]
        .contains(&key)
        || key.starts_with(names::CLASS_LABEL_PREFIX)
        || key == names::CLOSED_LABEL
}

/// What [`conclusion`] goes by.
pub(super) struct Known<'a> {
    pub(super) subject: &'a str,
    pub(super) class: &'a str,
    pub(super) verdicts: &'a [(String, Verdict)],
    /// The KataConfig, if it is being deleted.
    pub(super) deleting: Option<&'a str>,
    /// What it selects nodes by.
    pub(super) selector: Option<&'a LabelSelector>,
    pub(super) progress: &'a [NodeProgress],
    /// What keeps the roll-out from going on, if it does not.
    pub(super) stalled: Vec<Problem>,
    /// What [`unmatched`] found.
    pub(super) unmatched: Option<Problem>,
    /// What the scheduler said.
    pub(super) said: Option<&'a str>,
}

impl Known<'_> {
    /// The names of the nodes with such a verdict.
    fn named(&self, is_such: impl Fn(&Verdict) -> bool) -> Vec<&str> {
        let such = self.verdicts.iter().filter(|(_, verdict)| is_such(verdict));
        such.map(|(name, _)| name.as_str()).collect()
    }

    fn problem(&self, message: impl Into<String>, fix: impl Into<String>) -> Problem {
        Problem::new(Code::NoNodeFits, self.subject, message).with_fix(fix)
    }
}

const UNTIL_CHANGED: &str = "will not be scheduled until something changes";

/// The causes, and what will happen.
pub(super) fn conclusion(known: Known<'_>) -> (Vec<Problem>, String) {
    if !known.named(|verdict| *verdict == Verdict::ClassClosed).is_empty() {
        return closed(&known);
    }
    let fits = known.named(|verdict| *verdict == Verdict::Fits);
    if !fits.is_empty() {
        return fitting(&known, &fits);
    }
    let coming = known.named(|verdict| matches!(verdict, Verdict::InRollout(_)));
    if coming.is_empty() {
        return unfit(known);
    }
    if !known.stalled.is_empty() {
        let outlook = format!(
            "will not be scheduled before {} is given Kata; manual action required",
            human::list(&coming, 3)
        );
        return (known.stalled, outlook);
    }
    let eta = known
        .progress
        .iter()
        .filter(|node| coming.contains(&node.name.as_str()))
        .filter_map(|node| Some((node.eta_seconds?, node.name.as_str())))
        .min();
    let outlook = match eta {
        Some((seconds, name)) => format!(
            "will probably be scheduled in {}, when {name} is ready",
            human::about(jiff::SignedDuration::from_secs(seconds))
        ),
        None => format!(
            "will be scheduled when one of {} is ready; how long that takes is not known before the first \
             node is done",
            human::list(&coming, 3)
        ),
    };
    let message = format!(
        "{} that could take the pod {} being given Kata",
        human::count(coming.len(), "node"),
        if coming.len() == 1 { "is" } else { "are" }
    );
    (vec![Problem::new(Code::WaitsForRollout, known.subject, message)], outlook)
}

fn closed(known: &Known<'_>) -> (Vec<Problem>, String) {
    let class = known.class;
    let problem = match known.deleting {
        Some(config) => known.problem(
            format!(
                "RuntimeClass {class} takes no new pods, because the KataConfig {config} is being deleted"
            ),
            "delete the pod and what creates it, since the deletion waits for it; to run it with Kata, create \
             a KataConfig again after that",
        ),
        None => known.problem(
            format!(
                "RuntimeClass {class} took no new pods when the pod was created, because the KataConfig was \
                 being deleted"
            ),
            "create a KataConfig, then delete the pod and create it again",
        ),
    };
    let outlook = "will not be scheduled: a pod keeps the node selector that it was admitted with";
    (vec![problem], outlook.to_owned())
}

fn fitting(known: &Known<'_>, fits: &[&str]) -> (Vec<Problem>, String) {
    if let Some(said) = known.said
        && let Some(who) = unchecked(said)
    {
        let problem = known.problem(
            format!("the scheduler says: {said}"),
            "change the requirement of the pod, or give a node the resource",
        );
        return (vec![problem.with_who(who)], UNTIL_CHANGED.to_owned());
    }
    let last = |said| format!(" The scheduler last said: {said}");
    let text = known.said.map_or_else(String::new, last);
    let names = human::list(fits, 3);
    (Vec::new(), format!("it fits on {names}, and should be scheduled at once.{text}"))
}

/// What is in the way if no node takes the pod, and none will by itself.
fn unfit(known: Known<'_>) -> (Vec<Problem>, String) {
    if known.verdicts.is_empty() {
        let message = match known.said {
            Some(said) => format!("the scheduler says: {said}"),
            None => "the scheduler has not said anything yet".to_owned(),
        };
        let problem = Problem::new(Code::NoNodeFits, known.subject, message);
        return (vec![known.unmatched.unwrap_or(problem)], String::new());
    }
    let wished: Vec<(&str, &Verdict)> = known
        .verdicts
        .iter()
        .filter(|(_, verdict)| !verdict.is_asked_for_by_pod())
        .map(|(name, verdict)| (name.as_str(), verdict))
        .collect();
    let fix = best_fix(&wished, known.selector);
    let problem = known.problem("no node can take the pod now", String::new());
    let problem = match fix {
        Some((fix, who)) => problem.with_fix(fix).with_who(who),
        None => problem.with_fix(
            "give a node Kata that the pod tolerates and selects: see `kubectl kata nodes`",
        ),
    };
    (vec![known.unmatched.unwrap_or(problem)], UNTIL_CHANGED.to_owned())
}

#[cfg(test)]
mod tests;
