//! Converts API objects to the facts of a [`Snapshot`](crate::Snapshot). A conversion trims and never
//! fails: an absent field is an absent fact.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kata_api::names::node_job;
use kata_api::node_task::{NodeAction, NodeReport, Outcome};
use kata_api::quantity::nano;
use kata_api::{MachineConfig, names};
use serde_json::{Value, json};

use crate::snapshot::{
    Allocatable, DrainBlocker, JobEnd, JobPod, NodeFacts, NodeJob, Readiness, SandboxedPod,
    StuckContainer, UnreadableJob,
};
use crate::{eligibility, image_digest, node, text};

/// The prefix of the annotations that [`NodeFacts`] keeps.
pub const MCO_PREFIX: &str = "machineconfiguration.openshift.io/";
/// The taints of other clients that the decision reads.
const RELEVANT_TAINTS: [&str; 2] = [node::UNSCHEDULABLE_TAINT, eligibility::VIRTUAL_KUBELET_TAINT];

impl From<&Node> for NodeFacts {
    fn from(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let info = status.and_then(|status| status.node_info.as_ref());
        let handlers: BTreeSet<String> = status
            .and_then(|status| status.runtime_handlers.as_ref())
            .into_iter()
            .flatten()
            .filter_map(|handler| handler.name.clone())
            .collect();
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            uid: node.metadata.uid.clone().unwrap_or_default(),
            resource_version: node.metadata.resource_version.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            annotations: mco_annotations(&node.metadata),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            taints: kept_taints(spec.and_then(|spec| spec.taints.clone()).unwrap_or_default()),
            ready: readiness(node),
            failing_conditions: status
                .and_then(|status| status.conditions.as_ref())
                .into_iter()
                .flatten()
                .filter(|condition| is_failing(&condition.type_, &condition.status))
                .map(|condition| condition.type_.clone())
                .collect(),
            // The default handler is listed as "", so a list with only that name reports no handler.
            runtime_handlers: handlers.iter().any(|name| !name.is_empty()).then_some(handlers),
            // Some virtual kubelets write it with a capital letter.
            operating_system: info
                .map(|info| info.operating_system.to_ascii_lowercase())
                .unwrap_or_default(),
            container_runtime_version: info
                .map(|info| info.container_runtime_version.clone())
                .unwrap_or_default(),
            kernel_version: info.map(|info| info.kernel_version.clone()).unwrap_or_default(),
            os_image: info.map(|info| info.os_image.clone()).unwrap_or_default(),
            allocatable: allocatable(|key| {
                let quantity = status?.allocatable.as_ref()?.get(key)?;
                Some(quantity.0.as_str())
            }),
            boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
            created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: node.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The taints that [`NodeFacts`] keep: those that the decision reads, since others come and go while a node is changed.
/// If one of them is the operator's, all are kept: its removal writes the whole list.
pub fn kept_taints(mut taints: Vec<Taint>) -> Vec<Taint> {
    let is_ours = |taint: &Taint| {
        taint.key == names::LEAVING_TAINT || names::STARTUP_TAINTS.contains(&&*taint.key)
    };
    if !taints.iter().any(is_ours) {
        taints.retain(|taint| RELEVANT_TAINTS.contains(&&*taint.key));
    }
    taints
}

/// What pods may take of a node, of the quantities in its status.
pub fn allocatable<'a>(quantity: impl Fn(&str) -> Option<&'a str>) -> Allocatable {
    // In billionths of the unit.
    let amount = |key: &str, of: i128| i64::try_from(nano(quantity(key)?)? / of).ok();
    Allocatable {
        cpu: amount("cpu", 1_000_000),
        memory: amount("memory", 1_000_000_000),
        pods: amount("pods", 1_000_000_000),
    }
}

/// Whether the Machine Config Operator counts a node with this condition as unavailable. Does not cover the
/// condition `Ready`. A missing condition does not count.
pub fn is_failing(condition: &str, status: &str) -> bool {
    matches!(condition, "DiskPressure" | "NetworkUnavailable") && status != "False"
}

fn mco_annotations(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    metadata
        .annotations
        .iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(MCO_PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn readiness(node: &Node) -> Readiness {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let Some(ready) = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready")
    else {
        return Readiness::default();
    };
    Readiness {
        status: match ready.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        },
        reason: ready.reason.clone().unwrap_or_default(),
        message: ready.message.clone().unwrap_or_default(),
        since: ready.last_transition_time.as_ref().map(|time| time.0),
    }
}

/// Trims a rendered MachineConfig: of its Ignition config, which may have a megabyte, only one file matters.
pub fn trim_rendered(config: &mut MachineConfig) {
    config.metadata.managed_fields = None;
    let files = config.spec.config.as_ref().and_then(|config| config.pointer("/storage/files"));
    let kept: Vec<Value> = files
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|file| file.get("path").and_then(Value::as_str) == Some(names::LOG_LEVEL_FILE))
        .cloned()
        .collect();
    config.spec.config = (!kept.is_empty()).then(|| json!({"storage": {"files": kept}}));
}

/// Most bytes of a failed container's message.
const FAILURE: usize = 512;
/// The annotation of a mirror pod, which a kubelet creates.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The facts of a Job of the node agent, or why they cannot be read; `None` for any other Job.
pub fn node_job(job: &Job) -> Option<Result<NodeJob, UnreadableJob>> {
    let annotations = job.metadata.annotations.as_ref()?;
    let node = annotations.get(node_job::NODE)?.clone();
    let name = job.metadata.name.clone().unwrap_or_default();
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let read = node_job_with(job, annotations, &name, &uid, &node);
    Some(read.map_err(|error| UnreadableJob { name, uid, node, error }))
}

fn node_job_with(
    job: &Job,
    annotations: &BTreeMap<String, String>,
    name: &str,
    uid: &str,
    node: &str,
) -> Result<NodeJob, String> {
    let text = |key: &str| {
        annotations.get(key).cloned().ok_or_else(|| format!("it has no annotation {key}"))
    };
    let unknown = |key: &str, value: &str| {
        format!(
            "its annotation {key} is {value:?}, which this version of the operator does not know"
        )
    };
    let action = text(node_job::ACTION)?;
    let number = text(node_job::NUMBER)?;
    let status = job.status.as_ref();
    let had_pod = status.is_some_and(|status| {
        [status.failed, status.succeeded].into_iter().flatten().any(|count| count > 0)
    });
    let end = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten()
        .find(|condition| {
            condition.status == "True" && matches!(condition.type_.as_str(), "Complete" | "Failed")
        })
        .map(|condition| JobEnd {
            failed: (condition.type_ == "Failed")
                .then(|| condition.reason.clone().unwrap_or_default()),
            message: condition.message.clone().unwrap_or_default(),
            time: condition.last_transition_time.as_ref().map(|time| time.0),
            had_pod,
        });
    Ok(NodeJob {
        name: name.to_owned(),
        uid: uid.to_owned(),
        node: node.to_owned(),
        node_uid: text(node_job::NODE_UID)?,
        action: NodeAction::parse(&action).ok_or_else(|| unknown(node_job::ACTION, &action))?,
        desired_state_digest: text(node_job::STATE)?,
        node_facts_digest: text(node_job::FACTS)?,
        payload_image: text(node_job::PAYLOAD).ok(),
        number: number.parse().map_err(|_ignored| unknown(node_job::NUMBER, &number))?,
        created: job.metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleting: job.metadata.deletion_timestamp.is_some(),
        held: suspended(job),
        end,
    })
}

/// That a Job is suspended. An admission webhook that does so is not named: the field is then of who created the Job.
fn suspended(job: &Job) -> Option<String> {
    job.spec.as_ref().filter(|spec| spec.suspend == Some(true))?;
    let sets = |entry: &&ManagedFieldsEntry| {
        entry.fields_v1.as_ref().is_some_and(|it| it.0.pointer("/f:spec/f:suspend").is_some())
    };
    let entries = job.metadata.managed_fields.iter().flatten().filter(sets);
    let manager = entries
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))
        .and_then(|entry| entry.manager.as_deref());
    Some(match manager {
        Some(names::FIELD_MANAGER) => {
            "is suspended (spec.suspend), by an admission webhook when it was created".to_owned()
        }
        Some(manager) => format!("is suspended (spec.suspend), last set by {manager}"),
        None => "is suspended (spec.suspend)".to_owned(),
    })
}

