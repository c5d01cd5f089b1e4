//! `accept`: proves on a cluster that Kata can be installed, isolates, and is removed again: on one node, from nothing to
//! nothing. The steps are those of a person, by the same verbs; what each found is in the report.
//!
//! It touches nothing that was there before. What it makes has one name and one label, so that the next run removes what a run
//! left that was killed.

mod belongings;
mod changes;
mod course;
mod installation;
mod inventory;
mod isolation;
mod page;
mod plan;
mod pods;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::{ask_consent, expect_output, marked};
use crate::Context;
use crate::api::{Api, Read};
use crate::arguments::AcceptArguments;
use crate::cluster::Kata;
use crate::document::{AcceptReport, Fact, FactResult, Head, Step};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::printer::Printer;
use crate::resource::NODES;
use crate::settings::{Output, Settings};
use crate::style::{Mark, Style};
use crate::table::{Cell, Table, column};
use belongings::Belongings;
use course::{Course, Stop};
use plan::Plan;

pub(crate) async fn run(
    arguments: &AcceptArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    match Box::pin(prove(arguments, context)).await {
        // A reader that is gone is the end of other commands; here it is no proof.
        Err(Failure::Output(error)) => Err(Failure::Output(io::Error::other(error))),
        proven => proven,
    }
}

async fn prove(
    arguments: &AcceptArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let allowed = [Output::Table, Output::Wide, Output::Json, Output::Yaml];
    expect_output(context.settings, &allowed, "accept")?;
    if arguments.timeout.is_zero() {
        return Err(Failure::Usage("--timeout 0: give the time that a step may take".to_owned()));
    }
    let node = arguments.node.trim_start_matches("node/");
    let found = match context.api.get::<Value>(NODES, None, node).await? {
        Read::Known(Some(found)) => found,
        Read::Forbidden => {
            return Err(Failure::Forbidden(format!(
                "cannot get node {node}: you may not get nodes"
            )));
        }
        Read::Known(None) | Read::NotServed => {
            let text = format!("there is no node {node}; `kubectl get nodes` lists them");
            return Err(Failure::NotFound(text));
        }
    };
    let kata = Kata::read(&context.api).await?;
    let earlier = Box::pin(Belongings::find(context)).await?;
    let at_work = earlier.at_work(context.settings.now());
    if let Some(refusal) = earlier.foreign.as_ref().or(at_work.as_ref()) {
        return refusal.print(context);
    }
    let mut plan = None;
    if earlier.is_empty() {
        match Box::pin(Plan::of(arguments, &found, context)).await? {
            Ok(made) => plan = Some(made),
            Err(exit) => return Ok(exit),
        }
    } else {
        let left = earlier.describe();
        let text = format!("An earlier run left {left}. This command removes that first.");
        context.printer.say(&context.marked(&text))?;
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
    let mut file = arguments.report.as_deref().map(open).transpose()?;
    let mut course = Course::new(node, &found, arguments);
    let plan = match plan {
        Some(plan) => plan,
        None => {
            match Box::pin(course.remove_earlier(&earlier, context)).await {
                Ok(()) => {}
                Err(Stop::Interrupted) => return Ok(Exit::Interrupted),
                Err(Stop::Failed(failure)) => return Err(failure),
            }
            context.api = anew(&context.api);
            match Box::pin(Plan::of(arguments, &found, context)).await? {
                Ok(made) => made,
                Err(exit) => return Ok(exit),
            }
        }
    };
    let is_interrupted = Box::pin(course.run(&plan, context)).await?;
    let mut facts = course.steps.iter().flat_map(|step| &step.facts);
    let report = AcceptReport {
        head: Head::new("AcceptReport", kata.is_simulated()),
        time: begun,
        success: !is_interrupted && facts.all(|fact| fact.result != FactResult::Failed),
        node: node.to_owned(),
        environment: course.environment,
        steps: course.steps,
        gaps: context.api.gaps(),
    };
    let printed = print(&report, context);
    if let (Some(file), Some(path)) = (&mut file, &arguments.report) {
        write(&report, file, path)?;
        context.printer.say(&context.marked(&format!("wrote {}", path.display())))?;
    }
    printed?;
    Ok(match (is_interrupted, report.success) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Fine,
        (false, false) => Exit::Findings,
    })
}

/// Opens the file of the page: it would be late to learn after the proof that it cannot be written.
fn open(path: &Path) -> Result<File, Failure> {
    let file = File::options().create(true).write(true).truncate(false).open(path);
    file.map_err(|source| Failure::File { path: path.to_owned(), source })
}

fn write(report: &AcceptReport, file: &mut File, path: &Path) -> Result<(), Failure> {
    let html = page::page(report).into_string();
    let written = file.set_len(0).and_then(|()| file.write_all(html.as_bytes()));
    written.map_err(|source| Failure::File { path: path.to_owned(), source })
}

/// The same API server, of which nothing was kept.
fn anew(api: &Api) -> Arc<Api> {
    let fresh = api.for_watches();
    if let Some(simulated) = api.known_simulated() {
        fresh.note_simulated(simulated);
    }
    Arc::new(fresh)
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

/// Runs a verb that says nothing here, and keeps nothing of what was read before; returns what it would have said.
async fn quietly<R>(
    context: &Context<'_, '_>,
    interrupt: watch::Receiver<bool>,
    verb: impl AsyncFnOnce(&mut Context<'_, '_>) -> R,
) -> (R, String) {
    let settings = Settings { output: Output::Table, ..context.settings.clone() };
    let (mut data, mut talk) = (std::io::sink(), Vec::new());
    let (api, place) = (anew(&context.api), context.place.clone());
    let mut printer = Printer::new(&mut data, &mut talk, settings.style, false);
    let mut inner = Context { api, place, settings: &settings, printer: &mut printer, interrupt };
    let result = Box::pin(verb(&mut inner)).await;
    (result, String::from_utf8_lossy(&talk).trim().replace('\n', "; "))
}

fn print(report: &AcceptReport, context: &mut Context<'_, '_>) -> Result<(), Failure> {
    if context.printer.document(context.settings.output, report)? {
        return Ok(());
    }
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
    let skipped = match count(FactResult::Skipped) {
        0 => String::new(),
        skipped => format!(", {skipped} skipped"),
    };
    let (mark, word) =
        if report.success { (Mark::Good, "ACCEPTED") } else { (Mark::Bad, "NOT ACCEPTED") };
    let text = format!(
        "{} {}  node {}: {held} of {} facts held{skipped}",
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
