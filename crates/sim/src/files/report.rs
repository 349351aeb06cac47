//! A replayed trace of file calls as a table, or as JSON: a row for each amount of RAM, policy and
//! device.

use super::Outcome;
use super::replay::{Recorded, Setting};
use crate::options::show_bytes;
use crate::report::fold::folded;
use crate::report::table::aligned;
use crate::time::{percent, permille, show};
use overspill_mm::types::PAGE_SIZE;
use serde::Serialize;

/// Changes when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// What all rows have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// The trace.
    pub workload: String,
    /// Bytes of the pages that it touches.
    pub workload_bytes: u64,
    /// Reads and writes.
    pub calls: u64,
    /// Files that they are of.
    pub files: u64,
    /// Mappings, which are not simulated.
    pub mappings: u64,
    /// The kernel's `read_ahead_kb`.
    pub read_ahead_kb: u64,
    /// The device's `max_sectors_kb`.
    pub max_sectors_kb: u64,
    /// The program's version.
    pub version: String,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The page cache.
    pub ram_bytes: u64,
    /// In thousandths of the pages touched.
    pub ram_permille: u64,
    /// The policy.
    pub readahead: String,
    /// The device.
    pub device: String,
    /// When the last thread ended.
    pub elapsed_ns: u64,
    /// Pages that calls read, each as often as it was.
    pub pages_used: u64,
    /// How often a reader had to wait for a page.
    pub waits: u64,
    /// Pages read from the device.
    pub pages_read: u64,
    /// In so many requests.
    pub reads: u64,
    /// Pages that left before anybody used them.
    pub unused: u64,
    /// Pages written to the device before the end.
    pub pages_written: u64,
}

impl Row {
    /// What came of a setting.
    #[must_use]
    pub fn new(recorded: &Recorded, setting: &Setting<'_>, outcome: &Outcome) -> Row {
        let counts = outcome.counts;
        Row {
            ram_bytes: setting.cache_pages * PAGE_SIZE,
            ram_permille: permille(setting.cache_pages, recorded.pages),
            readahead: setting.readahead.to_owned(),
            device: setting.device.name.clone(),
            elapsed_ns: outcome.elapsed_ns,
            pages_used: counts.pages_used,
            waits: counts.waits,
            pages_read: counts.pages_read,
            reads: counts.reads,
            unused: counts.unused,
            pages_written: counts.pages_written,
        }
    }

    fn cells(&self) -> Vec<String> {
        let each = (self.pages_read * PAGE_SIZE).checked_div(self.reads).unwrap_or(0);
        vec![
            show_bytes(self.ram_bytes),
            self.readahead.clone(),
            self.device.clone(),
            show(self.elapsed_ns),
            self.waits.to_string(),
            percent(permille(self.pages_used.saturating_sub(self.waits), self.pages_used)),
            self.pages_read.to_string(),
            self.unused.to_string(),
            self.reads.to_string(),
            show_bytes(each / 1024 * 1024),
        ]
    }
}

const HEADS: [&str; 10] =
    ["RAM", "read-ahead", "device", "time", "waits", "hits", "pages in", "unused", "reads", "each"];

/// For people.
#[must_use]
pub fn render(header: &Header, rows: &[Row]) -> String {
    let said = format!(
        "{}: {} reads and writes of {} in {} files; the kernel's limit is {} KiB, the largest request {} KiB",
        header.workload,
        header.calls,
        show_bytes(header.workload_bytes),
        header.files,
        header.read_ahead_kb,
        header.max_sectors_kb
    );
    let mut lines = vec![HEADS.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(Row::cells));
    let right = HEADS.map(|head| head != "read-ahead" && head != "device");
    let mut text = folded(&said, "    ") + "\n" + &aligned(&lines, &right);
    if header.mappings > 0 {
        let note = format!(
            "note: {} mappings of files are in it, whose pages no call reads: they are not simulated",
            header.mappings
        );
        text += &("\n".to_owned() + &folded(&note, "    "));
    }
    text
}

#[derive(Serialize)]
struct Report<'a> {
    /// Of this layout.
    schema_version: u32,
    /// What all rows have in common.
    options: &'a Header,
    /// An entry for each combination.
    rows: &'a [Row],
}

/// For machines.
#[must_use]
pub fn json(header: &Header, rows: &[Row]) -> String {
    let report = Report { schema_version: SCHEMA_VERSION, options: header, rows };
    serde_json::to_string_pretty(&report).expect("strings and integers have a JSON form") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::params::Model;
    use crate::files::replay::record;
    use crate::trace::strace::StraceReader;
    use std::sync::Arc;

    #[test]
    fn a_row_says_what_was_counted() {
        let text =
            "read(3</a>, \"\", 65536) = 65536\nmmap(NULL, 9, PROT_READ, MAP_PRIVATE, 3</a>, 0) = 0x7f\n";
        let recorded = Arc::new(record(&mut StraceReader::new(text.as_bytes())).expect("a trace"));
        let device = Model::builtin("nvme").expect("built in");
        let setting =
            Setting { cache_pages: 512, readahead: "none", device: &device, limit: 32, largest: 32 };
        let row = Row::new(&recorded, &setting, &recorded.replay(&setting));
        let header = Header {
            workload: "a.strace".to_owned(),
            workload_bytes: recorded.pages * PAGE_SIZE,
            calls: recorded.calls,
            files: 1,
            mappings: recorded.mappings,
            read_ahead_kb: 128,
            max_sectors_kb: 1280,
            version: "1".to_owned(),
        };
        let text = render(&header, std::slice::from_ref(&row));
        assert!(text.starts_with("a.strace: 1 reads and writes of 64 KiB in 1 files"), "{text}");
        assert!(text.contains("note: 1 mappings"), "{text}");
        let line = text.lines().find(|line| line.contains("none")).expect("a row");
        assert!(line.contains("64 KiB") && line.contains("16"), "{line}");
        assert!(json(&header, &[row]).contains("\"pages_read\": 16"));
    }
}
