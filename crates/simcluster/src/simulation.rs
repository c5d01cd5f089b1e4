//! The cluster as one synchronous state machine: API server, world, controllers, and an agenda of
//! work that is due later.
//!
//! It must not ask for the time or wait: callers pass `now` and are told when to come back.
//! With the same inputs it does the same things in the same order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::frontend::Frontend;
use crate::api::server::Writer;
use crate::api::store::Backup;
use crate::api::{ApiServer, Event, EventKind};
use crate::world::World;

/// A controller inside the cluster.
///
/// It learns of changes through [`Controller::observe`], where it may only schedule work, and works
/// in [`Controller::act`].
pub trait Controller: Send {
    /// The controller's name; also its field manager.
    fn name(&self) -> &'static str;

    /// A change in the store.
    fn observe(&mut self, event: &Event, cx: &mut Context<'_>);

    /// Work whose time has come; `key` is what was passed to [`Context::after`].
    fn act(&mut self, key: &str, cx: &mut Context<'_>);

    /// A host changed outside the API: its power, its runtime, its faults. As in
    /// [`Controller::observe`], work may only be scheduled.
    fn host_changed(&mut self, _host: &str, _cx: &mut Context<'_>) {}
}

/// What a controller can see and do.
#[derive(Debug)]
pub struct Context<'a> {
    /// The API server.
    pub api: &'a mut ApiServer,
    /// The hosts.
    pub world: &'a mut World,
    /// The current time.
    pub now: Timestamp,
    manager: &'static str,
    controller: usize,
    agenda: &'a mut Agenda,
}

impl Context<'_> {
    /// The controller as a writer, now.
    pub fn writer(&self) -> Writer<'static> {
        Writer { manager: self.manager, now: self.now }
    }

    /// Schedules work after `delay` of cluster time; a pending earlier deadline for the key wins.
    pub fn after(&mut self, key: impl Into<String>, delay: Duration) {
        self.agenda.add(self.controller, key.into(), self.now, delay, false);
    }

    /// The time at which `delay` of cluster time will have passed, at the cluster's speed.
    pub fn deadline(&self, delay: Duration) -> Timestamp {
        self.agenda.due(self.now, delay)
    }

    /// Schedules work for a time of the cluster, as [`Context::deadline`] gives it.
    pub fn at(&mut self, key: impl Into<String>, due: Timestamp) {
        self.agenda.add_at(self.controller, key.into(), due, true);
    }

    /// Schedules work after `delay` of cluster time, instead of whatever is pending for the key.
    pub fn reschedule(&mut self, key: impl Into<String>, delay: Duration) {
        self.agenda.add(self.controller, key.into(), self.now, delay, true);
    }

    /// Forgets pending work for the key.
    pub fn cancel(&mut self, key: &str) {
        self.agenda.remove(self.controller, key);
    }

    /// Whether work is pending for the key.
    pub fn pending(&self, key: &str) -> bool {
        self.agenda.deadlines.contains_key(&(self.controller, key.to_owned()))
    }
}

/// Work by deadline; ties are worked off in the order in which they were scheduled.
#[derive(Debug)]
struct Agenda {
    speed: f64,
    sequence: u64,
    queue: BTreeSet<(Timestamp, u64, usize, String)>,
    deadlines: BTreeMap<(usize, String), (Timestamp, u64)>,
}

impl Agenda {
    fn due(&self, now: Timestamp, delay: Duration) -> Timestamp {
        let scaled = SignedDuration::try_from_secs_f64(delay.as_secs_f64() / self.speed)
            .unwrap_or(SignedDuration::MAX);
        now.checked_add(scaled).unwrap_or(Timestamp::MAX)
    }

    fn add(
        &mut self,
        controller: usize,
        key: String,
        now: Timestamp,
        delay: Duration,
        replace: bool,
    ) {
        self.add_at(controller, key, self.due(now, delay), replace);
    }

    fn add_at(&mut self, controller: usize, key: String, due: Timestamp, replace: bool) {
        if let Some((pending, _)) = self.deadlines.get(&(controller, key.clone())) {
            if *pending <= due && !replace {
                return;
            }
            self.remove(controller, &key);
        }
        self.sequence += 1;
        self.deadlines.insert((controller, key.clone()), (due, self.sequence));
        self.queue.insert((due, self.sequence, controller, key));
    }

    fn remove(&mut self, controller: usize, key: &str) {
        if let Some((due, sequence)) = self.deadlines.remove(&(controller, key.to_owned())) {
            self.queue.remove(&(due, sequence, controller, key.to_owned()));
        }
    }

    fn pop_due(&mut self, now: Timestamp) -> Option<(usize, String)> {
        let (due, ..) = self.queue.first()?;
        if *due > now {
            return None;
        }
        let (_, _, controller, key) = self.queue.pop_first()?;
        self.deadlines.remove(&(controller, key.clone()));
        Some((controller, key))
    }
}

