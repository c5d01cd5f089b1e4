//! From the view to the steps: what is brought about, in which order, and what must be waited for.
//!
//! Install: finalizer, ContainerRuntimeConfig, MachineConfig, pool, the pool's label on each node, the
//! label of verified nodes, RuntimeClass. Removal: the label of verified nodes, then (when no pod is
//! left) the RuntimeClass, then the pool's label, then (when no node is on a configuration of the pool)
//! the objects, then the finalizer. Each pass does what is safe now; the next one sees what came of it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::kata_node::Phase;
use kata_api::{Code, ContainerRuntimeConfig, KataConfig, MachineConfig, names};

use crate::bodies;
use crate::mco::{self, Runs};
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::plan::{Action, OnFailure, Step};
use crate::report::{Finding, Waiting, WaitingOn};
use crate::selection::{self, Mode};
use crate::snapshot::{Need, NodeFacts, PodScope, SandboxedPod};
use crate::text;
use crate::view::{self, NodeView, View};

/// From how many nodes on one read of all pods is cheaper than one per node.
const NODES_FOR_CLUSTER_READ: usize = 20;

/// What is to be done, and what else came to light.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) waiting_on: Vec<WaitingOn>,
    pub(crate) needs: BTreeSet<Need>,
    /// Whether sandboxed pods block the deletion of the KataConfig; the classes that they use.
    pub(crate) blocked_by: BTreeSet<String>,
}

impl Steps {
    fn push(&mut self, action: Action, on_failure: OnFailure, why: impl Into<String>) {
        self.steps.push(Step { action, on_failure, why: why.into() });
    }

    fn wait(&mut self, what: Waiting, subject: ObjectRef, message: impl Into<String>) {
        self.waiting_on.push(WaitingOn { what, subject, message: message.into() });
    }

    fn find(&mut self, code: Code, subject: ObjectRef, message: String) {
        self.findings.push(Finding::new(code, subject, message));
    }
}

/// The steps for the active KataConfig.
pub(crate) fn steps(view: &View<'_>) -> Steps {
    let mut out = Steps::default();
    if view.deleting {
        remove(view, &mut out);
    } else {
        install(view, &mut out);
    }
    for node in &view.nodes {
        if view::drain_is_long(view, node) {
            out.needs.insert(Need::DrainBlockers { node: node.facts.name.clone() });
        }
    }
    pool_findings(view, &mut out);
    out
}

/// The steps for a KataConfig that is not active: it is let go when it is being deleted.
pub(crate) fn release(config: &KataConfig) -> Option<Step> {
    (config.metadata.deletion_timestamp.is_some() && selection::has_finalizer(config))
        .then(|| remove_finalizers(config, "it was not active, so nothing in the cluster is its"))
}

fn remove_finalizers(config: &KataConfig, why: &str) -> Step {
    Step {
        action: Action::RemoveFinalizers {
            config: selection::config_ref(config),
            resource_version: config.metadata.resource_version.clone().unwrap_or_default(),
            finalizers: config
                .metadata
                .finalizers
                .iter()
                .flatten()
                .filter(|name| !selection::is_ours(name))
                .cloned()
                .collect(),
        },
        on_failure: OnFailure::Continue,
        why: why.to_owned(),
    }
}

fn install(view: &View<'_>, out: &mut Steps) {
    let config = view.config;
    let finalizers = config.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|name| name == names::FINALIZER) {
        out.push(
            Action::AddFinalizer {
                config: selection::config_ref(config),
                resource_version: config.metadata.resource_version.clone().unwrap_or_default(),
                finalizers: finalizers.into_iter().chain([names::FINALIZER.to_owned()]).collect(),
            },
            OnFailure::Stop,
            "before anything else is changed",
        );
    }
    verified_labels(view, out);
    let begun = machine_config(view).is_some();
    if view.nodes.is_empty() {
        out.find(Code::NoNodesSelected, selection::config_ref(config), no_nodes_message(view));
        if !begun {
            kata_nodes(view, out);
            return;
        }
    } else if !view.nodes.iter().any(|node| node.wanted) {
        out.find(Code::NoNodesSelected, selection::config_ref(config), no_nodes_message(view));
    }
    if pool_objects(view, out) {
        pool_labels(view, out);
    }
    runtime_classes(view, out);
    kata_nodes(view, out);
    wait_for_nodes(view, out);
}

