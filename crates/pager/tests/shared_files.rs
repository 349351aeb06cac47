//! Shared mappings of files on the live kernel: what is stored is the file's once it is synced.
//! Needs userfaultfd with UFFDIO_MOVE.

mod again;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use again::{again, file_of_child};
use overspill_pager::{Error, File, FileOptions, FileRegion, MapAdvice, MapOptions, Pager};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

fn directory() -> PathBuf {
    std::env::var_os("OVERSPILL_TEST_SWAP").map_or_else(|| "/var/tmp".into(), PathBuf::from)
}

fn pager(mib: usize) -> Pager {
    let builder = Pager::builder().ram((mib * MIB) as u64).swap(directory());
    builder.build().expect("userfaultfd, io_uring and a disk are there")
}

fn map(pager: &Pager, file: &Path) -> FileRegion {
    pager.map_file(file, &MapOptions::new().shared()).expect("the file can be mapped")
}

/// A file that is gone when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Scratch {
        let path = directory().join(format!("overspill-shared-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        Scratch(path)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What a page is filled with in a round.
fn content(page: usize, round: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = (round << 40 | (page * WORDS + at) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

fn file_of(pages: usize, round: u64) -> Vec<u8> {
    (0..pages).flat_map(|page| content(page, round)).collect()
}

/// Twice the budget is stored to in every round, each time other pages of it: they leave, come back,
/// and are stored to again.
#[test]
fn what_was_synced_is_in_the_file_and_nothing_else_is() {
    let pages = 24 * MIB / PAGE;
    let file = Scratch::new("rounds", &file_of(pages, 0));
    let pager = pager(8);
    let mut region = map(&pager, &file.0);
    let mut model = file_of(pages, 0);
    for round in 1..6u64 {
        for page in (0..pages).filter(|page| !(page + round as usize).is_multiple_of(3)) {
            let bytes = page * PAGE..(page + 1) * PAGE;
            assert!(region[bytes.clone()] == model[bytes.clone()], "round {round}, page {page}");
            let new = if page % 7 == 3 { [0; PAGE] } else { content(page, round) };
            region.as_mut().unwrap()[bytes.clone()].copy_from_slice(&new);
            model[bytes].copy_from_slice(&new);
        }
        region.sync().unwrap();
        assert!(file.bytes() == model, "round {round}");
    }
    assert!(region[..] == model[..]);
    let before = file.bytes();
    region.as_mut().unwrap()[5 * MIB] ^= 1;
    assert!(file.bytes() == before, "not before a sync");
    drop(region);
    model[5 * MIB] ^= 1;
    assert!(file.bytes() == model, "or the end of the mapping");
    let again = map(&pager, &file.0);
    assert!(again[..] == model[..]);
}

/// *The story:* a page that had left once kept its slot after it was synced: swap had to have room for
/// all that was ever stored to.
#[test]
fn what_is_in_the_file_takes_no_place_on_swap() {
    let pages = 24 * MIB / PAGE;
    let file = Scratch::new("slots", &file_of(pages, 0));
    let pager = pager(8);
    let mut region = map(&pager, &file.0);
    for round in 1..4 {
        for page in 0..pages {
            let bytes = page * PAGE..(page + 1) * PAGE;
            region.as_mut().unwrap()[bytes].copy_from_slice(&content(page, round));
        }
        let before = pager.stats().unwrap().slots as usize;
        assert!(before > pages / 2, "{before} slots, round {round}");
        region.sync().unwrap();
        // What is on its way in the moment in which a sync ends keeps its place.
        let after = pager.stats().unwrap().slots as usize;
        assert!(after < before / 2, "{after} of {before} slots, round {round}");
        assert!(region[..] == file_of(pages, round)[..]);
        let later = pager.stats().unwrap().slots as usize;
        assert!(later <= after, "{later} slots after reading all, {after} before");
    }
    assert!(file.bytes() == file_of(pages, 3));
}

/// A sync writes what was stored to since the last one, in pieces as large as can be.
#[test]
fn only_what_was_stored_to_is_written() {
    let pages = 16 * MIB / PAGE;
    let file = Scratch::new("only", &file_of(pages, 0));
    let pager = pager(32);
    let mut region = map(&pager, &file.0);
    let written = || -> (u64, u64) {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
        };
        (field("wchar:"), field("syscw:"))
    };
    let mut synced = |stores: &[usize]| {
        stores.iter().for_each(|page| region.as_mut().unwrap()[page * PAGE + 9] ^= 1);
        let before = written();
        region.sync().unwrap();
        let after = written();
        ((after.0 - before.0) / PAGE as u64, after.1 - before.1)
    };
    let all: Vec<usize> = (0..pages).collect();
    let (pages_written, calls) = synced(&all);
    // 16 of a mebibyte. The pager's bell takes one for each two of these to read ahead, one for each four
    // to give slots up, and four to begin and to end.
    assert!(pages_written >= 4096 && calls <= 16 + 8 + 4 + 4, "{pages_written} pages in {calls} calls");
    assert!(synced(&[]).0 < 2, "nothing is left");
    let (pages_written, _) = synced(&[7, 8, 9, 4000]);
    assert!((4..8).contains(&pages_written), "{pages_written}");
}

#[test]
fn a_file_keeps_its_length_and_parts_may_be_mapped() {
    let mut bytes = file_of(1024, 0);
    bytes.truncate(1023 * PAGE + 1234);
    let file = Scratch::new("length", &bytes);
    let pager = pager(8);
    let mut whole = map(&pager, &file.0);
    *whole.as_mut().unwrap().last_mut().unwrap() ^= 0xff;
    whole.sync().unwrap();
    *bytes.last_mut().unwrap() ^= 0xff;
    assert!(file.bytes() == bytes);
    drop(whole);
    let options = MapOptions::new().part(5001, 3 * PAGE).shared();
    let mut part = pager.map_file(&file.0, &options).unwrap();
    part.as_mut().unwrap().fill(7);
    let stores = part.as_shared().unwrap();
    stores.words()[1].store(u64::from_ne_bytes([9; 8]), Relaxed);
    stores.sync().unwrap();
    bytes[5001..5001 + 3 * PAGE].fill(7);
    // The first whole word begins at 5008.
    bytes[5016..5024].fill(9);
    assert!(file.bytes() == bytes);
    assert!(pager.map_file(&file.0, &MapOptions::new().private()).unwrap().as_shared().is_none());
}

/// What others append within the last page, and what another region syncs within the first or the last
/// page of this one, stays.
#[test]
fn only_the_bytes_of_the_region_are_written() {
    let mut bytes = file_of(3, 0);
    bytes.truncate(5000);
    let file = Scratch::new("beside", &bytes);
    let pager = pager(8);
    let mut whole = map(&pager, &file.0);
    whole.as_mut().unwrap()[4500] = 1;
    let other = std::fs::OpenOptions::new().write(true).open(&file.0).unwrap();
    other.write_all_at(&[9; 5000], 5000).unwrap();
    whole.sync().unwrap();
    bytes[4500] = 1;
    bytes.extend([9; 5000]);
    assert!(file.bytes() == bytes, "what was appended");
    drop(whole);
    let part = |at| pager.map_file(&file.0, &MapOptions::new().part(at, 5000).shared()).unwrap();
    let mut parts = [part(0), part(5000)];
    parts.iter_mut().for_each(|part| part.as_mut().unwrap().fill(3));
    parts.iter().for_each(|part| part.sync().unwrap());
    assert!(file.bytes() == [3; 10000]);
    parts[0].as_mut().unwrap().fill(4);
    parts[0].sync().unwrap();
    assert!(file.bytes() == [[4; 5000], [3; 5000]].concat());
    drop(parts);
    let mut few = pager.map_file(&file.0, &MapOptions::new().part(5001, 3).shared()).unwrap();
    assert!(few.as_shared().unwrap().words().is_empty());
}

#[test]
fn without_move_it_is_refused() {
    let file = Scratch::new("refused", &file_of(16, 0));
    let pager = Pager::builder().ram(8 << 20).swap(directory()).use_move(false).build().unwrap();
    let refused = pager.map_file(&file.0, &MapOptions::new().shared());
    assert!(matches!(refused, Err(Error::Map(errno)) if errno.raw_os_error() == libc::EOPNOTSUPP));
    assert!(file.bytes() == file_of(16, 0));
}

/// Threads go on until this is dropped, also by a panic.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Four threads count in words of their own, all over the file, while pages leave and one thread
/// syncs. What a sync finds counted when it begins is in the file when it returns.
#[test]
fn threads_store_while_pages_leave_and_are_synced() {
    const THREADS: usize = 4;
    let pages = 16 * MIB / PAGE;
    let file = Scratch::new("threads", &vec![0; pages * PAGE]);
    let pager = pager(6);
    let mut region = map(&pager, &file.0);
    let stores = region.as_shared().unwrap();
    let words = stores.words();
    let is_over = AtomicBool::new(false);
    let in_file = |page: usize, thread: usize, bytes: &[u8]| {
        let at = page * PAGE + thread * 512;
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    };
    let counted = |page: usize, thread: usize| words[page * WORDS + thread * 64].load(SeqCst);
    let mut syncs = 0;
    let stored: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let (mut seed, mut stored) = (thread as u64 + 1, 0);
                    while !is_over.load(Relaxed) {
                        seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                        let page = (seed >> 33) as usize % pages;
                        words[page * WORDS + thread * 64].fetch_add(1, SeqCst);
                        stored += 1;
                    }
                    stored
                })
            })
            .collect();
        let until = Until(&is_over);
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_secs(6) {
            let sample: Vec<(usize, usize, u64)> = (0..pages)
                .step_by(97)
                .flat_map(|page| (0..THREADS).map(move |thread| (page, thread)))
                .map(|(page, thread)| (page, thread, counted(page, thread)))
                .collect();
            stores.sync().unwrap();
            syncs += 1;
            let bytes = file.bytes();
            for (page, thread, count) in sample {
                let found = in_file(page, thread, &bytes);
                assert!(found >= count, "page {page}, thread {thread}: {found} in the file, {count} before");
            }
        }
        drop(until);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    stores.sync().unwrap();
    let bytes = file.bytes();
    for (thread, stored) in stored.iter().enumerate() {
        let sum: u64 = (0..pages).map(|page| in_file(page, thread, &bytes)).sum();
        assert_eq!(sum, *stored, "thread {thread}, after {syncs} syncs");
    }
    println!("{syncs} syncs, {stored:?} stores");
    assert!(syncs > 3 && pager.stats().unwrap().vmstat.pswpout > 1000, "pages left meanwhile");
}

