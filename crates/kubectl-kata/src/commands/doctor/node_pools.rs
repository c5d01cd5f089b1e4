//! Whether the NodePools of Karpenter that are for nodes with Kata have what `pool` prints. Reads NodePools where the
//! cluster serves them; no test runs Karpenter.

use std::collections::BTreeMap;

use kata_api::{Code, KataConfig, names};
use kata_plan::selector::is_of_labeller;
use serde::Deserialize;

use super::super::pool::Needs;
use super::check;
use crate::Context;
use crate::api::{Read, Scope};
use crate::document::{Check, CheckResult};
use crate::failure::Failure;
use crate::human;
use crate::node_labels::Labels;
use crate::resource::NODE_POOLS;

/// A NodePool, as far as its nodes are described (karpenter.sh/v1).
#[derive(Deserialize)]
struct NodePool {
    metadata: Named,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    template: Template,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Labelled,
    spec: TemplateSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labelled {
    labels: Labels,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TemplateSpec {
    startup_taints: Vec<StartupTaint>,
    requirements: Vec<Requirement>,
}

/// A requirement with one value is a label of each node, too.
#[derive(Deserialize)]
struct Requirement {
    key: String,
    #[serde(default)]
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
struct StartupTaint {
    key: String,
}

impl Template {
    /// The labels of each node.
    fn labels(&self) -> Labels {
        let single = self.spec.requirements.iter().filter(|it| it.operator == "In");
        let required = single.filter_map(|it| match it.values.as_slice() {
            [value] => Some((it.key.clone(), value.clone())),
            _ => None,
        });
        required.chain(self.metadata.labels.clone()).collect()
    }
}

/// The check; `None` if the cluster has no Karpenter, or no NodePool is for nodes with Kata.
pub(super) async fn node_pools(
    config: &KataConfig,
    context: &Context<'_, '_>,
) -> Result<Option<Check>, Failure> {
    let code = Code::NodePoolUnprepared;
    let pools = match context.api.list::<NodePool>(NODE_POOLS, Scope::default()).await? {
        Read::Known(pools) => pools,
        Read::NotServed => return Ok(None),
        Read::Forbidden => {
            let text = format!("you may not list {}", NODE_POOLS.qualified());
            return Ok(Some(check(code, CheckResult::Skipped, text)));
        }
    };
    let runtimes = config.spec.effective_runtimes();
    let classes: Vec<String> = runtimes.iter().map(|it| names::class_label(&it.name)).collect();
    // Which runtimes a pool is for, its labels say.
    let Ok(needs) = Needs::of(config.spec.kata_config_pool_selector.as_ref(), &[]) else {
        return Ok(None);
    };
    let lacking: BTreeMap<&str, Vec<String>> = pools
        .iter()
        .filter(|pool| is_for_kata(pool, &needs, &classes))
        .map(|pool| (pool.metadata.name.as_str(), lacks(pool, &needs, &classes)))
        .collect();
    if lacking.is_empty() {
        return Ok(None);
    }
    let unprepared: Vec<String> = lacking
        .iter()
        .filter(|(_, lacks)| !lacks.is_empty())
        .map(|(name, lacks)| format!("NodePool {name} lacks {}", lacks.join(" and ")))
        .collect();
    Ok(Some(if unprepared.is_empty() {
        let text = format!("{} prepared for Kata", human::count(lacking.len(), "NodePool"));
        check(code, CheckResult::Ok, text)
    } else {
        check(code, CheckResult::Warning, unprepared.join("; "))
    }))
}

/// Whether the KataConfig selects the nodes of a pool by its labels, or the pool promises Kata.
fn is_for_kata(pool: &NodePool, needs: &Needs, classes: &[String]) -> bool {
    let labels = pool.spec.template.labels();
    let is_selected = !needs.own.is_empty()
        && needs.own.iter().all(|(key, value)| labels.get(key) == Some(value));
    is_selected || needs.promised.keys().chain(classes).any(|key| labels.contains_key(key))
}

/// What the template of a pool lacks.
fn lacks(pool: &NodePool, needs: &Needs, classes: &[String]) -> Vec<String> {
    let template = &pool.spec.template;
    let labels = template.labels();
    // Karpenter, the cloud and labellers set the others.
    let of_template = needs.of_kubelet();
    let mut missing: Vec<String> = of_template
        .iter()
        .filter(|(key, _)| !key.starts_with("karpenter.") && !is_of_labeller(key))
        .chain(&needs.promised)
        .filter(|(key, value)| labels.get(*key) != Some(*value))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !classes.iter().any(|key| labels.contains_key(key)) {
        missing.push(format!("{}CLASS={}", names::CLASS_LABEL_PREFIX, names::CLASS_LABEL_SERVED));
    }
    let has_taint = template
        .spec
        .startup_taints
        .iter()
        .any(|taint| names::STARTUP_TAINTS.contains(&taint.key.as_str()));
    let of_labels = match missing.as_slice() {
        [] => None,
        [label] => Some(format!("the label {label}")),
        labels => Some(format!("the labels {}", labels.join(", "))),
    };
    let taint = (!has_taint).then(|| format!("the startup taint {}", names::STARTUP_TAINT));
    of_labels.into_iter().chain(taint).collect()
}
