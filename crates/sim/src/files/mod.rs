//! Files on virtual time: programs that read and write files, a page cache, a read-ahead policy of
//! `mm`, a modelled device.
//!
//! The machine owns the cache and the order of events; which page leaves is decided by an
//! [`lru::Lru`], what is read by a [`Policy`]. A read waits for each of its pages in order, as
//! read(2) does; a write only fills the cache, a sync writes what is dirty and waits for it.

pub mod lru;
pub mod programs;
pub mod replay;
pub mod report;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use crate::device::{Device, Op, Request, Usage};
use crate::time::{LAST, Nanos};
use lru::{Key, Lru, TwoLists};
use overspill_mm::fileread::policy::{FileState, Policy};
use overspill_mm::fileread::{Ask, Cause, Extent, FileRead, PageCache, Reads};
use overspill_mm::types::PAGE_SIZE;

/// What a program does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reads bytes of a file.
    Read {
        /// Which opening of a file: its number, or what [`Machine::open_again`] gave.
        file: usize,
        /// The first byte.
        offset: u64,
        /// How many; at least one.
        bytes: u64,
    },
    /// Overwrites whole pages of a file.
    Write {
        /// Which opening.
        file: usize,
        /// The first page.
        page: u64,
        /// How many.
        pages: u64,
    },
    /// Closes: what the policy knew of the reader is forgotten.
    Close {
        /// Which opening.
        file: usize,
    },
    /// Waits until all that is dirty is on the device.
    Sync,
    /// Computes for so long.
    Think(Nanos),
    /// Sleeps until then.
    Until(Nanos),
    /// Has ended.
    End,
}

impl Step {
    /// A read of whole pages.
    #[must_use]
    pub fn read_pages(file: usize, page: u64, pages: u64) -> Step {
        Step::Read { file, offset: page * PAGE_SIZE, bytes: pages * PAGE_SIZE }
    }
}

/// A program: what it does next, at a time.
pub trait Program {
    /// The next step; after [`Step::End`] it is not asked again.
    fn next(&mut self, now: Nanos) -> Step;
}

/// A file's place on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// First byte.
    pub offset_bytes: u64,
    /// Pages.
    pub pages: u64,
}

/// What processors take for the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// A page copied to the reader.
    pub page_ns: Nanos,
    /// A read call.
    pub call_ns: Nanos,
    /// A policy's decision.
    pub decision_ns: Nanos,
    /// A look into the page cache.
    pub lookup_ns: Nanos,
}

impl Default for Costs {
    /// A processor of 2007 (2.9 GHz): 3 GB/s copied; the rest assumed.
    fn default() -> Self {
        Costs { page_ns: 1_300, call_ns: 300, decision_ns: 60, lookup_ns: 40 }
    }
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests to read.
    pub reads: u64,
    /// Pages that they carry.
    pub pages_read: u64,
    /// Pages that programs read.
    pub pages_used: u64,
    /// Times a policy was asked.
    pub policy_calls: u64,
    /// Pages looked up in the cache.
    pub lookups: u64,
    /// Pages that left before anybody used them.
    pub unused: u64,
    /// Times that a reader had to wait for a page.
    pub waits: u64,
    /// Pages written to the device.
    pub pages_written: u64,
}

/// What a page in the cache is.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// Whose read brought it.
    opening: u32,
    arriving: bool,
    marked: bool,
    used: bool,
    dirty: bool,
    writing: bool,
}

/// The cache of all files.
struct Cache {
    pages: HashMap<Key, Page>,
    lru: Box<dyn Lru>,
    capacity: u64,
    lookups: Cell<u64>,
}

/// What a policy sees of it.
struct View<'a> {
    cache: &'a Cache,
    file: usize,
}

impl PageCache for View<'_> {
    fn holds(&self, page: u64) -> bool {
        self.cache.lookups.set(self.cache.lookups.get() + 1);
        self.cache.pages.contains_key(&Key::new(self.file, page))
    }

    /// Pages that arrive are not active either.
    fn available(&self) -> u64 {
        self.cache.capacity.saturating_sub(self.cache.lru.active())
    }
}

