//! The caches of all watched kinds: which are followed on which platform, what a write's answer does to
//! them, and whether they have answers yet.
//!
//! They hold what the API server said, and nothing is decided here.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::{
    ContainerRuntimeConfig, KataConfig, KataNode, MachineConfig, MachineConfigPool, names,
};
use kata_plan::{Kind, NodeFacts, Options, Platform};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{JobCaches, MonitorCaches};
use crate::client::{Client, Endpoint};
use crate::ingest::Cached;
use crate::jitter::Jitter;
use crate::metrics::{Check, Metrics};
use crate::watch::Cache;

/// The data of a ConfigMap.
pub(super) type Data = BTreeMap<String, String>;

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
