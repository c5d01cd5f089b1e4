//! From findings of the operator, as the KataConfig and the KataNodes have them, to problems.
//!
//! Nothing is judged here: codes, messages and fixes are the operator's.

use std::cmp::Reverse;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kata_api::kata_config::{FindingStatus, FindingSubject};
use kata_api::situations::{self, Effect};
use kata_api::{Code, KataConfig, KataNode, Natural, Severity, Who, conditions};
use kata_plan::Finding;

use crate::api::{Api, Gap};
use crate::document::Problem;
use crate::human;

/// The page about a code.
pub(crate) fn hint(code: &str) -> String {
    format!("{}/blob/main/docs/codes/{code}.md", env!("CARGO_PKG_REPOSITORY"))
}

/// Whether only the operator can notice it, since the operator alone writes and runs kata-monitor; others
/// know it from its status at most.
pub(crate) fn only_operator_notices(code: Code) -> bool {
    matches!(
        code,
        Code::WriteFailed
            | Code::WriteUndone
            | Code::UnsafeStepSkipped
            | Code::ClockSkew
            | Code::ConstraintsNotServed
    )
}

/// Whether a finding of the operator's decision, made here, is only that the caller may not read something.
pub(crate) fn is_unseen(finding: &Finding) -> bool {
    finding.code == Code::ReadFailed && finding.message.contains(": you may not ")
}

/// What the caller may not read, as a sentence such as `you may not list nodes, you may not list pods`.
pub(crate) fn unseen(api: &Api) -> String {
    let sentences: Vec<String> = api.gaps().iter().map(Gap::sentence).collect();
    human::list(&sentences, 10)
}

impl Problem {
    /// A problem with the catalogue's fix.
    pub(crate) fn new(code: Code, subject: impl Into<String>, message: impl Into<String>) -> Self {
        let entry = code.entry();
        Self {
            id: entry.code.to_owned(),
            severity: entry.severity.as_str(),
            subject: subject.into(),
            message: message.into(),
            fix: entry.fix.to_owned(),
            hint: hint(entry.code),
            who: None,
        }
    }

    /// The same with a fix that names the objects.
    pub(crate) fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: fix.into(), ..self }
    }

    /// The same with those who can remove the cause.
    pub(crate) fn with_who(self, who: Who) -> Self {
        Self { who: Some(who.as_str()), ..self }
    }

    fn rank(&self) -> impl Ord {
        (Reverse(Severity::parse(self.severity)), &self.id, Natural(&self.subject))
    }
}

/// Worst first, each once.
pub(crate) fn sort(problems: &mut Vec<Problem>) {
    problems.sort_by(|a, b| a.rank().cmp(&b.rank()));
    problems.dedup();
}

/// The findings of the operator: those of the KataConfig, and those of KataNodes that its list, which is capped, does
/// not have.
pub(crate) fn of_status(config: &KataConfig, nodes: &[KataNode]) -> Vec<Problem> {
    let findings = config.status.iter().flat_map(|status| &status.findings);
    let mut problems: Vec<Problem> = findings.map(of_finding).collect();
    for problem in nodes.iter().filter_map(of_node) {
        let is_listed = |it: &Problem| (&it.id, &it.subject) == (&problem.id, &problem.subject);
        if !problems.iter().any(is_listed) {
            problems.push(problem);
        }
    }
    sort(&mut problems);
    problems
}

/// A finding of the operator. Its code may be one of a later version of the operator.
pub(crate) fn of_finding(finding: &FindingStatus) -> Problem {
    let FindingStatus { code, severity, subject, message, fix } = finding;
    Problem {
        id: code.clone(),
        severity: Severity::parse(severity).unwrap_or(Severity::Warning).as_str(),
        subject: named(subject),
        message: message.clone(),
        fix: fix.clone(),
        hint: hint(code),
        who: None,
    }
}

/// An object as kubectl takes it, such as `node/worker-1`.
pub(crate) fn named(FindingSubject { kind, namespace, name }: &FindingSubject) -> String {
    let kind = kind.to_lowercase();
    match namespace {
        Some(namespace) => format!("{kind}/{namespace}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

/// The condition that says that the administrator paused what is left to be done.
pub(crate) fn pause(config: &KataConfig) -> Option<&Condition> {
    let is_pause = |reason: &str| {
        let mut codes = Code::ALL.iter().filter(|code| code.entry().reason == reason);
        codes.any(|code| situations::effect(*code) == Effect::Pauses)
    };
    config.status.iter().flat_map(|status| &status.conditions).find(|condition| {
        let says = match condition.type_.as_str() {
            conditions::READY => "False",
            conditions::DELETION_BLOCKED => "True",
            _ => return false,
        };
        condition.status == says && is_pause(&condition.reason)
    })
}

/// What keeps the operator's work from going on, if it says that it does not go on by itself.
pub(crate) fn stalls(config: &KataConfig, nodes: &[KataNode]) -> Vec<Problem> {
    let all = config.status.iter().flat_map(|status| &status.conditions);
    let stuck = [conditions::STALLED, conditions::DELETION_BLOCKED];
    let is_stuck = all
        .into_iter()
        .any(|condition| stuck.contains(&condition.type_.as_str()) && condition.status == "True");
    // What stood in the way before the latest change may not do so any more.
    let observed = config.status.as_ref().and_then(|status| status.observed_generation);
    if !(is_stuck || pause(config).is_some()) || observed != config.metadata.generation {
        return Vec::new();
    }
    let holds_up = |problem: &Problem| {
        let code = Code::parse(&problem.id);
        code.is_none_or(|code| situations::effect(code) != Effect::Nothing)
    };
    let problems = of_status(config, nodes).into_iter();
    problems.filter(|problem| problem.severity != "info" && holds_up(problem)).collect()
}

/// The check of the node agent that failed, if it is the cause of the problem of a node.
pub(crate) fn failed_check(problem: &Problem, nodes: &[KataNode]) -> Option<Code> {
    let name = problem.subject.strip_prefix("node/")?;
    let node = nodes.iter().find(|node| node.spec.node_name == name)?;
    let status = node.status.as_ref().filter(|it| it.code.as_ref() == Some(&problem.id))?;
    Code::parse(status.host.as_ref()?.job.as_ref()?.code.as_deref()?)
}

/// What the operator says is wrong with a node.
pub(crate) fn of_node(node: &KataNode) -> Option<Problem> {
    let status = node.status.as_ref()?;
    let code = Code::parse(status.code.as_deref()?)?;
    let problem =
        Problem::new(code, format!("node/{}", node.spec.node_name), status.message.clone());
    // The catalogue knows no names.
    let fix = problem.fix.replace("NAME", &node.spec.node_name);
    Some(problem.with_fix(fix))
}
