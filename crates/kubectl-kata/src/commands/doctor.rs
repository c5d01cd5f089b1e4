//! `doctor`: whether Kata can be installed, or works, check by check.
//!
//! What the operator would find is asked of [`kata_plan::decide`] on what the caller can see; only what the
//! operator cannot know is checked here.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kata_api::{Code, KataConfig, Severity};
use kata_plan::Kind;
use serde_json::json;

use super::{expect_output, marked};
use crate::api::{Read, Trouble};
use crate::arguments::DoctorArguments;
use crate::cluster::{Kata, operator};
use crate::document::{Category, Check, CheckReport, CheckResult, CheckSummary, Head};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::problem::hint;
use crate::resource::{CRDS, KATA_CONFIGS};
use crate::settings::{Output, Settings};
use crate::style::{Mark, Style, Tone, wrap};
use crate::{Context, snapshot};

pub(crate) mod manifest;

/// The first minor version of Kubernetes whose kubelets report runtime handlers.
const MINOR: u32 = 30;

/// A manifest alone needs no cluster; `None` if one is asked for.
pub(crate) fn offline(
    arguments: &DoctorArguments,
    settings: &Settings,
    printer: &mut crate::Printer<'_>,
) -> Option<Result<Exit, Failure>> {
    let path = arguments.filename.as_ref().filter(|_| arguments.offline)?;
    let mut run = || {
        expect(settings)?;
        let found = manifest::check(path)?;
        let category = Category { name: "manifest".to_owned(), checks: found.checks };
        let report = finish(vec![category], false, Vec::new());
        print(&report, settings, printer)
    };
    Some(run())
}

fn expect(settings: &Settings) -> Result<(), Failure> {
    let allowed = [Output::Table, Output::Wide, Output::Short, Output::Json, Output::Yaml];
    expect_output(settings, &allowed, "doctor")
}

pub(crate) async fn run(
    arguments: &DoctorArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect(context.settings)?;
    let mut categories = Vec::new();
    let mut given = None;
    if let Some(path) = &arguments.filename {
        let found = manifest::check(path)?;
        given = found.config.clone();
        let mut checks = found.checks;
        if found.value.is_some() {
            checks.push(accepted(found.value.as_ref(), context).await?);
        }
        categories.push(Category { name: "manifest".to_owned(), checks });
    }
    let now = context.settings.now();
    let kata = Kata::read(&context.api).await?;
    let pre = arguments.pre || given.is_some();
    categories.push(Category {
        name: "cluster".to_owned(),
        checks: cluster(&kata, pre, given.is_some(), context).await?,
    });
    categories.extend(decided(&kata, given, pre, now, context).await?);
    let report = finish(categories, kata.is_simulated(), context.api.gaps());
    print(&report, context.settings, context.printer)
}

/// A check that passed, or what is wrong.
fn check(code: Code, result: CheckResult, message: impl Into<String>) -> Check {
    let entry = code.entry();
    let wrong = matches!(result, CheckResult::Warning | CheckResult::Error);
    Check {
        id: entry.code.to_owned(),
        description: entry.reason.to_owned(),
        result,
        subjects: Vec::new(),
        message: message.into(),
        fix: if wrong { entry.fix.to_owned() } else { String::new() },
        hint: hint(entry.code),
    }
}

fn by_severity(code: Code) -> CheckResult {
    match code.entry().severity {
        Severity::Info => CheckResult::Ok,
        Severity::Warning => CheckResult::Warning,
        Severity::Error => CheckResult::Error,
    }
}

