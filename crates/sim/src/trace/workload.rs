//! A trace as a [`Workload`]: its accesses, thread by thread, with the time between them as
//! thinking time.
//!
//! Threads get small numbers in the order in which they turn up. Pages that are hashes
//! (oracleGeneral) are numbered anew in the order of their first access, so that the simulated
//! tables stay dense; that alone makes memory grow with the number of distinct pages. Everything
//! else streams.
//!
//! A trace that knows no stores (oracleGeneral and most that are public: they are of caches of
//! files and objects) is of pages with content: their first touch brings it, as a store. Otherwise
//! they would be empty, and cost nothing to lose.

use super::csv::{BLOCKS_NOTE, NO_UNIT_NOTE, NUMBERS_NOTE};
use super::open::{Format, open};
use super::oracle::OBJECTS_NOTE;
use super::record::{AccessKind, AccessRecord, Record};
use super::sightings::{GoneRecord, Learned, Sighting, Sightings};
use super::{RecordReader, TraceError};
use crate::workload::{Access, RegionSpec, Workload, WorkloadError};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Pages from here on cannot be addresses: 2^36 pages are 48 bits.
const VPN_LIMIT: u64 = 1 << 36;
/// Where pages that are numbered anew begin.
const FIRST_VPN: u64 = 1 << 20;

/// A trace at work.
pub struct TraceWorkload {
    reader: Box<dyn RecordReader + Send>,
    name: String,
    /// The first access, read while looking for regions.
    first: Option<AccessRecord>,
    /// It is what a pager saw.
    live: bool,
    /// Turns that into accesses.
    sightings: Sightings,
    regions: Vec<RegionSpec>,
    /// Declared since the first access, and not taken yet.
    late_regions: Vec<RegionSpec>,
    /// Pages that go before the next access.
    goes: Option<GoneRecord>,
    /// Pages that have gone, not taken yet.
    gone: Vec<GoneRecord>,
    threads: HashMap<u32, u16>,
    /// By small number: the time of the last access.
    clocks: Vec<u64>,
    /// The last thread and its small number.
    memo: (u32, u16),
    renumber: Option<HashMap<u64, u64>>,
    /// Some: the first touch of a page is a store. Those that were touched, unless `renumber` knows
    /// them.
    filled: Option<HashSet<(u16, u64)>>,
    /// An access so far was a store.
    has_stores: bool,
    /// Its times say nothing about how long a program takes.
    counts_seconds: bool,
    /// ... as their unit is not known.
    has_no_unit: bool,
    /// Its pages are those of a disk, one a request.
    is_of_blocks: bool,
}

/// What counts as a page each, whatever its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Counted {
    /// `objects` or `requests`.
    pub what: &'static str,
    /// Their mean size, if the trace has sizes.
    pub bytes_mean: Option<u64>,
}

impl TraceWorkload {
    /// Opens the trace at `path`.
    pub fn open(path: &Path, format: Option<Format>) -> Result<TraceWorkload, TraceError> {
        let (format, reader) = open(path, format)?;
        TraceWorkload::new(reader, path.display().to_string(), format == Format::Oracle)
    }

