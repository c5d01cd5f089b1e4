//! The RuntimeClasses of kata-operator: their bodies for server-side apply, and the predicates that decide
//! whether an existing class belongs to it and whether that differs. [`crate::plan`] decides when a class
//! is written.

use std::collections::BTreeMap;

use k8s_openapi::api::node::v1::{Overhead, RuntimeClass, Scheduling};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kata_api::kata_config::RuntimeSpec;
use kata_api::quantity::nano;
use kata_api::{KataConfig, names};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::object::Kind;
use crate::ownership::{annotation, body, has_labels, is_managed, own_labels};
use crate::settings;

/// The annotations in which a class records what its other fields do not show.
const RECORDS: [&str; 5] = [
    names::OVERHEAD_ANNOTATION,
    names::OVERHEAD_RESOURCES_ANNOTATION,
    names::SHIM_ANNOTATION,
    names::SETTINGS_ANNOTATION,
    names::TAKEN_OVER_ANNOTATION,
];

/// Whether a RuntimeClass belongs to kata-operator, or to the OpenShift operator.
pub fn is_our_class(class: &RuntimeClass) -> bool {
    is_managed(&class.metadata)
        || class.metadata.owner_references.iter().flatten().any(|owner| {
            owner.kind == Kind::KataConfig.as_str()
                && owner.api_version.starts_with("kataconfiguration.openshift.io/")
        })
}

/// Whether a RuntimeClass belongs to a kata-deploy without a suffix.
///
/// Its chart makes all of its classes select the label of its nodes, also those that its users define. Their own labels do
/// not say so: Helm writes its `app.kubernetes.io/managed-by` over that of the chart.
pub fn is_of_kata_deploy(class: &RuntimeClass) -> bool {
    let selector = class.scheduling.as_ref().and_then(|it| it.node_selector.as_ref());
    !is_managed(&class.metadata)
        && selector.and_then(|it| it.get(names::KATA_DEPLOY_LABEL)).is_some_and(|it| it == "true")
}

/// What a RuntimeClass of kata-deploy is before it is taken over.
#[derive(Serialize, Deserialize)]
struct TakenOver {
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overhead: Option<Overhead>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scheduling: Option<Scheduling>,
}

/// What a RuntimeClass records of the time before it was taken over.
fn taken_over(existing: &RuntimeClass) -> Option<String> {
    if !is_of_kata_deploy(existing) {
        return annotation(&existing.metadata, names::TAKEN_OVER_ANNOTATION).cloned();
    }
    let before = TakenOver {
        labels: existing.metadata.labels.clone().unwrap_or_default(),
        overhead: existing.overhead.clone(),
        scheduling: existing.scheduling.clone(),
    };
    serde_json::to_string(&before).ok()
}

/// A RuntimeClass of kata-deploy as it was before it was taken over; `None` if it was not, or if what it records cannot be
/// read.
pub(crate) fn given_back(existing: &RuntimeClass) -> Option<Value> {
    let record = annotation(&existing.metadata, names::TAKEN_OVER_ANNOTATION)?;
    let before: TakenOver = serde_json::from_str(record).ok()?;
    let name = existing.metadata.name.as_deref().unwrap_or_default();
    let mut body = body(Kind::RuntimeClass, name, &before.labels);
    body["handler"] = json!(existing.handler);
    if let Some(overhead) = before.overhead {
        body["overhead"] = json!(overhead);
    }
    if let Some(scheduling) = before.scheduling {
        body["scheduling"] = json!(scheduling);
    }
    Some(body)
}

/// Whether a RuntimeClass is closed to new pods.
pub(crate) fn is_closed(class: &RuntimeClass) -> bool {
    let selector = class.scheduling.as_ref().and_then(|it| it.node_selector.as_ref());
    selector.is_some_and(|selector| selector.contains_key(names::CLOSED_LABEL))
}

