//! Rows as kubectl shows them.

use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{cells, columns, duration};
use crate::Resource;
use crate::api::jsonpath;
use crate::api::registry::{CustomDef, Registry, ResourceDef};

const CREATED: &str = "2026-01-01T00:00:00Z";

fn now() -> Timestamp {
    "2026-01-01T00:05:00Z".parse().unwrap()
}

fn custom(columns: Value) -> ResourceDef {
    let Value::Array(columns) = columns else { panic!("columns are a list") };
    ResourceDef {
        resource: Resource::new("sim.example.com", "widgets"),
        version: "v1".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        singular: "widget".into(),
        namespaced: false,
        short_names: Vec::new(),
        categories: Vec::new(),
        status: true,
        scale: None,
        generation: true,
        custom: Some(Arc::new(CustomDef {
            schema: Default::default(),
            columns,
            selectable_fields: Vec::new(),
        })),
    }
}

/// The row of an object with metadata added, columns of priority 1 after a bar.
fn row(group: &'static str, plural: &'static str, mut object: Value) -> String {
    let registry = Registry::default();
    let def = registry.get(&Resource::new(group, plural)).unwrap();
    object["kind"] = json!(def.kind);
    object["metadata"]["name"] = json!("x");
    object["metadata"]["creationTimestamp"] = json!(CREATED);
    let columns = columns(def);
    let cells = cells(def, &object, now());
    assert_eq!(columns.len(), cells.len(), "{plural}");
    let shown = |priority: i64| {
        columns
            .iter()
            .zip(&cells)
            .filter(|(column, _)| column["priority"] == priority)
            .map(|(_, cell)| match cell {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    match shown(1).as_str() {
        "" => shown(0),
        wide => format!("{} | {wide}", shown(0)),
    }
}

#[test]
fn ages_use_at_most_two_units() {
    let (minute, hour, day) = (60, 3600, 86_400);
    for (seconds, expected) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (10 * minute - 1, "9m59s"),
        (10 * minute + 59, "10m"),
        (3 * hour - 1, "179m"),
        (3 * hour, "3h"),
        (3 * hour + minute, "3h1m"),
        (8 * hour - 1, "7h59m"),
        (8 * hour + minute, "8h"),
        (48 * hour - 1, "47h"),
        (48 * hour, "2d"),
        (2 * day + hour, "2d1h"),
        (8 * day - 1, "7d23h"),
        (8 * day + hour, "8d"),
        (729 * day, "729d"),
        (730 * day, "2y"),
        (731 * day, "2y1d"),
        (8 * 365 * day + day, "8y"),
    ] {
        assert_eq!(duration::human(seconds), expected, "{seconds} s");
    }
}

#[test]
fn paths_of_columns_find_values() {
    let value = json!({"a": {"b": [1, {"c": 2}]}, "x.y/z": {"k": "v"}, "conditions": [
        {"type": "Other", "status": "False"}, {"type": "Ready", "status": "True", "n": 3}]});
    for (path, expected) in [
        (".a.b[0]", json!(1)),
        (".a.b[1].c", json!(2)),
        (".a.b[-1].c", json!(2)),
        ("{.a.b[0]}", json!(1)),
        ("a.b[0]", json!(1)),
        (".a.b[*].c", json!(2)),
        (".['x.y/z'].k", json!("v")),
        ("['x.y/z']['k']", json!("v")),
        (r".x\.y/z.k", json!("v")),
        (r#".conditions[?(@.type=="Ready")].status"#, json!("True")),
        (".conditions[?(@.type == 'Ready')].status", json!("True")),
        (".conditions[?(@.type!='Ready')].status", json!("False")),
        (".conditions[?(@.n)].status", json!("True")),
        (".conditions[?(@.n==3)].type", json!("Ready")),
        (".missing", Value::Null),
        (".a.b[7]", Value::Null),
        (".a.b[", Value::Null),
        (".a..b", Value::Null),
        (".conditions[?(type)]", Value::Null),
    ] {
        assert_eq!(jsonpath::first(path, &value).cloned().unwrap_or_default(), expected, "{path}");
    }
}

#[test]
fn custom_columns_follow_their_types() {
    let column = |kind: &str, path: &str| json!({"name": path, "type": kind, "jsonPath": path});
    let def = custom(json!([
        column("string", ".text"),
        column("string", ".list"),
        column("string", ".missing"),
        column("integer", ".count"),
        column("integer", ".half"),
        column("integer", ".text"),
        column("number", ".count"),
        column("boolean", ".flag"),
        column("date", ".at"),
        column("date", ".text"),
        {"name": "Wide", "type": "string", "jsonPath": ".text", "priority": 1, "description": "D"},
    ]));
    let object = json!({"metadata": {"name": "x"}, "text": "t", "list": ["a", "b"], "count": 3, "half": 2.5,
        "flag": true, "at": "2026-01-01T00:04:00Z"});
    assert_eq!(
        cells(&def, &object, now()),
        [
            json!("x"),
            json!("t"),
            json!(r#"["a","b"]"#),
            Value::Null,
            json!(3),
            json!(2),
            Value::Null,
            json!(3.0),
            json!(true),
            json!("60s"),
            json!("<invalid>"),
            json!("t"),
        ]
    );
    let columns = columns(&def);
    assert_eq!(columns[0]["format"], "name");
    assert_eq!(
        columns[1]["description"],
        "Custom resource definition column (in JSONPath format): .text"
    );
    assert_eq!(
        columns[11],
        json!({"name": "Wide", "type": "string", "format": "", "description": "D", "priority": 1})
    );
}

#[test]
fn custom_resources_without_columns_show_their_age() {
    let def = custom(json!([]));
    let object = json!({"metadata": {"name": "x", "creationTimestamp": CREATED}});
    assert_eq!(cells(&def, &object, now()), [json!("x"), json!("5m")]);
    let names: Vec<Value> = columns(&def).iter().map(|column| column["name"].clone()).collect();
    assert_eq!(names, ["Name", "Age"]);
}

#[test]
fn pods_show_the_one_word_that_matters() {
    let pod = |spec: Value, status: Value| {
        let row = row("", "pods", json!({"spec": spec, "status": status}));
        row.split(" | ").next().unwrap().to_owned()
    };
    let one = json!({"containers": [{"name": "c"}]});
    let two = json!({"containers": [{"name": "c"}, {"name": "d"}]});
    let init =
        json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
    let sidecar = json!({"containers": [{"name": "c"}],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}]});
    let running = json!({"name": "c", "ready": true, "state": {"running": {}}});
    let ended =
        json!({"name": "d", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    for (spec, status, expected) in [
        (&one, json!({"phase": "Pending"}), "x 0/1 Pending 0 5m"),
        (&one, json!({"phase": "Running", "containerStatuses": [running]}), "x 1/1 Running 0 5m"),
        (
            &one,
            json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "x 0/1 SchedulingGated 0 5m",
        ),
        (
            &one,
            json!({"phase": "Running", "containerStatuses": [{"restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"finishedAt": "2026-01-01T00:04:30Z"}}}]}),
            "x 0/1 CrashLoopBackOff 3 (30s ago) 5m",
        ),
        (
            &one,
            json!({"phase": "Pending", "containerStatuses": [
                {"state": {"waiting": {"reason": "ContainerCreating"}}}]}),
            "x 0/1 ContainerCreating 0 5m",
        ),
        (&one, json!({"phase": "Failed", "reason": "Evicted"}), "x 0/1 Evicted 0 5m"),
        (
            &one,
            json!({"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 3}}}]}),
            "x 0/1 ExitCode:3 0 5m",
        ),
        (
            &one,
            json!({"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
            "x 0/1 Signal:9 0 5m",
        ),
        (
            &two,
            json!({"phase": "Running", "containerStatuses": [ended, running]}),
            "x 1/2 NotReady 0 5m",
        ),
        (
            &two,
            json!({"phase": "Running", "containerStatuses": [ended, running],
                "conditions": [{"type": "Ready", "status": "True"}]}),
            "x 1/2 Running 0 5m",
        ),
        (
            &init,
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}},
                {"name": "j", "state": {"running": {}}}]}),
            "x 0/1 Init:1/2 0 5m",
        ),
        (
            &init,
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
            "x 0/1 Init:CrashLoopBackOff 2 5m",
        ),
        (
            &init,
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
            "x 0/1 Init:Error 0 5m",
        ),
        (
            &sidecar,
            json!({"phase": "Running", "containerStatuses": [running], "initContainerStatuses": [
                {"name": "i", "started": true, "ready": true, "restartCount": 1,
                    "state": {"running": {}}}]}),
            "x 2/2 Running 1 5m",
        ),
    ] {
        assert_eq!(pod(spec.clone(), status.clone()), expected, "{status}");
    }
}

#[test]
fn pods_that_are_deleted_terminate() {
    let deleted = |status: Value| {
        row("", "pods", json!({"metadata": {"deletionTimestamp": CREATED}, "status": status}))
    };
    let wide = "<none> <none> <none> <none>";
    assert_eq!(deleted(json!({"phase": "Running"})), format!("x 0/0 Terminating 0 5m | {wide}"));
    assert_eq!(deleted(json!({"phase": "Succeeded"})), format!("x 0/0 Succeeded 0 5m | {wide}"));
    assert_eq!(
        deleted(json!({"phase": "Running", "reason": "NodeLost"})),
        format!("x 0/0 Unknown 0 5m | {wide}")
    );
}

#[test]
fn built_in_kinds_have_the_columns_of_the_api_server() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}],
        "nodeSelector": {"b": "2", "a": "1"}}});
    let selector = json!({"matchLabels": {"app": "x"},
        "matchExpressions": [{"key": "k", "operator": "In", "values": ["a", "b"]}]});
    for (group, plural, object, expected) in [
        (
            "",
            "pods",
            json!({"spec": {"nodeName": "n", "readinessGates": [{"conditionType": "g"}]},
                "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
                    "conditions": [{"type": "g", "status": "True"}]}}),
            "x 0/0 Running 0 5m | 10.0.0.1 n <none> 1/1",
        ),
        (
            "",
            "nodes",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "",
                    "node-role.kubernetes.io/kata": ""}},
                "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {"kubeletVersion": "v1.34.0", "kernelVersion": "5.14"}}}),
            "x Ready,SchedulingDisabled kata,worker 5m v1.34.0 | 10.0.0.1 <none> <unknown> 5.14 <unknown>",
        ),
        (
            "",
            "nodes",
            json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
            "x NotReady <none> 5m  | <none> <none> <unknown> <unknown> <unknown>",
        ),
        (
            "",
            "nodes",
            json!({}),
            "x Unknown <none> 5m  | <none> <none> <unknown> <unknown> <unknown>",
        ),
        (
            "",
            "events",
            json!({"type": "Normal", "reason": "Started", "message": " up \n", "count": 3,
                "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
                "source": {"component": "kubelet", "host": "n"},
                "firstTimestamp": CREATED, "lastTimestamp": "2026-01-01T00:04:00Z"}),
            "60s Normal Started pod/p up | spec.containers{c} kubelet, n 5m 3 x",
        ),
        (
            "events.k8s.io",
            "events",
            json!({"type": "Warning", "reason": "Bad", "note": "no", "eventTime": CREATED,
                "regarding": {"kind": "Node", "name": "n"}, "reportingController": "mco"}),
            "5m Warning Bad node/n no |  mco 5m 1 x",
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "NodePort", "clusterIP": "10.1.0.1", "selector": {"a": "b"},
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}}),
            "x NodePort 10.1.0.1 <none> 80:30080/TCP,53/UDP 5m | a=b",
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "LoadBalancer"}}),
            "x LoadBalancer <none> <pending> <none> 5m | <none>",
        ),
        ("", "namespaces", json!({"status": {"phase": "Active"}}), "x Active 5m"),
        ("", "configmaps", json!({"data": {"a": ""}, "binaryData": {"b": ""}}), "x 2 5m"),
        ("", "secrets", json!({"type": "Opaque", "data": {"a": ""}}), "x Opaque 1 5m"),
        ("", "serviceaccounts", json!({}), "x 5m"),
        ("", "endpoints", json!({}), "x 5m"),
        (
            "apps",
            "deployments",
            json!({"spec": {"replicas": 2, "template": template, "selector": selector},
                "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
            "x 1/2 2 1 5m | c i app=x,k in (a,b)",
        ),
        (
            "apps",
            "replicasets",
            json!({"spec": {"replicas": 2, "template": template, "selector": selector},
                "status": {"replicas": 2}}),
            "x 2 2 0 5m | c i app=x,k in (a,b)",
        ),
        (
            "",
            "replicationcontrollers",
            json!({"spec": {"replicas": 2, "template": template, "selector": {"a": "b"}}}),
            "x 2 0 0 5m | c i a=b",
        ),
        (
            "apps",
            "statefulsets",
            json!({"spec": {"replicas": 2, "template": template}, "status": {"readyReplicas": 2}}),
            "x 2/2 5m | c i",
        ),
        (
            "apps",
            "daemonsets",
            json!({"spec": {"template": template, "selector": selector},
                "status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 2,
                    "numberReady": 1, "updatedNumberScheduled": 2, "numberAvailable": 1}}),
            "x 3 2 1 2 1 a=1,b=2 5m | c i app=x,k in (a,b)",
        ),
        (
            "batch",
            "jobs",
            json!({"spec": {"completions": 1, "template": template}, "status": {"succeeded": 1,
                "startTime": CREATED, "completionTime": "2026-01-01T00:01:30Z",
                "conditions": [{"type": "Complete", "status": "True"}]}}),
            "x Complete 1/1 90s 5m | c i <none>",
        ),
        (
            "batch",
            "jobs",
            json!({"spec": {"parallelism": 2}, "status": {}}),
            "x Running 0/1 of 2  5m |   <none>",
        ),
        (
            "batch",
            "cronjobs",
            json!({"spec": {"schedule": "* * * * *", "suspend": false,
                "jobTemplate": {"spec": {"template": template}}}, "status": {"active": [{}]}}),
            "x * * * * * <none> False 1 <none> 5m | c i <none>",
        ),
        ("node.k8s.io", "runtimeclasses", json!({"handler": "kata"}), "x kata 5m"),
        ("coordination.k8s.io", "leases", json!({"spec": {"holderIdentity": "me"}}), "x me 5m"),
        (
            "policy",
            "poddisruptionbudgets",
            json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
            "x 50% N/A 1 5m",
        ),
        ("policy", "poddisruptionbudgets", json!({"spec": {"maxUnavailable": 1}}), "x N/A 1 0 5m"),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"value": 1000}),
            "x 1000 false 5m PreemptLowerPriority",
        ),
        ("apiextensions.k8s.io", "customresourcedefinitions", json!({}), "x 2026-01-01T00:00:00Z"),
        ("rbac.authorization.k8s.io", "roles", json!({}), "x 2026-01-01T00:00:00Z"),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
                {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
                {"kind": "Group", "name": "g"}]}),
            "x Role/r 5m |  g n/s",
        ),
    ] {
        assert_eq!(row(group, plural, object.clone()), expected, "{plural}: {object}");
    }
}

