//! The simulated API server held against a real one.
//!
//! Generated sequences of requests go to the simulator, and their answers are compared with those of a
//! real kube-apiserver: codes, reasons, messages, resulting objects, watch events.
//! - One test compares with answers that a real server (1.36) gave before; they are kept in
//!   `tests/fixtures/conformance`.
//! - The other, ignored unless it is asked for, asks the real server that `KATA_CONFORMANCE_KUBECONFIG` names;
//!   with `KATA_CONFORMANCE_RECORD=1` it writes those answers instead of comparing.
//!
//! What is known to differ, and why, is in [`tolerated`] and in `docs/developers/simulation.md`, nowhere else.

mod generate;
mod scrub;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use futures::StreamExt as _;
use generate::{Request, crd, sequence, watched};
use http_body_util::BodyExt as _;
use kube::client::Body;
use scrub::scrub;
use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::clock::Clock;
use simcluster::cluster::Cluster;

/// How many sequences are recorded and compared always.
const RECORDED: u64 = 64;
/// How many are compared with a real server, when there is one.
const LIVE: u64 = 400;

/// How many sequences run at the same time: a watch takes a second of a real server's time.
const AT_ONCE: usize = 24;

/// How long an answer may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// A server, and what it answered last about each object.
#[derive(Clone)]
struct Target {
    client: kube::Client,
    run: String,
    seen: BTreeMap<String, Value>,
}

/// An answer, without what differs from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    code: u16,
    body: Value,
}

impl Target {
    fn new(client: kube::Client, run: &str) -> Self {
        Self { client, run: run.to_owned(), seen: BTreeMap::new() }
    }

    fn namespace(&self, seed: u64) -> String {
        format!("conf-{}-{seed}", self.run)
    }

    fn fill(&self, seed: u64, text: &str) -> String {
        let text = text
            .replace("$NS", &self.namespace(seed))
            .replace("$ID", &format!("{}-{seed}", self.run));
        let mut filled = text;
        for name in ["one", "two", "conf-one", "conf-two"] {
            // Cluster-wide names end with the number of the sequence, which is filled in already.
            let numbered = format!("{name}-{}-{seed}", self.run);
            let (key, name) = if self.seen.contains_key(&numbered) {
                (numbered.as_str(), numbered.as_str())
            } else {
                (name, name)
            };
            let metadata = self.seen.get(key).map(|object| &object["metadata"]);
            let field = |key: &str| {
                metadata.and_then(|metadata| metadata[key].as_str()).unwrap_or("7").to_owned()
            };
            filled = filled
                .replace(&format!("$RV:{name}"), &field("resourceVersion"))
                .replace(&format!("$UID:{name}"), &field("uid"));
        }
        let list = self.seen.get("$list").map(|list| &list["metadata"]);
        let field = |key: &str| list.and_then(|list| list[key].as_str()).unwrap_or("1").to_owned();
        filled.replace("$LRV", &field("resourceVersion")).replace("$CONTINUE", &field("continue"))
    }

    async fn raw(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: String,
    ) -> (u16, String) {
        self.raw_as(method, path, content_type, "application/json", body).await
    }

    async fn raw_as(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        accept: &str,
        body: String,
    ) -> (u16, String) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", accept)
            .body(Body::from(body.into_bytes()))
            .unwrap();
        let answer = async {
            let response = self.client.send(request).await.unwrap();
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            (code, String::from_utf8_lossy(&bytes).into_owned())
        };
        tokio::time::timeout(PATIENCE, answer)
            .await
            .unwrap_or_else(|_late| (0, "no answer".to_owned()))
    }

    async fn send(&mut self, seed: u64, request: &Request) -> Answer {
        let path = self.fill(seed, &request.path);
        let body = if request.body.is_null() {
            String::new()
        } else {
            self.fill(seed, &request.body.to_string())
        };
        let (code, text) =
            self.raw_as(request.method, &path, request.content_type, request.accept, body).await;
        let answer: Value = if path.contains("watch=true") && code == 200 {
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line)))
                .collect()
        } else {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        if let Some(metadata) = answer["metadata"].as_object()
            && metadata.get("name").is_none()
            && code == 200
            && request.method == "GET"
        {
            self.seen.insert("$list".to_owned(), answer.clone());
        }
        if let Some(name) = answer["metadata"]["name"].as_str()
            && answer["kind"] != "Status"
        {
            self.seen.insert(name.to_owned(), answer.clone());
        }
        Answer { code, body: self.normalise(seed, &answer) }
    }

    /// The events of the sequence's collection since its beginning.
    async fn events(&self, seed: u64, from: &str) -> Vec<Value> {
        let path = format!(
            "{}?watch=true&timeoutSeconds=1&resourceVersion={from}",
            self.fill(seed, watched(seed))
        );
        let (_, text) = self.raw("GET", &path, "application/json", String::new()).await;
        let own = format!("-{}-{seed}", self.run);
        let shared = !watched(seed).contains("$NS");
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            // Objects without a namespace are those of all sequences.
            .filter(|event| {
                !shared
                    || event["object"]["metadata"]["name"]
                        .as_str()
                        .is_some_and(|name| name.ends_with(&own))
            })
            .filter(|event| event["object"]["metadata"]["name"] != self.namespace(seed).as_str())
            .map(|event| self.normalise(seed, &event))
            .collect()
    }

    fn normalise(&self, seed: u64, value: &Value) -> Value {
        let mut value = value.clone();
        scrub(&mut value);
        let text = value
            .to_string()
            .replace(&self.namespace(seed), "NS")
            .replace(&format!("{}-{seed}", self.run), "ID");
        serde_json::from_str(&text).unwrap()
    }
}

