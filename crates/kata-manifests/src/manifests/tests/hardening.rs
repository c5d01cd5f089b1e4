//! The rules of the guides that apply to what is installed, by their ids: the Kubernetes Pod Security
//! Standards (PSS), the CIS Kubernetes Benchmark 1.x chapter 5 (CIS), the Kubernetes Hardening Guidance
//! of NSA and CISA (NSA, by section), and OpenShift's conventions (OCP).

use std::collections::BTreeSet;

use super::*;
use crate::manifests::metadata::selector;

/// The ids of a control, what it requires, and whether it holds.
type Control = (&'static str, &'static str, fn(&Installed) -> bool);

/// A change that breaks a control.
type Damage = fn(&mut Installed);

/// What is installed, and its parts.
struct Installed {
    objects: Vec<Value>,
    bound: Vec<[String; 5]>,
    monitor: bool,
    pod: Value,
    container: Value,
}

impl Installed {
    fn by(arguments: &Options) -> Self {
        let objects = rendered(arguments);
        let monitor = objects.iter().any(|it| it["metadata"]["name"] == names::MONITOR_ACCOUNT);
        let deployments = of_kind(&objects, "Deployment");
        assert_eq!(deployments.len(), 1);
        let pod = deployments[0]["spec"]["template"]["spec"].clone();
        let containers = pod["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        assert!(pod["initContainers"].is_null() && pod["ephemeralContainers"].is_null());
        let container = containers[0].clone();
        Self { bound: bound(&objects), monitor, pod, container, objects }
    }

    fn one(&self, kind: &str) -> &Value {
        of_kind(&self.objects, kind)[0]
    }

    /// Whether the operator has none of these resources with one of these verbs; empty means any.
    fn never(&self, resources: &[&str], verbs: &[&str]) -> bool {
        self.bound.iter().all(|[_, _, resource, verb, _]| {
            let resource = resource.split('/').next().unwrap();
            !resources.contains(&resource) || !(verbs.is_empty() || verbs.contains(&verb.as_str()))
        })
    }

    /// Whether it is for a cluster on which the operator changes the nodes itself.
    fn changes_nodes(&self) -> bool {
        self.container["args"].to_string().contains("--platform=kubernetes")
    }

    /// The level of Pod Security in this mode.
    fn level(&self, mode: &str) -> &str {
        let label = format!("pod-security.kubernetes.io/{mode}");
        self.one("Namespace")["metadata"]["labels"][label].as_str().unwrap_or_default()
    }
}

#[rustfmt::skip]
const CONTROLS: &[Control] = &[
    ("CIS-5.1.1", "cluster-admin is not bound", |it| {
        it.objects.iter().all(|object| object["roleRef"]["name"] != "cluster-admin")
    }),
    ("CIS-5.1.2", "no access to secrets", |it| it.never(&["secrets"], &[])),
    ("CIS-5.1.3", "no wildcard in any role", |it| {
        it.objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Role"))
            .all(|role| !role["rules"].to_string().contains('*'))
    }),
    ("CIS-5.1.4", "no creation of pods or workloads, except Jobs in its own namespace where the operator changes the nodes itself", |it| {
        let workloads = ["pods", "deployments", "statefulsets", "replicasets", "cronjobs",
            "replicationcontrollers"];
        let writes = ["create", "update", "patch"];
        it.never(&workloads, &writes)
            && it.bound.iter().all(|[namespace, _, resource, verb, _]| {
                resource != "jobs"
                    || !writes.contains(&verb.as_str())
                    || (it.changes_nodes() && !namespace.is_empty())
            })
    }),
    ("CIS-5.1.5", "an own service account, not the default one", |it| {
        it.pod["serviceAccountName"] == NAME && it.one("ServiceAccount")["metadata"]["name"] == NAME
    }),
    ("CIS-5.1.6", "the service account's token is mounted only where it is asked for", |it| {
        of_kind(&it.objects, "ServiceAccount").iter()
            .all(|account| account["automountServiceAccountToken"] == false)
            && it.pod["automountServiceAccountToken"] == true
    }),
    ("CIS-5.1.7", "no binding to system:masters or any other group", |it| {
        !it.objects.iter().any(|object| object["subjects"].to_string().contains("\"Group\""))
    }),
    ("CIS-5.1.8", "no bind, impersonate or escalate", |it| {
        it.bound.iter().all(|[.., verb, _]| !["bind", "impersonate", "escalate"].contains(&verb.as_str()))
    }),
    ("CIS-5.1.9", "no creation of persistent volumes", |it| it.never(&["persistentvolumes"], &[])),
    ("CIS-5.1.10", "no access to the proxy of nodes", |it| {
        it.bound.iter().all(|[_, _, resource, ..]| resource != "nodes/proxy")
    }),
    ("CIS-5.1.11", "no approval of certificate signing requests", |it| {
        it.never(&["certificatesigningrequests", "signers"], &[])
    }),
    ("CIS-5.1.12", "no access to webhook configurations, and none is installed", |it| {
        it.never(&["validatingwebhookconfigurations", "mutatingwebhookconfigurations"], &[])
            && it.objects.iter().all(|object| !object["kind"].as_str().unwrap().contains("Webhook"))
    }),
    ("CIS-5.1.13", "no tokens of service accounts", |it| it.never(&["serviceaccounts"], &[])),
    ("PSS-restricted", "the namespace audits and, unless pods with folders of the host are to run there, warns and enforces", |it| {
        let enforced = if it.monitor || it.changes_nodes() { "privileged" } else { "restricted" };
        ["enforce", "warn"].iter().all(|mode| it.level(mode) == enforced)
            && it.level("audit") == "restricted"
    }),
    ("CIS-5.2.2 PSS", "not privileged", |it| it.container["securityContext"]["privileged"] == false),
    ("CIS-5.2.3 PSS", "no host process ids", |it| it.pod["hostPID"].is_null()),
    ("CIS-5.2.4 PSS", "no host IPC", |it| it.pod["hostIPC"].is_null()),
    ("CIS-5.2.5 PSS", "no host network", |it| it.pod["hostNetwork"].is_null()),
    ("CIS-5.2.6 PSS", "no privilege escalation", |it| {
        it.container["securityContext"]["allowPrivilegeEscalation"] == false
    }),
    ("CIS-5.2.7 PSS NSA-pods", "not root, and no fixed user that OpenShift would refuse", |it| {
        it.pod["securityContext"]["runAsNonRoot"] == true
            && it.pod["securityContext"]["runAsUser"].is_null()
            && it.container["securityContext"]["runAsUser"].is_null()
    }),
    ("CIS-5.2.8 CIS-5.2.9 PSS", "all capabilities dropped, none added", |it| {
        it.container["securityContext"]["capabilities"] == json!({"drop": ["ALL"]})
    }),
    ("CIS-5.2.12 PSS", "no volumes, so none of the host", |it| {
        it.pod["volumes"].is_null() && it.container["volumeMounts"].is_null()
    }),
    ("CIS-5.2.13 PSS", "no host ports", |it| {
        it.container["ports"].as_array().unwrap().iter().all(|port| port["hostPort"].is_null())
    }),
    ("CIS-5.3.2 NSA-network", "a NetworkPolicy for both directions selects the pods", |it| {
        let policy = it.one("NetworkPolicy");
        policy["spec"]["podSelector"]["matchLabels"] == selector()
            && policy["spec"]["policyTypes"] == json!(["Ingress", "Egress"])
            && policy["spec"]["ingress"].as_array().unwrap().iter().all(|rule| {
                rule["ports"].is_array() && rule["from"].is_array()
            })
            && policy["spec"]["egress"].as_array().unwrap().iter().all(|rule| rule["ports"].is_array())
    }),
    ("CIS-5.4.1 CIS-5.4.2", "no secrets in the environment", |it| {
        !it.container["env"].to_string().contains("secretKeyRef") && it.container["envFrom"].is_null()
    }),
    ("CIS-5.7.2 PSS", "the runtime's seccomp profile", |it| {
        it.pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    }),
    ("CIS-5.7.4", "nothing runs in the default namespace", |it| {
        it.objects.iter().filter(|object| object["metadata"]["namespace"] == "default")
            .all(|object| ["Role", "RoleBinding"].contains(&object["kind"].as_str().unwrap()))
    }),
    ("NSA-pods", "the root file system is read only", |it| {
        it.container["securityContext"]["readOnlyRootFilesystem"] == true
    }),
    ("OCP-resources", "requests, and no limits", |it| {
        let resources = &it.container["resources"];
        resources["limits"].is_null()
            && ["cpu", "memory"].iter().all(|what| resources["requests"][what].is_string())
    }),
    ("OCP-probes", "liveness and readiness", |it| {
        it.container["livenessProbe"]["httpGet"]["path"] == "/livez"
            && it.container["readinessProbe"]["httpGet"]["path"] == "/readyz"
            && it.container["ports"].to_string().contains("\"health\"")
    }),
    ("OCP-priority", "not preempted by workloads", |it| {
        it.pod["priorityClassName"] == "system-cluster-critical"
    }),
    ("OCP-availability", "a second pod, elsewhere if there is an elsewhere, and leader election", |it| {
        let spec = &it.one("Deployment")["spec"];
        let spread = &it.pod["affinity"]["podAntiAffinity"];
        spec["replicas"] == 2
            && spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
            && spread["preferredDuringSchedulingIgnoredDuringExecution"].is_array()
            && it.container["args"].to_string().contains("--leader-elect")
    }),
    ("OCP-tolerations", "no toleration of cordons, nor of everything", |it| {
        it.pod["tolerations"].as_array().unwrap().iter().all(|toleration| {
            let own =
                |key: &str| key.starts_with("node-role.") || names::STARTUP_TAINTS.contains(&key);
            toleration["key"].as_str().is_some_and(own)
        })
    }),
    ("own-taint", "runs where all nodes still have the startup taint, which only the operator removes", |it| {
        names::STARTUP_TAINTS.iter().all(|key| {
            it.pod["tolerations"].as_array().unwrap().iter().any(|toleration| {
                toleration["key"] == *key && toleration["effect"].is_null()
            })
        })
    }),
    ("OCP-scc", "the least security context constraint is asked for", |it| {
        let annotations = &it.one("Deployment")["spec"]["template"]["metadata"]["annotations"];
        annotations["openshift.io/required-scc"] == "restricted-v2"
    }),
];

#[test]
fn every_control_holds_on_every_platform() {
    for arguments in all() {
        let installed = Installed::by(&arguments);
        let broken: Vec<String> = CONTROLS
            .iter()
            .filter(|(.., holds)| !holds(&installed))
            .map(|(ids, asks, _)| format!("{ids}: {asks}"))
            .collect();
        assert!(broken.is_empty(), "{arguments:?}: {broken:#?}");
    }
}

/// How many permissions there are, as API group, resource and verb, and how many of them write.
fn count<'a>(bound: impl Iterator<Item = &'a [String; 5]>) -> (usize, usize) {
    let permissions: BTreeSet<_> =
        bound.map(|[_, group, resource, verb, _]| (group, resource, verb)).collect();
    let reads = ["get", "list", "watch"];
    let writes = permissions.iter().filter(|(.., verb)| !reads.contains(&verb.as_str())).count();
    (permissions.len(), writes)
}

