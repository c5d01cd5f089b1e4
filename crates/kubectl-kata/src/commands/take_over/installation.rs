//! What kata-deploy, upstream's installer, has in the cluster: workloads, RuntimeClasses, and the records of its Helm
//! release. It reads only; the content of Secrets is never requested.
//!
//! Source: its chart of Kata Containers 4.1, and of 4.2 for the CronJob. Only the installation without a suffix is meant:
//! its names are fixed, and those of others have the suffix.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kata_api::names;
use kube::core::PartialObjectMeta;

use crate::api::{Api, Read, Scope};
use crate::failure::Failure;
use crate::resource::{
    CONFIG_MAPS, CRON_JOBS, DAEMON_SETS, JOBS, PODS, RUNTIME_CLASSES, Resource, SECRETS,
};

/// The DaemonSet, and the chart after which everything is called.
const NAME: &str = "kata-deploy";
/// Its container.
pub(super) const CONTAINER: &str = "kube-kata";
/// What the container does once its image was replaced.
pub(super) const PAUSE: &str = "/pause";
const CRON_JOB: &str = "kata-deploy-reconcile";
const TEMPLATES: &str = "kata-deploy-job-templates";
/// The Jobs that start the installations of nodes.
const DISPATCHER: &str = "kata-deploy-install-dispatcher";
/// The Jobs of an uninstallation.
const REMOVALS: [&str; 2] = ["kata-deploy-cleanup-dispatcher", "kata-deploy-reconcile-stop"];
/// What the Job of a node does: `install` or `cleanup`.
const STAGE: &str = "kata-deploy/stage";
/// For which installation: `kata-deploy-install` or `kata-deploy-cleanup` without a suffix.
const OWNER: &str = "kata-deploy-job-dispatcher/owner";
/// What a record of a Helm release begins with.
const RECORD: &str = "sh.helm.release.v1.";

/// What kata-deploy has in the cluster.
pub(super) struct Installation {
    pub(super) daemon_sets: Vec<DaemonSet>,
    /// The pods of these DaemonSets.
    pub(super) pods: Vec<Pod>,
    pub(super) cron_jobs: Vec<CronJob>,
    /// The Jobs that install, and those that start them.
    pub(super) installations: Vec<Job>,
    /// The Jobs of an uninstallation that has not ended.
    pub(super) removals: Vec<Job>,
    pub(super) templates: Vec<ConfigMap>,
    pub(super) classes: Vec<RuntimeClass>,
    pub(super) release: Option<Release>,
    /// The objects in which Helm keeps the release.
    pub(super) records: Read<Vec<Record>>,
    /// DaemonSets of installations with a suffix, as `namespace/name`.
    pub(super) suffixed: Vec<String>,
}

/// A Helm release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// An object in which Helm keeps a revision of a release.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) kind: Resource,
    pub(super) metadata: ObjectMeta,
}

impl Installation {
    /// Reads it.
    ///
    /// # Errors
    /// If the API server does not answer, or the caller may not list the workloads or RuntimeClasses.
    pub(super) async fn read(api: &Api) -> Result<Self, Failure> {
        let templates = Scope { fields: Some(NAMED_TEMPLATES), ..Scope::default() };
        let (classes, daemon_sets, cron_jobs, templates) = futures::join!(
            listed::<RuntimeClass>(api, RUNTIME_CLASSES, Scope::default()),
            listed::<DaemonSet>(api, DAEMON_SETS, Scope::default()),
            listed::<CronJob>(api, CRON_JOBS, Scope::default()),
            listed::<ConfigMap>(api, CONFIG_MAPS, templates),
        );
        let of_kata_deploy = daemon_sets?.into_iter().filter(|set| container(set).is_some());
        let (daemon_sets, suffixed): (Vec<_>, Vec<_>) =
            of_kata_deploy.partition(|set| name(&set.metadata) == NAME);
        let (classes, templates) = (classes?, templates?);
        let of_taken_over =
            classes.iter().map(|it| &it.metadata).filter(is_taken_over).find_map(release);
        let mut found = Self {
            cron_jobs: cron_jobs?.into_iter().filter(|it| name(&it.metadata) == CRON_JOB).collect(),
            pods: Vec::new(),
            installations: Vec::new(),
            removals: Vec::new(),
            release: None,
            records: Read::Known(Vec::new()),
            suffixed: suffixed.iter().map(|set| qualified(&set.metadata)).collect(),
            classes: classes.into_iter().filter(kata_plan::is_of_kata_deploy).collect(),
            daemon_sets,
            templates,
        };
        let of_chart = found.metadata().find_map(release);
        found.release = of_chart.or(of_taken_over);
        if let Some(release) = &found.release {
            found.records = records(api, release).await?;
        }
        for namespace in found.namespaces() {
            let jobs = listed::<Job>(api, JOBS, Scope::of(&namespace)).await?;
            for job in jobs {
                if is_installation(&job) {
                    found.installations.push(job);
                } else if is_removal(&job) && !has_ended(&job) {
                    found.removals.push(job);
                }
            }
        }
        for set in &found.daemon_sets {
            let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
            let pods = listed::<Pod>(api, PODS, Scope::of(namespace)).await?;
            found.pods.extend(pods.into_iter().filter(|pod| is_owned(&pod.metadata, set)));
        }
        Ok(found)
    }

    /// Whether there is nothing of kata-deploy, running or stopped.
    pub(super) fn is_absent(&self) -> bool {
        self.classes.is_empty() && self.is_stopped()
    }

