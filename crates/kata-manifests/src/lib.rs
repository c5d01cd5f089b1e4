//! Generators: the CustomResourceDefinitions, everything else that installs the operator, the alerts and the
//! dashboard. Plain values in, text out; the same input gives the same bytes.
//!
//! This crate uses no client and no files. The Helm chart (`deploy/helm`) and the OLM bundle (`deploy/olm`)
//! are files that people edit; the tests of this crate compare them with [`manifests`].

pub mod alerts;
pub mod dashboard;
pub mod manifests;

/// Text that cannot be rendered, which is a bug.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A value is not JSON.
    #[error("cannot render JSON")]
    Json(#[from] serde_json::Error),
    /// A value is not YAML.
    #[error("cannot render YAML")]
    Yaml(#[from] serde_saphyr::ser::Error),
}
