//! What README's kubectl lines ask for, asked through kube's client, where there is no kubectl.
//!
//! It knows the verbs and kinds of README and no more; a line that it does not know fails.

use std::path::Path;
use std::time::Duration;

use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::kubectl_process::repository;

/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A client and what it runs on.
pub(crate) struct Library {
    runtime: Runtime,
    client: Client,
}

impl Library {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
            Client::try_from(config).unwrap()
        });
        Self { runtime, client }
    }

    /// Carries out one line, without its `kubectl`; what it returns resembles what kubectl prints.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let work = async { tokio::time::timeout(LIMIT, self.line(words)).await };
        self.runtime.block_on(work).unwrap_or_else(|_| panic!("{words:?} takes too long"))
    }

    async fn line(&self, words: &[&str]) -> String {
        let namespace = value_of(words, "-n");
        let plain: Vec<&str> = plain(words);
        match plain.as_slice() {
            ["get", kind] => {
                let list = self.api(kind, namespace).list(&ListParams::default()).await.unwrap();
                list.iter().map(|object| object.name_any() + "\n").collect()
            }
            ["get", kind, name] => {
                serde_saphyr::to_string(&self.api(kind, namespace).get(name).await.unwrap())
                    .unwrap()
            }
            ["describe", kind, name] => {
                let object = self.api(kind, namespace).get(name).await.unwrap();
                let about = format!("involvedObject.uid={}", object.uid().unwrap());
                let parameters = ListParams::default().fields(&about);
                let events = self.api("events", None).list(&parameters).await.unwrap();
                let object = serde_saphyr::to_string(&object).unwrap();
                events.iter().fold(object, |text, event| {
                    format!("{text}{}\n", event.data["message"].as_str().unwrap_or_default())
                })
            }
            ["label", kind, name, label] => {
                let (key, value) = label.split_once('=').unwrap();
                let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
                let api = self.api(kind, namespace);
                api.patch(name, &PatchParams::default(), &patch).await.unwrap().name_any()
            }
            ["apply"] => {
                let mut names = String::new();
                for pair in words.windows(2).filter(|pair| pair[0] == "-f") {
                    names.push_str(&self.apply(&repository().join(pair[1])).await);
                }
                names
            }
            ["delete", kind, name] => {
                let api = self.api(kind, namespace);
                let object = api.get(name).await.unwrap();
                api.delete(name, &DeleteParams::default()).await.unwrap();
                if !words.contains(&"--wait=false") {
                    let uid = object.uid().unwrap();
                    let gone = kube::runtime::conditions::is_deleted(&uid);
                    await_condition(api, name, gone).await.unwrap();
                }
                (*name).to_owned()
            }
            ["wait", what] => {
                let aim = words.iter().find_map(|word| word.strip_prefix("--for=")).unwrap();
                let (kind, name) = what.split_once('/').unwrap_or((*what, ""));
                let api = self.api(kind, namespace);
                let all = api.list(&ListParams::default()).await.unwrap();
                for object in
                    all.iter().filter(|object| name.is_empty() || object.name_any() == name)
                {
                    wait(api.clone(), object, aim).await;
                }
                "condition met\n".to_owned()
            }
            // It would need a WebSocket client.
            ["exec", pod, ..] => {
                eprintln!("NOTE: NOT TESTED, only that the pod runs: kubectl {}", words.join(" "));
                let pod = self.api("pod", namespace).get(pod).await.unwrap();
                format!("{}.", pod.data["status"]["phase"].as_str().unwrap())
            }
            _ => panic!("a line that this test does not know: {words:?}"),
        }
    }

    async fn apply(&self, path: &Path) -> String {
        let text = std::fs::read_to_string(path).unwrap();
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let api = self.api(&kind, object["metadata"]["namespace"].as_str());
        let parameters = PatchParams::apply("test").validation_strict();
        let applied = api.patch(name, &parameters, &Patch::Apply(&object)).await.unwrap();
        applied.name_any() + "\n"
    }

    fn api(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version, name, plural) = match kind {
            "node" | "nodes" => ("", "v1", "Node", "nodes"),
            "namespace" => ("", "v1", "Namespace", "namespaces"),
            "pod" => ("", "v1", "Pod", "pods"),
            "events" => ("", "v1", "Event", "events"),
            "runtimeclass" => ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses"),
            "mcp" => {
                let group = "machineconfiguration.openshift.io";
                (group, "v1", "MachineConfigPool", "machineconfigpools")
            }
            "kataconfig" => ("kataconfiguration.openshift.io", "v1", "KataConfig", "kataconfigs"),
            _ => panic!("a kind that this test does not know: {kind}"),
        };
        let gvk = GroupVersionKind::gvk(group, version, name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }
}

/// Waits for `delete`, or for `condition=TYPE`.
async fn wait(api: Api<DynamicObject>, object: &DynamicObject, aim: &str) {
    if aim == "delete" {
        let uid = object.uid().unwrap();
        let gone = kube::runtime::conditions::is_deleted(&uid);
        await_condition(api, &object.name_any(), gone).await.unwrap();
        return;
    }
    let kind = aim.strip_prefix("condition=").unwrap();
    let holds = |object: Option<&DynamicObject>| {
        let conditions = object.and_then(|object| object.data["status"]["conditions"].as_array());
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == *kind && condition["status"] == "True")
    };
    await_condition(api, &object.name_any(), holds).await.unwrap();
}

fn value_of<'a>(words: &[&'a str], flag: &str) -> Option<&'a str> {
    words.windows(2).find(|pair| pair[0] == flag).map(|pair| pair[1])
}

/// The words without flags and their values; all of them after `--`.
fn plain<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut plain = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--" => plain.extend(words.by_ref()),
            "-n" | "-o" | "-f" => {
                words.next();
            }
            flag if flag.starts_with('-') => {}
            word => plain.push(word),
        }
    }
    plain
}
