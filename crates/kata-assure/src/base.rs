//! The clusters on which workloads begin, made once and kept as states that simulations go on from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kata_api::names;
use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::api::ApiError;
use simcluster::state::{State, StateError};

use crate::deeds;
use crate::episode::{self, EpisodeError};
use crate::plan::{self, Deed, Plan};
use crate::shape::Topology;
use crate::workload::{Base, Workload};

/// The bases that were made so far.
#[derive(Debug, Default)]
pub struct Bases(Mutex<BTreeMap<(Topology, Base), Arc<State>>>);

impl Bases {
    /// The state of a base; made at the first call, which takes an episode.
    ///
    /// # Errors
    /// If the episode that makes it fails.
    pub fn state(&self, topology: Topology, base: Base) -> Result<Arc<State>, EpisodeError> {
        if let Some(state) = self.known(topology, base) {
            return Ok(state);
        }
        let state = Arc::new(self.make(topology, base)?);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(known.entry((topology, base)).or_insert(state)))
    }

    fn known(&self, topology: Topology, base: Base) -> Option<Arc<State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(topology, base)).cloned()
    }

    fn make(&self, topology: Topology, base: Base) -> Result<State, EpisodeError> {
        let installed = || self.state(topology, Base::Installed);
        match base {
            Base::Clean => Ok(State::of(&topology.build()?, &topology.layout())),
            Base::Installed => {
                let plan = Plan::calm(Workload::Install, topology);
                episode::left_behind(&plan, self, |_| Ok(()))
            }
            Base::InstalledWithPod => {
                let mut sim = restore(&*installed()?)?;
                let name = "sandboxed".to_owned();
                deeds::change(&mut sim, &Deed::Pod { name, class: plan::usual_class() })?;
                sim.advance(std::time::Duration::from_secs(60));
                Ok(State::of(&sim, &topology.layout()))
            }
            Base::InstalledWithDebug => {
                let plan = Plan::calm(Workload::LogLevel, topology);
                episode::left_behind(&plan, self, |_| Ok(()))
            }
            Base::GoOperator => left_by_go_operator(&*installed()?, topology),
        }
    }
}

/// A simulation that goes on from a state.
///
/// # Errors
/// If it cannot.
pub fn restore(state: &State) -> Result<Simulation, StateError> {
    let state = state.clone();
    let now = state.now;
    state.restore(now)
}

/// Turns what this operator installed into what the Go operator leaves: no label of ours, no owner
/// references besides the RuntimeClass's, other field managers, its status and both finalizers.
fn left_by_go_operator(installed: &State, topology: Topology) -> Result<State, EpisodeError> {
    let mut document: Value = serde_json::from_slice(&installed.to_json()?)
        .map_err(|error| EpisodeError::Base(error.to_string()))?;
    let objects = document["objects"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let objects: Vec<Value> = objects
        .into_iter()
        .filter(|stored| stored["plural"] != "katanodes" && stored["plural"] != "events")
        .map(|mut stored| {
            let plural = stored["plural"].as_str().unwrap_or_default().to_owned();
            disguise(&plural, &mut stored["object"]);
            stored
        })
        .collect();
    document["objects"] = Value::Array(objects);
    let text =
        serde_json::to_vec(&document).map_err(|error| EpisodeError::Base(error.to_string()))?;
    let sim = restore(&State::from_json(&text)?)?;
    Ok(State::of(&sim, &topology.layout()))
}

fn disguise(plural: &str, object: &mut Value) {
    if let Some(Value::Array(entries)) = object.pointer_mut("/metadata/managedFields") {
        for entry in entries.iter_mut().filter(|entry| entry["manager"] == names::FIELD_MANAGER) {
            entry["manager"] = json!("manager");
            entry["operation"] = json!("Update");
        }
    }
    if let Some(Value::Object(labels)) = object.pointer_mut("/metadata/labels") {
        let ours = labels.get(names::MANAGED_BY).is_some_and(|by| by == names::PRODUCT);
        if ours {
            labels.remove(names::MANAGED_BY);
            labels.remove(names::PART_OF);
        }
        labels.remove(names::RUNTIME_LABEL);
        labels.retain(|key, _| !key.starts_with(names::CLASS_LABEL_PREFIX));
    }
    match plural {
        "runtimeclasses" if object["handler"] == names::RUNTIME_CLASS => {
            if let Some(Value::Object(metadata)) = object.pointer_mut("/metadata") {
                metadata.remove("labels");
            }
            if let Some(Value::Object(selector)) = object.pointer_mut("/scheduling/nodeSelector") {
                selector.remove(names::RUNTIME_LABEL);
                selector.retain(|key, _| !key.starts_with(names::CLASS_LABEL_PREFIX));
            }
        }
        "kataconfigs" => {
            object["metadata"]["finalizers"] = json!([names::FINALIZER, names::LEGACY_FINALIZER]);
            object["status"] = json!({
                "runtimeClasses": ["kata"],
                "waitingForMcoToStart": false,
                "conditions": [{
                    "type": "InProgress", "status": "False", "reason": "Completed", "message": "",
                    "lastTransitionTime": "2025-12-31T00:00:00Z",
                }],
                "kataNodes": {"nodeCount": 1, "readyNodeCount": 1, "installed": []},
            });
        }
        _ => {}
    }
}

impl From<ApiError> for EpisodeError {
    fn from(error: ApiError) -> Self {
        Self::Base(error.message)
    }
}

impl From<StateError> for EpisodeError {
    fn from(error: StateError) -> Self {
        Self::Base(error.to_string())
    }
}