/// What the operator cannot check, because it would not run, or is what is asked about.
async fn cluster(
    kata: &Kata,
    pre: bool,
    has_manifest: bool,
    context: &Context<'_, '_>,
) -> Result<Vec<Check>, Failure> {
    let api = &context.api;
    let mut checks = vec![kubernetes(&kata.version.git_version)];
    match &kata.configs {
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
    checks.push(match api.may("create", KATA_CONFIGS, None).await? {
        Some(true) => {
            check(Code::PermissionMissing, CheckResult::Ok, "you may create a KataConfig")
        }
        Some(false) => check(
            Code::PermissionMissing,
            CheckResult::Warning,
            format!("you may not create {}", KATA_CONFIGS.qualified()),
        ),
        None => check(
            Code::PermissionMissing,
            CheckResult::Skipped,
            "the cluster does not say what you may do",
        ),
    });
    checks.extend(the_operator(context).await?);
    if pre && !has_manifest && matches!(kata.configs, Read::Known(_)) {
        let sample = json!({
            "apiVersion": "kataconfiguration.openshift.io/v1",
            "kind": "KataConfig",
            "metadata": {"name": "kata-doctor"},
            "spec": {},
        });
        checks.push(accepted(Some(&sample), context).await?);
    }
    if !pre && matches!(kata.configs, Read::Known(_)) {
        checks.extend(config(kata));
    }
    Ok(checks)
}

fn kubernetes(version: &str) -> Check {
    let minor = version
        .trim_start_matches('v')
        .split('.')
        .nth(1)
        .and_then(|minor| minor.trim_end_matches('+').parse::<u32>().ok());
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
    for definition in kata_api::crds() {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let served = match context.api.get::<serde_json::Value>(CRDS, None, &name).await? {
            Read::Known(Some(served)) => served,
            Read::Known(None) | Read::NotServed => json!({}),
            Read::Forbidden => {
                return Ok(check(
                    Code::CustomResourceStale,
                    CheckResult::Skipped,
                    format!("you may not get {}", CRDS.qualified()),
                ));
            }
        };
        let wanted = json!(definition.spec.versions);
        if !includes(&served["spec"]["versions"], &wanted) {
            return Ok(check(
                Code::CustomResourceStale,
                CheckResult::Warning,
                format!(
                    "the CustomResourceDefinition {name} is not that of version {}",
                    crate::VERSION
                ),
            ));
        }
    }
    Ok(check(
        Code::CustomResourceStale,
        CheckResult::Ok,
        "CustomResourceDefinitions are up to date",
    ))
}

/// Whether one value has all of another; the API server adds defaults.
fn includes(served: &serde_json::Value, wanted: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (served, wanted) {
        (Value::Object(served), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            key == "description"
                || value.is_null()
                || served.get(key).is_some_and(|served| includes(served, value))
        }),
        (Value::Array(served), Value::Array(wanted)) => {
            served.len() == wanted.len()
                && served.iter().zip(wanted).all(|(served, wanted)| includes(served, wanted))
        }
        (served, wanted) => served == wanted,
    }
}

async fn the_operator(context: &Context<'_, '_>) -> Result<Vec<Check>, Failure> {
    let deployment = match operator(&context.api).await? {
        Read::Known(Some(deployment)) => deployment.facts(),
        Read::Known(None) | Read::NotServed => {
            return Ok(vec![check(
                Code::OperatorNotRunning,
                CheckResult::Skipped,
                format!(
                    "there is no Deployment {} in {}; the operator may run elsewhere",
                    kata_api::names::PRODUCT,
                    kata_api::names::NAMESPACE
                ),
            )]);
        }
        Read::Forbidden => {
            let text = "you may not get the operator's Deployment";
            return Ok(vec![check(Code::OperatorNotRunning, CheckResult::Skipped, text)]);
        }
    };
    let ready = deployment.ready_replicas.unwrap_or_default();
    let all = deployment.replicas.unwrap_or_default();
    let runs = if ready > 0 { CheckResult::Ok } else { CheckResult::Error };
    let text = format!("{ready} of {all} pods of the operator are ready");
    let mut checks = vec![check(Code::OperatorNotRunning, runs, text)];
    let theirs = deployment.version.unwrap_or_default();
    let result = match (minor(&theirs), minor(crate::VERSION)) {
        (Some((a, x)), Some((b, y))) if a == b && x.abs_diff(y) <= 1 => CheckResult::Ok,
        (Some(_), Some(_)) => CheckResult::Warning,
        _ => CheckResult::Skipped,
    };
    let text = format!("operator {theirs}, plugin {}", crate::VERSION);
    checks.push(check(Code::VersionSkew, result, text));
    Ok(checks)
}

/// Major and minor version.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn config(kata: &Kata) -> Vec<Check> {
    let Some(config) = kata.active() else {
        let text = "there is no KataConfig";
        return vec![check(Code::NoKataConfig, CheckResult::Warning, text)];
    };
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let observed = config.status.as_ref().and_then(|status| status.observed_generation);
    let taken = observed == config.metadata.generation;
    let generation = config.metadata.generation.unwrap_or_default();
    vec![
        check(Code::NoKataConfig, CheckResult::Ok, format!("KataConfig {name} exists")),
        check(
            Code::OperatorSilent,
            if taken { CheckResult::Ok } else { CheckResult::Warning },
            format!(
                "generation {generation} of KataConfig {name} is {}taken up",
                if taken { "" } else { "not " }
            ),
        ),
    ]
}

