//! The loop, and one pass of it: observe, decide, apply, report.
//!
//! There is one key and one pass at a time. A pass decides independently of the object that changed and of
//! earlier passes, and never waits for the cluster: it returns when the next one is due ([`crate::pacing`]).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kata_plan::invariants::{self, Violation};
use kata_plan::{Decision, Plan, Report, Snapshot, StepFailure};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::apply::{Applied, Failure, RefusedWrites, apply};
use crate::client::Client;
use crate::error::{CallError, Retry, chain};
use crate::event_recorder::EventRecorder;
use crate::fight::FightDetector;
use crate::jitter::Jitter;
use crate::metrics::Metrics;
use crate::observe::{Caches, ObserveError, Observer};
use crate::pacing::{self, Schedule};
use crate::platform::{self, Detected};
use crate::report::Reporter;
use crate::settings::Settings;

/// The controller of KataConfigs.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    /// The client of the loop; its calls record heartbeats.
    client: Client,
    /// The client of the watches.
    watch_client: Client,
    caches: Arc<Caches>,
    observer: Observer,
    event_recorder: EventRecorder,
    reporter: Reporter,
    jitter: Arc<Jitter>,
    metrics: Metrics,
    tasks: JoinSet<()>,
    stop: watch::Receiver<bool>,
    schedule: Schedule,
    /// It sets only the pace.
    fight_detector: FightDetector,
    /// The writes that were refused for good, and are sent again after a while.
    refused: RefusedWrites,
    /// The plan that a dry run logged last.
    logged_plan: String,
    /// The promises that the last pass would have broken.
    violations: BTreeSet<String>,
}

/// The outcome of a pass.
#[derive(Debug)]
struct Outcome {
    /// When the next pass is due if nothing changes.
    requeue_after: Option<Duration>,
    /// The shortest wait before the next pass.
    pause: Duration,
    /// The category of a failure, and when to retry.
    failed: Option<(&'static str, Retry)>,
}

impl Controller {
    /// A controller that has not begun.
    pub fn new(
        settings: Settings,
        client: Client,
        jitter: Arc<Jitter>,
        metrics: Metrics,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let options = kata_plan::Options {
            namespace: settings.namespace.clone(),
            ..settings.options.clone()
        };
        let caches = Arc::new(Caches::new(&options));
        let (client, watch_client) = (client.with_heartbeat(), client);
        let observer = Observer::new(client.clone(), Arc::clone(&caches), options);
        let event_recorder = EventRecorder::new(client.clone(), settings.instance.clone());
        let reporter = Reporter::new(client.clone(), metrics.clone());
        Self {
            settings,
            client,
            watch_client,
            caches,
            observer,
            event_recorder,
            reporter,
            jitter,
            metrics,
            tasks: JoinSet::new(),
            stop,
            schedule: Schedule::new(Instant::now()),
            fight_detector: FightDetector::default(),
            refused: RefusedWrites::default(),
            logged_plan: String::new(),
            violations: BTreeSet::new(),
        }
    }

    /// Runs until `stop` becomes true. The future may be dropped at any time.
    pub async fn run(mut self) {
        let mut detected = self.detect().await;
        let (tasks, client) = (&mut self.tasks, &self.watch_client);
        self.caches.follow_configs(tasks, client, &self.jitter, &self.metrics);
        self.follow_cluster(detected);
        self.schedule = Schedule::new(Instant::now());
        loop {
            let platform = detected.platform();
            self.wait_for_due_pass(platform).await;
            if *self.stop.borrow() {
                return;
            }
            let begun = Instant::now();
            if !self.caches.have_answers(platform) {
                self.schedule.wait_for_change(begun);
                continue;
            }
            if self.schedule.take_resync(begun) {
                if platform.is_some() {
                    self.observer.verify_caches().await;
                } else {
                    detected = self.detect().await;
                    self.follow_cluster(detected);
                }
                // The next pass waits for the changes that this found.
                self.schedule.begin_at(Instant::now());
                continue;
            }
            let Outcome { requeue_after, pause, failed } = if platform.is_some() {
                self.run_pass().await
            } else {
                self.run_pass_without_mco().await
            };
            let now = Instant::now();
            let result = failed.map_or("ok", |(category, _)| category);
            self.metrics.record_reconcile(result, now - begun);
            self.metrics.set_checks(self.caches.checks(platform));
            match failed {
                None => self.schedule.succeeded(now, requeue_after, pause),
                Some((_, retry)) => self.schedule.failed(now, retry, &self.jitter),
            }
        }
    }

