//! Faults as ordinary inputs: rules that say which requests and watch events go wrong, and how.
//!
//! It decides and counts; carrying a fault out (waiting, dropping a connection) is the faces' work.
//! The same rules and the same requests give the same faults.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::error::ApiError;

/// What a rule looks at. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Match {
    /// The verb (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`), or `read` or `write` for all of a sort.
    pub verb: String,
    /// The API group; `core` for the core group.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The subresource; `-` for none.
    pub subresource: String,
    /// The field manager, or the program that sends the request.
    pub manager: String,
}

/// Whether a fault strikes before a request is carried out, or after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Nothing has happened yet.
    #[default]
    Before,
    /// The request took effect, but the client does not learn it.
    After,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", deny_unknown_fields)]
pub enum Fault {
    /// An error answer.
    Status {
        /// The HTTP status code.
        code: u16,
        /// `Retry-After` in seconds.
        #[serde(default, rename = "retryAfter")]
        retry_after: Option<u64>,
        /// The message; there is a default.
        #[serde(default)]
        message: Option<String>,
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// The request reaches the server late.
    Delay {
        /// How late, in milliseconds.
        millis: u64,
    },
    /// The request takes effect at once, and its answer arrives late: what it says may no longer be so. A watch
    /// begins late and misses nothing.
    DelayAnswer {
        /// How late, in milliseconds.
        millis: u64,
    },
    /// No answer ever comes.
    Hang {
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// The connection breaks.
    Reset {
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// No answer ever comes, and [`Faults::crashes`] tells the test to end the client.
    Crash {
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// The answer is cut off in the middle.
    Garbage {
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// A proxy answers, with success and a page for people.
    Html {
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// An error's Status object comes with the code 200.
    WrongCode {
        /// Before or after the request took effect.
        #[serde(default)]
        when: When,
    },
    /// A watch event is left out.
    DropEvent,
    /// A watch event is sent twice.
    DuplicateEvent,
    /// A watch event, and all that follow, come late.
    DelayEvent {
        /// How late, in milliseconds.
        millis: u64,
    },
    /// A watch ends before the event.
    CloseWatch,
    /// A watch ends with an ERROR event `410 Expired` in place of the event.
    ExpireWatch,
    /// From the event on, a watch says nothing more and does not end, like a half-open connection.
    SilenceWatch,
}

impl Fault {
    fn concerns_events(&self) -> bool {
        matches!(
            self,
            Self::DropEvent
                | Self::DuplicateEvent
                | Self::DelayEvent { .. }
                | Self::CloseWatch
                | Self::ExpireWatch
                | Self::SilenceWatch
        )
    }
}

/// A fault and when it strikes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// What it looks at.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// The matching request or event with which it begins, counted from 1.
    #[serde(default = "one")]
    pub nth: u64,
    /// How often it strikes; 0 for ever.
    #[serde(default = "one")]
    pub times: u64,
    /// Do not strike before the request with this number, counted from 1 over all requests.
    #[serde(default)]
    pub call: Option<u64>,
    /// Do not strike before the watch event with this number, counted from 1 over all watches.
    #[serde(default)]
    pub event: Option<u64>,
    /// What goes wrong.
    pub fault: Fault,
}

fn one() -> u64 {
    1
}

impl Rule {
    /// A rule that strikes once, at the first match.
    pub fn once(matches: Match, fault: Fault) -> Self {
        Self { matches, nth: 1, times: 1, call: None, event: None, fault }
    }

    /// The same rule, beginning with the nth match.
    #[must_use]
    pub fn from_nth(mut self, nth: u64) -> Self {
        self.nth = nth;
        self
    }

    /// The same rule, striking `times` times; 0 for ever.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }
}

/// What is known of a request when faults are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallInfo {
    /// The verb.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// The namespace; empty if there is none.
    pub namespace: String,
    /// The object's name; empty if there is none.
    pub name: String,
    /// The subresource; empty if there is none.
    pub subresource: String,
    /// The field manager, if the request names one.
    pub manager: String,
    /// The program that sends the request.
    pub agent: String,
}

impl Match {
    fn holds(&self, call: &CallInfo) -> bool {
        let same = |wanted: &str, actual: &str| wanted.is_empty() || wanted == actual;
        let reads = matches!(call.verb, "get" | "list" | "watch");
        let verb = match self.verb.as_str() {
            "read" => reads,
            "write" => !reads,
            verb => same(verb, call.verb),
        };
        verb && same(&self.group, if call.group.is_empty() { "core" } else { &call.group })
            && same(&self.resource, &call.resource)
            && same(&self.namespace, &call.namespace)
            && same(&self.name, &call.name)
            && same(
                &self.subresource,
                if call.subresource.is_empty() { "-" } else { &call.subresource },
            )
            && (same(&self.manager, &call.manager) || same(&self.manager, &call.agent))
    }
}

/// How a request fails.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// With an error answer.
    Status(ApiError),
    /// Without any answer.
    Hang,
    /// Without any answer, after [`Faults::crash`].
    Crash,
    /// With a broken connection.
    Reset,
    /// With an answer that nobody can read.
    Garbage,
    /// With a page for people.
    Html,
    /// With a Status of failure that is said to be a success.
    WrongCode,
}

/// What happens to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// How late it arrives.
    pub delay: Duration,
    /// How late its answer arrives.
    pub answer_delay: Duration,
    /// How it fails before it takes effect.
    pub before: Option<Failure>,
    /// How it fails after it took effect.
    pub after: Option<Failure>,
}

/// What happens to one watch event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventPlan {
    /// It is left out.
    pub drop: bool,
    /// It is sent twice.
    pub duplicate: bool,
    /// How late it comes.
    pub delay: Duration,
    /// The watch ends instead.
    pub close: bool,
    /// The watch ends with `410 Expired` instead.
    pub expire: bool,
    /// The watch says nothing any more.
    pub silence: bool,
}

#[derive(Debug)]
struct Active {
    rule: Rule,
    seen: u64,
    struck: u64,
}

impl Active {
    /// Whether it strikes the request or event with this number; `first` is where the rule begins.
    fn strikes(&mut self, call: &CallInfo, index: u64, first: Option<u64>) -> bool {
        if first.is_some_and(|first| index < first) || !self.rule.matches.holds(call) {
            return false;
        }
        self.seen += 1;
        let strikes =
            self.seen >= self.rule.nth && (self.rule.times == 0 || self.struck < self.rule.times);
        self.struck += u64::from(strikes);
        strikes
    }
}

/// The rules that are in force, and the counters that they need.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<Active>,
    calls: u64,
    events: u64,
    crashes: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { rules: Vec::new(), calls: 0, events: 0, crashes: watch::Sender::new(0) }
    }
}

