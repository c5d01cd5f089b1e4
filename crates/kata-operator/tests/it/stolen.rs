//! What a client with the operator's token cannot do: each attempt is within its roles, and a policy refuses it.

use std::time::Duration;

use kata_api::names;
use kata_api::platform::Platform;
use kata_manifests::manifests::Options;
use kata_operator::Settings;
use serde_json::{Value, json};
use simcluster::Cluster;
use simcluster::api::server::Writer;
use simcluster::resource::{self, CONFIGMAPS, DAEMONSETS, JOBS, NODES, RUNTIMECLASSES};

use crate::lab::{self, Operator};
use crate::monitor;

mod attempts;
mod changes;
mod thief;

use changes::{PODS, changed, stage};
use thief::Thief;

const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

const HOME: &str = names::NAMESPACE;
const IMAGE: &str = "registry.example/kata-operator:1";
const PARAMETERS: &str = "kata-operator-policy";

const CONFIG: &str = "/apis/kataconfiguration.openshift.io/v1/kataconfigs/example";
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
const JOBS_PATH: &str = "/apis/batch/v1/namespaces/openshift-sandboxed-containers-operator/jobs";
const NODE: &str = "/api/v1/nodes/worker-0";

/// What an admin permits.
fn set_parameters(cluster: &Cluster, data: &Value) {
    cluster.with(|sim, now| {
        let writer = Writer { manager: "kubectl", now };
        sim.api.merge(writer, &CONFIGMAPS, HOME, PARAMETERS, &json!({"data": data})).unwrap();
    });
}

/// A cluster on which Kata is installed, with objects of others, and the operator's token.
async fn installed() -> (Cluster, Operator, Thief) {
    let cluster = lab::kubernetes();
    let arguments = Options { image: IMAGE.to_owned(), ..lab::installed(Platform::Kubernetes) };
    let token = lab::guard(&cluster, &arguments);
    let mut settings = Settings::simulated(lab::epoch());
    settings.options.agent_image = Some(IMAGE.to_owned());
    let mut config = lab::kata_config("example");
    config["metadata"]["finalizers"] = json!(["example.org/audit"]);
    config["metadata"]["labels"] = json!({"team": "platform"});
    lab::create(&cluster, &lab::kata_configs(), "", config);
    let operator = Operator::with_token(&cluster, settings, Some(&token));
    let ended = lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await;
    assert!(ended, "{:?}", lab::denied(&cluster));
    let foreign = json!({"metadata": {"name": "gvisor"}, "handler": "runsc"});
    lab::create(&cluster, &RUNTIMECLASSES, "", foreign);
    let container = json!({"name": "main", "image": "registry.example/backup:1"});
    let foreign = json!({
        "metadata": {"name": "backup"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    });
    lab::create(&cluster, &JOBS, HOME, foreign);
    let thief = Thief::new(&cluster, &token);
    (cluster, operator, thief)
}

/// The Job that installed Kata, as a client would create it again.
fn install_job(cluster: &Cluster) -> Value {
    let jobs = cluster.with(|sim, _| sim.api.list(&JOBS));
    let job = jobs
        .iter()
        .find(|job| job["metadata"]["annotations"]["kata-operator.dev/action"] == "Install");
    let job = job.unwrap();
    let mut template = job["spec"]["template"].clone();
    let labels = template["metadata"]["labels"].as_object_mut().unwrap();
    labels.retain(|key, _| !key.contains("job-name") && !key.contains("controller-uid"));
    let mut spec = job["spec"].clone();
    spec["template"] = template;
    spec.as_object_mut().unwrap().remove("selector");
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "kata-again", "labels": job["metadata"]["labels"]},
        "spec": spec,
    })
}

