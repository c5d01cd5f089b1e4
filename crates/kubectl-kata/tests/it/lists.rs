//! `pods` and `nodes`.

use std::time::Duration;

use serde_json::json;
use simcluster::api::fault::{Fault, Match, Rule};
use simcluster::world::Platform;
use tokio::sync::watch;

use crate::lab::{Lab, Place, kata_configs, kata_nodes};

#[tokio::test(start_paused = true)]
async fn pods_and_nodes_are_listed() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("net-kata", Some("kata"));
    lab.pod("net-regular", None);
    lab.phase("net-kata", "Running").await;
    let done = lab.kata_command("pods").await.expect(0);
    assert_eq!(
        (done.out.as_str(), done.err.as_str()),
        ("", "No sandboxed pods found in default namespace. (simulated)\n")
    );
    let done = lab.kata_command("pods -A -o wide").await.expect(0);
    let lines: Vec<&str> = done.out.lines().collect();
    assert!(lines[0].starts_with("NAMESPACE   NAME       READY   STATUS "), "{}", done.out);
    assert!(lines[1].starts_with("test-kata   net-kata   1/1     Running"), "{}", done.out);
    assert!(lines[1].contains("250m/350Mi") && lines.len() == 2, "{}", done.out);
    let done = lab.kata_command("pods -n test-kata -o name").await.expect(0);
    assert_eq!(done.out, "pod/net-kata\n");
    let done = lab.kata_command("nodes --no-headers").await.expect(0);
    assert!(
        done.out.starts_with("worker-0   Ready   unknown   kata   cri-o 1.34.1   unknown   "),
        "{}",
        done.out
    );
    let done = lab.kata_command("nodes -o json").await.expect(0);
    let list = done.json();
    assert_eq!(list["items"][0]["freeSandboxes"], 13);
    assert_eq!(list["items"][0]["pods"], 1);
    lab.kata_command("version")
        .await
        .expect(0)
        .says(&["kubernetes  v1.34.0+simulated (simulated)"]);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_bring_kata_are_told_apart() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.join("talos-0", &["system=talos"]).await;
    lab.join("old-0", &["handlers=kata", "runtime=containerd-1.7"]).await;
    lab.kata(&["worker-0", "talos-0", "old-0"]);
    let on = json!({"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["talos-0", "old-0"]},
    ]});
    let patch = json!({"spec": {"providedNodes": on}});
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &patch);
    lab.pass(300).await;
    let done = lab.kata_command("nodes --no-headers").await.expect(0);
    let columns = |name: &str| -> Vec<&str> {
        let line = done.out.lines().find(|line| line.starts_with(name)).unwrap();
        line.split("   ").map(str::trim).filter(|text| !text.is_empty()).collect()
    };
    assert_eq!(
        columns("talos-0")[..6],
        ["talos-0", "Ready", "unknown", "kata", "containerd 2.1.4", "provided"]
    );
    assert_eq!(columns("old-0")[1..3], ["NotReady", "unknown"]);
    assert!(
        columns("old-0").ends_with(&["no", "no", columns("old-0").last().unwrap()]),
        "{}",
        done.out
    );
    let status = lab.kata_command("status").await.expect(1);
    let status = status.says(&[
        "2/3 ready",
        "provided by the operating system or the cloud on 2 nodes",
        "nodes inspected 1/1",
        "KATA2115",
    ]);
    assert!(!status.out.contains("of unknown version"), "{}", status.out);
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(0).json();
    assert_eq!(plan["disruption"]["nodes"], json!(["worker-0"]), "{plan:#}");
}

#[tokio::test(start_paused = true)]
async fn names_are_completed_in_the_namespace_of_the_line() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.pod("net-regular", None);
    let complete =
        async |line: &str| lab.kata_command(&format!("__complete {line}")).await.expect(0).out;
    assert_eq!(
        complete("-- verify -n test-kata pod/net").await,
        "pod/net-regular\tno RuntimeClass\n:4\n"
    );
    assert_eq!(complete("-- verify pod/net").await, ":4\n");
    assert_eq!(complete("-- verify --node worker-1").await, "worker-1\tnode\n:4\n");
    assert_eq!(complete("codes KATA21040").await, ":4\n");
    assert_eq!(
        complete("stat").await,
        "status\tHow far Kata is: the KataConfig, its nodes, and what is wrong\n:4\n"
    );
}

