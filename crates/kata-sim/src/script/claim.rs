//! What scripts claim of a cluster: how claims are written, and whether they hold.
//!
//! A claim is about what the API server has, or about Events; it never waits.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use simcluster::Simulation;
use simcluster::resource::EVENTS_V1;

use super::resource::resource;
use super::words::{self, Target};
use crate::story::span;

/// Something that holds or does not.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// Every test of an object holds.
    Object { target: Target, tests: Vec<Test> },
    /// There is an Event, or none, with this reason, about this object, that says this.
    Event { exists: bool, reason: String, about: Option<String>, text: Option<String> },
    /// There are so many objects of a kind.
    Count { kind: String, count: usize },
    /// The operator runs, or not.
    Operator { down: bool },
}

/// A test of an object.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Absent,
    Present,
    /// A condition's status and, if it matters, its reason and for how long the condition has had this status.
    Condition {
        type_: String,
        status: String,
        reason: Option<String>,
        since: Option<Duration>,
    },
    /// Whether a condition's message contains a text.
    Says {
        type_: String,
        contains: bool,
        text: String,
    },
    Field {
        path: Path,
        test: FieldTest,
    },
}

/// A test of a field.
#[derive(Clone, Debug)]
pub(crate) enum FieldTest {
    Absent,
    Present,
    Equals { equal: bool, value: String },
    Contains { contains: bool, text: String },
}

/// A path such as `.status.conditions[Ready].message` or `.metadata.labels["a.b/c"]`.
#[derive(Clone, Debug)]
pub(crate) struct Path(Vec<String>);

impl Path {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a path: write .status.conditions[Ready].message");
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let (key, after) = after.split_once(']').ok_or_else(bad)?;
                steps.push(key.to_owned());
                rest = after;
            } else {
                let after = rest.strip_prefix('.').ok_or_else(bad)?;
                let end = after.find(['.', '[']).unwrap_or(after.len());
                let (key, after) = after.split_at(end);
                if key.is_empty() {
                    return Err(bad());
                }
                steps.push(key.to_owned());
                rest = after;
            }
        }
        if steps.is_empty() { Err(bad()) } else { Ok(Self(steps)) }
    }

    /// The value there; in a list a step is an index, or the type or name of an element.
    fn find<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, step| match value {
            Value::Array(items) => match step.parse::<usize>() {
                Ok(index) => items.get(index),
                Err(_not_an_index) => {
                    items.iter().find(|item| item["type"] == **step || item["name"] == **step)
                }
            },
            value => value.get(step),
        })
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, ".{step}"))
    }
}

/// Reads a claim.
pub(crate) fn parse(words: &[&str]) -> Result<Claim, String> {
    match words {
        ["operator", "down"] => Ok(Claim::Operator { down: true }),
        ["operator", "up"] => Ok(Claim::Operator { down: false }),
        ["count", kind, count] => Ok(Claim::Count {
            kind: (*kind).to_owned(),
            count: count.parse().map_err(|_no| format!("{count:?} is not a number"))?,
        }),
        ["no", "event", rest @ ..] => event(false, rest),
        ["event", rest @ ..] => event(true, rest),
        words => {
            let (target, tests) = words::target(words)?;
            let tests = tests_of(tests)?;
            if tests.is_empty() {
                return Err(
                    "no test is given: write absent, present, Ready=True, Ready~TEXT, .path=VALUE, \
                     .path~TEXT or .path absent"
                        .to_owned(),
                );
            }
            Ok(Claim::Object { target, tests })
        }
    }
}

fn event(exists: bool, words: &[&str]) -> Result<Claim, String> {
    let (reason, rest) =
        words.split_first().ok_or_else(|| "write: event REASON [KIND/NAME] [~TEXT]".to_owned())?;
    let (mut about, mut text) = (None, None);
    for word in rest {
        match word.strip_prefix('~') {
            Some(wanted) => text = Some(wanted.to_owned()),
            None if word.contains('/') => about = Some((*word).to_owned()),
            None => return Err(format!("{word:?}: write event REASON [KIND/NAME] [~TEXT]")),
        }
    }
    Ok(Claim::Event { exists, reason: (*reason).to_owned(), about, text })
}

fn tests_of(words: &[&str]) -> Result<Vec<Test>, String> {
    let mut tests = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let test = match *word {
            "absent" => Test::Absent,
            "present" => Test::Present,
            word => {
                let split = word.find(['=', '~', '!']).unwrap_or(word.len());
                let (left, right) = word.split_at(split);
                if left.starts_with('.') {
                    let test = if right.is_empty() {
                        match words.next() {
                            Some(&"absent") => FieldTest::Absent,
                            Some(&"present") => FieldTest::Present,
                            _ => {
                                return Err(format!(
                                    "{left}: write ={{VALUE}}, ~TEXT, absent or present"
                                ));
                            }
                        }
                    } else {
                        field_test(right).ok_or_else(|| format!("{word:?}: use =, !=, ~ or !~"))?
                    };
                    Test::Field { path: Path::parse(left)?, test }
                } else {
                    match field_test(right) {
                        Some(FieldTest::Equals { equal: true, value }) => {
                            let (value, since) = match value.split_once('>') {
                                Some((value, text)) => (value.to_owned(), Some(words::span(text)?)),
                                None => (value, None),
                            };
                            let (status, reason) = match value.split_once('/') {
                                Some((status, reason)) => {
                                    (status.to_owned(), Some(reason.to_owned()))
                                }
                                None => (value, None),
                            };
                            Test::Condition { type_: left.to_owned(), status, reason, since }
                        }
                        Some(FieldTest::Contains { contains, text }) => {
                            Test::Says { type_: left.to_owned(), contains, text }
                        }
                        _ => {
                            return Err(format!(
                                "{word:?}: write CONDITION=STATUS, CONDITION=STATUS/REASON, CONDITION=STATUS>5m or \
                                 CONDITION~TEXT"
                            ));
                        }
                    }
                }
            }
        };
        tests.push(test);
    }
    Ok(tests)
}

