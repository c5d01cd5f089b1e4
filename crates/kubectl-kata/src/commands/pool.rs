//! `pool`: what the template of a node pool needs, so that an autoscaler makes nodes for sandboxed pods and no pod comes
//! before Kata. It reads the KataConfig and prints; no test runs an autoscaler.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::kata_config::RuntimeSpec;
use kata_api::names;
use kata_api::platform::Platform;
use kata_plan::selector::{describes_node, is_well_known};
use serde_json::{Value, json};

use super::expect_output;
use crate::Context;
use crate::arguments::{PoolArguments, PoolKind};
use crate::cluster::{Kata, operator_quietly, platform};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::node_labels::{Labels, text};
use crate::printer::yaml;
use crate::refusal::Refusal;
use crate::settings::Output;

pub(crate) async fn run(
    arguments: &PoolArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table, Output::Json, Output::Yaml], "pool")?;
    let kata = Kata::read(&context.api).await?;
    let config = kata.active_or_not_found("make a node pool for")?;
    let deployment = operator_quietly(&context.api).await?.known().flatten();
    if platform(deployment.as_ref(), &context.api).await? == Platform::Openshift {
        return Refusal::new(
            "on OpenShift a MachineSet needs no labels but those of the selector",
            "set the labels of spec.kataConfigPoolSelector in spec.template.spec.metadata.labels of the MachineSet",
        )
        .print(context);
    }
    let runtimes = chosen(kata.runtimes(), arguments.class.as_deref())?;
    let needs = match Needs::of(config.spec.kata_config_pool_selector.as_ref(), &runtimes) {
        Ok(needs) => needs,
        Err(refusal) => return refusal.print(context),
    };
    let template = needs.template(arguments.kind);
    let head = context.marked(&format!("# {}", template_heading(arguments.kind)));
    if !context.printer.document(context.settings.output, &template)? {
        context.printer.line(&head)?;
        context.printer.raw(&yaml(&template)?)?;
    }
    for note in needs.notes(arguments.kind) {
        context.printer.say(&note)?;
    }
    if context.settings.output != Output::Table && kata.is_simulated() {
        // The document is pasted as it is.
        context.printer.say("This cluster is simulated.")?;
    }
    Ok(Exit::Fine)
}

/// The runtimes of the KataConfig that the pool is for: all, or the one of `class`.
fn chosen(runtimes: Vec<RuntimeSpec>, class: Option<&str>) -> Result<Vec<RuntimeSpec>, Failure> {
    let Some(class) = class else { return Ok(runtimes) };
    let names: Vec<String> = runtimes.iter().map(|runtime| runtime.name.clone()).collect();
    let found: Vec<RuntimeSpec> = runtimes.into_iter().filter(|it| it.name == class).collect();
    if found.is_empty() {
        let known = human::list(&names, 5);
        return Err(Failure::NotFound(format!(
            "the KataConfig has no RuntimeClass {class}; it has {known}"
        )));
    }
    Ok(found)
}

/// The heading of a template: what its parts belong to.
fn template_heading(kind: PoolKind) -> &'static str {
    match kind {
        PoolKind::Karpenter => "spec.template of a NodePool (karpenter.sh/v1)",
        PoolKind::Eks => {
            "labels and taints of a managed node group, and tags of its Auto Scaling group"
        }
        PoolKind::Gke => "labels and taints of a node pool",
        PoolKind::Aks => "labels and initialization taints of a node pool",
        PoolKind::Capi => {
            "a MachineDeployment and its KubeadmConfigTemplate (bootstrap.cluster.x-k8s.io/v1beta1)"
        }
    }
}

/// The labels that every RuntimeClass of the operator selects.
pub(super) fn promised() -> Labels {
    let verified = (names::RUNTIME_LABEL.to_owned(), names::RUNTIME_LABEL_VERIFIED.to_owned());
    let claimed = (names::CLAIM_LABEL.to_owned(), names::CLAIMED.to_owned());
    [verified, claimed].into()
}

/// What the nodes of a pool need, so that they get Kata and pods of the RuntimeClasses come to them.
struct Needs {
    /// The labels by which the KataConfig selects nodes, and those that the runtimes ask for.
    own: Labels,
    /// The labels that the RuntimeClasses select. The operator removes them from a new node until it has Kata.
    promised: Labels,
    /// The keys of the selectors' expressions, for which no label is known.
    expressions: Vec<String>,
}

