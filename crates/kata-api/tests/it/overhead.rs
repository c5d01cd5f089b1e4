//! A RuntimeClass' overhead where the KataConfig sets none.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kata_api::kata_config::{OverheadSpec, RuntimeSpec};

fn overhead(name: &str, shim: Option<&str>) -> String {
    let runtime = RuntimeSpec {
        name: name.to_owned(),
        shim: shim.map(str::to_owned),
        ..RuntimeSpec::default()
    };
    let (cpu, memory) = runtime.effective_overhead();
    format!("{}/{}", cpu.0, memory.0)
}

/// The table of the Helm chart of Kata Containers 4.x, but for `qemu`.
#[test]
fn a_class_takes_what_its_shim_takes() {
    for (name, expected) in [
        ("kata", "250m/350Mi"),
        ("kata-qemu", "250m/350Mi"),
        ("kata-qemu-runtime-rs", "250m/320Mi"),
        ("kata-clh", "250m/130Mi"),
        ("kata-clh-azure-runtime-rs", "250m/130Mi"),
        ("kata-dragonball", "250m/130Mi"),
        ("kata-fc", "250m/130Mi"),
        ("kata-stratovirt", "250m/130Mi"),
        ("kata-openvmm-azure-runtime-rs", "250m/130Mi"),
        ("kata-remote", "250m/120Mi"),
        ("kata-qemu-coco-dev", "250m/160Mi"),
        ("kata-qemu-coco-dev-runtime-rs", "250m/320Mi"),
        ("kata-qemu-nvidia-cpu-runtime-rs", "250m/320Mi"),
        ("kata-qemu-nvidia-gpu", "1/10240Mi"),
        ("kata-qemu-nvidia-gpu-snp-runtime-rs", "1/10240Mi"),
        ("kata-qemu-se-runtime-rs", "1/1024Mi"),
        ("kata-qemu-snp", "1/2048Mi"),
        ("kata-qemu-tdx-runtime-rs", "1/2048Mi"),
        // No prefix that ends within a word, and no handler that was not measured.
        ("kata-fcx", "250m/350Mi"),
        ("kata-my-own", "250m/350Mi"),
    ] {
        assert_eq!(overhead(name, None), expected, "{name}");
    }
    assert_eq!(overhead("kata", Some("clh")), "250m/130Mi");
    assert_eq!(overhead("kata-clh", Some("qemu")), "250m/350Mi");
}

#[test]
fn what_the_spec_says_is_taken() {
    let memory = Quantity("1Gi".to_owned());
    let runtime = RuntimeSpec {
        name: "kata-qemu-snp".to_owned(),
        overhead: Some(OverheadSpec { memory: Some(memory.clone()), ..OverheadSpec::default() }),
        ..RuntimeSpec::default()
    };
    assert_eq!(runtime.effective_overhead(), (Quantity("1".to_owned()), memory));
}
