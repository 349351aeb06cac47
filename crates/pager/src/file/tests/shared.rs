//! Several who have one file open: one cache, and to each what concerns him.

use super::*;

/// Opens a file once more, by its own store.
fn again(file: &File, memory: &Arc<Memory>) -> File {
    again_by("adaptive", file, Some(memory))
}

/// The same by rules of that name; without a store, for reading.
fn again_by(name: &str, file: &File, memory: Option<&Arc<Memory>>) -> File {
    let users = file.inode.users();
    let threads = Arc::clone(users.threads.as_ref().expect("it is open"));
    let policy = Policy::by_name(name, Config::default()).unwrap();
    let store = memory.map(|memory| Box::new(Handle(Arc::clone(memory))) as Box<dyn Store>);
    let opening = threads.cache().open_again(store, policy);
    File::of(threads, Arc::clone(&file.inode), opening, memory.is_some())
}

fn next(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

/// Reads, writes and syncs by whichever of four, some of which are closed and opened meanwhile, against
/// plain bytes.
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
                94..97 if files.len() < 4 => files.push(again(&files[who], &memory)),
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
    assert!(stats == first.stats(), "the cache is one");
}
