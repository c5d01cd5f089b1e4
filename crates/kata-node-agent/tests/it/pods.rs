//! Sandboxes over CRI, as the kubelet starts and ends them, and the image that they are made of.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use kata_host::digest;
use kata_node_agent::cri::Fault;
use prost::Message;
use serde_json::Value;

use crate::lab::{Node, SOCKET};

/// `PodSandboxMetadata`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

/// `NamespaceOption`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Namespaces {
    /// 2 is the node's, for which no network plugin is needed.
    #[prost(int32, tag = "1")]
    pub(crate) network: i32,
    /// 0 is the pod's, 1 the container's own.
    #[prost(int32, tag = "2")]
    pub(crate) pid: i32,
}

/// `LinuxSandboxSecurityContext`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Security {
    #[prost(message, optional, tag = "1")]
    namespaces: Option<Namespaces>,
}

/// `LinuxPodSandboxConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Linux {
    #[prost(message, optional, tag = "2")]
    security: Option<Security>,
}

/// `PodSandboxConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Config {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(string, tag = "3")]
    log_directory: String,
    #[prost(message, optional, tag = "8")]
    linux: Option<Linux>,
}

/// How long the kubelet waits for an answer, unless `runtimeRequestTimeout` says otherwise.
const REQUEST: Duration = Duration::from_mins(2);

/// `RunPodSandboxRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
struct RunRequest {
    #[prost(message, optional, tag = "1")]
    config: Option<Config>,
    #[prost(string, tag = "2")]
    runtime_handler: String,
}

/// `RunPodSandboxResponse`, `StopPodSandboxRequest`, `RemovePodSandboxRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Id {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

/// An answer that says no more than that it worked.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Empty {}

/// A sandbox that was started.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) id: String,
    /// Processes in the node's namespace: the shim's, and what stands for the virtual machine.
    pub(crate) shim: u32,
    task: u32,
    /// The program that the shim is.
    pub(crate) program: String,
}

/// A fault in words.
pub(crate) fn words(fault: Fault) -> String {
    fault.at(SOCKET).reason
}

impl Node {
    pub(crate) fn call<T: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<T, String> {
        self.cri.call(&self.socket, method, request, REQUEST).map_err(words)
    }

    /// Imports the image of which sandboxes are made.
    pub(crate) fn import_pause(&self, release: &str) {
        let mut layer = tar::Builder::new(Vec::new());
        entry(&mut layer, "pause", b"it is never run");
        let config = serde_json::json!({"Cmd": ["/pause"]});
        self.import(release, "example.invalid/pause:1", &config, &layer.into_inner().unwrap());
    }

