//! The whole story on a simulated OpenShift cluster, on virtual time, with every fact checked.
//!
//! It does what an admin does, through a `kube::Client`, with the manifests of `examples/`; it looks
//! below the API only where an admin would open a shell on a node.
//! It decides nothing: the operator runs beside it, unchanged.

mod admin;
mod before;
mod error;
mod guest;
pub(crate) mod plain;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kata_api::{KataConfig, MachineConfig, conditions, names};
use kube::api::{Api, DeleteParams, PostParams};
use serde::de::DeserializeOwned;
use simcluster::cluster::Cluster;

use crate::story::{Story, span};
use admin::{Admin, Detail, SELECTED, condition, counts, is_ready};
use before::Inventory;
pub(crate) use error::WalkthroughError;
use error::refused;

const KATA_CONFIG: &str = include_str!("../../../examples/kataconfig.yaml");
const NAMESPACE: &str = include_str!("../../../examples/namespace.yaml");
const POD_REGULAR: &str = include_str!("../../../examples/pod-regular.yaml");
const POD_KATA: &str = include_str!("../../../examples/pod-kata.yaml");

/// How long the garbage collector takes at most, in cluster time.
const GARBAGE: Duration = Duration::from_secs(30);

fn example<T: DeserializeOwned>(name: &'static str, text: &str) -> Result<T, WalkthroughError> {
    serde_saphyr::from_str(text)
        .map_err(|source| WalkthroughError::Example { name, source: Box::new(source) })
}

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
    admin
        .story
        .line("A SIMULATED OpenShift cluster: 3 control-plane nodes, 3 workers, virtual time.")?;
    admin.story.line(
        "No virtual machine runs and nothing is measured; what pods answer comes from a model.",
    )?;
    admin.story.line(
        "It installs Kata on one worker, runs a pod with and without a sandbox, adds the other workers and removes Kata; this takes a second.",
    )?;
    admin.install_on_one().await?;
    admin.look_around().await?;
    admin.two_pods().await?;
    admin.the_others_join().await?;
    admin.delete_blocked().await?;
    admin.remove().await?;
    admin.nothing_left(&before).await?;
    Ok(admin.story.end("walkthrough")?)
}

