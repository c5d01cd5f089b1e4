//! What stock kubectl shows of the simulated cluster and of the operator, one topic a test.

use std::path::Path;

use crate::kubectl_process::{Ended, Hand, Up, normal, repository};

/// Fails unless each line of `wanted` is a line of `text`, in that order. What follows `…` is not
/// looked at: how the operator words its messages is its own tests' business.
#[track_caller]
fn in_order(text: &str, wanted: &[&str]) {
    let text = normal(text);
    let mut lines = text.lines().map(str::trim);
    for wanted in wanted {
        let found = lines.any(|line| match wanted.strip_suffix('…') {
            Some(begin) => line.starts_with(begin),
            None => line == *wanted,
        });
        assert!(found, "no line (or not here) {wanted:?} in:\n{text}");
    }
}

/// What nodes are made to do.
fn nodes(hand: &Hand) -> String {
    let path = "{range .items[*]}{.metadata.name} {.metadata.labels} {.metadata.annotations} \
                {.spec} {.status.nodeInfo.bootID}{\"\\n\"}{end}";
    hand.with("get nodes -o", &format!("jsonpath={path}")).good()
}

#[test]
#[ignore = "needs kubectl"]
fn tables_and_discovery_look_as_on_a_cluster() {
    let hand = Hand::start("tables", &["up"]);
    let nodes = hand.kubectl("get nodes").good();
    in_order(
        &nodes,
        &[
            "NAME STATUS ROLES AGE VERSION",
            "control-plane-0 Ready control-plane,master AGE v1.34.1",
            "control-plane-1 Ready control-plane,master AGE v1.34.1",
            "control-plane-2 Ready control-plane,master AGE v1.34.1",
            "worker-0 Ready worker AGE v1.34.1",
            "worker-1 Ready worker AGE v1.34.1",
            "worker-2 Ready worker AGE v1.34.1",
        ],
    );
    assert_eq!(nodes.lines().count(), 7, "{nodes}");
    in_order(
        &hand.kubectl("get mcp").good(),
        &[
            "NAME CONFIG UPDATED UPDATING DEGRADED MACHINECOUNT READYMACHINECOUNT \
             UPDATEDMACHINECOUNT DEGRADEDMACHINECOUNT AGE",
            "master rendered-master-HASH True False False 3 3 3 0 AGE",
            "worker rendered-worker-HASH True False False 3 3 3 0 AGE",
        ],
    );
    in_order(
        &hand.kubectl("get mc").good(),
        &[
            "NAME GENERATEDBYCONTROLLER IGNITIONVERSION AGE",
            "99-worker-ssh 3.4.0 AGE",
            "rendered-worker-HASH simulated 3.5.0 AGE",
        ],
    );
    in_order(
        &hand.kubectl("api-resources").good(),
        &[
            "nodes no v1 false Node",
            "katanodes kn kata-operator.dev/v1alpha1 false KataNode",
            "kataconfigs kc kataconfiguration.openshift.io/v1 false KataConfig",
            "machineconfigpools mcp machineconfiguration.openshift.io/v1 false MachineConfigPool",
            "runtimeclasses node.k8s.io/v1 false RuntimeClass",
        ],
    );
    assert!(hand.kubectl("get kata").good().is_empty());
    assert_eq!(
        hand.kubectl("get runtimeclass nothing").bad().trim(),
        "Error from server (NotFound): runtimeclasses.node.k8s.io \"nothing\" not found"
    );
    assert_eq!(hand.kubectl("auth can-i create pods").good().trim(), "yes");
    assert!(hand.kubectl("top nodes").bad().contains("Metrics API not available"));
    let explained = hand.kubectl("explain kataconfig.spec --recursive").good();
    for field in [
        "kataConfigPoolSelector\t<Object>",
        "operator\t<string> -required-",
        "logLevel\t<string>",
        "maxUnavailable\t",
    ] {
        assert!(explained.contains(field), "no {field:?} in:\n{explained}");
    }
    assert!(hand.kubectl("explain kataconfig.spec.nothing").bad().contains("does not exist"));
}

