//! `cargo xtask assure`: shows that the operator keeps its promises under faults, and that the tests
//! would notice if it did not.
//!
//! It builds, runs and records; the episodes and the model are `kata-assure`'s, and the seeded bugs are
//! in `assurance/mutants`.

use std::path::Path;

use clap::{Args, ValueEnum};

use crate::say;

pub(crate) mod catalogue;
mod mutants;
mod tree;

/// What to run, and how much of it.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Run one part only
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Run these seeded bugs only; may be repeated
    #[arg(long, value_name = "ID")]
    mutant: Vec<String>,
    /// With a seeded bug, run all tests of its killers' crates, and name those that fail
    #[arg(long)]
    survey: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The seeded bugs
    Mutants,
}

/// Runs what is asked for; returns what is wrong.
pub(crate) fn run(root: &Path, options: &Options) -> Vec<String> {
    let mut problems = catalogue::check(root);
    let catalogue = match catalogue::read(root) {
        Ok(catalogue) => catalogue,
        Err(error) => return vec![error],
    };
    let chosen: Vec<catalogue::Mutant> = catalogue
        .iter()
        .filter(|mutant| options.mutant.is_empty() || options.mutant.contains(&mutant.id))
        .cloned()
        .collect();
    let run = mutants::run(root, &chosen, options.survey);
    let killed =
        run.outcomes.iter().filter(|outcome| outcome.fate == mutants::Fate::Killed).count();
    say(&format!(
        "assure: {killed} of {} seeded bugs killed in {} s",
        chosen.len(),
        run.took.as_secs()
    ));
    problems.extend(run.problems);
    problems
}
