//! Runs the catalogue of seeded bugs: each is put into a copy of the tree, where its tests must fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::catalogue::{Killer, Mutant};
use super::tree::{LIMIT, LIMIT_OF_ALL, Tree};
use crate::say;

/// What became of a seeded bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fate {
    /// All its tests failed, as they must.
    Killed,
    /// One of its tests passed all the same.
    Survived,
    /// It is not in the tree as the catalogue says.
    DoesNotApply,
    /// It is no valid code.
    DoesNotCompile,
}

/// A seeded bug and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) id: String,
    pub(crate) class: Vec<String>,
    pub(crate) breaks: String,
    pub(crate) fate: Fate,
    /// The tests that failed.
    pub(crate) killers: Vec<String>,
}

/// What the catalogue came to.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) problems: Vec<String>,
    pub(crate) took: Duration,
}

impl Run {
    pub(crate) fn extend(&mut self, more: Self) {
        let Self { outcomes, problems, took } = more;
        self.outcomes.extend(outcomes);
        self.outcomes.sort_by(|a, b| a.id.cmp(&b.id));
        self.problems.extend(problems);
        self.took += took;
    }
}

/// Puts each of these bugs into a copy of the tree and runs the tests that must fail; before that they
/// must pass without it. No bug is begun after `deadline`. With `survey` all tests of the killers' crates run, and those that fail are
/// named, which helps to choose a killer.
pub(crate) fn run(root: &Path, mutants: &[Mutant], survey: bool, deadline: Option<Instant>) -> Run {
    let begun = Instant::now();
    let mut run = Run::default();
    if let Err(error) = run_all(root, mutants, survey, deadline, &mut run) {
        run.problems.push(error);
    }
    run.took = begun.elapsed();
    run
}

fn run_all(
    root: &Path,
    mutants: &[Mutant],
    survey: bool,
    deadline: Option<Instant>,
    run: &mut Run,
) -> Result<(), String> {
    say(&format!("assure: {} seeded bugs; copying the tree", mutants.len()));
    let tree = Tree::copy(root)?;
    let mut killers: BTreeMap<(&str, &str), BTreeSet<&Killer>> = BTreeMap::new();
    for killer in mutants.iter().flat_map(|mutant| &mutant.killers) {
        killers.entry((&killer.package, &killer.target)).or_default().insert(killer);
    }
    let mut limits: BTreeMap<(&str, &str), Duration> = BTreeMap::new();
    for ((package, target), killers) in &killers {
        let binary = tree
            .build(package, target)
            .map_err(|error| format!("cannot build the tests {target} of {package}: {error}"))?;
        let killers: Vec<&Killer> = killers.iter().copied().collect();
        let begun = Instant::now();
        let tested = tree.test(&binary, package, &killers, LIMIT_OF_ALL)?;
        limits.insert((package, target), begun.elapsed() + LIMIT);
        for killer in killers.iter().filter(|killer| !tested.passed.contains(&killer.test)) {
            let found = tested.failed.contains(&killer.test);
            let what = if found { "fails without any seeded bug" } else { "does not exist" };
            run.problems.push(format!("{killer} {what}"));
        }
    }
    // Those that change the same crate follow each other, so that the least is built anew.
    let mut sorted: Vec<&Mutant> = mutants.iter().collect();
    sorted.sort_by_key(|mutant| {
        let package = mutant.edits.first().map(|edit| &edit.package);
        (package, mutant.killers.first().map(|killer| (&killer.package, &killer.target)))
    });
    for (index, mutant) in sorted.iter().enumerate() {
        let begun = Instant::now();
        if deadline.is_some_and(|deadline| begun >= deadline) {
            break;
        }
        let (fate, failed) = match tree.apply(&mutant.edits) {
            Ok(changed) => {
                let tried = try_one(&tree, mutant, survey, &limits, &mut run.problems);
                tree.undo(changed)?;
                tried
            }
            Err(error) => {
                run.problems.push(format!("{} does not apply: {error}", mutant.id));
                (Fate::DoesNotApply, Vec::new())
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        let word = serde_json::to_value(fate).unwrap_or_default();
        let word = word.as_str().unwrap_or_default().replace('-', " ");
        let place = format!("{}/{}", index + 1, sorted.len());
        say(&format!("assure: {place} {} {word} ({seconds:.1} s)", mutant.id));
        if survey {
            failed.iter().for_each(|test| say(&format!("    {test}")));
        }
        run.outcomes.push(Outcome {
            id: mutant.id.clone(),
            class: mutant.class.clone(),
            breaks: mutant.breaks.clone(),
            fate,
            killers: failed,
        });
    }
    Ok(())
}

fn try_one(
    tree: &Tree,
    mutant: &Mutant,
    survey: bool,
    limits: &BTreeMap<(&str, &str), Duration>,
    problems: &mut Vec<String>,
) -> (Fate, Vec<String>) {
    let id = &mutant.id;
    let mut targets: BTreeMap<(&str, &str), Vec<&Killer>> = BTreeMap::new();
    for killer in &mutant.killers {
        targets.entry((&killer.package, &killer.target)).or_default().push(killer);
    }
    let mut failed = Vec::new();
    for ((package, target), killers) in targets {
        let binary = match tree.build(package, target) {
            Ok(binary) => binary,
            Err(error) => {
                problems.push(format!("{id} does not compile: {error}"));
                return (Fate::DoesNotCompile, failed);
            }
        };
        let run: &[&Killer] = if survey { &[] } else { &killers };
        let limit = limits.get(&(package, target)).filter(|_| !survey);
        match tree.test(&binary, package, run, limit.copied().unwrap_or(LIMIT_OF_ALL)) {
            Ok(tested) => {
                failed
                    .extend(tested.failed.iter().map(|test| format!("{package} {target} {test}")));
            }
            Err(error) => problems.push(format!("{id}: {error}")),
        }
    }
    let survivors: Vec<String> = mutant
        .killers
        .iter()
        .map(ToString::to_string)
        .filter(|killer| !failed.contains(killer))
        .collect();
    if survivors.is_empty() {
        (Fate::Killed, failed)
    } else {
        problems.push(format!("{id} survives: {} passed", survivors.join(", ")));
        (Fate::Survived, failed)
    }
}
