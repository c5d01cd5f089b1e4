//! Failures of the API as Kubernetes reports them: a `Status` object with code and reason.

use serde_json::{Value, json};

/// An error answer of the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`; empty where the real server sends none.
    pub reason: &'static str,
    /// The message that kubectl shows.
    pub message: String,
    /// `Status.details`, if the real server sends them.
    pub details: Option<Value>,
    /// A token with which an expired list can go on, as `Status.metadata.continue`.
    pub continue_token: Option<String>,
}

impl ApiError {
    /// An error without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    /// The same error with `details`.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// `404 NotFound` for an object.
    pub fn not_found(resource: &crate::Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found"))
            .with_details(Self::object_details(name, &resource.group, &resource.plural))
    }

    /// `409 AlreadyExists` for an object.
    pub fn already_exists(resource: &crate::Resource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"))
            .with_details(Self::object_details(name, &resource.group, &resource.plural))
    }

    /// `409 Conflict` for a stale resourceVersion.
    pub fn conflict(resource: &crate::Resource, name: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {resource} \"{name}\": the object has been modified; \
                 please apply your changes to the latest version and try again"
            ),
        )
        .with_details(Self::object_details(name, &resource.group, &resource.plural))
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        status
    }
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, such as `spec.rollout.maxUnavailable`.
    pub field: String,
    /// The cause's reason, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// What is wrong, as it follows the field, such as `Required value`.
    pub message: String,
}

impl ApiError {
    /// `422 Invalid` with one cause per error, sorted by field.
    pub fn invalid(group: &str, kind: &str, name: &str, mut errors: Vec<FieldError>) -> Self {
        // The remark that rules were not checked has no field, and comes last.
        errors.sort_by(|a, b| (a.field == "<nil>", &a.field).cmp(&(b.field == "<nil>", &b.field)));
        // The message says a thing once, even where several checks found it.
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(|e| format!("{}: {}", e.field, e.message)) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text =
            if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) };
        let full_kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field}))
            .collect();
        let mut details = Self::object_details(name, group, kind);
        details["causes"] = Value::Array(causes);
        Self::new(422, "Invalid", format!("{full_kind} \"{name}\" is invalid: {text}"))
            .with_details(details)
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// The errors of the write path.
impl ApiError {
    /// What a ValidatingAdmissionPolicy denies, for a reason of its validation; `422 Invalid` without one.
    pub(crate) fn of_policy(
        resource: &crate::Resource,
        name: &str,
        reason: &str,
        text: &str,
    ) -> Self {
        let mut error = Self::forbidden(resource, name, text);
        (error.code, error.reason) = match reason {
            "Forbidden" => (403, "Forbidden"),
            "Unauthorized" => (401, "Unauthorized"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        if let Some(details) = &mut error.details {
            details["causes"] = json!([{"message": text}]);
        }
        error
    }

    /// Whether a ValidatingAdmissionPolicy denied the request.
    pub(crate) fn is_of_policy(&self) -> bool {
        self.message.contains("ValidatingAdmissionPolicy '")
    }

    /// `400 BadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// `404 NotFound` for a resource that is not served.
    pub fn unknown_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_details(json!({}))
    }

    /// `405 MethodNotAllowed`.
    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    /// `403 Forbidden` for an object.
    pub fn forbidden(resource: &crate::Resource, name: &str, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{resource} \"{name}\" is forbidden: {why}"))
            .with_details(Self::object_details(name, &resource.group, &resource.plural))
    }

    /// `409 Conflict` for another reason than a stale resourceVersion.
    pub fn conflict_on(resource: &crate::Resource, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"),
        )
        .with_details(Self::object_details(name, &resource.group, &resource.plural))
    }

    /// `Status.details` of an object; empty parts are left out, as the real server does.
    pub fn object_details(name: &str, group: &str, kind: &str) -> Value {
        let mut details = serde_json::Map::new();
        for (key, text) in [("name", name), ("group", group), ("kind", kind)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), json!(text));
            }
        }
        Value::Object(details)
    }
}

impl FieldError {
    /// A value that is wrong; `value` is shown as JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {why}"),
        }
    }

    /// A value that is missing.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    /// A value that may not be there.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {why}"),
        }
    }

    /// A value outside a closed set.
    pub fn unsupported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|text| format!("\"{text}\"")).collect();
        Self {
            field: field.into(),
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: \"{value}\": supported values: {}",
                supported.join(", ")
            ),
        }
    }
}