/// An open file: what the policy knows of its reader.
struct Opening {
    file: usize,
    state: FileState,
    /// One past the last byte that was read; 0 before the first read.
    read_end: u64,
}

impl Opening {
    fn new(file: usize, policy: &mut Policy) -> Opening {
        Opening { file, state: policy.open(), read_end: 0 }
    }

    /// The page whose use belongs to the read before: this one starts where that one ended, within the
    /// page (specification 4.5).
    fn goes_on_in(&self, offset: u64) -> Option<u64> {
        let goes_on = offset == self.read_end && !offset.is_multiple_of(PAGE_SIZE);
        goes_on.then_some(offset / PAGE_SIZE)
    }
}

struct Thread {
    program: Box<dyn Program>,
    /// A read under way: the step, the next page, and where 2.6.20 wants to be asked.
    reading: Option<(Step, u64, u64)>,
    /// Requests that a sync still waits for.
    syncing: u64,
}

/// A request under way.
struct Transfer {
    first: Key,
    pages: u64,
    op: Op,
    /// Who syncs.
    thread: Option<usize>,
}

/// Reads of a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Bytes that programs got.
    pub used_bytes: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// In so many requests.
    pub reads: u64,
}

/// Everything.
pub struct Machine {
    policy: Policy,
    files: Vec<Placed>,
    /// The first of them are the files' own.
    openings: Vec<Opening>,
    cache: Cache,
    device: Box<dyn Device + Send>,
    threads: Vec<Thread>,
    /// Who starts after a thread's end, and how long after.
    followers: HashMap<usize, Vec<(usize, Nanos)>>,
    costs: Costs,
    now: Nanos,
    wakes: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    sequence: u64,
    transfers: HashMap<u64, Transfer>,
    waiting: HashMap<Key, Vec<usize>>,
    dirty: BTreeSet<Key>,
    counts: Counts,
    samples: Vec<Sample>,
    sample_ns: Nanos,
    /// Largest request, in pages.
    request_max: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When the last program ended.
    pub elapsed_ns: Nanos,
    /// What was counted.
    pub counts: Counts,
    /// What the device did.
    pub usage: Usage,
    /// By spans of [`Machine::SAMPLE_NS`].
    pub samples: Vec<Sample>,
}

/// Largest request, in pages, where nothing else is said.
const REQUEST_MAX: u64 = 256;

impl Machine {
    /// Length of a sample.
    pub const SAMPLE_NS: Nanos = 5 * crate::time::SECOND;

    /// A machine with a cache of so many pages.
    #[must_use]
    pub fn new(mut policy: Policy, placed: &[Placed], capacity: u64, device: Box<dyn Device + Send>) -> Self {
        assert!(capacity > REQUEST_MAX, "what is read in one piece fits the cache");
        let openings = (0..placed.len()).map(|file| Opening::new(file, &mut policy)).collect();
        Machine {
            policy,
            files: placed.to_vec(),
            openings,
            cache: Cache {
                pages: HashMap::new(),
                lru: Box::new(TwoLists::default()),
                capacity,
                lookups: Cell::new(0),
            },
            device,
            threads: Vec::new(),
            followers: HashMap::new(),
            costs: Costs::default(),
            now: 0,
            wakes: BinaryHeap::new(),
            sequence: 0,
            transfers: HashMap::new(),
            waiting: HashMap::new(),
            dirty: BTreeSet::new(),
            counts: Counts::default(),
            samples: Vec::new(),
            sample_ns: Machine::SAMPLE_NS,
            request_max: REQUEST_MAX,
        }
    }

    /// Opens a file once more: its reader is another one to the policy.
    pub fn open_again(&mut self, file: usize) -> usize {
        assert!(file < self.files.len(), "a file");
        self.openings.push(Opening::new(file, &mut self.policy));
        self.openings.len() - 1
    }

    /// What processors take.
    #[must_use]
    pub fn with_costs(self, costs: Costs) -> Machine {
        Machine { costs, ..self }
    }

