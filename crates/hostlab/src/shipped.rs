//! Main files as distributions ship them, nodes that have them, and what a change of ours changes of the
//! merged configuration besides our handlers.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::node::Node;
use crate::runtime::{Kind, PLUGINS};

/// A main file as it is shipped.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name, which says who ships it.
    pub name: &'static str,
    /// `None` is a node without a main file.
    text: Option<&'static str>,
    /// The container runtimes that it is found with, or may be after an upgrade of theirs.
    pub kinds: &'static [Kind],
    layout: Layout,
}

/// Where a distribution keeps the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Containerd,
    K3s,
    Rke2,
    K0s,
    Microk8s,
    CrioDropIn,
}

const V1_6: Kind = Kind::Containerd(1, 6);
const V1_7: Kind = Kind::Containerd(1, 7);
const V2_1: Kind = Kind::Containerd(2, 1);
const V2_3: Kind = Kind::Containerd(2, 3);

macro_rules! shipped {
    ($($name:literal $file:literal $layout:ident $($kind:ident)+;)+) => {
        &[$(Shipped {
            name: $name,
            text: Some(include_str!(concat!("../shipped/", $file))),
            kinds: &[$($kind),+],
            layout: Layout::$layout,
        }),+]
    };
}

const FILES: &[Shipped] = shipped! {
    "Debian 12, 13 and sid" "debian.toml" Containerd V1_6 V1_7 V2_1;
    "Docker's containerd.io" "docker.toml" Containerd V1_6 V1_7 V2_1;
    "only comments" "comments.toml" Containerd V1_6 V1_7 V2_1;
    "kubeadm, containerd 1.7" "config-default-1.7.toml" Containerd V1_6 V1_7 V2_1;
    "kubeadm, containerd 2.1" "config-default-2.1.toml" Containerd V2_1;
    "schema 3" "version-3.toml" Containerd V2_1;
    "schema 4" "version-4.toml" Containerd V2_3;
    "EKS, containerd 1.7" "eks-1.7.toml" Containerd V1_7 V2_1;
    "EKS, containerd 2" "eks-2.toml" Containerd V2_1;
    "kind" "kind.toml" Containerd V1_7 V2_1;
    "GKE without runtimes" "gke.toml" Containerd V1_6 V1_7 V2_1;
    "Kubespray" "kubespray.toml" Containerd V1_7 V2_1;
    "Flatcar" "flatcar.toml" Containerd V1_6 V1_7 V2_1;
    "nvidia-ctk" "nvidia.toml" Containerd V1_6 V1_7 V2_1;
    "schema 1" "version-1.toml" Containerd V1_6 V1_7 V2_1;
    "schema 1 with a runtime" "version-1-runtimes.toml" Containerd V1_6 V1_7 V2_1;
    "no version, sections of schema 2" "no-version.toml" Containerd V1_6 V1_7 V2_1;
    "no bytes" "empty.toml" Containerd V1_6 V1_7 V2_1;
    "Kubernetes' documentation" "kubeadm-docs.toml" Containerd V1_6 V1_7 V2_1;
    "Kubernetes' documentation, containerd 2" "kubeadm-docs-3.toml" Containerd V2_1;
    "mirrors of registries only" "registry-only.toml" Containerd V1_6 V1_7 V2_1;
    "imports only" "imports-only.toml" Containerd V1_6 V1_7 V2_1;
    "an empty table of runtimes" "runtimes-empty.toml" Containerd V2_1;
    "a snapshotter only" "snapshotter-only.toml" Containerd V1_6 V1_7 V2_1;
    "nvidia as the default" "default-nvidia.toml" Containerd V1_6 V1_7 V2_1;
    "sections of schema 2 and 3" "both-schemas.toml" Containerd V2_1;
    "AKS, containerd 2" "aks-2.toml" Containerd V2_1;
    "k3s, schema 2" "k3s-1.7.toml" K3s V1_7;
    "k3s, schema 3" "k3s-2.toml" K3s V2_1;
    "RKE2, schema 2" "k3s-1.7.toml" Rke2 V1_7;
    "RKE2, schema 3" "k3s-2.toml" Rke2 V2_1;
    "k0s, schema 2" "k0s-1.7.toml" K0s V1_7;
    "k0s, schema 3" "k0s-2.toml" K0s V2_1;
    "MicroK8s" "microk8s.toml" Microk8s V1_6 V1_7 V2_1;
    "OpenShift" "openshift.conf" CrioDropIn CRIO;
    "Fedora" "crio.conf" CrioDropIn CRIO;
};

const CRIO: Kind = Kind::Crio;

