//! `install` and `uninstall`.

use serde_json::{Value, json};
use simcluster::Resource;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::{DEPLOYMENTS, NODES, PODS};
use simcluster::topology::Layout;
use simcluster::world::Platform;

use crate::lab::{Lab, kata_configs};

#[tokio::test(start_paused = true)]
async fn install_labels_creates_and_waits() {
    let lab = Lab::new();
    let done = lab
        .kata_command(
            "install --dry-run=client -o yaml --node-selector kata=true --max-unavailable 2",
        )
        .await
        .expect(0);
    assert!(
        done.out.contains("kata: \"true\"") || done.out.contains("kata: 'true'"),
        "{}",
        done.out
    );
    assert!(done.out.contains("maxUnavailable: 2"), "{}", done.out);
    assert!(lab.get(&kata_configs(), "", "cluster-kataconfig").is_none());
    lab.kata_command("install --dry-run=server").await.expect(0).says(&["(server dry run)"]);
    assert!(lab.get(&kata_configs(), "", "cluster-kataconfig").is_none());
    let done = lab
        .kata_command("install --node-selector kata=true --node worker-1 --yes --wait --timeout 1h")
        .await
        .expect(0);
    done.says(&[
        "node/worker-1 labelled kata=true",
        "kataconfig.kataconfiguration.openshift.io/cluster-kataconfig created",
        "This command labels worker-1, then creates KataConfig cluster-kataconfig. (simulated)",
        "Nodes      1: worker-1",
        "Change     the node is drained and rebooted once",
        "Time       minutes per node; estimated after the first node",
        "Ready: 1/1 nodes",
    ]);
    lab.kata_command("install --name second").await.expect(4).says(&["KATA1004"]);
    let done =
        lab.kata_command("install --node worker-2 --node-selector kata=true").await.expect(4);
    done.says(&["to give more nodes Kata by that one: `kubectl label node worker-2 kata=true`"]);
}

#[tokio::test(start_paused = true)]
async fn uninstall_names_what_is_in_the_way_and_then_goes_on() {
    let lab = Lab::new();
    lab.kata_command("uninstall").await.expect(0).says(&["There is no KataConfig"]);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    let done = lab.kata_command("uninstall --dry-run").await.expect(4);
    done.says(&[
        "KATA4001",
        "test-kata   web",
        "Nodes      1: worker-0",
        "MachineConfig/50-enable-sandboxed-containers-extension",
        "MachineConfigPool/kata-oc",
        "RuntimeClass/kata",
        "nothing changed",
    ]);
    lab.kata_command("uninstall").await.expect(4);
    let done = lab.kata_command("uninstall --evict-pods --dry-run").await.expect(0);
    let done = done.says(&[
        "would evict 1 sandboxed pod, as far as PodDisruptionBudgets allow it",
        "test-kata   web",
        "Change     the node is drained and rebooted once",
        "Next: kubectl kata uninstall --evict-pods",
    ]);
    assert!(!done.out.contains("scale the owners down"), "{}", done.out);
    assert!(lab.get(&PODS, "test-kata", "web").is_some());
    lab.kata_command("uninstall --evict-pods")
        .await
        .expect(4)
        .says(&["refused: uninstall reboots 1 node; add --yes or use --dry-run"]);
    let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
    assert!(config["metadata"]["deletionTimestamp"].is_null());
    // A budget that does not allow the eviction.
    lab.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "test-kata"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }));
    lab.pass(5).await;
    lab.kata_command("uninstall --evict-pods --yes")
        .await
        .expect(4)
        .says(&[
            "refused: test-kata/web: Cannot evict pod",
            "PodDisruptionBudget test-kata/web allows 0 disruptions (1 of 1 healthy, 1 required), pod web",
            "fix: `kubectl delete pod -n test-kata web`, or relax the budget: `kubectl edit pdb/web -n test-kata`",
            "the KataConfig was not deleted. Next: remove what blocks the eviction, then kubectl kata uninstall --evict-pods",
        ]);
    assert!(lab.get(&PODS, "test-kata", "web").is_some());
    lab.merge(
        &simcluster::resource::PODDISRUPTIONBUDGETS,
        "test-kata",
        "web",
        &json!({"spec": {"minAvailable": 0}}),
    );
    lab.pass(5).await;
    let done = lab.kata_command("uninstall --evict-pods --yes --wait --timeout 2h").await.expect(0);
    done.says(&["pod/web evicted", "deleted", "Deleted: no KataConfig is left"]);
}