/// That a pod has scheduling gates.
fn gated(pod: &Pod) -> Option<String> {
    let gates = pod.spec.as_ref()?.scheduling_gates.as_deref().filter(|gates| !gates.is_empty())?;
    let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
    Some(format!(
        "has scheduling gates, and is scheduled once they are removed: {}",
        names.join(", ")
    ))
}

/// The facts of a pod of such a Job; `None` for any other pod.
pub fn job_pod(pod: &Pod) -> Option<JobPod> {
    let metadata = &pod.metadata;
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
    // A kubelet may create mirror pods in any namespace, with any labels and annotations. It must not be
    // able to report the result of another node's Job.
    if annotation(MIRROR).is_some() {
        return None;
    }
    let node = annotation(node_job::NODE).cloned()?;
    let action = annotation(node_job::ACTION).and_then(|action| NodeAction::parse(action));
    let status = pod.status.as_ref();
    let scheduled = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled");
    let refused = scheduled.filter(|condition| condition.status == "False");
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    let bound = scheduled
        .filter(|condition| condition.status == "True")
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map(|time| time.0);
    let first = status.and_then(|status| status.init_container_statuses.as_deref());
    let main = status.and_then(|status| status.container_statuses.as_deref());
    let containers = || first.into_iter().flatten().chain(main.into_iter().flatten());
    let agent = main.into_iter().flatten().find(|status| status.name == node_job::AGENT_CONTAINER);
    let ended = agent.and_then(|agent| agent.state.as_ref()?.terminated.as_ref());
    let started = agent
        .and_then(|agent| agent.state.as_ref())
        .is_some_and(|state| state.running.is_some() || state.terminated.is_some());
    let waits = refused.is_none() && !is_finished(pod) && !started && !containers().any(is_running);
    Some(JobPod {
        name: metadata.name.clone().unwrap_or_default(),
        job: label(node_job::JOB_NAME_LABEL)?,
        node,
        // A pod with an unknown action may change the node.
        may_change_node: !matches!(action, Some(NodeAction::Preflight | NodeAction::Inspect)),
        created,
        finished: is_finished(pod),
        held: gated(pod),
        unschedulable: refused.map(|it| it.message.clone().unwrap_or_default()),
        waits_since: containers()
            .filter_map(ended_at)
            .max()
            .or(bound)
            .max(created)
            .filter(|_| waits),
        stuck: containers()
            .find_map(|status| stuck(status, annotation(node_job::PAYLOAD).map(String::as_str))),
        started,
        staged: image_digest::staged(pod),
        report: ended
            .and_then(|ended| ended.message.as_deref())
            .map(str::trim)
            .filter(|message| !message.is_empty())
            .map(|message| NodeReport::parse(message).map_err(|error| error.to_string()))
            .or_else(|| refusal(first.unwrap_or_default()).map(Ok)),
        failures: containers().filter_map(failure).collect(),
    })
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// The report of the staging container, if it refused the payload. That container changes nothing on the
/// node, so no other outcome is accepted.
fn refusal(containers: &[ContainerStatus]) -> Option<NodeReport> {
    let stage = containers.iter().find(|status| status.name == node_job::STAGE_CONTAINER)?;
    let ended = stage.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
    let report = NodeReport::parse(ended.message.as_deref()?.trim()).ok()?;
    (report.outcome == Outcome::Refused && !report.changed).then_some(report)
}

/// When a container ended.
fn ended_at(status: &ContainerStatus) -> Option<Timestamp> {
    let ended = status.state.as_ref()?.terminated.as_ref()?;
    ended.finished_at.as_ref().map(|time| time.0)
}

/// Why a container waits, if it may never start; `payload` is the image from which one of them stages.
fn stuck(status: &ContainerStatus, payload: Option<&str>) -> Option<StuckContainer> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.clone()?;
    (!matches!(reason.as_str(), "ContainerCreating" | "PodInitializing")).then(|| StuckContainer {
        container: status.name.clone(),
        image: status.image.clone(),
        asked_for: payload
            .filter(|_| status.name == node_job::STAGE_CONTAINER && status.image.contains('/'))
            .filter(|asked| !image_digest::is_same_repository(&status.image, asked))
            .map(str::to_owned),
        reason,
        message: text::cut(waiting.message.as_deref().unwrap_or_default(), FAILURE),
    })
}

