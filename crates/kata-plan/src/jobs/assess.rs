//! From a snapshot to the [`Assessment`] of a cluster whose nodes are changed by Jobs.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kata_api::kata_node::{JobOutcome, UnknownValue};
use kata_api::node_task::NodeAction;
use kata_api::{Code, KataConfig, KataNode, Natural, names};

use super::cluster::{Cluster, Due, Host, Rollout};
use super::desired::{self, Desired, NodeState};
use super::due::{self, HANDLERS_GRACE};
use super::provided::{self, Source};
use super::record::{self, JobsOfNode, NodeRecord};
use super::{candidates, changes, node, payload, removal, take_over};
use crate::assessment::{Assessment, Candidates, KataState, LeaveReason, NodeAssessment};
use crate::configs::config_ref;
use crate::draft::Draft;
use crate::leaving;
use crate::object::{Kind, ObjectRef};
use crate::ownership::is_owned_by;
use crate::reading::{Reading, Unreadable};
use crate::report::Finding;
use crate::selection::{Selected, eligible_text, selector_text};
use crate::selector;
use crate::snapshot::{NodeFacts, NodeJob, Snapshot};
use crate::text;

/// The label with the type of a node's machine.
const MACHINE_TYPE: &str = "node.kubernetes.io/instance-type";
/// From so many nodes on, a pool of which no node can run Kata is reported.
const UNFIT_NODES: usize = 3;

/// Assesses a cluster for its active KataConfig, and plans the steps of this back end.
pub(crate) fn assess(
    snapshot: &Snapshot,
    config: &KataConfig,
) -> Result<(Assessment, Draft), Unreadable> {
    let mut reading = Reading::new(snapshot, config);
    reading.require(&snapshot.kata_nodes);
    reading.require(&snapshot.runtime_classes);
    reading.require(&snapshot.jobs.jobs);
    reading.require(&snapshot.jobs.pods);
    reading.require(&snapshot.nodes);
    reading.finish()?;
    let mut base = Assessment::new(snapshot, config);
    base.own_node_label = (names::CLAIM_LABEL, names::CLAIMED);
    base.candidates = candidates_in_words(config);
    let mut cluster = Cluster {
        snapshot,
        desired: Desired::of(&base),
        base,
        nodes: Vec::new(),
        provided: Vec::new(),
        rollout: Rollout::default(),
        may_remove: false,
        orphaned_jobs: Vec::new(),
    };
    cluster.base.findings.extend(cluster.desired.problems.iter().cloned());
    report_invalid_selectors(&mut cluster.base);
    report_unreadable_jobs(&mut cluster);
    add_nodes(&mut cluster);
    report_warnings_of_checks(&mut cluster);
    report_unfit_pools(&mut cluster);
    pass_over_nodes_that_cannot_start(&mut cluster);
    cluster.orphaned_jobs = orphaned_jobs(&cluster);
    let mut changes = Draft::default();
    removal::decide_rollout(&mut cluster, &mut changes);
    finish_nodes(&mut cluster);
    let is_clean = changes::changes(&cluster, &mut changes);
    let Cluster { mut base, nodes, provided, .. } = cluster;
    let mut nodes: Vec<NodeAssessment> =
        nodes.into_iter().map(|host| host.node).chain(provided).collect();
    nodes.sort_by(|a, b| Natural(&a.facts.name).cmp(&Natural(&b.facts.name)));
    base.nodes.reserve(nodes.len());
    for node in nodes {
        base.push(node);
    }
    base.find_departed(snapshot, was_removed);
    base.is_clean = is_clean;
    Ok((base, changes))
}

fn report_invalid_selectors(base: &mut Assessment) {
    for runtime in &base.config.spec.runtimes {
        if let Some(Err(error)) = runtime.install_on.as_ref().map(selector::check) {
            let message = format!(
                "spec.runtimes[{}].installOn: {error}; nodes of the KataConfig neither get nor lose this runtime \
                 meanwhile",
                runtime.name
            );
            let config = config_ref(&base.config);
            base.findings.push(Finding::new(Code::InvalidSelector, config, message));
        }
    }
}

