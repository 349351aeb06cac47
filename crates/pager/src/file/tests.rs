//! A cached file over stores that fail, lose power, and count.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use overspill_mm::fileread::policy::{Config, Policy};
use overspill_mm::fileread::{Advice, adaptive};
use overspill_sys::{Errno, PAGE_SIZE};

use super::cache::Cache;
use super::room::{Frames, Share};
use super::store::{Page, Store};
use super::{Error, File, Job};

/// A file in memory: what was written, what of it is on stable storage, and what fails.
#[derive(Default)]
struct Memory {
    written: Mutex<Vec<u8>>,
    stable: Mutex<Vec<u8>>,
    bad_page: AtomicU64,
    refuses_writes: AtomicBool,
    /// Syncs that fail, after which what was written is lost, as after a kernel's.
    failing_syncs: AtomicU64,
    largest_write: AtomicU64,
    /// Requests to read, and what each takes.
    reads: AtomicU64,
    read_us: AtomicU64,
}

#[derive(Clone)]
struct Handle(Arc<Memory>);

impl Store for Handle {
    fn len(&self) -> Result<u64, Errno> {
        Ok(self.0.written.lock().unwrap().len() as u64)
    }

    fn read(&self, first: u64, pages: &mut [Page]) -> Result<(), Errno> {
        self.0.reads.fetch_add(1, SeqCst);
        std::thread::sleep(std::time::Duration::from_micros(self.0.read_us.load(SeqCst)));
        let bad = self.0.bad_page.load(SeqCst);
        if (first..first + pages.len() as u64).contains(&bad) {
            return Err(Errno::IO);
        }
        let written = self.0.written.lock().unwrap();
        for (page, to) in (first as usize..).zip(pages) {
            let from = &written[(page * PAGE_SIZE).min(written.len())..];
            let count = from.len().min(PAGE_SIZE);
            to.0[..count].copy_from_slice(&from[..count]);
            to.0[count..].fill(0);
        }
        Ok(())
    }

    fn write(&self, first: u64, pages: &[Page], len: u64) -> Result<(), Errno> {
        if self.0.refuses_writes.load(SeqCst) {
            return Err(Errno::IO);
        }
        self.0.largest_write.fetch_max(pages.len() as u64, SeqCst);
        let mut written = self.0.written.lock().unwrap();
        for (page, from) in (first as usize..).zip(pages) {
            let (start, end) = (page * PAGE_SIZE, ((page + 1) * PAGE_SIZE).min(len as usize));
            if written.len() < end {
                written.resize(end, 0);
            }
            written[start..end].copy_from_slice(&from.0[..end - start]);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        let left = self.0.failing_syncs.load(SeqCst);
        if left > 0 {
            self.0.failing_syncs.store(left - 1, SeqCst);
            let stable = self.0.stable.lock().unwrap().clone();
            self.0.written.lock().unwrap()[..stable.len()].copy_from_slice(&stable);
            return Err(Errno::IO);
        }
        *self.0.stable.lock().unwrap() = self.0.written.lock().unwrap().clone();
        Ok(())
    }
}

/// A cache of so many frames over `memory`; its share, and what the file's threads would be told by.
type Parts = (Cache, Arc<Share>, Sender<Job>, Receiver<Job>);

fn parts(memory: &Arc<Memory>, frames: u32) -> Parts {
    let adaptive = adaptive::Config { frames: frames.into(), ..adaptive::Config::default() };
    let policy = Policy::by_name("adaptive", Config { adaptive, ..Config::default() }).unwrap();
    let (jobs, orders) = channel();
    let share = Share::new(jobs.clone(), frames);
    let frames = Frames::fixed(Arc::clone(&share));
    let cache = Cache::new(Box::new(Handle(Arc::clone(memory))), policy, frames).unwrap();
    (cache, share, jobs, orders)
}

fn memory(bytes: Vec<u8>) -> Arc<Memory> {
    let memory = Memory { written: Mutex::new(bytes), ..Memory::default() };
    memory.bad_page.store(u64::MAX, SeqCst);
    Arc::new(memory)
}

fn open(bytes: Vec<u8>, frames: u32) -> (File, Arc<Memory>) {
    let memory = memory(bytes);
    let (cache, _, jobs, orders) = parts(&memory, frames);
    (File::with(cache, jobs, orders).unwrap(), memory)
}

/// *The story:* a page that was asked for ahead was written whole before it was read, written back,
/// and gave its place away while its read was still to come: the read found no place for it; or, had
/// it been asked for again meanwhile, put the bytes there that were in the file before.
#[test]
fn what_is_still_to_be_read_keeps_its_place() {
    let (cache, ..) = parts(&memory(noise(200 * PAGE_SIZE)), 64);
    let runs = RefCell::new(Vec::new());
    let later = |run| runs.borrow_mut().push(run);
    cache.advise(Advice::WillNeed { page: 0, pages: 32 }, later);
    cache.advise(Advice::Random, later);
    cache.write_at(&[7; PAGE_SIZE], 5 * PAGE_SIZE as u64, later).unwrap();
    cache.write_back().unwrap();
    let mut page = [0; PAGE_SIZE];
    for other in 100..200 {
        cache.read_at(&mut page, other * PAGE_SIZE as u64, later).unwrap();
    }
    assert!(!runs.borrow().is_empty(), "nothing was asked for ahead");
    for run in runs.take() {
        cache.fetch(run).unwrap();
    }
    cache.read_at(&mut page, 5 * PAGE_SIZE as u64, later).unwrap();
    assert!(page == [7; PAGE_SIZE]);
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn reads_give_what_is_in_the_file() {
    let bytes = noise(300 * PAGE_SIZE + 777);
    let (file, _) = open(bytes.clone(), 64);
    let mut seed = 3u64;
    for round in 0..2000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = if round % 2 == 0 { round * 500 } else { (seed >> 33) % bytes.len() as u64 };
        let mut buffer = [0; 9000];
        let count = file.read_at(&mut buffer, offset).unwrap();
        let from = &bytes[(offset as usize).min(bytes.len())..];
        assert_eq!(count, from.len().min(buffer.len()));
        assert!(buffer[..count] == from[..count], "{offset}");
    }
    let stats = file.stats();
    assert!(stats.cached <= 64 + 8, "room for what was waited for is made up for: {stats:?}");
    assert!(stats.pages_read > stats.cached && stats.reads < stats.pages_read, "{stats:?}");
}

#[test]
fn what_was_synced_is_on_stable_storage_and_the_rest_is_no_part_of_a_page() {
    let (file, memory) = open(noise(100 * PAGE_SIZE), 64);
    let mut model = noise(100 * PAGE_SIZE);
    for n in 0..3000usize {
        let (offset, len) = (n * 7919 % (120 * PAGE_SIZE), 1 + n % 5000);
        let bytes: Vec<u8> = (0..len).map(|at| (n + at) as u8).collect();
        file.write_at(&bytes, offset as u64).unwrap();
        if model.len() < offset + len {
            model.resize(offset + len, 0);
        }
        model[offset..offset + len].copy_from_slice(&bytes);
        if n % 1000 == 999 {
            file.sync().unwrap();
            assert!(*memory.stable.lock().unwrap() == model, "after {n}");
            assert_eq!(file.stats().dirty, 0);
        }
    }
    assert_eq!(file.len(), model.len() as u64);
    let mut all = vec![0; model.len()];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), model.len());
    assert!(all == model);
    assert!(memory.largest_write.load(SeqCst) >= 16, "neighbours are written together");
}

