//! The catalogue of findings: a stable code, a title, the cause and the fix of everything that the
//! operator can have to say, in one place.
//!
//! Conditions, Events, logs, metrics, the plugin and the documentation all render these entries.
//! A code is never reused for something else.

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong; somebody may wonder all the same.
    Info,
    /// Something is not as wanted, and the rest goes on.
    Warning,
    /// Something does not work until somebody acts.
    Error,
}

/// An entry of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The code, such as `KATA2104`.
    pub code: &'static str,
    /// A short CamelCase name; the reason in conditions and Events.
    pub reason: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Why it happens, in one sentence.
    pub cause: &'static str,
    /// What to do, in one sentence.
    pub fix: &'static str,
}

macro_rules! catalogue {
    ($($code:ident $reason:ident $severity:ident { cause: $cause:literal, fix: $fix:literal })*) => {
        /// A finding's code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $cause] $reason,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Self] = &[$(Self::$reason,)*];

            /// The finding with this code, such as `KATA2104`.
            pub fn parse(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|found| found.entry().code == code)
            }

            /// The entry of the catalogue.
            pub fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$reason => &Entry {
                        code: stringify!($code),
                        reason: stringify!($reason),
                        severity: Severity::$severity,
                        cause: $cause,
                        fix: $fix,
                    },)*
                }
            }
        }
    };
}

