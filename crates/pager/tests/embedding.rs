//! What else the process does that has a pager: its rights, its locks, its children. Needs userfaultfd.

mod again;

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use again::{again, file_of_child};
use overspill_pager::{Builder, Errno, Error, FileOptions, MapOptions, Overrides, Pager, Region};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

fn directory() -> PathBuf {
    std::env::var_os("OVERSPILL_TEST_SWAP").map_or_else(|| "/var/tmp".into(), PathBuf::from)
}

fn pager(mib: usize) -> Pager {
    let builder = Pager::builder().ram((mib * MIB) as u64).swap(directory());
    builder.build().expect("userfaultfd, io_uring and a disk are there")
}

/// A file that is gone when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = directory().join(format!("overspill-embedding-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![1; 10 * PAGE]).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Ends this process if it waits for so long. The first of a pid namespace hears only of signals that it has
/// handlers for.
fn wait_at_most(seconds: u32) {
    extern "C" fn end(_: libc::c_int) {
        // SAFETY: it ends.
        unsafe { libc::_exit(3) };
    }
    // SAFETY: the handler does nothing but that; sets an alarm.
    unsafe {
        libc::signal(libc::SIGALRM, end as extern "C" fn(libc::c_int) as libc::sighandler_t);
        libc::alarm(seconds);
    }
}

/// *The story:* glibc's setuid has every thread of the process change its rights, by a signal of its own,
/// and waits for all. A pager's threads blocked every signal: a server that gave its rights up waited
/// for ever.
#[test]
fn rights_are_changed_beside_a_pager() {
    let Some(path) = file_of_child() else {
        let file = Scratch::new("rights");
        let output = again("rights_are_changed_beside_a_pager", &file.0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("rights are changed"), "{output:?}");
        return;
    };
    wait_at_most(20);
    let pager = pager(4);
    let mut region = pager.map_anon(8 * MIB).unwrap();
    let shared = pager.map_shared(MIB).unwrap();
    let other = overspill_pager::SharedRegion::join(shared.handle().unwrap()).unwrap();
    let file = pager.open_file(&path, &FileOptions::new().write(true)).unwrap();
    file.write_at(&[7; 5 * PAGE], 0).unwrap();
    for _ in 0..3 {
        // SAFETY: the rights stay what they are.
        let changed = unsafe { [libc::setgid(libc::getgid()), libc::setuid(libc::getuid())] };
        assert_eq!(changed, [0; 2]);
        region.chunks_mut(PAGE).for_each(|page| page[7] += 1);
    }
    assert!(region.chunks(PAGE).all(|page| page[7] == 3));
    file.sync().unwrap();
    assert_eq!(other.len(), MIB);
    println!("rights are changed");
}

/// Would a lock on the file be refused to another process, which is a child?
fn is_locked(path: &Path) -> bool {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    // SAFETY: a lock is plain data; the child makes system calls only.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as _;
        let child = libc::fork();
        if child == 0 {
            let asked = libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock);
            let free = libc::c_short::from(libc::F_UNLCK as i8);
            libc::_exit(if asked < 0 { 2 } else { i32::from(lock.l_type != free) });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) < 2);
        // Here nobody closes it: that would give up the lock.
        std::mem::forget(file);
        libc::WEXITSTATUS(status) == 1
    }
}

