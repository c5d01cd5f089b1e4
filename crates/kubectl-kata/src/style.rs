//! How text looks: colours, glyphs and width. A colour never says anything that a word or a glyph does
//! not say too.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr as _;

/// What a terminal, or whatever is in its place, can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to colour.
    pub colour: bool,
    /// Whether anything beyond ASCII may be printed.
    pub unicode: bool,
    /// Columns of the terminal; `None` means that lines have no limit.
    pub width: Option<usize>,
    /// Lines of the terminal; `None` if what was written cannot be replaced.
    pub rows: Option<usize>,
}

/// What a piece of text says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Warn,
    Bad,
    Dim,
}

/// The outcome of something that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Good,
    Warn,
    Bad,
    Skip,
}

impl Style {
    /// Text in the colour of its tone.
    pub(crate) fn paint<'t>(&self, tone: Tone, text: &'t str) -> Cow<'t, str> {
        let code = match tone {
            Tone::Plain => return Cow::Borrowed(text),
            Tone::Good => 32,
            Tone::Warn => 33,
            Tone::Bad => 31,
            Tone::Dim => 2,
        };
        if self.colour && !text.is_empty() {
            Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m"))
        } else {
            Cow::Borrowed(text)
        }
    }

    /// The glyph of an outcome, coloured.
    pub(crate) fn mark(&self, mark: Mark) -> Cow<'static, str> {
        let (tone, glyph, ascii) = match mark {
            Mark::Good => (Tone::Good, "√", "+"),
            Mark::Warn => (Tone::Warn, "‼", "!"),
            Mark::Bad => (Tone::Bad, "×", "x"),
            Mark::Skip => (Tone::Dim, "-", "-"),
        };
        self.paint(tone, if self.unicode { glyph } else { ascii })
    }

    /// Text that the terminal can show: what it cannot becomes a question mark, and control characters
    /// of somebody else never reach it.
    pub(crate) fn plain(&self, text: &str) -> String {
        text.chars()
            .map(|c| match c {
                '\n' | '\t' => ' ',
                c if c.is_control() => '?',
                c if !self.unicode && !c.is_ascii() => '?',
                c => c,
            })
            .collect()
    }
}

/// A text for a terminal: line ends, tabs and colours stay, and all other control characters become question marks.
/// Messages and object names of a server can contain any character.
pub(crate) fn without_controls(text: &str) -> Cow<'_, str> {
    let is_harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c| !is_harmless(c)) {
        let (before, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        clean.push_str(before);
        let length = colour(from).unwrap_or(0);
        let first = from.chars().next().map_or(0, char::len_utf8);
        let (colour, after) = from.split_at_checked(length.max(first)).unwrap_or((from, ""));
        clean.push_str(if length > 0 { colour } else { "?" });
        rest = after;
    }
    Cow::Owned(clean + rest)
}

/// The length of the sequence at the beginning of a text that sets colours and nothing else.
fn colour(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters.get(end..)?.starts_with('m').then_some("\x1b[".len() + end + 1)
}

/// How many columns a text takes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// How many columns a text takes that has sequences which set colours.
pub(crate) fn coloured_columns(text: &str) -> usize {
    let mut taken = 0;
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (before, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        taken += columns(before);
        rest = from.get(colour(from).unwrap_or(1)..).unwrap_or_default();
    }
    taken + columns(rest)
}

/// The text cut to so many columns, with a mark that it was cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 3;
    for c in text.chars() {
        used += unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
        if used > most {
            break;
        }
        short.push(c);
    }
    format!("{}...", short.trim_end())
}

/// The text in lines of at most so many columns, broken at spaces.
pub(crate) fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if !line.is_empty() && columns(line) + 1 + columns(word) > most {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
