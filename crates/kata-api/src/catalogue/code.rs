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
