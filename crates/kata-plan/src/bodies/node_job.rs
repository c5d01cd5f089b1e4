//! The Job that carries a task out on one node.
//!
//! Its pod has no API token and is not privileged: it gets the capabilities and the folders of the host
//! that its action needs, see docs/privileges.md. What it is to do is in its arguments, and what came of
//! it in its termination message.

use kata_api::names::{self, node_job};
use kata_api::node_task::{NodeAction, NodeTask};
use serde_json::{Value, json};

use crate::object::Kind;
use crate::snapshot::Options;
use crate::text::{cut_name, digest};

/// Where the host's folders are in the pod.
const HOST_ROOT: &str = "/host";
/// Where the node agent is that runs in the payload's image.
const AGENT: &str = "/agent/kata-operator";
/// The operator's program in its own image.
const OPERATOR: &str = "/usr/bin/kata-operator";
/// Folders of the host that a change writes to, and a check looks at.
const FOLDERS: [&str; 4] = ["/etc", "/opt", "/run", "/var"];
/// Folders of the host that nothing is written to. `/etc/os-release` is a link into `/usr` on most systems.
const READ_ONLY: [&str; 3] = ["/dev", "/sys", "/usr"];
/// Those that an action needs: a removal looks at no device.
fn read_only(action: NodeAction) -> impl Iterator<Item = &'static str> {
    READ_ONLY.into_iter().filter(move |path| action != NodeAction::Remove || *path != "/dev")
}

/// In how many seconds a Job that changes nothing must end, pulling the image included.
const CHECK_SECONDS: u32 = 600;
/// In how many seconds a Job that changes the node, or stages the payload, must end, pulling it included.
const CHANGE_SECONDS: u32 = 1_800;
/// Longest name of a Job whose pods' names fit into a label.
const NAME: usize = 63;

/// What a Job is made for.
#[derive(Clone, Debug)]
pub(crate) struct Wish<'a> {
    /// The task.
    pub(crate) task: &'a NodeTask,
    /// The uid of the node.
    pub(crate) node_uid: &'a str,
    /// The digest of the wanted state.
    pub(crate) state: &'a str,
    /// The digest of the node's facts.
    pub(crate) facts: &'a str,
    /// The number of the Job on its node.
    pub(crate) number: i64,
    /// The image of the operator.
    pub(crate) agent_image: &'a str,
    /// The image of the payload.
    pub(crate) payload_image: &'a str,
    /// Whether the payload is taken out of its image first: before an installation, and with the check of a
    /// node that has another one, so that it serves as long as that takes.
    pub(crate) stages: bool,
}

/// The name of a Job. Two Jobs of a node with the same number have the same name, so that the API server
/// refuses the second: what was planned twice on old data happens once.
pub(crate) fn name(node: &str, node_uid: &str, number: i64) -> String {
    let suffix = digest(&format!("{node_uid}/{number}"));
    cut_name("kata-", node, &suffix, NAME)
}

/// The Job. Its `spec` never changes once it exists.
pub(crate) fn job(wish: &Wish<'_>, options: &Options) -> Value {
    let action = wish.task.action;
    let changes = matches!(action, NodeAction::Install | NodeAction::Remove);
    let task = json!(wish.task).to_string();
    let labels = json!({
        names::MANAGED_BY: names::PRODUCT,
        names::PART_OF: names::PRODUCT,
        node_job::COMPONENT_LABEL: node_job::COMPONENT,
    });
    let annotations = json!({
        node_job::NODE: wish.task.node,
        node_job::NODE_UID: wish.node_uid,
        node_job::ACTION: action.as_str(),
        node_job::STATE: wish.state,
        node_job::FACTS: wish.facts,
        node_job::NUMBER: wish.number.to_string(),
    });
    let first = if wish.stages { vec![copy(wish), stage(wish, &task)] } else { Vec::new() };
    json!({
        "apiVersion": Kind::Job.api_version(),
        "kind": Kind::Job.as_str(),
        "metadata": {
            "name": name(&wish.task.node, wish.node_uid, wish.number),
            "namespace": options.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            // Another try is another Job, with its own number and reason.
            "backoffLimit": 0,
            "activeDeadlineSeconds": if changes || wish.stages { CHANGE_SECONDS } else { CHECK_SECONDS },
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": node_job::SERVICE_ACCOUNT,
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "priorityClassName": "system-node-critical",
                    "terminationGracePeriodSeconds": 60,
                    "affinity": on_node(&wish.task.node),
                    "tolerations": [{"operator": "Exists"}],
                    "securityContext": {
                        "runAsUser": 0,
                        "runAsGroup": 0,
                        "runAsNonRoot": false,
                        "seLinuxOptions": {"type": "spc_t"},
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "initContainers": first,
                    "containers": [agent(wish, &task, changes)],
                    "volumes": volumes(action, wish.stages),
                },
            },
        },
    })
}

