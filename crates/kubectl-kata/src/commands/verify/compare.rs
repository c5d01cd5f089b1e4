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
    let compared = Compared {
        sandboxed,
        regular: outcome.regular.as_ref(),
        node: Some(node),
        age: Some(outcome.pod_age_seconds),
        handler: Some(handler),
    };
    let signals = compared.signals();
    let (result, problem) =
        decide(sandboxed, outcome.regular.as_ref(), node.facts.as_ref(), &subject);
    let problems = problem.into_iter().collect();
    Verdict { subject, result, seconds, signals, problems, host: None, host_unknown: false }
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

/// A pod and what it is compared with.
pub(super) struct Compared<'a> {
    pub(super) sandboxed: &'a ProbeFacts,
    pub(super) regular: Option<&'a ProbeFacts>,
    pub(super) node: Option<&'a NodeInfo>,
    /// How old the pod was when it answered, in seconds.
    pub(super) age: Option<f64>,
    /// The handler of its RuntimeClass.
    pub(super) handler: Option<&'a str>,
}

impl Compared<'_> {
    /// All signals. A meaning has at most 28 characters, so that it is whole on a terminal of 80 columns.
    pub(super) fn signals(&self) -> Vec<Signal> {
        let mut signals = vec![self.boot_id(), self.command_line()];
        signals.extend(self.uptime());
        signals.push(self.size());
        signals.push(self.kernel());
        signals.extend(self.handler.map(|handler| self.handler(handler)));
        signals.extend(self.handler.and(self.node).map(vmm));
        signals
    }

    fn others(&self) -> impl Iterator<Item = &ProbeFacts> {
        let node = self.node.and_then(|info| info.facts.as_ref());
        [self.regular, node].into_iter().flatten()
    }

    fn row(
        &self,
        name: &'static str,
        text: impl Fn(&ProbeFacts) -> String,
        verdict: SignalVerdict,
        meaning: &'static str,
    ) -> Signal {
        let of = |facts: Option<&ProbeFacts>| {
            facts.map(&text).filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
        };
        Signal {
            name,
            sandboxed: of(Some(self.sandboxed)),
            regular: of(self.regular),
            node: of(self.node.and_then(|info| info.facts.as_ref())),
            verdict,
            meaning,
        }
    }

    fn boot_id(&self) -> Signal {
        let own = &self.sandboxed.boot_id;
        let others: Vec<&str> =
            self.others().map(|it| it.boot_id.as_str()).filter(|id| !id.is_empty()).collect();
        let (verdict, meaning) = if own.is_empty() || others.is_empty() {
            (SignalVerdict::Neutral, "nothing to compare with")
        } else if others.iter().any(|id| id == own) {
            (SignalVerdict::Fail, "node's kernel (deciding)")
        } else {
            (SignalVerdict::Pass, "own kernel (deciding)")
        };
        self.row("boot id", |it| it.boot_id.clone(), verdict, meaning)
    }

    /// The node's command line is known from a pod on its kernel only.
    fn command_line(&self) -> Signal {
        let text = |it: &ProbeFacts| it.cmdline.clone();
        let (verdict, meaning) = match self.regular {
            None => (SignalVerdict::Neutral, "shown, not compared"),
            Some(it) if it.cmdline == self.sandboxed.cmdline => {
                (SignalVerdict::Fail, "the node's command line")
            }
            Some(_) => (SignalVerdict::Pass, "guest command line"),
        };
        self.row("cmdline", text, verdict, meaning)
    }

    /// A kernel that was born with its pod is young. That proves nothing unless another kernel is older, and a pod may
    /// be older than its node's last boot.
    fn uptime(&self) -> Option<Signal> {
        let age = self.age?;
        let uptime = self.sandboxed.uptime_seconds;
        let text = |it: &ProbeFacts| match it.uptime_seconds {
            // The API has no uptime of a node.
            seconds if seconds > 0.0 => format!("{seconds:.0}s"),
            _ => String::new(),
        };
        let (verdict, meaning) = match self.regular {
            None if uptime > age + SKEW => (SignalVerdict::Fail, "older than the pod"),
            None => (SignalVerdict::Neutral, "not older than the pod"),
            Some(it) if uptime <= age + SLACK && uptime < it.uptime_seconds => {
                (SignalVerdict::Pass, "born with the pod")
            }
            Some(_) => (SignalVerdict::Fail, "older than the pod"),
        };
        Some(self.row("uptime", text, verdict, meaning))
    }

    fn size(&self) -> Signal {
        let size = |it: &ProbeFacts| (it.cpus, it.memory_kib);
        let text = |it: &ProbeFacts| {
            format!("{} / {}", it.cpus, human::memory(i128::from(it.memory_kib) * 1_024))
        };
        let is_known = self.others().next().is_some();
        let (verdict, meaning) = if !is_known {
            (SignalVerdict::Neutral, "the node's is not known")
        } else if self.others().any(|it| size(it) == size(self.sandboxed)) {
            (SignalVerdict::Fail, "the node's size")
        } else {
            (SignalVerdict::Pass, "size of a VM")
        };
        self.row("cpu / mem", text, verdict, meaning)
    }

    fn kernel(&self) -> Signal {
        let kernels = || self.others().map(|it| &it.kernel).filter(|text| !text.is_empty());
        let meaning = if kernels().all(|it| *it != self.sandboxed.kernel) {
            "differs; not evidence"
        } else if self.node.is_some_and(|info| info.system.starts_with(RHCOS)) {
            "equal by design on RHCOS"
        } else {
            "equal; not evidence"
        };
        self.row("kernel", |it| it.kernel.clone(), SignalVerdict::Neutral, meaning)
    }

    fn handler(&self, handler: &str) -> Signal {
        let reported = self.node.map(|node| node.handlers.as_slice()).unwrap_or_default();
        let names: Vec<&str> =
            reported.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let (verdict, meaning) = if self.node.is_none() {
            (SignalVerdict::Neutral, "the node is not visible")
        } else if reported.is_empty() {
            (SignalVerdict::Neutral, "the node reports none")
        } else if reported.iter().any(|name| name == handler) {
            (SignalVerdict::Pass, "reported by the node")
        } else {
            (SignalVerdict::Fail, "not reported by the node")
        };
        Signal {
            name: "handler",
            sandboxed: handler.to_owned(),
            regular: if self.regular.is_some() { "(default)" } else { "-" }.to_owned(),
            node: if reported.is_empty() { "-".to_owned() } else { names.join(",") },
            verdict,
            meaning,
        }
    }
}

