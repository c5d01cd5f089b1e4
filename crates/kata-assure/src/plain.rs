//! What is true of a cluster without the Machine Config Operator, where Jobs change the nodes: which nodes
//! should have the runtime, whether they have it, and what of hosts and objects can be compared.
//!
//! Like [`crate::world`] it looks at the store and at the hosts, and shares no judgement with the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kata_api::names::{self, node_job};
use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::resource::{JOBS, NODES};
use simcluster::workload::kata_deploy;
use simcluster::world::{Host, NodeFault, Platform, foreign};

use crate::world::{KATANODES, condition, config, is_marked, is_true, is_usable, label, word};

/// The payload that workloads change to.
pub const OTHER_PAYLOAD: &str = "registry.example/kata-payload:4.2.0";

/// Most bytes of a file that are compared, and shown, as they are.
const SHORT: usize = 100;

/// Whether Jobs change the nodes of a cluster.
pub fn is_plain(sim: &Simulation) -> bool {
    sim.world.platform == Platform::Kubernetes
}

/// Whether another installer has put its label on a node.
pub fn is_others(node: &Value) -> bool {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let foreign =
        labels.into_iter().any(|(key, _)| key.starts_with(names::KATA_DEPLOY_LABEL_PREFIX));
    foreign && label(node, names::CLAIM_LABEL).is_none()
}

/// Whether a node is one of kata-deploy, or was before it was taken over.
pub fn is_of_kata_deploy(node: &Value) -> bool {
    label(node, names::KATA_DEPLOY_LABEL) == Some("true")
}

/// Whether a KataConfig takes over a node of another installer.
pub fn takes_over(config: &Value, node: &Value) -> bool {
    config["spec"]["takeOver"] == "KataDeploy" && is_of_kata_deploy(node)
}

/// Whether a node keeps pods away until Kata is there.
pub fn has_startup_taint(node: &Value) -> bool {
    taints(node).any(is_startup_taint)
}

/// Whether a taint is one of those that go from a node once it has Kata.
pub fn is_startup_taint(taint: &Value) -> bool {
    taint["key"].as_str().is_some_and(|key| names::STARTUP_TAINTS.contains(&key))
}

/// The taints of a node.
pub fn taints(node: &Value) -> impl Iterator<Item = &Value> {
    node["spec"]["taints"].as_array().into_iter().flatten()
}

/// The classes that lead to a node that is selected, with their handlers, by the rules of the documentation.
fn classes(config: &Value, node: &Value) -> BTreeMap<String, String> {
    let usual = json!([{"name": names::RUNTIME_CLASS}]);
    let runtimes = config["spec"]["runtimes"].as_array().or(usual.as_array());
    let on_node = runtimes.into_iter().flatten().filter(|runtime| {
        let labels = runtime["installOn"]["matchLabels"].as_object();
        labels.into_iter().flatten().all(|(key, value)| label(node, key) == value.as_str())
    });
    let class = |runtime: &Value| {
        let name = word(runtime, "/name");
        (name.to_owned(), runtime["handler"].as_str().unwrap_or(name).to_owned())
    };
    on_node.map(class).collect()
}

/// The nodes that a KataConfig selects, by the rules of its documentation.
pub fn selected(sim: &Simulation, config: &Value) -> BTreeSet<String> {
    let nodes = sim.api.list(&NODES);
    nodes
        .iter()
        .filter(|node| {
            let selector = config["spec"]["kataConfigPoolSelector"]["matchLabels"].as_object();
            let matches = selector
                .into_iter()
                .flatten()
                .all(|(key, value)| label(node, key) == value.as_str());
            let control = label(node, names::CONTROL_PLANE_ROLE_LABEL).is_some();
            let is_left = is_others(node) && !takes_over(config, node);
            matches && !control && !is_left && !classes(config, node).is_empty()
        })
        .map(|node| word(node, "/metadata/name").to_owned())
        .collect()
}

/// Whether a KataConfig says that the system of a node provides Kata.
pub fn is_provided(config: &Value, node: &Value) -> bool {
    let labels = config["spec"]["providedNodes"]["matchLabels"].as_object();
    labels
        .is_some_and(|labels| labels.iter().all(|(key, value)| label(node, key) == value.as_str()))
}

/// Whether a host has its handlers from its system or from kata-deploy, and not from the operator.
pub fn provides_kata(host: &Host) -> bool {
    host.spec.as_ref().is_some_and(|spec| !spec.handlers.is_empty())
        || kata_deploy::is_installed(host)
}

