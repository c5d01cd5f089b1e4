//! Every verdict, with what can be done then.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

/// What a pod, a node and its KataNode are beside the usual, and what the node says then: reason, words, fix.
struct Case {
    pod: Value,
    node: Value,
    status: Value,
    says: [&'static str; 3],
}

impl Case {
    fn new(pod: Value, node: Value, status: Value, says: [&'static str; 3]) -> Self {
        Self { pod, node, status, says }
    }

    fn verdict(&self) -> (String, Verdict) {
        let mut pod = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "runtimeClassName": "kata",
                "nodeSelector": {names::RUNTIME_LABEL: "true"},
                "containers": [{"name": "a", "resources": {"requests": {"memory": "1Gi"}}}],
            },
        });
        json_patch::merge(&mut pod, &self.pod);
        let mut node = json!({
            "metadata": {"name": "worker-0", "labels": {names::RUNTIME_LABEL: "true"}},
            "spec": {},
            "status": {"allocatable": {"memory": "8Gi", "cpu": "4"}},
        });
        json_patch::merge(&mut node, &self.node);
        let mut kata = KataNode::new(
            "worker-0",
            serde_json::from_value(
                json!({"nodeName": "worker-0", "kataConfig": "cluster-kataconfig"}),
            )
            .unwrap(),
        );
        kata.status = serde_json::from_value(self.status.clone()).unwrap();
        let slim: Pod = serde_json::from_value(pod.clone()).unwrap();
        let install_on = LabelSelector {
            match_labels: Some([("disk".to_owned(), "ssd".to_owned())].into()),
            match_expressions: None,
        };
        let is_of_class = slim.class() == Some("kata-ssd");
        let install_on = is_of_class.then_some(&install_on);
        let mut config = json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}});
        config["checkNodeEligibility"] = json!(slim.metadata.name == "eligible");
        let config = KataConfig::new("cluster-kataconfig", serde_json::from_value(config).unwrap());
        verdicts(&pod, &slim, &[node], &[], &[kata], Some(&config), install_on).remove(0)
    }
}

