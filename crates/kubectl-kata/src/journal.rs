//! How a kubelet says that it does not serve its node's journal (NodeLogQuery). What a journal holds is read
//! elsewhere.

/// The subresource of nodes through which it is asked for.
pub(crate) const RESOURCE: &str = "nodes/proxy";

/// Whether an error says so: without the path (404), or with its handler off (405, enableSystemLogHandler).
pub(crate) fn is_not_served(code: u16) -> bool {
    matches!(code, 404 | 405)
}

/// Whether an answer, or its beginning, is no journal: with the handler and without the feature, a kubelet
/// leaves the query aside and lists the files of /var/log, as Go's file server does.
pub(crate) fn is_listing(text: &str) -> bool {
    let begins =
        |with: &str| text.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    begins("<!doctype html>") || begins("<pre>")
}
