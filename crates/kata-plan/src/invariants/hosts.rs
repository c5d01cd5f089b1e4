//! The promises where Jobs change the nodes.
//!
//! Like its parent it reads the snapshot and the plan alone, and shares no judgement with the decision.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kata_api::KataNode;
use kata_api::kata_node::JobOutcome;
use kata_api::names::{self, node_job};
use kata_api::node_task::{NodeAction, NodeTask, Outcome};
use serde_json::Value;

use super::{Checker, Property};
use crate::object::{Kind, ObjectRef};
use crate::plan::Action;
use crate::report::Decision;
use crate::snapshot::{Freshness, JobPod, NodeFacts, NodeJob, PodScope};

/// Whether a Job with this action changes its node.
fn changes(action: NodeAction) -> bool {
    matches!(action, NodeAction::Install | NodeAction::Remove)
}

/// What a new Job is for.
struct Made<'a> {
    object: &'a ObjectRef,
    body: &'a Value,
    node: &'a str,
    action: Option<NodeAction>,
}

impl<'a> Made<'a> {
    fn of(action: &'a Action) -> Option<Self> {
        let Action::Apply { object, body } = action else { return None };
        let annotations = &body["metadata"]["annotations"];
        (object.kind == Kind::Job).then(|| Self {
            object,
            body,
            node: annotations[node_job::NODE].as_str().unwrap_or_default(),
            action: annotations[node_job::ACTION].as_str().and_then(NodeAction::parse),
        })
    }
}

