//! The string and number formats that Kubernetes checks; all others only document.
//!
//! It must not know schemas or messages.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;

/// A checked format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// A number format with its name: `int32`, `int64`, `float`, `double`.
    Number(Box<str>),
    /// A string format with the name as the schema has it.
    Text(Text, Box<str>),
}

/// Checked string formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Date,
    DateTime,
    Duration,
    Byte,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uri,
    Email,
    Hostname,
}

impl Format {
    /// The format of that name, if it is checked.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let text = match name.replace('-', "").as_str() {
            "int32" | "int64" | "float" | "double" => return Some(Self::Number(name.into())),
            "date" => Text::Date,
            "datetime" => Text::DateTime,
            "duration" => Text::Duration,
            "byte" => Text::Byte,
            "ipv4" => Text::Ipv4,
            "ipv6" => Text::Ipv6,
            "cidr" => Text::Cidr,
            "mac" => Text::Mac,
            "uuid" | "uuid3" | "uuid4" | "uuid5" => Text::Uuid,
            "uri" => Text::Uri,
            "email" => Text::Email,
            "hostname" => Text::Hostname,
            _ => return None,
        };
        Some(Self::Text(text, name.into()))
    }
}

impl Text {
    /// Whether `text` has this format.
    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            Self::Date => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
            Self::DateTime => {
                text.contains(['T', 't', ' ']) && text.parse::<jiff::Timestamp>().is_ok()
            }
            Self::Duration => is_duration(text),
            Self::Byte => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => text.split_once('/').is_some_and(|(address, bits)| {
                let limit = if address.parse::<Ipv4Addr>().is_ok() {
                    32
                } else if address.parse::<Ipv6Addr>().is_ok() {
                    128
                } else {
                    return false;
                };
                bits.parse::<u8>().is_ok_and(|bits| bits <= limit)
            }),
            Self::Mac => {
                let parts: Vec<&str> = text.split([':', '-']).collect();
                matches!(parts.len(), 6 | 8 | 20)
                    && parts.iter().all(|part| part.len() == 2 && is_hex(part))
            }
            Self::Uuid => {
                let digits: String = text.chars().filter(|c| *c != '-').collect();
                digits.len() == 32 && is_hex(&digits) && matches!(text.len(), 32 | 36)
            }
            Self::Uri => {
                text.starts_with('/')
                    || text.split_once(':').is_some_and(|(scheme, rest)| {
                        !rest.is_empty()
                            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                            && scheme
                                .chars()
                                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
                    })
            }
            Self::Email => text
                .rsplit_once('@')
                .is_some_and(|(local, host)| !local.is_empty() && !host.is_empty()),
            Self::Hostname => {
                text.len() <= 255
                    && text.split('.').all(|label| {
                        (1..=63).contains(&label.len())
                            && !label.starts_with('-')
                            && !label.ends_with('-')
                            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
                    })
            }
        }
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Go's duration notation: `1h30m`, `-1.5s`, `0`.
fn is_duration(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    if text == "0" {
        return true;
    }
    let mut rest = text;
    let mut parts = 0_u32;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        if number.parse::<f64>().is_err() {
            return false;
        }
        let tail = tail.trim_start_matches(' ');
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h", "d", "w"]
            .into_iter()
            .find(|unit| tail.strip_prefix(unit).is_some_and(starts_part))
        else {
            return false;
        };
        rest = tail.get(unit.len()..).unwrap_or_default();
        parts += 1;
    }
    parts > 0
}

fn starts_part(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit() || c == '.')
}
