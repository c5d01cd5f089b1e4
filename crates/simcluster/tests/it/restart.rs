//! A cluster whose process ends and starts again goes on: whatever was under way comes to the same end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use simcluster::api::server::Writer;
use simcluster::resource::{
    DEPLOYMENTS, MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODDISRUPTIONBUDGETS, PODS,
    RUNTIMECLASSES,
};
use simcluster::state::{State, StateError};
use simcluster::topology::{self, Layout};
use simcluster::world::Power;
use simcluster::{Resource, Simulation, mco};

/// Long enough for two nodes to be changed, and for what waits longest to be tried again.
const LIMIT: Duration = Duration::from_secs(3_600);

fn epoch() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn layout() -> Layout {
    Layout { control_plane: 1, workers: 2, ..Layout::default() }
}

fn create(sim: &mut Simulation, resource: &Resource, namespace: &str, object: Value) {
    let writer = Writer { manager: "driver", now: sim.now() };
    sim.api.create(writer, resource, namespace, object).unwrap();
}

fn deployment(name: &str, replicas: u32, spec: &Value) -> Value {
    let mut pod = json!({"containers": [{"name": "app", "image": "example/app:1"}]});
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    })
}

/// A cluster in which kata has just been asked for: both workers are to change, a budget slows the
/// drains, and pods wait for the handler.
fn asked() -> Simulation {
    let mut sim = topology::build(&layout(), epoch()).unwrap();
    create(&mut sim, &DEPLOYMENTS, "default", deployment("web", 3, &json!({})));
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    });
    create(&mut sim, &PODDISRUPTIONBUDGETS, "default", budget);
    sim.advance(Duration::from_secs(60));
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"},
        "handler": "kata",
    });
    create(&mut sim, &RUNTIMECLASSES, "", class);
    let sandboxed = json!({
        "runtimeClassName": "kata", "nodeSelector": {"node-role.kubernetes.io/kata-oc": ""},
    });
    create(&mut sim, &DEPLOYMENTS, "default", deployment("sandboxed", 2, &sandboxed));
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-extension", "labels": {(mco::ROLE): "kata-oc"}},
        "spec": {"config": {"ignition": {"version": "3.2.0"}},
            "extensions": ["sandboxed-containers"]},
    });
    create(&mut sim, &MACHINECONFIGS, "", config);
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "kata-oc"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": mco::ROLE, "operator": "In", "values": ["kata-oc", "worker"]}]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/kata-oc": ""}},
        },
    });
    create(&mut sim, &MACHINECONFIGPOOLS, "", pool);
    for node in ["worker-0", "worker-1"] {
        let patch = json!({"metadata": {"labels": {"node-role.kubernetes.io/kata-oc": ""}}});
        let writer = Writer { manager: "driver", now: sim.now() };
        sim.api.merge(writer, &NODES, "", node, &patch).unwrap();
    }
    sim
}

