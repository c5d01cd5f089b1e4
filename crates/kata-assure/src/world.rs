//! What is true of a cluster, seen from the store and the hosts, without any of the operator's
//! judgement: whether it is as its KataConfig wants it, and its whole state in a form that can be
//! compared.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::names;
use serde_json::{Value, json};
use simcluster::api::registry::ResourceDef;
use simcluster::resource::{
    CONTAINERRUNTIMECONFIGS, CRDS, EVENTS, EVENTS_V1, KATACONFIGS, LEASES, MACHINECONFIGPOOLS,
    MACHINECONFIGS, NAMESPACES, NODES, PODS,
};
use simcluster::{Resource, Simulation};

use crate::plain;

/// The name of every episode's KataConfig.
pub const CONFIG: &str = "example";

/// `KataNode`.
pub const KATANODES: Resource = Resource::new("kata-operator.dev", "katanodes");

/// The state of a cluster, by object.
pub type State = BTreeMap<String, Value>;

/// A field of an object as text; empty if there is none.
pub fn word<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A label of an object.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// The KataConfig.
pub fn config(sim: &Simulation) -> Option<Value> {
    sim.api.get(&KATACONFIGS, "", CONFIG).map(|config| (*config).clone())
}

/// A condition of a KataConfig.
pub fn condition<'a>(config: &'a Value, type_: &str) -> Option<&'a Value> {
    let mut conditions = config["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == type_)
}

/// Whether a condition of a KataConfig is `True`.
pub fn is_true(config: &Value, type_: &str) -> bool {
    condition(config, type_).is_some_and(|condition| condition["status"] == "True")
}

/// Whether a node is Ready and open to pods.
pub fn is_usable(node: &Value) -> bool {
    is_ready(node) && node["spec"]["unschedulable"] != true
}

/// Whether the kubelet of a node reports.
pub fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether the host behind a node has booted with the runtime.
pub fn has_runtime(sim: &Simulation, node: &str) -> bool {
    if plain::is_plain(sim) {
        return plain::has_runtime(sim, node);
    }
    sim.world.hosts.get(node).is_some_and(|host| host.extensions.contains(names::EXTENSION))
}

/// Whether a node carries the label of nodes that have Kata, and not for another installer.
pub fn is_marked(node: &Value) -> bool {
    label(node, names::RUNTIME_LABEL) == Some(names::RUNTIME_LABEL_VERIFIED)
        && !plain::is_others(node)
}

/// Whether a configuration that the node runs or is to run is one of our pool's.
pub fn is_on_pool(node: &Value) -> bool {
    let prefix = format!("{}{}-", names::mco::RENDERED_PREFIX, names::POOL);
    [names::mco::CURRENT_CONFIG, names::mco::DESIRED_CONFIG]
        .iter()
        .any(|key| annotation(node, key).starts_with(&prefix))
}

/// Whether the Machine Config Operator has nothing to do on a node.
pub fn is_at_rest(node: &Value) -> bool {
    let current = annotation(node, names::mco::CURRENT_CONFIG);
    current == annotation(node, names::mco::DESIRED_CONFIG)
        && annotation(node, names::mco::STATE) == "Done"
}

