//! The fields of each kind that must-gather keeps: those needed to diagnose a fault, and no others. Pure.
//!
//! It is an allow-list, because no list of secret fields can be complete.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::resource::{
    BUDGETS, CRDS, DEPLOYMENTS, JOBS, KATA_CONFIGS, KATA_NODES, LEASES, MACHINE_CONFIGS, NODES,
    PODS, POOLS, RUNTIME_CLASSES, RUNTIME_CONFIGS, Resource,
};

/// Fields below the metadata of every object. Of a path `{}` means the entries with a key of [`is_known`], `{*}` all
/// entries, and `[]` each element.
const METADATA: [&str; 13] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.generation",
    "metadata.resourceVersion",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.finalizers[]",
    "metadata.ownerReferences[].kind",
    "metadata.ownerReferences[].name",
    "metadata.ownerReferences[].uid",
    "metadata.labels{}",
    "metadata.annotations{}",
];
/// Of every condition.
const CONDITIONS: [&str; 5] = [
    "status.conditions[].type",
    "status.conditions[].status",
    "status.conditions[].reason",
    "status.conditions[].message",
    "status.conditions[].lastTransitionTime",
];
/// Domains of the labels and annotations of Kata, of the Machine Config Operator and of node roles, which are kept.
const DOMAINS: [&str; 7] = [
    "kata-operator.dev",
    "katacontainers.io",
    "kata.node-restriction.kubernetes.io",
    "kata-operator.node-restriction.kubernetes.io",
    "node-role.kubernetes.io",
    "machineconfiguration.openshift.io",
    "pools.operator.machineconfiguration.openshift.io",
];
/// Further keys that are kept.
const KEYS: [&str; 9] = [
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    "batch.kubernetes.io/job-name",
    "feature.node.kubernetes.io/runtime.kata",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.openshift.io/os_id",
    "node.kubernetes.io/instance-type",
];

