//! The table of conditions, row by row: a cluster that is in the situation, and the conditions that it must have.

use std::collections::BTreeSet;

use kata_api::situations::SITUATIONS;
use kata_plan::decide;
use serde_json::Value;

use super::fixture::build;

/// A situation, a cluster that is in it, the conditions of the KataConfig of this name besides `InProgress`, and the
/// alerts that follow if that lasts.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str);

const ACTIVE: &str = "cluster-kataconfig";

const ROWS: &[Row] = &[
    (
        "not active",
        "{workers: 1, spec: {}, then: [{create: {kind: KataConfig, metadata: {name: later, creationTimestamp: '2026-01-02T00:00:00Z'}, spec: {}}}]}",
        "later",
        "Ready=False NotActive, Stalled=True NotActive",
        "KataRolloutStalled",
    ),
    (
        "unreadable",
        "{workers: 1, spec: {}, installed: true, then: [{unreadable: nodes}]}",
        ACTIVE,
        "Ready=Unknown ReadFailed, Degraded=False AsExpected",
        "KataConfigUnreadable",
    ),
    (
        "unreadable for long",
        "{workers: 2, spec: {}, then: [{rounds: 9}, {unreadable: nodes}, {pass: true}, {minutes: 10}]}",
        ACTIVE,
        "Ready=Unknown ReadFailed, Stalled=True ReadFailed, Degraded=Unknown ReadFailed",
        "KataConfigUnreadable KataRolloutStalled",
    ),
    (
        "deletion unreadable",
        "{workers: 1, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}, {pass: true}, {unreadable: nodes}]}",
        ACTIVE,
        "Ready=Unknown ReadFailed, Reconciling=True Uninstalling, Degraded=False AsExpected, DeletionBlocked=True ReadFailed",
        "KataConfigUnreadable KataDeletionBlocked",
    ),
    (
        "deletion unreadable for long",
        "{workers: 1, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}, {pass: true}, {unreadable: nodes}, {pass: true}, {minutes: 10}]}",
        ACTIVE,
        "Ready=Unknown ReadFailed, Stalled=True ReadFailed, Degraded=Unknown ReadFailed, DeletionBlocked=True ReadFailed",
        "KataConfigUnreadable KataRolloutStalled KataDeletionBlocked",
    ),
    (
        "deletion held",
        "{workers: 1, spec: {}, installed: true, then: [{pod: {name: a, node: worker-0}}, {delete: {kind: KataConfig, name: cluster-kataconfig}}, {rounds: 5}]}",
        ACTIVE,
        "Ready=False Uninstalling, Reconciling=True Uninstalling, Degraded=False AsExpected, DeletionBlocked=True PodsStillRunning",
        "KataDeletionBlocked",
    ),
    (
        "deletion stuck",
        "{workers: 1, spec: {}, then: [{failing: worker-0}, {rounds: 20}, {delete: {kind: KataConfig, name: cluster-kataconfig}}, {rounds: 8}]}",
        ACTIVE,
        "Ready=False Uninstalling, Stalled=True NodeDegradedAndCordoned, Degraded=True NodeDegradedAndCordoned, DeletionBlocked=True NodeDegradedAndCordoned",
        "KataRolloutStalled KataDeletionBlocked",
    ),
    (
        "deleting",
        "{workers: 1, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}, {pass: true}]}",
        ACTIVE,
        "Ready=False Uninstalling, Reconciling=True Uninstalling, Degraded=False AsExpected, DeletionBlocked=False NotBlocked",
        "",
    ),
    (
        "nothing selected",
        "{workers: 1, spec: {kataConfigPoolSelector: {matchLabels: {a: b}}}}",
        ACTIVE,
        "Ready=False NoNodesSelected, Stalled=True NoNodesSelected, Degraded=False AsExpected",
        "KataRolloutStalled",
    ),
    (
        "serving",
        "{workers: 2, spec: {}, installed: true}",
        ACTIVE,
        "Ready=True AllNodesReady, Degraded=False AsExpected",
        "",
    ),
    (
        "serving",
        "{workers: 2, spec: {}, installed: true, then: [{cordon: worker-0}, {notReady: worker-1}, {minutes: 90}]}",
        ACTIVE,
        "Ready=True AllNodesReady, Degraded=False AsExpected",
        "",
    ),
    (
        "rolling out",
        "{workers: 2, spec: {}, then: [{rounds: 9}]}",
        ACTIVE,
        "Ready=False RollingOut, Reconciling=True RollingOut, Degraded=False AsExpected",
        "",
    ),
    (
        "paused",
        "{workers: 2, spec: {rollout: {paused: true}}, then: [{rounds: 30}, {minutes: 90}]}",
        ACTIVE,
        "Ready=False PoolPaused, Degraded=False AsExpected",
        "",
    ),
    (
        "paused",
        "
        workers: 2
        spec: {}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: debug, rollout: {paused: true}}}}
        - rounds: 30
        - minutes: 90
        ",
        ACTIVE,
        "Ready=True AllNodesReady, Degraded=False AsExpected",
        "",
    ),
    (
        "failed or hung",
        "{workers: 2, spec: {}, then: [{failing: worker-0}, {rounds: 20}]}",
        ACTIVE,
        "Ready=False NodeDegraded, Stalled=True NodeDegraded, Degraded=True NodeDegraded",
        "KataRolloutStalled KataConfigDegraded",
    ),
    (
        "failed or hung",
        "{workers: 3, spec: {}, then: [{rounds: 13}, {minutes: 1}, {pass: now}, {minutes: 31}]}",
        ACTIVE,
        "Ready=False NodeNotReady, Stalled=True NodeNotReady, Degraded=True NodeNotReady",
        "KataRolloutStalled KataConfigDegraded",
    ),
    (
        "held",
        "{workers: 1, spec: {}, then: [{undrainable: worker-0}, {rounds: 10}, {minutes: 11}]}",
        ACTIVE,
        "Ready=False DrainBlocked, Stalled=True DrainBlocked, Degraded=False AsExpected",
        "KataRolloutStalled",
    ),
    (
        "held",
        "{workers: 1, spec: {}, before: [{notReady: worker-0}], then: [{rounds: 9}, {minutes: 31}]}",
        ACTIVE,
        "Ready=False NodeNotReady, Stalled=True NodeNotReady, Degraded=False AsExpected",
        "KataRolloutStalled",
    ),
    (
        "waiting",
        "{workers: 1, spec: {}, before: [{notReady: worker-0}], then: [{rounds: 9}, {minutes: 20}]}",
        ACTIVE,
        "Ready=False NodeNotReady, Reconciling=True RollingOut, Degraded=False AsExpected",
        "",
    ),
    (
        "not serving",
        "{workers: 1, spec: {}, installed: true, then: [{unreadable: rendered-kata-oc-1x0}]}",
        ACTIVE,
        "Ready=False NodeStateUnknown, Degraded=False AsExpected",
        "",
    ),
];