    /// Waits until the next pass is due and the watches show what the last one wrote, or until `stop` becomes
    /// true.
    async fn wait_for_due_pass(&mut self, platform: Option<kata_plan::Platform>) {
        let mut stop = self.stop.clone();
        let wake = Arc::clone(&self.caches.wake);
        let mut has_changed = false;
        loop {
            let now = Instant::now();
            self.metrics.record_heartbeat();
            self.metrics.set_checks(self.caches.checks(platform));
            if *stop.borrow() {
                return;
            }
            let is_due = self.schedule.is_due(now, has_changed);
            let is_behind = self.caches.are_behind(platform);
            if is_due && !is_behind {
                return;
            }
            let next = if is_behind { self.caches.relist_late(platform) } else { None };
            let next = match next.filter(|next| *next > now) {
                Some(next) if is_due => next,
                Some(next) => next.min(self.schedule.next_pass(has_changed)),
                None if is_due => now + pacing::HEARTBEAT,
                None => self.schedule.next_pass(has_changed),
            };
            tokio::select! {
                biased;
                ended = stop.changed() => if ended.is_err() { return },
                () = wake.changed.notified(), if !has_changed => {
                    has_changed = true;
                    tokio::time::sleep_until(Instant::now() + pacing::DEBOUNCE).await;
                    // The next pass includes the changes during the debounce.
                    let more = wake.changed.notified();
                    let _was_more = futures::FutureExt::now_or_never(more).is_some();
                }
                () = wake.progressed.notified() => self.schedule.progressed(Instant::now()),
                () = wake.caught_up.notified() => {}
                () = tokio::time::sleep_until(next.min(now + pacing::HEARTBEAT)) => {}
            }
        }
    }

    /// Starts to follow the kinds of this platform.
    fn follow_cluster(&mut self, detected: Detected) {
        let Some(platform) = detected.platform() else { return };
        self.observer.set_platform(platform);
        let (tasks, client) = (&mut self.tasks, &self.watch_client);
        self.caches.follow_cluster(platform, tasks, client, &self.jitter, &self.metrics);
    }

