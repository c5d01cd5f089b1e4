//! What kata-deploy, upstream's installer, has in the cluster: workloads, RuntimeClasses, and the records of its Helm
//! release. It reads only; the content of Secrets is never requested.
//!
//! Source: its chart of Kata Containers 4.1, and of 4.2 for the CronJob. Only the installation without a suffix is meant:
//! its names are fixed, and those of others have the suffix.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod};
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
/// A DaemonSet of the chart that only reads.
const MONITOR: &str = "kata-monitor";
/// The label selector of its pods.
const LABELLED: &str = "name=kata-deploy";
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
    /// Its pods, also those that have outlived their DaemonSet.
    pub(super) pods: Vec<Pod>,
    pub(super) cron_jobs: Vec<CronJob>,
    /// The Jobs that install, and those that start them.
    pub(super) installations: Vec<Job>,
    /// The Jobs of an uninstallation that has not ended.
    pub(super) removals: Vec<Job>,
    pub(super) templates: Vec<ConfigMap>,
    pub(super) classes: Vec<RuntimeClass>,
    /// Its Helm releases: none if it was installed otherwise, and more than one if its objects disagree.
    pub(super) releases: BTreeSet<Release>,
    /// What else belongs to its release, as `DaemonSet namespace/name`.
    pub(super) shares_release: Vec<String>,
    /// The objects in which Helm keeps the release.
    pub(super) records: Read<Vec<Record>>,
    /// DaemonSets of installations with a suffix, as `namespace/name`.
    pub(super) suffixed: Vec<String>,
    /// DaemonSets without a suffix that are called otherwise, as `namespace/name`.
    pub(super) renamed: Vec<String>,
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
        let (of_kata_deploy, other_sets): (Vec<_>, Vec<_>) =
            daemon_sets?.into_iter().partition(|set| container(set).is_some());
        let (daemon_sets, others): (Vec<_>, Vec<_>) = of_kata_deploy.into_iter().partition(|set| {
            name(&set.metadata) == NAME && !container(set).is_some_and(has_suffix)
        });
        let (suffixed, renamed): (Vec<_>, Vec<_>) =
            others.iter().partition(|set| container(set).is_some_and(has_suffix));
        let names =
            |sets: Vec<&DaemonSet>| sets.iter().map(|set| qualified(&set.metadata)).collect();
        let (classes, templates) = (classes?, templates?);
        let of_taken_over: BTreeSet<Release> = classes
            .iter()
            .map(|class| &class.metadata)
            .filter(|metadata| is_taken_over(metadata) && is_of_chart(metadata))
            .filter_map(release)
            .collect();
        let mut found = Self {
            cron_jobs: cron_jobs?.into_iter().filter(|it| name(&it.metadata) == CRON_JOB).collect(),
            pods: Vec::new(),
            installations: Vec::new(),
            removals: Vec::new(),
            releases: BTreeSet::new(),
            shares_release: Vec::new(),
            records: Read::Known(Vec::new()),
            suffixed: names(suffixed),
            renamed: names(renamed),
            classes: classes.into_iter().filter(kata_plan::is_of_kata_deploy).collect(),
            daemon_sets,
            templates,
        };
        let of_classes = found.classes.iter().map(|it| &it.metadata).filter(|it| is_of_chart(it));
        let releases = found.workloads().chain(of_classes).filter_map(release).collect();
        found.releases = releases;
        if found.releases.is_empty() {
            found.releases = of_taken_over;
        }
        if let Some(release) = found.release() {
            let is_in = |set: &&DaemonSet| {
                self::release(&set.metadata).as_ref() == Some(release)
                    && name(&set.metadata) != MONITOR
            };
            let shares = other_sets.iter().filter(is_in);
            let shares: Vec<String> =
                shares.map(|set| format!("DaemonSet {}", qualified(&set.metadata))).collect();
            if shares.is_empty() {
                found.records = records(api, release).await?;
            }
            found.shares_release = shares;
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
        let labelled = Scope { labels: Some(LABELLED), ..Scope::default() };
        let pods = listed::<Pod>(api, PODS, labelled).await?;
        let is_its = |pod: &Pod| pod_container(pod).is_some_and(|it| !has_suffix(it));
        found.pods = pods.into_iter().filter(|pod| is_its(pod) && !has_finished(pod)).collect();
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
            && self.acting_pods().next().is_none()
            && self.templates.is_empty()
            && self.records.items().is_empty()
    }

    /// Its Helm release, if its objects agree.
    pub(super) fn release(&self) -> Option<&Release> {
        self.releases.first().filter(|_| self.releases.len() == 1)
    }

    /// The metadata of what acts on nodes, or starts it.
    fn workloads(&self) -> impl Iterator<Item = &ObjectMeta> {
        let sets = self.daemon_sets.iter().map(|it| &it.metadata);
        let templates = self.templates.iter().map(|it| &it.metadata);
        sets.chain(templates).chain(self.cron_jobs.iter().map(|it| &it.metadata))
    }

    /// The metadata of everything that the chart brings.
    pub(super) fn metadata(&self) -> impl Iterator<Item = &ObjectMeta> {
        self.workloads().chain(self.classes.iter().map(|it| &it.metadata))
    }

    /// The namespaces in which it has, or had, workloads.
    fn namespaces(&self) -> BTreeSet<String> {
        let of_objects = self.workloads().filter_map(|metadata| metadata.namespace.clone());
        of_objects.chain(self.releases.iter().map(|it| it.namespace.clone())).collect()
    }

    /// Its pods that would remove Kata from their nodes if they ended once the DaemonSet is gone.
    pub(super) fn acting_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| !pod_container(pod).is_some_and(is_paused))
    }
}

