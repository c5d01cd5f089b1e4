//! A CRI server that answers as those do that cannot be had here: CRI-O, one that is not ready, one that
//! hangs, one whose CRI plugin is dead, and one that talks nonsense.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use kata_host::host::{CriStatus, HostErrorKind};
use kata_node_agent::cri::message::{
    PodSandbox, PodSandboxMetadata, RuntimeCondition, RuntimeHandler, RuntimeStatus,
    StatusResponse, VersionResponse,
};
use kata_node_agent::cri::{Client, decode, message, plugins};
use proptest::prelude::*;
use prost::Message as _;
use tokio::net::UnixListener;

use crate::lab::workspace;

/// What the server does with every call.
#[derive(Clone)]
pub(crate) enum Answer {
    Message(Vec<u8>),
    Status(&'static str),
    Raw(Vec<u8>),
    Never,
    Closes,
}

/// Serves until the test ends.
fn serve(name: &str, answer: Answer) -> PathBuf {
    let folder = workspace().join("target/nodes");
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join(format!("mock-{name}.sock"));
    if socket.exists() {
        std::fs::remove_file(&socket).unwrap();
    }
    if matches!(answer, Answer::Closes) {
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
    } else {
        serve_at(&socket, move |_, _| answer.clone());
    }
    socket
}

/// The same at a socket, with an answer that depends on the path of the method and the message.
pub(crate) fn serve_at(
    socket: &Path,
    answer: impl Fn(&str, &[u8]) -> Answer + Send + Sync + 'static,
) {
    let answer = std::sync::Arc::new(answer);
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = UnixListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer.clone();
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        let (head, mut content) = request.into_parts();
                        // The connection brings it only while it is driven.
                        let mut asked = Vec::new();
                        loop {
                            tokio::select! {
                                chunk = content.data() => match chunk {
                                    Some(chunk) => asked.extend_from_slice(&chunk.unwrap()),
                                    None => break,
                                },
                                _ = std::future::poll_fn(|cx| connection.poll_closed(cx)) => break,
                            }
                        }
                        let message = asked.get(5..).unwrap_or_default();
                        let (body, status) = match answer(head.uri.path(), message) {
                            Answer::Message(message) => {
                                let length = u32::try_from(message.len()).unwrap();
                                let prefix = [&[0][..], &length.to_be_bytes()].concat();
                                ([prefix, message].concat(), "0")
                            }
                            Answer::Raw(bytes) => (bytes, "0"),
                            Answer::Status(status) => (Vec::new(), status),
                            Answer::Closes => break,
                            Answer::Never => {
                                std::mem::forget(respond);
                                continue;
                            }
                        };
                        let mut stream = respond.send_response(Response::new(()), false).unwrap();
                        stream.send_data(Bytes::from(body), false).unwrap();
                        let mut trailers = HeaderMap::new();
                        trailers.insert("grpc-status", HeaderValue::from_static(status));
                        trailers.insert(
                            "grpc-message",
                            HeaderValue::from_static("unknown service runtime.v1.RuntimeService"),
                        );
                        stream.send_trailers(trailers).unwrap();
                    }
                });
            }
        });
    });
}

fn status_of(socket: &Path) -> Result<CriStatus, HostErrorKind> {
    Client::new().unwrap().status(socket).map_err(|fault| fault.at("/cri.sock").kind)
}

/// What CRI-O reports of a sandbox, of what is needed.
pub(crate) fn crio_status(handler: &str) -> Vec<u8> {
    let info = serde_json::json!({
        "image": "registry.example/pause",
        "pid": 42,
        "runtimeSpec": {
            "ociVersion": "1.2.1",
            "annotations": {"io.kubernetes.cri-o.RuntimeHandler": handler},
        },
    });
    let info = [("info".to_owned(), info.to_string())].into();
    message::PodSandboxStatusResponse { info }.encode_to_vec()
}

pub(crate) fn ready(ready: bool) -> Option<RuntimeStatus> {
    let condition = |name: &str, status| RuntimeCondition {
        r#type: name.to_owned(),
        status,
        reason: "NetworkPluginNotReady".to_owned(),
        message: "no CNI".to_owned(),
    };
    let conditions = vec![condition("NetworkReady", false), condition("RuntimeReady", ready)];
    Some(RuntimeStatus { conditions })
}

