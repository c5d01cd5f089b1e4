//! What the kubelet says of a pod: the states of its containers, and Events. Pure.

use jiff::Timestamp;
use kata_api::{Code, Who};
use kata_plan::snapshot::is_pull;
use serde_json::Value;

use super::sandbox;
use crate::document::Problem;

/// Words, in lower case, of a container runtime that cannot start a container because the image or the pod is wrong.
const POD_FAULTS: [&str; 10] = [
    "executable file not found",
    "exec format error",
    "no command specified",
    "exec: \"",
    "starting container process caused",
    "unable to start container process",
    "has no such user",
    "no users found",
    "unable to hotplug",
    "blocked by policy",
];
/// Words, in lower case, with which the kubelet refuses to make the configuration of a container.
const CONFIGURATION_FAULTS: [&str; 6] = [
    "secret",
    "configmap",
    "couldn't find key",
    "runasnonroot",
    "non-root policy",
    "failed to prepare subpath",
];
/// Reasons of Events that name why a container does not start.
const FAILURE_REASONS: [&str; 4] =
    ["Failed", "InspectFailed", "ErrImageNeverPull", "FailedPostStartHook"];

/// A container with its status.
struct Container<'a> {
    /// `container app`, `init container setup` or `sidecar container log`.
    title: String,
    name: &'a str,
    status: &'a Value,
    /// Whether it has to end before others start.
    is_init: bool,
    is_sidecar: bool,
}

/// A pod, with its Events, the latest first.
struct PodReport<'a> {
    subject: &'a str,
    pod: &'a Value,
    name: &'a str,
    namespace: &'a str,
    events: Vec<&'a Value>,
}

/// Why a pod that is bound to a node does not run, or is not ready; empty if nothing is wrong.
pub(crate) fn causes(pod: &Value, events: &[Value], subject: &str) -> Vec<Problem> {
    let report = PodReport::new(pod, events, subject);
    let mut found: Vec<Problem> = report.pod_end().into_iter().collect();
    if pod["status"]["phase"] == "Succeeded" || !found.is_empty() {
        return found;
    }
    let containers = containers(pod);
    if pod["status"]["phase"] != "Failed" && !report.has_sandbox(&containers) {
        let sandbox = sandbox::of_events(events, pod, subject);
        // The kubelet mounts all volumes before it asks for the sandbox.
        if sandbox.is_empty() {
            found.extend(report.volumes());
        }
        found.extend(sandbox);
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        // The deletion ends its containers; their exit codes are not a cause.
        found.extend(report.sandbox_stop());
        return found;
    }
    let is_over = main_containers_are_over(&containers);
    let counted = containers.iter().filter(|container| !(is_over && container.is_sidecar));
    found.extend(counted.filter_map(|container| report.container(container)));
    let is_silent = containers.iter().all(|container| !container.status["state"].is_object());
    if found.is_empty() && is_silent && pod["status"]["phase"] != "Running" {
        found.extend(report.events_only());
    }
    found
}

/// That a pod runs and is not ready, without another cause.
pub(super) fn not_ready(pod: &Value, subject: &str) -> Option<Problem> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|it| it["type"] == "Ready" && it["status"] == "False")?;
    if main_containers_are_over(&containers(pod)) {
        return None;
    }
    let text = |key: &str| ready[key].as_str().filter(|text| !text.is_empty());
    let why = text("message").or_else(|| text("reason")).unwrap_or("no reason is given");
    let message = format!("the pod runs, and is not ready: {why}");
    let problem = Problem::new(Code::ContainerNotReady, subject, message);
    Some(if ready["reason"] == "ReadinessGatesNotReady" {
        problem
            .with_fix("check the controller that sets the condition of the readiness gate")
            .with_who(Who::ClusterAdministrator)
    } else {
        problem.with_who(Who::ApplicationTeam)
    })
}

