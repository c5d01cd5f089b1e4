//! Schemas of the built-in kinds, made from the Rust types of k8s-openapi when first asked for.
//!
//! Nothing is built at start-up, and what is kept has no descriptions: those are made anew for OpenAPI
//! documents. Required fields are not checked here: the validation of built-in kinds does that.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::{api, apiextensions_apiserver::pkg::apis::apiextensions};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

use super::format::Format;
use super::node::{Additional, Checks, MAX_OBJECT_DEPTH, Node, NodeId, Type};
use super::validate::type_name;
use super::{Structural, validate};
use crate::api::error::ApiError;
use crate::api::registry::ResourceDef;

/// Makes the schema of one kind and the definitions that it refers to.
pub(in crate::api) type Definition = fn(&mut SchemaGenerator) -> Schema;

struct Entry {
    group: &'static str,
    kind: &'static str,
    definition: Definition,
    schema: OnceLock<Structural>,
}

macro_rules! kinds {
    ($($group:literal { $($kind:ident: $ty:ty,)* })*) => {
        static KINDS: [Entry; 43] = [$($(
            Entry {
                group: $group,
                kind: stringify!($kind),
                definition: |generator| generator.subschema_for::<$ty>(),
                schema: OnceLock::new(),
            },
        )*)*];
    };
}

kinds! {
    "" {
        ConfigMap: api::core::v1::ConfigMap,
        Endpoints: api::core::v1::Endpoints,
        Event: api::core::v1::Event,
        LimitRange: api::core::v1::LimitRange,
        Namespace: api::core::v1::Namespace,
        Node: api::core::v1::Node,
        PersistentVolume: api::core::v1::PersistentVolume,
        PersistentVolumeClaim: api::core::v1::PersistentVolumeClaim,
        Pod: api::core::v1::Pod,
        ReplicationController: api::core::v1::ReplicationController,
        ResourceQuota: api::core::v1::ResourceQuota,
        Secret: api::core::v1::Secret,
        Service: api::core::v1::Service,
        ServiceAccount: api::core::v1::ServiceAccount,
    }
    "admissionregistration.k8s.io" {
        MutatingWebhookConfiguration: api::admissionregistration::v1::MutatingWebhookConfiguration,
        ValidatingAdmissionPolicy: api::admissionregistration::v1::ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding: api::admissionregistration::v1::ValidatingAdmissionPolicyBinding,
        ValidatingWebhookConfiguration: api::admissionregistration::v1::ValidatingWebhookConfiguration,
    }
    "apiextensions.k8s.io" {
        CustomResourceDefinition: apiextensions::v1::CustomResourceDefinition,
    }
    "apps" {
        ControllerRevision: api::apps::v1::ControllerRevision,
        DaemonSet: api::apps::v1::DaemonSet,
        Deployment: api::apps::v1::Deployment,
        ReplicaSet: api::apps::v1::ReplicaSet,
        StatefulSet: api::apps::v1::StatefulSet,
    }
    "autoscaling" {
        HorizontalPodAutoscaler: api::autoscaling::v2::HorizontalPodAutoscaler,
    }
    "batch" {
        CronJob: api::batch::v1::CronJob,
        Job: api::batch::v1::Job,
    }
    "coordination.k8s.io" {
        Lease: api::coordination::v1::Lease,
    }
    "discovery.k8s.io" {
        EndpointSlice: api::discovery::v1::EndpointSlice,
    }
    "events.k8s.io" {
        Event: api::events::v1::Event,
    }
    "networking.k8s.io" {
        Ingress: api::networking::v1::Ingress,
        IngressClass: api::networking::v1::IngressClass,
        NetworkPolicy: api::networking::v1::NetworkPolicy,
    }
    "node.k8s.io" {
        RuntimeClass: api::node::v1::RuntimeClass,
    }
    "policy" {
        PodDisruptionBudget: api::policy::v1::PodDisruptionBudget,
    }
    "rbac.authorization.k8s.io" {
        ClusterRole: api::rbac::v1::ClusterRole,
        ClusterRoleBinding: api::rbac::v1::ClusterRoleBinding,
        Role: api::rbac::v1::Role,
        RoleBinding: api::rbac::v1::RoleBinding,
    }
    "scheduling.k8s.io" {
        PriorityClass: api::scheduling::v1::PriorityClass,
    }
    "storage.k8s.io" {
        CSIDriver: api::storage::v1::CSIDriver,
        CSINode: api::storage::v1::CSINode,
        StorageClass: api::storage::v1::StorageClass,
    }
}