/// What is known to differ: a real answer and ours that count as equal. Each row needs a reason.
fn tolerated(_request: &Request, real: &Answer, ours: &Answer) -> bool {
    // The wording of errors of the JSON decoder is Go's own.
    let decoder = |answer: &Answer| answer.code == 400 && answer.body["reason"] == "BadRequest";
    let message = |answer: &Answer| answer.body["message"].as_str().unwrap_or_default().to_owned();
    let (theirs, mine) = (message(real), message(ours));
    // So is what its parser of label selectors expected, and what is wrong with a token's bytes.
    let alike =
        ["unable to parse requirement: ", "invalid continue token: continue key is not valid: "];
    // Go structs that messages show have fields that no client sees.
    let structs = theirs.contains("\"Volumes\":");
    if structs && real.code == ours.code && real.body["reason"] == ours.body["reason"] {
        return true;
    }
    // A job that is replaced without its selector is refused with fewer causes.
    if real.code == 422 && ours.code == 422 && theirs.contains("spec.selector: Required value") {
        return true;
    }
    // A watch cache that lags behind, and is told of it by newer storage only.
    if real.body.to_string().contains("Too large resource version") {
        return true;
    }
    // Admission of pods reads RuntimeClasses from a cache that lags behind their deletion.
    let lags = |answer: &Answer| message(answer).ends_with("not found") && answer.code == 403;
    if lags(ours) && (lags(real) || real.code == 409) {
        return true;
    }
    decoder(real)
        && decoder(ours)
        && (theirs.contains("json: cannot unmarshal")
            || alike.iter().any(|start| theirs.starts_with(start) && mine.starts_with(start)))
}

/// What a sequence led to.
struct Outcome {
    answers: Vec<(Request, Answer)>,
    events: Vec<Value>,
}

async fn play(target: &mut Target, seed: u64) -> Outcome {
    target.seen.clear();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target.namespace(seed)}});
    let (code, text) =
        target.raw("POST", "/api/v1/namespaces", "application/json", namespace.to_string()).await;
    assert_eq!(code, 201, "{text}");
    let created: Value = serde_json::from_str(&text).unwrap();
    let from = created["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    // Reads from before the first list begin where the sequence does.
    target.seen.insert("$list".to_owned(), created);
    let mut answers = Vec::new();
    for request in sequence(seed) {
        let answer = target.send(seed, &request).await;
        answers.push((request, answer));
    }
    let events = target.events(seed, &from).await;
    Outcome { answers, events }
}

async fn prepare(target: &Target) {
    let name = "widgets.conformance.example.com";
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager=conformance&force=true"
    );
    let (code, text) =
        target.raw("PATCH", &path, "application/apply-patch+yaml", crd().to_string()).await;
    assert!(code == 200 || code == 201, "{text}");
    for _ in 0..200 {
        let (code, _) = target
            .raw(
                "GET",
                "/apis/conformance.example.com/v1/widgets",
                "application/json",
                String::new(),
            )
            .await;
        if code == 200 {
            return;
        }
        tokio::task::yield_now().await;
        tokio::time::timeout(std::time::Duration::from_millis(100), std::future::pending::<()>())
            .await
            .unwrap_err();
    }
    panic!("the CRD is not served");
}

fn simulator() -> Target {
    let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
    let cluster = Cluster::start(Simulation::new(epoch, Vec::new()), Clock::starting_at(epoch));
    Target::new(kube::Client::new(cluster.client_service(), "default"), "s")
}

fn fixture(seed: u64) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/fixtures/conformance/{seed:03}.json"))
}

fn record(outcome: &Outcome) -> String {
    let answers: Vec<Value> = outcome
        .answers
        .iter()
        .map(|(request, answer)| json!({"request": format!("{} {}", request.method, request.path), "code": answer.code, "body": answer.body}))
        .collect();
    // One answer or event per line keeps differences readable and the files small.
    let mut text = String::from("{\"answers\": [\n");
    let lines =
        |values: &[Value]| values.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n");
    text.push_str(&lines(&answers));
    text.push_str("\n], \"events\": [\n");
    text.push_str(&lines(&outcome.events));
    text.push_str("\n]}\n");
    text
}

