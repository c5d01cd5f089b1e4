//! An operator that says nothing: a change of the KataConfig that it has not taken up, and why.

use jiff::{SignedDuration, Timestamp};
use kata_api::{Code, KataConfig, names};

use crate::api::{Api, Read};
use crate::cluster::Deployment;
use crate::document::{Problem, StatusReport};
use crate::failure::Failure;
use crate::problem;
use crate::resource::DEPLOYMENTS;

/// How long the operator may take to take up a change before that is worth a word.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// A change that the operator has not taken up although it had the time to.
pub(super) fn unheard(config: &KataConfig, now: Timestamp) -> Option<Problem> {
    let metadata = &config.metadata;
    let observed = config.status.as_ref().and_then(|status| status.observed_generation);
    if observed == metadata.generation {
        return None;
    }
    let written = metadata.managed_fields.iter().flatten();
    let changed = written
        .filter(|entry| entry.subresource.as_deref() != Some("status"))
        .filter_map(|entry| entry.time.as_ref())
        .chain(&metadata.creation_timestamp)
        .chain(&metadata.deletion_timestamp)
        .map(|time| time.0)
        .max();
    if changed.is_some_and(|changed| now.duration_since(changed) < GRACE) {
        return None;
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    let seen = observed.map_or_else(|| "nothing of it yet".to_owned(), |g| format!("only {g}"));
    let message = format!(
        "the operator has not taken up generation {} of KataConfig {name}: it has seen {seen}",
        metadata.generation.unwrap_or_default()
    );
    Some(Problem::new(Code::OperatorSilent, format!("kataconfig/{name}"), message))
}

/// Adds why the operator says nothing, as far as its Deployment tells. Who may not see that is not told of
/// it: the command can do without.
pub(crate) async fn explain(api: &Api, report: &mut StatusReport) -> Result<(), Failure> {
    let silent = Code::OperatorSilent.entry().code;
    let Some(told) = report.problems.iter_mut().find(|problem| problem.id == silent) else {
        return Ok(());
    };
    let place = format!("deployment/{}", names::PRODUCT);
    match api.glance::<Deployment>(DEPLOYMENTS, Some(names::NAMESPACE), names::PRODUCT).await? {
        Read::Known(Some(deployment)) => {
            let facts = deployment.facts();
            if facts.ready_replicas == Some(0) {
                let all = facts.replicas.unwrap_or_default();
                let text = format!("0 of {all} pods of the operator are ready");
                report.problems.push(Problem::new(Code::OperatorNotRunning, place, text));
            }
        }
        Read::Known(None) | Read::NotServed => told.message.push_str(&format!(
            "; there is no Deployment {} in {}",
            names::PRODUCT,
            names::NAMESPACE
        )),
        Read::Forbidden => {}
    }
    problem::sort(&mut report.problems);
    Ok(())
}
