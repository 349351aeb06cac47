//! `run --trace`: drains the agents' rings while the program runs and writes them as a trace.
//!
//! As everything of the shared memory the rings are read from the file, never mapped. An agent does
//! not wait: records that came faster than they were drained are lost, and counted in a note at the
//! end of the trace.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use overspill_engine::shared::{PROCESSES, Shared, Tree};
use overspill_engine::trace::{RECORDS, Record as Raw, Ring, VPN_BITS, ring_offset};
use overspill_sim::trace::own::Writer;
use overspill_sim::trace::sightings::{processor_note, ram_note};
use overspill_sim::trace::{NameRecord, PagerOp, PagerRecord, Record, RecordWriter, TraceError};

use crate::human;
use crate::part::Part;
use crate::run::shared_page::SharedPage;

/// Between two looks at the rings: they hold what millions of faults a second leave in this time.
const PAUSE: Duration = Duration::from_millis(5);
/// After so long a block is ended, full or not: who is killed loses no more than that.
const SAVED_EVERY: Duration = Duration::from_secs(5);
const RAW_BYTES: usize = size_of::<Raw>();
const _: () = assert!(overspill_engine::trace::IN_VIEW_MAX == overspill_sim::trace::record::IN_VIEW_MAX);

type Output = Writer<BufWriter<File>>;

/// A trace that can be written, before there is anything to write.
pub struct Prepared {
    path: PathBuf,
    part: Part,
    rings: File,
    /// Its first records.
    notes: [String; 2],
}

impl Prepared {
    /// Opens the file. What is in it stays until the trace is whole, where that can be, else until the
    /// program has started, for it may not.
    pub fn new(path: &Path, page: &SharedPage, command: &[OsString]) -> Result<Prepared> {
        let part = Part::prepare(path).with_context(|| cannot_write(path))?;
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let seen = format!("seen by overspill run: {}", words.join(" "));
        let notes = [seen, ram_note(page.settings()?.ram_bytes)];
        Ok(Prepared { path: path.to_owned(), part, rings: page.file()?, notes })
    }

    /// Begins; the program was started at `start_ns`.
    pub fn begin(self, start_ns: u64) -> Result<Tracing> {
        let output = self.first_records().with_context(|| cannot_write(&self.path))?;
        let mut drain = Drain { rings: self.rings, output, start_ns, tails: [0; PROCESSES] };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
            let mut saved = Instant::now();
            while !stopped.load(Ordering::Acquire) {
                drain.pass()?;
                if saved.elapsed() >= SAVED_EVERY {
                    drain.output.save()?;
                    saved = Instant::now();
                }
                std::thread::sleep(PAUSE);
            }
            Ok(drain)
        })?;
        Ok(Tracing { path: self.path, part: self.part, stop, thread })
    }

    fn first_records(&self) -> Result<Output, TraceError> {
        let file = self.part.begin().map_err(|error| TraceError::io(0, error))?;
        let mut output = Writer::new(BufWriter::new(file))?;
        self.notes.iter().try_for_each(|text| note(&mut output, text.clone()))?;
        Ok(output)
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the trace {}", path.display())
}

/// A trace being written by a thread of its own.
pub struct Tracing {
    path: PathBuf,
    part: Part,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Drain, TraceError>>,
}

impl Tracing {
    /// Drains what is left and ends the trace of a program that itself had a processor for so long.
    pub fn finish(self, processor_ns: u64) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        let result = self.thread.join().expect("the thread returns its failure");
        match result.and_then(|drain| drain.end(processor_ns)) {
            Ok(()) => self.part.finish().with_context(|| cannot_write(&self.path)),
            Err(error) => {
                let part = self.part.keep();
                let part = human::one_line(&part.to_string_lossy());
                Err(error)
                    .with_context(|| format!("{}: what came before is in {part}", cannot_write(&self.path)))
            }
        }
    }
}

struct Drain {
    rings: File,
    output: Output,
    start_ns: u64,
    /// By process: records read.
    tails: [u64; PROCESSES],
}

impl Drain {
    /// Takes what all rings hold, in the order of time.
    fn pass(&mut self) -> Result<(), TraceError> {
        let mut records = Vec::new();
        for process in 0..self.places_used() {
            self.take(process, &mut records).map_err(|error| TraceError::io(0, error))?;
        }
        records.sort_by_key(|record| record.time_ns);
        records.into_iter().try_for_each(|record| self.output.push(Record::Pager(record)))
    }

    fn places_used(&self) -> usize {
        let mut bytes = [0; 4];
        let place = offset_of!(Shared, tree) + offset_of!(Tree, places_used);
        match self.rings.read_exact_at(&mut bytes, place as u64) {
            Ok(()) => (u32::from_ne_bytes(bytes) as usize).min(PROCESSES),
            Err(_) => 0,
        }
    }

    fn number(&self, process: usize, field: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.rings.read_exact_at(&mut bytes, (ring_offset(process) + field) as u64)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn take(&mut self, process: usize, records: &mut Vec<PagerRecord>) -> io::Result<()> {
        let (tail, head) = (self.tails[process], self.number(process, offset_of!(Ring, head))?);
        // Whatever a damaged ring says, no more than it can hold is taken.
        let count = head.wrapping_sub(tail).min(RECORDS as u64);
        let first = tail as usize % RECORDS;
        let before_wrap = (RECORDS - first).min(count as usize);
        for (at, count) in [(first, before_wrap), (0, count as usize - before_wrap)] {
            let mut bytes = vec![0; count * RAW_BYTES];
            let place = ring_offset(process) + offset_of!(Ring, records) + at * RAW_BYTES;
            self.rings.read_exact_at(&mut bytes, place as u64)?;
            records.extend(bytes.chunks_exact(RAW_BYTES).filter_map(|raw| self.decode(process, raw)));
        }
        self.tails[process] = head;
        let place = ring_offset(process) + offset_of!(Ring, tail);
        self.rings.write_all_at(&head.to_ne_bytes(), place as u64)
    }

    fn decode(&self, process: usize, raw: &[u8]) -> Option<PagerRecord> {
        let number = |at: usize| u64::from_ne_bytes(raw[at..at + 8].try_into().expect("eight bytes"));
        let what = number(offset_of!(Raw, what));
        let (op, argument) =
            (*PagerOp::ALL.get((what >> VPN_BITS) as usize)?, number(offset_of!(Raw, argument)));
        op.takes(argument).then_some(PagerRecord {
            time_ns: number(offset_of!(Raw, time_ns)).saturating_sub(self.start_ns),
            vpn: what & ((1 << VPN_BITS) - 1),
            thread: 0,
            space: process as u16,
            op,
            argument,
        })
    }

    fn end(mut self, processor_ns: u64) -> Result<(), TraceError> {
        self.pass()?;
        note(&mut self.output, processor_note(processor_ns))?;
        let lost_by = |process| self.number(process, offset_of!(Ring, lost)).unwrap_or(0);
        let lost: u64 = (0..self.places_used()).map(lost_by).sum();
        if lost > 0 {
            note(&mut self.output, format!("{lost} events were lost: they came too fast"))?;
        }
        self.output.finish()
    }
}

fn note(output: &mut Output, text: String) -> Result<(), TraceError> {
    output.push(Record::Name(NameRecord { id: NameRecord::NOTE, text }))
}

/// The clock of the agents' records.
pub fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
