//! What a write asks for and what it answers: the one shape that HTTP, the in-process client and the
//! controllers inside the cluster share.
//!
//! Nothing here knows HTTP: content types and query parameters are parsed before.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::Resource;
use crate::api::authentication::User;

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The time of the request.
    pub now: Timestamp,
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteVerb {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch(PatchType),
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection: of the objects, as namespace and name, that the request's selectors
    /// chose.
    DeleteCollection(Vec<(String, String)>),
}

/// The kind of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/apply-patch+yaml`.
    Apply,
}

/// What happens with unknown fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// The request fails.
    Strict,
    /// The request succeeds with a warning per field.
    #[default]
    Warn,
    /// They are dropped in silence.
    Ignore,
}

/// The query parameters of a write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// `fieldManager`, or where that is missing, the first part of the User-Agent; for
    /// [`PatchType::Apply`] only the parameter itself. Empty means that the client named none.
    pub field_manager: String,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// `dryRun=All`: everything is checked, nothing is written.
    pub dry_run: bool,
    /// `force` of server-side apply.
    pub force: bool,
}

/// A request that writes.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// Who asks; none for the cluster itself, which no admission policy sees.
    pub user: Option<User>,
    /// What to do.
    pub verb: WriteVerb,
    /// To which resource.
    pub resource: Resource,
    /// In which namespace; empty for cluster-scoped resources.
    pub namespace: String,
    /// The name in the URL; empty for a POST to a collection.
    pub name: String,
    /// `""`, `status`, `scale`, `binding`, `eviction`, `finalize`, `approval`.
    pub subresource: String,
    /// The decoded body; for deletions `DeleteOptions` with what the query says merged in, or null.
    pub body: Value,
    /// The query parameters.
    pub options: WriteOptions,
}

/// The answer to a write that succeeded.
#[derive(Clone, Debug)]
pub struct WriteResponse {
    /// 200 or 201.
    pub code: u16,
    /// The object, or a `Status`, as the real API server answers it.
    pub object: Arc<Value>,
    /// The texts of `Warning` headers.
    pub warnings: Vec<String>,
}

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// `Background` (default), `Foreground` or `Orphan`.
    pub propagation: Option<String>,
    /// Grace period in seconds; `None` means the object's default.
    pub grace_seconds: Option<i64>,
    /// Precondition on the uid.
    pub uid: Option<String>,
    /// Precondition on the resourceVersion.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads a `DeleteOptions` object; anything else means no options.
    pub fn from_value(body: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let propagation = text(&body["propagationPolicy"]).or_else(|| {
            body["orphanDependents"]
                .as_bool()
                .map(|orphan| if orphan { "Orphan" } else { "Background" }.to_owned())
        });
        Self {
            propagation,
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
        }
    }
}
