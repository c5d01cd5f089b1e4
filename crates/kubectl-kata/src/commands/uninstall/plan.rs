//! What the deletion of a KataConfig would do, and what stands in the way, as [`kata_plan::decide`] answers it. Changes
//! nothing.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kata_api::{Code, KataConfig, Natural, names};
use kata_plan::{Observed, Platform, PodScope, Snapshot};

use super::super::{marked, pace, problem_lines};
use super::operator::Removal;
use crate::Context;
use crate::arguments::UninstallArguments;
use crate::cluster::Kata;
use crate::disruption::{Disruption, field};
use crate::document::{Head, PodRow, Problem, Successor, UninstallPlan};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::node_labels::{self, SetLabels};
use crate::owners::{self, Controller};
use crate::problem;
use crate::snapshot::{self, Assumed};
use crate::table::{Table, column};

/// What is printed besides the plan, and done after it.
pub(super) struct Words {
    /// That evicted pods come again, and how to end that; nothing if none does.
    pub(super) returning: Vec<String>,
    /// What removes the operator, if it is to go.
    pub(super) removal: Option<Removal>,
    /// The labels to take off.
    pub(super) set_labels: Option<SetLabels>,
}

/// What would happen; with `evict` sandboxed pods are not in the way.
pub(super) async fn plan(
    kata: &Kata,
    config: &KataConfig,
    evict: bool,
    context: &Context<'_, '_>,
) -> Result<(UninstallPlan, Words), Failure> {
    let now = context.settings.now();
    let mut deleted = config.clone();
    deleted.metadata.deletion_timestamp.get_or_insert(Time(now));
    deleted.metadata.finalizers.get_or_insert_default().push(names::FINALIZER.to_owned());
    let mut snapshot =
        Box::pin(snapshot::read(&context.api, now, Assumed::configs(vec![deleted]))).await?;
    let report = kata_plan::decide(&snapshot).report;
    let mut problems: Vec<Problem> = report
        .findings
        .iter()
        .filter(|finding| match finding.code {
            Code::PodsStillRunning => !evict,
            code => matches!(code, Code::ReadFailed | Code::OtherInstallation),
        })
        .map(|finding| {
            let subject = format!("kataconfig/{}", finding.subject.name);
            // The caller's rights, not the operator's.
            if problem::is_unseen(finding) {
                let message = format!("cannot look: {}", problem::unseen(&context.api));
                return Problem::new(Code::PermissionMissing, subject, message);
            }
            Problem::new(finding.code, subject, finding.message.clone())
                .with_fix(finding.fix.clone())
        })
        .collect();
    if config.metadata.deletion_timestamp.is_some() {
        // The pods are looked at above.
        let pods = Code::PodsStillRunning.entry().code;
        let stalls = problem::stalls(config, kata.nodes.items()).into_iter();
        problems.extend(stalls.filter(|problem| problem.id != pods));
    }
    let mut listed = BTreeSet::new();
    problems.retain(|problem| listed.insert(problem.message.clone()));
    let pods = rows(&snapshot);
    // Whether pods are in the way is not known if they cannot be read.
    if matches!(snapshot.pods.get(&PodScope::Cluster), Some(Observed::Unknown { .. }))
        && problems.is_empty()
    {
        problems.push(Problem::new(
            Code::PermissionMissing,
            "pods",
            "whether sandboxed pods still run is not known: you may not list pods",
        ));
    }
    let objects = objects(&snapshot, config);
    let running = kata_plan::running_pods(&snapshot);
    let owned =
        running.iter().filter_map(|pod| Some((pod.namespace.as_str(), pod.owner.as_deref()?)));
    let controllers = owners::controllers(&context.api, owned).await?;
    let others = pods.iter().any(|pod| pod.owner.is_none());
    let fix = owners::fix(&controllers, others);
    for problem in &mut problems {
        if let (Some(fix), true) = (&fix, problem.id == Code::PodsStillRunning.entry().code) {
            problem.fix.clone_from(fix);
        }
    }
    let returning = owners::fix(&controllers, false).map_or_else(Vec::new, |fix| {
        vec![
            format!(
                "evicted pods come again from {}, and Kata stays while they are there",
                owners::list(&controllers)
            ),
            format!("    fix: {fix}"),
        ]
    });
    let rollout = match snapshot.options.platform {
        Platform::Kubernetes => config.spec.rollout.as_ref(),
        // The nodes go back to the pool from which they came, of which the KataConfig says nothing.
        Platform::OpenShift => None,
    };
    let value = rollout.and_then(|rollout| rollout.max_unavailable.as_ref());
    let pace = pace(snapshot.options.platform, value, report.nodes.len());
    let nodes: Vec<String> = report.nodes.iter().map(|node| node.node.clone()).collect();
    let is_gone_before = |pod: &Pod| {
        let of = |row: &PodRow| {
            pod.metadata.namespace.as_ref() == Some(&row.namespace)
                && pod.metadata.name.as_ref() == Some(&row.name)
        };
        pods.iter().any(of)
    };
    let disruption = if snapshot.nodes.known().is_some() && report.nodes_are_complete() {
        let api = &context.api;
        let changed = report.nodes.iter().filter(|node| !node.provided);
        let changed = changed.map(|node| node.node.clone()).collect();
        Some(Disruption::of(api, &snapshot, changed, pace, is_gone_before).await?)
    } else {
        None
    };
    let successor = successor(kata, &mut snapshot);
    // The next KataConfig may select nodes by the same labels.
    let set_labels = SetLabels::of(config).filter(|_| successor.is_none());
    let plan = UninstallPlan {
        head: Head::new("UninstallPlan", kata.is_simulated()),
        success: problems.is_empty() && (evict || pods.is_empty()),
        config: config.metadata.name.clone(),
        deleting: config.metadata.deletion_timestamp.is_some(),
        pods,
        controllers: controllers.iter().map(Controller::named).collect(),
        nodes,
        disruption,
        objects,
        labelled: set_labels.as_ref().map_or_else(Vec::new, |set| set.nodes.clone()),
        operator_namespace: None,
        successor,
        problems,
        gaps: context.api.gaps(),
    };
    Ok((plan, Words { returning, removal: None, set_labels }))
}

