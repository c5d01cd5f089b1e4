//! The objects that we write, as bodies of server-side apply with our fields and no others, whose they
//! are, and whether an existing one differs.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::{Overhead, RuntimeClass, Scheduling};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kata_api::kata_config::RuntimeSpec;
use kata_api::{ContainerRuntimeConfig, KataConfig, MachineConfig, MachineConfigPool, names};
use serde_json::{Value, json};

use crate::mco;
use crate::object::Kind;
use crate::payload::Payload;
use crate::selection::Mode;

pub(crate) mod monitor;
pub(crate) mod node_job;

/// CRI-O's log levels.
pub(crate) const LOG_LEVELS: &[&str] =
    &["fatal", "panic", "error", "warn", "info", "debug", "trace"];
/// The log level for which no ContainerRuntimeConfig is needed.
pub(crate) const DEFAULT_LOG_LEVEL: &str = "info";
/// The Ignition version of our MachineConfig, as the OpenShift operator writes it.
const IGNITION_VERSION: &str = "3.2.0";

/// The labels of every object that we create.
fn own_labels(config: &KataConfig) -> BTreeMap<String, String> {
    BTreeMap::from([
        (names::APP_LABEL.to_owned(), config.metadata.name.clone().unwrap_or_default()),
        (names::MANAGED_BY.to_owned(), names::PRODUCT.to_owned()),
        (names::PART_OF.to_owned(), names::PRODUCT.to_owned()),
    ])
}

fn body(kind: Kind, name: &str, labels: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.as_str(),
        "metadata": {"name": name, "labels": labels},
    })
}

fn has_labels(metadata: &ObjectMeta, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| label(metadata, key) == Some(value))
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    metadata.labels.as_ref().and_then(|labels| labels.get(key))
}

/// Whether this operator wrote an object.
pub(crate) fn is_managed(metadata: &ObjectMeta) -> bool {
    label(metadata, names::MANAGED_BY).is_some_and(|value| value == names::PRODUCT)
}

/// Whether the MachineConfig of one of our names is ours, or the OpenShift operator's.
pub(crate) fn is_our_machine_config(config: &MachineConfig) -> bool {
    is_managed(&config.metadata)
        || label(&config.metadata, names::APP_LABEL).is_some()
        || mco::has_extension(config)
}

/// Our MachineConfig, if the existing one differs. What another version of ours wrote as Ignition
/// version is kept, so that adoption renders nothing anew. `images` are those besides the wanted one that
/// bring Kata and that nodes still run: the MachineConfig remembers them, so that these nodes count as
/// having Kata until they are on the new one.
pub(crate) fn machine_config(
    config: &KataConfig,
    mode: Mode,
    payload: &Payload,
    images: &BTreeSet<&str>,
    existing: Option<&MachineConfig>,
) -> Option<Value> {
    let mut labels = own_labels(config);
    // Early versions gave it the role worker, which the pool inherits; to change that would reboot workers.
    let role = existing
        .and_then(|existing| label(&existing.metadata, names::MACHINE_CONFIG_ROLE_LABEL))
        .filter(|role| mode == Mode::Pool && *role == names::WORKER_POOL)
        .map_or_else(|| mode.pool().to_owned(), Clone::clone);
    labels.insert(names::MACHINE_CONFIG_ROLE_LABEL.to_owned(), role);
    let version = existing
        .and_then(|existing| existing.spec.config.as_ref())
        .and_then(|config| config.pointer("/ignition/version"))
        .and_then(Value::as_str)
        .filter(|version| !version.is_empty());
    if let Some(existing) = existing
        && version.is_some()
        && has_payload(existing, payload)
        && has_labels(&existing.metadata, &labels)
        && images.iter().all(|image| recorded(existing).any(|known| known == *image))
    {
        return None;
    }
    let mut body = body(Kind::MachineConfig, payload.machine_config(), &labels);
    if !images.is_empty() {
        let list: Vec<&str> = images.iter().copied().collect();
        body["metadata"]["annotations"] = json!({names::IMAGES_ANNOTATION: list.join(" ")});
    }
    let ignition = json!({"ignition": {"version": version.unwrap_or(IGNITION_VERSION)}});
    body["spec"] = match payload {
        Payload::Extension => json!({"extensions": [names::EXTENSION], "config": ignition}),
        Payload::Image { image, arguments } => {
            json!({"osImageURL": image, "kernelArguments": arguments, "config": ignition})
        }
    };
    Some(body)
}