/// Whether the host behind a node can not run virtual machines, or not before another program has restarted its
/// container runtime.
pub fn refuses(sim: &Simulation, node: &str) -> bool {
    let host = sim.world.hosts.get(node);
    host.is_some_and(|host| host.faults.contains(&NodeFault::NoKvm))
        || waits_for_another_program(sim, node)
}

/// Whether the host behind a node has no Kata and does not get any before another program has restarted its container
/// runtime. A change of it may have begun.
fn waits_for_another_program(sim: &Simulation, node: &str) -> bool {
    let changes = [NodeFault::ForeignChange, NodeFault::ForeignBreak];
    sim.world.hosts.get(node).is_some_and(|host| {
        !offers(host) && changes.iter().any(|change| host.faults.contains(change))
    })
}

/// The handlers of Kata that a host's container runtime offers.
pub fn offered(host: &Host) -> BTreeSet<&str> {
    let vms = host.handlers.iter().filter(|(_, handler)| handler.runtime_type == "vm");
    vms.map(|(name, _)| name.as_str()).collect()
}

/// Whether a host's container runtime offers a handler of Kata.
pub fn offers(host: &Host) -> bool {
    !offered(host).is_empty()
}

/// Whether the host behind a node offers a handler of Kata.
pub fn has_runtime(sim: &Simulation, node: &str) -> bool {
    sim.world.hosts.get(node).is_some_and(offers)
}

/// The image that the runtime of a host came from, as far as its handler leads to a file that says so.
fn payload(host: &Host) -> Option<&str> {
    let handler = host.handlers.get(*offered(host).first()?)?;
    let text = host.files.get(&host.resolved(&handler.runtime_path))?;
    // The line begins with the head of a program.
    text.lines().find_map(|line| Some(line.split_once("simulated, from ")?.1))
}

/// Whether a Job is one of the node agent's.
pub fn is_agents(job: &Value) -> bool {
    label(job, node_job::COMPONENT_LABEL) == Some(node_job::COMPONENT)
        && label(job, names::MANAGED_BY) == Some(names::PRODUCT)
}

