//! The containers of the operator's Jobs on nodes: which they are, and what they do to the host.
//!
//! What they do is the node agent's own decision, carried out on the simulated host.

use std::time::Duration;

use kata_api::node_task::NodeTask;
use kata_host::PodName;
use serde_json::Value;

use super::pod;
use crate::world::{Host, NodeFault, agent};

/// How a container of such a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// After this time.
    pub after: Duration,
    /// With this exit code.
    pub code: i32,
    /// With this termination message.
    pub message: String,
}

/// The task of a container, if it is one of a Job's; `verb` is what the node agent is to do.
fn task(container: &Value, verb: &str) -> Option<NodeTask> {
    let words: Vec<&str> =
        container["command"].as_array()?.iter().filter_map(Value::as_str).collect();
    let at = words.iter().position(|word| *word == "node-agent")?;
    (words.get(at + 1) == Some(&verb)).then_some(())?;
    let at = words.iter().position(|word| *word == "--task")?;
    serde_json::from_str(words.get(at + 1)?).ok()
}

/// The image that a pod wants and that its host cannot pull: container, image.
pub fn unpullable<'a>(pod: &'a Value, host: &Host) -> Option<(&'a str, &'a str)> {
    let stage = pod::init_containers(pod).find(|container| task(container, "stage").is_some())?;
    host.faults
        .contains(&NodeFault::PullFails)
        .then(|| Some((stage["name"].as_str()?, stage["image"].as_str()?)))?
}

/// How long the containers of a Job that come first take, if they are such.
pub fn first(pod: &Value, host: &mut Host) -> Option<Duration> {
    let task = pod::init_containers(pod).find_map(|container| task(container, "stage"))?;
    Some(agent::staging(host, &task))
}

/// Does what the containers do that come first.
///
/// # Errors
/// The name of the one that fails, and why.
pub fn prepare(pod: &Value, host: &mut Host) -> Result<(), (String, String)> {
    for container in pod::init_containers(pod) {
        if let Some(task) = task(container, "stage") {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            agent::stage(host, &task).map_err(|error| (name, error))?;
        }
    }
    Ok(())
}

/// What `kata-operator node-agent sandbox` shows of a pod, and how it ends.
fn sandbox(container: &Value, host: &mut Host) -> Option<Ending> {
    let words: Vec<&str> =
        container["command"].as_array()?.iter().filter_map(Value::as_str).collect();
    let [
        "kata-operator",
        "node-agent",
        "sandbox",
        "--namespace",
        namespace,
        "--pod",
        name,
        "--uid",
        uid,
        ..,
    ] = words.as_slice()
    else {
        return None;
    };
    let (code, message) = match agent::sandbox(host, &PodName { namespace, name, uid }) {
        Ok(facts) => (0, serde_json::to_string(&facts).unwrap_or_default()),
        Err(error) => (1, format!("error: {error}\n")),
    };
    Some(Ending { after: Duration::from_secs(1), code, message })
}

/// Runs the container's task, if it has one; tells how it ends.
pub fn run(container: &Value, host: &mut Host) -> Option<Ending> {
    if let Some(ending) = sandbox(container, host) {
        return Some(ending);
    }
    let task = task(container, "run")?;
    let ran = agent::run(host, &task);
    let least = Duration::from_secs(1);
    Some(match ran.report {
        Some(report) => {
            let done = report.outcome == kata_api::node_task::Outcome::Done;
            Ending {
                after: ran.took.max(least),
                code: i32::from(!done),
                message: serde_json::to_string(&report).unwrap_or_default(),
            }
        }
        None => Ending { after: least, code: 137, message: String::new() },
    })
}
