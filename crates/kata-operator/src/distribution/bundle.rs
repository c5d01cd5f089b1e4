//! The OLM bundle: a ClusterServiceVersion and what goes with it, a fragment of a file-based catalog, and
//! samples of what an admin applies to install from a catalog.
//!
//! Permissions and the Deployment come from [`crate::manifests`]. What the Operator Lifecycle Manager does
//! not take in a bundle (Namespace, ValidatingAdmissionPolicy) is left out, and docs/olm.md says so.

use std::path::PathBuf;

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::{DistributionError, Files};
use crate::arguments::ManifestsArguments;
use crate::manifests;
use crate::settings::Platform;

mod console;
mod descriptors;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const CHANNEL: &str = "stable";
/// What `oc adm must-gather` needs has a shell, which the operator's image has not: `deploy/must-gather`.
const MUST_GATHER: &str =
    concat!("ghcr.io/kata-operator/kata-operator-must-gather:v", env!("CARGO_PKG_VERSION"));
/// The oldest Kubernetes that serves everything we use: ValidatingAdmissionPolicy and selectable fields
/// are the youngest of it, and both are optional; 1.30 is what our tests' client libraries speak to.
const OLDEST_KUBERNETES: &str = "1.30.0";

/// The KataConfigs that a console or a catalog offers as a start.
pub(super) fn examples() -> Value {
    json!([
        {
            "apiVersion": "kataconfiguration.openshift.io/v1",
            "kind": "KataConfig",
            "metadata": {"name": "cluster-kataconfig"},
            "spec": {},
        },
        {
            "apiVersion": "kataconfiguration.openshift.io/v1",
            "kind": "KataConfig",
            "metadata": {"name": "some-workers"},
            "spec": {
                "kataConfigPoolSelector": {"matchLabels": {"kata": "true"}},
                "rollout": {"maxUnavailable": 1},
            },
        },
    ])
}

/// The bundle, by path below its folder.
///
/// # Errors
/// If YAML or JSON cannot express it, which would be a bug.
pub fn bundle() -> Result<Files, DistributionError> {
    let arguments = ManifestsArguments { platform: Platform::Openshift, ..Default::default() };
    let objects = manifests::objects(&arguments)?;
    let mut files = Files::new();
    let mut add = |path: String, value: &Value| -> Result<(), DistributionError> {
        let text = serde_saphyr::to_string(value).map_err(DistributionError::Yaml)?;
        files.insert(PathBuf::from(path), text);
        Ok(())
    };
    add(
        format!("manifests/{}.clusterserviceversion.yaml", manifests::NAME),
        &service_version(&arguments, &objects)?,
    )?;
    for object in &objects {
        let kind = text(&object["kind"]);
        let name = text(&object["metadata"]["name"]);
        let in_bundle = match kind {
            "CustomResourceDefinition" | "Service" | "ServiceMonitor" | "PrometheusRule" => true,
            // Those of users, and those of the platform's Prometheus; the operator's are in the
            // ClusterServiceVersion.
            "ClusterRole" => object["metadata"]["labels"]
                .as_object()
                .is_some_and(|labels| labels.keys().any(|key| key.contains("aggregate-to-"))),
            "Role" | "RoleBinding" => name == "prometheus-k8s",
            _ => false,
        };
        if in_bundle {
            let mut object = object.clone();
            // The Operator Lifecycle Manager puts them where the operator is.
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
            add(format!("manifests/{name}.{}.yaml", kind.to_ascii_lowercase()), &object)?;
        }
    }
    for object in console::objects() {
        let kind = text(&object["kind"]).to_ascii_lowercase();
        let name = text(&object["metadata"]["name"]).to_owned();
        add(format!("manifests/{name}.{kind}.yaml"), &object)?;
    }
    add("metadata/annotations.yaml".to_owned(), &json!({"annotations": annotations()}))?;
    add("samples/namespace.yaml".to_owned(), &sample_namespace(&objects))?;
    for (name, sample) in samples(&arguments.namespace) {
        add(format!("samples/{name}.yaml"), &sample)?;
    }
    files.insert(PathBuf::from("samples/policies.yaml"), documents(&policies(&objects))?);
    files.insert(PathBuf::from("catalog/catalog.yaml"), documents(&catalog(&objects))?);
    files.insert(PathBuf::from("bundle.Dockerfile"), containerfile());
    Ok(files)
}

fn documents(values: &[Value]) -> Result<String, DistributionError> {
    let mut text = String::new();
    for value in values {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(value).map_err(DistributionError::Yaml)?);
    }
    Ok(text)
}

