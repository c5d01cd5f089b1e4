//! What the operator gave up: how it is tried again, and what a wait makes of it meanwhile.

use serde_json::{Value, json};
use simcluster::world::Platform;

use crate::lab::{Lab, kata_configs, kata_nodes};

fn code(lab: &Lab, node: &str) -> String {
    let node = lab.get(&kata_nodes(), "", node).unwrap_or_default();
    node["status"]["code"].as_str().unwrap_or_default().to_owned()
}

fn annotation(lab: &Lab, node: &str) -> Value {
    let node = lab.get(&kata_nodes(), "", node).unwrap();
    node["metadata"]["annotations"]["kata-operator.dev/retry"].clone()
}

fn fixes(report: &Value, code: &str) -> Vec<String> {
    let categories = report["categories"].as_array().cloned().unwrap_or_default();
    let mut all: Vec<Value> = report["problems"].as_array().cloned().unwrap_or_default();
    all.extend(
        categories.iter().flat_map(|category| category["checks"].as_array().unwrap().clone()),
    );
    let found = all.iter().filter(|it| it["id"] == code && it["result"] != "ok");
    found.map(|it| it["fix"].as_str().unwrap().to_owned()).collect()
}

/// What stands since before the fix is not what comes of it.
#[tokio::test(start_paused = true)]
async fn a_wait_right_after_the_fix_waits_for_what_comes_of_it() {
    for (wanted, end) in
        [("ready", "Ready: 1/1 nodes"), ("node/worker-0=Ready", "node/worker-0 has Kata")]
    {
        let lab = Lab::on(Platform::Kubernetes);
        lab.kata(&["worker-0"]);
        lab.fault("worker-0", "runtime-fails");
        lab.until("the end", |lab| lab.condition("Stalled") == "True").await;
        let wait = format!("wait --for {wanted} --timeout 1h");
        // Without a fix it does not take long.
        lab.kata_command(&wait).await.expect(1).says(&["KATA3103", ", 5s"]);
        lab.clear_faults("worker-0");
        lab.kata_command("retry worker-0 --dry-run").await.expect(0).says(&["(server dry run)"]);
        assert_eq!(annotation(&lab, "worker-0"), Value::Null);
        let done = lab.kata_command("retry node/worker-0").await.expect(0);
        done.says(&[
            "katanodes.kata-operator.dev/worker-0 will be retried",
            "wait --for node/worker-0=Ready",
        ]);
        assert!(annotation(&lab, "worker-0").is_string());
        lab.kata_command(&wait).await.expect(0).says(&[end]);
    }
}

/// The same of a change that the operator has not seen, however long that takes.
#[tokio::test(start_paused = true)]
async fn a_wait_does_not_end_with_what_was_said_of_the_change_before() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.fault("worker-0", "install-fails");
    lab.until("the end", |lab| lab.condition("Stalled") == "True").await;
    lab.stop_operator();
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &json!({"spec": {"logLevel": "debug"}}));
    for wanted in ["ready", "node/worker-0=Ready"] {
        let done = lab.kata_command(&format!("wait --for {wanted} --timeout 3m")).await.expect(124);
        done.says(&["KATA5010 the operator has not taken up generation 2"]);
    }
}

/// `doctor` has the command for another try as `status` has it, and so has what several nodes came to.
#[tokio::test(start_paused = true)]
async fn the_command_for_another_try_is_printed_by_doctor_and_for_all_nodes() {
    let lab = Lab::on(Platform::Kubernetes);
    let workers = ["worker-0", "worker-1", "worker-2"];
    for worker in workers {
        lab.fault(worker, "runtime-fails");
    }
    lab.kata(&workers);
    lab.until("the end", |lab| {
        let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
        config["status"]["conditions"].to_string().contains("KATA3111")
    })
    .await;
    let given_up: Vec<&str> =
        workers.into_iter().filter(|worker| code(&lab, worker) == "KATA3103").collect();
    assert!(given_up.len() > 1, "{given_up:?}");
    for verb in ["status", "doctor"] {
        let report = lab.kata_command(&format!("{verb} -o json")).await.expect(1).json();
        let found = fixes(&report, "KATA3103");
        for node in &given_up {
            let wanted = format!("`kubectl kata retry {node}`");
            assert!(found.iter().any(|fix| fix.contains(&wanted)), "{verb}: {found:#?}");
        }
        let found = fixes(&report, "KATA3111");
        assert!(!found.is_empty(), "{report:#}");
        assert!(
            found.iter().all(|fix| fix.contains("`kubectl kata retry --all`")),
            "{verb}: {found:#?}"
        );
    }
    let first = given_up[0];
    let all = format!("retry {first} node/{first} {}", given_up[1]);
    let done = lab.kata_command(&all).await.expect(0);
    assert_eq!(done.out.matches(" will be retried").count(), 2, "{}", done.out);
    let done = lab.kata_command("retry --all").await.expect(0);
    assert!(done.out.matches(" will be retried").count() >= given_up.len(), "{}", done.out);
}