/// Whether a pod has not ended yet.
pub fn is_unfinished(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether a RuntimeClass leads to a runtime of Kata.
pub fn leads_to_kata(class: &Value) -> bool {
    word(class, "/handler").starts_with(names::RUNTIME_CLASS)
}

/// The nodes that the KataConfig selects, by the rules of its documentation.
pub fn selected(sim: &Simulation, config: &Value, converged: bool) -> BTreeSet<String> {
    if plain::is_plain(sim) {
        return plain::selected(sim, config);
    }
    let pools = sim.api.list(&MACHINECONFIGPOOLS);
    let custom: Vec<&Value> = pools
        .iter()
        .map(AsRef::as_ref)
        .filter(|pool| !["master", "worker", names::POOL].contains(&word(pool, "/metadata/name")))
        .collect();
    let nodes = sim.api.list(&NODES);
    nodes
        .iter()
        .filter(|node| {
            let control = label(node, names::MASTER_ROLE_LABEL).is_some();
            if converged {
                return control;
            }
            let in_custom = custom.iter().any(|pool| {
                let wanted = pool["spec"]["nodeSelector"]["matchLabels"].as_object();
                wanted.is_some_and(|wanted| {
                    wanted.iter().all(|(key, value)| label(node, key) == value.as_str())
                })
            });
            let selector = config["spec"]["kataConfigPoolSelector"]["matchLabels"].as_object();
            let matches = selector
                .into_iter()
                .flatten()
                .all(|(key, value)| label(node, key) == value.as_str());
            let eligible = config["spec"]["checkNodeEligibility"] != true
                || label(node, names::NFD_LABEL) == Some("true");
            let worker = label(node, names::WORKER_ROLE_LABEL).is_some();
            worker && !control && !in_custom && matches && eligible
        })
        .map(|node| word(node, "/metadata/name").to_owned())
        .collect()
}

/// Whether the KataConfig is being deleted.
pub fn is_being_deleted(sim: &Simulation) -> bool {
    config(sim).is_some_and(|config| config["metadata"]["deletionTimestamp"].is_string())
}

/// What is missing for the cluster to be as the KataConfig wants it; `None` if nothing is. The Machine
/// Config Operator's own work counts as missing.
pub fn missing(sim: &Simulation, converged: bool) -> Option<String> {
    let config = config(sim);
    if is_being_deleted(sim) {
        return Some("the KataConfig is being deleted".to_owned());
    }
    if plain::is_plain(sim) {
        return plain::missing(sim);
    }
    let wanted =
        config.as_ref().map_or_else(BTreeSet::new, |config| selected(sim, config, converged));
    for pool in sim.api.list(&MACHINECONFIGPOOLS) {
        let name = word(&pool, "/metadata/name");
        let observed = pool["status"]["observedGeneration"] == pool["metadata"]["generation"];
        let rendered =
            pool["spec"]["configuration"]["name"] == pool["status"]["configuration"]["name"];
        let updated = pool["status"]["updatedMachineCount"] == pool["status"]["machineCount"];
        if !(observed && rendered && updated) {
            return Some(format!("the pool {name} is being updated"));
        }
    }
    for node in sim.api.list(&NODES) {
        let name = word(&node, "/metadata/name");
        let wants = wanted.contains(name);
        if !is_at_rest(&node) || !is_usable(&node) {
            return Some(format!("the node {name} is being changed"));
        }
        if has_runtime(sim, name) != wants {
            return Some(format!("the node {name} has the runtime, or lacks it, and should not"));
        }
        if is_marked(&node) != wants {
            return Some(format!("the node {name} has the mark, or lacks it, and should not"));
        }
        let in_pool = label(&node, names::KATA_ROLE_LABEL).is_some();
        if in_pool != (wants && !converged) {
            return Some(format!("the node {name} is in the pool, or is not, and should not"));
        }
    }
    let config = config?;
    let ready = is_true(&config, "Ready");
    if !ready || config["status"]["observedGeneration"] != config["metadata"]["generation"] {
        let condition = condition(&config, "Ready").cloned().unwrap_or_default();
        return Some(format!("the KataConfig is not Ready: {condition}"));
    }
    let counts = &config["status"]["kataNodes"];
    let expected = json!(wanted.len());
    if counts["nodeCount"] != expected || counts["readyNodeCount"] != expected {
        return Some(format!("the KataConfig counts wrong: {counts}, and should have {expected}"));
    }
    if is_true(&config, "Reconciling") || is_true(&config, "InProgress") {
        return Some(format!("the KataConfig says that something moves: {}", config["status"]));
    }
    untold(sim, &wanted)
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
        let node = sim.api.get(&NODES, "", name)?;
        let current = annotation(&node, names::mco::CURRENT_CONFIG);
        let desired = annotation(&node, names::mco::DESIRED_CONFIG);
        let said = word(it, "/status/phase") == "Ready"
            && word(it, "/status/currentConfig") == current
            && word(it, "/status/desiredConfig") == desired;
        (!said).then(|| format!("the KataNode {name} is not up to date: {}", it["status"]))
    })
}

/// What the KataConfig or the marks of nodes say that is not so; `None` if all is true.
pub fn lie(sim: &Simulation, converged: bool) -> Option<String> {
    for node in sim.api.list(&NODES).iter().filter(|node| is_marked(node)) {
        let name = word(node, "/metadata/name");
        if !has_runtime(sim, name) {
            return Some(format!("node {name} is marked, and does not have Kata"));
        }
    }
    let config = config(sim)?;
    let current = config["status"]["observedGeneration"] == config["metadata"]["generation"];
    if !current || !is_true(&config, "Ready") {
        return None;
    }
    let nodes = sim.api.list(&NODES);
    let wanted = selected(sim, &config, converged);
    nodes.iter().find_map(|node| {
        let name = word(node, "/metadata/name");
        let fine = is_marked(node) && has_runtime(sim, name);
        (wanted.contains(name) && !fine)
            .then(|| format!("the KataConfig is Ready, and node {name} does not have Kata"))
    })
}

/// Fields that differ from run to run.
const VARYING: [&str; 13] = [
    "managedFields",
    "uid",
    "resourceVersion",
    "generation",
    "observedGeneration",
    "creationTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastHeartbeatTime",
    "since",
    "history",
    "bootID",
    "bootId",
];

