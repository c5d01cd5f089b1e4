//! The schemas of containerd's configuration.

/// The schemas of containerd's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Schema {
    /// No `version`, or 1.
    V1,
    /// `version = 2`.
    V2,
    /// `version = 3`, since containerd 2.0.
    V3,
    /// `version = 4`, since containerd 2.3: where it listens is the setting of a plugin.
    V4,
}

impl Schema {
    /// The id of the plugin with the runtimes.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::V1 => "cri",
            Self::V2 => "io.containerd.grpc.v1.cri",
            Self::V3 | Self::V4 => "io.containerd.cri.v1.runtime",
        }
    }

    /// The `version` of a file.
    pub(super) fn version(self) -> i64 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
            Self::V4 => 4,
        }
    }
}
