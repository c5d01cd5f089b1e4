//! ContainerRuntimeConfigs: from a log level to every node of a pool, and how a bad one freezes a
//! pool.

use serde_json::{Value, json};
use simcluster::resource::{CONTAINERRUNTIMECONFIGS, MACHINECONFIGS};

use super::cluster::Cluster;

const CONFIG: &str = "99-kata-oc-generated-containerruntime";

fn create(cluster: &mut Cluster, name: &str, level: &str) {
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
        "metadata": {"name": name, "annotations": {"mine": "kept?"}},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {
                "pools.operator.machineconfiguration.openshift.io/kata-oc": ""}},
            "containerRuntimeConfig": {"logLevel": level},
        },
    });
    cluster.create(&CONTAINERRUNTIMECONFIGS, object);
}

/// The messages of the conditions, oldest first.
fn history(cluster: &Cluster, name: &str) -> Vec<String> {
    let object = cluster.get(&CONTAINERRUNTIMECONFIGS, name);
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().map(|c| c["message"].as_str().unwrap().to_owned()).collect()
}

fn rendered(cluster: &Cluster) -> Value {
    cluster.pool("kata-oc")["spec"]["configuration"]["name"].clone()
}

#[test]
fn a_log_level_reaches_the_nodes_and_leaves_them() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    let before = rendered(&cluster);
    create(&mut cluster, "level", "debug");
    cluster.advance(1);
    assert_eq!(history(&cluster, "level"), ["Success"]);
    let object = cluster.get(&CONTAINERRUNTIMECONFIGS, "level");
    assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
    assert_eq!(object["metadata"]["finalizers"], json!([CONFIG]));
    assert_eq!(
        object["metadata"]["annotations"],
        json!({"machineconfiguration.openshift.io/mc-name-suffix": ""}),
        "other annotations are lost"
    );
    let config = cluster.get(&MACHINECONFIGS, CONFIG);
    assert_eq!(config["metadata"]["labels"], json!({(simcluster::mco::ROLE): "kata-oc"}));
    assert_eq!(config["metadata"]["ownerReferences"][0]["kind"], "ContainerRuntimeConfig");

    cluster.advance(60);
    assert_ne!(rendered(&cluster), before);
    assert_eq!(cluster.counts("kata-oc"), "1/1/1/0/0");
    let drop_in = "/etc/crio/crio.conf.d/01-ctrcfg-logLevel";
    assert_eq!(
        cluster.sim.world.hosts["worker-0"].files[drop_in],
        "[crio]\n  [crio.runtime]\n    log_level = \"debug\"\n"
    );
    assert!(!cluster.sim.world.hosts["worker-1"].files.contains_key(drop_in));

    cluster.delete(&CONTAINERRUNTIMECONFIGS, "level");
    cluster.advance(1);
    assert_eq!(cluster.get(&MACHINECONFIGS, CONFIG), Value::Null);
    assert_eq!(cluster.get(&CONTAINERRUNTIMECONFIGS, "level"), Value::Null);
    cluster.advance(60);
    assert_eq!(rendered(&cluster), before, "the old content has the old name");
    assert!(!cluster.sim.world.hosts["worker-0"].files.contains_key(drop_in));
}

#[test]
fn a_bad_level_freezes_the_pool() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    let before = cluster.pool("kata-oc");
    create(&mut cluster, "level", "loud");
    cluster.advance(1);
    assert_eq!(
        history(&cluster, "level"),
        [
            "Error: invalid LogLevel \"loud\", must be one of error, fatal, panic, warn, info, debug, \
          or trace"
        ]
    );
    let worker = cluster.pool("worker")["spec"]["configuration"]["name"].clone();
    cluster.change_base("00-worker");
    cluster.advance(120);
    assert_eq!(cluster.pool("kata-oc")["spec"], before["spec"], "nothing is rendered");
    assert_eq!(cluster.condition("kata-oc", "RenderDegraded"), "False", "and nothing says so");
    assert_ne!(cluster.pool("worker")["spec"]["configuration"]["name"], worker);

    let patch = json!({"spec": {"containerRuntimeConfig": {"logLevel": "info"}}});
    cluster.patch(&CONTAINERRUNTIMECONFIGS, "level", &patch);
    cluster.advance(180);
    assert_eq!(history(&cluster, "level").last().unwrap(), "Success");
    assert_eq!(history(&cluster, "level").len(), 2, "the history keeps the failure");
    assert_ne!(rendered(&cluster), before["spec"]["configuration"]["name"]);
    assert_eq!(cluster.condition("kata-oc", "Updated"), "True");
}

#[test]
fn one_that_comes_before_its_pool_heals() {
    let mut cluster = Cluster::settled(&[]);
    create(&mut cluster, "level", "debug");
    cluster.advance(30);
    assert_eq!(
        history(&cluster, "level"),
        ["Error: could not find any MachineConfigPool set for ContainerRuntimeConfig level"]
    );
    cluster.create_pool("kata-oc");
    cluster.advance(120);
    assert_eq!(history(&cluster, "level").last().unwrap(), "Success");
    assert_ne!(cluster.get(&MACHINECONFIGS, CONFIG), Value::Null);
}

#[test]
fn further_ones_of_a_pool_are_numbered() {
    let mut cluster = Cluster::settled(&["worker-0"]);
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        create(&mut cluster, name, "debug");
        cluster.advance(1);
        let config = if index == 0 { CONFIG.to_owned() } else { format!("{CONFIG}-{index}") };
        assert_eq!(
            cluster.get(&CONTAINERRUNTIMECONFIGS, name)["metadata"]["finalizers"],
            json!([config])
        );
    }
}

#[test]
fn an_empty_selector_freezes_every_pool() {
    let mut cluster = Cluster::settled(&[]);
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
        "metadata": {"name": "all"},
        "spec": {"machineConfigPoolSelector": {}, "containerRuntimeConfig": {"logLevel": "debug"}},
    });
    cluster.create(&CONTAINERRUNTIMECONFIGS, object);
    let before = cluster.pool("worker")["spec"].clone();
    cluster.change_base("00-worker");
    cluster.advance(60);
    assert_eq!(cluster.pool("worker")["spec"], before);
}
