//! Numbers as Kubernetes stores them. Knows nothing of objects.

use serde_json::{Value, json};

/// Numbers as Kubernetes stores them: `1.0` is `1`, and is no change of it.
pub(super) fn canonical(mut value: Value) -> Value {
    fn visit(value: &mut Value) {
        match value {
            Value::Number(number) => {
                // Beyond this not every integer is a float.
                const EXACT: f64 = 9_007_199_254_740_992.0;
                let whole = number.as_f64().filter(|float| float.fract() == 0.0);
                if number.is_f64()
                    && let Some(whole) = whole.filter(|whole| whole.abs() <= EXACT)
                    && let Ok(integer) = format!("{whole:.0}").parse::<i64>()
                {
                    *value = json!(integer);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(visit),
            Value::Object(fields) => fields.values_mut().for_each(visit),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    visit(&mut value);
    value
}
