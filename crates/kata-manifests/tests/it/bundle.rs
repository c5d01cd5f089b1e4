//! The OLM bundle, the catalog and the samples: they install what the manifests install.

use std::collections::BTreeSet;

use kata_api::platform::Platform;
use kata_manifests::manifests::{self, NAME, Options, UNPUBLISHED};
use serde_json::Value;

use crate::files::{difference, documents, names, read};
use crate::rules::{Permissions, permissions};

const BUNDLE: &str = "deploy/olm";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The versions in chart and bundle that are not the operator's: the oldest Kubernetes.
const OTHER_VERSIONS: [&str; 1] = ["1.30.0"];

/// The objects of the bundle.
fn objects() -> Vec<Value> {
    let files = names(&format!("{BUNDLE}/manifests"));
    files.iter().flat_map(|file| documents(&read(&format!("{BUNDLE}/manifests/{file}")))).collect()
}

fn service_version() -> Value {
    let mut found = objects();
    found.retain(|object| object["kind"] == "ClusterServiceVersion");
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// The objects of the manifests for OpenShift.
fn wanted() -> Vec<Value> {
    manifests::objects(&Options::of(Platform::Openshift)).unwrap()
}

/// What the operator may do by the manifests: in the whole cluster, and in its own namespace.
///
/// A ClusterServiceVersion cannot have a role in another namespace. There is one, for Events about objects
/// of cluster scope, and it becomes a permission of the whole cluster.
fn granted(objects: &[Value]) -> (Permissions, Permissions) {
    let (mut everywhere, mut at_home) = (Permissions::new(), Permissions::new());
    for binding in objects.iter().filter(|object| object["subjects"][0]["name"] == NAME) {
        let role = objects.iter().find(|role| {
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
        });
        let role = role.unwrap();
        let granted = permissions(&role["rules"]);
        if role["metadata"]["namespace"] == kata_api::names::NAMESPACE {
            at_home.extend(granted);
        } else {
            everywhere.extend(granted);
        }
    }
    (everywhere, at_home)
}

#[test]
fn the_bundle_installs_the_operator_of_the_manifests() {
    let version = service_version();
    let install = &version["spec"]["install"]["spec"];
    let rules = |scope: &str| {
        assert_eq!(install[scope][0]["serviceAccountName"], NAME);
        permissions(&install[scope][0]["rules"])
    };
    let wanted = wanted();
    assert_eq!((rules("clusterPermissions"), rules("permissions")), granted(&wanted));
    let deployment = &install["deployments"][0];
    let in_manifests = wanted.iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["name"], in_manifests["metadata"]["name"]);
    for (bundle, manifests) in [
        (&deployment["label"], &in_manifests["metadata"]["labels"]),
        (&deployment["spec"], &in_manifests["spec"]),
    ] {
        assert_eq!(difference(bundle, manifests), None, "bundle and manifests");
    }
    assert_eq!(version["metadata"]["annotations"]["containerImage"], UNPUBLISHED);
    let images = version["spec"]["relatedImages"].as_array().unwrap();
    assert!(images.iter().any(|image| image["image"] == UNPUBLISHED), "{images:?}");
}

#[test]
fn nothing_of_the_manifests_is_missing_in_the_bundle() {
    let samples: Vec<Value> = ["namespace", "policies"]
        .iter()
        .flat_map(|name| documents(&read(&format!("{BUNDLE}/samples/{name}.yaml"))))
        .collect();
    let bundle = objects();
    for object in wanted() {
        let kind = object["kind"].as_str().unwrap();
        let name = &object["metadata"]["name"];
        let is_operators = object["subjects"][0]["name"] == NAME
            || (kind.ends_with("Role")
                && object["metadata"]["labels"]
                    .as_object()
                    .is_some_and(|labels| labels.keys().all(|key| !key.contains("aggregate-to")))
                && name != "prometheus-k8s"
                && name != "kata-operator-cluster-view");
        if is_operators || ["Deployment", "ServiceAccount"].contains(&kind) {
            // It is in the ClusterServiceVersion.
            continue;
        }
        let same = |found: &&Value| found["kind"] == kind && found["metadata"]["name"] == *name;
        if let Some(sample) = samples.iter().find(same) {
            assert_eq!(difference(sample, &object), None, "{kind} {name}");
            continue;
        }
        let found = bundle.iter().find(same);
        let found = found.unwrap_or_else(|| panic!("the bundle has no {kind} {name}"));
        let mut object = object.clone();
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        assert_eq!(difference(found, &object), None, "{kind} {name}");
    }
}