impl Faults {
    /// Adds a rule.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push(Active { rule, seen: 0, struck: 0 });
    }

    /// Removes all rules.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// The rules, each with how often it struck.
    pub fn rules(&self) -> impl Iterator<Item = (&Rule, u64)> {
        self.rules.iter().map(|active| (&active.rule, active.struck))
    }

    /// How many requests there have been.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// How many watch events there have been, as the watches of all clients see them.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Counts the crashes that were signalled; changes when a client has to be ended.
    pub fn crashes(&self) -> watch::Receiver<u64> {
        self.crashes.subscribe()
    }

    /// Signals a crash.
    pub fn crash(&self) {
        self.crashes.send_modify(|crashes| *crashes += 1);
    }

    /// Counts a request and says what happens to it.
    pub fn on_request(&mut self, call: &CallInfo) -> Plan {
        self.calls += 1;
        let index = self.calls;
        let mut plan = Plan::default();
        for active in self.rules.iter_mut().filter(|active| !active.rule.fault.concerns_events()) {
            if !active.strikes(call, index, active.rule.call) {
                continue;
            }
            let (failure, when) = match &active.rule.fault {
                Fault::Status { code, retry_after, message, when } => {
                    let error = status(*code, *retry_after, message.as_deref());
                    (Failure::Status(error), *when)
                }
                Fault::Delay { millis } => {
                    plan.delay += Duration::from_millis(*millis);
                    continue;
                }
                Fault::DelayAnswer { millis } => {
                    plan.answer_delay += Duration::from_millis(*millis);
                    continue;
                }
                Fault::Hang { when } => (Failure::Hang, *when),
                Fault::Reset { when } => (Failure::Reset, *when),
                Fault::Garbage { when } => (Failure::Garbage, *when),
                Fault::Html { when } => (Failure::Html, *when),
                Fault::WrongCode { when } => (Failure::WrongCode, *when),
                Fault::Crash { when } => (Failure::Crash, *when),
                _ => continue,
            };
            match when {
                When::Before => plan.before.get_or_insert(failure),
                When::After => plan.after.get_or_insert(failure),
            };
        }
        plan
    }

    /// Counts a watch event and says what happens to it; `call` describes the watch, with the event's object.
    pub fn on_event(&mut self, call: &CallInfo) -> EventPlan {
        self.events += 1;
        let index = self.events;
        let mut plan = EventPlan::default();
        for active in self.rules.iter_mut().filter(|active| active.rule.fault.concerns_events()) {
            if !active.strikes(call, index, active.rule.event) {
                continue;
            }
            match active.rule.fault {
                Fault::DropEvent => plan.drop = true,
                Fault::DuplicateEvent => plan.duplicate = true,
                Fault::DelayEvent { millis } => plan.delay += Duration::from_millis(millis),
                Fault::CloseWatch => plan.close = true,
                Fault::ExpireWatch => plan.expire = true,
                Fault::SilenceWatch => plan.silence = true,
                _ => {}
            }
        }
        plan
    }
}