/// Without the right to see pods nothing is evicted, nothing is deleted, and nothing is claimed.
#[tokio::test(start_paused = true)]
async fn uninstall_does_not_go_on_where_the_pods_are_not_known() {
    let mut lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    let read = ["get", "list", "watch"];
    lab.only_rules(&json!([
        {"apiGroups": ["kataconfiguration.openshift.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["kata-operator.dev"], "resources": ["*"], "verbs": read},
        {"apiGroups": ["machineconfiguration.openshift.io"], "resources": ["*"], "verbs": read},
        {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": read},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": read},
        {"apiGroups": [""], "resources": ["nodes", "configmaps"], "verbs": read},
    ]));
    for line in ["--dry-run", "--evict-pods --dry-run", "--evict-pods --yes", "--yes"] {
        let done = lab.kata_command(&format!("uninstall {line}")).await.expect(5);
        done.says(&["KATA5002", "whether it would be refused is not known", "may not list pods"]);
        let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
        assert!(config["metadata"]["deletionTimestamp"].is_null(), "{line}");
    }
}

/// Pods of somebody else's RuntimeClass with the same handler, on nodes that are not ours, are nobody's
/// business here, as they are none of the operator's.
#[tokio::test(start_paused = true)]
async fn uninstall_leaves_the_pods_of_others_alone() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.create(json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "theirs"}, "handler": "kata",
    }));
    lab.namespace("test-kata");
    let pod = |name: &str, node: &str| {
        lab.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "test-kata"},
            "spec": {
                "runtimeClassName": "theirs", "nodeName": node,
                "containers": [{"name": "a", "image": "i"}],
            },
        }));
    };
    pod("elsewhere", "worker-2");
    lab.pass(60).await;
    let done = lab.kata_command("uninstall --dry-run").await.expect(0);
    assert!(!done.out.contains("elsewhere"), "{}", done.out);
    // On a node of ours the same pod would lose what it runs on.
    pod("with-us", "worker-0");
    lab.pass(60).await;
    let done =
        lab.kata_command("uninstall --dry-run").await.expect(4).says(&["KATA4001", "with-us"]);
    assert!(!done.out.contains("elsewhere"), "{}", done.out);
    let done = lab.kata_command("uninstall --evict-pods --yes --wait --timeout 2h").await.expect(0);
    let done = done.says(&["pod/with-us evicted", "Deleted: no KataConfig is left"]);
    assert!(!done.err.contains("elsewhere"), "{}", done.err);
    assert!(lab.get(&PODS, "test-kata", "elsewhere").is_some());
}

/// A KataConfig that is on its way out still is the active one.
#[tokio::test(start_paused = true)]
async fn install_is_refused_while_a_kataconfig_is_being_deleted() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pod("web", Some("kata"));
    lab.phase("web", "Running").await;
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    lab.pass(10).await;
    lab.kata_command("install --name next").await.expect(4).says(&[
        "refused: KATA1004 KataConfig cluster-kataconfig is still being deleted",
        "fix: kubectl kata wait --for deleted, then try again",
    ]);
    assert!(lab.get(&kata_configs(), "", "next").is_none());
}

