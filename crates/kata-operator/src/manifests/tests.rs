//! What is granted, and what Pod Security asks for.

use std::collections::BTreeSet;

use super::*;

fn arguments(platform: Platform) -> ManifestsArguments {
    ManifestsArguments {
        namespace: "ns".to_owned(),
        image: "example.org/op@sha256:0".to_owned(),
        platform,
        monitor_image: None,
    }
}

/// Each permission is a decision; a new one changes this list.
#[test]
fn what_is_granted() {
    let lines: Vec<String> = granted(Platform::Auto)
        .into_iter()
        .map(|(group, resource, verb, name)| {
            let group = if group.is_empty() { "core" } else { &group };
            format!("{group} {resource} {verb} {name}").trim_end().to_owned()
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn no_permission_is_a_wildcard_or_touches_secrets() {
    for (group, resource, verb, name) in granted(Platform::Auto) {
        for part in [&group, &resource, &verb] {
            assert!(!part.contains('*'), "{group} {resource} {verb}");
        }
        assert!(resource != "secrets");
        // Only kata-monitor's, and without it only to see that there is none.
        let harmless = verb == "list" && name == names::MONITOR_CONSTRAINTS;
        assert!(resource != "securitycontextconstraints" || harmless, "{verb} {name}");
        let by_name = !name.is_empty() && ["list", "watch"].contains(&verb.as_str());
        assert!(resource != "configmaps" || by_name, "{verb} {resource} {name}");
    }
}

#[test]
fn without_the_mco_nothing_of_it_is_granted() {
    let groups = granted(Platform::Kubernetes).into_iter().map(|(group, ..)| group);
    assert!(groups.into_iter().all(|group| group != "machineconfiguration.openshift.io"));
}

/// The rules of the restricted Pod Security Standard that apply to this pod.
#[test]
fn the_restricted_standard_admits_the_pod() {
    let deployment = objects(&arguments(Platform::Auto)).pop().unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    for key in ["hostNetwork", "hostPID", "hostIPC", "volumes"] {
        assert!(pod[key].is_null(), "{key}");
    }
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    assert!(container["resources"]["limits"].is_null());
    assert!(container["resources"]["requests"]["memory"].is_string());
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], "health");
    }
}

#[test]
fn the_text_is_valid_yaml_with_every_object_and_the_given_names() {
    let text = manifests(&arguments(Platform::Openshift)).unwrap();
    let kinds: Vec<String> = text
        .split("---\n")
        .filter(|document| !document.trim().is_empty())
        .map(|document| {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            if let Some(namespace) = object["metadata"]["namespace"].as_str() {
                assert!(["ns", "default"].contains(&namespace), "{namespace}");
            }
            object["kind"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(
        kinds,
        [
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
            "Deployment",
        ]
    );
    assert!(text.contains("image: example.org/op@sha256:0"));
}

/// Whoever may write constraints of any name may let any pod do anything.
#[test]
fn what_the_monitor_needs_is_granted_by_name_and_only_with_it() {
    let text = |monitor_image: Option<&str>| {
        let monitor_image = monitor_image.map(str::to_owned);
        manifests(&ManifestsArguments { monitor_image, ..arguments(Platform::Openshift) }).unwrap()
    };
    let (without, with) = (text(None), text(Some("example.org/monitor@sha256:0")));
    for part in ["kind: ServiceMonitor", "RELATED_IMAGE_KATA_MONITOR", "name: monitor\n"] {
        assert!(!without.contains(part) && with.contains(part), "{part}");
    }
    assert!(without.contains("pod-security.kubernetes.io/enforce: restricted"));
    for (_, resource, verb, name) in granted_for_monitor() {
        assert!(!name.is_empty(), "{verb} {resource}");
    }
    let tuples: BTreeSet<_> = granted(Platform::Openshift)
        .into_iter()
        .chain(granted_for_monitor())
        .map(|(group, resource, verb, _)| (group, resource, verb))
        .collect();
    assert!(tuples.len() <= 50, "{}", tuples.len());
}
