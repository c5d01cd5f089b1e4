//! `install` installs the operator where there is none, and replaces none unless it is asked to.

use serde_json::{Value, json};
use simcluster::resource::{DEPLOYMENTS, NAMESPACES, NODES};
use simcluster::topology::Layout;
use simcluster::world::Platform;

use crate::lab::Lab;

fn bare(platform: Platform) -> Lab {
    Lab::bare(&Layout { platform, ..Layout::default() })
}

fn deployment(lab: &Lab) -> Option<Value> {
    lab.get(&DEPLOYMENTS, lab.home(), "kata-operator")
}

fn image(lab: &Lab) -> String {
    let deployment = deployment(lab).unwrap_or_default();
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap_or_default().to_owned()
}

/// What `--dry-run=client` prints for a kind of cluster, without the KataConfig.
async fn list_of(lab: &Lab, platform: Platform) -> Vec<Value> {
    let platform = match platform {
        Platform::OpenShift => "openshift",
        Platform::Kubernetes => "kubernetes",
    };
    let line = format!(
        "install --dry-run=client -o json --platform {platform} --operator-image registry.example/operator:v1"
    );
    let mut list = lab.kata_command(&line).await.expect(0).json();
    let Value::Array(mut items) = list["items"].take() else { panic!("{list:#}") };
    items.retain(|item| item["kind"] != "KataConfig");
    items
}

#[tokio::test(start_paused = true)]
async fn install_brings_the_operator_and_the_kataconfig() {
    for platform in [Platform::OpenShift, Platform::Kubernetes] {
        let mut lab = bare(platform);
        let line = "install --operator-image registry.example/operator:v1 --node-selector kata=true --node worker-0";
        let says = [
            "This command installs the operator, labels worker-0, then creates KataConfig cluster-kataconfig.",
            "Operator   0.1.0: ",
            &format!(" objects in namespace {}", lab.home()),
            "Image      registry.example/operator:v1",
            "Nodes      1: worker-0",
        ];
        let done = lab.kata_command(line).await.expect(4).says(&says);
        assert!(done.err.contains("refused: install re"), "{}", done.err);
        let done =
            lab.kata_command(&format!("{line} --dry-run=server")).await.expect(0).says(&says);
        done.says(&[
            "customresourcedefinition.apiextensions.k8s.io/kataconfigs.kataconfiguration.openshift.io applied \
             (server dry run)",
            "deployment.apps/kata-operator applied (server dry run)",
            "kataconfig.kataconfiguration.openshift.io/cluster-kataconfig created (server dry run)",
        ]);
        assert_eq!(lab.get(&NAMESPACES, "", lab.home()), None);
        let node = lab.get(&NODES, "", "worker-0").unwrap();
        assert!(node["metadata"]["labels"]["kata"].is_null(), "{node:#}");

        let done = lab.kata_command(&format!("{line} --yes")).await.expect(0).says(&says);
        done.says(&[
            "operator 0.1.0 applied: ",
            "cluster-kataconfig created",
            "Next: kubectl kata wait",
        ]);
        assert_eq!(image(&lab), "registry.example/operator:v1");
        // The same objects by another tool conflict with nothing.
        for object in list_of(&lab, platform).await {
            lab.apply(&object).await;
        }
        lab.start_operator();
        lab.ready().await;
        lab.kata_command("doctor")
            .await
            .expect(0)
            .says(&["CustomResourceDefinitions are up to date"]);
    }
}

