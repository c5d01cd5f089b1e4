//! The two ways in which the Machine Config Operator installs Kata.

use kata_api::names;

/// How Kata gets onto a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// As an extension of the operating system, which has this name there.
    Extension { name: String },
    /// In another image of the operating system, which may need kernel arguments.
    Image { image: String, arguments: Vec<String> },
}

impl Payload {
    /// The name of the MachineConfig that installs it.
    pub(crate) fn machine_config(&self) -> &'static str {
        match self {
            Self::Extension { .. } => names::MACHINE_CONFIG,
            Self::Image { .. } => names::IMAGE_MACHINE_CONFIG,
        }
    }
}
