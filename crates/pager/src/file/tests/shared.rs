//! Several who have one file open: one cache, and to each what concerns him.

use super::*;

/// Opens a file once more, by its own store.
fn again(file: &File, memory: &Arc<Memory>) -> File {
    again_by("adaptive", file, Some(memory))
}

/// The same by rules of that name; without a store, for reading.
fn again_by(name: &str, file: &File, memory: Option<&Arc<Memory>>) -> File {
    let store = memory.map(|memory| Box::new(Handle(Arc::clone(memory))) as Box<dyn Store>);
    again_with(name, file, store)
}

fn again_with(name: &str, file: &File, store: Option<Box<dyn Store>>) -> File {
    let users = file.inode.users();
    let threads = Arc::clone(users.threads.as_ref().expect("it is open"));
    let policy = Policy::by_name(name, Config::default()).unwrap();
    let is_writable = store.is_some();
    let opening = threads.cache().open_again(store, policy);
    File::of(threads, Arc::clone(&file.inode), opening, is_writable)
}

/// A device with handles. Some file systems keep what was written by a handle until that is synced; and
/// a failure is told to each that was open when it happened.
#[derive(Default)]
struct Device {
    bytes: Mutex<Vec<u8>>,
    stable: Mutex<Vec<u8>>,
    /// By which handle, from which page on, and what.
    pending: Mutex<Vec<(usize, u64, Vec<Page>)>>,
    failures: AtomicU64,
    handles: AtomicU64,
}

impl Device {
    fn new(pages: usize) -> Arc<Device> {
        let [bytes, stable] = [(); 2].map(|()| Mutex::new(vec![0; pages * PAGE_SIZE]));
        Arc::new(Device { bytes, stable, ..Device::default() })
    }

    fn open(self: &Arc<Device>, writes: bool) -> Box<dyn Store> {
        let number = self.handles.fetch_add(1, SeqCst) as usize;
        let seen = AtomicU64::new(self.failures.load(SeqCst));
        Box::new(DeviceHandle { device: Arc::clone(self), number, writes, seen })
    }

    fn file(self: &Arc<Device>, writes: bool) -> File {
        let (jobs, orders) = channel();
        let frames = Frames::fixed(Share::new(jobs.clone(), 64));
        let policy = Policy::by_name("none", Config::default()).unwrap();
        let cache = Cache::new(self.open(writes), writes, policy, frames).unwrap();
        let mut file = file_of(cache, jobs, orders);
        file.is_writable = writes;
        file
    }

    /// What is pending is lost.
    fn fail(&self) {
        self.pending.lock().unwrap().clear();
        self.failures.fetch_add(1, SeqCst);
    }

    fn is_stable(&self, page: usize, value: u8) -> bool {
        self.stable.lock().unwrap()[page * PAGE_SIZE..][..PAGE_SIZE] == [value; PAGE_SIZE]
    }
}

fn put(bytes: &mut [u8], first: u64, pages: &[Page]) {
    let to = bytes[first as usize * PAGE_SIZE..].chunks_mut(PAGE_SIZE);
    to.zip(pages).for_each(|(to, page)| to.copy_from_slice(&page.0));
}

struct DeviceHandle {
    device: Arc<Device>,
    number: usize,
    writes: bool,
    seen: AtomicU64,
}

impl Store for DeviceHandle {
    fn len(&self) -> Result<u64, Errno> {
        Ok(self.device.bytes.lock().unwrap().len() as u64)
    }

    fn read(&self, first: u64, pages: &mut [Page]) -> Result<u64, Errno> {
        let bytes = self.device.bytes.lock().unwrap();
        let from = bytes[first as usize * PAGE_SIZE..].chunks(PAGE_SIZE);
        pages.iter_mut().zip(from).for_each(|(page, from)| page.0.copy_from_slice(from));
        Ok(at_of(pages.len() as u64))
    }

    fn write(&self, first: u64, pages: &[Page], _: u64) -> Result<(), Errno> {
        if !self.writes {
            return Err(Errno::BADF);
        }
        put(&mut self.device.bytes.lock().unwrap(), first, pages);
        self.device.pending.lock().unwrap().push((self.number, first, pages.to_vec()));
        Ok(())
    }

    fn write_part(&self, _: &[u8], _: u64) -> Result<(), Errno> {
        unreachable!("the cache writes pages")
    }

    fn set_len(&self, _: u64) -> Result<(), Errno> {
        unreachable!("this device has so many pages")
    }

    fn sync(&self, _: bool) -> Result<(), Errno> {
        let is_own = |pending: &mut (usize, u64, Vec<Page>)| pending.0 == self.number;
        for (_, first, pages) in self.device.pending.lock().unwrap().extract_if(.., is_own) {
            put(&mut self.device.stable.lock().unwrap(), first, &pages);
        }
        let failures = self.device.failures.load(SeqCst);
        if self.seen.swap(failures, SeqCst) == failures { Ok(()) } else { Err(Errno::IO) }
    }
}

