//! What a node says to a pod that waits for one, and what somebody can do about it. Pure.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::Who;

use crate::document::NodeReason;

/// What a node says to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It could take the pod.
    Fits,
    /// It has a taint that the pod does not tolerate, as `key` or `key=value`.
    Tainted(String),
    /// The pod was admitted while its RuntimeClass took no new pods.
    ClassClosed,
    /// It lacks a label of the pod's own nodeSelector, as `key=value`.
    LacksLabel(String),
    /// It does not match the pod's own node affinity.
    OtherAffinity,
    /// `installOn` of this RuntimeClass does not select it.
    NotSelectedByClass(String),
    /// It has Kata, and does not serve this RuntimeClass.
    ClassNotServed(String),
    /// The KataConfig does not select it.
    NotSelected,
    /// The roll-out of Kata keeps it back for now, in words.
    InRollout(String),
    /// It loses Kata: what happens, in words.
    Leaving(&'static str),
    /// Kata does not work there: the code of the operator, and its message.
    Failed { code: Option<String>, message: String },
    /// Somebody cordoned it. What it lacks besides, if it lacks something.
    Cordoned { lacks: Option<String> },
    /// It has too little of something, in words.
    TooSmall(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fits => out.write_str("fits"),
            Self::Tainted(taint) => write!(out, "taint {taint} is not tolerated"),
            Self::ClassClosed => out.write_str("the RuntimeClass takes no new pods"),
            Self::LacksLabel(label) => write!(out, "the node lacks the label {label}"),
            Self::OtherAffinity => out.write_str("does not match the pod's node affinity"),
            Self::NotSelectedByClass(class) => {
                write!(out, "not selected by installOn of RuntimeClass {class}")
            }
            Self::ClassNotServed(class) => {
                write!(out, "has Kata, but does not serve RuntimeClass {class}")
            }
            Self::NotSelected => out.write_str("not selected for Kata"),
            Self::InRollout(what) => out.write_str(what),
            Self::Leaving(what) => out.write_str(what),
            Self::Failed { code, message } => {
                let code = code.as_ref().map_or_else(String::new, |code| format!(" ({code})"));
                write!(out, "Kata does not work there{code}: {message}")
            }
            Self::Cordoned { lacks: None } => out.write_str("cordoned"),
            Self::Cordoned { lacks: Some(lacks) } => write!(out, "cordoned, and {lacks}"),
            Self::TooSmall(lacks) => out.write_str(lacks),
        }
    }
}

impl Verdict {
    /// The word for scripts.
    pub(super) fn reason(&self) -> NodeReason {
        match self {
            Self::Fits => NodeReason::Fits,
            Self::Tainted(_) => NodeReason::Tainted,
            Self::ClassClosed => NodeReason::ClassClosed,
            Self::LacksLabel(_) => NodeReason::LacksLabel,
            Self::OtherAffinity => NodeReason::OtherAffinity,
            Self::NotSelectedByClass(_) => NodeReason::NotSelectedByClass,
            Self::ClassNotServed(_) => NodeReason::ClassNotServed,
            Self::NotSelected => NodeReason::NotSelected,
            Self::InRollout(_) => NodeReason::InRollout,
            Self::Leaving(_) => NodeReason::Leaving,
            Self::Failed { .. } => NodeReason::Failed,
            Self::Cordoned { .. } => NodeReason::Cordoned,
            Self::TooSmall(_) => NodeReason::TooSmall,
        }
    }

    /// Whether the pod itself asks for another node.
    pub(super) fn is_the_pods_wish(&self) -> bool {
        matches!(self, Self::LacksLabel(_) | Self::OtherAffinity)
    }

    /// What makes the node take the pod, and who can do it; `None` where nothing that is known would. `selector` is the
    /// KataConfig's, `None` if it has none.
    pub(super) fn fix(
        &self,
        node: &str,
        selector: Option<&LabelSelector>,
    ) -> Option<(String, Who)> {
        let admin = |fix: String| Some((fix, Who::ClusterAdministrator));
        match self {
            Self::Cordoned { lacks: None } => admin(format!(
                "if nobody works on node {node} any more, uncordon it: `kubectl uncordon {node}`"
            )),
            Self::Cordoned { lacks: Some(lacks) } => admin(format!(
                "free what node {node} lacks ({lacks}), and uncordon it if nobody works on it any more: `kubectl \
                 uncordon {node}`"
            )),
            Self::TooSmall(lacks) => Some((
                format!("free what {node} lacks ({lacks}), ask for less, or give more nodes Kata"),
                Who::ApplicationTeam,
            )),
            Self::NotSelectedByClass(class) => admin(format!(
                "let installOn of runtime {class} in the KataConfig select {node}, or use another RuntimeClass"
            )),
            Self::NotSelected => selector.and_then(|selector| admin(selected(node, selector))),
            Self::Failed { code, .. } => admin(match code {
                Some(code) => format!(
                    "repair node {node}: `kubectl kata codes {code}` says how, `kubectl kata logs node/{node}` \
                     shows what its last change said"
                ),
                None => format!("repair node {node}: see `kubectl kata status`"),
            }),
            Self::Fits
            | Self::Tainted(_)
            | Self::ClassClosed
            | Self::LacksLabel(_)
            | Self::OtherAffinity
            | Self::ClassNotServed(_)
            | Self::InRollout(_)
            | Self::Leaving(_) => None,
        }
    }

    /// Which verdict leads to a running pod with the least that has to be changed; 0 is the first.
    fn rank(&self) -> usize {
        match self {
            Self::Cordoned { lacks: None } => 0,
            Self::TooSmall(_) => 1,
            Self::Failed { .. } => 2,
            Self::Cordoned { lacks: Some(_) } => 3,
            Self::NotSelectedByClass(_) => 4,
            _ => 5,
        }
    }
}

/// Whether a label says what a node is, such as its name, its zone or its size: the kubelet or the cloud gives it, and
/// on another node it would be false.
pub(super) fn is_given(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain.strip_suffix(own).is_some_and(|it| it.is_empty() || it.ends_with('.')))
}

/// How the KataConfig comes to select a node.
fn selected(node: &str, selector: &LabelSelector) -> String {
    let labels: Vec<(&String, &String)> = selector.match_labels.iter().flatten().collect();
    let is_simple = selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if is_simple && !labels.is_empty() && !labels.iter().any(|(key, _)| is_given(key)) {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        return format!("give node {node} Kata: `kubectl label node {node} {}`", labels.join(" "));
    }
    format!(
        "give node {node} Kata: let spec.kataConfigPoolSelector of the KataConfig ({}) select it",
        kata_plan::selector::text(selector)
    )
}

/// The best that can be done about some nodes, at most two ways, and who can do the first one.
pub(super) fn best_fix(
    nodes: &[(&str, &Verdict)],
    selector: Option<&LabelSelector>,
) -> Option<(String, Who)> {
    let mut sorted: Vec<&(&str, &Verdict)> = nodes.iter().collect();
    sorted.sort_by_key(|(_, verdict)| verdict.rank());
    let mut seen = Vec::new();
    let mut fixes = Vec::new();
    for (node, verdict) in sorted {
        if !seen.contains(&verdict.rank())
            && let Some(fix) = verdict.fix(node, selector)
        {
            seen.push(verdict.rank());
            fixes.push(fix);
        }
    }
    let (_, who) = fixes.first()?;
    let who = *who;
    let texts: Vec<String> = fixes.into_iter().take(2).map(|(fix, _)| fix).collect();
    Some((texts.join("; or "), who))
}
