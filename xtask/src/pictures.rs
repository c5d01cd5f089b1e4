//! The pictures of docs/concepts.md, drawn from what they say: boxes on a grid and arrows between them.
//!
//! Plain values in, SVG out. Colours are readable on white and on black.

use std::fmt::Write as _;

const COLUMN: i32 = 184;
const ROW: i32 = 96;
const WIDTH: i32 = 136;
const HEIGHT: i32 = 48;
const MARGIN: i32 = 24;

/// A box: its name in arrows, column and row, and its one or two lines.
type Cell = (&'static str, i32, i32, &'static str, &'static str);
/// An arrow: from, to, and what makes it happen.
type Arrow = (&'static str, &'static str, &'static str);

/// A picture: file, title, boxes, arrows.
pub(crate) struct Picture {
    pub(crate) file: &'static str,
    title: &'static str,
    cells: &'static [Cell],
    arrows: &'static [Arrow],
}

/// All pictures.
pub(crate) const PICTURES: [Picture; 3] = [
    Picture {
        file: "docs/pictures/control-loop.svg",
        title: "The control loop: watches wake it, it observes, decides, applies and reports, and says when to look again",
        cells: &[
            ("api", 0, 0, "API server", "watches"),
            ("observe", 1, 0, "observe", "Snapshot"),
            ("decide", 2, 0, "decide", "pure"),
            ("apply", 3, 0, "apply", "requests"),
            ("report", 3, 1, "report", "status, Events"),
            ("again", 1, 1, "look again", "time or change"),
        ],
        arrows: &[
            ("api", "observe", "wakes"),
            ("observe", "decide", ""),
            ("decide", "apply", "Plan"),
            ("apply", "report", "outcomes"),
            ("report", "again", ""),
            ("again", "observe", ""),
        ],
    },
    Picture {
        file: "docs/pictures/backends.svg",
        title: "Two backends: the Machine Config Operator changes OpenShift nodes, Jobs change all others; one status",
        cells: &[
            ("config", 0, 1, "KataConfig", "what an admin wants"),
            ("operator", 1, 1, "kata-operator", "one decision"),
            ("pool", 2, 0, "MachineConfig", "and pool kata-oc"),
            ("mco", 3, 0, "Machine Config", "Operator"),
            ("job", 2, 2, "Job", "one per node"),
            ("agent", 3, 2, "node agent", "no API token"),
            ("node", 4, 1, "Node", "label, handler"),
            ("class", 2, 1, "RuntimeClass", "verified nodes only"),
        ],
        arrows: &[
            ("config", "operator", ""),
            ("operator", "pool", "OpenShift"),
            ("pool", "mco", ""),
            ("mco", "node", "reboots"),
            ("operator", "job", "any other"),
            ("job", "agent", ""),
            ("agent", "node", "restarts CRI"),
            ("operator", "class", ""),
            ("class", "node", "selects"),
        ],
    },
    Picture {
        file: "docs/pictures/node-states.svg",
        title: "The phases of a node, as a KataNode shows them",
        cells: &[
            ("waiting", 0, 0, "Waiting", "for its turn"),
            ("installing", 1, 0, "Installing", "is changed"),
            ("ready", 2, 0, "Ready", "runs sandboxes"),
            ("leaving", 3, 0, "WaitingToRemove", "turn, or its pods"),
            ("removing", 4, 0, "Removing", "is changed back"),
            ("failed", 1, 1, "Failed", "tells why"),
            ("notready", 2, 1, "NotReady", "has Kata, cannot run"),
            ("updating", 3, 1, "Updating", "for other reasons"),
        ],
        arrows: &[
            ("waiting", "installing", ""),
            ("installing", "ready", "verified"),
            ("installing", "failed", ""),
            ("ready", "notready", ""),
            ("ready", "leaving", "leaves"),
            ("ready", "updating", ""),
            ("leaving", "removing", "no pods"),
        ],
    },
];

impl Picture {
    /// The picture as SVG.
    pub(crate) fn svg(&self) -> String {
        let columns = self.cells.iter().map(|cell| cell.1).max().unwrap_or(0);
        let rows = self.cells.iter().map(|cell| cell.2).max().unwrap_or(0);
        let (width, height) =
            (2 * MARGIN + columns * COLUMN + WIDTH, 2 * MARGIN + rows * ROW + HEIGHT);
        let mut out = String::new();
        let title = self.title;
        // Writing to a String does not fail.
        _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{title}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <title>{title}</title>\n\
             <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#6b7f99\"/></marker></defs>"
        );
        for (from, to, label) in self.arrows {
            self.arrow(&mut out, from, to, label);
        }
        for (_, column, row, first, second) in self.cells {
            let (x, y) = corner(*column, *row);
            let middle = x + WIDTH / 2;
            _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"#1f3a5f\"/>\n\
                 <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" fill=\"#ffffff\" font-weight=\"bold\">{first}</text>\n\
                 <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" fill=\"#9fd3ff\" font-size=\"11\">{second}</text>",
                y + 20,
                y + 37,
            );
        }
        out.push_str("</svg>\n");
        out
    }

    fn arrow(&self, out: &mut String, from: &str, to: &str, label: &str) {
        let place =
            |name: &str| self.cells.iter().find(|cell| cell.0 == name).map(|cell| (cell.1, cell.2));
        let (Some(from), Some(to)) = (place(from), place(to)) else { return };
        let ((x1, y1), (x2, y2)) = (edge(from, to), edge(to, from));
        _ = writeln!(
            out,
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"#6b7f99\" stroke-width=\"1.5\" \
             marker-end=\"url(#tip)\"/>"
        );
        if label.is_empty() {
            return;
        }
        let (x, y) = (i32::midpoint(x1, x2), i32::midpoint(y1, y2));
        let (x, anchor) = if y1 == y2 { (x, "middle") } else { (x + 10, "start") };
        let y = match y2 - y1 {
            0 => y - HEIGHT / 2 - 4,
            down if down > 0 => y - 2,
            _ => y + 12,
        };
        _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"#6b7f99\" font-size=\"11\">{label}</text>"
        );
    }
}

/// The upper left corner of a box.
fn corner(column: i32, row: i32) -> (i32, i32) {
    (MARGIN + column * COLUMN, MARGIN + row * ROW)
}

/// Where an arrow to another box leaves a box: the middle of the side that looks there.
fn edge(from: (i32, i32), to: (i32, i32)) -> (i32, i32) {
    let (x, y) = corner(from.0, from.1);
    let (middle_x, middle_y) = (x + WIDTH / 2, y + HEIGHT / 2);
    match (to.0 - from.0, to.1 - from.1) {
        (0, down) if down > 0 => (middle_x, y + HEIGHT),
        (0, _) => (middle_x, y),
        (right, _) if right > 0 => (x + WIDTH, middle_y),
        _ => (x, middle_y),
    }
}
