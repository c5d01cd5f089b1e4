//! Defaults of the kinds that make pods.

use serde_json::{Map, Value, json};

use super::{object, pod, set};
use crate::Resource;
use crate::resource::{CRONJOBS, DAEMONSETS, DEPLOYMENTS, JOBS, REPLICASETS, STATEFULSETS};

/// Counts the changes of a DaemonSet's template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn apply(resource: &Resource, root: &mut Map<String, Value>) {
    if *resource == JOBS {
        labels_of_template(root);
    }
    let Some(spec) = object(root, "spec") else { return };
    if *resource == CRONJOBS {
        cron_job(spec);
        return;
    }
    if *resource == JOBS {
        job(spec);
    } else if *resource == DEPLOYMENTS {
        set(spec, "replicas", || json!(1));
        set(spec, "revisionHistoryLimit", || json!(10));
        set(spec, "progressDeadlineSeconds", || json!(600));
        rolling(spec, "strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
    } else if *resource == DAEMONSETS {
        set(spec, "revisionHistoryLimit", || json!(10));
        rolling(spec, "updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
    } else if *resource == STATEFULSETS {
        set(spec, "replicas", || json!(1));
        set(spec, "revisionHistoryLimit", || json!(10));
        set(spec, "serviceName", || json!(""));
        set(spec, "podManagementPolicy", || json!("OrderedReady"));
        set(
            spec,
            "persistentVolumeClaimRetentionPolicy",
            || json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
        );
        rolling(spec, "updateStrategy", &[("partition", json!(0))]);
    } else if *resource == REPLICASETS {
        set(spec, "replicas", || json!(1));
    }
    template(spec);
}

/// A job without labels has those of its template.
fn labels_of_template(root: &mut Map<String, Value>) {
    let labels = root
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty()))
        .cloned();
    if let (Some(labels), Some(metadata)) = (labels, object(root, "metadata")) {
        set(metadata, "labels", || labels);
    }
}

/// Begins to count the changes of a new DaemonSet's template.
pub(crate) fn first_template(new: &mut Value) {
    if new["metadata"].is_object() {
        new["metadata"]["annotations"][TEMPLATE_GENERATION] = json!("1");
    }
}

/// A DaemonSet that comes without the count of template changes counts as one with none.
pub(crate) fn uncounted_template(new: &mut Value) {
    if new["metadata"].is_object() && new["metadata"]["annotations"][TEMPLATE_GENERATION].is_null()
    {
        new["metadata"]["annotations"][TEMPLATE_GENERATION] = json!("0");
    }
}

/// Counts a change of a DaemonSet's template; clients cannot.
pub(crate) fn count_template(old: &Value, new: &mut Value) {
    let was = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().unwrap_or_default();
    let changed = old["spec"]["template"] != new["spec"]["template"];
    let count = was.parse::<i64>().unwrap_or_default() + i64::from(changed);
    new["metadata"]["annotations"][TEMPLATE_GENERATION] = json!(count.to_string());
}

fn template(spec: &mut Map<String, Value>) {
    if let Some(Value::Object(template)) = spec.get_mut("template")
        && let Some(spec) = object(template, "spec")
    {
        pod::spec(spec);
    }
}

fn rolling(spec: &mut Map<String, Value>, key: &str, numbers: &[(&str, Value)]) {
    let Some(strategy) = object(spec, key) else { return };
    set(strategy, "type", || json!("RollingUpdate"));
    if strategy.get("type").is_none_or(|kind| kind != "RollingUpdate") {
        return;
    }
    if let Some(rolling) = object(strategy, "rollingUpdate") {
        for (key, number) in numbers {
            set(rolling, key, || number.clone());
        }
    }
}

fn job(spec: &mut Map<String, Value>) {
    // Without either number a job runs one pod; with a parallelism alone it is a work queue.
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".to_owned(), json!(1));
    }
    set(spec, "parallelism", || json!(1));
    set(spec, "backoffLimit", || json!(6));
    set(spec, "completionMode", || json!("NonIndexed"));
    set(spec, "suspend", || json!(false));
    set(spec, "manualSelector", || json!(false));
    set(spec, "podReplacementPolicy", || json!("TerminatingOrFailed"));
}

fn cron_job(spec: &mut Map<String, Value>) {
    set(spec, "concurrencyPolicy", || json!("Allow"));
    set(spec, "suspend", || json!(false));
    set(spec, "successfulJobsHistoryLimit", || json!(3));
    set(spec, "failedJobsHistoryLimit", || json!(1));
    if let Some(Value::Object(job)) = spec.get_mut("jobTemplate")
        && let Some(spec) = object(job, "spec")
    {
        template(spec);
    }
}

/// Gives a new job the labels by which it finds its pods.
pub(super) fn job_selector(job: &mut Value) {
    if job["spec"]["manualSelector"] == true || !job["spec"].is_object() {
        return;
    }
    let (uid, name) = (job["metadata"]["uid"].clone(), job["metadata"]["name"].clone());
    if !job["spec"]["template"].is_object() {
        return;
    }
    // A generated name is drawn on a copy, which shares nothing.
    let shared = job["metadata"]["labels"].is_object()
        && job["metadata"]["generateName"].is_null()
        && job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"];
    let template = &mut job["spec"]["template"]["metadata"];
    if !template.is_object() {
        *template = json!({});
    }
    let labels = &mut template["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    for (key, value) in [
        ("controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        labels[key] = value.clone();
    }
    // The labels that the job took from its template are the template's.
    if shared {
        job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
    }
    job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
}
