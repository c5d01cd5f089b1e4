//! Changes of a running simulated cluster, through its own control endpoint.
//!
//! It speaks to the server at the kubeconfig's address, and says so clearly if that is no simulator.

use std::path::Path;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::arguments::{
    FaultArguments, KataDeployArguments, NodeAction, NodeArguments, SpeedArguments, Where,
};
use crate::{Failure, Outcome};

/// What can go wrong, in the user's terms.
#[derive(Debug, thiserror::Error)]
enum ControlError {
    #[error("cannot read {path}: start a cluster with `kata-sim up --kubeconfig {path}` first")]
    Kubeconfig {
        path: String,
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    #[error("cannot reach the cluster of {path}: is `kata-sim up` still running?")]
    Unreachable {
        path: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("the cluster of {path} does not answer within {} s: it may be busy, or hang", ANSWER.as_secs())]
    Silent { path: String },
    #[error("{0}")]
    Refused(String),
    #[error("the server of {0} is not a simulated cluster; nothing was changed")]
    NotSimulated(String),
}

/// `kata-sim fault NODE FAULT`.
pub(crate) async fn fault(arguments: FaultArguments) -> Result<Outcome, Failure> {
    let path = format!("nodes/{}/faults", arguments.node);
    if arguments.fault == "none" {
        call(&arguments.cluster, "DELETE", &path, &Value::Null).await?;
        return say(&format!("node {} of the simulated cluster is sound again", arguments.node));
    }
    call(&arguments.cluster, "POST", &path, &json!({"fault": arguments.fault})).await?;
    say(&format!(
        "node {} of the simulated cluster now has the fault {}",
        arguments.node, arguments.fault
    ))
}

/// `kata-sim node add|rm|reboot|reinstall NAME`.
pub(crate) async fn node(arguments: NodeArguments) -> Result<Outcome, Failure> {
    let NodeArguments { action, name, options, cluster } = arguments;
    if action != NodeAction::Add && !options.is_empty() {
        let text = format!(
            "unexpected argument {:?}: only node add takes options, and each command takes one node",
            options[0]
        );
        return Err(ControlError::Refused(text).into());
    }
    let boots = format!("nodes/{name}/boots");
    let (method, path, body, what) = match action {
        NodeAction::Add => {
            ("POST", "nodes".to_owned(), json!({"name": name, "options": options}), "joins")
        }
        NodeAction::Rm => ("DELETE", format!("nodes/{name}"), Value::Null, "is removed"),
        NodeAction::Reboot => ("POST", boots, json!({}), "boots"),
        NodeAction::Reinstall => ("POST", boots, json!({"reinstall": true}), "is installed anew"),
    };
    call(&cluster, method, &path, &body).await?;
    say(&format!("node {name} {what} (simulated)"))
}

/// `kata-sim kata-deploy daemonset|jobs`.
pub(crate) async fn kata_deploy(arguments: KataDeployArguments) -> Result<Outcome, Failure> {
    let KataDeployArguments { mode, cluster } = arguments;
    call(&cluster, "POST", "kata-deploy", &json!({"mode": mode})).await?;
    say("kata-deploy is installed on all workers (simulated)")
}

/// `kata-sim speed X`.
pub(crate) async fn speed(arguments: SpeedArguments) -> Result<Outcome, Failure> {
    call(&arguments.cluster, "POST", "speed", &json!({"speed": arguments.speed})).await?;
    say(&format!("simulated time runs {} times faster than real time", arguments.speed))
}

#[expect(clippy::print_stdout, reason = "the command's answer")]
fn say(text: &str) -> Result<Outcome, Failure> {
    println!("{text}");
    Ok(Outcome::Fine)
}

/// How long a cluster may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

async fn call(
    cluster: &Where,
    method: &str,
    control: &str,
    body: &Value,
) -> Result<Value, ControlError> {
    let answer = tokio::time::timeout(ANSWER, ask(cluster, method, control, body)).await;
    answer.unwrap_or_else(|_late| {
        Err(ControlError::Silent { path: cluster.kubeconfig().display().to_string() })
    })
}

async fn ask(
    cluster: &Where,
    method: &str,
    control: &str,
    body: &Value,
) -> Result<Value, ControlError> {
    let kubeconfig = cluster.kubeconfig();
    let path = kubeconfig.display().to_string();
    let client = client(&kubeconfig).await?;
    let unreachable =
        |source| ControlError::Unreachable { path: path.clone(), source: Box::new(source) };
    let version = client.apiserver_version().await.map_err(unreachable)?;
    if !version.git_version.ends_with("+simulated") {
        return Err(ControlError::NotSimulated(path));
    }
    let request = http::Request::builder()
        .method(method)
        .uri(format!("/sim/v1/{control}"))
        .header("content-type", "application/json")
        .body(if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string().into_bytes())
        })
        .map_err(|error| ControlError::Refused(error.to_string()))?;
    let response = client.send(request).await.map_err(unreachable)?;
    let accepted = response.status().is_success();
    let bytes = response.into_body().collect().await.map_err(unreachable)?.to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if accepted {
        return Ok(answer);
    }
    let message = answer["message"]
        .as_str()
        .map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), str::to_owned);
    Err(ControlError::Refused(message))
}

async fn client(path: &Path) -> Result<kube::Client, ControlError> {
    let name = path.display().to_string();
    let wrong = |source| ControlError::Kubeconfig { path: name.clone(), source: Box::new(source) };
    let kubeconfig = kube::config::Kubeconfig::read_from(path).map_err(wrong)?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(wrong)?;
    kube::Client::try_from(config)
        .map_err(|source| ControlError::Unreachable { path: name, source: Box::new(source) })
}
