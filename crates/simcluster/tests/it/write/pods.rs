//! Pods: defaults, updates, binding, eviction.

use serde_json::{Value, json};
use simcluster::api::ApiServer;
use simcluster::resource::{PODDISRUPTIONBUDGETS, PODS};

use super::{PatchType, WriteVerb, create, merge, object, pod, server, sub, told};

#[test]
fn pods_get_their_defaults() {
    let mut api = server();
    let made = object(create(&mut api, &PODS, "default", pod("p")));
    let spec = &made["spec"];
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
        ("serviceAccountName", json!("default")),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ] {
        assert_eq!(spec[key], value, "{key}");
    }
    let container = &spec["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(
        spec["tolerations"][0],
        json!({
            "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300,
        })
    );
    assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

#[test]
fn quality_of_service_follows_the_resources() {
    let mut api = server();
    for (name, resources, class) in [
        ("a", json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        ("b", json!({"requests": {"cpu": "1"}}), "Burstable"),
        ("c", json!({}), "BestEffort"),
    ] {
        let mut body = pod(name);
        body["spec"]["containers"][0]["resources"] = resources;
        let made = object(create(&mut api, &PODS, "default", body));
        assert_eq!(made["status"]["qosClass"], class);
    }
}

#[test]
fn a_pods_spec_is_almost_fixed() {
    let mut api = server();
    create(&mut api, &PODS, "default", pod("p")).unwrap();
    let place = ("default", "p");
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "y:2"}]);
    let changed = object(super::patch(&mut api, PatchType::Json, &PODS, place, image));
    assert_eq!(changed["metadata"]["generation"], 2);
    let (code, _, message) =
        told(merge(&mut api, &PODS, place, json!({"spec": {"hostNetwork": true}})));
    assert_eq!(code, 422);
    assert!(
        message.starts_with(
            "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than \
             `spec.containers[*].image`"
        ),
        "{message}"
    );
    let (code, ..) = told(merge(&mut api, &PODS, place, json!({"spec": {"tolerations": []}})));
    assert_eq!(code, 422);
}

#[test]
fn binding_puts_a_pod_on_a_node_once() {
    let mut api = server();
    create(&mut api, &PODS, "default", pod("p")).unwrap();
    let body = json!({"target": {"kind": "Node", "name": "n1"}});
    let place = ("default", "p");
    let answer = sub(&mut api, "binding", WriteVerb::Create, &PODS, place, body.clone()).unwrap();
    assert_eq!((answer.code, &answer.object["status"]), (201, &json!("Success")));
    let bound = api.get(&PODS, "default", "p").unwrap();
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(
        told(sub(&mut api, "binding", WriteVerb::Create, &PODS, place, body)).2,
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
    );
}

fn budget(api: &mut ApiServer, allowed: i64) {
    let body = json!({
        "metadata": {"name": "pdb"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    });
    create(api, &PODDISRUPTIONBUDGETS, "default", body).unwrap();
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1 + allowed,
        "desiredHealthy": 1, "expectedPods": 2,
    }});
    let kind = WriteVerb::Patch(PatchType::Merge);
    sub(api, "status", kind, &PODDISRUPTIONBUDGETS, ("default", "pdb"), status).unwrap();
}

fn running(api: &mut ApiServer, name: &str) {
    let mut body = pod(name);
    body["metadata"]["labels"] = json!({"app": "x"});
    body["spec"]["nodeName"] = json!("n1");
    create(api, &PODS, "default", body).unwrap();
    let status = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    }});
    sub(api, "status", WriteVerb::Patch(PatchType::Merge), &PODS, ("default", name), status)
        .unwrap();
}

fn evict(api: &mut ApiServer, name: &str) -> super::Answer {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    sub(api, "eviction", WriteVerb::Create, &PODS, ("default", name), body)
}

#[test]
fn evictions_spend_the_budget_and_then_wait() {
    let mut api = server();
    for name in ["p1", "p2"] {
        running(&mut api, name);
    }
    budget(&mut api, 1);
    assert_eq!(evict(&mut api, "p1").unwrap().code, 201);
    let ending = api.get(&PODS, "default", "p1").unwrap();
    assert!(ending["metadata"]["deletionTimestamp"].is_string());
    let status = &api.get(&PODDISRUPTIONBUDGETS, "default", "pdb").unwrap()["status"];
    assert_eq!(status["disruptionsAllowed"], 0);
    assert!(status["disruptedPods"]["p1"].is_string());

    let error = evict(&mut api, "p2").unwrap_err();
    assert_eq!((error.code, error.reason), (429, "TooManyRequests"));
    assert_eq!(error.message, "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(
        error.details.unwrap(),
        json!({"causes": [{
            "reason": "DisruptionBudget",
            "message": "The disruption budget pdb needs 1 healthy pods and has 2 currently",
        }]})
    );
    assert_eq!(
        api.get(&PODS, "default", "p2").unwrap()["metadata"]["deletionTimestamp"],
        Value::Null
    );
    assert_eq!(told(evict(&mut api, "nope")).0, 404);
}

#[test]
fn a_budget_that_nobody_has_looked_at_refuses() {
    let mut api = server();
    running(&mut api, "p");
    let body = json!({
        "metadata": {"name": "pdb"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    });
    create(&mut api, &PODDISRUPTIONBUDGETS, "default", body).unwrap();
    let details = evict(&mut api, "p").unwrap_err().details.unwrap();
    assert_eq!(details["retryAfterSeconds"], 10);
    assert_eq!(
        details["causes"][0]["message"],
        "The disruption budget pdb is still being processed by the server."
    );
}
