//! Real helm on the simulated cluster: the chart comes, refuses to go while a KataConfig is there, and goes.

use crate::kubectl_process::{Ended, Hand, command, named_helm, repository, run};

const NAMESPACE: &str = "kata-operator";

#[test]
#[ignore = "needs kubectl and helm"]
fn the_chart_goes_only_when_no_kataconfig_is_left() {
    let program = named_helm();
    let arguments = ["up", "--no-operator", "--platform", "kubernetes"];
    let hand = Hand::start("helm", &arguments);
    let helm = |words: &str| -> Ended {
        let mut helm = command(&program);
        helm.env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &hand.up.directory)
            .env("KUBECONFIG", &hand.up.kubeconfig)
            .args(words.split_whitespace());
        run(&mut helm)
    };
    let chart = repository().join("deploy/helm/kata-operator");
    // What `kata-sim up` brings for an operator beside the cluster would not be the release's.
    hand.kubectl("delete crd --all").good();
    hand.kubectl("delete priorityclass kata-operator-check").good();
    hand.kubectl(&format!("delete namespace {NAMESPACE}")).good();
    helm(&format!(
        "install kata {} --namespace {NAMESPACE} --create-namespace --set platform=kubernetes \
         --set image.repository=x.example/kata-operator",
        chart.display()
    ))
    .good();
    hand.kubectl("apply -f examples/kataconfig.yaml").good();

    let refused = helm(&format!("uninstall kata --namespace {NAMESPACE} --timeout 60s"));
    assert_ne!(refused.code, Some(0), "{refused:#?}");
    assert!(!refused.stderr.contains("timed out"), "{refused:#?}");
    assert!(refused.stderr.contains("kata-operator-delete-kataconfig-first"), "{refused:#?}");
    let path = "jsonpath={.items[*].status.containerStatuses[*].state.terminated.message}";
    let said = hand.with(&format!("get pods -n {NAMESPACE} -o"), path).good();
    assert!(said.contains("KataConfig cluster-kataconfig still exists"), "{said}");
    hand.kubectl(&format!("get deployment kata-operator -n {NAMESPACE}")).good();

    hand.kubectl("delete kataconfig --all").good();
    helm(&format!("uninstall kata --namespace {NAMESPACE} --timeout 60s")).good();
    hand.kubectl(&format!("get deployment kata-operator -n {NAMESPACE}")).bad();
}
