//! `/metrics` and health as Prometheus and the kubelet get them: over HTTP, and by the letter of the
//! format.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kata_operator::Settings;
use serde_json::json;
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::{PODS, RUNTIMECLASSES};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_mins(60);

/// An operator in process that serves metrics and health on a free port.
pub(crate) async fn served(cluster: &Cluster) -> (Operator, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut settings = Settings {
        health_address: Some(address),
        metrics_address: Some(address),
        ..Settings::simulated(lab::epoch())
    };
    settings.options.agent_image = Some("registry.example/kata-operator:1".to_owned());
    let operator = Operator::with(cluster, settings);
    // Until it serves.
    lab::pass(Duration::from_secs(1)).await;
    (operator, address.to_string())
}

/// Status line, headers and body.
pub(crate) async fn get(address: &str, path: &str) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_owned(), body.to_owned())
}

/// A metric family as read from the text.
#[derive(Debug, Default)]
struct Family {
    type_: String,
    help: String,
    unit: Option<String>,
    /// Samples: name, labels, value.
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Family {
    /// Names of labels besides those of the format.
    fn labels(&self) -> BTreeSet<&str> {
        let names = self.samples.iter().flat_map(|(_, labels, _)| labels.keys());
        names.map(String::as_str).filter(|name| *name != "le").collect()
    }

    fn value(&self, wanted: &[(&str, &str)]) -> Option<f64> {
        self.samples
            .iter()
            .find(|(_, labels, _)| {
                wanted.iter().all(|(key, value)| labels.get(*key).is_some_and(|has| has == value))
            })
            .map(|(.., value)| *value)
    }
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// `{a="b",c="d"}` into a map, and what follows it.
fn labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (labels, text) };
    while !rest.starts_with('}') {
        let (name, after) = rest.split_once("=\"").unwrap();
        assert!(is_name(name), "{text}: label {name:?}");
        let (mut value, mut end, mut escaped) = (String::new(), None, false);
        for (at, c) in after.char_indices() {
            match c {
                _ if escaped => {
                    assert!(['n', '"', '\\'].contains(&c), "{text}: escape {c:?}");
                    escaped = false;
                    value.push(c);
                }
                '\\' => escaped = true,
                '"' => {
                    end = Some(at + 1);
                    break;
                }
                c => value.push(c),
            }
        }
        let before = labels.insert(name.to_owned(), value);
        assert!(before.is_none(), "{text}: label {name} twice");
        rest = &after[end.unwrap()..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    (labels, &rest[1..])
}

/// Reads the text, and fails at the first thing that the format does not allow.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut series = BTreeSet::new();
    let body = text.strip_suffix("# EOF\n").unwrap();
    for line in body.lines() {
        assert!(!line.is_empty() && line.trim_end() == line, "{line:?}");
        if let Some(rest) = line.strip_prefix("# ") {
            let (keyword, rest) = rest.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap();
            assert!(is_name(name), "{line}");
            if name != current {
                assert!(!families.contains_key(name), "{line}: the family comes in two parts");
                current = name.to_owned();
            }
            let family = families.entry(name.to_owned()).or_default();
            assert!(family.samples.is_empty(), "{line}: after samples");
            match keyword {
                "HELP" => {
                    assert!(family.help.is_empty() && value.len() > 5, "{line}");
                    value.clone_into(&mut family.help);
                }
                "TYPE" => {
                    assert!(family.type_.is_empty(), "{line}: twice");
                    assert!(["counter", "gauge", "histogram"].contains(&value), "{line}");
                    value.clone_into(&mut family.type_);
                }
                "UNIT" => {
                    assert!(name.ends_with(&format!("_{value}")), "{line}: not the name's unit");
                    family.unit = Some(value.to_owned());
                }
                _ => assert_eq!(keyword, "HELP, TYPE or UNIT", "{line}"),
            }
            continue;
        }
        let end = line.find(['{', ' ']).unwrap();
        let (name, rest) = line.split_at(end);
        let (labels, value) = labels(rest);
        let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
        let family = families.get_mut(&current).unwrap();
        assert!(name.starts_with(&current), "{line}: in {current}");
        let suffix = name.strip_prefix(&current).unwrap();
        let allowed: &[&str] = match family.type_.as_str() {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(allowed.contains(&suffix), "{line}: a {}", family.type_);
        assert_eq!(labels.contains_key("le"), suffix == "_bucket", "{line}");
        assert!(series.insert(format!("{name}{labels:?}")), "{line}: twice");
        assert!(value >= 0.0, "{line}");
        family.samples.push((name.to_owned(), labels, value));
    }
    for (name, family) in &families {
        assert!(!family.type_.is_empty() && !family.help.is_empty(), "{name}: {family:?}");
        assert!(name.starts_with("kata_operator_"), "{name}");
        for suffix in ["_total", "_count", "_sum", "_bucket"] {
            assert!(!name.ends_with(suffix), "{name}");
        }
        assert_eq!(name.ends_with("_seconds"), family.unit.as_deref() == Some("seconds"), "{name}");
        if family.type_ == "histogram" {
            buckets(name, family);
        }
    }
    families
}

/// Buckets grow, and the last one has everything.
fn buckets(name: &str, family: &Family) {
    let mut last: BTreeMap<BTreeMap<String, String>, (f64, f64)> = BTreeMap::new();
    for (sample, labels, value) in &family.samples {
        let mut of = labels.clone();
        match (sample.ends_with("_bucket"), of.remove("le")) {
            (true, Some(le)) => {
                let le = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
                let (limit, count) =
                    last.insert(of, (le, *value)).unwrap_or((f64::NEG_INFINITY, 0.0));
                assert!(limit < le && count <= *value, "{name}: {labels:?}");
            }
            _ if sample.ends_with("_count") => {
                if let Some((limit, count)) = last.get(&of) {
                    assert_eq!((*limit, *count), (f64::INFINITY, *value), "{name}: {labels:?}");
                }
            }
            _ => {}
        }
    }
    assert!(last.values().all(|(limit, _)| limit.is_infinite()), "{name}");
}

/// The table of the documentation: type and labels by name.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let page = include_str!("../../../../docs/metrics.md");
    page.lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| `kata_operator_")?.split('|').collect();
            let name = format!("kata_operator_{}", cells[0].trim().trim_end_matches('`'));
            let labels = cells[2].split(',').map(|label| label.trim().trim_matches('`').to_owned());
            let labels = labels.filter(|label| !label.is_empty()).collect();
            Some((name, (cells[1].trim().to_owned(), labels)))
        })
        .collect()
}

