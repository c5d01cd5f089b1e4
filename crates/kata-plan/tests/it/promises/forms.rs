//! What the steps of every decision of every history look like: how fresh the reads behind them are, which fields
//! they write, and what the pods of Jobs may do. Written without the crate's own tables on purpose.

use kata_api::names::{self, node_job};
use kata_plan::{Action, Decision, Freshness, Kind, Platform, Snapshot};
use serde_json::{Value, json};

use crate::plain::task_of;

/// Fails if a step is planned on reads that are too old for it, or writes what it must not.
pub(crate) fn check(snapshot: &Snapshot, decision: &Decision) {
    for step in &decision.plan.steps {
        let wanted = freshness(snapshot, &step.action);
        assert!(snapshot.freshness >= wanted, "on reads that may be old: {step}");
        if let Action::Apply { object, body } = &step.action {
            fields(object.kind, body);
            match object.kind {
                Kind::Job => job(body),
                Kind::RuntimeClass => runtime_class(snapshot, body),
                _ => {}
            }
        }
    }
}

/// How fresh the reads behind a step must be.
fn freshness(snapshot: &Snapshot, action: &Action) -> Freshness {
    let by_jobs = snapshot.options.platform == Platform::Kubernetes;
    match action {
        Action::AddFinalizer { .. } | Action::ApplyStatus { .. } | Action::ReplaceTaints { .. } => {
            Freshness::Cached
        }
        // The request is refused if the node has changed.
        Action::LabelNode { set, remove, .. } => {
            let mut keys = set.keys().chain(remove);
            let moves = !by_jobs && keys.any(|key| key == names::KATA_ROLE_LABEL);
            // A class that the cache does not show would let pods start.
            let configs = snapshot.configs.iter();
            let mut deleted = configs.filter(|config| config.metadata.deletion_timestamp.is_some());
            let leaves = remove.contains(names::RUNTIME_LABEL) && deleted.next().is_some();
            if moves || leaves { Freshness::Objects } else { Freshness::Cached }
        }
        Action::Apply { object, body } => match object.kind {
            Kind::Job if changes_node(body) => Freshness::Quorum,
            Kind::Job | Kind::RuntimeClass => Freshness::Cached,
            kind if is_auxiliary(kind) => Freshness::Cached,
            _ if is_for_control_plane(body) => Freshness::Quorum,
            _ => Freshness::Objects,
        },
        Action::Delete { object, .. } if object.kind == Kind::Job || is_auxiliary(object.kind) => {
            Freshness::Cached
        }
        Action::Delete { .. } | Action::RemoveFinalizers { .. } => Freshness::Quorum,
    }
}

/// Whether no node's Kata, and no sandboxed pod, depends on objects of this kind.
fn is_auxiliary(kind: Kind) -> bool {
    matches!(kind, Kind::KataNode | Kind::DaemonSet | Kind::SecurityContextConstraints)
}

/// Whether an object reaches the control plane's pool.
fn is_for_control_plane(body: &Value) -> bool {
    let pool = "pools.operator.machineconfiguration.openshift.io/master";
    body["metadata"]["labels"]["machineconfiguration.openshift.io/role"] == "master"
        || body["spec"]["machineConfigPoolSelector"]["matchLabels"].get(pool).is_some()
}

fn changes_node(job: &Value) -> bool {
    let action = &job["metadata"]["annotations"][node_job::ACTION];
    action == "Install" || action == "Remove"
}

