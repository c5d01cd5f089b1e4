//! `accept`: proves on a cluster that Kata can be installed, isolates, and is removed again: on one node, from nothing to
//! nothing. The steps are those of a person, by the same verbs; what each found is in the report.
//!
//! It touches nothing that was there before. What it makes has one name and one label, so that the next run removes what a run
//! left that was killed.

mod belongings;
mod course;
mod inventory;
mod page;

use std::sync::Arc;

use kata_api::names;
use serde_json::Value;
use tokio::sync::watch;

use super::{ask_consent, expect_output, install, marked};
use crate::Context;
use crate::arguments::{AcceptArguments, ChangeArguments, DryRun, InstallArguments};
use crate::cluster::Kata;
use crate::document::{AcceptReport, Fact, FactResult, Head, Step};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::printer::Printer;
use crate::refusal::Refusal;
use crate::resource::NODES;
use crate::settings::{Output, Settings};
use crate::style::{Mark, Style};
use crate::table::{Cell, Table, column};
use belongings::{Belongings, Extent, NAME};
use course::Course;

pub(crate) async fn run(
    arguments: &AcceptArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let allowed = [Output::Table, Output::Wide, Output::Json, Output::Yaml];
    expect_output(context.settings, &allowed, "accept")?;
    let kata = Kata::read(&context.api).await?;
    let mut names = kata.configs.items().iter().filter_map(|it| it.metadata.name.as_deref());
    // Not the active one alone: another would become active once ours is gone.
    if let Some(name) = names.find(|name| *name != NAME) {
        let text = format!(
            "there is KataConfig {name}, and this command begins with a cluster without one"
        );
        let fix = "prove what is installed by `kubectl kata verify`, or take another cluster";
        return Refusal::new(text, fix).print(context);
    }
    let node = arguments.node.trim_start_matches("node/");
    let Some(found) = context.api.get::<Value>(NODES, None, node).await?.known().flatten() else {
        return Err(Failure::NotFound(format!("there is no node {node}, or you may not get it")));
    };
    let earlier = Belongings::find(context).await?;
    if let Some(namespace) = &earlier.foreign_namespace {
        let text = format!("namespace {namespace} is there, and not by this command");
        return Refusal::new(text, "delete or rename it").print(context);
    }
    let extent = Extent::of(&earlier, context).await?;
    let install = installation(arguments, &found, extent);
    if let Some(exit) = announce(&install, &earlier, extent, node, context).await? {
        return Ok(exit);
    }
    if arguments.dry_run {
        context.printer.say("nothing changed. Next: the same without --dry-run")?;
        return Ok(Exit::Fine);
    }
    let what = format!("accept changes node {node} twice, and removes Kata from it");
    if let Some(exit) = ask_consent(arguments.yes, &what, context).await? {
        return Ok(exit);
    }
    let begun = context.settings.now();
    let mut course = Course::new(node, &found, arguments, &install, extent);
    let interrupted = Box::pin(course.run(&earlier, context)).await?;
    let report = AcceptReport {
        head: Head::new("AcceptReport", kata.is_simulated()),
        time: begun,
        success: !interrupted
            && course
                .steps
                .iter()
                .flat_map(|step| &step.facts)
                .all(|fact| fact.result != FactResult::Failed),
        node: node.to_owned(),
        environment: course.environment,
        steps: course.steps,
        gaps: context.api.gaps(),
    };
    if let Some(path) = &arguments.report {
        let html = page::page(&report).into_string();
        let failed = |source| Failure::File { path: path.clone(), source };
        std::fs::write(path, html).map_err(failed)?;
        context.printer.say(&context.marked(&format!("wrote {}", path.display())))?;
    }
    if !context.printer.document(context.settings.output, &report)? {
        print(&report, context)?;
    }
    Ok(match (interrupted, report.success) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Fine,
        (false, false) => Exit::Findings,
    })
}

/// The installation of the proof. The node has its label when it begins.
fn installation(arguments: &AcceptArguments, object: &Value, extent: Extent) -> InstallArguments {
    let mut selector = format!("{}={}", names::ACCEPT_LABEL, extent.value());
    // A node of the control plane is selected only if the selector names it.
    let role = names::CONTROL_PLANE_ROLE_LABEL;
    if let Some(value) = object["metadata"]["labels"][role].as_str() {
        selector.push_str(&format!(",{role}={value}"));
    }
    InstallArguments {
        name: NAME.to_owned(),
        node_selector: Some(selector),
        operator_image: arguments.operator_image.clone(),
        payload_image: arguments.payload_image.clone(),
        change: ChangeArguments { yes: true, wait: false, timeout: arguments.timeout },
        dry_run: DryRun::None,
        ..InstallArguments::default()
    }
}

