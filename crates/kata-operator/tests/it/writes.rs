//! What the operator writes and logs: nothing on top of a write that failed, and no user's data in the log.

use std::cell::RefCell;
use std::io;
use std::sync::Once;
use std::time::Duration;

use serde_json::json;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::{CRDS, MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
const SETTLE: Duration = Duration::from_secs(120);

#[tokio::test(start_paused = true)]
async fn what_relies_on_a_write_that_failed_is_not_done() {
    let cluster = lab::openshift(3, 1);
    let refused = Fault::Status { code: 403, retry_after: None, message: None, when: When::Before };
    let matches = Match { resource: "machineconfigs".to_owned(), ..Match::default() };
    let matches =
        Match { verb: "write".to_owned(), manager: "kata-operator".to_owned(), ..matches };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, refused).times(0)));
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    lab::pass(SETTLE).await;
    // Without the MachineConfig the pool would be rendered without Kata, and every node reboot twice.
    assert!(lab::get(&cluster, &MACHINECONFIGPOOLS, "kata-oc").is_none());
    let node = lab::get(&cluster, &NODES, &lab::worker(0)).unwrap();
    assert!(node["metadata"]["labels"].get("node-role.kubernetes.io/kata-oc").is_none());
    cluster.with(|sim, _| sim.frontend.faults.clear());
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
}

/// Both write the whole list of finalizers: what the operator read before the other wrote must not win.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_another_client_adds_meanwhile_stays() {
    let cluster = lab::openshift(2, 1);
    let slow = Match {
        verb: "patch".to_owned(),
        resource: "kataconfigs".to_owned(),
        subresource: "-".to_owned(),
        manager: "kata-operator".to_owned(),
        ..Match::default()
    };
    let late = Fault::Delay { millis: 5_000 };
    let finalizers = || {
        let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap_or_default();
        let list = config["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let own = kata_api::names::FINALIZER;
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(slow, late)));
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    lab::pass(Duration::from_secs(3)).await;
    assert_eq!(finalizers(), [""; 0], "the operator's write is under way");
    let first = json!({"metadata": {"finalizers": ["example.com/first"]}});
    lab::merge(&cluster, &lab::kata_configs(), "example", &first);
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    assert_eq!(finalizers(), ["example.com/first", own]);
}

thread_local! {
    /// What this thread logs, while it wants to know.
    static LOG: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Writes into [`LOG`].
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.iter_mut().for_each(|log| log.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what this thread logs from now on, however little it matters.
///
/// There is one subscriber for all threads: one that a thread sets for itself misses what another thread
/// was the first to log, since whether anybody listens is settled once for each place in the code.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| Log);
        let wanted = dynamic_filter_fn(|_, _| LOG.with_borrow(Option::is_some));
        tracing_subscriber::registry().with(layer.with_filter(wanted)).init();
    });
    LOG.set(Some(Vec::new()));
}

/// However much is logged: names, states and reasons, and not what is in the objects.
#[tokio::test(start_paused = true)]
async fn what_is_in_an_object_is_not_in_the_log() {
    let canary = "c4n4ry";
    listen();

    let cluster = lab::openshift(3, 1);
    let noted = json!({"metadata": {"annotations": {"example.org/token": canary}}});
    lab::merge(&cluster, &NODES, &lab::worker(0), &noted);
    let role = "machineconfiguration.openshift.io/role";
    let pull_secret = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "99-worker-secret", "labels": {role: "worker"}},
        "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": "/etc/secret", "contents": {"source": format!("data:,{canary}")}},
        ]}}},
    });
    lab::create(&cluster, &MACHINECONFIGS, "", pull_secret);
    let mut config = lab::kata_config("example");
    config["metadata"]["annotations"] = json!({"example.org/token": canary});
    config["spec"]["runtimes"] =
        json!([{"name": "kata", "nodeSelector": {"example.org/a": canary}}]);
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", config);
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "runtimeClassName": "kata", "nodeName": lab::worker(0),
            "containers": [{"name": "web", "image": "example.org/web",
                "env": [{"name": "TOKEN", "value": canary}]}],
        },
    });
    lab::create(&cluster, &PODS, "default", pod);
    lab::pass(SETTLE).await;
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    lab::pass(SETTLE).await;
    lab::delete(&cluster, &PODS, "default", "web");
    let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, gone).await);

    let text = String::from_utf8(LOG.take().unwrap_or_default()).unwrap();
    let ours: Vec<&str> = text.lines().filter(|line| line.contains(" kata_")).collect();
    assert!(ours.len() > 10, "{} lines: {text}", ours.len());
    let leaking: Vec<&&str> = ours.iter().filter(|line| line.contains(canary)).collect();
    assert!(leaking.is_empty(), "{leaking:#?}");
}

/// The operator was updated, and its CustomResourceDefinitions were not.
#[tokio::test(start_paused = true)]
async fn a_definition_that_lacks_a_field_is_named_with_the_command_that_updates_it() {
    const COMMAND: &str = "kata-operator crd | kubectl apply --server-side --force-conflicts -f -";
    listen();
    let cluster = lab::openshift(1, 1);
    let name = "katanodes.kata-operator.dev";
    let whole = lab::get(&cluster, &CRDS, name).unwrap();
    let mut versions = whole["spec"]["versions"].clone();
    let status = "/0/schema/openAPIV3Schema/properties/status/properties";
    let fields = versions.pointer_mut(status).unwrap().as_object_mut().unwrap();
    assert!(fields.remove("bootId").is_some());
    lab::merge(&cluster, &CRDS, name, &json!({"spec": {"versions": versions}}));
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let says = || {
        let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
        config["status"].to_string().contains(COMMAND)
    };
    assert!(lab::until(Duration::from_mins(5), says).await);
    let text = String::from_utf8(LOG.take().unwrap_or_default()).unwrap();
    let named: Vec<&str> = text.lines().filter(|line| line.contains(COMMAND)).collect();
    assert!(!named.is_empty(), "{text}");
    lab::merge(&cluster, &CRDS, name, &json!({"spec": {"versions": whole["spec"]["versions"]}}));
    assert!(lab::until(LIMIT, || !says() && lab::is_ready(&cluster, "example")).await);
}
