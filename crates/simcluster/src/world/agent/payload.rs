//! The payload of a simulated image, and how the init container of a Job takes it to a simulated host.

use std::time::Duration;

use kata_api::Code;
use kata_api::node_task::NodeTask;
use kata_host::host::{Host as _, HostResult};
use kata_host::paths;
use kata_host::payload::{Stage, TREE, is_present, seal_stage};

use super::{Agent, LOOK, UNPACK};
use crate::world::Host;

/// The shims that a simulated payload has.
const SHIMS: [&str; 2] = ["clh", "qemu"];

/// Takes the payload of an image to the host, as the init container does it.
///
/// # Errors
/// Its termination message: why it could not, as a report if the image is at fault.
pub fn stage(host: &mut Host, task: &NodeTask) -> Result<(), String> {
    let image = task.payload_image.clone().unwrap_or_default();
    let shims: Vec<String> = task.handlers.iter().map(|handler| handler.shim.clone()).collect();
    let has = |shim: &String| SHIMS.contains(&shim.as_str());
    if let (Some(shim), false) = (shims.first(), shims.iter().any(has)) {
        let known = SHIMS.join(", ");
        let message = format!("the image has no shim {shim} for x86_64; it has: {known}");
        let report = kata_host::refused(task, Code::ShimMissing, &message);
        return Err(serde_json::to_string(&report).unwrap_or(message));
    }
    if is_staged(host, task) {
        return Ok(());
    }
    let mut agent = Agent { host, elapsed: Duration::ZERO, calls: 0, dead: false };
    unpack(&mut agent, &image, shims).map_err(|error| error.to_string())
}

/// How long it takes to stage the payload of a task on a host.
pub fn staging(host: &mut Host, task: &NodeTask) -> Duration {
    if is_staged(host, task) { LOOK } else { UNPACK }
}

/// Whether the host has the payload of a task already.
fn is_staged(host: &mut Host, task: &NodeTask) -> bool {
    let image = task.payload_image.clone().unwrap_or_default();
    let shims: Vec<String> = task.handlers.iter().map(|handler| handler.shim.clone()).collect();
    let mut agent = Agent { host, elapsed: Duration::ZERO, calls: 0, dead: false };
    is_present(&mut agent, &image, &image, &shims, task.verify).unwrap_or(false)
}

fn unpack(agent: &mut Agent<'_>, image: &str, shims: Vec<String>) -> HostResult<()> {
    let folder = format!("{}/.unpacking", paths::STAGING);
    let tree = format!("{folder}/{TREE}");
    for path in [paths::ROOT, paths::STAGING, &folder, &tree] {
        agent.make_dir(path, 0o755)?;
    }
    for directory in [
        "bin",
        "libexec",
        "share",
        "share/defaults",
        "share/defaults/kata-containers",
        "share/kata-containers",
        "share/kata-qemu",
        "share/kata-qemu/qemu",
    ] {
        agent.make_dir(&format!("{tree}/{directory}"), 0o755)?;
    }
    // The head of a program for x86-64, and which image it is from.
    let mut program = b"\x7fELF\x02\x01\x01".to_vec();
    program.resize(64, 0);
    if let Some(machine) = program.get_mut(18) {
        *machine = 62;
    }
    program.extend(format!("simulated, from {image}\n").bytes());
    for name in ["bin/containerd-shim-kata-v2", "bin/qemu-system-x86_64", "libexec/virtiofsd"] {
        agent.write(&format!("{tree}/{name}"), &program, 0o755)?;
    }
    for shim in SHIMS.into_iter().filter(|shim| shims.iter().any(|name| name == shim)) {
        let path = format!("{tree}/share/defaults/kata-containers/configuration-{shim}.toml");
        agent.write(&path, configuration(shim).as_bytes(), 0o644)?;
    }
    let guest = format!("simulated, from {image}\n");
    for name in ["vmlinux.container", "kata-containers.img"] {
        agent.write(&format!("{tree}/share/kata-containers/{name}"), guest.as_bytes(), 0o644)?;
    }
    let version = image.rsplit_once(':').map(|(_, tag)| tag.to_owned());
    let stage = Stage {
        image: image.to_owned(),
        source: image.to_owned(),
        shims,
        kata_version: version,
        digest: String::new(),
    };
    seal_stage(agent, &folder, stage).map(drop)
}

fn configuration(shim: &str) -> String {
    format!(
        "[hypervisor.{shim}]\npath = \"/opt/kata/bin/qemu-system-x86_64\"\n\
         kernel = \"/opt/kata/share/kata-containers/vmlinux.container\"\n\
         image = \"/opt/kata/share/kata-containers/kata-containers.img\"\n\
         default_vcpus = 1\ndefault_maxvcpus = 0\ndefault_memory = 2048\nkernel_params = \"\"\n\
         enable_annotations = []\n\n\
         [agent.kata]\n#enable_debug = true\n#debug_console_enabled = true\n\n[runtime]\n#enable_debug = true\n"
    )
}
