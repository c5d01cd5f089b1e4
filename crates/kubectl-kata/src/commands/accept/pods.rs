//! The pods of a run: what they are, and how a sandboxed and an ordinary one on the node differ.

use kata_api::names;
use kata_api::probe::ProbeFacts;
use kata_manifests::manifests;
use serde_json::{Value, json};

use super::belongings::{self, NAME};
use super::course::{Course, Stop, until};
use super::installation::amounts;
use crate::Context;
use crate::api::{Scope, Trouble};
use crate::commands::verify;
use crate::failure::Failure;
use crate::resource::{NODES, PODS};

/// The pods, and their container.
pub(super) const SANDBOX: &str = "sandbox";
pub(super) const ORDINARY: &str = "ordinary";
const ELSEWHERE: &str = "elsewhere";
const CONTAINER: &str = "main";
/// How much of a boot ID is shown.
pub(super) const SHOWN: usize = 40;
/// What a kubelet says of a container that will not start without help.
const LASTING: [&str; 4] =
    ["ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CrashLoopBackOff"];

impl Course<'_> {
    /// Runs them, of a class.
    pub(super) async fn run_pods(
        &mut self,
        class: &Value,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Stop> {
        self.begin("pods", "Run a sandboxed and an ordinary pod".to_owned(), context);
        let name = class["metadata"]["name"].as_str().unwrap_or_default();
        let nodes = context.api.list::<Value>(NODES, Scope::default()).await?;
        let names = nodes.items().iter().filter(|node| is_ready(node));
        let names = names.filter_map(|node| node["metadata"]["name"].as_str());
        let other = names.into_iter().find(|name| *name != self.node);
        let image = self.environment.operator_image.clone();
        let image = image.as_deref().unwrap_or(manifests::UNPUBLISHED);
        let pods = [
            Some(pod(SANDBOX, image, Some(name), None)),
            Some(pod(ORDINARY, image, None, Some(self.node))),
            other.map(|other| pod(ELSEWHERE, image, Some(name), Some(other))),
        ];
        for pod in pods.iter().flatten() {
            belongings::create_pod(pod, context).await?;
        }
        let node = context.api.get::<Value>(NODES, None, self.node).await?.known().flatten();
        let node = node.unwrap_or_default()["status"]["nodeInfo"]["bootID"].take();
        let node = node.as_str().unwrap_or_default();
        for pod in [SANDBOX, ORDINARY] {
            if self.runs(pod, context).await? {
                self.look_at_boot_id(pod, node, context).await?;
            }
        }
        let sandbox = read_pod(SANDBOX, context).await?.unwrap_or_default();
        let (has, wanted) = (&sandbox["spec"]["overhead"], &class["overhead"]["podFixed"]);
        self.expect("pod sandbox has the overhead of its class", amounts(has), has == wanted);
        self.stays_pending(other.is_some(), context).await
    }

    /// Whether a pod runs on the node.
    async fn runs(&mut self, name: &str, context: &mut Context<'_, '_>) -> Result<bool, Stop> {
        let what = format!("pod {name} to run");
        let found = until(&what, context, async |context| {
            let found = read_pod(name, context).await?;
            Ok(found.filter(|found| found["status"]["phase"] == "Running" || is_stuck(found)))
        })
        .await?;
        let found = match found {
            Some(found) => Some(found),
            None => read_pod(name, context).await?,
        };
        let is_running = found.as_ref().is_some_and(|found| found["status"]["phase"] == "Running");
        let place = found.as_ref().and_then(|found| found["spec"]["nodeName"].as_str());
        let seen = match place.filter(|_| is_running) {
            Some(node) => format!("it runs on {node}"),
            None => describe(found.as_ref()),
        };
        let holds = is_running && place == Some(self.node);
        self.expect(format!("pod {name} runs on {}", self.node), seen, holds);
        Ok(is_running)
    }

    async fn look_at_boot_id(
        &mut self,
        name: &str,
        node: &str,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Stop> {
        let what = format!("the boot ID that pod {name} sees");
        let found = until(&what, context, async |context| boot_id(name, context).await).await?;
        let is_own = name == SANDBOX;
        let expected = if is_own { "a boot ID of its own" } else { "the node's boot ID" };
        let holds = found.as_ref().is_some_and(|found| (found == node) != is_own);
        let found = found.unwrap_or_else(|| "no answer".to_owned());
        let [found, node] = [&*found, node].map(|text| verify::short(text, SHOWN));
        let seen = format!("{found}, the node has {node}");
        self.expect(format!("pod {name} has {expected}"), seen, holds);
        Ok(())
    }

    /// Whether no other node takes a sandboxed pod.
    async fn stays_pending(
        &mut self,
        is_there: bool,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Stop> {
        let expected =
            "a sandboxed pod for another node stays Pending, by the class's node selector";
        if !is_there {
            self.skip(expected, "there is no other node that is Ready");
            return Ok(());
        }
        let unschedulable = until("the scheduler's answer", context, async |context| {
            let found = read_pod(ELSEWHERE, context).await?;
            Ok(found.filter(|found| {
                let conditions = found["status"]["conditions"].as_array();
                conditions.into_iter().flatten().any(|it| it["reason"] == "Unschedulable")
            }))
        })
        .await?;
        let seen = describe(read_pod(ELSEWHERE, context).await?.as_ref());
        // A node that is full would be another reason.
        let holds = unschedulable.is_some() && seen.contains("didn't match Pod's node");
        self.expect(expected, seen, holds);
        Ok(belongings::delete_pod(ELSEWHERE, context).await?)
    }

    /// Expects that a pod still runs, and that its container never began anew.
    pub(super) async fn expect_undisturbed(
        &mut self,
        name: &str,
        expected: &str,
        context: &Context<'_, '_>,
    ) -> Result<(), Stop> {
        let pod = read_pod(name, context).await?.unwrap_or_default();
        let restarts = &container(&pod)["restartCount"];
        let holds = pod["status"]["phase"] == "Running" && *restarts == 0;
        self.expect(expected, format!("{}, {restarts} restarts", describe(Some(&pod))), holds);
        Ok(())
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// What is said of the container; sidecars may stand beside it.
fn container(pod: &Value) -> Value {
    let statuses = pod["status"]["containerStatuses"].as_array();
    let found = statuses.into_iter().flatten().find(|it| it["name"] == CONTAINER);
    found.cloned().unwrap_or_default()
}

/// Whether it will not start without help.
fn is_stuck(pod: &Value) -> bool {
    let container = container(pod);
    let reason = container["state"]["waiting"]["reason"].as_str().unwrap_or_default();
    pod["status"]["phase"] == "Failed" || LASTING.contains(&reason)
}

pub(super) async fn read_pod(
    name: &str,
    context: &Context<'_, '_>,
) -> Result<Option<Value>, Failure> {
    Ok(context.api.get::<Value>(PODS, Some(NAME), name).await?.known().flatten())
}

/// The boot ID that a pod has printed when it began.
async fn boot_id(name: &str, context: &Context<'_, '_>) -> Result<Option<String>, Failure> {
    let path = format!("{}/log?container={CONTAINER}", PODS.object(Some(NAME), name));
    match context.api.text(&format!("read the log of pod {name}"), &path).await {
        Ok(text) => {
            let facts =
                text.lines().filter_map(|line| serde_json::from_str::<ProbeFacts>(line).ok());
            Ok(facts.map(|facts| facts.boot_id).find(|boot_id| !boot_id.is_empty()))
        }
        // It has not started, or the node is away for a moment.
        Err(Trouble::Status(status)) if status.code != 403 => Ok(None),
        Err(trouble) => Err(trouble.failure(&format!("read the log of pod {name}"))),
    }
}

/// The state of a pod in a few words, and why it does not run.
pub(super) fn describe(pod: Option<&Value>) -> String {
    let Some(pod) = pod else { return "there is no such pod".to_owned() };
    let phase = pod["status"]["phase"].as_str().unwrap_or("no phase").to_owned();
    let container = container(pod);
    let waiting = &container["state"]["waiting"];
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut conditions = conditions.filter(|condition| condition["status"] != "True");
    let words = [&waiting["reason"], &waiting["message"]].map(|it| it.as_str().unwrap_or_default());
    let why = match words {
        ["", ""] => conditions.find_map(|it| it["message"].as_str()).map(str::to_owned),
        words => Some(words.join(" ").trim().to_owned()),
    };
    match why {
        Some(why) if phase != "Running" => format!("{phase}: {why}"),
        _ => phase,
    }
}

/// A pod of the operator's image that does nothing for longer than the proof takes. A namespace with Pod Security `restricted`
/// takes it, and the user's ID is left to the image or to OpenShift.
fn pod(name: &str, image: &str, class: Option<&str>, node: Option<&str>) -> Value {
    let mut spec = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 0,
        // The node may be of the control plane, or have taints of its own.
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": CONTAINER,
            "image": image,
            "command": ["kata-operator", "probe", "--hold", "86400"],
            // Policies of a cluster and quotas ask for limits.
            "resources": {
                "requests": {"cpu": "10m", "memory": "16Mi"},
                "limits": {"cpu": "100m", "memory": "64Mi"},
            },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
            },
        }],
    });
    if let Some(class) = class {
        spec["runtimeClassName"] = json!(class);
    }
    if let Some(node) = node {
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [node]},
            ]}],
        }}});
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAME,
            "labels": {names::ACCEPT_LABEL: "pod", "sidecar.istio.io/inject": "false"},
        },
        "spec": spec,
    })
}