/// How much older than its pod a sandbox may seem, in seconds: the clocks of two machines differ.
const SLACK: f64 = 60.0;

/// The same where the clock is that of the caller's machine.
const SKEW: f64 = 600.0;

fn vmm(node: &NodeInfo) -> Signal {
    let unknown = || "unknown".to_owned();
    Signal {
        name: "vmm",
        sandboxed: node.shim.clone().unwrap_or_else(unknown),
        regular: "-".to_owned(),
        node: node.kata.as_ref().map_or_else(unknown, |version| format!("Kata {version}")),
        verdict: SignalVerdict::Neutral,
        meaning: if node.shim.is_some() { "as configured" } else { "no node agent reports it" },
    }
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
            let sandboxed = &probe(own);
            let node = Some(&node);
            let it = Compared { sandboxed, regular: None, node, age: None, handler: None };
            it.signals().into_iter().find(|signal| signal.name == "kernel").unwrap().meaning
        };
        let rhcos = "Red Hat Enterprise Linux CoreOS 9.6.20251023-0 (Plow)";
        assert_eq!(meaning(rhcos, "5.14"), "equal by design on RHCOS");
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
        let verdict = |guest, age| {
            [None, Some(&uptime(90_000.0))].map(|regular| {
                let sandboxed = &uptime(guest);
                let age = Some(age);
                let it = Compared { sandboxed, regular, node: None, age, handler: None };
                let signals = it.signals();
                signals.iter().find(|signal| signal.name == "uptime").unwrap().verdict
            })
        };
        assert_eq!(verdict(12.0, 14.0), [SignalVerdict::Neutral, SignalVerdict::Pass]);
        // The clock of the caller's machine is behind.
        assert_eq!(verdict(120.0, -100.0)[0], SignalVerdict::Neutral);
        assert_eq!(verdict(80_000.0, 14.0), [SignalVerdict::Fail; 2]);
    }
}
