//! `kata-sim up --data-dir`: a cluster survives the end of its process, however that comes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::kubectl_process::{Ended, Up, command, repository, run};

/// How long a test waits for something that takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// An empty place for a data directory, beside those of the processes.
fn place(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(std::fs::remove_dir_all(&directory));
    directory
}

fn start(name: &str, data: &Path, arguments: &[&str]) -> Up {
    let mut all = vec!["up", "--data-dir", data.to_str().unwrap()];
    all.extend(arguments);
    Up::start(name, &all)
}

fn refused(data: &Path, arguments: &[&str]) -> Ended {
    let kubeconfig = data.with_extension("refused");
    let ended = run(command(env!("CARGO_BIN_EXE_kata-sim"))
        .args(["up", "--port", "0", "--data-dir"])
        .arg(data)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(arguments));
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(!kubeconfig.exists(), "{ended:?}");
    ended
}

fn api(up: &Up, (group, version, kind): (&str, &str, &str)) -> Api<DynamicObject> {
    let text = std::fs::read_to_string(&up.kubeconfig).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let client = kube::Client::try_from(kube::Config::new(server.parse().unwrap())).unwrap();
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(client, &ApiResource::from_gvk(&kind))
}

const NODE: (&str, &str, &str) = ("", "v1", "Node");
const KATA_CONFIG: (&str, &str, &str) = ("kataconfiguration.openshift.io", "v1", "KataConfig");

/// Looks again and again until it holds.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let look = async {
        while !holds().await {
            looks.tick().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, look).await.is_ok(), "never: {what}");
}

async fn until_written(data: &Path, text: &str) {
    let file = data.join("state.json");
    until(text, async || std::fs::read_to_string(&file).is_ok_and(|all| all.contains(text))).await;
}

#[tokio::test]
async fn an_install_goes_on_after_the_process_was_killed_and_after_it_was_ended() {
    let data = place("data-install");
    let mut up = start("data-first", &data, &["--control-plane", "1", "--workers", "2"]);
    assert!(up.announcement.contains("state.json, a new cluster"), "{}", up.announcement);
    up.control("speed 60").good();
    let label = json!({"metadata": {"labels": {"kata": "true"}}});
    let parameters = PatchParams::default();
    api(&up, NODE).patch("worker-0", &parameters, &Patch::Merge(&label)).await.unwrap();
    let example = std::fs::read_to_string(repository().join("examples/kataconfig.yaml")).unwrap();
    let config: DynamicObject = serde_saphyr::from_str(&example).unwrap();
    let made = api(&up, KATA_CONFIG).create(&PostParams::default(), &config).await.unwrap();
    until_written(&data, "drain-rendered-kata-oc").await;
    let boot = |node: &DynamicObject| node.data["status"]["nodeInfo"]["bootID"].clone();
    let first_boot = boot(&api(&up, NODE).get("worker-0").await.unwrap());
    assert!(first_boot.is_string());
    up.child.kill().unwrap();
    up.child.wait().unwrap();

    let mut up = start("data-second", &data, &[]);
    assert!(up.announcement.contains("gone on from revision"), "{}", up.announcement);
    assert!(up.announcement.contains("1 control plane, 2 workers"), "{}", up.announcement);
    up.control("speed 60").good();
    let nodes = api(&up, NODE);
    // On a busy machine the reboot may be over before it is seen.
    until("worker-0 is not ready, for it reboots, or has rebooted", async || {
        let node = nodes.get("worker-0").await.unwrap();
        let conditions = node.data["status"]["conditions"].as_array().unwrap();
        boot(&node) != first_boot
            || conditions.iter().any(|one| one["type"] == "Ready" && one["status"] != "True")
    })
    .await;
    assert_eq!(up.end("TERM"), Some(0));

    let mut up = start("data-third", &data, &[]);
    let configs = api(&up, KATA_CONFIG);
    let name = made.metadata.name.clone().unwrap();
    until("Ready", async || {
        let config = configs.get(&name).await.unwrap();
        let conditions = config.data["status"]["conditions"].as_array().cloned();
        conditions
            .is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
    })
    .await;
    let config = configs.get(&name).await.unwrap();
    assert_eq!(config.metadata.uid, made.metadata.uid);
    let node = api(&up, NODE).get("worker-0").await.unwrap();
    assert!(node.data["status"]["runtimeHandlers"].to_string().contains("\"kata\""), "{node:?}");
    assert_eq!(node.data["spec"]["unschedulable"], Value::Null);
    assert_eq!(up.end("INT"), Some(0));
    let stored: Value =
        serde_json::from_slice(&std::fs::read(data.join("state.json")).unwrap()).unwrap();
    assert_eq!((&stored["format"], &stored["simulated"]), (&json!(1), &json!(true)));
    // The host booted twice: when it was made, and into the configuration.
    assert_eq!(stored["hosts"]["worker-0"]["boots"], 2);
}

#[test]
fn a_directory_that_cannot_be_gone_on_from_is_left_as_it_is() {
    let data = place("data-refused");
    let mut up = start("data-refusals", &data, &["--workers", "1", "--no-operator"]);
    let busy = refused(&data, &[]).stderr;
    assert!(busy.contains("is in use by another kata-sim"), "{busy}");
    assert_eq!(up.end("TERM"), Some(0));

    let file = data.join("state.json");
    let kept = std::fs::read(&file).unwrap();
    for flags in [
        &["--workers", "5"][..],
        &["--compact"],
        &["--control-plane", "1"],
        &["--platform", "kubernetes"],
    ] {
        let text = refused(&data, flags).stderr;
        assert!(text.contains("the flags contradict "), "{text}");
        assert!(text.contains("--platform openshift --control-plane 3 --workers 1:"), "{text}");
        assert!(text.contains("or give another --data-dir"), "{text}");
        assert!(std::fs::read(&file).unwrap() == kept, "{flags:?} changed the file");
    }
    for (content, complaint) in [
        (
            "{\"format\": 2}",
            "it has format 2, and this version reads format 1; nothing was changed",
        ),
        ("no JSON", "it is not the state of a simulated cluster"),
    ] {
        std::fs::write(&file, content).unwrap();
        let text = refused(&data, &[]).stderr;
        assert!(text.contains(complaint) && text.contains("state.json"), "{text}");
        assert!(text.contains("move the file away to start a new cluster"), "{text}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
    }
}
