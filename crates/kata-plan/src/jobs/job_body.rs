//! The Job that runs a task on one node.
//!
//! Its pod has no API token and is not privileged: it gets the capabilities and the folders of the host
//! that its action needs, see docs/privileges.md. Its arguments contain the task, and its termination
//! message the report.

use kata_api::names::node_job::{
    AGENT_VOLUME, CAPABILITIES, COPY, FOLDERS, HOST_ROOT, LOCK_FOLDER, OPERATOR, PAYLOAD_FOLDER,
    READ_ONLY, STAGE_CAPABILITIES, STAGING,
};
use kata_api::names::{self, node_job};
use kata_api::node_task::{NodeAction, NodeTask};
use serde_json::{Value, json};

use crate::eligibility;
use crate::image_digest;
use crate::job_limits::JobLimits;
use crate::object::Kind;
use crate::snapshot::Options;
use crate::text::{cut_name, digest};

/// The read-only folders that an action needs: a removal reads no device.
fn read_only(action: NodeAction) -> impl Iterator<Item = &'static str> {
    READ_ONLY.into_iter().filter(move |path| action != NodeAction::Remove || *path != "/dev")
}

/// The deadline of a Job that changes nothing, in seconds, including the image pull.
const CHECK_SECONDS: u32 = 600;
/// The deadline of a Job that changes the node or stages the payload, in seconds, including the image pull.
const CHANGE_SECONDS: u32 = 1_800;
/// Most bytes of a Job's name, which must fit into a label of its pods.
const NAME: usize = 63;

/// The parameters of a Job.
#[derive(Clone, Debug)]
pub(crate) struct JobParameters<'a> {
    pub(crate) task: &'a NodeTask,
    pub(crate) node_uid: &'a str,
    /// The digest of the desired state.
    pub(crate) state: &'a str,
    /// The digest of the node's facts.
    pub(crate) facts: &'a str,
    /// Counts the Jobs of the node.
    pub(crate) number: i64,
    /// The image of the operator.
    pub(crate) agent_image: &'a str,
    /// The image of the payload, as it was asked for.
    pub(crate) payload_image: &'a str,
    /// The digest of that image, if it is known from another node.
    pub(crate) payload_digest: Option<&'a str>,
    /// Whether the Job stages the payload from its image first, see [`stages`].
    pub(crate) stages: bool,
}

/// Whether a Job stages the payload from its image first: an installation does, and a preflight of a node that has
/// another payload (`ahead`), which stays in use meanwhile.
pub(crate) fn stages(action: NodeAction, ahead: bool) -> bool {
    action == NodeAction::Install || (action == NodeAction::Preflight && ahead)
}

/// The name of a Job. Two Jobs of a node with the same number have the same name, so that a Job that was
/// planned twice on old data exists only once.
pub(crate) fn name(node: &str, node_uid: &str, number: i64) -> String {
    let suffix = digest(&format!("{node_uid}/{number}"));
    cut_name("kata-", node, &suffix, NAME)
}

/// The Job. Its `spec` never changes once it exists.
pub(crate) fn job(parameters: &JobParameters<'_>, options: &Options) -> Value {
    let action = parameters.task.action;
    let changes = matches!(action, NodeAction::Install | NodeAction::Remove);
    let is_part_of_change = changes || parameters.stages;
    let task = json!(parameters.task).to_string();
    let labels = json!({
        names::MANAGED_BY: names::PRODUCT,
        names::PART_OF: names::PRODUCT,
        node_job::COMPONENT_LABEL: node_job::COMPONENT,
    });
    let mut annotations = json!({
        node_job::NODE: parameters.task.node,
        node_job::NODE_UID: parameters.node_uid,
        node_job::ACTION: action.as_str(),
        node_job::STATE: parameters.state,
        node_job::FACTS: parameters.facts,
        node_job::NUMBER: parameters.number.to_string(),
    });
    if parameters.stages {
        annotations[node_job::PAYLOAD] = json!(parameters.payload_image);
    }
    let first = if parameters.stages {
        vec![copy(parameters, options), stage(parameters, &task, options)]
    } else {
        Vec::new()
    };
    json!({
        "apiVersion": Kind::Job.api_version(),
        "kind": Kind::Job.as_str(),
        "metadata": {
            "name": name(&parameters.task.node, parameters.node_uid, parameters.number),
            "namespace": options.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            // A retry is a new Job, with its own number and reason.
            "backoffLimit": 0,
            "activeDeadlineSeconds": if is_part_of_change { CHANGE_SECONDS } else { CHECK_SECONDS },
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": node_job::SERVICE_ACCOUNT,
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    // A change must end, even if a pod has to go for it. A check can wait.
                    "priorityClassName":
                        if is_part_of_change { "system-node-critical" } else { node_job::CHECK_PRIORITY_CLASS },
                    "terminationGracePeriodSeconds": 60,
                    "affinity": on_node(&parameters.task.node),
                    "tolerations": [{"operator": "Exists"}],
                    "securityContext": {
                        "runAsUser": 0,
                        "runAsGroup": 0,
                        "runAsNonRoot": false,
                        "seLinuxOptions": {"type": "spc_t"},
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "initContainers": first,
                    "containers": [agent(parameters, &task, changes, options)],
                    "volumes": volumes(action, parameters.stages),
                },
            },
        },
    })
}

