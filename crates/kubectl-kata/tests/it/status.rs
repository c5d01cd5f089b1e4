//! `status` and `wait` in the course of a roll-out.

use serde_json::{Value, json};
use simcluster::api::fault::{Fault, When};
use tokio::sync::watch;

use crate::lab::{Lab, Place, checks, kata_configs, kata_nodes};

#[tokio::test(start_paused = true)]
async fn without_anything_it_says_how_to_begin() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    let done = lab.kata_command("status").await.expect(1);
    let done = done.says(&["KATA5003", "the operator is not installed"]);
    assert_eq!(done.err, "");
    lab.install();
    let done = lab.kata_command("status").await.expect(1);
    done.says(&["KATA5007", "kubectl kata install"]);
}

#[tokio::test(start_paused = true)]
async fn a_roll_out_is_followed_to_its_end() {
    let lab = Lab::new();
    lab.kata(&["worker-0", "worker-1"]);
    lab.until("the first node", |lab| lab.condition("Ready") == "False").await;
    lab.pass(60).await;
    let done = lab.kata_command("status").await.expect(1);
    let done = done.says(&[
        "KataConfig  cluster-kataconfig   generation 1   age 61s (simulated)",
        "Nodes       0/2 ready   1 changing, 1 waiting\n",
        "RuntimeClass kata (does not exist yet)   handler kata   overhead 250m CPU, 350Mi   nodes kata=true",
        "worker-0   Installing   1/6 Targeted   ",
        "worker-1   Waiting      -              ",
        "unknown",
        "waits for its turn",
    ]);
    assert!(done.out.is_ascii(), "no colours and no glyphs where none are needed: {}", done.out);
    let narrow = lab.run_at("status", &Place::terminal(60)).await.expect(1);
    assert!(narrow.out.contains("\x1b[33mInstalling\x1b[0m"), "{}", narrow.out);
    assert!(narrow.out.contains("Nodes       ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  0/2 ready"), "{}", narrow.out);
    assert!(!narrow.out.contains("INSTALLED"), "{}", narrow.out);

    let done = lab.kata_command("wait --timeout 1h").await.expect(0);
    assert!(done.out.starts_with("Ready: 2/2 nodes, 13m"), "{}", done.out);
    let lines: Vec<&str> = done.err.lines().collect();
    assert!(lines.len() > 5, "{}", done.err);
    assert!(lines.iter().all(|line| line.starts_with("2026-01-01T00:")), "{}", done.err);

    let report = lab.kata_command("status -o json").await.expect(0).json();
    assert_eq!(report["apiVersion"], "cli.kata-operator.dev/v1");
    assert_eq!(report["simulated"], true);
    assert_eq!(report["config"]["readyNodeCount"], 2);
    assert_eq!(report["nodes"][1]["ready"], "True");
}

