//! Pod sandboxes on a host, and the processes that those in virtual machines bring.
//!
//! It decides nothing: the kubelet asks for a sandbox and takes it away.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::crio::Handler;
use super::{Host, identity};

/// A pod sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The id, 64 hexadecimal digits.
    pub id: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The handler that the pod asks for; empty for the default.
    pub handler: String,
    /// How many sandboxes of the pod came before it.
    pub attempt: u32,
    /// When it was made.
    pub created: Timestamp,
    /// The pod's address.
    pub ip: String,
    /// The program that runs for it: a file, links followed.
    #[serde(default)]
    pub program: String,
    /// The virtual machine, if the handler makes one.
    pub vm: Option<VirtualMachine>,
    pids: Vec<u32>,
}

/// The virtual machine of a sandbox: what the pod sees instead of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualMachine {
    /// The guest's own boot id.
    pub boot_id: String,
    /// The guest kernel's command line.
    pub cmdline: String,
    /// Virtual CPUs that the guest has.
    pub cpus: u32,
    /// Memory that the guest has, in KiB.
    pub memory_kib: u64,
}

/// What a sandbox is made for.
#[derive(Debug, Clone, Copy)]
pub struct SandboxRequest<'a> {
    /// The pod's uid.
    pub uid: &'a str,
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod's name.
    pub name: &'a str,
    /// The handler; empty for the default.
    pub handler: &'a str,
    /// How many sandboxes of the pod came before.
    pub attempt: u32,
    /// The pod's address.
    pub ip: &'a str,
    /// The sum of the containers' CPU limits, in thousandths.
    pub cpu_limit_milli: u64,
    /// The sum of the containers' memory limits, in bytes.
    pub memory_limit: u64,
}

/// Virtual CPUs of a machine without limits (`default_vcpus`).
const DEFAULT_VCPUS: u32 = 1;
/// Memory of a machine without limits (`default_memory`), in KiB.
const DEFAULT_MEMORY_KIB: u64 = 2048 * 1024;

/// The id of a pod's sandbox.
pub fn sandbox_id(uid: &str, attempt: u32) -> String {
    if attempt == 0 {
        identity::hex_id(&format!("sandbox/{uid}"))
    } else {
        identity::hex_id(&format!("sandbox/{uid}/{attempt}"))
    }
}

impl Host {
    /// Makes a sandbox.
    ///
    /// # Errors
    /// The container runtime's words, if it cannot.
    pub fn run_sandbox(
        &mut self,
        request: &SandboxRequest<'_>,
        now: Timestamp,
    ) -> Result<&Sandbox, String> {
        if let Some(refusal) = super::crio::refusal(self, request.handler) {
            return Err(refusal);
        }
        self.stop_sandbox(request.uid);
        let id = sandbox_id(request.uid, request.attempt);
        let handler = self.handlers.get(request.handler).cloned().unwrap_or_default();
        let (vm, pids) = if handler.is_vm() {
            let (vm, pids) = self.start_vm(request, &handler, &id, now);
            (Some(vm), pids)
        } else {
            let conmon =
                self.spawn(1, now, &["/usr/bin/conmon", "-b", "/run/containers", "-c", &id]);
            (None, vec![conmon])
        };
        let sandbox = Sandbox {
            id,
            namespace: request.namespace.to_owned(),
            name: request.name.to_owned(),
            handler: request.handler.to_owned(),
            attempt: request.attempt,
            created: now,
            ip: request.ip.to_owned(),
            program: self.resolved(&handler.runtime_path),
            vm,
            pids,
        };
        Ok(self.sandboxes.entry(request.uid.to_owned()).insert_entry(sandbox).into_mut())
    }

    /// Takes a pod's sandbox away, with its processes.
    pub fn stop_sandbox(&mut self, uid: &str) {
        for pid in self.sandboxes.remove(uid).into_iter().flat_map(|sandbox| sandbox.pids) {
            self.processes.remove(&pid);
        }
        self.containers.retain(|_, container| container.pod_uid != uid);
    }

    fn start_vm(
        &mut self,
        request: &SandboxRequest<'_>,
        handler: &Handler,
        id: &str,
        now: Timestamp,
    ) -> (VirtualMachine, Vec<u32>) {
        let host_cpus = self.spec.as_ref().map_or(1, |spec| spec.cpus);
        let extra = u32::try_from(request.cpu_limit_milli.div_ceil(1000)).unwrap_or(u32::MAX);
        let cpus = DEFAULT_VCPUS.saturating_add(extra).min(host_cpus.max(DEFAULT_VCPUS));
        let memory_kib = DEFAULT_MEMORY_KIB.saturating_add(request.memory_limit / 1024);
        let cmdline = format!(
            "tsc=reliable no_timer_check rcupdate.rcu_expedited=1 i8042.direct=1 i8042.dumbkbd=1 \
             i8042.nopnp=1 i8042.noaux=1 noreplace-smp reboot=k cryptomgr.notests net.ifnames=0 \
             pci=lastbus=0 console=hvc0 console=hvc1 debug panic=1 nr_cpus={host_cpus} \
             scsi_mod.scan=none agent.log=debug"
        );
        let shim = self.spawn(
            1,
            now,
            &[
                &handler.runtime_path,
                "-namespace",
                "default",
                "-address",
                "",
                "-publish-binary",
                "/usr/bin/crio",
                "-id",
                id,
            ],
        );
        let source = format!("source=/run/kata-containers/shared/sandboxes/{id}/shared");
        let virtiofsd = self.spawn(
            shim,
            now,
            &["/usr/libexec/virtiofsd", "--fd=3", "-o", &source, "-o", "cache=auto", "--syslog"],
        );
        let name = format!("sandbox-{id}");
        let machine = identity::uuid(&format!("machine/{id}"));
        let memory = format!("{}M", DEFAULT_MEMORY_KIB / 1024);
        let maxcpus =
            format!("{DEFAULT_VCPUS},cores=1,threads=1,sockets={host_cpus},maxcpus={host_cpus}");
        let vmm = self.spawn(
            shim,
            now,
            &[
                "/usr/libexec/qemu-kiwi",
                "-name",
                &name,
                "-uuid",
                &machine,
                "-machine",
                "q35,accel=kvm,kernel_irqchip",
                "-cpu",
                "host,pmu=off",
                "-m",
                &memory,
                "-smp",
                &maxcpus,
                "-kernel",
                "/var/cache/kata-containers/vmlinuz.container",
                "-append",
                &cmdline,
            ],
        );
        let boot_id = identity::uuid(&format!("guest/{id}"));
        (VirtualMachine { boot_id, cmdline, cpus, memory_kib }, vec![shim, virtiofsd, vmm])
    }
}
