//! The enumeration of the decision: it holds on small clusters, everything of interest comes about in it,
//! and each of its properties fails when the decision or its environment is broken in one place.

use std::time::Duration;

use kata_assure::model::{Checked, Distortion, Machine, Scope, check, check_for};
use kata_plan::{Action, Decision, Kind, Observed, Snapshot};

const LIMIT: Duration = Duration::from_mins(5);

const SMALL: Scope = Scope {
    nodes: 1,
    edits: 1,
    faults: 0,
    stalls: 0,
    pods: 1,
    operators: 1,
    lingers: false,
    log_level: false,
};

fn failing(checked: &Checked) -> Vec<&'static str> {
    let broken = checked.properties.iter().filter(|it| it.kind == "always" && !it.holds);
    broken.map(|property| property.name).collect()
}

#[test]
fn holds_on_small_clusters_and_everything_comes_about() {
    let scopes = [
        Scope { faults: 1, ..SMALL },
        Scope { stalls: 1, edits: 0, ..SMALL },
        Scope { nodes: 2, ..SMALL },
        Scope { lingers: true, log_level: true, ..SMALL },
    ];
    let checked: Vec<Checked> = scopes
        .into_iter()
        .map(|scope| check(Machine::new(scope, Distortion::default()), 1, Some(LIMIT)))
        .collect();
    for scope in &checked {
        assert_eq!(failing(scope), [""; 0], "{scope:#?}");
        assert!(scope.exhaustive, "{}: {} states", scope.scope, scope.generated);
    }
    let all = || checked.iter().flat_map(|scope| &scope.properties);
    for property in all().filter(|property| property.kind == "sometimes") {
        let happens = all().any(|other| other.name == property.name && other.holds);
        assert!(happens, "never happens: {}", property.name);
    }
}

/// Expects that a property fails when the decision is broken like this.
fn expect_failure(
    property: &'static str,
    scope: Scope,
    see: fn(&mut Snapshot),
    act: fn(&Snapshot, &mut Decision),
) {
    let sound = check_for(Machine::new(scope, Distortion::default()), property, LIMIT);
    let holds = |checked: &Checked| !failing(checked).contains(&property);
    assert!(sound.properties.iter().any(|it| it.name == property && it.kind == "always"));
    assert!(holds(&sound), "{property} fails without any distortion");
    let broken = check_for(Machine::new(scope, Distortion { see, act }), property, LIMIT);
    assert!(!holds(&broken), "{property} cannot fail: {} states", broken.generated);
}

fn as_it_is(_: &mut Snapshot) {}

fn as_decided(_: &Snapshot, _: &mut Decision) {}

fn nodes(snapshot: &mut Snapshot) -> impl Iterator<Item = &mut kata_plan::NodeFacts> {
    let nodes: &mut [_] = match &mut snapshot.nodes {
        Observed::Known(nodes) => nodes,
        Observed::Unknown { .. } => &mut [],
    };
    nodes.iter_mut().map(std::sync::Arc::make_mut)
}

fn annotate(node: &mut kata_plan::NodeFacts, key: &str, value: String) {
    node.annotations.insert(format!("machineconfiguration.openshift.io/{key}"), value);
}

#[test]
fn taking_a_node_with_pods_is_found() {
    expect_failure(
        "S1: nothing is taken from under a running pod",
        SMALL,
        |snapshot| {
            for pods in snapshot.pods.values_mut() {
                *pods = Observed::Known(Vec::new());
            }
        },
        as_decided,
    );
}

#[test]
fn taking_a_node_that_is_still_open_is_found() {
    expect_failure(
        "S2: nothing is taken while pods can still come",
        SMALL,
        |snapshot| {
            for node in nodes(snapshot) {
                node.labels.remove("katacontainers.io/kata-runtime");
            }
        },
        as_decided,
    );
}

#[test]
fn marking_a_node_too_early_is_found() {
    expect_failure(
        "S3: only nodes with Kata are marked, and classes served",
        SMALL,
        |snapshot| {
            for node in nodes(snapshot) {
                let desired = "machineconfiguration.openshift.io/desiredConfig";
                let desired = node.annotations.get(desired).cloned().unwrap_or_default();
                annotate(node, "currentConfig", desired);
                annotate(node, "state", "Done".to_owned());
                node.unschedulable = false;
                node.ready.status = Some(true);
                node.runtime_handlers = None;
            }
        },
        as_decided,
    );
}

#[test]
fn a_mark_that_stays_is_found() {
    expect_failure(
        "S3: a node without Kata loses its mark in a pass",
        Scope { faults: 1, edits: 0, ..SMALL },
        as_it_is,
        |_, decision| {
            decision.plan.steps.retain(|step| match &step.action {
                Action::LabelNode { remove, .. } => remove.is_empty(),
                _ => true,
            });
        },
    );
}

