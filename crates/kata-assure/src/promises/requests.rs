//! What is promised of requests: no read from a server's cache, nothing disruptive on reads that failed
//! or are old (S13), pods counted after the mark went (S2), preconditions on every deletion (S8), and no
//! PUT.

use std::collections::BTreeMap;
use std::time::Duration;

use kata_api::names;
use serde_json::Value;

use crate::ledger::Page;

/// How old the reads may be on which something disruptive is done: a pass with every call at its time
/// limit.
const FRESH: Duration = Duration::from_secs(90);
/// A read that failed belongs to a pass that had read everything before if the success is this close.
const SAME_PASS: Duration = Duration::from_secs(2);

/// The lists that come before anything disruptive.
const READS: [&str; 7] = [
    "kataconfigs",
    "nodes",
    "machineconfigpools",
    "machineconfigs",
    "containerruntimeconfigs",
    "runtimeclasses",
    "katanodes",
];

/// When a kind was listed last.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    succeeded: Option<Duration>,
    failed: Option<Duration>,
}

/// What has to be remembered of requests; each operator's by themselves.
#[derive(Debug, Default)]
pub struct Requests {
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

/// Whether a request can disturb a node or takes something away.
fn is_disruptive(method: &http::Method, path: &str, body: &Value) -> bool {
    let (resource, _, subresource) = parts(path);
    if *method == http::Method::GET || !subresource.is_empty() {
        return false;
    }
    match resource.as_str() {
        "nodes" | "machineconfigs" | "machineconfigpools" | "containerruntimeconfigs" => true,
        "runtimeclasses" => *method == http::Method::DELETE,
        "kataconfigs" => {
            let kept = body["metadata"]["finalizers"].as_array();
            kept.is_some_and(|kept| kept.iter().all(|name| name != names::FINALIZER))
        }
        _ => false,
    }
}

impl Requests {
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
        if !is_disruptive(&call.method, &call.path, &body) {
            return;
        }
        for read in READS {
            let listed = self.lists.get(&(call.operator, read.to_owned())).copied();
            let Listed { succeeded, failed } = listed.unwrap_or_default();
            let what = format!("{} {} [{}]", call.method, call.path, read);
            let Some(succeeded) = succeeded else {
                page.broke("S13", format!("written without any read: {what}"));
                continue;
            };
            if call.at.saturating_sub(succeeded) > FRESH {
                page.broke("S13", format!("written on old reads: {what}"));
            }
            if failed.is_some_and(|failed| failed > succeeded + SAME_PASS) {
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
        if !leaves {
            return;
        }
        let listed = self.lists.get(&(call.operator, "pods".to_owned())).copied();
        let Listed { succeeded, failed } = listed.unwrap_or_default();
        let known = succeeded.is_some_and(|at| {
            call.at.saturating_sub(at) <= FRESH
                && failed.is_none_or(|failed| failed <= at + SAME_PASS)
        });
        if !known {
            page.broke("S2", format!("node {name} is let go, and its pods were not counted"));
        }
    }

    /// Notes that the call `index` was answered, in a form that can be read if `sound`.
    pub fn answered(&mut self, page: &Page, index: usize, sound: bool) {
        let Some(call) = page.calls.get(index) else { return };
        let (resource, name, _) = parts(&call.path);
        let lists =
            call.method == http::Method::GET && name.is_empty() && !call.path.contains("watch=");
        if !lists {
            return;
        }
        let listed = self.lists.entry((call.operator, resource)).or_default();
        let now = page.start.elapsed();
        let answered = if sound && call.code == Some(200) {
            &mut listed.succeeded
        } else {
            &mut listed.failed
        };
        *answered = Some(now);
    }
}
