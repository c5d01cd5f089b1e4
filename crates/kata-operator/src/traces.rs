//! Spans of the operator's work for a collector of traces: a pass, its parts, its steps and its calls.
//!
//! Spans have names, outcomes and codes, never an object's content or credentials. Nothing depends on a span.
//! Spans are sent only if the feature `otel` is compiled in and the environment names a collector; see
//! [`Target`].

use tracing::Span;
use tracing::field::Empty;

use kata_plan::{Action, Report};

#[cfg(feature = "otel")]
pub mod otlp;

/// The target of all spans that are sent to a collector.
pub const SPANS: &str = "kata_operator::spans";
/// The target of the span that adds the id of its trace to a log line.
pub const LINES: &str = "kata_operator::trace";

/// Where spans are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The whole URL, such as `http://collector:4318/v1/traces`.
    pub endpoint: String,
    /// Whether `OTEL_SERVICE_NAME` names the service, so that the operator does not.
    pub has_service_name: bool,
}

/// Why spans are not sent although the environment names a collector. The operator works without them.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The program was built without the feature `otel`.
    #[error(
        "a collector of traces is configured, but this build cannot send traces: unset \
         OTEL_EXPORTER_OTLP_ENDPOINT, or build the operator with `--features otel`"
    )]
    NotBuilt,
    /// The collector's address does not begin with `http://`.
    #[error(
        "{variable} must begin with http://: name a collector on this node or in this cluster, which can \
         forward the traces over TLS"
    )]
    Endpoint {
        /// The variable that names the collector. Its value may contain a password, and is not shown.
        variable: &'static str,
    },
    /// The environment names another protocol.
    #[error(
        "{variable} is {protocol}: the operator sends traces only as http/protobuf (usually port 4318)"
    )]
    Protocol {
        /// The variable that names the protocol.
        variable: &'static str,
        protocol: String,
    },
    /// The exporter cannot be created.
    #[error("cannot create the exporter of traces")]
    #[cfg(feature = "otel")]
    Exporter {
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The thread that sends the last spans cannot be created.
    #[error("cannot send the last traces")]
    #[cfg(feature = "otel")]
    Thread {
        #[source]
        source: std::io::Error,
    },
}

/// The environment variables that name the collector. OpenTelemetry's specification defines them (SDK
/// environment variables; OTLP exporter configuration). The exporter itself reads the others, such as headers
/// and time limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtelVars {
    /// `OTEL_SDK_DISABLED`.
    pub disabled: Option<String>,
    /// `OTEL_TRACES_EXPORTER`.
    pub exporter: Option<String>,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.
    pub traces_endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub protocol: Option<String>,
    /// `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`.
    pub traces_protocol: Option<String>,
    /// `OTEL_SERVICE_NAME`.
    pub service: Option<String>,
}

