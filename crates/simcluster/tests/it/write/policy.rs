//! ValidatingAdmissionPolicies: which writes they see, and what they answer.

use serde_json::{Value, json};
use simcluster::api::ApiServer;
use simcluster::api::authentication::User;
use simcluster::api::server::{WriteRequest, WriteVerb};
use simcluster::resource::{
    CONFIGMAPS, VALIDATINGADMISSIONPOLICIES, VALIDATINGADMISSIONPOLICYBINDINGS,
};

use super::{Answer, create, now, request, server, told};

/// A policy for ConfigMaps, with these fields besides or instead.
fn policy(fields: &Value) -> Value {
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
        }]},
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn bound(fields: &Value) -> ApiServer {
    let mut api = server();
    create(&mut api, &VALIDATINGADMISSIONPOLICIES, "", policy(fields)).unwrap();
    let binding = json!({
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    create(&mut api, &VALIDATINGADMISSIONPOLICYBINDINGS, "", binding).unwrap();
    api
}

fn by(user: &str, verb: WriteVerb, place: (&str, &str), body: Value) -> WriteRequest {
    let user = Some(User { name: user.to_owned(), ..User::default() });
    WriteRequest { user, ..request(verb, &CONFIGMAPS, place, body) }
}

fn map(name: &str, data: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}}, "data": {"key": data}})
}

fn make(api: &mut ApiServer, user: &str, data: &str) -> Answer {
    api.write(now(), &by(user, WriteVerb::Create, ("default", ""), map("m", data)))
}

#[test]
fn a_denial_reads_as_that_of_the_real_server() {
    let mut api = bound(&json!({
        "variables": [{"name": "key", "expression": "object.data.key"}],
        "validations": [
            {"expression": "variables.key != 'a'", "message": "not a"},
            {"expression": "variables.key != 'b'", "messageExpression": "'not ' + variables.key"},
            {"expression": "variables.key != 'c'"},
            {"expression": "variables.key != 'd'", "message": "not d", "reason": "Forbidden"},
            {"expression": "object.spec == 1 || variables.key != 'e'", "message": "never shown"},
            {"expression": "object.?other.orValue('none') == 'none' && variables.key != 'f'"},
        ],
    }));
    for (data, code, said) in [
        ("a", 422, "not a"),
        ("b", 422, "not b"),
        ("c", 422, "failed expression: variables.key != 'c'"),
        ("d", 403, "not d"),
        (
            "f",
            422,
            "failed expression: object.?other.orValue('none') == 'none' && variables.key != 'f'",
        ),
        ("e", 422, "expression 'object.spec == 1 || variables.key != 'e'' resulted in error: "),
    ] {
        let (answered, _, message) = told(make(&mut api, "eve", data));
        assert_eq!(answered, code, "{message}");
        let text = format!(
            "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {said}"
        );
        assert!(message.starts_with(&text), "{message}");
    }
}

#[test]
fn conditions_say_whom_a_policy_concerns() {
    let mut api = bound(&json!({
        "matchConditions": [{"name": "c", "expression": "request.userInfo.username == 'eve'"}],
        "validations": [{"expression": "request.operation == 'UPDATE' && object.data == oldObject.data"}],
    }));
    assert_eq!(told(make(&mut api, "eve", "x")).0, 422);
    assert_eq!(told(make(&mut api, "ann", "x")).0, 201);
    let place = ("default", "m");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let merge = WriteVerb::Patch(simcluster::api::server::PatchType::Merge);
    assert_eq!(told(api.write(now(), &by("eve", merge.clone(), place, label))).0, 200);
    let data = json!({"data": {"key": "y"}});
    assert_eq!(told(api.write(now(), &by("eve", merge, place, data))).0, 422);
    let deletion = by("eve", WriteVerb::Delete, place, Value::Null);
    assert_eq!(told(api.write(now(), &deletion)).0, 422);
    let collection = WriteVerb::DeleteCollection(vec![("default".to_owned(), "m".to_owned())]);
    assert_eq!(told(api.write(now(), &by("eve", collection, ("default", ""), Value::Null))).0, 422);
    let deletion = by("ann", WriteVerb::Delete, place, Value::Null);
    assert_eq!(told(api.write(now(), &deletion)).0, 200);
}

#[test]
fn rules_say_which_writes_a_policy_sees() {
    let never = json!([{"expression": "false"}]);
    let rule = |resources: &str, operations: &str| {
        json!({"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["*"], "resources": [resources], "operations": [operations],
        }]})
    };
    let with = |mut constraints: Value, key: &str, value: Value| {
        constraints[key] = value;
        constraints
    };
    let all = || rule("*", "*");
    let labelled = |value: &str| json!({"matchLabels": {"app": value}});
    let listed = |operator: &str| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": ["m"]}]});
    let in_default = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    let in_other = json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}});
    for (constraints, sees) in [
        (all(), true),
        (rule("configmaps", "CREATE"), true),
        (rule("configmaps", "UPDATE"), false),
        (rule("configmaps/status", "CREATE"), false),
        (rule("configmaps/*", "CREATE"), true),
        (rule("secrets", "CREATE"), false),
        (
            with(all(), "excludeResourceRules", rule("configmaps", "*")["resourceRules"].clone()),
            false,
        ),
        (with(all(), "objectSelector", labelled("m")), true),
        (with(all(), "objectSelector", labelled("n")), false),
        (with(all(), "objectSelector", listed("In")), true),
        (with(all(), "objectSelector", listed("NotIn")), false),
        (with(all(), "namespaceSelector", in_default), true),
        (with(all(), "namespaceSelector", in_other), false),
    ] {
        let mut api = bound(&json!({"matchConstraints": constraints, "validations": never}));
        let code = told(make(&mut api, "eve", "x")).0;
        assert_eq!(code == 422, sees, "{constraints}: {code}");
    }
}

#[test]
fn an_error_denies_unless_the_policy_ignores_it() {
    for (failure, code) in [("Fail", 422), ("Ignore", 201)] {
        for fields in [
            json!({"validations": [{"expression": "object.nothing.there"}]}),
            json!({
                "matchConditions": [{"name": "c", "expression": "object.nothing.there"}],
                "validations": [{"expression": "false"}],
            }),
            json!({
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "validations": [{"expression": "params.data.x == '1'"}],
            }),
        ] {
            let mut fields = fields;
            fields["failurePolicy"] = json!(failure);
            let mut api = bound(&fields);
            assert_eq!(told(make(&mut api, "eve", "x")).0, code, "{fields}");
        }
    }
}

#[test]
fn an_expression_that_is_none_is_refused_with_its_policy() {
    let mut api = server();
    let wrong =
        policy(&json!({"validations": [{"expression": "true"}, {"expression": "object."}]}));
    let (code, _, message) = told(create(&mut api, &VALIDATINGADMISSIONPOLICIES, "", wrong));
    assert_eq!(code, 422, "{message}");
    assert!(message.contains("spec.validations[1].expression"), "{message}");
    assert!(message.contains("compilation failed"), "{message}");
}

/// The cluster's own controllers are not asked, nor is anybody without a binding, or by one that only warns.
#[test]
fn only_bound_policies_concern_users() {
    let mut api = bound(&json!({"validations": [{"expression": "false"}]}));
    assert_eq!(told(create(&mut api, &CONFIGMAPS, "default", map("own", "x"))).0, 201);
    let warns = json!({"spec": {"validationActions": ["Warn"]}});
    super::merge(&mut api, &VALIDATINGADMISSIONPOLICYBINDINGS, ("", "b"), warns).unwrap();
    assert_eq!(told(make(&mut api, "eve", "x")).0, 201);
}
