//! What a run of `accept` makes in the cluster: how it is found again, and how it is removed. Removed is what has the run's label
//! and is still the same object, and the operator that the run installed; nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kata_api::names;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::quietly;
use crate::Context;
use crate::api::{Api, Read, Scope, Trouble};
use crate::cluster::{Kata, platform};
use crate::commands::uninstall::operator::{self, Removal};
use crate::commands::wait;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::refusal::Refusal;
use crate::resource::{JOBS, KATA_CONFIGS, NAMESPACES, NODES, PODS, Resource};
use crate::settings::Now;

/// The KataConfig, and the namespace with the pods.
pub(super) const NAME: &str = "kata-accept";
/// Values of the run's label: of the node, of the namespace that the run made for its operator, and of the one with the pods.
pub(super) const NODE: &str = "node";
const OPERATOR: &str = "operator";
const PODS_OF_RUN: &str = "pods";
/// The annotation of the namespace with the pods that says when the run was last seen alive.
const SEEN: &str = "kata-operator.dev/accept-seen";
/// How often a run says that it is alive, and after which silence it is not.
const SIGN: Duration = Duration::from_secs(20);
const SILENT: Duration = Duration::from_secs(90);
/// How often what vanishes is looked at, and how long it may take.
const LOOK: Duration = Duration::from_secs(2);
const VANISHES_WITHIN: Duration = Duration::from_mins(10);

/// An object that a run made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    name: String,
    uid: String,
}

impl Made {
    fn of(object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self { name: text("name"), uid: text("uid") }
    }
}

/// What is there of a run.
#[derive(Default)]
pub(super) struct Belongings {
    nodes: Vec<String>,
    config: Option<Made>,
    /// The namespace with the pods, which is the first that a run makes and the last that it removes.
    pods: Option<Made>,
    /// The operator's namespace, if the operator is the run's: a run installs none into a namespace that is there.
    home: Option<Made>,
    seen: Option<Timestamp>,
    /// Why no run may begin: something in its way is not a run's.
    pub(super) foreign: Option<Refusal>,
}

