//! The Helm chart.
//!
//! The manifests are rendered once for each kind of cluster with placeholders in place of what a release
//! decides. What is the same everywhere becomes a plain template; what differs is put under the condition
//! that it depends on. So the chart cannot know of less, or of more, than `kata-operator manifests`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{DistributionError, Files};
use crate::arguments::ManifestsArguments;
use crate::manifests;
use crate::settings::Platform;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Each placeholder is a plain YAML scalar, and what stands in its place.
const PLACEHOLDERS: [(&str, &str); 7] = [
    ("chart-value-namespace", "{{ .Release.Namespace }}"),
    ("chart-value-image", "{{ include \"kata-operator.image\" . | quote }}"),
    ("chart-value-monitor-image", "{{ .Values.monitor.image | quote }}"),
    ("chart-value-replicas", "{{ .Values.replicas }}"),
    ("chart-value-pull-policy", "{{ .Values.image.pullPolicy }}"),
    ("chart-value-managed-by", "{{ .Release.Service }}"),
    ("chart-value-chart", "{{ printf \"%s-%s\" .Chart.Name .Chart.Version }}"),
];
/// Fields whose whole value a release decides: the field, where it stands, and the value.
const BLOCKS: [(&str, &str); 5] = [
    ("resources", "resources"),
    ("tolerations", "tolerations"),
    ("affinity", "affinity"),
    ("nodeSelector", "nodeSelector"),
    ("imagePullSecrets", "imagePullSecrets"),
];
/// Where the kinds of the Prometheus operator come from.
const MONITORING_GROUP: &str = "monitoring.coreos.com/";

/// What kinds of cluster the manifests differ for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Variant {
    Kubernetes,
    Openshift,
    Monitored,
}

impl Variant {
    const ALL: [Self; 3] = [Self::Kubernetes, Self::Openshift, Self::Monitored];

    fn arguments(self) -> ManifestsArguments {
        ManifestsArguments {
            namespace: "chart-value-namespace".to_owned(),
            image: "chart-value-image".to_owned(),
            platform: match self {
                Self::Kubernetes => Platform::Kubernetes,
                Self::Openshift | Self::Monitored => Platform::Openshift,
            },
            monitor_image: (self == Self::Monitored)
                .then(|| "chart-value-monitor-image".to_owned()),
        }
    }

    /// When it applies, if no variant of a later place in [`Variant::ALL`] does.
    fn condition(self) -> &'static str {
        match self {
            Self::Kubernetes => "eq (include \"kata-operator.platform\" .) \"kubernetes\"",
            Self::Openshift => "eq (include \"kata-operator.platform\" .) \"openshift\"",
            Self::Monitored => {
                "and .Values.monitor.image (eq (include \"kata-operator.platform\" .) \"openshift\")"
            }
        }
    }
}

/// The chart, by path below its folder.
///
/// # Errors
/// If YAML cannot express it, which would be a bug.
pub fn chart() -> Result<Files, DistributionError> {
    let mut files = Files::new();
    let mut add = |path: &str, text: String| files.insert(PathBuf::from(path), text);
    add("Chart.yaml", chart_yaml()?);
    add(".helmignore", "*.tgz\n.git/\n".to_owned());
    add("values.yaml", include_str!("helm/values.yaml").to_owned());
    add("values.schema.json", include_str!("helm/values.schema.json").to_owned());
    add("README.md", include_str!("helm/README.md").to_owned());
    add("templates/_helpers.tpl", include_str!("helm/helpers.tpl").to_owned());
    add("templates/NOTES.txt", include_str!("helm/notes.txt").to_owned());
    add("templates/crds.yaml", crds()?);
    add("templates/pre-delete.yaml", pre_delete()?);
    for (name, text) in templates()? {
        add(&format!("templates/{name}.yaml"), text);
    }
    Ok(files)
}