    /// Detects the kind of cluster; retries until the API server answers.
    async fn detect(&self) -> Detected {
        let mut attempt = 0;
        loop {
            match platform::detect(&self.client, self.settings.platform).await {
                Ok(detected) => {
                    tracing::info!(platform = detected.as_str(), "detected the platform");
                    return detected;
                }
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "cannot read the API groups of the API server"
                    );
                }
            }
            let wait = pacing::PASS_FAILED.wait(attempt, &self.jitter);
            attempt += 1;
            tokio::time::sleep_until(Instant::now() + wait).await;
        }
    }

    async fn run_pass(&mut self) -> Outcome {
        let (snapshot, decision, took) = match self.observer.decide().await {
            Ok(decided) => decided,
            Err(error) => return self.observe_failed(&error),
        };
        let Decision { plan: _, report, requeue_after, .. } = &decision;
        let begun = Instant::now();
        let (plan, vetoed) = self.veto_steps(&snapshot, &decision);
        let plan = plan.as_ref();
        let mut pause = pacing::pause_after(took + begun.elapsed());
        if self.settings.dry_run {
            self.log_plan(plan, report);
            return Outcome { requeue_after: *requeue_after, pause: Duration::ZERO, failed: None };
        }
        self.event_recorder.publish(&report.events).await;
        self.refused.expire(Instant::now());
        let applied = apply(&self.client, &self.caches, plan, &self.refused, &self.stop).await;
        self.postpone_refused_writes(&applied);
        if applied.done > 0 {
            // The watches do not report the operator's own writes as changes, and the next pass must react to
            // them, unless nothing follows from them.
            if !plan.only_reports() {
                self.caches.wake.changed.notify_one();
            }
            let fight = self.fight_detector.pause_after(plan, &self.refused, &self.jitter);
            pause = pause.max(fight);
        }
        let mut failures = self.failures_to_report(&applied);
        let fight = self.fight_detector.reported();
        let veto = (!vetoed.is_empty()).then(|| self.jitter.spread(pacing::REFUSED_WRITE));
        let requeue_after =
            requeue_after.iter().copied().chain(fight.iter().map(|(_, left)| *left));
        let requeue_after = requeue_after.chain(veto).min();
        failures.extend(fight.map(|(failure, _)| failure));
        failures.extend(vetoed);
        let outcome = if failures.is_empty() {
            self.write_report(report, &applied, requeue_after).await
        } else {
            let final_report = kata_plan::report_after_apply(&decision, &failures);
            self.event_recorder.publish(&final_report.events).await;
            self.write_report(&final_report, &applied, requeue_after).await
        };
        Outcome { pause, ..outcome }
    }

    fn observe_failed(&self, error: &ObserveError) -> Outcome {
        tracing::warn!(error = chain(error), "cannot observe the cluster; nothing is decided");
        self.metrics.set_ready_unknown();
        let failed = Some(("observe_failed", Retry::Backoff));
        Outcome { requeue_after: None, pause: Duration::ZERO, failed }
    }

    /// The plan without the steps that would break a promise, and these steps as failures for the report.
    /// Every pass counts each broken promise; only the first pass logs it.
    fn veto_steps<'a>(
        &mut self,
        snapshot: &Snapshot,
        decision: &'a Decision,
    ) -> (Cow<'a, Plan>, Vec<StepFailure>) {
        let vetoes = invariants::vetoes(snapshot, &decision.plan);
        let unexplained = invariants::missing_reason(&decision.report);
        let violations: Vec<&Violation> =
            vetoes.iter().map(|veto| &veto.violation).chain(&unexplained).collect();
        for violation in &violations {
            self.metrics.record_promise_violation(violation.property);
        }
        let texts: BTreeSet<String> = violations.iter().map(ToString::to_string).collect();
        for text in texts.difference(&self.violations) {
            tracing::error!(
                error = text,
                "the decision would break a promise; please report this bug"
            );
        }
        self.violations = texts;
        if vetoes.is_empty() {
            return (Cow::Borrowed(&decision.plan), Vec::new());
        }
        let (plan, failures) = invariants::remove_vetoed_steps(&decision.plan, &vetoes);
        (Cow::Owned(plan), failures)
    }

    /// Postpones the writes that were refused for good.
    fn postpone_refused_writes(&mut self, applied: &Applied) {
        for failure in &applied.failures {
            if failure.error.retry() == Retry::AfterChange {
                let until = Instant::now() + self.jitter.spread(pacing::REFUSED_WRITE);
                self.refused.insert(failure, until);
            }
        }
    }

    /// The failures for the status: transient ones only after several failed passes.
    fn failures_to_report(&self, applied: &Applied) -> Vec<StepFailure> {
        applied
            .failures
            .iter()
            .filter(|failure| {
                failure.error.retry() == Retry::AfterChange
                    || self.schedule.failures() >= pacing::FAILURES_BEFORE_REPORT
            })
            .map(Failure::step_failure)
            .chain(applied.postponed.iter().cloned())
            .collect()
    }

    /// The pass on OpenShift without the Machine Config Operator: it only reports.
    async fn run_pass_without_mco(&mut self) -> Outcome {
        let mut configs = match self.observer.configs() {
            Ok(configs) => configs,
            Err(error) => return self.observe_failed(&error),
        };
        let namespace = &self.settings.namespace;
        configs.retain(|it| kata_plan::claimed_by(it).is_none_or(|owner| owner == namespace));
        let report = platform::report_without_mco(&configs, self.settings.clock.now());
        if self.settings.dry_run {
            self.log_plan(&Plan::default(), &report);
            return Outcome { requeue_after: None, pause: Duration::ZERO, failed: None };
        }
        self.event_recorder.publish(&report.events).await;
        self.write_report(&report, &Applied::default(), None).await
    }

    async fn write_report(
        &mut self,
        report: &Report,
        applied: &Applied,
        requeue_after: Option<Duration>,
    ) -> Outcome {
        let written = self.reporter.write_statuses(&self.caches, report).await;
        self.reporter.log_and_export(report);
        // Writes that were refused for good have their own pace, and delay nothing else.
        let now = Instant::now();
        let again = self.refused.next_due().map(|next| next.saturating_duration_since(now));
        let event = self.event_recorder.next_due();
        let mut requeue_after = requeue_after.into_iter().chain(again).chain(event).min();
        let failure =
            applied.failures.iter().find(|failure| failure.error.retry() != Retry::AfterChange);
        let failed = match (failure, written) {
            (Some(failure), _) => {
                let retry = applied.retry().unwrap_or(Retry::Backoff);
                Some((failure.error.category(), retry))
            }
            (None, Err(error)) => {
                log_status_failure(&error);
                Some((error.category(), error.retry()))
            }
            (None, Ok(put_off)) => {
                requeue_after = requeue_after.into_iter().chain(put_off).min();
                None
            }
        };
        Outcome { requeue_after, pause: Duration::ZERO, failed }
    }

    fn log_plan(&mut self, plan: &Plan, report: &Report) {
        let mut text = String::new();
        for step in &plan.steps {
            text.push_str(&format!("would {step}\n"));
        }
        for status in report.status.iter().chain(&report.other_configs) {
            if status.needs_write {
                text.push_str(&format!("would write the status of {}\n", status.config));
            }
        }
        if text != self.logged_plan {
            for line in text.lines() {
                tracing::info!(dry_run = true, "{line}");
            }
            self.logged_plan = text;
        }
        self.reporter.log_and_export(report);
    }
}

fn log_status_failure(error: &CallError) {
    tracing::warn!(
        error.category = error.category(),
        error = chain(error),
        fix = error.fix(),
        "cannot write the status"
    );
}