fn has_payload(config: &MachineConfig, payload: &Payload) -> bool {
    match payload {
        Payload::Extension => config.spec.extensions == [names::EXTENSION],
        Payload::Image { image, arguments } => {
            config.spec.os_image_url == *image && config.spec.kernel_arguments == *arguments
        }
    }
}

/// The images that a MachineConfig of ours remembers.
pub(crate) fn recorded(config: &MachineConfig) -> impl Iterator<Item = &str> {
    let annotations = config.metadata.annotations.as_ref();
    let list = annotations.and_then(|annotations| annotations.get(names::IMAGES_ANNOTATION));
    list.into_iter().flat_map(|list| list.split_whitespace())
}

/// Whether the pool of our name is ours, or the OpenShift operator's.
pub(crate) fn is_our_pool(pool: &MachineConfigPool) -> bool {
    is_managed(&pool.metadata)
        || pool
            .spec
            .node_selector
            .as_ref()
            .and_then(|selector| selector.match_labels.as_ref())
            .is_some_and(|labels| labels.contains_key(names::KATA_ROLE_LABEL))
}

/// Our pool, if the existing one differs. `paused` and `maxUnavailable` are ours only if
/// `spec.rollout` is given.
pub(crate) fn pool(config: &KataConfig, existing: Option<&MachineConfigPool>) -> Option<Value> {
    let mut labels = own_labels(config);
    labels.insert(format!("{}{}", names::POOL_LABEL_PREFIX, names::POOL), String::new());
    let configs = json!({"matchExpressions": [{
        "key": names::MACHINE_CONFIG_ROLE_LABEL,
        "operator": "In",
        "values": [names::POOL, names::WORKER_POOL],
    }]});
    let nodes = json!({"matchLabels": {names::KATA_ROLE_LABEL: ""}});
    let rollout = config.spec.rollout.as_ref();
    let same = existing.is_some_and(|existing| {
        let spec = &existing.spec;
        has_labels(&existing.metadata, &labels)
            && same_selector(spec.machine_config_selector.as_ref(), &configs)
            && same_selector(spec.node_selector.as_ref(), &nodes)
            && match rollout {
                Some(rollout) => {
                    spec.paused == rollout.paused
                        && (rollout.max_unavailable == spec.max_unavailable
                            || rollout.max_unavailable.is_none()
                                && !owns(&existing.metadata, "f:maxUnavailable"))
                }
                None => {
                    !owns(&existing.metadata, "f:maxUnavailable")
                        && !owns(&existing.metadata, "f:paused")
                }
            }
    });
    if same {
        return None;
    }
    let mut body = body(Kind::MachineConfigPool, names::POOL, &labels);
    body["spec"] = json!({"machineConfigSelector": configs, "nodeSelector": nodes});
    if let Some(rollout) = rollout {
        body["spec"]["paused"] = json!(rollout.paused);
        if let Some(max_unavailable) = &rollout.max_unavailable {
            body["spec"]["maxUnavailable"] = json!(max_unavailable);
        }
    }
    Some(body)
}

fn same_selector(existing: Option<&LabelSelector>, wanted: &Value) -> bool {
    let Ok(wanted) = serde_json::from_value::<LabelSelector>(wanted.clone()) else { return false };
    existing.is_some_and(|existing| {
        existing.match_labels.clone().unwrap_or_default() == wanted.match_labels.unwrap_or_default()
            && existing.match_expressions.clone().unwrap_or_default()
                == wanted.match_expressions.unwrap_or_default()
    })
}