/// Whether all containers but sidecars have ended: a sidecar is ended after them.
fn main_containers_are_over(containers: &[Container<'_>]) -> bool {
    let is_main = |container: &&Container<'_>| !container.is_init && !container.is_sidecar;
    let mut main = containers.iter().filter(is_main).peekable();
    main.peek().is_some()
        && main.all(|container| container.status["state"]["terminated"].is_object())
}

/// The outlook of a pod on its node that has no cause.
pub(super) fn outlook(pod: &Value) -> String {
    if pod["metadata"]["deletionTimestamp"].is_string() {
        let finalizers = pod["metadata"]["finalizers"].as_array();
        let names: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
        return if names.is_empty() {
            "it is being deleted; there is no sign of trouble so far".to_owned()
        } else {
            format!("it is being deleted, and waits for its finalizers: {}", names.join(", "))
        };
    }
    match pod["status"]["phase"].as_str() {
        Some("Failed") => return "it has ended, and does not start again".to_owned(),
        Some("Unknown") => return "its node does not report".to_owned(),
        _ => {}
    }
    let all = containers(pod);
    let mut init = all.iter().filter(|container| container.is_init);
    match init.find(|container| container.status["state"]["running"].is_object()) {
        Some(Container { title, .. }) => format!("it waits until {title}, which runs, is done"),
        None => "it is being started; there is no sign of trouble so far".to_owned(),
    }
}

/// When an Event happened last.
pub(crate) fn last_time(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["firstTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.into_iter().filter_map(Value::as_str).find_map(|time| time.parse().ok())
}

fn containers(pod: &Value) -> Vec<Container<'_>> {
    let is_sidecar = |name: &str| {
        let mut specs = pod["spec"]["initContainers"].as_array().into_iter().flatten();
        specs.any(|spec| spec["name"] == name && spec["restartPolicy"] == "Always")
    };
    let of = |key: &str, before_others: bool| -> Vec<Container<'_>> {
        let all = pod["status"][key].as_array().into_iter().flatten();
        let with_title = all.map(|status| {
            let name = status["name"].as_str().unwrap_or_default();
            let is_sidecar = before_others && is_sidecar(name);
            let is_init = before_others && !is_sidecar;
            let kind = match (is_init, is_sidecar) {
                (true, _) => "init container",
                (_, true) => "sidecar container",
                _ => "container",
            };
            Container { title: format!("{kind} {name}"), name, status, is_init, is_sidecar }
        });
        with_title.collect()
    };
    let mut all = of("initContainerStatuses", true);
    all.extend(of("containerStatuses", false));
    all
}

impl<'a> PodReport<'a> {
    fn new(pod: &'a Value, events: &'a [Value], subject: &'a str) -> Self {
        let uid = &pod["metadata"]["uid"];
        let mut events: Vec<&Value> =
            events.iter().filter(|event| event["involvedObject"]["uid"] == *uid).collect();
        events.sort_by_key(|event| std::cmp::Reverse(last_time(event)));
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        let (name, namespace) =
            (text(&pod["metadata"]["name"]), text(&pod["metadata"]["namespace"]));
        Self { subject, pod, name, namespace, events }
    }

    fn problem(&self, code: Code, who: Who, message: &str, fix: impl Into<String>) -> Problem {
        Problem::new(code, self.subject, message.replace('\n', " ")).with_fix(fix).with_who(who)
    }

    fn logs(&self, container: &str, previous: bool) -> String {
        let previous = if previous { " --previous" } else { "" };
        format!("`kubectl logs -n {} {} -c {container}{previous}`", self.namespace, self.name)
    }

    fn shim(&self) -> String {
        format!(
            "read the shim's log: `kubectl kata logs pod/{} -n {} --shim`",
            self.name, self.namespace
        )
    }

