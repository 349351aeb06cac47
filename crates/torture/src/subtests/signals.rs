//! Signals whose handlers run on stacks that are out of RAM, and signals that interrupt threads
//! while they wait for pages.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::context::{Context, parallel};
use crate::faults::install_handler;
use crate::memory::{Memory, PAGE};
use crate::outcome::Outcome;
use crate::sys::check;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x519;
static HANDLED: AtomicUsize = AtomicUsize::new(0);
static STACK: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);

/// Uses 32 KiB of its stack, and notes when that is not the alternative one.
extern "C" fn on_signal(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let mut frame = [0u64; 4096];
    for (index, word) in frame.iter_mut().enumerate() {
        *word = pattern::word(SEED, 0, index);
    }
    let here = std::hint::black_box(&mut frame).as_ptr() as usize;
    let range = STACK[0].load(Relaxed)..STACK[1].load(Relaxed);
    let intact = frame.iter().enumerate().all(|(index, &word)| word == pattern::word(SEED, 0, index));
    if !range.contains(&here) || info.is_null() || !intact {
        ELSEWHERE.fetch_add(1, Relaxed);
    }
    HANDLED.fetch_add(1, Relaxed);
}

extern "C" fn on_tick(_signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    HANDLED.fetch_add(1, Relaxed);
}

/// `sigaltstack`: the kernel pushes the frame of a handler onto a cold alternative stack, which the
/// handler then uses.
pub fn sigaltstack(context: &mut Context) -> Outcome {
    const STACK_LEN: usize = 64 * PAGE;
    let memory = context.subject(SEED)?;
    let offset = memory.len() / 4;
    STACK[0].store(memory.base() + offset, Relaxed);
    STACK[1].store(memory.base() + offset + STACK_LEN, Relaxed);
    let stack = libc::stack_t { ss_sp: memory.at(offset).cast(), ss_flags: 0, ss_size: STACK_LEN };
    // SAFETY: the stack lies in memory that stays mapped until the stack is switched off below.
    check("sigaltstack", unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) } as isize)?;
    install_handler(libc::SIGUSR1, on_signal)?;
    for round in 1..=6 {
        context.cool(&memory)?;
        // SAFETY: the handler is installed.
        check("raise", unsafe { libc::raise(libc::SIGUSR1) } as isize)?;
        ensure!(HANDLED.load(Relaxed) == round, "{} of {round} signals were handled", HANDLED.load(Relaxed));
        ensure!(
            ELSEWHERE.load(Relaxed) == 0,
            "a handler did not run on the alternative stack, or its stack broke"
        );
        let behind = (offset + STACK_LEN) / PAGE;
        pattern::check_pages(&memory, 0..offset / PAGE, SEED, "below the signal stack")?;
        pattern::check_pages(&memory, behind..memory.pages(), SEED, "above the signal stack")?;
    }
    let off = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    // SAFETY: switches the alternative stack off.
    check("sigaltstack", unsafe { libc::sigaltstack(&raw const off, std::ptr::null_mut()) } as isize)
        .map(drop)
}

/// `interrupts`: a timer interrupts threads thousands of times a second while they load and store
/// cold memory and while the kernel does so for them.
pub fn interrupts(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    install_handler(libc::SIGALRM, on_tick)?;
    set_timer(250)?;
    let deadline = context.deadline();
    context.under_pressure(|context| {
        parallel(4, |lane| {
            let mut rng = context.rng(lane);
            let share = memory.pages() / 4;
            let own = lane * share..(lane + 1) * share;
            let (reader, writer) = sys::pipe()?;
            while std::time::Instant::now() < deadline {
                let page = own.start + rng.below(share);
                pattern::check_page(&memory, page, SEED, page, "while interrupted")?;
                pattern::fill_page(&memory, page, SEED, page);
                interrupted_pipe(&memory, own.start + rng.below(share), (&reader, &writer))?;
            }
            Ok(())
        })
    })?;
    set_timer(0)?;
    ensure!(HANDLED.load(Relaxed) > 100, "only {} ticks were handled", HANDLED.load(Relaxed));
    context.sabotage(&memory);
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after the interruptions")
}

/// A page through a pipe onto itself, as read(2) and write(2) may be interrupted too. In between it holds
/// something else.
fn interrupted_pipe(
    memory: &Memory,
    page: usize,
    (reader, writer): (&std::os::fd::OwnedFd, &std::os::fd::OwnedFd),
) -> Outcome {
    use std::os::fd::AsRawFd;
    sys::write_all(writer.as_raw_fd(), memory.page(page) as *const u8, PAGE)?;
    pattern::fill_page(memory, page, SEED + 1, page);
    sys::read_all(reader.as_raw_fd(), memory.page(page) as *mut u8, PAGE)
}

fn set_timer(interval_us: i64) -> Outcome {
    let interval = libc::timeval { tv_sec: 0, tv_usec: interval_us };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: `timer` is initialised and only read.
    let result = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    check("setitimer", result as isize).map(drop)
}