/// The same where Jobs change the nodes.
const ROWS_OF_JOBS: &[Row] = &[
    (
        "not active",
        "{plain: true, workers: 1, spec: {}, then: [{create: {kind: KataConfig, metadata: {name: later, creationTimestamp: '2026-01-02T00:00:00Z'}, spec: {}}}]}",
        "later",
        "Ready=False NotActive, Stalled=True NotActive",
        "KataRolloutStalled",
    ),
    (
        "unreadable",
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{unreadable: nodes}]}",
        ACTIVE,
        "Ready=Unknown ReadFailed, Degraded=False AsExpected",
        "KataConfigUnreadable",
    ),
    (
        "unreadable for long",
        "{plain: true, workers: 2, spec: {}, then: [{rounds: 9}, {unreadable: nodes}, {pass: true}, {minutes: 10}]}",
        ACTIVE,
        "Ready=Unknown ReadFailed, Stalled=True ReadFailed, Degraded=Unknown ReadFailed",
        "KataConfigUnreadable KataRolloutStalled",
    ),
    (
        "deletion unreadable",
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}, {pass: true}, {unreadable: nodes}]}",
        ACTIVE,
        "Ready=Unknown ReadFailed, Reconciling=True Uninstalling, Degraded=False AsExpected, DeletionBlocked=True ReadFailed",
        "KataConfigUnreadable KataDeletionBlocked",
    ),
    (
        "deletion unreadable for long",
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}, {pass: true}, {unreadable: nodes}, {pass: true}, {minutes: 10}]}",
        ACTIVE,
        "Ready=Unknown ReadFailed, Stalled=True ReadFailed, Degraded=Unknown ReadFailed, DeletionBlocked=True ReadFailed",
        "KataConfigUnreadable KataRolloutStalled KataDeletionBlocked",
    ),
    (
        "deletion held",
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{pod: {name: a, node: worker-0}}, {delete: {kind: KataConfig, name: cluster-kataconfig}}, {rounds: 5}]}",
        ACTIVE,
        "Ready=False Uninstalling, Reconciling=True Uninstalling, Degraded=False AsExpected, DeletionBlocked=True PodsStillRunning",
        "KataDeletionBlocked",
    ),
    (
        "deletion stuck",
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{fate: {node: worker-0, fate: Fails}}, {delete: {kind: KataConfig, name: cluster-kataconfig}}, {rounds: 300}]}",
        ACTIVE,
        "Ready=False Uninstalling, Stalled=True NodeJobFailed, Degraded=True NodeJobFailed, DeletionBlocked=True NodeJobFailed",
        "KataRolloutStalled KataDeletionBlocked",
    ),
    (
        "deleting",
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}, {pass: true}]}",
        ACTIVE,
        "Ready=False Uninstalling, Reconciling=True Uninstalling, Degraded=False AsExpected, DeletionBlocked=False NotBlocked",
        "",
    ),
    (
        "nothing selected",
        "{plain: true, workers: 1, spec: {kataConfigPoolSelector: {matchLabels: {a: b}}}}",
        ACTIVE,
        "Ready=False NoNodesSelected, Stalled=True NoNodesSelected, Degraded=False AsExpected",
        "KataRolloutStalled",
    ),
    (
        "serving",
        "{plain: true, workers: 2, spec: {}, installed: true}",
        ACTIVE,
        "Ready=True AllNodesReady, Degraded=False AsExpected",
        "",
    ),
    (
        "serving",
        "{plain: true, workers: 2, spec: {}, installed: true, then: [{cordon: worker-0}, {notReady: worker-1}, {minutes: 90}]}",
        ACTIVE,
        "Ready=True AllNodesReady, Degraded=False AsExpected",
        "",
    ),
    (
        "rolling out",
        "{plain: true, workers: 2, spec: {}, then: [{rounds: 9}]}",
        ACTIVE,
        "Ready=False RollingOut, Reconciling=True RollingOut, Degraded=False AsExpected",
        "",
    ),
    (
        "paused",
        "{plain: true, workers: 2, spec: {rollout: {paused: true}}, then: [{rounds: 30}, {minutes: 90}]}",
        ACTIVE,
        "Ready=False RolloutPaused, Degraded=False AsExpected",
        "",
    ),
    (
        "paused",
        "
        plain: true
        workers: 2
        spec: {}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {payload: {image: 'registry.example/payload:2'}, rollout: {paused: true}}}}
        - rounds: 30
        - minutes: 90
        ",
        ACTIVE,
        "Ready=True AllNodesReady, Degraded=False AsExpected",
        "",
    ),
    (
        "failed or hung",
        "{plain: true, workers: 2, spec: {}, then: [{fate: {node: worker-0, fate: Breaks}}, {fate: {node: worker-1, fate: Breaks}}, {rounds: 300}]}",
        ACTIVE,
        "Ready=False NodeBroken, Stalled=True NodeBroken, Degraded=True NodeBroken",
        "KataRolloutStalled KataConfigDegraded",
    ),
    (
        "failed or hung",
        "{plain: true, workers: 1, spec: {}, then: [{fate: {node: worker-0, fate: Hangs}}, {rounds: 20}, {minutes: 40}, {rounds: 100}, {minutes: 40}, {rounds: 100}, {minutes: 40}, {rounds: 10}]}",
        ACTIVE,
        "Ready=False NodeJobTimedOut, Stalled=True NodeJobTimedOut, Degraded=True NodeJobTimedOut",
        "KataRolloutStalled KataConfigDegraded",
    ),
    (
        "held",
        "{plain: true, workers: 1, spec: {}, before: [{cordon: worker-0}], then: [{rounds: 9}]}",
        ACTIVE,
        "Ready=False NodeCordoned, Stalled=True NodeCordoned, Degraded=False AsExpected",
        "KataRolloutStalled",
    ),
    (
        "held",
        "{plain: true, workers: 1, spec: {}, before: [{notReady: worker-0}], then: [{rounds: 9}, {minutes: 31}]}",
        ACTIVE,
        "Ready=False NodeNotReady, Stalled=True NodeNotReady, Degraded=False AsExpected",
        "KataRolloutStalled",
    ),
    (
        "waiting",
        "{plain: true, workers: 1, spec: {}, before: [{notReady: worker-0}], then: [{rounds: 9}, {minutes: 20}]}",
        ACTIVE,
        "Ready=False NodeNotReady, Reconciling=True RollingOut, Degraded=False AsExpected",
        "",
    ),
    (
        "waiting",
        "{plain: true, workers: 1, spec: {}, then: [{fate: {node: worker-0, fate: NoImage}}, {rounds: 12}]}",
        ACTIVE,
        "Ready=False NodeJobImage, Reconciling=True RollingOut, Degraded=False AsExpected",
        "",
    ),
    (
        "not serving",
        "{plain: true, workers: 1, spec: {}, installed: true, then: [{notReady: worker-0}, {edit: {kind: Node, name: worker-0, with: {metadata: {labels: {katacontainers.io/kata-runtime: null}}}}}]}",
        ACTIVE,
        "Ready=False NodeNotReady, Degraded=False AsExpected",
        "",
    ),
];

