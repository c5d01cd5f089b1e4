//! `logs` and `must-gather`.

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

/// What is planted in the objects that must-gather reads: where, and why it has to be in the collection, if it has to.
const PLANTED: [(&str, &str); 50] = [
    ("pod args", ""),
    ("pod command", ""),
    ("pod env value", ""),
    ("pod env from a ConfigMap", ""),
    ("pod probe header", ""),
    ("pod probe command", ""),
    ("pod preStop", ""),
    ("pod annotation", ""),
    ("pod label", ""),
    ("pod image with a password", ""),
    ("pod hostPath", ""),
    ("pod CSI attribute", ""),
    ("pod pull secret", ""),
    ("pod service account", ""),
    ("pod node selector", ""),
    ("pod toleration", ""),
    ("pod host alias", ""),
    ("pod init container args", ""),
    ("pod env of a Secret", ""),
    ("pod hostname", ""),
    ("pod waiting message", ""),
    ("pod termination message", ""),
    ("pod message", ""),
    ("pod condition message", ""),
    ("node label", ""),
    ("node annotation", ""),
    ("node taint value", ""),
    ("node address", ""),
    ("node provider id", ""),
    ("node image", ""),
    ("node condition message", "why a node is not Ready is in it"),
    ("KataConfig annotation", ""),
    ("KataConfig condition of another client", "conditions say what holds a KataConfig up"),
    ("RuntimeClass annotation", ""),
    ("budget selector", ""),
    ("budget annotation", ""),
    ("Deployment args", ""),
    ("Deployment env", ""),
    ("Job env", ""),
    ("Job annotation", ""),
    ("Lease annotation", ""),
    ("ConfigMap", ""),
    ("Event of a probe", ""),
    ("Event of another object", ""),
    ("Event of a failed start", "what the runtime says of a sandbox is in it"),
    ("Event password", ""),
    ("pool annotation", ""),
    ("MachineConfig file", ""),
    ("log line", "it is the log of the operator's own Job"),
    ("log password", ""),
];