/// Node Feature Discovery is named where its label is what a worker lacks, and nowhere else.
#[tokio::test(start_paused = true)]
async fn install_says_why_no_node_will_be_changed() {
    let lab = Lab::new();
    let nfd =
        "no worker that is selected has the label feature.node.kubernetes.io/runtime.kata=true";
    let dry = "install --dry-run=server --check-node-eligibility";
    let done = lab.kata_command(dry).await.expect(0);
    done.says(&[nfd, "which Node Feature Discovery gives to nodes that can run Kata"]);
    let selective = format!("{dry} --node-selector kata=true");
    // A node of the control plane is none that anybody meant.
    lab.label("control-plane-0", "kata", Some("true"));
    let done = lab.kata_command(&selective).await.expect(0);
    let done = done.says(&["no worker has these labels yet: kubectl label node NAME kata=true"]);
    assert!(!done.err.contains(nfd), "{}", done.err);
    // Workers that have the label and cannot have Kata for another reason.
    for worker in ["worker-0", "worker-1", "worker-2"] {
        lab.label(worker, "feature.node.kubernetes.io/runtime.kata", Some("true"));
        lab.label(worker, "kubernetes.io/os", Some("windows"));
    }
    let done = lab.kata_command(dry).await.expect(0);
    let done = done.says(&["no node can get Kata yet: see `kubectl kata doctor`"]);
    assert!(!done.err.contains(nfd), "{}", done.err);
    lab.label("worker-0", "kata", Some("true"));
    let done = lab.kata_command(&selective).await.expect(0);
    done.says(&["no node can get Kata yet: see `kubectl kata doctor`"]);
}

/// Whoever names no KataConfig means the active one, and not those after it.
#[tokio::test(start_paused = true)]
async fn a_wait_for_the_deletion_ends_with_what_is_deleted() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.pass(5).await;
    lab.create(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "second"}, "spec": {},
    }));
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    let done = lab.kata_command("wait --for deleted --timeout 2h").await.expect(0);
    done.says(&["Deleted: KataConfig cluster-kataconfig is gone"]);
}

/// A class that went before its KataConfig is not one that is still to come.
#[tokio::test(start_paused = true)]
async fn a_class_that_is_gone_is_not_said_to_come() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    let classes = &simcluster::resource::RUNTIMECLASSES;
    lab.until("the end of the class", |lab| lab.get(classes, "", "kata").is_none()).await;
    lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
    let done = lab.kata_command("status").await.expect(1);
    let done = done.says(&["RuntimeClass kata (is gone)"]);
    assert!(!done.out.contains("does not exist yet"), "{}", done.out);
}

/// What was undone left no Kata of an unknown version.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_as_before_has_no_version_of_kata() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.fault("worker-0", "runtime-fails");
    lab.until("the end", |lab| lab.condition("Stalled") == "True").await;
    let done = lab.kata_command("nodes").await.expect(0);
    assert!(!done.out.contains("unknown"), "{}", done.out);
}

/// Whoever removes one of two KataConfigs is told what the other does then.
#[tokio::test(start_paused = true)]
async fn uninstall_names_the_kataconfig_that_comes_next() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(0).json();
    assert!(plan["successor"].is_null(), "{plan:#}");
    lab.pass(5).await;
    lab.create(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "second"},
        "spec": {"kataConfigPoolSelector": {"matchLabels": {"other": "true"}}},
    }));
    lab.pass(10).await;
    let done = lab.kata_command("uninstall --dry-run").await.expect(0);
    done.says(&[
        "Nodes      1: worker-0",
        "KataConfig second becomes active then, and selects no node",
    ]);
    for node in ["worker-1", "worker-2"] {
        lab.label(node, "other", Some("true"));
    }
    let next =
        "KataConfig second becomes active then, and brings Kata to 2 nodes (worker-1, worker-2)";
    lab.kata_command("uninstall --dry-run").await.expect(0).says(&[next]);
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(0).json();
    assert_eq!(plan["successor"], json!({"name": "second", "nodes": ["worker-1", "worker-2"]}));
    assert_eq!(plan["nodes"], json!(["worker-0"]));
    let done = lab.kata_command("uninstall --yes").await.expect(0);
    done.says(&[next, "Next: kubectl kata wait --for deleted/cluster-kataconfig"]);
    // Nobody waits for the end of the next one.
    for line in ["uninstall --yes --wait", "wait --for deleted/cluster-kataconfig"] {
        let done = lab.kata_command(&format!("{line} --timeout 2h")).await.expect(0);
        done.says(&["Deleted: KataConfig cluster-kataconfig is gone"]);
    }
    // It is as it was said.
    lab.until("the second", |lab| {
        let second = lab.get(&kata_configs(), "", "second").unwrap();
        second["status"]["kataNodes"]["readyNodeCount"] == 2
    })
    .await;
}

