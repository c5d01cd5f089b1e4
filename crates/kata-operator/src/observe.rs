//! From the API server to a [`Snapshot`]: first from the caches, then whatever [`kata_plan::needs`]
//! asks for, past them. A read that fails becomes [`Observed::Unknown`]; nothing is decided here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kata_api::{
    ContainerRuntimeConfig, KataConfig, KataNode, MachineConfig, MachineConfigPool, names,
};
use kata_plan::{
    Decision, DrainBlocker, Freshness, JobObjects, Kind, Need, Next, NodeFacts, Observed, Options,
    Platform, PodScope, Snapshot, validate,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::clock::Clock;
use crate::error::chain;
use crate::ingest::Cached;
use crate::jitter::Jitter;
use crate::metrics::{Check, Metrics};
use crate::watch::Cache;

mod jobs;
mod monitor;

pub use jobs::JobCaches;
pub use monitor::MonitorCaches;

/// How often [`kata_plan::needs`] may ask in one pass. It asks for own and rendered MachineConfigs,
/// quorum, pods and drain blockers; more rounds than these mean that it asks for the same again.
const ROUNDS: usize = 16;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// Without the KataConfigs there is nothing to decide.
    #[error("cannot read {what}: {error}")]
    KataConfigs {
        /// What cannot be read.
        what: String,
        /// Why.
        error: String,
    },
    /// The decision asks for reads without end, which is a bug.
    #[error("the decision asks for further reads without end; the last were {last}")]
    Endless {
        /// What it asked for last.
        last: String,
    },
}

/// The data of a ConfigMap.
type Data = BTreeMap<String, String>;

/// The caches of all watched kinds.
#[derive(Debug)]
pub struct Caches {
    /// KataConfigs.
    pub configs: Arc<Cache<KataConfig>>,
    /// Nodes, trimmed.
    pub nodes: Arc<Cache<Arc<NodeFacts>>>,
    /// MachineConfigPools.
    pub pools: Arc<Cache<MachineConfigPool>>,
    /// Our MachineConfig with the extension.
    pub machine_config: Arc<Cache<MachineConfig>>,
    /// Our MachineConfig of image mode.
    pub image_machine_config: Arc<Cache<MachineConfig>>,
    /// The data of the ConfigMap with feature gates.
    pub feature_gates: Arc<Cache<Data>>,
    /// The data of the ConfigMap of image mode.
    pub image_mode: Arc<Cache<Data>>,
    /// ContainerRuntimeConfigs.
    pub container_runtime_configs: Arc<Cache<ContainerRuntimeConfig>>,
    /// RuntimeClasses.
    pub runtime_classes: Arc<Cache<RuntimeClass>>,
    /// KataNodes.
    pub kata_nodes: Arc<Cache<Arc<KataNode>>>,
    /// What kata-monitor has.
    pub monitor: MonitorCaches,
    /// The Jobs of the node agent.
    pub jobs: JobCaches,
}

impl Caches {
    /// Empty caches.
    pub fn new(poke: &Arc<Notify>, options: &Options) -> Self {
        fn all<T: Cached>(kind: Kind, poke: &Arc<Notify>) -> Cache<T> {
            Cache::new(Endpoint::of(kind), None, Arc::clone(poke))
        }
        fn cache<T: Cached>(kind: Kind, poke: &Arc<Notify>) -> Arc<Cache<T>> {
            Arc::new(all(kind, poke))
        }
        fn named<T: Cached>(endpoint: Endpoint, name: &str, poke: &Arc<Notify>) -> Arc<Cache<T>> {
            let selector = format!("metadata.name={name}");
            Arc::new(Cache::new(endpoint, Some(selector), Arc::clone(poke)))
        }
        let Options { namespace, monitor_image, .. } = options;
        let machine_configs = || Endpoint::of(Kind::MachineConfig);
        let config_maps = || Endpoint::namespaced::<ConfigMap>(namespace);
        Self {
            configs: Arc::new(all(Kind::KataConfig, poke).each_by_itself()),
            nodes: Arc::new(all(Kind::Node, poke).each_by_itself()),
            pools: cache(Kind::MachineConfigPool, poke),
            machine_config: named(machine_configs(), names::MACHINE_CONFIG, poke),
            image_machine_config: named(machine_configs(), names::IMAGE_MACHINE_CONFIG, poke),
            feature_gates: named(config_maps(), names::FEATURE_GATES, poke),
            image_mode: named(config_maps(), names::IMAGE_MODE_CONFIG, poke),
            container_runtime_configs: cache(Kind::ContainerRuntimeConfig, poke),
            runtime_classes: cache(Kind::RuntimeClass, poke),
            kata_nodes: cache(Kind::KataNode, poke),
            monitor: MonitorCaches::new(namespace, monitor_image.is_some(), poke),
            jobs: JobCaches::new(namespace, poke),
        }
    }

