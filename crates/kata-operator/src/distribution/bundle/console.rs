//! What OpenShift's console offers beside the operator: a tour, sample manifests and where to get the plugin.

use serde_json::{Value, json};

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// ConsoleQuickStart, ConsoleYAMLSamples and ConsoleCLIDownload.
pub(super) fn objects() -> Vec<Value> {
    vec![
        tour(),
        sample(
            "kata-pod",
            "v1",
            "Pod",
            "Sandboxed pod",
            "A pod in a virtual machine of its own: runtimeClassName is the only difference.",
            concat!(
                "apiVersion: v1\nkind: Pod\nmetadata:\n  generateName: sandboxed-\nspec:\n",
                "  runtimeClassName: kata\n  containers:\n    - name: web\n",
                "      image: registry.access.redhat.com/ubi9/httpd-24\n",
            ),
        ),
        sample(
            "kata-config-some-workers",
            "kataconfiguration.openshift.io/v1",
            "KataConfig",
            "Kata on labelled workers",
            "Only workers with the label kata=true get Kata; label values are strings.",
            concat!(
                "apiVersion: kataconfiguration.openshift.io/v1\nkind: KataConfig\nmetadata:\n",
                "  name: cluster-kataconfig\nspec:\n  kataConfigPoolSelector:\n    matchLabels:\n",
                "      kata: 'true'\n",
            ),
        ),
        downloads(),
    ]
}

fn sample(name: &str, api: &str, kind: &str, title: &str, description: &str, yaml: &str) -> Value {
    json!({
        "apiVersion": "console.openshift.io/v1",
        "kind": "ConsoleYAMLSample",
        "metadata": {"name": name},
        "spec": {
            "targetResource": {"apiVersion": api, "kind": kind},
            "title": title,
            "description": description,
            "yaml": yaml,
        },
    })
}

fn downloads() -> Value {
    let links: Vec<Value> = [("linux", "amd64"), ("linux", "arm64")]
        .into_iter()
        .map(|(system, machine)| {
            json!({
                "text": format!("kubectl-kata for {system} on {machine}"),
                "href": format!(
                    "{REPOSITORY}/releases/download/v{VERSION}/kubectl-kata_{system}_{machine}.tar.gz"
                ),
            })
        })
        .collect();
    json!({
        "apiVersion": "console.openshift.io/v1",
        "kind": "ConsoleCLIDownload",
        "metadata": {"name": "kubectl-kata"},
        "spec": {
            "displayName": "kubectl kata",
            "description": "Shows how far the roll-out is, proves that a pod is sandboxed, and explains a pod \
                            that does not start. With oc it is called oc kata.",
            "links": links,
        },
    })
}

fn tour() -> Value {
    let task = |title: &str, description: &str, question: &str, failed: &str| {
        json!({
            "title": title,
            "description": description,
            "review": {"instructions": question, "failedTaskHelp": failed},
            "summary": {"success": "Done.", "failed": failed},
        })
    };
    json!({
        "apiVersion": "console.openshift.io/v1",
        "kind": "ConsoleQuickStart",
        "metadata": {"name": "kata-first-sandboxed-pod"},
        "spec": {
            "displayName": "Run a pod in a virtual machine of its own",
            "durationMinutes": 30,
            "icon": format!("data:image/svg+xml;base64,{}", icon()),
            "description": "Install Kata Containers on some workers and start a sandboxed pod.",
            "introduction": "A sandboxed pod has a kernel of its own. Each selected worker reboots once; \
                             its pods are moved first.",
            "tasks": [
                task(
                    "Choose the workers",
                    "Under **Compute > Nodes**, label one or more workers with `kata=true`.",
                    "Do the workers have the label `kata=true`?",
                    "The value is the string `true`: `oc label node NAME kata=true`.",
                ),
                task(
                    "Create a KataConfig",
                    "Under **Operators > Installed Operators > Kata operator > KataConfig**, create one with \
                     the sample *Kata on labelled workers*.",
                    "Does its condition `Ready` become True? Each worker takes about seven minutes.",
                    "Its conditions say what it waits for and what to do.",
                ),
                task(
                    "Start a sandboxed pod",
                    "Under **Workloads > Pods**, create a pod with the sample *Sandboxed pod*.",
                    "In its terminal, does `uptime` show a few minutes while the node has been up for longer?",
                    "`oc kata why pod/NAME` explains a pod that does not start.",
                ),
            ],
            "conclusion": "To remove Kata again, delete the sandboxed pods and then the KataConfig.",
        },
    })
}

fn icon() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(include_str!("icon.svg"))
}