#[test]
#[ignore = "needs kubectl"]
fn an_install_can_be_watched_described_and_read() {
    let hand = Hand::start("install", &["up"]);
    hand.install();
    let described = hand.kubectl("describe kataconfig cluster-kataconfig").good();
    in_order(
        &described,
        &[
            "Name: cluster-kataconfig",
            "Message: 1 of 1 node has Kata",
            "Reason: AllNodesReady",
            "Status: True",
            "Type: Ready",
            "worker-0",
            "Runtime Classes:",
            "Events:",
            "Type Reason Age From Message",
        ],
    );
    for line in [
        "Normal Installing AGE kata-operator.dev/kata-operator …",
        "Normal KataRuntimeInstalled AGE kata-operator.dev/kata-operator …",
        "Normal RuntimeClassCreated AGE kata-operator.dev/kata-operator …",
    ] {
        in_order(&described, &[line]);
    }
    assert_eq!(
        normal(&hand.kubectl("get kataconfig -o wide").good()),
        "NAME INPROGRESS COMPLETED TOTAL AGE READY REASON CLASS MESSAGE\n\
         cluster-kataconfig False 1 1 AGE True AllNodesReady kata 1 of 1 node has Kata\n"
    );
    assert_eq!(
        normal(&hand.kubectl("get kn").good()),
        "NAME READY PHASE STEP HANDLER SINCE AGE\nworker-0 True Ready kata AGE AGE\n"
    );
    in_order(
        &hand.kubectl("get mcp").good(),
        &["kata-oc rendered-kata-oc-HASH True False False 1 1 1 0 AGE"],
    );
    in_order(
        &hand.kubectl("get runtimeclass kata -o yaml").good(),
        &[
            "apiVersion: node.k8s.io/v1",
            "handler: kata",
            "kind: RuntimeClass",
            "name: cluster-kataconfig",
            "overhead:",
            "memory: 350Mi",
            "nodeSelector:",
            "katacontainers.io/kata-runtime: \"true\"",
        ],
    );
    // The machine-config daemon's events, in the order in which they happened.
    in_order(
        &hand.kubectl("describe node worker-0").good(),
        &[
            "Roles: kata-oc,worker",
            "machineconfiguration.openshift.io/state: Done",
            "Events:",
            "Normal Cordon AGE machineconfigdaemon Cordoned node to apply update",
            "Normal Drain AGE machineconfigdaemon Draining node to update config.",
            "Normal OSUpdateStarted AGE machineconfigdaemon Installing extensions",
            "Normal Reboot AGE machineconfigdaemon Node will reboot into config \
             rendered-kata-oc-HASH",
            "Normal NodeDone AGE machineconfigdaemon Setting node worker-0, currentConfig \
             rendered-kata-oc-HASH to Done",
        ],
    );
}

#[test]
#[ignore = "needs kubectl"]
fn a_config_can_be_changed_in_every_way_that_kubectl_knows() {
    let hand = Hand::start("change", &["up"]);
    hand.install();
    let level =
        || hand.kubectl("get kataconfig cluster-kataconfig -o jsonpath={.spec.logLevel}").good();
    let file = hand.up.directory.join("debug.yaml");
    let text = std::fs::read_to_string(repository().join("examples/kataconfig.yaml")).unwrap();
    std::fs::write(&file, text.replace("spec:\n", "spec:\n  logLevel: debug\n")).unwrap();
    let file = file.display();
    // diff exits with 1 when there is a difference, and changes nothing.
    let diff = hand.kubectl(&format!("diff -f {file}"));
    assert_eq!(diff.code, Some(1), "{diff:?}");
    assert!(diff.stdout.contains("\n-  logLevel: info\n+  logLevel: debug\n"), "{diff:?}");
    assert_eq!(level(), "info");
    assert!(
        hand.kubectl(&format!("apply --dry-run=server -f {file}")).good().contains("configured")
    );
    assert_eq!(level(), "info");
    let conflict = hand.kubectl(&format!("apply --server-side --field-manager=me -f {file}")).bad();
    assert!(conflict.contains("conflict with \"kubectl-client-side-apply\""), "{conflict}");
    assert!(conflict.contains(".spec.logLevel"), "{conflict}");
    assert_eq!(level(), "info");
    hand.kubectl(&format!("apply -f {file}")).good();
    assert_eq!(level(), "debug");
    // What kubectl applied before, it may go on to apply on the server's side.
    let traced = hand.up.directory.join("trace.yaml");
    std::fs::write(&traced, text.replace("spec:\n", "spec:\n  logLevel: trace\n")).unwrap();
    let applied = hand.kubectl(&format!("apply --server-side -f {}", traced.display())).good();
    assert_eq!(
        applied,
        "kataconfig.kataconfiguration.openshift.io/cluster-kataconfig serverside-applied\n"
    );
    assert_eq!(level(), "trace");
    hand.edit("edit kataconfig cluster-kataconfig", "s/logLevel:.trace/logLevel:\\ warn/").good();
    assert_eq!(level(), "warn");
    let refused =
        hand.edit("edit kataconfig cluster-kataconfig", "s/logLevel:.warn/logLevel:\\ loud/");
    assert!(refused.bad().contains("\"cluster-kataconfig\" is invalid"));
    let patch = "{\"spec\":{\"logLevel\":\"info\"}}";
    hand.with("patch kataconfig cluster-kataconfig --type=merge -p", patch).good();
    assert_eq!(level(), "info");
    hand.kubectl("label kataconfig cluster-kataconfig team=a").good();
    assert!(hand.kubectl("get kata -l team=a -o name").good().contains("/cluster-kataconfig"));
}

