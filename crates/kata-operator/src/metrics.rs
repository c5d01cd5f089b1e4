//! The metrics that Prometheus scrapes, and the heartbeat of the loop. This module decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use kata_api::conditions::READY;
use kata_api::kata_node::{JobOutcome, Phase};
use kata_api::node_task::NodeAction;
use kata_api::{Code, conditions};
use kata_plan::invariants::Property;
use kata_plan::{Finding, NodeReport, StatusReport};

use jobs::JobTracker;
use phases::PhaseTracker;

mod jobs;
mod phases;

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge<i64, AtomicI64>>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// A check of `/readyz`: its name, and the problem if it fails.
pub type Check = (String, Result<(), String>);

/// Histogram bounds of the time that a node is in a phase, in seconds: a label takes one second, a change of
/// the operating system minutes, a problem that an administrator must fix an hour or two.
const PHASE_SECONDS: [f64; 12] =
    [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0];

/// The controller's name in metrics and logs.
pub const CONTROLLER: &str = "kataconfig";

/// All metrics. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Counters,
    request_errors: Counters,
    reconciles: Counters,
    reconcile_seconds: Histograms,
    nodes: GaugeSet,
    earlier_sandboxes: GaugeSet,
    phases: Mutex<PhaseTracker>,
    phase_seconds: Histograms,
    join_seconds: Histogram,
    jobs: Mutex<JobTracker>,
    node_jobs: Counters,
    job_seconds: Histograms,
    runtime_restarts: Counters,
    conditions: GaugeSet,
    findings: GaugeSet,
    promise_violations: Counters,
    watch_restarts: Counters,
    leader: Gauge<i64, AtomicI64>,
    clock_offset: Gauge<f64, AtomicU64>,
    started: Instant,
    /// Milliseconds from `started` to the last heartbeat.
    heartbeat: AtomicU64,
    ready: AtomicBool,
    standby: AtomicBool,
    checks: Mutex<Vec<Check>>,
}

fn job_labels(action: NodeAction, outcome: JobOutcome) -> Labels {
    vec![("action", action.as_str().to_owned()), ("outcome", outcome.as_str().to_owned())]
}

fn property_labels(property: Property) -> Labels {
    vec![("property", property.to_string())]
}

/// How many sandboxes run on each earlier version of Kata, as the last Job of each node saw them.
fn earlier_sandboxes(nodes: &[NodeReport]) -> BTreeMap<Labels, i64> {
    let mut counts = BTreeMap::new();
    let hosts = nodes.iter().filter_map(|node| node.host.as_ref());
    for release in hosts.flat_map(|host| &host.earlier) {
        let version = release.kata_version.clone().unwrap_or_else(|| "unknown".to_owned());
        let pods = i64::try_from(release.pods.len()).unwrap_or(i64::MAX);
        let count: &mut i64 = counts.entry(vec![("kata_version", version)]).or_default();
        *count = count.saturating_add(pods).saturating_add(release.more_pods);
    }
    counts
}

/// Gauges that show the latest values. An update sets new values before it removes old ones, so that no
/// scrape sees a gap.
#[derive(Debug, Default)]
struct GaugeSet {
    gauges: Gauges,
    known: Mutex<BTreeSet<Labels>>,
}

