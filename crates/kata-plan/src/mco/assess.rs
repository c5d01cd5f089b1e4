//! From a snapshot to the [`Assessment`] of a cluster whose nodes the Machine Config Operator changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kata_api::node_task::ForeignChanges;
use kata_api::{Code, KataConfig, KataNode, MachineConfigPool, Natural, names};

use super::desired::{self, Desired};
use super::mode::Mode;
use super::pools::Pools;
use super::{changes, installed, node, rendered, selection};
use crate::assessment::{Assessment, Candidates, KataState, NodeAssessment};
use crate::configs::config_ref;
use crate::draft::Draft;
use crate::leaving;
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::reading::{Reading, Unreadable};
use crate::report::Finding;
use crate::selection::{Selected, eligible_text, selector_text};
use crate::snapshot::{NodeFacts, Snapshot};

/// Assesses a cluster for its active KataConfig, and plans the steps of this back end.
pub(crate) fn assess(
    snapshot: &Snapshot,
    config: &KataConfig,
) -> Result<(Assessment, Draft), Unreadable> {
    let (nodes, pools) = read(snapshot, config)?;
    let mut assessment = Assessment::new(snapshot, config);
    let mode = selection::mode(snapshot, &nodes, &pools);
    assessment.own_node_label = (mode.node_label(), "");
    assessment.candidates = candidates(config);
    assessment.findings.extend(config_findings(config, mode));
    let mut ignored = Vec::new();
    // While Kata is being removed, a wrong configuration of its installation does not matter.
    let findings = if assessment.deleting { &mut ignored } else { &mut assessment.findings };
    let desired = desired::desired(snapshot, config, mode, findings);
    let pools = Pools {
        snapshot,
        mode,
        targeted: pools
            .get(mode.pool())
            .is_some_and(|pool| rendered::targets(snapshot, pool, mode.pool())),
        behind: behind(snapshot, &desired),
        desired,
        classes: Arc::new(assessment.own_class_names()),
        pools,
    };
    add_nodes(&pools, &nodes, &mut assessment);
    assessment.find_departed(snapshot, |_| true);
    assessment.removal_is_committed = assessment.deleting
        && match mode {
            Mode::Pool => !assessment.nodes.iter().any(|node| node.joined),
            Mode::Compact => installed::machine_configs(snapshot).next().is_none(),
        };
    let (changes, is_clean) = changes::changes(&pools, &assessment);
    assessment.is_clean = is_clean;
    Ok((assessment, changes))
}

fn add_nodes(pools: &Pools<'_>, nodes: &[&Arc<NodeFacts>], assessment: &mut Assessment) {
    let kata_nodes: BTreeMap<&str, &Arc<KataNode>> = pools
        .snapshot
        .kata_nodes
        .known()
        .into_iter()
        .flatten()
        .map(|kata_node| (kata_node.spec.node_name.as_str(), kata_node))
        .collect();
    let mut labelled_by_others = Vec::new();
    let unreadable_pools = pools.snapshot.unreadable(Kind::MachineConfigPool);
    for facts in nodes {
        let previous = kata_nodes.get(facts.name.as_str()).copied();
        let (config, mode) = (&assessment.config, pools.mode);
        let select = |keeps_unmatched| {
            selection::select(config, mode, facts, keeps_unmatched, &pools.pools, &unreadable_pools)
        };
        let has_kata = facts.labels.contains_key(names::KATA_ROLE_LABEL)
            && facts.kata_state(pools.snapshot) != KataState::Absent;
        let (selected, leaves_at) = leaving::keep_or_leave(
            assessment,
            facts,
            previous.map(AsRef::as_ref),
            has_kata,
            select,
            |a, b| matches!(a, Selected::Yes) == matches!(b, Selected::Yes),
        );
        let selected = match selected {
            Selected::Yes => true,
            Selected::No => false,
            Selected::Excluded(finding) => {
                if !assessment.deleting {
                    assessment.findings.push(finding);
                }
                false
            }
        };
        assessment.selected += usize::from(selected);
        if let Some(node) = node::assess(pools, assessment, facts, previous, selected) {
            assessment.push(NodeAssessment { leaves_at, ..node });
        } else if facts.has_runtime_label() {
            labelled_by_others.push(facts.name.as_str());
        }
    }
    assessment.report_foreign_labels(&labelled_by_others);
}

fn candidates(config: &KataConfig) -> Candidates {
    let spec = &config.spec;
    let conditions = [
        Some(format!("has the label {}", names::WORKER_ROLE_LABEL)),
        eligible_text(spec),
        selector_text(spec),
    ];
    Candidates {
        conditions: conditions.into_iter().flatten().collect(),
        exception: "",
        has_selector: selector_text(spec).is_some(),
        by_runtime: false,
        fix: "Add a node that meets these conditions, or add the missing labels to nodes.",
    }
}

