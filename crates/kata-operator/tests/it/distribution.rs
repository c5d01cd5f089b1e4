//! What the operator is installed with besides its manifests: each way says the same.
//!
//! Real helm and promtool are those that `KATA_TEST_HELM` and `KATA_TEST_PROMTOOL` name; without them a
//! test that needs one says loudly what was not tested.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kata_operator::arguments::ManifestsArguments;
use kata_operator::distribution::{self, Files, alerts, bundle, dashboard, helm};
use kata_operator::manifests;
use kata_operator::settings::Platform;
use kata_operator::uninstall;
use serde_json::{Value, json};
use simcluster::api::server::Writer;
use simcluster::resource::CRDS;

use crate::lab;

const NAMESPACE: &str = "kata-home";
const MONITOR: &str = "registry.example/monitor:1";

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A program that the environment names.
#[expect(clippy::disallowed_methods, reason = "which program is tested is the caller's choice")]
#[expect(clippy::print_stderr, reason = "a test says loudly what it did not do")]
fn program(variable: &str, what: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).filter(|path| !path.is_empty());
    if path.is_none() {
        eprintln!("NOTE: {variable} is not set: {what} WAS NOT TESTED.");
    }
    path.map(PathBuf::from)
}

/// What a program prints; its complaint if it fails.
#[expect(clippy::disallowed_methods, reason = "the real program is what is tested")]
fn output(program: &Path, words: &[&str]) -> Result<String, String> {
    let ended = Command::new(program).current_dir(repository()).args(words).output().unwrap();
    if ended.status.success() {
        Ok(String::from_utf8(ended.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&ended.stderr).into_owned())
    }
}

fn documents(text: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    all.into_iter().filter(|object| !object.is_null()).collect()
}

/// Objects by kind, namespace and name.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let named = objects.into_iter().map(|object| {
        let metadata = &object["metadata"];
        (format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]), object)
    });
    named.collect()
}

/// Without what only Helm adds.
fn plain(mut object: Value) -> Value {
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.remove("app.kubernetes.io/managed-by");
        labels.remove("helm.sh/chart");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("annotations");
        if metadata.get("labels") == Some(&json!({})) {
            metadata.remove("labels");
        }
    }
    if object["kind"] == "Deployment"
        && let Some(arguments) =
            object["spec"]["template"]["spec"]["containers"][0]["args"].as_array_mut()
    {
        // The manifests leave the kind of cluster to the operator where that is safe, the chart knows it.
        arguments.retain(|argument| {
            let argument = argument.as_str().unwrap();
            !argument.starts_with("--log-filter=") && !argument.starts_with("--platform=")
        });
    }
    object
}

/// The first place where two values differ, and both sides.
fn difference(left: &Value, right: &Value) -> Option<String> {
    let below = |key: &str, left: &Value, right: &Value| {
        difference(left, right).map(|found| format!(".{key}{found}"))
    };
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            keys.into_iter().find_map(|key| below(key, &left[key], &right[key]))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            (0..a.len()).find_map(|place| below(&place.to_string(), &a[place], &b[place]))
        }
        _ => (left != right).then(|| format!(": {left} is not {right}")),
    }
}

/// The folder of a chart, written anew, and gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn with(name: &str, files: &Files) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path).unwrap();
        }
        distribution::write(&path, files).unwrap();
        Self(path)
    }
}

#[test]
fn the_chart_brings_what_the_manifests_bring() {
    let Some(helm) = program("KATA_TEST_HELM", "THE HELM CHART") else { return };
    let chart = Folder::with("chart-same", &helm::chart().unwrap());
    for (platform, monitor) in [
        (Platform::Kubernetes, None),
        (Platform::Openshift, None),
        (Platform::Openshift, Some(MONITOR)),
    ] {
        let arguments = ManifestsArguments {
            namespace: NAMESPACE.to_owned(),
            image: "registry.example/operator:v1".to_owned(),
            platform,
            monitor_image: monitor.map(str::to_owned),
        };
        let platform_is = format!("platform={}", platform.as_str());
        let monitored = format!("monitor.image={}", monitor.unwrap_or_default());
        let mut words = vec![
            "template",
            "release",
            chart.0.to_str().unwrap(),
            "--namespace",
            NAMESPACE,
            "--no-hooks",
            "--set",
            "image.repository=registry.example/operator,image.tag=v1",
            "--set",
            &platform_is,
            "--set",
            &monitored,
        ];
        if platform == Platform::Openshift {
            words.extend(["--api-versions", "monitoring.coreos.com/v1"]);
        }
        let rendered = documents(&output(&helm, &words).unwrap());
        let rendered: BTreeMap<String, Value> = by_name(rendered.into_iter().map(plain).collect());
        let mut wanted = manifests::objects(&arguments).unwrap();
        // Helm makes the namespace.
        wanted.retain(|object| object["kind"] != "Namespace");
        let wanted: BTreeMap<String, Value> = by_name(wanted.into_iter().map(plain).collect());
        let names = |of: &BTreeMap<String, Value>| of.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&rendered), names(&wanted), "{platform:?} {monitor:?}");
        for (name, object) in &wanted {
            let difference = difference(&rendered[name], object);
            assert_eq!(difference, None, "{name} {platform:?} {monitor:?}");
        }
    }
}