/// Whatever is planted where must-gather reads, only that comes into the collection which has to.
#[tokio::test(start_paused = true)]
async fn of_all_that_is_planted_only_what_must_be_is_collected() {
    use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, RUNTIMECLASSES};
    let mark = |place: &str| {
        let number = PLANTED.iter().position(|(known, _)| *known == place);
        format!("planted{:02}x", number.unwrap_or_else(|| panic!("{place}")))
    };
    let home = kata_api::names::NAMESPACE;
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("test-kata");
    lab.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "test-kata",
            "annotations": {"example.com/a": mark("pod annotation")},
            "labels": {"example.com/a": mark("pod label")},
        },
        "spec": {
            "runtimeClassName": "kata",
            "hostname": mark("pod hostname"),
            "serviceAccountName": mark("pod service account"),
            "imagePullSecrets": [{"name": mark("pod pull secret")}],
            "nodeSelector": {"example.com/a": mark("pod node selector")},
            "tolerations": [{"key": "a", "operator": "Equal", "value": mark("pod toleration")}],
            "hostAliases": [{"ip": "192.0.2.77", "hostnames": [mark("pod host alias")]}],
            "volumes": [
                {"name": "a", "hostPath": {"path": format!("/{}", mark("pod hostPath"))}},
                {"name": "b", "csi": {
                    "driver": "d", "volumeAttributes": {"a": mark("pod CSI attribute")}}},
            ],
            "initContainers": [
                {"name": "i", "image": "i", "args": [mark("pod init container args")]}],
            "containers": [{
                "name": "a",
                "image": format!("me:{}@registry.example.com/a:1", mark("pod image with a password")),
                "args": [mark("pod args")], "command": [mark("pod command")],
                "env": [
                    {"name": "A", "value": mark("pod env value")},
                    {"name": "B", "valueFrom": {
                        "secretKeyRef": {"name": mark("pod env of a Secret"), "key": "k"}}},
                ],
                "envFrom": [{"configMapRef": {"name": mark("pod env from a ConfigMap")}}],
                "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [
                    {"name": "Authorization", "value": mark("pod probe header")}]}},
                "readinessProbe": {"exec": {"command": [mark("pod probe command")]}},
                "lifecycle": {"preStop": {"exec": {"command": [mark("pod preStop")]}}},
            }],
        },
    }));
    let status = json!({"status": {
        "message": mark("pod message"), "podIP": "192.0.2.77",
        "conditions": [{"type": "example.com/A", "status": "False", "message": mark("pod condition message")}],
        "containerStatuses": [{
            "name": "a", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"waiting": {"reason": "CreateContainerError", "message": mark("pod waiting message")}},
            "lastState": {"terminated": {"exitCode": 1, "message": mark("pod termination message")}},
        }],
    }});
    lab.merge_status(&PODS, "test-kata", "web", &status);
    let node = json!({
        "metadata": {
            "labels": {"example.com/a": mark("node label")},
            "annotations": {"example.com/a": mark("node annotation")},
        },
        "spec": {
            "providerID": mark("node provider id"),
            "taints": [{"key": "a", "value": mark("node taint value"), "effect": "PreferNoSchedule"}],
        },
    });
    lab.merge(&NODES, "", "worker-1", &node);
    let status = json!({"status": {
        "addresses": [{"type": "InternalDNS", "address": mark("node address")}],
        "images": [{"names": [mark("node image")]}],
        "conditions": [{"type": "KernelDeadlock", "status": "True", "reason": "A",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "message": mark("node condition message")}],
    }});
    lab.merge_status(&NODES, "", "worker-1", &status);
    let annotated =
        |place: &str| json!({"metadata": {"annotations": {"example.com/a": mark(place)}}});
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &annotated("KataConfig annotation"));
    let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
    let mut conditions = config["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(json!({"type": "example.com/A", "status": "True", "reason": "A",
        "message": mark("KataConfig condition of another client"),
        "lastTransitionTime": "2026-01-01T00:00:00Z"}));
    let status = json!({"status": {"conditions": conditions}});
    lab.merge_status(&kata_configs(), "", "cluster-kataconfig", &status);
    lab.merge(&RUNTIMECLASSES, "", "kata", &annotated("RuntimeClass annotation"));
    lab.merge(&MACHINECONFIGPOOLS, "", "worker", &annotated("pool annotation"));
    let files = json!({"spec": {"config": {"storage": {"files": [{
        "path": "/etc/a", "contents": {"source": format!("data:,{}", mark("MachineConfig file"))}}]}}}});
    lab.merge(&MACHINECONFIGS, "", "50-enable-sandboxed-containers-extension", &files);
    let containers = |place: &str, args: &str| {
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {
            "restartPolicy": "Always",
            "containers": [{"name": "a", "image": "i", "args": [args],
                "env": [{"name": "A", "value": mark(place)}]}]}})
    };
    let mut job = containers("Job env", "");
    job["spec"]["restartPolicy"] = json!("Never");
    for object in [
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "test-kata",
                "annotations": {"example.com/a": mark("budget annotation")}},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": mark("budget selector")}}}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "other", "namespace": home},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
                "template": containers("Deployment env", &mark("Deployment args"))}}),
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "other", "namespace": home,
                "annotations": {"example.com/a": mark("Job annotation")}},
            "spec": {"template": job}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "other", "namespace": home,
                "annotations": {"example.com/a": mark("Lease annotation")}}, "spec": {}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": home},
            "data": {"a": mark("ConfigMap")}}),
    ] {
        lab.create(object);
    }
    for (number, (kind, name, reason, message)) in [
        ("Pod", "web", "Unhealthy", mark("Event of a probe")),
        ("Service", "web", "Failed", mark("Event of another object")),
        ("Pod", "web", "FailedCreatePodSandBox", mark("Event of a failed start")),
        (
            "Pod",
            "web",
            "Failed",
            format!("cannot pull https://me:{}@192.0.2.77/a", mark("Event password")),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        lab.create(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("web.{number}"), "namespace": "test-kata"},
            "involvedObject": {"kind": kind, "name": name, "namespace": "test-kata"},
            "type": "Warning", "reason": reason, "lastTimestamp": "2026-01-01T00:10:00Z",
            "message": message,
        }));
    }
    lab.pass(5).await;
    let log = format!("{} password={}\n", mark("log line"), mark("log password"));
    lab.pages = vec![("/log", 200, Box::leak(log.into_boxed_str()))];
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gather-planted");
    drop(std::fs::remove_dir_all(&directory));
    lab.kata_command(&format!("must-gather --dest-dir {}", directory.display())).await.expect(0);
    let collected = texts(&directory);
    for (place, why) in PLANTED {
        let files: Vec<&String> = collected
            .iter()
            .filter_map(|(name, text)| text.contains(&mark(place)).then_some(name))
            .collect();
        assert_eq!(files.is_empty(), why.is_empty(), "{place}: {files:?}");
    }
    assert!(collected.iter().all(|(_, text)| !text.contains("192.0.2.77")));
    let events = &collected.iter().find(|(name, _)| name.ends_with("events.txt")).unwrap().1;
    assert!(events.contains("https://(redacted)@address-"), "{events}");
    // With everything in it, it is all there, so that the markers are where this test thinks.
    drop(std::fs::remove_dir_all(&directory));
    let line = format!("must-gather --no-redaction --dest-dir {}", directory.display());
    lab.kata_command(&line).await.expect(0).says(&["not redacted"]);
    let collected = texts(&directory);
    let lost: Vec<&str> = PLANTED
        .iter()
        .map(|(place, _)| *place)
        .filter(|place| !collected.iter().any(|(_, text)| text.contains(&mark(place))))
        .collect();
    assert_eq!(lost, ["ConfigMap"], "must-gather reads no ConfigMap");
}