#[test]
fn a_failure_to_write_is_told_once_and_nothing_is_lost() {
    let (file, memory) = open(vec![0; 10 * PAGE_SIZE], 64);
    file.write_at(&[7; 3 * PAGE_SIZE], 0).unwrap();
    memory.refuses_writes.store(true, SeqCst);
    assert!(matches!(file.sync(), Err(Error::Io(Errno::IO))));
    assert_eq!(file.stats().dirty, 3, "what could not be written is kept");
    memory.refuses_writes.store(false, SeqCst);
    file.sync().unwrap();
    assert!(memory.stable.lock().unwrap()[..3 * PAGE_SIZE].iter().all(|&byte| byte == 7));
    // A failure between two syncs is told by the second.
    file.write_at(&[8; PAGE_SIZE], 0).unwrap();
    memory.refuses_writes.store(true, SeqCst);
    file.cache.write_back().unwrap_err();
    memory.refuses_writes.store(false, SeqCst);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(memory.stable.lock().unwrap()[0], 8);
}

/// *The story:* what a sync could not settle was clean for the cache, so the next sync wrote nothing,
/// asked the kernel, which had told its error already, and said that all was well.
#[test]
fn what_a_failed_sync_did_not_settle_is_written_again() {
    let (file, memory) = open(vec![1; 10 * PAGE_SIZE], 64);
    file.sync().unwrap();
    file.write_at(&[7; 2 * PAGE_SIZE], 0).unwrap();
    file.cache.write_back().unwrap();
    file.write_at(&[8; PAGE_SIZE], 5 * PAGE_SIZE as u64).unwrap();
    memory.failing_syncs.store(2, SeqCst);
    assert!(file.sync().is_err() && file.sync().is_err(), "each sync that failed says so");
    assert_eq!(file.stats().dirty, 3);
    file.sync().unwrap();
    let stable = memory.stable.lock().unwrap();
    assert!(stable[..2 * PAGE_SIZE].iter().all(|&byte| byte == 7));
    assert!(stable[5 * PAGE_SIZE..6 * PAGE_SIZE].iter().all(|&byte| byte == 8));
}

