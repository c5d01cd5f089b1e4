//! Reviews: who am I, and may somebody do something.
//!
//! They read; what a review says holds for requests too.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::authentication::{self, AUDIENCE, Signer, User};
use super::error::{ApiError, FieldError};
use super::rbac::{self, Access};
use super::server::ApiServer;

/// Who asks for a review, and when.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The user.
    pub user: &'a User,
    /// The key of the tokens, if tokens are checked.
    pub signer: Option<&'a Signer>,
    /// The namespace in the path; empty if there is none.
    pub namespace: &'a str,
    /// When.
    pub now: Timestamp,
}

/// Answers a review; `body` is the review as the client sent it, or null.
///
/// # Errors
/// `422` for a question about nothing, about two things, or locally about another namespace.
pub fn answer(
    api: &ApiServer,
    kind: &str,
    group: &str,
    body: &Value,
    asker: Asker<'_>,
) -> Result<Value, ApiError> {
    let Asker { user, signer, namespace, now } = asker;
    let mut review = json!({
        "kind": kind, "apiVersion": format!("{group}/v1"),
        "metadata": {"creationTimestamp": null}, "spec": body["spec"],
    });
    let spec = &body["spec"];
    check(kind, spec, namespace).map_err(|error| ApiError::invalid(group, "", "", vec![error]))?;
    review["status"] = match kind {
        "SelfSubjectReview" => json!({"userInfo": user.to_info()}),
        "TokenReview" => {
            let token = spec["token"].as_str().unwrap_or_default();
            match authentication::of_token(api, signer, token, now) {
                Some(user) => json!({
                    "authenticated": true, "user": user.to_info(), "audiences": [AUDIENCE],
                }),
                None => json!({"user": {}, "error": "invalid bearer token"}),
            }
        }
        "SelfSubjectRulesReview" => {
            rbac::rules(api, user, spec["namespace"].as_str().unwrap_or_default())
        }
        "SelfSubjectAccessReview" => decision(api, user, spec),
        _ => decision(api, &User::from_review(spec), spec),
    };
    Ok(review)
}

fn check(kind: &str, spec: &Value, namespace: &str) -> Result<(), FieldError> {
    if !kind.ends_with("AccessReview") {
        return Ok(());
    }
    let object = &spec["resourceAttributes"];
    if object.is_null() == spec["nonResourceAttributes"].is_null() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        return Err(FieldError::invalid("spec.resourceAttributes", object, why));
    }
    let about = &object["namespace"];
    if kind == "LocalSubjectAccessReview" && about.as_str() != Some(namespace) {
        let field = "spec.resourceAttributes.namespace";
        return Err(FieldError::invalid(field, about, "must match metadata.namespace"));
    }
    Ok(())
}

fn decision(api: &ApiServer, user: &User, spec: &Value) -> Value {
    let verdict = rbac::judge(api, user, &Access::from_review(spec));
    let mut status = json!({"allowed": verdict.allowed});
    if !verdict.reason.is_empty() {
        status["reason"] = json!(verdict.reason);
    }
    status
}
