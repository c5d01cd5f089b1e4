//! The loop, and one pass of it: observe, decide, apply, report.
//!
//! There is one key and one pass at a time. A pass takes no hint of what changed, remembers nothing that
//! matters, and never waits for the cluster: it returns when to look again.

use std::sync::Arc;
use std::time::Duration;

use kata_plan::invariants::Violation;
use kata_plan::{Decision, Plan, Report, Snapshot, StepFailure};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::announce::Announcer;
use crate::apply::{Applied, Refused, apply};
use crate::client::Client;
use crate::error::{CallError, Retry, chain};
use crate::jitter::Jitter;
use crate::metrics::Metrics;
use crate::observe::{Caches, ObserveError, Observer};
use crate::platform::{self, Detected};
use crate::report::Reporter;
use crate::rival::Rival;
use crate::settings::{DEBOUNCE, RESYNC, Settings};
use crate::traces;

/// The longest wait after a failure.
const BACKOFF_CAP: Duration = Duration::from_secs(30);
/// The first wait after a failure.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
/// After how many failed passes in a row even a failure that should pass by itself is told.
const PATIENCE: u32 = 3;
/// A pass is followed by a rest of so many times what it took the processor, so that a storm of changes
/// costs a bounded part of it; a change that comes alone is acted on at once.
const REST: u32 = 9;
/// The longest such rest.
const REST_CAP: Duration = Duration::from_secs(5);
/// How often an idle loop shows that it is alive.
const BEAT: Duration = Duration::from_secs(30);

/// The controller of KataConfigs.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    client: Client,
    caches: Arc<Caches>,
    observer: Observer,
    announcer: Announcer,
    reporter: Reporter,
    jitter: Arc<Jitter>,
    metrics: Metrics,
    poke: Arc<Notify>,
    tasks: JoinSet<()>,
    stop: watch::Receiver<bool>,
    /// How many passes failed in a row.
    attempt: u32,
    /// Who undoes what is written, or an API server that does not do as it says. Only the pace depends on it.
    rival: Rival,
    /// What was refused for good, and is sent again after a while.
    refused: Refused,
    /// What a dry run said last.
    planned: String,
}

