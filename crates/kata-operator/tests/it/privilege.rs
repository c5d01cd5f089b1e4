//! What the operator may do, on an API server that enforces it: nothing more is needed, and nothing is
//! granted in vain.

use std::collections::BTreeMap;
use std::time::Duration;

use kata_api::names::OPERATOR_NAMESPACE_ANNOTATION;
use kata_api::platform::Platform;
use kata_manifests::manifests::Options;
use kata_manifests::manifests::{self, Permission};
use kata_operator::Settings;
use kata_operator::lease::holder::PodProcess;
use serde_json::{Value, json};
use simcluster::Cluster;
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::resource::{
    CONFIGMAPS, DAEMONSETS, MACHINECONFIGS, NODES, PODDISRUPTIONBUDGETS, PODS,
};

use crate::lab::{self, Operator};
use crate::monitor;

/// Far above what a stage takes.
const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
/// After this nothing is on its way any more.
const SETTLE: Duration = Duration::from_secs(120);
/// Longer than the operator takes to complain.
const PATIENCE: Duration = Duration::from_mins(15);
const MONITOR_IMAGE: &str = "registry.example/monitor:1";

const AGENT_IMAGE: &str = "registry.example/kata-operator:1";

fn settings(identity: &str, monitor_image: Option<&str>) -> Settings {
    let process =
        PodProcess { pod: identity.to_owned(), uid: identity.to_owned(), started: lab::epoch() };
    let mut settings = lab::elected(&process.identity());
    settings.options.monitor_image = monitor_image.map(str::to_owned);
    settings.options.agent_image = Some(AGENT_IMAGE.to_owned());
    settings
}

/// A life of a KataConfig that needs every permission once.
struct Story<'a> {
    cluster: &'a Cluster,
}

