//! What the operator finds, or would find: its own decision on what the caller can see, and what its status says
//! besides. Nothing is judged here.

use jiff::Timestamp;
use kata_api::{Code, KataConfig, Severity};
use kata_plan::{Finding, Platform, StatusReport};
use serde_json::json;

use super::{admission, check};
use crate::cluster::Kata;
use crate::document::{Category, Check, CheckResult, Problem};
use crate::failure::Failure;
use crate::problem::{self, only_operator_notices};
use crate::{Context, snapshot};

fn by_severity(severity: Severity) -> CheckResult {
    match severity {
        Severity::Info => CheckResult::Ok,
        Severity::Warning => CheckResult::Warning,
        Severity::Error => CheckResult::Error,
    }
}

/// What the operator finds, or would find with the given KataConfig.
pub(super) async fn categories(
    kata: &Kata,
    given: Option<KataConfig>,
    pre: bool,
    now: Timestamp,
    context: &Context<'_, '_>,
) -> Result<Vec<Category>, Failure> {
    let name = given.as_ref().and_then(|given| given.metadata.name.clone());
    // What the status says is not about a KataConfig that is only asked about.
    let nodes = kata.nodes.items();
    let of_status = match (&given, kata.active()) {
        (None, Some(active)) => problem::of_status(active, nodes),
        _ => Vec::new(),
    };
    let configs = match (given, kata.active()) {
        (Some(given), _) => Some(with_given(given, kata, now)),
        (None, None) if pre => {
            // The API server's defaults, which those of the type are not.
            let sample = json!({
                "apiVersion": "kataconfiguration.openshift.io/v1",
                "kind": "KataConfig",
                "metadata": {"name": "cluster-kataconfig"},
                "spec": {},
            });
            let config = serde_json::from_value(sample).map_err(|source| Failure::Answer {
                what: "make a KataConfig".to_owned(),
                source,
            })?;
            Some(vec![snapshot::fresh(config, now)])
        }
        (None, None) => return Ok(Vec::new()),
        (None, Some(_)) => None,
    };
    let assumed = snapshot::Assumed { configs, ..snapshot::Assumed::default() };
    let snapshot = Box::pin(snapshot::read(&context.api, now, assumed)).await?;
    let report = kata_plan::decide(&snapshot).report;
    let mut categories = vec![
        Category { name: "configuration".to_owned(), checks: Vec::new() },
        Category { name: "nodes".to_owned(), checks: Vec::new() },
    ];
    let asked = |other: &&StatusReport| name.as_ref().is_none_or(|name| *name == other.config.name);
    for other in report.other_configs.iter().filter(asked) {
        if let Some(category) = categories.first_mut() {
            category.checks.push(not_active(other));
        }
    }
    // After a forbidden read, a check without findings is not reported as passed.
    let unread = report.findings.iter().any(|finding| finding.code == Code::ReadFailed);
    let jobs = pre && snapshot.options.platform == Platform::Kubernetes;
    let mut admission = if jobs { Some(admission::jobs(&context.api).await?) } else { None };
    for code in Code::ALL {
        let place = usize::from(code.entry().code.get(4..5).is_some_and(|n| n == "2" || n == "3"));
        let Some(category) = categories.get_mut(place) else { continue };
        let found: Vec<_> =
            report.findings.iter().filter(|finding| finding.code == *code).collect();
        let said: Vec<_> =
            of_status.iter().filter(|problem| is_only_in_status(problem, *code, &found)).collect();
        if *code == Code::NodeJobWithoutPod && found.is_empty() && said.is_empty() {
            category.checks.extend(admission.take());
        }
        let told = category.checks.iter().any(|check| check.id == code.entry().code);
        let nothing = found.is_empty() && said.is_empty() && !told;
        if nothing && !unread && applies(*code, snapshot.options.platform) {
            let message = match (code, kata.inspections()) {
                (Code::NodeDrifted, Some(seen)) => seen.sentence(now),
                _ => format!("not so: {}", code.entry().cause),
            };
            category.checks.push(check(*code, CheckResult::Ok, message));
        }
        let (unseen, found): (Vec<&Finding>, Vec<&Finding>) =
            found.into_iter().partition(|finding| problem::is_unseen(finding));
        if !unseen.is_empty() {
            let message = format!("not checked: {}", problem::unseen(&context.api));
            category.checks.push(check(*code, CheckResult::Skipped, message));
        }
        let found = found.into_iter().map(|it| problem::of_finding(&it.to_status()));
        for problem in found.chain(said.into_iter().cloned()) {
            let worst = problem::failed_check(&problem, nodes).unwrap_or(*code);
            let worst = worst.entry().severity.max(code.entry().severity);
            let mut check = check(*code, by_severity(worst), problem.message.clone());
            if check.result != CheckResult::Ok {
                check.fix = problem.fix;
            }
            check.subjects = vec![problem.subject];
            category.checks.push(check);
        }
    }
    // The operator may know codes that this program does not.
    for problem in of_status.iter().filter(|problem| Code::parse(&problem.id).is_none()) {
        let check = Check {
            id: problem.id.clone(),
            description: problem.id.clone(),
            result: by_severity(Severity::parse(problem.severity).unwrap_or(Severity::Warning)),
            subjects: vec![problem.subject.clone()],
            message: problem.message.clone(),
            fix: problem.fix.clone(),
            hint: problem.hint.clone(),
        };
        if let Some(category) = categories.first_mut() {
            category.checks.push(check);
        }
    }
    Ok(categories)
}