    /// Whether the pod's sandbox exists: earlier faults of volumes and sandbox are over.
    fn has_sandbox(&self, containers: &[Container<'_>]) -> bool {
        let mut conditions = self.pod["status"]["conditions"].as_array().into_iter().flatten();
        let known = conditions.find(|it| it["type"] == "PodReadyToStartContainers");
        if known.is_some_and(|known| known["status"] == "True") {
            return true;
        }
        // Before Kubernetes 1.29 there is no such condition.
        let is_created = known.is_none()
            && containers.iter().any(|container| {
                let state = &container.status["state"];
                let waits = state["waiting"]["reason"].as_str();
                state["running"].is_object()
                    || waits.is_some_and(|it| it != "ContainerCreating" && it != "PodInitializing")
            });
        let last = |reasons: &[&str]| {
            let reason = |event: &&&Value| reasons.iter().any(|it| event["reason"] == *it);
            self.events.iter().find(reason).and_then(|event| last_time(event))
        };
        let failed = last(&["FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume"]);
        is_created || last(&["Pulling", "Pulled", "Created", "Started"]) > failed
    }

    /// The pod's own end, such as an eviction.
    fn pod_end(&self) -> Option<Problem> {
        let status = &self.pod["status"];
        let reason = status["reason"].as_str().filter(|_| status["phase"] == "Failed")?;
        let of_reason = self.events.iter().find(|event| event["reason"] == reason);
        let said = status["message"].as_str().or_else(|| of_reason?["message"].as_str());
        let said = said.unwrap_or("no message").trim_end();
        let node = self.pod["spec"]["nodeName"].as_str().unwrap_or("its node");
        let message = format!("the pod was ended on {node} ({reason}): {said}");
        let has = |words: &str| said.contains(words);
        let (who, fix) = match reason {
            "Evicted" if has("exceeded its local") || has("exceeds the total limit") => (
                Who::ApplicationTeam,
                "raise resources.limits.ephemeral-storage, or write to a volume".to_owned(),
            ),
            // The kubelet names those that use more than they asked for.
            "Evicted" if has("resource: memory") && (has("exceeds its") || has("has larger")) => (
                Who::ApplicationTeam,
                "set resources.requests.memory of the container that the message names to what it needs"
                    .to_owned(),
            ),
            "Evicted" => (
                Who::ClusterAdministrator,
                format!("free the resource on {node}: `kubectl describe node {node}`"),
            ),
            "DeadlineExceeded" => {
                (Who::ApplicationTeam, "raise spec.activeDeadlineSeconds".to_owned())
            }
            _ => (
                Who::ClusterAdministrator,
                format!("read the conditions of the node: `kubectl describe node {node}`"),
            ),
        };
        let owners = self.pod["metadata"]["ownerReferences"].as_array();
        let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        let fix = match controller.and_then(|owner| owner["kind"].as_str()) {
            Some("Job") => format!(
                "{fix}; the Job creates another pod, unless its backoffLimit or its deadline is reached"
            ),
            Some(kind) => format!("{fix}; the {kind} creates another pod"),
            None => format!("{fix}; then create the pod again, since no controller does"),
        };
        Some(self.problem(Code::PodEnded, who, &message, fix))
    }

    /// Volumes that cannot be mounted or attached, each once.
    fn volumes(&self) -> Vec<Problem> {
        let of = |event: &&&Value| {
            let reason = event["reason"].as_str().unwrap_or_default();
            ["FailedMount", "FailedAttachVolume", "FailedMapVolume"].contains(&reason)
        };
        // The kubelet sums up what a more exact Event says of one volume.
        let is_sum =
            |message: &str| message.contains("Unable to ") && message.contains("mount volumes");
        let volume = |message: &str| {
            let (_, rest) = message.split_once("volume \"")?;
            rest.split_once('"').map(|(name, _)| name.to_owned())
        };
        let mut messages: Vec<&str> = Vec::new();
        for event in self.events.iter().filter(of) {
            let message = text_of(event);
            let is_known = |other: &&str| **other == *message || volume(other) == volume(message);
            if !messages.iter().any(|other| is_known(other) && volume(other).is_some()) {
                messages.push(message);
            }
        }
        if messages.iter().any(|message| !is_sum(message)) {
            messages.retain(|message| !is_sum(message));
        }
        messages.into_iter().map(|message| self.volume(message)).collect()
    }

    fn volume(&self, message: &str) -> Problem {
        let lower = message.to_lowercase();
        let missing =
            ["secret", "configmap", "persistentvolumeclaim"].into_iter().find_map(|kind| {
                let (_, rest) = message.split_once(&format!("{kind} \""))?;
                let (name, rest) = rest.split_once('"')?;
                rest.starts_with(" not found").then(|| format!("{kind} {name}"))
            });
        let (who, fix) = match missing {
            Some(object) => (
                Who::ApplicationTeam,
                format!(
                    "create {object}, or correct the volume; `kubectl get {object} -n {}` shows whether it is \
                     there",
                    self.namespace
                ),
            ),
            None if lower.contains("multi-attach") => (
                Who::ApplicationTeam,
                "end the other pod that uses the volume, or use a volume with access mode ReadWriteMany"
                    .to_owned(),
            ),
            None if ["non-existent", "hostpath type check failed"].iter().any(|it| lower.contains(it)) => {
                (Who::ApplicationTeam, "correct the key or the path in spec.volumes".to_owned())
            }
            None => (
                Who::ClusterAdministrator,
                "check the storage driver on the node, the storage server, and its permissions"
                    .to_owned(),
            ),
        };
        let message = format!("a volume cannot be mounted: {}", message.trim_end());
        self.problem(Code::VolumeNotMounted, who, &message, fix)
    }

    /// A sandbox that does not end.
    fn sandbox_stop(&self) -> Option<Problem> {
        let event = self.events.iter().find(|event| event["reason"] == "FailedKillPod")?;
        let message = format!("the sandbox cannot be stopped: {}", text_of(event));
        Some(self.problem(Code::SandboxFailed, Who::ClusterAdministrator, &message, self.shim()))
    }

    fn container(&self, container: &Container<'_>) -> Option<Problem> {
        let Container { title, name, status, .. } = container;
        let state = &status["state"];
        let last = &status["lastState"]["terminated"];
        let ended = &state["terminated"];
        if let Some(reason) = state["waiting"]["reason"].as_str() {
            let before = last["message"].as_str().filter(|_| last["reason"] == "StartError");
            // Some kubelets add the cause to `Back-off pulling image "x"`; of others the Event before it has the cause.
            let message = state["waiting"]["message"].as_str();
            let message =
                message.map(|text| text.split_once("ErrImagePull: ").map_or(text, |it| it.1));
            let message = message.filter(|message| !message.starts_with("Back-off"));
            let said = message.or(before).or_else(|| self.failure(name)).unwrap_or_default();
            return match reason {
                "PodInitializing" | "ContainerCreating" => None,
                "CrashLoopBackOff" => Some(self.ended(container, last)),
                _ => Some(self.refused(container, reason, said)),
            };
        }
        if ended.is_object() {
            return (ended["exitCode"] != 0).then(|| self.ended(container, ended));
        }
        let runs = state["running"].is_object();
        let is_unready = runs && status["ready"] != true && !container.is_init;
        let probe = self.probe(name, false).filter(|_| is_unready);
        if let Some(probe) = probe {
            let message = format!("{title} runs, and is not ready: {probe}");
            let fix = format!("correct the application or its probe; {}", self.logs(name, false));
            let who = Who::ApplicationTeam;
            return Some(self.problem(Code::ContainerNotReady, who, &message, fix));
        }
        if last["reason"] == "OOMKilled" && !(runs && status["ready"] == true) {
            return Some(self.ended(container, last));
        }
        None
    }

    /// The cause in the Events of a pod whose status has no container.
    fn events_only(&self) -> Option<Problem> {
        let container = Container {
            title: "a container".to_owned(),
            name: "NAME",
            status: &Value::Null,
            is_init: false,
            is_sidecar: false,
        };
        if let Some(said) = self.failure("") {
            return Some(self.refused(&container, "", said));
        }
        let probe = self.probe("", false)?;
        let message = format!("a container is not ready: {probe}");
        let fix = format!(
            "correct the application or its probe; `kubectl logs -n {} {} --all-containers`",
            self.namespace, self.name
        );
        Some(self.problem(Code::ContainerNotReady, Who::ApplicationTeam, &message, fix))
    }

    /// The text of the last Event about a container that does not start, if it has more than the reason.
    fn failure(&self, container: &str) -> Option<&'a str> {
        let failed = self.events.iter().filter(|event| {
            let reason = event["reason"].as_str().unwrap_or_default();
            FAILURE_REASONS.contains(&reason) && is_of(event, container)
        });
        let mut texts = failed.map(|event| {
            let message = text_of(event);
            message.strip_prefix("Error: ").unwrap_or(message)
        });
        texts.find(|text| !text.is_empty() && !is_pull(text))
    }

