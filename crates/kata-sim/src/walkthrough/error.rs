//! What stops a walkthrough, as opposed to a fact that does not hold.

/// What stops a walkthrough, as opposed to a fact that does not hold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkthroughError {
    /// The story could not be printed.
    #[error("cannot print")]
    Print(#[from] std::io::Error),
    /// A request failed that must not.
    #[error("the simulated API server refused {action}")]
    Request {
        /// What was asked.
        action: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// An example is not what it should be.
    #[error("cannot read the example {name}")]
    Example {
        /// Which.
        name: &'static str,
        /// Why.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// A watch failed.
    #[error("the watch of the KataConfig ended")]
    Watch,
}

/// The error of a request that must not fail.
pub(super) fn refused(action: impl Into<String>) -> impl FnOnce(kube::Error) -> WalkthroughError {
    let action = action.into();
    move |source| WalkthroughError::Request { action, source: Box::new(source) }
}