    /// The latest version of a node whose facts are still those that were seen in version `seen`;
    /// `None` if they are not.
    pub fn version_of_node(&self, name: &str, seen: &str) -> Option<String> {
        let latest = self.nodes.version_if(name, |facts| facts.resource_version == seen)?;
        // A version that is no number is compared by nobody.
        Some(if latest == u128::MAX { seen.to_owned() } else { latest.to_string() })
    }

    /// Starts to follow KataConfigs.
    pub fn follow_configs(
        &self,
        tasks: &mut JoinSet<()>,
        client: &Client,
        jitter: &Arc<Jitter>,
        metrics: &Metrics,
    ) {
        let cache = Arc::clone(&self.configs);
        tasks.spawn(cache.follow(client.clone(), Arc::clone(jitter), metrics.clone()));
    }

    /// Starts to follow everything else that matters where these nodes are changed by `platform`.
    pub fn follow_cluster(
        &self,
        platform: Platform,
        tasks: &mut JoinSet<()>,
        client: &Client,
        jitter: &Arc<Jitter>,
        metrics: &Metrics,
    ) {
        let Self {
            configs: _,
            nodes,
            pools,
            machine_config,
            image_machine_config,
            feature_gates,
            image_mode,
            container_runtime_configs,
            runtime_classes,
            kata_nodes,
            monitor,
            jobs,
        } = self;
        let with = || (client.clone(), Arc::clone(jitter), metrics.clone());
        macro_rules! follow {
            ($($cache:ident)*) => {$(
                let (client, jitter, metrics) = with();
                tasks.spawn(Arc::clone($cache).follow(client, jitter, metrics));
            )*};
        }
        follow!(nodes runtime_classes kata_nodes);
        match platform {
            Platform::OpenShift => {
                follow!(pools machine_config image_machine_config feature_gates image_mode);
                follow!(container_runtime_configs);
                monitor.follow(tasks, client, jitter, metrics);
            }
            Platform::Kubernetes => jobs.follow(tasks, client, jitter, metrics),
        }
    }

    /// Takes what a write answered into the cache of its kind.
    pub fn absorb(&self, kind: Kind, name: &str, text: &str) {
        match kind {
            Kind::MachineConfig if name == names::IMAGE_MACHINE_CONFIG => {
                self.image_machine_config.absorb(text);
            }
            Kind::KataConfig => self.configs.absorb(text),
            Kind::KataNode => self.kata_nodes.absorb(text),
            Kind::Node => self.nodes.absorb(text),
            Kind::MachineConfig => self.machine_config.absorb(text),
            Kind::MachineConfigPool => self.pools.absorb(text),
            Kind::ContainerRuntimeConfig => self.container_runtime_configs.absorb(text),
            Kind::RuntimeClass => self.runtime_classes.absorb(text),
            Kind::DaemonSet | Kind::SecurityContextConstraints => self.monitor.absorb(kind, text),
            Kind::Job => self.jobs.absorb(text),
            Kind::ConfigMap | Kind::Pod | Kind::PodDisruptionBudget => {}
        }
    }