fn chart_yaml() -> Result<String, DistributionError> {
    let example = super::bundle::examples();
    let yaml = |value: &Value| serde_saphyr::to_string(value).map_err(DistributionError::Yaml);
    yaml(&json!({
        "apiVersion": "v2",
        "name": manifests::NAME,
        "description": "Installs, watches over, upgrades and removes the Kata Containers runtime, \
                        so that a pod with runtimeClassName: kata runs in a virtual machine of its own.",
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": ">=1.30.0-0",
        "home": REPOSITORY,
        "sources": [REPOSITORY],
        "keywords": ["kata-containers", "runtimeclass", "sandbox", "virtualization", "openshift"],
        "annotations": {
            "artifacthub.io/operator": "true",
            "artifacthub.io/operatorCapabilities": "Full Lifecycle",
            "artifacthub.io/license": "Apache-2.0",
            "artifacthub.io/prerelease": "true",
            "artifacthub.io/category": "security",
            "artifacthub.io/images": yaml(&json!([
                {"name": manifests::NAME, "image": ManifestsArguments::default().image},
            ]))?,
            "artifacthub.io/crds": yaml(&json!([
                {
                    "kind": "KataConfig", "version": "v1", "name": "kataconfigs.kataconfiguration.openshift.io",
                    "displayName": "KataConfig",
                    "description": "Which nodes get Kata Containers, and how.",
                },
                {
                    "kind": "KataNode", "version": "v1alpha1", "name": "katanodes.kata-operator.dev",
                    "displayName": "KataNode",
                    "description": "How far a node is. The operator writes it.",
                },
            ]))?,
            "artifacthub.io/crdsExamples": yaml(&example)?,
            "artifacthub.io/links": yaml(&json!([
                {"name": "support", "url": format!("{REPOSITORY}/issues")},
                {"name": "documentation", "url": format!("{REPOSITORY}/tree/main/docs")},
            ]))?,
        },
    }))
}

/// The CustomResourceDefinitions, as templates: Helm never upgrades those in `crds/`.
fn crds() -> Result<String, DistributionError> {
    let mut text = "{{- if .Values.crds.enabled }}\n".to_owned();
    for crd in kata_api::crds() {
        let mut crd = serde_json::to_value(crd).map_err(DistributionError::Json)?;
        label(&mut crd);
        crd["metadata"]["chart-value-keep"] = json!(true);
        text.push_str("---\n");
        text.push_str(&render(&crd)?.replace(
            "  chart-value-keep: true\n",
            "  {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n",
        ));
    }
    text.push_str("{{- end }}\n");
    Ok(text)
}

/// Refuses to remove the operator while a KataConfig still needs it.
fn pre_delete() -> Result<String, DistributionError> {
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "kata-operator-pre-delete",
            "namespace": "chart-value-namespace",
            "labels": {
                "app.kubernetes.io/name": manifests::NAME,
                "app.kubernetes.io/component": "pre-delete",
            },
            "annotations": {
                "helm.sh/hook": "pre-delete",
                "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
            },
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 60,
            "template": {
                "metadata": {"labels": {
                    "app.kubernetes.io/name": manifests::NAME,
                    "app.kubernetes.io/component": "pre-delete",
                }},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": manifests::NAME,
                    "automountServiceAccountToken": true,
                    "enableServiceLinks": false,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "tolerations": "chart-block",
                    "nodeSelector": "chart-block",
                    "imagePullSecrets": "chart-block",
                    "containers": [{
                        "name": "check",
                        "image": "chart-value-image",
                        "imagePullPolicy": "chart-value-pull-policy",
                        "args": ["uninstall", "--check"],
                        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "privileged": false,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": true,
                        },
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                    }],
                },
            },
        },
    });
    label(&mut job);
    Ok(format!("{{{{- if .Values.preDeleteCheck }}}}\n{}{{{{- end }}}}\n", render(&job)?))
}

