//! Objects as scripts show them: short, and without what differs from run to run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use kata_api::names;
use serde_json::Value;
use simcluster::resource::{EVENTS_V1, KATACONFIGS, NODES};
use simcluster::{Resource, Simulation};

use super::resource::resource;

/// How much of a configuration's hash is shown.
const HASH: usize = 6;
/// What the label of each class that a node serves begins with.
const CLASS_LABELS: &str = "kata.node-restriction.kubernetes.io/";
/// What the operator's taints begin with.
const OWN_TAINTS: &str = "kata-operator.dev/";
/// Metadata that says nothing in a transcript.
const NOISE: [&str; 6] = [
    "managedFields",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "ownerReferences",
];

/// Objects of a kind, or one.
pub(crate) fn show(
    sim: &Simulation,
    kind: &str,
    name: Option<&str>,
    namespace: Option<&str>,
) -> Result<String, String> {
    let def = resource(sim, kind)?;
    if def.resource.plural == "events" {
        return Ok(events(sim));
    }
    let mut text = String::new();
    let mut shown = 0;
    for object in sim.api.list(&def.resource) {
        let metadata = &object["metadata"];
        let of_name = word(&metadata["name"]);
        let of_namespace = word(&metadata["namespace"]);
        if name.is_some_and(|name| name != of_name)
            || namespace.is_some_and(|namespace| namespace != of_namespace)
        {
            continue;
        }
        shown += 1;
        if def.resource == KATACONFIGS {
            kata_config(&object, &mut text);
        } else if def.resource == NODES {
            node(sim, &object, &mut text);
        } else if name.is_some() {
            text.push_str(&yaml(&object));
        } else {
            line(&object, &mut text);
        }
    }
    if shown == 0 {
        text.push_str("(none)");
    }
    Ok(text)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn words(value: &Value) -> String {
    let words: Vec<&str> = value.as_array().into_iter().flatten().map(word).collect();
    words.join(" ")
}

/// `rendered-worker-0123456789ab...` as `worker-012345`.
fn short(config: &str) -> String {
    let config = config.strip_prefix(names::mco::RENDERED_PREFIX).unwrap_or(config);
    match config.rsplit_once('-') {
        Some((pool, hash)) => format!("{pool}-{}", hash.get(..HASH).unwrap_or(hash)),
        None => config.to_owned(),
    }
}

fn put(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn kata_config(object: &Value, text: &mut String) {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    let nodes = &status["kataNodes"];
    let deleting = if metadata["deletionTimestamp"].is_string() { ", being deleted" } else { "" };
    put(
        text,
        &format!(
            "KataConfig {}: generation {} (status of {}){deleting}; {} of {} nodes have Kata; classes: {}",
            word(&metadata["name"]),
            metadata["generation"],
            status["observedGeneration"],
            nodes["readyNodeCount"],
            nodes["nodeCount"],
            words(&status["runtimeClasses"]),
        ),
    );
    for (key, list) in nodes.as_object().into_iter().flatten() {
        if list.is_array() {
            put(text, &format!("  {key}: {}", words(list)));
        }
    }
    for condition in status["conditions"].as_array().into_iter().flatten() {
        put(
            text,
            &format!(
                "  {}={} {}: {}",
                word(&condition["type"]),
                word(&condition["status"]),
                word(&condition["reason"]),
                word(&condition["message"])
            ),
        );
    }
}

fn node(sim: &Simulation, object: &Value, text: &mut String) {
    let metadata = &object["metadata"];
    let name = word(&metadata["name"]);
    let (labels, annotations) = (&metadata["labels"], &metadata["annotations"]);
    let ready = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let mut line = format!("{name}: {}", if ready { "Ready" } else { "NotReady" });
    if object["spec"]["unschedulable"] == true {
        line.push_str(", cordoned");
    }
    let (current, desired) = (
        word(&annotations[names::mco::CURRENT_CONFIG]),
        word(&annotations[names::mco::DESIRED_CONFIG]),
    );
    if !current.is_empty() {
        let _infallible = write!(line, ", {}", short(current));
        if desired != current {
            let _infallible = write!(line, " -> {}", short(desired));
        }
        let _infallible = write!(line, " {}", word(&annotations[names::mco::STATE]));
    }
    for (label, short) in
        [(names::KATA_ROLE_LABEL, "kata-oc"), (names::RUNTIME_LABEL, "kata-runtime")]
    {
        if let Some(value) = labels[label].as_str() {
            let value = if value.is_empty() { String::new() } else { format!("={value}") };
            let _infallible = write!(line, ", {short}{value}");
        }
    }
    let served: Vec<&str> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| **value == "true")
        .filter_map(|(key, _)| key.strip_prefix(CLASS_LABELS))
        .collect();
    if !served.is_empty() {
        let _infallible = write!(line, ", serves {}", served.join(" "));
    }
    let taints = object["spec"]["taints"].as_array().into_iter().flatten();
    for key in taints.filter_map(|taint| taint["key"].as_str()) {
        if let Some(own) = key.strip_prefix(OWN_TAINTS) {
            let _infallible = write!(line, ", tainted {own}");
        }
    }
    let kata_nodes = Resource::dynamic("kata-operator.dev", "katanodes");
    if let Some(kata_node) = sim.api.get(&kata_nodes, "", name) {
        let status = &kata_node["status"];
        let _infallible = write!(line, "; KataNode {}", word(&status["phase"]));
        for part in [word(&status["step"]), word(&status["code"]), word(&status["message"])] {
            if !part.is_empty() {
                let _infallible = write!(line, " {part}");
            }
        }
    }
    put(text, &line);
}

/// The operator's Events about KataConfigs, in the order in which they came; those about nodes repeat
/// them.
fn events(sim: &Simulation) -> String {
    let mut all: BTreeMap<u64, Arc<Value>> = BTreeMap::new();
    for event in sim.api.list(&EVENTS_V1) {
        if event["regarding"]["kind"] == "KataConfig" {
            let revision = word(&event["metadata"]["resourceVersion"]).parse().unwrap_or_default();
            all.insert(revision, event);
        }
    }
    let mut text = String::new();
    for event in all.values() {
        put(
            &mut text,
            &format!(
                "{} {}: {}",
                word(&event["type"]),
                word(&event["reason"]),
                word(&event["note"])
            ),
        );
    }
    if text.is_empty() { "(none)".to_owned() } else { text }
}

/// One line for an object.
fn line(object: &Value, text: &mut String) {
    let metadata = &object["metadata"];
    let mut line = String::new();
    if let Some(namespace) = metadata["namespace"].as_str() {
        let _infallible = write!(line, "{namespace}/");
    }
    line.push_str(word(&metadata["name"]));
    for part in [&object["status"]["phase"], &object["spec"]["nodeName"], &object["handler"]] {
        if let Some(part) = part.as_str() {
            let _infallible = write!(line, " {part}");
        }
    }
    for key in ["machineCount", "updatedMachineCount", "readyMachineCount", "degradedMachineCount"]
    {
        if object["status"][key].is_number() {
            let _infallible = write!(line, " {key}={}", object["status"][key]);
        }
    }
    if metadata["deletionTimestamp"].is_string() {
        line.push_str(" (being deleted)");
    }
    put(text, &line);
}

/// An object without what differs from run to run.
fn yaml(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !NOISE.contains(&key.as_str()));
    }
    serde_saphyr::to_string(&object).unwrap_or_else(|error| format!("(not shown: {error})\n"))
}
