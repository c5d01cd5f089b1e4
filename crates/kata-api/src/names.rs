//! Names, labels and annotations that the operator reads and writes.
//!
//! Names marked *compatible* are those of the OpenShift sandboxed containers operator 1.2 to 1.8. They
//! must not change, because existing clusters have them.

use crate::digest::digest;

/// The version of this program. Who publishes a pre-release names it in the variable KATA_OPERATOR_VERSION when the program is
/// built.
pub const VERSION: &str = match option_env!("KATA_OPERATOR_VERSION") {
    Some(version) if !version.is_empty() => version,
    _ => env!("CARGO_PKG_VERSION"),
};
/// The field manager of every server-side apply.
pub const FIELD_MANAGER: &str = "kata-operator";
/// The Lease of the leader election.
pub const LEASE: &str = "kata-operator";
/// The API group of KataNode, and the prefix of kata-operator's annotations.
pub const DOMAIN: &str = "kata-operator.dev";
/// `app.kubernetes.io/managed-by` of every object that the operator creates.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// `app.kubernetes.io/part-of` of every object that the operator creates.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// Value of [`MANAGED_BY`] and [`PART_OF`].
pub const PRODUCT: &str = "kata-operator";
/// Label with the KataConfig's name on objects that belong to it (compatible).
pub const APP_LABEL: &str = "app";

/// The finalizer on KataConfig (compatible).
pub const FINALIZER: &str = "kataconfiguration.openshift.io/finalizer";
/// The finalizer of versions 1.0 and 1.1 of the OpenShift sandboxed containers operator; removed with [`FINALIZER`].
pub const LEGACY_FINALIZER: &str = "finalizer.kataconfiguration.openshift.io";

/// Label of the nodes that have Kata; only such nodes have it with value `true`.
pub const RUNTIME_LABEL: &str = "katacontainers.io/kata-runtime";
/// Value of [`RUNTIME_LABEL`] on a verified node.
pub const RUNTIME_LABEL_VERIFIED: &str = "true";
/// Prefix of the labels for the RuntimeClasses that a node serves; see [`class_label`]. A kubelet cannot set
/// a label with this prefix on its own Node (admission plugin NodeRestriction).
pub const CLASS_LABEL_PREFIX: &str = "kata.node-restriction.kubernetes.io/";
/// Value of a label with the prefix [`CLASS_LABEL_PREFIX`] on a node that serves the class.
pub const CLASS_LABEL_SERVED: &str = "true";
/// The most characters that a label may have after its prefix.
const LABEL_NAME_LENGTH: usize = 63;

/// The label of the nodes that serve the RuntimeClass `class`: [`CLASS_LABEL_PREFIX`] and the class's name.
/// The name of a RuntimeClass may be longer than that of a label; then the label has the first characters of the
/// name, `-` and a digest of the whole name.
pub fn class_label(class: &str) -> String {
    if class.len() <= LABEL_NAME_LENGTH {
        return format!("{CLASS_LABEL_PREFIX}{class}");
    }
    let digest = digest(class);
    let room = LABEL_NAME_LENGTH - digest.len() - 1;
    let first: String = class.chars().take(room).collect();
    format!("{CLASS_LABEL_PREFIX}{first}-{digest}")
}

/// Label in the node selector of a RuntimeClass that is closed: it takes no new pods. No node has this label: the
/// operator never sets it, and `NodeRestriction` keeps kubelets from setting a label with this prefix.
pub const CLOSED_LABEL: &str = "kata-operator.node-restriction.kubernetes.io/closed";
/// Key of a taint that an earlier release set on nodes whose Kata was about to be changed or removed. The operator
/// only removes it.
pub const LEAVING_TAINT: &str = "kata-operator.dev/leaving";
/// Label that an admin sets to `true` on a node that the operator excludes although it can have Kata.
pub const ELIGIBLE_LABEL: &str = "kata-operator.dev/eligible";
/// Label with which Node Feature Discovery marks nodes that can run Kata (compatible).
pub const NFD_LABEL: &str = "feature.node.kubernetes.io/runtime.kata";

