//! What a program did to its files, from a trace: its reads and writes again, under a read-ahead
//! policy of choice.
//!
//! The calls are held in memory, as each policy and amount of RAM gets all of them. Between two calls
//! of a thread as much time passes as in the trace, from beginning to beginning: what the program
//! computed, and what the calls took. So a trace is best recorded with the files in the page cache. A
//! thread that began when others had ended begins so long after the last of them.
//!
//! Approximate: a file is as long as the trace reads or writes it; a thread that has a file open more
//! than once reads by the opening it made last; whoever opened none reads by the file's last one.
//! Mapped files are not read here, as traces of calls do not know which of their pages are touched.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{Costs, Machine, Outcome, Placed, Program, Step};
use crate::device::params::Model;
use crate::device::{Op, Request};
use crate::time::Nanos;
use crate::trace::error::CALL_MAX;
use crate::trace::{FileOp, FileRecord, NameRecord, Record, RecordReader, TraceError};
use overspill_mm::fileread::policy::{Config, Policy};
use overspill_mm::fileread::{Limits, adaptive};
use overspill_mm::types::PAGE_SIZE;

/// Files end before this page.
const PAGES_MAX: u64 = 1 << 40;

/// Pages of all files together.
const ALL_PAGES_MAX: u64 = 1 << 48;

/// A call again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Call {
    step: Step,
    /// After the thread's call before, from beginning to beginning.
    after_ns: Nanos,
}

/// The calls of one thread.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Thread {
    begins_ns: Nanos,
    /// Which thread has to have ended for how long before that.
    after: Option<(usize, Nanos)>,
    last_ns: Nanos,
    calls: Vec<Call>,
}

/// What is known of a file.
#[derive(Default)]
struct File {
    name: Option<String>,
    pages: u64,
    /// Pages that were read or written: starts, and ends.
    touched: BTreeMap<u64, u64>,
    /// Its number among those that are replayed.
    number: Option<usize>,
    /// The opening made last.
    last: Option<usize>,
    /// Openings that are open.
    open: BTreeSet<usize>,
    /// Openings that were closed.
    closed: Vec<usize>,
}

/// A recorded program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    threads: Vec<Thread>,
    /// Pages of each file.
    files: Vec<u64>,
    /// The files of all openings; the first are the files themselves.
    openings: Vec<usize>,
    /// Reads and writes.
    pub calls: u64,
    /// Pages that they touch, each counted once.
    pub pages: u64,
    /// Mappings of files, of which nothing more is known.
    pub mappings: u64,
}

/// Reads a trace of file calls.
pub fn record(reader: &mut dyn RecordReader) -> Result<Recorded, TraceError> {
    let mut recorder = Recorder::default();
    while let Some(record) = reader.next_record()? {
        match record {
            Record::File(call) => recorder.call(&call)?,
            Record::Name(name) if name.id != NameRecord::NOTE => {
                recorder.files.entry(name.id).or_default().name = Some(name.text);
            }
            _ => {}
        }
    }
    recorder.finish()
}

/// Is there a device behind files of this name?
fn is_stored(name: &str) -> bool {
    let of_kernel = ["/proc/", "/sys/", "/dev/pts/", "/dev/shm/", "/memfd:"];
    let devices = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/full"];
    // `strace -yy` says more of a device.
    let bare = name.split('<').next().unwrap_or(name);
    !of_kernel.iter().any(|start| name.starts_with(start)) && !devices.contains(&bare)
}

#[derive(Default)]
struct Recorder {
    files: HashMap<u32, File>,
    /// Files that are replayed, by number.
    numbered: Vec<u32>,
    /// Openings beyond the files' own; numbers follow when all files are known.
    openings: Vec<u32>,
    /// By thread and file: the opening that it made last.
    current: HashMap<(u32, u32), usize>,
    threads: BTreeMap<u32, Thread>,
    order: Vec<u32>,
    calls: u64,
    mappings: u64,
}

impl Recorder {
    fn call(&mut self, call: &FileRecord) -> Result<(), TraceError> {
        let file = self.files.entry(call.file).or_default();
        if file.name.as_deref().is_some_and(|name| !is_stored(name)) {
            return Ok(());
        }
        match call.op {
            FileOp::Open => self.open(call),
            FileOp::Close => self.close(call),
            FileOp::Map => self.mappings += 1,
            FileOp::Read | FileOp::Write if call.bytes == 0 => {}
            FileOp::Read | FileOp::Write => self.transfer(call)?,
        }
        Ok(())
    }