impl Belongings {
    /// What is there.
    ///
    /// # Errors
    /// If it cannot be read: then nothing of it can be removed either.
    pub(super) async fn find(context: &Context<'_, '_>) -> Result<Self, Failure> {
        let api = &context.api;
        let what = "find what an earlier run left";
        let labelled = async |kind: Resource| {
            let scope = Scope { labels: Some(names::ACCEPT_LABEL), ..Scope::default() };
            let found = api.list::<Value>(kind, scope).await?;
            found.listed(what, &kind.qualified())?;
            Ok::<_, Failure>(found.known().unwrap_or_default())
        };
        let nodes = labelled(NODES).await?;
        let namespaces = labelled(NAMESPACES).await?;
        let configs = api.list::<Value>(KATA_CONFIGS, Scope::default()).await?;
        configs.listed(what, &KATA_CONFIGS.qualified())?;
        let (ours, others): (Vec<&Value>, Vec<&Value>) =
            configs.items().iter().partition(|config| is_of_run(config));
        let pods = namespaces.iter().find(|namespace| namespace["metadata"]["name"] == NAME);
        let is_taken = pods.is_none()
            && matches!(api.get::<Value>(NAMESPACES, None, NAME).await?, Read::Known(Some(_)));
        let home = namespaces
            .iter()
            .find(|namespace| namespace["metadata"]["labels"][names::ACCEPT_LABEL] == OPERATOR);
        let seen = pods.and_then(|pods| pods["metadata"]["annotations"][SEEN].as_str());
        Ok(Self {
            nodes: nodes.iter().map(|node| Made::of(node).name).collect(),
            config: ours.first().copied().map(Made::of),
            pods: pods.map(Made::of),
            home: home.map(Made::of),
            seen: seen.and_then(|seen| seen.parse().ok()),
            foreign: foreign(others.first().copied(), is_taken),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        let objects = [&self.config, &self.pods, &self.home];
        self.nodes.is_empty() && objects.into_iter().all(Option::is_none)
    }

    /// Why no other run may begin: one is at work.
    pub(super) fn at_work(&self, now: Timestamp) -> Option<Refusal> {
        let ago = now.duration_since(self.seen?);
        (ago < SILENT.try_into().unwrap_or_default()).then(|| {
            Refusal::new(
                format!(
                    "another run was at work {} ago, on {}",
                    human::span(ago),
                    human::list(&self.nodes, 3)
                ),
                format!(
                    "wait until it has ended; of one that was killed the next run removes what it left, {} s later",
                    SILENT.as_secs()
                ),
            )
        })
    }

    /// What is there, for people.
    pub(super) fn describe(&self) -> String {
        let mut parts = Vec::new();
        if self.config.is_some() {
            parts.push(format!("KataConfig {NAME}"));
        }
        if self.home.is_some() {
            parts.push("the operator".to_owned());
        }
        for namespace in [&self.pods, &self.home].into_iter().flatten() {
            parts.push(format!("namespace {}", namespace.name));
        }
        if !self.nodes.is_empty() {
            parts.push(format!("the label of {}", human::list(&self.nodes, 3)));
        }
        parts.join(", ")
    }

    /// Removes all of it. What is left after a failure, the same removes.
    ///
    /// # Errors
    /// If something cannot be removed, with what is left and why.
    pub(super) async fn remove(
        &self,
        timeout: Duration,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Failure> {
        if self.pods.is_some() {
            for kind in [JOBS, PODS] {
                delete_all(kind, context).await?;
            }
        }
        if let Some(config) = &self.config {
            delete(context, KATA_CONFIGS, None, config).await?;
            let wanted = wait::Wanted::Deleted(Some(config.name.clone()));
            if Box::pin(wait::until(&wanted, timeout, context)).await? != Exit::Fine {
                return Err(stays(&format!(
                    "KataConfig {NAME} is still there, for the reason above; remove that, and run the command again"
                )));
            }
        }
        // An operator that others use by now stays, and nothing else for its sake.
        let operator = match &self.home {
            Some(home) => Box::pin(remove_operator(home, context)).await,
            None => Ok(()),
        };
        for node in &self.nodes {
            label(node, None, context).await?;
        }
        if let Some(pods) = &self.pods {
            delete(context, NAMESPACES, None, pods).await?;
            vanishes(&pods.name, context).await?;
        }
        operator
    }
}

/// Whether a run made a KataConfig: it selects by the run's label.
fn is_of_run(config: &Value) -> bool {
    let selector = &config["spec"]["kataConfigPoolSelector"]["matchLabels"];
    config["metadata"]["name"] == NAME && selector[names::ACCEPT_LABEL].is_string()
}

fn foreign(config: Option<&Value>, is_namespace_taken: bool) -> Option<Refusal> {
    if let Some(config) = config {
        let name = config["metadata"]["name"].as_str().unwrap_or_default();
        return Some(Refusal::new(
            format!("there is KataConfig {name}, and a proof begins with a cluster without one"),
            "prove what is installed by `kubectl kata verify`, or take another cluster",
        ));
    }
    is_namespace_taken.then(|| {
        Refusal::new(
            format!("there is a namespace {NAME} without the label {}", names::ACCEPT_LABEL),
            format!("if it is not in use: `kubectl delete namespace {NAME}`"),
        )
    })
}

/// Removes the operator, whatever of it was applied, and its namespace; but no KataConfig, which by now would be another one.
async fn remove_operator(home: &Made, context: &Context<'_, '_>) -> Result<(), Failure> {
    let (_never, interrupt) = tokio::sync::watch::channel(false);
    let (removed, said) = quietly(context, interrupt, async |context: &mut Context<'_, '_>| {
        let kata = Kata::read(&context.api).await?;
        let removal = match operator::plan(&kata, context).await? {
            Ok(Some(removal)) => removal,
            // It was not applied to its end: its Deployment is the last object.
            Ok(None) => {
                let platform = platform(None, &context.api).await?;
                Removal::of(home.name.clone(), platform)?
            }
            Err(refusal) => return refusal.print(context).map(|_refused| false),
        };
        removal.run(context).await.map(|()| true)
    })
    .await;
    match removed {
        Ok(true) => {
            delete(context, NAMESPACES, None, home).await?;
            vanishes(&home.name, context).await
        }
        Ok(false) => Err(stays(&format!("the operator is still there: {said}"))),
        Err(failure @ (Failure::Unreachable { .. } | Failure::Silent { .. })) => Err(failure),
        Err(failure) => Err(stays(&format!("the operator is still there: {}", failure.chain()))),
    }
}

/// Waits until a namespace is gone.
async fn vanishes(namespace: &str, context: &Context<'_, '_>) -> Result<(), Failure> {
    let end = Instant::now() + VANISHES_WITHIN;
    loop {
        let read = context.api.get::<Value>(NAMESPACES, None, namespace).await?;
        let Read::Known(Some(found)) = read else { return Ok(()) };
        if Instant::now() >= end {
            let conditions = found["status"]["conditions"].as_array().into_iter().flatten();
            let why: Vec<&str> = conditions
                .filter(|it| it["status"] == "True")
                .filter_map(|it| it["message"].as_str())
                .collect();
            return Err(stays(&format!(
                "namespace {namespace} is still being deleted after {} min: {}; `kubectl get namespace {namespace} -o yaml`",
                VANISHES_WITHIN.as_secs() / 60,
                if why.is_empty() { "it says no reason".to_owned() } else { why.join("; ") }
            )));
        }
        tokio::time::sleep_until(Instant::now() + LOOK).await;
    }
}

fn stays(message: &str) -> Failure {
    Failure::Refused {
        what: "remove what this command made".to_owned(),
        message: message.to_owned(),
    }
}

/// Deletes an object unless another one has its name by now.
async fn delete(
    context: &Context<'_, '_>,
    kind: Resource,
    namespace: Option<&str>,
    made: &Made,
) -> Result<(), Failure> {
    let what = format!("delete {} {}", kind.qualified(), made.name);
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": made.uid},
    });
    let path = kind.object(namespace, &made.name);
    match context.api.write(&what, http::Method::DELETE, &path, None, &options).await {
        Ok(_) => Ok(()),
        // It is gone, or is another one.
        Err(Trouble::Status(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(trouble) => Err(trouble.denied(&what, &format!("delete {}", kind.qualified()))),
    }
}

/// Deletes all objects of a kind in the namespace with the pods.
async fn delete_all(kind: Resource, context: &Context<'_, '_>) -> Result<(), Failure> {
    for object in context.api.list::<Value>(kind, Scope::of(NAME)).await?.items() {
        delete(context, kind, Some(NAME), &Made::of(object)).await?;
    }
    Ok(())
}

/// Deletes a pod of the run.
pub(super) async fn delete_pod(name: &str, context: &Context<'_, '_>) -> Result<(), Failure> {
    match context.api.get::<Value>(PODS, Some(NAME), name).await?.known().flatten() {
        Some(pod) => delete(context, PODS, Some(NAME), &Made::of(&pod)).await,
        None => Ok(()),
    }
}

/// Deletes the KataConfig of the run.
pub(super) async fn delete_config(context: &Context<'_, '_>) -> Result<(), Failure> {
    match context.api.get::<Value>(KATA_CONFIGS, None, NAME).await?.known().flatten() {
        Some(config) => delete(context, KATA_CONFIGS, None, &Made::of(&config)).await,
        None => Ok(()),
    }
}

/// Begins a run: from here on it is found again. The API server makes the namespace once, so of two runs one begins.
pub(super) async fn begin(
    node: &str,
    with_operator: bool,
    context: &Context<'_, '_>,
) -> Result<(), Failure> {
    create_namespace(NAME, PODS_OF_RUN, context).await?;
    if with_operator {
        create_namespace(context.api.home(), OPERATOR, context).await?;
    }
    label(node, Some(NODE), context).await
}

/// Says for ever that the run is alive; an API server that is away for a moment does not end it.
pub(super) async fn stay_alive(api: Arc<Api>, now: Now) -> Infallible {
    loop {
        let patch = json!({"metadata": {"annotations": {SEEN: now().to_string()}}});
        let path = NAMESPACES.object(None, NAME);
        let content = Some("application/merge-patch+json");
        let what = "say that this run is alive";
        drop(api.write(what, http::Method::PATCH, &path, content, &patch).await);
        tokio::time::sleep_until(Instant::now() + SIGN).await;
    }
}

/// Changes the spec of the KataConfig.
pub(super) async fn change(spec: &Value, context: &Context<'_, '_>) -> Result<(), Failure> {
    let what = format!("change KataConfig {NAME}");
    let patch = json!({"spec": spec});
    let content = Some("application/merge-patch+json");
    let path = KATA_CONFIGS.object(None, NAME);
    let written = context.api.write(&what, http::Method::PATCH, &path, content, &patch).await;
    let permission = format!("patch {}", KATA_CONFIGS.qualified());
    written.map(drop).map_err(|trouble| trouble.denied(&what, &permission))
}

/// Labels a node as that of the run, or takes the label off.
async fn label(node: &str, value: Option<&str>, context: &Context<'_, '_>) -> Result<(), Failure> {
    let what = format!("label node {node}");
    let patch = json!({"metadata": {"labels": {names::ACCEPT_LABEL: value}}});
    let content = Some("application/merge-patch+json");
    let path = NODES.object(None, node);
    match context.api.write(&what, http::Method::PATCH, &path, content, &patch).await {
        Ok(_) => Ok(()),
        Err(Trouble::Status(status)) if status.code == 404 && value.is_none() => Ok(()),
        Err(trouble) => Err(trouble.denied(&what, "patch nodes")),
    }
}

async fn create_namespace(
    name: &str,
    value: &str,
    context: &Context<'_, '_>,
) -> Result<(), Failure> {
    let body = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {names::ACCEPT_LABEL: value},
            "annotations": {SEEN: (context.settings.now)().to_string()},
        },
    });
    create("namespace", NAMESPACES, None, &body, context).await
}

/// Creates a pod of the run.
pub(super) async fn create_pod(pod: &Value, context: &Context<'_, '_>) -> Result<(), Failure> {
    create("pod", PODS, Some(NAME), pod, context).await
}

async fn create(
    word: &str,
    kind: Resource,
    namespace: Option<&str>,
    body: &Value,
    context: &Context<'_, '_>,
) -> Result<(), Failure> {
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("create {word} {name}");
    let path = kind.path(namespace);
    let created = context.api.write(&what, http::Method::POST, &path, None, body).await;
    let permission = format!("create {}", kind.qualified());
    created.map(drop).map_err(|trouble| trouble.denied(&what, &permission))
}