impl GaugeSet {
    fn set(&self, values: &BTreeMap<Labels, i64>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (labels, value) in values {
            self.gauges.get_or_create(labels).set(*value);
        }
        for gone in known.iter().filter(|labels| !values.contains_key(*labels)) {
            self.gauges.remove(gone);
        }
        *known = values.keys().cloned().collect();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics that all show zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("kata_operator");
        let (requests, request_errors, reconciles) =
            (Counters::default(), Counters::default(), Counters::default());
        let (nodes, conditions, findings) =
            (GaugeSet::default(), GaugeSet::default(), GaugeSet::default());
        let earlier_sandboxes = GaugeSet::default();
        let (promise_violations, watch_restarts) = (Counters::default(), Counters::default());
        // Each counter exists before the first violation, so that the first one is an increase.
        for property in Property::ALL {
            let _zero = promise_violations.get_or_create(&property_labels(property));
        }
        let (node_jobs, runtime_restarts) = (Counters::default(), Counters::default());
        let job_seconds: Histograms =
            Family::new_with_constructor(|| Histogram::new(PHASE_SECONDS));
        let leader = Gauge::<i64, AtomicI64>::default();
        let clock_offset = Gauge::<f64, AtomicU64>::default();
        let reconcile_seconds: Histograms =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 9)));
        let phase_seconds: Histograms =
            Family::new_with_constructor(|| Histogram::new(PHASE_SECONDS));
        let join_seconds = Histogram::new(PHASE_SECONDS);
        let build = Gauges::default();
        let revision = option_env!("KATA_OPERATOR_REVISION").unwrap_or("unknown");
        build
            .get_or_create(&vec![
                ("version", kata_api::names::VERSION.to_owned()),
                ("revision", revision.to_owned()),
            ])
            .set(1);
        registry.register("build_info", "The operator's version and revision", build);
        registry.register("api_requests", "Calls to the API server", requests.clone());
        registry.register(
            "api_request_errors",
            "Calls to the API server that failed",
            request_errors.clone(),
        );
        registry.register("reconciles", "Passes of the loop, by result", reconciles.clone());
        registry.register_with_unit(
            "reconcile_duration",
            "How long a pass of the loop takes",
            Unit::Seconds,
            reconcile_seconds.clone(),
        );
        registry.register(
            "nodes",
            "Nodes that have, get or lose Kata, by phase",
            nodes.gauges.clone(),
        );
        registry.register(
            "earlier_sandboxes",
            "Sandboxes that run on an earlier version of Kata than new ones",
            earlier_sandboxes.gauges.clone(),
        );
        registry.register_with_unit(
            "node_phase_duration",
            "How long nodes stayed in a phase",
            Unit::Seconds,
            phase_seconds.clone(),
        );
        registry.register_with_unit(
            "node_join",
            "How long new nodes took from their creation until they could run sandboxed pods",
            Unit::Seconds,
            join_seconds.clone(),
        );
        registry.register(
            "node_jobs",
            "Finished Jobs on nodes, by action and outcome",
            node_jobs.clone(),
        );
        registry.register_with_unit(
            "node_job_duration",
            "How long Jobs on nodes took, from creation to end",
            Unit::Seconds,
            job_seconds.clone(),
        );
        registry.register(
            "runtime_restarts",
            "Restarts of nodes' container runtimes by Jobs",
            runtime_restarts.clone(),
        );
        registry.register(
            "config_condition",
            "Conditions of KataConfigs: 1 for the current status",
            conditions.gauges.clone(),
        );
        registry.register("findings", "Current findings, by code", findings.gauges.clone());
        registry.register(
            "promise_violations",
            "Promises that the operator would have broken, by promise",
            promise_violations.clone(),
        );
        registry.register("watch_restarts", "Restarts of watches", watch_restarts.clone());
        registry.register_with_unit(
            "clock_offset",
            "By how much the operator's clock is ahead of the API server's",
            Unit::Seconds,
            clock_offset.clone(),
        );
        registry.register("leader", "1 if this process is the leader", leader.clone());
        Self(Arc::new(Inner {
            registry,
            requests,
            request_errors,
            reconciles,
            reconcile_seconds,
            nodes,
            earlier_sandboxes,
            phases: Mutex::default(),
            phase_seconds,
            join_seconds,
            jobs: Mutex::default(),
            node_jobs,
            job_seconds,
            runtime_restarts,
            conditions,
            findings,
            promise_violations,
            watch_restarts,
            leader,
            clock_offset,
            started: Instant::now(),
            heartbeat: AtomicU64::new(0),
            ready: AtomicBool::new(false),
            standby: AtomicBool::new(false),
            checks: Mutex::default(),
        }))
    }

    /// The metrics in OpenMetrics' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        match encode(&mut text, &self.0.registry) {
            Ok(()) | Err(std::fmt::Error) => text,
        }
    }

    /// Counts a call to the API server.
    pub fn record_request(&self, verb: &'static str, kind: &str) {
        self.0
            .requests
            .get_or_create(&vec![("verb", verb.to_owned()), ("kind", kind.to_owned())])
            .inc();
    }

    /// Counts a call to the API server that failed.
    pub fn record_request_error(&self, verb: &'static str, kind: &str, category: &'static str) {
        let labels = vec![
            ("verb", verb.to_owned()),
            ("kind", kind.to_owned()),
            ("category", category.to_owned()),
        ];
        self.0.request_errors.get_or_create(&labels).inc();
    }

    /// Counts a watch that restarts after an error, or because its history is gone.
    pub fn record_watch_restart(&self, kind: &str, why: &'static str) {
        self.0
            .watch_restarts
            .get_or_create(&vec![("kind", kind.to_owned()), ("reason", why.to_owned())])
            .inc();
    }

    /// Sets by how much the API server's clock is ahead of the operator's.
    pub fn set_server_ahead(&self, ahead: SignedDuration) {
        self.0.clock_offset.set(0.0 - ahead.as_secs_f64());
    }

    /// Counts a promise that a plan or a report would have broken.
    pub fn record_promise_violation(&self, property: Property) {
        self.0.promise_violations.get_or_create(&property_labels(property)).inc();
    }

    /// Counts a pass of the loop, and records how long it took.
    pub fn record_reconcile(&self, result: &'static str, took: Duration) {
        let labels = vec![("controller", CONTROLLER.to_owned()), ("result", result.to_owned())];
        self.0.reconciles.get_or_create(&labels).inc();
        self.0.reconcile_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Sets whether this process is the leader. Only the leader reports nodes, conditions and findings.
    pub fn set_leading(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
        self.0.standby.store(!leads, Ordering::Relaxed);
        if leads {
            return;
        }
        let inner = &self.0;
        for gauges in [&inner.nodes, &inner.earlier_sandboxes, &inner.conditions, &inner.findings] {
            gauges.set(&BTreeMap::new());
        }
        *self.0.phases.lock().unwrap_or_else(PoisonError::into_inner) = PhaseTracker::default();
        *self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner) = JobTracker::default();
    }

    /// Sets the number of nodes in each phase, and records how long nodes stayed in the phases that they
    /// left.
    pub fn set_nodes(&self, nodes: &[NodeReport]) {
        let labels = |phase: Phase| vec![("phase", phase.as_str().to_owned())];
        let mut counts: BTreeMap<Labels, i64> =
            Phase::ALL.iter().map(|phase| (labels(*phase), 0)).collect();
        for node in nodes {
            *counts.entry(labels(node.phase)).or_default() += 1;
        }
        self.0.nodes.set(&counts);
        self.0.earlier_sandboxes.set(&earlier_sandboxes(nodes));
        let mut phases = self.0.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = phases.update(nodes, Instant::now());
        for (phase, lasted) in ended.phases {
            self.0.phase_seconds.get_or_create(&labels(phase)).observe(lasted.as_secs_f64());
        }
        for took in ended.joins {
            self.0.join_seconds.observe(took.as_secs_f64());
        }
        drop(phases);
        self.record_jobs(nodes);
    }

    /// Counts the Jobs on nodes that ended, and the restarts of container runtimes.
    fn record_jobs(&self, nodes: &[NodeReport]) {
        if nodes.iter().any(|node| node.host.is_some()) {
            // Each counter starts at 0, so that the first count is an increase.
            for action in NodeAction::ALL {
                for outcome in JobOutcome::ALL {
                    let _zero = self.0.node_jobs.get_or_create(&job_labels(action, outcome));
                }
            }
            let _zero = self.0.runtime_restarts.get_or_create(&Vec::new());
        }
        let changes = self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner).update(nodes);
        for job in changes.finished {
            self.0.node_jobs.get_or_create(&job_labels(job.action, job.outcome)).inc();
            if let Some(took) = job.took {
                let labels = vec![("action", job.action.as_str().to_owned())];
                self.0.job_seconds.get_or_create(&labels).observe(took.as_secs_f64());
            }
        }
        if changes.restarts > 0 {
            self.0.runtime_restarts.get_or_create(&Vec::new()).inc_by(changes.restarts);
        }
    }

    /// Sets the number of findings of each code.
    pub fn set_findings(&self, findings: &[Finding]) {
        let labels = |code: Code| {
            let entry = code.entry();
            let severity = entry.severity.as_str().to_owned();
            vec![("code", entry.code.to_owned()), ("severity", severity)]
        };
        let mut counts: BTreeMap<Labels, i64> =
            Code::ALL.iter().map(|code| (labels(*code), 0)).collect();
        for finding in findings {
            *counts.entry(labels(finding.code)).or_default() += 1;
        }
        self.0.findings.set(&counts);
    }

    /// Sets the conditions of all KataConfigs.
    pub fn set_conditions<'a>(&self, statuses: impl Iterator<Item = &'a StatusReport>) {
        let mut values = BTreeMap::new();
        for report in statuses {
            let conditions = report.status.conditions.iter();
            // Conditions of other clients are not exported.
            for condition in conditions.filter(|own| conditions::ALL.contains(&own.type_.as_str()))
            {
                for status in ["True", "False", "Unknown"] {
                    let labels = vec![
                        ("name", report.config.name.clone()),
                        ("type", condition.type_.clone()),
                        ("status", status.to_owned()),
                    ];
                    values.insert(labels, i64::from(condition.status == status));
                }
            }
        }
        self.0.conditions.set(&values);
    }

    /// Sets Ready of all KataConfigs to Unknown, because the KataConfigs cannot be read. The others stay, so that their
    /// alerts do.
    pub fn set_ready_unknown(&self) {
        let known = self.0.conditions.known.lock().unwrap_or_else(PoisonError::into_inner);
        for labels in known.iter().filter(|it| it.iter().any(|(_, value)| value == READY)) {
            let is_unknown = labels.iter().any(|(_, value)| value == "Unknown");
            self.0.conditions.gauges.get_or_create(labels).set(i64::from(is_unknown));
        }
    }

    /// Records that the loop is alive: it begins an iteration or a call, or reads the Lease as a standby.
    pub fn record_heartbeat(&self) {
        let elapsed = u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.heartbeat.store(elapsed, Ordering::Relaxed);
    }

    pub fn time_since_heartbeat(&self) -> Duration {
        let heartbeat = Duration::from_millis(self.0.heartbeat.load(Ordering::Relaxed));
        self.0.started.elapsed().saturating_sub(heartbeat)
    }

    /// Sets the checks of `/readyz`.
    pub fn set_checks(&self, checks: Vec<Check>) {
        let ready = checks.iter().all(|(_, outcome)| outcome.is_ok());
        self.0.ready.store(ready, Ordering::Relaxed);
        *self.0.checks.lock().unwrap_or_else(PoisonError::into_inner) = checks;
    }

    /// Whether this process is ready, and its checks. A standby is ready to take over.
    pub fn checks(&self) -> (bool, Vec<Check>) {
        if self.0.standby.load(Ordering::Relaxed) {
            return (
                true,
                vec![("lease (held by another process, standing by)".to_owned(), Ok(()))],
            );
        }
        let checks = self.0.checks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.0.ready.load(Ordering::Relaxed), checks)
    }
}