/// An annotation of a Job.
pub fn annotation<'a>(job: &'a Value, key: &str) -> &'a str {
    job["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// Whether a Job may still do something to its node.
pub fn is_unfinished(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    !conditions.into_iter().any(|condition| {
        condition["status"] == "True"
            && (condition["type"] == "Complete" || condition["type"] == "Failed")
    })
}

/// Whether a Job changes its node.
pub fn changes(job: &Value) -> bool {
    matches!(annotation(job, node_job::ACTION), "Install" | "Remove")
}

/// The classes to which the labels of a node open it.
pub fn class_labels(node: &Value) -> BTreeSet<&str> {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let served = labels.filter(|(_, value)| *value == names::CLASS_LABEL_SERVED);
    served.filter_map(|(key, _)| key.strip_prefix(names::CLASS_LABEL_PREFIX)).collect()
}

/// What is missing for the cluster to be as the KataConfig wants it; `None` if nothing is.
pub fn missing(sim: &Simulation) -> Option<String> {
    let config = config(sim);
    let wanted = config.as_ref().map_or_else(BTreeSet::new, |config| selected(sim, config));
    for node in sim.api.list(&NODES) {
        let name = word(&node, "/metadata/name");
        let wants = wanted.contains(name) && !refuses(sim, name);
        if !is_usable(&node) {
            return Some(format!("the node {name} is not usable"));
        }
        let classes = config.as_ref().filter(|_| wants).map(|config| classes(config, &node));
        let classes = classes.unwrap_or_default();
        let found = sim.world.hosts.get(name).map(offered).unwrap_or_default();
        let is_changed = !sim.world.hosts.get(name).is_some_and(provides_kata);
        if is_changed && !found.iter().copied().eq(classes.values().collect::<BTreeSet<_>>()) {
            return Some(format!("the node {name} offers {found:?}, and should {classes:?}"));
        }
        let labels = class_labels(&node);
        if !labels.iter().copied().eq(classes.keys()) {
            return Some(format!("the node {name} is open for {labels:?}, and should {classes:?}"));
        }
        if is_marked(&node) != wants {
            return Some(format!("the node {name} has the mark, or lacks it, and should not"));
        }
        if wants && has_startup_taint(&node) {
            return Some(format!("the node {name} has the startup taint, and Kata"));
        }
        let is_claimed = label(&node, names::CLAIM_LABEL).is_some();
        if is_claimed != wants && !waits_for_another_program(sim, name) {
            return Some(format!("the node {name} has the claim, or lacks it, and should not"));
        }
    }
    for job in sim.api.list(&JOBS).iter().filter(|job| is_agents(job)) {
        let node = annotation(job, node_job::NODE);
        // A node that refuses is asked again from time to time.
        if is_unfinished(job) && !refuses(sim, node) {
            return Some(format!("a Job works on the node {node}"));
        }
        if config.is_none() {
            return Some(format!("the Job {} is left", word(job, "/metadata/name")));
        }
    }
    let config = config?;
    wrong_payload(sim, &config, &wanted)
        .or_else(|| unsaid(sim, &config, &wanted))
        .or_else(|| untold(sim, &wanted))
}

/// The node whose runtime came from another image than the KataConfig names.
fn wrong_payload(sim: &Simulation, config: &Value, wanted: &BTreeSet<String>) -> Option<String> {
    let image = config["spec"]["payload"]["image"].as_str().unwrap_or(names::PAYLOAD_IMAGE);
    let provides_kata = |name: &&String| sim.world.hosts.get(*name).is_some_and(provides_kata);
    let changed = wanted.iter().filter(|name| !provides_kata(name));
    changed.filter(|name| !refuses(sim, name)).find_map(|name| {
        let found = sim.world.hosts.get(name).and_then(payload);
        (found != Some(image)).then(|| format!("the node {name} has {found:?}, and not {image}"))
    })
}

/// What the KataConfig does not say yet.
fn unsaid(sim: &Simulation, config: &Value, wanted: &BTreeSet<String>) -> Option<String> {
    let refusing: Vec<&String> = wanted.iter().filter(|name| refuses(sim, name)).collect();
    let ready = || condition(config, "Ready").cloned().unwrap_or_default();
    if is_true(config, "Ready") != refusing.is_empty()
        || config["status"]["observedGeneration"] != config["metadata"]["generation"]
    {
        return Some(format!("the KataConfig says of itself: {}", ready()));
    }
    let said = config["status"].to_string();
    if let Some(name) = refusing.iter().find(|name| !said.contains(name.as_str())) {
        return Some(format!("the KataConfig does not name {name}, which refuses"));
    }
    let counts = &config["status"]["kataNodes"];
    let (all, ready) = (wanted.len(), wanted.len() - refusing.len());
    if counts["nodeCount"] != json!(all) || counts["readyNodeCount"] != json!(ready) {
        return Some(format!("the KataConfig counts wrong: {counts}, and should {ready} of {all}"));
    }
    if refusing.is_empty() && (is_true(config, "Reconciling") || is_true(config, "InProgress")) {
        return Some(format!("the KataConfig says that something moves: {}", config["status"]));
    }
    None
}

/// What the KataNodes do not say yet.
fn untold(sim: &Simulation, wanted: &BTreeSet<String>) -> Option<String> {
    let kata_nodes = sim.api.list(&KATANODES);
    let names: BTreeSet<&str> = kata_nodes.iter().map(|it| word(it, "/metadata/name")).collect();
    if names.len() != wanted.len() || !wanted.iter().all(|name| names.contains(name.as_str())) {
        return Some(format!("there are KataNodes {names:?}, and should be {wanted:?}"));
    }
    kata_nodes.iter().find_map(|it| {
        let name = word(it, "/metadata/name");
        // What another state could not be brought to says nothing about this one.
        let installed = word(it, "/status/host/installed");
        let done = word(it, "/status/host/job/outcome") == "Done"
            || word(it, "/status/host/job/desiredStateDigest") != installed;
        let provided = it["status"]["provided"] == true && it["status"]["host"].is_null();
        let ready = word(it, "/status/phase") == "Ready";
        let ready = ready && (provided || !installed.is_empty() && done);
        let refused =
            word(it, "/status/phase") != "Ready" && !word(it, "/status/message").is_empty();
        let said = if refuses(sim, name) { refused } else { ready };
        (!said).then(|| format!("the KataNode {name} is not up to date: {}", it["status"]))
    })
}

/// What is left of us where there is no KataConfig any more: Jobs, claims, files.
pub fn left<'a>(
    jobs: impl Iterator<Item = &'a Value>,
    nodes: impl Iterator<Item = &'a Value>,
    hosts: &BTreeMap<String, Host>,
) -> Vec<String> {
    let jobs =
        jobs.filter(|job| is_agents(job)).map(|job| format!("Job {}", word(job, "/metadata/name")));
    let claims = nodes
        .filter(|node| label(node, names::CLAIM_LABEL).is_some())
        .map(|node| format!("the claim of Node {}", word(node, "/metadata/name")));
    let files = hosts.iter().filter_map(|(name, host)| {
        let ours = |path: &&String| path.contains(names::PRODUCT);
        let path = host.files.keys().find(ours)?;
        Some(format!("the file {path} of host {name}"))
    });
    let handlers = hosts
        .iter()
        .filter(|(_, host)| offers(host) && !provides_kata(host))
        .map(|(name, _)| format!("the handler of host {name}"));
    jobs.chain(claims).chain(files).chain(handlers).collect()
}