/// The KataConfig that becomes active when the active one is gone, and what the decision makes of it.
pub(super) fn successor(kata: &Kata, snapshot: &mut Snapshot) -> Option<Successor> {
    let all = kata_plan::configs_by_age(kata.configs.items()).into_iter().skip(1);
    snapshot.configs =
        all.filter(|config| config.metadata.deletion_timestamp.is_none()).cloned().collect();
    let name = snapshot.configs.first()?.metadata.name.clone().unwrap_or_default();
    let report = kata_plan::decide(snapshot).report;
    let nodes = report.nodes.iter().filter(|node| node.wanted).map(|node| node.node.clone());
    Some(Successor { name, nodes: report.nodes_are_complete().then(|| nodes.collect()) })
}

/// What comes after, in a sentence.
pub(super) fn sequel(successor: &Successor) -> String {
    let then = format!("KataConfig {} becomes active then", successor.name);
    match &successor.nodes {
        None => format!("{then}, and installs Kata again; delete it too to remove Kata"),
        Some(nodes) if nodes.is_empty() => format!("{then}, and selects no node"),
        Some(nodes) => format!(
            "{then}, and brings Kata to {} ({}); delete it too to remove Kata",
            human::count(nodes.len(), "node"),
            human::list(nodes, 5)
        ),
    }
}

/// The pods in the way, as the decision sees them.
pub(super) fn rows(snapshot: &Snapshot) -> Vec<PodRow> {
    let pods = kata_plan::running_pods(snapshot).into_iter();
    let mut rows: Vec<PodRow> = pods
        .map(|pod| PodRow {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            ready: 0,
            containers: 0,
            status: match &pod.node {
                _ if pod.deleting => "Terminating",
                // It is on no node, so nothing of it runs.
                None => "Pending",
                Some(_) => "Running",
            }
            .to_owned(),
            restarts: 0,
            created: None,
            node: pod.node.clone(),
            runtime_class: pod.runtime_class.clone(),
            vmm: None,
            kata_version: None,
            handler: None,
            overhead: None,
            owner: pod.owner.clone().map(|owner| owner.replacen(' ', "/", 1)),
        })
        .collect();
    rows.sort_by(|a, b| (&a.namespace, Natural(&a.name)).cmp(&(&b.namespace, Natural(&b.name))));
    rows.dedup();
    rows
}

/// Objects that would go.
pub(super) fn objects(snapshot: &Snapshot, config: &KataConfig) -> Vec<String> {
    let mut objects: Vec<String> = names::MACHINE_CONFIGS
        .iter()
        .filter(|name| {
            matches!(snapshot.machine_configs.get(**name), Some(Observed::Known(Some(_))))
        })
        .map(|name| format!("MachineConfig/{name}"))
        .collect();
    let pools = snapshot.pools.known().into_iter().flatten();
    if pools.into_iter().any(|pool| pool.metadata.name.as_deref() == Some(names::POOL)) {
        objects.push(format!("MachineConfigPool/{}", names::POOL));
    }
    let classes = config.status.iter().flat_map(|status| &status.runtime_classes);
    objects.extend(classes.map(|class| format!("RuntimeClass/{class}")));
    objects
}