/// What a pass came to.
#[derive(Debug)]
struct Outcome {
    /// When to look again if nothing changes.
    look_again: Option<Duration>,
    /// How long to wait at least.
    pace: Duration,
    /// What failed, if something did, and when to try again.
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
        let poke = Arc::new(Notify::new());
        let options = kata_plan::Options {
            namespace: settings.namespace.clone(),
            ..settings.options.clone()
        };
        let caches = Arc::new(Caches::new(&poke, &options));
        let observer = Observer::new(client.clone(), Arc::clone(&caches), settings.clock, options);
        let announcer = Announcer::new(client.clone(), settings.clock, settings.instance.clone());
        let reporter = Reporter::new(client.clone(), metrics.clone());
        Self {
            settings,
            client,
            caches,
            observer,
            announcer,
            reporter,
            jitter,
            metrics,
            poke,
            tasks: JoinSet::new(),
            stop,
            attempt: 0,
            rival: Rival::default(),
            refused: Refused::default(),
            planned: String::new(),
        }
    }

    /// Works until `stop` becomes true. Dropping it at any moment does no harm.
    pub async fn work(mut self) {
        let mut detected = self.detect().await;
        self.caches.follow_configs(&mut self.tasks, &self.client, &self.jitter, &self.metrics);
        self.follow_cluster(detected);
        let start = Instant::now();
        let (mut due, mut resync) = (start + RESYNC, start + RESYNC);
        let mut not_before = start;
        loop {
            let platform = detected.platform();
            self.wait(due.min(resync), not_before, platform).await;
            if *self.stop.borrow() {
                return;
            }
            let begun = Instant::now();
            if !self.caches.have_answers(platform) {
                // The first answer pokes; until then nothing is due, or this would go round for ever.
                due = due.max(begun + BEAT);
                resync = resync.max(begun + BEAT);
                continue;
            }
            if begun >= resync {
                resync = begun + RESYNC;
                if platform.is_none() {
                    detected = self.detect().await;
                    if detected.platform().is_some() {
                        self.follow_cluster(detected);
                        continue;
                    }
                }
                if platform.is_some() {
                    self.observer.resync().await;
                }
            }
            self.reporter.settle(&self.caches).await;
            let outcome = self.traced_pass(platform.is_some()).await;
            let now = Instant::now();
            let Outcome { look_again, pace, failed } = outcome;
            let result = failed.map_or("ok", |(category, _)| category);
            self.metrics.reconcile(result, now - begun);
            self.metrics.set_checks(self.caches.checks(platform));
            match failed {
                None => {
                    self.attempt = 0;
                    // Whatever asks for a pass at once, passes that change nothing must not follow each other.
                    due =
                        look_again.map_or(now + RESYNC, |wait| now + wait.max(pace).max(DEBOUNCE));
                    not_before = now + pace;
                }
                Some((_, retry)) => {
                    let wait = match retry {
                        Retry::Reread | Retry::Backoff => {
                            self.jitter.backoff(self.attempt, BACKOFF_FIRST, BACKOFF_CAP)
                        }
                        Retry::After(wait) => wait.min(BACKOFF_CAP).max(BACKOFF_FIRST),
                        Retry::AfterChange => self.jitter.spread(BACKOFF_CAP),
                        Retry::Never => BACKOFF_CAP,
                    };
                    self.attempt = self.attempt.saturating_add(1);
                    due = now + wait;
                    // Our own status write must not cut the wait short.
                    not_before = due;
                }
            }
        }
    }

    /// Waits for a change or until `due`, but at least until `not_before` or the end.
    async fn wait(
        &mut self,
        due: Instant,
        not_before: Instant,
        platform: Option<kata_plan::Platform>,
    ) {
        let mut stop = self.stop.clone();
        let mut changed = false;
        loop {
            let now = Instant::now();
            self.metrics.beat();
            self.metrics.set_checks(self.caches.checks(platform));
            if *stop.borrow() || now >= due || (changed && now >= not_before) {
                return;
            }
            let wake = if changed { not_before.min(due) } else { due }.min(now + BEAT);
            tokio::select! {
                biased;
                ended = stop.changed() => if ended.is_err() { return },
                () = self.poke.notified(), if !changed => {
                    changed = true;
                    tokio::time::sleep_until(Instant::now() + DEBOUNCE).await;
                    // What came during the debounce is part of the pass that follows.
                    let more = self.poke.notified();
                    let _was_more = futures::FutureExt::now_or_never(more).is_some();
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Starts to follow what matters on the cluster that it is.
    fn follow_cluster(&mut self, detected: Detected) {
        let Some(platform) = detected.platform() else { return };
        self.observer.set_platform(platform);
        let (tasks, client) = (&mut self.tasks, &self.client);
        self.caches.follow_cluster(platform, tasks, client, &self.jitter, &self.metrics);
    }

    /// Finds out what kind of cluster it is; waits for the API server as long as it takes.
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
                        "cannot find out what the API server serves"
                    );
                }
            }
            let wait = self.jitter.backoff(attempt, BACKOFF_FIRST, BACKOFF_CAP);
            attempt += 1;
            tokio::time::sleep_until(Instant::now() + wait).await;
        }
    }

    /// A pass, and what it came to in a trace.
    async fn traced_pass(&mut self, detected: bool) -> Outcome {
        let span = traces::pass();
        let line = traces::line(&span);
        let pass =
            async { if detected { self.pass().await } else { self.pass_without_mco().await } };
        let outcome = pass.instrument(span.clone()).instrument(line).await;
        traces::ended(&span, outcome.failed.map(|(category, _)| category));
        outcome
    }

    async fn pass(&mut self) -> Outcome {
        let decided = self.observer.decide().instrument(traces::part("decide")).await;
        let (snapshot, decision, thought) = match decided {
            Ok(decided) => decided,
            Err(error) => return blind(&error),
        };
        let Decision { plan, report, look_again } = &decision;
        if self.settings.dry_run {
            self.say_plan(plan, report);
            return Outcome { look_again: *look_again, pace: Duration::ZERO, failed: None };
        }
        let begun = Instant::now();
        let broken = kata_plan::invariants::check(&snapshot, &decision);
        let rest = ((thought + begun.elapsed()) * REST).min(REST_CAP);
        if !broken.is_empty() {
            return self.refuse(&snapshot, &decision, &broken).await;
        }
        self.announcer.announce(&report.events).await;
        self.refused.expire(Instant::now());
        let applied = apply(&self.client, &self.caches, plan, &self.refused, &self.stop).await;
        self.remember_refusals(&applied);
        if applied.done > 0 {
            // What was written is in the caches already, so that no watch event will tell of it; what
            // follows from it is for the next pass.
            self.poke.notify_one();
        }
        let mut pace = rest;
        if applied.done > 0 {
            pace = pace.max(self.rival.pace(plan, &self.refused, &self.jitter));
        }
        let mut failures = self.worth_telling(&applied);
        let told = self.rival.told();
        let look_again = look_again.iter().copied().chain(told.iter().map(|(_, more)| *more)).min();
        failures.extend(told.map(|(failure, _)| failure));
        let outcome = if failures.is_empty() {
            self.report(report, &applied, look_again).await
        } else {
            let concluded = kata_plan::conclude(&snapshot, &decision, &failures);
            self.announcer.announce(&concluded.events).await;
            self.report(&concluded, &applied, look_again).await
        };
        Outcome { pace, ..outcome }
    }

    /// Does nothing of a plan that breaks a promise, which is a bug of ours, and says so.
    async fn refuse(
        &mut self,
        snapshot: &Snapshot,
        decision: &Decision,
        broken: &[Violation],
    ) -> Outcome {
        let text: Vec<String> = broken.iter().map(ToString::to_string).collect();
        let text = text.join("; ");
        tracing::error!(
            error = text,
            "refused a plan that breaks a promise; please report this bug"
        );
        let object = decision.plan.steps.first().map(|step| step.action.object().clone());
        let failures: Vec<StepFailure> = object
            .map(|object| StepFailure {
                object,
                error: format!("refused by the operator: {text}"),
                undone: false,
            })
            .into_iter()
            .collect();
        let concluded = kata_plan::conclude(snapshot, decision, &failures);
        self.announcer.announce(&concluded.events).await;
        let Outcome { look_again, .. } =
            self.report(&concluded, &Applied::default(), decision.look_again).await;
        Outcome { look_again, pace: Duration::ZERO, failed: Some(("refused", Retry::AfterChange)) }
    }

    /// Remembers what was refused for good.
    fn remember_refusals(&mut self, applied: &Applied) {
        for failure in &applied.failures {
            if failure.error.retry() == Retry::AfterChange {
                let until = Instant::now() + self.jitter.spread(BACKOFF_CAP);
                self.refused.remember(&failure.action, failure.error.cause(), until);
            }
        }
    }

    /// The failures that do not pass by themselves in a moment, which the status shall tell.
    fn worth_telling(&self, applied: &Applied) -> Vec<StepFailure> {
        applied
            .failures
            .iter()
            .filter(|failure| {
                failure.error.retry() == Retry::AfterChange || self.attempt >= PATIENCE
            })
            .map(|failure| StepFailure {
                object: failure.object.clone(),
                error: failure.error.cause(),
                undone: false,
            })
            .chain(applied.held.iter().cloned())
            .collect()
    }

    /// The pass on OpenShift without the Machine Config Operator: says that nothing will be done.
    async fn pass_without_mco(&mut self) -> Outcome {
        let configs = match self.observer.configs() {
            Ok(configs) => configs,
            Err(error) => return blind(&error),
        };
        let report = platform::report_without_mco(&configs, self.settings.clock.now());
        if self.settings.dry_run {
            self.say_plan(&Plan::default(), &report);
            return Outcome { look_again: None, pace: Duration::ZERO, failed: None };
        }
        self.announcer.announce(&report.events).await;
        self.report(&report, &Applied::default(), None).await
    }

    async fn report(
        &mut self,
        report: &Report,
        applied: &Applied,
        look_again: Option<Duration>,
    ) -> Outcome {
        traces::found(report);
        let written =
            self.reporter.statuses(&self.caches, report).instrument(traces::part("report")).await;
        self.reporter.tell(report);
        // What was refused for good has a pace of its own, and slows down nothing else.
        let now = Instant::now();
        let again = self.refused.next().map(|next| next.saturating_duration_since(now));
        let unsaid = self.announcer.next();
        let mut look_again = look_again.into_iter().chain(again).chain(unsaid).min();
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
                look_again = look_again.into_iter().chain(put_off).min();
                None
            }
        };
        Outcome { look_again, pace: Duration::ZERO, failed }
    }

    fn say_plan(&mut self, plan: &Plan, report: &Report) {
        traces::found(report);
        let mut text = String::new();
        for step in &plan.steps {
            text.push_str(&format!("would {step}\n"));
        }
        for status in report.status.iter().chain(&report.other_configs) {
            if status.patch.is_some() {
                text.push_str(&format!("would write the status of {}\n", status.config));
            }
        }
        if text != self.planned {
            for line in text.lines() {
                tracing::info!(dry_run = true, "{line}");
            }
            self.planned = text;
        }
        self.reporter.tell(report);
    }
}

fn blind(error: &ObserveError) -> Outcome {
    tracing::warn!(error = chain(error), "nothing can be decided");
    Outcome { look_again: None, pace: Duration::ZERO, failed: Some(("blind", Retry::Backoff)) }
}

fn log_status_failure(error: &CallError) {
    tracing::warn!(
        error.category = error.category(),
        error = chain(error),
        "cannot write the status"
    );
}
