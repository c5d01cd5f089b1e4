//! Nothing that a simulated cluster made can be taken for real: every command says so, whatever it finds and
//! however it ends, on standard error as well as on standard output.

use clap::CommandFactory as _;
use serde_json::json;

use crate::lab::{Done, Lab, Place};

/// Commands in every state of a cluster; those that change it come last.
const LINES: [&str; 43] = [
    "retry --all",
    "pause --dry-run",
    "resume --dry-run",
    "status",
    "status -o short",
    "status -o name",
    "status -o json",
    "wait --timeout 1s",
    "wait --for deleted --timeout 1s",
    "wait --for node/worker-0=Ready --timeout 1s",
    "wait --for nothing",
    "doctor",
    "doctor --pre",
    "doctor -o yaml",
    "verify --node worker-0",
    "verify --node nobody",
    "verify pod/web -n test-kata",
    "accept --node worker-0 --dry-run",
    "why pod/web -n test-kata",
    "why pod/nobody",
    "pods -A",
    "pods -A --no-headers",
    "pods -A -o name",
    "nodes",
    "nodes --no-headers",
    "history",
    "report --file -",
    "report --file DIR/simulated.html",
    "logs pod/web -n test-kata",
    "logs node/worker-0",
    "logs operator",
    "logs pod/nobody",
    "must-gather --archive DIR/simulated.tar",
    "version",
    "install --dry-run=server --name second",
    "install --dry-run=server --name second -o yaml",
    "upgrade --payload-image registry.example/kata:4.2.0 --dry-run",
    "pool --for karpenter",
    "takeover plan",
    "takeover begin --dry-run",
    "uninstall --dry-run",
    "uninstall",
    "uninstall --evict-pods --yes",
];

/// What says nothing of a cluster, and candidates of a command line, which are for the shell.
const OFFLINE: [&str; 6] =
    ["codes", "options", "schema", "completion", "__complete", "__reference"];

fn check(line: &str, done: &Done) {
    // Names of nothing are no names.
    if line.ends_with("-o name") && done.out.is_empty() && done.err.is_empty() {
        return;
    }
    let has = |text: &str| text.contains("simulated");
    assert!(has(&done.out) || has(&done.err), "{line}:\n{}\n{}", done.out, done.err);
    assert!(done.err.is_empty() || has(&done.err), "{line} on standard error:\n{}", done.err);
}

async fn all(lab: &Lab) {
    for place in [Place::default(), Place::terminal(80)] {
        for line in LINES {
            let line = line.replace("DIR", env!("CARGO_TARGET_TMPDIR"));
            check(&line, &lab.run_at(&line, &place).await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_command_says_that_the_cluster_is_simulated() {
    let mut lab = Lab::bare(&simcluster::topology::Layout::default());
    // Without KataConfigs as a kind, without one, with one, and with one that cannot go.
    all(&lab).await;
    lab.install();
    lab.start_operator();
    all(&lab).await;
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    lab.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "test-kata"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }));
    lab.pass(5).await;
    all(&lab).await;
    let done = lab.kata_command("install").await.expect(4);
    check("install", &done);
    lab.delete(&crate::lab::kata_configs(), "", "cluster-kataconfig");
    lab.pass(10).await;
    all(&lab).await;
    check("install", &lab.kata_command("install").await.expect(4));
}

#[tokio::test(start_paused = true)]
async fn what_changes_a_simulated_cluster_says_so_too() {
    let lab = Lab::new();
    let done =
        lab.kata_command("install --node worker-0 --node-selector kata=true --yes").await.expect(0);
    check("install", &done);
    lab.ready().await;
    for line in ["pause", "resume", "uninstall --yes", "uninstall --yes"] {
        check(line, &lab.kata_command(line).await.expect(0));
    }
}

/// A real cluster is not called simulated.
#[tokio::test(start_paused = true)]
async fn nothing_is_called_simulated_elsewhere() {
    let mut lab = Lab::new();
    lab.version = Some("v1.34.2".to_owned());
    lab.kata(&["worker-0"]);
    lab.ready().await;
    for line in ["status", "wait", "install", "nodes", "uninstall --dry-run", "logs pod/nobody"] {
        let done = lab.kata_command(line).await;
        assert!(!format!("{}{}", done.out, done.err).contains("simulated"), "{line}: {done:?}");
    }
}

/// No verb is left out.
#[test]
fn every_verb_is_looked_at() {
    for verb in kubectl_kata::arguments::Arguments::command().get_subcommands() {
        let name = verb.get_name();
        let tried = LINES.iter().any(|line| line.split(' ').next() == Some(name));
        assert!(tried || OFFLINE.contains(&name), "`kubectl kata {name}` is not tried");
    }
}
