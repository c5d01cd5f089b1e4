//! Quantities of Kubernetes, such as `250m` and `64Mi`.

/// A quantity in billionths of its unit, so that `0.25` and `250m` are equal; `None` if it is none, or one with an
/// exponent, or larger than a `Pi`.
pub fn nano(quantity: &str) -> Option<i128> {
    let digits = quantity.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let factor: i128 = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => 1_000_000_000,
        "k" => 1_000_000_000_000,
        "M" => 10_i128.pow(15),
        "G" => 10_i128.pow(18),
        "T" => 10_i128.pow(21),
        "P" => 10_i128.pow(24),
        "Ki" => 1_000_000_000 << 10,
        "Mi" => 1_000_000_000 << 20,
        "Gi" => 1_000_000_000 << 30,
        "Ti" => 1_000_000_000 << 40,
        "Pi" => 1_000_000_000 << 50,
        _ => return None,
    };
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value: i128 = format!("{whole}{fraction}").parse().ok()?;
    value.checked_mul(factor)?.checked_div(scale)
}
