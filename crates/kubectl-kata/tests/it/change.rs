//! `install`, `uninstall`, `events`, `logs` and `must-gather`.

use std::path::Path;

use serde_json::json;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::PODS;

use crate::lab::{Lab, kata_configs, kata_nodes};

#[tokio::test(start_paused = true)]
async fn install_labels_creates_and_waits() {
    let lab = Lab::new();
    let done = lab
        .kata_command(
            "install --dry-run=client -o yaml --node-selector kata=true --max-unavailable 2",
        )
        .await
        .expect(0);
    assert!(
        done.out.contains("kata: \"true\"") || done.out.contains("kata: 'true'"),
        "{}",
        done.out
    );
    assert!(done.out.contains("maxUnavailable: 2"), "{}", done.out);
    assert!(lab.get(&kata_configs(), "", "cluster-kataconfig").is_none());
    lab.kata_command("install --dry-run=server").await.expect(0).says(&["(server dry run)"]);
    assert!(lab.get(&kata_configs(), "", "cluster-kataconfig").is_none());
    let done = lab
        .kata_command("install --node-selector kata=true --node worker-1 --wait --timeout 1h")
        .await
        .expect(0);
    done.says(&[
        "node/worker-1 labelled kata=true",
        "kataconfig.kataconfiguration.openshift.io/cluster-kataconfig created",
        "1 node will be changed",
        "Ready: 1/1 nodes",
    ]);
    lab.kata_command("install --name second").await.expect(4).says(&["KATA1004"]);
    let done = lab.kata_command("events").await.expect(0);
    done.says(&["LAST SEEN", "KataConfig/cluster-kataconfig"]);
}

#[tokio::test(start_paused = true)]
async fn uninstall_names_what_is_in_the_way_and_then_goes_on() {
    let lab = Lab::new();
    lab.kata_command("uninstall").await.expect(0).says(&["There is no KataConfig"]);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    let done = lab.kata_command("uninstall --dry-run").await.expect(4);
    done.says(&[
        "KATA4001",
        "test-kata   web",
        "would then take Kata off 1 node (worker-0)",
        "MachineConfig/50-enable-sandboxed-containers-extension",
        "MachineConfigPool/kata-oc",
        "RuntimeClass/kata",
        "nothing changed",
    ]);
    lab.kata_command("uninstall").await.expect(4);
    let done = lab.kata_command("uninstall --evict-pods --dry-run").await.expect(0);
    let done = done.says(&[
        "would evict 1 sandboxed pod, as far as PodDisruptionBudgets allow it",
        "test-kata   web",
        "would then take Kata off 1 node",
        "Next: kubectl kata uninstall --evict-pods",
    ]);
    assert!(!done.out.contains("scale the owners down"), "{}", done.out);
    assert!(lab.get(&PODS, "test-kata", "web").is_some());
    lab.kata_command("uninstall --evict-pods").await.expect(4).says(&["say --yes"]);
    let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
    assert!(config["metadata"]["deletionTimestamp"].is_null());
    // A budget that does not allow the eviction.
    lab.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "test-kata"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }));
    lab.pass(5).await;
    lab.kata_command("uninstall --evict-pods --yes")
        .await
        .expect(4)
        .says(&[
            "refused: test-kata/web: Cannot evict pod",
            "PodDisruptionBudget test-kata/web allows 0 disruptions (1 of 1 healthy, 1 required), pod web",
            "fix: `kubectl delete pod -n test-kata web`, or relax the budget: `kubectl edit pdb/web -n test-kata`",
            "the KataConfig was not deleted. Next: mend that, then kubectl kata uninstall --evict-pods",
        ]);
    assert!(lab.get(&PODS, "test-kata", "web").is_some());
    lab.merge(
        &simcluster::resource::PODDISRUPTIONBUDGETS,
        "test-kata",
        "web",
        &json!({"spec": {"minAvailable": 0}}),
    );
    lab.pass(5).await;
    let done = lab.kata_command("uninstall --evict-pods --yes --wait --timeout 2h").await.expect(0);
    done.says(&["pod/web evicted", "deleted", "Deleted: no KataConfig is left"]);
}

#[tokio::test(start_paused = true)]
async fn logs_come_from_the_pod_and_from_what_changes_the_node() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    lab.kata_command("logs pod/web -n test-kata")
        .await
        .expect(0)
        .says(&["simulated: container web"]);
    lab.kata_command("logs operator").await.expect(1).says(&["no pod of the operator"]);
    lab.kata_command("logs pod/nobody").await.expect(1).says(&["nobody"]);
    lab.kata_command("logs deployment/web").await.expect(2);
}