/// Pods of a controller come again, so that it is named: before the eviction, while somebody waits, and to who
/// tries again.
#[tokio::test(start_paused = true)]
async fn uninstall_names_what_makes_evicted_pods_again() {
    let lab = Lab::new();
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("shop");
    lab.create(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "runtimeClassName": "kata",
                    "containers": [{"name": "a", "image": "i", "command": ["sleep", "99999999"]}],
                },
            },
        },
    }));
    lab.pass(60).await;
    let comes =
        "evicted pods come again from Deployment shop/web, and Kata stays while they are there";
    let scale = "`kubectl scale -n shop deployment/web --replicas=0`";
    let done = lab.kata_command("uninstall --dry-run").await.expect(4);
    done.says(&[
        "KATA4001",
        "fix: Scale down or delete what makes these pods (Deployment shop/web)",
        scale,
    ]);
    lab.kata_command("uninstall --evict-pods --dry-run").await.expect(0).says(&[comes, scale]);
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(4).json();
    assert_eq!(plan["controllers"], json!(["Deployment shop/web"]));
    assert_eq!(plan["deleting"], false);

    let done =
        lab.kata_command("uninstall --evict-pods --yes --wait --timeout 5m").await.expect(124);
    assert!(done.err.contains(comes), "{}", done.err);
    let (_, waited) = done.err.split_once(" evicted from shop").unwrap();
    assert!(waited.contains("Deployment shop/web") && waited.contains(scale), "{waited}");
    let (_, end) = waited.split_once("error: timed out").unwrap();
    assert!(end.contains("and 1 node still has Kata"), "{end}");
    let flat = end.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(scale), "{end}");

    // It is being deleted, and nobody is told that it is not.
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(4).json();
    assert_eq!(plan["deleting"], true);
    let going = "KataConfig cluster-kataconfig is being deleted already, and waits until";
    lab.kata_command("uninstall").await.expect(4).says(&[
        going,
        "2 sandboxed pods are gone",
        "Next: kubectl kata wait --for deleted",
        scale,
    ]);
    lab.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }));
    lab.pass(30).await;
    let done = lab.kata_command("uninstall --evict-pods --yes").await.expect(4);
    assert!(!done.err.contains("was not deleted"), "{}", done.err);
    done.says(&[going, "kubectl kata wait --for deleted ends when Kata is gone"]);

    // What it says to do helps.
    lab.merge(&simcluster::resource::DEPLOYMENTS, "shop", "web", &json!({"spec": {"replicas": 0}}));
    lab.pass(60).await;
    let done = lab.kata_command("uninstall --wait --timeout 1h").await.expect(0);
    done.says(&["is being deleted already", "Deleted: no KataConfig is left"]);
}

/// How many nodes at once is what the KataConfig allows.
#[tokio::test(start_paused = true)]
async fn install_says_how_many_nodes_are_changed_at_once() {
    use simcluster::world::Platform;
    let dry = "install --dry-run=server";
    for (platform, flag, says) in [
        (
            Platform::Kubernetes,
            "",
            "each node restarts once, one at a time; running pods keep running",
        ),
        (
            Platform::Kubernetes,
            "--max-unavailable 2",
            "each node restarts once, at most 2 at a time; running pods keep running; no reboot",
        ),
        (
            Platform::OpenShift,
            "--max-unavailable 100%",
            "each node is drained and rebooted once, at most 3 at a time\n",
        ),
        (
            Platform::OpenShift,
            "--max-unavailable 34%",
            "each node is drained and rebooted once, one at a time\n",
        ),
        (
            Platform::OpenShift,
            "",
            "one at a time unless maxUnavailable of their MachineConfigPool says otherwise\n",
        ),
    ] {
        let lab = Lab::on(platform);
        lab.kata_command(&format!("{dry} {flag}")).await.expect(0).says(&[says]);
    }
}