/// The whole cluster.
pub struct Simulation {
    /// The API server.
    pub api: ApiServer,
    /// The hosts.
    pub world: World,
    /// What stands in front of the API server.
    pub frontend: Frontend,
    now: Timestamp,
    controllers: Vec<Box<dyn Controller>>,
    agenda: Agenda,
    delivered: u64,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Simulation {
    /// An empty cluster whose clock shows `now`.
    pub fn new(now: Timestamp, controllers: Vec<Box<dyn Controller>>) -> Self {
        let mut api = ApiServer::default();
        // Controllers learn of the first objects like of all others.
        let delivered = api.store.revision();
        api.store.keep_after(delivered);
        api.bootstrap(now);
        Self {
            api,
            world: World::starting_at(now),
            frontend: Frontend::default(),
            now,
            controllers,
            agenda: Agenda {
                speed: 1.0,
                sequence: 0,
                queue: BTreeSet::new(),
                deadlines: BTreeMap::new(),
            },
            delivered,
        }
    }

    /// A cluster that goes on from objects and hosts that were kept; its controllers are new, and
    /// learn of what there is from [`Simulation::introduce`].
    pub(crate) fn restored(now: Timestamp, api: ApiServer, world: World) -> Self {
        let delivered = api.store.revision();
        Self { api, world, delivered, ..Self::new(now, Vec::new()) }
    }

    /// Shows all objects and hosts to the controllers as if they were new, as a real controller
    /// lists everything when it starts.
    pub(crate) fn introduce(&mut self) {
        let objects = self.api.store.iter().map(|(resource, namespace, name, object)| Event {
            revision: self.api.store.revision(),
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind: EventKind::Added,
            previous: None,
            current: Arc::clone(object),
        });
        for event in objects.collect::<Vec<_>>() {
            self.tell_all(&event);
        }
        let hosts: Vec<String> = self.world.hosts.keys().cloned().collect();
        for host in hosts {
            self.world.touch(&host);
        }
    }

    /// Restores a backup of etcd under a running cluster: objects and revisions are those of the backup, watches end,
    /// and the hosts stay as they are. The controllers learn of every object that differs, as a real controller
    /// does when it lists again.
    pub fn restore_etcd(&mut self, backup: &Backup) {
        self.deliver();
        let changes = self.api.restore(backup);
        self.delivered = self.api.store.revision();
        self.api.store.keep_after(self.delivered);
        for event in changes {
            self.tell_all(&event);
        }
    }

    /// Adds a controller; it sees the changes from now on.
    pub fn add_controller(&mut self, controller: Box<dyn Controller>) {
        self.controllers.push(controller);
    }

    /// The current time of the cluster.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The time at which `delay` of cluster time will have passed, at the cluster's speed.
    pub fn deadline(&self, delay: Duration) -> Timestamp {
        self.agenda.due(self.now, delay)
    }

    /// How many times faster than real the controllers' delays pass; pending work is rescaled.
    pub fn set_speed(&mut self, speed: f64) {
        let factor = self.agenda.speed / speed;
        let queue = std::mem::take(&mut self.agenda.queue);
        for (due, sequence, controller, key) in queue {
            let left = due.duration_since(self.now).as_secs_f64().max(0.0) * factor;
            let due = self
                .now
                .checked_add(SignedDuration::try_from_secs_f64(left).unwrap_or(SignedDuration::MAX))
                .unwrap_or(Timestamp::MAX);
            self.agenda.deadlines.insert((controller, key.clone()), (due, sequence));
            self.agenda.queue.insert((due, sequence, controller, key));
        }
        self.agenda.speed = speed;
    }

    /// Sets the clock for a request that arrives at `now`; time never goes back.
    pub fn arrive(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.world.now = self.now;
    }

    /// Does all work that is due at `now`; returns when the next work is due.
    pub fn run_due(&mut self, now: Timestamp) -> Option<Timestamp> {
        loop {
            self.deliver();
            let next = self.agenda.queue.first().map(|(due, ..)| *due)?;
            if next > now {
                self.arrive(now);
                return Some(next);
            }
            self.arrive(next);
            if let Some((controller, key)) = self.agenda.pop_due(next) {
                self.with(controller, |this, cx| this.act(&key, cx));
            }
        }
    }

    /// Lets `span` of time pass and does the work that becomes due, each at its own time.
    pub fn advance(&mut self, span: Duration) {
        let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
        let end = self.now.checked_add(span).unwrap_or(Timestamp::MAX);
        self.run_due(end);
        self.arrive(end);
    }

    /// Lets time pass until `done` holds, checked after every piece of work; false after `limit`.
    pub fn advance_until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        let end = self.now.checked_add(limit).unwrap_or(Timestamp::MAX);
        loop {
            self.deliver();
            if done(self) {
                return true;
            }
            let Some(next) =
                self.agenda.queue.first().map(|(due, ..)| *due).filter(|due| *due <= end)
            else {
                self.arrive(end);
                return done(self);
            };
            self.arrive(next);
            if let Some((controller, key)) = self.agenda.pop_due(next) {
                self.with(controller, |this, cx| this.act(&key, cx));
            }
        }
    }

    /// Hands the changes that controllers have not seen yet to all of them.
    fn deliver(&mut self) {
        loop {
            let events: Vec<_> = self
                .api
                .store
                .events_after(self.delivered)
                .into_iter()
                .flatten()
                .cloned()
                .collect();
            self.delivered = self.api.store.revision();
            self.api.store.keep_after(self.delivered);
            let hosts = self.world.take_changed();
            if events.is_empty() && hosts.is_empty() {
                return;
            }
            for host in hosts {
                for controller in 0..self.controllers.len() {
                    self.with(controller, |this, cx| this.host_changed(&host, cx));
                }
            }
            for event in events {
                self.tell_all(&event);
            }
        }
    }

    fn tell_all(&mut self, event: &Event) {
        for controller in 0..self.controllers.len() {
            self.with(controller, |this, cx| this.observe(event, cx));
        }
    }

    fn with(&mut self, index: usize, work: impl FnOnce(&mut dyn Controller, &mut Context<'_>)) {
        let controller = &mut self.controllers[index];
        let mut cx = Context {
            api: &mut self.api,
            world: &mut self.world,
            now: self.now,
            manager: controller.name(),
            controller: index,
            agenda: &mut self.agenda,
        };
        work(controller.as_mut(), &mut cx);
    }
}
