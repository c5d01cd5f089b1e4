//! One request in, one response out: the dispatch that all faces share.
//!
//! Pure but for the simulation that it changes: no clock, no waiting. What lasts (watches, commands)
//! is handed to the faces as a value.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::error::ApiError;
use super::fault::{CallInfo, Plan};
use super::frontend::{self, ControlRequest, ExecRequest, LogRequest};
use super::list::{self, Selection};
use super::negotiate::Shape;
use super::rbac::{self, Access, User};
use super::registry::ResourceDef;
use super::request::{ListOptions, Query, Request, Route, Target, header_text, user_agent};
use super::selector::{FieldSelector, LabelSelector};
use super::server::{WriteRequest, WriteVerb};
use super::watch::Watcher;
use super::{body, discovery, events, openapi, review};
use crate::resource::{EVENTS, PODS};
use crate::{Resource, Simulation};

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
    let Route::Object(target) = Route::parse(request.uri().path()) else { return Plan::default() };
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
        route => meta(sim, request, &route),
    };
    answer.unwrap_or_else(|error| Response::Full(failure(&error)))
}

/// The HTTP form of an error.
pub fn failure(error: &ApiError) -> http::Response<Bytes> {
    let status = error.to_status();
    let mut response = json_response(error.code, &status);
    let retry_after = &status["details"]["retryAfterSeconds"];
    if let Some(value) = retry_after.as_u64().map(HeaderValue::from) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
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

fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.0+simulated", "gitCommit": "simulated",
        "gitTreeState": "clean", "buildDate": "2025-01-01T00:00:00Z", "goVersion": "none",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn openapi_index(sim: &Simulation) -> Value {
    let mut paths = serde_json::Map::new();
    for (group, versions) in discovery::group_versions(&sim.api.registry) {
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

/// A request about objects, once its target is known to be served.
struct Call<'a> {
    request: &'a Request,
    query: &'a Query,
    target: &'a Target,
    verb: &'static str,
    def: Arc<ResourceDef>,
    /// Where the objects are stored.
    resource: Resource,
    /// Whether objects are shown as events.k8s.io Events.
    as_events: bool,
    shape: Shape,
    now: Timestamp,
}

fn object(
    sim: &mut Simulation,
    now: Timestamp,
    request: &Request,
    target: &Target,
    query: &Query,
) -> Result<Response, ApiError> {
    if !discovery::has_group(&sim.api.registry, &target.group) {
        return Ok(page_not_found());
    }
    let verb = target.verb(request.method(), query)?;
    let user = User::of(request.headers());
    authorize(sim, &user, target, verb)?;
    if let Some(kind) = discovery::review_kind(&target.group, &target.version, &target.plural) {
        return reviews(sim, request, kind, target, &user);
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
        .ok_or_else(unknown_resource)?;
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
            let (namespace, name) = (&target.namespace, &target.name);
            if sim.api.get(&call.resource, namespace, name).is_none() {
                return Err(ApiError::not_found(&call.resource, name));
            }
            let body = body::object(request)?;
            return Ok(json_answer(201, &review::token(namespace, name, &body, now)));
        }
        _ => return Err(unknown_resource()),
    }
    match verb {
        "get" => call.get(sim),
        "list" => call.list(sim),
        "watch" => call.watch(sim),
        _ => call.write(sim),
    }
}

impl Call<'_> {
    fn get(&self, sim: &Simulation) -> Result<Response, ApiError> {
        let Target { namespace, name, subresource, .. } = self.target;
        let object = sim
            .api
            .get(&self.resource, namespace, name)
            .ok_or_else(|| ApiError::not_found(&self.resource, name))?;
        match subresource.as_str() {
            "" | "status" => Ok(self.answer(200, &object)),
            "scale" => Ok(json_answer(200, &scale_of(&self.def, &object))),
            _ => Err(ApiError::new(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )),
        }
    }

    fn selection(&self, options: &ListOptions) -> Result<Selection, ApiError> {
        let mut fields = FieldSelector::parse(
            &self.fields(&options.field_selector),
            &self.def_stored(&self.def),
        )?;
        if !self.target.name.is_empty() {
            fields = fields.and(FieldSelector::name(&self.target.name));
        }
        Ok(Selection {
            resource: self.resource.clone(),
            namespace: self.target.namespace.clone(),
            labels: LabelSelector::parse(&options.label_selector)?,
            fields,
        })
    }

    /// Field selectors of events.k8s.io name the fields of that view.
    fn fields(&self, selector: &str) -> String {
        if self.as_events {
            selector
                .replace("regarding.", "involvedObject.")
                .replace("reportingController", "reportingComponent")
        } else {
            selector.to_owned()
        }
    }

    /// The definition under which objects are stored.
    fn def_stored(&self, def: &ResourceDef) -> ResourceDef {
        ResourceDef { resource: self.resource.clone(), ..def.clone() }
    }

    fn list(&self, sim: &Simulation) -> Result<Response, ApiError> {
        let options = ListOptions::parse(self.query)?;
        let mut page = list::list(&sim.api.store, &self.selection(&options)?, &options)?;
        if self.as_events {
            for item in &mut page.items {
                *item = Arc::new(events::from_core(item));
            }
        }
        let text = self.shape.list(&self.def, &page.items, &page.metadata, self.now);
        Ok(Response::Full(with_type(200, text.into(), "application/json")))
    }

    fn watch(&self, sim: &Simulation) -> Result<Response, ApiError> {
        let options = ListOptions::parse(self.query)?;
        let watcher = Watcher::start(
            &sim.api.store,
            self.now,
            Arc::clone(&self.def),
            self.selection(&options)?,
            self.shape,
            call_info(self.target, self.verb, self.query, self.request),
            &options,
        )?;
        Ok(Response::Watch(Box::new(
            watcher.presenting(self.as_events.then_some(events::from_core)),
        )))
    }

    fn write(&self, sim: &mut Simulation) -> Result<Response, ApiError> {
        let mut patch_type = None;
        let mut delete_dry_run = false;
        let (verb, mut body) = match self.verb {
            "create" => (WriteVerb::Create, body::object(self.request)?),
            "update" => (WriteVerb::Update, body::object(self.request)?),
            "patch" => {
                let (kind, patch) = body::patch(self.request)?;
                patch_type = Some(kind);
                (WriteVerb::Patch(kind), patch)
            }
            deletion => {
                let options = body::delete_options(self.request, self.query)?;
                delete_dry_run = options["dryRun"][0] == "All";
                if deletion == "delete" {
                    (WriteVerb::Delete, options)
                } else {
                    (WriteVerb::DeleteCollection(self.selected_keys(sim)?), options)
                }
            }
        };
        if self.as_events && matches!(self.verb, "create" | "update" | "patch") {
            body = events::to_core(&body);
        }
        let mut options = body::options(self.request, self.query, patch_type);
        options.dry_run |= delete_dry_run;
        let write = WriteRequest {
            verb,
            resource: self.resource.clone(),
            namespace: self.target.namespace.clone(),
            name: self.target.name.clone(),
            subresource: self.target.subresource.clone(),
            body,
            options,
        };
        let written = sim.api.write(self.now, &write)?;
        let object = &written.object;
        let mut answer = if object["kind"] == *self.def.kind {
            self.answer(written.code, object)
        } else {
            json_answer(written.code, object)
        };
        if let Response::Full(response) = &mut answer {
            for warning in &written.warnings {
                let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
                if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                    response.headers_mut().append(header::WARNING, value);
                }
            }
        }
        Ok(answer)
    }

    fn selected_keys(&self, sim: &Simulation) -> Result<Vec<(String, String)>, ApiError> {
        let options = ListOptions { limit: None, ..ListOptions::parse(self.query)? };
        let selection = self.selection(&options)?;
        Ok(sim
            .api
            .store
            .range(&self.resource, std::ops::Bound::Unbounded)
            .filter(|((namespace, _), object)| selection.holds(namespace, object))
            .map(|(key, _)| key.clone())
            .collect())
    }

    fn answer(&self, code: u16, object: &Value) -> Response {
        let presented = if self.as_events { &events::from_core(object) } else { object };
        if self.shape == Shape::Object {
            return json_answer(code, presented);
        }
        json_answer(code, &self.shape.object(&self.def, presented, self.now, true))
    }

    /// Logs, commands, and what else goes to a pod's node.
    fn pod_stream(&self, sim: &mut Simulation) -> Result<Response, ApiError> {
        let Target { namespace, name, subresource, .. } = self.target;
        if sim.api.get(&PODS, namespace, name).is_none() {
            return Err(ApiError::not_found(&PODS, name));
        }
        let container = self.query.get("container").unwrap_or_default().to_owned();
        match subresource.as_str() {
            "log" => {
                let log = LogRequest {
                    namespace: namespace.clone(),
                    pod: name.clone(),
                    container,
                    tail_lines: self.query.number("tailLines")?,
                };
                let text = match sim.frontend.logs {
                    Some(hook) => hook(&sim.world, &sim.api, &log)?,
                    None => String::new(),
                };
                Ok(text_answer(200, text))
            }
            "exec" if sim.frontend.exec.is_some() => {
                if *self.request.method() == Method::POST {
                    return Err(ApiError::new(
                        400,
                        "BadRequest",
                        "the simulated API server runs commands over WebSocket only, not over SPDY",
                    ));
                }
                Ok(Response::Exec(ExecRequest {
                    namespace: namespace.clone(),
                    pod: name.clone(),
                    container,
                    argv: self.query.all("command"),
                    stdin: self.query.flag("stdin"),
                    tty: self.query.flag("tty"),
                }))
            }
            _ => Err(ApiError::new(
                501,
                "NotImplemented",
                format!("{subresource} is not available: pod {name:?} is simulated"),
            )),
        }
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

fn authorize(sim: &Simulation, user: &User, target: &Target, verb: &str) -> Result<(), ApiError> {
    let mut resource = target.plural.clone();
    if !target.subresource.is_empty() {
        resource = format!("{resource}/{}", target.subresource);
    }
    let access = Access {
        verb: verb.to_owned(),
        group: target.group.clone(),
        resource,
        namespace: target.namespace.clone(),
        name: target.name.clone(),
    };
    // Everybody may ask about themselves.
    let about_self = target.plural.starts_with("selfsubject");
    if about_self || rbac::allows(&sim.api, user, &access) {
        return Ok(());
    }
    let resource = Resource::dynamic(target.group.clone(), target.plural.clone());
    let what = if target.name.is_empty() {
        format!("{resource} is forbidden")
    } else {
        format!("{resource} {:?} is forbidden", target.name)
    };
    let mut details = json!({"group": target.group, "kind": target.plural});
    if !target.name.is_empty() {
        details["name"] = json!(target.name);
    }
    Err(ApiError::new(403, "Forbidden", format!("{what}: {}", access.refusal(user)))
        .with_details(details))
}

fn reviews(
    sim: &Simulation,
    request: &Request,
    kind: &str,
    target: &Target,
    user: &User,
) -> Result<Response, ApiError> {
    if *request.method() != Method::POST {
        return Err(ApiError::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ));
    }
    let body = body::object(request)?;
    Ok(json_answer(201, &review::answer(&sim.api, kind, &target.group, &body, user)))
}

