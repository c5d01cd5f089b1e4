//! The Helm chart: what it renders is what the manifests are.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::platform::Platform;
use kata_manifests::alerts;
use kata_manifests::manifests::{self, Options};
use serde_json::{Value, json};

use crate::files::{difference, documents, names, output, program, read};
use crate::rules::{Permissions, permissions};

const CHART: &str = "deploy/helm/kata-operator";
const NAMESPACE: &str = "kata-home";
const MONITOR: &str = "registry.example/monitor:1";

/// The kinds of installation for which manifests and chart differ.
const VARIANTS: [(Platform, Option<&str>); 3] = [
    (Platform::Kubernetes, None),
    (Platform::Openshift, None),
    (Platform::Openshift, Some(MONITOR)),
];

/// The objects of the manifests, besides the namespace, which Helm creates.
fn wanted(platform: Platform, monitor: Option<&str>) -> Vec<Value> {
    let mut objects = manifests::objects(&Options {
        namespace: NAMESPACE.to_owned(),
        image: "registry.example/operator:v1".to_owned(),
        platform,
        monitor_image: monitor.map(str::to_owned),
    })
    .unwrap();
    objects.retain(|object| object["kind"] != "Namespace");
    objects
}

fn is_policy(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
}

/// Objects by kind, namespace and name.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let named = objects.into_iter().map(|object| {
        let metadata = &object["metadata"];
        (format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]), object)
    });
    named.collect()
}

/// The object without what only Helm adds.
fn without_release(mut object: Value) -> Value {
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.remove("app.kubernetes.io/instance");
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
        // On OpenShift the manifests let the operator find the platform; the chart names it.
        arguments.retain(|argument| {
            let argument = argument.as_str().unwrap();
            !argument.starts_with("--log-filter=") && !argument.starts_with("--platform=")
        });
    }
    object
}

#[test]
#[ignore = "needs helm"]
fn helm_renders_the_objects_of_the_manifests() {
    let helm = program("KATA_TEST_HELM");
    for (platform, monitor) in VARIANTS {
        let platform_is = format!("platform={}", platform.as_str());
        let monitored = format!("monitor.image={}", monitor.unwrap_or_default());
        let mut words = vec!["template", "release", CHART, "--namespace", NAMESPACE, "--no-hooks"];
        for setting in
            ["image.repository=registry.example/operator,image.tag=v1", &platform_is, &monitored]
        {
            words.extend(["--set", setting]);
        }
        if platform == Platform::Openshift {
            words.extend(["--api-versions", "monitoring.coreos.com/v1"]);
        }
        let rendered = documents(&output(&helm, &words).unwrap());
        let rendered = by_name(rendered.into_iter().map(without_release).collect());
        let wanted = wanted(platform, monitor).into_iter().map(without_release).collect();
        let wanted = by_name(wanted);
        let names = |of: &BTreeMap<String, Value>| of.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&rendered), names(&wanted), "{platform:?} {monitor:?}");
        for (name, object) in &wanted {
            let difference = difference(&rendered[name], object);
            assert_eq!(difference, None, "{name} {platform:?} {monitor:?}, chart and manifests");
        }
    }
}