#[test]
#[ignore = "needs kubectl"]
fn bad_input_is_refused_or_told_and_changes_no_node() {
    let hand = Hand::start("bad", &["up"]);
    let before = nodes(&hand);
    let apply = |name: &str| hand.kubectl(&format!("apply -f examples/bad/{name}.yaml"));
    let condition = |name: &str| {
        let words = format!("wait --for=condition=Ready=False kataconfig/{name} --timeout=120s");
        hand.kubectl(&words).good();
        let path = "{.status.conditions[?(@.type==\"Ready\")].reason}";
        hand.with(&format!("get kataconfig {name} -o"), &format!("jsonpath={path}")).good()
    };
    let refused = apply("operator-foo").bad();
    assert!(
        refused.contains(
            "spec.kataConfigPoolSelector.matchExpressions[0].operator: Unsupported value: \"Foo\": \
             supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\""
        ),
        "{refused}"
    );
    let refused = apply("log-level-loud").bad();
    let allowed = "logLevel must be one of fatal, panic, error, warn, info, debug, trace";
    assert!(refused.contains(allowed), "{refused}");
    let refused = apply("unknown-field").bad();
    let unknown = "strict decoding error: unknown field \"spec.poolSelector\"";
    assert!(refused.contains(unknown), "{refused}");
    let refused = apply("label-not-a-string").bad();
    assert!(refused.contains("matchLabels.kata in body must be of type string"), "{refused}");
    assert!(hand.kubectl("get kataconfig").good().is_empty(), "something was stored");

    apply("matches-nothing").good();
    assert_eq!(condition("matches-nothing"), "NoNodesSelected");
    let described = hand.kubectl("describe kataconfig matches-nothing").good();
    let message = "KATA1003: no node has the label node-role.kubernetes.io/worker and matches \
                   spec.kataConfigPoolSelector";
    assert!(described.contains(message), "{described}");
    apply("second").good();
    assert_eq!(condition("second"), "NotActive");
    in_order(
        &hand.kubectl("describe kataconfig second").good(),
        &["Events:", "Warning NotActive AGE kata-operator.dev/kata-operator …"],
    );
    assert_eq!(nodes(&hand), before, "a node was changed");
    hand.kubectl("delete kataconfig second matches-nothing --timeout=120s").good();

    hand.install();
    hand.kubectl("apply -f examples/namespace.yaml").good();
    let before = nodes(&hand);
    let refused = apply("pod-conflict").bad();
    assert!(
        refused.contains(
            "conflict: runtimeClass.scheduling.nodeSelector[katacontainers.io/kata-runtime] = true; \
             pod.spec.nodeSelector[katacontainers.io/kata-runtime] = false"
        ),
        "{refused}"
    );
    assert_eq!(nodes(&hand), before, "a node was changed");
}

