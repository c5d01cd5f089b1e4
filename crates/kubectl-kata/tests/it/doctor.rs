//! `doctor`: before an installation, after it, and of a manifest.

use serde_json::{Value, json};
use simcluster::world::Platform;

use crate::lab::{Lab, kata_configs};

fn file(name: &str, text: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test(start_paused = true)]
async fn before_an_installation() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    let done = lab.kata_command("doctor --pre").await.expect(1);
    done.says(&["KATA5003", "the cluster does not serve KataConfig", "1 failed"]);
    lab.install();
    lab.pass(60).await;
    let done = lab.kata_command("doctor --pre").await.expect(0);
    done.says(&[
        "√ KATA5001 Kubernetes v1.34.0+simulated",
        "√ KATA5004 CustomResourceDefinitions are up to date",
        "√ KATA5008 the API server accepts the KataConfig (nothing was created)",
        "checks of the operator find nothing",
        "0 failed",
    ]);
    let report = lab.kata_command("doctor --pre -o json").await.expect(0).json();
    assert_eq!(
        (report["kind"].as_str(), report["success"].as_bool()),
        (Some("CheckReport"), Some(true))
    );
    assert_eq!(report["categories"][0]["checks"][0]["result"], "ok");
    let done = lab.kata_command("doctor").await.expect(0).says(&["KATA5007"]);
    drop(done);
    lab.kata_command("doctor --fail-on warning").await.expect(1);
}

#[tokio::test(start_paused = true)]
async fn what_the_operator_would_find_is_found_without_it() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.merge(
        &simcluster::resource::MACHINECONFIGPOOLS,
        "",
        "worker",
        &json!({"spec": {"paused": true}}),
    );
    lab.kata(&[]);
    lab.pass(31).await;
    let done = lab.kata_command("doctor").await;
    // There is no operator, and nobody has taken the KataConfig up.
    let done = done.says(&["‼ KATA5010 the operator has not taken up generation 1", "KATA1003"]);
    assert!(done.out.contains("NoNodesSelected") || done.out.contains("fix: Label the nodes"));
    // Definitions of another version.
    let name = "katanodes.kata-operator.dev";
    let crd = lab.get(&simcluster::resource::CRDS, "", name).unwrap();
    let mut versions = crd["spec"]["versions"].clone();
    versions[0]["additionalPrinterColumns"] = json!([]);
    lab.merge(&simcluster::resource::CRDS, "", name, &json!({"spec": {"versions": versions}}));
    let done = lab.kata_command("doctor").await;
    done.says(&["KATA5004", "katanodes.kata-operator.dev is not that of version"]);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_does_not_run_or_is_too_old_is_found() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "kata-operator", "namespace": lab.home(),
            "labels": {"app.kubernetes.io/version": "7.4.0"},
        },
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "a", "image": "i:v7.4.0"}]},
            },
        },
    });
    lab.undeploy();
    lab.create(deployment);
    lab.pass(5).await;
    let done = lab.kata_command("doctor").await.expect(1);
    done.says(&[
        "KATA5005",
        "0 of 1 pods of the operator are ready",
        "KATA5006",
        "operator 7.4.0, plugin",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_was_deleted_is_named_with_the_command_that_restores_it() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.delete(&simcluster::resource::CRDS, "", "katanodes.kata-operator.dev");
    lab.pass(60).await;
    let restores = "kata-operator crd | kubectl apply --server-side --force-conflicts -f -";
    let done = lab.kata_command("doctor").await.expect(1);
    done.says(&["KATA5003", "the cluster does not serve KataNode", restores, "KATA1016"]);
    let status = lab.kata_command("status").await;
    status.says(&["Unknown", "ReadFailed", "the API server does not serve KataNode", restores]);
    assert!(lab.kata_command("nodes").await.err.contains(restores));
}

/// Helm installs into the namespace that it is told.
#[tokio::test(start_paused = true)]
async fn an_operator_in_another_namespace_is_found_there() {
    use simcluster::resource::DEPLOYMENTS;

    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.stop_operator();
    lab.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sandboxes"}}));
    lab.deploy_without_pods("sandboxes");
    lab.pass(10).await;
    let status = lab.kata_command("status -o json").await.json();
    assert_eq!(status["operator"]["namespace"], "sandboxes", "{status:#}");
    assert_eq!(status["problems"][0]["id"], "KATA5005", "{status:#}");
    lab.kata_command("doctor").await.expect(1).says(&["KATA5005", "0 of 1 pods of the operator"]);
    let version = lab.kata_command("version -o json").await.expect(0).json();
    assert_eq!(version["operator"]["namespace"], "sandboxes", "{version:#}");
    let done = lab.kata_command("logs operator").await;
    assert!(!done.err.contains("there is no pod of the operator"), "{}", done.err);
    lab.delete(&DEPLOYMENTS, "sandboxes", "kata-operator");
    lab.pass(60).await;
    let status = lab.kata_command("status -o json").await.json();
    assert_eq!(status["operator"]["namespace"], lab.home());
}

#[tokio::test(start_paused = true)]
async fn a_second_installation_is_found_with_the_one_that_is_at_work() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let home = lab.home();
    lab.undeploy();
    for namespace in [home, "sandboxes"] {
        lab.namespace(namespace);
        lab.deploy_beside(namespace);
    }
    lab.pass(10).await;
    let says = format!(
        "the operator is in the namespaces {home}, sandboxes; the KataConfig belongs to the one in {home}"
    );
    lab.kata_command("doctor").await.expect(1).says(&["KATA1025", &says]);
}

