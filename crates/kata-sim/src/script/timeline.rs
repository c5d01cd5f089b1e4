//! A picture of a script: for each node, which step of its change it was in, and when, as SVG.
//!
//! It shows what the KataNodes said, and decides nothing. The same script gives the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

const LEFT: u64 = 90;
const WIDTH: u64 = 700;
const RIGHT: u64 = 20;
const TOP: u64 = 46;
const ROW: u64 = 26;
const BAR: u64 = 16;
/// Distances of the marks on the axis of time, in minutes; the first that gives at most ten is used.
const MARKS: [u64; 6] = [1, 2, 5, 10, 20, 60];
/// States in the order of the legend, with their colours.
const COLOURS: [(&str, &str); 9] = [
    ("Waiting", "#a9b4c0"),
    ("Targeted", "#6f8196"),
    ("Draining", "#d98c1f"),
    ("Applying", "#3f86c9"),
    ("Rebooting", "#8a63c7"),
    ("Finishing", "#2a9d96"),
    ("Changing", "#3f86c9"),
    ("Ready", "#2f9e5f"),
    ("Problem", "#d14545"),
];
/// The colour of every other state.
const OTHER: &str = "#6f8196";

/// A state and when it began.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    from: Duration,
    state: String,
    /// The code of the problem that delays the node.
    code: Option<String>,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    nodes: BTreeMap<String, Vec<Span>>,
}

impl Timeline {
    /// Notes what a KataNode says; `None` if it is gone.
    pub(crate) fn note(&mut self, at: Duration, name: &str, status: Option<&Value>) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (state, code) = match status {
            None => ("Gone".to_owned(), None),
            Some(status) => {
                let step = text(&status["step"]);
                let step = step.split_once(' ').map(|(_, name)| name.to_owned());
                let code = status["code"].as_str().map(str::to_owned);
                (step.unwrap_or_else(|| text(&status["phase"])), code)
            }
        };
        let spans = self.nodes.entry(name.to_owned()).or_default();
        if spans.last().is_none_or(|last| (&last.state, &last.code) != (&state, &code)) {
            spans.push(Span { from: at, state, code });
        }
    }

    /// The picture.
    pub(crate) fn svg(&self, title: &str, end: Duration) -> String {
        let rows = u64::try_from(self.nodes.len()).unwrap_or_default();
        let (width, axis) = (LEFT + WIDTH + RIGHT, TOP + rows * ROW);
        let height = axis + 62;
        let seconds = end.as_secs().max(60);
        let x = |at: Duration| LEFT + at.as_secs().min(seconds) * WIDTH / seconds;
        let mut out = String::new();
        // Writing to a String does not fail.
        _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{title}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{title}</title>\n\
             <style>text{{fill:#1f2933}} .q{{fill:#5b6b7d}} .in{{fill:#ffffff;font-size:11px}} line{{stroke:#d5dbe2}} \
             @media (prefers-color-scheme: dark){{text{{fill:#e6edf3}} .q{{fill:#9aa8b8}} .in{{fill:#ffffff}} \
             line{{stroke:#3a4553}}}}</style>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"14\" font-weight=\"600\">{title}</text>"
        );
        let minutes = seconds / 60;
        let mark = MARKS.into_iter().find(|mark| minutes / mark <= 10).unwrap_or(120);
        for minute in (0..=minutes).step_by(usize::try_from(mark).unwrap_or(1)) {
            let x = x(Duration::from_secs(minute * 60));
            let (bottom, below) = (axis + 2, axis + 18);
            _ = writeln!(
                out,
                "<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{bottom}\"/>\
                 <text class=\"q\" x=\"{x}\" y=\"{below}\" text-anchor=\"middle\">{minute} min</text>",
                TOP - 6
            );
        }
        for (row, (name, spans)) in (0..).zip(&self.nodes) {
            let y = TOP + row * ROW;
            _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
                LEFT - 10,
                y + 13
            );
            let ends = spans.iter().skip(1).map(|span| span.from).chain([end]);
            for (span, until) in spans.iter().zip(ends) {
                let (from, to) = (x(span.from), x(until));
                if to > from && span.state != "Gone" {
                    bar(&mut out, span, (from, to - from), y);
                }
            }
        }
        legend(&mut out, self, axis + 44);
        out.push_str("</svg>\n");
        out
    }
}

/// What a state is called in the legend.
fn kind(span: &Span) -> &str {
    if span.code.is_some() { "Problem" } else { &span.state }
}

fn colour(kind: &str) -> &'static str {
    COLOURS.iter().find(|(state, _)| *state == kind).map_or(OTHER, |(_, colour)| colour)
}

fn bar(out: &mut String, span: &Span, (x, width): (u64, u64), y: u64) {
    let fill = colour(kind(span));
    // Waiting lasts long: a thin line leaves the eye to what happens.
    let (y, height) = match kind(span) {
        "Waiting" => (y + 6, 4),
        _ => (y, BAR),
    };
    _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"2\" fill=\"{fill}\"/>"
    );
    if let Some(code) = &span.code
        && width > 70
    {
        _ = writeln!(out, "<text class=\"in\" x=\"{}\" y=\"{}\">{code}</text>", x + 6, y + 12);
    }
}

fn legend(out: &mut String, timeline: &Timeline, y: u64) {
    let mut x = LEFT;
    for (state, fill) in COLOURS {
        let used = timeline.nodes.values().flatten().any(|span| kind(span) == state);
        if !used {
            continue;
        }
        _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{fill}\"/>\
             <text class=\"q\" x=\"{}\" y=\"{y}\">{state}</text>",
            y - 9,
            x + 15
        );
        x += 88;
    }
}
