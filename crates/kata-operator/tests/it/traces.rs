//! Traces: the operator as a process on a simulated cluster, with a collector in its environment.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use simcluster::clock::Clock;
use simcluster::topology::{self, Layout};
use simcluster::{Cluster, cluster};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::Instant;

use crate::lab;

#[cfg(feature = "otel")]
mod collected;

/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(90);
/// What the operator presents to the API server, and must show to no one else.
const TOKEN: &str = "a-token-that-stays-secret";

/// Runs the operator until a node is ready, and then stops it; returns its log, line by line.
async fn install(name: &str, environment: &[(&str, &str)]) -> Vec<Value> {
    let layout = Layout { workers: 1, control_plane: 1, ..Layout::default() };
    let now = jiff::Timestamp::now();
    let mut simulation = topology::build(&layout, now).unwrap();
    lab::prepare(&mut simulation, 1);
    simulation.set_speed(240.0);
    let cluster = Cluster::start(simulation, Clock::starting_at(now));
    let address = cluster.serve(0).await.unwrap();
    let kubeconfig = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.kubeconfig"));
    cluster::write_kubeconfig(&kubeconfig, address).unwrap();
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(&kubeconfig).unwrap()).unwrap();
    config["users"][0]["user"] = json!({"token": TOKEN});
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let mut operator = Command::new(env!("CARGO_BIN_EXE_kata-operator"))
        .args(["run", "--health-addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"])
        .args(["--log-format", "json", "--kubeconfig"])
        .arg(&kubeconfig)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stderr = operator.stderr.take().unwrap();
    let log = tokio::spawn(async move {
        let mut text = String::new();
        stderr.read_to_string(&mut text).await.unwrap();
        text
    });
    let end = Instant::now() + LIMIT;
    while !lab::is_ready(&cluster, "example") {
        assert!(Instant::now() < end, "{:#?}", lab::end_state(&cluster));
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(20)).await;
    }
    let id = operator.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    let ended = tokio::time::timeout(LIMIT, operator.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
    let log = log.await.unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[cfg(not(feature = "otel"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_without_traces_says_so_if_a_collector_is_named() {
    let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let log = install("untraced", &[collector]).await;
    let warnings: Vec<_> = log.iter().filter(|line| line["level"] == "WARN").collect();
    assert_eq!(warnings.len(), 1, "{log:#?}");
    assert_eq!(warnings[0]["message"], "no traces are sent");
    assert!(warnings[0]["error"].as_str().unwrap().contains("--features otel"), "{warnings:?}");
    assert!(log.iter().all(|line| line.get("span").is_none()), "{log:#?}");
}
