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
use super::{Error, File, FileStats, Job};

/// What somebody else does meanwhile.
type Event = Box<dyn FnOnce() + Send>;

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
    /// What happens in the middle of a write that begins with a page, or of the next sync.
    amid_writes: Mutex<Vec<(u64, Event)>>,
    amid_sync: Mutex<Option<Event>>,
    /// Requests to read, and what each takes.
    reads: AtomicU64,
    read_us: AtomicU64,
}

#[derive(Clone)]
struct Handle(Arc<Memory>);

impl Store for Handle {
    fn is_writable(&self) -> bool {
        true
    }

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
        let mut events = self.0.amid_writes.lock().unwrap();
        let event = events.iter().position(|(page, _)| *page == first).map(|at| events.swap_remove(at).1);
        drop(events);
        event.into_iter().for_each(|event| event());
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
        self.0.failing_syncs.store(left.saturating_sub(1), SeqCst);
        if left > 0 {
            let stable = self.0.stable.lock().unwrap().clone();
            self.0.written.lock().unwrap()[..stable.len()].copy_from_slice(&stable);
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

/// *The story:* a device failed while two threads were in a sync. It tells its failure once, so one of
/// them heard of it, before what it had not settled was dirty again; the other found nothing dirty,
/// nothing unsettled and a device without complaints, and was told that all was well.
#[test]
fn of_two_syncs_at_once_one_is_told_and_the_other_means_what_it_says() {
    let (file, memory) = open(vec![1; 10 * PAGE_SIZE], 64);
    file.sync().unwrap();
    file.write_at(&[7; 2 * PAGE_SIZE], 0).unwrap();
    memory.failing_syncs.store(1, SeqCst);
    let (inside, is_inside) = channel();
    *memory.amid_sync.lock().unwrap() = Some(Box::new(move || {
        inside.send(()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }));
    let sync = || {
        let outcome = file.sync();
        let is_stable = memory.stable.lock().unwrap()[..2 * PAGE_SIZE].iter().all(|&byte| byte == 7);
        assert!(outcome.is_err() || is_stable, "what was synced is not on stable storage");
        outcome.is_err()
    };
    let told = std::thread::scope(|scope| {
        let first = scope.spawn(sync);
        is_inside.recv().unwrap();
        let second = sync();
        u32::from(first.join().unwrap()) + u32::from(second)
    });
    assert_eq!(told, 1, "a failure is told once");
    file.sync().unwrap();
}

/// *The story:* whoever wrote behind all that there was of the last page kept nothing of it. But room
/// had to be made first, and while that was written back somebody else wrote to the rest of the page,
/// which was written back and left, too; what it held was not asked for again, and was lost.
#[test]
fn a_page_that_grew_while_room_was_made_for_it_keeps_what_it_has() {
    const LAST: u64 = 30;
    let memory = memory(noise(LAST as usize * PAGE_SIZE));
    let (cache, ..) = parts(&memory, 3);
    let cache = Arc::new(cache);
    let nobody = |_| panic!("nothing is read ahead");
    cache.advise(Advice::Random, nobody);
    for page in [0, 2, 4] {
        cache.write_at(&[page as u8; PAGE_SIZE], at_of(page), nobody).unwrap();
    }
    let event = |event: fn(&Cache)| -> Event {
        let cache = Arc::downgrade(&cache);
        Box::new(move || event(&cache.upgrade().expect("it is written to")))
    };
    let events = [
        (2, event(|cache| cache.write_at(&[8; 100], at_of(LAST) + 200, |_| ()).unwrap())),
        (LAST, event(|cache| cache.write_at(&[9], at_of(LAST + 1), |_| ()).unwrap())),
        (
            LAST + 1,
            event(|cache| {
                for page in 10..20 {
                    cache.read_at(&mut [0; PAGE_SIZE], at_of(page), |_| ()).unwrap();
                }
            }),
        ),
    ];
    memory.amid_writes.lock().unwrap().extend(events);
    cache.write_at(&[7; 100], at_of(LAST), nobody).unwrap();
    assert!(memory.amid_writes.lock().unwrap().is_empty(), "all of it happened");
    let mut page = [0; PAGE_SIZE];
    cache.read_at(&mut page, at_of(LAST), nobody).unwrap();
    assert!(page[..100] == [7; 100] && page[200..300] == [8; 100], "what another wrote is lost");
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

/// *The story:* the first store into an empty file, not at its start, divided by the file's pages.
#[test]
fn an_empty_file_takes_a_write_anywhere() {
    for name in crate::FILE_READAHEAD_NAMES {
        for advice in [Advice::Normal, Advice::Sequential, Advice::Random] {
            for offset in [0, 1, PAGE_SIZE - 1, PAGE_SIZE, 5 * PAGE_SIZE + 7] {
                let memory = memory(Vec::new());
                let (cache, _, jobs, orders) = parts_by(name, &memory, 64);
                let file = File::with(cache, jobs, orders).unwrap();
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
        let outcome = File::with_readers(cache, jobs, orders, |named, reader| {
            let may = left > 0;
            left -= usize::from(may);
            if may { named.spawn(reader) } else { Err(std::io::Error::from_raw_os_error(libc::EAGAIN)) }
        });
        assert!(matches!(outcome, Err(Error::Stopped)));
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
    let later = |run| runs.borrow_mut().push(run);
    cache.advise(Advice::Random, later);
    let mut page = [0; PAGE_SIZE];
    for number in 0..300 {
        cache.read_at(&mut page, number * PAGE_SIZE as u64, later).unwrap();
    }
    // Pages leave for those that cannot be read, so that there are frames without a page.
    memory.bad_page.store(350, SeqCst);
    cache.advise(Advice::WillNeed { page: 300, pages: 100 }, later);
    runs.take().into_iter().for_each(|run| assert!(cache.fetch(run).is_err()));
    assert_eq!((cache.stats().cached, cache.populated()), (200, 300));
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