#[test]
fn the_catalog_has_the_kinds_of_the_manifests() {
    let catalog = documents(&read(&format!("{BUNDLE}/catalog/catalog.yaml")));
    let bundle = catalog.iter().find(|entry| entry["schema"] == "olm.bundle").unwrap();
    let mut kinds: Vec<Value> = bundle["properties"].as_array().unwrap().clone();
    kinds.retain(|property| property["type"] == "olm.gvk");
    let kinds: BTreeSet<String> = kinds
        .iter()
        .map(|kind| &kind["value"])
        .map(|kind| format!("{} {} {}", kind["group"], kind["version"], kind["kind"]))
        .collect();
    let wanted: BTreeSet<String> = kata_api::crds()
        .into_iter()
        .map(|crd| serde_json::to_value(crd).unwrap()["spec"].clone())
        .map(|crd| {
            let kind = &crd["names"]["kind"];
            format!("{} {} {kind}", crd["group"], crd["versions"][0]["name"])
        })
        .collect();
    assert_eq!(kinds, wanted);
}

#[test]
fn the_bundles_image_says_what_its_metadata_say() {
    let metadata: Value =
        serde_saphyr::from_str(&read(&format!("{BUNDLE}/metadata/annotations.yaml"))).unwrap();
    let labels: Vec<String> = metadata["annotations"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| format!("LABEL {key}={}", value.as_str().unwrap()))
        .collect();
    let file = read(&format!("{BUNDLE}/bundle.Dockerfile"));
    let in_file: Vec<&str> = file.lines().filter(|line| line.starts_with("LABEL ")).collect();
    assert_eq!(in_file, labels);
}

#[test]
fn chart_and_bundle_name_this_version_and_no_other() {
    let mut files = vec!["deploy/helm/kata-operator/Chart.yaml".to_owned()];
    for folder in ["catalog", "manifests", "samples"] {
        let folder = format!("{BUNDLE}/{folder}");
        files.extend(names(&folder).iter().map(|name| format!("{folder}/{name}")));
    }
    for file in files.iter().filter(|file| !file.contains("customresourcedefinition")) {
        for word in read(file).split(|letter: char| !letter.is_ascii_digit() && letter != '.') {
            let numbers: Vec<&str> = word.trim_end_matches('.').split('.').collect();
            if numbers.len() == 3 && numbers.iter().all(|number| !number.is_empty()) {
                let version = numbers.join(".");
                let known = version == VERSION || OTHER_VERSIONS.contains(&version.as_str());
                assert!(known, "{file} names {version}, this version is {VERSION}");
            }
        }
    }
}

/// What package-server makes a PackageManifest of (operator-lifecycle-manager, pkg/package-server/provider), without which no
/// console shows the operator; and the images that a mirror copies.
#[test]
fn the_catalog_has_what_a_console_and_a_mirror_need() {
    let catalog = documents(&read(&format!("{BUNDLE}/catalog/catalog.yaml")));
    let of = |schema: &str| catalog.iter().find(|entry| entry["schema"] == schema).unwrap();
    let version = service_version();
    let spec = &version["spec"];
    let icon = &of("olm.package")["icon"];
    assert_eq!(icon["mediatype"], "image/svg+xml");
    assert_eq!(icon["base64data"], spec["icon"][0]["base64data"]);
    let bundle = of("olm.bundle");
    let properties = bundle["properties"].as_array().unwrap();
    let about = properties.iter().find(|it| it["type"] == "olm.csv.metadata").unwrap();
    let about = &about["value"];
    assert_eq!(about["annotations"], version["metadata"]["annotations"]);
    assert_eq!(about["crdDescriptions"], spec["customresourcedefinitions"]);
    for field in
        ["description", "displayName", "installModes", "keywords", "maintainers", "provider"]
    {
        assert!(!about[field].is_null(), "{field}");
        assert_eq!(about[field], spec[field], "{field}");
    }
    let images = |of: &Value| -> BTreeSet<String> {
        let all = of.as_array().into_iter().flatten();
        all.map(|it| it["image"].as_str().unwrap().to_owned()).collect()
    };
    let mut needed = images(&spec["relatedImages"]);
    let deployment = &spec["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"];
    needed.extend(images(&deployment["containers"]));
    needed.insert(bundle["image"].as_str().unwrap().to_owned());
    assert_eq!(images(&bundle["relatedImages"]), needed);
}

