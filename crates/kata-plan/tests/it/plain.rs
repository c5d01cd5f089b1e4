//! The model of a cluster without the Machine Config Operator: a Job controller and kubelets, and hosts
//! that are no more than what Jobs report of them.

use kata_api::node_task::{
    FailedCheck, ForeignChanges, NodeAction, NodeReport, NodeTask, Outcome, SandboxInTheWay,
};
use kata_plan::{Kind, Options, Platform};
use serde_json::{Value, json};

use crate::world::World;

/// What Jobs come to on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A preflight check is fatal.
    Unfit,
    /// Another program changed the container runtime's configuration and restarted nothing.
    Pending,
    /// An installation finds what no check found before.
    Refused,
    /// The payload's image lacks what is asked for.
    NoShim,
    /// A change is undone.
    RollsBack,
    /// A change fails, and so does the way back.
    Breaks,
    /// A change cannot be carried out.
    Fails,
    /// Sandboxes that belong to no pod are in the way.
    Blocked,
    /// The report is garbage.
    Garbage,
    /// The pod ends without a report.
    Silent,
    /// The payload's image cannot be pulled.
    NoImage,
    /// The pod is not scheduled.
    NoRoom,
    /// No pod is made.
    NoPod,
    /// The pod's containers are not created, and no message says why.
    NoMount,
    /// The pod runs and does not end.
    Hangs,
    /// The node is found to differ.
    Drifted,
    /// Files of the node are found to differ that its container runtime reads when it starts.
    Edited,
    /// The kubelet does not report the handlers.
    Unreported,
}

impl Fate {
    pub(crate) const ALL: [Self; 18] = [
        Self::Unfit,
        Self::Pending,
        Self::Refused,
        Self::NoShim,
        Self::RollsBack,
        Self::Breaks,
        Self::Fails,
        Self::Blocked,
        Self::Garbage,
        Self::Silent,
        Self::NoImage,
        Self::NoRoom,
        Self::NoPod,
        Self::NoMount,
        Self::Hangs,
        Self::Drifted,
        Self::Edited,
        Self::Unreported,
    ];
}

pub(crate) const NAMESPACE: &str = "openshift-sandboxed-containers-operator";

fn outcome(fate: Option<Fate>, task: &NodeTask) -> Outcome {
    let action = task.action;
    let waits = task.foreign_changes == ForeignChanges::Wait;
    let changes = matches!(action, NodeAction::Install | NodeAction::Remove);
    match fate {
        Some(Fate::Unfit) if action != NodeAction::Remove => Outcome::Refused,
        Some(Fate::Pending) if waits && action != NodeAction::Inspect => Outcome::Refused,
        Some(Fate::RollsBack) if changes => Outcome::RolledBack,
        Some(Fate::Breaks) if changes => Outcome::Unsafe,
        Some(Fate::Fails) if changes => Outcome::Failed,
        Some(Fate::Blocked) if changes => Outcome::Blocked,
        Some(Fate::Refused) if action == NodeAction::Install => Outcome::Refused,
        Some(Fate::Drifted | Fate::Edited) if action == NodeAction::Inspect => Outcome::Drifted,
        _ => Outcome::Done,
    }
}

/// A report that says no more than how the task ended.
fn report(task: &NodeTask, outcome: Outcome) -> NodeReport {
    NodeReport {
        version: task.version,
        action: task.action,
        outcome,
        changed: false,
        restarted: false,
        runtime: String::new(),
        handlers: None,
        payload_digest: None,
        kata_version: None,
        earlier: Vec::new(),
        checks: Vec::new(),
        more_checks: 0,
        sandboxes: Vec::new(),
        sandbox_count: 0,
        message: String::new(),
    }
}

pub(crate) fn task_of(job: &Value) -> NodeTask {
    let command = &job["spec"]["template"]["spec"]["containers"][0]["command"];
    let words: Vec<&str> = command.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let at = words.iter().position(|word| *word == "--task").unwrap();
    serde_json::from_str(words[at + 1]).unwrap()
}

/// The container of a Job that takes the payload out of its image.
pub(crate) fn stage_of(job: &Value) -> Option<&Value> {
    let first = job["spec"]["template"]["spec"]["initContainers"].as_array()?;
    first.iter().find(|container| container["name"] == "stage")
}

