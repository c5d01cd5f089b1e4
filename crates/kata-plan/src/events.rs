//! Derives the Events: one for each transition between the current and the desired status of the objects.
//! Nodes that reach the same milestone in one pass share one Event on the KataConfig. A problem of a node
//! has one Event on the node and one on the KataConfig.
//!
//! An Event's name is derived from the transition. A pass that is repeated after a crash creates the same
//! Event again, and the API server refuses it.

use std::collections::BTreeMap;

use kata_api::conditions::{self, in_progress, reasons};
use kata_api::kata_node::Phase;
use kata_api::{Code, KataConfigStatus, Severity, event_reasons};

use crate::assessment::{Assessment, NodeAssessment};
use crate::configs::Configs;
use crate::object::{Kind, ObjectRef};
use crate::report::{EventToSend, Finding, Report, StatusReport};
use crate::text;

/// Most bytes of a note.
const NOTE: usize = 1_000;
/// Most bytes of an object's name in the name of an Event.
const NAME_PREFIX: usize = 236;

/// Adds the Events of this pass to the report.
pub(crate) fn add_events(configs: &Configs, assessment: Option<&Assessment>, report: &mut Report) {
    let mut events = Vec::new();
    for status in report.status.iter().chain(&report.other_configs) {
        let previous = configs
            .active
            .iter()
            .chain(&configs.others)
            .find(|config| config.metadata.uid == status.config.uid)
            .and_then(|config| config.status.as_ref());
        add_config_events(previous, status, &mut events);
    }
    if let (Some(assessment), Some(status)) = (assessment, &report.status) {
        let mut reached = BTreeMap::new();
        for node in &assessment.nodes {
            add_node_events(node, &status.config, &mut reached, &mut events);
        }
        add_milestones(&status.config, &reached, &mut events);
        add_removed_events(assessment, &status.config, &mut events);
    }
    report.events = events;
}

struct EventText<'a> {
    warning: bool,
    reason: &'a str,
    action: &'a str,
    note: String,
    /// The previous state, so that the same transition at another time is another Event.
    before: String,
}

fn event(regarding: &ObjectRef, related: Option<&ObjectRef>, text: &EventText<'_>) -> EventToSend {
    let identity = format!(
        "{}/{}/{}/{}/{}",
        regarding.uid.as_deref().unwrap_or_default(),
        related.map(|related| related.name.as_str()).unwrap_or_default(),
        // The next KataConfig of the same name repeats the transitions.
        related.and_then(|related| related.uid.as_deref()).unwrap_or_default(),
        text.reason,
        text.before
    );
    EventToSend {
        name: format!("{}.{}", prefix(&regarding.name), crate::text::digest(&identity)),
        regarding: regarding.clone(),
        related: related.cloned(),
        warning: text.warning,
        reason: text.reason.to_owned(),
        action: text.action.to_owned(),
        note: crate::text::cut(&text.note, NOTE),
    }
}

/// The Event that a KataConfig belongs to another installation, once for each.
pub(crate) fn of_other_installation(finding: &Finding, other: &str) -> EventToSend {
    event(
        &finding.subject,
        None,
        &EventText {
            warning: true,
            reason: finding.code.entry().reason,
            action: "Reconcile",
            note: format!("{}: {}. {}", finding.code, finding.message, finding.fix),
            before: other.to_owned(),
        },
    )
}

/// The beginning of an object's name, short enough for an Event's name of 253 characters.
fn prefix(name: &str) -> &str {
    name.get(..NAME_PREFIX).map_or(name, |cut| cut.trim_end_matches(['.', '-']))
}

