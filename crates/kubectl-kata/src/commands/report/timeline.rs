//! The timeline of a roll-out: a picture with a row for each node and a bar for each step.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use crate::commands::history::{span, took};
use crate::document::{ChangeResult, NodeChange, NodeHistory};

/// Two changes with more time between them than this belong to different roll-outs.
const PAUSE: SignedDuration = SignedDuration::from_hours(6);
/// Columns of the picture: in all, for the names, and for the results.
const WIDTH: f64 = 1_000.0;
const NAMES: f64 = 220.0;
const RESULTS: f64 = 110.0;
/// The height of the axis.
const AXIS: f64 = 28.0;
/// How many colours there are for steps.
const COLOURS: usize = 10;
/// Most characters of a name.
const NAME: usize = 30;
/// Most marks of the axis.
const MARKS: i64 = 7;
/// The distances that marks may have, in seconds.
const DISTANCES: [i64; 14] =
    [5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800];

/// Nodes, each with its changes.
pub(super) type Rollout<'a> = [(&'a str, &'a [NodeChange])];

/// When a roll-out began and ended, and how long it took; `None` if there is none.
pub(super) fn times(rollout: &Rollout<'_>) -> Option<String> {
    let changes = || rollout.iter().flat_map(|(_, changes)| *changes);
    let begin = changes().map(|change| change.began).min()?;
    let end = changes().map(end).max()?;
    let time = |time: Timestamp| time.strftime("%Y-%m-%d %H:%M:%S").to_string();
    let took = span(end.duration_since(begin).as_secs());
    Some(if changes().any(|change| change.result == ChangeResult::UnderWay) {
        format!("since {} UTC, {took} so far", time(begin))
    } else {
        format!("{} to {} UTC, {took}", time(begin), time(end))
    })
}

/// The changes of each node that belong to the last roll-out.
pub(super) fn rollout(histories: &[NodeHistory]) -> Vec<(&str, &[NodeChange])> {
    let mut times: Vec<(Timestamp, Timestamp)> = histories
        .iter()
        .flat_map(|node| &node.changes)
        .map(|change| (change.began, end(change)))
        .collect();
    times.sort_by_key(|(began, _)| std::cmp::Reverse(*began));
    let Some((mut first, _)) = times.first().copied() else { return Vec::new() };
    for (began, end) in times {
        if first.duration_since(end) <= PAUSE {
            first = first.min(began);
        }
    }
    let of_node = |node: &'_ NodeHistory| {
        node.changes.iter().position(|change| change.began >= first).unwrap_or(node.changes.len())
    };
    let rows = histories
        .iter()
        .map(|node| (node.name.as_str(), node.changes.get(of_node(node)..).unwrap_or_default()));
    rows.filter(|(_, changes)| !changes.is_empty()).collect()
}

fn end(change: &NodeChange) -> Timestamp {
    change.began.checked_add(SignedDuration::from_secs(change.seconds)).unwrap_or(change.began)
}

/// The picture.
pub(super) fn svg(rows: &Rollout<'_>) -> Markup {
    let changes = || rows.iter().flat_map(|(_, changes)| *changes);
    let begin = changes().map(|change| change.began).min().unwrap_or_default();
    let end = changes().map(end).max().unwrap_or_default();
    let seconds = end.duration_since(begin).as_secs().max(1);
    let plot = WIDTH - NAMES - RESULTS;
    let place = |time: Timestamp| {
        NAMES
            + plot * time.duration_since(begin).as_secs_f64()
                / SignedDuration::from_secs(seconds).as_secs_f64()
    };
    let row = if rows.len() > 40 { 14.0 } else { 24.0 };
    let mut names: Vec<&str> = Vec::new();
    for step in changes().flat_map(|change| &change.steps) {
        if !names.contains(&step.name.as_str()) {
            names.push(&step.name);
        }
    }
    let colour = |name: &str| names.iter().position(|it| *it == name).unwrap_or(0) % COLOURS;
    let mut top = AXIS;
    let mut bars = Vec::new();
    for (node, changes) in rows {
        bars.push(line(node, changes, top, row, &place, &colour));
        top += row;
    }
    let height = top + 4.0;
    let distance = DISTANCES.into_iter().find(|it| seconds / it < MARKS).unwrap_or(604_800);
    let first = begin.as_second().div_euclid(distance) + 1;
    let marks = (first..first + MARKS + 1)
        .filter_map(|at| Timestamp::from_second(at * distance).ok())
        .filter(|time| *time <= end);
    let format = match distance {
        ..60 => "%H:%M:%S",
        60..21_600 => "%H:%M",
        _ => "%m-%d %H:%M",
    };
    html! {
        p class="legend" {
            @for name in &names {
                span { i class=(format!("c{}", colour(name))) {} " " (name) }
            }
        }
        svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label="Timeline of the roll-out" {
            @for time in marks {
                @let x = pixels(place(time));
                line class="mark" x1=(x) y1=(AXIS - 6.0) x2=(x) y2=(height) {}
                text class="axis" x=(x) y="14" text-anchor="middle" { (time.strftime(format).to_string()) }
            }
            @for bar in bars { (bar) }
        }
        p class="note" {
            "Times are in UTC; the picture begins on " (begin.strftime("%Y-%m-%d at %H:%M:%S").to_string()) "."
        }
    }
}

/// The row of a node.
fn line(
    node: &str,
    changes: &[NodeChange],
    top: f64,
    height: f64,
    place: &impl Fn(Timestamp) -> f64,
    colour: &impl Fn(&str) -> usize,
) -> Markup {
    let (middle, bar) = (top + height / 2.0, height * 0.7);
    let short: String = if node.chars().count() > NAME {
        format!("{}…", node.chars().take(NAME - 1).collect::<String>())
    } else {
        node.to_owned()
    };
    let result = |change: &NodeChange| match change.result {
        ChangeResult::Done => ("result", took(change)),
        ChangeResult::Failed => ("result bad", format!("failed, {}", took(change))),
        ChangeResult::Stopped => ("result", format!("stopped, {}", took(change))),
        ChangeResult::UnderWay => ("result", format!("{} so far", took(change))),
    };
    html! {
        text class="node" x=(NAMES - 10.0) y=(pixels(middle)) text-anchor="end" {
            (short) title { (node) }
        }
        @for step in changes.iter().flat_map(|change| &change.steps) {
            @let begin = place(step.began);
            @let stop = step.began.checked_add(SignedDuration::from_secs(step.seconds)).unwrap_or(step.began);
            rect class=(format!("c{}", colour(&step.name)))
                x=(pixels(begin)) y=(pixels(top + (height - bar) / 2.0))
                width=(pixels((place(stop) - begin).max(1.0))) height=(pixels(bar)) {
                title { (node) ": " (step.name) " " (span(step.seconds)) }
            }
        }
        @if let Some(change) = changes.last() {
            @let (class, text) = result(change);
            text class=(class) x=(pixels(place(end(change)) + 6.0)) y=(pixels(middle)) { (text) }
        }
    }
}

fn pixels(value: f64) -> String {
    format!("{value:.1}")
}
