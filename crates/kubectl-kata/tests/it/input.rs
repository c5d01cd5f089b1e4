//! Bad input: a clear error that names object, cause and fix, at once, and the exit code of what it is.

use simcluster::api::fault::{Fault, When};

use crate::lab::Lab;

#[tokio::test(start_paused = true)]
async fn what_is_mistyped_is_named() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let begin = lab.cluster.now();
    for (line, code, texts) in [
        ("why web/x", 2, ["web/x cannot be explained", "deployment/NAME"].as_slice()),
        ("doctor -f /dev/zero", 2, &["/dev/zero is longer than 3 MiB"]),
        ("why pod/", 2, &["pod/ cannot be explained"]),
        ("why pod/x", 1, &["there is no pod x in namespace default", "why deployment/NAME"]),
        ("verify --node nobody", 1, &["there is no node nobody; there are "]),
        (
            "verify --node worker-1",
            1,
            &["node worker-1 has no Kata: the KataConfig does not select it", "give it the labels"],
        ),
        (
            "verify --node control-plane-0",
            1,
            &["node control-plane-0 has no Kata: it belongs to the control plane"],
        ),
        ("verify pod/", 2, &["verify pod/: name the pod, as pod/NAME"]),
        (
            "verify --runtime-class nope --node worker-0",
            1,
            &["there is no RuntimeClass nope, so no pod can use it; there are kata"],
        ),
        ("logs pod/", 2, &["logs pod/: a name is missing"]),
        ("logs node/", 2, &["logs node/: a name is missing"]),
        ("verify deploy/x", 2, &["verify pod/NAME, not a deploy"]),
        ("logs node/nobody", 1, &["there is no node nobody: see `kubectl kata nodes`"]),
        ("logs deploy/x", 2, &["give operator, pod/NAME or node/NAME"]),
        ("pods nobody", 1, &["there is no sandboxed pod nobody in namespace default"]),
        ("pods pod/nobody -A", 1, &["there is no sandboxed pod pod/nobody"]),
        (
            "nodes worker-0 worker-1",
            1,
            &["worker-0   Ready", "there is no node with Kata worker-1"],
        ),
        ("install --dry-run --max-unavailable 0", 2, &["--max-unavailable 0: give a number"]),
        ("install --dry-run --max-unavailable 101%", 2, &["a percentage from 1% to 100%"]),
        ("install --dry-run --max-unavailable many", 2, &["--max-unavailable many: give a number"]),
        ("install --dry-run --node-selector a=b=c", 2, &["write labels as KEY=VALUE"]),
        ("install --dry-run --node-selector =b", 2, &["write labels as KEY=VALUE"]),
        ("install --dry-run=client -o short", 2, &["`kubectl kata install` prints table"]),
        ("schema PodLists", 2, &["schema PodLists: no such kind; there are StatusReport, PodList"]),
        ("codes KATA9999", 2, &["there is no code KATA9999"]),
        ("wait --for pods", 2, &["node/NAME=Ready"]),
        ("status -o markdown", 2, &["`kubectl kata status` prints table"]),
        ("logs operator -o json", 2, &["`kubectl kata logs` prints table"]),
    ] {
        lab.kata_command(line).await.expect(code).says(texts);
    }
    // Nothing of this waits for anything.
    assert!(lab.cluster.now().duration_since(begin).as_secs() < 5);
    let done = lab.kata_command("wait --for node/nobody=Ready --timeout 5s").await.expect(124);
    // At the beginning, and not only when the time is over.
    let first = done.err.lines().next().unwrap_or_default();
    assert!(first.contains("Z there is no node nobody (simulated)"), "{first}");
    done.says(&["timed out after 5s: there is no node nobody"]);
    let line = "wait --for node/control-plane-0=Ready --timeout 5s";
    let done = lab.kata_command(line).await.expect(124);
    done.says(&["timed out after 5s: no KataConfig selects a node control-plane-0"]);
    let done = lab.kata_command("wait --for deleted --timeout 5s").await.expect(124);
    done.says(&[
        "Z KataConfig cluster-kataconfig is not being deleted: `kubectl kata uninstall`",
        "timed out after 5s: KataConfig cluster-kataconfig is not being deleted",
    ]);
    let done = lab.kata_command("status -o name").await.expect(0);
    assert_eq!(
        (done.out.as_str(), done.err.as_str()),
        ("kataconfig/cluster-kataconfig\n", "(simulated)\n")
    );
    lab.kata_command("pods").await.expect(0).says(&["namespace. (simulated)"]);
    let done = lab.kata_command("install --dry-run=client --max-unavailable 25%").await.expect(0);
    done.says(&["maxUnavailable: 25%"]);
    lab.undeploy();
    lab.kata_command("version").await.expect(0).says(&["no Deployment kata-operator in"]);
}

/// What clap itself refuses is said in its way, with what to write.
#[test]
fn what_is_no_number_of_lines_is_told_so() {
    use clap::Parser as _;

    let words = ["kubectl-kata", "logs", "pod/a", "--tail", "abc"];
    let error = kubectl_kata::arguments::Arguments::try_parse_from(words).unwrap_err().to_string();
    assert!(error.contains("\"abc\" is no number of lines: write 100"), "{error}");
    assert!(!error.contains("invalid digit"), "{error}");
}

/// An API server that does not answer is not waited for longer than was said, and that is said.
#[tokio::test(start_paused = true)]
async fn a_limit_that_ran_out_is_named() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.trouble("list", "kataconfigs", Fault::Hang { when: When::Before });
    let begin = lab.cluster.now();
    for (limit, words) in
        [(" --request-timeout 5s", "5 s"), (" --request-timeout 500ms", "500 ms"), ("", "30 s")]
    {
        let done = lab.kata_command(&format!("status{limit}")).await.expect(3);
        done.says(&[&format!(
            "error: cannot list kataconfigs.kataconfiguration.openshift.io: no answer within {words} \
             (--request-timeout)"
        )]);
    }
    let waited = lab.cluster.now().duration_since(begin).as_secs();
    assert!((35..40).contains(&waited), "{waited}");
}
