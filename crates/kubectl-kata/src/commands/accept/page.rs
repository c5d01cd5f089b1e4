//! The report of a proof as an HTML page, to send to others: no address of the cluster is in it.

use maud::{Markup, html};

use crate::commands::report::page::frame;
use crate::document::{AcceptReport, Environment, Fact, FactResult, Step};

/// The whole page.
pub(super) fn page(report: &AcceptReport) -> Markup {
    let title =
        format!("Kata on {} {}", report.environment.platform, report.environment.kubernetes);
    let failed = report.steps.iter().flat_map(|step| &step.facts);
    let failed = failed.filter(|fact| fact.result == FactResult::Failed).count();
    let verdict = match (report.success, failed) {
        (true, _) => "Accepted: every fact held.".to_owned(),
        (false, 0) => "Not accepted: the proof was not completed.".to_owned(),
        (false, failed) => format!("Not accepted: {failed} of the facts below failed."),
    };
    let body = html! {
        (environment(&report.environment))
        @for step in &report.steps { (section(step)) }
    };
    frame(&title, (report.success, &verdict), report.time, report.head.simulated, &body)
}

fn environment(environment: &Environment) -> Markup {
    let unknown = || "unknown".to_owned();
    let rows = [
        ("Kubernetes", environment.kubernetes.clone()),
        ("Node's system", environment.system.clone()),
        ("Kernel", environment.kernel.clone()),
        ("Architecture", environment.architecture.clone()),
        ("Container runtime", environment.container_runtime.clone()),
        ("Kata", environment.kata.clone().unwrap_or_else(unknown)),
        ("Virtual machine", environment.vmm.clone().unwrap_or_else(unknown)),
        ("Operator", environment.operator_image.clone().unwrap_or_else(unknown)),
        ("kubectl kata", environment.plugin.to_owned()),
    ];
    html! { dl { @for (name, value) in rows { dt { (name) } dd { (value) } } } }
}

fn section(step: &Step) -> Markup {
    html! {
        h2 { (step.title) " (" (format!("{:.0} s", step.seconds)) ")" }
        div class="table" {
            table {
                thead { tr { th { "Expected" } th { "Seen" } th { "Result" } } }
                tbody { @for fact in &step.facts { (row(fact)) } }
            }
        }
    }
}

fn row(fact: &Fact) -> Markup {
    let (class, word) = match fact.result {
        FactResult::Held => ("good", "held"),
        FactResult::Failed => ("bad", "failed"),
        FactResult::Skipped => ("note", "skipped"),
    };
    html! {
        tr {
            td data-label="Expected" { (fact.expected) }
            td data-label="Seen" { (fact.seen) }
            td data-label="Result" class=(class) { (word) }
        }
    }
}
