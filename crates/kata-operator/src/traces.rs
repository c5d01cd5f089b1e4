//! Spans of the operator's work, for those who collect traces: a pass, its parts, its steps and its calls.
//!
//! Spans have names, outcomes and codes; never an object's content, and nothing that authenticates. They are
//! made of what is known anyway, and nothing depends on one. Nobody listens to them unless the feature
//! `otel` is compiled in and a collector is named; see [`Target`].

use tracing::Span;
use tracing::field::Empty;

use kata_plan::{Action, Report};

use crate::arguments::EnvVars;

#[cfg(feature = "otel")]
pub mod otlp;

/// The target of all spans that are meant for a collector.
pub const SPANS: &str = "kata_operator::spans";
/// The target of the span that shows in the log to which trace a line belongs.
pub const LINES: &str = "kata_operator::trace";

/// Where spans are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The whole address, such as `http://collector:4318/v1/traces`.
    pub endpoint: String,
    /// Whether `OTEL_SERVICE_NAME` names the service, so that we do not.
    pub named: bool,
}

/// Why spans are not sent although a collector is named. The operator works all the same.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The program was built without it.
    #[error(
        "a collector of traces is named, and this build sends none: unset OTEL_EXPORTER_OTLP_ENDPOINT, or \
         build the operator with `--features otel`"
    )]
    NotBuilt,
    /// The collector's address is not one of plain HTTP.
    #[error(
        "{variable} does not begin with http://: name a collector on this node or in this cluster, which \
         passes the traces on over TLS"
    )]
    Endpoint {
        /// What names the collector. Its value may have a password, and is not repeated.
        variable: &'static str,
    },
    /// Another protocol is asked for.
    #[error("{variable} is {protocol}: traces are sent as http/protobuf only (port 4318, usually)")]
    Protocol {
        /// What names the protocol.
        variable: &'static str,
        /// What was asked for.
        protocol: String,
    },
    /// The exporter cannot be made.
    #[error("cannot make the exporter of traces")]
    #[cfg(feature = "otel")]
    Exporter {
        /// Why.
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// There is no thread for it.
    #[error("cannot send the last traces")]
    #[cfg(feature = "otel")]
    Thread {
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// What of the environment names the collector. OpenTelemetry's specification defines the names and their
/// meanings (SDK environment variables; OTLP exporter configuration); the exporter itself reads those that
/// choose nothing, such as headers and time limits.
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
    /// What `read` knows of each variable; one that is empty counts as unset.
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
    /// The collector that the environment names; `None` if it names none, or says that there be none. Pure.
    ///
    /// # Errors
    /// If it names one that spans cannot be sent to.
    pub fn of(environment: &EnvVars) -> Result<Option<Self>, TracesError> {
        let OtelVars {
            disabled,
            exporter,
            endpoint,
            traces_endpoint,
            protocol,
            traces_protocol,
            service,
        } = &environment.otel;
        let off = disabled.as_ref().is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || exporter.as_ref().is_some_and(|value| value == "none");
        let (variable, address) = match (traces_endpoint, endpoint) {
            _ if off => return Ok(None),
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
            _ => Ok(Some(Self { endpoint: address, named: service.is_some() })),
        }
    }
}

/// A pass, from its observation to its report.
pub(crate) fn pass() -> Span {
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

/// A part of a pass.
pub(crate) fn part(name: &'static str) -> Span {
    tracing::trace_span!(target: SPANS, "part", otel.name = name)
}

/// A step of a plan: what is done with which object.
pub(crate) fn step(action: &Action) -> Span {
    tracing::trace_span!(
        target: SPANS,
        "step",
        kata.step = %action,
        kata.object = %action.object(),
        kata.outcome = Empty,
        otel.status_code = Empty,
    )
}

/// A call to the API server, if it is part of a pass; those that keep watches and the lease alive are not
/// worth a trace.
pub(crate) fn call(call: &str, verb: &'static str, kind: &str) -> Span {
    if !is_ours(&Span::current()) {
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

/// Says what became of it: `None` if it succeeded.
pub(crate) fn ended(span: &Span, failed: Option<&'static str>) {
    span.record("kata.outcome", failed.unwrap_or("ok"));
    if failed.is_some() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Says in the span of the pass that is under way what the pass found: of which KataConfigs, the codes of
/// its findings, and how many nodes it is about.
pub(crate) fn found(report: &Report) {
    let span = Span::current();
    if !is_ours(&span) {
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

fn is_ours(span: &Span) -> bool {
    span.metadata().is_some_and(|about| about.target() == SPANS)
}

/// The span that has the lines of the log say to which trace they belong; nothing without traces.
pub(crate) fn line(pass: &Span) -> Span {
    #[cfg(feature = "otel")]
    if let Some(trace_id) = otlp::id(pass) {
        return tracing::error_span!(target: LINES, parent: None, "reconcile", trace_id);
    }
    #[cfg(not(feature = "otel"))]
    let _nobody_listens = pass;
    Span::none()
}
