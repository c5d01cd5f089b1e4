//! `accept`: the steps hold on both kinds of cluster, and however a run ends, the cluster is as before it or after the next one.

use std::collections::BTreeSet;

use serde_json::json;
use simcluster::resource::{NODES, RUNTIMECLASSES};
use simcluster::topology::{self, Layout};
use simcluster::world::{NodeFault, Platform};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lab::{Lab, Place, kata_configs};

const LINE: &str = "accept --node worker-0 --operator-image registry.example/operator:v1 --yes";
const STEPS: [&str; 12] = [
    "before",
    "install",
    "class",
    "pods",
    "verify",
    "host",
    "second-class",
    "payload",
    "blocked",
    "removal",
    "cleanup",
    "compare",
];

/// A cluster without anything of ours, beside which the operator waits for its kinds.
fn bare(platform: Platform) -> Lab {
    let mut lab = Lab::bare(&Layout { platform, ..Layout::default() });
    lab.start_operator();
    lab
}

/// All objects but those that come and go by themselves, and how nodes look.
fn everything(lab: &Lab) -> BTreeSet<String> {
    let own_life = ["events", "leases"];
    lab.cluster.with(|simulation, _| {
        let kinds: Vec<_> = simulation.api.registry.iter().map(|it| it.resource.clone()).collect();
        let mut found = BTreeSet::new();
        for kind in kinds.iter().filter(|kind| !own_life.contains(&kind.plural.as_ref())) {
            for object in simulation.api.list(kind) {
                let metadata = &object["metadata"];
                let mut text = format!("{kind} {}/{}", metadata["namespace"], metadata["name"]);
                if *kind == NODES {
                    let taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
                    text.push_str(&format!(" {} {taints:?}", metadata["labels"]));
                }
                found.insert(text);
            }
        }
        for (name, host) in &simulation.world.hosts {
            for (path, text) in &host.files {
                found.insert(format!("{name}:{path} {text}"));
            }
        }
        found
    })
}

#[track_caller]
fn same(before: &BTreeSet<String>, lab: &Lab, when: &str) {
    let after = everything(lab);
    let differences: Vec<&String> = before.symmetric_difference(&after).collect();
    assert!(differences.is_empty(), "{when}: {differences:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_accepted_and_left_as_it_was() {
    for platform in [Platform::OpenShift, Platform::Kubernetes] {
        let lab = bare(platform);
        let before = everything(&lab);
        let page = format!("{}/accept.html", env!("CARGO_TARGET_TMPDIR"));
        let more = format!("--second-payload-image registry.example/kata:4.2.0 --report {page}");
        let report = lab.kata_command(&format!("{LINE} {more} -o json")).await.expect(0).json();
        assert_eq!(report["success"], true, "{report:#}");
        assert!(!report.to_string().contains("lab.example"), "{report:#}");
        let steps: Vec<&str> = report["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["id"].as_str().unwrap())
            .collect();
        assert_eq!(steps, STEPS);
        for step in report["steps"].as_array().unwrap() {
            assert_ne!(step["facts"], json!([]), "{step:#}");
        }
        assert!(report["environment"]["vmm"].as_str().unwrap().contains("qemu"), "{report:#}");
        let page = std::fs::read_to_string(page).unwrap();
        for text in ["Accepted: every fact held.", "This cluster is simulated", "v1.34.0"] {
            assert!(page.contains(text), "no {text} in {page}");
        }
        // It is to be sent to others.
        assert!(!page.contains("lab.example"), "{page}");
        same(&before, &lab, "after the proof");
        lab.kata_command(LINE).await.expect(0).says(&["ACCEPTED  node worker-0", "(simulated)"]);
        same(&before, &lab, "after another one");
    }
}

/// A cluster of one node has no other one.
#[tokio::test(start_paused = true)]
async fn a_node_of_the_control_plane_is_accepted_too() {
    let lab = bare(Platform::Kubernetes);
    let line = LINE.replace("worker-0", "control-plane-0");
    lab.kata_command(&line).await.expect(0).says(&["ACCEPTED  node control-plane-0"]);
}

/// An operator and a RuntimeClass that were there stay.
#[tokio::test(start_paused = true)]
async fn what_was_there_stays() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.create(json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"}, "handler": "runsc",
    }));
    let before = everything(&lab);
    lab.kata_command("accept --node worker-0 --yes").await.expect(0);
    same(&before, &lab, "after the proof");
    assert!(lab.get(&RUNTIMECLASSES, "", "gvisor").is_some());
}

