//! The write path, held to the facts that were measured on a real API server.

mod admission;
mod controllers;
mod create;
mod definitions;
mod delete;
mod pods;
mod policy;
mod properties;
mod update;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use simcluster::Resource;
use simcluster::api::ApiServer;
use simcluster::api::error::ApiError;
use simcluster::api::server::{
    FieldValidation, PatchType, WriteOptions, WriteRequest, WriteResponse, WriteVerb,
};

/// When the tests' requests arrive.
fn now() -> Timestamp {
    "2026-01-01T00:00:00.25Z".parse().unwrap()
}

/// A server with the namespaces that every cluster has.
fn server() -> ApiServer {
    let mut api = ApiServer::default();
    api.bootstrap(now());
    api
}

/// A request by a client outside.
fn request(verb: WriteVerb, resource: &Resource, place: (&str, &str), body: Value) -> WriteRequest {
    WriteRequest {
        user: None,
        verb,
        resource: resource.clone(),
        namespace: place.0.to_owned(),
        name: place.1.to_owned(),
        subresource: String::new(),
        body,
        options: WriteOptions {
            field_manager: "test".to_owned(),
            field_validation: FieldValidation::Strict,
            ..WriteOptions::default()
        },
    }
}

type Answer = Result<WriteResponse, ApiError>;

fn create(api: &mut ApiServer, resource: &Resource, namespace: &str, body: Value) -> Answer {
    api.write(now(), &request(WriteVerb::Create, resource, (namespace, ""), body))
}

fn put(api: &mut ApiServer, resource: &Resource, place: (&str, &str), body: Value) -> Answer {
    api.write(now(), &request(WriteVerb::Update, resource, place, body))
}

fn patch(
    api: &mut ApiServer,
    kind: PatchType,
    resource: &Resource,
    place: (&str, &str),
    body: Value,
) -> Answer {
    api.write(now(), &request(WriteVerb::Patch(kind), resource, place, body))
}

fn merge(api: &mut ApiServer, resource: &Resource, place: (&str, &str), body: Value) -> Answer {
    patch(api, PatchType::Merge, resource, place, body)
}

fn delete(api: &mut ApiServer, resource: &Resource, place: (&str, &str), body: Value) -> Answer {
    api.write(now(), &request(WriteVerb::Delete, resource, place, body))
}

/// A request to a subresource.
fn sub(
    api: &mut ApiServer,
    subresource: &str,
    verb: WriteVerb,
    resource: &Resource,
    place: (&str, &str),
    body: Value,
) -> Answer {
    let mut request = request(verb, resource, place, body);
    request.subresource = subresource.to_owned();
    api.write(now(), &request)
}

/// Code, reason and message of an answer; for a success what was written.
fn told(answer: Answer) -> (u16, String, String) {
    match answer {
        Ok(response) => (response.code, String::new(), String::new()),
        Err(error) => (error.code, error.reason.to_owned(), error.message),
    }
}

fn object(answer: Answer) -> Arc<Value> {
    answer.unwrap().object
}

/// A minimal pod.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "registry.example.com/app:1"}]},
    })
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}
