//! Operating systems and clouds that bring a sandboxing runtime of their own: what their nodes look like to the API
//! server, and to the container runtime of the host.
//!
//! Facts, not behaviour: such a host does what every other one does.

use serde::{Deserialize, Serialize};

use kata_host::nodeadm;

use super::{Host, Runtime};
use super::{containerd, crio};

/// An operating system or cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// Talos Linux with the system extension `kata-containers`.
    Talos,
    /// A node pool of AKS for pod sandboxing.
    Aks,
    /// A node pool of GKE Sandbox, which runs gVisor and no virtual machines.
    Gke,
    /// Flatcar Container Linux with the system extension `kata-containers` and a handler that the admin configured.
    Flatcar,
    /// Amazon Linux 2023 of EKS, which brings no such runtime, and writes containerd's main file anew at each boot.
    Eks,
}

impl System {
    /// `osImage`.
    pub fn os_image(self) -> &'static str {
        match self {
            Self::Talos => "Talos (v1.11.2)",
            Self::Aks => "Microsoft Azure Linux 3.0",
            Self::Gke => "Container-Optimized OS from Google",
            Self::Flatcar => "Flatcar Container Linux by Kinvolk 4459.2.0 (Oklo)",
            Self::Eks => "Amazon Linux 2023.9.20251110",
        }
    }

    /// The handlers that it configures.
    ///
    /// Talos: `container-runtime/kata-containers` of siderolabs/extensions. AKS: the RuntimeClass `kata-vm-isolation`.
    /// GKE: the RuntimeClass `gvisor`. Flatcar's extension of flatcar/sysext-bakery configures none; `kata` is what its
    /// users write.
    pub fn handlers(self) -> &'static [&'static str] {
        match self {
            Self::Talos => &["kata", "kata-qemu"],
            Self::Aks | Self::Flatcar => &["kata"],
            Self::Gke => &["gvisor"],
            Self::Eks => &[],
        }
    }

    /// The label of its sandboxing nodes, if there is one.
    pub fn label(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Aks => Some(("kubernetes.azure.com/kata-vm-isolation", "true")),
            Self::Gke => Some(("sandbox.gke.io/runtime", "gvisor")),
            Self::Talos | Self::Flatcar | Self::Eks => None,
        }
    }
}

impl std::str::FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "talos" => Ok(Self::Talos),
            "aks" => Ok(Self::Aks),
            "gke" => Ok(Self::Gke),
            "flatcar" => Ok(Self::Flatcar),
            "eks" => Ok(Self::Eks),
            _ => Err(format!("unknown system {text:?}: give talos, aks, gke, flatcar or eks")),
        }
    }
}

/// The shim of a handler that the system brings.
const SHIM: &str = "/usr/local/bin/containerd-shim-kata-v2";
/// The program of a handler without virtual machines.
const OTHER: &str = "/usr/local/bin/containerd-shim-runsc-v1";

/// Configures handlers in the container runtime of a host that was not started yet. Those that begin with `kata` start
/// virtual machines.
pub(super) fn provide(host: &mut Host, main: &str, handlers: &[String]) {
    for name in handlers {
        let is_vm = name.starts_with("kata");
        let (program, type_) =
            if is_vm { (SHIM, "io.containerd.kata.v2") } else { (OTHER, "io.containerd.runsc.v1") };
        host.files.insert(program.to_owned(), "simulated, from the operating system\n".to_owned());
        let (path, text) = match host.runtime() {
            Runtime::Crio => {
                let type_ = if is_vm { "vm" } else { "oci" };
                (
                    format!("{}50-provided-{name}.conf", crio::DROP_IN_DIRECTORY),
                    format!(
                        "[crio.runtime.runtimes.{name}]\nruntime_path = \"{program}\"\nruntime_type = \"{type_}\"\n"
                    ),
                )
            }
            runtime => {
                let plugin = match runtime {
                    Runtime::Containerd1 => "io.containerd.grpc.v1.cri",
                    _ => "io.containerd.cri.v1.runtime",
                };
                (
                    main.to_owned(),
                    format!(
                        "[plugins.\"{plugin}\".containerd.runtimes.{name}]\n  runtime_type = \"{type_}\"\n  \
                         runtime_path = \"{program}\"\n"
                    ),
                )
            }
        };
        host.files.entry(path).or_default().push_str(&text);
    }
}

/// Adds the link and the folders of `nodeadm` to a host of Amazon EKS.
pub(super) fn add_nodeadm(host: &mut Host) {
    if host.spec.as_ref().and_then(|spec| spec.system) == Some(System::Eks) {
        host.files.insert(nodeadm::ENABLED.to_owned(), "simulated\n".to_owned());
        host.disk.add_directories(&["/etc/eks", nodeadm::FOLDER]);
    }
}

/// Writes containerd's main file, with the imports of the last file of nodeadm's folder that sets some, as nodeadm does at
/// a boot. Its templates, and where it fails, are in the model of `hostlab` only.
pub(super) fn render_main_file(host: &mut Host) {
    if !host.files.contains_key(nodeadm::ENABLED) {
        return;
    }
    let folder = format!("{}/", nodeadm::FOLDER);
    let configs = host.files_under(&folder).filter(|(path, _)| nodeadm::is_config(path));
    let found = configs.filter_map(|(_, text)| nodeadm::read(text).ok()?.imports);
    let imports = found.last().map(|list| format!("imports = {list:?}\n")).unwrap_or_default();
    let template = match host.runtime() {
        Runtime::Containerd1 => containerd::OLD,
        _ => containerd::FRESH,
    };
    host.put(containerd::MAIN, format!("{imports}{template}"));
}
