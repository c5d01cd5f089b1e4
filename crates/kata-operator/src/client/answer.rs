//! The API server's answers, as far as the client itself reads them: pages of lists, and the Status objects
//! that explain a failed call. This module sends nothing.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::CallError;

/// One page of a list. Each item is parsed separately, so that an invalid one does not affect the others.
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

/// The field that every answer to a write has, be it an object or a Status.
#[derive(Deserialize)]
pub(super) struct Written {
    #[serde(rename = "kind")]
    _kind: String,
}

/// The parts of a Status object that the client reads.
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

/// A page of a list. Another document has no items either, and must not count as an empty list.
pub(super) fn parse_page<'a>(call: &str, body: &'a [u8]) -> Result<Page<'a>, CallError> {
    let page: Page<'_> = serde_json::from_slice(body)
        .map_err(|source| CallError::Unreadable { call: call.to_owned(), source })?;
    if page.kind.ends_with("List") {
        return Ok(page);
    }
    let source = serde::de::Error::custom(format!("a {} is not a list", page.kind));
    Err(CallError::Unreadable { call: call.to_owned(), source })
}

/// The failure in an answer with a success code, as a proxy may send it.
pub(super) fn disguised_failure(call: &str, body: &[u8]) -> Option<CallError> {
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