#[test]
fn helm_accepts_the_chart_and_refuses_what_is_no_value() {
    let Some(helm) = program("KATA_TEST_HELM", "THE HELM CHART") else { return };
    let chart = Folder::with("chart-values", &helm::chart().unwrap());
    let chart = chart.0.to_str().unwrap();
    output(&helm, &["lint", "--strict", chart]).unwrap();
    let template = |setting: &str| output(&helm, &["template", "r", chart, "--set", setting]);
    for (setting, said) in [
        ("platfrom=openshift", "platfrom"),
        ("platform=windows", "platform"),
        ("replicas=0", "replicas"),
        ("image.digest=sha256:abc", "digest"),
        ("crds.keeep=true", "keeep"),
    ] {
        let refused = template(setting).unwrap_err();
        assert!(refused.contains(said), "{setting}: {refused}");
    }
    let digest = format!("sha256:{}", "0".repeat(64));
    let rendered = template(&format!("image.digest={digest}")).unwrap();
    assert!(rendered.contains(&format!("image: \"ghcr.io/kata-operator/kata-operator@{digest}\"")));
    assert!(!template("crds.enabled=false").unwrap().contains("kind: CustomResourceDefinition"));
    assert!(template("crds.keep=true").unwrap().contains("helm.sh/resource-policy: keep"));
    assert!(!template("crds.keep=false").unwrap().contains("helm.sh/resource-policy"));
    // The operator's pods have the secrets themselves, those that it makes get them from their account.
    let pulled = documents(&template("platform=kubernetes,imagePullSecrets[0].name=pull").unwrap());
    let account = pulled.iter().find(|object| {
        object["kind"] == "ServiceAccount" && object["metadata"]["name"] == "kata-node-agent"
    });
    assert_eq!(account.unwrap()["imagePullSecrets"][0]["name"], "pull");
    let with_hook = template("preDeleteCheck=true").unwrap();
    assert!(with_hook.contains("helm.sh/hook: pre-delete"));
    assert!(!template("preDeleteCheck=false").unwrap().contains("helm.sh/hook"));
}

#[test]
fn every_alert_fires_when_it_should_and_only_then() {
    let Some(promtool) = program("KATA_TEST_PROMTOOL", "THE ALERTS") else { return };
    let file = "deploy/monitoring/alerts.yaml";
    let fresh = alerts::rules(kata_api::names::NAMESPACE).unwrap();
    assert_eq!(std::fs::read_to_string(repository().join(file)).unwrap(), fresh);
    output(&promtool, &["check", "rules", file]).unwrap();
    output(&promtool, &["test", "rules", "deploy/monitoring/alerts.test.yaml"]).unwrap();
}

