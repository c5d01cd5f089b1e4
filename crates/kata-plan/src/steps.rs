//! From the view to the steps: what is brought about, in which order, and what must be waited for.
//!
//! Install: finalizer, ContainerRuntimeConfig, MachineConfig, pool, the pool's label on each node, the
//! label of verified nodes, RuntimeClass. Removal: the label of verified nodes, then (when no pod is
//! left) the RuntimeClass, then the pool's label, then (when no node is on a configuration of the pool)
//! the objects, then the finalizer. Each pass does what is safe now; the next one sees what came of it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::{Code, ContainerRuntimeConfig, KataConfig, MachineConfig, names};

use crate::bodies;
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::plan::{Action, OnFailure, Step};
use crate::report::{Finding, Waiting, WaitingOn};
use crate::selection;
use crate::selector;
use crate::snapshot::Need;
use crate::text;
use crate::view::{self, NodeView, View};

mod hosts;
mod install;
mod monitor;
mod remove;
mod taints;
mod waiting;

use install::install;
use remove::remove;

/// What is to be done, and what else came to light.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) waiting_on: Vec<WaitingOn>,
    /// Why nodes wait whose turn has not come, such as `the first one goes alone`; the first reason of all.
    pub(crate) queue: Option<String>,
    pub(crate) needs: BTreeSet<Need>,
    /// Whether sandboxed pods block the deletion of the KataConfig; the classes that they use.
    pub(crate) blocked_by: BTreeSet<String>,
}

impl Steps {
    fn push(&mut self, action: Action, on_failure: OnFailure, why: impl Into<String>) {
        self.steps.push(Step { action, on_failure, why: why.into() });
    }

    fn wait(&mut self, what: Waiting, subject: ObjectRef, message: impl Into<String>) {
        self.waiting_on.push(WaitingOn { what, subject, message: message.into() });
    }

    /// Waits for nodes that are not being changed, each with why its turn has not come, unless that is told
    /// otherwise. Those with the same reason are told together.
    fn wait_in_line<'a>(
        &mut self,
        subject: &ObjectRef,
        nodes: impl IntoIterator<Item = (Option<String>, &'a str)>,
    ) {
        let mut groups: Vec<(Option<String>, Vec<&str>)> = Vec::new();
        for (why, node) in nodes {
            match groups.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, group)) => group.push(node),
                None => groups.push((why, vec![node])),
            }
        }
        for (why, nodes) in groups {
            let reason = why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            let message = format!(
                "{} that {} not being changed{reason}: {}",
                text::count(nodes.len(), "node"),
                if nodes.len() == 1 { "is" } else { "are" },
                text::list(&nodes, text::NAMES)
            );
            self.wait(Waiting::Node, subject.clone(), message);
            self.queue = self.queue.take().or(why);
        }
    }

    fn find(&mut self, code: Code, subject: ObjectRef, message: String) {
        self.findings.push(Finding::new(code, subject, message));
    }
}

/// The steps for the active KataConfig.
pub(crate) fn steps(view: &View<'_>) -> Steps {
    let mut out = Steps::default();
    if let Some(of_hosts) = &view.hosts {
        if view.deleting {
            hosts::remove(view, of_hosts, &mut out);
        } else {
            hosts::install(view, of_hosts, &mut out);
        }
        return out;
    }
    if view.deleting {
        remove(view, &mut out);
    } else {
        install(view, &mut out);
    }
    for node in &view.nodes {
        if view::drain_is_long(view, node) {
            out.needs.insert(Need::DrainBlockers { node: node.facts.name.clone() });
        }
    }
    waiting::pool_findings(view, &mut out);
    out
}

/// The steps for a KataConfig that is not active: it is let go when it is being deleted.
pub(crate) fn release(config: &KataConfig) -> Option<Step> {
    (config.metadata.deletion_timestamp.is_some() && selection::has_finalizer(config))
        .then(|| remove_finalizers(config, "it was not active, so nothing in the cluster is its"))
}

fn remove_finalizers(config: &KataConfig, why: &str) -> Step {
    Step {
        action: Action::RemoveFinalizers {
            config: selection::config_ref(config),
            resource_version: config.metadata.resource_version.clone().unwrap_or_default(),
            finalizers: config
                .metadata
                .finalizers
                .iter()
                .flatten()
                .filter(|name| !selection::is_ours(name))
                .cloned()
                .collect(),
        },
        on_failure: OnFailure::Continue,
        why: why.to_owned(),
    }
}