/// Onto this node and no other, as the DaemonSet controller does it: the scheduler still says whether there
/// is room.
fn on_node(node: &str) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
    ]}}})
}

/// The capabilities of a container: those to get past the permissions of files that belong to others, if any.
fn security(capabilities: &[&str]) -> Value {
    json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"], "add": capabilities},
    })
}

/// Puts the operator's program, which is linked statically, where the payload's container finds it.
fn copy(wish: &Wish<'_>) -> Value {
    json!({
        "name": node_job::COPY_CONTAINER,
        "image": wish.agent_image,
        "command": [OPERATOR, "node-agent", "self-copy", "--to", AGENT],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": security(&[]),
        "volumeMounts": [{"name": "agent", "mountPath": "/agent"}],
    })
}

/// Takes the payload out of its image; the kubelet's credentials and mirrors apply to the image.
fn stage(wish: &Wish<'_>, task: &str) -> Value {
    json!({
        "name": node_job::STAGE_CONTAINER,
        "image": wish.payload_image,
        "command": [AGENT, "node-agent", "stage", "--task", task, "--host-root", HOST_ROOT],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": security(&["DAC_OVERRIDE", "FOWNER"]),
        "volumeMounts": [
            {"name": "agent", "mountPath": "/agent", "readOnly": true},
            {"name": "opt", "mountPath": format!("{HOST_ROOT}/opt")},
            {"name": "run-lock", "mountPath": format!("{HOST_ROOT}/run/lock")},
        ],
    })
}

/// Carries the task out.
fn agent(wish: &Wish<'_>, task: &str, changes: bool) -> Value {
    let folder = |path: &&str, writes: bool| {
        let mut mount = json!({
            "name": path.trim_start_matches('/'),
            "mountPath": format!("{HOST_ROOT}{path}"),
            "readOnly": !writes,
        });
        if !writes {
            // Else what is mounted below it, such as other pods' volumes, could be written to.
            mount["recursiveReadOnly"] = json!("IfPossible");
        }
        mount
    };
    let mounts: Vec<Value> = FOLDERS
        .iter()
        // Whoever asks at a socket writes to it; and the program that looks at devices, where the container
        // may not, has to be where the node's systemd can start it.
        .map(|path| folder(path, changes || matches!(*path, "/run" | "/opt")))
        .chain(read_only(wish.task.action).map(|path| folder(&path, false)))
        .collect();
    let capabilities: &[&str] =
        if changes { &["CHOWN", "DAC_OVERRIDE", "FOWNER"] } else { &["DAC_OVERRIDE"] };
    json!({
        "name": node_job::AGENT_CONTAINER,
        "image": wish.agent_image,
        "command": [OPERATOR, "node-agent", "run", "--task", task, "--host-root", HOST_ROOT],
        "terminationMessagePolicy": "File",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": security(capabilities),
        "volumeMounts": mounts,
    })
}

fn volumes(action: NodeAction, stages: bool) -> Value {
    let folders = FOLDERS.into_iter().chain(read_only(action)).map(|path| {
        json!({
            "name": path.trim_start_matches('/'),
            "hostPath": {"path": path, "type": "Directory"},
        })
    });
    let of_stage = [
        json!({"name": "agent", "emptyDir": {}}),
        // Systems without System V's folders may lack it until somebody takes a lock.
        json!({"name": "run-lock", "hostPath": {"path": "/run/lock", "type": "DirectoryOrCreate"}}),
    ];
    of_stage.into_iter().filter(|_| stages).chain(folders).collect()
}