/// What the operator varies itself.
const PERMITTED_OF_JOBS: [&str; 23] = [
    // As in a check.
    "+ spec/template/spec/containers/0/volumeMounts/0/readOnly",
    "+ spec/template/spec/containers/0/volumeMounts/3/readOnly",
    "- spec/template/metadata/annotations/kata-operator.dev/payload",
    "- spec/template/spec/containers/0/resources/limits*",
    "- spec/template/spec/containers/0/securityContext/capabilities/add/*",
    // A removal has no /dev.
    "- spec/template/spec/containers/0/volumeMounts/4*",
    "- spec/template/spec/containers/0/volumeMounts/5/recursiveReadOnly",
    "- spec/template/spec/containers/0/volumeMounts/6/recursiveReadOnly",
    "- spec/template/spec/initContainers",
    "- spec/template/spec/initContainers/0/resources/limits*",
    "- spec/template/spec/initContainers/1/resources/limits*",
    "- spec/template/spec/initContainers/1/volumeMounts/1/recursiveReadOnly",
    // The API server refuses mounts without volumes.
    "- spec/template/spec/volumes/0",
    "- spec/template/spec/volumes/1",
    "- spec/template/spec/volumes/6",
    "= spec/template/metadata/annotations/kata-operator.dev/*",
    "= spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/\
     nodeSelectorTerms/0/matchFields/0/values/0",
    "= spec/template/spec/containers/0/command/4",
    "= spec/template/spec/containers/0/resources/limits/*",
    "= spec/template/spec/initContainers/0/resources/limits/*",
    "= spec/template/spec/initContainers/1/command/4",
    "= spec/template/spec/initContainers/1/image",
    "= spec/template/spec/initContainers/1/resources/limits/*",
];

#[tokio::test(start_paused = true)]
async fn a_job_has_no_other_field_or_value_than_the_operator_writes() {
    let (cluster, _operator, thief) = installed().await;
    let job = install_job(&cluster);
    let schemas = thief.schemas("batch/v1").await;
    let attempts = attempts::of(&schemas, "io.k8s.api.batch.v1.Job", &job, "spec");
    let attempted = (&job, &attempts[..]);
    let refused = thief.fails_all(("POST", JOBS_PATH), "jobs", attempted, &PERMITTED_OF_JOBS).await;
    assert!(refused > 900, "only {refused} of {} by the policy", attempts.len());
}

