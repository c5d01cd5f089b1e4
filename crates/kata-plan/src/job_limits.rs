//! What a container of a Job on a node may use at most.

use kata_api::quantity::nano;

/// What a container of a Job may use at most, as quantities of Kubernetes; `None` is without a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLimits {
    pub cpu: Option<String>,
    pub memory: Option<String>,
}

impl JobLimits {
    /// More than one process that unpacks can use.
    pub const CPU: &str = "2";
    /// The process that stages a payload needs less than 64 MiB for any image: the tests of the
    /// node agent give it no more. The rest is for the kernel, which charges its memory for inodes and unwritten
    /// file data to the container. 96 MiB in all were enough to stage 900 MiB.
    pub const MEMORY: &str = "256Mi";
    /// The least limits with which Jobs work, in the same quantities.
    pub const LEAST: [&str; 2] = ["100m", "128Mi"];

    /// From two quantities, of which an empty one is no limit.
    ///
    /// # Errors
    /// If one is no quantity, or less than [`Self::LEAST`]: the quantity and the least one.
    pub fn new<'a>(cpu: &'a str, memory: &'a str) -> Result<Self, (&'a str, &'static str)> {
        let limit = |text: &'a str, least: &'static str| match nano(text) {
            _ if text.is_empty() => Ok(None),
            Some(value) if Some(value) >= nano(least) => Ok(Some(text.to_owned())),
            _ => Err((text, least)),
        };
        let [least_cpu, least_memory] = Self::LEAST;
        Ok(Self { cpu: limit(cpu, least_cpu)?, memory: limit(memory, least_memory)? })
    }
}

impl Default for JobLimits {
    /// A namespace with a quota for limits admits no pod without them.
    fn default() -> Self {
        Self { cpu: Some(Self::CPU.to_owned()), memory: Some(Self::MEMORY.to_owned()) }
    }
}