    /// A container that the kubelet or the container runtime refuses. The reason is empty if only Events are known.
    fn refused(&self, container: &Container<'_>, reason: &str, said: &str) -> Problem {
        let lower = said.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let of_events = reason.is_empty();
        let is_image = ["failed to pull image", "failed to apply default image tag"];
        if is_pull(reason)
            || (of_events && (has(&is_image) || lower.contains("pull policy of never")))
        {
            return self.image(container, reason, said);
        }
        let is_runtime = has(&["failed to create", "container create failed", "failed to start"]);
        if reason == "CreateContainerConfigError"
            || (of_events && !is_runtime && has(&CONFIGURATION_FAULTS))
        {
            return self.configuration(container, said);
        }
        self.not_started(container, reason, said)
    }

    fn configuration(&self, container: &Container<'_>, said: &str) -> Problem {
        let message = format!("{}: {said}", container.title);
        if said.contains("subPath") {
            let fix = "check on the node that the kubelet may reach the folder in the volume";
            return self.problem(Code::VolumeNotMounted, Who::ClusterAdministrator, &message, fix);
        }
        let lower = said.to_lowercase();
        let fix = if lower.contains("runasnonroot") || lower.contains("non-root policy") {
            "set securityContext.runAsUser to the number of a user other than 0".to_owned()
        } else {
            format!(
                "create the object in namespace {}, or correct its name in the pod",
                self.namespace
            )
        };
        self.problem(Code::ContainerConfig, Who::ApplicationTeam, &message, fix)
    }