/// Whoever shall look at a pod of a Job has to know where it is.
#[tokio::test(start_paused = true)]
async fn what_is_found_of_jobs_names_the_namespace_of_their_operator() {
    use kata_api::names::{self, node_job};
    use simcluster::world::Platform;

    let mut lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.stop_operator();
    let nobodys =
        json!({"metadata": {"annotations": {names::OPERATOR_NAMESPACE_ANNOTATION: null}}});
    lab.merge(&crate::lab::kata_configs(), "", "cluster-kataconfig", &nobodys);
    lab.namespace("sandboxes");
    lab.deploy_without_pods("sandboxes");
    lab.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "kata-worker-0-pod", "namespace": "sandboxes",
            "labels": {
                names::MANAGED_BY: names::PRODUCT,
                node_job::COMPONENT_LABEL: node_job::COMPONENT,
                node_job::JOB_NAME_LABEL: "kata-worker-0",
            },
            "annotations": {node_job::NODE: "worker-0"},
        },
        "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "a", "image": "i"}]},
    }));
    lab.pass(10).await;
    let done = lab.kata_command("doctor").await.expect(1);
    done.says(&[
        "node worker-0: Job kata-worker-0 is gone, but pod sandboxes/kata-worker-0-pod has not ended",
    ]);
}

/// A name is no more than a name.
#[tokio::test(start_paused = true)]
async fn a_deployment_of_somebody_else_is_not_taken_for_the_operator() {
    use simcluster::resource::DEPLOYMENTS;

    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("elsewhere");
    lab.deploy_without_pods("elsewhere");
    let theirs = json!({"metadata": {"labels": {"app.kubernetes.io/name": "theirs"}}});
    lab.merge(&DEPLOYMENTS, "elsewhere", "kata-operator", &theirs);
    lab.pass(10).await;
    let status = lab.kata_command("status -o json").await.expect(1).json();
    assert_eq!(status["operator"]["namespace"], lab.home(), "{status:#}");
    assert_eq!(status["problems"][0]["id"], "KATA5005", "{status:#}");
    lab.kata_command("doctor").await.expect(1).says(&["× KATA5005 there is no operator"]);
}

/// Each command that a new user may run first reports the missing operator and the fix, and writes nothing.
#[tokio::test(start_paused = true)]
async fn without_an_operator_every_first_command_says_so() {
    let mut lab = Lab::new();
    lab.stop_operator();
    lab.undeploy();
    lab.pass(60).await;
    let says = ["KATA5005", "there is no operator", "kata-operator manifests --platform openshift"];
    for (line, code) in
        [("doctor --pre", 1), ("doctor", 1), ("status", 1), ("wait --timeout 5s", 1)]
    {
        let done = lab.kata_command(line).await;
        assert_eq!(done.code, code, "{line}: {}{}", done.out, done.err);
        done.says(&says);
    }
    assert_eq!(lab.get(&kata_configs(), "", "cluster-kataconfig"), None);
    // A status from before the operator was removed does not count.
    lab.kata(&["worker-0"]);
    lab.start_operator();
    lab.ready().await;
    lab.stop_operator();
    for line in ["status", "wait --timeout 5s", "doctor"] {
        let done = lab.kata_command(line).await;
        assert_eq!(done.code, 1, "{line}: {}{}", done.out, done.err);
        done.says(&says);
    }
}