/// Reports the Jobs that cannot be parsed. Their nodes are left unchanged, and no deletion completes.
fn report_unreadable_jobs(cluster: &mut Cluster<'_>) {
    let snapshot = cluster.snapshot;
    for job in &snapshot.jobs.unreadable {
        let object = changes::job_ref(cluster, &job.name, Some(&job.uid));
        let message = format!(
            "cannot read {object}: {}; node {} is left unchanged meanwhile",
            job.error, job.node
        );
        let mut finding = Finding::new(Code::ReadFailed, object, message);
        finding.fix = format!(
            "Run the version of the operator that created the Job, or delete it once its pod has ended: `kubectl \
             delete job {} -n {}`.",
            job.name, cluster.base.options.namespace
        );
        cluster.base.findings.push(finding);
    }
}

/// Reports what checks of nodes warned of, once for all nodes.
fn report_warnings_of_checks(cluster: &mut Cluster<'_>) {
    let mut nodes: BTreeMap<(Code, &str), Vec<&str>> = BTreeMap::new();
    for host in cluster.nodes.iter().filter(|host| host.node.wanted) {
        for warning in &host.record.status.warnings {
            if let Some(code) = Code::parse(&warning.code) {
                nodes.entry((code, &warning.message)).or_default().push(&host.node.facts.name);
            }
        }
    }
    let config = config_ref(&cluster.base.config);
    let findings: Vec<Finding> = nodes
        .into_iter()
        .map(|((code, message), nodes)| {
            let message = message.trim_end_matches('.');
            let message = format!("{message}; found on {}", text::list(&nodes, text::NAMES));
            Finding::new(code, config.clone(), message)
        })
        .collect();
    cluster.base.findings.extend(findings);
}

/// Reports node pools that make nodes without virtualization. An autoscaler goes on making them, since a node with Kata
/// would take the pod that waits.
fn report_unfit_pools(cluster: &mut Cluster<'_>) {
    let is_unfit = |host: &Host<'_>| {
        let last = host.record.status.job.as_ref();
        let code = last
            .filter(|job| job.outcome.or(job.previous_outcome) == Some(JobOutcome::Refused))
            .and_then(|job| Code::parse(job.code.as_deref()?))?;
        let is_new = host.node.wanted && host.node.facts.has_startup_taint();
        (is_new && record::is_need_of_sandboxes(code)).then_some(code)
    };
    let mut pools = BTreeMap::<_, Vec<_>>::new();
    for host in &cluster.nodes {
        if let (Some(pool), Some(code)) = (pool(&host.node.facts), is_unfit(host)) {
            pools.entry(pool).or_default().push((host.node.facts.name.as_str(), code));
        }
    }
    for host in cluster.nodes.iter().filter(|host| host.record.status.installed.is_some()) {
        if let Some(pool) = pool(&host.node.facts) {
            pools.remove(&pool);
        }
    }
    let config = config_ref(&cluster.base.config);
    let findings: Vec<Finding> = pools
        .into_iter()
        .filter(|(_, nodes)| nodes.len() >= UNFIT_NODES)
        .map(|((key, name), nodes)| {
            let code = nodes.first().map(|(_, code)| code.entry().code).unwrap_or_default();
            let nodes: Vec<&str> = nodes.into_iter().map(|(name, _)| name).collect();
            let count = text::count(nodes.len(), "new node");
            let these = if key == MACHINE_TYPE {
                format!("{count} of machine type {name}")
            } else {
                format!("{count} of the node pool {name} ({key})")
            };
            let list = text::list(&nodes, text::NAMES);
            let message = format!("none of {these} can run Kata ({code}): {list}");
            Finding::new(Code::PoolUnfit, config.clone(), message)
        })
        .collect();
    cluster.base.findings.extend(findings);
}

/// The label that names the pool of a node, and the pool.
fn pool(facts: &NodeFacts) -> Option<(&'static str, &str)> {
    const LABELS: [&str; 5] = [
        "karpenter.sh/nodepool",
        "eks.amazonaws.com/nodegroup",
        "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool",
        // The nodes of other clouds, and of the Cluster API, do not say of which pool they are.
        MACHINE_TYPE,
    ];
    LABELS.iter().find_map(|key| Some((*key, facts.labels.get(*key)?.as_str())))
}

/// Whether a Job removed Kata from a node. From a node that was never changed nothing is removed.
fn was_removed(kata_node: &KataNode) -> bool {
    let host = kata_node.status.as_ref().and_then(|status| status.host.as_ref());
    host.and_then(|host| host.job.as_ref()).is_some_and(|job| job.action == NodeAction::Remove)
}