#[tokio::test(start_paused = true)]
async fn it_cannot_start_other_jobs_than_the_operators() {
    let (cluster, _operator, thief) = installed().await;
    let job = install_job(&cluster);
    thief.succeeds("POST", JOBS_PATH, &job).await;
    // The operator's flags may leave out either limit.
    for left_out in [&["cpu"][..], &["memory"], &["cpu", "memory"]] {
        let job = changed(&job, |pod| {
            for field in ["containers", "initContainers"] {
                for container in pod[field].as_array_mut().unwrap() {
                    let limits = container["resources"]["limits"].as_object_mut().unwrap();
                    limits.retain(|key, _| !left_out.contains(&key.as_str()));
                }
            }
        });
        thief.succeeds("POST", JOBS_PATH, &job).await;
    }
    for (message, change) in PODS {
        thief.fails("POST", JOBS_PATH, &changed(&job, change), "jobs", message).await;
    }
    for (message, patch) in [
        ("no owners and no finalizers", json!({"metadata": {"finalizers": ["mine/x"]}})),
        (
            "no owners and no finalizers",
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "y"},
            ]}}),
        ),
        (
            "spec.template.metadata of this Job",
            json!({"spec": {"template": {"metadata": {"labels": {"sidecar.istio.io/inject": "true"}}}}}),
        ),
        (
            "spec.template.metadata of this Job",
            json!({"spec": {"template": {"metadata": {"labels": {
                "app.kubernetes.io/component": "operator",
            }}}}}),
        ),
    ] {
        let mut other = job.clone();
        json_patch::merge(&mut other, &patch);
        thief.fails("POST", JOBS_PATH, &other, "jobs", message).await;
    }
    let mut unknown = job.clone();
    unknown["metadata"]["labels"] = json!({"app": "mine"});
    thief.fails("POST", JOBS_PATH, &unknown, "jobs", "may create no other Jobs").await;
    let foreign = format!("{JOBS_PATH}/backup");
    let ours = json!({"metadata": {"labels": job["metadata"]["labels"]}});
    for (method, body) in [("DELETE", &Value::Null), ("PATCH", &ours)] {
        thief.fails(method, &foreign, body, "jobs", "change and delete no other Jobs").await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_cannot_change_what_was_asked_for() {
    let (_cluster, _operator, thief) = installed().await;
    let finalizers = json!({"metadata": {"finalizers": ["example.org/audit"]}});
    thief.succeeds("PATCH", CONFIG, &finalizers).await;
    let payload = json!({"spec": {"payload": {"image": "registry.example/evil:1"}}});
    let everywhere = json!({"spec": {"kataConfigPoolSelector": null}});
    for spec in [payload, everywhere] {
        thief.fails("PATCH", CONFIG, &spec, "kataconfigs", "may not change the spec").await;
    }
    for finalizers in [json!([names::FINALIZER]), json!(["example.org/audit", "mine/x"])] {
        let body = json!({"metadata": {"finalizers": finalizers}});
        thief.fails("PATCH", CONFIG, &body, "kataconfigs", "no other finalizers").await;
    }
    let claim = names::OPERATOR_NAMESPACE_ANNOTATION;
    for annotations in [json!({"a": "b"}), json!({claim: "elsewhere"}), json!({claim: null})] {
        let body = json!({"metadata": {"annotations": annotations}});
        thief.fails("PATCH", CONFIG, &body, "kataconfigs", "no other annotation").await;
    }
    for metadata in [
        json!({"labels": {"team": "mine"}}),
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "y"}]}),
    ] {
        let body = json!({"metadata": metadata});
        thief.fails("PATCH", CONFIG, &body, "kataconfigs", "no labels or owners").await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_cannot_take_the_sandbox_out_of_a_class() {
    let (cluster, _operator, thief) = installed().await;
    let class = lab::get(&cluster, &RUNTIMECLASSES, "kata").unwrap();
    let body = json!({
        "metadata": {"name": "kata-again", "labels": class["metadata"]["labels"]},
        "handler": "kata", "scheduling": {"nodeSelector": {
            names::CLAIM_LABEL: "true", names::RUNTIME_LABEL: "true", names::class_label("kata-again"): "true",
        }},
    });
    thief.succeeds("POST", CLASSES, &body).await;
    let with = |key: &str, value: Value| {
        let mut body = body.clone();
        body[key] = value;
        body
    };
    let handlers = [
        "runc",
        "crun",
        "youki",
        "runc-fast",
        "high-performance",
        "nvidia",
        "default",
        "docker",
        "oci",
        "crio-runc",
        "k3s-runc",
        "sysbox-runc",
        "runsc",
    ];
    for handler in handlers {
        let ordinary = with("handler", json!(handler));
        thief.fails("POST", CLASSES, &ordinary, "runtimeclasses", "begins with kata").await;
    }
    let named = json!({"runtimeHandlers": "microvm\nrunsc"});
    set_parameters(&cluster, &named);
    thief.succeeds("POST", CLASSES, &with("handler", json!("runsc"))).await;
    let schemas = thief.schemas("node.k8s.io/v1").await;
    let mut attempts = Vec::new();
    for field in ["handler", "overhead", "scheduling"] {
        attempts.extend(attempts::of(&schemas, "io.k8s.api.node.v1.RuntimeClass", &body, field));
    }
    // A class with Kata on nodes with Kata, which the operator may delete as well.
    let permitted = [
        "+ overhead*",
        "+ scheduling/nodeSelector*",
        "- scheduling/nodeSelector/kata-operator.dev/claimed",
        "= handler",
        "= scheduling/nodeSelector/kata-operator.dev/claimed",
    ];
    let attempted = (&body, &attempts[..]);
    thief.fails_all(("POST", CLASSES), "runtimeclasses", attempted, &permitted).await;
    for metadata in [
        json!({"finalizers": ["mine/x"]}),
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "y"}]}),
    ] {
        let mut owned = body.clone();
        json_patch::merge(&mut owned["metadata"], &metadata);
        thief.fails("POST", CLASSES, &owned, "runtimeclasses", "no owners but KataConfigs").await;
    }
    let unknown = with("metadata", json!({"name": "kata-again"}));
    thief.fails("POST", CLASSES, &unknown, "runtimeclasses", "without the label").await;
    let selector = json!({"nodeSelector": {"kubernetes.io/os": "linux"}});
    let untrue = json!({"nodeSelector": {names::RUNTIME_LABEL: "false"}});
    for scheduling in [Value::Null, selector, untrue] {
        let anywhere = with("scheduling", scheduling);
        thief.fails("POST", CLASSES, &anywhere, "runtimeclasses", "nodes without Kata").await;
    }
    let own = format!("{CLASSES}/kata");
    thief.succeeds("DELETE", &own, &Value::Null).await;
    let open = json!({"scheduling": null});
    thief.fails("PATCH", &own, &open, "runtimeclasses", "nodes without Kata").await;
    let foreign = format!("{CLASSES}/gvisor");
    let taken = json!({"metadata": {"labels": class["metadata"]["labels"]}, "scheduling": class["scheduling"]});
    for (method, body) in [("DELETE", &Value::Null), ("PATCH", &taken)] {
        thief.fails(method, &foreign, body, "runtimeclasses", "no other RuntimeClasses").await;
    }
}