/// What a user would compare of two clusters: everything but times, names of pods and Events.
fn outcome(sim: &Simulation) -> Value {
    let conditions = |object: &Value| -> BTreeMap<String, String> {
        let all = object["status"]["conditions"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.map(|condition| (text(&condition["type"]), text(&condition["status"]))).collect()
    };
    let nodes = sim.api.list(&NODES).into_iter().map(|node| {
        json!({
            "name": node["metadata"]["name"], "annotations": node["metadata"]["annotations"],
            "spec": node["spec"], "info": node["status"]["nodeInfo"],
            "handlers": node["status"]["runtimeHandlers"], "conditions": conditions(&node),
        })
    });
    let hosts = sim.world.hosts.iter().map(|(name, host)| {
        let vms = host.sandboxes.values().filter(|sandbox| sandbox.vm.is_some()).count();
        json!({
            "name": name, "files": host.files, "extensions": host.extensions,
            "staged": host.staged_extensions, "up": host.is_up(), "boots": host.boots,
            "on disk": host.config_on_disk, "failure": host.daemon_failure,
            "pods": host.sandboxes.len(), "machines": vms, "containers": host.containers.len(),
        })
    });
    let pools = sim.api.list(&MACHINECONFIGPOOLS).into_iter().map(
        |pool| json!({"pool": pool["spec"]["configuration"], "conditions": conditions(&pool)}),
    );
    let deployments = sim.api.list(&DEPLOYMENTS).into_iter().map(|deployment| {
        json!({"name": deployment["metadata"]["name"], "ready": deployment["status"]["readyReplicas"]})
    });
    json!({
        "nodes": nodes.collect::<Value>(), "pools": pools.collect::<Value>(),
        "hosts": hosts.collect::<Value>(), "deployments": deployments.collect::<Value>(),
    })
}

/// What is under way on the workers.
fn stage(sim: &Simulation) -> Vec<&'static str> {
    let nodes = sim.api.list(&NODES);
    let stages = nodes.iter().map(|node| {
        let annotation = |name: &str| node["metadata"]["annotations"][name].as_str().unwrap_or("");
        let host = &sim.world.hosts[node["metadata"]["name"].as_str().unwrap()];
        let (wanted, applied) =
            (annotation(mco::DESIRED_DRAIN), annotation(mco::LAST_APPLIED_DRAIN));
        let current = annotation(mco::CURRENT_CONFIG) == annotation(mco::DESIRED_CONFIG);
        match host.power {
            Power::Rebooting { .. } => "rebooting",
            Power::Off => "off",
            Power::On if wanted != applied && wanted.starts_with("uncordon") => "uncordoning",
            Power::On if wanted != applied => "draining",
            Power::On if host.config_on_disk.is_some() => "booted",
            Power::On if !current && wanted.starts_with("drain") => "installing",
            Power::On if !current => "told",
            Power::On => "done",
        }
    });
    stages.collect()
}

/// Ends the process and starts it again.
fn restart(sim: &Simulation, later: SignedDuration) -> Simulation {
    let saved = State::of(sim, &layout()).to_json().unwrap();
    let restored = State::from_json(&saved).unwrap().restore(sim.now()).unwrap();
    let again = State::of(&restored, &layout()).to_json().unwrap();
    assert!(saved == again, "a cluster that was only stored and restored has changed");
    let now = sim.now().checked_add(later).unwrap();
    State::from_json(&again).unwrap().restore(now).unwrap()
}

#[test]
fn an_install_that_is_interrupted_anywhere_comes_to_the_same_end() {
    let mut sim = asked();
    let begin = sim.now();
    // The moments: each change of what is under way, and the middle between it and the next.
    let mut changes = vec![(begin, stage(&sim))];
    sim.advance_until(LIMIT, |sim| {
        if changes.last().is_none_or(|(_, last)| *last != stage(sim)) {
            changes.push((sim.now(), stage(sim)));
        }
        false
    });
    let expected = outcome(&sim);
    let ready: Vec<&Value> =
        expected["deployments"].as_array().unwrap().iter().map(|d| &d["ready"]).collect();
    assert_eq!(ready, [2, 3], "the install itself comes to an end");
    let seen: BTreeSet<&str> = changes.iter().flat_map(|(_, stages)| stages).copied().collect();
    for stage in ["told", "draining", "installing", "rebooting", "booted", "uncordoning", "done"] {
        assert!(seen.contains(stage), "no restart while {stage}: {seen:?}");
    }
    let mut moments: BTreeSet<Timestamp> = changes.iter().map(|(time, _)| *time).collect();
    for pair in changes.windows(2) {
        let half = pair[1].0.duration_since(pair[0].0) / 2;
        moments.insert(pair[0].0.checked_add(half).unwrap());
    }
    assert!(moments.len() >= 25, "{moments:?}");

    let mut sim = asked();
    for (index, moment) in moments.iter().enumerate() {
        sim.advance(moment.duration_since(sim.now()).unsigned_abs());
        // Every other time the process is away for long: what was to happen by then happens at once.
        let away = SignedDuration::from_secs(if index % 2 == 0 { 0 } else { 900 });
        let mut other = restart(&sim, away);
        other.advance(LIMIT);
        let after = moment.duration_since(begin);
        assert_same(&outcome(&other), &expected, &format!("{after:#} {:?}", stage(&sim)));
    }
}