impl<'a> Checker<'a> {
    fn all_jobs(&self) -> &'a [NodeJob] {
        self.snapshot.jobs.jobs.known().map_or(&[], Vec::as_slice)
    }

    /// The unfinished Jobs of a node, and those that are gone and whose pods are not.
    fn busy(&self, node: &str) -> Vec<&'a str> {
        let jobs = self.all_jobs().iter().filter(|job| job.node == node && job.end.is_none());
        let pods = self.snapshot.jobs.pods.known().into_iter().flatten();
        let pods = pods.filter(|pod| pod.node == node && !pod.finished);
        jobs.map(|job| job.name.as_str()).chain(pods.map(|pod| pod.name.as_str())).collect()
    }

    /// All promises about Jobs.
    pub(super) fn jobs(&mut self, decision: &Decision) {
        let made: Vec<Made<'_>> =
            decision.plan.steps.iter().filter_map(|step| Made::of(&step.action)).collect();
        let mut nodes = BTreeSet::new();
        for job in &made {
            let once = nodes.insert(job.node);
            let busy = self.busy(job.node);
            self.expect(Property::OneJob, once && busy.is_empty(), || {
                format!("{} is made beside {busy:?}", job.object)
            });
            self.job(job);
        }
        self.rollout(decision, &made);
    }

    fn job(&mut self, job: &Made<'_>) {
        let object = job.object;
        let Some(action) = job.action else {
            return self.expect(Property::Fields, false, || format!("{object} has no action"));
        };
        let Some(facts) = self.node(job.node) else {
            return self.expect(Property::Unknown, false, || format!("{object}: no such node"));
        };
        self.unprivileged(job, action);
        let fresh = !changes(action) || self.snapshot.freshness >= Freshness::Quorum;
        self.expect(Property::Unknown, fresh, || format!("{object} on reads that may be old"));
        let label = facts.labels.get(names::RUNTIME_LABEL).map(String::as_str);
        let open = label == Some(names::RUNTIME_LABEL_VERIFIED);
        // There the kubelet goes with its container runtime, and would fail the pods that select the label.
        let stays =
            action == NodeAction::Install && facts.container_runtime_version.contains("-k3s");
        if changes(action) {
            let claimed = facts.labels.contains_key(names::CLAIM_LABEL);
            self.expect(
                Property::Window,
                (!open || stays) && (claimed || action == NodeAction::Remove),
                || format!("{object} changes a node that new pods can come to"),
            );
        }
        if action == NodeAction::Remove {
            let node = facts.name.clone();
            let pods =
                self.pods(&PodScope::Node(node.clone())).or_else(|| self.pods(&PodScope::Cluster));
            let free = pods
                .as_ref()
                .is_some_and(|pods| pods.iter().all(|pod| pod.node.as_deref() != Some(&node)));
            self.expect(Property::RunningPods, free, || {
                format!("{object} removes the runtime under {pods:?}")
            });
        }
    }

    /// A pod that may change a node has no token, and nothing that it does not need.
    fn unprivileged(&mut self, job: &Made<'_>, action: NodeAction) {
        let object = job.object;
        let pod = &job.body["spec"]["template"]["spec"];
        let lists = [&pod["initContainers"], &pod["containers"]];
        let containers: Vec<&Value> =
            lists.iter().flat_map(|list| list.as_array().into_iter().flatten()).collect();
        let plain = pod["automountServiceAccountToken"] == false
            && pod["hostPID"].is_null()
            && pod["hostNetwork"].is_null()
            && containers.iter().all(|container| {
                let security = &container["securityContext"];
                security["privileged"] == false
                    && security["allowPrivilegeEscalation"] == false
                    && security["capabilities"]["drop"] == serde_json::json!(["ALL"])
            });
        self.expect(Property::Privileges, plain, || format!("{object} is privileged"));
        // Sockets, locks, the place of payloads and of the program that looks at devices, and what is between
        // the containers themselves; no configuration is among them.
        let needed = ["/host/run", "/host/run/lock", "/host/opt", "/agent"].map(Value::from);
        let reads_only = containers.iter().all(|container| {
            let mounts = container["volumeMounts"].as_array().into_iter().flatten();
            mounts
                .into_iter()
                .all(|mount| mount["readOnly"] == true || needed.contains(&mount["mountPath"]))
        });
        self.expect(Property::Privileges, changes(action) || reads_only, || {
            format!("{object} only looks, and can write what it need not")
        });
        let task = containers.iter().find_map(|container| {
            let words = container["command"].as_array()?;
            let at = words.iter().position(|word| word == "--task")?;
            serde_json::from_str::<NodeTask>(words.get(at + 1)?.as_str()?).ok()
        });
        let same = task.is_some_and(|task| task.node == job.node && task.action == action);
        self.expect(Property::Fields, same, || format!("the task of {object} is another"));
    }

    /// No more nodes are unavailable than may be, by our doing.
    fn rollout(&mut self, decision: &Decision, made: &[Made<'_>]) {
        let starting: BTreeMap<&str, NodeAction> = made
            .iter()
            .filter_map(|job| Some((job.node, job.action?)))
            .filter(|(_, action)| changes(*action))
            .collect();
        if starting.is_empty() {
            return;
        }
        let config = self.snapshot.configs.iter().find(|config| {
            self.snapshot.configs.iter().all(|other| {
                let age = |config: &kata_api::KataConfig| {
                    let created = config.metadata.creation_timestamp.as_ref().map(|time| time.0);
                    (created, config.metadata.name.clone())
                };
                age(config) <= age(other)
            })
        });
        let rollout = config.and_then(|config| config.spec.rollout.as_ref());
        let paused = rollout.is_some_and(|rollout| rollout.paused);
        self.expect(Property::Rollout, !paused, || format!("paused, and {starting:?} begin"));
        // A node that has nothing to do with Kata any more counts no longer; its KataNode goes.
        let going: BTreeSet<&str> = decision
            .plan
            .steps
            .iter()
            .filter_map(|step| match &step.action {
                Action::Delete { object, .. } if object.kind == Kind::KataNode => {
                    Some(object.name.as_str())
                }
                _ => None,
            })
            .collect();
        let ours: Vec<&NodeFacts> = self
            .nodes()
            .iter()
            .map(AsRef::as_ref)
            .filter(|node| {
                let known = self.snapshot.kata_nodes.known().into_iter().flatten();
                node.labels.contains_key(names::CLAIM_LABEL)
                    || known.into_iter().any(|kata_node| {
                        kata_node.spec.node_name == node.name
                            && !going
                                .contains(kata_node.metadata.name.as_deref().unwrap_or_default())
                    })
            })
            .collect();
        let down = |node: &NodeFacts| node.ready.status != Some(true) || node.unschedulable;
        let changing = |node: &NodeFacts| {
            self.all_jobs()
                .iter()
                .any(|job| job.node == node.name && job.end.is_none() && changes(job.action))
        };
        // Nobody knows what became of a change whose Job left no report.
        let unknown = |node: &NodeFacts| {
            let kata_nodes = self.snapshot.kata_nodes.known().into_iter().flatten();
            // What is known of an earlier node of the same name does not count.
            let is_owned = |it: &KataNode| {
                it.metadata.owner_references.iter().flatten().any(|owner| owner.uid == node.uid)
            };
            let mut of_node =
                kata_nodes.filter(|it| it.spec.node_name == node.name && is_owned(it));
            let last = of_node.find_map(|it| it.status.as_ref()?.host.as_ref()?.job.as_ref());
            let lost = [JobOutcome::TimedOut, JobOutcome::NoReport, JobOutcome::Vanished];
            let recorded = last.filter(|last| last.outcome.is_some()).map(|last| last.number);
            let jobs = self.all_jobs().iter().filter(|job| job.node_uid == node.uid);
            match jobs.max_by_key(|job| job.number) {
                // What came of it is in no KataNode yet.
                Some(job) if recorded < Some(job.number) => {
                    let pods = self.snapshot.jobs.pods.known().into_iter().flatten();
                    let told = |pod: &JobPod| {
                        pod.job == job.name && (!pod.started || matches!(pod.report, Some(Ok(_))))
                    };
                    changes(job.action) && job.end.is_some() && !pods.into_iter().any(told)
                }
                _ => last.is_some_and(|last| {
                    changes(last.action) && last.outcome.is_none_or(|it| lost.contains(&it))
                }),
            }
        };
        let begins = |node: &NodeFacts| starting.contains_key(node.name.as_str());
        let busy = |node: &NodeFacts| down(node) || changing(node);
        let count =
            |holds: &dyn Fn(&NodeFacts) -> bool| ours.iter().filter(|node| holds(node)).count();
        let before = count(&busy);
        // Who goes on with such a change leaves no service, and needs room beside who is down all the same.
        let goes_on = count(&|node| begins(node) && !down(node) && unknown(node));
        let added = count(&|node| begins(node) && !down(node) && !unknown(node));
        let left = count(&|node| unknown(node) && !begins(node) && !busy(node));
        let limit = match rollout.and_then(|rollout| rollout.max_unavailable.as_ref()) {
            None => 1,
            Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(1),
            Some(IntOrString::String(text)) => {
                let percent = text.trim_end_matches('%').parse::<usize>().unwrap_or(0);
                ours.len() * percent / 100
            }
        };
        let all = before + goes_on + added;
        let fits = |nodes: usize| nodes <= limit.max(1);
        let holds = (added == 0 || fits(all + left)) && (goes_on == 0 || fits(all));
        self.expect(Property::Rollout, holds, || {
            let unavailable = before + left;
            format!("{unavailable} nodes are unavailable, and {starting:?} begin")
        });
    }

    /// A Job goes when it is over, or when it changes nothing, or with its node, or if it cannot start.
    pub(super) fn deleted_job(&mut self, object: &ObjectRef) {
        let job =
            self.all_jobs().iter().find(|job| job.uid == *object.uid.as_ref().unwrap_or(&job.name));
        let spent = job.is_some_and(|job| {
            let there = self.node(&job.node).is_some_and(|node| node.uid == job.node_uid);
            let pods = self.snapshot.jobs.pods.known().into_iter().flatten();
            let mut pods = pods.filter(|pod| pod.job == job.name).peekable();
            let waits = self.snapshot.freshness > Freshness::Cached
                && pods.peek().is_some()
                && pods.all(|pod| pod.is_waiting());
            job.end.is_some() || !changes(job.action) || !there || waits
        });
        self.expect(Property::OneJob, spent, || format!("{object} is deleted while it runs"));
    }

    /// The label of verified nodes and the claim go together, and `true` means usable.
    pub(super) fn host_labels(&mut self, node: &ObjectRef, set: &BTreeMap<String, String>) {
        let Some(facts) = self.node(&node.name) else {
            return self.expect(Property::Unknown, false, || format!("{node} was not seen"));
        };
        self.expect(Property::Foreign, node.uid.as_ref() == Some(&facts.uid), || {
            format!("{node} is written without the uid that was seen")
        });
        if set.get(names::RUNTIME_LABEL).map(String::as_str) != Some(names::RUNTIME_LABEL_VERIFIED)
        {
            return;
        }
        let recorded = self.snapshot.kata_nodes.known().into_iter().flatten().any(|kata_node| {
            let status = kata_node.status.as_ref().and_then(|status| status.host.as_ref());
            kata_node.spec.node_name == node.name
                && status.is_some_and(|host| host.installed.is_some())
        });
        let pods = self.snapshot.jobs.pods.known().into_iter().flatten();
        let reported = pods.into_iter().any(|pod| {
            pod.node == node.name
                && matches!(&pod.report, Some(Ok(report))
                    if report.action == NodeAction::Install && report.outcome == Outcome::Done)
        });
        let changing = self
            .all_jobs()
            .iter()
            .any(|job| job.node == node.name && job.end.is_none() && changes(job.action));
        let usable = facts.ready.status == Some(true)
            && !facts.unschedulable
            && !changing
            && (recorded || reported);
        self.expect(Property::Verified, usable, || format!("{node} is marked but not usable"));
    }

    /// What is left of us besides RuntimeClasses and KataNodes.
    pub(super) fn left_on_hosts(&self) -> Vec<String> {
        let claimed =
            self.nodes().iter().filter(|node| node.labels.contains_key(names::CLAIM_LABEL));
        let jobs = self.all_jobs().iter().map(|job| format!("Job {}", job.name));
        claimed.map(|node| node.name.clone()).chain(jobs).collect()
    }
}
