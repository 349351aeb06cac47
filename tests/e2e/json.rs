//! Reading the report of `--json`.

use serde_json::Value;

use crate::Outcome;

/// The number with that key, wherever it is in the report (the first one, outermost first).
pub fn number(report: &Value, key: &str) -> Outcome<u64> {
    find(report, key)
        .and_then(|value| value.as_u64().or_else(|| value.as_f64().map(|float| float as u64)))
        .ok_or_else(|| format!("the report has no number {key:?}"))
}

/// The truth value with that key.
pub fn flag(report: &Value, key: &str) -> Outcome<bool> {
    find(report, key).and_then(Value::as_bool).ok_or_else(|| format!("the report has no truth value {key:?}"))
}

fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            fields.get(key).or_else(|| fields.values().find_map(|inner| find(inner, key)))
        }
        Value::Array(items) => items.iter().find_map(|inner| find(inner, key)),
        _ => None,
    }
}
