//! From the API server to a [`Snapshot`]: first from the caches, then whatever [`kata_plan::needs`]
//! asks for, past them. A read that fails becomes [`Observed::Unknown`]; nothing is decided here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kata_api::{KataConfig, MachineConfig, names};
use kata_plan::{
    Decision, Freshness, JobObjects, Kind, Need, Next, Observed, Options, Platform, Snapshot,
    validate,
};
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::clock::Clock;
use crate::error::chain;
use crate::ingest::Cached;
use crate::watch::Cache;

mod caches;
mod jobs;
mod monitor;
mod pods;

pub use caches::Caches;
use caches::Data;
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
