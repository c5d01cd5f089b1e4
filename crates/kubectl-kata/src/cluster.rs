//! What most commands want to know first: the active KataConfig, its nodes and its RuntimeClasses.

mod operator;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::kata_config::RuntimeSpec;
use kata_api::kata_node::{HostStatus, PayloadImage};
use kata_api::node_task::EarlierRelease;
use kata_api::{Code, KataConfig, KataNode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{Api, Read, Scope};
use crate::document::{ClassFacts, EarlierPods, Inspections, InstalledPayload};
use crate::failure::Failure;
use crate::human;
use crate::pod::Pod;
use crate::resource::{CRDS, KATA_CONFIGS, KATA_NODES, RUNTIME_CLASSES};
pub(crate) use operator::{
    Deployment, Installer, NAME_LABEL, OperatorState, home, installations, lease, operator,
    operator_pods, operator_quietly, platform, semantic,
};

/// The KataNode of a node, given as NAME or node/NAME.
pub(crate) fn find_node<'n>(nodes: &'n [KataNode], name: &str) -> Result<&'n KataNode, Failure> {
    let name = name.strip_prefix("node/").unwrap_or(name);
    nodes.iter().find(|node| node.spec.node_name == name).ok_or_else(|| {
        Failure::NotFound(format!(
            "there is no KataNode of node {name}: `kubectl kata nodes` lists the nodes that have one"
        ))
    })
}

/// What the API server says of itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerVersion {
    #[serde(default)]
    pub(crate) git_version: String,
}

impl ServerVersion {
    /// Whether the cluster says that it is simulated, in the build part of its version.
    pub(crate) fn is_simulated(&self) -> bool {
        self.git_version.split_once('+').is_some_and(|(_, build)| build == "simulated")
    }
}

/// The version of the API server.
pub(crate) async fn version(api: &Api) -> Result<ServerVersion, Failure> {
    Ok(version_and_time(api).await?.0)
}

/// The same with the time by its clock, if it says so.
async fn version_and_time(api: &Api) -> Result<(ServerVersion, Option<Timestamp>), Failure> {
    let what = "use the cluster";
    match api.dated(what, "/version").await {
        Ok((text, time)) => {
            let version: ServerVersion = serde_json::from_str(&text)
                .map_err(|source| Failure::Answer { what: what.to_owned(), source })?;
            api.note_simulated(version.is_simulated());
            Ok((version, time))
        }
        // Some API servers show it to nobody; then it is not known, and nothing depends on it.
        Err(crate::api::Trouble::Status(_)) => Ok((ServerVersion::default(), None)),
        Err(trouble) => Err(trouble.failure(what)),
    }
}

/// The KataConfigs and what belongs to them.
#[derive(Clone, Debug)]
pub(crate) struct Kata {
    pub(crate) version: ServerVersion,
    /// The time by the API server's clock, if it says so.
    pub(crate) time: Option<Timestamp>,
    pub(crate) configs: Read<Vec<KataConfig>>,
    pub(crate) nodes: Read<Vec<KataNode>>,
    pub(crate) classes: Read<Vec<RuntimeClass>>,
}

impl Kata {
    /// Reads them.
    pub(crate) async fn read(api: &Api) -> Result<Self, Failure> {
        let (version, configs, nodes, classes) = futures::join!(
            version_and_time(api),
            api.list::<KataConfig>(KATA_CONFIGS, Scope::default()),
            api.list::<KataNode>(KATA_NODES, Scope::default()),
            api.list::<RuntimeClass>(RUNTIME_CLASSES, Scope::default()),
        );
        let (version, time) = version?;
        Ok(Self { version, time, configs: configs?, nodes: nodes?, classes: classes? })
    }

    /// The active KataConfig.
    pub(crate) fn active(&self) -> Option<&KataConfig> {
        kata_plan::configs_by_age(self.configs.items()).first().copied()
    }

    /// The active KataConfig for a command that does this with it, such as `pause`.
    ///
    /// # Errors
    /// If there is none, or the caller may not list them.
    pub(crate) fn active_or_not_found(&self, verb: &str) -> Result<&KataConfig, Failure> {
        self.configs.listed("find the KataConfig", &KATA_CONFIGS.qualified())?;
        self.active().ok_or_else(|| {
            Failure::NotFound(format!(
                "there is no KataConfig to {verb}; `kubectl kata install` creates one"
            ))
        })
    }

