//! A cached file over stores that fail, lose power, and count.

mod length;
mod shared;
mod writing;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use overspill_mm::fileread::policy::{Config, Policy};
use overspill_mm::fileread::{Advice, adaptive};
use overspill_sys::{Errno, PAGE_SIZE};

use super::cache::{Cache, FIRST, Run};
use super::room::{Frames, Share};
use super::store::{Page, Store};
use super::threads::{Job, Threads};
use super::{Error, File, FileStats, Inode};

/// What somebody else does meanwhile.
type Event = Box<dyn FnOnce() + Send>;

/// A file in memory: what was written, what of it is on stable storage, and what fails.
#[derive(Default)]
struct Memory {
    written: Mutex<Vec<u8>>,
    stable: Mutex<Vec<u8>>,
    bad_page: AtomicU64,
    /// Reads give no more than so many bytes of the file.
    readable: AtomicU64,
    refuses_writes: AtomicBool,
    bad_write: AtomicU64,
    /// Syncs that fail, after which what was written is lost, as after a kernel's.
    failing_syncs: AtomicU64,
    largest_write: AtomicU64,
    /// What happens in the middle of the next sync.
    amid_sync: Mutex<Option<Event>>,
    /// Requests to read, and what each takes.
    reads: AtomicU64,
    read_us: AtomicU64,
    /// Pages that are being read, and the most that were at a time.
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
    syncs: AtomicU64,
    /// Requests to write, and those that left zeroes before them.
    writes: AtomicU64,
    holes: AtomicU64,
    /// Requests to write that are under way, the most that were at a time, and what each takes.
    writing: AtomicU64,
    most_writing: AtomicU64,
    write_us: AtomicU64,
    /// What happens at the end of the next read, before anybody has what it gave.
    after_read: Mutex<Option<Event>>,
}

#[derive(Clone)]
struct Handle(Arc<Memory>);

impl Store for Handle {
    fn len(&self) -> Result<u64, Errno> {
        Ok(self.0.written.lock().unwrap().len() as u64)
    }

    fn read(&self, first: u64, pages: &mut [Page]) -> Result<u64, Errno> {
        self.0.reads.fetch_add(1, SeqCst);
        let count = pages.len() as u64;
        let in_flight = self.0.in_flight.fetch_add(count, SeqCst) + count;
        self.0.most_in_flight.fetch_max(in_flight, SeqCst);
        std::thread::sleep(std::time::Duration::from_micros(self.0.read_us.load(SeqCst)));
        self.0.in_flight.fetch_sub(count, SeqCst);
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
        let bytes = (written.len() as u64)
            .min(self.0.readable.load(SeqCst))
            .saturating_sub(at_of(first))
            .min(at_of(count));
        drop(written);
        let event = self.0.after_read.lock().unwrap().take();
        event.into_iter().for_each(|event| event());
        Ok(bytes)
    }

    fn write(&self, first: u64, pages: &[Page], len: u64) -> Result<(), Errno> {
        let number = self.0.writes.fetch_add(1, SeqCst);
        self.0.most_writing.fetch_max(self.0.writing.fetch_add(1, SeqCst) + 1, SeqCst);
        // The first takes longest.
        let times = if number == 0 { 20 } else { 1 };
        std::thread::sleep(std::time::Duration::from_micros(self.0.write_us.load(SeqCst) * times));
        self.0.writing.fetch_sub(1, SeqCst);
        let is_bad = (first..first + pages.len() as u64).contains(&self.0.bad_write.load(SeqCst));
        if is_bad || self.0.refuses_writes.load(SeqCst) {
            return Err(Errno::IO);
        }
        self.0.largest_write.fetch_max(pages.len() as u64, SeqCst);
        let mut written = self.0.written.lock().unwrap();
        self.0.holes.fetch_add(u64::from(at_of(first) > written.len() as u64), SeqCst);
        for (page, from) in (first as usize..).zip(pages) {
            let (start, end) = (page * PAGE_SIZE, ((page + 1) * PAGE_SIZE).min(len as usize));
            if written.len() < end {
                written.resize(end, 0);
            }
            written[start..end].copy_from_slice(&from.0[..end - start]);
        }
        Ok(())
    }

