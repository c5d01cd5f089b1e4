//! ttrpc: a header of ten bytes, and a message of protobuf. Facts: containerd/ttrpc, `PROTOCOL.md`.

use std::io::{self, Read, Write};

use prost::Message;

/// A request.
pub const REQUEST: u8 = 1;
/// A response.
pub const RESPONSE: u8 = 2;
/// The longest message that the protocol allows.
const LONGEST: u32 = 4 << 20;

/// What is called.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Request {
    /// For example `containerd.task.v2.Task`.
    #[prost(string, tag = "1")]
    pub service: String,
    /// For example `Create`.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The method's message.
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
}

/// Why a call failed; gRPC's codes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Status {
    /// The code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// In words.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// What comes of a call.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Response {
    /// Absent if it succeeded.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// The method's message.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Which call it belongs to.
    pub stream: u32,
    /// What it is.
    pub kind: u8,
    /// The message.
    pub body: Vec<u8>,
}

/// Reads a frame; `None` at the end.
///
/// # Errors
/// If it cannot be read, or is longer than the protocol allows.
pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut header = [0; 10];
    match from.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    let [a, b, c, d, e, f, g, h, kind, _flags] = header;
    let length = u32::from_be_bytes([a, b, c, d]);
    if length > LONGEST {
        return Err(io::Error::other("a message that is too long"));
    }
    let mut body = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut body)?;
    Ok(Some(Frame { stream: u32::from_be_bytes([e, f, g, h]), kind, body }))
}

/// Writes a frame.
///
/// # Errors
/// If it cannot be written.
pub fn write(to: &mut impl Write, frame: &Frame) -> io::Result<()> {
    let length = u32::try_from(frame.body.len()).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(frame.body.len() + 10);
    bytes.extend(length.to_be_bytes());
    bytes.extend(frame.stream.to_be_bytes());
    bytes.extend([frame.kind, 0]);
    bytes.extend(&frame.body);
    to.write_all(&bytes)?;
    to.flush()
}
