//! The render controller: from the MachineConfigs that a pool selects to the pool's rendered one.
//!
//! It does not read `spec.paused`, and of nodes only whether they run Fedora CoreOS: the real one is built for
//! one operating system.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::merge::{self, Images};
use super::names::{
    API_VERSION, CONTROLLER_VERSION, GENERATED_BY, OS_IMAGE_OVERRIDDEN, RELEASE_VERSION, is_fedora,
};
use super::pool::{name, selects};
use super::status::{condition, set_condition};
use super::{NAMESPACE, OS_IMAGE_CONFIG_MAP, Timing, backoff, event, reconcile};
use crate::api::{Event, EventKind};
use crate::recorder::note;
use crate::resource::{
    CONFIGMAPS, CONTAINERRUNTIMECONFIGS, MACHINECONFIGPOOLS, MACHINECONFIGS, NODES,
};
use crate::selector;
use crate::{Context, Controller};

/// Why a sync has to be tried again.
#[derive(Debug, PartialEq, Eq)]
enum Retry {
    /// The pool's status says why.
    Failed,
    /// Something else has to happen first; nothing was written.
    NotReady,
    /// The pool was changed by this sync, so its status must be written on the new version.
    Changed,
}

/// The render controller.
#[derive(Debug)]
pub(super) struct RenderController {
    timing: Timing,
    failures: BTreeMap<String, u32>,
}

impl RenderController {
    pub(super) fn new(timing: Timing) -> Self {
        Self { timing, failures: BTreeMap::new() }
    }
}

impl Controller for RenderController {
    fn name(&self) -> &'static str {
        "machine-config-controller-render"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == MACHINECONFIGPOOLS {
            if event.kind == EventKind::Deleted {
                self.failures.remove(&event.name);
                cx.cancel(&event.name);
            } else {
                cx.after(&event.name, self.timing.render_delay);
            }
        } else if event.resource == MACHINECONFIGS {
            let old_spec = event.previous.as_ref().map(|old| &old["spec"]);
            if event.kind == EventKind::Modified && old_spec == Some(&event.current["spec"]) {
                return;
            }
            let owner = &event.current["metadata"]["ownerReferences"][0];
            if owner["kind"] == "MachineConfigPool" {
                // The pool that names a new one changes with it.
                if event.kind == EventKind::Added {
                    return;
                }
                let owner = owner["name"].as_str().unwrap_or_default();
                if cx.api.get(&MACHINECONFIGPOOLS, "", owner).is_some() {
                    cx.after(owner, self.timing.render_delay);
                }
                return;
            }
            for pool in cx.api.list(&MACHINECONFIGPOOLS) {
                if selects(&pool["spec"]["machineConfigSelector"], &event.current) {
                    cx.after(name(&pool), self.timing.render_delay);
                }
            }
        } else if event.resource == CONFIGMAPS
            && event.namespace == NAMESPACE
            && event.name == OS_IMAGE_CONFIG_MAP
        {
            for pool in cx.api.list(&MACHINECONFIGPOOLS) {
                cx.after(name(&pool), self.timing.render_delay);
            }
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let Some(pool) = cx.api.get(&MACHINECONFIGPOOLS, "", key) else { return };
        if sync(&pool, cx).is_err() {
            let failures = self.failures.entry(key.to_owned()).or_insert(0);
            *failures = failures.saturating_add(1);
            cx.after(key, backoff::queue(*failures));
        } else {
            self.failures.remove(key);
        }
    }
}

fn sync(pool: &Value, cx: &mut Context<'_>) -> Result<(), Retry> {
    let selector = &pool["spec"]["machineConfigSelector"];
    if selector.as_object().is_some_and(serde_json::Map::is_empty) {
        let message = "This machineconfigpool is selecting all machineconfigs. A non-empty \
                       selector is required.";
        event::record(cx, event::RENDER_CONTROLLER, pool, true, "SelectingAll", message);
        return Ok(());
    }
    if !runtime_configs_done(pool, cx) {
        return Err(Retry::NotReady);
    }
    match render(pool, cx) {
        Ok(changed) if changed => Err(Retry::Changed),
        Ok(_) => {
            let fresh = cx.api.get(&MACHINECONFIGPOOLS, "", name(pool));
            let known = fresh.as_deref().and_then(|pool| condition(pool, "RenderDegraded"));
            if known.is_none_or(|known| known["status"] != "False") {
                write_condition(name(pool), "False", "", cx);
            }
            Ok(())
        }
        Err(why) => {
            let message = format!("Failed to render configuration for pool {}: {why}", name(pool));
            write_condition(name(pool), "True", &message, cx);
            Err(Retry::Failed)
        }
    }
}

/// Whether all ContainerRuntimeConfigs for the pool are done; an empty selector is for every pool.
fn runtime_configs_done(pool: &Value, cx: &Context<'_>) -> bool {
    cx.api.list(&CONTAINERRUNTIMECONFIGS).iter().all(|config| {
        let selector = &config["spec"]["machineConfigPoolSelector"];
        let everything = selector.as_object().is_some_and(serde_json::Map::is_empty);
        let last = config["status"]["conditions"].as_array().and_then(|list| list.last());
        let done = config["status"]["observedGeneration"] == config["metadata"]["generation"]
            && last.is_some_and(|last| last["type"] == "Success");
        done || !(everything || selects(selector, pool))
    })
}