/// What has no log yet says what it waits for.
#[tokio::test(start_paused = true)]
async fn without_a_log_what_a_container_waits_for_is_named() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0", "worker-1"]);
    lab.ready().await;
    lab.fault("worker-0", "sandbox-fails");
    lab.merge(
        &simcluster::resource::NODES,
        "",
        "worker-1",
        &json!({"spec": {"unschedulable": true}}),
    );
    lab.pod("web", Some("kata"));
    lab.pass(60).await;
    let says = [
        "container web waits: ContainerCreating, image quay.io/rcarrata/net-toolbox:latest",
        "the latest warning: FailedCreatePodSandBox",
        "timed out connecting to vsock",
    ];
    lab.kata_command("logs pod/web -n test-kata").await.expect(1).says(&says);
    lab.fault("worker-1", "pull-fails");
    let other = json!({"spec": {"payload": {"image": "registry.example.com/other:1"}}});
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &other);
    lab.merge(
        &simcluster::resource::NODES,
        "",
        "worker-1",
        &json!({"spec": {"unschedulable": null}}),
    );
    lab.delete(&PODS, "test-kata", "web");
    lab.until("the image", |lab| {
        let node = lab.get(&kata_nodes(), "", "worker-1").unwrap();
        node["status"]["code"] == "KATA3107"
    })
    .await;
    let done = lab.kata_command("logs node/worker-1").await.expect(1);
    done.says(&["waits: ImagePullBackOff, image registry.example.com/other:1: "]);
}

/// A pod that is on no node is not said to run.
#[tokio::test(start_paused = true)]
async fn what_has_not_begun_is_not_said_to_run() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    lab.merge(
        &simcluster::resource::NODES,
        "",
        "worker-0",
        &json!({"spec": {"unschedulable": true}}),
    );
    lab.pod("late", Some("kata"));
    lab.pass(10).await;
    let done = lab.kata_command("uninstall --dry-run").await.expect(4);
    let row = |name: &str| {
        let mut lines = done.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|words| words.get(1) == Some(&name)).unwrap()[2].to_owned()
    };
    assert_eq!((row("late").as_str(), row("web").as_str()), ("Pending", "Running"), "{}", done.out);
}

/// The status in the archive has what `status` has, and not only what the KataConfig says.
#[tokio::test(start_paused = true)]
async fn the_gathered_status_is_that_of_status() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.stop_operator();
    lab.deploy_without_pods(kata_api::names::NAMESPACE);
    lab.pass(10).await;
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gather-status");
    drop(std::fs::remove_dir_all(&directory));
    lab.kata_command(&format!("must-gather --dest-dir {}", directory.display())).await.expect(0);
    let root = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let gathered: serde_json::Value = serde_json::from_str(&read("status.json")).unwrap();
    let status = lab.kata_command("status -o json").await.expect(0).json();
    assert_eq!(gathered["problems"], status["problems"]);
    assert_eq!(gathered["problems"][0]["id"], "KATA5005");
    assert!(read("summary.md").contains("KATA5005"));
}

#[tokio::test(start_paused = true)]
async fn must_gather_collects_and_names_what_it_cannot_get() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("test-kata");
    lab.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "test-kata"},
        "spec": {"runtimeClassName": "kata", "containers": [
            {"name": "a", "image": "i", "env": [{"name": "PASSWORD", "value": "s3cret"}]},
        ]},
    }));
    lab.create(json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "test-kata"},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": "test-kata"},
        "type": "Warning", "reason": "Failed", "lastTimestamp": "2026-01-01T00:10:00Z",
        "message": "cannot pull https://me:s3cret@registry.example.com/a: token=s3cret is wrong",
    }));
    lab.pass(30).await;
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gather");
    drop(std::fs::remove_dir_all(&directory));
    let line = format!("must-gather --dest-dir {}", directory.display());
    let done = lab.kata_command(&line).await.expect(0);
    let says = ["redacted: 1 env values, 2 others", "start with summary.md", "(simulated)"];
    drop(done.says(&["collected"]).says(&says));
    let root = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    assert!(read("summary.md").contains("Ready: 1/1 nodes"));
    assert!(read("pods.yaml").contains("PASSWORD") && !read("pods.yaml").contains("s3cret"));
    assert!(read("events.txt").contains("token=(redacted) is wrong"));
    assert!(!read("events.txt").contains("s3cret"));
    assert!(read("kataconfigs.yaml").contains("cluster-kataconfig"));
    let json = |name: &str| serde_json::from_str::<serde_json::Value>(&read(name)).unwrap();
    assert_eq!(json("status.json")["kind"], "StatusReport");
    assert_eq!(json("doctor.json")["kind"], "CheckReport");
    assert!(
        read("machineconfigs/50-enable-sandboxed-containers-extension.yaml")
            .contains("sandboxed-containers")
    );
    lab.only_view();
    let archive = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gather.tar");
    let done =
        lab.kata_command(&format!("must-gather --archive {}", archive.display())).await.expect(5);
    done.says(&["not to be had: runtimeclasses, nodes", "you may not list nodes"]);
    let plain = std::fs::read(&archive).unwrap();
    assert!(plain.len() > 10_000 && !plain.windows(6).any(|bytes| bytes == b"s3cret"));
    let archive = archive.with_extension("tar.gz");
    lab.kata_command(&format!("must-gather --archive {}", archive.display())).await.expect(5);
    let zipped = std::fs::read(&archive).unwrap();
    assert!(
        zipped.starts_with(&[0x1f, 0x8b]) && zipped.len() * 3 < plain.len(),
        "{}",
        zipped.len()
    );
}