/// The fields of a kind besides [`METADATA`] and [`CONDITIONS`].
fn fields(resource: Resource) -> &'static [&'static str] {
    match resource {
        KATA_CONFIGS => &[
            "spec.checkNodeEligibility",
            "spec.enablePeerPods",
            "spec.logLevel",
            "spec.kataConfigPoolSelector.matchLabels{*}",
            "spec.kataConfigPoolSelector.matchExpressions[].key",
            "spec.kataConfigPoolSelector.matchExpressions[].operator",
            "spec.kataConfigPoolSelector.matchExpressions[].values[]",
            "spec.payload.image",
            "spec.rollout.maxUnavailable",
            "spec.rollout.paused",
            "spec.providedNodes.matchLabels{*}",
            "spec.providedNodes.matchExpressions[].key",
            "spec.providedNodes.matchExpressions[].operator",
            "spec.providedNodes.matchExpressions[].values[]",
            "spec.takeOver",
            "spec.runtimes[].name",
            "spec.runtimes[].installOn.matchLabels{*}",
            "spec.runtimes[].installOn.matchExpressions[].key",
            "spec.runtimes[].installOn.matchExpressions[].operator",
            "spec.runtimes[].installOn.matchExpressions[].values[]",
            "spec.runtimes[].shim",
            "spec.runtimes[].handler",
            "spec.runtimes[].overhead.cpu",
            "spec.runtimes[].overhead.memory",
            "status.observedGeneration",
            "status.runtimeClasses[]",
            "status.runtimes[].name",
            "status.runtimes[].nodeCount",
            "status.runtimes[].readyNodeCount",
            "status.kataNodes.nodeCount",
            "status.kataNodes.readyNodeCount",
            "status.kataNodes.installed[]",
            "status.kataNodes.installing[]",
            "status.kataNodes.waitingToInstall[]",
            "status.kataNodes.failedToInstall[]",
            "status.kataNodes.uninstalling[]",
            "status.kataNodes.waitingToUninstall[]",
            "status.kataNodes.failedToUninstall[]",
            "status.kataNodes.truncated",
            "status.runtimes[].name",
            "status.runtimes[].nodeCount",
            "status.runtimes[].readyNodeCount",
            "status.findings[].code",
            "status.findings[].severity",
            "status.findings[].subject.kind",
            "status.findings[].subject.namespace",
            "status.findings[].subject.name",
            "status.findings[].message",
            "status.findings[].fix",
            "status.findingCounts.error",
            "status.findingCounts.warning",
            "status.findingCounts.info",
        ],
        KATA_NODES => &[
            "spec.nodeName",
            "spec.kataConfig",
            "status.ready",
            "status.phase",
            "status.step",
            "status.since",
            "status.history[].phase",
            "status.history[].step",
            "status.history[].time",
            "status.code",
            "status.message",
            "status.handlers[]",
            "status.provided",
            "status.currentConfig",
            "status.desiredConfig",
            "status.containerRuntimeVersion",
            "status.kernelVersion",
            "status.bootId",
            "status.host.installed",
            "status.host.fitFor",
            "status.host.failedFor",
            "status.host.mayHaveArtifacts",
            "status.host.payloadDigest",
            "status.host.payloadImage.digest",
            "status.host.payloadImage.image",
            "status.host.kataVersion",
            "status.host.earlier[].kataVersion",
            "status.host.earlier[].pods[]",
            "status.host.earlier[].morePods",
            "status.host.earlier[].ofKataDeploy",
            "status.host.runtime",
            "status.host.handlers[]",
            "status.host.inspected",
            "status.host.restarts",
            "status.host.rollbacks",
            "status.host.drifts",
            "status.host.warnings[].code",
            "status.host.warnings[].message",
            "status.host.job.name",
            "status.host.job.number",
            "status.host.job.action",
            "status.host.job.desiredStateDigest",
            "status.host.job.nodeFactsDigest",
            "status.host.job.outcome",
            "status.host.job.previousOutcome",
            "status.host.job.time",
            "status.host.job.failures",
            "status.host.job.code",
            "status.host.job.message",
        ],
        RUNTIME_CLASSES => &[
            "handler",
            "overhead.podFixed.cpu",
            "overhead.podFixed.memory",
            "scheduling.nodeSelector{}",
        ],
        NODES => &[
            "spec.unschedulable",
            "spec.taints[].key",
            "spec.taints[].effect",
            "spec.taints[].timeAdded",
            "status.allocatable.cpu",
            "status.allocatable.memory",
            "status.allocatable.pods",
            "status.nodeInfo.architecture",
            "status.nodeInfo.bootID",
            "status.nodeInfo.containerRuntimeVersion",
            "status.nodeInfo.kernelVersion",
            "status.nodeInfo.kubeletVersion",
            "status.nodeInfo.operatingSystem",
            "status.nodeInfo.osImage",
            "status.runtimeHandlers[].name",
        ],
        POOLS => &[
            "spec.paused",
            "spec.maxUnavailable",
            "spec.configuration.name",
            "spec.configuration.source[].name",
            "spec.nodeSelector.matchLabels{}",
            "spec.machineConfigSelector.matchLabels{}",
            "spec.machineConfigSelector.matchExpressions[].key",
            "spec.machineConfigSelector.matchExpressions[].operator",
            "spec.machineConfigSelector.matchExpressions[].values[]",
            "status.configuration.name",
            "status.observedGeneration",
            "status.machineCount",
            "status.updatedMachineCount",
            "status.readyMachineCount",
            "status.unavailableMachineCount",
            "status.degradedMachineCount",
        ],
        RUNTIME_CONFIGS => &[
            "spec.machineConfigPoolSelector.matchLabels{}",
            "spec.containerRuntimeConfig.logLevel",
            "spec.containerRuntimeConfig.pidsLimit",
            "spec.containerRuntimeConfig.defaultRuntime",
            "status.observedGeneration",
        ],
        CRDS => &[
            "spec.group",
            "spec.names.kind",
            "spec.names.plural",
            "spec.versions[].name",
            "spec.versions[].served",
            "spec.versions[].storage",
            "status.storedVersions[]",
        ],
        BUDGETS => &[
            "spec.minAvailable",
            "spec.maxUnavailable",
            "status.currentHealthy",
            "status.desiredHealthy",
            "status.disruptionsAllowed",
            "status.expectedPods",
        ],
        DEPLOYMENTS => &[
            "spec.replicas",
            "spec.template.spec.serviceAccountName",
            "spec.template.spec.containers[].name",
            "spec.template.spec.containers[].image",
            "status.observedGeneration",
            "status.replicas",
            "status.updatedReplicas",
            "status.readyReplicas",
            "status.availableReplicas",
            "status.unavailableReplicas",
        ],
        JOBS => &[
            "spec.activeDeadlineSeconds",
            "spec.backoffLimit",
            "spec.template.spec.nodeName",
            "spec.template.spec.initContainers[].name",
            "spec.template.spec.initContainers[].image",
            "spec.template.spec.containers[].name",
            "spec.template.spec.containers[].image",
            "status.active",
            "status.failed",
            "status.succeeded",
            "status.startTime",
            "status.completionTime",
        ],
        LEASES => &[
            "spec.holderIdentity",
            "spec.leaseDurationSeconds",
            "spec.acquireTime",
            "spec.renewTime",
            "spec.leaseTransitions",
        ],
        PODS => &[
            "spec.nodeName",
            "spec.runtimeClassName",
            "spec.overhead.cpu",
            "spec.overhead.memory",
            "spec.initContainers[].name",
            "spec.containers[].name",
            "spec.containers[].resources.requests.cpu",
            "spec.containers[].resources.requests.memory",
            "spec.containers[].resources.limits.cpu",
            "spec.containers[].resources.limits.memory",
            "status.phase",
            "status.reason",
            "status.qosClass",
            "status.startTime",
            "status.initContainerStatuses[].name",
            "status.initContainerStatuses[].ready",
            "status.initContainerStatuses[].restartCount",
            "status.initContainerStatuses[].state.waiting.reason",
            "status.initContainerStatuses[].state.terminated.reason",
            "status.initContainerStatuses[].state.terminated.exitCode",
            "status.containerStatuses[].name",
            "status.containerStatuses[].ready",
            "status.containerStatuses[].restartCount",
            "status.containerStatuses[].state.running.startedAt",
            "status.containerStatuses[].state.waiting.reason",
            "status.containerStatuses[].state.terminated.reason",
            "status.containerStatuses[].state.terminated.exitCode",
            "status.containerStatuses[].state.terminated.finishedAt",
            "status.containerStatuses[].lastState.terminated.reason",
            "status.containerStatuses[].lastState.terminated.exitCode",
        ],
        MACHINE_CONFIGS => &[
            "spec.extensions[]",
            "spec.osImageURL",
            "spec.kernelArguments[]",
            "spec.config.storage.files[].path",
            "spec.config.systemd.units[].name",
            "spec.config.systemd.units[].enabled",
        ],
        _ => &[],
    }
}

