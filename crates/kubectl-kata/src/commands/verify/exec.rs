//! One command in a container that is there already, to ask the kernel that it runs on.

use k8s_openapi::api::core::v1::Pod;
use kata_api::probe::{FILES, ProbeFacts};
use kube::api::{Api, AttachParams};
use tokio::io::AsyncReadExt as _;

/// Why a container did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// Commands in containers are not permitted.
    Forbidden,
    /// The command does not exist, or anything else went wrong.
    Failed(String),
}

/// The facts of the kernel that the container runs on.
pub(super) async fn facts(
    client: &kube::Client,
    namespace: &str,
    pod: &str,
    container: Option<&str>,
) -> Result<ProbeFacts, Silence> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut parameters = AttachParams::default().stdout(true).stderr(true);
    if let Some(container) = container {
        parameters = parameters.container(container);
    }
    let command = ["cat"].into_iter().chain(FILES);
    let mut process = pods.exec(pod, command, &parameters).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 403 => Silence::Forbidden,
        kube::Error::UpgradeConnection(error) if error.to_string().contains("403") => {
            Silence::Forbidden
        }
        kube::Error::Api(status) => Silence::Failed(status.message),
        error => Silence::Failed(error.to_string()),
    })?;
    let mut text = String::new();
    if let Some(mut out) = process.stdout() {
        out.read_to_string(&mut text).await.map_err(|error| Silence::Failed(error.to_string()))?;
    }
    let status = match process.take_status() {
        Some(status) => status.await,
        None => None,
    };
    match ProbeFacts::from_lines(&text) {
        Some(facts) => Ok(facts),
        None => {
            let why = status.and_then(|status| status.message).unwrap_or_default();
            Err(Silence::Failed(if why.is_empty() {
                "the container's `cat` does not print /proc".to_owned()
            } else {
                why
            }))
        }
    }
}