fn no_nodes_message(view: &View<'_>) -> String {
    let excluded: Vec<&str> = view
        .findings
        .iter()
        .filter(|finding| finding.subject.kind == Kind::Node)
        .map(|finding| finding.message.as_str())
        .collect();
    if !excluded.is_empty() {
        return format!("no node that matches can be used: {}", text::list(&excluded, text::NAMES));
    }
    let eligible = if view.config.spec.check_node_eligibility {
        format!(", carries {}=true", names::NFD_LABEL)
    } else {
        String::new()
    };
    format!(
        "no node has the label {}{eligible} and matches spec.kataConfigPoolSelector",
        names::WORKER_ROLE_LABEL
    )
}

/// Our MachineConfig, if it exists.
fn machine_config<'a>(view: &View<'a>) -> Option<&'a MachineConfig> {
    match view.snapshot.machine_configs.get(names::MACHINE_CONFIG) {
        Some(Observed::Known(Some(config))) => Some(config),
        _ => None,
    }
}

fn container_runtime_config<'a>(view: &View<'a>) -> Option<&'a ContainerRuntimeConfig> {
    view.snapshot
        .container_runtime_configs
        .known()?
        .iter()
        .find(|config| config.metadata.name.as_deref() == Some(names::CONTAINER_RUNTIME_CONFIG))
}

fn class<'a>(view: &View<'a>, name: &str) -> Option<&'a RuntimeClass> {
    let classes = view.snapshot.runtime_classes.known()?;
    classes.iter().find(|class| class.metadata.name.as_deref() == Some(name))
}

/// Puts the label of verified nodes on those that are, and takes it off the others.
fn verified_labels(view: &View<'_>, out: &mut Steps) {
    for node in &view.nodes {
        let value = node.facts.labels.get(names::RUNTIME_LABEL).map(String::as_str);
        match node.verdict {
            Some(true) if value != Some(names::RUNTIME_LABEL_VERIFIED) => out.push(
                Action::LabelNode {
                    node: node.object(),
                    set: BTreeMap::from([(
                        names::RUNTIME_LABEL.to_owned(),
                        names::RUNTIME_LABEL_VERIFIED.to_owned(),
                    )]),
                    remove: BTreeSet::new(),
                },
                OnFailure::Continue,
                "it can run sandboxed pods",
            ),
            Some(false) if value.is_some() => out.push(
                Action::LabelNode {
                    node: node.object(),
                    set: BTreeMap::new(),
                    remove: BTreeSet::from([names::RUNTIME_LABEL.to_owned()]),
                },
                // What follows for this node is decided when the label is seen to be gone.
                OnFailure::Continue,
                if node.wanted {
                    "it cannot run sandboxed pods now"
                } else {
                    "no new sandboxed pod shall come"
                },
            ),
            _ => {}
        }
    }
}

/// ContainerRuntimeConfig, MachineConfig and pool. Says whether nodes may join and leave.
fn pool_objects(view: &View<'_>, out: &mut Steps) -> bool {
    let config = view.config;
    let level = config.spec.log_level.as_str();
    let existing = container_runtime_config(view);
    let ours = existing.is_none_or(bodies::is_our_container_runtime_config);
    let object =
        |uid| ObjectRef::new(Kind::ContainerRuntimeConfig, names::CONTAINER_RUNTIME_CONFIG, uid);
    let exists_with = |level: &str| {
        existing.is_some_and(|existing| {
            existing.spec.container_runtime_config.log_level.as_deref() == Some(level)
        })
    };
    if !ours {
        if level != bodies::DEFAULT_LOG_LEVEL {
            foreign(out, object(None));
        }
    } else if level == bodies::DEFAULT_LOG_LEVEL && !view.deleting {
        // One with the default level, as the OpenShift operator leaves it, does no harm, and its
        // removal would reboot the nodes.
        if let Some(existing) = existing
            && !exists_with(level)
            && existing.metadata.deletion_timestamp.is_none()
        {
            out.push(
                delete(object(existing.metadata.uid.as_deref())),
                OnFailure::Continue,
                "the log level is the default again",
            );
        }
    } else if bodies::LOG_LEVELS.contains(&level)
        && !view.deleting
        && existing.is_none_or(|existing| existing.metadata.deletion_timestamp.is_none())
        && let Some(body) = bodies::container_runtime_config(config, view.mode, existing)
    {
        let object = object(None);
        // Before the pool's first rendering, so that it takes no second reboot.
        out.push(Action::Apply { object, body }, OnFailure::Continue, why(existing.is_some()));
    }
    let existing = machine_config(view);
    let object = ObjectRef::named(Kind::MachineConfig, names::MACHINE_CONFIG);
    if existing.is_some_and(|existing| !bodies::is_our_machine_config(existing)) {
        foreign(out, object);
        return false;
    }
    if existing.is_some_and(|existing| existing.metadata.deletion_timestamp.is_some()) {
        out.wait(Waiting::Deletion, object, "the old MachineConfig to be gone");
        return false;
    }
    if let Some(body) = bodies::machine_config(config, view.mode, existing) {
        out.push(Action::Apply { object, body }, OnFailure::Stop, why(existing.is_some()));
    }
    view.mode == Mode::Compact || pool(view, out)
}

