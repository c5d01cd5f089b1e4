//! The driver's actions of each recorded scenario, replayed, and what became of every object.

use serde_json::{Value, json};
use simcluster::mco::{self, Timing};
use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES};
use simcluster::world::NodeFault;

use super::cluster::{Cluster, EXTENSION};
use super::timeline;

/// A difference between a recording and the simulation that is known and harmless.
struct Tolerated {
    /// The scenario.
    scenario: &'static str,
    /// Lines of the recording, and what the simulation has instead.
    recorded: &'static str,
    simulated: &'static str,
    /// Why both are right.
    #[expect(dead_code, reason = "it is for the reader")]
    reason: &'static str,
}

/// Why the counts of the sync that retargets a node may differ.
const STALE: &str = "a status written in the sync that retargets nodes may or may not know of it \
                     yet; the simulation's never does";
/// Why the states of a node that is repaired may come in another order.
const RETRIES: &str = "when a daemon tries again depends on the moment of its first failure";

const TOLERATED: &[Tolerated] = &[
    Tolerated {
        scenario: "e2",
        recorded: "Degraded=True | counts: 1/0/0/1/0 | obs: 2",
        simulated: "Degraded=True | counts: 1/0/0/0/0 | obs: 2",
        reason: STALE,
    },
    Tolerated {
        scenario: "e2",
        recorded: "RenderDegraded=False, Degraded=False\n",
        simulated: "RenderDegraded=False, Degraded=False | counts: 1/0/0/1/0\n",
        reason: STALE,
    },
    Tolerated {
        scenario: "e5",
        recorded: "Degraded=False | counts: 1/0/0/1/0 | obs: 2",
        simulated: "Degraded=False | counts: 1/0/0/0/0 | obs: 2",
        reason: STALE,
    },
    Tolerated {
        scenario: "h3",
        recorded: "counts: 3/1/1/1/0",
        simulated: "counts: 3/1/1/0/0",
        reason: STALE,
    },
    Tolerated {
        scenario: "h4",
        recorded: "counts: 3/1/1/1/0",
        simulated: "counts: 3/1/1/0/0",
        reason: STALE,
    },
    Tolerated {
        scenario: "h3",
        recorded: "  current: R(worker#1) | reason:  | state: Done\n  desired: R(kata-oc#1)\n",
        simulated: "  desired: R(kata-oc#1)\n  current: R(worker#1) | reason:  | state: Done\n",
        reason: RETRIES,
    },
    Tolerated {
        scenario: "h3",
        recorded: "counts: 2/0/0/1/2 | obs: 2",
        simulated: "counts: 2/0/0/2/2 | obs: 2",
        reason: RETRIES,
    },
    Tolerated {
        scenario: "h3",
        recorded: "Degraded=True | counts: 2/0/0/2/2\n  counts: 2/1/1/1/1\n",
        simulated: "Degraded=True | counts: 2/1/1/1/1\n  counts: 2/1/1/0/1\n",
        reason: RETRIES,
    },
];

/// Compares the cluster's timeline with the recording.
pub(super) fn check(scenario: &str, cluster: &Cluster) {
    let path = format!("{}/tests/fixtures/mco/{scenario}.txt", env!("CARGO_MANIFEST_DIR"));
    let mut expected = std::fs::read_to_string(path).unwrap();
    for tolerated in TOLERATED.iter().filter(|tolerated| tolerated.scenario == scenario) {
        let changed = expected.replace(tolerated.recorded, tolerated.simulated);
        assert_ne!(changed, expected, "{scenario}: a tolerated difference is not there");
        expected = changed;
    }
    let actual = timeline::of(cluster);
    if actual != expected {
        let mut track = "";
        let mut report = String::new();
        for (index, line) in expected.lines().enumerate() {
            if !line.starts_with(' ') {
                track = line;
            }
            if actual.lines().nth(index) != Some(line) {
                report = format!(
                    "in {track}, line {}:\n recorded  {line}\n simulated {}",
                    index + 1,
                    actual.lines().nth(index).unwrap_or("nothing")
                );
                break;
            }
        }
        assert_eq!(actual, expected, "{scenario}: the first difference is {report}");
    }
}

fn extension_patch(name: &str) -> Value {
    json!({"spec": {"extensions": [name]}})
}

const MISSING_PACKAGE: &str = "error running rpm-ostree update --install kata-containers: error: \
                               Packages not found: kata-containers : exit status 1";

