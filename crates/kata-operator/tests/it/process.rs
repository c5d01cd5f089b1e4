//! The binary as a process, over HTTP, in real time on a fast cluster: killed with SIGKILL in the middle
//! of an install and of an uninstall, and started again.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kata_api::platform::Platform;
use serde_json::{Value, json};
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::clock::Clock;
use simcluster::resource::{CONTAINERRUNTIMECONFIGS, LEASES, PODS};
use simcluster::topology::{self, Layout};
use simcluster::{Cluster, cluster};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::lab;

/// How many times faster than real the cluster is: a node's update takes about two seconds.
const SPEED: f64 = 240.0;
/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(90);

/// An election that takes seconds.
const ELECTION: [&str; 5] = [
    "--leader-elect",
    "--namespace=default",
    "--lease-duration=4",
    "--lease-renew-deadline=3",
    "--lease-retry-period=1",
];

/// A cluster that is served over HTTP.
struct Lab {
    cluster: Cluster,
    kubeconfig: PathBuf,
}

impl Lab {
    async fn start(name: &str) -> Self {
        let layout = Layout { workers: 1, control_plane: 1, ..Layout::default() };
        let now = jiff::Timestamp::now();
        let mut simulation = topology::build(&layout, now).unwrap();
        lab::prepare(&mut simulation, 1);
        simulation.set_speed(SPEED);
        let cluster = Cluster::start(simulation, Clock::starting_at(now));
        let address = cluster.serve(0).await.unwrap();
        let kubeconfig = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.kubeconfig"));
        cluster::write_kubeconfig(&kubeconfig, address).unwrap();
        Self { cluster, kubeconfig }
    }

    /// Has operators show a token.
    fn show(&self, token: &str) {
        let text = std::fs::read_to_string(&self.kubeconfig).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["users"][0]["user"] = json!({"token": token});
        std::fs::write(&self.kubeconfig, config.to_string()).unwrap();
    }

    /// Starts the operator on free ports; returns where it serves health and metrics.
    async fn operator(&self, arguments: &[&str]) -> (Child, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let child = Command::new(env!("CARGO_BIN_EXE_kata-operator"))
            .args(["run", "--health-addr", &address, "--metrics-addr", &address, "--kubeconfig"])
            .arg(&self.kubeconfig)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        (child, address)
    }

    fn ready(&self) -> bool {
        lab::is_ready(&self.cluster, "example")
    }

    fn gone(&self) -> bool {
        lab::get(&self.cluster, &lab::kata_configs(), "example").is_none()
    }

    /// Runs operators one after the other: each is killed when it sends its nth request from its start,
    /// until the list is used up; the last one goes on until `done`.
    async fn killed_at(&self, nths: &[u64], done: impl Fn(&Self) -> bool) {
        let mut crashes = self.cluster.crashes();
        for nth in nths {
            crashes.mark_unchanged();
            self.cluster.with(|sim, _| {
                sim.frontend.faults.clear();
                let matches = Match { manager: "kata-operator".to_owned(), ..Match::default() };
                let when = if nth % 2 == 0 { When::Before } else { When::After };
                sim.frontend.faults.add(Rule::once(matches, Fault::Crash { when }).from_nth(*nth));
            });
            let (mut operator, _) = self.operator(&[]).await;
            let crash = tokio::time::timeout(LIMIT, crashes.changed());
            tokio::select! {
                crash = crash => crash.unwrap().unwrap(),
                () = until_real(|| done(self)) => return,
            }
            operator.kill().await.unwrap();
        }
        self.cluster.with(|sim, _| sim.frontend.faults.clear());
        let (mut operator, _) = self.operator(&[]).await;
        let end = tokio::time::timeout(LIMIT, until_real(|| done(self))).await;
        assert!(end.is_ok(), "killed at {nths:?}: {:#?}", lab::end_state(&self.cluster));
        // The last writes of the last pass.
        settle(&self.cluster).await;
        operator.kill().await.unwrap();
    }
}

/// Looks again every few milliseconds until `done` holds.
async fn until_real(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(10)).await;
    }
}