/// What is reported after an installation where Jobs change the nodes.
async fn by_jobs() -> BTreeMap<String, Family> {
    let cluster = lab::kubernetes();
    lab::create_home(&cluster);
    let (operator, address) = served(&cluster).await;
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    let families = parse(&get(&address, "/metrics").await.2);
    let jobs = &families["kata_operator_node_jobs"];
    let ended = |action, outcome| jobs.value(&[("action", action), ("outcome", outcome)]);
    assert_eq!((ended("Preflight", "Done"), ended("Install", "Done")), (Some(1.0), Some(1.0)));
    assert_eq!((ended("Install", "RolledBack"), ended("Remove", "Done")), (Some(0.0), Some(0.0)));
    assert_eq!(families["kata_operator_runtime_restarts"].value(&[]), Some(1.0));
    let took = &families["kata_operator_node_job_duration_seconds"].samples;
    let sum = took
        .iter()
        .find(|(name, labels, _)| name.ends_with("_sum") && labels["action"] == "Install");
    let seconds = sum.unwrap().2;
    assert!((10.0..120.0).contains(&seconds), "an installation takes {seconds} s");
    // A sandbox that began before an upgrade.
    let pod = json!({"metadata": {"name": "old"}, "spec": {
        "runtimeClassName": "kata",
        "containers": [{"name": "main", "image": "registry.example/app:1"}],
    }});
    lab::create(&cluster, &PODS, "default", pod);
    lab::pass(Duration::from_mins(1)).await;
    let payload = json!({"spec": {"payload": {"image": "registry.example/kata:9.9.9"}}});
    lab::merge(&cluster, &lab::kata_configs(), "example", &payload);
    lab::pass(Duration::from_mins(5)).await;
    let families = parse(&get(&address, "/metrics").await.2);
    let earlier = &families["kata_operator_earlier_sandboxes"].samples;
    assert_eq!(earlier.iter().map(|(.., value)| *value).sum::<f64>(), 1.0);
    drop(operator);
    families
}

