//! The CEL rules of the KataConfig's schema, each with what it lets pass and what it says otherwise.

use kata_api::KataConfig;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

/// The messages with which the rules refuse a spec.
#[track_caller]
fn refusals(spec: &Value) -> Vec<String> {
    let crd = serde_json::to_value(KataConfig::crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let object = json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "t"}, "spec": spec,
    });
    match kube_cel::Validator::new().validate(schema, &object, None) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.as_slice().iter().map(|error| error.message.clone()).collect(),
    }
}

#[test]
fn a_log_level_of_crio_passes_and_any_other_is_told_what_there_is() {
    for level in ["fatal", "panic", "error", "warn", "info", "debug", "trace"] {
        assert_eq!(refusals(&json!({"logLevel": level})), [""; 0], "{level}");
    }
    let message = "logLevel must be one of fatal, panic, error, warn, info, debug, trace";
    assert_eq!(refusals(&json!({"logLevel": "loud"})), [message]);
    assert_eq!(refusals(&json!({"logLevel": ""})), [message]);
}

#[test]
fn max_unavailable_is_a_number_from_1_or_a_percentage_from_1_to_100() {
    for value in [json!(1), json!(250), json!("1%"), json!("33%"), json!("100%")] {
        assert_eq!(refusals(&json!({"rollout": {"maxUnavailable": value}})), [""; 0], "{value}");
    }
    for value in [
        json!(0),
        json!(-1),
        json!("0%"),
        json!("101%"),
        json!("abc"),
        json!(""),
        json!("1.5%"),
        json!("5"),
    ] {
        assert_eq!(
            refusals(&json!({"rollout": {"maxUnavailable": value}})),
            ["maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%"],
            "{value}"
        );
    }
}

#[test]
fn resources_of_an_overhead_have_names_with_a_domain() {
    let spec =
        |name: &str| json!({"runtimes": [{"name": "a", "overhead": {"resources": {name: 1}}}]});
    let long = "n".repeat(63);
    for name in ["tdx.intel.com/keys", "nvidia.com/pgpu", "a/B_c.d", &format!("sev/{long}")] {
        assert_eq!(refusals(&spec(name)), [""; 0], "{name}");
    }
    let message = "resources must have names with a domain, such as tdx.intel.com/keys; cpu and memory have fields of \
                   their own";
    for name in [
        "cpu",
        "memory",
        "hugepages-2Mi",
        "A.com/x",
        "a/",
        "/x",
        "a/b/c",
        "-a/x",
        "a..b/x",
        "a.-b/x",
        &format!("a/{long}n"),
    ] {
        assert_eq!(refusals(&spec(name)), [message], "{name}");
    }
    let message = "resources must not be of the domain kubernetes.io, begin with requests., or have a domain of more \
                   than 244 characters";
    let domain = "a".repeat(245);
    for name in [
        "kubernetes.io/x",
        "node.kubernetes.io/x",
        "mykubernetes.io/x",
        "requests.a.b/x",
        &format!("{domain}/x"),
    ] {
        assert_eq!(refusals(&spec(name)), [message], "{name}");
    }
}

#[test]
fn runtimes_with_one_handler_have_one_shim_and_one_config() {
    let spec = |a: Value, b: Value| json!({"runtimes": [a, b]});
    let named = |name: &str, more: Value| {
        let mut runtime = json!({"name": name});
        runtime.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        runtime
    };
    for (a, b) in [
        (json!({}), json!({})),
        (json!({"handler": "kata"}), json!({"handler": "kata", "shim": "qemu"})),
        (json!({"handler": "kata-clh"}), json!({"handler": "kata-clh", "shim": "clh"})),
        (json!({"handler": "x", "config": "a"}), json!({"handler": "x", "config": "a"})),
        (json!({"handler": "x", "config": "a"}), json!({"handler": "y", "config": "b"})),
    ] {
        assert_eq!(
            refusals(&spec(named("a", a.clone()), named("b", b.clone()))),
            [""; 0],
            "{a} {b}"
        );
    }
    let message = "runtimes with the same handler must have the same shim and the same config";
    for (a, b) in [
        (json!({"handler": "kata"}), json!({"handler": "kata", "shim": "clh"})),
        (json!({"handler": "kata-clh"}), json!({"handler": "kata-clh", "shim": "qemu"})),
        (json!({"handler": "x", "config": "a"}), json!({"handler": "x", "config": "b"})),
        (json!({"handler": "b", "config": "a"}), json!({})),
    ] {
        assert_eq!(
            refusals(&spec(named("a", a.clone()), named("b", b.clone()))),
            [message],
            "{a} {b}"
        );
    }
}