/// Waits until nothing has been written for half a second.
async fn settle(cluster: &Cluster) {
    let revision = || lab::end_state(cluster);
    let mut last = revision();
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_millis(500) {
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(50)).await;
        let now = revision();
        if now != last {
            last = now;
            since = Instant::now();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_arbitrary_moments_it_installs_and_removes_all_the_same() {
    let lab = Lab::start("killed").await;
    let before = lab::end_state(&lab.cluster);
    let mut installed = None;
    for seed in 0..3_u64 {
        let jitter = kata_operator::jitter::Jitter::new(seed);
        let moments =
            |count: usize| -> Vec<u64> { (0..count).map(|_| 1 + jitter.next() % 60).collect() };
        lab::create(&lab.cluster, &lab::kata_configs(), "", lab::kata_config("example"));
        lab.killed_at(&moments(5), Lab::ready).await;
        let state = lab::end_state(&lab.cluster);
        let about = format!("seed {seed}");
        lab::assert_same(&state, installed.get_or_insert_with(|| state.clone()), &about);
        lab::delete(&lab.cluster, &lab::kata_configs(), "", "example");
        lab.killed_at(&moments(5), Lab::gone).await;
        lab::assert_same(&lab::end_state(&lab.cluster), &before, &about);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_operators_one_works_and_the_other_takes_over_when_it_is_killed() {
    let lab = Lab::start("election").await;
    let (mut first, _) = lab.operator(&ELECTION).await;
    let holder = || {
        let lease = lab.cluster.with(|sim, _| sim.api.get(&LEASES, "default", "kata-operator"));
        let lease = lease.map(|lease| (*lease).clone()).unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    };
    tokio::time::timeout(LIMIT, until_real(|| !holder().is_empty())).await.unwrap();
    let one = holder();
    let (mut second, address) = lab.operator(&ELECTION).await;
    tokio::time::timeout(LIMIT, async {
        while http_get(&address, "/readyz?verbose").await.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    lab::create(&lab.cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let begun = || lab::condition(&lab.cluster, "example", "InProgress").0 == "True";
    tokio::time::timeout(LIMIT, until_real(begun)).await.unwrap();
    assert_eq!(holder(), one);
    first.kill().await.unwrap();
    tokio::time::timeout(LIMIT, until_real(|| lab.ready())).await.unwrap();
    assert_ne!(holder(), one);
    let (_, metrics) = http_get(&address, "/metrics").await.unwrap();
    assert!(metrics.contains("kata_operator_leader 1"), "{metrics}");
    second.kill().await.unwrap();
}

/// Its container would otherwise be restarted with ever longer pauses, and stay away when the outage has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_starts_in_an_outage_waits_and_works_when_it_has_ended() {
    let lab = Lab::start("outage").await;
    // Nothing listens there, and no other test gets the port.
    let held = TcpSocket::new_v4().unwrap();
    held.set_reuseaddr(true).unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = held.local_addr().unwrap();
    cluster::write_kubeconfig(&lab.kubeconfig, server).unwrap();
    lab::create(&lab.cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let (mut operator, address) = lab.operator(&ELECTION).await;
    // Each try to get the Lease asks for it three times.
    let second_try = async {
        while lease_reads_refused(&address).await < 4 {
            tokio::time::sleep_until(Instant::now() + Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        tried = tokio::time::timeout(LIMIT, second_try) => tried.unwrap(),
        ended = operator.wait() => panic!("it ended: {ended:?}"),
    }
    assert_eq!(lab.cluster.serve(server.port()).await.unwrap(), server);
    tokio::time::timeout(LIMIT, until_real(|| lab.ready())).await.unwrap();
    let (_, metrics) = http_get(&address, "/metrics").await.unwrap();
    assert!(metrics.contains("kata_operator_leader 1"), "{metrics}");
    operator.kill().await.unwrap();
}

/// How many reads of the Lease did not reach the API server.
async fn lease_reads_refused(address: &str) -> u32 {
    const SERIES: &str =
        "kata_operator_api_request_errors_total{verb=\"get\",kind=\"Lease\",category=";
    let metrics = http_get(address, "/metrics").await.map(|(_, text)| text).unwrap_or_default();
    let lines = metrics.lines().filter(|line| line.starts_with(SERIES));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok()).sum()
}

/// With the token of the service account that the manifests bring, on an API server that enforces RBAC and
/// refuses clients that present none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_its_service_account_it_does_everything_and_nothing_is_denied() {
    let lab = Lab::start("account").await;
    let token = lab::guard(&lab.cluster, &lab::installed(Platform::Openshift));
    lab.show(&token);
    let before = lab::end_state(&lab.cluster);
    let (mut operator, _) = lab.operator(&["--leader-elect"]).await;
    let until = async |what: &str, done: &dyn Fn() -> bool| {
        let end = tokio::time::timeout(LIMIT, until_real(done)).await;
        let denied = lab::denied(&lab.cluster);
        assert!(end.is_ok(), "{what}: {denied:?} {:#?}", lab::end_state(&lab.cluster));
    };
    lab::create(&lab.cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    until("installed", &|| lab.ready()).await;
    let spec = json!({"spec": {"logLevel": "debug"}});
    lab::merge(&lab.cluster, &lab::kata_configs(), "example", &spec);
    let crio = || lab::get(&lab.cluster, &CONTAINERRUNTIMECONFIGS, "kata-crio-config");
    until("rolled out a log level", &|| crio().is_some() && lab.ready()).await;

    let guest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guest"},
        "spec": {
            "runtimeClassName": "kata", "containers": [{"name": "main", "image": "x.example/x:1"}],
        },
    });
    lab::create(&lab.cluster, &PODS, "default", guest);
    let runs = || {
        let pod = lab.cluster.with(|sim, _| sim.api.get(&PODS, "default", "guest"));
        pod.is_some_and(|pod| pod["status"]["phase"] == "Running")
    };
    until("a pod runs", &runs).await;
    lab::delete(&lab.cluster, &lab::kata_configs(), "", "example");
    let blocked = || lab::condition(&lab.cluster, "example", "DeletionBlocked").0 == "True";
    until("a pod is in the way", &blocked).await;
    lab::delete(&lab.cluster, &PODS, "default", "guest");
    until("removed", &|| lab.gone()).await;
    assert!(crio().is_none());
    settle(&lab.cluster).await;
    lab::assert_same(&lab::end_state(&lab.cluster), &before, "");
    assert_eq!(lab::denied(&lab.cluster), [""; 0]);
    operator.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_says_how_it_is_and_stops_at_sigterm() {
    let lab = Lab::start("health").await;
    let (mut operator, address) = lab.operator(&[]).await;
    let healthy = async {
        loop {
            match http_get(&address, "/readyz").await {
                Some((200, text)) => return text,
                _ => tokio::time::sleep_until(Instant::now() + Duration::from_millis(20)).await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, healthy).await.unwrap(), "ok\n");
    assert_eq!(http_get(&address, "/livez").await.unwrap().0, 200);
    let (code, verbose) = http_get(&address, "/readyz?verbose").await.unwrap();
    assert_eq!(code, 200);
    assert!(verbose.contains("[+] cache of Node ok"), "{verbose}");
    // The operator is ready as soon as its caches are, which is before the end of the first pass.
    let reconciled = async {
        loop {
            let (_, metrics) = http_get(&address, "/metrics").await.unwrap();
            if metrics.contains("kata_operator_reconciles_total{") {
                return metrics;
            }
            tokio::time::sleep_until(Instant::now() + Duration::from_millis(20)).await;
        }
    };
    let metrics = tokio::time::timeout(LIMIT, reconciled).await.unwrap();
    for name in [
        "kata_operator_build_info{version=",
        "kata_operator_reconciles_total{controller=\"kataconfig\",result=\"ok\"}",
        "kata_operator_reconcile_duration_seconds_bucket",
        "kata_operator_api_requests_total{verb=\"list\",kind=\"Node\"}",
        "# EOF",
    ] {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }
    let id = operator.id().unwrap();
    let kill = Command::new("kill").args(["-TERM", &id.to_string()]).status().await.unwrap();
    assert!(kill.success());
    let ended =
        tokio::time::timeout(Duration::from_secs(10), operator.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn an_api_server_that_cannot_be_reached_is_named_and_gives_exit_code_3() {
    let kubeconfig = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nowhere.kubeconfig");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    cluster::write_kubeconfig(&kubeconfig, address).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_kata-operator"))
        .args(["run", "--kubeconfig"])
        .arg(&kubeconfig)
        .output();
    let output = tokio::time::timeout(LIMIT, run).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stderr).unwrap();
    let start = format!("error: cannot reach the API server at http://{address}: ");
    assert!(text.starts_with(&start), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[tokio::test]
async fn what_a_credential_plugin_or_a_kubeconfig_has_of_secrets_is_in_no_error() {
    const PLUGIN: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "sh", "args": ["-c", "echo s3cret; echo s3cret >&2; exit 7"]}}}]}"#;
    const BROKEN: &str = "apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user:\n    \
                          token: s3cret\n    exec: [oops\nclusters: []\n";
    for (name, text, expected) in [
        (
            "plugin",
            PLUGIN,
            "the credential plugin failed with exit status: 7; run the command under `exec` in the kubeconfig by \
             hand to see its output",
        ),
        ("broken", BROKEN, "broken.kubeconfig: it is no kubeconfig, as line "),
    ] {
        let file = format!("{name}.kubeconfig");
        let kubeconfig = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
        std::fs::write(&kubeconfig, text).unwrap();
        let run = Command::new(env!("CARGO_BIN_EXE_kata-operator"))
            .args(["run", "--kubeconfig"])
            .arg(&kubeconfig)
            .output();
        let output = tokio::time::timeout(LIMIT, run).await.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(3), "{name}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("s3cret") && !error.contains("115, 51, 99"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[tokio::test]
async fn a_wrong_command_line_gives_exit_code_2() {
    for arguments in [["run", "--platform=mars"], ["run", "--lease-duration=1"], ["fly", "away"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_kata-operator"))
            .args(arguments)
            .output()
            .await
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[tokio::test]
async fn the_crds_are_printed_as_yaml() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_kata-operator")).arg("crd").output().await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<String> = text
        .split("---\n")
        .filter(|document| !document.trim().is_empty())
        .map(|document| {
            let crd: Value = serde_saphyr::from_str(document).unwrap();
            crd["metadata"]["name"].as_str().unwrap().to_owned()
        })
        .collect();
    let expected = ["kataconfigs.kataconfiguration.openshift.io", "katanodes.kata-operator.dev"];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn the_program_has_the_commands_of_node_jobs_and_probes() {
    for (arguments, code, said) in [
        (&["probe"][..], 0, "\"bootId\""),
        (&["node-agent", "run", "--task", "install"], 2, "error: --task cannot be understood: "),
        (
            &[
                "node-agent",
                "run",
                "--task",
                r#"{"version":1,"node":"n","action":"Install","handlers":[{"name":"../x","shim":"qemu"}]}"#,
            ],
            2,
            "error: --task names \"../x\", which is no name of a handler or a shim",
        ),
        (&["node-agent", "device", "tap"], 1, "error: cannot use the device tap: "),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_kata-operator")).args(arguments).output();
        let output = tokio::time::timeout(LIMIT, run).await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}

/// The status code and body of a GET; `None` if nothing listens.
async fn http_get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let code = head.split(' ').nth(1)?.parse().ok()?;
    Some((code, body.to_owned()))
}

/// As kubectl: a proxy is not for this machine, and an empty entry of NO_PROXY is no error.
#[tokio::test(flavor = "multi_thread")]
async fn this_machine_is_reached_without_a_proxy() {
    let lab = Lab::start("proxy").await;
    let output = Command::new(env!("CARGO_BIN_EXE_kata-operator"))
        .args(["uninstall", "--check", "--kubeconfig"])
        .arg(&lab.kubeconfig)
        .envs([("HTTPS_PROXY", "http://proxy.corp.example:3128"), ("NO_PROXY", "other,,")])
        .env("HTTP_PROXY", "http://proxy.corp.example:3128")
        .stdin(Stdio::null())
        .output();
    let output = tokio::time::timeout(LIMIT, output).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "no KataConfig exists: the operator can be removed\n", "{:?}", output.status);
}

/// A proxy that does not answer is named, without its password.
#[tokio::test]
async fn a_proxy_on_the_way_is_named() {
    let kubeconfig = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proxied.kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {
            "server": "https://api.example.com:6443", "insecure-skip-tls-verify": true}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    // Nothing listens there any more.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    drop(listener);
    let output = Command::new(env!("CARGO_BIN_EXE_kata-operator"))
        .args(["uninstall", "--check", "--kubeconfig"])
        .arg(&kubeconfig)
        .env("HTTPS_PROXY", format!("http://me:s3cret@{proxy}"))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .stdin(Stdio::null())
        .output();
    let output = tokio::time::timeout(LIMIT, output).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let error = String::from_utf8(output.stderr).unwrap();
    let start = format!(
        "error: cannot reach the API server at https://api.example.com:6443 through the proxy http://{proxy}: "
    );
    assert!(error.starts_with(&start) && !error.contains("s3cret"), "{error}");
}