    /// Takes note that a write found the object gone.
    pub fn forget(&self, kind: Kind, name: &str) {
        match kind {
            Kind::MachineConfig if name == names::IMAGE_MACHINE_CONFIG => {
                self.image_machine_config.forget(name);
            }
            Kind::KataConfig => self.configs.forget(name),
            Kind::KataNode => self.kata_nodes.forget(name),
            Kind::Node => self.nodes.forget(name),
            Kind::MachineConfig => self.machine_config.forget(name),
            Kind::MachineConfigPool => self.pools.forget(name),
            Kind::ContainerRuntimeConfig => self.container_runtime_configs.forget(name),
            Kind::RuntimeClass => self.runtime_classes.forget(name),
            Kind::Job => self.jobs.forget(name),
            Kind::DaemonSet
            | Kind::SecurityContextConstraints
            | Kind::ConfigMap
            | Kind::Pod
            | Kind::PodDisruptionBudget => {}
        }
    }

    /// Whether every kind has had a first answer, be it an error. Without a `platform` only KataConfigs are
    /// followed.
    pub fn have_answers(&self, platform: Option<Platform>) -> bool {
        let shared = || {
            self.nodes.has_answer()
                && self.runtime_classes.has_answer()
                && self.kata_nodes.has_answer()
        };
        self.configs.has_answer()
            && match platform {
                None => true,
                Some(Platform::Kubernetes) => shared() && self.jobs.have_answers(),
                Some(Platform::OpenShift) => {
                    shared()
                        && self.pools.has_answer()
                        && self.machine_config.has_answer()
                        && self.image_machine_config.has_answer()
                        && self.feature_gates.has_answer()
                        && self.image_mode.has_answer()
                        && self.container_runtime_configs.has_answer()
                        && self.monitor.have_answers()
                }
            }
    }

    /// For `/readyz`.
    pub fn checks(&self, platform: Option<Platform>) -> Vec<Check> {
        let mut checks = vec![self.configs.check()];
        if platform.is_some() {
            checks.extend([
                self.nodes.check(),
                self.runtime_classes.check(),
                self.kata_nodes.check(),
            ]);
        }
        if platform == Some(Platform::Kubernetes) {
            checks.extend(self.jobs.checks());
        }
        if platform == Some(Platform::OpenShift) {
            checks.extend([
                self.pools.check(),
                self.machine_config.check(),
                self.image_machine_config.check(),
                self.feature_gates.check(),
                self.image_mode.check(),
                self.container_runtime_configs.check(),
            ]);
            checks.extend(self.monitor.checks());
        }
        checks
    }
}

/// Reads the cluster.
#[derive(Debug)]
pub struct Observer {
    client: Client,
    caches: Arc<Caches>,
    clock: Clock,
    options: Options,
    /// Rendered MachineConfigs, which never change, without their Ignition part; those that the last
    /// snapshot had.
    rendered: Mutex<BTreeMap<String, MachineConfig>>,
}

impl Observer {
    /// An observer.
    pub fn new(client: Client, caches: Arc<Caches>, clock: Clock, options: Options) -> Self {
        Self { client, caches, clock, options, rendered: Mutex::default() }
    }

    /// The KataConfigs, as the cache has them.
    ///
    /// # Errors
    /// If they are not known.
    pub fn configs(&self) -> Result<Vec<KataConfig>, ObserveError> {
        match self.caches.configs.observed() {
            Observed::Known(configs) => Ok(configs),
            Observed::Unknown { what, error } => Err(ObserveError::KataConfigs { what, error }),
        }
    }

    /// Says who changes the nodes, as soon as it is known.
    pub fn set_platform(&mut self, platform: Platform) {
        self.options.platform = platform;
    }

    /// Lists every watched kind again, past the caches; errors show in the caches.
    pub async fn resync(&self) {
        self.read(Freshness::Quorum).await;
        if self.options.platform == Platform::OpenShift {
            self.caches.monitor.refresh(&self.client).await;
        }
    }