/// What a program of another version, or another tool, installed is named and left alone.
#[tokio::test(start_paused = true)]
async fn an_operator_is_replaced_only_on_request() {
    let lab = Lab::new();
    let version = |version: &str| {
        let labels = json!({"metadata": {"labels": {"app.kubernetes.io/version": version}}});
        lab.merge(&DEPLOYMENTS, lab.home(), "kata-operator", &labels);
    };
    let before = image(&lab);
    version("0.0.9");
    let dry = "install --dry-run=server";
    lab.kata_command(dry).await.expect(0).says(&[
        "Operator   0.0.9 in namespace openshift-sandboxed-containers-operator; it is older than this program \
         (0.1.0), and --upgrade replaces it",
    ]);
    lab.kata_command("install --operator-image i:2").await.expect(4).says(&[
        "refused: there is operator 0.0.9 in namespace openshift-sandboxed-containers-operator already, with \
         another image than i:2",
        "fix: add --upgrade to replace it, or leave out --operator-image",
    ]);
    version("9.0.0");
    lab.kata_command(dry).await.expect(0).says(&["9.0.0", "it is newer than this program (0.1.0)"]);
    lab.kata_command("install --upgrade --yes").await.expect(4).says(&[
        "refused: operator 9.0.0 is newer than this program (0.1.0)",
        "fix: use the kubectl-kata of version 9.0.0 or newer",
    ]);
    version("0.0.9");
    let mark = |mark: Value| lab.merge(&DEPLOYMENTS, lab.home(), "kata-operator", &mark);
    let release = |name: Option<&str>| json!({"metadata": {"annotations": {"meta.helm.sh/release-name": name}}});
    mark(release(Some("kata")));
    lab.kata_command("install --upgrade --yes").await.expect(4).says(&[
        "refused: Helm installed operator 0.0.9",
        "fix: helm upgrade kata CHART --namespace openshift-sandboxed-containers-operator",
    ]);
    mark(release(None));
    mark(json!({"metadata": {"labels": {"olm.owner": "kata-operator.v0.0.9"}}}));
    lab.kata_command("install --upgrade --yes")
        .await
        .expect(4)
        .says(&["refused: the Operator Lifecycle Manager installed operator 0.0.9"]);
    mark(json!({"metadata": {"labels": {"olm.owner": null}}}));
    assert_eq!(image(&lab), before);

    // With a KataConfig only the operator is replaced.
    lab.kata(&["worker-0"]);
    lab.ready().await;
    let line = "install --upgrade --operator-image i:2";
    let says = [
        "This command replaces operator 0.0.9 by 0.1.0. The operator then acts on KataConfig cluster-kataconfig, which \
         stays as it is.",
        "Nodes      none changes: the KataConfig asks for no change of a node now",
        "Image      i:2",
    ];
    let done = lab.kata_command(line).await.expect(4).says(&says);
    done.says(&["refused: install replaces operator 0.0.9 by 0.1.0; add --yes or use --dry-run"]);
    assert_eq!(image(&lab), before);
    lab.kata_command(&format!("{line} --yes")).await.expect(0).says(&says);
    assert_eq!(image(&lab), "i:2");
    let version = &deployment(&lab).unwrap()["metadata"]["labels"]["app.kubernetes.io/version"];
    assert_eq!(version, "0.1.0");
    lab.kata_command("install").await.expect(4).says(&["KATA1004"]);
    lab.kata_command("install --upgrade --operator-image i:3 --node-selector a=b")
        .await
        .expect(4)
        .says(&["KATA1004"]);
    lab.kata_command("install --upgrade --yes").await.expect(4).says(&[
        "has the image i:2, of another repository",
        "fix: add --operator-image with the new image",
    ]);
    mark(release(Some("kata")));
    lab.kata_command("install --upgrade --yes").await.expect(4).says(&["fix: helm upgrade kata"]);
}

/// A build of one's own has no published image, and asks for one.
#[tokio::test(start_paused = true)]
async fn without_a_published_image_one_is_asked_for() {
    let mut lab = bare(Platform::Kubernetes);
    lab.published = None;
    let says = [
        "no image of the operator was published with this kubectl-kata",
        "add --operator-image REF",
    ];
    for line in ["install", "install --yes", "install --dry-run=server"] {
        lab.kata_command(line).await.expect(4).says(&says);
    }
    let line = "install --dry-run=client --platform kubernetes";
    lab.kata_command(line).await.expect(2).says(&says);
    assert_eq!(deployment(&lab), None);
    lab.kata_command("install --yes --operator-image i:1").await.expect(0);
    assert_eq!(image(&lab), "i:1");
    lab.kata_command("install --upgrade --yes").await.expect(4).says(&says);
}