#[test]
fn a_killed_process_leaves_what_it_synced_and_whole_pages() {
    let pages = 12 * MIB / PAGE;
    if let Some(path) = file_of_child() {
        let pager = pager(6);
        let mut region = map(&pager, &path);
        for round in 1.. {
            for (page, bytes) in region.as_mut().unwrap().chunks_mut(PAGE).enumerate() {
                bytes.copy_from_slice(&content(page, round));
            }
            region.sync().unwrap();
            println!("synced {round}");
            std::io::stdout().flush().unwrap();
        }
    }
    for kill in 0..4u64 {
        let file = Scratch::new("killed", &file_of(pages, 0));
        let mut command = again("a_killed_process_leaves_what_it_synced_and_whole_pages", &file.0);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut rounds = lines.by_ref().filter_map(|line| line.rsplit_once("synced ")?.1.parse().ok());
        assert!(kill == 0 || rounds.any(|round: u64| round == kill));
        std::thread::sleep(Duration::from_millis(7 + 31 * kill));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        let synced = rounds.last().unwrap_or(kill);
        for (page, bytes) in file.bytes().chunks(PAGE).enumerate() {
            let is_of = |round: u64| bytes == content(page, round);
            assert!(is_of(synced) || is_of(synced + 1), "page {page} after round {synced}");
        }
    }
}

