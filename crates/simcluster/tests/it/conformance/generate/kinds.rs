//! Sequences about other built-in kinds: what is filled in, what is refused, who owns it.

use serde_json::{Value, json};

use super::{
    APPLY, Dice, JSON_PATCH, MERGE, PLAIN, Request, STRATEGIC, delete, metadata, precondition,
    query, request,
};

/// A kind of which a sequence makes objects.
struct Kind {
    collection: &'static str,
    /// How the object's names begin: cluster-wide names carry the number of the sequence.
    names: [&'static str; 2],
    body: fn(&mut Dice) -> Value,
    /// Merge patches that suit the kind.
    patches: fn(&mut Dice) -> Value,
}

const NAMESPACED: [&str; 2] = ["one", "two"];
const CLUSTER: [&str; 2] = ["one-$ID", "two-$ID"];

const KINDS: [Kind; 15] = [
    Kind {
        collection: "/apis/apps/v1/namespaces/$NS/deployments",
        names: NAMESPACED,
        body: |dice| workload(dice, "Deployment"),
        patches: workload_patch,
    },
    Kind {
        collection: "/apis/apps/v1/namespaces/$NS/daemonsets",
        names: NAMESPACED,
        body: |dice| workload(dice, "DaemonSet"),
        patches: workload_patch,
    },
    Kind {
        collection: "/apis/apps/v1/namespaces/$NS/replicasets",
        names: NAMESPACED,
        body: |dice| workload(dice, "ReplicaSet"),
        patches: workload_patch,
    },
    Kind {
        collection: "/apis/apps/v1/namespaces/$NS/statefulsets",
        names: NAMESPACED,
        body: |dice| workload(dice, "StatefulSet"),
        patches: workload_patch,
    },
    Kind {
        collection: "/apis/batch/v1/namespaces/$NS/jobs",
        names: NAMESPACED,
        body: |dice| {
            let mut spec = json!({"template": template(dice, "Never")});
            if dice.chance(30) {
                spec["completions"] = json!(dice.roll(4));
            }
            if dice.chance(20) {
                spec["suspend"] = json!(true);
            }
            json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec})
        },
        patches: |dice| json!({"spec": {"suspend": dice.chance(50), "parallelism": dice.roll(3)}}),
    },
    Kind {
        collection: "/apis/policy/v1/namespaces/$NS/poddisruptionbudgets",
        names: NAMESPACED,
        body: |dice| {
            let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}});
            if dice.chance(60) {
                spec["maxUnavailable"] = dice.pick(&[&json!(1), &json!("25%"), &json!(-1)]).clone();
            }
            if dice.chance(40) {
                spec["minAvailable"] = json!(1);
            }
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": spec})
        },
        patches: |dice| json!({"spec": {"maxUnavailable": dice.roll(3)}}),
    },
    Kind {
        collection: "/apis/coordination.k8s.io/v1/namespaces/$NS/leases",
        names: NAMESPACED,
        body: |dice| {
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {
                "holderIdentity": dice.pick(&["x", "y"]),
                "leaseDurationSeconds": dice.roll(3),
                "renewTime": "2026-01-01T00:00:00.000000Z",
            }})
        },
        patches: |dice| json!({"spec": {"holderIdentity": dice.pick(&["x", "z"]), "leaseTransitions": 1}}),
    },
    Kind {
        collection: "/api/v1/nodes",
        names: CLUSTER,
        body: |dice| {
            let mut node = json!({"apiVersion": "v1", "kind": "Node"});
            if dice.chance(40) {
                node["spec"] = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
            }
            if dice.chance(30) {
                node["status"] = json!({"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]});
            }
            node
        },
        patches: |dice| json!({"spec": {"unschedulable": dice.chance(50)}}),
    },
    Kind {
        collection: "/api/v1/namespaces",
        names: ["conf-one-$ID", "conf-two-$ID"],
        body: |_dice| json!({"apiVersion": "v1", "kind": "Namespace"}),
        patches: |dice| json!({"metadata": {"labels": {"l": dice.pick(&["x", "y"])}}}),
    },
    Kind {
        collection: "/api/v1/namespaces/$NS/secrets",
        names: NAMESPACED,
        body: |dice| {
            let mut secret = json!({"apiVersion": "v1", "kind": "Secret"});
            if dice.chance(60) {
                secret["stringData"] = json!({"a": dice.pick(&["1", ""])});
            }
            if dice.chance(40) {
                secret["data"] = json!({"b": "eA=="});
            }
            if dice.chance(20) {
                secret["immutable"] = json!(dice.chance(70));
            }
            secret
        },
        patches: |dice| json!({"stringData": {"a": dice.pick(&["1", "2"])}}),
    },
    Kind {
        collection: "/api/v1/namespaces/$NS/services",
        names: NAMESPACED,
        body: |dice| {
            let mut spec = json!({"selector": {"a": "b"}});
            if dice.chance(90) {
                spec["ports"] = json!([{"port": 80}]);
            }
            if dice.chance(30) {
                spec["clusterIP"] = json!("None");
            }
            json!({"apiVersion": "v1", "kind": "Service", "spec": spec})
        },
        patches: |dice| json!({"spec": {"selector": {"a": dice.pick(&["b", "c"])}}}),
    },
    Kind {
        collection: "/api/v1/namespaces/$NS/serviceaccounts",
        names: NAMESPACED,
        body: |dice| {
            let mut account = json!({"apiVersion": "v1", "kind": "ServiceAccount"});
            if dice.chance(40) {
                account["automountServiceAccountToken"] = json!(false);
            }
            account
        },
        patches: |dice| json!({"imagePullSecrets": [{"name": dice.pick(&["p", "q"])}]}),
    },
    Kind {
        collection: "/apis/rbac.authorization.k8s.io/v1/namespaces/$NS/roles",
        names: NAMESPACED,
        body: |dice| {
            let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"});
            if dice.chance(70) {
                role["rules"] =
                    json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
            }
            role
        },
        patches: |_dice| json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}),
    },
    Kind {
        collection: "/apis/rbac.authorization.k8s.io/v1/namespaces/$NS/rolebindings",
        names: NAMESPACED,
        body: |dice| {
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": dice.pick(&["r", "s"])},
                "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}]})
        },
        patches: |_dice| json!({"subjects": [{"kind": "Group", "name": "g"}]}),
    },
    Kind {
        collection: "/apis/scheduling.k8s.io/v1/priorityclasses",
        names: CLUSTER,
        body: |dice| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": dice.roll(3)}),
        patches: |dice| json!({"value": dice.roll(3), "description": "d"}),
    },
];

