//! Times, counts and amounts as people read them, in the forms that kubectl uses.

use jiff::{SignedDuration, Timestamp};
pub(crate) use kata_api::text::{count, list};
use tokio::time::Instant;

/// The age of something, as kubectl writes ages: two units at most, and the finer the younger.
pub(crate) fn age(now: Timestamp, then: Timestamp) -> String {
    span(now.duration_since(then))
}

/// How long ago something happened in this process. The time of day may change meanwhile.
pub(crate) fn elapsed(since: Instant) -> String {
    span(SignedDuration::try_from(since.elapsed()).unwrap_or_default())
}

/// A duration as kubectl writes ages.
pub(crate) fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |big: i64, unit: &str, small: i64, sub: &str| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{sub}"),
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        two(days, "d", hours % 24, "h")
    } else if days < 730 {
        format!("{days}d")
    } else {
        two(days / 365, "y", days % 365, "d")
    }
}

/// An estimate: `~40s`, `~6m`, `~2h`.
pub(crate) fn about(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    if seconds < 90 {
        format!("~{}s", (seconds + 9) / 10 * 10)
    } else if seconds < 5_400 {
        format!("~{}m", (seconds + 30) / 60)
    } else {
        format!("~{}h", (seconds + 1_800) / 3_600)
    }
}

/// An amount of CPU, given in thousandths: `250m`, `2`.
pub(crate) fn cpu(milli: i128) -> String {
    if milli % 1_000 == 0 { (milli / 1_000).to_string() } else { format!("{milli}m") }
}

/// An amount of memory, given in bytes: `350Mi`, `15.5Gi`.
pub(crate) fn memory(bytes: i128) -> String {
    const UNITS: [(&str, u32); 4] = [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    for (unit, shift) in UNITS {
        let size = 1_i128 << shift;
        if bytes < size {
            continue;
        }
        let tenths = bytes * 10 / size;
        return if tenths % 10 == 0 || tenths >= 1_000 {
            format!("{}{unit}", tenths / 10)
        } else {
            format!("{}.{}{unit}", tenths / 10, tenths % 10)
        };
    }
    bytes.to_string()
}

/// A quantity in thousandths of its unit, rounded up; `None` if it is none.
pub(crate) fn quantity(text: &str) -> Option<i128> {
    kata_api::quantity::nano(text).map(|nano| (nano + 999_999) / 1_000_000)
}

/// A number of lines.
pub(crate) fn parse_lines(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_error| format!("{text:?} is no number of lines: write 100"))
}

/// A duration such as `90s`, `30m`, `1h30m` or `45` (seconds).
pub(crate) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("{text:?} is no duration: write 90s, 30m or 1h30m");
    // In milliseconds.
    let mut total: u64 = 0;
    let mut number = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let factor = match c {
            'm' if rest.next_if_eq(&'s').is_some() => 1,
            's' => 1_000,
            'm' => 60_000,
            'h' => 3_600_000,
            'd' => 86_400_000,
            _ => return Err(wrong()),
        };
        let value: u64 = number.parse().map_err(|_wrong| wrong())?;
        total =
            value.checked_mul(factor).and_then(|add| total.checked_add(add)).ok_or_else(wrong)?;
        number.clear();
    }
    if !number.is_empty() {
        let value: u64 = number.parse().map_err(|_wrong| wrong())?;
        let value = value.checked_mul(1_000);
        total = value.and_then(|add| total.checked_add(add)).ok_or_else(wrong)?;
    } else if text.is_empty() {
        return Err(wrong());
    }
    Ok(std::time::Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let text = |seconds| span(SignedDuration::from_secs(seconds));
        let pairs = [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (3_600, "60m"),
            (4 * 3_600 + 60, "4h1m"),
            (30 * 3_600, "30h"),
            (3 * 86_400, "3d"),
            (400 * 86_400, "400d"),
        ];
        for (seconds, expected) in pairs {
            assert_eq!(text(seconds), expected);
        }
    }

    #[test]
    fn amounts_are_read_and_written() {
        assert_eq!(quantity("250m"), Some(250));
        assert_eq!(quantity("0.25"), Some(250));
        assert_eq!(quantity("350Mi"), Some(350 * 1024 * 1024 * 1000));
        assert_eq!(quantity("lots"), None);
        assert_eq!(memory(350 << 20), "350Mi");
        assert_eq!(memory(16_266_240 << 10), "15.5Gi");
        assert_eq!(cpu(3500), "3500m");
    }

    #[test]
    fn durations_are_read() {
        assert_eq!(parse_duration("1h30m").unwrap().as_secs(), 5_400);
        assert_eq!(parse_duration("45").unwrap().as_secs(), 45);
        assert_eq!(parse_duration("1m500ms").unwrap().as_millis(), 60_500);
        assert!(parse_duration("soon").is_err());
        assert!(parse_duration("").is_err());
    }
}
