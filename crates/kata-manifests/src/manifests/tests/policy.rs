//! What the admission policy lets the operator change of a Node, by its own expressions.

use std::collections::HashMap;

use kube_cel::cel::{Context, Program, Value as Cel, to_value};

use super::*;

fn node(change: &Value) -> Value {
    let mut node = json!({
        "metadata": {
            "name": "worker-0",
            "labels": {"kubernetes.io/os": "linux"},
            "annotations": {"a": "b"},
        },
        "spec": {
            "podCIDR": "10.0.0.0/24",
            "podCIDRs": ["10.0.0.0/24"],
            "taints": [
                {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                {"key": names::STARTUP_TAINT, "effect": "NoExecute"},
            ],
        },
    });
    json_patch::merge(&mut node, change);
    node
}

/// The policy's spec, as it is rendered.
fn policy() -> Value {
    let objects = rendered(&arguments(Platform::Kubernetes));
    of_kind(&objects, "ValidatingAdmissionPolicy")[0]["spec"].clone()
}

/// The value of an expression. An error of CEL, for which the API server would refuse the request, ends the
/// test.
///
/// kube-cel has an evaluator of policies, and it is not used: it escapes every key of an object as if it
/// were a field of a schema, so that labels such as `katacontainers.io/kata-runtime` have other names in it.
fn evaluate(expression: &Value, context: &Context<'_>) -> Cel {
    let program = Program::compile(expression.as_str().unwrap()).unwrap();
    program.execute(context).unwrap()
}

/// The policy's messages against an update by the operator; empty if it is admitted.
fn refused(old: &Value, new: &Value) -> Vec<String> {
    let spec = policy();
    let mut context = Context::default();
    for (name, object) in [("object", new), ("oldObject", old)] {
        context.add_variable_from_value(name, to_value(object).unwrap());
    }
    let mut variables = HashMap::new();
    for variable in spec["variables"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap().to_owned();
        variables.insert(name, evaluate(&variable["expression"], &context));
        context.add_variable_from_value("variables", variables.clone());
    }
    let validations = spec["validations"].as_array().unwrap();
    let refusals = validations.iter().filter(|validation| {
        let admitted = evaluate(&validation["expression"], &context);
        assert!(matches!(admitted, Cel::Bool(_)), "{validation}");
        admitted == Cel::Bool(false)
    });
    refusals.map(|validation| validation["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_policy_matches_the_operator_alone() {
    let condition = &policy()["matchConditions"][0]["expression"];
    for (user, matches) in [
        ("system:serviceaccount:ns:kata-operator", true),
        ("system:serviceaccount:other:kata-operator", false),
        ("system:node:worker-0", false),
    ] {
        let mut context = Context::default();
        let request = json!({"userInfo": {"username": user}});
        context.add_variable_from_value("request", to_value(request).unwrap());
        assert_eq!(evaluate(condition, &context), Cel::Bool(matches), "{user}");
    }
}

#[test]
fn the_operator_may_do_to_a_node_what_it_does() {
    let foreign = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
    for change in [
        json!({}),
        json!({"metadata": {"labels": {names::RUNTIME_LABEL: "true", names::CLAIM_LABEL: "true"}}}),
        json!({"metadata": {"labels": {names::KATA_ROLE_LABEL: ""}}}),
        json!({"metadata": {"labels": {names::class_label("kata-qemu"): "true"}}}),
        json!({"spec": {"taints": foreign}}),
    ] {
        assert_eq!(refused(&node(&json!({})), &node(&change)), Vec::<String>::new(), "{change}");
        assert_eq!(refused(&node(&change), &node(&change)), Vec::<String>::new(), "{change}");
    }
    let only =
        node(&json!({"spec": {"taints": [{"key": names::STARTUP_TAINT, "effect": "NoSchedule"}]}}));
    let bare = node(&json!({"spec": {"taints": null}}));
    assert_eq!(refused(&only, &bare), Vec::<String>::new());
    let earlier = json!({"key": names::LEAVING_TAINT, "effect": "NoSchedule"});
    let earlier = node(&json!({"spec": {"taints": [earlier]}}));
    assert_eq!(refused(&earlier, &bare), Vec::<String>::new());
}

#[test]
fn the_operator_may_do_nothing_else_to_a_node() {
    let ours = json!({"key": names::STARTUP_TAINT, "effect": "NoExecute"});
    let gpu = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
    for (change, message) in [
        (json!({"spec": {"taints": null}}), "may change no other taints"),
        (json!({"spec": {"taints": [ours]}}), "may change no other taints"),
        (
            json!({"spec": {"taints": [gpu, ours, {"key": "mine", "effect": "NoExecute"}]}}),
            "may change no other taints",
        ),
        (
            json!({"spec": {"taints": [{"key": "gpu", "value": "no", "effect": "NoSchedule"}]}}),
            "may change no other taints",
        ),
        (json!({"spec": {"unschedulable": true}}), "may change no other taints"),
        (json!({"spec": {"taints": [gpu], "unschedulable": true}}), "may change no other taints"),
        (json!({"spec": {"taints": [gpu], "podCIDR": null}}), "may change no other taints"),
        (json!({"spec": {"taints": [gpu], "providerID": "other"}}), "may change no other taints"),
        (
            json!({"spec": {"taints": [gpu, ours, {"key": names::LEAVING_TAINT, "effect": "NoSchedule"}]}}),
            "may change no other taints",
        ),
        (json!({"metadata": {"labels": {"mine": "x"}}}), "may set no other labels"),
        (json!({"metadata": {"labels": {names::CLOSED_LABEL: "true"}}}), "may set no other labels"),
        (
            json!({"metadata": {"labels": {"other.node-restriction.kubernetes.io/kata": "true"}}}),
            "may set no other labels",
        ),
        (json!({"metadata": {"labels": {"kubernetes.io/os": null}}}), "may remove no other labels"),
        (json!({"metadata": {"annotations": {"a": "c"}}}), "may not annotate"),
        (json!({"metadata": {"finalizers": ["mine/x"]}}), "may not hold up"),
        (
            json!({"metadata": {"ownerReferences": [{"uid": "gone"}]}}),
            "may not give a node an owner",
        ),
    ] {
        let messages = refused(&node(&json!({})), &node(&change));
        assert!(messages.len() == 1 && messages[0].contains(message), "{change}: {messages:?}");
    }
    let bare = node(&json!({"spec": {"taints": null}}));
    let tainted =
        node(&json!({"spec": {"taints": [{"key": names::STARTUP_TAINT, "effect": "NoExecute"}]}}));
    assert_eq!(refused(&bare, &tainted).len(), 1, "it does not put the startup taint on a node");
}
