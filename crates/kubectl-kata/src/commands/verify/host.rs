//! `verify pod/NAME --host`: the sandbox of a pod and its processes on the node. A Job reads them: it has no token, no
//! privilege and no capability, and vanishes by itself even if this program is killed. On OpenShift it is a pod in the
//! namespace `default`, as that of `oc debug node/NAME`: the operator's namespace is restricted, and
//! SecurityContextConstraints let cluster administrators make such a pod, and no ServiceAccount of ours.

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
use crate::commands::why::{admission, kubelet};
use crate::document::Problem;
use crate::failure::Failure;
use crate::resource::{EVENTS, JOBS, PODS, POOLS, Resource};
use crate::style::Tone;
use crate::table::{Cell, Table, column};

/// Folders of the node that are seen: the container runtime's configuration, its socket, and systemd's.
const FOLDERS: [&str; 4] = ["/etc", "/opt", "/run", "/var"];
/// Where they are in the container.
const HOST_ROOT: &str = "/host";
/// The container.
const CONTAINER: &str = "host";
/// Where the pod is on OpenShift.
const OPENSHIFT_NAMESPACE: &str = "default";
/// How many characters of an ID are shown, as crictl does.
const SHORT: usize = 13;

/// What is on the node, or why that is not known.
pub(super) type Found = Result<SandboxFacts, Vec<Problem>>;

/// Reads what is on the node; `None` if interrupted.
pub(super) async fn read(
    pod: &Value,
    arguments: &VerifyArguments,
    interrupted: impl Future<Output = ()>,
    context: &mut Context<'_, '_>,
) -> Result<Option<Found>, Failure> {
    let api = &context.api;
    let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let text = format!("pod {name} is on no node, so no node has a sandbox of it");
        return Ok(Some(Err(vec![Problem::new(Code::PodNotRunning, format!("pod/{name}"), text)])));
    };
    let image = super::image(arguments, context).await?;
    let on_openshift = api.serves(POOLS).await?;
    let home = cluster::home(api).await?.to_owned();
    let (kind, namespace) =
        if on_openshift { (PODS, OPENSHIFT_NAMESPACE) } else { (JOBS, home.as_str()) };
    let run = Run::new(&image, "", namespace, arguments, &context.settings.now);
    let found = tokio::select! {
        found = create_and_wait(&run, kind, node, pod, arguments.timeout, api) => Some(found),
        () = interrupted => None,
    };
    let said = if found.is_none() { super::say_interrupted(context) } else { Ok(()) };
    run.clean(&context.api, kind, &[]).await?;
    said?;
    found.transpose()
}

async fn create_and_wait(
    run: &Run<'_>,
    kind: Resource,
    node: &str,
    pod: &Value,
    limit: Duration,
    api: &Api,
) -> Result<Found, Failure> {
    let subject = format!("node/{node}");
    let what = format!("read the processes of node {node}");
    let body = body(run, node, pod, kind == PODS);
    let path = kind.path(Some(run.namespace));
    match api.write(&what, http::Method::POST, &path, None, &body).await {
        Ok(_) => {}
        // Another 403 is one of an admission plugin.
        Err(Trouble::Status(status))
            if status.code == 403 && status.message.contains("cannot create resource") =>
        {
            api.note("create", &kind.qualified(), Some(run.namespace));
            let text = format!(
                "cannot {what}: you may not create {} in namespace {}",
                kind.qualified(),
                run.namespace
            );
            return Ok(Err(vec![Problem::new(Code::PermissionMissing, subject, text)]));
        }
        Err(Trouble::Status(status)) if status.code == 403 => {
            return Ok(Err(admission::problems(&[status.message], &subject)));
        }
        Err(trouble) => return Err(trouble.failure(&what)),
    }
    let end = Instant::now() + limit;
    let mut causes = Vec::new();
    while Instant::now() < end {
        tokio::time::sleep_until(Instant::now() + LOOK).await;
        let scope = Scope::of(run.namespace);
        let events = api.list::<Value>(EVENTS, scope).await?;
        let Read::Known(pods) = run.pods(api, node).await? else {
            let text = format!("cannot {what}: you may not list pods in {}", run.namespace);
            return Ok(Err(vec![Problem::new(Code::PermissionMissing, subject, text)]));
        };
        let Some(pod) = pods.first() else {
            causes = refusals(run, kind, events.items(), &subject, api).await?;
            continue;
        };
        if let Some(message) = termination_message(pod) {
            return Ok(facts(message, &what, &subject));
        }
        causes = kubelet::causes(pod, events.items(), &subject);
        if pod["status"]["phase"] == "Failed" {
            break;
        }
    }
    if causes.is_empty() {
        let text = format!("cannot {what}: no answer within {} s", limit.as_secs());
        causes.push(Problem::new(Code::ProbeFailed, subject, text));
    }
    Ok(Err(causes))
}

