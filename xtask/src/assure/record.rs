//! `docs/assurance.json`: the counts of a whole run, and whether a sample is in keeping with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Part;
use super::mutants::{Fate, Outcome};
use super::shards::Took;
use crate::{command, output};

/// Where the record is.
pub(crate) const FILE: &str = "docs/assurance.json";

/// What a whole run found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The commit that was run; `None` if it is not in the history any more, so that the run cannot be repeated.
    pub(crate) commit: Option<String>,
    /// Always true: no cluster was touched.
    pub(crate) simulated: bool,
    /// Episodes with faults at random.
    pub(crate) seeds: u64,
    /// Calls at which the operator was killed, before and after counted each.
    pub(crate) crash_points: u64,
    /// Episodes in which something else went wrong.
    pub(crate) fault_plans: u64,
    /// States of the model.
    pub(crate) model_states: u64,
    /// Seeded bugs.
    pub(crate) mutants: u64,
    /// Of them, those that the tests notice.
    pub(crate) mutants_killed: u64,
    /// Whatever is not as it should be: broken promises and surviving bugs.
    pub(crate) failures: u64,
    /// How long all parts took together, builds included.
    pub(crate) wall_seconds: u64,
    /// How many seconds each part took.
    pub(crate) seconds: BTreeMap<Part, u64>,
    /// Workloads, each on each of its topologies.
    pub(crate) episodes: usize,
    /// The operator's calls in each workload, on all topologies together: the places at which it was killed.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Properties of the model.
    pub(crate) properties: usize,
    /// Points at which the node agent was ended.
    pub(crate) agent_crash_points: u64,
}

/// What the parts found that `kata-assure` runs, as it says it.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Episodes under faults.
    pub(crate) episodes: Value,
    /// The model.
    pub(crate) model: Value,
    /// The node agent.
    pub(crate) agents: Value,
}

fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

impl Record {
    /// The record of a run.
    pub(crate) fn new(
        commit: String,
        found: &Found,
        catalogue: &[Outcome],
        parts: &[Took],
    ) -> Self {
        let Found { episodes, model, agents } = found;
        let failed: u64 =
            [episodes, model, agents].map(|part| count(part, "failures")).iter().sum();
        let number = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let mutants = number(catalogue.len());
        let killed = catalogue.iter().filter(|outcome| outcome.fate == Fate::Killed).count();
        let mutants_killed = number(killed);
        Self {
            commit: Some(commit),
            simulated: true,
            seeds: count(episodes, "seeds"),
            crash_points: count(episodes, "crash_points"),
            fault_plans: count(episodes, "fault_plans"),
            model_states: count(model, "model_states"),
            mutants,
            mutants_killed,
            failures: failed + mutants - mutants_killed,
            wall_seconds: parts.iter().map(|took| took.seconds).sum(),
            seconds: parts.iter().map(|took| (took.part, took.seconds)).collect(),
            episodes: cells(episodes).count(),
            calls: calls(episodes),
            properties: properties(model),
            agent_crash_points: count(agents, "crash_points"),
        }
    }

    /// Writes the record.
    pub(crate) fn write(&self, root: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| format!("cannot express {FILE}: {error}"))?;
        fs::write(root.join(FILE), text + "\n")
            .map_err(|error| format!("cannot write {FILE}: {error}"))
    }

    /// Reads the committed record.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(root.join(FILE))
            .map_err(|error| format!("cannot read {FILE} ({error}): run `cargo xtask assure`"))?;
        serde_json::from_str(&text)
            .map_err(|error| format!("{FILE} is no record of a run: {error}"))
    }

    /// What has become less since the record, seen from a sample: a seeded bug, a workload, a place for
    /// a fault, a property, or a point at which the node agent is ended is gone. How much of it a sample runs does not matter.
    pub(crate) fn fallen(&self, bugs: usize, found: &Found) -> Vec<String> {
        let mut fallen = Vec::new();
        if self.failures > 0 {
            fallen.push(format!("{FILE} records {} failures", self.failures));
        }
        if u64::try_from(bugs).unwrap_or(u64::MAX) < self.mutants {
            fallen.push(format!("there were {} seeded bugs, now {bugs}", self.mutants));
        }
        let now = calls(&found.episodes);
        for (workload, before) in &self.calls {
            match now.get(workload) {
                None => fallen.push(format!("workload {workload} is gone")),
                // The operator may well come to need a few calls less.
                Some(now) if *now < before - before / 10 => {
                    fallen.push(format!("workload {workload} had {before} calls, now {now}"));
                }
                Some(_) => {}
            }
        }
        for (what, before, now) in [
            ("workloads on topologies", self.episodes, cells(&found.episodes).count()),
            ("properties of the model", self.properties, properties(&found.model)),
        ] {
            if now < before {
                fallen.push(format!("there were {before} {what}, now {now}"));
            }
        }
        let (before, now) = (self.agent_crash_points, count(&found.agents, "crash_points"));
        if now < before {
            fallen.push(format!("the node agent was ended at {before} points, now at {now}"));
        }
        fallen
            .into_iter()
            .map(|fall| {
                format!("{fall}; if that is right, run `cargo xtask assure` and commit {FILE}")
            })
            .collect()
    }
}

