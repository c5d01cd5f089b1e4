//! The ContainerRuntimeConfig controller: a log level for CRI-O becomes a MachineConfig per pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::backoff;
use super::names::{
    API_VERSION, CONTROLLER_VERSION, GENERATED_BY, IGNITION_VERSION, NAME_SUFFIX, ROLE,
};
use super::pool::{annotation, name, selects};
use crate::api::server::DeleteOptions;
use crate::api::{Event, EventKind};
use crate::recorder::{note, time};
use crate::resource::{CONTAINERRUNTIMECONFIGS, MACHINECONFIGPOOLS, MACHINECONFIGS};
use crate::{Context, Controller};

/// How many ContainerRuntimeConfigs a pool can have.
const LIMIT: usize = 10;
/// The levels that CRI-O knows.
const LEVELS: [&str; 7] = ["error", "fatal", "panic", "warn", "info", "debug", "trace"];

/// The ContainerRuntimeConfig controller.
#[derive(Debug, Default)]
pub(super) struct ContainerRuntimeController {
    failures: BTreeMap<String, u32>,
}

impl Controller for ContainerRuntimeController {
    fn name(&self) -> &'static str {
        "machine-config-controller-containerruntime"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource != CONTAINERRUNTIMECONFIGS {
            return;
        }
        let changed = event.previous.as_ref().is_none_or(|previous| {
            previous["spec"] != event.current["spec"]
                || previous["metadata"]["deletionTimestamp"]
                    != event.current["metadata"]["deletionTimestamp"]
        });
        match event.kind {
            EventKind::Deleted => {
                self.failures.remove(&event.name);
                cx.cancel(&event.name);
            }
            _ if changed => cx.reschedule(&event.name, std::time::Duration::ZERO),
            _ => {}
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let Some(config) = cx.api.get(&CONTAINERRUNTIMECONFIGS, "", key) else { return };
        if !config["metadata"]["deletionTimestamp"].is_null() {
            remove(&config, cx);
            return;
        }
        let result = apply(&config, cx);
        report(key, result.as_ref().err(), cx);
        if result.is_ok() {
            self.failures.remove(key);
        } else {
            let failures = self.failures.entry(key.to_owned()).or_insert(0);
            *failures = failures.saturating_add(1);
            cx.after(key, backoff::queue(*failures));
        }
    }
}

fn apply(config: &Value, cx: &mut Context<'_>) -> Result<(), String> {
    let level = config["spec"]["containerRuntimeConfig"]["logLevel"].as_str().unwrap_or_default();
    if !level.is_empty() && !LEVELS.contains(&level) {
        return Err(format!(
            "invalid LogLevel {level:?}, must be one of error, fatal, panic, warn, info, debug, or \
             trace"
        ));
    }
    let selector = &config["spec"]["machineConfigPoolSelector"];
    let mut pools = cx.api.list(&MACHINECONFIGPOOLS);
    pools.retain(|pool| selects(selector, pool));
    if pools.is_empty() {
        return Err(format!(
            "could not find any MachineConfigPool set for ContainerRuntimeConfig {}",
            name(config)
        ));
    }
    for pool in pools {
        let suffix = suffix(config, name(&pool), cx)?;
        let ending = if suffix.is_empty() { String::new() } else { format!("-{suffix}") };
        let machine_config = format!("99-{}-generated-containerruntime{ending}", name(&pool));
        write_machine_config(config, name(&pool), &machine_config, level, cx)?;
        add_finalizer(name(config), &machine_config, &suffix, cx);
    }
    Ok(())
}

/// What the names of the object's MachineConfigs end in; the pool's first has no ending.
fn suffix(config: &Value, pool: &str, cx: &Context<'_>) -> Result<String, String> {
    let annotations = &config["metadata"]["annotations"];
    if let Some(known) = annotations[NAME_SUFFIX].as_str() {
        return Ok(known.to_owned());
    }
    let prefix = format!("99-{pool}-generated-containerruntime");
    let others: Vec<Arc<Value>> = cx.api.list(&CONTAINERRUNTIMECONFIGS);
    let taken: Vec<usize> = others
        .iter()
        .filter(|other| {
            name(other) != name(config)
                && super::merge::strings(&other["metadata"]["finalizers"])
                    .any(|finalizer| finalizer.starts_with(&prefix))
        })
        .map(|other| annotation(other, NAME_SUFFIX).parse().unwrap_or(0))
        .collect();
    match taken.iter().max() {
        None => Ok(String::new()),
        Some(highest) if highest + 1 < LIMIT => Ok((highest + 1).to_string()),
        Some(_) => Err(format!(
            "max number of supported ctrcfgs ({LIMIT}) has been reached. Please delete old ctrcfgs \
             before retrying"
        )),
    }
}

