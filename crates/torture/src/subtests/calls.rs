//! System calls that read or fill small structures, each in a cold page of its own; words that
//! threads sleep on.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Instant;

use crate::context::{Context, parallel};
use crate::memory::{Memory, PAGE};
use crate::outcome::Outcome;
use crate::{ensure, futex, pattern, sys};

const SEED: u64 = 0xca11;

/// Hands out cold pages of a memory, one after another, eight apart.
struct ColdPages<'a> {
    memory: &'a Memory,
    next: usize,
}

impl ColdPages<'_> {
    /// A place for a `T`, near the end of a cold page.
    fn place<T>(&mut self) -> *mut T {
        self.next += 8;
        self.memory.place(self.next * PAGE + PAGE / 2)
    }

    /// An address two bytes before the end of a cold page, for what may straddle two.
    fn straddling(&mut self) -> *mut u8 {
        self.next += 8;
        self.memory.at((self.next + 1) * PAGE - 2)
    }
}

/// `calls`: getrandom, poll, select, epoll, stat, clocks, paths, directory entries, ioctl, sleep:
/// in and out of cold memory.
pub fn calls(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    for _ in 0..4 {
        context.cool(&memory)?;
        let mut pages = ColdPages { memory: &memory, next: 0 };
        random(&mut pages)?;
        waiting(&mut pages)?;
        stat(&mut pages)?;
        clocks(&mut pages)?;
        paths(&mut pages)?;
        let page = pages.next + 8;
        pattern::check_pages(&memory, page..memory.pages(), SEED, "beside the structures")?;
        pattern::fill_pages(&memory, 0..page, SEED);
    }
    Ok(())
}

fn random(pages: &mut ColdPages<'_>) -> Outcome {
    let target = pages.straddling();
    // SAFETY: 256 bytes inside memory of ours.
    let count = sys::check("getrandom", unsafe { libc::getrandom(target.cast(), 256, 0) })?;
    ensure!(count == 256, "getrandom gave {count} of 256 bytes");
    // SAFETY: just filled.
    let bytes = unsafe { std::slice::from_raw_parts(target, 256) };
    ensure!(bytes.iter().any(|&byte| byte != bytes[0]), "getrandom gave 256 equal bytes");
    Ok(())
}

fn waiting(pages: &mut ColdPages<'_>) -> Outcome {
    let (reader, writer) = sys::pipe()?;
    sys::write_all(writer.as_raw_fd(), b"x".as_ptr(), 1)?;
    let ready: *mut libc::pollfd = pages.place();
    // SAFETY: all places are ours, aligned and in bounds; each call gets what its page in the
    // manual asks for.
    unsafe {
        ready.write(libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0x55 });
        ensure!(sys::check("poll", libc::poll(ready, 1, 1000) as isize)? == 1, "poll found nothing ready");
        ensure!((*ready).revents == libc::POLLIN, "poll left events {:#x}", (*ready).revents);

        let set: *mut libc::fd_set = pages.place();
        let timeout: *mut libc::timeval = pages.place();
        libc::FD_ZERO(set);
        libc::FD_SET(reader.as_raw_fd(), set);
        timeout.write(libc::timeval { tv_sec: 1, tv_usec: 0 });
        let null = std::ptr::null_mut();
        let count = libc::select(reader.as_raw_fd() + 1, set, null, null, timeout);
        ensure!(sys::check("select", count as isize)? == 1, "select found nothing ready");
        ensure!(libc::FD_ISSET(reader.as_raw_fd(), set), "select did not say what is ready");

        let epoll = sys::check("epoll_create1", libc::epoll_create1(libc::EPOLL_CLOEXEC) as isize)? as i32;
        let event: *mut libc::epoll_event = pages.place();
        event.write(libc::epoll_event { events: libc::EPOLLIN as u32, u64: 77 });
        let added = libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, reader.as_raw_fd(), event);
        sys::check("epoll_ctl", added as isize)?;
        let events: *mut libc::epoll_event = pages.place();
        let count = sys::check("epoll_wait", libc::epoll_wait(epoll, events, 4, 1000) as isize)?;
        let data = (*events).u64;
        ensure!(count == 1 && data == 77, "epoll_wait gave {count} events, the first with {data}");
        libc::close(epoll);

        let available: *mut i32 = pages.place();
        sys::check("ioctl", libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, available) as isize)?;
        ensure!(*available == 1, "FIONREAD says {}", *available);
    }
    Ok(())
}

fn stat(pages: &mut ColdPages<'_>) -> Outcome {
    // SAFETY: all places are ours, aligned and in bounds; the path is a C string.
    unsafe {
        let status: *mut libc::stat = pages.place();
        sys::check("stat", libc::stat(c"/".as_ptr(), status) as isize)?;
        ensure!((*status).st_mode & libc::S_IFMT == libc::S_IFDIR, "stat says / is no directory");
        let extended: *mut libc::statx = pages.place();
        let result = libc::statx(libc::AT_FDCWD, c"/".as_ptr(), 0, libc::STATX_BASIC_STATS, extended);
        sys::check("statx", result as isize)?;
        ensure!((*extended).stx_ino == (*status).st_ino, "stat and statx disagree");
        let names: *mut libc::utsname = pages.place();
        sys::check("uname", libc::uname(names) as isize)?;
        let system = std::ffi::CStr::from_ptr((&raw const (*names).sysname).cast());
        ensure!(system == c"Linux", "uname names another system");
    }
    Ok(())
}

