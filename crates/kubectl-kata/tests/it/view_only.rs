//! Every verb under an account that may only view: no panic, the missing permission by name, and 5
//! rather than 0.

use crate::lab::Lab;

#[tokio::test(start_paused = true)]
async fn every_verb_names_what_is_missing() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    lab.only_view();
    let lines = [
        ("status", "you may not list runtimeclasses.node.k8s.io"),
        ("wait", "you may not list runtimeclasses.node.k8s.io"),
        ("doctor", "you may not list nodes"),
        ("doctor --pre", "you may not list nodes"),
        ("verify", "you may not create jobs.batch in namespace default"),
        ("verify pod/web -n test-kata", "you may not create pods/exec in namespace test-kata"),
        ("why pod/web -n test-kata", "you may not list runtimeclasses.node.k8s.io"),
        ("pods -A", "you may not list runtimeclasses.node.k8s.io"),
        ("nodes", "you may not list nodes"),
        ("events", "you may not list runtimeclasses.node.k8s.io"),
        ("install --name other", "KATA1004"),
        ("uninstall --dry-run", "you may not list nodes"),
        ("logs pod/web -n test-kata --shim", "you may not get nodes/proxy"),
    ];
    for (line, text) in lines {
        let done = lab.kata_command(line).await;
        assert_ne!(done.code, 0, "{line}\n{}\n{}", done.out, done.err);
        let said = format!("{}{}", done.out, done.err);
        assert!(said.contains(text), "{line} does not say {text:?} ({}):\n{said}", done.code);
        assert!([1, 4, 5].contains(&done.code), "{line} ends with {}", done.code);
    }
    // What needs nothing is not touched by it.
    lab.kata_command("codes").await.expect(0);
    lab.kata_command("version --client").await.expect(0);
    lab.kata_command("version").await.expect(0);
    lab.kata_command("logs pod/web -n test-kata").await.expect(0);
}

/// What may not be seen is not taken for absent.
#[tokio::test(start_paused = true)]
async fn who_may_see_nothing_is_told_no_false_cause() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.only(None);
    let lines = [
        ("verify", "cannot tell which RuntimeClass is Kata's: you may not list kataconfigs"),
        (
            "verify --runtime-class kata",
            "cannot tell which nodes have Kata: you may not list katanodes",
        ),
        ("logs node/worker-0", "cannot find what changes node worker-0: you may not list pods in"),
    ];
    for (line, text) in lines {
        let done = lab.kata_command(line).await.expect(5).says(&[text]);
        assert!(!done.err.contains("there is no"), "{line}: {}", done.err);
    }
}

/// Kinds that the cluster does not have are not missed by whoever may not read them.
#[tokio::test(start_paused = true)]
async fn nobody_is_told_to_ask_for_kinds_that_there_are_not() {
    let mut lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.only(Some("kata-operator-view"));
    let done = lab.kata_command("doctor").await;
    let said = format!("{}{}", done.out, done.err);
    assert!(!said.contains("machineconfig"), "{said}");
}

/// The role that the manifests bring for people who look on.
#[tokio::test(start_paused = true)]
async fn the_view_role_is_told_what_it_lacks_and_not_what_the_operator_lacks() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.only(Some("kata-operator-view"));
    let done = lab.kata_command("status").await.says(&["Operator    unknown"]);
    assert!(!done.out.contains("no Deployment"), "{}", done.out);
    let done = lab.kata_command("uninstall --dry-run").await.expect(5);
    let done = done.says(&["KATA5002", "whether it would be refused is not known"]);
    assert!(!done.out.contains("KATA1016"), "{}", done.out);
    let messages: Vec<&str> = done.out.lines().filter(|line| line.contains("KATA5002 ")).collect();
    let mut once = messages.clone();
    once.dedup();
    assert_eq!(messages, once);
}
