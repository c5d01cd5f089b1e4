//! The story on a cluster without the Machine Config Operator: the same examples and the same session,
//! and what only that way of changing nodes can show: an upgrade under a running sandbox, and a node
//! whose container runtime does not come back.

use std::io::Write;
use std::sync::Arc;

use kata_api::kata_node::HostStatus;
use kata_api::{KataNode, conditions, names};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use simcluster::cluster::Cluster;
use simcluster::resource;
use simcluster::topology;
use simcluster::world::NodeFault;

use super::admin::{Admin, Detail, SELECTED, condition, counts, is_ready};
use super::before::Inventory;
use super::error::{WalkthroughError, refused};
use super::guest;
use crate::story::{Story, span};

/// The drop-in of the container runtime.
const DROP_IN: &str = "/etc/containerd/conf.d/60-kata-operator.toml";
/// Another payload.
const PAYLOAD: &str = "registry.example/kata-payload:4.2.0";

/// Runs the story; whether every fact held.
///
/// # Errors
/// If the story cannot go on.
pub(crate) async fn run<W: Write>(
    cluster: &Cluster,
    client: kube::Client,
    out: W,
) -> Result<bool, WalkthroughError> {
    let mut admin =
        Admin { client, cluster, story: Story::new(out), start: tokio::time::Instant::now() };
    let before = cluster.with(|sim, _now| Inventory::take(sim));
    admin.story.line(
        "A SIMULATED Kubernetes cluster: 3 control-plane nodes, 3 workers with containerd, virtual time.",
    )?;
    admin.story.line(
        "No virtual machine runs and nothing is measured; what pods answer comes from a model.",
    )?;
    admin.story.line(
        "It installs Kata, undoes a change that fails, upgrades beside a running sandbox and removes Kata; this takes a second.",
    )?;
    admin.install_on_one().await?;
    admin.what_jobs_did().await?;
    admin.two_pods().await?;
    admin.one_is_rolled_back().await?;
    admin.another_payload().await?;
    admin.deletion_waits().await?;
    admin.removal_completes().await?;
    admin.nothing_left(&before).await?;
    Ok(admin.story.end("walkthrough")?)
}

