//! What a run of `accept` makes in the cluster, how it is found again, and how it is removed.

use std::time::Duration;

use kata_api::names;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{aside, quietly};
use crate::Context;
use crate::api::{Read, Scope, Trouble};
use crate::cluster::{Kata, operator_quietly};
use crate::commands::{uninstall, wait};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::resource::{KATA_CONFIGS, NAMESPACES, NODES, PODS};

/// The KataConfig, and the namespace with the pods.
pub(super) const NAME: &str = "kata-accept";
/// How often what vanishes is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How much of the cluster is the run's. The label's value has it, so that it is known after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    /// The operator was there before.
    #[default]
    Kata,
    /// The operator, in a namespace that was there before.
    Operator,
    /// The operator and its namespace.
    Namespace,
}

impl Extent {
    const ALL: [Self; 3] = [Self::Kata, Self::Operator, Self::Namespace];

    /// That of a run in this cluster, or of one that was killed.
    pub(super) async fn of(
        earlier: &Belongings,
        context: &Context<'_, '_>,
    ) -> Result<Self, Failure> {
        if !earlier.nodes.is_empty() {
            return Ok(earlier.extent);
        }
        if operator_quietly(&context.api).await?.known().flatten().is_some() {
            return Ok(Self::Kata);
        }
        let home = context.api.home();
        let namespace = context.api.get::<Value>(NAMESPACES, None, home).await?;
        Ok(match namespace {
            Read::Known(None) => Self::Namespace,
            _ => Self::Operator,
        })
    }

    /// The label's value.
    pub(super) fn value(self) -> &'static str {
        match self {
            Self::Kata => "kata",
            Self::Operator => "operator",
            Self::Namespace => "namespace",
        }
    }
}

/// What is there of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Belongings {
    /// The nodes with the label.
    nodes: Vec<String>,
    extent: Extent,
    has_config: bool,
    has_namespace: bool,
    /// A namespace of this name that somebody else made.
    pub(super) foreign_namespace: Option<String>,
}