fn cases() -> Vec<Case> {
    let none = || json!({});
    let unlabelled = || json!({"metadata": {"labels": {names::RUNTIME_LABEL: null}}});
    let selected = || json!({"metadata": {"labels": {names::RUNTIME_LABEL: null, "kata": "true"}}});
    let cordoned = || json!({"spec": {"unschedulable": true}});
    let large = || json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"memory": "9Gi"}}}]}});
    let class_label = format!("{}kata-fc", names::CLASS_LABEL_PREFIX);
    vec![
        Case::new(none(), none(), Value::Null, ["Fits", "fits", ""]),
        Case::new(
            none(),
            json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}),
            Value::Null,
            ["Tainted", "taint gpu is not tolerated", ""],
        ),
        Case::new(
            json!({"spec": {"nodeSelector": {names::CLOSED_LABEL: "true"}}}),
            none(),
            Value::Null,
            ["ClassClosed", "the RuntimeClass takes no new pods", ""],
        ),
        Case::new(
            json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "worker-1"}}}),
            none(),
            Value::Null,
            ["LacksLabel", "the node lacks the label kubernetes.io/hostname=worker-1", ""],
        ),
        Case::new(
            json!({"spec": {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]},
                ]},
            }}}}),
            none(),
            Value::Null,
            ["OtherAffinity", "does not match the pod's node affinity", ""],
        ),
        Case::new(
            json!({"spec": {"runtimeClassName": "kata-ssd"}}),
            unlabelled(),
            Value::Null,
            [
                "NotSelectedByClass",
                "not selected by installOn of RuntimeClass kata-ssd",
                "let installOn of runtime kata-ssd in the KataConfig select worker-0, or use another RuntimeClass",
            ],
        ),
        Case::new(
            json!({"spec": {"runtimeClassName": "kata-fc", "nodeSelector": {class_label: "true"}}}),
            none(),
            Value::Null,
            ["ClassNotServed", "has Kata, but does not serve RuntimeClass kata-fc", ""],
        ),
        Case::new(
            none(),
            unlabelled(),
            Value::Null,
            [
                "NotSelected",
                "not selected for Kata",
                "give node worker-0 Kata: `kubectl label node worker-0 kata=true`",
            ],
        ),
        Case::new(
            json!({"metadata": {"name": "eligible"}}),
            selected(),
            Value::Null,
            [
                "LeftOut",
                "selected for Kata, but lacks the label feature.node.kubernetes.io/runtime.kata=true",
                "if node worker-0 can run Kata, let Node Feature Discovery label it, or set \
                 spec.checkNodeEligibility of the KataConfig to false",
            ],
        ),
        Case::new(
            none(),
            selected(),
            Value::Null,
            [
                "LeftOut",
                "selected for Kata, but left out by the operator",
                "see why node worker-0 is left out: `kubectl kata doctor`",
            ],
        ),
        Case::new(
            none(),
            unlabelled(),
            json!({"phase": "Installing", "step": "Applying"}),
            ["InRollout", "Kata is being installed (Applying)", ""],
        ),
        Case::new(
            none(),
            cordoned(),
            json!({"phase": "Updating", "step": "Draining"}),
            ["InRollout", "cordoned by the roll-out (Draining)", ""],
        ),
        Case::new(
            none(),
            unlabelled(),
            json!({"phase": "Removing"}),
            ["Leaving", "Kata is being removed", ""],
        ),
        Case::new(
            none(),
            unlabelled(),
            json!({"phase": "Failed", "code": "KATA3001", "message": "there is no /dev/kvm"}),
            [
                "Failed",
                "Kata does not work there (KATA3001): there is no /dev/kvm",
                "repair node worker-0: `kubectl kata codes KATA3001` says how, `kubectl kata logs node/worker-0` \
                 shows what its last change said",
            ],
        ),
        Case::new(
            none(),
            cordoned(),
            Value::Null,
            [
                "Cordoned",
                "cordoned",
                "if the maintenance of node worker-0 is over, uncordon it: `kubectl uncordon worker-0`",
            ],
        ),
        Case::new(
            large(),
            cordoned(),
            Value::Null,
            [
                "Cordoned",
                "cordoned, and memory short by 1Gi",
                "free what node worker-0 lacks (memory short by 1Gi), and uncordon it if its maintenance is over: \
                 `kubectl uncordon worker-0`",
            ],
        ),
        Case::new(
            large(),
            none(),
            Value::Null,
            [
                "TooSmall",
                "memory short by 1Gi",
                "free what worker-0 lacks (memory short by 1Gi), ask for less, or give more nodes Kata",
            ],
        ),
    ]
}

#[test]
fn every_verdict_says_what_can_be_done() {
    let selector = LabelSelector {
        match_labels: Some([("kata".to_owned(), "true".to_owned())].into()),
        match_expressions: None,
    };
    let mut seen = BTreeSet::new();
    for case in cases() {
        let (name, verdict) = case.verdict();
        let reason = serde_json::to_value(verdict.reason()).unwrap();
        let fix = verdict.fix(&name, Some(&selector)).map_or_else(String::new, |(fix, _)| fix);
        assert_eq!([reason.as_str().unwrap(), &verdict.to_string(), &fix], case.says);
        seen.insert(reason.as_str().unwrap().to_owned());
    }
    let schema = schemars::schema_for!(crate::document::NodeReason);
    let schema = schema.as_value()["oneOf"].as_array().unwrap();
    let all: BTreeSet<String> =
        schema.iter().map(|it| it["const"].as_str().unwrap().to_owned()).collect();
    assert_eq!(seen, all);
}

/// A label that says what a node is would be false on another one.
#[test]
fn no_node_is_given_the_name_of_another_one() {
    let selector = LabelSelector {
        match_labels: Some([("kubernetes.io/hostname".to_owned(), "a".to_owned())].into()),
        match_expressions: None,
    };
    let (fix, _) = Verdict::NotSelected.fix("worker-0", Some(&selector)).unwrap();
    assert_eq!(
        fix,
        "give node worker-0 Kata: let spec.kataConfigPoolSelector of the KataConfig (kubernetes.io/hostname=a) \
         select it"
    );
}
