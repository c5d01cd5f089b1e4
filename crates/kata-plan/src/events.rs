//! Which Events to create: one for each transition, found by comparing what the objects say with what
//! they will say. What goes well on several nodes at once is one Event on the KataConfig that names
//! them; what goes wrong on a node is one on the node and one on the KataConfig.
//!
//! An Event's name is made from the transition, so that a pass that is repeated after a crash creates
//! the same Event again, which the API server refuses.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::conditions::{self, in_progress, reasons};
use kata_api::kata_node::Phase;
use kata_api::node_task::NodeAction;
use kata_api::{Code, KataConfigStatus, KataNode, Severity, event_reasons};

use crate::object::{Kind, ObjectRef};
use crate::report::{EventToSend, Report, StatusReport};
use crate::snapshot::{NodeFacts, Snapshot};
use crate::text;
use crate::view::{NodeView, View};

/// Most bytes of a note.
const NOTE: usize = 1_000;
/// Most bytes of an object's name in the name of an Event.
const NAME_PREFIX: usize = 236;

/// Adds the Events of this pass to the report.
pub(crate) fn derive(snapshot: &Snapshot, view: Option<&View<'_>>, report: &mut Report) {
    let mut events = Vec::new();
    for status in report.status.iter().chain(&report.other_configs) {
        let previous = snapshot
            .configs
            .iter()
            .find(|config| config.metadata.uid == status.config.uid)
            .and_then(|config| config.status.as_ref());
        of_config(previous, status, &mut events);
    }
    if let (Some(view), Some(status)) = (view, &report.status) {
        let mut fared_well = BTreeMap::new();
        for node in &view.nodes {
            of_node(node, &status.config, &mut fared_well, &mut events);
        }
        well(&status.config, &fared_well, &mut events);
        removed(view, &status.config, &mut events);
    }
    report.events = events;
}

struct Said<'a> {
    warning: bool,
    reason: &'a str,
    action: &'a str,
    note: String,
    /// What was before, so that the same transition at another time is another Event.
    before: String,
}

fn event(regarding: &ObjectRef, related: Option<&ObjectRef>, said: &Said<'_>) -> EventToSend {
    let identity = format!(
        "{}/{}/{}/{}/{}",
        regarding.uid.as_deref().unwrap_or_default(),
        related.map(|related| related.name.as_str()).unwrap_or_default(),
        // The next KataConfig of the same name does everything again.
        related.and_then(|related| related.uid.as_deref()).unwrap_or_default(),
        said.reason,
        said.before
    );
    EventToSend {
        name: format!("{}.{}", prefix(&regarding.name), text::digest(&identity)),
        regarding: regarding.clone(),
        related: related.cloned(),
        warning: said.warning,
        reason: said.reason.to_owned(),
        action: said.action.to_owned(),
        note: text::cut(&said.note, NOTE),
    }
}

/// As much of an object's name as leaves room for the rest in an Event's name of 253 characters.
fn prefix(name: &str) -> &str {
    name.get(..NAME_PREFIX).map_or(name, |cut| cut.trim_end_matches(['.', '-']))
}

