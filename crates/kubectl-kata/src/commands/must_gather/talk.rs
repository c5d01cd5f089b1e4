//! What people and programs said: Events, logs, metrics, and the journals of nodes.

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::Phase;
use serde_json::Value;

use super::Collection;
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

/// Events of everything.
pub(super) async fn events(
    arguments: &GatherArguments,
    context: &Context<'_, '_>,
    collection: &mut Collection,
) -> Result<(), Failure> {
    collection.wanted += 1;
    let Read::Known(events) = context.api.list::<Value>(EVENTS, Scope::default()).await? else {
        collection.forbidden.push("events".to_owned());
        return Ok(());
    };
    let oldest = oldest(arguments, context);
    let mut lines: Vec<String> = events
        .iter()
        .filter_map(|event| {
            let time = ["lastTimestamp", "eventTime", "firstTimestamp"]
                .iter()
                .find_map(|key| event[*key].as_str()?.parse::<Timestamp>().ok())?;
            let text = |value: &Value| value.as_str().unwrap_or_default().replace('\n', " ");
            let object = &event["involvedObject"];
            oldest.is_none_or(|oldest| time >= oldest).then(|| {
                format!(
                    "{time} {} {} {}/{}/{} {}",
                    text(&event["type"]),
                    text(&event["reason"]),
                    text(&object["kind"]),
                    text(&object["namespace"]),
                    text(&object["name"]),
                    text(&event["message"])
                )
            })
        })
        .collect();
    lines.sort();
    collection.text("events.txt".to_owned(), &(lines.join("\n") + "\n"), arguments);
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
        let item = format!("logs/{name}.log");
        let path = format!("{}/log{since}", PODS.object(namespace, name));
        add(item, &path, ("pods/log", namespace), arguments, context, collection).await;
        if pod["spec"]["containers"][0]["name"] == "operator" {
            let place = PODS.object(namespace, &format!("{name}:{METRICS_PORT}"));
            let path = format!("{place}/proxy/metrics");
            let item = format!("metrics/{name}.txt");
            add(item, &path, ("pods/proxy", namespace), arguments, context, collection).await;
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
        let item = format!("journals/{node}.log");
        add(item, &path, (journal::RESOURCE, None), arguments, context, collection).await;
    }
}

/// When what is collected begins; `None` for all that there is.
fn oldest(arguments: &GatherArguments, context: &Context<'_, '_>) -> Option<Timestamp> {
    let span = SignedDuration::from_secs(i64::try_from(arguments.since?.as_secs()).ok()?);
    context.settings.now().checked_sub(span).ok()
}

/// A text that there may be: a node that does not answer keeps nobody from the rest.
async fn add(
    item: String,
    path: &str,
    (resource, namespace): (&str, Option<&str>),
    arguments: &GatherArguments,
    context: &Context<'_, '_>,
    collection: &mut Collection,
) {
    collection.wanted += 1;
    match context.api.text(&format!("read {item}"), path).await {
        Ok(text) if resource == journal::RESOURCE && journal::is_listing(&text) => {
            collection.absent.push((item, NO_JOURNAL.to_owned()));
        }
        Ok(text) => collection.text(item, &text, arguments),
        Err(Trouble::Status(status)) if status.code == 403 => {
            context.api.note("get", resource, namespace);
            collection.forbidden.push(item);
        }
        Err(Trouble::Status(status))
            if resource == journal::RESOURCE && journal::is_not_served(status.code) =>
        {
            collection.absent.push((item, NO_JOURNAL.to_owned()));
        }
        Err(trouble) => {
            let why = trouble.failure(&format!("read {item}")).chain();
            collection.absent.push((item, why));
        }
    }
}