/// Renders the pool's configuration; whether the pool now has another one.
fn render(pool: &Value, cx: &mut Context<'_>) -> Result<bool, String> {
    let selector = &pool["spec"]["machineConfigSelector"];
    let mut configs = cx.api.list(&MACHINECONFIGS);
    configs.retain(|config| selects(selector, config));
    if configs.is_empty() {
        return Err(format!(
            "no MachineConfigs found matching selector {}",
            selector::text(selector)
        ));
    }
    merge::order(&mut configs);
    let images = images(cx);
    let spec = merge::merge(&configs, &images)?;
    let rendered = merge::rendered_name(name(pool), &spec);
    merge::check_size(&rendered, &spec)?;
    check_reconcilable(pool, &rendered, &configs, &images, cx)?;
    write_rendered(pool, &rendered, spec, &images, cx)?;
    let configuration = json!({"name": rendered, "source": merge::source(&configs)});
    let changed = pool["spec"]["configuration"]["name"] != rendered.as_str();
    if pool["spec"]["configuration"] != configuration {
        let mut new = pool.clone();
        new["spec"]["configuration"] = configuration;
        if new["spec"]["paused"].is_null() {
            new["spec"]["paused"] = json!(false);
        }
        let writer = cx.writer();
        note("write the pool's configuration", cx.api.update(writer, &MACHINECONFIGPOOLS, "", new));
    }
    Ok(changed)
}

/// The release's images, from the ConfigMap that the release fills.
fn images(cx: &Context<'_>) -> Images {
    let map = cx.api.get(&CONFIGMAPS, NAMESPACE, OS_IMAGE_CONFIG_MAP);
    let value = |key: &str| {
        map.as_ref().and_then(|map| map["data"][key].as_str()).unwrap_or_default().to_owned()
    };
    Images {
        os: value("baseOSContainerImage"),
        extensions: value("baseOSExtensionsContainerImage"),
        release: value("releaseVersion"),
        are_fedora: cx.api.list(&NODES).iter().any(|node| is_fedora(node)),
    }
}

/// Checks each source against the configuration that the pool has; a pool without one is not
/// checked.
fn check_reconcilable(
    pool: &Value,
    rendered: &str,
    configs: &[Arc<Value>],
    images: &Images,
    cx: &Context<'_>,
) -> Result<(), String> {
    let current_name = pool["spec"]["configuration"]["name"].as_str().unwrap_or_default();
    if current_name.is_empty() || current_name == rendered {
        return Ok(());
    }
    let Some(current) = cx.api.get(&MACHINECONFIGS, "", current_name) else { return Ok(()) };
    for config in configs {
        let mut both = (*current).clone();
        both["spec"]["extensions"] = json!([]);
        let spec = merge::merge(&[Arc::new(both), Arc::clone(config)], images)?;
        reconcile::check(&current["spec"], &spec).map_err(|why| {
            format!(
                "reconciliation failed between current config \"{current_name}\" and base config \
                 \"{}\": {why}",
                name(config)
            )
        })?;
    }
    Ok(())
}

/// Creates the rendered MachineConfig, or puts back what somebody changed in it.
fn write_rendered(
    pool: &Value,
    rendered: &str,
    spec: Value,
    images: &Images,
    cx: &mut Context<'_>,
) -> Result<(), String> {
    let writer = cx.writer();
    if let Some(known) = cx.api.get(&MACHINECONFIGS, "", rendered) {
        if known["spec"] != spec {
            let mut restored = (*known).clone();
            restored["spec"] = spec;
            note(
                "restore a rendered MachineConfig",
                cx.api.update(writer, &MACHINECONFIGS, "", restored),
            );
        }
        return Ok(());
    }
    let mut annotations = json!({
        (GENERATED_BY): CONTROLLER_VERSION, (RELEASE_VERSION): images.release,
    });
    if spec["osImageURL"] != images.os.as_str() {
        annotations[OS_IMAGE_OVERRIDDEN] = json!("true");
    }
    let object = json!({
        "apiVersion": API_VERSION, "kind": "MachineConfig",
        "metadata": {
            "name": rendered, "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": API_VERSION, "kind": "MachineConfigPool", "name": name(pool),
                "uid": pool["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    });
    cx.api
        .create(writer, &MACHINECONFIGS, "", object)
        .map_err(|error| format!("could not create MachineConfig {rendered}: {error}"))?;
    let message = format!(
        "{rendered} successfully generated (release version: {}, controller version: \
         {CONTROLLER_VERSION})",
        images.release
    );
    event::record(cx, event::RENDER_CONTROLLER, pool, false, "RenderedConfigGenerated", &message);
    Ok(())
}

/// Writes `RenderDegraded`; the first status of a pool comes with all counts.
fn write_condition(pool: &str, value: &str, message: &str, cx: &mut Context<'_>) {
    let Some(pool) = cx.api.get(&MACHINECONFIGPOOLS, "", pool) else { return };
    let mut pool = (*pool).clone();
    if !pool["status"].is_object() {
        pool["status"] = json!({
            "configuration": {}, "machineCount": 0, "updatedMachineCount": 0,
            "readyMachineCount": 0, "unavailableMachineCount": 0, "degradedMachineCount": 0,
        });
    }
    set_condition(&mut pool["status"], "RenderDegraded", value, "", message, cx.now);
    let writer = cx.writer();
    note(
        "write the pool's RenderDegraded condition",
        cx.api.update_status(writer, &MACHINECONFIGPOOLS, "", pool),
    );
}
