//! `why`: pods that do not run, and what Kata has to do with it.

use serde_json::json;

use crate::lab::{Lab, Place};

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_roll_out() {
    let lab = Lab::new();
    lab.kata(&["worker-0", "worker-1"]);
    lab.until("the first node", |lab| {
        let config = lab.get(&crate::lab::kata_configs(), "", "cluster-kataconfig").unwrap();
        config["status"]["kataNodes"]["readyNodeCount"] == 1
    })
    .await;
    lab.pass(30).await;
    lab.namespace("test-kata");
    for (name, class) in [("filler", None), ("web", Some("kata"))] {
        lab.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "test-kata"},
            "spec": {
                "runtimeClassName": class, "nodeSelector": {"kata": "true"},
                "containers": [{"name": "a", "image": "i", "resources": {"requests": {"memory": "9Gi"}}}],
            },
        }));
        lab.pass(5).await;
    }
    lab.pass(10).await;
    let done = lab.kata_command("why pod/web -n test-kata").await.expect(1);
    done.says(&[
        "pod/web Pending",
        "class kata, asks 9Gi + 350Mi overhead = 9.3Gi memory, 250m CPU",
        "taint node-role.kubernetes.io/master is not tolerated",
        "KATA5206",
        "will probably be scheduled in ~",
        "when worker-1 is ready",
    ]);
}

#[tokio::test(start_paused = true)]
async fn memory_that_is_short_is_counted_with_the_overhead() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("test-kata");
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "large", "namespace": "test-kata"},
        "spec": {
            "runtimeClassName": "kata",
            "containers": [{"name": "a", "image": "i", "resources": {"requests": {"memory": "15Gi"}}}],
        },
    });
    lab.create(pod.clone());
    lab.pass(10).await;
    let done = lab.kata_command("why large -n test-kata").await.expect(1);
    done.says(&["KATA5205", "15Gi + 350Mi overhead", "memory short by", "worker-0"]);
    pod["metadata"]["name"] = json!("host");
    pod["spec"]["hostNetwork"] = json!(true);
    lab.create(pod);
    lab.pass(10).await;
    let done = lab.kata_command("why host -n test-kata").await.expect(1);
    done.says(&["KATA5216", "spec.hostNetwork"]);
}

#[tokio::test(start_paused = true)]
async fn refusals_at_admission_are_found_through_the_deployment() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("shop");
    let deployment = |name: &str, spec: serde_json::Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            },
        })
    };
    let containers = json!([{"name": "a", "image": "i"}]);
    lab.create(deployment(
        "missing",
        json!({"runtimeClassName": "kata2", "containers": containers}),
    ));
    lab.create(deployment(
        "conflict",
        json!({
            "runtimeClassName": "kata", "containers": containers,
            "nodeSelector": {"katacontainers.io/kata-runtime": "false"},
        }),
    ));
    lab.create(deployment(
        "overhead",
        json!({
            "runtimeClassName": "kata", "containers": containers,
            "overhead": {"cpu": "1", "memory": "1Gi"},
        }),
    ));
    lab.create(deployment("fine", json!({"runtimeClassName": "kata", "containers": containers})));
    lab.pass(20).await;
    let expected = [("missing", "KATA5201"), ("conflict", "KATA5202"), ("overhead", "KATA5203")];
    for (name, code) in expected {
        let done = lab.kata_command(&format!("why deploy/{name} -n shop")).await.expect(1);
        done.says(&[code, "refused when they are created"]);
    }
    let done = lab.kata_command("why deployment/fine -n shop").await.expect(0);
    done.says(&["nothing is wrong", "worker-0"]);
    // Nobody knows of a pod whose node is silent.
    lab.fault("worker-0", "not-ready");
    lab.pass(20).await;
    let done = lab.kata_command("why deployment/fine -n shop").await.expect(1);
    done.says(&["KATA2103", "node worker-0 is not Ready"]);
    lab.clear_faults("worker-0");
    lab.pass(20).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_container_runtime_said_is_mapped() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.fault("worker-0", "no-kvm");
    lab.pod("web", Some("kata"));
    lab.pass(30).await;
    let done = lab.kata_command("why pod/web -n test-kata").await.expect(1);
    done.says(&["KATA5212", "worker-0 cannot make the sandbox", "KVM"]);
    lab.pod("plain", None);
    lab.phase("plain", "Running").await;
    let done = lab.kata_command("why pod/plain -n test-kata").await.expect(1);
    done.says(&["KATA5101", "spec.runtimeClassName is not set"]);
}