impl Needs {
    fn of(selector: Option<&LabelSelector>, runtimes: &[RuntimeSpec]) -> Result<Self, Refusal> {
        let install_on = runtimes.iter().filter_map(|runtime| runtime.install_on.as_ref());
        let selectors: Vec<&LabelSelector> = selector.into_iter().chain(install_on).collect();
        let selected = selectors.iter().flat_map(|selector| selector.match_labels.iter().flatten());
        let wanted = selected.chain(runtimes.iter().flat_map(|runtime| &runtime.node_selector));
        let mut own = Labels::new();
        for (key, value) in wanted {
            let other = own.insert(key.clone(), value.clone());
            if let Some(other) = other.filter(|other| other != value) {
                return Err(Refusal::new(
                    format!(
                        "the RuntimeClasses need different nodes: {key}={other} and {key}={value}"
                    ),
                    "add --class NAME, and make a pool for each",
                ));
            }
        }
        let served = runtimes.iter().map(|runtime| {
            (names::class_label(&runtime.name), names::CLASS_LABEL_SERVED.to_owned())
        });
        let expressions = selectors.iter().flat_map(|it| it.match_expressions.iter().flatten());
        Ok(Self {
            own,
            promised: promised().into_iter().chain(served).collect(),
            expressions: expressions.map(|expression| expression.key.clone()).collect(),
        })
    }

    /// The labels that a kubelet may set on its node.
    fn of_kubelet(&self) -> Labels {
        let labels = self.own.iter().filter(|(key, _)| !is_well_known(key));
        labels.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn template(&self, kind: PoolKind) -> Value {
        let mut all = self.own.clone();
        all.extend(self.promised.clone());
        let of_kubelet = self.of_kubelet();
        let key = match kind {
            PoolKind::Karpenter => names::STARTUP_TAINT,
            PoolKind::Eks | PoolKind::Gke | PoolKind::Aks | PoolKind::Capi => {
                names::AUTOSCALER_STARTUP_TAINT
            }
        };
        let taints = json!([{"key": key, "value": "true", "effect": "NoSchedule"}]);
        match kind {
            PoolKind::Karpenter => {
                json!({"metadata": {"labels": all}, "spec": {"startupTaints": taints}})
            }
            PoolKind::Eks => {
                let tag = |(key, value): (&String, &String)| {
                    (format!("k8s.io/cluster-autoscaler/node-template/label/{key}"), value.clone())
                };
                let tags: BTreeMap<String, String> = all.iter().map(tag).collect();
                json!({
                    "labels": of_kubelet,
                    "taints": [{"key": key, "value": "true", "effect": "NO_SCHEDULE"}],
                    "tags": tags,
                })
            }
            PoolKind::Gke => json!({"labels": all, "taints": taints}),
            PoolKind::Aks => json!({
                "nodeLabels": of_kubelet,
                "nodeInitializationTaints": [format!("{key}=true:NoSchedule")],
            }),
            PoolKind::Capi => json!({
                "machineDeployment": {"metadata": {"annotations": {
                    "capacity.cluster-autoscaler.kubernetes.io/labels": text(&all, ","),
                    "capacity.cluster-autoscaler.kubernetes.io/taints": format!("{key}=true:NoSchedule"),
                }}},
                "kubeadmConfigTemplate": {"spec": {"template": {"spec": {"joinConfiguration": {
                    "nodeRegistration": {
                        "taints": taints,
                        "kubeletExtraArgs": {"node-labels": text(&of_kubelet, ",")},
                    },
                }}}}},
            }),
        }
    }

    /// What the template cannot have, and what to do about that.
    fn notes(&self, kind: PoolKind) -> Vec<String> {
        let mut notes = Vec::new();
        let own = || self.own.keys();
        let of_nodes: Vec<&String> = own().filter(|key| describes_node(key)).collect();
        if !of_nodes.is_empty() {
            let keys = human::list(&of_nodes, 5);
            notes.push(format!(
                "These labels describe the nodes: {keys}. Choose a pool whose nodes have them, and do not set them by hand: \
                 the KataConfig selects no other nodes."
            ));
        }
        let is_restricted = |key: &&String| is_well_known(key) && !describes_node(key);
        let restricted: Vec<&String> = own().filter(is_restricted).collect();
        if !restricted.is_empty() && kind != PoolKind::Karpenter {
            let keys = human::list(&restricted, 5);
            notes.push(format!(
                "A kubelet may not set these labels on its node: {keys}. Label the nodes yourself, or let the tool that makes \
                 them do it: the KataConfig selects no other nodes."
            ));
        }
        match kind {
            PoolKind::Aks => notes.push(
                "On AKS only the node pool can remove its labels, and the operator could not remove a label that is not true \
                 yet. So the pool sets only its own labels: keep at least one node in it, since the autoscaler cannot scale it \
                 from zero."
                    .to_owned(),
            ),
            PoolKind::Gke => notes.push(format!(
                "A kubelet may not set labels with the prefix {}: check that the node pool accepts them.",
                names::CLASS_LABEL_PREFIX
            )),
            PoolKind::Karpenter | PoolKind::Eks | PoolKind::Capi => {}
        }
        if !self.expressions.is_empty() {
            let keys = human::list(&self.expressions, 5);
            notes.push(format!(
                "The selectors have expressions: add labels that match them, with the keys {keys}."
            ));
        }
        notes
    }
}