/// Role label of worker nodes.
pub const WORKER_ROLE_LABEL: &str = "node-role.kubernetes.io/worker";
/// Role label of control-plane nodes under OpenShift.
pub const MASTER_ROLE_LABEL: &str = "node-role.kubernetes.io/master";
/// Role label of control-plane nodes.
pub const CONTROL_PLANE_ROLE_LABEL: &str = "node-role.kubernetes.io/control-plane";
/// Role label that makes a node a member of the pool [`POOL`] (compatible).
pub const KATA_ROLE_LABEL: &str = "node-role.kubernetes.io/kata-oc";
/// Label of the node's operating system.
pub const OS_LABEL: &str = "kubernetes.io/os";

/// The MachineConfigPool of nodes with Kata (compatible).
pub const POOL: &str = "kata-oc";
/// The pool of ordinary workers.
pub const WORKER_POOL: &str = "worker";
/// The pool of the control plane; on a compact cluster Kata goes there.
pub const MASTER_POOL: &str = "master";
/// Prefix of the label by which a ContainerRuntimeConfig selects a pool; the pool's name follows.
pub const POOL_LABEL_PREFIX: &str = "pools.operator.machineconfiguration.openshift.io/";
/// Label of a MachineConfig with the role it is for.
pub const MACHINE_CONFIG_ROLE_LABEL: &str = "machineconfiguration.openshift.io/role";
/// The MachineConfig that installs the extension (compatible).
pub const MACHINE_CONFIG: &str = "50-enable-sandboxed-containers-extension";
/// The MachineConfig of image mode (compatible).
pub const IMAGE_MACHINE_CONFIG: &str = "50-enable-sandboxed-containers-image";
/// Both names of the operator's MachineConfig. Either the extension or image mode is used, so one of them exists.
pub const MACHINE_CONFIGS: [&str; 2] = [MACHINE_CONFIG, IMAGE_MACHINE_CONFIG];
/// Annotation of a KataConfig: the namespace of the operator that it belongs to.
pub const OPERATOR_NAMESPACE_ANNOTATION: &str = "kata-operator.dev/operator-namespace";
/// Annotation of a KataConfig, as JSON: the labels that `kubectl kata install --node` set, and the nodes that had none of
/// them before. `kubectl kata uninstall` takes these labels off.
pub const SET_LABELS_ANNOTATION: &str = "kata-operator.dev/set-labels";
/// Annotation on a KataConfig with the last `spec.payload.image` before a `kubectl kata upgrade` with which a node was Ready;
/// empty if there was none.
pub const PREVIOUS_PAYLOAD_ANNOTATION: &str = "kata-operator.dev/previous-payload-image";
/// Annotation of the operator's MachineConfig: other operating system images with Kata that nodes may still
/// run, separated by spaces.
pub const IMAGES_ANNOTATION: &str = "kata-operator.dev/images";
/// Annotation of a RuntimeClass that was adopted with another overhead than the default: `CPU/MEMORY`. The
/// overhead stays until spec.runtimes sets one.
pub const OVERHEAD_ANNOTATION: &str = "kata-operator.dev/adopted-overhead";
/// Annotation of a RuntimeClass: the names of spec.runtimes[].overhead.resources that its overhead contains,
/// separated by spaces. It shows that a resource has to be removed from the class after the spec dropped it.
pub const OVERHEAD_RESOURCES_ANNOTATION: &str = "kata-operator.dev/overhead-resources";
/// Annotation of a RuntimeClass: the shim that serves its handler, if it is not the default shim of the handler.
/// It counts as long as the class exists, even if spec.runtimes no longer names the class.
pub const SHIM_ANNOTATION: &str = "kata-operator.dev/shim";
/// Annotation of a RuntimeClass that was taken over from kata-deploy: its labels, overhead and scheduling before, as JSON.
pub const TAKEN_OVER_ANNOTATION: &str = "kata-operator.dev/taken-over";
/// Annotation of a RuntimeClass: the settings of its handler, spec.runtimes[].config. They count as long as the class
/// exists, even if spec.runtimes no longer names the class.
pub const SETTINGS_ANNOTATION: &str = "kata-operator.dev/settings";
/// The ConfigMap with feature gates, in the operator's namespace (compatible).
pub const FEATURE_GATES: &str = "osc-feature-gates";
/// The feature gate of image mode (compatible).
pub const IMAGE_MODE_GATE: &str = "layeredImageDeployment";
/// The ConfigMap with the image of image mode, in the operator's namespace (compatible).
pub const IMAGE_MODE_CONFIG: &str = "layered-image-deploy-cm";
/// Key of [`IMAGE_MODE_CONFIG`]: the operating system's image with Kata.
pub const IMAGE_KEY: &str = "osImageURL";
/// Key of [`IMAGE_MODE_CONFIG`]: kernel arguments, separated by white space; optional.
pub const ARGUMENTS_KEY: &str = "kernelArguments";
/// The RHCOS extension with the Kata runtime.
pub const EXTENSION: &str = "sandboxed-containers";
/// The same on Fedora CoreOS (OKD): the Machine Config Operator takes the name of an extension for that of a
/// package there (machine-config-operator, `pkg/daemon/update.go`, `generateExtensionsArgs`).
pub const FEDORA_EXTENSION: &str = "kata-containers";
/// The ContainerRuntimeConfig that sets CRI-O's log level (compatible).
pub const CONTAINER_RUNTIME_CONFIG: &str = "kata-crio-config";
/// The file in which the Machine Config Operator puts the log level of a ContainerRuntimeConfig.
pub const LOG_LEVEL_FILE: &str = "/etc/crio/crio.conf.d/01-ctrcfg-logLevel";
/// The RuntimeClass, and its handler, if spec.runtimes is empty (compatible).
pub const RUNTIME_CLASS: &str = "kata";
/// Default overhead of a sandbox: CPU (compatible).
pub const OVERHEAD_CPU: &str = "250m";
/// Default overhead of a sandbox: memory (compatible).
pub const OVERHEAD_MEMORY: &str = "350Mi";
/// The DaemonSet of kata-monitor in the operator's namespace, and the value of its label `name`
/// (compatible).
pub const MONITOR: &str = "openshift-sandboxed-containers-monitor";
/// The service account of kata-monitor in the operator's namespace (compatible).
pub const MONITOR_ACCOUNT: &str = "monitor";
/// The SecurityContextConstraints of kata-monitor (compatible).
pub const MONITOR_CONSTRAINTS: &str = "sandboxed-containers-operator-scc";
/// The Service of kata-monitor in the operator's namespace (compatible).
pub const MONITOR_SERVICE: &str = "metrics";
/// The label of the node on which `kubectl kata accept` works. The KataConfig of that run selects it; its value says whether
/// the operator belongs to the run, too, so that a later one can remove what an earlier one left.
pub const ACCEPT_LABEL: &str = "kata-operator.dev/accept";
/// The operator's default namespace on OpenShift (compatible); see [`crate::platform::Platform::namespace`].
pub const NAMESPACE: &str = "openshift-sandboxed-containers-operator";

