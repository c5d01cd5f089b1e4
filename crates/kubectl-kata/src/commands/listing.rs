//! What `pods` and `nodes` have in common: a list is read and printed, and with `--watch` what has changed
//! of it is printed again and again.

use serde::Serialize;

use super::expect_output;
use crate::Context;
use crate::arguments::ListArguments;
use crate::changes::Changes;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::resource::Resource;
use crate::settings::Output;

/// A list of rows.
pub(super) trait Listing: Serialize + Sized {
    /// A row.
    type Row: Clone + PartialEq;
    /// The verb that shows it.
    const VERB: &'static str;
    /// What is in it.
    const WHAT: &'static str;
    /// The kind whose changes change it.
    const KIND: Resource;
    /// Whether that kind is in namespaces.
    const NAMESPACED: bool;

    /// Reads it.
    async fn read(arguments: &ListArguments, context: &Context<'_, '_>) -> Result<Self, Failure>;

    /// Its rows.
    fn rows(&mut self) -> &mut Vec<Self::Row>;

    /// The names of its rows, as KIND/NAME.
    fn names(&self) -> Vec<String>;

    /// That it is not known of some objects whether they belong to it.
    fn unknown(&self) -> Option<&str> {
        None
    }

    /// Prints it for people, with or without titles.
    fn table(&self, context: &mut Context<'_, '_>, titles: bool) -> Result<(), Failure>;
}

/// Runs the verb.
pub(super) async fn run<L: Listing>(
    arguments: &ListArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let allowed = [Output::Table, Output::Wide, Output::Json, Output::Yaml, Output::Name];
    expect_output(context.settings, &allowed, L::VERB)?;
    let changes = if arguments.watch {
        let namespace = context.list_namespace().filter(|_| L::NAMESPACED);
        Some(Changes::of(&context.api, &[L::KIND], namespace.as_deref()).await)
    } else {
        None
    };
    let list = L::read(arguments, context).await?;
    let absent: Vec<&String> = arguments
        .names
        .iter()
        .filter(|name| {
            let bare = name.split_once('/').map_or(name.as_str(), |(_, bare)| bare);
            !list.names().iter().any(|full| full.split_once('/').is_some_and(|(_, n)| n == bare))
        })
        .collect();
    if absent.is_empty() || absent.len() < arguments.names.len() {
        print(&list, context, context.settings.titles)?;
    }
    if let (false, Some(unknown)) = (absent.is_empty(), list.unknown()) {
        return Err(Failure::Forbidden(unknown.to_owned()));
    }
    if !absent.is_empty() {
        let place = context.list_namespace().filter(|_| L::NAMESPACED);
        let place = place.map_or_else(String::new, |name| format!(" in namespace {name}"));
        return Err(Failure::NotFound(format!(
            "there is no {} {}{place}",
            L::WHAT,
            human::list(&absent, 5)
        )));
    }
    if let Some(changes) = changes {
        watch(changes, arguments, list, context).await?;
    }
    Ok(Exit::Fine)
}

async fn watch<L: Listing>(
    mut changes: Changes,
    arguments: &ListArguments,
    mut list: L,
    context: &mut Context<'_, '_>,
) -> Result<(), Failure> {
    let mut before = list.rows().clone();
    let interrupted = context.interrupted();
    let mut interrupted = std::pin::pin!(interrupted);
    loop {
        context.printer.flush()?;
        tokio::select! {
            () = &mut interrupted => return Ok(()),
            () = changes.next() => {}
        }
        let mut list = L::read(arguments, context).await?;
        let now = list.rows().clone();
        // As with kubectl, only what has changed.
        list.rows().retain(|row| !before.contains(row));
        if !list.rows().is_empty() {
            print(&list, context, false)?;
        }
        before = now;
    }
}

fn print<L: Listing>(list: &L, context: &mut Context<'_, '_>, titles: bool) -> Result<(), Failure> {
    if context.printer.document(context.settings.output, list)? {
        return Ok(());
    }
    if context.settings.output == Output::Name {
        for name in list.names() {
            context.printer.line(&name)?;
        }
        return Ok(());
    }
    list.table(context, titles)
}