/// *The story:* the first that opened a file to write it had its descriptor serve all, though another
/// had written already. What the device had lost of that was told to nobody, and what a handle kept
/// was not synced by the other.
#[test]
fn what_was_written_by_a_handle_is_synced_by_it() {
    for (first_writes, fails) in [(true, true), (true, false), (false, true), (false, false)] {
        let device = Device::new(20);
        let first = device.file(first_writes);
        let writer = again_with("none", &first, Some(device.open(true)));
        writer.write_at(&[7; PAGE_SIZE], at_of(3)).unwrap();
        first.cache.write_back().unwrap();
        if fails {
            device.fail();
        }
        let third = again_with("none", &first, Some(device.open(true)));
        drop(writer);
        assert_eq!(third.sync().is_err(), fails, "first writes: {first_writes}");
        third.sync().unwrap();
        assert!(device.is_stable(3, 7), "first writes: {first_writes}, fails: {fails}");
        third.write_at(&[8; PAGE_SIZE], at_of(4)).unwrap();
        drop((third, first));
        assert_eq!(device.bytes.lock().unwrap()[4 * PAGE_SIZE], 8);
    }
    // Who came second has not written yet.
    let device = Device::new(20);
    let first = device.file(true);
    first.write_at(&[7; PAGE_SIZE], 0).unwrap();
    first.cache.write_back().unwrap();
    device.fail();
    let second = again_with("none", &first, Some(device.open(true)));
    assert!(first.sync().is_err());
    assert!(second.sync().is_err(), "it was open, too");
    first.sync().unwrap();
    assert!(device.is_stable(0, 7));
}

/// *The story:* whoever closed what he had only read wrote back what others had stored, and waited for
/// their syncs.
#[test]
fn who_closes_what_he_read_waits_for_nobody() {
    let (writer, memory) = open(vec![0; 10 * PAGE_SIZE], 64);
    let [reader, last] = [0; 2].map(|_| again_by("none", &writer, None));
    writer.write_at(&[7; PAGE_SIZE], 0).unwrap();
    let (closed, is_closed) = channel();
    *memory.amid_sync.lock().unwrap() = Some(Box::new(move || {
        let thread = std::thread::spawn(move || {
            drop(reader);
            closed.send(()).unwrap();
        });
        is_closed.recv_timeout(std::time::Duration::from_secs(10)).expect("it waits for the sync");
        thread.join().unwrap();
    }));
    writer.sync().unwrap();
    // The last one leaves nothing, whoever it is.
    writer.write_at(&[8; PAGE_SIZE], 0).unwrap();
    memory.refuses_writes.store(true, SeqCst);
    drop(writer);
    memory.refuses_writes.store(false, SeqCst);
    assert_eq!(last.stats().dirty, 1);
    drop(last);
    assert_eq!(memory.written.lock().unwrap()[0], 8);
}

fn next(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

/// Reads, writes, syncs and lengths by whichever of four, some of which are closed and opened meanwhile,
/// against plain bytes.
///
/// *The story:* each `File` had pages of its own. Of two stores within a page, by two of them, the one
/// that was written back first was undone by the other.
#[test]
fn several_have_one_content_whatever_they_do() {
    for seed in 1..=12u64 {
        let (first, memory) = open(noise(60 * PAGE_SIZE), 40);
        let mut model = noise(60 * PAGE_SIZE);
        let mut files = vec![first];
        let mut draw = seed;
        for step in 0..1500 {
            let (who, what) = (next(&mut draw) % files.len(), next(&mut draw) % 100);
            let (offset, len) = (next(&mut draw) % (80 * PAGE_SIZE), 1 + next(&mut draw) % 6000);
            match what {
                0..45 => {
                    let mut buffer = vec![0; len];
                    let count = files[who].read_at(&mut buffer, offset as u64).unwrap();
                    let from = &model[offset.min(model.len())..];
                    assert_eq!(count, from.len().min(len), "seed {seed}, step {step}");
                    assert!(buffer[..count] == from[..count], "seed {seed}, step {step}, at {offset}");
                }
                45..90 => {
                    let bytes: Vec<u8> = (0..len).map(|_| next(&mut draw) as u8).collect();
                    files[who].write_at(&bytes, offset as u64).unwrap();
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&bytes);
                }
                90..94 => {
                    files[who].sync().unwrap();
                    assert!(*memory.stable.lock().unwrap() == model, "seed {seed}, step {step}");
                }
                94..96 => {
                    files[who].set_len(offset as u64).unwrap();
                    model.resize(offset, 0);
                    assert_eq!(memory.written.lock().unwrap().len(), offset, "seed {seed}, step {step}");
                }
                96..98 if files.len() < 4 => files.push(again(&files[who], &memory)),
                _ if files.len() > 1 => {
                    drop(files.swap_remove(who));
                    assert!(*memory.written.lock().unwrap() == model, "seed {seed}, step {step}: closed");
                }
                _ => {}
            }
            assert_eq!(files[0].len(), model.len() as u64);
        }
        drop(files);
        assert!(*memory.written.lock().unwrap() == model, "seed {seed}: all have closed it");
    }
}