#[tokio::test(start_paused = true)]
async fn the_metrics_are_well_formed_and_are_those_of_the_documentation() {
    let cluster = lab::openshift(3, 2);
    let (operator, address) = served(&cluster).await;
    let (status, headers, _) = get(&address, "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(headers.contains("application/openmetrics-text; version=1.0.0"), "{headers}");

    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    // A refused call and a watch that starts over, so that every family has something to show.
    cluster.with(|sim, _| {
        use simcluster::api::fault::{Fault, Match, Rule, When};
        let fault =
            Fault::Status { code: 503, retry_after: None, message: None, when: When::Before };
        for verb in ["watch", "list"] {
            let matches = Match { verb: verb.to_owned(), ..Match::default() };
            sim.frontend.faults.add(Rule::once(matches, fault.clone()));
        }
    });
    lab::pass(Duration::from_mins(10)).await;
    let families = parse(&get(&address, "/metrics").await.2);

    // What Jobs do on nodes is reported where they do it.
    let by_jobs = by_jobs().await;
    let exposed: BTreeMap<String, (String, BTreeSet<String>)> = families
        .iter()
        .chain(&by_jobs)
        .map(|(name, family)| {
            let suffix = if family.type_ == "counter" { "_total" } else { "" };
            let labels = family.labels().into_iter().map(str::to_owned).collect();
            (format!("{name}{suffix}"), (family.type_.clone(), labels))
        })
        .collect();
    assert_eq!(exposed, documented(), "docs/metrics.md");

    let of = |name: &str| &families[&format!("kata_operator_{name}")];
    assert_eq!(of("nodes").value(&[("phase", "Ready")]), Some(2.0));
    assert_eq!(of("nodes").value(&[("phase", "Failed")]), Some(0.0));
    let condition = |status| {
        of("config_condition").value(&[("name", "example"), ("type", "Ready"), ("status", status)])
    };
    assert_eq!((condition("True"), condition("False")), (Some(1.0), Some(0.0)));
    let phases = of("node_phase_duration_seconds");
    let count = |name: &str, phase: &str| {
        let samples = phases.samples.iter().filter(|(sample, labels, _)| {
            sample.ends_with(name) && labels.get("phase").is_some_and(|is| is == phase)
        });
        samples.map(|(.., value)| *value).next_back()
    };
    assert_eq!(count("_count", "Installing"), Some(2.0));
    let seconds = count("_sum", "Installing").unwrap();
    assert!((400.0..3_000.0).contains(&seconds), "two installations take {seconds} s");
    assert!(of("findings").samples.iter().all(|(.., value)| *value == 0.0));
    assert_eq!(of("leader").value(&[]), Some(1.0));
    let series: usize = families.values().map(|family| family.samples.len()).sum();
    assert!(series < 600, "{series} series");

    // What is gone is not reported any more.
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, gone).await);
    lab::pass(Duration::from_mins(6)).await;
    let families = parse(&get(&address, "/metrics").await.2);
    let nodes = &families["kata_operator_nodes"];
    assert!(nodes.samples.iter().all(|(.., value)| *value == 0.0), "{nodes:?}");
    // A family without a sample is left out.
    assert!(!families.contains_key("kata_operator_config_condition"));
    drop(operator);
}

#[tokio::test(start_paused = true)]
async fn the_conditions_of_kataconfigs_that_cannot_be_read_are_unknown() {
    let cluster = lab::openshift(3, 2);
    let (operator, address) = served(&cluster).await;
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    let fail = |verb: &str, fault| {
        let matches =
            Match { verb: verb.to_owned(), resource: "kataconfigs".to_owned(), ..Match::default() };
        cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, fault).times(0)));
    };
    for verb in ["list", "watch"] {
        let code = 403;
        fail(verb, Fault::Status { code, retry_after: None, message: None, when: When::Before });
    }
    fail("", Fault::CloseWatch);
    let note = serde_json::json!({"metadata": {"annotations": {"example.com/note": "1"}}});
    lab::merge(&cluster, &lab::kata_configs(), "example", &note);
    lab::pass(Duration::from_mins(10)).await;
    let conditions = async || {
        let mut families = parse(&get(&address, "/metrics").await.2);
        families.remove("kata_operator_config_condition").unwrap()
    };
    let is = |family: &Family, status| {
        family.value(&[("name", "example"), ("type", "Ready"), ("status", status)]) == Some(1.0)
    };
    let unread = conditions().await;
    assert!(is(&unread, "Unknown") && !is(&unread, "True"), "{unread:?}");
    cluster.with(|sim, _| sim.frontend.faults.clear());
    lab::pass(Duration::from_mins(10)).await;
    let read = conditions().await;
    assert!(is(&read, "True") && !is(&read, "Unknown"), "{read:?}");
    drop(operator);
}

