//! The desired state of a node, and the digests by which it is compared with the actual state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::kata_config::RuntimeSpec;
use kata_api::kata_node::HostStatus;
use kata_api::node_task::{ForeignChanges, NODE_TASK_VERSION, NodeAction, NodeTask, TaskHandler};
use kata_api::{Code, names};
use serde_json::json;

use super::take_over;
use crate::assessment::Assessment;
use crate::classes;
use crate::configs::config_ref;
use crate::report::Finding;
use crate::selector;
use crate::settings;
use crate::snapshot::NodeFacts;
use crate::text::digest;

/// What the KataConfig asks for.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    classes: Vec<Class>,
    /// Every handler, by name.
    handlers: BTreeMap<String, Arc<TaskHandler>>,
    payload_image: String,
    log_level: Option<String>,
    foreign_changes: ForeignChanges,
    take_over: bool,
    /// The state of a node that should not have Kata. Its digest is that of a node with every handler.
    without_kata: Arc<NodeState>,
    /// What is wrong with the settings of runtimes and with `spec.providedNodes`. If it is not empty, Kata is only
    /// removed from nodes.
    pub(crate) problems: Vec<Finding>,
}

/// A RuntimeClass, and the nodes that should have its handler.
#[derive(Clone, Debug)]
struct Class {
    name: String,
    handler: String,
    nodes: NodeScope,
}

#[derive(Clone, Debug)]
enum NodeScope {
    All,
    /// `spec.runtimes[].installOn`.
    Selected(LabelSelector),
    /// The KataConfig no longer names the class: the nodes that have its handler keep it until the class is deleted,
    /// which happens once no pod uses it.
    Remaining,
    /// The KataConfig gives the class another handler. Nodes keep the old handler until the old RuntimeClass is
    /// deleted; the class's label does not say which of the two a node has.
    Replaced,
}

/// The desired state of a node.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NodeState {
    handlers: Vec<Arc<TaskHandler>>,
    /// The digest of everything that a node with this state has.
    pub(super) state: String,
    /// The RuntimeClasses whose pods the node should run.
    pub(super) classes: Arc<BTreeSet<String>>,
    /// The RuntimeClasses whose pods the node should not run any more. It keeps their handlers while pods may use them.
    pub(super) leaving: BTreeSet<String>,
}

impl Desired {
    /// What the KataConfig asks for. The handler of a class that the KataConfig no longer names stays as it is.
    pub(super) fn of(base: &Assessment) -> Self {
        let (config, runtimes) = (&base.config, &base.runtimes);
        let mut handlers = BTreeMap::new();
        let mut classes = Vec::new();
        for class in base.our_classes() {
            let left = RuntimeSpec {
                name: class.handler.clone(),
                shim: classes::recorded_shim(class).cloned(),
                ..RuntimeSpec::default()
            };
            let task = TaskHandler {
                name: class.handler.clone(),
                shim: left.effective_shim().to_owned(),
                config: classes::recorded_settings(class).cloned(),
            };
            handlers.insert(class.handler.clone(), Arc::new(task));
            let name = class.metadata.name.clone().unwrap_or_default();
            let named = runtimes.iter().find(|runtime| runtime.name == name);
            let nodes = match named {
                None => NodeScope::Remaining,
                Some(named) if named.effective_handler() != class.handler => NodeScope::Replaced,
                Some(_) => continue,
            };
            classes.push(Class { name, handler: class.handler.clone(), nodes });
        }
        for runtime in runtimes {
            let handler = runtime.effective_handler().to_owned();
            let task = TaskHandler {
                name: handler.clone(),
                shim: runtime.effective_shim().to_owned(),
                config: runtime.config.clone(),
            };
            handlers.insert(handler.clone(), Arc::new(task));
            let nodes = runtime.install_on.clone().map_or(NodeScope::All, NodeScope::Selected);
            classes.push(Class { name: runtime.name.clone(), handler, nodes });
        }
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
        let rollout = config.spec.rollout.as_ref();
        let foreign_changes = rollout.map(|rollout| rollout.foreign_changes).unwrap_or_default();
        let problems = if base.deleting { Vec::new() } else { problems(base) };
        let without_kata = Arc::default();
        let mut desired = Self {
            classes,
            handlers,
            payload_image,
            log_level,
            foreign_changes,
            take_over: config.spec.take_over.is_some(),
            without_kata,
            problems,
        };
        let handlers: Vec<Arc<TaskHandler>> = desired.handlers.values().cloned().collect();
        let state = desired.digest(&handlers);
        desired.without_kata = Arc::new(NodeState { state, handlers, ..NodeState::default() });
        desired
    }