fn pool(view: &View<'_>, out: &mut Steps) -> bool {
    let existing = view.pools.get(names::POOL).copied();
    let object = ObjectRef::named(Kind::MachineConfigPool, names::POOL);
    if existing.is_some_and(|existing| !bodies::is_our_pool(existing)) {
        foreign(out, object);
        return false;
    }
    if existing.is_some_and(|existing| existing.metadata.deletion_timestamp.is_some()) {
        out.wait(Waiting::Deletion, object, "the old pool to be gone");
        return false;
    }
    if let Some(body) = bodies::pool(view.config, existing) {
        out.push(Action::Apply { object, body }, OnFailure::Stop, why(existing.is_some()));
    }
    true
}

fn why(exists: bool) -> &'static str {
    if exists { "it differs from what it shall be" } else { "it does not exist" }
}

fn foreign(out: &mut Steps, object: ObjectRef) {
    let message = format!("{object} exists, is not ours, and is left as it is");
    out.find(Code::ForeignObject, object, message);
}

/// Lets nodes into the pool, and out of it.
fn pool_labels(view: &View<'_>, out: &mut Steps) {
    let joining: Vec<&NodeView<'_>> =
        view.nodes.iter().filter(|node| node.wanted && !node.labelled).collect();
    let pool = view.pools.get(names::POOL);
    // A node that joins before the pool's configuration has our MachineConfig changes twice. A pool
    // that was never rendered will be rendered with it, as it exists before.
    let rendered = view.targeted || pool.is_none_or(|pool| pool.spec.configuration.name.is_empty());
    if view.mode == Mode::Pool && rendered {
        for node in joining {
            out.push(
                Action::LabelNode {
                    node: node.object(),
                    set: BTreeMap::from([(names::KATA_ROLE_LABEL.to_owned(), String::new())]),
                    remove: BTreeSet::new(),
                },
                OnFailure::Continue,
                "it is selected",
            );
        }
    }
    let leaving: Vec<&NodeView<'_>> =
        view.nodes.iter().filter(|node| !node.wanted && node.labelled).collect();
    let ready_to_leave: Vec<&NodeView<'_>> =
        leaving.into_iter().filter(|node| !node.verified).collect();
    let many = ready_to_leave.len() > NODES_FOR_CLUSTER_READ;
    for node in ready_to_leave {
        let name = &node.facts.name;
        match view.running(Some(name)) {
            Err(None) => {
                let scope = if many { PodScope::Cluster } else { PodScope::Node(name.clone()) };
                out.needs.insert(Need::Pods { scope, classes: view.classes.clone() });
                out.wait(Waiting::Read, node.object(), format!("the pods on {name} are read"));
            }
            Err(Some(error)) => out.find(
                Code::ReadFailed,
                node.object(),
                format!(
                    "cannot read the pods on node {name}: {error}; it stays in the pool meanwhile"
                ),
            ),
            Ok(pods) if pods.is_empty() => out.push(
                take_label(node),
                OnFailure::Continue,
                "it is not selected any more, and no sandboxed pod runs on it",
            ),
            Ok(pods) => {
                out.wait(
                    Waiting::Pods,
                    node.object(),
                    format!("{} on {name} to end", text::count(pods.len(), "sandboxed pod")),
                );
            }
        }
    }
}