    /// All of the time is one sample: what is replayed may last for years.
    #[must_use]
    pub fn without_samples(self) -> Machine {
        Machine { sample_ns: Nanos::MAX, ..self }
    }

    /// The device takes requests of up to so many pages.
    #[must_use]
    pub fn with_largest_request(self, pages: u64) -> Machine {
        assert!((1..self.cache.capacity).contains(&pages), "what is read in one piece fits the cache");
        Machine { request_max: pages, ..self }
    }

    /// Adds a program that starts at `at`.
    pub fn add(&mut self, program: Box<dyn Program>, at: Nanos) {
        self.threads.push(Thread { program, reading: None, syncing: 0 });
        self.wake(self.threads.len() - 1, at);
    }

    /// Adds a program that starts so long after another's end; that is the program which was added as
    /// number `other`, now or later.
    pub fn add_after(&mut self, program: Box<dyn Program>, other: usize, after_ns: Nanos) {
        self.threads.push(Thread { program, reading: None, syncing: 0 });
        self.followers.entry(other).or_default().push((self.threads.len() - 1, after_ns));
    }

    /// Runs until all programs have ended.
    #[must_use]
    pub fn run(mut self) -> Outcome {
        let mut elapsed_ns = 0;
        loop {
            let woken = self.wakes.peek().map(|Reverse((at, ..))| *at);
            let completed = self.device.next_completion();
            match (woken, completed) {
                (None, None) => break,
                (Some(at), completed) if completed.is_none_or(|done| at < done) => {
                    self.now = at;
                    let Reverse((_, _, thread)) = self.wakes.pop().expect("one was peeked at");
                    if self.go_on(thread) {
                        elapsed_ns = self.now;
                        for (follower, after_ns) in self.followers.remove(&thread).unwrap_or_default() {
                            self.wake(follower, self.now.saturating_add(after_ns));
                        }
                    }
                }
                (_, Some(at)) => {
                    self.now = at;
                    while let Some(ticket) = self.device.complete(at) {
                        self.completed(ticket);
                    }
                }
                (Some(_), None) => unreachable!("a wake-up is due"),
            }
        }
        assert!(self.waiting.values().all(Vec::is_empty), "everybody got what he waited for");
        self.counts.lookups = self.cache.lookups.get();
        let usage = *self.device.usage();
        Outcome { elapsed_ns, counts: self.counts, usage, samples: self.samples }
    }

    fn wake(&mut self, thread: usize, at: Nanos) {
        self.sequence += 1;
        self.wakes.push(Reverse((at.min(LAST).max(self.now), self.sequence, thread)));
    }

    fn sample(&mut self) -> &mut Sample {
        let index = (self.now / self.sample_ns) as usize;
        if self.samples.len() <= index {
            self.samples.resize(index + 1, Sample::default());
        }
        &mut self.samples[index]
    }

    /// True when the program has ended.
    fn go_on(&mut self, thread: usize) -> bool {
        let step = match self.threads[thread].reading {
            Some((step, ..)) => step,
            None => self.threads[thread].program.next(self.now),
        };
        match step {
            Step::Read { .. } => self.read(thread, step),
            Step::Write { file, page, pages } => {
                self.write(self.openings[file].file, page, pages);
                self.wake(thread, self.now + self.costs.call_ns + pages * self.costs.page_ns);
            }
            Step::Close { file } => {
                self.policy.close(&mut self.openings[file].state);
                self.openings[file] = Opening::new(self.openings[file].file, &mut self.policy);
                self.wake(thread, self.now);
            }
            Step::Sync => self.sync(thread),
            Step::Think(ns) => self.wake(thread, self.now.saturating_add(ns.max(1))),
            Step::Until(at) => self.wake(thread, at.max(self.now + 1)),
            Step::End => return true,
        }
        false
    }

