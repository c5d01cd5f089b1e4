//! What a request asks for: path, query and headers, taken apart once.
//!
//! It decides nothing: which resources exist, and what is allowed, is looked up later.

use bytes::Bytes;
use http::{HeaderMap, Method, header};

use super::error::ApiError;

/// An HTTP request with its whole body.
pub type Request = http::Request<Bytes>;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/version`
    Version,
    /// `/healthz`, `/livez`, `/readyz`
    Health,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`
    Resources {
        /// The group; empty for the core group.
        group: String,
        /// The version.
        version: String,
    },
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`
    OpenApi {
        /// The group; empty for the core group.
        group: String,
        /// The version.
        version: String,
    },
    /// `/sim/v1/...`: the path's rest.
    Control(String),
    /// An object, a collection, or a subresource.
    Object(Target),
    /// Nothing that the server knows.
    Unknown,
}

/// An object, a collection, or a subresource, as the path names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural.
    pub plural: String,
    /// The namespace; empty for cluster-scoped objects and for lists of all namespaces.
    pub namespace: String,
    /// The name; empty for collections.
    pub name: String,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: String,
}

impl Route {
    /// Reads a path.
    pub fn parse(path: &str) -> Self {
        let segments: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["version"] => Self::Version,
            ["healthz" | "livez" | "readyz", ..] => Self::Health,
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["api", version] => {
                Self::Resources { group: String::new(), version: (*version).to_owned() }
            }
            ["apis", group] => Self::Group((*group).to_owned()),
            ["apis", group, version] => {
                Self::Resources { group: (*group).to_owned(), version: (*version).to_owned() }
            }
            ["openapi", "v2"] => Self::OpenApiV2,
            ["openapi", "v3"] => Self::OpenApiIndex,
            ["openapi", "v3", "api", version] => {
                Self::OpenApi { group: String::new(), version: (*version).to_owned() }
            }
            ["openapi", "v3", "apis", group, version] => {
                Self::OpenApi { group: (*group).to_owned(), version: (*version).to_owned() }
            }
            ["sim", "v1", rest @ ..] => Self::Control(rest.join("/")),
            ["api", version, rest @ ..] => Self::Object(Target::parse("", version, rest)),
            ["apis", group, version, rest @ ..] => {
                Self::Object(Target::parse(group, version, rest))
            }
            _ => Self::Unknown,
        }
    }
}

impl Target {
    fn parse(group: &str, version: &str, rest: &[&str]) -> Self {
        let (namespace, rest) = match rest {
            // Subresources of a Namespace look like collections in it.
            ["namespaces", _, "status" | "finalize"] if group.is_empty() => ("", rest),
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
            _ => ("", rest),
        };
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: rest.first().copied().unwrap_or_default().to_owned(),
            namespace: namespace.to_owned(),
            name: rest.get(1).copied().unwrap_or_default().to_owned(),
            subresource: rest.get(2..).unwrap_or_default().join("/"),
        }
    }

    /// Kubernetes' verb for a method on this target.
    ///
    /// # Errors
    /// `405` for a method that means nothing here.
    pub fn verb(&self, method: &Method, query: &Query) -> Result<&'static str, ApiError> {
        let collection = self.name.is_empty();
        Ok(match *method {
            Method::GET | Method::HEAD if query.flag("watch") => "watch",
            Method::GET | Method::HEAD if collection => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT if !collection => "update",
            Method::PATCH if !collection => "patch",
            Method::DELETE if collection => "deletecollection",
            Method::DELETE => "delete",
            _ => {
                return Err(ApiError::new(
                    405,
                    "MethodNotAllowed",
                    "the server does not allow this method on the requested resource",
                ));
            }
        })
    }
}

/// The query of a URL, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query; empty pairs, which kube sends, are skipped.
    pub fn parse(query: &str) -> Self {
        Self(
            query
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    /// The first value of `key`; an empty value counts as absent.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, v)| k == key && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// All values of `key`.
    pub fn all(&self, key: &str) -> Vec<String> {
        self.0.iter().filter(|(k, _)| k == key).map(|(_, v)| v.clone()).collect()
    }

    /// Whether `key` is set to a true value, as Go's `ParseBool` reads it, or has no value.
    pub fn flag(&self, key: &str) -> bool {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .is_some_and(|(_, v)| matches!(v.as_str(), "" | "1" | "t" | "T" | "true" | "True"))
    }

    /// The number under `key`.
    ///
    /// # Errors
    /// `400` if it is not a number.
    pub fn number(&self, key: &str) -> Result<Option<u64>, ApiError> {
        self.parsed(key)
    }

    /// A parameter that may be a negative number.
    ///
    /// # Errors
    /// `400` if it is not a number.
    pub fn signed(&self, key: &str) -> Result<Option<i64>, ApiError> {
        self.parsed(key)
    }

    fn parsed<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, ApiError> {
        self.get(key)
            .map(|text| {
                text.parse().map_err(|_error| {
                    ApiError::new(
                        400,
                        "BadRequest",
                        format!("strconv.ParseInt: parsing {text:?}: invalid syntax"),
                    )
                })
            })
            .transpose()
    }
}

/// Options of `list` and `watch`.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// `labelSelector`, unparsed.
    pub label_selector: String,
    /// `fieldSelector`, unparsed.
    pub field_selector: String,
    /// The page size.
    pub limit: Option<u64>,
    /// The token of the next page.
    pub continue_token: Option<String>,
    /// `resourceVersion`; empty if absent.
    pub resource_version: String,
    /// `resourceVersionMatch`, if given.
    pub version_match: Option<String>,
    /// `timeoutSeconds`.
    pub timeout_seconds: Option<u64>,
    /// Whether BOOKMARK events are wanted.
    pub bookmarks: bool,
    /// `sendInitialEvents`, if given.
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads the options from a query.
    ///
    /// # Errors
    /// `400` for numbers that are none.
    pub fn parse(query: &Query) -> Result<Self, ApiError> {
        let text = |key: &str| query.get(key).unwrap_or_default().to_owned();
        Ok(Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            limit: query
                .signed("limit")?
                .and_then(|limit| u64::try_from(limit).ok())
                .filter(|limit| *limit > 0),
            continue_token: query.get("continue").map(str::to_owned),
            resource_version: text("resourceVersion"),
            version_match: query.get("resourceVersionMatch").map(str::to_owned),
            timeout_seconds: query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query
                .get("sendInitialEvents")
                .map(|_| query.flag("sendInitialEvents")),
        })
    }
}

/// The text of a header, or nothing.
pub fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The program that sends a request: its User-Agent up to the first slash, or `unknown`.
pub fn user_agent(headers: &HeaderMap) -> &str {
    let agent = header_text(headers, header::USER_AGENT.as_str());
    match agent.split('/').next() {
        Some(program) if !program.is_empty() => program,
        _ => "unknown",
    }
}

/// Undoes percent encoding; malformed escapes stay as they are.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(byte) = escape {
            decoded.push(byte);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        match Route::parse(path) {
            Route::Object(target) => target,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn paths_name_namespace_object_and_subresource() {
        let t = target("/api/v1/namespaces/a/pods/p1/log");
        assert_eq!(
            (&*t.namespace, &*t.plural, &*t.name, &*t.subresource),
            ("a", "pods", "p1", "log")
        );
        let t = target("/api/v1/namespaces/a/status");
        assert_eq!(
            (&*t.namespace, &*t.plural, &*t.name, &*t.subresource),
            ("", "namespaces", "a", "status")
        );
        let t = target("/api/v1/namespaces/a");
        assert_eq!((&*t.plural, &*t.name), ("namespaces", "a"));
        let t = target("/apis/apps/v1/deployments");
        assert_eq!((&*t.group, &*t.plural, &*t.name), ("apps", "deployments", ""));
    }

    #[test]
    fn empty_query_pairs_are_skipped() {
        let query = Query::parse("&labelSelector=a%3Db%2Cc&watch=true&x=");
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert!(query.flag("watch"));
        assert_eq!(query.get("x"), None);
    }
}