#[test]
#[ignore = "needs helm"]
fn helm_accepts_the_chart_and_refuses_unknown_values() {
    let helm = program("KATA_TEST_HELM");
    let of_image = ["--set", "image.repository=registry.example/operator"];
    output(&helm, &[&["lint", "--strict", CHART], &of_image[..]].concat()).unwrap();
    let template = |setting: &str| {
        output(&helm, &[&["template", "r", CHART, "--set", setting], &of_image[..]].concat())
    };
    let without = output(&helm, &["template", "r", CHART]).unwrap_err();
    assert!(without.contains("image.repository is not set"), "{without}");
    for (setting, said) in [
        ("platfrom=openshift", "platfrom"),
        ("platform=windows", "platform"),
        ("replicas=0", "replicas"),
        ("image.digest=sha256:abc", "digest"),
        ("crds.keeep=true", "keeep"),
        ("nodeJobs.limits.cpus=1", "cpus"),
        ("nodeJobs.limits.cpu=foo", "cpu"),
        ("nodeJobs.limits.memory=256MB", "memory"),
        ("image.tag=a b", "tag"),
        ("payloadImage=quay.io/kata containers", "payloadImage"),
        ("monitor.image=registry.example/m@sha256:1", "image"),
        ("commonLabels.team=the platform", "team"),
        ("podDisruptionBudget.maxUnavailable=0", "maxUnavailable"),
        ("networkPolicy.apiServerPorts={0}", "apiServerPorts"),
        ("monitoring.interval=fast", "interval"),
        ("commonLabels.app\\.kubernetes\\.io/name=mine", "commonLabels"),
        ("podLabels.app\\.kubernetes\\.io/component=mine", "podLabels"),
        ("podAnnotations.openshift\\.io/required-scc=anyuid", "podAnnotations"),
        ("monitoring.labels.helm\\.sh/chart=mine", "labels"),
    ] {
        let refused = template(setting).unwrap_err();
        assert!(refused.contains(said), "{setting}: {refused}");
    }
    for (setting, rendered) in [
        ("nodeJobs.limits.cpu=3", "- --job-cpu-limit=3\n"),
        ("nodeJobs.limits.cpu=1500m", "- --job-cpu-limit=1500m\n"),
        ("nodeJobs.limits.memory=", "- --job-memory-limit=\n"),
    ] {
        let all = template(&format!("platform=kubernetes,{setting}")).unwrap();
        assert!(all.contains(rendered), "{setting}");
    }
    let cpu_as_number = template("platform=kubernetes,nodeJobs.limits.cpu=2").unwrap();
    assert!(!cpu_as_number.contains("job-cpu-limit"), "2 is the default, as a number too");
    let digest = format!("sha256:{}", "0".repeat(64));
    let rendered = template(&format!("image.digest={digest}")).unwrap();
    assert!(rendered.contains(&format!("image: \"registry.example/operator@{digest}\"")));
    assert!(!template("crds.enabled=false").unwrap().contains("kind: CustomResourceDefinition"));
    assert!(template("crds.keep=true").unwrap().contains("helm.sh/resource-policy: keep"));
    assert!(!template("crds.keep=false").unwrap().contains("helm.sh/resource-policy"));
    // The operator's pods name the secrets themselves; the Jobs' pods get them from their account.
    let pulled = documents(&template("platform=kubernetes,imagePullSecrets[0].name=pull").unwrap());
    let account = pulled.iter().find(|object| {
        object["kind"] == "ServiceAccount" && object["metadata"]["name"] == "kata-node-agent"
    });
    assert_eq!(account.unwrap()["imagePullSecrets"][0]["name"], "pull");
    let limited = "nodeJobs.limits.cpu=,nodeJobs.limits.memory=1Gi,extension=kata-containers";
    let limited = template(limited).unwrap();
    for argument in
        ["--job-cpu-limit=\n", "--job-memory-limit=1Gi\n", "--extension=kata-containers\n"]
    {
        assert!(limited.contains(argument), "{argument}: {limited}");
    }
    let aggregated = "rbac.authorization.k8s.io/aggregate-to-edit";
    assert!(!template("aggregateToEdit=false").unwrap().contains(aggregated));
    assert!(template("aggregateToEdit=true").unwrap().contains(aggregated));
    let with_hook = template("preDeleteCheck=true").unwrap();
    assert!(with_hook.contains("helm.sh/hook: pre-delete"));
    assert!(!template("preDeleteCheck=false").unwrap().contains("helm.sh/hook"));
}