impl<W: Write> Admin<'_, W> {
    async fn what_jobs_did(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("What is there now")?;
        let text = self.file("worker-0", DROP_IN).unwrap_or_default();
        self.story.fact(
            text.contains("runtimes.kata]") && self.file("worker-1", DROP_IN).is_none(),
            &format!("worker-0:{DROP_IN} holds the handler, no other node has it"),
        )?;
        let class = self.runtime_class().await?.unwrap_or_default();
        let selector =
            class.scheduling.and_then(|scheduling| scheduling.node_selector).unwrap_or_default();
        self.story.fact(
            class.handler == "kata"
                && selector.get(names::RUNTIME_LABEL).map(String::as_str) == Some("true"),
            &format!("RuntimeClass kata: handler kata, nodes with {}=true", names::RUNTIME_LABEL),
        )?;
        let able = self.able_nodes().await?;
        self.story.fact(able == ["worker-0"], "only worker-0 carries that label")?;
        let jobs = self.cluster.with(|sim, _now| sim.api.list(&resource::JOBS));
        let pod = |job: &Value| job["spec"]["template"]["spec"].clone();
        let plain = jobs.iter().map(|job| pod(job)).all(|pod| {
            pod["automountServiceAccountToken"] == false
                && pod["containers"][0]["securityContext"]["privileged"] == false
        });
        self.story.fact(
            !jobs.is_empty() && plain,
            "Jobs did it: their pods are not privileged and have no API token",
        )?;
        let running = self.cluster.with(|sim, _now| running_agents(&sim.api.list(&resource::PODS)));
        self.story.fact(running == 0, "nothing of the operator runs on the nodes now")?;
        Ok(())
    }

    /// A file of a host.
    fn file(&self, host: &str, path: &str) -> Option<String> {
        self.cluster.with(|sim, _now| sim.world.hosts.get(host)?.files.get(path).cloned())
    }

    async fn one_is_rolled_back(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("Label the other two; the runtime of worker-1 does not come back")?;
        let fault = |cluster: &Cluster, fault: Option<NodeFault>| {
            cluster.with(|sim, _now| match fault {
                Some(fault) => topology::set_fault(sim, "worker-1", fault).is_ok(),
                None => topology::clear_fault(sim, "worker-1", None).is_ok(),
            })
        };
        let original = self.file("worker-1", "/etc/containerd/config.toml");
        let set = fault(self.cluster, Some(NodeFault::RuntimeFails));
        self.story.fact(set, "fault worker-1 runtime-fails")?;
        self.label("worker-1").await?;
        self.label("worker-2").await?;
        let took = self
            .follow(Detail::Counts, |config| {
                counts(config) == (3, 2) && condition(config, conditions::STALLED).0 == "True"
            })
            .await?;
        self.story.fact(took.is_some(), "worker-2 is ready all the same: 2 of 3")?;
        let config = self.config().await?;
        let (status, reason, message) = condition(config.as_ref(), conditions::DEGRADED);
        self.story.fact(
            status == "True" && reason == "NodeRolledBack" && message.contains("worker-1"),
            "Degraded names worker-1: its change was rolled back",
        )?;
        self.story.line(message.split(": cannot").next().unwrap_or_default())?;
        let back = self.file("worker-1", "/etc/containerd/config.toml");
        let node = self.kata_node("worker-1").await?;
        // What containerd itself answered after it.
        let runs = node.is_some_and(|host| host.handlers.iter().any(|name| name == "runc"));
        self.story.fact(
            back == original && self.file("worker-1", DROP_IN).is_none() && runs,
            "worker-1's containerd configuration is as before, byte for byte, and containerd runs",
        )?;
        fault(self.cluster, None);
        let nodes: Api<KataNode> = Api::all(self.client.clone());
        let retry = json!({"metadata": {"annotations": {names::RETRY_ANNOTATION: "1"}}});
        nodes
            .patch("worker-1", &PatchParams::default(), &Patch::Merge(retry))
            .await
            .map_err(refused("to annotate KataNode worker-1"))?;
        let took = self
            .follow(Detail::Counts, |config| is_ready(config) && counts(config) == (3, 3))
            .await?;
        self.story.fact(
            took.is_some(),
            "healed and annotated with kata-operator.dev/retry=1 it is ready: 3 of 3",
        )?;
        Ok(())
    }

    /// What the Jobs found and did on a node.
    async fn kata_node(&self, name: &str) -> Result<Option<Arc<HostStatus>>, WalkthroughError> {
        let nodes: Api<KataNode> = Api::all(self.client.clone());
        let node = nodes.get_opt(name).await.map_err(refused("to read a KataNode"))?;
        Ok(node.and_then(|node| node.status?.host))
    }

    async fn another_payload(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("Another payload while the sandboxed pod runs")?;
        let patch = json!({"spec": {"payload": {"image": PAYLOAD}}});
        self.configs()
            .patch("cluster-kataconfig", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(refused("to change the KataConfig"))?;
        let took = self.follow(Detail::Counts, |config| !is_ready(config)).await?;
        let done = self.follow(Detail::Counts, is_ready).await?;
        let mut everywhere = took.is_some() && done.is_some();
        for node in ["worker-0", "worker-1", "worker-2"] {
            let version = self.kata_node(node).await?.and_then(|host| host.kata_version.clone());
            everywhere &= version.is_some_and(|version| PAYLOAD.ends_with(&version));
        }
        self.story.fact(
            everywhere,
            &format!(
                "spec.payload.image is on all three nodes after {}",
                done.map_or_else(|| "too long".to_owned(), span)
            ),
        )?;
        let restarts = self.restarts(guest::SANDBOXED).await?;
        self.story.fact(restarts == 0, "the sandboxed pod on worker-0 was not disturbed")?;
        Ok(())
    }

    async fn deletion_waits(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("Delete the KataConfig while a sandboxed pod runs")?;
        self.configs()
            .delete("cluster-kataconfig", &DeleteParams::background())
            .await
            .map_err(refused("to delete the KataConfig"))?;
        self.follow(Detail::Counts, |config| {
            condition(config, conditions::DELETION_BLOCKED).0 == "True"
        })
        .await?;
        let config = self.config().await?;
        let (status, _, message) = condition(config.as_ref(), conditions::DELETION_BLOCKED);
        self.story.fact(
            status == "True" && message.contains("test-kata/example-net-tools-kata"),
            "DeletionBlocked names the pod test-kata/example-net-tools-kata",
        )?;
        let (status, reason, _) = condition(config.as_ref(), conditions::IN_PROGRESS);
        self.story.fact(
            status == "False" && reason == conditions::in_progress::BLOCKED_BY_EXISTING_KATA_PODS,
            "InProgress says False/BlockedByExistingKataPods, as scripts expect",
        )?;
        let still = ["worker-0", "worker-1", "worker-2"]
            .iter()
            .all(|node| self.file(node, DROP_IN).is_some());
        self.story.fact(still, "all three workers still have the runtime")?;
        Ok(())
    }

    async fn removal_completes(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("Delete the pod; the removal goes on by itself")?;
        let deleted = tokio::time::Instant::now();
        self.pods()
            .delete(guest::SANDBOXED, &DeleteParams::default())
            .await
            .map_err(refused("to delete the pod"))?;
        let took = self.follow(Detail::Counts, |config| config.is_none()).await?;
        self.story.fact(
            took.is_some(),
            &format!("the KataConfig is gone after {}", span(deleted.elapsed())),
        )?;
        let disturbed = self.cluster.with(|sim, _now| {
            sim.api.store.events_after(0).into_iter().flatten().any(|event| {
                event.resource == resource::NODES && event.current["spec"]["unschedulable"] == true
            })
        });
        self.story.fact(!disturbed, "no node was ever cordoned, drained or rebooted")?;
        let selected = self.cluster.with(|sim, _now| {
            sim.api.list(&resource::NODES).iter().any(|node| {
                node["metadata"]["labels"][SELECTED] == "true"
                    && node["metadata"]["labels"].get(names::CLAIM_LABEL).is_some()
            })
        });
        self.story.fact(!selected, "no node carries a label of the operator any more")?;
        Ok(())
    }
}

/// How many pods of the node agent are at work.
fn running_agents(pods: &[std::sync::Arc<Value>]) -> usize {
    pods.iter()
        .filter(|pod| {
            pod["metadata"]["labels"][names::node_job::COMPONENT_LABEL]
                == names::node_job::COMPONENT
                && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        })
        .count()
}
