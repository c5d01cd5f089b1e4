//! Workload controllers and the scheduler, through API objects.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use simcluster::node::request::request;
use simcluster::resource::{
    DAEMONSETS, DEPLOYMENTS, EVENTS, JOBS, NODES, PODDISRUPTIONBUDGETS, PODS, PRIORITYCLASSES,
    REPLICASETS, RESOURCEQUOTAS, RUNTIMECLASSES,
};
use simcluster::topology::{self, Role};
use simcluster::{Resource, Simulation};

use crate::nodes::{cluster, condition, create, fields, get, messages, pod, writer};

fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "app:1", "command": ["serve"]}]},
    })
}

fn workload(kind: &str, version: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(name)},
    });
    object["spec"].as_object_mut().unwrap().append(&mut fields(spec));
    object
}

fn merge(sim: &mut Simulation, resource: &Resource, namespace: &str, name: &str, patch: &Value) {
    let writer = writer(sim);
    sim.api.merge(writer, resource, namespace, name, patch).unwrap();
}

fn pods(sim: &Simulation) -> Vec<Value> {
    sim.api.list(&PODS).iter().map(|pod| (**pod).clone()).collect()
}

fn nodes_of(pods: &[Value]) -> Vec<&str> {
    let mut nodes: Vec<_> =
        pods.iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or("-")).collect();
    nodes.sort_unstable();
    nodes
}

/// On two nodes of four CPUs: one has two pods of low priority, the other has one of a higher one.
#[test]
fn the_fewest_pods_of_lower_priority_go_for_one_that_may_preempt() {
    for (policy, gone) in [("Never", ""), ("PreemptLowerPriority", "middle")] {
        let mut sim = cluster(0, 2);
        let class = |name: &str, value: u32, policy: &str| {
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value, "preemptionPolicy": policy,
            })
        };
        create(&mut sim, &PRIORITYCLASSES, "", class("middle", 10, "Never"));
        create(&mut sim, &PRIORITYCLASSES, "", class("high", 20, policy));
        for (name, cpu, class, node) in [
            ("low-1", "2", "", "worker-0"),
            ("low-2", "1900m", "", "worker-0"),
            ("middle", "3900m", "middle", "worker-1"),
            ("high", "3", "high", ""),
        ] {
            let main = json!([{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}]);
            let mut spec = json!({"containers": main});
            if !class.is_empty() {
                spec["priorityClassName"] = json!(class);
            }
            if !node.is_empty() {
                spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
            }
            create(&mut sim, &PODS, "default", pod(name, spec));
            sim.advance(Duration::from_secs(60));
        }
        let left: Vec<String> = pods(&sim)
            .iter()
            .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        let all = ["high", "low-1", "low-2", "middle"].into_iter();
        assert_eq!(left, all.filter(|name| *name != gone).collect::<Vec<_>>(), "{policy}");
        let told = messages(&sim, "FailedScheduling");
        let is_never =
            told.iter().any(|it| it.ends_with("not eligible due to preemptionPolicy=Never."));
        assert_eq!(is_never, policy == "Never", "{told:?}");
        assert_eq!(messages(&sim, "Preempted").len(), usize::from(!gone.is_empty()));
    }
}

#[test]
fn a_pod_that_fits_nowhere_says_why() {
    let huge = json!([{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "3"}}}]);
    for (spec, expected) in [
        (
            json!({"nodeSelector": {"kata": "true"}}),
            "0/3 nodes are available: 1 node(s) had untolerated taint \
             {node-role.kubernetes.io/control-plane: }, 1 node(s) were unschedulable, \
             1 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are \
             available: 3 Preemption is not helpful for scheduling.",
        ),
        (
            json!({"containers": huge}),
            "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint \
             {node-role.kubernetes.io/control-plane: }, 1 node(s) were unschedulable. preemption: \
             0/3 nodes are available: 1 No preemption victims found for incoming pod, \
             2 Preemption is not helpful for scheduling.",
        ),
    ] {
        let mut sim = cluster(1, 2);
        merge(&mut sim, &NODES, "", "worker-1", &json!({"spec": {"unschedulable": true}}));
        let first =
            json!([{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "2"}}}]);
        create(&mut sim, &PODS, "default", pod("first", json!({"containers": first})));
        sim.advance(Duration::from_secs(1));
        create(&mut sim, &PODS, "default", pod("web", spec));
        sim.advance(Duration::from_secs(60));
        let told = messages(&sim, "FailedScheduling");
        let mut parts: Vec<Vec<&str>> = Vec::new();
        for text in [told[0].as_str(), expected] {
            let mut words: Vec<_> = text.split([',', ':', '.']).map(str::trim).collect();
            words.sort_unstable();
            parts.push(words);
        }
        assert_eq!(parts[0], parts[1]);
        let web = get(&sim, &PODS, "default", "web");
        assert_eq!(condition(&web, "PodScheduled"), "False");
        merge(
            &mut sim,
            &NODES,
            "",
            "worker-1",
            &json!({
                "spec": {"unschedulable": null}, "metadata": {"labels": {"kata": "true"}},
            }),
        );
        sim.advance(Duration::from_secs(10));
        let web = get(&sim, &PODS, "default", "web");
        assert_eq!(web["spec"]["nodeName"], "worker-1", "a change of a node wakes the scheduler");
    }
}

