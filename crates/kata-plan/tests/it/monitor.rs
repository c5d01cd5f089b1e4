//! kata-monitor: when it runs, what its pods may do, and how it goes.

use kata_api::Code;
use kata_plan::{Kind, Request};
use serde_json::{Value, json};

use crate::world::{KATA, VERIFIED, World};

const IMAGE: &str = "example.org/kata-monitor@sha256:1";
const DAEMON_SET: &str =
    "openshift-sandboxed-containers-operator/openshift-sandboxed-containers-monitor";
const CONSTRAINTS: &str = "sandboxed-containers-operator-scc";

/// Three selected workers, and an operator that was given the monitor's image.
fn monitored() -> World {
    let mut world = World::new(3, 3);
    world.options.monitor_image = Some(IMAGE.to_owned());
    world.config(&json!({}));
    world
}

fn daemon_set(world: &World) -> Option<&Value> {
    world.get(Kind::DaemonSet, DAEMON_SET)
}

fn constraints(world: &World) -> Option<&Value> {
    world.get(Kind::SecurityContextConstraints, CONSTRAINTS)
}

/// The steps of a pass, in short.
fn steps(world: &mut World) -> Vec<String> {
    world.pass().plan.steps.iter().map(|step| step.action.to_string()).collect()
}

fn ready(world: &World) -> (String, String) {
    let config = world.get(Kind::KataConfig, "cluster-kataconfig").unwrap();
    let conditions = config["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
    (ready["status"].as_str().unwrap().to_owned(), ready["message"].as_str().unwrap().to_owned())
}

/// What the OpenShift operator left, as far as it matters.
fn of_the_openshift_operator(world: &mut World) {
    let uid = world.get(Kind::KataConfig, "cluster-kataconfig").unwrap()["metadata"]["uid"].clone();
    let owners = json!([{
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "name": "cluster-kataconfig", "uid": uid, "controller": true, "blockOwnerDeletion": true,
    }]);
    let (namespace, name) = DAEMON_SET.split_once('/').unwrap();
    world.create(json!({
        "kind": "DaemonSet",
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"name": name},
            "ownerReferences": owners,
        },
        "spec": {
            "selector": {"matchLabels": {"name": name}},
            "template": {
                "metadata": {"labels": {"name": name}},
                "spec": {
                    "serviceAccountName": "monitor",
                    "nodeSelector": {KATA: ""},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{
                        "name": "kata-monitor", "image": "example.org/older",
                        "imagePullPolicy": "Always",
                        "securityContext": {"privileged": false, "runAsUser": 1001},
                    }],
                },
            },
        },
    }));
    world.create(json!({
        "kind": "SecurityContextConstraints",
        "metadata": {"name": CONSTRAINTS, "ownerReferences": owners},
        "allowedCapabilities": ["DAC_READ_OVERRIDE"],
        "volumes": ["*"],
    }));
}

/// P11: pods that start before the node has the extension fail again and again.
#[test]
fn it_runs_from_when_the_first_node_can_run_sandboxed_pods() {
    let mut world = monitored();
    let mut others_waited = false;
    for _ in 0..600 {
        let steps = steps(&mut world);
        let verified = world
            .names(Kind::Node)
            .iter()
            .filter(|node| world.node(node).labels.contains_key(VERIFIED))
            .count();
        if daemon_set(&world).is_some() {
            assert!(verified > 0);
            others_waited |= verified < 3;
            let position = |kind: &str| {
                steps.iter().position(|step| step.starts_with(&format!("apply {kind}")))
            };
            if let Some(at) = position("DaemonSet") {
                assert!(position("SecurityContextConstraints").is_some_and(|before| before < at));
            }
        }
        world.tick();
    }
    assert!(others_waited, "it did not wait for all nodes");
    assert!(daemon_set(&world).is_some() && constraints(&world).is_some());
    assert_eq!(steps(&mut world), [""; 0], "and then nothing is left to do");
}

#[test]
fn without_an_image_nothing_is_created() {
    let mut world = monitored();
    world.options.monitor_image = None;
    world.settle();
    assert!(daemon_set(&world).is_none() && constraints(&world).is_none());
}

/// P12, D31: what its pods may do, and where they go.
#[test]
fn its_pods_may_do_little_and_run_where_sandboxes_are() {
    let mut world = monitored();
    world.settle();
    let pod = &daemon_set(&world).unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["serviceAccountName"], "monitor");
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(pod["nodeSelector"], json!({KATA: "", VERIFIED: "true"}));
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(pod[key].is_null(), "{key}");
    }
    let container = &pod["containers"][0];
    assert_eq!(container["image"], IMAGE);
    assert!(!container["resources"]["requests"]["memory"].is_null());
    let context = &container["securityContext"];
    assert_eq!(context["privileged"], false);
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["runAsNonRoot"], true);
    assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(context["seLinuxOptions"]["type"], "osc_monitor.process");
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().all(|mount| mount["readOnly"] == true), "{mounts:?}");

    let rules = constraints(&world).unwrap();
    assert_eq!(
        rules["users"],
        json!(["system:serviceaccount:openshift-sandboxed-containers-operator:monitor"])
    );
    assert_eq!(rules["allowedCapabilities"], json!([]));
    assert_eq!(rules["requiredDropCapabilities"], json!(["ALL"]));
    assert_eq!(rules["volumes"], json!(["hostPath"]));
    for (key, value) in rules.as_object().unwrap() {
        let allowed = key == "allowHostDirVolumePlugin";
        assert!(!key.starts_with("allow") || allowed || *value != json!(true), "{key}");
    }
    // P10: constraints that set a context have stopped pods of others.
    assert_eq!(rules["seLinuxContext"]["type"], "RunAsAny");
    assert_eq!(rules["readOnlyRootFilesystem"], false);
}

