//! `why`: why a pod does not run, or is not sandboxed, in terms of Kata: its class, its overhead, the
//! roll-out, and what the container runtime said.
//!
//! It reads; the verdicts are in `admission`, `kubelet`, `nodes` and `sandbox`, which are pure.

use jiff::Timestamp;
use kata_api::{Code, Natural};
use serde_json::Value;

use super::{expect_output, marked, problem_lines};
use crate::Context;
use crate::api::{Api, Read, Scope};
use crate::arguments::WhyArguments;
use crate::cluster::Kata;
use crate::document::{Head, NodeVerdict, Problem, WhyReport};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;
use crate::pod::Pod;
use crate::problem;
use crate::resource::{
    DAEMON_SETS, DEPLOYMENTS, EVENTS, JOBS, NODES, PODS, REPLICA_SETS, Resource, STATEFUL_SETS,
};
use crate::settings::Output;
use crate::style::wrap;

pub(crate) mod admission;
pub(crate) mod kubelet;
mod nodes;
pub(crate) mod sandbox;
mod verdict;

/// What makes pods: its name, and where it is.
type Owner = (&'static str, Resource);

/// What makes pods, and how it is named.
const OWNERS: [(&str, &str, Resource); 6] = [
    ("deployment", "deploy", DEPLOYMENTS),
    ("replicaset", "rs", REPLICA_SETS),
    ("statefulset", "sts", STATEFUL_SETS),
    ("daemonset", "ds", DAEMON_SETS),
    ("job", "jobs", JOBS),
    ("deployment", "deployments", DEPLOYMENTS),
];

pub(crate) async fn run(
    arguments: &WhyArguments,
    context: &mut Context<'_, '_>,
) -> Result<Exit, Failure> {
    expect_output(context.settings, &[Output::Table, Output::Json, Output::Yaml], "why")?;
    let (kind, name) = target(&arguments.target)?;
    let mut report = match kind {
        None => of_pod(&name, context).await?,
        Some((word, resource)) => of_owner(word, resource, &name, context).await?,
    };
    for cause in &mut report.causes {
        cause.who = cause.who.or_else(|| Code::parse(&cause.id).map(|code| code.who().as_str()));
    }
    if !context.printer.document(context.settings.output, &report)? {
        print(&report, context)?;
    }
    Ok(match (report.success, report.causes.is_empty() && !report.gaps.is_empty()) {
        (true, _) => Exit::Fine,
        (false, true) => Exit::Inconclusive,
        (false, false) => Exit::Findings,
    })
}

/// `deploy/web`, `pod/web-0` or `web-0`.
fn target(text: &str) -> Result<(Option<Owner>, String), Failure> {
    let Some((kind, name)) = text.split_once('/') else { return Ok((None, text.to_owned())) };
    let kind = kind.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let owner = OWNERS.iter().find(|(long, short, _)| {
        kind == *long || kind == *short || kind.strip_suffix('s') == Some(long)
    });
    let is_pod = matches!(kind.as_str(), "pod" | "pods" | "po");
    if (owner.is_none() && !is_pod) || name.is_empty() {
        return Err(Failure::Usage(format!(
            "{text} cannot be explained: give pod/NAME, deployment/NAME, replicaset/NAME, \
             statefulset/NAME, daemonset/NAME or job/NAME"
        )));
    }
    Ok((owner.map(|(long, _, resource)| (*long, *resource)), name.to_owned()))
}

async fn of_pod(name: &str, context: &Context<'_, '_>) -> Result<WhyReport, Failure> {
    let api = &context.api;
    let namespace = context.namespace();
    let (kata, pod) =
        futures::join!(Kata::read(api), api.get::<Value>(PODS, Some(&namespace), name));
    let kata = kata?;
    let pod = match pod? {
        Read::Known(Some(pod)) => pod,
        Read::Known(None) | Read::NotServed => {
            return Err(Failure::NotFound(format!(
                "there is no pod {name} in namespace {namespace}; if a Deployment should have made \
                 it, try `kubectl kata why deployment/NAME -n {namespace}`"
            )));
        }
        Read::Forbidden => {
            return Err(Failure::Forbidden(format!(
                "cannot look at pod {name}: you may not get pods in namespace {namespace}"
            )));
        }
    };
    explain(&pod, &kata, context).await
}

/// That the node of a pod is not Ready: its kubelet does not report whether the pod runs.
fn not_ready(pod: &Pod, kata: &Kata) -> Option<Problem> {
    let name = pod.node()?;
    let code = Code::NodeNotReady.entry().code;
    let node = kata.nodes.items().iter().find(|node| node.spec.node_name == name)?;
    let status = node.status.as_ref().filter(|status| status.code.as_deref() == Some(code))?;
    Some(Problem::new(Code::NodeNotReady, format!("node/{name}"), status.message.clone()))
}

/// Why this pod is as it is.
async fn explain(
    pod: &Value,
    kata: &Kata,
    context: &Context<'_, '_>,
) -> Result<WhyReport, Failure> {
    let api = &context.api;
    let now = context.settings.now();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, namespace) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["namespace"]));
    let slim: Pod = serde_json::from_value(pod.clone())
        .map_err(|source| Failure::Answer { what: format!("read pod {name}"), source })?;
    let class = slim.class().map(str::to_owned);
    let classes = kata.sandbox_classes();
    let sandboxed = classes.is_sandboxed(class.as_deref());
    let since = scheduled_since(pod).or(slim.metadata.creation_timestamp);
    let mut report = WhyReport {
        head: Head::new("WhyReport", kata.is_simulated()),
        success: false,
        target: format!("pod/{name}"),
        namespace: namespace.clone(),
        state: slim.shown_status(),
        since,
        runtime_class: class.clone(),
        asks: asks(&slim),
        nodes: Vec::new(),
        causes: Vec::new(),
        outlook: String::new(),
        gaps: Vec::new(),
    };
    let subject = report.target.clone();
    if sandboxed == Some(false) {
        let what = match &class {
            None => "spec.runtimeClassName is not set".to_owned(),
            Some(class) => format!("its RuntimeClass {class} is none of Kata's"),
        };
        report.causes.push(
            Problem::new(
                Code::NotSandboxed,
                &subject,
                format!("pod {name} is not sandboxed: {what}"),
            )
            .with_fix(format!(
                "add `runtimeClassName: {}` under spec, and create the pod again",
                classes.first().map_or("kata", String::as_str)
            )),
        );
    }
    report.causes.extend(sandbox::unsupported(pod, &subject, sandboxed == Some(true)));
    match slim.status.phase.as_str() {
        "Running" | "Succeeded" if slim.metadata.deletion_timestamp.is_none() => {
            let events = events(api, &name, &namespace).await?;
            report.causes.extend(kubelet::causes(pod, events.items(), &subject));
            if slim.status.phase == "Running" {
                report.causes.extend(not_ready(&slim, kata));
            }
            if slim.status.phase == "Running" && report.causes.is_empty() {
                report.causes.extend(kubelet::not_ready(pod, &subject));
            }
            report.success = report.causes.is_empty() && sandboxed.is_some();
            if report.causes.is_empty() {
                let runs = if slim.status.phase == "Running" { "runs" } else { "ran" };
                let node = slim.node().unwrap_or("no node");
                let class = class.unwrap_or_default();
                let shows = format!("`kubectl kata verify pod/{name} -n {namespace}`");
                report.outlook = if report.success {
                    format!(
                        "nothing is wrong: it {runs} on {node}, in a virtual machine of class {class}; {shows} \
                         proves it"
                    )
                } else {
                    format!(
                        "it {runs} on {node}; cannot tell whether pods of RuntimeClass {class} run in virtual \
                         machines: {}; {shows} looks into the pod",
                        classes.unseen()
                    )
                };
            }
        }
        phase
            if slim.node().is_some()
                || phase == "Failed"
                || slim.metadata.deletion_timestamp.is_some() =>
        {
            let events = events(api, &name, &namespace).await?;
            report.causes.extend(not_ready(&slim, kata));
            report.causes.extend(kubelet::causes(pod, events.items(), &subject));
            if report.causes.is_empty() {
                report.outlook = kubelet::outlook(pod);
            }
        }
        _ => schedule(pod, &slim, kata, now, &mut report, context).await?,
    }
    report.gaps = api.gaps();
    Ok(report)
}