/// An existing RuntimeClass with a node selector that no node matches, so that it takes no new pods.
/// Running pods keep the selector that they were admitted with.
pub(crate) fn closed_class(config: &KataConfig, existing: &RuntimeClass) -> Value {
    let name = existing.metadata.name.as_deref().unwrap_or_default();
    let mut body = body(Kind::RuntimeClass, name, &own_labels(config));
    let is_set = |key: &&str| annotation(&existing.metadata, key).is_some();
    for key in RECORDS.iter().filter(|key| is_set(key)) {
        body["metadata"]["annotations"][*key] = json!(annotation(&existing.metadata, key));
    }
    if !is_set(&names::TAKEN_OVER_ANNOTATION) {
        body["metadata"]["ownerReferences"] = owner_references(config);
    }
    body["handler"] = json!(existing.handler);
    if let Some(overhead) = &existing.overhead {
        body["overhead"] = json!(overhead);
    }
    let tolerations = existing.scheduling.as_ref().and_then(|it| it.tolerations.clone());
    body["scheduling"] = json!(Scheduling {
        node_selector: Some(BTreeMap::from([(names::CLOSED_LABEL.to_owned(), "true".to_owned())])),
        tolerations: Some(tolerations.unwrap_or_default()),
    });
    body
}

fn owner_references(config: &KataConfig) -> Value {
    json!([{
        "apiVersion": Kind::KataConfig.api_version(),
        "kind": Kind::KataConfig.as_str(),
        "name": config.metadata.name,
        "uid": config.metadata.uid.clone().unwrap_or_default(),
    }])
}

/// The body of a RuntimeClass, if the existing one differs. The handler is not compared, because it is
/// immutable.
///
/// `own` is the label that the class selects in addition to the runtime label and the key of the class.
pub(crate) fn runtime_class(
    config: &KataConfig,
    own: (&str, &str),
    runtime: &RuntimeSpec,
    existing: Option<&RuntimeClass>,
) -> Option<Value> {
    let labels = own_labels(config);
    let adopted = existing.and_then(|existing| adopted_overhead(existing, runtime));
    let (cpu, memory) = adopted.clone().unwrap_or_else(|| runtime.effective_overhead());
    let resources = runtime.overhead_resources();
    let listed: Vec<&str> = resources.keys().map(String::as_str).collect();
    let records = [
        adopted.as_ref().map(|(cpu, memory)| format!("{}/{}", cpu.0, memory.0)),
        (!listed.is_empty()).then(|| listed.join(" ")),
        unusual_shim(runtime).map(str::to_owned),
        valid_settings(runtime, existing),
        existing.and_then(taken_over),
    ];
    let mut overhead = resources;
    overhead.extend([("cpu".to_owned(), cpu), ("memory".to_owned(), memory)]);
    let mut node_selector = runtime.node_selector.clone();
    // The operator's labels replace those of the spec: pods that are sent to nodes without the runtime
    // never start.
    node_selector.insert(own.0.to_owned(), own.1.to_owned());
    let key = names::class_label(&runtime.name);
    node_selector.insert(key, names::CLASS_LABEL_SERVED.to_owned());
    node_selector.insert(names::RUNTIME_LABEL.to_owned(), names::RUNTIME_LABEL_VERIFIED.to_owned());
    let scheduling = Scheduling {
        node_selector: Some(node_selector),
        // Also if there are none: an apply without the list keeps the tolerations of other clients, so it
        // would be repeated for ever.
        tolerations: Some(runtime.tolerations.clone()),
    };
    let uid = config.metadata.uid.clone().unwrap_or_default();
    // One that goes back to kata-deploy must not be deleted with the KataConfig by the garbage collector.
    let is_owned = records.last().is_none_or(Option::is_none);
    let same = existing.is_some_and(|existing| {
        has_labels(&existing.metadata, &labels)
            && RECORDS.map(|key| annotation(&existing.metadata, key))
                == records.each_ref().map(Option::as_ref)
            && is_owned
                == existing.metadata.owner_references.iter().flatten().any(|it| it.uid == uid)
            && existing.scheduling.as_ref().is_some_and(|existing| {
                existing.node_selector == scheduling.node_selector
                    && existing.tolerations.clone().unwrap_or_default()
                        == scheduling.tolerations.clone().unwrap_or_default()
            })
            && has_overhead(existing.overhead.as_ref(), &overhead)
    });
    if same {
        return None;
    }
    let mut body = body(Kind::RuntimeClass, &runtime.name, &labels);
    if is_owned {
        body["metadata"]["ownerReferences"] = owner_references(config);
    }
    for (key, record) in RECORDS.into_iter().zip(records) {
        if let Some(record) = record {
            body["metadata"]["annotations"][key] = json!(record);
        }
    }
    body["handler"] = json!(runtime.effective_handler());
    body["overhead"] = json!({"podFixed": overhead});
    body["scheduling"] = json!(scheduling);
    Some(body)
}

