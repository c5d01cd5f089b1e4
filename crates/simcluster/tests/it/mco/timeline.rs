//! What an observer sees of each object, in order: the form of the recordings in `fixtures/mco`.
//!
//! Per object one list of states, each given by what differs from the state before. A node has two
//! lists, for the daemon and the node controller write it independently of each other. Rendered
//! configurations are numbered per pool in the order of their creation.

use std::collections::BTreeMap;

use serde_json::Value;
use simcluster::api::EventKind;
use simcluster::mco;
use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES};

use super::cluster::Cluster;

type State = BTreeMap<String, String>;

/// `machine/updated/ready/unavailable/degraded` of a pool's status.
pub(super) fn counts(status: &Value) -> String {
    ["machine", "updatedMachine", "readyMachine", "unavailableMachine", "degradedMachine"]
        .map(|field| status[format!("{field}Count")].to_string())
        .join("/")
}

/// The timeline of a cluster since the test's start.
pub(super) fn of(cluster: &Cluster) -> String {
    let names = numbering(cluster);
    let mut tracks: BTreeMap<String, Vec<State>> = BTreeMap::new();
    let mut put = |track: String, state: State| {
        let states = tracks.entry(track).or_default();
        if states.last() != Some(&state) {
            states.push(state);
        }
    };
    let store = &cluster.sim.api.store;
    let mut before: BTreeMap<(String, String), std::sync::Arc<Value>> = BTreeMap::new();
    for event in store.events_after(1).unwrap().filter(|event| event.revision <= cluster.start) {
        let key = (event.resource.to_string(), event.name.clone());
        if event.kind == EventKind::Deleted {
            before.remove(&key);
        } else {
            before.insert(key, std::sync::Arc::clone(&event.current));
        }
    }
    let snapshot =
        before.into_iter().map(|((resource, name), object)| (resource, name, false, object));
    let changes = store.events_after(cluster.start).unwrap().map(|event| {
        (
            event.resource.to_string(),
            event.name.clone(),
            event.kind == EventKind::Deleted,
            std::sync::Arc::clone(&event.current),
        )
    });
    let changes: Vec<_> = snapshot.chain(changes).collect();
    for (resource, name, gone, object) in changes {
        let gone = gone.then(|| State::from([("state".to_owned(), "gone".to_owned())]));
        let state = |of: &dyn Fn(&Value, &BTreeMap<String, String>) -> State| {
            gone.clone().unwrap_or_else(|| of(&object, &names))
        };
        if resource == MACHINECONFIGS.to_string() {
            if !is_base(&name) {
                put(format!("config {}", normalise(&name, &names)), state(&config_state));
            }
        } else if resource == MACHINECONFIGPOOLS.to_string() {
            put(format!("pool {name}"), state(&pool_state));
        } else if resource == NODES.to_string() {
            put(format!("node {name} marks"), state(&marks_state));
            put(format!("node {name} update"), state(&update_state));
        }
    }
    render(tracks)
}

fn numbering(cluster: &Cluster) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut counters: BTreeMap<String, u32> = BTreeMap::new();
    for event in cluster.sim.api.store.events_after(1).unwrap() {
        if event.resource == MACHINECONFIGS
            && event.kind == EventKind::Added
            && let Some(rest) = event.name.strip_prefix("rendered-")
            && !names.contains_key(&event.name)
        {
            let (pool, _) = rest.rsplit_once('-').unwrap();
            let counter = counters.entry(pool.to_owned()).or_default();
            *counter += 1;
            names.insert(event.name.clone(), format!("R({pool}#{counter})"));
        }
    }
    names
}

fn normalise(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut text = text.replace('\n', "\\n");
    for (name, short) in names {
        if text.contains(name) {
            text = text.replace(name, short);
        }
    }
    text
}

/// Whether a configuration is one of those that every cluster has.
fn is_base(name: &str) -> bool {
    let rest = name.split_once('-').map_or("", |(_, rest)| rest);
    !name.starts_with("rendered-") && (rest.starts_with("worker") || rest.starts_with("master"))
}

fn set(state: &mut State, key: &str, value: impl Into<String>) {
    state.insert(key.to_owned(), value.into());
}

fn config_state(object: &Value, _names: &BTreeMap<String, String>) -> State {
    State::from([("gen".to_owned(), object["metadata"]["generation"].to_string())])
}