    /// Reads on until a page has to be waited for, or all are there.
    fn read(&mut self, thread: usize, step: Step) {
        let Step::Read { file: opening, offset, bytes } = step else { unreachable!("a read") };
        let file = self.openings[opening].file;
        let file_pages = self.files[file].pages;
        let (first, end) = (offset / PAGE_SIZE, (offset + bytes).div_ceil(PAGE_SIZE));
        assert!(bytes > 0 && end <= file_pages, "within the file");
        let (_, mut page, mut call_at) = self.threads[thread].reading.unwrap_or((step, first, first));
        let used_before = self.openings[opening].goes_on_in(offset);
        let calls = self.counts.policy_calls;
        let lookups = self.cache.lookups.get();
        let from = page;
        while page < end {
            let ask = Ask { now: self.now, ..Ask::new(page, end - page, file_pages) };
            if self.policy.watches() && page == call_at {
                call_at =
                    self.ask(opening, |policy, state, cache, reads| policy.watch(state, &ask, cache, reads));
            }
            let key = Key::new(file, page);
            self.cache.lookups.set(self.cache.lookups.get() + 1);
            if !self.cache.pages.contains_key(&key) {
                self.ask(opening, |policy, state, cache, reads| policy.missing(state, &ask, cache, reads));
                if !self.cache.pages.contains_key(&key) {
                    let alone = Extent { start: page, pages: 1, marker: None, cause: Cause::Random };
                    self.issue(opening, &alone);
                }
                // It is looked up again once it was ordered: the price of being asked on demand.
                self.cache.lookups.set(self.cache.lookups.get() + 1);
            }
            let entry = self.cache.pages.get_mut(&key).expect("it was there or was ordered");
            let (arriving, marked) = (entry.arriving, std::mem::take(&mut entry.marked));
            if !arriving {
                // Copied, so to speak: what is ordered next may take its place.
                entry.used = true;
                if used_before != Some(page) {
                    self.cache.lru.touched(key);
                }
            }
            if marked {
                self.ask(opening, |policy, state, cache, reads| policy.marked(state, &ask, cache, reads));
            }
            if arriving {
                self.counts.waits += 1;
                self.threads[thread].reading = Some((step, page, call_at));
                self.waiting.entry(key).or_default().push(thread);
                return;
            }
            page += 1;
        }
        self.threads[thread].reading = None;
        let Opening { state, read_end, .. } = &mut self.openings[opening];
        *read_end = offset + bytes;
        self.policy.finished(state, *read_end);
        let pages = end - first;
        self.counts.pages_used += pages;
        self.sample().used_bytes += pages * PAGE_SIZE;
        let decided = self.counts.policy_calls - calls;
        let looked_up = self.cache.lookups.get() - lookups;
        let took_ns = self.costs.call_ns
            + (end - from) * self.costs.page_ns
            + decided * self.costs.decision_ns
            + looked_up * self.costs.lookup_ns;
        self.wake(thread, self.now + took_ns);
    }

    /// Asks the policy, and reads what it says.
    fn ask<T>(
        &mut self,
        opening: usize,
        ask: impl FnOnce(&mut Policy, &mut FileState, &dyn PageCache, &mut Reads) -> T,
    ) -> T {
        self.counts.policy_calls += 1;
        let Opening { file, state, .. } = &mut self.openings[opening];
        let mut reads = Reads::new(self.files[*file].pages);
        let view = View { cache: &self.cache, file: *file };
        let answer = ask(&mut self.policy, state, &view, &mut reads);
        for extent in reads.extents() {
            self.issue(opening, extent);
        }
        answer
    }

    /// Reads what is missing of an extent; consecutive missing pages are one request.
    fn issue(&mut self, opening: usize, extent: &Extent) {
        let file = self.openings[opening].file;
        let mut run: Option<(u64, u64)> = None;
        for page in extent.start..extent.end() {
            let key = Key::new(file, page);
            self.cache.lookups.set(self.cache.lookups.get() + 1);
            if self.cache.pages.contains_key(&key) {
                self.submit_read(file, run.take());
                continue;
            }
            let marked = extent.marker == Some(page);
            self.make_room();
            self.cache
                .pages
                .insert(key, Page { opening: opening as u32, arriving: true, marked, ..Page::default() });
            match &mut run {
                Some((_, count)) if *count < self.request_max => *count += 1,
                _ => {
                    self.submit_read(file, run.replace((page, 1)));
                }
            }
        }
        self.submit_read(file, run);
    }