/// Each has every second byte of each page, so that all pages are stored to by all, and leave
/// meanwhile.
#[test]
fn threads_that_store_within_the_same_pages_undo_nothing() {
    const THREADS: usize = 4;
    const PAGES: usize = 50;
    let (first, memory) = open(vec![0; PAGES * PAGE_SIZE], 24);
    let files: Vec<File> = (0..THREADS).map(|_| again(&first, &memory)).collect();
    drop(first);
    std::thread::scope(|scope| {
        for (thread, file) in files.into_iter().enumerate() {
            scope.spawn(move || {
                let (mut draw, mut own) = (thread as u64 + 1, vec![0u8; PAGES * PAGE_SIZE / THREADS]);
                for step in 0..4000 {
                    let at = next(&mut draw) % own.len();
                    let offset = (at * THREADS + thread) as u64;
                    let mut byte = [0];
                    file.read_at(&mut byte, offset).unwrap();
                    assert_eq!(byte[0], own[at], "thread {thread}, step {step}");
                    own[at] = byte[0].wrapping_add(1);
                    file.write_at(&own[at..=at], offset).unwrap();
                    if step % 500 == 499 {
                        file.sync().unwrap();
                    }
                }
                for (at, &byte) in own.iter().enumerate() {
                    let mut found = [0];
                    file.read_at(&mut found, (at * THREADS + thread) as u64).unwrap();
                    assert_eq!(found[0], byte);
                }
            });
        }
    });
    let sum: u64 = memory.written.lock().unwrap().iter().map(|&byte| u64::from(byte)).sum();
    assert_eq!(sum, 4000 * THREADS as u64, "each store counts one, and all of them are in the file");
}

#[test]
fn a_failure_is_told_once_to_each_that_is_open() {
    let (first, memory) = open(vec![0; 10 * PAGE_SIZE], 64);
    let second = again(&first, &memory);
    let reader = again_by("none", &first, None);
    assert!(matches!(reader.write_at(b"x", 0), Err(Error::Io(Errno::BADF))));
    first.write_at(&[7; PAGE_SIZE], 0).unwrap();
    memory.refuses_writes.store(true, SeqCst);
    assert!(first.sync().is_err());
    memory.refuses_writes.store(false, SeqCst);
    let third = again(&first, &memory);
    third.sync().unwrap();
    assert!(memory.stable.lock().unwrap()[..PAGE_SIZE] == [7; PAGE_SIZE], "who wrote it does not matter");
    first.sync().unwrap();
    for file in [&second, &reader] {
        assert!(matches!(file.sync(), Err(Error::Io(Errno::IO))), "it has not heard of it yet");
        file.sync().unwrap();
    }
    // What closing one could not write is told to those that are left, and is not lost.
    second.write_at(&[8; PAGE_SIZE], 0).unwrap();
    memory.refuses_writes.store(true, SeqCst);
    drop(second);
    memory.refuses_writes.store(false, SeqCst);
    assert!(first.sync().is_err());
    first.sync().unwrap();
    assert!(memory.stable.lock().unwrap()[..PAGE_SIZE] == [8; PAGE_SIZE]);
    // A device that fails to settle tells it once; here each hears of it.
    first.write_at(&[9], 0).unwrap();
    memory.failing_syncs.store(1, SeqCst);
    assert!(first.sync().is_err() && third.sync().is_err());
    third.sync().unwrap();
    assert_eq!(memory.stable.lock().unwrap()[0], 9);
}

/// Who reads in order beside one that reads at random has what is read ahead for him alone.
#[test]
fn each_reads_ahead_by_its_own_rules() {
    let (first, memory) = open(noise(400 * PAGE_SIZE), 300);
    first.advise(Advice::Random).unwrap();
    let other = again_by("adaptive", &first, Some(&memory));
    let mut page = [0; PAGE_SIZE];
    for n in 0..50 {
        first.read_at(&mut page, at_of(200 + n * 3)).unwrap();
    }
    assert_eq!(first.stats().pages_read, 50);
    for n in 0..100 {
        other.read_at(&mut page, at_of(n)).unwrap();
    }
    let stats = other.stats();
    assert!(stats.misses < 50 + 50, "it was read ahead: {stats:?}");
    // What is read ahead still arrives: it is looked at where nothing came between two looks.
    loop {
        let (before, seen, after) = (other.stats(), first.stats(), other.stats());
        if before == after {
            assert!(seen == before, "the cache is one");
            break;
        }
        std::thread::yield_now();
    }
}