/// Affinity to this node only, as the DaemonSet controller sets it. The scheduler still checks the node's
/// resources.
fn on_node(node: &str) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
    ]}}})
}

/// The security context of a container with no capabilities but these.
fn security(capabilities: &[&str]) -> Value {
    json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"], "add": capabilities},
    })
}

/// What a container asks for, and its limits, if there are any.
fn resources(cpu: &str, memory: &str, options: &Options) -> Value {
    let mut resources = json!({"requests": {"cpu": cpu, "memory": memory}});
    let JobLimits { cpu, memory } = &options.job_limits;
    for (key, limit) in [("cpu", cpu), ("memory", memory)] {
        if let Some(limit) = limit {
            resources["limits"][key] = json!(limit);
        }
    }
    resources
}

/// The container that copies the operator's program, which is statically linked, for the staging container.
fn copy(parameters: &JobParameters<'_>, options: &Options) -> Value {
    json!({
        "name": node_job::COPY_CONTAINER,
        "image": parameters.agent_image,
        "command": [
            OPERATOR, "node-agent", "self-copy", "--to", COPY,
            // `stage` has the folders of the host mounted inside this volume, in which it can make none.
            "--make", format!("{HOST_ROOT}{PAYLOAD_FOLDER}"), "--make", format!("{HOST_ROOT}{LOCK_FOLDER}"),
        ],
        "resources": resources("10m", "32Mi", options),
        "securityContext": security(&[]),
        "volumeMounts": [{"name": AGENT_VOLUME, "mountPath": HOST_ROOT}],
    })
}

/// The container that stages the payload from its image. The kubelet pulls the image, with its credentials
/// and mirrors.
fn stage(parameters: &JobParameters<'_>, task: &str, options: &Options) -> Value {
    let image = parameters.payload_digest.map_or_else(
        || parameters.payload_image.to_owned(),
        |digest| image_digest::pinned(parameters.payload_image, digest),
    );
    json!({
        "name": node_job::STAGE_CONTAINER,
        "image": image,
        "command": [COPY, "node-agent", "stage", "--task", task, "--host-root", HOST_ROOT],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": resources(
            &format!("{}m", eligibility::JOB_CPU),
            &format!("{}Mi", eligibility::JOB_MEMORY >> 20),
            options,
        ),
        "securityContext": security(&STAGE_CAPABILITIES),
        "volumeMounts": [
            {"name": AGENT_VOLUME, "mountPath": HOST_ROOT, "readOnly": true},
            folder(PAYLOAD_FOLDER, false),
            // The kubelet makes the folder of a subPath when the container starts, so that an image that cannot be pulled
            // leaves nothing on the node.
            {
                "name": volume(PAYLOAD_FOLDER),
                "mountPath": format!("{HOST_ROOT}{STAGING}"),
                "subPath": STAGING.trim_start_matches(PAYLOAD_FOLDER).trim_start_matches('/'),
            },
            {"name": "run-lock", "mountPath": format!("{HOST_ROOT}{LOCK_FOLDER}")},
        ],
    })
}

/// The name of the volume with a folder of the host.
fn volume(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// The mount of a folder of the host.
fn folder(path: &str, writes: bool) -> Value {
    let mut mount = json!({"name": volume(path), "mountPath": format!("{HOST_ROOT}{path}")});
    if !writes {
        mount["readOnly"] = json!(true);
        // Otherwise mounts below it, such as other pods' volumes, would be writable.
        mount["recursiveReadOnly"] = json!("IfPossible");
    }
    mount
}

/// The container that runs the task.
fn agent(parameters: &JobParameters<'_>, task: &str, changes: bool, options: &Options) -> Value {
    let mounts: Vec<Value> = FOLDERS
        .iter()
        // A client of a socket in /run needs to write to it. The agent copies a program that opens devices
        // to /opt, where the node's systemd can start it.
        .map(|path| folder(path, changes || matches!(*path, "/run" | "/opt")))
        .chain(read_only(parameters.task.action).map(|path| folder(path, false)))
        .collect();
    let capabilities: &[&str] = if changes { &CAPABILITIES } else { &["DAC_OVERRIDE"] };
    json!({
        "name": node_job::AGENT_CONTAINER,
        "image": parameters.agent_image,
        "command": [OPERATOR, "node-agent", "run", "--task", task, "--host-root", HOST_ROOT],
        "terminationMessagePolicy": "File",
        "resources": resources("50m", "64Mi", options),
        "securityContext": security(capabilities),
        "volumeMounts": mounts,
    })
}

fn volumes(action: NodeAction, stages: bool) -> Value {
    let folders = FOLDERS.into_iter().chain(read_only(action)).map(|path| {
        json!({
            "name": volume(path),
            "hostPath": {"path": path, "type": "Directory"},
        })
    });
    let of_stage = [
        json!({"name": AGENT_VOLUME, "emptyDir": {}}),
        // Some systems create it only when a process first takes a lock.
        json!({"name": "run-lock", "hostPath": {"path": LOCK_FOLDER, "type": "DirectoryOrCreate"}}),
    ];
    of_stage.into_iter().filter(|_| stages).chain(folders).collect()
}
