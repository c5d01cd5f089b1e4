//! CRI over the container runtime's socket: the four calls that are needed, and no more of gRPC than they
//! need.

use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use kata_host::host::{CriStatus, CriVersion, HostError, HostErrorKind, Sandbox};
use prost::Message;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use kata_api::error_text::without_error_numbers;

pub mod message;
pub mod plugins;

const SERVICE: &str = "runtime.v1.RuntimeService";
/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a question for the cause may take of that.
const CAUSE_LIMIT: Duration = Duration::from_secs(2);
/// The longest answer: ten thousand sandboxes with labels and annotations.
const LONGEST: usize = 64 << 20;
/// `NOT_FOUND` of gRPC.
const NOT_FOUND: &str = "5";
/// `UNIMPLEMENTED` of gRPC.
const UNIMPLEMENTED: &str = "12";
/// What CRI-O calls itself.
const CRI_O: &str = "cri-o";

/// Asks a container runtime.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: HostErrorKind,
    reason: String,
    not_found: bool,
}

impl Fault {
    fn new(kind: HostErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), not_found: false }
    }

    /// The error of asking at a socket.
    pub fn at(self, socket: &str) -> HostError {
        HostError {
            action: format!("ask the container runtime at {socket}"),
            reason: self.reason,
            kind: self.kind,
        }
    }
}

impl Client {
    /// A client; it connects anew for every call, since a runtime that restarts replaces its socket.
    ///
    /// # Errors
    /// If the event loop cannot be made.
    pub fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime })
    }

    /// `Version`.
    ///
    /// # Errors
    /// If there is no answer within 5 s, or one that is no answer.
    pub fn version(&self, socket: &Path) -> Result<CriVersion, Fault> {
        let request = message::VersionRequest { version: "v1".to_owned() };
        let response: message::VersionResponse = self.call(socket, "Version", &request, LIMIT)?;
        Ok(CriVersion { name: response.runtime_name, version: response.runtime_version })
    }

    /// `Status` with `verbose`.
    ///
    /// # Errors
    /// As for [`Client::version`].
    pub fn status(&self, socket: &Path) -> Result<CriStatus, Fault> {
        let request = message::StatusRequest { verbose: true };
        let response: message::StatusResponse = self.call(socket, "Status", &request, LIMIT)?;
        Ok(response.into())
    }

    /// `ListPodSandbox`. CRI-O reports no handlers there, and is asked for that of each READY sandbox; what ended
    /// meanwhile is not READY.
    ///
    /// # Errors
    /// As for [`Client::version`], or if CRI-O does not report the handler of a sandbox: it may be ours.
    pub fn sandboxes(&self, socket: &Path) -> Result<Vec<Sandbox>, Fault> {
        let request = message::ListPodSandboxRequest {};
        let response: message::ListPodSandboxResponse =
            self.call(socket, "ListPodSandbox", &request, LIMIT)?;
        let mut sandboxes: Vec<Sandbox> = response.items.into_iter().map(Sandbox::from).collect();
        let untold = |sandbox: &&mut Sandbox| sandbox.ready && sandbox.handler.is_empty();
        let mut untold = sandboxes.iter_mut().filter(untold).peekable();
        if untold.peek().is_some() && self.version(socket)?.name == CRI_O {
            for sandbox in untold {
                match self.crio_handler(socket, &sandbox.id)? {
                    Some(handler) => sandbox.handler = handler,
                    None => sandbox.ready = false,
                }
            }
        }
        Ok(sandboxes)
    }

    /// `PodSandboxStatus` with `verbose`, of CRI-O: the sandbox's handler; `None` if it is gone.
    fn crio_handler(&self, socket: &Path, id: &str) -> Result<Option<String>, Fault> {
        let request =
            message::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let answer: Result<message::PodSandboxStatusResponse, _> =
            self.call(socket, "PodSandboxStatus", &request, LIMIT);
        match answer {
            Ok(status) => status.crio_handler().map(Some).map_err(|reason| {
                let reason = format!("CRI-O does not report the handler of sandbox {id}: {reason}");
                Fault::new(HostErrorKind::Other, reason)
            }),
            Err(fault) if fault.not_found => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// One call of `runtime.v1.RuntimeService`.
    ///
    /// # Errors
    /// If there is no answer within `limit`, or one that is no answer. If the runtime serves no CRI, the reason is
    /// what containerd says of its plugin.
    pub fn call<T: Message + Default>(
        &self,
        socket: &Path,
        method: &str,
        request: &impl Message,
        limit: Duration,
    ) -> Result<T, Fault> {
        let begun = Instant::now();
        self.ask(socket, &format!("{SERVICE}/{method}"), request, limit).map_err(|fault| {
            if fault.kind != HostErrorKind::Unimplemented {
                return fault;
            }
            let left = limit.saturating_sub(begun.elapsed()).min(CAUSE_LIMIT);
            match self.cause(socket, left) {
                Some(cause) => {
                    Fault::new(fault.kind, format!("unknown service {SERVICE}: {cause}"))
                }
                None => fault,
            }
        })
    }

    /// Why the CRI plugin of containerd does not serve; `None` if this is not containerd or does not report it.
    fn cause(&self, socket: &Path, limit: Duration) -> Option<String> {
        let method = "containerd.services.introspection.v1.Introspection/Plugins";
        let response = self.ask(socket, method, &plugins::request(), limit).ok()?;
        plugins::cause(&response)
    }

    fn ask<T: Message + Default>(
        &self,
        socket: &Path,
        method: &str,
        request: &impl Message,
        limit: Duration,
    ) -> Result<T, Fault> {
        let request = frame(request);
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(limit, ask(socket, method, request)).await });
        let bytes = answer.map_err(|_elapsed| {
            Fault::new(HostErrorKind::TimedOut, format!("no answer within {} s", limit.as_secs()))
        })??;
        decode(&bytes)
    }
}

