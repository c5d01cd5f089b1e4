//! All calls to the API server, with the operator's own time limits and retries.
//!
//! If the API server is busy, kube's default client retries any verb for minutes. Here a unary call ends
//! after [`CALL_TIMEOUT`], a read is retried at most twice within [`READ_RETRY_SPAN`], and a write is never
//! retried: the reconciler reads again first. This module decides nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http_body_util::BodyExt as _;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams,
};
use kube::core::Request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::error::{CallError, is_own};
use crate::jitter::Jitter;
use crate::metrics::Metrics;

mod answer;
pub mod connect;
mod endpoint;

use answer::{StatusBody, Written, disguised_failure, excerpt, parse, parse_page};
pub use endpoint::Endpoint;

/// How long a call may take.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the retries of a read may wait in total.
pub const READ_RETRY_SPAN: Duration = Duration::from_secs(2);
/// How often a read is retried.
const READ_RETRIES: u32 = 2;
/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;
pub const USER_AGENT: &str = concat!("kata-operator/", env!("CARGO_PKG_VERSION"));

/// A client with these limits. Cloning is cheap.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    jitter: Arc<Jitter>,
    metrics: Metrics,
    clock: Clock,
    /// Whether this process may write, and until when.
    fence: watch::Receiver<WritePermit>,
    /// Whether each call records a heartbeat of the loop.
    records_heartbeat: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("fence", &*self.fence.borrow()).finish_non_exhaustive()
    }
}

/// Whether this process may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePermit {
    /// This process does not hold the lease.
    None,
    /// This process holds the lease until then.
    Until(Instant),
    /// There is no election.
    Always,
}

impl WritePermit {
    /// Whether a write may begin at `now`.
    pub fn allows(self, now: Instant) -> bool {
        match self {
            Self::None => false,
            Self::Until(end) => now < end,
            Self::Always => true,
        }
    }
}

impl Client {
    /// A client on top of `kube`, whose own retries should be off.
    pub fn new(
        kube: kube::Client,
        jitter: Arc<Jitter>,
        metrics: Metrics,
        clock: Clock,
        fence: watch::Receiver<WritePermit>,
    ) -> Self {
        Self { kube, jitter, metrics, clock, fence, records_heartbeat: false }
    }

    /// The same client for the Lease itself, which must be writable before this process holds it.
    pub fn unfenced(&self, always: watch::Receiver<WritePermit>) -> Self {
        Self { fence: always, ..self.clone() }
    }

    /// The same client for the loop. Each call records a heartbeat when it begins, since the call before it
    /// has ended. The pages of a list are one call, so that an endless list records no more heartbeats.
    pub fn with_heartbeat(&self) -> Self {
        Self { records_heartbeat: true, ..self.clone() }
    }

