//! The probes of a node: two Jobs that differ in the RuntimeClass and in nothing else; and what they share with the
//! Job of `--host`.
//!
//! A Job is killed after its deadline and vanishes some time after its end, whether or not this program
//! still lives.

use std::time::Duration;

use jiff::Timestamp;
use kata_api::probe::ProbeFacts;
use kata_api::{Code, names};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::compare::{Obstacle, Outcome};
use crate::api::{Api, Read, Scope, Trouble};
use crate::arguments::VerifyArguments;
use crate::commands::why::sandbox;
use crate::failure::Failure;
use crate::resource::{EVENTS, JOBS, PODS, Resource};
use crate::settings::Now;

/// The label of all probes; its value is the run.
const RUN: &str = "kata-operator.dev/verify";
/// The label with the node.
const NODE: &str = "kata-operator.dev/verify-node";
/// How often the probes are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// How long a probe lives longer than we wait for it, in seconds of the cluster, whose clock may be faster than
/// ours. It is deleted when we are done: this is for when we cannot.
pub(super) const GRACE: u64 = 300;
/// After how many seconds a Job that has ended vanishes by itself.
const VANISH: u64 = 60;
/// What keeps a sandbox from being made until somebody acts.
const LASTING: [Code; 4] = [
    Code::HandlerNotConfigured,
    Code::VirtualizationMissing,
    Code::GuestImageMissing,
    Code::FeatureUnsupported,
];

