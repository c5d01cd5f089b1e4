//! The cluster as the operator's decision sees it, read with the rights of the caller, so that
//! [`kata_plan`] can say what is wrong without an operator. A read that fails or is not permitted is
//! unknown there, and is never taken for an empty list.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kata_api::names::node_job;
use kata_api::{
    ContainerRuntimeConfig, KataConfig, KataNode, MachineConfig, MachineConfigPool, names,
};
use kata_manifests::manifests::UNPUBLISHED;
use kata_plan::{
    Freshness, JobObjects, MonitorObjects, Need, NodeFacts, Observed, Options, Platform, PodScope,
    SandboxedPod, Snapshot, validate,
};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::{Api, Read, Scope};
use crate::cluster::{self, Deployment};
use crate::failure::Failure;
use crate::resource::{
    BUDGETS, CONFIG_MAPS, JOBS, KATA_CONFIGS, KATA_NODES, MACHINE_CONFIGS, NAMESPACES, NODES, PODS,
    POOLS, RUNTIME_CLASSES, RUNTIME_CONFIGS, Resource,
};

/// How often the decision may ask for more; it asks a few times.
const ROUNDS: usize = 16;

/// A pod, if it asks for a RuntimeClass. Most do not, and of those no more is read than that.
struct Classed(Option<SandboxedPod>);

impl<'de> Deserialize<'de> for Classed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Skimmed {
            spec: Option<Spec>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            runtime_class_name: Option<IgnoredAny>,
        }
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let Skimmed { spec } = serde_json::from_str(text).map_err(D::Error::custom)?;
        if spec.is_none_or(|spec| spec.runtime_class_name.is_none()) {
            return Ok(Self(None));
        }
        let pod: Pod = serde_json::from_str(text).map_err(D::Error::custom)?;
        Ok(Self(validate::sandboxed_pod(&pod)))
    }
}

fn observed<T>(read: Read<T>, resource: Resource, if_not_served: T) -> Observed<T> {
    match read {
        Read::Known(value) => Observed::Known(value),
        Read::Forbidden => Observed::unknown(
            resource.qualified(),
            format!("you may not read {}", resource.qualified()),
        ),
        Read::NotServed => Observed::Known(if_not_served),
    }
}

/// What is assumed of the cluster instead of what it has.
#[derive(Default)]
pub(crate) struct Assumed<'a> {
    /// The KataConfigs, if given.
    pub(crate) configs: Option<Vec<KataConfig>>,
    /// Nodes that get labels.
    pub(crate) labelled: &'a [String],
    /// The labels that they get.
    pub(crate) labels: BTreeMap<String, String>,
    /// The kind of cluster for which the operator is about to be installed.
    pub(crate) platform: Option<Platform>,
}

impl Assumed<'_> {
    /// These KataConfigs.
    pub(crate) fn configs(configs: Vec<KataConfig>) -> Self {
        Self { configs: Some(configs), ..Self::default() }
    }
}

/// A KataConfig that does not exist yet, as the operator would first see it.
pub(crate) fn fresh(mut config: KataConfig, now: Timestamp) -> KataConfig {
    config.metadata.creation_timestamp = Some(Time(now));
    config.metadata.generation = Some(1);
    config.metadata.uid = Some("not-created".to_owned());
    config.status = None;
    config
}

/// Reads the cluster.
pub(crate) async fn read(
    api: &Api,
    now: Timestamp,
    assumed: Assumed<'_>,
) -> Result<Snapshot, Failure> {
    let (existing, nodes, pools, runtime_configs, classes, kata_nodes, operator) = futures::join!(
        api.list::<KataConfig>(KATA_CONFIGS, Scope::default()),
        api.list::<Node>(NODES, Scope::default()),
        api.list::<MachineConfigPool>(POOLS, Scope::default()),
        api.list::<ContainerRuntimeConfig>(RUNTIME_CONFIGS, Scope::default()),
        api.list::<RuntimeClass>(RUNTIME_CLASSES, Scope::default()),
        api.list::<KataNode>(KATA_NODES, Scope::default()),
        cluster::operator(api),
    );
    let pools = pools?;
    let operator = operator?.known().flatten();
    let mut options = options(pools.is_not_served(), operator.as_ref(), api.home());
    options.platform = assumed.platform.unwrap_or(options.platform);
    let platform = options.platform;
    let data = async |name: &str| {
        let read = api.get::<ConfigMap>(CONFIG_MAPS, Some(cluster::home(api).await?), name).await?;
        let read = match read {
            Read::Known(map) => Read::Known(map.map(|map| map.data.unwrap_or_default())),
            Read::Forbidden => Read::Forbidden,
            Read::NotServed => Read::NotServed,
        };
        Ok::<_, Failure>(observed(read, CONFIG_MAPS, None))
    };
    let (gates, image) = if platform == Platform::OpenShift {
        futures::join!(data(names::FEATURE_GATES), data(names::IMAGE_MODE_CONFIG))
    } else {
        (Ok(Observed::Known(None)), Ok(Observed::Known(None)))
    };
    let facts = |node: &Node| {
        let mut facts = NodeFacts::from(node);
        if assumed.labelled.contains(&facts.name) {
            facts.labels.extend(assumed.labels.clone());
        }
        Arc::new(facts)
    };
    let nodes = observed(nodes?, NODES, Vec::new()).map(|all| all.iter().map(facts).collect());
    let mut snapshot = Snapshot {
        now,
        // Only the operator knows its clock.
        server_ahead: SignedDuration::ZERO,
        freshness: Freshness::Quorum,
        options,
        configs: match assumed.configs {
            Some(configs) => configs,
            None => existing?.known().unwrap_or_default(),
        },
        unreadable: Vec::new(),
        nodes,
        pools: observed(pools, POOLS, Vec::new()),
        machine_configs: BTreeMap::new(),
        feature_gates: gates?,
        image_mode: image?,
        container_runtime_configs: observed(runtime_configs?, RUNTIME_CONFIGS, Vec::new()),
        runtime_classes: observed(classes?, RUNTIME_CLASSES, Vec::new()),
        kata_nodes: observed(kata_nodes?, KATA_NODES, Vec::new())
            .map(|all| all.into_iter().map(Arc::new).collect()),
        // kata-monitor is beside everything that is asked here.
        monitor: MonitorObjects::absent(),
        jobs: if platform == Platform::Kubernetes {
            jobs(api).await?
        } else {
            JobObjects::absent()
        },
        pods: BTreeMap::new(),
        drain_blockers: BTreeMap::new(),
        namespaces: BTreeMap::new(),
    };
    for _round in 0..ROUNDS {
        let needs = kata_plan::needs(&snapshot);
        if needs.is_empty() {
            break;
        }
        for need in needs {
            fulfil(api, &mut snapshot, &need).await?;
        }
    }
    Ok(snapshot)
}