fn entry(def: &ResourceDef) -> Option<&'static Entry> {
    if def.custom.is_some() {
        return None;
    }
    KINDS.iter().find(|entry| entry.group == def.resource.group && entry.kind == def.kind)
}

/// The generator of OpenAPI schemas: `$ref`s point to `#/components/schemas/`.
pub(in crate::api) fn openapi_generator() -> SchemaGenerator {
    SchemaSettings::openapi3().into_generator()
}

/// How to make the OpenAPI schema of a built-in kind; `None` for kinds of CRDs.
pub(in crate::api) fn definition(def: &ResourceDef) -> Option<Definition> {
    entry(def).map(|entry| entry.definition)
}

/// The schema of a built-in kind, for unknown fields and wrong types; `None` for kinds of CRDs.
///
/// The first call for a kind builds it, later ones are free.
pub fn builtin(def: &ResourceDef) -> Option<&'static Structural> {
    let entry = entry(def)?;
    Some(entry.schema.get_or_init(|| {
        let mut generator = openapi_generator();
        let root = (entry.definition)(&mut generator);
        let definitions = generator.take_definitions(false);
        Converter { definitions: &definitions, known: BTreeMap::new(), nodes: Vec::new() }
            .finish(root.as_value())
    }))
}

/// `400 BadRequest` for a built-in kind with a value of the wrong type, as its decoder answers;
/// `None` if the types are right or the kind is that of a CRD.
pub fn decode_error(def: &ResourceDef, object: &Value) -> Option<ApiError> {
    let schema = builtin(def)?;
    let wrong = first_mismatch(schema, object, 0, &def.kind, 0)?;
    let (kind, version) = (&def.kind, &def.version);
    Some(ApiError::new(
        400,
        "BadRequest",
        format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: json: cannot unmarshal \
             {wrong}"
        ),
    ))
}

fn first_mismatch(
    schema: &Structural,
    value: &Value,
    id: NodeId,
    path: &str,
    depth: usize,
) -> Option<String> {
    let node = schema.node(id).filter(|_| depth <= MAX_OBJECT_DEPTH)?;
    // Decoders take null for the absent value.
    if value.is_null() {
        return None;
    }
    let found = match type_name(value) {
        "integer" => "number",
        "boolean" => "bool",
        other => other,
    };
    if let Some(wanted) = validate::wrong_type(node, value) {
        let wanted = match node.kind {
            Some(Type::Boolean) => "bool",
            Some(Type::Number) => "float64",
            Some(Type::Integer) => match node.checks.as_deref().and_then(|c| c.format.as_ref()) {
                Some(Format::Number(name)) if &**name == "int32" => "int32",
                _ => "int64",
            },
            _ if node.int_or_string => "intstr.IntOrString",
            _ => &wanted,
        };
        return Some(format!("{found} into Go struct field {path} of type {wanted}"));
    }
    match value {
        Value::Object(members) => members.iter().find_map(|(key, member)| {
            first_mismatch(schema, member, node.member(key)?, &format!("{path}.{key}"), depth + 1)
        }),
        Value::Array(items) => {
            let below = node.items?;
            items.iter().find_map(|item| first_mismatch(schema, item, below, path, depth + 1))
        }
        _ => None,
    }
}

/// Optional flags that are not pointers in Go, so that false and absent are the same.
const LEFT_OUT_WHEN_FALSE: [&str; 11] = [
    "globalDefault",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "paused",
    "publishNotReadyAddresses",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    "unschedulable",
];

