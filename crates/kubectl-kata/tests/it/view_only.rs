//! Every verb under an account that may only look: no panic, the missing permission by name, and 5 where it
//! decides what the verb says.

use simcluster::world::Platform;

use crate::lab::Lab;

/// Commands, what they say to the role `view`, and how they end with it and with `kata-operator-cluster-view`.
const COMMANDS: [(&str, Option<&str>, u8, u8); 19] = [
    ("status", Some("you may not list runtimeclasses.node.k8s.io"), 0, 0),
    ("wait", Some("you may not list runtimeclasses.node.k8s.io"), 0, 0),
    ("nodes", Some("you may not list nodes"), 0, 0),
    ("history", Some("you may not list runtimeclasses.node.k8s.io"), 0, 0),
    ("report --file -", Some("you may not list runtimeclasses.node.k8s.io"), 0, 0),
    ("status --fail-on warning", Some("you may not list runtimeclasses.node.k8s.io"), 5, 0),
    ("pods -A", Some("you may not list runtimeclasses.node.k8s.io"), 5, 0),
    ("doctor", Some("you may not list nodes"), 5, 0),
    ("doctor --pre", Some("you may not list nodes"), 5, 0),
    ("why pod/web -n test-kata", Some("you may not list runtimeclasses.node.k8s.io"), 5, 0),
    ("uninstall --dry-run", Some("you may not list nodes"), 5, 4),
    ("install --name other", Some("KATA1004"), 4, 4),
    ("retry --all", Some("no node has a failed change to retry"), 0, 0),
    ("pause", Some("you may not patch kataconfigs"), 5, 5),
    // A probe is a Job, and a question inside a pod is an exec.
    ("verify", Some("you may not create jobs.batch in namespace default"), 5, 5),
    (
        "verify pod/web -n test-kata",
        Some("you may not create pods/exec in namespace test-kata"),
        5,
        5,
    ),
    ("logs pod/web -n test-kata --shim", Some("you may not get nodes/proxy"), 5, 5),
    ("logs pod/web -n test-kata", None, 0, 0),
    ("version", None, 0, 0),
];

/// A command ends with 5 only if what could not be read decides what it says.
#[tokio::test(start_paused = true)]
async fn a_viewer_gets_a_verdict_wherever_the_rest_does_not_decide_it() {
    let platforms = [Platform::OpenShift, Platform::Kubernetes];
    for (role, column) in [("view", 0), ("kata-operator-cluster-view", 1)] {
        for platform in platforms {
            let mut lab = Lab::on(platform);
            lab.kata(&["worker-0"]);
            lab.ready().await;
            lab.pod("web", Some("kata"));
            lab.phase("web", "Running").await;
            lab.only(Some(role));
            let mut wrong = Vec::new();
            for (line, text, with_view, with_cluster_view) in COMMANDS {
                let done = lab.kata_command(line).await;
                let said = format!("{}{}", done.out, done.err);
                let expected = [with_view, with_cluster_view][column];
                if done.code != expected {
                    wrong.push(format!("{line} ends with {}, not {expected}:\n{said}", done.code));
                }
                if column == 0 && text.is_some_and(|text| !said.contains(text)) {
                    wrong.push(format!("{line} does not say {text:?}:\n{said}"));
                }
                // The operator may read what the caller may not.
                if said.contains(" meanwhile") {
                    wrong.push(format!("{line} says what is false:\n{said}"));
                }
                if column == 1 && expected == 0 && said.contains("not everything could be seen") {
                    wrong.push(format!("{line} lacks a permission:\n{said}"));
                }
            }
            assert!(wrong.is_empty(), "{role} {platform:?}:\n{}", wrong.join("\n"));
        }
    }
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
    let mut lab = Lab::on(Platform::Kubernetes);
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

/// A user who may list pods and not RuntimeClasses does not read that a sandboxed pod is an ordinary one.
#[tokio::test(start_paused = true)]
async fn pods_of_classes_that_may_not_be_seen_are_not_called_ordinary() {
    let mut lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.pod("plain", None);
    lab.phase("web", "Running").await;
    lab.phase("plain", "Running").await;
    lab.only_rules(&serde_json::json!([
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]},
    ]));
    let unseen = "you may not list kataconfigs.kataconfiguration.openshift.io, you may not list \
                  runtimeclasses.node.k8s.io";
    let lines = [
        (
            "why pod/web -n test-kata",
            "cannot tell whether pods of RuntimeClass kata run in virtual machines",
        ),
        ("pods -n test-kata", "cannot tell whether 1 pod with a RuntimeClass is sandboxed"),
        ("pods -n test-kata web", "cannot tell whether 1 pod with a RuntimeClass is sandboxed"),
    ];
    for (line, text) in lines {
        let done = lab.kata_command(line).await.expect(5).says(&[text, unseen]);
        let said = format!("{}{}", done.out, done.err);
        for wrong in ["not sandboxed", "No sandboxed pods", "there is no"] {
            assert!(!said.contains(wrong), "{line}: {said}");
        }
    }
    let json = lab.kata_command("pods -n test-kata -o json").await.expect(5).json();
    assert!(json["unknown"].as_str().unwrap().starts_with("cannot tell"), "{json}");
    // That it has no class says it all.
    let done = lab.kata_command("why pod/plain -n test-kata").await.expect(1);
    done.says(&["KATA5101", "spec.runtimeClassName is not set"]);
}