/// What all pieces of the episodes found. Numbers are added up but for those that describe the run.
pub(crate) fn sum_of_episodes(pieces: Vec<Value>) -> Value {
    let mut pieces = pieces.into_iter();
    let mut sum = pieces.next().unwrap_or_default();
    for piece in pieces {
        for key in ["crash_points", "fault_plans", "seeds", "failures", "left_out"] {
            sum[key] = (count(&sum, key) + count(&piece, key)).into();
        }
        let seconds = |of: &Value| of["wall_seconds"].as_f64().unwrap_or_default();
        let took = seconds(&sum) + seconds(&piece);
        let episodes = count(&sum, "crash_points") + count(&sum, "fault_plans");
        sum["wall_seconds"] = took.into();
        sum["episodes_per_second"] = (episodes as f64 / took.max(0.1)).into();
        if let (Some(all), Some(more)) =
            (sum["workloads"].as_array_mut(), piece["workloads"].as_array())
        {
            all.extend(more.iter().cloned());
        }
    }
    sum
}

/// The commit that the record names is in the history: else what it says cannot be repeated. For the house rules.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let commit = match Record::read(root) {
        Ok(record) => record.commit,
        Err(error) => return vec![error],
    };
    let Some(commit) = commit else { return Vec::new() };
    let mut git = command(root, "git");
    git.args(["merge-base", "--is-ancestor", &commit, "HEAD"]);
    let problem = |_| {
        format!(
            "{FILE} names the commit {commit}, which is not in the history of this one: run `cargo xtask assure` on a \
             commit of main"
        )
    };
    output(git).err().map(problem).into_iter().collect()
}

/// Each workload on each topology.
fn cells(episodes: &Value) -> impl Iterator<Item = &Value> {
    episodes["workloads"].as_array().into_iter().flatten()
}

/// The operator's calls in each workload.
fn calls(episodes: &Value) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for cell in cells(episodes) {
        let workload = cell["workload"].as_str().unwrap_or_default().to_owned();
        *calls.entry(workload).or_default() += count(cell, "calls");
    }
    calls
}

/// How many properties the model has.
fn properties(model: &Value) -> usize {
    let scopes = model["scopes"].as_array().into_iter().flatten();
    let properties = scopes.flat_map(|scope| scope["properties"].as_array().into_iter().flatten());
    let names: BTreeSet<&str> =
        properties.filter_map(|property| property["name"].as_str()).collect();
    names.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn episodes(calls: u64) -> Value {
        json!({"seeds": 1, "crash_points": 2, "fault_plans": 3, "failures": 0,
            "workloads": [{"workload": "install", "topology": "three", "calls": calls}]})
    }

    fn model() -> Value {
        json!({"model_states": 4, "failures": 0, "scopes": [{"properties": [{"name": "S1"}]}]})
    }

    fn bug(fate: Fate) -> Outcome {
        let id = "a".to_owned();
        Outcome { id, class: Vec::new(), breaks: String::new(), fate, killers: Vec::new() }
    }

    fn record(fate: Fate) -> Record {
        Record::new("c".to_owned(), &found(100, 10), &[bug(fate)], &[])
    }

    fn found(calls: u64, points: u64) -> Found {
        let agents = json!({"crash_points": points, "failures": 0});
        Found { episodes: episodes(calls), model: model(), agents }
    }

    #[test]
    fn a_bug_that_survives_is_a_failure() {
        let killed = record(Fate::Killed);
        assert_eq!((killed.mutants, killed.mutants_killed, killed.failures), (1, 1, 0));
        let survived = record(Fate::Survived);
        assert_eq!((survived.mutants, survived.mutants_killed, survived.failures), (1, 0, 1));
        assert_eq!(survived.fallen(1, &found(100, 10)).len(), 1);
    }

    #[test]
    fn whatever_becomes_less_is_told() {
        let record = record(Fate::Killed);
        assert_eq!(record.fallen(2, &found(95, 11)), Vec::<String>::new());
        let other = json!({"workloads": [{"workload": "other", "calls": 100}]});
        let other = Found { episodes: other, ..found(100, 10) };
        let no_property = Found { model: json!({}), ..found(100, 10) };
        for (bugs, found) in [
            (0, found(100, 10)),
            (1, found(80, 10)),
            (1, other),
            (1, no_property),
            (1, found(100, 9)),
        ] {
            assert_eq!(record.fallen(bugs, &found).len(), 1);
        }
    }

    #[test]
    fn episodes_that_ran_in_pieces_are_added_up() {
        let sum = sum_of_episodes(vec![episodes(7), episodes(8)]);
        assert_eq!((count(&sum, "crash_points"), count(&sum, "seeds")), (4, 2));
        assert_eq!(sum["workloads"].as_array().map(Vec::len), Some(2));
        assert_eq!(sum_of_episodes(vec![episodes(7)]), episodes(7));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let text = serde_json::to_string(&record(Fate::DoesNotCompile)).unwrap_or_default();
        let read: Result<Record, _> = serde_json::from_str(&text);
        assert!(read.is_ok_and(|read| read.failures == 1 && read.crash_points == 2));
    }
}