#[test]
#[ignore = "needs kubectl"]
fn workloads_roll_out_scale_and_drain() {
    let hand = Hand::start("workloads", &["up"]);
    hand.kubectl("create namespace shop").good();
    hand.kubectl("create deployment web -n shop --image=nginx --replicas=3").good();
    let rolled_out = || hand.kubectl("rollout status -n shop deployment/web --timeout=120s").good();
    rolled_out();
    in_order(
        &hand.kubectl("get deployment -n shop").good(),
        &["NAME READY UP-TO-DATE AVAILABLE AGE", "web 3/3 3 3 AGE"],
    );
    hand.kubectl("set image -n shop deployment/web nginx=nginx:2").good();
    rolled_out();
    hand.kubectl("rollout undo -n shop deployment/web").good();
    rolled_out();
    in_order(
        &hand.kubectl("rollout history -n shop deployment/web").good(),
        &["REVISION CHANGE-CAUSE", "2 <none>", "3 <none>"],
    );
    let image = "get deployment web -n shop -o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(hand.kubectl(image).good(), "nginx");
    hand.kubectl("scale -n shop deployment/web --replicas=5").good();
    rolled_out();
    let pod = hand.kubectl("get pods -n shop -o name").good();
    let pod = pod.lines().next().unwrap();
    in_order(
        &hand.kubectl(&format!("describe -n shop {pod}")).good(),
        &[
            "Events:",
            "Normal Created AGE kubelet Created container: nginx",
            "Normal Started AGE kubelet Started container nginx",
        ],
    );
    hand.kubectl("cordon worker-0").good();
    let drained = hand.kubectl("drain worker-1 --ignore-daemonsets --timeout=120s").good();
    assert!(drained.contains("node/worker-1 drained"), "{drained}");
    in_order(
        &hand.kubectl("get nodes").good(),
        &[
            "worker-0 Ready,SchedulingDisabled worker AGE v1.34.1",
            "worker-1 Ready,SchedulingDisabled worker AGE v1.34.1",
            "worker-2 Ready worker AGE v1.34.1",
        ],
    );
    let left = hand.kubectl("get pods -n shop --field-selector spec.nodeName=worker-1").good();
    assert!(left.is_empty(), "{left}");
    hand.kubectl("uncordon worker-0 worker-1").good();
    rolled_out();
    // A budget that allows no disruption holds the drain up, and kubectl says so.
    hand.kubectl("create pdb web -n shop --selector=app=web --min-available=5").good();
    let allowed = "wait -n shop --for=jsonpath={.status.currentHealthy}=5 pdb/web --timeout=120s";
    hand.kubectl(allowed).good();
    let held = hand.kubectl("drain worker-2 --ignore-daemonsets --timeout=1s").bad();
    let budget = "Cannot evict pod as it would violate the pod's disruption budget";
    assert!(held.contains(budget), "{held}");
    hand.kubectl("delete namespace shop --timeout=120s").good();
}

#[test]
#[ignore = "needs kubectl"]
fn commands_in_pods_answer_even_when_they_fail_at_once() {
    let hand = Hand::start("exec", &["up"]);
    hand.install();
    hand.kubectl("apply -f examples/namespace.yaml -f examples/pod-kata.yaml").good();
    hand.kubectl("wait -n test-kata --for=condition=Ready pod --all --timeout=120s").good();
    let exec = |command: &str| {
        hand.kubectl(&format!("exec -n test-kata example-net-tools-kata -- {command}"))
    };
    assert_eq!(exec("nproc").good(), "1\n");
    assert_eq!(exec("uname -r").good(), "5.14.0-570.62.1.el9_6.x86_64\n");
    assert!(exec("cat /proc/cmdline").good().contains("agent.log=debug"));
    assert_eq!(exec("cat /proc/cpuinfo").good().matches("processor").count(), 1);
    assert_eq!(normal(&exec("cat /proc/sys/kernel/random/boot_id").good()), "UID\n");
    assert_eq!(exec("ls /").good(), "etc\nproc\n");
    for _ in 0..3 {
        let failed: Ended = exec("nonsense");
        assert_eq!(failed.code, Some(127), "{failed:?}");
        assert!(failed.stderr.contains("the pod is simulated"), "{failed:?}");
    }
    let logs = hand.kubectl("logs -n test-kata example-net-tools-kata").good();
    assert!(logs.starts_with("simulated: "), "{logs}");
    in_order(
        &hand.kubectl("describe pod -n test-kata example-net-tools-kata").good(),
        &[
            "Runtime Class Name: kata",
            "Status: Running",
            "Events:",
            "Normal Scheduled AGE default-scheduler Successfully assigned \
             test-kata/example-net-tools-kata to worker-0",
            "Normal Pulling AGE kubelet Pulling image \"quay.io/rcarrata/net-toolbox:latest\"",
            "Normal Started AGE kubelet Started container example-net-tools-kata",
        ],
    );
}

