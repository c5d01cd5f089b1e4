//! Runs the checker and says what it found.

use std::time::{Duration, Instant};

use serde::Serialize;
use stateright::{Checker, Expectation, HasDiscoveries, Model};

use super::judge::Distortion;
use super::machine::{Machine, Scope};

/// What came of a property.
#[derive(Clone, Debug, Serialize)]
pub struct PropertyReport {
    /// Its name.
    pub name: &'static str,
    /// `always` or `sometimes`.
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// The moves of the counterexample, if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counterexample: Vec<String>,
}

/// What came of one scope.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// What was enumerated, in a few words.
    pub scope: String,
    /// States that were generated.
    pub generated: usize,
    /// Different states among them.
    pub unique: usize,
    /// Different snapshots that were decided about.
    pub decisions: usize,
    /// The longest path.
    pub depth: usize,
    /// Whether every state of the scope was seen.
    pub exhaustive: bool,
    /// Seconds that it took.
    pub seconds: f64,
    /// The properties.
    pub properties: Vec<PropertyReport>,
}

/// What came of all scopes.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// States that were generated.
    pub model_states: usize,
    /// Different states among them.
    pub unique: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// Properties that do not hold.
    pub failures: usize,
    /// Every scope.
    pub scopes: Vec<Checked>,
}

impl Report {
    /// Whether every promise holds, and everything that must come about did so in some scope.
    pub fn is_sound(&self) -> bool {
        let properties = || self.scopes.iter().flat_map(|scope| &scope.properties);
        properties().all(|property| {
            property.holds
                || property.kind == "sometimes"
                    && properties().any(|other| other.name == property.name && other.holds)
        })
    }
}

/// The scopes of a full run of which the largest has so many nodes.
pub fn scopes(nodes: u8) -> Vec<Scope> {
    let calm = Scope {
        nodes,
        edits: 2,
        faults: 0,
        stalls: 0,
        pods: 1,
        operators: 1,
        lingers: false,
        log_level: false,
    };
    let one = Scope { nodes: 1, ..calm };
    vec![
        Scope { edits: 1, faults: 1, ..calm },
        calm,
        // What a cache shows is one world more, so that a state is a pair of worlds.
        Scope { edits: 1, stalls: 1, ..one },
        Scope { faults: 1, lingers: true, log_level: true, ..one },
    ]
}

/// The scopes of a sample: no edit comes together with a fault.
pub(super) fn sample(nodes: u8) -> Vec<Scope> {
    let edited = Scope {
        nodes,
        edits: 1,
        faults: 0,
        stalls: 0,
        pods: 1,
        operators: 1,
        lingers: false,
        log_level: false,
    };
    let one = Scope { nodes: 1, ..edited };
    vec![
        edited,
        Scope { edits: 0, faults: 1, ..edited },
        Scope { edits: 0, stalls: 1, ..one },
        Scope { lingers: true, log_level: true, ..one },
    ]
}

/// Enumerates one scope until all is seen, a promise is broken, or `limit` is over.
pub fn check(machine: Machine, threads: usize, limit: Option<Duration>) -> Checked {
    check_until(machine, HasDiscoveries::AnyFailures, threads, limit)
}

/// Enumerates one scope until all is seen, this property is settled by a path, or `limit` is over.
pub fn check_for(machine: Machine, property: &'static str, limit: Duration) -> Checked {
    check_until(machine, HasDiscoveries::AllOf([property].into()), 1, Some(limit))
}

fn check_until(
    machine: Machine,
    until: HasDiscoveries,
    threads: usize,
    limit: Option<Duration>,
) -> Checked {
    let begun = Instant::now();
    let scope = machine.scope;
    let builder = machine.checker().threads(threads).finish_when(until);
    let builder = match limit {
        Some(limit) => builder.timeout(limit),
        None => builder,
    };
    let checker = builder.spawn_bfs().join();
    let found = checker.discoveries();
    let failed = found.keys().any(|name| {
        checker.model().properties().iter().any(|property| {
            property.name == *name && matches!(property.expectation, Expectation::Always)
        })
    });
    let properties = checker
        .model()
        .properties()
        .iter()
        .map(|property| {
            let path = found.get(property.name);
            let always = matches!(property.expectation, Expectation::Always);
            let counterexample = path.filter(|_| always).map(|path| {
                let steps = path.clone().into_vec();
                steps
                    .into_iter()
                    .filter_map(|(_, action)| action)
                    .map(|action| format!("{action:?}"))
                    .collect()
            });
            PropertyReport {
                name: property.name,
                kind: if always { "always" } else { "sometimes" },
                holds: always != path.is_some(),
                counterexample: counterexample.unwrap_or_default(),
            }
        })
        .collect();
    let late = limit.is_some_and(|limit| begun.elapsed() >= limit);
    Checked {
        scope: format!(
            "{} nodes, {} edits, {} faults, {} stalls, {} pods, {} operators{}{}",
            scope.nodes,
            scope.edits,
            scope.faults,
            scope.stalls,
            scope.pods,
            scope.operators,
            if scope.lingers { ", slow deletion" } else { "" },
            if scope.log_level { ", log level" } else { "" },
        ),
        generated: checker.state_count(),
        unique: checker.unique_state_count(),
        decisions: checker.model().judge.decisions(),
        depth: checker.max_depth(),
        exhaustive: !late && !failed,
        seconds: begun.elapsed().as_secs_f64(),
        properties,
    }
}

/// Enumerates scopes one after the other.
pub fn report(scopes: &[Scope], threads: usize, limit: Option<Duration>) -> Report {
    let scopes: Vec<Checked> = scopes
        .iter()
        .map(|scope| check(Machine::new(*scope, Distortion::default()), threads, limit))
        .collect();
    let failures = scopes
        .iter()
        .flat_map(|scope| &scope.properties)
        .filter(|property| !property.holds && property.kind == "always")
        .count();
    Report {
        model_states: scopes.iter().map(|scope| scope.generated).sum(),
        unique: scopes.iter().map(|scope| scope.unique).sum(),
        seconds: scopes.iter().map(|scope| scope.seconds).sum(),
        failures,
        scopes,
    }
}
