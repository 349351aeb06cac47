//! A page cache and readers for the tests of this folder: I/O takes no time, the cache is first in,
//! first out.

use std::collections::{HashMap, HashSet, VecDeque};

use super::policy::{Config, FileState, Policy};
use super::{Advice, Ask, Cause, Extent, Fault, FileRead, Limits, MapAdvice, PageCache, Reads};
use crate::types::PAGE_SIZE;

/// The pages of one file.
#[derive(Default)]
struct Pages {
    held: HashSet<u64>,
    marks: HashSet<u64>,
    unused: HashSet<u64>,
}

impl PageCache for Pages {
    fn holds(&self, page: u64) -> bool {
        self.held.contains(&page)
    }
}

/// What happened.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Requests to the device.
    pub ios: u64,
    /// Pages that they carried.
    pub pages: u64,
    /// Pages used.
    pub used: u64,
    /// I/O by cause.
    pub by_cause: HashMap<String, u64>,
}

/// Some files, a policy, a cache of so many pages.
pub struct Sim {
    pub policy: Policy,
    pub log: Vec<Extent>,
    pub counts: Counts,
    pub now: u64,
    files: Vec<(FileState, Pages)>,
    order: VecDeque<(usize, u64)>,
    capacity: usize,
    file_pages: u64,
}

impl Sim {
    pub fn new(name: &str, max: u64, files: usize) -> Sim {
        let limits = Limits { ra_pages: max, io_pages: max };
        Sim::with(name, Config { limits, ..Config::default() }, files, usize::MAX)
    }

    pub fn with(name: &str, config: Config, files: usize, capacity: usize) -> Sim {
        let mut policy = Policy::by_name(name, config).expect("a policy's name");
        let files = (0..files).map(|_| (policy.open(), Pages::default())).collect();
        Sim {
            policy,
            log: Vec::new(),
            counts: Counts::default(),
            now: 0,
            files,
            order: VecDeque::new(),
            capacity,
            file_pages: 1 << 24,
        }
    }

    fn carry_out(&mut self, file: usize, reads: &Reads) {
        for &extent in reads.extents() {
            let pages = &mut self.files[file].1;
            let mut last = None;
            let mut is_new = false;
            for page in extent.start..extent.end() {
                if !pages.held.insert(page) {
                    continue;
                }
                is_new = true;
                pages.unused.insert(page);
                if last != Some(page.wrapping_sub(1)) {
                    self.counts.ios += 1;
                    *self.counts.by_cause.entry(format!("{:?}", extent.cause)).or_default() += 1;
                }
                last = Some(page);
                self.counts.pages += 1;
                if extent.marker == Some(page) {
                    pages.marks.insert(page);
                }
                self.order.push_back((file, page));
            }
            if is_new {
                self.log.push(extent);
            }
        }
        while self.order.len() > self.capacity {
            let (file, page) = self.order.pop_front().expect("more than the capacity");
            let (state, pages) = &mut self.files[file];
            pages.held.remove(&page);
            pages.marks.remove(&page);
            if pages.unused.remove(&page) {
                self.policy.unused(state, page);
            }
        }
    }

    fn ask(&self, page: u64, pages: u64) -> Ask {
        Ask { now: self.now, ..Ask::new(page, pages, self.file_pages) }
    }

    /// A read of pages `first .. first + count` of a file.
    pub fn read(&mut self, file: usize, first: u64, count: u64) {
        self.read_bytes(file, first * PAGE_SIZE, count * PAGE_SIZE);
    }

    /// A read of some bytes of a file.
    pub fn read_bytes(&mut self, file: usize, offset: u64, bytes: u64) {
        let (first, end) = (offset / PAGE_SIZE, (offset + bytes).div_ceil(PAGE_SIZE));
        let mut call_at = first;
        for page in first..end {
            let ask = self.ask(page, end - page);
            if self.policy.watches() && page == call_at {
                let mut reads = Reads::new(self.file_pages);
                let (state, pages) = &mut self.files[file];
                call_at = self.policy.watch(state, &ask, pages, &mut reads);
                self.carry_out(file, &reads);
            }
            if !self.files[file].1.holds(page) {
                let mut reads = Reads::new(self.file_pages);
                let (state, pages) = &mut self.files[file];
                self.policy.missing(state, &ask, pages, &mut reads);
                self.carry_out(file, &reads);
                if !self.files[file].1.holds(page) {
                    self.single(file, page);
                }
            }
            self.find(file, &ask);
        }
        self.policy.finished(&mut self.files[file].0, offset + bytes);
    }

    fn single(&mut self, file: usize, page: u64) {
        let mut reads = Reads::new(self.file_pages);
        reads.push(Extent { start: page, pages: 1, marker: None, cause: Cause::Random });
        self.carry_out(file, &reads);
    }

    /// A page that is there is used, and its mark followed.
    fn find(&mut self, file: usize, ask: &Ask) {
        let (state, pages) = &mut self.files[file];
        self.counts.used += 1;
        pages.unused.remove(&ask.page);
        if pages.marks.remove(&ask.page) {
            let mut reads = Reads::new(self.file_pages);
            self.policy.marked(state, ask, pages, &mut reads);
            self.carry_out(file, &reads);
        }
    }

    /// Advice for a file.
    pub fn advise(&mut self, file: usize, advice: Advice) {
        let mut reads = Reads::new(self.file_pages);
        let (state, pages) = &mut self.files[file];
        self.policy.advise(state, advice, pages, &mut reads);
        self.carry_out(file, &reads);
    }

    /// A touch of a page through a mapping.
    pub fn touch(&mut self, file: usize, page: u64, advice: MapAdvice) {
        let mut fault = Fault { ask: self.ask(page, 1), advice, marked: false, arriving: false };
        let mut reads = Reads::new(self.file_pages);
        let (state, pages) = &mut self.files[file];
        if pages.holds(page) {
            fault.marked = pages.marks.remove(&page);
            self.policy.fault_cached(state, &fault, pages, &mut reads);
        } else {
            self.policy.fault_missing(state, &fault, pages, &mut reads);
        }
        self.counts.used += 1;
        self.carry_out(file, &reads);
        if !self.files[file].1.holds(page) {
            self.single(file, page);
        }
        self.files[file].1.unused.remove(&page);
    }

    /// What was read since the last call, as the specification writes it: `init[0,+4 @1]`.
    pub fn trace(&mut self) -> Vec<String> {
        self.log.drain(..).map(|extent| written(&extent)).collect()
    }
}

/// `kind[start,+pages @marker]`.
pub fn written(extent: &Extent) -> String {
    let kind = match extent.cause {
        Cause::Initial => "init",
        Cause::Sequential => "seq",
        Cause::Next => "next",
        Cause::Marked => "mark",
        Cause::Context => "ctx",
        Cause::Random => "rand",
        Cause::Around => "around",
        Cause::Forced => "forced",
        Cause::Backward => "back",
        Cause::Strided => "stride",
    };
    let marker = extent.marker.map(|marker| format!(" @{marker}")).unwrap_or_default();
    format!("{kind}[{},+{}{marker}]", extent.start, extent.pages)
}
