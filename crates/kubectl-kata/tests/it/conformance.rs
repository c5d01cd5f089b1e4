//! The program against an API server over HTTP: the simulated one, and, if asked for, the real one that
//! `KATA_CONFORMANCE_KUBECONFIG` names. That one gets our CustomResourceDefinitions and a few objects, and
//! loses them again.

use std::path::{Path, PathBuf};
use std::process::Command;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use simcluster::cluster::write_kubeconfig;

use crate::lab::Lab;

/// What the program said.
struct Said {
    code: i32,
    out: String,
    err: String,
}

/// Runs the program with this kubeconfig.
#[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
async fn kata(kubeconfig: &Path, line: &str) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-kata"));
    command.args(line.split_whitespace()).arg("--kubeconfig").arg(kubeconfig);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// Runs the program and checks how it ends and what it says.
#[track_caller]
fn check(said: &Said, line: &str, code: i32, texts: &[&str]) {
    assert_eq!(said.code, code, "{line}\n{}\n{}", said.out, said.err);
    for text in texts {
        let says = said.out.contains(text) || said.err.contains(text);
        assert!(says, "{line} does not say {text:?}:\n{}\n{}", said.out, said.err);
    }
}

async fn expect(kubeconfig: &Path, line: &str, code: i32, texts: &[&str]) {
    let said = kata(kubeconfig, line).await;
    check(&said, line, code, texts);
}

fn client_of(kubeconfig: &Path) -> impl Future<Output = kube::Client> {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    async move {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
        kube::Client::try_from(config).unwrap()
    }
}

/// Applies an object, or deletes it.
async fn apply(client: &kube::Client, object: &Value, there: bool) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = GroupVersionKind::gvk(group, version, &text(&object["kind"]));
    let resource = ApiResource::from_gvk(&kind);
    let name = text(&object["metadata"]["name"]);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    if there {
        let parameters = PatchParams::apply("conformance").force();
        api.patch(&name, &parameters, &Patch::Apply(object)).await.unwrap();
    } else {
        drop(api.delete(&name, &DeleteParams::default()).await.unwrap());
    }
}

/// Waits, in real time, until a command ends with this code.
async fn until(kubeconfig: &Path, line: &str, code: i32) {
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let said = kata(kubeconfig, line).await;
        if said.code == code {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{line}\n{}\n{}", said.out, said.err);
        let soon = tokio::time::Instant::now() + std::time::Duration::from_millis(100);
        tokio::time::sleep_until(soon).await;
    }
}

/// Whether the API server tells its users apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rbac {
    On,
    Off,
}

