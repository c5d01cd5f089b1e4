//! What a client with the operator's token cannot do: each attempt is within its roles, and a policy refuses it.

use std::time::Duration;

use http::Request;
use kata_api::names;
use kata_api::platform::Platform;
use kata_manifests::manifests::Options;
use kata_operator::Settings;
use serde_json::{Value, json};
use simcluster::Cluster;
use simcluster::resource::{self, JOBS, NODES, RUNTIMECLASSES};
use tower::ServiceExt as _;

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

const HOME: &str = names::NAMESPACE;
const IMAGE: &str = "registry.example/kata-operator:1";

const CONFIG: &str = "/apis/kataconfiguration.openshift.io/v1/kataconfigs/example";
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
const JOBS_PATH: &str = "/apis/batch/v1/namespaces/openshift-sandboxed-containers-operator/jobs";
const NODE: &str = "/api/v1/nodes/worker-0";

/// A client that has the operator's token. It only ever asks what would happen.
struct Thief {
    client: kube::Client,
}

impl Thief {
    fn new(cluster: &Cluster, token: &str) -> Self {
        let bearer: http::HeaderValue = format!("Bearer {token}").parse().unwrap();
        let service = cluster.client_service().map_request(
            move |mut request: Request<kube::client::Body>| {
                request.headers_mut().insert("authorization", bearer.clone());
                request
            },
        );
        Self { client: kube::Client::new(service, "default") }
    }

    /// A client that has the identity of a node's kubelet.
    fn kubelet(cluster: &Cluster, node: &str) -> Self {
        let admin = cluster.with(|sim, _| sim.frontend.signer.as_ref().unwrap().admin_token());
        let bearer: http::HeaderValue = format!("Bearer {admin}").parse().unwrap();
        let user: http::HeaderValue = format!("system:node:{node}").parse().unwrap();
        let service = cluster.client_service().map_request(
            move |mut request: Request<kube::client::Body>| {
                let headers = request.headers_mut();
                headers.insert("authorization", bearer.clone());
                headers.insert("impersonate-user", user.clone());
                headers.insert("impersonate-group", "system:nodes".parse().unwrap());
                request
            },
        );
        Self { client: kube::Client::new(service, "default") }
    }

    /// What the API server says to a dry run of the request; empty if it would be done.
    async fn ask(&self, method: &str, path: &str, body: &Value) -> String {
        let kind =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All&fieldManager=thief"))
            .header("content-type", kind)
            .body(if method == "DELETE" { Vec::new() } else { body.to_string().into_bytes() })
            .unwrap();
        match self.client.request::<Value>(request).await {
            Ok(_done) => String::new(),
            Err(kube::Error::Api(status)) => status.message,
            Err(error) => format!("no answer of the API server: {error}"),
        }
    }

    /// The request is refused by the policy for this resource, with this message.
    async fn fails(&self, method: &str, path: &str, body: &Value, policy: &str, message: &str) {
        let said = self.ask(method, path, body).await;
        let by = format!("ValidatingAdmissionPolicy 'kata-operator-{policy}'");
        assert!(said.contains(&by), "{method} {path} {body:#}: {said:?}");
        assert!(said.contains(message), "{method} {path} {body:#}: {said}");
    }

    /// The request would be done.
    async fn succeeds(&self, method: &str, path: &str, body: &Value) {
        assert_eq!(self.ask(method, path, body).await, "", "{method} {path} {body:#}");
    }
}

/// A cluster on which Kata is installed, with objects of others, and the operator's token.
async fn installed() -> (Cluster, Operator, Thief) {
    let cluster = lab::kubernetes();
    let arguments =
        Options { platform: Platform::Kubernetes, image: IMAGE.to_owned(), ..Options::default() };
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
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "kata-again", "labels": job["metadata"]["labels"]},
        "spec": {"backoffLimit": 0, "template": template},
    })
}

/// The Job after a change of its pod.
fn changed(job: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut job = job.clone();
    change(&mut job["spec"]["template"]["spec"]);
    job
}

fn agent(pod: &mut Value) -> &mut Value {
    &mut pod["containers"][0]
}

fn stage(pod: &mut Value) -> &mut Value {
    &mut pod["initContainers"][1]
}

fn push(list: &mut Value, item: Value) {
    list.as_array_mut().unwrap().push(item);
}

fn mount<'a>(container: &'a mut Value, name: &str) -> &'a mut Value {
    let mounts = container["volumeMounts"].as_array_mut().unwrap();
    mounts.iter_mut().find(|mount| mount["name"] == name).unwrap()
}

type Change = fn(&mut Value);

