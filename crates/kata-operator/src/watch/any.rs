//! The interface of all caches, independent of their kind.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::client::Client;
use crate::jitter::Jitter;
use crate::metrics::{Check, Metrics};

/// A cache of any kind.
pub trait AnyCache: Send + Sync {
    /// Keeps the cache up to date, for ever.
    fn follow(
        self: Arc<Self>,
        client: Client,
        jitter: Arc<Jitter>,
        metrics: Metrics,
    ) -> BoxFuture<'static, ()>;

    /// Whether there is a first answer, be it an error.
    fn has_answer(&self) -> bool;

    /// For `/readyz`.
    fn check(&self) -> Check;

    /// Whether the watch has not shown yet what was written, or read past the cache. A cache that has been out
    /// of contact for too long is not waited for; its contents are unknown instead.
    fn is_behind(&self) -> bool;

    /// Lists the kind again if the watch has not shown in time what is awaited; returns when to check again.
    fn relist_if_late(&self) -> Option<Instant>;

    /// Awaits the version of the object in the answer to a write.
    fn await_response(&self, text: &str);

    /// Awaits that the watch shows a deleted object gone, or that it is being deleted.
    fn await_deletion(&self, name: &str);
}