/// The bounds that the project has set itself: for all that the operator may do by itself, and for all
/// that it may do in the whole cluster if it runs kata-monitor too.
#[test]
fn at_most_fifty_permissions_and_at_most_half_of_them_write() {
    for arguments in all() {
        let bound = bound(&rendered(&arguments));
        let everywhere = bound.iter().filter(|[namespace, ..]| namespace.is_empty());
        let (all, writes) =
            if arguments.monitor_image.is_some() { count(everywhere) } else { count(bound.iter()) };
        assert!(all <= 50, "{arguments:?}: {all}");
        assert!(writes <= 25, "{arguments:?}: {writes}");
    }
}

#[test]
fn the_page_counts_right() {
    let page = include_str!("../../../../../docs/permissions.md");
    for (title, arguments) in [
        ("OpenShift", arguments(Platform::Openshift)),
        ("OpenShift with kata-monitor", with_monitor(Platform::Openshift)),
        ("Kubernetes", arguments(Platform::Kubernetes)),
    ] {
        let bound = bound(&rendered(&arguments));
        let (all, writes) = count(bound.iter());
        let everywhere = bound.iter().filter(|[namespace, ..]| namespace.is_empty());
        let (wide, wide_writes) = count(everywhere);
        let row = format!("\n| {title} | {all} | {writes} | {wide} | {wide_writes} |\n");
        assert!(page.contains(&row), "docs/permissions.md lacks {row}");
    }
}