/// The Events of a pod.
async fn events(api: &Api, name: &str, namespace: &str) -> Result<Read<Vec<Value>>, Failure> {
    let fields = format!("involvedObject.name={name}");
    api.list(EVENTS, Scope { fields: Some(&fields), ..Scope::of(namespace) }).await
}

/// Why no node has taken the pod.
async fn schedule(
    pod: &Value,
    slim: &Pod,
    kata: &Kata,
    now: Timestamp,
    report: &mut WhyReport,
    context: &Context<'_, '_>,
) -> Result<(), Failure> {
    let api = &context.api;
    let (nodes, pods) = futures::join!(
        api.list::<Value>(NODES, Scope::default()),
        api.list::<Pod>(PODS, Scope::default()),
    );
    let (nodes, pods) = (nodes?, pods?);
    let gates = pod["spec"]["schedulingGates"].as_array();
    let gates: Vec<&str> =
        gates.into_iter().flatten().filter_map(|it| it["name"].as_str()).collect();
    if !gates.is_empty() || nodes::is_gated(pod) {
        let names = if gates.is_empty() { String::new() } else { human::list(&gates, 5) };
        let message = format!("the pod has scheduling gates {names}").trim_end().to_owned();
        let fix = "read the log of the controller that set them: it removes them";
        report
            .causes
            .push(Problem::new(Code::NoNodeFits, report.target.clone(), message).with_fix(fix));
        return Ok(());
    }
    let verdicts = nodes.as_known().map_or_else(Vec::new, |nodes| {
        let runtimes = kata.runtimes();
        let runtime = runtimes.iter().find(|it| Some(it.name.as_str()) == slim.class());
        let install_on = runtime.and_then(|runtime| kata.install_on(runtime));
        nodes::verdicts(
            pod,
            slim,
            nodes,
            pods.items(),
            kata.nodes.items(),
            kata.active(),
            install_on,
        )
    });
    report.nodes = nodes::shown(&verdicts);
    let active = kata.active();
    let selector = active.and_then(|config| config.spec.kata_config_pool_selector.as_ref());
    let deleting = active.filter(|config| config.metadata.deletion_timestamp.is_some());
    let stalls = active.map(|config| problem::stalls(config, kata.nodes.items()));
    let (causes, outlook) = nodes::conclusion(nodes::Known {
        subject: &report.target,
        class: slim.class().unwrap_or_default(),
        verdicts: &verdicts,
        deleting: deleting.and_then(|config| config.metadata.name.as_deref()),
        selector,
        progress: &super::status::progress::nodes(active, kata.nodes.items(), now),
        stalled: stalls.unwrap_or_default(),
        unmatched: nodes
            .as_known()
            .and_then(|all| nodes::unmatched(pod, all, &verdicts, selector, &report.target)),
        said: nodes::scheduler_message(pod).as_deref(),
    });
    report.causes.extend(causes);
    report.outlook = outlook;
    report.causes.extend(super::status::blocked_drains(api, kata.nodes.items()).await?);
    Ok(())
}