    /// An opening of its own, or one that was closed.
    fn open(&mut self, call: &FileRecord) {
        let file = self.files.get_mut(&call.file).expect("it was entered");
        let opening = file.closed.pop().unwrap_or_else(|| {
            self.openings.push(call.file);
            self.openings.len() - 1
        });
        file.last = Some(opening);
        file.open.insert(opening);
        self.current.insert((call.thread, call.file), opening);
    }

    /// The last descriptor is closed. If that was not in the thread that opened the file, it is clear
    /// which opening that was where there is but one.
    fn close(&mut self, call: &FileRecord) {
        let own = self.current.remove(&(call.thread, call.file));
        let file = self.files.get_mut(&call.file).expect("it was entered");
        let only = file.open.first().copied().filter(|_| file.open.len() == 1);
        let Some(opening) = own.filter(|own| file.open.contains(own)).or(only) else { return };
        file.open.remove(&opening);
        file.closed.push(opening);
        self.push(call, Step::Close { file: opening });
    }

    fn transfer(&mut self, call: &FileRecord) -> Result<(), TraceError> {
        if call.bytes > CALL_MAX {
            return Err(TraceError::CallTooLarge { bytes: call.bytes });
        }
        let end = call.offset.checked_add(call.bytes).filter(|&end| end / PAGE_SIZE < PAGES_MAX);
        let end = end.ok_or(TraceError::FileTooLong { offset: call.offset })?.div_ceil(PAGE_SIZE);
        let first = call.offset / PAGE_SIZE;
        let file = self.files.get_mut(&call.file).expect("it was entered");
        file.touch(first, end);
        if file.number.is_none() {
            file.number = Some(self.numbered.len());
            self.numbered.push(call.file);
        }
        let opening = self.current.get(&(call.thread, call.file)).copied().or(file.last);
        let opening = opening.unwrap_or_else(|| {
            self.openings.push(call.file);
            self.openings.len() - 1
        });
        file.last = Some(opening);
        self.calls += 1;
        let step = if call.op == FileOp::Read {
            Step::Read { file: opening, offset: call.offset, bytes: call.bytes }
        } else {
            Step::Write { file: opening, page: first, pages: end - first }
        };
        self.push(call, step);
        Ok(())
    }

    fn push(&mut self, call: &FileRecord, step: Step) {
        let order = &mut self.order;
        let thread = self.threads.entry(call.thread).or_insert_with(|| {
            order.push(call.thread);
            Thread { begins_ns: call.time_ns, after: None, last_ns: call.time_ns, calls: Vec::new() }
        });
        let after_ns = call.time_ns.saturating_sub(thread.last_ns);
        thread.last_ns = thread.last_ns.max(call.time_ns);
        thread.calls.push(Call { step, after_ns });
    }

    /// Openings are numbered as the machine will: behind the files.
    fn finish(mut self) -> Result<Recorded, TraceError> {
        if self.calls == 0 {
            return Err(TraceError::NoTransfers);
        }
        let numbers: Vec<Option<usize>> = self.openings.iter().map(|file| self.files[file].number).collect();
        let count = self.numbered.len();
        let mut openings: Vec<usize> = (0..count).collect();
        let mut places = vec![None; numbers.len()];
        // What was opened and never read or written needs no place.
        for (place, number) in places.iter_mut().zip(&numbers) {
            if let Some(number) = number {
                *place = Some(openings.len());
                openings.push(*number);
            }
        }
        let mut threads = Vec::new();
        for id in &self.order {
            let mut thread = self.threads.remove(id).expect("it is listed");
            for call in &mut thread.calls {
                call.step = match call.step {
                    Step::Read { file, offset, bytes } => {
                        Step::Read { file: places[file].expect("it is read"), offset, bytes }
                    }
                    Step::Write { file, page, pages } => {
                        Step::Write { file: places[file].expect("it is written"), page, pages }
                    }
                    Step::Close { file } => places[file].map_or(Step::Think(0), |file| Step::Close { file }),
                    other => other,
                };
            }
            threads.push(thread);
        }
        let used = self.numbered.iter().map(|id| &self.files[id]);
        let pages = used.clone().flat_map(|file| &file.touched).map(|(start, end)| end - start).sum();
        let files: Vec<u64> = used.map(|file| file.pages).collect();
        let all = files.iter().try_fold(0_u64, |sum, &pages| sum.checked_add(pages));
        if all.is_none_or(|pages| pages > ALL_PAGES_MAX) {
            return Err(TraceError::FilesTooLong);
        }
        set_order(&mut threads);
        Ok(Recorded { threads, files, openings, calls: self.calls, pages, mappings: self.mappings })
    }
}

