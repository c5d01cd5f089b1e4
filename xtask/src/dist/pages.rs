//! Manual pages and completions, made from what the programs say of themselves.
//!
//! The programs are run; nothing here knows an option of theirs.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{command, output};

/// The shells that the plugin has completions for, and the names of the files.
const SHELLS: [(&str, &str); 3] =
    [("bash", "kubectl-kata.bash"), ("zsh", "_kubectl-kata"), ("fish", "kubectl-kata.fish")];

/// The files by their path below the folder that they belong to: completions of the plugin.
pub(super) fn completions(program: &Path) -> Result<BTreeMap<String, String>, String> {
    SHELLS
        .into_iter()
        .map(|(shell, file)| Ok((format!("completions/{file}"), completion(program, shell)?)))
        .collect()
}

/// The plugin's script for a shell.
pub(super) fn completion(program: &Path, shell: &str) -> Result<String, String> {
    said(program, &["completion", shell])
}

/// The manual pages of a program: one for itself, one for each of its commands.
pub(super) fn manual(program: &Path, name: &str) -> Result<BTreeMap<String, String>, String> {
    let mut pages = BTreeMap::new();
    let mut left: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(verbs) = left.pop() {
        let mut words: Vec<&str> = verbs.iter().map(String::as_str).collect();
        words.push("--help");
        let help = said(program, &words)?;
        let title = [&[name.to_owned()], verbs.as_slice()].concat().join("-");
        pages.insert(format!("man/man1/{title}.1"), page(&title, &help)?);
        for verb in commands(&help) {
            left.push([verbs.as_slice(), &[verb]].concat());
        }
    }
    Ok(pages)
}

fn said(program: &Path, words: &[&str]) -> Result<String, String> {
    let mut program = command(Path::new("."), &program.to_string_lossy());
    // Lines are as long as a page is wide, whoever asks.
    program.args(words).env("COLUMNS", "80").env("NO_COLOR", "1");
    output(program)
}

/// The parts of a help text: the heading without its colon, and the lines below.
fn parts(help: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found = vec![("", Vec::new())];
    for line in help.lines() {
        let heading = line.strip_suffix(':').filter(|line| !line.starts_with(' '));
        if let Some(heading) = heading {
            found.push((heading, Vec::new()));
        } else if let Some((_, lines)) = found.last_mut() {
            lines.push(line);
        }
    }
    found
}

fn commands(help: &str) -> Vec<String> {
    let lists = parts(help).into_iter().filter(|(heading, _)| *heading == "Commands");
    lists
        .flat_map(|(_, lines)| lines)
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(str::to_owned)
        .collect()
}

/// A manual page with the text as it is: what is aligned there stays aligned.
fn page(title: &str, help: &str) -> Result<String, String> {
    let parts = parts(help);
    let empty = Vec::new();
    let lines = parts.first().map_or(&empty, |(_, lines)| lines);
    let about = lines.first().copied().unwrap_or_default().trim_end_matches('.');
    let usage = lines.iter().find_map(|line| line.strip_prefix("Usage: "));
    let usage = usage.ok_or_else(|| format!("{title} does not say how it is used:\n{help}"))?;
    let mut text = format!(".TH \"{}\" 1\n", title.to_uppercase());
    text.push_str(&format!(".SH NAME\n{} \\- {}\n", literal(title), literal(about)));
    text.push_str(&format!(".SH SYNOPSIS\n{}\n", literal(usage)));
    let more = lines.iter().skip(1).filter(|line| !line.starts_with("Usage: "));
    let more: Vec<&str> = more.copied().collect();
    section(&mut text, "DESCRIPTION", &more);
    for (heading, lines) in parts.iter().skip(1) {
        section(&mut text, &heading.to_uppercase(), lines);
    }
    Ok(text)
}

fn section(text: &mut String, heading: &str, lines: &[&str]) {
    if lines.iter().all(|line| line.trim().is_empty()) {
        return;
    }
    text.push_str(&format!(".SH {heading}\n.nf\n"));
    let from = lines.iter().position(|line| !line.trim().is_empty()).unwrap_or_default();
    let until = lines.iter().rposition(|line| !line.trim().is_empty()).unwrap_or_default();
    for line in lines.iter().take(until + 1).skip(from) {
        text.push_str(&literal(line.trim_end()));
        text.push('\n');
    }
    text.push_str(".fi\n");
}

/// Text that means nothing but itself in a manual page.
fn literal(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}
