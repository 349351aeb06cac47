//! Files in the budget on the live kernel: mapped ones and cached ones. Needs userfaultfd.

mod again;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;

use again::{again, file_of_child};
use overspill_pager::{Advice, Errno, Error, File, FileOptions, MapOptions, Pager};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

fn directory() -> PathBuf {
    std::env::var_os("OVERSPILL_TEST_SWAP").map_or_else(|| "/var/tmp".into(), PathBuf::from)
}

fn pager(mib: usize, use_move: bool) -> Pager {
    let builder = Pager::builder().ram((mib * MIB) as u64).swap(directory()).use_move(use_move);
    builder.build().expect("userfaultfd, io_uring and a disk are there")
}

/// A file that is gone when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, len: usize) -> Scratch {
        let path = directory().join(format!("overspill-files-{name}-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        for page in 0..len.div_ceil(PAGE) {
            let bytes: Vec<u8> = (0..PAGE / 8).flat_map(|at| word(page, at).to_ne_bytes()).collect();
            file.write_all(&bytes[..PAGE.min(len - page * PAGE)]).unwrap();
        }
        file.sync_all().unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Word `at` of page `page` of a scratch file; some pages are all zeroes.
fn word(page: usize, at: usize) -> u64 {
    if page % 13 == 5 {
        return 0;
    }
    (page as u64 * 512 + at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn is_right(bytes: &[u8], page: usize) -> bool {
    bytes
        .chunks_exact(8)
        .enumerate()
        .all(|(at, bytes)| u64::from_ne_bytes(bytes.try_into().unwrap()) == word(page, at))
}

fn cyclic(use_move: bool) {
    let file = Scratch::new(if use_move { "cyclic" } else { "cyclic-copy" }, 48 * MIB);
    let pager = pager(16, use_move);
    let region = pager.map_file(&file.0, &MapOptions::new()).unwrap();
    assert_eq!(region.len(), 48 * MIB);
    let mut read = Vec::new();
    for _ in 0..6 {
        let before = pager.stats().unwrap().vmstat.file_in;
        for (page, bytes) in region.chunks(PAGE).enumerate() {
            assert!(is_right(bytes, page), "page {page}");
        }
        read.push(pager.stats().unwrap().vmstat.file_in - before);
    }
    let stats = pager.stats().unwrap();
    assert_eq!(stats.vmstat.pswpout, 0, "clean pages of a file are not written: {stats:?}");
    assert_eq!(stats.slots, 0, "and take no swap");
    // *The story:* they counted as `pswpin` and `swap_ra`, which are of swap alone.
    let counted = stats.vmstat;
    assert_eq!((counted.pswpin, counted.swap_ra, counted.swap_ra_hit, counted.swap_ra_unused), (0, 0, 0, 0));
    let (own, ahead) =
        (region.stats().unwrap(), [counted.file_ra, counted.file_ra_hit, counted.file_ra_unused]);
    assert_eq!([own.file_ra, own.file_ra_hit, own.file_ra_unused], ahead);
    assert!(own.hit_percent() > Some(90.0) && own.swap_ra == 0, "{own:?}");
    assert!(stats.frames <= 16 * MIB as u32 / 4096, "{stats:?}");
    // Of 12,288 pages 4096 fit. The kernel reads all of them every lap.
    println!("pages read a lap: {read:?}");
    assert!(read[0] >= 12_288, "pages read a lap: {read:?}");
    // What does not fit, and what is kept free: on average, as what runs beside may spoil a lap.
    let settled = &read[2..];
    assert!(settled.iter().sum::<u64>() < settled.len() as u64 * (8_192 + 600), "pages read a lap: {read:?}");
}

#[test]
fn a_loop_over_a_mapped_file_keeps_what_fits() {
    cyclic(true);
}

#[test]
fn a_loop_over_a_mapped_file_without_move() {
    cyclic(false);
}

#[test]
fn a_mapped_file_may_end_anywhere_and_begin_anywhere() {
    let file = Scratch::new("odd", 9 * MIB + 1234);
    let pager = pager(4, true);
    let whole = pager.map_file(&file.0, &MapOptions::new()).unwrap();
    let bytes = std::fs::read(&file.0).unwrap();
    assert_eq!(whole.len(), bytes.len());
    let part = pager.map_file(&file.0, &MapOptions::new().part(5000, 3 * MIB)).unwrap();
    // A quarter of the budget: a page less, as the part begins within one.
    assert_eq!(part.prefetch(MIB..2 * MIB - 4096).unwrap(), 0);
    for at in (0..part.len()).step_by(1000).rev() {
        assert_eq!(part[at], bytes[at + 5000], "{at}");
    }
    assert!(whole[..] == bytes[..]);
    drop(whole);
    assert!(part[..] == bytes[5000..5000 + 3 * MIB]);
    assert!(matches!(pager.map_file("/var/tmp", &MapOptions::new()), Err(Error::File(..))));
}

fn private(use_move: bool) {
    let file = Scratch::new(if use_move { "private" } else { "private-copy" }, 24 * MIB);
    let pager = pager(8, use_move);
    let mut region = pager.map_file(&file.0, &MapOptions::new().private()).unwrap();
    let pages = region.len() / PAGE;
    for round in 1..4u64 {
        for page in 0..pages {
            let bytes = &mut region.as_mut().unwrap()[page * PAGE..(page + 1) * PAGE];
            match page % 4 {
                // Stored to every round.
                0 => {
                    if round > 1 {
                        assert_eq!(bytes[100..108], (round - 1).to_ne_bytes(), "page {page}");
                    }
                    bytes[100..108].copy_from_slice(&round.to_ne_bytes());
                }
                // Made all zeroes: it must not show the file again.
                1 => {
                    assert!(round == 1 || bytes.iter().all(|&byte| byte == 0), "page {page}");
                    bytes.fill(0);
                }
                _ => assert!(is_right(bytes, page), "page {page}"),
            }
        }
    }
    let stats = pager.stats().unwrap();
    assert!(stats.vmstat.pswpout > 2000, "what was stored to goes to swap: {stats:?}");
    drop(region);
    let bytes = std::fs::read(&file.0).unwrap();
    assert!(
        bytes.chunks(PAGE).enumerate().all(|(page, bytes)| is_right(bytes, page)),
        "the file is as it was"
    );
}

#[test]
fn private_stores_stay_and_the_file_does_not_change() {
    private(true);
}

#[test]
fn private_stores_stay_without_move() {
    private(false);
}

#[test]
fn a_cut_file_raises_sigbus() {
    if let Some(path) = file_of_child() {
        let pager = pager(8, true);
        let region = pager.map_file(&path, &MapOptions::new()).unwrap();
        let before = u64::from(region[20 * MIB]);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10 * MIB as u64).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1000));
        assert!(is_right(&region[9 * MIB..9 * MIB + PAGE], 9 * MIB / PAGE));
        println!("still here, {before}");
        // That page was in view when the file was cut.
        std::process::exit(i32::from(region[20 * MIB]));
    }
    let file = Scratch::new("cut", 24 * MIB);
    let output = again("a_cut_file_raises_sigbus", &file.0).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("still here"), "{output:?}");
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
}

