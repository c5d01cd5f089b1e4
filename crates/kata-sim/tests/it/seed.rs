//! The second post that this operator comes from, command by command on a simulated OpenShift: where it says `oc`,
//! stock kubectl; where its repository has a file, ours with the same use; and of each answer what the post says of it.
//!
//! Where the two differ on purpose, docs/compared-with-osc.md says so.

use std::io::Write as _;
use std::process::Stdio;

use crate::kubectl_process::normal;
use crate::site::Site;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const NAMESPACE: &str = "openshift-sandboxed-containers-operator";

/// What a terminal shows in which `line` runs and these lines are typed.
fn typed(site: &Site, line: &str, lines: &[&str]) -> String {
    // One that does not end must not hold up all tests.
    let mut terminal = site.command("timeout");
    terminal
        .args(["60", "script", "-qec", line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = terminal.spawn().unwrap();
    // It stays open: its end would be the terminal's.
    let mut keys = child.stdin.take().unwrap();
    for line in lines {
        writeln!(keys, "{line}").unwrap();
    }
    keys.flush().unwrap();
    let output = child.wait_with_output().unwrap();
    drop(keys);
    let shown = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(output.status.success(), "{shown}");
    shown
}

/// What the terminal shows between a line that was typed and the next prompt.
#[track_caller]
fn answer<'a>(shown: &'a str, line: &str) -> &'a str {
    let (_, rest) = shown
        .split_once(&format!("# {line}\n"))
        .unwrap_or_else(|| panic!("no {line:?} at a prompt in:\n{shown}"));
    rest.split("(simulated) ").next().unwrap_or_default()
}

#[track_caller]
fn has(text: &str, wanted: &[&str]) {
    let text = normal(text);
    for line in wanted {
        assert!(text.lines().any(|it| it.trim() == *line), "no line {line:?} in:\n{text}");
    }
}

/// Section 2, "Install Sandbox Containers Operator in OpenShift".
fn install(site: &mut Site) {
    site.good("kubectl apply -k deploy/olm/samples");
    site.good(&format!(
        "kubectl wait subs/kata-operator -n {NAMESPACE} --timeout=60s \
         --for=jsonpath={{.status.installedCSV}}=kata-operator.v{VERSION}"
    ));
    let subscriptions = site.good(&format!("kubectl get subs -n {NAMESPACE}"));
    has(
        &subscriptions,
        &["NAME PACKAGE SOURCE CHANNEL", "kata-operator kata-operator kata-operator stable"],
    );
    site.good(&format!(
        "kubectl wait csv --all -n {NAMESPACE} --for=jsonpath={{.status.phase}}=Succeeded --timeout=60s"
    ));
    let versions = site.good(&format!("kubectl get csv -n {NAMESPACE}"));
    has(
        &versions,
        &[
            "NAME DISPLAY VERSION REPLACES PHASE",
            &format!("kata-operator.v{VERSION} Kata operator {VERSION} Succeeded"),
        ],
    );
    // The post: sandboxed-containers-operator-controller-manager, 1/1.
    let deployments = site.good(&format!("kubectl get deployments -n {NAMESPACE}"));
    has(&deployments, &["NAME READY UP-TO-DATE AVAILABLE AGE", "kata-operator 2/2 2 2 AGE"]);
}

