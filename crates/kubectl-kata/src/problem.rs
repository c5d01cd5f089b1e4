//! From findings of the operator, as KataNodes and conditions carry them, to problems with a fix.
//!
//! Nothing is judged here: codes and messages are the operator's, and so are fixes where it tells them; the
//! others are the catalogue's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kata_api::situations::{self, Effect};
use kata_api::{Code, KataConfig, KataNode, Severity, conditions, names};
use kata_plan::Finding;

use crate::api::{Api, Gap};
use crate::document::Problem;
use crate::human;

/// The page about a code.
pub(crate) fn hint(code: &str) -> String {
    format!("{}/blob/main/docs/codes/{code}.md", env!("CARGO_PKG_REPOSITORY"))
}

/// The word of a severity.
pub(crate) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// The code with this text.
pub(crate) fn code(text: &str) -> Option<Code> {
    Code::ALL.iter().copied().find(|code| code.entry().code == text)
}

/// Whether nobody but the operator can notice it, since the operator alone writes and runs kata-monitor; others
/// know it from its status at most.
pub(crate) fn only_operator_notices(code: Code) -> bool {
    matches!(
        code,
        Code::WriteFailed
            | Code::WriteUndone
            | Code::UnsafeStepSkipped
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
            severity: severity(entry.severity),
            subject: subject.into(),
            message: message.into(),
            fix: entry.fix.to_owned(),
            hint: hint(entry.code),
        }
    }

    /// The same with a fix that names the objects.
    pub(crate) fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: fix.into(), ..self }
    }

    /// Whether the fix is the catalogue's, which names no object.
    pub(crate) fn has_common_fix(&self) -> bool {
        code(&self.id).is_some_and(|code| is_common(code, &self.fix))
    }

    fn rank(&self) -> (u8, &str, &str) {
        let severity = match self.severity {
            "error" => 0,
            "warning" => 1,
            _ => 2,
        };
        (severity, &self.id, &self.subject)
    }
}

/// Worst first, each once.
pub(crate) fn sort(problems: &mut Vec<Problem>) {
    problems.sort_by(|a, b| a.rank().cmp(&b.rank()));
    problems.dedup();
}

/// What the operator says is wrong.
pub(crate) fn of_status(config: &KataConfig, nodes: &[KataNode]) -> Vec<Problem> {
    let mut problems: Vec<Problem> = nodes.iter().filter_map(of_node).collect();
    let subject =
        format!("kataconfig/{}", config.metadata.name.as_deref().unwrap_or("(without name)"));
    for Quoted { code, message, fix } in of_conditions(config) {
        let fix = fix.filter(|fix| !is_common(code, fix)).map(|fix| format!("{fix}."));
        // What a node says is said once, and so is what several conditions say.
        if let Some(other) = problems.iter_mut().find(|other| same(other, code, &message)) {
            if let (Some(fix), true) = (fix, other.has_common_fix()) {
                other.fix = fix;
            }
            continue;
        }
        let problem = Problem::new(code, &subject, message);
        problems.push(match retry(code, None, nodes).or(fix) {
            Some(fix) => problem.with_fix(fix),
            None => problem,
        });
    }
    sort(&mut problems);
    problems
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
    of_status(config, nodes).into_iter().filter(|problem| problem.severity != "info").collect()
}

/// Whether a fix is the catalogue's; conditions have it without its full stop.
fn is_common(code: Code, fix: &str) -> bool {
    fix.trim_end_matches('.') == code.entry().fix.trim_end_matches('.')
}

fn same(problem: &Problem, code: Code, message: &str) -> bool {
    problem.id == code.entry().code
        && (problem.message.starts_with(message) || message.starts_with(&problem.message))
}

/// Whether a problem of something else is that of this node: its sentence begins with the node.
pub(crate) fn names_node(problem: &Problem, node: &str) -> bool {
    let rest = problem.message.strip_prefix("node ").and_then(|rest| rest.strip_prefix(node));
    rest.is_some_and(|rest| rest.starts_with([' ', ':']))
}

/// What failed on the node of a problem, if the problem's sentence quotes a check of the node agent.
pub(crate) fn within(problem: &Problem) -> Option<Problem> {
    let node = problem.subject.strip_prefix("node/")?;
    let (_, quoted) = problem.message.split_once(": KATA")?;
    let (number, text) = quoted.split_once(": ")?;
    let code = code(&format!("KATA{number}"))?;
    Some(Problem::new(code, &problem.subject, format!("node {node}: {text}")))
}

/// What the operator says is wrong with a node.
pub(crate) fn of_node(node: &KataNode) -> Option<Problem> {
    let status = node.status.as_ref()?;
    let code = code(status.code.as_deref()?)?;
    let problem =
        Problem::new(code, format!("node/{}", node.spec.node_name), status.message.clone());
    let fix = retry(code, Some(&node.spec.node_name), std::slice::from_ref(node));
    // The catalogue knows no names.
    let fix = fix.unwrap_or_else(|| {
        problem.fix.replace("node/NAME", &format!("node/{}", node.spec.node_name))
    });
    Some(problem.with_fix(fix))
}