/// When the pod's present state began.
fn scheduled_since(pod: &Value) -> Option<Timestamp> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
    ready["lastTransitionTime"].as_str()?.parse().ok()
}

/// `512Mi + 350Mi overhead = 862Mi, 250m CPU`.
fn asks(pod: &Pod) -> String {
    let overhead =
        |key: &str| pod.spec.overhead.get(key).and_then(|text| human::quantity(text)).unwrap_or(0);
    let (memory, cpu) = (pod.takes("memory"), pod.takes("cpu"));
    let (extra_memory, extra_cpu) = (overhead("memory"), overhead("cpu"));
    let show = |milli: i128| human::memory(milli / 1_000);
    if extra_memory == 0 && extra_cpu == 0 {
        return format!("{} memory, {} CPU", show(memory), human::cpu(cpu));
    }
    format!(
        "{} + {} overhead = {} memory, {} CPU",
        show(memory - extra_memory),
        show(extra_memory),
        show(memory),
        human::cpu(cpu)
    )
}

/// Why what should make pods has none that run.
async fn of_owner(
    word: &str,
    resource: Resource,
    name: &str,
    context: &Context<'_, '_>,
) -> Result<WhyReport, Failure> {
    let api = &context.api;
    let namespace = context.namespace();
    let (kata, owner) =
        futures::join!(Kata::read(api), api.get::<Value>(resource, Some(&namespace), name));
    let kata = kata?;
    let owner = match owner? {
        Read::Known(Some(owner)) => owner,
        Read::Known(None) | Read::NotServed => {
            return Err(Failure::NotFound(format!(
                "there is no {word} {name} in namespace {namespace}"
            )));
        }
        Read::Forbidden => {
            return Err(Failure::Forbidden(format!(
                "cannot look at {word} {name}: you may not get {} in namespace {namespace}",
                resource.qualified()
            )));
        }
    };
    let uids = makers(word, &owner, &namespace, context).await?;
    let pods = api.list::<Value>(PODS, Scope::of(&namespace)).await?;
    let made = |pod: &&Value| {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| {
            owner["uid"].as_str().is_some_and(|uid| uids.iter().any(|(_, known)| known == uid))
        })
    };
    let mut mine: Vec<&Value> = pods.items().iter().filter(made).collect();
    // The pod in the worst state is explained; pods that a controller replaced come last.
    mine.sort_by_key(|pod| {
        let conditions = pod["status"]["conditions"].as_array();
        let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
        match pod["status"]["phase"].as_str() {
            Some("Pending") => 0,
            Some("Running") if !conditions.into_iter().flatten().any(is_ready) => 1,
            Some("Failed") if word == "job" => 2,
            Some("Failed") => 4,
            _ => 3,
        }
    });
    let mut messages = admission::conditions(&owner);
    let names: Vec<&str> = uids.iter().map(|(name, _)| name.as_str()).chain([name]).collect();
    let events = api.list::<Value>(EVENTS, Scope::of(&namespace)).await?;
    messages.extend(admission::events(events.items(), &names));
    let rejected = admission::problems(&messages, &format!("{word}/{name}"));
    if let (Some(pod), true) = (mine.first(), rejected.is_empty()) {
        return explain(pod, &kata, context).await;
    }
    let template = &owner["spec"]["template"]["spec"];
    let missing = rejected.is_empty();
    Ok(WhyReport {
        head: Head::new("WhyReport", kata.is_simulated()),
        success: false,
        target: format!("{word}/{name}"),
        namespace,
        state: if mine.is_empty() { "no pods" } else { "too few pods" }.to_owned(),
        since: None,
        runtime_class: template["runtimeClassName"].as_str().map(str::to_owned),
        asks: String::new(),
        nodes: Vec::new(),
        causes: rejected,
        outlook: if missing {
            format!("{word} {name} has made no pod, and no refusal is known; see its Events")
        } else {
            format!("the pods of {word} {name} are refused when they are created")
        },
        gaps: api.gaps(),
    })
}