/// A thread that begins after others have ended begins after the end of the last of them.
///
/// *The story:* each thread began at its time of the trace. A shell's loop of a hundred `cat`, 1 ms each
/// with the files cached, took 150 ms on a disk where 5 s were right.
fn set_order(threads: &mut [Thread]) {
    let ends: BTreeSet<(Nanos, usize)> =
        threads.iter().enumerate().map(|(index, thread)| (thread.last_ns, index)).collect();
    for thread in threads {
        let before = ends.range(..(thread.begins_ns, 0)).next_back();
        thread.after = before.map(|&(ended_ns, index)| (index, thread.begins_ns - ended_ns));
    }
}

impl File {
    /// Adds `start .. end` to what was touched.
    fn touch(&mut self, start: u64, end: u64) {
        self.pages = self.pages.max(end);
        let (mut start, mut end) = (start, end);
        while let Some((&from, &to)) = self.touched.range(..=end).next_back() {
            if to < start {
                break;
            }
            (start, end) = (start.min(from), end.max(to));
            self.touched.remove(&from);
        }
        self.touched.insert(start, end);
    }
}

/// A machine to replay on.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// Pages of RAM for the page cache; more than 256.
    pub cache_pages: u64,
    /// A name of [`overspill_mm::fileread::policy::NAMES`].
    pub readahead: &'a str,
    /// The device that the files are on.
    pub device: &'a Model,
    /// The kernel's `read_ahead_kb`, in pages.
    pub limit: u64,
    /// The device's largest request (`max_sectors_kb`), in pages: from 4.10 on a read that is larger than
    /// the limit has windows of up to that.
    pub largest: u64,
}

impl Recorded {
    /// Files that were read or written.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Bytes of all of them, laid out one after the other.
    #[must_use]
    pub fn laid_out_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum: u64, pages| sum.saturating_add(pages.saturating_mul(PAGE_SIZE)))
    }

    /// Runs it again.
    #[must_use]
    pub fn replay(self: &Arc<Self>, setting: &Setting<'_>) -> Outcome {
        // A window has room in the cache, and another with it.
        let [window, largest] = [setting.limit, setting.largest].map(|max| max.min(setting.cache_pages / 2));
        let limits = Limits { ra_pages: window, io_pages: largest };
        let config = Config { limits, adaptive: adaptive_config(setting) };
        let policy = Policy::by_name(setting.readahead, config).expect("the name was checked");
        let mut end = 0;
        let mut place = |&pages: &u64| {
            let offset_bytes = end;
            end += pages * PAGE_SIZE;
            Placed { offset_bytes, pages }
        };
        let placed: Vec<Placed> = self.files.iter().map(&mut place).collect();
        // What calls and copying took is in the times of the trace.
        let costs = Costs { page_ns: 0, call_ns: 0, decision_ns: 0, lookup_ns: 0 };
        let machine = Machine::new(policy, &placed, setting.cache_pages, setting.device.build());
        let machine = machine.with_costs(costs).without_samples();
        let mut machine = machine.with_largest_request(largest);
        for &file in &self.openings[self.files.len()..] {
            machine.open_again(file);
        }
        for (index, thread) in self.threads.iter().enumerate() {
            let replay = Replay { recorded: Arc::clone(self), thread: index, next: 0, has_waited: false };
            match thread.after {
                Some((other, after_ns)) => machine.add_after(Box::new(replay), other, after_ns),
                None => machine.add(Box::new(replay), thread.begins_ns),
            }
        }
        machine.run()
    }
}

/// What the adaptive policy is told of the device: what a page takes, and what 256 take.
fn adaptive_config(setting: &Setting<'_>) -> adaptive::Config {
    const FAR: u64 = 1 << 30;
    let middle = setting.device.disk.as_ref().map_or(FAR, |disk| FAR.min(disk.capacity_bytes / 2));
    let read = |pages: u64| -> Nanos {
        let mut device = setting.device.build();
        let offset_bytes = middle / PAGE_SIZE * PAGE_SIZE;
        device.submit(0, 1, Request { op: Op::Read, offset_bytes, bytes: pages * PAGE_SIZE });
        device.next_completion().expect("a request completes")
    };
    let (one, many) = (read(1), read(256));
    adaptive::Config {
        frames: setting.cache_pages,
        latency_ns: one,
        page_ns: (many.saturating_sub(one) / 255).max(1),
        ..adaptive::Config::default()
    }
}

