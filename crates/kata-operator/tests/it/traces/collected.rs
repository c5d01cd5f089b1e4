//! What a collector gets: one on the loopback interface, which decodes what it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use prost::Message;
use serde_json::Value;
use tokio::net::TcpListener;

use super::{TOKEN, install};

// The fields of OTLP that matter here, by their numbers (opentelemetry-proto, trace/v1/trace.proto and
// common/v1/common.proto).

#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    number: Option<i64>,
}

fn attributes(list: &[Attribute]) -> BTreeMap<&str, String> {
    let text = |value: &AnyValue| {
        let number = value.number.map(|number| number.to_string());
        value.text.clone().or(number).unwrap_or_default()
    };
    list.iter()
        .map(|each| (each.key.as_str(), each.value.as_ref().map(text).unwrap_or_default()))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the collector got: all bytes, and what they mean.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<(Vec<u8>, Vec<Export>)>>);

impl Received {
    /// Serves a collector; returns its address.
    async fn listen(&self) -> String {
        let take = |State(received): State<Self>, headers: HeaderMap, body: Bytes| async move {
            if headers["content-type"] != "application/x-protobuf" || headers["x-tenant"] != "kata"
            {
                return StatusCode::BAD_REQUEST;
            }
            let mut received = received.0.lock().unwrap();
            for (name, value) in &headers {
                received.0.extend_from_slice(name.as_ref());
                received.0.extend_from_slice(value.as_bytes());
            }
            received.0.extend_from_slice(&body);
            received.1.push(Export::decode(body).unwrap());
            StatusCode::OK
        };
        let routes = axum::Router::new()
            .route("/otlp/v1/traces", axum::routing::post(take))
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/otlp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        address
    }

    fn spans(&self) -> Vec<Span> {
        let received = self.0.lock().unwrap();
        let resources = received.1.iter().flat_map(|export| &export.resources);
        let scopes = resources.flat_map(|resource| &resource.scopes);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_gets_each_pass_with_its_steps_and_calls_and_no_secret() {
    let received = Received::default();
    let address = received.listen().await;
    let log = install(
        "traces",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &address),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=kata"),
            ("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=simulated"),
            ("OTEL_BSP_SCHEDULE_DELAY", "200"),
        ],
    )
    .await;
    let spans = received.spans();
    let of = |name: &str| -> Vec<&Span> { spans.iter().filter(|span| span.name == name).collect() };
    let passes = of("reconcile");
    assert!(passes.iter().all(|pass| pass.parent_span_id.is_empty()));
    let about: Vec<_> = passes.iter().map(|pass| attributes(&pass.attributes)).collect();
    let last = about.last().unwrap();
    assert_eq!(
        (last["kata.config"].as_str(), last["kata.outcome"].as_str(), last["kata.nodes"].as_str()),
        ("example", "ok", "1"),
        "{about:#?}"
    );
    assert!(about.iter().all(|pass| pass.contains_key("kata.codes")), "{about:#?}");
    // All that is done is done in a pass: each span but a pass has a parent, in the same trace.
    let by_id: BTreeMap<_, _> = spans.iter().map(|span| (&span.span_id, span)).collect();
    for span in spans.iter().filter(|span| span.name != "reconcile") {
        let parent = by_id[&span.parent_span_id];
        assert_eq!(parent.trace_id, span.trace_id, "{}", span.name);
    }
    let steps: BTreeSet<_> = of("step")
        .into_iter()
        .map(|span| {
            let mut about = attributes(&span.attributes);
            (about.remove("kata.object").unwrap(), about.remove("kata.outcome").unwrap())
        })
        .collect();
    for object in ["RuntimeClass kata", "MachineConfigPool kata-oc"] {
        assert!(steps.contains(&(object.to_owned(), "ok".to_owned())), "{steps:?}");
    }
    for name in ["decide", "report", "apply RuntimeClass kata"] {
        assert!(!of(name).is_empty(), "no span {name}");
    }
    // The lines of the log lead to the traces.
    let traces: BTreeSet<String> = passes.iter().map(|pass| hex(&pass.trace_id)).collect();
    let lines: Vec<_> = log.iter().filter_map(|line| line["span"]["trace_id"].as_str()).collect();
    assert!(lines.len() > 3, "{log:#?}");
    assert!(lines.iter().all(|id| traces.contains(*id)), "{lines:?} {traces:?}");
    assert!(log.iter().all(|line| line["level"] != "WARN"), "{log:#?}");
    let received = received.0.lock().unwrap();
    let resource = received.1[0].resources[0].resource.clone().unwrap();
    let resource = attributes(&resource.attributes);
    assert_eq!(
        (resource["service.name"].as_str(), resource["k8s.cluster.name"].as_str()),
        ("kata-operator", "simulated")
    );
    assert!(!String::from_utf8_lossy(&received.0).contains(TOKEN));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_not_there_holds_up_nothing_but_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    // It takes the connection and never answers.
    let log = install("untraced", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &address)]).await;
    let reported = |line: &&Value| {
        line["message"].as_str().is_some_and(|text| text.contains("traces could not be sent"))
    };
    assert_eq!(log.iter().filter(reported).count(), 1, "{log:#?}");
}
