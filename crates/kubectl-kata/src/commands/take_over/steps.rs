//! What has to be done so that kata-deploy acts on no node any more while Kata keeps running there, one step after the
//! other. [`steps`] is pure: what it returns follows from the cluster as it was read, so that the command can be
//! interrupted anywhere and goes on when it runs again. No step changes a node.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kata_api::text;
use serde_json::{Value, json};

use super::installation::{
    CONTAINER, Installation, PAUSE, Record, container, has_ended, heeds_daemon_set, is_paused,
    name, pod_container, qualified,
};
use crate::Context;
use crate::api::Trouble;
use crate::failure::Failure;
use crate::refusal::Refusal;
use crate::resource::{CONFIG_MAPS, CRON_JOBS, DAEMON_SETS, JOBS, Resource};

/// How many names a sentence has.
const NAMED: usize = 3;

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// An object is deleted.
    Delete {
        kind: Resource,
        namespace: String,
        name: String,
        uid: Option<String>,
        /// The version that was read, if no other may be deleted.
        version: Option<String>,
        /// What becomes of the objects that it owns.
        propagation: &'static str,
    },
    /// A CronJob starts no further Jobs.
    Suspend { namespace: String, name: String },
    /// The pods of the DaemonSet are replaced by ones that do nothing.
    Pause { namespace: String, name: String, image: String },
    /// This is waited for.
    Await(String),
}

impl Step {
    /// For a plan.
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Delete { kind, namespace, name, .. } => {
                format!("delete {} {namespace}/{name}", kind.qualified())
            }
            Self::Suspend { namespace, name } => {
                format!("suspend {} {namespace}/{name}", CRON_JOBS.qualified())
            }
            Self::Pause { namespace, name, image } => format!(
                "replace the pods of {} {namespace}/{name} by ones of {image} that do nothing",
                DAEMON_SETS.qualified()
            ),
            Self::Await(what) => format!("wait for {what}"),
        }
    }

    /// What was done; `None` for a wait.
    fn done(&self) -> Option<String> {
        match self {
            Self::Delete { kind, namespace, name, .. } => {
                Some(format!("{} {namespace}/{name} deleted", kind.qualified()))
            }
            Self::Suspend { namespace, name } => {
                Some(format!("{} {namespace}/{name} suspended", CRON_JOBS.qualified()))
            }
            Self::Pause { namespace, name, .. } => {
                Some(format!("{} {namespace}/{name} paused", DAEMON_SETS.qualified()))
            }
            Self::Await(_) => None,
        }
    }

    /// Does it. What is gone already, or has changed since it was read, is no error: the next step follows from what is
    /// there then.
    pub(super) async fn run(&self, context: &mut Context<'_, '_>) -> Result<(), Failure> {
        let (kind, method, body, content) = match self {
            Self::Delete { kind, uid, version, propagation, .. } => {
                let options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation,
                    "preconditions": {"uid": uid, "resourceVersion": version},
                });
                (*kind, http::Method::DELETE, options, None)
            }
            Self::Pause { image, .. } => {
                let content = Some("application/strategic-merge-patch+json");
                (DAEMON_SETS, http::Method::PATCH, paused(image), content)
            }
            Self::Suspend { .. } => {
                let content = Some("application/merge-patch+json");
                (CRON_JOBS, http::Method::PATCH, json!({"spec": {"suspend": true}}), content)
            }
            Self::Await(_) => return Ok(()),
        };
        let (Self::Delete { namespace, name, .. }
        | Self::Suspend { namespace, name }
        | Self::Pause { namespace, name, .. }) = self
        else {
            return Ok(());
        };
        let what = self.sentence();
        let path = kind.object(Some(namespace), name);
        match context.api.write(&what, method.clone(), &path, content, &body).await {
            Ok(_) => {}
            Err(Trouble::Status(status)) if [404, 409].contains(&status.code) => return Ok(()),
            Err(trouble) => {
                let verb = method.as_str().to_ascii_lowercase();
                return Err(trouble.denied(&what, &format!("{verb} {}", kind.qualified())));
            }
        }
        if let Some(done) = self.done() {
            let done = context.marked(&done);
            context.printer.line(&done)?;
        }
        Ok(())
    }
}

/// The change of the DaemonSet after which its pods do nothing. All are replaced at once: Kata does not need them.
fn paused(image: &str) -> Value {
    json!({"spec": {
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0},
        },
        "template": {"spec": {"containers": [{
            "name": CONTAINER, "image": image, "command": [PAUSE], "args": null, "lifecycle": null,
            "livenessProbe": null, "readinessProbe": null, "startupProbe": null,
        }]}},
    }})
}