/// The files below a folder, with their paths.
fn texts(folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(texts(&path));
        } else {
            all.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    all
}

/// Names that a server gives lead out of no folder, and into none of a name that was not meant.
#[tokio::test(start_paused = true)]
async fn names_of_a_server_stay_in_the_collection() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let long = "a".repeat(300);
    let names = ["../../../../tmp/out", "/tmp/absolute", "..", "a\u{1b}[31m\nb", long.as_str()];
    let items: Vec<_> = names
        .iter()
        .map(|name| {
            json!({"metadata": {"name": name, "namespace": kata_api::names::NAMESPACE},
                "spec": {"containers": [{"name": "operator", "image": "i"}]}, "status": {}})
        })
        .collect();
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
    lab.pages = vec![
        ("/log", 200, "a line\n"),
        ("/metrics", 200, "a metric\n"),
        ("/pods", 200, Box::leak(list.to_string().into_boxed_str())),
    ];
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gather-names");
    drop(std::fs::remove_dir_all(&directory));
    lab.kata_command(&format!("must-gather --dest-dir {}", directory.display())).await.expect(0);
    let all = texts(&directory);
    assert_eq!(all.iter().filter(|(_, text)| text == "a line\n").count(), names.len());
    let archive = directory.join("all.tar");
    lab.kata_command(&format!("must-gather --archive {}", archive.display())).await.expect(0);
    let mut entries = tar::Archive::new(std::fs::File::open(&archive).unwrap());
    let mut logs = 0;
    for entry in entries.entries().unwrap() {
        let path = entry.unwrap().path().unwrap().into_owned();
        let mut parts = path.components();
        assert!(parts.all(|it| matches!(it, std::path::Component::Normal(_))), "{path:?}");
        assert!(path.components().count() <= 3, "{path:?}");
        logs += usize::from(path.to_string_lossy().contains("/logs/"));
    }
    assert_eq!(logs, names.len());
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