/// What holds up a deletion besides pods is what `status` tells.
#[tokio::test(start_paused = true)]
async fn uninstall_says_what_a_deletion_under_way_waits_for() {
    let lab = Lab::on(simcluster::world::Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let paused = |paused: bool| json!({"spec": {"rollout": {"paused": paused}}});
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &paused(true));
    lab.pass(5).await;
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    lab.until("blocked", |lab| lab.condition("DeletionBlocked") == "True").await;
    let done = lab.kata_command("uninstall --dry-run").await.expect(4);
    assert!(!done.out.contains("nothing is in the way"), "{}", done.out);
    done.says(&["KATA3112", "is blocked by the problems above"]);
    let plan = lab.kata_command("uninstall --dry-run -o json").await.expect(4).json();
    assert_eq!(plan["problems"][0]["id"], "KATA3112", "{plan:#}");
    lab.merge(&kata_configs(), "", "cluster-kataconfig", &paused(false));
    lab.until("gone", |lab| lab.get(&kata_configs(), "", "cluster-kataconfig").is_none()).await;
}

/// One command removes all that one command installed, and nothing of others.
#[tokio::test(start_paused = true)]
async fn what_install_did_uninstall_undoes() {
    for platform in [Platform::OpenShift, Platform::Kubernetes] {
        let mut lab = Lab::bare(&Layout { platform, ..Layout::default() });
        lab.label("worker-0", "kata", Some("true"));
        let install = "install --node-selector kata=true --node worker-0 --node worker-1 --yes";
        let done = lab.kata_command(install).await.expect(0);
        done.says(&["Cluster    https://lab.example:6443 (context lab)"]);
        lab.start_operator();
        lab.ready().await;
        // worker-0 had the label before.
        let config = lab.get(&kata_configs(), "", "cluster-kataconfig").unwrap();
        assert_eq!(
            config["metadata"]["annotations"]["kata-operator.dev/set-labels"],
            r#"{"labels":{"kata":"true"},"nodes":["worker-1"]}"#
        );
        // An object of others under one of our names.
        let roles =
            Resource::dynamic("rbac.authorization.k8s.io".to_owned(), "clusterroles".to_owned());
        let foreign = json!({"metadata": {"labels": {"app.kubernetes.io/name": null}}});
        lab.merge(&roles, "", "kata-operator-view", &foreign);
        let done = lab.kata_command("uninstall --operator --dry-run").await.expect(0);
        done.says(&[
            "Cluster    https://lab.example:6443 (context lab)",
            "Labels     kata=true, which `install` set, is taken off worker-1",
            "Operator   removed after the KataConfig: ",
            "nothing changed. Next: kubectl kata uninstall --operator",
        ]);
        let done =
            lab.kata_command("uninstall --operator --yes --timeout 3h").await.expect(0).says(&[
                "Deleted: no KataConfig is left",
                "node/worker-1 has no label kata any more",
                "operator removed from namespace",
            ]);
        let label = |node: &str| {
            let node = lab.get(&NODES, "", node).unwrap();
            node["metadata"]["labels"]["kata"].clone()
        };
        assert_eq!([label("worker-0"), label("worker-1")], [json!("true"), Value::Null]);
        lab.pass(60).await;
        for (group, plural) in [
            ("", "serviceaccounts"),
            ("apps", "deployments"),
            ("rbac.authorization.k8s.io", "clusterroles"),
            ("rbac.authorization.k8s.io", "clusterrolebindings"),
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("scheduling.k8s.io", "priorityclasses"),
        ] {
            let left = lab.list(&Resource::dynamic(group.to_owned(), plural.to_owned()));
            let is_ours = |object: &&Value| {
                object["metadata"]["labels"]["app.kubernetes.io/name"] == "kata-operator"
            };
            let names =
                left.iter().filter(is_ours).map(|object| object["metadata"]["name"].clone());
            let names: Vec<_> = names.collect();
            assert!(names.is_empty(), "{platform:?}: {plural} {names:?}: {}", done.err);
        }
        let done = lab.kata_command("uninstall --operator").await.expect(0);
        done.says(&["so no operator is removed", "There is no KataConfig; nothing is to be done."]);
        assert!(lab.get(&roles, "", "kata-operator-view").is_some());
        let definitions = Resource::dynamic(
            "apiextensions.k8s.io".to_owned(),
            "customresourcedefinitions".to_owned(),
        );
        for definition in kata_api::crds() {
            let name = definition.metadata.name.unwrap();
            assert!(lab.get(&definitions, "", &name).is_none(), "{platform:?}: {name}");
        }
        assert!(lab.get(&simcluster::resource::NAMESPACES, "", lab.home()).is_some());
    }
}

