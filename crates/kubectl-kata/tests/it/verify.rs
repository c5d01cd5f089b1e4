//! `verify`: probes on nodes, and single pods.

use std::time::Duration;

use serde_json::{Value, json};
use simcluster::api::fault::{Fault, When};
use simcluster::resource::{JOBS, PODS};
use tokio::sync::watch;

use crate::lab::{Lab, Place};

/// How many Jobs and pods of probes there are.
fn probes(lab: &Lab) -> usize {
    lab.cluster.with(|sim, _| {
        let all = sim.api.list(&JOBS).into_iter().chain(sim.api.list(&PODS));
        all.filter(|it| it["metadata"]["labels"]["kata-operator.dev/verify"].is_string()).count()
    })
}

#[tokio::test(start_paused = true)]
async fn nodes_are_proven_to_isolate_and_nothing_stays() {
    let lab = Lab::new();
    lab.kata(&["worker-0", "worker-1"]);
    lab.ready().await;
    let done = lab.kata_command("verify --node worker-0").await.expect(0);
    let done = done.says(&[
        "SIGNAL",
        "boot id",
        "own kernel (deciding)",
        "guest command line",
        "born with the pod",
        "size of a VM",
        "equal by design on RHCOS",
        "reported by the node",
        "√ node/worker-0  ISOLATED   5 of 5 signals",
        "(simulated)",
    ]);
    drop(done);
    lab.pass(5).await;
    assert_eq!(probes(&lab), 0);
    lab.kata_command("verify").await.expect(0).says(&["2 of 2 isolated (simulated)"]);
    let report = lab.kata_command("verify -o json --node worker-1").await.expect(0).json();
    assert_eq!(report["verdicts"][0]["result"], "isolated");
    assert_eq!(report["simulated"], true);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_start_virtual_machines_fails() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.fault("worker-0", "no-kvm");
    let done = lab.kata_command("verify --timeout 30s").await.expect(1);
    done.says(&["KATA5103", "KATA5212", "KVM"]);
    lab.until("the end of the probes", |lab| probes(lab) == 0).await;
    lab.kata_command("verify --timeout 10s --keep").await.expect(1);
    assert!(probes(&lab) > 0, "--keep keeps what failed");
    // What is kept, and what a lost connection leaves behind, ends and vanishes by itself.
    lab.cluster.with(|sim, _| {
        for job in sim.api.list(&JOBS) {
            assert_eq!(job["spec"]["activeDeadlineSeconds"], 310);
            assert_eq!(job["spec"]["ttlSecondsAfterFinished"], 60);
        }
    });
    lab.pass(600).await;
    assert_eq!(probes(&lab), 0, "both probes have ended and are gone");
}