#[test]
fn the_overhead_of_the_class_counts() {
    let mut sim = cluster(0, 1);
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "fat"},
        "handler": "crun", "overhead": {"podFixed": {"cpu": "1", "memory": "1Gi"}},
    });
    create(&mut sim, &RUNTIMECLASSES, "", class);
    for name in ["a", "b", "c"] {
        let containers =
            json!([{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "500m"}}}]);
        let spec = json!({"runtimeClassName": "fat", "containers": containers});
        create(&mut sim, &PODS, "default", pod(name, spec));
    }
    sim.advance(Duration::from_secs(10));
    // Four CPUs hold two pods of 1.5, not three.
    assert_eq!(nodes_of(&pods(&sim)), ["-", "worker-0", "worker-0"]);
    assert_eq!(messages(&sim, "FailedScheduling").len(), 1);
    assert_eq!(request(&get(&sim, &PODS, "default", "a")).cpu, 1500);
}

#[test]
fn a_deployment_rolls_from_one_set_to_the_next() {
    let mut sim = cluster(0, 3);
    let web = workload("Deployment", "apps/v1", "web", json!({"replicas": 4}));
    create(&mut sim, &DEPLOYMENTS, "default", web);
    sim.advance(Duration::from_secs(20));
    let deployment = get(&sim, &DEPLOYMENTS, "default", "web");
    let status = &deployment["status"];
    assert_eq!(status["readyReplicas"], 4, "{status}");
    assert_eq!(condition(&deployment, "Available"), "True");
    let spread = nodes_of(&pods(&sim)).iter().map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(spread, ["worker-0", "worker-0", "worker-1", "worker-2"]);
    let mut image = template("web")["spec"]["containers"].clone();
    image[0]["image"] = json!("app:2");
    merge(
        &mut sim,
        &DEPLOYMENTS,
        "default",
        "web",
        &json!({
            "spec": {"template": {"spec": {"containers": image}}},
        }),
    );
    let mut least = 4;
    sim.advance_until(Duration::from_secs(120), |sim| {
        let ready = pods(sim).iter().filter(|pod| condition_or(pod, "Ready")).count();
        least = least.min(ready);
        assert!(
            pods(sim).iter().filter(|p| p["metadata"]["deletionTimestamp"].is_null()).count() <= 5
        );
        false
    });
    assert!(least >= 3, "at most a quarter is unavailable: {least}");
    let images: Vec<_> = pods(&sim)
        .iter()
        .map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(images, ["app:2"; 4]);
    assert_eq!(sim.api.list(&REPLICASETS).len(), 2);
    merge(&mut sim, &DEPLOYMENTS, "default", "web", &json!({"spec": {"replicas": 1}}));
    sim.advance(Duration::from_secs(20));
    assert_eq!(pods(&sim).len(), 1);
    let revision = sim.api.store.revision();
    sim.advance(Duration::from_secs(600));
    assert_eq!(sim.api.store.revision(), revision, "a settled deployment writes nothing");
}

fn condition_or(pod: &Value, kind: &str) -> bool {
    pod["status"]["conditions"].is_array() && condition(pod, kind) == "True"
}

