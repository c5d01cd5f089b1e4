//! `events`: what happened to the KataConfig, its nodes and sandboxed pods, in order.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kata_api::names;
use serde_json::Value;

use super::{expect_output, marked};
use crate::Context;
use crate::api::Scope;
use crate::arguments::EventsArguments;
use crate::changes::Changes;
use crate::cluster::Kata;
use crate::document::{EventList, EventRow, Head};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::pod::Pod;
use crate::resource::{EVENTS, PODS};
use crate::settings::Output;
use crate::style::Tone;
use crate::table::{Cell, Table, column};

pub(crate) async fn run(
    arguments: &EventsArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let allowed = [Output::Table, Output::Wide, Output::Json, Output::Yaml];
    expect_output(context.settings, &allowed, "events")?;
    if let Some(wanted) = &arguments.types
        && !["Normal", "Warning"].iter().any(|known| known.eq_ignore_ascii_case(wanted))
    {
        return Err(Failure::Usage(format!("--types {wanted}: give Normal or Warning")));
    }
    if !arguments.watch {
        print(&read(arguments, context).await?, context, context.settings.titles)?;
        return Ok(Exit::Fine);
    }
    let mut changes = Changes::of(&context.api, &[EVENTS], None).await;
    let mut list = read(arguments, context).await?;
    print(&list, context, context.settings.titles)?;
    let interrupted = context.interrupted();
    let mut interrupted = std::pin::pin!(interrupted);
    loop {
        context.printer.flush()?;
        tokio::select! {
            () = &mut interrupted => return Ok(Exit::Fine),
            () = changes.next() => {}
        }
        let mut next = read(arguments, context).await?;
        let all = next.items.clone();
        next.items.retain(|row| !list.items.contains(row));
        if !next.items.is_empty() {
            print(&next, context, false)?;
        }
        list.items = all;
    }
}

async fn read(
    arguments: &EventsArguments,
    context: &Context<'_, '_>,
) -> Result<EventList, Failure> {
    let api = &context.api;
    let (kata, pods, events) = futures::join!(
        Kata::read(api),
        api.list::<Pod>(PODS, Scope::default()),
        api.list::<Value>(EVENTS, Scope::default()),
    );
    let (kata, pods, events) = (kata?, pods?, events?);
    events.listed("show Events", "events")?;
    let classes = kata.sandbox_classes();
    let sandboxed: BTreeSet<(&str, &str)> = pods
        .items()
        .iter()
        .filter(|pod| pod.class().is_some_and(|class| classes.contains(class)))
        .map(|pod| (pod.metadata.namespace.as_str(), pod.metadata.name.as_str()))
        .collect();
    let mut items: Vec<EventRow> = events
        .items()
        .iter()
        .filter(|event| {
            let object = &event["involvedObject"];
            let text = |key: &str| object[key].as_str().unwrap_or_default();
            let ours = event["reportingComponent"] == names::PRODUCT
                || event["source"]["component"] == names::PRODUCT
                || matches!(text("kind"), "KataConfig" | "KataNode");
            ours || text("kind") == "Pod" && sandboxed.contains(&(text("namespace"), text("name")))
        })
        .map(row)
        .filter(|row| {
            arguments.types.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(&row.type_))
        })
        .collect();
    items.sort_by(|a, b| (a.last_seen, &a.object).cmp(&(b.last_seen, &b.object)));
    Ok(EventList { head: Head::new("EventList", kata.is_simulated()), items, gaps: api.gaps() })
}

/// An Event as it is shown.
pub(super) fn row(event: &Value) -> EventRow {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["involvedObject"];
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["firstTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    let namespace = text(&object["namespace"]);
    let name = text(&object["name"]);
    let name = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
    EventRow {
        last_seen: times.iter().find_map(|time| time.as_str()?.parse::<Timestamp>().ok()),
        type_: text(&event["type"]),
        reason: text(&event["reason"]),
        object: format!("{}/{name}", text(&object["kind"])),
        message: text(&event["message"]).replace('\n', " "),
    }
}

fn print(list: &EventList, context: &mut Context<'_, '_>, titles: bool) -> Result<(), Failure> {
    let settings = context.settings;
    if context.printer.document(settings.output, list)? {
        return Ok(());
    }
    if list.items.is_empty() {
        context.printer.say(&marked("No Events found.", list.head.simulated))?;
        return Ok(());
    }
    let now = settings.now();
    let mut table = Table::new(&[
        column("LAST SEEN"),
        column("TYPE").dispensable(1),
        column("REASON"),
        column("OBJECT"),
        column("MESSAGE"),
    ]);
    for row in &list.items {
        let tone = if row.type_ == "Warning" { Tone::Warn } else { Tone::Plain };
        table.row(vec![
            row.last_seen.map(|seen| human::age(now, seen)).unwrap_or_default().into(),
            Cell::toned(row.type_.clone(), tone),
            row.reason.clone().into(),
            row.object.clone().into(),
            row.message.clone().into(),
        ]);
    }
    context.printer.table(&table, settings.is_wide(), titles)?;
    if list.head.simulated && titles {
        context.printer.say("(simulated)")?;
    }
    Ok(())
}
