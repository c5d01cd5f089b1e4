//! A proof while it runs: its steps in their order, what each found, and how it ends. Whatever happens, the last steps remove what
//! the others made, and the report is printed.

use std::time::Duration;

use kata_api::kata_node::HostStatus;
use serde_json::Value;
use tokio::time::Instant;

use super::belongings::{self, Belongings};
use super::inventory::Inventory;
use super::plan::Plan;
use super::{aside, quietly};
use crate::Context;
use crate::arguments::AcceptArguments;
use crate::cluster::{Kata, version};
use crate::commands::must_gather::redact::Redactor;
use crate::commands::wait;
use crate::document::{Environment, Fact, FactResult, Step};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::human;

/// How often the cluster is looked at, and how often all that is compared is read.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_AT_ALL: Duration = Duration::from_secs(10);
/// How long pods may take to start, and an API server to come back.
pub(super) const SOON: Duration = Duration::from_mins(5);
/// How long after a removal the cluster is recorded: the kubelet reports a little later that a handler is gone.
const SETTLE: Duration = Duration::from_secs(30);
/// How many differences are named.
const SHOWN: usize = 20;

/// Why the steps end before the last one.
pub(super) enum Stop {
    Interrupted,
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Whether it is an API server that may come back.
fn is_away(failure: &Failure) -> bool {
    matches!(failure, Failure::Unreachable { .. } | Failure::Silent { .. })
}

/// A proof while it runs.
pub(super) struct Course<'a> {
    pub(super) node: &'a str,
    pub(super) arguments: &'a AcceptArguments,
    begun: Instant,
    redactor: Redactor,
    pub(super) environment: Environment,
    pub(super) steps: Vec<Step>,
}

impl<'a> Course<'a> {
    pub(super) fn new(node: &'a str, object: &Value, arguments: &'a AcceptArguments) -> Self {
        let info = |field: &str| {
            object["status"]["nodeInfo"][field].as_str().unwrap_or_default().to_owned()
        };
        let environment = Environment {
            system: info("osImage"),
            kernel: info("kernelVersion"),
            architecture: info("architecture"),
            container_runtime: info("containerRuntimeVersion"),
            plugin: crate::VERSION,
            ..Environment::default()
        };
        let (begun, redactor) = (Instant::now(), Redactor::default());
        Self { node, arguments, begun, redactor, environment, steps: Vec::new() }
    }

    /// Removes what an earlier run left.
    ///
    /// # Errors
    /// If it cannot be removed; or that the user wants no more.
    pub(super) async fn remove_earlier(
        &mut self,
        earlier: &Belongings,
        context: &mut Context<'_, '_>,
    ) -> Result<(), Stop> {
        self.begin("earlier", "Remove what an earlier run left".to_owned(), context);
        let interrupted = context.interrupted();
        let settled = async {
            Box::pin(earlier.remove(self.arguments.timeout, context)).await?;
            tokio::time::sleep_until(Instant::now() + SETTLE).await;
            Ok::<_, Failure>(())
        };
        tokio::select! {
            removed = settled => removed?,
            () = interrupted => return Err(Stop::Interrupted),
        }
        self.expect("what an earlier run left is gone", earlier.describe(), true);
        Ok(())
    }

    /// Makes all steps; whether the user ended them. What was made is removed all the same.
    ///
    /// # Errors
    /// If nothing was begun.
    pub(super) async fn run(
        &mut self,
        plan: &Plan,
        context: &mut Context<'_, '_>,
    ) -> Result<bool, Failure> {
        self.begin("before", "Record what is there".to_owned(), context);
        let before = Inventory::read(&context.api, self.node).await?;
        self.expect("objects and nodes are recorded", human::count(before.len(), "thing"), true);
        let alive = belongings::stay_alive(
            std::sync::Arc::clone(&context.api),
            std::sync::Arc::clone(&context.settings.now),
        );
        let steps = async {
            let stop = Box::pin(self.prove(plan, context)).await.err();
            if let Some(Stop::Failed(failure)) = &stop {
                self.expect("the step can be made", failure.chain(), false);
            }
            let is_interrupted = matches!(stop, Some(Stop::Interrupted));
            if is_interrupted {
                // Who reads along may have ended by the same Ctrl-C.
                drop(context.printer.say(&context.marked(
                    "interrupted: removing what was made; after a second interrupt it stays, and the next run removes it",
                )));
            }
            if Box::pin(self.remove_all(context)).await {
                Box::pin(self.compare(&before, context)).await;
            }
            self.end();
            is_interrupted
        };
        tokio::select! {
            is_interrupted = Box::pin(steps) => Ok(is_interrupted),
            never = alive => match never {},
        }
    }

