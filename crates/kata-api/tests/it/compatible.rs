//! Objects and scripts of the OpenShift sandboxed containers operator stay valid.

use kata_api::KataConfig;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

fn read(text: &str) -> KataConfig {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn an_empty_spec_has_the_defaults_of_the_openshift_operator() {
    let config = read(
        "{apiVersion: kataconfiguration.openshift.io/v1, kind: KataConfig, metadata: {name: a}, spec: {}}",
    );
    assert_eq!(
        serde_json::to_value(&config.spec).unwrap(),
        json!({"checkNodeEligibility": false, "enablePeerPods": false, "logLevel": "info"})
    );
}

#[test]
fn a_kata_config_of_version_1_1_with_its_legacy_status_is_read() {
    let config = read(
        "
apiVersion: kataconfiguration.openshift.io/v1
kind: KataConfig
metadata:
  name: cluster-kataconfig
  finalizers: [finalizer.kataconfiguration.openshift.io]
spec:
  kataConfigPoolSelector:
    matchLabels: {kata: 'true'}
status:
  runtimeClass: kata
  totalNodesCount: 1
  prevMcpGeneration: 2
  installationStatus:
    IsInProgress: 'True'
    completed: {}
    failed: {}
    inprogress: {}
  unInstallationStatus: {completed: {}, failed: {}, inProgress: {status: ''}}
  upgradeStatus: {}
",
    );
    let status = config.status.unwrap();
    assert_eq!(status, kata_api::KataConfigStatus::default());
    let labels = config.spec.kata_config_pool_selector.unwrap().match_labels.unwrap();
    assert_eq!(labels["kata"], "true");
}

#[test]
fn a_status_of_version_1_8_keeps_every_value_through_a_read_and_a_write() {
    let status = json!({
        "runtimeClasses": ["kata"],
        "kataNodes": {
            "nodeCount": 3, "readyNodeCount": 1, "installed": ["a"], "installing": ["b"], "waitingToInstall": ["c"],
            "failedToInstall": ["d"], "uninstalling": ["e"], "waitingToUninstall": ["f"], "failedToUninstall": ["g"],
        },
        "conditions": [{
            "type": "InProgress", "status": "True", "reason": "Installing",
            "message": "Performing initial installation of kata on cluster", "lastTransitionTime": "2024-10-09T00:00:00Z",
        }],
        "waitingForMcoToStart": true,
    });
    let read: kata_api::KataConfigStatus = serde_json::from_value(status.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), status);
}

#[test]
fn the_crd_is_the_old_one_with_additions() {
    let crd = serde_json::to_value(KataConfig::crd()).unwrap();
    assert_eq!(crd["metadata"]["name"], "kataconfigs.kataconfiguration.openshift.io");
    assert_eq!(crd["spec"]["scope"], "Cluster");
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["name"], "v1");
    assert_eq!(version["subresources"]["status"], json!({}));
    let columns: Vec<&Value> = version["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|column| column["priority"].as_i64().unwrap_or(0) == 0)
        .collect();
    let shown: Vec<(&str, &str)> = columns
        .iter()
        .map(|column| (column["name"].as_str().unwrap(), column["jsonPath"].as_str().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            ("InProgress", ".status.conditions[?(@.type=='InProgress')].status"),
            ("Completed", ".status.kataNodes.readyNodeCount"),
            ("Total", ".status.kataNodes.nodeCount"),
            ("Age", ".metadata.creationTimestamp"),
        ]
    );
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["properties"]["logLevel"]["default"], "info");
    assert_eq!(spec["properties"]["checkNodeEligibility"]["default"], false);
    assert_eq!(spec["properties"]["enablePeerPods"]["default"], false);
    assert_eq!(spec["properties"]["kataConfigPoolSelector"]["x-kubernetes-map-type"], "atomic");
    // A new field must never be required: objects in use lack it.
    assert_eq!(spec["required"], Value::Null);
}

#[test]
fn names_in_use_on_clusters_have_not_changed() {
    use kata_api::names;
    assert_eq!(names::FINALIZER, "kataconfiguration.openshift.io/finalizer");
    assert_eq!(names::LEGACY_FINALIZER, "finalizer.kataconfiguration.openshift.io");
    assert_eq!(names::POOL, "kata-oc");
    assert_eq!(names::KATA_ROLE_LABEL, "node-role.kubernetes.io/kata-oc");
    assert_eq!(names::MACHINE_CONFIG, "50-enable-sandboxed-containers-extension");
    assert_eq!(names::IMAGE_MACHINE_CONFIG, "50-enable-sandboxed-containers-image");
    assert_eq!(names::CONTAINER_RUNTIME_CONFIG, "kata-crio-config");
    assert_eq!(
        (names::RUNTIME_CLASS, names::OVERHEAD_CPU, names::OVERHEAD_MEMORY),
        ("kata", "250m", "350Mi")
    );
    assert_eq!(names::NFD_LABEL, "feature.node.kubernetes.io/runtime.kata");
}