#[test]
fn the_bundle_describes_fields_that_exist() {
    let version = service_version();
    let owned = version["spec"]["customresourcedefinitions"]["owned"].as_array().unwrap();
    for crd in kata_api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let about = owned.iter().find(|about| about["name"] == crd["metadata"]["name"]).unwrap();
        let served = &crd["spec"]["versions"][0];
        assert_eq!(about["version"], served["name"]);
        assert_eq!(about["kind"], crd["spec"]["names"]["kind"]);
        for (descriptors, part) in [("specDescriptors", "spec"), ("statusDescriptors", "status")] {
            for descriptor in about[descriptors].as_array().into_iter().flatten() {
                let mut schema = &served["schema"]["openAPIV3Schema"]["properties"][part];
                for name in descriptor["path"].as_str().unwrap().split('.') {
                    schema = &schema["properties"][name];
                }
                assert!(schema.is_object(), "{part} of {}: {descriptor}", about["kind"]);
            }
        }
    }
    let annotations = &version["metadata"]["annotations"];
    let examples: Vec<kata_api::KataConfig> =
        serde_json::from_str(annotations["alm-examples"].as_str().unwrap()).unwrap();
    assert_eq!(examples.len(), 2);
    let first: kata_api::KataConfig = serde_json::from_str(
        annotations["operatorframework.io/initialization-resource"].as_str().unwrap(),
    )
    .unwrap();
    assert_eq!(first, examples[0]);
    let chart: Value =
        serde_saphyr::from_str(&read("deploy/helm/kata-operator/Chart.yaml")).unwrap();
    let in_chart = chart["annotations"]["artifacthub.io/crdsExamples"].as_str().unwrap();
    let in_chart: Vec<kata_api::KataConfig> = serde_saphyr::from_str(in_chart).unwrap();
    assert_eq!(in_chart, examples);
}

#[test]
fn the_bundle_has_only_kinds_that_olm_accepts() {
    // operator-registry, pkg/lib/bundle: what a bundle may have besides its ClusterServiceVersion and its
    // CustomResourceDefinitions.
    let accepted = [
        "ClusterServiceVersion",
        "CustomResourceDefinition",
        "Secret",
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "ServiceAccount",
        "Service",
        "Role",
        "RoleBinding",
        "PrometheusRule",
        "ServiceMonitor",
        "PodDisruptionBudget",
        "PriorityClass",
        "VerticalPodAutoscaler",
        "ConsoleYAMLSample",
        "ConsoleQuickStart",
        "ConsoleCLIDownload",
        "ConsoleLink",
    ];
    let mut kinds = BTreeSet::new();
    for object in objects() {
        let kind = object["kind"].as_str().unwrap().to_owned();
        assert!(accepted.contains(&kind.as_str()), "{kind} {}", object["metadata"]["name"]);
        assert!(object["metadata"]["namespace"].is_null() || kind == "ClusterServiceVersion");
        kinds.insert(kind);
    }
    assert!(kinds.contains("PrometheusRule") && kinds.contains("ConsoleQuickStart"), "{kinds:?}");
    // The Operator Lifecycle Manager creates the operator's own account.
    assert!(!kinds.contains("ServiceAccount"));
}
