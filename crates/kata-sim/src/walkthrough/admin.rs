//! The walkthrough's admin: asks the API server, follows what the KataConfig says, and waits.
//!
//! It claims nothing; the chapters do.

use std::io::Write;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::{KataConfig, KataNode, MachineConfigPool, conditions, names};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::json;
use simcluster::cluster::Cluster;
use simcluster::world::Platform;

use super::error::{WalkthroughError, refused};
use crate::story::{Story, span};

/// The label that the example's KataConfig selects.
pub(super) const SELECTED: &str = "kata";
/// How long a chapter may take, in cluster time; far above what it takes.
const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
/// How often the walkthrough looks again at what it does not watch, in cluster time.
const LOOK: Duration = Duration::from_secs(1);

/// How much of what the KataConfig says is printed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Detail {
    /// Every change of the message.
    Steps,
    /// Changes of its first part, the counts of nodes.
    Counts,
}

/// The walkthrough's view of the cluster.
pub(super) struct Admin<'a, W> {
    pub(super) client: kube::Client,
    pub(super) cluster: &'a Cluster,
    pub(super) story: Story<W>,
    pub(super) start: tokio::time::Instant,
}

impl<W: Write> Admin<'_, W> {
    pub(super) fn configs(&self) -> Api<KataConfig> {
        Api::all(self.client.clone())
    }

    pub(super) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "test-kata")
    }

    pub(super) async fn label(&self, node: &str) -> Result<Node, WalkthroughError> {
        let patch = json!({"metadata": {"labels": {SELECTED: "true"}}});
        self.nodes()
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(refused(format!("to label {node}")))
    }

    /// The pool, once its own status has caught up with its nodes; the operator does not wait for that.
    pub(super) async fn updated_pool(&self) -> Result<MachineConfigPool, WalkthroughError> {
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            let pool = pools.get(names::POOL).await.map_err(refused("to get the pool kata-oc"))?;
            let updated = pool
                .status
                .as_ref()
                .is_some_and(|status| status.condition("Updated") == Some(true));
            if updated || tokio::time::Instant::now() > deadline {
                return Ok(pool);
            }
            tokio::time::sleep_until(tokio::time::Instant::now() + LOOK).await;
        }
    }

    /// What `kubectl get mcp,node` shows of the pool and of the first node, in one line.
    /// Empty where there are no pools.
    pub(super) async fn pool_and_node(&self) -> Result<String, WalkthroughError> {
        if self.cluster.with(|sim, _now| sim.world.platform) == Platform::Kubernetes {
            return Ok(String::new());
        }
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        let pool = pools.get_opt(names::POOL).await.map_err(refused("to get the pool kata-oc"))?;
        let pool = pool.map_or_else(
            || "none".to_owned(),
            |pool| {
                let status = pool.status.unwrap_or_default();
                let state = [("Updated", "updated"), ("Updating", "updating")]
                    .iter()
                    .find(|(condition, _)| status.condition(condition) == Some(true))
                    .map_or("new", |(_, state)| state);
                format!("{state} {}/{}", status.updated_machine_count, status.machine_count)
            },
        );
        let node = self.nodes().get("worker-0").await.map_err(refused("to get worker-0"))?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let cordoned = node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
        let node = [
            if ready { "Ready" } else { "NotReady" },
            if cordoned { ",SchedulingDisabled" } else { "" },
        ]
        .concat();
        Ok(format!("[pool {pool}, node {node}]"))
    }

    pub(super) async fn config(&self) -> Result<Option<KataConfig>, WalkthroughError> {
        self.configs().get_opt("cluster-kataconfig").await.map_err(refused("to get the KataConfig"))
    }

    pub(super) async fn runtime_class(&self) -> Result<Option<RuntimeClass>, WalkthroughError> {
        let classes: Api<RuntimeClass> = Api::all(self.client.clone());
        classes.get_opt("kata").await.map_err(refused("to get the RuntimeClass"))
    }

    pub(super) async fn able_nodes(&self) -> Result<Vec<String>, WalkthroughError> {
        let selector = format!("{}={}", names::RUNTIME_LABEL, names::RUNTIME_LABEL_VERIFIED);
        let nodes = self
            .nodes()
            .list(&ListParams::default().labels(&selector))
            .await
            .map_err(refused("to list nodes"))?;
        let katas: Api<KataNode> = Api::all(self.client.clone());
        let katas =
            katas.list(&ListParams::default()).await.map_err(refused("to list KataNodes"))?;
        let known = katas
            .items
            .iter()
            .filter(|node| node.status.as_ref().is_some_and(|status| status.ready == "True"))
            .count();
        let able: Vec<String> =
            nodes.items.into_iter().filter_map(|node| node.metadata.name).collect();
        Ok(if known == able.len() { able } else { Vec::new() })
    }

    pub(super) async fn pod_is_ready(&self, name: &str) -> Result<bool, WalkthroughError> {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while tokio::time::Instant::now() < deadline {
            let pod = self.pods().get(name).await.map_err(refused(format!("to get pod {name}")))?;
            let ready = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            if ready
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
            {
                return Ok(pod.spec.and_then(|spec| spec.node_name).as_deref() == Some("worker-0"));
            }
            tokio::time::sleep_until(tokio::time::Instant::now() + LOOK).await;
        }
        Ok(false)
    }

    pub(super) async fn restarts(&self, name: &str) -> Result<i32, WalkthroughError> {
        let pod = self.pods().get(name).await.map_err(refused(format!("to get pod {name}")))?;
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        Ok(statuses.iter().map(|status| status.restart_count).sum())
    }

    /// Prints what the KataConfig says until `done` holds; how long that took, `None` past the limit.
    pub(super) async fn follow(
        &mut self,
        detail: Detail,
        done: impl Fn(Option<&KataConfig>) -> bool,
    ) -> Result<Option<Duration>, WalkthroughError> {
        let begin = tokio::time::Instant::now();
        let mut stream = watcher(self.configs(), watcher::Config::default().timeout(60)).boxed();
        let mut said = String::new();
        let mut current = None;
        loop {
            let event = match tokio::time::timeout_at(begin + LIMIT, stream.next()).await {
                Err(_elapsed) => return Ok(None),
                Ok(None) => return Err(WalkthroughError::Watch),
                // The watcher starts anew by itself.
                Ok(Some(Err(_again))) => continue,
                Ok(Some(Ok(event))) => event,
            };
            match event {
                // Nothing is known until the list is complete.
                watcher::Event::Init => {
                    current = None;
                    continue;
                }
                watcher::Event::InitApply(config) => {
                    current = Some(config);
                    continue;
                }
                watcher::Event::Apply(config) => current = Some(config),
                watcher::Event::Delete(_) => current = None,
                watcher::Event::InitDone => {}
            }
            let (status, reason, message) = condition(current.as_ref(), conditions::READY);
            let says = match detail {
                Detail::Steps => message.clone(),
                Detail::Counts => message.split(';').next().unwrap_or_default().to_owned(),
            };
            if current.is_some() && !status.is_empty() && says != said {
                let (reason, message) = match detail {
                    // The message names the step; beside it, what the pool and the node themselves say.
                    Detail::Steps => {
                        (reason, format!("{message}  {}", self.pool_and_node().await?))
                    }
                    Detail::Counts => (reason, message),
                };
                self.story.line(&format!(
                    "+{:<7} Ready={status} {reason}: {message}",
                    span(self.start.elapsed())
                ))?;
                said = says;
            }
            if done(current.as_ref()) {
                return Ok(Some(begin.elapsed()));
            }
        }
    }
}

pub(super) fn condition(config: Option<&KataConfig>, type_: &str) -> (String, String, String) {
    config
        .and_then(|config| config.status.as_ref())
        .and_then(|status| status.conditions.iter().find(|condition| condition.type_ == type_))
        .map(|condition| {
            (condition.status.clone(), condition.reason.clone(), condition.message.clone())
        })
        .unwrap_or_default()
}

pub(super) fn is_ready(config: Option<&KataConfig>) -> bool {
    let current = config.is_some_and(|config| {
        config.status.as_ref().and_then(|status| status.observed_generation)
            == config.metadata.generation
    });
    current && condition(config, conditions::READY).0 == "True"
}

pub(super) fn counts(config: Option<&KataConfig>) -> (i64, i64) {
    config
        .and_then(|config| config.status.as_ref())
        .map(|status| (status.kata_nodes.node_count, status.kata_nodes.ready_node_count))
        .unwrap_or_default()
}