#[test]
fn a_daemon_set_runs_on_cordoned_and_on_new_nodes() {
    let mut sim = cluster(1, 2);
    merge(&mut sim, &NODES, "", "worker-1", &json!({"spec": {"unschedulable": true}}));
    create(&mut sim, &DAEMONSETS, "default", workload("DaemonSet", "apps/v1", "agent", json!({})));
    sim.advance(Duration::from_secs(20));
    assert_eq!(nodes_of(&pods(&sim)), ["worker-0", "worker-1"], "not on the tainted node");
    let status = get(&sim, &DAEMONSETS, "default", "agent")["status"].clone();
    assert_eq!(
        (&status["desiredNumberScheduled"], &status["numberReady"]),
        (&json!(2), &json!(2)),
        "{status}"
    );
    topology::add_node(&mut sim, "worker-2", Role::Worker, Default::default()).unwrap();
    sim.advance(Duration::from_secs(20));
    assert_eq!(nodes_of(&pods(&sim)), ["worker-0", "worker-1", "worker-2"]);
    topology::remove_node(&mut sim, "worker-0").unwrap();
    sim.advance(Duration::from_secs(60));
    assert_eq!(nodes_of(&pods(&sim)), ["worker-1", "worker-2"]);
}

#[test]
fn a_job_whose_pod_is_refused_says_why_and_tries_again() {
    let mut sim = cluster(0, 1);
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-more"},
        "spec": {"hard": {"pods": "1"}},
    });
    create(&mut sim, &RESOURCEQUOTAS, "default", quota);
    create(&mut sim, &PODS, "default", pod("present", json!({})));
    let template = json!({"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox:1", "command": ["true"]}],
    }});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "task"},
        "spec": {"template": template},
    });
    create(&mut sim, &JOBS, "default", job);
    sim.advance(Duration::from_secs(600));
    let job = get(&sim, &JOBS, "default", "task");
    assert_eq!(sim.api.list(&PODS).len(), 1);
    let status = &job["status"];
    assert_eq!((&status["active"], &status["conditions"]), (&json!(0), &Value::Null));
    let refusals: Vec<_> = sim
        .api
        .list(&EVENTS)
        .into_iter()
        .filter(|event| event["reason"] == "FailedCreate" && event["type"] == "Warning")
        .collect();
    // One second, two, four and so on to a minute: each names another pod.
    assert!((14..=18).contains(&refusals.len()), "{}", refusals.len());
    let message = refusals[0]["message"].as_str().unwrap();
    let why = "\" is forbidden: exceeded quota: no-more, requested: pods=1, used: pods=1, limited: pods=1";
    assert!(
        message.starts_with("Error creating: pods \"task-") && message.ends_with(why),
        "{message}"
    );
    let more = json!({"spec": {"hard": {"pods": "2"}}});
    sim.api.merge(writer(&sim), &RESOURCEQUOTAS, "default", "no-more", &more).unwrap();
    sim.advance(Duration::from_secs(70));
    assert_eq!(condition(&get(&sim, &JOBS, "default", "task"), "Complete"), "True");
}

#[test]
fn jobs_complete_or_give_up() {
    for (command, limit, expected, made) in
        [(json!(["sleep", "5"]), 6, "Complete", 3), (json!(["false"]), 1, "Failed", 2)]
    {
        let mut sim = cluster(0, 2);
        let mut template = template("task");
        template["spec"]["restartPolicy"] = json!("Never");
        template["spec"]["containers"][0]["command"] = command;
        let completions = if expected == "Complete" { 3 } else { 1 };
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "task"},
            "spec": {"completions": completions, "parallelism": 2, "backoffLimit": limit,
                     "template": template},
        });
        create(&mut sim, &JOBS, "default", job);
        sim.advance(Duration::from_secs(300));
        let job = get(&sim, &JOBS, "default", "task");
        assert_eq!(condition(&job, expected), "True", "{job}");
        assert_eq!(pods(&sim).len(), made, "{expected}");
    }
}

#[test]
fn budgets_count_what_may_go() {
    for (spec, expected) in [
        (json!({"minAvailable": 2}), (3, 2, 1)),
        (json!({"minAvailable": "100%"}), (3, 3, 0)),
        (json!({"maxUnavailable": 1}), (3, 2, 1)),
        (json!({"maxUnavailable": "50%"}), (3, 1, 2)),
    ] {
        let mut sim = cluster(0, 3);
        let web = workload("Deployment", "apps/v1", "web", json!({"replicas": 3}));
        create(&mut sim, &DEPLOYMENTS, "default", web);
        let mut budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
        });
        for (key, value) in spec.as_object().unwrap() {
            budget["spec"][key] = value.clone();
        }
        create(&mut sim, &PODDISRUPTIONBUDGETS, "default", budget);
        sim.advance(Duration::from_secs(20));
        let status = get(&sim, &PODDISRUPTIONBUDGETS, "default", "web")["status"].clone();
        let number = |field: &str| status[field].as_i64().unwrap();
        assert_eq!(
            (number("currentHealthy"), number("desiredHealthy"), number("disruptionsAllowed")),
            expected,
            "{spec}"
        );
        let mut evicted = 0;
        for pod in pods(&sim) {
            let writer = writer(&sim);
            let name = pod["metadata"]["name"].as_str().unwrap();
            match sim.api.evict(writer, "default", name, &Default::default()) {
                Ok(()) => evicted += 1,
                Err(error) => assert_eq!(error.code, 429, "{error}"),
            }
            sim.advance(Duration::ZERO);
        }
        assert_eq!(evicted, expected.2, "{spec}");
        sim.advance(Duration::from_secs(30));
        let status = get(&sim, &PODDISRUPTIONBUDGETS, "default", "web")["status"].clone();
        assert_eq!(status["currentHealthy"], 3, "the deployment made up for it: {status}");
    }
}