    /// Whether nothing of it acts on nodes any more, and Helm has no release.
    pub(super) fn is_stopped(&self) -> bool {
        self.daemon_sets.is_empty()
            && self.cron_jobs.is_empty()
            && self.installations.is_empty()
            && self.removals.is_empty()
            && self.templates.is_empty()
            && self.records.items().is_empty()
    }

    /// The metadata of everything that a chart brings.
    pub(super) fn metadata(&self) -> impl Iterator<Item = &ObjectMeta> {
        let sets = self.daemon_sets.iter().map(|it| &it.metadata);
        let templates = self.templates.iter().map(|it| &it.metadata);
        let cron_jobs = self.cron_jobs.iter().map(|it| &it.metadata);
        sets.chain(templates).chain(cron_jobs).chain(self.classes.iter().map(|it| &it.metadata))
    }

    /// The namespaces in which it has, or had, workloads.
    fn namespaces(&self) -> BTreeSet<String> {
        let of_objects = self.metadata().filter_map(|metadata| metadata.namespace.clone());
        of_objects.chain(self.release.iter().map(|it| it.namespace.clone())).collect()
    }

    /// Its pods that would remove Kata from their nodes if they ended once the DaemonSet is gone.
    pub(super) fn acting_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| !pod.spec.as_ref().is_some_and(is_paused))
    }
}

/// The field selector of the ConfigMap with the templates of Jobs.
const NAMED_TEMPLATES: &str = "metadata.name=kata-deploy-job-templates";
const _: () = assert!(TEMPLATES.len() + "metadata.name=".len() == NAMED_TEMPLATES.len());

async fn listed<T: serde::de::DeserializeOwned + Send + 'static>(
    api: &Api,
    kind: Resource,
    scope: Scope<'_>,
) -> Result<Vec<T>, Failure> {
    let read = api.list::<T>(kind, scope).await?;
    read.listed("find kata-deploy", &kind.qualified())?;
    Ok(read.known().unwrap_or_default())
}

/// The objects in which Helm keeps a release: Secrets, or ConfigMaps if it was told so.
async fn records(api: &Api, release: &Release) -> Result<Read<Vec<Record>>, Failure> {
    let labels = format!("owner=helm,name={}", release.name);
    let mut all = Vec::new();
    for kind in [SECRETS, CONFIG_MAPS] {
        let scope =
            Scope { labels: Some(&labels), is_metadata: true, ..Scope::of(&release.namespace) };
        match api.list::<PartialObjectMeta>(kind, scope).await? {
            Read::Known(found) => {
                let found = found.into_iter().map(|object| object.metadata);
                let records = found.filter(|metadata| name(metadata).starts_with(RECORD));
                all.extend(records.map(|metadata| Record { kind, metadata }));
            }
            Read::Forbidden => return Ok(Read::Forbidden),
            Read::NotServed => {}
        }
    }
    Ok(Read::Known(all))
}

pub(super) fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// `namespace/name`.
pub(super) fn qualified(metadata: &ObjectMeta) -> String {
    format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), name(metadata))
}

/// The container of kata-deploy in a DaemonSet.
pub(super) fn container(set: &DaemonSet) -> Option<&Container> {
    let spec = set.spec.as_ref()?.template.spec.as_ref()?;
    spec.containers.iter().find(|container| container.name == CONTAINER)
}

/// Whether the containers of a pod do nothing any more.
pub(super) fn is_paused(spec: &PodSpec) -> bool {
    let is_pause = |it: &Container| it.command.as_ref().is_some_and(|words| words == &[PAUSE]);
    spec.containers.iter().all(is_pause)
}

fn is_owned(metadata: &ObjectMeta, by: &DaemonSet) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| Some(&owner.uid) == by.metadata.uid.as_ref())
}

/// Whether a RuntimeClass was kata-deploy's, and is ours.
fn is_taken_over(metadata: &&ObjectMeta) -> bool {
    metadata.annotations.iter().flatten().any(|(key, _)| key == names::TAKEN_OVER_ANNOTATION)
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn is_installation(job: &Job) -> bool {
    let of_cron_job = |name: &str| {
        let time = name.strip_prefix(CRON_JOB).and_then(|rest| rest.strip_prefix('-'));
        time.is_some_and(|time| !time.is_empty() && time.bytes().all(|it| it.is_ascii_digit()))
    };
    let name = name(&job.metadata);
    name == DISPATCHER || of_cron_job(name) || is_of_node(job, "install")
}

fn is_removal(job: &Job) -> bool {
    REMOVALS.contains(&name(&job.metadata)) || is_of_node(job, "cleanup")
}

/// Whether a Job does this on a node for the installation without a suffix.
fn is_of_node(job: &Job, stage: &str) -> bool {
    let owner = label(&job.metadata, OWNER);
    label(&job.metadata, STAGE) == Some(stage)
        && owner.and_then(|owner| owner.strip_prefix(NAME)?.strip_prefix('-')) == Some(stage)
}

/// Whether a Job has ended, well or not.
pub(super) fn has_ended(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut true_ones = conditions.filter(|condition| condition.status == "True");
    true_ones.any(|condition| ["Complete", "Failed"].contains(&condition.type_.as_str()))
}

/// The Helm release of an object.
fn release(metadata: &ObjectMeta) -> Option<Release> {
    let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
    let name = annotation("meta.helm.sh/release-name")?;
    Some(Release { namespace: annotation("meta.helm.sh/release-namespace")?, name })
}