impl<W: Write> Admin<'_, W> {
    async fn install_on_one(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("Label one worker and create the KataConfig")?;
        let node = self.label("worker-0").await?;
        let labelled = node.metadata.labels.unwrap_or_default().get(SELECTED).map(String::as_str)
            == Some("true");
        self.story.fact(labelled, "worker-0 is labelled kata=true")?;
        let config: KataConfig = example("kataconfig.yaml", KATA_CONFIG)?;
        let name = config.metadata.name.clone().unwrap_or_default();
        self.configs()
            .create(&PostParams::default(), &config)
            .await
            .map_err(refused(format!("to create KataConfig {name}")))?;
        self.story.fact(
            name == "cluster-kataconfig",
            "KataConfig cluster-kataconfig is created (examples/kataconfig.yaml)",
        )?;
        let took = self.follow(Detail::Steps, is_ready).await?;
        self.story.fact(
            took.is_some(),
            &format!(
                "it is Ready after {} of cluster time",
                took.map_or_else(|| "too much".to_owned(), span)
            ),
        )?;
        Ok(())
    }

    async fn look_around(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("What is there now")?;
        let config = self.config().await?;
        let nodes =
            config.as_ref().and_then(|config| config.status.clone()).unwrap_or_default().kata_nodes;
        self.story.fact(
            nodes.installed == ["worker-0"] && nodes.node_count == 1 && nodes.ready_node_count == 1,
            "KataConfig: 1 of 1 nodes installed, worker-0",
        )?;
        let pool = self.updated_pool().await?;
        let status = pool.status.clone().unwrap_or_default();
        let rendered = pool.spec.configuration.name.clone();
        self.story.fact(
            status.condition("Updated") == Some(true)
                && status.machine_count == 1
                && status.updated_machine_count == 1,
            &format!("MachineConfigPool kata-oc: {rendered}, 1/1 updated"),
        )?;
        let configs: Api<MachineConfig> = Api::all(self.client.clone());
        let machine_config = configs
            .get(names::MACHINE_CONFIG)
            .await
            .map_err(refused("to get the MachineConfig"))?;
        let merged =
            configs.get(&rendered).await.map_err(refused("to get the rendered MachineConfig"))?;
        self.story.fact(
            machine_config.spec.extensions == [names::EXTENSION]
                && merged.spec.extensions.contains(&names::EXTENSION.to_owned()),
            &format!(
                "MachineConfig {}: extensions [{}], rendered into it",
                names::MACHINE_CONFIG,
                names::EXTENSION
            ),
        )?;
        let drop_in = self.cluster.with(|sim, _now| {
            sim.world
                .hosts
                .get("worker-0")
                .and_then(|host| host.files.get("/etc/crio/crio.conf.d/50-kata").cloned())
        });
        let text = drop_in.unwrap_or_default();
        self.story.fact(
            text.contains("[crio.runtime.runtimes.kata]")
                && text.contains("/usr/bin/containerd-shim-kata-v2"),
            "worker-0:/etc/crio/crio.conf.d/50-kata holds the handler",
        )?;
        for line in text.lines() {
            self.story.line(&format!("  {line}"))?;
        }
        let class = self.runtime_class().await?.unwrap_or_default();
        let overhead = class.overhead.and_then(|overhead| overhead.pod_fixed).unwrap_or_default();
        let selector =
            class.scheduling.and_then(|scheduling| scheduling.node_selector).unwrap_or_default();
        let quantities: BTreeMap<&str, &str> =
            overhead.iter().map(|(key, quantity)| (key.as_str(), quantity.0.as_str())).collect();
        self.story.fact(
            class.handler == "kata"
                && quantities == BTreeMap::from([("cpu", "250m"), ("memory", "350Mi")])
                && selector.get(names::RUNTIME_LABEL).map(String::as_str) == Some("true"),
            &format!(
                "RuntimeClass kata: handler kata, overhead 250m/350Mi, nodes with {}=true",
                names::RUNTIME_LABEL
            ),
        )?;
        let order = self.cluster.with(|sim, _now| before::class_came_after_node(sim));
        self.story.fact(order, "RuntimeClass kata came only after worker-0 could serve it")?;
        let able = self.able_nodes().await?;
        self.story
            .fact(
                able == ["worker-0"],
                "only worker-0 carries that label; the other nodes were not touched",
            )
            .map_err(WalkthroughError::from)
    }

    async fn two_pods(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("The same pod twice, once with runtimeClassName kata")?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = example("namespace.yaml", NAMESPACE)?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(refused("to create test-kata"))?;
        let regular: Pod = example("pod-regular.yaml", POD_REGULAR)?;
        let sandboxed: Pod = example("pod-kata.yaml", POD_KATA)?;
        for pod in [&regular, &sandboxed] {
            self.pods()
                .create(&PostParams::default(), pod)
                .await
                .map_err(refused("to create a pod"))?;
        }
        let mut ready = BTreeMap::new();
        for pod in [guest::REGULAR, guest::SANDBOXED] {
            ready.insert(pod, self.pod_is_ready(pod).await?);
        }
        self.story.fact(ready.values().all(|ready| *ready), "both pods run on worker-0")?;
        let pod =
            self.pods().get(guest::SANDBOXED).await.map_err(refused("to get the sandboxed pod"))?;
        let overhead = pod.spec.and_then(|spec| spec.overhead).unwrap_or_default();
        self.story.fact(
            overhead.contains_key("memory"),
            "admission gave the sandboxed pod the class's overhead",
        )?;
        // A virtual machine's uptime proves nothing unless time passes.
        tokio::time::sleep_until(tokio::time::Instant::now() + Duration::from_secs(60)).await;
        let comparison = self.cluster.with(|sim, _now| guest::compare(sim));
        for line in comparison.table() {
            self.story.line(&line)?;
        }
        for (holds, text) in comparison.facts() {
            self.story.fact(holds, &text)?;
        }
        Ok(())
    }

    async fn the_others_join(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("Label the other two workers; they join one by one")?;
        let from = self.cluster.with(|sim, _now| sim.api.store.revision());
        self.label("worker-1").await?;
        self.label("worker-2").await?;
        let took = self
            .follow(Detail::Counts, |config| is_ready(config) && counts(config) == (3, 3))
            .await?;
        self.story.fact(
            took.is_some(),
            &format!(
                "3 of 3 nodes are ready after {}",
                took.map_or_else(|| "too long".to_owned(), span)
            ),
        )?;
        let peak = self.cluster.with(|sim, _now| before::most_unavailable_workers(sim, from));
        self.story.fact(peak == Some(1), "never was more than one worker unavailable")?;
        let restarts = self.restarts(guest::SANDBOXED).await?;
        self.story.fact(restarts == 0, "the sandboxed pod on worker-0 was not disturbed")?;
        Ok(())
    }

    async fn delete_blocked(&mut self) -> Result<(), WalkthroughError> {
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
        self.story.line(&message)?;
        let (status, reason, _) = condition(config.as_ref(), conditions::IN_PROGRESS);
        self.story.fact(
            status == "False" && reason == conditions::in_progress::BLOCKED_BY_EXISTING_KATA_PODS,
            "InProgress says False/BlockedByExistingKataPods, as scripts expect",
        )?;
        let on_kata = self.cluster.with(|sim, _now| before::nodes_on_pool_config(sim));
        self.story.fact(on_kata == 3, "all three workers still have the runtime")?;
        Ok(())
    }

    async fn remove(&mut self) -> Result<(), WalkthroughError> {
        self.story.chapter("Delete the pod; the removal goes on by itself")?;
        let from = self.cluster.with(|sim, _now| sim.api.store.revision());
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
        let peak = self.cluster.with(|sim, _now| before::most_unavailable_workers(sim, from));
        self.story.fact(peak == Some(1), "again never more than one worker was unavailable")?;
        let degraded = self.cluster.with(|sim, _now| before::ever_degraded(sim, from));
        self.story.fact(!degraded, "no node was ever Degraded")?;
        Ok(())
    }

    async fn nothing_left(&mut self, before: &Inventory) -> Result<(), WalkthroughError> {
        self.story.chapter("Nothing is left")?;
        // The pool's rendered configurations go with it, as soon as the garbage collector has seen it.
        tokio::time::sleep_until(tokio::time::Instant::now() + GARBAGE).await;
        let after = self.cluster.with(|sim, _now| Inventory::take(sim));
        for difference in before.differences(&after) {
            self.story.line(&format!("left: {difference}"))?;
        }
        let differences = before.differences(&after).count();
        self.story.fact(
            differences == 0,
            &format!("objects, node labels and annotations, taints and host files are as before ({} compared)", before.len()),
        )?;
        Ok(())
    }
}