/// Says what will be done; how the command ends if the installation would be refused.
async fn announce(
    install: &InstallArguments,
    earlier: &Belongings,
    extent: Extent,
    node: &str,
    context: &mut Context<'_, '_>,
) -> Result<Option<Exit>, Failure> {
    let operator = if extent == Extent::Kata { "" } else { "the operator and " };
    let text = format!(
        "This command installs {operator}Kata on node {node}, runs pods there, and removes all of it again."
    );
    context.printer.say(&context.marked(&text))?;
    if !earlier.is_empty() {
        context.printer.say("An earlier run left something, which is removed first.")?;
        return Ok(None);
    }
    let mut trial = InstallArguments { dry_run: DryRun::Server, ..install.clone() };
    let selector = trial.node_selector.as_deref().unwrap_or_default();
    if !selector.contains(names::CONTROL_PLANE_ROLE_LABEL) {
        trial.node = vec![node.to_owned()];
    }
    let interrupt = context.interrupt.clone();
    let exit = aside(context, interrupt, async |context: &mut Context<'_, '_>| {
        install::run(&trial, context).await
    })
    .await?;
    Ok(Some(exit).filter(|exit| *exit != Exit::Fine))
}

/// Runs a verb whose data is not that of this command; its talk is.
async fn aside<R>(
    context: &mut Context<'_, '_>,
    interrupt: watch::Receiver<bool>,
    verb: impl AsyncFnOnce(&mut Context<'_, '_>) -> R,
) -> R {
    let settings = Settings { output: Output::Table, ..context.settings.clone() };
    let mut nowhere = std::io::sink();
    let (api, place) = (Arc::clone(&context.api), context.place.clone());
    let mut printer: Printer<'_> = context.printer.aside(&mut nowhere);
    let mut inner = Context { api, place, settings: &settings, printer: &mut printer, interrupt };
    // On the heap: a verb is as large as a command.
    Box::pin(verb(&mut inner)).await
}

/// Runs a verb that says nothing here; returns what it would have said.
async fn quietly<R>(
    context: &Context<'_, '_>,
    interrupt: watch::Receiver<bool>,
    verb: impl AsyncFnOnce(&mut Context<'_, '_>) -> R,
) -> (R, String) {
    let settings = Settings { output: Output::Table, ..context.settings.clone() };
    let (mut data, mut talk) = (std::io::sink(), Vec::new());
    let (api, place) = (Arc::clone(&context.api), context.place.clone());
    let mut printer = Printer::new(&mut data, &mut talk, settings.style, false);
    let mut inner = Context { api, place, settings: &settings, printer: &mut printer, interrupt };
    let result = Box::pin(verb(&mut inner)).await;
    (result, String::from_utf8_lossy(&talk).trim().replace('\n', "; "))
}

fn print(report: &AcceptReport, context: &mut Context<'_, '_>) -> Result<(), Failure> {
    let style = context.printer.style();
    let mut table = Table::new(&[column("STEP"), column("TIME"), column("RESULT")]);
    for step in &report.steps {
        let time = format!("{:.0}s", step.seconds);
        table.row(vec![step.title.as_str().into(), time.into(), Cell::from(result(step))]);
    }
    context.printer.table(&table, false, context.settings.titles)?;
    for fact in report.steps.iter().flat_map(|step| &step.facts) {
        if context.settings.is_wide() || fact.result != FactResult::Held {
            context.printer.line(&line(fact, &style))?;
        }
    }
    let count = |result| {
        let facts = report.steps.iter().flat_map(|step| &step.facts);
        facts.filter(|fact| fact.result == result).count()
    };
    let (held, failed) = (count(FactResult::Held), count(FactResult::Failed));
    let (mark, word) =
        if report.success { (Mark::Good, "ACCEPTED") } else { (Mark::Bad, "NOT ACCEPTED") };
    let text = format!(
        "{} {}  node {}: {held} of {} facts held",
        style.mark(mark),
        word,
        report.node,
        held + failed
    );
    Ok(context.printer.line(&marked(&text, report.head.simulated))?)
}

fn result(step: &Step) -> String {
    let count = |result| step.facts.iter().filter(|fact| fact.result == result).count();
    let (held, failed) = (count(FactResult::Held), count(FactResult::Failed));
    if failed > 0 {
        format!("{failed} of {} failed", held + failed)
    } else {
        human::count(held, "fact")
    }
}

fn line(fact: &Fact, style: &Style) -> String {
    let mark = match fact.result {
        FactResult::Held => Mark::Good,
        FactResult::Failed => Mark::Bad,
        FactResult::Skipped => Mark::Skip,
    };
    format!("  {} {}: {}", style.mark(mark), fact.expected, fact.seen)
}
