//! A trace of file calls that strace wrote, replayed: `sort -m a b c` over three files of 96 KB.

use std::sync::Arc;

use overspill_mm::fileread::policy::KERNELS;
use overspill_sim::device::params::Model;
use overspill_sim::files::Counts;
use overspill_sim::files::replay::{Recorded, Setting, record};
use overspill_sim::trace::Format;
use overspill_sim::trace::open::read_any;

const MERGE: &str = include_str!("merge.strace");
/// 96,000 bytes in each of three files.
const PAGES: u64 = 3 * 24;

fn recorded(bytes: &'static [u8]) -> Arc<Recorded> {
    let (format, mut reader) = read_any(Box::new(bytes), None).expect("a trace");
    assert_eq!(format, Format::Strace);
    Arc::new(record(&mut *reader).expect("a trace"))
}

fn counts(readahead: &str) -> Counts {
    let device = Model::builtin("nvme").expect("built in");
    let setting = Setting { cache_pages: 512, readahead, device: &device, limit: 32, largest: 32 };
    recorded(MERGE.as_bytes()).replay(&setting).counts
}

#[test]
fn three_streams_in_turns_are_read_ahead_by_all_rules() {
    let merge = recorded(MERGE.as_bytes());
    assert_eq!((merge.file_count(), merge.pages, merge.mappings), (3, PAGES, 0));
    let none = counts("none");
    assert_eq!((none.pages_read, none.reads, none.waits), (PAGES, PAGES, PAGES));
    for name in KERNELS.into_iter().chain(["adaptive"]) {
        let counts = counts(name);
        assert_eq!((counts.pages_read, counts.unused), (PAGES, 0), "{name}");
        assert!(counts.waits * 8 < none.waits && counts.reads * 3 < none.reads, "{name}: {counts:?}");
    }
}

/// Times and process ids are optional; without times a line takes a microsecond.
#[test]
fn the_same_calls_without_times_are_the_same_reads() {
    let bare: String = MERGE
        .lines()
        .map(|line| line.splitn(3, ' ').nth(2).expect("a process, a time, and the call"))
        .flat_map(|call| [call, "\n"])
        .collect();
    let bare = recorded(bare.leak().as_bytes());
    assert_eq!((bare.calls, bare.pages), (recorded(MERGE.as_bytes()).calls, PAGES));
}