#[test]
#[ignore = "needs kubectl"]
fn generated_manifests_can_be_applied_as_the_readme_says() {
    let hand = Hand::start("manifests", &["up", "--no-operator"]);
    hand.kubectl("apply --server-side --force-conflicts -k deploy/crds").good();
    let applied = hand.kubectl("apply --server-side -k deploy/openshift").good();
    assert!(applied.contains("serverside-applied"), "{applied}");
    // No operator works on it: the config waits.
    hand.kubectl("apply -f examples/kataconfig.yaml").good();
    let status = hand.kubectl("get kataconfig cluster-kataconfig -o jsonpath={.status}").good();
    assert_eq!(status, "");
}

#[test]
fn signals_end_it_at_once_and_take_the_kubeconfig_away() {
    for (signal, arguments) in [
        ("INT", ["up", "--platform=openshift"]),
        ("TERM", ["up", "--platform=kubernetes"]),
        ("TERM", ["up", "--compact"]),
    ] {
        let mut up = Up::start("signals", &arguments);
        assert!(up.kubeconfig.exists());
        assert!(up.announcement.contains("Kubernetes v1.34"), "{}", up.announcement);
        assert_eq!(up.end(signal), Some(0), "{signal}");
        assert!(!up.kubeconfig.exists(), "{signal} left the kubeconfig");
    }
}

#[test]
fn what_cannot_be_done_is_said_and_exits_with_3() {
    let up = Up::start("refusals", &["up"]);
    for (words, complaint) in [
        ("fault nosuch no-kvm", "nodes \"nosuch\" not found"),
        ("fault worker-1 nonsense", "unknown fault \"nonsense\": give one of no-kvm"),
        ("fault worker-1 slow-boot=x", "the factor must be a number"),
        ("node add worker-1", "nodes \"worker-1\" already exists"),
        ("node add Bad_Name", "node \"Bad_Name\" is invalid"),
        ("node rm worker-9", "nodes \"worker-9\" not found"),
        (
            "fault worker-1 disk-full",
            "does nothing in this cluster, which is one of `kata-sim up --platform openshift`",
        ),
    ] {
        let ended = up.control(words);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stderr.contains(complaint), "{ended:?}");
    }
    for words in [
        "fault worker-1 no-kvm",
        "fault worker-1 none",
        "node add worker-7",
        "node rm worker-7",
        "speed 120",
    ] {
        up.control(words).good();
    }
    up.control_by_environment("fault worker-1 none").good();
    let port = std::fs::read_to_string(&up.kubeconfig).unwrap();
    let port =
        regex::Regex::new(r"127\.0\.0\.1:(\d+)").unwrap().captures(&port).unwrap()[1].to_owned();
    let other = up.directory.join("other");
    let busy = up_again(&["--port", &port], &other);
    assert_eq!(busy.code, Some(3), "{busy:?}");
    assert!(busy.stderr.contains("choose another --port, or 0 for a free one"), "{busy:?}");
    assert!(!other.exists());
    let unwritable = up_again(&["--port", "0"], &up.directory.join("nothing/kubeconfig"));
    assert_eq!(unwritable.code, Some(3), "{unwritable:?}");
    assert!(unwritable.stderr.contains("cannot write"), "{unwritable:?}");
}

fn up_again(arguments: &[&str], kubeconfig: &Path) -> Ended {
    let mut again = crate::kubectl_process::command(env!("CARGO_BIN_EXE_kata-sim"));
    crate::kubectl_process::run(again.arg("up").args(arguments).arg("--kubeconfig").arg(kubeconfig))
}

/// README's example of a failure, at the default speed.
#[test]
#[ignore = "needs kubectl"]
fn a_reboot_that_hangs_is_reported_within_a_minute() {
    let hand = Hand::start("hung", &["up", "--speed", "60"]);
    hand.up.control("fault worker-0 reboot-hang").good();
    hand.kubectl("label node worker-0 kata=true").good();
    hand.kubectl("apply -f examples/kataconfig.yaml").good();
    let path = "jsonpath={.status.conditions[?(@.type=='Stalled')].reason}=NodeNotReady";
    hand.with("wait kataconfig/cluster-kataconfig --timeout=60s --for", path).good();
    // The cluster has what an installed one has.
    in_order(
        &hand
            .kubectl("get deployments,leases -n openshift-sandboxed-containers-operator -o name")
            .good(),
        &["deployment.apps/kata-operator", "lease.coordination.k8s.io/kata-operator"],
    );
}
