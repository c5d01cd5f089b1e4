//! Tables as kubectl prints them: upper-case titles, three spaces between columns, no lines.
//!
//! On a narrow terminal the least important columns go, and the last one is cut.

use crate::style::{Style, Tone, columns, cut};

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    /// The higher, the earlier it goes when the terminal is narrow; 0 stays.
    dispensable: u8,
    /// Whether it is shown with `-o wide` only.
    wide: bool,
}

/// A column that is always shown.
pub(crate) const fn column(title: &'static str) -> Column {
    Column { title, dispensable: 0, wide: false }
}

impl Column {
    /// It goes when the terminal is narrow; higher numbers go first.
    pub(crate) const fn dispensable(self, rank: u8) -> Self {
        Self { dispensable: rank, ..self }
    }

    /// It is shown with `-o wide` only.
    pub(crate) const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        let text = if text.is_empty() { "-".to_owned() } else { text };
        Self { text, tone: Tone::Plain }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    /// A cell in a colour.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { tone, ..Self::from(text.into()) }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

/// What the last column needs at least before another one goes.
const LAST: usize = 24;
const GAP: &str = "   ";

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, one cell for each column, the wide ones included.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The lines of the table.
    pub(crate) fn lines(&self, style: &Style, wide: bool, titles: bool) -> Vec<String> {
        let plain: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| style.plain(&cell.text)).collect())
            .collect();
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let title = if titles { columns(column.title) } else { 0 };
                let cells = plain.iter().filter_map(|row| row.get(at)).map(|text| columns(text));
                cells.chain([title]).max().unwrap_or(0)
            })
            .collect();
        let mut shown: Vec<usize> = (0..self.columns.len())
            .filter(|at| self.columns.get(*at).is_some_and(|column| wide || !column.wide))
            .collect();
        let width_of = |at: usize| widths.get(at).copied().unwrap_or(0);
        let needed = |shown: &[usize]| {
            let Some((last, rest)) = shown.split_last() else { return 0 };
            rest.iter().map(|at| width_of(*at) + GAP.len()).sum::<usize>()
                + width_of(*last).min(LAST)
        };
        while style.width.is_some_and(|limit| needed(&shown) > limit) {
            let rank = |at: &usize| self.columns.get(*at).map_or(0, |column| column.dispensable);
            let Some(worst) = shown.iter().copied().max_by_key(rank).filter(|at| rank(at) > 0)
            else {
                break;
            };
            shown.retain(|at| *at != worst);
        }
        let line = |text: &dyn Fn(usize) -> (String, Tone)| {
            let mut line = String::new();
            let mut used = 0;
            for (place, at) in shown.iter().enumerate() {
                let (mut text, tone) = text(*at);
                let last = place + 1 == shown.len();
                if last && let Some(limit) = style.width {
                    text = cut(&text, limit.saturating_sub(used).max(LAST.min(width_of(*at))));
                }
                line.push_str(&style.paint(tone, &text));
                if !last {
                    let padding = width_of(*at).saturating_sub(columns(&text)) + GAP.len();
                    line.push_str(&" ".repeat(padding));
                    used += width_of(*at) + GAP.len();
                }
            }
            line.trim_end().to_owned()
        };
        let title = |at: usize| {
            let title = self.columns.get(at).map_or("", |column| column.title);
            (title.to_owned(), Tone::Plain)
        };
        let mut lines = Vec::new();
        if titles {
            lines.push(line(&title));
        }
        for (row, texts) in self.rows.iter().zip(&plain) {
            lines.push(line(&|at| {
                let tone = row.get(at).map_or(Tone::Plain, |cell| cell.tone);
                (texts.get(at).cloned().unwrap_or_default(), tone)
            }));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Style = Style { colour: false, unicode: true, width: None, rows: None };

    fn table() -> Table {
        let mut table = Table::new(&[
            column("NODE"),
            column("KERNEL").dispensable(1),
            column("IMAGE").wide(),
            column("MESSAGE"),
        ]);
        table.row(vec![
            "worker-0".into(),
            "5.14.0-570.62.1.el9_6".into(),
            "i".into(),
            "a message that is a little longer than it should be".into(),
        ]);
        table.row(vec!["w".into(), "".into(), "j".into(), "short".into()]);
        table
    }

    #[test]
    fn columns_are_three_spaces_apart() {
        let lines = table().lines(&WIDE, false, true);
        assert_eq!(lines[0], "NODE       KERNEL                  MESSAGE");
        assert_eq!(lines[2], "w          -                       short");
        assert!(table().lines(&WIDE, true, false)[0].contains("   i   "));
    }

    #[test]
    fn a_narrow_terminal_loses_what_can_be_spared_and_then_the_end() {
        let style = Style { width: Some(40), ..WIDE };
        let lines = table().lines(&style, false, true);
        assert_eq!(lines[0], "NODE       MESSAGE");
        assert_eq!(lines[1], "worker-0   a message that is a little...");
        assert!(lines.iter().all(|line| columns(line) <= 40), "{lines:?}");
    }

    #[test]
    fn colours_do_not_change_the_layout_and_foreign_escapes_do_not_come_through() {
        let mut table = Table::new(&[column("A"), column("B")]);
        table.row(vec![Cell::toned("x\x1b[31m", Tone::Bad), "y".into()]);
        let style = Style { colour: true, ..WIDE };
        assert_eq!(table.lines(&style, false, false)[0], "\x1b[31mx?[31m\x1b[0m   y");
    }
}
