//! Whether one pod is sandboxed, and why not.

use jiff::Timestamp;
use kata_api::Code;
use serde_json::Value;
use tokio::time::Instant;

use super::compare::{self, Compared};
use super::exec::{self, Silence};
use super::{failed, host, infos};
use crate::Context;
use crate::arguments::VerifyArguments;
use crate::cluster::Kata;
use crate::commands::existing_pod;
use crate::document::{Problem, Verdict, VerifyResult};
use crate::failure::Failure;

/// The verdict about a pod; `None` if interrupted.
pub(super) async fn verify(
    target: &str,
    arguments: &VerifyArguments,
    kata: &Kata,
    interrupted: impl Future<Output = ()>,
    context: &mut Context<'_, '_>,
) -> Result<Option<Verdict>, Failure> {
    let name = match target.split_once('/') {
        Some(("pod" | "pods" | "po", name)) => name,
        None => target,
        Some((kind, _)) => {
            return Err(Failure::Usage(format!(
                "verify pod/NAME, not a {kind}; nodes with --node"
            )));
        }
    };
    if name.is_empty() {
        return Err(Failure::Usage(format!("verify {target}: name the pod, as pod/NAME")));
    }
    let pod = existing_pod(name, &context.namespace(), context).await?;
    if let Some(container) = &arguments.container {
        has_container(&pod, name, container)?;
    }
    let mut verdict = judge(name, &pod, arguments, kata, context).await?;
    if !arguments.host {
        return Ok(Some(verdict));
    }
    // The verdict is known: that the node cannot be read does not change it.
    match host::read(&pod, arguments, interrupted, context).await {
        Ok(None) => return Ok(None),
        Ok(Some(Ok(facts))) => verdict.host = Some(facts),
        Ok(Some(Err(problems))) => verdict.problems.extend(problems),
        Err(failure) => {
            let text = failure.to_string();
            verdict.problems.push(Problem::new(Code::ProbeFailed, &verdict.subject, text));
        }
    }
    verdict.host_unknown = verdict.host.is_none();
    Ok(Some(verdict))
}

async fn judge(
    name: &str,
    pod: &Value,
    arguments: &VerifyArguments,
    kata: &Kata,
    context: &mut Context<'_, '_>,
) -> Result<Verdict, Failure> {
    let begin = Instant::now();
    let namespace = context.namespace();
    let subject = format!("pod/{name}");
    let classes = kata.sandbox_classes();
    let class = pod["spec"]["runtimeClassName"].as_str().filter(|class| !class.is_empty());
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    let running = pod["status"]["phase"] == "Running";
    let seconds = || begin.elapsed().as_secs_f64();
    // The kernel says it to who may not see what classes are.
    let sandboxed = classes.is_sandboxed(class) != Some(false);
    if sandboxed && !running {
        let text = format!("pod {name} does not run, so there is nothing to verify");
        return Ok(failed(subject, Code::PodNotRunning, text, seconds()));
    }
    let mut infos = infos(context).await?;
    if let (Some(info), Some(class)) = (infos.get_mut(&node), class) {
        let status = kata.nodes.items().iter().find(|known| known.spec.node_name == node);
        info.add_kata(kata.shim(class, Some(&node)).as_ref(), status);
    }
    let info = infos.get(&node);
    let container = arguments.container.as_deref();
    let answer = if running {
        exec::facts(&context.api.client, &namespace, name, container).await
    } else {
        Err(Silence::Failed("the pod does not run".to_owned()))
    };
    let node_facts = info.and_then(|info| info.facts.as_ref());
    let same = match (&answer, node_facts) {
        (Ok(facts), Some(node)) => Some(facts.boot_id == node.boot_id),
        _ => None,
    };
    let signals = match &answer {
        Ok(facts) => {
            let handlers = kata.handlers();
            let handler = class.filter(|_| sandboxed).and_then(|class| handlers.get(class));
            let handler = handler.map(String::as_str);
            let age = age(pod, context.settings.now());
            Compared { sandboxed: facts, regular: None, node: info, age, handler }.signals()
        }
        Err(_) => Vec::new(),
    };
    if !sandboxed {
        // The spec is enough to know it; the kernel's own word is better.
        let shares = match same {
            Some(true) => format!("it shares {node}'s kernel (same boot id); "),
            Some(false) => "although its boot id is not the node's, ".to_owned(),
            None => String::new(),
        };
        let what = match class {
            None => "spec.runtimeClassName is not set".to_owned(),
            Some(class) => format!("its RuntimeClass {class} is none of Kata's"),
        };
        let fix = classes.first().map_or("kata", String::as_str);
        let problem = Problem::new(Code::NotSandboxed, &subject, format!("{shares}{what}"))
            .with_fix(format!(
                "add `runtimeClassName: {fix}` under spec, and create the pod again"
            ));
        let result = VerifyResult::NotIsolated;
        let seconds = seconds();
        let problems = vec![problem];
        return Ok(Verdict {
            subject,
            result,
            seconds,
            signals,
            problems,
            host: None,
            host_unknown: false,
        });
    }
    let facts = match answer {
        Ok(facts) => facts,
        Err(Silence::Forbidden) => {
            context.api.note("create", "pods/exec", Some(&namespace));
            let text = format!(
                "nothing can be asked in pod {name}: you may not create pods/exec in namespace {namespace}"
            );
            return Ok(failed(subject, Code::IsolationUnproven, text, seconds()));
        }
        Err(Silence::Failed(why)) => {
            let text = format!("nothing can be asked in pod {name}: {why}");
            return Ok(failed(subject, Code::IsolationUnproven, text, seconds()));
        }
    };
    let (result, problem) = compare::decide(&facts, None, node_facts, &subject);
    let seconds = seconds();
    let problems = problem.into_iter().collect();
    Ok(Verdict { subject, result, seconds, signals, problems, host: None, host_unknown: false })
}

/// How long ago the kubelet took a pod up, in seconds.
fn age(pod: &Value, now: Timestamp) -> Option<f64> {
    let start: Timestamp = pod["status"]["startTime"].as_str()?.parse().ok()?;
    Some(now.duration_since(start).as_secs_f64())
}

/// Refuses a container that the pod does not have: another one would answer for it.
fn has_container(pod: &Value, name: &str, container: &str) -> Result<(), Failure> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let names: Vec<&str> = lists
        .iter()
        .filter_map(|list| pod["spec"][*list].as_array())
        .flatten()
        .filter_map(|container| container["name"].as_str())
        .collect();
    if names.contains(&container) {
        return Ok(());
    }
    Err(Failure::NotFound(format!(
        "pod {name} has no container {container}; it has {}",
        crate::human::list(&names, 5)
    )))
}