/// A node selector, a toleration and a CPU request of a pod.
type Wanted = (Option<u8>, bool, u16);

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_scheduler_never_breaks_its_promises(
        zones in proptest::collection::vec((0_u8..3, any::<bool>(), any::<bool>()), 1..5),
        wanted in proptest::collection::vec(
            (proptest::option::of(0_u8..3), any::<bool>(), 1_u16..4_000), 1..20,
        ),
    ) {
        let count = u32::try_from(zones.len()).unwrap();
        let mut sim = cluster(0, count);
        for (index, (zone, tainted, cordoned)) in zones.iter().enumerate() {
            let mut spec = json!({"unschedulable": cordoned});
            if *tainted {
                spec["taints"] = json!([{"key": "reserved", "effect": "NoSchedule"}]);
            }
            let patch = json!({"metadata": {"labels": {"zone": zone.to_string()}}, "spec": spec});
            merge(&mut sim, &NODES, "", &format!("worker-{index}"), &patch);
        }
        sim.advance(Duration::from_secs(1));
        for (index, wish) in wanted.iter().enumerate() {
            create(&mut sim, &PODS, "default", wish_pod(index, *wish));
        }
        sim.advance(Duration::from_secs(30));
        let placed = pods(&sim);
        for (index, (zone, tainted, cordoned)) in zones.iter().enumerate() {
            let name = format!("worker-{index}");
            let here: Vec<_> = placed.iter().filter(|pod| pod["spec"]["nodeName"] == name.as_str()).collect();
            let cpu: i64 = here.iter().map(|pod| request(pod).cpu).sum();
            prop_assert!(cpu <= 4_000, "{name} holds {cpu}m");
            prop_assert!(!*cordoned || here.is_empty(), "{name} is cordoned");
            for pod in here {
                let selector = &pod["spec"]["nodeSelector"]["zone"];
                prop_assert!(selector.is_null() || *selector == zone.to_string().as_str());
                let tolerates = pod["metadata"]["labels"]["tolerates"] == "true";
                prop_assert!(!*tainted || tolerates);
            }
        }
        for pod in placed.iter().filter(|pod| pod["spec"]["nodeName"].is_null()) {
            prop_assert_eq!(condition(pod, "PodScheduled"), "False");
            for (index, (zone, tainted, cordoned)) in zones.iter().enumerate() {
                let name = format!("worker-{index}");
                let here = placed.iter().filter(|other| other["spec"]["nodeName"] == name.as_str());
                let used: i64 = here.map(|other| request(other).cpu).sum();
                let selector = &pod["spec"]["nodeSelector"]["zone"];
                let fits = !cordoned
                    && (selector.is_null() || *selector == zone.to_string().as_str())
                    && (!tainted || pod["metadata"]["labels"]["tolerates"] == "true")
                    && used + request(pod).cpu <= 4_000;
                prop_assert!(!fits, "{} waits although {name} has room", pod["metadata"]["name"]);
            }
        }
    }
}

fn wish_pod(index: usize, (zone, tolerates, cpu): Wanted) -> Value {
    let mut wish = pod(
        &format!("p{index}"),
        json!({
            "containers": [{"name": "main", "image": "app:1",
                            "resources": {"requests": {"cpu": format!("{cpu}m")}}}],
        }),
    );
    wish["metadata"]["labels"] = json!({"tolerates": tolerates.to_string()});
    if let Some(zone) = zone {
        wish["spec"]["nodeSelector"] = json!({"zone": zone.to_string()});
    }
    if tolerates {
        wish["spec"]["tolerations"] = json!([{"key": "reserved", "operator": "Exists"}]);
    }
    wish
}