/// Prefix of the node labels of kata-deploy.
pub const KATA_DEPLOY_LABEL_PREFIX: &str = "kata-deploy.katacontainers.io/";
/// The node label of a kata-deploy without a suffix: `true` on a node that it has finished.
pub const KATA_DEPLOY_LABEL: &str = "kata-deploy.katacontainers.io/default";
/// Label of the nodes that Jobs may have changed. It distinguishes the operator's [`RUNTIME_LABEL`] from that of
/// other installers.
pub const CLAIM_LABEL: &str = "kata-operator.dev/claimed";
/// Value of [`CLAIM_LABEL`].
pub const CLAIMED: &str = "true";
/// Key of a taint, with any effect, that a node pool or autoscaler may set on new nodes, so that no pod is scheduled
/// before the node has Kata. The operator never sets it, and removes it once.
pub const STARTUP_TAINT: &str = "kata-operator.dev/not-ready";
/// The startup taint with the prefix by which the Cluster Autoscaler recognizes a temporary taint.
pub const AUTOSCALER_STARTUP_TAINT: &str =
    "startup-taint.cluster-autoscaler.kubernetes.io/kata-not-ready";
/// Both keys of the startup taint.
pub const STARTUP_TAINTS: [&str; 2] = [STARTUP_TAINT, AUTOSCALER_STARTUP_TAINT];
/// Annotation of a KataNode: a new value makes the operator retry a failed change.
pub const RETRY_ANNOTATION: &str = "kata-operator.dev/retry";
/// The payload image if neither the KataConfig nor the operator's settings name one.
pub const PAYLOAD_IMAGE: &str = "quay.io/kata-containers/kata-deploy:4.1.0";

