//! `install` and `uninstall` say what they will do to nodes and pods, and write nothing without consent.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use simcluster::resource::{DEPLOYMENTS, NODES};
use simcluster::topology::Layout;
use simcluster::world::Platform;

use crate::lab::{Lab, Place, kata_configs};

/// A cluster whose three nodes run the control plane and the pods of users, one of them behind a budget.
async fn compact() -> Lab {
    let lab = Lab::with_layout(&Layout { workers: 0, compact: true, ..Layout::default() });
    lab.namespace("shop");
    lab.deployment("shop", "web", 2);
    lab.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }));
    lab.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone", "namespace": "shop"},
        "spec": {"containers": [{"name": "a", "image": "i", "command": ["sleep", "99999999"]}]},
    }));
    lab.until("the pods", |lab| {
        let web = lab.get(&DEPLOYMENTS, "shop", "web").unwrap();
        web["status"]["readyReplicas"] == 2
    })
    .await;
    lab.pass(10).await;
    lab
}

#[tokio::test(start_paused = true)]
async fn a_compact_cluster_is_not_rebooted_without_consent() {
    let lab = compact().await;
    // The Machine Config Operator has one pool here, so that one labelled node changes all of them.
    let line = "install --node-selector kata=true --node control-plane-0";
    for place in [Place::default(), Place::terminal(80)] {
        let done = lab.run_at(line, &place).await.expect(4);
        let text = done.err.split_whitespace().collect::<Vec<_>>().join(" ");
        for says in [
            "This command labels control-plane-0, then creates KataConfig cluster-kataconfig. (simulated)",
            "Nodes 3: control-plane-0, control-plane-1, control-plane-2 (they run the control plane)",
            "Change each node is drained and rebooted once, one at a time",
            "will be evicted; 1 of them has no controller and is not created again",
            "PodDisruptionBudget shop/web allows 0 disruptions (2 of 2 healthy, 2 required)",
            "fix: kubectl scale -n shop deployment/web --replicas=3",
            "refused: install reboots 3 nodes; add --yes or use --dry-run",
        ] {
            assert!(text.contains(says), "does not say {says:?}:\n{}", done.err);
        }
        assert!(done.out.is_empty(), "{}", done.out);
        assert!(
            place.terminal.width.is_none_or(|width| done.err.lines().all(|l| l.len() <= width))
        );
    }
    let node = lab.get(&NODES, "", "control-plane-0").unwrap();
    assert!(node["metadata"]["labels"]["kata"].is_null(), "{node:#}");
    assert_eq!(lab.get(&kata_configs(), "", "cluster-kataconfig"), None);
}

#[tokio::test(start_paused = true)]
async fn a_removal_says_the_same_as_an_installation() {
    let lab = compact().await;
    lab.kata_command("install --yes --node-selector kata=true --node control-plane-1")
        .await
        .expect(0);
    lab.delete(&simcluster::resource::PODDISRUPTIONBUDGETS, "shop", "web");
    lab.ready().await;
    let says = [
        "Nodes      3: control-plane-0, control-plane-1, control-plane-2 (they run the control plane)",
        "Change     each node is drained and rebooted once",
        "will be evicted",
    ];
    lab.kata_command("uninstall --dry-run").await.expect(0).says(&says);
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(0).json();
    assert_eq!(plan["disruption"]["action"], "Reboot", "{plan:#}");
    assert_eq!(plan["disruption"]["controlPlane"], plan["nodes"]);
    assert_eq!(plan["disruption"]["evictions"]["blocked"], json!([]));
    let refused = "refused: uninstall reboots 3 nodes; add --yes or use --dry-run";
    lab.kata_command("uninstall").await.expect(4).says(&says).says(&[refused]);
    let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
    assert!(config["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test(start_paused = true)]
async fn elsewhere_only_the_container_runtime_restarts() {
    let lab = Lab::on(Platform::Kubernetes);
    let done = lab.kata_command("install").await.expect(4);
    let done = done.says(&[
        "Nodes      3: worker-0, worker-1, worker-2\n",
        "Change     the container runtime of each node restarts once, one at a time; running pods keep running; \
         no reboot",
        "refused: install restarts the container runtime of 3 nodes; add --yes or use --dry-run",
    ]);
    assert!(!done.err.contains("evicted"), "{}", done.err);
}

/// What the API server refuses is known before the question, and before a node has a label.
#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_known_before_the_question() {
    let lab = Lab::new();
    lab.refuse("create", "kataconfigs");
    let line = "install --yes --node-selector kata=true --node worker-0";
    lab.kata_command(line).await.expect(5).says(&["you may not create kataconfigs"]);
    let node = lab.get(&NODES, "", "worker-0").unwrap();
    assert!(node["metadata"]["labels"]["kata"].is_null(), "{node:#}");
    let line = "install --yes --node-selector kata=true --node worker-9";
    lab.kata_command(line).await.expect(1).says(&["worker-9"]);
}

/// What the caller may not read is not taken for nothing.
#[tokio::test(start_paused = true)]
async fn what_may_not_be_read_is_called_unknown() {
    let mut lab = compact().await;
    lab.only_rules(&json!([
        {"apiGroups": ["kataconfiguration.openshift.io"], "resources": ["*"], "verbs": ["*"]},
    ]));
    let done = lab.kata_command("install").await.expect(4);
    done.says(&["Nodes      which nodes change is unknown: you may not read nodes"]);
    let lab = compact().await;
    lab.refuse("list", "poddisruptionbudgets");
    let done = lab.kata_command("install").await.expect(4);
    done.says(&["Blocked    unknown: you may not list poddisruptionbudgets.policy"]);
}

/// Runs the program on a terminal and answers its question: the exit code, and what the terminal shows.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn answered(server: SocketAddr, line: &str, answer: &str) -> (Option<i32>, String) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-kata"))
        .args(["--server", &format!("http://{server}")])
        .args(line.split(' '))
        .env("KUBECONFIG", "/dev/null")
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal)
        .spawn()
        .unwrap();
    let mut controller = File::from(controller);
    let mut shown = String::new();
    let mut buffer = [0; 4096];
    let mut asked = false;
    // The read fails once the program has closed the terminal.
    while let Ok(length @ 1..) = controller.read(&mut buffer) {
        shown.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if !asked && shown.ends_with("Continue? [y/N] ") {
            asked = true;
            if answer == "SIGINT" {
                let id = child.id().to_string();
                assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
            } else {
                writeln!(controller, "{answer}").unwrap();
            }
        }
    }
    assert!(asked, "{shown}");
    (child.wait().unwrap().code(), shown)
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_the_answer_decides() {
    let mut lab = Lab::new();
    lab.serve().await;
    let server = lab.address.unwrap();
    let ask = async |answer: &'static str| {
        tokio::task::spawn_blocking(move || answered(server, "install", answer)).await.unwrap()
    };
    for answer in ["", "n", "yesterday"] {
        let (code, shown) = ask(answer).await;
        assert_eq!(code, Some(4), "{answer}: {shown}");
        assert!(shown.contains("nothing was changed"), "{answer}: {shown}");
        assert_eq!(lab.get(&kata_configs(), "", "cluster-kataconfig"), None, "{answer}");
    }
    let (code, shown) = ask("SIGINT").await;
    assert_eq!(code, Some(130), "{shown}");
    assert_eq!(lab.get(&kata_configs(), "", "cluster-kataconfig"), None);
    let (code, shown) = ask("y").await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("cluster-kataconfig created"), "{shown}");
    assert!(lab.get(&kata_configs(), "", "cluster-kataconfig").is_some());
}