/// The objects of a cluster that say nothing about what it came to: a Job is kept until another one
/// succeeded, which depends on how often something was tried.
pub fn is_passing(object: &Value) -> bool {
    is_agents(object)
}

/// An object without what depends on how often something was tried.
pub fn comparable(sim: &Simulation, kind: &str, name: &str, entry: &mut Value) {
    let some_refuse = sim.world.hosts.keys().any(|name| refuses(sim, name));
    match kind {
        // It may just be asked again, and its status says so.
        "KataNode" if refuses(sim, name) => {
            entry["status"] = Value::Null;
            for ours in entry["our fields"].as_array_mut().into_iter().flatten() {
                if let Some(fields) = ours["fields"].as_object_mut() {
                    fields.remove("f:status");
                }
            }
        }
        "KataNode" => {
            let passing = ["job", "inspected", "restarts", "fitFor", "failedFor"];
            if let Some(host) = entry["status"]["host"].as_object_mut() {
                host.retain(|key, _| !passing.contains(&key.as_str()));
            }
            // What another program had when the node was last looked at, and may have taken back.
            if let Some(Value::Array(handlers)) = entry.pointer_mut("/status/host/handlers") {
                handlers.retain(|handler| handler != foreign::HANDLER);
            }
            for ours in entry["our fields"].as_array_mut().into_iter().flatten() {
                if let Some(host) = ours
                    .pointer_mut("/fields/f:status/f:host")
                    .and_then(serde_json::Value::as_object_mut)
                {
                    host.retain(|key, _| !passing.contains(&key.trim_start_matches("f:")));
                }
            }
        }
        // A class that went back to kata-deploy is as before, but for who owns its fields.
        "RuntimeClass"
            if entry["scheduling"]["nodeSelector"][names::KATA_DEPLOY_LABEL] == "true" =>
        {
            entry["our fields"] = Value::Null;
        }
        // Says when the node that refuses is asked again.
        "KataConfig" if some_refuse => {
            let types: Vec<Value> = entry["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|condition| json!([condition["type"], condition["status"]]))
                .collect();
            entry["status"]["conditions"] = json!(types);
            entry["status"]["waiting"] = Value::Null;
            for finding in entry["status"]["findings"].as_array_mut().into_iter().flatten() {
                let node = finding["subject"]["name"].as_str();
                if finding["subject"]["kind"] == "Node"
                    && node.is_some_and(|name| refuses(sim, name))
                {
                    finding["message"] = Value::Null;
                }
            }
        }
        _ => {}
    }
}

/// What distinguishes a text from others; a long one would fill the report of a failure.
fn in_short(text: &str) -> String {
    if text.len() <= SHORT {
        return text.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{} bytes, {:016x}", text.len(), hasher.finish())
}

/// The record of an installation as if another program had not changed the main file at that time: what it was before
/// is put back only if the file is still as it was written.
fn without_foreign_change(state: &str) -> String {
    let Ok(mut state) = serde_json::from_str::<Value>(state) else { return state.to_owned() };
    for content in ["before", "after"] {
        let path = format!("/installed/main/{content}/File/text");
        if let Some(Value::String(text)) = state.pointer_mut(&path) {
            let table = format!(".runtimes.{}]", foreign::HANDLER);
            let mut is_foreign = false;
            let lines = text.split_inclusive('\n').filter(|line| {
                if line.starts_with('[') {
                    is_foreign = line.trim_end().ends_with(&table);
                }
                !is_foreign
            });
            *text = lines.collect();
        }
    }
    state.to_string()
}

/// All that matters of a host: every file and folder, and how often its container runtime was started.
pub fn facts(host: &Host) -> Value {
    let mut disk = serde_json::to_value(&host.disk).unwrap_or_default();
    if let Some(disk) = disk.as_object_mut() {
        // When something was written, and by which mode it is known, says nothing.
        disk.retain(|key, _| key == "directories" || key == "links");
    }
    // When the files of a payload were written is what its seal says.
    let files = host.files.iter().filter(|(path, _)| !path.ends_with("/seal.json"));
    let files: BTreeMap<&String, String> = files
        .map(|(path, text)| {
            let is_record = path.ends_with("/state.json");
            let text = if is_record { &without_foreign_change(text) } else { text };
            (path, in_short(text))
        })
        .collect();
    json!({
        "handlers": host.handlers.keys().collect::<Vec<_>>(),
        "files": files,
        "disk": disk,
    })
}
