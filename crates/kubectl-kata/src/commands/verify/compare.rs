//! What the facts of two probes and of their node say: isolated or not. Pure.
//!
//! The boot id decides, since no two kernels share it and the API tells the node's. Everything else is
//! shown beside it, and never decides alone: on RHCOS the guest's kernel is made of the node's, so that the
//! version is equal by design, and elsewhere the payload may happen to have the node's version.

use kata_api::Code;
use kata_api::probe::ProbeFacts;

use super::{NodeInfo, failed};
use crate::document::{Problem, Signal, SignalVerdict, Verdict, VerifyResult};
use crate::human;

/// How `status.nodeInfo.osImage` of a Node begins on RHCOS.
const RHCOS: &str = "Red Hat Enterprise Linux CoreOS";

/// What came of a node's probes.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) sandboxed: Option<ProbeFacts>,
    pub(super) regular: Option<ProbeFacts>,
    /// Why the sandboxed probe did not answer.
    pub(super) trouble: Option<Obstacle>,
    /// How old the sandboxed probe's pod was when it answered.
    pub(super) pod_age_seconds: f64,
}

/// Why a sandboxed probe does not answer.
#[derive(Clone, Debug)]
pub(super) struct Obstacle {
    pub(super) code: Code,
    pub(super) message: String,
    /// Whether it does not pass by itself, so that nobody need wait.
    pub(super) lasting: bool,
}

impl Obstacle {
    /// One that may pass.
    pub(super) fn new(code: Code, message: String) -> Self {
        Self { code, message, lasting: false }
    }
}

/// The verdict about a node.
pub(super) fn verdict(node: &NodeInfo, handler: &str, outcome: &Outcome, seconds: f64) -> Verdict {
    let subject = format!("node/{}", node.name);
    let Some(sandboxed) = &outcome.sandboxed else {
        let Obstacle { code, message, .. } = outcome.trouble.clone().unwrap_or_else(|| {
            let text = "the sandboxed probe did not answer in time".to_owned();
            Obstacle::new(Code::ProbeFailed, text)
        });
        let code = if code == Code::PermissionMissing { code } else { Code::ProbeFailed };
        return failed(subject, code, message, seconds);
    };
    let mut signals = signals(sandboxed, outcome.regular.as_ref(), Some(node), outcome);
    let advertised = node.handlers.iter().any(|known| known == handler);
    signals.push(Signal {
        name: "handler",
        sandboxed: handler.to_owned(),
        regular: "(default)".to_owned(),
        node: if node.handlers.is_empty() {
            "not reported".to_owned()
        } else {
            node.handlers
                .iter()
                .filter(|name| !name.is_empty())
                .cloned()
                .collect::<Vec<_>>()
                .join(",")
        },
        verdict: match (advertised, node.handlers.is_empty()) {
            (true, _) => SignalVerdict::Pass,
            (false, true) => SignalVerdict::Neutral,
            (false, false) => SignalVerdict::Fail,
        },
        meaning: if advertised { "advertised by the node" } else { "not advertised by the node" },
    });
    let unknown = || "unknown".to_owned();
    signals.push(Signal {
        name: "vmm",
        sandboxed: node.shim.clone().unwrap_or_else(unknown),
        regular: "-".to_owned(),
        node: node.kata.as_ref().map_or_else(unknown, |version| format!("Kata {version}")),
        verdict: SignalVerdict::Neutral,
        meaning: if node.shim.is_some() {
            "as configured, not evidence"
        } else {
            "no node agent reports it"
        },
    });
    let (result, problem) =
        decide(sandboxed, outcome.regular.as_ref(), node.facts.as_ref(), &subject);
    Verdict { subject, result, seconds, signals, problems: problem.into_iter().collect() }
}

/// The deciding comparison.
pub(super) fn decide(
    sandboxed: &ProbeFacts,
    regular: Option<&ProbeFacts>,
    node: Option<&ProbeFacts>,
    subject: &str,
) -> (VerifyResult, Option<Problem>) {
    let others: Vec<&str> = [node, regular]
        .into_iter()
        .flatten()
        .map(|facts| facts.boot_id.as_str())
        .filter(|id| !id.is_empty())
        .collect();
    if sandboxed.boot_id.is_empty() || others.is_empty() {
        let text = "the boot ids cannot be compared: one of them is not known";
        return (
            VerifyResult::Inconclusive,
            Some(Problem::new(Code::IsolationUnproven, subject, text)),
        );
    }
    if others.iter().any(|id| *id == sandboxed.boot_id) {
        let text =
            "it shares the node's kernel (same boot id), although its RuntimeClass is Kata's";
        return (
            VerifyResult::NotIsolated,
            Some(Problem::new(Code::NotSandboxed, subject, text).with_fix(
                "see the handler's configuration in the node's container runtime: it must be of \
                 runtime type vm, or io.containerd.kata.v2",
            )),
        );
    }
    (VerifyResult::Isolated, None)
}

