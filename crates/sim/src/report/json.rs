//! JSON for machines: `schema_version`, the options, the rows; bytes and nanoseconds, names with units.

use super::{Header, Row};
use serde::Serialize;

/// Changes when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    options: &'a Header,
    rows: &'a [Row],
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a str>,
}

/// The report as one JSON object, with a line end.
#[must_use]
pub fn render(header: &Header, rows: &[Row], explanation: Option<&str>) -> String {
    let report = Report { schema_version: SCHEMA_VERSION, options: header, rows, explanation };
    let mut text = serde_json::to_string_pretty(&report).expect("strings and integers have a JSON form");
    text.push('\n');
    text
}
