//! The verdicts as JUnit XML, for CI.

use std::fmt::Write as _;

use crate::document::{VerifyReport, VerifyResult};

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The report.
pub(super) fn xml(report: &VerifyReport) -> String {
    let bad = |result: VerifyResult| {
        matches!(result, VerifyResult::NotIsolated | VerifyResult::ProbeFailed)
    };
    let failures = report.verdicts.iter().filter(|verdict| bad(verdict.result)).count();
    let skipped = report.verdicts.iter().filter(|v| v.result == VerifyResult::Inconclusive).count();
    let simulated = if report.head.simulated { " (simulated)" } else { "" };
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"kubectl kata verify{simulated}\" \
         tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\">\n",
        report.verdicts.len()
    );
    for verdict in &report.verdicts {
        let name = escape(&verdict.subject);
        // Writing to a String cannot fail.
        let _always = write!(
            text,
            "  <testcase classname=\"kata.isolation\" name=\"{name}\" time=\"{:.1}\"",
            verdict.seconds
        );
        let problem = verdict.problems.first();
        let (id, message) = problem.map_or(("", ""), |p| (p.id.as_str(), p.message.as_str()));
        let message = escape(message);
        match verdict.result {
            VerifyResult::Isolated => text.push_str("/>\n"),
            VerifyResult::Inconclusive => {
                text.push_str(&format!("><skipped message=\"{id} {message}\"/></testcase>\n"));
            }
            VerifyResult::NotIsolated | VerifyResult::ProbeFailed => {
                text.push_str(&format!(
                    "><failure type=\"{id}\" message=\"{message}\"/></testcase>\n"
                ));
            }
        }
    }
    text.push_str("</testsuite>\n");
    text
}