/// The fix with the command that has it tried again, of what the operator does not try again by itself: for the
/// node of this name, or, where all nodes wait for that, for those that failed.
pub(crate) fn retry(code: Code, node: Option<&str>, nodes: &[KataNode]) -> Option<String> {
    let gave_up = |node: &KataNode| {
        let code = node.status.as_ref().and_then(|status| status.code.as_deref());
        [Code::NodeRolledBack, Code::NodeBroken].iter().any(|it| code == Some(it.entry().code))
    };
    let asked = nodes.iter().filter(|other| match node {
        Some(name) => other.spec.node_name == name,
        None => gave_up(other),
    });
    let (mut nodes, mut names) = (Vec::new(), Vec::new());
    for KataNode { metadata, spec, .. } in asked {
        nodes.push(spec.node_name.as_str());
        names.push(format!("katanode/{}", metadata.name.as_deref().unwrap_or(&spec.node_name)));
    }
    if names.is_empty() {
        return None;
    }
    let command = format!(
        "`kubectl annotate --overwrite {} {}=\"$(date +%s)\"`",
        names.join(" "),
        names::RETRY_ANNOTATION
    );
    match code {
        Code::NodeRolledBack => Some(format!(
            "correct what the message names, then {command}, or change the KataConfig"
        )),
        Code::NodeBroken => Some(format!(
            "look at the container runtime on node {}, then {command}",
            nodes.join(", ")
        )),
        Code::RolloutStopped if node.is_none() => Some(format!(
            "correct the cause on the nodes that the message names, then {command}, or change the KataConfig"
        )),
        _ => None,
    }
}

/// A finding as a condition quotes it.
#[derive(Debug, PartialEq)]
struct Quoted {
    code: Code,
    message: String,
    /// What to do, where the condition has room for it.
    fix: Option<String>,
}

/// The findings that the conditions quote, as `KATAnnnn: message`.
fn of_conditions(config: &KataConfig) -> Vec<Quoted> {
    let all = config.status.iter().flat_map(|status| &status.conditions);
    let mut found = Vec::new();
    for condition in all {
        let speaks = match condition.type_.as_str() {
            conditions::STALLED | conditions::DEGRADED | conditions::DELETION_BLOCKED => {
                condition.status == "True"
            }
            conditions::READY => true,
            _ => false,
        };
        // What it could not read it says as it is.
        let unread = Code::ReadFailed;
        if condition.type_ == conditions::READY
            && condition.status == "Unknown"
            && condition.reason == unread.entry().reason
        {
            found.push(Quoted { code: unread, message: condition.message.clone(), fix: None });
        } else if speaks {
            let with_fix = matches!(
                condition.type_.as_str(),
                conditions::STALLED | conditions::DELETION_BLOCKED
            );
            found.extend(quoted(&condition.message, with_fix));
        }
    }
    found
}

/// The findings in a message. With `with_fix` the message ends with a fix in parentheses. A code within a
/// finding's own sentence, such as that of the check that failed on a node, is no further finding: those follow
/// a comma or a semicolon.
fn quoted(message: &str, with_fix: bool) -> Vec<Quoted> {
    let starts: Vec<(usize, Code)> = message
        .match_indices("KATA")
        .filter_map(|(at, _)| {
            let before = message.get(..at)?;
            let begins = before.is_empty() || before.ends_with("; ") || before.ends_with(", ");
            let id = message.get(at..at + 8)?;
            (begins && message.get(at + 8..at + 10) == Some(": ")).then(|| Some((at, code(id)?)))?
        })
        .collect();
    let ends: Vec<usize> =
        starts.iter().skip(1).map(|(at, _)| *at).chain([message.len()]).collect();
    starts
        .into_iter()
        .zip(ends)
        .filter_map(|((at, code), end)| {
            let text = message.get(at + 10..end)?.trim_end().trim_end_matches([',', ';']);
            let (text, fix) = match with_fix.then(|| parenthesis(text)).flatten() {
                Some((text, fix)) => (text, Some(fix.to_owned())),
                None => (text, None),
            };
            Some(Quoted { code, message: text.to_owned(), fix })
        })
        .collect()
}

/// What comes before the parenthesis that a text ends with, and what is in it, which may have others within.
fn parenthesis(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_suffix(')')?;
    let mut depth = 1_usize;
    for (at, c) in inner.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((inner.get(..at)?.strip_suffix(' ')?, inner.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: Code, message: &str, fix: Option<&str>) -> Quoted {
        Quoted { code, message: message.to_owned(), fix: fix.map(str::to_owned) }
    }

    #[test]
    fn findings_are_read_out_of_the_messages_that_quote_them() {
        let message = "0 of 1 node has Kata; KATA2104: node a drains, KATA1006: the pool is paused";
        assert_eq!(
            quoted(message, false),
            [
                found(Code::DrainBlocked, "node a drains", None),
                found(Code::PoolPaused, "the pool is paused", None),
            ]
        );
        let message =
            "KATA4001: 1 sandboxed pod still runs: a/b (ReplicaSet c) (Delete (all of) these pods)";
        let text = "1 sandboxed pod still runs: a/b (ReplicaSet c)";
        let fix = Some("Delete (all of) these pods");
        assert_eq!(quoted(message, true), [found(Code::PodsStillRunning, text, fix)]);
        assert!(quoted("KATA9999: no such code, KATA", false).is_empty());
    }

    #[test]
    fn a_code_within_the_sentence_of_a_finding_is_no_finding() {
        let text = "node a: KATA3101: the container runtime does not start";
        let message = format!("0 of 1 node has Kata; KATA3103: {text}");
        assert_eq!(quoted(&message, false), [found(Code::NodeRolledBack, text, None)]);
    }
}