/// Further fields of pods in the operator's namespace.
const OWN_PODS: [&str; 6] = [
    "spec.initContainers[].image",
    "spec.containers[].image",
    "status.initContainerStatuses[].state.waiting.message",
    "status.initContainerStatuses[].state.terminated.message",
    "status.containerStatuses[].state.waiting.message",
    "status.containerStatuses[].state.terminated.message",
];

/// What the kept fields depend on.
#[derive(Debug, Default)]
pub(super) struct Extent<'a> {
    /// The operator's namespace.
    pub(super) home: &'a str,
    /// Keys of labels by which a KataConfig selects nodes.
    pub(super) selected_by: BTreeSet<String>,
}

/// The part of an object that is kept.
pub(super) fn project(resource: Resource, object: &Value, extent: &Extent<'_>) -> Value {
    let mut paths: Vec<&str> =
        METADATA.iter().chain(&CONDITIONS).chain(fields(resource)).copied().collect();
    if resource == PODS && object["metadata"]["namespace"] == *extent.home {
        paths.extend(OWN_PODS);
    } else if resource == PODS {
        // The owner of a pod can add conditions with any message.
        paths.retain(|path| *path != "status.conditions[].message");
    }
    kept(object, &paths, extent).unwrap_or_default()
}

/// Whether the entry of a map of labels or annotations is kept.
fn is_known(key: &str, extent: &Extent<'_>) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    DOMAINS.contains(&domain) || KEYS.contains(&key) || extent.selected_by.contains(key)
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}

/// The part of a value that paths name; `None` if they name nothing of it.
fn kept(value: &Value, paths: &[&str], extent: &Extent<'_>) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let is_map = |path: &&str| matches!(*path, "{}" | "{*}");
            let all = paths.contains(&"{*}");
            let found: Map<String, Value> = if paths.iter().any(is_map) {
                let entries = fields.iter().filter(|(_, value)| is_scalar(value));
                let entries = entries.filter(|(key, _)| all || is_known(key, extent));
                entries.map(|(key, value)| (key.clone(), value.clone())).collect()
            } else {
                let entries = fields.iter().filter_map(|(key, value)| {
                    let below: Vec<&str> =
                        paths.iter().filter_map(|path| below(path, key)).collect();
                    Some((key.clone(), kept(value, &below, extent)?))
                });
                entries.collect()
            };
            (!found.is_empty()).then_some(Value::Object(found))
        }
        Value::Array(items) => {
            let below: Vec<&str> = paths
                .iter()
                .filter_map(|path| path.strip_prefix("[]"))
                .map(|rest| rest.strip_prefix('.').unwrap_or(rest))
                .collect();
            let found: Vec<Value> =
                items.iter().filter_map(|item| kept(item, &below, extent)).collect();
            (!found.is_empty()).then_some(Value::Array(found))
        }
        value => (is_scalar(value) && paths.contains(&"")).then(|| value.clone()),
    }
}

/// What a path names below a field; `None` if it names nothing there.
fn below<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(key)?;
    match rest.chars().next() {
        None | Some('[' | '{') => Some(rest),
        Some('.') => rest.get(1..),
        Some(_) => None,
    }
}
