//! Findings that no other test brings about: each has its code and names its object.

use jiff::SignedDuration;
use kata_api::Code;
use kata_plan::{Kind, decide};
use serde_json::json;

use crate::plain::Fate;
use crate::world::World;

/// What the decision says with this code: object and message.
#[track_caller]
fn finding(world: &World, code: Code) -> (String, String) {
    let report = decide(&world.observe()).report;
    let found = report.findings.iter().find(|finding| finding.code == code);
    let found =
        found.unwrap_or_else(|| panic!("no {} in {:#?}", code.entry().code, report.findings));
    (found.subject.name.clone(), found.message.clone())
}

#[test]
fn fields_of_the_spec_that_are_ignored_are_named() {
    let mut world = World::new(1, 1);
    world.config(&json!({"enablePeerPods": true, "logLevel": "loud"}));
    let (object, message) = finding(&world, Code::PeerPodsUnsupported);
    assert_eq!(
        (object.as_str(), message.as_str()),
        ("cluster-kataconfig", "spec.enablePeerPods is true, but peer pods are not supported",)
    );
    let (_, message) = finding(&world, Code::InvalidLogLevel);
    assert!(message.contains("\"loud\""), "{message}");
}

#[test]
fn settings_are_not_applied_on_openshift() {
    let mut world = World::new(1, 1);
    world.config(&json!({"runtimes": [{"name": "kata", "config": "[runtime]\n"}]}));
    let (object, message) = finding(&world, Code::SettingsNotHonoured);
    assert_eq!(object, "cluster-kataconfig");
    assert!(message.starts_with("spec.runtimes[kata].config is not applied"), "{message}");
    let elsewhere = json!({"matchLabels": {"gpu": "yes"}});
    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &json!({"metadata": {"generation": 2}, "spec": {"runtimes": [
            {"name": "kata", "installOn": elsewhere}]}}),
    );
    let (_, message) = finding(&world, Code::SettingsNotHonoured);
    assert!(message.starts_with("spec.runtimes[kata].installOn is not applied"), "{message}");
    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &json!({"metadata": {"generation": 3}, "spec": {"runtimes": null, "rollout": {"foreignChanges": "Activate"}}}),
    );
    let (_, message) = finding(&world, Code::SettingsNotHonoured);
    assert!(message.starts_with("spec.rollout.foreignChanges is not applied"), "{message}");
    world.settle();
    let status = &world.get(Kind::KataConfig, "cluster-kataconfig").unwrap()["status"];
    let counts = json!([{"name": "kata", "nodeCount": 1, "readyNodeCount": 1}]);
    assert_eq!(status["runtimes"], counts);
    assert_eq!(crate::journeys::condition(&world, "Ready").0, "True");
}

#[test]
fn a_class_that_is_not_named_any_more_stays_while_pods_use_it() {
    let mut world = World::new(1, 1);
    world.config(&json!({"runtimes": [{"name": "kata"}, {"name": "kata-old", "handler": "kata"}]}));
    world.settle();
    world.pod("web", "kata-old", "worker-0");
    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &json!({"metadata": {"generation": 2}, "spec": {"runtimes": [{"name": "kata"}]}}),
    );
    let (object, message) = finding(&world, Code::RuntimeClassInUse);
    assert_eq!(object, "kata-old");
    assert!(message.contains("kata-old"), "{message}");
    assert!(world.get(Kind::RuntimeClass, "kata-old").is_some());
    // No watch covers pods.
    let again = decide(&world.observe()).requeue_after.unwrap();
    assert!(again <= std::time::Duration::from_secs(5), "{again:?}");
}

