//! `verify pod/NAME --host`: what the pod's node has of its sandbox. A Job there reads it: it has no token, no
//! privilege and no write access, and vanishes by itself whatever happens to this program. On OpenShift it is a pod,
//! as that of `oc debug node/NAME`: constraints let users make one there, and no ServiceAccount of ours.

use std::time::Duration;

use kata_api::sandbox_facts::{ProcessRole, SandboxFacts, SandboxProcess};
use kata_api::{Code, names};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::probe::{GRACE, LOOK, Run};
use crate::Context;
use crate::api::{Api, Read, Scope, Trouble};
use crate::arguments::VerifyArguments;
use crate::cluster;
use crate::document::Problem;
use crate::failure::Failure;
use crate::resource::{EVENTS, JOBS, PODS, POOLS};
use crate::style::Tone;
use crate::table::{Cell, Table, column};

/// Folders of the node that are seen: the container runtime's configuration, its socket, and systemd's.
const FOLDERS: [&str; 4] = ["/etc", "/opt", "/run", "/var"];
/// Where they are in the container.
const HOST_ROOT: &str = "/host";
/// How many characters of an ID are shown, as crictl does.
const SHORT: usize = 13;

/// What the node has, or why that is not known; `None` if the user wants no more.
pub(super) async fn look(
    name: &str,
    pod: &Value,
    arguments: &VerifyArguments,
    interrupted: impl Future<Output = ()>,
    context: &Context<'_, '_>,
) -> Result<Option<Result<SandboxFacts, Box<Problem>>>, Failure> {
    let api = &context.api;
    let problem = |code, text: String| Box::new(Problem::new(code, format!("pod/{name}"), text));
    let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
        let text = format!("pod {name} is on no node, so no node has a sandbox of it");
        return Ok(Some(Err(problem(Code::PodNotRunning, text))));
    };
    let image = super::image(arguments, context).await?;
    let home = cluster::home(api).await?.to_owned();
    let on_openshift = api.serves_group_of(POOLS).await?;
    let kind = if on_openshift { PODS } else { JOBS };
    let run = Run::new(&image, "", &home, arguments, &context.settings.now);
    let body = body(&run, node, &context.namespace(), name, on_openshift);
    let what = format!("look at node {node}");
    match api.write(&what, http::Method::POST, &kind.path(Some(&home)), None, &body).await {
        Ok(_) => {}
        Err(Trouble::Status(status)) if status.code == 403 => {
            api.note("create", &kind.qualified(), Some(&home));
            let text = format!("cannot {what}: {}", status.message);
            return Ok(Some(Err(problem(Code::PermissionMissing, text))));
        }
        Err(trouble) => return Err(trouble.failure(&what)),
    }
    let found = tokio::select! {
        found = answer(&run, node, arguments.timeout, api) => Some(found),
        () = interrupted => None,
    };
    run.clean(api, kind, &[]).await?;
    let found = found.transpose()?;
    Ok(found.map(|found| {
        found.map_err(|why| problem(Code::ProbeFailed, format!("cannot {what}: {why}")))
    }))
}

/// What the container printed, or why there is nothing.
async fn answer(
    run: &Run<'_>,
    node: &str,
    limit: Duration,
    api: &Api,
) -> Result<Result<SandboxFacts, String>, Failure> {
    let end = Instant::now() + limit;
    let mut why = None;
    while Instant::now() < end {
        tokio::time::sleep_until(Instant::now() + LOOK).await;
        for pod in run.pods(api, node).await?.items() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            if let Some(message) = ended["message"].as_str() {
                let message = message.lines().next().unwrap_or_default();
                let message = message.trim_start_matches("error: ");
                let facts: Option<SandboxFacts> = serde_json::from_str(message).ok();
                return Ok(facts.ok_or_else(|| message.to_owned()));
            }
            if pod["status"]["phase"] == "Failed" {
                let text = pod["status"]["message"].as_str().unwrap_or("its pod failed");
                return Ok(Err(text.to_owned()));
            }
            why = run.trouble(api, pod, name, node).await?.map(|trouble| trouble.message);
        }
    }
    Ok(Err(match why {
        Some(why) => why,
        None => refusal(run, api).await?.unwrap_or_else(|| "no answer in time".to_owned()),
    }))
}