impl OtelVars {
    /// Reads each variable with `read`, which returns `None` for an empty one.
    pub fn read(read: impl Fn(&'static str) -> Option<String>) -> Self {
        Self {
            disabled: read("OTEL_SDK_DISABLED"),
            exporter: read("OTEL_TRACES_EXPORTER"),
            endpoint: read("OTEL_EXPORTER_OTLP_ENDPOINT"),
            traces_endpoint: read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            protocol: read("OTEL_EXPORTER_OTLP_PROTOCOL"),
            traces_protocol: read("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
            service: read("OTEL_SERVICE_NAME"),
        }
    }
}

impl Target {
    /// The collector that the environment names; `None` if it names none, or disables traces. Pure.
    ///
    /// # Errors
    /// If spans cannot be sent to this collector.
    pub fn of(environment: &OtelVars) -> Result<Option<Self>, TracesError> {
        let OtelVars {
            disabled,
            exporter,
            endpoint,
            traces_endpoint,
            protocol,
            traces_protocol,
            service,
        } = environment;
        let is_disabled = disabled.as_ref().is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || exporter.as_ref().is_some_and(|value| value == "none");
        let (variable, address) = match (traces_endpoint, endpoint) {
            _ if is_disabled => return Ok(None),
            (Some(whole), _) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", whole.clone()),
            (None, Some(root)) => {
                let root = root.trim_end_matches('/');
                ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{root}/v1/traces"))
            }
            (None, None) => return Ok(None),
        };
        if !address.starts_with("http://") {
            return Err(TracesError::Endpoint { variable });
        }
        let asked = match (traces_protocol, protocol) {
            (Some(asked), _) => Some(("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", asked)),
            (None, asked) => asked.as_ref().map(|asked| ("OTEL_EXPORTER_OTLP_PROTOCOL", asked)),
        };
        match asked {
            Some((variable, protocol)) if protocol != "http/protobuf" => {
                Err(TracesError::Protocol { variable, protocol: protocol.clone() })
            }
            _ => Ok(Some(Self { endpoint: address, has_service_name: service.is_some() })),
        }
    }
}

/// The span of a pass, from its observation to its report.
pub(crate) fn pass_span() -> Span {
    tracing::trace_span!(
        target: SPANS,
        "reconcile",
        kata.config = Empty,
        kata.codes = Empty,
        kata.nodes = Empty,
        kata.outcome = Empty,
        otel.status_code = Empty,
    )
}

/// The span of a part of a pass.
pub(crate) fn part_span(name: &'static str) -> Span {
    tracing::trace_span!(target: SPANS, "part", otel.name = name)
}

/// The span of a step of a plan.
pub(crate) fn step_span(action: &Action) -> Span {
    tracing::trace_span!(
        target: SPANS,
        "step",
        kata.step = %action,
        kata.object = %action.object(),
        kata.outcome = Empty,
        otel.status_code = Empty,
    )
}

/// The span of a call to the API server, if it is part of a pass. Calls for watches and for the lease get no
/// span.
pub(crate) fn call_span(call: &str, verb: &'static str, kind: &str) -> Span {
    if !is_exported(&Span::current()) {
        return Span::none();
    }
    tracing::trace_span!(
        target: SPANS,
        "call",
        otel.name = call,
        otel.kind = "client",
        k8s.verb = verb,
        k8s.kind = kind,
        kata.outcome = Empty,
        otel.status_code = Empty,
    )
}

/// Records the outcome of a span; `failed` is the category of the error.
pub(crate) fn record_outcome(span: &Span, failed: Option<&'static str>) {
    span.record("kata.outcome", failed.unwrap_or("ok"));
    if failed.is_some() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Records a report in the span of the current pass: its KataConfigs, the codes of its findings, and the
/// number of its nodes.
pub(crate) fn record_report(report: &Report) {
    let span = Span::current();
    if !is_exported(&span) {
        return;
    }
    let statuses = report.status.iter().chain(&report.other_configs);
    let configs: Vec<&str> = statuses.map(|status| status.config.name.as_str()).collect();
    let mut codes: Vec<String> =
        report.findings.iter().map(|finding| finding.code.to_string()).collect();
    codes.sort_unstable();
    codes.dedup();
    span.record("kata.config", configs.join(","));
    span.record("kata.codes", codes.join(","));
    span.record("kata.nodes", report.nodes.len());
}

fn is_exported(span: &Span) -> bool {
    span.metadata().is_some_and(|about| about.target() == SPANS)
}

/// The span that adds the id of the trace to log lines; none without traces.
pub(crate) fn log_span(pass: &Span) -> Span {
    #[cfg(feature = "otel")]
    if let Some(trace_id) = trace_id(pass) {
        return tracing::error_span!(target: LINES, parent: None, "reconcile", trace_id);
    }
    #[cfg(not(feature = "otel"))]
    let _unused = pass;
    Span::none()
}

/// The id of the trace that a span belongs to, as backends show it; `None` if it belongs to none.
#[cfg(feature = "otel")]
fn trace_id(span: &Span) -> Option<String> {
    use opentelemetry::trace::TraceContextExt as _;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let context = span.context();
    let about = context.span();
    let about = about.span_context();
    (about.is_valid() && about.is_sampled()).then(|| about.trace_id().to_string())
}
