//! The resources that a sandbox needs in addition to its containers, by shim. Facts only: no decision.

use crate::names::{OVERHEAD_CPU, OVERHEAD_MEMORY};

/// Prefixes of shim names, with the CPU and memory of a sandbox. The longest matching prefix counts.
///
/// Source: `shims.*.runtimeClass.overhead` of the Helm chart of Kata Containers 4.x (kata-deploy), measured
/// by upstream. The one exception is `qemu`, which has 320Mi there: it has the overhead of the class `kata` of
/// the OpenShift sandboxed containers operator, so that the class is the same on every cluster.
/// The TEE resources that upstream adds for Node Feature Discovery are not included.
pub const OVERHEADS: [(&str, &str, &str); 16] = [
    ("clh", "250m", "130Mi"),
    ("dragonball", "250m", "130Mi"),
    ("fc", "250m", "130Mi"),
    ("openvmm", "250m", "130Mi"),
    ("qemu", OVERHEAD_CPU, OVERHEAD_MEMORY),
    ("qemu-coco-dev", "250m", "160Mi"),
    ("qemu-coco-dev-runtime-rs", "250m", "320Mi"),
    ("qemu-nvidia-cpu", "250m", "320Mi"),
    ("qemu-nvidia-gpu", "1", "10240Mi"),
    ("qemu-runtime-rs", "250m", "320Mi"),
    ("qemu-se", "1", "1024Mi"),
    ("qemu-snp", "1", "2048Mi"),
    ("qemu-tdx", "1", "2048Mi"),
    ("remote", "250m", "120Mi"),
    ("stratovirt", "250m", "130Mi"),
    ("", OVERHEAD_CPU, OVERHEAD_MEMORY),
];

/// CPU and memory that a sandbox of a shim needs in addition to its containers. Unknown shims get the values
/// of `qemu`.
pub fn of_shim(shim: &str) -> (&'static str, &'static str) {
    let fits = |name: &str| {
        shim.strip_prefix(name)
            .is_some_and(|rest| name.is_empty() || rest.is_empty() || rest.starts_with('-'))
    };
    OVERHEADS
        .into_iter()
        .filter(|(name, _, _)| fits(name))
        .max_by_key(|(name, _, _)| name.len())
        .map_or((OVERHEAD_CPU, OVERHEAD_MEMORY), |(_, cpu, memory)| (cpu, memory))
}