/// The Scale view of an object.
fn scale_of(def: &ResourceDef, object: &Value) -> Value {
    let paths = def.scale.as_ref();
    let number = |path: Option<&String>| {
        path.and_then(|path| object.pointer(path)).and_then(Value::as_i64).unwrap_or(0)
    };
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": number(paths.map(|paths| &paths.spec_replicas))},
        "status": {"replicas": number(paths.map(|paths| &paths.status_replicas))},
    });
    if metadata["namespace"].is_string() {
        scale["metadata"]["namespace"] = metadata["namespace"].clone();
    }
    let selector = paths
        .and_then(|paths| paths.selector.as_ref())
        .and_then(|path| object.pointer(path))
        .map(|selector| match selector {
            Value::String(text) => text.clone(),
            other => other["matchLabels"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(","),
        });
    if let Some(selector) = selector {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

fn unknown_resource() -> ApiError {
    ApiError::new(404, "NotFound", "the server could not find the requested resource")
        .with_details(json!({}))
}

fn page_not_found() -> Response {
    Response::Full(with_type(404, Bytes::from_static(b"404 page not found\n"), "text/plain"))
}

fn text_answer(code: u16, text: impl Into<Bytes>) -> Response {
    Response::Full(with_type(code, text.into(), "text/plain"))
}

fn json_answer(code: u16, value: &Value) -> Response {
    Response::Full(json_response(code, value))
}

fn json_response(code: u16, value: &Value) -> http::Response<Bytes> {
    with_type(code, value.to_string().into(), "application/json")
}

fn with_type(code: u16, body: Bytes, content_type: &str) -> http::Response<Bytes> {
    let mut response = http::Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}