    /// From any reader; `name` is what errors call it. `renumber`: its pages are objects, whether
    /// it says so or not.
    pub fn new(
        mut reader: Box<dyn RecordReader + Send>,
        name: String,
        mut renumber: bool,
    ) -> Result<TraceWorkload, TraceError> {
        let mut regions = Vec::new();
        let mut sightings = Sightings::default();
        let mut first = None;
        let mut live = false;
        let mut file_calls = 0;
        let (mut counts_seconds, mut has_no_unit, mut is_of_blocks) = (renumber, false, false);
        while first.is_none() {
            match reader.next_record()? {
                Some(Record::Region(region)) if region.end > VPN_LIMIT => {
                    return Err(TraceError::Beyond { page: region.end - 1 });
                }
                Some(Record::Region(region)) => regions.push(region),
                Some(Record::Access(access)) => first = Some(access),
                Some(Record::Pager(record)) => {
                    live = true;
                    sightings.note(&record);
                    first = take_access(&mut sightings);
                }
                Some(Record::File(_)) => file_calls += 1,
                Some(Record::Name(name)) => {
                    renumber |= [OBJECTS_NOTE, NUMBERS_NOTE].contains(&name.text.as_str());
                    has_no_unit |= name.text == NO_UNIT_NOTE;
                    counts_seconds |= name.text == OBJECTS_NOTE || has_no_unit;
                    is_of_blocks |= name.text == BLOCKS_NOTE;
                    sightings.hear(&name.text);
                }
                None => {
                    sightings.end();
                    first = Some(take_access(&mut sightings).ok_or(TraceError::NoAccesses { file_calls })?);
                }
            }
        }
        Ok(TraceWorkload {
            reader,
            name,
            first,
            live,
            sightings,
            regions,
            late_regions: Vec::new(),
            goes: None,
            gone: Vec::new(),
            threads: HashMap::new(),
            clocks: Vec::new(),
            memo: (0, u16::MAX),
            renumber: renumber.then(HashMap::new),
            filled: None,
            has_stores: false,
            counts_seconds,
            has_no_unit,
            is_of_blocks,
        })
    }

    /// Whether any access so far was a store by the trace's own account.
    #[must_use]
    pub fn has_stores(&self) -> bool {
        self.has_stores
    }

    /// Whether its times say nothing about how long a program takes: oracleGeneral has whole
    /// seconds, and of some CSV the unit is not known.
    #[must_use]
    pub fn counts_seconds(&self) -> bool {
        self.counts_seconds
    }

    /// Is it not known what its times count?
    #[must_use]
    pub fn has_no_unit(&self) -> bool {
        self.has_no_unit
    }

    /// After the last access: what counts as a page each, if the trace is of such things.
    #[must_use]
    pub fn counted(&self) -> Option<Counted> {
        let what = match (&self.renumber, self.is_of_blocks) {
            (Some(_), _) => "objects",
            (None, true) => "requests",
            (None, false) => return None,
        };
        Some(Counted { what, bytes_mean: self.reader.sizes().and_then(super::Sizes::mean) })
    }

    /// The RAM of the run that a live trace is of, if it says so.
    #[must_use]
    pub fn ram_bytes(&self) -> Option<u64> {
        self.sightings.ram_bytes()
    }

    /// Pages have content from their first touch on.
    #[must_use]
    pub fn with_content(self, content: bool) -> TraceWorkload {
        TraceWorkload { filled: content.then(HashSet::new), ..self }
    }

    /// Is it what a pager saw (`run --trace`), and silent about touches of pages that were in view?
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// After the last access: what only the whole of a live trace tells.
    #[must_use]
    pub fn learned(&self) -> Learned {
        if self.live { self.sightings.learned() } else { Learned::default() }
    }

    /// It was read before, and that was learned.
    #[must_use]
    pub fn with_learned(mut self, learned: Learned) -> TraceWorkload {
        self.sightings.know(learned);
        self
    }

    fn fails(&self, problem: impl std::fmt::Display) -> WorkloadError {
        WorkloadError::Trace(format!("{}: {problem}", self.name))
    }

    fn small_number(&mut self, thread: u32, time_ns: u64) -> Result<u16, WorkloadError> {
        if self.memo.0 == thread && self.memo.1 != u16::MAX {
            return Ok(self.memo.1);
        }
        let next = self.threads.len();
        let small = match self.threads.get(&thread) {
            Some(&small) => small,
            None => {
                let small = u16::try_from(next)
                    .ok()
                    .filter(|&small| small < u16::MAX)
                    .ok_or_else(|| self.fails("more than 65,534 threads"))?;
                self.threads.insert(thread, small);
                // A live trace begins with the program, long before its first fault.
                self.clocks.push(if self.live { 0 } else { time_ns });
                small
            }
        };
        self.memo = (thread, small);
        Ok(small)
    }