    /// The names of those that are not active.
    pub(crate) fn others(&self) -> Vec<String> {
        let sorted = kata_plan::configs_by_age(self.configs.items());
        sorted.iter().skip(1).filter_map(|config| config.metadata.name.clone()).collect()
    }

    /// Whether the cluster is simulated.
    pub(crate) fn is_simulated(&self) -> bool {
        self.version.is_simulated()
    }

    /// The RuntimeClasses whose pods run in virtual machines: those of the KataConfig, or, without one,
    /// those whose handler is called after Kata.
    pub(crate) fn sandbox_classes(&self) -> SandboxClasses {
        let existing = self.classes.items();
        let names = match self.active() {
            Some(config) => kata_plan::sandbox_classes(config, existing),
            None => existing
                .iter()
                .filter(|class| class.handler.starts_with("kata"))
                .filter_map(|class| class.metadata.name.clone())
                .collect(),
        };
        let kinds = [
            (self.configs.is_forbidden(), KATA_CONFIGS),
            (self.classes.is_forbidden(), RUNTIME_CLASSES),
        ];
        let unseen = kinds.into_iter().filter(|(is_unseen, _)| *is_unseen);
        SandboxClasses { names, unseen: unseen.map(|(_, kind)| kind.qualified()).collect() }
    }

    /// The KataNodes, for a command that is of no use without them; `what` is what it cannot do then.
    pub(crate) fn known_nodes(&self, what: &str) -> Result<&[KataNode], Failure> {
        let kind = KATA_NODES.qualified();
        match &self.nodes {
            Read::Known(nodes) => Ok(nodes),
            Read::Forbidden => Err(crate::api::not_listed(what, &kind)),
            Read::NotServed if self.configs.is_not_served() => Err(Failure::NotFound(format!(
                "cannot {what}: the cluster does not serve {kind}, so the operator is not installed: see \
                 `kubectl kata doctor --pre`"
            ))),
            Read::NotServed => Err(Failure::NotFound(format!(
                "cannot {what}: the cluster does not serve {kind}, whose CustomResourceDefinition was deleted. \
                 {}",
                Code::CustomResourceStale.entry().fix
            ))),
        }
    }

    /// Handlers by class, as far as classes can be seen.
    pub(crate) fn handlers(&self) -> BTreeMap<String, String> {
        let mut handlers: BTreeMap<String, String> = BTreeMap::new();
        for runtime in self.runtimes() {
            handlers.insert(runtime.name.clone(), runtime.effective_handler().to_owned());
        }
        handlers.extend(
            self.classes
                .items()
                .iter()
                .filter_map(|class| Some((class.metadata.name.clone()?, class.handler.clone()))),
        );
        handlers
    }

    /// The shim that the operator's Jobs configured for a class on a node; if `node` is `None`, on any node. Where the
    /// Machine Config Operator or the node's system provides Kata, it is not known which there is.
    pub(crate) fn shim(&self, class: &str, node: Option<&str>) -> Option<String> {
        let is_on = |it: &KataNode| node.is_none_or(|node| it.spec.node_name == node);
        let has_job =
            |it: &KataNode| it.status.as_ref().is_some_and(|status| status.host.is_some());
        self.nodes.items().iter().find(|it| is_on(it) && has_job(it))?;
        let runtime = self.runtimes().into_iter().find(|runtime| runtime.name == class)?;
        Some(runtime.effective_shim().to_owned())
    }

    /// What the operator's Jobs last said of the nodes; `None` where no Job has run.
    pub(crate) fn inspections(&self) -> Option<Inspections> {
        let nodes = self.nodes.items();
        let hosts = || nodes.iter().filter_map(|node| node.status.as_ref()?.host.as_ref());
        hosts().next()?;
        let times: Vec<Timestamp> = hosts().filter_map(|host| host.inspected).collect();
        Some(Inspections {
            nodes: times.len(),
            of: nodes
                .iter()
                .filter(|node| !node.status.as_ref().is_some_and(|status| status.provided))
                .count(),
            oldest: times.iter().min().copied(),
        })
    }