/// Why the Job has no pod.
async fn refusal(run: &Run<'_>, api: &Api) -> Result<Option<String>, Failure> {
    let scope = Scope { fields: Some("reason=FailedCreate"), ..Scope::of(run.namespace) };
    let events = api.list::<Value>(EVENTS, scope).await?;
    let Read::Known(jobs) = run.list(api, JOBS).await? else { return Ok(None) };
    let is_of = |event: &&Value| {
        jobs.iter().any(|job| job["metadata"]["uid"] == event["involvedObject"]["uid"])
    };
    let found = events.items().iter().rfind(is_of);
    Ok(found.and_then(|event| event["message"].as_str()).map(str::to_owned))
}

/// The Job, or on OpenShift its pod.
fn body(run: &Run<'_>, node: &str, namespace: &str, pod: &str, on_openshift: bool) -> Value {
    let name = |folder: &str| folder.trim_start_matches('/').to_owned();
    let mount = |folder: &&str| {
        json!({
            "name": name(folder),
            "mountPath": format!("{HOST_ROOT}{folder}"),
            "readOnly": true,
            "recursiveReadOnly": "IfPossible",
        })
    };
    let volume = |folder: &&str| json!({"name": name(folder), "hostPath": {"path": folder, "type": "Directory"}});
    let mut spec = run.pod_spec(node);
    spec["hostPID"] = json!(true);
    spec["securityContext"] = json!({
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": false,
        "seLinuxOptions": {"type": "spc_t"},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    spec["volumes"] = FOLDERS.iter().map(volume).collect();
    let container = &mut spec["containers"][0];
    container["name"] = json!("look");
    container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    container["command"] = json!([
        "kata-operator",
        "node-agent",
        "sandbox",
        "--namespace",
        namespace,
        "--pod",
        pod,
        "--host-root",
        HOST_ROOT,
    ]);
    container["volumeMounts"] = FOLDERS.iter().map(mount).collect();
    if on_openshift {
        run.pod("look", node, spec)
    } else {
        spec["serviceAccountName"] = json!(names::node_job::SERVICE_ACCOUNT);
        let mut job = run.job("look", node, &spec);
        // It has ended before it is looked at.
        job["spec"]["ttlSecondsAfterFinished"] = json!(GRACE);
        job
    }
}

/// What the node has, a line each.
pub(super) fn table(facts: &SandboxFacts, wide: bool) -> Table {
    let mut table = Table::new(&[column("ON THE NODE"), column("PID"), column("WHAT")]);
    let mut row = |what: &str, pid: Option<u32>, text: Cell| {
        let pid = pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        table.row(vec![what.into(), pid.into(), text]);
    };
    let handler = match (facts.handler.as_str(), &facts.handler_file) {
        ("", _) => "the default one".to_owned(),
        (handler, Some(file)) => format!("{handler} in {file}"),
        (handler, None) => format!("{handler}, which no configuration file has any more"),
    };
    row("handler", None, handler.into());
    let id = facts.sandbox_id.as_str();
    row("sandbox", None, if wide { id } else { id.get(..SHORT).unwrap_or(id) }.into());
    for SandboxProcess { pid, role, program, accelerator } in &facts.processes {
        let text = match accelerator.as_deref() {
            None => program.as_str().into(),
            Some("tcg") => {
                Cell::toned(format!("{program}, accel=tcg: slow, without KVM"), Tone::Warn)
            }
            Some(other) => format!("{program}, accel={other}").into(),
        };
        row(role.as_str(), Some(*pid), text);
    }
    if facts.processes.iter().all(|process| process.role != ProcessRole::Vmm) {
        let text = "no process of its own has the sandbox's ID; Dragonball's is in the shim";
        row("VMM", None, Cell::toned(text, Tone::Dim));
    }
    table
}