    fn image(&self, container: &Container<'_>, reason: &str, said: &str) -> Problem {
        let image = container.status["image"].as_str().unwrap_or_default();
        let said = if said.is_empty() { reason } else { said };
        let message = match image {
            "" => format!("{}: {said}", container.title),
            image => format!("{}: image {image} cannot be pulled: {said}", container.title),
        };
        // A name may have any of these words in it.
        let lower = if image.is_empty() { said.to_owned() } else { said.replace(image, "") };
        let lower = lower.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let (who, fix) = if has(&["toomanyrequests", "rate limit"]) {
            (
                Who::ClusterAdministrator,
                "pull with an account (spec.imagePullSecrets), or through a mirror",
            )
        } else if has(&["x509", "no such host", "i/o timeout", "connection refused"]) {
            (
                Who::ClusterAdministrator,
                "make the registry reachable from the node, with a certificate that the node trusts",
            )
        } else if has(&["no match for platform", "no matching manifest"]) {
            (Who::ApplicationTeam, "use an image for the architecture of the node")
        } else if has(&["unauthorized", "authorization", "denied", "forbidden"]) {
            (
                Who::ApplicationTeam,
                "correct the name of the image, or add a pull secret to spec.imagePullSecrets",
            )
        } else if reason == "ErrImageNeverPull" || has(&["pull policy of never"]) {
            (Who::ApplicationTeam, "set imagePullPolicy to IfNotPresent")
        } else if said == reason {
            (
                Who::ApplicationTeam,
                "check the name of the image and spec.imagePullSecrets; no cause is reported",
            )
        } else if reason == "InvalidImageName"
            || has(&["not found", "manifest unknown", "invalid reference", "not exist"])
        {
            (Who::ApplicationTeam, "correct the name of the image")
        } else {
            (Who::ClusterAdministrator, "check the registry, and the disk of the node")
        };
        self.problem(Code::ImageNotPulled, who, &message, fix)
    }