/// *The story:* a process lets go of its record locks on a file with any descriptor of it that it closes,
/// and a pager closed some of a file's as it opened or mapped that. Two programs had a database for
/// themselves.
#[test]
fn locks_are_kept_as_a_file_is_opened_and_mapped() {
    let scratch = Scratch::new("locks");
    let own = OpenOptions::new().read(true).write(true).open(&scratch.0).unwrap();
    let take = || {
        // SAFETY: a lock is plain data.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::F_WRLCK as _;
            assert_eq!(libc::fcntl(own.as_raw_fd(), libc::F_SETLK, &raw const lock), 0);
        }
    };
    take();
    assert!(is_locked(&scratch.0), "a lock can be seen");
    let pager = pager(4);
    let reading = pager.open_file(&scratch.0, &FileOptions::new()).unwrap();
    assert!(is_locked(&scratch.0), "after a file was opened");
    let options = FileOptions::new().write(true);
    let again: Vec<_> = [FileOptions::new(), options.clone(), options.clone(), FileOptions::new()]
        .iter()
        .map(|options| pager.open_file(&scratch.0, options).unwrap())
        .collect();
    assert!(is_locked(&scratch.0), "after it was opened again");
    again[2].write_at(&[3; 5000], 100).unwrap();
    again[0].sync().unwrap();
    assert!(is_locked(&scratch.0), "after it was written");
    let mapped = pager.map_file(&scratch.0, &MapOptions::new()).unwrap();
    let private = pager.map_file(&scratch.0, &MapOptions::new().private()).unwrap();
    assert!(mapped[200] == 3 && private[200] == 3 && is_locked(&scratch.0), "after it was mapped");
    drop((reading, again));
    take();
    let mut shared = pager.map_file(&scratch.0, &MapOptions::new().shared()).unwrap();
    shared.as_mut().unwrap()[300] = 4;
    shared.sync().unwrap();
    assert!(is_locked(&scratch.0), "after it was mapped so that stores are its");
    drop((shared, mapped, private));
    assert!(!is_locked(&scratch.0), "closing gives them up, as it does any process's");
}

/// *The story:* of 8 TiB and more the addresses were counted by too few bits: the pager stopped as it
/// started, or had fewer of them than it counted on. 16 TiB were 512 GiB.
#[test]
fn a_budget_of_9_tib_is_a_budget() {
    let pager = Pager::builder().ram(9 << 40).swap(directory()).build().expect("addresses are plenty");
    let mut region = pager.map_anon(8 * MIB).unwrap();
    region.chunks_mut(PAGE).for_each(|page| page[9] = 1);
    assert!(region.chunks(PAGE).all(|page| page[9] == 1));
    assert_eq!(pager.stats().unwrap().frames as usize, 8 * MIB / PAGE);
}

/// The next processes that the caller makes have numbers of their own.
fn number_anew() -> std::io::Result<()> {
    // SAFETY: no arguments that could be wrong.
    match unsafe { libc::unshare(libc::CLONE_NEWPID) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// *The story:* a child of fork knew by its number that it is not its parent. In a new pid namespace both
/// were process 1, and the child waited for threads that it does not have.
#[test]
fn a_child_with_its_parents_number_is_not_its_parent() {
    const NAME: &str = "a_child_with_its_parents_number_is_not_its_parent";
    /// Of the process that is the first in a namespace.
    const FIRST: &str = "OVERSPILL_TEST_FIRST";
    let Some(path) = file_of_child() else {
        let file = Scratch::new("number");
        let output = again(NAME, &file.0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("the child knows"), "{output:?}");
        return;
    };
    if std::env::var_os(FIRST).is_none() {
        number_anew().expect("the right to make a pid namespace (CAP_SYS_ADMIN)");
        let status = again(NAME, &path).env(FIRST, "1").status().unwrap();
        assert!(status.success(), "{status:?}");
        return;
    }
    wait_at_most(20);
    assert_eq!(std::process::id(), 1);
    let pager = pager(4);
    let region = pager.map_anon(MIB).unwrap();
    let file = pager.open_file(&path, &FileOptions::new().write(true)).unwrap();
    number_anew().unwrap();
    // SAFETY: the child is served by nobody else's threads: that is what is asked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        wait_at_most(10);
        let knows = std::process::id() == 1
            && matches!(pager.stats(), Err(Error::Stopped))
            && file.write_at(&[1], 0).is_err();
        drop((region, file, pager));
        // SAFETY: it ends.
        unsafe { libc::_exit(i32::from(!knows)) };
    }
    let mut status = 0;
    // SAFETY: the status is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    assert!(pager.stats().is_ok());
    println!("the child knows");
}

/// *The story:* a store that no file system takes was taken, and each sync of the file failed from then on,
/// whoever synced. So it was behind the process's limit on files, and there the kernel ended it.
#[test]
fn what_no_file_takes_is_refused_at_once() {
    let Some(path) = file_of_child() else {
        let file = Scratch::new("long");
        let output = again("what_no_file_takes_is_refused_at_once", &file.0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("all is in the file"), "{output:?}");
        assert_eq!(std::fs::metadata(&file.0).unwrap().len(), 12 * PAGE as u64);
        return;
    };
    let pager = pager(4);
    let file = pager.open_file(&path, &FileOptions::new().write(true)).unwrap();
    let too_long = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Io(Errno::FBIG)));
    assert!(too_long(file.write_at(&[2; 10], u64::MAX / 4)));
    assert!(too_long(file.write_at(&[2; 10], i64::MAX as u64 - 5)));
    file.write_at(&[], u64::MAX / 4).unwrap();
    assert_eq!(file.len(), 10 * PAGE as u64);
    let limit = libc::rlimit { rlim_cur: 12 * PAGE as u64, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is valid.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let limited = pager.open_file(&path, &FileOptions::new().write(true)).unwrap();
    assert!(too_long(limited.write_at(&[2; 10], 12 * PAGE as u64 - 5)));
    limited.write_at(&[2; 2 * PAGE], 10 * PAGE as u64).unwrap();
    file.close().unwrap();
    limited.close().unwrap();
    println!("all is in the file");
}

