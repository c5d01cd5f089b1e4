//! `nodes`: the nodes that have, get or lose Kata, and how much room for sandboxes they have.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::kata_node::{HostStatus, JobOutcome, Phase};
use kata_api::{Code, KataNode, Natural, names};
use serde::Deserialize;

use super::listing::Listing;
use super::marked;
use super::status::{installed, tone};
use crate::Context;
use crate::api::Scope;
use crate::arguments::ListArguments;
use crate::cluster::Kata;
use crate::document::{Head, NodeList, NodeRow};
use crate::failure::Failure;
use crate::human::{self, quantity};
use crate::pod::Pod;
use crate::resource::{KATA_NODES, NODES, PODS, Resource};
use crate::style::Tone;
use crate::table::{Cell, Table, column};

/// A node, with no more than what is shown.
#[derive(Clone, Debug, Default, Deserialize)]
struct Node {
    #[serde(default)]
    metadata: NodeMetadata,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    allocatable: BTreeMap<String, String>,
}

impl Listing for NodeList {
    type Row = NodeRow;
    const VERB: &'static str = "nodes";
    const WHAT: &'static str = "node with Kata";
    const KIND: Resource = KATA_NODES;
    const NAMESPACED: bool = false;

    async fn read(arguments: &ListArguments, context: &Context<'_, '_>) -> Result<Self, Failure> {
        read(arguments, context).await
    }

    fn rows(&mut self) -> &mut Vec<NodeRow> {
        &mut self.items
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|row| format!("node/{}", row.name)).collect()
    }

    fn table(&self, context: &mut Context<'_, '_>, titles: bool) -> Result<(), Failure> {
        table(self, context, titles)
    }
}

async fn read(arguments: &ListArguments, context: &Context<'_, '_>) -> Result<NodeList, Failure> {
    let api = &context.api;
    let labels = Scope { labels: arguments.selector.as_deref(), ..Scope::default() };
    let (kata, nodes, pods) = futures::join!(
        Kata::read(api),
        api.list::<Node>(NODES, labels),
        api.list::<Pod>(PODS, Scope::default()),
    );
    let (kata, nodes, pods) = (kata?, nodes?, pods?);
    let kata_nodes = kata.known_nodes("list nodes with Kata")?;
    if arguments.selector.is_some() {
        nodes.listed("select nodes by label", "nodes")?;
    }
    let wanted: BTreeSet<&str> =
        arguments.names.iter().map(|name| name.strip_prefix("node/").unwrap_or(name)).collect();
    let by_name: BTreeMap<&str, &Node> =
        nodes.items().iter().map(|node| (node.metadata.name.as_str(), node)).collect();
    let classes = kata.sandbox_classes();
    let overhead = kata.class_facts().first().map(|class| {
        (quantity(&class.overhead_cpu).unwrap_or(0), quantity(&class.overhead_memory).unwrap_or(0))
    });
    let mut used: BTreeMap<&str, Use> = BTreeMap::new();
    for pod in pods.items().iter().filter(|pod| !pod.is_finished()) {
        let Some(node) = pod.node() else { continue };
        let entry = used.entry(node).or_default();
        entry.cpu += pod.takes("cpu");
        entry.memory += pod.takes("memory");
        entry.pods += 1;
        match classes.is_sandboxed(pod.class()) {
            Some(is_sandboxed) => entry.sandboxed += usize::from(is_sandboxed),
            None => entry.is_incomplete = true,
        }
    }
    let mut items: Vec<NodeRow> = kata_nodes
        .iter()
        .filter(|node| wanted.is_empty() || wanted.contains(node.spec.node_name.as_str()))
        .filter(|node| {
            arguments.selector.is_none() || by_name.contains_key(node.spec.node_name.as_str())
        })
        .map(|kata_node| {
            let name = kata_node.spec.node_name.as_str();
            let node = by_name.get(name).copied();
            let used = pods.as_known().map(|_| used.get(name).copied().unwrap_or_default());
            row(kata_node, node, used, overhead)
        })
        .collect();
    items.sort_by(|a, b| Natural(&a.name).cmp(&Natural(&b.name)));
    Ok(NodeList { head: Head::new("NodeList", kata.is_simulated()), items, gaps: api.gaps() })
}

/// What the pods of a node take.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    cpu: i128,
    memory: i128,
    pods: i128,
    sandboxed: usize,
    /// Whether there are pods of which it is not known whether they are sandboxed.
    is_incomplete: bool,
}