/// Whether we own a field of `spec`, so that leaving it out of the next apply removes it.
fn owns(metadata: &ObjectMeta, field: &str) -> bool {
    metadata.managed_fields.iter().flatten().any(|entry| {
        entry.manager.as_deref() == Some(names::FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
            && entry
                .fields_v1
                .as_ref()
                .is_some_and(|fields| fields.0.pointer(&format!("/f:spec/{field}")).is_some())
    })
}

/// Whether the ContainerRuntimeConfig of our name is ours, or the OpenShift operator's.
pub(crate) fn is_our_container_runtime_config(config: &ContainerRuntimeConfig) -> bool {
    is_managed(&config.metadata)
        || config
            .spec
            .machine_config_pool_selector
            .as_ref()
            .and_then(|selector| selector.match_labels.as_ref())
            .is_some_and(|labels| {
                [Mode::Pool, Mode::Compact]
                    .iter()
                    .any(|mode| labels.contains_key(&pool_label(*mode)))
            })
}

fn pool_label(mode: Mode) -> String {
    format!("{}{}", names::POOL_LABEL_PREFIX, mode.pool())
}

/// Our ContainerRuntimeConfig, if the existing one differs.
pub(crate) fn container_runtime_config(
    config: &KataConfig,
    mode: Mode,
    existing: Option<&ContainerRuntimeConfig>,
) -> Option<Value> {
    let labels = own_labels(config);
    let pools = json!({"matchLabels": {pool_label(mode): ""}});
    let level = config.spec.log_level.as_str();
    let same = existing.is_some_and(|existing| {
        existing.spec.container_runtime_config.log_level.as_deref() == Some(level)
            && same_selector(existing.spec.machine_config_pool_selector.as_ref(), &pools)
            && has_labels(&existing.metadata, &labels)
    });
    if same {
        return None;
    }
    let mut body = body(Kind::ContainerRuntimeConfig, names::CONTAINER_RUNTIME_CONFIG, &labels);
    body["spec"] = json!({
        "machineConfigPoolSelector": pools,
        "containerRuntimeConfig": {"logLevel": level},
    });
    Some(body)
}

/// Whether a RuntimeClass is ours, or the OpenShift operator's.
pub fn is_our_class(class: &RuntimeClass) -> bool {
    is_managed(&class.metadata)
        || class.metadata.owner_references.iter().flatten().any(|owner| {
            owner.kind == Kind::KataConfig.as_str()
                && owner.api_version.starts_with("kataconfiguration.openshift.io/")
        })
}

/// A RuntimeClass of ours, if the existing one differs in anything besides the immutable handler.
///
/// `own` is the label that it selects besides the label of verified nodes.
pub(crate) fn runtime_class(
    config: &KataConfig,
    own: (&str, &str),
    runtime: &RuntimeSpec,
    existing: Option<&RuntimeClass>,
) -> Option<Value> {
    let labels = own_labels(config);
    let adopted = existing.and_then(|existing| adopted_overhead(existing, runtime));
    let (cpu, memory) = adopted.clone().unwrap_or_else(|| runtime.effective_overhead());
    let recorded = adopted.as_ref().map(|(cpu, memory)| format!("{}/{}", cpu.0, memory.0));
    let shim = unusual_shim(runtime);
    let mut node_selector = runtime.node_selector.clone();
    // Ours win: a class that matched nodes without the runtime would strand its pods.
    node_selector.insert(own.0.to_owned(), own.1.to_owned());
    node_selector.insert(names::RUNTIME_LABEL.to_owned(), names::RUNTIME_LABEL_VERIFIED.to_owned());
    let scheduling = Scheduling {
        node_selector: Some(node_selector),
        // Also if there are none: an apply that leaves the list out keeps what somebody else put there,
        // and would be repeated for ever.
        tolerations: Some(runtime.tolerations.clone()),
    };
    let uid = config.metadata.uid.clone().unwrap_or_default();
    let same = existing.is_some_and(|existing| {
        has_labels(&existing.metadata, &labels)
            && annotation(&existing.metadata, names::OVERHEAD_ANNOTATION) == recorded.as_ref()
            && recorded_shim(existing).map(String::as_str) == shim
            && existing.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
            && existing.scheduling.as_ref().is_some_and(|existing| {
                existing.node_selector == scheduling.node_selector
                    && existing.tolerations.clone().unwrap_or_default()
                        == scheduling.tolerations.clone().unwrap_or_default()
            })
            && same_overhead(existing.overhead.as_ref(), &cpu, &memory)
    });
    if same {
        return None;
    }
    let mut body = body(Kind::RuntimeClass, &runtime.name, &labels);
    body["metadata"]["ownerReferences"] = json!([{
        "apiVersion": Kind::KataConfig.api_version(),
        "kind": Kind::KataConfig.as_str(),
        "name": config.metadata.name,
        "uid": uid,
    }]);
    if let Some(recorded) = recorded {
        body["metadata"]["annotations"][names::OVERHEAD_ANNOTATION] = json!(recorded);
    }
    if let Some(shim) = shim {
        body["metadata"]["annotations"][names::SHIM_ANNOTATION] = json!(shim);
    }
    body["handler"] = json!(runtime.effective_handler());
    body["overhead"] = json!({"podFixed": {"cpu": cpu, "memory": memory}});
    body["scheduling"] = json!(scheduling);
    Some(body)
}

/// The shim of a runtime, if its handler's name does not say it.
fn unusual_shim(runtime: &RuntimeSpec) -> Option<&str> {
    let usual = RuntimeSpec { shim: None, ..runtime.clone() };
    let shim = runtime.effective_shim();
    (shim != usual.effective_shim()).then_some(shim)
}

/// The shim of a class's handler as the class says it, if it does.
pub(crate) fn recorded_shim(class: &RuntimeClass) -> Option<&String> {
    annotation(&class.metadata, names::SHIM_ANNOTATION)
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    metadata.annotations.as_ref().and_then(|annotations| annotations.get(key))
}

/// The overhead that a class had when it was adopted from the OpenShift operator, which never wrote it
/// again, so that an admin could change it by hand. It holds as long as the KataConfig names none.
pub(crate) fn adopted_overhead(
    existing: &RuntimeClass,
    runtime: &RuntimeSpec,
) -> Option<(Quantity, Quantity)> {
    if runtime.overhead.is_some() {
        return None;
    }
    if is_managed(&existing.metadata) {
        let recorded = annotation(&existing.metadata, names::OVERHEAD_ANNOTATION)?;
        let (cpu, memory) = recorded.split_once('/')?;
        return (nano(cpu).is_some() && nano(memory).is_some())
            .then(|| (Quantity(cpu.to_owned()), Quantity(memory.to_owned())));
    }
    let (cpu, memory) = runtime.effective_overhead();
    if same_overhead(existing.overhead.as_ref(), &cpu, &memory) {
        return None;
    }
    let fixed = existing.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref())?;
    let get = |key: &str, default: Quantity| {
        fixed.get(key).filter(|quantity| nano(&quantity.0).is_some()).cloned().unwrap_or(default)
    };
    Some((get("cpu", cpu), get("memory", memory)))
}

