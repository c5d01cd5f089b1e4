//! Builds a [`Snapshot`] from the caches, and reads past them what [`kata_plan::next`] asks for. A read that
//! fails becomes [`Observed::Unknown`]. This module decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::{
    ContainerRuntimeConfig, KataConfig, KataNode, MachineConfig, MachineConfigPool, names,
};
use kata_plan::{
    Decision, Freshness, JobObjects, Kind, Need, NodeFacts, Observed, Options, Outcome, Platform,
    PodScope, Snapshot, validate,
};
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::error::chain;
use crate::ingest::CachedValue;
use crate::watch::{Cache, View};

mod blockers;
mod caches;
mod jobs;
mod monitor;
mod pods;

use blockers::Blockers;
pub use caches::Caches;
use pods::{read_drain_blockers, read_pods};

/// How often [`kata_plan::next`] may ask for reads in one pass. It asks for own and rendered MachineConfigs,
/// quorum, pods and drain blockers; more rounds mean that it asks for the same again.
const MAX_ROUNDS: usize = 16;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The KataConfigs cannot be read, and without them there is nothing to decide.
    #[error("cannot read {what}: {error}")]
    KataConfigs { what: String, error: String },
    /// The decision asks for reads again and again, which is a bug.
    #[error("the decision asks for reads again and again; the last were {last}")]
    Endless { last: String },
}

/// Reads the cluster.
#[derive(Debug)]
pub struct Observer {
    client: Client,
    caches: Arc<Caches>,
    options: Options,
    /// The rendered MachineConfigs of the last snapshot, without their Ignition part. They never change.
    rendered: BTreeMap<String, MachineConfig>,
    blockers: Blockers,
}

impl Observer {
    pub fn new(client: Client, caches: Arc<Caches>, options: Options) -> Self {
        let (rendered, blockers) = (BTreeMap::new(), Blockers::default());
        Self { client, caches, options, rendered, blockers }
    }

    /// The KataConfigs in the cache.
    ///
    /// # Errors
    /// If they are not known.
    pub fn configs(&self) -> Result<Vec<KataConfig>, ObserveError> {
        require_known(self.caches.configs.view().objects)
    }

    /// Sets the platform, as soon as it is known.
    pub fn set_platform(&mut self, platform: Platform) {
        self.options.platform = platform;
    }

    /// Compares the caches with lists past them. If a watch has missed a change, its cache is behind
    /// afterwards. A list that fails is ignored: its watch will fail too.
    pub async fn verify_caches(&self) {
        drop(self.read_views(Freshness::Quorum).await);
        if self.options.platform == Platform::OpenShift {
            for config_map in [&self.caches.feature_gates, &self.caches.image_mode] {
                // Most clusters do not have these ConfigMaps.
                if config_map.may_have_objects() {
                    drop(config_map.read_fresh(&self.client).await);
                }
            }
            self.caches.monitor.verify(&self.client).await;
        }
    }