catalogue! {
    KATA1003 NoNodesSelected Warning {
        cause: "No node counts as one that shall have Kata.",
        fix: "Label the nodes that shall run sandboxed pods, or change spec.kataConfigPoolSelector."
    }
    KATA1004 NotActive Error {
        cause: "There is an older KataConfig, and only the oldest is active.",
        fix: "Delete this KataConfig, or the older one."
    }
    KATA1005 InvalidSelector Error {
        cause: "spec.kataConfigPoolSelector cannot be evaluated.",
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
        cause: "A RuntimeClass of this name exists and is not ours.",
        fix: "Delete or rename that RuntimeClass, or give another name in spec.runtimes."
    }
    KATA1010 ForeignObject Error {
        cause: "An object of this name exists with other content, and is not ours.",
        fix: "Remove the object, or bring it into the expected form."
    }
    KATA1012 MachineConfigOperatorNotReady Error {
        cause: "The Machine Config Operator's pool that we need does not exist or cannot be read.",
        fix: "Check the cluster operator machine-config."
    }
    KATA1013 HandlerImmutable Error {
        cause: "The RuntimeClass has another handler, which cannot be changed while pods use it.",
        fix: "Delete the pods that use the RuntimeClass, or give the runtime another name."
    }
    KATA1014 PeerPodsUnsupported Warning {
        cause: "spec.enablePeerPods is true, and this operator does not run peer pods.",
        fix: "Set spec.enablePeerPods to false."
    }
    KATA1015 InvalidLogLevel Error {
        cause: "spec.logLevel is none of CRI-O's log levels.",
        fix: "Use fatal, panic, error, warn, info, debug or trace."
    }
    KATA1016 ReadFailed Error {
        cause: "The API server did not answer a read that the decision needs.",
        fix: "Nothing, if it passes; else check the API server and the operator's permissions."
    }
    KATA1017 WriteFailed Error {
        cause: "The API server refused a write.",
        fix: "Mend what the message names: a permission (`kata-operator manifests` prints all that are needed, and `kubectl apply --server-side --force-conflicts` puts them back), a namespace that is gone, a value of the KataConfig that is refused, or whoever else refuses the object; the operator tries again by itself."
    }
    KATA1018 PlatformUnsupported Error {
        cause: "The cluster is OpenShift, and its API server does not serve machineconfiguration.openshift.io, so that nobody may change the nodes.",
        fix: "Nothing, if the cluster is being installed; where nobody else ever changes the nodes, run the operator with --platform=kubernetes."
    }
    KATA1019 SelectorIgnored Warning {
        cause: "The control plane's nodes are the only workers, so Kata goes to the pool master as a whole.",
        fix: "Remove spec.kataConfigPoolSelector and spec.checkNodeEligibility, or add workers before the KataConfig."
    }
    KATA1020 WorkersNotCovered Warning {
        cause: "Kata was installed on the control plane when there were no workers, and does not go to workers added later.",
        fix: "Delete the KataConfig and create it again."
    }
    KATA1021 RuntimeClassInUse Warning {
        cause: "A RuntimeClass that spec.runtimes does not name any more is still used by pods.",
        fix: "Delete these pods, or name the RuntimeClass in spec.runtimes again."
    }
    KATA1022 WriteUndone Warning {
        cause: "Somebody else undoes what the operator writes, again and again.",
        fix: "Find out who changes the object that the message names (`kubectl get --show-managed-fields -o yaml`) and end that; the operator writes it again, ever more rarely."
    }
    KATA1030 ImageModeIncomplete Error {
        cause: "Image mode is on, and the ConfigMap layered-image-deploy-cm does not say which image of the operating system brings Kata.",
        fix: "Set osImageURL in the ConfigMap layered-image-deploy-cm, or layeredImageDeployment in osc-feature-gates to \"false\"."
    }
    KATA1031 LogLevelOverridden Warning {
        cause: "Another ContainerRuntimeConfig sets another log level for the same pool.",
        fix: "Remove logLevel from that ContainerRuntimeConfig, or set spec.logLevel of the KataConfig to its value."
    }
    KATA1032 RolloutNotHonoured Warning {
        cause: "spec.rollout cannot be carried to the pool master, which is the control plane's own.",
        fix: "Set maxUnavailable or paused of the MachineConfigPool master, and remove spec.rollout."
    }
    KATA1033 AdoptedOverhead Info {
        cause: "The RuntimeClass had another overhead when it was adopted, and keeps it.",
        fix: "Nothing; set spec.runtimes[].overhead of the KataConfig to say which overhead it shall have."
    }
    KATA1040 ConstraintsNotServed Info {
        cause: "The API server does not serve SecurityContextConstraints, so kata-monitor has none of its own.",
        fix: "Nothing, unless some admission refuses the pods of kata-monitor."
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
        fix: "Find out why the kubelet does not report. If the machine is gone for good, delete the Node."
    }
    KATA2104 DrainBlocked Warning {
        cause: "The node cannot be drained, because a PodDisruptionBudget allows no disruption or a pod does not end.",
        fix: "Scale the pods' owner up, lower the budget's minAvailable, or delete the pods."
    }
    KATA2105 NodeCordoned Warning {
        cause: "The node is cordoned by somebody else, so it is not changed.",
        fix: "Uncordon the node."
    }
    KATA2106 NodeDegraded Error {
        cause: "The machine-config daemon failed to bring the node to its configuration.",
        fix: "See the reason, and the log of machine-config-daemon on the node, or of machine-config-controller if a drain failed, in openshift-machine-config-operator; both try again by themselves once the cause is gone."
    }
    KATA2107 NodeDegradedAndCordoned Error {
        cause: "The daemon failed after the drain, and the Machine Config Operator gives a cordoned node no new configuration.",
        fix: "Correct the cause and uncordon the node."
    }
    KATA2108 HandlerMissing Error {
        cause: "The node runs the configuration with the extension, but its container runtime does not advertise the handler.",
        fix: "Look at CRI-O's log and /etc/crio/crio.conf.d on the node."
    }
    KATA2109 NodeStateUnknown Warning {
        cause: "What the node runs cannot be told, because its MachineConfig cannot be read or its daemon does not report.",
        fix: "Check the node's machine-config-daemon pod."
    }
    KATA2110 UnsupportedNode Info {
        cause: "The node cannot run Kata: it runs Windows, or the Machine Config Operator does not manage it.",
        fix: "Nothing; exclude the node in spec.kataConfigPoolSelector to silence this."
    }
    KATA2111 OtherRollout Info {
        cause: "The Machine Config Operator is changing the node for a reason of its own.",
        fix: "Nothing; it ends by itself."
    }
    KATA2112 PodsOnLeavingNode Warning {
        cause: "Sandboxed pods still run on a node that is to lose Kata.",
        fix: "Delete or move these pods."
    }
    KATA2113 ForeignRuntimeLabel Info {
        cause: "Nodes on which this operator did not install Kata carry katacontainers.io/kata-runtime=true.",
        fix: "Nothing, if something else installs Kata there; else remove the label from these nodes."
    }
    KATA3001 KvmUnusable Error {
        cause: "The node cannot create a virtual machine with /dev/kvm.",
        fix: "Enable virtualization in the firmware or for the machine type, or exclude the node in spec.kataConfigPoolSelector."
    }
    KATA3002 VsockMissing Error {
        cause: "The node has no usable /dev/vhost-vsock, by which the runtime talks to the guest.",
        fix: "Load the kernel module vhost_vsock on the node, or use a kernel that has it."
    }
    KATA3003 VhostNetMissing Warning {
        cause: "The node has no usable /dev/vhost-net, so networks of sandboxes are slower.",
        fix: "Load the kernel module vhost_net on the node."
    }
    KATA3004 MemoryLow Warning {
        cause: "The node has less free memory than one sandbox takes by default.",
        fix: "Free memory on the node, or lower default_memory."
    }
    KATA3005 DiskLow Error {
        cause: "The file system below /opt has not enough free space for the payload.",
        fix: "Free the space that the message names below /opt of the node."
    }
    KATA3006 ArchitectureMismatch Error {
        cause: "The payload was built for another architecture than the node's.",
        fix: "Set spec.payload.image to an image for all architectures of the nodes."
    }
    KATA3007 RuntimeUnsupported Error {
        cause: "The node's container runtime is none that can be configured for Kata here.",
        fix: "Use containerd 1.6 or newer, or CRI-O 1.30 or newer, under systemd, or exclude the node."
    }
    KATA3008 RuntimeOld Warning {
        cause: "The node's container runtime is so old that Kata is only known to be configurable, not to work.",
        fix: "Update to containerd 1.7 or newer."
    }
    KATA3009 RuntimeUnreachable Error {
        cause: "The container runtime does not answer at its CRI socket.",
        fix: "Look at the container runtime's unit on the node; nothing is changed before it answers."
    }
    KATA3010 RuntimeNotReady Error {
        cause: "The container runtime says by itself that it is not ready.",
        fix: "Repair what the message says; nothing is changed before it is ready."
    }
    KATA3011 RuntimeConfigBroken Error {
        cause: "The container runtime's configuration is broken already, so that it would not start again.",
        fix: "Correct the file that the message names."
    }
    KATA3012 RuntimeConfigUnknown Error {
        cause: "The container runtime's main configuration file, or the command of its unit, has a form that this version does not know.",
        fix: "Do what the message says; if it names a version of the schema, update the operator, or bring the file to a known one."
    }
    KATA3013 ImportMissing Error {
        cause: "The distribution renders the container runtime's configuration from a template that imports no folder of drop-ins.",
        fix: "Do with the template what the message says, and restart the distribution's unit. A template without the line that takes over the distribution's own has to have all of its settings."
    }
    KATA3014 ForeignSection Error {
        cause: "On containerd 1.x another drop-in replaces the CRI section, so that either it or ours would be lost.",
        fix: "Move what that drop-in configures into the main configuration file, or update to containerd 2."
    }
    KATA3015 ForeignFile Error {
        cause: "A file that is not ours is where our drop-in belongs.",
        fix: "Move or delete the file that the message names."
    }
    KATA3016 ForeignHandler Error {
        cause: "Somebody else has configured a handler of the same name in the container runtime.",
        fix: "Remove the other installation of Kata from the node, or give the handler another name in spec.runtimes."
    }
    KATA3017 SystemUnsupported Error {
        cause: "The node's operating system does not let anybody add a runtime to it.",
        fix: "Install Kata the way that the message says, or exclude the node in spec.kataConfigPoolSelector."
    }
    KATA3018 ManagedByMachineConfig Error {
        cause: "The Machine Config Operator manages the node's files and would undo or refuse the change.",
        fix: "Run the operator with --platform openshift."
    }
    KATA3019 SystemdUnreachable Error {
        cause: "systemd cannot be reached through /run/systemd/private.",
        fix: "Use nodes with systemd, and let the pod mount the directory /run/systemd."
    }
    KATA3020 SelinuxConfined Error {
        cause: "SELinux is enforcing, and the pod runs in a type that may not change the node.",
        fix: "Let the pod run with the SELinux type spc_t."
    }
    KATA3021 PayloadMissing Error {
        cause: "The payload is not on the node.",
        fix: "See why the container that takes it out of the image failed."
    }
    KATA3022 PayloadDamaged Error {
        cause: "Files of the payload differ from its manifest.",
        fix: "Nothing, if the next run repairs them; else check the node's disk."
    }
    KATA3023 ShimMissing Error {
        cause: "The payload does not have the shim of a handler.",
        fix: "Use one of the shims that the message lists in spec.runtimes, or another image in spec.payload.image."
    }
    KATA3024 SnapshotterMissing Error {
        cause: "The shim needs a snapshotter with block devices, and the container runtime uses none.",
        fix: "Configure the devmapper or blockfile snapshotter in containerd, or use another shim."
    }
    KATA3025 ShimConfigurationInvalid Error {
        cause: "The configuration of a shim in the payload cannot be understood.",
        fix: "Set spec.payload.image to an image whose configuration is valid."
    }
    KATA3026 PayloadUnusable Error {
        cause: "The image of the payload has no Kata in it, or not in a form that is known.",
        fix: "Set spec.payload.image to an image that has Kata in /opt/kata or, like those of kata-deploy, in /opt/kata-artifacts."
    }
    KATA3027 GuestPullMissing Warning {
        cause: "The shim's virtual machines pull their images themselves, and the container runtime is not set up for that by this operator.",
        fix: "Set the node up for it, with the snapshotter nydus in containerd or guest pull in CRI-O, or use a shim that is not for confidential containers."
    }
    KATA3030 SandboxesInTheWay Warning {
        cause: "Sandboxes run on the node whose handler would go or change.",
        fix: "Delete or move the pods that the message names."
    }
    KATA3031 ChangeRefusedByCheck Error {
        cause: "The change would have given the container runtime another configuration than it should, so it was undone without a restart.",
        fix: "Look at the key or the handler that the message names."
    }
    KATA3032 RestartFailed Error {
        cause: "The container runtime did not restart after the change, which was undone.",
        fix: "Look at the unit's log of that time."
    }
    KATA3033 VerificationFailed Error {
        cause: "The restarted container runtime did not offer what it should, so the change was undone.",
        fix: "Look at the unit's log of that time."
    }
    KATA3034 NodeUnsafe Error {
        cause: "A change failed, and going back did not bring the node to where it was.",
        fix: "Look at the container runtime's unit on the node; the files are as before but for those that the message names, and it is not tried again by itself."
    }
    KATA3035 JournalUnreadable Error {
        cause: "/var/lib/kata-operator/state.json on the node cannot be understood.",
        fix: "Update the operator if it is newer; else remove the file and our drop-in from the node."
    }
    KATA3036 AgentBusy Warning {
        cause: "Another node agent works on the node.",
        fix: "Nothing; it is tried again."
    }
    KATA3037 HostCallFailed Error {
        cause: "The node did not let the node agent read or write something.",
        fix: "Remove the cause that the message names; it is tried again."
    }
    KATA3038 ChangeInterrupted Warning {
        cause: "A change of the node was interrupted and is not finished.",
        fix: "Nothing; the next run that may change the node finishes or undoes it."
    }
    KATA3039 SandboxesLost Warning {
        cause: "Sandboxes that ran before the container runtime was restarted do not run any more.",
        fix: "Look at the pods that the message names, and delete those that are not started anew by themselves."
    }
    KATA3040 ConfigDrifted Warning {
        cause: "The container runtime's configuration is not what it was made.",
        fix: "Nothing; the next run that may change the node puts it back."
    }
    KATA3041 PayloadDrifted Warning {
        cause: "The payload in use is not what it was made, or not the wanted one.",
        fix: "Nothing; the next run that may change the node puts it back."
    }
    KATA3042 HandlersDrifted Warning {
        cause: "The container runtime does not offer what its configuration says.",
        fix: "Nothing; the next run that may change the node restarts it."
    }
    KATA3101 NodeUnfit Warning {
        cause: "A check of the node says that Kata cannot run there, so nothing is installed on it.",
        fix: "Correct what the check names, or exclude the node in spec.kataConfigPoolSelector; the check is repeated by itself."
    }
    KATA3102 NodeJobFailed Warning {
        cause: "A Job on the node could not carry out its task; the node is as before, or the next Job goes on.",
        fix: "Look at its log with `kubectl kata logs node/NAME`; it is tried again by itself, or at once if the KataNode is annotated with kata-operator.dev/retry and any new value."
    }
    KATA3103 NodeRolledBack Error {
        cause: "The change of the node failed and was undone, so it is not tried again as it is.",
        fix: "Correct what the message names, then annotate the KataNode with kata-operator.dev/retry and any new value, or change the KataConfig."
    }
    KATA3104 NodeBroken Error {
        cause: "The change of the node failed, and so did the way back.",
        fix: "Look at the container runtime on the node; then annotate the KataNode with kata-operator.dev/retry and any new value: the next Job finishes the way back, and after another annotation the change is tried again."
    }
    KATA3105 NodeJobVanished Warning {
        cause: "Somebody deleted a Job of the operator before its result was read.",
        fix: "Nothing; the Job is created again by itself."
    }
    KATA3106 NodeJobUnschedulable Warning {
        cause: "The pod of a Job cannot be scheduled onto its node.",
        fix: "Make room on the node, or remove what the scheduler names in the message."
    }
    KATA3107 NodeJobImage Warning {
        cause: "An image that a Job needs cannot be pulled on the node.",
        fix: "Correct spec.payload.image or the operator's image, or give the node access to the registry."
    }
    KATA3108 NodeJobTimedOut Warning {
        cause: "A Job on the node did not end in time.",
        fix: "Look at the Events of the Job and its pod; it is tried again by itself."
    }
    KATA3109 NodeJobNoReport Warning {
        cause: "A Job on the node ended without a report that can be read, so what it did is not known.",
        fix: "Look at its log with `kubectl kata logs node/NAME`; the next Job looks at the node itself."
    }
    KATA3110 SandboxesOnNode Warning {
        cause: "The node's container runtime has sandboxes that the change would harm.",
        fix: "Delete or move the pods that the message names."
    }
    KATA3111 RolloutStopped Error {
        cause: "The same change failed on several nodes, so no further node is changed.",
        fix: "Correct the cause on the nodes that the message names, then annotate their KataNodes with kata-operator.dev/retry, or change the KataConfig."
    }
    KATA3112 RolloutPaused Warning {
        cause: "spec.rollout.paused is true, so no further node is changed.",
        fix: "Set spec.rollout.paused of the KataConfig to false."
    }
    KATA3113 NodeDrifted Warning {
        cause: "The node was found to differ from what was installed, so it is repaired.",
        fix: "Nothing; find out who changed the node if it happens again."
    }
    KATA3114 OtherInstaller Warning {
        cause: "Something else installs Kata on the node.",
        fix: "Remove the other installation from the node, or exclude the node in spec.kataConfigPoolSelector."
    }
    KATA3115 NodeJobWithoutPod Warning {
        cause: "A Job has no pod: an admission rule or a quota refuses it.",
        fix: "Look at the Events of the Job; the operator's namespace needs pod-security.kubernetes.io/enforce=privileged, and where system priority classes are limited, as on GKE, a ResourceQuota that allows system-node-critical and system-cluster-critical there."
    }
    KATA3116 AgentImageUnknown Error {
        cause: "The operator does not know its own image, which has the node agent.",
        fix: "Set RELATED_IMAGE_NODE_AGENT of the operator's Deployment, or its option --node-agent-image."
    }
    KATA3117 NodeJobNotStarted Warning {
        cause: "The pod of a Job has not begun for minutes: its images are still being pulled, or the node cannot set it up.",
        fix: "Look at the Events of the pod that the message names (`kubectl describe pod`); if an image just takes its time, nothing."
    }
    KATA4001 PodsStillRunning Error {
        cause: "Sandboxed pods still run or wait to run, and the runtime is never removed from under them.",
        fix: "Delete these pods, or scale their owners down."
    }
    KATA5001 ClusterTooOld Warning {
        cause: "Kubernetes is older than 1.30, whose kubelets are the first that report the handlers of their container runtime.",
        fix: "Upgrade the cluster; until then a node counts as verified without this evidence."
    }
    KATA5002 PermissionMissing Warning {
        cause: "You lack a permission that the command needs to see or do everything.",
        fix: "Ask for the permission that the message names, for example through the ClusterRole kata-operator-view, or kata-operator-edit to change KataConfigs."
    }
    KATA5003 CustomResourceMissing Error {
        cause: "The API server does not serve KataConfig.",
        fix: "Install the operator: `kata-operator manifests --platform openshift | kubectl apply --server-side -f -`, or with `--platform kubernetes` on clusters that are not OpenShift."
    }
    KATA5004 CustomResourceStale Warning {
        cause: "The CustomResourceDefinition in the cluster is of another version than this program.",
        fix: "Apply the definitions of the operator's version again: `kata-operator crd | kubectl apply --server-side -f -`."
    }
    KATA5005 OperatorNotRunning Error {
        cause: "No pod of the operator is ready, so nothing goes on.",
        fix: "See `kubectl kata logs operator` and the operator's Deployment."
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
        fix: "Correct what the message names."
    }
    KATA5009 ManifestInvalid Error {
        cause: "The manifest is no valid KataConfig.",
        fix: "Correct the line that the message names."
    }
    KATA5010 OperatorSilent Warning {
        cause: "The operator has not taken up the latest change of the KataConfig.",
        fix: "See whether the operator runs, and `kubectl kata logs operator`."
    }
    KATA5101 NotSandboxed Error {
        cause: "The pod runs on its node's own kernel, and not in a virtual machine.",
        fix: "Add `runtimeClassName: kata` under spec, and create the pod again."
    }
    KATA5102 IsolationUnproven Warning {
        cause: "Nothing could be asked inside the pod, so it is not proven that it runs in a virtual machine.",
        fix: "Get the permission that the message names, or use an image with `cat`."
    }
    KATA5103 ProbeFailed Error {
        cause: "A probe pod did not come to run, or did not answer.",
        fix: "See the message, and the journal of the container runtime on the node: that a node is verified says what is installed there, and not that virtual machines start."
    }
    KATA5104 PodNotRunning Warning {
        cause: "The pod does not run, so there is nothing to verify.",
        fix: "See `kubectl kata why` for the reason."
    }
    KATA5201 RuntimeClassMissing Error {
        cause: "The pod names a RuntimeClass that does not exist.",
        fix: "Correct runtimeClassName, or create a KataConfig that offers this RuntimeClass."
    }
    KATA5202 SelectorConflict Error {
        cause: "The pod's nodeSelector contradicts that of its RuntimeClass.",
        fix: "Remove the label from the pod's nodeSelector; the RuntimeClass adds the right one."
    }
    KATA5203 OverheadMismatch Error {
        cause: "The pod states an overhead that is not that of its RuntimeClass.",
        fix: "Remove spec.overhead from the pod; the RuntimeClass adds it."
    }
    KATA5204 QuotaExceeded Error {
        cause: "A ResourceQuota of the namespace does not leave enough, and the overhead of the sandbox counts.",
        fix: "Raise the quota, or ask for less."
    }
    KATA5205 NoNodeFits Warning {
        cause: "No node can take the pod now.",
        fix: "Free what the message names, or give more nodes Kata."
    }
    KATA5206 WaitsForRollout Info {
        cause: "The nodes that could take the pod are being given Kata, or are about to be.",
        fix: "Nothing: it is scheduled when the next node is ready; see `kubectl kata wait`."
    }
    KATA5207 PodRejected Error {
        cause: "The API server refuses the pod when it is created.",
        fix: "Correct what the message names in the pod's template."
    }
    KATA5211 HandlerNotConfigured Error {
        cause: "The node's container runtime does not know the handler of the RuntimeClass.",
        fix: "See `kubectl kata nodes`; the node must not carry katacontainers.io/kata-runtime=true."
    }
    KATA5212 VirtualizationMissing Error {
        cause: "The node cannot start virtual machines, because /dev/kvm is missing or cannot be used.",
        fix: "Switch on virtualization in the firmware, or nested virtualization in the hypervisor, or exclude the node."
    }
    KATA5213 GuestUnreachable Error {
        cause: "The virtual machine started, and the agent in its guest did not answer.",
        fix: "Look at the guest's console in the node's journal; often the guest has too little memory, or vhost_vsock is missing."
    }
    KATA5214 GuestOutOfMemory Error {
        cause: "The virtual machine has too little memory.",
        fix: "Raise the pod's memory limit: the guest has it besides the default of the runtime's configuration."
    }
    KATA5215 GuestImageMissing Error {
        cause: "The guest's kernel or image is not on the node.",
        fix: "See `kubectl kata nodes`; delete the node's KataNode to have it installed again."
    }
    KATA5216 FeatureUnsupported Error {
        cause: "The pod asks for something that pods in virtual machines cannot have, such as hostNetwork.",
        fix: "Take it out of the pod, or run the pod without the RuntimeClass."
    }
    KATA5217 SandboxFailed Error {
        cause: "The container runtime cannot make the pod's sandbox.",
        fix: "See the message, and the journal of the container runtime on the node."
    }
    KATA5218 ImageNotPulled Warning {
        cause: "An image of the pod cannot be pulled.",
        fix: "Correct the image's name, or give the pod a pull secret."
    }
    KATA5219 ContainerFails Warning {
        cause: "A container of the pod ends again and again.",
        fix: "See `kubectl logs`; the sandbox itself works."
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.entry().code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_ordered_and_well_formed() {
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.entry().code).collect();
        let mut sorted = codes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(codes, sorted);
        for code in Code::ALL {
            let entry = code.entry();
            assert_eq!(entry.code.len(), 8, "{}", entry.code);
            assert!(entry.cause.ends_with('.') && entry.fix.ends_with('.'), "{}", entry.code);
        }
    }
}