/// Section 3, "Creating and configuring the KataConfig in OpenShift cluster"; returns the node.
fn configure(site: &mut Site) -> String {
    let node = site.good(
        "NODE_KATA=$(kubectl get node -l node-role.kubernetes.io/worker= --no-headers=true | \
         awk '{ print $1 }' | head -n1)\necho $NODE_KATA",
    );
    let node = node.trim().to_owned();
    assert_eq!(node, "worker-0");
    site.good(&format!("kubectl label node {node} kata=true"));
    // A minute takes six seconds now, so that the change can be watched.
    site.good("kata-sim speed 10");
    site.good("kubectl apply -k examples");
    site.good(&format!(
        "kubectl wait node/{node} --for=jsonpath={{.spec.unschedulable}}=true --timeout=120s"
    ));
    let during =
        site.good("kubectl get nodes -l kubernetes.io/os=linux,node-role.kubernetes.io/worker=");
    let changing = during.lines().find(|line| line.starts_with(&node)).unwrap();
    assert_eq!(changing.split_whitespace().nth(1), Some("Ready,SchedulingDisabled"), "{during}");
    for other in ["worker-1 ", "worker-2 "] {
        let line = during.lines().find(|line| line.starts_with(other)).unwrap();
        assert!(line.contains(" Ready "), "{during}");
    }
    let progress = site.good("kubectl describe kataconfig cluster-kataconfig");
    has(
        &progress,
        &[
            "Name: cluster-kataconfig",
            "API Version: kataconfiguration.openshift.io/v1",
            "Kind: KataConfig",
            "Kata Config Pool Selector:",
            "Match Labels:",
            "Kata: true",
            // The post: Installation Status, Is In Progress; Total Nodes Count.
            "Node Count: 1",
            "Reason: Installing",
        ],
    );
    let pool = site.good("kubectl get mcp kata-oc");
    has(&pool, &["kata-oc False True False 1 0 0 0 AGE"]);
    site.good("kata-sim speed 600");
    site.good("kubectl wait --for=condition=Ready kataconfig --all --timeout=120s");
    let pool = site.good("kubectl get mcp kata-oc");
    has(
        &pool,
        &[
            "NAME CONFIG UPDATED UPDATING DEGRADED MACHINECOUNT READYMACHINECOUNT \
             UPDATEDMACHINECOUNT DEGRADEDMACHINECOUNT AGE",
            "kata-oc rendered-kata-oc-HASH True False False 1 1 1 0 AGE",
        ],
    );
    has(
        &site.good("kubectl get mcp kata-oc -o yaml | egrep -i 'kata|sandbox'"),
        &[
            "name: kata-oc",
            "name: rendered-kata-oc-HASH",
            "name: 50-enable-sandboxed-containers-extension",
            "- kata-oc",
            // The post: kata: "true", the admin's own label.
            "node-role.kubernetes.io/kata-oc: \"\"",
            "message: All nodes are updated with MachineConfig rendered-kata-oc-HASH",
        ],
    );
    let configs = site.good("kubectl get mc | grep sand");
    has(&configs, &["50-enable-sandboxed-containers-extension 3.2.0 AGE"]);
    has(
        &site.good("kubectl get mc $(kubectl get mc | awk '{ print $1 }' | grep sand) -o yaml"),
        &[
            "kind: MachineConfig",
            "app: cluster-kataconfig",
            // The post: worker; here Kata always has a pool of its own.
            "machineconfiguration.openshift.io/role: kata-oc",
            "name: 50-enable-sandboxed-containers-extension",
            "version: 3.2.0",
            "extensions:",
            "- sandboxed-containers",
        ],
    );
    node
}

/// Sections 4 and 5, "Runtimes configurations" and "Analysis of the RuntimeClass / Kata Runtime".
fn configured(site: &mut Site, node: &str) {
    let debug =
        format!("kubectl debug node/{node} -it --image=registry.access.redhat.com/ubi9/ubi");
    let cat = "cat /etc/crio/crio.conf.d/50-kata";
    let shown = typed(site, &debug, &["chroot /host bash", cat, "exit", "exit"]);
    has(
        answer(&shown, cat),
        &[
            "[crio.runtime.runtimes.kata]",
            "runtime_path = \"/usr/bin/containerd-shim-kata-v2\"",
            "runtime_type = \"vm\"",
            "runtime_root = \"/run/vc\"",
            "privileged_without_host_devices = true",
        ],
    );
    let class = site.good("kubectl get runtimeClass kata -o yaml");
    assert!(class.contains("\n    cpu: 250m\n"), "{class}");
    has(
        &class,
        &[
            "apiVersion: node.k8s.io/v1",
            "handler: kata",
            "kind: RuntimeClass",
            "name: kata",
            "podFixed:",
            "memory: 350Mi",
            "nodeSelector:",
            // The post: node-role.kubernetes.io/worker, which nodes without Kata have as well.
            "katacontainers.io/kata-runtime: \"true\"",
        ],
    );
}

