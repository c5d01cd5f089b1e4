//! How many nodes may be unavailable at once.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How many of `nodes` may be unavailable at once under a `maxUnavailable` of a KataConfig or a pool: at
/// least one.
pub fn most_unavailable(value: Option<&IntOrString>, nodes: usize) -> usize {
    let limit = match value {
        None => 1,
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(1),
        Some(IntOrString::String(text)) => {
            let percent: usize =
                text.trim_end_matches('%').parse().ok().filter(|it| *it <= 100).unwrap_or(0);
            nodes.saturating_mul(percent) / 100
        }
    };
    limit.max(1)
}
