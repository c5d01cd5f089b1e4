//! One request in, one response out: the dispatch that all faces share.
//!
//! Pure but for the simulation that it changes: no clock, no waiting. What lasts (watches, commands)
//! is handed to the faces as a value.

mod access;
mod answer;
mod objects;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::authentication;
use super::error::ApiError;
use super::fault::{CallInfo, Plan};
use super::frontend::{self, ControlRequest, ExecRequest};
use super::negotiate::Shape;
use super::request::{Query, Request, Route, Target, header_text, user_agent};
use super::review::{self, Asker};
use super::watch::Watcher;
use super::{body, discovery, openapi};
use crate::resource::{EVENTS, PODS};
use crate::{Resource, Simulation};
pub use answer::{failure, garbage, html, wrong_code};
use answer::{json_answer, page_not_found, text_answer, with_type};
use objects::Call;

/// What a request is answered with.
#[derive(Debug)]
pub enum Response {
    /// A whole answer.
    Full(http::Response<Bytes>),
    /// Watch events, from now on.
    Watch(Box<Watcher>),
    /// The streams of a command.
    Exec(ExecRequest),
}

/// Counts a request and says which faults strike it; to be called before [`handle`].
pub fn intercept(sim: &mut Simulation, request: &Request) -> Plan {
    let target = match Route::parse(request.uri().path()) {
        Route::Object(target) => target,
        // The simulator's own endpoints are how faults are set and cleared.
        Route::Control(_) => return Plan::default(),
        _ => {
            let call = CallInfo {
                verb: "get",
                resource: request.uri().path().trim_matches('/').to_owned(),
                agent: user_agent(request.headers()).to_owned(),
                ..CallInfo::default()
            };
            return sim.frontend.faults.on_request(&call);
        }
    };
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let Ok(verb) = target.verb(request.method(), &query) else { return Plan::default() };
    let mut call = call_info(&target, verb, &query, request);
    // A POST names its object in the body, which only fault rules need to know this early.
    let rules = sim.frontend.faults.rules().next().is_some();
    if rules && call.name.is_empty() && verb == "create" {
        let object = body::object(request).unwrap_or_default();
        call.name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    }
    sim.frontend.count(&call);
    sim.frontend.faults.on_request(&call)
}

/// Answers a request that arrives at `now`.
pub fn handle(sim: &mut Simulation, now: Timestamp, request: &Request) -> Response {
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let answer = match Route::parse(request.uri().path()) {
        Route::Object(target) => object(sim, now, request, &target, &query),
        Route::Control(path) => control(sim, request, &path, query),
        route => access::path(sim, request, now).and_then(|()| meta(sim, request, &route)),
    };
    answer.unwrap_or_else(|error| Response::Full(failure(&error)))
}

/// The simulator's own endpoints; their bodies are JSON whatever their type is said to be.
fn control(
    sim: &mut Simulation,
    request: &Request,
    path: &str,
    query: Query,
) -> Result<Response, ApiError> {
    let control = ControlRequest {
        method: request.method().clone(),
        path: path.split_once('/').map_or("", |(_, rest)| rest).to_owned(),
        query,
        body: body::control(request)?,
    };
    frontend::control(sim, path, &control).map(|value| json_answer(200, &value))
}

/// What is not about objects: versions, health, discovery, OpenAPI.
fn meta(sim: &mut Simulation, request: &Request, route: &Route) -> Result<Response, ApiError> {
    let registry = &sim.api.registry;
    let format =
        discovery::Format::negotiate(header_text(request.headers(), header::ACCEPT.as_str()));
    let discovered = match route {
        Route::Version => Some(version()),
        Route::Health => return Ok(text_answer(200, "ok")),
        Route::CoreVersions => Some(discovery::core_versions(registry, format)),
        Route::Groups => Some(discovery::groups(registry, format)),
        Route::Group(group) => discovery::group(registry, group),
        Route::Resources { group, version } => discovery::resources(registry, group, version),
        Route::OpenApiIndex => Some(openapi_index(sim)),
        Route::OpenApiV2 => {
            return Ok(Response::Full(with_type(
                200,
                Bytes::from_static(OPENAPI_V2),
                "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
            )));
        }
        Route::OpenApi { group, version } => {
            return Ok(match sim.frontend.openapi(&sim.api.registry, group, version) {
                Some(document) => Response::Full(with_type(200, document, "application/json")),
                None => page_not_found(),
            });
        }
        Route::Control(_) | Route::Object(_) | Route::Unknown => None,
    };
    let Some(value) = discovered else { return Ok(page_not_found()) };
    let aggregated = matches!(route, Route::CoreVersions | Route::Groups);
    let content_type =
        if aggregated { format.content_type() } else { "application/json".to_owned() };
    let mut response = with_type(200, value.to_string().into(), &content_type);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(Response::Full(response))
}