impl Belongings {
    pub(super) async fn find(context: &Context<'_, '_>) -> Result<Self, Failure> {
        let api = &context.api;
        let scope = Scope { labels: Some(names::ACCEPT_LABEL), ..Scope::default() };
        let nodes = api.list::<Value>(NODES, scope).await?;
        let label = |object: &Value| object["metadata"]["labels"][names::ACCEPT_LABEL].clone();
        let of =
            |node: &Value| Extent::ALL.into_iter().find(|extent| label(node) == extent.value());
        let extent = nodes.items().iter().filter_map(of).max().unwrap_or_default();
        let nodes = nodes.items().iter().filter_map(|node| node["metadata"]["name"].as_str());
        let namespace = api.get::<Value>(NAMESPACES, None, NAME).await?.known().flatten();
        let is_ours = namespace.as_ref().is_some_and(|namespace| label(namespace).is_string());
        let config = api.get::<Value>(KATA_CONFIGS, None, NAME).await?.known().flatten();
        Ok(Self {
            nodes: nodes.map(str::to_owned).collect(),
            extent,
            has_config: config.is_some(),
            has_namespace: is_ours,
            foreign_namespace: (namespace.is_some() && !is_ours).then(|| NAME.to_owned()),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && !self.has_config && !self.has_namespace
    }

    /// Removes all of it: the pods, the KataConfig, the operator, and at last the label by which it is found again.
    ///
    /// # Errors
    /// If something cannot be removed; what is left can be removed by calling this again.
    pub(super) async fn remove(
        &self,
        timeout: Duration,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Failure> {
        if self.has_namespace {
            delete(context, "namespace", &NAMESPACES.object(None, NAME)).await?;
        }
        if self.has_config {
            delete(context, "KataConfig", &KATA_CONFIGS.object(None, NAME)).await?;
            let wanted = wait::Wanted::Deleted(Some(NAME.to_owned()));
            let exit = Box::pin(wait::until(&wanted, timeout, context)).await?;
            if exit != Exit::Fine {
                return Err(stays(&format!("KataConfig {NAME}"), context));
            }
        }
        if self.has_namespace {
            vanishes(NAME, timeout, context).await?;
        }
        if self.extent > Extent::Kata {
            let interrupt = context.interrupt.clone();
            let (removed, said) =
                quietly(context, interrupt, async |context: &mut Context<'_, '_>| {
                    remove_operator(context).await
                })
                .await;
            if !removed? {
                return Err(stays(&format!("the operator ({said})"), context));
            }
        }
        if self.extent == Extent::Namespace {
            let home = context.api.home().to_owned();
            delete(context, "namespace", &NAMESPACES.object(None, &home)).await?;
            vanishes(&home, timeout, context).await?;
        }
        for node in &self.nodes {
            label(node, None, context).await?;
        }
        Ok(())
    }
}

/// Removes the operator, but never a KataConfig, which by now would be somebody else's; whether it is removed.
async fn remove_operator(context: &mut Context<'_, '_>) -> Result<bool, Failure> {
    let kata = Kata::read(&context.api).await?;
    match uninstall::operator::plan(&kata, context).await? {
        Ok(Some(removal)) => removal.run(context).await.map(|()| true),
        Ok(None) => Ok(true),
        Err(refusal) => refusal.print(context).map(|_refused| false),
    }
}

/// Waits until a namespace is gone.
async fn vanishes(
    namespace: &str,
    timeout: Duration,
    context: &Context<'_, '_>,
) -> Result<(), Failure> {
    let end = Instant::now() + timeout;
    loop {
        let read = context.api.get::<Value>(NAMESPACES, None, namespace).await?;
        if !matches!(read, Read::Known(Some(_))) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(stays(&format!("namespace {namespace}"), context));
        }
        tokio::time::sleep_until(Instant::now() + LOOK).await;
    }
}

fn stays(what: &str, context: &Context<'_, '_>) -> Failure {
    let text = format!(
        "{what} is still there: `kubectl kata status` says why; then run the command again"
    );
    Failure::Refused {
        what: "remove what this command made".to_owned(),
        message: context.marked(&text),
    }
}

/// Deletes an object, which may be gone.
pub(super) async fn delete(
    context: &Context<'_, '_>,
    kind: &str,
    path: &str,
) -> Result<(), Failure> {
    let what = format!("delete {kind} {}", path.rsplit('/').next().unwrap_or_default());
    match context.api.write(&what, http::Method::DELETE, path, None, &Value::Null).await {
        Ok(_) => Ok(()),
        Err(Trouble::Status(status)) if status.code == 404 => Ok(()),
        Err(trouble) => Err(trouble.failure(&what)),
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
pub(super) async fn label(
    node: &str,
    value: Option<&str>,
    context: &Context<'_, '_>,
) -> Result<(), Failure> {
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

/// Creates the namespace.
pub(super) async fn create_namespace(context: &Context<'_, '_>) -> Result<(), Failure> {
    let body = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAME, "labels": {names::ACCEPT_LABEL: "pods"}},
    });
    create(context, "namespace", &NAMESPACES.path(None), &body).await
}

/// Creates a pod in it.
pub(super) async fn create_pod(context: &Context<'_, '_>, pod: &Value) -> Result<(), Failure> {
    create(context, "pod", &PODS.path(Some(NAME)), pod).await
}

async fn create(
    context: &Context<'_, '_>,
    kind: &str,
    path: &str,
    body: &Value,
) -> Result<(), Failure> {
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("create {kind} {name}");
    let created = context.api.write(&what, http::Method::POST, path, None, body).await;
    created.map(drop).map_err(|trouble| trouble.denied(&what, &format!("create {kind}s")))
}

/// Runs a verb that an interrupt does not end, so that what was begun is removed.
pub(super) async fn undisturbed<R>(
    context: &mut Context<'_, '_>,
    verb: impl AsyncFnOnce(&mut Context<'_, '_>) -> R,
) -> R {
    let (_never, interrupt) = tokio::sync::watch::channel(false);
    aside(context, interrupt, verb).await
}