/// The screen begins anew with each version, and the ages grow without one.
#[tokio::test(start_paused = true)]
async fn a_watched_status_is_redrawn_on_a_terminal_and_appended_in_a_pipe() {
    for (place, is_redrawn) in [(Place::terminal(80), true), (Place::default(), false)] {
        let lab = Lab::new();
        lab.kata(&["worker-0"]);
        lab.ready().await;
        let (interrupt, interrupted) = watch::channel(false);
        let command = lab.run_with("status --watch", &place, interrupted);
        let deeds = async {
            lab.pass(5).await;
            lab.label("worker-1", "kata", Some("true"));
            lab.pass(30).await;
            interrupt.send_replace(true);
        };
        let (done, ()) = futures::future::join(command, deeds).await;
        let out = done.out;
        let screens: Vec<&str> = out.split("\x1b[H").collect();
        assert!(out.contains("1/1 ready") && out.contains("1/2 ready"), "{out}");
        if is_redrawn {
            assert!(screens.len() > 20 && screens[0].is_empty(), "{out}");
            assert!(screens[1..].iter().all(|it| it.starts_with("KataConfig ")), "{out}");
            let ready = "1/1 ready";
            assert!(screens[1].contains(ready) && screens[3].contains(ready), "{out}");
            let height = screens.iter().map(|it| it.lines().count()).max();
            assert!(height <= Some(24), "{out}");
            assert_ne!(screens[1], screens[3], "the ages grow");
        } else {
            assert_eq!(screens.len(), 1, "{out}");
            assert!(out.contains("\n\nKataConfig "), "{out}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_are_in_the_order_of_the_numbers_in_their_names() {
    let lab = Lab::with_workers(11);
    lab.kata(&["worker-10", "worker-2", "worker-1"]);
    lab.until("the second", |lab| lab.condition("Ready") == "False").await;
    lab.pass(60).await;
    for line in ["status -o json", "nodes -o json"] {
        let report = lab.kata_command(line).await.json();
        let nodes = report.get("nodes").unwrap_or_else(|| &report["items"]).as_array().unwrap();
        let names: Vec<&str> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["worker-1", "worker-2", "worker-10"], "{line}");
    }
    let waiting = "worker-2, worker-10 waiting: at most 1 of the pool kata-oc may be unavailable";
    lab.kata_command("status").await.says(&[waiting]);
}

#[tokio::test(start_paused = true)]
async fn the_time_left_is_told_once_a_node_is_done_and_not_before() {
    let lab = Lab::new();
    lab.kata(&["worker-0", "worker-1", "worker-2"]);
    lab.pass(120).await;
    let report = lab.kata_command("status -o json").await.expect(1).json();
    assert!(report["nodes"].as_array().unwrap().iter().all(|n| n["etaSeconds"].is_null()));
    lab.until("the first node", |lab| {
        let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
        config["status"]["kataNodes"]["readyNodeCount"] == 1
    })
    .await;
    lab.pass(30).await;
    let report = lab.kata_command("status -o json").await.expect(1).json();
    let etas: Vec<i64> = report["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|node| node["etaSeconds"].as_i64())
        .collect();
    assert_eq!(etas.len(), 2, "{report:#}");
    // The first node took about seven and a half minutes.
    assert!((300..480).contains(&etas[0]) && (700..960).contains(&etas[1]), "{etas:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_timeout_and_at_once_when_nothing_goes_on() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.fault("worker-0", "install-fails");
    let done = lab.kata_command("wait --timeout 3m").await.expect(124);
    done.says(&["timed out after 3m"]);
    let done = lab.kata_command("wait --timeout 5h").await.expect(1);
    done.says(&["Stalled NodeDegraded", "KATA2106", "fix: "]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_is_not_counted() {
    let lab = Lab::new();
    lab.kata(&["worker-0", "worker-1"]);
    lab.ready().await;
    lab.label("worker-1", "kata", None);
    for _ in 0..20 {
        let done = lab.kata_command("wait --timeout 1s").await;
        assert!(!done.out.contains("2/1"), "{}", done.out);
        lab.pass(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_turn_cannot_come_says_what_stops_all() {
    let lab = Lab::new();
    lab.kata(&["worker-0", "worker-1"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    lab.pass(60).await;
    let done = lab.kata_command("status").await.expect(1);
    let done = done.says(&["WaitingToRemove", "held up by KATA4001 PodsStillRunning"]);
    assert!(!done.out.contains("waits for its turn"), "{}", done.out);
}

/// A class that was there before is left as it is: whoever made it knows its overhead and its nodes.
#[tokio::test(start_paused = true)]
async fn a_runtime_class_of_somebody_else_is_not_told_as_ours() {
    let lab = Lab::new();
    lab.create(json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"},
        "handler": "runsc", "overhead": {"podFixed": {"memory": "99Mi"}},
    }));
    lab.kata(&["worker-0"]);
    lab.pass(60).await;
    let line =
        "RuntimeClass kata (not ours, left as it is)   handler runsc   overhead 0 CPU, 99Mi\n";
    lab.kata_command("status").await.says(&[line, "KATA1009"]);
    let report = lab.kata_command("status -o json").await.json();
    assert_eq!(report["runtimeClasses"][0]["foreign"], true, "{report}");
}

/// Whoever may not see the nodes is told so, and not that there are none.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_node_takes_the_right_to_see_it() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let read = ["get", "list", "watch"];
    lab.only_rules(&json!([
        {"apiGroups": ["kataconfiguration.openshift.io"], "resources": ["kataconfigs"], "verbs": read},
        {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": read},
    ]));
    let done = lab.kata_command("wait --for node/worker-0=Ready --timeout 5s").await.expect(5);
    let done = done.says(&["cannot wait: you may not list katanodes.kata-operator.dev"]);
    assert!(!done.err.contains("no KataConfig selects"), "{}", done.err);
}

/// A deletion that takes longer says what is left.
#[tokio::test(start_paused = true)]
async fn waiting_for_the_deletion_says_which_nodes_still_have_kata() {
    let lab = Lab::new();
    lab.kata(&["worker-0", "worker-1"]);
    lab.ready().await;
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    let done = lab.kata_command("wait --for deleted --timeout 5s").await.expect(124);
    done.says(&[
        "timed out after 5s: KataConfig cluster-kataconfig is being deleted, and 2 nodes still have Kata",
    ]);
}

/// What is not tried again by itself comes with the command that has it tried again.
#[tokio::test(start_paused = true)]
async fn what_is_given_up_comes_with_the_command_for_another_try() {
    let mut lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.fault("worker-0", "runtime-fails");
    let code = |lab: &Lab| {
        let node = lab.get(&kata_nodes(), "", "worker-0").unwrap_or_default();
        node["status"]["code"].as_str().unwrap_or_default().to_owned()
    };
    lab.until("the rollback", |lab| code(lab) == "KATA3103").await;
    let fix = async |lab: &Lab, code: &str| {
        let report = lab.kata_command("status -o json").await.expect(1).json();
        let problems = report["problems"].as_array().unwrap().clone();
        let found = problems.into_iter().find(|problem| problem["id"] == code).unwrap();
        found["fix"].as_str().unwrap().to_owned()
    };
    let retry = "run `kubectl kata retry worker-0`";
    assert_eq!(
        fix(&lab, "KATA3103").await,
        format!("Fix the cause in the message, then {retry}, or change the KataConfig.")
    );
    lab.stop_operator();
    let broken = json!({"status": {"code": "KATA3104", "message": "node worker-0: broken"}});
    lab.merge_status(&kata_nodes(), "", "worker-0", &broken);
    assert_eq!(
        fix(&lab, "KATA3104").await,
        format!(
            "Check the container runtime on the node, then {retry}: the next Job completes the rollback. A \
             second retry repeats the change."
        )
    );
    // What the command does is what helps.
    lab.clear_faults("worker-0");
    lab.kata_command("retry worker-0").await.expect(0);
    lab.start_operator();
    lab.ready().await;
}

/// A node that is unavailable anyway keeps the others waiting, and is named; if there is room for others it is
/// not what they wait for.
#[tokio::test(start_paused = true)]
async fn a_node_that_uses_up_what_may_be_unavailable_is_named() {
    use simcluster::resource::NODES;
    use simcluster::world::Platform;

    for platform in [Platform::Kubernetes, Platform::OpenShift] {
        let lab = Lab::on(platform);
        let cordon =
            |on: bool| lab.merge(&NODES, "", "worker-0", &json!({"spec": {"unschedulable": on}}));
        cordon(true);
        lab.kata(&["worker-0", "worker-1", "worker-2"]);
        lab.pass(600).await;
        let done = lab.kata_command("status").await.expect(1);
        let done = done.says(&["held up by KATA2105 NodeCordoned (worker-0)"]);
        assert!(!done.out.contains("waits for its turn"), "{}", done.out);
        let more = json!({"spec": {"rollout": {"maxUnavailable": 2}}});
        lab.merge(&kata_configs(), "", "cluster-kataconfig", &more);
        lab.until("the first node", |lab| {
            let phase = |name| lab.get(&kata_nodes(), "", name).unwrap()["status"]["phase"].clone();
            phase("worker-1") == "Installing" || phase("worker-2") == "Installing"
        })
        .await;
        let done = lab.kata_command("status").await.expect(1).says(&["waits for its turn"]);
        assert!(!done.out.contains("held up by"), "{}", done.out);
    }
}

/// A Job that the API server refuses comes in nobody's turn.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_refused_is_what_nodes_wait_for() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.refuse("write", "jobs");
    lab.kata(&["worker-0", "worker-1"]);
    lab.pass(120).await;
    let done = lab.kata_command("status").await.expect(1);
    let done = done.says(&["held up by KATA1017 WriteFailed"]);
    assert!(!done.out.contains("waits for its turn"), "{}", done.out);
}

/// The fixes of the problems with this code, which are not what the catalogue says of it.
#[track_caller]
fn own_fixes(report: &Value, code: kata_api::Code) -> Vec<String> {
    let problems = report["problems"].as_array().unwrap().iter();
    let fixes = problems.filter(|it| it["id"] == code.entry().code).map(|it| &it["fix"]);
    let fixes: Vec<String> = fixes.map(|fix| fix.as_str().unwrap().to_owned()).collect();
    assert!(!fixes.is_empty() && fixes.iter().all(|fix| fix != code.entry().fix), "{report:#}");
    fixes
}

/// The operator's own advice on an object is more than what the catalogue can say of all of them.
#[tokio::test(start_paused = true)]
async fn the_fix_is_the_operators_own_where_it_has_one() {
    // What is wrong with a pool is told by the KataConfig's conditions alone.
    let mut lab = Lab::new();
    lab.label("worker-0", "kata", Some("true"));
    lab.create(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "cluster-kataconfig"},
        "spec": {
            "kataConfigPoolSelector": {"matchLabels": {"kata": "true"}},
            "rollout": {"paused": true},
        },
    }));
    lab.until("the pool", |lab| lab.condition("Ready") == "False").await;
    lab.pass(120).await;
    let code = kata_api::Code::PoolPaused;
    let report = lab.kata_command("status -o json").await.expect(1).json();
    let fix = "Set spec.rollout.paused of the KataConfig to false.";
    assert_eq!(own_fixes(&report, code), [fix]);
    let done = lab.kata_command("wait --timeout 1h").await.expect(1);
    done.says(&[&format!("fix for {}: {fix}", code.entry().code)]);
    // Who may not see what the decision takes gets the catalogue's, and is told of no gap for that.
    lab.only_rules(&json!([
        {"apiGroups": ["kataconfiguration.openshift.io"], "resources": ["*"], "verbs": ["list"]},
        {"apiGroups": ["kata-operator.dev"], "resources": ["*"], "verbs": ["list"]},
        {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": ["list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]));
    let done = lab.kata_command("status").await.expect(1).says(&[code.entry().code]);
    assert!(!done.err.contains("not everything could be seen"), "{}", done.err);

    // What is wrong with a node is told by its KataNode.
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.fault("worker-0", "not-ready");
    lab.pass(60).await;
    lab.kata(&["worker-0"]);
    let code = kata_api::Code::NodeNotReady;
    lab.until("the finding", |lab| {
        let node = lab.get(&kata_nodes(), "", "worker-0").unwrap_or_default();
        node["status"]["code"] == code.entry().code
    })
    .await;
    let report = lab.kata_command("status -o json").await.expect(1).json();
    let own = own_fixes(&report, code).join(" ");
    // Advice that is not to be had keeps nobody from the status.
    lab.trouble(
        "list",
        "nodes",
        Fault::Status { code: 500, retry_after: None, message: None, when: When::Before },
    );
    lab.kata_command("status")
        .await
        .expect(1)
        .says(&[code.entry().code, code.entry().fix.trim_end_matches('.')]);
    assert!(
        own.ends_with(
            "to continue with the other nodes meanwhile, raise spec.rollout.maxUnavailable."
        ),
        "{own}"
    );
}

/// Who waits in front of a terminal sees what keeps all nodes waiting, too.
#[tokio::test(start_paused = true)]
async fn a_wait_on_a_terminal_shows_what_no_node_tells() {
    let lab = Lab::new();
    lab.kata(&[]);
    lab.until("the finding", |lab| lab.condition("Ready") == "False").await;
    lab.pass(5).await;
    let code = kata_api::Code::NoNodesSelected.entry().code;
    // Nothing goes on without help, as it says after it has waited for that a moment.
    let done = lab.run_at("wait --timeout 1h", &Place::terminal(80)).await.expect(1);
    assert!(done.err.contains(code), "{}", done.err);
    let drawn = done.err.replace("\x1b[2A\x1b[0J", "");
    assert!(drawn.lines().all(|line| line.chars().count() <= 80), "{drawn}");
}

/// A check that failed on a node is told once, and is as bad as the check.
#[tokio::test(start_paused = true)]
async fn a_code_within_a_nodes_message_is_not_another_problem() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.fault("worker-0", "no-kvm");
    let unfit = |lab: &Lab| {
        let node = lab.get(&kata_nodes(), "", "worker-0").unwrap_or_default();
        node["status"]["code"] == "KATA3101"
    };
    lab.until("the finding", unfit).await;
    let report = lab.kata_command("status -o json").await.expect(1).json();
    let problems = report["problems"].as_array().unwrap();
    let about: Vec<&Value> = problems
        .iter()
        .filter(|it| it["message"].as_str().unwrap().contains("/dev/kvm"))
        .map(|it| &it["id"])
        .collect();
    assert_eq!(about, ["KATA3101"], "{report:#}");
    let report = lab.kata_command("doctor -o json").await.expect(1).json();
    assert!(checks(&report, "KATA3001").is_empty(), "{report:#}");
    let found = checks(&report, "KATA3101");
    assert_eq!(found.len(), 1, "{report:#}");
    assert_eq!(
        (&found[0]["result"], &found[0]["subjects"]),
        (&json!("error"), &json!(["node/worker-0"]))
    );
    let says = "node worker-0: KATA3001: ";
    assert!(found[0]["message"].as_str().unwrap().starts_with(says), "{found:?}");
}

/// A selected node that another pool has is missed by whoever selected it, whatever else is to be said.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_left_out_is_named_beside_other_problems() {
    let lab = Lab::new();
    lab.create(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "infra"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [{
                "key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "infra"],
            }]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/infra": ""}},
        },
    }));
    lab.label("worker-2", "node-role.kubernetes.io/infra", Some(""));
    lab.kata(&["worker-0", "worker-2"]);
    lab.ready().await;
    let peer_pods = json!({"spec": {"enablePeerPods": true}});
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &peer_pods);
    lab.pass(10).await;
    let named = "node worker-2 is excluded: it belongs to the pool infra";
    lab.kata_command("status").await.expect(0).says(&["KATA1014", "KATA2102", named]);
    let done = lab.kata_command("verify --node worker-2").await.expect(1);
    assert!(!done.out.contains("does not select it"), "{}", done.out);
    done.says(&["KATA2102", named]);
    let done = lab.kata_command("wait --for node/nobody=Ready --timeout 5s").await.expect(124);
    let first = done.err.lines().next().unwrap_or_default();
    assert!(first.contains("nobody") && !done.err.contains("worker-2"), "{}", done.err);
    let done = lab.kata_command("wait --for node/worker-2=Ready --timeout 5s").await.expect(124);
    done.says(&[named]);
}