fn candidates_in_words(config: &KataConfig) -> Candidates {
    let spec = &config.spec;
    let selector = selector_text(spec);
    let has_selector = selector.is_some();
    let outside = (!has_selector).then(|| "is outside the control plane".to_owned());
    let by_runtime =
        !spec.runtimes.is_empty() && spec.runtimes.iter().all(|it| it.install_on.is_some());
    let of_runtime = by_runtime.then(|| "is selected by installOn of a runtime".to_owned());
    let runs_linux = Some("runs Linux".to_owned());
    let conditions = [selector, eligible_text(spec), runs_linux, outside, of_runtime];
    Candidates {
        conditions: conditions.into_iter().flatten().collect(),
        exception: if has_selector {
            "; a node of the control plane is selected only if the selector names its role, its host name or \
             a label of your own"
        } else {
            ""
        },
        has_selector,
        by_runtime,
        fix: "Add a node that meets these conditions, or select nodes of the control plane in \
              spec.kataConfigPoolSelector by their role, host name or a label of your own.",
    }
}

fn add_nodes(cluster: &mut Cluster<'_>) {
    let snapshot = cluster.snapshot;
    let jobs = jobs_by_node(snapshot);
    let kata_nodes: BTreeMap<&str, &Arc<KataNode>> = snapshot
        .kata_nodes
        .known()
        .into_iter()
        .flatten()
        .map(|kata_node| (kata_node.spec.node_name.as_str(), kata_node))
        .collect();
    let mut nodes: Vec<&Arc<NodeFacts>> = snapshot.nodes.known().into_iter().flatten().collect();
    nodes.sort_by(|a, b| Natural(&a.name).cmp(&Natural(&b.name)));
    cluster.nodes.reserve(nodes.len());
    let with_unreadable_jobs: BTreeSet<&str> =
        snapshot.jobs.unreadable.iter().map(|job| job.node.as_str()).collect();
    let mut states: Vec<Arc<NodeState>> = Vec::new();
    let mut labelled_by_others = Vec::new();
    for facts in nodes {
        let name = facts.name.as_str();
        let previous = kata_nodes.get(name).copied();
        let of_node = jobs.get(name);
        let is_readable = !cluster.base.unreadable_kata_nodes.contains(name)
            && !with_unreadable_jobs.contains(name);
        let record = record::reconstruct(
            snapshot.freshness,
            is_readable,
            facts,
            previous.map(AsRef::as_ref),
            of_node,
            cluster.base.now,
        );
        let unknown = &record.status.unknown_values;
        cluster.base.findings.extend(unknown.iter().map(|value| unknown_value(facts, value)));
        let chosen = |keeps_unmatched| choose(cluster, facts, previous, &record, keeps_unmatched);
        let was_provided = provided::is_recorded(facts, previous.map(AsRef::as_ref));
        let has_kata = (was_provided && provided::has_operator_labels(facts))
            || provided::has_artifacts_of_operator(&record);
        let is_same = |a: &Chosen, b: &Chosen| {
            let selected = |it: &Chosen| matches!(it.selected, Selected::Yes);
            a.source == b.source && a.desired == b.desired && selected(a) == selected(b)
        };
        let (chosen, leaves_at) = leaving::keep_or_leave(
            &cluster.base,
            facts,
            previous.map(AsRef::as_ref),
            has_kata,
            chosen,
            is_same,
        );
        let source = chosen.source;
        let is_provided = source == Source::Provided;
        let desired = shared(&mut states, chosen.desired);
        let desired = Some(desired).filter(|it| !it.classes.is_empty());
        let desired = match chosen.selected {
            _ if source == Source::WasProvided => None,
            Selected::Yes => desired,
            Selected::No => None,
            Selected::Excluded(finding) => {
                if !cluster.base.deleting && desired.is_some() {
                    cluster.base.findings.push(finding);
                }
                None
            }
        };
        cluster.base.selected += usize::from(desired.is_some());
        if desired.is_none() && facts.is_of_kata_deploy() && facts.has_runtime_label() {
            cluster.base.left_to_kata_deploy.insert(facts.name.clone());
        }
        let desired = desired.filter(|_| !cluster.base.deleting);
        let is_by_jobs = source == Source::Jobs;
        let status = Arc::clone(&record.status);
        let host = if is_by_jobs || provided::has_artifacts_of_operator(&record) {
            host(cluster, facts, previous, record, desired.clone().filter(|_| is_by_jobs))
        } else {
            None
        };
        if let Some(mut host) = host {
            host.node.leaves_at = leaves_at;
            if is_provided {
                host.node.leave_reason = LeaveReason::NowProvided;
            }
            cluster.nodes.push(host);
            continue;
        }
        let node = if is_by_jobs {
            None
        } else {
            provided::node(cluster, facts, previous, &status, desired, is_provided)
        };
        match node {
            Some(node) => cluster.provided.push(NodeAssessment { leaves_at, ..node }),
            None if facts.has_runtime_label() => labelled_by_others.push(facts.name.as_str()),
            None => {}
        }
    }
    cluster.base.report_foreign_labels(&labelled_by_others);
}

