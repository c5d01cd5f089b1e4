//! The caches of all watched kinds: which are followed on which platform, and which one contains an object.
//!
//! This module decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::{
    ContainerRuntimeConfig, KataConfig, KataNode, MachineConfig, MachineConfigPool, names,
};
use kata_plan::{Kind, NodeFacts, Options, Platform};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::ingest::CachedValue;
use crate::jitter::Jitter;
use crate::metrics::{Check, Metrics};
use crate::observe::jobs::JobCaches;
use crate::observe::monitor::MonitorCaches;
use crate::watch::{AnyCache, Cache, LoopWaker};

/// The data of a ConfigMap.
pub(super) type Data = BTreeMap<String, String>;

/// The caches of all watched kinds.
#[derive(Debug)]
pub struct Caches {
    pub configs: Arc<Cache<KataConfig>>,
    /// Nodes, trimmed.
    pub nodes: Arc<Cache<Arc<NodeFacts>>>,
    pub pools: Arc<Cache<MachineConfigPool>>,
    /// The operator's MachineConfig with the extension.
    pub machine_config: Arc<Cache<MachineConfig>>,
    /// The operator's MachineConfig of image mode.
    pub image_machine_config: Arc<Cache<MachineConfig>>,
    /// The data of the ConfigMap with feature gates.
    pub feature_gates: Arc<Cache<Data>>,
    /// The data of the ConfigMap of image mode.
    pub image_mode: Arc<Cache<Data>>,
    pub container_runtime_configs: Arc<Cache<ContainerRuntimeConfig>>,
    pub runtime_classes: Arc<Cache<RuntimeClass>>,
    pub kata_nodes: Arc<Cache<Arc<KataNode>>>,
    /// The objects of kata-monitor.
    pub monitor: MonitorCaches,
    /// The Jobs of the node agent.
    pub jobs: JobCaches,
    /// Wakes the loop.
    pub wake: Arc<LoopWaker>,
}

impl Caches {
    /// Empty caches.
    pub fn new(options: &Options) -> Self {
        let Options { namespace, monitor_image, .. } = options;
        let wake = Arc::new(LoopWaker::default());
        fn each<T: CachedValue>(kind: Kind, wake: &Arc<LoopWaker>) -> Arc<Cache<T>> {
            Arc::new(Cache::new(kind, wake).tolerate_unreadable())
        }
        let machine_config = |name| Arc::new(Cache::new(Kind::MachineConfig, &wake).named(name));
        let config_map =
            |name| Arc::new(Cache::new(Kind::ConfigMap, &wake).within(namespace).named(name));
        Self {
            configs: each(Kind::KataConfig, &wake),
            nodes: each(Kind::Node, &wake),
            pools: each(Kind::MachineConfigPool, &wake),
            machine_config: machine_config(names::MACHINE_CONFIG),
            image_machine_config: machine_config(names::IMAGE_MACHINE_CONFIG),
            feature_gates: config_map(names::FEATURE_GATES),
            image_mode: config_map(names::IMAGE_MODE_CONFIG),
            container_runtime_configs: each(Kind::ContainerRuntimeConfig, &wake),
            runtime_classes: each(Kind::RuntimeClass, &wake),
            kata_nodes: each(Kind::KataNode, &wake),
            monitor: MonitorCaches::new(namespace, monitor_image.is_some(), &wake),
            jobs: JobCaches::new(namespace, &wake),
            wake,
        }
    }