fn same_overhead(existing: Option<&Overhead>, cpu: &Quantity, memory: &Quantity) -> bool {
    let Some(fixed) = existing.and_then(|existing| existing.pod_fixed.as_ref()) else {
        return false;
    };
    let same = |key: &str, wanted: &Quantity| {
        fixed.get(key).is_some_and(|existing| {
            existing == wanted
                || nano(&existing.0).is_some_and(|value| Some(value) == nano(&wanted.0))
        })
    };
    same("cpu", cpu) && same("memory", memory)
}

/// A quantity in billionths, so that `0.25` and `250m` are the same; `None` if it is none.
fn nano(quantity: &str) -> Option<i128> {
    let digits = quantity.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let factor: i128 = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => 1_000_000_000,
        "k" => 1_000_000_000_000,
        "M" => 10_i128.pow(15),
        "G" => 10_i128.pow(18),
        "T" => 10_i128.pow(21),
        "Ki" => 1_000_000_000 << 10,
        "Mi" => 1_000_000_000 << 20,
        "Gi" => 1_000_000_000 << 30,
        "Ti" => 1_000_000_000 << 40,
        _ => return None,
    };
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value: i128 = format!("{whole}{fraction}").parse().ok()?;
    value.checked_mul(factor)?.checked_div(scale)
}
