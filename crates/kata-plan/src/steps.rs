//! Derives the steps from the assessment, in order, and reports what the other steps wait for.
//!
//! An installation adds the finalizer, then changes labels and taints, then the back end's objects and
//! nodes, then the RuntimeClasses. A removal closes the classes; once no sandboxed pod is left, it removes
//! the labels, the classes, the back end's objects and the finalizer, in this order. Each pass plans only
//! the steps that are safe now.

mod kata_nodes;
mod labels;
mod runtime_classes;
mod taints;

use kata_api::{Code, KataConfig, names};

use crate::assessment::{Assessment, NodeAssessment};
use crate::claim;
use crate::configs::{config_ref, has_finalizer, is_our_finalizer};
use crate::draft::Draft;
use crate::object::Kind;
use crate::plan::{Action, OnFailure, Step};
use crate::pods::NotRead;
use crate::report::{Finding, Waiting};
use crate::snapshot::PodScope;
use crate::text;

pub(crate) use kata_nodes::{step_not_published, steps_due};

/// The steps for the active KataConfig. `changes` are those of the back end.
pub(crate) fn steps(cluster: &Assessment, changes: Draft) -> Draft {
    let mut out = Draft::default();
    if cluster.deleting {
        remove(cluster, changes, &mut out);
    } else {
        install(cluster, changes, &mut out);
    }
    out
}

/// The step for a KataConfig that is not active: removes its finalizer if it is being deleted.
pub(crate) fn release_inactive(config: &KataConfig) -> Option<Step> {
    (config.metadata.deletion_timestamp.is_some() && has_finalizer(config)).then(|| {
        remove_finalizers(config, "it was not active, so nothing in the cluster belongs to it")
    })
}

fn install(cluster: &Assessment, changes: Draft, out: &mut Draft) {
    add_finalizer(cluster, out);
    labels::update_labels(cluster, out);
    taints::update_taints(cluster, out);
    if cluster.selected == 0 && !cluster.nodes.iter().any(|node| node.wanted) {
        out.findings.push(no_nodes(cluster));
    }
    leaving_pods(cluster, out);
    out.append(changes);
    runtime_classes::offer_classes(cluster, out);
    kata_nodes::update_kata_nodes(cluster, out);
}

fn remove(cluster: &Assessment, changes: Draft, out: &mut Draft) {
    runtime_classes::remove_classes(cluster, out);
    labels::update_labels(cluster, out);
    taints::update_taints(cluster, out);
    pods_left(cluster, out);
    out.append(changes);
    kata_nodes::update_kata_nodes(cluster, out);
    finish_removal(cluster, out);
}

/// Adds the finalizer and the claim, which is the first change of all.
fn add_finalizer(cluster: &Assessment, out: &mut Draft) {
    let Assessment { config, options, .. } = cluster;
    let mut finalizers = config.metadata.finalizers.clone().unwrap_or_default();
    let needs_finalizer = !finalizers.iter().any(|name| name == names::FINALIZER);
    if needs_finalizer {
        finalizers.push(names::FINALIZER.to_owned());
    }
    if needs_finalizer || !claim::is_ours(config, &options.namespace) {
        out.push(
            Action::AddFinalizer {
                config: config_ref(config),
                resource_version: config.metadata.resource_version.clone().unwrap_or_default(),
                finalizers,
                namespace: options.namespace.clone(),
            },
            OnFailure::Stop,
            "before anything else is changed",
        );
    }
}

fn remove_finalizers(config: &KataConfig, why: &str) -> Step {
    let finalizers = config.metadata.finalizers.iter().flatten();
    Step {
        action: Action::RemoveFinalizers {
            config: config_ref(config),
            resource_version: config.metadata.resource_version.clone().unwrap_or_default(),
            finalizers: finalizers.filter(|name| !is_our_finalizer(name)).cloned().collect(),
        },
        on_failure: OnFailure::Continue,
        why: why.to_owned(),
    }
}

