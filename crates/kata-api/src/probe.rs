//! Facts about the kernel on which a probe runs: `kata-operator probe` prints them, `kubectl kata verify`
//! reads them. Data only; the callers read the files.

use serde::{Deserialize, Serialize};

/// Facts about the kernel of the sandbox, or of the node, in which a process runs.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProbeFacts {
    /// The boot ID, unique to each boot of each kernel; empty if it cannot be read.
    pub boot_id: String,
    /// The kernel's command line.
    #[serde(default)]
    pub cmdline: String,
    /// How long the kernel has run.
    #[serde(default)]
    pub uptime_seconds: f64,
    /// Logical CPUs that the kernel sees.
    #[serde(default)]
    pub cpus: u32,
    /// Memory that the kernel sees, in KiB.
    #[serde(default)]
    pub memory_kib: u64,
    /// The kernel's version.
    #[serde(default)]
    pub kernel: String,
}

/// The files that the facts come from, in the order of [`ProbeFacts::from_lines`].
pub const FILES: [&str; 6] = [
    "/proc/sys/kernel/random/boot_id",
    "/proc/uptime",
    "/proc/sys/kernel/osrelease",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/meminfo",
];

impl ProbeFacts {
    /// Parses the contents of [`FILES`] in order, as `cat` prints them. `None` if the text has another form.
    pub fn from_lines(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut next = || lines.next().map(str::trim);
        let boot_id = next()?.to_owned();
        let uptime = next()?.split(' ').next()?.parse().ok()?;
        let kernel = next()?.to_owned();
        let cmdline = next()?.to_owned();
        let rest: Vec<&str> = lines.collect();
        let cpus = rest.iter().filter(|line| line.starts_with("processor")).count();
        let memory = rest.iter().find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok()
        });
        Some(Self {
            boot_id,
            cmdline,
            uptime_seconds: uptime,
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            memory_kib: memory.unwrap_or_default(),
            kernel,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_in_order() {
        let text = "6f1c0a\n12.50 9.1\n5.14.0\nro quiet\nprocessor\t: 0\nprocessor\t: 1\nMemTotal:  2048 kB\n";
        let facts = ProbeFacts::from_lines(text).unwrap();
        assert_eq!((facts.boot_id.as_str(), facts.cpus, facts.memory_kib), ("6f1c0a", 2, 2048));
        assert_eq!((facts.kernel.as_str(), facts.cmdline.as_str()), ("5.14.0", "ro quiet"));
        assert_eq!(ProbeFacts::from_lines("cat: not found\n"), None);
    }
}
