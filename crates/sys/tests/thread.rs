//! Threads without libc: they run, end, cannot be seen, and have the descriptors they were promised.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block acts on memory and files the test made itself"
)]

use overspill_sys::event::Bell;
use overspill_sys::futex::{self, Scope};
use overspill_sys::mem::{self, Mapping};
use overspill_sys::thread::{self, Descriptors};
use overspill_sys::{Errno, PAGE_SIZE, clock, fd, file, procfs};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const STACK: usize = 64 * 1024;

/// What a thread and its maker tell each other.
#[derive(Default)]
struct Shared {
    go: AtomicU32,
    tid: AtomicU32,
    signals: AtomicU64,
    result: AtomicU32,
    fd: AtomicU32,
}

impl Shared {
    fn pointer(&self) -> *mut () {
        std::ptr::from_ref(self) as *mut ()
    }

    fn wait_for_go(&self) {
        while self.go.load(Ordering::Acquire) == 0 {
            let _ = futex::wait(&self.go, 0, None, Scope::Private);
        }
    }

    fn release(&self) {
        self.go.store(1, Ordering::Release);
        futex::wake(&self.go, 1, Scope::Private);
    }
}

fn shared(argument: *mut ()) -> &'static Shared {
    unsafe { &*argument.cast::<Shared>() }
}

extern "C" fn reports(argument: *mut ()) {
    let shared = shared(argument);
    thread::set_name(c"agent");
    shared.tid.store(thread::id(), Ordering::Release);
    let mask = thread::block_all_signals().unwrap();
    shared.signals.store(mask, Ordering::Release);
    shared.wait_for_go();
}

#[test]
fn it_runs_and_ends() {
    let shared = Shared::default();
    let before = thread::block_all_signals().unwrap();
    thread::restore_signals(before);
    let thread = unsafe { thread::spawn(STACK, Descriptors::Private, reports, shared.pointer()).unwrap() };
    assert_eq!(thread::block_all_signals(), Ok(before));
    thread::restore_signals(before);
    while shared.signals.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    assert_eq!(shared.tid.load(Ordering::Acquire), thread.tid());
    // Everything but KILL and STOP.
    assert_eq!(!shared.signals.load(Ordering::Acquire), 1 << 8 | 1 << 18);
    let mut seen = false;
    procfs::for_each_thread(|tid| seen |= tid == thread.tid()).unwrap();
    assert!(seen && !thread.has_ended());
    let name = std::fs::read_to_string(format!("/proc/self/task/{}/comm", thread.tid())).unwrap();
    assert_eq!(name, "agent\n");
    shared.release();
    thread.join();
}

extern "C" fn uses_the_block(argument: *mut ()) {
    // What an accident would do: read the canary, and read and write a static thread-local.
    let (own, canary): (usize, usize);
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) own);
        std::arch::asm!("mov {}, fs:[0x28]", out(reg) canary);
        let local = (own - 4096) as *mut u64;
        assert_eq!(local.read_volatile(), 0);
        local.write_volatile(5);
    }
    shared(argument).signals.store(canary as u64, Ordering::Release);
}

#[test]
fn the_block_is_what_code_expects() {
    let shared = Shared::default();
    let thread =
        unsafe { thread::spawn(STACK, Descriptors::Shared, uses_the_block, shared.pointer()).unwrap() };
    thread.join();
    let canary: usize;
    unsafe { std::arch::asm!("mov {}, fs:[0x28]", out(reg) canary) };
    assert_eq!(shared.signals.load(Ordering::Acquire), canary as u64);
}

extern "C" fn closes_everything(argument: *mut ()) {
    let shared = shared(argument);
    unsafe { fd::close_all_descriptors().unwrap() };
    let bell = Bell::new().unwrap();
    // A helper of the agent shares the agent's table.
    let helper = unsafe { thread::spawn(STACK, Descriptors::Shared, rings, argument) };
    shared.fd.store(bell.fd().raw() as u32 + 1, Ordering::Release);
    helper.unwrap().join();
    shared.result.store(1 + u32::from(bell.hush()), Ordering::Release);
}

extern "C" fn rings(argument: *mut ()) {
    let shared = shared(argument);
    while shared.fd.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    let fd = shared.fd.load(Ordering::Acquire) as i32 - 1;
    assert_eq!(file::write(fd, &1u64.to_ne_bytes()), Ok(8));
}

#[test]
fn descriptor_tables_are_apart() {
    let shared = Shared::default();
    let mine = std::fs::File::open("/dev/null").unwrap();
    let thread =
        unsafe { thread::spawn(STACK, Descriptors::Private, closes_everything, shared.pointer()).unwrap() };
    thread.join();
    assert_eq!(shared.result.load(Ordering::Acquire), 2);
    mine.metadata().unwrap();
    // The agent's first descriptor was 0 in its own table; ours still is what it was.
    assert_eq!(shared.fd.load(Ordering::Acquire), 1);
    assert!(std::fs::metadata("/proc/self/fd/0").is_ok());
}

#[test]
fn a_child_of_fork_is_alone_and_well() {
    let shared = Shared::default();
    let thread = unsafe { thread::spawn(STACK, Descriptors::Private, reports, shared.pointer()).unwrap() };
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut threads = 0;
        procfs::for_each_thread(|_| threads += 1).unwrap();
        let mut byte = [0];
        let mapped = mem::copy_from_self(&mut byte, thread.range().end - 8).is_ok();
        thread::exit_process(i32::from(threads == 1 && mapped));
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 1);
    shared.release();
    thread.join();
}