fn add_config_events(
    previous: Option<&KataConfigStatus>,
    status: &StatusReport,
    events: &mut Vec<EventToSend>,
) {
    let old = previous.map(|status| status.runtime_classes.as_slice()).unwrap_or_default();
    let new = status.status.runtime_classes.as_slice();
    let changed = |from: &[String], to: &[String]| -> Vec<String> {
        to.iter().filter(|name| !from.contains(name)).cloned().collect()
    };
    // The previous state, so that a class that is created again is reported again.
    let before = previous.into_iter().flat_map(|status| &status.conditions);
    let at: Vec<String> =
        before.map(|condition| condition.last_transition_time.0.to_string()).collect();
    let at = at.join("/");
    for (names, reason, what) in [
        (changed(old, new), event_reasons::RUNTIME_CLASS_CREATED, "pods can use it"),
        (changed(new, old), event_reasons::RUNTIME_CLASS_REMOVED, "pods can no longer use it"),
    ] {
        for name in names {
            events.push(event(
                &status.config,
                Some(&ObjectRef::named(Kind::RuntimeClass, &name)),
                &EventText {
                    warning: false,
                    reason,
                    action: "Reconcile",
                    note: format!("RuntimeClass {name}: {what}"),
                    before: at.clone(),
                },
            ));
        }
    }
    for condition in &status.status.conditions {
        let before = previous
            .into_iter()
            .flat_map(|status| &status.conditions)
            .find(|before| before.type_ == condition.type_);
        let same = before.is_some_and(|before| {
            before.status == condition.status && before.reason == condition.reason
        });
        let is_reported = match (condition.type_.as_str(), condition.status.as_str()) {
            // Progress, with the reasons of the OpenShift operator.
            (conditions::IN_PROGRESS, "True") => condition.reason != in_progress::FAILED,
            (conditions::READY, "True") => true,
            // Only problems: InProgress and the nodes report progress.
            (conditions::READY, _) => {
                condition.reason != reasons::NODES_NOT_READY
                    && condition.reason != reasons::ROLLING_OUT
                    && condition.reason != reasons::RUNTIME_CLASS_MISSING
                    && condition.reason != in_progress::UNINSTALLING
            }
            (conditions::DELETION_BLOCKED, "True") => true,
            _ => false,
        };
        let code = Code::ALL.iter().find(|code| code.entry().reason == condition.reason);
        // A problem of a node is reported with the node.
        let of_node =
            matches!(condition.type_.as_str(), conditions::READY | conditions::DELETION_BLOCKED)
                && code.is_some_and(|code| code.entry().code.starts_with("KATA2"));
        if same || !is_reported || of_node {
            continue;
        }
        events.push(event(
            &status.config,
            None,
            &EventText {
                warning: code.is_some_and(|code| code.entry().severity >= Severity::Warning),
                reason: &condition.reason,
                action: "Reconcile",
                note: condition.message.clone(),
                before: before.map_or_else(String::new, |before| {
                    format!(
                        "{}/{}/{}/{}",
                        condition.type_,
                        before.status,
                        before.reason,
                        before.last_transition_time.0
                    )
                }),
            },
        ));
    }
}

/// A success or a normal change of a node, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Milestone {
    Installing,
    Installed,
    Updating,
    ReadyAgain,
    Removing,
    Removed,
}

impl Milestone {
    fn reason(self) -> &'static str {
        match self {
            Self::Installing => event_reasons::KATA_INSTALLING,
            Self::Installed => event_reasons::KATA_RUNTIME_INSTALLED,
            Self::Updating => event_reasons::KATA_UPDATING,
            Self::ReadyAgain => event_reasons::KATA_NODE_READY,
            Self::Removing => event_reasons::KATA_REMOVING,
            Self::Removed => event_reasons::KATA_REMOVED,
        }
    }

    fn note(self, nodes: &[&str], version: Option<&str>) -> String {
        let names = text::list(nodes, text::NAMES);
        let (nodes, are) = match nodes.len() {
            1 => (format!("node {names}"), "is"),
            count => (format!("{count} nodes ({names})"), "are"),
        };
        let with = version.map_or_else(String::new, |version| format!(", with Kata {version}"));
        match self {
            Self::Installing => format!("{nodes} {are} being changed to run sandboxed pods"),
            Self::Installed => format!("{nodes} can run sandboxed pods{with}"),
            Self::Updating => format!("{nodes} {are} being updated"),
            Self::ReadyAgain => format!("{nodes} can run sandboxed pods again{with}"),
            Self::Removing => format!("Kata is being removed from {nodes}"),
            Self::Removed => format!("Kata was removed from {nodes}"),
        }
    }
}

/// The nodes of each milestone, by the version of Kata if it is known: the node and its previous state.
type Reached<'a> = BTreeMap<(Milestone, Option<&'a str>), Vec<(ObjectRef, String)>>;

