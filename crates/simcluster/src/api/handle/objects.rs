//! Requests about objects whose target is known to be served.

use std::sync::Arc;

use http::{HeaderValue, Method, header};
use jiff::Timestamp;
use serde_json::Value;

use super::answer::{json_answer, text_answer, with_type};
use super::{Response, access, call_info};
use crate::api::authentication::User;
use crate::api::error::ApiError;
use crate::api::frontend::{ExecRequest, LogRequest};
use crate::api::list::{self, Selection};
use crate::api::negotiate::Shape;
use crate::api::registry::ResourceDef;
use crate::api::request::{ListOptions, Query, Request, Target};
use crate::api::selector::{FieldSelector, LabelSelector};
use crate::api::server::{WriteOptions, WriteRequest, WriteVerb, scale_of};
use crate::api::watch::Watcher;
use crate::api::{body, events, rbac};
use crate::resource::PODS;
use crate::{Resource, Simulation};

/// A request about objects, once its target is known to be served.
pub(super) struct Call<'a> {
    pub(super) request: &'a Request,
    pub(super) query: &'a Query,
    pub(super) target: &'a Target,
    pub(super) verb: &'static str,
    pub(super) def: Arc<ResourceDef>,
    /// Where the objects are stored.
    pub(super) resource: Resource,
    /// Whether objects are shown as events.k8s.io Events.
    pub(super) as_events: bool,
    pub(super) shape: Shape,
    pub(super) now: Timestamp,
}

impl Call<'_> {
    pub(super) fn get(&self, sim: &Simulation) -> Result<Response, ApiError> {
        let Target { namespace, name, subresource, .. } = self.target;
        let object = sim
            .api
            .get(&self.resource, namespace, name)
            .ok_or_else(|| ApiError::not_found(&self.resource, name))?;
        match subresource.as_str() {
            "" | "status" => Ok(self.answer(200, &object)),
            "scale" => {
                let paths = self.def.scale.as_ref().ok_or_else(ApiError::unknown_resource)?;
                Ok(json_answer(200, &scale_of(paths, &object)))
            }
            _ => Err(ApiError::method_not_allowed(
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

    pub(super) fn list(&self, sim: &Simulation) -> Result<Response, ApiError> {
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

    pub(super) fn watch(&self, sim: &Simulation) -> Result<Response, ApiError> {
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

    pub(super) fn write(&self, sim: &mut Simulation, user: &User) -> Result<Response, ApiError> {
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
            user: Some(user.clone()),
            verb,
            resource: self.resource.clone(),
            namespace: self.target.namespace.clone(),
            name: self.target.name.clone(),
            subresource: self.target.subresource.clone(),
            body,
            options,
        };
        access::creation(sim, user, self, patch_type)?;
        let grants = self.resource.group == rbac::GROUP;
        if grants && matches!(self.verb, "create" | "update" | "patch") && !user.is_admin() {
            let options = WriteOptions { dry_run: true, ..write.options.clone() };
            let trial = sim.api.write(self.now, &WriteRequest { options, ..write.clone() })?;
            access::escalation(sim, user, self, &trial.object)?;
        }
        let written = sim.api.write(self.now, &write).inspect_err(|error| {
            if error.is_of_policy() {
                sim.frontend.deny(&error.message);
            }
        })?;
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
    pub(super) fn pod_stream(&self, sim: &mut Simulation) -> Result<Response, ApiError> {
        let Target { namespace, name, subresource, .. } = self.target;
        let pod = sim.api.get(&PODS, namespace, name);
        let pod = pod.ok_or_else(|| ApiError::not_found(&PODS, name))?;
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
            "exec" | "attach" if sim.frontend.exec.is_some() => {
                if *self.request.method() == Method::POST {
                    return Err(ApiError::new(
                        400,
                        "BadRequest",
                        "the simulated API server runs commands over WebSocket only, not over SPDY",
                    ));
                }
                let (argv, attach) = (self.query.all("command"), subresource == "attach");
                if argv.is_empty() && !attach {
                    let text = "you must specify at least 1 command for the container";
                    return Err(ApiError::new(400, "BadRequest", text));
                }
                let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
                let mut named = containers
                    .filter(|it| container.is_empty() || it["name"] == container.as_str());
                let ends_with_input = named.next().is_some_and(|it| it["stdinOnce"] == true);
                Ok(Response::Exec(ExecRequest {
                    namespace: namespace.clone(),
                    pod: name.clone(),
                    container,
                    argv,
                    attach,
                    outlives_input: attach && !ends_with_input,
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
