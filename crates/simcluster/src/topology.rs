//! Building clusters, and changing their hosts while they run.
//!
//! It puts controllers together in one fixed order; what they do is theirs.

mod autoscaler;
mod control;
pub mod load;
mod options;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::api::ApiError;
use crate::api::server::{DeleteOptions, Writer};
use crate::mco;
use crate::node::kubelet::Kubelets;
use crate::node::lifecycle::NodeLifecycle;
use crate::openshift;
use crate::resource::{LEASES, NODES};
use crate::simulation::Simulation;
use crate::workload::daemonset::DaemonSets;
use crate::workload::deployment::Deployments;
use crate::workload::disruption::Disruption;
use crate::workload::job::Jobs;
use crate::workload::kata_deploy::KataDeploy;
use crate::workload::replicaset::ReplicaSets;
use crate::workload::scheduler::Scheduler;
use crate::world::{
    Host, HostSpec, NodeFault, NodeGroup, Platform, Power, Runtime, System, World, foreign,
};
pub use options::NodeOptions;

/// How long a cluster has run when [`build`] hands it over.
const AGE: Duration = Duration::from_secs(600);

/// How long the first pools take to be ready for nodes.
const RENDERED: Duration = Duration::from_secs(30);

/// What a cluster consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The kind of cluster.
    pub platform: Platform,
    /// How many nodes form the control plane.
    pub control_plane: u32,
    /// How many nodes only run workloads.
    pub workers: u32,
    /// Whether the control plane also runs workloads.
    pub compact: bool,
    /// Logical CPUs of each host.
    pub cpus: u32,
    /// Memory of each host, in KiB.
    pub memory_kib: u64,
    /// The pace of the Machine Config Operator.
    pub timing: mco::Timing,
    /// How many images each node reports. The kubelet of a busy node reports fifty, which are three
    /// quarters of the Node object; none keep a simulated cluster small.
    #[serde(default)]
    pub images: u32,
    /// The container runtimes of the hosts, in turn; none for that of the kind of cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<Runtime>,
}

impl Default for Layout {
    /// Three and three nodes of OpenShift, each with four CPUs and 16 GiB.
    fn default() -> Self {
        Self {
            platform: Platform::OpenShift,
            control_plane: 3,
            workers: 3,
            compact: false,
            cpus: 4,
            memory_kib: 16_266_240,
            timing: mco::Timing::default(),
            images: 0,
            runtimes: Vec::new(),
        }
    }
}

/// What a node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Control plane only.
    ControlPlane,
    /// Control plane and workloads.
    Compact,
    /// Workloads only.
    Worker,
}

/// A cluster at rest whose clock shows `now`; it is ten minutes old.
///
/// # Errors
/// If the API server refuses an object of the baseline.
pub fn build(layout: &Layout, now: Timestamp) -> Result<Simulation, ApiError> {
    let age = SignedDuration::try_from(AGE).unwrap_or(SignedDuration::ZERO);
    let start = now.checked_sub(age).unwrap_or(now);
    let mut simulation = Simulation::new(start, Vec::new());
    simulation.world.platform = layout.platform;
    add_controllers(&mut simulation);
    if layout.platform == Platform::OpenShift {
        openshift::install(&mut simulation)?;
        mco::install(&mut simulation, layout.timing)?;
        openshift::add_controllers(&mut simulation);
        // Nodes boot from what their pool has rendered.
        simulation.advance(RENDERED);
    }
    let role = if layout.compact { Role::Compact } else { Role::ControlPlane };
    for index in 0..layout.control_plane {
        let name = format!("control-plane-{index}");
        join(&mut simulation, host_spec(layout, (&name, role), index));
    }
    for index in 0..layout.workers {
        let place = layout.control_plane.saturating_add(index);
        let name = format!("worker-{index}");
        join(&mut simulation, host_spec(layout, (&name, Role::Worker), place));
    }
    simulation.run_due(now);
    simulation.arrive(now);
    Ok(simulation)
}