/// Drop-ins of others beside ours, by what they stand for. Those in `conf.d` are imported.
pub const DROP_INS: &[(&str, &[(&str, &str)])] = &[
    ("nothing of CRI", &[("conf.d/10-debug.toml", "version = 2\n[debug]\nlevel = \"warn\"\n")]),
    ("a runtime before ours", &[("conf.d/10-nvidia.toml", NVIDIA_2)]),
    ("a runtime after ours", &[("conf.d/99-nvidia.toml", NVIDIA_2)]),
    ("a runtime as the default after ours", &[("conf.d/99-nvidia.toml", NVIDIA_DEFAULT_3)]),
    ("mirrors before ours", &[("conf.d/10-mirrors.toml", MIRRORS_2)]),
    ("mirrors after ours", &[("conf.d/99-mirrors.toml", MIRRORS_2)]),
    ("a snapshotter after ours", &[("conf.d/99-snapshotter.toml", SNAPSHOTTER_2)]),
    ("two runtimes", &[("conf.d/10-nvidia.toml", NVIDIA_2), ("conf.d/99-mirrors.toml", MIRRORS_2)]),
    ("a runtime of schema 3 before ours", &[("conf.d/50-wasm.toml", WASM_3)]),
    ("a runtime of schema 3 after ours", &[("conf.d/99-wasm.toml", WASM_3)]),
    ("schema 3 declared before ours", &[("conf.d/10-wasm.toml", DECLARED_3)]),
    ("schema 3 declared after ours", &[("conf.d/99-wasm.toml", DECLARED_3)]),
    (
        "runtimes of both schemas",
        &[("conf.d/10-nvidia.toml", NVIDIA_2), ("conf.d/99-wasm.toml", WASM_3)],
    ),
    (
        "an import of an import",
        &[("conf.d/10-more.toml", "imports = [\"../more.d/*\"]\n"), ("more.d/wasm.toml", WASM_3)],
    ),
    (
        "a loop of imports",
        &[(
            "conf.d/10-loop.toml",
            "imports = [\"10-loop.toml\", \"*.toml\"]\n[debug]\nlevel = \"warn\"\n",
        )],
    ),
];

