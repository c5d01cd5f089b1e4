//! Why a node takes a pod that waits for one or does not, and what an administrator or a user can do then. Pure.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::{Who, names};

use crate::document::NodeReason;
use crate::node_labels;

/// Why a node takes a pod, or does not.
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
    /// The KataConfig selects it, and the operator leaves it out; `lacks_feature` if it lacks the label of nodes that Node
    /// Feature Discovery found able to run Kata, which `checkNodeEligibility` asks for.
    LeftOut { lacks_feature: bool },
    /// The roll-out of Kata keeps it back for now, in words.
    InRollout(String),
    /// Kata is being removed from it: the text to show.
    Leaving(&'static str),
    /// Kata does not work there: the code of the operator, and its message.
    Failed { code: Option<String>, message: String },
    /// It is cordoned, and not by the roll-out; `lacks` is what it has too little of besides.
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
            Self::LeftOut { lacks_feature: true } => {
                write!(out, "selected for Kata, but lacks the label {}=true", names::NFD_LABEL)
            }
            Self::LeftOut { lacks_feature: false } => {
                out.write_str("selected for Kata, but left out by the operator")
            }
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
            Self::LeftOut { .. } => NodeReason::LeftOut,
            Self::InRollout(_) => NodeReason::InRollout,
            Self::Leaving(_) => NodeReason::Leaving,
            Self::Failed { .. } => NodeReason::Failed,
            Self::Cordoned { .. } => NodeReason::Cordoned,
            Self::TooSmall(_) => NodeReason::TooSmall,
        }
    }

    /// Whether the pod itself asks for another node.
    pub(super) fn is_asked_for_by_pod(&self) -> bool {
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
                "if the maintenance of node {node} is over, uncordon it: `kubectl uncordon {node}`"
            )),
            Self::Cordoned { lacks: Some(lacks) } => admin(format!(
                "free what node {node} lacks ({lacks}), and uncordon it if its maintenance is over: `kubectl \
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
            Self::LeftOut { lacks_feature: true } => admin(format!(
                "if node {node} can run Kata, let Node Feature Discovery label it, or set spec.checkNodeEligibility of \
                 the KataConfig to false"
            )),
            Self::LeftOut { lacks_feature: false } => {
                admin(format!("see why node {node} is left out: `kubectl kata doctor`"))
            }
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

    /// The order of fixes: the smallest change first.
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

/// How the KataConfig comes to select a node.
fn selected(node: &str, selector: &LabelSelector) -> String {
    let is_simple = selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    let labels = selector.match_labels.as_ref().filter(|_| is_simple);
    match labels.and_then(|labels| node_labels::command(node, labels)) {
        Some(command) => format!("give node {node} Kata: `{command}`"),
        None => format!(
            "give node {node} Kata: let spec.kataConfigPoolSelector of the KataConfig ({}) select it",
            kata_plan::selector::text(selector)
        ),
    }
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