#[test]
fn a_bootstrap() {
    let mut cluster = Cluster::empty(Timing::recorded());
    cluster.at(13.4);
    for index in 0..3_u8 {
        cluster.at(13.4 + 1.1 * f64::from(index));
        let name = format!("master-{index}");
        cluster.register(&name, &["master"], None);
        cluster.label(&name, "control-plane", true);
    }
    for index in 0..3_u8 {
        cluster.at(20.8 + 1.1 * f64::from(index));
        cluster.register(&format!("worker-{index}"), &["worker"], None);
    }
    cluster.at(54.7);
    check("a", &cluster);
}

#[test]
fn b_install_on_one_node() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(0.75);
    cluster.create_extension("kata-oc", "sandboxed-containers");
    cluster.at(1.26);
    cluster.label("worker-0", "kata-oc", true);
    cluster.at(1.77);
    cluster.create_pool("kata-oc");
    cluster.at(57.6);
    check("b", &cluster);
}

#[test]
fn b2_pool_then_config_then_label() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(1.01);
    cluster.create_pool("kata-oc");
    cluster.at(15.02);
    cluster.create_extension("kata-oc", "sandboxed-containers");
    cluster.at(29.04);
    cluster.label("worker-0", "kata-oc", true);
    cluster.at(75.9);
    check("b2", &cluster);
}

#[test]
fn b3_everything_at_once() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(1.01);
    cluster.create_pool("kata-oc");
    cluster.create_extension("kata-oc", "sandboxed-containers");
    cluster.label("worker-0", "kata-oc", true);
    cluster.at(57.2);
    check("b3", &cluster);
}

fn install_on_all(cluster: &mut Cluster, pool: &Value) {
    cluster.create_extension("kata-oc", "sandboxed-containers");
    for node in ["worker-0", "worker-1", "worker-2"] {
        cluster.label(node, "kata-oc", true);
    }
    cluster.create_pool_with("kata-oc", pool);
}

#[test]
fn c_install_on_all_nodes() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(0.76);
    install_on_all(&mut cluster, &json!({}));
    cluster.at(118.4);
    check("c", &cluster);
}

#[test]
fn c2_two_more_nodes() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    cluster.at(1.02);
    cluster.label("worker-1", "kata-oc", true);
    cluster.label("worker-2", "kata-oc", true);
    cluster.at(85.2);
    check("c2", &cluster);
}

#[test]
fn c3_two_at_a_time() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(1.01);
    install_on_all(&mut cluster, &json!({"maxUnavailable": 2}));
    cluster.at(90.1);
    check("c3", &cluster);
}

#[test]
fn d_one_node_leaves() {
    let mut cluster = Cluster::settled(&["worker-0", "worker-1", "worker-2"]);
    cluster.at(1.02);
    cluster.label("worker-0", "kata-oc", false);
    cluster.at(52.0);
    check("d", &cluster);
}

#[test]
fn d2_a_node_leaves_while_it_changes() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(1.02);
    cluster.fault("worker-0", NodeFault::HoldReboot);
    cluster.create_extension("kata-oc", "sandboxed-containers");
    cluster.create_pool("kata-oc");
    cluster.label("worker-0", "kata-oc", true);
    cluster.at(31.39);
    cluster.label("worker-0", "kata-oc", false);
    cluster.at(46.4);
    cluster.repair("worker-0");
    cluster.at(111.3);
    check("d2", &cluster);
}

#[test]
fn d3_labels_of_the_first_pool_come_back_once() {
    let mut cluster = Cluster::settled_first_booted(&["worker-0", "worker-1"]);
    cluster.at(1.01);
    cluster.label("worker-0", "kata-oc", false);
    cluster.at(26.02);
    cluster.label("worker-0", "kata-oc", false);
    cluster.at(76.8);
    check("d3", &cluster);
}

#[test]
fn e_install_fails_for_a_while() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(1.01);
    cluster.fault("worker-0", NodeFault::InstallFails(MISSING_PACKAGE.to_owned()));
    cluster.create_extension("kata-oc", "sandboxed-containers");
    cluster.label("worker-0", "kata-oc", true);
    cluster.create_pool("kata-oc");
    cluster.at(50.31);
    cluster.repair("worker-0");
    cluster.at(95.0);
    check("e", &cluster);
}

#[test]
fn e2_unknown_extension_stops_the_render() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(1.01);
    cluster.create_extension("kata-oc", "sandboxed-containerz");
    cluster.label("worker-0", "kata-oc", true);
    cluster.create_pool("kata-oc");
    cluster.at(26.16);
    cluster.patch(&MACHINECONFIGS, EXTENSION, &extension_patch("sandboxed-containers"));
    cluster.at(77.6);
    check("e2", &cluster);
}