/// Sections 6 and 7, "Testing Sandbox Containers vs Regular Containers" and "Analysis of the Kata Containers Workloads".
fn compare(site: &mut Site) {
    // `oc new-project` makes the namespace and chooses it.
    site.good("kubectl create namespace test-kata");
    site.good("kubectl config set-context --current --namespace=test-kata");
    let (kata, regular) = ("example-net-tools-kata", "example-net-tools-regular");
    site.good("kubectl apply -f examples/pod-regular.yaml");
    site.good("kubectl apply -f examples/pod-kata.yaml");
    site.good("kubectl wait --for=condition=Ready pod --all --timeout=60s");
    let pods = site.good("kubectl get pod -o wide");
    for pod in [kata, regular] {
        let line = pods.lines().find(|line| line.starts_with(pod)).unwrap();
        assert!(
            line.contains("1/1") && line.contains("Running") && line.contains("worker-0"),
            "{pods}"
        );
    }
    let class = format!("kubectl get pod {kata} -o jsonpath='{{.spec.runtimeClassName}}'");
    assert_eq!(site.good(&class), "kata");
    let class = format!("kubectl get pod {kata} -o yaml | grep runtimeClass | tail -1");
    assert_eq!(site.good(&class).trim(), "runtimeClassName: kata");

    let mut exec = |pod: &str, command: &str| {
        site.good(&format!("kubectl exec -ti {pod} -- {command}")).trim().to_owned()
    };
    let uptime = |text: String| text.split(' ').next().unwrap().parse::<f64>().unwrap();
    let of_guest = uptime(exec(kata, "cat /proc/uptime"));
    let of_node = uptime(exec(regular, "cat /proc/uptime"));
    assert!(of_guest < of_node, "{of_guest} and {of_node}");
    let of_guest = exec(kata, "cat /proc/cmdline");
    assert!(of_guest.contains("agent.log=debug") && of_guest.contains("nr_cpus="), "{of_guest}");
    let of_node = exec(regular, "cat /proc/cmdline");
    assert!(of_node.contains("BOOT_IMAGE=") && of_node.contains("ostree="), "{of_node}");
    assert_eq!(exec(kata, "cat /proc/cpuinfo | grep processor | wc -l"), "1");
    assert_eq!(exec(regular, "cat /proc/cpuinfo | grep processor | wc -l"), "4");
    assert_eq!(exec(kata, "uname -r"), exec(regular, "uname -r"));
}

/// Section 8, "Analysis of the QEMU processes of the Sandbox Containers".
fn processes(site: &mut Site) {
    let node = site.good(
        "pod_node_kata=$(kubectl get pod/example-net-tools-kata -o=jsonpath='{.spec.nodeName}')\n\
         echo $pod_node_kata",
    );
    let node = node.trim().to_owned();
    assert_eq!(node, "worker-0");
    let container = site.good(
        "kubectl get pod/example-net-tools-kata \
         -o=jsonpath='{.status.containerStatuses[*].containerID}' | cut -d \"/\" -f3",
    );
    let container = container.trim();
    assert_eq!(container.len(), 64, "{container}");
    let debug =
        format!("kubectl debug node/{node} -it --image=registry.access.redhat.com/ubi9/ubi");
    let inspect = format!("sandboxID=$(crictl inspect {container} | jq -r '.info.sandboxID')");
    let (qemu, sandbox) = ("ps aux | grep qemu", "echo $sandboxID");
    let (filtered, status) = ("ps aux | grep qemu | grep $sandboxID", "echo $?");
    let helpers = "ps -ef | grep kata | egrep -i 'containerd|virtio'";
    let lines =
        ["chroot /host bash", qemu, &inspect, sandbox, filtered, status, helpers, "exit", "exit"];
    let shown = typed(site, &debug, &lines);
    assert_eq!(answer(&shown, &inspect), "");
    let id = answer(&shown, sandbox).trim();
    assert_eq!(id.len(), 64, "{shown}");
    // One process of the virtual machine for each sandboxed pod of the node.
    for ps in [qemu, filtered] {
        let lines: Vec<&str> = answer(&shown, ps).lines().collect();
        assert_eq!(lines.len(), 1, "{shown}");
        assert!(lines[0].contains("/usr/libexec/qemu-kiwi -name sandbox-"), "{shown}");
        assert!(lines[0].contains(id), "{shown}");
    }
    assert_eq!(answer(&shown, status), "0\n");
    let helpers: Vec<&str> = answer(&shown, helpers).lines().collect();
    for program in ["/usr/bin/containerd-shim-kata-v2 -namespace", "/usr/libexec/virtiofsd"] {
        let found = helpers.iter().any(|line| line.contains(program) && line.contains(id));
        assert!(found, "no {program} in {helpers:#?}");
    }
}

#[test]
#[ignore = "needs kubectl and helm"]
fn every_command_of_the_post_does_what_it_says() {
    let mut site = Site::start("seed", "openshift", &[]);
    install(&mut site);
    let node = configure(&mut site);
    configured(&mut site, &node);
    compare(&mut site);
    processes(&mut site);
}
