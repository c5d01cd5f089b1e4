//! The summary of a campaign as a table for people.

use crate::campaign::{Cell, Summary};
use crate::enumerate::Sort;

/// At most so many failing plans are printed.
const FAILURES: usize = 40;

/// The table, with the lines that reproduce what failed.
pub fn table(summary: &Summary) -> String {
    let mut text = String::from(
        "SIMULATED: the operator is the real one, the cluster is not; nothing here ran on a machine.\n\n",
    );
    text.push_str(&format!(
        "{:<27}{:<11}{:>6}{:>8}{:>9}{:>9}{:>8}{:>10}\n",
        "workload", "topology", "calls", "events", "crashes", "faults", "random", "failures"
    ));
    for cell in &summary.workloads {
        text.push_str(&row(cell));
    }
    let Summary { crash_points, fault_plans, seeds, failures, wall_seconds, .. } = summary;
    text.push_str(&format!(
        "\n{crash_points} crash points, {fault_plans} fault plans ({seeds} random), {failures} failures, \
         {wall_seconds} s on {} threads ({} episodes per second)\n",
        summary.threads, summary.episodes_per_second
    ));
    if summary.left_out > 0 {
        text.push_str(&format!("{} more plans did not run: the time was up\n", summary.left_out));
    }
    let failing = summary.workloads.iter().flat_map(|cell| &cell.failures);
    for failure in failing.take(FAILURES) {
        text.push_str(&format!("\nkata-assure episode '{}'\n", failure.plan));
        for broken in failure.broken.iter().take(5) {
            text.push_str(&format!("  {broken}\n"));
        }
    }
    text
}

fn row(cell: &Cell) -> String {
    let of = |sort: Sort| cell.plans.get(&sort).copied().unwrap_or_default();
    let all: u64 = cell.plans.values().sum();
    format!(
        "{:<27}{:<11}{:>6}{:>8}{:>9}{:>9}{:>8}{:>10}\n",
        cell.workload,
        cell.topology,
        cell.calls,
        cell.events,
        of(Sort::Crash),
        all - of(Sort::Crash) - of(Sort::Random),
        of(Sort::Random),
        cell.failures.len()
    )
}