/// *The story:* the knobs of a region of a file did nothing: windows were as large with 4 pages as without.
#[test]
fn a_mapped_file_is_read_in_windows_as_its_knob_says() {
    let scratch = Scratch::new("windows");
    std::fs::write(&scratch.0, vec![5; 4 * MIB]).unwrap();
    let pager = pager(16);
    for (most, largest) in [(Some(4), 4), (Some(0), 1), (None, u32::MAX)] {
        let region = pager.map_file(&scratch.0, &MapOptions::new()).unwrap();
        region.set_readahead(Overrides { max_window: most, ..Overrides::default() }).unwrap();
        assert!(region.chunks(PAGE).all(|page| page[1] == 5));
        let stats = region.stats().unwrap();
        let widest = stats.windows.iter().rposition(|&count| count > 0).unwrap();
        assert!(1 << widest <= largest, "{most:?}: {stats:?}");
        assert!(most.is_some() || widest > 2, "{stats:?}");
        region.close().unwrap();
    }
}

/// *The story:* a file of /sys says that it has 4096 bytes, and has 20. The first touch of its mapping was
/// SIGBUS.
#[test]
fn a_file_that_lies_about_its_length_is_not_mapped() {
    let pager = pager(4);
    let of_sys = ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_seqnum"];
    let lies = |path: &&str| std::fs::metadata(path).is_ok_and(|file| file.len() == PAGE as u64);
    let lies = of_sys.into_iter().find(lies).expect("sysfs is mounted");
    let mapped = pager.map_file(lies, &MapOptions::new());
    assert!(matches!(mapped, Err(Error::File(_, Errno::NODEV))), "{mapped:?}");
}

#[test]
fn what_files_have_of_the_budget_is_told() {
    let scratch = Scratch::new("told");
    let pager = pager(4);
    assert_eq!(pager.stats().unwrap().file_frames, 0);
    let file = pager.open_file(&scratch.0, &FileOptions::new()).unwrap();
    file.read_at(&mut [0; 10 * PAGE], 0).unwrap();
    let stats = pager.stats().unwrap();
    assert!(stats.file_frames >= 10 && u64::from(stats.file_frames) >= file.stats().cached, "{stats:?}");
    assert_eq!(stats.frames, 0);
    assert!(pager.uses_move().is_ok());
    file.close().unwrap();
    assert_eq!(pager.stats().unwrap().file_frames, 0);
}

