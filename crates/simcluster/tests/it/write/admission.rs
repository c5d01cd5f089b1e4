//! Admission plugins: RuntimeClass with its texts, and the pool policy.

use serde_json::{Value, json};
use simcluster::resource::{PODS, RUNTIMECLASSES};

use super::{create, object, pod, server, told};

fn with(edit: impl FnOnce(&mut Value)) -> Value {
    let mut pod = pod("rp");
    pod["spec"]["runtimeClassName"] = json!("kata");
    edit(&mut pod["spec"]);
    pod
}

fn class() -> Value {
    json!({
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "350Mi"}},
        "scheduling": {
            "nodeSelector": {"kata": "true"},
            "tolerations": [
                {"key": "kata", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "covered", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
            ],
        },
    })
}

#[test]
fn refusals_have_the_texts_of_the_real_server() {
    let mut api = server();
    create(&mut api, &RUNTIMECLASSES, "", class()).unwrap();
    let bare = json!({"metadata": {"name": "bare"}, "handler": "bare"});
    create(&mut api, &RUNTIMECLASSES, "", bare).unwrap();
    let table = [
        (
            with(|spec| spec["runtimeClassName"] = json!("nope")),
            "pods \"rp\" is forbidden: pod rejected: RuntimeClass \"nope\" not found",
        ),
        (
            with(|spec| spec["overhead"] = json!({"cpu": "1"})),
            "pods \"rp\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            with(|spec| {
                spec["runtimeClassName"] = json!("bare");
                spec["overhead"] = json!({"cpu": "1"});
            }),
            "pods \"rp\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined \
             Overhead",
        ),
        (
            with(|spec| spec["nodeSelector"] = json!({"kata": "false"})),
            "pods \"rp\" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[kata] = true; \
             pod.spec.nodeSelector[kata] = false",
        ),
    ];
    for (body, message) in table {
        let error = create(&mut api, &PODS, "default", body).unwrap_err();
        assert_eq!((error.code, error.reason, error.message.as_str()), (403, "Forbidden", message));
        assert_eq!(error.details.unwrap(), json!({"name": "rp", "kind": "pods"}));
    }
    assert!(api.list(&PODS).is_empty());
}

#[test]
fn an_admitted_pod_is_completed_from_its_class() {
    let mut api = server();
    create(&mut api, &RUNTIMECLASSES, "", class()).unwrap();
    let body = with(|spec| {
        // The same amounts, written differently.
        spec["overhead"] = json!({"cpu": "0.25", "memory": "367001600"});
        spec["nodeSelector"] = json!({"disk": "ssd", "kata": "true"});
        spec["tolerations"] = json!([{"key": "covered", "operator": "Exists"}]);
    });
    let made = object(create(&mut api, &PODS, "default", body));
    let spec = &made["spec"];
    assert_eq!(spec["overhead"], json!({"cpu": "250m", "memory": "350Mi"}));
    assert_eq!(spec["nodeSelector"], json!({"disk": "ssd", "kata": "true"}));
    let keys: Vec<&str> = spec["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|toleration| toleration["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        keys,
        ["covered", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "kata"]
    );
}

#[test]
fn custom_pools_must_inherit_from_workers() {
    let mut api = server();
    let resource = simcluster::resource::MACHINECONFIGPOOLS;
    super::definitions::define(
        &mut api,
        "machineconfiguration.openshift.io",
        "MachineConfigPool",
        "machineconfigpools",
    );
    let role = "machineconfiguration.openshift.io/role";
    let pool = |selector: Value| json!({"metadata": {"name": "X"}, "spec": {"machineConfigSelector": selector}});
    let named = |selector: Value| {
        let mut pool = pool(selector);
        pool["metadata"]["name"] = json!("kata-oc");
        pool
    };
    for selector in [
        json!({"matchExpressions": [{"key": role, "operator": "In", "values": ["kata-oc"]}]}),
        json!({"matchLabels": {role: "kata-oc"}}),
        json!({}),
    ] {
        let (code, reason, message) = told(create(&mut api, &resource, "", named(selector)));
        assert_eq!((code, reason.as_str()), (422, "Invalid"));
        assert_eq!(
            message,
            "machineconfigpools.machineconfiguration.openshift.io \"kata-oc\" is forbidden: ValidatingAdmissionPolicy \
             'custom-machine-config-pool-selector' with binding 'custom-machine-config-pool-selector-binding' denied \
             request: All custom MachineConfigPools must inherit from the worker pool and must have a \
             machineConfigSelector that matches for a 'machineconfiguration.openshift.io/role: worker' label"
        );
    }
    let good = json!({"matchExpressions": [{"key": role, "operator": "In", "values": ["worker", "kata-oc"]}]});
    assert_eq!(told(create(&mut api, &resource, "", named(good))).0, 201);
}

#[test]
fn a_runtime_class_with_labels_or_tolerations_that_cannot_be_is_refused() {
    let mut api = server();
    for (scheduling, complaint) in [
        (
            json!({"nodeSelector": {"no label": ""}}),
            "scheduling.nodeSelector: Invalid value: \"no label\": name part must consist of",
        ),
        (
            json!({"tolerations": [{"key": "a", "operator": "In"}]}),
            "scheduling.tolerations[0].operator: Unsupported value: \"In\": supported values: \"Equal\", \"Exists\"",
        ),
        (
            json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
            "value must be empty when `operator` is 'Exists'",
        ),
        (json!({"tolerations": [{"value": "b"}]}), "operator must be Exists when `key` is empty"),
        (
            json!({"tolerations": [{"key": "a", "effect": "Never"}]}),
            "scheduling.tolerations[0].effect: Unsupported value: \"Never\"",
        ),
        (
            json!({"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 3}]}),
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ),
        (json!({"tolerations": [{"key": "a", "value": "b c"}]}), "Invalid value: \"b c\""),
    ] {
        let class = json!({"metadata": {"name": "x"}, "handler": "x", "scheduling": scheduling});
        let refused = create(&mut api, &RUNTIMECLASSES, "", class).unwrap_err();
        assert_eq!(refused.code, 422, "{refused:?}");
        assert!(refused.message.contains(complaint), "{refused:?}");
    }
    let good = json!([{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]);
    let class = json!({
        "metadata": {"name": "x"}, "handler": "x",
        "scheduling": {"nodeSelector": {"a.example/b": "c"}, "tolerations": good},
    });
    create(&mut api, &RUNTIMECLASSES, "", class).unwrap();
}