impl World {
    /// A cluster without the Machine Config Operator.
    pub(crate) fn plain(masters: usize, workers: usize) -> Self {
        let mut world = Self::new(masters, workers);
        let nodes = world.names(Kind::Node);
        world.objects.retain(|(kind, _), _| *kind == Kind::Node);
        for node in nodes {
            world.make_plain(&node);
        }
        world.options = Options {
            platform: Platform::Kubernetes,
            agent_image: Some("registry.example/kata-operator:1".to_owned()),
            payload_image: "registry.example/payload:1".to_owned(),
            ..Options::default()
        };
        world
    }

    fn make_plain(&mut self, node: &str) {
        let worker = json!({"metadata": {"annotations": null, "labels": {
            "node-role.kubernetes.io/worker": null,
            "kubernetes.io/hostname": node,
        }}, "status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.1.4"}}});
        self.edit(Kind::Node, node, &worker);
    }

    pub(crate) fn add_plain_node(&mut self, name: &str) {
        self.create(json!({
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name}},
            "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "runtimeHandlers": [{"name": ""}, {"name": "runc"}],
                "nodeInfo": {
                    "operatingSystem": "linux", "bootID": "boot", "kernelVersion": "6.12",
                    "containerRuntimeVersion": "containerd://2.1.4", "architecture": "amd64",
                    "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "osImage": "",
                    "systemUUID": "",
                },
            },
        }));
    }

    /// The nodes that unfinished Jobs change.
    pub(crate) fn changing(&self) -> Vec<String> {
        let jobs = self.changing_jobs();
        let node = |name: &String| {
            let job = self.get(Kind::Job, name).unwrap();
            job["metadata"]["annotations"]["kata-operator.dev/node"].as_str().unwrap().to_owned()
        };
        jobs.iter().map(node).collect()
    }

    /// The unfinished Jobs that change a node.
    pub(crate) fn changing_jobs(&self) -> Vec<String> {
        let mut jobs = self.names(Kind::Job);
        jobs.retain(|name| {
            let job = self.get(Kind::Job, name).unwrap();
            let action = job["metadata"]["annotations"]["kata-operator.dev/action"].as_str();
            job["status"]["conditions"].is_null()
                && ["Install", "Remove"].contains(&action.unwrap())
        });
        jobs
    }

    /// One step of the Job controller and of the kubelets.
    pub(crate) fn run_jobs(&mut self) {
        for key in self.names(Kind::Job) {
            let job = self.get(Kind::Job, &key).unwrap().clone();
            if !job["status"]["conditions"].is_null() {
                continue;
            }
            let task = task_of(&job);
            let fate = self.hosts.get(&task.node).copied();
            let created: jiff::Timestamp =
                job["status"]["startTime"].as_str().map_or(self.now, |time| time.parse().unwrap());
            if job["status"]["startTime"].is_null() {
                let started = self.now.to_string();
                self.edit(
                    Kind::Job,
                    &key,
                    &json!({
                    "metadata": {"creationTimestamp": started}, "status": {"startTime": started}}),
                );
            }
            let deadline = job["spec"]["activeDeadlineSeconds"].as_i64().unwrap();
            if self.now.duration_since(created).as_secs() >= deadline {
                if self.get(Kind::Pod, &format!("{key}-pod")).is_some() {
                    self.delete(Kind::Pod, &format!("{key}-pod"));
                    self.edit(Kind::Job, &key, &json!({"status": {"failed": 1}}));
                }
                self.end(
                    &key,
                    Some(("DeadlineExceeded", "Job was active longer than specified deadline")),
                );
                continue;
            }
            self.run_pod(&key, &job, &task, fate);
        }
    }

    pub(crate) fn end(&mut self, job: &str, failed: Option<(&str, &str)>) {
        let (kind, reason, message) = failed
            .map_or(("Complete", "CompletionsReached", ""), |(reason, message)| {
                ("Failed", reason, message)
            });
        let condition = json!([{"type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": (self.now + self.controllers_ahead).to_string()}]);
        self.edit(Kind::Job, job, &json!({"status": {"conditions": condition}}));
    }

    fn run_pod(&mut self, key: &str, job: &Value, task: &NodeTask, fate: Option<Fate>) {
        let pod_key = format!("{key}-pod");
        let name = format!("{}-pod", job["metadata"]["name"].as_str().unwrap());
        let Some(pod) = self.get(Kind::Pod, &pod_key).cloned() else {
            if fate != Some(Fate::NoPod) {
                self.create(json!({
                    "kind": "Pod",
                    "metadata": {
                        "namespace": job["metadata"]["namespace"], "name": name,
                        "creationTimestamp": self.now.to_string(),
                        "labels": {"batch.kubernetes.io/job-name": job["metadata"]["name"]},
                        "annotations": job["metadata"]["annotations"],
                        "ownerReferences": [{
                            "apiVersion": "batch/v1", "kind": "Job", "controller": true,
                            "name": job["metadata"]["name"], "uid": job["metadata"]["uid"],
                        }],
                    },
                    "spec": {
                        "containers": [],
                        "initContainers": job["spec"]["template"]["spec"]["initContainers"],
                    },
                    "status": {"phase": "Pending"},
                }));
            }
            return;
        };
        let down = self.node(&task.node).ready.status != Some(true);
        if down {
            return;
        }
        let state = |state: Value| {
            json!({"status": {"containerStatuses": [{
            "name": "node-agent", "image": "registry.example/kata-operator:1", "imageID": "",
            "ready": false, "restartCount": 0, "state": state}]}})
        };
        let image = stage_of(job).map(|stage| stage["image"].clone());
        let stages = image.is_some();
        match fate {
            Some(Fate::NoRoom) => {
                let conditions = json!([{"type": "PodScheduled", "status": "False",
                    "reason": "Unschedulable", "message": "0/3 nodes are available: 1 Insufficient cpu."}]);
                self.edit(Kind::Pod, &pod_key, &json!({"status": {"conditions": conditions}}));
            }
            Some(Fate::NoImage) if stages => {
                let waiting = json!([{"name": "stage", "image": image, "imageID": "",
                    "ready": false, "restartCount": 0, "state": {"waiting": {
                        "reason": "ImagePullBackOff", "message": "not found"}}}]);
                self.edit(
                    Kind::Pod,
                    &pod_key,
                    &json!({"status": {"initContainerStatuses": waiting}}),
                );
            }
            Some(Fate::NoShim) if stages => self.refuse_stage(key, &pod_key, task),
            Some(Fate::NoMount) => {}
            _ if pod["status"]["containerStatuses"].is_null() => {
                self.edit(Kind::Pod, &pod_key, &state(json!({"running": {}})));
            }
            Some(Fate::Hangs)
                if matches!(task.action, NodeAction::Install | NodeAction::Remove) => {}
            _ => self.finish(key, &pod_key, task, fate, state),
        }
    }

    /// The container that takes the payload out of its image ends with a report.
    fn refuse_stage(&mut self, key: &str, pod_key: &str, task: &NodeTask) {
        let message = "the image has no shim qemuu for x86_64; it has: clh, qemu";
        let check =
            FailedCheck { code: "KATA3023".to_owned(), fatal: true, message: message.to_owned() };
        let report = NodeReport {
            checks: vec![check],
            message: message.to_owned(),
            ..report(task, Outcome::Refused)
        };
        let stage = json!([{"name": "stage", "image": "registry.example/payload:1", "imageID": "",
            "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 4, "message": json!(report).to_string()}}}]);
        let status = json!({"phase": "Failed", "initContainerStatuses": stage});
        self.edit(Kind::Pod, pod_key, &json!({"status": status}));
        self.end(
            key,
            Some(("BackoffLimitExceeded", "Job has reached the specified backoff limit")),
        );
    }

    fn finish(
        &mut self,
        key: &str,
        pod_key: &str,
        task: &NodeTask,
        fate: Option<Fate>,
        state: impl Fn(Value) -> Value,
    ) {
        let outcome = outcome(fate, task);
        let done = outcome == Outcome::Done;
        let mut handlers: Vec<String> = vec!["runc".to_owned()];
        // What is not done, or undone, leaves the handlers that were there, and so does a check before a change.
        let as_before = !done || task.action == NodeAction::Preflight;
        // One that only looks finds those of others as well.
        if as_before || task.action == NodeAction::Inspect {
            let node = self.get(Kind::Node, &task.node).unwrap();
            let reported = node["status"]["runtimeHandlers"].as_array().into_iter().flatten();
            let names = reported.filter_map(|handler| handler["name"].as_str());
            handlers = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        }
        if !as_before {
            handlers.extend(task.handlers.iter().map(|handler| handler.name.clone()));
        }
        handlers.sort();
        handlers.dedup();
        if matches!(task.action, NodeAction::Install | NodeAction::Remove)
            && done
            && fate != Some(Fate::Unreported)
        {
            let reported: Vec<Value> = std::iter::once(json!({"name": ""}))
                .chain(handlers.iter().map(|name| json!({"name": name})))
                .collect();
            self.edit(Kind::Node, &task.node, &json!({"status": {"runtimeHandlers": reported}}));
        }
        let edited = fate == Some(Fate::Edited) && outcome == Outcome::Drifted;
        if edited {
            handlers.extend(task.handlers.iter().map(|handler| handler.name.clone()));
        }
        // A node may be short of memory besides, which is a warning and no difference.
        let found = [("KATA3040", "60-kata-operator.toml"), ("KATA3004", "2000 MiB are free")];
        let lacks = match fate {
            Some(Fate::Unfit) => Some(("KATA3001", "/dev/kvm: No such file or directory")),
            Some(Fate::Pending) => Some(("KATA3047", "/etc/containerd/config.toml was changed")),
            _ => None,
        };
        let lacks = lacks.filter(|_| outcome == Outcome::Refused);
        let unfit = lacks.is_some();
        let found = found.iter().filter(|_| edited).chain(&lacks);
        let checks = found.map(|(code, message)| FailedCheck {
            code: (*code).to_owned(),
            fatal: unfit,
            message: (*message).to_owned(),
        });
        let checks: Vec<FailedCheck> = checks.collect();
        let report = NodeReport {
            changed: done,
            restarted: done && matches!(task.action, NodeAction::Install | NodeAction::Remove),
            runtime: "containerd 2.1.4".to_owned(),
            handlers: Some(handlers),
            checks,
            sandboxes: if outcome == Outcome::Blocked {
                vec![SandboxInTheWay {
                    namespace: "shop".to_owned(),
                    pod: "ghost".to_owned(),
                    handler: "kata".to_owned(),
                }]
            } else {
                Vec::new()
            },
            message: if done { String::new() } else { format!("simulated {outcome:?}") },
            ..report(task, outcome)
        };
        let message = match fate {
            Some(Fate::Garbage) => "not JSON".to_owned(),
            Some(Fate::Silent) => String::new(),
            _ => json!(report).to_string(),
        };
        let good = done && !matches!(fate, Some(Fate::Garbage | Fate::Silent));
        let ended = json!({"terminated": {"exitCode": i32::from(!good), "message": message}});
        self.edit(Kind::Pod, pod_key, &state(ended));
        if let Some(stage) = stage_of(self.get(Kind::Job, key).unwrap()) {
            let image = stage["image"].as_str().unwrap().to_owned();
            let folder = image.rfind('/').map_or(0, |slash| slash + 1);
            let name = image[folder..].find(':').map_or(&*image, |colon| &image[..folder + colon]);
            let is_pinned = image.contains('@');
            let id = if is_pinned { image.clone() } else { format!("{name}{}", self.resolved) };
            let staged = json!([{"name": "stage", "image": image, "imageID": id, "ready": true,
                "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]);
            self.edit(Kind::Pod, pod_key, &json!({"status": {"initContainerStatuses": staged}}));
        }
        let phase = if good { "Succeeded" } else { "Failed" };
        self.edit(Kind::Pod, pod_key, &json!({"status": {"phase": phase}}));
        self.end(
            key,
            (!good)
                .then_some(("BackoffLimitExceeded", "Job has reached the specified backoff limit")),
        );
    }
}