fn take_label(node: &NodeView<'_>) -> Action {
    Action::LabelNode {
        node: node.object(),
        set: BTreeMap::new(),
        remove: BTreeSet::from([names::KATA_ROLE_LABEL.to_owned()]),
    }
}

fn delete(object: ObjectRef) -> Action {
    Action::Delete { object, resource_version: None }
}

fn runtime_classes(view: &View<'_>, out: &mut Steps) {
    let served = view.nodes.iter().any(|node| node.verdict == Some(true));
    let offered: BTreeSet<&str> = view
        .config
        .status
        .iter()
        .flat_map(|status| &status.runtime_classes)
        .map(String::as_str)
        .collect();
    for runtime in &view.runtimes {
        let existing = class(view, &runtime.name);
        let object = ObjectRef::new(
            Kind::RuntimeClass,
            &runtime.name,
            existing.and_then(|class| class.metadata.uid.as_deref()),
        );
        let Some(existing) = existing else {
            // Once offered it is kept, even if all its nodes are away for a while.
            if (served || offered.contains(runtime.name.as_str()))
                && let Some(body) = bodies::runtime_class(view.config, view.mode, runtime, None)
            {
                out.push(
                    Action::Apply { object, body },
                    OnFailure::Continue,
                    "nodes can run sandboxed pods",
                );
            }
            continue;
        };
        if !bodies::is_our_class(existing) {
            let message =
                format!("RuntimeClass {} exists, is not ours, and is left as it is", runtime.name);
            out.find(Code::ForeignRuntimeClass, object, message);
        } else if existing.metadata.deletion_timestamp.is_some() {
            out.wait(
                Waiting::Deletion,
                object,
                format!("RuntimeClass {} to be gone", runtime.name),
            );
        } else if existing.handler != runtime.effective_handler() {
            let message = format!(
                "RuntimeClass {} has the handler {} and shall have {}",
                runtime.name,
                existing.handler,
                runtime.effective_handler()
            );
            withdraw(view, out, &object, Code::HandlerImmutable, &message);
        } else if let Some(body) =
            bodies::runtime_class(view.config, view.mode, runtime, Some(existing))
        {
            out.push(
                Action::Apply { object, body },
                OnFailure::Continue,
                "it differs from what it shall be",
            );
        }
    }
    for existing in our_classes(view) {
        let name = existing.metadata.name.as_deref().unwrap_or_default();
        if existing.metadata.deletion_timestamp.is_none()
            && !view.runtimes.iter().any(|runtime| runtime.name == name)
        {
            let object = ObjectRef::new(Kind::RuntimeClass, name, existing.metadata.uid.as_deref());
            let message = format!("spec.runtimes does not name RuntimeClass {name} any more");
            withdraw(view, out, &object, Code::RuntimeClassInUse, &message);
        }
    }
}

fn our_classes<'a>(view: &View<'a>) -> Vec<&'a RuntimeClass> {
    let mut classes: Vec<&RuntimeClass> = view
        .snapshot
        .runtime_classes
        .known()
        .into_iter()
        .flatten()
        .filter(|class| bodies::is_our_class(class))
        .collect();
    classes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    classes
}

/// Deletes a RuntimeClass when no pod uses it.
fn withdraw(view: &View<'_>, out: &mut Steps, object: &ObjectRef, code: Code, message: &str) {
    match view.running(None) {
        Err(None) => {
            out.needs
                .insert(Need::Pods { scope: PodScope::Cluster, classes: view.classes.clone() });
            out.wait(Waiting::Read, object.clone(), "the pods of the cluster are read");
        }
        Err(Some(error)) => out.find(
            Code::ReadFailed,
            object.clone(),
            format!("{message}, but the pods that use it cannot be read: {error}"),
        ),
        Ok(pods) => {
            let users: Vec<&SandboxedPod> =
                pods.into_iter().filter(|pod| pod.runtime_class == object.name).collect();
            if users.is_empty() {
                out.push(delete(object.clone()), OnFailure::Continue, message);
            } else {
                out.find(
                    code,
                    object.clone(),
                    format!(
                        "{message}, but {}: {}",
                        text::running(users.len()),
                        text::pods(&users)
                    ),
                );
            }
        }
    }
}

