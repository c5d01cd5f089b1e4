//! The catalogue of findings: the stable code, reason, severity, cause and fix of every problem that the
//! operator or the plugin reports.
//!
//! Conditions, Events, logs, metrics, the plugin and the documentation all render these entries.
//! A code is never reused for something else.

mod code;
mod entry;
mod table;

pub use entry::{Entry, Severity, Who};
use table::catalogue;

catalogue! {
    KATA1003 NoNodesSelected Warning {
        cause: "No node matches the KataConfig.",
        fix: "Label the nodes on which sandboxed pods should run, or change spec.kataConfigPoolSelector."
    }
    KATA1004 NotActive Error {
        cause: "There is an older KataConfig, and only the oldest is active.",
        fix: "Delete this KataConfig, or the older one."
    }
    KATA1005 InvalidSelector Error {
        cause: "spec.kataConfigPoolSelector, spec.providedNodes or spec.runtimes[].installOn cannot be evaluated.",
        fix: "Use operators In, NotIn, Exists or DoesNotExist, with values for the first two only, and keys and values that labels can have."
    }
    KATA1006 PoolPaused Warning {
        cause: "The MachineConfigPool is paused, so its nodes do not change.",
        fix: "Set spec.paused of the MachineConfigPool to false."
    }
    KATA1007 RenderDegraded Error {
        cause: "The Machine Config Operator cannot merge the pool's MachineConfigs.",
        fix: "Correct or remove the MachineConfig that the message names."
    }
    KATA1008 RenderWaiting Warning {
        cause: "The Machine Config Operator does not render the pool because a ContainerRuntimeConfig or KubeletConfig that selects it has failed.",
        fix: "Correct or delete that ContainerRuntimeConfig or KubeletConfig."
    }
    KATA1009 ForeignRuntimeClass Error {
        cause: "A RuntimeClass with this name exists and does not belong to kata-operator.",
        fix: "Delete that RuntimeClass, or use another name in spec.runtimes."
    }
    KATA1010 ForeignObject Error {
        cause: "An object with this name exists, has other content and does not belong to kata-operator.",
        fix: "Delete the object, or give it the content that the message names."
    }
    KATA1012 MachineConfigOperatorNotReady Error {
        cause: "A MachineConfigPool that kata-operator needs does not exist or cannot be read.",
        fix: "Check the cluster operator machine-config."
    }
    KATA1013 HandlerImmutable Error {
        cause: "The RuntimeClass has another handler, which cannot be changed while pods use it.",
        fix: "Delete the pods that use the RuntimeClass, or give the runtime another name."
    }
    KATA1014 PeerPodsUnsupported Warning {
        cause: "spec.enablePeerPods is true, but kata-operator does not support peer pods.",
        fix: "Set spec.enablePeerPods to false."
    }
    KATA1015 InvalidLogLevel Error {
        cause: "spec.logLevel is not a log level of CRI-O.",
        fix: "Use fatal, panic, error, warn, info, debug or trace."
    }
    KATA1016 ReadFailed Error {
        cause: "The operator cannot read an object that it needs from the API server.",
        fix: "If the message names a command, run it. If not, and the finding stays, check the API server and the operator's permissions."
    }
    KATA1017 WriteFailed Error {
        cause: "The API server refused a write.",
        fix: "Fix the cause in the message: a missing permission or parameter of a policy (`kata-operator manifests` prints all that are needed, and `kubectl apply --server-side --force-conflicts` restores them), a deleted namespace, an invalid value or an admission policy. If a policy `kata-operator-*` refuses a field, exclude the operator's namespace from the mutating webhook that adds it. The operator retries by itself."
    }
    KATA1018 PlatformUnsupported Error {
        cause: "The API server serves OpenShift's configuration or a part of the Machine Config Operator's kinds, but not all of MachineConfigPool, MachineConfig and ContainerRuntimeConfig, so the operator cannot change nodes.",
        fix: "If the cluster is still being installed, wait. `kubectl api-resources --api-group=machineconfiguration.openshift.io` lists the kinds that are served. If no Machine Config Operator will ever manage the nodes, run the operator with --platform=kubernetes; Jobs on RHEL CoreOS are not supported."
    }
    KATA1019 SelectorIgnored Warning {
        cause: "The control plane's nodes are the only workers, so Kata is installed on the whole pool master.",
        fix: "Remove spec.kataConfigPoolSelector and spec.checkNodeEligibility, or add workers before the KataConfig."
    }
    KATA1020 WorkersNotCovered Warning {
        cause: "Kata was installed on the control plane when there were no workers, so workers added later do not get it.",
        fix: "Delete the KataConfig and create it again."
    }
    KATA1021 RuntimeClassInUse Warning {
        cause: "Pods still use a RuntimeClass that spec.runtimes no longer names.",
        fix: "Delete these pods, or add the RuntimeClass to spec.runtimes again."
    }
    KATA1022 WriteUndone Warning {
        cause: "Another client keeps reverting the operator's changes.",
        fix: "Find the client that changes the object in the message (`kubectl get --show-managed-fields -o yaml`) and stop it. The operator retries, with increasing pauses."
    }
    KATA1023 UnsafeStepSkipped Error {
        cause: "A step of the operator's plan would break one of its promises, such as never to delete a pool that nodes are on, so the operator skips the step and those that depend on it; this is a bug in the operator.",
        fix: "Report the bug with the message and the files of `kubectl kata must-gather`; if another client changed the object that the message names, change it back. All other steps go on."
    }
    KATA1024 ClockSkew Warning {
        cause: "The clock of the machine that runs the operator differs from the API server's by 30 seconds or more. The operator uses the API server's time, so nothing is delayed; certificates, logs and other programs on the machine whose clock is wrong may fail.",
        fix: "Run `chronyc tracking` on the node of the operator's pod and on the machines of the control plane, and correct the clock that is not synchronized."
    }
    KATA1025 OtherInstallation Error {
        cause: "Two installations of the operator are in the cluster, and the KataConfig belongs to the other one.",
        fix: "The annotation kata-operator.dev/operator-namespace of the KataConfig names the one that it belongs to. To keep that one, delete the Deployment kata-operator in the other namespace, then apply the manifests or the Helm release of the kept one again, since both share ClusterRoles, bindings and policies. To keep the other one, delete the namespace that the annotation names. Do not run `kubectl delete` on manifests: with the CustomResourceDefinitions the KataConfig would go."
    }
    KATA1026 PolicyOfOtherVersion Warning {
        cause: "The admission policy for Jobs names another image of the operator than its Jobs have: the operator is being upgraded, or the policy and the Deployment are of two versions.",
        fix: "During an upgrade, wait until the new operator takes over. If the finding stays, apply the manifests or the Helm release of one version again, so that the policy kata-operator-jobs and the Deployment name the same image."
    }
    KATA1030 ImageModeIncomplete Error {
        cause: "Image mode is on, but the ConfigMap layered-image-deploy-cm does not name the operating system image that contains Kata.",
        fix: "Set osImageURL in the ConfigMap layered-image-deploy-cm, or layeredImageDeployment in osc-feature-gates to \"false\"."
    }
    KATA1031 LogLevelOverridden Warning {
        cause: "Another ContainerRuntimeConfig sets another log level for the same pool.",
        fix: "Remove logLevel from that ContainerRuntimeConfig, or set spec.logLevel of the KataConfig to its value."
    }
    KATA1032 RolloutNotHonoured Warning {
        cause: "spec.rollout does not apply to the pool master, which belongs to the control plane.",
        fix: "Set maxUnavailable or paused of the MachineConfigPool master, and remove spec.rollout."
    }
    KATA1033 AdoptedOverhead Info {
        cause: "The RuntimeClass already had another overhead when the operator adopted it, and keeps that overhead.",
        fix: "To change the overhead, set spec.runtimes[].overhead of the KataConfig."
    }
    KATA1034 SettingsNotHonoured Warning {
        cause: "spec.providedNodes and spec.takeOver, and config and installOn of spec.runtimes[], do not apply on OpenShift, where the Machine Config Operator installs Kata.",
        fix: "Remove the field that the message names."
    }
    KATA1035 SettingsInvalid Error {
        cause: "spec.runtimes[].config is no valid TOML, or sets a key outside of a table.",
        fix: "Correct spec.runtimes[].config as the message says."
    }
    KATA1036 RuntimeWithoutNodes Warning {
        cause: "No selected node matches spec.runtimes[].installOn, or none of the nodes that match spec.providedNodes offers the handler.",
        fix: "Correct installOn or the handler, or label nodes, if nodes should have the runtime. The operator adds it to nodes that match later."
    }
    KATA1037 TakeOverIncomplete Error {
        cause: "spec.takeOver is set, and spec.runtimes does not have every RuntimeClass of kata-deploy without installOn.",
        fix: "Add the entries that the message names to spec.runtimes, as `kubectl kata takeover plan` prints them, or delete the RuntimeClasses that no pod needs."
    }
    KATA1040 ConstraintsNotServed Info {
        cause: "The API server does not serve SecurityContextConstraints, so the operator creates none for kata-monitor.",
        fix: "If an admission policy refuses the pods of kata-monitor, allow them there."
    }
    KATA2101 NodeInTwoPools Error {
        cause: "The node matches the selectors of two custom MachineConfigPools, so the Machine Config Operator ignores it.",
        fix: "Remove one of the pools' labels from the node."
    }
    KATA2102 NodeInOtherPool Warning {
        cause: "The node belongs to another custom MachineConfigPool and cannot join the pool kata-oc.",
        fix: "Remove the other pool's label from the node, or exclude the node in spec.kataConfigPoolSelector."
    }
    KATA2103 NodeNotReady Warning {
        cause: "The node is not Ready.",
        fix: "Check the kubelet and the machine. If the machine no longer exists, delete the Node."
    }
    KATA2104 DrainBlocked Warning {
        cause: "The node cannot be drained, because a PodDisruptionBudget allows no disruption or a pod does not terminate.",
        fix: "Scale up the pods' owner, lower the budget's minAvailable, or delete the pods."
    }
    KATA2105 NodeCordoned Warning {
        cause: "The node is cordoned, and not by the operator, so the operator does not change it.",
        fix: "Uncordon the node."
    }
    KATA2106 NodeDegraded Error {
        cause: "The machine-config-daemon failed to apply the node's configuration.",
        fix: "Read the log of machine-config-daemon on the node, or of machine-config-controller if a drain failed, in openshift-machine-config-operator. Both retry by themselves once the cause is fixed."
    }
    KATA2107 NodeDegradedAndCordoned Error {
        cause: "The machine-config-daemon failed after the drain, and the Machine Config Operator assigns no new configuration to a cordoned node.",
        fix: "Fix the cause, then uncordon the node."
    }
    KATA2108 HandlerMissing Error {
        cause: "The node should offer a handler, but its container runtime does not report it.",
        fix: "Check CRI-O's log and /etc/crio/crio.conf.d on the node."
    }
    KATA2109 NodeStateUnknown Warning {
        cause: "The state of the node is unknown, because its MachineConfig cannot be read or its machine-config-daemon does not report.",
        fix: "Check the node's machine-config-daemon pod."
    }
    KATA2110 UnsupportedNode Info {
        cause: "The node is selected and cannot have Kata because of its operating system, architecture, role, or allocatable resources.",
        fix: "To remove this finding, exclude the node in spec.kataConfigPoolSelector. If its operating system or cloud provides Kata, select it in spec.providedNodes too. If it can run Kata after all, label it kata-operator.dev/eligible=true."
    }
    KATA2111 OtherRollout Info {
        cause: "The Machine Config Operator is changing the node for a reason other than Kata.",
        fix: "No action required; the change ends by itself."
    }
    KATA2112 PodsOnLeavingNode Warning {
        cause: "Sandboxed pods still run on a node from which Kata, or their runtime, will be removed.",
        fix: "Delete or move these pods. If new ones keep coming, cordon the node until these pods have ended."
    }
    KATA2113 ForeignRuntimeLabel Info {
        cause: "Nodes on which kata-operator did not install Kata have the label katacontainers.io/kata-runtime=true.",
        fix: "If no other installer put Kata on these nodes, remove the label from them."
    }
    KATA2114 NodeUnderPressure Warning {
        cause: "A node has a condition such as DiskPressure, which makes the Machine Config Operator count it as unavailable.",
        fix: "Free the resource that the condition names (`kubectl describe node`), or raise maxUnavailable of the pool."
    }
    KATA2115 HandlersNotReported Warning {
        cause: "spec.providedNodes selects the node, and its kubelet does not report which handlers the container runtime offers.",
        fix: "Update the node to Kubernetes 1.31 with containerd 2.0 or CRI-O 1.30, or newer. If the operator should install Kata there, exclude the node in spec.providedNodes."
    }
    KATA2116 NoStartupTaint Warning {
        cause: "A new node has the label of nodes with Kata before it has Kata, and no startup taint: pods of the RuntimeClass can come before Kata, and do not start until it is there.",
        fix: "Add the taint kata-operator.dev/not-ready to the template of the node pool; with the Cluster Autoscaler and on GKE startup-taint.cluster-autoscaler.kubernetes.io/kata-not-ready. The operator removes it once the node has Kata."
    }
    KATA2117 PoolUnfit Error {
        cause: "A node pool makes nodes that cannot run virtual machines. An autoscaler goes on making them, since their labels promise Kata to the pods that wait.",
        fix: "Give the pool a type of machine with virtualization, or take the labels of the RuntimeClass off its template; then delete these nodes. With Karpenter on AWS, `cpuOptions.nestedVirtualization: enabled` in the EC2NodeClass turns virtualization on where the type of machine has it."
    }
    KATA2120 LabelsLost Warning {
        cause: "Nodes no longer match a selector of the KataConfig. They keep what they have for spec.rollout.leaveDelay, in case their labels come back.",
        fix: "If the nodes should keep it, give them the labels again. If they should lose it now, set spec.rollout.leaveDelay to 0s, and take the field away afterwards: with 0s each lost label acts at once."
    }
    KATA2121 LabelsSetByLabeller Warning {
        cause: "The KataConfig selects nodes by labels that a labeller, such as Node Feature Discovery, sets and may remove.",
        fix: "First label every node that should keep Kata, for example `kubectl label node NODE kata=true`, and only then select by that label: an edit of a selector acts at once. spec.checkNodeEligibility can ask for the label of Node Feature Discovery besides, and counts only when a node joins. To keep the selector, set spec.rollout.leaveDelay to longer than the labeller takes to restart."
    }
    KATA3001 KvmUnusable Error {
        cause: "The node's kernel refuses to create a virtual machine with /dev/kvm.",
        fix: "If /dev/kvm does not exist, the module kvm_intel or kvm_amd is not loaded: `dmesg | grep -i kvm` on the node says why, for example virtualization that is disabled in the firmware or not offered by the machine type. Otherwise fix the error, or exclude the node in spec.kataConfigPoolSelector."
    }
    KATA3002 VsockMissing Error {
        cause: "The node has no usable /dev/vhost-vsock, which the runtime needs to reach the guest.",
        fix: "If the device does not exist, load the kernel module vhost_vsock on the node, or use a kernel that has it. Otherwise fix the error in the message."
    }
    KATA3003 VhostNetMissing Warning {
        cause: "The node has no usable /dev/vhost-net, so the network of sandboxes is slower.",
        fix: "If the device does not exist, load the kernel module vhost_net on the node. Otherwise fix the error in the message."
    }
    KATA3004 MemoryLow Warning {
        cause: "The node has less free memory than one sandbox needs by default.",
        fix: "Free memory on the node."
    }
    KATA3005 DiskLow Error {
        cause: "The file system below /opt has not enough free space for the payload.",
        fix: "Free as much space below /opt on the node as the message says."
    }
    KATA3006 ArchitectureMismatch Error {
        cause: "The payload was built for an architecture that is not the node's.",
        fix: "Set spec.payload.image to an image that supports the architectures of all nodes."
    }
    KATA3007 RuntimeUnsupported Error {
        cause: "The node's container runtime is not supported.",
        fix: "Use containerd 1.6 or newer, or CRI-O 1.30 or newer, under systemd, or exclude the node."
    }
    KATA3008 RuntimeOld Warning {
        cause: "The node's container runtime is so old that Kata can be configured, but is not known to work.",
        fix: "Update to containerd 1.7 or newer."
    }
    KATA3009 RuntimeUnreachable Error {
        cause: "The container runtime does not answer on its CRI socket.",
        fix: "Check the container runtime's systemd unit on the node. The operator changes nothing until the runtime answers."
    }
    KATA3010 RuntimeNotReady Error {
        cause: "The container runtime reports that it is not ready.",
        fix: "Fix the cause in the message. The operator changes nothing until the runtime is ready."
    }
    KATA3011 RuntimeConfigBroken Error {
        cause: "The container runtime's configuration is broken already, so that it would not start again.",
        fix: "Correct the file that the message names."
    }
    KATA3012 RuntimeConfigUnknown Error {
        cause: "This version does not know the form of the container runtime's main configuration file or of its unit's command.",
        fix: "Follow the message. If it names a schema version, update the operator or convert the file to a known version. If the operating system or the cloud provides Kata, select the node in spec.providedNodes."
    }
    KATA3013 ImportMissing Error {
        cause: "The distribution renders the container runtime's configuration from a template that does not import a drop-in folder.",
        fix: "Change the template as the message says, and restart the distribution's unit. A template that does not include the distribution's default template must contain all settings itself."
    }
    KATA3014 ForeignSection Error {
        cause: "On containerd 1.x the CRI section of a drop-in replaces the whole section: one that is read after kata-operator's drop-in would leave the handlers without effect, and one without a handler that runs now takes it away at the next restart.",
        fix: "Give that drop-in a name that sorts before 60-kata-operator.toml, move what it configures into the main configuration file, or update to containerd 2."
    }
    KATA3015 ForeignFile Error {
        cause: "A file that does not belong to kata-operator is at the path of its drop-in.",
        fix: "Move the file that the message names to another name or folder; delete it only if what it configures is not needed."
    }
    KATA3016 ForeignHandler Error {
        cause: "A file of another program configures a handler of this name in the container runtime.",
        fix: "If the message names a copied table, delete that table from the file. If another installation provides the handler, give yours another name in spec.runtimes, set spec.takeOver to KataDeploy if it is kata-deploy, or remove the other installation of Kata from the node, once no sandbox of it runs there. If the operating system or the cloud provides that handler, select the node in spec.providedNodes."
    }
    KATA3017 SystemUnsupported Error {
        cause: "The node's operating system does not allow adding a runtime.",
        fix: "If the message says what to change on the node, change that. Else install Kata as the message says and select the node in spec.providedNodes, or exclude it in spec.kataConfigPoolSelector."
    }
    KATA3018 ManagedByMachineConfig Error {
        cause: "The Machine Config Operator manages the node's files and would revert or refuse the change.",
        fix: "Run the operator with --platform openshift."
    }
    KATA3019 SystemdUnreachable Error {
        cause: "systemd cannot be reached through /run/systemd/private.",
        fix: "Fix the error in the message. The node needs systemd, and the pod the directory /run/systemd."
    }
    KATA3020 SelinuxConfined Error {
        cause: "SELinux is enforcing, and the Job's pod runs with a type that may not change the node.",
        fix: "Allow the pod to run with the SELinux type spc_t."
    }
    KATA3021 PayloadMissing Error {
        cause: "The payload is not on the node.",
        fix: "Check why the container that stages the payload failed."
    }
    KATA3022 PayloadDamaged Error {
        cause: "Files of the payload on the node differ from its manifest.",
        fix: "If the next Job does not repair them, check the node's disk."
    }
    KATA3023 ShimMissing Error {
        cause: "The payload does not contain the shim of a handler.",
        fix: "In spec.runtimes, use one of the shims that the message lists, or set spec.payload.image to another image."
    }
    KATA3024 SnapshotterMissing Error {
        cause: "The shim needs a snapshotter with block devices, and the container runtime uses none.",
        fix: "Configure the devmapper or blockfile snapshotter in containerd, or use another shim."
    }
    KATA3025 ShimConfigurationInvalid Error {
        cause: "The configuration of a shim in the payload cannot be parsed.",
        fix: "Set spec.payload.image to an image whose configuration is valid."
    }
    KATA3026 PayloadUnusable Error {
        cause: "The payload image does not contain Kata in a known layout, or an entry in it is refused.",
        fix: "Set spec.payload.image to an image with Kata in /opt/kata or, as in the images of kata-deploy, in /opt/kata-artifacts."
    }
    KATA3027 GuestPullMissing Warning {
        cause: "The shim's virtual machines pull container images themselves, and kata-operator does not configure the container runtime for that.",
        fix: "Configure the nydus snapshotter in containerd or guest pull in CRI-O, or use a shim that is not for confidential containers."
    }
    KATA3028 RuntimeNotConfirmed Error {
        cause: "It is not certain that a container runtime of the node is the one that the kubelet uses, so none is changed.",
        fix: "Point the kubelet to the socket of its container runtime (--container-runtime-endpoint), or stop the container runtime that it does not use."
    }
    KATA3029 ShimLeftOut Warning {
        cause: "The payload does not contain the shim of a handler, so the handler is left out, and its RuntimeClass does not exist. All others serve.",
        fix: "Take the class out of spec.runtimes, give it one of the shims that the payload has, or set spec.payload.image to an image that has its shim."
    }
    KATA3030 SandboxesInTheWay Warning {
        cause: "The change would remove or alter the handler of sandboxes that run on the node.",
        fix: "Delete or move the pods that the message names."
    }
    KATA3031 ChangeRefusedByCheck Error {
        cause: "The changed configuration would not have had the intended effect, so the change was rolled back without a restart.",
        fix: "Check the key or the handler that the message names."
    }
    KATA3032 RestartFailed Error {
        cause: "The container runtime did not restart after the change, so the change was rolled back.",
        fix: "Read the log of the unit that the message names, on the node, from some minutes before status.host.job.time of its KataNode: `journalctl -u UNIT --since='YYYY-MM-DD HH:MM:SS UTC'`."
    }
    KATA3033 VerificationFailed Error {
        cause: "The restarted container runtime is not as expected, so the change was rolled back.",
        fix: "Read the log of the unit that the message names, on the node, from some minutes before status.host.job.time of its KataNode: `journalctl -u UNIT --since='YYYY-MM-DD HH:MM:SS UTC'`."
    }
    KATA3034 NodeUnsafe Error {
        cause: "A change failed, and so did its rollback.",
        fix: "Check the container runtime's unit on the node. All files except those in the message are restored. The operator does not retry by itself."
    }
    KATA3035 JournalUnreadable Error {
        cause: "/var/lib/kata-operator/state.json on the node cannot be parsed.",
        fix: "If a newer operator wrote the file, update the operator. Otherwise, once no sandbox runs on the node, delete the file and kata-operator's drop-in there: the record of what is installed is lost with it, and the operator installs Kata again."
    }
    KATA3036 AgentBusy Warning {
        cause: "Another node agent is running on the node.",
        fix: "No action required; the operator retries."
    }
    KATA3037 HostCallFailed Error {
        cause: "The node agent could not read or write something on the node.",
        fix: "Fix the cause in the message; the operator retries."
    }
    KATA3038 ChangeInterrupted Warning {
        cause: "A change of the node was interrupted and is not finished.",
        fix: "No action required; the next Job that may change the node completes the change or rolls it back."
    }
    KATA3039 SandboxesLost Warning {
        cause: "Sandboxes that ran before the restart of the container runtime no longer run.",
        fix: "Check the pods that the message names, and delete those that do not restart by themselves."
    }
    KATA3040 ConfigDrifted Warning {
        cause: "The container runtime's configuration has changed since installation.",
        fix: "No action required; the next Job that may change the node restores it."
    }
    KATA3041 PayloadDrifted Warning {
        cause: "The payload in use has changed since installation, or is not the desired one.",
        fix: "No action required; the next Job that may change the node restores it. It deletes a config.d that the message names: move its settings to spec.runtimes[].config."
    }
    KATA3042 HandlersDrifted Warning {
        cause: "The container runtime does not report the handlers of its configuration.",
        fix: "No action required; the next Job that may change the node restarts the container runtime."
    }
    KATA3043 SettingUnknown Warning {
        cause: "spec.runtimes[].config sets a key that the payload's configuration of the shim neither sets nor shows in a comment.",
        fix: "Correct the key, or ignore the warning if the shim knows the key: a key that it does not know has no effect."
    }
    KATA3044 SettingsMisfit Error {
        cause: "spec.runtimes[].config does not fit the payload's configuration of the shim.",
        fix: "Correct spec.runtimes[].config as the message says, or use a payload that it fits."
    }
    KATA3045 BootConfigShadowed Error {
        cause: "Another NodeConfig in /etc/eks/nodeadm.d conflicts with the import of Kata.",
        fix: "Follow the message. The operator tries again by itself."
    }
    KATA3046 LostAtReboot Warning {
        cause: "Each boot of the node writes containerd's main configuration file anew, and the import of Kata may be missing then.",
        fix: "Follow the message. Changed user data takes effect on new nodes only: replace the node. Until then Kata is missing after each boot until the operator has repaired the node, which restarts containerd within the limits of spec.rollout."
    }
    KATA3047 ForeignChangePending Error {
        cause: "Another program changed the container runtime's configuration, which is not in effect yet.",
        fix: "Restart the unit on the node, or undo the change and restart it; Kata follows by itself. To let the restart for Kata bring the change into effect, set spec.rollout.foreignChanges to Activate."
    }
    KATA3048 ForeignChangeOnRestart Warning {
        cause: "The next restart of the container runtime does more than Kata needs, or fails, because of files of another program.",
        fix: "Check whether the change that the message names is wanted, and undo it if not."
    }
    KATA3052 TakeOverRefused Error {
        cause: "What kata-deploy installed on the node cannot be taken over, or given back.",
        fix: "Do what the message says; the operator tries again by itself. Or exclude the node in spec.kataConfigPoolSelector, so that kata-deploy keeps it."
    }
    KATA3053 ForeignSettings Warning {
        cause: "kata-deploy has settings or files on the node that are not taken over.",
        fix: "Move settings that you need to spec.runtimes[].config. Delete files outside /opt/kata by hand once no program needs them."
    }
    KATA3101 NodeUnfit Warning {
        cause: "A check found that Kata cannot run on the node, so nothing is installed there.",
        fix: "Fix the cause that the check names, or exclude the node in spec.kataConfigPoolSelector. The check repeats by itself."
    }
    KATA3102 NodeJobFailed Warning {
        cause: "A Job could not complete its task on the node. The node is unchanged, or the next Job continues.",
        fix: "Read its log with `kubectl kata logs node/NAME`. The operator retries by itself; to retry at once, run `kubectl kata retry NAME`."
    }
    KATA3103 NodeRolledBack Error {
        cause: "The change of the node failed and was rolled back, so the operator does not retry it unchanged.",
        fix: "Fix the cause in the message, then run `kubectl kata retry NAME`, or change the KataConfig."
    }
    KATA3104 NodeBroken Error {
        cause: "The change of the node failed, and so did its rollback.",
        fix: "Check the container runtime on the node, then run `kubectl kata retry NAME`: the next Job completes the rollback. A second retry repeats the change."
    }
    KATA3105 NodeJobVanished Warning {
        cause: "A Job of the operator was deleted before the operator read its result.",
        fix: "No action required; the operator creates the Job again."
    }
    KATA3106 NodeJobUnschedulable Warning {
        cause: "The pod of a Job cannot be scheduled onto its node.",
        fix: "Free resources on the node, or remove the obstacle that the scheduler names in the message. A Job that only checks the node evicts no pod and waits; one that changes the node or stages a payload may evict pods of lower priority."
    }
    KATA3107 NodeJobImage Warning {
        cause: "An image that a Job needs cannot be pulled on the node.",
        fix: "Correct spec.payload.image or the operator's image, or give the node access to the registry. A digest that you did not name is that of the first node; the next attempt uses the tag."
    }
    KATA3108 NodeJobTimedOut Warning {
        cause: "A Job on the node did not finish before its deadline.",
        fix: "Check the Events of the Job and its pod. The operator retries by itself."
    }
    KATA3109 NodeJobNoReport Warning {
        cause: "A Job on the node ended without a readable report, so the state of the node is unknown.",
        fix: "Read its log with `kubectl kata logs node/NAME`. The next Job examines the node."
    }
    KATA3110 SandboxesOnNode Warning {
        cause: "Sandboxes run on the node that the change would harm.",
        fix: "Delete or move the pods that the message names."
    }
    KATA3111 RolloutStopped Error {
        cause: "The same change failed on several nodes, or its payload or settings cannot be used, so it is not tried on further nodes.",
        fix: "Fix the cause on the nodes that the message names, then run `kubectl kata retry --all`, or change the KataConfig."
    }
    KATA3112 RolloutPaused Warning {
        cause: "spec.rollout.paused is true, so the operator changes no further node.",
        fix: "To continue, run `kubectl kata resume`, or set spec.rollout.paused of the KataConfig to false."
    }
    KATA3113 NodeDrifted Warning {
        cause: "The node differs from what was installed, so the operator repairs it.",
        fix: "If it happens again, find out what changes the node."
    }
    KATA3114 OtherInstaller Warning {
        cause: "Another installer of Kata is active on the node.",
        fix: "If it is kata-deploy, set spec.takeOver to KataDeploy: its sandboxes run on. Otherwise remove the other installation, once none of its sandboxes runs on the node, or exclude the node in spec.kataConfigPoolSelector."
    }
    KATA3115 NodeJobWithoutPod Warning {
        cause: "A Job has no pod: the API server refuses it, or the Job controller has not created it.",
        fix: "See why in the Events of the Job (`kubectl describe job`). If a ResourceQuota or a LimitRange of the namespace refuses the pod, change it, or the limits of the Jobs (`nodeJobs.limits` of the chart). The operator's namespace needs the label pod-security.kubernetes.io/enforce=privileged. If the PriorityClass kata-operator-check is missing, apply the operator's manifests as at the installation, with its --platform, --namespace and --image, or upgrade the Helm release. If the cluster limits system priority classes, as GKE does, the namespace also needs a ResourceQuota that allows system-node-critical and system-cluster-critical."
    }
    KATA3116 AgentImageUnknown Error {
        cause: "The operator does not know its own image, which contains the node agent.",
        fix: "Set RELATED_IMAGE_NODE_AGENT of the operator's Deployment, or its option --node-agent-image."
    }
    KATA3117 NodeJobNotStarted Warning {
        cause: "The pod of a Job has not started for minutes: its images are still being pulled, or the node cannot set it up.",
        fix: "Check the Events of the pod that the message names (`kubectl describe pod`). If an image is large, wait."
    }
    KATA3118 KataNodeValueUnknown Error {
        cause: "The KataNode of a node has a value that this version of the operator does not know, so the operator does not change the node.",
        fix: "Run the version of the operator that wrote the value, or delete the record with `kubectl delete katanode NAME`: the operator then checks the node and writes a new one."
    }
    KATA3119 PayloadTagMoved Warning {
        cause: "The tag of the payload's image moved, so nodes that were installed by it have different payloads.",
        fix: "Name the payload by one of the digests in spec.payload.image: the operator then installs it on all nodes, one after the other."
    }
    KATA3120 NodeJobHeld Warning {
        cause: "A Job of the operator is suspended, or its pod has scheduling gates. Queueing systems such as Kueue do that.",
        fix: "If a queueing system did it, exempt the operator's namespace from it first, in Kueue by managedJobsNamespaceSelector; `kubectl get mutatingwebhookconfigurations` lists the webhooks that may do it. Then resume the Job, or have the gates removed."
    }
    KATA4001 PodsStillRunning Error {
        cause: "Sandboxed pods still run or wait to run, and the operator never removes the runtime from under running pods.",
        fix: "Delete these pods, or scale down their owners."
    }
    KATA5001 ClusterTooOld Warning {
        cause: "Kubernetes is older than 1.30, so kubelets do not report the handlers of their container runtime.",
        fix: "Upgrade the cluster. Until then the operator verifies nodes without this evidence."
    }
    KATA5002 PermissionMissing Warning {
        cause: "You lack a permission that the command needs.",
        fix: "Ask a cluster administrator for the permission that the message names. The ClusterRole kata-operator-cluster-view has what the read-only commands need, and kata-operator-edit what it takes to change KataConfigs."
    }
    KATA5003 CustomResourceMissing Error {
        cause: "The API server does not serve KataConfig.",
        fix: "Install the operator: `kubectl kata install`, or `kata-operator manifests --platform openshift --image REF | kubectl apply --server-side -f -`, or with `--platform kubernetes` on clusters that are not OpenShift."
    }
    KATA5004 CustomResourceStale Warning {
        cause: "The CustomResourceDefinition in the cluster belongs to another version than this program.",
        fix: "Apply the CustomResourceDefinitions of the operator's version: `kata-operator crd | kubectl apply --server-side --force-conflicts -f -`."
    }
    KATA5005 OperatorNotRunning Error {
        cause: "There is no operator, or none of its pods is ready, so nothing is reconciled.",
        fix: "Check `kubectl kata logs operator` and the operator's Deployment."
    }
    KATA5006 VersionSkew Warning {
        cause: "This program and the operator differ by more than one minor version.",
        fix: "Use the plugin of the operator's version."
    }
    KATA5007 NoKataConfig Warning {
        cause: "There is no KataConfig, so no node gets Kata.",
        fix: "Create one: `kubectl kata install`."
    }
    KATA5008 KataConfigRefused Error {
        cause: "The API server refuses the KataConfig.",
        fix: "Correct the field that the message names."
    }
    KATA5009 ManifestInvalid Error {
        cause: "The manifest is not a valid KataConfig.",
        fix: "Correct the line that the message names."
    }
    KATA5010 OperatorSilent Warning {
        cause: "The operator has not observed the latest change of the KataConfig.",
        fix: "Check that the operator runs, and read `kubectl kata logs operator`."
    }
    KATA5101 NotSandboxed Error {
        cause: "The pod runs on its node's kernel, not in a virtual machine.",
        fix: "Add `runtimeClassName: kata` to the pod's spec, and create the pod again."
    }
    KATA5102 IsolationUnproven Warning {
        cause: "No command could be run inside the pod, so it is not proven that the pod runs in a virtual machine.",
        fix: "Ask an admin for the permission that the message names, or use an image with `cat`."
    }
    KATA5103 ProbeFailed Error {
        cause: "A probe pod did not start, or did not answer.",
        fix: "Check the journal of the container runtime on the node. That Kata is installed on a node does not prove that virtual machines start there."
    }
    KATA5104 PodNotRunning Warning {
        cause: "The pod does not run, so its isolation cannot be verified.",
        fix: "Run `kubectl kata why` to see the reason."
    }
    KATA5201 RuntimeClassMissing Error {
        cause: "The pod names a RuntimeClass that does not exist.",
        fix: "Correct runtimeClassName, or add the RuntimeClass to spec.runtimes of the KataConfig."
    }
    KATA5202 SelectorConflict Error {
        cause: "The pod's nodeSelector contradicts the one of its RuntimeClass.",
        fix: "Remove the label from the pod's nodeSelector; the RuntimeClass adds the right one."
    }
    KATA5203 OverheadMismatch Error {
        cause: "The pod's overhead differs from the one of its RuntimeClass.",
        fix: "Remove spec.overhead from the pod; the RuntimeClass adds it."
    }
    KATA5204 QuotaExceeded Error {
        cause: "A ResourceQuota of the namespace does not leave enough resources; the overhead of the sandbox counts too.",
        fix: "Raise the quota, or lower the pod's requests."
    }
    KATA5205 NoNodeFits Warning {
        cause: "No node can run the pod now.",
        fix: "Free the resource that the message names, or select more nodes for Kata."
    }
    KATA5206 WaitsForRollout Info {
        cause: "Kata is being installed, or will be installed, on the nodes that could run the pod.",
        fix: "No action required: the pod is scheduled when the next node is ready. `kubectl kata wait` waits for that."
    }
    KATA5207 PodRejected Error {
        cause: "The API server refuses the pod when it is created.",
        fix: "Correct the field that the message names in the pod's template."
    }
    KATA5211 HandlerNotConfigured Error {
        cause: "The node's container runtime does not know the handler of the RuntimeClass.",
        fix: "Check the node with `kubectl kata nodes`. The node must not have the label katacontainers.io/kata-runtime=true."
    }
    KATA5212 VirtualizationMissing Error {
        cause: "The node cannot start virtual machines, because /dev/kvm is missing or cannot be used.",
        fix: "Enable virtualization in the firmware, or nested virtualization in the hypervisor, or exclude the node."
    }
    KATA5213 GuestUnreachable Error {
        cause: "The virtual machine started, but the agent in its guest did not answer.",
        fix: "Check the guest's console in the node's journal. Often the guest has too little memory, or vhost_vsock is missing."
    }
    KATA5214 GuestOutOfMemory Error {
        cause: "The virtual machine has too little memory.",
        fix: "Raise the pod's memory limit: the guest gets it in addition to the runtime's default memory."
    }
    KATA5215 GuestImageMissing Error {
        cause: "A file of Kata is not on the node: the shim, or the guest's kernel or image.",
        fix: "Check the node with `kubectl kata nodes`. To install Kata on it again, delete its KataNode."
    }
    KATA5216 FeatureUnsupported Error {
        cause: "The pod requests a feature that pods in virtual machines cannot have, such as hostNetwork.",
        fix: "Remove the feature from the pod, or run the pod without the RuntimeClass."
    }
    KATA5217 SandboxFailed Error {
        cause: "The container runtime cannot create the pod's sandbox.",
        fix: "Check the journal of the container runtime on the node."
    }
    KATA5218 ImageNotPulled Warning {
        cause: "An image of the pod cannot be pulled.",
        fix: "Correct the image name, or add a pull secret to the pod."
    }
    KATA5219 ContainerFails Warning {
        cause: "A container of the pod keeps exiting.",
        fix: "Read `kubectl logs`; the sandbox itself works."
    }
    KATA5220 ContainerNotStarted Error {
        cause: "The container runtime cannot start a container in the pod's sandbox.",
        fix: "Read the message: if the image or its command is wrong, correct the pod; otherwise read the shim's log with `kubectl kata logs pod/POD --shim`."
    }
    KATA5221 ContainerConfig Error {
        cause: "A container refers to something that does not exist, such as a Secret, or its security context contradicts its image.",
        fix: "Create the object that the message names, or correct the pod."
    }
    KATA5222 VolumeNotMounted Error {
        cause: "A volume of the pod cannot be mounted.",
        fix: "Create the Secret, ConfigMap or claim that the message names, or check the volume's storage driver on the node."
    }
    KATA5223 ContainerNotReady Warning {
        cause: "A container of the pod runs, and the pod is not ready.",
        fix: "If a probe fails, correct the application or the probe. If a readiness gate is not met, check the controller that sets its condition."
    }
    KATA5224 PodEnded Error {
        cause: "The kubelet or a controller ended the pod, for example because the node had too little memory.",
        fix: "Remove the cause that the message names. The pod's controller creates another pod; a pod without a controller must be created again."
    }
    KATA5225 NodeOutOfMemory Error {
        cause: "The node cannot give the virtual machine its memory.",
        fix: "Free memory or huge pages on the node, or lower the pod's memory limits. If it happens often, raise the overhead of the RuntimeClass."
    }
    KATA5226 NodePoolUnprepared Warning {
        cause: "A NodePool of Karpenter is for nodes with Kata, and its template lacks labels or the startup taint: Karpenter makes no node of it for sandboxed pods, or pods come before Kata.",
        fix: "Add what `kubectl kata pool --for karpenter` prints to spec.template of the NodePool."
    }
}
