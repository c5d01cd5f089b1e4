//! What went wrong with a pod on its node: the words of the container runtimes, mapped to causes. Pure.

use kata_api::{Code, Who};
use serde_json::Value;

use crate::document::Problem;

/// What the messages of containerd, CRI-O, the shim and QEMU mean, by what they contain, in lower case. The
/// first row that matches counts; the table of real messages in the tests says why each is there.
const CAUSES: [(&str, Code); 32] = [
    ("failed to find runtime handler", Code::HandlerNotConfigured),
    ("no runtime for", Code::HandlerNotConfigured),
    ("unknown runtime handler", Code::HandlerNotConfigured),
    ("could not access kvm", Code::VirtualizationMissing),
    ("failed to initialize kvm", Code::VirtualizationMissing),
    ("/dev/kvm", Code::VirtualizationMissing),
    ("kvm is not supported", Code::VirtualizationMissing),
    ("host networking requested", Code::FeatureUnsupported),
    ("hostnetwork", Code::FeatureUnsupported),
    ("out of memory", Code::GuestOutOfMemory),
    ("cannot allocate memory", Code::NodeOutOfMemory),
    ("cannot set up guest memory", Code::NodeOutOfMemory),
    ("oomkilled", Code::GuestOutOfMemory),
    ("memory is too small", Code::GuestOutOfMemory),
    ("less than the minimum", Code::GuestOutOfMemory),
    ("vmlinuz", Code::GuestImageMissing),
    ("vmlinux", Code::GuestImageMissing),
    (".initrd", Code::GuestImageMissing),
    ("kata-containers.img", Code::GuestImageMissing),
    ("could not load kernel", Code::GuestImageMissing),
    ("binary not installed", Code::GuestImageMissing),
    ("failed to pull manifest", Code::ImageNotPulled),
    ("timed out connecting to vsock", Code::GuestUnreachable),
    ("vsock", Code::GuestUnreachable),
    ("failed to check if grpc server is working", Code::GuestUnreachable),
    ("cannot connect to agent ttrpc server", Code::GuestUnreachable),
    ("connect agent server", Code::GuestUnreachable),
    ("dial timeout", Code::GuestUnreachable),
    ("context deadline exceeded", Code::GuestUnreachable),
    ("deadlineexceeded", Code::GuestUnreachable),
    ("signal: killed", Code::NodeOutOfMemory),
    ("not supported by runtime", Code::FeatureUnsupported),
];

/// The cause of a refusal to make a sandbox.
pub(crate) fn cause(message: &str) -> Code {
    let lower = message.to_lowercase();
    let found = CAUSES.iter().find(|(text, _)| lower.contains(text));
    found.map_or(Code::SandboxFailed, |(_, code)| *code)
}

/// The causes that Events tell, the latest first, each once.
pub(crate) fn of_events(events: &[Value], pod: &Value, subject: &str) -> Vec<Problem> {
    let uid = &pod["metadata"]["uid"];
    let mut failed: Vec<&Value> = events
        .iter()
        .filter(|event| event["reason"] == "FailedCreatePodSandBox")
        .filter(|event| event["involvedObject"]["uid"] == *uid)
        .collect();
    failed.sort_by_key(|event| std::cmp::Reverse(super::kubelet::last_time(event)));
    let node = pod["spec"]["nodeName"].as_str().unwrap_or("its node");
    let mut found: Vec<Problem> = Vec::new();
    for event in failed {
        let message = event["message"].as_str().unwrap_or_default();
        let code = cause(message);
        if found.iter().any(|problem| problem.id == code.entry().code) {
            continue;
        }
        let short = message.rsplit_once("desc = ").map_or(message, |(_, short)| short);
        let short = short.trim_start_matches("Failed to create pod sandbox: ");
        let text = format!("{node} cannot make the sandbox: {short}");
        let problem = Problem::new(code, subject, text.replace('\n', " "));
        found.push(if message.contains("blocked by policy") {
            problem
                .with_fix("generate the pod's agent policy again for this cluster")
                .with_who(Who::ApplicationTeam)
        } else {
            problem
        });
    }
    found
}

/// What pods in virtual machines cannot have (upstream: docs/Limitations.md).
pub(super) fn unsupported(pod: &Value, subject: &str, sandboxed: bool) -> Vec<Problem> {
    let spec = &pod["spec"];
    let mut wrong = Vec::new();
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if sandboxed && spec[field] == true {
            wrong.push(format!("spec.{field}"));
        }
    }
    wrong
        .into_iter()
        .map(|field| {
            let text = format!("{field} is true, which a pod in a virtual machine cannot have");
            Problem::new(Code::FeatureUnsupported, subject, text)
                .with_fix(format!("remove {field}, or run the pod without the RuntimeClass"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_messages_are_mapped_to_their_causes() {
        let table = include_str!("../../../tests/data/sandbox_messages.txt");
        let mut seen = 0;
        for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (expected, message) = line.split_once(' ').unwrap();
            assert_eq!(cause(message).entry().code, expected, "{message}");
            seen += 1;
        }
        assert!(seen >= 15, "only {seen} messages");
    }
}
