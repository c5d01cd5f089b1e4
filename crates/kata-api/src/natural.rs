//! The order of names as people count: `worker-2` before `worker-10`.

use std::cmp::Ordering;

/// A name in natural order: a run of digits of any length counts as the number that it writes, and a number
/// comes before other characters. The order is total: names that differ in leading zeros alone are in the order of
/// their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Natural<'a>(pub &'a str);

impl Ord for Natural<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        chunks(self.0).cmp(chunks(other.0)).then_with(|| self.0.cmp(other.0))
    }
}

impl PartialOrd for Natural<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Chunk<'a> {
    /// How many digits a number has without leading zeros, and these.
    Number(usize, &'a str),
    Text(&'a str),
}

fn chunks(name: &str) -> impl Iterator<Item = Chunk<'_>> {
    name.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()).scan(
        0,
        move |begin, bytes| {
            let end = *begin + bytes.len();
            // A run of digits, and so the rest, begins and ends between two characters.
            let text = name.get(*begin..end).unwrap_or_default();
            *begin = end;
            let digits = text.trim_start_matches('0');
            let is_number = bytes.first().is_some_and(u8::is_ascii_digit);
            Some(if is_number { Chunk::Number(digits.len(), digits) } else { Chunk::Text(text) })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let sorted = [
            "",
            "2",
            "10",
            "99999999999999999999999",
            "100000000000000000000000",
            "ip-10-0-2-9.ec2.internal",
            "ip-10-0-2-10.ec2.internal",
            "ip-10-0-10-1.ec2.internal",
            "worker",
            "worker-007",
            "worker-07",
            "worker-7",
            "worker-7-a",
            "worker-10",
            "wörker-2",
        ];
        let mut names = sorted;
        names.reverse();
        names.sort_by_key(|name| Natural(name));
        assert_eq!(names, sorted);
    }
}