/// Adds the controllers that every cluster has, in their order.
pub fn add_controllers(simulation: &mut Simulation) {
    simulation.add_controller(Box::new(Kubelets::default()));
    simulation.add_controller(Box::new(NodeLifecycle::default()));
    simulation.add_controller(Box::new(Scheduler::default()));
    simulation.add_controller(Box::new(Disruption));
    simulation.add_controller(Box::new(ReplicaSets::default()));
    simulation.add_controller(Box::new(Deployments::default()));
    simulation.add_controller(Box::new(DaemonSets::default()));
    simulation.add_controller(Box::new(Jobs::default()));
    simulation.add_controller(Box::new(KataDeploy));
    simulation.add_controller(Box::new(autoscaler::Autoscaler::default()));
    for controller in crate::controllers::all() {
        simulation.add_controller(controller);
    }
    simulation.frontend.register("nodes", control::nodes);
    simulation.frontend.register("kata-deploy", control::kata_deploy);
    simulation.frontend.exec = Some(crate::node::exec::exec);
    simulation.frontend.logs = Some(crate::node::exec::logs);
}

/// The number of the next host: larger than that of any other.
fn next_index(world: &World) -> u32 {
    let taken = world.hosts.values().filter_map(|host| host.spec.as_ref());
    if world.hosts.is_empty() { 0 } else { taken.map(|spec| spec.index).max().unwrap_or(0) + 1 }
}

