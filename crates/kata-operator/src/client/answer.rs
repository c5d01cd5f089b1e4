//! What the API server's answers look like, as far as the client itself reads them: pages of lists, and
//! the Status objects that say why a call failed. Nothing is sent here.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::CallError;

/// One page of a list; every item is read by itself, so that an invalid one harms no other.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) metadata: PageMetadata,
    #[serde(default, borrow)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    #[serde(default)]
    pub(super) resource_version: Option<String>,
    #[serde(default, rename = "continue")]
    pub(super) continue_token: Option<String>,
}

/// What every answer to a write has: that of an object, or of a Status.
#[derive(Deserialize)]
pub(super) struct Written {
    #[serde(rename = "kind")]
    _kind: String,
}

/// The parts of a Status object that matter.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct StatusBody {
    kind: Option<String>,
    status: Option<String>,
    code: Option<u16>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) details: Option<StatusDetails>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StatusDetails {
    pub(super) retry_after_seconds: Option<u64>,
}

pub(super) fn parse<T: DeserializeOwned>(call: &str, body: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(body)
        .map_err(|source| CallError::Unreadable { call: call.to_owned(), source })
}

/// The failure that an answer says under a code of success, as proxies may send it on.
pub(super) fn disguised(call: &str, body: &[u8]) -> Option<CallError> {
    /// Longer answers are objects or lists.
    const STATUS_BYTES: usize = 16 << 10;
    if body.len() > STATUS_BYTES {
        return None;
    }
    let StatusBody { kind, status, code, reason, message, details: _ } =
        serde_json::from_slice(body).ok()?;
    if kind.as_deref() != Some("Status") || status.as_deref() != Some("Failure") {
        return None;
    }
    Some(CallError::Refused {
        call: call.to_owned(),
        code: code.unwrap_or(500),
        reason: reason.unwrap_or_else(|| "Unknown".to_owned()),
        message: message.unwrap_or_default(),
        retry_after: None,
    })
}

/// The beginning of an answer that is not a Status object.
pub(super) fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().chars().take(200).collect()
}
