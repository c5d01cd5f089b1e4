//! Which of several container runtimes is found: the one that the kubelet uses, or none.

use kata_api::node_task::{NodeAction, Outcome};
use kata_host::host::Unit;
use kata_host::site::{self, SiteError};

use crate::node::{Node, V2_MAIN, task};
use crate::runtime::Kind;

const MAIN: &str = "/etc/containerd/config.toml";

/// A node on which services run, by the names of their units and their commands.
fn node(services: &[(&str, &str)]) -> Node {
    let mut node = Node::of("none.service", MAIN, V2_MAIN, None);
    node.runtime.command = vec!["/usr/bin/none".to_owned()];
    node.services = services
        .iter()
        .map(|(name, command)| {
            let command = command.split(' ').map(str::to_owned).collect();
            ((*name).to_owned(), Unit { active: true, command, ..Unit::default() })
        })
        .collect();
    node
}

fn write(node: &mut Node, path: &str, text: &str) {
    let mut place = String::new();
    for part in kata_host::paths::parent(path).split('/').skip(1) {
        place = format!("{place}/{part}");
        node.disk.make_dir(&place, 0o755).unwrap();
    }
    node.disk.write(path, text.as_bytes(), 0o644).unwrap();
}

/// The unit and the socket of the one that is found, or why there is none.
fn found(node: &mut Node, hint: Option<&str>) -> String {
    match site::find(node, hint, None) {
        Ok(Some(site)) => format!("{} {}", site.unit.unwrap_or_default(), site.socket),
        Ok(None) => "none".to_owned(),
        Err(error @ (SiteError::Several { .. } | SiteError::Elsewhere { .. })) => error.to_string(),
        Err(error) => panic!("{error}"),
    }
}

const CONTAINERD: (&str, &str) = ("containerd.service", "/usr/bin/containerd");
const CRIO: (&str, &str) = ("crio.service", "/usr/bin/crio");
const K3S: &str = "k3s-edge.service /run/k3s/containerd/containerd.sock";
const OWN: &str = "containerd.service /run/containerd/containerd.sock";

#[test]
fn the_container_runtime_of_the_kubelet_is_found_whatever_runs_beside_it() {
    for (services, hint, expected) in [
        (vec![CONTAINERD], None, OWN),
        (
            vec![("runtime.service", "/opt/bin/containerd")],
            None,
            "runtime.service /run/containerd/containerd.sock",
        ),
        // A distribution under another name, beside a containerd of the host.
        (
            vec![
                CONTAINERD,
                ("k3s-edge.service", "/usr/local/bin/k3s agent --server https://a:6443"),
            ],
            None,
            K3S,
        ),
        (
            vec![CONTAINERD, ("k3s-edge.service", "/usr/bin/env A=b /usr/local/bin/k3s agent")],
            None,
            K3S,
        ),
        // What is not the node's own kubelet and container runtime.
        (vec![CONTAINERD, ("backup.service", "/usr/local/bin/k3s etcd-snapshot save")], None, OWN),
        // Docker's containerd beside RKE2's.
        (
            vec![CONTAINERD, ("rke2-server.service", "/usr/local/bin/rke2 server")],
            None,
            "rke2-server.service /run/k3s/containerd/containerd.sock",
        ),
        (
            vec![CONTAINERD, ("edge.service", "/usr/local/bin/k0s worker --token-file=/a")],
            None,
            " /run/k0s/containerd.sock",
        ),
        // The Node says which kind it is.
        (vec![CONTAINERD, CRIO], Some("cri-o://1.34.1"), "crio.service /run/crio/crio.sock"),
        (vec![CONTAINERD, CRIO], Some("containerd://2.1.9"), OWN),
        (
            vec![CONTAINERD, CRIO],
            None,
            "containerd.service and crio.service run, and nothing says which one the kubelet uses",
        ),
        // The kubelet's own arguments.
        (
            vec![
                CONTAINERD,
                CRIO,
                (
                    "kubelet.service",
                    "/usr/bin/kubelet --container-runtime-endpoint=unix:///var/run/crio/crio.sock",
                ),
            ],
            None,
            "crio.service /run/crio/crio.sock",
        ),
        (
            vec![
                CONTAINERD,
                ("second.service", "/usr/bin/containerd -c /etc/second.toml -a /run/second.sock"),
                (
                    "kube.service",
                    "/usr/bin/kubelet --container-runtime-endpoint unix:///run/second.sock",
                ),
            ],
            Some("containerd://2.1.9"),
            "second.service /run/second.sock",
        ),
        (
            vec![
                CONTAINERD,
                (
                    "kubelet.service",
                    "/usr/bin/kubelet --container-runtime-endpoint=unix:///run/cri-dockerd.sock",
                ),
            ],
            None,
            "kubelet.service uses the container runtime at /run/cri-dockerd.sock, where containerd.service \
             does not listen",
        ),
        // A distribution that is pointed elsewhere.
        (
            vec![
                CONTAINERD,
                (
                    "k3s.service",
                    "/usr/local/bin/k3s agent --container-runtime-endpoint unix:///run/containerd/containerd.sock",
                ),
            ],
            None,
            OWN,
        ),
        (
            vec![("k3s.service", "/usr/local/bin/k3s agent --docker")],
            None,
            "k3s.service uses the container runtime at /run/k3s/cri-dockerd/cri-dockerd.sock, where no unit \
             of containerd or CRI-O listens",
        ),
        (
            vec![
                CONTAINERD,
                (
                    "k0sworker.service",
                    "/usr/local/bin/k0s worker --cri-socket remote:unix:///run/containerd/containerd.sock",
                ),
            ],
            None,
            OWN,
        ),
        (vec![("sshd.service", "/usr/sbin/sshd -D")], None, "none"),
        // A kubelet without a file of its configuration.
        (vec![CONTAINERD, ("kubelet.service", "/usr/bin/kubelet --v=2")], None, OWN),
        (
            vec![
                CONTAINERD,
                ("kubelet.service", "/usr/bin/kubelet --config=$FILE --config-dir=$DIR"),
            ],
            None,
            OWN,
        ),
        (
            vec![
                CONTAINERD,
                CRIO,
                (
                    "k.service",
                    "/usr/bin/kubelet --container-runtime-endpoint=unix:/run/crio/crio.sock",
                ),
            ],
            None,
            "crio.service /run/crio/crio.sock",
        ),
    ] {
        assert_eq!(found(&mut node(&services), hint), expected, "{services:?} {hint:?}");
    }
}