#[test]
fn e3_unknown_extension_in_a_running_pool() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    cluster.at(1.02);
    cluster.patch(&MACHINECONFIGS, EXTENSION, &extension_patch("sandboxed-containerz"));
    cluster.at(26.16);
    cluster.patch(&MACHINECONFIGS, EXTENSION, &extension_patch("sandboxed-containers"));
    cluster.at(52.4);
    check("e3", &cluster);
}

#[test]
fn e4_unknown_extension_fails_on_the_node() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(1.04);
    cluster.create_config(EXTENSION, "kata-oc", &json!({"extensions": ["sandboxed-containerz"]}));
    cluster.label("worker-0", "kata-oc", true);
    cluster.create_pool("kata-oc");
    cluster.at(40.39);
    cluster.delete(&MACHINECONFIGS, EXTENSION);
    cluster.create_extension("kata-oc", "sandboxed-containers");
    cluster.at(85.4);
    cluster.cordon("worker-0", false);
    cluster.at(144.7);
    check("e4", &cluster);
}

#[test]
fn e5_a_node_that_cannot_change_leaves() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(1.01);
    let reason = "ignition passwd user section contains unsupported changes: user core cannot be \
                  deleted";
    cluster.fault("worker-0", NodeFault::Unreconcilable(reason.to_owned()));
    cluster.create_extension("kata-oc", "sandboxed-containers");
    cluster.label("worker-0", "kata-oc", true);
    cluster.create_pool("kata-oc");
    // The daemon must try again while the node is on its way out: after the label goes and before
    // the node is retargeted.
    cluster.at(26.5);
    cluster.label("worker-0", "kata-oc", false);
    cluster.repair("worker-0");
    cluster.at(91.5);
    check("e5", &cluster);
}

#[test]
fn e6_the_first_of_three_nodes_fails() {
    let mut cluster = Cluster::settled(&[]);
    cluster.at(1.06);
    cluster.fault("worker-0", NodeFault::InstallFails(MISSING_PACKAGE.to_owned()));
    install_on_all(&mut cluster, &json!({}));
    cluster.at(60.72);
    cluster.repair("worker-0");
    cluster.at(152.2);
    check("e6", &cluster);
}

#[test]
fn f_a_node_joins_a_paused_pool() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    cluster.at(1.02);
    cluster.patch(&MACHINECONFIGPOOLS, "kata-oc", &json!({"spec": {"paused": true}}));
    cluster.at(13.03);
    cluster.label("worker-1", "kata-oc", true);
    cluster.at(43.07);
    cluster.patch(&MACHINECONFIGPOOLS, "kata-oc", &json!({"spec": {"paused": false}}));
    cluster.at(94.0);
    check("f", &cluster);
}

#[test]
fn f2_a_config_changes_while_a_pool_is_paused() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    cluster.at(1.02);
    cluster.patch(&MACHINECONFIGPOOLS, "kata-oc", &json!({"spec": {"paused": true}}));
    cluster.at(9.04);
    cluster.change_base("00-worker");
    cluster.at(69.05);
    cluster.patch(&MACHINECONFIGPOOLS, "kata-oc", &json!({"spec": {"paused": false}}));
    cluster.at(128.0);
    check("f2", &cluster);
}

#[test]
fn g_a_labelled_node_registers() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    cluster.at(1.03);
    cluster.register("worker-3", &["kata-oc", "worker"], None);
    cluster.at(57.9);
    check("g", &cluster);
}

#[test]
fn g2_a_node_registers_that_booted_into_the_pool() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    cluster.at(1.02);
    cluster.register("worker-3", &["worker"], Some("kata-oc"));
    cluster.at(24.6);
    check("g2", &cluster);
}

#[test]
fn g3_a_node_is_deleted() {
    let mut cluster = Cluster::settled(&["worker-0", "worker-1"]);
    cluster.at(1.03);
    cluster.delete(&NODES, "worker-0");
    cluster.at(36.7);
    check("g3", &cluster);
}

#[test]
fn h_labels_then_config_then_pool() {
    let mut cluster = Cluster::settled(&["worker-0", "worker-1"]);
    cluster.at(1.01);
    cluster.label("worker-0", "kata-oc", false);
    cluster.label("worker-1", "kata-oc", false);
    cluster.at(81.65);
    cluster.delete(&MACHINECONFIGS, EXTENSION);
    cluster.at(95.66);
    cluster.delete(&MACHINECONFIGPOOLS, "kata-oc");
    cluster.at(126.5);
    check("h", &cluster);
}