fn remove(view: &View<'_>, out: &mut Steps) {
    verified_labels(view, out);
    let labels_off = !view.nodes.iter().any(|node| node.verified);
    let classes: Vec<&RuntimeClass> = our_classes(view);
    let labelled = view.nodes.iter().any(|node| node.labelled);
    // Once no node is ours any more, no pod of ours can run, and all pods need not be listed again.
    let pods_matter = !labels_off
        || !classes.is_empty()
        || labelled
        || (view.mode == Mode::Compact && machine_config(view).is_some());
    let clear = !pods_matter || no_pods(view, out);
    keep_pool(view, out);
    if clear && labels_off {
        remove_from_nodes(view, out, &classes);
    } else if clear {
        let config = selection::config_ref(view.config);
        out.wait(Waiting::OwnWrites, config, "the label of verified nodes is taken off");
    }
    kata_nodes(view, out);
    wait_for_nodes(view, out);
}

/// Whether no sandboxed pod is left in the cluster; says so if one is.
fn no_pods(view: &View<'_>, out: &mut Steps) -> bool {
    let config = selection::config_ref(view.config);
    match view.running(None) {
        Err(None) => {
            out.needs
                .insert(Need::Pods { scope: PodScope::Cluster, classes: view.classes.clone() });
            out.wait(Waiting::Read, config, "the pods of the cluster are read");
            false
        }
        Err(Some(error)) => {
            let message =
                format!("cannot read the cluster's pods: {error}; nothing is removed meanwhile");
            out.find(Code::ReadFailed, config, message);
            false
        }
        Ok(pods) if pods.is_empty() => true,
        Ok(pods) => {
            out.blocked_by = pods.iter().map(|pod| pod.runtime_class.clone()).collect();
            out.find(
                Code::PodsStillRunning,
                config.clone(),
                format!("{}: {}", text::left(pods.len()), text::pods(&pods)),
            );
            out.wait(
                Waiting::Pods,
                config,
                format!("{} to end", text::count(pods.len(), "sandboxed pod")),
            );
            false
        }
    }
}

/// Puts MachineConfig and pool back if nodes are on a configuration of the pool whose objects somebody
/// deleted; without them these nodes could go nowhere.
fn keep_pool(view: &View<'_>, out: &mut Steps) {
    let stranded = view.mode == Mode::Pool
        && view.nodes.iter().any(|node| node.facts.refers_to_pool(names::POOL))
        && !view.pools.contains_key(names::POOL);
    if stranded {
        pool_objects(view, out);
    }
}

fn remove_from_nodes(view: &View<'_>, out: &mut Steps, classes: &[&RuntimeClass]) {
    if !classes.is_empty() {
        for class in classes {
            let name = class.metadata.name.clone().unwrap_or_default();
            let object = ObjectRef::new(Kind::RuntimeClass, &name, class.metadata.uid.as_deref());
            if class.metadata.deletion_timestamp.is_none() {
                out.push(delete(object.clone()), OnFailure::Stop, "no sandboxed pod is left");
            }
            out.wait(Waiting::Deletion, object, format!("RuntimeClass {name} to be gone"));
        }
        return;
    }
    for node in view.nodes.iter().filter(|node| node.labelled) {
        out.push(take_label(node), OnFailure::Continue, "no sandboxed pod is left");
    }
    let on_nodes = view.mode == Mode::Pool && !view.nodes.is_empty();
    if !on_nodes {
        remove_objects(view, out);
    }
}

