//! `pool`: what the template of a node pool needs, so that an autoscaler makes nodes for sandboxed pods and no pod comes
//! before Kata. It reads the KataConfig and prints; no test runs an autoscaler.

use std::collections::BTreeMap;

use kata_api::kata_config::RuntimeSpec;
use kata_api::names;
use kata_api::platform::Platform;
use kata_plan::selector::is_well_known;
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
use crate::resource::KATA_CONFIGS;
use crate::settings::Output;

pub(crate) async fn run(
    arguments: &PoolArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table, Output::Json, Output::Yaml], "pool")?;
    let kata = Kata::read(&context.api).await?;
    kata.configs.listed("find the KataConfig", &KATA_CONFIGS.qualified())?;
    let Some(config) = kata.active() else {
        return Err(Failure::NotFound(
            "there is no KataConfig; `kubectl kata install` creates one".to_owned(),
        ));
    };
    let deployment = operator_quietly(&context.api).await?.known().flatten();
    if platform(deployment.as_ref(), &context.api).await? == Platform::Openshift {
        return Refusal::new(
            "on OpenShift a MachineSet needs no labels but those of the selector",
            "set the labels of spec.kataConfigPoolSelector in spec.template.spec.metadata.labels of the MachineSet",
        )
        .print(context);
    }
    let runtimes = chosen(kata.runtimes(), arguments.class.as_deref())?;
    let selector = config.spec.kata_config_pool_selector.as_ref();
    let selectors =
        selector.into_iter().chain(runtimes.iter().filter_map(|it| it.install_on.as_ref()));
    let mut wanted: Vec<(String, String)> = Vec::new();
    let mut expressions = Vec::new();
    for selector in selectors {
        wanted.extend(selector.match_labels.clone().unwrap_or_default());
        expressions.extend(selector.match_expressions.iter().flatten().map(|it| it.key.clone()));
    }
    wanted.extend(runtimes.iter().flat_map(|runtime| runtime.node_selector.clone()));
    let own: Labels = wanted.iter().cloned().collect();
    if let Some((key, value)) = wanted.iter().find(|(key, value)| own.get(key) != Some(value)) {
        let other = own.get(key).map_or("", String::as_str);
        return Refusal::new(
            format!("the RuntimeClasses need different nodes: {key}={value} and {key}={other}"),
            "add --class NAME, and make a pool for each",
        )
        .print(context);
    }
    let mut promised = Labels::new();
    promised.insert(names::RUNTIME_LABEL.to_owned(), names::RUNTIME_LABEL_VERIFIED.to_owned());
    promised.insert(names::CLAIM_LABEL.to_owned(), names::CLAIMED.to_owned());
    let classes = runtimes.iter().map(|runtime| names::class_label(&runtime.name));
    promised.extend(classes.map(|key| (key, names::CLASS_LABEL_SERVED.to_owned())));
    let template = template(arguments.kind, &own, &promised);
    let head = context.marked(&format!("# {}", place(arguments.kind)));
    if !context.printer.document(context.settings.output, &template)? {
        context.printer.line(&head)?;
        context.printer.raw(&yaml(&template)?)?;
    }
    let unset: Vec<&String> = own.keys().filter(|key| is_well_known(key)).collect();
    if !unset.is_empty() {
        let keys = human::list(&unset, 5);
        context
            .printer
            .say(&format!("The kubelet may not set these labels, or sets them itself: {keys}"))?;
    }
    if arguments.kind == PoolKind::Aks {
        context.printer.say(
            "AKS lets nothing else remove the labels of a pool, so the pool cannot promise Kata: keep at least one node in it",
        )?;
    }
    if arguments.kind == PoolKind::Gke {
        let prefix = names::CLASS_LABEL_PREFIX;
        context.printer.say(&format!(
            "A kubelet may not set labels with {prefix}: the pool has to accept them"
        ))?;
    }
    if !expressions.is_empty() {
        let keys = human::list(&expressions, 5);
        context
            .printer
            .say(&format!("Add labels that match the selector's expressions, too: {keys}"))?;
    }
    Ok(Exit::Fine)
}

/// The runtimes whose RuntimeClasses the nodes are for.
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

/// Where the template goes.
fn place(kind: PoolKind) -> &'static str {
    match kind {
        PoolKind::Karpenter => "spec.template of a NodePool (karpenter.sh/v1)",
        PoolKind::Eks => {
            "labels and taints of a managed node group, and tags of its Auto Scaling group"
        }
        PoolKind::Gke => "labels and taints of a node pool",
        PoolKind::Aks => "labels and initialization taints of a node pool",
        PoolKind::Capi => "a MachineDeployment and its KubeadmConfigTemplate",
    }
}

/// What the template needs: `own` are labels that a kubelet may set, and `promised` those that the operator removes until
/// they are true.
fn template(kind: PoolKind, own: &Labels, promised: &Labels) -> Value {
    let all: Labels =
        own.iter().chain(promised).map(|(key, value)| (key.clone(), value.clone())).collect();
    let key = match kind {
        PoolKind::Karpenter => names::STARTUP_TAINT,
        _ => names::AUTOSCALER_STARTUP_TAINT,
    };
    let taints = json!([{"key": key, "value": "true", "effect": "NoSchedule"}]);
    let settable: Labels = own
        .iter()
        .filter(|(key, _)| !is_well_known(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
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
                "labels": settable,
                "taints": [{"key": key, "value": "true", "effect": "NO_SCHEDULE"}],
                "tags": tags,
            })
        }
        PoolKind::Gke => json!({"labels": all, "taints": taints}),
        PoolKind::Aks => {
            json!({"nodeLabels": settable, "nodeInitializationTaints": [format!("{key}=true:NoSchedule")]})
        }
        PoolKind::Capi => json!({
            "machineDeployment": {"metadata": {"annotations": {
                "capacity.cluster-autoscaler.kubernetes.io/labels": text(&all, ","),
                "capacity.cluster-autoscaler.kubernetes.io/taints": format!("{key}=true:NoSchedule"),
            }}},
            "kubeadmConfigTemplate": {"spec": {"template": {"spec": {"joinConfiguration": {
                "nodeRegistration": {
                    "taints": taints,
                    "kubeletExtraArgs": {"node-labels": text(&settable, ",")},
                },
            }}}}},
        }),
    }
}