fn template(dice: &mut Dice, restart: &str) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "img"}]},
    });
    let spec = &mut template["spec"];
    if !restart.is_empty() {
        spec["restartPolicy"] = json!(restart);
    }
    if dice.chance(20) {
        spec["runtimeClassName"] = json!("kata");
    }
    if dice.chance(20) {
        spec["containers"][0]["env"] = json!([{"name": "A", "value": "1"}]);
    }
    if dice.chance(20) {
        spec["containers"][0]["ports"] = json!([{"containerPort": 80, "name": "http"}]);
    }
    if dice.chance(20) {
        spec["containers"][0]["readinessProbe"] = json!({"httpGet": {"port": 80}});
    }
    if dice.chance(20) {
        spec["volumes"] = json!([{"name": "v", "hostPath": {"path": "/x"}}]);
        spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/y"}]);
    }
    template
}

fn workload(dice: &mut Dice, kind: &str) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"a": if dice.chance(90) { "b" } else { "c" }}},
        "template": template(dice, ""),
    });
    if kind != "DaemonSet" && dice.chance(50) {
        spec["replicas"] = json!(dice.roll(3));
    }
    if dice.chance(10) {
        spec["bogus"] = json!(1);
    }
    if kind == "StatefulSet" && dice.chance(70) {
        spec["serviceName"] = json!("s");
    }
    if kind == "Deployment" && dice.chance(20) {
        spec["strategy"] = json!({"type": "Recreate"});
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "spec": spec})
}

fn workload_patch(dice: &mut Dice) -> Value {
    match dice.roll(5) {
        0 => json!({"spec": {"replicas": dice.roll(4)}}),
        1 => json!({"spec": {"selector": {"matchLabels": {"a": "d"}}}}),
        2 => {
            json!({"spec": {"template": {"metadata": {"annotations": {"r": dice.pick(&["1", "2"])}}}}})
        }
        3 => json!({"spec": {"template": {"spec": {"nodeSelector": {"kata": "true"}}}}}),
        _ => json!({"metadata": {"labels": {"l": dice.pick(&["x", "y"])}}}),
    }
}

/// How many sequences it takes until every kind had one.
fn kind(seed: u64) -> &'static Kind {
    &KINDS[usize::try_from(seed).unwrap() % KINDS.len()]
}

pub(super) fn collection(seed: u64) -> &'static str {
    kind(seed).collection
}

pub(super) fn step(dice: &mut Dice, seed: u64, step: usize) -> Request {
    let kind = kind(seed);
    let collection = kind.collection;
    let name = dice.pick(&kind.names);
    let mut body = (kind.body)(dice);
    body["metadata"] = metadata(dice, name);
    if step < 2 {
        body["metadata"]["name"] = json!(kind.names[step]);
        let validation = dice.pick(&["", "&fieldValidation=Strict"]);
        return request(
            "POST",
            format!("{collection}?fieldManager=alpha{validation}"),
            PLAIN,
            body,
        );
    }
    let path = format!("{collection}/{name}{}", query(dice, true));
    match dice.roll(16) {
        0 => request("POST", format!("{collection}{}", query(dice, true)), PLAIN, body),
        1 => {
            body["metadata"] = json!({"generateName": "gen-"});
            request("POST", format!("{collection}{}&dryRun=All", query(dice, true)), PLAIN, body)
        }
        2..=4 => {
            precondition(dice, &mut body, name);
            if dice.chance(60) {
                body["metadata"]["resourceVersion"] = json!(format!("$RV:{name}"));
            }
            request("PUT", path, PLAIN, body)
        }
        5 | 6 => request("PATCH", path, MERGE, (kind.patches)(dice)),
        7 | 8 => request("PATCH", path, STRATEGIC, (kind.patches)(dice)),
        9 => request(
            "PATCH",
            path,
            JSON_PATCH,
            json!([{"op": "add", "path": "/metadata/annotations", "value": {"n": dice.pick(&["1", "2"])}}]),
        ),
        10..=12 => {
            // The status is not the applier's, and what becomes of it differs by kind.
            body.as_object_mut().unwrap().remove("status");
            let force = if dice.chance(50) { "&force=true" } else { "" };
            request("PATCH", format!("{path}{force}"), APPLY, body)
        }
        13 => request(
            "PATCH",
            format!("{collection}/{name}/status{}", query(dice, true)),
            MERGE,
            json!({"metadata": {"labels": {"s": "t"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        14 => delete(dice, collection, name),
        _ => super::reads::get(dice, collection, name),
    }
}