/// One run of `verify`.
pub(super) struct Run<'a> {
    image: &'a str,
    class: &'a str,
    pub(super) namespace: &'a str,
    timeout: Duration,
    now: &'a Now,
    id: String,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        image: &'a str,
        class: &'a str,
        namespace: &'a str,
        arguments: &VerifyArguments,
        now: &'a Now,
    ) -> Self {
        let timeout = arguments.timeout.max(Duration::from_secs(5));
        // Two runs at the same time must not delete each other's probes.
        let id = format!("{:x}-{:x}", now().as_millisecond(), std::process::id());
        Self { image, class, namespace, timeout, now, id }
    }

    /// Runs both probes on a node.
    pub(super) async fn probe(&self, api: &Api, node: &str) -> Result<Outcome, Failure> {
        for sandboxed in [true, false] {
            let what = format!("run a probe on node {node}");
            let mut spec = self.pod_spec(node);
            if sandboxed {
                spec["runtimeClassName"] = json!(self.class);
            }
            let body = self.job(if sandboxed { "sandboxed" } else { "regular" }, node, &spec);
            let path = JOBS.path(Some(self.namespace));
            match api.write(&what, http::Method::POST, &path, None, &body).await {
                Ok(_) => {}
                Err(Trouble::Status(status)) if status.code == 403 => {
                    api.note("create", &JOBS.qualified(), Some(self.namespace));
                    let text = format!(
                        "the probes cannot be run: you may not create {} in namespace {}",
                        JOBS.qualified(),
                        self.namespace
                    );
                    let trouble = Some(Obstacle::new(Code::PermissionMissing, text));
                    return Ok(Outcome { trouble, ..Outcome::default() });
                }
                Err(trouble) => return Err(trouble.failure(&what)),
            }
        }
        let end = Instant::now() + self.timeout;
        let mut outcome = Outcome::default();
        while outcome.sandboxed.is_none() || outcome.regular.is_none() {
            let next = Instant::now() + LOOK;
            tokio::time::sleep_until(next).await;
            self.look(api, node, &mut outcome).await?;
            let hopeless = outcome
                .trouble
                .as_ref()
                .is_some_and(|trouble| trouble.lasting || outcome.regular.is_some());
            if hopeless || Instant::now() >= end {
                break;
            }
        }
        Ok(outcome)
    }

    /// The pods of this run on a node.
    pub(super) async fn pods(&self, api: &Api, node: &str) -> Result<Read<Vec<Value>>, Failure> {
        let labels = format!("{RUN}={},{NODE}={}", self.id, label(node));
        let scope = Scope { labels: Some(&labels), ..Scope::of(self.namespace) };
        api.list(PODS, scope).await
    }

    /// The objects of this run.
    pub(super) async fn list(
        &self,
        api: &Api,
        kind: Resource,
    ) -> Result<Read<Vec<Value>>, Failure> {
        let labels = format!("{RUN}={}", self.id);
        api.list(kind, Scope { labels: Some(&labels), ..Scope::of(self.namespace) }).await
    }

    async fn look(&self, api: &Api, node: &str, outcome: &mut Outcome) -> Result<(), Failure> {
        let Read::Known(pods) = self.pods(api, node).await? else {
            let text =
                format!("the probes cannot be seen: you may not list pods in {}", self.namespace);
            outcome.trouble = Some(Obstacle::new(Code::PermissionMissing, text));
            return Ok(());
        };
        for pod in &pods {
            let sandboxed = pod["spec"]["runtimeClassName"].is_string();
            let known = if sandboxed { &outcome.sandboxed } else { &outcome.regular };
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if known.is_some() {
                continue;
            }
            if let Some(facts) = self.answer(api, pod, name).await? {
                if sandboxed {
                    outcome.pod_age_seconds = age(pod, (self.now)());
                    outcome.sandboxed = Some(facts);
                    outcome.trouble = None;
                } else {
                    outcome.regular = Some(facts);
                }
            } else if sandboxed {
                outcome.trouble = self.trouble(api, pod, name, node).await?;
            }
        }
        Ok(())
    }

    /// What a probe printed, if it has.
    async fn answer(
        &self,
        api: &Api,
        pod: &Value,
        name: &str,
    ) -> Result<Option<ProbeFacts>, Failure> {
        if !matches!(pod["status"]["phase"].as_str(), Some("Running" | "Succeeded")) {
            return Ok(None);
        }
        let path = format!("{}/log", PODS.object(Some(self.namespace), name));
        match api.text("read the probe's answer", &path).await {
            Ok(text) => Ok(text
                .lines()
                .filter_map(|line| serde_json::from_str::<ProbeFacts>(line).ok())
                .find(|facts| !facts.boot_id.is_empty())),
            Err(Trouble::Status(status)) if status.code == 403 => Err(Failure::Forbidden(format!(
                "cannot read the probe's answer: you may not get pods/log in namespace {}",
                self.namespace
            ))),
            // It has not started, or the node is away for a moment.
            Err(Trouble::Status(_)) => Ok(None),
            Err(trouble) => Err(trouble.failure("read the probe's answer")),
        }
    }

    /// Why the sandboxed probe will not come to run.
    async fn trouble(
        &self,
        api: &Api,
        pod: &Value,
        name: &str,
        node: &str,
    ) -> Result<Option<Obstacle>, Failure> {
        if let Some(message) = unschedulable(pod) {
            let text = format!("{node} takes no sandboxed pod: {message}");
            return Ok(Some(Obstacle::new(Code::ProbeFailed, text)));
        }
        let fields = format!("involvedObject.name={name}");
        let scope = Scope { fields: Some(&fields), ..Scope::of(self.namespace) };
        let events = api.list::<Value>(EVENTS, scope).await?;
        let causes = sandbox::of_events(events.items(), pod, name);
        Ok(causes.first().map(|problem| Obstacle {
            code: Code::ProbeFailed,
            message: format!("{} ({})", problem.message, problem.id),
            lasting: LASTING.iter().any(|code| code.entry().code == problem.id),
        }))
    }

    /// What all probes have in common.
    pub(super) fn pod_spec(&self, node: &str) -> Value {
        json!({
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65_532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [node]},
                ]}],
            }}},
            "containers": [{
                "name": "probe",
                "image": self.image,
                "command": ["kata-operator", "probe", "--hold", self.seconds().to_string()],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": true,
                },
            }],
        })
    }

    /// How long a probe lives at most.
    fn seconds(&self) -> u64 {
        self.timeout.as_secs().saturating_add(GRACE)
    }

    fn metadata(&self, role: &str, node: &str) -> Value {
        json!({
            "generateName": format!("kata-verify-{role}-"),
            "namespace": self.namespace,
            "labels": self.labels(node),
        })
    }

    fn labels(&self, node: &str) -> Value {
        json!({
            RUN: self.id,
            NODE: label(node),
            names::PART_OF: names::PRODUCT,
            "app.kubernetes.io/component": "probe",
        })
    }

    /// A Job with this pod.
    pub(super) fn job(&self, role: &str, node: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self.metadata(role, node),
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": self.seconds(),
                "ttlSecondsAfterFinished": VANISH,
                "template": {"metadata": {"labels": self.labels(node)}, "spec": spec},
            },
        })
    }

    /// The pod without a Job.
    pub(super) fn pod(&self, role: &str, node: &str, mut spec: Value) -> Value {
        spec["activeDeadlineSeconds"] = json!(self.seconds());
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(role, node), "spec": spec,
        })
    }

    /// Deletes the Jobs or pods of this run, but for those of the nodes that are kept.
    pub(super) async fn clean(
        &self,
        api: &Api,
        kind: Resource,
        kept: &[String],
    ) -> Result<(), Failure> {
        let Read::Known(objects) = self.list(api, kind).await? else { return Ok(()) };
        let kept: Vec<String> = kept.iter().map(|node| label(node)).collect();
        for object in objects {
            let node = object["metadata"]["labels"][NODE].as_str().unwrap_or_default();
            if kept.iter().any(|kept| kept == node) {
                continue;
            }
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let what = format!("delete {} {name}", kind.qualified());
            let path =
                format!("{}?propagationPolicy=Background", kind.object(Some(self.namespace), name));
            match api.write(&what, http::Method::DELETE, &path, None, &Value::Null).await {
                Ok(_) => {}
                Err(Trouble::Status(status)) if status.code == 404 => {}
                Err(trouble) => return Err(trouble.failure(&what)),
            }
        }
        Ok(())
    }
}

/// How old a pod is, in seconds.
fn age(pod: &Value, now: Timestamp) -> f64 {
    let created = pod["metadata"]["creationTimestamp"].as_str();
    let created: Option<Timestamp> = created.and_then(|text| text.parse().ok());
    created.map_or(0.0, |created| now.duration_since(created).as_secs_f64())
}

/// A node's name as the value of a label, which is shorter than a name may be.
fn label(node: &str) -> String {
    let start = node.len().saturating_sub(63);
    let short: String = node.chars().skip(start).collect();
    short.trim_matches(['-', '.']).to_owned()
}

fn unschedulable(pod: &Value) -> Option<&str> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled")?;
    (scheduled["reason"] == "Unschedulable")
        .then(|| scheduled["message"].as_str().unwrap_or_default())
}
