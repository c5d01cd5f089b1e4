//! The back end on OpenShift: the Machine Config Operator changes the nodes, and this module writes its
//! objects (MachineConfig, pool, ContainerRuntimeConfig) and the role label of nodes.
//!
//! It returns an [`Assessment`](crate::assessment::Assessment).

mod assess;
pub(crate) mod bodies;
mod changes;
mod desired;
pub(crate) mod installed;
pub(crate) mod mode;
mod monitor;
pub(crate) mod monitor_body;
mod node;
mod objects;
mod payload;
mod pools;
mod removal;
mod rendered;
mod selection;
mod waiting;

pub(crate) use assess::assess;
pub(crate) use rendered::{contains_kata, missing_machine_configs};
