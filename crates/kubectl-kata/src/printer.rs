//! Where a command's output goes: data to standard output, talk to standard error.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::settings::Output;
use crate::style::{Style, coloured_columns, cut, without_controls, wrap};
use crate::table::Table;

/// Where output goes.
pub struct Printer<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    style: Style,
    /// Whether standard error is a terminal, on which a line can be written anew.
    live: bool,
    /// How many lines of standard error are to be written anew.
    drawn: usize,
    /// What was written to standard output and to standard error that stays.
    told: [Told; 2],
}

/// Whether what was written to a stream says that the cluster is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Unmarked,
    Marked,
}

impl Told {
    fn note(&mut self, text: &str) {
        // The forms of text, of JSON and of YAML.
        let marks = ["(simulated)", "\"simulated\": true", "simulated: true"];
        if marks.iter().any(|mark| text.contains(mark)) {
            *self = Self::Marked;
        } else if *self == Self::Nothing {
            *self = Self::Unmarked;
        }
    }
}

impl std::fmt::Debug for Printer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Printer").field("style", &self.style).finish_non_exhaustive()
    }
}

impl<'a> Printer<'a> {
    /// A printer to these streams. `live` says whether `err` is a terminal.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write, style: Style, live: bool) -> Self {
        Self { out, err, style, live, drawn: 0, told: [Told::Nothing; 2] }
    }

    /// One whose data goes elsewhere; its talk is the same.
    pub(crate) fn aside<'b>(&'b mut self, out: &'b mut dyn Write) -> Printer<'b> {
        Printer {
            out,
            err: self.err,
            style: self.style,
            live: self.live,
            drawn: 0,
            told: [Told::Nothing; 2],
        }
    }

    /// What the terminal can show.
    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// Whether standard error is a terminal.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// A line of data.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.clear()?;
        self.told[0].note(text);
        writeln!(self.out, "{}", without_controls(text))
    }

    /// Text as it is.
    pub(crate) fn raw(&mut self, text: &str) -> io::Result<()> {
        self.clear()?;
        self.told[0].note(text);
        self.out.write_all(text.as_bytes())
    }

    /// A line of talk, in as many lines as the terminal needs.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        // On a terminal data and talk are one text, and come in the order in which they were written.
        self.out.flush()?;
        self.clear()?;
        self.told[1].note(text);
        let width = self.style.width.unwrap_or(usize::MAX);
        for line in without_controls(text).lines() {
            let words = line.trim_start();
            let indent = " ".repeat(line.len() - words.len());
            for part in wrap(words, width.saturating_sub(indent.len()).max(40)) {
                writeln!(self.err, "{indent}{part}")?;
            }
        }
        Ok(())
    }

    /// A question, which the answer follows on the same line.
    pub(crate) fn ask(&mut self, question: &str) -> io::Result<()> {
        self.flush()?;
        self.clear()?;
        write!(self.err, "{question}")?;
        self.err.flush()
    }

    /// Whether something was written without a word on a simulation: to standard error, or, as that is where
    /// the word can go without harm to what programs read, to standard output alone.
    pub(crate) fn is_unmarked(&self) -> bool {
        matches!(self.told, [_, Told::Unmarked] | [Told::Unmarked, Told::Nothing])
    }

    /// A table.
    pub(crate) fn table(&mut self, table: &Table, wide: bool, titles: bool) -> io::Result<()> {
        let style = self.style;
        table.lines(&style, wide, titles).iter().try_for_each(|line| self.line(line))
    }

    /// Lines of talk that the next ones replace; nothing unless standard error is a terminal.
    pub(crate) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        if !self.live {
            return Ok(());
        }
        self.clear()?;
        let width = self.style.width.unwrap_or(usize::MAX);
        for line in lines {
            // A line that the terminal breaks would be two of those that are written anew.
            writeln!(self.err, "{}", cut(&without_controls(line), width))?;
        }
        self.drawn = lines.len();
        self.err.flush()
    }

    /// Writes these lines instead of what is on a screen of so many lines. Those that do not fit are counted.
    pub(crate) fn screen(&mut self, lines: &[String], rows: usize) -> io::Result<()> {
        // A line that the terminal breaks takes several rows. The cursor is on the last row.
        let width = self.style.width.unwrap_or(usize::MAX);
        let rows_of = |line: &String| coloured_columns(line).div_ceil(width).max(1);
        let room = rows.saturating_sub(1);
        let fits = |most: usize| {
            let mut used = 0;
            let within = |line: &&String| {
                used += rows_of(line);
                used <= most
            };
            lines.iter().take_while(within).count()
        };
        let all = lines.len();
        let shown = if fits(room) == all { all } else { fits(room.saturating_sub(1)) };
        let mut text = String::from("\x1b[H");
        for line in lines.iter().take(shown) {
            text.push_str(&without_controls(line));
            text.push_str("\x1b[K\n");
        }
        if all > shown {
            text.push_str(&format!("... {} more lines\x1b[K\n", all - shown));
        }
        text.push_str("\x1b[J");
        self.raw(&text)
    }

    fn clear(&mut self) -> io::Result<()> {
        if self.drawn > 0 {
            write!(self.err, "\x1b[{}A\x1b[0J", self.drawn)?;
            self.drawn = 0;
        }
        Ok(())
    }

    /// Writes out what is buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.err.flush()
    }

    /// A document as JSON or YAML; false if another format is wanted.
    pub(crate) fn document(
        &mut self,
        output: Output,
        document: &impl Serialize,
    ) -> Result<bool, Failure> {
        match output {
            Output::Json => {
                let text = serde_json::to_string_pretty(document).map_err(|error| {
                    Failure::Format { format: "JSON", message: error.to_string() }
                })?;
                self.line(&text)?;
            }
            Output::Yaml => self.raw(&yaml(document)?)?,
            Output::Table | Output::Wide | Output::Name | Output::Short | Output::Markdown => {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A document as YAML.
pub(crate) fn yaml(document: &impl Serialize) -> Result<String, Failure> {
    serde_saphyr::to_string(document)
        .map_err(|error| Failure::Format { format: "YAML", message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_no_more_rows_than_the_terminal() {
        let style = Style { colour: true, unicode: true, width: Some(10), rows: Some(5) };
        let drawn = |lines: &[&str]| {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            let (mut out, mut err) = (Vec::new(), Vec::new());
            Printer::new(&mut out, &mut err, style, true).screen(&lines, 5).unwrap();
            let text = String::from_utf8(out).unwrap();
            let text = text.strip_prefix("\x1b[H").and_then(|text| text.strip_suffix("\x1b[J"));
            text.unwrap().replace("\x1b[K", "")
        };
        assert_eq!(drawn(&["a", "b", "c", "d"]), "a\nb\nc\nd\n");
        assert_eq!(drawn(&["a", "b", "c", "d", "e"]), "a\nb\nc\n... 2 more lines\n");
        // The terminal breaks the first line into three.
        let long = "0123456789012345678901";
        assert_eq!(drawn(&[long, "b", "c"]), format!("{long}\n... 2 more lines\n"));
        let coloured = "\x1b[32m0123456789\x1b[0m";
        assert_eq!(drawn(&[coloured, "b", "c", "d"]), format!("{coloured}\nb\nc\nd\n"));
    }
}