/// One template for each object of the manifests, besides the namespace, which is the release's, and the
/// CustomResourceDefinitions.
fn templates() -> Result<BTreeMap<String, String>, DistributionError> {
    let mut objects: BTreeMap<String, Vec<(Variant, String, String)>> = BTreeMap::new();
    for variant in Variant::ALL {
        for mut object in manifests::objects(&variant.arguments())? {
            let kind = text(&object["kind"]).to_owned();
            if matches!(kind.as_str(), "Namespace" | "CustomResourceDefinition") {
                continue;
            }
            match kind.as_str() {
                "Deployment" => open_deployment(&mut object),
                // Pods that the operator makes have the secrets of their account.
                "ServiceAccount" if object["metadata"]["name"] != manifests::NAME => {
                    object["imagePullSecrets"] = json!("chart-block");
                }
                _ => {}
            }
            label(&mut object);
            let name = format!(
                "{}-{}",
                kind.to_ascii_lowercase(),
                text(&object["metadata"]["name"]).trim_start_matches("openshift-")
            );
            let group = text(&object["apiVersion"]).to_owned();
            objects.entry(name).or_default().push((variant, group, render(&object)?));
        }
    }
    Ok(objects.into_iter().map(|(name, variants)| (name, template(&variants))).collect())
}

fn template(variants: &[(Variant, String, String)]) -> String {
    let of = |variant: Variant| {
        variants.iter().find(|(which, _, _)| *which == variant).map(|(_, _, body)| body.as_str())
    };
    let (kubernetes, openshift, monitored) =
        (of(Variant::Kubernetes), of(Variant::Openshift), of(Variant::Monitored));
    // The Prometheus operator is on other clusters too; there the release says whether it is.
    let monitoring = variants.iter().any(|(_, group, _)| group.starts_with(MONITORING_GROUP));
    if monitoring && openshift == monitored {
        let body = monitored.unwrap_or_default();
        return format!(
            "{{{{- if include \"kata-operator.monitoring\" . }}}}\n{body}{{{{- end }}}}\n"
        );
    }
    if kubernetes == openshift && openshift == monitored {
        return monitored.unwrap_or_default().to_owned();
    }
    let mut branches = vec![(Variant::Openshift, openshift), (Variant::Kubernetes, kubernetes)];
    if openshift != monitored {
        branches.insert(0, (Variant::Monitored, monitored));
    }
    // Where every cluster has the object, only the lines that differ depend on which it is.
    let everywhere = variants.len() == Variant::ALL.len();
    // What remains after all conditions.
    let otherwise = if everywhere { kubernetes } else { None };
    let branches: Vec<(Variant, Vec<&str>)> = branches
        .into_iter()
        .filter(|(variant, body)| *variant == Variant::Kubernetes || *body != otherwise)
        .filter_map(|(variant, body)| Some((variant, body?.lines().collect())))
        .collect();
    let (before, after) = if everywhere { shared_ends(&branches) } else { (0, 0) };
    let mut out = String::new();
    let mut push = |line: &str| {
        out.push_str(line);
        out.push('\n');
    };
    let whole = branches.first().map_or(&[][..], |(_, lines)| lines.as_slice());
    whole.iter().take(before).for_each(|line| push(line));
    for (place, (variant, lines)) in branches.iter().enumerate() {
        let last = everywhere && place + 1 == branches.len();
        let own = lines.get(before..lines.len() - after).unwrap_or_default();
        if last && own.is_empty() {
            continue;
        }
        match (place, last) {
            (0, _) => push(&format!("{{{{- if {} }}}}", variant.condition())),
            (_, true) => push("{{- else }}"),
            (_, false) => push(&format!("{{{{- else if {} }}}}", variant.condition())),
        }
        own.iter().for_each(|line| push(line));
    }
    push("{{- end }}");
    whole.iter().skip(whole.len() - after).for_each(|line| push(line));
    out
}