/// Before anything is installed it is known whether the Jobs may run.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_refuses_the_jobs_is_found_before_the_installation() {
    use simcluster::resource::NAMESPACES;
    use simcluster::world::Platform;

    let lab = Lab::on(Platform::Kubernetes);
    let enforce = "pod-security.kubernetes.io/enforce";
    let level = |level: Option<&str>| {
        let labels = json!({"metadata": {"labels": {enforce: level}}});
        lab.merge(&NAMESPACES, "", lab.home(), &labels);
    };
    lab.kata_command("doctor --pre")
        .await
        .says(&["√ KATA3115 the namespace", &format!("has {enforce}=privileged")]);
    for wrong in ["baseline", "restricted"] {
        level(Some(wrong));
        lab.kata_command("doctor --pre").await.expect(1).says(&[
            "× KATA3115 the namespace",
            &format!("has {enforce}={wrong}, which refuses the pods of the Jobs"),
            &format!(
                "fix: `kubectl label --overwrite namespace {} {enforce}=privileged`",
                lab.home()
            ),
        ]);
    }
    level(None);
    lab.kata_command("doctor --pre").await.says(&["√ KATA3115", "the cluster's default counts"]);
    lab.delete(&NAMESPACES, "", lab.home());
    lab.pass(60).await;
    lab.kata_command("doctor --pre").await.says(&["- KATA3115 skipped: there is no namespace"]);
    // Where the Machine Config Operator changes the nodes there are no Jobs.
    let done = Lab::new().kata_command("doctor --pre").await;
    assert!(!done.out.contains("KATA3115"), "{}", done.out);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_is_checked_with_line_and_column() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.pass(60).await;
    let typo = "apiVersion: kataconfiguration.openshift.io/v1\nkind: KataConfig\nmetadata:\n  name: a\nspec:\n  \
                kataConfigPoolSelector:\n    matchLabels:\n      kata: true\n";
    let path = file("typo.yaml", typo);
    let done = lab.kata_command(&format!("doctor --offline -f {path}")).await.expect(1);
    done.says(&["KATA5009", "typo.yaml:8:13:", "write 'true'"]);
    let good = file("good.yaml", &typo.replace("true", "'true'"));
    let done = lab.kata_command(&format!("doctor -f {good}")).await.expect(0);
    done.says(&["good.yaml keeps to the schema and the rules of version", "KATA1003"]);
    // What only the API server's rules know.
    let loud = file(
        "loud.yaml",
        "apiVersion: kataconfiguration.openshift.io/v1\nkind: KataConfig\nmetadata:\n  name: a\nspec:\n  logLevel: loud\n",
    );
    let done = lab.kata_command(&format!("doctor -f {loud}")).await.expect(1);
    let done = done.says(&["KATA5008", "KATA5009", "loud.yaml:6:13: logLevel must be one of"]);
    // What would come of it is not asked: nothing comes of it.
    assert!(!done.out.contains("KATA1015") && !done.out.contains("keeps to"), "{}", done.out);
    lab.kata_command(&format!("doctor --offline -f {loud}")).await.expect(1).says(&["KATA5009"]);
    let none = file("none.yaml", "kind: Pod\n");
    let done = lab.kata_command(&format!("doctor --offline -f {none}")).await.expect(1);
    done.says(&["there is no KataConfig in it", "fix: Give a file with an object of kind"]);
}

/// The manifests that the examples call refused are refused without a cluster, and the others are not.
#[tokio::test(start_paused = true)]
async fn the_bad_examples_are_judged_as_they_say() {
    let lab = Lab::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let doctor = async |flags: &str, name: &str| {
        lab.kata_command(&format!("doctor {flags} -f {}", folder.join(name).display())).await
    };
    for name in ["label-not-a-string", "log-level-loud", "operator-foo", "unknown-field"] {
        doctor("--offline", &format!("bad/{name}.yaml")).await.expect(1).says(&["KATA5009"]);
    }
    for name in ["bad/second.yaml", "bad/matches-nothing.yaml", "kataconfig.yaml"] {
        doctor("--offline", name).await.expect(0).says(&["1 passed, 0 warnings, 0 failed"]);
    }
    doctor("", "bad/second.yaml").await.expect(0);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let done = doctor("", "bad/second.yaml").await.expect(1);
    done.says(&["× KATA1004", "second"]);
    // The one that there is, as it would be.
    doctor("", "kataconfig.yaml").await.expect(0).says(&["a KataConfig of this name exists"]);
}

