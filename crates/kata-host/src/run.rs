//! One run on one node: lock, finish what was interrupted, look, decide, carry out, report.

use std::collections::BTreeSet;
use std::time::Duration;

use kata_api::Code;
use kata_api::node_task::{
    EarlierRelease, FailedCheck, NODE_TASK_VERSION, NodeAction, NodeReport, NodeTask, Outcome,
    REPORT_BYTES, SandboxInTheWay,
};

use crate::check::Check;
use crate::containerd::live;
use crate::cri::Cri;
use crate::decide::decide;
use crate::decision::Decision;
use crate::durable;
use crate::execute::{End, execute, keep_room};
use crate::host::{Host, HostError, Sandbox};
use crate::journal::{self, JournalError, State};
use crate::kata_deploy;
use crate::observe::{Modules, Observed, observe};
use crate::paths;
use crate::plan::{HostPlan, Retained};
use crate::recover::recover;
use crate::trace::Trace;

/// How long to wait for another agent on the node.
const LOCK_LIMIT: Duration = Duration::from_secs(60);
/// The sandboxes that a report names.
const NAMED_SANDBOXES: usize = 10;
/// The checks that a report names.
const NAMED_CHECKS: usize = 8;
/// The longest message of a report in bytes.
const MESSAGE_BYTES: usize = 300;
/// How much of a message is given up so that it ends with a word, in bytes.
const WORD_BYTES: usize = 40;

/// Carries a task out on a node.
///
/// # Guarantees
/// Whenever the process ends, by itself or not, the next call finishes or undoes what was begun.
/// Files of others are as before, or as the container runtime was proven to accept them.
/// The container runtime is restarted at most once for a change and once more to go back.
/// [`NodeAction::Preflight`] and [`NodeAction::Inspect`] change no file, and at most ask the kernel for a module.
pub fn run(host: &mut dyn Host, task: &NodeTask) -> NodeReport {
    let mut report = Report::new(task);
    if task.version > NODE_TASK_VERSION {
        let message = format!(
            "the task has version {}, and this agent knows {NODE_TASK_VERSION}: update the agent's image",
            task.version
        );
        report.end(Outcome::Failed, message);
        return report.finish();
    }
    let installs = task.action == NodeAction::Install;
    let writes = installs || task.action == NodeAction::Remove;
    if writes && !lock(host, paths::LOCK, Code::AgentBusy, &mut report) {
        return report.finish();
    }
    // kata-deploy may be changing the node at this moment.
    if writes
        && task.take_over
        && !lock(host, kata_deploy::LOCK, Code::TakeOverRefused, &mut report)
    {
        return report.finish();
    }
    let mut state = match journal::load(host) {
        Ok(state) => state,
        Err(error) => {
            let code = match &error {
                JournalError::Host(_) => Code::HostCallFailed,
                JournalError::Unreadable { .. } => Code::JournalUnreadable,
            };
            report.end_with(
                Outcome::Failed,
                &Check::new(code, error.to_string()),
                error.to_string(),
            );
            return report.finish();
        }
    };
    let mut trace = Trace::default();
    let mut went_back = None;
    if writes {
        if !installs
            && state.transaction.is_some()
            && let Err(error) = durable::release_room(host)
        {
            report.call_failed(&error);
            return report.finish();
        }
        match recover(host, &mut state, installs, &mut trace) {
            Ok(found) => went_back = found,
            Err(end) => {
                report.trace(&trace);
                report.finish_with(*end);
                report.installed(&state);
                return report.finish();
            }
        }
    }
    report.installed(&state);
    let observed = match observe(host, task, state.clone(), Modules::Load) {
        Ok(observed) => observed,
        Err(error) => {
            report.trace(&trace);
            report.call_failed(&error);
            return report.finish();
        }
    };
    report.observed(&observed);
    if let Ok(cri) = &observed.cri {
        trace.note(&cri.sandboxes);
    }
    let Decision { checks, in_the_way, plan, drift } = decide(task, &observed);
    checks.iter().for_each(|check| report.check(check));
    report.trace(&trace);
    if let Some(fatal) = checks.iter().find(|check| check.fatal()) {
        report.fail(Outcome::Refused, fatal);
        return report.finish();
    }
    match task.action {
        NodeAction::Preflight => report.end(Outcome::Done, String::new()),
        NodeAction::Inspect => report.inspected(&observed, &drift),
        NodeAction::Install | NodeAction::Remove => {
            if !in_the_way.is_empty() {
                report.blocked(&in_the_way);
                return report.finish();
            }
            let Some(plan) = plan else {
                // An earlier version of the agent kept none.
                keep_room(host, &state);
                report.end(Outcome::Done, String::new());
                return report.finish();
            };
            let end = match went_back {
                // Once is enough: it would fail again, and the container runtime be away twice more.
                Some(went_back) if went_back.is_again(&plan) => End::RolledBack(went_back.check),
                Some(went_back) => {
                    let message =
                        format!("an earlier change was rolled back: {}", went_back.check.message);
                    report.check(&Check::new(Code::ChangeInterrupted, message));
                    execute(host, &mut state, plan, &mut trace)
                }
                None => execute(host, &mut state, plan, &mut trace),
            };
            report.trace(&trace);
            report.finish_with(end);
            report.installed(&state);
        }
    }
    report.finish()
}