/// Runs a command that is interrupted while its probes are there.
async fn interrupted(lab: &Lab, line: &str, look: impl Fn(&Lab)) {
    let (interrupt, interrupted) = watch::channel(false);
    let place = Place::default();
    let command = lab.run_with(line, &place, interrupted);
    let ctrl_c = async {
        let soon = tokio::time::Instant::now() + Duration::from_millis(500);
        tokio::time::sleep_until(soon).await;
        assert!(probes(lab) > 0);
        look(lab);
        interrupt.send_replace(true);
        std::future::pending::<()>().await;
    };
    let done = tokio::select! {
        done = command => done,
        () = ctrl_c => unreachable!(),
        () = tokio::time::sleep_until(tokio::time::Instant::now() + Duration::from_secs(60)) => {
            panic!("it does not end")
        }
    };
    let said = "interrupted: deleting the probes; after a second interrupt they stay until they end (simulated)\n\
                interrupted; the probes are deleted (simulated)\n";
    assert_eq!(done.expect(130).err, said);
    lab.until("the end of the probes", |lab| probes(lab) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_verification_leaves_nothing() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    interrupted(&lab, "verify --timeout 10m", |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn what_reads_a_node_writes_nothing_and_leaves_nothing() {
    use simcluster::world::Platform::{Kubernetes, OpenShift};
    // On OpenShift the operator's namespace is restricted, and everywhere else privileged.
    for (platform, kind, namespace) in
        [(OpenShift, &PODS, "default"), (Kubernetes, &JOBS, "kata-operator")]
    {
        let lab = Lab::on(platform);
        lab.kata(&["worker-0"]);
        lab.ready().await;
        lab.pod("web", Some("kata"));
        lab.phase("web", "Running").await;
        let look = |lab: &Lab| {
            let all = lab.cluster.with(|simulation, _| simulation.api.list(kind));
            let ours =
                |it: &Value| it["metadata"]["labels"]["kata-operator.dev/verify"].is_string();
            let found = all.iter().find(|it| ours(it)).unwrap();
            assert_eq!(found["metadata"]["namespace"], namespace);
            assert_harmless(found);
        };
        interrupted(&lab, "verify pod/web -n test-kata --host --timeout 10m", look).await;
    }
}

/// The two pods exactly as the usual guide prints them: the "kata" pod lacks the field.
#[tokio::test(start_paused = true)]
async fn the_guides_kata_pod_is_found_not_to_be_sandboxed() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("test-kata");
    for name in ["example-net-tools-regular", "example-net-tools-kata"] {
        lab.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "test-kata"},
            "spec": {
                "nodeSelector": {"kata": "true"},
                "containers": [{
                    "name": name, "image": "quay.io/rcarrata/net-toolbox:latest",
                    "command": ["/bin/bash", "-c", "sleep 99999999999"],
                }],
            },
        }));
    }
    lab.phase("example-net-tools-kata", "Running").await;
    let done = lab.kata_command("verify pod/example-net-tools-kata -n test-kata").await.expect(1);
    done.says(&[
        "× pod/example-net-tools-kata  NOT SANDBOXED",
        "KATA5101",
        "spec.runtimeClassName is not set",
        "add `runtimeClassName: kata` under spec",
    ]);
    let done = lab.kata_command("verify pod/nobody -n test-kata").await.expect(1);
    done.says(&["there is no pod nobody in namespace test-kata"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_asked_is_inconclusive() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    let done = lab.kata_command("verify pod/web -n test-kata").await.expect(5);
    done.says(&["KATA5104"]);
    lab.phase("web", "Running").await;
    // Commands need a connection, which an API server in this process does not offer.
    let done = lab.kata_command("verify pod/web -n test-kata").await.expect(5);
    done.says(&["KATA5102", "INCONCLUSIVE"]);
}

/// Over HTTP, in real time: the pod's own kernel is asked.
#[tokio::test]
async fn a_sandboxed_pod_says_by_itself_that_it_has_its_own_kernel() {
    let mut lab = Lab::new();
    lab.cluster.with(|simulation, _| simulation.set_speed(2_000.0));
    lab.kata(&["worker-0"]);
    lab.ready_in_real_time().await;
    lab.pod("web", Some("kata"));
    lab.pod("plain", None);
    lab.serve().await;
    lab.phase("web", "Running").await;
    lab.phase("plain", "Running").await;
    let narrow = Place::terminal(80);
    let done = lab.run_at("verify pod/web -n test-kata", &narrow).await.expect(0);
    let done = done.says(&[
        "own kernel (deciding)",
        "shown, not compared",
        "not older than the pod",
        "size of a VM",
        "reported by the node",
        "ISOLATED",
        "3 of 3 signals",
    ]);
    let title: Vec<&str> = done.out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(title, ["SIGNAL", "POD", "NODE", "VERDICT"]);
    let done = lab.kata_command("verify pod/plain -n test-kata").await.expect(1);
    done.says(&["it shares worker-0's kernel (same boot id)", "KATA5101"]);
}

/// The Job, or the pod, that reads the node mounts nothing for writing, has no token and does not stay.
fn assert_harmless(object: &Value) {
    let spec = match object["kind"].as_str() {
        Some("Job") => {
            assert!(object["spec"]["ttlSecondsAfterFinished"].is_number());
            &object["spec"]["template"]["spec"]
        }
        _ => &object["spec"],
    };
    assert_eq!(spec["nodeName"], "worker-0");
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert!(object["spec"]["activeDeadlineSeconds"].is_number());
    let container = &spec["containers"][0];
    assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert_eq!(mounts.len(), 4);
    for mount in mounts {
        assert_eq!(mount["readOnly"], true);
        assert_eq!(mount["recursiveReadOnly"], "IfPossible");
    }
}

#[tokio::test]
async fn the_node_shows_its_sandbox_of_a_pod() {
    use simcluster::world::Platform::{Kubernetes, OpenShift};
    let by_scc =
        "pods \"x\" is forbidden: unable to validate against any security context constraint";
    let by_rbac = "jobs.batch is forbidden: User \"x\" cannot create resource \"jobs\"";
    for (platform, kind, file, refusal, said) in [
        (
            OpenShift,
            "pods",
            "/etc/crio/crio.conf.d/50-kata",
            by_scc,
            "unable to validate against any security context constraint",
        ),
        (
            Kubernetes,
            "jobs",
            "/etc/containerd/conf.d/60-kata-operator.toml",
            by_rbac,
            "KATA5002 cannot read the processes of node worker-0",
        ),
    ] {
        let mut lab = Lab::on(platform);
        lab.cluster.with(|simulation, _| simulation.set_speed(100.0));
        lab.kata(&["worker-0"]);
        lab.ready_in_real_time().await;
        lab.pod("web", Some("kata"));
        lab.serve().await;
        lab.phase("web", "Running").await;
        let narrow = Place::terminal(80);
        let done = lab.run_at("verify pod/web -n test-kata --host", &narrow).await.expect(0);
        done.says(&[
            "ISOLATED",
            "ON THE NODE",
            &format!("kata in {file}"),
            "accel=kvm",
            "virtiofsd",
        ]);
        lab.until("the end of what reads the node", |lab| probes(lab) == 0).await;
        let done = lab.kata_command("verify pod/web -n test-kata --host -o json").await.expect(0);
        let host = &done.json()["verdicts"][0]["host"];
        let sandbox = host["sandboxId"].as_str().unwrap().to_owned();
        let roles: Vec<&str> = host["processes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|process| process["role"].as_str().unwrap())
            .collect();
        assert_eq!((sandbox.len(), roles), (64, vec!["shim", "vmm", "virtiofsd"]));
        let refused = Fault::Status {
            code: 403,
            retry_after: None,
            message: Some(refusal.to_owned()),
            when: When::Before,
        };
        lab.trouble("create", kind, refused);
        let done = lab.kata_command("verify pod/web -n test-kata --host").await.expect(5);
        // That the node cannot be read does not change the verdict.
        done.says(&["ISOLATED", said]);
    }
}

/// What the operator knows of a node is told at once, and nobody waits for a probe that cannot come.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_take_a_sandboxed_pod_is_refused_at_once() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.fault("worker-1", "no-kvm");
    lab.kata(&["worker-0", "worker-1", "worker-2"]);
    let ready = |lab: &Lab| {
        let config = lab.get(&crate::lab::kata_configs(), "", "cluster-kataconfig").unwrap();
        config["status"]["kataNodes"]["readyNodeCount"] == 2
    };
    lab.until("two nodes", ready).await;
    lab.fault("worker-2", "not-ready");
    lab.pass(120).await;
    let (begin, before) = (lab.cluster.now(), probes(&lab));
    lab.kata_command("verify --node worker-1").await.expect(1).says(&["PROBE FAILED", "KATA3101"]);
    lab.kata_command("verify --node worker-2").await.expect(1).says(&["KATA2103"]);
    // Another installation's RuntimeClass is judged by what it selects.
    lab.kata_command("verify --node worker-1 --runtime-class kata").await.expect(1).says(&[
        "KATA5103 RuntimeClass kata takes pods only to nodes with",
        "katacontainers.io/kata-runtime=true",
    ]);
    assert!(lab.cluster.now().duration_since(begin).as_secs() < 2);
    assert_eq!(probes(&lab), before);
}

/// A cause that stays ends the wait, even if the other probe has come and gone meanwhile.
#[tokio::test(start_paused = true)]
async fn a_cause_that_stays_is_not_waited_for() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.fault("worker-0", "no-kvm");
    lab.cluster.with(|simulation, _| simulation.set_speed(300.0));
    let begin = tokio::time::Instant::now();
    lab.kata_command("verify --timeout 60s").await.expect(1).says(&["KATA5212"]);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_the_pod_does_not_have_is_named() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("plain", None);
    lab.phase("plain", "Running").await;
    let done = lab.kata_command("verify pod/plain -n test-kata -c nope").await.expect(1);
    done.says(&["pod plain has no container nope; it has plain"]);
    lab.kata_command("verify pod/plain -n test-kata -c plain").await.expect(1).says(&["KATA5101"]);
}

/// Whoever may see pods of a namespace and no RuntimeClass is not told that a class is none of Kata's.
#[tokio::test(start_paused = true)]
async fn a_class_that_cannot_be_seen_is_not_judged() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    lab.create(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "pods"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
    }));
    lab.only(Some("pods"));
    let done = lab.kata_command("verify pod/web -n test-kata").await.expect(5);
    let done = done.says(&["KATA5102"]);
    assert!(!done.out.contains("NOT SANDBOXED"), "{}", done.out);
}