/// Why kata-deploy cannot be stopped.
pub(super) fn refusal(found: &Installation) -> Option<Refusal> {
    if !found.removals.is_empty() {
        let jobs = named(found.removals.iter().map(|job| &job.metadata));
        return Some(Refusal::new(
            format!("kata-deploy is being uninstalled: Job {jobs} has not ended"),
            "wait until the uninstallation has ended; then there is nothing to take over",
        ));
    }
    if let Some(name) = found.renamed.first() {
        return Some(Refusal::new(
            format!(
                "DaemonSet {name} is one of kata-deploy under another name, which this command does not know"
            ),
            "stop it by hand as docs/migrate.md says",
        ));
    }
    if found.releases.len() > 1 {
        let names: Vec<String> =
            found.releases.iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect();
        return Some(Refusal::new(
            format!("objects of kata-deploy belong to several Helm releases: {}", names.join(", ")),
            "correct the annotations meta.helm.sh/release-name of those that are not of its release",
        ));
    }
    if let Some((record, status)) = found.records.items().iter().find_map(unsettled) {
        return Some(Refusal::new(
            format!("Helm works on the release of kata-deploy: {record} has the status {status}"),
            "wait until Helm has ended, or roll the release back",
        ));
    }
    let is_deleting = |set: &DaemonSet| set.metadata.deletion_timestamp.is_some();
    if found.daemon_sets.iter().all(is_deleting)
        && let Some(pod) = found.acting_pods().next()
    {
        return Some(Refusal::new(
            format!(
                "pod {} of kata-deploy runs {}, and its DaemonSet is gone, so that it removes Kata from there when it ends",
                qualified(&pod.metadata),
                place(pod)
            ),
            "install the Helm release again, then repeat this command",
        ));
    }
    let old_pod = found.acting_pods().find(|pod| !pod_container(pod).is_some_and(heeds_daemon_set));
    let old_set = found.daemon_sets.iter().find(|set| {
        !container(set).is_some_and(|container| is_paused(container) || heeds_daemon_set(container))
    });
    let old = old_pod
        .map(|pod| format!("pod {} {}", qualified(&pod.metadata), place(pod)))
        .or_else(|| old_set.map(|set| format!("DaemonSet {}", qualified(&set.metadata))))?;
    Some(Refusal::new(
        format!(
            "{old} is of a kata-deploy that removes Kata from a node whenever its pod ends there, with sandboxes or without"
        ),
        "only kata-deploy 4.1 and newer can be taken over: drain the nodes one by one, and upgrade it there",
    ))
}

/// A record of a release on which Helm works, and its status.
fn unsettled(record: &Record) -> Option<(String, &str)> {
    let status = record.metadata.labels.as_ref()?.get("status")?;
    let is_unsettled = status.starts_with("pending-") || status == "uninstalling";
    is_unsettled.then(|| {
        (format!("{} {}", record.kind.qualified(), qualified(&record.metadata)), status.as_str())
    })
}

/// Where a pod is.
fn place(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.map_or_else(|| "on no node yet".to_owned(), |node| format!("on node {node}"))
}

/// What is left to be done, in this order.
pub(super) fn steps(found: &Installation, image: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    // First what would begin further installations. Its Job is left alone, and waited for below.
    for cron_job in &found.cron_jobs {
        if cron_job.spec.suspend != Some(true) {
            steps.push(Step::Suspend {
                namespace: cron_job.metadata.namespace.clone().unwrap_or_default(),
                name: name(&cron_job.metadata).to_owned(),
            });
        }
        steps.push(deleted(CRON_JOBS, &cron_job.metadata, "Orphan"));
    }
    // An installation that is killed leaves a node half done.
    let active: Vec<&Job> = found.installations.iter().filter(|job| !has_ended(job)).collect();
    if !active.is_empty() {
        let jobs = named(active.iter().map(|job| &job.metadata));
        steps.push(Step::Await(format!("kata-deploy to end what it installs: Job {jobs}")));
    }
    for job in &found.installations {
        steps.push(deleted(JOBS, &job.metadata, "Background"));
    }
    for set in &found.daemon_sets {
        let metadata = &set.metadata;
        let is_set = container(set).is_some_and(is_paused);
        if !is_set {
            steps.push(Step::Pause {
                namespace: metadata.namespace.clone().unwrap_or_default(),
                name: name(metadata).to_owned(),
                image: image.to_owned(),
            });
        }
        let pods: Vec<String> = found
            .acting_pods()
            .map(|pod| format!("{} {}", qualified(&pod.metadata), place(pod)))
            .collect();
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        if !pods.is_empty() {
            let pods = text::list(&pods, NAMED);
            steps.push(Step::Await(format!(
                "the pods of kata-deploy to end: {pods}; if a node is down, start it or delete its Node, but never its pod \
                 with --force"
            )));
        } else if !is_set || observed < metadata.generation {
            let name = qualified(metadata);
            steps.push(Step::Await(format!("the DaemonSet controller to see DaemonSet {name}")));
        }
        // Another program may have given its pods their own image back.
        let version = metadata.resource_version.clone();
        steps.push(match deleted(DAEMON_SETS, metadata, "Background") {
            Step::Delete { kind, namespace, name, uid, propagation, .. } => {
                Step::Delete { kind, namespace, name, uid, version, propagation }
            }
            step => step,
        });
    }
    for templates in &found.templates {
        steps.push(deleted(CONFIG_MAPS, &templates.metadata, "Background"));
    }
    // At last: until here Helm can undo all of it.
    for record in found.records.items() {
        steps.push(deleted(record.kind, &record.metadata, "Background"));
    }
    steps
}

/// The deletion of an object, or the wait for one that has begun.
fn deleted(kind: Resource, metadata: &ObjectMeta, propagation: &'static str) -> Step {
    if metadata.deletion_timestamp.is_some() {
        return Step::Await(format!("{} {} to be gone", kind.qualified(), qualified(metadata)));
    }
    Step::Delete {
        kind,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: name(metadata).to_owned(),
        uid: metadata.uid.clone(),
        version: None,
        propagation,
    }
}

fn named<'a>(objects: impl Iterator<Item = &'a ObjectMeta>) -> String {
    let names: Vec<String> = objects.map(qualified).collect();
    text::list(&names, NAMED)
}
