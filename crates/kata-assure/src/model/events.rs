//! What came about while states were enumerated: a model in which the interesting never happens proves
//! nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use super::machine::{Action, Damage, State};
use super::world::Phase;
use super::write::Write;

/// Something that must happen at least once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A plan was cut short by a crash.
    CrashInPlan,
    /// A write was refused because of its precondition.
    Refused,
    /// A write was carried out and answered with an error.
    LostAnswer,
    /// A plan was made although a read failed.
    PassOnFailedRead,
    /// A pass began with caches that lag, and wrote without a look past them.
    WroteFromCache,
    /// A pass began with caches that lag, and looked past them.
    LookedPastCache,
    /// A node left the pool because it was not selected any more.
    ScaledIn,
    /// The finalizer went.
    Removed,
    /// An admin removed an object of ours by hand.
    Damaged,
    /// The pool was put back.
    PoolPutBack,
    /// A pod came although the node was closed.
    SlippedIn,
    /// A node's change failed.
    Failed,
    /// The RuntimeClass was deleted by us.
    ClassDeleted,
    /// The RuntimeClass was deleted by the garbage collector.
    Collected,
}

/// Which of them happened.
#[derive(Debug, Default)]
pub struct Events([AtomicBool; 14]);

impl Events {
    /// Whether it happened.
    pub fn happened(&self, event: Event) -> bool {
        self.0.get(event as usize).is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    fn set(&self, event: Event, happened: bool) {
        if happened
            && !self.happened(event)
            && let Some(flag) = self.0.get(event as usize)
        {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Notes what a move brought about. The states are in the same order of nodes.
    pub fn note(&self, before: &State, after: &State, action: Action) {
        let (from, to) = (&before.world, &after.world);
        match action {
            Action::Crash(_) => self.set(Event::CrashInPlan, true),
            Action::Pass(_, unread) => {
                let planned = after.plans != before.plans;
                self.set(Event::PassOnFailedRead, unread.is_some() && planned);
                let lagged = before.lag != after.lag;
                self.set(Event::LookedPastCache, lagged);
                let lags = before.lag != super::machine::Lag::default();
                self.set(Event::WroteFromCache, lags && !lagged && planned);
            }
            Action::Write(op) | Action::WriteFails(op, true) => {
                let failed = matches!(action, Action::WriteFails(..));
                self.set(Event::LostAnswer, failed && from != to);
                let plan = before.plans.get(usize::from(op));
                let Some(planned) = plan.and_then(|plan| plan.first()) else { return };
                let conditional = matches!(
                    planned.write,
                    Write::Finalizer { .. } | Write::Delete { .. } | Write::Status { .. }
                );
                self.set(Event::Refused, conditional && !failed && from == to);
                let left = matches!(planned.write, Write::Label { role: Some(false), .. });
                self.set(Event::ScaledIn, left && !from.config.deleting && from != to);
                self.set(Event::Removed, from.config.finalizer && !to.config.finalizer);
                let back = !from.pool.object.exists() && to.pool.object.exists();
                self.set(
                    Event::PoolPutBack,
                    back && from.nodes().iter().any(super::world::Node::on_pool),
                );
                self.set(Event::ClassDeleted, from.class.exists() && !to.class.exists());
            }
            Action::Remove(Damage::Pool | Damage::MachineConfig | Damage::Class) => {
                self.set(Event::Damaged, true);
            }
            Action::Pod(index) => {
                let node = from.nodes().get(usize::from(index));
                self.set(Event::SlippedIn, node.is_some_and(|node| !node.verified));
            }
            Action::Collect => self.set(Event::Collected, true),
            _ => {}
        }
        self.set(Event::Failed, to.nodes().iter().any(|node| node.phase == Phase::Degraded));
    }
}