    /// What is installed on the nodes, that of most nodes first; `None` where no Job has run.
    pub(crate) fn payloads(&self) -> Option<Vec<InstalledPayload>> {
        let nodes = self.nodes.items();
        let hosts = || nodes.iter().filter_map(|node| node.status.as_ref()?.host.as_ref());
        hosts().next()?;
        let mut found: BTreeMap<_, (usize, BTreeSet<PayloadImage>)> = BTreeMap::new();
        for host in hosts() {
            if host.kata_version.is_some() || host.payload_digest.is_some() {
                let payload = (&host.kata_version, &host.payload_digest);
                let (nodes, images) = found.entry(payload).or_default();
                *nodes += 1;
                images.extend(host.payload_image.clone());
            }
        }
        let mut payloads: Vec<InstalledPayload> = found
            .into_iter()
            .map(|((version, digest), (nodes, images))| InstalledPayload {
                nodes,
                kata_version: version.clone(),
                digest: digest.clone(),
                images: images.into_iter().collect(),
            })
            .collect();
        payloads.sort_by(|a, b| b.cmp(a));
        Some(payloads)
    }

    /// What is known of the versions of Kata on the nodes.
    pub(crate) fn versions(&self) -> Versions<'_> {
        let hosts = self.nodes.items().iter().filter_map(|node| {
            Some((node.spec.node_name.as_str(), node.status.as_ref()?.host.as_deref()?))
        });
        Versions(hosts.collect())
    }

    /// What the KataConfig offers.
    pub(crate) fn runtimes(&self) -> Vec<RuntimeSpec> {
        self.active().map(|config| config.spec.effective_runtimes()).unwrap_or_default()
    }

    /// The nodes that should have a runtime, where the operator does not say that this is not applied.
    pub(crate) fn install_on<'a>(&self, runtime: &'a RuntimeSpec) -> Option<&'a LabelSelector> {
        let status = self.active().and_then(|config| config.status.as_ref());
        let code = Code::SettingsNotHonoured.entry().code;
        let mut findings = status.into_iter().flat_map(|status| &status.findings);
        let is_applied = findings.all(|finding| finding.code != code);
        runtime.install_on.as_ref().filter(|_| is_applied)
    }

    /// The RuntimeClasses of the KataConfig.
    pub(crate) fn class_facts(&self) -> Vec<ClassFacts> {
        let told: Vec<&String> = self
            .active()
            .and_then(|config| config.status.as_ref())
            .map(|status| status.runtime_classes.iter().collect())
            .unwrap_or_default();
        self.runtimes()
            .iter()
            .map(|runtime| {
                let class = self
                    .classes
                    .items()
                    .iter()
                    .find(|class| class.metadata.name.as_deref() == Some(&runtime.name));
                let fixed = class
                    .and_then(|class| class.overhead.as_ref())
                    .and_then(|overhead| overhead.pod_fixed.as_ref());
                let (cpu, memory) = runtime.effective_overhead();
                // What a class that is there does not have, it does not add.
                let of = |key: &str, default: String| match class {
                    None => default,
                    Some(_) => fixed
                        .and_then(|fixed| fixed.get(key))
                        .map_or_else(|| "0".to_owned(), |found| found.0.clone()),
                };
                let status = self.active().and_then(|config| config.status.as_ref());
                let counts = status.and_then(|status| {
                    status.runtimes.iter().find(|counts| counts.name == runtime.name)
                });
                ClassFacts {
                    name: runtime.name.clone(),
                    exists: class.is_some() || told.contains(&&runtime.name),
                    foreign: class.is_some_and(|class| !kata_plan::is_our_class(class)),
                    handler: class.map_or_else(
                        || runtime.effective_handler().to_owned(),
                        |class| class.handler.clone(),
                    ),
                    overhead_cpu: of("cpu", cpu.0),
                    overhead_memory: of("memory", memory.0),
                    install_on: self.install_on(runtime).map(kata_plan::selector::text),
                    node_count: counts.map(|counts| counts.node_count),
                    ready_node_count: counts.map(|counts| counts.ready_node_count),
                }
            })
            .collect()
    }
}

/// What the last Jobs reported of the versions of Kata, by node.
pub(crate) struct Versions<'a>(BTreeMap<&'a str, &'a HostStatus>);

