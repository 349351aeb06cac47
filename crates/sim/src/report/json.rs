//! JSON for machines: `schema_version`, the options, the rows; bytes and nanoseconds, names with units.

use super::{Header, Row};
use crate::replace::report::Cell;
use serde::Serialize;

/// Changes when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Report<'a> {
    /// Of this layout.
    schema_version: u32,
    /// What all rows have in common.
    options: &'a Header,
    /// An entry for each combination.
    rows: &'a [Row],
    /// An entry for each policy of pure replacement and amount of RAM.
    #[serde(skip_serializing_if = "<[Cell]>::is_empty")]
    replacement: &'a [Cell],
    /// The sentences of `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a str>,
}

impl<'a> Report<'a> {
    pub(super) fn new(options: &'a Header, rows: &'a [Row], explanation: Option<&'a str>) -> Report<'a> {
        Report { schema_version: SCHEMA_VERSION, options, rows, replacement: &[], explanation }
    }
}

/// The report as one JSON object, with a line end.
#[must_use]
pub fn render(header: &Header, rows: &[Row], replacement: &[Cell], explanation: Option<&str>) -> String {
    let report = Report { replacement, ..Report::new(header, rows, explanation) };
    let mut text = serde_json::to_string_pretty(&report).expect("strings and integers have a JSON form");
    text.push('\n');
    text
}