/// Names and uids of everything between the owner and its pods.
async fn makers(
    word: &str,
    owner: &Value,
    namespace: &str,
    context: &Context<'_, '_>,
) -> Result<Vec<(String, String)>, Failure> {
    let of = |object: &Value| {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        (text("name"), text("uid"))
    };
    let own = of(owner);
    let mut all = vec![own.clone()];
    if word == "deployment" {
        let sets = context.api.list::<Value>(REPLICA_SETS, Scope::of(namespace)).await?;
        all.extend(
            sets.items()
                .iter()
                .filter(|set| {
                    let owners = set["metadata"]["ownerReferences"].as_array();
                    owners.into_iter().flatten().any(|owner| owner["uid"] == own.1.as_str())
                })
                .map(of),
        );
    }
    Ok(all)
}

fn print(report: &WhyReport, context: &mut Context<'_, '_>) -> Result<(), Failure> {
    let now = context.settings.now();
    let style = context.printer.style();
    let since =
        report.since.map_or_else(String::new, |since| format!(" {}", human::age(now, since)));
    let class = report
        .runtime_class
        .as_ref()
        .map_or_else(|| "no RuntimeClass".to_owned(), |class| format!("class {class}"));
    let asks =
        if report.asks.is_empty() { String::new() } else { format!(", asks {}", report.asks) };
    let head = format!("{} {}{since}  {class}{asks}", report.target, report.state);
    context.printer.line(&style.plain(&marked(&head, report.head.simulated)))?;
    for line in node_lines(&report.nodes) {
        context.printer.line(&style.plain(&line))?;
    }
    let width = style.width.unwrap_or(usize::MAX).max(40);
    for line in wrap(&style.plain(&report.outlook), width) {
        if !line.is_empty() {
            context.printer.line(&line)?;
        }
    }
    for line in problem_lines(&report.causes, &style) {
        context.printer.line(&line)?;
    }
    Ok(())
}

/// Nodes with the same verdict on one line.
fn node_lines(nodes: &[NodeVerdict]) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for node in nodes {
        match groups.iter_mut().find(|(why, _)| *why == node.verdict) {
            Some((_, names)) => names.push(&node.name),
            None => groups.push((&node.verdict, vec![&node.name])),
        }
    }
    groups.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    for (_, names) in &mut groups {
        names.sort_by_key(|name| Natural(name));
    }
    let total = human::count(nodes.len(), "node");
    groups
        .iter()
        .enumerate()
        .map(|(at, (why, names))| {
            let head = if at == 0 { total.as_str() } else { "" };
            format!("  {head:<9} {}: {why}", human::list(names, 3))
        })
        .collect()
}
