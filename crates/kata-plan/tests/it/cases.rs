//! Single situations: a cluster in, the whole decision as text out.
//!
//! A fixture says how the cluster came to be: its size, the KataConfig's spec, whether the installation
//! is over, and what happened `then`. The expected text is in `snapshots/`.

use kata_plan::decide;

use self::fixture::build;
use crate::promises::forms;
use crate::render;

pub(crate) mod fixture;
mod situations;

/// The text of a fixture's decision.
fn decision(fixture: &str) -> String {
    let world = build(fixture);
    let snapshot = world.observe();
    let decision = decide(&snapshot);
    let violations = kata_plan::invariants::check(&snapshot, &decision);
    assert!(violations.is_empty(), "{violations:#?}");
    forms::check(&snapshot, &decision);
    render::decision(&decision)
}

macro_rules! cases {
    ($($name:ident: $fixture:literal)*) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(stringify!($name), decision($fixture));
            }
        )*
    };
}

cases! {
    no_kataconfig: "{workers: 1}"
    first_pass: "{workers: 2, spec: {}}"
    first_pass_with_a_log_level: "{workers: 1, spec: {logLevel: debug}}"
    selector_with_expressions: "
        workers: 3
        before:
        - edit: {kind: Node, name: worker-0, with: {metadata: {labels: {zone: a}}}}
        - edit: {kind: Node, name: worker-1, with: {metadata: {labels: {zone: b}}}}
        spec: {kataConfigPoolSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [b]}, {key: zone, operator: Exists}]}}
        "
    eligibility: "
        workers: 2
        before:
        - edit: {kind: Node, name: worker-1, with: {metadata: {labels: {feature.node.kubernetes.io/runtime.kata: 'true'}}}}
        spec: {checkNodeEligibility: true}
        "
    eligibility_lost_later_uninstalls_nothing: "
        workers: 1
        before:
        - edit: {kind: Node, name: worker-0, with: {metadata: {labels: {feature.node.kubernetes.io/runtime.kata: 'true'}}}}
        spec: {checkNodeEligibility: true}
        installed: true
        then:
        - edit: {kind: Node, name: worker-0, with: {metadata: {labels: {feature.node.kubernetes.io/runtime.kata: null}}}}
        "
    invalid_selector: "
        workers: 1
        spec: {}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {kataConfigPoolSelector: {matchExpressions: [{key: a, operator: Foo}]}}}}
        "
    selector_with_labels_that_cannot_be: "
        workers: 1
        spec: {}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {kataConfigPoolSelector: {matchLabels: {a b: c}}}}}
        "
    nothing_selected: "{spec: {kataConfigPoolSelector: {matchLabels: {kata: 'true'}}}}"
    excluded_nodes_are_named: "
        workers: 4
        before:
        - edit: {kind: Node, name: worker-0, with: {metadata: {labels: {kubernetes.io/os: windows}}}}
        - edit: {kind: Node, name: worker-1, with: {metadata: {annotations: {machineconfiguration.openshift.io/currentConfig: null}}}}
        - edit: {kind: Node, name: worker-2, with: {metadata: {labels: {infra: ''}}}}
        - edit: {kind: Node, name: master-0, with: {metadata: {labels: {node-role.kubernetes.io/worker: ''}}}}
        - create: {kind: MachineConfigPool, metadata: {name: infra}, spec: {nodeSelector: {matchLabels: {infra: ''}}, machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}}}
        spec: {}
        "
    node_in_two_pools: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: MachineConfigPool, metadata: {name: infra}, spec: {nodeSelector: {matchLabels: {infra: ''}}, machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}}}
        - edit: {kind: Node, name: worker-0, with: {metadata: {labels: {infra: ''}}}}
        "
    rollout_half_way: "{workers: 3, spec: {}, then: [{rounds: 13}]}"
    // A reboot is written half a minute after the last write; from then on its time counts.
    reboot_that_does_not_end: "{workers: 3, spec: {}, then: [{rounds: 13}, {minutes: 1}, {pass: now}, {minutes: 31}]}"
    rollout_with_a_running_node: "{workers: 2, spec: {}, then: [{rounds: 14}]}"
    joining_waits_for_the_rendering_of_a_pool_that_was_rendered_without_us: "
        workers: 2
        before: [{edit: {kind: Node, name: worker-0, with: {metadata: {labels: {kata: 'true'}}}}}]
        spec: {kataConfigPoolSelector: {matchLabels: {kata: 'true'}}}
        installed: true
        then:
        - delete: {kind: MachineConfig, name: 50-enable-sandboxed-containers-extension}
        - render: true
        - edit: {kind: Node, name: worker-1, with: {metadata: {labels: {kata: 'true'}}}}
        "
    a_pool_with_a_longer_name_is_not_ours: "
        workers: 2
        before:
        - create: {kind: MachineConfigPool, metadata: {name: kata-oc-2}, spec: {nodeSelector: {matchLabels: {two: ''}}, machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}}}
        - edit: {kind: Node, name: worker-0, with: {metadata: {labels: {kata: 'true'}}}}
        - edit: {kind: Node, name: worker-1, with: {metadata: {labels: {two: ''}, annotations: {machineconfiguration.openshift.io/currentConfig: rendered-kata-oc-2-0x0, machineconfiguration.openshift.io/desiredConfig: rendered-kata-oc-2-0x0}}}}
        - render: true
        spec: {kataConfigPoolSelector: {matchLabels: {kata: 'true'}}}
        "
    idle: "{workers: 2, spec: {}, installed: true}"
    pool_paused: "
        workers: 2
        spec: {}
        then:
        - rounds: 1
        - edit: {kind: MachineConfigPool, name: kata-oc, with: {spec: {paused: true}}}
        - rounds: 30
        "
    rollout_paused_by_the_kataconfig: "{workers: 1, spec: {rollout: {paused: true, maxUnavailable: 2}}, then: [{rounds: 5}]}"
    render_degraded: "
        workers: 1
        spec: {}
        then:
        - pass: true
        - edit: {kind: MachineConfigPool, name: kata-oc, with: {status: {conditions: [{type: RenderDegraded, status: 'True', message: 'MachineConfig 99-bad is bad'}]}}}
        - pass: true
        "
    a_failure_of_an_older_generation_says_nothing: "
        workers: 1
        before:
        - create: {kind: ContainerRuntimeConfig, metadata: {name: theirs, generation: 2}, spec: {machineConfigPoolSelector: {matchExpressions: [{key: pools.operator.machineconfiguration.openshift.io/kata-oc, operator: Exists}]}}, status: {observedGeneration: 1, conditions: [{type: Failure, status: 'True', message: 'Error: invalid'}]}}
        spec: {}
        then: [{pass: true}]
        "
    failed_container_runtime_config_freezes_rendering: "
        workers: 1
        before:
        - create: {kind: ContainerRuntimeConfig, metadata: {name: theirs}, spec: {machineConfigPoolSelector: {matchExpressions: [{key: pools.operator.machineconfiguration.openshift.io/kata-oc, operator: Exists}]}}, status: {conditions: [{type: Failure, status: 'True', message: 'Error: invalid'}]}}
        spec: {}
        then: [{pass: true}]
        "
    node_cordoned_by_somebody: "
        workers: 2
        spec: {}
        then:
        - cordon: worker-0
        - rounds: 30
        "
    node_not_ready_for_a_moment_keeps_its_label: "{workers: 1, spec: {}, installed: true, then: [{notReady: worker-0}]}"
    node_not_ready_for_long_keeps_its_label: "{workers: 1, spec: {}, installed: true, then: [{notReady: worker-0}, {minutes: 90}]}"
    node_failed: "{workers: 2, spec: {}, then: [{failing: worker-0}, {rounds: 20}]}"
    node_failed_and_cordoned: "
        workers: 2
        spec: {}
        then:
        - failing: worker-0
        - rounds: 20
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {finalizers: [kataconfiguration.openshift.io/finalizer], deletionTimestamp: '2026-01-01T00:00:00Z'}}}
        - rounds: 5
        "
    drain_blocked: "
        workers: 1
        spec: {}
        then:
        - undrainable: worker-0
        - create: {kind: Pod, metadata: {namespace: shop, name: cart, labels: {app: cart}}, spec: {nodeName: worker-0, containers: []}}
        - create: {kind: PodDisruptionBudget, metadata: {namespace: shop, name: cart}, spec: {selector: {matchLabels: {app: cart}}}, status: {currentHealthy: 1, desiredHealthy: 1, disruptionsAllowed: 0, expectedPods: 1}}
        - rounds: 10
        - minutes: 11
        "
    handler_missing: "
        workers: 1
        spec: {}
        installed: true
        then:
        - edit: {kind: Node, name: worker-0, with: {status: {runtimeHandlers: [{name: runc}]}}}
        "
    handlers_not_reported_are_accepted: "
        workers: 1
        spec: {}
        installed: true
        then:
        - edit: {kind: Node, name: worker-0, with: {status: {runtimeHandlers: []}}}
        "
    unrelated_rollout: "
        workers: 2
        spec: {}
        installed: true
        then:
        - create: {kind: MachineConfig, metadata: {name: 99-worker-motd, labels: {machineconfiguration.openshift.io/role: worker}}, spec: {}}
        - rounds: 7
        "
    rendered_config_unreadable: "{workers: 1, spec: {}, installed: true, then: [{unreadable: rendered-kata-oc-1x0}]}"
    nodes_unreadable: "{workers: 1, spec: {}, installed: true, then: [{unreadable: nodes}]}"
    pods_unreadable_while_deleting: "{workers: 1, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}, {pass: true}, {unreadable: pods}]}"
    no_worker_pool: "{workers: 1, spec: {}, before: [{delete: {kind: MachineConfigPool, name: worker}}]}"
    foreign_runtime_class: "
        workers: 1
        before: [{create: {kind: RuntimeClass, metadata: {name: kata}, handler: other}}]
        spec: {}
        installed: true
        "
    foreign_machine_config: "
        workers: 1
        before: [{create: {kind: MachineConfig, metadata: {name: 50-enable-sandboxed-containers-extension}, spec: {extensions: [usbguard]}}}]
        spec: {}
        "
    handler_changed_while_in_use: "
        workers: 1
        spec: {}
        installed: true
        then:
        - pod: {name: web, node: worker-0}
        - edit: {kind: RuntimeClass, name: kata, with: {handler: kata-old}}
        "
    runtime_class_no_longer_named: "
        workers: 1
        spec: {}
        installed: true
        then:
        - edit: {kind: Node, name: worker-0, with: {status: {runtimeHandlers: [{name: vm}, {name: kata}]}}}
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {runtimes: [{name: vm, overhead: {cpu: '0.5'}, nodeSelector: {a: b}}]}}}
        "
    log_level_back_to_the_default: "
        workers: 1
        spec: {logLevel: debug}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: info}}}
        "
    log_level_changed: "
        workers: 2
        spec: {}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: debug}}}
        "
    log_level_on_its_way: "
        workers: 2
        spec: {}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: debug}}}
        - rounds: 6
        "
    log_level_with_a_paused_pool: "
        workers: 1
        spec: {}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: debug}}}
        - edit: {kind: MachineConfigPool, name: kata-oc, with: {spec: {paused: true}}}
        - rounds: 6
        "
    log_level_refused: "
        workers: 1
        spec: {}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: debug}}}
        - pass: true
        - edit: {kind: ContainerRuntimeConfig, name: kata-crio-config, with: {metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [{type: Success, status: 'True', message: Success}, {type: Failure, status: 'True', message: 'Error: could not find any MachineConfigPool set for ContainerRuntimeConfig kata-crio-config'}]}}}
        "
    log_level_of_somebody_else: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: ContainerRuntimeConfig, metadata: {name: theirs}, spec: {machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ''}}, containerRuntimeConfig: {logLevel: warn}}}
        - rounds: 5
        "
    log_level_overridden_by_somebody_else: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: ContainerRuntimeConfig, metadata: {name: theirs}, spec: {machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/kata-oc: ''}}, containerRuntimeConfig: {logLevel: warn}}}
        - settle: true
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: debug}}}
        - settle: true
        "
    image_mode_first_pass: "
        workers: 1
        before:
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: osc-feature-gates}, data: {layeredImageDeployment: 'true'}}
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: layered-image-deploy-cm}, data: {osImageURL: kata1, kernelArguments: ' a=1  b '}}
        spec: {}
        "
    image_mode_without_its_config_map: "
        workers: 1
        before:
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: osc-feature-gates}, data: {layeredImageDeployment: 'true'}}
        spec: {}
        "
    image_mode_loses_its_image_after_the_installation: "
        workers: 1
        before:
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: osc-feature-gates}, data: {layeredImageDeployment: 'true'}}
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: layered-image-deploy-cm}, data: {osImageURL: kata1}}
        spec: {}
        installed: true
        then:
        - edit: {kind: ConfigMap, name: openshift-sandboxed-containers-operator/layered-image-deploy-cm, with: {data: {osImageURL: null}}}
        "
    image_mode_is_kept_when_its_gate_is_gone: "
        workers: 1
        before:
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: osc-feature-gates}, data: {layeredImageDeployment: 'true'}}
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: layered-image-deploy-cm}, data: {osImageURL: kata1}}
        spec: {}
        installed: true
        then:
        - delete: {kind: ConfigMap, name: openshift-sandboxed-containers-operator/osc-feature-gates}
        - delete: {kind: ConfigMap, name: openshift-sandboxed-containers-operator/layered-image-deploy-cm}
        "
    feature_gates_unreadable_before_the_installation: "{workers: 1, before: [{unreadable: osc-feature-gates}], spec: {}}"
    feature_gates_unreadable_after_the_installation: "{workers: 1, spec: {}, installed: true, then: [{unreadable: osc-feature-gates}]}"
    image_changed: "
        workers: 2
        before:
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: osc-feature-gates}, data: {layeredImageDeployment: 'true'}}
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: layered-image-deploy-cm}, data: {osImageURL: kata1}}
        spec: {}
        installed: true
        then:
        - edit: {kind: ConfigMap, name: openshift-sandboxed-containers-operator/layered-image-deploy-cm, with: {data: {osImageURL: kata2}}}
        - rounds: 6
        "
    image_mode_switched_on_after_the_installation: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: osc-feature-gates}, data: {layeredImageDeployment: 'true'}}
        - create: {kind: ConfigMap, metadata: {namespace: openshift-sandboxed-containers-operator, name: layered-image-deploy-cm}, data: {osImageURL: kata1}}
        "
    scale_in_with_a_running_pod: "
        workers: 2
        spec: {}
        installed: true
        then:
        - pod: {name: web, node: worker-1}
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {kataConfigPoolSelector: {matchLabels: {a: b}}}}}
        - pass: true
        "
    deletion_first_pass: "{workers: 2, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}]}"
    deletion_blocked_by_many_pods: "
        workers: 2
        spec: {}
        installed: true
        then:
        - pod: {name: a, node: worker-0}
        - pod: {name: b, node: worker-0}
        - pod: {name: c, node: worker-0}
        - pod: {name: d, node: worker-0}
        - pod: {name: e, node: worker-0}
        - pod: {name: f, node: worker-0}
        - pod: {name: g, node: worker-0}
        - pod: {name: h, node: worker-0}
        - pod: {name: i, node: worker-0}
        - pod: {name: j, node: worker-0}
        - pod: {name: k, node: worker-1}
        - pod: {name: done, node: worker-1}
        - edit: {kind: Pod, name: default/done, with: {status: {phase: Succeeded}}}
        - edit: {kind: Pod, name: default/a, with: {metadata: {labels: {pod-template-hash: 6d4b}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-6d4b, uid: x, controller: true}]}}}
        - delete: {kind: KataConfig, name: cluster-kataconfig}
        - pass: true
        "
    deletion_half_way: "{workers: 2, spec: {}, installed: true, then: [{delete: {kind: KataConfig, name: cluster-kataconfig}}, {rounds: 8}]}"
    deletion_while_the_worker_pool_is_paused: "
        workers: 1
        spec: {}
        installed: true
        then:
        - delete: {kind: KataConfig, name: cluster-kataconfig}
        - edit: {kind: MachineConfigPool, name: worker, with: {spec: {paused: true}}}
        - rounds: 10
        "
    deletion_held_up_by_another_worker: "
        workers: 2
        before: [{edit: {kind: Node, name: worker-0, with: {metadata: {labels: {kata: 'true'}}}}}]
        spec: {kataConfigPoolSelector: {matchLabels: {kata: 'true'}}}
        installed: true
        then:
        - cordon: worker-1
        - delete: {kind: KataConfig, name: cluster-kataconfig}
        - rounds: 10
        "
    deletion_behind_another_rollout: "
        workers: 2
        before: [{edit: {kind: Node, name: worker-0, with: {metadata: {labels: {kata: 'true'}}}}}]
        spec: {kataConfigPoolSelector: {matchLabels: {kata: 'true'}}}
        installed: true
        then:
        - undrainable: worker-1
        - create: {kind: MachineConfig, metadata: {name: 99-worker-motd, labels: {machineconfiguration.openshift.io/role: worker}}, spec: {}}
        - edit: {kind: MachineConfigPool, name: kata-oc, with: {spec: {paused: true}}}
        - rounds: 3
        - delete: {kind: KataConfig, name: cluster-kataconfig}
        - rounds: 6
        "
    pods_of_other_people_elsewhere_do_not_block_the_deletion: "
        workers: 2
        before: [{edit: {kind: Node, name: worker-0, with: {metadata: {labels: {kata: 'true'}}}}}]
        spec: {kataConfigPoolSelector: {matchLabels: {kata: 'true'}}}
        installed: true
        then:
        - create: {kind: RuntimeClass, metadata: {name: kata-qemu}, handler: kata}
        - create: {kind: Pod, metadata: {namespace: default, name: theirs}, spec: {runtimeClassName: kata-qemu, nodeName: worker-1, containers: []}, status: {phase: Running}}
        - create: {kind: Pod, metadata: {namespace: default, name: pending}, spec: {runtimeClassName: kata-qemu, containers: []}, status: {phase: Pending}}
        - delete: {kind: KataConfig, name: cluster-kataconfig}
        - pass: true
        "
    pods_of_other_people_on_our_nodes_block_the_deletion: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: RuntimeClass, metadata: {name: kata-qemu}, handler: kata}
        - create: {kind: Pod, metadata: {namespace: default, name: theirs}, spec: {runtimeClassName: kata-qemu, nodeName: worker-0, containers: []}, status: {phase: Running}}
        - delete: {kind: KataConfig, name: cluster-kataconfig}
        - pass: true
        "
    label_of_verified_nodes_by_somebody_else: "
        workers: 2
        before:
        - edit: {kind: Node, name: worker-0, with: {metadata: {labels: {kata: 'true'}}}}
        - edit: {kind: Node, name: worker-1, with: {metadata: {labels: {katacontainers.io/kata-runtime: 'true'}}}}
        spec: {kataConfigPoolSelector: {matchLabels: {kata: 'true'}}}
        installed: true
        "
    nothing_selected_and_the_pool_paused: "
        workers: 1
        spec: {}
        installed: true
        then:
        - edit: {kind: MachineConfigPool, name: kata-oc, with: {spec: {paused: true}}}
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {kataConfigPoolSelector: {matchLabels: {a: b}}}}}
        - rounds: 20
        "
    failed_container_runtime_config_without_a_selector_freezes_every_pool: "
        workers: 1
        before:
        - create: {kind: ContainerRuntimeConfig, metadata: {name: theirs}, spec: {machineConfigPoolSelector: {}}, status: {conditions: [{type: Failure, status: 'True', message: 'Error: could not find any MachineConfigPool set for ContainerRuntimeConfig theirs'}]}}
        spec: {}
        then: [{pass: true}]
        "
    drain_that_began_before_anybody_wrote_it_down: "
        workers: 1
        spec: {}
        then:
        - undrainable: worker-0
        - rounds: 10
        - edit: {kind: Node, name: worker-0, with: {spec: {taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule, timeAdded: '2026-01-01T00:00:20Z'}]}}}
        - minutes: 11
        - delete: {kind: KataNode, name: worker-0}
        "
    compact_cluster_with_a_leftover_pool: "
        compact: true
        before:
        - create: {kind: MachineConfigPool, metadata: {name: kata-oc}, spec: {nodeSelector: {matchLabels: {node-role.kubernetes.io/kata-oc: ''}}, machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: kata-oc}}}}
        - create: {kind: MachineConfigPool, metadata: {name: arbiter}, spec: {nodeSelector: {matchLabels: {node-role.kubernetes.io/arbiter: ''}}, machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: arbiter}}}}
        spec: {}
        "
    compact_cluster_that_is_paused: "{compact: true, spec: {logLevel: debug, rollout: {paused: true, maxUnavailable: 2}}}"
    log_level_of_a_compact_cluster_that_is_paused: "
        compact: true
        spec: {logLevel: debug}
        installed: true
        then:
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: null, rollout: {paused: true}}}}
        "
    compact_cluster_that_failed_and_is_cordoned_while_it_is_removed: "
        compact: true
        masters: 1
        spec: {}
        installed: true
        then:
        - failing: master-0
        - delete: {kind: KataConfig, name: cluster-kataconfig}
        - rounds: 9
        "
    one_node_unreadable: "{workers: 2, spec: {}, installed: true, then: [{broken: {kind: Node, name: worker-0}}]}"
    one_node_unreadable_while_deleting: "
        workers: 2
        before: [{edit: {kind: Node, name: worker-0, with: {metadata: {labels: {kata: 'true'}}}}}]
        spec: {kataConfigPoolSelector: {matchLabels: {kata: 'true'}}}
        installed: true
        then:
        - broken: {kind: Node, name: worker-0}
        - delete: {kind: KataConfig, name: cluster-kataconfig}
        - rounds: 5
        "
    an_unreadable_node_may_be_a_worker: "{compact: true, before: [{broken: {kind: Node, name: master-1}}], spec: {}}"
    a_younger_kataconfig_unreadable: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: KataConfig, metadata: {name: later, creationTimestamp: '2026-01-02T00:00:00Z'}, spec: {}}
        - broken: {kind: KataConfig, name: later}
        "
    an_older_kataconfig_unreadable: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: KataConfig, metadata: {name: earlier, creationTimestamp: '2025-01-02T00:00:00Z'}, spec: {}}
        - broken: {kind: KataConfig, name: earlier}
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: debug}}}
        "
    an_older_kataconfig_unreadable_at_the_installation: "
        workers: 1
        before:
        - create: {kind: KataConfig, metadata: {name: earlier, creationTimestamp: '2025-01-02T00:00:00Z'}, spec: {}}
        - broken: {kind: KataConfig, name: earlier}
        spec: {}
        "
    another_pool_unreadable: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: MachineConfigPool, metadata: {name: infra}, spec: {nodeSelector: {matchLabels: {infra: ''}}}}
        - broken: {kind: MachineConfigPool, name: infra}
        - create: {kind: Node, metadata: {name: worker-1, labels: {node-role.kubernetes.io/worker: ''}, annotations: {machineconfiguration.openshift.io/currentConfig: rendered-worker-0, machineconfiguration.openshift.io/desiredConfig: rendered-worker-0, machineconfiguration.openshift.io/state: Done}}}
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: debug}}}
        "
    the_worker_pool_unreadable: "{workers: 1, spec: {}, installed: true, then: [{broken: {kind: MachineConfigPool, name: worker}}]}"
    another_runtime_class_unreadable_while_deleting: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: RuntimeClass, apiVersion: node.k8s.io/v1, metadata: {name: other}, handler: kata}
        - broken: {kind: RuntimeClass, name: other}
        - create: {kind: Pod, metadata: {name: db, namespace: shop}, spec: {runtimeClassName: other, nodeName: worker-0, containers: []}}
        - delete: {kind: KataConfig, name: cluster-kataconfig}
        - rounds: 5
        "
    the_runtime_class_unreadable: "{workers: 1, spec: {}, installed: true, then: [{broken: {kind: RuntimeClass, name: kata}}]}"
    another_container_runtime_config_unreadable: "
        workers: 1
        spec: {}
        installed: true
        then:
        - create: {kind: ContainerRuntimeConfig, metadata: {name: pids}, spec: {containerRuntimeConfig: {}}}
        - broken: {kind: ContainerRuntimeConfig, name: pids}
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {generation: 2}, spec: {logLevel: debug}}}
        "
    two_kataconfigs: "
        workers: 1
        spec: {}
        then:
        - create: {kind: KataConfig, metadata: {name: later, creationTimestamp: '2026-01-02T00:00:00Z'}, spec: {}}
        "
    compact_cluster: "{compact: true, spec: {kataConfigPoolSelector: {matchLabels: {a: b}}}}"
    compact_cluster_that_grew: "{compact: true, spec: {}, installed: true, then: [{create: {kind: Node, metadata: {name: worker-0, labels: {node-role.kubernetes.io/worker: ''}}}}]}"
    all_workers_away_does_not_make_it_compact: "
        workers: 1
        before: [{edit: {kind: Node, name: master-0, with: {metadata: {labels: {node-role.kubernetes.io/worker: ''}}}}}]
        spec: {}
        installed: true
        then: [{delete: {kind: Node, name: worker-0}}]
        "
    adoption: "
        workers: 1
        spec: {}
        installed: true
        then:
        - edit: {kind: MachineConfig, name: 50-enable-sandboxed-containers-extension, with: {metadata: {labels: {app.kubernetes.io/managed-by: null, app.kubernetes.io/part-of: null, app: old}}, spec: {config: {ignition: {version: 3.5.0}}}}}
        - edit: {kind: MachineConfigPool, name: kata-oc, with: {metadata: {labels: {app.kubernetes.io/managed-by: null, app.kubernetes.io/part-of: null, app: null}}}}
        - edit: {kind: RuntimeClass, name: kata, with: {metadata: {labels: null}, scheduling: {nodeSelector: {katacontainers.io/kata-runtime: null}}}}
        - edit: {kind: Node, name: worker-0, with: {metadata: {labels: {katacontainers.io/kata-runtime: null}}}}
        - edit: {kind: KataConfig, name: cluster-kataconfig, with: {metadata: {finalizers: [finalizer.kataconfiguration.openshift.io]}, status: null}}
        - delete: {kind: KataNode, name: worker-0}
        "
}
