//! Commands in containers, and their own shells, over WebSocket, in the protocols `v5.channel.k8s.io` and
//! `v4.channel.k8s.io`.
//!
//! It carries bytes, and lines to a shell; what a command does is the exec hook's business.

use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::api::ApiError;
use crate::api::frontend::{self, ExecOutcome, ExecRequest, Session};
use crate::cluster::Cluster;

/// The channels: the first byte of every message.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
/// In v5, a message that closes the channel that its second byte names.
const CLOSE: u8 = 255;

/// What a terminal sends for its keys.
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const DELETE: u8 = 127;

/// How long the client may take to close the connection.
const DRAIN: Duration = Duration::from_secs(5);

/// How long a command takes at least: kubectl up to 1.32 loses what arrives before it has opened all
/// its streams, and no real container is faster.
const SPAWN: Duration = Duration::from_millis(100);

/// Accepts the upgrade and runs the command.
pub(super) fn upgrade(
    upgrade: WebSocketUpgrade,
    cluster: Cluster,
    request: ExecRequest,
) -> Response {
    upgrade.protocols(["v5.channel.k8s.io", "v4.channel.k8s.io"]).on_upgrade(
        async move |mut socket| {
            // The client has disconnected if this fails, and nothing is left to report to.
            drop(serve(&mut socket, &cluster, &request).await);
        },
    )
}

#[expect(clippy::disallowed_methods, reason = "no reconcile: a command takes its time")]
async fn serve(
    socket: &mut WebSocket,
    cluster: &Cluster,
    request: &ExecRequest,
) -> Result<(), axum::Error> {
    tokio::time::sleep(SPAWN).await;
    let mut session = Session::default();
    let mut outcome = run(cluster, request, &mut session, b"");
    let is_shell = outcome.as_ref().is_ok_and(|outcome| outcome.prompt.is_some());
    let status = if is_shell {
        shell(socket, cluster, request, session, outcome).await?
    } else {
        // A terminal's input does not end; only a shell reads it.
        if request.stdin && !request.tty && outcome.is_ok() {
            let mut input = Vec::new();
            while let Some(part) = read_stdin(socket).await? {
                input.extend_from_slice(&part);
            }
            outcome = run(cluster, request, &mut session, &input);
        }
        report(socket, request, outcome).await?
    };
    send(socket, ERROR, status.to_string().as_bytes()).await?;
    // Anything but a normal closure is an error to kubectl, even after the Status.
    let close = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    socket.send(Message::Close(Some(close))).await?;
    // Closing a socket with unread bytes, such as the terminal's size, would reset the connection
    // before the client has read the last message.
    let drain = async { while let Some(Ok(_)) = socket.recv().await {} };
    // A client that never closes is cut off.
    drop(tokio::time::timeout(DRAIN, drain).await);
    Ok(())
}

/// A shell, which gets one line after the other.
async fn shell(
    socket: &mut WebSocket,
    cluster: &Cluster,
    request: &ExecRequest,
    mut session: Session,
    mut outcome: Result<ExecOutcome, ApiError>,
) -> Result<Value, axum::Error> {
    let mut input = Input { is_over: !request.stdin, ..Input::default() };
    loop {
        let prompt = outcome.as_ref().ok().and_then(|outcome| outcome.prompt.clone());
        let status = report(socket, request, outcome).await?;
        let Some(prompt) = prompt else { return Ok(status) };
        if request.tty {
            send(socket, STDOUT, prompt.as_bytes()).await?;
        }
        let line = match input.next_line(socket, request.tty).await? {
            Some(line) => line,
            None if request.outlives_input => return Ok(success()),
            None => frontend::CTRL_D.to_owned(),
        };
        outcome = run(cluster, request, &mut session, format!("{line}\n").as_bytes());
    }
}

/// The standard input of a shell.
#[derive(Default)]
struct Input {
    unread: VecDeque<u8>,
    is_over: bool,
}

impl Input {
    /// The next line; `None` at the end. A terminal shows what is typed.
    async fn next_line(
        &mut self,
        socket: &mut WebSocket,
        tty: bool,
    ) -> Result<Option<String>, axum::Error> {
        let mut line = Vec::new();
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        loop {
            while let Some(byte) = self.unread.pop_front() {
                match byte {
                    b'\n' if !tty => return Ok(Some(text(&line))),
                    byte if !tty => line.push(byte),
                    b'\r' | b'\n' => {
                        send(socket, STDOUT, b"\r\n").await?;
                        return Ok(Some(text(&line)));
                    }
                    CTRL_C => {
                        send(socket, STDOUT, b"^C\r\n").await?;
                        return Ok(Some(frontend::CTRL_C.to_owned()));
                    }
                    CTRL_D if line.is_empty() => return Ok(Some(frontend::CTRL_D.to_owned())),
                    BACKSPACE | DELETE => {
                        if line.pop().is_some() {
                            send(socket, STDOUT, b"\x08 \x08").await?;
                        }
                    }
                    byte => {
                        line.push(byte);
                        send(socket, STDOUT, &[byte]).await?;
                    }
                }
            }
            if self.is_over {
                return Ok((!line.is_empty()).then(|| text(&line)));
            }
            match read_stdin(socket).await? {
                Some(part) => self.unread.extend(part),
                None => self.is_over = true,
            }
        }
    }
}

fn crlf(text: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(text).replace('\n', "\r\n").into_bytes()
}

fn run(
    cluster: &Cluster,
    request: &ExecRequest,
    session: &mut Session,
    input: &[u8],
) -> Result<ExecOutcome, ApiError> {
    cluster.with(|simulation, _| match simulation.frontend.exec {
        Some(hook) => hook(&mut simulation.world, &simulation.api, request, session, input),
        None => Err(ApiError::new(501, "NotImplemented", "the pod is simulated")),
    })
}

/// Sends what a command wrote; returns the Status to end with.
async fn report(
    socket: &mut WebSocket,
    request: &ExecRequest,
    outcome: Result<ExecOutcome, ApiError>,
) -> Result<Value, axum::Error> {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Ok(error.to_status()),
    };
    // A terminal has one stream for both.
    let stderr = if request.tty { STDOUT } else { STDERR };
    for (channel, output) in [(STDOUT, outcome.stdout), (stderr, outcome.stderr)] {
        let is_typed = request.tty && request.stdin;
        let output = if is_typed { crlf(&output) } else { output };
        for part in output.chunks(32 << 10) {
            send(socket, channel, part).await?;
        }
    }
    // How an attached container ends is in its pod's status.
    if outcome.exit_code == 0 || request.attach {
        return Ok(success());
    }
    Ok(json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {}", outcome.exit_code),
        "details": {"causes": [{"reason": "ExitCode", "message": outcome.exit_code.to_string()}]},
    }))
}

fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

/// The next bytes of standard input; `None` at its end.
async fn read_stdin(socket: &mut WebSocket) -> Result<Option<Bytes>, axum::Error> {
    while let Some(message) = socket.recv().await {
        if let Message::Binary(bytes) = message? {
            match bytes.first() {
                Some(&STDIN) => return Ok(Some(bytes.slice(1..))),
                Some(&CLOSE) if bytes.get(1) == Some(&STDIN) => return Ok(None),
                _ => {}
            }
        }
    }
    Ok(None)
}

async fn send(socket: &mut WebSocket, channel: u8, bytes: &[u8]) -> Result<(), axum::Error> {
    let mut message = Vec::with_capacity(bytes.len() + 1);
    message.push(channel);
    message.extend_from_slice(bytes);
    socket.send(Message::Binary(message.into())).await
}
