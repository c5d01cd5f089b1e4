//! How a story is printed: headings, facts that hold or do not, and plain lines.
//!
//! It only prints and counts; what is a fact, the walkthrough says.

use std::io::{self, Write};
use std::time::Duration;

/// Where the story goes, and how it went so far.
#[derive(Debug)]
pub(crate) struct Story<W> {
    out: W,
    chapter: usize,
    facts: usize,
    failed: Vec<String>,
}

impl<W: Write> Story<W> {
    /// A story that is printed to `out`.
    pub(crate) fn new(out: W) -> Self {
        Self { out, chapter: 0, facts: 0, failed: Vec::new() }
    }

    /// Begins a chapter.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub(crate) fn chapter(&mut self, title: &str) -> io::Result<()> {
        self.chapter += 1;
        writeln!(self.out, "\n{}. {title}", self.chapter)
    }

    /// A line that is shown and claims nothing.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "     {text}")
    }

    /// A claim, shown with whether it holds.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub(crate) fn fact(&mut self, holds: bool, text: &str) -> io::Result<()> {
        self.facts += 1;
        if !holds {
            self.failed.push(text.to_owned());
        }
        writeln!(self.out, "   {} {text}", if holds { "√" } else { "×" })
    }

    /// The last line; whether every fact held.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub(crate) fn end(mut self, what: &str) -> io::Result<bool> {
        let (facts, failed) = (self.facts, self.failed.len());
        writeln!(self.out)?;
        if failed == 0 {
            writeln!(self.out, "{what}: all {facts} facts hold (simulated)")?;
        } else {
            writeln!(self.out, "{what}: {failed} of {facts} facts do NOT hold (simulated):")?;
            for text in &self.failed {
                writeln!(self.out, "   × {text}")?;
            }
        }
        self.out.flush()?;
        Ok(failed == 0)
    }
}

/// A span of cluster time for people: `9s`, `6m10s`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{seconds}s")
    } else {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_does_not_hold_fails_the_story_and_is_named_at_the_end() {
        let mut out = Vec::new();
        let mut story = Story::new(&mut out);
        story.chapter("A chapter").unwrap();
        story.fact(true, "this holds").unwrap();
        story.fact(false, "this does not").unwrap();
        assert!(!story.end("walkthrough").unwrap());
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.ends_with(
                "walkthrough: 1 of 2 facts do NOT hold (simulated):\n   × this does not\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn spans_read_as_kubectl_writes_them() {
        assert_eq!(span(Duration::from_secs(59)), "59s");
        assert_eq!(span(Duration::from_secs(370)), "6m10s");
    }
}