/// The plan that [`run`] would carry out now; nothing is changed.
///
/// # Errors
/// Why there is none: the checks that speak against it, a sentence each.
pub fn plan(host: &mut dyn Host, task: &NodeTask) -> Result<Option<HostPlan>, Vec<String>> {
    let state = journal::load(host).map_err(|error| vec![error.to_string()])?;
    if state.transaction.is_some() {
        return Err(vec![Code::ChangeInterrupted.entry().cause.to_owned()]);
    }
    let observed =
        observe(host, task, state, Modules::Name).map_err(|error| vec![error.to_string()])?;
    let decision = decide(task, &observed);
    let fatal: Vec<String> = decision
        .checks
        .iter()
        .filter(|check| check.fatal())
        .map(|check| format!("{} {}", check.code, sentence(check)))
        .collect();
    if !fatal.is_empty() {
        return Err(fatal);
    }
    if !decision.in_the_way.is_empty() {
        let names = decision.in_the_way.iter().map(|s| format!("{}/{}", s.namespace, s.pod));
        return Err(vec![format!(
            "{} {} {}",
            Code::SandboxesInTheWay,
            Code::SandboxesInTheWay.entry().cause,
            names.collect::<Vec<_>>().join(", ")
        )]);
    }
    Ok(decision.plan)
}

/// Waits for a lock; without it, the report says so with this code.
fn lock(host: &mut dyn Host, path: &str, code: Code, report: &mut Report) -> bool {
    let end = host.now() + LOCK_LIMIT;
    loop {
        match host.lock(path) {
            Ok(true) => return true,
            Ok(false) if host.now() < end => host.wait(Duration::from_millis(250)),
            Ok(false) => {
                let message = match code {
                    Code::TakeOverRefused => {
                        format!(
                            "kata-deploy is working on the node: {path} was not free within 60 s"
                        )
                    }
                    _ => "the lock was not free within 60 s".to_owned(),
                };
                report.fail(Outcome::Failed, &Check::new(code, message));
                return false;
            }
            Err(error) => {
                report.call_failed(&error);
                return false;
            }
        }
    }
}

/// The report of a task that is refused before [`run`] is called, for what is wrong with what was asked for.
pub fn refused(task: &NodeTask, code: Code, message: &str) -> NodeReport {
    let mut report = Report::new(task);
    report.fail(Outcome::Refused, &Check::new(code, message));
    report.finish()
}

/// Cause, and what was found.
fn cause(check: &Check) -> String {
    let cause = check.code.entry().cause.trim_end_matches('.');
    match check.message.trim_end_matches(|end: char| end == '.' || end.is_whitespace()) {
        "" => cause.to_owned(),
        message => format!("{cause}: {message}"),
    }
}

/// Cause, what was found, and what to do.
fn sentence(check: &Check) -> String {
    format!("{}. {}", cause(check), check.code.entry().fix)
}

/// The message of a report. If it would be too long, what to do is left out: the page of the code has it.
fn short_sentence(check: &Check) -> String {
    Some(sentence(check)).filter(|text| text.len() <= MESSAGE_BYTES).unwrap_or_else(|| cause(check))
}

/// What was found, and no more: the operator says what a drift means and what to do about it, and everything that
/// an inspection finds is fixed in the same way.
fn found(check: &Check) -> String {
    let said = if check.message.is_empty() { check.code.entry().cause } else { &check.message };
    said.trim_end_matches('.').to_owned()
}