/// *The story:* how long a file was could only become less: behind the shortest that it had ever been a
/// region raised SIGBUS for good.
#[test]
fn a_file_that_was_cut_and_grew_again_shows_what_is_there() {
    if let Some(path) = file_of_child() {
        let pager = pager(32, true);
        let mut region = pager.map_file(&path, &MapOptions::new().part(0, 26 * MIB).private()).unwrap();
        for page in [9 * MIB / PAGE, 20 * MIB / PAGE] {
            region.as_mut().unwrap()[page * PAGE..][..PAGE].fill(7);
        }
        assert!((0..2304).all(|page| is_right(&region[page * PAGE..][..PAGE], page)));
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(10 * MIB as u64 + 80).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1000));
        println!("still here");
        file.set_len(25 * MIB as u64).unwrap();
        file.write_at(b"new", 22 * MIB as u64).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1000));
        assert!(region[9 * MIB..][..PAGE] == [7; PAGE] && is_right(&region[8 * MIB..][..PAGE], 2048));
        let cut = 10 * MIB + 80;
        assert!(region[cut - 80..cut].chunks(8).all(|word| word != [0; 8]));
        assert!(region[cut..22 * MIB].iter().all(|&byte| byte == 0), "stores behind the cut are gone");
        assert!(&region[22 * MIB..][..3] == b"new");
        assert!(region[23 * MIB..25 * MIB].iter().all(|&byte| byte == 0), "more than there was before");
        std::process::exit(0);
    }
    let file = Scratch::new("regrown", 24 * MIB);
    let output = again("a_file_that_was_cut_and_grew_again_shows_what_is_there", &file.0).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// *The story:* a window that went beyond the end of its file brought pages that nobody can touch: they