/// Without the right to see pods nothing is evicted, nothing is deleted, and nothing is claimed.
#[tokio::test(start_paused = true)]
async fn uninstall_does_not_go_on_where_the_pods_are_not_known() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    let read = ["get", "list", "watch"];
    lab.only_rules(&json!([
        {"apiGroups": ["kataconfiguration.openshift.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["kata-operator.dev"], "resources": ["*"], "verbs": read},
        {"apiGroups": ["machineconfiguration.openshift.io"], "resources": ["*"], "verbs": read},
        {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": read},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": read},
        {"apiGroups": [""], "resources": ["nodes", "configmaps"], "verbs": read},
    ]));
    for line in ["--dry-run", "--evict-pods --dry-run", "--evict-pods --yes", "--yes"] {
        let done = lab.kata_command(&format!("uninstall {line}")).await.expect(5);
        done.says(&["KATA5002", "whether it would be refused is not known", "may not list pods"]);
        let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
        assert!(config["metadata"]["deletionTimestamp"].is_null(), "{line}");
    }
}

/// Pods of somebody else's RuntimeClass with the same handler, on nodes that are not ours, are nobody's
/// business here, as they are none of the operator's.
#[tokio::test(start_paused = true)]
async fn uninstall_leaves_the_pods_of_others_alone() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.create(json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "theirs"}, "handler": "kata",
    }));
    lab.namespace("test-kata");
    let pod = |name: &str, node: &str| {
        lab.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "test-kata"},
            "spec": {
                "runtimeClassName": "theirs", "nodeName": node,
                "containers": [{"name": "a", "image": "i"}],
            },
        }));
    };
    pod("elsewhere", "worker-2");
    lab.pass(60).await;
    let done = lab.kata_command("uninstall --dry-run").await.expect(0);
    assert!(!done.out.contains("elsewhere"), "{}", done.out);
    // On a node of ours the same pod would lose what it runs on.
    pod("with-us", "worker-0");
    lab.pass(60).await;
    let done =
        lab.kata_command("uninstall --dry-run").await.expect(4).says(&["KATA4001", "with-us"]);
    assert!(!done.out.contains("elsewhere"), "{}", done.out);
    let done = lab.kata_command("uninstall --evict-pods --yes --wait --timeout 2h").await.expect(0);
    let done = done.says(&["pod/with-us evicted", "Deleted: no KataConfig is left"]);
    assert!(!done.err.contains("elsewhere"), "{}", done.err);
    assert!(lab.get(&PODS, "test-kata", "elsewhere").is_some());
}

/// A KataConfig that is on its way out still is the active one.
#[tokio::test(start_paused = true)]
async fn install_is_refused_while_a_kataconfig_is_being_deleted() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    lab.pass(10).await;
    lab.kata_command("install --name next").await.expect(4).says(&[
        "refused: KATA1004 KataConfig cluster-kataconfig is still being deleted",
        "fix: kubectl kata wait --for deleted, then try again",
    ]);
    assert!(lab.get(&kata_configs(), "", "next").is_none());
}