/// How Kata comes to a node, whether the node is selected, and what it should have then.
struct Chosen {
    source: Source,
    selected: Selected,
    desired: NodeState,
}

/// What the KataConfig chooses for a node. `keeps_unmatched`: what the node has stays although selectors no longer match.
fn choose(
    cluster: &Cluster<'_>,
    facts: &NodeFacts,
    previous: Option<&Arc<KataNode>>,
    record: &NodeRecord<'_>,
    keeps_unmatched: bool,
) -> Chosen {
    let config = &cluster.base.config;
    let previous = previous.map(AsRef::as_ref);
    let artifacts = record.status.may_have_artifacts;
    let is_installed = record.status.installed.is_some();
    let is_own = !take_over::was_not_taken(&cluster.base, facts, is_installed)
        && (artifacts || node::is_claimed(&facts.labels) || provided::is_recorded(facts, previous));
    let source = provided::source(config, facts, keeps_unmatched, previous, artifacts);
    let is_provided = source == Source::Provided;
    let has = |handler: &str| {
        if is_provided {
            facts.reports(handler)
        } else {
            desired::may_have(&record.status, handler)
        }
    };
    let desired = cluster.desired.of_node(&cluster.base, facts, keeps_unmatched, has);
    let is_handler = |handler: &str| cluster.desired.is_handler(handler);
    let selected = candidates::select(
        config,
        facts,
        keeps_unmatched,
        is_own,
        artifacts,
        is_provided,
        is_handler,
    );
    Chosen { source, selected, desired }
}

/// One copy for all nodes with the same desired state, which are many.
fn shared(states: &mut Vec<Arc<NodeState>>, state: NodeState) -> Arc<NodeState> {
    if let Some(known) = states.iter().find(|known| ***known == state) {
        return Arc::clone(known);
    }
    let state = Arc::new(state);
    states.push(Arc::clone(&state));
    state
}

/// The finding that a node's KataNode has a value that this version does not know.
fn unknown_value(facts: &NodeFacts, unknown: &UnknownValue) -> Finding {
    let name = &facts.name;
    let message = format!(
        "KataNode {name}: {} is {}, which this version of the operator does not know; node {name} is left unchanged",
        unknown.field, unknown.value
    );
    let node = ObjectRef::new(Kind::Node, name, Some(&facts.uid));
    Finding::new(Code::KataNodeValueUnknown, node, message)
}

/// The Jobs of the node agent and their pods, by node.
pub(crate) fn jobs_by_node(snapshot: &Snapshot) -> BTreeMap<&str, JobsOfNode<'_>> {
    let mut by_node: BTreeMap<&str, JobsOfNode<'_>> = BTreeMap::new();
    for job in snapshot.jobs.jobs.known().into_iter().flatten() {
        by_node.entry(&job.node).or_default().jobs.push(job);
    }
    for pod in snapshot.jobs.pods.known().into_iter().flatten() {
        by_node.entry(&pod.node).or_default().pods.push(pod);
    }
    by_node
}

