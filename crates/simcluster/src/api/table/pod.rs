//! Pods: the one status word that sums up phase, containers and deletion.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::row::{AGE, NAME, Printer, Row};

pub(super) const POD: Printer = Printer {
    columns: &[
        NAME,
        ("Ready", "string", 0),
        ("Status", "string", 0),
        ("Restarts", "string", 0),
        AGE,
        ("IP", "string", 1),
        ("Node", "string", 1),
        ("Nominated Node", "string", 1),
        ("Readiness Gates", "string", 1),
    ],
    cells,
};

/// What the containers add up to.
#[derive(Default)]
struct Sum {
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Sum {
    fn restarted(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        let finished = container["lastState"]["terminated"]["finishedAt"].as_str();
        self.last_restart = self.last_restart.max(finished.and_then(|time| time.parse().ok()));
    }
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let sidecars: Vec<&str> = row
        .list("/spec/initContainers")
        .iter()
        .filter(|container| container["restartPolicy"] == "Always")
        .filter_map(|container| container["name"].as_str())
        .collect();
    let total = row.list("/spec/containers").len() + sidecars.len();
    let mut status = phase(row);
    let mut sum = Sum::default();
    let mut sidecar_sum = Sum::default();
    let mut initializing = false;
    for (index, container) in row.list("/status/initContainerStatuses").iter().enumerate() {
        let sidecar = container["name"].as_str().is_some_and(|name| sidecars.contains(&name));
        sum.restarted(container);
        if sidecar {
            sidecar_sum.restarted(container);
        }
        let state = &container["state"];
        if state["terminated"].is_object() && state["terminated"]["exitCode"] == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            sidecar_sum.ready += usize::from(container["ready"] == true);
            continue;
        }
        initializing = true;
        status = match init_reason(state) {
            Some(reason) => format!("Init:{reason}"),
            None => format!("Init:{index}/{}", row.list("/spec/initContainers").len()),
        };
        break;
    }
    sum.ready = sidecar_sum.ready;
    if !initializing || row.condition("Initialized") == "True" {
        sum = sidecar_sum;
        containers(row, &mut status, &mut sum);
    }
    if row.at("/metadata/deletionTimestamp").is_some() {
        let over = matches!(row.text("/status/phase"), "Succeeded" | "Failed");
        if row.text("/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut status);
        } else if !over {
            "Terminating".clone_into(&mut status);
        }
    }
    let restarts = match sum.last_restart.filter(|_| sum.restarts != 0) {
        Some(last) => format!("{} ({} ago)", sum.restarts, row.elapsed(Some(last))),
        None => sum.restarts.to_string(),
    };
    let address = match row.text("/status/podIPs/0/ip") {
        "" => row.text_or("/status/podIP", "<none>"),
        address => json!(address),
    };
    vec![
        row.name(),
        json!(format!("{}/{total}", sum.ready)),
        json!(status),
        json!(restarts),
        row.age(),
        address,
        row.text_or("/spec/nodeName", "<none>"),
        row.text_or("/status/nominatedNodeName", "<none>"),
        readiness_gates(row),
    ]
}

fn phase(row: &Row<'_>) -> String {
    let gated = row.list("/status/conditions").iter().any(|condition| {
        condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
    });
    if gated {
        return "SchedulingGated".to_owned();
    }
    match row.text("/status/reason") {
        "" => row.text("/status/phase").to_owned(),
        reason => reason.to_owned(),
    }
}

/// Why an init container has not finished; `None` if it merely runs or waits for its turn.
fn init_reason(state: &Value) -> Option<String> {
    if state["terminated"].is_object() {
        return Some(termination(&state["terminated"]));
    }
    state["waiting"]["reason"]
        .as_str()
        .filter(|reason| !reason.is_empty() && *reason != "PodInitializing")
        .map(str::to_owned)
}

fn termination(terminated: &Value) -> String {
    match (terminated["reason"].as_str().unwrap_or_default(), terminated["signal"].as_i64()) {
        ("", Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        ("", _) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        (reason, _) => reason.to_owned(),
    }
}

/// The first container that does not run gives the status its name.
fn containers(row: &Row<'_>, status: &mut String, sum: &mut Sum) {
    let mut running = false;
    for container in row.list("/status/containerStatuses").iter().rev() {
        sum.restarted(container);
        let state = &container["state"];
        let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
        if !waiting.is_empty() {
            waiting.clone_into(status);
        } else if state["terminated"].is_object() {
            *status = termination(&state["terminated"]);
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            sum.ready += 1;
        }
    }
    if status == "Completed" && running {
        let ready = row.condition("Ready") == "True";
        if ready { "Running" } else { "NotReady" }.clone_into(status);
    }
}

fn readiness_gates(row: &Row<'_>) -> Value {
    let gates = row.list("/spec/readinessGates");
    if gates.is_empty() {
        return json!("<none>");
    }
    let passed = gates
        .iter()
        .filter_map(|gate| gate["conditionType"].as_str())
        .filter(|kind| row.condition(kind) == "True")
        .count();
    json!(format!("{passed}/{}", gates.len()))
}