/// Node Feature Discovery is named where its label is what a worker lacks, and nowhere else.
#[tokio::test(start_paused = true)]
async fn install_says_why_no_node_will_be_changed() {
    let lab = Lab::new();
    let nfd =
        "no worker that is selected has the label feature.node.kubernetes.io/runtime.kata=true";
    let dry = "install --dry-run=server --check-node-eligibility";
    let done = lab.kata_command(dry).await.expect(0);
    done.says(&[nfd, "which Node Feature Discovery gives to nodes that can run Kata"]);
    let selective = format!("{dry} --node-selector kata=true");
    // A node of the control plane is none that anybody meant.
    lab.label("control-plane-0", "kata", Some("true"));
    let done = lab.kata_command(&selective).await.expect(0);
    let done = done.says(&["no worker has these labels yet: kubectl label node NAME kata=true"]);
    assert!(!done.err.contains(nfd), "{}", done.err);
    // Workers that have the label and cannot have Kata for another reason.
    for worker in ["worker-0", "worker-1", "worker-2"] {
        lab.label(worker, "feature.node.kubernetes.io/runtime.kata", Some("true"));
        lab.label(worker, "kubernetes.io/os", Some("windows"));
    }
    let done = lab.kata_command(dry).await.expect(0);
    let done = done.says(&["no node can get Kata yet: see `kubectl kata doctor`"]);
    assert!(!done.err.contains(nfd), "{}", done.err);
    lab.label("worker-0", "kata", Some("true"));
    let done = lab.kata_command(&selective).await.expect(0);
    done.says(&["no node can get Kata yet: see `kubectl kata doctor`"]);
}

/// A kubelet that does not serve its node's journal answers in one of these ways; none of them is a journal.
#[tokio::test(start_paused = true)]
async fn a_list_of_files_is_no_journal() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    let archive = Path::new(env!("CARGO_TARGET_TMPDIR")).join("listing.tar");
    let gather = format!("must-gather --archive {}", archive.display());
    for (code, page) in [
        (404, "404 page not found\n"),
        (405, "logs endpoint is disabled.\n"),
        (200, "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n"),
        (200, "<pre>\n<a href=\"audit/\">audit/</a>\n</pre>\n"),
    ] {
        lab.pages = vec![("/proxy/logs/", code, page)];
        let done = lab.kata_command("logs pod/web -n test-kata --shim").await.expect(1);
        let done =
            done.says(&["its kubelet does not serve it, which takes the feature NodeLogQuery"]);
        assert_eq!(done.out, "", "{page}");
        lab.kata_command(&gather).await.expect(0).says(&[
            "(not to be had: journals/worker-0.log: the kubelet does not serve its node's journal (",
        ]);
        let text = String::from_utf8(std::fs::read(&archive).unwrap()).unwrap();
        let why = "journals/worker-0.log: the kubelet does not serve its node's journal";
        assert!(text.contains(why), "{page}");
    }
    let line = "Jan 01 00:10:00 worker-0 kata[7]: level=info msg=\"<pre>\"\n";
    lab.pages = vec![("/proxy/logs/", 200, line)];
    let done = lab.kata_command("logs pod/web -n test-kata --shim").await.expect(0);
    assert_eq!(done.out, line);
    let done = lab.kata_command(&gather).await.expect(0);
    assert!(!done.err.contains("not to be had"), "{}", done.err);
}

/// What could not be had is named with the reason, and what fails at the moment is not said to be for ever.
#[tokio::test(start_paused = true)]
async fn must_gather_says_why_something_is_not_to_be_had() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    for name in ["kata-operator-1", "kata-operator-2"] {
        lab.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": kata_api::names::NAMESPACE},
            "spec": {"containers": [{"name": "operator", "image": "i"}]},
        }));
    }
    let hangs = Match { name: "kata-operator-2".to_owned(), ..Match::default() };
    let rule = Rule::once(hangs, Fault::Hang { when: When::Before }).times(0);
    lab.cluster.with(|sim, _| sim.frontend.faults.add(rule));
    let waiting = "container \"operator\" in pod \"kata-operator-1\" is waiting to start";
    let fault = Fault::Status {
        code: 400,
        retry_after: None,
        message: Some(waiting.to_owned()),
        when: When::Before,
    };
    lab.trouble("", "pods/log", fault);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gather-why");
    drop(std::fs::remove_dir_all(&directory));
    let done = lab.kata_command(&format!("must-gather --dest-dir {}", directory.display())).await;
    let done = done.expect(0);
    let root = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    let summary = std::fs::read_to_string(root.join("summary.md")).unwrap();
    let (_, absent) =
        summary.split_once("\n## Not to be had\n\n").unwrap_or_else(|| panic!("{summary}"));
    let log = format!("logs/kata-operator-1.log: cannot read logs/kata-operator-1.log: {waiting}");
    let silent = "logs/kata-operator-2.log: cannot read logs/kata-operator-2.log: no answer within 30 s \
                  (--request-timeout)";
    let journal = "journals/worker-0.log: the kubelet does not serve its node's journal";
    for line in [log.as_str(), silent, journal] {
        assert!(absent.contains(&format!("- {line}")), "{line}\n{absent}");
        assert!(done.err.contains(line), "{line}\n{}", done.err);
    }
}

