//! Whether the NodePools of Karpenter that are for nodes with Kata have what `pool` prints. Reads NodePools where the
//! cluster serves them; no test runs Karpenter.

use std::collections::BTreeMap;

use kata_api::platform::Platform;
use kata_api::{Code, KataConfig, names};
use kata_plan::selector::{describes_node, is_of_labeller};
use serde::Deserialize;

use super::super::pool::promised;
use super::check;
use crate::Context;
use crate::api::{Read, Scope};
use crate::cluster::platform;
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
    // There the RuntimeClasses select other labels, which a MachineSet need not promise.
    if platform(None, &context.api).await? == Platform::Openshift {
        return Ok(None);
    }
    let runtimes = config.spec.effective_runtimes();
    let selector = config.spec.kata_config_pool_selector.as_ref();
    let needs = Needs {
        selected: selector.and_then(|it| it.match_labels.clone()).unwrap_or_default(),
        promised: promised(),
        classes: runtimes.iter().map(|it| names::class_label(&it.name)).collect(),
    };
    let lacking: BTreeMap<&str, Vec<String>> = pools
        .iter()
        .filter(|pool| needs.are_of(pool))
        .map(|pool| (pool.metadata.name.as_str(), needs.missing_in(pool)))
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

/// What the nodes of a pool need.
struct Needs {
    /// The labels by which the KataConfig selects nodes.
    selected: Labels,
    /// The labels that every RuntimeClass selects.
    promised: Labels,
    /// The labels of the RuntimeClasses, of which a pool has one or more.
    classes: Vec<String>,
}

impl Needs {
    /// Whether the KataConfig selects the nodes of a pool by its labels, or the pool promises Kata.
    fn are_of(&self, pool: &NodePool) -> bool {
        let labels = pool.spec.template.labels();
        let is_selected = !self.selected.is_empty()
            && self.selected.iter().all(|(key, value)| labels.get(key) == Some(value));
        is_selected || self.promised.keys().chain(&self.classes).any(|key| labels.contains_key(key))
    }

    /// What the template of a pool lacks.
    fn missing_in(&self, pool: &NodePool) -> Vec<String> {
        let template = &pool.spec.template;
        let labels = template.labels();
        // Karpenter, the cloud and labellers set the others.
        let is_of_template = |key: &str| {
            !describes_node(key) && !is_of_labeller(key) && !key.starts_with("karpenter.")
        };
        let mut missing: Vec<String> = self
            .selected
            .iter()
            .filter(|(key, _)| is_of_template(key))
            .chain(&self.promised)
            .filter(|(key, value)| labels.get(*key) != Some(*value))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        if !self.classes.iter().any(|key| labels.contains_key(key)) {
            let served = |key: &String| format!("{key}={}", names::CLASS_LABEL_SERVED);
            let classes: Vec<String> = self.classes.iter().map(served).collect();
            missing.push(classes.join(" or "));
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
}