/// How many lines at the beginning, and at the end, are the same in all of them.
fn shared_ends(branches: &[(Variant, Vec<&str>)]) -> (usize, usize) {
    let Some(((_, first), others)) = branches.split_first() else { return (0, 0) };
    let shortest = branches.iter().map(|(_, lines)| lines.len()).min().unwrap_or(0);
    let before = (0..shortest)
        .take_while(|at| others.iter().all(|(_, lines)| lines.get(*at) == first.get(*at)))
        .count();
    let from_end =
        |lines: &[&str], at: usize| lines.iter().rev().nth(at).map(|line| (*line).to_owned());
    let after = (0..shortest - before)
        .take_while(|at| {
            others.iter().all(|(_, lines)| from_end(lines, *at) == from_end(first, *at))
        })
        .count();
    (before, after)
}

/// Puts placeholders where a release decides.
fn open_deployment(deployment: &mut Value) {
    let spec = &mut deployment["spec"];
    spec["replicas"] = json!("chart-value-replicas");
    let pod = &mut spec["template"]["spec"];
    for field in ["tolerations", "affinity", "nodeSelector", "imagePullSecrets"] {
        pod[field] = json!("chart-block");
    }
    pod["priorityClassName"] = json!("chart-block-priority");
    let container = &mut pod["containers"][0];
    container["resources"] = json!("chart-block");
    container["imagePullPolicy"] = json!("chart-value-pull-policy");
    if let Some(arguments) = container["args"].as_array_mut() {
        for argument in arguments.iter_mut() {
            if text(argument).starts_with("--platform=") {
                *argument = json!("--platform=chart-value-platform");
            }
        }
        arguments.push(json!("--log-filter=chart-value-log-filter"));
    }
}

fn label(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
    labels["app.kubernetes.io/managed-by"] = json!("chart-value-managed-by");
    labels["helm.sh/chart"] = json!("chart-value-chart");
}

/// YAML with the placeholders turned into what Helm fills in.
fn render(object: &Value) -> Result<String, DistributionError> {
    let yaml = serde_saphyr::to_string(object).map_err(DistributionError::Yaml)?;
    // What Prometheus and not Helm shall fill in. A placeholder has no braces, so this comes first.
    let mut yaml = yaml.replace("{{", "{{ \"{{\" }}");
    let mut lines = String::with_capacity(yaml.len());
    for line in yaml.lines() {
        match block(line) {
            Some(replacement) => lines.push_str(&replacement),
            None => {
                lines.push_str(line);
                lines.push('\n');
            }
        }
    }
    yaml = lines;
    // The longer ones first: one is the beginning of another.
    let mut placeholders = PLACEHOLDERS;
    placeholders.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    for (name, value) in placeholders {
        yaml = yaml.replace(name, value);
    }
    yaml = yaml
        .replace(
            "--platform=chart-value-platform",
            "--platform={{ include \"kata-operator.platform\" . }}",
        )
        .replace("--log-filter=chart-value-log-filter", "--log-filter={{ .Values.logFilter }}");
    Ok(yaml)
}

/// What stands for a line whose value a release decides as a whole; nothing, if the release has none.
fn block(line: &str) -> Option<String> {
    let (field, value) = line.split_once(": ")?;
    let name = field.trim_start();
    let indent = field.len() - name.len();
    let space = " ".repeat(indent);
    if value == "chart-block-priority" {
        return Some(format!(
            "{space}{{{{- with .Values.priorityClassName }}}}\n\
             {space}{name}: {{{{ . }}}}\n{space}{{{{- end }}}}\n"
        ));
    }
    if value != "chart-block" {
        return None;
    }
    let (_, setting) = BLOCKS.iter().find(|(field, _)| *field == name)?;
    Some(format!(
        "{space}{{{{- with .Values.{setting} }}}}\n\
         {space}{name}: {{{{- toYaml . | nindent {} }}}}\n{space}{{{{- end }}}}\n",
        indent + 2
    ))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