    /// The version that a write of a node must name, if the node's facts are still those that were seen in
    /// version `seen`; `None` if they are not.
    pub fn version_of_node(&self, name: &str, seen: &str) -> Option<String> {
        self.nodes.version_since(name, seen, |facts| &facts.resource_version)
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

    /// Starts to follow the other kinds of this platform.
    pub fn follow_cluster(
        &self,
        platform: Platform,
        tasks: &mut JoinSet<()>,
        client: &Client,
        jitter: &Arc<Jitter>,
        metrics: &Metrics,
    ) {
        for cache in self.of_cluster(platform) {
            tasks.spawn(cache.follow(client.clone(), Arc::clone(jitter), metrics.clone()));
        }
        if platform == Platform::OpenShift {
            self.monitor.follow(tasks, client, jitter, metrics);
        }
    }

    /// The caches of a platform, without that of KataConfigs and those of kata-monitor.
    fn of_cluster(&self, platform: Platform) -> Vec<Arc<dyn AnyCache>> {
        fn any<T: CachedValue>(cache: &Arc<Cache<T>>) -> Arc<dyn AnyCache> {
            Arc::<Cache<T>>::clone(cache)
        }
        let mut caches = vec![any(&self.nodes), any(&self.runtime_classes), any(&self.kata_nodes)];
        match platform {
            Platform::OpenShift => caches.extend([
                any(&self.pools),
                any(&self.machine_config),
                any(&self.image_machine_config),
                any(&self.feature_gates),
                any(&self.image_mode),
                any(&self.container_runtime_configs),
            ]),
            Platform::Kubernetes => caches.extend([any(&self.jobs.jobs), any(&self.jobs.pods)]),
        }
        caches
    }

    /// The caches that are followed. Without a `platform`, only KataConfigs are followed.
    fn followed(&self, platform: Option<Platform>) -> Vec<Arc<dyn AnyCache>> {
        let configs: Arc<dyn AnyCache> = Arc::<Cache<KataConfig>>::clone(&self.configs);
        let cluster = platform.map(|platform| self.of_cluster(platform)).unwrap_or_default();
        let monitor = match platform {
            Some(Platform::OpenShift) => self.monitor.followed(),
            Some(Platform::Kubernetes) | None => Vec::new(),
        };
        std::iter::once(configs).chain(cluster).chain(monitor).collect()
    }

    /// The cache that contains an object, if there is one.
    fn cache_of(&self, kind: Kind, name: &str) -> Option<Arc<dyn AnyCache>> {
        Some(match kind {
            Kind::MachineConfig if name == names::IMAGE_MACHINE_CONFIG => {
                Arc::<Cache<_>>::clone(&self.image_machine_config)
            }
            Kind::MachineConfig => Arc::<Cache<_>>::clone(&self.machine_config),
            Kind::KataConfig => Arc::<Cache<_>>::clone(&self.configs),
            Kind::KataNode => Arc::<Cache<_>>::clone(&self.kata_nodes),
            Kind::Node => Arc::<Cache<_>>::clone(&self.nodes),
            Kind::MachineConfigPool => Arc::<Cache<_>>::clone(&self.pools),
            Kind::ContainerRuntimeConfig => Arc::<Cache<_>>::clone(&self.container_runtime_configs),
            Kind::RuntimeClass => Arc::<Cache<_>>::clone(&self.runtime_classes),
            Kind::Job => Arc::<Cache<_>>::clone(&self.jobs.jobs),
            Kind::DaemonSet | Kind::SecurityContextConstraints => {
                return self.monitor.cache_of(kind);
            }
            Kind::ConfigMap | Kind::Pod | Kind::PodDisruptionBudget => return None,
        })
    }

    /// Makes the next pass wait until the watch shows the object that a write returned.
    pub fn await_response(&self, kind: Kind, name: &str, text: &str) {
        if let Some(cache) = self.cache_of(kind, name) {
            cache.await_response(text);
        }
    }

    /// Makes the next pass wait until the watch shows the deletion of an object.
    pub fn await_deletion(&self, kind: Kind, name: &str) {
        if let Some(cache) = self.cache_of(kind, name) {
            cache.await_deletion(name);
        }
        self.monitor.relist_deleted(kind);
    }

    /// Whether a pass must wait for a watch, see [`AnyCache::is_behind`].
    pub fn are_behind(&self, platform: Option<Platform>) -> bool {
        self.followed(platform).iter().any(|cache| cache.is_behind())
    }

    /// Lists the kinds again that have been behind for too long; returns when to check again.
    pub fn relist_late(&self, platform: Option<Platform>) -> Option<Instant> {
        self.followed(platform).iter().filter_map(|cache| cache.relist_if_late()).min()
    }

    /// Whether every followed kind has a first answer, be it an error.
    pub fn have_answers(&self, platform: Option<Platform>) -> bool {
        self.followed(platform).iter().all(|cache| cache.has_answer())
            && (platform != Some(Platform::OpenShift) || self.monitor.have_answers())
    }

    /// For `/readyz`.
    pub fn checks(&self, platform: Option<Platform>) -> Vec<Check> {
        self.followed(platform).iter().map(|cache| cache.check()).collect()
    }
}