fn of_config(
    previous: Option<&KataConfigStatus>,
    status: &StatusReport,
    events: &mut Vec<EventToSend>,
) {
    let old = previous.map(|status| status.runtime_classes.as_slice()).unwrap_or_default();
    let new = status.status.runtime_classes.as_slice();
    let changed = |from: &[String], to: &[String]| -> Vec<String> {
        to.iter().filter(|name| !from.contains(name)).cloned().collect()
    };
    // What was before, so that a class that is made again is told again.
    let before = previous.into_iter().flat_map(|status| &status.conditions);
    let at: Vec<String> =
        before.map(|condition| condition.last_transition_time.0.to_string()).collect();
    let at = at.join("/");
    for (names, reason, what) in [
        (changed(old, new), event_reasons::RUNTIME_CLASS_CREATED, "pods can name it"),
        (changed(new, old), event_reasons::RUNTIME_CLASS_REMOVED, "pods cannot name it any more"),
    ] {
        for name in names {
            events.push(event(
                &status.config,
                Some(&ObjectRef::named(Kind::RuntimeClass, &name)),
                &Said {
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
        let told = match (condition.type_.as_str(), condition.status.as_str()) {
            // What happens, as the OpenShift operator calls it.
            (conditions::IN_PROGRESS, "True") => condition.reason != in_progress::FAILED,
            (conditions::READY, "True") => true,
            // Why nothing happens; plain progress is told by InProgress and by the nodes.
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
        // What is about a node is told with the node.
        let of_node =
            matches!(condition.type_.as_str(), conditions::READY | conditions::DELETION_BLOCKED)
                && code.is_some_and(|code| code.entry().code.starts_with("KATA2"));
        if same || !told || of_node {
            continue;
        }
        events.push(event(
            &status.config,
            None,
            &Said {
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

/// What goes well on nodes, in the order in which it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Well {
    Installing,
    Installed,
    Updating,
    ReadyAgain,
    Removing,
    Removed,
}

impl Well {
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
            Self::Updating => format!("{nodes} {are} being brought up to date"),
            Self::ReadyAgain => format!("{nodes} can run sandboxed pods again{with}"),
            Self::Removing => format!("Kata is being removed from {nodes}"),
            Self::Removed => format!("{nodes} {are} clear of Kata"),
        }
    }
}

/// Nodes that fared well alike, with the same version of Kata if it is known: the node, and what it was before.
type FaredWell<'a> = BTreeMap<(Well, Option<&'a str>), Vec<(ObjectRef, String)>>;

/// One Event for all nodes that fared well in the same way.
fn well(config: &ObjectRef, fared_well: &FaredWell<'_>, events: &mut Vec<EventToSend>) {
    for ((well, version), nodes) in fared_well {
        let names: Vec<&str> = nodes.iter().map(|(node, _)| node.name.as_str()).collect();
        let (related, before) = match nodes.as_slice() {
            [(node, before)] => (Some(node), before.clone()),
            all => {
                let all: Vec<String> =
                    all.iter().map(|(node, before)| format!("{}:{before}", node.name)).collect();
                (None, all.join(","))
            }
        };
        let said = Said {
            warning: false,
            reason: well.reason(),
            action: "ChangeNode",
            note: well.note(&names, *version),
            before,
        };
        events.push(event(config, related, &said));
    }
}

fn of_node<'a>(
    node: &'a NodeView<'_>,
    config: &ObjectRef,
    fared_well: &mut FaredWell<'a>,
    events: &mut Vec<EventToSend>,
) {
    // What is labelled in this pass is told when the label is seen.
    if node.phase == Phase::Ready && !node.verified {
        return;
    }
    let before = node.previous.and_then(|previous| previous.status.as_ref());
    let salt = before.map_or_else(String::new, |before| {
        let since = before.since.map(|since| since.to_string()).unwrap_or_default();
        format!("{}/{since}/{}", before.phase.as_str(), before.code.as_deref().unwrap_or_default())
    });
    if before.map(|before| before.phase) != Some(node.phase) {
        let well = match node.phase {
            Phase::Installing => Some(Well::Installing),
            Phase::Ready if node.joins() => Some(Well::Installed),
            // It had Kata all the time: whatever it comes back from was not our work.
            Phase::Ready => Some(Well::ReadyAgain),
            Phase::Removing => Some(Well::Removing),
            Phase::Updating if node.is_being_updated() => Some(Well::Updating),
            Phase::Unknown
            | Phase::Waiting
            | Phase::NotReady
            | Phase::Updating
            | Phase::WaitingToRemove
            | Phase::Failed => None,
        };
        if let Some(well) = well {
            let has_it = matches!(well, Well::Installed | Well::ReadyAgain);
            let version = node.kata_version().filter(|_| has_it);
            fared_well.entry((well, version)).or_default().push((node.object(), salt.clone()));
        }
    }
    if let Some(finding) = &node.finding
        && finding.code.entry().severity >= Severity::Warning
        && before.and_then(|before| before.code.as_deref()) != Some(finding.code.entry().code)
    {
        let entry = finding.code.entry();
        let note = format!("{}: {}. {}", entry.code, finding.message, finding.fix);
        let (reason, action) = (entry.reason, "ChangeNode");
        let said = Said { warning: true, reason, action, note, before: salt };
        events.push(event(&node.object(), Some(config), &said));
        events.push(event(config, Some(&node.object()), &said));
    }
}

/// Whether a Job took Kata off a node: from one that was never changed there was nothing to take.
fn was_cleared(kata_node: &KataNode) -> bool {
    let host = kata_node.status.as_ref().and_then(|status| status.host.as_ref());
    host.and_then(|host| host.job.as_ref()).is_some_and(|job| job.action == NodeAction::Remove)
}

/// Nodes that have nothing to do with Kata any more, told once: while their KataNode is still there.
fn removed(view: &View<'_>, config: &ObjectRef, events: &mut Vec<EventToSend>) {
    let snapshot = view.snapshot;
    let known: BTreeSet<&str> = view.nodes.iter().map(|node| node.facts.name.as_str()).collect();
    let mut gone: Vec<&KataNode> = snapshot
        .kata_nodes
        .known()
        .into_iter()
        .flatten()
        .map(AsRef::as_ref)
        .filter(|kata_node| {
            kata_node.metadata.deletion_timestamp.is_none()
                && !snapshot.is_unreadable_node(&kata_node.spec.node_name)
                && !known.contains(kata_node.spec.node_name.as_str())
        })
        .collect();
    if gone.is_empty() {
        return;
    }
    gone.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let nodes: BTreeMap<&str, &NodeFacts> = snapshot
        .nodes
        .known()
        .into_iter()
        .flatten()
        .map(|node| (node.name.as_str(), node.as_ref()))
        .collect();
    let mut clear = FaredWell::new();
    for kata_node in gone {
        let name = kata_node.spec.node_name.as_str();
        let before = kata_node.metadata.uid.clone().unwrap_or_default();
        if let Some(facts) = nodes.get(name) {
            if view.hosts.is_some() && !was_cleared(kata_node) {
                continue;
            }
            let node = ObjectRef::new(Kind::Node, name, Some(&facts.uid));
            clear.entry((Well::Removed, None)).or_default().push((node, before));
        } else {
            let node = ObjectRef::named(Kind::Node, name);
            let note = format!("node {name} does not exist any more");
            let (reason, action) = (event_reasons::NODE_GONE, "ChangeNode");
            let said = Said { warning: false, reason, action, note, before };
            events.push(event(config, Some(&node), &said));
        }
    }
    well(config, &clear, events);
}
