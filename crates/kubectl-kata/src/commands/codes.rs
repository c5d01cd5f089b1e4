//! `codes`: the catalogue of findings, offline. The pages of the documentation are its Markdown.

use kata_api::Code;

use super::{expect_output, local_head};
use crate::arguments::CodesArguments;
use crate::document::{CodeList, CodeRow};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::problem::{hint, only_operator_notices};
use crate::settings::{Output, Settings};
use crate::style::{Tone, wrap};
use crate::table::{Cell, Table, column};

pub(crate) fn run(
    arguments: &CodesArguments,
    settings: &Settings,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let allowed =
        [Output::Table, Output::Wide, Output::Json, Output::Yaml, Output::Name, Output::Markdown];
    expect_output(settings, &allowed, "codes")?;
    let mut rows = Vec::new();
    for wanted in &arguments.codes {
        rows.push(find(wanted)?);
    }
    if arguments.codes.is_empty() {
        rows.extend(Code::ALL.iter().map(|code| row(*code)));
    }
    let list = CodeList { head: local_head("CodeList"), items: rows };
    if printer.document(settings.output, &list)? {
        return Ok(Exit::Fine);
    }
    match settings.output {
        Output::Name => {
            for row in &list.items {
                printer.line(row.code)?;
            }
        }
        Output::Markdown => {
            for row in &list.items {
                printer.raw(&page(row))?;
            }
        }
        _ if arguments.codes.is_empty() => table(&list, settings, printer)?,
        _ => {
            for row in &list.items {
                entry(row, printer)?;
            }
        }
    }
    Ok(Exit::Fine)
}

fn row(code: Code) -> CodeRow {
    let entry = code.entry();
    CodeRow {
        code: entry.code,
        reason: entry.reason,
        severity: entry.severity.as_str(),
        cause: entry.cause,
        fix: entry.fix,
        who: code.who().as_str(),
        commands: code.commands(),
        hint: hint(entry.code),
    }
}

fn find(wanted: &str) -> Result<CodeRow, Failure> {
    let digits = wanted.to_ascii_uppercase();
    Code::ALL
        .iter()
        .find(|code| {
            let entry = code.entry();
            entry.code == digits
                || entry.code.strip_prefix("KATA") == Some(&digits)
                || entry.reason.eq_ignore_ascii_case(wanted)
        })
        .map(|code| row(*code))
        .ok_or_else(|| {
            Failure::Usage(format!("there is no code {wanted}: see `kubectl kata codes`"))
        })
}

fn tone(severity: &str) -> Tone {
    match severity {
        "error" => Tone::Bad,
        "warning" => Tone::Warn,
        _ => Tone::Dim,
    }
}

fn table(list: &CodeList, settings: &Settings, printer: &mut Printer<'_>) -> Result<(), Failure> {
    let mut table = Table::new(&[
        column("CODE"),
        column("REASON"),
        column("SEVERITY").dispensable(1),
        column("CAUSE"),
        column("FIX").wide(),
    ]);
    for row in &list.items {
        table.row(vec![
            row.code.into(),
            row.reason.into(),
            Cell::toned(row.severity, tone(row.severity)),
            row.cause.into(),
            row.fix.into(),
        ]);
    }
    Ok(printer.table(&table, settings.is_wide(), settings.titles)?)
}

fn entry(row: &CodeRow, printer: &mut Printer<'_>) -> Result<(), Failure> {
    let style = printer.style();
    let width = style.width.unwrap_or(usize::MAX).max(40) - 10;
    let severity = style.paint(tone(row.severity), row.severity).into_owned();
    printer.line(&format!("{} {}   {severity}", row.code, row.reason))?;
    let mut lines = |title: &str, lines: &[String]| {
        lines.iter().enumerate().try_for_each(|(at, line)| {
            printer.line(&format!("  {:<7} {line}", if at == 0 { title } else { "" }))
        })
    };
    lines("cause", &wrap(row.cause, width))?;
    lines("fix", &wrap(row.fix, width))?;
    lines("who", &[row.who.to_owned()])?;
    lines("run", &row.commands.iter().map(|&command| command.to_owned()).collect::<Vec<_>>())?;
    lines("more", &wrap(&row.hint, width))?;
    Ok(())
}

/// The page of the documentation about a code.
fn page(row: &CodeRow) -> String {
    let CodeRow { code, reason, severity, cause, fix, who, commands, hint: _ } = row;
    format!(
        "# {code} {reason}\n\n\
         Severity: {severity}.\n\
         Who can fix it: the {who}.\n\n\
         ## Cause\n\n{cause}\n\n\
         ## Fix\n\n{fix}\n\n\
         ## Commands\n\n\
         ```text\n{commands}\n```\n\n\
         ## Where it is seen\n\n\
         {seen}; `kubectl kata codes {code}` shows this page without a network.\n",
        commands = commands.join("\n"),
        seen = seen_by(code),
    )
}

/// The commands that show a code.
fn seen_by(code: &str) -> &'static str {
    let known = Code::parse(code);
    if known.is_some_and(only_operator_notices) {
        return "Only the operator can notice it: its log and its metric `kata_operator_findings` show it, and \
                `kubectl kata doctor` and `kubectl kata status` as long as its status says it";
    }
    if matches!(
        known,
        Some(
            Code::CustomResourceMissing
                | Code::OperatorNotRunning
                | Code::NoKataConfig
                | Code::OperatorSilent
        )
    ) {
        return "`kubectl kata doctor` and `kubectl kata status` show it";
    }
    match code.get(4..5) {
        Some("1") => {
            "`kubectl kata doctor` shows it, and `kubectl kata status` if it keeps nodes from being ready"
        }
        Some("2" | "3") => {
            "`kubectl kata doctor` shows it, and `kubectl kata status` and `kubectl kata nodes -o wide` if it \
             holds a node up"
        }
        Some("4") => "`kubectl kata status` and `kubectl kata uninstall --dry-run` show it",
        _ if code.starts_with("KATA51") => "`kubectl kata verify` shows it",
        _ if code.starts_with("KATA52") && code != Code::NodePoolUnprepared.entry().code => {
            "`kubectl kata why` shows it"
        }
        _ => "`kubectl kata doctor` shows it",
    }
}