    async fn prove(&mut self, plan: &Plan, context: &mut Context<'_, '_>) -> Result<(), Stop> {
        // On the heap: together the steps would be larger than the stack of a thread.
        if !Box::pin(self.install(plan, context)).await? {
            return Ok(());
        }
        let class = Box::pin(self.look_around(context)).await?;
        Box::pin(self.run_pods(&class, context)).await?;
        Box::pin(self.verify(context)).await?;
        Box::pin(self.verify_host(context)).await?;
        Box::pin(self.change_settings(context)).await?;
        Box::pin(self.change_payload(context)).await?;
        Box::pin(self.delete_blocked(context)).await?;
        Box::pin(self.delete(context)).await
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, id: &'static str, title: String, context: &mut Context<'_, '_>) {
        self.end();
        // The steps go on for a reader that is gone, since they remove what they made.
        drop(context.printer.say(&context.marked(&format!("{}. {title}", self.steps.len() + 1))));
        self.steps.push(Step { id, title, seconds: 0.0, facts: Vec::new() });
    }

    fn end(&mut self) {
        if let Some(step) = self.steps.last_mut() {
            step.seconds = self.begun.elapsed().as_secs_f64();
        }
        self.begun = Instant::now();
    }

    pub(super) fn fact(
        &mut self,
        expected: impl Into<String>,
        seen: impl Into<String>,
        result: FactResult,
    ) {
        let seen = self.redactor.text(&without_hosts(&seen.into()));
        let fact = Fact { expected: expected.into(), seen, result };
        if let Some(step) = self.steps.last_mut() {
            step.facts.push(fact);
        }
    }

    pub(super) fn expect(
        &mut self,
        expected: impl Into<String>,
        seen: impl Into<String>,
        holds: bool,
    ) {
        self.fact(expected, seen, if holds { FactResult::Held } else { FactResult::Failed });
    }

    pub(super) fn skip(&mut self, expected: impl Into<String>, why: impl Into<String>) {
        self.fact(expected, why, FactResult::Skipped);
    }

    /// Waits, and shows how far it is; afterwards the API server answers, also where the change restarted it.
    pub(super) async fn wait(
        &self,
        wanted: wait::Wanted,
        context: &mut Context<'_, '_>,
    ) -> Result<Exit, Stop> {
        let (timeout, interrupt) = (self.arguments.timeout, context.interrupt.clone());
        let end = Instant::now() + SOON;
        let exit = loop {
            let waited =
                aside(context, interrupt.clone(), async |context: &mut Context<'_, '_>| {
                    wait::until(&wanted, timeout, context).await
                });
            match waited.await {
                Err(failure) if is_away(&failure) && Instant::now() < end => {
                    tokio::time::sleep_until(Instant::now() + LOOK).await;
                }
                waited => break waited?,
            }
        };
        if exit == Exit::Interrupted {
            return Err(Stop::Interrupted);
        }
        until("the API server to answer", context, async |context| {
            version(&context.api).await.map(Some)
        })
        .await?;
        Ok(exit)
    }

    /// What the operator's Jobs found on the node.
    pub(super) async fn host(
        &self,
        context: &Context<'_, '_>,
    ) -> Result<Option<std::sync::Arc<HostStatus>>, Failure> {
        let kata = Kata::read(&context.api).await?;
        let node = kata.nodes.items().iter().find(|node| node.spec.node_name == self.node);
        Ok(node.and_then(|node| node.status.as_ref()?.host.clone()))
    }