/// A folder that cannot be made is named, and not a file that should have come into it.
#[tokio::test(start_paused = true)]
async fn must_gather_names_the_folder_that_cannot_be_made() {
    let lab = Lab::new();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-folder");
    std::fs::write(&file, "").unwrap();
    let folder = file.join("inner");
    let line = format!("must-gather --dest-dir {}", folder.display());
    let done = lab.kata_command(&line).await.expect(1);
    let done = done.says(&[&format!("cannot use {}: ", folder.display())]);
    assert!(!done.err.contains(".yaml"), "{}", done.err);
    assert!(!done.err.contains("os error"), "a number is for programs: {}", done.err);
}

/// Whoever names no KataConfig means the active one, and not those after it.
#[tokio::test(start_paused = true)]
async fn a_wait_for_the_deletion_ends_with_what_is_deleted() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pass(5).await;
    lab.create(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "second"}, "spec": {},
    }));
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    let done = lab.kata_command("wait --for deleted --timeout 2h").await.expect(0);
    done.says(&["Deleted: KataConfig cluster-kataconfig is gone"]);
}

/// A class that went before its KataConfig is not one that is still to come.
#[tokio::test(start_paused = true)]
async fn a_class_that_is_gone_is_not_said_to_come() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    let classes = &simcluster::resource::RUNTIMECLASSES;
    lab.until("the end of the class", |lab| lab.get(classes, "", "kata").is_none()).await;
    lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
    let done = lab.kata_command("status").await.expect(1);
    let done = done.says(&["RuntimeClass kata (is gone)"]);
    assert!(!done.out.contains("does not exist yet"), "{}", done.out);
}

/// What was undone left no Kata of an unknown version.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_as_before_has_no_version_of_kata() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.fault("worker-0", "runtime-fails");
    lab.until("the end", |lab| lab.condition("Stalled") == "True").await;
    let done = lab.kata_command("nodes").await.expect(0);
    assert!(!done.out.contains("unknown"), "{}", done.out);
}

/// Whoever removes one of two KataConfigs is told what the other does then.
#[tokio::test(start_paused = true)]
async fn uninstall_names_the_kataconfig_that_comes_next() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(0).json();
    assert!(plan["successor"].is_null(), "{plan:#}");
    lab.pass(5).await;
    lab.create(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "second"},
        "spec": {"kataConfigPoolSelector": {"matchLabels": {"other": "true"}}},
    }));
    lab.pass(10).await;
    let done = lab.kata_command("uninstall --dry-run").await.expect(0);
    done.says(&[
        "would take Kata off 1 node (worker-0)",
        "KataConfig second becomes active then, and selects no node",
    ]);
    for node in ["worker-1", "worker-2"] {
        lab.label(node, "other", Some("true"));
    }
    let next =
        "KataConfig second becomes active then, and brings Kata to 2 nodes (worker-1, worker-2)";
    lab.kata_command("uninstall --dry-run").await.expect(0).says(&[next]);
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(0).json();
    assert_eq!(plan["successor"], json!({"name": "second", "nodes": ["worker-1", "worker-2"]}));
    assert_eq!(plan["nodes"], json!(["worker-0"]));
    let done = lab.kata_command("uninstall --yes --wait --timeout 2h").await.expect(0);
    // Nobody waits for the end of the next one.
    done.says(&[next, "Deleted: KataConfig cluster-kataconfig is gone"]);
    // It is as it was said.
    lab.until("the second", |lab| {
        let second = lab.get(&kata_configs(), "", "second").unwrap();
        second["status"]["kataNodes"]["readyNodeCount"] == 2
    })
    .await;
}

