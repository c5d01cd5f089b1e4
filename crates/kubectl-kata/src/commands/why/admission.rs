//! Pods that the API server refused: what their makers were told. Pure.

use kata_api::Code;
use serde_json::Value;

use crate::document::Problem;

/// What the conditions of a Deployment, a ReplicaSet or a Job say of refused pods.
pub(super) fn conditions(owner: &Value) -> Vec<String> {
    owner["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|condition| condition["reason"] == "FailedCreate")
        .filter_map(|condition| condition["message"].as_str().map(str::to_owned))
        .collect()
}

/// What Events about these objects say of refused pods.
pub(crate) fn events(events: &[Value], names: &[&str]) -> Vec<String> {
    events
        .iter()
        .filter(|event| event["reason"] == "FailedCreate")
        .filter(|event| {
            event["involvedObject"]["name"].as_str().is_some_and(|name| names.contains(&name))
        })
        .filter_map(|event| event["message"].as_str().map(str::to_owned))
        .collect()
}

/// The code for a refusal.
pub(super) fn code(message: &str) -> Code {
    let has = |text: &str| message.contains(text);
    if has("RuntimeClass") && has("not found") {
        Code::RuntimeClassMissing
    } else if has("runtimeClass.scheduling.nodeSelector") {
        Code::SelectorConflict
    } else if has("Overhead") {
        Code::OverheadMismatch
    } else if has("xceeded quota") {
        Code::QuotaExceeded
    } else {
        Code::PodRejected
    }
}

/// Each refusal once.
pub(crate) fn problems(messages: &[String], subject: &str) -> Vec<Problem> {
    let mut found: Vec<Problem> = Vec::new();
    for message in messages {
        let code = code(message);
        if found.iter().all(|problem| problem.id != code.entry().code) {
            // `pods "web-7d9-" is forbidden: ` says nothing that the line does not.
            let short =
                message.split_once("is forbidden: ").map_or(message.as_str(), |(_, why)| why);
            let short = short.trim_start_matches("Error creating: ");
            found.push(Problem::new(code, subject, short));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_the_api_server_are_told_apart() {
        // As kube-apiserver's plugins RuntimeClass and ResourceQuota write them.
        let pairs = [
            (
                "pods \"web-\" is forbidden: pod rejected: RuntimeClass \"kata2\" not found",
                Code::RuntimeClassMissing,
            ),
            (
                "pods \"web-\" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[a] = b; \
                 pod.spec.nodeSelector[a] = c",
                Code::SelectorConflict,
            ),
            (
                "pods \"web-\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's \
                 defined Overhead",
                Code::OverheadMismatch,
            ),
            (
                "pods \"web-\" is forbidden: exceeded quota: compute, requested: memory=862Mi, used: \
                 memory=0, limited: memory=512Mi",
                Code::QuotaExceeded,
            ),
            (
                "pods \"web-\" is forbidden: violates PodSecurity \"restricted:latest\": hostPath volumes",
                Code::PodRejected,
            ),
        ];
        for (message, expected) in pairs {
            assert_eq!(code(message), expected, "{message}");
        }
        let problem = &problems(&[pairs[0].0.to_owned()], "deployment/web")[0];
        assert_eq!(problem.message, "pod rejected: RuntimeClass \"kata2\" not found");
    }
}