/// *The story:* ids were kept in a ring. After 64 other threads one that lived on was nobody's.
#[test]
fn who_lives_is_known_for_as_long() {
    extern "C" fn does_nothing(_: *mut ()) {}
    let shared = Shared::default();
    let lives = unsafe { thread::spawn(STACK, Descriptors::Shared, reports, shared.pointer()).unwrap() };
    let mut last = 0;
    for _ in 0..200 {
        let nothing = core::ptr::null_mut();
        let ends = unsafe { thread::spawn(STACK, Descriptors::Shared, does_nothing, nothing).unwrap() };
        last = ends.tid();
        ends.join();
    }
    assert!(thread::is_own(lives.tid()));
    assert!(!thread::is_own(last), "its number will be another's");
    shared.release();
    lives.join();
}

#[test]
fn a_hundred_come_and_go() {
    extern "C" fn adds(argument: *mut ()) {
        shared(argument).result.fetch_add(1, Ordering::AcqRel);
    }
    let shared = Shared::default();
    // What is unmapped may be mapped again at once, by a test beside this one. Not every time.
    let mut unmapped = false;
    for _ in 0..25 {
        let threads: Vec<_> = (0..4)
            .map(|_| unsafe {
                thread::spawn(4 * PAGE_SIZE, Descriptors::Shared, adds, shared.pointer()).unwrap()
            })
            .collect();
        let stack = threads[0].range();
        threads.into_iter().for_each(thread::Thread::join);
        unmapped |= mem::copy_from_self(&mut [0], stack.end - 8) == Err(Errno::FAULT);
    }
    assert!(unmapped, "a thread that was joined left its stack");
    assert_eq!(shared.result.load(Ordering::Acquire), 100);
}

#[test]
fn futexes_time_out_and_wake() {
    let word = AtomicU32::new(7);
    assert_eq!(futex::wait(&word, 8, None, Scope::Private), Err(Errno::AGAIN));
    let start = clock::monotonic_ns();
    assert_eq!(futex::wait(&word, 7, Some(10_000_000), Scope::Shared), Err(Errno::TIMEDOUT));
    assert!(clock::monotonic_ns() - start >= 10_000_000);
    assert_eq!(futex::wake(&word, 1, Scope::Private), 0);
    // In memory shared between processes.
    let file = file::memfd(c"futex").unwrap();
    file::truncate(&file, PAGE_SIZE as u64).unwrap();
    let memory = Mapping::shared(&file, PAGE_SIZE, mem::Prot::RW, 0).unwrap();
    let word = unsafe { AtomicU32::from_ptr(memory.as_ptr()) };
    let child = unsafe { libc::fork() };
    if child == 0 {
        clock::sleep_ns(5_000_000);
        word.store(1, Ordering::Release);
        futex::wake(word, 1, Scope::Shared);
        thread::exit_process(0);
    }
    while word.load(Ordering::Acquire) == 0 {
        let _ = futex::wait(word, 0, Some(1_000_000_000), Scope::Shared);
    }
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    assert!(clock::thread_cpu_ns() > 0);
}

/// *The story:* a failed assertion found its thread in SCHED_FIFO, where it span for ever.
#[test]
fn whoever_stands_back_is_an_ordinary_thread() {
    use overspill_sys::thread::{Scheduling, stand_back};
    // A thread of its own: it keeps what it sets. The class takes a privilege.
    std::thread::spawn(|| {
        let current = || Scheduling::current().expect("a thread may know its own class");
        let is_first = Scheduling::first(1).set().is_ok();
        let before = current();
        stand_back();
        assert_eq!(before != current(), is_first);
    })
    .join()
    .expect("the assertion holds");
}

/// *The story:* of a program with real-time priority 50 the agent's thread took priority 1, and never
/// ran beside it on one processor.
#[test]
fn whoever_comes_before_others_has_more_than_they_and_than_it_had() {
    use overspill_sys::thread::{Scheduling, come_before};
    std::thread::spawn(|| {
        let own = || Scheduling::current().expect("a thread may know its own class").real_time_priority();
        assert_eq!(own(), 0);
        if come_before(0).is_ok() {
            let after = [0, 50, 20, 99].map(|priority| come_before(priority).map(|()| own()));
            assert_eq!(after, [Ok(1), Ok(51), Ok(51), Ok(99)]);
        }
    })
    .join()
    .expect("the assertion holds");
}

/// *The story:* whoever waited for an agent that waited for a device could not be ended.
#[test]
fn what_no_handler_is_for_is_let_through() {
    extern "C" fn handles(_: i32) {}
    let bit = |signal: i32| 1u64 << (signal - 1);
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, handles as *const () as usize) };
    let before = thread::block_all_signals().unwrap();
    thread::unblock_unhandled(before | bit(libc::SIGUSR2));
    let mask = thread::block_all_signals().unwrap();
    thread::restore_signals(before);
    let blocked =
        [libc::SIGUSR1, libc::SIGUSR2, libc::SIGTERM, libc::SIGTSTP].map(|signal| mask & bit(signal));
    assert_eq!(blocked, [bit(libc::SIGUSR1), bit(libc::SIGUSR2), 0, 0]);
}

/// *The story:* a thread was taken for gone because it was another process's.
#[test]
fn only_what_has_ended_is_gone() {
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let tid = child.id();
    assert!(!thread::is_gone(thread::id()) && !thread::is_gone(tid));
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(thread::is_gone(tid));
}
