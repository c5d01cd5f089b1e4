//! What a node that joins a running cluster is like, as words of a script or of a command line.

use std::collections::BTreeMap;

use crate::world::{AutoscalerKind, NodeGroup, Runtime, System};

/// What distinguishes a new node from the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeOptions {
    /// Its container runtime; `None` for that of its kind of cluster.
    pub runtime: Option<Runtime>,
    /// Its operating system.
    pub system: Option<System>,
    /// Handlers that it has from the beginning; `None` for those of its system.
    pub handlers: Option<Vec<String>>,
    /// Labels with which it becomes a node.
    pub labels: BTreeMap<String, String>,
    /// Keys and effects of the taints with which it becomes a node.
    pub taints: Vec<(String, String)>,
}

impl NodeOptions {
    /// From words such as `handlers=kata,kata-qemu`, `runtime=crio` or `system=talos`.
    ///
    /// # Errors
    /// Which word is wrong, and what is allowed.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Self::default();
        for word in words {
            match word.split_once('=') {
                Some(("runtime", value)) => options.runtime = Some(value.parse()?),
                Some(("system", value)) => options.system = Some(value.parse()?),
                Some(("handlers", value)) => {
                    let valid = |name: &str| {
                        !name.is_empty()
                            && name
                                .bytes()
                                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                    };
                    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
                    if let Some(wrong) = names.iter().find(|name| !valid(name)) {
                        return Err(format!("handler {wrong:?}: give names of a-z, 0-9 and '-'"));
                    }
                    options.handlers = Some(names);
                }
                Some(("labels", value)) => options.labels = labels(value)?,
                Some(("taints", value)) => options.taints = taints(value)?,
                _ => {
                    return Err(format!(
                        "unknown option {word:?}: give handlers=NAME,NAME, runtime=NAME, system=NAME, \
                         labels=KEY=VALUE,KEY=VALUE or taints=KEY:EFFECT,KEY:EFFECT"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Labels as `KEY=VALUE,KEY=VALUE`.
fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let label = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    };
    text.split(',')
        .map(|pair| label(pair).ok_or_else(|| format!("label {pair:?}: give KEY=VALUE")))
        .collect()
}

/// Taints as `KEY:EFFECT,KEY:EFFECT`.
pub(super) fn taints(text: &str) -> Result<Vec<(String, String)>, String> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let taint = |pair: &str| {
        let (key, effect) = pair.split_once(':')?;
        let is_valid = !key.is_empty() && EFFECTS.contains(&effect);
        is_valid.then(|| (key.to_owned(), effect.to_owned()))
    };
    let wrong =
        |pair: &str| format!("taint {pair:?}: give KEY:EFFECT, with one of {}", EFFECTS.join(", "));
    text.split(',').map(|pair| taint(pair).ok_or_else(|| wrong(pair))).collect()
}

impl NodeGroup {
    /// From words such as `autoscaler=karpenter`, `labels=KEY=VALUE` and `max-nodes=3`.
    ///
    /// # Errors
    /// Which word is wrong, and what is allowed.
    pub fn parse<'a>(name: &str, words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut autoscaler, mut startup_taints, mut fault, mut max_nodes) =
            (None, Vec::new(), None, 10);
        let mut rest = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some(("autoscaler", "karpenter")) => autoscaler = Some(AutoscalerKind::Karpenter),
                Some(("autoscaler", "cluster-autoscaler")) => {
                    autoscaler = Some(AutoscalerKind::ClusterAutoscaler);
                }
                Some(("startup-taints", value)) => startup_taints = taints(value)?,
                Some(("fault", value)) => fault = Some(value.parse()?),
                Some(("max-nodes", value)) => {
                    let number = value.parse().ok().filter(|number| (1..=100).contains(number));
                    max_nodes = number
                        .ok_or_else(|| format!("max-nodes={value}: give a number up to 100"))?;
                }
                _ => rest.push(word),
            }
        }
        let NodeOptions { runtime, system, labels, taints, .. } = NodeOptions::parse(rest)?;
        let autoscaler = autoscaler.ok_or_else(|| {
            "give autoscaler=karpenter or autoscaler=cluster-autoscaler".to_owned()
        })?;
        let name = name.to_owned();
        Ok(Self {
            name,
            autoscaler,
            labels,
            taints,
            startup_taints,
            runtime,
            system,
            fault,
            max_nodes,
        })
    }
}