/// had frames, and were in no view.
#[test]
fn nothing_is_held_for_what_lies_behind_the_end_of_a_file() {
    let file = Scratch::new("ghosts", 4 * MIB + 100);
    let pager = pager(16, true);
    let region = pager.map_file(&file.0, &MapOptions::new().part(0, 12 * MIB)).unwrap();
    for (page, bytes) in region[..4 * MIB].chunks(PAGE).enumerate() {
        assert!(is_right(bytes, page), "page {page}");
    }
    assert!(region[4 * MIB + 100..][..PAGE - 100].iter().all(|&byte| byte == 0));
    assert_eq!(region.prefetch(3 * MIB..6 * MIB).unwrap(), 0, "what is there was read");
    std::thread::sleep(std::time::Duration::from_millis(100));
    // A page that is held and in no view was counted twice: its frame was free for the next read. On a busy
    // machine some of it was just going, once of hundreds of runs; what stays is wrong.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        let stats = pager.stats().unwrap();
        if u64::from(stats.frames) <= stats.vmstat.file_in {
            break;
        }
        assert!(std::time::Instant::now() < until, "more frames than were read into: {stats:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_cached_file_reads_writes_and_syncs_within_the_budget() {
    let file = Scratch::new("cached", 32 * MIB);
    let pager = pager(16, true);
    let opened = pager.open_file(&file.0, &FileOptions::new().write(true)).unwrap();
    let mut buffer = vec![0; 16 * PAGE];
    for chunk in 0..32 * MIB / buffer.len() {
        let offset = (chunk * buffer.len()) as u64;
        assert_eq!(opened.read_at(&mut buffer, offset).unwrap(), 16 * PAGE);
        for (n, bytes) in buffer.chunks(PAGE).enumerate() {
            assert!(is_right(bytes, chunk * 16 + n));
        }
    }
    let stats = opened.stats();
    assert!(stats.reads < 200, "read ahead in large requests: {stats:?}");
    assert!(stats.cached <= 4096, "the budget at most: {stats:?}");
    assert!(stats.cached > 3800, "all of it, as nobody else needs any: {stats:?}");
    opened.advise(Advice::Random).unwrap();
    let mut model = std::fs::read(&file.0).unwrap();
    for n in 0..400usize {
        let (offset, len) = (n * 1_234_567 % (32 * MIB), 1 + n * 37 % 9000);
        let bytes = vec![n as u8; len];
        opened.write_at(&bytes, offset as u64).unwrap();
        model.resize(model.len().max(offset + len), 0);
        model[offset..offset + len].copy_from_slice(&bytes);
    }
    opened.sync().unwrap();
    assert!(std::fs::read(&file.0).unwrap() == model);
    assert_eq!(opened.len(), model.len() as u64);
    drop(opened);
    assert!(matches!(pager.open_file("/nowhere/x", &FileOptions::new()), Err(Error::File(..))));
}

/// The file is given another length, shorter and longer than it is and than what is stored to it.
///
/// *The story:* there was no way to do so but by a descriptor beside it. What was stored behind the new end
/// was written all the same, later, and made the file long again.
#[test]
fn a_cached_file_can_be_given_a_length() {
    let file = Scratch::new("length", 4 * MIB);
    let pager = pager(8, true);
    let open = |write: bool| pager.open_file(&file.0, &FileOptions::new().write(write)).unwrap();
    let (opened, reader) = (open(true), open(false));
    let mut model = std::fs::read(&file.0).unwrap();
    for (round, len) in [3 * MIB + 7, 20 * MIB, 0, 5 * PAGE, 5 * PAGE - 1, 6 * MIB].into_iter().enumerate() {
        // Around the old end, and all over.
        for offset in [model.len().saturating_sub(9), model.len() / 2, model.len() + 3 * PAGE] {
            opened.write_at(&[round as u8 + 1; 6000], offset as u64).unwrap();
            model.resize(model.len().max(offset + 6000), 0);
            model[offset..offset + 6000].fill(round as u8 + 1);
        }
        opened.set_len(len as u64).unwrap();
        model.resize(len, 0);
        assert_eq!((opened.len(), std::fs::metadata(&file.0).unwrap().len()), (len as u64, len as u64));
        let mut all = vec![9; len + 1];
        assert_eq!(reader.read_at(&mut all, 0).unwrap(), len);
        assert!(all[..len] == model, "round {round}");
        if round % 2 == 0 {
            opened.sync().unwrap();
            assert!(std::fs::read(&file.0).unwrap() == model, "round {round}");
        }
    }
    assert_eq!(reader.set_len(1).unwrap_err().errno(), Some(Errno::BADF));
    assert_eq!(opened.set_len(u64::MAX).unwrap_err().errno(), Some(Errno::FBIG));
    opened.close().unwrap();
    drop(reader);
    assert!(std::fs::read(&file.0).unwrap() == model);
}

/// Reads all of a file in order; gives how many pages that took from the device.
fn lap(opened: &File, pages: usize) -> u64 {
    let before = opened.stats().pages_read;
    let mut page = [0; PAGE];
    for number in 0..pages {
        opened.read_at(&mut page, (number * PAGE) as u64).unwrap();
        assert!(is_right(&page, number), "page {number}");
    }
    opened.stats().pages_read - before
}

/// *The story:* a cached file had half of the budget at most, though nobody had the rest: a loop over
/// 284M in 256M read 164 MB a lap. What it was granted above that was made up for by its own reads only,
/// and the files that came first left nothing to those that came later.
#[test]
fn a_cached_file_has_what_is_free_and_gives_way() {
    let (large, small) = (Scratch::new("free", 18 * MIB), Scratch::new("later", 3 * MIB));
    let pager = pager(16, true);
    let opened = pager.open_file(&large.0, &FileOptions::new()).unwrap();
    let laps: Vec<u64> = (0..6).map(|_| lap(&opened, 18 * 256)).collect();
    println!("pages read a lap: {laps:?}; 512 do not fit");
    assert!(laps[2..].iter().sum::<u64>() < 4 * 800, "{laps:?}");
    // Memory that is used makes room for itself, and what it does not need stays the file's.
    let mut region = pager.map_anon(6 * MIB).unwrap();
    let mut fill = |round: u8| {
        let before = pager.stats().unwrap().vmstat.pswpin;
        region.chunks_mut(PAGE).for_each(|page| page[round as usize] = round + 1);
        std::thread::sleep(std::time::Duration::from_millis(20));
        pager.stats().unwrap().vmstat.pswpin - before
    };
    let majors: Vec<u64> = (0..19).map(&mut fill).collect();
    for _ in 0..2 {
        lap(&opened, 18 * 256);
    }
    assert_eq!(fill(19), 0, "six of sixteen MiB are not too much: {majors:?}");
    let (stats, file) = (pager.stats().unwrap(), opened.stats());
    assert!(u64::from(stats.frames) + file.cached <= 4096, "{stats:?} {file:?}");
    assert!(file.cached > 2048, "more than half, still: {file:?}");
    assert!(region.chunks(PAGE).all(|page| page[..20] == std::array::from_fn::<u8, 20, _>(|n| n as u8 + 1)));
    // A file that comes later has its part.
    let later = pager.open_file(&small.0, &FileOptions::new()).unwrap();
    let laps: Vec<u64> = (0..12).map(|_| lap(&later, 3 * 256)).collect();
    assert_eq!(laps[11], 0, "{laps:?}");
    let (stats, file) = (pager.stats().unwrap(), opened.stats().cached + later.stats().cached);
    assert!(u64::from(stats.frames) + file <= 4096, "{stats:?} {file}");
    drop((opened, later));
    let whole = pager.map_anon(14 * MIB).unwrap();
    whole.chunks(PAGE).for_each(|page| assert_eq!(page[9], 0));
}

/// *The story:* cached pages lay in memory that a child of fork does not get: a read of one ended it by
/// SIGSEGV, and one that had to wait would have waited for threads that are not there.
#[test]
fn a_child_reads_what_was_cached_and_is_refused_the_rest() {
    let file = Scratch::new("child", 4 * MIB);
    let pager = pager(16, true);
    let opened = pager.open_file(&file.0, &FileOptions::new().write(true)).unwrap();
    let mut page = [0; PAGE];
    opened.advise(Advice::Random).unwrap();
    opened.read_at(&mut page, 3 * PAGE as u64).unwrap();
    let region = pager.map_anon(MIB).unwrap();
    let read_only = pager.open_file(&file.0, &FileOptions::new()).unwrap();
    assert!(matches!(read_only.write_at(&[1], 0), Err(Error::Io(_))));
    // SAFETY: the child calls nothing that allocates or takes a lock of another thread's, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let cached = opened.read_at(&mut page, 3 * PAGE as u64).is_ok() && is_right(&page, 3);
        let refused = matches!(opened.read_at(&mut page, 9 * PAGE as u64), Err(Error::Io(_)))
            && opened.write_at(&[1], 0).is_err()
            && opened.sync().is_err();
        drop(opened);
        // *The other story:* who dropped a region waited for the pager's thread for ever.
        drop(region);
        drop(pager);
        // SAFETY: nothing of the test harness runs in the child.
        unsafe { libc::_exit(i32::from(!cached) + 2 * i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: the status is written to a number of ours.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    opened.read_at(&mut page, 9 * PAGE as u64).unwrap();
    assert!(is_right(&page, 9));
}

#[test]
fn what_was_synced_survives_kill() {
    if let Some(path) = file_of_child() {
        let pager = pager(8, true);
        let file = pager.open_file(&path, &FileOptions::new().write(true)).unwrap();
        for round in 1.. {
            for page in 0..1024u64 {
                file.write_at(&[round; PAGE], page * PAGE as u64).unwrap();
            }
            file.sync().unwrap();
            println!("synced {round}");
        }
    }
    let file = Scratch::new("killed", 4 * MIB);
    let mut child = again("what_was_synced_survives_kill", &file.0).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let synced = lines
        .by_ref()
        .map(Result::unwrap)
        .filter_map(|line| line.split_once("synced ").map(|(_, round)| round.trim().parse::<u8>().unwrap()));
    let seen = synced.take(5).last().expect("it gets that far");
    child.kill().unwrap();
    // What it said before it was killed counts, too.
    let last = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("synced ")?.parse().ok());
    let last: u8 = last.max().unwrap_or(seen).max(seen);
    child.wait().unwrap();
    let bytes = std::fs::read(&file.0).unwrap();
    for (page, bytes) in bytes.chunks(PAGE).enumerate() {
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "page {page} is torn");
        assert!(bytes[0] >= last, "page {page} is of round {}, {last} was synced", bytes[0]);
    }
}

/// Three times the budget, in records that are no pages: what was synced is there, and nothing is torn
/// inside a page.
#[test]
fn what_was_synced_of_more_than_the_budget_survives_kill() {
    const LEN: usize = 24 * MIB + 1234;
    const RECORD: usize = 5000;
    if let Some(path) = file_of_child() {
        let pager = pager(8, true);
        let file = pager.open_file(&path, &FileOptions::new().write(true)).unwrap();
        for round in 1.. {
            for start in (0..LEN).step_by(RECORD) {
                file.write_at(&[round; RECORD][..RECORD.min(LEN - start)], start as u64).unwrap();
            }
            file.sync().unwrap();
            println!("synced {round}");
        }
    }
    let file = Scratch::new("killed-records", LEN);
    let test = "what_was_synced_of_more_than_the_budget_survives_kill";
    let mut child = again(test, &file.0).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let round = |line: String| line.split_once("synced ")?.1.trim().parse::<u8>().ok();
    let seen = lines.by_ref().filter_map(round).take(2).last().expect("it gets that far");
    // In the middle of the next round.
    std::thread::sleep(std::time::Duration::from_millis(40));
    child.kill().unwrap();
    let last = lines.filter_map(round).max().unwrap_or(seen);
    child.wait().unwrap();
    let bytes = std::fs::read(&file.0).unwrap();
    assert_eq!(bytes.len(), LEN);
    for (record, bytes) in bytes.chunks(RECORD).enumerate() {
        let first = (PAGE - record * RECORD % PAGE).min(bytes.len());
        let (head, rest) = bytes.split_at(first);
        for part in std::iter::once(head).chain(rest.chunks(PAGE)) {
            assert!(part.iter().all(|&byte| byte == part[0]), "record {record} is torn inside a page");
            assert!(part[0] >= last, "record {record} is of round {}, {last} was synced", part[0]);
        }
    }
}

/// What is asked for ahead comes whole, although the budget is full.
#[test]
fn what_is_asked_for_ahead_comes_under_a_full_budget() {
    let file = Scratch::new("ahead", 48 * MIB);
    let pager = pager(16, true);
    let region = pager.map_file(&file.0, &MapOptions::new()).unwrap();
    for _ in 0..2 {
        assert!(region.chunks(PAGE).enumerate().all(|(page, bytes)| is_right(bytes, page)));
    }
    let (first, pages) = (2048, 768);
    for round in 0..3 {
        let first = first + round * 2000;
        let read = || pager.stats().unwrap().vmstat.file_in;
        assert_eq!(region.prefetch(first * PAGE..(first + pages) * PAGE).unwrap(), 0);
        let mut before = u64::MAX;
        while before != read() {
            before = read();
            std::thread::sleep(std::time::Duration::from_millis(800));
        }
        let majors = region.stats().unwrap().pgmajfault;
        // In no order, so that nothing else reads ahead.
        for step in 0..pages {
            let page = first + step * 331 % pages;
            assert!(is_right(&region[page * PAGE..(page + 1) * PAGE], page), "page {page}");
        }
        let missing = region.stats().unwrap().pgmajfault - majors;
        println!("round {round}: {missing} of {pages} pages did not come");
        assert_eq!(missing, 0, "of {pages} pages that were asked for in round {round}");
    }
}

/// *The story:* what is mapped after mlockall(MCL_FUTURE) is filled with zeroes by the kernel as soon as it
/// may be touched, before anybody watches it. No fault came, and a mapped file was all zeroes.
#[test]
fn a_file_is_read_though_all_that_is_mapped_is_to_be_locked() {
    if let Some(path) = file_of_child() {
        let pager = pager(8, true);
        // SAFETY: changes no content.
        if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
            println!("this user may lock nothing");
            return;
        }
        for options in [MapOptions::new(), MapOptions::new().private()] {
            let region = pager.map_file(&path, &options).unwrap();
            assert!(region.chunks(PAGE).enumerate().all(|(page, bytes)| is_right(bytes, page)));
        }
        let mut region = pager.map_anon(12 * MIB).unwrap();
        region.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 77) as u8);
        assert!(region.iter().enumerate().all(|(at, &byte)| byte == (at / 77) as u8));
        let frames = pager.stats().unwrap().frames;
        assert!(frames <= 8 * MIB as u32 / 4096, "{frames} frames");
        return;
    }
    let file = Scratch::new("locked", 12 * MIB);
    let output = again("a_file_is_read_though_all_that_is_mapped_is_to_be_locked", &file.0).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