/// Changes of a pod, and what the policy says to them.
const PODS: [(&str, Change); 43] = [
    ("may not be privileged", |pod| agent(pod)["securityContext"]["privileged"] = json!(true)),
    ("may not be privileged", |pod| stage(pod)["securityContext"] = Value::Null),
    ("may not be privileged", |pod| {
        agent(pod)["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    }),
    ("may not be privileged", |pod| {
        push(&mut agent(pod)["securityContext"]["capabilities"]["add"], json!("SYS_ADMIN"));
    }),
    ("may not be privileged", |pod| {
        agent(pod)["securityContext"]["capabilities"]["drop"] = json!(["NET_RAW"]);
    }),
    ("may not share the network", |pod| pod["hostNetwork"] = json!(true)),
    ("may not share the network", |pod| pod["hostPID"] = json!(true)),
    ("may not share the network", |pod| pod["hostIPC"] = json!(true)),
    ("has the service account", |pod| pod["serviceAccountName"] = json!("kata-operator")),
    ("has the service account", |pod| pod["automountServiceAccountToken"] = json!(true)),
    ("may not loosen", |pod| {
        pod["securityContext"]["seccompProfile"] = json!({"type": "Unconfined"});
    }),
    ("may not loosen", |pod| {
        agent(pod)["securityContext"]["seccompProfile"] = json!({"type": "Unconfined"});
    }),
    ("may not loosen", |pod| {
        pod["securityContext"]["windowsOptions"] = json!({"hostProcess": true});
    }),
    ("mounts no other folders", |pod| {
        push(&mut pod["volumes"], json!({"name": "root", "hostPath": {"path": "/"}}));
    }),
    ("mounts no other folders", |pod| {
        push(&mut pod["volumes"], json!({"name": "secret", "secret": {"secretName": "registry"}}));
    }),
    ("for reading only", |pod| mount(agent(pod), "usr")["readOnly"] = json!(false)),
    ("for reading only", |pod| mount(agent(pod), "etc")["mountPath"] = json!("/etc")),
    ("at its place", |pod| mount(agent(pod), "etc")["mountPath"] = json!("/host/opt")),
    ("for reading only", |pod| mount(agent(pod), "etc")["mountPath"] = json!("/host/../usr/bin")),
    ("for reading only", |pod| mount(agent(pod), "run")["subPath"] = json!("systemd")),
    ("for reading only", |pod| {
        // The payload's own program would be started.
        mount(stage(pod), "agent")["mountPath"] = json!("/host/opt/kata-operator/payloads/x");
    }),
    ("mounts no other folders", |pod| {
        let agent = json!({"name": "agent", "hostPath": {"path": "/opt"}});
        pod["volumes"][0] = agent;
    }),
    ("mounts /opt only", |pod| {
        // An image with links could reach systemd's socket there.
        push(&mut stage(pod)["volumeMounts"], json!({"name": "run", "mountPath": "/host/run"}));
    }),
    ("mounts /opt only", |pod| {
        mount(stage(pod), "agent")["readOnly"] = json!(false);
    }),
    ("mounts /opt only", |pod| {
        push(&mut stage(pod)["securityContext"]["capabilities"]["add"], json!("CHOWN"));
    }),
    ("mounts /opt only", |pod| pod["containers"] = json!([stage(pod)])),
    ("as an ordinary container", |pod| pod["runtimeClassName"] = json!("kata")),
    ("as an ordinary container", |pod| pod["shareProcessNamespace"] = json!(true)),
    ("as an ordinary container", |pod| {
        agent(pod)["resources"]["limits"]["devices.kubevirt.io/kvm"] = json!("1");
    }),
    ("may not loosen", |pod| {
        pod["securityContext"]["appArmorProfile"] = json!({"type": "Unconfined"});
    }),
    ("may not loosen", |pod| {
        agent(pod)["securityContext"]["appArmorProfile"] = json!({"type": "Unconfined"});
    }),
    ("may not loosen", |pod| agent(pod)["securityContext"]["procMount"] = json!("Unmasked")),
    ("starts no other program", |pod| {
        pod["initContainers"][0]["command"][4] = json!("/host/etc/shadow");
    }),
    ("starts no other program", |pod| {
        push(&mut stage(pod)["command"], json!("--image-root"));
    }),
    ("starts no other program", |pod| agent(pod)["command"][6] = json!("/")),
    ("starts no other program", |pod| agent(pod)["command"][2] = json!("probe")),
    ("starts no other program", |pod| agent(pod)["command"][0] = json!("/agent/kata-operator")),
    ("starts no other program", |pod| agent(pod)["args"] = json!(["--host-root=/"])),
    ("starts no other program", |pod| agent(pod)["image"] = json!("registry.example/evil:1")),
    ("starts no other program", |pod| agent(pod)["command"] = json!(["/bin/sh", "-c", "id"])),
    ("starts no other program", |pod| stage(pod)["command"] = json!(["/bin/sh", "-c", "id"])),
    ("starts no other program", |pod| stage(pod)["command"] = Value::Null),
    ("starts no other program", |pod| {
        agent(pod)["env"] = json!([{"name": "LD_PRELOAD", "value": "/host/opt/evil.so"}]);
    }),
];

#[tokio::test(start_paused = true)]
async fn it_cannot_start_other_jobs_than_the_operators() {
    let (cluster, _operator, thief) = installed().await;
    let job = install_job(&cluster);
    thief.succeeds("POST", JOBS_PATH, &job).await;
    for (message, change) in PODS {
        thief.fails("POST", JOBS_PATH, &changed(&job, change), "jobs", message).await;
    }
    for (message, patch) in [
        ("has one pod", json!({"spec": {"parallelism": 100, "completions": 100}})),
        (
            "has one pod",
            json!({"spec": {"template": {"metadata": {"annotations": {"io.katacontainers.x": "y"}}}}}),
        ),
        (
            "may create no other Jobs",
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
        "handler": "kata", "scheduling": class["scheduling"],
    });
    thief.succeeds("POST", CLASSES, &body).await;
    let with = |key: &str, value: Value| {
        let mut body = body.clone();
        body[key] = value;
        body
    };
    for handler in ["runc", "crun", "runc-fast", "high-performance", "nvidia"] {
        let ordinary = with("handler", json!(handler));
        thief.fails("POST", CLASSES, &ordinary, "runtimeclasses", "known to make no sandbox").await;
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