    fn write_part(&self, _: &[u8], _: u64) -> Result<(), Errno> {
        unreachable!("the cache writes pages")
    }

    fn set_len(&self, len: u64) -> Result<(), Errno> {
        if self.0.refuses_writes.load(SeqCst) {
            return Err(Errno::IO);
        }
        self.0.written.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self, _: bool) -> Result<(), Errno> {
        self.0.syncs.fetch_add(1, SeqCst);
        let left = self.0.failing_syncs.load(SeqCst);
        self.0.failing_syncs.store(left.saturating_sub(1), SeqCst);
        if left > 0 {
            let stable = self.0.stable.lock().unwrap().clone();
            *self.0.written.lock().unwrap() = stable;
        }
        let event = self.0.amid_sync.lock().unwrap().take();
        event.into_iter().for_each(|event| event());
        if left > 0 {
            return Err(Errno::IO);
        }
        *self.0.stable.lock().unwrap() = self.0.written.lock().unwrap().clone();
        Ok(())
    }
}

/// A cache of so many frames over `memory`; its share, and what the file's threads would be told by.
type Parts = (Cache, Arc<Share>, Sender<Job>, Receiver<Job>);

fn parts(memory: &Arc<Memory>, frames: u32) -> Parts {
    parts_by("adaptive", memory, frames)
}

/// The same with the rules of that name.
fn parts_by(name: &str, memory: &Arc<Memory>, frames: u32) -> Parts {
    let adaptive = adaptive::Config { frames: frames.into(), ..adaptive::Config::default() };
    let policy = Policy::by_name(name, Config { adaptive, ..Config::default() }).unwrap();
    let (jobs, orders) = channel();
    let share = Share::new(jobs.clone(), frames);
    let frames = Frames::fixed(Arc::clone(&share));
    let cache = Cache::new(Box::new(Handle(Arc::clone(memory))), true, policy, frames).unwrap();
    (cache, share, jobs, orders)
}

fn memory(bytes: Vec<u8>) -> Arc<Memory> {
    let memory = Memory { written: Mutex::new(bytes), ..Memory::default() };
    memory.bad_page.store(u64::MAX, SeqCst);
    memory.bad_write.store(u64::MAX, SeqCst);
    memory.readable.store(u64::MAX, SeqCst);
    Arc::new(memory)
}

/// The file of a cache, open once.
fn file_of(cache: Cache, jobs: Sender<Job>, orders: Receiver<Job>) -> File {
    let threads = Arc::new(Threads::start(cache, jobs, orders).unwrap());
    let inode = Arc::<Inode>::default();
    inode.users().threads = Some(Arc::clone(&threads));
    File::of(threads, inode, FIRST, true)
}

fn open(bytes: Vec<u8>, frames: u32) -> (File, Arc<Memory>) {
    let memory = memory(bytes);
    let (cache, _, jobs, orders) = parts(&memory, frames);
    (file_of(cache, jobs, orders), memory)
}