#[tokio::test(start_paused = true)]
async fn an_old_cluster_is_told_so() {
    // The simulated API server has one version, so the sentence is checked where it is made: a cluster
    // that is new enough passes, see above, and one that says nothing is skipped.
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    let report = lab.kata_command("doctor --pre -o json").await.json();
    assert_eq!(report["categories"][0]["checks"][0]["id"], "KATA5001");
}

/// What nobody but the operator can notice is no check that passed, and no page says that `doctor` shows it.
#[tokio::test(start_paused = true)]
async fn what_the_operator_alone_can_notice_is_not_among_the_checks() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let done = lab.kata_command("doctor -o json").await.expect(0);
    assert!(done.out.contains("KATA1016"), "{}", done.out);
    for code in ["KATA1017", "KATA1022", "KATA1040"] {
        assert!(!done.out.contains(code), "{code} is among the checks");
        let page = lab.kata_command(&format!("codes {code} -o markdown")).await.expect(0).out;
        assert!(page.contains("Only the operator can notice it"), "{page}");
        let seen = "`kubectl kata doctor` and `kubectl kata status` as long as its status says it";
        assert!(page.contains(seen), "{page}");
    }
}

/// What `status` shows as a problem is among the failures and warnings of `doctor`, with the same fix.
async fn agree(lab: &Lab, id: &str, code: u8) {
    let status = lab.kata_command("status -o json").await.json();
    let problems = status["problems"].as_array().unwrap();
    let told: Vec<_> = problems.iter().filter(|problem| problem["id"] == id).collect();
    assert_eq!(told.len(), 1, "{status:#}");
    let report = lab.kata_command("doctor -o json").await.expect(code).json();
    let categories = report["categories"].as_array().unwrap().iter();
    let all = categories.flat_map(|category| category["checks"].as_array().unwrap());
    let checks: Vec<_> = all.filter(|check| check["id"] == id).collect();
    assert_eq!(checks.len(), 1, "{checks:#?}");
    let (check, problem) = (checks[0], told[0]);
    assert_eq!(check["result"], problem["severity"], "{check:#}");
    for field in ["message", "fix"] {
        assert_eq!(check[field], problem[field], "{check:#}");
        assert_ne!(check[field], "", "{check:#}");
    }
    let counted = &report["summary"][if code == 0 { "warnings" } else { "failed" }];
    assert_eq!(counted, 1, "{report:#}");
}

/// What only the operator can notice is told as it tells it.
#[tokio::test(start_paused = true)]
async fn what_the_operator_says_is_told() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.refuse("write", "containerruntimeconfigs");
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &json!({"spec": {"logLevel": "debug"}}));
    lab.pass(120).await;
    agree(&lab, "KATA1017", 1).await;
    lab.stop_operator();
    let old = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
    let generation = &old["metadata"]["generation"];
    for (severity, message, id, code) in [
        ("warning", "another client changes it", "KATA1022", 0),
        ("error", "no Job can run", "KATA3116", 1),
        ("error", "cannot read nodes: 503", "KATA1016", 1),
    ] {
        let subject = json!({"kind": "KataConfig", "name": "cluster-kataconfig"});
        let finding = json!({
            "code": id, "severity": severity, "subject": subject, "message": message, "fix": "Do it.",
        });
        let status = json!({"status": {"observedGeneration": generation, "findings": [finding]}});
        lab.merge_status(&kata_configs(), "", "cluster-kataconfig", &status);
        agree(&lab, id, code).await;
    }
}

/// A KataConfig that does nothing is no state to be passed.
#[tokio::test(start_paused = true)]
async fn a_second_kataconfig_is_told() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pass(5).await;
    lab.create(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "second"}, "spec": {},
    }));
    lab.pass(10).await;
    lab.kata_command("doctor").await.expect(1).says(&[
        "× KATA1004 KataConfig second is not active: KataConfig cluster-kataconfig is older",
        "fix: Delete this KataConfig, or the older one",
        "1 failed",
    ]);
}