/// Requests the pods on nodes that lose Kata or a handler of it, and waits for the pods that need it to end.
fn leaving_pods(cluster: &Assessment, out: &mut Draft) {
    let leaving: Vec<&NodeAssessment> =
        cluster.nodes.iter().filter(|node| node.needs_pod_list()).collect();
    let mut unread = Vec::new();
    for node in leaving {
        let name = &node.facts.name;
        match cluster.pods_in_the_way(node) {
            Err(NotRead::NotAsked) => unread.push(node.object()),
            Err(NotRead::Failed(error)) => out.add_finding(
                Code::ReadFailed,
                node.object(),
                format!("cannot read the pods on node {name}: {error}; it keeps Kata meanwhile"),
            ),
            Ok(pods) if pods.is_empty() => {}
            Ok(pods) => out.wait_for(
                Waiting::Pods,
                node.object(),
                format!("{} on {name} to end", text::count(pods.len(), "sandboxed pod")),
            ),
        }
    }
    out.request_pods_on(unread, &cluster.pods);
}

/// Requests the cluster's pods while they may block the deletion, and reports them.
fn pods_left(cluster: &Assessment, out: &mut Draft) {
    if !cluster.may_have_pods() {
        return;
    }
    let config = config_ref(&cluster.config);
    match cluster.pods.in_cluster() {
        Err(NotRead::NotAsked) => {
            out.needs.insert(cluster.pods.need(PodScope::Cluster));
            out.wait_for(Waiting::Read, config, "the pods of the cluster to be read");
        }
        Err(NotRead::Failed(error)) => {
            let message = format!(
                "cannot read the cluster's pods: {error}; no further node loses Kata meanwhile"
            );
            out.add_finding(Code::ReadFailed, config, message);
        }
        Ok(pods) if pods.is_empty() => {}
        Ok(pods) => {
            out.blocked_by = pods.iter().map(|pod| pod.runtime_class.clone()).collect();
            let message = format!("{}: {}", text::pods_left(pods.len()), text::pods(&pods));
            out.add_finding(Code::PodsStillRunning, config.clone(), message);
            let message = format!("{} to end", text::count(pods.len(), "sandboxed pod"));
            out.wait_for(Waiting::Pods, config, message);
        }
    }
}

/// Removes the finalizer once nothing of the operator is left.
fn finish_removal(cluster: &Assessment, out: &mut Draft) {
    // A node that cannot be parsed may have Kata.
    for node in &cluster.unreadable_nodes {
        out.wait_for(Waiting::Read, node.clone(), format!("{node} to be readable"));
    }
    let is_done = cluster.is_clean
        && cluster.unreadable_nodes.is_empty()
        && cluster.nodes.is_empty()
        && !cluster.has_kata_nodes;
    if is_done {
        out.steps.push(remove_finalizers(&cluster.config, "nothing is left"));
    }
}

/// The finding that no node is selected, with the conditions that a node must meet.
fn no_nodes(cluster: &Assessment) -> Finding {
    let config = config_ref(&cluster.config);
    let excluded: Vec<&str> = cluster
        .findings
        .iter()
        .filter(|finding| finding.subject.kind == Kind::Node)
        .map(|finding| finding.message.as_str())
        .collect();
    if !excluded.is_empty() {
        let message =
            format!("no node that matches can be used: {}", text::list(&excluded, text::NAMES));
        let mut finding = Finding::new(Code::NoNodesSelected, config, message);
        "See why each of these nodes is excluded, or select other nodes."
            .clone_into(&mut finding.fix);
        return finding;
    }
    let candidates = &cluster.candidates;
    let message =
        format!("no node {}{}", text::join_and(&candidates.conditions), candidates.exception);
    let mut finding = Finding::new(Code::NoNodesSelected, config, message);
    if cluster.config.spec.check_node_eligibility {
        "Install Node Feature Discovery, which adds that label to nodes that can run Kata, or set \
         spec.checkNodeEligibility to false; if nodes have the label, make one of them meet the other conditions."
            .clone_into(&mut finding.fix);
    } else if candidates.by_runtime {
        "Label nodes so that spec.runtimes[].installOn selects them, or correct installOn."
            .clone_into(&mut finding.fix);
    } else if !candidates.has_selector {
        candidates.fix.clone_into(&mut finding.fix);
    }
    finding
}
