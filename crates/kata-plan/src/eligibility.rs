//! Which nodes cannot have Kata, by the fields of their Node objects: one table, with the reason of each row.
//!
//! The table does not apply to a node with the label [`names::ELIGIBLE_LABEL`]: the guess may be wrong.

use kata_api::names;

use crate::snapshot::{NodeFacts, Platform};

/// The largest CPU request of a container of a Job, in thousandths of a CPU.
pub(crate) const JOB_CPU: i64 = 100;
/// The largest memory request of a container of a Job, in bytes.
pub(crate) const JOB_MEMORY: i64 = 64 << 20;

/// The taint of a virtual kubelet.
pub(crate) const VIRTUAL_KUBELET_TAINT: &str = "virtual-kubelet.io/provider";

/// A kind of node that cannot have Kata.
struct Row {
    /// Where it matters; `None` is everywhere. Rows of [`Platform::Kubernetes`] do not apply to provided nodes, which no
    /// Job changes.
    platform: Option<Platform>,
    /// Whether it also counts for a node on which Kata is, or may be: Kata is removed there.
    counts_for_ours: bool,
    is: fn(&NodeFacts) -> bool,
    reason: fn(&NodeFacts) -> String,
}

/// The first row that is true of a node gives the reason: special kinds of nodes come before what many have.
const ROWS: [Row; 9] = [
    Row {
        platform: None,
        counts_for_ours: false,
        is: |node| {
            let label = |key: &str, value: &str| node.labels.get(key).is_some_and(|it| it == value);
            label("type", "virtual-kubelet")
                || label("liqo.io/type", "virtual-node")
                || node.labels.contains_key("virtual-kubelet.io/provider")
                || node.taints.iter().any(|taint| taint.key == VIRTUAL_KUBELET_TAINT)
        },
        reason: |_| "it is a virtual kubelet, which runs no container runtime".to_owned(),
    },
    Row {
        platform: None,
        counts_for_ours: false,
        is: |node| {
            node.labels.get("eks.amazonaws.com/compute-type").is_some_and(|it| it == "fargate")
        },
        reason: |_| "it is a node of AWS Fargate, which runs a single pod".to_owned(),
    },
    Row {
        platform: None,
        counts_for_ours: true,
        is: |node| is_windows(node) || !matches!(node.operating_system.as_str(), "" | "linux"),
        reason: |node| {
            let system = if is_windows(node) { "Windows" } else { &node.operating_system };
            format!("it runs {system}")
        },
    },
    Row {
        platform: None,
        counts_for_ours: false,
        is: |node| !matches!(architecture(node), "" | "amd64" | "arm64" | "ppc64le" | "s390x"),
        reason: |node| format!("Kata is not made for its architecture {}", architecture(node)),
    },
    Row {
        platform: Some(Platform::Kubernetes),
        counts_for_ours: true,
        is: |node| node.is_managed(),
        reason: |_| {
            "the Machine Config Operator manages it and would revert the changes of a Job"
                .to_owned()
        },
    },
    Row {
        platform: Some(Platform::Kubernetes),
        counts_for_ours: true,
        is: |node| !matches!(container_runtime(node), "" | "containerd" | "cri-o"),
        reason: |node| {
            let runtime = container_runtime(node);
            format!("its container runtime {runtime} is neither containerd nor CRI-O")
        },
    },
    Row {
        platform: Some(Platform::Kubernetes),
        counts_for_ours: false,
        is: |node| immutable_system(node).is_some(),
        reason: |node| {
            let system = immutable_system(node).unwrap_or_default();
            format!("{system} takes no files below /opt and no drop-in for its container runtime")
        },
    },
    Row {
        platform: Some(Platform::Kubernetes),
        counts_for_ours: false,
        is: |node| lacking(node).is_some(),
        reason: |node| {
            let lacking = lacking(node).unwrap_or_default();
            format!("no Job of the operator fits on it: pods may use {lacking} there")
        },
    },
    Row {
        platform: Some(Platform::OpenShift),
        counts_for_ours: false,
        is: |node| {
            // Red Hat Enterprise Linux CoreOS calls itself `rhel`, too, since OpenShift 4.19.
            let system = node.labels.get("node.openshift.io/os_id").map(String::as_str);
            system == Some("rhel") && !node.os_image.is_empty() && !node.os_image.contains("CoreOS")
        },
        reason: |_| {
            "it is package-based Red Hat Enterprise Linux, where the Machine Config Operator leaves out \
             extensions without an error"
                .to_owned()
        },
    },
];

/// Why a node cannot have Kata; `None` if nothing speaks against it. `is_ours`: Kata is on it, or may be.
/// `is_provided`: the operator installs nothing there.
pub(crate) fn obstacle(
    node: &NodeFacts,
    platform: Platform,
    is_ours: bool,
    is_provided: bool,
) -> Option<String> {
    if node.labels.get(names::ELIGIBLE_LABEL).is_some_and(|value| value == "true") {
        return None;
    }
    let counts = |row: &&Row| {
        row.platform.is_none_or(|it| it == platform)
            && (row.counts_for_ours || !is_ours)
            && !(is_provided && row.platform == Some(Platform::Kubernetes))
    };
    ROWS.iter().filter(counts).find(|row| (row.is)(node)).map(|row| (row.reason)(node))
}

fn is_windows(node: &NodeFacts) -> bool {
    node.labels.get(names::OS_LABEL).map(String::as_str) == Some("windows")
        || node.operating_system == "windows"
}

fn architecture(node: &NodeFacts) -> &str {
    node.labels.get("kubernetes.io/arch").map(String::as_str).unwrap_or_default()
}

fn container_runtime(node: &NodeFacts) -> &str {
    node.container_runtime_version.split(':').next().unwrap_or_default()
}

fn immutable_system(node: &NodeFacts) -> Option<&'static str> {
    [("Bottlerocket", "Bottlerocket"), ("Talos", "Talos Linux")]
        .into_iter()
        .find(|(start, _)| node.os_image.starts_with(start))
        .map(|(_, name)| name)
}

/// The resource of which pods may use too little on the node for a Job. A resource that the node does not report is
/// not checked.
fn lacking(node: &NodeFacts) -> Option<String> {
    let found = &node.allocatable;
    let less = |found: Option<i64>, needed: i64| found.filter(|found| *found < needed);
    less(found.cpu, JOB_CPU)
        .map(|cpu| format!("{cpu}m of CPU"))
        .or_else(|| less(found.memory, JOB_MEMORY).map(|it| format!("{} MiB of memory", it >> 20)))
        .or_else(|| less(found.pods, 1).map(|_| "no place for a pod".to_owned()))
}