/// What holds on every API server without the operator, first without our kinds and then with them.
async fn conforms(kubeconfig: &Path, rbac: Rbac) {
    let client = client_of(kubeconfig).await;
    expect(kubeconfig, "version", 0, &["kubernetes  v"]).await;
    expect(kubeconfig, "status", 1, &["KATA5003", "the operator is not installed"]).await;
    expect(kubeconfig, "doctor --pre", 1, &["KATA5001", "KATA5003"]).await;
    expect(kubeconfig, "nodes", 1, &["does not serve katanodes.kata-operator.dev"]).await;

    let definitions: Vec<Value> =
        kata_api::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    for definition in &definitions {
        apply(&client, definition, true).await;
    }
    until(kubeconfig, "nodes", 0).await;
    let none = ["× KATA5005 there is no operator", "1 failed"];
    expect(kubeconfig, "doctor --pre", 1, &none).await;
    let asks = ["This command installs the operator, then creates", "add --yes or use --dry-run"];
    expect(kubeconfig, "install --operator-image i:1", 4, &asks).await;
    // From here on the Lease has a holder.
    let home = kata_api::names::PRODUCT;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": kata_api::names::PRODUCT, "namespace": home},
        "spec": {
            "holderIdentity": "conformance", "leaseDurationSeconds": 3600,
            "renewTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string(),
        },
    });
    apply(&client, &namespace, true).await;
    apply(&client, &lease, true).await;
    let texts = [
        "√ KATA5003 the cluster serves KataConfig",
        "√ KATA5004 CustomResourceDefinitions are up to date",
        "√ KATA5002 you may create a KataConfig",
        "√ KATA5005 the operator holds its Lease",
        "√ KATA5008 the API server accepts the KataConfig (nothing was created)",
        "0 failed",
    ];
    expect(kubeconfig, "doctor --pre", 0, &texts).await;
    expect(kubeconfig, "status", 1, &["KATA5007"]).await;
    expect(kubeconfig, "nodes", 0, &["No nodes with Kata found."]).await;
    expect(kubeconfig, "pods -A", 0, &["No sandboxed pods found."]).await;
    expect(kubeconfig, "uninstall --dry-run", 0, &["There is no KataConfig"]).await;
    expect(kubeconfig, "why pod/nobody", 1, &["there is no pod nobody"]).await;
    expect(kubeconfig, "wait --timeout 1s", 124, &["timed out after 1s"]).await;

    // What the API server refuses is told in its words.
    let bad = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance-bad.yaml");
    std::fs::write(
        &bad,
        "apiVersion: kataconfiguration.openshift.io/v1\nkind: KataConfig\nmetadata:\n  name: a\n\
         spec:\n  logLevel: loud\n",
    )
    .unwrap();
    let line = format!("doctor -f {}", bad.display());
    expect(kubeconfig, &line, 1, &["KATA5008", "logLevel must be one of"]).await;

    let line = "install --dry-run=server --node-selector kata=true";
    expect(kubeconfig, line, 0, &["created (server dry run)"]).await;
    let line = "install --node-selector kata=conformance --yes";
    expect(kubeconfig, line, 0, &["cluster-kataconfig created"]).await;
    expect(kubeconfig, "install --name second", 4, &["KATA1004"]).await;
    expect(kubeconfig, "status", 1, &["generation 1 (not observed yet)", "CRDs up to date"]).await;
    expect(kubeconfig, "doctor", 0, &["KATA5010", "not taken up"]).await;
    let config = json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "cluster-kataconfig"},
    });

    // Who may only view is told what is missing.
    let name = "kata-conformance-viewer";
    let reads = json!(["get", "list", "watch"]);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "events"], "verbs": reads},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": reads},
            {
                "apiGroups": ["kataconfiguration.openshift.io", "kata-operator.dev"],
                "resources": ["kataconfigs", "katanodes"], "verbs": reads,
            },
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": "kata-viewer", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    apply(&client, &role, true).await;
    apply(&client, &binding, true).await;
    if rbac == Rbac::On {
        viewer(kubeconfig).await;
    }

    let ours = [&config, &binding, &role, &lease, &namespace];
    for object in ours.into_iter().chain(&definitions) {
        apply(&client, object, false).await;
    }
    until(kubeconfig, "nodes", 1).await;
}

/// The verbs as a user who may view and nothing else.
async fn viewer(kubeconfig: &Path) {
    let mine = "doctor --pre --as kata-viewer";
    let said = kata(kubeconfig, mine).await;
    check(&said, mine, 5, &["KATA5002", "you may not create kataconfigs"]);
    let texts = ["cluster-kataconfig", "you may not list runtimeclasses.node.k8s.io"];
    expect(kubeconfig, "status --as kata-viewer", 1, &texts).await;
    expect(kubeconfig, "pods -A --as kata-viewer", 5, &["you may not list runtimeclasses"]).await;
    expect(kubeconfig, "nodes --as kata-viewer", 5, &["you may not list nodes"]).await;
}

#[tokio::test]
async fn on_the_simulated_api_server() {
    let lab = Lab::bare(&simcluster::topology::Layout {
        platform: simcluster::world::Platform::Kubernetes,
        ..simcluster::topology::Layout::default()
    });
    let address = lab.cluster.serve(0).await.unwrap();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance-simulated.kubeconfig");
    write_kubeconfig(&path, address).unwrap();
    conforms(&path, Rbac::Off).await;
}

/// `KATA_CONFORMANCE_KUBECONFIG` is the kubeconfig of an administrator of a cluster that is there for tests.
#[tokio::test]
#[ignore = "needs a foreign cluster"]
#[expect(clippy::disallowed_methods, reason = "only a person says which cluster may be used")]
async fn on_a_foreign_cluster() {
    let named = std::env::var_os("KATA_CONFORMANCE_KUBECONFIG").filter(|path| !path.is_empty());
    let path = named.map(PathBuf::from).expect("KATA_CONFORMANCE_KUBECONFIG names no file");
    conforms(&path, Rbac::On).await;
}