/// The number of series does not depend on the number of nodes.
#[tokio::test(start_paused = true)]
async fn labels_are_bounded() {
    let mut series = Vec::new();
    for workers in [2, 30] {
        let cluster = lab::openshift(workers, workers);
        let (operator, address) = served(&cluster).await;
        lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
        let limit = LIMIT * workers;
        assert!(lab::until(limit, || lab::is_ready(&cluster, "example")).await);
        let families = parse(&get(&address, "/metrics").await.2);
        let bounded = ["nodes", "node_phase_duration_seconds", "config_condition", "findings"];
        series.push(bounded.map(|name| families[&format!("kata_operator_{name}")].samples.len()));
        drop(operator);
    }
    assert_eq!(series[0], series[1]);
}

#[tokio::test(start_paused = true)]
async fn health_says_what_is_missing() {
    use simcluster::api::fault::{Fault, Match, Rule, When};
    let cluster = lab::openshift(1, 1);
    cluster.with(|sim, _| {
        let matches = Match { resource: "runtimeclasses".to_owned(), ..Match::default() };
        let fault =
            Fault::Status { code: 403, retry_after: None, message: None, when: When::Before };
        sim.frontend.faults.add(Rule::once(matches, fault).times(0));
    });
    let (operator, address) = served(&cluster).await;
    lab::pass(Duration::from_mins(1)).await;
    assert_eq!(get(&address, "/livez").await.2, "ok\n");
    let (status, _, text) = get(&address, "/readyz").await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(text.contains("[-] cache of RuntimeClass failed: list RuntimeClass: 403"), "{text}");
    assert!(text.ends_with("readyz check failed\n"), "{text}");

    cluster.with(|sim, _| sim.frontend.faults.clear());
    lab::pass(Duration::from_mins(2)).await;
    assert_eq!(get(&address, "/readyz").await.2, "ok\n");
    let (status, _, text) = get(&address, "/readyz?verbose").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(
        text.contains("[+] cache of Node ok\n") && text.ends_with("readyz check passed\n"),
        "{text}"
    );
    assert!(operator.runs());
}

/// How many passes there were.
pub(crate) async fn passes(address: &str) -> f64 {
    let (_, _, text) = get(address, "/metrics").await;
    parse(&text)["kata_operator_reconciles"].samples.iter().map(|(.., value)| value).sum()
}

/// Two Events are held back; the API server is too busy for the first when its minute is over, and the second
/// comes due while the operator leaves it in peace.
#[tokio::test(start_paused = true)]
async fn events_that_wait_for_a_busy_api_server_cost_no_passes() {
    let cluster = lab::openshift(3, 1);
    let (operator, address) = served(&cluster).await;
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(Duration::from_mins(2)).await;
    for _ in 0..2 {
        lab::delete(&cluster, &RUNTIMECLASSES, "", "kata");
        let is_back = || lab::get(&cluster, &RUNTIMECLASSES, "kata").is_some();
        assert!(lab::until(LIMIT, is_back).await);
        lab::pass(Duration::from_secs(5)).await;
    }
    let busy = Fault::Status { code: 503, retry_after: None, message: None, when: When::Before };
    let matches =
        Match { verb: "create".to_owned(), resource: "events".to_owned(), ..Match::default() };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, busy).times(0)));
    let (tried, before) = (events(&operator), passes(&address).await);
    lab::pass(Duration::from_mins(2)).await;
    let more = passes(&address).await - before;
    assert!(events(&operator) > tried, "no Event was tried");
    assert!(more < 30.0, "{more} passes in two minutes");
    assert!(operator.runs());
}

/// How many Events were sent.
fn events(operator: &Operator) -> usize {
    operator
        .requests()
        .iter()
        .filter(|line| line.starts_with("POST ") && line.contains("/events"))
        .count()
}
