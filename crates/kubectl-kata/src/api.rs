//! Requests to the API server, with one rule for what is not permitted: it is noted, named at the end,
//! and the rest goes on.
//!
//! Reads go straight to the API server; nothing is cached.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use jiff::Timestamp;
use kata_api::names;
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connect;
use crate::failure::Failure;
use crate::resource::{Resource, encode};

/// How many objects one answer may have.
const PAGE: u32 = 500;
/// How many answers one list may have. Kubernetes supports 150,000 pods.
const PAGES: usize = 2_000;
const JSON: &str = "application/json";
/// A list of objects without anything but their metadata.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Most bytes of an answer.
const ANSWER: usize = 256 << 20;

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gap {
    /// The verb that is not permitted, or `read` if something else went wrong.
    pub(crate) verb: String,
    /// What it is about, such as `nodes` or `katanodes.kata-operator.dev`.
    pub(crate) resource: String,
    /// The namespace; absent if it is the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
}

impl Gap {
    /// `you may not list nodes`.
    pub(crate) fn sentence(&self) -> String {
        let place = self
            .namespace
            .as_ref()
            .map_or_else(String::new, |namespace| format!(" in namespace {namespace}"));
        format!("you may not {} {}{place}", self.verb, self.resource)
    }
}

/// The outcome of a read that may not be permitted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Read<T> {
    /// The answer.
    Known(T),
    /// It is not permitted; the gap is noted.
    Forbidden,
    /// The API server does not serve the kind.
    NotServed,
}

/// That what a command needs may not be listed; `what` is what it cannot do then.
pub(crate) fn not_listed(what: &str, kind: &str) -> Failure {
    Failure::Forbidden(format!("cannot {what}: you may not list {kind}"))
}

impl<T> Read<T> {
    /// Fails if it may not be listed.
    pub(crate) fn listed(&self, what: &str, kind: &str) -> Result<(), Failure> {
        if self.is_forbidden() { Err(not_listed(what, kind)) } else { Ok(()) }
    }

    /// The answer, if there is one.
    pub(crate) fn known(self) -> Option<T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Forbidden | Self::NotServed => None,
        }
    }

    /// The answer, if there is one.
    pub(crate) fn as_known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Forbidden | Self::NotServed => None,
        }
    }
}

impl<T> Read<T> {
    /// Whether it is not permitted.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden)
    }

    /// Whether the API server does not serve the kind.
    pub(crate) fn is_not_served(&self) -> bool {
        matches!(self, Self::NotServed)
    }
}

impl<T> Read<Vec<T>> {
    /// The objects that there are; none if they cannot be read.
    pub(crate) fn items(&self) -> &[T] {
        self.as_known().map_or(&[], Vec::as_slice)
    }
}

/// Which objects to list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scope<'a> {
    /// The namespace; all if `None`.
    pub(crate) namespace: Option<&'a str>,
    /// A label selector.
    pub(crate) labels: Option<&'a str>,
    /// A field selector.
    pub(crate) fields: Option<&'a str>,
    /// Whether only their metadata is sent.
    pub(crate) is_metadata: bool,
}

impl<'a> Scope<'a> {
    /// In a namespace.
    pub(crate) fn of(namespace: &'a str) -> Self {
        Self { namespace: Some(namespace), ..Self::default() }
    }
}

/// Why a request failed, before it is known what that means.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The API server answered with an error.
    Status(Box<Status>),
    /// Anything else.
    Other(Failure),
}

/// The API server.
pub(crate) struct Api {
    pub(crate) client: kube::Client,
    timeout: Duration,
    gaps: Mutex<Vec<Gap>>,
    home: OnceLock<String>,
    /// The namespaces with a Deployment of the operator, once all were looked through.
    installations: OnceLock<Vec<String>>,
    simulated: OnceLock<bool>,
}

/// What a page of a list says of itself.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: PageMetadata,
}

/// What is on it.
#[derive(Deserialize)]
struct Items<T> {
    /// `null` if there are none and only metadata was asked for.
    #[serde(default = "Option::default")]
    items: Option<Vec<T>>,
}