#[test]
fn on_a_compact_cluster_it_runs_on_the_control_plane() {
    let mut world = World::compact(3);
    world.options.monitor_image = Some(IMAGE.to_owned());
    world.config(&json!({}));
    world.settle();
    let selector = &daemon_set(&world).unwrap()["spec"]["template"]["spec"]["nodeSelector"];
    assert_eq!(selector, &json!({"node-role.kubernetes.io/master": "", VERIFIED: "true"}));
}

/// D1, D2.
#[test]
fn what_was_deleted_or_edited_is_put_back_and_what_is_not_ours_stays() {
    let mut world = monitored();
    world.settle();
    world.delete(Kind::DaemonSet, DAEMON_SET);
    world.delete(Kind::SecurityContextConstraints, CONSTRAINTS);
    assert_eq!(
        steps(&mut world),
        [
            format!("apply SecurityContextConstraints {CONSTRAINTS}"),
            format!("apply DaemonSet {DAEMON_SET}"),
        ]
    );
    let edits = [
        (Kind::SecurityContextConstraints, CONSTRAINTS, json!({"users": ["system:anonymous"]})),
        (Kind::SecurityContextConstraints, CONSTRAINTS, json!({"allowPrivilegedContainer": true})),
        (Kind::SecurityContextConstraints, CONSTRAINTS, json!({"groups": ["system:masters"]})),
        (
            Kind::DaemonSet,
            DAEMON_SET,
            json!({"spec": {"template": {"spec": {"nodeSelector": {VERIFIED: null}}}}}),
        ),
        (
            Kind::DaemonSet,
            DAEMON_SET,
            json!({"spec": {"template": {"spec": {"automountServiceAccountToken": true}}}}),
        ),
        (Kind::DaemonSet, DAEMON_SET, json!({"metadata": {"ownerReferences": null}})),
    ];
    for (kind, name, edit) in edits {
        world.edit(kind, name, &edit);
        assert_eq!(steps(&mut world), [format!("apply {kind} {name}")], "{edit}");
        assert_eq!(steps(&mut world), [""; 0], "{edit}");
    }
    // What the API server fills in, and what others add.
    world.edit(
        Kind::DaemonSet,
        DAEMON_SET,
        &json!({
            "metadata": {"labels": {"theirs": "x"}},
            "spec": {
                "revisionHistoryLimit": 10,
                "template": {"spec": {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always"}},
            },
            "status": {"numberReady": 3},
        }),
    );
    let rules = json!({"allowedCapabilities": null, "groups": null, "priority": null,
        "allowHostIPC": null, "supplementalGroups": {"ranges": []}});
    world.edit(Kind::SecurityContextConstraints, CONSTRAINTS, &rules);
    assert_eq!(steps(&mut world), [""; 0]);
}

#[test]
fn another_image_is_rolled_out() {
    let mut world = monitored();
    world.settle();
    world.options.monitor_image = Some("example.org/newer".to_owned());
    assert_eq!(steps(&mut world), [format!("apply DaemonSet {DAEMON_SET}")]);
}

#[test]
fn it_goes_when_the_operator_is_given_no_image_any_more() {
    let mut world = monitored();
    world.settle();
    world.options.monitor_image = None;
    let before = world.writes.len();
    world.settle();
    assert!(daemon_set(&world).is_none() && constraints(&world).is_none());
    let deletes =
        world.writes[before..].iter().filter(|write| matches!(write, Request::Delete { .. }));
    assert_eq!(deletes.count(), 2);
    assert_eq!(world.writes.len() - before, 2, "nothing else is written");
    assert_eq!(ready(&world).0, "True");
}

#[test]
fn nothing_of_it_is_left_when_the_kata_config_goes() {
    let mut world = monitored();
    world.settle();
    world.pod("p", "kata", "worker-0");
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..10 {
        world.pass();
        world.tick();
    }
    assert!(daemon_set(&world).is_some(), "sandboxed pods are still monitored");
    world.delete(Kind::Pod, "default/p");
    for _ in 0..600 {
        world.pass();
        let config = world.get(Kind::KataConfig, "cluster-kataconfig");
        if config.is_none() {
            break;
        }
        world.tick();
    }
    let removed = |request: &Request| match request {
        Request::Delete { object, .. } => object.kind == Kind::DaemonSet,
        Request::Merge { object, body, .. } => {
            object.kind == Kind::KataConfig && body["metadata"]["finalizers"] == json!([])
        }
        Request::Apply { .. } => false,
    };
    let kinds: Vec<Kind> = world
        .writes
        .iter()
        .filter(|write| removed(write))
        .map(|write| match write {
            Request::Delete { object, .. }
            | Request::Merge { object, .. }
            | Request::Apply { object, .. } => object.kind,
        })
        .collect();
    assert_eq!(kinds, [Kind::DaemonSet, Kind::KataConfig], "by us, before the finalizer went");
    assert!(daemon_set(&world).is_none() && constraints(&world).is_none());
}

/// With the manifests as they are by default the operator may not delete what the OpenShift operator left: it
/// goes with its owner, the KataConfig, and so must not keep it.
#[test]
fn without_an_image_what_may_not_be_deleted_does_not_hold_the_deletion_up() {
    let mut world = World::new(3, 3);
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..600 {
        if world.get(Kind::KataConfig, "cluster-kataconfig").is_none() {
            assert!(daemon_set(&world).is_none() && constraints(&world).is_none());
            return;
        }
        // What was deleted in the last pass is there again, as if that had been refused.
        if daemon_set(&world).is_none() {
            world.delete(Kind::SecurityContextConstraints, CONSTRAINTS);
            of_the_openshift_operator(&mut world);
        }
        world.pass();
        world.tick();
    }
    panic!("the KataConfig stays");
}

#[test]
fn a_daemon_set_of_the_openshift_operator_is_recreated() {
    let mut world = monitored();
    of_the_openshift_operator(&mut world);
    let uids = |world: &World| {
        [daemon_set(world), constraints(world)]
            .map(|object| object.unwrap()["metadata"]["uid"].clone())
    };
    let before = uids(&world);
    world.settle();
    // The fields of the OpenShift operator would stay in it, and the admission policy permits only ours.
    assert_ne!(uids(&world)[0], before[0]);
    assert_eq!(uids(&world)[1], before[1]);
    let container = &daemon_set(&world).unwrap()["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["image"], &container["imagePullPolicy"]),
        (&json!(IMAGE), &json!("IfNotPresent"))
    );
    assert_eq!(constraints(&world).unwrap()["allowedCapabilities"], json!([]));
}

#[test]
fn what_is_not_ours_is_left_alone_and_named() {
    for kind in [Kind::DaemonSet, Kind::SecurityContextConstraints] {
        let mut world = monitored();
        of_the_openshift_operator(&mut world);
        let name = if kind == Kind::DaemonSet { DAEMON_SET } else { CONSTRAINTS };
        world.edit(kind, name, &json!({"metadata": {"ownerReferences": null}}));
        let before = world.get(kind, name).cloned();
        let decision = world.settle();
        assert_eq!(world.get(kind, name), before.as_ref());
        let found =
            decision.report.findings.iter().find(|finding| finding.code == Code::ForeignObject);
        assert_eq!(found.unwrap().subject.kind, kind);
        let (status, message) = ready(&world);
        assert_eq!(status, "True", "nodes run sandboxed pods without it: {message}");
        assert!(message.contains(name), "{message}");
        world.delete(Kind::KataConfig, "cluster-kataconfig");
        world.settle();
        assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
        assert_eq!(world.get(kind, name), before.as_ref());
    }
}

/// Unknown is not false.
#[test]
fn what_cannot_be_read_is_left_as_it_is_and_named() {
    let mut world = monitored();
    world.settle();
    world.unreadable.insert(Kind::DaemonSet.plural().to_owned());
    let decision = world.settle();
    assert!(decision.plan.steps.is_empty());
    assert_eq!(decision.report.findings[0].code, Code::ReadFailed);
    assert_eq!(ready(&world).0, "True");
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    let decision = world.settle();
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_some());
    let waits =
        decision.report.waiting_on.iter().any(|waiting| waiting.subject.kind == Kind::DaemonSet);
    assert!(waits, "{:?}", decision.report.waiting_on);
    world.unreadable.clear();
    world.settle();
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_none());

    // An operator that never ran it need not be allowed to look.
    let mut world = monitored();
    world.options.monitor_image = None;
    world.unreadable.insert(Kind::DaemonSet.plural().to_owned());
    let decision = world.settle();
    assert!(decision.report.findings.is_empty(), "{:?}", decision.report.findings);
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
}

#[test]
fn where_constraints_are_not_served_it_runs_without_and_says_so() {
    let mut world = monitored();
    world.constraints_served = false;
    let decision = world.settle();
    assert!(daemon_set(&world).is_some() && constraints(&world).is_none());
    let codes: Vec<Code> = decision.report.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::ConstraintsNotServed]);
    assert_eq!(ready(&world).0, "True");
}

/// Its pods are no sandboxed pods: they block nothing.
#[test]
fn its_own_pods_block_nothing() {
    let mut world = monitored();
    world.settle();
    world.create(json!({
        "kind": "Pod",
        "metadata": {"namespace": "openshift-sandboxed-containers-operator", "name": "monitor-x"},
        "spec": {"nodeName": "worker-0", "containers": []},
        "status": {"phase": "Running"},
    }));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
}