fn write_machine_config(
    config: &Value,
    pool: &str,
    machine_config: &str,
    level: &str,
    cx: &mut Context<'_>,
) -> Result<(), String> {
    let mut files = Vec::new();
    if !level.is_empty() {
        let toml = format!("[crio]\n  [crio.runtime]\n    log_level = \"{level}\"\n");
        let data = BASE64.encode(toml);
        files.push(json!({
            "path": "/etc/crio/crio.conf.d/01-ctrcfg-logLevel", "mode": 0o644, "overwrite": true,
            "contents": {
                "compression": "", "source": format!("data:text/plain;charset=utf-8;base64,{data}"),
            },
        }));
    }
    let spec = json!({
        "config": {"ignition": {"version": IGNITION_VERSION}, "storage": {"files": files}},
    });
    let writer = cx.writer();
    let written = if let Some(known) = cx.api.get(&MACHINECONFIGS, "", machine_config) {
        if known["spec"] == spec {
            return Ok(());
        }
        let mut new = (*known).clone();
        new["spec"] = spec;
        cx.api.update(writer, &MACHINECONFIGS, "", new)
    } else {
        let object = json!({
            "apiVersion": API_VERSION, "kind": "MachineConfig",
            "metadata": {
                "name": machine_config, "labels": {(ROLE): pool},
                "annotations": {(GENERATED_BY): CONTROLLER_VERSION},
                "ownerReferences": [{
                    "apiVersion": API_VERSION, "kind": "ContainerRuntimeConfig",
                    "name": name(config), "uid": config["metadata"]["uid"],
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": spec,
        });
        cx.api.create(writer, &MACHINECONFIGS, "", object)
    };
    written.map(|_| ()).map_err(|error| {
        format!(
            "could not create MachineConfig {machine_config} from ContainerRuntimeConfig: {error}"
        )
    })
}

/// Notes a MachineConfig in the object's finalizers. The first time this replaces all annotations,
/// as the real controller does.
fn add_finalizer(config: &str, machine_config: &str, suffix: &str, cx: &mut Context<'_>) {
    let Some(known) = cx.api.get(&CONTAINERRUNTIMECONFIGS, "", config) else { return };
    let mut new = (*known).clone();
    if new["metadata"]["annotations"][NAME_SUFFIX].is_null() {
        new["metadata"]["annotations"] = json!({(NAME_SUFFIX): suffix});
    }
    let mut finalizers = new["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.contains(&json!(machine_config)) {
        finalizers.push(json!(machine_config));
    }
    new["metadata"]["finalizers"] = Value::Array(finalizers);
    let writer = cx.writer();
    note("add a finalizer", cx.api.update(writer, &CONTAINERRUNTIMECONFIGS, "", new));
}

/// Writes the outcome; a message that differs from the last one is appended.
fn report(config: &str, error: Option<&String>, cx: &mut Context<'_>) {
    let Some(known) = cx.api.get(&CONTAINERRUNTIMECONFIGS, "", config) else { return };
    let mut new = (*known).clone();
    let (kind, message) = match error {
        None => ("Success", "Success".to_owned()),
        Some(error) => ("Failure", format!("Error: {error}")),
    };
    let mut conditions = new["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let repeated = conditions.last().is_some_and(|last| last["message"] == message.as_str());
    if !repeated {
        conditions.push(json!({
            "type": kind, "status": "True", "message": message,
            "lastTransitionTime": time(cx.now),
        }));
    }
    new["status"] = json!({
        "observedGeneration": known["metadata"]["generation"], "conditions": conditions,
    });
    let writer = cx.writer();
    note(
        "write a ContainerRuntimeConfig's status",
        cx.api.update_status(writer, &CONTAINERRUNTIMECONFIGS, "", new),
    );
}

/// Deletes the object's MachineConfigs and takes their finalizers away, one by one.
fn remove(config: &Value, cx: &mut Context<'_>) {
    for finalizer in super::merge::strings(&config["metadata"]["finalizers"]) {
        let writer = cx.writer();
        let options = DeleteOptions::default();
        if cx.api.get(&MACHINECONFIGS, "", finalizer).is_some() {
            note(
                "delete a MachineConfig",
                cx.api.delete(writer, &MACHINECONFIGS, "", finalizer, &options),
            );
        }
        let Some(known) = cx.api.get(&CONTAINERRUNTIMECONFIGS, "", name(config)) else { return };
        let mut new = (*known).clone();
        if let Some(finalizers) = new["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|other| other != finalizer);
        }
        note("take a finalizer away", cx.api.update(writer, &CONTAINERRUNTIMECONFIGS, "", new));
    }
}