/// A message with gRPC's prefix.
fn frame(message: &impl Message) -> Bytes {
    let body = message.encode_to_vec();
    let mut frame = BytesMut::with_capacity(body.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    frame.put_slice(&body);
    frame.freeze()
}

/// The message in an answer.
///
/// # Errors
/// If there is none, or it cannot be understood.
pub fn decode<T: Message + Default>(mut bytes: &[u8]) -> Result<T, Fault> {
    let odd = |reason: &str| Fault::new(HostErrorKind::Other, format!("odd answer: {reason}"));
    if bytes.len() < 5 {
        return Err(odd("it is empty"));
    }
    if bytes.get_u8() != 0 {
        return Err(odd("it is compressed"));
    }
    let length = usize::try_from(bytes.get_u32()).unwrap_or(usize::MAX);
    let body = bytes.get(..length).ok_or_else(|| odd("it is cut off"))?;
    T::decode(body).map_err(|error| odd(&error.to_string()))
}

async fn ask(socket: &Path, method: &str, body: Bytes) -> Result<Vec<u8>, Fault> {
    let unreachable = |reason: String| Fault::new(HostErrorKind::Unreachable, reason);
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| unreachable(without_error_numbers(&error.to_string())))?;
    let (client, connection) = h2::client::handshake(stream)
        .await
        .map_err(|error| unreachable(without_error_numbers(&error.to_string())))?;
    let serve = async {
        // An error of the connection reaches the call, too.
        match connection.await {
            Ok(()) | Err(_) => std::future::pending::<()>().await,
        }
    };
    tokio::select! {
        answer = exchange(client, method, body) => answer,
        () = serve => Err(unreachable("the connection was closed".to_owned())),
    }
}

async fn exchange(
    client: h2::client::SendRequest<Bytes>,
    method: &str,
    body: Bytes,
) -> Result<Vec<u8>, Fault> {
    let broken = |error: h2::Error| {
        Fault::new(HostErrorKind::Unreachable, without_error_numbers(&error.to_string()))
    };
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://localhost/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(|error| Fault::new(HostErrorKind::Other, error.to_string()))?;
    let mut client = client.ready().await.map_err(broken)?;
    let (response, mut stream) = client.send_request(request, false).map_err(broken)?;
    stream.send_data(body, true).map_err(broken)?;
    let response = response.await.map_err(broken)?;
    if response.status() != StatusCode::OK {
        return Err(Fault::new(HostErrorKind::Other, format!("HTTP {}", response.status())));
    }
    grpc_status(response.headers(), true)?;
    let mut answer = response.into_body();
    let mut bytes = Vec::new();
    while let Some(chunk) = poll_fn(|context| answer.poll_data(context)).await {
        let chunk = chunk.map_err(broken)?;
        bytes.extend_from_slice(&chunk);
        answer.flow_control().release_capacity(chunk.len()).map_err(broken)?;
        if bytes.len() > LONGEST {
            return Err(Fault::new(HostErrorKind::Other, "the answer is longer than 64 MiB"));
        }
    }
    let trailers = poll_fn(|context| answer.poll_trailers(context)).await.map_err(broken)?;
    grpc_status(&trailers.unwrap_or_default(), false)?;
    Ok(bytes)
}

/// The status of gRPC in headers or trailers.
fn grpc_status(headers: &HeaderMap, may_lack: bool) -> Result<(), Fault> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        None if may_lack => Ok(()),
        None => Err(Fault::new(HostErrorKind::Other, "the answer has no status")),
        Some(code) => {
            let reason = text("grpc-message").unwrap_or("no reason given");
            let kind = if code == UNIMPLEMENTED {
                HostErrorKind::Unimplemented
            } else {
                HostErrorKind::Failed
            };
            let fault = Fault::new(kind, format!("gRPC status {code}: {reason}"));
            Err(Fault { not_found: code == NOT_FOUND, ..fault })
        }
    }
}
