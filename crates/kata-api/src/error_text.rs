//! Turns an error and its sources into one line for users.

use std::error::Error;

/// The error and its sources on one line. A source whose text the line already contains is omitted.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let links = std::iter::successors(Some(error), |link| (**link).source());
    one_line(links.map(ToString::to_string))
}

/// The texts of an error and its sources on one line, each once.
pub fn one_line(causes: impl IntoIterator<Item = String>) -> String {
    let mut text = String::new();
    for cause in causes {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    without_error_numbers(&text)
}

/// The text without the numbers that Rust appends to messages of the operating system: `… (os error 28)`.
pub fn without_error_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match part.get(number..).and_then(|rest| rest.strip_prefix(')')) {
            Some(rest) if number > 0 => plain.push_str(rest),
            Some(_) | None => plain.push_str(&format!(" (os error {part}")),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_loses_only_the_numbers_of_the_operating_system() {
        let full = "/a: No space left on device (os error 28): (os error x)";
        assert_eq!(without_error_numbers(full), "/a: No space left on device: (os error x)");
    }

    #[test]
    fn a_cause_is_named_once() {
        let inner = std::io::Error::from_raw_os_error(2);
        let outer = std::io::Error::other(inner.to_string());
        assert_eq!(chain(&outer), "No such file or directory");
    }
}
