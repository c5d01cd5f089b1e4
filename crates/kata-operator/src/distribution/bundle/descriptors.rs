//! What OpenShift's console shows of our resources: which control edits a field, and how a status is
//! displayed. Paths are held against the CustomResourceDefinitions by a test.

use serde_json::{Value, json};

const FORM: &str = "urn:alm:descriptor:com.tectonic.ui:";

/// The kinds that we own, with their descriptors.
pub(super) fn owned() -> Value {
    json!([
        {
            "name": "kataconfigs.kataconfiguration.openshift.io",
            "kind": "KataConfig",
            "version": "v1",
            "displayName": "KataConfig",
            "description": "Which nodes get Kata Containers, and how. One is enough for a cluster.",
            "resources": [
                {"kind": "MachineConfigPool", "name": "machineconfigpools", "version": "v1"},
                {"kind": "MachineConfig", "name": "machineconfigs", "version": "v1"},
                {"kind": "RuntimeClass", "name": "", "version": "v1"},
                {"kind": "KataNode", "name": "katanodes", "version": "v1alpha1"},
            ],
            "specDescriptors": [
                field("kataConfigPoolSelector", "Nodes",
                    "Which workers get Kata; all of them, if nothing is given.",
                    &["selector:core:v1:Node"]),
                field("checkNodeEligibility", "Only eligible nodes",
                    "Take only nodes that Node Feature Discovery found able to run virtual machines.",
                    &["booleanSwitch"]),
                field("rollout.maxUnavailable", "Nodes at once",
                    "How many nodes may be changed at the same time: a number or a percentage.",
                    &["text"]),
                field("rollout.paused", "Paused",
                    "Stop before the next node.",
                    &["booleanSwitch"]),
                field("logLevel", "Log level",
                    "CRI-O's log level on nodes with Kata. A change reboots these nodes.",
                    &["select:fatal", "select:panic", "select:error", "select:warn", "select:info",
                      "select:debug", "select:trace", "advanced"]),
                field("enablePeerPods", "Peer pods",
                    "Not supported by this operator.",
                    &["hidden"]),
            ],
            "statusDescriptors": [
                field("conditions", "Conditions", "What holds, and what is waited for.",
                    &["io.kubernetes.conditions"]),
                field("kataNodes.nodeCount", "Nodes", "How many nodes are selected.", &["text"]),
                field("kataNodes.readyNodeCount", "Ready nodes",
                    "How many of them can run sandboxed pods.", &["text"]),
                field("runtimeClasses", "RuntimeClasses", "What pods can ask for.", &["text"]),
            ],
        },
        {
            "name": "katanodes.kata-operator.dev",
            "kind": "KataNode",
            "version": "v1alpha1",
            "displayName": "KataNode",
            "description": "How far a node is. The operator writes it.",
            "statusDescriptors": [
                field("phase", "Phase", "How far the node is.", &["text"]),
                field("step", "Step", "What happens on it now.", &["text"]),
                field("message", "Message", "What is wrong, and what to do.", &["text"]),
            ],
        },
    ])
}

fn field(path: &str, name: &str, description: &str, controls: &[&str]) -> Value {
    let controls: Vec<String> = controls
        .iter()
        .map(|control| match *control {
            "io.kubernetes.conditions" => "urn:alm:descriptor:io.kubernetes.conditions".to_owned(),
            control => format!("{FORM}{control}"),
        })
        .collect();
    json!({
        "path": path, "displayName": name, "description": description, "x-descriptors": controls,
    })
}