/// Gives up Jobs that have not started for minutes while other nodes wait: one node that cannot pull an
/// image must not block all others.
fn pass_over_nodes_that_cannot_start(cluster: &mut Cluster<'_>) {
    let now = cluster.base.now;
    let waits = |host: &Host<'_>| {
        let first_try = host.record.status.job.as_ref().is_none_or(|job| job.failures == 0);
        let is_due = matches!(host.due, Due::Change(_) | Due::Check(NodeAction::Preflight));
        is_due && host.record.has_no_job() && first_try
    };
    let others_wait = cluster.nodes.iter().any(waits);
    for index in 0..cluster.nodes.len() {
        let host = &cluster.nodes[index];
        let stuck =
            host.record.running.is_some_and(|(job, pod)| record::cannot_start(job, pod, now));
        // Its next Job may pull the image by another name.
        let by_digest = host
            .record
            .running
            .and_then(|(_, pod)| pod)
            .is_some_and(|pod| payload::lacks_digest(pod, cluster.desired.payload_image()));
        if !stuck || !(others_wait || by_digest) {
            continue;
        }
        let mut record = host.record.clone();
        let wanted = host.node.wanted.then_some(host.desired.state.as_str());
        record.give_up_unstarted(wanted, true, cluster.snapshot.freshness, now);
        let (facts, previous) = (Arc::clone(&host.node.facts), host.node.previous.clone());
        let desired = host.node.wanted.then(|| Arc::clone(&host.desired));
        let (leave_reason, leaves_at) = (host.node.leave_reason, host.node.leaves_at);
        if let Some(mut host) = self::host(cluster, &facts, previous.as_ref(), record, desired) {
            host.node.leave_reason = leave_reason;
            host.node.leaves_at = leaves_at;
            cluster.nodes[index] = host;
        }
    }
}

/// A node and what is due on it; `None` if the node has no Kata and gets none. `desired` is its desired state if it
/// should have Kata.
fn host<'a>(
    cluster: &Cluster<'a>,
    facts: &Arc<NodeFacts>,
    previous: Option<&Arc<KataNode>>,
    mut record: NodeRecord<'a>,
    desired: Option<Arc<NodeState>>,
) -> Option<Host<'a>> {
    let base = &cluster.base;
    let wanted = desired.is_some();
    let state = desired.as_ref().map(|desired| desired.state.as_str());
    record.give_up_unstarted(state, false, cluster.snapshot.freshness, base.now);
    let joined = node::is_claimed(&facts.labels);
    let may_have_artifacts = record.status.may_have_artifacts
        || record.running.is_some_and(|(job, _)| job.action == NodeAction::Install);
    // Without the KataNode, a Job that still exists would count as a new one.
    let is_recorded = previous.is_some_and(|it| is_owned_by(it, &facts.uid));
    let unfinished = is_recorded && (record.has_new_result || !record.deletable_jobs.is_empty());
    let has_traces = may_have_artifacts
        || joined
        || unfinished
        || record.has_orphaned_change()
        || facts.has_leaving_taint()
        || !record.is_understood;
    if !wanted && !has_traces {
        return None;
    }
    let desired = desired.unwrap_or_else(|| Arc::clone(cluster.desired.without_kata()));
    let action = if wanted { NodeAction::Install } else { NodeAction::Remove };
    let installed = record.status.installed.as_ref();
    // An empty list means that the Job did not report the handlers.
    let offers = |name: &str| {
        let handlers = &record.status.handlers;
        handlers.is_empty() || handlers.iter().any(|handler| handler == name)
    };
    let missing = match installed {
        Some(_) => desired.missing(facts, offers),
        None => Vec::new(),
    };
    let since = record.status.job.as_ref().map(|job| job.time);
    let overdue = !missing.is_empty()
        && since.is_some_and(|since| base.now.duration_since(since) >= HANDLERS_GRACE);
    let is_current = installed == Some(&desired.state);
    let unassessed = NodeAssessment::new(facts, previous, base.now);
    let is_taken = take_over::keeps_runtime_label(base, facts, installed.is_some());
    let node = NodeAssessment {
        has_runtime_label: if is_taken {
            facts.has_class_label()
        } else {
            unassessed.has_runtime_label
        },
        keeps_runtime_label: is_taken,
        wanted,
        joined,
        kata: if installed.is_some() { KataState::Installed } else { KataState::Absent },
        behind: wanted && installed.is_some() && !is_current,
        classes: Arc::clone(&desired.classes),
        leaving_classes: desired.leaving.clone(),
        is_understood: record.is_understood,
        ..unassessed
    };
    let mut host = Host {
        given_up: false,
        is_unrecorded: wanted
            && joined
            && node.has_runtime_label
            && lacks_record(&desired, facts, &record),
        node,
        desired,
        missing,
        known_facts_digest: OnceCell::new(),
        due: Due::Nothing,
        permitted: false,
        overdue,
        record,
    };
    host.given_up = (!is_current || !wanted)
        && host.record.status.failed_for.as_ref().is_some_and(|failed| {
            *failed == record::change_key(action, &host.desired.state, host.facts_digest())
        });
    host.node.has_failed = node::has_failed(&host);
    host.due = due::due(cluster, &host);
    host.node.due = due::next_timer(cluster, &host);
    host.node.wants_removal = !wanted && host.due == Due::Change(NodeAction::Remove);
    Some(host)
}

