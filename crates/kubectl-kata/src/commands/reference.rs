//! `__reference`: the reference of all commands and flags as Markdown, from the parser itself. It is
//! generated into docs/cli.md.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::printer::Printer;

/// Exit codes and what they mean.
const EXITS: [(&str, &str); 8] = [
    ("0", "fine; warnings are allowed unless `--fail-on warning` is given"),
    ("1", "findings: not Ready, a check failed, a pod is not sandboxed"),
    ("2", "the command line is wrong"),
    ("3", "the API server cannot be reached, or does not know you"),
    ("4", "refused, because a precondition does not hold"),
    ("5", "inconclusive: not enough could be seen to judge by"),
    ("124", "the time of `--timeout` is over"),
    ("130", "interrupted, and cleaned up"),
];

pub(crate) fn run(printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    printer.raw(&page())?;
    Ok(Exit::Fine)
}

fn page() -> String {
    let mut root = Arguments::command();
    root.build();
    let mut page = String::from(
        "# Commands of kubectl kata\n\n\
         This page is generated from the program (`cargo xtask codegen`); `kubectl kata COMMAND --help` says the \
         same.\nWhat the commands print is shown in [the walkthrough](walkthrough.md), and the documents of \
         `-o json` are described by `kubectl kata schema`.\n\n",
    );
    let shown: Vec<&Command> = root.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    let links: Vec<String> =
        shown.iter().map(|verb| format!("[`{0}`](#{0})", verb.get_name())).collect();
    line(&mut page, &format!("{}.", links.join(", ")));
    for verb in &shown {
        chapter(&mut page, verb);
    }
    page.push_str(
        "\n## Global options\n\nEvery command takes these, before or after its name.\n\n",
    );
    let global = |argument: &&Arg| argument.is_global_set() && !argument.is_hide_set();
    flags(&mut page, root.get_arguments().filter(global));
    page.push_str("\n## Exit codes\n\n| Code | Meaning |\n| --- | --- |\n");
    for (code, meaning) in EXITS {
        line(&mut page, &format!("| {code} | {meaning} |"));
    }
    page
}

fn chapter(page: &mut String, verb: &Command) {
    line(page, &format!("\n## {}\n\n{}.", verb.get_name(), about(verb)));
    let long = verb.get_long_about().map(ToString::to_string).unwrap_or_default();
    if let Some((_, details)) = long.split_once("\n\n") {
        line(page, &format!("\n{details}"));
    }
    let aliases: Vec<String> = verb.get_all_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        line(page, &format!("Also called {}.", aliases.join(", ")));
    }
    let own: Vec<&Arg> = verb
        .get_arguments()
        .filter(|argument| !argument.is_global_set() && !argument.is_hide_set())
        .filter(|argument| argument.get_id() != "help")
        .collect();
    let mut usage = format!("kubectl kata {}", verb.get_name());
    for argument in own.iter().filter(|argument| argument.is_positional()) {
        let name = value(argument);
        let many = matches!(argument.get_action(), ArgAction::Append);
        let dots = if many { "..." } else { "" };
        let text = if argument.is_required_set() {
            format!(" {name}{dots}")
        } else {
            format!(" [{name}{dots}]")
        };
        usage.push_str(&text);
    }
    if own.iter().any(|argument| !argument.is_positional()) {
        usage.push_str(" [OPTIONS]");
    }
    line(page, &format!("\n```text\n{usage}\n```"));
    let examples = crate::help::examples(verb.get_name());
    if !examples.is_empty() {
        line(page, &format!("\nExamples:\n\n```text\n{}\n```", examples.join("\n")));
    }
    if !own.is_empty() {
        page.push('\n');
        flags(page, own.into_iter());
    }
}

fn flags<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    for argument in arguments {
        let mut names = Vec::new();
        if argument.is_positional() {
            names.push(value(argument));
        }
        names.extend(argument.get_short().map(|short| format!("-{short}")));
        names.extend(argument.get_long().map(|long| format!("--{long}")));
        let mut option = names.join(", ");
        if !argument.is_positional() && argument.get_action().takes_values() {
            option.push_str(&format!(" {}", value(argument)));
        }
        let mut meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let options: Vec<String> = argument
            .get_possible_values()
            .iter()
            .filter(|_| argument.get_action().takes_values())
            .map(|option| format!("`{}`", option.get_name()))
            .collect();
        if !options.is_empty() {
            meaning.push_str(&format!(": {}", options.join(", ")));
        }
        let defaults: Vec<&str> =
            argument.get_default_values().iter().filter_map(|value| value.to_str()).collect();
        if !defaults.is_empty() && argument.get_action().takes_values() {
            meaning.push_str(&format!(" [default: {}]", defaults.join(",")));
        }
        line(page, &format!("- `{option}`: {meaning}"));
    }
}

fn value(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    names
        .first()
        .map_or_else(|| argument.get_id().as_str().to_ascii_uppercase(), ToString::to_string)
}

fn about(verb: &Command) -> String {
    verb.get_about().map(ToString::to_string).unwrap_or_default()
}

fn line(page: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _always = writeln!(page, "{text}");
}