/// Whether only the status has this finding, and not the decision made here.
fn is_only_in_status(problem: &Problem, code: Code, found: &[&Finding]) -> bool {
    let same = |finding: &&Finding| {
        !problem::is_unseen(finding)
            && problem.subject == problem::named(&finding.to_status().subject)
    };
    problem.id == code.entry().code && !found.iter().any(same)
}

/// Whether the decision can find this on such a cluster; otherwise it is not a passed check.
fn applies(code: Code, platform: Platform) -> bool {
    let number = code.entry().code.get(4..).unwrap_or_default();
    // A second installation is looked for among the checks of the cluster.
    if only_operator_notices(code) || code == Code::OtherInstallation {
        return false;
    }
    match platform {
        Platform::OpenShift => {
            code != Code::HandlersNotReported && number.starts_with(['1', '2', '4'])
        }
        Platform::Kubernetes => {
            let pools = matches!(
                code,
                Code::PoolPaused
                    | Code::RenderDegraded
                    | Code::RenderWaiting
                    | Code::MachineConfigOperatorNotReady
                    | Code::SelectorIgnored
                    | Code::WorkersNotCovered
                    | Code::ImageModeIncomplete
                    | Code::LogLevelOverridden
                    | Code::RolloutNotHonoured
                    | Code::NodeInTwoPools
                    | Code::NodeInOtherPool
                    | Code::DrainBlocked
                    | Code::NodeDegraded
                    | Code::NodeDegradedAndCordoned
                    | Code::NodeStateUnknown
                    | Code::OtherRollout
            );
            // What a node agent finds is told with the code of its node, KATA31xx.
            !pools && (number.starts_with(['1', '2', '4']) || number.starts_with("31"))
        }
    }
}

/// The check of a KataConfig that is not the oldest, or would not be.
fn not_active(other: &StatusReport) -> Check {
    let code = Code::NotActive;
    let name = &other.config.name;
    let finding = other.status.findings.first();
    let message = finding.map_or_else(|| code.entry().cause, |finding| finding.message.as_str());
    let text = format!("KataConfig {name} is not active: {message}");
    let mut check = check(code, by_severity(code.entry().severity), text);
    check.subjects = finding.map(|finding| problem::named(&finding.subject)).into_iter().collect();
    check
}

/// The KataConfigs that there would be with the given one.
fn with_given(given: KataConfig, kata: &Kata, now: Timestamp) -> Vec<KataConfig> {
    let mut all = kata.configs.items().to_vec();
    match all.iter_mut().find(|config| config.metadata.name == given.metadata.name) {
        Some(existing) => {
            existing.spec = given.spec;
            existing.metadata.generation = existing.metadata.generation.map(|old| old + 1);
        }
        None => all.push(snapshot::fresh(given, now)),
    }
    all
}
