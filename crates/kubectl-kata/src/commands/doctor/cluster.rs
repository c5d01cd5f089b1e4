//! What the operator cannot check, because it would not run, or is what is asked about: the API server, the
//! definitions, the caller's rights, the operator itself.

use jiff::Timestamp;
use kata_api::{Code, KataConfig};
use serde_json::json;

use super::check;
use super::node_pools::node_pools;
use crate::Context;
use crate::api::{Read, Trouble};
use crate::cluster::{Kata, OperatorState, installations, lease, operator, stale_definition};
use crate::commands::status::{Hearing, abandoned, hearing, why_unready};
use crate::document::{Check, CheckResult, Problem};
use crate::failure::Failure;
use crate::human;
use crate::resource::{CRDS, KATA_CONFIGS};

/// The first minor version of Kubernetes whose kubelets report runtime handlers.
const MINOR: u32 = 30;

/// What the operator cannot check, because it would not run, or is what is asked about.
pub(super) async fn checks(
    kata: &Kata,
    pre: bool,
    has_manifest: bool,
    context: &Context<'_, '_>,
) -> Result<Vec<Check>, Failure> {
    let api = &context.api;
    let mut checks = vec![kubernetes(&kata.version.git_version)];
    match &kata.configs {
        Read::Known(_) if kata.nodes.is_not_served() => checks.push(Check {
            fix: Code::CustomResourceStale.entry().fix.to_owned(),
            ..check(
                Code::CustomResourceMissing,
                CheckResult::Error,
                "the cluster does not serve KataNode, whose CustomResourceDefinition was deleted",
            )
        }),
        Read::Known(_) => {
            checks.push(check(
                Code::CustomResourceMissing,
                CheckResult::Ok,
                "the cluster serves KataConfig",
            ));
            checks.push(definitions(context).await?);
        }
        Read::NotServed => checks.push(check(
            Code::CustomResourceMissing,
            CheckResult::Error,
            "the cluster does not serve KataConfig, so the operator is not installed",
        )),
        Read::Forbidden => {
            checks.push(check(
                Code::CustomResourceMissing,
                CheckResult::Skipped,
                "you may not list KataConfigs",
            ));
        }
    }
    let may_create = if pre {
        Some(api.may("create", KATA_CONFIGS.group, KATA_CONFIGS.plural, None).await?)
    } else {
        None
    };
    checks.extend(may_create.map(create_permission));
    if !kata.configs.is_not_served() {
        checks.extend(the_operator(kata, context).await?);
    }
    let may_try = may_create.is_some_and(|may_create| may_create != Some(false));
    if may_try && !has_manifest && matches!(kata.configs, Read::Known(_)) {
        let sample = json!({
            "apiVersion": "kataconfiguration.openshift.io/v1",
            "kind": "KataConfig",
            "metadata": {"name": "kata-doctor"},
            "spec": {},
        });
        checks.push(accepted(Some(&sample), context).await?);
    }
    if let Some(active) = kata.active().filter(|_| !has_manifest) {
        checks.extend(node_pools(active, context).await?);
    }
    if !pre && matches!(kata.configs, Read::Known(_)) {
        let now = context.settings.now();
        checks.extend(config(kata, abandoned(&lease(api).await?, kata, now), now));
    }
    Ok(checks)
}

/// Whether the caller may create a KataConfig; `None` if the cluster does not say.
fn create_permission(may: Option<bool>) -> Check {
    let code = Code::PermissionMissing;
    match may {
        Some(true) => check(code, CheckResult::Ok, "you may create a KataConfig"),
        Some(false) => {
            let message = format!("you may not create {}", KATA_CONFIGS.qualified());
            let fix =
                "Ask for the permission, for example through the ClusterRole kata-operator-edit.";
            Check { fix: fix.to_owned(), ..check(code, CheckResult::Warning, message) }
        }
        None => check(code, CheckResult::Skipped, "the cluster does not say what you may do"),
    }
}

fn kubernetes(version: &str) -> Check {
    // A build without a version calls itself v0.0.0, which says nothing.
    let minor = minor(version).filter(|(major, _)| *major > 0).map(|(_, minor)| minor);
    let result = match minor {
        None => CheckResult::Skipped,
        Some(minor) if minor < MINOR => CheckResult::Warning,
        Some(_) => CheckResult::Ok,
    };
    let version = if version.is_empty() { "of unknown version" } else { version };
    let text = format!("Kubernetes {version} (1.{MINOR} or newer reports runtime handlers)");
    check(Code::ClusterTooOld, result, text)
}

/// Whether the definitions in the cluster are those that this program knows.
async fn definitions(context: &Context<'_, '_>) -> Result<Check, Failure> {
    let (result, text) = match stale_definition(&context.api).await? {
        Read::Known(None) => {
            (CheckResult::Ok, "CustomResourceDefinitions are up to date".to_owned())
        }
        Read::Known(Some(name)) => (
            CheckResult::Warning,
            format!(
                "the CustomResourceDefinition {name} is not that of version {}",
                crate::VERSION
            ),
        ),
        Read::Forbidden | Read::NotServed => {
            context.api.note("get", &CRDS.qualified(), None);
            (CheckResult::Skipped, format!("you may not get {}", CRDS.qualified()))
        }
    };
    Ok(check(Code::CustomResourceStale, result, text))
}