const NVIDIA_2: &str = "\
version = 2
[plugins.\"io.containerd.grpc.v1.cri\".containerd]
default_runtime_name = \"runc\"
[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"
[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]
runtime_type = \"io.containerd.runc.v2\"
[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]
BinaryName = \"/usr/bin/nvidia-container-runtime\"
";
/// What `nvidia-ctk` writes for containerd 2 with --set-as-default.
const NVIDIA_DEFAULT_3: &str = "\
version = 3
[plugins.\"io.containerd.cri.v1.runtime\"]
enable_cdi = true
[plugins.\"io.containerd.cri.v1.runtime\".containerd]
default_runtime_name = \"nvidia\"
[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]
runtime_type = \"io.containerd.runc.v2\"
[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia.options]
BinaryName = \"/usr/bin/nvidia-container-runtime\"
";
const MIRRORS_2: &str = "\
version = 2
[plugins.\"io.containerd.grpc.v1.cri\".registry.mirrors.\"docker.io\"]
endpoint = [\"https://mirror.example.invalid\"]
";
const SNAPSHOTTER_2: &str = "\
version = 2
[plugins.\"io.containerd.grpc.v1.cri\".containerd]
snapshotter = \"native\"
";
const WASM_3: &str = "\
[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.wasm]
runtime_type = \"io.containerd.wasmtime.v1\"
";
const DECLARED_3: &str = "\
version = 3
[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.wasm]
runtime_type = \"io.containerd.wasmtime.v1\"
";

/// Ubuntu's package and the archives of the project have no main file.
const NO_FILE: Shipped = Shipped {
    name: "Ubuntu 22.04 and 24.04, no file",
    text: None,
    kinds: &[V1_6, V1_7, V2_1],
    layout: Layout::Containerd,
};

/// All of them.
pub fn all() -> impl Iterator<Item = Shipped> {
    std::iter::once(NO_FILE).chain(FILES.iter().copied())
}

/// A main file of containerd's own layout that is not one of those.
pub fn of_text(name: &'static str, text: &'static str, kinds: &'static [Kind]) -> Shipped {
    Shipped { name, text: Some(text), kinds, layout: Layout::Containerd }
}

impl Shipped {
    /// Whether containerd's own unit reads the file at its usual place.
    pub fn is_plain(&self) -> bool {
        self.layout == Layout::Containerd
    }

    /// A node that also has drop-ins of others, which the main file imports. `None` if its container runtime does
    /// not serve CRI with them, such as where a drop-in takes the default runtime away.
    pub fn node_with(&self, kind: Kind, drop_ins: &[(&str, &str)]) -> Option<Node> {
        let mut node = self.node(kind);
        let main = node.runtime.main.clone();
        let text = self.text.unwrap_or_default().replace("imports = []\n", "");
        if !text.contains("conf.d/*.toml") {
            let imports = "imports = [\"/etc/containerd/conf.d/*.toml\"]\n";
            node.disk.make_dir("/etc/containerd", 0o755).unwrap();
            node.disk.write(&main, format!("{imports}{text}").as_bytes(), 0o644).unwrap();
        }
        for (name, text) in drop_ins {
            let path = format!("/etc/containerd/{name}");
            let (folder, _) = path.rsplit_once('/').unwrap();
            node.disk.make_dir(folder, 0o755).unwrap();
            node.disk.write(&path, text.as_bytes(), 0o644).unwrap();
        }
        node.runtime.start(&mut node.disk);
        node.runtime.restarts = 0;
        node.disk.settle();
        let serves = node.runtime.running.as_ref().is_some_and(Result::is_ok);
        serves.then_some(node)
    }

    /// A node that has the file, and whose container runtime runs with it.
    pub fn node(&self, kind: Kind) -> Node {
        let text = self.text.unwrap_or_default();
        let microk8s = "/var/snap/microk8s/current/args";
        let rancher = |name: &str| {
            let text = text.replace("/rancher/k3s/", &format!("/rancher/{name}/"));
            let main = format!("/var/lib/rancher/{name}/agent/etc/containerd/config.toml");
            Node::of(&format!("{name}.service"), &main, &text, None)
        };
        let mut node = match self.layout {
            Layout::Containerd => return Node::new(kind, self.text),
            Layout::CrioDropIn => {
                let mut node = Node::new(kind, None);
                let path = "/etc/crio/crio.conf.d/10-shipped.conf";
                node.disk.write(path, text.as_bytes(), 0o644).unwrap();
                node
            }
            Layout::K3s => rancher("k3s"),
            Layout::Rke2 => {
                let mut node = rancher("rke2");
                node.runtime.unit = "rke2-server.service".to_owned();
                node
            }
            Layout::K0s => {
                let main = "/etc/k0s/containerd.toml";
                let mut node = Node::of("k0sworker.service", main, text, None);
                node.disk.make_dir("/run/k0s", 0o755).unwrap();
                node.runtime.watches = Some("/etc/k0s/containerd.d".to_owned());
                node.runtime.renders = Some("/run/k0s/containerd-cri.toml".to_owned());
                node
            }
            Layout::Microk8s => Node::of(
                "snap.microk8s.daemon-containerd.service",
                &format!("{microk8s}/containerd.toml"),
                text,
                Some(&format!("{microk8s}/containerd-template.toml")),
            ),
        };
        node.runtime.kind = kind;
        node.runtime.start(&mut node.disk);
        node.runtime.restarts = 0;
        node.disk.settle();
        node
    }

    /// Whether another program than containerd makes the file that containerd reads.
    pub fn is_rendered(&self) -> bool {
        matches!(self.layout, Layout::K0s | Layout::CrioDropIn)
    }
}

/// The keys in which two merged configurations differ, but for the imports and these handlers.
pub fn foreign_changes(before: &Table, after: &Table, ours: &[&str]) -> Vec<String> {
    let without_ours = |table: &Table| {
        let mut leaves = BTreeSet::new();
        let mut table = table.clone();
        table.remove("imports");
        for runtimes in PLUGINS.map(|id| ["plugins", id, "containerd", "runtimes"].to_vec()) {
            remove(&mut table, &runtimes, ours);
        }
        remove(&mut table, &["crio", "runtime", "runtimes"], ours);
        collect("", &Value::Table(table), &mut leaves);
        leaves
    };
    let (before, after) = (without_ours(before), without_ours(after));
    before.symmetric_difference(&after).cloned().collect()
}

fn remove(table: &mut Table, path: &[&str], names: &[&str]) {
    let found = path.iter().try_fold(table, |table, key| table.get_mut(*key)?.as_table_mut());
    if let Some(found) = found {
        found.retain(|name, _| !names.contains(&name));
    }
}

fn collect(key: &str, value: &Value, leaves: &mut BTreeSet<String>) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            for (name, value) in table {
                collect(&format!("{key}.{name}"), value, leaves);
            }
        }
        // A table without keys is the same as none.
        Value::Table(_) => {}
        _ => drop(leaves.insert(format!("{key} = {value}"))),
    }
}