    /// Imports an image of one layer.
    pub(crate) fn import(&self, release: &str, name: &str, config: &Value, layer: &[u8]) {
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest::hex(layer))]},
        })
        .to_string();
        let file = format!("{}.json", digest::hex(config.as_bytes()));
        let manifest =
            serde_json::json!([{"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]}]);
        let mut image = tar::Builder::new(Vec::new());
        entry(&mut image, &file, config.as_bytes());
        entry(&mut image, "layer.tar", layer);
        entry(&mut image, "manifest.json", manifest.to_string().as_bytes());
        fs::write(self.root.join("root/image.tar"), image.into_inner().unwrap()).unwrap();
        let mut arguments = vec!["-n", "k8s.io", "images", "import"];
        arguments.extend(release.starts_with('2').then_some("--local"));
        arguments.extend(["--snapshotter", "native", "/root/image.tar"]);
        let output = self.inside("/node/bin/ctr", &arguments);
        assert!(output.status.success(), "{output:?}");
    }

    /// Starts a sandbox and gives its ID and what it was asked for.
    pub(crate) fn sandbox(&self, name: &str, handler: &str) -> Result<(String, Config), String> {
        let config = Config {
            metadata: Some(Metadata {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                namespace: "shop".to_owned(),
            }),
            log_directory: "/var/log".to_owned(),
            linux: Some(Linux {
                security: Some(Security { namespaces: Some(Namespaces { network: 2, pid: 0 }) }),
            }),
        };
        let request =
            RunRequest { config: Some(config.clone()), runtime_handler: handler.to_owned() };
        self.call("RunPodSandbox", &request).map(|Id { id }| (id, config))
    }

    /// Starts a sandbox.
    pub(crate) fn try_pod(&self, name: &str, handler: &str) -> Result<Pod, String> {
        let (id, _) = self.sandbox(name, handler)?;
        let number = |file: &str| {
            let text = fs::read_to_string(self.bundle(&id).join(file)).unwrap_or_default();
            text.parse::<u32>().map_err(|error| format!("{file} of {id} has {text:?}: {error}"))
        };
        let (shim, task) = (number("shim.pid")?, number("task.pid")?);
        Ok(Pod { id, shim, task, program: self.program(shim).unwrap_or_default() })
    }

    pub(crate) fn pod(&self, name: &str, handler: &str) -> Pod {
        let pod = self.try_pod(name, handler).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(self.is_ready(&pod), Some(true), "{name}");
        pod
    }

    fn bundle(&self, id: &str) -> PathBuf {
        self.root.join("run/containerd/io.containerd.runtime.v2.task/k8s.io").join(id)
    }

    /// Whether a sandbox is READY; `None` if there is none.
    pub(crate) fn is_ready(&self, pod: &Pod) -> Option<bool> {
        let sandboxes = self.cri.sandboxes(&self.socket).map_err(words).unwrap();
        sandboxes.iter().find(|sandbox| sandbox.id == pod.id).map(|sandbox| sandbox.ready)
    }

    pub(crate) fn stop(&self, pod: &Pod) -> Result<(), String> {
        self.call("StopPodSandbox", &Id { id: pod.id.clone() }).map(|Empty {}| ())
    }

    pub(crate) fn remove(&self, pod: &Pod) -> Result<(), String> {
        self.call("RemovePodSandbox", &Id { id: pod.id.clone() }).map(|Empty {}| ())
    }

    /// Stops and removes a sandbox; none of its processes may be left.
    pub(crate) fn end(&self, pod: &Pod) {
        // As the kubelet does it: containerd 1.6 needs a moment to see that a shim is gone.
        self.until("the sandbox is stopped", || self.stop(pod).is_ok());
        // containerd 2 deletes the task of a sandbox that has ended by itself, too. If its deletion comes first, the
        // shim shuts down and the removal's own deletion fails with "ttrpc: closed"; the kubelet tries again then.
        self.until("the sandbox is removed", || self.remove(pod).is_ok());
        assert_eq!(self.is_ready(pod), None);
        self.until("the sandbox's processes are gone", || self.processes(pod) == (false, false));
    }

    /// Kills the processes of a sandbox that is lost.
    pub(crate) fn kill(&self, pod: &Pod) {
        self.inside("/bin/kill", &["-9", &pod.shim.to_string(), &pod.task.to_string()]);
        self.until("the processes are gone", || self.processes(pod) == (false, false));
    }

    /// Whether the shim and the task live.
    pub(crate) fn processes(&self, pod: &Pod) -> (bool, bool) {
        (self.program(pod.shim).is_some(), self.program(pod.task).is_some())
    }

    /// The program that a process of the node is; `None` if there is no such process.
    pub(crate) fn program(&self, process: u32) -> Option<String> {
        let output = self.inside("/bin/readlink", &[&format!("/proc/{process}/exe")]);
        let link = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| link.trim_end().to_owned())
    }

    /// Still READY, and in the very same processes.
    pub(crate) fn assert_untouched(&self, pod: &Pod) {
        assert_eq!(self.is_ready(pod), Some(true), "{pod:?}");
        assert_eq!(self.processes(pod), (true, true), "{pod:?}");
        let bundle = self.bundle(&pod.id);
        assert_eq!(fs::read_to_string(bundle.join("shim.pid")).unwrap(), pod.shim.to_string());
        assert_eq!(fs::read_to_string(bundle.join("task.pid")).unwrap(), pod.task.to_string());
        let program = self.program(pod.shim).unwrap();
        assert_eq!(program.trim_end_matches(" (deleted)"), pod.program);
    }

    /// Restarts the container runtime as an administrator does, and waits until it is ready.
    #[track_caller]
    pub(crate) fn restart(&self) {
        let output = self.inside("/usr/bin/systemctl", &["restart", "containerd.service"]);
        let status =
            || self.inside("/usr/bin/systemctl", &["status", "--full", "containerd.service"]);
        assert!(output.status.success(), "{output:?} {:?}", status());
        self.until("the container runtime is ready again", || self.ready());
    }
}

pub(crate) fn entry(archive: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    header.set_cksum();
    archive.append_data(&mut header, name, content).unwrap();
}