/// Deletes the Machine Config Operator's objects, and the finalizer when they are seen to be gone.
fn remove_objects(view: &View<'_>, out: &mut Steps) {
    let mut gone = true;
    let mut remove = |out: &mut Steps, object: ObjectRef, deleting: bool, why: &str| {
        gone = false;
        if !deleting {
            out.push(delete(object.clone()), OnFailure::Stop, why);
        }
        let message = format!("{object} to be gone");
        out.wait(Waiting::Deletion, object, message);
    };
    let why = "no node is on a configuration with it";
    let log_level = container_runtime_config(view)
        .filter(|config| bodies::is_our_container_runtime_config(config));
    if let Some(config) = log_level {
        remove(
            out,
            ObjectRef::new(
                Kind::ContainerRuntimeConfig,
                names::CONTAINER_RUNTIME_CONFIG,
                config.metadata.uid.as_deref(),
            ),
            config.metadata.deletion_timestamp.is_some(),
            why,
        );
    }
    if let Some(config) =
        machine_config(view).filter(|config| bodies::is_our_machine_config(config))
    {
        remove(
            out,
            ObjectRef::new(
                Kind::MachineConfig,
                names::MACHINE_CONFIG,
                config.metadata.uid.as_deref(),
            ),
            config.metadata.deletion_timestamp.is_some(),
            if view.mode == Mode::Compact { "no sandboxed pod is left" } else { why },
        );
    }
    let pool = view.pools.get(names::POOL).filter(|pool| bodies::is_our_pool(pool));
    // The controller of the ContainerRuntimeConfig cleans up per pool, so the pool goes after it.
    if let Some(pool) = pool.filter(|_| log_level.is_none()) {
        remove(
            out,
            ObjectRef::new(Kind::MachineConfigPool, names::POOL, pool.metadata.uid.as_deref()),
            pool.metadata.deletion_timestamp.is_some(),
            "no node belongs to it or is on a configuration of it",
        );
    }
    let kata_nodes_left = view.snapshot.kata_nodes.known().is_none_or(|list| !list.is_empty());
    if gone && view.nodes.is_empty() && !kata_nodes_left && !master_targeted(view) {
        out.steps.push(remove_finalizers(view.config, "nothing is left"));
    }
}

/// Whether the control plane's pool still has our extension in its configuration.
fn master_targeted(view: &View<'_>) -> bool {
    view.mode == Mode::Compact
        && view.pools.get(names::MASTER_POOL).is_none_or(|pool| {
            mco::content(view.snapshot, &pool.spec.configuration.name) != mco::Content::Lacks
        })
}

/// One KataNode for each node of the view, and none besides.
fn kata_nodes(view: &View<'_>, out: &mut Steps) {
    let labelled_now: BTreeSet<String> = out
        .steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::LabelNode { node, set, .. } if set.contains_key(names::RUNTIME_LABEL) => {
                Some(node.name.clone())
            }
            _ => None,
        })
        .collect();
    let known: BTreeSet<&str> = view.nodes.iter().map(|node| node.facts.name.as_str()).collect();
    for node in &view.nodes {
        // A node that is labelled in this pass is written when the label is seen.
        if !labelled_now.contains(&node.facts.name) {
            crate::kata_nodes::push(view, node, &mut out.steps);
        }
    }
    let mut stale: Vec<&kata_api::KataNode> = view
        .snapshot
        .kata_nodes
        .known()
        .into_iter()
        .flatten()
        .filter(|kata_node| !known.contains(kata_node.spec.node_name.as_str()))
        .collect();
    stale.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    for kata_node in stale {
        let name = kata_node.metadata.name.clone().unwrap_or_default();
        let object = ObjectRef::new(Kind::KataNode, &name, kata_node.metadata.uid.as_deref());
        if kata_node.metadata.deletion_timestamp.is_none() {
            out.push(
                delete(object.clone()),
                OnFailure::Continue,
                "its node has nothing to do with Kata any more",
            );
        }
        if view.deleting {
            out.wait(Waiting::Deletion, object, format!("KataNode {name} to be gone"));
        }
    }
}

/// What the nodes wait for.
fn wait_for_nodes(view: &View<'_>, out: &mut Steps) {
    let pool = ObjectRef::named(Kind::MachineConfigPool, view.mode.pool());
    let unrendered = view.nodes.iter().any(|node| node.wanted && node.runs != Runs::Yes);
    if !view.deleting && unrendered && !view.targeted {
        let message =
            format!("the Machine Config Operator to render the pool {}", view.mode.pool());
        out.wait(Waiting::Render, pool.clone(), message);
    }
    let mut queued: Vec<&str> = Vec::new();
    for node in &view.nodes {
        if node.in_flight() {
            out.wait(Waiting::Node, node.object(), node.brief());
        } else if node.phase != Phase::Ready {
            queued.push(&node.facts.name);
        }
    }
    if !queued.is_empty() {
        let message = format!(
            "{} that {} not being changed: {}",
            text::count(queued.len(), "node"),
            if queued.len() == 1 { "is" } else { "are" },
            text::list(&queued, text::NAMES)
        );
        out.wait(Waiting::Node, pool, message);
    }
}

