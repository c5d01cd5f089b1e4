//! What stands in front of the API server's operations: fault rules, request counters, the
//! simulator's own control endpoints, and the hooks for what only hosts can answer.
//!
//! It must not know what the hooks and controls do.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::authentication::{Signer, Strangers};
use super::error::ApiError;
use super::fault::{CallInfo, Faults, Rule};
use super::openapi;
use super::registry::Registry;
use super::request::Query;
use super::server::ApiServer;
use crate::Simulation;
use crate::world::World;

/// How many different refusals are remembered.
const DENIALS: usize = 1000;

/// A request to `/sim/v1/NAME/PATH`.
#[derive(Clone, Debug)]
pub struct ControlRequest {
    /// The method.
    pub method: Method,
    /// What follows the control's name in the path.
    pub path: String,
    /// The query.
    pub query: Query,
    /// The body; null if there is none.
    pub body: Value,
}

/// Answers the requests of one control endpoint.
pub type Control = fn(&mut Simulation, &ControlRequest) -> Result<Value, ApiError>;

/// A command to run in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The container; empty for the only or first one.
    pub container: String,
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// Whether it is the container's own command, which runs already.
    pub attach: bool,
    /// Whether it goes on when standard input ends.
    pub outlives_input: bool,
    /// Whether standard input will be sent.
    pub stdin: bool,
    /// Whether a terminal is wanted.
    pub tty: bool,
}

/// What a command did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutcome {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// The exit code.
    pub exit_code: i32,
    /// What a shell shows before its next line; `None` if it has ended, and for every other command.
    pub prompt: Option<String>,
}

/// What the shells of a connection keep from one line to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The shells, each of which was started by the one before it; none before the first line and after the end.
    pub(crate) shells: Vec<Shell>,
    /// Lines without the end of their last quotation.
    pub(crate) unfinished: String,
}

/// A shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shell {
    /// Its variables.
    pub(crate) variables: BTreeMap<String, String>,
    /// The exit code of its last command.
    pub(crate) status: i32,
    /// Whether its root directory is that of the host.
    pub(crate) on_host: bool,
}

/// A line to a shell that gives up what was typed so far.
pub const CTRL_C: &str = "\u{3}";
/// A line to a shell that ends it.
pub const CTRL_D: &str = "\u{4}";

/// Runs a command in a container; the bytes are its standard input, and nothing is changed by it. To a shell that reads
/// commands they are lines, with which it goes on with the session.
pub type ExecHook =
    fn(&mut World, &ApiServer, &ExecRequest, &mut Session, &[u8]) -> Result<ExecOutcome, ApiError>;

/// Which log is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The container; empty for the only or first one.
    pub container: String,
    /// How many lines from the end; `None` for all.
    pub tail_lines: Option<u64>,
}

/// Gives the log of a container.
pub type LogHook = fn(&World, &ApiServer, &LogRequest) -> Result<String, ApiError>;

/// The OpenAPI document of a group and version, and its fingerprint.
type Document = (u64, Option<Bytes>);

/// The state of the front end.
#[derive(Debug, Default)]
pub struct Frontend {
    /// The fault rules.
    pub faults: Faults,
    /// Runs commands in containers; without it, `kubectl exec` is told that there is none.
    pub exec: Option<ExecHook>,
    /// Gives containers' logs; without it, logs are empty.
    pub logs: Option<LogHook>,
    /// The key of the tokens, if clients must show them; then RBAC is enforced.
    pub signer: Option<Signer>,
    /// Who somebody is that shows no token, if RBAC is enforced.
    pub strangers: Strangers,
    /// What was refused because it is not allowed, and how often.
    denied: BTreeMap<String, u64>,
    controls: BTreeMap<&'static str, Control>,
    requests: BTreeMap<(String, &'static str), u64>,
    documents: BTreeMap<(String, String), Document>,
}

impl Frontend {
    /// Serves `/sim/v1/NAME` with `control`.
    pub fn register(&mut self, name: &'static str, control: Control) {
        self.controls.insert(name, control);
    }

    /// Counts a request.
    pub fn count(&mut self, call: &CallInfo) {
        let mut resource = call.resource.clone();
        if !call.group.is_empty() {
            resource = format!("{resource}.{}", call.group);
        }
        if !call.subresource.is_empty() {
            resource = format!("{resource}/{}", call.subresource);
        }
        *self.requests.entry((resource, call.verb)).or_default() += 1;
    }

    /// How many requests there were since the last reset, by resource and verb.
    pub fn requests(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.requests.iter().map(|((resource, verb), count)| (resource.as_str(), *verb, *count))
    }

    /// Sets all counters of requests to zero.
    pub fn reset_requests(&mut self) {
        self.requests.clear();
        self.denied.clear();
    }

