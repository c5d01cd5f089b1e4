//! `cargo xtask assure`: shows that the operator keeps its promises under faults, and that the tests
//! would notice if it did not.
//!
//! It builds, runs and records; the episodes and the model are `kata-assure`'s, and the seeded bugs are
//! in `assurance/mutants`.

use std::path::Path;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{command, output, say};

pub(crate) mod catalogue;
mod harness;
mod mutants;
mod parts;
pub(crate) mod record;
mod tree;

use catalogue::Mutant;
use harness::{Extent, Harness};
use mutants::{Fate, Run};
use parts::Took;
use record::{Found, Record};

/// How many seeded bugs a sample tries.
const SAMPLED_BUGS: usize = 6;

/// What to run, and how much of it.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Run what CI runs: a part of everything, another one for each commit. Compares with
    /// docs/assurance.json, and writes nothing
    #[arg(long)]
    sample: bool,
    /// Run one part only, and write no record
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Take what the one part finds into docs/assurance.json; the other parts stay as they are there
    #[arg(long, requires = "only", conflicts_with_all = ["sample", "mutant", "survey"])]
    renew: bool,
    /// How many threads episodes and model take
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Take over the parts that ran before, by themselves and without failures, on the very same
    /// sources; the record says which
    #[arg(long)]
    resume: bool,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// The seeded bugs
    Mutants,
    /// Episodes under faults
    Episodes,
    /// The model
    Model,
    /// The node agent's crash points, loops and parsers
    Agents,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Mutants => "mutants",
            Self::Episodes => "episodes",
            Self::Model => "model",
            Self::Agents => "agents",
        }
    }
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
    let mut head = command(root, "git");
    head.args(["rev-parse", "HEAD"]);
    let commit = output(head)?.trim().to_owned();
    let full = !options.sample && options.mutant.is_empty() && !options.survey;
    let whole = full && options.only.is_none();
    let clean = clean(root);
    let is_clean = clean.is_ok();
    if (whole || options.renew) && !options.allow_dirty {
        clean?;
    }
    let recorded = options.sample || options.renew;
    let recorded = if recorded { Some(Record::read(root)?) } else { None };
    let catalogue = catalogue::read(root)?;
    let extent = if options.sample { Extent::Sample(seed(&commit)) } else { Extent::Whole };
    let chosen = choose(&catalogue, options, extent)?;
    let mut runs = Runs { root, options, keeps: full && is_clean, took: Vec::new() };
    let harness = || Harness::build(root, extent, options.threads);
    let failures = |found: &Value| found["failures"].as_u64();
    let sound = |found: &Value| failures(found) == Some(0);
    let episodes = runs.run(Part::Episodes, sound, || harness()?.episodes())?;
    let model = runs.run(Part::Model, sound, || harness()?.model())?;
    let agents = runs.run(Part::Agents, sound, || harness()?.agents())?;
    for (part, found) in [("episodes", &episodes), ("model", &model), ("agents", &agents)] {
        if let Some(found) = found.as_ref().filter(|found| !sound(found)) {
            problems.push(format!("{part}: {} failures, see above", found["failures"]));
        }
    }
    let bugs = runs.run(
        Part::Mutants,
        |bugs: &Run| bugs.problems.is_empty(),
        || {
            let mut bugs = mutants::run(root, &chosen, options.survey);
            bugs.problems.extend(catalogue::check(root));
            Ok(bugs)
        },
    )?;
    if let Some(bugs) = &bugs {
        let killed = bugs.outcomes.iter().filter(|bug| bug.fate == Fate::Killed).count();
        let seconds = bugs.took.as_secs();
        say(&format!("assure: {killed} of {} seeded bugs killed in {seconds} s", chosen.len()));
        problems.extend(bugs.problems.iter().cloned());
    }
    let found = Found {
        episodes: episodes.unwrap_or_default(),
        model: model.unwrap_or_default(),
        agents: agents.unwrap_or_default(),
    };
    if options.renew {
        if let (Some(recorded), Some(took)) = (recorded, runs.took.pop()) {
            let took = Took { commit: Some(commit), ..took };
            recorded.renew(took, found, bugs.map(|bugs| bugs.outcomes)).write(root)?;
            say(&format!("assure: renewed a part of {}", record::FILE));
        }
        return Ok(());
    }
    if let Some(recorded) = recorded {
        problems.extend(recorded.fallen(catalogue.len(), &found));
    }
    if whole {
        let seconds: u64 = runs.took.iter().map(|took| took.seconds).sum();
        let outcomes = bugs.unwrap_or_default().outcomes;
        let record = Record::new(commit, found, outcomes, runs.took);
        record.write(root)?;
        say(&format!("assure: wrote {}; all parts took {seconds} s", record::FILE));
    }
    Ok(())
}

/// Runs parts, or takes over what they found before.
struct Runs<'a> {
    root: &'a Path,
    options: &'a Options,
    /// Whether everything is run, and committed; nothing else is kept for later.
    keeps: bool,
    took: Vec<Took>,
}

impl Runs<'_> {
    /// What a part finds; `None` if it is not wanted.
    fn run<T: Serialize + DeserializeOwned>(
        &mut self,
        part: Part,
        sound: impl Fn(&T) -> bool,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        if self.options.only.is_some_and(|only| only != part) {
            return Ok(None);
        }
        let name = part.name();
        let sources = if self.keeps { Some(parts::sources(self.root, part)?) } else { None };
        if self.options.resume
            && let Some(sources) = &sources
            && let Some((found, seconds)) = parts::kept(self.root, part, sources)
        {
            say(&format!("assure: {name}: taken from an earlier run of {seconds} s"));
            self.took.push(Took { part, seconds, earlier: true, commit: None });
            return Ok(Some(found));
        }
        let begun = Instant::now();
        let found = work()?;
        let seconds = begun.elapsed().as_secs();
        self.took.push(Took { part, seconds, earlier: false, commit: None });
        if let Some(sources) = sources.filter(|_| sound(&found)) {
            parts::keep(self.root, part, &sources, seconds, &found)?;
        }
        Ok(Some(found))
    }
}

/// The seeded bugs to try: those that are named, or all; of a sample a handful, spread over those of one package,
/// so that the tests of one package are built.
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
    let seed = usize::try_from(seed).unwrap_or_default();
    let package = |mutant: &Mutant| mutant.killers.first().map(|killer| killer.package.clone());
    let chosen = catalogue.get(seed % catalogue.len().max(1)).and_then(package);
    let of_package: Vec<&Mutant> =
        catalogue.iter().filter(|mutant| package(mutant) == chosen).collect();
    let step = (of_package.len() / SAMPLED_BUGS).max(1);
    let spread = of_package.into_iter().skip(seed % step).step_by(step);
    Ok(spread.take(SAMPLED_BUGS).cloned().collect())
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