/// An OpenAPI v2 document without content, in protobuf: version `2.0` and a title.
///
/// kubectl asks for it when it meets a kind that the v3 documents lack; without one it reports that
/// instead of the missing CRD.
const OPENAPI_V2: &[u8] = b"\x0a\x032.0\x12\x0b\x0a\x09simulated";

fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.0+simulated", "gitCommit": "simulated",
        "gitTreeState": "clean", "buildDate": "2025-01-01T00:00:00Z", "goVersion": "none",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn openapi_index(sim: &Simulation) -> Value {
    let mut paths = serde_json::Map::new();
    // Groups that have nothing but reviews have no document.
    let stored = |group: &str| sim.api.registry.iter().any(|def| def.resource.group == group);
    for (group, versions) in discovery::group_versions(&sim.api.registry) {
        if !stored(&group) {
            continue;
        }
        for version in versions {
            let path = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            let hash = openapi::fingerprint(&sim.api.registry, &group, &version);
            let url = format!("/openapi/v3/{path}?hash={hash:016X}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

fn object(
    sim: &mut Simulation,
    now: Timestamp,
    request: &Request,
    target: &Target,
    query: &Query,
) -> Result<Response, ApiError> {
    let verb = target.verb(request.method(), query)?;
    let user = access::identify(sim, request.headers(), now)?;
    access::target(sim, &user, target, verb, query)?;
    if !discovery::has_group(&sim.api.registry, &target.group) {
        return Ok(page_not_found());
    }
    if let Some(kind) = discovery::review_kind(&target.group, &target.version, &target.plural) {
        let signer = sim.frontend.signer.as_ref();
        let asker = Asker { user: &user, signer, namespace: &target.namespace, now };
        return reviews(sim, request, kind, target, asker);
    }
    let resource = Resource::dynamic(target.group.clone(), target.plural.clone());
    let def = sim
        .api
        .registry
        .get(&resource)
        .filter(|def| def.version == target.version)
        .filter(|def| {
            let named = !target.name.is_empty() || verb == "create" || verb == "deletecollection";
            if def.namespaced {
                !named || !target.namespace.is_empty()
            } else {
                target.namespace.is_empty()
            }
        })
        .cloned()
        .ok_or_else(ApiError::unknown_resource)?;
    let shape = Shape::negotiate(
        header_text(request.headers(), header::ACCEPT.as_str()),
        query.get("includeObject"),
    );
    let as_events = resource.group == "events.k8s.io" && resource.plural == "events";
    let resource = if as_events { EVENTS } else { resource };
    // Logs and commands are text, whatever is accepted.
    let shape = if target.subresource.is_empty() { shape? } else { shape.unwrap_or(Shape::Object) };
    let call = Call { request, query, target, verb, def, resource, as_events, shape, now };
    match target.subresource.as_str() {
        "" | "status" | "finalize" | "binding" | "eviction" | "approval" => {}
        "scale" if call.def.scale.is_some() => {}
        "log" | "exec" | "attach" | "portforward" | "proxy" | "ephemeralcontainers"
            if call.resource == PODS =>
        {
            return call.pod_stream(sim);
        }
        "token" if target.plural == "serviceaccounts" && verb == "create" => {
            let account = (target.namespace.as_str(), target.name.as_str());
            let (signer, body) = (sim.frontend.signer.as_ref(), body::object(request)?);
            let token = authentication::token(&sim.api, signer, account, &body, now)?;
            return Ok(json_answer(201, &token));
        }
        _ => return Err(ApiError::unknown_resource()),
    }
    match verb {
        "get" => call.get(sim),
        "list" => call.list(sim),
        "watch" => call.watch(sim),
        _ => call.write(sim, &user),
    }
}

fn call_info(target: &Target, verb: &'static str, query: &Query, request: &Request) -> CallInfo {
    CallInfo {
        verb,
        group: target.group.clone(),
        resource: target.plural.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        subresource: target.subresource.clone(),
        manager: query.get("fieldManager").unwrap_or_default().to_owned(),
        agent: user_agent(request.headers()).to_owned(),
    }
}

fn reviews(
    sim: &Simulation,
    request: &Request,
    kind: &str,
    target: &Target,
    asker: Asker<'_>,
) -> Result<Response, ApiError> {
    if *request.method() != Method::POST {
        return Err(ApiError::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ));
    }
    let body = body::object(request)?;
    let answer = review::answer(&sim.api, kind, &target.group, &body, asker)?;
    Ok(json_answer(201, &answer))
}