fn clocks(pages: &mut ColdPages<'_>) -> Outcome {
    // SAFETY: all places are ours, aligned and in bounds.
    unsafe {
        let (by_library, by_kernel): (*mut libc::timespec, *mut libc::timespec) =
            (pages.place(), pages.place());
        libc::clock_gettime(libc::CLOCK_MONOTONIC, by_library);
        let result = libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, by_kernel);
        sys::check("clock_gettime", result as isize)?;
        let apart = (*by_kernel).tv_sec - (*by_library).tv_sec;
        ensure!((0..60).contains(&apart), "two readings of the clock are {apart} s apart");
        let pause: *mut libc::timespec = pages.place();
        pause.write(futex::timeout_ms(1));
        sys::check("nanosleep", libc::nanosleep(pause, pages.place()) as isize)?;
        let limits: *mut libc::rlimit = pages.place();
        sys::check("getrlimit", libc::getrlimit(libc::RLIMIT_NOFILE, limits) as isize)?;
        ensure!((*limits).rlim_cur > 0, "no file may be open");
        let usage: *mut libc::rusage = pages.place();
        sys::check("getrusage", libc::getrusage(libc::RUSAGE_SELF, usage) as isize)?;
    }
    Ok(())
}

fn paths(pages: &mut ColdPages<'_>) -> Outcome {
    let path = CString::new("/proc/self/exe").expect("no NUL inside");
    let cold_path = pages.straddling();
    // SAFETY: all places are ours and in bounds; the path is copied with its NUL.
    unsafe {
        cold_path.copy_from(path.as_ptr().cast(), path.as_bytes_with_nul().len());
        let name = pages.straddling();
        let len = libc::readlink(cold_path.cast(), name.cast(), 1000);
        let len = sys::check("readlink", len)?;
        let name = std::slice::from_raw_parts(name, len);
        let expected = std::env::current_exe()?;
        ensure!(name == expected.as_os_str().as_encoded_bytes(), "readlink gave {}", name.escape_ascii());

        let directory =
            libc::open(c"/proc/self".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        let directory = sys::check("open", directory as isize)? as i32;
        let entries = pages.straddling().wrapping_add(2);
        let count = libc::syscall(libc::SYS_getdents64, directory, entries, 2048);
        libc::close(directory);
        ensure!(sys::check("getdents64", count as isize)? > 100, "getdents64 gave {count} bytes");
        let current = pages.straddling();
        ensure!(!libc::getcwd(current.cast(), 1000).is_null(), "getcwd: errno {}", sys::errno());
        let current = std::ffi::CStr::from_ptr(current.cast()).to_bytes();
        let expected = std::env::current_dir()?;
        ensure!(current == expected.as_os_str().as_encoded_bytes(), "getcwd gave {}", current.escape_ascii());
    }
    Ok(())
}

/// `futex`: threads sleep on words whose pages are evicted while they sleep, and are all woken; a
/// wait whose value differs returns at once; timeouts lie in cold memory.
pub fn futex(context: &mut Context) -> Outcome {
    const SLEEPERS: usize = 8;
    let memory = &context.subject(SEED)?;
    let words: Vec<&AtomicU32> = (0..=SLEEPERS).map(|lane| word(memory, lane * 64)).collect();
    words.iter().for_each(|word| word.store(0, Relaxed));
    let timeout: *mut libc::timespec = memory.place(memory.len() / 2);
    // SAFETY: a place of ours that only this subtest uses.
    unsafe { timeout.write(futex::timeout_ms(60_000)) };
    let (asleep, timeout) = (&AtomicU32::new(0), timeout as usize);
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = words[..SLEEPERS]
            .iter()
            .map(|&word| {
                scope.spawn(move || {
                    asleep.fetch_add(1, Relaxed);
                    while word.load(Relaxed) == 0 {
                        match futex::wait(word, 0, timeout as *const _) {
                            Ok(()) | Err(libc::EAGAIN | libc::EINTR) => {}
                            Err(error) => crate::fail!("FUTEX_WAIT on a cold word: errno {error}"),
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        while asleep.load(Relaxed) < SLEEPERS as u32 {
            sys::pause_ms(1);
        }
        sys::pause_ms(20);
        context.cool(memory)?;
        for &word in &words[1..SLEEPERS] {
            word.store(1, Relaxed);
            futex::wake(word, 1).map_err(|error| failed("FUTEX_WAKE", error))?;
        }
        context.cool(memory)?;
        let moved = futex::requeue(words[0], words[SLEEPERS], 0).map_err(|error| failed("requeue", error))?;
        ensure!(moved == 1, "requeue moved {moved} sleepers from a cold word, expected 1");
        context.cool(memory)?;
        words[0].store(1, Relaxed);
        let woken = futex::wake(words[SLEEPERS], 9).map_err(|error| failed("FUTEX_WAKE", error))?;
        ensure!(woken == 1, "woke {woken} sleepers on the word they were moved to, expected 1");
        sleepers.into_iter().try_for_each(|sleeper| sleeper.join().expect("a panic ends the process"))
    })?;
    words[0].store(1, Relaxed);
    context.cool(memory)?;
    ensure!(
        futex::wait(words[0], 0, std::ptr::null()) == Err(libc::EAGAIN),
        "a wait for another value slept"
    );
    context.cool(memory)?;
    pattern::check_pages(memory, memory.pages() / 2 + 1..memory.pages(), SEED, "behind the words")?;
    context.sabotage_status()
}

/// `futex-pi`: threads contend for priority-inheriting locks in memory that is paged, as a C
/// library does it: the word is changed by the program first, and by the kernel when that fails.
pub fn futex_pi(context: &mut Context) -> Outcome {
    const LOCKS: usize = 16;
    let memory = &context.subject(SEED)?;
    let locks: Vec<&AtomicU32> = (0..LOCKS).map(|lane| word(memory, lane * memory.pages() / LOCKS)).collect();
    locks.iter().for_each(|lock| lock.store(0, Relaxed));
    let counts: Vec<AtomicU64> = (0..LOCKS).map(|_| AtomicU64::new(0)).collect();
    let taken = AtomicU64::new(0);
    context.cool(memory)?;
    let deadline = context.deadline();
    context.under_pressure(|context| {
        parallel(4, |lane| {
            let mut rng = context.rng(lane);
            while Instant::now() < deadline {
                let index = rng.below(LOCKS);
                lock(locks[index])?;
                // Not an atomic addition: only the lock makes it one.
                let count = counts[index].load(Relaxed);
                std::hint::spin_loop();
                counts[index].store(count + 1, Relaxed);
                taken.fetch_add(1, Relaxed);
                unlock(locks[index])?;
            }
            Ok(())
        })
    })?;
    let counted: u64 = counts.iter().map(|count| count.load(Relaxed)).sum();
    let taken = taken.into_inner() + u64::from(context.options.sabotage);
    ensure!(counted == taken, "locks were taken {taken} times, what they guard was changed {counted} times");
    ensure!(locks.iter().all(|lock| lock.load(Relaxed) == 0), "a lock is still held");
    Ok(())
}

fn lock(word: &AtomicU32) -> Outcome {
    if word.compare_exchange(0, sys::thread_id() as u32, Acquire, Relaxed).is_err() {
        futex::lock_pi(word).map_err(|error| failed("FUTEX_LOCK_PI", error))?;
    }
    Ok(())
}

fn unlock(word: &AtomicU32) -> Outcome {
    if word.compare_exchange(sys::thread_id() as u32, 0, Release, Relaxed).is_err() {
        futex::unlock_pi(word).map_err(|error| failed("FUTEX_UNLOCK_PI", error))?;
    }
    Ok(())
}

/// `futex-cold-op`: operations in which the kernel changes a word that the program has not touched for long:
/// FUTEX_WAKE_OP and priority-inheriting locks straight in the kernel.
pub fn futex_cold_op(context: &mut Context) -> Outcome {
    let memory = &context.subject(SEED)?;
    let (first, second) = (word(memory, 0), word(memory, memory.pages() / 2));
    first.store(0, Relaxed);
    second.store(40, Relaxed);
    context.cool(memory)?;
    futex::wake_add(first, second, 2).map_err(|error| failed("FUTEX_WAKE_OP", error))?;
    ensure!(second.load(Relaxed) == 42, "FUTEX_WAKE_OP left {} in a cold word", second.load(Relaxed));
    context.cool(memory)?;
    futex::lock_pi(first).map_err(|error| failed("FUTEX_LOCK_PI", error))?;
    ensure!(first.load(Relaxed) == sys::thread_id() as u32, "FUTEX_LOCK_PI left {}", first.load(Relaxed));
    context.cool(memory)?;
    futex::unlock_pi(first).map_err(|error| failed("FUTEX_UNLOCK_PI", error))?;
    ensure!(first.load(Relaxed) == 0, "FUTEX_UNLOCK_PI left {}", first.load(Relaxed));
    context.sabotage_status()
}

fn word(memory: &Memory, page: usize) -> &AtomicU32 {
    // SAFETY: aligned and in bounds (asserted by `place`), mapped while `memory` is borrowed, any
    // bits are valid.
    unsafe { AtomicU32::from_ptr(memory.place(page * PAGE + 1024)) }
}

fn failed(operation: &str, error: i32) -> crate::outcome::Failure {
    crate::outcome::Failure(format!("{operation} on a cold word: errno {error}"))
}
