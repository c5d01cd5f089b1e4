//! What the operator finds, or would find: its own decision on what the caller can see.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kata_api::{Code, KataConfig, Severity};
use kata_plan::{Kind, Platform};
use serde_json::json;

use super::check;
use crate::cluster::Kata;
use crate::document::{Category, CheckResult};
use crate::failure::Failure;
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
    let configs = match (given, kata.active()) {
        (Some(given), _) => Some(vec![fresh(given, now)]),
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
            Some(vec![fresh(config, now)])
        }
        (None, None) => return Ok(Vec::new()),
        (None, Some(_)) => None,
    };
    let snapshot = Box::pin(snapshot::read(&context.api, now, configs)).await?;
    let report = kata_plan::decide(&snapshot).report;
    let mut categories = vec![
        Category { name: "configuration".to_owned(), checks: Vec::new() },
        Category { name: "nodes".to_owned(), checks: Vec::new() },
    ];
    // What the operator would find with its rights cannot be told with less, nor that it finds nothing.
    let unread = report.findings.iter().any(|finding| finding.code == Code::ReadFailed);
    for code in Code::ALL {
        let place = usize::from(code.entry().code.get(4..5).is_some_and(|n| n == "2" || n == "3"));
        let Some(category) = categories.get_mut(place) else { continue };
        let found: Vec<_> =
            report.findings.iter().filter(|finding| finding.code == *code).collect();
        if found.is_empty() && !unread && applies(*code, snapshot.options.platform) {
            let message = match (code, kata.inspections()) {
                (Code::NodeDrifted, Some(seen)) => seen.sentence(now),
                _ => format!("not so: {}", code.entry().cause),
            };
            category.checks.push(check(*code, CheckResult::Ok, message));
        }
        for finding in found {
            let mut check = check(*code, by_severity(*code), finding.message.clone());
            if *code == Code::ReadFailed && check.message.contains(": you may not ") {
                check = self::check(*code, CheckResult::Skipped, finding.message.clone());
            } else if check.result != CheckResult::Ok {
                check.fix.clone_from(&finding.fix);
            }
            check.subjects = vec![subject(finding.subject.kind, &finding.subject.name)];
            category.checks.push(check);
        }
    }
    Ok(categories)
}

/// Whether the operator's decision could find this on such a cluster: what it could not is no check that
/// passed.
fn applies(code: Code, platform: Platform) -> bool {
    let number = code.entry().code.get(4..).unwrap_or_default();
    // What the operator alone can notice, since it writes and runs kata-monitor.
    if matches!(code, Code::WriteFailed | Code::ConstraintsNotServed) {
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

/// A KataConfig that does not exist yet, as the operator would first see it.
fn fresh(mut config: KataConfig, now: Timestamp) -> KataConfig {
    config.metadata.creation_timestamp = Some(Time(now));
    config.metadata.generation = Some(1);
    config.metadata.uid = Some("not-created".to_owned());
    config.status = None;
    config
}

fn subject(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.as_str().to_lowercase())
}