/// A sandbox that is created again, such as after a reboot, has the settings that the pod was admitted with.
#[test]
fn a_class_that_is_not_named_any_more_keeps_its_settings_while_pods_use_it() {
    let mut world = World::plain(1, 1);
    let big = |config: &str| json!({"name": "kata-big", "shim": "qemu", "config": config});
    let kata = json!({"name": "kata"});
    let valid = "[hypervisor.qemu]\ndefault_memory = 8192\n";
    world.config(&json!({"runtimes": [kata, big(valid)]}));
    world.settle();
    world.pod("web", "kata-big", "worker-0");
    let installed = |world: &World| {
        world.get(Kind::KataNode, "worker-0").unwrap()["status"]["host"]["installed"].clone()
    };
    let before = installed(&world);
    assert!(before.is_string(), "{before}");
    // Invalid settings in between are not what stays.
    for (generation, runtimes) in
        [(2, json!([kata, big("default_memory = 1")])), (3, json!([kata]))]
    {
        let spec = json!({"metadata": {"generation": generation}, "spec": {"runtimes": runtimes}});
        world.edit(Kind::KataConfig, "cluster-kataconfig", &spec);
        world.settle();
        assert_eq!(installed(&world), before, "{generation}");
    }
    finding(&world, Code::RuntimeClassInUse);
}

