//! Simulated clusters with the operator, and the commands on them. Times are virtual: nothing here waits
//! for real.

use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use http::header::AUTHORIZATION;
use http_body_util::{BodyExt as _, Full};
use jiff::{SignedDuration, Timestamp};
use kata_manifests::manifests::Options;
use kubectl_kata::arguments::Arguments;
use kubectl_kata::environment::settings;
use kubectl_kata::{Connected, Exit, Printer, run};
use serde_json::{Value, json};
use simcluster::api::authentication::{self, Signer};
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::api::rbac::bootstrap;
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::clock::Clock;
use simcluster::resource::{DEPLOYMENTS, NAMESPACES, NODES, PODS};
use simcluster::topology::{self, Layout, NodeOptions, Role};
use simcluster::world::{NodeFault, Platform};
use simcluster::{Cluster, Resource, Simulation};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::ServiceExt as _;

mod done;

pub(crate) use done::{Done, Place, checks};

/// When simulated clusters begin.
pub(crate) fn epoch() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A simulated cluster.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) cluster: Cluster,
    operator: Option<JoinHandle<()>>,
    pub(crate) token: Option<String>,
    pub(crate) address: Option<std::net::SocketAddr>,
    platform: Platform,
    /// What the API server says its version is, instead of its own.
    pub(crate) version: Option<String>,
    /// What is answered instead of what the simulation has: how the path ends, the code, and the text.
    pub(crate) pages: Vec<(&'static str, u16, &'static str)>,
    /// How much the clock of the machine on which commands run is ahead of the cluster's.
    pub(crate) skew: SignedDuration,
    /// The operator's image that was published with the plugin.
    pub(crate) published: Option<String>,
}

/// What `kata-operator manifests` prints.
fn manifests(platform: Platform) -> Vec<Value> {
    kata_manifests::manifests::objects(&Options::of(installed(platform))).unwrap()
}

/// The kind of cluster, as the manifests name it.
fn installed(platform: Platform) -> kata_api::platform::Platform {
    match platform {
        Platform::OpenShift => kata_api::platform::Platform::Openshift,
        Platform::Kubernetes => kata_api::platform::Platform::Kubernetes,
    }
}

/// Creates an object of any kind; the message if it is refused.
fn create(simulation: &mut Simulation, now: Timestamp, object: Value) -> Result<(), String> {
    let writer = Writer { manager: "kubectl", now };
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let def = simulation.api.registry.by_kind(group, &kind).unwrap();
    let resource = def.resource.clone();
    let created = simulation.api.create(writer, &resource, &namespace, object);
    created.map(drop).map_err(|error| error.message)
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(operator) = &self.operator {
            operator.abort();
        }
    }
}

impl Lab {
    /// A cluster without anything of ours.
    pub(crate) fn bare(layout: &Layout) -> Self {
        Self::on_simulation(topology::build(layout, epoch()).unwrap(), layout.platform)
    }

    fn on_simulation(simulation: Simulation, platform: Platform) -> Self {
        let cluster = Cluster::start(simulation, Clock::starting_at(epoch()));
        Self {
            cluster,
            operator: None,
            token: None,
            address: None,
            platform,
            version: None,
            pages: Vec::new(),
            skew: SignedDuration::ZERO,
            published: Some("registry.example/kata/kata-operator:v0.1.0".to_owned()),
        }
    }

    /// A cluster of so many workers with the operator's kinds and the operator.
    pub(crate) fn with_workers(workers: u32) -> Self {
        Self::with_layout(&Layout { workers, ..Layout::default() })
    }

    /// Three workers of a kind of cluster, and the operator.
    pub(crate) fn on(platform: Platform) -> Self {
        Self::with_layout(&Layout { platform, ..Layout::default() })
    }