#[test]
fn a_bad_page_fails_alone() {
    let (file, memory) = open(noise(200 * PAGE_SIZE), 64);
    memory.bad_page.store(50, SeqCst);
    let mut page = [0; PAGE_SIZE];
    for n in 0..200 {
        let outcome = file.read_at(&mut page, n * PAGE_SIZE as u64);
        assert_eq!(outcome.is_err(), n == 50, "page {n}: {outcome:?}");
    }
    memory.bad_page.store(u64::MAX, SeqCst);
    assert!(file.read_at(&mut page, 50 * PAGE_SIZE as u64).is_ok());
}

/// Pages that each of some laps over the whole file read.
fn laps(file: &File, pages: u64, order: impl Fn(u64) -> u64, count: usize) -> Vec<u64> {
    let mut page = [0; PAGE_SIZE];
    let mut lap = || {
        let before = file.stats().pages_read;
        for n in 0..pages {
            file.read_at(&mut page, order(n) * PAGE_SIZE as u64).unwrap();
        }
        file.stats().pages_read - before
    };
    (0..count).map(|_| lap()).collect()
}

/// *The story:* a loop over a file of twice the cache read all of it on each lap.
#[test]
fn a_loop_keeps_what_fits() {
    const PAGES: u64 = 8192;
    for way in [|n: u64| n, |n: u64| PAGES - 1 - n] {
        let (file, _) = open(noise(PAGES as usize * PAGE_SIZE), PAGES as u32 / 2);
        let read = laps(&file, PAGES, way, 6);
        assert!(read[0] <= PAGES + 64, "{read:?}");
        let settled: u64 = read[2..].iter().sum();
        assert!(settled <= 4 * PAGES / 2 * 108 / 100, "half of it does not fit: {read:?}");
    }
}

/// What was read once and is not used again gives way to what is.
#[test]
fn a_file_that_was_read_once_gives_way() {
    const PAGES: u64 = 8192;
    let (file, _) = open(noise(PAGES as usize * PAGE_SIZE), PAGES as u32 / 2);
    laps(&file, PAGES / 2, |n| n, 1);
    // Three quarters of the cache, elsewhere.
    let read = laps(&file, PAGES * 3 / 8, |n| PAGES / 2 + n, 100);
    assert!(read[90..].iter().all(|&read| read < PAGES / 16), "{read:?}");
}

/// *The story:* frames beyond those that there were, for a page that somebody waited for, were made up
/// for by the next read of the same file. One that was only written to, or left alone, kept them.
#[test]
fn what_is_asked_back_is_given_back_by_whoever_is_there() {
    let (cache, share, _jobs, orders) = parts(&memory(noise(2000 * PAGE_SIZE)), 1000);
    let nobody = |_| panic!("nothing is read ahead");
    cache.advise(Advice::Random, nobody);
    let mut page = [0; PAGE_SIZE];
    let read = |page: &mut [u8], first: u64, count: u64| {
        for number in first..first + count {
            cache.read_at(page, number * PAGE_SIZE as u64, nobody).unwrap();
        }
    };
    read(&mut page, 0, 1000);
    assert!(cache.stats().cached > 900);
    // A file that nobody uses: its threads do it.
    share.owe(300);
    assert_eq!(orders.try_recv(), Ok(Job::GiveBack));
    cache.give_back();
    assert!(cache.stats().cached <= 700 && cache.populated() <= 700, "{}", cache.populated());
    // Dirty pages are written before they go.
    (0..600).for_each(|number| {
        cache.write_at(&[9; PAGE_SIZE], number * PAGE_SIZE as u64, nobody).unwrap();
    });
    share.owe(400);
    cache.give_back();
    assert!(cache.stats().cached <= 300 && cache.populated() <= 300, "{}", cache.populated());
    // Whoever reads does it.
    share.owe(100);
    read(&mut page, 0, 1);
    assert!(cache.stats().cached <= 200 && cache.populated() <= 200);
    (0..600).for_each(|number| {
        read(&mut page, number, 1);
        assert!(page == [9; PAGE_SIZE], "page {number}");
    });
}

/// *The story:* all that had been ordered ahead was read before a file could be closed.
#[test]
fn a_file_that_is_closed_reads_nothing_more() {
    const PAGES: u64 = 20_000;
    let (file, memory) = open(noise(PAGES as usize * PAGE_SIZE), PAGES as u32 * 2);
    memory.read_us.store(2_000, SeqCst);
    file.advise(Advice::WillNeed { page: 0, pages: PAGES }).unwrap();
    drop(file);
    let read = memory.reads.load(SeqCst);
    assert!(read < PAGES / 256 / 2, "{read} requests");
}