/// What keeps the operator to what it needs, and no bundle can have.
fn policies(objects: &[Value]) -> Vec<Value> {
    let kinds = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "NetworkPolicy"];
    let kept = |object: &&Value| kinds.contains(&text(&object["kind"]));
    objects.iter().filter(kept).cloned().collect()
}

fn annotations() -> Map<String, Value> {
    let mut annotations = Map::new();
    for (key, value) in [
        ("mediatype.v1", "registry+v1"),
        ("manifests.v1", "manifests/"),
        ("metadata.v1", "metadata/"),
        ("package.v1", manifests::NAME),
        ("channels.v1", CHANNEL),
        ("channel.default.v1", CHANNEL),
    ] {
        annotations.insert(format!("operators.operatorframework.io.bundle.{key}"), json!(value));
    }
    annotations
}

fn containerfile() -> String {
    let mut text = "FROM scratch\n".to_owned();
    for (key, value) in annotations() {
        text.push_str(&format!("LABEL {key}={}\n", value.as_str().unwrap_or_default()));
    }
    text.push_str("COPY manifests /manifests/\nCOPY metadata /metadata/\n");
    text
}

fn version_name() -> String {
    format!("{}.v{VERSION}", manifests::NAME)
}

fn service_version(
    arguments: &ManifestsArguments,
    objects: &[Value],
) -> Result<Value, DistributionError> {
    let json_text =
        |value: &Value| serde_json::to_string_pretty(value).map_err(DistributionError::Json);
    let examples = examples();
    let feature = |name: &str| format!("features.operators.openshift.io/{name}");
    let mut annotations = json!({
        "alm-examples": json_text(&examples)?,
        "capabilities": "Full Lifecycle",
        "categories": "Security",
        "containerImage": arguments.image,
        "description": "Runs pods in virtual machines of their own with Kata Containers.",
        "repository": REPOSITORY,
        "support": "kata-operator contributors",
        // The console asks for it right after the installation.
        "operatorframework.io/initialization-resource": json_text(&examples[0])?,
        "operatorframework.io/suggested-namespace": arguments.namespace,
        "operators.openshift.io/must-gather-image": MUST_GATHER,
        "olm.skipRange": format!("<{VERSION}"),
    });
    for (name, value) in [
        ("disconnected", "true"),
        ("fips-compliant", "false"),
        ("proxy-aware", "false"),
        ("tls-profiles", "false"),
        ("token-auth-aws", "false"),
        ("token-auth-azure", "false"),
        ("token-auth-gcp", "false"),
        ("cnf", "false"),
        ("cni", "false"),
        ("csi", "false"),
    ] {
        annotations[feature(name)] = json!(value);
    }
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let deployment = deployment.map(|found| {
        json!({
            "name": manifests::NAME,
            "label": found["metadata"]["labels"],
            "spec": found["spec"],
        })
    });
    let (everywhere, at_home) = permissions(objects, &arguments.namespace);
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": version_name(),
            "namespace": "placeholder",
            "annotations": annotations,
            "labels": {
                "operatorframework.io/arch.amd64": "supported",
                "operatorframework.io/arch.arm64": "supported",
                "operatorframework.io/os.linux": "supported",
            },
        },
        "spec": {
            "displayName": "Kata operator",
            "description": include_str!("bundle/description.md"),
            "icon": [{
                "mediatype": "image/svg+xml",
                "base64data": base64::engine::general_purpose::STANDARD.encode(include_str!("bundle/icon.svg")),
            }],
            "version": VERSION,
            "maturity": "alpha",
            "minKubeVersion": OLDEST_KUBERNETES,
            "provider": {"name": "kata-operator contributors", "url": REPOSITORY},
            "maintainers": [{"name": "kata-operator contributors", "email": "maintainers@kata-operator.dev"}],
            "keywords": ["kata", "sandbox", "runtimeclass", "virtualization", "security"],
            "links": [
                {"name": "Documentation", "url": format!("{REPOSITORY}/tree/main/docs")},
                {"name": "Source", "url": REPOSITORY},
            ],
            // The KataConfig is of cluster scope whatever the OperatorGroup says. With AllNamespaces the
            // permissions in one namespace would become permissions in all of them.
            "installModes": [
                {"type": "OwnNamespace", "supported": true},
                {"type": "SingleNamespace", "supported": true},
                {"type": "MultiNamespace", "supported": false},
                {"type": "AllNamespaces", "supported": false},
            ],
            "customresourcedefinitions": {"owned": descriptors::owned()},
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": [{"serviceAccountName": manifests::NAME, "rules": everywhere}],
                    "permissions": [{"serviceAccountName": manifests::NAME, "rules": at_home}],
                    "deployments": [deployment],
                },
            },
            "relatedImages": [
                {"name": manifests::NAME, "image": arguments.image},
                {"name": "must-gather", "image": MUST_GATHER},
            ],
        },
    }))
}