#[derive(Deserialize, Default)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl Api {
    pub(crate) fn new(client: kube::Client, timeout: Duration) -> Self {
        Self {
            client,
            timeout,
            gaps: Mutex::default(),
            home: OnceLock::new(),
            installations: OnceLock::new(),
            simulated: OnceLock::new(),
        }
    }

    /// One for watches, which note nothing: they only say when to read again.
    pub(crate) fn for_watches(&self) -> Self {
        Self::new(self.client.clone(), self.timeout)
    }

    /// Whether the cluster is simulated, if its version was read.
    pub(crate) fn known_simulated(&self) -> Option<bool> {
        self.simulated.get().copied()
    }

    /// Notes whether the cluster is simulated. No cluster becomes another one meanwhile.
    pub(crate) fn note_simulated(&self, simulated: bool) {
        self.simulated.get_or_init(|| simulated);
    }

    /// The namespace of the operator, once it was looked for, see [`crate::cluster::home`].
    pub(crate) fn known_home(&self) -> Option<&str> {
        self.home.get().map(String::as_str)
    }

    /// The namespace of the operator as far as it is known, else that of OpenShift.
    pub(crate) fn home(&self) -> &str {
        self.known_home().unwrap_or(names::NAMESPACE)
    }

    /// Notes where the operator is.
    pub(crate) fn settle(&self, home: &str) -> &str {
        self.home.get_or_init(|| home.to_owned())
    }

    /// The namespaces with a Deployment of the operator, once all were looked through.
    pub(crate) fn known_installations(&self) -> Option<&[String]> {
        self.installations.get().map(Vec::as_slice)
    }

    /// Notes the namespaces with a Deployment of the operator.
    pub(crate) fn note_installations(&self, namespaces: Vec<String>) {
        self.installations.get_or_init(|| namespaces);
    }

    /// How long an answer may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What could not be read so far, each once.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let mut gaps = self.gaps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        gaps.sort();
        gaps.dedup();
        gaps
    }

    /// Notes something that is not permitted.
    pub(crate) fn note(&self, verb: &str, resource: &str, namespace: Option<&str>) {
        let gap = Gap {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner).push(gap);
    }

    /// Sends a request and gives the answer's head and text, with limits of time and size.
    async fn exchange(
        &self,
        what: &str,
        request: Request<Vec<u8>>,
    ) -> Result<(http::response::Parts, String), Trouble> {
        let limit = self.timeout;
        let answer = tokio::time::timeout(limit, async {
            let answer = self.client.send(request.map(kube::client::Body::from)).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER).collect().await.map_err(kube::Error::Service)?;
            Ok((head, body.to_bytes()))
        });
        let (head, bytes) = match answer.await {
            Err(_elapsed) => {
                let what = what.to_owned();
                return Err(Trouble::Other(Failure::Silent { what, waited: limit }));
            }
            Ok(Err(kube::Error::Service(error))) if error.is::<LengthLimitError>() => {
                return Err(Trouble::Other(Failure::Refused {
                    what: what.to_owned(),
                    message: format!(
                        "the answer is longer than {} MiB; check the API server, and the proxies before it",
                        ANSWER >> 20
                    ),
                }));
            }
            Ok(Err(error)) => return Err(Trouble::Other(connect::failure(what, error))),
            Ok(Ok(answer)) => answer,
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if head.status.is_success() {
            return Ok((head, text));
        }
        // The body of a proxy, or of an API server without this path, may be no Status.
        let mut status: Status = serde_json::from_str(&text)
            .unwrap_or_else(|_no_status| Status::failure(text.trim(), ""));
        status.code = head.status.as_u16();
        if status.message.is_empty() {
            status.message = format!("it answers {}", head.status);
        }
        Err(if status.code == 401 {
            let (what, message) = (what.to_owned(), status.message);
            Trouble::Other(Failure::Unauthorized { what, message })
        } else {
            Trouble::Status(Box::new(status))
        })
    }

    /// GET of a path, as text.
    pub(crate) async fn text(&self, what: &str, path: &str) -> Result<String, Trouble> {
        Ok(self
            .exchange(what, request(what, http::Method::GET, path, (JSON, JSON), Vec::new())?)
            .await?
            .1)
    }

    /// GET of a path, as text, with the time that the API server's clock showed, if the answer says so: what
    /// the API server stamps on objects is of that clock, and the clock of this machine may be wrong.
    pub(crate) async fn dated(
        &self,
        what: &str,
        path: &str,
    ) -> Result<(String, Option<Timestamp>), Trouble> {
        let asked = request(what, http::Method::GET, path, (JSON, JSON), Vec::new())?;
        let (head, text) = self.exchange(what, asked).await?;
        let date = head.headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        let time = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        Ok((text, time.map(|time| time.timestamp())))
    }

    async fn page(
        &self,
        what: &str,
        resource: Resource,
        scope: &Scope<'_>,
        next: Option<&str>,
    ) -> Result<String, Trouble> {
        let mut path = format!("{}?limit={PAGE}", resource.path(scope.namespace));
        let parts =
            [("labelSelector", scope.labels), ("fieldSelector", scope.fields), ("continue", next)];
        for (key, value) in parts {
            if let Some(value) = value {
                path.push_str(&format!("&{key}={}", encode(value)));
            }
        }
        let accept = if scope.is_metadata { METADATA } else { JSON };
        let asked = request(what, http::Method::GET, &path, (accept, JSON), Vec::new())?;
        Ok(self.exchange(what, asked).await?.1)
    }

    /// All objects of a kind.
    pub(crate) async fn list<T: DeserializeOwned + Send + 'static>(
        &self,
        resource: Resource,
        scope: Scope<'_>,
    ) -> Result<Read<Vec<T>>, Failure> {
        let what = format!("list {}", resource.qualified());
        let unreadable = |source| Failure::Answer { what: what.clone(), source };
        let mut all = Vec::new();
        let mut is_first = true;
        let mut pages = 0;
        let mut answer = self.page(&what, resource, &scope, None).await;
        loop {
            pages += 1;
            if pages > PAGES {
                let message = format!(
                    "the list has more than {PAGES} pages; check the API server, and the proxies before it"
                );
                return Err(Failure::Refused { what, message });
            }
            match answer {
                Ok(text) => {
                    let Head { metadata } = serde_json::from_str(&text).map_err(unreadable)?;
                    // The next page comes while this one is read: with many pods, both take long.
                    let reading = tokio::task::spawn_blocking(move || serde_json::from_str(&text));
                    let next = metadata.next.filter(|next| !next.is_empty());
                    let coming = async {
                        match &next {
                            Some(next) => {
                                Some(self.page(&what, resource, &scope, Some(next)).await)
                            }
                            None => None,
                        }
                    };
                    let (read, following) = tokio::join!(reading, coming);
                    let Items { items } = match read {
                        Ok(page) => page.map_err(unreadable)?,
                        Err(ended) => match ended.try_into_panic() {
                            Ok(panic) => std::panic::resume_unwind(panic),
                            Err(_cancelled) => {
                                let cause = "this process is about to end".to_owned();
                                return Err(Failure::Unreachable { what, cause });
                            }
                        },
                    };
                    all.extend::<Vec<T>>(items.unwrap_or_default());
                    match following {
                        Some(following) => {
                            answer = following;
                            is_first = false;
                        }
                        None => return Ok(Read::Known(all)),
                    }
                }
                // The list took so long that the API server forgot where it was.
                Err(Trouble::Status(status)) if status.code == 410 && !is_first => {
                    all.clear();
                    is_first = true;
                    answer = self.page(&what, resource, &scope, None).await;
                }
                Err(Trouble::Status(status)) => match status.code {
                    403 if self.is_absent(resource).await => return Ok(Read::NotServed),
                    403 => {
                        self.note("list", &resource.qualified(), scope.namespace);
                        return Ok(Read::Forbidden);
                    }
                    404 => return Ok(Read::NotServed),
                    _ => return Err(refused(&what, &status)),
                },
                Err(Trouble::Other(failure)) => return Err(failure),
            }
        }
    }

    /// Whether the API server serves no such kind: it says "forbidden" of kinds that do not exist, too, to
    /// whoever may not read them. Everybody who is known to it may ask which kinds there are.
    async fn is_absent(&self, resource: Resource) -> bool {
        resource.is_custom() && matches!(self.serves(resource).await, Ok(false))
    }

    /// Whether the API server serves a kind. A hosted control plane may serve others of its group.
    pub(crate) async fn serves(&self, resource: Resource) -> Result<bool, Failure> {
        #[derive(Deserialize)]
        struct KindList {
            resources: Vec<Served>,
        }
        #[derive(Deserialize)]
        struct Served {
            name: String,
        }
        let what = "ask which kinds there are";
        match self.text(what, &format!("/apis/{}/{}", resource.group, resource.version)).await {
            Ok(text) => {
                let list: KindList = serde_json::from_str(&text)
                    .map_err(|source| Failure::Answer { what: what.to_owned(), source })?;
                Ok(list.resources.iter().any(|served| served.name == resource.plural))
            }
            Err(Trouble::Status(status)) if status.code == 404 => Ok(false),
            Err(trouble) => Err(trouble.failure(what)),
        }
    }

    /// One object; `Known(None)` if there is none.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Read<Option<T>>, Failure> {
        let read = self.glance(resource, namespace, name).await?;
        if read.is_forbidden() && self.is_absent(resource).await {
            return Ok(Read::NotServed);
        }
        if read.is_forbidden() {
            self.note("get", &resource.qualified(), namespace);
        }
        Ok(read)
    }

    /// One object that the command can do without: it is not noted if it is not permitted.
    pub(crate) async fn glance<T: DeserializeOwned>(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Read<Option<T>>, Failure> {
        let what = format!("get {} {name}", resource.qualified());
        match self.text(&what, &resource.object(namespace, name)).await {
            Ok(text) => serde_json::from_str(&text)
                .map(|object| Read::Known(Some(object)))
                .map_err(|source| Failure::Answer { what, source }),
            Err(Trouble::Status(status)) => match status.code {
                403 => Ok(Read::Forbidden),
                404 => Ok(Read::Known(None)),
                _ => Err(refused(&what, &status)),
            },
            Err(Trouble::Other(failure)) => Err(failure),
        }
    }

    /// Writes: POST, PATCH or DELETE. What is not permitted is a failure here.
    pub(crate) async fn write(
        &self,
        what: &str,
        method: http::Method,
        path: &str,
        content: Option<&'static str>,
        body: &Value,
    ) -> Result<Value, Trouble> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let types = (JSON, content.unwrap_or(JSON));
        let (_, text) = self.exchange(what, request(what, method, path, types, bytes)?).await?;
        serde_json::from_str(&text)
            .map_err(|source| Trouble::Other(Failure::Answer { what: what.to_owned(), source }))
    }

    /// Whether the caller may do something, as the API server says. The resource may have a subresource, as `pods/log`.
    pub(crate) async fn may(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<Option<bool>, Failure> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb,
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "namespace": namespace.unwrap_or_default(),
            }},
        });
        let path = crate::resource::REVIEWS.path(None);
        let what = "ask what you may do";
        match self.write(what, http::Method::POST, &path, None, &review).await {
            Ok(answer) => Ok(answer["status"]["allowed"].as_bool()),
            Err(Trouble::Status(_)) => Ok(None),
            Err(Trouble::Other(failure)) => Err(failure),
        }
    }
}

