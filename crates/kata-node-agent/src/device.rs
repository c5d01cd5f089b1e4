//! Whether the devices that sandboxes need can be used: not whether they exist, nor what the processor's
//! flags say, but whether a virtual machine can be made.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use kata_api::error_text::{chain, without_error_numbers};
use kata_host::host::{Device, HostError, HostErrorKind, HostResult};

use crate::self_copy::self_copy;
use crate::systemd::{Program, Systemd};

/// `_IO(KVMIO, 0x00)` of linux/kvm.h.
const KVM_GET_API_VERSION: u64 = 0xAE00;
/// `_IO(KVMIO, 0x01)`.
const KVM_CREATE_VM: u64 = 0xAE01;
/// `_IO(KVMIO, 0x41)`.
const KVM_CREATE_VCPU: u64 = 0xAE41;
/// The API's version, which has not changed since Linux 2.6.22.
const KVM_API_VERSION: i32 = 12;

/// The path of a device on the node.
pub(super) fn path(device: Device) -> &'static str {
    match device {
        Device::Kvm => "/dev/kvm",
        Device::VhostVsock => "/dev/vhost-vsock",
        Device::VhostNet => "/dev/vhost-net",
    }
}

/// The device of a name, as `node-agent device NAME` takes it.
pub(super) fn named(name: &str) -> Option<Device> {
    [Device::Kvm, Device::VhostVsock, Device::VhostNet]
        .into_iter()
        .find(|device| path(*device).strip_prefix("/dev/") == Some(name))
}

/// Uses a device as a sandbox would.
///
/// # Errors
/// What the kernel says.
pub(super) fn probe(path: &Path, device: Device) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    match device {
        Device::VhostVsock | Device::VhostNet => Ok(()),
        Device::Kvm => {
            let version = ioctl(&file, KVM_GET_API_VERSION)?;
            if version != KVM_API_VERSION {
                return Err(io::Error::other(format!("KVM has API version {version}")));
            }
            let machine = owned(ioctl(&file, KVM_CREATE_VM)?);
            let processor = owned(ioctl(&machine.into(), KVM_CREATE_VCPU)?);
            drop(processor);
            Ok(())
        }
    }
}

/// Calls one of the requests above, all of which take the number 0.
#[expect(unsafe_code, reason = "KVM has no other interface than ioctl")]
fn ioctl(file: &File, request: u64) -> io::Result<i32> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and these requests take a number and
    // no pointer, so that the kernel reads and writes no memory of ours.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A descriptor that the kernel just gave us.
#[expect(unsafe_code, reason = "the kernel returns the descriptor as a number")]
fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: the number was just returned by KVM_CREATE_VM or KVM_CREATE_VCPU, and nothing else has it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Where the copies for probes are, and how their names begin. What a sandbox starts is below `/opt` too, so
/// that programs there can be started; `/run` is mounted `noexec` on Debian and what comes from it.
pub(super) const PLACE: &str = "/opt";
const PROBE: &str = ".kata-operator-probe-";

/// How old a folder of a probe is whose process is gone. A probe takes ten seconds at most.
const ABANDONED: Duration = Duration::from_secs(120);

/// Lets the node's systemd start this binary to probe a device that this container may not open: what the kernel
/// said of it.
/// The copy is removed again, and what an agent left that was killed meanwhile, too.
/// `parent` is where [`PLACE`] is for this process.
pub(super) fn probe_on_node(
    parent: &Path,
    systemd: &Systemd,
    device: Device,
) -> HostResult<Result<(), String>> {
    clear(parent, ABANDONED);
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{PROBE}{}-{:x}", std::process::id(), elapsed.as_nanos());
    let (folder, place) = (format!("{PLACE}/{name}"), parent.join(&name));
    let command = vec![
        format!("{folder}/agent"),
        "node-agent".to_owned(),
        "device".to_owned(),
        path(device).trim_start_matches("/dev/").to_owned(),
    ];
    let program = Program {
        output: Some((format!("{folder}/out"), format!("{folder}/err"))),
        ..Program::new(command, Duration::from_secs(10))
    };
    let made = fs::create_dir(&place)
        .map_err(|error| without_error_numbers(&error.to_string()))
        .and_then(|()| self_copy(&place.join("agent")).map_err(|error| chain(&error)));
    if let Err(error) = made {
        // There may be nothing; what went wrong is reported already.
        drop(fs::remove_dir_all(&place));
        return Err(not_tried(device, &folder, error));
    }
    let probed = systemd.execute(&program);
    let said = fs::read_to_string(place.join("err")).unwrap_or_default();
    let removed = fs::remove_dir_all(&place);
    match (probed, said.lines().last(), removed) {
        (Ok(()), _, Ok(())) => Ok(Ok(())),
        (Err(_), Some(reason), _) => Ok(Err(format!("{}: {reason}", path(device)))),
        // It did not run, so that it says nothing of the device.
        (Err(fault), None, _) => Err(not_tried(device, &folder, fault.reason().to_owned())),
        (Ok(()), _, Err(error)) => {
            let error = without_error_numbers(&error.to_string());
            Err(not_tried(device, &folder, format!("the folder cannot be removed: {error}")))
        }
    }
}

fn not_tried(device: Device, folder: &str, reason: String) -> HostError {
    let action = format!("try {} with a program in {folder}", path(device));
    HostError { action, reason, kind: HostErrorKind::Failed }
}

/// Removes what probes left below a folder that were killed, if it is as old as that. A folder that cannot be
/// removed does no harm.
pub(super) fn clear(parent: &Path, age: Duration) {
    let abandoned = |entry: &fs::DirEntry| {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PROBE));
        let made = || entry.metadata().and_then(|found| found.modified()).ok();
        ours && made().and_then(|made| made.elapsed().ok()).is_some_and(|old| old >= age)
    };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten().filter(abandoned) {
        drop(fs::remove_dir_all(entry.path()));
    }
}
