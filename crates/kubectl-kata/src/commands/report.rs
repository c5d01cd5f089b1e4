//! `report`: one HTML page about the last roll-out, to attach to a change record.
//!
//! The page has everything in itself: it loads nothing, runs no script, and says how old it is.

use std::collections::BTreeMap;
use std::path::Path;

use super::{expect_output, history, status};
use crate::Context;
use crate::arguments::ReportArguments;
use crate::cluster::Kata;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::settings::Output;

pub(super) mod page;
mod timeline;
mod verified;

pub(crate) async fn run(
    arguments: &ReportArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table], "report")?;
    let read = |path: &Path| verified::Verified::read(path, &context.place);
    let verified = arguments.verified.as_deref().map(read).transpose()?;
    let (kata, status) = Box::pin(status::read_all(context)).await?;
    let now = context.settings.now();
    let nodes = kata.known_nodes("read the history of nodes")?;
    let contents = page::Contents {
        histories: history::of_nodes(nodes.iter(), now),
        cluster: context.place.clone(),
        kubernetes: kata.version.git_version.clone(),
        systems: systems(&kata),
        status,
        verified,
        now,
    };
    let html = page::page(&contents).into_string();
    if arguments.file.as_deref() == Some(Path::new("-")) {
        context.printer.raw(&html)?;
        return Ok(Exit::Fine);
    }
    let path = arguments
        .file
        .clone()
        .unwrap_or_else(|| now.strftime("kata-report-%Y%m%dT%H%M%SZ.html").to_string().into());
    std::fs::write(&path, &html).map_err(|source| Failure::File { path: path.clone(), source })?;
    let text = context.marked(&format!("wrote {}", path.display()));
    context.printer.line(&text)?;
    Ok(Exit::Fine)
}

/// Container runtime and kernel of the nodes, as the kubelets report them, with how many nodes have them.
fn systems(kata: &Kata) -> BTreeMap<(String, String), usize> {
    let mut systems = BTreeMap::new();
    for status in kata.nodes.items().iter().filter_map(|node| node.status.as_ref()) {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        let system = (known(&status.container_runtime_version), known(&status.kernel_version));
        *systems.entry(system).or_default() += 1;
    }
    systems
}
