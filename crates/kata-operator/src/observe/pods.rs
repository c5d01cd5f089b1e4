//! The pods that a decision asks for, which no cache holds: the sandboxed ones, and those that hold up a
//! drain. They are read past any cache, one by one, and nothing is decided here.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kata_plan::{DrainBlocker, Kind, Observed, PodScope, validate};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Observer;
use crate::client::Endpoint;
use crate::error::chain;

impl Observer {
    /// Reads pods that name a RuntimeClass for which `wanted` holds, past any cache.
    pub(super) async fn pods(
        &self,
        scope: &PodScope,
        wanted: impl Fn(&str) -> bool,
        mut each: impl FnMut(&Pod),
    ) -> Observed<()> {
        let (what, selector) = match scope {
            PodScope::Cluster => ("pods".to_owned(), None),
            PodScope::Node(node) => {
                (format!("pods on {node}"), Some(format!("spec.nodeName={node}")))
            }
        };
        let mut broken = None;
        let endpoint = Endpoint::of(Kind::Pod);
        let listed = self.client.list(&endpoint, selector.as_deref(), |text| {
            // Most pods name no RuntimeClass; they are not worth reading as a whole.
            let pod = match serde_json::from_str::<PodGlance>(text) {
                Ok(glance) if !glance.spec.runtime_class_name.as_deref().is_some_and(&wanted) => {
                    return;
                }
                _ => serde_json::from_str::<Pod>(text),
            };
            match pod {
                Ok(pod) => each(&pod),
                Err(error) => broken = Some(error.to_string()),
            }
        });
        match (listed.await, broken) {
            (Err(error), _) => Observed::unknown(what, chain(&error)),
            (Ok(_), Some(error)) => Observed::unknown(what, error),
            (Ok(_), None) => Observed::Known(()),
        }
    }

    pub(super) async fn drain_blockers(&self, node: &str) -> Observed<Vec<DrainBlocker>> {
        let (mut pods, mut budgets, mut broken) = (Vec::new(), Vec::new(), None);
        let what = format!("what holds up the drain of {node}");
        let selector = format!("spec.nodeName={node}");
        let listed = self
            .client
            .list(&Endpoint::of(Kind::Pod), Some(&selector), |text| {
                keep(text, &mut pods, &mut broken);
            })
            .await;
        if let Err(error) = listed {
            return Observed::unknown(what, chain(&error));
        }
        let listed = self
            .client
            .list(&Endpoint::of(Kind::PodDisruptionBudget), None, |text| {
                keep::<PodDisruptionBudget>(text, &mut budgets, &mut broken);
            })
            .await;
        match (listed, broken) {
            (Err(error), _) => Observed::unknown(what, chain(&error)),
            (Ok(_), Some(error)) => Observed::unknown(what, error),
            (Ok(_), None) => Observed::Known(validate::drain_blockers(&pods, &budgets)),
        }
    }
}

fn keep<T: DeserializeOwned>(text: &str, items: &mut Vec<T>, broken: &mut Option<String>) {
    match serde_json::from_str(text) {
        Ok(item) => items.push(item),
        Err(error) => *broken = Some(error.to_string()),
    }
}

/// As much of a pod as tells whether it is worth reading.
#[derive(Deserialize)]
struct PodGlance {
    #[serde(default)]
    spec: PodGlanceSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PodGlanceSpec {
    #[serde(default)]
    runtime_class_name: Option<String>,
}