/// Tells where two outcomes differ.
fn assert_same(found: &Value, expected: &Value, when: &str) {
    for (part, list) in expected.as_object().unwrap() {
        for (index, item) in list.as_array().unwrap().iter().enumerate() {
            for (field, value) in item.as_object().unwrap() {
                let found = &found[part][index][field];
                assert_eq!(found, value, "{part}[{index}].{field}, restarted after {when}");
            }
        }
    }
}

/// The pods, and when each was written last.
fn versions(sim: &Simulation) -> Vec<(Value, Value)> {
    let version =
        |pod: &Value| (pod["metadata"]["name"].clone(), pod["metadata"]["resourceVersion"].clone());
    sim.api.list(&PODS).iter().map(|pod| version(pod)).collect()
}

#[test]
fn a_node_that_need_not_change_after_all_is_uncordoned() {
    let mut sim = asked();
    assert!(sim.advance_until(LIMIT, |sim| stage(sim).contains(&"draining")));
    let nodes = sim.api.list(&NODES);
    let node = nodes
        .iter()
        .find(|node| {
            let annotations = &node["metadata"]["annotations"];
            annotations[mco::CURRENT_CONFIG] != annotations[mco::DESIRED_CONFIG]
        })
        .unwrap();
    let name = node["metadata"]["name"].as_str().unwrap();
    let current = &node["metadata"]["annotations"][mco::CURRENT_CONFIG];
    let patch = json!({"metadata": {
        "labels": {"node-role.kubernetes.io/kata-oc": null},
        "annotations": {(mco::DESIRED_CONFIG): current},
    }});
    let writer = Writer { manager: "driver", now: sim.now() };
    sim.api.merge(writer, &NODES, "", name, &patch).unwrap();
    let mut sim = restart(&sim, SignedDuration::from_secs(1));
    sim.advance(LIMIT);
    let node = sim.api.get(&NODES, "", name).unwrap();
    assert_eq!(node["metadata"]["annotations"][mco::STATE], "Done");
    assert_eq!(node["spec"]["unschedulable"], Value::Null);
    assert_eq!(sim.world.hosts[name].boots, 1);
}

#[test]
fn pods_that_run_go_on_running() {
    let mut sim = topology::build(&layout(), epoch()).unwrap();
    create(&mut sim, &DEPLOYMENTS, "default", deployment("web", 3, &json!({})));
    sim.advance(Duration::from_secs(60));
    let before = versions(&sim);
    let processes = sim.world.hosts["worker-0"].processes.clone();
    let mut sim = restart(&sim, SignedDuration::from_secs(5));
    sim.advance(LIMIT);
    assert_eq!(versions(&sim), before);
    assert_eq!(processes, sim.world.hosts["worker-0"].processes);
    // New pods get other addresses, uids and names than those that were there.
    create(&mut sim, &DEPLOYMENTS, "default", deployment("more", 3, &json!({})));
    sim.advance(Duration::from_secs(60));
    let pods = sim.api.list(&PODS);
    for pointer in ["/metadata/uid", "/metadata/name", "/status/podIP"] {
        let values: BTreeSet<&str> =
            pods.iter().filter_map(|pod| pod.pointer(pointer)?.as_str()).collect();
        let own = pods.iter().filter(|pod| pod["spec"]["hostNetwork"] != true).count();
        assert!(values.len() >= own, "{pointer}: {values:?}");
    }
}

#[test]
fn what_is_no_state_is_refused() {
    for (text, expected) in [
        ("", "it is not the state of a simulated cluster"),
        ("[]", "it is not the state of a simulated cluster"),
        (r#"{"format": 1}"#, "it is not the state of a simulated cluster: missing field"),
        (r#"{"format": 2}"#, "it has format 2, and this version reads format 1"),
    ] {
        let error: StateError = State::from_json(text.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{text}: {error}");
    }
}