/// The shim of a runtime, if it differs from the one that its handler's name implies.
fn unusual_shim(runtime: &RuntimeSpec) -> Option<&str> {
    let usual = RuntimeSpec { shim: None, ..runtime.clone() };
    let shim = runtime.effective_shim();
    (shim != usual.effective_shim()).then_some(shim)
}

/// The settings that a class records: those of the spec. If these are invalid, the last valid ones stay.
fn valid_settings(runtime: &RuntimeSpec, existing: Option<&RuntimeClass>) -> Option<String> {
    let config = runtime.config.as_ref()?;
    if settings::problem(config).is_none() {
        return Some(config.clone());
    }
    existing.and_then(recorded_settings).cloned()
}

/// The settings of a class's handler, if the class records some.
pub(crate) fn recorded_settings(class: &RuntimeClass) -> Option<&String> {
    annotation(&class.metadata, names::SETTINGS_ANNOTATION)
}

/// The shim of a class's handler, if the class records it.
pub(crate) fn recorded_shim(class: &RuntimeClass) -> Option<&String> {
    annotation(&class.metadata, names::SHIM_ANNOTATION)
}

/// The overhead that a class had when it was adopted. The OpenShift operator never overwrites the overhead,
/// so an admin may have changed it. The class keeps it as long as the KataConfig sets none.
pub(crate) fn adopted_overhead(
    existing: &RuntimeClass,
    runtime: &RuntimeSpec,
) -> Option<(Quantity, Quantity)> {
    let overhead = runtime.overhead.as_ref();
    if overhead.is_some_and(|overhead| overhead.cpu.is_some() || overhead.memory.is_some()) {
        return None;
    }
    if is_managed(&existing.metadata) {
        let recorded = annotation(&existing.metadata, names::OVERHEAD_ANNOTATION)?;
        let (cpu, memory) = recorded.split_once('/')?;
        return (nano(cpu).is_some() && nano(memory).is_some())
            .then(|| (Quantity(cpu.to_owned()), Quantity(memory.to_owned())));
    }
    let (cpu, memory) = runtime.effective_overhead();
    let wanted =
        BTreeMap::from([("cpu".to_owned(), cpu.clone()), ("memory".to_owned(), memory.clone())]);
    if has_overhead(existing.overhead.as_ref(), &wanted) {
        return None;
    }
    let fixed = existing.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref())?;
    let get = |key: &str, default: Quantity| {
        fixed.get(key).filter(|quantity| nano(&quantity.0).is_some()).cloned().unwrap_or(default)
    };
    Some((get("cpu", cpu), get("memory", memory)))
}

/// Whether an existing overhead contains these amounts. Other clients may have added more.
fn has_overhead(existing: Option<&Overhead>, wanted: &BTreeMap<String, Quantity>) -> bool {
    let Some(fixed) = existing.and_then(|existing| existing.pod_fixed.as_ref()) else {
        return false;
    };
    wanted.iter().all(|(name, wanted)| {
        fixed.get(name).is_some_and(|existing| {
            existing == wanted
                || nano(&existing.0).is_some_and(|value| Some(value) == nano(&wanted.0))
        })
    })
}
