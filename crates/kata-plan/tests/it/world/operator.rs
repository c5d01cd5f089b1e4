//! What the operator's shell does, in one piece: it reads what the decision asks for, decides, and writes.
//! Every pass is checked against the promises.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kata_api::KataNode;
use kata_plan::{
    Decision, Freshness, JobObjects, Kind, MonitorObjects, Need, NodeFacts, ObjectRef, Observed,
    PodScope, Snapshot, UnreadableObject, decide, needs, validate,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::World;

impl World {
    /// What the operator's shell does before it decides.
    pub(crate) fn observe(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            now: self.now,
            server_ahead: self.server_ahead,
            freshness: Freshness::Cached,
            options: self.options.clone(),
            configs: self.typed(Kind::KataConfig).known().unwrap().clone(),
            nodes: self
                .typed::<Node>(Kind::Node)
                .map(|nodes| nodes.iter().map(|node| Arc::new(NodeFacts::from(node))).collect()),
            pools: self.typed(Kind::MachineConfigPool),
            machine_configs: BTreeMap::new(),
            unreadable: self
                .broken
                .iter()
                .filter_map(|(kind, name)| {
                    let object = self.get(*kind, name)?;
                    let metadata = &object["metadata"];
                    Some(UnreadableObject {
                        object: ObjectRef::new(*kind, name, metadata["uid"].as_str()),
                        created: metadata["creationTimestamp"].as_str()?.parse().ok(),
                        error: "missing field `spec`".to_owned(),
                    })
                })
                .collect(),
            feature_gates: self.config_map("osc-feature-gates"),
            image_mode: self.config_map("layered-image-deploy-cm"),
            container_runtime_configs: self.typed(Kind::ContainerRuntimeConfig),
            runtime_classes: self.typed(Kind::RuntimeClass),
            kata_nodes: self
                .typed::<KataNode>(Kind::KataNode)
                .map(|list| list.into_iter().map(Arc::new).collect()),
            monitor: MonitorObjects {
                daemon_set: self.single(Kind::DaemonSet),
                constraints: self
                    .constraints_served
                    .then(|| self.single(Kind::SecurityContextConstraints)),
            },
            jobs: JobObjects::new(
                self.typed::<Job>(Kind::Job)
                    .map(|jobs| jobs.iter().filter_map(validate::node_job).collect()),
                self.typed::<Pod>(Kind::Pod)
                    .map(|pods| pods.iter().filter_map(validate::job_pod).collect()),
            ),
            pods: BTreeMap::new(),
            drain_blockers: BTreeMap::new(),
            namespaces: BTreeMap::new(),
        };
        for round in 0.. {
            assert!(round < 8, "needs never end: {:?}", needs(&snapshot));
            let wanted = needs(&snapshot);
            if wanted.is_empty() {
                break;
            }
            for need in wanted {
                self.read(need, &mut snapshot);
            }
        }
        snapshot
    }

    /// The data of a ConfigMap in the operator's namespace.
    fn config_map(&self, name: &str) -> Observed<Option<BTreeMap<String, String>>> {
        if self.unreadable.contains(name) {
            return Observed::unknown(name, "the server is currently unable");
        }
        let name = format!("openshift-sandboxed-containers-operator/{name}");
        Observed::Known(
            self.get(Kind::ConfigMap, &name)
                .map(|object| serde_json::from_value(object["data"].clone()).unwrap()),
        )
    }

    fn read(&self, need: Need, snapshot: &mut Snapshot) {
        match need {
            Need::Objects | Need::Quorum => {
                snapshot.freshness = match need {
                    Need::Objects => Freshness::Objects,
                    _ => Freshness::Quorum,
                };
                snapshot.pods.clear();
                snapshot.drain_blockers.clear();
            }
            Need::MachineConfig { name } => {
                let read = if self.unreadable.contains(&name) {
                    Observed::unknown(format!("MachineConfig {name}"), "timeout")
                } else {
                    Observed::Known(
                        self.get(Kind::MachineConfig, &name)
                            .map(|object| Deserialize::deserialize(object).unwrap()),
                    )
                };
                snapshot.machine_configs.insert(name, read);
            }
            Need::Pods { scope, classes } => {
                let read = self.typed::<Pod>(Kind::Pod).map(|pods| {
                    pods.iter()
                        .filter_map(validate::sandboxed_pod)
                        .filter(|pod| classes.contains(&pod.runtime_class))
                        .filter(|pod| match &scope {
                            PodScope::Cluster => true,
                            PodScope::Node(node) => pod.node.as_ref() == Some(node),
                        })
                        .collect()
                });
                snapshot.pods.insert(scope, read);
            }
            Need::DrainBlockers { node } => {
                let read = self.typed::<Pod>(Kind::Pod).map(|pods| {
                    let there: Vec<Pod> = pods
                        .into_iter()
                        .filter(|pod| {
                            pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref())
                                == Some(&node)
                        })
                        .collect();
                    let budgets = self.typed(Kind::PodDisruptionBudget);
                    validate::drain_blockers(&there, budgets.known().unwrap())
                });
                snapshot.drain_blockers.insert(node, read);
            }
            Need::Namespace { name } => {
                let exists = !self.namespaces_gone.contains(&name);
                snapshot.namespaces.insert(name, Observed::Known(exists));
            }
        }
    }

    fn typed<T: DeserializeOwned>(&self, kind: Kind) -> Observed<Vec<T>> {
        if self.unreadable.contains(kind.plural()) {
            return Observed::unknown(kind.plural(), "the server is currently unable");
        }
        Observed::Known(
            self.objects
                .iter()
                .filter(|(key, _)| key.0 == kind && !self.broken.contains(*key))
                .map(|(_, object)| T::deserialize(object).unwrap())
                .collect(),
        )
    }

    fn single(&self, kind: Kind) -> Observed<Option<Value>> {
        self.typed::<Value>(kind)
            .map(|objects| objects.into_iter().next().map(validate::strip_server_fields))
    }

    /// A pass that is killed after so many of its writes, and before it writes any status.
    pub(crate) fn crashing_pass(&mut self, writes: usize) {
        let decision = decide(&self.observe());
        for step in decision.plan.steps.iter().take(writes) {
            self.execute(&step.action.request());
        }
    }

    /// One pass of the operator.
    pub(crate) fn pass(&mut self) -> Decision {
        let snapshot = self.observe();
        let decision = decide(&snapshot);
        assert_eq!(decision, decide(&reversed(&snapshot)), "the order of lists matters");
        let violations = kata_plan::invariants::check(&snapshot, &decision);
        assert!(violations.is_empty(), "{violations:#?}\n{}", crate::render::decision(&decision));
        crate::promises::forms::check(&snapshot, &decision);
        crate::kstatus::waits_have_reasons(&decision.report);
        for status in decision.report.status.iter().chain(&decision.report.other_configs) {
            crate::kstatus::check(status, &snapshot);
        }
        for event in &decision.report.events {
            crate::kstatus::named(event);
        }
        for step in &decision.plan.steps {
            self.execute(&step.action.request());
        }
        for status in decision.report.status.iter().chain(&decision.report.other_configs) {
            if status.needs_write
                && let Some(config) =
                    self.objects.get_mut(&(Kind::KataConfig, status.config.name.clone()))
            {
                config["status"] = json!(status.status);
            }
        }
        if decision.plan.only_reports() {
            let next = decide(&self.observe()).plan;
            assert!(
                next.steps.is_empty(),
                "follows from reports, after which no pass comes: {next:#?}"
            );
        }
        decision
    }
}

/// The same snapshot with every list turned round.
fn reversed(snapshot: &Snapshot) -> Snapshot {
    fn turn<T>(observed: Observed<Vec<T>>) -> Observed<Vec<T>> {
        observed.map(|mut list| {
            list.reverse();
            list
        })
    }
    let mut snapshot = snapshot.clone();
    snapshot.configs.reverse();
    snapshot.nodes = turn(snapshot.nodes);
    snapshot.pools = turn(snapshot.pools);
    snapshot.container_runtime_configs = turn(snapshot.container_runtime_configs);
    snapshot.runtime_classes = turn(snapshot.runtime_classes);
    snapshot.kata_nodes = turn(snapshot.kata_nodes);
    snapshot.jobs.jobs = turn(snapshot.jobs.jobs);
    snapshot.jobs.pods = turn(snapshot.jobs.pods);
    snapshot.pods = snapshot.pods.into_iter().map(|(scope, pods)| (scope, turn(pods))).collect();
    snapshot
}