    /// A decision, with the snapshot that it was made on and how long the machine thought about it.
    /// Begins with the caches, and reads what the decision wants to be read.
    ///
    /// # Errors
    /// If the KataConfigs are not known.
    pub async fn decide(&self) -> Result<(Snapshot, Decision, Duration), ObserveError> {
        let mut thought = Duration::ZERO;
        let mut begun = Instant::now();
        let mut snapshot = self.cached_snapshot()?;
        let mut last = Vec::new();
        for _ in 0..ROUNDS {
            let next = kata_plan::next(&snapshot);
            thought += begun.elapsed();
            last = match next {
                Next::Act(decision) => {
                    self.keep_rendered(&snapshot);
                    return Ok((snapshot, *decision, thought));
                }
                Next::Read(wanted) => wanted,
            };
            let freshness = last.iter().filter_map(|need| match need {
                Need::Objects => Some(Freshness::Objects),
                Need::Quorum => Some(Freshness::Quorum),
                Need::MachineConfig { .. } | Need::Pods { .. } | Need::DrainBlockers { .. } => None,
            });
            if let Some(freshness) = freshness.max() {
                let read = self.read(freshness).await;
                let fresh = self.read_snapshot(&read, freshness)?;
                let Snapshot { machine_configs, .. } = std::mem::replace(&mut snapshot, fresh);
                for (name, config) in machine_configs {
                    if name.starts_with(names::mco::RENDERED_PREFIX) {
                        snapshot.machine_configs.entry(name).or_insert(config);
                    }
                }
                // What else is asked for is asked for again, on the new data, if it is still wanted.
            } else {
                for need in &last {
                    self.fulfil(&mut snapshot, need).await;
                }
            }
            begun = Instant::now();
        }
        Err(ObserveError::Endless { last: format!("{last:?}") })
    }

    fn cached_snapshot(&self) -> Result<Snapshot, ObserveError> {
        let caches = &self.caches;
        let only =
            |cache: &Cache<MachineConfig>| cache.observed().map(|all| all.into_iter().next());
        let data = |cache: &Cache<Data>| cache.observed().map(|all| all.into_iter().next());
        Ok(Snapshot {
            now: self.clock.now(),
            freshness: Freshness::Cached,
            options: self.options.clone(),
            configs: self.configs()?,
            unreadable: [
                caches.configs.unreadable(Kind::KataConfig),
                caches.nodes.unreadable(Kind::Node),
            ]
            .concat(),
            nodes: caches.nodes.observed(),
            pools: caches.pools.observed(),
            machine_configs: BTreeMap::from([
                (names::MACHINE_CONFIG.to_owned(), only(&caches.machine_config)),
                (names::IMAGE_MACHINE_CONFIG.to_owned(), only(&caches.image_machine_config)),
            ]),
            feature_gates: data(&caches.feature_gates),
            image_mode: data(&caches.image_mode),
            container_runtime_configs: caches.container_runtime_configs.observed(),
            runtime_classes: caches.runtime_classes.observed(),
            kata_nodes: caches.kata_nodes.observed(),
            monitor: caches.monitor.observed(),
            jobs: match self.options.platform {
                Platform::OpenShift => JobObjects::absent(),
                Platform::Kubernetes => caches.jobs.observed(),
            },
            pods: BTreeMap::new(),
            drain_blockers: BTreeMap::new(),
        })
    }

    /// The snapshot after [`Observer::read`]: what failed then is unknown, whatever the cache says.
    fn read_snapshot(
        &self,
        read: &FreshRead,
        freshness: Freshness,
    ) -> Result<Snapshot, ObserveError> {
        let FreshRead {
            configs,
            nodes,
            pools,
            machine_config,
            image_machine_config,
            container_runtime_configs,
            runtime_classes,
            kata_nodes,
            jobs,
        } = read;
        if let Err(error) = configs {
            let what = Kind::KataConfig.as_str().to_owned();
            return Err(ObserveError::KataConfigs { what, error: error.clone() });
        }
        let snapshot = self.cached_snapshot()?;
        let mut machine_configs = snapshot.machine_configs;
        for (name, read) in
            names::MACHINE_CONFIGS.iter().zip([machine_config, image_machine_config])
        {
            if let (Err(error), Some(ours)) = (read, machine_configs.get_mut(*name)) {
                *ours = Observed::unknown(format!("MachineConfig {name}"), error);
            }
        }
        Ok(Snapshot {
            freshness,
            nodes: confirmed(snapshot.nodes, Kind::Node, nodes),
            pools: confirmed(snapshot.pools, Kind::MachineConfigPool, pools),
            machine_configs,
            container_runtime_configs: confirmed(
                snapshot.container_runtime_configs,
                Kind::ContainerRuntimeConfig,
                container_runtime_configs,
            ),
            runtime_classes: confirmed(
                snapshot.runtime_classes,
                Kind::RuntimeClass,
                runtime_classes,
            ),
            kata_nodes: confirmed(snapshot.kata_nodes, Kind::KataNode, kata_nodes),
            jobs: JobObjects {
                jobs: confirmed(snapshot.jobs.jobs, Kind::Job, jobs),
                pods: confirmed(snapshot.jobs.pods, Kind::Job, jobs),
            },
            ..snapshot
        })
    }