struct Report {
    report: NodeReport,
    checks: Vec<FailedCheck>,
    /// The check that the message is about.
    about: Option<FailedCheck>,
    /// The sandboxes that a restart has cost, which a report names also if it has nothing else to say.
    lost: Option<Check>,
    /// The earlier releases that are kept, and the sandboxes that there are, as far as is known.
    retained: Vec<Retained>,
    /// The sandboxes that run from the payload of kata-deploy.
    of_kata_deploy: BTreeSet<String>,
    sandboxes: Vec<Sandbox>,
}

impl Report {
    fn new(task: &NodeTask) -> Self {
        Self {
            report: NodeReport {
                version: NODE_TASK_VERSION,
                action: task.action,
                outcome: Outcome::Failed,
                changed: false,
                restarted: false,
                runtime: String::new(),
                handlers: None,
                payload_digest: None,
                kata_version: None,
                earlier: Vec::new(),
                checks: Vec::new(),
                more_checks: 0,
                sandboxes: Vec::new(),
                sandbox_count: 0,
                message: String::new(),
            },
            checks: Vec::new(),
            about: None,
            lost: None,
            retained: Vec::new(),
            of_kata_deploy: BTreeSet::new(),
            sandboxes: Vec::new(),
        }
    }

    fn end(&mut self, outcome: Outcome, message: String) {
        self.report.outcome = outcome;
        self.report.message = message;
    }

    fn check(&mut self, check: &Check) {
        let failed = named(check);
        if !self.checks.contains(&failed) {
            self.checks.push(failed);
        }
    }

    /// An end that one of the checks reports.
    fn end_with(&mut self, outcome: Outcome, check: &Check, message: String) {
        self.check(check);
        self.about = Some(named(check));
        self.end(outcome, message);
    }

    fn trace(&mut self, trace: &Trace) {
        self.report.changed |= trace.changed;
        self.report.restarted |= trace.restarted;
        if let Some(lost) = trace.lost() {
            self.checks.retain(|check| check.code != lost.code.entry().code);
            self.check(&lost);
            self.lost = Some(lost);
        }
    }

    fn installed(&mut self, state: &State) {
        let installed = state.installed.as_ref();
        self.report.payload_digest = installed.map(|installed| installed.digest.clone());
        self.report.kata_version = installed.and_then(|installed| installed.kata_version.clone());
        self.retained = installed.map_or_else(Vec::new, |installed| installed.retained.clone());
        let taken = installed.and_then(|installed| installed.taken.as_ref());
        self.of_kata_deploy = taken.map(|taken| taken.sandboxes.clone()).unwrap_or_default();
    }

    fn observed(&mut self, observed: &Observed) {
        match &observed.cri {
            Ok(cri) => self.cri(cri),
            Err(_) => self.report.handlers = None,
        }
    }

    fn cri(&mut self, cri: &Cri) {
        self.report.runtime = format!("{} {}", cri.version.name, cri.version.version);
        self.report.handlers = Some(live(&cri.status).handlers.into_iter().collect());
        self.sandboxes.clone_from(&cri.sandboxes);
    }

    fn inspected(&mut self, observed: &Observed, drift: &[Check]) {
        drift.iter().for_each(|check| self.check(check));
        if observed.state.transaction.is_some() {
            let check = Check::new(Code::ChangeInterrupted, "");
            self.end_with(Outcome::Drifted, &check, found(&check));
            return;
        }
        match drift.first() {
            None => self.end(Outcome::Done, String::new()),
            Some(first) => self.end_with(Outcome::Drifted, first, found(first)),
        }
    }

    fn blocked(&mut self, sandboxes: &[Sandbox]) {
        self.report.sandbox_count = u32::try_from(sandboxes.len()).unwrap_or(u32::MAX);
        self.report.sandboxes = sandboxes
            .iter()
            .take(NAMED_SANDBOXES)
            .map(|sandbox| SandboxInTheWay {
                namespace: sandbox.namespace.clone(),
                pod: sandbox.pod.clone(),
                handler: sandbox.handler.clone(),
            })
            .collect();
        let check = Check::new(Code::SandboxesInTheWay, format!("{} run", sandboxes.len()));
        self.end_with(Outcome::Blocked, &check, short_sentence(&check));
    }

