//! Properties of codes that their entries do not have.

use super::{Code, Who};

impl Code {
    /// Who can usually remove the cause.
    pub fn who(self) -> Who {
        match self {
            Self::PodsStillRunning
            | Self::NotSandboxed
            | Self::RuntimeClassMissing
            | Self::SelectorConflict
            | Self::OverheadMismatch
            | Self::PodRejected
            | Self::GuestOutOfMemory
            | Self::FeatureUnsupported
            | Self::ImageNotPulled
            | Self::ContainerFails
            | Self::ContainerConfig
            | Self::VolumeNotMounted
            | Self::ContainerNotReady => Who::ApplicationTeam,
            _ => Who::ClusterAdministrator,
        }
    }

    /// Commands that show more or are the fix, the most useful first. NODE, POD, POOL, NAMESPACE, NAME and FILE stand for
    /// names.
    pub fn commands(self) -> &'static [&'static str] {
        match self {
            Self::NoNodesSelected
            | Self::SelectorIgnored
            | Self::WorkersNotCovered
            | Self::PoolUnfit
            | Self::LabelsLost
            | Self::LabelsSetByLabeller => {
                &["kubectl get nodes --show-labels", "kubectl describe kataconfigs"]
            }
            Self::NotActive
            | Self::InvalidSelector
            | Self::PeerPodsUnsupported
            | Self::SettingsNotHonoured
            | Self::SettingsInvalid
            | Self::RuntimeWithoutNodes
            | Self::InvalidLogLevel => &["kubectl describe kataconfigs"],
            Self::PoolPaused
            | Self::RenderDegraded
            | Self::RenderWaiting
            | Self::RolloutNotHonoured
            | Self::OtherRollout => {
                &["oc get machineconfigpools", "oc describe machineconfigpool POOL"]
            }
            Self::NodeInTwoPools | Self::NodeInOtherPool => {
                &["oc get machineconfigpools", "oc get node NODE --show-labels"]
            }
            Self::MachineConfigOperatorNotReady => &["oc get clusteroperator machine-config"],
            Self::LogLevelOverridden => &["oc get containerruntimeconfigs -o yaml"],
            Self::ImageModeIncomplete => {
                &["oc get configmap layered-image-deploy-cm -n NAMESPACE -o yaml"]
            }
            Self::TakeOverIncomplete => &["kubectl kata takeover plan"],
            Self::ForeignRuntimeClass | Self::AdoptedOverhead => {
                &["kubectl describe runtimeclass NAME"]
            }
            Self::HandlerImmutable | Self::RuntimeClassInUse => {
                &["kubectl kata pods -A", "kubectl describe runtimeclass NAME"]
            }
            Self::ForeignObject
            | Self::ReadFailed
            | Self::WriteFailed
            | Self::WriteUndone
            | Self::UnsafeStepSkipped
            | Self::ClockSkew
            | Self::PlatformUnsupported
            | Self::ConstraintsNotServed
            | Self::AgentImageUnknown
            | Self::OperatorSilent => &["kubectl kata logs operator", "kubectl kata doctor"],
            Self::PolicyOfOtherVersion => &[
                "kubectl get validatingadmissionpolicy kata-operator-jobs -o yaml",
                "kubectl kata logs operator",
            ],
            Self::OtherInstallation => &[
                "kubectl get deployments -A -l app.kubernetes.io/name=kata-operator",
                "kubectl kata doctor",
            ],
            Self::NodeNotReady
            | Self::NodeStateUnknown
            | Self::UnsupportedNode
            | Self::ForeignRuntimeLabel
            | Self::NodeUnderPressure
            | Self::OtherInstaller
            | Self::NodeOutOfMemory => &["kubectl describe node NODE"],
            Self::KataNodeValueUnknown => &["kubectl get katanode NODE -o yaml"],
            Self::NodeDegraded | Self::NodeDegradedAndCordoned => {
                &["kubectl kata logs node/NODE", "oc describe node NODE"]
            }
            Self::DrainBlocked => {
                &["kubectl kata status", "kubectl get poddisruptionbudgets -A -o wide"]
            }
            Self::NodeCordoned => &["kubectl uncordon NODE"],
            Self::NodePoolUnprepared => &["kubectl kata pool --for karpenter"],
            Self::NoStartupTaint => &["kubectl describe node NODE"],
            Self::HandlersNotReported => {
                &["kubectl get node NODE -o jsonpath='{.status.runtimeHandlers}'"]
            }
            Self::HandlerMissing => &[
                "kubectl get node NODE -o jsonpath='{.status.runtimeHandlers}'",
                "kubectl kata logs node/NODE",
            ],
            Self::PodsOnLeavingNode
            | Self::SandboxesOnNode
            | Self::SandboxesInTheWay
            | Self::SandboxesLost => &["kubectl kata pods -A"],
            Self::NodeJobFailed | Self::NodeRolledBack | Self::NodeBroken => {
                &["kubectl kata logs node/NODE", "kubectl kata retry NODE"]
            }
            Self::RolloutStopped => &["kubectl kata status", "kubectl kata retry --all"],
            Self::RolloutPaused => &["kubectl kata resume"],
            Self::PayloadTagMoved => &["kubectl kata status", "kubectl kata nodes -o json"],
            Self::NodeJobVanished
            | Self::NodeJobUnschedulable
            | Self::NodeJobImage
            | Self::NodeJobTimedOut
            | Self::NodeJobNoReport
            | Self::NodeJobWithoutPod
            | Self::NodeJobHeld
            | Self::NodeJobNotStarted => {
                &["kubectl events -A --types Warning", "kubectl kata logs node/NODE"]
            }
            Self::KvmUnusable
            | Self::VsockMissing
            | Self::VhostNetMissing
            | Self::MemoryLow
            | Self::DiskLow
            | Self::ArchitectureMismatch
            | Self::RuntimeUnsupported
            | Self::RuntimeOld
            | Self::RuntimeUnreachable
            | Self::RuntimeNotReady
            | Self::RuntimeConfigBroken
            | Self::RuntimeConfigUnknown
            | Self::ImportMissing
            | Self::TakeOverRefused
            | Self::ForeignSettings
            | Self::ForeignSection
            | Self::ForeignFile
            | Self::ForeignHandler
            | Self::SystemUnsupported
            | Self::ManagedByMachineConfig
            | Self::SystemdUnreachable
            | Self::SelinuxConfined
            | Self::PayloadMissing
            | Self::PayloadDamaged
            | Self::ShimMissing
            | Self::SnapshotterMissing
            | Self::ShimConfigurationInvalid
            | Self::SettingUnknown
            | Self::SettingsMisfit
            | Self::BootConfigShadowed
            | Self::LostAtReboot
            | Self::ForeignChangePending
            | Self::ForeignChangeOnRestart
            | Self::PayloadUnusable
            | Self::GuestPullMissing
            | Self::RuntimeNotConfirmed
            | Self::ShimLeftOut
            | Self::ChangeRefusedByCheck
            | Self::RestartFailed
            | Self::VerificationFailed
            | Self::NodeUnsafe
            | Self::JournalUnreadable
            | Self::AgentBusy
            | Self::HostCallFailed
            | Self::ChangeInterrupted
            | Self::ConfigDrifted
            | Self::PayloadDrifted
            | Self::HandlersDrifted
            | Self::NodeUnfit
            | Self::NodeDrifted => {
                &["kubectl kata nodes NODE -o wide", "kubectl kata logs node/NODE"]
            }
            Self::PodsStillRunning => &["kubectl kata uninstall --dry-run", "kubectl kata pods -A"],
            Self::ClusterTooOld => &["kubectl version"],
            Self::PermissionMissing => &["kubectl auth can-i --list"],
            Self::OperatorNotRunning => {
                &["kubectl kata logs operator", "kubectl kata doctor --pre"]
            }
            Self::CustomResourceMissing => {
                &["kubectl kata doctor --pre", "kubectl kata install --dry-run client"]
            }
            Self::CustomResourceStale | Self::VersionSkew => &["kubectl kata version"],
            Self::NoKataConfig => &["kubectl kata install"],
            Self::KataConfigRefused | Self::ManifestInvalid => &["kubectl kata doctor -f FILE"],
            Self::NotSandboxed | Self::IsolationUnproven | Self::PodNotRunning => &[
                "kubectl kata verify pod/POD -n NAMESPACE",
                "kubectl kata why pod/POD -n NAMESPACE",
            ],
            Self::ProbeFailed => &["kubectl kata verify --node NODE --keep"],
            // The API server refuses these pods, so there is none.
            Self::RuntimeClassMissing | Self::SelectorConflict | Self::OverheadMismatch => {
                &["kubectl kata why deployment/NAME -n NAMESPACE", "kubectl get runtimeclasses"]
            }
            Self::QuotaExceeded => &[
                "kubectl kata why deployment/NAME -n NAMESPACE",
                "kubectl describe resourcequotas -n NAMESPACE",
            ],
            Self::PodRejected => &[
                "kubectl kata why deployment/NAME -n NAMESPACE",
                "kubectl get events -n NAMESPACE",
            ],
            Self::NoNodeFits => &["kubectl kata why pod/POD -n NAMESPACE", "kubectl kata nodes"],
            Self::WaitsForRollout => {
                &["kubectl kata why pod/POD -n NAMESPACE", "kubectl kata status"]
            }
            Self::HandlerNotConfigured
            | Self::VirtualizationMissing
            | Self::GuestUnreachable
            | Self::GuestOutOfMemory
            | Self::GuestImageMissing
            | Self::SandboxFailed
            | Self::ContainerNotStarted => &[
                "kubectl kata why pod/POD -n NAMESPACE",
                "kubectl kata logs pod/POD --shim -n NAMESPACE",
            ],
            Self::ContainerFails => &[
                "kubectl kata why pod/POD -n NAMESPACE",
                "kubectl logs POD --previous -n NAMESPACE",
            ],
            Self::FeatureUnsupported
            | Self::ImageNotPulled
            | Self::ContainerConfig
            | Self::VolumeNotMounted
            | Self::ContainerNotReady
            | Self::PodEnded => {
                &["kubectl kata why pod/POD -n NAMESPACE", "kubectl describe pod POD -n NAMESPACE"]
            }
        }
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