    /// Lists past the caches what this freshness wants.
    async fn read(&self, freshness: Freshness) -> FreshRead {
        async fn list<T: Cached>(
            cache: &Cache<T>,
            client: &Client,
            wanted: bool,
        ) -> Result<(), String> {
            if !wanted {
                return Ok(());
            }
            cache.refresh(client).await.map(drop).map_err(|error| chain(&error))
        }
        let (client, caches) = (&self.client, &self.caches);
        let objects = freshness >= Freshness::Objects;
        let all = freshness >= Freshness::Quorum;
        // The ConfigMaps say what shall be, and are as old as the rest of the spec may be. Without image
        // mode there is no MachineConfig of it, and its watch tells if somebody makes one.
        let image_mode = caches.image_machine_config.is_in_use() || caches.image_mode.is_in_use();
        let by_jobs = self.options.platform == Platform::Kubernetes;
        let mco = objects && !by_jobs;
        let (configs, nodes, pools, own, own_image, runtime_configs, classes, kata_nodes, jobs) = futures::join!(
            Box::pin(list(&caches.configs, client, objects)),
            Box::pin(list(&caches.nodes, client, all)),
            Box::pin(list(&caches.pools, client, mco)),
            Box::pin(list(&caches.machine_config, client, mco)),
            Box::pin(list(&caches.image_machine_config, client, mco && image_mode)),
            Box::pin(list(&caches.container_runtime_configs, client, mco)),
            Box::pin(list(&caches.runtime_classes, client, objects)),
            Box::pin(list(&caches.kata_nodes, client, all)),
            Box::pin(async {
                if objects && by_jobs { caches.jobs.refresh(client).await } else { Ok(()) }
            }),
        );
        FreshRead {
            configs,
            nodes,
            pools,
            machine_config: own,
            image_machine_config: own_image,
            container_runtime_configs: runtime_configs,
            runtime_classes: classes,
            kata_nodes,
            jobs,
        }
    }

    async fn fulfil(&self, snapshot: &mut Snapshot, need: &Need) {
        match need {
            // Handled by the caller, since it replaces the snapshot.
            Need::Objects | Need::Quorum => {}
            Need::MachineConfig { name } => {
                let config = self.machine_config(name).await;
                snapshot.machine_configs.insert(name.clone(), config);
            }
            Need::Pods { scope, classes } => {
                let mut pods = Vec::new();
                let wanted = |class: &str| classes.contains(class);
                let read =
                    self.pods(scope, wanted, |pod| pods.extend(validate::sandboxed_pod(pod)));
                let observed = read.await.map(|()| pods);
                snapshot.pods.insert(scope.clone(), observed);
            }
            Need::DrainBlockers { node } => {
                let blockers = self.drain_blockers(node).await;
                snapshot.drain_blockers.insert(node.clone(), blockers);
            }
        }
    }

    async fn machine_config(&self, name: &str) -> Observed<Option<MachineConfig>> {
        let is_rendered = name.starts_with(names::mco::RENDERED_PREFIX);
        if is_rendered && let Some(known) = self.lock_rendered().get(name) {
            return Observed::Known(Some(known.clone()));
        }
        let endpoint = Endpoint::of(Kind::MachineConfig);
        match self.client.get::<MachineConfig>(&endpoint, name).await {
            Ok(Some(mut config)) => {
                config.metadata.managed_fields = None;
                if is_rendered {
                    validate::rendered(&mut config);
                    self.lock_rendered().insert(name.to_owned(), config.clone());
                }
                Observed::Known(Some(config))
            }
            Ok(None) => Observed::Known(None),
            Err(error) => Observed::unknown(format!("MachineConfig {name}"), chain(&error)),
        }
    }