/// Names in the Jobs of the node agent, which run in the operator's namespace.
pub mod node_job {
    /// The PriorityClass of Jobs that only check their node.
    pub const CHECK_PRIORITY_CLASS: &str = "kata-operator-check";
    /// Label of every such Job and of its pods.
    pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
    /// Value of [`COMPONENT_LABEL`].
    pub const COMPONENT: &str = "node-agent";
    /// Label of a Job's pod with the Job's name; the Job controller sets it.
    pub const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
    /// Annotation with the name of the node.
    pub const NODE: &str = "kata-operator.dev/node";
    /// Annotation with the uid of the node.
    pub const NODE_UID: &str = "kata-operator.dev/node-uid";
    /// Annotation with the action, as in the task.
    pub const ACTION: &str = "kata-operator.dev/action";
    /// Annotation with the digest of the desired state.
    pub const STATE: &str = "kata-operator.dev/state";
    /// Annotation with the digest of the node's facts when the Job was created.
    pub const FACTS: &str = "kata-operator.dev/facts";
    /// Annotation with the image of the payload that the Job stages, as it was asked for; absent if it stages none.
    pub const PAYLOAD: &str = "kata-operator.dev/payload";
    /// Annotation with the number of the Job on its node, from 1.
    pub const NUMBER: &str = "kata-operator.dev/number";
    /// The container that runs the task and reports.
    pub const AGENT_CONTAINER: &str = "node-agent";
    /// The init container that copies the operator's program for the other containers.
    pub const COPY_CONTAINER: &str = "self-copy";
    /// The init container that copies the runtime's files from the payload's image.
    pub const STAGE_CONTAINER: &str = "stage";
    /// The service account of the pods, which has no permissions.
    pub const SERVICE_ACCOUNT: &str = "kata-node-agent";
    /// The operator's program in its own image.
    pub const OPERATOR: &str = "/usr/bin/kata-operator";
    /// The volume with the copy of the operator's program.
    pub const AGENT_VOLUME: &str = "agent";
    /// Where the host's folders are mounted in the pods.
    pub const HOST_ROOT: &str = "/host";
    /// The copy of the operator's program, in the container with the payload's image. [`AGENT_VOLUME`] is mounted at
    /// [`HOST_ROOT`], and the host's folders are mounted inside it. If the image has a link at [`HOST_ROOT`], all these
    /// mounts follow it, so that it cannot put another program in the place of the copy.
    pub const COPY: &str = "/host/kata-operator";
    /// Folders of the host that a change writes to and a check reads.
    pub const FOLDERS: [&str; 4] = ["/etc", "/opt", "/run", "/var"];
    /// Folders of the host that no Job writes to. `/etc/os-release` is a link into `/usr` on most systems.
    pub const READ_ONLY: [&str; 3] = ["/dev", "/sys", "/usr"];
    /// The folder of the lock that keeps two node agents apart.
    pub const LOCK_FOLDER: &str = "/run/lock";
    /// The folder of the host below which payloads are staged and installed.
    pub const PAYLOAD_FOLDER: &str = "/opt";
    /// The folder of the host with staged payloads, below [`PAYLOAD_FOLDER`].
    pub const STAGING: &str = "/opt/kata-operator/staging";
    /// The most capabilities that a container has.
    pub const CAPABILITIES: [&str; 3] = ["CHOWN", "DAC_OVERRIDE", "FOWNER"];
    /// The capabilities of the container that stages a payload.
    pub const STAGE_CAPABILITIES: [&str; 2] = ["DAC_OVERRIDE", "FOWNER"];
}

/// What the admission policy for Jobs says of a Job of another version of the operator.
pub const OTHER_IMAGE: &str = "this Job has another image of kata-operator than the policy names";

/// Annotations that the Machine Config Operator keeps on nodes.
pub mod mco {
    /// The rendered MachineConfig that the node runs; changes only at the end of an update.
    pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
    /// The rendered MachineConfig that the node is to run.
    pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
    /// `Done`, `Working`, `Degraded` or `Unreconcilable`.
    pub const STATE: &str = "machineconfiguration.openshift.io/state";
    /// Why the state is `Degraded` or `Unreconcilable`.
    pub const REASON: &str = "machineconfiguration.openshift.io/reason";
    /// `Rebooting` from just before the reboot until the daemon is back.
    pub const POST_CONFIG_ACTION: &str = "machineconfiguration.openshift.io/post-config-action";
    /// `drain-<config>` or `uncordon-<config>`, as the daemon asks.
    pub const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
    /// The last [`DESIRED_DRAIN`] that the drain controller carried out.
    pub const LAST_APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";
    /// Prefix of the names of rendered MachineConfigs; the pool's name follows.
    pub const RENDERED_PREFIX: &str = "rendered-";
}