#[test]
fn an_overhead_that_was_there_before_is_kept_and_told() {
    let mut world = World::new(1, 1);
    world.config(&json!({}));
    world.settle();
    // As another operator of the same classes leaves it.
    world.edit(
        Kind::RuntimeClass,
        "kata",
        &json!({
            "metadata": {"labels": {"app.kubernetes.io/managed-by": null, "app.kubernetes.io/part-of": null}},
            "overhead": {"podFixed": {"cpu": "300m", "memory": "400Mi"}},
        }),
    );
    world.settle();
    let (object, message) = finding(&world, Code::AdoptedOverhead);
    assert_eq!(object, "kata");
    assert!(message.contains("cpu 300m, memory 400Mi"), "{message}");

    // Resources beside them change neither.
    let runtimes =
        json!([{"name": "kata", "overhead": {"resources": {"tdx.intel.com/keys": "1"}}}]);
    let spec = json!({"metadata": {"generation": 2}, "spec": {"runtimes": runtimes}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &spec);
    world.settle();
    let class = world.get(Kind::RuntimeClass, "kata").unwrap();
    let fixed = json!({"cpu": "300m", "memory": "400Mi", "tdx.intel.com/keys": "1"});
    assert_eq!(class["overhead"]["podFixed"], fixed);
}

#[test]
fn a_node_that_was_found_to_differ_is_named_until_it_is_repaired() {
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    world.settle();
    world.hosts.insert("worker-0".to_owned(), Fate::Drifted);
    world.now = world.now.checked_add(jiff::SignedDuration::from_hours(7)).unwrap();
    let reported = (0..100).any(|_| {
        world.pass();
        world.tick();
        let report = decide(&world.observe()).report;
        report.findings.iter().any(|finding| finding.code == Code::NodeDrifted)
    });
    assert!(reported, "no pass says KATA3113");
}

#[test]
fn without_its_own_image_the_operator_runs_no_job_and_says_so() {
    let mut world = World::plain(1, 1);
    world.options.agent_image = None;
    world.config(&json!({}));
    world.pass();
    let (object, message) = finding(&world, Code::AgentImageUnknown);
    assert_eq!(object, "cluster-kataconfig");
    assert!(message.contains("no Job can run"), "{message}");
    assert_eq!(world.names(Kind::Job), Vec::<String>::new());
}

#[test]
fn which_nodes_count_is_told_in_terms_of_the_spec() {
    let worker = "node-role.kubernetes.io/worker";
    let eligible = "feature.node.kubernetes.io/runtime.kata=true";
    let selector = json!({"matchLabels": {"kata": "true"}});
    for (jobs, spec, said) in [
        (false, json!({}), format!("no node has the label {worker}")),
        (
            false,
            json!({"checkNodeEligibility": true}),
            format!("no node has the label {worker} and carries {eligible}"),
        ),
        (
            false,
            json!({"checkNodeEligibility": true, "kataConfigPoolSelector": selector}),
            format!(
                "no node has the label {worker}, carries {eligible} and matches \
                 spec.kataConfigPoolSelector (kata=true)"
            ),
        ),
        (true, json!({}), "no node runs Linux and is outside the control plane".to_owned()),
        // An empty selector is like none.
        (
            true,
            json!({"checkNodeEligibility": true, "kataConfigPoolSelector": {}}),
            format!("no node carries {eligible}, runs Linux and is outside the control plane"),
        ),
        (
            true,
            json!({"kataConfigPoolSelector": selector}),
            "no node matches spec.kataConfigPoolSelector (kata=true) and runs Linux; a node of the control \
             plane is selected only if the selector names its role, its host name or a label of your own"
                .to_owned(),
        ),
    ] {
        let mut world = if jobs { World::plain(1, 0) } else { World::new(1, 0) };
        world.config(&spec);
        assert_eq!(finding(&world, Code::NoNodesSelected).1, said, "{spec}");
        let found = decide(&world.observe()).report.findings;
        let eligible = spec.get("checkNodeEligibility").is_some();
        let named = found.iter().any(|found| found.fix.contains("Node Feature Discovery"));
        assert_eq!(named, eligible, "{spec}");
    }
}

/// Only where `spec.rollout` sets the pace does it help to change it.
#[test]
fn to_go_on_without_a_node_is_advised_where_it_can_be_done() {
    let fix = |world: &World, node: &str| {
        let findings = decide(&world.observe()).report.findings.into_iter();
        let mut of_node =
            findings.filter(|it| it.code == Code::NodeNotReady && it.subject.name == node);
        of_node.next().unwrap().fix
    };
    let advice = "raise spec.rollout.maxUnavailable";
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    world.set_ready("worker-0", false);
    assert!(fix(&world, "worker-0").contains(advice));

    // Of the pools, it is carried to one.
    let mut world = World::new(3, 2);
    world.label("worker-0", "kata", Some("true"));
    world.config(&json!({
        "kataConfigPoolSelector": {"matchLabels": {"kata": "true"}},
        "rollout": {"leaveDelay": "0s"},
    }));
    world.settle();
    world.set_ready("worker-0", false);
    assert!(fix(&world, "worker-0").contains(advice));
    world.set_ready("worker-0", true);

    // One that leaves, or that a deletion waits for, is the business of the pool that it goes to.
    let role = "node-role.kubernetes.io/kata-oc";
    let mut leaving = world.clone();
    leaving.label("worker-0", "kata", None);
    for _ in 0..100 {
        if !leaving.node("worker-0").labels.contains_key(role) {
            break;
        }
        leaving.pass();
    }
    leaving.set_ready("worker-0", false);
    assert!(!fix(&leaving, "worker-0").contains(advice), "it has left");
    let mut deleted = world.clone();
    deleted.delete(Kind::KataConfig, "cluster-kataconfig");
    deleted.set_ready("worker-0", false);
    assert!(deleted.node("worker-0").labels.contains_key(role));
    assert!(!fix(&deleted, "worker-0").contains(advice), "it is to leave");

    world.set_ready("worker-1", false);
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..6 {
        world.pass();
        world.tick();
    }
    assert!(!fix(&world, "worker-1").contains(advice), "it holds up the pool worker");

    let mut world = World::compact(3);
    world.config(&json!({}));
    world.set_ready("master-1", false);
    assert!(!fix(&world, "master-1").contains(advice), "it holds up the pool master");
}

#[test]
fn a_clock_of_the_operator_that_is_off_is_named_and_stops_nothing() {
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    world.settle();
    for (seconds, says) in [
        (29, ""),
        (-29, ""),
        (30, "the clock of the operator's node is 30s behind the API server's"),
        (-39, "the clock of the operator's node is 40s ahead of the API server's"),
        (187, "the clock of the operator's node is 3m 10s behind the API server's"),
        (-1206, "the clock of the operator's node is 20m 10s ahead of the API server's"),
    ] {
        world.server_ahead = SignedDuration::from_secs(seconds);
        let decision = decide(&world.observe());
        let said: Vec<&str> =
            decision.report.findings.iter().map(|found| found.message.as_str()).collect();
        assert_eq!(said.concat(), says, "{seconds}");
        world.settle();
        let config = world.get(Kind::KataConfig, "cluster-kataconfig").unwrap();
        let conditions = config["status"]["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|it| it["type"] == "Ready").unwrap();
        assert_eq!(ready["status"], "True", "{seconds}");
    }
}