/// The termination message of the container, once it has ended: the facts, or why there are none.
fn termination_message(pod: &Value) -> Option<&str> {
    let mut statuses = pod["status"]["containerStatuses"].as_array()?.iter();
    let status = statuses.find(|status| status["name"] == CONTAINER)?;
    status["state"]["terminated"]["message"].as_str().filter(|message| !message.is_empty())
}

fn facts(message: &str, what: &str, subject: &str) -> Found {
    let line = message.lines().next().unwrap_or_default();
    if let Ok(facts) = serde_json::from_str(line) {
        return Ok(facts);
    }
    if line.contains("unrecognized subcommand") {
        let text = format!("cannot {what}: the operator is older than this kubectl kata");
        let problem = Problem::new(Code::ProbeFailed, subject, text);
        return Err(vec![
            problem.with_fix("upgrade the operator: `kubectl kata install --upgrade`"),
        ]);
    }
    let text = format!("cannot {what}: {}", line.trim_start_matches("error: "));
    Err(vec![Problem::new(Code::ProbeFailed, subject, text)])
}

/// Why a Job has no pod.
async fn refusals(
    run: &Run<'_>,
    kind: Resource,
    events: &[Value],
    subject: &str,
    api: &Api,
) -> Result<Vec<Problem>, Failure> {
    let Read::Known(objects) = run.list(api, kind).await? else { return Ok(Vec::new()) };
    let of: Vec<&str> =
        objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect();
    Ok(admission::problems(&admission::events(events, &of), subject))
}

/// The Job, or on OpenShift its pod.
fn body(run: &Run<'_>, node: &str, pod: &Value, on_openshift: bool) -> Value {
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
    // The deadline of a pod counts from when a kubelet takes it, so that one without a node would stay.
    spec["affinity"] = Value::Null;
    spec["nodeName"] = json!(node);
    spec["hostPID"] = json!(true);
    spec["securityContext"] = json!({
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": false,
        "seLinuxOptions": {"type": "spc_t"},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    spec["volumes"] = FOLDERS.iter().map(volume).collect();
    let metadata = &pod["metadata"];
    // The uid of a static pod is another one on its node.
    let uid = &metadata["annotations"]["kubernetes.io/config.hash"];
    let uid = if uid.is_string() { uid } else { &metadata["uid"] };
    let container = &mut spec["containers"][0];
    container["name"] = json!(CONTAINER);
    container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    container["command"] = json!([
        "kata-operator",
        "node-agent",
        "sandbox",
        "--namespace",
        metadata["namespace"],
        "--pod",
        metadata["name"],
        "--uid",
        uid,
        "--host-root",
        HOST_ROOT,
    ]);
    container["volumeMounts"] = FOLDERS.iter().map(mount).collect();
    if on_openshift {
        return run.pod("host", node, spec);
    }
    spec["serviceAccountName"] = json!(names::node_job::SERVICE_ACCOUNT);
    let mut job = run.job("host", node, &spec);
    // It has ended before it is looked at.
    job["spec"]["ttlSecondsAfterFinished"] = json!(GRACE);
    job
}

/// What is on the node, a line each.
pub(super) fn table(facts: &SandboxFacts, is_isolated: bool, wide: bool) -> Table {
    let mut table = Table::new(&[column("ON THE NODE"), column("PID"), column("WHAT")]);
    let mut row = |what: &str, pid: Option<u32>, text: Cell| {
        let pid = pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        table.row(vec![what.into(), pid.into(), text]);
    };
    let handler = match (facts.handler.as_str(), &facts.handler_file) {
        ("", _) => "default handler".to_owned(),
        (handler, Some(file)) => format!("{handler} in {file}"),
        (handler, None) => format!("{handler}, found in no configuration file that can be read"),
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
    if is_isolated && facts.processes.iter().all(|process| process.role != ProcessRole::Vmm) {
        row("VMM", None, Cell::toned("no process found; Dragonball runs in the shim", Tone::Dim));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kubelet gives them: what was written, or the end of the log if the program failed.
    #[test]
    fn a_termination_message_is_the_facts_or_why_there_are_none() {
        let of = |message| facts(message, "read the processes of node w", "node/w");
        let sandbox_id = "712a4cb4".to_owned();
        let expected = SandboxFacts { sandbox_id, ..SandboxFacts::default() };
        assert_eq!(of(r#"{"sandboxId":"712a4cb4"}"#).unwrap(), expected);
        let problem = |message| of(message).unwrap_err().remove(0);
        let failed = problem("error: no container runtime was found\n");
        assert_eq!(
            failed.message,
            "cannot read the processes of node w: no container runtime was found"
        );
        assert_eq!(failed.id, "KATA5103");
        let old = problem("error: unrecognized subcommand 'sandbox'\n\nUsage: kata-operator\n");
        assert!(old.message.ends_with("the operator is older than this kubectl kata"));
        assert!(old.fix.contains("install --upgrade"));
    }
}
