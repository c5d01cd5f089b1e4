//! What is promised of requests: no read from a server's cache, nothing disruptive on reads that failed
//! or are old (S13), pods counted after the mark went (S2), preconditions on every deletion (S8), and no
//! PUT.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kata_api::names::{self, node_job};
use kata_operator::client::CALL_TIMEOUT;
use serde_json::Value;
use simcluster::world::Platform;

use crate::ledger::Page;

/// How old the reads may be on which something disruptive is done: a pass with every call at its time
/// limit.
const FRESH: Duration = Duration::from_secs(90);
/// A failed read counts as one of a watch, which may list anew while a pass goes on, if it failed within this time after
/// the success, this many calls as slow as the read, and the time limit of each call without an answer between both.
const SAME_PASS: Duration = Duration::from_secs(2);
const CALLS: u32 = 6;

/// What is listed before anything disruptive: kinds of which there are few objects.
const OBJECTS: [&str; 5] = [
    "kataconfigs",
    "machineconfigpools",
    "machineconfigs",
    "containerruntimeconfigs",
    "runtimeclasses",
];
/// What is listed besides, before what reaches many nodes at once or cannot be taken back.
const NODES: [&str; 2] = ["nodes", "katanodes"];

/// The same where Jobs change the nodes, before any Job that does.
const PLAIN: [&str; 5] = ["kataconfigs", "runtimeclasses", "nodes", "katanodes", "jobs"];

/// When a kind was listed last.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    succeeded: Option<Duration>,
    /// How long that took.
    took: Duration,
    failed: Option<Duration>,
}

/// What has to be remembered of requests; each operator's by themselves.
#[derive(Debug, Default)]
pub struct Requests {
    /// Whether Jobs change the nodes.
    plain: bool,
    lists: BTreeMap<(usize, String), Listed>,
}

/// The resource, name and subresource that a path is about.
fn parts(path: &str) -> (String, String, String) {
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.trim_start_matches('/').split('/').peekable();
    let skip = if parts.next() == Some("api") { 1 } else { 2 };
    let mut parts = parts.skip(skip).peekable();
    if parts.peek() == Some(&"namespaces") {
        parts.next();
        parts.next();
    }
    let mut next = || parts.next().unwrap_or_default().to_owned();
    (next(), next(), next())
}

/// What a write relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reliance {
    /// Nothing that could be old: it disturbs no node, or is refused if what it relies on has changed.
    Nothing,
    /// The small kinds; the node that it writes is written as it was seen or not at all.
    Objects,
    /// Everything.
    All,
}

/// What a request relies on that can disturb a node or takes something away.
fn reliance(method: &http::Method, path: &str, body: &Value) -> Reliance {
    let (resource, _, subresource) = parts(path);
    if *method == http::Method::GET || !subresource.is_empty() {
        return Reliance::Nothing;
    }
    let metadata = &body["metadata"];
    match resource.as_str() {
        "nodes" => {
            let empty = serde_json::Map::new();
            let labels = metadata["labels"].as_object().unwrap_or(&empty);
            let only_mark = labels.keys().all(|key| {
                [names::RUNTIME_LABEL, names::CLAIM_LABEL].contains(&key.as_str())
                    || key.starts_with(names::CLASS_LABEL_PREFIX)
            });
            let as_seen = metadata["resourceVersion"].is_string();
            match (only_mark, as_seen) {
                _ if *method == http::Method::DELETE => Reliance::All,
                (true, true) => Reliance::Nothing,
                (false, true) => Reliance::Objects,
                (_, false) => Reliance::All,
            }
        }
        "jobs" if *method != http::Method::DELETE => {
            match metadata["annotations"][node_job::ACTION].as_str() {
                Some("Install" | "Remove") => Reliance::All,
                _ => Reliance::Nothing,
            }
        }
        "machineconfigpools" if *method == http::Method::PATCH => Reliance::Objects,
        "machineconfigs" | "containerruntimeconfigs" if *method == http::Method::PATCH => {
            let pool = format!("{}{}", names::POOL_LABEL_PREFIX, names::POOL);
            let ours = metadata["labels"][names::MACHINE_CONFIG_ROLE_LABEL] == names::POOL
                || !body["spec"]["machineConfigPoolSelector"]["matchLabels"][&pool].is_null();
            if ours { Reliance::Objects } else { Reliance::All }
        }
        "machineconfigs" | "machineconfigpools" | "containerruntimeconfigs" => Reliance::All,
        "runtimeclasses" if *method == http::Method::DELETE => Reliance::All,
        "kataconfigs" => {
            let kept = metadata["finalizers"].as_array();
            let goes = kept.is_some_and(|kept| kept.iter().all(|name| name != names::FINALIZER));
            if goes { Reliance::All } else { Reliance::Nothing }
        }
        _ => Reliance::Nothing,
    }
}