fn recorded(seed: u64) -> (Vec<Answer>, Vec<Value>) {
    let path = fixture(seed);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut value: Value = serde_json::from_str(&text).unwrap();
    scrub(&mut value);
    let answers = value["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| Answer {
            code: u16::try_from(answer["code"].as_u64().unwrap()).unwrap(),
            body: answer["body"].clone(),
        })
        .collect();
    (answers, value["events"].as_array().unwrap().clone())
}

/// Differences between what the real server answered and what the simulator did, for people.
fn compare(seed: u64, real: &(Vec<Answer>, Vec<Value>), ours: &Outcome) -> Vec<String> {
    let mut differences = Vec::new();
    let mut diverged = false;
    assert_eq!(
        real.0.len(),
        ours.answers.len(),
        "the fixture of seed {seed} is of another generator: record it anew"
    );
    for (step, (real, (request, ours))) in real.0.iter().zip(&ours.answers).enumerate() {
        if real == ours || tolerated(request, real, ours) {
            continue;
        }
        // What follows from a different state says nothing new.
        diverged = true;
        let mut text = format!(
            "seed {seed} step {step}: {} {}\n   body {}\n",
            request.method, request.path, request.body
        );
        _ = writeln!(text, "   real {} \n   ours {}", real.code, ours.code);
        walk("", &real.body, &ours.body, &mut text);
        differences.push(text);
        break;
    }
    if !diverged && real.1 != ours.events {
        let at = real
            .1
            .iter()
            .zip(&ours.events)
            .position(|(a, b)| a != b)
            .unwrap_or_else(|| real.1.len().min(ours.events.len()));
        let mut text =
            format!("seed {seed}: event {at} of {} (ours {})\n", real.1.len(), ours.events.len());
        walk(
            "",
            real.1.get(at).unwrap_or(&Value::Null),
            ours.events.get(at).unwrap_or(&Value::Null),
            &mut text,
        );
        differences.push(text);
    }
    differences
}

fn walk(path: &str, real: &Value, ours: &Value, text: &mut String) {
    match (real, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                walk(&format!("{path}.{key}"), &real[key], &ours[key], text);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{index}]"), a, b, text);
            }
        }
        _ if real != ours => _ = writeln!(text, "   {path}: real {real} ours {ours}"),
        _ => {}
    }
}

fn judge(differences: &[String], sequences: u64) {
    assert!(
        differences.is_empty(),
        "{} of {sequences} sequences differ from the real API server:\n{}",
        differences.len(),
        differences.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n")
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "the environment says which real server to compare with"
)]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

async fn real_server(path: &str) -> Target {
    let kubeconfig = kube::config::Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(
        kubeconfig,
        &kube::config::KubeConfigOptions::default(),
    )
    .await
    .unwrap();
    let run = format!("{:x}", std::process::id());
    Target::new(kube::Client::try_from(config).unwrap(), &run)
}

#[tokio::test]
async fn the_simulator_answers_as_a_real_api_server_did() {
    let mut sim = simulator();
    prepare(&sim).await;
    // The end of a watch of the simulator is not waited for in real time.
    tokio::time::pause();
    let mut differences = Vec::new();
    for seed in 0..RECORDED {
        let ours = play(&mut sim, seed).await;
        differences.extend(compare(seed, &recorded(seed), &ours));
    }
    judge(&differences, RECORDED);
}

#[tokio::test]
#[ignore = "needs a foreign cluster"]
async fn the_simulator_answers_as_a_foreign_cluster_does() {
    let sim = simulator();
    let recording = setting("KATA_CONFORMANCE_RECORD").is_some();
    if !recording {
        prepare(&sim).await;
    }
    let path = setting("KATA_CONFORMANCE_KUBECONFIG");
    let path = path.expect("KATA_CONFORMANCE_KUBECONFIG names no file");
    let real = real_server(&path).await;
    prepare(&real).await;
    let mut differences = Vec::new();
    let (mut requests, mut events) = (0, 0);
    let sequences = if recording { RECORDED } else { LIVE };
    let mut tasks = futures::stream::iter(0..sequences)
        .map(|seed| {
            let (mut real, mut sim) = (real.clone(), sim.clone());
            async move {
                let theirs = play(&mut real, seed).await;
                let ours = if recording { None } else { Some(play(&mut sim, seed).await) };
                (seed, theirs, ours)
            }
        })
        .buffered(AT_ONCE);
    while let Some((seed, theirs, ours)) = tasks.next().await {
        let Some(ours) = ours else {
            std::fs::create_dir_all(fixture(seed).parent().unwrap()).unwrap();
            std::fs::write(fixture(seed), record(&theirs)).unwrap();
            continue;
        };
        requests += ours.answers.len();
        events += theirs.events.len();
        let theirs =
            (theirs.answers.into_iter().map(|(_, answer)| answer).collect(), theirs.events);
        differences.extend(compare(seed, &theirs, &ours));
    }
    eprintln!(
        "compared {sequences} sequences, {requests} requests, {events} events with the server of {path}"
    );
    judge(&differences, sequences);
}
