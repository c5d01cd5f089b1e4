//! The console blocks of README and of docs/try.md, run line by line, so that they stay true.

use std::collections::BTreeMap;
use std::io::Read as _;

use crate::kubectl_process::{Hand, command, repository, run};

/// The lines of each console block of a page.
fn console_blocks(page: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let mut blocks = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("```console\n") {
        let (block, after) = after.split_once("```").unwrap();
        blocks.push(block.lines().map(str::to_owned).collect());
        rest = after;
    }
    blocks
}

/// What the output of each line by hand must contain.
fn expectations() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("kubectl get nodes", ["control-plane-0", "worker-0", "worker-2"].as_slice()),
        ("kubectl get mcp", &["master", "worker"]),
        ("kubectl label node worker-0 kata=true", &["worker-0"]),
        ("kubectl apply -f examples/kataconfig.yaml", &["cluster-kataconfig"]),
        ("kubectl get kataconfig -w", &["cluster-kataconfig"]),
        (
            "kubectl wait --for=condition=Ready kataconfig/cluster-kataconfig --timeout=120s",
            &["condition met"],
        ),
        ("kubectl describe kataconfig cluster-kataconfig", &["AllNodesReady", "worker-0"]),
        (
            "kubectl get runtimeclass kata -o yaml",
            &["handler: kata", "katacontainers.io/kata-runtime: \"true\"", "memory: 350Mi"],
        ),
        (
            "kubectl apply -f examples/namespace.yaml -f examples/pod-regular.yaml \
             -f examples/pod-kata.yaml",
            &["test-kata", "example-net-tools-regular", "example-net-tools-kata"],
        ),
        ("kubectl wait -n test-kata --for=condition=Ready pod --all", &["condition met"]),
        ("kubectl exec -n test-kata example-net-tools-kata -- cat /proc/uptime", &["."]),
        ("kubectl exec -n test-kata example-net-tools-regular -- cat /proc/uptime", &["."]),
        ("kubectl delete kataconfig cluster-kataconfig --wait=false", &["cluster-kataconfig"]),
        (
            "kubectl get kataconfig cluster-kataconfig -o wide",
            &["KATA4001", "test-kata/example-net-tools-kata"],
        ),
        ("kubectl delete -n test-kata pod example-net-tools-kata", &["example-net-tools-kata"]),
        (
            "kubectl wait --for=delete kataconfig/cluster-kataconfig --timeout=180s",
            &["condition met"],
        ),
    ])
}

#[test]
fn the_two_commands_are_as_promised() {
    let blocks = console_blocks("README.md");
    assert_eq!(blocks.len(), 2, "{blocks:?}");
    let arguments = blocks[0][0].strip_prefix("cargo run --bin kata-sim -- ").unwrap();
    assert_eq!(blocks[0].len(), 1);
    let mut walkthrough = command(env!("CARGO_BIN_EXE_kata-sim"));
    run(walkthrough.args(arguments.split_whitespace())).good();
    assert_eq!(blocks[1], ["cargo test --workspace"]);
}

#[test]
#[ignore = "needs kubectl"]
fn the_lines_by_hand_do_what_they_say() {
    let blocks = console_blocks("docs/try.md");
    let [start] = blocks[0].as_slice() else { panic!("{:?}", blocks[0]) };
    let start = start.strip_prefix("cargo run --bin kata-sim -- ").unwrap();
    let kubeconfig = start.split_whitespace().skip_while(|word| *word != "--kubeconfig").nth(1);
    let kubeconfig = kubeconfig.unwrap();
    let start = start.replace(&format!(" --kubeconfig {kubeconfig}"), "");
    let start: Vec<&str> = start.split_whitespace().collect();
    let (export, lines) = blocks[1].split_first().unwrap();
    assert_eq!(*export, format!("export KUBECONFIG={kubeconfig}"));
    let mut expected = expectations();
    let hand = Hand::start("readme", &start);
    let mut watches = Vec::new();
    for line in lines {
        let wanted = expected.remove(line.as_str()).unwrap_or_else(|| panic!("new: {line}"));
        let words = line.strip_prefix("kubectl ").unwrap();
        if words.ends_with(" -w") {
            watches.push((hand.watching(words), wanted));
            continue;
        }
        contains(line, &hand.kubectl(words).good(), wanted);
        if words.starts_with("delete kataconfig") {
            // Who types is slower than the operator.
            let blocked = "wait --for=condition=DeletionBlocked kataconfig --all --timeout=120s";
            hand.kubectl(blocked).good();
        }
    }
    for (mut watch, wanted) in watches {
        watch.kill().unwrap();
        watch.wait().unwrap();
        let mut text = String::new();
        watch.stdout.unwrap().read_to_string(&mut text).unwrap();
        contains("-w", &text, wanted);
        let lines = text.lines().filter(|line| line.starts_with("cluster-kataconfig")).count();
        assert!(lines > 3, "{text}");
    }
    let left = hand.kubectl("get kata,runtimeclass -o name").good();
    assert_eq!(left, "");
    assert!(expected.is_empty(), "docs/try.md does not have: {expected:?}");
}

#[track_caller]
fn contains(line: &str, output: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert!(output.contains(wanted), "{line} does not print {wanted:?}:\n{output}");
    }
}