/// Adds one Event for all nodes that reached the same milestone.
fn add_milestones(config: &ObjectRef, reached: &Reached<'_>, events: &mut Vec<EventToSend>) {
    for ((milestone, version), nodes) in reached {
        let names: Vec<&str> = nodes.iter().map(|(node, _)| node.name.as_str()).collect();
        let (related, before) = match nodes.as_slice() {
            [(node, before)] => (Some(node), before.clone()),
            all => {
                let all: Vec<String> =
                    all.iter().map(|(node, before)| format!("{}:{before}", node.name)).collect();
                (None, all.join(","))
            }
        };
        let text = EventText {
            warning: false,
            reason: milestone.reason(),
            action: "ChangeNode",
            note: milestone.note(&names, *version),
            before,
        };
        events.push(event(config, related, &text));
    }
}

fn add_node_events<'a>(
    node: &'a NodeAssessment,
    config: &ObjectRef,
    reached: &mut Reached<'a>,
    events: &mut Vec<EventToSend>,
) {
    // A node that is labelled in this pass is reported once the label has been observed.
    if node.phase == Phase::Ready && !node.has_runtime_label {
        return;
    }
    let before = node.previous.as_ref().and_then(|previous| previous.status.as_ref());
    let previous_state = || {
        let Some(before) = before else { return String::new() };
        let since = before.since.map(|since| since.to_string()).unwrap_or_default();
        format!("{}/{since}/{}", before.phase.as_str(), before.code.as_deref().unwrap_or_default())
    };
    if before.map(|before| before.phase) != Some(node.phase) {
        let milestone = match node.phase {
            Phase::Installing => Some(Milestone::Installing),
            Phase::Ready if node.was_installing() => Some(Milestone::Installed),
            // The node had Kata before: it was only unavailable.
            Phase::Ready => Some(Milestone::ReadyAgain),
            Phase::Removing => Some(Milestone::Removing),
            Phase::Updating if node.is_being_updated => Some(Milestone::Updating),
            Phase::Unknown
            | Phase::Waiting
            | Phase::NotReady
            | Phase::Updating
            | Phase::WaitingToRemove
            | Phase::Failed => None,
        };
        if let Some(milestone) = milestone {
            let has_it = matches!(milestone, Milestone::Installed | Milestone::ReadyAgain);
            let version = node.kata_version().filter(|_| has_it);
            reached
                .entry((milestone, version))
                .or_default()
                .push((node.object(), previous_state()));
        }
    }
    if let Some(finding) = &node.finding
        && finding.code.entry().severity >= Severity::Warning
        && before.and_then(|before| before.code.as_deref()) != Some(finding.code.entry().code)
    {
        let entry = finding.code.entry();
        let note = format!("{}: {}. {}", entry.code, finding.message, finding.fix);
        let (reason, action) = (entry.reason, "ChangeNode");
        let text = EventText { warning: true, reason, action, note, before: previous_state() };
        events.push(event(&node.object(), Some(config), &text));
        events.push(event(config, Some(&node.object()), &text));
    }
}

/// Adds Events for nodes that lost Kata or were deleted. They are reported once, while their KataNode still
/// exists.
fn add_removed_events(assessment: &Assessment, config: &ObjectRef, events: &mut Vec<EventToSend>) {
    let mut clear = Reached::new();
    for departed in &assessment.departed {
        let metadata = &departed.kata_node.metadata;
        if metadata.deletion_timestamp.is_some() {
            continue;
        }
        let before = metadata.uid.clone().unwrap_or_default();
        if let Some(node) = &departed.node {
            if departed.was_removed {
                clear.entry((Milestone::Removed, None)).or_default().push((node.clone(), before));
            }
        } else {
            let name = &departed.kata_node.spec.node_name;
            let node = ObjectRef::named(Kind::Node, name);
            let note = format!("node {name} does not exist any more");
            let (reason, action) = (event_reasons::NODE_GONE, "ChangeNode");
            let text = EventText { warning: false, reason, action, note, before };
            events.push(event(config, Some(&node), &text));
        }
    }
    add_milestones(config, &clear, events);
}