impl Story<'_> {
    /// Waits for the end of a stage.
    async fn until(&self, what: &str, done: impl Fn(&Cluster) -> bool) {
        let ended = lab::until(LIMIT, || done(self.cluster)).await;
        assert!(ended, "{what}: {:?} {:#?}", lab::denied(self.cluster), self.found());
    }

    /// What an unhappy developer wants to see.
    fn found(&self) -> (Vec<Value>, BTreeMap<String, Value>) {
        let pods = self.cluster.with(|sim, _| sim.api.list(&PODS));
        let pods = pods.iter().map(|pod| json!([pod["metadata"]["name"], pod["status"]]));
        (pods.collect(), lab::end_state(self.cluster))
    }

    fn spec(&self, patch: &Value) {
        lab::merge(self.cluster, &lab::kata_configs(), "example", &json!({"spec": patch}));
    }

    fn remove(&self, resource: &simcluster::Resource, name: &str) {
        self.cluster.with(|sim, now| {
            let writer = Writer { manager: "kubectl", now };
            sim.api.delete(writer, resource, "default", name, &DeleteOptions::default()).unwrap();
        });
    }

    /// What the OpenShift sandboxed containers operator leaves of its kata-monitor.
    fn leave_monitor(&self) {
        let config = lab::get(self.cluster, &lab::kata_configs(), "example").unwrap();
        let owners = json!([{
            "apiVersion": config["apiVersion"], "kind": config["kind"], "name": "example",
            "uid": config["metadata"]["uid"],
        }]);
        let labels = json!({"name": monitor::NAME});
        let container = json!({"name": "kata-monitor", "image": "registry.example/osc-monitor:1"});
        let daemon_set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": monitor::NAME, "ownerReferences": owners},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        });
        let constraints = json!({
            "apiVersion": "security.openshift.io/v1", "kind": "SecurityContextConstraints",
            "metadata": {"name": monitor::CONSTRAINTS, "ownerReferences": owners},
            "allowHostDirVolumePlugin": true, "allowHostIPC": false, "allowHostNetwork": false,
            "allowHostPID": false, "allowHostPorts": false, "allowPrivilegedContainer": false,
            "allowedCapabilities": [], "defaultAddCapabilities": [], "priority": 0,
            "readOnlyRootFilesystem": false, "requiredDropCapabilities": ["ALL"], "volumes": ["hostPath"],
        });
        lab::create(self.cluster, &DAEMONSETS, monitor::NAMESPACE, daemon_set);
        lab::create(self.cluster, &monitor::scc(), "", constraints);
    }

    /// From the extension to an image of the operating system that brings Kata.
    async fn switch_to_image_mode(&self) {
        let home = kata_api::names::NAMESPACE;
        let url = "registry.example/rhcos-kata@sha256:1";
        let data = [
            ("osc-feature-gates", json!({"layeredImageDeployment": "true"})),
            ("layered-image-deploy-cm", json!({"osImageURL": url})),
        ];
        for (name, data) in data {
            let metadata = json!({"name": name});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            lab::create(self.cluster, &CONFIGMAPS, home, object);
        }
        let there = |cluster: &Cluster, name| lab::get(cluster, &MACHINECONFIGS, name).is_some();
        let switched = |cluster: &Cluster| {
            lab::is_ready(cluster, "example")
                && there(cluster, "50-enable-sandboxed-containers-image")
                && !there(cluster, "50-enable-sandboxed-containers-extension")
        };
        self.until("installed by an image", switched).await;
    }

    /// The operators are started when the KataConfig is there.
    async fn run(&self, start: impl FnOnce() -> [Operator; 2]) -> [Operator; 2] {
        let cluster = self.cluster;
        let ready = |cluster: &Cluster| lab::is_ready(cluster, "example");
        // A pod that cannot be evicted holds up the first drain.
        let labels = json!({"app": "web"});
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        });
        lab::create(cluster, &PODDISRUPTIONBUDGETS, "default", budget);
        let container = json!({"name": "main", "image": "registry.example/web:1"});
        let web = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": labels},
            "spec": {"nodeSelector": {"kata": "true"}, "containers": [container]},
        });
        lab::create(cluster, &PODS, "default", web);
        lab::pass(Duration::from_secs(30)).await;

        let mut config = lab::kata_config("example");
        config["spec"]["logLevel"] = json!("debug");
        lab::create(cluster, &lab::kata_configs(), "", config);
        let operators = start();
        let held_up = |cluster: &Cluster| {
            let node = lab::get(cluster, &NODES, &lab::worker(0)).unwrap_or_default();
            node["spec"]["unschedulable"] == true
        };
        self.until("the node is drained", held_up).await;
        // Long enough for a drain to count as blocked.
        lab::pass(PATIENCE).await;
        self.remove(&PODDISRUPTIONBUDGETS, "web");
        self.until("installed with a log level", ready).await;
        self.spec(&json!({"logLevel": "info"}));
        let plain = |cluster: &Cluster| {
            let configs = simcluster::resource::CONTAINERRUNTIMECONFIGS;
            lab::is_ready(cluster, "example")
                && lab::get(cluster, &configs, "kata-crio-config").is_none()
        };
        self.until("the log level is back", plain).await;
        self.switch_to_image_mode().await;
        self.remove_under_a_guest().await;
        operators
    }

    /// Where Jobs change the node.
    async fn tell_by_jobs(&self) {
        let cluster = self.cluster;
        let ready = |cluster: &Cluster| lab::is_ready(cluster, "example");
        lab::create(cluster, &lab::kata_configs(), "", lab::kata_config("example"));
        self.until("installed", ready).await;
        // A Job that succeeded goes with the next one.
        self.spec(&json!({"payload": {"image": "registry.example/kata-payload:4.2.0"}}));
        self.until("another payload", ready).await;
        self.remove_under_a_guest().await;
    }

    /// As after a move from a namespace that is deleted.
    async fn take_over(&self) {
        let claim = |namespace: &str| json!({"metadata": {"annotations": {OPERATOR_NAMESPACE_ANNOTATION: namespace}}});
        lab::merge(self.cluster, &lab::kata_configs(), "example", &claim("gone"));
        let is_ours = |cluster: &Cluster| {
            let config = lab::get(cluster, &lab::kata_configs(), "example").unwrap();
            config["metadata"]["annotations"][OPERATOR_NAMESPACE_ANNOTATION]
                == kata_api::names::NAMESPACE
        };
        self.until("taken over", is_ours).await;
    }

    async fn remove_under_a_guest(&self) {
        self.take_over().await;
        let cluster = self.cluster;
        let guest = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guest"},
            "spec": {
                "runtimeClassName": "kata", "containers": [{"name": "main", "image": "x.example/x:1"}],
            },
        });
        lab::create(cluster, &PODS, "default", guest);
        let runs = |cluster: &Cluster| {
            let pod = cluster.with(|sim, _| sim.api.get(&PODS, "default", "guest")).unwrap();
            pod["status"]["phase"] == "Running"
        };
        self.until("a pod runs", runs).await;
        lab::delete(cluster, &lab::kata_configs(), "", "example");
        let blocked =
            |cluster: &Cluster| lab::condition(cluster, "example", "DeletionBlocked").0 == "True";
        self.until("a pod is in the way", blocked).await;
        self.remove(&PODS, "guest");
        let gone = |cluster: &Cluster| lab::get(cluster, &lab::kata_configs(), "example").is_none();
        self.until("removed", gone).await;
        lab::pass(SETTLE).await;
    }
}

