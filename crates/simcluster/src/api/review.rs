//! Reviews and tokens: who am I, may I, and a token for a service account.
//!
//! The simulated API server lets everybody in; only impersonated users are held against RBAC.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::rbac::{Access, User};
use super::server::ApiServer;

/// Answers a review; `body` is the review as the client sent it, or null.
pub fn answer(api: &ApiServer, kind: &str, group: &str, body: &Value, user: &User) -> Value {
    let mut review = json!({
        "kind": kind, "apiVersion": format!("{group}/v1"),
        "metadata": {"creationTimestamp": null}, "spec": body["spec"],
    });
    let spec = &body["spec"];
    review["status"] = match kind {
        "SelfSubjectReview" => json!({"userInfo": user.to_info()}),
        "TokenReview" => match User::of_token(spec["token"].as_str().unwrap_or_default()) {
            Some(user) => json!({"authenticated": true, "user": user.to_info()}),
            None => {
                json!({"user": {}, "error": "the simulated API server did not give out this token"})
            }
        },
        "SelfSubjectRulesReview" => {
            super::rbac::rules(api, user, spec["namespace"].as_str().unwrap_or_default())
        }
        "SelfSubjectAccessReview" => decision(api, user, spec),
        _ => decision(api, &User::from_review(spec), spec),
    };
    review
}

fn decision(api: &ApiServer, user: &User, spec: &Value) -> Value {
    let allowed = super::rbac::allows(api, user, &Access::from_review(spec));
    if allowed {
        json!({"allowed": true, "reason": "simulated"})
    } else {
        json!({"allowed": false})
    }
}

/// Answers a TokenRequest with a token that looks like a JWT and names the service account, unsigned.
pub fn token(namespace: &str, name: &str, body: &Value, now: Timestamp) -> Value {
    let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
    let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
    let claims = json!({
        "iss": "simulated", "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "exp": expires.as_second(), "iat": now.as_second(),
    });
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": null},
        "spec": {
            "audiences": body["spec"]["audiences"].as_array().cloned().unwrap_or_default(),
            "expirationSeconds": seconds, "boundObjectRef": null,
        },
        "status": {
            "token": format!("{header}.{claims}.simulated"),
            "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    })
}
