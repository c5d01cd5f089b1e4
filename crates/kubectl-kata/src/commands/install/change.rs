//! What a new or changed KataConfig does to the nodes, as the operator will decide it.

use kata_api::kata_node::Phase;
use kata_api::{Code, KataConfig, names};
use kata_plan::{NodeFacts, NodeReport, Observed, Platform, Snapshot};
use serde_json::Value;

use crate::Context;
use crate::arguments::InstallArguments;
use crate::commands::pace;
use crate::disruption::{Disruption, field};
use crate::failure::Failure;
use crate::node_labels::{self, Labels, text};
use crate::problem;
use crate::snapshot::{self, Assumed};
use crate::style::Style;

/// What a KataConfig does to the nodes.
pub(in crate::commands) enum Change {
    /// The nodes are known.
    Known(Disruption),
    /// No node changes yet, for this reason.
    NoNode(String),
    /// The caller may not read what decides it.
    Unknown(String),
}

impl Change {
    /// What the operator decides for a new KataConfig, once the nodes have their labels.
    pub(super) async fn of_new(
        labels: &Labels,
        arguments: &InstallArguments,
        body: &Value,
        platform: Option<Platform>,
        context: &Context<'_, '_>,
    ) -> Result<Self, Failure> {
        let now = context.settings.now();
        let created: KataConfig = serde_json::from_value(body.clone())
            .map_err(|source| Failure::Answer { what: "create a KataConfig".to_owned(), source })?;
        let created = snapshot::fresh(created, now);
        let assumed = Assumed {
            configs: Some(vec![created.clone()]),
            labelled: &arguments.node,
            labels: labels.clone(),
            platform,
        };
        let none = |snapshot: &Snapshot| why_none(labels, arguments, snapshot);
        Self::of(&created, assumed, context, is_changed, none).await
    }

    /// What the operator decides for the KataConfig that is there, which may be on its way out.
    pub(in crate::commands) async fn of_existing(
        config: &KataConfig,
        platform: Option<Platform>,
        context: &Context<'_, '_>,
    ) -> Result<Self, Failure> {
        let configs = Some(vec![config.clone()]);
        let assumed = Assumed { configs, platform, ..Assumed::default() };
        let none =
            |_snapshot: &Snapshot| "the KataConfig asks for no change of a node now".to_owned();
        Self::of(config, assumed, context, is_changed, none).await
    }

    /// What another payload in this KataConfig does to the nodes that have Kata.
    pub(in crate::commands) async fn of_update(
        config: &KataConfig,
        context: &Context<'_, '_>,
    ) -> Result<Self, Failure> {
        let configs = Some(vec![config.clone()]);
        let assumed = Assumed { configs, ..Assumed::default() };
        let none = |_snapshot: &Snapshot| "no node has Kata with another payload".to_owned();
        let is_updated = |node: &NodeReport, _is_deleting: bool| node.wanted && node.behind;
        Ok(match Self::of(config, assumed, context, is_updated, none).await? {
            Self::Known(disruption) => Self::Known(disruption.into_update()),
            other => other,
        })
    }

    async fn of(
        config: &KataConfig,
        assumed: Assumed<'_>,
        context: &Context<'_, '_>,
        is_changed: impl Fn(&NodeReport, bool) -> bool,
        why_none: impl Fn(&Snapshot) -> String,
    ) -> Result<Self, Failure> {
        let rollout = config.spec.rollout.as_ref();
        let value = rollout.and_then(|rollout| rollout.max_unavailable.as_ref());
        let is_deleting = config.metadata.deletion_timestamp.is_some();
        let now = context.settings.now();
        let snapshot = Box::pin(snapshot::read(&context.api, now, assumed)).await?;
        let report = kata_plan::decide(&snapshot).report;
        if let Observed::Unknown { error, .. } = &snapshot.nodes {
            return Ok(Self::Unknown(error.clone()));
        }
        let hides_nodes = |finding: &&kata_plan::Finding| {
            matches!(
                finding.code,
                Code::ReadFailed | Code::MachineConfigOperatorNotReady | Code::OtherInstallation
            )
        };
        let hidden_by = report.findings.iter().find(hides_nodes);
        if let Some(finding) = hidden_by.filter(|_| report.nodes.is_empty()) {
            return Ok(Self::Unknown(if problem::is_unseen(finding) {
                problem::unseen(&context.api)
            } else {
                finding.message.clone()
            }));
        }
        let changes = |node: &&NodeReport| !node.provided && is_changed(node, is_deleting);
        let nodes: Vec<String> =
            report.nodes.iter().filter(changes).map(|node| node.node.clone()).collect();
        if nodes.is_empty() {
            return Ok(Self::NoNode(why_none(&snapshot)));
        }
        let pace = pace(snapshot.options.platform, value, nodes.len());
        let api = &context.api;
        let change = Disruption::of(api, &snapshot, nodes, pace, |_pod| false).await?;
        Ok(Self::Known(change))
    }

    /// What it does to nodes, as a part of a sentence; `None` if no node changes.
    pub(in crate::commands) fn summary(&self) -> Option<String> {
        match self {
            Self::Known(disruption) => disruption.summary(),
            Self::NoNode(_) | Self::Unknown(_) => None,
        }
    }

    /// The lines that describe it.
    pub(in crate::commands) fn lines(&self, style: &Style) -> Vec<String> {
        match self {
            Self::Known(disruption) => disruption.lines(style),
            Self::NoNode(why) => field("Nodes", &format!("none changes: {why}"), style),
            Self::Unknown(why) => {
                field("Nodes", &format!("which nodes change is unknown: {why}"), style)
            }
        }
    }
}

/// Whether the operator will change a node.
fn is_changed(node: &NodeReport, is_deleting: bool) -> bool {
    is_deleting || !node.wanted || node.behind || node.phase != Phase::Ready
}

/// Why no node gets Kata yet.
fn why_none(labels: &Labels, arguments: &InstallArguments, snapshot: &Snapshot) -> String {
    let has = |node: &NodeFacts, key: &str, value: &str| {
        node.labels.get(key).is_some_and(|found| found == value)
    };
    let nodes = snapshot.nodes.known().into_iter().flatten();
    let labelled: Vec<_> = nodes
        .filter(|node| is_worker(node, snapshot.options.platform))
        .filter(|node| labels.iter().all(|(key, value)| has(node, key, value)))
        .collect();
    let incapable = labelled.iter().any(|node| !has(node, names::NFD_LABEL, "true"));
    if arguments.check_node_eligibility && incapable {
        return format!(
            "no worker that is selected has the label {}=true, which Node Feature Discovery gives to nodes that \
             can run Kata",
            names::NFD_LABEL
        );
    }
    if labels.is_empty() || !labelled.is_empty() {
        return "no node can get Kata yet: see `kubectl kata doctor`".to_owned();
    }
    match node_labels::command("NAME", labels) {
        Some(command) => format!("no worker has these labels yet: {command}"),
        None => format!("no worker has the labels {}", text(labels, ", ")),
    }
}

/// Whether a user who speaks of workers can mean this node.
fn is_worker(node: &NodeFacts, platform: Platform) -> bool {
    let has = |label: &str| node.labels.contains_key(label);
    match platform {
        Platform::OpenShift => has(names::WORKER_ROLE_LABEL),
        Platform::Kubernetes => {
            !has(names::MASTER_ROLE_LABEL) && !has(names::CONTROL_PLANE_ROLE_LABEL)
        }
    }
}
