//! Spans for a collector: OTLP over HTTP, in the protobuf encoding.
//!
//! There is no TLS: the collector is on the same node or in the same cluster. What cannot be sent is
//! dropped; nothing waits for a collector but the end of the process, for [`END`].

use std::sync::mpsc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::runtime::TokioCurrentThread;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::{SPANS, Target, TracesError};

/// How long the last spans may take. With all else that a stop may take it stays below the 15 s after which
/// the kubelet kills.
pub const END: Duration = Duration::from_secs(3);

/// Sends spans until it is ended.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Sends spans to a collector, as those of the process `instance`. Headers and time limits are those of
    /// the environment.
    ///
    /// # Errors
    /// If the exporter cannot be made.
    pub fn to(target: &Target, instance: &str) -> Result<Self, TracesError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&target.endpoint)
            .build()
            .map_err(|source| TracesError::Exporter { source })?;
        // On a thread and a runtime of its own: sending must not hold up the operator's only thread.
        let processor = BatchSpanProcessor::builder(exporter, TokioCurrentThread).build();
        let about = Resource::builder()
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()));
        let about = if target.named { about } else { about.with_service_name("kata-operator") };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_resource(about.build())
            .build();
        Ok(Self { provider })
    }

    /// What turns our spans, and nothing else, into theirs.
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

    /// Sends what is left, for [`END`] at most.
    ///
    /// # Errors
    /// If there is no thread to do it on.
    pub fn end(self) -> Result<(), TracesError> {
        let (ended, end) = mpsc::channel();
        let send = move || {
            let sent = self.provider.shutdown().map_err(|error| error.to_string());
            // Nobody listens any more if it took too long.
            drop(ended.send(sent));
        };
        std::thread::Builder::new()
            .name("traces".to_owned())
            .spawn(send)
            .map_err(|source| TracesError::Thread { source })?;
        match end.recv_timeout(END) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error, "the last traces could not be sent"),
            Err(_) => tracing::warn!("the last traces could not be sent in time"),
        }
        Ok(())
    }
}

/// The id of the trace that a span belongs to, as backends show it; `None` if it belongs to none.
pub(super) fn id(span: &Span) -> Option<String> {
    let context = span.context();
    let about = context.span();
    let about = about.span_context();
    (about.is_valid() && about.is_sampled()).then(|| about.trace_id().to_string())
}