#[test]
#[ignore = "needs helm"]
fn every_value_reaches_its_object() {
    let helm = program("KATA_TEST_HELM");
    let values = [
        "commonLabels.team=platform",
        "podLabels.tier=system",
        "podAnnotations.note=kept",
        "serviceAccount.annotations.role=cloud",
        "topologySpreadConstraints[0].topologyKey=zone",
        "podDisruptionBudget.enabled=true",
        "extraArgs[0]=--log-format=json",
        "extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=http://proxy.example:3128",
        "networkPolicy.apiServerPorts={16443}",
        "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus",
        "monitoring.labels.release=prometheus,monitoring.labels.team=other,monitoring.interval=15s",
        "networkPolicy.extraEgress[0].ports[0].port=53,networkPolicy.extraEgress[0].ports[0].protocol=UDP",
        "payloadImage=registry.example/payload:1",
        "monitoring.dashboard.enabled=true",
        "monitoring.dashboard.labels.folder=kata",
        "image.repository=registry.example/operator",
    ];
    let mut words = vec!["template", "mine", CHART, "--api-versions", "monitoring.coreos.com/v1"];
    words.extend(values.iter().flat_map(|value| ["--set", *value]));
    let objects = documents(&output(&helm, &words).unwrap());
    let labels = |object: &Value| object["metadata"]["labels"].clone();
    for object in &objects {
        let labels = labels(object);
        assert_eq!(labels["team"], "platform", "{}", object["metadata"]);
        assert_eq!(labels["app.kubernetes.io/instance"], "mine", "{}", object["metadata"]);
    }
    let find = |kind: &str| {
        let named = |object: &&Value| {
            object["kind"] == kind && object["metadata"]["name"] == "kata-operator"
        };
        objects.iter().find(named).unwrap()
    };
    let dashboard = objects.iter().find(|it| it["metadata"]["name"] == "kata-operator-dashboard");
    let dashboard = dashboard.unwrap();
    assert_eq!(labels(dashboard)["grafana_dashboard"], "1");
    assert_eq!(labels(dashboard)["folder"], "kata");
    assert_eq!(dashboard["data"]["kata-operator.json"], read("deploy/monitoring/dashboard.json"));
    let template = &find("Deployment")["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["tier"], "system");
    assert_eq!(template["metadata"]["annotations"]["note"], "kept");
    assert_eq!(template["spec"]["topologySpreadConstraints"][0]["topologyKey"], "zone");
    let container = &template["spec"]["containers"][0];
    for argument in ["--log-format=json", "--payload-image=registry.example/payload:1"] {
        assert!(container["args"].as_array().unwrap().contains(&json!(argument)), "{argument}");
    }
    let proxy = json!({"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"});
    assert!(container["env"].as_array().unwrap().contains(&proxy), "{}", container["env"]);
    assert_eq!(find("ServiceAccount")["metadata"]["annotations"]["role"], "cloud");
    assert_eq!(find("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    let policy = &find("NetworkPolicy")["spec"];
    assert_eq!(policy["egress"][0]["ports"], json!([{"port": 16443, "protocol": "TCP"}]));
    assert_eq!(policy["egress"][1]["ports"], json!([{"port": 53, "protocol": "UDP"}]));
    assert_eq!(
        policy["ingress"][0]["from"],
        json!([{"podSelector": {"matchLabels": {"app": "prometheus"}}}])
    );
    assert_eq!(find("ServiceMonitor")["spec"]["endpoints"][0]["interval"], "15s");
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert_eq!(labels(find(kind))["release"], "prometheus", "{kind}");
    }
    words.extend(["--set", "networkPolicy.enabled=false"]);
    let rendered = output(&helm, &words).unwrap();
    assert!(!documents(&rendered).iter().any(|object| {
        object["kind"] == "NetworkPolicy" && object["metadata"]["name"] == "kata-operator"
    }));
}

/// What the templates have if every condition holds, and every value is empty.
fn stripped() -> Vec<Value> {
    let mut objects = Vec::new();
    for name in names(&format!("{CHART}/templates")) {
        if name == "crds.yaml" || !name.ends_with(".yaml") {
            continue;
        }
        let mut text = String::new();
        for line in read(&format!("{CHART}/templates/{name}")).lines() {
            let line: String =
                line.split("{{").map(|part| part.rsplit("}}").next().unwrap()).collect();
            text.push_str(&line);
            text.push('\n');
        }
        objects.extend(documents(&text));
    }
    objects
}

/// Roles, by kind and name, with their permissions; every other object has none.
fn roles(objects: &[Value]) -> BTreeMap<String, Permissions> {
    let mut roles: BTreeMap<String, Permissions> = BTreeMap::new();
    for object in objects.iter().filter(|object| object["kind"] != "CustomResourceDefinition") {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        let rules = if object["rules"].is_array() { &object["rules"] } else { &json!([]) };
        roles.entry(name).or_default().extend(permissions(rules));
    }
    roles
}

/// The part of `helm_renders_the_objects_of_the_manifests` that needs no helm.
#[test]
fn the_templates_have_the_objects_and_permissions_of_the_manifests() {
    let mut all: Vec<Value> =
        VARIANTS.iter().flat_map(|(platform, monitor)| wanted(*platform, *monitor)).collect();
    // Their template reads a generated file.
    all.retain(|object| !is_policy(object));
    let mut in_chart = roles(&stripped());
    // Only Helm has the hook, and the budget and the dashboard only if they are asked for.
    for name in [
        "Job\" \"kata-operator-delete-kataconfig-first",
        "PodDisruptionBudget\" \"kata-operator",
        "ConfigMap\" \"kata-operator-dashboard",
    ] {
        assert_eq!(in_chart.remove(&format!("\"{name}\"")), Some(Permissions::new()), "{name}");
    }
    assert_eq!(in_chart, roles(&all));
}

#[test]
fn the_files_of_the_chart_are_those_of_the_generators() {
    assert_eq!(read(&format!("{CHART}/files/crds.yaml")), manifests::crds().unwrap());
    let alerts = alerts::rules(kata_api::names::NAMESPACE).unwrap();
    assert_eq!(read(&format!("{CHART}/files/alerts.yaml")), alerts);
    let mut policies: Vec<Value> = Vec::new();
    for (platform, monitor_image) in
        [(Platform::Kubernetes, None), (Platform::Openshift, Some("MONITOR-IMAGE".to_owned()))]
    {
        let objects = manifests::objects(&Options {
            namespace: "RELEASE-NAMESPACE".to_owned(),
            image: "OPERATOR-IMAGE".to_owned(),
            platform,
            monitor_image,
        })
        .unwrap();
        for object in objects.into_iter().filter(is_policy) {
            if !policies.contains(&object) {
                policies.push(object);
            }
        }
    }
    assert_eq!(documents(&read(&format!("{CHART}/files/policies.yaml"))), policies);
}

#[test]
fn the_default_values_are_those_of_the_manifests() {
    let values: Value = serde_saphyr::from_str(&read(&format!("{CHART}/values.yaml"))).unwrap();
    let objects = manifests::objects(&Options::of(Platform::Openshift)).unwrap();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(values["replicas"], deployment["spec"]["replicas"]);
    for field in ["affinity", "priorityClassName", "tolerations"] {
        assert_eq!(difference(&values[field], &pod[field]), None, "{field}");
    }
    let container = &pod["containers"][0];
    assert_eq!(values["resources"], container["resources"]);
    assert_eq!(values["image"]["pullPolicy"], container["imagePullPolicy"]);
    assert_eq!(
        values["image"]["repository"], "",
        "no image is published with a chart from sources"
    );
    let schema: Value =
        serde_json::from_str(&read(&format!("{CHART}/values.schema.json"))).unwrap();
    let keys = |value: &Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let mut in_schema = keys(&schema["properties"]);
    // Helm adds it to the values of a chart that is a part of another one.
    in_schema.remove("global");
    assert_eq!(keys(&values), in_schema);
}