/// A field without a value is no field to the API server, or has its default; so it is here.
#[tokio::test(start_paused = true)]
async fn a_field_without_a_value_is_judged_as_the_api_server_judges_it() {
    let lab = Lab::bare(&simcluster::topology::Layout::default());
    lab.install();
    lab.pass(60).await;
    let head =
        "apiVersion: kataconfiguration.openshift.io/v1\nkind: KataConfig\nmetadata:\n  name: a\n";
    let (good, bad) = (["√ KATA5009", "√ KATA5008"], ["× KATA5009", "× KATA5008"]);
    for (spec, code, texts) in [
        (
            "spec:\n  runtimes:\n  logLevel:\n  kataConfigPoolSelector: null\n  rollout:\n    maxUnavailable:\n",
            0,
            good,
        ),
        ("spec:\n", 0, good),
        ("spec:\n  payload:\n    image:\n", 1, bad),
        ("spec:\n  runtimes:\n  -\n", 1, bad),
        ("spec:\n  poolSelector:\n", 1, bad),
    ] {
        let path = file("nulls.yaml", &format!("{head}{spec}"));
        lab.kata_command(&format!("doctor -f {path}")).await.expect(code).says(&texts);
    }
}

/// The definition of Karpenter is not installed: its fields as of karpenter.sh/v1.
#[tokio::test(start_paused = true)]
async fn a_node_pool_that_lacks_what_sandboxed_pods_need_is_named() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let quiet = lab.kata_command("doctor -o wide").await.expect(0);
    assert!(!quiet.out.contains("KATA5226"), "{}", quiet.out);
    lab.create(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "nodepools.karpenter.sh"},
        "spec": {
            "group": "karpenter.sh", "scope": "Cluster",
            "names": {"kind": "NodePool", "plural": "nodepools"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}],
        },
    }));
    lab.pass(5).await;
    let pool = |name: &str, template: &Value| {
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": template}})
    };
    lab.create(pool("other", &json!({"metadata": {"labels": {"team": "a"}}, "spec": {}})));
    let quiet = lab.kata_command("doctor -o wide").await.expect(0);
    assert!(!quiet.out.contains("KATA5226"), "{}", quiet.out);
    let template = lab.kata_command("pool --for karpenter -o json").await.expect(0).json();
    // A requirement with one value is a label, too.
    let mut good = template.clone();
    good["metadata"]["labels"].as_object_mut().unwrap().remove("kata");
    good["spec"]["requirements"] = json!([{"key": "kata", "operator": "In", "values": ["true"]}]);
    lab.create(pool("good", &good));
    lab.kata_command("doctor").await.expect(0).says(&["√ KATA5226 1 NodePool prepared for Kata"]);
    lab.create(pool("bare", &json!({"metadata": {"labels": {"kata": "true"}}, "spec": {}})));
    let promised = "katacontainers.io/kata-runtime";
    let mut labels = template["metadata"]["labels"].clone();
    labels[promised] = json!("yes");
    let taints = json!([{"key": "other", "effect": "NoSchedule"}]);
    lab.create(pool(
        "wrong",
        &json!({"metadata": {"labels": labels}, "spec": {"startupTaints": taints}}),
    ));
    lab.kata_command("doctor").await.expect(0).says(&[
        "‼ KATA5226 NodePool bare lacks the labels kata-operator.dev/claimed=true, \
         katacontainers.io/kata-runtime=true, kata.node-restriction.kubernetes.io/kata=true and the \
         startup taint kata-operator.dev/not-ready",
        "NodePool wrong lacks the label katacontainers.io/kata-runtime=true and the startup taint",
        "kubectl kata pool --for karpenter",
    ]);
}

/// What comes through a pipe is judged as a file is.
#[test]
#[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
fn a_manifest_may_come_through_a_pipe() {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    let good =
        "apiVersion: kataconfiguration.openshift.io/v1\nkind: KataConfig\nmetadata:\n  name: a\n";
    let bad = format!("{good}spec:\n  logLevel: loud\n");
    for (text, code, says) in [
        (good, 0, "KATA5009 standard input keeps to the schema"),
        (&bad, 1, "KATA5009 standard input:6:13: logLevel must be one of"),
        ("", 1, "KATA5009 standard input: there is no KataConfig in it"),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-kata"))
            .args(["doctor", "--offline", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let out = String::from_utf8(done.stdout).unwrap();
        assert_eq!(done.status.code(), Some(code), "{out}");
        assert!(out.contains(says), "does not say {says:?}:\n{out}");
    }
}