impl Requests {
    /// Nothing yet, on this kind of cluster.
    pub fn on(platform: Platform) -> Self {
        Self { plain: platform == Platform::Kubernetes, ..Self::default() }
    }

    /// Notes what is wrong with the call `index`, which is about to be sent.
    pub fn check(&mut self, page: &mut Page, index: usize, body: &[u8]) {
        let Some(call) = page.calls.get(index).cloned() else { return };
        if call.path.contains("resourceVersion=0") || call.path.contains("resourceVersionMatch") {
            page.broke("S13", format!("a read from the server's cache: {}", call.path));
        }
        if call.method == http::Method::PUT {
            page.broke("S9", format!("a PUT: {}", call.path));
        }
        if !call.is_write() || call.is_lease() {
            return;
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if call.method == http::Method::DELETE && body["preconditions"]["uid"].is_null() {
            page.broke("S8", format!("a deletion by name only: {}", call.path));
        }
        let reads: Vec<&str> = match reliance(&call.method, &call.path, &body) {
            Reliance::Nothing => return,
            Reliance::Objects | Reliance::All if self.plain => PLAIN.to_vec(),
            Reliance::Objects => OBJECTS.to_vec(),
            Reliance::All => OBJECTS.into_iter().chain(NODES).collect(),
        };
        for read in reads {
            let listed = self.lists.get(&(call.operator, read.to_owned())).copied();
            let Listed { succeeded, failed, took } = listed.unwrap_or_default();
            let what = format!("{} {} [{}]", call.method, call.path, read);
            let Some(succeeded) = succeeded else {
                page.broke("S13", format!("written without any read: {what}"));
                continue;
            };
            if call.at.saturating_sub(succeeded) > FRESH {
                page.broke("S13", format!("written on old reads: {what}"));
            }
            let Some(failed) = failed else { continue };
            // Calls that are sent at once wait at once.
            let unanswered: BTreeSet<Duration> = page
                .calls
                .iter()
                .filter(|it| it.operator == call.operator && it.code.is_none() && !it.is_lease())
                .map(|it| it.at)
                .filter(|at| (succeeded..failed).contains(at))
                .collect();
            let unanswered = u32::try_from(unanswered.len()).unwrap_or(u32::MAX);
            if failed > succeeded + SAME_PASS + took * CALLS + CALL_TIMEOUT * unanswered {
                page.broke("S13", format!("written after a read that failed: {what}"));
            }
        }
        self.pods(page, &call, &body);
    }

    /// S2: before the runtime is taken from a node, pods are read after its mark went.
    fn pods(&self, page: &mut Page, call: &crate::ledger::Call, body: &Value) {
        let (resource, name, _) = parts(&call.path);
        let label = &body["metadata"]["labels"];
        let leaves = resource == "nodes"
            && label.as_object().is_some_and(|labels| labels.contains_key(names::KATA_ROLE_LABEL))
            && label[names::KATA_ROLE_LABEL].is_null();
        let removes =
            resource == "jobs" && body["metadata"]["annotations"][node_job::ACTION] == "Remove";
        let leaves = leaves || removes;
        if !leaves {
            return;
        }
        let listed = self.lists.get(&(call.operator, "pods".to_owned())).copied();
        let Listed { succeeded, failed, .. } = listed.unwrap_or_default();
        let known = succeeded.is_some_and(|at| {
            call.at.saturating_sub(at) <= FRESH
                && failed.is_none_or(|failed| failed <= at + SAME_PASS)
        });
        if !known {
            page.broke("S2", format!("{resource} {name}: let go, and its pods were not counted"));
        }
    }

    /// Notes that the call `index` was answered, in a form that can be read if `sound`.
    pub fn answered(&mut self, page: &Page, index: usize, sound: bool) {
        let Some(call) = page.calls.get(index) else { return };
        let (mut resource, name, _) = parts(&call.path);
        if resource == "pods" && call.path.contains("labelSelector") {
            // Those of Jobs.
            resource.push_str(" by label");
        }
        let lists =
            call.method == http::Method::GET && name.is_empty() && !call.path.contains("watch=");
        if !lists {
            return;
        }
        let listed = self.lists.entry((call.operator, resource)).or_default();
        let now = page.start.elapsed();
        if sound && call.code == Some(200) {
            listed.succeeded = Some(now);
            listed.took = now.saturating_sub(call.at);
        } else {
            listed.failed = Some(now);
        }
    }
}
