//! Sends spans to a collector: OTLP over HTTP, in the protobuf encoding.
//!
//! There is no TLS: the collector is on the same node or in the same cluster. Spans that cannot be sent are
//! dropped. Only the end of the process waits for the collector, for [`SHUTDOWN_LIMIT`] at most.

use std::sync::mpsc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::runtime::TokioCurrentThread;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::{SPANS, Target, TracesError};

/// How long sending the last spans may take. The whole stop stays below the 15 s after which the kubelet
/// kills the process.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(3);

/// Sends spans until it is shut down.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Starts to send spans to a collector. `instance` identifies this process. Headers and time limits come
    /// from the environment.
    ///
    /// # Errors
    /// If the exporter cannot be created.
    pub fn new(target: &Target, instance: &str) -> Result<Self, TracesError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&target.endpoint)
            .build()
            .map_err(|source| TracesError::Exporter { source })?;
        // On a thread and a runtime of its own: sending must not block the operator's only thread.
        let processor = BatchSpanProcessor::builder(exporter, TokioCurrentThread).build();
        let about = Resource::builder()
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()));
        let about =
            if target.has_service_name { about } else { about.with_service_name("kata-operator") };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_resource(about.build())
            .build();
        Ok(Self { provider })
    }

    /// The layer that sends the operator's spans, and no others.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("kata-operator"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|about| about.is_span() && about.target() == SPANS))
    }

    /// Sends the remaining spans, for [`SHUTDOWN_LIMIT`] at most.
    ///
    /// # Errors
    /// If the thread cannot be created.
    pub fn shut_down(self) -> Result<(), TracesError> {
        let (ended, end) = mpsc::channel();
        let send = move || {
            let sent = self.provider.shutdown().map_err(|error| error.to_string());
            // After the time limit there is no receiver any more.
            drop(ended.send(sent));
        };
        std::thread::Builder::new()
            .name("traces".to_owned())
            .spawn(send)
            .map_err(|source| TracesError::Thread { source })?;
        match end.recv_timeout(SHUTDOWN_LIMIT) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error, "the last traces could not be sent"),
            Err(_) => tracing::warn!("the last traces could not be sent in time"),
        }
        Ok(())
    }
}