    fn lock_rendered(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, MachineConfig>> {
        self.rendered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_rendered(&self, snapshot: &Snapshot) {
        self.lock_rendered().retain(|name, _| snapshot.machine_configs.contains_key(name));
    }

    /// Reads pods that name a RuntimeClass for which `wanted` holds, past any cache.
    async fn pods(
        &self,
        scope: &PodScope,
        wanted: impl Fn(&str) -> bool,
        mut each: impl FnMut(&Pod),
    ) -> Observed<()> {
        let (what, selector) = match scope {
            PodScope::Cluster => ("pods".to_owned(), None),
            PodScope::Node(node) => {
                (format!("pods on {node}"), Some(format!("spec.nodeName={node}")))
            }
        };
        let mut broken = None;
        let endpoint = Endpoint::of(Kind::Pod);
        let listed = self.client.list(&endpoint, selector.as_deref(), |text| {
            // Most pods name no RuntimeClass; they are not worth reading as a whole.
            let pod = match serde_json::from_str::<PodGlance>(text) {
                Ok(glance) if !glance.spec.runtime_class_name.as_deref().is_some_and(&wanted) => {
                    return;
                }
                _ => serde_json::from_str::<Pod>(text),
            };
            match pod {
                Ok(pod) => each(&pod),
                Err(error) => broken = Some(error.to_string()),
            }
        });
        match (listed.await, broken) {
            (Err(error), _) => Observed::unknown(what, chain(&error)),
            (Ok(_), Some(error)) => Observed::unknown(what, error),
            (Ok(_), None) => Observed::Known(()),
        }
    }

    async fn drain_blockers(&self, node: &str) -> Observed<Vec<DrainBlocker>> {
        let (mut pods, mut budgets, mut broken) = (Vec::new(), Vec::new(), None);
        let what = format!("what holds up the drain of {node}");
        let selector = format!("spec.nodeName={node}");
        let listed = self
            .client
            .list(&Endpoint::of(Kind::Pod), Some(&selector), |text| {
                keep(text, &mut pods, &mut broken);
            })
            .await;
        if let Err(error) = listed {
            return Observed::unknown(what, chain(&error));
        }
        let listed = self
            .client
            .list(&Endpoint::of(Kind::PodDisruptionBudget), None, |text| {
                keep::<PodDisruptionBudget>(text, &mut budgets, &mut broken);
            })
            .await;
        match (listed, broken) {
            (Err(error), _) => Observed::unknown(what, chain(&error)),
            (Ok(_), Some(error)) => Observed::unknown(what, error),
            (Ok(_), None) => Observed::Known(validate::drain_blockers(&pods, &budgets)),
        }
    }
}

fn keep<T: DeserializeOwned>(text: &str, items: &mut Vec<T>, broken: &mut Option<String>) {
    match serde_json::from_str(text) {
        Ok(item) => items.push(item),
        Err(error) => *broken = Some(error.to_string()),
    }
}

/// Whether each kind could be listed, as far as that was wanted.
struct FreshRead {
    configs: Result<(), String>,
    nodes: Result<(), String>,
    pools: Result<(), String>,
    machine_config: Result<(), String>,
    image_machine_config: Result<(), String>,
    container_runtime_configs: Result<(), String>,
    runtime_classes: Result<(), String>,
    kata_nodes: Result<(), String>,
    jobs: Result<(), String>,
}

fn confirmed<T>(cached: Observed<T>, kind: Kind, read: &Result<(), String>) -> Observed<T> {
    match read {
        Ok(()) => cached,
        Err(error) => Observed::unknown(kind.plural(), error),
    }
}

/// As much of a pod as tells whether it is worth reading.
#[derive(Deserialize)]
struct PodGlance {
    #[serde(default)]
    spec: PodGlanceSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PodGlanceSpec {
    #[serde(default)]
    runtime_class_name: Option<String>,
}