/// What the operator's own roles grant: in the whole cluster, and where it is.
///
/// A role in another namespace cannot be expressed in a ClusterServiceVersion. There is one, for Events about
/// objects of cluster scope, and it becomes a permission of the whole cluster.
fn permissions(objects: &[Value], namespace: &str) -> (Vec<Value>, Vec<Value>) {
    let granted_to_us = |role: &Value| {
        objects.iter().any(|binding| {
            text(&binding["kind"]).ends_with("Binding")
                && binding["roleRef"]["kind"] == role["kind"]
                && binding["roleRef"]["name"] == role["metadata"]["name"]
                && binding["subjects"][0]["name"] == manifests::NAME
                && binding["subjects"][0]["namespace"] == namespace
        })
    };
    let (mut everywhere, mut at_home) = (Vec::new(), Vec::new());
    for role in objects {
        if !matches!(text(&role["kind"]), "Role" | "ClusterRole") || !granted_to_us(role) {
            continue;
        }
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        if role["kind"] == "Role" && role["metadata"]["namespace"] == namespace {
            at_home.extend(rules);
        } else {
            everywhere.extend(rules);
        }
    }
    (everywhere, at_home)
}

fn bundle_image() -> String {
    format!("ghcr.io/kata-operator/kata-operator-bundle:v{VERSION}")
}

/// A fragment of a file-based catalog: package, channel and this version.
fn catalog(objects: &[Value]) -> Vec<Value> {
    let mut properties = vec![json!({
        "type": "olm.package",
        "value": {"packageName": manifests::NAME, "version": VERSION},
    })];
    for crd in objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
        for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
            properties.push(json!({
                "type": "olm.gvk",
                "value": {
                    "group": crd["spec"]["group"],
                    "kind": crd["spec"]["names"]["kind"],
                    "version": version["name"],
                },
            }));
        }
    }
    vec![
        json!({
            "schema": "olm.package",
            "name": manifests::NAME,
            "defaultChannel": CHANNEL,
            "description": "Runs pods in virtual machines of their own with Kata Containers.",
        }),
        json!({
            "schema": "olm.channel",
            "package": manifests::NAME,
            "name": CHANNEL,
            "entries": [{"name": version_name(), "skipRange": format!("<{VERSION}")}],
        }),
        json!({
            "schema": "olm.bundle",
            "package": manifests::NAME,
            "name": version_name(),
            "image": bundle_image(),
            "properties": properties,
            "relatedImages": [{"name": "", "image": bundle_image()}],
        }),
    ]
}

fn sample_namespace(objects: &[Value]) -> Value {
    objects.iter().find(|object| object["kind"] == "Namespace").cloned().unwrap_or_default()
}

/// What an admin applies to install from a catalog.
fn samples(namespace: &str) -> [(&'static str, Value); 3] {
    [
        (
            "catalogsource",
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1",
                "kind": "CatalogSource",
                "metadata": {"name": "kata-operator", "namespace": "openshift-marketplace"},
                "spec": {
                    "sourceType": "grpc",
                    "image": format!("ghcr.io/kata-operator/kata-operator-catalog:v{VERSION}"),
                    "displayName": "Kata operator",
                    "publisher": "kata-operator contributors",
                    "grpcPodConfig": {"securityContextConfig": "restricted"},
                    "updateStrategy": {"registryPoll": {"interval": "60m"}},
                },
            }),
        ),
        (
            "operatorgroup",
            json!({
                "apiVersion": "operators.coreos.com/v1",
                "kind": "OperatorGroup",
                "metadata": {"name": "kata-operator", "namespace": namespace},
                "spec": {"targetNamespaces": [namespace]},
            }),
        ),
        (
            "subscription",
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1",
                "kind": "Subscription",
                "metadata": {"name": "kata-operator", "namespace": namespace},
                "spec": {
                    "channel": CHANNEL,
                    "installPlanApproval": "Automatic",
                    "name": manifests::NAME,
                    "source": "kata-operator",
                    "sourceNamespace": "openshift-marketplace",
                    "startingCSV": version_name(),
                },
            }),
        ),
    ]
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