fn pool_state(object: &Value, names: &BTreeMap<String, String>) -> State {
    let (spec, status) = (&object["spec"], &object["status"]);
    let text = |value: &Value| normalise(value.as_str().unwrap_or("-"), names);
    let mut state = State::new();
    set(&mut state, "gen", object["metadata"]["generation"].to_string());
    set(&mut state, "config", text(&spec["configuration"]["name"]));
    if spec["paused"] == true {
        set(&mut state, "paused", "true");
    }
    if !spec["maxUnavailable"].is_null() {
        set(&mut state, "max", spec["maxUnavailable"].to_string());
    }
    let mut source: Vec<&str> = Vec::new();
    for item in spec["configuration"]["source"].as_array().into_iter().flatten() {
        let name = item["name"].as_str().unwrap();
        let name = if is_base(name) { "base" } else { name };
        if source.last() != Some(&name) || name != "base" {
            source.push(name);
        }
    }
    if !source.is_empty() {
        set(&mut state, "source", source.join(" "));
    }
    if status.is_object() {
        let observed = &status["observedGeneration"];
        let observed = if observed.is_null() { "-".to_owned() } else { observed.to_string() };
        set(&mut state, "obs", observed);
        set(&mut state, "done", text(&status["configuration"]["name"]));
        set(&mut state, "counts", counts(status));
        let conditions: Vec<String> = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|condition| {
                let mut line =
                    format!("{}={}", text(&condition["type"]), text(&condition["status"]));
                if condition["reason"] != "" {
                    line += &format!(" [{}]", text(&condition["reason"]));
                }
                if condition["message"] != "" {
                    line += &format!(" \"{}\"", text(&condition["message"]));
                }
                line
            })
            .collect();
        set(&mut state, "conditions", conditions.join(", "));
    }
    state
}

fn update_state(object: &Value, names: &BTreeMap<String, String>) -> State {
    let mut state = State::new();
    for (key, field) in [
        (mco::CURRENT_CONFIG, "current"),
        (mco::DESIRED_CONFIG, "desired"),
        (mco::STATE, "state"),
        (mco::REASON, "reason"),
        (mco::POST_CONFIG_ACTION, "action"),
        (mco::DESIRED_DRAIN, "drain"),
        (mco::LAST_APPLIED_DRAIN, "drained"),
    ] {
        if let Some(value) = object["metadata"]["annotations"][key].as_str() {
            set(&mut state, field, normalise(value, names));
        }
    }
    let cordoned = object["spec"]["unschedulable"] == true;
    set(&mut state, "cordoned", cordoned.to_string());
    let ready = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready")
        .and_then(|condition| condition["status"].as_str());
    set(&mut state, "ready", ready.unwrap_or("False"));
    state
}

fn marks_state(object: &Value, names: &BTreeMap<String, String>) -> State {
    let mut state = State::new();
    let roles: Vec<&str> = object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    set(&mut state, "roles", roles.join(" "));
    let annotations = &object["metadata"]["annotations"];
    let desired = annotations[mco::DESIRED_CONFIG].as_str().unwrap_or("-");
    set(&mut state, "desired", normalise(desired, names));
    let taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let tainted = taints.iter().any(|taint| taint["key"] == "UpdateInProgress");
    set(&mut state, "tainted", tainted.to_string());
    if !annotations["machineconfiguration.openshift.io/customPoolLabelsApplied"].is_null() {
        set(&mut state, "relabelled", "true");
    }
    state
}

/// A status that is written in the sync that retargets nodes may or may not know of it yet, in the
/// recordings as well: of two states that differ in a growing `unavailable`, only the later counts.
fn without_stale(states: Vec<State>) -> Vec<State> {
    let split = |state: &State| {
        let counts = state.get("counts")?;
        let mut parts: Vec<u32> = counts.split('/').filter_map(|part| part.parse().ok()).collect();
        let unavailable = (parts.len() == 5).then(|| parts.remove(3))?;
        let mut rest = state.clone();
        rest.remove("counts");
        Some((rest, parts, unavailable))
    };
    let mut kept: Vec<State> = Vec::new();
    for state in states {
        while let (Some(last), Some(new)) = (kept.last().and_then(&split), split(&state)) {
            if last.0 != new.0 || last.1 != new.1 || last.2 >= new.2 {
                break;
            }
            kept.pop();
        }
        if kept.last() != Some(&state) {
            kept.push(state);
        }
    }
    kept
}

fn render(tracks: BTreeMap<String, Vec<State>>) -> String {
    let mut text = String::new();
    for (track, mut states) in tracks {
        if track.starts_with("pool ") {
            states = without_stale(states);
        }
        text += &format!("{track}\n");
        let mut previous = State::new();
        for state in states {
            let mut keys: Vec<&String> = state.keys().chain(previous.keys()).collect();
            keys.sort();
            keys.dedup();
            let changes: Vec<String> = keys
                .into_iter()
                .filter(|key| state.get(*key) != previous.get(*key))
                .map(|key| format!("{key}: {}", state.get(key).map_or("-", String::as_str)))
                .collect();
            text += &format!("  {}\n", changes.join(" | "));
            previous = state;
        }
    }
    text
}