/// Where the payload comes from is bounded as the admin says.
#[tokio::test(start_paused = true)]
async fn it_cannot_install_a_payload_of_a_repository_that_the_admin_does_not_list() {
    let (cluster, _operator, thief) = installed().await;
    let job =
        |image: &str| changed(&install_job(&cluster), |pod| stage(pod)["image"] = json!(image));
    let evil = "registry.example/evil:1";
    thief.succeeds("POST", JOBS_PATH, &job(evil)).await;
    let listed = json!({
        "payloadRepositories": "quay.io/kata-containers/kata-deploy mirror.example/kata/",
    });
    set_parameters(&cluster, &listed);
    for image in [
        "quay.io/kata-containers/kata-deploy",
        "quay.io/kata-containers/kata-deploy:4.1.0",
        "quay.io/kata-containers/kata-deploy@sha256:0000",
        "mirror.example/kata/x:1",
    ] {
        thief.succeeds("POST", JOBS_PATH, &job(image)).await;
    }
    for image in [evil, "quay.io/kata-containers/kata-deploy-ci:1", "mirror.example/katax/x:1"] {
        thief
            .fails("POST", JOBS_PATH, &job(image), "jobs", "payloadRepositories of ConfigMap")
            .await;
    }
    // Without the ConfigMap there would be no bound.
    lab::delete(&cluster, &CONFIGMAPS, HOME, PARAMETERS);
    thief.fails("POST", JOBS_PATH, &job(evil), "jobs", "no params found").await;
}