pub(super) fn lines(
    plan: &UninstallPlan,
    words: &Words,
    arguments: &UninstallArguments,
    context: &Context<'_, '_>,
) -> Vec<String> {
    let style = context.printer.style();
    let mut lines = problem_lines(&plan.problems, &style);
    if !plan.pods.is_empty() {
        if arguments.evict_pods {
            let count = human::count(plan.pods.len(), "sandboxed pod");
            lines.push(format!("would evict {count}, as far as PodDisruptionBudgets allow it"));
        }
        let mut table = Table::new(&[
            column("NAMESPACE"),
            column("POD"),
            column("STATUS").dispensable(3),
            column("CLASS").dispensable(1),
            column("OWNER"),
            column("NODE").dispensable(2),
        ]);
        for pod in plan.pods.iter().take(20) {
            table.row(vec![
                pod.namespace.clone().into(),
                pod.name.clone().into(),
                pod.status.clone().into(),
                pod.runtime_class.clone().into(),
                pod.owner.clone().unwrap_or_default().into(),
                pod.node.clone().unwrap_or_default().into(),
            ]);
        }
        let rows = table.lines(&style, false, context.settings.titles);
        lines.extend(rows.iter().map(|row| format!("  {row}")));
        if plan.pods.len() > 20 {
            lines.push(format!("  and {} more", plan.pods.len() - 20));
        }
        if arguments.evict_pods {
            lines.extend_from_slice(&words.returning);
        }
    }
    let name = plan.config.as_deref().unwrap_or_default();
    let text = format!("The deletion of KataConfig {name} removes Kata.");
    lines.push(marked(&text, plan.head.simulated));
    lines.extend(field("Cluster", &context.place, &style));
    lines.extend(match &plan.disruption {
        Some(disruption) if disruption.nodes.is_empty() => {
            field("Nodes", "no node has Kata through this KataConfig", &style)
        }
        Some(disruption) => disruption.lines(&style),
        None => field("Nodes", "which nodes change is unknown: you may not list nodes", &style),
    });
    if !plan.objects.is_empty() {
        let objects = format!("{} will be deleted", plan.objects.join(", "));
        lines.extend(field("Objects", &objects, &style));
    }
    if let Some(SetLabels { labels, nodes }) = &words.set_labels {
        let (labels, nodes) = (node_labels::text(labels, ", "), human::list(nodes, 5));
        let text = format!("{labels}, which `install` set, is taken off {nodes}");
        lines.extend(field("Labels", &text, &style));
    }
    lines.extend(words.removal.iter().flat_map(|removal| removal.lines(&style)));
    lines.extend(plan.successor.as_ref().map(sequel));
    let next = match (plan.success, arguments.dry_run) {
        _ if plan.deleting => {
            lines.push(going(plan));
            return lines;
        }
        (true, true) => format!("nothing changed. Next: {}", again(arguments)),
        (true, false) => return lines,
        (false, _) if exit(plan) == Exit::Inconclusive => {
            "nothing changed, and whether it would be refused is not known".to_owned()
        }
        (false, _) => {
            "nothing changed. Next: scale the owners down, or --evict-pods (honours PodDisruptionBudgets)"
                .to_owned()
        }
    };
    lines.push(next);
    lines
}

/// How it stands with a KataConfig that is being deleted already.
pub(super) fn going(plan: &UninstallPlan) -> String {
    let name = plan.config.as_deref().unwrap_or_default();
    let waits = if plan.pods.is_empty() && plan.problems.is_empty() {
        "nothing is in the way".to_owned()
    } else if plan.pods.is_empty() {
        "is blocked by the problems above".to_owned()
    } else {
        let are = if plan.pods.len() == 1 { "is" } else { "are" };
        let count = human::count(plan.pods.len(), "sandboxed pod");
        format!(
            "waits until {count} {are} gone; `kubectl kata uninstall --evict-pods` evicts what may be evicted"
        )
    };
    format!(
        "KataConfig {name} is being deleted already, and {waits}. Next: kubectl kata wait --for deleted"
    )
}

/// The same command without `--dry-run`.
pub(super) fn again(arguments: &UninstallArguments) -> String {
    let flags = [(arguments.evict_pods, " --evict-pods"), (arguments.operator, " --operator")];
    let given = flags.into_iter().filter(|(is_given, _)| *is_given).map(|(_, flag)| flag);
    format!("kubectl kata uninstall{}", given.collect::<String>())
}

/// Nothing is refused if only the caller's permissions keep it from being known whether it would be.
pub(super) fn exit(plan: &UninstallPlan) -> Exit {
    let unknown = |problem: &Problem| problem.id == Code::PermissionMissing.entry().code;
    match (plan.success, plan.problems.iter().all(unknown) && !plan.problems.is_empty()) {
        (true, _) => Exit::Fine,
        (false, true) => Exit::Inconclusive,
        (false, false) => Exit::Refused,
    }
}
