//! Files that a container can read: the kernel's, of the host or of the guest, and the host's own
//! where its root directory is mounted.

use super::View;
use crate::world::Platform;

/// The content of a file; `None` if there is none at the path.
pub(super) fn read(view: View<'_>, path: &str) -> Option<String> {
    if let Some(inside) = view.host_root.and_then(|root| path.strip_prefix(root)) {
        let on_host = View { host_root: Some(""), ..view };
        return kernel(on_host, inside).or_else(|| view.host.files.get(inside).cloned());
    }
    match path {
        "/etc/hostname" => Some(format!("{}\n", view.name())),
        "/etc/hosts" => {
            Some(format!("127.0.0.1\tlocalhost\n{}\t{}\n", view.sandbox.ip, view.name()))
        }
        _ => kernel(view, path),
    }
}

/// The names in a directory; `None` if there is no such directory.
pub(super) fn list(view: View<'_>, path: &str) -> Option<Vec<String>> {
    let Some(inside) = view.host_root.and_then(|root| path.strip_prefix(root)) else {
        return own(path);
    };
    let directory = format!("{}/", inside.trim_end_matches('/'));
    let mut names: Vec<String> = view
        .host
        .files_under(&directory)
        .filter_map(|(path, _)| path.strip_prefix(directory.as_str()))
        .map(|rest| rest.split('/').next().unwrap_or_default().to_owned())
        .collect();
    names.dedup();
    if directory == "/dev/" && view.host.has_kvm() {
        names.push("kvm".to_owned());
    }
    (!names.is_empty()).then_some(names)
}

/// The directories of a container: no more than what can be read in it.
fn own(path: &str) -> Option<Vec<String>> {
    let names: &[&str] = match path.trim_end_matches('/') {
        "" => &["etc", "proc"],
        "/etc" => &["hostname", "hosts"],
        "/proc" => &["cmdline", "cpuinfo", "meminfo", "sys", "uptime", "version"],
        "/proc/sys" => &["kernel"],
        "/proc/sys/kernel" => &["hostname", "osrelease", "random"],
        "/proc/sys/kernel/random" => &["boot_id"],
        _ => return None,
    };
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

fn kernel(view: View<'_>, path: &str) -> Option<String> {
    let vm = view.vm();
    match path {
        "/proc/uptime" => {
            let since = if vm.is_some() { view.sandbox.created } else { view.host.booted };
            let up = view.now.duration_since(since).as_secs_f64().max(0.0);
            Some(format!("{up:.2} {:.2}\n", up * f64::from(cpus(view)) * 0.97))
        }
        "/proc/cmdline" => {
            Some(format!("{}\n", vm.map_or(view.host.cmdline.as_str(), |vm| vm.cmdline.as_str())))
        }
        "/proc/sys/kernel/random/boot_id" => {
            Some(format!("{}\n", vm.map_or(view.host.boot_id.as_str(), |vm| vm.boot_id.as_str())))
        }
        "/proc/cpuinfo" => Some((0..cpus(view)).map(|cpu| processor(cpu, cpus(view))).collect()),
        "/proc/meminfo" => {
            let total = memory_kib(view);
            let free = total / 10 * 7;
            Some(format!(
                "MemTotal:       {total:>8} kB\nMemFree:        {free:>8} kB\n\
                 MemAvailable:   {free:>8} kB\n"
            ))
        }
        "/proc/version" => Some(format!("{}\n", version(view))),
        "/proc/sys/kernel/osrelease" => Some(format!("{}\n", release(view))),
        "/proc/sys/kernel/hostname" => Some(format!("{}\n", view.name())),
        _ => None,
    }
}

/// The logical CPUs that the kernel sees.
pub(super) fn cpus(view: View<'_>) -> u32 {
    match view.vm() {
        Some(vm) => vm.cpus,
        None => view.host.spec.as_ref().map_or(1, |spec| spec.cpus),
    }
}

/// The memory that the kernel sees, in KiB.
pub(super) fn memory_kib(view: View<'_>) -> u64 {
    match view.vm() {
        // The guest's kernel keeps some for itself.
        Some(vm) => vm.memory_kib - vm.memory_kib / 40,
        None => view.host.spec.as_ref().map_or(0, |spec| spec.memory_kib),
    }
}

fn processor(cpu: u32, siblings: u32) -> String {
    format!(
        "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
         model name\t: Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz\nphysical id\t: 0\n\
         siblings\t: {siblings}\ncore id\t\t: {cpu}\ncpu cores\t: {siblings}\nbogomips\t: 4000.00\n\n"
    )
}

/// The kernel of upstream's payload (`assets.kernel.version` of `versions.yaml` of Kata Containers).
const PAYLOAD_KERNEL: &str = "6.18.5";

/// The kernel's version. On RHCOS the guest's is made of the host's; a payload brings its own.
pub(super) fn release(view: View<'_>) -> &str {
    match view.host.platform() {
        Platform::Kubernetes if view.vm().is_some() => PAYLOAD_KERNEL,
        Platform::Kubernetes | Platform::OpenShift => &view.host.kernel,
    }
}

/// What `/proc/version` says.
fn version(view: View<'_>) -> String {
    format!(
        "Linux version {} (mockbuild@x86-vm-07.build) (gcc (GCC) 11.5.0) {}",
        release(view),
        build()
    )
}

/// The kernel's build, as `uname -v` shows it.
pub(super) fn build() -> &'static str {
    "#1 SMP PREEMPT_DYNAMIC Tue Nov 4 10:11:12 EST 2025"
}