/// *The story:* a page that was asked for ahead was written whole before it was read, written back,
/// and gave its place away while its read was still to come: the read found no place for it; or, had
/// it been asked for again meanwhile, put the bytes there that were in the file before.
#[test]
fn what_is_still_to_be_read_keeps_its_place() {
    let (cache, ..) = parts(&memory(noise(200 * PAGE_SIZE)), 64);
    let runs = RefCell::new(Vec::new());
    let later = |run: Run| runs.borrow_mut().push(run);
    cache.advise(Advice::WillNeed { page: 0, pages: 32 }, &later);
    cache.advise(Advice::Random, &later);
    cache.write_at(&[7; PAGE_SIZE], 5 * PAGE_SIZE as u64, &later).unwrap();
    cache.write_back().unwrap();
    let mut page = [0; PAGE_SIZE];
    for other in 100..200 {
        cache.read_at(&mut page, other * PAGE_SIZE as u64, &later).unwrap();
    }
    assert!(!runs.borrow().is_empty(), "nothing was asked for ahead");
    for run in runs.take() {
        cache.fetch(run).unwrap();
    }
    cache.read_at(&mut page, 5 * PAGE_SIZE as u64, &later).unwrap();
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

fn at_of(page: u64) -> u64 {
    page * PAGE_SIZE as u64
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
    let nobody = |_: Run| panic!("nothing is read ahead");
    cache.advise(Advice::Random, &nobody);
    let mut page = [0; PAGE_SIZE];
    let read = |page: &mut [u8], first: u64, count: u64| {
        for number in first..first + count {
            cache.read_at(page, number * PAGE_SIZE as u64, &nobody).unwrap();
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
        cache.write_at(&[9; PAGE_SIZE], number * PAGE_SIZE as u64, &nobody).unwrap();
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

/// *The story:* two threads read ahead for a file, and each had 1 MiB under way at most, which is too
/// little for a fast drive.
#[test]
fn a_file_with_a_large_budget_has_eight_requests_under_way() {
    let bytes = noise(4096 * PAGE_SIZE);
    for (frames, most) in [(1 << 16, 8 * 256), (4096, 2 * 256)] {
        // On a busy machine some threads come late: then a request takes longer.
        let mut in_flight = [20_000, 100_000, 500_000].into_iter().map(|read_us| {
            let (file, memory) = open(bytes.clone(), frames);
            memory.read_us.store(read_us, SeqCst);
            file.advise(Advice::WillNeed { page: 0, pages: 4096 }).unwrap();
            let is_full = || memory.most_in_flight.load(SeqCst) >= most * 3 / 4;
            let begin = std::time::Instant::now();
            while !is_full() && begin.elapsed() < std::time::Duration::from_micros(2 * read_us) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            drop(file);
            let in_flight = memory.most_in_flight.load(SeqCst);
            assert!(in_flight <= most, "{in_flight} pages of {most}");
            in_flight
        });
        assert!(in_flight.any(|pages| pages >= most * 3 / 4), "fewer than {most}");
    }
}

/// *The story:* the policy had no clock, so that a slow reader's windows grew as a fast one's do.
#[test]
fn a_slow_reader_is_read_ahead_by_its_rate() {
    const USED: u64 = 300;
    let (file, _memory) = open(noise(8192 * PAGE_SIZE), 1 << 17);
    for page in 0..USED {
        file.read_at(&mut [0; PAGE_SIZE], at_of(page)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let stats = file.stats();
    assert!(stats.pages_read < USED + 100, "{stats:?}");
}

/// *The story:* the rules that want to see every read were never shown one: each page was a request.
#[test]
fn the_rules_of_2_6_20_read_ahead() {
    const PAGES: u64 = 1000;
    let bytes = noise(PAGES as usize * PAGE_SIZE);
    let memory = memory(bytes.clone());
    let (cache, _, jobs, orders) = parts_by("2.6.20", &memory, 4096);
    let file = file_of(cache, jobs, orders);
    for page in (0..PAGES).step_by(4) {
        let mut buffer = [0; 4 * PAGE_SIZE];
        file.read_at(&mut buffer, at_of(page)).unwrap();
        assert!(buffer[..] == bytes[page as usize * PAGE_SIZE..][..buffer.len()]);
    }
    let stats = file.stats();
    assert!(stats.reads < PAGES / 16, "{stats:?}");
    assert_eq!(stats.pages_read, PAGES, "once");
}

/// *The story:* of a hint nobody was told what was left out of it, and all that was in use left for it.
#[test]
fn a_hint_says_what_is_left_out_and_spares_what_is_in_use() {
    for name in crate::FILE_READAHEAD_NAMES {
        let memory = memory(noise(2000 * PAGE_SIZE));
        let (cache, _, jobs, orders) = parts_by(name, &memory, 256);
        let file = file_of(cache, jobs, orders);
        file.advise(Advice::Random).unwrap();
        let will_need = |page, pages| file.advise(Advice::WillNeed { page, pages }).unwrap();
        let left = will_need(1000, 500) / PAGE_SIZE as u64;
        // The rules of some kernels have less of it read, or nothing.
        assert!(if name == "adaptive" { left == 500 - 64 } else { left >= 500 - 64 }, "{name}: {left}");
        assert_eq!(will_need(1990, 500) % PAGE_SIZE as u64, 0);
        for page in (1000..1064).chain(1990..2000) {
            file.read_at(&mut [0; PAGE_SIZE], at_of(page)).unwrap();
        }
        for _ in 0..3 {
            for page in 0..256 {
                file.read_at(&mut [0; PAGE_SIZE], at_of(page)).unwrap();
            }
        }
        let misses = file.stats().misses;
        assert_eq!(will_need(1500, 500), 500 * PAGE_SIZE as u64, "{name}: there is no room but theirs");
        for page in 0..256 {
            file.read_at(&mut [0; PAGE_SIZE], at_of(page)).unwrap();
        }
        assert_eq!(file.stats().misses, misses, "{name}: what was in use has left");
    }
}

/// *The story:* how long a file is was known from when it was opened. What others appended to it was
/// never seen, and what they cut off was zeroes.
#[test]
fn what_others_append_is_seen_and_what_they_cut_off_is_not() {
    let (file, memory) = open(noise(10 * PAGE_SIZE + 100), 64);
    let read = |offset: usize| {
        let mut buffer = vec![9; 30 * PAGE_SIZE];
        let count = file.read_at(&mut buffer, offset as u64).unwrap();
        buffer.truncate(count);
        buffer
    };
    assert_eq!(read(0).len(), 10 * PAGE_SIZE + 100);
    let grown = noise(20 * PAGE_SIZE + 50);
    *memory.written.lock().unwrap() = grown.clone();
    assert!(read(0) == grown, "what was appended, in the page that ended before, too");
    assert_eq!(file.len(), grown.len() as u64);
    // What is newer than the file stays, with what is before it.
    file.write_at(b"mine", at_of(22)).unwrap();
    memory.written.lock().unwrap().truncate(5 * PAGE_SIZE + 7);
    file.sync().unwrap();
    assert_eq!(file.len(), at_of(22) + 4);
    memory.written.lock().unwrap().truncate(5 * PAGE_SIZE + 7);
    file.sync().unwrap();
    assert_eq!(file.len(), at_of(5) + 7);
    *memory.written.lock().unwrap() = grown.clone();
    assert!(read(0) == grown, "nothing is left of what was cut off");
    // A read that is cut on its way is short.
    let (file, memory) = open(noise(100 * PAGE_SIZE), 64);
    file.advise(Advice::Random).unwrap();
    memory.written.lock().unwrap().truncate(50 * PAGE_SIZE + 9);
    let mut buffer = vec![9; 60 * PAGE_SIZE];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 50 * PAGE_SIZE + 9);
    assert_eq!(file.len(), at_of(50) + 9);
}

/// *The story:* what others appended was not seen behind a page that was newer than the file. It was
/// zeroes, and the next store to the page in which the file had ended wrote these over it.
#[test]
fn what_others_append_before_what_is_newer_is_seen() {
    for is_settled in [true, false] {
        let (file, memory) = open(noise(100), 64);
        let grown = noise(300);
        if is_settled {
            file.read_at(&mut [0; 100], 0).unwrap();
        } else {
            // The page is to be settled when the file grows.
            file.write_at(&grown[..1], 0).unwrap();
            file.cache.write_back().unwrap();
        }
        *memory.written.lock().unwrap() = grown.clone();
        file.write_at(b"mine", at_of(5)).unwrap();
        file.sync().unwrap();
        let mut head = [9; 300];
        assert_eq!(file.read_at(&mut head, 0).unwrap(), 300);
        assert!(head[..] == grown, "{is_settled}: it is not seen");
        file.write_at(b"x", 50).unwrap();
        file.sync().unwrap();
        let stable = memory.stable.lock().unwrap();
        assert!(stable[..50] == grown[..50] && stable[51..300] == grown[51..], "{is_settled}: it is gone");
        assert!(stable[50] == b'x' && stable[at_of(5) as usize..] == *b"mine");
    }
}

/// *The story:* a file of sysfs says that it has 4096 bytes, and a few can be read. The rest was zeroes,
/// as if they had been read.
#[test]
fn what_cannot_be_read_of_a_file_is_no_zeroes() {
    let (file, memory) = open(noise(PAGE_SIZE), 64);
    memory.readable.store(20, SeqCst);
    assert!(matches!(file.read_at(&mut [0; PAGE_SIZE], 0), Err(Error::Io(Errno::IO))));
    memory.readable.store(u64::MAX, SeqCst);
    let mut page = [9; PAGE_SIZE];
    file.read_at(&mut page, 0).unwrap();
    assert!(page[..] == noise(PAGE_SIZE), "nothing of it is kept");
}

/// *The story:* as long as a page behind it was newer than the file, what others cut off was there
/// still: for whoever looked before that page was written, and for good after it was.
#[test]
fn a_cut_below_what_is_newer_is_followed() {
    let bytes = noise(30 * PAGE_SIZE);
    for looks in [true, false] {
        let (file, memory) = open(bytes.clone(), 64);
        let mut all = vec![9; 30 * PAGE_SIZE];
        file.read_at(&mut all, 0).unwrap();
        file.write_at(&[7; PAGE_SIZE], at_of(22)).unwrap();
        memory.written.lock().unwrap().truncate(5 * PAGE_SIZE + 7);
        if looks {
            file.read_at(&mut [0], at_of(40)).unwrap();
        } else {
            file.sync().unwrap();
        }
        let count = file.read_at(&mut all, 0).unwrap();
        assert_eq!(count, 23 * PAGE_SIZE);
        let (kept, cut) = all[..count].split_at(5 * PAGE_SIZE + 7);
        let (between, own) = cut.split_at(17 * PAGE_SIZE - 7);
        assert!(*kept == bytes[..kept.len()] && own.iter().all(|&byte| byte == 7));
        assert!(between.iter().all(|&byte| byte == 0), "{looks}: what was cut off is there");
        file.sync().unwrap();
        assert!(memory.stable.lock().unwrap()[..] == all[..count]);
    }
}

/// *The story:* a page that had to stay, since it was not settled, kept its bytes behind the new end;
/// when the file grew they were there again.
#[test]
fn what_stays_across_a_cut_has_nothing_behind_it() {
    let (file, memory) = open(noise(10 * PAGE_SIZE), 64);
    file.write_at(&[7; PAGE_SIZE], at_of(5)).unwrap();
    file.cache.write_back().unwrap();
    memory.written.lock().unwrap().truncate(5 * PAGE_SIZE + 7);
    assert_eq!(file.read_at(&mut [0], at_of(8)).unwrap(), 0);
    file.write_at(&[8], at_of(8)).unwrap();
    let mut page = [9; PAGE_SIZE];
    file.read_at(&mut page, at_of(5)).unwrap();
    assert!(page[..7] == [7; 7] && page[7..].iter().all(|&byte| byte == 0));
}

/// *The story:* what was read before a cut, and arrived after it, showed what had been cut off.
#[test]
fn what_is_cut_on_its_way_is_read_again() {
    let memory = memory(noise(10 * PAGE_SIZE));
    let (cache, ..) = parts(&memory, 64);
    let cache = Arc::new(cache);
    cache.advise(Advice::Random, &|_: Run| ());
    cache.write_at(&[7], at_of(9), &|_: Run| ()).unwrap();
    let (other, cut) = (Arc::downgrade(&cache), Arc::clone(&memory));
    *memory.after_read.lock().unwrap() = Some(Box::new(move || {
        cut.written.lock().unwrap().truncate(5 * PAGE_SIZE + 7);
        let cache = other.upgrade().expect("it is read");
        cache.read_at(&mut [0], at_of(20), &|_: Run| ()).unwrap();
    }));
    let mut page = [9; PAGE_SIZE];
    cache.read_at(&mut page, at_of(6), &|_: Run| ()).unwrap();
    assert!(page == [0; PAGE_SIZE]);
}

/// *The story:* a file was cut and written anew, as `cp` does it. A read in between was short, but when
/// the file was asked for its length that was as before: zeroes stayed that nobody has written.
#[test]
fn a_short_read_of_a_file_that_is_whole_again_is_read_again() {
    let bytes = noise(10 * PAGE_SIZE);
    let (file, memory) = open(bytes.clone(), 64);
    file.advise(Advice::Random).unwrap();
    memory.written.lock().unwrap().truncate(3 * PAGE_SIZE + 9);
    let (whole, again) = (bytes.clone(), Arc::clone(&memory));
    *memory.after_read.lock().unwrap() = Some(Box::new(move || *again.written.lock().unwrap() = whole));
    let mut page = [9; PAGE_SIZE];
    file.read_at(&mut page, at_of(6)).unwrap();
    assert!(page[..] == bytes[6 * PAGE_SIZE..7 * PAGE_SIZE]);
}

/// *The story:* the first store into an empty file, not at its start, divided by the file's pages.
#[test]
fn an_empty_file_takes_a_write_anywhere() {
    for name in crate::FILE_READAHEAD_NAMES {
        for advice in [Advice::Normal, Advice::Sequential, Advice::Random] {
            for offset in [0, 1, PAGE_SIZE - 1, PAGE_SIZE, 5 * PAGE_SIZE + 7] {
                let memory = memory(Vec::new());
                let (cache, _, jobs, orders) = parts_by(name, &memory, 64);
                let file = file_of(cache, jobs, orders);
                file.advise(advice).unwrap();
                assert_eq!(file.read_at(&mut [0; 10], offset as u64).unwrap(), 0);
                file.write_at(b"x", offset as u64).unwrap();
                let mut all = vec![9; offset + 10];
                assert_eq!(file.read_at(&mut all, 0).unwrap(), offset + 1);
                assert!(
                    all[..offset].iter().all(|&byte| byte == 0) && all[offset] == b'x',
                    "{name} {offset}"
                );
                file.sync().unwrap();
                assert!(memory.stable.lock().unwrap()[..] == all[..=offset]);
            }
        }
    }
}

/// *The story:* the first reader went on when the second could not be started, and with it the cache
/// and all its frames.
#[test]
fn a_file_that_cannot_have_its_readers_leaves_nothing_behind() {
    for started in 0..2 {
        let (cache, share, jobs, orders) = parts(&memory(noise(PAGE_SIZE)), 64);
        let mut left = started;
        let outcome = Threads::start_by(cache, jobs, orders, |named, reader| {
            let may = left > 0;
            left -= usize::from(may);
            if may { named.spawn(reader) } else { Err(std::io::Error::from_raw_os_error(libc::EAGAIN)) }
        });
        assert!(matches!(outcome, Err(Error::Start(_, Errno::AGAIN))));
        assert_eq!(Arc::strong_count(&share), 1, "the cache is there still");
    }
}

/// *The story:* frames were asked back while a file settled: it gave back more than it had dropped, and
/// found nothing to do from then on.
#[test]
fn what_takes_ram_was_granted_whenever_it_is_asked_back() {
    let memory = memory(noise(400 * PAGE_SIZE));
    let (cache, share, _jobs, _orders) = parts(&memory, 300);
    let runs = RefCell::new(Vec::new());
    let later = |run: Run| runs.borrow_mut().push(run);
    cache.advise(Advice::Random, &later);
    let mut page = [0; PAGE_SIZE];
    for number in 0..300 {
        cache.read_at(&mut page, number * PAGE_SIZE as u64, &later).unwrap();
    }
    // Pages leave for those that cannot be read, so that there are frames without a page.
    memory.bad_page.store(350, SeqCst);
    cache.advise(Advice::WillNeed { page: 300, pages: 100 }, &later);
    runs.take().into_iter().for_each(|run| assert!(cache.fetch(run).is_err()));
    assert_eq!((cache.stats().cached, cache.populated()), (225, 300), "a quarter at most");
    share.owe(50);
    cache.settle_while(|| share.owe(100));
    assert_eq!((cache.populated(), share.granted()), (250, 250), "granted as much as takes RAM");
    cache.give_back();
    assert_eq!((cache.populated(), share.granted()), (150, 150));
}

/// Forks; the child ends with what `body` gives. It allocates nothing: how it ended within a second.
fn in_child(body: impl FnOnce() -> i32) -> Option<i32> {
    // SAFETY: the child takes no lock of the parent's that it would wait for, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = body();
        // SAFETY: nothing of the test harness runs in the child.
        unsafe { libc::_exit(code) };
    }
    assert!(child > 0);
    let (mut status, begin) = (0, std::time::Instant::now());
    // SAFETY: the status is written to a number of ours.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if begin.elapsed() > std::time::Duration::from_secs(20) {
            // SAFETY: the child is ours, and was not waited for.
            unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, &raw mut status, 0)) };
            return None;
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    Some(status)
}

/// *The story:* a child of fork waited for ever for a lock that a thread of its parent's had held when
/// it forked, to read, and to ask how long the file is.
#[test]
fn a_child_reads_or_is_refused_whatever_its_parents_threads_did() {
    const PAGES: u64 = 4096;
    let bytes = noise(PAGES as usize * PAGE_SIZE);
    let (file, _) = open(bytes.clone(), 1024);
    let body = || {
        let mut page = [0; PAGE_SIZE];
        let (mut read, mut refused) = (false, false);
        for number in (0..PAGES).step_by(61) {
            let at = number * PAGE_SIZE as u64;
            match file.read_at(&mut page, at) {
                Ok(_) if page[..] != bytes[at as usize..][..PAGE_SIZE] => return 4,
                Ok(_) => read = true,
                Err(Error::Io(Errno::CHILD)) => refused = true,
                Err(_) => return 5,
            }
            if number > 0 && refused && !read {
                break;
            }
        }
        if file.len() != bytes.len() as u64 || file.stats().cached > 2 * PAGES {
            return 6;
        }
        file.write_at(b"x", 0).is_ok().into()
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for start in 0..2 {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let mut buffer = vec![0; 64 * PAGE_SIZE];
                let mut at = start * PAGES / 2;
                while !done.load(SeqCst) {
                    file.read_at(&mut buffer, at * PAGE_SIZE as u64).unwrap();
                    at = (at + 64) % PAGES;
                }
            });
        }
        let ends: Vec<Option<i32>> = (0..200).map(|_| in_child(body)).collect();
        done.store(true, SeqCst);
        assert!(ends.iter().all(|&end| end == Some(0)), "{ends:?}");
    });
    // The moment itself: whoever forks is at the books.
    file.cache.while_locked(|| {
        let refused = || i32::from(!matches!(file.read_at(&mut [0], 0), Err(Error::Io(Errno::CHILD))));
        assert_eq!(in_child(refused), Some(0));
        let known = || i32::from(file.len() != bytes.len() as u64 || file.stats() != FileStats::default());
        assert_eq!(in_child(known), Some(0));
    });
}
