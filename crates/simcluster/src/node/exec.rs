//! Commands in simulated containers, and their logs: answers from the model of the host or of the
//! virtual machine.
//!
//! Nothing is run. What a command prints is computed; a command that has no model says so.

mod proc;
mod program;
mod shell;

use jiff::Timestamp;
use serde_json::Value;

use super::pod;
use crate::api::frontend::{ExecOutcome, ExecRequest, LogRequest, Session};
use crate::api::{ApiError, ApiServer};
use crate::resource::PODS;
use crate::world::{Exit, Host, Sandbox, VirtualMachine, World};

/// What a process in a container can see.
#[derive(Clone, Copy)]
struct View<'a> {
    host: &'a Host,
    sandbox: &'a Sandbox,
    pod: &'a Value,
    container: &'a Value,
    /// Where the host's root directory is mounted; empty after `chroot` into it.
    host_root: Option<&'a str>,
    now: Timestamp,
    /// How many commands are around this one, each of which starts the next.
    depth: u32,
}

/// More commands in each other than anyone types; each takes some of the stack.
const MAX_DEPTH: u32 = 30;

impl<'a> View<'a> {
    /// What a command sees that this one starts.
    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    fn vm(&self) -> Option<&'a VirtualMachine> {
        self.sandbox.vm.as_ref()
    }

    fn sees_host_processes(&self) -> bool {
        self.vm().is_none() && (self.pod["spec"]["hostPID"] == true || self.host_root == Some(""))
    }

    fn name(&self) -> &'a str {
        if self.pod["spec"]["hostNetwork"] == true || self.host_root == Some("") {
            self.host.name()
        } else {
            self.pod["metadata"]["name"].as_str().unwrap_or_default()
        }
    }
}

/// Runs a command in a container, or lines in a session of its shell.
///
/// # Errors
/// As the API server and the kubelet answer when there is no such container, or it does not run; and if the
/// container's own command is asked for, and is no shell.
pub fn exec(
    world: &mut World,
    api: &ApiServer,
    request: &ExecRequest,
    session: &mut Session,
    input: &[u8],
) -> Result<ExecOutcome, ApiError> {
    let pod = api
        .get(&PODS, &request.namespace, &request.pod)
        .ok_or_else(|| ApiError::not_found(&PODS, &request.pod))?;
    let view = view(world, &pod, &request.container)?;
    let input = String::from_utf8_lossy(input).into_owned();
    if request.attach && !shell::reads_commands(view.container) {
        return Err(ApiError::new(
            501,
            "NotImplemented",
            format!(
                "container {} is simulated: attach needs one with stdin whose command is a shell",
                view.container["name"]
            ),
        ));
    }
    let mut prompt = None;
    let shell = if request.attach { Some(view) } else { shell::shell_of(view, &request.argv) };
    let output = if let Some(inside) = shell {
        if *session == Session::default() {
            *session = Session::of(inside.host_root == Some(""));
        }
        let output = shell::lines(view, session, &input);
        prompt = session.prompt(view);
        output
    } else {
        shell::exec(view, &request.argv, &input)
    };
    if request.attach && prompt.is_none() {
        let exit = Exit {
            node: view.host.name().to_owned(),
            pod: (request.namespace.clone(), request.pod.clone()),
            container: view.container["name"].as_str().unwrap_or_default().to_owned(),
            code: output.code,
        };
        world.end_container(exit);
    }
    Ok(ExecOutcome {
        stdout: output.stdout.into_bytes(),
        stderr: output.stderr.into_bytes(),
        exit_code: output.code,
        prompt,
    })
}

fn view<'a>(world: &'a World, pod: &'a Value, container: &str) -> Result<View<'a>, ApiError> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let container = find_container(pod, container)?;
    let node =
        pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()).ok_or_else(|| {
            ApiError::new(400, "BadRequest", format!("pod {name} does not have a host assigned"))
        })?;
    let host = world.hosts.get(node).filter(|host| host.is_up()).ok_or_else(|| {
        let text = format!("error dialing backend: dial tcp: node {node} does not answer");
        ApiError::new(500, "InternalError", text)
    })?;
    let container_name = &container["name"];
    let runs = pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|s| s["name"] == *container_name && !s["state"]["running"].is_null());
    let sandbox = pod["metadata"]["uid"].as_str().and_then(|uid| host.sandboxes.get(uid));
    let sandbox = sandbox.filter(|_| runs).ok_or_else(|| {
        let text = format!("unable to upgrade connection: container not found ({container_name})");
        ApiError::new(500, "InternalError", text)
    })?;
    let host_root = host_root(pod, container);
    Ok(View { host, sandbox, pod, container, host_root, now: world.now, depth: 0 })
}

fn find_container<'a>(pod: &'a Value, wanted: &str) -> Result<&'a Value, ApiError> {
    let all = || pod::containers(pod).chain(pod::init_containers(pod));
    let found = if wanted.is_empty() {
        let default = &pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"];
        all().find(|c| !default.is_null() && c["name"] == *default).or_else(|| all().next())
    } else {
        all().find(|container| container["name"] == wanted)
    };
    found.ok_or_else(|| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let text = format!("container {wanted} is not valid for pod {name}");
        ApiError::new(400, "BadRequest", text)
    })
}

/// Where the container finds the host's root directory, as `oc debug node/NAME` mounts it.
fn host_root<'a>(pod: &'a Value, container: &'a Value) -> Option<&'a str> {
    let volume = pod["spec"]["volumes"]
        .as_array()?
        .iter()
        .find(|volume| volume["hostPath"]["path"] == "/")?;
    container["volumeMounts"]
        .as_array()?
        .iter()
        .find(|mount| mount["name"] == volume["name"])?["mountPath"]
        .as_str()
        .map(|path| path.trim_end_matches('/'))
}

/// The log of a container: a note that it is simulated, and what its command would print.
///
/// # Errors
/// As the API server answers when there is no such container, or it has not started.
pub fn logs(world: &World, api: &ApiServer, request: &LogRequest) -> Result<String, ApiError> {
    let pod = api
        .get(&PODS, &request.namespace, &request.pod)
        .ok_or_else(|| ApiError::not_found(&PODS, &request.pod))?;
    let container = find_container(&pod, &request.container)?;
    let name = container["name"].as_str().unwrap_or_default();
    let started = pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(pod["status"]["initContainerStatuses"].as_array().into_iter().flatten())
        .any(|status| {
            status["name"] == name
                && status["containerID"].as_str().is_some_and(|id| !id.is_empty())
        });
    if !started {
        let text = format!(
            "container \"{name}\" in pod \"{}\" is waiting to start: ContainerCreating",
            request.pod
        );
        return Err(ApiError::new(400, "BadRequest", text));
    }
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let mut lines = vec![format!(
        "simulated: container {name} on {node}; nothing runs here, this is not a log"
    )];
    if let Ok(view) = view(world, &pod, name) {
        lines.extend(shell::printed(view, container).lines().map(str::to_owned));
    }
    let wanted = request.tail_lines.and_then(|n| usize::try_from(n).ok()).unwrap_or(lines.len());
    let skip = lines.len().saturating_sub(wanted);
    Ok(lines[skip..].iter().map(|line| format!("{line}\n")).collect())
}