#[test]
fn column_names_are_those_of_the_api_server() {
    let registry = Registry::default();
    let names = |group: &'static str, plural: &'static str| {
        let def = registry.get(&Resource::new(group, plural)).unwrap();
        columns(def)
            .iter()
            .map(|column| column["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join("|")
    };
    for (group, plural, expected) in [
        ("", "pods", "Name|Ready|Status|Restarts|Age|IP|Node|Nominated Node|Readiness Gates"),
        (
            "",
            "nodes",
            "Name|Status|Roles|Age|Version|Internal-IP|External-IP|OS-Image|Kernel-Version|\
             Container-Runtime",
        ),
        (
            "",
            "events",
            "Last Seen|Type|Reason|Object|Subobject|Source|Message|First Seen|Count|Name",
        ),
        ("", "services", "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector"),
        ("apps", "deployments", "Name|Ready|Up-to-date|Available|Age|Containers|Images|Selector"),
        ("batch", "jobs", "Name|Status|Completions|Duration|Age|Containers|Images|Selector"),
    ] {
        assert_eq!(names(group, plural), expected);
    }
}

proptest! {
    #[test]
    fn odd_objects_and_paths_print_something(
        path in r#"[.\[\]a-c0-9*'"?(@=!)\\-]{0,12}"#,
        value in prop_oneof![Just(json!(null)), Just(json!("a")), Just(json!([1, [2]])),
            Just(json!({"metadata": [], "spec": 3, "status": {"conditions": {}}})),
            Just(json!({"a": {"b": ["c"]}, "status": {"containerStatuses": [null, 1]}}))],
    ) {
        let def = custom(json!([{"name": "N", "type": "string", "jsonPath": path}]));
        prop_assert_eq!(cells(&def, &value, now()).len(), columns(&def).len());
        for def in Registry::default().iter() {
            prop_assert_eq!(cells(def, &value, now()).len(), columns(def).len());
        }
    }
}