/// A request with the type of the answer that it accepts, and that of its body.
fn request(
    what: &str,
    method: http::Method,
    path: &str,
    (accept, content): (&str, &str),
    body: Vec<u8>,
) -> Result<Request<Vec<u8>>, Trouble> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::ACCEPT, accept)
        .header(http::header::CONTENT_TYPE, content)
        .body(body)
        .map_err(|error| {
            Trouble::Other(Failure::Refused {
                what: what.to_owned(),
                message: format!("no valid request: {error}"),
            })
        })
}

/// What an error status means when the command cannot go on.
pub(crate) fn refused(what: &str, status: &Status) -> Failure {
    match status.code {
        403 => Failure::Forbidden(format!("cannot {what}: {}", status.message)),
        404 => Failure::NotFound(format!("cannot {what}: {}", status.message)),
        500.. => connect::failure(what, kube::Error::Api(Box::new(status.clone()))),
        _ => Failure::Refused { what: what.to_owned(), message: status.message.clone() },
    }
}

impl Trouble {
    /// The same, where a 403 means that the caller lacks a permission, such as `patch nodes`.
    pub(crate) fn denied(self, what: &str, permission: &str) -> Failure {
        match self {
            Self::Status(status) if status.code == 403 => {
                Failure::Forbidden(format!("cannot {what}: you may not {permission}"))
            }
            other => other.failure(what),
        }
    }

    /// What it means when the command cannot go on.
    pub(crate) fn failure(self, what: &str) -> Failure {
        match self {
            Self::Status(status) => refused(what, &status),
            Self::Other(failure) => failure,
        }
    }
}