/// The conditions of a KataConfig as the next decision has them.
fn conditions(fixture: &str, config: &str) -> String {
    let report = decide(&build(fixture).observe()).report;
    let mut all = report.status.iter().chain(&report.other_configs);
    let status = all.find(|status| status.config.name == config).unwrap();
    let conditions = status.status.conditions.iter().filter(|it| it.type_ != "InProgress");
    let texts: Vec<String> =
        conditions.map(|it| format!("{}={} {}", it.type_, it.status, it.reason)).collect();
    texts.join(", ")
}

#[test]
fn every_situation_has_the_conditions_of_its_row() {
    for rows in [ROWS, ROWS_OF_JOBS] {
        for (name, fixture, config, expected, alerts) in rows {
            assert_eq!(conditions(fixture, config), *expected, "{name}: {fixture}");
            let row = SITUATIONS.iter().find(|row| row.name == *name).unwrap();
            let of_row: Vec<&str> = row.alerts().collect();
            assert_eq!(of_row.join(" "), *alerts, "{name}");
        }
        let tested: BTreeSet<&str> = rows.iter().map(|row| row.0).collect();
        let all: BTreeSet<&str> = SITUATIONS.iter().map(|row| row.name).collect();
        assert_eq!(tested, all, "every row has a cluster that is in it");
    }
}

/// What fails is tried again and again; that is no reason to say that it goes on.
#[test]
fn stalled_stays_until_a_node_moves() {
    let mut world = build("{workers: 2, spec: {}, then: [{failing: worker-0}, {rounds: 20}]}");
    let since = |world: &crate::world::World| {
        let config: &Value = world.get(kata_plan::Kind::KataConfig, ACTIVE).unwrap();
        let conditions = config["status"]["conditions"].as_array().unwrap();
        let stalled = conditions.iter().find(|it| it["type"] == "Stalled");
        stalled.map(|it| it["lastTransitionTime"].clone())
    };
    let begun = since(&world).unwrap();
    for _ in 0..100 {
        // What the operator wrote is undone, so that it has something to write in each pass.
        world.delete(kata_plan::Kind::KataNode, "worker-1");
        world.label("worker-1", "node-role.kubernetes.io/kata-oc", None);
        world.pass();
        world.tick();
        assert_eq!(since(&world), Some(begun.clone()));
    }
    world.failing.clear();
    world.settle();
    assert_eq!(since(&world), None);
}