#[test]
fn every_alert_has_a_test_and_a_runbook() {
    let rules: Value =
        serde_saphyr::from_str(&alerts::rules(kata_api::names::NAMESPACE).unwrap()).unwrap();
    let tests =
        std::fs::read_to_string(repository().join("deploy/monitoring/alerts.test.yaml")).unwrap();
    let list = std::fs::read_to_string(repository().join("docs/alerts.md")).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert!(!rules.is_empty());
    let mut runbooks = BTreeSet::new();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        let fires = format!("alertname: {name}\n        exp_alerts:\n          - exp_labels");
        assert!(tests.contains(&fires), "{name} never fires in alerts.test.yaml");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        let listed = format!("| [{name}](runbooks/{name}.md) | {severity} |");
        assert!(list.contains(&listed), "docs/alerts.md does not list {name}, {severity}");
        let url = rule["annotations"]["runbook_url"].as_str().unwrap();
        let (_, file) = url.split_once("/blob/main/").unwrap();
        let page = std::fs::read_to_string(repository().join(file))
            .unwrap_or_else(|error| panic!("{name} has no runbook {file}: {error}"));
        assert!(page.starts_with(&format!("# {name}\n\nSeverity: {severity}, after ")), "{file}");
        for part in ["What it means", "How to look", "Causes", "Fix"] {
            assert!(page.contains(&format!("\n## {part}\n")), "{file} does not say: {part}");
        }
        runbooks.insert(format!("{name}.md"));
    }
    let pages = std::fs::read_dir(repository().join("docs/runbooks")).unwrap();
    let pages: BTreeSet<String> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(pages, runbooks, "a runbook of no alert");
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let content: Value = serde_json::from_str(&dashboard::dashboard().unwrap()).unwrap();
    let page = std::fs::read_to_string(repository().join("docs/metrics.md")).unwrap();
    let panels = content["panels"].as_array().unwrap();
    let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut seen = BTreeSet::new();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let query = target["expr"].as_str().unwrap();
        let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for metric in words.filter(|word| word.starts_with("kata_operator_")) {
            let metric = metric.trim_end_matches("_bucket");
            assert!(page.contains(&format!("| `{metric}` |")), "{metric} of {query}");
            seen.insert(metric.to_owned());
        }
    }
    assert!(seen.len() >= 8, "{seen:?}");
}

fn manifest<'a>(files: &'a Files, name: &str) -> &'a str {
    files.get(Path::new(name)).unwrap()
}

#[test]
fn the_bundle_grants_what_the_manifests_grant() {
    let files = bundle::bundle().unwrap();
    let version: Value = serde_saphyr::from_str(manifest(
        &files,
        "manifests/kata-operator.clusterserviceversion.yaml",
    ))
    .unwrap();
    let install = &version["spec"]["install"]["spec"];
    let mut granted = BTreeSet::new();
    for scope in ["clusterPermissions", "permissions"] {
        assert_eq!(install[scope][0]["serviceAccountName"], manifests::NAME);
        for rule in install[scope][0]["rules"].as_array().unwrap() {
            for group in rule["apiGroups"].as_array().unwrap() {
                for resource in rule["resources"].as_array().unwrap() {
                    for verb in rule["verbs"].as_array().unwrap() {
                        granted.insert((
                            group.as_str().unwrap().to_owned(),
                            resource.as_str().unwrap().to_owned(),
                            verb.as_str().unwrap().to_owned(),
                        ));
                    }
                }
            }
        }
    }
    let wanted: BTreeSet<_> = manifests::granted(Platform::Openshift, false)
        .into_iter()
        .map(|(group, resource, verb, _)| (group, resource, verb))
        .collect();
    assert_eq!(granted, wanted);
    let deployment = &install["deployments"][0]["spec"]["template"]["spec"];
    assert_eq!(deployment["serviceAccountName"], manifests::NAME);
    let images: BTreeSet<&str> = version["spec"]["relatedImages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|image| image["image"].as_str().unwrap())
        .collect();
    assert!(images.contains(deployment["containers"][0]["image"].as_str().unwrap()));
}

#[test]
fn the_bundle_describes_fields_that_exist() {
    let files = bundle::bundle().unwrap();
    let version: Value = serde_saphyr::from_str(manifest(
        &files,
        "manifests/kata-operator.clusterserviceversion.yaml",
    ))
    .unwrap();
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
}

#[test]
fn the_bundle_has_only_kinds_that_olm_takes() {
    // operator-registry, pkg/lib/bundle: what a bundle may have besides its ClusterServiceVersion and its
    // CustomResourceDefinitions.
    let taken = [
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
    let files = bundle::bundle().unwrap();
    let mut kinds = BTreeSet::new();
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with("manifests")) {
        let object: Value = serde_saphyr::from_str(text).unwrap();
        let kind = object["kind"].as_str().unwrap().to_owned();
        assert!(taken.contains(&kind.as_str()), "{}", path.display());
        assert!(object["metadata"]["namespace"].is_null() || kind == "ClusterServiceVersion");
        kinds.insert(kind);
    }
    assert!(kinds.contains("PrometheusRule") && kinds.contains("ConsoleQuickStart"), "{kinds:?}");
    // The operator's own account is made by the Operator Lifecycle Manager.
    assert!(!kinds.contains("ServiceAccount"));
}

/// A JSON value as an expression of Lua.
fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::String(text) => format!("[==[{text}]==]"),
        Value::Array(items) => {
            format!("{{{}}}", items.iter().map(lua).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let pairs = map.iter().map(|(key, value)| format!("[\"{key}\"] = {}", lua(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[test]
fn argo_cd_calls_a_kata_config_healthy_when_it_is_ready_and_not_before() {
    let Some(program) = program("KATA_TEST_LUA", "ARGO CD'S HEALTH SCRIPT") else { return };
    let script = std::fs::read_to_string(repository().join("deploy/argocd/health.lua")).unwrap();
    let holds = |name: &str| json!({"type": name, "status": "True", "message": format!("{name}!")});
    let lacks =
        |name: &str| json!({"type": name, "status": "False", "message": format!("no {name}")});
    let cases = [
        (json!({"metadata": {"generation": 1}}), "Progressing"),
        (json!({"metadata": {"generation": 1}, "status": {}}), "Progressing"),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
            "conditions": [lacks("Ready"), holds("Reconciling")]}}),
            "Progressing",
        ),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
            "conditions": [holds("Ready"), lacks("Degraded")]}}),
            "Healthy",
        ),
        (
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1,
            "conditions": [holds("Ready")]}}),
            "Progressing",
        ),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
            "conditions": [lacks("Ready"), holds("Reconciling"), holds("Stalled")]}}),
            "Degraded",
        ),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
            "conditions": [holds("Ready"), holds("Degraded")]}}),
            "Degraded",
        ),
        (
            json!({"metadata": {"generation": 1, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"observedGeneration": 1, "conditions": [holds("Ready")]}}),
            "Progressing",
        ),
        (
            json!({"metadata": {"generation": 1, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"observedGeneration": 1,
            "conditions": [holds("Ready"), holds("DeletionBlocked")]}}),
            "Degraded",
        ),
    ];
    for (config, wanted) in cases {
        let code = format!(
            "obj = {}\nlocal found = (function()\n{script}\nend)()\n\
             print(found.status .. ': ' .. found.message)",
            lua(&config)
        );
        let told = output(&program, &["-e", &code]).unwrap();
        assert!(told.starts_with(&format!("{wanted}: ")), "{config}: {told}");
        assert!(told.trim_end().len() > wanted.len() + 2, "{config}: no message");
    }
}