/// The settings of the operator, as far as they can be told from here; `home` is its namespace.
fn options(without_pools: bool, operator: Option<&Deployment>, home: &str) -> Options {
    let told = |flag, variable| operator.and_then(|operator| operator.told(flag, variable));
    let platform = match told("--platform", "") {
        Some("kubernetes") => Platform::Kubernetes,
        Some("openshift") => Platform::OpenShift,
        _ if without_pools => Platform::Kubernetes,
        _ => Platform::OpenShift,
    };
    let defaults = Options::default();
    let agent_image = match operator {
        Some(_) => told("--node-agent-image", "RELATED_IMAGE_NODE_AGENT").map(str::to_owned),
        // An operator that runs elsewhere has an image, too; which one decides nothing.
        None => Some(UNPUBLISHED.to_owned()),
    };
    let payload_image = told("--payload-image", "RELATED_IMAGE_KATA_PAYLOAD");
    Options {
        platform,
        agent_image,
        payload_image: payload_image.map_or(defaults.payload_image, str::to_owned),
        namespace: home.to_owned(),
        ..defaults
    }
}

/// The Jobs of the node agent and their pods: first the Jobs, so that the pod of one that is over is seen
/// as it ended.
async fn jobs(api: &Api) -> Result<JobObjects, Failure> {
    let labels = format!(
        "{}={},{}={}",
        names::MANAGED_BY,
        names::PRODUCT,
        node_job::COMPONENT_LABEL,
        node_job::COMPONENT
    );
    let scope = Scope { labels: Some(&labels), ..Scope::of(cluster::home(api).await?) };
    let jobs = observed(api.list::<Job>(JOBS, scope).await?, JOBS, Vec::new());
    let pods = observed(api.list::<Pod>(PODS, scope).await?, PODS, Vec::new());
    Ok(JobObjects::new(
        jobs.map(|all| all.iter().filter_map(validate::node_job).collect()),
        pods.map(|all| all.iter().filter_map(validate::job_pod).collect()),
    ))
}

async fn fulfil(api: &Api, snapshot: &mut Snapshot, need: &Need) -> Result<(), Failure> {
    match need {
        // Everything has just been read.
        Need::Objects | Need::Quorum => {}
        Need::MachineConfig { name } => {
            let read = api.get::<MachineConfig>(MACHINE_CONFIGS, None, name).await?;
            let read = observed(read, MACHINE_CONFIGS, None).map(|mut config| {
                if let Some(config) = &mut config {
                    validate::trim_rendered(config);
                }
                config
            });
            snapshot.machine_configs.insert(name.clone(), read);
        }
        Need::Pods { scope, classes } => {
            let fields = match scope {
                PodScope::Cluster => None,
                PodScope::Node(node) => Some(format!("spec.nodeName={node}")),
            };
            let wanted = Scope { fields: fields.as_deref(), ..Scope::default() };
            let pods = observed(api.list::<Classed>(PODS, wanted).await?, PODS, Vec::new());
            let pods = pods.map(|pods| {
                let all = pods.into_iter().filter_map(|Classed(pod)| pod);
                all.filter(|pod| classes.contains(&pod.runtime_class)).collect()
            });
            snapshot.pods.insert(scope.clone(), pods);
        }
        Need::DrainBlockers { node } => {
            let fields = format!("spec.nodeName={node}");
            let scope = Scope { fields: Some(&fields), ..Scope::default() };
            let (pods, budgets) = futures::join!(
                api.list::<Pod>(PODS, scope),
                api.list::<PodDisruptionBudget>(BUDGETS, Scope::default()),
            );
            let pods = observed(pods?, PODS, Vec::new());
            let budgets = observed(budgets?, BUDGETS, Vec::new());
            let blockers = match (pods, budgets) {
                (Observed::Known(pods), Observed::Known(budgets)) => {
                    Observed::Known(validate::drain_blockers(&pods, &budgets))
                }
                (Observed::Unknown { what, error }, _) | (_, Observed::Unknown { what, error }) => {
                    Observed::Unknown { what, error }
                }
            };
            snapshot.drain_blockers.insert(node.clone(), blockers);
        }
        Need::Namespace { name } => {
            let read = api.get::<Value>(NAMESPACES, None, name).await?;
            let exists = observed(read, NAMESPACES, None).map(|found| found.is_some());
            snapshot.namespaces.insert(name.clone(), exists);
        }
    }
    Ok(())
}
