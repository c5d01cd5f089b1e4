//! The kind of cluster, as command lines name it.

use std::str::FromStr;

use crate::names;

/// The kind of cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Detect the kind from the API server.
    Auto,
    /// The Machine Config Operator changes nodes.
    Openshift,
    /// There is no Machine Config Operator.
    Kubernetes,
}

impl Platform {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Openshift, Self::Kubernetes];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Openshift => "openshift",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// The operator's namespace unless another one is chosen. While the kind of cluster is not known it is that of OpenShift,
    /// which tools look for.
    pub fn namespace(self) -> &'static str {
        match self {
            Self::Auto | Self::Openshift => names::NAMESPACE,
            Self::Kubernetes => names::PRODUCT,
        }
    }
}

/// The text is not the name of a kind of cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPlatform;

impl std::fmt::Display for UnknownPlatform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Platform::ALL.map(Platform::as_str);
        write!(f, "the platform is one of {}", names.join(", "))
    }
}

impl std::error::Error for UnknownPlatform {}

impl FromStr for Platform {
    type Err = UnknownPlatform;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|platform| platform.as_str() == text).ok_or(UnknownPlatform)
    }
}
