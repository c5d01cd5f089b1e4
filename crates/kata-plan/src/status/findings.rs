//! The findings in the status of a KataConfig.

use kata_api::kata_config::{FindingCounts, FindingStatus, LIST_CAP};
use kata_api::{Code, KataConfigStatus, Severity};

use crate::report::{Finding, Report};

/// The status with these findings, which are sorted. The list is capped, the counts are not.
pub fn with_findings(status: KataConfigStatus, findings: &[Finding]) -> KataConfigStatus {
    let count = |severity| {
        let of = findings.iter().filter(|finding| finding.code.entry().severity == severity);
        i64::try_from(of.count()).unwrap_or(i64::MAX)
    };
    let counts = FindingCounts {
        error: count(Severity::Error),
        warning: count(Severity::Warning),
        info: count(Severity::Info),
    };
    let listed: Vec<FindingStatus> =
        findings.iter().take(LIST_CAP).map(Finding::to_status).collect();
    KataConfigStatus { findings: listed, finding_counts: Some(counts), ..status }
}

/// The status after failed reads: its earlier findings stay, except earlier failed reads and those with the
/// codes of the new failures.
pub(super) fn with_failed_reads(status: KataConfigStatus, failed: &[Finding]) -> KataConfigStatus {
    let is_over = |finding: &&FindingStatus| {
        let codes = [Code::ReadFailed].into_iter().chain(failed.iter().map(|it| it.code));
        codes.into_iter().any(|code| code.entry().code == finding.code)
    };
    let mut counts = status.finding_counts.unwrap_or_default();
    for finding in status.findings.iter().filter(is_over) {
        let count = match Severity::parse(&finding.severity) {
            Some(Severity::Error) => &mut counts.error,
            Some(Severity::Warning) => &mut counts.warning,
            Some(Severity::Info) | None => &mut counts.info,
        };
        *count = count.saturating_sub(1);
    }
    let earlier: Vec<FindingStatus> =
        status.findings.iter().filter(|finding| !is_over(finding)).cloned().collect();
    let mut status = with_findings(status, failed);
    let new = status.finding_counts.get_or_insert_default();
    new.error = new.error.saturating_add(counts.error);
    new.warning = new.warning.saturating_add(counts.warning);
    new.info = new.info.saturating_add(counts.info);
    status.findings.extend(earlier);
    status.findings.truncate(LIST_CAP);
    status
}

/// The worst finding, if it is at least a warning.
pub(super) fn worst(report: &Report) -> Option<&Finding> {
    report.findings.iter().find(|finding| finding.code.entry().severity >= Severity::Warning)
}
