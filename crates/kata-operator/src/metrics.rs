//! What Prometheus can scrape, and the heartbeat of the loop. Counting only; nothing is decided here.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use kata_plan::{NodeReport, StatusReport};

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge<i64, AtomicI64>>;

/// A check of `/readyz`: what, and what is wrong with it.
pub type Check = (String, Result<(), String>);

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
    reconcile_seconds: Histogram,
    nodes: Gauges,
    conditions: Gauges,
    watch_restarts: Counters,
    leader: Gauge<i64, AtomicI64>,
    started: Instant,
    /// Milliseconds from `started` to the last sign of life.
    beat: AtomicU64,
    ready: AtomicBool,
    standby: AtomicBool,
    checks: Mutex<Vec<Check>>,
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
        let (nodes, conditions) = (Gauges::default(), Gauges::default());
        let watch_restarts = Counters::default();
        let leader = Gauge::<i64, AtomicI64>::default();
        let reconcile_seconds = Histogram::new(exponential_buckets(0.001, 4.0, 9));
        let build = Gauges::default();
        build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
        registry.register("build_info", "The operator's version", build);
        registry.register("api_requests", "Calls to the API server", requests.clone());
        registry.register(
            "api_request_errors",
            "Calls to the API server that failed",
            request_errors.clone(),
        );
        registry.register("reconciles", "Passes of the loop, by result", reconciles.clone());
        registry.register(
            "reconcile_duration_seconds",
            "How long a pass of the loop takes",
            reconcile_seconds.clone(),
        );
        registry.register("nodes", "Nodes that have, get or lose Kata, by phase", nodes.clone());
        registry.register(
            "config_condition",
            "Conditions of KataConfigs: 1 for the status that holds",
            conditions.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that had to start over",
            watch_restarts.clone(),
        );
        registry.register("leader", "1 if this process does the work", leader.clone());
        Self(Arc::new(Inner {
            registry,
            requests,
            request_errors,
            reconciles,
            reconcile_seconds,
            nodes,
            conditions,
            watch_restarts,
            leader,
            started: Instant::now(),
            beat: AtomicU64::new(0),
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

    /// A call to the API server.
    pub fn request(&self, verb: &'static str, kind: &str) {
        self.beat();
        self.0
            .requests
            .get_or_create(&vec![("verb", verb.to_owned()), ("kind", kind.to_owned())])
            .inc();
    }

    /// A call to the API server that failed.
    pub fn request_error(&self, verb: &'static str, kind: &str, category: &'static str) {
        let labels = vec![
            ("verb", verb.to_owned()),
            ("kind", kind.to_owned()),
            ("category", category.to_owned()),
        ];
        self.0.request_errors.get_or_create(&labels).inc();
    }

    /// A watch that starts over, because it ended with an error or its history was gone.
    pub fn watch_restart(&self, kind: &str, why: &'static str) {
        self.0
            .watch_restarts
            .get_or_create(&vec![("kind", kind.to_owned()), ("reason", why.to_owned())])
            .inc();
    }

    /// A pass of the loop.
    pub fn reconcile(&self, result: &'static str, took: Duration) {
        let labels = vec![("controller", CONTROLLER.to_owned()), ("result", result.to_owned())];
        self.0.reconciles.get_or_create(&labels).inc();
        self.0.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// Whether this process does the work.
    pub fn leading(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
        self.0.standby.store(!leads, Ordering::Relaxed);
    }

    /// How far the nodes are.
    pub fn nodes(&self, nodes: &[NodeReport]) {
        self.0.nodes.clear();
        for node in nodes {
            self.0.nodes.get_or_create(&vec![("phase", node.phase.as_str().to_owned())]).inc();
        }
    }

    /// The conditions of all KataConfigs.
    pub fn conditions<'a>(&self, statuses: impl Iterator<Item = &'a StatusReport>) {
        self.0.conditions.clear();
        for report in statuses {
            for condition in &report.status.conditions {
                let labels = vec![
                    ("name", report.config.name.clone()),
                    ("type", condition.type_.clone()),
                    ("status", condition.status.clone()),
                ];
                self.0.conditions.get_or_create(&labels).set(1);
            }
        }
    }

    /// A sign of life of the loop.
    pub fn beat(&self) {
        let elapsed = u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.beat.store(elapsed, Ordering::Relaxed);
    }

    /// How long ago the last sign of life was.
    pub fn silence(&self) -> Duration {
        let beat = Duration::from_millis(self.0.beat.load(Ordering::Relaxed));
        self.0.started.elapsed().saturating_sub(beat)
    }

    /// What is ready and what is not, as the loop last saw it.
    pub fn set_checks(&self, checks: Vec<Check>) {
        let ready = checks.iter().all(|(_, outcome)| outcome.is_ok());
        self.0.ready.store(ready, Ordering::Relaxed);
        *self.0.checks.lock().unwrap_or_else(PoisonError::into_inner) = checks;
    }

    /// Whether this process is ready, and the single checks. One that stands by is ready to take over.
    pub fn checks(&self) -> (bool, Vec<Check>) {
        if self.0.standby.load(Ordering::Relaxed) {
            return (true, vec![("lease (held by another, standing by)".to_owned(), Ok(()))]);
        }
        let checks = self.0.checks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.0.ready.load(Ordering::Relaxed), checks)
    }
}