/// The DaemonSet of kata-monitor mounts folders of every node with Kata.
#[tokio::test(start_paused = true)]
async fn it_cannot_make_another_daemon_set_of_kata_monitor() {
    let image = "registry.example/monitor:1";
    let cluster = lab::openshift(1, 1);
    let arguments =
        Options { monitor_image: Some(image.to_owned()), ..lab::installed(Platform::Openshift) };
    let token = lab::guard(&cluster, &arguments);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let mut settings = Settings::simulated(lab::epoch());
    settings.options.monitor_image = Some(image.to_owned());
    let operator = Operator::with_token(&cluster, settings, Some(&token));
    let there =
        || monitor::daemon_set(&cluster).is_some() && monitor::constraints(&cluster).is_some();
    assert!(lab::until(LIMIT, there).await, "{:?}", lab::denied(&cluster));
    drop(operator);
    let thief = Thief::new(&cluster, &token);
    let alone = |object: &Value| {
        let mut object = object.clone();
        let metadata = &object["metadata"];
        object["metadata"] = json!({"name": metadata["name"], "labels": metadata["labels"]});
        object.as_object_mut().unwrap().remove("status");
        object
    };
    let (set, constraints) = (
        alone(&monitor::daemon_set(&cluster).unwrap()),
        alone(&monitor::constraints(&cluster).unwrap()),
    );
    // What is created is as the thief says; a change would keep the fields of the operator.
    lab::delete(&cluster, &DAEMONSETS, HOME, monitor::NAME);
    lab::delete(&cluster, &monitor::scc(), "", monitor::CONSTRAINTS);
    let path = format!("/apis/apps/v1/namespaces/{HOME}/daemonsets/{}", monitor::NAME);
    let schemas = thief.schemas("apps/v1").await;
    let attempts = attempts::of(&schemas, "io.k8s.api.apps.v1.DaemonSet", &set, "spec");
    // It runs on nodes with Kata all the same.
    let permitted = ["- spec/template/spec/nodeSelector/node-role.kubernetes.io/kata-oc"];
    let attempted = (&set, &attempts[..]);
    let refused = thief.fails_all(("APPLY", &path), "daemonsets", attempted, &permitted).await;
    assert!(refused > 400, "only {refused} of {} by the policy", attempts.len());

    let path = format!(
        "/apis/security.openshift.io/v1/securitycontextconstraints/{}",
        monitor::CONSTRAINTS
    );
    thief.succeeds("APPLY", &path, &constraints).await;
    for (field, value) in [
        ("users", json!(["system:serviceaccount:default:mine"])),
        ("groups", json!(["system:authenticated"])),
        ("allowPrivilegedContainer", json!(true)),
        ("allowPrivilegeEscalation", json!(true)),
        ("allowHostPID", json!(true)),
        ("allowHostNetwork", json!(true)),
        ("allowedCapabilities", json!(["*"])),
        ("defaultAddCapabilities", json!(["SYS_ADMIN"])),
        ("requiredDropCapabilities", Value::Null),
        ("runAsUser", json!({"type": "RunAsAny"})),
        ("seccompProfiles", json!(["*"])),
        ("volumes", json!(["*"])),
        ("priority", json!(100)),
        ("allowedUnsafeSysctls", json!(["*"])),
    ] {
        let mut other = constraints.clone();
        other[field] = value;
        let policy = "securitycontextconstraints";
        let message = if field == "allowedUnsafeSysctls" { "no sysctls" } else { "does not write" };
        thief.fails("APPLY", &path, &other, policy, message).await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_cannot_change_a_node() {
    let (cluster, _operator, thief) = installed().await;
    let gpu = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
    let startup = json!({"key": names::STARTUP_TAINT, "effect": "NoExecute"});
    lab::merge(
        &cluster,
        &NODES,
        "worker-0",
        &json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"taints": [gpu, startup]}}),
    );
    for change in [
        json!({"metadata": {"labels": {names::RUNTIME_LABEL: "true", names::CLAIM_LABEL: "true"}}}),
        json!({"metadata": {"labels": {names::KATA_ROLE_LABEL: ""}}}),
        json!({"metadata": {"labels": {names::class_label("kata-qemu"): "true"}}}),
        json!({"metadata": {"labels": {names::RUNTIME_LABEL: null}}}),
        json!({"spec": {"taints": [gpu]}}),
    ] {
        thief.succeeds("PATCH", NODE, &change).await;
    }
    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    let mine = json!({"key": "mine", "effect": "NoExecute"});
    let other = json!({"key": "gpu", "value": "no", "effect": "NoSchedule"});
    let leaving = json!({"key": names::LEAVING_TAINT, "effect": "NoSchedule"});
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"});
    for (change, message) in [
        (taints(Value::Null), "may change no other taints"),
        (taints(json!([startup])), "may change no other taints"),
        (taints(json!([gpu, startup, mine])), "may change no other taints"),
        (taints(json!([other, startup])), "may change no other taints"),
        (taints(json!([gpu, startup, leaving])), "may change no other taints"),
        (json!({"spec": {"unschedulable": true}}), "may change no other taints"),
        (json!({"spec": {"taints": [gpu], "unschedulable": true}}), "may change no other taints"),
        (json!({"metadata": {"labels": {"mine": "x"}}}), "may set no other labels"),
        (json!({"metadata": {"labels": {names::CLOSED_LABEL: "true"}}}), "may set no other labels"),
        (
            json!({"metadata": {"labels": {"other.node-restriction.kubernetes.io/kata": "true"}}}),
            "may set no other labels",
        ),
        (json!({"metadata": {"labels": {"kubernetes.io/os": null}}}), "may remove no other labels"),
        (json!({"metadata": {"annotations": {"a": "c"}}}), "may not annotate"),
        (json!({"metadata": {"finalizers": ["mine/x"]}}), "may not hold up"),
        (json!({"metadata": {"ownerReferences": [owner]}}), "may not give a node an owner"),
    ] {
        thief.fails("PATCH", NODE, &change, "nodes", message).await;
    }
}