/// How many requests commands take, on whatever size of a cluster besides the pages of lists.
#[tokio::test(start_paused = true)]
async fn commands_take_few_requests() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.stop_operator();
    // As everywhere but in the simulation, whose operator is in no pod, and is looked for elsewhere too.
    lab.deploy_without_pods(lab.home());
    lab.pass(60).await;
    lab.requests();
    for (line, most) in
        // One more says why no pod of the operator is ready.
        [
            ("status", 9),
            ("pods -A", 5),
            ("nodes", 6),
            ("version", 2),
            ("version --client", 0),
        ]
    {
        lab.kata_command(line).await.expect(0);
        let requests = lab.requests();
        assert!(requests <= most, "{line} takes {requests} requests");
    }
}

/// To look into all namespaces takes rights that not everybody has, and time.
#[tokio::test(start_paused = true)]
async fn the_operator_is_looked_for_everywhere_once_per_command() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.stop_operator();
    lab.namespace("sandboxes");
    lab.undeploy();
    for is_there in [false, true] {
        if is_there {
            lab.deploy_without_pods("sandboxes");
            lab.pass(10).await;
        }
        for line in ["status", "doctor", "version", "logs operator"] {
            lab.requests();
            lab.kata_command(line).await;
            assert_eq!(lab.lists("deployments.apps"), 1, "{line}, {is_there}");
        }
    }
}

/// A pod comes while the first look is still under way.
#[tokio::test(start_paused = true)]
async fn a_watch_misses_nothing_of_what_happens_while_it_looks() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("early", Some("kata"));
    // Longer than a pod takes to run: after the look nothing changes any more that could be told.
    let slow = Fault::Delay { millis: 8_000 };
    let matches =
        Match { verb: "list".to_owned(), resource: "katanodes".to_owned(), ..Match::default() };
    lab.cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, slow).times(0)));
    let (interrupt, interrupted) = watch::channel(false);
    let place = Place::default();
    let command = lab.run_with("pods -n test-kata -o name --watch", &place, interrupted);
    let deeds = async {
        lab.pass(1).await;
        lab.pod("late", Some("kata"));
        // Long enough for the leisure after so slow a look, and sooner than it looks again without a reason.
        lab.pass(55).await;
        interrupt.send_replace(true);
    };
    let limit = Duration::from_secs(600);
    let (done, ()) =
        tokio::time::timeout(limit, futures::future::join(command, deeds)).await.unwrap();
    let out = done.expect(0).out;
    assert!(out.starts_with("pod/early\n") && out.contains("pod/late\n"), "{out}");
}

/// After an upgrade it is shown which pods still run the version before, and until when.
#[tokio::test(start_paused = true)]
async fn pods_of_an_earlier_version_are_shown_until_they_end() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    let payload = |version: &str| json!({"spec": {"payload": {"image": format!("registry.example/kata:{version}")}}});
    let upgrade = async |version: &'static str| {
        lab.merge(&kata_configs(), "", "cluster-kataconfig", &payload(version));
        lab.until("the version", |lab| {
            let node = lab.get(&kata_nodes(), "", "worker-0").unwrap_or_default();
            node["status"]["host"]["kataVersion"] == version
        })
        .await;
        lab.ready().await;
    };
    upgrade("4.0.0").await;
    lab.pod("old", Some("kata"));
    lab.phase("old", "Running").await;
    let status = lab.kata_command("status").await.expect(0);
    assert!(!status.out.contains("still runs"), "{}", status.out);
    upgrade("4.1.0").await;
    lab.pod("new", Some("kata"));
    lab.phase("new", "Running").await;
    lab.kata_command("status").await.expect(0).says(&["Kata        1 pod still runs 4.0.0: `kubectl kata pods -A`; a new pod gets the new version"]);
    let pods = lab.kata_command("pods -n test-kata -o json").await.json();
    let versions = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| [pod["name"].as_str().unwrap(), pod["kataVersion"].as_str().unwrap()]);
    assert_eq!(versions.collect::<Vec<_>>(), [["new", "4.1.0"], ["old", "4.0.0"]]);
    // No Job has to run for it to be forgotten.
    lab.delete(&simcluster::resource::PODS, "test-kata", "old");
    lab.pass(60).await;
    let status = lab.kata_command("status").await.expect(0);
    assert!(!status.out.contains("still runs"), "{}", status.out);
}