type Reads<'a> = (Vec<&'a Arc<NodeFacts>>, BTreeMap<&'a str, &'a MachineConfigPool>);

/// The reads that every decision about a node needs.
fn read<'a>(snapshot: &'a Snapshot, config: &KataConfig) -> Result<Reads<'a>, Unreadable> {
    let mut reading = Reading::new(snapshot, config);
    reading.require(&snapshot.kata_nodes);
    reading.require(&snapshot.runtime_classes);
    reading.require(&snapshot.container_runtime_configs);
    for name in names::MACHINE_CONFIGS {
        if let Some(observed) = snapshot.machine_configs.get(name) {
            reading.require(observed);
        }
    }
    reading.require(&snapshot.nodes);
    reading.require(&snapshot.pools);
    reading.finish()?;
    let pools = snapshot.pools.known().into_iter().flatten();
    let pools: BTreeMap<&str, &MachineConfigPool> =
        pools.map(|pool| (rendered::pool_name(pool), pool)).collect();
    if !pools.contains_key(names::WORKER_POOL) {
        let finding = Finding::new(
            Code::MachineConfigOperatorNotReady,
            ObjectRef::named(Kind::MachineConfigPool, names::WORKER_POOL),
            "the MachineConfigPool worker does not exist; nothing is changed meanwhile".to_owned(),
        );
        return Err(Unreadable { findings: vec![finding] });
    }
    let mut nodes: Vec<&Arc<NodeFacts>> = snapshot.nodes.known().into_iter().flatten().collect();
    nodes.sort_by(|a, b| Natural(&a.name).cmp(&Natural(&b.name)));
    Ok((nodes, pools))
}

/// The rendered MachineConfigs that contain Kata and differ from the desired content.
fn behind<'a>(snapshot: &'a Snapshot, desired: &Desired) -> BTreeSet<&'a str> {
    snapshot
        .machine_configs
        .iter()
        .filter(|(name, config)| {
            name.starts_with(names::mco::RENDERED_PREFIX)
                && rendered::content(snapshot, name) == rendered::Content::Has
                && matches!(config, Observed::Known(Some(config))
                    if desired.is_behind(snapshot, config))
        })
        .map(|(name, _)| name.as_str())
        .collect()
}

/// The findings about a KataConfig's spec that apply only to this back end.
fn config_findings(config: &KataConfig, mode: Mode) -> Vec<Finding> {
    let subject = config_ref(config);
    let spec = &config.spec;
    let mut findings = Vec::new();
    let selective = spec.check_node_eligibility
        || spec.kata_config_pool_selector.as_ref().is_some_and(|selector| {
            selector.match_labels.as_ref().is_some_and(|labels| !labels.is_empty())
                || selector.match_expressions.as_ref().is_some_and(|list| !list.is_empty())
        });
    let rollout = spec.rollout.as_ref().filter(|_| mode == Mode::Compact);
    if let Some(rollout) = rollout
        && (rollout.paused || rollout.max_unavailable.is_some())
    {
        findings.push(Finding::new(
            Code::RolloutNotHonoured,
            subject.clone(),
            "spec.rollout is not applied to the pool master; paused delays only changes that have not begun"
                .to_owned(),
        ));
    }
    if spec.rollout.as_ref().is_some_and(|it| it.foreign_changes != ForeignChanges::Wait) {
        let message = "spec.rollout.foreignChanges is not applied: the Machine Config Operator restarts the nodes"
            .to_owned();
        findings.push(Finding::new(Code::SettingsNotHonoured, subject.clone(), message));
    }
    if spec.provided_nodes.is_some() {
        let message = "spec.providedNodes is not applied: the Machine Config Operator installs Kata on all nodes \
                       that the KataConfig selects"
            .to_owned();
        findings.push(Finding::new(Code::SettingsNotHonoured, subject.clone(), message));
    }
    if spec.take_over.is_some() {
        let message =
            "spec.takeOver is not applied: the Machine Config Operator installs Kata".to_owned();
        findings.push(Finding::new(Code::SettingsNotHonoured, subject.clone(), message));
    }
    for runtime in &spec.runtimes {
        let name = &runtime.name;
        let fields = [
            (runtime.config.is_some(), "config", "with the configuration of its extension"),
            (runtime.install_on.is_some(), "installOn", "with all its runtimes on each node"),
        ];
        findings.extend(fields.iter().filter(|(is_set, ..)| *is_set).map(|(_, field, how)| {
            let message = format!(
                "spec.runtimes[{name}].{field} is not applied: the Machine Config Operator installs Kata {how}"
            );
            Finding::new(Code::SettingsNotHonoured, subject.clone(), message)
        }));
    }
    if mode == Mode::Compact && selective {
        findings.push(Finding::new(
            Code::SelectorIgnored,
            subject,
            "the selection of nodes is ignored: the control plane's nodes are the only workers, so Kata is \
             installed on the whole pool master"
                .to_owned(),
        ));
    }
    findings
}
