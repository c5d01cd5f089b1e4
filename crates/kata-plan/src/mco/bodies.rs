//! The objects of the Machine Config Operator that kata-operator writes, as bodies of server-side apply
//! with only its own fields, and the predicates that decide whether an existing object belongs to it and
//! whether that differs.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kata_api::{ContainerRuntimeConfig, KataConfig, MachineConfig, MachineConfigPool, names};
use serde_json::{Value, json};

use super::installed::recorded;
use super::mode::Mode;
use super::payload::Payload;
use crate::object::Kind;
use crate::ownership::{body, has_labels, is_managed, label, own_labels};

/// The Ignition version of the operator's MachineConfig, the same as in the OpenShift operator's.
const IGNITION_VERSION: &str = "3.2.0";

/// The operator's MachineConfig, if the existing one differs. It keeps the existing Ignition version, so
/// that an adoption does not render the pool again. `images` are the images with Kata that nodes still run,
/// except the desired one: the MachineConfig records them, so that these nodes count as having Kata until
/// they run the desired image.
pub(crate) fn machine_config(
    config: &KataConfig,
    mode: Mode,
    payload: &Payload,
    images: &BTreeSet<&str>,
    existing: Option<&MachineConfig>,
) -> Option<Value> {
    let mut labels = own_labels(config);
    // Early versions gave it the role worker, which the pool inherits; a change of the role would reboot
    // workers.
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
        Payload::Extension { name } => json!({"extensions": [name], "config": ignition}),
        Payload::Image { image, arguments } => {
            json!({"osImageURL": image, "kernelArguments": arguments, "config": ignition})
        }
    };
    Some(body)
}

fn has_payload(config: &MachineConfig, payload: &Payload) -> bool {
    match payload {
        Payload::Extension { name } => config.spec.extensions == [name.as_str()],
        Payload::Image { image, arguments } => {
            config.spec.os_image_url == *image && config.spec.kernel_arguments == *arguments
        }
    }
}

/// Whether the pool with the operator's name belongs to it, or to the OpenShift operator.
pub(crate) fn is_our_pool(pool: &MachineConfigPool) -> bool {
    is_managed(&pool.metadata)
        || pool
            .spec
            .node_selector
            .as_ref()
            .and_then(|selector| selector.match_labels.as_ref())
            .is_some_and(|labels| labels.contains_key(names::KATA_ROLE_LABEL))
}

/// The operator's pool, if the existing one differs. The operator sets `paused` and `maxUnavailable` only if
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

/// Whether the operator owns a field of `spec`, so that an apply without the field removes it.
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

/// Whether the ContainerRuntimeConfig with the operator's name belongs to it, or to the OpenShift operator.
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

/// The operator's ContainerRuntimeConfig, if the existing one differs.
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
