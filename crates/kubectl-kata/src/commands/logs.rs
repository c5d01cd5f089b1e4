//! `logs`: of a sandboxed pod, of the operator, of what changes a node, or what the node's journal has of
//! a sandbox.

use futures::AsyncBufReadExt as _;
use futures::TryStreamExt as _;
use http::Request;
use kata_api::KataNode;
use serde_json::Value;

use crate::Context;
use crate::api::{Api, Read, Scope, refused};
use crate::arguments::LogsArguments;
use crate::cluster;
use crate::commands::why::kubelet::last_time;
use crate::connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::journal;
use crate::resource::{EVENTS, KATA_NODES, NODES, PODS, encode};
use crate::settings::Output;

/// The namespace of the Machine Config Operator.
const MCO: &str = "openshift-machine-config-operator";

pub(crate) async fn run(
    arguments: &LogsArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    super::expect_output(context.settings, &[Output::Table], "logs")?;
    let journal = arguments.shim || arguments.vmm || arguments.guest;
    let target = &arguments.target;
    if target.rsplit('/').next().is_none_or(str::is_empty) {
        return Err(Failure::Usage(format!(
            "logs {target}: a name is missing: give operator, pod/NAME or node/NAME"
        )));
    }
    // What is followed has no end at which this could be said.
    if cluster::version(&context.api).await?.is_simulated() {
        context.printer.say("(simulated)")?;
    }
    match arguments.target.split_once('/') {
        _ if arguments.target == "operator" => operator(arguments, context).await,
        Some(("pod" | "pods" | "po", name)) if journal => sandbox(arguments, name, context).await,
        Some(("pod" | "pods" | "po", name)) => {
            let namespace = context.namespace();
            started(arguments, &namespace, name, context).await
        }
        Some(("node" | "nodes" | "no", name)) => node(arguments, name, context).await,
        None => {
            let namespace = context.namespace();
            started(arguments, &namespace, &arguments.target, context).await
        }
        Some((kind, _)) => Err(Failure::Usage(format!(
            "logs of a {kind} are not known here: give operator, pod/NAME or node/NAME"
        ))),
    }
}

async fn operator(
    arguments: &LogsArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let home = cluster::home(&context.api).await?.to_owned();
    let pods = cluster::operator_pods(&context.api, &context.api).await?;
    pods.listed("find the operator", &format!("pods in namespace {home}"))?;
    let found: Vec<String> = pods
        .items()
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    if found.is_empty() {
        return Err(Failure::NotFound(format!(
            "there is no pod of the operator in namespace {home}"
        )));
    }
    let many = found.len() > 1;
    let mut exit = Exit::Fine;
    for name in &found {
        let prefix = if many { format!("{name} ") } else { String::new() };
        exit = stream(arguments, &home, name, &prefix, context).await?;
    }
    Ok(exit)
}

/// What changes the node: the last Job of the node agent, or the machine-config daemon.
async fn node(
    arguments: &LogsArguments,
    name: &str,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let fields = format!("spec.nodeName={name}");
    let mut hidden = Vec::new();
    let home = cluster::home(&context.api).await?.to_owned();
    let last = last_job(name, &context.api).await;
    for namespace in [home.as_str(), MCO] {
        let scope = Scope { fields: Some(&fields), ..Scope::of(namespace) };
        let pods = context.api.list::<Value>(PODS, scope).await?;
        if pods.is_forbidden() {
            hidden.push(namespace);
        }
        let mut found: Vec<&Value> = pods
            .items()
            .iter()
            .filter(|pod| {
                job_of(pod).is_some()
                    || pod["metadata"]["labels"]["k8s-app"] == "machine-config-daemon"
            })
            .collect();
        // Times are in whole seconds, within which one Job can follow another.
        let is_last = |pod: &Value| last.is_some() && job_of(pod) == last.as_deref();
        found.sort_by_key(|pod| {
            (is_last(pod), pod["metadata"]["creationTimestamp"].as_str().map(str::to_owned))
        });
        if let Some(pod) = found.last().and_then(|pod| pod["metadata"]["name"].as_str()) {
            let pod = pod.to_owned();
            context.printer.say(&format!("pod {namespace}/{pod}:"))?;
            return started(arguments, namespace, &pod, context).await;
        }
    }
    if let Read::Known(None) = context.api.get::<Value>(NODES, None, name).await? {
        return Err(Failure::NotFound(format!(
            "there is no node {name}: see `kubectl kata nodes`"
        )));
    }
    if !hidden.is_empty() {
        return Err(Failure::Forbidden(format!(
            "cannot find what changes node {name}: you may not list pods in namespace {}",
            hidden.join(" and ")
        )));
    }
    Err(Failure::NotFound(format!(
        "there is no pod on node {name} that changes it: neither a Job of the node agent in {home} nor a \
         machine-config-daemon in {MCO}"
    )))
}