    fn finish_with(&mut self, end: End) {
        match end {
            End::Committed(cri) => {
                if let Some(cri) = cri {
                    self.cri(&cri);
                }
                self.end(Outcome::Done, String::new());
            }
            End::RolledBack(check) => self.fail(Outcome::RolledBack, &check),
            End::Unsafe(check) => self.fail(Outcome::Unsafe, &check),
            End::Failed(check) => self.fail(Outcome::Failed, &check),
            End::Blocked(sandboxes) => self.blocked(&sandboxes),
        }
    }

    /// An end because the node did not let us do something before anything was begun.
    fn call_failed(&mut self, error: &HostError) {
        let check = Check::new(Code::HostCallFailed, error.to_string());
        self.end_with(Outcome::Failed, &check, error.to_string());
    }

    fn fail(&mut self, outcome: Outcome, check: &Check) {
        self.end_with(outcome, check, short_sentence(check));
    }

    /// Cuts the report so that it fits into a termination message.
    fn finish(self) -> NodeReport {
        let Self { mut report, mut checks, mut about, lost, retained, of_kata_deploy, sandboxes } =
            self;
        report.earlier = earlier(&retained, &of_kata_deploy, &sandboxes);
        if let Some(lost) = lost
            && report.message.is_empty()
        {
            report.message = short_sentence(&lost);
            about = Some(named(&lost));
        }
        // What the message is about comes first, and a list that is too long loses something else than what a
        // restart has cost.
        let lost = Code::SandboxesLost.entry().code;
        checks
            .sort_by_key(|check| (Some(check) != about.as_ref(), !check.fatal, check.code != lost));
        report.message = shorten(&report.message);
        let all = checks.len();
        checks.truncate(NAMED_CHECKS);
        report.checks = checks;
        loop {
            report.more_checks =
                u32::try_from(all.saturating_sub(report.checks.len())).unwrap_or(u32::MAX);
            let length = serde_json::to_vec(&report).map_or(0, |bytes| bytes.len());
            if length <= REPORT_BYTES {
                return report;
            }
            // What is cut first is what an admin misses least.
            let cut = report.earlier.iter_mut().rev().any(count_one_instead)
                || report.sandboxes.pop().is_some()
                || report.checks.pop().is_some()
                || report.handlers.take().is_some();
            if !cut {
                report.message.clear();
                return report;
            }
        }
    }
}

/// The pods that run on releases which are not current, and those of the sandboxes `of_kata_deploy`.
fn earlier(
    retained: &[Retained],
    of_kata_deploy: &BTreeSet<String>,
    sandboxes: &[Sandbox],
) -> Vec<EarlierRelease> {
    let pods = |ids: &BTreeSet<String>| -> Vec<String> {
        let running = sandboxes.iter().filter(|it| it.ready && ids.contains(&it.id));
        let pods = running.map(|sandbox| EarlierRelease::listed(&sandbox.uid).to_owned());
        pods.collect::<BTreeSet<String>>().into_iter().collect()
    };
    let ours = retained.iter().map(|release| EarlierRelease {
        kata_version: release.kata_version.clone(),
        pods: pods(&release.sandboxes),
        ..EarlierRelease::default()
    });
    let theirs = EarlierRelease {
        pods: pods(of_kata_deploy),
        of_kata_deploy: true,
        ..EarlierRelease::default()
    };
    ours.chain([theirs]).filter(|release| !release.pods.is_empty()).collect()
}

/// Counts a pod instead of listing it; false if there is none.
fn count_one_instead(release: &mut EarlierRelease) -> bool {
    let cut = release.pods.pop().is_some();
    release.more_pods += i64::from(cut);
    cut
}

fn named(check: &Check) -> FailedCheck {
    FailedCheck {
        code: check.code.to_string(),
        fatal: check.fatal(),
        message: shorten(&check.message),
    }
}

/// As much of a text as a report may have of one.
fn shorten(text: &str) -> String {
    if text.len() <= MESSAGE_BYTES {
        return text.to_owned();
    }
    let end = (0..=MESSAGE_BYTES - 4).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let start = text.get(..end).unwrap_or_default();
    // Up to the end of a word, unless that costs too much, as the end of a long path would.
    let end = match text.get(end..) {
        Some(rest) if rest.starts_with(char::is_whitespace) => end,
        _ => {
            let word = start.rfind(char::is_whitespace).filter(|word| end - word <= WORD_BYTES);
            word.unwrap_or(end)
        }
    };
    format!("{} …", text.get(..end).unwrap_or_default().trim_end())
}
