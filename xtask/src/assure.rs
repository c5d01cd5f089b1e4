//! `cargo xtask assure`: shows that the operator keeps its promises under faults, and that the tests
//! would notice if it did not.
//!
//! It builds, runs and records; the episodes and the model are `kata-assure`'s, and the seeded bugs are
//! in `assurance/mutants`.

use std::path::Path;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::{command, output, say};

pub(crate) mod catalogue;
mod harness;
mod mutants;
pub(crate) mod record;
mod tree;

use catalogue::Mutant;
use harness::{Extent, Harness};
use mutants::{Fate, Run};
use record::Record;

/// How many seeded bugs a sample tries.
const SAMPLED_BUGS: usize = 6;

/// What to run, and how much of it.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Run what CI runs: a part of everything, another one for each commit. Compares with
    /// docs/assurance.json, and writes nothing
    #[arg(long)]
    sample: bool,
    /// Run one part only, and write nothing
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// How many threads episodes and model take
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Write docs/assurance.json although files differ from the commit that it will name
    #[arg(long)]
    allow_dirty: bool,
    /// Of the seeded bugs, take these only; may be repeated
    #[arg(long, value_name = "ID")]
    mutant: Vec<String>,
    /// With a seeded bug, run all tests of its killers' crates, and name those that fail
    #[arg(long)]
    survey: bool,
}

impl Options {
    /// What CI runs.
    pub(crate) fn sample() -> Self {
        Self {
            sample: true,
            only: None,
            threads: 2,
            allow_dirty: false,
            mutant: Vec::new(),
            survey: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The seeded bugs
    Mutants,
    /// Episodes under faults
    Episodes,
    /// The model
    Model,
}

/// Runs what is asked for; returns what is wrong.
pub(crate) fn run(root: &Path, options: &Options) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(error) = run_parts(root, options, &mut problems) {
        problems.push(error);
    }
    problems
}

fn run_parts(root: &Path, options: &Options, problems: &mut Vec<String>) -> Result<(), String> {
    let begun = Instant::now();
    let mut head = command(root, "git");
    head.args(["rev-parse", "HEAD"]);
    let commit = output(head)?.trim().to_owned();
    let whole = !options.sample && options.only.is_none() && options.mutant.is_empty();
    if whole && !options.allow_dirty {
        clean(root)?;
    }
    let recorded = if options.sample { Some(Record::read(root)?) } else { None };
    let wanted = |part: Part| options.only.is_none_or(|only| only == part);
    let catalogue = catalogue::read(root)?;
    let extent = if options.sample { Extent::Sample(seed(&commit)) } else { Extent::Whole };

    let (mut episodes, mut model) = (Value::Null, Value::Null);
    if wanted(Part::Episodes) || wanted(Part::Model) {
        let harness = Harness::build(root, extent, options.threads)?;
        if wanted(Part::Episodes) {
            episodes = harness.episodes()?;
        }
        if wanted(Part::Model) {
            model = harness.model()?;
        }
    }
    for (part, found) in [("episodes", &episodes), ("model", &model)] {
        let failures = found["failures"].as_u64();
        if failures.is_some_and(|failures| failures > 0) || (failures.is_none() && !found.is_null())
        {
            problems.push(format!("{part}: {} failures, see above", found["failures"]));
        }
    }

    let mut bugs = Run::default();
    if wanted(Part::Mutants) {
        problems.extend(catalogue::check(root));
        let chosen = choose(&catalogue, options, extent)?;
        bugs = mutants::run(root, &chosen, options.survey);
        let killed = bugs.outcomes.iter().filter(|bug| bug.fate == Fate::Killed).count();
        let seconds = bugs.took.as_secs();
        say(&format!("assure: {killed} of {} seeded bugs killed in {seconds} s", chosen.len()));
        problems.append(&mut bugs.problems);
    }
    if let Some(recorded) = recorded {
        problems.extend(recorded.fallen(catalogue.len(), &episodes, &model));
    }
    if whole {
        let seconds = begun.elapsed().as_secs();
        let record = Record::new(commit, episodes, model, bugs.outcomes, seconds);
        record.write(root)?;
        say(&format!("assure: wrote {} after {seconds} s", record::FILE));
    }
    Ok(())
}

/// The seeded bugs to try: those that are named, or all; of a sample a handful, spread over the
/// catalogue.
fn choose(catalogue: &[Mutant], options: &Options, extent: Extent) -> Result<Vec<Mutant>, String> {
    if let Some(unknown) =
        options.mutant.iter().find(|id| catalogue.iter().all(|mutant| mutant.id != **id))
    {
        return Err(format!("there is no seeded bug {unknown}"));
    }
    if !options.mutant.is_empty() {
        let named = catalogue.iter().filter(|mutant| options.mutant.contains(&mutant.id));
        return Ok(named.cloned().collect());
    }
    let Extent::Sample(seed) = extent else { return Ok(catalogue.to_vec()) };
    let step = (catalogue.len() / SAMPLED_BUGS).max(1);
    let first = usize::try_from(seed).unwrap_or_default() % step;
    Ok(catalogue.iter().skip(first).step_by(step).cloned().collect())
}

/// A number from a commit, so that each commit's sample is another one and can be run again.
fn seed(commit: &str) -> u64 {
    commit.get(..6).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

/// Fails if the tree is not what its commit says.
fn clean(root: &Path) -> Result<(), String> {
    let mut git = command(root, "git");
    git.args(["status", "--porcelain", "--", ".", &format!(":!{}", record::FILE)]);
    let changes = output(git)?;
    match changes.lines().next() {
        None => Ok(()),
        Some(first) => Err(format!(
            "the tree differs from its commit ({}): commit, or give --allow-dirty",
            first.trim()
        )),
    }
}