fn row(
    kata_node: &KataNode,
    node: Option<&Node>,
    used: Option<Use>,
    overhead: Option<(i128, i128)>,
) -> NodeRow {
    let status = kata_node.status.clone().unwrap_or_default();
    let without = status.host.as_ref().is_some_and(|host| {
        host.installed.is_none() && host.kata_version.is_none() && status.handlers.is_empty()
    });
    let host = status.host.unwrap_or_default();
    let labelled = node.map(|node| {
        node.metadata.labels.get(names::RUNTIME_LABEL).map(String::as_str)
            == Some(names::RUNTIME_LABEL_VERIFIED)
    });
    NodeRow {
        name: kata_node.spec.node_name.clone(),
        phase: status.phase.as_str().to_owned(),
        step: status.step,
        handlers: status.handlers,
        provided: status.provided,
        kvm: kvm(&host),
        kata: host.kata_version.clone(),
        without,
        inspected: host.inspected,
        runtime: status.container_runtime_version,
        kernel: status.kernel_version,
        free_sandboxes: node
            .zip(used)
            .zip(overhead)
            .filter(|_| status.phase == Phase::Ready)
            .and_then(|((node, used), overhead)| free(node, used, overhead)),
        pods: used.filter(|used| !used.is_incomplete).map(|used| used.sandboxed),
        labelled,
        ready: status.ready,
        since: status.since,
        code: status.code,
        message: status.message,
    }
}

/// Whether the node agent could make a virtual machine when it looked; it does so before any change.
fn kvm(host: &HostStatus) -> Option<bool> {
    let cause = Code::KvmUnusable.entry().cause.trim_end_matches('.');
    let refused = host
        .job
        .as_ref()
        .is_some_and(|job| job.outcome == Some(JobOutcome::Refused) && job.message.contains(cause));
    let fit = host.fit_for.is_some() || host.installed.is_some();
    (refused || fit).then_some(!refused)
}

/// How many more sandboxes fit that ask for nothing besides their overhead, as the scheduler counts.
fn free(node: &Node, used: Use, (cpu, memory): (i128, i128)) -> Option<i64> {
    let all = |key: &str| node.status.allocatable.get(key).and_then(|text| quantity(text));
    let fits = |all: i128, used: i128, each: i128| match each {
        0 => i128::MAX,
        each => (all - used).max(0) / each,
    };
    let count = fits(all("cpu")?, used.cpu, cpu)
        .min(fits(all("memory")?, used.memory, memory))
        .min((all("pods")? / 1_000 - used.pods).max(0));
    i64::try_from(count).ok()
}

fn table(list: &NodeList, context: &mut Context<'_, '_>, titles: bool) -> Result<(), Failure> {
    let settings = context.settings;
    if list.items.is_empty() {
        context.printer.say(&marked("No nodes with Kata found.", list.head.simulated))?;
        return Ok(());
    }
    let now = settings.now();
    let mut table = Table::new(&[
        column("NODE"),
        column("PHASE"),
        column("STEP").wide(),
        column("KVM").dispensable(4),
        column("HANDLERS"),
        column("RUNTIME").dispensable(1),
        column("KATA").dispensable(5),
        column("KERNEL").wide(),
        column("FREE SANDBOXES").dispensable(2),
        column("PODS"),
        column("LABEL").dispensable(3),
        column("INSTALLED"),
        column("SINCE"),
        column("CODE").wide(),
        column("MESSAGE").wide(),
    ]);
    for row in &list.items {
        let number = |number: Option<i64>| number.map(|n| n.to_string()).unwrap_or_default();
        let labelled = match row.labelled {
            Some(true) => Cell::from("true"),
            Some(false) => Cell::toned("no", Tone::Dim),
            None => "".into(),
        };
        table.row(vec![
            row.name.clone().into(),
            Cell::toned(row.phase.clone(), tone(&row.phase)),
            row.step.clone().into(),
            match row.kvm {
                Some(true) => "yes".into(),
                Some(false) => Cell::toned("no", Tone::Bad),
                None => Cell::toned("unknown", Tone::Dim),
            },
            row.handlers.join(",").into(),
            row.runtime.as_deref().unwrap_or_default().replace("://", " ").into(),
            match &row.kata {
                Some(version) => version.clone().into(),
                None if row.provided => "provided".into(),
                None if row.without => "".into(),
                None => Cell::toned("unknown", Tone::Dim),
            },
            row.kernel.clone().unwrap_or_default().into(),
            number(row.free_sandboxes).into(),
            number(row.pods.and_then(|pods| i64::try_from(pods).ok())).into(),
            labelled,
            installed(&row.phase, &row.handlers, row.provided),
            row.since.map(|since| human::age(now, since)).unwrap_or_default().into(),
            row.code.clone().unwrap_or_default().into(),
            row.message.clone().into(),
        ]);
    }
    context.printer.table(&table, settings.is_wide(), titles)?;
    if list.head.simulated && titles {
        context.printer.say("(simulated)")?;
    }
    Ok(())
}