/// Removes optional lists and maps that are empty, below node `id`.
pub(super) fn drop_empty(schema: &Structural, value: &mut Value, id: NodeId, depth: usize) {
    let Some(node) = schema.node(id).filter(|_| depth <= MAX_OBJECT_DEPTH) else { return };
    match value {
        Value::Object(members) => {
            let required = node.checks.as_deref().map_or(&[][..], |checks| &checks.required);
            members.retain(|key, member| {
                // The root's metadata is decoded on its own.
                let Some(id) = node.member(key).filter(|_| depth > 0 || key != "metadata") else {
                    return true;
                };
                drop_empty(schema, member, id, depth + 1);
                let map = schema.node(id).is_some_and(|node| {
                    matches!(node.additional, Additional::Schema(_)) && node.properties.is_empty()
                });
                let empty = match member {
                    Value::Bool(false) => LEFT_OUT_WHEN_FALSE.contains(&key.as_str()),
                    Value::String(text) => text.is_empty() && key == "value",
                    Value::Array(items) => items.is_empty(),
                    Value::Object(below) => map && below.is_empty(),
                    _ => false,
                };
                !empty || !node.properties.contains_key(&**key) || required.contains(key)
            });
        }
        Value::Array(items) => {
            let Some(id) = node.items else { return };
            for item in items {
                drop_empty(schema, item, id, depth + 1);
            }
        }
        _ => {}
    }
}

struct Converter<'a> {
    definitions: &'a Map<String, Value>,
    known: BTreeMap<&'a str, NodeId>,
    nodes: Vec<Node>,
}

impl<'a> Converter<'a> {
    fn finish(mut self, root: &'a Value) -> Structural {
        // The root's own node comes first: the definitions that it refers to follow it.
        let id = self.node(root);
        debug_assert_eq!(id, 0, "the root is the first node");
        Structural { raw: Value::Null, nodes: self.nodes }
    }

    fn node(&mut self, schema: &'a Value) -> NodeId {
        let name = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| reference.rsplit('/').next());
        if let Some(name) = name {
            if let Some(id) = self.known.get(name) {
                return *id;
            }
            let id = self.reserve();
            self.known.insert(name, id);
            let definitions = self.definitions;
            if let Some(schema) = definitions.get(name) {
                self.fill(id, schema);
            }
            return id;
        }
        let id = self.reserve();
        self.fill(id, schema);
        id
    }

    fn reserve(&mut self) -> NodeId {
        self.nodes.push(Node { preserve: true, ..Node::default() });
        self.nodes.len() - 1
    }

    fn fill(&mut self, id: NodeId, schema: &'a Value) {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let int_or_string = schema.get("x-kubernetes-int-or-string").is_some();
        let mut node = Node {
            kind: text("type").and_then(Type::from_name),
            nullable: true,
            int_or_string,
            ..Node::default()
        };
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (key, below) in properties {
                let below = self.node(below);
                node.properties.insert(key.as_str().into(), below);
            }
        }
        let required: Vec<String> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        if let Some(below) = schema.get("additionalProperties").filter(|below| below.is_object()) {
            node.additional = Additional::Schema(self.node(below));
        }
        if let Some(below) = schema.get("items") {
            node.items = Some(self.node(below));
        }
        if let Some(format) = text("format").and_then(Format::from_name) {
            node.checks = Some(Box::new(Checks { format: Some(format), ..Checks::default() }));
        }
        if !required.is_empty() {
            node.checks = Some(Box::new(Checks { required, ..Checks::default() }));
        }
        // k8s-openapi describes values of any shape as objects without properties.
        let open = node.properties.is_empty() && matches!(node.additional, Additional::None);
        if open && node.kind == Some(Type::Object) {
            node.kind = None;
        }
        // A quantity may be a number of any kind.
        if int_or_string && text("description").is_some_and(|text| text.starts_with("Quantity")) {
            node.int_or_string = false;
        }
        node.preserve = open && !matches!(node.kind, Some(Type::Array));
        if let Some(slot) = self.nodes.get_mut(id) {
            *slot = node;
        }
    }
}