/// Whether the API server accepts a KataConfig.
async fn accepted(
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

/// What the operator finds, or would find with the given KataConfig.
async fn decided(
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
    let snapshot = snapshot::read(&context.api, now, configs).await?;
    let report = kata_plan::decide(&snapshot).report;
    let mut categories = vec![
        Category { name: "configuration".to_owned(), checks: Vec::new() },
        Category { name: "nodes".to_owned(), checks: Vec::new() },
    ];
    for code in Code::ALL {
        let place = match code.entry().code.get(4..5) {
            Some("1" | "4") => 0,
            Some("2") => 1,
            _ => continue,
        };
        let Some(category) = categories.get_mut(place) else { continue };
        let found: Vec<_> =
            report.findings.iter().filter(|finding| finding.code == *code).collect();
        if found.is_empty() {
            let cause = code.entry().cause;
            category.checks.push(check(*code, CheckResult::Ok, format!("not so: {cause}")));
        }
        for finding in found {
            let mut check = check(*code, by_severity(*code), finding.message.clone());
            if check.result != CheckResult::Ok {
                check.fix.clone_from(&finding.fix);
            }
            check.subjects = vec![subject(finding.subject.kind, &finding.subject.name)];
            // Before there is a KataConfig it is no failure that nobody labelled a node yet.
            category.checks.push(check);
        }
    }
    Ok(categories)
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

fn finish(categories: Vec<Category>, simulated: bool, gaps: Vec<crate::api::Gap>) -> CheckReport {
    let mut summary = CheckSummary::default();
    for check in categories.iter().flat_map(|category| &category.checks) {
        match check.result {
            CheckResult::Ok => summary.passed += 1,
            CheckResult::Warning => summary.warnings += 1,
            CheckResult::Error => summary.failed += 1,
            CheckResult::Skipped => summary.skipped += 1,
        }
    }
    CheckReport {
        head: Head::new("CheckReport", simulated),
        success: summary.failed == 0,
        summary,
        categories,
        gaps,
    }
}

fn print(
    report: &CheckReport,
    settings: &Settings,
    printer: &mut crate::Printer<'_>,
) -> Result<Exit, Failure> {
    if !printer.document(settings.output, report)? {
        let style = printer.style();
        for line in lines(report, settings, &style) {
            printer.line(&line)?;
        }
    }
    Ok(if !report.success || (settings.fail_on_warning && report.summary.warnings > 0) {
        Exit::Findings
    } else {
        Exit::Fine
    })
}

fn lines(report: &CheckReport, settings: &Settings, style: &Style) -> Vec<String> {
    let width = style.width.unwrap_or(usize::MAX).max(40);
    let mut lines = Vec::new();
    for category in &report.categories {
        let quiet = |check: &&Check| {
            check.result == CheckResult::Ok && check.message.starts_with("not so: ")
        };
        let short = settings.output == Output::Short;
        let shown: Vec<&Check> = category
            .checks
            .iter()
            .filter(|check| settings.is_wide() || !quiet(check))
            .filter(|check| !short || check.result != CheckResult::Ok)
            .collect();
        let silent = category.checks.iter().filter(quiet).count();
        if short && shown.is_empty() {
            continue;
        }
        lines.push(category.name.clone());
        for check in shown {
            let mark = match check.result {
                CheckResult::Ok => Mark::Good,
                CheckResult::Warning => Mark::Warn,
                CheckResult::Error => Mark::Bad,
                CheckResult::Skipped => Mark::Skip,
            };
            let skipped = if check.result == CheckResult::Skipped { "skipped: " } else { "" };
            let text = style.plain(&format!("{} {skipped}{}", check.id, check.message));
            for (at, line) in wrap(&text, width - 4).iter().enumerate() {
                let mark = if at == 0 { style.mark(mark).into_owned() } else { " ".to_owned() };
                lines.push(format!("  {mark} {line}"));
            }
            if !check.fix.is_empty() {
                let fix = style.plain(&format!("fix: {}", check.fix.trim_end_matches('.')));
                lines.extend(wrap(&fix, width - 6).iter().map(|line| format!("      {line}")));
            }
        }
        if silent > 0 && !settings.is_wide() && !short {
            let text = format!("{silent} checks of the operator find nothing (-o wide lists them)");
            lines.push(format!("  {} {text}", style.mark(Mark::Good)));
        }
    }
    let CheckSummary { passed, warnings, failed, skipped } = report.summary;
    let tone = match (failed, warnings) {
        (0, 0) => Tone::Good,
        (0, _) => Tone::Warn,
        _ => Tone::Bad,
    };
    let text = format!("{passed} passed, {warnings} warnings, {failed} failed, {skipped} skipped");
    lines.push(style.paint(tone, &marked(&text, report.head.simulated)).into_owned());
    lines
}