/// The error answer that goes with a status code.
fn status(code: u16, retry_after: Option<u64>, message: Option<&str>) -> ApiError {
    let (reason, default) = match code {
        400 => ("BadRequest", "the server rejected our request for an unknown reason"),
        401 => ("Unauthorized", "Unauthorized"),
        403 => ("Forbidden", "forbidden"),
        404 => ("NotFound", "the server could not find the requested resource"),
        409 => (
            "Conflict",
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        410 => ("Expired", "too old resource version"),
        422 => ("Invalid", "the server rejected our request due to an error in our request"),
        429 => ("TooManyRequests", "too many requests, please try again later"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "the server was unable to return a response in the time allotted"),
        _ => ("InternalError", "an error on the server has prevented the request from succeeding"),
    };
    let message = message.map_or_else(|| format!("simulated fault: {default}"), str::to_owned);
    let error = ApiError::new(code, reason, message);
    match retry_after {
        Some(seconds) => error.with_details(serde_json::json!({"retryAfterSeconds": seconds})),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: &'static str, name: &str) -> CallInfo {
        CallInfo {
            verb,
            resource: "pods".to_owned(),
            name: name.to_owned(),
            agent: "kubectl".to_owned(),
            ..CallInfo::default()
        }
    }

    #[test]
    fn a_rule_strikes_from_its_nth_match_and_as_often_as_it_says() {
        let mut faults = Faults::default();
        let rule = Rule::once(
            Match { verb: "write".to_owned(), ..Match::default() },
            Fault::Reset { when: When::After },
        );
        faults.add(rule.from_nth(2).times(2));
        let struck: Vec<bool> = ["create", "get", "patch", "delete", "update"]
            .into_iter()
            .map(|verb| faults.on_request(&call(verb, "p")).after.is_some())
            .collect();
        assert_eq!(struck, [false, false, true, true, false]);
        assert_eq!(faults.calls(), 5);
    }

    #[test]
    fn rules_read_from_json_select_by_object_and_program() {
        let mut faults = Faults::default();
        let rule = serde_json::json!({
            "match": {"resource": "pods", "name": "a", "manager": "kubectl"},
            "times": 0, "fault": {"kind": "status", "code": 429, "retryAfter": 3},
        });
        faults.add(serde_json::from_value(rule).unwrap());
        assert_eq!(faults.on_request(&call("get", "b")), Plan::default());
        let Some(Failure::Status(error)) = faults.on_request(&call("get", "a")).before else {
            panic!("the rule matches");
        };
        assert_eq!(error.code, 429);
        assert_eq!(error.details.unwrap()["retryAfterSeconds"], 3);
    }

    #[test]
    fn a_call_can_be_named_by_its_number() {
        let mut faults = Faults::default();
        let mut rule = Rule::once(Match::default(), Fault::Crash { when: When::Before });
        rule.call = Some(2);
        faults.add(rule);
        assert_eq!(faults.on_request(&call("get", "a")), Plan::default());
        assert_eq!(faults.on_request(&call("get", "a")).before, Some(Failure::Crash));
        assert_eq!(faults.on_request(&call("get", "a")), Plan::default());
    }

    #[test]
    fn a_watch_event_can_be_named_by_its_number() {
        let mut faults = Faults::default();
        let mut rule = Rule::once(Match::default(), Fault::DropEvent);
        rule.event = Some(2);
        faults.add(rule);
        let dropped: Vec<bool> =
            (0..3).map(|_| faults.on_event(&call("watch", "a")).drop).collect();
        assert_eq!(dropped, [false, true, false]);
        assert_eq!((faults.events(), faults.calls()), (3, 0));
    }
}
