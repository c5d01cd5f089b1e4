//! Authentication: who sends a request, and the tokens that say so.
//!
//! What a user may do is decided elsewhere. Signatures are good enough for a simulation on the loopback
//! interface, and for nothing else.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::{SignedDuration, Timestamp};
use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::{ApiError, FieldError};
use super::server::ApiServer;
use crate::resource::SERVICEACCOUNTS;

/// The group whose members may do everything.
pub(super) const MASTERS: &str = "system:masters";
/// The group of everybody who is known.
pub(super) const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody who is not known.
pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of everybody who is not known.
const ANONYMOUS: &str = "system:anonymous";
/// Whom the API server's tokens are for.
pub(super) const AUDIENCE: &str = "https://kubernetes.default.svc";
/// How tokens end that nobody checks.
const UNSIGNED: &str = "simulated";
/// The shortest life of a token, in seconds.
const SHORTEST: i64 = 600;

/// Who sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name, such as `system:serviceaccount:NAMESPACE:NAME`.
    pub name: String,
    /// The uid; empty if there is none.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The administrator.
    pub fn admin() -> Self {
        Self::named("kubernetes-admin", &[MASTERS, AUTHENTICATED])
    }

    fn named(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    fn service_account(namespace: &str, name: &str) -> Self {
        let mut user = Self::named(&format!("system:serviceaccount:{namespace}:{name}"), &[]);
        user.groups = service_account_groups(namespace);
        user.groups.push(AUTHENTICATED.to_owned());
        user
    }

    /// Whether everything is allowed without a look at any rule.
    pub fn is_admin(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// The node whose kubelet the user is.
    pub fn node(&self) -> Option<&str> {
        let name = self.name.strip_prefix("system:node:")?;
        self.is_in("system:nodes").then_some(name)
    }

    /// Whether the user belongs to the group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    /// The user that a SubjectAccessReview asks about: with the groups that it names, and no others.
    pub fn from_review(spec: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let groups = spec["groups"].as_array().into_iter().flatten();
        Self {
            name: text(&spec["user"]),
            uid: text(&spec["uid"]),
            groups: groups.map(text).collect(),
            ..Self::default()
        }
    }

    /// `userInfo` of reviews.
    pub fn to_info(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }

    /// The user whom impersonation headers name, if they name one. Whether that is allowed is another
    /// question.
    ///
    /// # Errors
    /// `500` for headers that name no user, as the real server answers.
    pub fn impersonated(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect()
        };
        let mut user = Self {
            name: all("impersonate-user").into_iter().next().unwrap_or_default(),
            uid: all("impersonate-uid").into_iter().next().unwrap_or_default(),
            groups: all("impersonate-group"),
            ..Self::default()
        };
        for key in headers.keys() {
            if let Some(extra) = key.as_str().strip_prefix("impersonate-extra-") {
                user.extra.insert(extra.to_owned(), all(key.as_str()));
            }
        }
        if user.name.is_empty() {
            if user == Self::default() {
                return Ok(None);
            }
            return Err(ApiError::new(
                500,
                "InternalError",
                "Internal error occurred: impersonation headers without Impersonate-User",
            ));
        }
        if user.groups.is_empty()
            && let Some((namespace, _)) = user.service_account_name()
        {
            user.groups = service_account_groups(namespace);
        }
        let known = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if user.name == ANONYMOUS {
            if !user.is_in(UNAUTHENTICATED) {
                user.groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !user.groups.iter().any(known) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Ok(Some(user))
    }

    /// Namespace and name, if the user is a service account.
    pub fn service_account_name(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix("system:serviceaccount:")?.split_once(':')
    }
}

fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Who somebody is that shows no token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strangers {
    /// Anonymous, as on a real API server.
    #[default]
    Anonymous,
    /// The administrator: kubectl sends no token over a connection without TLS.
    Admin,
}

/// The key with which an API server that authenticates signs its tokens.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signer {
    key: [u64; 2],
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

impl Signer {
    /// A signer with this key.
    pub fn new(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// The administrator's token, which does not expire.
    pub fn admin_token(&self) -> String {
        format!("{UNSIGNED}-admin.{}", self.sign("admin"))
    }

    fn sign(&self, text: &str) -> String {
        let mut digest = Md5::new();
        digest.update(self.key[0].to_le_bytes());
        digest.update(text.as_bytes());
        digest.update(self.key[1].to_le_bytes());
        URL_SAFE_NO_PAD.encode(digest.finalize())
    }
}

/// Who sends a request with these headers, before any impersonation. Without a signer whoever shows no
/// service account's token is the administrator, with one `strangers` says it.
///
/// # Errors
/// `401` for a token that is not valid at `now`.
pub fn authenticate(
    api: &ApiServer,
    signer: Option<&Signer>,
    strangers: Strangers,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<User, ApiError> {
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
        .map(str::trim);
    match (signer, bearer) {
        (None, None) => Ok(User::admin()),
        (Some(_), None) if strangers == Strangers::Admin => Ok(User::admin()),
        (None, Some(token)) => Ok(of_token(api, None, token, now).unwrap_or_else(User::admin)),
        (Some(_), None) => Ok(User::named(ANONYMOUS, &[UNAUTHENTICATED])),
        (Some(signer), Some(token)) => of_token(api, Some(signer), token, now)
            .ok_or_else(|| ApiError::new(401, "Unauthorized", "Unauthorized")),
    }
}

/// Whose token it is; none if it is not a valid one of this server.
pub fn of_token(
    api: &ApiServer,
    signer: Option<&Signer>,
    token: &str,
    now: Timestamp,
) -> Option<User> {
    if signer.is_some_and(|signer| signer.admin_token() == token) {
        return Some(User::admin());
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let genuine = match signer {
        Some(signer) => signer.sign(signed) == signature,
        None => signature == UNSIGNED,
    };
    let claims = URL_SAFE_NO_PAD.decode(signed.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok().filter(|_| genuine)?;
    let named = User { name: claims["sub"].as_str()?.to_owned(), ..User::default() };
    let (namespace, name) = named.service_account_name()?;
    let mut user = User::service_account(namespace, name);
    if signer.is_some() {
        let account = &claims["kubernetes.io"]["serviceaccount"];
        let stored = api.get(&SERVICEACCOUNTS, namespace, name)?;
        let for_us = claims["aud"].as_array()?.iter().any(|audience| audience == AUDIENCE);
        let expired = claims["exp"].as_i64().is_none_or(|end| now.as_second() >= end);
        if stored["metadata"]["uid"] != account["uid"] || !for_us || expired {
            return None;
        }
        account["uid"].as_str()?.clone_into(&mut user.uid);
        let id = format!("JTI={}", claims["jti"].as_str()?);
        user.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![id]);
    }
    Some(user)
}

/// Answers a TokenRequest for a service account with a token in the form of a JWT.
///
/// # Errors
/// `404` for an account that does not exist, `422` for a life that is too short.
pub fn token(
    api: &ApiServer,
    signer: Option<&Signer>,
    (namespace, name): (&str, &str),
    body: &Value,
    now: Timestamp,
) -> Result<Value, ApiError> {
    let account = api
        .get(&SERVICEACCOUNTS, namespace, name)
        .ok_or_else(|| ApiError::not_found(&SERVICEACCOUNTS, name))?;
    let spec = &body["spec"];
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(3600);
    if seconds < SHORTEST {
        let why = "may not specify a duration less than 10 minutes";
        let error = FieldError::invalid("spec.expirationSeconds", &json!(seconds), why);
        return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", vec![error]));
    }
    let audiences = match spec["audiences"].as_array() {
        Some(audiences) if !audiences.is_empty() => audiences.clone(),
        _ => vec![json!(AUDIENCE)],
    };
    let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
    let uid = &account["metadata"]["uid"];
    let mut claims = json!({
        "aud": audiences, "iss": AUDIENCE,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "exp": expires.as_second(), "iat": now.as_second(), "nbf": now.as_second(),
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
    });
    let id = Md5::digest(format!("{claims} {now}").as_bytes());
    claims["jti"] = json!(URL_SAFE_NO_PAD.encode(id));
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = signer.map_or_else(|| UNSIGNED.to_owned(), |signer| signer.sign(&signed));
    Ok(json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid,
            "creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
        "spec": {
            "audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": null,
        },
        "status": {
            "token": format!("{signed}.{signature}"),
            "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    }))
}