#[test]
fn h2_config_then_labels_then_pool() {
    let mut cluster = Cluster::settled(&["worker-0", "worker-1"]);
    cluster.at(1.02);
    cluster.delete(&MACHINECONFIGS, EXTENSION);
    cluster.at(86.01);
    cluster.label("worker-0", "kata-oc", false);
    cluster.label("worker-1", "kata-oc", false);
    cluster.at(133.66);
    cluster.delete(&MACHINECONFIGPOOLS, "kata-oc");
    cluster.at(164.3);
    check("h2", &cluster);
}

#[test]
fn h3_the_pool_goes_first_and_comes_back() {
    let mut cluster = Cluster::settled(&["worker-0", "worker-1"]);
    cluster.collection.store(3450, std::sync::atomic::Ordering::Relaxed);
    cluster.at(1.02);
    cluster.delete(&MACHINECONFIGPOOLS, "kata-oc");
    cluster.at(71.44);
    cluster.create_pool("kata-oc");
    cluster.at(211.3);
    check("h3", &cluster);
}

#[test]
fn h4_everything_goes_at_once() {
    let mut cluster = Cluster::settled(&["worker-0", "worker-1"]);
    cluster.collection.store(4270, std::sync::atomic::Ordering::Relaxed);
    cluster.at(1.01);
    cluster.label("worker-0", "kata-oc", false);
    cluster.label("worker-1", "kata-oc", false);
    cluster.delete(&MACHINECONFIGS, EXTENSION);
    cluster.delete(&MACHINECONFIGPOOLS, "kata-oc");
    cluster.at(103.5);
    check("h4", &cluster);
}

#[test]
fn h5_the_pool_goes_when_it_counts_no_machine() {
    let mut cluster = Cluster::settled(&["worker-0", "worker-1"]);
    cluster.at(1.01);
    cluster.label("worker-0", "kata-oc", false);
    cluster.label("worker-1", "kata-oc", false);
    cluster.at(9.08);
    cluster.delete(&MACHINECONFIGS, EXTENSION);
    cluster.delete(&MACHINECONFIGPOOLS, "kata-oc");
    cluster.at(131.5);
    check("h5", &cluster);
}

fn update_release(cluster: &mut Cluster) {
    cluster.at(2.04);
    cluster.change_base("00-worker");
    cluster.change_base("00-master");
    mco::set_os_image(&mut cluster.sim, "registry.example.com/release/os@sha256:eeee").unwrap();
}

#[test]
fn i_the_operating_system_is_updated() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    update_release(&mut cluster);
    cluster.at(131.0);
    check("i", &cluster);
}

#[test]
fn i_first_boot_in_the_pool() {
    let mut cluster = Cluster::settled_first_booted(&["worker-0"]);
    update_release(&mut cluster);
    cluster.at(131.0);
    check("i_firstboot", &cluster);
}

#[test]
fn i2_a_base_config_changes() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    cluster.at(1.01);
    cluster.change_base("00-worker");
    cluster.at(93.4);
    check("i2", &cluster);
}

#[test]
fn j_compact_cluster() {
    let mut cluster = Cluster::compact();
    cluster.at(1.02);
    cluster.create_extension("master", "sandboxed-containers");
    cluster.at(131.9);
    check("j", &cluster);
}

#[test]
fn j2_a_custom_pool_never_gets_a_master() {
    let mut cluster = Cluster::compact();
    cluster.at(1.01);
    cluster.create_extension("kata-oc", "sandboxed-containers");
    cluster.label("master-0", "kata-oc", true);
    cluster.create_pool("kata-oc");
    cluster.at(49.3);
    check("j2", &cluster);
}

#[test]
fn l_an_administrator_cordons_a_node() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    cluster.at(1.01);
    cluster.cordon("worker-1", true);
    cluster.at(9.02);
    cluster.label("worker-1", "kata-oc", true);
    cluster.label("worker-2", "kata-oc", true);
    cluster.at(49.05);
    cluster.cordon("worker-1", false);
    cluster.at(128.0);
    check("l", &cluster);
}

#[test]
fn m_two_custom_pools_claim_a_node() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    cluster.at(1.01);
    cluster.create_pool("infra");
    cluster.at(13.01);
    cluster.label("worker-1", "infra", true);
    cluster.at(53.03);
    cluster.label("worker-1", "kata-oc", true);
    cluster.at(78.03);
    cluster.label("worker-1", "infra", false);
    cluster.at(146.4);
    check("m", &cluster);
}