#[test]
fn cri_o_tells_its_handlers_and_version() {
    let handlers = ["crun", "kata", ""].map(|name| RuntimeHandler { name: name.to_owned() });
    let response = StatusResponse {
        status: ready(true),
        runtime_handlers: handlers.to_vec(),
        ..StatusResponse::default()
    };
    let status = status_of(&serve("crio", Answer::Message(response.encode_to_vec()))).unwrap();
    assert!(status.runtime_ready, "the network is not our business: {status:?}");
    assert_eq!(status.handlers, ["crun", "kata", ""]);
    assert_eq!(status.config, None);

    let version =
        VersionResponse { runtime_name: "cri-o".to_owned(), runtime_version: "1.34.1".to_owned() };
    let socket = serve("crio-version", Answer::Message(version.encode_to_vec()));
    let version = Client::new().unwrap().version(&socket).unwrap();
    assert_eq!((version.name.as_str(), version.version.as_str()), ("cri-o", "1.34.1"));
}

#[test]
fn ten_thousand_sandboxes_arrive_whole() {
    let metadata = PodSandboxMetadata {
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        ..PodSandboxMetadata::default()
    };
    let items = (0..10_000).map(|index| PodSandbox {
        id: format!("{index:064}"),
        metadata: Some(metadata.clone()),
        state: index % 2,
        runtime_handler: "kata".to_owned(),
    });
    let response = message::ListPodSandboxResponse { items: items.collect() };
    let socket = serve("many", Answer::Message(response.encode_to_vec()));
    let sandboxes = Client::new().unwrap().sandboxes(&socket).unwrap();
    assert_eq!(sandboxes.len(), 10_000);
    assert_eq!(sandboxes.iter().filter(|sandbox| sandbox.ready).count(), 5_000);
    assert_eq!((sandboxes[7].namespace.as_str(), sandboxes[7].pod.as_str()), ("shop", "web"));
}

/// CRI-O's list has no handlers: an agent that relied on it would take Kata from under every sandbox.
#[test]
fn the_handlers_of_cri_os_sandboxes_are_asked_for() {
    let sandboxes = |states: &'static [(&'static str, i32)], handler: &'static str| {
        let socket = serve(handler, Answer::Closes);
        std::fs::remove_file(&socket).unwrap();
        serve_at(&socket, move |method, asked| {
            Answer::Message(match method.rsplit('/').next() {
                Some("Version") => {
                    let runtime_name = "cri-o".to_owned();
                    VersionResponse { runtime_name, ..VersionResponse::default() }.encode_to_vec()
                }
                Some("ListPodSandbox") => {
                    let items = states.iter().map(|(id, state)| PodSandbox {
                        id: (*id).to_owned(),
                        state: *state,
                        ..PodSandbox::default()
                    });
                    message::ListPodSandboxResponse { items: items.collect() }.encode_to_vec()
                }
                Some("PodSandboxStatus") => {
                    let request = message::PodSandboxStatusRequest::decode(asked).unwrap();
                    match request.pod_sandbox_id.as_str() {
                        "gone" => return Answer::Status("5"),
                        "plain" => crio_status(""),
                        "odd" => message::PodSandboxStatusResponse::default().encode_to_vec(),
                        _ => crio_status(handler),
                    }
                }
                _ => return Answer::Status("12"),
            })
        });
        Client::new().unwrap().sandboxes(&socket)
    };
    let found = sandboxes(&[("vm", 0), ("plain", 0), ("gone", 0), ("odd", 1)], "kata").unwrap();
    let found: Vec<_> =
        found.iter().map(|it| (it.id.as_str(), it.handler.as_str(), it.ready)).collect();
    let wanted =
        [("vm", "kata", true), ("plain", "", true), ("gone", "", false), ("odd", "", false)];
    assert_eq!(found, wanted);
    // One that may be ours is not taken for another program's.
    let fault = sandboxes(&[("vm", 0), ("odd", 0)], "kata-two").unwrap_err().at("/crio.sock");
    let text = "CRI-O does not report the handler of sandbox odd: it has no verbose information";
    assert_eq!(fault.reason, text);
}