    /// Remembers a refusal.
    pub fn deny(&mut self, message: &str) {
        if let Some(count) = self.denied.get_mut(message) {
            *count += 1;
        } else if self.denied.len() < DENIALS {
            self.denied.insert(message.to_owned(), 1);
        }
    }

    /// What was refused since the last reset because it is not allowed, and how often.
    pub fn denied(&self) -> impl Iterator<Item = (&str, u64)> {
        self.denied.iter().map(|(message, count)| (message.as_str(), *count))
    }

    /// The OpenAPI document of a group and version as JSON text.
    pub fn openapi(&mut self, registry: &Registry, group: &str, version: &str) -> Option<Bytes> {
        let key = (group.to_owned(), version.to_owned());
        let fingerprint = openapi::fingerprint(registry, group, version);
        if let Some((known, document)) = self.documents.get(&key)
            && *known == fingerprint
        {
            return document.clone();
        }
        let document = openapi::document(registry, group, version)
            .map(|document| Bytes::from(document.to_string()));
        self.documents.insert(key, (fingerprint, document.clone()));
        document
    }
}

/// How many times faster than real time a cluster's time may pass at most: beyond that nothing but its
/// controllers has a turn.
pub const MAX_SPEED: f64 = 100_000.0;

/// Answers a request to `/sim/v1/...`.
///
/// # Errors
/// `404` for a control that does not exist, and whatever the control refuses.
pub fn control(
    sim: &mut Simulation,
    path: &str,
    request: &ControlRequest,
) -> Result<Value, ApiError> {
    let name = path.split('/').next().unwrap_or_default();
    match (name, &request.method) {
        ("requests", &Method::GET) => Ok(requests(&sim.frontend)),
        ("requests", _) => {
            let counters = requests(&sim.frontend);
            sim.frontend.reset_requests();
            Ok(counters)
        }
        ("faults", &Method::GET) => Ok(faults(&sim.frontend.faults)),
        ("faults", &Method::DELETE) => {
            sim.frontend.faults.clear();
            Ok(faults(&sim.frontend.faults))
        }
        ("faults", _) => {
            let rules = match &request.body {
                Value::Array(rules) => rules.clone(),
                rule => vec![rule.clone()],
            };
            for rule in rules {
                let rule: Rule = serde_json::from_value(rule).map_err(|error| {
                    ApiError::new(400, "BadRequest", format!("not a fault rule: {error}"))
                })?;
                sim.frontend.faults.add(rule);
            }
            Ok(faults(&sim.frontend.faults))
        }
        ("speed", &Method::POST | &Method::PUT) => {
            let speed =
                request.body["speed"].as_f64().filter(|speed| *speed > 0.0 && *speed <= MAX_SPEED);
            let speed = speed.ok_or_else(|| {
                ApiError::new(
                    400,
                    "BadRequest",
                    format!("speed must be a number above 0 and at most {MAX_SPEED}, as in {{\"speed\": 60}}"),
                )
            })?;
            sim.set_speed(speed);
            Ok(json!({"speed": speed}))
        }
        ("dump", &Method::GET) => Ok(dump(sim)),
        _ => match sim.frontend.controls.get(name).copied() {
            Some(control) => control(sim, request),
            None => {
                let known: Vec<&str> = sim.frontend.controls.keys().copied().collect();
                Err(ApiError::new(
                    404,
                    "NotFound",
                    format!(
                        "the simulator has no control {name:?}; there are requests, faults, speed, dump{}{}",
                        if known.is_empty() { "" } else { ", " },
                        known.join(", ")
                    ),
                ))
            }
        },
    }
}

fn requests(frontend: &Frontend) -> Value {
    let entries: Vec<Value> = frontend
        .requests()
        .map(|(resource, verb, count)| json!({"resource": resource, "verb": verb, "count": count}))
        .collect();
    let total: u64 = frontend.requests().map(|(.., count)| count).sum();
    let mut counters = json!({"total": total, "requests": entries});
    if frontend.signer.is_some() {
        let denied = frontend.denied();
        let denied = denied.map(|(message, count)| json!({"message": message, "count": count}));
        counters["denied"] = denied.collect();
    }
    counters
}

fn faults(faults: &Faults) -> Value {
    let rules: Vec<Value> =
        faults.rules().map(|(rule, struck)| json!({"rule": rule, "struck": struck})).collect();
    json!({"calls": faults.calls(), "rules": rules})
}

fn dump(sim: &Simulation) -> Value {
    let objects: Vec<Value> = sim
        .api
        .registry
        .iter()
        .flat_map(|def| sim.api.store.list(&def.resource))
        .map(|object| (**object).clone())
        .collect();
    json!({
        "kind": "List", "apiVersion": "v1", "items": objects,
        "metadata": {"resourceVersion": sim.api.store.revision().to_string()},
    })
}
