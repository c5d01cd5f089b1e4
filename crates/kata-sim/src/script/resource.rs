//! Kinds as a script names them.

use simcluster::Simulation;
use simcluster::api::registry::ResourceDef;

/// The definition of a kind that a script names as kubectl would.
pub(crate) fn resource<'a>(sim: &'a Simulation, kind: &str) -> Result<&'a ResourceDef, String> {
    let kind = kind.to_ascii_lowercase();
    sim.api
        .registry
        .iter()
        .find(|def| {
            def.resource.plural == *kind
                || def.singular == *kind
                || def.kind.eq_ignore_ascii_case(&kind)
                || def.short_names.iter().any(|short| *short == *kind)
        })
        .map(AsRef::as_ref)
        .ok_or_else(|| format!("the cluster serves no kind {kind:?}"))
}
