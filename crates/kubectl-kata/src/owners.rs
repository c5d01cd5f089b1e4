//! What makes pods again: their controllers, by the name by which people scale them.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use crate::api::Api;
use crate::failure::Failure;
use crate::human;
use crate::resource::REPLICA_SETS;

/// How many are named.
const NAMES: usize = 5;

/// A controller, such as the Deployment web in the namespace shop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Controller {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Controller {
    /// `Deployment shop/web`.
    pub(crate) fn named(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    /// `deployment/web`, as kubectl takes it.
    pub(crate) fn argument(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }

    /// What ends that it makes pods.
    fn command(&self) -> String {
        let verb = match self.kind.as_str() {
            "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => "scale",
            _ => "delete",
        };
        let zero = if verb == "scale" { " --replicas=0" } else { "" };
        format!("`kubectl {verb} -n {} {}{zero}`", self.namespace, self.argument())
    }

    /// The controller of a pod: that of its ReplicaSet, if that has one and may be seen.
    pub(crate) async fn of(
        api: &Api,
        namespace: &str,
        kind: &str,
        name: &str,
    ) -> Result<Self, Failure> {
        let namespace = namespace.to_owned();
        if kind == "ReplicaSet" {
            let set = api.glance::<Value>(REPLICA_SETS, Some(&namespace), name).await?;
            let set = set.known().flatten().unwrap_or_default();
            let mut owners = set["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let above = owners.find(|owner| owner["controller"] == true);
            let text = |value: &Value| value.as_str().map(str::to_owned);
            if let Some(owner) = above
                && let (Some(kind), Some(name)) = (text(&owner["kind"]), text(&owner["name"]))
            {
                return Ok(Self { kind, namespace, name });
            }
        }
        Ok(Self { kind: kind.to_owned(), namespace, name: name.to_owned() })
    }
}

/// The controllers of pods, each once; pods are given as namespace and owner, and the owner as `ReplicaSet web-5d4`.
/// A Node is none: the pods that it owns are the kubelet's own.
pub(crate) async fn controllers<'a>(
    api: &Api,
    pods: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<Controller>, Failure> {
    let mut owners: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (namespace, owner) in pods {
        if let Some((kind, name)) = owner.split_once(' ').filter(|(kind, _)| *kind != "Node") {
            owners.insert((namespace, name), kind);
        }
    }
    let all: Vec<Result<Controller, Failure>> = stream::iter(owners)
        .map(|((namespace, name), kind)| Controller::of(api, namespace, kind, name))
        .buffered(8)
        .collect()
        .await;
    let all: BTreeSet<Controller> = all.into_iter().collect::<Result<_, _>>()?;
    Ok(all.into_iter().collect())
}

/// `Deployment shop/web, StatefulSet shop/db and 3 more`.
pub(crate) fn list(controllers: &[Controller]) -> String {
    let names: Vec<String> = controllers.iter().map(Controller::named).collect();
    human::list(&names, NAMES)
}

/// How to end that they make pods; `others` says whether there are pods that nothing makes again.
pub(crate) fn fix(controllers: &[Controller], others: bool) -> Option<String> {
    if controllers.is_empty() {
        return None;
    }
    let commands: Vec<String> = controllers.iter().map(Controller::command).collect();
    let others = if others { "; delete the other pods" } else { "" };
    Some(format!(
        "Scale down or delete what makes these pods ({}): {}; or take runtimeClassName out of its pod template{others}",
        list(controllers),
        human::list(&commands, NAMES)
    ))
}
