//! A node on which two containerds run: a plain one, and the one of k3s under a unit of another name.

use std::fs;

use kata_api::node_task::{NodeAction, Outcome};

use crate::lab::{Node, assert_same};
use crate::payload;

const RANCHER: &str = "var/lib/rancher/k3s/agent/etc/containerd";
const SOCKET: &str = "run/k3s/containerd/containerd.sock";

const CONFIG: &str = "version = 3
imports = [\"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml\"]
root = \"/var/lib/rancher/k3s/agent/containerd\"
state = \"/run/k3s/containerd\"
[grpc]
address = \"/run/k3s/containerd/containerd.sock\"
[plugins.'io.containerd.cri.v1.images']
snapshotter = \"native\"
";

const UNIT: &str = "[Unit]
DefaultDependencies=no
[Service]
Type=notify
Environment=PATH=/node/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/node/bin/containerd --config /var/lib/rancher/k3s/agent/etc/containerd/config.toml
KillMode=process
Delegate=yes
";

const KUBELET: &str = "[Unit]
DefaultDependencies=no
[Service]
EnvironmentFile=/etc/default/kubelet
ExecStart=/bin/sh -c 'exec sleep infinity' kubelet $KUBELET_EXTRA_ARGS
";

#[test]
#[ignore = "needs a real containerd"]
fn the_containerd_of_the_kubelet_is_changed_and_the_other_one_is_not() {
    let node = Node::start("2", "two");
    let at = |path: &str| node.root.join(path);
    fs::create_dir_all(at(RANCHER).join("config-v3.toml.d")).unwrap();
    fs::write(at(RANCHER).join("config.toml"), CONFIG).unwrap();
    fs::write(at("etc/systemd/system/k3s-edge.service"), UNIT).unwrap();
    node.systemctl(&["daemon-reload"]);
    node.systemctl(&["start", "k3s-edge.service"]);
    let second = at(SOCKET);
    node.until("the second containerd is ready", || {
        node.cri.status(&second).is_ok_and(|status| status.runtime_ready)
    });
    let images = at("tmp");
    fs::create_dir_all(&images).unwrap();
    let staged = node.stage("a", &payload::image(&images, "3.24.0"));
    assert!(staged.status.success(), "{staged:?}");
    let (files, incarnation) = (node.files(), node.incarnation());

    let report = node.run(NodeAction::Install, "a", &["kata"]);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3028", "{report:?}");
    for unit in ["containerd.service", "k3s-edge.service"] {
        assert!(report.checks[0].message.contains(unit), "{report:?}");
    }
    assert_same(&node.files(), &files);

    fs::create_dir_all(at("etc/default")).unwrap();
    let argument = format!("--container-runtime-endpoint=unix:///{SOCKET}");
    fs::write(at("etc/default/kubelet"), format!("KUBELET_EXTRA_ARGS={argument}\n")).unwrap();
    fs::write(at("etc/systemd/system/kubelet.service"), KUBELET).unwrap();
    node.systemctl(&["daemon-reload"]);
    node.systemctl(&["start", "kubelet.service"]);
    let etc = || {
        let mut files = node.files();
        files.retain(|path, _| path.starts_with("etc/"));
        files
    };
    let before = etc();
    let report = node.run(NodeAction::Install, "a", &["kata"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let drop_in = at(RANCHER).join("config-v3.toml.d/60-kata-operator.toml");
    assert!(drop_in.exists());
    assert_same(&etc(), &before);
    assert_eq!(node.incarnation(), incarnation, "the other containerd was restarted");
    let offered = |socket: &std::path::Path| {
        kata_host::containerd::live(&node.cri.status(socket).unwrap()).handlers
    };
    assert!(offered(&second).contains("kata"));
    assert!(!offered(&node.socket).contains("kata"));

    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(!drop_in.exists());
    assert_eq!(fs::read_to_string(at(RANCHER).join("config.toml")).unwrap(), CONFIG);
    assert_same(&etc(), &before);
}