/// A drain that a PodDisruptionBudget blocks: the budget, the pods and the fix, within one screen.
#[tokio::test(start_paused = true)]
async fn a_blocked_drain_is_named_by_every_verb_on_one_screen() {
    let lab = Lab::new();
    lab.namespace("shop");
    lab.label("worker-0", "kata", Some("true"));
    lab.create(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"nodeSelector": {"kata": "true"}, "containers": [{"name": "a", "image": "i"}]},
            },
        },
    }));
    lab.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }));
    lab.pass(60).await;
    lab.kata(&[]);
    lab.pass(120).await;
    lab.pod("wants-kata", None);
    let texts = [
        "KATA2104",
        "PodDisruptionBudget shop/web allows 0 disruptions",
        "pod web-",
        "kubectl scale -n shop deployment/web --replicas=2",
    ];
    let place = Place::terminal(100);
    let lines = ["status", "wait --timeout 20s", "why pod/wants-kata -n test-kata"];
    for (line, code) in lines.into_iter().zip([1, 124, 1]) {
        let done = lab.run_at(line, &place).await.expect(code);
        let shown = done.out.lines().count();
        assert!(shown <= 24, "{line} takes {shown} lines:\n{}", done.out);
        // Lines are broken at spaces.
        let flat = format!("{} {}", done.out, done.err);
        let flat = flat.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in texts {
            assert!(
                flat.contains(text),
                "{line} does not say {text:?}:\n{}\n{}",
                done.out,
                done.err
            );
        }
    }
}

/// A pod that waits for a rollout that does not go on waits for whoever holds it up.
#[tokio::test(start_paused = true)]
async fn what_holds_the_rollout_up_is_why_a_pod_waits_for_it() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let paused = json!({"spec": {"rollout": {"paused": true}}});
    lab.merge(&crate::lab::kata_configs(), "", "cluster-kataconfig", &paused);
    lab.label("worker-1", "kata", Some("true"));
    lab.until("the pause", |lab| lab.condition("Ready") == "False").await;
    lab.pass(30).await;
    lab.namespace("test-kata");
    lab.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "test-kata"},
        "spec": {
            "runtimeClassName": "kata", "nodeSelector": {"kubernetes.io/hostname": "worker-1"},
            "containers": [{"name": "a", "image": "i"}],
        },
    }));
    lab.pass(10).await;
    let done = lab.kata_command("why pod/web -n test-kata").await.expect(1);
    assert!(!done.out.contains("KATA5206"), "{}", done.out);
    done.says(&["KATA3112", "before worker-1 is given Kata; manual action required"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_closed_class_is_told_to_be_created_again() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("test-kata");
    lab.pod("early", Some("kata"));
    lab.phase("early", "Running").await;
    lab.delete(&crate::lab::kata_configs(), "", "cluster-kataconfig");
    lab.until("the class is closed", |lab| lab.condition("DeletionBlocked") == "True").await;
    lab.pod("late", Some("kata"));
    lab.pass(10).await;
    let done = lab.kata_command("why pod/late -n test-kata").await.expect(1);
    done.says(&[
        "KATA5205",
        "RuntimeClass kata takes no new pods, because the KataConfig cluster-kataconfig is being deleted",
        "delete the pod and what creates it, since the deletion waits for it",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_a_runtime_does_not_select_says_so() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0", "worker-1"]);
    let on = json!({"matchLabels": {"kubernetes.io/hostname": "worker-1"}});
    lab.merge(
        &crate::lab::kata_configs(),
        "",
        "cluster-kataconfig",
        &json!({"spec": {"runtimes": [{"name": "kata"}, {"name": "kata-clh", "installOn": on}]}}),
    );
    lab.ready().await;
    lab.namespace("test-kata");
    lab.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "test-kata"},
        "spec": {
            "runtimeClassName": "kata-clh",
            "nodeSelector": {"kubernetes.io/hostname": "worker-0"},
            "containers": [{"name": "a", "image": "i"}],
        },
    }));
    lab.pass(10).await;
    let done = lab.kata_command("why pod/web -n test-kata").await.expect(1);
    done.says(&["worker-0", "not selected by installOn of RuntimeClass kata-clh"]);
    let done = lab.kata_command("status").await.expect(0);
    done.says(&[
        "RuntimeClass kata   ready on 2 of 2   handler kata",
        "RuntimeClass kata-clh   ready on 1 of 1   handler kata-clh",
        "nodes kata=true,kubernetes.io/hostname=worker-1",
    ]);
}