#[test]
fn a_shared_file_that_is_cut_raises_sigbus_and_stays_cut() {
    if let Some(path) = file_of_child() {
        let pager = pager(8);
        let mut region = map(&pager, &path);
        region.as_mut().unwrap().fill(7);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10 * MIB as u64 + 80).unwrap();
        std::thread::sleep(Duration::from_millis(1000));
        region.sync().unwrap();
        assert!(region[..10 * MIB + 80].iter().all(|&byte| byte == 7));
        println!("still here");
        std::io::stdout().flush().unwrap();
        std::process::exit(i32::from(region[20 * MIB]));
    }
    let file = Scratch::new("cut", &vec![1; 24 * MIB]);
    let output = again("a_shared_file_that_is_cut_raises_sigbus_and_stays_cut", &file.0).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("still here"), "{output:?}");
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
    let bytes = file.bytes();
    assert!(bytes.len() == 10 * MIB + 80 && bytes.iter().all(|&byte| byte == 7));
}

/// What others write is read by those who touch a page for the first time, or again after it has left.
#[test]
fn a_page_that_was_not_touched_shows_what_others_wrote() {
    let file = Scratch::new("others", &file_of(64, 0));
    let pager = pager(8);
    let mut region = map(&pager, &file.0);
    region.as_mut().unwrap()[3] = 1;
    let other = std::fs::OpenOptions::new().write(true).open(&file.0).unwrap();
    other.write_all_at(&content(60, 9), 60 * PAGE as u64).unwrap();
    region.sync().unwrap();
    let bytes = file.bytes();
    assert!(
        bytes[60 * PAGE..61 * PAGE] == content(60, 9),
        "a sync writes what was stored to, and nothing else"
    );
}

fn cached(pager: &Pager, file: &Path) -> File {
    pager.open_file(file, &FileOptions::new().write(true)).expect("the file can be opened")
}

