//! The rule of the election: a table of situations, and two candidates whose clocks run apart.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn record(holder: &str, version: u64) -> Record {
    Record {
        holder: holder.to_owned(),
        version: version.to_string(),
        duration: Timing::default().duration,
        transitions: 3,
    }
}

fn take(version: u64) -> LeaseAction {
    LeaseAction::Take { version: version.to_string(), transitions: 4 }
}

#[test]
fn the_action_depends_on_the_record_and_on_how_long_it_has_not_changed() {
    /// The Lease as read at this second.
    type Reading = (u64, Option<Record>);
    let rows: [(&[Reading], LeaseAction); 10] = [
        (&[(0, None)], LeaseAction::Create),
        (&[(0, Some(record("", 1)))], take(1)),
        // It is not known when this candidate renewed it.
        (&[(0, Some(record("me", 1))), (40, None)], LeaseAction::Wait),
        (&[(0, Some(record("me", 1)))], LeaseAction::Renew { version: "1".to_owned() }),
        // The age of a record counts from its first reading.
        (&[(1_000_000, Some(record("other", 1)))], LeaseAction::Wait),
        (&[(0, Some(record("other", 1))), (54, Some(record("other", 1)))], LeaseAction::Wait),
        (&[(0, Some(record("other", 1))), (55, Some(record("other", 1)))], take(1)),
        // A renewal starts the wait anew.
        (
            &[
                (0, Some(record("other", 1))),
                (50, Some(record("other", 2))),
                (55, Some(record("other", 2))),
            ],
            LeaseAction::Wait,
        ),
        // The holder of a deleted Lease may not know yet that it is deleted.
        (&[(0, Some(record("other", 1))), (40, None), (94, None)], LeaseAction::Wait),
        (&[(0, Some(record("other", 1))), (40, None), (95, None)], LeaseAction::Create),
    ];
    for (readings, expected) in rows {
        let mut candidate = Candidate::new("me".to_owned(), Timing::default());
        let mut last = LeaseAction::Wait;
        for (at, record) in readings {
            last = candidate.observe(SECOND * u32::try_from(*at).unwrap(), record.clone(), false);
        }
        assert_eq!(last, expected, "{readings:?}");
    }
}

#[test]
fn a_holder_that_has_ended_is_respected_only_until_the_fence() {
    let other = || Some(record("other", 1));
    let mut candidate = Candidate::new("me".to_owned(), Timing::default());
    assert_eq!(candidate.observe(SECOND * 10, other(), true), LeaseAction::Wait);
    assert_eq!(candidate.observe(SECOND * 11, other(), true), LeaseAction::Wait);
    assert_eq!(candidate.observe(SECOND * 10 + FENCE, other(), true), take(1));
    // A renewal shows another process, and the end of the first one says nothing about it.
    let renewed = || Some(record("other", 2));
    assert_eq!(candidate.observe(SECOND * 13, renewed(), false), LeaseAction::Wait);
    assert_eq!(candidate.observe(SECOND * 14, renewed(), true), LeaseAction::Wait);
    assert_eq!(candidate.observe(SECOND * 15, renewed(), false), LeaseAction::Wait);
    assert_eq!(candidate.observe(SECOND * 17, renewed(), true), LeaseAction::Wait);
    assert_eq!(candidate.observe(SECOND * 17 + FENCE, renewed(), true), take(2));
}

#[test]
fn a_longer_lease_duration_of_the_holder_is_respected() {
    let mut candidate = Candidate::new("me".to_owned(), Timing::default());
    let longer = Record { duration: SECOND * 500, ..record("other", 1) };
    assert_eq!(candidate.observe(Duration::ZERO, Some(longer.clone()), false), LeaseAction::Wait);
    assert_eq!(candidate.observe(SECOND * 499, Some(longer.clone()), false), LeaseAction::Wait);
    assert_eq!(candidate.observe(SECOND * 500, Some(longer), false), take(1));
}

