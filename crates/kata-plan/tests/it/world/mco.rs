//! The Machine Config Operator's part of the world: its controllers, and the daemons on the nodes.
//!
//! Each call is one step; it knows nothing of time, and nothing of the operator.

use kata_plan::Kind;
use serde_json::json;

use super::{KATA, PREFIX, World};

impl World {
    /// The ContainerRuntimeConfig controller: a file in a MachineConfig for each pool.
    pub(crate) fn container_runtime(&mut self) {
        for name in self.names(Kind::ContainerRuntimeConfig) {
            let config = self.get(Kind::ContainerRuntimeConfig, &name).unwrap().clone();
            let selector = &config["spec"]["machineConfigPoolSelector"]["matchLabels"];
            let Some(level) = config["spec"]["containerRuntimeConfig"]["logLevel"].as_str() else {
                continue;
            };
            for pool in self.names(Kind::MachineConfigPool) {
                let key = format!("pools.operator.machineconfiguration.openshift.io/{pool}");
                let generated = format!("99-{pool}-generated-containerruntime");
                let has_label = self.pool(&pool)["metadata"]["labels"][&key].is_string();
                if selector[&key].is_null() || !has_label {
                    continue;
                }
                let toml = format!("[crio.runtime]\n    log_level = \"{level}\"\n");
                let toml = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, toml);
                let source = format!("data:text/plain;charset=utf-8;base64,{toml}");
                let spec = json!({"config": {"storage": {"files": [{
                    "path": "/etc/crio/crio.conf.d/01-ctrcfg-logLevel",
                    "contents": {"source": source},
                }]}}});
                if self.get(Kind::MachineConfig, &generated).is_some() {
                    self.edit(Kind::MachineConfig, &generated, &json!({"spec": spec}));
                } else {
                    // The owner is the garbage collector's business here, and a finalizer's there.
                    self.create(json!({
                        "kind": "MachineConfig",
                        "metadata": {
                            "name": generated,
                            "labels": {format!("{PREFIX}role"): pool},
                            "ownerReferences": [{"uid": config["metadata"]["uid"]}],
                        },
                        "spec": spec,
                    }));
                }
            }
        }
    }

    /// The render controller.
    pub(crate) fn render(&mut self) {
        for pool in self.names(Kind::MachineConfigPool) {
            let selector = self.pool(&pool)["spec"]["machineConfigSelector"].clone();
            let role_key = format!("{PREFIX}role");
            let roles: Vec<String> = match selector["matchLabels"][&role_key].as_str() {
                Some(role) => vec![role.to_owned()],
                None => serde_json::from_value(selector["matchExpressions"][0]["values"].clone())
                    .unwrap(),
            };
            let mut sources = Vec::new();
            let mut extensions = Vec::new();
            let (mut image, mut arguments, mut files) = (json!("rhcos"), Vec::new(), json!([]));
            for ((kind, name), config) in &self.objects {
                let role = config["metadata"]["labels"][&role_key].as_str().unwrap_or_default();
                if *kind == Kind::MachineConfig
                    && !name.starts_with("rendered-")
                    && roles.iter().any(|wanted| wanted == role)
                {
                    sources.push(json!({"name": name}));
                    let spec = &config["spec"];
                    extensions.extend(spec["extensions"].as_array().into_iter().flatten().cloned());
                    let more = spec["kernelArguments"].as_array().into_iter().flatten();
                    arguments.extend(more.cloned());
                    if spec["osImageURL"].is_string() {
                        image = spec["osImageURL"].clone();
                    }
                    if spec["config"]["storage"]["files"].is_array() {
                        files = spec["config"]["storage"]["files"].clone();
                    }
                }
            }
            let base = self.objects.keys().filter(|(kind, name)| {
                *kind == Kind::MachineConfig && !name.starts_with("rendered-")
            });
            let generated = |name: &str| name.contains("-generated-");
            let bases = base.filter(|(_, name)| name.starts_with('9') && !generated(name)).count();
            let mut name = format!("rendered-{pool}-{}x{bases}", extensions.len());
            if image != "rhcos" || !arguments.is_empty() {
                name.push_str(&format!("{}{}", image.as_str().unwrap(), arguments.len()));
            }
            if files != json!([]) {
                let sum: u64 = files.to_string().bytes().map(u64::from).sum();
                name.push_str(&format!("x{sum}"));
            }
            if self.get(Kind::MachineConfig, &name).is_none() {
                self.create(json!({"kind": "MachineConfig", "metadata": {"name": name},
                    "spec": {"extensions": extensions, "osImageURL": image, "kernelArguments": arguments,
                        "config": {"storage": {"files": files}}}}));
            }
            let patch = json!({"spec": {"configuration": {"name": name, "source": sources}}});
            self.edit(Kind::MachineConfigPool, &pool, &patch);
        }
    }

    fn primary_pool(&self, node: &str) -> Option<&'static str> {
        let facts = self.node(node);
        let has = |key: &str| facts.labels.contains_key(key);
        if has("node-role.kubernetes.io/master") {
            Some("master")
        } else if has(KATA) && self.get(Kind::MachineConfigPool, "kata-oc").is_some() {
            Some("kata-oc")
        } else if has("node-role.kubernetes.io/worker") {
            Some("worker")
        } else {
            None
        }
    }

    /// The node controller, with maxUnavailable 1.
    pub(crate) fn target(&mut self) {
        for pool in self.names(Kind::MachineConfigPool) {
            let spec = self.pool(&pool)["spec"].clone();
            let Some(target) = spec["configuration"]["name"].as_str() else { continue };
            if spec["paused"] == json!(true) {
                continue;
            }
            let members: Vec<String> = self
                .names(Kind::Node)
                .into_iter()
                .filter(|node| self.primary_pool(node) == Some(pool.as_str()))
                .collect();
            let annotation = |world: &Self, node: &str, key: &str| {
                world
                    .node(node)
                    .annotations
                    .get(&format!("{PREFIX}{key}"))
                    .cloned()
                    .unwrap_or_default()
            };
            // A Ready node whose daemon gave up is not unavailable: it can be sent elsewhere. Only one
            // that fails on the target itself counts against the others.
            let holds_up = |world: &Self, node: &str| {
                let facts = world.node(node);
                let desired = annotation(world, node, "desiredConfig");
                facts.ready.status != Some(true)
                    || facts.unschedulable
                    || match annotation(world, node, "state").as_str() {
                        "Degraded" => desired == target,
                        state => {
                            state != "Done" || annotation(world, node, "currentConfig") != desired
                        }
                    }
            };
            if members.iter().any(|node| holds_up(self, node)) {
                continue;
            }
            let next =
                members.iter().find(|node| annotation(self, node, "desiredConfig") != target);
            if let Some(node) = next {
                let node = node.clone();
                self.annotate(&node, "desiredConfig", target);
            }
        }
    }

    /// One step of a node's machine-config daemon and of the drain controller.
    pub(crate) fn daemon(&mut self, node: &str) {
        let facts = self.node(node);
        let get = |key: &str| {
            facts.annotations.get(&format!("{PREFIX}{key}")).cloned().unwrap_or_default()
        };
        let (current, desired) = (get("currentConfig"), get("desiredConfig"));
        // The daemon needs both; a pool's configurations go with the pool.
        for name in [&current, &desired] {
            if self.get(Kind::MachineConfig, name).is_none() {
                self.annotate(node, "state", "Degraded");
                self.annotate(node, "reason", &format!("machineconfig {name:?} not found"));
                return;
            }
        }
        if current == desired && get("state") == "Done" {
            return;
        }
        let config = self.get(Kind::MachineConfig, &desired).unwrap().clone();
        let spec = &config["spec"];
        let has_kata = spec["extensions"].as_array().is_some_and(|list| !list.is_empty())
            || spec["osImageURL"].as_str().is_some_and(|image| image.contains("kata"));
        let (drain, uncordon) = (format!("drain-{desired}"), format!("uncordon-{desired}"));
        if get("state") == "Done" || (get("state") == "Degraded" && !self.failing.contains(node)) {
            self.annotate(node, "state", "Working");
        } else if get("desiredDrain") == uncordon {
            if get("lastAppliedDrain") == uncordon {
                self.annotate(node, "currentConfig", &desired);
                self.annotate(node, "state", "Done");
            } else {
                self.cordon(node, false);
                self.annotate(node, "lastAppliedDrain", &uncordon);
            }
        } else if get("desiredDrain") != drain {
            self.annotate(node, "desiredDrain", &drain);
            self.cordon(node, true);
        } else if get("lastAppliedDrain") != drain {
            if !self.undrainable.contains(node) {
                self.objects.retain(|(kind, _), pod| {
                    *kind != Kind::Pod || pod["spec"]["nodeName"].as_str() != Some(node)
                });
                self.annotate(node, "lastAppliedDrain", &drain);
            }
        } else if self.failing.contains(node) {
            self.annotate(node, "state", "Degraded");
            self.annotate(node, "reason", "package kata-containers not found");
        } else if get("postConfigAction").is_empty() && get("post-config-action").is_empty() {
            self.annotate(node, "post-config-action", "Rebooting");
            self.set_ready(node, false);
        } else if facts.ready.status != Some(true) {
            self.set_ready(node, true);
        } else {
            let handlers = if has_kata {
                json!([{"name": "runc"}, {"name": "kata"}])
            } else {
                json!([{"name": "runc"}])
            };
            self.edit(Kind::Node, node, &json!({"status": {"runtimeHandlers": handlers}}));
            self.annotate(node, "post-config-action", "");
            self.annotate(node, "desiredDrain", &uncordon);
        }
    }
}