/// Nodes seem to have left the pool as soon as their label is off, and the pool seems to be empty.
fn hurry(snapshot: &mut Snapshot) {
    for node in nodes(snapshot) {
        if !node.labels.contains_key("node-role.kubernetes.io/kata-oc") {
            annotate(node, "currentConfig", "rendered-worker-1".to_owned());
            annotate(node, "desiredConfig", "rendered-worker-1".to_owned());
        }
    }
    if let Observed::Known(pools) = &mut snapshot.pools {
        for status in pools.iter_mut().filter_map(|pool| pool.status.as_mut()) {
            status.machine_count = 0;
        }
    }
}

#[test]
fn a_pool_that_goes_too_early_is_found() {
    expect_failure("the pool is not deleted under its nodes", SMALL, hurry, as_decided);
}

#[test]
fn a_node_without_its_configuration_is_found() {
    expect_failure("no node is left without its configuration", SMALL, hurry, |_, decision| {
        // The MachineConfig stays, so that the pool alone goes too early.
        decision.plan.steps.retain(|step| {
            !matches!(&step.action,
                Action::Delete { object, .. } if object.kind == Kind::MachineConfig)
        });
    });
}

#[test]
fn a_pool_before_its_machine_config_is_found() {
    expect_failure(
        "the MachineConfig is there before a node is sent",
        SMALL,
        as_it_is,
        |_, decision| {
            let late = |action: &Action| {
                matches!(action, Action::Apply { .. })
                    && action.object().kind == Kind::MachineConfig
            };
            decision.plan.steps.sort_by_key(|step| late(&step.action));
        },
    );
}

#[test]
fn a_finalizer_that_goes_too_early_is_found() {
    expect_failure(
        "S7: the finalizer goes when nothing is left",
        SMALL,
        |snapshot| {
            if snapshot.configs.iter().any(|it| it.metadata.deletion_timestamp.is_some()) {
                snapshot.kata_nodes = Observed::Known(Vec::new());
            }
        },
        as_decided,
    );
}

#[test]
fn a_deletion_by_name_is_found() {
    expect_failure(
        "S8: only the object that was seen is deleted",
        SMALL,
        as_it_is,
        |_, decision| {
            for step in &mut decision.plan.steps {
                if let Action::Delete { object, .. } = &mut step.action {
                    object.uid = None;
                }
            }
        },
    );
}

#[test]
fn a_foreign_label_is_found() {
    expect_failure("S9: only what is ours is written", SMALL, as_it_is, |_, decision| {
        for step in &mut decision.plan.steps {
            if let Action::LabelNode { set, .. } = &mut step.action {
                set.insert("example.com/kata".to_owned(), String::new());
            }
        }
    });
}

#[test]
fn a_write_before_the_finalizer_is_found() {
    expect_failure(
        "S10: the finalizer is there before anything else",
        SMALL,
        as_it_is,
        |_, decision| {
            let steps = &mut decision.plan.steps;
            steps.retain(|step| !matches!(step.action, Action::AddFinalizer { .. }));
        },
    );
}

#[test]
fn a_failed_read_taken_for_an_empty_list_is_found() {
    expect_failure(
        "S13: what is unknown disturbs nothing",
        Scope { faults: 1, ..SMALL },
        |snapshot| {
            for pods in snapshot.pods.values_mut() {
                if !pods.is_known() {
                    *pods = Observed::Known(Vec::new());
                }
            }
        },
        as_decided,
    );
}

#[test]
fn a_plan_without_its_reasons_is_found() {
    expect_failure("the decision's own checker agrees", SMALL, as_it_is, |_, decision| {
        decision.report.waiting_on.clear();
        decision.report.findings.clear();
    });
}

const DRAINS: &str = "ESR: every state drains to what is wanted";

#[test]
fn an_end_that_is_not_the_wanted_one_is_found() {
    expect_failure(DRAINS, SMALL, as_it_is, |_, decision| {
        decision.plan.steps.retain(|step| {
            !matches!(&step.action,
                Action::Delete { object, .. } if object.kind == Kind::RuntimeClass)
        });
    });
}

#[test]
fn a_circle_is_found() {
    // Each pass takes the mark from a node that has it: it comes and goes for ever.
    expect_failure(DRAINS, SMALL, as_it_is, |snapshot, decision| {
        let nodes = snapshot.nodes.known().into_iter().flatten();
        let marked = nodes.filter(|node| {
            node.labels.contains_key("katacontainers.io/kata-runtime")
                && node.labels.contains_key("kata")
        });
        for node in marked {
            decision.plan.steps.push(kata_plan::Step {
                action: Action::LabelNode {
                    node: kata_plan::ObjectRef::new(Kind::Node, &node.name, Some(&node.uid)),
                    seen: None,
                    set: Default::default(),
                    remove: ["katacontainers.io/kata-runtime".to_owned()].into(),
                    needs_fresh_classes: false,
                },
                on_failure: kata_plan::OnFailure::Continue,
                why: "to show that circles are found".to_owned(),
            });
        }
    });
}