/// The Job that a pod is of.
fn job_of(pod: &Value) -> Option<&str> {
    let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.find(|owner| owner["kind"] == "Job")?["name"].as_str()
}

/// The last Job on the node as the operator tells it. The command can do without, so that nobody is told that it
/// cannot be read.
async fn last_job(node: &str, api: &Api) -> Option<String> {
    let fields = format!("spec.nodeName={node}");
    let scope = Scope { fields: Some(&fields), ..Scope::default() };
    let nodes = api.for_watches().list::<KataNode>(KATA_NODES, scope).await.ok()?;
    let mut hosts = nodes.items().iter().filter_map(|node| node.status.as_ref()?.host.as_ref());
    hosts.find_map(|host| host.job.as_ref()).map(|job| job.name.clone())
}

/// The log of a pod, or why it has none: what a container waits for is in the pod's status, and what holds up
/// one that is just being created is in its Events.
async fn started(
    arguments: &LogsArguments,
    namespace: &str,
    name: &str,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let (what, message) = match stream(arguments, namespace, name, "", context).await {
        Err(Failure::Refused { what, message }) => (what, message),
        done => return done,
    };
    let pod = context.api.get::<Value>(PODS, Some(namespace), name).await?.known().flatten();
    let waits = pod.as_ref().and_then(waiting);
    let message = match waits {
        Some(Waiting { said: Some(said), text }) => format!("{text}: {said}"),
        Some(Waiting { said: None, text }) => match warned(namespace, name, context).await? {
            Some(event) => format!("{text}; the latest warning: {event}"),
            None => message,
        },
        None => message,
    };
    Err(Failure::Refused { what, message })
}

/// What the first container that has not started waits for.
struct Waiting {
    text: String,
    /// What the kubelet says of it.
    said: Option<String>,
}

fn waiting(pod: &Value) -> Option<Waiting> {
    let of = |key: &str| pod["status"][key].as_array().into_iter().flatten();
    // One that waits for those before it says nothing of its own.
    let all = of("initContainerStatuses").chain(of("containerStatuses"));
    let container = all
        .filter(|status| status["state"]["waiting"].is_object())
        .find(|status| status["state"]["waiting"]["reason"] != "PodInitializing")?;
    let waiting = &container["state"]["waiting"];
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let name = text(&container["name"]).unwrap_or_default();
    let reason = text(&waiting["reason"]).unwrap_or_else(|| "no reason given".to_owned());
    let image = text(&container["image"]).map(|image| format!(", image {image}"));
    Some(Waiting {
        text: format!("container {name} waits: {reason}{}", image.unwrap_or_default()),
        said: text(&waiting["message"]).map(|said| said.replace('\n', " ")),
    })
}

/// The newest warning about a pod, if the caller may see it.
async fn warned(
    namespace: &str,
    name: &str,
    context: &Context<'_, '_>,
) -> Result<Option<String>, Failure> {
    let fields = format!("involvedObject.kind=Pod,involvedObject.name={name},type=Warning");
    let scope = Scope { fields: Some(&fields), ..Scope::of(namespace) };
    let events = context.api.list::<Value>(EVENTS, scope).await?;
    let newest = events.items().iter().max_by_key(|event| last_time(event));
    let text = |value: &Value| value.as_str().unwrap_or_default().replace('\n', " ");
    Ok(newest.map(|event| format!("{} {}", text(&event["reason"]), text(&event["message"]))))
}