    /// A decision, its snapshot, and the processor time that it took. Starts with the caches, and reads past
    /// them what the decision asks for.
    ///
    /// # Errors
    /// If the KataConfigs are not known.
    pub async fn decide(&mut self) -> Result<(Snapshot, Decision, Duration), ObserveError> {
        let mut took = Duration::ZERO;
        let mut begun = Instant::now();
        let mut snapshot = self.snapshot(Freshness::Cached, FreshViews::default())?;
        let mut last = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let next = kata_plan::next(&snapshot);
            took += begun.elapsed();
            last = match next {
                Outcome::Act(decision) => {
                    self.rendered.retain(|name, _| snapshot.machine_configs.contains_key(name));
                    if !snapshot.pods.contains_key(&PodScope::Cluster) {
                        self.blockers.forget();
                    }
                    return Ok((snapshot, *decision, took));
                }
                Outcome::Read(wanted) => wanted,
            };
            let freshness = last.iter().filter_map(|need| match need {
                Need::Objects => Some(Freshness::Objects),
                Need::Quorum => Some(Freshness::Quorum),
                Need::MachineConfig { .. }
                | Need::Pods { .. }
                | Need::DrainBlockers { .. }
                | Need::Namespace { .. } => None,
            });
            if let Some(freshness) = freshness.max() {
                let fresh = self.snapshot(freshness, self.read_views(freshness).await)?;
                let Snapshot { machine_configs, .. } = std::mem::replace(&mut snapshot, fresh);
                for (name, config) in machine_configs {
                    if name.starts_with(names::mco::RENDERED_PREFIX) {
                        snapshot.machine_configs.entry(name).or_insert(config);
                    }
                }
                // The decision asks again for the rest, if it still needs it on the new data.
            } else {
                for need in &last {
                    self.answer_need(&mut snapshot, need).await;
                }
            }
            begun = Instant::now();
        }
        Err(ObserveError::Endless { last: format!("{last:?}") })
    }

    /// A snapshot of the fresh views, and of the caches for all other kinds.
    fn snapshot(&self, freshness: Freshness, fresh: FreshViews) -> Result<Snapshot, ObserveError> {
        let FreshViews {
            configs,
            nodes,
            pools,
            machine_config,
            image_machine_config,
            container_runtime_configs,
            runtime_classes,
            kata_nodes,
            jobs,
        } = fresh;
        fn view<T: CachedValue>(fresh: Option<View<T>>, cache: &Cache<T>) -> View<T> {
            fresh.unwrap_or_else(|| cache.view())
        }
        fn only<T>(view: View<T>) -> Observed<Option<T>> {
            view.objects.map(|all| all.into_iter().next())
        }
        let caches = &self.caches;
        let configs = view(configs, &caches.configs);
        let nodes = view(nodes, &caches.nodes);
        let kata_nodes = view(kata_nodes, &caches.kata_nodes);
        let machine_config = view(machine_config, &caches.machine_config);
        let image_machine_config = view(image_machine_config, &caches.image_machine_config);
        let pools = view(pools, &caches.pools);
        let container_runtime_configs =
            view(container_runtime_configs, &caches.container_runtime_configs);
        let runtime_classes = view(runtime_classes, &caches.runtime_classes);
        let unreadable = [
            configs.unreadable,
            nodes.unreadable,
            pools.unreadable,
            container_runtime_configs.unreadable,
            runtime_classes.unreadable,
            kata_nodes.unreadable,
        ]
        .concat();
        Ok(Snapshot {
            now: self.client.clock().now(),
            server_ahead: self.client.clock().server_ahead(),
            freshness,
            options: self.options.clone(),
            configs: require_known(configs.objects)?,
            unreadable,
            nodes: nodes.objects,
            pools: pools.objects,
            machine_configs: BTreeMap::from([
                (names::MACHINE_CONFIG.to_owned(), only(machine_config)),
                (names::IMAGE_MACHINE_CONFIG.to_owned(), only(image_machine_config)),
            ]),
            feature_gates: only(caches.feature_gates.view()),
            image_mode: only(caches.image_mode.view()),
            container_runtime_configs: container_runtime_configs.objects,
            runtime_classes: runtime_classes.objects,
            kata_nodes: kata_nodes.objects,
            monitor: caches.monitor.view(),
            jobs: match self.options.platform {
                Platform::OpenShift => JobObjects::absent(),
                Platform::Kubernetes => jobs.unwrap_or_else(|| caches.jobs.view()),
            },
            pods: BTreeMap::new(),
            drain_blockers: BTreeMap::new(),
            namespaces: BTreeMap::new(),
        })
    }

    /// Lists past the caches the kinds that this freshness requires.
    async fn read_views(&self, freshness: Freshness) -> FreshViews {
        async fn list<T: CachedValue>(
            cache: &Cache<T>,
            client: &Client,
            is_wanted: bool,
        ) -> Option<View<T>> {
            if is_wanted { Some(cache.read_fresh(client).await) } else { None }
        }
        let (client, caches) = (&self.client, &self.caches);
        let objects = freshness >= Freshness::Objects;
        let all = freshness >= Freshness::Quorum;
        // The ConfigMaps are part of the desired state, and may be as old as the rest of it. Without image
        // mode there is no MachineConfig of it, and a watch reports one that is created.
        let image_mode =
            caches.image_machine_config.may_have_objects() || caches.image_mode.may_have_objects();
        let uses_jobs = self.options.platform == Platform::Kubernetes;
        let mco = objects && !uses_jobs;
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
                if objects && uses_jobs { Some(caches.jobs.read_fresh(client).await) } else { None }
            }),
        );
        FreshViews {
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

    async fn answer_need(&mut self, snapshot: &mut Snapshot, need: &Need) {
        match need {
            // Handled by the caller, since it replaces the snapshot.
            Need::Objects | Need::Quorum => {}
            Need::MachineConfig { name } => {
                let config = self.machine_config(name).await;
                snapshot.machine_configs.insert(name.clone(), config);
            }
            Need::Pods { scope, classes } => {
                self.read_sandboxed_pods(snapshot, scope, classes).await;
            }
            Need::DrainBlockers { node } => {
                let blockers = read_drain_blockers(&self.client, node).await;
                snapshot.drain_blockers.insert(node.clone(), blockers);
            }
            Need::Namespace { name } => {
                let endpoint = Endpoint::cluster::<Namespace>();
                let exists = match self.client.get::<Namespace>(&endpoint, name).await {
                    Ok(found) => Observed::Known(found.is_some()),
                    Err(error) => Observed::unknown(format!("Namespace {name}"), chain(&error)),
                };
                snapshot.namespaces.insert(name.clone(), exists);
            }
        }
    }

    async fn read_sandboxed_pods(
        &mut self,
        snapshot: &mut Snapshot,
        scope: &PodScope,
        classes: &BTreeSet<String>,
    ) {
        let is_deleted = |config: &KataConfig| config.metadata.deletion_timestamp.is_some();
        let is_last_deletion =
            *scope == PodScope::Cluster && snapshot.configs.iter().all(is_deleted);
        if is_last_deletion {
            if self.blockers.read_one(&self.client, classes, snapshot).await {
                return;
            }
            self.blockers.begin_list();
        }
        let mut pods = Vec::new();
        let is_wanted = |class: &str| classes.contains(class);
        let each = |pod: &_| pods.extend(validate::sandboxed_pod(pod));
        let read = read_pods(&self.client, scope, is_wanted, each).await;
        let observed = read.map(|()| pods);
        snapshot.pods.insert(scope.clone(), observed);
        if is_last_deletion {
            self.blockers.remember(&self.client, classes, snapshot);
        }
    }

    async fn machine_config(&mut self, name: &str) -> Observed<Option<MachineConfig>> {
        let is_rendered = name.starts_with(names::mco::RENDERED_PREFIX);
        if is_rendered && let Some(known) = self.rendered.get(name) {
            return Observed::Known(Some(known.clone()));
        }
        let endpoint = Endpoint::of(Kind::MachineConfig);
        match self.client.get::<MachineConfig>(&endpoint, name).await {
            Ok(Some(mut config)) => {
                config.metadata.managed_fields = None;
                if is_rendered {
                    validate::trim_rendered(&mut config);
                    self.rendered.insert(name.to_owned(), config.clone());
                }
                Observed::Known(Some(config))
            }
            Ok(None) => Observed::Known(None),
            Err(error) => Observed::unknown(format!("MachineConfig {name}"), chain(&error)),
        }
    }
}

/// The kinds that were read past the caches; `None` if a kind was not asked for.
#[derive(Default)]
struct FreshViews {
    configs: Option<View<KataConfig>>,
    nodes: Option<View<Arc<NodeFacts>>>,
    pools: Option<View<MachineConfigPool>>,
    machine_config: Option<View<MachineConfig>>,
    image_machine_config: Option<View<MachineConfig>>,
    container_runtime_configs: Option<View<ContainerRuntimeConfig>>,
    runtime_classes: Option<View<RuntimeClass>>,
    kata_nodes: Option<View<Arc<KataNode>>>,
    jobs: Option<JobObjects>,
}

fn require_known(configs: Observed<Vec<KataConfig>>) -> Result<Vec<KataConfig>, ObserveError> {
    match configs {
        Observed::Known(configs) => Ok(configs),
        Observed::Unknown { what, error } => Err(ObserveError::KataConfigs { what, error }),
    }
}
