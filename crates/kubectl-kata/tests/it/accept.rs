//! `accept`: the steps hold on both kinds of cluster, and however a run ends, the cluster is as before it or after the next one.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};

use kata_manifests::manifests;
use serde_json::json;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::{NAMESPACES, NODES, RUNTIMECLASSES, SERVICES};
use simcluster::topology::{self, Layout};
use simcluster::world::{NodeFault, Platform};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lab::{Lab, Place, kata_configs};

const LINE: &str = "accept --node worker-0 --operator-image registry.example/operator:v1 --yes";
const STEPS: [&str; 12] = [
    "before", "install", "class", "pods", "verify", "host", "settings", "payload", "blocked",
    "removal", "cleanup", "compare",
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

/// Runs it until this has ended, and no longer.
async fn killed(lab: &Lab, by: impl Future<Output = ()>, talk: &mut dyn Write) {
    let (_never, interrupted) = watch::channel(false);
    let place = Place::default();
    let mut out = Vec::new();
    tokio::select! {
        _exit = lab.run_into(LINE, &place, interrupted, &mut out, talk) => {
            panic!("{}", String::from_utf8_lossy(&out))
        }
        () = by => {}
    }
}

/// How many steps were begun, by what is said.
struct Steps<'a>(&'a Cell<usize>);

impl Write for Steps<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let next = format!("{}. ", self.0.get() + 1);
        self.0.set(self.0.get() + usize::from(bytes.starts_with(next.as_bytes())));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Killed at any step, it leaves what the next run removes, as soon as the killed one is taken for dead.