fn host_spec(layout: &Layout, (name, role): (&str, Role), index: u32) -> HostSpec {
    HostSpec {
        name: name.to_owned(),
        platform: layout.platform,
        control_plane: role != Role::Worker,
        worker: role != Role::ControlPlane,
        cpus: layout.cpus,
        memory_kib: layout.memory_kib,
        index,
        images: layout.images,
        runtime: usize::try_from(index)
            .ok()
            .and_then(|index| index.checked_rem(layout.runtimes.len()))
            .and_then(|turn| layout.runtimes.get(turn).copied()),
        system: None,
        handlers: Vec::new(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
    }
}

/// What a machine is made of that joins a cluster that runs.
fn later_spec(world: &World, name: &str, role: Role, options: NodeOptions) -> HostSpec {
    let layout = Layout { platform: world.platform, ..Layout::default() };
    let NodeOptions { runtime, system, handlers, labels, taints } = options;
    let of_system =
        || system.map_or(&[][..], System::handlers).iter().map(|name| (*name).to_owned());
    let handlers = handlers.unwrap_or_else(|| of_system().collect());
    let spec = host_spec(&layout, (name, role), next_index(world));
    HostSpec { runtime: runtime.or(spec.runtime), system, handlers, labels, taints, ..spec }
}

/// Adds a group of machines, of which there is none yet.
///
/// # Errors
/// If there is a group of that name.
pub fn add_group(simulation: &mut Simulation, group: NodeGroup) -> Result<(), ApiError> {
    if simulation.world.groups.iter().any(|other| other.name == group.name) {
        let text = format!("node group \"{}\" is there already", group.name);
        return Err(ApiError::new(409, "AlreadyExists", text));
    }
    simulation.world.groups.push(group);
    Ok(())
}

fn join(simulation: &mut Simulation, spec: HostSpec) {
    let name = spec.name.clone();
    let host = Host::new(spec, simulation.now());
    simulation.world.hosts.insert(name.clone(), host);
    simulation.world.touch(&name);
}

/// Adds a host; its kubelet registers it as a node.
///
/// # Errors
/// If there is a node or host of that name, or the name cannot be a node's.
pub fn add_node(
    simulation: &mut Simulation,
    name: &str,
    role: Role,
    options: NodeOptions,
) -> Result<(), ApiError> {
    let valid = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    if !valid {
        return Err(ApiError::new(
            422,
            "Invalid",
            format!("node \"{name}\" is invalid: use at most 63 of a-z, 0-9, '-' and '.'"),
        ));
    }
    if simulation.api.get(&NODES, "", name).is_some() {
        return Err(ApiError::already_exists(&NODES, name));
    }
    if simulation.world.hosts.contains_key(name) {
        let text = format!(
            "host \"{name}\" is still there, though its Node was deleted: `kata-sim node rm {name}` takes it away"
        );
        return Err(ApiError::new(409, "Conflict", text));
    }
    let spec = later_spec(&simulation.world, name, role, options);
    join(simulation, spec);
    Ok(())
}

/// Takes a host and its Node object away, as a machine that is deleted.
///
/// # Errors
/// If there is no such node.
pub fn remove_node(simulation: &mut Simulation, name: &str) -> Result<(), ApiError> {
    let writer = Writer { manager: "cloud-node-lifecycle-controller", now: simulation.now() };
    let host = simulation.world.hosts.remove(name);
    simulation.world.touch(name);
    let options = DeleteOptions::default();
    let node = simulation.api.delete(writer, &NODES, "", name, &options);
    if simulation.api.get(&LEASES, "kube-node-lease", name).is_some() {
        simulation.api.delete(writer, &LEASES, "kube-node-lease", name, &options)?;
    }
    if host.is_some() { Ok(()) } else { node.map(drop) }
}

/// How long a machine takes to boot, and to be installed anew.
const BOOT: Duration = Duration::from_mins(4);

/// Boots a machine. If it is installed anew, its host is as a new one, under the same name and with the same Node object.
///
/// # Errors
/// If there is no such host.
pub fn boot_node(
    simulation: &mut Simulation,
    name: &str,
    is_reinstalled: bool,
) -> Result<(), ApiError> {
    let (now, until) = (simulation.now(), simulation.deadline(BOOT));
    let hosts = &mut simulation.world.hosts;
    let host = hosts.get_mut(name).ok_or_else(|| ApiError::not_found(&NODES, name))?;
    if let (true, Some(spec)) = (is_reinstalled, host.spec.clone()) {
        // Each boot has an ID of its own.
        let boots = host.boots;
        *host = Host::new(spec, now);
        host.boots = boots;
    }
    host.reboot(until);
    simulation.world.touch(name);
    Ok(())
}

/// Makes something go wrong on a host, until [`clear_fault`]; a restart of the kubelet happens at once.
///
/// # Errors
/// If there is no such host, or it is down and its kubelet cannot be restarted.
pub fn set_fault(
    simulation: &mut Simulation,
    name: &str,
    fault: NodeFault,
) -> Result<(), ApiError> {
    let down = simulation.world.hosts.get(name).is_some_and(|host| !host.is_up());
    if fault == NodeFault::KubeletRestart && down {
        let text = format!("host \"{name}\" is down: its kubelet starts when the host does");
        return Err(ApiError::new(409, "Conflict", text));
    }
    change_faults(simulation, name, |host| {
        if fault == NodeFault::KubeletRestart {
            host.restart_kubelet();
        } else {
            host.faults.insert(fault);
        }
    })
}

/// Makes a host sound again, of one fault or of all.
///
/// # Errors
/// If there is no such host.
pub fn clear_fault(
    simulation: &mut Simulation,
    name: &str,
    fault: Option<&NodeFault>,
) -> Result<(), ApiError> {
    change_faults(simulation, name, |host| match fault {
        Some(fault) => {
            host.faults.remove(fault);
        }
        None => host.faults.clear(),
    })
}

fn change_faults(
    simulation: &mut Simulation,
    name: &str,
    change: impl FnOnce(&mut Host),
) -> Result<(), ApiError> {
    let now = simulation.now();
    let host =
        simulation.world.hosts.get_mut(name).ok_or_else(|| ApiError::not_found(&NODES, name))?;
    let missing = host.faults.contains(&NodeFault::HandlerMissing);
    let failing = host.faults.contains(&NodeFault::RuntimeFails);
    let before = host.faults.clone();
    change(host);
    let after = host.faults.clone();
    for fault in after.difference(&before) {
        foreign::change(host, fault);
    }
    let mut taken_back = false;
    for fault in before.difference(&after) {
        taken_back |= foreign::take_back(host, fault);
    }
    // Whoever mends a container runtime that did not come up starts it, too.
    let mended = failing && !host.faults.contains(&NodeFault::RuntimeFails);
    let differs = host.faults.contains(&NodeFault::HandlerMissing) != missing;
    if (differs || mended || taken_back) && host.is_up() {
        host.restart_runtime();
    }
    let hangs = host.power == Power::Rebooting { until: Timestamp::MAX };
    if hangs && !host.faults.contains(&NodeFault::RebootHang) {
        // Somebody pressed the button.
        host.power = Power::Rebooting { until: now };
    }
    simulation.world.touch(name);
    Ok(())
}