/// No field is written besides the operator's own.
fn fields(kind: Kind, body: &Value) {
    let spec: &[&str] = match (kind, body["metadata"]["name"].as_str().unwrap()) {
        (Kind::MachineConfig, names::MACHINE_CONFIG) => &["config", "extensions"],
        (Kind::MachineConfig, _) => &["config", "kernelArguments", "osImageURL"],
        (Kind::MachineConfigPool, _) => {
            &["machineConfigSelector", "maxUnavailable", "nodeSelector", "paused"]
        }
        (Kind::ContainerRuntimeConfig, _) => {
            &["containerRuntimeConfig", "machineConfigPoolSelector"]
        }
        (Kind::KataNode, _) => &["kataConfig", "nodeName"],
        (Kind::DaemonSet, _) => &["selector", "template", "updateStrategy"],
        (Kind::Job, _) => &["activeDeadlineSeconds", "backoffLimit", "template"],
        _ => &[],
    };
    let metadata: &[&str] = match kind {
        Kind::MachineConfig => &["annotations", "labels", "name"],
        Kind::Job => &["annotations", "labels", "name", "namespace"],
        Kind::RuntimeClass => &["annotations", "labels", "name", "ownerReferences"],
        _ => &["labels", "name", "namespace", "ownerReferences"],
    };
    for (part, own) in [("spec", spec), ("metadata", metadata)] {
        let written = body[part].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        let foreign: Vec<&str> = written.filter(|key| !own.contains(key)).collect();
        assert!(foreign.is_empty(), "{kind:?} is written with {part}.{foreign:?}");
    }
}

/// The pod of a Job has no token and nothing that it does not need, and its task is the Job's.
fn job(job: &Value) {
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false, "{pod:#}");
    assert!(pod["hostPID"].is_null() && pod["hostNetwork"].is_null(), "{pod:#}");
    // Sockets, locks, the place of payloads and of the program that looks at devices, and what is between
    // the containers themselves; no configuration is among them.
    let staging = "/host/opt/kata-operator/staging";
    let needed = ["/host", "/host/run", "/host/run/lock", "/host/opt", staging].map(Value::from);
    let lists = [&pod["initContainers"], &pod["containers"]];
    for container in lists.into_iter().flat_map(|list| list.as_array().into_iter().flatten()) {
        let security = &container["securityContext"];
        assert_eq!(security["privileged"], false, "{container:#}");
        assert_eq!(security["allowPrivilegeEscalation"], false, "{container:#}");
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{container:#}");
        let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
        let reads_only =
            mounts.all(|mount| mount["readOnly"] == true || needed.contains(&mount["mountPath"]));
        assert!(changes_node(job) || reads_only, "{container:#}");
    }
    let (task, annotations) = (task_of(job), &job["metadata"]["annotations"]);
    assert_eq!(annotations[node_job::NODE], task.node, "{job:#}");
    assert_eq!(annotations[node_job::ACTION], task.action.as_str(), "{job:#}");
}

/// A RuntimeClass is closed, or selects nodes that have Kata, and of those only the operator's that serve it: other
/// installers give their nodes the same label, and a kubelet may set it on itself.
fn runtime_class(snapshot: &Snapshot, body: &Value) {
    let selector = &body["scheduling"]["nodeSelector"];
    if *selector == json!({names::CLOSED_LABEL: "true"}) {
        return;
    }
    if selector[names::KATA_DEPLOY_LABEL] == "true" {
        // One that goes back to kata-deploy was taken over from it.
        let name = body["metadata"]["name"].as_str();
        let mut classes = snapshot.runtime_classes.known().into_iter().flatten();
        let class = classes.find(|class| class.metadata.name.as_deref() == name).unwrap();
        let annotations = class.metadata.annotations.as_ref().unwrap();
        assert!(annotations.contains_key(names::TAKEN_OVER_ANNOTATION), "{body:#}");
        return;
    }
    let key = names::class_label(body["metadata"]["name"].as_str().unwrap());
    assert_eq!(selector[key], names::CLASS_LABEL_SERVED, "{body:#}");
    assert_eq!(selector[names::RUNTIME_LABEL], names::RUNTIME_LABEL_VERIFIED, "{body:#}");
    let by_jobs = snapshot.options.platform == Platform::Kubernetes;
    assert!(!by_jobs || selector[names::CLAIM_LABEL] == names::CLAIMED, "{body:#}");
}