/// Tells that no node is selected, and which nodes count.
fn no_nodes(view: &View<'_>, out: &mut Steps) {
    let config = selection::config_ref(view.config);
    let excluded: Vec<&str> = view
        .findings
        .iter()
        .filter(|finding| finding.subject.kind == Kind::Node)
        .map(|finding| finding.message.as_str())
        .collect();
    if !excluded.is_empty() {
        let message =
            format!("no node that matches can be used: {}", text::list(&excluded, text::NAMES));
        let mut finding = Finding::new(Code::NoNodesSelected, config, message);
        "See why each of them is left alone, or have other nodes match."
            .clone_into(&mut finding.fix);
        out.findings.push(finding);
        return;
    }
    let spec = &view.config.spec;
    let selector = spec.kata_config_pool_selector.as_ref().map(selector::text);
    // An empty one selects every node, as none does.
    let selector = selector.filter(|text| !text.is_empty());
    let matches =
        selector.as_ref().map(|text| format!("matches spec.kataConfigPoolSelector ({text})"));
    let eligible =
        spec.check_node_eligibility.then(|| format!("carries {}=true", names::NFD_LABEL));
    let by_jobs = view.hosts.is_some();
    let asked = if by_jobs {
        let outside = selector.is_none().then(|| "is outside the control plane".to_owned());
        [matches, eligible, Some("runs Linux".to_owned()), outside]
    } else {
        [Some(format!("has the label {}", names::WORKER_ROLE_LABEL)), eligible, matches, None]
    };
    let asked: Vec<String> = asked.into_iter().flatten().collect();
    let exception = if by_jobs && selector.is_some() {
        "; a node of the control plane counts only if the selector names its role, its host name or a label of \
         your own"
    } else {
        ""
    };
    let message = format!("no node {}{exception}", text::all(&asked));
    let mut finding = Finding::new(Code::NoNodesSelected, config, message);
    if spec.check_node_eligibility {
        "Install Node Feature Discovery, which gives that label to nodes that can run Kata, or set \
         spec.checkNodeEligibility to false; if nodes have it, have one of them match the rest, too."
            .clone_into(&mut finding.fix);
    } else if selector.is_none() {
        let fix = if by_jobs {
            "Add a node that counts, or name nodes of the control plane in spec.kataConfigPoolSelector, by their \
             role, their host name or a label of your own."
        } else {
            "Add a node that counts, or give nodes the labels that they lack."
        };
        fix.clone_into(&mut finding.fix);
    }
    out.findings.push(finding);
}

/// The MachineConfig of a name, if it exists.
fn machine_config<'a>(view: &View<'a>, name: &str) -> Option<&'a MachineConfig> {
    match view.snapshot.machine_configs.get(name) {
        Some(Observed::Known(Some(config))) => Some(config),
        _ => None,
    }
}

fn container_runtime_config<'a>(view: &View<'a>) -> Option<&'a ContainerRuntimeConfig> {
    view.snapshot
        .container_runtime_configs
        .known()?
        .iter()
        .find(|config| config.metadata.name.as_deref() == Some(names::CONTAINER_RUNTIME_CONFIG))
}

/// Puts the label of verified nodes on those that are, and takes it off the others.
fn verified_labels(view: &View<'_>, out: &mut Steps) {
    for node in &view.nodes {
        let value = node.facts.labels.get(names::RUNTIME_LABEL).map(String::as_str);
        match node.verdict {
            Some(true) if value != Some(names::RUNTIME_LABEL_VERIFIED) => out.push(
                Action::LabelNode {
                    node: node.object(),
                    seen: node.version(),
                    set: BTreeMap::from([(
                        names::RUNTIME_LABEL.to_owned(),
                        names::RUNTIME_LABEL_VERIFIED.to_owned(),
                    )]),
                    remove: BTreeSet::new(),
                },
                OnFailure::Continue,
                "it can run sandboxed pods",
            ),
            Some(false) if value.is_some() => out.push(
                Action::LabelNode {
                    node: node.object(),
                    // It only keeps new pods away, so it is right on a node that has changed too.
                    seen: None,
                    set: BTreeMap::new(),
                    remove: BTreeSet::from([names::RUNTIME_LABEL.to_owned()]),
                },
                // What follows for this node is decided when the label is seen to be gone.
                OnFailure::Continue,
                if node.wanted {
                    "it cannot run sandboxed pods now"
                } else {
                    "no new sandboxed pod shall come"
                },
            ),
            _ => {}
        }
    }
}

fn take_label(node: &NodeView<'_>) -> Action {
    Action::LabelNode {
        node: node.object(),
        seen: node.version(),
        set: BTreeMap::new(),
        remove: BTreeSet::from([names::KATA_ROLE_LABEL.to_owned()]),
    }
}

fn delete(object: ObjectRef) -> Action {
    Action::Delete { object, resource_version: None }
}

fn our_classes<'a>(view: &View<'a>) -> Vec<&'a RuntimeClass> {
    let mut classes: Vec<&RuntimeClass> = view
        .snapshot
        .runtime_classes
        .known()
        .into_iter()
        .flatten()
        .filter(|class| bodies::is_our_class(class))
        .collect();
    classes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    classes
}

/// One KataNode for each node of the view, and none besides.
fn kata_nodes(view: &View<'_>, out: &mut Steps) {
    let labelled_now: BTreeSet<String> = out
        .steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::LabelNode { node, set, .. } if set.contains_key(names::RUNTIME_LABEL) => {
                Some(node.name.clone())
            }
            _ => None,
        })
        .collect();
    let known: BTreeSet<&str> = view.nodes.iter().map(|node| node.facts.name.as_str()).collect();
    for node in &view.nodes {
        // A node that is labelled in this pass is written when the label is seen.
        if !labelled_now.contains(&node.facts.name) {
            crate::kata_nodes::push(view, node, &mut out.steps);
        }
    }
    let mut stale: Vec<&kata_api::KataNode> = view
        .snapshot
        .kata_nodes
        .known()
        .into_iter()
        .flatten()
        .map(AsRef::as_ref)
        .filter(|kata_node: &&kata_api::KataNode| {
            let name = kata_node.spec.node_name.as_str();
            !known.contains(name) && !view.snapshot.is_unreadable_node(name)
        })
        .collect();
    stale.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    for kata_node in stale {
        let name = kata_node.metadata.name.clone().unwrap_or_default();
        let object = ObjectRef::new(Kind::KataNode, &name, kata_node.metadata.uid.as_deref());
        if kata_node.metadata.deletion_timestamp.is_none() {
            out.push(
                delete(object.clone()),
                OnFailure::Continue,
                "its node has nothing to do with Kata any more",
            );
        }
        if view.deleting {
            out.wait(Waiting::Deletion, object, format!("KataNode {name} to be gone"));
        }
    }
}
