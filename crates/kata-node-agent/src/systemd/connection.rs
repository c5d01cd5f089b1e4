//! A connection to systemd: authentication, calls and their answers, and the end of jobs.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use kata_host::host::HostErrorKind;

use super::fault::{Fault, odd};
use super::wire::{LONGEST, Reader, Writer};
use kata_api::error_text::without_error_numbers;

const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    serial: u32,
    /// Ends of jobs that were reported while something else was waited for: job and result.
    ended: VecDeque<(String, String)>,
}

/// An answer to a call.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) body: Vec<u8>,
}

struct Message {
    kind: u8,
    reply_to: Option<u32>,
    member: String,
    error: String,
    body: Vec<u8>,
}

fn io(source: &std::io::Error) -> Fault {
    let kind = match source.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => HostErrorKind::TimedOut,
        _ => HostErrorKind::Unreachable,
    };
    Fault::new(kind, without_error_numbers(&source.to_string()))
}

impl Connection {
    pub(super) fn open(socket: &Path) -> Result<Self, Fault> {
        let stream = UnixStream::connect(socket).map_err(|source| {
            let reason = without_error_numbers(&source.to_string());
            Fault::new(HostErrorKind::Unreachable, format!("{}: {reason}", socket.display()))
        })?;
        let mut connection = Self { stream, serial: 0, ended: VecDeque::new() };
        connection.authenticate()?;
        Ok(connection)
    }

    /// SASL EXTERNAL: systemd takes the user from the socket, and wants it said as well.
    fn authenticate(&mut self) -> Result<(), Fault> {
        let user = std::fs::metadata("/proc/self").map_err(|source| io(&source))?.uid();
        let hex: String = user.to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
        self.limit(Duration::from_secs(10))?;
        // In one write, and nothing after it before the answer: systemd leaves a call that it reads
        // together with BEGIN in its buffer until more comes (seen with systemd 252).
        let words = format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n");
        self.stream.write_all(words.as_bytes()).map_err(|source| io(&source))?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") && line.len() < 256 {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).map_err(|source| io(&source))?;
            line.extend(byte);
        }
        if !line.starts_with(b"OK ") {
            return Err(Fault::new(HostErrorKind::Other, "systemd does not accept this user"));
        }
        Ok(())
    }

    fn limit(&self, limit: Duration) -> Result<(), Fault> {
        // Zero would mean for ever.
        let limit = Some(limit.max(Duration::from_millis(1)));
        self.stream
            .set_read_timeout(limit)
            .and_then(|()| self.stream.set_write_timeout(limit))
            .map_err(|source| io(&source))
    }

    /// Calls a method: path, interface and member.
    pub(super) fn call(
        &mut self,
        (path, interface, member): (&str, &str, &str),
        signature: &str,
        body: &[u8],
        limit: Duration,
    ) -> Result<Reply, Fault> {
        self.serial += 1;
        let mut header = Writer::default();
        for byte in [b'l', CALL, 0, 1] {
            header.byte(byte);
        }
        header.number(u32::try_from(body.len()).unwrap_or(u32::MAX));
        header.number(self.serial);
        header.array(8, |fields| {
            let mut field = |code: u8, kind: &str, value: &str| {
                fields.align(8);
                fields.byte(code);
                fields.signature(kind);
                if kind == "g" {
                    fields.signature(value);
                } else {
                    fields.string(value);
                }
            };
            field(1, "o", path);
            field(2, "s", interface);
            field(3, "s", member);
            field(6, "s", "org.freedesktop.systemd1");
            field(8, "g", signature);
        });
        header.align(8);
        let mut message = header.into_bytes();
        message.extend(body);
        self.limit(limit)?;
        self.stream.write_all(&message).map_err(|source| io(&source))?;
        let end = Instant::now() + limit;
        loop {
            let message = self.receive(end)?;
            if message.reply_to == Some(self.serial) {
                return match message.kind {
                    RETURN => Ok(Reply { body: message.body }),
                    _ => {
                        let said = Reader::new(&message.body).string();
                        let reason = said.unwrap_or_else(|| message.error.clone());
                        let fault = Fault::new(HostErrorKind::Failed, reason);
                        Err(Fault { name: message.error, ..fault })
                    }
                };
            }
        }
    }

    /// Waits for the end of a job, and gives its result.
    pub(super) fn job_result(&mut self, job: &str, end: Instant) -> Result<String, Fault> {
        loop {
            if let Some((_, result)) = self.ended.iter().find(|(ended, _)| ended == job) {
                return Ok(result.clone());
            }
            self.receive(end)?;
        }
    }

    fn receive(&mut self, end: Instant) -> Result<Message, Fault> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fault::new(HostErrorKind::TimedOut, "systemd did not answer in time"));
        }
        self.limit(left)?;
        let mut start = [0; 16];
        self.stream.read_exact(&mut start).map_err(|source| io(&source))?;
        let (fields, body) = lengths(&start).ok_or_else(odd)?;
        let padded = fields.next_multiple_of(8);
        let mut rest = vec![0; padded + body];
        self.stream.read_exact(&mut rest).map_err(|source| io(&source))?;
        let message = parse(&start, &rest, fields, padded).ok_or_else(odd)?;
        if message.kind == SIGNAL && message.member == "JobRemoved" {
            let mut reader = Reader::new(&message.body);
            let mut ended = || -> Option<(String, String)> {
                reader.number()?;
                let job = reader.string()?;
                reader.string()?;
                Some((job, reader.string()?))
            };
            self.ended.extend(ended());
        }
        Ok(message)
    }
}

/// Lengths of a message's fields and body.
fn lengths(start: &[u8; 16]) -> Option<(usize, usize)> {
    let mut reader = Reader::new(start);
    if reader.byte()? != b'l' {
        return None;
    }
    reader.align(4)?;
    let body = usize::try_from(reader.number()?).ok()?;
    reader.number()?;
    let fields = usize::try_from(reader.number()?).ok()?;
    (body <= LONGEST && fields <= LONGEST).then_some((fields, body))
}

fn parse(start: &[u8; 16], rest: &[u8], fields: usize, padded: usize) -> Option<Message> {
    let mut message = Message {
        kind: *start.get(1)?,
        reply_to: None,
        member: String::new(),
        error: String::new(),
        body: rest.get(padded..)?.to_vec(),
    };
    if ![CALL, RETURN, ERROR, SIGNAL].contains(&message.kind) {
        return None;
    }
    // The fields begin at byte 16, so that alignment is the same as from their start.
    let mut reader = Reader::new(rest.get(..fields)?);
    while !reader.is_empty() {
        reader.align(8)?;
        let code = reader.byte()?;
        match reader.signature()?.as_str() {
            "u" => {
                let number = reader.number()?;
                if code == 5 {
                    message.reply_to = Some(number);
                }
            }
            "s" | "o" => {
                let text = reader.string()?;
                match code {
                    3 => message.member = text,
                    4 => message.error = text,
                    _ => {}
                }
            }
            "g" => {
                reader.signature()?;
            }
            _ => return None,
        }
    }
    Some(message)
}
