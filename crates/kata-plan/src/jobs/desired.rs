//! The desired state of a node, and the digests by which it is compared with the actual state.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::kata_config::RuntimeSpec;
use kata_api::node_task::{NODE_TASK_VERSION, NodeAction, NodeTask, TaskHandler};
use serde_json::json;

use crate::assessment::Assessment;
use crate::classes;
use crate::report::Finding;
use crate::settings;
use crate::snapshot::NodeFacts;
use crate::text::digest;

/// The desired state of the nodes.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    handlers: Vec<TaskHandler>,
    payload_image: String,
    log_level: Option<String>,
    /// The digest of all fields before it.
    pub(crate) state: String,
    /// What is wrong with the settings of runtimes. If it is not empty, Kata is only removed from nodes.
    pub(crate) invalid_settings: Vec<Finding>,
}

impl Desired {
    /// The state that the KataConfig asks for. The handler of a class that the KataConfig no longer names
    /// stays as it is until the class is deleted, which happens once no pod uses it.
    pub(super) fn of(base: &Assessment) -> Self {
        let (config, runtimes) = (&base.config, &base.runtimes);
        let mut shims: BTreeMap<String, (String, Option<String>)> = base
            .our_classes()
            .map(|class| {
                let left = RuntimeSpec {
                    name: class.handler.clone(),
                    shim: classes::recorded_shim(class).cloned(),
                    ..RuntimeSpec::default()
                };
                let settings = classes::recorded_settings(class).cloned();
                (class.handler.clone(), (left.effective_shim().to_owned(), settings))
            })
            .collect();
        shims.extend(runtimes.iter().map(|runtime| {
            let shim = runtime.effective_shim().to_owned();
            (runtime.effective_handler().to_owned(), (shim, runtime.config.clone()))
        }));
        let handlers: Vec<TaskHandler> = shims
            .into_iter()
            .map(|(name, (shim, config))| TaskHandler { name, shim, config })
            .collect();
        let payload_image = config
            .spec
            .payload
            .as_ref()
            .map_or(&base.options.payload_image, |payload| &payload.image)
            .clone();
        let log_level = match config.spec.log_level.as_str() {
            "fatal" | "panic" | "error" => Some("error"),
            "warn" => Some("warn"),
            "debug" | "trace" => Some("debug"),
            _ => None,
        }
        .map(str::to_owned);
        let state = digest(&json!([handlers, payload_image, log_level]).to_string());
        let invalid_settings =
            if base.deleting { Vec::new() } else { settings::problems(config, runtimes) };
        Self { handlers, payload_image, log_level, state, invalid_settings }
    }

    /// The names of the handlers, sorted.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &str> {
        self.handlers.iter().map(|handler| handler.name.as_str())
    }

    /// The installed handlers that a node's kubelet does not report. Empty if the kubelet reports no
    /// handlers at all.
    pub(super) fn missing(&self, node: &NodeFacts, installed: &BTreeSet<String>) -> Vec<String> {
        let Some(reported) = &node.runtime_handlers else { return Vec::new() };
        let missing = |name: &&str| installed.contains(*name) && !reported.contains(*name);
        self.handlers().filter(missing).map(str::to_owned).collect()
    }

    /// The image with the payload.
    pub(crate) fn payload_image(&self) -> &str {
        &self.payload_image
    }

    /// The task for a node. `verify` makes an installation read every file of the payload.
    pub(crate) fn task(&self, node: &NodeFacts, action: NodeAction, verify: bool) -> NodeTask {
        let removal = action == NodeAction::Remove;
        NodeTask {
            version: NODE_TASK_VERSION,
            node: node.name.clone(),
            action,
            handlers: if removal { Vec::new() } else { self.handlers.clone() },
            payload_image: (!removal).then(|| self.payload_image.clone()),
            container_runtime: Some(node.container_runtime_version.clone())
                .filter(|version| !version.is_empty()),
            log_level: self.log_level.clone().filter(|_| !removal),
            verify: verify && action == NodeAction::Install,
        }
    }
}

/// The digest of the facts about a node that, when they change, make a retry of a failed Job worthwhile.
pub(super) fn facts_digest(node: &NodeFacts, retry: Option<&str>) -> String {
    digest(&format!(
        "{}/{}/{}/{}",
        node.boot_id,
        node.kernel_version,
        node.container_runtime_version,
        retry.unwrap_or_default()
    ))
}
