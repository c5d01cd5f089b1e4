//! The verbs. Each reads, asks what to make of it, and prints.

mod accept;
mod codes;
pub(crate) mod completion;
mod doctor;
mod history;
mod install;
mod listing;
mod logs;
mod must_gather;
mod nodes;
mod pods;
mod pool;
mod reference;
mod report;
mod schema;
mod status;
mod steer;
mod take_over;
mod uninstall;
mod upgrade;
mod verify;
pub(crate) mod version;
mod wait;
pub(crate) mod why;

pub(crate) use status::held_by_budgets;

use std::io::IsTerminal as _;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kata_plan::Platform;

use crate::Context;
use crate::api::Read;
use crate::arguments::Command;
use crate::document::{Head, NodeList, PodList, Problem};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::printer::Printer;
use crate::resource::{KATA_CONFIGS, PODS, RUNTIME_CLASSES, Resource};
use crate::settings::{Output, Settings};
use crate::style::{Mark, Style, Tone, wrap};

/// The result of a command that needs no cluster; `None` if it needs one.
pub(crate) fn offline(
    command: &Command,
    settings: &Settings,
    printer: &mut Printer<'_>,
) -> Option<Result<Exit, Failure>> {
    match command {
        Command::Codes(arguments) => Some(codes::run(arguments, settings, printer)),
        Command::Completion(arguments) => Some(completion::script(arguments, printer)),
        Command::Version(arguments) if arguments.client => Some(version::client(settings, printer)),
        Command::Schema(arguments) => Some(schema::run(arguments, printer)),
        Command::Reference => Some(reference::run(printer)),
        Command::Options => {
            Some(printer.raw(&crate::help::options()).map(|()| Exit::Fine).map_err(Failure::from))
        }
        Command::Doctor(arguments) => doctor::offline(arguments, settings, printer),
        Command::Install(arguments) => install::offline(arguments, settings, printer),
        Command::Complete(arguments) => completion::offline(arguments, printer),
        _ => None,
    }
}

/// Runs a command that needs the cluster.
pub(crate) async fn online(command: &Command, context: Context<'_, '_>) -> Result<Exit, Failure> {
    let mut context = context;
    let context = &mut context;
    let exit = match command {
        Command::Status(arguments) => status::run(arguments, context).await,
        Command::Pods(arguments) => listing::run::<PodList>(arguments, context).await,
        Command::Nodes(arguments) => listing::run::<NodeList>(arguments, context).await,
        Command::Wait(arguments) => wait::run(arguments, context).await,
        Command::Doctor(arguments) => doctor::run(arguments, context).await,
        Command::Verify(arguments) => verify::run(arguments, context).await,
        Command::Accept(arguments) => accept::run(arguments, context).await,
        Command::MustGather(arguments) => must_gather::run(arguments, context).await,
        Command::Why(arguments) => why::run(arguments, context).await,
        Command::History(arguments) => history::run(arguments, context).await,
        Command::Report(arguments) => report::run(arguments, context).await,
        Command::Logs(arguments) => logs::run(arguments, context).await,
        Command::Install(arguments) => install::run(arguments, context).await,
        Command::Pool(arguments) => pool::run(arguments, context).await,
        Command::Upgrade(arguments) => upgrade::run(arguments, context).await,
        Command::TakeOver(arguments) => take_over::run(arguments, context).await,
        Command::Uninstall(arguments) => uninstall::run(arguments, context).await,
        Command::Retry(arguments) => steer::retry(arguments, context).await,
        Command::Pause(arguments) => steer::pause(true, arguments, context).await,
        Command::Resume(arguments) => steer::pause(false, arguments, context).await,
        Command::Version(_) => version::run(context).await,
        Command::Complete(arguments) => return completion::online(arguments, context).await,
        _ => Ok(Exit::Fine),
    }?;
    close(command, context, exit)
}

/// The kinds without which a command cannot conclude that all is well; `None` if that is all that it asks for.
fn decisive(command: &Command) -> Option<&'static [Resource]> {
    match command {
        // Which pods are sandboxed follows from these.
        Command::Pods(_) => Some(&[PODS, RUNTIME_CLASSES, KATA_CONFIGS]),
        // They say themselves that they cannot read what decides.
        Command::Status(_)
        | Command::Wait(_)
        | Command::Nodes(_)
        | Command::History(_)
        | Command::Report(_)
        | Command::Retry(_)
        | Command::Pause(_)
        | Command::Resume(_)
        | Command::Version(_) => Some(&[]),
        _ => None,
    }
}

/// Names what could not be read. If it could change the result, the result is not known.
fn close(command: &Command, context: &mut Context<'_, '_>, exit: Exit) -> Result<Exit, Failure> {
    let gaps = context.api.gaps();
    if gaps.is_empty() {
        return Ok(exit);
    }
    let unseen = crate::problem::unseen(&context.api);
    context.printer.say(&format!("not everything could be seen: {unseen}"))?;
    // What is not read may hide a warning.
    let kinds = decisive(command).filter(|_| !context.settings.fail_on_warning);
    let decides = kinds.is_none_or(|kinds| {
        gaps.iter().any(|gap| kinds.iter().any(|kind| kind.qualified() == gap.resource))
    });
    Ok(if exit == Exit::Fine && decides { Exit::Inconclusive } else { exit })
}