    /// Removes what the run made; whether nothing is left. An API server that is away, and a reader that is gone, do not end it.
    async fn remove_all(&mut self, context: &mut Context<'_, '_>) -> bool {
        self.begin("cleanup", "Remove what this command made".to_owned(), context);
        let timeout = self.arguments.timeout;
        let end = Instant::now() + SOON;
        let (_never, interrupt) = tokio::sync::watch::channel(false);
        let mut is_heard = true;
        let removed = loop {
            let remove = async |context: &mut Context<'_, '_>| {
                let left = Box::pin(Belongings::find(context)).await?;
                Box::pin(left.remove(timeout, context)).await
            };
            let removed = if is_heard {
                aside(context, interrupt.clone(), remove).await
            } else {
                quietly(context, interrupt.clone(), remove).await.0
            };
            match removed {
                Err(Failure::Output(_)) if is_heard => is_heard = false,
                Err(failure) if is_away(&failure) && Instant::now() < end => {
                    tokio::time::sleep_until(Instant::now() + LOOK).await;
                }
                removed => break removed,
            }
        };
        let seen = match &removed {
            Ok(()) => "nothing is".to_owned(),
            Err(failure) => failure.chain(),
        };
        self.expect("nothing of this command is left", seen, removed.is_ok());
        removed.is_ok()
    }

    async fn compare(&mut self, before: &Inventory, context: &mut Context<'_, '_>) {
        self.begin("compare", "Compare with what was there before".to_owned(), context);
        let end = Instant::now() + SOON;
        // What others remove with our objects goes a little later.
        let differences = loop {
            let after = Inventory::read(&context.api, self.node).await;
            let after = after.map(|after| before.differences(&after));
            if Instant::now() >= end || after.as_ref().is_ok_and(Vec::is_empty) {
                break after;
            }
            tokio::time::sleep_until(Instant::now() + LOOK_AT_ALL).await;
        };
        let expected = format!("all is as before ({} compared)", before.len());
        let differences = match differences {
            Ok(differences) => differences,
            Err(failure) => return self.expect(expected, failure.chain(), false),
        };
        if differences.is_empty() {
            self.expect(expected, "it is", true);
        }
        for difference in differences.iter().take(SHOWN) {
            self.expect("all is as before", difference, false);
        }
        if differences.len() > SHOWN {
            let more = format!("{} more differences", differences.len() - SHOWN);
            self.expect("all is as before", more, false);
        }
    }
}

/// A text in which addresses of servers have no host: a report is sent to others.
fn without_hosts(text: &str) -> String {
    let mut parts = text.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_whitespace() || "/\"',;)".contains(c));
        let rest = end.and_then(|end| part.get(end..)).unwrap_or_default();
        clean.push_str(&format!("://(host){rest}"));
    }
    clean
}

/// Looks until something is there, and says that it waits; `None` past the limit. An API server that is away is waited for.
pub(super) async fn until<'c, 'p, T>(
    what: &str,
    context: &mut Context<'c, 'p>,
    look: impl AsyncFn(&Context<'c, 'p>) -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Stop> {
    let end = Instant::now() + SOON;
    let mut is_waiting = false;
    loop {
        match look(context).await {
            Ok(Some(found)) => return Ok(Some(found)),
            Err(failure) if is_away(&failure) && Instant::now() < end => {}
            Err(failure) => return Err(failure.into()),
            Ok(None) if Instant::now() >= end => return Ok(None),
            Ok(None) => {}
        }
        if !std::mem::replace(&mut is_waiting, true) {
            let text = format!("   waiting for {what}, {} min at most", SOON.as_secs() / 60);
            drop(context.printer.say(&context.marked(&text)));
        }
        tokio::select! {
            () = tokio::time::sleep_until(Instant::now() + LOOK) => {}
            () = context.interrupted() => return Err(Stop::Interrupted),
        }
    }
}