/// Killed at any time, it leaves what the next run removes; interrupted, it leaves nothing.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_killed_is_removed_by_the_next_one() {
    for platform in [Platform::OpenShift, Platform::Kubernetes] {
        let lab = bare(platform);
        let before = everything(&lab);
        let begun = Instant::now();
        lab.kata_command(LINE).await.expect(0);
        let whole = begun.elapsed();
        for part in [1, 2, 4, 6, 8, 9] {
            let (_never, interrupted) = watch::channel(false);
            let place = Place::default();
            let killed_at = Instant::now() + whole * part / 10;
            tokio::select! {
                done = lab.run_with(LINE, &place, interrupted) => panic!("{}", done.err),
                () = tokio::time::sleep_until(killed_at) => {}
            }
            lab.kata_command(LINE).await.expect(0);
            lab.pass(120).await;
            same(&before, &lab, &format!("killed at {part} of 10"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_interrupted_leaves_nothing() {
    for platform in [Platform::OpenShift, Platform::Kubernetes] {
        let lab = bare(platform);
        let before = everything(&lab);
        let begun = Instant::now();
        lab.kata_command(LINE).await.expect(0);
        let whole = begun.elapsed();
        for part in [2, 5, 8] {
            let (interrupt, interrupted) = watch::channel(false);
            let place = Place::default();
            let at = Instant::now() + whole * part / 10;
            let ctrl_c = async {
                tokio::time::sleep_until(at).await;
                interrupt.send_replace(true);
                std::future::pending::<()>().await;
            };
            let done = tokio::select! {
                done = lab.run_with(LINE, &place, interrupted) => done,
                () = ctrl_c => unreachable!(),
            };
            assert!(matches!(done.code, 0 | 130), "{}", done.err);
            lab.pass(120).await;
            same(&before, &lab, &format!("interrupted at {part} of 10"));
        }
    }
}

/// Faults of a node, as kata-sim names them. Not `uncordon-fails`: after it the simulated daemon goes back to the configuration
/// before without a reboot, so the node keeps the handler, and nothing in the API asks for more.
const FAULTS: [&str; 20] = [
    "no-kvm",
    "drain-blocked",
    "reboot-hang",
    "handler-missing",
    "slow-boot=4",
    "install-fails",
    "unreconcilable",
    "boot-fails",
    "drift",
    "sandbox-fails",
    "not-ready",
    "disk-pressure",
    "network-unavailable",
    "kubelet-restart",
    "runtime-fails",
    "disk-full",
    "pull-fails",
    "agent-killed",
    "payload-damaged",
    "reboot-held",
];

/// Under each fault a run ends, and once the fault is gone the next one leaves the cluster as it was.
async fn ends_under_each_fault(platform: Platform) {
    let mut outcomes = Vec::new();
    for fault in FAULTS {
        let parsed: NodeFault = fault.parse().unwrap();
        if parsed.only_on().is_some_and(|only| only != platform) {
            continue;
        }
        let lab = bare(platform);
        let before = everything(&lab);
        lab.cluster.with(|sim, _| topology::set_fault(sim, "worker-0", parsed)).unwrap();
        let done = lab.kata_command(&format!("{LINE} --timeout 30m")).await;
        assert!(matches!(done.code, 0 | 1), "{fault}: {}{}", done.out, done.err);
        outcomes.push((fault, done.code));
        lab.cluster.with(|sim, _| topology::clear_fault(sim, "worker-0", None)).unwrap();
        lab.pass(600).await;
        let again = lab.kata_command(LINE).await;
        assert_eq!(again.code, 0, "{fault}: {}{}", again.out, again.err);
        lab.pass(120).await;
        same(&before, &lab, fault);
    }
    // A fault that changes nothing would show nothing.
    assert!(outcomes.iter().filter(|(_, code)| *code == 1).count() > 5, "{outcomes:?}");
}

#[tokio::test(start_paused = true)]
async fn no_fault_of_a_node_makes_it_leave_something_on_openshift() {
    ends_under_each_fault(Platform::OpenShift).await;
}

#[tokio::test(start_paused = true)]
async fn no_fault_of_a_node_makes_it_leave_something_on_kubernetes() {
    ends_under_each_fault(Platform::Kubernetes).await;
}

/// A node whose change fails is named with the reason, and is as before.
#[tokio::test(start_paused = true)]
async fn what_does_not_work_is_said_and_removed() {
    let lab = bare(Platform::Kubernetes);
    let before = everything(&lab);
    lab.fault("worker-0", "runtime-fails");
    let done = lab.kata_command(&format!("{LINE} --timeout 20m")).await.expect(1);
    done.says(&["× NOT ACCEPTED", "KataConfig kata-accept is Ready: ", "worker-0"]);
    lab.clear_faults("worker-0");
    lab.pass(120).await;
    same(&before, &lab, "after a failure");
}

/// A KataConfig that somebody else creates meanwhile stays, with the operator that it needs by then.
#[tokio::test(start_paused = true)]
async fn the_kataconfig_of_somebody_else_stays() {
    let lab = bare(Platform::Kubernetes);
    let (_never, interrupted) = watch::channel(false);
    let place = Place::default();
    let colleague = async {
        lab.until("the KataConfig of the proof", |lab| {
            lab.get(&kata_configs(), "", "kata-accept").is_some()
        })
        .await;
        lab.kata(&["worker-1"]);
        std::future::pending::<()>().await;
    };
    let done = tokio::select! {
        done = lab.run_with(LINE, &place, interrupted) => done,
        () = colleague => unreachable!(),
    };
    assert_ne!(done.code, 0, "{}{}", done.out, done.err);
    assert!(lab.get(&kata_configs(), "", "cluster-kataconfig").is_some());
    lab.ready().await;
    lab.kata_command("accept --node worker-0 --yes")
        .await
        .expect(4)
        .says(&["refused: there is KataConfig cluster-kataconfig"]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_in_use_is_refused() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let before = everything(&lab);
    let done = lab.kata_command("accept --node worker-0 --yes").await.expect(4);
    done.says(&[
        "refused: there is KataConfig cluster-kataconfig",
        "fix: prove what is installed by",
    ]);
    same(&before, &lab, "refused");

    let lab = bare(Platform::Kubernetes);
    lab.namespace("kata-accept");
    let before = everything(&lab);
    lab.kata_command(LINE).await.expect(4).says(&["refused: namespace kata-accept is there"]);
    let nothing = "accept --node worker-9 --operator-image registry.example/operator:v1 --yes";
    lab.delete(&simcluster::resource::NAMESPACES, "", "kata-accept");
    lab.pass(10).await;
    let done = lab.kata_command(nothing).await.expect(1);
    assert!(done.err.contains("there is no node worker-9"), "{}", done.err);
    // Without a terminal and --yes only the plan is shown.
    let line = LINE.replace(" --yes", "");
    let done = lab.kata_command(&line).await.expect(4);
    done.says(&["This command installs the operator and Kata on node worker-0", "refused: accept"]);
    assert!(before.iter().any(|it| it.contains("kata-accept")));
}
