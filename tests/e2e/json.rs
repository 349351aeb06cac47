//! Reading the report of `--json`.

use serde_json::Value;

use crate::Outcome;

/// The number with that key, wherever it is in the report, outermost first.
pub fn number(report: &Value, key: &str) -> Outcome<u64> {
    find(report, key)
        .and_then(|value| value.as_u64().or_else(|| value.as_f64().map(|float| float as u64)))
        .ok_or_else(|| format!("the report has no number {key:?}"))
}

/// The truth value with that key.
pub fn flag(report: &Value, key: &str) -> Outcome<bool> {
    find(report, key).and_then(Value::as_bool).ok_or_else(|| format!("the report has no truth value {key:?}"))
}

/// Does the list with that key have the word?
pub fn lists(report: &Value, key: &str, word: &str) -> bool {
    let words = find(report, key).and_then(Value::as_array);
    words.is_some_and(|words| words.iter().any(|entry| entry == word))
}

/// Did this happen to any process of the run?
pub fn happened(report: &Value, event: &str) -> bool {
    let processes = find(report, "processes").and_then(Value::as_array);
    processes.is_some_and(|processes| processes.iter().any(|process| lists(process, "events", event)))
}

/// Breadth first: the totals of a run stand above the figures of its processes.
fn find<'a>(report: &'a Value, key: &str) -> Option<&'a Value> {
    let mut level = vec![report];
    while !level.is_empty() {
        if let Some(found) = level.iter().find_map(|value| value.get(key)) {
            return Some(found);
        }
        level = level.into_iter().flat_map(inner).collect();
    }
    None
}

fn inner(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}