    fn access(&mut self, record: AccessRecord) -> Result<Access, WorkloadError> {
        let thread = self.small_number(record.thread, record.time_ns)?;
        let clock = &mut self.clocks[thread as usize];
        let think_ns = self.sightings.own(record.time_ns.saturating_sub(*clock));
        *clock = record.time_ns.max(*clock);
        let mut is_new = false;
        let vpn = match &mut self.renumber {
            Some(numbers) => {
                let next = FIRST_VPN + numbers.len() as u64;
                is_new = !numbers.contains_key(&record.vpn);
                *numbers.entry(record.vpn).or_insert(next)
            }
            None if record.vpn < VPN_LIMIT => record.vpn,
            None => return Err(self.fails(TraceError::Beyond { page: record.vpn })),
        };
        let stores = record.kind == AccessKind::Write;
        self.has_stores |= stores;
        let fills = match &mut self.filled {
            Some(_) if self.renumber.is_some() => is_new,
            Some(touched) => touched.insert((record.space, vpn)),
            None => false,
        };
        let write = stores || fills;
        Ok(Access { vpn, think_ns, thread, space: record.space, write })
    }
}

/// The next access, whatever goes before it.
fn take_access(sightings: &mut Sightings) -> Option<AccessRecord> {
    loop {
        if let Sighting::Access(access) = sightings.take()? {
            return Some(access);
        }
    }
}

/// What a trace comes to next.
enum Step {
    Access(Access),
    Gone(GoneRecord),
    End,
}

impl TraceWorkload {
    fn step(&mut self) -> Result<Step, WorkloadError> {
        if let Some(first) = self.first.take() {
            return self.access(first).map(Step::Access);
        }
        loop {
            match self.sightings.take() {
                Some(Sighting::Access(access)) => return self.access(access).map(Step::Access),
                Some(Sighting::Gone(gone)) => return Ok(Step::Gone(gone)),
                None => {}
            }
            match self.reader.next_record() {
                Ok(Some(Record::Access(record))) => return self.access(record).map(Step::Access),
                Ok(Some(Record::Pager(record))) => self.sightings.note(&record),
                Ok(Some(Record::Name(name))) => self.sightings.hear(&name.text),
                Ok(Some(Record::Region(region))) if region.end > VPN_LIMIT => {
                    return Err(self.fails(TraceError::Beyond { page: region.end - 1 }));
                }
                Ok(Some(Record::Region(region))) => self.late_regions.push(region),
                Ok(Some(Record::File(_))) => {}
                Ok(None) => {
                    self.sightings.end();
                    match self.sightings.take() {
                        Some(Sighting::Access(access)) => return self.access(access).map(Step::Access),
                        Some(Sighting::Gone(_)) => {}
                        None => return Ok(Step::End),
                    }
                }
                Err(error) => return Err(self.fails(error)),
            }
        }
    }
}

