//! What of a cluster survives the end of the process: the API server's objects and counters, and the
//! hosts.
//!
//! Controllers' memories and the agenda do not: as on real machines, controllers begin anew from the
//! objects. Nothing here reads or writes files.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::api::ApiServer;
use crate::api::authentication::Signer;
use crate::api::registry::{self, Registry};
use crate::api::server::Identity;
use crate::api::store::Store;
use crate::resource::CRDS;
use crate::topology::{self, Layout};
use crate::world::{Host, Platform, World};
use crate::{Resource, Simulation, mco, openshift};

/// The format that [`State`] is written in; it changes when an older program could not read it.
pub const FORMAT: u32 = 1;

/// An object of the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stored {
    group: String,
    plural: String,
    namespace: String,
    name: String,
    #[serde(serialize_with = "write_shared", deserialize_with = "read_shared")]
    object: Arc<Value>,
}

fn write_shared<S: Serializer>(object: &Arc<Value>, serializer: S) -> Result<S::Ok, S::Error> {
    object.as_ref().serialize(serializer)
}

fn read_shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Value>, D::Error> {
    Value::deserialize(deserializer).map(Arc::new)
}

/// A cluster at one moment. Taking it is cheap: objects are shared, hosts copied.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// See [`FORMAT`].
    pub format: u32,
    /// Always true: the file is about no real machine.
    pub simulated: bool,
    /// What the cluster was made of when it was new.
    pub layout: Layout,
    /// The cluster's time when the state was taken.
    pub now: Timestamp,
    /// The revision of the store.
    pub revision: u64,
    identity: Identity,
    objects: Vec<Stored>,
    hosts: BTreeMap<String, Host>,
    /// The key of the API server's tokens, if it checks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<Signer>,
}

/// Why a state cannot be read or gone on from.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Not a state, or a damaged one.
    #[error("it is not the state of a simulated cluster: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A state of another version of this program.
    #[error("it has format {found}, and this version reads format {FORMAT}")]
    Format {
        /// What the state says.
        found: u64,
    },
    /// A CustomResourceDefinition that this version cannot serve.
    #[error("it has a CustomResourceDefinition {0} that cannot be served")]
    Definition(String),
}

impl State {
    /// The state of a cluster that was made with `layout`.
    pub fn of(simulation: &Simulation, layout: &Layout) -> Self {
        let objects =
            simulation.api.store.iter().map(|(resource, namespace, name, object)| Stored {
                group: resource.group.to_string(),
                plural: resource.plural.to_string(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                object: Arc::clone(object),
            });
        Self {
            format: FORMAT,
            simulated: true,
            layout: layout.clone(),
            now: simulation.now(),
            revision: simulation.api.store.revision(),
            identity: simulation.api.identity(),
            objects: objects.collect(),
            hosts: simulation.world.hosts.clone(),
            signer: simulation.frontend.signer.clone(),
        }
    }

    /// Reads what [`State::to_json`] gave.
    ///
    /// # Errors
    /// If it is no state, or one of another format.
    pub fn from_json(text: &[u8]) -> Result<Self, StateError> {
        #[derive(Deserialize)]
        struct Header {
            format: u64,
        }
        let Header { format } = serde_json::from_slice(text)?;
        if format != u64::from(FORMAT) {
            return Err(StateError::Format { found: format });
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// The state as one JSON document.
    ///
    /// # Errors
    /// Never for a state that was taken; the encoder's type has an error.
    pub fn to_json(&self) -> Result<Vec<u8>, StateError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// A cluster that goes on from the state, with new controllers, when its clock shows `now`.
    ///
    /// # Errors
    /// If it has definitions that cannot be served.
    pub fn restore(self, now: Timestamp) -> Result<Simulation, StateError> {
        let now = now.max(self.now);
        let mut registry = Registry::default();
        for crd in self.objects.iter().filter(|stored| stored.resource() == CRDS) {
            let def = registry::definition(&crd.object)
                .map_err(|_errors| StateError::Definition(crd.name.clone()))?;
            registry.insert(def);
        }
        let objects = self
            .objects
            .into_iter()
            .map(|stored| (stored.resource(), stored.namespace, stored.name, stored.object));
        let store = Store::restored(self.revision, objects);
        let api = ApiServer::restored(store, registry, self.identity);
        let mut world = World::starting_at(now);
        world.platform = self.layout.platform;
        world.hosts = self.hosts;
        let mut simulation = Simulation::restored(now, api, world);
        topology::add_controllers(&mut simulation);
        if self.layout.platform == Platform::OpenShift {
            mco::add_controllers(&mut simulation, self.layout.timing);
            openshift::add_controllers(&mut simulation);
        }
        simulation.introduce();
        Ok(simulation)
    }
}

impl Stored {
    fn resource(&self) -> Resource {
        Resource::dynamic(self.group.clone(), self.plural.clone())
    }
}