#[test]
fn a_folder_with_files_of_somebody_else_is_left_alone() {
    let folder = Folder::with("chart-foreign", &helm::chart().unwrap());
    // Written again, as it was.
    distribution::write(&folder.0, &helm::chart().unwrap()).unwrap();
    std::fs::write(folder.0.join("notes.txt"), "mine").unwrap();
    std::fs::write(folder.0.join("Chart.yaml"), "edited").unwrap();
    let refused = distribution::write(&folder.0, &helm::chart().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("notes.txt"), "{refused}");
    assert_eq!(std::fs::read_to_string(folder.0.join("Chart.yaml")).unwrap(), "edited");
}

#[tokio::test(start_paused = true)]
async fn the_operator_may_go_only_after_the_last_kata_config() {
    let cluster = lab::bare();
    let client = kube::Client::new(cluster.client_service(), "default");
    let told = async || uninstall::check(&client).await.unwrap().message();
    assert_eq!(told().await, None, "there is not even the kind");
    cluster.with(|sim, now| {
        let writer = Writer { manager: "kubectl", now };
        for crd in kata_api::crds() {
            sim.api.create(writer, &CRDS, "", serde_json::to_value(crd).unwrap()).unwrap();
        }
    });
    assert!(lab::until(Duration::from_secs(60), || served(&cluster)).await);
    assert_eq!(told().await, None);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let message = told().await.unwrap();
    assert!(message.contains("kubectl delete kataconfig example"), "{message}");
    let finalizers = |names: Value| json!({"metadata": {"finalizers": names}});
    lab::merge(&cluster, &lab::kata_configs(), "example", &finalizers(json!(["example.com/test"])));
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let message = told().await.unwrap();
    assert!(message.contains("is being deleted and not gone yet"), "{message}");
    lab::merge(&cluster, &lab::kata_configs(), "example", &finalizers(json!([])));
    assert_eq!(told().await, None);
}

fn served(cluster: &simcluster::Cluster) -> bool {
    cluster.with(|sim, _| {
        sim.api.registry.by_kind("kataconfiguration.openshift.io", "KataConfig").is_some()
    })
}