async fn the_operator(kata: &Kata, context: &Context<'_, '_>) -> Result<Vec<Check>, Failure> {
    let deployment = operator(&context.api).await?;
    let lease = lease(&context.api).await?;
    let is_abandoned = abandoned(&lease, kata, context.settings.now()).is_some();
    let state = OperatorState::of(&deployment, &lease, is_abandoned);
    if let Some(problem) = state.missing() {
        let missing = check(Code::OperatorNotRunning, CheckResult::Error, problem.message);
        return Ok(vec![Check { fix: problem.fix, ..missing }]);
    }
    let Some(deployment) = deployment.known().flatten() else {
        let (result, text) = if state == OperatorState::LeaseOnly {
            (CheckResult::Ok, "the operator holds its Lease; it has no Deployment here")
        } else {
            (CheckResult::Skipped, "you may not look for the operator's Deployment and Lease")
        };
        return Ok(vec![check(Code::OperatorNotRunning, result, text)]);
    };
    let deployment = deployment.facts();
    let ready = deployment.ready_replicas.unwrap_or_default();
    let all = deployment.replicas.unwrap_or_default();
    let runs = if ready > 0 { CheckResult::Ok } else { CheckResult::Error };
    let mut runs = check(
        Code::OperatorNotRunning,
        runs,
        format!("{ready} of {all} pods of the operator are ready"),
    );
    if ready <= 0
        && let Some(unready) = why_unready(&context.api, context.settings.now()).await?
    {
        runs.message = format!("{}: {}", runs.message, unready.message);
        runs.fix = unready.fix;
    }
    let mut checks = vec![runs];
    let theirs = deployment.version.unwrap_or_default();
    let result = match (minor(&theirs), minor(crate::VERSION)) {
        (Some((a, x)), Some((b, y))) if a == b && x.abs_diff(y) <= 1 => CheckResult::Ok,
        (Some(_), Some(_)) => CheckResult::Warning,
        _ => CheckResult::Skipped,
    };
    let text = format!("operator {theirs}, plugin {}", crate::VERSION);
    checks.push(check(Code::VersionSkew, result, text));
    let namespaces = installations(&context.api).await?;
    if namespaces.len() > 1 {
        checks.push(second_installation(namespaces, kata.active()));
    }
    Ok(checks)
}

/// The problem that the operator is in more than one namespace.
fn second_installation(namespaces: &[String], config: Option<&KataConfig>) -> Check {
    let list = human::list(namespaces, namespaces.len());
    let text = match config.and_then(kata_plan::claimed_by) {
        Some(owner) => {
            format!(
                "the operator is in the namespaces {list}; the KataConfig belongs to the one in {owner}"
            )
        }
        None => format!(
            "the operator is in the namespaces {list}; a KataConfig belongs to the first that sees it"
        ),
    };
    check(Code::OtherInstallation, CheckResult::Error, text)
}

/// Major and minor version.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let number = |text: &str| text.trim_end_matches('+').parse().ok();
    Some((number(parts.next()?)?, number(parts.next()?)?))
}

fn config(kata: &Kata, abandoned: Option<Problem>, now: Timestamp) -> Vec<Check> {
    let Some(config) = kata.active() else {
        let text = "there is no KataConfig";
        let mut checks = vec![check(Code::NoKataConfig, CheckResult::Warning, text)];
        checks.extend(
            abandoned
                .map(|problem| check(Code::OperatorSilent, CheckResult::Warning, problem.message)),
        );
        return checks;
    };
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let generation = config.metadata.generation.unwrap_or_default();
    let of_it = format!("generation {generation} of KataConfig {name} is");
    let (result, text) = match hearing(config, kata.time.unwrap_or(now)) {
        Hearing::Taken => (CheckResult::Ok, format!("{of_it} taken up")),
        Hearing::Fresh => (CheckResult::Ok, format!("{of_it} not taken up yet, and quite new")),
        Hearing::Hindered(reason) => {
            (CheckResult::Ok, format!("{of_it} not taken up: the operator says {reason}"))
        }
        Hearing::Silent(problem) => (CheckResult::Warning, problem.message),
    };
    let (result, text) = match abandoned {
        None => (result, text),
        Some(problem) => (CheckResult::Warning, format!("{text}; {}", problem.message)),
    };
    vec![
        check(Code::NoKataConfig, CheckResult::Ok, format!("KataConfig {name} exists")),
        check(Code::OperatorSilent, result, text),
    ]
}

/// Whether the API server accepts a KataConfig.
pub(super) async fn accepted(
    config: Option<&serde_json::Value>,
    context: &Context<'_, '_>,
) -> Result<Check, Failure> {
    let Some(config) = config else {
        return Ok(check(
            Code::KataConfigRefused,
            CheckResult::Skipped,
            "there is nothing to send",
        ));
    };
    let path = format!("{}?dryRun=All&fieldValidation=Strict", KATA_CONFIGS.path(None));
    let what = "try to create a KataConfig";
    let answer = context.api.write(what, http::Method::POST, &path, None, config).await;
    Ok(match answer {
        Ok(_) => check(
            Code::KataConfigRefused,
            CheckResult::Ok,
            "the API server accepts the KataConfig (nothing was created)",
        ),
        Err(Trouble::Status(status)) if status.code == 409 => check(
            Code::KataConfigRefused,
            CheckResult::Skipped,
            "a KataConfig of this name exists already",
        ),
        Err(Trouble::Status(status)) if matches!(status.code, 403 | 404) => {
            if status.code == 403 {
                context.api.note("create", &KATA_CONFIGS.qualified(), None);
            }
            check(Code::KataConfigRefused, CheckResult::Skipped, status.message.clone())
        }
        Err(Trouble::Status(status)) => {
            check(Code::KataConfigRefused, CheckResult::Error, status.message.clone())
        }
        Err(trouble) => return Err(trouble.failure(what)),
    })
}
