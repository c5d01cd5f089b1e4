//! Reads the pods that a decision asks for and no cache contains: the sandboxed ones, and those that block a
//! drain. This module decides nothing.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kata_plan::{DrainBlocker, Kind, Observed, PodScope, validate};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::{Client, Endpoint};
use crate::error::chain;

/// Reads the pods whose RuntimeClass is wanted, past any cache.
pub(super) async fn read_pods(
    client: &Client,
    scope: &PodScope,
    is_wanted: impl Fn(&str) -> bool,
    mut each: impl FnMut(&Pod),
) -> Observed<()> {
    let (what, selector) = match scope {
        PodScope::Cluster => ("pods".to_owned(), None),
        PodScope::Node(node) => (format!("pods on {node}"), Some(format!("spec.nodeName={node}"))),
    };
    let mut parse_error = None;
    let endpoint = Endpoint::of(Kind::Pod);
    let listed = client.list(&endpoint, selector.as_deref(), |text| {
        // Most pods name no RuntimeClass, and are not parsed as a whole.
        let pod = match serde_json::from_str::<PodRuntimeClass>(text) {
            Ok(pod) if !pod.spec.runtime_class_name.as_deref().is_some_and(&is_wanted) => {
                return;
            }
            _ => serde_json::from_str::<Pod>(text),
        };
        match pod {
            Ok(pod) => each(&pod),
            Err(error) => parse_error = Some(with_name(text, &error)),
        }
    });
    match (listed.await, parse_error) {
        (Err(error), _) => Observed::unknown(what, chain(&error)),
        (Ok(_), Some(error)) => Observed::unknown(what, error),
        (Ok(_), None) => Observed::Known(()),
    }
}

/// Reads the pods that block the drain of a node, past any cache.
pub(super) async fn read_drain_blockers(
    client: &Client,
    node: &str,
) -> Observed<Vec<DrainBlocker>> {
    let (mut pods, mut budgets, mut parse_error) = (Vec::new(), Vec::new(), None);
    let what = format!("the pods that block the drain of {node}");
    let selector = format!("spec.nodeName={node}");
    let listed = client
        .list(&Endpoint::of(Kind::Pod), Some(&selector), |text| {
            parse_into(text, &mut pods, &mut parse_error);
        })
        .await;
    if let Err(error) = listed {
        return Observed::unknown(what, chain(&error));
    }
    let listed = client
        .list(&Endpoint::of(Kind::PodDisruptionBudget), None, |text| {
            parse_into::<PodDisruptionBudget>(text, &mut budgets, &mut parse_error);
        })
        .await;
    match (listed, parse_error) {
        (Err(error), _) => Observed::unknown(what, chain(&error)),
        (Ok(_), Some(error)) => Observed::unknown(what, error),
        (Ok(_), None) => Observed::Known(validate::drain_blockers(&pods, &budgets)),
    }
}

fn parse_into<T: DeserializeOwned>(
    text: &str,
    items: &mut Vec<T>,
    parse_error: &mut Option<String>,
) {
    match serde_json::from_str(text) {
        Ok(item) => items.push(item),
        Err(error) => *parse_error = Some(with_name(text, &error)),
    }
}

/// An error with the name of the object that cannot be parsed.
fn with_name(text: &str, error: &serde_json::Error) -> String {
    let Named { metadata: Name { namespace, name } } =
        serde_json::from_str(text).unwrap_or_default();
    let error = error.to_string();
    let error = error.split(" at line ").next().unwrap_or_default();
    format!("{namespace}/{name}: {error}")
}

/// The name of an object.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Name {
    namespace: String,
    name: String,
}

/// The RuntimeClass of a pod.
#[derive(Deserialize)]
struct PodRuntimeClass {
    #[serde(default)]
    spec: PodRuntimeClassSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PodRuntimeClassSpec {
    #[serde(default)]
    runtime_class_name: Option<String>,
}
