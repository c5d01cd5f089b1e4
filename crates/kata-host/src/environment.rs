//! What systemd makes of the variables in a unit's command, see systemd.exec(5) and systemd.service(5).
//!
//! A variable whose value cannot be known stays as it is written: nothing is guessed.

use std::collections::BTreeMap;

use crate::host::{Host, HostResult, Unit};
use crate::paths;

/// The words of a unit's command with its variables filled in.
pub(crate) fn command(unit: &Unit, variables: &BTreeMap<String, String>) -> Vec<String> {
    unit.command.iter().flat_map(|word| expanded(word, variables)).collect()
}

/// The variables of a unit, without those whose value cannot be known.
///
/// # Errors
/// If a file of its environment is there and cannot be read.
pub(crate) fn variables(host: &mut dyn Host, unit: &Unit) -> HostResult<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for assignment in &unit.environment {
        if let Some((name, value)) = assignment.split_once('=') {
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    for path in &unit.environment_files {
        // What is not seen, or which files a pattern means for systemd, may say anything of every variable.
        if !paths::is_seen(path) || path.contains(['*', '?', '[']) {
            return Ok(BTreeMap::new());
        }
        let text = host.read(path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if text.contains('\\') {
            return Ok(BTreeMap::new());
        }
        for (name, value) in text.lines().filter_map(assignment) {
            match value {
                Some(value) => variables.insert(name, value),
                None => variables.remove(&name),
            };
        }
    }
    Ok(variables)
}

/// The variable that a line of an environment file sets, and its value if it is one that can be read without doubt.
fn assignment(line: &str) -> Option<(String, Option<String>)> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (name, value) = line.split_once('=')?;
    let value = value.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    let is_plain = !value.contains(['"', '\'']);
    Some((name.trim().to_owned(), is_plain.then(|| value.to_owned())))
}

/// The words that one becomes: `${NAME}` is a part of a word, and `$NAME` as a whole word is split at its spaces.
fn expanded(word: &str, variables: &BTreeMap<String, String>) -> Vec<String> {
    if let Some(value) = word.strip_prefix('$').and_then(|name| variables.get(name)) {
        return value.split_whitespace().map(str::to_owned).collect();
    }
    let mut text = String::new();
    let mut rest = word;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let Some(end) = from.find('}') else { break };
        let (whole, after) = from.split_at(end + 1);
        let value = whole.get(2..end).and_then(|name| variables.get(name));
        text.push_str(value.map_or(whole, String::as_str));
        rest = after;
    }
    text.push_str(rest);
    vec![text]
}