/// In the files that the units name, and in their variables.
#[test]
fn configuration_files_and_variables_count_as_arguments_do() {
    let endpoint = "unix:///run/containerd/containerd.sock";
    let mut k3s = node(&[CONTAINERD, ("k3s-agent.service", "/usr/local/bin/k3s agent")]);
    write(
        &mut k3s,
        "/etc/rancher/k3s/config.yaml",
        &format!("container-runtime-endpoint: {endpoint}\n"),
    );
    assert_eq!(found(&mut k3s, None), OWN);

    let mut moved =
        node(&[CONTAINERD, ("k3s-agent.service", "/usr/local/bin/k3s agent -c /etc/k3s.yaml")]);
    write(&mut moved, "/etc/k3s.yaml", &format!("container-runtime-endpoint: \"{endpoint}\"\n"));
    assert_eq!(found(&mut moved, None), OWN);

    let mut data = node(&[("k3s.service", "/usr/local/bin/k3s server")]);
    data.services[0].1.environment = vec!["K3S_DATA_DIR=/var/data".to_owned()];
    let main = site::find(&mut data, None, None).unwrap().unwrap().main;
    assert_eq!(main, "/var/data/agent/etc/containerd/config.toml");

    // As kubeadm starts it: options in variables, and the rest in a file.
    let command = "/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS";
    for (flags, config, drop_in) in [
        ("--container-runtime-endpoint=unix:///run/crio/crio.sock", "", ""),
        (
            "",
            "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/crio/crio.sock\n",
            "",
        ),
        (
            "--config-dir=/etc/kubelet.d",
            "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
            "containerRuntimeEndpoint: \"unix:///run/crio/crio.sock\"\n",
        ),
    ] {
        let mut node = node(&[CONTAINERD, CRIO, ("kubelet.service", command)]);
        let kubelet = &mut node.services[2].1;
        kubelet.environment =
            vec!["KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml".to_owned()];
        kubelet.environment_files = vec!["/var/lib/kubelet/kubeadm-flags.env".to_owned()];
        write(&mut node, "/var/lib/kubelet/config.yaml", config);
        write(
            &mut node,
            "/var/lib/kubelet/kubeadm-flags.env",
            &format!("KUBELET_KUBEADM_ARGS=\"{flags}\"\n"),
        );
        write(&mut node, "/etc/kubelet.d/10-cri.conf", drop_in);
        assert_eq!(found(&mut node, None), "crio.service /run/crio/crio.sock", "{flags} {config}");
    }
}

#[test]
fn a_runtime_that_is_not_the_one_of_the_node_is_not_touched() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage("a");
    let before = node.disk.all();
    let mut other = task(NodeAction::Install, "a");
    other.container_runtime = Some("containerd://1.7.24".to_owned());
    let report = kata_host::run(&mut node, &other);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3028", "{report:?}");
    let message = &report.checks[0].message;
    for name in ["containerd://1.7.24", "containerd://v2.1.9", "containerd.service"] {
        assert!(message.contains(name), "{message}");
    }
    assert_eq!(node.disk.all(), before);
    other.container_runtime = Some("containerd://2.1.9".to_owned());
    assert_eq!(kata_host::run(&mut node, &other).outcome, Outcome::Done);
}

/// A removal leaves nothing, even if the kubelet uses another container runtime by now.
#[test]
fn kata_is_removed_from_the_container_runtime_that_it_was_installed_in() {
    for (name, command) in [
        ("second.service", "/usr/bin/containerd -c /etc/second/config.toml -a /run/second.sock"),
        (
            "kubelet.service",
            "/usr/bin/kubelet --container-runtime-endpoint=unix:///run/second.sock",
        ),
    ] {
        let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
        node.stage("a");
        let before = node.etc();
        let install = task(NodeAction::Install, "a");
        assert_eq!(kata_host::run(&mut node, &install).outcome, Outcome::Done);
        let command = command.split(' ').map(str::to_owned).collect();
        let unit = Unit { active: true, command, ..Unit::default() };
        node.services = vec![(name.to_owned(), unit)];
        let report = kata_host::run(&mut node, &install);
        assert_eq!(report.outcome, Outcome::Refused, "{name}: {report:?}");
        assert_eq!(report.checks[0].code, "KATA3028", "{name}: {report:?}");
        let report = kata_host::run(&mut node, &task(NodeAction::Remove, ""));
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
        assert_eq!(node.etc(), before, "{name}");
    }
}

/// The program behind `env` is the one that prints the merged configuration.
#[test]
fn a_program_that_is_started_through_env_is_found() {
    let mut node = node(&[(
        "containerd.service",
        "/usr/bin/env PATH=/opt/bin /opt/bin/containerd --config /etc/own.toml",
    )]);
    let site = site::find(&mut node, None, None).unwrap().unwrap();
    assert_eq!(
        (site.program.as_deref(), &*site.main),
        (Some("/opt/bin/containerd"), "/etc/own.toml")
    );
}