#[test]
fn leading_ends_a_renew_deadline_after_the_last_renewal_was_sent() {
    let mut candidate = Candidate::new("me".to_owned(), Timing::default());
    candidate.record_renewal(SECOND * 10);
    assert!(candidate.leads(SECOND * 51));
    assert!(!candidate.leads(SECOND * 52));
    candidate.record_renewal(SECOND * 20);
    candidate.resign();
    assert!(!candidate.leads(SECOND * 20));
}

/// The outcome of a candidate's attempt to acquire or renew the Lease.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    /// It reads, writes and gets the answer.
    Answered,
    /// It reads and writes, and the answer is lost.
    AnswerLost,
    /// It reads, and writes this many seconds later.
    Delayed(u64),
    /// It cannot reach the API server.
    Disconnected,
    /// Another client deletes the Lease.
    Deleted,
}

fn any_attempt() -> impl Strategy<Value = Attempt> {
    prop_oneof![
        4 => Just(Attempt::Answered),
        1 => Just(Attempt::AnswerLost),
        1 => (0_u64..60).prop_map(Attempt::Delayed),
        3 => Just(Attempt::Disconnected),
        1 => Just(Attempt::Deleted),
    ]
}

/// A candidate whose clock shows `offset + rate * t`.
struct Actor {
    candidate: Candidate,
    offset: f64,
    rate: f64,
}

impl Actor {
    fn clock(&self, time: f64) -> Duration {
        Duration::from_secs_f64(self.offset + self.rate * time)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Clocks that show anything and run up to 12 % fast or slow (1.12 / 0.88 < 55 / 42), lost
    /// answers, writes that arrive late, times without a connection, and a Lease that is deleted once: never two leaders.
    #[test]
    fn two_candidates_with_skewed_clocks_never_both_lead(
        offsets in [0.0_f64..1e6, 0.0_f64..1e6],
        rates in [0.88_f64..1.12, 0.88_f64..1.12],
        script in proptest::collection::vec((0_usize..2, 1_u64..60, any_attempt()), 1..120),
    ) {
        let names = ["a", "b"];
        let mut actors: Vec<Actor> = (0..2).map(|index| Actor {
            candidate: Candidate::new(names[index].to_owned(), Timing::default()),
            offset: offsets[index],
            rate: rates[index],
        }).collect();
        let mut lease: Option<Record> = None;
        let mut was_deleted = false;
        let mut version = 0;
        let mut time = 0.0_f64;
        for (index, pause, attempt) in script {
            time += f64::from(u32::try_from(pause).unwrap());
            if matches!(attempt, Attempt::Deleted) {
                // A candidate that has not seen the Lease takes it for one that never was. One that does not see a
                // deleted Lease come back, and go again, counts from when it went first.
                let is_known = actors.iter().all(|actor| actor.candidate.seen.is_some());
                if is_known && !std::mem::replace(&mut was_deleted, true) {
                    lease = None;
                }
            } else if !matches!(attempt, Attempt::Disconnected) {
                let actor = &mut actors[index];
                let sent = actor.clock(time);
                let next = actor.candidate.observe(sent, lease.clone(), false);
                if let Attempt::Delayed(seconds) = attempt {
                    time += f64::from(u32::try_from(seconds).unwrap());
                }
                let expected = match &next {
                    LeaseAction::Wait => None,
                    LeaseAction::Create => Some(None),
                    LeaseAction::Take { version, .. } | LeaseAction::Renew { version } => Some(Some(version.clone())),
                };
                if expected.is_some_and(|expected| expected == lease.as_ref().map(|l| l.version.clone())) {
                    version += 1;
                    lease = Some(record(names[index], version));
                    if !matches!(attempt, Attempt::AnswerLost) {
                        actor.candidate.record_renewal(sent);
                    }
                }
            }
            let leading = actors.iter().filter(|actor| actor.candidate.leads(actor.clock(time))).count();
            prop_assert!(leading <= 1, "two leaders at {time}");
        }
    }
}
