//! What shall be on a node, and the digests by which it is told whether it is.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::KataConfig;
use kata_api::kata_config::RuntimeSpec;
use kata_api::node_task::{NODE_TASK_VERSION, NodeAction, NodeTask, TaskHandler};
use serde_json::json;

use crate::bodies;
use crate::snapshot::{NodeFacts, Snapshot};
use crate::text::digest;

/// What shall be on the nodes.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    handlers: Vec<TaskHandler>,
    payload_image: String,
    log_level: Option<String>,
    /// The digest of it all.
    pub(crate) state: String,
}

impl Desired {
    /// What the KataConfig wants. The handlers of classes that it does not name any more stay until the
    /// classes are gone, which is when no pod uses them.
    pub(super) fn of(snapshot: &Snapshot, config: &KataConfig, runtimes: &[RuntimeSpec]) -> Self {
        let mut shims: BTreeMap<String, String> = snapshot
            .runtime_classes
            .known()
            .into_iter()
            .flatten()
            .filter(|class| bodies::is_our_class(class))
            .map(|class| {
                let left = RuntimeSpec {
                    name: class.handler.clone(),
                    shim: bodies::recorded_shim(class).cloned(),
                    ..RuntimeSpec::default()
                };
                (class.handler.clone(), left.effective_shim().to_owned())
            })
            .collect();
        shims.extend(runtimes.iter().map(|runtime| {
            (runtime.effective_handler().to_owned(), runtime.effective_shim().to_owned())
        }));
        let handlers: Vec<TaskHandler> =
            shims.into_iter().map(|(name, shim)| TaskHandler { name, shim }).collect();
        let payload_image = config
            .spec
            .payload
            .as_ref()
            .map_or(&snapshot.options.payload_image, |payload| &payload.image)
            .clone();
        let log_level = match config.spec.log_level.as_str() {
            "fatal" | "panic" | "error" => Some("error"),
            "warn" => Some("warn"),
            "debug" | "trace" => Some("debug"),
            _ => None,
        }
        .map(str::to_owned);
        let state = digest(&json!([handlers, payload_image, log_level]).to_string());
        Self { handlers, payload_image, log_level, state }
    }

    /// The names of the handlers, sorted.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &str> {
        self.handlers.iter().map(|handler| handler.name.as_str())
    }

    /// The handlers that a node is known not to offer. A kubelet that reports none says nothing.
    pub(super) fn missing<'a>(
        &'a self,
        node: &NodeFacts,
        installed: &BTreeSet<&str>,
    ) -> Vec<&'a str> {
        let Some(reported) = &node.runtime_handlers else { return Vec::new() };
        self.handlers()
            .filter(|name| installed.contains(name) && !reported.contains(*name))
            .collect()
    }

    /// The image that the payload comes from.
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

/// The digest of what about a node decides whether something that failed there is worth another try.
pub(super) fn facts(node: &NodeFacts, retry: Option<&str>) -> String {
    digest(&format!(
        "{}/{}/{}/{}",
        node.boot_id,
        node.kernel_version,
        node.container_runtime_version,
        retry.unwrap_or_default()
    ))
}