/// How a container failed; `None` if it did not fail.
fn failure(status: &ContainerStatus) -> Option<String> {
    let ended = status.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
    let message = ended.message.as_deref().unwrap_or_default().trim();
    let why = match (message.starts_with('{'), message, ended.reason.as_deref()) {
        // A report is parsed separately.
        (false, message, _) if !message.is_empty() => format!(": {}", text::cut(message, FAILURE)),
        (_, _, Some(reason)) if reason != "Error" => format!(": {reason}"),
        _ => String::new(),
    };
    Some(format!("{} ended with exit code {}{why}", status.name, ended.exit_code))
}

/// The facts of a pod; `None` if it names no RuntimeClass.
pub fn sandboxed_pod(pod: &Pod) -> Option<SandboxedPod> {
    let spec = pod.spec.as_ref()?;
    let runtime_class = spec.runtime_class_name.clone()?;
    Some(SandboxedPod {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        runtime_class,
        node: spec.node_name.clone().filter(|name| !name.is_empty()),
        owner: owner(pod),
        finished: is_finished(pod),
        deleting: pod.metadata.deletion_timestamp.is_some(),
    })
}

/// The controller that would create a deleted pod again and that an admin can scale. The name of a
/// Deployment's ReplicaSet is that of the Deployment and a hash, which is a label of its pods; the
/// Deployment reverts a change of its scale.
fn owner(pod: &Pod) -> Option<String> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get("pod-template-hash"));
    let deployment = hash
        .filter(|_| owner.kind == "ReplicaSet")
        .and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    Some(match deployment {
        Some(name) => format!("Deployment {name}"),
        None => format!("{} {}", owner.kind, owner.name),
    })
}

