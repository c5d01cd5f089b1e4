//! What the operator finds, or would find: its own decision on what the caller can see, and what its status says
//! besides. Nothing is judged here.

use jiff::Timestamp;
use kata_api::{Code, KataConfig, Severity, conditions};
use kata_plan::{Finding, Kind, Platform, StatusReport};
use serde_json::json;

use super::{admission, check};
use crate::cluster::Kata;
use crate::document::{Category, Check, CheckResult, Problem};
use crate::failure::Failure;
use crate::problem::{self, only_operator_notices};
use crate::{Context, snapshot};

fn by_severity(code: Code) -> CheckResult {
    match code.entry().severity {
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
    let mut said = match (&given, kata.active()) {
        (None, Some(active)) => problem::of_status(active, kata.nodes.items()),
        _ => Vec::new(),
    };
    // Here each check is told by its own code.
    let within: Vec<Problem> = said.iter().filter_map(problem::within).collect();
    said.extend(within);
    let configs = match (given, kata.active()) {
        (Some(given), _) => Some(with(given, kata, now)),
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
    // What the operator would find with its rights cannot be told with less, nor that it finds nothing.
    let unread = report.findings.iter().any(|finding| finding.code == Code::ReadFailed);
    let jobs = pre && snapshot.options.platform == Platform::Kubernetes;
    let mut admission = if jobs { Some(admission::jobs(&context.api).await?) } else { None };
    for code in Code::ALL {
        let place = usize::from(code.entry().code.get(4..5).is_some_and(|n| n == "2" || n == "3"));
        let Some(category) = categories.get_mut(place) else { continue };
        let found: Vec<_> =
            report.findings.iter().filter(|finding| finding.code == *code).collect();
        let said: Vec<_> = said.iter().filter(|problem| is_news(problem, *code, &found)).collect();
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
        for finding in found {
            let mut check = check(*code, by_severity(*code), finding.message.clone());
            if check.result != CheckResult::Ok {
                let node = matches!(finding.subject.kind, Kind::Node | Kind::KataNode);
                let node = node.then_some(finding.subject.name.as_str());
                check.fix = problem::retry(*code, node, kata.nodes.items())
                    .unwrap_or_else(|| finding.fix.clone());
            }
            check.subjects = vec![subject(finding.subject.kind, &finding.subject.name)];
            category.checks.push(check);
        }
        for problem in said {
            let mut check = check(*code, by_severity(*code), problem.message.clone());
            if check.result != CheckResult::Ok {
                check.fix.clone_from(&problem.fix);
            }
            check.subjects = vec![problem.subject.clone()];
            category.checks.push(check);
        }
    }
    Ok(categories)
}

/// Whether the operator says this of itself: what is found here too is told once, with the object's name.
fn is_news(problem: &Problem, code: Code, found: &[&Finding]) -> bool {
    let same = |finding: &&Finding| {
        !problem::is_unseen(finding)
            && (problem.subject.starts_with("kataconfig/")
                || problem.subject == subject(finding.subject.kind, &finding.subject.name))
    };
    problem.id == code.entry().code && !found.iter().any(same)
}

/// Whether the operator's decision could find this on such a cluster: what it could not is no check that
/// passed.
fn applies(code: Code, platform: Platform) -> bool {
    let number = code.entry().code.get(4..).unwrap_or_default();
    if only_operator_notices(code) {
        return false;
    }
    match platform {
        Platform::OpenShift => number.starts_with(['1', '2', '4']),
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

/// What a KataConfig is told, or would be, that is not the oldest.
fn not_active(other: &StatusReport) -> Check {
    let code = Code::NotActive;
    let all = &other.status.conditions;
    let ready = all.iter().find(|condition| condition.type_ == conditions::READY);
    let message = ready.map_or_else(|| code.entry().cause, |ready| ready.message.as_str());
    let message = message.strip_prefix(&format!("{code}: ")).unwrap_or(message);
    let name = &other.config.name;
    let text = format!("KataConfig {name} is not active: {message}");
    let mut check = check(code, by_severity(code), text);
    check.subjects = vec![subject(other.config.kind, name)];
    check
}

/// The KataConfigs that there would be with the given one.
fn with(given: KataConfig, kata: &Kata, now: Timestamp) -> Vec<KataConfig> {
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

fn subject(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.as_str().to_lowercase())
}
