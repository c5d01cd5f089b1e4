//! Where the API server serves a kind of objects. This module sends nothing.

use kube::Resource;

/// A kind of objects, and where they are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) kind: String,
    pub(super) path: String,
    /// The label selector of lists and watches.
    pub(super) labels: Option<String>,
}

impl Endpoint {
    /// The endpoint of a cluster-scoped kind, or of all namespaces.
    pub fn cluster<K: Resource<DynamicType = ()>>() -> Self {
        Self { kind: K::kind(&()).into_owned(), path: K::url_path(&(), None), labels: None }
    }

    /// The endpoint of a kind in a namespace.
    pub fn namespaced<K: Resource<DynamicType = ()>>(namespace: &str) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            path: K::url_path(&(), Some(namespace)),
            labels: None,
        }
    }

    /// The endpoint of a kind of the plan.
    pub fn of(kind: kata_plan::Kind) -> Self {
        let version = kind.api_version();
        let root = if version.contains('/') { "apis" } else { "api" };
        Self {
            kind: kind.as_str().to_owned(),
            path: format!("/{root}/{version}/{}", kind.plural()),
            labels: None,
        }
    }

    /// The endpoint of a kind of the plan in a namespace.
    pub fn within(kind: kata_plan::Kind, namespace: &str) -> Self {
        let Self { kind: name, path, labels } = Self::of(kind);
        let path = match path.rsplit_once('/') {
            Some((root, plural)) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => path,
        };
        Self { kind: name, path, labels }
    }

    /// The same endpoint; its lists and watches select the objects with these labels.
    #[must_use]
    pub fn labelled(self, selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..self }
    }

    /// The endpoint of an object.
    pub fn for_object(object: &kata_plan::ObjectRef) -> Self {
        match &object.namespace {
            Some(namespace) => Self::within(object.kind, namespace),
            None => Self::of(object.kind),
        }
    }

    /// The kind, such as `Node`.
    pub fn kind(&self) -> &str {
        &self.kind
    }
}