/// The signals of the kernel.
pub(super) fn signals(
    sandboxed: &ProbeFacts,
    regular: Option<&ProbeFacts>,
    info: Option<&NodeInfo>,
    outcome: &Outcome,
) -> Vec<Signal> {
    let node = info.and_then(|info| info.facts.as_ref());
    let of = |facts: Option<&ProbeFacts>, text: &dyn Fn(&ProbeFacts) -> String| {
        facts.map(text).filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
    };
    let row = |name, text: &dyn Fn(&ProbeFacts) -> String, verdict, meaning| Signal {
        name,
        sandboxed: text(sandboxed),
        regular: of(regular, text),
        node: of(node, text),
        verdict,
        meaning,
    };
    let judged = |good: bool| if good { SignalVerdict::Pass } else { SignalVerdict::Fail };
    let differs = |text: &dyn Fn(&ProbeFacts) -> String| {
        [regular, node]
            .into_iter()
            .flatten()
            .map(text)
            .filter(|text| !text.is_empty())
            .all(|other| other != text(sandboxed))
    };
    let boot = |facts: &ProbeFacts| facts.boot_id.clone();
    let cmdline = |facts: &ProbeFacts| facts.cmdline.clone();
    let kernel = |facts: &ProbeFacts| facts.kernel.clone();
    let uptime = |facts: &ProbeFacts| {
        // Kept in whole seconds by people, and not known of the node.
        if facts.uptime_seconds > 0.0 {
            format!("{:.0}s", facts.uptime_seconds)
        } else {
            String::new()
        }
    };
    let size = |facts: &ProbeFacts| {
        format!("{} / {}", facts.cpus, human::memory(i128::from(facts.memory_kib) * 1_024))
    };
    let known = regular.is_some() || node.is_some();
    let own = known && differs(&boot);
    let mut signals = vec![row(
        "boot id",
        &boot,
        judged(own),
        if own { "own kernel instance (deciding)" } else { "the node's kernel (deciding)" },
    )];
    if let Some(regular) = regular {
        let guest = regular.cmdline != sandboxed.cmdline;
        signals.push(row(
            "kernel cmdline",
            &cmdline,
            judged(guest),
            if guest { "guest command line" } else { "the node's command line" },
        ));
        let young = sandboxed.uptime_seconds <= outcome.pod_age_seconds + 60.0
            && sandboxed.uptime_seconds < regular.uptime_seconds;
        signals.push(row(
            "uptime",
            &uptime,
            judged(young),
            if young { "born with the pod" } else { "older than the pod" },
        ));
        let sized = (sandboxed.cpus, sandboxed.memory_kib) != (regular.cpus, regular.memory_kib);
        signals.push(row(
            "cpus / memory",
            &size,
            judged(sized),
            if sized { "VM sized" } else { "the node's size" },
        ));
    }
    signals.push(row(
        "kernel",
        &kernel,
        SignalVerdict::Neutral,
        if differs(&kernel) {
            "differs; not evidence"
        } else if info.is_some_and(|info| info.system.starts_with(RHCOS)) {
            "equal by design on RHCOS, not evidence"
        } else {
            "equal; not evidence"
        },
    ));
    signals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(boot_id: &str) -> ProbeFacts {
        ProbeFacts { boot_id: boot_id.to_owned(), ..ProbeFacts::default() }
    }

    fn node(boot_id: &str) -> NodeInfo {
        NodeInfo {
            name: "n".to_owned(),
            facts: Some(facts(boot_id)),
            handlers: vec!["kata".to_owned()],
            ..NodeInfo::default()
        }
    }

    #[test]
    fn an_equal_kernel_is_by_design_only_on_rhcos() {
        let probe = |kernel: &str| ProbeFacts { kernel: kernel.to_owned(), ..facts("a") };
        let meaning = |system: &str, own: &str| {
            let node = NodeInfo {
                facts: Some(probe("5.14")),
                system: system.to_owned(),
                ..NodeInfo::default()
            };
            let signals = signals(&probe(own), None, Some(&node), &Outcome::default());
            signals.into_iter().find(|signal| signal.name == "kernel").unwrap().meaning
        };
        let rhcos = "Red Hat Enterprise Linux CoreOS 9.6.20251023-0 (Plow)";
        assert_eq!(meaning(rhcos, "5.14"), "equal by design on RHCOS, not evidence");
        for system in ["Ubuntu 24.04.3 LTS", "Red Hat Enterprise Linux 9.6 (Plow)", ""] {
            assert_eq!(meaning(system, "5.14"), "equal; not evidence", "{system}");
        }
        for system in [rhcos, "Ubuntu 24.04.3 LTS"] {
            assert_eq!(meaning(system, "6.18"), "differs; not evidence", "{system}");
        }
    }

    #[test]
    fn the_boot_id_decides_whatever_else_is_equal() {
        let outcome = Outcome {
            sandboxed: Some(facts("a")),
            regular: Some(facts("b")),
            ..Outcome::default()
        };
        assert_eq!(verdict(&node("b"), "kata", &outcome, 1.0).result, VerifyResult::Isolated);
        assert_eq!(verdict(&node("a"), "kata", &outcome, 1.0).result, VerifyResult::NotIsolated);
        let alone = Outcome { sandboxed: Some(facts("a")), ..Outcome::default() };
        let unknown = NodeInfo { facts: None, ..node("b") };
        let found = verdict(&unknown, "kata", &alone, 1.0);
        assert_eq!(found.result, VerifyResult::Inconclusive);
        assert_eq!(found.problems[0].id, "KATA5102");
        let none = verdict(&node("b"), "kata", &Outcome::default(), 1.0);
        assert_eq!(
            (none.result, none.problems[0].id.as_str()),
            (VerifyResult::ProbeFailed, "KATA5103")
        );
    }

    #[test]
    fn a_kernel_that_is_older_than_its_pod_was_not_born_with_it() {
        let uptime = |seconds| ProbeFacts { uptime_seconds: seconds, ..facts("a") };
        let verdict = |guest, pod_age_seconds| {
            let outcome = Outcome { pod_age_seconds, ..Outcome::default() };
            let signals = signals(&uptime(guest), Some(&uptime(90_000.0)), None, &outcome);
            signals.iter().find(|signal| signal.name == "uptime").map(|signal| signal.verdict)
        };
        assert_eq!(verdict(12.0, 14.0), Some(SignalVerdict::Pass));
        assert_eq!(verdict(80_000.0, 14.0), Some(SignalVerdict::Fail));
    }
}
