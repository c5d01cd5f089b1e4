//! What of a cluster with secrets and hostile names comes into the files of must-gather.

use std::path::Path;

use serde_json::json;
use simcluster::resource::PODS;

use crate::lab::{Lab, kata_configs};

/// The markers: where each is planted, and the reason if it has to be collected.
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

/// Only markers with a reason are collected.
#[tokio::test(start_paused = true)]
async fn only_markers_with_a_reason_are_collected() {
    use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, RUNTIMECLASSES};
    let mark = |place: &str| {
        let number = PLANTED.iter().position(|(known, _)| *known == place);
        format!("planted{:02}x", number.unwrap_or_else(|| panic!("{place}")))
    };
    let mut lab = Lab::new();
    let home = lab.home();
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
    // Without redaction all are collected, so each marker is where must-gather reads.
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

/// Names of objects cannot lead out of the collection's folder.
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
            json!({"metadata": {"name": name, "namespace": lab.home()},
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