#[test]
fn a_runtime_that_is_not_ready_says_why() {
    let response = StatusResponse { status: ready(false), ..StatusResponse::default() };
    let status = status_of(&serve("unready", Answer::Message(response.encode_to_vec()))).unwrap();
    assert!(!status.runtime_ready);
    assert_eq!(status.message, "NetworkPluginNotReady: no CNI");
}

#[test]
fn each_way_of_not_answering_is_told_from_the_others() {
    let dead = status_of(&serve("dead", Answer::Status("12")));
    assert_eq!(dead, Err(HostErrorKind::Unimplemented));
    let failed = status_of(&serve("failed", Answer::Status("2")));
    assert_eq!(failed, Err(HostErrorKind::Failed));
    // Who serves no CRI may not answer the question for the cause, either.
    let socket = serve("silent", Answer::Never);
    std::fs::remove_file(&socket).unwrap();
    serve_at(&socket, |method, _| {
        if method.ends_with("/Plugins") { Answer::Never } else { Answer::Status("12") }
    });
    let start = Instant::now();
    assert_eq!(status_of(&socket), Err(HostErrorKind::Unimplemented));
    let without_cause = start.elapsed();
    let closed = status_of(&serve("closed", Answer::Closes));
    assert_eq!(closed, Err(HostErrorKind::Unreachable));
    let status = status_of(Path::new("/nonexistent/cri.sock"));
    assert_eq!(status, Err(HostErrorKind::Unreachable));
    let nonsense = status_of(&serve("nonsense", Answer::Raw(b"\0\0\0\0\x02\xff\xff".to_vec())));
    assert_eq!(nonsense, Err(HostErrorKind::Other));

    let socket = serve("hangs", Answer::Never);
    let start = Instant::now();
    assert_eq!(status_of(&socket), Err(HostErrorKind::TimedOut));
    let hung = start.elapsed();
    assert!(hung >= Duration::from_secs(5), "{hung:?}");
    // The question for the cause has a time limit of its own.
    assert!(without_cause < hung, "{without_cause:?} {hung:?}");
}

#[test]
fn containerd_is_quoted_in_one_line_about_the_part_that_failed() {
    let plugin = |kind: &str, id: &str, error: Option<&str>| plugins::Plugin {
        r#type: kind.to_owned(),
        id: id.to_owned(),
        init_err: error.map(|text| plugins::InitError { message: text.to_owned() }),
    };
    let whole = |error| plugin("io.containerd.grpc.v1", "cri", error);
    let part = |id: &str, error| plugin("io.containerd.cri.v1", id, error);
    let cause =
        |plugins: Vec<plugins::Plugin>| plugins::cause(&plugins::PluginsResponse { plugins });
    let all = vec![
        whole(Some("unable to load CRI runtime service")),
        part("images", None),
        part("runtime", Some("invalid plugin config:\n  no\tsuch\r\nruntime\n")),
    ];
    assert_eq!(cause(all).as_deref(), Some("invalid plugin config: no such runtime"));
    assert_eq!(cause(vec![whole(Some("of 1.7"))]).as_deref(), Some("of 1.7"));
    assert_eq!(cause(vec![whole(None)]), None);
    let off = "containerd has no CRI plugin loaded (disabled_plugins in its configuration?)";
    assert_eq!(cause(vec![part("runtime", None)]).as_deref(), Some(off));
    let long = cause(vec![whole(Some(&"ä".repeat(300)))]).unwrap();
    assert!(long.len() <= 200 && long.ends_with("ä …"), "{long}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode::<StatusResponse>(&bytes);
        let _ = decode::<message::ListPodSandboxResponse>(&bytes);
        let _ = decode::<message::PodSandboxStatusResponse>(&bytes)
            .map(|response| response.crio_handler());
        let _ = decode::<plugins::PluginsResponse>(&bytes).map(|response| plugins::cause(&response));
        let framed = [&[0, 0, 0, 0, u8::try_from(bytes.len().min(255)).unwrap()][..], &bytes].concat();
        let _ = decode::<StatusResponse>(&framed);
        let mut reader = kata_node_agent::systemd::wire::Reader::new(&bytes);
        let _ = reader.first_command();
        let _ = reader.variant_string();
        let _ = reader.variant_number();
        let _ = reader.variant_job();
        let _ = reader.string();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let shims = ["qemu".to_owned()];
        let _ = kata_node_agent::stage::components(&text, &shims, "x86_64");
    }
}