/// *The story:* two `File`s of one path, and a mapping beside one, undid one another's stores within a
/// page, without a word.
#[test]
fn a_file_has_one_cache_or_one_mapping_by_whatever_name() {
    let file = Scratch::new("one", &file_of(8, 0));
    let name = Scratch(file.0.with_extension("name"));
    std::fs::hard_link(&file.0, &name.0).unwrap();
    let pager = pager(8);
    let reader = pager.open_file(&file.0, &FileOptions::new()).unwrap();
    let mut word = [0; 8];
    reader.read_at(&mut word, 0).unwrap();
    let writer = cached(&pager, &name.0);
    writer.write_at(&[7; 8], 0).unwrap();
    reader.read_at(&mut word, 0).unwrap();
    assert_eq!(word, [7; 8], "it is seen at once");
    assert!(reader.write_at(&[8; 8], 0).is_err(), "it is for reading still");
    assert!(reader.stats().dirty == 1 && writer.stats() == reader.stats());
    reader.sync().unwrap();
    assert!(file.bytes()[..8] == [7; 8], "whoever syncs means all of it");
    let refused = pager.map_file(&file.0, &MapOptions::new().shared()).expect_err("it is open");
    assert!(matches!(refused, Error::InUse(..)) && refused.to_string().contains("open"), "{refused}");
    assert!(pager.map_file(&file.0, &MapOptions::new().private()).is_ok());
    drop(writer);
    assert!(pager.map_file(&file.0, &MapOptions::new().shared()).is_err(), "it is open still");
    drop(reader);
    let mut region = map(&pager, &file.0);
    assert!(region[..8] == [7; 8]);
    for path in [&file.0, &name.0] {
        assert!(matches!(pager.open_file(path, &FileOptions::new()), Err(Error::InUse(..))));
        assert!(matches!(pager.map_file(path, &MapOptions::new().shared()), Err(Error::InUse(..))));
    }
    region.as_mut().unwrap()[0] = 9;
    drop(region);
    let again = cached(&pager, &name.0);
    again.read_at(&mut word, 0).unwrap();
    assert_eq!(word, [9, 7, 7, 7, 7, 7, 7, 7]);
}

/// Whoever opens a file in the moment in which the last one closes it finds what that has written.
#[test]
fn a_file_may_be_opened_while_it_is_closed() {
    const THREADS: usize = 4;
    const ROUNDS: u64 = 150;
    let file = Scratch::new("doors", &file_of(4, 0));
    let pager = pager(8);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pager, path) = (&pager, &file.0);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    // Each has words of its own, next to the others', in four pages.
                    let at = (round as usize % 4 * PAGE + (round as usize / 4 * THREADS + thread) * 8) as u64;
                    cached(pager, path).write_at(&round.to_ne_bytes(), at).unwrap();
                    let mut word = [0; 8];
                    cached(pager, path).read_at(&mut word, at).unwrap();
                    assert_eq!(u64::from_ne_bytes(word), round);
                }
            });
        }
    });
    let bytes = file.bytes();
    for round in 1..=ROUNDS as usize {
        for thread in 0..THREADS {
            let at = round % 4 * PAGE + (round / 4 * THREADS + thread) * 8;
            assert_eq!(bytes[at..at + 8], (round as u64).to_ne_bytes(), "round {round}, thread {thread}");
        }
    }
}

/// How often this thread has waited so far.
fn waits() -> i64 {
    // SAFETY: a structure of numbers, which the call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local variable.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_nvcsw
}

/// *The story:* a page that was missing when it was stored to came protected, and was waited for twice.
#[test]
fn a_store_to_a_missing_page_waits_once() {
    const STORES: usize = 200;
    let file = Scratch::new("waits", &file_of(16 * MIB / PAGE, 0));
    let pager = pager(8);
    let mut region = map(&pager, &file.0);
    region.advise(0..16 * MIB, MapAdvice::Random).unwrap();
    let stores = region.as_shared().unwrap();
    let before = waits();
    // In no order, so that nothing is read ahead.
    let stored: Vec<usize> = (0..STORES).map(|n| n * 1657 % (16 * MIB / PAGE)).collect();
    stored.iter().for_each(|page| stores.words()[page * WORDS].store(7, Relaxed));
    let waits = waits() - before;
    assert!((waits as usize) < STORES * 3 / 2, "{waits} waits for {STORES} stores");
    stores.sync().unwrap();
    let bytes = file.bytes();
    for (page, found) in bytes.chunks(PAGE).enumerate() {
        let mut wanted = content(page, 0);
        if stored.contains(&page) {
            wanted[..8].copy_from_slice(&7_u64.to_ne_bytes());
        }
        assert!(*found == wanted, "page {page}");
    }
}