/// Each of these changes breaks the control that it names, so that the checks can fail.
#[test]
fn the_controls_can_be_broken() {
    let breaks: [(&str, Damage); 10] = [
        ("CIS-5.1.2", |it| it.bound.push(["", "", "secrets", "get", ""].map(str::to_owned))),
        ("CIS-5.1.4", |it| it.bound.push(["", "", "pods", "create", ""].map(str::to_owned))),
        ("CIS-5.1.8", |it| it.bound.push(["", "", "users", "impersonate", ""].map(str::to_owned))),
        ("PSS-restricted", |it| {
            for object in &mut it.objects {
                if object["kind"] == "Namespace" {
                    object["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] =
                        json!("privileged");
                }
            }
        }),
        ("CIS-5.2.2 PSS", |it| it.container["securityContext"]["privileged"] = json!(true)),
        ("CIS-5.2.5 PSS", |it| it.pod["hostNetwork"] = json!(true)),
        ("CIS-5.2.12 PSS", |it| it.pod["volumes"] = json!([{"name": "v"}])),
        ("OCP-resources", |it| it.container["resources"]["limits"] = json!({"cpu": "1"})),
        ("OCP-tolerations", |it| {
            let tolerations = it.pod["tolerations"].as_array_mut().unwrap();
            tolerations.push(json!({"operator": "Exists"}));
        }),
        ("own-taint", |it| {
            let tolerations = it.pod["tolerations"].as_array_mut().unwrap();
            tolerations.retain(|it| it["key"] != names::STARTUP_TAINT);
        }),
    ];
    for (ids, damage) in breaks {
        let mut installed = Installed::by(&arguments(Platform::Openshift));
        damage(&mut installed);
        let broken = CONTROLS.iter().filter(|(.., holds)| !holds(&installed)).map(|(ids, ..)| *ids);
        assert_eq!(broken.collect::<Vec<_>>(), [ids]);
    }
}
