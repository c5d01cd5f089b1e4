//! `kata-sim script`: a scenario, line by line, on a simulated cluster with the real operator, on
//! virtual time.
//!
//! A script is read as a whole before anything is done, so that a mistake in its last line shows at
//! once. It does what an admin, a rival or bad luck does to a cluster, and checks what comes of it.
//! It decides nothing in place of the operator, and looks at the store and the hosts, never into the
//! operator.

mod alerts;
mod claim;
mod command;
mod error;
mod invariants;
mod parse;
mod resource;
mod show;
mod stage;
mod words;

use std::io::Write;
use std::path::Path;

pub(crate) use error::RunError;
use error::ScriptError;

/// Runs the script in `path`; whether everything that it expects holds.
///
/// # Errors
/// If the script is wrong, or cannot be run to its end.
pub(crate) async fn run<W: Write>(path: &Path, out: W) -> Result<bool, RunError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|source| ScriptError::Read { path: file.clone(), source })?;
    let at = |(line, problem)| ScriptError::Line { file: file.clone(), line, problem };
    let commands = parse::script(&text).map_err(at)?;
    let here = path.parent().unwrap_or_else(|| Path::new("."));
    let commands = commands
        .into_iter()
        .map(|command| command.resolve(here))
        .collect::<Result<Vec<_>, _>>()
        .map_err(at)?;
    let (layout, commands) = parse::layout(commands).map_err(at)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut stage = stage::Stage::start(&layout, out)?;
    for command in commands {
        let line = command.line;
        stage.perform(command).await?.map_err(|problem| at((line, problem)))?;
    }
    Ok(stage.end(&name)?)
}