/// A pod, which has to be there.
pub(crate) async fn existing_pod(
    name: &str,
    namespace: &str,
    context: &Context<'_, '_>,
) -> Result<serde_json::Value, Failure> {
    match context.api.get::<serde_json::Value>(PODS, Some(namespace), name).await? {
        Read::Known(Some(pod)) => Ok(pod),
        Read::Known(None) | Read::NotServed => {
            Err(Failure::NotFound(format!("there is no pod {name} in namespace {namespace}")))
        }
        Read::Forbidden => Err(Failure::Forbidden(format!(
            "cannot look at pod {name}: you may not get pods in namespace {namespace}"
        ))),
    }
}

/// The head of a document, with what says that nothing was measured.
pub(crate) fn marked(text: &str, simulated: bool) -> String {
    if simulated { format!("{text} (simulated)") } else { text.to_owned() }
}

/// How many of so many nodes are changed at once, as the end of a sentence; `value` is what a KataConfig says of
/// it, where it says it of this change.
pub(crate) fn pace(platform: Platform, value: Option<&IntOrString>, nodes: usize) -> String {
    match (value, platform) {
        _ if nodes < 2 => String::new(),
        (None, Platform::OpenShift) => {
            ", one at a time unless maxUnavailable of their MachineConfigPool says otherwise"
                .to_owned()
        }
        _ => match kata_plan::most_unavailable(value, nodes) {
            1 => ", one at a time".to_owned(),
            most => format!(", at most {most} at a time"),
        },
    }
}

/// Asks whether to go on, where there is a terminal; elsewhere `yes` is the answer. How the command ends if the user
/// does not agree; `what` says what is refused then, such as `install reboots 3 nodes`.
pub(crate) async fn ask_consent(
    yes: bool,
    what: &str,
    context: &mut Context<'_, '_>,
) -> Result<Option<Exit>, Failure> {
    if yes {
        return Ok(None);
    }
    if !context.printer.is_live() || !std::io::stdin().is_terminal() {
        context.printer.say(&format!("refused: {what}; add --yes or use --dry-run"))?;
        return Ok(Some(Exit::Refused));
    }
    context.printer.ask("Continue? [y/N] ")?;
    let (send, answered) = tokio::sync::oneshot::channel();
    // A thread of its own: a signal ends the command while it waits for a line.
    std::thread::spawn(move || {
        let mut answer = String::new();
        // The command that asked may be gone.
        drop(send.send(std::io::stdin().read_line(&mut answer).map(|_length| answer)));
    });
    let answer = tokio::select! {
        answer = answered => answer.unwrap_or_else(|_gone| Ok(String::new()))?,
        () = context.interrupted() => {
            context.printer.say("")?;
            return Ok(Some(Exit::Interrupted));
        }
    };
    if ["y", "yes"].iter().any(|word| answer.trim().eq_ignore_ascii_case(word)) {
        return Ok(None);
    }
    context.printer.say("nothing was changed")?;
    Ok(Some(Exit::Refused))
}

/// Problems for people: what, then how to go on.
pub(crate) fn problem_lines(problems: &[Problem], style: &Style) -> Vec<String> {
    let mut lines = Vec::new();
    let width = style.width.unwrap_or(usize::MAX).max(40);
    let same = |a: &Problem, b: &Problem| a.severity == "info" && a.id == b.id;
    for (at, problem) in problems.iter().enumerate() {
        // Many nodes may have the same one.
        if problems.iter().take(at).any(|other| same(problem, other)) {
            continue;
        }
        let others = problems.iter().skip(at + 1).filter(|other| same(problem, other));
        let others: Vec<&str> = others.map(|other| other.subject.as_str()).collect();
        let others = match others.as_slice() {
            [] => String::new(),
            names => format!("; the same: {}", human::list(names, 3)),
        };
        let mark = match problem.severity {
            "error" => Mark::Bad,
            "warning" => Mark::Warn,
            _ => Mark::Skip,
        };
        let text = style.plain(&format!("{} {}{others}", problem.id, problem.message));
        for (at, line) in wrap(&text, width - 4).iter().enumerate() {
            if at == 0 {
                lines.push(format!("  {} {line}", style.mark(mark)));
            } else {
                lines.push(format!("    {line}"));
            }
        }
        lines.extend(problem.who.map(|who| format!("      who: {who}")));
        let fix = style.plain(&format!("fix: {}", problem.fix.trim_end_matches('.')));
        lines.extend(wrap(&fix, width - 6).iter().map(|line| format!("      {line}")));
        let more = format!("      more: kubectl kata codes {}", problem.id);
        lines.push(style.paint(Tone::Dim, &more).into_owned());
    }
    lines
}

/// Whether an exit code is to be 1 because of warnings.
pub(crate) fn judged(problems: &[Problem], settings: &Settings, otherwise: Exit) -> Exit {
    let warned = problems.iter().any(|problem| problem.severity != "info");
    if otherwise == Exit::Fine && settings.fail_on_warning && warned {
        Exit::Findings
    } else {
        otherwise
    }
}

/// Refuses formats that a command has no use for.
pub(crate) fn expect_output(
    settings: &Settings,
    allowed: &[Output],
    verb: &str,
) -> Result<(), Failure> {
    if allowed.contains(&settings.output) {
        return Ok(());
    }
    let names: Vec<String> = allowed
        .iter()
        .filter_map(clap::ValueEnum::to_possible_value)
        .map(|value| value.get_name().to_owned())
        .collect();
    Err(Failure::Usage(format!("`kubectl kata {verb}` prints {}", names.join(", "))))
}

/// A head without a cluster.
pub(crate) fn local_head(kind: &'static str) -> Head {
    Head::new(kind, false)
}