/// Other installers remove what they installed.
#[tokio::test(start_paused = true)]
async fn an_operator_of_helm_is_left_to_helm() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let metadata = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "kata"}}});
    lab.merge(&DEPLOYMENTS, lab.home(), "kata-operator", &metadata);
    let helm = &format!("helm uninstall kata --namespace {}", lab.home());
    let done = lab.kata_command("uninstall --operator --yes").await.expect(4);
    done.says(&["refused: Helm installed the operator", helm]);
    assert!(lab.get(&kata_configs(), "", "cluster-kataconfig").is_some());
    let done = lab.kata_command("uninstall --wait --yes").await.expect(0);
    done.says(&["Next, to remove the operator as well", helm]);
    lab.kata_command("uninstall").await.expect(0).says(&["There is no KataConfig", helm]);
}

/// An operator stays if another installation shares its CustomResourceDefinitions, or if that cannot be seen.
#[tokio::test(start_paused = true)]
async fn the_operator_stays_while_another_installation_needs_its_definitions() {
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.namespace("elsewhere");
    lab.deploy_beside("elsewhere");
    let done = lab.kata_command("uninstall --operator --yes").await.expect(4);
    done.says(&[
        "refused: the operator is in the namespaces elsewhere, ",
        "fix: stop only the operator in namespace elsewhere",
    ]);
    assert!(lab.get(&kata_configs(), "", "cluster-kataconfig").is_some());
    let lab = Lab::on(Platform::Kubernetes);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.refuse("list", "deployments");
    let done = lab.kata_command("uninstall --operator --yes").await.expect(5);
    done.says(&["cannot find other installations", "deployments.apps"]);
    assert!(lab.get(&kata_configs(), "", "cluster-kataconfig").is_some());
}

/// The kubelet names its node; `install` does not give this name to another one.
#[tokio::test(start_paused = true)]
async fn install_sets_no_label_that_says_what_a_node_is() {
    let lab = Lab::on(Platform::Kubernetes);
    let line = "install --node worker-1 --node-selector kubernetes.io/hostname=worker-0 --yes";
    let done = lab.kata_command(line).await.expect(2);
    done.says(&["--node-selector kubernetes.io/hostname=...", "select by another label"]);
    let node = lab.get(&NODES, "", "worker-1").unwrap();
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "worker-1");
}

/// The operator does not go without a question because its KataConfig was deleted before.
#[tokio::test(start_paused = true)]
async fn the_operator_is_not_removed_without_consent() {
    let lab = Lab::on(Platform::OpenShift);
    lab.kata(&["worker-0"]);
    lab.ready().await;
    lab.delete(&kata_configs(), "", "cluster-kataconfig");
    lab.pass(5).await;
    let done = lab.kata_command("uninstall --operator").await.expect(4);
    done.says(&["refused: uninstall removes the operator; add --yes or use --dry-run"]);
    lab.until("its end", |lab| lab.get(&kata_configs(), "", "cluster-kataconfig").is_none()).await;
    let done = lab.kata_command("uninstall --operator").await.expect(4);
    done.says(&["refused: uninstall removes the operator"]);
    let plan = lab.kata_command("uninstall --operator --dry-run -o json").await.expect(0).json();
    assert_eq!(plan["operatorNamespace"], lab.home(), "{plan}");
    // A request that is refused: the same command goes on.
    let matches = Match {
        verb: "delete".to_owned(),
        resource: "clusterrolebindings".to_owned(),
        ..Match::default()
    };
    let fault = Fault::Status { code: 500, retry_after: None, message: None, when: When::Before };
    lab.cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, fault)));
    lab.kata_command("uninstall --operator --yes")
        .await
        .expect(3)
        .says(&["cannot delete ClusterRoleBinding"]);
    lab.kata_command("uninstall --operator --yes").await.expect(0).says(&["operator removed"]);
    assert!(lab.get(&DEPLOYMENTS, lab.home(), "kata-operator").is_none());
}
