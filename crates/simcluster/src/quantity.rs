//! Kubernetes quantities (`250m`, `350Mi`, `1e3`) as whole thousandths.
//!
//! It reads; it never formats, for objects keep the text that their author wrote.

/// The quantity in thousandths of its unit; `None` if the text is not a quantity.
///
/// Fractions of a thousandth are rounded up, as Kubernetes does; values beyond the range saturate.
pub fn milli(text: &str) -> Option<i64> {
    let digits = text.trim_start_matches(['+', '-']);
    let split = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    // Numerator and denominator of one unit of the suffix, in thousandths.
    let (scale, divisor): (i128, i128) = match suffix {
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "" => (1_000, 1),
        "k" => (1_000_000, 1),
        "M" => (1_000_000_000, 1),
        "G" => (1_000_000_000_000, 1),
        "T" => (1_000_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        exponent => {
            let power: u32 =
                exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|p| *p <= 18)?;
            (1_000 * 10_i128.pow(power), 1)
        }
    };
    let fraction = fraction.get(..9).unwrap_or(fraction);
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let unit = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let numerator = whole.checked_mul(unit)?.checked_add(part)?.checked_mul(scale)?;
    let denominator = unit * divisor;
    let value = numerator.checked_add(denominator - 1)? / denominator;
    let value = if text.starts_with('-') { -value } else { value };
    Some(i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use super::milli;

    #[test]
    fn reads_what_kubernetes_writes() {
        for (text, expected) in [
            ("250m", Some(250)),
            ("0.25", Some(250)),
            ("1", Some(1_000)),
            ("1.5", Some(1_500)),
            ("350Mi", Some(350 * 1024 * 1024 * 1000)),
            ("2Gi", Some(2 * 1024 * 1024 * 1024 * 1000)),
            ("1e3", Some(1_000_000)),
            ("1k", Some(1_000_000)),
            ("100u", Some(1)),
            ("-1", Some(-1_000)),
            ("", None),
            ("Mi", None),
            ("1Xi", None),
            ("1.2.3", None),
        ] {
            assert_eq!(milli(text), expected, "{text:?}");
        }
    }
}
