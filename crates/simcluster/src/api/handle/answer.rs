//! The HTTP form of answers.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::Response;
use crate::api::error::ApiError;

/// The HTTP form of an error.
pub fn failure(error: &ApiError) -> http::Response<Bytes> {
    let status = error.to_status();
    let mut response = json_response(error.code, &status);
    let retry_after = &status["details"]["retryAfterSeconds"];
    if let Some(value) = retry_after.as_u64().map(HeaderValue::from) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

/// A good answer that ends too early.
pub fn garbage() -> http::Response<Bytes> {
    with_type(200, Bytes::from_static(b"{\"kind\":"), "application/json")
}

/// What a proxy says instead of the API server.
pub fn html() -> http::Response<Bytes> {
    with_type(200, Bytes::from_static(b"<html><body>Please log in.</body></html>\n"), "text/html")
}

/// A Status of failure under the code of success.
pub fn wrong_code() -> http::Response<Bytes> {
    let error = ApiError::new(500, "InternalError", "simulated fault: an error with the code 200");
    json_response(200, &error.to_status())
}

pub(super) fn page_not_found() -> Response {
    Response::Full(with_type(404, Bytes::from_static(b"404 page not found\n"), "text/plain"))
}

pub(super) fn text_answer(code: u16, text: impl Into<Bytes>) -> Response {
    Response::Full(with_type(code, text.into(), "text/plain"))
}

pub(super) fn json_answer(code: u16, value: &Value) -> Response {
    Response::Full(json_response(code, value))
}

pub(super) fn json_response(code: u16, value: &Value) -> http::Response<Bytes> {
    with_type(code, value.to_string().into(), "application/json")
}

pub(super) fn with_type(code: u16, body: Bytes, content_type: &str) -> http::Response<Bytes> {
    let mut response = http::Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}
