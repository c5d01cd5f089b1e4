//! The files that install the operator: chart, bundle, alerts, dashboard and the health script for Argo CD agree
//! with the manifests and with the documentation.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as expected"
)]

mod argocd;
mod bundle;
mod chart;
mod files;
mod linter;
mod monitoring;
mod rules;
