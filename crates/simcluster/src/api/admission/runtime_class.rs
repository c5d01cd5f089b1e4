//! The `RuntimeClass` plugin: a pod's class decides its overhead and adds to where it may run.

use serde_json::{Map, Value, json};

use crate::api::error::ApiError;
use crate::api::server::ApiServer;
use crate::resource::{PODS, RUNTIMECLASSES};

/// Completes a new pod from its class, or refuses it.
pub(super) fn admit(api: &ApiServer, name: &str, pod: &mut Value) -> Result<(), ApiError> {
    let refuse = |why: String| Err(ApiError::forbidden(&PODS, name, &why));
    let wanted = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default().to_owned();
    let class = if wanted.is_empty() {
        None
    } else {
        match api.store.get(&RUNTIMECLASSES, "", &wanted) {
            Some(class) => Some(class),
            None => return refuse(format!("pod rejected: RuntimeClass \"{wanted}\" not found")),
        }
    };
    let has = pod["spec"]["overhead"].as_object().is_some_and(|overhead| !overhead.is_empty());
    let overhead = class.and_then(|class| class["overhead"].as_object());
    match overhead {
        None if has => {
            return refuse(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                    .to_owned(),
            );
        }
        None => {}
        Some(overhead) => {
            let fixed = overhead.get("podFixed").cloned().unwrap_or_else(|| json!({}));
            if has && !same_quantities(&fixed, &pod["spec"]["overhead"]) {
                return refuse(
                    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
                        .to_owned(),
                );
            }
            pod["spec"]["overhead"] = fixed;
        }
    }
    let Some(scheduling) = class.map(|class| &class["scheduling"]) else { return Ok(()) };
    if let Some(selector) = scheduling["nodeSelector"].as_object() {
        merge_selector(name, selector, &mut pod["spec"]["nodeSelector"])?;
    }
    if let Some(tolerations) = scheduling["tolerations"].as_array() {
        let own = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        pod["spec"]["tolerations"] = Value::Array(merge_tolerations(own, tolerations));
    }
    Ok(())
}

fn merge_selector(name: &str, class: &Map<String, Value>, pod: &mut Value) -> Result<(), ApiError> {
    if !pod.is_object() {
        *pod = json!({});
    }
    for (key, value) in class {
        match &pod[key] {
            Value::Null => pod[key] = value.clone(),
            same if same == value => {}
            other => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let why = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    text(value),
                    text(other),
                );
                return Err(ApiError::forbidden(&PODS, name, &why));
            }
        }
    }
    Ok(())
}

/// The pod's tolerations and then the class's, without those that another one covers.
fn merge_tolerations(own: Vec<Value>, class: &[Value]) -> Vec<Value> {
    let mut all = own;
    all.extend(class.iter().cloned());
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let covered_before = merged.iter().any(|other| covers(other, toleration));
        let covered_later =
            all[index + 1..].iter().any(|other| other != toleration && covers(other, toleration));
        if !covered_before && !covered_later {
            merged.push(toleration.clone());
        }
    }
    merged
}

/// Whether `wide` tolerates everything that `narrow` tolerates, for at least as long.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let exists = |toleration: &Value| toleration["operator"] == "Exists";
    if wide == narrow {
        return true;
    }
    let (wide_key, wide_effect) = (text(&wide["key"]), text(&wide["effect"]));
    if text(&narrow["key"]) != wide_key && !(wide_key.is_empty() && exists(wide)) {
        return false;
    }
    if text(&narrow["effect"]) != wide_effect && !wide_effect.is_empty() {
        return false;
    }
    if wide_effect == "NoExecute"
        && let Some(longest) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > longest)
    {
        return false;
    }
    exists(wide) || (!exists(narrow) && text(&narrow["value"]) == text(&wide["value"]))
}

/// Whether two resource lists name the same amounts, however they are written.
fn same_quantities(one: &Value, other: &Value) -> bool {
    let empty = Map::new();
    let (one, other) = (one.as_object().unwrap_or(&empty), other.as_object().unwrap_or(&empty));
    one.len() == other.len()
        && one.iter().all(|(key, amount)| {
            other.get(key).is_some_and(|given| {
                amount == given
                    || matches!((nanos(amount), nanos(given)), (Some(a), Some(b)) if a == b)
            })
        })
}

/// A quantity in billionths; `None` if it is malformed or out of range.
fn nanos(quantity: &Value) -> Option<i128> {
    const NANO: i128 = 1_000_000_000;
    let text = match quantity {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let end = text
        .char_indices()
        .find(|(index, c)| {
            !(c.is_ascii_digit() || *c == '.' || (*index == 0 && (*c == '-' || *c == '+')))
        })
        .map_or(text.len(), |(index, _c)| index);
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 {
        return None;
    }
    let negative = whole.starts_with('-');
    let whole = whole.trim_start_matches(['-', '+']);
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let places = 9 - u32::try_from(fraction.len()).ok()?;
    let value = digits.checked_mul(10_i128.checked_pow(places)?)?;
    let binary = |power: u32| value.checked_mul(1_i128 << (10 * power));
    let decimal = |power: u32| value.checked_mul(10_i128.checked_pow(power)?);
    let scaled = match suffix {
        "" => Some(value),
        "n" => value.checked_div(NANO),
        "u" => value.checked_div(1_000_000),
        "m" => value.checked_div(1_000),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => decimal(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    }?;
    Some(if negative { -scaled } else { scaled })
}