/// The field selector of the ConfigMap with the templates of Jobs.
const NAMED_TEMPLATES: &str = "metadata.name=kata-deploy-job-templates";

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

/// The container of kata-deploy in a pod.
pub(super) fn pod_container(pod: &Pod) -> Option<&Container> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.into_iter().find(|container| container.name == CONTAINER)
}

/// Whether the container of kata-deploy does nothing any more.
pub(super) fn is_paused(container: &Container) -> bool {
    container.command.as_ref().is_some_and(|words| words == &[PAUSE])
}

/// Whether a container of kata-deploy leaves Kata on its node when it ends while its DaemonSet wants it there. That it has
/// the name of the DaemonSet says so: releases before 3.29 have not, and remove Kata whenever they end.
pub(super) fn heeds_daemon_set(container: &Container) -> bool {
    let words: Vec<&str> = container.command.iter().flatten().map(String::as_str).collect();
    let installs = words.first().is_some_and(|program| program.ends_with("/kata-deploy"))
        && words.last() == Some(&"install");
    let has_hook = container.lifecycle.as_ref().is_some_and(|it| it.pre_stop.is_some());
    installs && !has_hook && env(container, "DAEMONSET_NAME").is_some()
}

fn env<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let variable = container.env.iter().flatten().find(|variable| variable.name == name)?;
    variable.value.as_deref()
}

/// Whether a container belongs to an installation with a suffix.
fn has_suffix(container: &Container) -> bool {
    env(container, "MULTI_INSTALL_SUFFIX").is_some_and(|suffix| !suffix.is_empty())
}

fn has_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a RuntimeClass is one that the chart itself has.
fn is_of_chart(metadata: &ObjectMeta) -> bool {
    label(metadata, "kata-deploy/instance") == Some("default")
}

/// Whether a RuntimeClass was kata-deploy's, and is ours.
fn is_taken_over(metadata: &ObjectMeta) -> bool {
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
    name == DISPATCHER || of_cron_job(name) || dispatches(job) || is_of_node(job, "install")
}

/// Whether a Job starts installations for the installation without a suffix, whatever it is called.
fn dispatches(job: &Job) -> bool {
    let spec = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let mut containers = spec.into_iter().flat_map(|spec| &spec.containers);
    containers.any(|container| {
        let mut words = container.command.iter().flatten();
        words.any(|word| word == "--name-prefix=kata-deploy-install")
    })
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
