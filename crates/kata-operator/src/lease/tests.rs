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

fn take(version: u64) -> Move {
    Move::Take { version: version.to_string(), transitions: 4 }
}

#[test]
fn what_is_done_depends_on_the_record_and_on_how_long_it_has_not_changed() {
    /// What the Lease says at this second.
    type Look = (u64, Option<Record>);
    let rows: [(&[Look], Move); 9] = [
        (&[(0, None)], Move::Create),
        (&[(0, Some(record("", 1)))], take(1)),
        (&[(0, Some(record("me", 1)))], Move::Renew { version: "1".to_owned() }),
        // However old the record is: the first look counts.
        (&[(1_000_000, Some(record("other", 1)))], Move::Wait),
        (&[(0, Some(record("other", 1))), (136, Some(record("other", 1)))], Move::Wait),
        (&[(0, Some(record("other", 1))), (137, Some(record("other", 1)))], take(1)),
        // A renewal starts the wait anew.
        (
            &[
                (0, Some(record("other", 1))),
                (130, Some(record("other", 2))),
                (137, Some(record("other", 2))),
            ],
            Move::Wait,
        ),
        // The holder of a Lease that somebody deleted does not know it yet.
        (&[(0, Some(record("other", 1))), (136, None)], Move::Wait),
        (&[(0, Some(record("other", 1))), (137, None)], Move::Create),
    ];
    for (looks, expected) in rows {
        let mut candidate = Candidate::new("me".to_owned(), Timing::default());
        let mut last = Move::Wait;
        for (at, record) in looks {
            last = candidate.observe(SECOND * u32::try_from(*at).unwrap(), record.clone());
        }
        assert_eq!(last, expected, "{looks:?}");
    }
}

#[test]
fn a_holder_that_wants_longer_is_respected_longer() {
    let mut candidate = Candidate::new("me".to_owned(), Timing::default());
    let patient = Record { duration: SECOND * 500, ..record("other", 1) };
    assert_eq!(candidate.observe(Duration::ZERO, Some(patient.clone())), Move::Wait);
    assert_eq!(candidate.observe(SECOND * 499, Some(patient.clone())), Move::Wait);
    assert_eq!(candidate.observe(SECOND * 500, Some(patient)), take(1));
}

#[test]
fn leading_ends_a_renew_deadline_after_the_last_renewal_was_sent() {
    let mut candidate = Candidate::new("me".to_owned(), Timing::default());
    candidate.succeeded(SECOND * 10);
    assert!(candidate.leads(SECOND * 116));
    assert!(!candidate.leads(SECOND * 117));
    candidate.succeeded(SECOND * 20);
    candidate.resign();
    assert!(!candidate.leads(SECOND * 20));
}

/// What happens to a candidate's turn.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// It reads and writes, and hears of it.
    Whole,
    /// It reads and writes, and the answer is lost.
    AnswerLost,
    /// It reads, is held up for this long, and writes then.
    HeldUp(u64),
    /// It cannot reach the API server.
    Away,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        4 => Just(Turn::Whole),
        1 => Just(Turn::AnswerLost),
        1 => (0_u64..60).prop_map(Turn::HeldUp),
        3 => Just(Turn::Away),
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

    /// Clocks that show anything and run up to 12 % fast or slow (1.12 / 0.88 < 137 / 107), lost
    /// answers, writes that arrive late, and times without a connection: never two leaders.
    #[test]
    fn two_candidates_with_skewed_clocks_never_both_lead(
        offsets in [0.0_f64..1e6, 0.0_f64..1e6],
        rates in [0.88_f64..1.12, 0.88_f64..1.12],
        script in proptest::collection::vec((0_usize..2, 1_u64..60, turn()), 1..120),
    ) {
        let names = ["a", "b"];
        let mut actors: Vec<Actor> = (0..2).map(|index| Actor {
            candidate: Candidate::new(names[index].to_owned(), Timing::default()),
            offset: offsets[index],
            rate: rates[index],
        }).collect();
        let mut lease: Option<Record> = None;
        let mut version = 0;
        let mut time = 0.0_f64;
        for (index, pause, what) in script {
            time += f64::from(u32::try_from(pause).unwrap());
            if !matches!(what, Turn::Away) {
                let actor = &mut actors[index];
                let sent = actor.clock(time);
                let next = actor.candidate.observe(sent, lease.clone());
                if let Turn::HeldUp(seconds) = what {
                    time += f64::from(u32::try_from(seconds).unwrap());
                }
                let expected = match &next {
                    Move::Wait => None,
                    Move::Create => Some(None),
                    Move::Take { version, .. } | Move::Renew { version } => Some(Some(version.clone())),
                };
                if expected.is_some_and(|expected| expected == lease.as_ref().map(|l| l.version.clone())) {
                    version += 1;
                    lease = Some(record(names[index], version));
                    if !matches!(what, Turn::AnswerLost) {
                        actor.candidate.succeeded(sent);
                    }
                }
            }
            let leading = actors.iter().filter(|actor| actor.candidate.leads(actor.clock(time))).count();
            prop_assert!(leading <= 1, "two leaders at {time}");
        }
    }
}
