//! `logs` and `must-gather`.

mod planted;

use std::path::Path;

use serde_json::json;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::PODS;

use crate::lab::{Lab, kata_configs, kata_nodes};

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
    lab.undeploy();
    lab.pass(60).await;
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
    done.says(&["waits: ImagePullBackOff, image registry.example.com/other@sha256:"]);
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
    lab.deploy_without_pods(lab.home());
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
    let says = ["taken out: 2 credentials, ", "start with summary.md", "(simulated)"];
    drop(done.says(&["collected"]).says(&says));
    let root = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    assert!(read("summary.md").contains("Ready: 1/1 nodes"));
    assert!(read("pods.yaml").contains("name: web") && !read("pods.yaml").contains("s3cret"));
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
        lab.kata_command(&gather)
            .await
            .expect(0)
            .says(&["journals/worker-0.log: the kubelet does not serve its node's journal ("]);
        let text = String::from_utf8(std::fs::read(&archive).unwrap()).unwrap();
        let why = "journals/worker-0.log: the kubelet does not serve its node's journal";
        assert!(text.contains(why), "{page}");
    }
    let line = "Jan 01 00:10:00 worker-0 kata[7]: level=info msg=\"<pre>\"\n";
    lab.pages = vec![("/proxy/logs/", 200, line)];
    let done = lab.kata_command("logs pod/web -n test-kata --shim").await.expect(0);
    assert_eq!(done.out, line);
    let done = lab.kata_command(&gather).await.expect(0);
    assert!(!done.err.contains("journals/"), "{}", done.err);
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
            "metadata": {"name": name, "namespace": lab.home()},
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
                "name": pod, "namespace": lab.home(),
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": true,
                }],
            },
            "spec": {"nodeName": "worker-0", "containers": [{"name": "a", "image": "i"}]},
        }));
    }
    let done = lab.kata_command("logs node/worker-0").await;
    assert!(!done.err.contains("zz-other"), "{}", done.err);
    assert!(done.err.contains(&format!("pod {}/", lab.home())), "{}", done.err);
}
