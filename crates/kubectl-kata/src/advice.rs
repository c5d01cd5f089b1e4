//! Fixes as specific as the operator's own. Its objects tell codes and messages, and fixes only where nothing goes
//! on; so its decision is made once more on what the caller can see, and the fix of the same finding taken from
//! there. Whoever may not see enough gets the catalogue's, and is told of no gap: the command can do without.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kata_api::{Code, KataConfig};
use kata_plan::{Finding, Kind, SandboxedPod};

use crate::api::Api;
use crate::document::Problem;
use crate::failure::Failure;
use crate::{owners, snapshot};

/// The fixes that are known already, by code, object and message: who waits sees the same problem many times.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<Key, String>);

/// Code, object and message of a problem.
type Key = (String, String, String);

fn key(problem: &Problem) -> Key {
    (problem.id.clone(), problem.subject.clone(), problem.message.clone())
}

/// Gives the problems that the operator tells of the fixes that it has for them. What cannot be read leaves them
/// as they are: it is told by the reads without which there is no result.
pub(crate) async fn sharpen(
    api: &Api,
    config: Option<&KataConfig>,
    now: Timestamp,
    problems: &mut [Problem],
    known: &mut Known,
) {
    let Some(config) = config else { return };
    let open = |problem: &&mut Problem| problem.has_common_fix() && is_decided(problem);
    let unknown = problems.iter_mut().filter(open).any(|it| !known.0.contains_key(&key(it)));
    if unknown && let Ok(fixes) = find(api, config, now, problems).await {
        known.0.extend(fixes);
    }
    for problem in problems.iter_mut().filter(open) {
        if let Some(fix) = known.0.get(&key(problem)) {
            problem.fix.clone_from(fix);
        }
    }
}

/// The fixes of problems that have the catalogue's.
async fn find(
    api: &Api,
    config: &KataConfig,
    now: Timestamp,
    problems: &[Problem],
) -> Result<Vec<(Key, String)>, Failure> {
    let quiet = api.for_watches();
    if let Some(home) = api.known_home() {
        quiet.settle(home);
    }
    let snapshot =
        Box::pin(snapshot::read(&quiet, now, snapshot::Assumed::configs(vec![config.clone()])))
            .await?;
    let findings = kata_plan::decide(&snapshot).report.findings;
    let pods = kata_plan::running_pods(&snapshot);
    let mut fixes = Vec::new();
    for problem in problems.iter().filter(|it| it.has_common_fix() && is_decided(it)) {
        let fix = if problem.id == Code::PodsStillRunning.entry().code {
            of_pods(&quiet, &pods, &problem.subject).await?
        } else {
            None
        };
        let fix = fix.or_else(|| of_finding(problem, &findings));
        fixes.push((key(problem), fix.unwrap_or_else(|| problem.fix.clone())));
    }
    Ok(fixes)
}

/// Whether the decision can find it: what only the operator or only this program notices it does not.
fn is_decided(problem: &Problem) -> bool {
    let number = problem.id.get(4..).unwrap_or_default();
    number.starts_with(['1', '2', '3', '4'])
}

/// The fix of the finding that a problem tells of.
fn of_finding(problem: &Problem, findings: &[Finding]) -> Option<String> {
    let mut of_code = findings.iter().filter(|finding| finding.code.entry().code == problem.id);
    let about = |finding: &&Finding| {
        finding.message == problem.message
            || (finding.subject.kind == Kind::Node
                && problem.subject == format!("node/{}", finding.subject.name))
    };
    of_code.find(about).map(|finding| finding.fix.clone())
}

/// What ends that pods come again, and the pods that are there.
async fn of_pods(
    api: &Api,
    pods: &[SandboxedPod],
    subject: &str,
) -> Result<Option<String>, Failure> {
    let node = subject.strip_prefix("node/");
    let concerned =
        || pods.iter().filter(|pod| node.is_none_or(|node| pod.node.as_deref() == Some(node)));
    let owned = concerned().filter_map(|pod| Some((pod.namespace.as_str(), pod.owner.as_deref()?)));
    let controllers = owners::controllers(api, owned).await?;
    Ok(owners::fix(&controllers, concerned().any(|pod| pod.owner.is_none())))
}