async fn is_removed_after_each_step(platform: Platform) {
    let lab = bare(platform);
    let before = everything(&lab);
    // The last one takes no time here, and there is no other payload.
    for step in 2..STEPS.len() - 1 {
        let steps = Cell::new(0);
        let begun = lab.until("the step", |_| steps.get() >= step);
        killed(&lab, begun, &mut Steps(&steps)).await;
        if lab.get(&NAMESPACES, "", "kata-accept").is_some() {
            let done = lab.kata_command(LINE).await.expect(4);
            done.says(&["refused: another run was at work"]);
            lab.pass(120).await;
        }
        lab.kata_command(LINE).await.expect(0);
        lab.pass(120).await;
        same(&before, &lab, &format!("killed in step {step}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_killed_is_removed_by_the_next_one_on_openshift() {
    is_removed_after_each_step(Platform::OpenShift).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_killed_is_removed_by_the_next_one_on_kubernetes() {
    is_removed_after_each_step(Platform::Kubernetes).await;
}

/// Interrupted at any time, it leaves nothing.
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

/// A reader that ends after some lines, as `tee` by the same Ctrl-C.
struct Reader {
    lines: usize,
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let read = bytes.iter().filter(|byte| **byte == b'\n').count();
        self.lines = self.lines.checked_sub(read).ok_or(ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// It removes what it made also if its output is read no more, and is no success then.
#[tokio::test(start_paused = true)]
async fn a_run_whose_output_is_read_no_more_leaves_nothing() {
    for platform in [Platform::OpenShift, Platform::Kubernetes] {
        let lab = bare(platform);
        let before = everything(&lab);
        for lines in [0, 8, 20, 30] {
            let (_never, interrupted) = watch::channel(false);
            let place = Place::default();
            let (mut out, mut err) = (Vec::new(), Reader { lines });
            let exit = lab.run_into(LINE, &place, interrupted, &mut out, &mut err).await;
            assert_ne!(exit.code(), 0, "{}", String::from_utf8_lossy(&out));
            lab.pass(120).await;
            same(&before, &lab, &format!("{lines} lines were read"));
        }
    }
}

/// The objects of a kind, of which the operator has so many, are tried before the question and before they are written; then this
/// happens.
fn refuse_after_the_trials(lab: &Lab, kind: &str, resource: &str, fault: Fault) {
    let options = manifests::Options::of(kata_api::platform::Platform::Kubernetes);
    let objects = manifests::objects(&options).unwrap();
    let count = objects.iter().filter(|object| object["kind"] == kind).count() as u64;
    let matches =
        Match { verb: "patch".to_owned(), resource: resource.to_owned(), ..Match::default() };
    lab.disturb(Rule::once(matches, fault).from_nth(2 * count + 1));
}

/// What another program refuses is no reason to leave the rest; and the report, which others read, has no address.
#[tokio::test(start_paused = true)]
async fn an_operator_that_is_applied_in_part_is_removed() {
    for (kind, resource) in [
        ("ClusterRole", "clusterroles"),
        ("NetworkPolicy", "networkpolicies"),
        ("Deployment", "deployments"),
    ] {
        let lab = bare(Platform::Kubernetes);
        let before = everything(&lab);
        let message = "failed calling webhook: Post \"https://hook.policy.svc:443/deny?timeout=10s\": \
                       dial tcp 10.96.0.7:443: connect: connection refused";
        let message = Some(message.to_owned());
        let fault = Fault::Status { code: 500, retry_after: None, message, when: When::Before };
        refuse_after_the_trials(&lab, kind, resource, fault);
        let done = lab.kata_command(LINE).await.expect(1);
        for address in ["hook.policy.svc", "10.96.0.7"] {
            assert!(!done.out.contains(address), "{}", done.out);
        }
        done.says(&["× NOT ACCEPTED", "failed calling webhook: Post \"https://(host)/deny"]);
        lab.pass(120).await;
        same(&before, &lab, resource);
    }
}

/// The operator's Deployment is applied last, so without it the rest must be found by another sign.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_killed_while_it_applied_the_operator_is_removed() {
    let lab = bare(Platform::Kubernetes);
    let before = everything(&lab);
    refuse_after_the_trials(&lab, "Deployment", "deployments", Fault::Hang { when: When::Before });
    let applied = lab.until("the operator's other objects", |lab| {
        lab.get(&SERVICES, "kata-operator", "kata-operator").is_some()
    });
    killed(&lab, applied, &mut io::sink()).await;
    lab.pass(120).await;
    lab.kata_command(LINE).await.expect(0).says(&["An earlier run left the operator"]);
    lab.pass(120).await;
    same(&before, &lab, "killed");
}

/// What an operator left that was removed in another way is not this command's.
#[tokio::test(start_paused = true)]
async fn objects_of_an_operator_that_is_gone_are_a_refusal() {
    let lab = bare(Platform::Kubernetes);
    lab.apply(&serde_json::to_value(kata_api::crds().remove(0)).unwrap()).await;
    let before = everything(&lab);
    lab.kata_command(LINE).await.expect(4).says(&[
        "refused: there is no operator, but 1 object of its name: CustomResourceDefinition ",
        "fix: install the operator",
    ]);
    same(&before, &lab, "refused");
}

/// Who may not remove what the run makes does not begin.
#[tokio::test(start_paused = true)]
async fn missing_permissions_are_a_refusal() {
    let mut lab = Lab::on(Platform::Kubernetes);
    lab.only_rules(&json!([{
        "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "create", "patch"],
    }]));
    let before = everything(&lab);
    lab.kata_command("accept --node worker-0 --yes").await.expect(4).says(&[
        "refused: you may not delete ",
        "delete namespaces",
        "what the run makes, it must be able to remove",
    ]);
    same(&before, &lab, "refused");
}

/// Faults of a node, as kata-sim names them.
const FAULTS: [&str; 21] = [
    "no-kvm",
    "drain-blocked",
    "reboot-hang",
    "handler-missing",
    "slow-boot=4",
    "install-fails",
    "unreconcilable",
    "boot-fails",
    "uncordon-fails",
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

/// A KataConfig that a colleague creates meanwhile stays, with the operator that it needs by then.
#[tokio::test(start_paused = true)]
async fn the_kataconfig_of_a_colleague_stays() {
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
    lab.kata_command(LINE)
        .await
        .expect(4)
        .says(&["refused: there is a namespace kata-accept without"]);
    let nothing = "accept --node worker-9 --operator-image registry.example/operator:v1 --yes";
    lab.delete(&NAMESPACES, "", "kata-accept");
    lab.pass(10).await;
    let done = lab.kata_command(nothing).await.expect(1);
    assert!(done.err.contains("there is no node worker-9"), "{}", done.err);
    // Without a terminal and --yes only the plan is shown.
    let line = LINE.replace(" --yes", "");
    let done = lab.kata_command(&line).await.expect(4);
    done.says(&["This command installs the operator and Kata on node worker-0", "refused: accept"]);
    assert!(before.iter().any(|it| it.contains("kata-accept")));
}
