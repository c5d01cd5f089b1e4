//! What people and programs said: Events, logs, metrics, and the journals of nodes.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::Phase;
use serde_json::Value;

use super::Collection;
use super::name::ItemName;
use crate::Context;
use crate::api::{Read, Scope, Trouble};
use crate::arguments::GatherArguments;
use crate::cluster::{self, Kata};
use crate::failure::Failure;
use crate::journal;
use crate::resource::{EVENTS, NODES, PODS, encode};

/// Of how many nodes the journals are read: those with trouble first.
const JOURNALS: usize = 10;
/// How many lines of a journal are read.
const LINES: u32 = 10_000;
/// Why there is no journal of a node.
const NO_JOURNAL: &str = "the kubelet does not serve its node's journal (feature NodeLogQuery)";
/// Where the operator serves its metrics.
const METRICS_PORT: u16 = 8080;

/// Reasons of Events whose messages are kept: they are about Kata, a node or the scheduler. Other messages can quote an
/// application, such as its answer to a probe.
const KEPT_REASONS: [&str; 16] = [
    "BackOff",
    "DeadlineExceeded",
    "Evicted",
    "Failed",
    "FailedAttachVolume",
    "FailedCreate",
    "FailedCreatePodSandBox",
    "FailedKillPod",
    "FailedMount",
    "FailedScheduling",
    "NodeNotReady",
    "NodeReady",
    "Preempted",
    "Rebooted",
    "SandboxChanged",
    "SuccessfulCreate",
];

/// Events of the operator's objects, of nodes, of pools and of sandboxed pods.
pub(super) async fn events(
    pods: &[Value],
    home: &str,
    arguments: &GatherArguments,
    context: &Context<'_, '_>,
    collection: &mut Collection,
) -> Result<(), Failure> {
    let Read::Known(events) = context.api.list::<Value>(EVENTS, Scope::default()).await? else {
        collection.forbid("events");
        return Ok(());
    };
    collection.wanted += 1;
    let of = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let pods: BTreeSet<(String, String)> = pods
        .iter()
        .map(|pod| (of(&pod["metadata"], "namespace"), of(&pod["metadata"], "name")))
        .collect();
    let oldest = oldest(arguments, context);
    let everything = collection.redactor.is_none();
    let mut lines: Vec<String> = events
        .iter()
        .filter_map(|event| {
            let time = ["lastTimestamp", "eventTime", "firstTimestamp"]
                .iter()
                .find_map(|key| event[*key].as_str()?.parse::<Timestamp>().ok())?;
            let object = &event["involvedObject"];
            let (kind, name) = (of(object, "kind"), of(object, "name"));
            let namespace = of(object, "namespace");
            let (is_kept, is_ours) = match kind.as_str() {
                "KataConfig" | "KataNode" => (true, true),
                "Node" | "MachineConfigPool" | "RuntimeClass" => (true, false),
                _ if namespace == home => (true, false),
                "Pod" => (pods.contains(&(namespace.clone(), name.clone())), false),
                _ => (false, false),
            };
            let is_recent = oldest.is_none_or(|oldest| time >= oldest);
            let reason = of(event, "reason");
            let message = if everything || is_ours || KEPT_REASONS.contains(&reason.as_str()) {
                of(event, "message").replace('\n', " ")
            } else {
                "(its message is not kept)".to_owned()
            };
            let type_ = of(event, "type");
            (is_recent && (is_kept || everything))
                .then(|| format!("{time} {type_} {reason} {kind}/{namespace}/{name} {message}"))
        })
        .collect();
    lines.sort();
    collection.add(ItemName::of("events.txt"), &(lines.join("\n") + "\n"));
    Ok(())
}

/// Logs of the operator and of its Jobs, and the operator's metrics through the API server.
pub(super) async fn logs(
    arguments: &GatherArguments,
    context: &Context<'_, '_>,
    collection: &mut Collection,
) -> Result<(), Failure> {
    let home = cluster::home(&context.api).await?.to_owned();
    let namespace = Some(home.as_str());
    let scope = Scope::of(&home);
    let Read::Known(pods) = context.api.list::<Value>(PODS, scope).await? else { return Ok(()) };
    let since = arguments
        .since
        .map_or_else(String::new, |since| format!("?sinceSeconds={}", since.as_secs()));
    for pod in pods {
        let Some(name) = pod["metadata"]["name"].as_str() else { continue };
        let item = ItemName::within("logs", name, "log");
        let path = format!("{}/log{since}", PODS.object(namespace, name));
        add(item, &path, ("pods/log", namespace), context, collection).await;
        if pod["spec"]["containers"][0]["name"] == "operator" {
            let place = PODS.object(namespace, &format!("{name}:{METRICS_PORT}"));
            let path = format!("{place}/proxy/metrics");
            let item = ItemName::within("metrics", name, "txt");
            add(item, &path, ("pods/proxy", namespace), context, collection).await;
        }
    }
    Ok(())
}

/// What the journals of nodes with Kata say of it, if their kubelets show them (NodeLogQuery).
pub(super) async fn journals(
    kata: &Kata,
    arguments: &GatherArguments,
    context: &Context<'_, '_>,
    collection: &mut Collection,
) {
    let mut nodes: Vec<(bool, &str)> = kata
        .nodes
        .items()
        .iter()
        .map(|node| {
            let phase = node.status.as_ref().map(|status| status.phase);
            (phase == Some(Phase::Ready), node.spec.node_name.as_str())
        })
        .collect();
    nodes.sort_unstable();
    let begin = oldest(arguments, context)
        .map_or_else(String::new, |t| format!("&sinceTime={}", encode(&t.to_string())));
    for (_, node) in nodes.iter().take(JOURNALS) {
        let path = format!(
            "{}/proxy/logs/?query=crio&query=containerd&query=kubelet&pattern={}&tailLines={LINES}{begin}",
            NODES.object(None, node),
            encode("kata|virtiofsd|qemu|cloud-hypervisor")
        );
        let item = ItemName::within("journals", node, "log");
        add(item, &path, (journal::RESOURCE, None), context, collection).await;
    }
}

/// When what is collected begins; `None` for all that there is.
fn oldest(arguments: &GatherArguments, context: &Context<'_, '_>) -> Option<Timestamp> {
    let span = SignedDuration::from_secs(i64::try_from(arguments.since?.as_secs()).ok()?);
    context.settings.now().checked_sub(span).ok()
}

/// A text that there may be: a node that does not answer keeps nobody from the rest.
async fn add(
    item: ItemName,
    path: &str,
    (resource, namespace): (&str, Option<&str>),
    context: &Context<'_, '_>,
    collection: &mut Collection,
) {
    let name = item.as_str().to_owned();
    let what = format!("read {name}");
    match context.api.text(&what, path).await {
        Ok(text) if resource == journal::RESOURCE && journal::is_listing(&text) => {
            collection.absent.push((name, NO_JOURNAL.to_owned()));
        }
        Ok(text) => collection.add(item, &text),
        Err(Trouble::Status(status)) if status.code == 403 => {
            context.api.note("get", resource, namespace);
            collection.forbidden.push(name);
        }
        Err(Trouble::Status(status))
            if resource == journal::RESOURCE && journal::is_not_served(status.code) =>
        {
            collection.absent.push((name, NO_JOURNAL.to_owned()));
        }
        Err(trouble) => {
            let why = trouble.failure(&what).chain();
            collection.absent.push((name, why));
        }
    }
    collection.wanted += 1;
}