/// A request as RBAC sees it: API group, resource, verb, and the name where there is one.
fn permission(line: &str) -> Permission {
    let (method, url) = line.split_once(' ').unwrap();
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let mut parts = path.trim_start_matches('/').split('/').peekable();
    let group = match parts.next() {
        Some("api") => String::new(),
        _ => parts.next().unwrap_or_default().to_owned(),
    };
    parts.next();
    // A namespace that is an object itself has nothing after its name.
    if parts.peek() == Some(&"namespaces") && parts.clone().count() > 2 {
        parts.next();
        parts.next();
    }
    let resource = parts.next().unwrap_or_default().to_owned();
    let mut name = parts.next().unwrap_or_default().to_owned();
    let verb = match method {
        "GET" if query.contains("watch=") => "watch",
        "GET" if name.is_empty() => "list",
        "GET" => "get",
        "POST" => "create",
        "PATCH" => "patch",
        "DELETE" => "delete",
        other => other,
    };
    let selected =
        query.split('&').find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"));
    if let Some(selected) = selected {
        selected.clone_into(&mut name);
    }
    let resource = match parts.next() {
        Some(part) => format!("{resource}/{part}"),
        None => resource,
    };
    (group, resource, verb.to_owned(), name)
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_is_what_is_used() {
    let cluster = lab::openshift(1, 1);
    let arguments = Options {
        monitor_image: Some(MONITOR_IMAGE.to_owned()),
        ..lab::installed(Platform::Openshift)
    };
    let token = lab::guard(&cluster, &arguments);
    let before = lab::end_state(&cluster);
    let start = || operators(&cluster, Some(MONITOR_IMAGE), &token);
    let operators = Story { cluster: &cluster }.run(start).await;
    assert_eq!(lab::denied(&cluster), [""; 0]);
    lab::assert_same(&lab::end_state(&cluster), &before, "");

    assert_used(&manifests::granted(Platform::Openshift, true), &operators);
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_without_kata_monitor_is_what_is_used() {
    let cluster = lab::openshift(1, 1);
    let token = lab::guard(&cluster, &lab::installed(Platform::Openshift));
    let before = lab::end_state(&cluster);
    let story = Story { cluster: &cluster };
    let start = || {
        story.leave_monitor();
        operators(&cluster, None, &token)
    };
    let operators = story.run(start).await;
    assert_eq!(lab::denied(&cluster), [""; 0]);
    lab::assert_same(&lab::end_state(&cluster), &before, "");
    assert_used(&manifests::granted(Platform::Openshift, false), &operators);
}

/// Each operator replaces the one before it, as an upgrade does, with the manifests that belong to it.
#[tokio::test(start_paused = true)]
async fn a_whole_life_needs_no_more_than_what_is_granted() {
    let cluster = lab::openshift(1, 1);
    let before = lab::end_state(&cluster);
    let story = Story { cluster: &cluster };
    let operator = |identity: &str, monitor_image: Option<&str>| {
        let monitor = monitor_image.map(str::to_owned);
        let token = lab::guard(
            &cluster,
            &Options { monitor_image: monitor, ..lab::installed(Platform::Openshift) },
        );
        Operator::with_token(&cluster, settings(identity, monitor_image), Some(&token))
    };
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let first = operator("first", None);
    story.leave_monitor();
    let is_monitored = |cluster: &Cluster| {
        monitor::daemon_set(cluster).is_some() && monitor::constraints(cluster).is_some()
    };
    let is_unmonitored = |cluster: &Cluster| {
        monitor::daemon_set(cluster).is_none() && monitor::constraints(cluster).is_none()
    };
    let ready = |cluster: &Cluster| lab::is_ready(cluster, "example");
    story.until("what the OpenShift operator left is gone", is_unmonitored).await;
    story.until("installed", ready).await;
    drop(first);
    let second = operator("second", Some(MONITOR_IMAGE));
    story.until("kata-monitor runs", is_monitored).await;
    lab::pass(PATIENCE).await;
    drop(second);
    let third = operator("third", None);
    story.until("kata-monitor is gone", is_unmonitored).await;
    lab::pass(PATIENCE).await;
    story.remove_under_a_guest().await;
    assert_eq!(lab::denied(&cluster), [""; 0]);
    lab::assert_same(&lab::end_state(&cluster), &before, "");
    drop(third);
}

/// Where Jobs change the nodes, an upgrade also replaces what they installed.
#[tokio::test(start_paused = true)]
async fn an_upgrade_where_jobs_change_nodes_needs_no_more_than_what_is_granted() {
    let cluster = lab::kubernetes();
    let before = lab::end_state(&cluster);
    let story = Story { cluster: &cluster };
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let mut last = None;
    for version in ["1", "2"] {
        drop(last.take());
        let image = format!("registry.example/kata-operator:{version}");
        let mut settings = settings(version, None);
        settings.options.agent_image = Some(image.clone());
        let arguments = Options { image, ..lab::installed(Platform::Kubernetes) };
        let token = lab::guard(&cluster, &arguments);
        settings.options.payload_image = format!("registry.example/kata-payload:{version}");
        last = Some(Operator::with_token(&cluster, settings, Some(&token)));
        let is_installed = |cluster: &Cluster| {
            let of_node = lab::get(cluster, &lab::kata_nodes(), &lab::worker(0));
            lab::is_ready(cluster, "example")
                && of_node.is_some_and(|it| it["status"]["host"]["kataVersion"] == version)
        };
        story.until("installed", is_installed).await;
    }
    story.remove_under_a_guest().await;
    assert_eq!(lab::denied(&cluster), [""; 0]);
    lab::assert_same(&lab::end_state(&cluster), &before, "");
}

/// Two as the Deployment has them: one works, the other stands by.
fn operators(cluster: &Cluster, monitor_image: Option<&str>, token: &str) -> [Operator; 2] {
    ["one", "two"].map(|identity| {
        Operator::with_token(cluster, settings(identity, monitor_image), Some(token))
    })
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_where_jobs_change_nodes_is_what_is_used() {
    let cluster = lab::kubernetes();
    let image = AGENT_IMAGE.to_owned();
    let arguments = Options { image, ..lab::installed(Platform::Kubernetes) };
    let token = lab::guard(&cluster, &arguments);
    let before = lab::end_state(&cluster);
    let operators = operators(&cluster, None, &token);
    Story { cluster: &cluster }.tell_by_jobs().await;
    assert_eq!(lab::denied(&cluster), [""; 0]);
    lab::assert_same(&lab::end_state(&cluster), &before, "");
    let granted = manifests::granted(Platform::Kubernetes, false);
    assert_used(&granted, &operators);
}

/// Each permission was used by one of the operators, and none besides.
fn assert_used(granted: &[Permission], operators: &[Operator]) {
    let mut unused = granted.to_vec();
    let requests = operators.iter().flat_map(Operator::requests);
    // Everybody who is known may ask which kinds there are.
    let asks_kinds = |line: &String| {
        let path = line.split(' ').nth(1).unwrap_or_default();
        path.starts_with("/apis") && path.matches('/').count() <= 3
    };
    for line in requests.filter(|line| !asks_kinds(line)) {
        let (group, resource, verb, name) = permission(&line);
        let covers = |rule: &Permission| {
            rule.0 == group
                && rule.1 == resource
                && rule.2 == verb
                && (rule.3.is_empty() || rule.3 == name)
        };
        assert!(granted.iter().any(covers), "not granted: {line}");
        // An apply creates what does not exist, for which RBAC wants both verbs.
        unused.retain(|rule| {
            let also_creates = verb == "patch" && rule.2 == "create";
            let same =
                rule.0 == group && rule.1 == resource && (rule.3.is_empty() || rule.3 == name);
            !(covers(rule) || (also_creates && same))
        });
    }
    assert!(unused.is_empty(), "granted in vain: {unused:#?}");
}
