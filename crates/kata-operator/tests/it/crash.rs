//! An operator that dies at any request, or meets any fault, comes to the same end.
//!
//! One episode is an install and an uninstall of one worker on virtual time. Dropping the operator's
//! future is a gentle crash; `process.rs` kills a real one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use simcluster::api::fault::{Fault, Match, Rule, When};

use crate::lab::{self, Operator};

/// Far above what an install or uninstall takes, with any one fault.
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);
/// After this nothing is on its way any more.
const SETTLE: Duration = Duration::from_secs(120);

type State = BTreeMap<String, Value>;

/// What an episode came to.
#[derive(Debug, PartialEq)]
struct Ends {
    installed: State,
    removed: State,
}

/// How many requests an operator sent.
#[derive(Debug)]
struct Lengths {
    install: usize,
    all: usize,
    writes: Vec<usize>,
}

fn of_operator(verb: &str) -> Match {
    Match { verb: verb.to_owned(), manager: "kata-operator".to_owned(), ..Match::default() }
}

/// Runs an episode on its own virtual time.
fn episode(rule: Option<Rule>) -> (Ends, Lengths) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let cluster = lab::openshift(1, 1);
        let what = format!("{rule:?}");
        if let Some(rule) = rule {
            cluster.with(|sim, _| sim.frontend.faults.add(rule));
        }
        let operator = Operator::start(&cluster);
        lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
        let ready = lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await;
        assert!(ready, "{what}: not Ready: {:#?}", lab::end_state(&cluster));
        lab::pass(SETTLE).await;
        let installed = lab::end_state(&cluster);
        let install = operator.requests().len();
        lab::delete(&cluster, &lab::kata_configs(), "", "example");
        let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
        let removed = lab::until(LIMIT, gone).await;
        assert!(removed, "{what}: not removed: {:#?}", lab::end_state(&cluster));
        lab::pass(SETTLE).await;
        assert!(operator.runs(), "{what}");
        let requests = operator.requests();
        let writes = requests.iter().enumerate().filter(|(_, line)| !line.starts_with("GET "));
        let writes = writes.map(|(index, _)| index + 1).collect();
        let lengths = Lengths { install, all: requests.len(), writes };
        (Ends { installed, removed: lab::end_state(&cluster) }, lengths)
    })
}

fn compare(rules: impl Iterator<Item = Rule>) {
    let (reference, _) = episode(None);
    for rule in rules {
        let (ends, _) = episode(Some(rule.clone()));
        let about = format!("{rule:?}");
        lab::assert_same(&ends.installed, &reference.installed, &about);
        lab::assert_same(&ends.removed, &reference.removed, &about);
    }
}

#[test]
fn the_same_episode_twice_is_the_same() {
    let (one, lengths) = episode(None);
    let (two, again) = episode(None);
    assert_eq!(one, two);
    assert_eq!((lengths.install, lengths.all), (again.install, again.all));
    assert_eq!(lengths.writes, again.writes);
}

/// The operator dies at its nth write, before it takes effect and after.
#[test]
fn a_crash_at_any_write_changes_nothing_in_the_end() {
    let (_, lengths) = episode(None);
    assert!(lengths.writes.len() > 8, "{lengths:?}");
    let crashes = (1..=lengths.writes.len()).flat_map(|nth| {
        [When::Before, When::After].map(|when| {
            let rule = Rule::once(of_operator("write"), Fault::Crash { when });
            rule.from_nth(u64::try_from(nth).unwrap())
        })
    });
    compare(crashes);
}

/// The operator dies at its nth read.
#[test]
fn a_crash_at_any_read_changes_nothing_in_the_end() {
    let (_, lengths) = episode(None);
    let reads = lengths.all - lengths.writes.len();
    let crashes = (1..=reads).step_by(READ_STRIDE).map(|nth| {
        let rule = Rule::once(of_operator("read"), Fault::Crash { when: When::After });
        rule.from_nth(u64::try_from(nth).unwrap())
    });
    compare(crashes);
}

/// Reads between two writes differ in little; this is coprime to the number of kinds that are listed
/// together, so that every kind gets its turn.
const READ_STRIDE: usize = 5;

/// Errors, lost answers and silence, from a certain request on, for a while.
#[test]
fn a_fault_of_any_kind_changes_nothing_in_the_end() {
    let status = |code, when| Fault::Status { code, retry_after: None, message: None, when };
    let busy = Fault::Status { code: 429, retry_after: Some(2), message: None, when: When::Before };
    let faults = [
        ("write", status(409, When::Before)),
        ("write", status(503, When::Before)),
        ("write", status(504, When::After)),
        ("write", Fault::Reset { when: When::After }),
        ("write", Fault::Hang { when: When::After }),
        ("read", status(500, When::Before)),
        ("read", Fault::Hang { when: When::Before }),
        ("watch", Fault::CloseWatch),
        ("watch", Fault::ExpireWatch),
        ("watch", Fault::DropEvent),
        ("watch", Fault::DuplicateEvent),
        ("watch", Fault::DelayEvent { millis: 20_000 }),
        ("", busy),
    ];
    compare(faults.into_iter().enumerate().flat_map(|(index, (verb, fault))| {
        // The places are arbitrary; the index spreads them.
        [1, 7].map(|first| {
            let nth = u64::try_from(first + index % 5).unwrap();
            Rule::once(of_operator(verb), fault.clone()).from_nth(nth).times(6)
        })
    }));
}