    /// A cluster on which the operator was installed a minute ago.
    pub(crate) fn with_layout(layout: &Layout) -> Self {
        let ago = std::time::Duration::from_secs(60);
        let mut simulation = topology::build(layout, epoch() - ago).unwrap();
        for object in manifests(layout.platform) {
            create(&mut simulation, epoch() - ago, object).unwrap();
        }
        simulation.advance(ago);
        let mut lab = Self::on_simulation(simulation, layout.platform);
        lab.start_operator();
        lab
    }

    /// Three workers and the operator.
    pub(crate) fn new() -> Self {
        Self::with_workers(3)
    }

    /// The operator's namespace.
    pub(crate) fn home(&self) -> &'static str {
        installed(self.platform).namespace()
    }

    /// Creates what `kata-operator manifests` prints.
    pub(crate) fn install(&self) {
        for object in manifests(self.platform) {
            self.create(object);
        }
    }

    /// Starts the operator.
    pub(crate) fn start_operator(&mut self) {
        let client = kube::Client::new(self.cluster.client_service(), "default");
        let mut settings = kata_operator::Settings::simulated(self.cluster.now());
        self.home().clone_into(&mut settings.namespace);
        settings.options.agent_image = Some(kata_manifests::manifests::UNPUBLISHED.to_owned());
        self.operator = Some(tokio::spawn(async move {
            let run = kata_operator::run(client, settings, std::future::pending());
            run.await.unwrap();
        }));
    }

    /// Ends the operator.
    pub(crate) fn stop_operator(&mut self) {
        if let Some(operator) = self.operator.take() {
            operator.abort();
        }
    }

    /// Requests since this was asked last.
    pub(crate) fn requests(&self) -> u64 {
        self.cluster.with(|simulation, _| {
            let count = simulation.frontend.requests().map(|(.., count)| count).sum();
            simulation.frontend.reset_requests();
            count
        })
    }

    /// How often objects of a kind were listed since requests were asked for last.
    pub(crate) fn lists(&self, resource: &str) -> u64 {
        self.cluster.with(|simulation, _| {
            let lists = simulation.frontend.requests();
            let lists = lists.filter(|(of, verb, _)| (*of, *verb) == (resource, "list"));
            lists.map(|(.., count)| count).sum()
        })
    }

    /// Deletes the operator's Deployment.
    pub(crate) fn undeploy(&self) {
        let home = self.home();
        if self.get(&DEPLOYMENTS, home, "kata-operator").is_some() {
            self.delete(&DEPLOYMENTS, home, "kata-operator");
        }
    }

    /// Instead of the operator's Deployment one whose pods fit onto no node.
    pub(crate) fn deploy_without_pods(&self, namespace: &str) {
        self.undeploy();
        self.deploy_beside(namespace);
    }

    /// A Deployment of the operator, beside others, whose pods fit onto no node.
    pub(crate) fn deploy_beside(&self, namespace: &str) {
        let labels = json!({"app.kubernetes.io/name": "kata-operator"});
        self.create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "kata-operator", "namespace": namespace, "labels": labels},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": {"no": "node"},
                        "containers": [{"name": "a", "image": "i:v7.4.0"}],
                    },
                },
            },
        }));
    }

    /// Creates an object of any kind.
    #[track_caller]
    pub(crate) fn create(&self, object: Value) {
        self.try_create(object).unwrap();
    }

    /// Creates an object; the message if it is refused.
    pub(crate) fn try_create(&self, object: Value) -> Result<(), String> {
        self.cluster.with(|simulation, now| create(simulation, now, object))
    }

    /// Applies an object as `kubectl apply --server-side` does, without `--force-conflicts`.
    pub(crate) async fn apply(&self, object: &Value) {
        use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};

        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = kube::core::GroupVersionKind::gvk(group, version, &text(&object["kind"]));
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        };
        let name = text(&object["metadata"]["name"]);
        api.patch(&name, &PatchParams::apply("kubectl"), &Patch::Apply(object)).await.unwrap();
    }

    /// Labels a node.
    pub(crate) fn label(&self, node: &str, key: &str, value: Option<&str>) {
        self.merge(&NODES, "", node, &json!({"metadata": {"labels": {key: value}}}));
    }

    /// Cordons a node.
    pub(crate) fn cordon(&self, node: &str) {
        self.merge(&NODES, "", node, &json!({"spec": {"unschedulable": true}}));
    }

    /// Changes an object as a user would.
    pub(crate) fn merge(&self, resource: &Resource, namespace: &str, name: &str, patch: &Value) {
        self.cluster.with(|simulation, now| {
            let writer = Writer { manager: "kubectl", now };
            simulation.api.merge(writer, resource, namespace, name, patch).unwrap();
        });
    }

    /// Changes an object's status as a controller would.
    pub(crate) fn merge_status(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) {
        self.cluster.with(|simulation, now| {
            let writer = Writer { manager: "kubelet", now };
            simulation.api.merge_status(writer, resource, namespace, name, patch).unwrap();
        });
    }

    /// Deletes an object.
    pub(crate) fn delete(&self, resource: &Resource, namespace: &str, name: &str) {
        self.cluster.with(|simulation, now| {
            let writer = Writer { manager: "kubectl", now };
            let options = DeleteOptions::default();
            simulation.api.delete(writer, resource, namespace, name, &options).unwrap();
        });
    }

    /// All objects of a kind.
    pub(crate) fn list(&self, resource: &Resource) -> Vec<Value> {
        let objects = self.cluster.with(|sim, _| sim.api.list(resource));
        objects.into_iter().map(|object| (*object).clone()).collect()
    }

    /// An object.
    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        let object = self.cluster.with(|sim, _| sim.api.get(resource, namespace, name));
        object.map(|object| (*object).clone())
    }

    /// Makes a node fail.
    pub(crate) fn fault(&self, node: &str, fault: &str) {
        let fault: NodeFault = fault.parse().unwrap();
        self.cluster.with(|simulation, _| {
            simulation.world.hosts.get_mut(node).unwrap().faults.insert(fault);
            simulation.world.touch(node);
        });
    }

    /// Adds a worker with options of `kata-sim node add`.
    pub(crate) async fn join(&self, node: &str, options: &[&str]) {
        let options = NodeOptions::parse(options.iter().copied()).unwrap();
        self.cluster.with(|sim, _| topology::add_node(sim, node, Role::Worker, options)).unwrap();
        self.pass(60).await;
    }

    /// Ends what a node suffers from.
    pub(crate) fn clear_faults(&self, node: &str) {
        self.cluster.with(|simulation, _| {
            simulation.world.hosts.get_mut(node).unwrap().faults.clear();
            simulation.world.touch(node);
        });
    }

    /// The KataConfig of the examples, for workers with the label `kata=true`, which these nodes get.
    pub(crate) fn kata(&self, nodes: &[&str]) {
        for node in nodes {
            self.label(node, "kata", Some("true"));
        }
        self.create(json!({
            "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
            "metadata": {"name": "cluster-kataconfig"},
            "spec": {"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}},
        }));
    }

    /// A namespace.
    pub(crate) fn namespace(&self, name: &str) {
        if self.get(&NAMESPACES, "", name).is_none() {
            self.create(
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            );
        }
    }

    /// A Deployment whose pods have the label `app` with its name.
    pub(crate) fn deployment(&self, namespace: &str, name: &str, replicas: u32) {
        let labels = json!({"app": name});
        self.create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "a", "image": "i", "command": ["sleep", "99999999"]}]},
                },
            },
        }));
    }

    /// A pod of the examples, sandboxed or not.
    pub(crate) fn pod(&self, name: &str, class: Option<&str>) {
        self.namespace("test-kata");
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "test-kata", "labels": {"app": name}},
            "spec": {
                "nodeSelector": {"kata": "true"},
                "containers": [{
                    "name": name, "image": "quay.io/rcarrata/net-toolbox:latest",
                    "command": ["/bin/bash", "-c", "sleep 99999999999"],
                }],
            },
        });
        if let Some(class) = class {
            pod["spec"]["runtimeClassName"] = json!(class);
        }
        self.create(pod);
    }

    /// Lets virtual time pass until `done` holds.
    #[track_caller]
    pub(crate) fn until(
        &self,
        what: &'static str,
        mut done: impl FnMut(&Self) -> bool,
    ) -> impl Future<Output = ()> {
        let end = Instant::now() + Duration::from_secs(3 * 3600);
        async move {
            while !done(self) {
                assert!(Instant::now() < end, "{what} does not come");
                self.pass(1).await;
            }
        }
    }

    /// Lets so many seconds of virtual time pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep_until(Instant::now() + Duration::from_secs(seconds)).await;
    }

    /// Waits until the KataConfig is Ready.
    pub(crate) async fn ready(&self) {
        self.until("Ready", |lab| lab.condition("Ready") == "True").await;
    }

    /// The status of a condition of the KataConfig.
    pub(crate) fn condition(&self, type_: &str) -> String {
        let configs = kata_configs();
        let config = self.get(&configs, "", "cluster-kataconfig").unwrap_or_default();
        let conditions = config["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == type_);
        found.and_then(|found| found["status"].as_str()).unwrap_or_default().to_owned()
    }

    /// Waits until a pod is in a phase.
    pub(crate) async fn phase(&self, name: &'static str, phase: &'static str) {
        self.until("the pod's phase", |lab| {
            lab.get(&PODS, "test-kata", name).is_some_and(|pod| pod["status"]["phase"] == phase)
        })
        .await;
    }

    /// From now on everybody may do only what RBAC grants; commands run as an account that may view.
    pub(crate) fn only_view(&mut self) {
        self.only(Some("view"));
    }

    /// The same with an account that has this ClusterRole, or none.
    pub(crate) fn only(&mut self, role: Option<&str>) {
        self.namespace("viewers");
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "viewer", "namespace": "viewers"},
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "viewer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "viewers"}],
        });
        self.create(account);
        if role.is_some() {
            self.create(binding);
        }
        let token = self.cluster.with(|simulation, now| {
            simulation.frontend.strangers = authentication::Strangers::Admin;
            bootstrap::enforce(simulation, Signer::new([1, 2])).unwrap();
            let request = json!({"spec": {"expirationSeconds": 360_000}});
            let signer = simulation.frontend.signer.as_ref();
            let account = ("viewers", "viewer");
            let answer =
                authentication::token(&simulation.api, signer, account, &request, now).unwrap();
            answer["status"]["token"].as_str().unwrap().to_owned()
        });
        self.token = Some(token);
    }

    /// The same with an account that has these rules and no others.
    pub(crate) fn only_rules(&mut self, rules: &Value) {
        self.create(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "some-rules"}, "rules": rules,
        }));
        self.only(Some("some-rules"));
    }

    /// From now on the API server refuses what this asks for.
    pub(crate) fn refuse(&self, verb: &str, resource: &str) {
        let fault =
            Fault::Status { code: 403, retry_after: None, message: None, when: When::Before };
        self.trouble(verb, resource, fault);
    }

    /// From now on this happens to such requests, about the objects themselves or, as with `pods/log`, about
    /// one side of them.
    pub(crate) fn trouble(&self, verb: &str, resource: &str, fault: Fault) {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let matches = Match {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            ..Match::default()
        };
        self.disturb(Rule::once(matches, fault).times(0));
    }

    /// From now on this happens to requests.
    pub(crate) fn disturb(&self, rule: Rule) {
        self.cluster.with(|sim, _| sim.frontend.faults.add(rule));
    }

    /// Serves the cluster over HTTP; commands reach it that way from now on.
    pub(crate) async fn serve(&mut self) {
        self.address = Some(self.cluster.serve(0).await.unwrap());
    }

    /// Waits until the KataConfig is Ready, when time is real.
    pub(crate) async fn ready_in_real_time(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.condition("Ready") != "True" {
            assert!(Instant::now() < end, "Ready does not come");
            tokio::time::sleep_until(Instant::now() + Duration::from_millis(50)).await;
        }
    }

    fn client(&self) -> kube::Client {
        if let Some(address) = self.address {
            let uri = format!("http://{address}").parse().unwrap();
            return kube::Client::try_from(kube::Config::new(uri)).unwrap();
        }
        let bearer: Option<http::HeaderValue> =
            self.token.as_ref().map(|token| format!("Bearer {token}").parse().unwrap());
        let service = self.cluster.client_service().map_request(
            move |mut request: http::Request<kube::client::Body>| {
                if let Some(bearer) = &bearer {
                    request.headers_mut().insert(AUTHORIZATION, bearer.clone());
                }
                request
            },
        );
        let version = self.version.iter().map(|version| json!({"gitVersion": version}).to_string());
        let mut pages: Vec<(&str, u16, String)> = version.map(|v| ("/version", 200, v)).collect();
        pages.extend(self.pages.iter().map(|(end, code, text)| (*end, *code, (*text).to_owned())));
        if pages.is_empty() {
            return kube::Client::new(service, "default");
        }
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let asked = request.uri().path();
            let page = pages.iter().find(|(end, ..)| asked.ends_with(end)).cloned();
            let service = service.clone();
            async move {
                let Some((_, code, text)) = page else { return service.oneshot(request).await };
                let body = Full::new(text.into_bytes().into()).map_err(|never| match never {});
                let response = http::Response::builder().status(code);
                Ok(response.body(body.boxed_unsync()).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    /// Runs a command in a pipe.
    pub(crate) async fn kata_command(&self, line: &str) -> Done {
        self.run_at(line, &Place::default()).await
    }

    /// Runs a command somewhere.
    pub(crate) async fn run_at(&self, line: &str, place: &Place) -> Done {
        let (_interrupt, interrupted) = watch::channel(false);
        self.run_with(line, place, interrupted).await
    }

    /// Runs a command that can be interrupted.
    pub(crate) async fn run_with(
        &self,
        line: &str,
        place: &Place,
        interrupt: watch::Receiver<bool>,
    ) -> Done {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = self.run_into(line, place, interrupt, &mut out, &mut err).await;
        Done {
            code: exit.code(),
            out: String::from_utf8(out).unwrap(),
            err: String::from_utf8(err).unwrap(),
        }
    }

    /// Runs a command whose output goes into these.
    pub(crate) async fn run_into(
        &self,
        line: &str,
        place: &Place,
        interrupt: watch::Receiver<bool>,
        out: &mut dyn std::io::Write,
        err: &mut dyn std::io::Write,
    ) -> Exit {
        let words = std::iter::once("kubectl-kata").chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        let cluster = self.cluster.clone();
        let skew = self.skew;
        let now = Arc::new(move || cluster.now() + skew);
        let mut settings = settings(&arguments.global(), &place.environment, place.terminal, now);
        settings.published.clone_from(&self.published);
        let live = place.terminal.err && place.environment.term != "dumb";
        let mut printer = Printer::new(out, err, settings.style, live);
        let place = "https://lab.example:6443 (context lab)".to_owned();
        let cluster = Connected { client: self.client(), place };
        // On the heap, as a command is large.
        let connect = async |_: &_| Ok(cluster);
        Box::pin(run(&arguments.command, &settings, &mut printer, interrupt, connect)).await
    }
}

/// KataNodes.
pub(crate) fn kata_nodes() -> Resource {
    Resource::dynamic("kata-operator.dev".to_owned(), "katanodes".to_owned())
}

/// KataConfigs.
pub(crate) fn kata_configs() -> Resource {
    Resource::dynamic("kataconfiguration.openshift.io".to_owned(), "kataconfigs".to_owned())
}