#[test]
fn a_requirement_has_values_exactly_if_its_operator_takes_some() {
    let selector =
        |requirement: Value| json!({"kataConfigPoolSelector": {"matchExpressions": [requirement]}});
    for good in [
        json!({"key": "a", "operator": "In", "values": ["x"]}),
        json!({"key": "a", "operator": "NotIn", "values": ["x", "y"]}),
        json!({"key": "a", "operator": "Exists"}),
        json!({"key": "a", "operator": "DoesNotExist", "values": []}),
    ] {
        assert_eq!(refusals(&selector(good.clone())), [""; 0], "{good}");
    }
    for operator in ["In", "NotIn"] {
        for bad in [
            json!({"key": "a", "operator": operator}),
            json!({"key": "a", "operator": operator, "values": []}),
        ] {
            let message = "values must hold at least one value for operator In or NotIn";
            assert_eq!(refusals(&selector(bad.clone())), [message], "{bad}");
        }
    }
    for operator in ["Exists", "DoesNotExist"] {
        let bad = json!({"key": "a", "operator": operator, "values": ["x"]});
        assert_eq!(
            refusals(&selector(bad)),
            ["values must be empty for operator Exists or DoesNotExist"]
        );
    }
}

#[test]
fn every_field_of_both_kinds_is_described() {
    fn undescribed(path: &str, schema: &Value, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let standard = ["apiVersion", "kind", "metadata"].contains(&name.as_str());
            if property["description"].as_str().is_none_or(str::is_empty) && !standard {
                found.push(path.clone());
            }
            undescribed(&path, property, found);
            undescribed(&format!("{path}[]"), &property["items"], found);
        }
    }
    let mut found = Vec::new();
    for crd in kata_api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        undescribed(&format!("{kind}.spec"), &schema["properties"]["spec"], &mut found);
        undescribed(&format!("{kind}.status"), &schema["properties"]["status"], &mut found);
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_toleration_is_one_that_a_runtime_class_may_have() {
    let class =
        |toleration: &Value| json!({"runtimes": [{"name": "kata", "tolerations": [toleration]}]});
    for good in [
        json!({"operator": "Exists"}),
        json!({"key": "a"}),
        json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}),
        json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}),
    ] {
        assert_eq!(refusals(&class(&good)), [""; 0], "{good}");
    }
    for (bad, message) in [
        (json!({"value": "b"}), "operator must be Exists for an empty key, which means all keys"),
        (
            json!({"key": "", "operator": "Equal"}),
            "operator must be Exists for an empty key, which means all keys",
        ),
        (
            json!({"key": "a", "operator": "Exists", "value": "b"}),
            "value must be empty for operator Exists",
        ),
        (
            json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 3}),
            "effect must be NoExecute where tolerationSeconds is given",
        ),
    ] {
        assert_eq!(refusals(&class(&bad)), [message], "{bad}");
    }
}

#[test]
fn keys_of_labels_are_such_as_a_node_can_have() {
    let message = "keys of labels must be like kata or example.com/kata: at most 63 letters, digits, '-', '_' and '.' \
                   after the domain";
    let places: [fn(&str) -> Value; 4] = [
        |key| json!({"kataConfigPoolSelector": {"matchLabels": {key: "x"}}}),
        |key| json!({"providedNodes": {"matchLabels": {key: "x"}}}),
        |key| json!({"runtimes": [{"name": "a", "installOn": {"matchLabels": {key: "x"}}}]}),
        |key| json!({"runtimes": [{"name": "a", "nodeSelector": {key: "x"}}]}),
    ];
    let long = "n".repeat(63);
    for spec in places {
        for key in ["kata", "a.b/C_d.e-f", "a-1.b/x", &long] {
            assert_eq!(refusals(&spec(key)), [""; 0], "{key}");
        }
        let longer = format!("{long}n");
        for key in ["bad key!", "", "a/", "/a", "a/b/c", "-a", "a-", "A.com/x", "a..b/x", &longer] {
            assert_eq!(refusals(&spec(key)), [message], "{key}");
        }
    }
}
