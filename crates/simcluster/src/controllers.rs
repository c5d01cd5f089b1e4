//! The controllers of the Kubernetes controller manager that look after the API itself: garbage
//! collection, namespaces and their default service accounts, aggregated ClusterRoles, and the
//! instances of deleted CustomResourceDefinitions.
//!
//! They see the cluster through the API only, and never touch the hosts.

mod aggregation;
mod crd;
mod garbage;
mod namespace;
mod service_account;

use crate::Controller;
pub use aggregation::RoleAggregation;
pub use crd::DefinitionCleanup;
pub use garbage::GarbageCollector;
pub use namespace::NamespaceController;
pub use service_account::ServiceAccounts;

/// All controllers of this module, in the order in which they learn of a change.
pub fn all() -> Vec<Box<dyn Controller>> {
    vec![
        Box::<GarbageCollector>::default(),
        Box::<NamespaceController>::default(),
        Box::<DefinitionCleanup>::default(),
        Box::new(ServiceAccounts),
        Box::new(RoleAggregation),
    ]
}