/// An operator that comes to a KataConfig acts on it at once, which is said, too.
#[tokio::test(start_paused = true)]
async fn an_operator_for_an_existing_kataconfig_is_not_installed_without_consent() {
    let mut lab = Lab::new();
    lab.stop_operator();
    lab.undeploy();
    lab.pass(60).await;
    lab.kata(&["worker-0", "worker-1"]);
    let done = lab.kata_command("install").await.expect(4);
    done.says(&[
        "This command installs the operator. The operator then acts on KataConfig cluster-kataconfig, which stays \
         as it is.",
        "Nodes      2: worker-0, worker-1",
        "refused: install reboots 2 nodes; add --yes or use --dry-run",
    ]);
    assert_eq!(deployment(&lab), None);
}

/// What another tool left is taken over on request, unless an installer still owns it.
#[tokio::test(start_paused = true)]
async fn leftovers_of_another_tool_are_taken_over_on_request() {
    let mut lab = Lab::new();
    lab.stop_operator();
    lab.undeploy();
    lab.pass(60).await;
    let level = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    lab.merge(&NAMESPACES, "", lab.home(), &level);
    let definitions = simcluster::resource::CRDS;
    let name = "kataconfigs.kataconfiguration.openshift.io";
    lab.kata_command("install --yes")
        .await
        .expect(1)
        .says(&["add --upgrade to take these fields over"]);
    let owner = |value: Option<&str>| json!({"metadata": {"labels": {"olm.managed": value}}});
    lab.merge(&definitions, "", name, &owner(Some("true")));
    lab.kata_command("install --yes --upgrade").await.expect(4).says(&[
        "the Operator Lifecycle Manager owns the CustomResourceDefinition",
        "docs/migrate.md",
    ]);
    lab.merge(&definitions, "", name, &owner(None));
    lab.kata_command("install --yes --upgrade").await.expect(0).says(&["operator 0.1.0 applied"]);
    assert!(deployment(&lab).is_some());
}

/// What cannot be done is known before anything is written.
#[tokio::test(start_paused = true)]
async fn nothing_is_installed_that_would_not_be_complete() {
    let mut lab = bare(Platform::Kubernetes);
    for (line, code, says) in [
        ("install --yes --name Kata_Config", 2, "the KataConfig is invalid"),
        ("install --yes --node-selector a=b --node worker-9", 1, "worker-9"),
    ] {
        lab.kata_command(line).await.expect(code).says(&[says]);
    }
    lab.only_rules(&json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    ]));
    lab.kata_command("install --yes").await.expect(5).says(&["customresourcedefinitions"]);
    assert_eq!(lab.get(&NAMESPACES, "", lab.home()), None);
}

/// The objects of both kinds of cluster are in the program.
#[tokio::test(start_paused = true)]
async fn the_objects_can_be_printed_without_a_cluster() {
    let lab = Lab::new();
    for (platform, has, lacks) in [
        ("openshift", "ServiceMonitor", "RELATED_IMAGE_NODE_AGENT"),
        ("kubernetes", "RELATED_IMAGE_NODE_AGENT", "ServiceMonitor"),
    ] {
        let line = format!("install --dry-run=client --platform {platform} --operator-image i:3");
        let done = lab.kata_command(&format!("{line} -o json")).await.expect(0);
        assert!(done.out.contains(has) && !done.out.contains(lacks), "{}", done.out);
        let list = done.json();
        assert_eq!(list["kind"], "List");
        let kinds: Vec<&str> =
            list["items"].as_array().unwrap().iter().filter_map(|it| it["kind"].as_str()).collect();
        assert_eq!(kinds.first(), Some(&"CustomResourceDefinition"));
        // The Deployment is the last object of the operator, so that an operator that is there is complete.
        assert_eq!(kinds[kinds.len() - 2..], ["Deployment", "KataConfig"]);
        assert!(done.out.contains("\"i:3\""), "{}", done.out);
    }
}