/// Pods of a controller come again, so that it is named: before the eviction, while somebody waits, and to who
/// tries again.
#[tokio::test(start_paused = true)]
async fn uninstall_names_what_makes_evicted_pods_again() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("shop");
    lab.create(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "runtimeClassName": "kata",
                    "containers": [{"name": "a", "image": "i", "command": ["sleep", "99999999"]}],
                },
            },
        },
    }));
    lab.pass(60).await;
    let comes =
        "evicted pods come again from Deployment shop/web, and Kata stays while they are there";
    let scale = "`kubectl scale -n shop deployment/web --replicas=0`";
    let done = lab.kata_command("uninstall --dry-run").await.expect(4);
    done.says(&[
        "KATA4001",
        "fix: Scale down or delete what makes these pods (Deployment shop/web)",
        scale,
    ]);
    lab.kata_command("uninstall --evict-pods --dry-run").await.expect(0).says(&[comes, scale]);
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(4).json();
    assert_eq!(plan["controllers"], json!(["Deployment shop/web"]));
    assert_eq!(plan["deleting"], false);

    let done =
        lab.kata_command("uninstall --evict-pods --yes --wait --timeout 5m").await.expect(124);
    assert!(done.err.contains(comes), "{}", done.err);
    let (_, waited) = done.err.split_once(" evicted from shop").unwrap();
    assert!(waited.contains("Deployment shop/web") && waited.contains(scale), "{waited}");
    let (_, end) = waited.split_once("error: timed out").unwrap();
    assert!(end.contains("and 1 node still has Kata"), "{end}");
    let flat = end.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(scale), "{end}");

    // It is being deleted, and nobody is told that it is not.
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(4).json();
    assert_eq!(plan["deleting"], true);
    let going = "KataConfig cluster-kataconfig is being deleted already, and waits until";
    lab.kata_command("uninstall").await.expect(4).says(&[
        going,
        "2 sandboxed pods are gone",
        "Next: kubectl kata wait --for deleted",
        scale,
    ]);
    lab.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }));
    lab.pass(30).await;
    let done = lab.kata_command("uninstall --evict-pods --yes").await.expect(4);
    assert!(!done.err.contains("was not deleted"), "{}", done.err);
    done.says(&[going, "kubectl kata wait --for deleted tells when Kata is gone"]);

    // What it says to do helps.
    lab.merge(&simcluster::resource::DEPLOYMENTS, "shop", "web", &json!({"spec": {"replicas": 0}}));
    lab.pass(60).await;
    let done = lab.kata_command("uninstall --wait --timeout 1h").await.expect(0);
    done.says(&["is being deleted already", "Deleted: no KataConfig is left"]);
}

/// How many nodes at once is what the KataConfig allows.
#[tokio::test(start_paused = true)]
async fn install_says_how_many_nodes_are_changed_at_once() {
    use simcluster::world::Platform;
    let dry = "install --dry-run=server";
    for (platform, flag, says) in [
        (Platform::Kubernetes, "", "3 nodes will be changed, one at a time: worker-0"),
        (
            Platform::Kubernetes,
            "--max-unavailable 2",
            "3 nodes will be changed, at most 2 at a time: ",
        ),
        (
            Platform::OpenShift,
            "--max-unavailable 100%",
            "3 nodes will be changed, at most 3 at a time: ",
        ),
        (
            Platform::OpenShift,
            "--max-unavailable 34%",
            "3 nodes will be changed, one at a time: worker-0",
        ),
        (
            Platform::OpenShift,
            "",
            "one at a time unless maxUnavailable of their MachineConfigPool says otherwise: ",
        ),
    ] {
        let lab = Lab::on(platform);
        lab.kata_command(&format!("{dry} {flag}")).await.expect(0).says(&[says]);
    }
}

/// Of several Jobs on a node the last one is that which the operator names, whatever their times.
#[tokio::test(start_paused = true)]
async fn the_log_of_a_node_is_that_of_the_job_that_its_status_names() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let node = lab.get(&kata_nodes(), "", "worker-0").unwrap();
    let job = node["status"]["host"]["job"]["name"].as_str().unwrap().to_owned();
    // Times are in whole seconds; by its name another one would come later in every order.
    for (pod, owner) in [("a-named", job.as_str()), ("zz-other", "zz-other")] {
        lab.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": pod, "namespace": kata_api::names::NAMESPACE,
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": true,
                }],
            },
            "spec": {"nodeName": "worker-0", "containers": [{"name": "a", "image": "i"}]},
        }));
    }
    let done = lab.kata_command("logs node/worker-0").await;
    assert!(!done.err.contains("zz-other"), "{}", done.err);
    assert!(done.err.contains(&format!("pod {}/", kata_api::names::NAMESPACE)), "{}", done.err);
}