impl Versions<'_> {
    /// The version that a sandboxed pod runs; `None` if it does not run, or where that is not known.
    pub(crate) fn of(&self, pod: &Pod) -> Option<&str> {
        // The record lists the sandboxes that ran when the last Job looked. A pod that has ended or not started is not in it.
        if pod.status.phase != "Running" {
            return None;
        }
        let host = self.0.get(pod.node()?)?;
        let listed = EarlierRelease::listed(&pod.metadata.uid);
        let is_of = |release: &&EarlierRelease| release.pods.iter().any(|pod| pod == listed);
        match host.earlier.iter().find(is_of) {
            Some(earlier) => earlier.kata_version.as_deref(),
            // Of those that are not listed it is not known which they are.
            None if host.earlier.iter().any(|release| release.more_pods > 0) => None,
            None => host.kata_version.as_deref(),
        }
    }

    /// How many of these pods were started with another version than their node has now, by version.
    pub(crate) fn earlier<'p>(&self, pods: impl Iterator<Item = &'p Pod>) -> Vec<EarlierPods> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in pods {
            let now = pod.node().and_then(|node| self.0.get(node)?.kata_version.as_deref());
            if let (Some(version), Some(now)) = (self.of(pod), now)
                && version != now
            {
                *counts.entry(version).or_default() += 1;
            }
        }
        let of = |(version, pods)| EarlierPods { kata_version: str::to_owned(version), pods };
        counts.into_iter().map(of).collect()
    }
}

/// The RuntimeClasses whose pods run in virtual machines, as far as they can be seen.
#[derive(Clone, Debug)]
pub(crate) struct SandboxClasses {
    names: BTreeSet<String>,
    /// The kinds that say it and that the caller may not list.
    unseen: Vec<String>,
}

impl SandboxClasses {
    /// Whether this is one of them.
    pub(crate) fn contains(&self, class: &str) -> bool {
        self.names.contains(class)
    }

    /// The first of them by name.
    pub(crate) fn first(&self) -> Option<&String> {
        self.names.first()
    }

    /// Whether pods of a class run in virtual machines, without one if `class` is `None`; `None` if the caller may not read
    /// what says that.
    pub(crate) fn is_sandboxed(&self, class: Option<&str>) -> Option<bool> {
        match class {
            None => Some(false),
            Some(class) if self.contains(class) => Some(true),
            Some(_) => self.unseen.is_empty().then_some(false),
        }
    }

    /// Why it is not known of every class: `you may not list runtimeclasses.node.k8s.io`.
    pub(crate) fn unseen(&self) -> String {
        let sentences: Vec<String> =
            self.unseen.iter().map(|kind| format!("you may not list {kind}")).collect();
        sentences.join(", ")
    }
}

impl Inspections {
    /// `nodes inspected 3/3, 12m ago`.
    pub(crate) fn sentence(&self, now: Timestamp) -> String {
        let age = self.oldest.map(|oldest| format!(", {} ago", human::age(now, oldest)));
        format!("nodes inspected {}/{}{}", self.nodes, self.of, age.unwrap_or_default())
    }
}

/// The first of our definitions that the cluster has in another form than this program, if one is. What is
/// not permitted is not noted.
pub(crate) async fn stale_definition(api: &Api) -> Result<Read<Option<String>>, Failure> {
    let definitions = kata_api::crds();
    let served = definitions.iter().map(|definition| async move {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let wanted = json!(definition.spec.versions);
        Ok::<_, Failure>(match api.glance::<Value>(CRDS, None, &name).await? {
            Read::Known(served) => {
                let served = served.unwrap_or_default();
                let same = includes(&served["spec"]["versions"], &wanted);
                Read::Known((!same).then_some(name))
            }
            Read::NotServed => Read::Known(Some(name)),
            Read::Forbidden => Read::Forbidden,
        })
    });
    for read in futures::future::join_all(served).await {
        match read? {
            Read::Known(None) => {}
            other => return Ok(other),
        }
    }
    Ok(Read::Known(None))
}

/// Whether one value has all of another; the API server adds defaults.
fn includes(served: &Value, wanted: &Value) -> bool {
    match (served, wanted) {
        (Value::Object(served), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            key == "description"
                || value.is_null()
                || served.get(key).is_some_and(|served| includes(served, value))
        }),
        (Value::Array(served), Value::Array(wanted)) => {
            served.len() == wanted.len()
                && served.iter().zip(wanted).all(|(served, wanted)| includes(served, wanted))
        }
        // What is written as 0.0 is stored as 0.
        (Value::Number(served), Value::Number(wanted)) => served.as_f64() == wanted.as_f64(),
        (served, wanted) => served == wanted,
    }
}