    fn submit_read(&mut self, file: usize, run: Option<(u64, u64)>) {
        let Some((page, pages)) = run else { return };
        self.counts.reads += 1;
        self.counts.pages_read += pages;
        let sample = self.sample();
        sample.reads += 1;
        sample.read_bytes += pages * PAGE_SIZE;
        self.submit(Transfer { first: Key::new(file, page), pages, op: Op::Read, thread: None });
    }

    fn submit(&mut self, transfer: Transfer) {
        self.sequence += 1;
        let placed = self.files[transfer.first.file()];
        if transfer.op == Op::Write {
            self.counts.pages_written += transfer.pages;
        }
        let request = Request {
            op: transfer.op,
            offset_bytes: placed.offset_bytes + transfer.first.page() * PAGE_SIZE,
            bytes: transfer.pages * PAGE_SIZE,
        };
        self.transfers.insert(self.sequence, transfer);
        self.device.submit(self.now, self.sequence, request);
    }

    /// Evicts as long as the cache is full of pages that may leave.
    fn make_room(&mut self) {
        while self.cache.pages.len() as u64 >= self.cache.capacity {
            let Some(key) = self.cache.lru.evict() else { return };
            let page = self.cache.pages.remove(&key).expect("what is listed is there");
            if page.dirty || page.writing {
                // What is dirty is written as it leaves; nobody waits for it here.
                self.dirty.remove(&key);
                if page.dirty {
                    self.submit(Transfer { first: key, pages: 1, op: Op::Write, thread: None });
                }
            } else if !page.used {
                self.counts.unused += 1;
                let state = &mut self.openings[page.opening as usize].state;
                self.policy.unused(state, key.page());
            }
        }
    }

    fn write(&mut self, file: usize, first: u64, pages: u64) {
        for page in first..first + pages {
            let key = Key::new(file, page);
            if !self.cache.pages.contains_key(&key) {
                self.make_room();
                self.cache.pages.insert(key, Page::default());
                self.cache.lru.added(key);
            }
            let entry = self.cache.pages.get_mut(&key).expect("it is there now");
            (entry.dirty, entry.used) = (true, true);
            self.dirty.insert(key);
            if !entry.arriving {
                self.cache.lru.touched(key);
            }
        }
    }

    /// Writes what is dirty, in file order, in large requests.
    fn sync(&mut self, thread: usize) {
        let dirty = std::mem::take(&mut self.dirty);
        let mut runs: Vec<(Key, u64)> = Vec::new();
        for key in dirty {
            let page = self.cache.pages.get_mut(&key).expect("what is dirty is there");
            (page.dirty, page.writing) = (false, true);
            match runs.last_mut() {
                Some((first, count))
                    if *count < self.request_max
                        && first.file() == key.file()
                        && first.page() + *count == key.page() =>
                {
                    *count += 1;
                }
                _ => runs.push((key, 1)),
            }
        }
        self.threads[thread].syncing = runs.len() as u64;
        if runs.is_empty() {
            self.wake(thread, self.now + self.costs.call_ns);
        }
        for (first, pages) in runs {
            self.submit(Transfer { first, pages, op: Op::Write, thread: Some(thread) });
        }
    }

    fn completed(&mut self, ticket: u64) {
        let transfer = self.transfers.remove(&ticket).expect("a request ends once");
        let Transfer { first, pages, op, thread } = transfer;
        for page in first.page()..first.page() + pages {
            let key = Key::new(first.file(), page);
            let entry = self.cache.pages.get_mut(&key);
            if op == Op::Write {
                if let Some(entry) = entry {
                    entry.writing = false;
                }
                continue;
            }
            entry.expect("what arrives has its place").arriving = false;
            self.cache.lru.added(key);
            for thread in self.waiting.remove(&key).unwrap_or_default() {
                self.wake(thread, self.now);
            }
        }
        if let Some(thread) = thread {
            self.threads[thread].syncing -= 1;
            if self.threads[thread].syncing == 0 {
                self.wake(thread, self.now + self.costs.call_ns);
            }
        }
    }
}
