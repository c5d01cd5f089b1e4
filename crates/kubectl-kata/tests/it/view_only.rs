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
