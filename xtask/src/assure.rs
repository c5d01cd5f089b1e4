//! `cargo xtask assure`: shows that the operator keeps its promises under faults, and that the tests
//! would notice if it did not.
//!
//! It builds, runs and records; the episodes and the model are `kata-assure`'s, and the seeded bugs are
//! in `assurance/mutants`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{command, output, say};

pub(crate) mod catalogue;
mod harness;
mod mutants;
pub(crate) mod record;
mod shards;
mod tree;

use catalogue::Mutant;
use harness::{Extent, Harness};
use mutants::{Fate, Run};
use record::{Found, Record};
use shards::Shards;

/// How many seeded bugs a sample tries.
const SAMPLED_BUGS: usize = 6;
/// No episode with faults of a sample begins after so long since the first of them.
const EPISODES_OF_A_SAMPLE: Duration = Duration::from_secs(60);
/// No seeded bug of a sample is tried after so long since the sample began.
const SAMPLE: Duration = Duration::from_secs(270);

/// What to run, and how much of it.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Run what CI runs: a part of everything, another one for each commit, about five minutes long. Compares
    /// with docs/assurance.json, and writes nothing
    #[arg(long)]
    sample: bool,
    /// Run one part only, and write no record
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// How many threads episodes and model take
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Of the seeded bugs, take these only; may be repeated
    #[arg(long, value_name = "ID")]
    mutant: Vec<String>,
    /// With a seeded bug, run all tests of its killers' crates, and name those that fail
    #[arg(long)]
    survey: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
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
    let begun = Instant::now();
    let commit = head(root)?;
    let full = !options.sample && options.mutant.is_empty() && !options.survey;
    let writes = full && options.only.is_none();
    let clean = clean(root);
    let keeps = full && clean.is_ok();
    if writes {
        clean?;
        is_of_main(root)?;
    }
    let recorded = if options.sample { Some(Record::read(root)?) } else { None };
    let catalogue = catalogue::read(root)?;
    let extent = if options.sample { Extent::Sample(seed(&commit)) } else { Extent::Whole };
    let chosen = choose(&catalogue, options, extent)?;
    let wants = |part| options.only.is_none_or(|only| only == part);
    let mut shards = Shards::new(root, keeps);
    let mut found = Found::default();
    if [Part::Episodes, Part::Model, Part::Agents].into_iter().any(wants) {
        let harness = Harness::build(root, extent, options.threads)?;
        let sound = |found: &Value| found["failures"] == 0;
        let mut run = |part, name: &str, work: &dyn Fn() -> Result<Value, String>| {
            let found = shards.run(part, name, sound, work)?;
            if !sound(&found) {
                let part = part.name();
                problems.push(format!("{part} {name}: {} failures, see above", found["failures"]));
            }
            Ok::<Value, String>(found)
        };
        if wants(Part::Episodes) {
            let mut pieces = Vec::new();
            for words in harness.episode_shards()? {
                pieces.push(run(Part::Episodes, &words.join("-"), &|| harness.episodes(&words))?);
            }
            found.episodes = record::sum_of_episodes(pieces);
        }
        if wants(Part::Model) {
            found.model = run(Part::Model, "all", &|| harness.model())?;
        }
        if wants(Part::Agents) {
            found.agents = run(Part::Agents, "all", &|| harness.agents())?;
        }
    }
    let mut bugs = Run::default();
    if wants(Part::Mutants) {
        let deadline = options.sample.then(|| begun + SAMPLE);
        for (package, chosen) in by_package(&chosen) {
            bugs.extend(shards.run(
                Part::Mutants,
                package,
                |bugs: &Run| bugs.problems.is_empty(),
                || Ok(mutants::run(root, &chosen, options.survey, deadline)),
            )?);
        }
        bugs.problems.extend(catalogue::check(root));
        let killed = bugs.outcomes.iter().filter(|bug| bug.fate == Fate::Killed).count();
        let (tried, seconds) = (bugs.outcomes.len(), bugs.took.as_secs());
        say(&format!("assure: {killed} of {tried} seeded bugs killed in {seconds} s"));
        if tried < chosen.len() {
            say(&format!("assure: {} more were not tried: the time was up", chosen.len() - tried));
        }
        problems.append(&mut bugs.problems);
    }
    if let Some(recorded) = recorded {
        problems.extend(recorded.fallen(catalogue.len(), &found));
    }
    if writes {
        let took = shards.took();
        let seconds: u64 = took.iter().map(|took| took.seconds).sum();
        Record::new(commit, &found, &bugs.outcomes, &took).write(root)?;
        say(&format!("assure: wrote {}; all parts took {seconds} s", record::FILE));
    }
    Ok(())
}

fn head(root: &Path) -> Result<String, String> {
    let mut git = command(root, "git");
    git.args(["rev-parse", "HEAD"]);
    Ok(output(git)?.trim().to_owned())
}

/// Fails if the commit is not one of main: another one may be in no history one day, and then nothing that its record
/// says can be repeated.
fn is_of_main(root: &Path) -> Result<(), String> {
    let mut git = command(root, "git");
    git.args(["merge-base", "--is-ancestor", "HEAD", "main"]);
    if output(git).is_err() {
        return Err("HEAD is not a commit of main: a record is written only for one that is. Land it first, or run a \
                    part with --only"
            .to_owned());
    }
    Ok(())
}

/// Seeded bugs by the package whose tests kill them first.
fn by_package(mutants: &[Mutant]) -> BTreeMap<&str, Vec<Mutant>> {
    let mut packages: BTreeMap<&str, Vec<Mutant>> = BTreeMap::new();
    for mutant in mutants {
        let package = mutant.killers.first().map_or("", |killer| &killer.package);
        packages.entry(package).or_default().push(mutant.clone());
    }
    packages
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
            "the tree differs from its commit ({}): commit, or run a part with --only",
            first.trim()
        )),
    }
}