/// Removes the fields that the API server or a controller sets: status, managedFields, resourceVersion and
/// generation.
pub fn strip_server_fields(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(key);
        }
    }
    object
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The pods that block the drain of a node: those under a PodDisruptionBudget that allows no disruption,
/// and those that are being deleted and have not ended. `pods` are the pods on the node, and `budgets` the
/// PodDisruptionBudgets of their namespaces. Pods of DaemonSets and mirror pods do not count, because a
/// drain leaves them on the node.
pub fn drain_blockers(pods: &[Pod], budgets: &[PodDisruptionBudget]) -> Vec<DrainBlocker> {
    let mut blockers: Vec<DrainBlocker> = pods
        .iter()
        .filter(|pod| is_evicted_by_drain(pod))
        .filter_map(|pod| {
            let budget = budgets.iter().find(|budget| covers(budget, pod));
            let deleting = pod.metadata.deletion_timestamp.is_some();
            (deleting || budget.is_some()).then(|| DrainBlocker {
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                pod: pod.metadata.name.clone().unwrap_or_default(),
                budget: budget
                    .filter(|_| !deleting)
                    .and_then(|budget| budget.metadata.name.clone()),
            })
        })
        .collect();
    blockers.sort();
    blockers
}

/// Whether a drain evicts the pod: it has not finished, and neither the kubelet nor a DaemonSet owns it.
pub fn is_evicted_by_drain(pod: &Pod) -> bool {
    !is_finished(pod) && !stays_on_drain(pod)
}

fn stays_on_drain(pod: &Pod) -> bool {
    let mirror = pod
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(MIRROR));
    let daemon = pod
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet");
    mirror || daemon
}

/// Whether a budget that allows no disruption covers the pod.
fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let exhausted =
        budget.status.as_ref().is_some_and(|status| status.disruptions_allowed.unwrap_or(0) <= 0);
    let empty = BTreeMap::new();
    exhausted
        && budget.metadata.namespace == pod.metadata.namespace
        && budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| {
            crate::selector::matches(selector, pod.metadata.labels.as_ref().unwrap_or(&empty))
                == Ok(true)
        })
}