/// What is wrong with the pools while nodes wait for them.
fn pool_findings(view: &View<'_>, out: &mut Steps) {
    let waits = |wanted: bool| {
        view.nodes.iter().any(|node| {
            node.wanted == wanted && !matches!(node.phase, Phase::Ready) && !node.in_flight()
        })
    };
    if waits(true) || (view.deleting && view.mode == Mode::Compact && waits(false)) {
        pool_finding(view, view.mode.pool(), out);
    }
    let leaving = view.mode == Mode::Pool
        && view.nodes.iter().any(|node| !node.wanted && !node.labelled && !node.in_flight());
    if leaving {
        pool_finding(view, names::WORKER_POOL, out);
        hold_ups(view, out);
    }
}

fn pool_finding(view: &View<'_>, name: &str, out: &mut Steps) {
    let Some(pool) = view.pools.get(name) else { return };
    let object = ObjectRef::new(Kind::MachineConfigPool, name, pool.metadata.uid.as_deref());
    if pool.spec.paused {
        let ours = name == names::POOL
            && view.config.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused);
        let why = if ours { ", as spec.rollout.paused says" } else { "" };
        out.find(
            Code::PoolPaused,
            object.clone(),
            format!("the pool {name} is paused{why}, so its nodes do not change"),
        );
        if let (true, Some(finding)) = (ours, out.findings.last_mut()) {
            "Set spec.rollout.paused of the KataConfig to false.".clone_into(&mut finding.fix);
        }
    }
    if mco::is_render_degraded(pool) {
        out.find(
            Code::RenderDegraded,
            object.clone(),
            format!(
                "the pool {name} cannot be rendered: {}",
                mco::condition_message(pool, "RenderDegraded")
            ),
        );
    }
    let mut failing: Vec<&ContainerRuntimeConfig> = view
        .snapshot
        .container_runtime_configs
        .known()
        .into_iter()
        .flatten()
        .filter(|config| mco::selects_pool(config, pool))
        .collect();
    failing.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    for config in failing {
        if let Some(failure) = mco::failure(config) {
            let cause = config.metadata.name.clone().unwrap_or_default();
            let message = format!(
                "ContainerRuntimeConfig {cause} keeps the pool {name} from being rendered: {}",
                failure.message
            );
            out.find(
                Code::RenderWaiting,
                ObjectRef::new(Kind::ContainerRuntimeConfig, cause, config.metadata.uid.as_deref()),
                message,
            );
        }
    }
}

/// Other workers that use up what the pool worker allows to be unavailable.
fn hold_ups(view: &View<'_>, out: &mut Steps) {
    let ours: BTreeSet<&str> = view.nodes.iter().map(|node| node.facts.name.as_str()).collect();
    let Some(worker) = view.pools.get(names::WORKER_POOL) else { return };
    let mut others: Vec<&NodeFacts> = view
        .snapshot
        .nodes
        .known()
        .into_iter()
        .flatten()
        .filter(|node| {
            !ours.contains(node.name.as_str())
                && mco::selects(worker, node)
                && !selection::is_control_plane(node)
                && selection::other_pools(node, &view.pools).is_empty()
        })
        .collect();
    others.sort_by(|a, b| a.name.cmp(&b.name));
    for node in others {
        let object = ObjectRef::new(Kind::Node, &node.name, Some(&node.uid));
        if node.ready.status != Some(true) && node.is_settled() {
            let message = format!(
                "node {} is not Ready and holds up the changes of the pool worker",
                node.name
            );
            out.find(Code::NodeNotReady, object, message);
        } else if node.unschedulable && !node.is_cordoned_by_mco() {
            let message = format!(
                "node {} is cordoned and holds up the changes of the pool worker",
                node.name
            );
            out.find(Code::NodeCordoned, object, message);
        }
    }
}