/// A thread of it.
struct Replay {
    recorded: Arc<Recorded>,
    thread: usize,
    next: usize,
    has_waited: bool,
}

impl Program for Replay {
    fn next(&mut self, _: Nanos) -> Step {
        let Some(call) = self.recorded.threads[self.thread].calls.get(self.next) else { return Step::End };
        if call.after_ns > 0 && !std::mem::replace(&mut self.has_waited, true) {
            return Step::Think(call.after_ns);
        }
        self.has_waited = false;
        self.next += 1;
        call.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::csv::CsvReader;
    use crate::trace::strace::StraceReader;

    fn recorded(text: &str) -> Result<Arc<Recorded>, TraceError> {
        record(&mut StraceReader::new(text.as_bytes())).map(Arc::new)
    }

    fn replay(recorded: &Arc<Recorded>, readahead: &str, cache_pages: u64) -> Outcome {
        replay_within(recorded, readahead, cache_pages, (32, 32))
    }

    fn replay_within(
        recorded: &Arc<Recorded>,
        readahead: &str,
        cache_pages: u64,
        (limit, largest): (u64, u64),
    ) -> Outcome {
        let device = Model::builtin("nvme").expect("built in");
        recorded.replay(&Setting { cache_pages, readahead, device: &device, limit, largest })
    }

    /// Reads of `bytes` at such places of one file, which is longer.
    fn reads_at(bytes: u64, places: impl IntoIterator<Item = u64>) -> Arc<Recorded> {
        let mut text = format!("7 pread64(9</a>, \"\"..., 1, {}) = 1\n", 100_000 * PAGE_SIZE);
        for at in places {
            text += &format!("8 pread64(3</a>, \"\"..., {bytes}, {at}) = {bytes}\n");
        }
        recorded(&text).expect("a trace")
    }

    /// `count` reads of 16 KiB, one after another, a millisecond apart.
    fn in_order(count: u64) -> String {
        let mut text = "1.000000 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n".to_owned();
        for n in 0..count {
            text += &format!("1.{:06} read(3, \"\"..., 16384) = 16384\n", 1000 * (n + 1));
        }
        text
    }

    #[test]
    fn a_stream_waits_once_where_it_is_read_ahead() {
        let stream = recorded(&in_order(200)).expect("a trace");
        assert_eq!((stream.calls, stream.pages, stream.file_count()), (200, 800, 1));
        let none = replay(&stream, "none", 2000).counts;
        assert_eq!((none.waits, none.pages_read, none.reads), (800 / 4, 800, 200));
        for name in overspill_mm::fileread::policy::NAMES {
            let counts = replay(&stream, name, 2000).counts;
            assert_eq!((counts.pages_used, counts.pages_read, counts.unused), (800, 800, 0), "{name}");
            assert!(name == "none" || counts.waits < 10 && counts.reads < 60, "{name}: {counts:?}");
        }
    }

    #[test]
    fn times_between_calls_are_those_of_the_trace() {
        let stream = recorded(&in_order(100)).expect("a trace");
        let outcome = replay(&stream, "6.8", 2000);
        let own = 99_000_000;
        assert!((own..own + 2_000_000).contains(&outcome.elapsed_ns), "{} ns", outcome.elapsed_ns);
    }

    /// Two readers of one file, each with a position of its own, are two streams to the kernel; by one
    /// state for both it saw jumps to and fro.
    #[test]
    fn each_opening_is_a_reader_of_its_own() {
        let mut text = "7 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n\
                        8 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n\
                        8 lseek(3, 4194304, SEEK_SET) = 4194304\n"
            .to_owned();
        for _ in 0..128 {
            text += "7 read(3, \"\", 16384) = 16384\n8 read(3, \"\", 16384) = 16384\n";
        }
        let two = recorded(&text).expect("a trace");
        assert_eq!(two.openings, [0, 0, 0]);
        assert!(replay(&two, "2.6.23", 4000).counts.reads < 80);
    }

    #[test]
    fn what_is_no_file_on_a_device_is_left_out() {
        let text = "pipe2([3, 4], 0) = 0\nread(3, \"\", 4096) = 4096\n\
                    read(5</proc/meminfo>, \"\", 4096) = 4096\nread(6<socket:[77]>, \"\", 4096) = 4096\n\
                    read(7</dev/urandom<char 1:9>>, \"\", 32) = 32\n\
                    mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 9</a>, 0) = 0x7f\n";
        assert_eq!(recorded(text).expect_err("refused").to_string(), TraceError::NoTransfers.to_string());
        let with_file = recorded(&format!("{text}read(8</b>, \"\", 5) = 5\n")).expect("a trace");
        assert_eq!((with_file.calls, with_file.pages, with_file.mappings), (1, 1, 1));
        let far = "pread64(3, \"\", 1, 9223372036854775806) = 1\n";
        assert!(recorded(far).expect_err("refused").to_string().contains("9223372036854775806"));
    }

    /// *The story:* one line was 2^40 pages, read one by one; the files' sum overflowed; and a slot for
    /// each 5 s of the trace took GBs where a line had no time.
    #[test]
    fn no_line_makes_it_run_without_end() {
        let large = "pread64(3, \"\", 1, 0) = 4503599627366400\n";
        assert!(recorded(large).expect_err("refused").to_string().contains("4503599627366400 bytes"));
        let files: String =
            (0..4096).map(|file| format!("pread64({file}, \"\", 1, 4503599627366399) = 1\n")).collect();
        assert!(matches!(recorded(&files), Err(TraceError::FilesTooLong)));
        let late = "1.0 read(3, \"\", 8) = 8\n9000000000.0 read(3, \"\", 8) = 8\n";
        let outcome = replay(&recorded(late).expect("a trace"), "none", 300);
        assert!(outcome.samples.len() <= 1 && outcome.elapsed_ns > 8_000_000_000_000_000_000);
    }

    /// *The story:* behind the last of all times began the first again.
    #[test]
    fn times_without_end_come_to_an_end() {
        let text = "0,1,,,file_read,,0,0,4096\n18446744073709551615,1,,,file_read,,0,4096,4096\n\
                    18446744073709551615,1,,,file_read,,0,8192,4096\n";
        let recorded = record(&mut CsvReader::new(text.as_bytes())).map(Arc::new).expect("a trace");
        let outcome = replay(&recorded, "none", 300);
        assert_eq!(outcome.counts.waits, 3);
        assert!(outcome.elapsed_ns > 9_000_000_000_000_000_000, "{} ns", outcome.elapsed_ns);
    }

    /// *The story:* reads lost their bytes: a read of 1000 bytes in a page counted as if it had ended at the
    /// page's end, where 6.x takes the page after the next one for the next (specification 4.5).
    #[test]
    fn a_read_ends_behind_its_last_byte() {
        let every_second = |bytes| reads_at(bytes, (0..100).map(|n| (1000 + 2 * n) * PAGE_SIZE));
        for name in ["6.8", "6.19"] {
            let [whole, part] = [4096, 1000].map(|bytes| replay(&every_second(bytes), name, 4000).counts);
            assert_eq!((part.reads, part.pages_read), (101, 101), "{name}");
            assert!(whole.reads < 60 && whole.pages_read > 200, "{name}: {whole:?}");
        }
    }

    /// *The story:* four reads of a page's four quarters counted as four uses of it, so a stream of small
    /// reads threw out everything that had been used more than once (specification 4.5 and 5.1).
    #[test]
    fn reads_within_a_page_are_one_use_of_it() {
        let run = |bytes: u64| {
            let hot = || (0..100).map(|page| page * PAGE_SIZE);
            let mut text = String::new();
            let mut read = |at: u64, bytes: u64| {
                text += &format!("pread64(3</a>, \"\"..., {bytes}, {at}) = {bytes}\n");
            };
            (0..3).for_each(|_| hot().for_each(|at| read(at, PAGE_SIZE)));
            let stream = (1000 * PAGE_SIZE..2000 * PAGE_SIZE).step_by(bytes as usize);
            stream.for_each(|at| read(at, bytes));
            hot().for_each(|at| read(at, PAGE_SIZE));
            replay(&recorded(&text).expect("a trace"), "none", 300).counts.pages_read
        };
        assert_eq!([4096, 1024, 512].map(run), [1100; 3]);
    }

    /// *The story:* the device's largest request was always the limit, so that no command could show
    /// windows larger than that (specification 4.8: requests of 320 pages).
    #[test]
    fn large_reads_have_windows_of_the_largest_request() {
        const MIB: u64 = 1 << 20;
        let in_order = reads_at(MIB, (0..40).map(|n| n * MIB));
        let scattered = reads_at(MIB, (1..40).map(|n| n * 7 % 40 * 2 * MIB));
        let reads = |recorded, name, largest| {
            let counts = replay_within(recorded, name, 16_000, (32, largest)).counts;
            (counts.reads, counts.pages_read)
        };
        // One window more than what is read: the last one is ahead.
        assert_eq!(reads(&in_order, "6.19", 320), (1 + 41, 1 + 41 * 256));
        assert_eq!(reads(&scattered, "6.19", 320), (1 + 39, 1 + 39 * 256));
        assert_eq!(reads(&scattered, "6.8", 320), (1 + 39, 1 + 39 * 256));
        assert!(reads(&in_order, "6.8", 320).0 < 120);
        for (name, largest) in [("3.14", 320), ("6.19", 32), ("6.8", 32)] {
            assert!(reads(&in_order, name, largest).0 > 300, "{name}");
        }
    }

    /// *The story:* all of the cache counted as available, active pages too, so that the clamp of 3.14 at
    /// half of what is left (specification 4.1) never bound.
    #[test]
    fn windows_of_3_14_are_half_of_what_is_not_active_at_most() {
        let hot = (0..3).flat_map(|_| (0..240).map(|page| (3, "/hot", page)));
        let mut text = String::new();
        for (n, (descriptor, name, page)) in hot.chain((0..4000).map(|page| (4, "/big", page))).enumerate() {
            let (ms, at) = (1000 + n, page * PAGE_SIZE);
            let second = format!("{}.{:03}000", ms / 1000, ms % 1000);
            text += &format!("{second} pread64({descriptor}<{name}>, \"\", 4096, {at}) = 4096\n");
        }
        let recorded = recorded(&text).expect("a trace");
        let [early, late] =
            ["3.14", "4.10"].map(|name| replay_within(&recorded, name, 512, (256, 256)).counts);
        // 136 pages of 256: a window is used up before the next but one throws it out.
        assert!(late.unused > 1000, "{late:?}");
        assert!(early.unused * 10 < late.unused && early.pages_read < late.pages_read, "{early:?} {late:?}");
    }

    /// A shell's loop: each process reads a file of its own for a millisecond, and ends.
    #[test]
    fn who_began_after_anothers_end_does_so_again() {
        let mut text = String::new();
        for process in 0..100 {
            let read = |n| {
                format!("{} 1.{process:03}{n}00 pread64(3</{process}>, \"\", 1, {n}0000) = 1\n", process + 7)
            };
            text.extend((0..10).map(read));
        }
        let outcome = replay(&recorded(&text).expect("a trace"), "none", 4000);
        assert_eq!(outcome.counts.waits, 1000);
        assert!(outcome.elapsed_ns > 99_900_000 + 1000 * 50_000, "{} ns", outcome.elapsed_ns);
    }

    #[test]
    fn pages_are_counted_once() {
        let mut file = File::default();
        for (start, end) in [(10, 12), (0, 4), (14, 16), (3, 11), (12, 14), (100, 101), (0, 1)] {
            file.touch(start, end);
        }
        assert_eq!(file.touched.into_iter().collect::<Vec<_>>(), [(0, 16), (100, 101)]);
        assert_eq!(file.pages, 101);
    }

    /// A loop over more than the cache reads all of it each time; over less, once.
    #[test]
    fn what_fits_is_read_once() {
        let mut text = in_order(200);
        text += "1.500000 lseek(3, 0, SEEK_SET) = 0\n";
        text += &in_order(200).lines().skip(1).map(|line| format!("2{}\n", &line[1..])).collect::<String>();
        let twice = recorded(&text).expect("a trace");
        assert_eq!(replay(&twice, "6.8", 1000).counts.pages_read, 800);
        assert!(replay(&twice, "6.8", 300).counts.pages_read > 1400);
    }

    #[test]
    fn closed_files_are_opened_again_without_end() {
        let text =
            "openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\nread(3, \"\", 10) = 10\nclose(3) = 0\n".repeat(50);
        let many = recorded(&text).expect("a trace");
        assert_eq!(many.openings, [0, 0], "the file itself, and one opening again and again");
        assert_eq!(replay(&many, "adaptive", 300).counts.pages_read, 1);
    }
}
