//! The permissions, the controls of hardening guides, and the rendered text.

use kata_api::names;

use super::*;

mod hardening;

const PLATFORMS: [Platform; 3] = [Platform::Auto, Platform::Openshift, Platform::Kubernetes];

const MONITOR_IMAGE: &str = "example.org/monitor@sha256:0";

fn arguments(platform: Platform) -> Options {
    Options {
        namespace: "ns".to_owned(),
        image: "example.org/op@sha256:0".to_owned(),
        platform,
        monitor_image: None,
    }
}

fn with_monitor(platform: Platform) -> Options {
    Options { monitor_image: Some(MONITOR_IMAGE.to_owned()), ..arguments(platform) }
}

/// All combinations of options.
fn all() -> impl Iterator<Item = Options> {
    PLATFORMS.into_iter().flat_map(|platform| [arguments(platform), with_monitor(platform)])
}

/// The rendered text, read again.
fn rendered(arguments: &Options) -> Vec<Value> {
    let text = manifests(arguments).unwrap();
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// Every rule that is bound to the operator's service account, with where it holds, from the rendered
/// text: `(namespace or empty, group, resource, verb, name or empty)`.
fn bound(objects: &[Value]) -> Vec<[String; 5]> {
    let mut bound = Vec::new();
    for binding in objects {
        let ours = binding["subjects"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|subject| subject["kind"] == "ServiceAccount" && subject["name"] == NAME);
        if !ours {
            continue;
        }
        let role = objects
            .iter()
            .find(|role| {
                role["kind"] == binding["roleRef"]["kind"]
                    && role["metadata"]["name"] == binding["roleRef"]["name"]
                    && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
            })
            .unwrap();
        let texts = |value: &Value| -> Vec<String> {
            let values = value.as_array().into_iter().flatten();
            values.map(|value| value.as_str().unwrap().to_owned()).collect()
        };
        let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        for name in &names {
                            bound.push([
                                namespace.to_owned(),
                                group.clone(),
                                resource.clone(),
                                verb.clone(),
                                name.clone(),
                            ]);
                        }
                    }
                }
            }
        }
    }
    bound
}

/// Each permission is a decision; a new one changes this list.
#[test]
fn what_is_granted() {
    let lines: Vec<String> = granted(Platform::Auto, false)
        .into_iter()
        .map(|(group, resource, verb, name)| {
            let group = if group.is_empty() { "core" } else { &group };
            format!("{group} {resource} {verb} {name}").trim_end().to_owned()
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_listed_permissions_are_those_of_the_text() {
    for arguments in all() {
        let mut in_text: Vec<_> = bound(&rendered(&arguments))
            .into_iter()
            .map(|[_, group, resource, verb, name]| (group, resource, verb, name))
            .collect();
        in_text.sort();
        let monitor = arguments.monitor_image.is_some();
        assert_eq!(in_text, granted(arguments.platform, monitor), "{arguments:?}");
    }
}

#[test]
fn without_the_mco_nothing_of_it_is_granted() {
    for monitor in [false, true] {
        let mut groups =
            granted(Platform::Kubernetes, monitor).into_iter().map(|(group, ..)| group);
        assert!(groups.all(|group| !group.ends_with("openshift.io") || group.starts_with("kata")));
    }
}

#[test]
fn the_text_has_every_object_and_the_given_names() {
    let kinds = |arguments: Options| -> Vec<String> {
        let objects = rendered(&arguments);
        for object in &objects {
            if let Some(namespace) = object["metadata"]["namespace"].as_str() {
                assert!(["ns", "default"].contains(&namespace), "{namespace}");
            }
        }
        objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
    };
    let everywhere = [
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Role",
        "RoleBinding",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRole",
        "ClusterRole",
        "ConfigMap",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    let workload = ["NetworkPolicy", "Service", "Deployment"];
    let prometheus = ["Role", "RoleBinding", "ServiceMonitor", "PrometheusRule"];
    let policies = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"].repeat(2);
    let monitor = ["ServiceAccount", "Service", "ServiceMonitor"];
    assert_eq!(kinds(arguments(Platform::Auto)), [&everywhere[..], &workload].concat());
    assert_eq!(
        kinds(arguments(Platform::Openshift)),
        [&everywhere[..], &workload, &prometheus].concat()
    );
    assert_eq!(
        kinds(with_monitor(Platform::Openshift)),
        [&everywhere[..], &policies, &monitor, &workload, &prometheus].concat()
    );
    let text = manifests(&arguments(Platform::Auto)).unwrap();
    assert!(text.contains("image: example.org/op@sha256:0"));
}

#[test]
fn objects_and_text_are_the_same() {
    for arguments in all() {
        assert_eq!(objects(&arguments).unwrap(), rendered(&arguments));
    }
}

/// A client that may write constraints of any name can give any pod all privileges.
#[test]
fn what_the_monitor_needs_is_granted_by_name_and_only_with_it() {
    let without = manifests(&arguments(Platform::Openshift)).unwrap();
    let with = manifests(&with_monitor(Platform::Openshift)).unwrap();
    for part in ["name: monitor\n", "RELATED_IMAGE_KATA_MONITOR", MONITOR_IMAGE] {
        assert!(!without.contains(part) && with.contains(part), "{part}");
    }
    for (_, resource, verb, name) in granted_for_monitor() {
        assert!(!name.is_empty(), "{verb} {resource}");
    }
    // Without kata-monitor the operator only removes what an earlier one left.
    for (_, resource, verb, name) in granted(Platform::Openshift, false) {
        if ["daemonsets", "securitycontextconstraints"].contains(&resource.as_str()) {
            let removes = ["list", "delete"].contains(&verb.as_str());
            assert!(removes && !name.is_empty(), "{verb} {resource} {name}");
        }
    }
}

/// ConfigMaps often contain data that the operator must not read.
#[test]
fn config_maps_are_read_by_name() {
    for (_, resource, verb, name) in granted(Platform::Openshift, true) {
        let by_name = !name.is_empty() && ["list", "watch"].contains(&verb.as_str());
        assert!(resource != "configmaps" || by_name, "{verb} {resource} {name}");
    }
}

/// An alert without an explanation does not help an administrator.
#[test]
fn every_alert_is_explained() {
    let explained = include_str!("../../../../docs/alerts.md");
    let metrics = include_str!("../../../../docs/metrics.md");
    let objects = rendered(&arguments(Platform::Openshift));
    let rules = of_kind(&objects, "PrometheusRule")[0]["spec"]["groups"][0]["rules"].clone();
    let rules = rules.as_array().unwrap();
    assert!(rules.len() >= 6);
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(name.starts_with("Kata"), "{name}");
        assert!(
            explained.contains(&format!("| [{name}](runbooks/{name}.md) |")),
            "docs/alerts.md lacks {name}"
        );
        let annotations = &rule["annotations"];
        for key in ["summary", "description"] {
            assert!(annotations[key].as_str().unwrap().ends_with('.'), "{name} {key}");
        }
        let runbook = annotations["runbook_url"].as_str().unwrap();
        assert!(runbook.ends_with(&format!("/docs/runbooks/{name}.md")), "{runbook}");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}");
        let expression = rule["expr"].as_str().unwrap();
        let start = expression.find("kata_operator_").unwrap();
        let metric = &expression[start..];
        let metric = &metric[..metric.find('{').unwrap()];
        assert!(metrics.contains(&format!("| `{metric}` |")), "{name}: no metric {metric}");
    }
}