/// A pod that nothing but a cordon keeps from a node, and pods that are pinned to a host.
#[tokio::test(start_paused = true)]
async fn a_cordon_and_a_pin_are_told_with_what_really_helps() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("test-kata");
    lab.cordon("worker-0");
    let pin = |host: &str| json!({"nodeSelector": {"kubernetes.io/hostname": host}});
    let by_name = json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]},
        ]},
    }}});
    let wants_disk = json!({"nodeSelector": {"disk": "ssd"}});
    for (name, spec) in [
        ("cordoned", json!({})),
        ("pinned", pin("worker-1")),
        ("named", by_name),
        ("nowhere", pin("worker-9")),
        ("disk", wants_disk),
    ] {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "test-kata"},
            "spec": {"runtimeClassName": "kata", "containers": [{"name": "a", "image": "i"}]},
        });
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        lab.create(pod);
    }
    lab.pass(10).await;
    let expected: [(&str, &[&str]); 5] = [
        (
            "cordoned",
            &[
                "worker-0: cordoned",
                "if the maintenance of node worker-0 is over, uncordon it: `kubectl uncordon worker-0`",
            ],
        ),
        (
            "pinned",
            &[
                "no node with Kata matches the pod's own nodeSelector kubernetes.io/hostname=worker-1; worker-1 \
                 does: not selected for Kata",
                "correct spec.nodeSelector of the pod; or give node worker-1 Kata: `kubectl label node worker-1 \
                 kata=true`",
            ],
        ),
        (
            "named",
            &[
                "no node with Kata matches the pod's own node affinity; worker-1 does: not selected for Kata",
                "correct spec.affinity.nodeAffinity of the pod; or give node worker-1 Kata",
            ],
        ),
        (
            "nowhere",
            &[
                "no node matches the pod's own nodeSelector kubernetes.io/hostname=worker-9",
                "fix: correct spec.nodeSelector of the pod",
            ],
        ),
        (
            "disk",
            &["or a cluster administrator labels a node: `kubectl label node worker-0 disk=ssd`"],
        ),
    ];
    for (name, texts) in expected {
        let done = lab.kata_command(&format!("why pod/{name} -n test-kata")).await.expect(1);
        let done = done.says(&["KATA5205"]).says(texts);
        assert!(!done.out.contains("label node worker-0 kubernetes.io"), "{}", done.out);
    }
    let report = lab.kata_command("why pod/cordoned -n test-kata -o json").await.json();
    let verdicts = report["nodes"].as_array().unwrap();
    let first = verdicts.iter().find(|node| node["name"] == "worker-0").unwrap();
    assert_eq!(first["reason"], "Cordoned", "{report}");
}