fn held(pager: &Pager) -> usize {
    let stats = pager.stats().unwrap();
    (stats.frames + stats.file_frames) as usize * PAGE
}

/// Waits until no more than this is held.
fn settles_at(pager: &Pager, bytes: usize) {
    let begin = std::time::Instant::now();
    while held(pager) > bytes {
        assert!(begin.elapsed() < Duration::from_secs(20), "{} of {bytes} are held", held(pager));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_budget_changes_while_regions_and_files_are_in_use() {
    let scratch = Scratch::new("changing");
    let builder = Pager::builder().swap(directory()).ram(4 * MIB as u64);
    let pager = builder.ram_max(16 * MIB as u64).build().unwrap();
    let refused = [0, Builder::RAM_MIN - 1, 17 * MIB as u64].map(|bytes| pager.set_ram(bytes));
    assert!(matches!(
        refused,
        [Err(Error::BudgetTooSmall), Err(Error::BudgetTooSmall), Err(Error::BudgetTooLarge(most))]
            if most == 16 * MIB as u64
    ));
    let mut region = pager.map_anon(24 * MIB).unwrap();
    let file = pager.open_file(&scratch.0, &FileOptions::new().write(true)).unwrap();
    let lap = |region: &mut Region, round: u8| {
        for (number, page) in region.chunks_mut(PAGE).enumerate() {
            assert_eq!(page[1], if round == 1 { 0 } else { (number as u8).wrapping_add(round - 1) });
            page[1] = (number as u8).wrapping_add(round);
        }
        (0..8).for_each(|part| file.write_at(&vec![round; MIB], (part * MIB) as u64).unwrap());
    };
    // Each time it settles at what there is now: more than before at first, less in the end.
    for (round, mib) in [(1, 4), (2, 16), (3, 6), (4, 1), (5, 12)] {
        pager.set_ram((mib * MIB) as u64).unwrap();
        lap(&mut region, round);
        settles_at(&pager, mib * MIB);
        assert!(held(&pager) > mib * MIB / 4, "{} of {mib} MiB", held(&pager));
    }
    pager.set_ram(2 * MIB as u64).unwrap();
    settles_at(&pager, 2 * MIB);
    let mut all = vec![0; 8 * MIB];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), all.len());
    assert!(all.iter().all(|&byte| byte == 5));
}

/// Writes a region of so many bytes twice over, and looks that all is there.
fn two_laps(region: &mut Region) {
    for round in 0..2 {
        for (number, page) in region.chunks_mut(PAGE).enumerate() {
            assert_eq!(page[1], if round == 0 { 0 } else { number as u8 | 1 });
            page[1] = number as u8 | 1;
        }
    }
}

/// *The story:* the first page of a file took 256 frames of the budget, and nobody asked for the last 256
/// of a file. 64 files of 4 KiB left a budget of 64 MiB 60 frames for a region that fits beside them.
#[test]
fn small_files_take_what_they_are_and_leave_the_rest() {
    let scratch: Vec<Scratch> = (0..48).map(|number| Scratch::new(&format!("small-{number}"))).collect();
    let pager = pager(16);
    let open = |scratch: &Scratch| pager.open_file(&scratch.0, &FileOptions::new()).unwrap();
    let files: Vec<_> = scratch.iter().map(open).collect();
    files.iter().for_each(|file| assert_eq!(file.read_at(&mut [0; PAGE], 0).unwrap(), PAGE));
    let stats = pager.stats().unwrap();
    assert!((48..=480).contains(&stats.file_frames), "ten pages a file at most: {stats:?}");
    two_laps(&mut pager.map_anon(12 * MIB).unwrap());
    let stats = pager.stats().unwrap();
    assert_eq!(stats.vmstat.pswpout, 0, "it fits beside them: {stats:?}");
    files.iter().for_each(|file| assert_eq!(file.read_at(&mut [0; PAGE], 0).unwrap(), PAGE));
}