    /// A container that the container runtime cannot create or start.
    fn not_started(&self, container: &Container<'_>, reason: &str, said: &str) -> Problem {
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        let message = format!("{} cannot be started{reason}{said}", container.title);
        let lower = message.to_lowercase();
        let is_hook = reason.contains("PostStartHook") || lower.contains("lifecycle hook");
        if is_hook || POD_FAULTS.iter().any(|words| lower.contains(words)) {
            let fix = if is_hook {
                "correct lifecycle.postStart of the container"
            } else if lower.contains("unable to hotplug") {
                "lower resources.limits.memory of the containers below the memory of the node"
            } else if lower.contains("blocked by policy") {
                "generate the pod's agent policy again for this cluster"
            } else {
                "correct the command of the container, or its image"
            };
            return self.problem(Code::ContainerNotStarted, Who::ApplicationTeam, &message, fix);
        }
        let code = match sandbox::cause(&said) {
            Code::SandboxFailed => Code::ContainerNotStarted,
            code => code,
        };
        self.problem(code, Who::ClusterAdministrator, &message, self.shim())
    }

    /// A container that ended with this state.
    fn ended(&self, container: &Container<'_>, last: &Value) -> Problem {
        let Container { title, name, status, .. } = container;
        let restarts = status["restartCount"].as_i64().unwrap_or_default();
        let said = last["message"].as_str().map(str::trim).filter(|said| !said.is_empty());
        let reason = last["reason"].as_str().unwrap_or_default();
        if matches!(reason, "StartError" | "ContainerCannotRun") {
            return self.not_started(container, reason, said.unwrap_or_default());
        }
        let times = match restarts {
            0 => String::new(),
            1 => ", 1 restart".to_owned(),
            _ => format!(", {restarts} restarts"),
        };
        if reason == "ContainerStatusUnknown" {
            let message = format!("the node lost {title}: {}", said.unwrap_or("no message"));
            let fix = "create the pod again, if no controller does";
            return self.problem(Code::PodEnded, Who::ClusterAdministrator, &message, fix);
        }
        if reason == "OOMKilled" {
            let message = format!("{title} needs more memory than it may have (OOMKilled{times})");
            let fix = format!("raise or set resources.limits.memory of container {name}");
            return self.problem(Code::GuestOutOfMemory, Who::ApplicationTeam, &message, fix);
        }
        let code = last["exitCode"].as_i64();
        let code = code.map_or_else(|| "an unknown code".to_owned(), |code| format!("code {code}"));
        let why = said.map(str::to_owned).or_else(|| self.probe(name, true));
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let message = format!("{title} exits with {code}{times}{why}");
        let is_new = status["state"]["terminated"].is_null();
        let fix = format!("read {}", self.logs(name, restarts > 0 && is_new));
        self.problem(Code::ContainerFails, Who::ApplicationTeam, &message, fix)
    }

    /// The last failed probe of a container; with `ends` only of a probe that ends it.
    fn probe(&self, container: &str, ends: bool) -> Option<String> {
        let failed = |event: &&&Value| {
            let message = text_of(event);
            let is_killed = event["reason"] == "Killing" && message.contains("probe");
            let is_failed =
                event["reason"] == "Unhealthy" && !(ends && message.starts_with("Readiness"));
            (is_failed || is_killed) && is_of(event, container)
        };
        let event = self.events.iter().find(failed)?;
        Some(text_of(event).trim().to_owned())
    }
}

/// The message of an Event.
fn text_of(event: &Value) -> &str {
    let message = event["message"].as_str().unwrap_or_default();
    message.trim_start_matches("(combined from similar events): ").trim_end()
}

/// Whether an Event is about a container, or does not say about which.
fn is_of(event: &Value, container: &str) -> bool {
    let field = event["involvedObject"]["fieldPath"].as_str().unwrap_or_default();
    field.is_empty() || container.is_empty() || field.contains(&format!("{{{container}}}"))
}