/// The log of a container, line by line.
async fn stream(
    arguments: &LogsArguments,
    namespace: &str,
    name: &str,
    prefix: &str,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let mut query = Vec::new();
    if let Some(container) = &arguments.container {
        query.push(format!("container={}", encode(container)));
    }
    if let Some(tail) = arguments.tail {
        query.push(format!("tailLines={tail}"));
    }
    if let Some(since) = arguments.since {
        query.push(format!("sinceSeconds={}", since.as_secs()));
    }
    if arguments.previous {
        query.push("previous=true".to_owned());
    }
    if arguments.follow {
        query.push("follow=true".to_owned());
    }
    let path = format!("{}/log?{}", PODS.object(Some(namespace), name), query.join("&"));
    let what = format!("read the log of pod {namespace}/{name}");
    pour(&what, &path, "pods/log", Some(namespace), prefix, context).await
}

/// What the node's journal has of the pod's sandbox.
async fn sandbox(
    arguments: &LogsArguments,
    name: &str,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let namespace = context.namespace();
    let pod = super::existing_pod(name, &namespace, context).await?;
    let node =
        pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()).ok_or_else(|| {
            Failure::NotFound(format!(
                "pod {name} is on no node yet: see `kubectl kata why pod/{name}`"
            ))
        })?;
    let pattern = if arguments.vmm {
        "qemu|cloud-hypervisor|firecracker|dragonball|subsystem=qmp"
    } else if arguments.guest {
        "vmconsole|reading guest console|source=agent"
    } else {
        "source=containerd-kata-shim|name=containerd-shim-v2|kata"
    };
    // NodeLogQuery of the kubelet: `kubectl get --raw /api/v1/nodes/NODE/proxy/logs/?query=UNIT`.
    let since = arguments.since.map_or_else(String::new, |since| {
        let time = context.settings.now()
            - jiff::SignedDuration::from_secs(i64::try_from(since.as_secs()).unwrap_or(0));
        format!("&sinceTime={}", encode(&time.to_string()))
    });
    let tail = arguments.tail.map_or_else(String::new, |tail| format!("&tailLines={tail}"));
    let path = format!(
        "{}/proxy/logs/?query=kata&query=crio&query=containerd&pattern={}{since}{tail}",
        NODES.object(None, node),
        encode(pattern)
    );
    let what = format!("read the journal of node {node}");
    match pour(&what, &path, journal::RESOURCE, None, "", context).await {
        Err(Failure::NotFound(_)) => Err(Failure::NotFound(format!(
            "cannot {what}: its kubelet does not serve it, which takes the feature NodeLogQuery and \
             enableSystemLogQuery; on the node itself: journalctl -t kata -u crio -u containerd"
        ))),
        poured => poured,
    }
}

async fn pour(
    what: &str,
    path: &str,
    resource: &str,
    namespace: Option<&str>,
    prefix: &str,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    let request = Request::get(path).body(Vec::new()).map_err(|error| Failure::Refused {
        what: what.to_owned(),
        message: format!("no valid request: {error}"),
    })?;
    let of_journal = resource == journal::RESOURCE;
    let interrupted = context.interrupted();
    let mut interrupted = std::pin::pin!(interrupted);
    let stream = match context.api.client.request_stream(request).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            context.api.note("get", resource, namespace);
            let place = namespace.map_or_else(String::new, |name| format!(" in namespace {name}"));
            return Err(Failure::Forbidden(format!(
                "cannot {what}: you may not get {resource}{place}"
            )));
        }
        Err(kube::Error::Api(status)) if of_journal && journal::is_not_served(status.code) => {
            return Err(Failure::NotFound(format!("cannot {what}: {}", status.message)));
        }
        Err(kube::Error::Api(status)) => return Err(refused(what, &status)),
        Err(error) => return Err(connect::failure(what, error)),
    };
    let mut lines = std::pin::pin!(stream.lines());
    let mut is_first = true;
    loop {
        let line = tokio::select! {
            () = &mut interrupted => return Ok(Exit::Interrupted),
            line = lines.try_next() => line?,
        };
        match line {
            Some(line) if of_journal && is_first && journal::is_listing(&line) => {
                return Err(Failure::NotFound(format!(
                    "cannot {what}: the answer is a list of files"
                )));
            }
            Some(line) => {
                is_first = false;
                context.printer.line(&format!("{prefix}{line}"))?;
                context.printer.flush()?;
            }
            None => return Ok(Exit::Fine),
        }
    }
}