/// *The story:* a file that had been cut kept its half of the budget for nothing.
#[test]
fn what_a_file_has_and_does_not_use_is_given_to_regions() {
    let scratch = Scratch::new("unused");
    std::fs::write(&scratch.0, vec![3; 7 * MIB]).unwrap();
    let pager = pager(16);
    let file = pager.open_file(&scratch.0, &FileOptions::new()).unwrap();
    assert_eq!(file.read_at(&mut vec![0; 7 * MIB], 0).unwrap(), 7 * MIB);
    std::fs::write(&scratch.0, []).unwrap();
    assert_eq!(file.read_at(&mut [0; PAGE], 7 * MIB as u64 - 1).unwrap(), 0, "it was cut");
    let mut region = pager.map_anon(14 * MIB).unwrap();
    let begin = std::time::Instant::now();
    while pager.stats().unwrap().file_frames > 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", pager.stats());
        region.chunks_mut(PAGE).for_each(|page| page[0] = 1);
    }
}

/// *The story:* 100 files of 1 MiB kept 100 MiB when the budget became 64, for ever, and a region beside them
/// had one frame. `set_ram` had returned `Ok`.
#[test]
fn many_files_give_back_what_a_smaller_budget_has_not() {
    let scratch: Vec<Scratch> = (0..40).map(|number| Scratch::new(&format!("many-{number}"))).collect();
    let pager = pager(32);
    let options = FileOptions::new().write(true);
    let mut buffer = vec![0; MIB / 2];
    let files: Vec<_> = (scratch.iter().zip(1..))
        .map(|(scratch, value)| {
            std::fs::write(&scratch.0, vec![value; MIB / 2]).unwrap();
            let file = pager.open_file(&scratch.0, &options).unwrap();
            assert_eq!(file.read_at(&mut buffer, 0).unwrap(), buffer.len());
            // Of some a part is newer than the file.
            (0..u64::from(value % 4)).for_each(|page| file.write_at(&[value; PAGE], page * 9000).unwrap());
            file
        })
        .collect();
    assert!(held(&pager) >= 20 * MIB, "all are cached");
    let begin = std::time::Instant::now();
    pager.set_ram(8 * MIB as u64).unwrap();
    settles_at(&pager, 8 * MIB);
    assert!(begin.elapsed() < Duration::from_secs(5), "tenths of a second, not {:?}", begin.elapsed());
    let mut region = pager.map_anon(6 * MIB).unwrap();
    two_laps(&mut region);
    let stats = pager.stats().unwrap();
    assert!(stats.frames as usize * PAGE >= 3 * MIB, "nearly half is the region's: {stats:?}");
    for (file, value) in files.iter().zip(1..) {
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), buffer.len());
        assert!(buffer.iter().all(|&byte| byte == value));
    }
    settles_at(&pager, 8 * MIB);
}

/// *The story:* /proc/cpuinfo was read as an empty file, without an error.
#[test]
fn a_file_that_hides_its_length_is_not_opened() {
    let opened = pager(4).open_file("/proc/cpuinfo", &FileOptions::new());
    assert!(matches!(opened, Err(Error::File(_, Errno::NODEV))), "{opened:?}");
}

#[test]
fn discarded_pages_are_zero_and_take_no_swap() {
    let pager = pager(2);
    let mut region = pager.map_anon(8 * MIB).unwrap();
    region.chunks_mut(PAGE).enumerate().for_each(|(number, page)| page.fill(number as u8 | 1));
    assert!(pager.stats().unwrap().slots > 0);
    region.discard(100..8 * MIB - 100).unwrap();
    region.discard(5 * PAGE + 1..6 * PAGE + PAGE - 1).unwrap();
    let last = region.len() / PAGE - 1;
    for (number, page) in region.chunks(PAGE).enumerate() {
        let wanted = if number == 0 || number == last { number as u8 | 1 } else { 0 };
        assert!(page.iter().all(|&byte| byte == wanted), "page {number}");
    }
    region.discard(0..8 * MIB).unwrap();
    let begin = std::time::Instant::now();
    while pager.stats().unwrap().slots > 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", pager.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
}
