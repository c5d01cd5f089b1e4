//! `/sim/v1/nodes` and `/sim/v1/kata-deploy`: hosts and their faults, for `kata-sim node` and `kata-sim fault`, and a
//! kata-deploy on them, for `kata-sim kata-deploy`.
//!
//! | request | does |
//! |---|---|
//! | `GET nodes` | lists the hosts |
//! | `POST nodes` with `{"name", "role"}` | adds a host; the role is `worker` (default), `control-plane` or `compact` |
//! | `DELETE nodes/NAME` | takes a host away |
//! | `POST nodes/NAME/boots`, or with `{"reinstall": true}` | boots a host, or installs it anew |
//! | `POST nodes/NAME/faults` with `{"fault"}` | makes something go wrong |
//! | `DELETE nodes/NAME/faults`, or with `{"fault"}` | makes the host sound again, of all faults or of one |
//! | `POST kata-deploy` with `{"mode"}` | installs kata-deploy on all workers; the mode is `daemonset` or `jobs` |

use http::Method;
use serde_json::{Value, json};

use super::{NodeOptions, Role, add_node, boot_node, clear_fault, remove_node, set_fault};
use crate::Simulation;
use crate::api::ApiError;
use crate::api::frontend::ControlRequest;
use crate::workload::kata_deploy::{self, Mode};
use crate::world::{Host, NodeFault, Platform, Power};

/// Answers a request to `/sim/v1/nodes`.
///
/// # Errors
/// `400` for what cannot be understood, and what adding or removing refuses.
pub(super) fn nodes(
    simulation: &mut Simulation,
    request: &ControlRequest,
) -> Result<Value, ApiError> {
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    match (parts.as_slice(), &request.method) {
        ([], &Method::GET) => {}
        ([], &Method::POST) => {
            let name = text(&request.body, "name")?;
            let role = match request.body["role"].as_str().unwrap_or("worker") {
                "worker" => Role::Worker,
                "control-plane" => Role::ControlPlane,
                "compact" => Role::Compact,
                role => {
                    return Err(bad(format!(
                        "role {role:?}: give worker, control-plane or compact"
                    )));
                }
            };
            let options = request.body["options"].as_array().into_iter().flatten();
            let options = options.map(|word| word.as_str().unwrap_or_default());
            add_node(simulation, name, role, NodeOptions::parse(options).map_err(bad)?)?;
        }
        ([name], &Method::DELETE) => remove_node(simulation, name)?,
        ([name, "boots"], &Method::POST) => {
            boot_node(simulation, name, request.body["reinstall"] == true)?;
        }
        ([name, "faults"], &Method::POST) => {
            let fault: NodeFault = text(&request.body, "fault")?.parse().map_err(bad)?;
            let platform = simulation.world.hosts.get(*name).map(Host::platform);
            if let (Some(needed), Some(found)) = (fault.only_on(), platform)
                && needed != found
            {
                let (needed, found) = (needed.option(), found.option());
                return Err(bad(format!(
                    "the fault {fault} does nothing in this cluster, which is one of `kata-sim up --platform \
                     {found}`; it needs --platform {needed}"
                )));
            }
            set_fault(simulation, name, fault)?;
        }
        ([name, "faults"], &Method::DELETE) => {
            let fault: Option<NodeFault> = match request.body["fault"].as_str() {
                Some(fault) => Some(fault.parse().map_err(bad)?),
                None => None,
            };
            clear_fault(simulation, name, fault.as_ref())?;
        }
        _ => {
            return Err(bad(
                "there are GET and POST nodes, DELETE nodes/NAME, POST nodes/NAME/boots, \
                 POST and DELETE nodes/NAME/faults"
                    .to_owned(),
            ));
        }
    }
    let hosts = simulation.world.hosts.iter();
    Ok(json!({"nodes": hosts.map(|(name, host)| describe(name, host)).collect::<Vec<_>>()}))
}

/// Answers `POST /sim/v1/kata-deploy` with `{"mode"}`.
///
/// # Errors
/// `400` for what cannot be understood or needs another platform, and what the installation refuses.
pub(super) fn kata_deploy(
    simulation: &mut Simulation,
    request: &ControlRequest,
) -> Result<Value, ApiError> {
    let (true, &Method::POST) = (request.path.trim_matches('/').is_empty(), &request.method) else {
        return Err(bad("there is POST kata-deploy".to_owned()));
    };
    if simulation.world.platform == Platform::OpenShift {
        return Err(bad(
            "kata-deploy is played in clusters of `kata-sim up --platform kubernetes` only"
                .to_owned(),
        ));
    }
    let mode: Mode = text(&request.body, "mode")?.parse().map_err(bad)?;
    let workers = kata_deploy::workers(simulation);
    kata_deploy::install(simulation, mode, &workers)?;
    Ok(json!({}))
}

fn bad(why: String) -> ApiError {
    ApiError::new(400, "BadRequest", why)
}

fn text<'a>(body: &'a Value, field: &str) -> Result<&'a str, ApiError> {
    let value = body[field].as_str().filter(|value| !value.is_empty());
    value.ok_or_else(|| bad(format!("the body lacks {field:?}")))
}

fn describe(name: &str, host: &Host) -> Value {
    let power = match host.power {
        Power::On => "On",
        Power::Rebooting { .. } => "Rebooting",
        Power::Off => "Off",
    };
    let faults: Vec<String> = host.faults.iter().map(ToString::to_string).collect();
    json!({
        "name": name, "power": power, "bootID": host.boot_id, "faults": faults,
        "extensions": host.extensions, "sandboxes": host.sandboxes.len(),
    })
}
