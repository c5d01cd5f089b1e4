//! From findings of the operator, as KataNodes and conditions carry them, to problems with a fix.
//!
//! Nothing is judged here: codes and messages are the operator's, fixes the catalogue's.

use kata_api::{Code, KataConfig, KataNode, Severity, conditions, names};

use crate::document::Problem;

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
    matches!(code, Code::WriteFailed | Code::WriteUndone | Code::ConstraintsNotServed)
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
    // What a node says is said once.
    let told: Vec<(String, String)> =
        problems.iter().map(|problem| (problem.id.clone(), problem.message.clone())).collect();
    for (code, message) in of_conditions(config) {
        let known = told.iter().any(|(id, text)| *id == code.entry().code && *text == message);
        if !known && !problems.iter().any(|other| same(other, code, &message)) {
            let problem = Problem::new(code, &subject, message);
            problems.push(match retry(code, None, nodes) {
                Some(fix) => problem.with_fix(fix),
                None => problem,
            });
        }
    }
    sort(&mut problems);
    problems
}

fn same(problem: &Problem, code: Code, message: &str) -> bool {
    problem.id == code.entry().code
        && (problem.message.starts_with(message) || message.starts_with(&problem.message))
}

/// What the operator says is wrong with a node.
pub(crate) fn of_node(node: &KataNode) -> Option<Problem> {
    let status = node.status.as_ref()?;
    let code = code(status.code.as_deref()?)?;
    let problem =
        Problem::new(code, format!("node/{}", node.spec.node_name), status.message.clone());
    Some(match retry(code, Some(&node.spec.node_name), std::slice::from_ref(node)) {
        Some(fix) => problem.with_fix(fix),
        None => problem,
    })
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

/// The findings that the conditions quote, as `KATAnnnn: message`.
fn of_conditions(config: &KataConfig) -> Vec<(Code, String)> {
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
            found.push((unread, condition.message.clone()));
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

/// The findings in a message. With `with_fix` the message ends with a fix in parentheses.
fn quoted(message: &str, with_fix: bool) -> Vec<(Code, String)> {
    let mut starts: Vec<(usize, Code)> = message
        .match_indices("KATA")
        .filter_map(|(at, _)| {
            let id = message.get(at..at + 8)?;
            (message.get(at + 8..at + 10) == Some(": ")).then(|| Some((at, code(id)?)))?
        })
        .collect();
    starts.dedup();
    let ends: Vec<usize> =
        starts.iter().skip(1).map(|(at, _)| *at).chain([message.len()]).collect();
    starts
        .into_iter()
        .zip(ends)
        .filter_map(|((at, code), end)| {
            let text = message.get(at + 10..end)?.trim_end().trim_end_matches([',', ';']);
            let text = match text.rsplit_once(" (") {
                Some((text, fix)) if with_fix && fix.ends_with(')') => text,
                _ => text,
            };
            Some((code, text.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_read_out_of_the_messages_that_quote_them() {
        let message = "0 of 1 node ready; KATA2104: node a drains, KATA1006: the pool is paused";
        assert_eq!(
            quoted(message, false),
            [
                (Code::DrainBlocked, "node a drains".to_owned()),
                (Code::PoolPaused, "the pool is paused".to_owned())
            ]
        );
        let message =
            "KATA4001: 1 sandboxed pod still runs: a/b (ReplicaSet c) (Delete these pods)";
        assert_eq!(
            quoted(message, true),
            [(Code::PodsStillRunning, "1 sandboxed pod still runs: a/b (ReplicaSet c)".to_owned())]
        );
        assert!(quoted("KATA9999: no such code, KATA", false).is_empty());
    }
}