#[tokio::test(start_paused = true)]
async fn a_retry_without_a_failed_change_changes_nothing() {
    let mut lab = Lab::on(Platform::Kubernetes);
    lab.kata_command("retry --all").await.expect(0).says(&["no node has a failed change to retry"]);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let done = lab.kata_command("retry worker-0").await.expect(0);
    done.says(&["node worker-0 has no failed change to retry: Ready"]);
    assert_eq!(annotation(&lab, "worker-0"), Value::Null);
    lab.kata_command("retry elsewhere")
        .await
        .expect(1)
        .says(&["there is no KataNode of node elsewhere"]);
    lab.kata_command("retry").await.expect(2).says(&["name a node, or give --all"]);
    lab.stop_operator();
    let failed = json!({"status": {"code": "KATA3103", "message": "node worker-0: rolled back"}});
    lab.merge_status(&kata_nodes(), "", "worker-0", &failed);
    lab.only(Some("kata-operator-view"));
    let done = lab.kata_command("retry --all").await.expect(5);
    done.says(&["you may not patch katanodes.kata-operator.dev", "kata-operator-edit"]);
}

/// `pause` stops before the next node, and `resume` goes on.
#[tokio::test(start_paused = true)]
async fn a_roll_out_is_paused_and_resumed() {
    for platform in [Platform::OpenShift, Platform::Kubernetes] {
        let lab = Lab::on(platform);
        lab.kata_command("pause").await.expect(1).says(&["there is no KataConfig to pause"]);
        lab.kata(&["worker-0", "worker-1"]);
        lab.until("the first node", |lab| {
            let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
            config["status"]["kataNodes"]["readyNodeCount"] == 1
        })
        .await;
        let paused = |lab: &Lab| {
            let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
            config["spec"]["rollout"]["paused"] == true
        };
        lab.kata_command("pause --dry-run").await.expect(0).says(&["(server dry run)"]);
        assert!(!paused(&lab));
        lab.kata_command("pause").await.expect(0).says(&["then kubectl kata resume"]);
        assert!(paused(&lab));
        // The change in progress completes, and no other begins.
        lab.pass(3_600).await;
        let ready = |lab: &Lab| {
            let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
            config["status"]["kataNodes"]["readyNodeCount"].as_u64().unwrap()
        };
        let before = ready(&lab);
        lab.kata_command("pause").await.expect(0).says(&["is paused already"]);
        let status = lab.kata_command("status").await.out;
        assert!(status.lines().next().unwrap().contains("   paused"), "{status}");
        assert!((1..=2).contains(&before));
        lab.kata_command("resume").await.expect(0).says(&["Next: kubectl kata wait"]);
        lab.ready().await;
        lab.kata_command("resume").await.expect(0).says(&["is not paused"]);
    }
}

/// On OpenShift no Job changes nodes, and a pause does not stop a deletion.
#[tokio::test(start_paused = true)]
async fn what_the_machine_config_operator_does_is_neither_retried_nor_paused_in_a_deletion() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.fault("worker-0", "install-fails");
    lab.until("the end", |lab| lab.condition("Stalled") == "True").await;
    for line in ["retry worker-0", "retry --all"] {
        let done = lab.kata_command(line).await.expect(0);
        done.says(&["the Machine Config Operator retries the change of node worker-0 by itself"]);
    }
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    let done = lab.kata_command("pause").await.expect(4);
    done.says(&[
        "refused: KataConfig cluster-kataconfig is being deleted",
        "pause the MachineConfigPool worker",
        "(simulated)",
    ]);
}

/// A node that loses Kata is not waited for until it is Ready.
#[tokio::test(start_paused = true)]
async fn the_next_command_after_a_retry_fits_what_is_retried() {
    let mut lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.stop_operator();
    let failed = json!({"status": {"code": "KATA3104", "host": {"job": {
        "name": "a", "number": 9, "action": "Remove", "outcome": "Unsafe", "failures": 1,
        "time": "2026-01-01T00:00:00Z",
    }}}});
    lab.merge_status(&kata_nodes(), "", "worker-0", &failed);
    let next = "Next: kubectl kata status -w";
    lab.kata_command("retry worker-0").await.expect(0).says(&[next]);
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    let next = "Next: kubectl kata wait --for deleted";
    lab.kata_command("retry worker-0").await.expect(0).says(&[next]);
}

/// A Job that has not started is not repeated: what keeps it is named.
#[tokio::test(start_paused = true)]
async fn a_node_whose_job_cannot_start_is_told_why_it_is_not_retried() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.fault("worker-0", "pull-fails");
    lab.until("the code", |lab| {
        let node = lab.get(&kata_nodes(), "", "worker-0").unwrap_or_default();
        node["status"]["code"] == "KATA3107"
    })
    .await;
    lab.kata_command("retry worker-0").await.expect(1).says(&[
        "node worker-0 has no failed change to retry, since its Job has not started",
        "fix: Correct spec.payload.image or the operator's image",
    ]);
    assert_eq!(annotation(&lab, "worker-0"), Value::Null);
}