    /// The time of day, as the answers show it.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    fn record_heartbeat(&self) {
        if self.records_heartbeat {
            self.metrics.record_heartbeat();
        }
    }

    /// Reads an object, by quorum; `None` if it does not exist.
    ///
    /// # Errors
    /// If the API server does not answer, refuses, or the object is not of this type.
    pub async fn get<T: DeserializeOwned>(
        &self,
        endpoint: &Endpoint,
        name: &str,
    ) -> Result<Option<T>, CallError> {
        self.record_heartbeat();
        let call = format!("get {} {name}", endpoint.kind);
        let request = || {
            Request::new(&endpoint.path)
                .get(name, &kube::api::GetParams::default())
                .map_err(|source| unbuildable(&call, source))
        };
        match self.read(&call, "get", &endpoint.kind, request).await {
            Ok(body) => parse(&call, &body).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a document that is not an object, such as `/apis`.
    ///
    /// # Errors
    /// If the API server does not answer, refuses, or the document is not of this type.
    pub async fn get_document<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        self.record_heartbeat();
        let call = format!("get {path}");
        let request = || {
            http::Request::get(path).body(Vec::new()).map_err(|source| unbuildable(&call, source))
        };
        let body = self.read(&call, "get", "document", request).await?;
        parse(&call, &body)
    }

    /// Lists all objects, by quorum, in pages; `each` gets the items one by one as JSON text.
    /// Returns the resourceVersion of the list.
    ///
    /// # Errors
    /// If the API server does not answer or refuses; also if the list expires between two pages.
    pub async fn list(
        &self,
        endpoint: &Endpoint,
        field_selector: Option<&str>,
        mut each: impl FnMut(&str),
    ) -> Result<String, CallError> {
        self.record_heartbeat();
        let call = format!("list {}", endpoint.kind);
        let mut params = ListParams { limit: Some(PAGE_SIZE), ..ListParams::default() };
        params.field_selector = field_selector.map(str::to_owned);
        params.label_selector.clone_from(&endpoint.labels);
        loop {
            let request = || {
                Request::new(&endpoint.path)
                    .list(&params)
                    .map_err(|source| unbuildable(&call, source))
            };
            let body = self.read(&call, "list", &endpoint.kind, request).await?;
            let page = parse_page(&call, &body)?;
            for item in page.items.unwrap_or_default() {
                each(item.get());
            }
            match page.metadata.continue_token.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(page.metadata.resource_version.unwrap_or_default()),
            }
        }
    }

    /// Opens a watch that the API server ends after `seconds`; the items are chunks of its text.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn watch(
        &self,
        endpoint: &Endpoint,
        field_selector: Option<&str>,
        version: &str,
        seconds: u32,
    ) -> Result<impl Stream<Item = Result<Bytes, CallError>> + Send + use<>, CallError> {
        let call = format!("watch {}", endpoint.kind);
        let params = WatchParams {
            timeout: Some(seconds),
            field_selector: field_selector.map(str::to_owned),
            label_selector: endpoint.labels.clone(),
            ..WatchParams::default()
        };
        let request = Request::new(&endpoint.path)
            .watch(&params, version)
            .map_err(|source| unbuildable(&call, source))?;
        self.metrics.record_request("watch", &endpoint.kind);
        let response =
            tokio::time::timeout(CALL_TIMEOUT, self.send(&call, request)).await.unwrap_or_else(
                |_| Err(CallError::Timeout { call: call.clone(), after: CALL_TIMEOUT }),
            )?;
        Ok(response.into_body().into_data_stream().map(move |chunk| {
            chunk.map_err(|source| CallError::Unreachable {
                call: call.clone(),
                source: Box::new(source),
            })
        }))
    }

    /// Answers a request of kube's watcher: a page of a list, or a watch whose events follow. Both have the
    /// same time limits, metrics and errors as the other calls.
    ///
    /// # Errors
    /// If the API server does not answer or refuses; also if a page of a list is not one.
    pub async fn answer_watcher(
        &self,
        kind: &str,
        request: http::Request<kube::client::Body>,
    ) -> Result<http::Response<kube::client::Body>, CallError> {
        // Neither lists nor watches have a body.
        let request = request.map(|_empty| Vec::new());
        if !is_watch(&request) {
            let call = format!("list {kind}");
            let body = self.read(&call, "list", kind, || Ok(request.clone())).await?;
            parse_page(&call, &body)?;
            return Ok(http::Response::new(body.into()));
        }
        let call = format!("watch {kind}");
        self.metrics.record_request("watch", kind);
        tokio::time::timeout(CALL_TIMEOUT, self.send(&call, request))
            .await
            .unwrap_or_else(|_| Err(CallError::Timeout { call, after: CALL_TIMEOUT }))
    }

    /// Creates an object.
    ///
    /// # Errors
    /// If the API server does not answer or refuses, or the lease is lost.
    pub async fn create(
        &self,
        endpoint: &Endpoint,
        name: &str,
        object: &impl Serialize,
    ) -> Result<(), CallError> {
        let call = format!("create {} {name}", endpoint.kind);
        let data = serde_json::to_vec(object).map_err(|source| unbuildable(&call, source))?;
        let params = PostParams {
            field_manager: Some(kata_api::names::FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let request = Request::new(&endpoint.path)
            .create(&params, data)
            .map_err(|source| unbuildable(&call, source))?;
        self.write(&call, "create", &endpoint.kind, request).await.map(drop)
    }

    /// Applies the operator's fields of an object (server-side apply), taking them over from other managers;
    /// returns the written object.
    ///
    /// # Errors
    /// If the API server does not answer or refuses, or the lease is lost.
    pub async fn apply(
        &self,
        endpoint: &Endpoint,
        name: &str,
        subresource: Option<&str>,
        object: &(impl Serialize + std::fmt::Debug),
    ) -> Result<Bytes, CallError> {
        let params = PatchParams {
            force: true,
            field_manager: Some(kata_api::names::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let kind = &endpoint.kind;
        let answer =
            self.patch("apply", endpoint, name, subresource, &params, &Patch::Apply(object)).await;
        // It would create an object that does not exist, and these have no namespace that could be missing.
        let creates = subresource.is_none() && is_own(kind);
        answer.map_err(|error| match error {
            CallError::Refused { code: 404, .. } if creates => {
                CallError::NotServed { kind: kind.clone() }
            }
            error => error,
        })
    }

    /// Merges a JSON document into an object (RFC 7386); returns the written object.
    ///
    /// # Errors
    /// If the API server does not answer or refuses, or the lease is lost.
    pub async fn merge(
        &self,
        endpoint: &Endpoint,
        name: &str,
        subresource: Option<&str>,
        object: &(impl Serialize + std::fmt::Debug),
    ) -> Result<Bytes, CallError> {
        let params = PatchParams {
            field_manager: Some(kata_api::names::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.patch("patch", endpoint, name, subresource, &params, &Patch::Merge(object)).await
    }

    /// Replaces an object's status, if the object still has this uid; returns the written object.
    ///
    /// # Errors
    /// If the API server does not answer or refuses (422 if it is another object), or the lease is lost.
    pub async fn replace_status(
        &self,
        endpoint: &Endpoint,
        name: &str,
        uid: &str,
        status: &impl Serialize,
    ) -> Result<Bytes, CallError> {
        // A merge patch of the uid would be ignored: the API server takes no metadata with a status.
        let operations = serde_json::json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let call = format!("patch {}/status {name}", endpoint.kind);
        let body = serde_json::to_vec(&operations).map_err(|source| unbuildable(&call, source))?;
        let manager = kata_api::names::FIELD_MANAGER;
        let request =
            http::Request::patch(format!("{}/{name}/status?fieldManager={manager}", endpoint.path))
                .header(http::header::ACCEPT, "application/json")
                .header(http::header::CONTENT_TYPE, "application/json-patch+json")
                .body(body)
                .map_err(|source| unbuildable(&call, source))?;
        self.write(&call, "patch", &endpoint.kind, request).await
    }

    /// Deletes the object with this uid and resourceVersion, if given. Returns `false` if the object is
    /// already gone. Its dependents are deleted in the background.
    ///
    /// # Errors
    /// If the API server does not answer or refuses (409 if it is another object), or the lease is lost.
    pub async fn delete(
        &self,
        endpoint: &Endpoint,
        name: &str,
        preconditions: Preconditions,
    ) -> Result<bool, CallError> {
        let call = format!("delete {} {name}", endpoint.kind);
        let params = DeleteParams::background().preconditions(preconditions);
        let request = Request::new(&endpoint.path)
            .delete(name, &params)
            .map_err(|source| unbuildable(&call, source))?;
        match self.write(&call, "delete", &endpoint.kind, request).await {
            Ok(_answer) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn patch<P: Serialize + std::fmt::Debug>(
        &self,
        verb: &'static str,
        endpoint: &Endpoint,
        name: &str,
        subresource: Option<&str>,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<Bytes, CallError> {
        let slash = if subresource.is_some() { "/" } else { "" };
        let part = subresource.unwrap_or_default();
        let call = format!("{verb} {}{slash}{part} {name}", endpoint.kind);
        let resource = Request::new(&endpoint.path);
        let request = match subresource {
            Some(part) => resource.patch_subresource(part, name, params, patch),
            None => resource.patch(name, params, patch),
        }
        .map_err(|source| unbuildable(&call, source))?;
        self.write(&call, "patch", &endpoint.kind, request).await
    }

    async fn read(
        &self,
        call: &str,
        verb: &'static str,
        kind: &str,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, CallError>,
    ) -> Result<Bytes, CallError> {
        let mut attempt = 0;
        loop {
            match self.unary(call, verb, kind, request()?).await {
                Err(error) if error.is_transient() && attempt < READ_RETRIES => {
                    // Two waits of at most a third and two thirds of the span.
                    let wait = self.jitter.spread(READ_RETRY_SPAN * (attempt + 1) / 3);
                    if matches!(error, CallError::Refused { retry_after: Some(after), .. } if after > wait)
                    {
                        return Err(error);
                    }
                    attempt += 1;
                    tokio::time::sleep_until(Instant::now() + wait).await;
                }
                Err(error) if verb == "list" && error.is_not_found() => {
                    return Err(CallError::NotServed { kind: kind.to_owned() });
                }
                other => return other,
            }
        }
    }

    async fn write(
        &self,
        call: &str,
        verb: &'static str,
        kind: &str,
        request: http::Request<Vec<u8>>,
    ) -> Result<Bytes, CallError> {
        self.record_heartbeat();
        if !self.fence.borrow().allows(Instant::now()) {
            return Err(CallError::NotLeader { call: call.to_owned() });
        }
        let body = self.unary(call, verb, kind, request).await?;
        // A proxy's page with a success code does not confirm the write.
        parse::<Written>(call, &body).inspect_err(|error| {
            self.metrics.record_request_error(verb, kind, error.category());
        })?;
        Ok(body)
    }

    async fn unary(
        &self,
        call: &str,
        verb: &'static str,
        kind: &str,
        request: http::Request<Vec<u8>>,
    ) -> Result<Bytes, CallError> {
        self.metrics.record_request(verb, kind);
        let answer = async {
            let response = self.send(call, request).await?;
            let body = response.into_body().collect_bytes().await;
            let body = body.map_err(|source| CallError::Unreachable {
                call: call.to_owned(),
                source: Box::new(source),
            })?;
            disguised_failure(call, &body).map_or(Ok(body), Err)
        };
        let result = tokio::time::timeout(CALL_TIMEOUT, answer).await.unwrap_or_else(|_| {
            Err(CallError::Timeout { call: call.to_owned(), after: CALL_TIMEOUT })
        });
        if let Err(error) = &result {
            self.metrics.record_request_error(verb, kind, error.category());
        }
        result
    }

    async fn send(
        &self,
        call: &str,
        request: http::Request<Vec<u8>>,
    ) -> Result<http::Response<kube::client::Body>, CallError> {
        let mut request = request.map(kube::client::Body::from);
        request
            .headers_mut()
            .insert(http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT));
        let unreachable =
            |source| CallError::Unreachable { call: call.to_owned(), source: Box::new(source) };
        let sent = Instant::now();
        let response = self.kube.send(request).await.map_err(unreachable)?;
        let code = response.status();
        if code.is_success() {
            // A failure may be of a proxy, with its time.
            self.clock.learn(response.headers(), sent.elapsed());
            self.metrics.set_server_ahead(self.clock.server_ahead());
            return Ok(response);
        }
        let header = response
            .headers()
            .get(http::header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse::<u64>().ok());
        let body = response.into_body().collect_bytes().await.map_err(unreachable)?;
        let status: StatusBody = serde_json::from_slice(&body).unwrap_or_default();
        let detail = status.details.and_then(|details| details.retry_after_seconds);
        Err(CallError::Refused {
            call: call.to_owned(),
            code: code.as_u16(),
            reason: status
                .reason
                .filter(|reason| !reason.is_empty())
                .unwrap_or_else(|| code.canonical_reason().unwrap_or("Unknown").to_owned()),
            message: status.message.unwrap_or_else(|| excerpt(&body)),
            retry_after: header
                .into_iter()
                .chain(detail.filter(|seconds| *seconds > 0))
                .max()
                .map(Duration::from_secs),
        })
    }
}

/// Whether a request opens a watch.
pub fn is_watch<B>(request: &http::Request<B>) -> bool {
    request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"))
}

fn unbuildable(call: &str, source: impl std::error::Error + Send + Sync + 'static) -> CallError {
    CallError::Unbuildable { call: call.to_owned(), source: Box::new(source) }
}
