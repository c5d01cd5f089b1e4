//! The controllers of the Kubernetes controller manager that look after the API itself: garbage
//! collection, namespaces, and the instances of deleted CustomResourceDefinitions.
//!
//! They see the cluster through the API only, and never touch the hosts.

mod crd;
mod garbage;
mod namespace;

use crate::Controller;
pub use crd::DefinitionCleanup;
pub use garbage::GarbageCollector;
pub use namespace::NamespaceController;

/// All controllers of this module, in the order in which they learn of a change.
pub fn all() -> Vec<Box<dyn Controller>> {
    vec![
        Box::<GarbageCollector>::default(),
        Box::<NamespaceController>::default(),
        Box::<DefinitionCleanup>::default(),
    ]
}