/// A kubelet that lies about its node gets no pod: of the labels that a class selects, one is out of its reach.
#[tokio::test(start_paused = true)]
async fn a_kubelet_cannot_open_its_node() {
    let (cluster, _operator, _thief) = installed().await;
    const OTHER: &str = "control-plane-0";
    let path = format!("/api/v1/nodes/{OTHER}");
    let kubelet = Thief::kubelet(&cluster, OTHER);
    let class = names::class_label(names::RUNTIME_CLASS);
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let said = kubelet.ask("PATCH", &path, &labels(json!({&class: "true"}))).await;
    let expected =
        format!("nodes {OTHER:?} is forbidden: is not allowed to modify labels: {class}");
    assert_eq!(said, expected);
    let said = kubelet.ask("PATCH", NODE, &labels(json!({"mine": "x"}))).await;
    assert!(said.contains("is not allowed to modify node \"worker-0\""), "{said}");
    let all = json!({names::RUNTIME_LABEL: "true", names::CLAIM_LABEL: "true", "kata": "true"});
    kubelet.succeeds("PATCH", &path, &labels(all.clone())).await;

    lab::merge(&cluster, &NODES, OTHER, &labels(all));
    let taints = json!({"spec": {"taints": null}});
    lab::merge(&cluster, &NODES, OTHER, &taints);
    let pod = |name: &str, on: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "runtimeClassName": names::RUNTIME_CLASS, "nodeSelector": {"kubernetes.io/hostname": on},
            "containers": [{"name": "main", "image": "registry.example/app:1"}],
        }})
    };
    lab::create(&cluster, &resource::PODS, "default", pod("served", "worker-0"));
    lab::create(&cluster, &resource::PODS, "default", pod("lured", OTHER));
    let node_of = |pod: &str| {
        cluster.with(|sim, _| {
            sim.api.get(&resource::PODS, "default", pod).unwrap()["spec"]["nodeName"].clone()
        })
    };
    assert!(lab::until(LIMIT, || node_of("served") == "worker-0").await);
    let unschedulable = || {
        let pod = cluster.with(|sim, _| sim.api.get(&resource::PODS, "default", "lured").unwrap());
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["reason"] == "Unschedulable")
    };
    assert!(lab::until(LIMIT, unschedulable).await);
    assert_eq!(node_of("lured"), Value::Null);
}

/// The policies are about the operator: everybody else writes as before.
#[tokio::test(start_paused = true)]
async fn others_are_not_affected() {
    let (cluster, _operator, _thief) = installed().await;
    let admin = cluster.with(|sim, _| sim.frontend.signer.as_ref().unwrap().admin_token());
    let admin = Thief::new(&cluster, &admin);
    let job = changed(&install_job(&cluster), |pod| pod["hostPID"] = json!(true));
    admin.succeeds("POST", JOBS_PATH, &job).await;
    admin.succeeds("PATCH", CONFIG, &json!({"spec": {"logLevel": "debug"}})).await;
    admin.succeeds("DELETE", &format!("{CLASSES}/gvisor"), &Value::Null).await;
    admin.succeeds("PATCH", NODE, &json!({"spec": {"unschedulable": true}})).await;
}