    /// The desired state of a node that the KataConfig selects, and that may have these handlers. Without classes it
    /// should not have Kata. `keeps_unmatched`: it keeps classes whose selectors no longer match.
    pub(super) fn of_node(
        &self,
        base: &Assessment,
        node: &NodeFacts,
        keeps_unmatched: bool,
        has: impl Fn(&str) -> bool,
    ) -> NodeState {
        let has_label = |class: &Class| node.labels.contains_key(&names::class_label(&class.name));
        let selects = |class: &Class| match &class.nodes {
            NodeScope::All => true,
            NodeScope::Selected(selector) => match selector::matches(selector, &node.labels) {
                // Another class may have the same handler there.
                Ok(matches) => {
                    matches || (keeps_unmatched && has_label(class) && has(&class.handler))
                }
                // If it cannot be evaluated, nodes keep what they have.
                Err(_) => has(&class.handler) || has_label(class),
            },
            NodeScope::Remaining => has(&class.handler) || has_label(class),
            NodeScope::Replaced => has(&class.handler),
        };
        let (on_node, elsewhere): (Vec<&Class>, Vec<&Class>) =
            self.classes.iter().partition(|class| selects(class));
        let mut wanted: BTreeSet<&str> = on_node.iter().map(|it| it.handler.as_str()).collect();
        let is_needed = |class: &Class| match base.pods.on_node(&node.name) {
            Err(_) => has(&class.handler) && !wanted.contains(class.handler.as_str()),
            Ok(pods) => pods.iter().any(|pod| {
                pod.runtime_class == class.name
                    || (!wanted.contains(class.handler.as_str())
                        && base.handler(&pod.runtime_class) == Some(class.handler.as_str()))
            }),
        };
        let is_replaced = |class: &Class| matches!(class.nodes, NodeScope::Replaced);
        let leaving: Vec<&Class> = elsewhere
            .into_iter()
            .filter(|class| !is_replaced(class) && (has_label(class) || is_needed(class)))
            .collect();
        wanted.extend(leaving.iter().map(|class| class.handler.as_str()));
        let handlers: Vec<Arc<TaskHandler>> =
            wanted.iter().filter_map(|name| self.handlers.get(*name)).cloned().collect();
        // Most nodes have every handler, and the digest of that is known.
        let has_all = handlers.len() == self.handlers.len();
        let names = |classes: Vec<&Class>| classes.into_iter().map(|it| it.name.clone()).collect();
        let is_selected = on_node
            .iter()
            .any(|class| matches!(class.nodes, NodeScope::All | NodeScope::Selected(_)));
        NodeState {
            state: if self.take_over && node.is_of_kata_deploy() {
                digest(&format!("{} taken over", self.digest(&handlers)))
            } else if has_all {
                self.without_kata.state.clone()
            } else {
                self.digest(&handlers)
            },
            handlers,
            classes: Arc::new(if is_selected { names(on_node) } else { BTreeSet::new() }),
            leaving: names(leaving),
        }
    }

    /// The state of a node that should not have Kata.
    pub(super) fn without_kata(&self) -> &Arc<NodeState> {
        &self.without_kata
    }

    fn digest(&self, handlers: &[Arc<TaskHandler>]) -> String {
        digest(&json!([handlers, self.payload_image, self.log_level]).to_string())
    }

    /// Whether a name is that of a handler that any node should have.
    pub(super) fn is_handler(&self, name: &str) -> bool {
        self.handlers.contains_key(name)
    }

    /// The image with the payload.
    pub(crate) fn payload_image(&self) -> &str {
        &self.payload_image
    }

    /// The task for a node. `verify` makes an installation read every file of the payload.
    pub(super) fn task(
        &self,
        node: &NodeFacts,
        of_node: &NodeState,
        action: NodeAction,
        verify: bool,
    ) -> NodeTask {
        let removal = action == NodeAction::Remove;
        NodeTask {
            version: NODE_TASK_VERSION,
            node: node.name.clone(),
            action,
            handlers: if removal {
                Vec::new()
            } else {
                of_node.handlers.iter().map(|handler| handler.as_ref().clone()).collect()
            },
            payload_image: (!removal).then(|| self.payload_image.clone()),
            container_runtime: Some(node.container_runtime_version.clone())
                .filter(|version| !version.is_empty()),
            log_level: self.log_level.clone().filter(|_| !removal),
            foreign_changes: self.foreign_changes,
            take_over: self.take_over,
            verify: verify && action == NodeAction::Install,
        }
    }
}

fn problems(base: &Assessment) -> Vec<Finding> {
    let (config, runtimes) = (&base.config, &base.runtimes);
    let selector = config.spec.provided_nodes.as_ref().map(selector::check);
    let invalid = selector.and_then(Result::err).map(|error| {
        let message = format!(
            "spec.providedNodes: {error}; nodes keep what they have, and no other node gets Kata meanwhile"
        );
        Finding::new(Code::InvalidSelector, config_ref(config), message)
    });
    let all = settings::problems(config, runtimes).into_iter().chain(invalid);
    all.chain(take_over::incomplete(base)).collect()
}

/// Whether a Job left a handler on a node, or may have.
pub(super) fn may_have(status: &HostStatus, handler: &str) -> bool {
    // An empty list means that the Job did not report the handlers.
    (status.handlers.is_empty() && status.installed.is_some())
        || (status.may_have_artifacts && status.handlers.iter().any(|it| it == handler))
}

impl NodeState {
    /// The names of the handlers, sorted.
    pub(super) fn handlers(&self) -> impl Iterator<Item = &str> {
        self.handlers.iter().map(|handler| handler.name.as_str())
    }

    /// The installed handlers that the node's kubelet does not report. Empty if the kubelet reports no
    /// handlers at all.
    pub(super) fn missing(
        &self,
        node: &NodeFacts,
        is_installed: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let Some(reported) = &node.runtime_handlers else { return Vec::new() };
        let missing = |name: &&str| is_installed(name) && !reported.contains(*name);
        self.handlers().filter(missing).map(str::to_owned).collect()
    }
}

/// The digest of the facts about a node that, when they change, make a retry of a failed Job worthwhile, and an
/// inspection of an installed node.
pub(super) fn facts_digest(node: &NodeFacts, retry: Option<&str>) -> String {
    digest(&format!(
        "{}/{}/{}/{}",
        node.boot_id,
        node.kernel_version,
        node.container_runtime_version,
        retry.unwrap_or_default()
    ))
}