/// Whether there is no record of a change of a node, although its kubelet reports all desired handlers.
fn lacks_record(desired: &NodeState, facts: &NodeFacts, record: &NodeRecord<'_>) -> bool {
    let status = &record.status;
    // A failed check counts only if it refused the node or found a drift.
    let is_unharmed = status.job.as_ref().is_none_or(|last| {
        matches!(last.action, NodeAction::Preflight | NodeAction::Inspect)
            && !matches!(last.outcome, Some(JobOutcome::Refused | JobOutcome::Drifted))
    });
    status.installed.is_none()
        && !status.may_have_artifacts
        && is_unharmed
        && facts.runtime_handlers.is_some()
        && desired.missing(facts, |_| true).is_empty()
}

/// Completes each node with the result of the rollout.
fn finish_nodes(cluster: &mut Cluster<'_>) {
    let mut nodes = std::mem::take(&mut cluster.nodes);
    for host in &mut nodes {
        host.node.record = Some(Arc::clone(&host.record.status));
        host.permitted = cluster.rollout.permitted.contains(&host.node.facts.name);
        node::classify(cluster, host);
        host.node.since = crate::node::since(&cluster.base, &host.node);
        let too_long_at = crate::node::not_ready_too_long_at(&cluster.base, &host.node);
        host.node.is_overdue = too_long_at.is_some_and(|at| at <= cluster.base.now)
            || node::waits_too_long_for_job(cluster, host);
        let failures = host.record.status.job.as_ref().map_or(0, |last| last.failures);
        host.node.is_tried_again = failures > 0 && host.node.finding.is_some();
        let due = [host.node.due, too_long_at.filter(|at| *at > cluster.base.now)];
        host.node.due = due.into_iter().flatten().min();
    }
    cluster.nodes = nodes;
}

/// The Jobs of nodes that are not assessed, by name. The last Job of a node has the result of its change
/// and is deleted after the others: without it, an earlier Job would count as a new one.
fn orphaned_jobs(cluster: &Cluster<'_>) -> Vec<(String, String)> {
    let snapshot = cluster.snapshot;
    let assessed: BTreeSet<&str> =
        cluster.nodes.iter().map(|host| host.node.facts.name.as_str()).collect();
    let is_orphaned = |job: &&NodeJob| !assessed.contains(job.node.as_str());
    let jobs: Vec<&NodeJob> =
        snapshot.jobs.jobs.known().into_iter().flatten().filter(is_orphaned).collect();
    if jobs.is_empty() {
        return Vec::new();
    }
    let nodes = snapshot.nodes.known().into_iter().flatten();
    let mut of_node: BTreeMap<&str, BTreeSet<(i64, &str)>> =
        nodes.map(|node| (node.name.as_str(), BTreeSet::new())).collect();
    for job in &jobs {
        if let Some(all) = of_node.get_mut(job.node.as_str()) {
            all.insert((job.number, &job.name));
        }
    }
    let is_last_of_several = |job: &NodeJob| {
        let all = of_node.get(job.node.as_str());
        all.is_some_and(|all| all.len() > 1 && all.last() == Some(&(job.number, &job.name)))
    };
    let mut orphaned_jobs: Vec<(String, String)> = jobs
        .into_iter()
        .filter(|job| {
            !job.deleting
                && !snapshot.is_unreadable(Kind::Node, &job.node)
                && !is_last_of_several(job)
        })
        .map(|job| (job.name.clone(), job.uid.clone()))
        .collect();
    orphaned_jobs.sort();
    orphaned_jobs
}