fn field_test(text: &str) -> Option<FieldTest> {
    let contains = |contains, text: &str| FieldTest::Contains { contains, text: text.to_owned() };
    let equals = |equal, value: &str| FieldTest::Equals { equal, value: value.to_owned() };
    if let Some(text) = text.strip_prefix("!~") {
        Some(contains(false, text))
    } else if let Some(value) = text.strip_prefix("!=") {
        Some(equals(false, value))
    } else if let Some(text) = text.strip_prefix('~') {
        Some(contains(true, text))
    } else {
        text.strip_prefix('=').map(|value| equals(true, value))
    }
}

/// A value as scripts write it: texts bare, all else as JSON.
fn plain(value: Option<&Value>) -> String {
    match value {
        None => "(absent)".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// For how long a condition has had its status.
fn lasts(condition: &Value, now: Timestamp) -> Duration {
    let since = condition["lastTransitionTime"].as_str().and_then(|text| text.parse().ok());
    let lasts = since.map(|since: Timestamp| now.duration_since(since));
    lasts.and_then(|span| Duration::try_from(span).ok()).unwrap_or_default()
}

impl Claim {
    /// Whether the claim holds: if not, what holds instead. The outer error is a mistake in the script.
    pub(crate) fn holds(
        &self,
        sim: &Simulation,
        operator_down: bool,
    ) -> Result<Result<(), String>, String> {
        Ok(match self {
            Self::Operator { down } => {
                let state = if operator_down { "down" } else { "up" };
                if *down == operator_down {
                    Ok(())
                } else {
                    Err(format!("the operator is {state}"))
                }
            }
            Self::Count { kind, count } => {
                let found = sim.api.list(&resource(sim, kind)?.resource).len();
                if found == *count { Ok(()) } else { Err(format!("there are {found}")) }
            }
            Self::Event { exists, reason, about, text } => {
                let found = sim.api.list(&EVENTS_V1).into_iter().find(|event| {
                    let regarding = &event["regarding"];
                    let object = format!(
                        "{}/{}",
                        plain(Some(&regarding["kind"])),
                        plain(Some(&regarding["name"]))
                    );
                    event["reason"] == **reason
                        && about.as_ref().is_none_or(|about| about.eq_ignore_ascii_case(&object))
                        && text
                            .as_ref()
                            .is_none_or(|text| plain(Some(&event["note"])).contains(text))
                });
                match (exists, found) {
                    (true, Some(_)) | (false, None) => Ok(()),
                    (true, None) => Err("there is no such Event".to_owned()),
                    (false, Some(event)) => Err(format!("it says {}", plain(Some(&event["note"])))),
                }
            }
            Self::Object { target, tests } => {
                let def = resource(sim, &target.kind)?;
                let namespace = target.namespace(def.namespaced);
                let object = sim.api.get(&def.resource, namespace, &target.name);
                tests.iter().try_for_each(|test| test.holds(object.as_deref(), sim.now()))
            }
        })
    }
}

impl Test {
    fn holds(&self, object: Option<&Value>, now: Timestamp) -> Result<(), String> {
        let verdict = |holds: bool, instead: String| if holds { Ok(()) } else { Err(instead) };
        let Some(object) = object else {
            return verdict(matches!(self, Self::Absent), "it does not exist".to_owned());
        };
        let condition = |type_: &str| {
            object["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|condition| condition["type"] == *type_)
        };
        match self {
            Self::Absent => Err("it exists".to_owned()),
            Self::Present => Ok(()),
            Self::Condition { type_, status, reason, since } => match condition(type_) {
                None => Err(format!("there is no condition {type_}")),
                Some(found) => verdict(
                    found["status"] == **status
                        && reason.as_ref().is_none_or(|reason| found["reason"] == **reason)
                        && since.is_none_or(|since| lasts(found, now) > since),
                    format!(
                        "{type_}={}/{} for {}: {}",
                        plain(found.get("status")),
                        plain(found.get("reason")),
                        span(lasts(found, now)),
                        plain(found.get("message"))
                    ),
                ),
            },
            Self::Says { type_, contains, text } => {
                let message = plain(condition(type_).and_then(|found| found.get("message")));
                verdict(message.contains(text) == *contains, format!("{type_} says: {message}"))
            }
            Self::Field { path, test } => {
                let found = path.find(object);
                let holds = match test {
                    FieldTest::Absent => found.is_none(),
                    FieldTest::Present => found.is_some(),
                    FieldTest::Equals { equal, value } => (plain(found) == *value) == *equal,
                    FieldTest::Contains { contains, text } => {
                        plain(found).contains(text) == *contains
                    }
                };
                verdict(holds, format!("{path} is {}", plain(found)))
            }
        }
    }
}
