//! `doctor`: whether Kata can be installed, or works, check by check.
//!
//! What the operator would find is asked of [`kata_plan::decide`] on what the caller can see; only what the
//! operator cannot know is checked here.

use kata_api::Code;

use super::{expect_output, marked};
use crate::Context;
use crate::arguments::DoctorArguments;
use crate::cluster::Kata;
use crate::document::{Category, Check, CheckReport, CheckResult, CheckSummary, Head};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::problem::hint;
use crate::settings::{Output, Settings};
use crate::style::{Mark, Style, Tone, wrap};

mod admission;
mod cluster;
mod decided;
pub(crate) mod manifest;
mod node_pools;
mod schema;

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
    let report = report(arguments, context).await?;
    print(&report, context.settings, context.printer)
}

/// Makes all checks.
pub(crate) async fn report(
    arguments: &DoctorArguments,
    context: &Context<'_, '_>,
) -> Result<CheckReport, Failure> {
    let mut categories = Vec::new();
    let mut given = None;
    if let Some(path) = &arguments.filename {
        let found = manifest::check(path)?;
        let mut checks = found.checks;
        if found.value.is_some() {
            checks.push(cluster::accepted(found.value.as_ref(), context).await?);
        }
        // What would come of a KataConfig that is refused is nobody's question.
        let refused = checks.iter().any(|check| check.result == CheckResult::Error);
        given = found.config.filter(|_| !refused);
        categories.push(Category { name: "manifest".to_owned(), checks });
    }
    let kata = Kata::read(&context.api).await?;
    let now = context.settings.now();
    let manifest = arguments.filename.is_some();
    let pre = arguments.pre || manifest;
    categories.push(Category {
        name: "cluster".to_owned(),
        checks: cluster::checks(&kata, pre, manifest, context).await?,
    });
    if given.is_some() || !manifest {
        categories.extend(decided::categories(&kata, given, pre, now, context).await?);
    }
    Ok(finish(categories, kata.is_simulated(), context.api.gaps()))
}

/// What is wrong with a KataConfig, checked without a cluster.
pub(super) fn violations(config: &serde_json::Value) -> Vec<String> {
    let Some(schema) = manifest::schema() else { return Vec::new() };
    let named = manifest::misnamed(&config["metadata"]).into_iter();
    let wrong = named.chain(schema::violations(config, &schema));
    wrong.map(|(path, text)| format!("{}: {text}", path.join("."))).collect()
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
    let warned = human::count(warnings, "warning");
    let text = format!("{passed} passed, {warned}, {failed} failed, {skipped} skipped");
    lines.push(style.paint(tone, &marked(&text, report.head.simulated)).into_owned());
    lines
}
