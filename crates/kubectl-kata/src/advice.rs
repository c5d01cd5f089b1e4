//! How to end the controllers of the pods that block a removal: the operator names ReplicaSets, and
//! administrators scale Deployments. What the caller may not read leaves a fix as it is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kata_api::{Code, KataConfig};

use crate::api::Api;
use crate::document::Problem;
use crate::failure::Failure;
use crate::{owners, snapshot};

/// The fixes that are known already, by message: `wait` sees the same problem many times.
#[derive(Debug, Default)]
pub(crate) struct FixCache(BTreeMap<String, String>);

/// Names the controllers of pods in the fix of the problem that these pods block the removal.
pub(crate) async fn name_controllers(
    api: &Api,
    config: Option<&KataConfig>,
    now: Timestamp,
    problems: &mut [Problem],
    known: &mut FixCache,
) {
    let Some(config) = config else { return };
    let blocks = |problem: &&mut Problem| problem.id == Code::PodsStillRunning.entry().code;
    for problem in problems.iter_mut().filter(blocks) {
        if !known.0.contains_key(&problem.message)
            && let Ok(found) = fix(api, config, now).await
        {
            let fix = found.unwrap_or_else(|| problem.fix.clone());
            known.0.insert(problem.message.clone(), fix);
        }
        if let Some(fix) = known.0.get(&problem.message) {
            problem.fix.clone_from(fix);
        }
    }
}

async fn fix(api: &Api, config: &KataConfig, now: Timestamp) -> Result<Option<String>, Failure> {
    let quiet = api.for_watches();
    if let Some(home) = api.known_home() {
        quiet.settle(home);
    }
    let assumed = snapshot::Assumed::configs(vec![config.clone()]);
    let snapshot = Box::pin(snapshot::read(&quiet, now, assumed)).await?;
    let pods = kata_plan::running_pods(&snapshot);
    let owned = pods.iter().filter_map(|pod| Some((pod.namespace.as_str(), pod.owner.as_deref()?)));
    let controllers = owners::controllers(&quiet, owned).await?;
    Ok(owners::fix(&controllers, pods.iter().any(|pod| pod.owner.is_none())))
}