impl Workload for TraceWorkload {
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        loop {
            match self.step()? {
                Step::Access(access) => return Ok(Some(access)),
                Step::Gone(_) => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Ends early where pages go: what is added was touched before that, and whoever asks for more has got
    /// over it.
    fn fill(&mut self, batch: &mut Vec<Access>, most: usize) -> Result<(), WorkloadError> {
        self.gone.extend(self.goes.take());
        let full = batch.len() + most;
        while batch.len() < full {
            match self.step()? {
                Step::Access(access) => batch.push(access),
                Step::Gone(gone) if batch.is_empty() => self.gone.push(gone),
                Step::Gone(gone) => {
                    self.goes = Some(gone);
                    break;
                }
                Step::End => break,
            }
        }
        Ok(())
    }

    fn take_gone(&mut self) -> Vec<GoneRecord> {
        std::mem::take(&mut self.gone)
    }

    fn regions(&self) -> Vec<RegionSpec> {
        self.regions.clone()
    }

    fn take_regions(&mut self) -> Vec<RegionSpec> {
        std::mem::take(&mut self.late_regions)
    }
}

#[cfg(test)]
mod tests {
    use super::super::csv::CsvReader;
    use super::*;
    use overspill_mm::types::RegionKind;

    /// Of lines in the order in which CSV is written.
    fn workload(text: &'static str, renumber: bool) -> Result<TraceWorkload, TraceError> {
        let text = format!("time_ns,thread,space,page,op,argument,file,offset,bytes\n{text}");
        named(text.leak(), renumber)
    }

    fn named(text: &'static str, renumber: bool) -> Result<TraceWorkload, TraceError> {
        TraceWorkload::new(Box::new(CsvReader::new(text.as_bytes())), "test".to_owned(), renumber)
    }

    /// *The story:* hashes were refused, seconds were nanoseconds, and nobody heard that an object of 64 KiB
    /// is a page.
    #[test]
    fn what_is_known_of_a_public_trace_is_known_of_its_copies() {
        let text = "time,obj_id,size\n1,0xdeadbeefdeadbeef,60000\n2,5,70000\n";
        let mut trace = named(text, false).expect("a trace");
        let all: Vec<_> = std::iter::from_fn(|| trace.next().expect("no error")).map(|a| a.vpn).collect();
        assert_eq!(all, [FIRST_VPN, FIRST_VPN + 1]);
        assert!(trace.counts_seconds() && trace.has_no_unit());
        assert_eq!(trace.counted(), Some(Counted { what: "objects", bytes_mean: Some(65_000) }));
        let (mut reader, mut own) = (CsvReader::new(text.as_bytes()), Vec::new());
        let mut writer = super::super::own::Writer::new(&mut own).expect("no error");
        let selection = super::super::convert::Selection::default();
        super::super::convert::copy(&mut reader, &mut writer, &selection, &mut |_| {}).expect("no error");
        let reader = super::super::own::Reader::new(std::io::Cursor::new(own)).expect("a trace");
        let mut copy = TraceWorkload::new(Box::new(reader), "copy".to_owned(), false).expect("a trace");
        assert_eq!(copy.next().expect("no error").map(|access| access.vpn), Some(FIRST_VPN));
        assert!(copy.counts_seconds() && copy.has_no_unit());
        assert_eq!(copy.counted(), Some(Counted { what: "objects", bytes_mean: None }));
        let disk = named("time_ns,lba\n1,16\n", false).expect("a trace");
        assert!(!disk.counts_seconds() && disk.counted().is_some_and(|counted| counted.what == "requests"));
        assert_eq!(named("time_ns,page\n1,16\n", false).expect("a trace").counted(), None);
    }

    /// *The story:* pages that a program had given back stayed in the simulated RAM.
    #[test]
    fn what_goes_is_told_between_what_is_before_and_after() {
        let text = "1,0,0,100,in_view,3\n2,0,0,200,first_touch\n3,0,0,101,gone,2\n4,0,0,101,first_touch\n";
        let mut trace = workload(text, false).expect("a trace");
        let mut filled = || {
            let mut batch = Vec::new();
            trace.fill(&mut batch, 512).expect("no error");
            let pages: Vec<u64> = batch.iter().map(|access| access.vpn).collect();
            (pages, trace.take_gone())
        };
        assert_eq!(filled(), (vec![100, 101, 102, 200], vec![]));
        assert_eq!(filled(), (vec![101], vec![GoneRecord { space: 0, start: 101, end: 103 }]));
        assert_eq!(filled(), (vec![], vec![]));
    }

    #[test]
    fn threads_have_their_own_clocks() {
        let mut workload =
            workload("100,7,0,1\n150,9,0,2\n180,7,0,3,write\n400,9,0,4\n", false).expect("a trace");
        let list: Vec<_> = std::iter::from_fn(|| workload.next().expect("no error"))
            .map(|a| (a.thread, a.think_ns, a.vpn, a.write))
            .collect();
        assert_eq!(list, [(0, 0, 1, false), (1, 0, 2, false), (0, 80, 3, true), (1, 250, 4, false)]);
    }

    #[test]
    fn hashes_are_numbered_anew_or_refused() {
        let text = "0,0,0,0xdeadbeefdeadbeef\n0,0,0,5\n0,0,0,0xdeadbeefdeadbeef\n";
        let mut renumbered = workload(text, true).expect("a trace");
        let pages: Vec<_> =
            std::iter::from_fn(|| renumbered.next().expect("no error")).map(|a| a.vpn - FIRST_VPN).collect();
        assert_eq!(pages, [0, 1, 0]);
        let error = workload(text, false).expect("a trace").next().expect_err("refused");
        assert_eq!(error.to_string(), "test: page 0xdeadbeefdeadbeef lies beyond 48-bit addresses");
    }

    /// *The story:* a region that ended with the last of all page numbers was declared for ever.
    #[test]
    fn regions_beyond_all_addresses_are_refused() {
        let region = |start: u64, pages: u64| format!(",,0,{start},region,{pages}\n0,0,0,5\n");
        for (start, pages) in [(VPN_LIMIT, 1), (VPN_LIMIT - 1, 2), (u64::MAX - 15, 15), (0, u64::MAX)] {
            let Err(error) = workload(region(start, pages).leak(), false) else { panic!("it was accepted") };
            let page = start + pages - 1;
            assert_eq!(error.to_string(), format!("page {page:#x} lies beyond 48-bit addresses"));
        }
        assert!(workload(region(VPN_LIMIT - 1, 1).leak(), false).is_ok());
    }

    #[test]
    fn a_region_declared_late_is_known_when_its_pages_are_touched() {
        let mut trace = workload("0,0,0,5\n,,0,9000,region_shared,7\n1,0,0,9001\n", false).expect("a trace");
        assert_eq!((trace.regions(), trace.next().expect("no error").map(|a| a.vpn)), (vec![], Some(5)));
        assert_eq!(trace.take_regions(), []);
        assert_eq!(trace.next().expect("no error").map(|a| a.vpn), Some(9001));
        let region = RegionSpec { space: 0, start: 9000, end: 9007, kind: RegionKind::Shared };
        assert_eq!((trace.take_regions(), trace.take_regions()), (vec![region], vec![]));
    }

    #[test]
    fn a_first_touch_brings_content_where_there_are_no_stores() {
        for renumber in [false, true] {
            let text = "0,0,0,1\n1,0,0,2\n2,0,0,1\n3,0,0,2\n";
            let mut trace = workload(text, renumber).expect("a trace").with_content(true);
            let stores: Vec<_> =
                std::iter::from_fn(|| trace.next().expect("no error")).map(|access| access.write).collect();
            assert_eq!(stores, [true, true, false, false]);
            assert!(!trace.has_stores(), "by the trace's own account");
        }
        let mut trace = workload("0,0,0,1,write\n", false).expect("a trace");
        while trace.next().expect("no error").is_some() {}
        assert!(trace.has_stores());
    }

    /// Of a trace of file calls it was once said that there is nothing at offset 0, which helped
    /// nobody.
    #[test]
    fn a_trace_without_accesses_says_what_it_has() {
        let Err(error) = workload("5,1,,,file_read,,0,0,4096\n", false) else { panic!("it was accepted") };
        assert!(error.to_string().contains("no page accesses in it, only 1 call on files"), "{error}");
        let Err(error) = named("# nothing\n", false) else { panic!("it was accepted") };
        assert!(error.to_string().starts_with("there are no page accesses in it: "), "{error}");
    }
}
