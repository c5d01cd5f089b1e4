//! Episodes reproduce, oracles notice, and a small sample of the campaign keeps all promises.

use std::time::Duration;

use kata_assure::base::Bases;
use kata_assure::campaign::{self, Order};
use kata_assure::enumerate::Amount;
use kata_assure::episode::{self, Watch};
use kata_assure::judge::References;
use kata_assure::plan::{Deed, Plan, Strike, Target};
use kata_assure::shape::{Topology, worker};
use kata_assure::workload::Workload;
use serde_json::json;
use simcluster::api::fault::{Fault, When};

fn watch() -> Watch {
    Watch { idle: false, traced: true, ..Watch::default() }
}

#[test]
fn the_same_plan_gives_the_same_episode() {
    let bases = Bases::default();
    let plan = Plan::calm(Workload::Install, Topology::Single)
        .with(Strike::at_call(30, Fault::Crash { when: When::After }));
    let one = episode::run(&plan, &bases, watch()).unwrap();
    let two = episode::run(&plan, &bases, watch()).unwrap();
    assert_eq!(one.trace, two.trace);
    assert_eq!(one.end, two.end);
}

#[test]
fn a_plan_is_one_line_and_can_be_read_again() {
    let object = Target {
        group: "node.k8s.io".to_owned(),
        plural: "runtimeclasses".to_owned(),
        name: "kata".to_owned(),
    };
    let plan = Plan::calm(Workload::Uninstall, Topology::Three)
        .with(Strike::at_call(7, Fault::Crash { when: When::Before }))
        .with(Strike::at_event(3, Fault::DropEvent))
        .doing(9, Deed::Edit { object, patch: json!({"handler": "x"}) });
    let line = plan.line();
    assert_eq!(line.lines().count(), 1);
    assert_eq!(serde_json::from_str::<Plan>(&line).unwrap(), plan);
}

/// A goal that is never reached is a failure, and says what is missing.
#[test]
fn an_episode_that_is_not_done_in_time_fails() {
    let plan = Plan::calm(Workload::Install, Topology::Single);
    let short = Watch { limit: Duration::from_secs(20), ..watch() };
    let outcome = episode::run(&plan, &Bases::default(), short).unwrap();
    let broken = outcome.broken.first().unwrap();
    assert!(broken.starts_with("L1: phase 0, 20 s: "), "{broken}");
}

/// An API server that refuses for ever leaves the cluster as it is, which is not as it should be.
#[test]
fn a_fault_that_never_ends_is_noticed() {
    let status =
        |code| Fault::Status { code, retry_after: None, message: None, when: When::Before };
    let mut strike = Strike::at_call(20, status(503));
    strike.times = 100_000;
    let plan = Plan::calm(Workload::Uninstall, Topology::Single).with(strike);
    let outcome = References::default().judge(&plan, false, false).unwrap();
    assert!(outcome.broken.iter().any(|broken| broken.starts_with("L1")), "{:?}", outcome.broken);
}

/// Another program changes the files of a container runtime and restarts it late, or when all else has come to its end:
/// until then the node waits, and nothing of the change takes effect.
#[test]
fn a_node_waits_until_another_program_restarts_its_container_runtime() {
    let references = References::default();
    let change = |node: u32, breaks| Deed::ForeignChange { node: worker(node), breaks };
    let end = |node| Deed::ForeignEnd { node: worker(node) };
    let install = Plan::calm(Workload::Install, Topology::PlainThree);
    let killed = Deed::KillAgent { node: worker(0) };
    for plan in [
        install.clone().doing(15, change(0, true)).doing(40, end(0)),
        install.clone().doing(20, change(1, false)).doing(u64::MAX, end(1)),
        install.doing(30, killed).doing(31, change(0, true)).doing(55, end(0)),
        Plan::calm(Workload::Uninstall, Topology::PlainThree)
            .doing(20, change(1, false))
            .doing(45, end(1)),
    ] {
        let outcome = references.judge(&plan, false, false).unwrap();
        assert!(outcome.broken.is_empty(), "{}\n{:#?}", plan.line(), outcome.broken);
    }
}

#[test]
fn a_small_sample_keeps_all_promises() {
    let order = Order {
        amount: Amount { sample: 1, seed: 1 },
        threads: 2,
        budget: None,
        workloads: vec![Workload::Install, Workload::Uninstall],
        topologies: vec![Topology::Single, Topology::Three],
    };
    let summary = campaign::run(&order, &|_| ());
    assert!(summary.crash_points + summary.fault_plans > 10, "{summary:#?}");
    assert_eq!(summary.failures, 0, "{}", kata_assure::report::table(&summary));
}

#[test]
fn a_small_sample_keeps_all_promises_where_jobs_change_nodes() {
    let order = Order {
        amount: Amount { sample: 1, seed: 1 },
        threads: 2,
        budget: None,
        workloads: vec![Workload::Install, Workload::PayloadUpgradeWithPod, Workload::Uninstall],
        topologies: vec![Topology::PlainThree, Topology::PlainMixed],
    };
    let summary = campaign::run(&order, &|_| ());
    assert!(summary.crash_points + summary.fault_plans > 10, "{summary:#?}");
    assert_eq!(summary.failures, 0, "{}", kata_assure::report::table(&summary));
}
