//! `pods`: the pods that run in virtual machines, with what that costs.

use std::collections::BTreeSet;

use kata_api::Natural;

use super::listing::Listing;
use super::marked;
use crate::Context;
use crate::api::Scope;
use crate::arguments::ListArguments;
use crate::cluster::Kata;
use crate::document::{Head, PodList, PodRow};
use crate::failure::Failure;
use crate::human;
use crate::pod::Pod;
use crate::resource::{PODS, Resource};
use crate::style::Tone;
use crate::table::{Cell, Column, Table, column};

impl Listing for PodList {
    type Row = PodRow;
    const VERB: &'static str = "pods";
    const WHAT: &'static str = "sandboxed pod";
    const KIND: Resource = PODS;
    const NAMESPACED: bool = true;

    async fn read(arguments: &ListArguments, context: &Context<'_, '_>) -> Result<Self, Failure> {
        read(arguments, context).await
    }

    fn rows(&mut self) -> &mut Vec<PodRow> {
        &mut self.items
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|row| format!("pod/{}", row.name)).collect()
    }

    fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    fn table(&self, context: &mut Context<'_, '_>, titles: bool) -> Result<(), Failure> {
        table(self, context, titles)
    }
}

async fn read(arguments: &ListArguments, context: &Context<'_, '_>) -> Result<PodList, Failure> {
    let api = &context.api;
    let namespace = context.list_namespace();
    let scope = Scope {
        namespace: namespace.as_deref(),
        labels: arguments.selector.as_deref(),
        ..Scope::default()
    };
    let (kata, pods) = futures::join!(Kata::read(api), api.list::<Pod>(PODS, scope));
    let (kata, pods) = (kata?, pods?);
    let place = namespace.map_or_else(String::new, |name| format!(" in namespace {name}"));
    pods.listed("list pods", &format!("pods{place}"))?;
    let classes = kata.sandbox_classes();
    let handlers = kata.handlers();
    let versions = kata.versions();
    let wanted: BTreeSet<&str> =
        arguments.names.iter().map(|name| name.strip_prefix("pod/").unwrap_or(name)).collect();
    let pods = || {
        let all = pods.items().iter();
        all.filter(|pod| wanted.is_empty() || wanted.contains(pod.metadata.name.as_str()))
    };
    let unknown = pods().filter(|pod| classes.is_sandboxed(pod.class()).is_none()).count();
    let unknown = (unknown > 0).then(|| {
        let pods = human::count(unknown, "pod");
        let are = if unknown == 1 { "is" } else { "are" };
        let unseen = classes.unseen();
        format!("cannot tell whether {pods} with a RuntimeClass {are} sandboxed: {unseen}")
    });
    let mut items: Vec<PodRow> = pods()
        .filter_map(|pod| {
            let class = pod.class().filter(|class| classes.contains(class))?;
            let overhead = &pod.spec.overhead;
            let amount = |key: &str| overhead.get(key).map_or("0", String::as_str);
            Some(PodRow {
                namespace: pod.metadata.namespace.clone(),
                name: pod.metadata.name.clone(),
                ready: pod.ready(),
                containers: pod.spec.containers.len(),
                status: pod.shown_status(),
                restarts: pod.status.container_statuses.iter().map(|s| s.restart_count).sum(),
                created: pod.metadata.creation_timestamp,
                node: pod.node().map(str::to_owned),
                runtime_class: class.to_owned(),
                handler: handlers.get(class).cloned(),
                vmm: kata.shim(class, pod.node()),
                kata_version: versions.of(pod).map(str::to_owned),
                overhead: (!overhead.is_empty())
                    .then(|| format!("{}/{}", amount("cpu"), amount("memory"))),
                owner: pod.owner(),
            })
        })
        .collect();
    items.sort_by(|a, b| (&a.namespace, Natural(&a.name)).cmp(&(&b.namespace, Natural(&b.name))));
    let head = Head::new("PodList", kata.is_simulated());
    Ok(PodList { head, items, unknown, gaps: api.gaps() })
}

const COLUMNS: [Column; 13] = [
    column("NAMESPACE"),
    column("NAME"),
    column("READY"),
    column("STATUS"),
    column("RESTARTS").dispensable(2),
    column("AGE"),
    column("NODE"),
    column("CLASS").dispensable(1),
    column("KATA").dispensable(3),
    column("HANDLER").wide(),
    column("VMM").wide(),
    column("OVERHEAD").wide(),
    column("OWNER").wide(),
];

fn table(list: &PodList, context: &mut Context<'_, '_>, titles: bool) -> Result<(), Failure> {
    let settings = context.settings;
    if list.items.is_empty() {
        let place = context.list_namespace();
        let none = || match place {
            None => "No sandboxed pods found.".to_owned(),
            Some(name) => format!("No sandboxed pods found in {name} namespace."),
        };
        let text = list.unknown.clone().unwrap_or_else(none);
        context.printer.say(&marked(&text, list.head.simulated))?;
        return Ok(());
    }
    let skip = usize::from(!settings.all_namespaces);
    let mut table = Table::new(COLUMNS.get(skip..).unwrap_or_default());
    let now = settings.now();
    for row in &list.items {
        let tone = match row.status.as_str() {
            "Running" | "Completed" => Tone::Plain,
            "Pending" | "ContainerCreating" | "Terminating" => Tone::Warn,
            _ => Tone::Bad,
        };
        let cells: Vec<Cell> = vec![
            row.namespace.clone().into(),
            row.name.clone().into(),
            format!("{}/{}", row.ready, row.containers).into(),
            Cell::toned(row.status.clone(), tone),
            row.restarts.to_string().into(),
            row.created.map(|created| human::age(now, created)).unwrap_or_default().into(),
            row.node.clone().unwrap_or_default().into(),
            row.runtime_class.clone().into(),
            row.kata_version.clone().unwrap_or_default().into(),
            row.handler.clone().unwrap_or_default().into(),
            row.vmm.clone().unwrap_or_else(|| "unknown".to_owned()).into(),
            row.overhead.clone().unwrap_or_default().into(),
            row.owner.clone().unwrap_or_default().into(),
        ];
        table.row(cells.into_iter().skip(skip).collect());
    }
    context.printer.table(&table, settings.is_wide(), titles)?;
    if let Some(unknown) = &list.unknown {
        context.printer.say(unknown)?;
    }
    if list.head.simulated && titles {
        context.printer.say("(simulated)")?;
    }
    Ok(())
}