fn timeless(object: &Value) -> Value {
    match object {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(key, _)| !VARYING.contains(&key.as_str()))
                .map(|(key, value)| (key.clone(), timeless(value)))
                // An empty list says no more than none.
                .filter(|(_, value)| !value.is_null() && *value != json!([]))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(timeless).collect()),
        other => other.clone(),
    }
}

/// Field sets name the owners of an object by uid.
fn without_uids(fields: &Value) -> Value {
    match fields.as_object() {
        Some(map) => Value::Object(
            map.iter()
                // Whether the parent counts too depends on who made it; the list of taints is owned whole by
                // the one that took one away last.
                .filter(|(key, _)| !matches!(key.as_str(), "." | "f:taints"))
                .map(|(key, value)| {
                    let key = if key.starts_with("k:{\"uid\"") { "k:{uid}" } else { key.as_str() };
                    (key.to_owned(), without_uids(value))
                })
                .collect(),
        ),
        None => fields.clone(),
    }
}

/// The fields of an object that the operator owns.
fn ours(object: &Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let of = |entry: &Value| {
        json!({
            "operation": entry["operation"], "subresource": entry["subresource"],
            "fields": without_uids(&entry["fieldsV1"]),
        })
    };
    let mut fields: Vec<Value> = entries
        .filter(|entry| entry["manager"] == names::FIELD_MANAGER)
        .map(of)
        .filter(|entry| entry["fields"] != json!({"f:spec": {}}))
        .collect();
    fields.sort_by_key(ToString::to_string);
    json!(fields)
}

/// Whether objects of a kind come and go without meaning.
fn is_passing(def: &ResourceDef) -> bool {
    let resource = &def.resource;
    [&EVENTS, &EVENTS_V1, &LEASES, &CRDS, &NAMESPACES, &PODS].contains(&resource)
        || resource.plural == "serviceaccounts"
        || resource.plural == "configmaps"
}

/// Everything in the cluster, as far as it can be compared between runs.
pub fn state(sim: &Simulation) -> State {
    let mut state = State::new();
    for def in sim.api.registry.iter().filter(|def| !is_passing(def)) {
        for object in sim.api.store.list(&def.resource) {
            let name = word(object, "/metadata/name");
            if def.resource == MACHINECONFIGS && name.starts_with(names::mco::RENDERED_PREFIX) {
                continue;
            }
            if plain::is_passing(object) {
                continue;
            }
            let mut entry = timeless(object);
            if def.resource == MACHINECONFIGPOOLS {
                // The Machine Config Operator's report, in an order that means nothing; and the list
                // of sources has uids.
                entry["status"] = Value::Null;
                entry["spec"]["configuration"] = Value::Null;
            }
            if def.resource == CONTAINERRUNTIMECONFIGS {
                // The Machine Config Operator's report of each attempt.
                entry["status"] = Value::Null;
            }
            if def.resource == NODES {
                // Whether the startup taint went before Kata did is a matter of timing.
                let taints = plain::taints(object);
                let lasting = taints.filter(|taint| !plain::is_startup_taint(taint));
                entry = timeless(&json!({
                    "labels": object["metadata"]["labels"],
                    "unschedulable": object["spec"]["unschedulable"],
                    "taints": lasting.collect::<Vec<_>>(),
                }));
            }
            let ours = ours(object);
            if ours.as_array().is_some_and(|fields| !fields.is_empty()) {
                entry["our fields"] = ours;
            }
            if plain::is_plain(sim) {
                plain::comparable(sim, &def.kind, name, &mut entry);
            }
            state.insert(format!("{} {name}", def.kind), entry);
        }
    }
    for (name, host) in &sim.world.hosts {
        if plain::is_plain(sim) {
            state.insert(format!("host {name}"), plain::facts(host));
            continue;
        }
        let files: BTreeMap<&String, &String> =
            host.files.iter().filter(|(path, _)| path.starts_with("/etc/crio")).collect();
        let facts = json!({
            "extensions": host.extensions,
            "handlers": host.handlers.keys().collect::<Vec<_>>(),
            "files": files,
        });
        state.insert(format!("host {name}"), facts);
    }
    state
}

/// What differs between two states, as lines.
pub fn differences(found: &State, wanted: &State) -> Vec<String> {
    let names: BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
    names
        .into_iter()
        .filter(|name| found.get(*name) != wanted.get(*name))
        .map(|name| {
            let text = |state: &State| {
                state.get(name).map_or_else(|| "absent".to_owned(), Value::to_string)
            };
            let (found, wanted) = (text(found), text(wanted));
            format!("{name}: found {found}, wanted {wanted}")
        })
        .collect()
}
